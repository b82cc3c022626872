//! Comparing and merging the lines of single files in memory.

use crate::upstream::store_error;
use git2::{DiffOptions, MergeFileInput, MergeFileOptions, Patch};

use perfquilt_model::error::{Error, Result};

/// The result of a 3-way merge of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeResult {
    /// The merged text.
    Clean(Vec<u8>),
    /// The conflicts, in order.
    Conflict(Vec<ConflictRegion>),
}

/// Lines that both sides changed differently.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConflictRegion {
    /// First line on our side, from 1.
    pub ours_start: usize,
    /// Our lines.
    pub ours: Vec<Vec<u8>>,
    /// First line in the common ancestor, from 1.
    pub base_start: usize,
    /// The ancestor's lines.
    pub base: Vec<Vec<u8>>,
    /// First line on their side, from 1.
    pub theirs_start: usize,
    /// Their lines.
    pub theirs: Vec<Vec<u8>>,
}

/// Merges the changes from `base` to `theirs` into `ours`.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a text is too large.
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<MergeResult> {
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
    if result.is_automergeable() {
        return Ok(MergeResult::Clean(result.content().to_vec()));
    }
    Ok(MergeResult::Conflict(regions(base, ours, theirs)?))
}

/// Returns the regions where both sides changed the same or adjacent lines differently, which make a merge fail.
fn regions(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Vec<ConflictRegion>> {
    let split = |text: &[u8]| -> Vec<Vec<u8>> {
        text.split_inclusive(|&b| b == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (our_runs, their_runs) = (line_runs(base, ours)?, line_runs(base, theirs)?);
    let (base, ours, theirs) = (split(base), split(ours), split(theirs));
    let mut all: Vec<(LineRun, bool)> = Vec::new();
    all.extend(our_runs.iter().map(|run| (*run, true)));
    all.extend(their_runs.iter().map(|run| (*run, false)));
    all.sort_by_key(|(run, _)| (run.old_start, run.old_start + run.old));
    let mut found = Vec::new();
    let mut rest = all.as_slice();
    while let Some((first, _)) = rest.first() {
        let mut end = first.old_start + first.old;
        let mut count = 1;
        while let Some((next, _)) = rest.get(count)
            && next.old_start <= end
        {
            end = end.max(next.old_start + next.old);
            count += 1;
        }
        let (cluster, after) = rest.split_at(count);
        rest = after;
        let from = first.old_start;
        let mine = side(&our_runs, from, end, &ours);
        let other = side(&their_runs, from, end, &theirs);
        let both = cluster.iter().any(|(_, ours)| *ours) && cluster.iter().any(|(_, ours)| !*ours);
        if both && mine.1 != other.1 {
            found.push(ConflictRegion {
                ours_start: mine.0 + 1,
                ours: mine.1,
                base_start: from + 1,
                base: base[from..end].to_vec(),
                theirs_start: other.0 + 1,
                theirs: other.1,
            });
        }
    }
    Ok(found)
}

/// Returns the start and the lines of one side that correspond to the ancestor's lines `from..end`. No run may cross
/// either border.
fn side(runs: &[LineRun], from: usize, end: usize, lines: &[Vec<u8>]) -> (usize, Vec<Vec<u8>>) {
    // The last of the `before` runs before a border determines its line on this side.
    let place = |border: usize, before: usize| {
        let last = before.checked_sub(1).map(|at| runs[at]);
        let there = last.map_or(border, |run| {
            border + run.new_start + run.new - run.old_start - run.old
        });
        there.min(lines.len())
    };
    let start = place(from, runs.partition_point(|run| run.old_start < from));
    let stop = place(
        end,
        runs.partition_point(|run| run.old_start + run.old <= end),
    );
    (start, lines[start..stop.max(start)].to_vec())
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
        assert_eq!(merged, MergeResult::Clean(b"A\nb\nc\nd\nE\n".to_vec()));
        assert_eq!(
            merge(b"", b"", b"x\n").unwrap(),
            MergeResult::Clean(b"x\n".to_vec())
        );
    }

    #[test]
    fn conflicts_have_places() {
        let MergeResult::Conflict(regions) = merge(
            b"1\n2\n3\n4\n5\n6\n",
            b"0\n1\n2\nX\n4\n5\n6\n",
            b"1\n2\nY\nZ\n4\n5\n6\n",
        )
        .unwrap() else {
            panic!()
        };
        assert_eq!(regions.len(), 1);
        let region = &regions[0];
        assert_eq!(region.ours_start, 4);
        assert_eq!(region.ours, [b"X\n".to_vec()]);
        assert_eq!(region.base, [b"3\n".to_vec()]);
        assert_eq!(region.theirs, [b"Y\n".to_vec(), b"Z\n".to_vec()]);
    }

    #[test]
    fn later_conflicts_are_where_earlier_changes_moved_them() {
        let base: Vec<String> = (0..40).map(|line| format!("{line}\n")).collect();
        let with = |changes: &[(usize, &str)]| -> Vec<u8> {
            let mut lines = base.clone();
            for (at, text) in changes {
                lines[*at] = (*text).to_owned();
            }
            lines.concat().into_bytes()
        };
        let ours = with(&[
            (0, "0\nnew\nnew\n"),
            (10, "ours\n"),
            (20, ""),
            (30, "30\nours\n"),
        ]);
        let theirs = with(&[(5, ""), (10, "theirs\nmore\n"), (30, "")]);
        let MergeResult::Conflict(regions) = merge(&with(&[]), &ours, &theirs).unwrap() else {
            panic!()
        };
        let places: Vec<_> = regions
            .iter()
            .map(|region| (region.base_start, region.ours_start, region.theirs_start))
            .collect();
        assert_eq!(places, [(11, 13, 10), (31, 32, 31)]);
        assert_eq!(regions[0].ours, [b"ours\n".to_vec()]);
        assert_eq!(
            regions[0].theirs,
            [b"theirs\n".to_vec(), b"more\n".to_vec()]
        );
        assert_eq!(regions[1].ours, [b"30\n".to_vec(), b"ours\n".to_vec()]);
        assert!(regions[1].theirs.is_empty());
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
