//! Commit messages and patch headers. A maintainer's change of a commit message is carried over to the header; every
//! other line of the header keeps its bytes.

use std::collections::{BTreeMap, BTreeSet};

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::date::{date_text, day_text, git_date_text, raw_date_text};
pub use super::layout::PATCH_KEY;
use super::layout::{
    FieldLines, HeaderForm, HeaderLayout, MessageLine, TitlePlace, field, is_blank, patch_name,
};
use super::quoting::{Quoting, escaped};
use super::{Header, Person, Timestamp};

/// The key that earlier versions wrote, which authors use as well.
const OLD_PATCH_KEY: &str = "Patch";

/// The message, author and date of a patch's commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The first paragraph, as one line.
    pub title: String,
    /// The text below it, without blank lines at either end.
    pub body: String,
    /// The author.
    pub author: Option<Person>,
    /// The author date.
    pub date: Timestamp,
}

impl Message {
    /// Parses a commit's message. Returns it with the names on its [`PATCH_KEY`] lines.
    pub fn parse(text: &str, author: Option<Person>, date: Timestamp) -> (Message, Vec<String>) {
        let mut names = Vec::new();
        let mut lines = Vec::new();
        for line in text.lines() {
            match patch_name(line, PATCH_KEY) {
                Some(name) => names.push(name.to_owned()),
                None => lines.push(line.trim_end()),
            }
        }
        let start = lines.iter().take_while(|line| line.is_empty()).count();
        let lines = &lines[start..];
        let titles = lines.iter().take_while(|line| !line.is_empty()).count();
        let title: Vec<&str> = lines[..titles].iter().map(|line| line.trim()).collect();
        let message = Message {
            title: title.join(" "),
            body: lines[titles..].join("\n").trim_matches('\n').to_owned(),
            author,
            date,
        };
        (message, names)
    }

    /// Returns the message that a patch's commit has with this header; `name` is the title of a patch without one.
    pub fn of_header(header: &[u8], name: &str) -> Message {
        let header = Header::parse(header);
        let title = header.title().unwrap_or(name).to_owned();
        Message {
            body: header.text_below(&title).to_owned(),
            title,
            author: header.author,
            date: header.date.unwrap_or_default(),
        }
    }

    /// Returns whether title and body are equal, ignoring blank lines that editors change and lines that begin with
    /// `#`, which git drops.
    pub fn same_text(&self, other: &Message) -> bool {
        let plain = |message: &Message| {
            let lines = message.body.lines().filter(|l| !l.starts_with('#'));
            (message.title.clone(), squeeze(lines))
        };
        plain(self) == plain(other)
    }

    /// Returns this message with a title of `old` that begins with `#`, where git dropped it from an edited message.
    fn with_dropped_title(&self, old: &Message) -> Message {
        let mut new = self.clone();
        let words: Vec<&str> = old.body.lines().filter(|l| !l.starts_with('#')).collect();
        let (left, _) = Message::parse(&words.join("\n"), None, Timestamp::default());
        if old.title.starts_with('#') && left.title == self.title {
            let first = words.iter().skip_while(|line| line.is_empty());
            let first: Vec<&str> = first.take_while(|line| !line.is_empty()).copied().collect();
            let body = format!("{}\n\n{}", first.join("\n"), self.body);
            new.title.clone_from(&old.title);
            body.trim_matches('\n').clone_into(&mut new.body);
        }
        new
    }

    /// Returns whether title, body, author and date are equal.
    pub fn same(&self, other: &Message) -> bool {
        self.same_text(other) && self.author == other.author && self.date == other.date
    }
}

/// Returns the line that names a commit's patch.
pub fn patch_line(name: &str) -> String {
    format!("{PATCH_KEY}: {name}")
}

/// Gives the lines `Patch: NAME` that an earlier version of perfquilt wrote into a commit's message today's key;
/// `is_patch` knows names of patches. The author's own lines of this key have other values.
pub fn with_new_key(text: &str, is_patch: impl Fn(&str) -> bool) -> String {
    let lines = text.lines().map(|line| {
        let name = patch_name(line, OLD_PATCH_KEY).filter(|name| is_patch(name));
        name.map_or_else(|| line.to_owned(), patch_line) + "\n"
    });
    lines.collect()
}

/// Returns whether the last paragraph of a text has trailers only, such as `Signed-off-by: NAME`, one of them with a
/// dash in its name.
pub fn ends_in_trailers(text: &str) -> bool {
    let lines = text.trim_end().lines().rev();
    let last: Vec<&str> = lines.take_while(|line| !is_blank(line)).collect();
    let mut trailers = last
        .iter()
        .filter_map(|line| field(line).filter(|(_, value)| !value.is_empty()));
    trailers.clone().count() == last.len() && trailers.any(|(name, _)| name.contains('-'))
}

