//! Finding the diffs in a patch file, by the rules of GNU patch.

use super::names::{git_names, header_name};
use super::{Binary, Change, FileDiff, Hunk, Line, Presence};
use crate::error::{Error, Result};

/// A parsed patch file.
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    /// What stands before the first diff.
    pub header: String,
    /// The changed files in order.
    pub files: Vec<FileDiff>,
    /// Lines that look as if they belonged to a hunk but are ignored, as patch ignores them.
    pub stray: Vec<usize>,
}

/// Parses a patch file; `strip` is `-p`, `shown` the file's name in errors.
///
/// # Errors
/// [`Kind::Series`](crate::error::Kind::Series) with file and line for malformed hunks, forms that are
/// not supported and odd modes.
pub fn parse(bytes: &[u8], strip: usize, shown: &str) -> Result<Parsed> {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
    let header_end = (0..lines.len())
        .find(|&at| begins_diff(&lines, at))
        .unwrap_or(lines.len());
    let mut parser = Parser {
        lines: &lines,
        at: header_end,
        strip,
        parsed: Parsed {
            header: String::from_utf8_lossy(&lines[..header_end].concat()).into_owned(),
            ..Parsed::default()
        },
    };
    parser
        .run()
        .map_err(|(line, error)| error.at(shown, line))?;
    Ok(parser.parsed)
}

/// An error and its line, counted from 1.
type Fault = (usize, Error);

/// Where a header ends: the first `diff -`, `Index:` or `---`/`***` with its partner.
fn begins_diff(lines: &[&[u8]], at: usize) -> bool {
    let line = lines[at];
    let next = lines.get(at + 1).copied().unwrap_or_default();
    line.starts_with(b"diff -")
        || line.starts_with(b"Index: ")
        || (line.starts_with(b"--- ") && next.starts_with(b"+++ "))
        || (line.starts_with(b"*** ") && next.starts_with(b"--- "))
}

/// How many bytes of a patch file its header takes: all of them when it has no diff.
pub fn header_length(bytes: &[u8]) -> usize {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
    let end = (0..lines.len()).find(|&at| begins_diff(&lines, at));
    lines[..end.unwrap_or(lines.len())]
        .iter()
        .map(|line| line.len())
        .sum()
}

struct Parser<'a> {
    lines: &'a [&'a [u8]],
    at: usize,
    strip: usize,
    parsed: Parsed,
}

