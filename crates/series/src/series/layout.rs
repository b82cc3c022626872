//! The lines of a patch's header and what each of them is. Reading a header and rewording it both go by these lines, so
//! that a rewording leaves every other line alone.

use std::ops::Range;

use super::date::timestamp;
use super::quoting::Quoting;
use super::text::{line_text, lines};

/// The key of the line that names a commit's patch on the edit branch. In a header, such a line is no part of the message.
pub const PATCH_KEY: &str = "Perfquilt-Patch";

/// Returns the name on a line `KEY: NAME`.
pub(super) fn patch_name<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let name = line.strip_prefix(key)?.strip_prefix(':')?.trim();
    (!name.is_empty() && !name.contains(char::is_whitespace)).then_some(name)
}

/// The form of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderForm {
    /// Fields, such as `Subject:` (mails, DEP-3), and the text after them.
    Fields,
    /// `git show` and `git log`: `commit ID`, fields, and the message indented by four blanks.
    GitLog,
    /// `hg export`: `# User`, `# Date`, and the message.
    Mercurial,
    /// dpatch: `## DP:` lines.
    Dpatch,
    /// Text alone; its first line is the title.
    Prose,
}

/// A field with its continuation lines.
#[derive(Debug, Clone)]
pub struct FieldLines {
    /// The name as written.
    pub name: String,
    /// The value on the first line.
    pub value: String,
    /// Indices of its lines.
    pub lines: Range<usize>,
}

/// A line of a message and the line of the header that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageLine {
    /// Index of the header's line; `None` for the blank line between two parts of the message.
    pub line: Option<usize>,
    /// The text, without indentation that belongs to the header's form.
    pub text: String,
    /// The bytes before the text of a line that is added next to this one.
    pub prefix: String,
}

/// Where the title is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TitlePlace {
    /// In the field of this index: all lines of a subject, the first line of a description.
    Field(usize),
    /// In this line of the message.
    Text(usize),
}

/// A header, line by line.
pub struct HeaderLayout<'a> {
    /// The form that its fields have.
    pub form: HeaderForm,
    /// The lines with their ends.
    pub lines: Vec<&'a [u8]>,
    /// The lines as text, without their ends.
    pub text: Vec<String>,
    /// The fields in order.
    pub fields: Vec<FieldLines>,
    /// The lines of the message in order. The title is among them if it is no field.
    pub message: Vec<MessageLine>,
    /// Where the title is.
    pub title: Option<TitlePlace>,
    /// How lines of the message are quoted.
    pub quoting: Option<Quoting>,
    /// Index of the line where text can be added if there is no message: after fields and comments.
    pub body: usize,
}

/// Names of fields that make a header's first lines fields, beside those of DEP-3. Other names are fields only beside one
/// of these, because a title such as `net: reuse the buffer` looks like a field.
const KNOWN: [&str; 10] = [
    "from",
    "subject",
    "date",
    "author",
    "description",
    "message-id",
    "in-reply-to",
    "mime-version",
    "content-type",
    "fix-up",
];

/// Returns whether a field of DEP-3, or of the distributions' headers like it, has this name. Mails have other ones.
pub fn is_dep3(name: &str) -> bool {
    const NAMES: [&str; 12] = [
        "origin",
        "forwarded",
        "bug",
        "last-update",
        "reviewed-by",
        "acked-by",
        "signed-off-by",
        "applied-upstream",
        "upstream",
        "patch-mainline",
        "git-commit",
        "git-repo",
    ];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&name.as_str()) || name.starts_with("bug-")
}

