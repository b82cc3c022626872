//! Diffs as they stand in patch files: unified, context and normal hunks, git's extended headers and
//! binary form. What is a diff, and of which file, is decided as GNU patch 2.7 decides it.

mod binary;
mod context;
mod hunks;
mod lines;
mod names;
mod parse;

pub use binary::Binary;
pub use parse::{Options, Parsed, header_length, parse, parse_with};

/// How a patch writes changed lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// `@@ -1,3 +1,4 @@`.
    #[default]
    Unified,
    /// `*** 1,3 ****` and `--- 1,4 ----`.
    Context,
    /// `3,4c3`, `<` and `>`.
    Normal,
}

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
    /// How its changed lines are written.
    pub form: Form,
    /// Whether it has a `diff --git` line.
    pub git: bool,
    /// Whether old and new have changed places already (`-R`).
    pub reversed: bool,
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
            reversed: !self.reversed,
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
    /// Of a line that stays: what the half for the file after says, where the halves differ. What is
    /// in the file stays all the same.
    pub after: Option<Vec<u8>>,
}

impl Line {
    /// A line with an ordinary end.
    pub(crate) fn new(change: Change, body: &[u8]) -> Self {
        let mut text = Vec::with_capacity(body.len() + 1);
        text.extend_from_slice(body);
        text.push(b'\n');
        Line {
            change,
            text,
            after: None,
        }
    }

    fn reversed(self) -> Line {
        let change = match self.change {
            Change::Context => Change::Context,
            Change::Remove => Change::Add,
            Change::Add => Change::Remove,
        };
        match self.after {
            Some(after) => Line {
                change,
                text: after,
                after: Some(self.text),
            },
            None => Line { change, ..self },
        }
    }
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
    /// Unchanged lines at its beginning and at its end as its two halves count them, where that is
    /// not what its lines tell.
    pub edges: Option<(usize, usize)>,
}

impl Hunk {
    fn reversed(self) -> Hunk {
        Hunk {
            line: self.line,
            old_start: self.new_start,
            new_start: self.old_start,
            lines: self.lines.into_iter().map(Line::reversed).collect(),
            assumed: self.assumed,
            edges: self.edges,
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
            .map(|line| line.after.as_ref().unwrap_or(&line.text).as_slice())
    }

    /// Whether it leaves no lines, so that nothing in a file could show that it was applied: taken back, it
    /// fits everywhere.
    pub fn leaves_nothing(&self) -> bool {
        self.after().next().is_none()
    }

    /// Unchanged lines at its beginning and at its end.
    pub fn context(&self) -> (usize, usize) {
        if let Some(edges) = self.edges {
            return edges;
        }
        let unchanged = |line: &&Line| line.change == Change::Context;
        let prefix = self.lines.iter().take_while(unchanged).count();
        let suffix = self.lines.iter().rev().take_while(unchanged).count();
        (prefix, suffix)
    }
}
