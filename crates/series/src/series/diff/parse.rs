//! Finding the diffs in a patch file by the rules of GNU patch 2.7 (`intuit_diff_type`), extended by git's headers.

use super::hunks::{LineError, is_ed_command, normal_command};
use super::lines::{LineFormat, PatchLines, unindent};
use super::names::{HeaderDate, HeaderName, fetch_name, git_name, git_names, moved_name};
use super::{Binary, DiffForm, FileDiff, LineChange, Presence, binary, context, hunks};
use crate::series::text::lines;
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
    /// Whether an indented diff is text, as for git.
    pub indented_is_text: bool,
}

impl Default for ParseOptions {
    fn default() -> Self {
        ParseOptions {
            strip: 1,
            binary: false,
            form: None,
            indented_is_text: false,
        }
    }
}

/// A parsed patch file.
#[derive(Debug, Clone, Default)]
pub struct ParsedPatch {
    /// The bytes before the first diff.
    pub header: Vec<u8>,
    /// The changed files in order.
    pub files: Vec<FileDiff>,
    /// Its further parts.
    pub rest: PatchRest,
}

/// The parts of a patch file besides its header and the applied diffs: text, and signs that something is missing.
/// Lines are counted from 1.
#[derive(Debug, Clone, Default)]
pub struct PatchRest {
    /// Lines that look like part of a hunk but are ignored, as in GNU patch.
    pub stray: Vec<usize>,
    /// Lines that report a differing binary file without its content; GNU patch ignores them.
    pub without_content: Vec<usize>,
    /// Lines that tell of a change which no diff has, such as a new file or a renamed one; GNU patch ignores them.
    pub announced: Vec<usize>,
    /// Lines that name the files of a text diff that has no hunk; GNU patch ignores them.
    pub without_hunks: Vec<usize>,
    /// Where the file is cut off, if its last line shows that.
    pub cut_off: Option<CutOff>,
    /// The first line after the last hunk, if it and all lines after it look like part of that hunk.
    pub surplus: Option<usize>,
    /// The lines of text after the header: between and after the diffs.
    pub text: Vec<TextLine>,
}

/// A line of text outside of the header and the diffs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLine {
    /// The line, counted from 1.
    pub line: usize,
    /// The index of the diff that follows it; the number of diffs for text after the last one.
    pub before: usize,
}

/// The place where a patch file is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutOff {
    /// The last line, counted from 1.
    pub line: usize,
    /// Whether that line has its end, and only the lines after it are missing.
    pub whole_line: bool,
}

/// Parses a patch file; `strip` is `-p`, `shown` the file's name in errors.
pub fn parse(bytes: &[u8], strip: usize, shown: &str) -> Result<ParsedPatch> {
    let options = ParseOptions {
        strip,
        ..ParseOptions::default()
    };
    parse_with(bytes, &options, shown)
}

/// Parses a patch file without knowing its `-pN`: names are whole, or lack the first component if they need their prefixes,
/// as those with blanks and without `---` lines do.
pub fn parse_whole(bytes: &[u8], shown: &str) -> Result<ParsedPatch> {
    parse(bytes, 0, shown).or_else(|_| parse(bytes, 1, shown))
}

/// Parses a patch file; `shown` is its name in errors.
pub fn parse_with(bytes: &[u8], options: &ParseOptions, shown: &str) -> Result<ParsedPatch> {
    if memchr::memchr_iter(b'\n', bytes).count() > LINE_LIMIT {
        return Err(
            Error::patch_too_large(format!("more than {LINE_LIMIT} lines")).at(shown, None),
        );
    }
    let mut parser = Parser {
        lines: PatchLines::new(bytes),
        options: *options,
        form: options.form,
        carriage_return: false,
        context_state: context::ContextState::default(),
        after_hunk: false,
        body_end: 0,
        room: binary::PATCH_LIMIT,
        parsed: ParsedPatch::default(),
    };
    parser
        .run()
        .map_err(|(line, error)| error.at(shown, line))?;
    let mut parsed = parser.parsed;
    let raw = parser.lines.raw();
    let end = header_end(raw, &parsed.files);
    parsed.rest.text.retain(|text| text.line > end);
    let header = &raw[..end];
    parsed.header = header.concat();
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
    let lines = lines(bytes);
    let mut end = header_end(&lines, &[]);
    if end == lines.len()
        && let Ok(parsed) = parse_whole(bytes, "")
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
    /// Index of the line after the last hunk or binary file.
    body_end: usize,
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
    /// Whether it began as git's combined diff of a merge.
    combined: bool,
    /// The last `--- ` line.
    old_line: Option<usize>,
    /// The last `+++ ` line that follows a `--- ` line.
    names_line: Option<usize>,
}

