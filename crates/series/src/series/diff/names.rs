//! Parser for file names and dates in diff headers, compatible with GNU patch.

use jiff::civil::date;
use jiff::tz::TimeZone;
use parse_datetime::{ParsedDateTime, parse_datetime_at_date};

use super::super::path;

/// The date after a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum HeaderDate {
    /// There is no date.
    #[default]
    None,
    /// 1970-01-01 in some time zone, or the name `/dev/null`: the file does not exist.
    Epoch,
    /// Any other text that GNU patch treats as a date.
    Other,
}

/// The content of a `---`, `+++`, `***` or `Index:` line. A `None` leaves the previous value in place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HeaderName {
    /// The name, stripped by `-p`.
    pub name: Option<Vec<u8>>,
    /// The date.
    pub date: Option<HeaderDate>,
}

/// Parses the text after `--- `, `+++ `, `*** ` or `Index:`; `dated` is whether a date may follow the name.
pub(super) fn fetch_name(text: &[u8], strip: usize, dated: bool) -> HeaderName {
    let text = text.trim_ascii_start();
    let (name, rest) = if text.first() == Some(&b'"') {
        match unquote(text) {
            Some((name, length)) => (name, &text[length..]),
            None => return HeaderName::default(),
        }
    } else {
        let end = name_end(text, dated);
        (text[..end].to_vec(), &text[end..])
    };
    if name == b"/dev/null" {
        return HeaderName {
            name: None,
            date: Some(HeaderDate::Epoch),
        };
    }
    let name = path::strip(&name, strip).map(path::normalize);
    if name.is_none() || (!dated && !rest.is_empty()) {
        return HeaderName::default();
    }
    let date = match rest {
        b"" => HeaderDate::None,
        rest if is_epoch(rest) => HeaderDate::Epoch,
        // To GNU patch, nothing but blanks is the time at which it runs.
        _ => HeaderDate::Other,
    };
    HeaderName {
        name,
        date: Some(date),
    }
}

/// Returns the name after `--- ` or `+++ ` in a diff of git if it ends in blanks, which GNU patch ignores. Git ends such
/// a name with a tab.
pub(super) fn git_name(text: &[u8], strip: usize, by_git: bool) -> Option<HeaderName> {
    let line = text.strip_suffix(b"\r").unwrap_or(text);
    let name = line
        .strip_suffix(b"\t")
        .filter(|name| name.ends_with(b" "))?;
    let name = path::strip(name, strip).filter(|_| by_git)?;
    Some(HeaderName {
        name: Some(name.to_vec()),
        date: Some(HeaderDate::None),
    })
}

/// Returns the length of the name in bytes. A name may contain blanks if a tab separates it from the date.
fn name_end(text: &[u8], dated: bool) -> usize {
    let space = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | 0x0b | 0x0c);
    let last_tab = memchr::memrchr(b'\t', text);
    let mut at = 0;
    while at < text.len() {
        if !space(&text[at]) {
            at += 1;
            continue;
        }
        let mut end = at;
        while text[end] != b'\t' && text.get(end + 1).is_some_and(space) {
            end += 1;
        }
        // Without a date, only trailing blanks end the name.
        let more = if dated {
            last_tab.is_some_and(|tab| tab > end)
        } else {
            end + 1 < text.len()
        };
        if text[end] == b'\t' || !more {
            return at;
        }
        // The result is the same for every blank of a run.
        at = end + 1;
    }
    text.len()
}

/// Parses the name of a rename or copy, which git writes without the leading `a/` or `b/`.
pub(super) fn moved_name(rest: &[u8], strip: usize) -> Option<Vec<u8>> {
    let rest = rest.strip_suffix(b"\r").unwrap_or(rest);
    let name = match rest.first() {
        Some(b'"') => unquote(rest)?.0,
        _ => rest.to_vec(),
    };
    path::strip(&name, strip.saturating_sub(1)).map(path::normalize)
}

/// Parses the two names of a `diff --git` line.
pub(super) fn git_names(text: &[u8], strip: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let line = text.strip_suffix(b"\r").unwrap_or(text);
    if line.ends_with(b" ")
        && let Some(names) = equal_names(line, strip)
    {
        return Some(names);
    }
    let text = text.trim_ascii();
    let take = |text: &[u8]| -> Option<(Vec<u8>, usize)> {
        if text.first() == Some(&b'"') {
            unquote(text)
        } else {
            let end = text
                .iter()
                .position(u8::is_ascii_whitespace)
                .unwrap_or(text.len());
            Some((text[..end].to_vec(), end))
        }
    };
    let stripped = |name: &[u8]| path::strip(name, strip).map(path::normalize);
    if let Some((old, length)) = take(text)
        && let rest = text[length..].trim_ascii_start()
        && let Some((new, length)) = take(rest)
        && rest[length..].trim_ascii().is_empty()
        && !new.is_empty()
    {
        return Some((stripped(&old)?, stripped(&new)?));
    }
    equal_names(text, strip)
}

