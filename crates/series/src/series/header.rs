//! A patch's header: the text before its first diff (DEP-3, git mail, `git show`, Mercurial, dpatch or plain prose).

use super::date::{Timestamp, mercurial_date, timestamp};
use super::layout::{HeaderForm, HeaderLayout, TitlePlace};
use super::text::decode_words;

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

impl Header {
    /// Parses the text before a patch's first diff. Lines that are not UTF-8 are read as Windows-1252.
    pub fn parse(text: impl AsRef<[u8]>) -> Header {
        Header::read(&HeaderLayout::of(text.as_ref()))
    }

    pub(super) fn read(layout: &HeaderLayout<'_>) -> Header {
        let subject = match layout.title {
            Some(TitlePlace::Field(at)) => Some(subject_of(layout, at)),
            _ => None,
        };
        let date = layout.date().and_then(|(_, text)| match layout.form {
            HeaderForm::Mercurial => mercurial_date(&text),
            _ => timestamp(&text),
        });
        let lines: Vec<&str> = layout
            .message
            .iter()
            .map(|line| line.text.as_str())
            .collect();
        let fields = layout.fields.iter();
        Header {
            subject,
            author: layout
                .author()
                .and_then(|(_, text)| person(&decode_words(&text))),
            date,
            body: trimmed(&lines.join("\n")).to_owned(),
            fields: fields
                .map(|field| (field.name.clone(), layout.value(field)))
                .collect(),
        }
    }

    /// Returns the value of the first field called `name`, ignoring case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns the subject, or the first line of the body that is no comment.
    pub fn title(&self) -> Option<&str> {
        let words = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
        self.subject
            .as_deref()
            .filter(|subject| !subject.is_empty())
            .or_else(|| self.body.lines().find(words))
            .map(str::trim)
    }

    /// Returns the body below `title`: without its first line if that line is the title.
    pub fn text_below(&self, title: &str) -> &str {
        match self.body.split_once('\n') {
            Some((first, rest)) if first.trim() == title => trimmed(rest),
            None if self.body.trim() == title => "",
            _ => &self.body,
        }
    }
}

/// Returns the text without blank lines at its ends; the first line keeps its indentation.
fn trimmed(text: &str) -> &str {
    let text = text.trim_end();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if !line.trim().is_empty() {
            break;
        }
        start += line.len();
    }
    &text[start..]
}

/// Returns the title in the field of this index.
fn subject_of(layout: &HeaderLayout<'_>, at: usize) -> String {
    let field = &layout.fields[at];
    let in_message = |line: usize| layout.message.iter().any(|it| it.line == Some(line));
    let is_long = field.lines.clone().skip(1).any(in_message);
    if field.is("description") || is_long {
        return without_tags(&decode_words(&field.value)).to_owned();
    }
    // Decoding an encoded word may produce another line end.
    let subject = decode_words(&layout.value(field).replace('\n', " ")).replace('\n', " ");
    without_tags(&subject).to_owned()
}

/// Strips tags such as `[PATCH 3/7]` from a subject.
pub fn without_tags(subject: &str) -> &str {
    let mut rest = subject.trim();
    while let Some(inner) = rest.strip_prefix('[')
        && let Some((tag, after)) = inner.split_once(']')
        && is_patch_tag(tag)
    {
        rest = after.trim_start();
    }
    rest
}

/// Returns whether a tag has the word PATCH, also as in `PATCHv2`. `[dispatch]` and `[hotpatch]` are the author's words.
pub fn is_patch_tag(tag: &str) -> bool {
    let mut words = tag.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| {
        word.strip_prefix("PATCH").is_some_and(|rest| {
            let version = rest.strip_prefix(['v', 'V']).unwrap_or(rest);
            version.bytes().all(|b| b.is_ascii_digit())
        })
    })
}