/// The element that begins at a line outside of hunks.
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
        self.parsed.rest.cut_off = self.cut_off();
        self.parsed.rest.surplus = self.surplus();
        let ignored = self.lines.is_truncated() && self.lines.at < self.lines.raw().len();
        if ignored && self.parsed.rest.cut_off.is_none() {
            self.parsed.rest.stray.push(self.lines.raw().len());
        }
        Ok(())
    }

    /// Returns the last line that is not blank if the rest of the file is missing: the line belongs to a diff that has
    /// to go on, or it has no end and begins like a line of a diff.
    fn cut_off(&self) -> Option<CutOff> {
        let raw = self.lines.raw();
        let last = raw.iter().rposition(|line| !line.trim_ascii().is_empty())?;
        if last < self.body_end || self.parsed.files.is_empty() {
            return None;
        }
        let whole_line = raw[last].ends_with(b"\n");
        let headers = git_headers(&raw[self.body_end..last + usize::from(whole_line)]);
        let unfinished = headers.is_some_and(|headers| self.is_unfinished(headers));
        let text = raw[last].trim_ascii_end();
        let before = raw[..last].last().copied().unwrap_or_default();
        let directly = last == self.body_end;
        let begins_hunk = text == b"@" || text.starts_with(b"@@") || text == b"***************";
        let begins_diff = starts_with_any(text, &[b"diff -", b"Index: "]);
        let cut = if whole_line {
            let after_begin = starts_with_any(before, &[b"diff -", b"Index: ", b"====="]);
            let old_name = text.starts_with(b"--- ") && (directly || after_begin);
            let new_name = text.starts_with(b"+++ ") && before.starts_with(b"--- ");
            begins_hunk || begins_diff || old_name || new_name
        } else if raw[last].starts_with(b"-- ") || matches!(text, b"-" | b"--") {
            // A mail's signature.
            false
        } else {
            let next_header =
                headers.is_some() && GIT_HEADERS.iter().any(|it| it.starts_with(text));
            let next_diff = directly && b"diff --git ".starts_with(text);
            let stray = directly && matches!(text.first(), Some(b'+' | b'-'));
            let names = starts_with_any(text, &[b"+++", b"---", b"***************"]);
            begins_hunk
                || begins_diff
                || next_header
                || next_diff
                || stray
                || names
                || self.assumes_lines()
        };
        (unfinished || cut).then_some(CutOff {
            line: last + 1,
            whole_line,
        })
    }

    /// Returns whether hunks or more headers have to follow the lines of git's headers.
    fn is_unfinished(&self, headers: &[&[u8]]) -> bool {
        let Some(last) = headers.last() else {
            return false;
        };
        if starts_with_any(last, &[b"rename to ", b"copy to "]) {
            let differs = |line: &&[u8]| {
                line.starts_with(b"similarity index ")
                    && !line.starts_with(b"similarity index 100%")
            };
            return headers.iter().any(differs);
        }
        if last.starts_with(b"index ") {
            let diff = self.parsed.files.last();
            return diff.is_some_and(|diff| {
                diff.before == Presence::Present || diff.after == Presence::Present
            });
        }
        let complete: [&[u8]; 3] = [b"new mode ", b"new file mode ", b"deleted file mode "];
        !starts_with_any(last, &complete)
    }

    /// Returns whether the last hunk lacks lines, which can then only be blank.
    fn assumes_lines(&self) -> bool {
        let diff = self.parsed.files.last();
        let hunk = diff.and_then(|diff| diff.hunks.last());
        hunk.is_some_and(|hunk| hunk.assumed > 0)
    }

    /// Returns the first line after the last hunk if it and all lines after it look like part of that hunk.
    fn surplus(&self) -> Option<usize> {
        if self.lines.is_truncated() {
            return None;
        }
        let rest = self.lines.raw().get(self.body_end..)?;
        let changes = rest.first()?.starts_with(b"+") || rest.first()?.starts_with(b"-");
        let all = rest
            .iter()
            .all(|line| is_stray(line) || line.trim_ascii().is_empty());
        (changes && all).then_some(self.body_end + 1)
    }

    /// Notes a line of text.
    fn text(&mut self, line: usize) {
        let before = self.parsed.files.len();
        self.parsed.rest.text.push(TextLine { line, before });
    }

    /// Takes the file names read so far as those of a diff without hunks. Before the first diff they are prose.
    fn leave_names(&mut self, head: &mut DiffHeaders) {
        let line = head.names_line.take();
        if head.extended || !self.parsed.files.is_empty() {
            self.parsed.rest.without_hunks.extend(line);
        }
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
                self.text(self.lines.at + 1);
                self.lines.at += 1;
                continue;
            }
            let (text, indent) = if self.options.indented_is_text {
                (line, 0)
            } else {
                unindent(line)
            };
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
                    // Lines that begin hunks are no text.
                    let hunks = self.lines.at;
                    while self
                        .parsed
                        .rest
                        .text
                        .pop_if(|text| text.line > hunks)
                        .is_some()
                    {}
                    head.diff.indent = line_format.indent;
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
        self.leave_names(&mut head);
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
                head.diff.indent = indent;
            }
        } else if self.after_hunk && is_stray(text) {
            self.parsed.rest.stray.push(number);
            self.text(number);
        } else if !text.trim_ascii().is_empty() {
            self.after_hunk = false;
            if !is_generated(text) {
                self.text(number);
            }
        }
        if starts_with_any(text, &[b"diff --cc ", b"diff --combined "]) {
            head.combined = true;
        } else if head.combined && text.starts_with(b"@@@ ") {
            return Err(combined_diff(number));
        }
        if text.starts_with(b"Property changes on: ") {
            // Subversion names the file of a changed property like that of a changed text.
            head.names_line = None;
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
        let by_git = head.diff.git;
        let fetch = |rest: &[u8]| {
            git_name(rest, strip, by_git).unwrap_or_else(|| fetch_name(rest, strip, true))
        };
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
            let fetched = fetch(rest);
            name(&mut head.diff.old, &mut head.old_date, fetched);
            self.carriage_return = cr;
            if head.old_line == Some(number - 1) {
                self.leave_names(head);
                head.names_line = Some(number);
            }
        } else if let Some(rest) = text.strip_prefix(b"Index:") {
            let fetched = fetch_name(rest, strip, false);
            head.diff.index = fetched.name.or(head.diff.index.take());
            self.carriage_return = cr;
        } else if let Some(rest) = text.strip_prefix(b"diff --git ") {
            self.leave_names(head);
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
                if names_binary(text) {
                    self.parsed.rest.without_content.push(number);
                } else if announces(text) {
                    self.parsed.rest.announced.push(number);
                }
                return Ok(None);
            };
            head.old_line = Some(number);
            let fetched = fetch(rest);
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
            if hunk
                .lines
                .iter()
                .all(|line| line.change == LineChange::Context)
            {
                return Err((
                    hunk.line,
                    Error::patch_syntax("a hunk that changes nothing"),
                ));
            }
            if form == DiffForm::Context
                && head.diff.hunks.is_empty()
                && hunk.after().next().is_none()
                && hunk.new_start == 1
            {
                head.diff.after = absence(head.new_date);
            }
            head.diff.hunks.push(hunk);
        }
        self.body_end = self.lines.at;
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
        self.body_end = self.lines.at;
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
                Error::patch_syntax(format!("no file name is left after -p{}", self.options.strip)).hint(
                    "the paths have fewer components than -p strips; use -p0 in `series` if they start at the tree's root",
                ),
            ));
        }
        self.parsed.files.push(diff);
        Ok(())
    }
}

