//! Finding the diffs in a patch file by the rules of GNU patch 2.7 (`intuit_diff_type`), extended by git's headers.

use super::hunks::{LineError, is_ed_command, normal_command};
use super::lines::{LineFormat, PatchLines, split, unindent};
use super::names::{HeaderDate, HeaderName, fetch_name, git_names, moved_name};
use super::{Binary, DiffForm, FileDiff, Presence, binary, context, hunks};
use perfquilt_model::error::{Error, Result};

/// Maximum number of lines of a patch file. Each line takes much more memory than its bytes.
const LINE_LIMIT: usize = 4_000_000;

/// Options for parsing a patch file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseOptions {
    /// `-p`: number of leading components to strip from paths.
    pub strip: usize,
    /// `--binary`: keep CR LF line ends of the patch file.
    pub binary: bool,
    /// `-u`, `-c`, `-n`: the format of the first diff; `None` detects it.
    pub form: Option<DiffForm>,
}

impl Default for ParseOptions {
    fn default() -> Self {
        ParseOptions {
            strip: 1,
            binary: false,
            form: None,
        }
    }
}

/// A parsed patch file.
#[derive(Debug, Clone, Default)]
pub struct ParsedPatch {
    /// The text before the first diff.
    pub header: String,
    /// The changed files in order.
    pub files: Vec<FileDiff>,
    /// Lines that look like part of a hunk but are ignored, as in GNU patch.
    pub stray: Vec<usize>,
    /// Lines that report a differing binary file without its content; GNU patch ignores them.
    pub without_content: Vec<usize>,
}

/// Parses a patch file; `strip` is `-p`, `shown` the file's name in errors.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) under the conditions of [`parse_with`].
pub fn parse(bytes: &[u8], strip: usize, shown: &str) -> Result<ParsedPatch> {
    let options = ParseOptions {
        strip,
        ..ParseOptions::default()
    };
    parse_with(bytes, &options, shown)
}

/// Parses a patch file; `shown` is its name in errors.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) with file and line for malformed hunks, unsupported formats
/// and file modes, and for patches that are too large.
pub fn parse_with(bytes: &[u8], options: &ParseOptions, shown: &str) -> Result<ParsedPatch> {
    if memchr::memchr_iter(b'\n', bytes).count() > LINE_LIMIT {
        return Err(Error::series(format!("more than {LINE_LIMIT} lines")).at(shown, None));
    }
    let mut parser = Parser {
        lines: PatchLines::new(bytes),
        options: *options,
        form: options.form,
        carriage_return: false,
        context_state: context::ContextState::default(),
        after_hunk: false,
        room: binary::PATCH_LIMIT,
        parsed: ParsedPatch::default(),
    };
    parser
        .run()
        .map_err(|(line, error)| error.at(shown, line))?;
    let mut parsed = parser.parsed;
    let raw = parser.lines.raw();
    let header = &raw[..header_end(raw, &parsed.files)];
    parsed.header = String::from_utf8_lossy(&header.concat()).into_owned();
    Ok(parsed)
}

/// Returns whether a diff begins at line `at` and ends the header: `diff -`, `Index:`, or `---` or `***` followed by
/// its counterpart.
fn begins_diff(lines: &[&[u8]], at: usize) -> bool {
    let line = lines[at];
    let next = lines.get(at + 1).copied().unwrap_or_default();
    line.starts_with(b"diff -")
        || line.starts_with(b"Index: ")
        || (line.starts_with(b"--- ") && next.starts_with(b"+++ "))
        || (line.starts_with(b"*** ") && next.starts_with(b"--- "))
}

/// Returns the index of the line where the first diff begins, or the number of lines. `files` are the parsed diffs,
/// which may begin in an unusual way: indented, or with only one of two lines.
fn header_end(lines: &[&[u8]], files: &[FileDiff]) -> usize {
    let usual = (0..lines.len()).find(|&at| begins_diff(lines, at));
    let found = files.first().map(|diff| diff.line.saturating_sub(1));
    usual.or(found).unwrap_or(lines.len())
}

/// Returns the length of a patch file's header in bytes: the whole file if it has no diff.
pub fn header_length(bytes: &[u8]) -> usize {
    let lines = split(bytes);
    let mut end = header_end(&lines, &[]);
    if end == lines.len()
        && let Ok(parsed) = parse(bytes, 0, "")
    {
        end = header_end(&lines, &parsed.files);
    }
    lines[..end].iter().map(|line| line.len()).sum()
}

