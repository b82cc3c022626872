//! File names and dates in diff headers, read as GNU patch reads them.

use super::super::path;

/// A name in a `---`, `+++` or `Index:` line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Named {
    /// The name after `-p`; `None` for `/dev/null` and names with too few components.
    pub name: Option<Vec<u8>>,
    /// Whether the line says that the file does not exist: `/dev/null` or the date 1970-01-01.
    pub absent: bool,
}

/// Reads what follows `--- ` or `+++ `; `dated` tells whether a date may follow the name.
pub(super) fn header_name(text: &[u8], strip: usize, dated: bool) -> Named {
    let text = text.trim_ascii_start();
    let (name, rest) = if text.first() == Some(&b'"') {
        match unquote(text) {
            Some((name, length)) => (name, &text[length..]),
            None => return Named::default(),
        }
    } else {
        let end = name_end(text, dated);
        (text[..end].to_vec(), &text[end..])
    };
    if name == b"/dev/null" {
        return Named {
            name: None,
            absent: true,
        };
    }
    let rest = rest.trim_ascii();
    if !dated && !rest.is_empty() {
        return Named::default();
    }
    Named {
        name: path::strip(&name, strip).map(<[u8]>::to_vec),
        absent: is_epoch(rest),
    }
}

/// A name may hold blanks when a tab separates it from the date.
fn name_end(text: &[u8], dated: bool) -> usize {
    let line_end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
    let text = &text[..line_end];
    let blank = |b: &u8| b.is_ascii_whitespace();
    let Some(first) = text.iter().position(blank) else {
        return text.len();
    };
    if !dated {
        return text.trim_ascii_end().len();
    }
    match text.iter().position(|&b| b == b'\t') {
        Some(tab) => text[..tab].trim_ascii_end().len().max(first),
        None => first,
    }
}

/// The two names of a `diff --git` line.
pub(super) fn git_names(text: &[u8], strip: usize) -> Option<(Vec<u8>, Vec<u8>)> {
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
    let stripped = |name: &[u8]| path::strip(name, strip).map(<[u8]>::to_vec);
    if let Some((old, length)) = take(text)
        && let rest = text[length..].trim_ascii_start()
        && let Some((new, length)) = take(rest)
        && rest[length..].trim_ascii().is_empty()
        && !new.is_empty()
    {
        return Some((stripped(&old)?, stripped(&new)?));
    }
    // Names with blanks are not quoted; both are the same after their first component then.
    let middle = (text.len() > 1).then_some(text.len() / 2)?;
    let (old, new) = (&text[..middle], text.get(middle + 1..)?);
    (text[middle] == b' ' && stripped(old)? == stripped(new)?)
        .then(|| Some((stripped(old)?, stripped(new)?)))?
}

/// Reads a C string as git writes it; returns it with the length of its source.
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

/// Whether a date is 1970-01-01 00:00 in any time zone, by which `diff -N` marks a missing file.
fn is_epoch(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let mut words = text.split_whitespace();
    let (Some(date), Some(time)) = (words.next(), words.next()) else {
        return false;
    };
    let (Ok(date), Ok(time)) = (
        date.parse::<jiff::civil::Date>(),
        time.parse::<jiff::civil::Time>(),
    ) else {
        return false;
    };
    let zone = words.next().unwrap_or("+0000");
    let offset = zone
        .parse::<i64>()
        .map_or(0, |hhmm| (hhmm / 100) * 3600 + (hhmm % 100) * 60);
    let days = i64::from(
        date.since(jiff::civil::date(1970, 1, 1))
            .map_or(i32::MAX, |s| s.get_days()),
    );
    let of_day =
        i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    let utc = days.saturating_mul(86_400) + of_day - offset;
    // Local time may be up to a day off.
    utc > -25 * 3600 && utc < 26 * 3600
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> (Option<String>, bool) {
        let named = header_name(text.as_bytes(), 1, true);
        (
            named.name.map(|name| String::from_utf8(name).unwrap()),
            named.absent,
        )
    }

    #[test]
    fn header_names() {
        let there = |text: &str| (Some(text.to_owned()), false);
        assert_eq!(name("a/x.c\n"), there("x.c"));
        assert_eq!(name("a/x.c\t2024-01-01 00:00:00 +0000\n"), there("x.c"));
        assert_eq!(name("a/x.c 2024-01-01 00:00:00\n"), there("x.c"));
        assert_eq!(name("a/with blank.c\t\n"), there("with blank.c"));
        assert_eq!(name("\"a/tab\\tq\\303\\274\"\n"), there("tab\tqü"));
        assert_eq!(name("/dev/null\n"), (None, true));
        assert_eq!(
            name("a/x.c\t1970-01-01 01:00:00.000000000 +0100\n"),
            (Some("x.c".to_owned()), true)
        );
        assert_eq!(name("x.c\n"), (None, false));
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
        assert_eq!(names("a/x b/y\n"), both("x", "y"));
        assert_eq!(names("a/x y b/x y\n"), both("x y", "x y"));
        assert_eq!(names("\"a/\\303\\274\" b/u"), both("ü", "u"));
        assert_eq!(names("a/x"), None);
        assert_eq!(names(""), None);
    }
}
