//! A patch's header: the text before its first diff (DEP-3, git mail or plain prose).

use jiff::civil;

/// A parsed header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// `Subject:` or `Description:`, without `[PATCH …]`.
    pub subject: Option<String>,
    /// `Author:` or `From:`.
    pub author: Option<Person>,
    /// `Date:` or `Last-Update:`.
    pub date: Option<Timestamp>,
    /// The text after the fields, or the whole text if there are no fields.
    pub body: String,
    /// Every field in order, with the name as written; continuation lines are joined by newlines.
    pub fields: Vec<(String, String)>,
}

/// A person's name and email address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The name, or the address if there is no name.
    pub name: String,
    /// The address; empty if there is none.
    pub email: String,
}

/// A point in time and its UTC offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// Minutes east of UTC.
    pub offset_minutes: i32,
}

impl Header {
    /// Parses the text before a patch's first diff.
    pub fn parse(text: &str) -> Header {
        let mut header = Header::default();
        let mut lines = text.lines().peekable();
        // A mailbox line: `From <commit> Mon Sep 17 00:00:00 2001`.
        let mailbox = |line: &&str| line.starts_with("From ");
        while lines
            .next_if(|line| line.trim().is_empty() || mailbox(line))
            .is_some()
        {}
        while let Some((name, value)) = lines.peek().and_then(|line| field(line)) {
            let mut value = value.to_owned();
            lines.next();
            while let Some(more) =
                lines.next_if(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty())
            {
                value.push('\n');
                value.push_str(more.trim());
            }
            header.take(name, &value);
            header.fields.push((name.to_owned(), value));
        }
        let mut body = String::new();
        for line in lines {
            // A mail continues with the list of changed files.
            if line == "---" {
                break;
            }
            body.push_str(line.trim_end());
            body.push('\n');
        }
        header.body = body.trim_matches('\n').to_owned();
        if let Some(description) = header.field("description")
            && let Some((_, rest)) = description.split_once('\n')
        {
            // DEP-3: the first line is the subject, the following lines are the body, and `.` is a blank line.
            let rest: Vec<&str> = rest
                .lines()
                .map(|line| if line == "." { "" } else { line })
                .collect();
            header.body = if header.body.is_empty() {
                rest.join("\n")
            } else {
                format!("{}\n\n{}", rest.join("\n"), header.body)
            };
        }
        header
    }

    /// Returns the value of the first field called `name`, ignoring case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn take(&mut self, name: &str, value: &str) {
        match name.to_ascii_lowercase().as_str() {
            "subject" => {
                // Decoding an encoded word may produce another line end.
                let subject = decode_words(&value.replace('\n', " ")).replace('\n', " ");
                self.subject = Some(without_tags(&subject).to_owned());
            }
            "description" if self.subject.is_none() => {
                let first = value.lines().next().unwrap_or_default();
                self.subject = Some(without_tags(first.trim()).to_owned());
            }
            "from" | "author" if self.author.is_none() => {
                self.author = person(&decode_words(value));
            }
            "date" => self.date = timestamp(value).or(self.date),
            "last-update" => self.date = self.date.or_else(|| timestamp(value)),
            _ => {}
        }
    }

    /// Returns the subject, or the first line of the body.
    pub fn title(&self) -> Option<&str> {
        self.subject
            .as_deref()
            .filter(|subject| !subject.is_empty())
            .or_else(|| self.body.lines().find(|line| !line.trim().is_empty()))
            .map(str::trim)
    }

    /// Returns the body below `title`: without its first line if that line is the title.
    pub(crate) fn text_below(&self, title: &str) -> &str {
        let body = self.body.trim();
        match body.split_once('\n') {
            Some((first, rest)) if first.trim_end() == title => rest.trim(),
            None if body == title => "",
            _ => body,
        }
    }
}

/// Parses a line `Name: value`, where the name is one word of letters, digits and dashes.
pub(super) fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let word = !name.is_empty()
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    // `note:something` is prose, and quilt's own `Index:` begins a diff.
    (word && (value.is_empty() || value.starts_with([' ', '\t']))).then(|| (name, value.trim()))
}

/// Strips tags such as `[PATCH 3/7]` from a subject.
fn without_tags(subject: &str) -> &str {
    let mut rest = subject.trim();
    while let Some(inner) = rest.strip_prefix('[')
        && let Some((tag, after)) = inner.split_once(']')
        && tag.to_uppercase().contains("PATCH")
    {
        rest = after.trim_start();
    }
    rest
}

fn person(text: &str) -> Option<Person> {
    let text = text.lines().next().unwrap_or_default().trim();
    let clean = |part: &str| -> String {
        let part = part.trim().trim_matches('"');
        part.chars()
            .filter(|c| !matches!(c, '<' | '>') && !c.is_control())
            .collect()
    };
    let (name, email) = match text.split_once('<') {
        Some((name, rest)) => (clean(name), clean(rest.split('>').next().unwrap_or(rest))),
        None if text.contains('@') && !text.contains(' ') => (String::new(), clean(text)),
        None => (clean(text), String::new()),
    };
    let name = if name.is_empty() { email.clone() } else { name };
    (!name.is_empty()).then_some(Person { name, email })
}

