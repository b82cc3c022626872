//! A configuration file with the positions of its settings.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IntoDeserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::toml_message;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::read_text;

/// A configuration file.
#[derive(Clone, Default)]
pub struct Document {
    /// The path in messages.
    shown: Arc<str>,
    text: Arc<str>,
}

/// A setting's name below a document or section: the keys of its tables and its own, and decimal indices of arrays.
pub type SettingPath<'a> = &'a [&'a str];

impl Document {
    /// Reads the file `path`; messages call it `shown`.
    pub fn read(path: &Path, shown: &str) -> Result<Self> {
        Ok(Self::new(shown, &read_text(path, shown)?))
    }

    /// Returns the document with this content; messages call it `shown`.
    pub fn new(shown: &str, text: &str) -> Self {
        Document {
            shown: shown.into(),
            text: text.into(),
        }
    }

    /// Deserialises the document without the tables in the tables at `paths`, which have other readers ([`Section`]).
    /// Returns their names, too, for each path.
    pub(crate) fn parse_without_tables<T: DeserializeOwned>(
        &self,
        paths: &[SettingPath<'_>],
    ) -> Result<(T, Vec<Vec<String>>)> {
        let mut document = DeTable::parse(&self.text)
            .map_err(|error| self.malformed(&error).details(self.marked(&error)))?;
        let names = paths
            .iter()
            .map(|path| take_tables(document.get_mut(), path))
            .collect();
        T::deserialize(document.into_deserializer())
            .map(|parsed| (parsed, names))
            .map_err(|error| self.malformed(&error))
    }

    /// Returns the table at `path` as a section of its own. `tables` are the names of all tables beside it, its own
    /// among them.
    pub(crate) fn section(&self, path: SettingPath<'_>, tables: Vec<String>) -> Section {
        Section {
            document: self.clone(),
            path: path.iter().map(|&key| key.to_owned()).collect(),
            tables,
            overrides: toml::Table::new(),
        }
    }

    /// Returns a usage error at the line of the setting at `path`, or of the nearest table around it.
    pub(crate) fn error(&self, path: SettingPath<'_>, message: impl Into<String>) -> Error {
        self.locate(path, Error::configuration(message))
    }

    /// Adds the line of the setting at `path` to an error, or that of the nearest table around it.
    pub(crate) fn locate(&self, path: SettingPath<'_>, error: Error) -> Error {
        error.at(&*self.shown, self.line(path))
    }

    /// Returns the line of the setting at `path`, or of the nearest table around it, from 1; `None` if the document
    /// has neither.
    fn line(&self, path: SettingPath<'_>) -> Option<usize> {
        let document = DeTable::parse(&self.text).ok()?;
        let (key, rest) = path.split_first()?;
        let (key, mut value) = document.get_ref().get_key_value(*key)?;
        let mut span = key.span();
        for key in rest {
            let found = match value.get_ref() {
                DeValue::Table(table) => table
                    .get_key_value(*key)
                    .map(|(key, value)| (key.span(), value)),
                DeValue::Array(array) => {
                    let index = key.parse::<usize>().ok();
                    let item = index.and_then(|index| array.get(index));
                    item.map(|item| (item.span(), item))
                }
                _ => None,
            };
            let Some(found) = found else { break };
            (span, value) = found;
        }
        Some(self.line_at(&span))
    }

    fn line_at(&self, span: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        before.iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    /// Returns the line of an error of the TOML parser, and a caret below its place.
    fn marked(&self, error: &toml::de::Error) -> Vec<String> {
        let Some(span) = error.span() else {
            return Vec::new();
        };
        let Some(before) = self.text.get(..span.start) else {
            return Vec::new();
        };
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = self.text[start..].lines().next().unwrap_or_default();
        let indent: String = before[start..]
            .chars()
            .map(|c| if c == '\t' { c } else { ' ' })
            .collect();
        vec![line.to_owned(), format!("{indent}^")]
    }

    /// Converts an error of the TOML parser.
    fn malformed(&self, error: &toml::de::Error) -> Error {
        let span = error.span();
        let line = span.as_ref().map(|span| self.line_at(span));
        let key = span
            .as_ref()
            .and_then(|span| toml_message::key_of(&self.text, span.start));
        let mut lines = error.message().lines();
        let is_item = span.is_some_and(|span| toml_message::is_item(&self.text, span.start));
        toml_message::error(lines.next().unwrap_or("malformed"), key, is_item)
            .details(lines.map(str::to_owned))
            .at(&*self.shown, line)
    }
}

/// Removes the tables in the table at `path`, and returns their names.
fn take_tables(document: &mut DeTable<'_>, path: SettingPath<'_>) -> Vec<String> {
    let mut table = Some(document);
    for key in path {
        table = table.and_then(|table| match table.get_mut(*key).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) => Some(inner),
            _ => None,
        });
    }
    let Some(table) = table else {
        return Vec::new();
    };
    let tables = table.iter().filter(|(_, value)| value.get_ref().is_table());
    let names: Vec<String> = tables.map(|(key, _)| key.get_ref().to_string()).collect();
    for name in &names {
        table.remove(name.as_str());
    }
    names
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({})", self.shown)
    }
}