/// Joins lines without leading and trailing blank ones, and with at most one blank line in a row.
pub fn squeeze<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    // As for git, a form feed or a wide blank is no blank.
    for line in lines.map(|line| line.trim_end_matches([' ', '\t', '\r', '\n'])) {
        if line.is_empty() && (text.is_empty() || text.ends_with("\n\n")) {
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    text.trim_matches('\n').to_owned()
}

/// Returns the header of a new patch, with the blank line that separates it from its diff.
pub fn new_header(message: &Message) -> Vec<u8> {
    // A text may begin like the fields of a mail, which git, too, reads only once there, or with its title, which counts as
    // a repetition.
    let repeated = Quoting::quoted(Quoting::needed(&message.body), &message.title);
    let guards = [
        String::new(),
        format!("Subject: {}\n\n", message.title),
        format!("{repeated}\n\n"),
    ];
    let mut headers = guards.iter().map(|guard| fresh_header(message, guard));
    let plain = fresh_header(message, "");
    headers
        .find(|header| Message::of_header(header, &message.title).same_text(message))
        .unwrap_or(plain)
}

fn fresh_header(message: &Message, guard: &str) -> Vec<u8> {
    let mut text = author_fields(message);
    text.push_str(&format!("Subject: {}\n", message.title));
    let quoting = Quoting::needed(&message.body);
    if let Some(quoting) = quoting {
        text.push_str(&quoting.field());
    }
    text.push('\n');
    text.push_str(guard);
    for line in message.body.lines() {
        text.push_str(&Quoting::quoted(quoting, line));
        text.push('\n');
    }
    if !message.body.is_empty() {
        text.push('\n');
    }
    text.into_bytes()
}

fn author_fields(message: &Message) -> String {
    let author = message.author.as_ref();
    let mut fields = author.map_or_else(String::new, |it| format!("From: {}\n", shown(it)));
    if message.date != Timestamp::default() {
        fields.push_str(&format!("Date: {}\n", date_text(message.date)));
    }
    fields
}

/// Updates `header` after its commit's message changed from `old` to `new`. Only the differing lines are rewritten.
pub fn update_header(header: &[u8], old: &Message, new: &Message) -> Vec<u8> {
    let new = &new.with_dropped_title(old);
    if old.same(new) {
        return header.to_vec();
    }
    if header.trim_ascii().is_empty() {
        return new_header(new);
    }
    let mut rewording = Rewording {
        layout: HeaderLayout::of(header),
        replaced: BTreeMap::new(),
        added: BTreeMap::new(),
        quoting: Quoting::needed(&new.body),
    };
    if !old.same_text(new) {
        rewording.body(&old.title, &new.body);
    }
    if old.title != new.title {
        rewording.title(&old.title, &new.title);
    }
    if old.author != new.author || old.date != new.date {
        rewording.person(old, new);
    }
    let reworded = rewording.bytes();
    // A message that this form of a header cannot have, such as one of a single `.` in a description.
    let name = if old.title == new.title {
        &old.title
    } else {
        ""
    };
    let is_right = |header: &Vec<u8>| Message::of_header(header, name).same(new);
    let layout = &rewording.layout;
    let anew = [|line: &[u8]| line.to_vec(), as_comment].map(|kept| layout.anew(new, kept));
    let mut ways = std::iter::once(reworded).chain(anew.clone());
    let [_, last] = anew;
    ways.find(is_right).unwrap_or(last)
}

/// Returns a line of a header as a comment.
fn as_comment(line: &[u8]) -> Vec<u8> {
    [b"# ", line].concat()
}

impl HeaderLayout<'_> {
    /// Returns the header of another message with the lines of this one that are neither its text nor its author, as
    /// `kept` writes them.
    fn anew(&self, new: &Message, kept: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let of_person = |field: &&FieldLines| {
            self.form != HeaderForm::Dpatch && (is_of_message(field) || field.is("authordate"))
        };
        let fields = self.fields.iter().filter(of_person);
        let mut gone: BTreeSet<usize> = fields.flat_map(|field| field.lines.clone()).collect();
        gone.extend(self.message.iter().filter_map(|line| line.line));
        let is_kept = |at: &usize| {
            let line = &self.text[*at];
            let of_mercurial = ["# HG changeset patch", "# User ", "# Date "];
            let is_mercurial = self.form == HeaderForm::Mercurial
                && of_mercurial.iter().any(|start| line.starts_with(start));
            !gone.contains(at) && !is_mercurial && !is_blank(line)
        };
        let above = (0..self.body).filter(is_kept);
        let mut above: Vec<Vec<u8>> = above.map(|at| kept(self.lines[at])).collect();
        // The header's last line may have no end.
        if let Some(last) = above.last_mut().filter(|line| !line.ends_with(b"\n")) {
            last.push(b'\n');
        }
        let below = (self.body..self.lines.len()).filter(is_kept);
        let mut below: Vec<&[u8]> = below.map(|at| self.lines[at]).collect();
        if below
            .first()
            .is_some_and(|line| line.trim_ascii_end() != b"---")
        {
            below.insert(0, b"---\n");
        }
        let end: &[u8] = if below.is_empty() { b"" } else { b"\n" };
        [&above.concat(), &new_header(new), &below.concat()[..], end].concat()
    }
}

/// Returns whether a field has a part of the message, or says how it is quoted.
fn is_of_message(field: &FieldLines) -> bool {
    const NAMES: [&str; 6] = [
        "from",
        "author",
        "date",
        "subject",
        "description",
        "perfquilt-quoted",
    ];
    NAMES.iter().any(|name| field.is(name))
}