struct Parser<'a> {
    lines: PatchLines<'a>,
    options: ParseOptions,
    /// The format that the next diff must have.
    form: Option<DiffForm>,
    /// Whether the last header line ended in CR LF.
    carriage_return: bool,
    context_state: context::ContextState,
    after_hunk: bool,
    /// Number of bytes that further binary files may have.
    room: usize,
    parsed: ParsedPatch,
}

/// The headers of a diff read so far. The names of a unified diff are swapped until its first hunk is found, because
/// `---` names the new file of a context diff.
#[derive(Default)]
struct DiffHeaders {
    diff: FileDiff,
    old_date: HeaderDate,
    new_date: HeaderDate,
    /// Whether any line named a file.
    named: bool,
    /// Whether a git header has an effect without hunks.
    extended: bool,
    nesting: usize,
    renames: (bool, bool),
    copies: (bool, bool),
    /// The first line that looks like a command of ed or of a normal diff, and whether it is one of ed.
    command: Option<(usize, bool)>,
}

/// What begins at a line outside of hunks.
enum HeaderLine {
    Other,
    Hunks(DiffForm, LineFormat),
    GitBinary,
    /// The headers of another diff; the current one has no hunks.
    NextGit,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<(), LineError> {
        while let Some((head, form, line_format)) = self.headers()? {
            self.diff(head, form, &line_format)?;
            self.form = None;
        }
        if self.lines.is_truncated() && self.lines.at < self.lines.raw().len() {
            self.parsed.stray.push(self.lines.raw().len());
        }
        Ok(())
    }

    /// Reads the headers of the next diff up to its first hunk.
    fn headers(
        &mut self,
    ) -> Result<Option<(DiffHeaders, Option<DiffForm>, LineFormat)>, LineError> {
        let mut head = DiffHeaders::default();
        let mut command = false;
        let mut stars: Option<usize> = None;
        if self.form == Some(DiffForm::Normal) {
            head.named = true;
        }
        let mut previous = self.lines.at;
        while let Some(line) = self.lines.whole(self.lines.at) {
            if line.first() == Some(&b'#') {
                self.lines.at += 1;
                continue;
            }
            let (text, indent) = unindent(line);
            let was_command = command;
            if text.first().is_some_and(u8::is_ascii_digit)
                && let Some(is) = normal_command(text)
            {
                command = is;
            }
            if head.named && head.command.is_none() && (command || is_ed_command(text)) {
                head.command = Some((self.lines.at + 1, is_ed_command(text)));
            }
            let begins = self.header_line(&mut head, text, indent, stars, was_command)?;
            if head.named {
                stars = text.starts_with(b"********").then_some(indent);
            }
            match begins {
                HeaderLine::Other => {
                    previous = self.lines.at;
                    self.lines.at += 1;
                }
                HeaderLine::Hunks(form, line_format) => {
                    if form != DiffForm::Unified {
                        self.lines.at = previous;
                    }
                    return Ok(Some((head, Some(form), line_format)));
                }
                HeaderLine::GitBinary => {
                    self.git_binary(&mut head)?;
                    return Ok(Some((head, None, LineFormat::default())));
                }
                HeaderLine::NextGit => return Ok(Some((head, None, LineFormat::default()))),
            }
        }
        if let Some((line, true)) = head.command {
            return Err(ed_script(line));
        }
        Ok(head.extended.then(|| (head, None, LineFormat::default())))
    }

