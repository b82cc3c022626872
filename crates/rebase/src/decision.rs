//! Conflict reports: the information needed for a manual decision.

use std::collections::{BTreeSet, HashMap};

use super::PatchStep;
use super::function::Functions;
use super::loose_merge::ConflictRegion;
use super::three_way::{AmbiguousHunk, FileMerge, FileMergeResult, MergeFailure};
use crate::line_runs::{LineRun, line_runs, marked};
use perfquilt_model::counted::counted;
use perfquilt_model::error::Result;
use perfquilt_model::rebase::{Closest, Decision};
use perfquilt_series::series::path::shown;
use perfquilt_series::series::text::lines;
use perfquilt_series::series::{FileDiff, Patch};
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::upstream::Objects;

/// Maximum number of lines shown of one side of a conflict.
const MAX_LINES: usize = 24;
/// Maximum number of conflicts of a file that are shown one by one.
const MAX_REGIONS: usize = 100;
/// Minimum similarity (in per cent) to a patch's result for a location to count as a variant of the same change.
/// The location must also be more similar to the result than to the lines the patch expects.
const MIN_SIMILARITY: u8 = 80;
/// Similarity (in per cent) below which lines count as rewritten.
const REWRITTEN: u8 = 50;

/// Describes every location in conflict and every ambiguous hunk; `earlier` are the patches before this one.
pub fn decisions(
    objects: &Objects,
    patch: &Patch,
    merges: &[FileMerge],
    earlier: &[(&Patch, &PatchStep)],
) -> Result<Vec<Decision>> {
    let mut found = Vec::new();
    for merge in merges {
        let FileMergeResult::Failed(failure) = &merge.result else {
            continue;
        };
        let is_of = |diff: &&FileDiff| diff.names().any(|name| *name == merge.old_path);
        let diff = patch.files.iter().find(is_of);
        let hunks = diff.map_or(0, |diff| diff.hunks.len());
        let plain = |what: String| Decision::new(shown(&merge.path), what, hunks);
        match failure {
            MergeFailure::Other(what) => found.push(plain(what.clone())),
            MergeFailure::Gone { base } => {
                let mut decision = plain(
                    "upstream removed this file; no file of the release resembles it".to_owned(),
                );
                let origins = origins(objects, &merge.old_path, base, earlier)?;
                decision.touched_by = writers(&origins, 0..usize::MAX, earlier);
                found.push(decision);
            }
            MergeFailure::Lines => {}
        }
        let Some(texts) = merge
            .texts
            .as_ref()
            .filter(|_| matches!(failure, MergeFailure::Lines))
        else {
            continue;
        };
        if texts.regions.is_empty() && texts.base.is_empty() {
            let similarity = similarity(&texts.theirs, &texts.ours);
            let mut decision = plain(format!(
                "the patch creates this file, and the release has one of this name, {similarity} % alike"
            ));
            decision.closest = Some(Closest {
                line: 1,
                expected: 0,
                result: similarity,
            });
            found.push(decision);
        }
        let origins = origins(objects, &merge.old_path, &texts.base, earlier)?;
        let ours = lines(&texts.ours);
        let functions = Functions::new(&merge.path, &ours);
        for region in texts.regions.iter().take(MAX_REGIONS) {
            let end = region.base_start + region.base.len();
            let hunk = diff.and_then(|diff| {
                diff.hunks.iter().position(|hunk| {
                    let lines = hunk.before().count();
                    hunk.old_start < end.max(region.base_start + 1)
                        && region.base_start <= hunk.old_start + lines
                })
            });
            let lines = region.base_start - 1..(end - 1).max(region.base_start);
            let closest = closest(region, &texts.ours);
            found.push(Decision {
                what: happened(region, closest),
                hunk: hunk.map(|hunk| hunk + 1),
                line: Some(region.ours_start),
                function: functions.at(region.ours_start - 1),
                now: cut(region.ours.iter().map(|line| text(line)).collect()),
                patch: changes(&region.base, &region.theirs)?,
                upstream: changes(&region.base, &region.ours)?,
                closest,
                touched_by: writers(&origins, lines, earlier),
                ..plain(String::new())
            });
        }
        let more = texts.regions.len().saturating_sub(MAX_REGIONS);
        if more > 0 {
            found.push(plain(format!("{more} more conflicts in this file")));
        }
    }
    for hunk in merges.iter().flat_map(|merge| &merge.ambiguous) {
        let file = shown(&hunk.file);
        let same =
            |decision: &&mut Decision| decision.file == file && decision.hunk == Some(hunk.number);
        let Some(decision) = found.iter_mut().find(same) else {
            found.push(Decision {
                hunk: Some(hunk.number),
                function: hunk.function.clone(),
                candidates: hunk.places.clone(),
                ..Decision::new(file, ambiguity(hunk), hunk.hunks)
            });
            continue;
        };
        decision.candidates.clone_from(&hunk.places);
    }
    Ok(found)
}