/// Adds the fields of the headers of other patches that were squashed into this one, except those of title and date.
pub fn add_fields(header: &[u8], others: &[&[u8]]) -> Vec<u8> {
    let own = Header::parse(header);
    let mut seen: BTreeSet<(String, String)> = own
        .fields
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    let mut authors: Vec<Person> = own.author.into_iter().collect();
    let mut added = Vec::new();
    for other in others {
        let layout = HeaderLayout::of(other);
        if layout.form == HeaderForm::Fields {
            for field in &layout.fields {
                let name = field.name.to_ascii_lowercase();
                let is_own = is_of_message(field) || field.is("last-update");
                if !is_own && seen.insert((name, layout.value(field))) {
                    added.extend(layout.lines[field.lines.clone()].concat());
                }
            }
        }
        if let Some(author) = Header::read(&layout).author
            && !authors.contains(&author)
        {
            added.extend(format!("Author: {}\n", shown(&author)).into_bytes());
            authors.push(author);
        }
    }
    if added.is_empty() {
        return header.to_vec();
    }
    let layout = HeaderLayout::of(header);
    let has_fields = layout.form == HeaderForm::Fields && !layout.fields.is_empty();
    let last = layout.fields.iter().map(|field| field.lines.end).max();
    let at = last.filter(|_| has_fields);
    match at {
        Some(at) => [
            layout.lines[..at].concat(),
            added,
            layout.lines[at..].concat(),
        ]
        .concat(),
        // A header without fields gets them below its text.
        None => {
            let text = header.trim_ascii_end();
            [text, b"\n\n", &added, b"\n"].concat()
        }
    }
}

/// Changes of a header's lines.
struct Rewording<'a> {
    layout: HeaderLayout<'a>,
    /// The new text of lines, without their ends; `None` removes one.
    replaced: BTreeMap<usize, Option<String>>,
    /// Text to add before lines, with its ends.
    added: BTreeMap<usize, String>,
    /// The quoting that the new text needs.
    quoting: Option<Quoting>,
}

