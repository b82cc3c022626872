//! Resolves conflicts of lines that git's merge leaves open.
//!
//! White space that upstream changed is no difference, and a change that upstream's lines already contain needs no
//! second one. The other rules guess what the patch means where both sides touched neighbouring lines or words, or where
//! upstream moved the lines; a person reviews their results.

use std::collections::{BTreeMap, BTreeSet};

use super::guarded::PatchedPlace;
use super::squeezed::{SqueezedLines, distinctive, indent, squeezed, without_blanks};
use crate::histogram::histogram_runs;
use crate::line_runs::{LineRun, line_runs};
use crate::merge::{Cluster, clusters, side};
use perfquilt_model::error::Result;
use perfquilt_series::series::text::lines as split;

/// A rule that resolved a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Upstream changed only white space in the lines that the patch changes.
    Blanks,
    /// Upstream's lines contain the patch's change.
    Already,
    /// Upstream changed the lines next to those that the patch changes.
    Adjacent,
    /// Upstream and the patch changed different words of the same lines.
    Words,
    /// Both sides added different lines at the same place.
    Both,
    /// Upstream changed the indentation on one side of the patch's lines only, so that they may belong to another block.
    Block,
    /// Upstream moved the lines within the file.
    Moved,
    /// Git's merge, where two algorithms disagree on which lines correspond.
    Disputed,
    /// A merge of files whose lines repeat too much to be compared as git does.
    Repetitive,
    /// Upstream changed the file's line ends, and the patch's lines take them.
    LineEnds,
    /// Upstream moved the file that the patch deletes.
    DeletedMoved,
}

impl Rule {
    /// Returns what happened, and whether a person has to review the result.
    fn sentence(self) -> (bool, &'static str) {
        match self {
            Rule::Blanks => (false, "upstream changed white space in its lines"),
            Rule::Already => (false, "the release has a part of it"),
            Rule::LineEnds => (
                false,
                "upstream changed the file's line ends, and its lines take them",
            ),
            Rule::Disputed => (
                false,
                "its lines repeat, and git's two algorithms disagree on the place: check it",
            ),
            Rule::Adjacent => (true, "upstream changed the lines next to the patch's"),
            Rule::Words => (true, "upstream changed other words of the patch's lines"),
            Rule::Both => (true, "upstream added other lines where the patch adds some"),
            Rule::Block => (
                true,
                "upstream changed the indentation on one side of its lines only",
            ),
            Rule::Moved => (true, "upstream moved the patch's lines within the file"),
            Rule::DeletedMoved => (true, "upstream moved a file that the patch deletes"),
            Rule::Repetitive => (
                true,
                "the file repeats so many lines that their places are uncertain",
            ),
        }
    }

    /// Returns what happened, for a result that a person has to review; `None` if the result is certain.
    pub fn review(self) -> Option<&'static str> {
        let (needs_review, what) = self.sentence();
        needs_review.then_some(what)
    }

    /// Returns the remark on a result that is certain.
    pub fn note(self) -> Option<&'static str> {
        let (needs_review, what) = self.sentence();
        (!needs_review).then_some(what)
    }
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

/// The result of [`merge_loosely`].
#[derive(Debug)]
pub struct LooseMerge {
    /// The merged text and the rules that it took; `None` if no rule resolves a conflict.
    pub result: Option<(Vec<u8>, BTreeSet<Rule>)>,
    /// The conflicts that no rule resolves, or all conflicts if the rules resolve them.
    pub regions: Vec<ConflictRegion>,
}

/// Lines of the other side to write over `count` lines of ours from `start` (from 0).
struct LineEdit {
    start: usize,
    count: usize,
    lines: Vec<Vec<u8>>,
}

/// Number of lines around a change that must be found with it when it moved.
const CONTEXT: usize = 3;
/// Minimum number of letters and digits in lines that are searched for.
const MIN_DISTINCTIVE: usize = 10;
/// Minimum number of letters and digits in added lines that replace others.
const MIN_REPLACEMENT: usize = 4;
/// Minimum share of a region's words that upstream must have kept for a merge of words.
const MIN_KEPT_WORDS: f64 = 0.5;
/// Minimum number of a region's words that upstream must have kept.
const MIN_WORDS: usize = 3;
/// Maximum number of separate changes of a file for which rules are tried.
const MAX_CLUSTERS: usize = 1000;
/// Maximum number of lines on a side for a merge of words.
const MAX_WORD_LINES: usize = 60;

