//! Diffs as they stand in patch files: unified hunks, git's extended headers, git's binary form.

mod binary;
mod names;
mod parse;

pub use binary::Binary;
pub use parse::{Parsed, header_length, parse};

/// What a diff says about one side of a file, as GNU patch weighs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Presence {
    /// The file is there.
    #[default]
    There,
    /// The file is empty or not there.
    EmptyOrAbsent,
    /// The file is not there.
    Absent,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileDiff {
    /// The line of the patch file where it begins, counted from 1.
    pub line: usize,
    /// Whether it has a `diff --git` line.
    pub git: bool,
    /// The name before the change, after `-p`.
    pub old: Option<Vec<u8>>,
    /// The name after the change, after `-p`.
    pub new: Option<Vec<u8>>,
    /// The name of an `Index:` line, after `-p`.
    pub index: Option<Vec<u8>>,
    /// Git's mode before the change, where given.
    pub old_mode: Option<u32>,
    /// Git's mode after the change, where given.
    pub new_mode: Option<u32>,
    /// Whether the old name disappears.
    pub rename: bool,
    /// Whether the old name stays with its content.
    pub copy: bool,
    /// What is said about the file before.
    pub before: Presence,
    /// What is said about the file after.
    pub after: Presence,
    /// Full object names of the `index` line, in hexadecimal.
    pub objects: Option<(String, String)>,
    /// Changes of lines.
    pub hunks: Vec<Hunk>,
    /// The change of a binary file.
    pub binary: Option<Binary>,
}

impl FileDiff {
    /// The diff that undoes this one.
    #[must_use]
    pub fn reversed(self) -> FileDiff {
        FileDiff {
            old: self.new,
            new: self.old,
            old_mode: self.new_mode,
            new_mode: self.old_mode,
            before: self.after,
            after: self.before,
            objects: self.objects.map(|(old, new)| (new, old)),
            hunks: self.hunks.into_iter().map(Hunk::reversed).collect(),
            binary: self.binary.map(Binary::reversed),
            ..self
        }
    }

    /// The name people know the file by.
    pub fn shown_name(&self) -> String {
        let name = match self.after {
            Presence::Absent => self.old.as_ref().or(self.new.as_ref()),
            _ => self.new.as_ref().or(self.old.as_ref()),
        };
        name.or(self.index.as_ref())
            .map_or_else(|| "?".to_owned(), |name| super::path::shown(name))
    }
}

/// What happens to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It stays.
    Context,
    /// It goes.
    Remove,
    /// It comes.
    Add,
}

/// A line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What happens to it.
    pub change: Change,
    /// Its bytes, with the line end if it has one.
    pub text: Vec<u8>,
}

/// One run of changed lines with its surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hunk {
    /// The line of its `@@` in the patch file, counted from 1.
    pub line: usize,
    /// The first line it replaces, counted from 1; where it replaces none, the line it follows, plus 1.
    pub old_start: usize,
    /// The first line of the replacement; where there is none, the line before, plus 1.
    pub new_start: usize,
    /// Its lines.
    pub lines: Vec<Line>,
    /// Blank lines assumed at its end because the patch file ends inside it.
    pub assumed: usize,
}

impl Hunk {
    fn reversed(self) -> Hunk {
        let lines = self.lines.into_iter().map(|line| Line {
            change: match line.change {
                Change::Context => Change::Context,
                Change::Remove => Change::Add,
                Change::Add => Change::Remove,
            },
            text: line.text,
        });
        Hunk {
            line: self.line,
            old_start: self.new_start,
            new_start: self.old_start,
            lines: lines.collect(),
            assumed: self.assumed,
        }
    }

    /// The lines it expects.
    pub fn before(&self) -> impl Iterator<Item = &[u8]> {
        self.lines
            .iter()
            .filter(|line| line.change != Change::Add)
            .map(|line| line.text.as_slice())
    }

    /// The lines it leaves.
    pub fn after(&self) -> impl Iterator<Item = &[u8]> {
        self.lines
            .iter()
            .filter(|line| line.change != Change::Remove)
            .map(|line| line.text.as_slice())
    }

    /// Unchanged lines at its beginning and at its end.
    pub fn context(&self) -> (usize, usize) {
        let unchanged = |line: &&Line| line.change == Change::Context;
        let prefix = self.lines.iter().take_while(unchanged).count();
        let suffix = self.lines.iter().rev().take_while(unchanged).count();
        (prefix, suffix)
    }
}
