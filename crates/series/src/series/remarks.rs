//! Text between the diffs of a patch file: remarks before a file's diff, and further mails. No program reads it, and a
//! patch that is written again keeps it.

use super::Patch;
use super::diff::{self, FileDiff, TextLine};
use super::layout::{is_commit_line, is_mailbox_line};
use super::quoting::{is_same_diff, quote_diffs, quote_lines};
use super::text::lines;
use super::write::compose;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::warning::Warning;

impl Patch {
    /// Checks that the patch does all that its file says. A file that fails applies without an error, because its
    /// faulty lines are ignored.
    ///
    /// # Errors
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series), with the line: the file is cut off, names files without a
    /// hunk, or ends with lines that the counts of the last hunk leave out.
    pub fn check_complete(&self) -> Result<()> {
        let names = self
            .rest
            .without_hunks
            .first()
            .map(|&line| self.no_hunk(line));
        let surplus = || self.rest.surplus.map(|line| self.ignored(line));
        self.cut_off_error()
            .or(names)
            .or_else(surplus)
            .map_or(Ok(()), Err)
    }

    /// Returns the error of a file that is cut off, if the last line shows that.
    pub fn cut_off_error(&self) -> Option<Error> {
        let cut = self.rest.cut_off?;
        let what = if cut.whole_line {
            "the patch ends after this line, in the middle of a diff"
        } else {
            "the patch ends in the middle of this line"
        };
        let error = Error::patch_syntax(what).at(&self.shown, cut.line);
        Some(error.hint(
            "was the rest cut off? get the whole patch; if nothing is missing, remove this line",
        ))
    }

    /// Returns the warning of an indented diff, which patch applies although git takes it for text.
    pub fn indented_diff(&self) -> Option<Warning> {
        let diff = self.files.iter().find(|diff| diff.indent > 0)?;
        let what = format!(
            "this indented diff changes {}: quilt and perfquilt apply it, and git reads it as part of the message",
            diff.shown_name()
        );
        let warning = Warning::indented_diff(what).at(&self.shown, diff.line);
        Some(warning.hint(
            "if it is a quotation, begin its lines with `> `; if not, remove the indentation",
        ))
    }

    /// Returns the warnings of changes that the patch only mentions.
    pub fn lacks(&self) -> Vec<Warning> {
        let binary = self.rest.without_content.first().map(|&line| {
            let what = "this binary file is not changed: its content is not in the patch";
            let warning = Warning::binary_without_content(what).at(&self.shown, line);
            warning.hint("make the patch with `git diff --binary`")
        });
        let announced = self.rest.announced.iter().take(10).map(|&line| {
            let what = "this line tells of a change that the patch does not have";
            let hint = "if it belongs to the patch, make that with `diff -ruN` or `git diff`";
            let warning = Warning::announced_change(what).at(&self.shown, line);
            warning.hint(hint)
        });
        binary.into_iter().chain(announced).collect()
    }

    /// Returns whether there is text between the diffs.
    pub fn has_text_between(&self) -> bool {
        self.rest
            .text
            .iter()
            .any(|text| text.before < self.files.len())
    }

    /// Returns the warnings of text between the diffs; `bytes` is the patch file.
    pub fn text_between(&self, bytes: &[u8]) -> Vec<Warning> {
        let lines = lines(bytes);
        let places = places(&self.rest.text, self.files.len(), &lines);
        let warnings = places.into_iter().map(|(line, kind)| {
            let warning = match kind {
                RemarkKind::Mail => Warning::several_commits(
                    "the message of another commit begins here, between the diffs; only the first one is the patch's header",
                )
                .hint("a rewritten patch keeps it; `perfquilt lint --split` makes one patch a commit"),
                RemarkKind::EndOfHeader => Warning::interrupted_header(
                    "the header seems to continue here: the diff before this line is part of the message, but is applied",
                )
                .hint("if it is a quotation, begin its lines with `> `"),
                RemarkKind::Text => Warning::text_between(
                    "text between the diffs, which no program reads",
                )
                .hint("a rewritten patch keeps it; the place for words is the header, before the first diff"),
            };
            warning.at(&self.shown, line)
        });
        warnings.collect()
    }

    /// Returns the error of file names without a hunk.
    pub fn no_hunk(&self, line: usize) -> Error {
        Error::names_only("no hunk follows these file names")
            .at(&self.shown, line)
            .hint("get the whole patch; if nothing is missing, remove the two lines of names")
    }

    /// Returns the error of a line that is ignored, although it looks like part of a hunk.
    pub fn ignored(&self, line: usize) -> Error {
        let what = "this line is ignored, although it looks like a part of the hunk before";
        Error::ignored_line(what)
            .at(&self.shown, line)
            .hint("check the counts in the hunk's `@@` line")
    }
}

