//! Parser for unified and normal hunks, compatible with GNU patch.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

use super::lines::{LineFormat, PatchLines};
use super::{Hunk, Line, LineChange};
use crate::series::text::{BLANKS_HINT, odd_blank};
use perfquilt_model::error::Error;

/// A line, counted from 1, and the error there.
pub(super) type LineError = (usize, Error);

/// Line numbers from here on are malformed.
const NUMBER_LIMIT: i64 = 1 << 40;

/// What GNU patch reads as heads of hunks and as commands.
struct Patterns {
    /// `@@ -1,2 +3,4 @@`
    ranges: Regex,
    /// A command of a normal diff, `3,4c3`.
    normal: Regex,
    /// The begin of one; the group matches if nothing follows it.
    normal_begin: Regex,
    /// A command of an ed script.
    ed: Regex,
}

// The patterns are constant and tested.
#[allow(clippy::expect_used)]
static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text).expect("a valid pattern");
    Patterns {
        ranges: regex(r"^@@ -([0-9]+)(?:,([0-9]+))? ?\+([0-9]+)(?:,([0-9]+))? ?@"),
        normal: regex(
            r"(?s-u)^([0-9]+)(?:,([0-9]+)([^0-9])|([^0-9,]))([0-9]+)(?:,([0-9]+)|[^0-9,]|$)",
        ),
        normal_begin: regex(r"^[0-9,]*[acd]([0-9,]*[ \t]*\r?$)?"),
        ed: regex(r"^(?:[0-9]*[ai]|(?:[0-9]+(?:,[0-9]+)?)?(?:[cd]|s/\.//))[ \t]*$"),
    }
});

/// Reads the next unified hunk, if there is one.
pub(super) fn unified(
    lines: &mut PatchLines<'_>,
    line_format: &LineFormat,
) -> Result<Option<Hunk>, LineError> {
    let Some(head) = lines.next_if(line_format, |line| line.starts_with(b"@@ -")) else {
        return Ok(None);
    };
    let number = lines.at;
    let [mut old_start, old_count, mut new_start, new_count] = ranges(head).ok_or_else(|| {
        (
            number,
            Error::patch_syntax("malformed hunk header")
                .hint("the format is `@@ -FIRST,COUNT +FIRST,COUNT @@`"),
        )
    })?;
    if old_count == 0 {
        old_start += 1;
    }
    if new_count == 0 {
        new_start += 1;
    }
    let (mut old_left, mut new_left) = (old_count, new_count);
    let mut hunk = Hunk {
        line: number,
        old_start,
        new_start,
        ..Hunk::default()
    };
    while old_left > 0 || new_left > 0 {
        let line = match lines.next(line_format) {
            Some(line) => line,
            // Mail programs remove blank lines at the end.
            None if new_left <= 3 => {
                hunk.assumed += 1;
                b" "
            }
            None => return Err(ends_inside(lines, number)),
        };
        let (change, body) = match line.split_first() {
            // Editors remove the space of an empty context line.
            None | Some((b'\t', _)) => (LineChange::Context, line),
            Some((b' ' | b'=', body)) => (LineChange::Context, body),
            Some((b'-', body)) => (LineChange::Remove, body),
            Some((b'+', body)) => (LineChange::Add, body),
            Some(_) => return Err(odd_begin(lines.at, line)),
        };
        let mut line = Line::new(change, body);
        if change != LineChange::Add {
            if old_left == 0 {
                return Err(match hunk.assumed {
                    0 => misfit(lines.at),
                    _ => ends_inside(lines, number),
                });
            }
            old_left -= 1;
            if old_left == 0 && lines.incomplete() {
                line.text.pop();
            }
        }
        if change != LineChange::Remove {
            if new_left == 0 {
                return Err(misfit(lines.at));
            }
            new_left -= 1;
            if new_left == 0 && lines.incomplete() {
                if change == LineChange::Add {
                    line.text.pop();
                } else if line.text.last() == Some(&b'\n') {
                    line.after = Some(body.to_vec());
                }
            }
        }
        hunk.lines.push(line);
    }
    Ok(Some(hunk))
}

fn ends_inside(lines: &PatchLines<'_>, number: usize) -> LineError {
    if lines.is_truncated() {
        return (
            lines.at + 1,
            Error::patch_syntax("the patch ends in the middle of this line")
                .hint("was the rest cut off? if nothing is missing, add a newline at the end"),
        );
    }
    counts(number, "the patch ends inside this hunk")
}

/// Returns the fault of a line that begins with none of the characters that lines of hunks have.
fn odd_begin(number: usize, line: &[u8]) -> LineError {
    let first = std::str::from_utf8(line)
        .ok()
        .and_then(|text| text.chars().next());
    let first = first.map_or(1, char::len_utf8);
    match odd_blank(&line[..first]) {
        Some(blank) => {
            let what = format!("this line of a hunk begins with {blank}");
            (number, Error::patch_syntax(what).hint(BLANKS_HINT))
        }
        None => misfit(number),
    }
}

