//! Parser for context hunks (`*** 1,3 ****` and `--- 1,4 ----`). Like GNU patch, it accepts a hunk without one of its
//! halves if the other half implies it.

use super::hunks::{LineError, number};
use super::lines::{LineFormat, PatchLines};
use super::{Hunk, Line, LineChange};
use perfquilt_model::error::Error;

/// State that carries over from one hunk to the next.
#[derive(Debug, Clone, Default)]
pub(super) struct ContextState {
    /// Whether ranges end in `****`, as newer versions of diff write them.
    pub new_style: bool,
    /// Number of context lines at the beginning of the previous hunk.
    prefix: usize,
}

/// A line of a half: its marker and its text.
#[derive(Debug, Clone)]
struct HalfLine {
    mark: u8,
    text: Vec<u8>,
}

/// One half of a hunk: the lines before or after the change.
#[derive(Debug, Default)]
struct Half {
    first: usize,
    count: usize,
    slots: Vec<HalfLine>,
    /// Number of unchanged lines.
    copiable: usize,
    /// Number of unchanged lines before the first change.
    prefix: Option<usize>,
}

struct HunkReader<'r, 'a> {
    lines: &'r mut PatchLines<'a>,
    line_format: &'r LineFormat,
    state: &'r mut ContextState,
    /// Number of the line after the row of asterisks, counted from 1.
    begin: usize,
    old: Half,
    new: Half,
    second: bool,
    /// Whether the second half may be omitted.
    may_omit_second: bool,
    old_omitted: bool,
    /// Number of unchanged lines since the last change.
    context: usize,
    /// The value of `context` at the end of the first half.
    suffix: Option<usize>,
    spaces_eaten: bool,
    some_context: bool,
    /// Whether there is a blank line between the halves.
    blank_between: bool,
    /// The position after `---`, and the value of `context` there.
    rewind_to: (usize, usize),
    assumed: usize,
    edges: (usize, usize),
}

/// Reads the next context hunk, if there is one.
pub(super) fn context(
    lines: &mut PatchLines<'_>,
    line_format: &LineFormat,
    state: &mut ContextState,
) -> Result<Option<Hunk>, LineError> {
    let begins = |line: &[u8]| line.starts_with(b"********");
    if lines.next_if(line_format, begins).is_none() {
        return Ok(None);
    }
    let begin = lines.at + 1;
    let reader = HunkReader {
        lines,
        line_format,
        state,
        begin,
        old: Half::default(),
        new: Half::default(),
        second: false,
        may_omit_second: true,
        old_omitted: false,
        context: 0,
        suffix: None,
        spaces_eaten: false,
        some_context: false,
        blank_between: false,
        rewind_to: (0, 0),
        assumed: 0,
        edges: (0, 0),
    };
    reader.read().map(Some)
}

impl HunkReader<'_, '_> {
    fn fault(&self, what: &str) -> LineError {
        self.fault_at(self.lines.at, what)
    }

    fn fault_at(&self, line: usize, what: &str) -> LineError {
        let error = Error::patch_syntax(what.to_owned());
        let hint = "its ranges and lines disagree; was the patch edited by hand, or wrapped by a mail program?";
        (line, error.hint(hint))
    }

    fn read(mut self) -> Result<Hunk, LineError> {
        let head = self.lines.next(self.line_format).unwrap_or_default();
        if !head.starts_with(b"*") || head.starts_with(b"********") {
            return Err(self.fault("the range of the old lines (`*** FIRST,LAST ****`) is missing"));
        }
        (self.old.first, self.old.count) =
            range(head).ok_or_else(|| self.fault("malformed range"))?;
        let mut omitted = false;
        while !self.second || self.new.slots.len() < self.new.count {
            let line = match self.lines.next(self.line_format) {
                Some(line) => line,
                None if self.second && self.may_omit_second => {
                    omitted = true;
                    break;
                }
                // Mail programs remove blank lines at the end.
                None if self.second && self.new.count - self.new.slots.len() < 4 => {
                    self.assumed += 1;
                    b"  "
                }
                None => return Err(self.fault_at(self.begin, "the patch ends inside this hunk")),
            };
            if !self.line(line)? {
                omitted = true;
                break;
            }
        }
        self.complete(omitted)?;
        self.finish()
    }

