//! Applies single patches of a stack to another tree, such as the release without some of the earlier patches, by the
//! rule of a rebase: a hunk goes where git's merge puts it, and where its context alone says so only if that names one
//! place.

use super::TreePair;
use super::placement::judge;
use super::three_way::{
    FileMerge, FileMergeResult, MergeFailure, MergeTrees, changed_files, merge_files,
};
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::path::shown;
use perfquilt_series::series::{FileDiff, Patch};
use perfquilt_series::stack::format::changed_paths;
use perfquilt_series::stack::tree::{FileState, FileStates};
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::upstream::Objects;

/// The result of [`transfer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferredPatch {
    /// The tree with the patch.
    pub tree: String,
    /// Whether the patch's context alone gives the same tree.
    pub is_plain: bool,
}

/// Returns whether `patch`, which made `own.after` of `own.before` in its own stack, is at the same place where it made
/// `plain.after` of `plain.before` by its context alone.
pub fn is_at_its_place(
    objects: &Objects,
    patch: &Patch,
    own: &TreePair,
    plain: &TreePair,
) -> Result<bool> {
    let mut target = TrialTree::new(objects, &plain.before)?;
    let Some(merges) = merged(objects, patch, own, &mut target)? else {
        return Ok(true);
    };
    Ok(merges.iter().all(FileMerge::is_certain)
        && has_files(&mut TrialTree::new(objects, &plain.after)?, &merges)?)
}

/// Applies `patch`, which made `own.after` of `own.before` in its own stack, to `target`, whose tree is `tree`.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when it does not apply, or may belong elsewhere than where it
/// does; then `target` is as before.
pub fn transfer<'a>(
    objects: &'a Objects,
    patch: &Patch,
    own: &TreePair,
    target: &mut TrialTree<'a>,
    tree: &str,
    fuzz: usize,
) -> Result<TransferredPatch> {
    let merges = merged(objects, patch, own, target)?;
    target.apply(patch, fuzz)?;
    let plain = target.write()?;
    let Some(mut merges) = merges else {
        return Ok(TransferredPatch {
            tree: plain,
            is_plain: true,
        });
    };
    settle(patch, &mut merges, target, fuzz)?;
    target.reset(tree)?;
    if let Some(error) = merges.iter().find_map(|merge| doubt(patch, merge)) {
        return Err(error);
    }
    target.change(changed_files(&merges))?;
    let tree = target.write()?;
    Ok(TransferredPatch {
        is_plain: tree == plain,
        tree,
    })
}

/// Merges a patch into `target`; `None` if all its files there are those that it was made for.
fn merged<'a>(
    objects: &'a Objects,
    patch: &Patch,
    own: &TreePair,
    target: &mut TrialTree<'a>,
) -> Result<Option<Vec<FileMerge>>> {
    let paths = changed_paths(objects, &own.before, &own.after)?;
    let mut before = TrialTree::new(objects, &own.before)?;
    let mut is_same = true;
    for path in &paths {
        is_same &= before.blob(path)? == target.blob(path)?;
    }
    if is_same {
        return Ok(None);
    }
    let mut trees = MergeTrees {
        before: &mut before,
        after: &mut TrialTree::new(objects, &own.after)?,
        ours: target,
        moved: &mut |_| Ok(None),
    };
    merge_files(&mut trees, &patch.files, &paths).map(Some)
}

/// Returns whether a tree has every result of merges.
pub(super) fn has_files(tree: &mut TrialTree<'_>, merges: &[FileMerge]) -> Result<bool> {
    for merge in merges {
        let FileMergeResult::Clean(files) = &merge.result else {
            return Ok(false);
        };
        for (path, file) in files {
            if tree.file(path)?.map(FileState::from) != *file {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Takes the plain result, which `plain` has, for the files where git's merge conflicts and every hunk's context says
/// where it belongs. The merges of the other files count as failed: a guess has no say where a hunk applies elsewhere.
pub(super) fn settle(
    patch: &Patch,
    merges: &mut [FileMerge],
    plain: &mut TrialTree<'_>,
    fuzz: usize,
) -> Result<()> {
    let fuzz = patch.flags.fuzz.unwrap_or(fuzz);
    for merge in merges.iter_mut().filter(|merge| !merge.is_certain()) {
        let named = |diff: &&FileDiff| diff.names().any(|name| *name == merge.old_path);
        let mut diffs = patch.files.iter().filter(named);
        let (Some(diff), None, Some(texts)) = (diffs.next(), diffs.next(), &merge.texts) else {
            continue;
        };
        let found = judge(diff, texts, &merge.path, fuzz)?;
        merge.rules.clear();
        merge.result = if found.ambiguous.is_empty() {
            let file = plain.file(&merge.path)?.map(FileState::from);
            FileMergeResult::Clean(FileStates::from([(merge.path.clone(), file)]))
        } else {
            FileMergeResult::Failed(MergeFailure::Lines)
        };
        merge.is_doubtful = found.is_doubtful;
        merge.ambiguous = found.ambiguous;
    }
    Ok(())
}

/// Returns the error for a file where the patch may belong elsewhere than where it applies.
fn doubt(patch: &Patch, merge: &FileMerge) -> Option<Error> {
    if merge.is_certain() && !merge.is_doubtful {
        return None;
    }
    let named = |diff: &&FileDiff| diff.new.as_ref() == Some(&merge.old_path);
    let diff = patch.files.iter().find(named);
    let file = shown(&merge.path);
    let hunk = merge.ambiguous.first();
    let what = match hunk {
        Some(hunk) => {
            let lines: Vec<String> = hunk.places.iter().map(|at| at.line.to_string()).collect();
            format!(
                "hunk {} of {} may belong elsewhere than where it applies: {file} has its lines at {}",
                hunk.number,
                hunk.hunks,
                lines.join(", ")
            )
        }
        None => format!("it applies to {file}, but its context may be that of other lines"),
    };
    let line = match (hunk, diff) {
        (Some(hunk), Some(diff)) => diff.hunks.get(hunk.number - 1).map(|hunk| hunk.line),
        (_, diff) => diff.map(|diff| diff.line),
    };
    Some(Error::hunk(what).at(&patch.shown, line))
}