fn misfit(line: usize) -> LineError {
    counts(line, "this line does not fit the hunk it is in")
}

fn counts(line: usize, what: &str) -> LineError {
    (
        line,
        Error::patch_syntax(what.to_owned()).hint(
            "the counts in the hunk's `@@` line and its lines disagree; was the patch edited by hand, or wrapped by a mail program? `recountdiff` or `quilt refresh` corrects counts",
        ),
    )
}

/// Parses and removes a number at the front of `text`.
pub(super) fn number(text: &mut &[u8]) -> Option<i64> {
    let end = text
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    let digits = std::str::from_utf8(&text[..end]).ok()?;
    let value = digits.parse::<i64>().ok().filter(|&n| n < NUMBER_LIMIT)?;
    *text = &text[end..];
    Some(value)
}

/// Returns the number in a group of `found`, or `missing` if that matched nothing; `None` if it is too large.
fn number_in(found: &Captures<'_>, group: usize, missing: usize) -> Option<usize> {
    let Some(digits) = found.get(group) else {
        return Some(missing);
    };
    usize::try_from(number(&mut digits.as_bytes())?).ok()
}

/// Parses the four numbers of `@@ -1,2 +3,4 @@`.
fn ranges(line: &[u8]) -> Option<[usize; 4]> {
    let found = PATTERNS.ranges.captures(line)?;
    let number = |group| number_in(&found, group, 1);
    Some([number(1)?, number(2)?, number(3)?, number(4)?])
}

/// Reads the next hunk of a normal diff (`3,4c3`), if there is one.
pub(super) fn normal(
    lines: &mut PatchLines<'_>,
    line_format: &LineFormat,
) -> Result<Option<Hunk>, LineError> {
    let begins = |line: &[u8]| line.first().is_some_and(u8::is_ascii_digit);
    let Some(head) = lines.next_if(line_format, begins) else {
        return Ok(None);
    };
    let line = lines.at;
    let command = command(head).ok_or_else(|| {
        (
            line,
            Error::patch_syntax("malformed command of a normal diff")
                .hint("the format is `FIRST,LASTcFIRST,LAST`, with `a`, `c` or `d` in the middle"),
        )
    })?;
    let mut hunk = Hunk {
        line,
        old_start: command.old_start,
        new_start: command.new_start,
        ..Hunk::default()
    };
    for (change, mark, count) in [
        (LineChange::Remove, b'<', command.old_count),
        (LineChange::Add, b'>', command.new_count),
    ] {
        if change == LineChange::Add && command.kind == b'c' {
            let middle = lines.next(line_format);
            if middle.and_then(|line| line.first()) != Some(&b'-') {
                return Err((lines.at, Error::patch_syntax("`---` is missing here")));
            }
        }
        for left in (0..count).rev() {
            let Some(text) = lines.next(line_format) else {
                return Err(ends_inside(lines, line));
            };
            let body = match text {
                [first, b' ' | b'\t', body @ ..] if *first == mark => body,
                _ => {
                    let what = format!("`{}` and a blank are missing here", char::from(mark));
                    return Err((lines.at, Error::patch_syntax(what)));
                }
            };
            let mut line = Line::new(change, body);
            if left == 0 && lines.incomplete() {
                line.text.pop();
            }
            hunk.lines.push(line);
        }
    }
    Ok(Some(hunk))
}

struct NormalCommand {
    kind: u8,
    old_start: usize,
    old_count: usize,
    new_start: usize,
    new_count: usize,
}

fn command(head: &[u8]) -> Option<NormalCommand> {
    let found = PATTERNS.normal.captures(head)?;
    let first = number_in(&found, 1, 0)?;
    let &kind = found.get(3).or(found.get(4))?.as_bytes().first()?;
    let last = number_in(&found, 2, first)?;
    let low = number_in(&found, 5, 0)?;
    let high = number_in(&found, 6, low)?;
    if low > high {
        return None;
    }
    let adds = usize::from(kind == b'a');
    let new_start = low + usize::from(kind == b'd');
    Some(NormalCommand {
        kind,
        old_start: first + adds,
        old_count: match found.get(2) {
            Some(_) => (last + 1).checked_sub(first)?,
            None => 1 - adds,
        },
        new_start,
        new_count: high + 1 - new_start,
    })
}

/// Returns whether a line that begins with a digit is a command of a normal diff; `None` if it does not even begin like
/// one.
pub(super) fn normal_command(text: &[u8]) -> Option<bool> {
    let found = PATTERNS.normal_begin.captures(text)?;
    Some(found.get(1).is_some())
}

/// Returns whether a line is a command of an ed script.
pub(super) fn is_ed_command(text: &[u8]) -> bool {
    PATTERNS.ed.is_match(text)
}