impl Rewording<'_> {
    fn add(&mut self, before: usize, text: &str) {
        self.added.entry(before).or_default().push_str(text);
    }

    /// Returns the index of the first line of the message below the title `old`, which the text may repeat.
    fn below_title(&self, old: &str) -> usize {
        let message = &self.layout.message;
        match self.layout.title {
            Some(TitlePlace::Text(at)) => at + 1,
            _ => match message.iter().position(|line| !is_blank(&line.text)) {
                Some(first) if message[first].text.trim() == old => first + 1,
                _ => 0,
            },
        }
    }

    /// Rewrites the lines below the title `title` that differ from those of `body`.
    fn body(&mut self, title: &str, body: &str) {
        let lines = self.layout.message[self.below_title(title)..].to_vec();
        let old = Tokens::of(lines.iter().map(|line| line.text.as_str()));
        let new = Tokens::of(body.lines());
        if let Some(quoting) = self.quoting
            && self.layout.quoting.is_none()
            && let Some(field) = self.layout.fields.last()
        {
            self.add(field.lines.end, &quoting.field());
        }
        let keeps_comments = !body.lines().any(|line| line.starts_with('#'));
        let (old_texts, new_texts) = (old.texts(), new.texts());
        for op in capture_diff_slices(Algorithm::Myers, &old_texts, &new_texts) {
            if matches!(op, DiffOp::Equal { .. }) {
                continue;
            }
            let (from, to) = (op.old_range(), op.new_range());
            for line in old.tokens[from.clone()]
                .iter()
                .flat_map(|token| token.lines.clone())
            {
                let is_comment = keeps_comments && lines[line].text.starts_with('#');
                if let Some(at) = lines[line].line.filter(|_| !is_comment) {
                    self.replaced.insert(at, None);
                }
            }
            self.add_lines(&lines, &old, from.end, &new_texts[to]);
        }
        if new_texts.is_empty()
            && let Some(first) = old
                .tokens
                .first()
                .and_then(|token| lines[token.lines.start].line)
        {
            // The blank line between title and text.
            let blank = (0..first)
                .rev()
                .take_while(|&at| is_blank(&self.layout.text[at]));
            self.replaced.extend(blank.map(|at| (at, None)));
        }
    }

    /// Adds lines of the message before the token `at` of the old ones, in the form of the line before them.
    fn add_lines(&mut self, lines: &[MessageLine], old: &Tokens<'_>, at: usize, added: &[&str]) {
        if added.is_empty() {
            return;
        }
        let before = old.tokens[..at]
            .iter()
            .rev()
            .flat_map(|token| token.lines.clone().rev());
        let mut before = before.filter(|&line| lines[line].line.is_some());
        let after = old.tokens[at..]
            .iter()
            .flat_map(|token| token.lines.clone());
        let mut after = after.filter(|&line| lines[line].line.is_some());
        let (place, prefix) = match (before.next(), after.next()) {
            (Some(line), _) => (
                lines[line].line.map_or(0, |line| line + 1),
                lines[line].prefix.clone(),
            ),
            (None, Some(line)) => (lines[line].line.unwrap_or(0), lines[line].prefix.clone()),
            (None, None) => return self.add_text(&added.join("\n")),
        };
        for line in added {
            let line = self.formed(&prefix, line);
            self.add(place, &format!("{line}\n"));
        }
    }

    /// Adds a text below the title of a header that has none.
    fn add_text(&mut self, text: &str) {
        let layout = &self.layout;
        let (place, prefix) = match layout.title {
            Some(TitlePlace::Text(at)) => {
                let title = &layout.message[at];
                (
                    title.line.map_or(layout.body, |line| line + 1),
                    title.prefix.clone(),
                )
            }
            _ => (layout.body, String::new()),
        };
        let blank = |at: usize| layout.text.get(at).is_some_and(|line| is_blank(line));
        let gap = layout.form != HeaderForm::Dpatch;
        let lines: Vec<String> = text
            .lines()
            .map(|line| self.formed(&prefix, line))
            .collect();
        let (start, end) = (
            if gap { "\n" } else { "" },
            if gap && !blank(place) { "\n" } else { "" },
        );
        self.add(place, &format!("{start}{}\n{end}", lines.join("\n")));
    }

    /// Returns a line of the message as a line of the header.
    fn formed(&self, prefix: &str, line: &str) -> String {
        let line = &Quoting::quoted(self.layout.quoting.or(self.quoting), line);
        match (line.is_empty(), prefix.trim()) {
            // A blank line of a description's continuation.
            (true, "") if !prefix.is_empty() && self.layout.form == HeaderForm::Fields => {
                " .".to_owned()
            }
            (true, _) => prefix.trim_end().to_owned(),
            (false, _) => format!("{prefix}{line}"),
        }
    }

    fn title(&mut self, old: &str, title: &str) {
        if let Some(repeated) = self.below_title(old).checked_sub(1)
            && !matches!(self.layout.title, Some(TitlePlace::Text(_)))
            && let Some(line) = self.layout.message[repeated].line
        {
            self.replaced.insert(line, None);
        }
        let layout = &self.layout;
        match layout.title {
            Some(TitlePlace::Field(at)) => {
                let field = &layout.fields[at];
                let (name, lines) = (field.name.clone(), field.lines.clone());
                let first = lines.start;
                let tags = tags(&field.value);
                let separator = self.separator(first, &name);
                let is_message =
                    |line: usize| layout.message.iter().any(|it| it.line == Some(line));
                let folded: Vec<usize> = lines.skip(1).filter(|&line| !is_message(line)).collect();
                self.replaced
                    .insert(first, Some(format!("{name}:{separator}{tags}{title}")));
                for line in folded {
                    self.replaced.insert(line, None);
                }
            }
            Some(TitlePlace::Text(at)) => {
                let old = &layout.message[at];
                let line = format!("{}{title}", old.prefix);
                if let Some(at) = old.line {
                    self.replaced.insert(at, Some(escaped(&line)));
                }
            }
            // Only comments or fields.
            None if layout.form == HeaderForm::Fields => {
                self.add(layout.fields[0].lines.start, &format!("Subject: {title}\n"))
            }
            None => {
                let place = layout.body;
                let last = place.checked_sub(1).and_then(|last| layout.text.get(last));
                let gap = if last.is_some_and(|line| !is_blank(line)) {
                    "\n"
                } else {
                    ""
                };
                self.add(place, &format!("{gap}{}\n\n", escaped(title)));
            }
        }
    }

    /// Returns the blanks between the colon and the value of the field in a line.
    fn separator(&self, line: usize, name: &str) -> String {
        let rest = self.layout.text[line]
            .get(name.len() + 1..)
            .unwrap_or_default();
        let blanks = &rest[..rest.len() - rest.trim_start().len()];
        if blanks.is_empty() {
            " ".to_owned()
        } else {
            blanks.to_owned()
        }
    }

    /// Rewrites author and date.
    fn person(&mut self, old: &Message, new: &Message) {
        let (author, date) = (self.layout.author(), self.layout.date());
        let Some((author, _)) = author else {
            return self.add_person(old, new, date.map(|(line, _)| line));
        };
        if date.as_ref().is_some_and(|(line, _)| *line == author) {
            // `git log --format=raw`
            let person = new.author.as_ref().map_or_else(String::new, shown);
            let line = format!("author {person} {}", raw_date_text(new.date));
            self.replaced.insert(author, Some(line));
            return;
        }
        if let Some(person) = new.author.as_ref().filter(|_| old.author != new.author) {
            let line = self.layout.text[author].clone();
            let line = match self.layout.form {
                HeaderForm::Mercurial => format!("# User {}", shown(person)),
                HeaderForm::Dpatch => {
                    let name = line.split(" by ").next().unwrap_or_default();
                    format!("{name} by {}", shown(person))
                }
                _ => self.with_value(author, &shown(person)),
            };
            self.replaced.insert(author, Some(line));
            let field = self
                .layout
                .fields
                .iter()
                .find(|field| field.lines.start == author);
            for line in field.map_or(0..0, |field| field.lines.clone()).skip(1) {
                self.replaced.insert(line, None);
            }
        }
        if old.date == new.date {
            return;
        }
        match date {
            Some((line, _)) => {
                let text = match self.layout.form {
                    HeaderForm::Mercurial => format!(
                        "# Date {} {}",
                        new.date.seconds,
                        -60 * i64::from(new.date.offset_minutes)
                    ),
                    form => self.with_value(line, &self.date_value(form, line, new.date)),
                };
                self.replaced.insert(line, Some(text));
            }
            None => self.add(author + 1, &format!("Date: {}\n", date_text(new.date))),
        }
    }

    fn date_value(&self, form: HeaderForm, line: usize, date: Timestamp) -> String {
        let is_day = self.layout.text[line]
            .to_ascii_lowercase()
            .starts_with("last-update");
        match form {
            HeaderForm::GitLog => git_date_text(date),
            _ if is_day => day_text(date),
            _ => date_text(date),
        }
    }

    /// Returns the line of a field with another value.
    fn with_value(&self, line: usize, value: &str) -> String {
        let text = &self.layout.text[line];
        let name = field(text).map_or("From", |(name, _)| name);
        format!("{name}:{}{value}", self.separator(line, name))
    }

    /// Adds author and date to a header that names no author. Text without fields becomes a subject and its text.
    fn add_person(&mut self, old: &Message, new: &Message, date: Option<usize>) {
        let mut fields = author_fields(new);
        if new.author.is_none() || old.author == new.author {
            fields = format!("Date: {}\n", date_text(new.date));
        }
        if let Some(date) = date {
            self.replaced.insert(date, None);
        }
        let layout = &self.layout;
        let title = match layout.title {
            _ if layout.form == HeaderForm::Fields => None,
            Some(TitlePlace::Text(at)) => layout.message[at].line,
            _ => None,
        };
        match title {
            Some(line) => {
                let next = layout
                    .text
                    .get(line + 1)
                    .is_some_and(|next| !is_blank(next));
                let gap = if next { "\n" } else { "" };
                self.replaced
                    .insert(line, Some(format!("{fields}Subject: {}{gap}", new.title)));
            }
            None => self.add(
                layout
                    .fields
                    .first()
                    .map_or(layout.body, |field| field.lines.start),
                &fields,
            ),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let layout = &self.layout;
        let dos = layout
            .lines
            .first()
            .is_some_and(|line| line.ends_with(b"\r\n"));
        for at in 0..=layout.lines.len() {
            if let Some(text) = self.added.get(&at) {
                if out.last().is_some_and(|&last| last != b'\n') {
                    out.push(b'\n');
                }
                let text = if dos {
                    text.replace('\n', "\r\n")
                } else {
                    text.clone()
                };
                out.extend_from_slice(text.as_bytes());
            }
            let Some(line) = layout.lines.get(at) else {
                break;
            };
            match self.replaced.get(&at) {
                None => out.extend_from_slice(line),
                Some(None) => {}
                Some(Some(text)) => {
                    let end = line.len()
                        - line
                            .iter()
                            .rev()
                            .take_while(|b| matches!(b, b'\n' | b'\r'))
                            .count();
                    out.extend_from_slice(text.as_bytes());
                    out.extend_from_slice(&line[end..]);
                }
            }
        }
        out
    }
}

