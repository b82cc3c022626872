//! How many of a patch's changes the new release has: anywhere in the file, which only suggests that it has the patch,
//! and at the corresponding place, which proves it. That place is the function of the same name, or the lines that
//! became those around the change.

use std::collections::HashMap;
use std::ops::Range;

use super::evidence::upstream_origin;
use super::function::Functions;
use super::guarded::PatchedPlace;
use super::squeezed::{MIN_LINE, SqueezedLines, count, distinctive, squeezed};
use crate::histogram::histogram_runs;
use crate::line_runs::LineRun;
use crate::merge::side;
use perfquilt_model::error::Result;
use perfquilt_series::series::Patch;
use perfquilt_series::series::text::lines as split;
use perfquilt_series::stack::format::is_binary;

/// Minimum number of letters and digits of the added lines that prove a change.
const MIN_PROOF: usize = 16;
/// Minimum share of the lines for a variant of the same change.
const MIN_CHANGED: f64 = 0.6;
/// The same for a patch whose header says that it comes from upstream.
const MIN_CHANGED_ORIGIN: f64 = 0.25;
/// Minimum share of the lines for a patch from upstream that the release is said to have, with later changes.
const MIN_UPSTREAM_ORIGIN: f64 = 0.75;

/// Size in bytes from which a file's lines are compared as a whole only.
const LARGE: usize = 256 << 10;

/// Maximum number of changes of a file to search for; a file with more of them is no evidence.
const MAX_CHANGES: usize = 500;

/// Number of lines around a change that belong to its place.
const CONTEXT: usize = 3;

/// The changed lines of a patch that appeared or disappeared between the releases, weighted by letters and digits.
#[derive(Debug, Clone, Default)]
pub struct LinesThere {
    /// Those that the new release's file has or lacks as the patch wants.
    anywhere: FoundLines,
    /// Those that it has or lacks at the corresponding place.
    placed: FoundLines,
    /// Changes of which something is not at the corresponding place.
    open: usize,
}

/// A release's file without any white space.
enum ReleaseText {
    /// The text as a whole.
    Text(Vec<u8>),
    /// How often each line occurs, in a file that is too large to be searched for every line.
    Lines(HashMap<Vec<u8>, usize>),
}

impl ReleaseText {
    fn new(content: &[u8]) -> Self {
        if content.len() < LARGE {
            return ReleaseText::Text(visible(content));
        }
        let mut counts = HashMap::new();
        for line in split(content) {
            *counts.entry(visible(line)).or_default() += 1;
        }
        ReleaseText::Lines(counts)
    }

    fn count(&self, wanted: &[u8]) -> usize {
        let wanted = visible(wanted);
        match self {
            ReleaseText::Text(text) => count(text, &wanted),
            ReleaseText::Lines(lines) => lines.get(&wanted).copied().unwrap_or(0),
        }
    }
}

fn visible(text: &[u8]) -> Vec<u8> {
    let bytes = text.iter().copied();
    bytes.filter(|byte| !byte.is_ascii_whitespace()).collect()
}

