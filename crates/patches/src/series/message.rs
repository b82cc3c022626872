//! Commit messages and patch headers. A maintainer's change of a commit message is carried over to the header; the rest
//! of the header keeps its bytes.

use std::ops::Range;

use super::header::field;
use super::{Person, Timestamp, diff};

/// The message, author and date of a patch's commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The first line.
    pub title: String,
    /// The text below it, without blank lines at either end.
    pub body: String,
    /// The author.
    pub author: Option<Person>,
    /// The author date.
    pub date: Timestamp,
}

impl Message {
    /// Parses a commit's message. Returns it with the names on its `Patch:` lines.
    pub fn parse(text: &str, author: Option<Person>, date: Timestamp) -> (Message, Vec<String>) {
        let mut names = Vec::new();
        let mut lines = Vec::new();
        for line in text.lines() {
            match patch_name(line) {
                Some(name) => names.push(name.to_owned()),
                None => lines.push(line.trim_end()),
            }
        }
        let text = squeeze(&lines);
        let (title, body) = text.split_once('\n').unwrap_or((&text, ""));
        let message = Message {
            title: title.trim().to_owned(),
            body: body.trim_matches('\n').to_owned(),
            author,
            date,
        };
        (message, names)
    }

    /// Returns whether title and body are equal, ignoring blank lines that editors change and lines that begin with
    /// `#`, which git drops.
    pub fn same_text(&self, other: &Message) -> bool {
        let plain = |message: &Message| {
            let lines: Vec<&str> = message
                .body
                .lines()
                .filter(|l| !l.starts_with('#'))
                .collect();
            (message.title.clone(), squeeze(&lines))
        };
        plain(self) == plain(other)
    }

    /// Returns whether title, body, author and date are equal.
    pub fn same(&self, other: &Message) -> bool {
        self.same_text(other) && self.author == other.author && self.date == other.date
    }
}

/// Returns the name on a `Patch: NAME` line.
fn patch_name(line: &str) -> Option<&str> {
    let name = line.strip_prefix("Patch:")?.trim();
    (!name.is_empty() && !name.contains(char::is_whitespace)).then_some(name)
}