fn combined_diff(line: usize) -> LineError {
    (
        line,
        Error::patch_unsupported("a combined diff of a merge, which no program can apply").hint(
            "make the patch against one parent: `git diff PARENT MERGE`, or `git show --first-parent MERGE`",
        ),
    )
}

fn ed_script(line: usize) -> LineError {
    (
        line,
        Error::patch_unsupported("an ed script, which is a program and not a diff").hint(
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
        set_moved(&mut diff.old, moved_name(rest, strip));
    } else if let Some(rest) = line.strip_prefix(b"rename to ") {
        head.renames.1 = true;
        set_moved(&mut diff.new, moved_name(rest, strip));
    } else if let Some(rest) = line.strip_prefix(b"copy from ") {
        head.copies.0 = true;
        set_moved(&mut diff.old, moved_name(rest, strip));
    } else if let Some(rest) = line.strip_prefix(b"copy to ") {
        head.copies.1 = true;
        set_moved(&mut diff.new, moved_name(rest, strip));
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

/// Sets the name of a rename or copy. The name on the line `diff --git` comes first, unless it lacks the blanks at the
/// end, which cannot be told from those between the names there.
fn set_moved(name: &mut Option<Vec<u8>>, moved: Option<Vec<u8>>) {
    if name.is_none() || moved.as_ref().is_some_and(|moved| moved.ends_with(b" ")) {
        *name = moved;
    }
}

/// Returns whether a line of a program tells of a change that its diff does not have.
fn announces(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let begins = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    // diff
    text.starts_with("Only in ") && text.contains(": ")
        || text.starts_with("File ") && text.contains(" while file ")
        // git
        || text.starts_with("Submodule ") && text.contains("..")
        // Subversion
        || begins(&["Added: ", "Deleted: ", "Modified: ", "Name: "])
            && (text.ends_with("svn:executable") || text.ends_with("svn:special"))
        // Bazaar, CVS and Perforce
        || begins(&["=== renamed file ", "=== added file ", "=== removed file "])
        || text.starts_with("=== ") && text.contains("(properties changed")
        || text.starts_with("cvs diff: ") && text.ends_with(" is a new entry, no comparison available")
        || text.starts_with("==== //") && text.trim_end().ends_with("====")
}

fn names_binary(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    line.starts_with(b"Binary files ") && line.ends_with(b" differ")
        || line == b"Cannot display: file marked as a binary type."
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
        0o160_000 => Err(Error::patch_unsupported("a change of a submodule")
            .hint("a patch changes files; put the submodule's files into the release")),
        _ => Err(Error::patch_unsupported(format!(
            "unsupported file mode {}",
            String::from_utf8_lossy(digits)
        ))
        .hint("allowed modes: 100644 (file), 100755 (executable) and 120000 (symbolic link)")),
    }
}

/// The beginnings of git's header lines.
const GIT_HEADERS: &[&[u8]] = &[
    b"diff --git ",
    b"old mode ",
    b"new mode ",
    b"deleted file mode ",
    b"new file mode ",
    b"similarity index ",
    b"dissimilarity index ",
    b"rename from ",
    b"rename to ",
    b"copy from ",
    b"copy to ",
    b"index ",
    b"--- ",
    b"+++ ",
];

/// Returns git's headers of a diff from `diff --git` on, if the lines end with them.
fn git_headers<'l, 'a>(lines: &'l [&'a [u8]]) -> Option<&'l [&'a [u8]]> {
    let begin = lines
        .iter()
        .rposition(|line| line.starts_with(b"diff --git "))?;
    let headers = &lines[begin..];
    let is_header = |line: &&[u8]| starts_with_any(line, GIT_HEADERS);
    headers.iter().all(is_header).then_some(headers)
}

