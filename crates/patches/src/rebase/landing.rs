//! Where a moved patch's changes are on the new release, and what a person should know about these places.

use super::function::{Functions, name};
use super::loose_merge::{count, distinctive, squeezed};
use super::three_way::{FileMerge, FileMergeResult, MergeTexts};
use crate::series::path::shown;
use crate::series::text::lines;
use crate::stack::histogram::histogram_runs;
use crate::stack::line_runs::LineRun;
use crate::stack::tree::FileState;
use perfquilt_model::error::Result;
use perfquilt_model::rebase::LandingPlace;

/// Minimum number of letters and digits of added lines whose repetition is noted.
const MIN_DISTINCTIVE: usize = 10;
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
    let (Some(texts), FileMergeResult::Clean(files)) = (&merge.texts, &merge.result) else {
        return Ok(found);
    };
    let Some(Some(FileState { content, .. })) = files.get(&merge.path) else {
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
    for run in old_runs.iter().take(MAX_SEARCHED) {
        let added = &theirs[run.new_lines()];
        found.notes.extend(repetition(&file, added, texts, &is_in));
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

/// Returns a note if upstream added the lines that the patch adds somewhere in the file already.
fn repetition(
    file: &str,
    added: &[&[u8]],
    texts: &MergeTexts,
    functions: &Functions<'_, '_>,
) -> Option<String> {
    let wanted: Vec<Vec<u8>> = added.iter().map(|line| squeezed(&[line])).collect();
    let wanted: Vec<&Vec<u8>> = wanted.iter().filter(|line| !line.is_empty()).collect();
    let letters: usize = wanted.iter().map(|line| distinctive(line)).sum();
    let longest = added
        .iter()
        .map(|line| line.trim_ascii())
        .max_by_key(|line| line.len())?;
    // Most lines are nowhere else, which a search tells soonest.
    if letters < MIN_DISTINCTIVE || count(&texts.ours, longest) <= count(&texts.base, longest) {
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
    let there = starts(&texts.ours);
    if there.len() <= starts(&texts.base).len() {
        return None;
    }
    let places: Vec<String> = there
        .iter()
        .take(3)
        .map(|at| match functions.at(*at) {
            Some(function) => format!("line {} in `{}`", at + 1, name(&function)),
            None => format!("line {}", at + 1),
        })
        .collect();
    Some(format!(
        "the release already has the same lines in {file} ({}): check that they are not there twice",
        places.join(", ")
    ))
}