    /// Returns whether the second half is omitted if the next line does not continue it.
    fn is_second_omitted(&self) -> bool {
        self.second && self.may_omit_second
    }

    /// Returns that a line does not belong to the hunk, whose second half is omitted; the error `what` if it cannot be.
    fn omitted_or(&self, what: &str) -> Result<bool, LineError> {
        if self.is_second_omitted() {
            return Ok(false);
        }
        Err(self.fault(what))
    }

    /// Returns a line without its mark; `None` if it does not belong to the hunk, whose second half is omitted.
    fn body<'l>(&self, line: &'l [u8]) -> Option<&'l [u8]> {
        match &line[1..] {
            [b' ' | b'\t', body @ ..] => Some(body),
            body => (!self.is_second_omitted()).then_some(body),
        }
    }

    /// Reads a line. Returns false if it does not belong to the hunk, whose second half is omitted.
    fn line(&mut self, line: &[u8]) -> Result<bool, LineError> {
        match line.first() {
            Some(b'*') => return self.omitted_or("the hunk before this line is not complete"),
            Some(b'-') if line.get(1) == Some(&b'-') => return self.middle(line),
            Some(&mark @ (b'+' | b'!' | b'-')) => {
                if mark != b'-' {
                    self.may_omit_second = false;
                }
                let Some(body) = self.body(line) else {
                    return Ok(false);
                };
                let context = self.context;
                self.half().prefix.get_or_insert(context);
                self.put(mark, body);
                self.context = 0;
            }
            None | Some(b'\t') => {
                if self.is_second_omitted() && (!self.spaces_eaten || self.state.new_style) {
                    return Ok(false);
                }
                if !self.second && self.old.slots.len() == self.old.count {
                    if self.blank_between || !line.is_empty() {
                        return Err(self.fault("this line does not fit the hunk it is in"));
                    }
                    self.blank_between = true;
                    return Ok(true);
                }
                self.spaces_eaten |= self.second;
                self.unchanged(line);
                if !line.is_empty()
                    && let Some(slot) = self.half().slots.last_mut()
                {
                    // GNU patch counts the tab twice and loses the line's end.
                    if slot.text.last() == Some(&b'\n') {
                        slot.text.pop();
                    }
                }
            }
            Some(b' ') => {
                let Some(body) = self.body(line) else {
                    return Ok(false);
                };
                self.unchanged(body);
            }
            Some(_) => return self.omitted_or("this line does not fit the hunk it is in"),
        }
        if !self.second && self.old.slots.len() > self.old.count {
            return Err(self.fault("there are more old lines than the range declares"));
        }
        Ok(true)
    }

    fn half(&mut self) -> &mut Half {
        if self.second {
            &mut self.new
        } else {
            &mut self.old
        }
    }

    fn unchanged(&mut self, body: &[u8]) {
        self.some_context = true;
        self.context += 1;
        self.half().copiable += 1;
        self.put(b' ', body);
    }

    fn put(&mut self, mark: u8, body: &[u8]) {
        let half = self.half();
        let is_last = half.slots.len() + 1 == half.count;
        let mut text = body.to_vec();
        if !(is_last && self.lines.incomplete()) {
            text.push(b'\n');
        }
        self.half().slots.push(HalfLine { mark, text });
    }

    /// Reads the line `--- FIRST,LAST ----` between the halves.
    fn middle(&mut self, line: &[u8]) -> Result<bool, LineError> {
        if self.second {
            // GNU patch overwrites the first half's trailing context here.
            self.suffix = Some(self.context);
            return self.omitted_or("a second `---` in this hunk");
        }
        self.old.prefix.get_or_insert(self.context);
        self.suffix = Some(self.context);
        let here = self.old.slots.len();
        if here != self.old.count {
            if here > 0 || self.blank_between {
                return Err(self.fault("`---` comes before the old lines are complete"));
            }
            self.old_omitted = true;
            self.old.prefix = None;
            self.suffix = None;
        }
        (self.new.first, self.new.count) =
            range(line).ok_or_else(|| self.fault("malformed range"))?;
        if self.new.count != self.old.copiable
            && (self.state.prefix != 0 || self.context != 0 || self.new.count != 1)
        {
            self.may_omit_second = false;
        }
        self.second = true;
        self.rewind_to = (self.lines.at, self.context);
        self.context = 0;
        Ok(true)
    }

    /// Fills in the omitted half.
    fn complete(&mut self, omitted: bool) -> Result<(), LineError> {
        let mangled = |this: &Self| {
            this.fault_at(this.begin, "the halves of this hunk do not fit each other")
        };
        let mut filled = false;
        if omitted {
            (self.lines.at, self.context) = self.rewind_to;
            self.new.slots = unchanged_of(&self.old);
            filled = self.new.count > 0;
            if self.new.slots.len() != self.new.count {
                return Err(mangled(self));
            }
        } else if !self.old_omitted {
            if self.old.copiable != self.new.copiable {
                return Err(mangled(self));
            }
        } else if !self.some_context && self.old.count == 1 {
            // GNU patch reads a hunk without context and with a range of one line as a pure insertion.
            self.old.first += 1;
            self.old.count = 0;
        } else {
            self.old.slots = unchanged_of(&self.new);
            filled = self.old.count > 0;
            if self.old.slots.len() != self.old.count {
                return Err(mangled(self));
            }
        }
        let prefix = match (self.old.prefix, self.new.prefix) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        let prefix = prefix.ok_or_else(|| mangled(self))?;
        let suffix = self
            .suffix
            .map_or(self.context, |suffix| suffix.min(self.context));
        self.edges = (prefix, suffix);
        self.state.prefix = prefix;
        if filled || (self.old.first > 1 && prefix + suffix < self.old.copiable) {
            self.state.new_style = true;
        }
        Ok(())
    }

    /// Merges the halves into one hunk.
    fn finish(self) -> Result<Hunk, LineError> {
        let out_of_step = self.fault_at(
            self.begin,
            "the changed lines of this hunk's halves are out of step",
        );
        let mut hunk = Hunk {
            line: self.begin,
            old_start: self.old.first,
            new_start: self.new.first,
            lines: Vec::new(),
            assumed: self.assumed,
            edges: None,
        };
        let mut old = self.old.slots.into_iter().peekable();
        let mut new = self.new.slots.into_iter().peekable();
        let line = |change, text| Line {
            change,
            text,
            after: None,
        };
        loop {
            let marks = (old.peek().map(|s| s.mark), new.peek().map(|s| s.mark));
            match marks {
                (None, None) => break,
                (Some(b'-'), _) => {
                    let slot = old.next().map(|slot| line(LineChange::Remove, slot.text));
                    hunk.lines.extend(slot);
                }
                (_, Some(b'+')) => {
                    let slot = new.next().map(|slot| line(LineChange::Add, slot.text));
                    hunk.lines.extend(slot);
                }
                (Some(b'!'), Some(b'!')) => {
                    while let Some(slot) = old.next_if(|slot| slot.mark == b'!') {
                        hunk.lines.push(line(LineChange::Remove, slot.text));
                    }
                    while let Some(slot) = new.next_if(|slot| slot.mark == b'!') {
                        hunk.lines.push(line(LineChange::Add, slot.text));
                    }
                }
                (Some(b' '), Some(b' ')) => {
                    if let (Some(before), Some(after)) = (old.next(), new.next()) {
                        let mut line = line(LineChange::Context, before.text);
                        line.after = (line.text != after.text).then_some(after.text);
                        hunk.lines.push(line);
                    }
                }
                _ => return Err(out_of_step),
            }
        }
        hunk.edges = Some(self.edges).filter(|edges| *edges != hunk.context());
        Ok(hunk)
    }
}

/// Returns the unchanged lines of a half.
fn unchanged_of(half: &Half) -> Vec<HalfLine> {
    half.slots
        .iter()
        .filter(|slot| slot.mark == b' ')
        .cloned()
        .collect()
}

/// Parses the first line and the number of lines of `*** 1,3 ****`.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let digit = |text: &[u8]| text.iter().position(u8::is_ascii_digit);
    let mut text = &line[digit(line)?..];
    let text = &mut text;
    if text.starts_with(b"0,0") {
        *text = &text[2..];
    }
    let first = number(text)?;
    let (first, count) = if text.first() == Some(&b',') {
        *text = &text[digit(text)?..];
        (first, number(text)? + 1 - first)
    } else if first > 0 {
        (first, 1)
    } else {
        (1, 0)
    };
    Some((usize::try_from(first).ok()?, usize::try_from(count).ok()?))
}