impl<'a> HeaderLayout<'a> {
    /// Reads a header.
    pub fn of(header: &'a [u8]) -> HeaderLayout<'a> {
        let lines = lines(header);
        let mut text: Vec<String> = lines
            .iter()
            // A commit's message cannot have a NUL.
            .map(|line| line_text(line).replace('\0', "\u{fffd}"))
            .map(|line| line.trim_end_matches(['\n', '\r']).to_owned())
            .collect();
        if let Some(first) = text.first_mut()
            && let Some(rest) = first.strip_prefix('\u{feff}')
        {
            *first = rest.to_owned();
        }
        let mut layout = HeaderLayout {
            form: HeaderForm::Prose,
            lines,
            text,
            fields: Vec::new(),
            message: Vec::new(),
            title: None,
            quoting: None,
            body: 0,
        };
        layout.read();
        layout
    }

    fn read(&mut self) {
        let lead = self.count(0, |line| is_blank(line) || is_mailbox_line(line));
        if let Some(first) = self.text.get(lead) {
            if is_commit_line(first) && self.is_git_log(lead + 1) {
                return self.read_git_log(lead + 1);
            }
            let next = self.text.get(lead + 1).map_or("", String::as_str);
            let is_user = first.starts_with("# User ") && next.starts_with("# Date ");
            if is_user || first.starts_with("# HG changeset patch") {
                self.form = HeaderForm::Mercurial;
            } else if self
                .text
                .iter()
                .skip(lead)
                .take_while(|line| line.starts_with('#') || is_blank(line))
                .any(|line| line.starts_with("## DP:"))
            {
                return self.read_dpatch(lead);
            }
        }
        let after_comments = lead
            + self.count(lead, |line| {
                is_blank(line) || is_mailbox_line(line) || line.starts_with('#')
            });
        self.body = after_comments;
        if self.form == HeaderForm::Prose {
            let end = self.field_block(after_comments);
            if self.fields.iter().any(FieldLines::is_known) {
                self.form = HeaderForm::Fields;
                self.body = end;
                self.read_in_body_fields();
            } else {
                self.fields.clear();
            }
        }
        self.read_message();
    }

    fn count(&self, from: usize, is: impl Fn(&str) -> bool) -> usize {
        self.text[from..].iter().take_while(|line| is(line)).count()
    }

    /// Reads fields from line `at` on; returns the line after them.
    fn field_block(&mut self, mut at: usize) -> usize {
        let start = at;
        while let Some(line) = self.text.get(at) {
            if line.starts_with('#') && at > start {
                at += 1;
                continue;
            }
            let Some((name, value)) = field(line) else {
                break;
            };
            let more = self.count(at + 1, |line| {
                line.starts_with([' ', '\t']) && !is_blank(line)
            });
            self.fields.push(FieldLines {
                name: name.to_owned(),
                value: value.to_owned(),
                lines: at..at + 1 + more,
            });
            at += 1 + more;
        }
        at
    }

    /// Reads `From:`, `Date:` and `Subject:` at the begin of a mail's text, which overrule its header's.
    fn read_in_body_fields(&mut self) {
        let is_mail = ["from", "subject"]
            .iter()
            .all(|name| self.first(name).is_some());
        let blank = self.count(self.body, is_blank);
        let at = self.body + blank;
        let begins = self.text.get(at).and_then(|line| field(line));
        if !is_mail || blank == 0 || !begins.is_some_and(|(name, value)| is_in_body(name, value)) {
            return;
        }
        if let Some(end) = self.in_body_block(at) {
            self.body = end;
        }
    }

    /// Reads a block of fields that may stand at the begin of a mail's text; returns the line after them.
    fn in_body_block(&mut self, at: usize) -> Option<usize> {
        let before = self.fields.len();
        let end = self.field_block(at);
        let mut fields = self.fields[before..].iter();
        let all = fields.all(|field| is_in_body(&field.name, &field.value));
        let found = all && self.text.get(end).is_none_or(|line| is_blank(line));
        if !found {
            self.fields.truncate(before);
        }
        found.then_some(end)
    }

    /// Reads the message of a header with fields, of a Mercurial header and of prose.
    fn read_message(&mut self) {
        let quoted = self.first("perfquilt-quoted");
        self.quoting = quoted.and_then(|at| Quoting::named(&self.fields[at].value));
        let title = self.last("subject").or_else(|| self.first("description"));
        if let Some(at) = title {
            let described = self.fields[at].is_description(&self.text);
            if described {
                self.read_continuation(at);
            }
            let field = &self.fields[at];
            let titled = if described {
                !field.value.is_empty()
            } else {
                !is_blank(&self.value(field))
            };
            self.title = titled.then_some(TitlePlace::Field(at));
        }
        let body = self.body;
        let end = self.text[body..]
            .iter()
            .position(|line| line.trim_end() == "---");
        let end = end.map_or(self.text.len(), |at| body + at);
        let start = body + self.count(body, is_blank);
        if !self.message.is_empty() && start < end {
            self.message.push(MessageLine {
                line: None,
                text: String::new(),
                prefix: String::new(),
            });
        }
        let lines = (start..end).map(|at| MessageLine {
            line: Some(at),
            text: self.unquoted(self.text[at].trim_end()).to_owned(),
            prefix: String::new(),
        });
        let is_message = |line: &MessageLine| patch_name(&line.text, PATCH_KEY).is_none();
        let lines: Vec<MessageLine> = lines.filter(is_message).collect();
        self.message.extend(lines);
        self.find_title();
        if self.form == HeaderForm::Prose {
            self.read_stgit_fields();
        }
    }

    fn unquoted<'l>(&self, line: &'l str) -> &'l str {
        self.quoting.map_or(line, |quoting| quoting.unquoted(line))
    }

    /// Reads the continuation lines of a description, where ` .` is a blank line.
    fn read_continuation(&mut self, at: usize) {
        let lines = self.fields[at].lines.clone();
        let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
        let rest = lines.start + 1..lines.end;
        let is_blank_mark = |line: &str| line.trim() == ".";
        let wide = self.text[rest.clone()]
            .iter()
            .filter(|line| !is_blank_mark(line))
            .map(|line| indent(line))
            .min()
            .unwrap_or(1);
        for line in rest {
            let text = &self.text[line];
            let prefix = text[..wide.min(indent(text))].to_owned();
            let text = if is_blank_mark(text) {
                ""
            } else {
                text[prefix.len()..].trim_end()
            };
            let text = self.unquoted(text).to_owned();
            self.message.push(MessageLine {
                line: Some(line),
                text,
                prefix,
            });
        }
    }

    /// Takes the first line of the message as the title if no field has it, but never a comment.
    fn find_title(&mut self) {
        if self.title.is_none() {
            let titled = |line: &MessageLine| !is_blank(&line.text) && !line.text.starts_with('#');
            self.title = self.message.iter().position(titled).map(TitlePlace::Text);
        }
    }

    /// Reads the fields of a patch of StGit: the title, a blank line, and `From:` or `Author:`.
    fn read_stgit_fields(&mut self) {
        let Some(TitlePlace::Text(title)) = self.title else {
            return;
        };
        let Some(after) = self.message[title].line.map(|line| line + 1) else {
            return;
        };
        let at = after + self.count(after, is_blank);
        let begins = self.text.get(at).and_then(|line| field(line));
        let author = begins.is_some_and(|(name, value)| {
            ["from", "author"]
                .iter()
                .any(|it| name.eq_ignore_ascii_case(it))
                && value.contains('@')
        });
        if at == after || !author {
            return;
        }
        let Some(end) = self.in_body_block(at) else {
            return;
        };
        self.message
            .retain(|line| line.line.is_none_or(|line| !(at..end).contains(&line)));
    }

    /// Returns whether the fields of `git show` begin at line `at`.
    fn is_git_log(&self, at: usize) -> bool {
        let line = self.text.get(at).map_or("", String::as_str);
        let named = field(line).map(|(name, _)| name);
        matches!(named, Some("Author" | "Merge")) || line.starts_with("tree ")
    }

    fn read_git_log(&mut self, mut at: usize) {
        self.form = HeaderForm::GitLog;
        while let Some(line) = self.text.get(at).filter(|line| !is_blank(line)) {
            // `--format=raw` writes `author` without a colon.
            let raw = line.split_once(' ').filter(|(name, _)| {
                ["tree", "parent", "author", "committer", "encoding"].contains(name)
            });
            if let Some((name, value)) = field(line).or(raw) {
                self.fields.push(FieldLines {
                    name: name.to_owned(),
                    value: value.trim().to_owned(),
                    lines: at..at + 1,
                });
            }
            at += 1;
        }
        self.body = at;
        let start = at + self.count(at, is_blank);
        let inside = |line: &str| line.starts_with("    ") || is_blank(line);
        let end = start + self.count(start, inside);
        self.message = (start..end)
            .map(|at| MessageLine {
                line: Some(at),
                text: self.text[at]
                    .get(4..)
                    .unwrap_or_default()
                    .trim_end()
                    .to_owned(),
                prefix: "    ".to_owned(),
            })
            .filter(|line: &MessageLine| patch_name(&line.text, PATCH_KEY).is_none())
            .collect();
        self.title = self
            .message
            .iter()
            .position(|line| !is_blank(&line.text))
            .map(TitlePlace::Text);
    }

    fn read_dpatch(&mut self, lead: usize) {
        self.form = HeaderForm::Dpatch;
        for at in lead..self.text.len() {
            let line = &self.text[at];
            if let Some(text) = line.strip_prefix("## DP:") {
                self.body = at + 1;
                self.message.push(MessageLine {
                    line: Some(at),
                    text: text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned(),
                    prefix: "## DP: ".to_owned(),
                });
            } else if let Some((_, author)) = line
                .strip_prefix("## ")
                .and_then(|line| line.split_once(" by "))
                .filter(|_| self.fields.is_empty() && self.message.is_empty())
            {
                self.fields.push(FieldLines {
                    name: "Author".to_owned(),
                    value: author.trim().to_owned(),
                    lines: at..at + 1,
                });
            }
        }
        self.find_title();
    }

    /// Returns the index of the first field called `name` (in lower case).
    pub fn first(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.is(name))
    }

    /// Returns the index of the last field called `name` (in lower case).
    pub fn last(&self, name: &str) -> Option<usize> {
        self.fields.iter().rposition(|field| field.is(name))
    }

    /// Returns the line with the author, and the author as written.
    pub fn author(&self) -> Option<(usize, String)> {
        if self.form == HeaderForm::Mercurial {
            return self.mercurial("# User ");
        }
        let mut from = self.fields.iter().filter(|field| field.is("from"));
        // A mail's text may begin with the author if another person sent the mail.
        let field = if from.clone().count() > 1 {
            from.next_back()
        } else {
            let mut fields = self.fields.iter();
            fields.find(|field| field.is("from") || field.is("author"))
        }?;
        Some((field.lines.start, self.value(field)))
    }

    /// Returns the line with the date, and the date as written.
    pub fn date(&self) -> Option<(usize, String)> {
        if self.form == HeaderForm::Mercurial {
            return self.mercurial("# Date ");
        }
        if let Some(raw) = self.first("author").filter(|_| self.last("tree").is_some()) {
            // `author NAME <EMAIL> SECONDS ZONE`
            let field = &self.fields[raw];
            let date = field.value.rsplit('>').next().unwrap_or_default();
            return Some((field.lines.start, date.trim().to_owned()));
        }
        let named = ["authordate", "date", "last-update"];
        let field = named.iter().find_map(|name| self.last(name))?;
        let field = &self.fields[field];
        Some((field.lines.start, self.value(field)))
    }

    /// Returns the first comment line of a Mercurial header that begins with `start`, and the rest of it.
    fn mercurial(&self, start: &str) -> Option<(usize, String)> {
        let mut lines = self.text.iter().enumerate();
        lines.find_map(|(at, line)| Some((at, line.strip_prefix(start)?.trim().to_owned())))
    }

    /// Returns the value of a field; continuation lines are joined by newlines.
    pub fn value(&self, field: &FieldLines) -> String {
        let mut value = field.value.clone();
        for line in &self.text[field.lines.start + 1..field.lines.end] {
            value.push('\n');
            value.push_str(line.trim());
        }
        value
    }
}

