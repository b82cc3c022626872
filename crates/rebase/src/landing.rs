//! Where a moved patch's changes are on the new release, and what a person should know about these places.

use std::collections::HashMap;

use super::function::{Functions, has_free_white_space, name};
use super::squeezed::{count, distinctive, squeezed};
use super::three_way::{FileMerge, MergeTexts};
use crate::histogram::histogram_runs;
use crate::line_runs::LineRun;
use crate::merge::side;
use perfquilt_model::counted::listed;
use perfquilt_model::error::Result;
use perfquilt_model::rebase::LandingPlace;
use perfquilt_series::series::path::shown;
use perfquilt_series::series::text::lines;

/// Minimum number of letters and digits of added lines whose repetition anywhere in the file is noted.
const MIN_DISTINCTIVE: usize = 10;
/// The same for lines that upstream added or moved near the patch's place.
const MIN_WORD: usize = 2;
/// The same for removed lines.
const MIN_LINE: usize = 4;
/// Maximum distance from the patch's place, in lines, for lines of another function to be near.
const NEAR: usize = 8;
/// Maximum number of changes of a file whose repetition is searched for.
const MAX_SEARCHED: usize = 200;

/// The places of a file's changes, with notes.
#[derive(Debug, Default)]
pub struct Landing {
    /// The places in order.
    pub places: Vec<LandingPlace>,
    /// Notes about them for a person.
    pub notes: Vec<String>,
}

/// Returns the places of a cleanly merged file's changes. Files that upstream did not change have none.
pub fn landing(merge: &FileMerge) -> Result<Landing> {
    let mut found = Landing::default();
    let (Some(texts), Some(content)) = (&merge.texts, merge.content()) else {
        return Ok(found);
    };
    let (base, theirs) = (lines(&texts.base), lines(&texts.theirs));
    let (ours, merged) = (lines(&texts.ours), lines(content));
    let old_runs = histogram_runs(&base, &theirs)?;
    let new_runs = histogram_runs(&ours, &merged)?;
    let file = shown(&merge.path);
    let was_in = Functions::new(&merge.old_path, &base);
    let is_in = Functions::new(&merge.path, &ours);
    // Where the merge joined or left out changes, they have no counterparts.
    let is_paired = old_runs.len() == new_runs.len();
    for (index, run) in new_runs.iter().enumerate() {
        let function = is_in.at(last_before(run));
        let was = if is_paired {
            was_in.at(last_before(&old_runs[index]))
        } else {
            function.clone()
        };
        let differs = was.as_deref().map(name) != function.as_deref().map(name);
        let line = run.old_start + 1;
        if differs {
            found.notes.push(format!(
                "{file}:{line}: it changes {}; on the old release that was {}",
                in_words(function.as_deref()),
                in_words(was.as_deref())
            ));
        }
        found.places.push(LandingPlace {
            file: file.clone(),
            line,
            function,
            was: if differs { was } else { None },
        });
    }
    let upstream = UpstreamLines::new(texts, &is_in)?;
    for (index, run) in old_runs.iter().enumerate().take(MAX_SEARCHED) {
        let added = &theirs[run.new_lines()];
        let place = new_runs.get(index).filter(|_| is_paired).map(last_before);
        let note = repetition(&file, added, texts, content, &upstream, place);
        found.notes.extend(note);
    }
    Ok(found)
}

/// Returns the line whose function a change belongs to: the first changed one, or the one before an insertion.
fn last_before(run: &LineRun) -> usize {
    run.old_start.saturating_sub(usize::from(run.old == 0))
}

fn in_words(function: Option<&str>) -> String {
    match function {
        Some(line) => format!("`{}`", name(line)),
        None => "no function".to_owned(),
    }
}

/// The lines that upstream added to a file.
struct UpstreamLines<'f> {
    added: Vec<LineRun>,
    functions: &'f Functions<'f, 'f>,
}

impl<'f> UpstreamLines<'f> {
    fn new(texts: &MergeTexts, functions: &'f Functions<'f, 'f>) -> Result<Self> {
        let added = histogram_runs(&lines(&texts.base), &lines(&texts.ours))?;
        Ok(UpstreamLines { added, functions })
    }

    fn are_added(&self, at: usize) -> bool {
        self.added.iter().any(|run| run.new_lines().contains(&at))
    }