/// Merges the changes from `base` to `theirs` into `ours`, by the rules above where git's merge fails.
pub fn merge_loosely(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<LooseMerge> {
    let merge = LineMerge::new(base, ours, theirs)?;
    let mut edits = Vec::new();
    let mut rules = BTreeSet::new();
    let mut open = Vec::new();
    let mut clusters = merge.clusters();
    clusters.retain(|cluster| !cluster.theirs.is_empty());
    if clusters.len() > MAX_CLUSTERS {
        return Ok(LooseMerge {
            result: None,
            regions: merge.conflicts(),
        });
    }
    let has_blanks = clusters
        .iter()
        .any(|cluster| merge.is_beside_blanks(cluster));
    for cluster in &clusters {
        if let Some((mut more, rule)) = merge.resolve(cluster)? {
            edits.append(&mut more);
            rules.extend(rule);
        } else {
            open.push(merge.region(cluster));
        }
    }
    if rules.is_empty() && open.is_empty() {
        // Git's merge is not clean: either white space beside the patch's lines differs, or the comparison without white
        // space finds these lines elsewhere. That proves nothing if they are at several places.
        if has_blanks {
            rules.insert(Rule::Blanks);
        } else if clusters.iter().all(|cluster| merge.is_once(cluster)) {
            rules.insert(Rule::Moved);
        } else {
            open.extend(clusters.iter().map(|cluster| merge.region(cluster)));
        }
    }
    edits.sort_by_key(|edit| (edit.start, edit.count));
    let overlaps = |pair: &[LineEdit]| pair[0].start + pair[0].count > pair[1].start;
    let resolved = open.is_empty() && !edits.windows(2).any(overlaps);
    if open.is_empty() {
        open = merge.conflicts();
    }
    Ok(LooseMerge {
        result: resolved.then(|| (merge.apply(&edits), rules)),
        regions: open,
    })
}

/// Lines of one side.
struct SideLines<'l, 'a> {
    /// The first line, from 0.
    start: usize,
    lines: &'l [&'a [u8]],
}

/// Three versions of a text, by lines.
struct LineMerge<'a> {
    base: Vec<&'a [u8]>,
    ours: Vec<&'a [u8]>,
    theirs: Vec<&'a [u8]>,
    /// Our lines without white space, each after a line end.
    our_text: Vec<u8>,
    /// Our changes except those of white space.
    our_runs: Vec<LineRun>,
    their_runs: Vec<LineRun>,
}

impl<'a> LineMerge<'a> {
    fn new(base: &'a [u8], ours: &'a [u8], theirs: &'a [u8]) -> Result<Self> {
        let (base_lines, our_lines) = (split(base), split(ours));
        let our_text = without_blanks(&our_lines);
        let base_text = without_blanks(&base_lines);
        let their_lines = split(theirs);
        Ok(LineMerge {
            our_runs: histogram_runs(&split(&base_text), &split(&our_text))?,
            our_text: [b"\n".as_slice(), &our_text].concat(),
            their_runs: histogram_runs(&base_lines, &their_lines)?,
            base: base_lines,
            ours: our_lines,
            theirs: their_lines,
        })
    }

    fn clusters(&self) -> Vec<Cluster> {
        clusters(&self.our_runs, &self.their_runs)
    }

    /// Returns our and their lines for the ancestor's lines of a cluster.
    fn sides(&self, cluster: &Cluster) -> (SideLines<'_, 'a>, SideLines<'_, 'a>) {
        let mine = cluster.side(&self.our_runs, self.ours.len());
        let other = cluster.side(&self.their_runs, self.theirs.len());
        (
            SideLines {
                start: mine.start,
                lines: &self.ours[mine],
            },
            SideLines {
                start: other.start,
                lines: &self.theirs[other],
            },
        )
    }

