//! The diffs in a patch file: unified, context and normal hunks, git's extended headers and binary patches. The parser
//! recognises diffs and selects file names like GNU patch 2.7.

mod binary;
mod context;
mod hunks;
mod lines;
mod names;
mod parse;

pub use binary::Binary;
pub use parse::{
    CutOff, ParseOptions, ParsedPatch, PatchRest, TextLine, header_length, parse, parse_whole,
    parse_with,
};

/// The format of a diff's hunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiffForm {
    /// `@@ -1,3 +1,4 @@`.
    #[default]
    Unified,
    /// `*** 1,3 ****` and `--- 1,4 ----`.
    Context,
    /// `3,4c3`, `<` and `>`.
    Normal,
}

/// A diff's statement about the existence of a file before or after the change, in GNU patch's three degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Presence {
    /// The file exists.
    #[default]
    Present,
    /// The file is empty or does not exist.
    EmptyOrAbsent,
    /// The file does not exist.
    Absent,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileDiff {
    /// The first line of the diff in the patch file, counted from 1.
    pub line: usize,
    /// Columns of indentation before its lines.
    pub indent: usize,
    /// The format of its hunks.
    pub form: DiffForm,
    /// Whether it has a `diff --git` line.
    pub git: bool,
    /// Whether old and new were swapped (`-R`).
    pub reversed: bool,
    /// The name before the change, stripped by `-p`.
    pub old: Option<Vec<u8>>,
    /// The name after the change, stripped by `-p`.
    pub new: Option<Vec<u8>>,
    /// The name on an `Index:` line, stripped by `-p`.
    pub index: Option<Vec<u8>>,
    /// Git's mode before the change, if given.
    pub old_mode: Option<u32>,
    /// Git's mode after the change, if given.
    pub new_mode: Option<u32>,
    /// Whether the diff renames the old file.
    pub rename: bool,
    /// Whether the diff copies the old file.
    pub copy: bool,
    /// Another name that leads out of the tree, which GNU patch does not take.
    pub outside: Option<Vec<u8>>,
    /// Existence of the file before the change.
    pub before: Presence,
    /// Existence of the file after the change.
    pub after: Presence,
    /// Old and new object id of the `index` line, in hexadecimal, if both are given in full.
    pub objects: Option<(String, String)>,
    /// The changes of lines.
    pub hunks: Vec<Hunk>,
    /// The change of a binary file.
    pub binary: Option<Binary>,
}

impl FileDiff {
    /// Returns the diff that undoes this one.
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

    /// Returns the names that it gives: the new one, the old one and that of an `Index:` line.
    pub fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        [&self.new, &self.old, &self.index].into_iter().flatten()
    }

    /// Returns the file's name for messages.
    pub fn shown_name(&self) -> String {
        let name = match self.after {
            Presence::Absent => self.old.as_ref().or(self.new.as_ref()),
            _ => self.new.as_ref().or(self.old.as_ref()),
        };
        name.or(self.index.as_ref())
            .map_or_else(|| "?".to_owned(), |name| super::path::shown(name))
    }
}

/// Returns whether two lists of diffs are equal, wherever they stand in their patch files.
pub fn same_changes(one: Vec<FileDiff>, other: Vec<FileDiff>) -> bool {
    let without_lines = |mut files: Vec<FileDiff>| {
        for file in &mut files {
            file.line = 0;
            file.hunks.iter_mut().for_each(|hunk| hunk.line = 0);
        }
        files
    };
    without_lines(one) == without_lines(other)
}

/// Returns whether two lists of diffs remove and add the same lines of the same files, wherever these stand.
pub fn same_lines(one: &[FileDiff], other: &[FileDiff]) -> bool {
    let changed = |file: &FileDiff| -> Vec<Line> {
        let lines = file.hunks.iter().flat_map(|hunk| &hunk.lines);
        let changed = lines.filter(|line| line.change != LineChange::Context);
        changed.cloned().collect()
    };
    let same = |(one, other): (&FileDiff, &FileDiff)| {
        let facts = |file: &FileDiff| {
            let names = file.names().cloned().collect::<Vec<_>>();
            (names, file.new_mode, file.rename, file.before, file.after)
        };
        facts(one) == facts(other) && one.binary == other.binary && changed(one) == changed(other)
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// The change of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineChange {
    /// The line stays.
    Context,
    /// The line is removed.
    Remove,
    /// The line is added.
    Add,
}

/// A line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its change.
    pub change: LineChange,
    /// Its bytes, with the line end if it has one.
    pub text: Vec<u8>,
    /// For a context line whose two halves differ: the text in the half for the new file. Applying the hunk still keeps
    /// the file's own text.
    pub after: Option<Vec<u8>>,
}

impl Line {
    /// Creates a line that ends in a newline.
    pub fn new(change: LineChange, body: &[u8]) -> Self {
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
            LineChange::Context => LineChange::Context,
            LineChange::Remove => LineChange::Add,
            LineChange::Add => LineChange::Remove,
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

/// A run of changed lines with its context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hunk {
    /// The line of its `@@` in the patch file, counted from 1.
    pub line: usize,
    /// The first line that it replaces, counted from 1; if it replaces none, the preceding line plus 1.
    pub old_start: usize,
    /// The first line of the replacement, counted from 1; if it is empty, the preceding line plus 1.
    pub new_start: usize,
    /// Its lines.
    pub lines: Vec<Line>,
    /// Number of blank lines assumed at its end because the patch file ends inside the hunk.
    pub assumed: usize,
    /// Numbers of context lines at its beginning and end as its two halves count them, if they differ from the lines.
    pub edges: Option<(usize, usize)>,
}

impl Hunk {
    /// Returns the hunk that undoes this one.
    #[must_use]
    pub fn reversed(self) -> Hunk {
        Hunk {
            line: self.line,
            old_start: self.new_start,
            new_start: self.old_start,
            lines: self.lines.into_iter().map(Line::reversed).collect(),
            assumed: self.assumed,
            edges: self.edges,
        }
    }

    /// Returns the lines before the change.
    pub fn before(&self) -> impl Iterator<Item = &[u8]> {
        self.lines
            .iter()
            .filter(|line| line.change != LineChange::Add)
            .map(|line| line.text.as_slice())
    }

    /// Returns the lines after the change.
    pub fn after(&self) -> impl Iterator<Item = &[u8]> {
        self.lines
            .iter()
            .filter(|line| line.change != LineChange::Remove)
            .map(|line| line.after.as_ref().unwrap_or(&line.text).as_slice())
    }

    /// Returns whether it leaves no lines. Then no file can show that it was applied: reversed, it fits everywhere.
    pub fn leaves_nothing(&self) -> bool {
        self.after().next().is_none()
    }

    /// Returns the numbers of context lines at its beginning and end.
    pub fn context(&self) -> (usize, usize) {
        if let Some(edges) = self.edges {
            return edges;
        }
        let unchanged = |line: &&Line| line.change == LineChange::Context;
        let prefix = self.lines.iter().take_while(unchanged).count();
        let suffix = self.lines.iter().rev().take_while(unchanged).count();
        (prefix, suffix)
    }
}
