//! Finding the diffs in a patch file, by the rules of GNU patch (`intuit_diff_type` of its version
//! 2.7), with what git adds to them.

use super::hunks::{Fault, is_ed_command, normal_command};
use super::lines::{Dress, Lines, split, unindent};
use super::names::{Fetched, Stamp, fetch_name, git_names, moved_name};
use super::{Binary, FileDiff, Form, Presence, binary, context, hunks};
use perfquilt_model::error::{Error, Result};

/// Most lines that a patch file may have: each takes much more memory than its bytes.
const LINES: usize = 4_000_000;

/// How a patch file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `-p`: how many leading components are taken off paths.
    pub strip: usize,
    /// `--binary`: CR LF in the patch file is meant.
    pub binary: bool,
    /// `-u`, `-c`, `-n`: the form of the first diff, whatever it looks like.
    pub form: Option<Form>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            strip: 1,
            binary: false,
            form: None,
        }
    }
}

/// A parsed patch file.
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    /// What stands before the first diff.
    pub header: String,
    /// The changed files in order.
    pub files: Vec<FileDiff>,
    /// Lines that look as if they belonged to a hunk but are ignored, as patch ignores them.
    pub stray: Vec<usize>,
    /// Lines that say that a binary file differs, but not how; patch ignores them.
    pub without_content: Vec<usize>,
}

/// Parses a patch file; `strip` is `-p`, `shown` the file's name in errors.
///
/// # Errors
/// As [`parse_with`].
pub fn parse(bytes: &[u8], strip: usize, shown: &str) -> Result<Parsed> {
    let options = Options {
        strip,
        ..Options::default()
    };
    parse_with(bytes, &options, shown)
}

