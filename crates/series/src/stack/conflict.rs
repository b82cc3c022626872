//! Errors for hunks that do not apply, with expected and actual text and a hint.

use super::place::Placer;
use crate::series::path::shown;
use crate::series::text::{BLANKS_HINT, odd_blank};
use crate::series::{FileDiff, Hunk};
use perfquilt_model::error::Error;

/// Maximum fuzz that the hint tries, in lines.
const HINT_FUZZ: usize = 3;

/// Returns the error for hunk `index` of `diff`, which `placer` could not apply to `content`.
pub(super) fn hunk_error(
    diff: &FileDiff,
    index: usize,
    target: &[u8],
    content: &[u8],
    placer: &Placer<'_>,
) -> Error {
    let hunk = &diff.hunks[index];
    let error = Error::hunk(format!(
        "hunk {} of {} does not apply to {}",
        index + 1,
        diff.hunks.len(),
        shown(target)
    ))
    .details(difference(hunk, placer));
    if hunk.assumed > 0 {
        return error.hint(
            "the patch file ends inside this hunk; blank lines were assumed, as patch does, but the rest was probably cut off",
        );
    }
    if already_applied(diff, content) {
        return error.hint(
            "the whole change is in this file already; if upstream took it, drop the patch from the series",
        );
    }
    if contains_result(hunk, content) {
        return error
            .hint("this hunk's change is in the file already; drop the hunk from the patch");
    }
    if let Some((line, difference)) = other_blanks(hunk, placer) {
        return error
            .details([format!("only the blanks differ at line {line}{difference}")])
            .hint(BLANKS_HINT);
    }
    let context = hunk.context().0.max(hunk.context().1);
    let with_fuzz =
        (1..=HINT_FUZZ.min(context)).find_map(|fuzz| Some((fuzz, placer.locate(hunk, fuzz)?)));
    match with_fuzz {
        Some((fuzz, (line, _))) => error.hint(format!(
            "with fuzz {fuzz} it would apply at line {line}; check that place and refresh the patch"
        )),
        None => error.hint("change the patch by hand for this release and refresh it"),
    }
}

/// Returns the error for hunk `index` of `diff`, which applies only with fuzz and then at several `places`.
pub(super) fn fuzz_error(
    diff: &FileDiff,
    index: usize,
    target: &[u8],
    fuzz: usize,
    places: &[usize],
) -> Error {
    let lines: Vec<String> = places.iter().take(5).map(ToString::to_string).collect();
    let more = if places.len() > 5 { ", …" } else { "" };
    Error::hunk(format!(
        "hunk {} of {} applies to {} only with fuzz {fuzz}, and then at lines {}{more}",
        index + 1,
        diff.hunks.len(),
        shown(target),
        lines.join(", ")
    ))
    .hint("correct its line and its context in the patch; nothing else says which place is right")
}

/// Returns the error for a diff that creates an existing file.
pub(super) fn creation_error(diff: &FileDiff, target: &[u8], content: &[u8]) -> Error {
    let error = Error::file_state(format!(
        "the patch creates {}, which already exists",
        shown(target)
    ));
    if already_applied(diff, content) {
        error.hint("it is the very same file; if upstream took the change, drop the patch")
    } else {
        error.hint("rename the patch's file, or make the patch change the existing one")
    }
}

pub(super) fn already_applied(diff: &FileDiff, content: &[u8]) -> bool {
    if diff.hunks.iter().any(Hunk::leaves_nothing) {
        return false;
    }
    let reversed = diff.clone().reversed();
    let mut placer = Placer::new(content);
    reversed
        .hunks
        .iter()
        .all(|hunk| placer.apply(hunk, 0).is_some())
}

/// Returns whether the file contains the hunk's result; always false if the hunk leaves no lines.
pub fn contains_result(hunk: &Hunk, content: &[u8]) -> bool {
    if hunk.leaves_nothing() {
        return false;
    }
    Placer::new(content)
        .locate(&hunk.clone().reversed(), 0)
        .is_some()
}

