//! Parser for file names and dates in diff headers, compatible with GNU patch.

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
        rest if rest.trim_ascii().is_empty() => HeaderDate::None,
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

/// Returns whether a date is 1970-01-01 00:00 in any time zone, which `diff -N` writes for a missing file. It supports
/// the formats `1970-01-01 00:00:00.000 +0000`, `Thu Jan  1 00:00:00 1970` and `1 Jan 1970 00:00:00 -0000`.
fn is_epoch(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let text = signs_joined(text);
    let (mut date, mut time, mut offset) = (None, None, 0);
    let (mut month, mut day, mut year) = (None, None, None);
    let words = text
        .split([' ', '\t', '\r', 'T'])
        .filter(|word| !word.is_empty());
    for word in words {
        let word = word.trim_end_matches(',');
        let number = word.parse::<i16>().ok();
        let named = ["jan", "dec"]
            .iter()
            .position(|name| word.to_ascii_lowercase().starts_with(name));
        if let Some(zone) = word.strip_prefix(['+', '-']) {
            let zone = zone.replace(':', "");
            let Some(hhmm) = zone.parse::<i64>().ok().filter(|_| zone.len() <= 4) else {
                return false;
            };
            let seconds = (hhmm / 100) * 3600 + (hhmm % 100) * 60;
            offset = if word.starts_with('-') {
                -seconds
            } else {
                seconds
            };
        } else if word.contains(':') {
            time = time_of_day(word.trim_end_matches('Z'));
        } else if word.contains('-') {
            date = calendar_date(word);
        } else if let Some(which) = named {
            month = Some(if which == 0 { 1_i8 } else { 12 });
        } else if let Some(number) = number {
            if number > 31 {
                year = Some(number);
            } else {
                day = i8::try_from(number).ok();
            }
        }
    }
    if let (None, Some(month), Some(day), Some(year)) = (date, month, day, year) {
        date = jiff::civil::Date::new(year, month, day).ok();
    }
    let (Some(date), Some(time)) = (date, time) else {
        return false;
    };
    let days = i64::from(
        date.since(jiff::civil::date(1970, 1, 1))
            .map_or(i32::MAX, |s| s.get_days()),
    );
    let of_day =
        i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    let utc = days.saturating_mul(86_400) + of_day - offset;
    // A date without an offset is in local time, which may differ from UTC by up to a day.
    utc > -25 * 3600 && utc < 26 * 3600
}

/// Removes blanks between a sign and its digits, which GNU's date parser reads as one number.
fn signs_joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(sign) = rest.find(['-', '+']) {
        let (before, after) = rest.split_at(sign + 1);
        joined.push_str(before);
        let digits = after.trim_start_matches([' ', '\t']);
        rest = if digits.starts_with(|c: char| c.is_ascii_digit()) {
            digits
        } else {
            after
        };
    }
    joined + rest
}

/// Parses `1970-01-01`, also with fewer digits; two-digit years are 1969 to 2068.
fn calendar_date(word: &str) -> Option<jiff::civil::Date> {
    let mut parts = word.split('-');
    let year = parts.next()?;
    let (month, day) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let century = match year.parse::<i16>().ok()? {
        ..=68 if year.len() <= 2 => 2000,
        _ if year.len() <= 2 => 1900,
        _ => 0,
    };
    let date = jiff::civil::Date::new(year.parse::<i16>().ok()? + century, month, day);
    date.ok().filter(|_| parts.next().is_none())
}

/// Parses `00:00:00.000`, also with fewer digits or without seconds.
fn time_of_day(word: &str) -> Option<jiff::civil::Time> {
    let mut parts = word.split(':');
    let (hour, minute) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let second = match parts.next() {
        None => 0,
        Some(second) => second.split(['.', ',']).next()?.parse().ok()?,
    };
    let time = jiff::civil::Time::new(hour, minute, second, 0);
    time.ok().filter(|_| parts.next().is_none())
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
            "70-1-1 0:00 - 0500",
        ] {
            assert!(name(&format!("a/x\t{epoch}")).1, "{epoch}");
        }
        for other in [
            "Thu Jan  1 01:00:00 1971",
            "(working copy)",
            "1970-01-03 00:00:00 +0000",
            "1970-01-01 00:00:00 +80000000456789000",
        ] {
            assert!(!name(&format!("a/x\t{other}")).1, "{other}");
        }
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