/// A run of lines of text.
struct Remark {
    /// The names of the diffs after it, in order, as they are written.
    followers: Vec<Vec<u8>>,
    text: Vec<u8>,
}

/// Returns a patch file of `header` and the canonical `diff`, with the text between the diffs of `sources`, the patch
/// files that it replaces: each text before the diff of the same file, or after all diffs if there is none any more.
pub fn rewritten(sources: &[&[u8]], header: &[u8], diff: &[u8]) -> Vec<u8> {
    let remarks: Vec<Remark> = sources.iter().flat_map(|source| remarks(source)).collect();
    if remarks.is_empty() {
        return compose(header, diff);
    }
    let chunks = chunks(diff);
    let mut before: Vec<Vec<u8>> = vec![Vec::new(); chunks.len() + 1];
    for remark in &remarks {
        let place = remark.followers.iter().find_map(|name| {
            let is_of = |own: &[u8]| name == own || name.ends_with(&[b"/", own].concat());
            chunks
                .iter()
                .position(|(names, _)| names.iter().any(|own| is_of(own)))
        });
        // Text before the first diff would be a part of the header.
        let place = place.unwrap_or(chunks.len()).max(1).min(chunks.len());
        before[place].extend_from_slice(&remark.text);
    }
    let composed = |quote: &dyn Fn(&str) -> String| {
        let mut body = Vec::new();
        for (at, text) in before.iter().enumerate() {
            let quoted = std::str::from_utf8(text).map(quote);
            body.extend_from_slice(
                quoted
                    .as_ref()
                    .map_or(text.as_slice(), |text| text.as_bytes()),
            );
            body.extend_from_slice(chunks.get(at).map_or(&[], |(_, bytes)| bytes));
        }
        compose(header, &body)
    };
    let plain = compose(header, diff);
    let quotes: [&dyn Fn(&str) -> String; 2] = [&str::to_owned, &quote_diffs];
    let mut readings = quotes.into_iter().map(composed);
    readings
        .find(|bytes| is_same_diff(bytes, &plain))
        .unwrap_or_else(|| composed(&quote_lines))
}

/// The kind of a text between diffs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemarkKind {
    /// The mail or `git show` of another commit.
    Mail,
    /// The rest of the header, because a diff stands in its words.
    EndOfHeader,
    /// Other text.
    Text,
}

/// Returns the first line of each text between the diffs (not after the last one), counted from 1.
fn places(text: &[TextLine], diffs: usize, lines: &[&[u8]]) -> Vec<(usize, RemarkKind)> {
    let groups = text.chunk_by(|a, b| a.before == b.before);
    let between = groups.filter(|group| group[0].before < diffs);
    let found = between.filter_map(|group| {
        let group = without_signature(group, lines);
        let shown = |line: &TextLine| String::from_utf8_lossy(lines[line.line - 1]).into_owned();
        let begins_mail = |line: &TextLine| {
            let line = shown(line);
            is_mailbox_line(&line)
                || is_commit_line(line.trim_end())
                || line.starts_with("Subject: ")
                || line.starts_with("# HG changeset patch")
        };
        let kind = if let Some(mail) = group.iter().find(|line| begins_mail(line)) {
            return Some((mail.line, RemarkKind::Mail));
        } else if group.iter().any(|line| shown(line).trim_end() == "---") {
            RemarkKind::EndOfHeader
        } else {
            RemarkKind::Text
        };
        Some((group.first()?.line, kind))
    });
    found.collect()
}