/// A table of the configuration whose settings belong to the code that uses them: that of a workload's client or
/// of a server's adapter.
#[derive(Debug, Clone, Default)]
pub struct Section {
    document: Document,
    path: Vec<String>,
    /// The names of the tables in the table around the section.
    tables: Vec<String>,
    /// Settings that replace those of the file.
    overrides: toml::Table,
}

impl Section {
    /// Returns the name of the section, without brackets: `server.command`.
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// Checks that the table around the section has no other tables: they would be sections of other owners. `owner`
    /// describes the section's own: "the kind `command`".
    pub fn check_alone(&self, owner: &str) -> Result<()> {
        let Some((own, around)) = self.path.split_last() else {
            return Ok(());
        };
        let Some(other) = self.tables.iter().find(|table| *table != own) else {
            return Ok(());
        };
        let path: Vec<&str> = around.iter().chain([other]).map(String::as_str).collect();
        let fault = format!("[{}] is not a section of {owner}", path.join("."));
        Err(self.document.error(&path, fault))
    }

    /// Replaces settings of the section.
    #[must_use]
    pub fn with(mut self, overrides: &toml::Table) -> Self {
        self.overrides.extend(overrides.clone());
        self
    }

    /// Deserialises the settings; `None` if the document has no such table.
    pub fn parse<S: DeserializeOwned>(&self) -> Result<Option<S>> {
        let malformed = |error| self.document.malformed(&error);
        let document = DeTable::parse(&self.document.text).map_err(malformed)?;
        let span = document.span();
        let mut value = Spanned::new(span, DeValue::Table(document.into_inner()));
        for key in &self.path {
            let DeValue::Table(mut table) = value.into_inner() else {
                return Ok(None);
            };
            match table.remove(key.as_str()) {
                Some(inner) => value = inner,
                None => return Ok(None),
            }
        }
        if self.overrides.is_empty() {
            return S::deserialize(value.into_deserializer())
                .map(Some)
                .map_err(malformed);
        }
        let mut table = toml::Table::deserialize(value.into_deserializer()).map_err(malformed)?;
        table.extend(self.overrides.clone());
        // The overrides are in another file, so the error has no line in this one.
        table
            .try_into()
            .map(Some)
            .map_err(|error: toml::de::Error| {
                toml_message::error(error.message(), None, false).at(&*self.document.shown, None)
            })
    }

    /// Returns a usage error at the line of a setting of this section, or of the nearest table around it.
    pub fn error(&self, setting: SettingPath<'_>, message: impl Into<String>) -> Error {
        self.locate(setting, Error::configuration(message))
    }

    /// Adds the line of a setting of this section to an error, or that of the nearest table around it.
    pub fn locate(&self, setting: SettingPath<'_>, error: Error) -> Error {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        self.document.locate(&[&path, setting].concat(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# The setting is `b.c`: c = 3\n[a]\nx = 1\n\n[[b]]\nc = 2\n\n[[b]]\n\"c\" = [\n  1,\n  2,\n]\nd = { e = 4 }\n";

    #[test]
    fn settings_are_found_by_their_path() {
        let document = Document::new("x.toml", TEXT);
        for (path, line) in [
            (&["a"][..], Some(2)),
            (&["a", "x"], Some(3)),
            (&["a", "missing", "deeper"], Some(2)),
            (&["b", "0", "c"], Some(6)),
            (&["b", "1", "c"], Some(9)),
            (&["b", "1", "c", "1"], Some(11)),
            (&["b", "1", "d", "e"], Some(13)),
            (&["c"], None),
            (&[], None),
        ] {
            assert_eq!(document.line(path), line, "{path:?}");
        }
    }

    #[test]
    fn a_section_is_read_apart_from_its_document() {
        #[derive(Debug, Deserialize, PartialEq)]
        #[serde(deny_unknown_fields)]
        struct Outer {
            kind: String,
        }
        #[derive(Debug, Deserialize, PartialEq)]
        #[serde(deny_unknown_fields)]
        struct Inner {
            size: u32,
        }
        let document = Document::new("x.toml", "kind = 'k'\n\n[k]\nsize = 1\n");
        let kind = "k".to_owned();
        let (outer, names) = document.parse_without_tables::<Outer>(&[&[]]).unwrap();
        assert_eq!((outer, names), (Outer { kind }, vec![vec!["k".to_owned()]]));
        let line = |error: Error| error.location().and_then(|place| place.line);
        let error = document.parse_without_tables::<Inner>(&[&[]]).unwrap_err();
        assert_eq!(line(error), Some(1));
        let section = document.section(&["k"], Vec::new());
        assert_eq!(section.parse().unwrap(), Some(Inner { size: 1 }));
        let overridden = section.clone().with(&toml::toml! { size = 2 });
        assert_eq!(overridden.parse().unwrap(), Some(Inner { size: 2 }));
        assert!(
            overridden
                .with(&toml::toml! { sise = 2 })
                .parse::<Inner>()
                .is_err()
        );
        assert_eq!(line(section.error(&["size"], "too small")), Some(4));
        assert_eq!(
            document
                .section(&["l"], Vec::new())
                .parse::<Inner>()
                .unwrap(),
            None,
            "no such table"
        );
    }
}
