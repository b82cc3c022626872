//! Quilt's `series` file, kept line by line so that rewriting it changes nothing else.

use std::collections::BTreeMap;

use super::options::{self, Flags};
use super::path;
use perfquilt_model::error::{Error, Result};

/// A `series` file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeriesFile {
    lines: Vec<String>,
    entries: Vec<SeriesEntry>,
    final_newline: bool,
}

/// A patch's line in `series`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesEntry {
    /// The patch's name: its path below the folder of patches.
    pub name: String,
    /// `-pN`: number of leading components to strip from the paths in the patch.
    pub strip: usize,
    /// `-R`: apply in reverse.
    pub reverse: bool,
    /// Further options.
    pub flags: Flags,
    /// Its line, counted from 1.
    pub line: usize,
}

impl SeriesEntry {
    /// Returns an entry without options.
    pub fn plain(name: &str) -> SeriesEntry {
        SeriesEntry {
            name: name.to_owned(),
            strip: 1,
            reverse: false,
            flags: Flags::default(),
            line: 1,
        }
    }
}

impl SeriesFile {
    /// Parses `bytes`; `shown` is the file's name in errors. Returns every fault with its line; the entries are the
    /// lines without a fault.
    pub fn parse(bytes: &[u8], shown: &str) -> (SeriesFile, Vec<Error>) {
        let mut file = SeriesFile {
            final_newline: bytes.last().is_none_or(|&last| last == b'\n'),
            ..SeriesFile::default()
        };
        let mut faults = Vec::new();
        let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if bytes.is_empty() {
            return (file, faults);
        }
        let mut first_line_of: BTreeMap<String, usize> = BTreeMap::new();
        for (index, raw) in body.split(|&b| b == b'\n').enumerate() {
            let number = index + 1;
            let fault = |error: Error| error.at(shown, number);
            let Ok(line) = std::str::from_utf8(raw) else {
                faults.push(fault(Error::series_syntax("the line is not UTF-8")));
                file.lines.push(String::from_utf8_lossy(raw).into_owned());
                continue;
            };
            file.lines.push(line.to_owned());
            match parse_line(line, number) {
                Ok(None) => {}
                Ok(Some(entry)) => match first_line_of.get(&entry.name) {
                    Some(first) => faults.push(fault(
                        Error::patch_name(format!("patch \"{}\" is listed twice", entry.name))
                            .hint(format!("it is on line {first} already; remove one of them")),
                    )),
                    None => {
                        first_line_of.insert(entry.name.clone(), number);
                        file.entries.push(entry);
                    }
                },
                Err(error) => faults.push(fault(error)),
            }
        }
        (file, faults)
    }

    /// Parses `bytes`, or returns the first fault.
    pub fn read(bytes: &[u8], shown: &str) -> Result<SeriesFile> {
        let (file, faults) = SeriesFile::parse(bytes, shown);
        faults.into_iter().next().map_or(Ok(file), Err)
    }

    /// Returns the patches in order.
    pub fn entries(&self) -> &[SeriesEntry] {
        &self.entries
    }

    /// Returns the unchanged lines, including comments and blank ones.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        self.text_of(&self.lines)
    }

    /// Returns the text of the file with other lines.
    pub fn text_of(&self, lines: &[String]) -> String {
        let mut text = lines.join("\n");
        if self.final_newline && !lines.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// What git writes around the sides of a conflict.
const MARKERS: [&str; 4] = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];

/// Parses a line; `None` for blank lines and comments.
fn parse_line(line: &str, number: usize) -> Result<Option<SeriesEntry>> {
    let trimmed = line.trim_matches(['\r', ' ', '\t']);
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(None);
    }
    if number == 1 && line.starts_with('\u{feff}') {
        return Err(
            Error::series_syntax("the file begins with a byte order mark")
                .hint("remove it: `sed -i '1s/^\\xef\\xbb\\xbf//' series`; quilt takes it for a part of the first name"),
        );
    }
    if MARKERS.iter().any(|marker| {
        let rest = trimmed.strip_prefix(marker);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }) {
        return Err(
            Error::unmerged("a merge left its conflict here")
                .hint("keep the patches of both sides in their order, and remove the lines with `<<<<<<<`, `=======` and `>>>>>>>`"),
        );
    }
    let mut words = trimmed.split([' ', '\t']).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or_default();
    path::check(name.as_bytes()).map_err(|error| {
        Error::series_syntax(error.message().to_owned())
            .hint("a patch is named by its path below the folder of patches")
    })?;
    let words: Vec<&str> = words.take_while(|word| !word.starts_with('#')).collect();
    let options = options::parse(&words)?;
    Ok(Some(SeriesEntry {
        name: name.to_owned(),
        strip: options.strip,
        reverse: options.reverse,
        flags: options.flags,
        line: number,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<(String, usize, bool, usize)> {
        let (file, faults) = SeriesFile::parse(text.as_bytes(), "series");
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(file.to_text(), text);
        file.entries()
            .iter()
            .map(|e| (e.name.clone(), e.strip, e.reverse, e.line))
            .collect()
    }

    #[test]
    fn grammar_of_quilt() {
        let text =
            "# head\n\na.patch\n  sub/b.patch -p0 # why\n\tc.patch -R -p2\nd.diff#1\n  # note\n";
        assert_eq!(
            entries(text),
            [
                ("a.patch".to_owned(), 1, false, 3),
                ("sub/b.patch".to_owned(), 0, false, 4),
                ("c.patch".to_owned(), 2, true, 5),
                ("d.diff#1".to_owned(), 1, false, 6),
            ]
        );
        assert_eq!(entries(""), []);
        assert_eq!(entries("\n\n"), []);
        assert_eq!(entries("a.patch").len(), 1);
        assert_eq!(entries("a.patch\r\nb.patch -p0\r\n")[1].1, 0);
    }

    #[test]
    fn marks_of_editors_and_merges_are_named() {
        let faults = |text: &str| -> Vec<String> {
            let (_, faults) = SeriesFile::parse(text.as_bytes(), "series");
            faults.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            faults("\u{feff}a.patch\nb.patch\n"),
            ["series:1: the file begins with a byte order mark"]
        );
        assert_eq!(
            faults("<<<<<<< HEAD\na.patch\n=======\nb.patch\n>>>>>>> other\n").len(),
            3
        );
        assert!(faults("=======.patch\n").is_empty());
    }

    #[test]
    fn faults_have_lines_and_do_not_hide_each_other() {
        let text = b"a.patch\na.patch\n../x\n/abs\nb.patch -pab\nc.patch --merge\n\xff\nok.patch\n";
        let (file, faults) = SeriesFile::parse(text, "series");
        let shown: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "series:2: patch \"a.patch\" is listed twice",
                "series:3: path ../x: it leads out of the tree (`..`)",
                "series:4: path /abs: absolute paths are not allowed",
                "series:5: `-pab` needs a number",
                "series:6: patch's option `--merge` is not supported",
                "series:7: the line is not UTF-8",
            ]
        );
        assert_eq!(file.entries().len(), 2);
    }
}