/// What was read of a file's headers so far.
#[derive(Default)]
struct Head {
    diff: FileDiff,
    /// Whether any line named a file.
    named: bool,
    /// Whether a git header said something that holds without hunks.
    extended: bool,
    old_absent: bool,
    new_absent: bool,
    strip_cr: bool,
    renames: (bool, bool),
    copies: (bool, bool),
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), Fault> {
        let mut head = Head::default();
        let mut after_hunk = false;
        while let Some(&line) = self.lines.get(self.at) {
            let number = self.at + 1;
            if line.starts_with(b"@@ -") && head.named {
                let mut head = std::mem::take(&mut head);
                presence_from_hunk(&mut head, line);
                self.hunks(&mut head)?;
                self.push(head)?;
                after_hunk = true;
                continue;
            }
            if line.starts_with(b"diff --git ") && head.extended {
                let done = std::mem::take(&mut head);
                self.push(done)?;
            }
            if head.diff.git && line.starts_with(b"GIT binary patch") {
                let (binary, used) = Binary::parse(&self.lines[self.at + 1..])
                    .map_err(|(offset, error)| (number + 1 + offset, error))?;
                head.diff.binary = Some(binary);
                self.at += 1 + used;
                let done = std::mem::take(&mut head);
                self.push(done)?;
                after_hunk = false;
                continue;
            }
            let known = self.header_line(&mut head, line)?;
            if known {
                after_hunk = false;
            } else if after_hunk && is_stray(line) {
                self.parsed.stray.push(number);
            } else if !line.trim_ascii().is_empty() {
                after_hunk = false;
            }
            self.at += 1;
        }
        if head.extended {
            self.push(head)?;
        }
        Ok(())
    }

    /// Takes what a line outside hunks says; tells whether it is part of a diff's headers.
    fn header_line(&self, head: &mut Head, line: &[u8]) -> Result<bool, Fault> {
        let number = self.at + 1;
        let crlf = line.ends_with(b"\r\n");
        let begin = |head: &mut Head| {
            if head.diff.line == 0 {
                head.diff.line = number;
            }
            head.named = true;
        };
        if let Some(rest) = line.strip_prefix(b"--- ") {
            let named = header_name(rest, self.strip, true);
            begin(head);
            head.old_absent = named.absent;
            // `/dev/null` leaves the name of a `diff --git` line standing.
            head.diff.old = named.name.or(head.diff.old.take());
            head.strip_cr = crlf;
        } else if let Some(rest) = line.strip_prefix(b"+++ ") {
            let named = header_name(rest, self.strip, true);
            begin(head);
            head.new_absent = named.absent;
            head.diff.new = named.name.or(head.diff.new.take());
            head.strip_cr = crlf;
        } else if let Some(rest) = line.strip_prefix(b"Index:") {
            let named = header_name(rest, self.strip, false);
            if head.diff.old.is_some() || head.diff.new.is_some() {
                // A new file's block begins; what was collected belonged to none.
                *head = Head::default();
            }
            begin(head);
            head.diff.index = named.name;
            head.strip_cr = crlf;
        } else if let Some(rest) = line.strip_prefix(b"diff --git ") {
            *head = Head::default();
            begin(head);
            head.diff.git = true;
            if let Some((old, new)) = git_names(rest, self.strip) {
                head.diff.old = Some(old);
                head.diff.new = Some(new);
            }
        } else if line.starts_with(b"***************") {
            return self.context_diff(number);
        } else if head.diff.git {
            return git_line(head, line, number, self.strip);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn context_diff(&self, number: usize) -> Result<bool, Fault> {
        let next = self.lines.get(self.at + 1).copied().unwrap_or_default();
        let range = next
            .strip_prefix(b"*** ")
            .is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit));
        if !range {
            return Ok(false);
        }
        Err((
            number,
            Error::series("a context diff; only unified diffs are supported").hint(
                "apply it with `patch` and let `quilt refresh` or `git diff` write it anew as a unified diff",
            ),
        ))
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
                diff.line,
                Error::series(format!("no file is named after -p{}", self.strip)).hint(
                    "the paths have fewer components than are taken off; say -p0 in `series` if they start at the tree's root",
                ),
            ));
        }
        self.parsed.files.push(diff);
        Ok(())
    }

    fn hunks(&mut self, head: &mut Head) -> Result<(), Fault> {
        while let Some(line) = self.lines.get(self.at)
            && line.starts_with(b"@@ -")
        {
            let hunk = self.hunk(head.strip_cr)?;
            head.diff.hunks.push(hunk);
        }
        Ok(())
    }

    fn hunk(&mut self, strip_cr: bool) -> Result<Hunk, Fault> {
        let number = self.at + 1;
        let range = ranges(self.lines[self.at]).ok_or_else(|| {
            (
                number,
                Error::series("malformed hunk header")
                    .hint("it reads `@@ -FIRST,COUNT +FIRST,COUNT @@`"),
            )
        })?;
        self.at += 1;
        let [mut old_start, old_count, mut new_start, new_count] = range;
        let (mut old_left, mut new_left) = (old_count, new_count);
        if old_count == 0 {
            old_start += 1;
        }
        if new_count == 0 {
            new_start += 1;
        }
        let mut lines: Vec<Line> = Vec::new();
        let mut assumed = 0;
        while old_left > 0 || new_left > 0 {
            let Some(&raw) = self.lines.get(self.at) else {
                // Mail programs cut blank lines off the end.
                if old_left == new_left && new_left <= 2 {
                    assumed = new_left;
                    lines.extend((0..new_left).map(|_| Line {
                        change: Change::Context,
                        text: b"\n".to_vec(),
                    }));
                    break;
                }
                return Err(wrong_counts(number, "the patch ends inside this hunk"));
            };
            let (change, text) = split_line(raw, strip_cr)
                .filter(|(change, _)| match change {
                    Change::Context => old_left > 0 && new_left > 0,
                    Change::Remove => old_left > 0,
                    Change::Add => new_left > 0,
                })
                .ok_or_else(|| {
                    wrong_counts(self.at + 1, "this line does not fit the hunk it is in")
                })?;
            self.at += 1;
            if change != Change::Add {
                old_left -= 1;
            }
            if change != Change::Remove {
                new_left -= 1;
            }
            lines.push(Line { change, text });
            if self
                .lines
                .get(self.at)
                .is_some_and(|next| next.first() == Some(&b'\\'))
                && let Some(last) = lines.last_mut()
            {
                if last.text.last() == Some(&b'\n') {
                    last.text.pop();
                }
                self.at += 1;
            }
        }
        if lines.iter().all(|line| line.change == Change::Context) {
            return Err((number, Error::series("a hunk that changes nothing")));
        }
        Ok(Hunk {
            line: number,
            old_start,
            new_start,
            lines,
            assumed,
        })
    }
}

fn wrong_counts(line: usize, what: &str) -> Fault {
    (
        line,
        Error::series(what.to_owned()).hint(
            "the counts in the hunk's `@@` line and its lines disagree; was the patch edited by hand, or wrapped by a mail program? `recountdiff` or `quilt refresh` mends counts",
        ),
    )
}

fn split_line(raw: &[u8], strip_cr: bool) -> Option<(Change, Vec<u8>)> {
    let mut text = raw.to_vec();
    if text.last() != Some(&b'\n') {
        // The patch file's own last line end may be missing.
        text.push(b'\n');
    }
    if strip_cr && text.ends_with(b"\r\n") {
        text.truncate(text.len() - 2);
        text.push(b'\n');
    }
    let change = match text.first()? {
        b' ' => Change::Context,
        b'-' => Change::Remove,
        b'+' => Change::Add,
        // Editors eat the blank of an empty context line.
        b'\n' | b'\t' => return Some((Change::Context, text)),
        b'\r' if text == b"\r\n" => return Some((Change::Context, text)),
        _ => return None,
    };
    text.remove(0);
    Some((change, text))
}

