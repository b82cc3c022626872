//! Judges hunks that apply by their context although git's merge conflicts.
//!
//! A context that occurs once in the old file and once in the new one names a place. Any other one may name another
//! function with the same lines, which nobody would notice; such a hunk needs a decision.

use std::collections::HashMap;

use super::function::Functions;
use super::three_way::{AmbiguousHunk, MergeTexts};
use crate::histogram::compare;
use crate::line_runs::LineRun;
use crate::merge::side;
use perfquilt_model::error::Result;
use perfquilt_model::rebase::CandidatePlace;
use perfquilt_series::series::text::lines;
use perfquilt_series::series::{FileDiff, Hunk};
use perfquilt_series::stack::place::{HunkPlaces, HunkPosition, Placer};

/// Maximum number of places listed for a hunk.
const MAX_PLACES: usize = 20;

/// Evidence from the contexts of a diff's hunks about their places.
#[derive(Debug, Default)]
pub struct ContextJudgement {
    /// The hunks that may belong elsewhere than where they apply.
    pub ambiguous: Vec<AmbiguousHunk>,
    /// Whether a hunk's lines occur once, but seem to be others than those that it was made for.
    pub is_doubtful: bool,
}

/// Judges the hunks of `diff`, which applies to both releases' files, by their contexts.
pub fn judge(
    diff: &FileDiff,
    texts: &MergeTexts,
    path: &[u8],
    fuzz: usize,
) -> Result<ContextJudgement> {
    let (base, ours) = (lines(&texts.base), lines(&texts.ours));
    let comparison = compare(&base, &ours)?;
    let runs = comparison.runs;
    let mut old = Placer::new(&texts.base);
    let mut new = Placer::new(&texts.ours);
    let (old_lines, new_lines) = (UniqueLines::new(&base), UniqueLines::new(&ours));
    let was_in = Functions::new(diff.old.as_deref().unwrap_or(path), &base);
    let is_in = Functions::new(path, &ours);
    let (old_places, new_places) = (HunkPlaces::new(&texts.base), HunkPlaces::new(&texts.ours));
    let mut found = ContextJudgement {
        is_doubtful: comparison.is_cut_short,
        ..ContextJudgement::default()
    };
    for (index, hunk) in diff.hunks.iter().enumerate() {
        let (was, is) = (old.apply(hunk, fuzz), new.apply(hunk, 0));
        let positions = was.zip(is);
        let lands_there = |(was, is)| corresponds(hunk, was, is, &runs, ours.len());
        if positions.is_some_and(lands_there) {
            continue;
        }
        let old_count = old_places.of(hunk, was.map_or(0, |was| was.fuzz)).len();
        let there = new_places.of(hunk, 0);
        let changed = hunk.context().0;
        if let Some((was, is)) = positions
            && old_count == 1
            && there.len() == 1
            && hunk.before().next().is_some()
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
            function: is_in.at(line - 1 + changed),
        };
        found.ambiguous.push(AmbiguousHunk {
            file: path.to_vec(),
            number: index + 1,
            hunks: diff.hunks.len(),
            old_count,
            count: there.len(),
            places: there.iter().take(MAX_PLACES).map(place).collect(),
            function: was.and_then(|was| was_in.at(was.line - 1 + changed)),
        });
    }
    Ok(found)
}

/// The lines of a text that occur once, such as the beginnings of functions.
struct UniqueLines<'a> {
    lines: &'a [&'a [u8]],
    /// Their numbers, from 0.
    unique: Vec<usize>,
}

impl<'a> UniqueLines<'a> {
    fn new(lines: &'a [&'a [u8]]) -> Self {
        let mut counts: HashMap<&[u8], usize> = HashMap::new();
        for line in lines {
            *counts.entry(*line).or_default() += 1;
        }
        let is_unique = |at: &usize| {
            let line = lines[*at];
            counts.get(line) == Some(&1) && line.iter().any(u8::is_ascii_alphanumeric)
        };
        UniqueLines {
            lines,
            unique: (0..lines.len()).filter(is_unique).collect(),
        }
    }

    /// Returns the last one before line `first`, and the first one from line `end` on.
    fn around(&self, first: usize, end: usize) -> [Option<&'a [u8]>; 2] {
        let before = self.unique.partition_point(|&at| at < first).checked_sub(1);
        let after = self.unique.partition_point(|&at| at < end);
        let line = |at: usize| self.unique.get(at).map(|&line| self.lines[line]);
        [before.and_then(line), line(after)]
    }
}

/// Returns our line that a line of the ancestor corresponds to, if upstream kept it.
fn kept_line(runs: &[LineRun], line: usize, count: usize) -> Option<usize> {
    // The last run that begins at the line or before it.
    let before = runs.partition_point(|run| run.old_start <= line);
    let is_changed = |run: &LineRun| line < run.old_end();
    let changed = runs[..before].last().is_some_and(is_changed);
    (!changed).then(|| side(runs, line, line + 1, count).start)
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
    if from == end {
        // An insertion without context belongs between two lines, and upstream may have inserted there, too.
        let touches = |run: &LineRun| run.old_start <= from && from <= run.old_end();
        return !runs.iter().any(touches) && side(runs, from, end, count).start == is.line - 1;
    }
    // The first run that ends after the hunk's first line.
    let next = runs.partition_point(|run| run.old_end() <= from);
    let is_outside = |run: &LineRun| end <= run.old_start;
    runs.get(next).is_none_or(is_outside) && side(runs, from, end, count).start == is.line - 1
}
