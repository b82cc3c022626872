//! Texts with placeholders for random values.

use std::collections::BTreeMap;

/// A value that a transaction draws: the index of its parameter, and which of the transaction's draws of it.
pub(super) type Slot = (usize, u32);

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    pieces: Vec<Piece>,
}

/// A part of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as it stands.
    Text(String),
    /// A value: its index among those of the transaction.
    Value(usize),
}

/// The values drawn for a transaction.
#[derive(Debug, Default)]
pub struct Values {
    text: Vec<u8>,
    /// The end of each value in `text`.
    ends: Vec<usize>,
    /// The values that are integers.
    integers: Vec<Option<i64>>,
}

impl Values {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.integers.clear();
    }

    /// Adds a value: `draw` appends its text and returns it if it is an integer.
    pub(super) fn add(&mut self, draw: impl FnOnce(&mut Vec<u8>) -> Option<i64>) {
        self.integers.push(draw(&mut self.text));
        self.ends.push(self.text.len());
    }

    /// Returns the text of a value.
    pub fn text(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[index]]
    }

    /// Returns a value that is an integer.
    pub fn integer(&self, index: usize) -> Option<i64> {
        self.integers[index]
    }
}

impl Template {
    /// Parses `text`: `{NAME}` stands for a value of the parameter NAME, one and the same in a transaction, and
    /// `{NAME:2}`, `{NAME:3}` … for further ones. Other braces stand for themselves. `parameters` are the indices
    /// of the parameters; values are looked up in and added to `slots`.
    /// The error is the placeholder whose name is not among `parameters`.
    pub(super) fn parse(
        text: &str,
        parameters: &BTreeMap<&str, usize>,
        slots: &mut Vec<Slot>,
    ) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            let (before, after) = rest.split_at(start);
            literal.push_str(before);
            let Some((name, draw, length)) = placeholder(after) else {
                literal.push('{');
                rest = &after[1..];
                continue;
            };
            let parameter = *parameters
                .get(name)
                .ok_or_else(|| after[..length].to_owned())?;
            let slot = (parameter, draw);
            let index = slots.iter().position(|known| *known == slot);
            let index = index.unwrap_or_else(|| {
                slots.push(slot);
                slots.len() - 1
            });
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Value(index));
            rest = &after[length..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Template { pieces })
    }

    /// Returns its parts.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the length of the text with these values, in bytes.
    pub fn length(&self, values: &Values) -> usize {
        let length = |piece: &Piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Value(index) => values.text(*index).len(),
        };
        self.pieces.iter().map(length).sum()
    }

    /// Appends the text with these values.
    pub fn write(&self, values: &Values, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Value(index) => out.extend_from_slice(values.text(*index)),
            }
        }
    }
}

/// Returns name, draw and length of the placeholder at the begin of `text`, which begins with a brace.
pub(super) fn placeholder(text: &str) -> Option<(&str, u32, usize)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let (name, draw) = match inner.split_once(':') {
        Some((name, draw)) => (name, draw.parse().ok().filter(|&draw| draw > 0)?),
        None => (inner, 1),
    };
    is_name(name).then_some((name, draw, end + 1))
}

/// Returns whether `name` is a parameter's name: lower-case letters, digits and underscores, not first a digit.
pub(super) fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Template, Vec<Slot>), String> {
        let mut slots = Vec::new();
        let parameters = BTreeMap::from([("id", 0), ("name", 1)]);
        Template::parse(text, &parameters, &mut slots).map(|template| (template, slots))
    }

    #[test]
    fn placeholders_stand_for_values() {
        let (template, slots) =
            parse("a {id}-{name}{id:2} {id} { id } {} {ID} {\"id\": 1").unwrap();
        assert_eq!(slots, [(0, 1), (1, 1), (0, 2)]);
        let mut values = Values::default();
        for (text, integer) in [("7", Some(7)), ("x", None), ("", None)] {
            values.add(|out| {
                out.extend_from_slice(text.as_bytes());
                integer
            });
        }
        let mut out = Vec::new();
        template.write(&values, &mut out);
        assert_eq!(out, b"a 7-x 7 { id } {} {ID} {\"id\": 1");
        assert_eq!(template.length(&values), out.len());
        assert_eq!((values.integer(0), values.integer(1)), (Some(7), None));
    }

    #[test]
    fn unknown_names_are_reported() {
        assert_eq!(parse("x {idd}").unwrap_err(), "{idd}");
        assert_eq!(parse("x {idd:2} y").unwrap_err(), "{idd:2}");
        assert!(parse("x {id:0} {id:x} {1} {").unwrap().1.is_empty());
    }
}