    /// Returns whether both texts have the cluster's lines once, with the lines around them that correspond to ours.
    fn is_once(&self, cluster: &Cluster) -> bool {
        let mine = cluster.side(&self.our_runs, self.ours.len());
        let is_same = |base: Option<usize>, ours: Option<usize>| {
            let lines = base.zip(ours);
            let lines = lines.and_then(|(base, ours)| self.base.get(base).zip(self.ours.get(ours)));
            lines.is_some_and(|(base, ours)| squeezed(&[base]) == squeezed(&[ours]))
        };
        let before = (1..=CONTEXT)
            .take_while(|n| is_same(cluster.from.checked_sub(*n), mine.start.checked_sub(*n)))
            .count();
        let after = (0..CONTEXT)
            .take_while(|n| is_same(Some(cluster.end + n), Some(mine.end + n)))
            .count();
        let lines = &self.base[cluster.from - before..cluster.end + after];
        let wanted = [b"\n".as_slice(), &without_blanks(lines)].concat();
        let base_text = [b"\n".as_slice(), &without_blanks(&self.base)].concat();
        let is_once = |text: &[u8]| {
            let first = memchr::memmem::find(text, &wanted);
            // A place that begins within another one counts too.
            first.is_some_and(|at| memchr::memmem::find(&text[at + 1..], &wanted).is_none())
        };
        distinctive(&wanted) >= 3 * MIN_DISTINCTIVE
            && is_once(&self.our_text)
            && is_once(&base_text)
    }

    /// Returns whether upstream changed white space in the lines next to a cluster's.
    fn is_beside_blanks(&self, cluster: &Cluster) -> bool {
        let mine = cluster.side(&self.our_runs, self.ours.len());
        let differs = |base: Option<&&[u8]>, ours: Option<&&[u8]>| {
            base.zip(ours)
                .is_some_and(|(base, ours)| base != ours && squeezed(&[base]) == squeezed(&[ours]))
        };
        let before = cluster.from.checked_sub(1).zip(mine.start.checked_sub(1));
        before.is_some_and(|(base, ours)| differs(self.base.get(base), self.ours.get(ours)))
            || differs(self.base.get(cluster.end), self.ours.get(mine.end))
    }

    fn region(&self, cluster: &Cluster) -> ConflictRegion {
        let (ours, theirs) = self.sides(cluster);
        ConflictRegion {
            ours_start: ours.start + 1,
            ours: owned(ours.lines),
            base_start: cluster.from + 1,
            base: owned(&self.base[cluster.from..cluster.end]),
            theirs_start: theirs.start + 1,
            theirs: owned(theirs.lines),
        }
    }

    fn conflicts(&self) -> Vec<ConflictRegion> {
        let clusters = self.clusters();
        let both = clusters
            .iter()
            .filter(|cluster| !cluster.ours.is_empty() && !cluster.theirs.is_empty());
        both.map(|cluster| self.region(cluster)).collect()
    }

    /// Returns the edits of our lines that make the patch's change, and the rule that found them.
    fn resolve(&self, cluster: &Cluster) -> Result<Option<(Vec<LineEdit>, Option<Rule>)>> {
        let (ours, theirs) = self.sides(cluster);
        let (start, ours, theirs) = (ours.start, ours.lines, theirs.lines);
        let base = &self.base[cluster.from..cluster.end];
        // White space that the patch is about is no detail; blank lines beside other changes are.
        let text = squeezed(base);
        let is_of_blanks =
            text == squeezed(theirs) && (!text.is_empty() || self.is_patch_of_blanks());
        if cluster.ours.is_empty() {
            if is_of_blanks && base != ours {
                return Ok(None);
            }
            let (lines, changed) = self.reindented(cluster, start, theirs);
            let edit = LineEdit {
                start,
                count: ours.len(),
                lines,
            };
            let blanks = changed || base != ours;
            let rule = if !theirs.is_empty() && self.is_between_blocks(cluster, start) {
                Some(Rule::Block)
            } else {
                blanks.then_some(Rule::Blanks)
            };
            return Ok(Some((vec![edit], rule)));
        }
        let is_there =
            squeezed(ours) == squeezed(theirs) || self.contains(cluster, ours, theirs)?;
        if is_there && !is_of_blanks {
            return Ok(Some((Vec::new(), Some(Rule::Already))));
        }
        if let Some(edit) = self.moved(cluster) {
            return Ok(Some((vec![edit], Some(Rule::Moved))));
        }
        if let Some(edits) = self.adjacent(cluster) {
            return Ok(Some((edits, Some(Rule::Adjacent))));
        }
        let whole = |lines| LineEdit {
            start,
            count: ours.len(),
            lines,
        };
        if let Some(lines) = merge_words(base, ours, theirs)? {
            return Ok(Some((vec![whole(lines)], Some(Rule::Words))));
        }
        if base.is_empty() && !share_lines(ours, theirs) {
            let lines = owned(&[ours, theirs].concat());
            return Ok(Some((vec![whole(lines)], Some(Rule::Both))));
        }
        Ok(None)
    }

