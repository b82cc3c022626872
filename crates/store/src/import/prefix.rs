//! Tools' output in the log of a container, a service or a workflow, which puts a time or a name before each line.

use std::path::Path;

use super::{IMPORTERS, Importer, at};
use perfquilt_model::error::Result;

/// Returns what stands before a tool's output in a line, and the tool's format; `None` without such output.
pub(super) fn tool_behind(line: &str) -> Option<(&str, &'static Importer)> {
    /// The longest text before it, in bytes.
    const LONGEST: usize = 200;
    let starts = line.char_indices().take_while(|(at, _)| *at <= LONGEST);
    let words = starts.filter(|(at, _)| {
        let before = line[..*at].chars().next_back();
        before.is_some_and(|before| !before.is_alphanumeric() || before == 'm')
    });
    words.into_iter().find_map(|(at, _)| {
        let (before, rest) = line.split_at(at);
        let format = IMPORTERS
            .into_iter()
            .find(|importer| (importer.has_line)(rest))?;
        Some((before, format))
    })
}

/// Returns whether text before a tool's output is that of a log; colours, quotes and JSON are not.
pub(super) fn is_of_log(before: &str) -> bool {
    !before.contains(['\u{1b}', '"', '{', '\r'])
}

/// Returns the output of a tool whose `form` is known, without the prefix of a log, and with all line numbers. Lines of other
/// sources become empty.
///
/// # Errors
/// Where the tool's output stands behind several prefixes.
pub(super) fn without_prefix(text: String, form: &Importer, path: &Path) -> Result<String> {
    if text.lines().any(|line| (form.has_line)(line.trim_end())) {
        return Ok(text);
    }
    let mut behind = text.lines().enumerate().filter_map(|(line, text)| {
        let (before, _) = tool_behind(text).filter(|(before, _)| is_of_log(before))?;
        Some((line, before))
    });
    let Some((first, prefix)) = behind.next() else {
        return Ok(text);
    };
    if let Some((line, other)) = behind.find(|(_, other)| rest(other, prefix) != Some("")) {
        return Err(at(
            path,
            line,
            format!(
                "{} begins behind `{}` here, and behind `{}` in line {}: keep the lines of one source",
                form.name,
                other.escape_debug(),
                prefix.escape_debug(),
                first + 1
            ),
        ));
    }
    let lines = text.lines().map(|line| rest(line, prefix).unwrap_or(""));
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

/// Returns what follows a prefix like `prefix`, whose numbers (times, process ids) may be others; `None` if the line begins
/// otherwise.
fn rest<'l>(line: &'l str, prefix: &str) -> Option<&'l str> {
    let is_digit = |c: char| c.is_ascii_digit();
    let (mut line, mut prefix) = (line, prefix);
    while let Some(next) = prefix.chars().next() {
        if is_digit(next) {
            prefix = prefix.trim_start_matches(is_digit);
            line = line.strip_prefix(is_digit)?.trim_start_matches(is_digit);
        } else {
            prefix = &prefix[next.len_utf8()..];
            line = line.strip_prefix(next)?;
        }
    }
    Some(line)
}
