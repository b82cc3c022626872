//! What a person needs to see to decide about a conflict.

use std::collections::HashMap;

use super::Step;
use super::three_way::{FileMerge, Part, Trouble};
use crate::series::Patch;
use crate::series::path::shown;
use crate::stack::merge::{Region, Run, runs};
use crate::stack::trial::Trial;
use crate::upstream::Objects;
use perfquilt_model::error::Result;
use perfquilt_model::rebase::{Closest, Decision};

/// Lines shown of one side of a conflict.
const MOST_LINES: usize = 24;
/// A place this much like a patch's result (in per cent), and more so than like what the patch
/// expects, is taken for the same change made otherwise.
const LIKE: u8 = 80;

/// A block for every place in conflict; `earlier` are the patches before this one.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the object store is damaged.
pub fn decisions(
    objects: &Objects,
    patch: &Patch,
    merges: &[FileMerge],
    earlier: &[(&Patch, &Step)],
) -> Result<Vec<Decision>> {
    let mut found = Vec::new();
    for merge in merges {
        let Part::Trouble(trouble) = &merge.part else {
            continue;
        };
        let diff = patch.files.iter().find(|diff| {
            [&diff.new, &diff.old, &diff.index]
                .into_iter()
                .any(|name| name.as_ref() == Some(&merge.old_path))
        });
        let hunks = diff.map_or(0, |diff| diff.hunks.len());
        let plain = |what: String| Decision {
            file: shown(&merge.path),
            what,
            hunk: None,
            hunks,
            line: None,
            now: Vec::new(),
            patch: Vec::new(),
            upstream: Vec::new(),
            closest: None,
            touched_by: Vec::new(),
        };
        match trouble {
            Trouble::Other(what) => found.push(plain(what.clone())),
            Trouble::Gone { base } => {
                let mut decision =
                    plain("the release does not have this file, under any name".to_owned());
                decision.touched_by =
                    origins(objects, &merge.old_path, base, earlier)?.names(0..usize::MAX, earlier);
                found.push(decision);
            }
            Trouble::Lines {
                base,
                ours,
                theirs,
                regions,
            } if regions.is_empty() => {
                let likeness = alike(theirs, ours);
                let mut decision = plain(if base.is_empty() {
                    format!(
                        "the patch creates this file, and the release has one of this name, {likeness} % alike"
                    )
                } else {
                    "both sides changed the file".to_owned()
                });
                decision.closest = Some(Closest {
                    line: 1,
                    expected: 0,
                    result: likeness,
                });
                found.push(decision);
            }
            Trouble::Lines {
                base,
                ours,
                theirs: _,
                regions,
            } => {
                let origins = origins(objects, &merge.old_path, base, earlier)?;
                for region in regions {
                    let end = region.base_start + region.base.len();
                    let hunk = diff.and_then(|diff| {
                        diff.hunks.iter().position(|hunk| {
                            let lines = hunk.before().count();
                            hunk.old_start < end.max(region.base_start + 1)
                                && region.base_start <= hunk.old_start + lines
                        })
                    });
                    let lines = region.base_start - 1..(end - 1).max(region.base_start);
                    found.push(Decision {
                        file: shown(&merge.path),
                        what: "upstream and the patch changed the same lines".to_owned(),
                        hunk: hunk.map(|hunk| hunk + 1),
                        hunks,
                        line: Some(region.ours_start),
                        now: cut(region.ours.iter().map(|line| text(line)).collect()),
                        patch: changes(&region.base, &region.theirs)?,
                        upstream: changes(&region.base, &region.ours)?,
                        closest: closest(region, ours),
                        touched_by: origins.names(lines, earlier),
                    });
                }
            }
        }
    }
    Ok(found)
}