/// Parses a patch file; `shown` is its name in errors.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) with file and line for malformed hunks, forms that are
/// not supported and odd modes, and for patches that are too large.
pub fn parse_with(bytes: &[u8], options: &Options, shown: &str) -> Result<Parsed> {
    if memchr::memchr_iter(b'\n', bytes).count() > LINES {
        return Err(Error::series(format!("more than {LINES} lines")).at(shown, None));
    }
    let mut parser = Parser {
        lines: Lines::new(bytes),
        options: *options,
        form: options.form,
        carriage_return: false,
        memory: context::Memory::default(),
        after_hunk: false,
        room: binary::TOTAL,
        parsed: Parsed::default(),
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

/// Where a header ends: the first `diff -`, `Index:` or `---`/`***` with its partner.
fn begins_diff(lines: &[&[u8]], at: usize) -> bool {
    let line = lines[at];
    let next = lines.get(at + 1).copied().unwrap_or_default();
    line.starts_with(b"diff -")
        || line.starts_with(b"Index: ")
        || (line.starts_with(b"--- ") && next.starts_with(b"+++ "))
        || (line.starts_with(b"*** ") && next.starts_with(b"--- "))
}

/// The index of the line where the first diff begins, or the number of lines; `files` are the diffs
/// found. They may begin in an unusual way: indented, or with one of two lines only.
fn header_end(lines: &[&[u8]], files: &[FileDiff]) -> usize {
    let usual = (0..lines.len()).find(|&at| begins_diff(lines, at));
    let found = files.first().map(|diff| diff.line.saturating_sub(1));
    usual.or(found).unwrap_or(lines.len())
}

/// How many bytes of a patch file its header takes: all of them when it has no diff.
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
    lines: Lines<'a>,
    options: Options,
    /// The form that the next diff must have.
    form: Option<Form>,
    /// Whether the last header line ended in CR LF.
    carriage_return: bool,
    memory: context::Memory,
    after_hunk: bool,
    /// How many bytes further binary files may have.
    room: usize,
    parsed: Parsed,
}

/// What was read of a diff's headers so far. The names of unified diffs stand in the wrong order
/// until their first hunk is found: `---` begins the second half of a context diff.
#[derive(Default)]
struct Head {
    diff: FileDiff,
    old_stamp: Stamp,
    new_stamp: Stamp,
    /// Whether any line named a file.
    named: bool,
    /// Whether a git header said something that holds without hunks.
    extended: bool,
    nesting: usize,
    renames: (bool, bool),
    copies: (bool, bool),
    /// The first line that looks like a command of ed or of a normal diff, and whether ed knows it.
    command: Option<(usize, bool)>,
}

/// What begins at a line outside hunks.
enum Begins {
    Nothing,
    Hunks(Form, Dress),
    GitBinary,
    /// The headers of another diff, while these have none.
    NextGit,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<(), Fault> {
        while let Some((head, form, dress)) = self.headers()? {
            self.diff(head, form, &dress)?;
            self.form = None;
        }
        if self.lines.cut() && self.lines.at < self.lines.raw().len() {
            self.parsed.stray.push(self.lines.raw().len());
        }
        Ok(())
    }

    /// Reads up to the first hunk of the next diff.
    fn headers(&mut self) -> Result<Option<(Head, Option<Form>, Dress)>, Fault> {
        let mut head = Head::default();
        let mut command = false;
        let mut stars: Option<usize> = None;
        if self.form == Some(Form::Normal) {
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
                Begins::Nothing => {
                    previous = self.lines.at;
                    self.lines.at += 1;
                }
                Begins::Hunks(form, dress) => {
                    if form != Form::Unified {
                        self.lines.at = previous;
                    }
                    return Ok(Some((head, Some(form), dress)));
                }
                Begins::GitBinary => {
                    self.git_binary(&mut head)?;
                    return Ok(Some((head, None, Dress::default())));
                }
                Begins::NextGit => return Ok(Some((head, None, Dress::default()))),
            }
        }
        if let Some((line, true)) = head.command {
            return Err(ed_script(line));
        }
        Ok(head.extended.then(|| (head, None, Dress::default())))
    }

    fn header_line(
        &mut self,
        head: &mut Head,
        text: &'a [u8],
        indent: usize,
        stars: Option<usize>,
        was_command: bool,
    ) -> Result<Begins, Fault> {
        let number = self.lines.at + 1;
        let cr = text.ends_with(b"\r");
        let known = self.known_line(head, text, stars.is_some(), number)?;
        if matches!(known, Some(Begins::GitBinary | Begins::NextGit)) {
            return Ok(known.unwrap_or(Begins::Nothing));
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
            return Ok(Begins::Nothing);
        }
        if text == b"."
            && let Some((line, _)) = head.command
            && self.form.is_none()
        {
            return Err(ed_script(line));
        }
        let may_be = |form: Form| self.form.is_none_or(|wanted| wanted == form);
        let dress = |cr: bool| Dress {
            indent,
            nesting: head.nesting,
            carriage_return: cr && !self.options.binary,
        };
        if may_be(Form::Unified) && text.starts_with(b"@@ -") {
            let dress = dress(self.carriage_return);
            std::mem::swap(&mut head.old_stamp, &mut head.new_stamp);
            std::mem::swap(&mut head.diff.old, &mut head.diff.new);
            presence_from_range(head, text);
            return Ok(Begins::Hunks(Form::Unified, dress));
        }
        if may_be(Form::Context) && stars == Some(indent) && text.starts_with(b"*** ") {
            self.carriage_return = cr;
            let dress = dress(cr);
            if zero(&text[4..]) {
                head.diff.before = absence(head.old_stamp);
            }
            self.memory.new_style = text.trim_ascii_end().ends_with(b"*");
            return Ok(Begins::Hunks(Form::Context, dress));
        }
        if may_be(Form::Normal)
            && was_command
            && (text.starts_with(b"< ") || text.starts_with(b"> "))
        {
            let dress = dress(self.carriage_return);
            return Ok(Begins::Hunks(Form::Normal, dress));
        }
        Ok(Begins::Nothing)
    }

    /// Takes what a line says that is part of a diff's headers; `None` when it is none.
    fn known_line(
        &mut self,
        head: &mut Head,
        text: &'a [u8],
        after_stars: bool,
        number: usize,
    ) -> Result<Option<Begins>, Fault> {
        let strip = self.options.strip;
        let cr = text.ends_with(b"\r");
        let name = |target: &mut Option<Vec<u8>>, stamp: &mut Stamp, fetched: Fetched| {
            if let Some(name) = fetched.name {
                *target = Some(name);
            }
            if let Some(said) = fetched.stamp {
                *stamp = said;
            }
        };
        if !after_stars && let Some(rest) = text.strip_prefix(b"*** ") {
            let fetched = fetch_name(rest, strip, true);
            name(&mut head.diff.old, &mut head.old_stamp, fetched);
        } else if let Some(rest) = text.strip_prefix(b"+++ ") {
            let fetched = fetch_name(rest, strip, true);
            name(&mut head.diff.old, &mut head.old_stamp, fetched);
            self.carriage_return = cr;
        } else if let Some(rest) = text.strip_prefix(b"Index:") {
            let fetched = fetch_name(rest, strip, false);
            head.diff.index = fetched.name.or(head.diff.index.take());
            self.carriage_return = cr;
        } else if let Some(rest) = text.strip_prefix(b"diff --git ") {
            if head.extended {
                return Ok(Some(Begins::NextGit));
            }
            head.diff.git = true;
            (head.diff.old, head.diff.new) = match git_names(rest, strip) {
                Some((old, new)) => (Some(old), Some(new)),
                None => (None, None),
            };
        } else if head.diff.git && text.starts_with(b"GIT binary patch") {
            return Ok(Some(Begins::GitBinary));
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
            let dated = matches!(fetched.stamp, Some(Stamp::Epoch | Stamp::Other));
            let mut stamp = Stamp::None;
            name(&mut head.diff.new, &mut stamp, fetched);
            if dated {
                head.new_stamp = stamp;
                head.nesting = nesting;
            }
            self.carriage_return = cr;
        }
        head.named = true;
        Ok(Some(Begins::Nothing))
    }

    /// Reads the hunks of a diff whose headers were read.
    fn diff(&mut self, mut head: Head, form: Option<Form>, dress: &Dress) -> Result<(), Fault> {
        let Some(form) = form else {
            return self.push(head);
        };
        head.diff.form = form;
        loop {
            let hunk = match form {
                Form::Unified => hunks::unified(&mut self.lines, dress)?,
                Form::Context => context::context(&mut self.lines, dress, &mut self.memory)?,
                Form::Normal => hunks::normal(&mut self.lines, dress)?,
            };
            let Some(hunk) = hunk else { break };
            if form == Form::Context
                && head.diff.hunks.is_empty()
                && hunk.after().next().is_none()
                && hunk.new_start == 1
            {
                head.diff.after = absence(head.new_stamp);
            }
            head.diff.hunks.push(hunk);
        }
        self.after_hunk = true;
        self.push(head)
    }

    fn git_binary(&mut self, head: &mut Head) -> Result<(), Fault> {
        let at = self.lines.at;
        let (binary, used) = Binary::parse(&self.lines.raw()[at + 1..], self.room)
            .map_err(|(offset, error)| (at + 2 + offset, error))?;
        self.room -= binary.size();
        head.diff.binary = Some(binary);
        self.lines.at = at + 1 + used;
        self.after_hunk = false;
        Ok(())
    }

    fn push(&mut self, head: Head) -> Result<(), Fault> {
        let Head {
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
                Error::series(format!("no file is named after -p{}", self.options.strip)).hint(
                    "the paths have fewer components than are taken off; say -p0 in `series` if they start at the tree's root",
                ),
            ));
        }
        self.parsed.files.push(diff);
        Ok(())
    }
}