/// The four numbers of `@@ -1,2 +3,4 @@`.
fn ranges(line: &[u8]) -> Option<[usize; 4]> {
    let text = std::str::from_utf8(line.get(4..line.len().min(100))?)
        .or_else(|error| std::str::from_utf8(&line[4..4 + error.valid_up_to()]))
        .ok()?;
    let (old, rest) = text.split_once(' ')?;
    let (new, rest) = rest.trim_start().strip_prefix('+')?.split_once(' ')?;
    rest.trim_start().strip_prefix('@')?;
    let range = |text: &str| -> Option<(usize, usize)> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        let small = |n: &usize| *n < 1 << 40;
        Some((
            start.parse().ok().filter(small)?,
            count.parse().ok().filter(small)?,
        ))
    };
    let ((old_start, old_count), (new_start, new_count)) = (range(old)?, range(new)?);
    // Lines are counted from 1; only an empty range may stand before the first.
    if (old_start == 0 && old_count > 0) || (new_start == 0 && new_count > 0) {
        return None;
    }
    Some([old_start, old_count, new_start, new_count])
}

fn presence_from_hunk(head: &mut Head, line: &[u8]) {
    let from = |absent: bool| {
        if absent {
            Presence::Absent
        } else {
            Presence::EmptyOrAbsent
        }
    };
    let zero =
        |text: &[u8]| text.first() == Some(&b'0') && !text.get(1).is_some_and(u8::is_ascii_digit);
    if zero(&line[4..]) {
        head.diff.before = from(head.old_absent);
    }
    let plus = line.iter().position(|&b| b == b'+');
    if plus.is_some_and(|at| zero(&line[at + 1..])) {
        head.diff.after = from(head.new_absent);
    }
}

fn git_line(head: &mut Head, line: &[u8], number: usize, strip: usize) -> Result<bool, Fault> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    let mode = |digits: &str| parse_mode(digits).map_err(|error| (number, error));
    let diff = &mut head.diff;
    if let Some(rest) = text.strip_prefix("old mode ") {
        diff.old_mode = Some(mode(rest)?);
    } else if let Some(rest) = text.strip_prefix("new mode ") {
        diff.new_mode = Some(mode(rest)?);
    } else if let Some(rest) = text.strip_prefix("deleted file mode ") {
        diff.old_mode = Some(mode(rest)?);
        diff.after = Presence::Absent;
    } else if let Some(rest) = text.strip_prefix("new file mode ") {
        diff.new_mode = Some(mode(rest)?);
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
    } else if let Some(rest) = text.strip_prefix("index ") {
        return index_line(head, rest, number);
    } else if text.starts_with("Binary files ") && text.ends_with(" differ") {
        return Err((
            number,
            Error::series("a binary file without its content")
                .hint("make the patch with `git diff --binary`"),
        ));
    } else {
        return Ok(
            text.starts_with("similarity index ") || text.starts_with("dissimilarity index ")
        );
    }
    head.extended = true;
    Ok(true)
}

/// Git writes the names of renames and copies without the `a/` and `b/` before them.
fn moved_name(rest: &[u8], strip: usize) -> Option<Vec<u8>> {
    header_name(rest, strip.saturating_sub(1), false).name
}

fn index_line(head: &mut Head, rest: &str, number: usize) -> Result<bool, Fault> {
    let (names, mode) = rest.split_once(' ').unwrap_or((rest, ""));
    let hex = |text: &str| {
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| text.to_lowercase())
    };
    let Some((Some(old), Some(new))) = names
        .split_once("..")
        .map(|(old, new)| (hex(old), hex(new)))
    else {
        return Ok(false);
    };
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
    head.diff.before = presence(&old);
    head.diff.after = presence(&new);
    if !mode.trim().is_empty() {
        let mode = parse_mode(mode.trim()).map_err(|error| (number, error))?;
        head.diff.old_mode = Some(mode);
        head.diff.new_mode = Some(mode);
    }
    head.diff.objects = (old.len() == 40 && new.len() == 40).then_some((old, new));
    head.extended = true;
    Ok(true)
}

/// Git's modes for files and symbolic links; permission bits other than the owner's execute bit
/// carry no meaning in a tree.
fn parse_mode(digits: &str) -> Result<u32> {
    let mode = (digits.len() == 6)
        .then(|| u32::from_str_radix(digits, 8).ok())
        .flatten();
    match mode {
        Some(0o120_000) => Ok(0o120_000),
        Some(mode) if mode & !0o777 == 0o100_000 => Ok(if mode & 0o100 != 0 {
            0o100_755
        } else {
            0o100_644
        }),
        Some(0o160_000) => Err(Error::series("a change of a submodule")
            .hint("a patch changes files; put the submodule's files into the release")),
        _ => Err(Error::series(format!("odd file mode {digits}"))
            .hint("allowed are 100644 (file), 100755 (executable) and 120000 (symbolic link)")),
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