    /// Returns whether the patch changes nothing but white space.
    fn is_patch_of_blanks(&self) -> bool {
        self.their_runs.iter().all(|run| {
            let removed = &self.base[run.old_lines()];
            let added = &self.theirs[run.new_lines()];
            squeezed(removed) == squeezed(added)
        })
    }

    /// Returns line `line` of the ancestor and our line that corresponds to it, if only their white space may differ;
    /// `start` is our line at the begin of the cluster.
    fn pair(&self, cluster: &Cluster, start: usize, line: usize) -> Option<(&[u8], &[u8])> {
        let mine = (line + start).checked_sub(cluster.from)?;
        let (base, ours) = (*self.base.get(line)?, *self.ours.get(mine)?);
        let same = squeezed(&[base]) == squeezed(&[ours]) && !base.trim_ascii().is_empty();
        same.then_some((base, ours))
    }

    /// Returns whether the lines around a cluster had the same indentation and no longer have it, or upstream changed that
    /// of one of them only.
    fn is_between_blocks(&self, cluster: &Cluster, start: usize) -> bool {
        let indents = |line: usize| {
            let (base, ours) = self.pair(cluster, start, line)?;
            Some((indent(base), indent(ours)))
        };
        let before = cluster.from.checked_sub(1).and_then(indents);
        let around = before.zip(indents(cluster.end));
        around.is_some_and(|(before, after)| {
            // No indentation stays none, whatever one is made of.
            let is_one = !before.0.is_empty()
                && !after.0.is_empty()
                && (before.0 == before.1) != (after.0 == after.1);
            is_one || before.0 == after.0 && before.1 != after.1
        })
    }

    /// Returns the patch's lines with upstream's indentation, and whether that changed any.
    fn reindented(
        &self,
        cluster: &Cluster,
        start: usize,
        theirs: &[&[u8]],
    ) -> (Vec<Vec<u8>>, bool) {
        // Lines of the cluster and around it that correspond to each other, nearest first.
        let mut indents: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        let mut ends = None;
        let before = cluster.from.saturating_sub(CONTEXT)..cluster.from;
        let lines = (cluster.from..cluster.end + CONTEXT).chain(before.rev());
        for line in lines {
            if let Some((base, ours)) = self.pair(cluster, start, line) {
                indents.entry(indent(base)).or_insert(indent(ours));
                ends.get_or_insert((has_cr(base), has_cr(ours)));
            }
        }
        let mut changed = false;
        let mut lines: Vec<Vec<u8>> = theirs
            .iter()
            .map(|line| {
                let longest = indents
                    .iter()
                    .rev()
                    .find(|(old, _)| indent(line).starts_with(old));
                let line = match longest {
                    Some((old, new)) if old != new && !line.trim_ascii().is_empty() => {
                        changed = true;
                        [*new, &line[old.len()..]].concat()
                    }
                    _ => line.to_vec(),
                };
                match ends {
                    Some((old, new)) if old != new => {
                        changed = true;
                        with_end(&line, new)
                    }
                    _ => line,
                }
            })
            .collect();
        // Whether the last line has an end is upstream's choice, too, unless the patch changes it.
        let ended = |last: Option<&&[u8]>| last.is_some_and(|line| line.ends_with(b"\n"));
        let (base, ours) = (ended(self.base.last()), ended(self.ours.last()));
        if cluster.end == self.base.len()
            && base != ours
            && let Some(last) = lines.last_mut()
            && last.ends_with(b"\n") == base
        {
            changed = true;
            if ours {
                last.push(b'\n');
            } else {
                last.pop();
            }
        }
        (lines, changed)
    }