/// Divides a patch file into its commits: the first one, and those whose message begins between the diffs.
pub fn commits_of(patch: &[u8]) -> Vec<&[u8]> {
    let Ok(parsed) = diff::parse_whole(patch, "") else {
        return vec![patch];
    };
    let lines = lines(patch);
    let mut found = Vec::new();
    let (mut start, mut line) = (0, 1);
    for (begin, kind) in places(&parsed.rest.text, parsed.files.len(), &lines) {
        if kind != RemarkKind::Mail {
            continue;
        }
        // The fields above the first one that tells a message.
        let is_field = |at: &usize| is_field_line(lines[begin - 1]) && is_field_line(lines[at - 1]);
        let begin = (line + 1..begin)
            .rev()
            .take_while(is_field)
            .last()
            .unwrap_or(begin);
        let length: usize = lines[line - 1..begin - 1]
            .iter()
            .map(|line| line.len())
            .sum();
        found.push(&patch[start..start + length]);
        (start, line) = (start + length, begin);
    }
    found.push(&patch[start..]);
    found
}

/// Returns whether a line is a field of a header, or goes on with one.
fn is_field_line(line: &[u8]) -> bool {
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let begins = name.len() < line.len() && name.first().is_some_and(u8::is_ascii_uppercase);
    begins && name.iter().all(is_name)
}

fn remarks(patch: &[u8]) -> Vec<Remark> {
    let Ok(parsed) = diff::parse_whole(patch, "") else {
        return Vec::new();
    };
    let lines = lines(patch);
    let mut found = Vec::new();
    for group in parsed.rest.text.chunk_by(|a, b| a.before == b.before) {
        let text = without_signature(group, &lines);
        let (Some(first), Some(last)) = (text.first(), text.last()) else {
            continue;
        };
        let is_text = |line: usize| text.iter().any(|text| text.line == line);
        let is_blank = |line: &usize| lines[line - 1].trim_ascii().is_empty();
        // Blank lines around the text and inside of it belong to it.
        let start = (1..first.line)
            .rev()
            .take_while(is_blank)
            .last()
            .unwrap_or(first.line);
        let end = (last.line + 1..=lines.len())
            .take_while(is_blank)
            .last()
            .unwrap_or(last.line);
        let kept = (start..=end).filter(|line| is_text(*line) || is_blank(line));
        let mut text: Vec<u8> = kept.flat_map(|line| lines[line - 1].to_vec()).collect();
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        let followers = parsed.files[first.before.min(parsed.files.len())..].iter();
        found.push(Remark {
            followers: followers.flat_map(FileDiff::names).cloned().collect(),
            text,
        });
    }
    found
}

/// Drops the signature that git writes at the end of a mail: `-- ` and its version.
fn without_signature<'t>(group: &'t [TextLine], lines: &[&[u8]]) -> &'t [TextLine] {
    let line = |text: &TextLine| lines[text.line - 1].trim_ascii_end();
    let is_version = |text: &[u8]| {
        text.first().is_some_and(u8::is_ascii_digit)
            && text.len() < 40
            && text.contains(&b'.')
            && !text.contains(&b' ')
    };
    match group {
        [dashes, version, rest @ ..] if line(dashes) == b"--" && is_version(line(version)) => rest,
        [dashes] if line(dashes) == b"--" => &[],
        _ => group,
    }
}