    fn header_line(
        &mut self,
        head: &mut DiffHeaders,
        text: &'a [u8],
        indent: usize,
        stars: Option<usize>,
        was_command: bool,
    ) -> Result<HeaderLine, LineError> {
        let number = self.lines.at + 1;
        let cr = text.ends_with(b"\r");
        let known = self.known_line(head, text, stars.is_some(), number)?;
        if matches!(known, Some(HeaderLine::GitBinary | HeaderLine::NextGit)) {
            return Ok(known.unwrap_or(HeaderLine::Other));
        }
        if known.is_some() {
            self.after_hunk = false;
            if head.diff.line == 0 {
                head.diff.line = number;
            }
        } else if self.after_hunk && is_stray(text) {
            self.parsed.stray.push(number);
        } else if !text.trim_ascii().is_empty() {
            self.after_hunk = false;
        }
        if !head.named {
            return Ok(HeaderLine::Other);
        }
        if text == b"."
            && let Some((line, _)) = head.command
            && self.form.is_none()
        {
            return Err(ed_script(line));
        }
        let may_be = |form: DiffForm| self.form.is_none_or(|wanted| wanted == form);
        let line_format = |cr: bool| LineFormat {
            indent,
            nesting: head.nesting,
            carriage_return: cr && !self.options.binary,
        };
        if may_be(DiffForm::Unified) && text.starts_with(b"@@ -") {
            let line_format = line_format(self.carriage_return);
            std::mem::swap(&mut head.old_date, &mut head.new_date);
            std::mem::swap(&mut head.diff.old, &mut head.diff.new);
            presence_from_range(head, text);
            return Ok(HeaderLine::Hunks(DiffForm::Unified, line_format));
        }
        if may_be(DiffForm::Context) && stars == Some(indent) && text.starts_with(b"*** ") {
            self.carriage_return = cr;
            let line_format = line_format(cr);
            if zero(&text[4..]) {
                head.diff.before = absence(head.old_date);
            }
            self.context_state.new_style = text.trim_ascii_end().ends_with(b"*");
            return Ok(HeaderLine::Hunks(DiffForm::Context, line_format));
        }
        if may_be(DiffForm::Normal)
            && was_command
            && (text.starts_with(b"< ") || text.starts_with(b"> "))
        {
            let line_format = line_format(self.carriage_return);
            return Ok(HeaderLine::Hunks(DiffForm::Normal, line_format));
        }
        Ok(HeaderLine::Other)
    }

    /// Reads a line of a diff's headers; `None` if it is not one.
    fn known_line(
        &mut self,
        head: &mut DiffHeaders,
        text: &'a [u8],
        after_stars: bool,
        number: usize,
    ) -> Result<Option<HeaderLine>, LineError> {
        let strip = self.options.strip;
        let cr = text.ends_with(b"\r");
        let name = |target: &mut Option<Vec<u8>>, date: &mut HeaderDate, fetched: HeaderName| {
            if let Some(name) = fetched.name {
                *target = Some(name);
            }
            if let Some(said) = fetched.date {
                *date = said;
            }
        };
        if !after_stars && let Some(rest) = text.strip_prefix(b"*** ") {
            let fetched = fetch_name(rest, strip, true);
            name(&mut head.diff.old, &mut head.old_date, fetched);
        } else if let Some(rest) = text.strip_prefix(b"+++ ") {
            let fetched = fetch_name(rest, strip, true);
            name(&mut head.diff.old, &mut head.old_date, fetched);
            self.carriage_return = cr;
        } else if let Some(rest) = text.strip_prefix(b"Index:") {
            let fetched = fetch_name(rest, strip, false);
            head.diff.index = fetched.name.or(head.diff.index.take());
            self.carriage_return = cr;
        } else if let Some(rest) = text.strip_prefix(b"diff --git ") {
            if head.extended {
                return Ok(Some(HeaderLine::NextGit));
            }
            head.diff.git = true;
            (head.diff.old, head.diff.new) = match git_names(rest, strip) {
                Some((old, new)) => (Some(old), Some(new)),
                None => (None, None),
            };
        } else if head.diff.git && text.starts_with(b"GIT binary patch") {
            return Ok(Some(HeaderLine::GitBinary));
        } else if head.diff.git && git_line(head, text, number, strip)? {
        } else {
            let mut inner = text;
            let mut nesting = 0;
            while let Some(rest) = inner.strip_prefix(b"- ") {
                inner = rest;
                nesting += 1;
            }
            let Some(rest) = inner.strip_prefix(b"--- ") else {
                if head.diff.git && names_binary(text) {
                    self.parsed.without_content.push(number);
                }
                return Ok(None);
            };
            let fetched = fetch_name(rest, strip, true);
            let dated = matches!(fetched.date, Some(HeaderDate::Epoch | HeaderDate::Other));
            let mut date = HeaderDate::None;
            name(&mut head.diff.new, &mut date, fetched);
            if dated {
                head.new_date = date;
                head.nesting = nesting;
            }
            self.carriage_return = cr;
        }
        head.named = true;
        Ok(Some(HeaderLine::Other))
    }