    /// Returns whether upstream added line `at` of the release, from 0, in the function around line `place` or near it.
    fn are_near(&self, at: usize, place: usize) -> bool {
        let function = self.functions.at(at);
        let is_same = function.is_some() && function == self.functions.at(place);
        self.are_added(at) && (is_same || at.abs_diff(place) <= NEAR)
    }
}

/// Returns the places near the patch's own where the release has lines that the patch removes, because upstream moved
/// them.
pub fn moved_lines(merge: &FileMerge) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let Some(texts) = &merge.texts else {
        return Ok(found);
    };
    let (base, theirs, ours) = (lines(&texts.base), lines(&texts.theirs), lines(&texts.ours));
    let functions = Functions::new(&merge.path, &ours);
    let upstream = UpstreamLines::new(texts, &functions)?;
    let was_in = Functions::new(&merge.path, &base);
    let merged = merge.content().map(|content| counts(&lines(content)));
    let released = counts(&ours);
    let runs = histogram_runs(&base, &theirs)?;
    for run in runs.iter().take(MAX_SEARCHED) {
        let there = side(&upstream.added, run.old_start, run.old_end(), ours.len());
        let place = there.start.saturating_sub(1);
        for number in run.old_lines() {
            let text = squeezed(&[base[number]]);
            // Where the patch merges, the line counts that upstream has elsewhere and that stays there.
            let is_left = merged.as_ref().is_none_or(|merged| {
                let mut theirs = upstream.added.iter();
                theirs.any(|run| run.old_lines().contains(&number))
                    && merged.get(&text) >= released.get(&text)
            });
            let is_text = |other: &[u8]| squeezed(&[other]) == text;
            // A patch that moves the line as upstream does removes none.
            let is_kept = runs
                .iter()
                .flat_map(|run| &theirs[run.new_lines()])
                .any(|it| is_text(it));
            if distinctive(&text) < MIN_LINE || is_kept || !is_left {
                continue;
            }
            // The head of a function is the same one wherever it is.
            let is_head = was_in.lines_at(number).start == number && was_in.at(number).is_some();
            let mut places = (0..ours.len()).filter(|&at| is_text(ours[at]));
            let at = places
                .find(|&at| upstream.are_near(at, place) || is_head && upstream.are_added(at));
            found.extend(at.map(|at| shown_place(&shown(&merge.path), at, &functions)));
        }
    }
    Ok(found)
}

/// Names what the patch adds to a file under a name that upstream added elsewhere in it, whatever its lines.
pub fn defined_twice(merge: &FileMerge) -> Result<Option<String>> {
    let (Some(texts), Some(content)) = (&merge.texts, merge.content()) else {
        return Ok(None);
    };
    let sides = [&texts.base, &texts.theirs, &texts.ours].map(|text| lines(text));
    let merged = lines(content);
    let functions = |lines| Functions::new(&merge.path, lines);
    let [base, theirs, ours] = [&sides[0], &sides[1], &sides[2]].map(|side| functions(side));
    let merged = functions(&merged);
    for run in histogram_runs(&sides[0], &sides[1])?
        .iter()
        .take(MAX_SEARCHED)
    {
        for name in theirs.begun_in(run.new_lines()) {
            let there = ours.called(&name);
            if base.called(&name).is_empty()
                && let Some(first) = there.first()
                && merged.called(&name).len() > there.len()
            {
                let place = format!("{}:{}", shown(&merge.path), first + 1);
                return Ok(Some(format!(
                    "upstream added `{name}` as well, at {place}: the result has it twice"
                )));
            }
        }
    }
    Ok(None)
}

/// Names the lines that patch and upstream both move, if the result has them more often than either side.
pub fn doubled_lines(merge: &FileMerge) -> Result<Option<String>> {
    let (Some(texts), Some(content)) = (&merge.texts, merge.content()) else {
        return Ok(None);
    };
    let (base, theirs) = (lines(&texts.base), lines(&texts.theirs));
    let sides = [&base, &theirs, &lines(&texts.ours), &lines(content)].map(|side| counts(side));
    let [was, patched, released, merged] = sides;
    let mut found = Vec::new();
    for run in histogram_runs(&base, &theirs)?.iter().take(MAX_SEARCHED) {
        for line in &theirs[run.new_lines()] {
            let text = squeezed(&[line]);
            let count = |side: &HashMap<Vec<u8>, usize>| side.get(&text).copied().unwrap_or(0);
            let is_moved = count(&was) == count(&patched) && count(&was) == count(&released);
            if distinctive(&text) >= MIN_LINE && is_moved && count(&merged) > count(&was) {
                found.push(format!("`{}`", String::from_utf8_lossy(line.trim_ascii())));
            }
        }
    }
    let (file, lines) = (shown(&merge.path), listed(&found, 1));
    Ok((!found.is_empty()).then(|| {
        format!(
            "upstream moves lines of {file} elsewhere than the patch, so that they are there twice: {lines}"
        )
    }))
}