/// Says why the place of a hunk is unclear.
fn ambiguity(hunk: &AmbiguousHunk) -> String {
    let times = |count: usize| match count {
        0 => "nowhere".to_owned(),
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    format!(
        "its lines were {} in the file, and are {} now",
        times(hunk.old_count),
        times(hunk.count)
    )
}

/// Returns whether upstream seems to have made a variant of the same change, and a one-line summary of the conflict.
pub fn summary(merges: &[FileMerge], decisions: &[Decision]) -> (bool, String) {
    let changed = !decisions.is_empty()
        && decisions.iter().all(|decision| {
            decision.closest.is_some_and(|closest| {
                closest.result >= MIN_SIMILARITY && closest.result > closest.expected
            })
        });
    let failed: Vec<&FileMerge> = merges
        .iter()
        .filter(|merge| matches!(merge.result, FileMergeResult::Failed(_)))
        .collect();
    let first = failed
        .first()
        .map_or_else(String::new, |merge| shown(&merge.path));
    let name = first.rsplit('/').next().unwrap_or(&first).to_owned();
    let count = |file: &str| decisions.iter().filter(|d| d.file == file).count();
    let hunks = decisions
        .iter()
        .find(|decision| decision.file == first)
        .map_or(0, |decision| decision.hunks);
    let mut evidence = match (count(&first), hunks) {
        (places, 1..) if decisions.iter().any(|d| d.hunk.is_some()) => {
            format!("{name} {} of {hunks}", places.min(hunks))
        }
        _ => name,
    };
    if failed.len() > 1 {
        let more = failed.len() - 1;
        evidence.push_str(&format!(" + {}", counted(more, "file", "files")));
    }
    if changed {
        let least = decisions
            .iter()
            .filter_map(|decision| decision.closest.map(|closest| closest.result))
            .min()
            .unwrap_or_default();
        evidence = format!("{least} % alike in {evidence}");
    }
    (changed, evidence)
}

/// Says in one sentence what both sides did.
fn happened(region: &ConflictRegion, closest: Option<Closest>) -> String {
    let (base, ours) = (region.base.concat(), region.ours.concat());
    let elsewhere = closest.filter(|closest| {
        let here = region.ours_start..=region.ours_start + region.ours.len();
        closest.expected >= MIN_SIMILARITY && !here.contains(&closest.line)
    });
    if base.trim_ascii().is_empty() {
        return "upstream and the patch add different lines at the same place".to_owned();
    }
    if let Some(Closest { line, .. }) = elsewhere {
        return format!("upstream moved the patch's lines to line {line} and changed them");
    }
    if ours.trim_ascii().is_empty() {
        return "upstream removed the lines that the patch changes".to_owned();
    }
    if let Some(closest) =
        closest.filter(|it| it.result >= MIN_SIMILARITY && it.result > it.expected)
    {
        return format!("upstream made a similar change, {} % alike", closest.result);
    }
    let kept = similarity(&base, &ours);
    if region.theirs.is_empty() {
        return format!("the patch removes lines that upstream changed ({kept} % alike)");
    }
    if kept < REWRITTEN {
        return format!("upstream rewrote the lines that the patch changes ({kept} % alike)");
    }
    format!("upstream changed the lines that the patch changes ({kept} % alike)")
}

/// Converts a line to displayable text.
fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    String::from_utf8_lossy(line).into_owned()
}

fn cut(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES + 1;
        lines.truncate(MAX_LINES - 1);
        lines.push(format!("… {more} more lines"));
    }
    lines
}

/// Returns the difference as lines with ` `, `-` or `+`.
fn changes(old: &[Vec<u8>], new: &[Vec<u8>]) -> Result<Vec<String>> {
    let runs = line_runs(&old.concat(), &new.concat())?;
    let lines = marked(old, new, &runs, 0..old.len()).into_iter();
    let lines = lines.map(|(mark, line)| format!("{mark}{}", text(line)));
    Ok(cut(lines.collect()))
}

/// Returns the location in `content` that is most similar to a conflict's lines.
fn closest(region: &ConflictRegion, content: &[u8]) -> Option<Closest> {
    let lines = lines(content);
    let (base, theirs) = (region.base.concat(), region.theirs.concat());
    let here = region.ours.concat();
    let mut best = Closest {
        line: region.ours_start,
        expected: similarity(&base, &here),
        result: similarity(&theirs, &here),
    };
    // The lines may have moved elsewhere in the file.
    for wanted in [&region.base, &region.theirs] {
        let Some((start, length)) = window(wanted, &lines) else {
            continue;
        };
        let there = lines[start..start + length].concat();
        let found = Closest {
            line: start + 1,
            expected: similarity(&base, &there),
            result: similarity(&theirs, &there),
        };
        if found.expected.max(found.result) > best.expected.max(best.result) {
            best = found;
        }
    }
    (best.expected.max(best.result) > 0).then_some(best)
}