/// Joins lines without leading and trailing blank ones, and with at most one blank line in a row.
fn squeeze(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        if line.trim().is_empty() && (text.is_empty() || text.ends_with("\n\n")) {
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    text.trim_matches('\n').to_owned()
}

/// Returns the header of a new patch, with the blank line that separates it from its diff.
pub fn new_header(message: &Message) -> Vec<u8> {
    let mut text = String::new();
    if let Some(author) = &message.author {
        text.push_str(&format!("From: {}\n", shown(author)));
        text.push_str(&format!("Date: {}\n", date_text(message.date)));
    }
    text.push_str(&format!("Subject: {}\n\n", message.title));
    if !message.body.is_empty() {
        text.push_str(&escaped(&message.body));
        text.push_str("\n\n");
    }
    text.into_bytes()
}

/// Updates `header` after its commit's message changed from `old` to `new`. Only the differing parts are rewritten.
pub fn update_header(header: &[u8], old: &Message, new: &Message) -> Vec<u8> {
    if old.same(new) {
        return header.to_vec();
    }
    let parts = HeaderParts::of(header);
    if parts.fields.is_empty() {
        if old.author != new.author || header.trim_ascii().is_empty() {
            return new_header(new);
        }
        return [prose(new).into_bytes(), parts.ending()].concat();
    }
    let mut out = parts.bytes(0..parts.lead).to_vec();
    let subject = parts.last("subject");
    let description = parts.first("description").filter(|_| subject.is_none());
    let author = parts.first_of(&["from", "author"]);
    let date = parts.first("date").or_else(|| parts.first("last-update"));
    // DEP-3 keeps the body in the continuation lines of the description.
    let continued = description.filter(|&at| parts.fields[at].1.len() > 1);
    let words = !old.same_text(new);
    let mut added = String::new();
    if let Some(person) = new
        .author
        .as_ref()
        .filter(|_| author.is_none() && old.author != new.author)
    {
        added.push_str(&format!("From: {}\n", shown(person)));
    }
    if old.date != new.date && date.is_none() && author.is_none() {
        added.push_str(&format!("Date: {}\n", date_text(new.date)));
    }
    out.extend_from_slice(added.as_bytes());
    for (at, (name, lines)) in parts.fields.iter().enumerate() {
        let kept = parts.bytes(lines.clone());
        let text = if Some(at) == subject && old.title != new.title {
            Some(format!("{name}: {}{}\n", tags(&kept), new.title))
        } else if Some(at) == description && words {
            let mut text = format!("{name}: {}\n", new.title);
            if continued.is_some() {
                for line in escaped(&new.body).lines() {
                    text.push_str(if line.is_empty() { " ." } else { " " });
                    text.push_str(line);
                    text.push('\n');
                }
            }
            Some(text)
        } else if Some(at) == author && old.author != new.author {
            new.author
                .as_ref()
                .map(|person| format!("{name}: {}\n", shown(person)))
        } else if Some(at) == date && old.date != new.date {
            Some(if name.eq_ignore_ascii_case("date") {
                format!("{name}: {}\n", date_text(new.date))
            } else {
                format!("{name}: {}\n", day_text(new.date))
            })
        } else {
            None
        };
        match text {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend_from_slice(&kept),
        }
    }
    let untitled = subject.is_none() && description.is_none();
    if !words || (!untitled && continued.is_none() && old.body == new.body) {
        out.extend_from_slice(&parts.bytes(parts.body.start..parts.lines.len()));
        return out;
    }
    let text = if untitled {
        prose(new)
    } else if continued.is_some() || new.body.is_empty() {
        String::new()
    } else {
        format!("{}\n", escaped(&new.body))
    };
    if !text.is_empty() {
        out.push(b'\n');
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&parts.ending());
    out
}

/// Returns a message as a header without fields.
fn prose(message: &Message) -> String {
    let mut text = format!("{}\n", escaped(&message.title));
    if !message.body.is_empty() {
        text.push_str(&format!("\n{}\n", escaped(&message.body)));
    }
    text
}

/// Escapes `text` for a header. It indents lines that would end the header for quilt or git. If GNU patch would still
/// find a diff in the text, it quotes the lines in question with `> `.
pub(crate) fn escaped(text: &str) -> String {
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
    let quote = |wanted: &dyn Fn(&str) -> bool| {
        let lines = text.lines().map(|line| {
            if wanted(line) {
                format!("> {line}")
            } else {
                line.to_owned()
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let quoted = quote(&may_be_diff_header);
    if is_prose(&quoted) {
        quoted
    } else {
        quote(&|line| !line.is_empty())
    }
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
    let found = |bytes: &[u8]| {
        let mut files = diff::parse(bytes, 1, "").ok()?.files;
        // Line numbers depend on the header's length.
        for file in &mut files {
            file.line = 0;
            file.hunks.iter_mut().for_each(|hunk| hunk.line = 0);
        }
        Some(files)
    };
    let header = format!("{text}\n\n");
    let bytes = [header.as_bytes(), DIFF].concat();
    diff::header_length(&bytes) == header.len() && found(&bytes) == found(DIFF)
}

/// Returns the tags of the old subject line, such as `[PATCH 1/4] `, which are kept.
fn tags(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let value = text
        .split_once(':')
        .map_or("", |(_, value)| value.trim_start());
    let mut end = 0;
    while let Some(inner) = value[end..].strip_prefix('[')
        && let Some(close) = inner.find(']')
        && inner[..close].to_uppercase().contains("PATCH")
    {
        end += close + 2;
        end += value[end..].len() - value[end..].trim_start_matches(' ').len();
    }
    value[..end].trim_end().to_owned() + if end > 0 { " " } else { "" }
}

fn shown(person: &Person) -> String {
    if person.email.is_empty() {
        person.name.clone()
    } else {
        format!("{} <{}>", person.name, person.email)
    }
}

fn zoned(date: Timestamp) -> Option<jiff::Zoned> {
    let offset = jiff::tz::Offset::from_seconds(date.offset_minutes * 60).ok()?;
    let moment = jiff::Timestamp::from_second(date.seconds).ok()?;
    Some(moment.to_zoned(jiff::tz::TimeZone::fixed(offset)))
}

fn date_text(date: Timestamp) -> String {
    zoned(date).map_or_else(String::new, |zoned| {
        zoned.strftime("%a, %-d %b %Y %H:%M:%S %z").to_string()
    })
}

fn day_text(date: Timestamp) -> String {
    zoned(date).map_or_else(String::new, |zoned| zoned.strftime("%Y-%m-%d").to_string())
}

/// The lines of a header, divided into fields and body as [`Header::parse`](super::Header::parse) does.
struct HeaderParts<'a> {
    lines: Vec<&'a [u8]>,
    /// Lines before the first field.
    lead: usize,
    fields: Vec<(String, Range<usize>)>,
    /// The body with the blank lines around it.
    body: Range<usize>,
}

impl<'a> HeaderParts<'a> {
    fn of(header: &'a [u8]) -> HeaderParts<'a> {
        let lines: Vec<&[u8]> = header.split_inclusive(|&b| b == b'\n').collect();
        let blank = |line: &[u8]| line.trim_ascii().is_empty();
        let lead = lines
            .iter()
            .take_while(|line| blank(line) || line.starts_with(b"From "))
            .count();
        let mut fields = Vec::new();
        let mut at = lead;
        while let Some(line) = lines.get(at) {
            let text = String::from_utf8_lossy(line);
            let Some((name, _)) = field(text.trim_end_matches(['\n', '\r'])) else {
                break;
            };
            let more = lines[at + 1..]
                .iter()
                .take_while(|line| line.starts_with(b" ") || line.starts_with(b"\t"))
                .take_while(|line| !blank(line))
                .count();
            fields.push((name.to_owned(), at..at + 1 + more));
            at += 1 + more;
        }
        let rest = lines[at..]
            .iter()
            .position(|line| line.trim_ascii_end() == b"---")
            .map_or(lines.len(), |tail| at + tail);
        HeaderParts {
            lines,
            lead,
            fields,
            body: at..rest,
        }
    }

    fn bytes(&self, lines: Range<usize>) -> Vec<u8> {
        self.lines[lines].concat()
    }

    /// Returns the lines after the body: blank lines and the list of changed files.
    fn ending(&self) -> Vec<u8> {
        let blank = self.lines[self.body.clone()]
            .iter()
            .rev()
            .take_while(|line| line.trim_ascii().is_empty())
            .count();
        self.bytes(self.body.end - blank..self.lines.len())
    }

    fn first(&self, name: &str) -> Option<usize> {
        self.first_of(&[name])
    }

    fn first_of(&self, names: &[&str]) -> Option<usize> {
        let wanted = |field: &str| names.iter().any(|name| field.eq_ignore_ascii_case(name));
        self.fields.iter().position(|(field, _)| wanted(field))
    }

    fn last(&self, name: &str) -> Option<usize> {
        self.fields
            .iter()
            .rposition(|(field, _)| field.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Header;
    use super::*;

    fn message(title: &str, body: &str) -> Message {
        Message {
            title: title.to_owned(),
            body: body.to_owned(),
            author: Some(Person {
                name: "A B".to_owned(),
                email: "a@b.c".to_owned(),
            }),
            date: Timestamp {
                seconds: 1_717_401_600,
                offset_minutes: 120,
            },
        }
    }

    /// Returns the message of the commit that the stack makes for this header.
    fn said(header: &str) -> Message {
        let header = Header::parse(header);
        let title = header.title().unwrap_or_default().to_owned();
        let body = header.text_below(&title).to_owned();
        Message {
            title,
            body,
            author: header.author,
            date: header.date.unwrap_or_default(),
        }
    }

    fn rewritten(header: &str, change: impl Fn(&mut Message)) -> String {
        let old = said(header);
        let mut new = old.clone();
        change(&mut new);
        let text = String::from_utf8(update_header(header.as_bytes(), &old, &new)).unwrap();
        assert_eq!(said(&text), new, "{text}");
        text
    }

    const MAIL: &str = "From 12 Mon Sep 17 00:00:00 2001\nFrom: A B <a@b.c>\nDate: Mon, 3 Jun 2024 10:00:00 +0200\nX-Odd:  kept\nSubject: [PATCH 2/3] strings: grow\n by doubling\n\nWhy not.\n\nMore.\n---\n sql/x.cc | 2 +-\n\n";
    const DEP3: &str = "Description: guard the call\n It is usually empty.\n .\n Second part.\nAuthor: A B <a@b.c>\nForwarded: no\nLast-Update: 2024-06-03\n\n";
    const PROSE: &str = "\nMakes it faster.\n\nBy a lot.\n\n";

    #[test]
    fn commit_messages_are_taken_apart() {
        let (message, names) = Message::parse(
            "Title  \n\n\nBody\n\n\nmore\nPatch: a.patch\n\nSecond title\n\nPatch: b.patch\nPatch: see below\n",
            None,
            Timestamp::default(),
        );
        assert_eq!(message.title, "Title");
        assert_eq!(
            message.body,
            "Body\n\nmore\n\nSecond title\n\nPatch: see below"
        );
        assert_eq!(names, ["a.patch", "b.patch"]);
        let (empty, names) = Message::parse("", None, Timestamp::default());
        assert_eq!((empty.title.as_str(), names.len()), ("", 0));
    }

    #[test]
    fn unchanged_headers_are_kept() {
        for header in [MAIL, DEP3, PROSE, "", "Subject: x\r\n\r\n"] {
            assert_eq!(rewritten(header, |_| ()), header);
        }
    }

    #[test]
    fn a_text_may_begin_with_the_letters_of_its_title() {
        let header = "Subject: Cache\n\nCaches grow\n\n";
        assert_eq!(said(header).body, "Caches grow");
        let dep3 = "Description: Cache\n Caches grow\nForwarded: no\n\n";
        let titled = rewritten(dep3, |m| m.title = "new".to_owned());
        assert_eq!(
            titled,
            dep3.replace("Description: Cache", "Description: new")
        );
        // The body must not repeat a title that is its first line.
        assert_eq!(said("Subject: Cache\n\nCache\n\nmore\n").body, "more");
        assert_eq!(said("Subject: Cache\n\nCache\n").body, "");
    }

    #[test]
    fn only_the_title_changes() {
        let titled = |header: &str| rewritten(header, |m| m.title = "new".to_owned());
        assert_eq!(
            titled(MAIL),
            MAIL.replace("strings: grow\n by doubling", "new")
        );
        assert_eq!(titled(DEP3), DEP3.replace("guard the call", "new"));
        assert_eq!(titled(PROSE), "new\n\nBy a lot.\n\n");
    }

    #[test]
    fn only_the_body_changes() {
        let with_body = |header: &str| rewritten(header, |m| m.body = "x\n\nNote: y".to_owned());
        assert_eq!(
            with_body(MAIL),
            MAIL.replace("Why not.\n\nMore.", "x\n\nNote: y")
        );
        assert_eq!(
            with_body(DEP3),
            DEP3.replace(
                " It is usually empty.\n .\n Second part.",
                " x\n .\n Note: y"
            )
        );
        assert_eq!(with_body(PROSE), "Makes it faster.\n\nx\n\nNote: y\n\n");
        assert_eq!(
            with_body("Subject: t\n\n"),
            "Subject: t\n\nx\n\nNote: y\n\n"
        );
        let without = rewritten(MAIL, |m| m.body = String::new());
        assert_eq!(without, MAIL.replace("\nWhy not.\n\nMore.\n", ""));
    }

    #[test]
    fn author_and_date_change() {
        let other = |m: &mut Message| {
            m.author = Some(Person {
                name: "C D".to_owned(),
                email: "c@d.e".to_owned(),
            });
            m.date.seconds += 3 * 24 * 3600;
        };
        assert_eq!(
            rewritten(MAIL, other),
            MAIL.replace("A B <a@b.c>", "C D <c@d.e>")
                .replace("Mon, 3 Jun", "Thu, 6 Jun")
        );
        assert_eq!(
            rewritten(DEP3, other),
            DEP3.replace("A B <a@b.c>", "C D <c@d.e>")
                .replace("2024-06-03", "2024-06-06")
        );
        let text = rewritten(PROSE, |m| {
            other(m);
            m.date.offset_minutes = -90;
        });
        assert!(text.starts_with("From: C D <c@d.e>\nDate: "), "{text}");
        assert!(rewritten("Subject: x\n\n", other).starts_with("From: C D"));
    }

    #[test]
    fn fresh_headers_are_read_back() {
        for body in ["", "one\n\ntwo", "Note: x"] {
            let message = message("title: x", body);
            let text = String::from_utf8(new_header(&message)).unwrap();
            assert_eq!(said(&text), message, "{text}");
            assert!(text.ends_with("\n\n"));
        }
    }

    #[test]
    fn text_that_looks_like_a_diff_does_not_end_the_header() {
        let message = message("t", "see:\n--- a/x\n+++ b/x\ndiff --git a/x b/x\n---\nend");
        let header = new_header(&message);
        assert_eq!(diff::header_length(&header), header.len());
        assert!(
            said(&String::from_utf8(header).unwrap())
                .body
                .ends_with("end")
        );
    }

    #[test]
    fn no_diff_is_found_in_a_message() {
        let hunk = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b";
        let indented: String = hunk.lines().map(|line| format!("    {line}\n")).collect();
        let context = "*** a/x\n--- b/x\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b";
        let mode = "  diff --git a/x b/x\n  old mode 100644\n  new mode 100755";
        let nested = hunk.replace("--- a/x", "- --- a/x");
        for text in [hunk, indented.trim_end(), context, mode, nested.as_str()] {
            let header = new_header(&message("t", &format!("see:\n{text}\nend")));
            let header = String::from_utf8(header).unwrap();
            let parsed = diff::parse(header.as_bytes(), 1, "").unwrap();
            assert!(parsed.files.is_empty(), "{header}");
            let body = said(&header).body;
            assert!(body.starts_with("see:\n"), "{body}");
            assert!(body.ends_with("\nend"), "{body}");
            // Escaping is idempotent.
            assert_eq!(escaped(&body), body);
        }
        assert_eq!(
            escaped("a\n+b\n-c\n    indented"),
            "a\n+b\n-c\n    indented"
        );
    }
}