impl LinesThere {
    /// Adds the file at `path`: before and after the patch, on the old release without any patch, and on the new
    /// release.
    pub fn add(
        &mut self,
        path: &[u8],
        before: Option<&Vec<u8>>,
        after: Option<&Vec<u8>>,
        old_release: Option<&Vec<u8>>,
        released: Option<&Vec<u8>>,
    ) -> Result<()> {
        let empty = Vec::new();
        let versions = [before, after, released].into_iter().flatten();
        if versions.into_iter().any(|content| is_binary(content)) {
            self.open += 1;
            return Ok(());
        }
        let Some(released) = released else {
            // A file that the patch deletes is gone; any other one is no longer there to be changed.
            self.open += usize::from(after.is_some());
            self.anywhere.all += after.map_or(0, |after| distinctive(after));
            return Ok(());
        };
        if after.is_none() {
            self.open += 1;
            return Ok(());
        }
        let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
        let (old, new) = (split(before), split(after));
        let released_lines = split(released);
        let old_release = ReleaseText::new(old_release.unwrap_or(&empty));
        let new_release = ReleaseText::new(released);
        let old_functions = Functions::new(path, &old);
        let new_functions = Functions::new(path, &released_lines);
        let release_runs = histogram_runs(&old, &released_lines)?;
        let runs = histogram_runs(&old, &new)?;
        if runs.len() > MAX_CHANGES {
            self.open += 1;
            self.anywhere.all += distinctive(after);
            return Ok(());
        }
        if runs.is_empty() {
            // A change of the mode.
            self.open += 1;
        }
        for run in &runs {
            let change = ReplacedLines {
                removed: &old[run.old_lines()],
                added: &new[run.new_lines()],
                old_release: &old_release,
            };
            let block = squeezed(change.added);
            if block.is_empty() && squeezed(change.removed).is_empty() {
                continue;
            }
            let counts = |text: &[u8]| Ok((old_release.count(text), new_release.count(text), 1));
            let anywhere = change.found(&counts, &counts)?;
            let places = corresponding(&old_functions, &new_functions, run, &release_runs);
            let mut placed = FoundLines::default();
            for (there, released) in places {
                let is = &released_lines[released];
                let mut found = change.found_at((&old, &new, &runs), there, is)?;
                found.is_complete &= is_in_order(&new, run, is);
                if (found.is_complete, found.there) >= (placed.is_complete, placed.there) {
                    placed = found;
                }
            }
            self.anywhere.add(&anywhere);
            self.placed.add(&placed);
            self.open += usize::from(!placed.is_complete);
        }
        Ok(())
    }

    /// Returns whether the release has most of the change at the corresponding place, as another sign says.
    pub fn confirms(&self) -> bool {
        let all = self.anywhere.all;
        all > 0 && self.placed.there as f64 >= MIN_UPSTREAM_ORIGIN * all as f64
    }

    fn share(&self) -> f64 {
        match self.anywhere.all {
            0 => 0.0,
            all => self.anywhere.there as f64 / all as f64,
        }
    }

    /// Returns the evidence that the release has the patch, if the lines prove it.
    pub fn upstream(&self, patch: &Patch) -> Option<String> {
        if self.open == 0 && self.placed.added_there >= MIN_PROOF {
            return Some("the release has every line of it there, in another form".to_owned());
        }
        let origin = upstream_origin(patch)?;
        (self.confirms() && self.placed.added_there >= MIN_PROOF).then(|| {
            format!(
                "{origin}; the release has {:.0} % of its lines there",
                100.0 * self.placed.there as f64 / self.anywhere.all as f64
            )
        })
    }

    /// Returns the evidence that the release has a variant of the patch's change, if the lines suggest it.
    pub fn changed(&self, patch: &Patch) -> Option<String> {
        let origin = upstream_origin(patch);
        let least = if origin.is_some() {
            MIN_CHANGED_ORIGIN
        } else {
            MIN_CHANGED
        };
        let enough =
            self.share() >= least && (self.anywhere.added_there > 0 || self.anywhere.added == 0);
        enough.then(|| {
            let has = format!("the release has {:.0} % of its lines", 100.0 * self.share());
            match origin {
                Some(origin) => format!("{has}; {origin}"),
                None => has,
            }
        })
    }
}

/// A run of lines that a patch replaces.
struct ReplacedLines<'c, 'a> {
    removed: &'c [&'a [u8]],
    added: &'c [&'a [u8]],
    old_release: &'c ReleaseText,
}

/// How many of a change's lines a text has, weighted by letters and digits.
#[derive(Debug, Clone, Default)]
struct FoundLines {
    /// Added and removed lines that count.
    all: usize,
    /// Those of them that are there, or gone.
    there: usize,
    /// The same for added lines only.
    added: usize,
    added_there: usize,
    /// Whether the whole change is there.
    is_complete: bool,
}