fn ed_script(line: usize) -> Fault {
    (
        line,
        Error::series("an ed script, which is a program and not a diff").hint(
            "apply it with `patch` and write the change anew with `quilt refresh` or `git diff`",
        ),
    )
}

/// Whether the number at the front is 0.
fn zero(text: &[u8]) -> bool {
    text.first() == Some(&b'0') && !text.get(1).is_some_and(u8::is_ascii_digit)
}

fn absence(stamp: Stamp) -> Presence {
    match stamp {
        Stamp::Epoch => Presence::Absent,
        _ => Presence::EmptyOrAbsent,
    }
}

/// What `@@ -0,0 +1,3 @@` says about the file before and after.
fn presence_from_range(head: &mut Head, line: &[u8]) {
    let range = &line[4..];
    if zero(range) {
        head.diff.before = absence(head.old_stamp);
    }
    let rest = &range[range.iter().position(|&b| b == b' ').unwrap_or(range.len())..];
    let rest = rest.trim_ascii_start();
    if rest.strip_prefix(b"+").is_some_and(zero) {
        head.diff.after = absence(head.new_stamp);
    }
}

/// Takes one of git's extended header lines; tells whether it is one.
fn git_line(head: &mut Head, line: &[u8], number: usize, strip: usize) -> Result<bool, Fault> {
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

fn index_line(head: &mut Head, rest: &[u8], number: usize) -> Result<bool, Fault> {
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
            Presence::There
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

/// Git's modes for files and symbolic links; permission bits other than the owner's execute bit
/// carry no meaning in a tree. `None` for what patch takes for no mode.
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
        _ => Err(
            Error::series(format!("odd file mode {}", String::from_utf8_lossy(digits)))
                .hint("allowed are 100644 (file), 100755 (executable) and 120000 (symbolic link)"),
        ),
    }
}

/// A line after a hunk that looks like one of its lines.
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
            "--- a/f\n+++ b/f\n@@ -0,0 +1,{LINES} @@\n{}",
            "+\n".repeat(LINES)
        );
        let error = parse(text.as_bytes(), 1, "p").unwrap_err();
        assert_eq!(error.to_string(), "p: more than 4000000 lines");
    }
}