/// Counts lines, white space aside.
fn counts(lines: &[&[u8]]) -> HashMap<Vec<u8>, usize> {
    let mut found = HashMap::new();
    for line in lines {
        *found.entry(squeezed(&[line])).or_default() += 1;
    }
    found
}

/// Returns the places where the release has added lines of the patch with other white space, in a file whose name tells
/// no language in which that is free.
pub fn other_white_space(merge: &FileMerge) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let (Some(texts), false) = (&merge.texts, has_free_white_space(&merge.path)) else {
        return Ok(found);
    };
    let (base, theirs, ours) = (lines(&texts.base), lines(&texts.theirs), lines(&texts.ours));
    let functions = Functions::new(&merge.path, &ours);
    for run in histogram_runs(&base, &theirs)?.iter().take(MAX_SEARCHED) {
        for line in &theirs[run.new_lines()] {
            let is_line = |other: &&[u8]| other.trim_ascii_end() == line.trim_ascii_end();
            let is_text = |other: &&[u8]| squeezed(&[other]) == squeezed(&[line]);
            if !line.trim_ascii().is_empty()
                && !ours.iter().any(is_line)
                && let Some(at) = ours.iter().position(is_text)
            {
                found.push(shown_place(&shown(&merge.path), at, &functions));
            }
        }
    }
    Ok(found)
}

fn shown_place(file: &str, at: usize, functions: &Functions<'_, '_>) -> String {
    let line = at + 1;
    match functions.at(at) {
        Some(function) => format!("{file}:{line} in `{}`", name(&function)),
        None => format!("{file}:{line}"),
    }
}

/// Returns a note if the merge adds lines that upstream added somewhere in the file already; short ones count only
/// near line `place` of the release, where the patch adds them.
fn repetition(
    file: &str,
    added: &[&[u8]],
    texts: &MergeTexts,
    merged: &[u8],
    upstream: &UpstreamLines<'_>,
    place: Option<usize>,
) -> Option<String> {
    let wanted: Vec<Vec<u8>> = added.iter().map(|line| squeezed(&[line])).collect();
    let wanted: Vec<&Vec<u8>> = wanted.iter().filter(|line| !line.is_empty()).collect();
    let letters: usize = wanted.iter().map(|line| distinctive(line)).sum();
    let longest = added
        .iter()
        .map(|line| line.trim_ascii())
        .max_by_key(|line| line.len())?;
    // Most lines are nowhere else, which a search tells soonest.
    if letters < MIN_WORD || count(&texts.ours, longest) <= count(&texts.base, longest) {
        return None;
    }
    let starts = |text: &[u8]| -> Vec<usize> {
        let squeezed: Vec<(usize, Vec<u8>)> = lines(text)
            .iter()
            .enumerate()
            .map(|(at, line)| (at, squeezed(&[line])))
            .filter(|(_, line)| !line.is_empty())
            .collect();
        let windows = squeezed.windows(wanted.len());
        let is_there = |window: &&[(usize, Vec<u8>)]| {
            window
                .iter()
                .zip(&wanted)
                .all(|((_, line), wanted)| line == *wanted)
        };
        windows.filter(is_there).map(|window| window[0].0).collect()
    };
    let mut there = starts(&texts.ours);
    // The merge may leave out what upstream has.
    if there.len() <= starts(&texts.base).len() || starts(merged).len() <= there.len() {
        return None;
    }
    if letters < MIN_DISTINCTIVE {
        there.retain(|&at| place.is_some_and(|place| upstream.are_near(at, place)));
    }
    if there.is_empty() {
        return None;
    }
    let places: Vec<String> = there
        .iter()
        .take(3)
        .map(|at| match upstream.functions.at(*at) {
            Some(function) => format!("line {} in `{}`", at + 1, name(&function)),
            None => format!("line {}", at + 1),
        })
        .collect();
    Some(format!(
        "the release already has the same lines in {file} ({}): check that they are not there twice",
        places.join(", ")
    ))
}
