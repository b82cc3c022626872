//! Runs of lines in which two texts differ.

use std::ops::Range;

use git2::{DiffOptions, Patch};

use perfquilt_model::error::Result;
use perfquilt_series::upstream::store_error;

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

impl LineRun {
    /// Returns the old lines, from 0.
    pub fn old_lines(&self) -> Range<usize> {
        self.old_start..self.old_end()
    }

    /// Returns the new lines, from 0.
    pub fn new_lines(&self) -> Range<usize> {
        self.new_start..self.new_start + self.new
    }

    /// Returns the old line after the last one, from 0.
    pub fn old_end(&self) -> usize {
        self.old_start + self.old
    }
}

/// Returns the lines `part` of the old text with what replaces them in `runs`, each with its mark: ` `, `-` or `+`.
pub fn marked<'l, L>(
    old: &'l [L],
    new: &'l [L],
    runs: &[LineRun],
    part: Range<usize>,
) -> Vec<(char, &'l L)> {
    let mut found = Vec::new();
    let mut at = part.start;
    let mut add = |mark: char, lines: &'l [L]| found.extend(lines.iter().map(|line| (mark, line)));
    for run in runs {
        add(' ', &old[at..run.old_start]);
        add('-', &old[run.old_lines()]);
        add('+', &new[run.new_lines()]);
        at = run.old_end();
    }
    add(' ', &old[at..part.end]);
    found
}

/// Returns the runs of lines in which two texts differ.
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
