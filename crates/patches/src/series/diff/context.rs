//! Context hunks (`*** 1,3 ****` and `--- 1,4 ----`), read as GNU patch reads them: either half may be
//! left out where the other one tells what it holds.

use super::hunks::{Fault, number};
use super::lines::{Dress, Lines};
use super::{Change, Hunk, Line};
use perfquilt_model::error::Error;

/// What is remembered from hunk to hunk.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// Whether the diff has the form with `****` at the end of ranges.
    pub new_style: bool,
    /// Context lines at the beginning of the hunk before.
    prefix: usize,
}

/// A line of a half: what stands before it, and its text.
#[derive(Debug, Clone)]
struct Slot {
    mark: u8,
    text: Vec<u8>,
}

/// One half of a hunk: the file before or after.
#[derive(Debug, Default)]
struct Half {
    first: usize,
    count: usize,
    slots: Vec<Slot>,
    /// Unchanged lines among them.
    copiable: usize,
    /// Unchanged lines before the first change.
    prefix: Option<usize>,
}

/// What a line said.
enum Said {
    Go,
    /// The second half is left out, and this line does not belong to the hunk.
    Missing,
}

struct Reader<'r, 'a> {
    lines: &'r mut Lines<'a>,
    dress: &'r Dress,
    memory: &'r mut Memory,
    /// The line after the one with the stars.
    begin: usize,
    old: Half,
    new: Half,
    second: bool,
    /// Whether the second half may be left out.
    may_miss: bool,
    old_missing: bool,
    /// Unchanged lines since the last change.
    context: usize,
    /// That number at the end of the first half.
    suffix: Option<usize>,
    spaces_eaten: bool,
    some_context: bool,
    /// A blank line between the halves.
    blank_between: bool,
    /// The position behind `---`, and the context there.
    back: (usize, usize),
    assumed: usize,
    edges: (usize, usize),
}

/// The next context hunk, if there is one.
pub(super) fn context(
    lines: &mut Lines<'_>,
    dress: &Dress,
    memory: &mut Memory,
) -> Result<Option<Hunk>, Fault> {
    let before = lines.at;
    if !lines
        .next(dress)
        .is_some_and(|line| line.starts_with(b"********"))
    {
        lines.at = before;
        return Ok(None);
    }
    let begin = lines.at + 1;
    let reader = Reader {
        lines,
        dress,
        memory,
        begin,
        old: Half::default(),
        new: Half::default(),
        second: false,
        may_miss: true,
        old_missing: false,
        context: 0,
        suffix: None,
        spaces_eaten: false,
        some_context: false,
        blank_between: false,
        back: (0, 0),
        assumed: 0,
        edges: (0, 0),
    };
    reader.read().map(Some)
}

impl Reader<'_, '_> {
    fn fault(&self, what: &str) -> Fault {
        self.fault_at(self.lines.at, what)
    }

    fn fault_at(&self, line: usize, what: &str) -> Fault {
        let error = Error::series(what.to_owned());
        let hint = "its ranges and lines disagree; was the patch edited by hand, or wrapped by a mail program?";
        (line, error.hint(hint))
    }

    fn read(mut self) -> Result<Hunk, Fault> {
        let head = self.lines.next(self.dress).unwrap_or_default();
        if !head.starts_with(b"*") || head.starts_with(b"********") {
            return Err(
                self.fault("the range of the lines before (`*** FIRST,LAST ****`) is missing")
            );
        }
        (self.old.first, self.old.count) =
            range(head).ok_or_else(|| self.fault("malformed range"))?;
        let mut missing = false;
        while !self.second || self.new.slots.len() < self.new.count {
            let line = match self.lines.next(self.dress) {
                Some(line) => line,
                None if self.second && self.may_miss => {
                    missing = true;
                    break;
                }
                // Mail programs cut blank lines off the end.
                None if self.second && self.new.count - self.new.slots.len() < 4 => {
                    self.assumed += 1;
                    b"  "
                }
                None => return Err(self.fault_at(self.begin, "the patch ends inside this hunk")),
            };
            if let Said::Missing = self.line(line)? {
                missing = true;
                break;
            }
        }
        self.complete(missing)?;
        self.finish()
    }