/// Splits `a/NAME b/NAME`. Git does not quote names with blanks; then both are equal after their first component.
fn equal_names(text: &[u8], strip: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let stripped = |name: &[u8]| path::strip(name, strip).map(path::normalize);
    let middle = (text.len() > 1).then_some(text.len() / 2)?;
    let (old, new) = (&text[..middle], text.get(middle + 1..)?);
    (text[middle] == b' ' && stripped(old)? == stripped(new)?)
        .then(|| Some((stripped(old)?, stripped(new)?)))?
}

/// Parses a quoted C string as git writes it. Returns it with the length of the quoted text.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut out = Vec::new();
    let mut at = 1;
    loop {
        match *text.get(at)? {
            b'"' => return Some((out, at + 1)),
            b'\\' => {
                at += 1;
                let escaped = *text.get(at)?;
                out.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 11,
                    b'"' | b'\\' => escaped,
                    b'0'..=b'3' => {
                        let digits = text.get(at..at + 3)?;
                        at += 2;
                        u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?
                    }
                    _ => return None,
                });
            }
            b'\n' => return None,
            other => out.push(other),
        }
        at += 1;
    }
}

/// The longest date in bytes: the parser's depth grows with the text's.
const LONGEST_DATE: usize = 128;

/// Returns whether a date is 1970-01-01 00:00 in any time zone, which `diff -N` writes for a missing file.
fn is_epoch(text: &[u8]) -> bool {
    // Only relative dates, such as `yesterday`, depend on it.
    let today = date(2000, 1, 1).to_zoned(TimeZone::UTC);
    let parse = |text: &str| parse_datetime_at_date(today.ok()?, text.trim()).ok();
    let text = std::str::from_utf8(text).ok();
    let text = text.filter(|text| text.len() <= LONGEST_DATE);
    let Some(ParsedDateTime::InRange(found)) = text.and_then(parse) else {
        return false;
    };
    // A date without an offset is in local time, which may differ from UTC by up to a day.
    let utc = found.timestamp().as_second();
    utc > -25 * 3600 && utc < 26 * 3600
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> (Option<String>, bool) {
        let header = fetch_name(text.as_bytes(), 1, true);
        (
            header.name.map(|name| String::from_utf8(name).unwrap()),
            header.date == Some(HeaderDate::Epoch),
        )
    }

    #[test]
    fn header_names() {
        let there = |text: &str| (Some(text.to_owned()), false);
        assert_eq!(name("a/x.c"), there("x.c"));
        assert_eq!(name("a/x.c\t2024-01-01 00:00:00 +0000"), there("x.c"));
        assert_eq!(name("a/x.c 2024-01-01 00:00:00"), there("x.c"));
        assert_eq!(name("a/with blank.c\t"), there("with blank.c"));
        assert_eq!(name("a/two  blanks.c \t"), there("two  blanks.c"));
        assert_eq!(name("a/x \r y"), there("x"));
        assert_eq!(name("\"a/tab\\tq\\303\\274\""), there("tab\tqü"));
        assert_eq!(name("/dev/null"), (None, true));
        assert_eq!(
            name("a/x.c\t1970-01-01 01:00:00.000000000 +0100"),
            (Some("x.c".to_owned()), true)
        );
        assert_eq!(name("a/./x.c"), there("x.c"));
        assert_eq!(name("x.c"), (None, false));
        for epoch in [
            "Thu Jan  1 01:00:00 1970",
            "1 Jan 1970 00:00:00 -0000",
            "1969-12-31 19:00:00.000000000 -0500",
            "1970-01-01T00:00:00Z",
            "1970-\t1-01 00:00:00.0 +0000",
            "1970-01-01 00 :\t0: 00.0 +0000",
            "70-1-1 0:00 - 0500",
        ] {
            assert!(name(&format!("a/x\t{epoch}")).1, "{epoch}");
        }
        for other in [
            "Thu Jan  1 01:00:00 1971",
            "(working copy)",
            "1970-01-03 00:00:00 +0000",
            "1970-01-01 00:00\t00.0 +0000",
            "1970-01-01 00:00:00 +80000000456789000",
        ] {
            assert!(!name(&format!("a/x\t{other}")).1, "{other}");
        }
        assert!(!name(&format!("a/x\t{}", "(".repeat(1_000_000))).1);
    }

    #[test]
    fn blanks_are_scanned_once() {
        let blanks = " ".repeat(1_000_000);
        let (found, _) = name(&format!("a/x{blanks}y\t"));
        assert_eq!(found, Some(format!("x{blanks}y")));
        let (found, _) = name(&format!("a/{}y\t", "x ".repeat(500_000)));
        assert_eq!(found.map(|name| name.len()), Some(1_000_001));
    }

    #[test]
    fn git_header_names() {
        let names = |text: &str| {
            git_names(text.as_bytes(), 1).map(|(old, new)| {
                (
                    String::from_utf8(old).unwrap(),
                    String::from_utf8(new).unwrap(),
                )
            })
        };
        let both = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
        assert_eq!(names("a/x b/y"), both("x", "y"));
        assert_eq!(names("a/x y b/x y"), both("x y", "x y"));
        assert_eq!(names("\"a/\\303\\274\" b/u"), both("ü", "u"));
        assert_eq!(names("a/x  b/x "), both("x ", "x "));
        assert_eq!(names("a/x"), None);
        assert_eq!(names(""), None);
    }
}