/// Describes the first line that differs at the position where the search for the hunk started.
fn difference(hunk: &Hunk, placer: &Placer<'_>) -> Vec<String> {
    let start = placer.expected(hunk.old_start);
    for (index, expected) in hunk.before().enumerate() {
        let found = placer.line(start + index);
        if found != Some(expected) {
            return vec![
                format!(
                    "line {} should read  {}",
                    start + index,
                    text(Some(expected))
                ),
                format!("         but reads  {}", text(found)),
            ];
        }
    }
    vec![format!(
        "line {start} and the following read as expected, but the hunk belongs to the file's beginning or end, or overlaps the one before"
    )]
}

/// Returns the place where the file has the hunk's old lines with other blanks, and which blanks the patch has there.
fn other_blanks(hunk: &Hunk, placer: &Placer<'_>) -> Option<(usize, String)> {
    let before: Vec<&[u8]> = hunk.before().collect();
    let wanted: Vec<String> = before.iter().map(|line| visible(line)).collect();
    let lines: Vec<&[u8]> = (1..).map_while(|number| placer.line(number)).collect();
    let visible_lines: Vec<String> = lines.iter().map(|line| visible(line)).collect();
    let said = wanted.iter().any(|line| !line.trim_end().is_empty());
    let start = visible_lines.windows(wanted.len().max(1));
    let start = start
        .into_iter()
        .position(|lines| said && lines == wanted)?;
    let mut pairs = before.iter().zip(&lines[start..]).enumerate();
    let (index, (line, _)) = pairs.find(|(_, (line, there))| line != there)?;
    let blank =
        odd_blank(line).map_or_else(String::new, |blank| format!(": the patch has {blank}"));
    Some((start + index + 1, blank))
}

/// Returns a line without its blanks; its end stays.
fn visible(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let is_blank = |c: &char| c.is_whitespace() && !matches!(c, '\r' | '\n') || *c == '\u{feff}';
    text.chars().filter(|c| !is_blank(c)).collect()
}

fn text(line: Option<&[u8]>) -> String {
    let Some(line) = line else {
        return "(the file ends)".to_owned();
    };
    let shown = String::from_utf8_lossy(line);
    let body = shown.strip_suffix('\n');
    let ending = match body {
        None => " (without line end)",
        Some(body) if body.ends_with('\r') => " (with CR LF)",
        Some(_) => "",
    };
    let body = body.unwrap_or(&shown).trim_end_matches('\r');
    let short: String = body.chars().take(120).collect();
    let dots = if short.len() < body.len() { "…" } else { "" };
    format!("`{short}{dots}`{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::diff::parse;

    #[test]
    fn a_hunk_that_leaves_nothing_is_never_there_already() {
        let patches = [
            "--- f\n+++ f\n@@ -2 +1,0 @@\n-old(1);\n",
            "Index: f\n2d1\n< old(1);\n",
        ];
        for patch in patches {
            let parsed = parse(patch.as_bytes(), 0, "p").unwrap();
            let diff = &parsed.files[0];
            let content = b"a\nold(2);\n";
            assert!(!contains_result(&diff.hunks[0], content), "{patch}");
            assert!(!already_applied(diff, content), "{patch}");
            let mut placer = Placer::new(content);
            assert!(placer.apply(&diff.hunks[0], 0).is_none());
            let error = hunk_error(diff, 0, b"f", content, &placer);
            let hint = error.hint_text().unwrap_or_default();
            assert!(!hint.contains("already"), "{hint}");
        }
    }

    #[test]
    fn a_hunk_that_leaves_lines_is_there_with_them() {
        let patch = "--- f\n+++ f\n@@ -2 +2 @@\n-old(1);\n+new(1);\n";
        let parsed = parse(patch.as_bytes(), 0, "p").unwrap();
        let diff = &parsed.files[0];
        assert!(contains_result(&diff.hunks[0], b"a\nnew(1);\n"));
        assert!(already_applied(diff, b"a\nnew(1);\n"));
    }
}