    /// Whether the second half is left out, now that something else follows.
    fn left_out(&self) -> bool {
        self.second && self.may_miss
    }

    fn line(&mut self, line: &[u8]) -> Result<Said, Fault> {
        match line.first() {
            Some(b'*') => {
                if self.left_out() {
                    return Ok(Said::Missing);
                }
                return Err(self.fault("the hunk before this line is not complete"));
            }
            Some(b'-') if line.get(1) == Some(&b'-') => return self.middle(line),
            Some(&mark @ (b'+' | b'!' | b'-')) => {
                if mark != b'-' {
                    self.may_miss = false;
                }
                let body = &line[1..];
                let blank = body.first().is_some_and(|b| matches!(b, b' ' | b'\t'));
                if !blank && self.left_out() {
                    return Ok(Said::Missing);
                }
                let body = if blank { &body[1..] } else { body };
                let context = self.context;
                self.half().prefix.get_or_insert(context);
                self.put(mark, body);
                self.context = 0;
            }
            None | Some(b'\t') => {
                if self.left_out() && (!self.spaces_eaten || self.memory.new_style) {
                    return Ok(Said::Missing);
                }
                if !self.second && self.old.slots.len() == self.old.count {
                    if self.blank_between || !line.is_empty() {
                        return Err(self.fault("this line does not fit the hunk it is in"));
                    }
                    self.blank_between = true;
                    return Ok(Said::Go);
                }
                self.spaces_eaten |= self.second;
                self.unchanged(line);
                if !line.is_empty()
                    && let Some(slot) = self.half().slots.last_mut()
                {
                    // Patch counts the tab twice and loses the line's end.
                    if slot.text.last() == Some(&b'\n') {
                        slot.text.pop();
                    }
                }
            }
            Some(b' ') => {
                let body = &line[1..];
                let blank = body.first().is_some_and(|b| matches!(b, b' ' | b'\t'));
                if !blank && self.left_out() {
                    return Ok(Said::Missing);
                }
                self.unchanged(if blank { &body[1..] } else { body });
            }
            Some(_) => {
                if self.left_out() {
                    return Ok(Said::Missing);
                }
                return Err(self.fault("this line does not fit the hunk it is in"));
            }
        }
        if !self.second && self.old.slots.len() > self.old.count {
            return Err(self.fault("there are more lines than the range of the lines before says"));
        }
        Ok(Said::Go)
    }

    fn half(&mut self) -> &mut Half {
        if self.second {
            &mut self.new
        } else {
            &mut self.old
        }
    }

    fn unchanged(&mut self, body: &[u8]) {
        self.some_context = true;
        self.context += 1;
        self.half().copiable += 1;
        self.put(b' ', body);
    }

    fn put(&mut self, mark: u8, body: &[u8]) {
        let half = if self.second {
            &mut self.new
        } else {
            &mut self.old
        };
        let mut text = body.to_vec();
        text.push(b'\n');
        if half.slots.len() + 1 == half.count && self.lines.incomplete() {
            text.pop();
        }
        half.slots.push(Slot { mark, text });
    }

    /// The line `--- FIRST,LAST ----` between the halves.
    fn middle(&mut self, line: &[u8]) -> Result<Said, Fault> {
        if self.second {
            // Patch counts the first half's last lines anew here.
            self.suffix = Some(self.context);
            if self.left_out() {
                return Ok(Said::Missing);
            }
            return Err(self.fault("a second `---` in this hunk"));
        }
        self.old.prefix.get_or_insert(self.context);
        self.suffix = Some(self.context);
        let here = self.old.slots.len();
        if here != self.old.count {
            if here > 0 || self.blank_between {
                return Err(self.fault("`---` comes before the lines before are complete"));
            }
            self.old_missing = true;
            self.old.prefix = None;
            self.suffix = None;
        }
        (self.new.first, self.new.count) =
            range(line).ok_or_else(|| self.fault("malformed range"))?;
        if self.new.count != self.old.copiable
            && (self.memory.prefix != 0 || self.context != 0 || self.new.count != 1)
        {
            self.may_miss = false;
        }
        self.second = true;
        self.back = (self.lines.at, self.context);
        self.context = 0;
        Ok(Said::Go)
    }