impl FoundLines {
    fn add(&mut self, other: &FoundLines) {
        self.all += other.all;
        self.there += other.there;
        self.added += other.added;
        self.added_there += other.added_there;
    }

    /// Counts a line of a weight.
    fn count(&mut self, weight: usize, is_added: bool, is_there: bool) {
        let there = if is_there { weight } else { 0 };
        self.all += weight;
        self.there += there;
        if is_added {
            self.added += weight;
            self.added_there += there;
        }
    }
}

/// Counts a text before and now, and how often the patch adds or removes it.
type Counts<'c> = dyn Fn(&[u8]) -> Result<(usize, usize, usize)> + 'c;

impl ReplacedLines<'_, '_> {
    /// Compares the lines `there` before the patch with `is`, those of the release. A line that only begins as an added one
    /// does is another line, and a removed line with more around it is still there.
    fn found_at(
        &self,
        (old, new, runs): (&[&[u8]], &[&[u8]], &[LineRun]),
        there: Range<usize>,
        is: &[&[u8]],
    ) -> Result<FoundLines> {
        let was = SqueezedLines::new(&old[there.clone()]);
        let unpatched = widened(there, runs, |run, lines| {
            run.old_start < lines.end && lines.start < run.old_end()
        });
        let patched = &new[side(runs, unpatched.start, unpatched.end, new.len())];
        let before = SqueezedLines::new(&old[unpatched]);
        let after = SqueezedLines::new(patched);
        let place = PatchedPlace::new(patched, is);
        let whole = |text: &[u8]| {
            let added = after
                .count_whole(text)
                .saturating_sub(before.count_whole(text));
            Ok((was.count_whole(text), place.count(text)?, added.max(1)))
        };
        let any = |text: &[u8]| {
            let removed = before.count(text).saturating_sub(after.count(text));
            Ok((was.count(text), place.text().count(text), removed.max(1)))
        };
        self.found(&whole, &any)
    }

    /// Finds the lines that appeared, as `added` counts them, and those that are gone, as `removed` counts them.
    fn found(&self, added: &Counts<'_>, removed: &Counts<'_>) -> Result<FoundLines> {
        let appeared = |text: &[u8]| -> Result<bool> {
            let (was, is, added) = added(text)?;
            Ok(is >= was + added)
        };
        let mut found = FoundLines::default();
        let block = squeezed(self.added);
        let whole = distinctive(&block) >= MIN_LINE && appeared(&block)?;
        // Short lines such as `x = 1;` and braces prove nothing by themselves.
        let (mut complete, mut proven) = (true, false);
        for line in self.added {
            let text = squeezed(&[line]);
            let weight = distinctive(&text);
            let there = whole || (weight >= MIN_LINE && appeared(&text)?);
            if weight >= MIN_LINE {
                found.count(weight, true, there);
            }
            complete &= there || weight == 0;
            proven |= there;
        }
        for line in self.removed {
            let text = squeezed(&[line]);
            let weight = distinctive(&text);
            if weight == 0 || count(&block, &text) > 0 {
                continue;
            }
            if weight < MIN_LINE {
                complete &= whole;
            } else if self.old_release.count(&text) == 0 {
                // What an earlier patch wrote cannot disappear from the release.
                complete &= removed(&text)?.1 == 0;
            } else {
                let (was, is, removed) = removed(&text)?;
                let gone = is + removed <= was;
                found.count(weight, false, gone);
                complete &= gone;
                proven |= gone;
            }
        }
        found.is_complete = complete && proven;
        Ok(found)
    }
}