/// Parses a date in RFC 2822 (`Mon, 3 Jun 2024 10:00:00 +0200`), in git's own format (`Mon Jun 3 10:00:00 2024 +0200`)
/// or in ISO 8601 with or without a time.
fn timestamp(text: &str) -> Option<Timestamp> {
    let text = text.lines().next().unwrap_or_default().trim();
    if let Ok(zoned) = jiff::fmt::rfc2822::parse(text) {
        return Some(Timestamp {
            seconds: zoned.timestamp().as_second(),
            offset_minutes: zoned.offset().seconds() / 60,
        });
    }
    for format in [
        "%a %b %d %H:%M:%S %Y %z",
        "%Y-%m-%d %H:%M:%S %z",
        "%Y-%m-%dT%H:%M:%S%:z",
    ] {
        if let Ok(parsed) = jiff::fmt::strtime::parse(format, text)
            && let (Ok(moment), Some(offset)) = (parsed.to_timestamp(), parsed.offset())
        {
            return Some(Timestamp {
                seconds: moment.as_second(),
                offset_minutes: offset.seconds() / 60,
            });
        }
    }
    let utc = |moment: civil::DateTime| {
        let zoned = moment.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(Timestamp {
            seconds: zoned.timestamp().as_second(),
            offset_minutes: 0,
        })
    };
    let date: civil::Date = text.split(['T', ' ']).next()?.parse().ok()?;
    match text.trim_end_matches('Z').parse::<civil::DateTime>() {
        Ok(moment) => utc(moment),
        Err(_) => utc(date.at(0, 0, 0, 0)),
    }
}

/// Decodes the UTF-8 words that mail programs write as `=?UTF-8?q?…?=`; leaves other encodings unchanged.
fn decode_words(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("=?") {
        let decoded = decode_word(&rest[start + 2..]);
        let Some((word, length)) = decoded else {
            out.push_str(&rest[..start + 2]);
            rest = &rest[start + 2..];
            continue;
        };
        let between = &rest[..start];
        // Whitespace between two encoded words is only a separator (RFC 2047).
        if out.is_empty() || !between.trim().is_empty() {
            out.push_str(between);
        }
        out.push_str(&word);
        rest = &rest[start + 2 + length..];
    }
    out.push_str(rest);
    out
}

fn decode_word(text: &str) -> Option<(String, usize)> {
    let mut parts = text.splitn(4, '?');
    let (charset, coding, body, tail) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if !charset.eq_ignore_ascii_case("utf-8") || !tail.starts_with('=') {
        return None;
    }
    let bytes = match coding {
        "q" | "Q" => {
            let mut bytes = Vec::new();
            let mut input = body.bytes();
            while let Some(byte) = input.next() {
                bytes.push(match byte {
                    b'_' => b' ',
                    b'=' => {
                        let mut decoded = [0];
                        hex::decode_to_slice([input.next()?, input.next()?], &mut decoded).ok()?;
                        decoded[0]
                    }
                    other => other,
                });
            }
            bytes
        }
        "b" | "B" => base64(body)?,
        _ => return None,
    };
    let length = charset.len() + coding.len() + body.len() + 4;
    Some((String::from_utf8(bytes).ok()?, length))
}

fn base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|&b| b != b'=') {
        let value = ALPHABET.iter().position(|&letter| letter == byte)?;
        bits = (bits << 6) | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_mail() {
        let header = Header::parse(
            "From 1234 Mon Sep 17 00:00:00 2001\nFrom: =?UTF-8?q?J=C3=BCrgen?= <j@example.org>\n\
             Date: Mon, 3 Jun 2024 10:00:00 +0200\nSubject: [PATCH 2/3] strings: grow\n by doubling\n\
             \nWhy not.\n\nMore.\n---\n sql/x.cc | 2 +-\n",
        );
        assert_eq!(header.title(), Some("strings: grow by doubling"));
        assert_eq!(header.body, "Why not.\n\nMore.");
        let author = header.author.unwrap();
        assert_eq!(
            (author.name.as_str(), author.email.as_str()),
            ("Jürgen", "j@example.org")
        );
        let date = header.date.unwrap();
        assert_eq!((date.seconds, date.offset_minutes), (1_717_401_600, 120));
    }

    #[test]
    fn dep3() {
        let header = Header::parse(
            "Description: guard the call\n It is usually empty.\n .\n Second part.\nAuthor: A B <a@b.c>\n\
             Last-Update: 2024-06-03\nForwarded: no\n\nfree text\n",
        );
        assert_eq!(header.title(), Some("guard the call"));
        assert_eq!(
            header.body,
            "It is usually empty.\n\nSecond part.\n\nfree text"
        );
        assert_eq!(header.date.unwrap().seconds, 1_717_372_800);
        assert_eq!(header.field("forwarded"), Some("no"));
    }

    #[test]
    fn a_title_is_one_line() {
        let header = Header::parse("Subject: =?UTF-8?B?YQpi?= c\n");
        assert_eq!(header.title(), Some("a b c"));
    }

    #[test]
    fn plain_words_and_nothing() {
        let header = Header::parse("\nMakes it faster.\n\nBy a lot: really.\n");
        assert_eq!(header.title(), Some("Makes it faster."));
        assert!(header.fields.is_empty());
        assert_eq!(Header::parse("").title(), None);
    }

    #[test]
    fn dates() {
        for (text, seconds) in [
            ("Mon Jun 3 10:00:00 2024 +0200", Some(1_717_401_600)),
            ("2024-06-03 10:00:00 +0200", Some(1_717_401_600)),
            ("2024-06-03T08:00:00Z", Some(1_717_401_600)),
            ("2024-06-03", Some(1_717_372_800)),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(timestamp(text).map(|t| t.seconds), seconds, "{text}");
        }
    }

    #[test]
    fn people() {
        let shown = |text| person(text).map(|p| (p.name, p.email));
        assert_eq!(shown("a@b.c"), Some(("a@b.c".into(), "a@b.c".into())));
        assert_eq!(shown("A B"), Some(("A B".into(), String::new())));
        assert_eq!(
            shown("\"A, B\" <x@y> (z)"),
            Some(("A, B".into(), "x@y".into()))
        );
        assert_eq!(shown("<>"), None);
    }
}