impl FieldLines {
    /// Returns whether the field has this name, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Returns whether the field shows that the lines beside it are fields too.
    fn is_known(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        let known = KNOWN.contains(&name.as_str()) || is_dep3(&name);
        known && (name != "date" || timestamp(&self.value).is_some())
    }

    /// Returns whether the continuation lines are the text below the title: those of `Description:`, and of a
    /// `Subject:` that has blank lines written as ` .`, which mails do not have.
    fn is_description(&self, text: &[String]) -> bool {
        let more = &text[self.lines.start + 1..self.lines.end];
        self.is("description") || (self.is("subject") && more.iter().any(|line| line.trim() == "."))
    }
}

pub(super) fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
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

/// Returns whether a field may stand at the begin of a mail's text.
fn is_in_body(name: &str, value: &str) -> bool {
    match name.to_ascii_lowercase().as_str() {
        "from" | "author" => value.contains('@'),
        "date" => timestamp(value).is_some(),
        "subject" => !value.is_empty(),
        _ => false,
    }
}

/// Returns whether a line separates the mails of a mailbox: `From SENDER Mon Sep 17 00:00:00 2001`. Without its date, it
/// is text that begins with the word *From*.
pub fn is_mailbox_line(line: &str) -> bool {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let Some(rest) = line.strip_prefix("From ") else {
        return false;
    };
    let words: Vec<&str> = rest.split_whitespace().collect();
    words.windows(5).any(|words| {
        let number = |word: &str| word.parse::<u32>().is_ok();
        DAYS.contains(&words[0])
            && words[1].len() == 3
            && number(words[2])
            && words[3].split(':').all(number)
            && words[3].contains(':')
    })
}

/// Returns whether a line is the first of `git show`: `commit ID`, perhaps with names of branches.
pub fn is_commit_line(line: &str) -> bool {
    line.strip_prefix("commit ").is_some_and(|rest| {
        let id = rest.split(' ').next().unwrap_or_default();
        (7..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_hexdigit())
    })
}
