//! Judges hunks that apply by their context although git's merge conflicts.
//!
//! A context that occurs once in the old file and once in the new one names a place. Any other one may name another
//! function with the same lines, which nobody would notice; such a hunk needs a decision.

use std::collections::HashMap;

use super::function::function_at;
use super::three_way::{AmbiguousHunk, MergeTexts};
use crate::series::{FileDiff, Hunk};
use crate::stack::histogram::histogram_runs;
use crate::stack::line_runs::{LineRun, lines};
use crate::stack::merge::side;
use crate::stack::place::{HunkPosition, Placer, places};
use perfquilt_model::error::Result;
use perfquilt_model::rebase::CandidatePlace;

/// Maximum number of places listed for a hunk.
const MAX_PLACES: usize = 20;

/// What the contexts of a diff's hunks say about their places.
#[derive(Debug, Default)]
pub struct ContextJudgement {
    /// The hunks that may belong elsewhere than where they apply.
    pub ambiguous: Vec<AmbiguousHunk>,
    /// Whether a hunk's lines occur once, but seem to be others than those that it was made for.
    pub is_doubtful: bool,
}

/// Judges the hunks of `diff`, which applies to both releases' files, by their contexts.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a text is too large.
pub fn judge(
    diff: &FileDiff,
    texts: &MergeTexts,
    path: &[u8],
    fuzz: usize,
) -> Result<ContextJudgement> {
    let (base, ours) = (lines(&texts.base), lines(&texts.ours));
    let runs = histogram_runs(&base, &ours)?;
    let mut old = Placer::new(&texts.base);
    let mut new = Placer::new(&texts.ours);
    let (old_lines, new_lines) = (UniqueLines::new(&base), UniqueLines::new(&ours));
    let mut found = ContextJudgement::default();
    for (index, hunk) in diff.hunks.iter().enumerate() {
        let (was, is) = (old.apply(hunk, fuzz), new.apply(hunk, 0));
        let positions = was.zip(is);
        let lands_there = |(was, is)| corresponds(hunk, was, is, &runs, ours.len());
        if positions.is_some_and(lands_there) {
            continue;
        }
        let old_count = places(&texts.base, hunk).len();
        let there = places(&texts.ours, hunk);
        let changed = hunk.context().0;
        if let Some((was, is)) = positions
            && old_count == 1
            && there.len() == 1
        {
            let (from, to) = (was.line - 1, is.line - 1);
            let lines = hunk.before().count();
            let after = lines - hunk.context().1.min(lines);
            let other_lines = (0..lines).any(|line| {
                let kept = kept_line(&runs, from + line, ours.len());
                kept.is_some_and(|kept| kept != to + line)
            });
            let other_place = old_lines.around(from + changed, from + after)
                != new_lines.around(to + changed, to + after);
            found.is_doubtful |= other_lines || other_place;
            continue;
        }
        let place = |line: &usize| CandidatePlace {
            line: *line,
            function: function_at(&ours, line - 1 + changed),
        };
        found.ambiguous.push(AmbiguousHunk {
            file: path.to_vec(),
            number: index + 1,
            of: diff.hunks.len(),
            old_count,
            count: there.len(),
            places: there.iter().take(MAX_PLACES).map(place).collect(),
            function: was.and_then(|was| function_at(&base, was.line - 1 + changed)),
        });
    }
    Ok(found)
}

/// The lines of a text that occur once, such as the beginnings of functions.
struct UniqueLines<'a> {
    lines: &'a [&'a [u8]],
    counts: HashMap<&'a [u8], usize>,
}

impl<'a> UniqueLines<'a> {
    fn new(lines: &'a [&'a [u8]]) -> Self {
        let mut counts = HashMap::new();
        for line in lines {
            *counts.entry(*line).or_default() += 1;
        }
        UniqueLines { lines, counts }
    }

    fn is_unique(&self, line: &[u8]) -> bool {
        self.counts.get(line) == Some(&1) && line.iter().any(u8::is_ascii_alphanumeric)
    }

    /// Returns the last one before line `first`, and the first one from line `end` on.
    fn around(&self, first: usize, end: usize) -> [Option<&'a [u8]>; 2] {
        let is_unique = |line: &&'a [u8]| self.is_unique(line);
        [
            self.lines[..first].iter().copied().rfind(is_unique),
            self.lines[end..].iter().copied().find(is_unique),
        ]
    }
}

/// Returns our line that a line of the ancestor corresponds to, if upstream kept it.
fn kept_line(runs: &[LineRun], line: usize, count: usize) -> Option<usize> {
    let is_changed = |run: &LineRun| run.old_start <= line && line < run.old_start + run.old;
    (!runs.iter().any(is_changed)).then(|| side(runs, line, line + 1, count).start)
}

/// Returns whether a hunk lands on the lines that it was made for, all of them unchanged.
fn corresponds(
    hunk: &Hunk,
    was: HunkPosition,
    is: HunkPosition,
    runs: &[LineRun],
    count: usize,
) -> bool {
    let from = was.line - 1;
    let end = from + hunk.before().count();
    let is_outside = |run: &LineRun| run.old_start + run.old <= from || end <= run.old_start;
    runs.iter().all(is_outside) && side(runs, from, end, count).start == is.line - 1
}