fn starts_with_any(line: &[u8], beginnings: &[&[u8]]) -> bool {
    beginnings.iter().any(|begin| line.starts_with(begin))
}

/// Returns whether a line outside of hunks is written by a program that makes diffs.
fn is_generated(line: &[u8]) -> bool {
    const BEGINNINGS: &[&[u8]] = &[
        b"diff ",
        b"Only in ",
        b"Common subdirectories: ",
        b"=== ",
        b"====",
        b"Binary files ",
        b"RCS file: ",
        b"retrieving revision ",
        b"\\ No newline",
    ];
    starts_with_any(line, BEGINNINGS)
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

    const TWO_FILES: &str = "Subject: two\n\n---\n a | 4 ++--\n\n\
diff --git a/a b/a\nindex e8823e1..ee2016b 100644\n--- a/a\n+++ b/a\n\
@@ -7,5 +7,5 @@\n seven\n eight\n-nine\n+x\n ten\n eleven\n\
@@ -22,3 +22,3 @@ f()\n line\n-other\n+y\n end\n\
diff --git a/b.c b/b.c\nindex 1234567..89abcde 100644\n--- a/b.c\n+++ b/b.c\n\
@@ -1,2 +1,2 @@\n-one\n+two\n last\n-- \n2.39.5\n\n";

    #[test]
    fn a_cut_shows_wherever_it_is() {
        let text = TWO_FILES;
        let end = |part: &str| text.find(part).unwrap() + part.len();
        // Nothing shows that more hunks or more files followed.
        let boundaries = [end(" eleven\n"), end(" end\n")];
        for cut in 0..text.len() {
            let Ok(parsed) = parse(&text.as_bytes()[..cut], 1, "p") else {
                continue;
            };
            // Without any diff, the patch is refused anyway; where lines are assumed, it does not apply.
            let hunks = parsed.files.iter().flat_map(|diff| &diff.hunks);
            if parsed.files.is_empty() || hunks.clone().any(|hunk| hunk.assumed > 0) {
                continue;
            }
            let whole = cut >= end(" last\n") || boundaries.contains(&cut);
            let shows = parsed.rest.cut_off.is_some() || parsed.rest.surplus.is_some();
            assert_eq!(shows, !whole, "{:?}", &text[..cut]);
        }
    }

    #[test]
    fn whole_patches_show_no_cut() {
        let git = "diff --git a/f b/f\n";
        let hunk = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n";
        let binary = "GIT binary patch\nliteral 4\nLcmYdfNa6wj0#*Rd\n\nliteral 0\nHcmV?d00001\n\n";
        let cases = [
            format!("{git}old mode 100644\nnew mode 100755\n"),
            format!("{git}new file mode 100644\n"),
            format!("{git}new file mode 100644\nindex 0000000..e69de29\n"),
            format!("{git}deleted file mode 100644\nindex e69de29..0000000\n"),
            format!("{git}similarity index 100%\nrename from f\nrename to g\n"),
            format!("{git}similarity index 100%\ncopy from f\ncopy to g\n"),
            format!("{git}index 1234567..1a23e4b 100644\n{binary}"),
            format!("{git}index 1234567..89abcde 100644\nBinary files a/f and b/f differ\n"),
            hunk.to_owned(),
            format!("{git}index 1234567..89abcde 100644\n{hunk}"),
            hunk.replace("+ho\n", "+ho\n\\ No newline at end of file"),
            format!("Index: f\n=====\n{hunk}\nProperty changes on: f\n"),
            format!("{hunk}Index: g\n=====\n--- a/g\n+++ b/g\n\nProperty changes on: g\n"),
        ];
        let endings = [
            "",
            "\n",
            "-- \n2.39.5\n\n",
            "-- \n2.39.5",
            "--",
            "\nThe text after it.\n- a remark\n",
        ];
        for case in &cases {
            for ending in endings {
                if !case.ends_with('\n') && !ending.is_empty() {
                    continue;
                }
                let text = format!("Subject: x\n\n{case}{ending}");
                let parsed = parse(text.as_bytes(), 1, "p").unwrap();
                assert_eq!(parsed.rest.cut_off, None, "{text:?}");
                assert_eq!(parsed.rest.surplus, None, "{text:?}");
                assert!(parsed.rest.without_hunks.is_empty(), "{text:?}");
            }
        }
    }

    #[test]
    fn names_without_a_hunk_are_found_in_the_middle_too() {
        let parsed = |text: &str| parse(text.as_bytes(), 1, "p").unwrap();
        let hunk = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n";
        let git = "diff --git a/g b/g\nindex 1234567..89abcde 100644\n--- a/g\n+++ b/g\n";
        assert_eq!(
            parsed(&format!("{git}diff --git a/f b/f\n{hunk}"))
                .rest
                .without_hunks,
            [4]
        );
        assert_eq!(
            parsed(&format!("{hunk}--- a/g\n+++ b/g\n{hunk}"))
                .rest
                .without_hunks,
            [7]
        );
        // In a header they are prose.
        assert!(
            parsed(&format!("see\n--- a/g\n+++ b/g\n\n{hunk}"))
                .rest
                .without_hunks
                .is_empty()
        );
        assert_eq!(
            parsed(&format!("{hunk}+more\n context\n")).rest.surplus,
            Some(6)
        );
    }
}
