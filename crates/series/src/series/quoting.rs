//! Diffs in the words of a header, as a commit's message may quote them: `patch` and quilt would apply them.

use super::diff;

/// Escapes `text` for a header. It indents lines that would end the header for quilt or git. If GNU patch would still
/// find a diff in the text, it quotes the lines in question with `> `.
pub fn escaped(text: &str) -> String {
    let ends = |line: &str| {
        line == "---"
            || ["diff -", "Index:", "--- ", "*** "]
                .iter()
                .any(|start| line.starts_with(start))
    };
    let lines = text.lines().map(|line| {
        if ends(line) {
            format!(" {line}")
        } else {
            line.to_owned()
        }
    });
    let indented = lines.collect::<Vec<_>>().join("\n");
    if is_prose(&indented) {
        return indented;
    }
    let without_end = |text: String| text.strip_suffix('\n').map(str::to_owned).unwrap_or(text);
    let quoted = without_end(quote_diffs(text));
    if is_prose(&quoted) {
        quoted
    } else {
        without_end(quote_lines(text))
    }
}

/// Quotes the lines that may be header lines of a diff with `> `.
pub fn quote_diffs(text: &str) -> String {
    quote(text, may_be_diff_header)
}

/// Quotes all lines with `> `.
pub fn quote_lines(text: &str) -> String {
    quote(text, |line| !line.is_empty())
}

fn quote(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    let lines = text.lines().map(|line| {
        let mark = if wanted(line) { "> " } else { "" };
        format!("{mark}{line}\n")
    });
    lines.collect()
}

/// Returns whether a line, at any indentation, may be a header line of a diff.
fn may_be_diff_header(line: &str) -> bool {
    let text = line.trim_start_matches([' ', '\t', 'X']);
    // RFC 934 encapsulation puts `- ` before the lines.
    let inner = text.trim_start_matches("- ");
    text == "---"
        || ["diff -", "Index:", "+++ ", "*** ", "@@ "]
            .iter()
            .any(|start| text.starts_with(start))
        || inner.starts_with("--- ")
}

/// Returns whether GNU patch finds no diff in `text` and still reads the diff that follows it.
fn is_prose(text: &str) -> bool {
    const DIFF: &[u8] = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
    let header = format!("{text}\n\n");
    let bytes = [header.as_bytes(), DIFF].concat();
    diff::header_length(&bytes) == header.len() && is_same_diff(&bytes, DIFF)
}

/// Returns whether GNU patch finds the same diffs in both files.
pub fn is_same_diff(one: &[u8], other: &[u8]) -> bool {
    let files = |bytes: &[u8]| diff::parse(bytes, 1, "").ok().map(|parsed| parsed.files);
    match (files(one), files(other)) {
        (Some(one), Some(other)) => diff::same_changes(one, other),
        _ => false,
    }
}

/// How a header has a message in which `patch` or quilt would find a diff, or which has a line `---`: lines are quoted
/// with `> `, and a field says so, so that the message can be read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// The lines that may be header lines of a diff, with any number of quotation marks before them.
    Diffs,
    /// All lines.
    All,
}

/// The field of a header with quoted lines.
const QUOTED_KEY: &str = "Perfquilt-Quoted";

impl Quoting {
    /// Returns the quoting that a header needs for this text.
    pub fn needed(body: &str) -> Option<Quoting> {
        let quoted = |quoting: Option<Quoting>| -> String {
            let lines = body
                .lines()
                .map(|line| Quoting::quoted(quoting, line) + "\n");
            lines.collect()
        };
        let ends = body.lines().any(|line| line.trim_end() == "---");
        let ways = [None, Some(Quoting::Diffs), Some(Quoting::All)];
        let mut ways = ways.into_iter().skip(usize::from(ends));
        ways.find(|quoting| is_prose(quoted(*quoting).trim_end_matches('\n')))
            .unwrap_or(Some(Quoting::All))
    }

    /// Returns the quoting that the value of a header's field names.
    pub fn named(value: &str) -> Option<Quoting> {
        match value {
            "diffs" => Some(Quoting::Diffs),
            "all" => Some(Quoting::All),
            _ => None,
        }
    }

    /// Returns the line of the field.
    pub fn field(self) -> String {
        let value = match self {
            Quoting::Diffs => "diffs",
            Quoting::All => "all",
        };
        format!("{QUOTED_KEY}: {value}\n")
    }

    fn is_meant(self, line: &str) -> bool {
        match self {
            Quoting::Diffs => {
                let mut inner = line;
                while let Some(rest) = inner.strip_prefix("> ") {
                    inner = rest;
                }
                may_be_diff_header(inner.trim_end())
            }
            Quoting::All => !line.is_empty(),
        }
    }

    /// Returns a line of a message as a line of the header.
    pub fn quoted(quoting: Option<Quoting>, line: &str) -> String {
        match quoting.filter(|quoting| quoting.is_meant(line)) {
            Some(_) => format!("> {line}"),
            None => line.to_owned(),
        }
    }

    /// Returns a line of the header as a line of the message.
    pub fn unquoted(self, line: &str) -> &str {
        let inner = line.strip_prefix("> ").filter(|inner| self.is_meant(inner));
        inner.unwrap_or(line)
    }
}