/// Whether a conflict looks like the same change made otherwise, and what to say about it in a line.
pub fn summary(merges: &[FileMerge], decisions: &[Decision]) -> (bool, String) {
    let changed = !decisions.is_empty()
        && decisions.iter().all(|decision| {
            decision
                .closest
                .is_some_and(|closest| closest.result >= LIKE && closest.result > closest.expected)
        });
    let in_trouble: Vec<&FileMerge> = merges
        .iter()
        .filter(|merge| matches!(merge.part, Part::Trouble(_)))
        .collect();
    let first = in_trouble
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
    if in_trouble.len() > 1 {
        let more = in_trouble.len() - 1;
        let noun = if more == 1 { "file" } else { "files" };
        evidence.push_str(&format!(" + {more} {noun}"));
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

/// A line for people.
fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    String::from_utf8_lossy(line).into_owned()
}

fn cut(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > MOST_LINES {
        let more = lines.len() - MOST_LINES + 1;
        lines.truncate(MOST_LINES - 1);
        lines.push(format!("… {more} more lines"));
    }
    lines
}

/// Lines with ` `, `-` or `+`.
fn changes(old: &[Vec<u8>], new: &[Vec<u8>]) -> Result<Vec<String>> {
    let mut out = Vec::new();
    let mut at = 0;
    for run in runs(&old.concat(), &new.concat())? {
        out.extend(
            old[at..run.old_start]
                .iter()
                .map(|l| format!(" {}", text(l))),
        );
        at = run.old_start + run.old;
        out.extend(
            old[run.old_start..at]
                .iter()
                .map(|l| format!("-{}", text(l))),
        );
        let end = run.new_start + run.new;
        out.extend(
            new[run.new_start..end]
                .iter()
                .map(|l| format!("+{}", text(l))),
        );
    }
    out.extend(old[at..].iter().map(|line| format!(" {}", text(line))));
    Ok(cut(out))
}

/// Where in `content` a conflict's lines are most likely meant to be.
fn closest(region: &Region, content: &[u8]) -> Option<Closest> {
    let lines: Vec<&[u8]> = content.split_inclusive(|&b| b == b'\n').collect();
    let (base, theirs) = (region.base.concat(), region.theirs.concat());
    let here = region.ours.concat();
    let mut best = Closest {
        line: region.ours_start,
        expected: alike(&base, &here),
        result: alike(&theirs, &here),
    };
    // Elsewhere in the file, by the lines they have in common.
    for wanted in [&region.base, &region.theirs] {
        let Some((start, length)) = window(wanted, &lines) else {
            continue;
        };
        let there = lines[start..start + length].concat();
        let found = Closest {
            line: start + 1,
            expected: alike(&base, &there),
            result: alike(&theirs, &there),
        };
        if found.expected.max(found.result) > best.expected.max(best.result) {
            best = found;
        }
    }
    (best.expected.max(best.result) > 0).then_some(best)
}

/// The run of `lines` as long as `wanted` that has most of its lines.
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

/// How alike two texts are but for white space, in per cent.
fn alike(a: &[u8], b: &[u8]) -> u8 {
    let words = |text: &[u8]| -> String {
        let text = String::from_utf8_lossy(text);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (a, b) = (words(a), words(b));
    if a.is_empty() || b.is_empty() {
        return 0;
    }
    // Between 0 and 1 by definition.
    (strsim::sorensen_dice(&a, &b) * 100.0).round() as u8
}

/// Which patch wrote each line of a file; 0 is the release.
struct Origins {
    lines: Vec<usize>,
}

impl Origins {
    /// Names of the patches that wrote any of these lines.
    fn names(&self, lines: std::ops::Range<usize>, earlier: &[(&Patch, &Step)]) -> Vec<String> {
        let end = lines.end.min(self.lines.len());
        let mut patches: Vec<usize> = self.lines[lines.start.min(end)..end]
            .iter()
            .copied()
            .filter(|patch| *patch > 0)
            .collect();
        patches.sort_unstable();
        patches.dedup();
        patches
            .into_iter()
            .map(|patch| format!("{patch} ({})", earlier[patch - 1].0.name))
            .collect()
    }
}

/// Follows a file of the old release through the earlier patches up to `base`.
fn origins(
    objects: &Objects,
    path: &[u8],
    base: &[u8],
    earlier: &[(&Patch, &Step)],
) -> Result<Origins> {
    let count = |content: &[u8]| content.split_inclusive(|&b| b == b'\n').count();
    let Some((_, first)) = earlier.first() else {
        return Ok(Origins {
            lines: vec![0; count(base)],
        });
    };
    let mut trial = Trial::new(objects, &first.old_before)?;
    let start = trial.file(path)?;
    let mut content = start.map(|file| file.content.to_vec()).unwrap_or_default();
    let mut lines = vec![0; count(&content)];
    for (index, (patch, step)) in earlier.iter().enumerate() {
        let Some(after) = step.old_after.as_ref().filter(|_| !step.held) else {
            continue;
        };
        let names = super::evidence::named_paths(patch);
        if !names.contains(path) {
            continue;
        }
        trial.reset(after)?;
        let next = trial.file(path)?;
        let next = next.map(|file| file.content.to_vec()).unwrap_or_default();
        lines = follow(&lines, &runs(&content, &next)?, index + 1);
        content = next;
    }
    if content != base {
        lines = follow(&lines, &runs(&content, base)?, 0);
    }
    Ok(Origins { lines })
}

fn follow(lines: &[usize], runs: &[Run], patch: usize) -> Vec<usize> {
    let mut out = Vec::with_capacity(lines.len());
    let mut at = 0;
    for run in runs {
        out.extend_from_slice(&lines[at..run.old_start]);
        out.extend(std::iter::repeat_n(patch, run.new));
        at = run.old_start + run.old;
    }
    out.extend_from_slice(&lines[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_place_may_be_elsewhere() {
        let region = Region {
            ours_start: 1,
            base: vec![b"int alpha= 1;\n".to_vec(), b"int beta= 2;\n".to_vec()],
            theirs: vec![b"int alpha= 3;\n".to_vec(), b"int beta= 2;\n".to_vec()],
            ..Region::default()
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
        assert_eq!(short.len(), MOST_LINES);
        assert_eq!(short[MOST_LINES - 1], "… 17 more lines");
    }

    #[test]
    fn lines_keep_their_origin() {
        let run = Run {
            old_start: 1,
            old: 1,
            new_start: 1,
            new: 2,
        };
        assert_eq!(follow(&[0, 0, 3], &[run], 4), [0, 4, 4, 3]);
    }
}