    /// Reads the hunks of the diff with the headers `head`.
    fn diff(
        &mut self,
        mut head: DiffHeaders,
        form: Option<DiffForm>,
        line_format: &LineFormat,
    ) -> Result<(), LineError> {
        let Some(form) = form else {
            return self.push(head);
        };
        head.diff.form = form;
        loop {
            let hunk = match form {
                DiffForm::Unified => hunks::unified(&mut self.lines, line_format)?,
                DiffForm::Context => {
                    context::context(&mut self.lines, line_format, &mut self.context_state)?
                }
                DiffForm::Normal => hunks::normal(&mut self.lines, line_format)?,
            };
            let Some(hunk) = hunk else { break };
            if form == DiffForm::Context
                && head.diff.hunks.is_empty()
                && hunk.after().next().is_none()
                && hunk.new_start == 1
            {
                head.diff.after = absence(head.new_date);
            }
            head.diff.hunks.push(hunk);
        }
        self.after_hunk = true;
        self.push(head)
    }

    fn git_binary(&mut self, head: &mut DiffHeaders) -> Result<(), LineError> {
        let at = self.lines.at;
        let (binary, used) = Binary::parse(&self.lines.raw()[at + 1..], self.room)
            .map_err(|(offset, error)| (at + 2 + offset, error))?;
        self.room -= binary.size();
        head.diff.binary = Some(binary);
        self.lines.at = at + 1 + used;
        self.after_hunk = false;
        Ok(())
    }

    fn push(&mut self, head: DiffHeaders) -> Result<(), LineError> {
        let DiffHeaders {
            mut diff,
            renames,
            copies,
            ..
        } = head;
        diff.rename = renames.0 && renames.1;
        diff.copy = copies.0 && copies.1;
        if diff.old.is_none() && diff.new.is_none() && diff.index.is_none() {
            return Err((
                diff.line.max(1),
                Error::series(format!("no file name is left after -p{}", self.options.strip)).hint(
                    "the paths have fewer components than -p strips; use -p0 in `series` if they start at the tree's root",
                ),
            ));
        }
        self.parsed.files.push(diff);
        Ok(())
    }
}

fn ed_script(line: usize) -> LineError {
    (
        line,
        Error::series("an ed script, which is a program and not a diff").hint(
            "apply it with `patch` and write the change again with `quilt refresh` or `git diff`",
        ),
    )
}

/// Returns whether the number at the front is 0.
fn zero(text: &[u8]) -> bool {
    text.first() == Some(&b'0') && !text.get(1).is_some_and(u8::is_ascii_digit)
}

fn absence(date: HeaderDate) -> Presence {
    match date {
        HeaderDate::Epoch => Presence::Absent,
        _ => Presence::EmptyOrAbsent,
    }
}

/// Derives from a range such as `@@ -0,0 +1,3 @@` whether the file exists before and after the change.
fn presence_from_range(head: &mut DiffHeaders, line: &[u8]) {
    let range = &line[4..];
    if zero(range) {
        head.diff.before = absence(head.old_date);
    }
    let rest = &range[range.iter().position(|&b| b == b' ').unwrap_or(range.len())..];
    let rest = rest.trim_ascii_start();
    if rest.strip_prefix(b"+").is_some_and(zero) {
        head.diff.after = absence(head.new_date);
    }
}

/// Reads one of git's extended header lines; returns whether it is one.
fn git_line(
    head: &mut DiffHeaders,
    line: &[u8],
    number: usize,
    strip: usize,
) -> Result<bool, LineError> {
    let diff = &mut head.diff;
    let mode = |digits: &[u8]| parse_mode(digits).map_err(|error| (number, error));
    if let Some(rest) = line.strip_prefix(b"old mode ") {
        diff.old_mode = mode(rest)?;
    } else if let Some(rest) = line.strip_prefix(b"new mode ") {
        diff.new_mode = mode(rest)?;
    } else if let Some(rest) = line.strip_prefix(b"deleted file mode ") {
        diff.old_mode = mode(rest)?;
        diff.after = Presence::Absent;
    } else if let Some(rest) = line.strip_prefix(b"new file mode ") {
        diff.new_mode = mode(rest)?;
        diff.before = Presence::Absent;
    } else if let Some(rest) = line.strip_prefix(b"rename from ") {
        head.renames.0 = true;
        diff.old = diff.old.take().or_else(|| moved_name(rest, strip));
    } else if let Some(rest) = line.strip_prefix(b"rename to ") {
        head.renames.1 = true;
        diff.new = diff.new.take().or_else(|| moved_name(rest, strip));
    } else if let Some(rest) = line.strip_prefix(b"copy from ") {
        head.copies.0 = true;
        diff.old = diff.old.take().or_else(|| moved_name(rest, strip));
    } else if let Some(rest) = line.strip_prefix(b"copy to ") {
        head.copies.1 = true;
        diff.new = diff.new.take().or_else(|| moved_name(rest, strip));
    } else if let Some(rest) = line.strip_prefix(b"index ") {
        return index_line(head, rest, number);
    } else {
        return Ok(
            line.starts_with(b"similarity index ") || line.starts_with(b"dissimilarity index ")
        );
    }
    head.extended = true;
    Ok(true)
}