/// Returns whether a place of the release may have a change's added lines between the same lines as the patch, as far as
/// these occur there once.
fn is_in_order(new: &[&[u8]], run: &LineRun, there: &[&[u8]]) -> bool {
    let told = |line: &&[u8]| Some(squeezed(&[line])).filter(|text| distinctive(text) >= MIN_LINE);
    let places = |text: Vec<u8>| -> Vec<usize> {
        let is_text = |at: &usize| squeezed(&[there[*at]]) == text;
        (0..there.len()).filter(is_text).collect()
    };
    let only = |text: Vec<u8>| match places(text).as_slice() {
        [only] => Some(*only),
        _ => None,
    };
    let lines = run.new_lines();
    let before = new[..lines.start]
        .iter()
        .rev()
        .find_map(told)
        .and_then(only);
    let after = new[lines.end..].iter().find_map(told).and_then(only);
    let added = new[lines]
        .iter()
        .find_map(told)
        .map(places)
        .unwrap_or_default();
    let is_between = |at: &usize| {
        before.is_none_or(|before| before < *at) && after.is_none_or(|after| *at < after)
    };
    added.is_empty() || added.iter().any(is_between)
}

/// Returns the lines that correspond to a change's place, before the patch and on the release: those of the function of
/// the same name, if each has one, and those that became the lines around the change.
fn corresponding(
    old: &Functions<'_, '_>,
    released: &Functions<'_, '_>,
    run: &LineRun,
    release_runs: &[LineRun],
) -> Vec<(Range<usize>, Range<usize>)> {
    let mut found = Vec::new();
    let at = run.old_start.saturating_sub(usize::from(run.old == 0));
    if let Some(name) = old.name_at(at)
        && let ([_], [there]) = (old.called(&name), released.called(&name))
    {
        found.push((old.lines_at(at), released.lines_at(*there)));
    }
    let end = (run.old_end() + CONTEXT).min(old.lines.len());
    let around = run.old_start.saturating_sub(CONTEXT)..end;
    let around = widened(around, release_runs, |run, lines| {
        run.old_start <= lines.end && lines.start <= run.old_end()
    });
    let there = side(release_runs, around.start, around.end, released.lines.len());
    found.push((around, there));
    found
}

/// Returns the old lines with those of all runs that belong to them.
fn widened(
    mut lines: Range<usize>,
    runs: &[LineRun],
    belongs: impl Fn(&LineRun, &Range<usize>) -> bool,
) -> Range<usize> {
    for run in runs {
        if belongs(run, &lines) {
            lines = lines.start.min(run.old_start)..lines.end.max(run.old_end());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the release has every change, for texts before and after the patch and on the new release.
    fn complete(old: &str, mine: &str, new: &str) -> bool {
        let [old, mine, new] = [old, mine, new].map(|text| text.as_bytes().to_vec());
        let mut found = LinesThere::default();
        found
            .add(b"f.c", Some(&old), Some(&mine), Some(&old), Some(&new))
            .unwrap();
        found.open == 0 && found.placed.added_there >= MIN_PROOF
    }

    #[test]
    fn every_change_counts_and_short_ones_prove_nothing() {
        let old = "begin();\ntimeout = 10;\nx = 10;\nend();\n";
        let long = "begin();\ntimeout = compute_timeout(session);\n";
        let mine = format!("{long}x = 5;\nend();\n");
        // The release has the long line only, or both.
        assert!(!complete(
            old,
            &format!("{long}x = 10;\ny();\nx = 5;\nend();\n"),
            &format!("{long}x = 10;\nend();\n")
        ));
        assert!(complete(old, &mine, &format!("other();\n{mine}")));
        // A line that the patch adds twice is there twice.
        let (once, twice) = (
            format!("{long}x = 5;\nend();\n"),
            format!("{long}x = 5;\n{long}end();\n"),
        );
        assert!(!complete(old, &twice, &format!("other();\n{once}")));
        assert!(complete(old, &twice, &format!("other();\n{twice}")));
        // A line that was there before is no sign, and one that stays is a change that is not there.
        assert!(!complete(
            &format!("{long}{old}"),
            &format!("{long}{mine}"),
            &format!("{long}{old}")
        ));
        assert!(!complete(
            old,
            &mine,
            &format!("{long}x = 5;\ntimeout = 10;\nend();\n")
        ));
    }
}
