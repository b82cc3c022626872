//! Unified and normal hunks, read as GNU patch reads them.

use super::lines::{Dress, Lines};
use super::{Change, Hunk, Line};
use perfquilt_model::error::Error;

/// An error and its line, counted from 1.
pub(super) type Fault = (usize, Error);

/// Larger line numbers are malformed.
const LIMIT: i64 = 1 << 40;

/// The next unified hunk, if there is one.
pub(super) fn unified(lines: &mut Lines<'_>, dress: &Dress) -> Result<Option<Hunk>, Fault> {
    let before = lines.at;
    let head = match lines.next(dress) {
        Some(head) if head.starts_with(b"@@ -") => head,
        _ => {
            lines.at = before;
            return Ok(None);
        }
    };
    let number = lines.at;
    let [mut old_start, old_count, mut new_start, new_count] = ranges(head).ok_or_else(|| {
        (
            number,
            Error::series("malformed hunk header")
                .hint("it reads `@@ -FIRST,COUNT +FIRST,COUNT @@`"),
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
        let line = match lines.next(dress) {
            Some(line) => line,
            // Mail programs cut blank lines off the end.
            None if new_left <= 3 => {
                hunk.assumed += 1;
                b" "
            }
            None => return Err(ends_inside(lines, number)),
        };
        let (change, body) = match line.split_first() {
            // Editors eat the blank of an empty context line.
            None | Some((b'\t', _)) => (Change::Context, line),
            Some((b' ' | b'=', body)) => (Change::Context, body),
            Some((b'-', body)) => (Change::Remove, body),
            Some((b'+', body)) => (Change::Add, body),
            Some(_) => return Err(misfit(lines.at)),
        };
        let mut line = Line::new(change, body);
        if change != Change::Add {
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
        if change != Change::Remove {
            if new_left == 0 {
                return Err(misfit(lines.at));
            }
            new_left -= 1;
            if new_left == 0 && lines.incomplete() {
                if change == Change::Add {
                    line.text.pop();
                } else if line.text.last() == Some(&b'\n') {
                    line.after = Some(body.to_vec());
                }
            }
        }
        hunk.lines.push(line);
    }
    if hunk.lines.iter().all(|line| line.change == Change::Context) {
        return Err((number, Error::series("a hunk that changes nothing")));
    }
    Ok(Some(hunk))
}

fn ends_inside(lines: &Lines<'_>, number: usize) -> Fault {
    if lines.cut() {
        return (
            lines.at + 1,
            Error::series("the patch ends in the middle of this line")
                .hint("was the rest cut off? if nothing is missing, end the line"),
        );
    }
    counts(number, "the patch ends inside this hunk")
}

fn misfit(line: usize) -> Fault {
    counts(line, "this line does not fit the hunk it is in")
}

fn counts(line: usize, what: &str) -> Fault {
    (
        line,
        Error::series(what.to_owned()).hint(
            "the counts in the hunk's `@@` line and its lines disagree; was the patch edited by hand, or wrapped by a mail program? `recountdiff` or `quilt refresh` mends counts",
        ),
    )
}

/// Takes a number off the front of `text`.
pub(super) fn number(text: &mut &[u8]) -> Option<i64> {
    let end = text
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    let digits = std::str::from_utf8(&text[..end]).ok()?;
    let value = digits.parse::<i64>().ok().filter(|&n| n < LIMIT)?;
    *text = &text[end..];
    Some(value)
}

/// Takes `prefix` off the front of `text`.
fn take(text: &mut &[u8], prefix: &[u8]) -> bool {
    let rest = text.strip_prefix(prefix);
    if let Some(rest) = rest {
        *text = rest;
    }
    rest.is_some()
}

/// The four numbers of `@@ -1,2 +3,4 @@`.
fn ranges(line: &[u8]) -> Option<[usize; 4]> {
    let mut text = line.strip_prefix(b"@@ -")?;
    let text = &mut text;
    let range = |text: &mut &[u8]| -> Option<(i64, i64)> {
        let start = number(text)?;
        let count = if take(text, b",") { number(text)? } else { 1 };
        take(text, b" ");
        Some((start, count))
    };
    let old = range(text)?;
    take(text, b"+").then_some(())?;
    let new = range(text)?;
    take(text, b"@").then_some(())?;
    let [a, b, c, d] = [old.0, old.1, new.0, new.1].map(|n| usize::try_from(n).ok());
    Some([a?, b?, c?, d?])
}

/// The next hunk of a normal diff (`3,4c3`), if there is one.
pub(super) fn normal(lines: &mut Lines<'_>, dress: &Dress) -> Result<Option<Hunk>, Fault> {
    let before = lines.at;
    let head = match lines.next(dress) {
        Some(head) if head.first().is_some_and(u8::is_ascii_digit) => head,
        _ => {
            lines.at = before;
            return Ok(None);
        }
    };
    let line = lines.at;
    let command = command(head).ok_or_else(|| {
        (
            line,
            Error::series("malformed command of a normal diff")
                .hint("it reads `FIRST,LASTcFIRST,LAST`, with `a`, `c` or `d` in the middle"),
        )
    })?;
    let mut hunk = Hunk {
        line,
        old_start: command.old_start,
        new_start: command.new_start,
        ..Hunk::default()
    };
    for (change, mark, count) in [
        (Change::Remove, b'<', command.old_count),
        (Change::Add, b'>', command.new_count),
    ] {
        if change == Change::Add && command.kind == b'c' {
            let middle = lines.next(dress);
            if middle.and_then(|line| line.first()) != Some(&b'-') {
                return Err((lines.at, Error::series("`---` is missing here")));
            }
        }
        for left in (0..count).rev() {
            let Some(text) = lines.next(dress) else {
                return Err(ends_inside(lines, line));
            };
            let body = match text {
                [first, b' ' | b'\t', body @ ..] if *first == mark => body,
                _ => {
                    let what = format!("`{}` and a blank are missing here", char::from(mark));
                    return Err((lines.at, Error::series(what)));
                }
            };
            let mut line = Line::new(change, body);
            if left == 0 && lines.incomplete() {
                line.text.pop();
            }
            hunk.lines.push(line);
        }
    }
    if hunk.lines.is_empty() {
        return Err((line, Error::series("a hunk that changes nothing")));
    }
    Ok(Some(hunk))
}

struct Command {
    kind: u8,
    old_start: usize,
    old_count: usize,
    new_start: usize,
    new_count: usize,
}

fn command(head: &[u8]) -> Option<Command> {
    let mut text = head;
    let text = &mut text;
    let first = number(text)?;
    let last = if take(text, b",") {
        Some(number(text)?)
    } else {
        None
    };
    let (&kind, rest) = text.split_first()?;
    *text = rest;
    let old_count = match last {
        Some(last) => last + 1 - first,
        None => i64::from(kind != b'a'),
    };
    let low = number(text)?;
    let high = if take(text, b",") { number(text)? } else { low };
    if low > high {
        return None;
    }
    let new_start = if kind == b'd' { low + 1 } else { low };
    let size = |n: i64| usize::try_from(n).ok();
    Some(Command {
        kind,
        old_start: size(if kind == b'a' { first + 1 } else { first })?,
        old_count: size(old_count)?,
        new_start: size(new_start)?,
        new_count: size(high - new_start + 1)?,
    })
}

/// Whether a line that begins with a digit is a command of a normal diff; `None` when it looks like
/// none at all.
pub(super) fn normal_command(text: &[u8]) -> Option<bool> {
    let numeric = |b: &u8| b.is_ascii_digit() || *b == b',';
    let rest = &text[text.iter().take_while(|b| numeric(b)).count()..];
    let rest = match rest.split_first() {
        Some((b'a' | b'c' | b'd', rest)) => rest,
        _ => return None,
    };
    let rest = &rest[rest.iter().take_while(|b| numeric(b)).count()..];
    let blanks = rest
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t'))
        .count();
    Some(matches!(&rest[blanks..], b"" | b"\r"))
}

/// Whether a line is a command of an ed script.
pub(super) fn is_ed_command(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut rest = text;
    let mut pair = false;
    if digits(rest) > 0 {
        rest = &rest[digits(rest)..];
        if let Some(second) = rest.strip_prefix(b",") {
            if digits(second) == 0 {
                return false;
            }
            rest = &second[digits(second)..];
            pair = true;
        }
    }
    let rest = match rest.split_first() {
        Some((b'a' | b'i', rest)) if !pair => rest,
        Some((b'c' | b'd', rest)) => rest,
        Some((b's', rest)) => match rest.strip_prefix(b"/.//") {
            Some(rest) => rest,
            None => return false,
        },
        _ => return false,
    };
    rest.iter().all(|b| matches!(b, b' ' | b'\t'))
}