fn names_binary(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    line.starts_with(b"Binary files ") && line.ends_with(b" differ")
}

fn index_line(head: &mut DiffHeaders, rest: &[u8], number: usize) -> Result<bool, LineError> {
    let rest = String::from_utf8_lossy(rest);
    let hex = |text: &str| -> usize {
        text.bytes()
            .take_while(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            .count()
    };
    let (old, rest) = rest.split_at(hex(&rest));
    let Some(rest) = rest.strip_prefix("..").filter(|_| !old.is_empty()) else {
        return Ok(false);
    };
    let (new, rest) = rest.split_at(hex(rest));
    if new.is_empty() || !(rest.is_empty() || rest.starts_with([' ', '\t', '\r'])) {
        return Ok(false);
    }
    const EMPTY: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
    let presence = |name: &str| {
        if name.bytes().all(|b| b == b'0') {
            Presence::Absent
        } else if EMPTY.starts_with(name) {
            Presence::EmptyOrAbsent
        } else {
            Presence::Present
        }
    };
    head.diff.before = presence(old);
    head.diff.after = presence(new);
    if !rest.trim_ascii().is_empty() {
        let mode = parse_mode(rest.as_bytes()).map_err(|error| (number, error))?;
        head.diff.old_mode = mode;
        head.diff.new_mode = mode;
    }
    head.diff.objects =
        (old.len() == 40 && new.len() == 40).then(|| (old.to_owned(), new.to_owned()));
    head.extended = true;
    Ok(true)
}

/// Parses git's mode of a file or symbolic link. It ignores permission bits other than the owner's execute bit, which
/// trees do not store. Returns `None` for text that GNU patch does not accept as a mode.
fn parse_mode(text: &[u8]) -> Result<Option<u32>> {
    let text = text.trim_ascii_start();
    let digits = text.strip_suffix(b"\r").unwrap_or(text);
    let octal = digits.len() == 6 && digits.iter().all(|b| matches!(b, b'0'..=b'7'));
    if !octal {
        return Ok(None);
    }
    let mode = digits
        .iter()
        .fold(0_u32, |mode, digit| mode * 8 + u32::from(digit - b'0'));
    match mode {
        0 => Ok(None),
        0o120_000 => Ok(Some(0o120_000)),
        mode if mode & !0o777 == 0o120_000 => Ok(Some(0o120_000)),
        mode if mode & !0o777 == 0o100_000 => Ok(Some(if mode & 0o100 != 0 {
            0o100_755
        } else {
            0o100_644
        })),
        0o160_000 => Err(Error::series("a change of a submodule")
            .hint("a patch changes files; put the submodule's files into the release")),
        _ => Err(Error::series(format!(
            "unsupported file mode {}",
            String::from_utf8_lossy(digits)
        ))
        .hint("allowed modes: 100644 (file), 100755 (executable) and 120000 (symbolic link)")),
    }
}

/// Returns whether a line after a hunk looks like one of its lines.
fn is_stray(line: &[u8]) -> bool {
    match line.first() {
        Some(b'+' | b' ') => true,
        // `-- ` begins a mail's signature.
        Some(b'-') => !line.starts_with(b"-- ") && line.trim_ascii_end() != b"--",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_may_not_have_any_number_of_lines() {
        let text = format!(
            "--- a/f\n+++ b/f\n@@ -0,0 +1,{LINE_LIMIT} @@\n{}",
            "+\n".repeat(LINE_LIMIT)
        );
        let error = parse(text.as_bytes(), 1, "p").unwrap_err();
        assert_eq!(error.to_string(), "p: more than 4000000 lines");
    }
}