    /// Fills in the half that was left out.
    fn complete(&mut self, missing: bool) -> Result<(), Fault> {
        let mangled = |this: &Self| {
            this.fault_at(this.begin, "the halves of this hunk do not fit each other")
        };
        let mut filled = false;
        if missing {
            (self.lines.at, self.context) = self.back;
            self.new.slots = unchanged_of(&self.old);
            filled = self.new.count > 0;
            if self.new.slots.len() != self.new.count {
                return Err(mangled(self));
            }
        } else if !self.old_missing {
            if self.old.copiable != self.new.copiable {
                return Err(mangled(self));
            }
        } else if !self.some_context && self.old.count == 1 {
            // A hunk without context that expects one line: it only adds.
            self.old.first += 1;
            self.old.count = 0;
        } else {
            self.old.slots = unchanged_of(&self.new);
            filled = self.old.count > 0;
            if self.old.slots.len() != self.old.count {
                return Err(mangled(self));
            }
        }
        let prefix = match (self.old.prefix, self.new.prefix) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        let prefix = prefix.ok_or_else(|| mangled(self))?;
        let suffix = self
            .suffix
            .map_or(self.context, |suffix| suffix.min(self.context));
        self.edges = (prefix, suffix);
        self.memory.prefix = prefix;
        if filled || (self.old.first > 1 && prefix + suffix < self.old.copiable) {
            self.memory.new_style = true;
        }
        Ok(())
    }

    /// Joins the halves.
    fn finish(self) -> Result<Hunk, Fault> {
        let out_of_step = self.fault_at(
            self.begin,
            "the changed lines of this hunk's halves are out of step",
        );
        let mut hunk = Hunk {
            line: self.begin,
            old_start: self.old.first,
            new_start: self.new.first,
            lines: Vec::new(),
            assumed: self.assumed,
            edges: None,
        };
        let mut old = self.old.slots.into_iter().peekable();
        let mut new = self.new.slots.into_iter().peekable();
        let line = |change, text| Line {
            change,
            text,
            after: None,
        };
        loop {
            let marks = (old.peek().map(|s| s.mark), new.peek().map(|s| s.mark));
            match marks {
                (None, None) => break,
                (Some(b'-'), _) => {
                    let slot = old.next().map(|slot| line(Change::Remove, slot.text));
                    hunk.lines.extend(slot);
                }
                (_, Some(b'+')) => {
                    let slot = new.next().map(|slot| line(Change::Add, slot.text));
                    hunk.lines.extend(slot);
                }
                (Some(b'!'), Some(b'!')) => {
                    while let Some(slot) = old.next_if(|slot| slot.mark == b'!') {
                        hunk.lines.push(line(Change::Remove, slot.text));
                    }
                    while let Some(slot) = new.next_if(|slot| slot.mark == b'!') {
                        hunk.lines.push(line(Change::Add, slot.text));
                    }
                }
                (Some(b' '), Some(b' ')) => {
                    if let (Some(before), Some(after)) = (old.next(), new.next()) {
                        let mut line = line(Change::Context, before.text);
                        line.after = (line.text != after.text).then_some(after.text);
                        hunk.lines.push(line);
                    }
                }
                _ => return Err(out_of_step),
            }
        }
        if hunk.lines.iter().all(|line| line.change == Change::Context) {
            return Err((self.begin, Error::series("a hunk that changes nothing")));
        }
        hunk.edges = Some(self.edges).filter(|edges| *edges != hunk.context());
        Ok(hunk)
    }
}

/// The unchanged lines of a half.
fn unchanged_of(half: &Half) -> Vec<Slot> {
    half.slots
        .iter()
        .filter(|slot| slot.mark == b' ')
        .cloned()
        .collect()
}

/// First line and number of lines of `*** 1,3 ****`.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let digit = |text: &[u8]| text.iter().position(u8::is_ascii_digit);
    let mut text = &line[digit(line)?..];
    let text = &mut text;
    if text.starts_with(b"0,0") {
        *text = &text[2..];
    }
    let first = number(text)?;
    let (first, count) = if text.first() == Some(&b',') {
        *text = &text[digit(text)?..];
        (first, number(text)? + 1 - first)
    } else if first > 0 {
        (first, 1)
    } else {
        (1, 0)
    };
    Some((usize::try_from(first).ok()?, usize::try_from(count).ok()?))
}