/// Returns start and length of the window of `lines`, as long as `wanted`, that shares the most lines with it.
fn window(wanted: &[Vec<u8>], lines: &[&[u8]]) -> Option<(usize, usize)> {
    let key = |line: &[u8]| -> Vec<u8> { line.trim_ascii().to_vec() };
    let mut missing: HashMap<Vec<u8>, i64> = HashMap::new();
    for line in wanted {
        let key = key(line);
        if key.len() > 2 {
            *missing.entry(key).or_default() += 1;
        }
    }
    let length = wanted.len().min(lines.len());
    if missing.is_empty() || length == 0 {
        return None;
    }
    let (mut have, mut best) = (0_i64, (0_i64, 0));
    for at in 0..lines.len() {
        if let Some(left) = missing.get_mut(&key(lines[at])) {
            have += i64::from(*left > 0);
            *left -= 1;
        }
        if at >= length
            && let Some(left) = missing.get_mut(&key(lines[at - length]))
        {
            *left += 1;
            have -= i64::from(*left > 0);
        }
        if have > best.0 {
            best = (have, (at + 1).saturating_sub(length));
        }
    }
    (best.0 > 0).then_some((best.1, length.min(lines.len() - best.1)))
}

/// Returns the similarity of two texts in per cent, ignoring white space.
fn similarity(a: &[u8], b: &[u8]) -> u8 {
    let words = |text: &[u8]| -> String {
        let text = String::from_utf8_lossy(text);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (a, b) = (words(a), words(b));
    if a.is_empty() || b.is_empty() {
        return 0;
    }
    // The cast cannot overflow: the coefficient lies between 0 and 1.
    (strsim::sorensen_dice(&a, &b) * 100.0).round() as u8
}

/// Returns the names of the patches that wrote any of `lines`, where `origins` has the patch of each line.
fn writers(
    origins: &[usize],
    lines: std::ops::Range<usize>,
    earlier: &[(&Patch, &PatchStep)],
) -> Vec<String> {
    let end = lines.end.min(origins.len());
    let patches = origins[lines.start.min(end)..end].iter();
    let patches: BTreeSet<usize> = patches.copied().filter(|patch| *patch > 0).collect();
    patches
        .into_iter()
        .map(|patch| format!("{patch} ({})", earlier[patch - 1].0.name))
        .collect()
}

/// Traces a file of the old release through the earlier patches up to `base`. Returns the patch that wrote each line; 0 is the
/// release.
fn origins(
    objects: &Objects,
    path: &[u8],
    base: &[u8],
    earlier: &[(&Patch, &PatchStep)],
) -> Result<Vec<usize>> {
    let count = |content: &[u8]| lines(content).len();
    let Some((_, first)) = earlier.first() else {
        return Ok(vec![0; count(base)]);
    };
    let mut trial = TrialTree::new(objects, &first.whole.before)?;
    let start = trial.file(path)?;
    let mut content = start.map(|file| file.content.to_vec()).unwrap_or_default();
    let mut lines = vec![0; count(&content)];
    for (index, (patch, step)) in earlier.iter().enumerate() {
        let names = super::evidence::named_paths(patch);
        if !names.contains(path) {
            continue;
        }
        trial.reset(&step.whole.after)?;
        let next = trial.file(path)?;
        let next = next.map(|file| file.content.to_vec()).unwrap_or_default();
        lines = follow(&lines, &line_runs(&content, &next)?, index + 1);
        content = next;
    }
    // Without held patches, the ancestor lacks their lines.
    if content != base {
        lines = follow(&lines, &line_runs(&content, base)?, 0);
    }
    Ok(lines)
}

fn follow(lines: &[usize], runs: &[LineRun], patch: usize) -> Vec<usize> {
    let mut out = Vec::with_capacity(lines.len());
    let mut at = 0;
    for run in runs {
        out.extend_from_slice(&lines[at..run.old_start]);
        out.extend(std::iter::repeat_n(patch, run.new));
        at = run.old_end();
    }
    out.extend_from_slice(&lines[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_place_may_be_elsewhere() {
        let region = ConflictRegion {
            ours_start: 1,
            base: vec![b"int alpha= 1;\n".to_vec(), b"int beta= 2;\n".to_vec()],
            theirs: vec![b"int alpha= 3;\n".to_vec(), b"int beta= 2;\n".to_vec()],
            ..ConflictRegion::default()
        };
        let content = b"x\ny\nz\nint alpha= 1;\nint beta= 2;\nend\n";
        let closest = closest(&region, content).unwrap();
        assert_eq!((closest.line, closest.expected), (4, 100));
        assert!(closest.result > 80 && closest.result < 100);
    }

    #[test]
    fn long_lists_are_cut() {
        let lines: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let short = cut(lines);
        assert_eq!(short.len(), MAX_LINES);
        assert_eq!(short[MAX_LINES - 1], "… 17 more lines");
    }

    #[test]
    fn lines_keep_their_origin() {
        let run = LineRun {
            old_start: 1,
            old: 1,
            new_start: 1,
            new: 2,
        };
        assert_eq!(follow(&[0, 0, 3], &[run], 4), [0, 4, 4, 3]);
    }
}