/// The lines of a message: each line with words is a token, and so is each run of blank lines.
struct Tokens<'a> {
    tokens: Vec<Token<'a>>,
}

struct Token<'a> {
    text: &'a str,
    lines: std::ops::Range<usize>,
}

impl<'a> Tokens<'a> {
    fn of(lines: impl Iterator<Item = &'a str>) -> Tokens<'a> {
        let mut tokens: Vec<Token<'_>> = Vec::new();
        for (at, line) in lines.enumerate() {
            let text = line.trim_end();
            match tokens.last_mut() {
                Some(last) if text.is_empty() && last.text.is_empty() => last.lines.end = at + 1,
                // Blank lines at the ends are no part of the text.
                None if text.is_empty() => {}
                _ => tokens.push(Token {
                    text,
                    lines: at..at + 1,
                }),
            }
        }
        tokens.pop_if(|last| last.text.is_empty());
        Tokens { tokens }
    }

    fn texts(&self) -> Vec<&'a str> {
        self.tokens.iter().map(|token| token.text).collect()
    }
}

/// Returns the tags at the begin of a subject, such as `[PATCH 1/4] `, which are kept.
fn tags(value: &str) -> &str {
    &value[..value.len() - super::header::without_tags(value).len()]
}

fn shown(person: &Person) -> String {
    if person.email.is_empty() {
        person.name.clone()
    } else {
        format!("{} <{}>", person.name, person.email)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::diff;
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
        Message::of_header(header.as_bytes(), "x.patch")
    }

    fn rewritten(header: &str, change: impl Fn(&mut Message)) -> String {
        let old = said(header);
        let mut new = old.clone();
        change(&mut new);
        let text = String::from_utf8(update_header(header.as_bytes(), &old, &new)).unwrap();
        // Comments that git drops stay in the header.
        assert!(said(&text).same(&new), "{text}\n{:?}", said(&text));
        text
    }

    const MAIL: &str = "From 12 Mon Sep 17 00:00:00 2001\nFrom: A B <a@b.c>\nDate: Mon, 3 Jun 2024 10:00:00 +0200\nX-Odd:  kept\nSubject: [PATCH 2/3] strings: grow\n by doubling\n\nWhy not.\n\nMore.\n---\n sql/x.cc | 2 +-\n\n";
    const DEP3: &str = "Description: guard the call\n It is usually empty.\n .\n Second part.\nAuthor: A B <a@b.c>\nForwarded: no\nLast-Update: 2024-06-03\n\n";
    const PROSE: &str = "\nMakes it faster.\n\nBy a lot.\n\n";

    #[test]
    fn a_title_is_no_part_of_a_line_without_an_end() {
        let header = b"Subject:  \t\nLate: Mon+-Au~h";
        let old = Message::of_header(header, "name");
        let mut new = old.clone();
        "another title".clone_into(&mut new.title);
        let written = update_header(header, &old, &new);
        assert!(Message::of_header(&written, "name").same(&new));
        let kept = String::from_utf8(written).unwrap();
        assert!(kept.contains("Late: Mon+-Au~h\n"), "{kept}");
    }

    #[test]
    fn commit_messages_are_taken_apart() {
        let (message, names) = Message::parse(
            "Title  \n\n\nBody\n\n\nmore\nPerfquilt-Patch: a.patch\n\nSecond title\n\nPerfquilt-Patch: b.patch\nPatch: D12\n",
            None,
            Timestamp::default(),
        );
        assert_eq!(message.title, "Title");
        assert_eq!(message.body, "Body\n\n\nmore\n\nSecond title\n\nPatch: D12");
        assert_eq!(names, ["a.patch", "b.patch"]);
        let (empty, names) = Message::parse("", None, Timestamp::default());
        assert_eq!((empty.title.as_str(), names.len()), ("", 0));
        // As for git, the first paragraph is the title.
        let (long, _) = Message::parse("One\n two\n\nBody\n", None, Timestamp::default());
        assert_eq!(
            (long.title.as_str(), long.body.as_str()),
            ("One two", "Body")
        );
    }

    #[test]
    fn only_names_of_patches_get_the_new_key() {
        let text = "T\n\nPatch: D12\nPatch: https://example.org/a.patch\nPatch: a.patch\n";
        let new = with_new_key(text, |name| name == "a.patch");
        assert_eq!(
            new,
            text.replace("Patch: a.patch", "Perfquilt-Patch: a.patch")
        );
        assert_eq!(
            Message::parse(&new, None, Timestamp::default()).1,
            ["a.patch"]
        );
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
    fn a_quoted_text_may_begin_with_its_title() {
        let title = "> --- a/x";
        let wanted = message(title, "> --- a/x\n---");
        let header = new_header(&wanted);
        assert!(
            Message::of_header(&header, title).same_text(&wanted),
            "{}",
            String::from_utf8_lossy(&header)
        );
    }

    #[test]
    fn only_the_title_changes() {
        let titled = |header: &str| rewritten(header, |m| m.title = "new".to_owned());
        assert_eq!(
            titled(MAIL),
            MAIL.replace("strings: grow\n by doubling", "new")
        );
        assert_eq!(titled(DEP3), DEP3.replace("guard the call", "new"));
        assert_eq!(titled(PROSE), "\nnew\n\nBy a lot.\n\n");
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
        assert_eq!(with_body(PROSE), "\nMakes it faster.\n\nx\n\nNote: y\n\n");
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
        assert!(text.starts_with("\nFrom: C D <c@d.e>\nDate: "), "{text}");
        assert!(rewritten("Subject: x\n\n", other).starts_with("From: C D"));
    }

    const HG: &str = "# HG changeset patch\n# User A Person <p@example.org>\n# Date 1717401600 -7200\n#      Mon Jun 03 10:00:00 2024 +0200\n# Node ID 0123\na: five\n\nLong words.\n\n";
    const DPATCH: &str = "#! /bin/sh /usr/share/dpatch/dpatch-run\n## 10_a.dpatch by A Person <p@example.org>\n##\n## DP: a: five\n## DP: Long words.\n\n@DPATCH@\n";
    const SHOW: &str = "commit 0123456789abcdef0123456789abcdef01234567 (HEAD -> main)\nAuthor:     A Person <p@example.org>\nAuthorDate: Mon Jun 3 10:00:00 2024 +0200\nCommit:     C <c@example.org>\nCommitDate: Tue Jun 4 10:00:00 2024 +0200\n\n    a: five\n    \n    Long words.\n\n";
    const STGIT: &str = "a: five\n\nFrom: A Person <p@example.org>\nDate: Mon, 3 Jun 2024 10:00:00 +0200\n\nLong words.\n---\n a | 2 +-\n\n";

    #[test]
    fn headers_of_other_programs_are_read_and_reworded() {
        for header in [HG, DPATCH, SHOW, STGIT] {
            let message = said(header);
            assert_eq!(
                (message.title.as_str(), message.body.as_str()),
                ("a: five", "Long words."),
                "{header}"
            );
            assert_eq!(
                message.author.as_ref().map(shown).as_deref(),
                Some("A Person <p@example.org>")
            );
            if header != DPATCH {
                assert_eq!(
                    (message.date.seconds, message.date.offset_minutes),
                    (1_717_401_600, 120),
                    "{header}"
                );
            }
            let titled = rewritten(header, |m| m.title = "b: six".to_owned());
            assert_eq!(titled, header.replace("a: five", "b: six"));
            let worded = rewritten(header, |m| m.body = "Long words.\nMore.".to_owned());
            let line = header
                .lines()
                .find(|line| line.ends_with("Long words."))
                .unwrap();
            let more = line.replace("Long words.", "More.");
            assert_eq!(worded, header.replace(line, &format!("{line}\n{more}")));
            let other = Some(Person {
                name: "C D".to_owned(),
                email: "c@d.e".to_owned(),
            });
            let by_other = rewritten(header, |m| m.author = other.clone());
            assert_eq!(
                by_other,
                header.replace("A Person <p@example.org>", "C D <c@d.e>")
            );
        }
        let later = rewritten(HG, |m| m.date.seconds += 1);
        assert_eq!(later, HG.replace("1717401600 -7200", "1717401601 -7200"));
        let later = rewritten(SHOW, |m| m.date.seconds += 1);
        assert_eq!(
            later,
            SHOW.replace(
                "AuthorDate: Mon Jun 3 10:00:00",
                "AuthorDate: Mon Jun 3 10:00:01"
            )
        );
    }

    #[test]
    fn text_that_looks_like_a_field_is_text() {
        for (header, title, body) in [
            (
                "innodb: reuse it\n\nWhy: so.\n",
                "innodb: reuse it",
                "Why: so.",
            ),
            (
                "From now on, reuse it\n\nWords.\n",
                "From now on, reuse it",
                "Words.",
            ),
            (
                "Date: handle leap seconds\n",
                "Date: handle leap seconds",
                "",
            ),
            ("Subject: net: fix: x\nnet: y\n\nz\n", "net: fix: x", "z"),
            ("\u{feff}Subject: five\n", "five", ""),
            ("# name : a.patch\n# by   : B\n\n", "x.patch", ""),
            (
                "# why\n\nfix it\n\n# 12 is the number\n",
                "fix it",
                "# 12 is the number",
            ),
            ("Signed-off-by: A <a@b.c>\n\n", "x.patch", ""),
        ] {
            let message = said(header);
            assert_eq!(
                (message.title.as_str(), message.body.as_str()),
                (title, body),
                "{header}"
            );
            rewritten(header, |m| m.title = "new".to_owned());
            rewritten(header, |m| m.body = "new\n\ntext".to_owned());
            rewritten(header, |m| {
                m.author = Some(Person {
                    name: "C".to_owned(),
                    email: "c@d".to_owned(),
                })
            });
        }
    }

    #[test]
    fn a_rewording_keeps_every_other_byte() {
        // Latin-1, tabs, folding and blanks at line ends are the author's.
        let bytes = |text: &str| -> Vec<u8> { text.chars().map(|c| c as u8).collect() };
        let mail = bytes(
            "From:  J\u{fc}rgen <j@b.c>\nSubject:\t[PATCH] f\u{fc}nf\nX: y \n\nGr\u{f6}\u{df}er.  \n\n\n\nOne.\nTwo.\n\nSigned-off-by: J\u{fc}rgen\n---\n a | 2\n\n",
        );
        let old = Message::of_header(&mail, "x");
        assert_eq!(old.title, "f\u{fc}nf");
        let mut new = old.clone();
        new.title = "five".to_owned();
        new.body = new.body.replace("One.", "1.").replace("\n\n\n", "\n");
        let replaced = |from: &[u8], to: &[u8], text: Vec<u8>| -> Vec<u8> {
            let at = text.windows(from.len()).position(|it| it == from).unwrap();
            [&text[..at], to, &text[at + from.len()..]].concat()
        };
        let wanted = replaced(b"f\xfcnf", b"five", replaced(b"One.", b"1.", mail.clone()));
        assert_eq!(update_header(&mail, &old, &new), wanted);
        let dep3 = "Description: short\n Long text.\n .\n  * a list\n    of things\nAuthor: A <a@b>\nBug-Debian: https://b/1\n\n";
        assert_eq!(said(dep3).body, "Long text.\n\n * a list\n   of things");
        let longer = rewritten(dep3, |m| m.body.push_str("\n\nThe end."));
        assert_eq!(
            longer,
            dep3.replace("of things\n", "of things\n .\n The end.\n")
        );
        let dos = "From: A <a@b>\r\nSubject: x\r\n\r\nOne.\r\n\r\n";
        let more = rewritten(dos, |m| m.body = "One.\nTwo.".to_owned());
        assert_eq!(more, dos.replace("One.\r\n", "One.\r\nTwo.\r\n"));
    }

    #[test]
    fn git_drops_comments_and_the_header_keeps_them() {
        let header = "Subject: x\n\nOne.\n# 2 is a comment\nThree.\n\n";
        let old = said(header);
        let mut new = old.clone();
        new.body = "One.\nThree.\nFour.".to_owned();
        let text = String::from_utf8(update_header(header.as_bytes(), &old, &new)).unwrap();
        assert_eq!(text, header.replace("Three.\n", "Three.\nFour.\n"));
    }

    #[test]
    fn a_squash_keeps_the_fields_of_all() {
        let one = "From: A <a@b>\nBug: 1\nSubject: one\n\nWords.\n\n";
        let two =
            "Description: two\nAuthor: C <c@d>\nBug: 2\nForwarded: no\nLast-Update: 2024-06-03\n\n";
        let three = "From: A <a@b>\nBug: 1\nSubject: three\n\n";
        let all = add_fields(one.as_bytes(), &[two.as_bytes(), three.as_bytes()]);
        let all = String::from_utf8(all).unwrap();
        let added = "Subject: one\nBug: 2\nForwarded: no\nAuthor: C <c@d>\n";
        assert_eq!(all, one.replace("Subject: one\n", added));
        assert_eq!(
            add_fields(one.as_bytes(), &[three.as_bytes()]),
            one.as_bytes()
        );
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
        assert_eq!(said(&String::from_utf8(header).unwrap()), message);
    }

    #[test]
    fn no_diff_is_found_in_a_message() {
        let hunk = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b";
        let indented: String = hunk.lines().map(|line| format!("    {line}\n")).collect();
        let context = "*** a/x\n--- b/x\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b";
        let mode = "  diff --git a/x b/x\n  old mode 100644\n  new mode 100755";
        let nested = hunk.replace("--- a/x", "- --- a/x");
        let quoted = hunk.replace("--- ", "> --- ").replace("+++", "> > +++");
        let quoted = format!("{quoted}\n{indented}    end");
        let texts = [
            hunk,
            indented.trim_end(),
            context,
            mode,
            nested.as_str(),
            quoted.as_str(),
        ];
        for text in texts {
            let message = message("t", &format!("see:\n{text}\nend"));
            let header = String::from_utf8(new_header(&message)).unwrap();
            let parsed = diff::parse(header.as_bytes(), 1, "").unwrap();
            assert!(parsed.files.is_empty(), "{header}");
            // The message comes back byte for byte.
            assert_eq!(said(&header), message, "{header}");
            let longer = rewritten(&header, |m| m.body.push_str("\nmore"));
            assert!(longer.ends_with("end\nmore\n\n"), "{longer}");
            let worded = rewritten("Subject: x\nBug: 1\n\nWords.\n\n", |m| {
                m.body.clone_from(&message.body)
            });
            assert!(worded.starts_with("Subject: x\nBug: 1\n"), "{worded}");
        }
        // Text without a diff stays as it is, and so do quotations of the author.
        for text in ["a\n+b\n-c\n    indented", "> diff --git a/x b/x\n> words"] {
            let header = new_header(&message("t", text));
            assert!(
                String::from_utf8(header)
                    .unwrap()
                    .ends_with(&format!("\n\n{text}\n\n"))
            );
        }
    }

    /// Lines that headers of every form have, some of them in the wrong place.
    fn header_line() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "",
            "",
            "words of a message",
            "net: fix: words",
            "Subject: [PATCH 1/2] a title",
            " folded",
            " .",
            "   indented more",
            "Description: a title",
            "From: A B <a@b.c>",
            "Author: A B <a@b.c>",
            "Date: Mon, 3 Jun 2024 10:00:00 +0200",
            "Last-Update: 2024-06-03",
            "Bug: 12",
            "Bug-Debian: https://b/12",
            "From 12 Mon Sep 17 00:00:00 2001",
            "From now on",
            "---",
            " a.c | 2 +-",
            "# a comment",
            "# HG changeset patch",
            "# User A B <a@b.c>",
            "# Date 1717401600 -7200",
            "## DP: words",
            "## 10_a.dpatch by A B <a@b.c>",
            "commit 0123456789abcdef",
            "AuthorDate: Mon Jun 3 10:00:00 2024 +0200",
            "    text of git show",
            "Signed-off-by: A B <a@b.c>",
            "    --- a/x",
            "    +++ b/x",
            "    @@ -1 +1 @@",
            "    -a",
            "    +b",
            "Patch: D12",
            "Perfquilt-Quoted: diffs",
            "> --- a/x",
            "\u{feff}Subject: x",
            "trailing blanks  ",
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn every_header_can_be_reworded(
            lines in prop::collection::vec(header_line(), 0..14),
            body in prop::collection::vec(header_line(), 0..6),
            change in 0..8_u8,
        ) {
            let header: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let old = said(&header);
            let mut new = old.clone();
            if change & 1 != 0 {
                new.title = "another title".to_owned();
            }
            if change & 2 != 0 {
                new.body = squeeze(body.iter().copied());
            }
            if change & 4 != 0 {
                new.author = Some(Person { name: "C D".to_owned(), email: "c@d.e".to_owned() });
                new.date.seconds += 86_400;
            }
            let written = String::from_utf8(update_header(header.as_bytes(), &old, &new)).unwrap();
            let read = said(&written);
            prop_assert!(read.same(&new), "{header}\n=>\n{written}\n{read:?}\n{new:?}");
            if change == 0 {
                prop_assert_eq!(written, header);
            }
        }

        #[test]
        fn every_message_comes_back(body in prop::collection::vec(header_line(), 0..9)) {
            let message = message("a title", &squeeze(body.iter().copied()));
            let header = new_header(&message);
            prop_assert_eq!(diff::header_length(&header), header.len());
            prop_assert!(said(std::str::from_utf8(&header).unwrap()).same(&message));
        }
    }
}