/// Splits a canonical diff into the diffs of files, each with the file's names.
fn chunks(diff: &[u8]) -> Vec<(Vec<Vec<u8>>, &[u8])> {
    let Ok(parsed) = diff::parse(diff, 1, "") else {
        return vec![(Vec::new(), diff)];
    };
    let mut starts: Vec<usize> = Vec::new();
    let mut offset = 0;
    let wanted: Vec<usize> = parsed.files.iter().map(|file| file.line).collect();
    for (at, line) in lines(diff).iter().enumerate() {
        if wanted.contains(&(at + 1)) {
            starts.push(offset);
        }
        offset += line.len();
    }
    let ends = starts.iter().skip(1).copied().chain([diff.len()]);
    let pieces = starts.iter().zip(ends).zip(&parsed.files);
    pieces
        .map(|((&start, end), file)| (file.names().cloned().collect(), &diff[start..end]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff_of(name: &str, text: &str) -> String {
        format!(
            "diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+{text}\n"
        )
    }

    fn kept(old: &str, header: &str, diff: &str) -> String {
        String::from_utf8(rewritten(
            &[old.as_bytes()],
            header.as_bytes(),
            diff.as_bytes(),
        ))
        .unwrap()
    }

    #[test]
    fn a_file_of_several_commits_is_divided_at_their_messages() {
        let diff = |name: &str| {
            format!(
                "diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-1\n+2\n"
            )
        };
        let (a, b, c) = (diff("a"), diff("b"), diff("c"));
        let sha = "0123456789012345678901234567890123456789";
        let first = format!(
            "From: A <a@example.org>\nSubject: first\n\n---\n{a}a remark\n{b}-- \n2.39.2\n\n"
        );
        let second = format!(
            "From {sha} Mon Sep 17 00:00:00 2001\nFrom: B <b@example.org>\nSubject: second\n\nWords: more.\n---\n{c}"
        );
        let third = format!("From: C <c@example.org>\nSubject: third\n\n{a}");
        let whole = [first.as_str(), &second, &third].concat();
        let parts: Vec<&str> = commits_of(whole.as_bytes())
            .into_iter()
            .map(|part| std::str::from_utf8(part).unwrap())
            .collect();
        assert_eq!(parts, [first.as_str(), &second, &third]);
        assert_eq!(commits_of(first.as_bytes()), [first.as_bytes()]);
    }

    #[test]
    fn text_stays_before_its_file() {
        let (a, b, c) = (diff_of("a", "x"), diff_of("b", "y"), diff_of("sub/c", "z"));
        let mail = "From 12 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: two\n\nReason.\n---\n b | 2 +-\n\n";
        let old =
            format!("Subject: one\n\n{a}-- \n2.39.5\n\n{mail}{b}\nRemark.\n\n{c}-- \n2.39.5\n");
        let new = kept(&old, "Subject: one\n\n", &format!("{a}{b}{c}"));
        assert_eq!(
            new,
            format!("Subject: one\n\n{a}\n{mail}{b}\nRemark.\n\n{c}")
        );
        // A patch's remark on a property is text from its first line on.
        let property = "Property changes on: a\n____\nAdded: svn:executable\n   + *\n\n";
        let with_property = kept(
            &format!("H\n\n{a}\n{property}{b}"),
            "H\n\n",
            &format!("{a}{b}"),
        );
        assert_eq!(with_property, format!("H\n\n{a}\n{property}{b}"));
        // The result keeps its form.
        assert_eq!(kept(&new, "Subject: one\n\n", &format!("{a}{b}{c}")), new);
        // Without its file, the text is kept after the diffs.
        let gone = kept(&old, "H\n\n", &format!("{a}{b}"));
        assert_eq!(gone, format!("H\n\n{a}\n{mail}{b}\nRemark.\n\n"));
        // Text of the first file would become a part of the header.
        let first = kept(&format!("{b}\nAbout a.\n{a}"), "", &format!("{a}{b}"));
        assert_eq!(first, format!("{a}\nAbout a.\n{b}"));
        let again = kept(&first, "", &format!("{a}{b}"));
        assert_eq!(again, first);
    }

    #[test]
    fn names_need_not_have_the_prefix_of_git() {
        let old = "--- x-1.0/a\n+++ x/a\n@@ -1 +1 @@\n-a\n+b\nWhy b.\nIndex: x/b\n=====\n--- x-1.0/b\n+++ x/b\n@@ -1 +1 @@\n-a\n+b\n";
        let (a, b) = (diff_of("a", "b"), diff_of("b", "b"));
        assert_eq!(kept(old, "", &format!("{a}{b}")), format!("{a}Why b.\n{b}"));
    }

    #[test]
    fn text_never_becomes_a_diff() {
        let (a, b) = (diff_of("a", "x"), diff_of("b", "y"));
        // Only in this place, the words are no names of files.
        let old = format!("{a}--- a/evil\n+++ b/evil\nwords\n{b}");
        let new = kept(&old, "", &format!("{a}{b}"));
        let parsed = diff::parse(new.as_bytes(), 1, "").unwrap();
        assert_eq!(parsed.files.len(), 2, "{new}");
        assert!(new.contains("words"), "{new}");
    }
}