    /// Returns whether `ours`, our lines of a cluster, contain every change that the patch makes there, as often as
    /// `theirs` do.
    fn contains(&self, cluster: &Cluster, ours: &[&[u8]], theirs: &[&[u8]]) -> Result<bool> {
        let place = PatchedPlace::new(theirs, ours);
        let base = SqueezedLines::new(&self.base[cluster.from..cluster.end]);
        let patched = SqueezedLines::new(theirs);
        for run in &cluster.theirs {
            let removed = &self.base[run.old_lines()];
            let added = &self.theirs[run.new_lines()];
            let added_text = squeezed(added);
            if squeezed(removed) == added_text {
                return Ok(false);
            }
            let gone = removed.iter().all(|line| {
                let line = squeezed(&[line]);
                line.len() < 3 || contains(&added_text, &line) || place.text().count(&line) == 0
            });
            let is_there = if added_text.is_empty() {
                // Only upstream's removal of the same lines is the same change.
                let text = squeezed(ours);
                let is_same = !text.is_empty() && base.count(&text) > 0;
                is_same && distinctive(&squeezed(removed)) > 0
            } else {
                let least = if removed.is_empty() {
                    MIN_DISTINCTIVE
                } else {
                    MIN_REPLACEMENT
                };
                // A line may begin as the patch's does and go on as the one that it removes.
                let there = place.count(&added_text)?;
                let is_new = !removed.is_empty() || there > base.count_whole(&added_text);
                distinctive(&added_text) >= least
                    && is_new
                    && there >= patched.count_whole(&added_text)
            };
            if !gone || !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the edit at the only other place of our text that has the cluster's lines and those around them.
    fn moved(&self, cluster: &Cluster) -> Option<LineEdit> {
        let from = cluster.theirs.first()?.old_start.saturating_sub(CONTEXT);
        let last = cluster.theirs.last()?;
        let end = (last.old_end() + CONTEXT).min(self.base.len());
        // Where upstream changed nothing within these lines, their only place is their own.
        let is_within = |our: &LineRun| from < our.old_end() && our.old_start < end;
        if !self.our_runs.iter().any(is_within) {
            return None;
        }
        let wanted = [b"\n".as_slice(), &without_blanks(&self.base[from..end])].concat();
        if distinctive(&wanted) < 3 * MIN_DISTINCTIVE {
            return None;
        }
        // A place that begins within another one counts too.
        let find = |at: usize| memchr::memmem::find(&self.our_text[at..], &wanted);
        let first = find(0)?;
        if find(first + 1).is_some() {
            return None;
        }
        let start = memchr::memchr_iter(b'\n', &self.our_text[..first]).count();
        let lines = side(&self.their_runs, from, end, self.theirs.len());
        Some(LineEdit {
            start,
            count: end - from,
            lines: owned(&self.theirs[lines]),
        })
    }

    /// Returns the edits for a cluster whose changes touch and do not overlap.
    fn adjacent(&self, cluster: &Cluster) -> Option<Vec<LineEdit>> {
        let separate = cluster.theirs.iter().all(|their| {
            cluster.ours.iter().all(|our| {
                let (their_end, our_end) = (their.old_end(), our.old_end());
                let before = their_end <= our.old_start || our_end <= their.old_start;
                // Of two insertions at one place, neither is the first.
                before && !(their.old == 0 && our.old == 0)
            })
        });
        if !separate {
            return None;
        }
        let edits = cluster.theirs.iter().map(|run| {
            let place = side(
                &self.our_runs,
                run.old_start,
                run.old_end(),
                self.ours.len(),
            );
            // A change of ours that ends or begins here is not part of the place.
            let kept = cluster.ours.iter().map(|our| (our.new_start, our.new));
            let (mut start, mut end) = (place.start, place.end);
            for (first, count) in kept {
                if count > 0 && first <= start && start < first + count && first + count <= end {
                    start = first + count;
                }
                if count > 0 && start <= first && first < end && end <= first + count {
                    end = first;
                }
            }
            let lines = &self.theirs[run.new_lines()];
            (end.saturating_sub(start) == run.old).then(|| LineEdit {
                start,
                count: run.old,
                lines: owned(lines),
            })
        });
        edits.collect()
    }

    fn apply(&self, edits: &[LineEdit]) -> Vec<u8> {
        let mut text = Vec::new();
        let mut at = 0;
        for edit in edits {
            text.extend_from_slice(&self.ours[at..edit.start].concat());
            text.extend_from_slice(&edit.lines.concat());
            at = edit.start + edit.count;
            // Only the last line of a text may have no end.
            if at < self.ours.len() && text.last().is_some_and(|&byte| byte != b'\n') {
                text.push(b'\n');
            }
        }
        text.extend_from_slice(&self.ours[at..].concat());
        text
    }
}

/// Merges the words of a region's lines; `None` if both sides changed the same or neighbouring words, or upstream
/// changed most of them.
fn merge_words(base: &[&[u8]], ours: &[&[u8]], theirs: &[&[u8]]) -> Result<Option<Vec<Vec<u8>>>> {
    if base.is_empty()
        || [base, ours, theirs]
            .iter()
            .any(|side| side.len() > MAX_WORD_LINES)
    {
        return Ok(None);
    }
    let (base, ours, theirs) = (words(base), words(ours), words(theirs));
    let runs = |new: &[Vec<u8>]| line_runs(&as_lines(&base), &as_lines(new));
    let (our_runs, their_runs) = (runs(&ours)?, runs(&theirs)?);
    let solid = |words: &[Vec<u8>]| words.iter().filter(|word| !is_blank(word)).count();
    let lost: usize = our_runs
        .iter()
        .map(|run| solid(&base[run.old_lines()]))
        .sum();
    let all = solid(&base);
    let kept = all - lost;
    if kept < MIN_WORDS || (kept as f64) < MIN_KEPT_WORDS * all as f64 {
        return Ok(None);
    }
    // Words that neither side changed must separate the changes.
    let separate = |a: &LineRun, b: &LineRun| {
        let end = a.old_end();
        end < b.old_start && solid(&base[end..b.old_start]) > 0
    };
    let independent = their_runs.iter().all(|their| {
        our_runs
            .iter()
            .all(|our| separate(their, our) || separate(our, their))
    });
    if !independent {
        return Ok(None);
    }
    let mut merged: Vec<u8> = Vec::new();
    let mut at = 0;
    for run in &their_runs {
        let place = side(&our_runs, run.old_start, run.old_end(), ours.len());
        merged.extend_from_slice(&ours[at..place.start].concat());
        merged.extend_from_slice(&theirs[run.new_lines()].concat());
        at = place.end;
    }
    merged.extend_from_slice(&ours[at..].concat());
    Ok(Some(owned(&split(&merged))))
}

/// Splits lines into words, runs of blanks, line ends and single other characters.
fn words(lines: &[&[u8]]) -> Vec<Vec<u8>> {
    let kind = |byte: u8| match byte {
        b'_' | 128.. => 0,
        byte if byte.is_ascii_alphanumeric() => 0,
        b' ' | b'\t' => 1,
        _ => 2,
    };
    let mut found: Vec<Vec<u8>> = Vec::new();
    for &byte in lines.iter().copied().flatten() {
        match found.last_mut() {
            Some(last) if kind(byte) < 2 && kind(last[0]) == kind(byte) => last.push(byte),
            _ => found.push(vec![byte]),
        }
    }
    found
}

fn is_blank(word: &[u8]) -> bool {
    word.trim_ascii().is_empty()
}

/// Returns words as lines, for a comparison of lines.
fn as_lines(words: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    for word in words {
        // No word but the line end contains one.
        text.extend_from_slice(if word == b"\n" { b"\\n" } else { word });
        text.push(b'\n');
    }
    text
}

fn owned(lines: &[&[u8]]) -> Vec<Vec<u8>> {
    lines.iter().map(|line| line.to_vec()).collect()
}

fn share_lines(a: &[&[u8]], b: &[&[u8]]) -> bool {
    let distinct = |lines: &[&[u8]]| -> BTreeSet<Vec<u8>> {
        let squeezed = lines.iter().map(|line| squeezed(&[line]));
        squeezed
            .filter(|line| distinctive(line) >= MIN_REPLACEMENT)
            .collect()
    };
    let (a, b) = (distinct(a), distinct(b));
    a.is_empty() || b.is_empty() || a.intersection(&b).next().is_some()
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(text, wanted).is_some()
}

fn has_cr(line: &[u8]) -> bool {
    line.ends_with(b"\r\n")
}

/// Returns a line that ends in CR LF, or in LF only; an unfinished line stays so.
fn with_end(line: &[u8], cr: bool) -> Vec<u8> {
    match line.strip_suffix(b"\n") {
        Some(text) if cr => [text.strip_suffix(b"\r").unwrap_or(text), b"\r\n"].concat(),
        Some(text) => [text.strip_suffix(b"\r").unwrap_or(text), b"\n"].concat(),
        None => line.to_vec(),
    }
}

/// Returns whether most lines of a text end in CR LF.
pub fn is_crlf(text: &[u8]) -> bool {
    let all = memchr::memchr_iter(b'\n', text).count();
    2 * memchr::memmem::find_iter(text, b"\r\n").count() > all
}

/// Returns a text with the line ends CR LF or LF throughout.
pub fn with_ends(text: &[u8], cr: bool) -> Vec<u8> {
    let lines = split(text).into_iter();
    lines.flat_map(|line| with_end(line, cr)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loosely(base: &str, ours: &str, theirs: &str) -> Option<(String, Vec<Rule>)> {
        let merged = merge_loosely(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()).unwrap();
        let Some((text, rules)) = merged.result else {
            assert!(!merged.regions.is_empty());
            return None;
        };
        Some((
            String::from_utf8(text).unwrap(),
            rules.into_iter().collect(),
        ))
    }

    #[test]
    fn white_space_is_no_conflict_and_upstreams_indentation_stays() {
        let base = "int f()\n{\n    if (a)\n        b(1);\n    return 0;\n}\n";
        let ours = "int f()\n{\n\tif (a)\n\t\tb(1);\n\treturn 0;\n}\n";
        let theirs = "int f()\n{\n    if (a)\n        b(2);\n    c();\n    return 0;\n}\n";
        let (text, rules) = loosely(base, ours, theirs).unwrap();
        assert_eq!(
            text,
            "int f()\n{\n\tif (a)\n\t\tb(2);\n\tc();\n\treturn 0;\n}\n"
        );
        assert_eq!(rules, [Rule::Blanks]);
    }

    #[test]
    fn lines_between_two_blocks_are_for_review() {
        let base = "def f():\n    if x:\n        a()\n        b()\n    c()\n";
        let ours = base.replace("        b()", "    b()");
        let theirs = base.replace("a()\n", "a()\n        fast()\n");
        let (_, rules) = loosely(base, &ours, &theirs).unwrap();
        assert_eq!(rules, [Rule::Block]);
        // The line between belonged to the one after it, which upstream put into the other block.
        let base = "def f():\n    if x:\n        a()\n        b()\n    c()\n    d()\n";
        let ours = base.replace("    c()", "        c()");
        let theirs = base.replace("    c()", "    fast()\n    c()");
        let (_, rules) = loosely(base, &ours, &theirs).unwrap();
        assert_eq!(rules, [Rule::Block]);
        let base = "def f():\n    if x:\n        a()\n        b()\n    c()\n";
        let ours = base.replace("        b()", "    b()");
        let theirs = base.replace("a()\n", "a()\n        fast()\n");
        // Where both sides moved, the line moves with them.
        let ours = ours.replace("        a()", "    a()");
        let (text, rules) = loosely(base, &ours, &theirs).unwrap();
        assert!(text.contains("\n    a()\n    fast()\n    b()\n"), "{text}");
        assert_eq!(rules, [Rule::Blanks]);
    }

    #[test]
    fn the_end_of_the_last_line_is_upstreams() {
        let (text, _) = loosely("a\nb\nc", "x\na\nb\nc\n", "a\nb\nC").unwrap();
        assert_eq!(text, "x\na\nb\nC\n");
        let (text, _) = loosely("a\nb\nc\n", "x\na\nb\nc", "a\nb\nC\n").unwrap();
        assert_eq!(text, "x\na\nb\nC");
    }

    #[test]
    fn upstreams_lines_may_contain_the_change() {
        let base = "start\nlength = strlen(name);\nend\n";
        let theirs = "start\nlength = strnlen(name, MAX);\nend\n";
        let ours =
            "start\n/* bounded */\nlength = strnlen (name,\n   MAX);\nif (!length) return;\nend\n";
        let (text, rules) = loosely(base, ours, theirs).unwrap();
        assert_eq!(
            (text.as_str(), rules.as_slice()),
            (ours, &[Rule::Already][..])
        );
        // A line that the patch adds twice is not there once.
        let theirs = "start\nprefetch(next, page);\nlength = 1;\nprefetch(next, page);\nend\n";
        let ours = "start\nprefetch(next, page);\nlength = 2;\nend\n";
        let found = loosely("start\nlength = 1;\nend\n", ours, theirs);
        assert!(found.is_none_or(|(_, rules)| rules != [Rule::Already]));
        // A short line that is there for another reason proves nothing.
        assert!(
            loosely("a\nb\n", "a\nx();\nbreak;\nb\n", "a\nbreak;\nb\n")
                .is_none_or(|(_, rules)| rules != [Rule::Already])
        );
    }

    #[test]
    fn a_line_that_begins_as_the_patchs_is_another_one() {
        // The patch ends the list that upstream made longer.
        let base = "first: a\n\nupdate: | $(gems)\n\nlast: b\n";
        let ours = "first: a\n\nupdate: | $(more-gems)\nupdate: | $(gem-files)\n\nlast: b\n";
        assert!(loosely(base, ours, "first: a\n\nupdate:\n\nlast: b\n").is_none());
    }

    #[test]
    fn a_patch_of_white_space_is_not_there_because_the_words_are() {
        let base = "f()\n{\n\n  work(first);\n\n  done(last);\n\n}\n";
        let theirs = base
            .replace("  work", "    work")
            .replace("  done", "    done");
        for ours in [
            base.replace("\n\n", "\n"),
            base.replace("  ", "\t"),
            base.replace(" work", " work ").replace("done", "end"),
        ] {
            let merged = loosely(base, &ours, &theirs);
            assert!(
                merged.is_none_or(|(_, rules)| rules.iter().any(|rule| rule.review().is_some())),
                "{ours}"
            );
        }
    }

    #[test]
    fn neighbouring_changes_are_both_made() {
        let base = "one\ntwo\nthree\nfour\n";
        let (text, rules) =
            loosely(base, "one\nTWO\nthree\nfour\n", "one\ntwo\nTHREE\nfour\n").unwrap();
        assert_eq!(text, "one\nTWO\nTHREE\nfour\n");
        assert_eq!(rules, [Rule::Adjacent]);
        // An insertion before a changed line.
        let (text, _) = loosely(
            base,
            "one\nTWO\nthree\nfour\n",
            "one\nnew\ntwo\nthree\nfour\n",
        )
        .unwrap();
        assert_eq!(text, "one\nnew\nTWO\nthree\nfour\n");
        let (text, _) = loosely(
            base,
            "one\nnew\ntwo\nthree\nfour\n",
            "one\nTWO\nthree\nfour\n",
        )
        .unwrap();
        assert_eq!(text, "one\nnew\nTWO\nthree\nfour\n");
    }

    #[test]
    fn words_of_one_line_are_merged() {
        let (text, rules) = loosely(
            "call(first, second, third);\n",
            "call(first, second, third, fourth);\n",
            "call(zeroth, second, third);\n",
        )
        .unwrap();
        assert_eq!(text, "call(zeroth, second, third, fourth);\n");
        assert_eq!(rules, [Rule::Words]);
        // The same word, or a line that upstream wrote again, stays a conflict.
        assert!(loosely("call(first);\n", "call(other);\n", "call(third);\n").is_none());
        assert!(loosely("x = first(a) + b;\n", "return y;\n", "x = first(a) + c;\n").is_none());
    }

    #[test]
    fn moved_lines_are_found_where_they_are() {
        let function = "int alpha(void)\n{\n  int counter = 1;\n  return counter;\n}\n";
        let changed = function.replace("= 1", "= 2");
        let other = "void beta(void)\n{\n  something_else();\n}\n";
        let base = format!("{function}{other}");
        let ours = format!("{other}extra\n{function}");
        let (text, rules) = loosely(&base, &ours, &format!("{changed}{other}")).unwrap();
        assert_eq!(text, format!("{other}extra\n{changed}"));
        assert_eq!(rules, [Rule::Moved]);
        // Two places are none.
        let twice = format!("{other}extra\n{function}extra\n{function}");
        assert!(
            loosely(&base, &twice, &format!("{changed}{other}"))
                .is_none_or(|(_, r)| !r.contains(&Rule::Moved))
        );
    }

    #[test]
    fn lines_beside_upstreams_at_the_end_are_in_their_place() {
        let base = "int counter_of_alpha = 1;\nint counter_of_beta = 1;\n}";
        let (ours, theirs) = (format!("{base}\n\n"), format!("{base}\nint end;"));
        let (text, rules) = loosely(base, &ours, &theirs).unwrap();
        assert_eq!(text, format!("{base}\nint end;\n\n"));
        assert_eq!(rules, [Rule::Adjacent]);
    }

    #[test]
    fn conflicts_have_places() {
        let LooseMerge {
            result: None,
            regions,
        } = merge_loosely(
            b"1\n2\n3\n4\n5\n6\n",
            b"0\n1\n2\nX\n4\n5\n6\n",
            b"1\n2\nY\nZ\n4\n5\n6\n",
        )
        .unwrap()
        else {
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
            (30, "ours 30\n"),
        ]);
        let theirs = with(&[(5, ""), (10, "theirs\nmore\n"), (30, "")]);
        let LooseMerge {
            result: None,
            regions,
        } = merge_loosely(&with(&[]), &ours, &theirs).unwrap()
        else {
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
        assert_eq!(regions[1].ours, [b"ours 30\n".to_vec()]);
        assert!(regions[1].theirs.is_empty());
    }
}