pub fn person(text: &str) -> Option<Person> {
    let mut lines = text.lines().map(str::trim);
    let mut text = lines.next().unwrap_or_default().to_owned();
    // A long name is folded; a list of people is not.
    for line in lines {
        if text.contains('@') || text.ends_with(',') {
            break;
        }
        text = format!("{text} {line}");
    }
    // RFC 822: the address, and the name as a comment.
    let commented = text.strip_suffix(')').and_then(|it| it.split_once(" ("));
    if let Some((email, name)) = commented.filter(|(it, _)| it.contains('@') && !it.contains(' ')) {
        text = format!("{name} <{email}>");
    }
    let clean = |part: &str| -> String {
        let part = part.trim().trim_matches('"');
        part.chars()
            .filter(|c| !matches!(c, '<' | '>') && !c.is_control())
            .collect()
    };
    let (name, email) = match text.split_once('<') {
        Some((name, rest)) => (clean(name), clean(rest.split('>').next().unwrap_or(rest))),
        None if text.contains('@') && !text.contains(' ') => (String::new(), clean(&text)),
        None => (clean(&text), String::new()),
    };
    let name = if name.is_empty() { email.clone() } else { name };
    (!name.is_empty()).then_some(Person { name, email })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_in_every_form() {
        for (text, name, email) in [
            ("A B <a@b.c>", "A B", "a@b.c"),
            ("\"B, A\" <a@b.c>", "B, A", "a@b.c"),
            ("a@b.c (A B)", "A B", "a@b.c"),
            ("a@b.c", "a@b.c", "a@b.c"),
            ("A B", "A B", ""),
            ("A B (of C)", "A B (of C)", ""),
            ("A B\n<a@b.c>", "A B", "a@b.c"),
            ("A von\nB <a@b.c>", "A von B", "a@b.c"),
            ("A B <a@b.c>,\nC D <c@d.e>", "A B", "a@b.c"),
            ("A B,\nC D <c@d.e>", "A B,", ""),
        ] {
            let found = person(text).unwrap();
            assert_eq!(
                (found.name.as_str(), found.email.as_str()),
                (name, email),
                "{text}"
            );
        }
    }

    #[test]
    fn queues_of_mercurial() {
        for header in [
            "# User A B <a@b.c>\n# Date 1717401600 -7200\nfive\n",
            "From: A B <a@b.c>\nDate: 1717401600 -7200\n\nfive\n",
        ] {
            let header = Header::parse(header);
            assert_eq!(header.title(), Some("five"));
            assert_eq!(header.author.unwrap().email, "a@b.c");
            let date = header.date.unwrap();
            assert_eq!((date.seconds, date.offset_minutes), (1_717_401_600, 120));
        }
    }

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
    fn only_patch_is_no_part_of_a_title() {
        for (subject, title) in [
            ("[PATCH] x", "x"),
            ("[PATCHv2 2/3] x", "x"),
            ("[RFC PATCH v3 02/10] x", "x"),
            ("[PATCH net-next,v3 2/3] x", "x"),
            ("[PATCH] [RFC] x", "[RFC] x"),
            ("[dispatch] x", "[dispatch] x"),
            ("[DISPATCH] x", "[DISPATCH] x"),
            ("[hotpatch][core] x", "[hotpatch][core] x"),
            ("[patch] x", "[patch] x"),
            ("[PATCHES] x", "[PATCHES] x"),
            ("[JIRA-12] x", "[JIRA-12] x"),
        ] {
            assert_eq!(
                Header::parse(format!("Subject: {subject}\n")).title(),
                Some(title)
            );
        }
    }

    #[test]
    fn a_mails_text_may_begin_with_its_author() {
        let mail = "From: List <l@example.org>\nSubject: [PATCH] x\n\nFrom: A B <a@b.c>\nSubject: y\n\nBody.\n";
        let header = Header::parse(mail);
        assert_eq!(
            header.author.as_ref().map(|it| it.name.as_str()),
            Some("A B")
        );
        assert_eq!((header.title(), header.body.as_str()), (Some("y"), "Body."));
        let quoted = Header::parse("From: A <a@b>\nSubject: x\n\nFrom: the start\nof it\n");
        assert_eq!(quoted.body, "From: the start\nof it");
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
