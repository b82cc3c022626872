//! Comparing and merging the lines of single files in memory.

use std::ops::Range;

use crate::upstream::store_error;
use git2::{DiffOptions, MergeFileInput, MergeFileOptions, Patch};

use perfquilt_model::error::{Error, Result};

/// Merges the changes from `base` to `theirs` into `ours` as git does; `None` if they conflict.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a text is too large.
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Option<Vec<u8>>> {
    // Unlike other functions of git2, `merge_file` does not initialise libgit2.
    let _started = git2::Buf::new();
    let mut options = MergeFileOptions::new();
    let input = |content| {
        let mut input = MergeFileInput::new();
        input.content(content);
        input
    };
    // libgit2 requires a valid pointer even for an empty text.
    fn some(content: &[u8]) -> &[u8] {
        if content.is_empty() { b"" } else { content }
    }
    let (base_input, ours_input, theirs_input) =
        (input(some(base)), input(some(ours)), input(some(theirs)));
    let result = git2::merge_file(&base_input, &ours_input, &theirs_input, Some(&mut options))
        .map_err(|error| Error::internal(format!("cannot merge: {}", error.message())))?;
    Ok(result.is_automergeable().then(|| result.content().to_vec()))
}

/// Returns the lines of one side, from 0 and of `count`, that correspond to the ancestor's lines `from..end`. No run may
/// cross either border.
pub fn side(runs: &[LineRun], from: usize, end: usize, count: usize) -> Range<usize> {
    // The last of the `before` runs before a border determines its line on this side.
    let place = |border: usize, before: usize| {
        let last = before.checked_sub(1).map(|at| runs[at]);
        let there = last.map_or(border, |run| {
            border + run.new_start + run.new - run.old_start - run.old
        });
        there.min(count)
    };
    let start = place(from, runs.partition_point(|run| run.old_start < from));
    let stop = place(
        end,
        runs.partition_point(|run| run.old_start + run.old <= end),
    );
    start..stop.max(start)
}

/// A run of differing lines: `old` lines from `old_start` became `new` lines from `new_start` (both counted from 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRun {
    /// First old line, from 0.
    pub old_start: usize,
    /// Number of old lines.
    pub old: usize,
    /// First new line, from 0.
    pub new_start: usize,
    /// Number of new lines.
    pub new: usize,
}

/// Returns the runs of lines in which two texts differ.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a text is too large.
pub fn line_runs(old: &[u8], new: &[u8]) -> Result<Vec<LineRun>> {
    let mut options = DiffOptions::new();
    options.context_lines(0).interhunk_lines(0).force_text(true);
    let patch =
        Patch::from_buffers(old, None, new, None, Some(&mut options)).map_err(store_error)?;
    let mut found = Vec::new();
    for index in 0..patch.num_hunks() {
        let (hunk, _) = patch.hunk(index).map_err(store_error)?;
        // For a side without lines, git gives the line before.
        let start = |start: u32, lines: u32| (start as usize + usize::from(lines == 0)).max(1) - 1;
        found.push(LineRun {
            old_start: start(hunk.old_start(), hunk.old_lines()),
            old: hunk.old_lines() as usize,
            new_start: start(hunk.new_start(), hunk.new_lines()),
            new: hunk.new_lines() as usize,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_changes_come_together() {
        let merged = merge(b"a\nb\nc\nd\ne\n", b"A\nb\nc\nd\ne\n", b"a\nb\nc\nd\nE\n").unwrap();
        assert_eq!(merged, Some(b"A\nb\nc\nd\nE\n".to_vec()));
        assert_eq!(merge(b"", b"", b"x\n").unwrap(), Some(b"x\n".to_vec()));
        assert_eq!(merge(b"a\n", b"b\n", b"c\n").unwrap(), None);
    }

    #[test]
    fn runs_have_places() {
        let run = |old_start, old, new_start, new| LineRun {
            old_start,
            old,
            new_start,
            new,
        };
        assert_eq!(
            line_runs(b"a\nb\nc\n", b"a\nc\n").unwrap(),
            [run(1, 1, 1, 0)]
        );
        assert_eq!(
            line_runs(b"a\nc\n", b"a\nb\nc\n").unwrap(),
            [run(1, 0, 1, 1)]
        );
        assert_eq!(line_runs(b"", b"x\n").unwrap(), [run(0, 0, 0, 1)]);
        assert_eq!(line_runs(b"a\nb\n", b"a\nB\n").unwrap(), [run(1, 1, 1, 1)]);
        assert_eq!(line_runs(b"same\n", b"same\n").unwrap(), []);
    }
}
