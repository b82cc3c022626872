//! 3-way merge of one patch into another tree, file by file.
//!
//! The common ancestor is the file on the old release before the patch, their side is the file after the patch,
//! and our side is the file on the new release with the earlier patches. Only the changed files are read. Where git's
//! merge fails, [`loose_merge`](super::loose_merge) tries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::loose_merge::{ConflictRegion, LooseMerge, Rule, merge_loosely, squeezed};
use crate::series::FileDiff;
use crate::stack::merge::merge;
use crate::stack::trial::{TreeFile, TrialTree};
use perfquilt_model::error::Result;

/// The merge of one file.
#[derive(Debug, Clone)]
pub struct FileMerge {
    /// The file's path on the old release after the patch (before it, if the patch removes the file).
    pub old_path: Vec<u8>,
    /// The file's path in the new tree.
    pub path: Vec<u8>,
    /// Whether upstream renamed the file.
    pub moved: bool,
    /// The result.
    pub result: FileMergeResult,
    /// The rules beyond git's merge that the result took.
    pub rules: BTreeSet<Rule>,
}

/// The result of merging one file.
#[derive(Debug, Clone)]
pub enum FileMergeResult {
    /// The new tree already has the whole change.
    Upstream,
    /// A clean merge: the files to write, by path with mode and content, or to remove (`None`).
    Clean(BTreeMap<Vec<u8>, Option<(u32, Vec<u8>)>>),
    /// The merge failed and needs a manual decision.
    Failed(MergeFailure),
}

/// Why a file cannot be merged.
#[derive(Debug, Clone)]
pub enum MergeFailure {
    /// Both sides changed the same lines.
    Lines {
        /// The file before the patch, on the old release.
        base: Arc<Vec<u8>>,
        /// The file in the new tree.
        ours: Arc<Vec<u8>>,
        /// The file after the patch, on the old release.
        theirs: Arc<Vec<u8>>,
        /// The conflicting regions.
        regions: Vec<ConflictRegion>,
    },
    /// The new release does not have the file.
    Gone {
        /// The file before the patch, on the old release.
        base: Arc<Vec<u8>>,
    },
    /// Any other reason, described in words.
    Other(String),
}

/// Looks up the path to which upstream moved a file, if it did.
pub type RenameLookup<'t> = dyn FnMut(&[u8]) -> Result<Option<Vec<u8>>> + 't;

/// The trees a merge works on.
pub struct Trees<'t, 'a> {
    /// The old release before the patch.
    pub before: &'t mut TrialTree<'a>,
    /// The old release after the patch.
    pub after: &'t mut TrialTree<'a>,
    /// The new tree.
    pub ours: &'t mut TrialTree<'a>,
    /// Looks up renames of files that the new tree does not have.
    pub moved: &'t mut RenameLookup<'t>,
}

/// Merges every file of `paths`, which differ between the old trees; `diffs` tell which of them were renamed.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the object store is damaged.
pub fn merge_files(
    trees: &mut Trees<'_, '_>,
    diffs: &[FileDiff],
    paths: &[Vec<u8>],
) -> Result<Vec<FileMerge>> {
    let mut left: BTreeSet<&Vec<u8>> = paths.iter().collect();
    let mut merges = Vec::new();
    for diff in diffs.iter().filter(|diff| diff.rename) {
        if let (Some(old), Some(new)) = (&diff.old, &diff.new)
            && left.contains(old)
            && left.contains(new)
            && trees.after.file(old)?.is_none()
        {
            left.remove(old);
            left.remove(new);
            merges.push(renamed(trees, old, new)?);
        }
    }
    for path in left {
        merges.push(one_file(trees, path)?);
    }
    merges.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(merges)
}

fn one_file(trees: &mut Trees<'_, '_>, path: &[u8]) -> Result<FileMerge> {
    let (base, theirs) = (trees.before.file(path)?, trees.after.file(path)?);
    let mut place = path.to_vec();
    let mut ours = trees.ours.file(path)?;
    if ours.is_none()
        && base.is_some()
        && let Some(new) = (trees.moved)(path)?
    {
        ours = trees.ours.file(&new)?;
        place = new;
    }
    let moved = place != path;
    let mut rules = BTreeSet::new();
    let result = match (base, theirs, ours) {
        (_, None, None) => FileMergeResult::Upstream,
        (None, Some(theirs), None) => match trees.ours.obstacle(&place)? {
            Some(obstacle) => FileMergeResult::Failed(MergeFailure::Other(obstacle)),
            None => clean(&place, Some((theirs.mode, theirs.content.to_vec()))),
        },
        (Some(base), Some(_), None) => {
            FileMergeResult::Failed(match trees.ours.obstacle(&place)? {
                Some(obstacle) => MergeFailure::Other(obstacle),
                None => MergeFailure::Gone { base: base.content },
            })
        }
        (base, None, Some(ours)) => {
            let same = base
                .as_ref()
                .is_some_and(|base| base.blob == ours.blob && base.mode == ours.mode);
            if same {
                clean(&place, None)
            } else {
                FileMergeResult::Failed(MergeFailure::Other(
                    "the patch deletes this file, and upstream changed it".to_owned(),
                ))
            }
        }
        (base, Some(theirs), Some(ours)) => {
            result_of(merged(base.as_ref(), &ours, &theirs)?, &mut rules, |file| {
                if same(&file, &ours) {
                    FileMergeResult::Upstream
                } else {
                    clean(&place, Some(file))
                }
            })
        }
    };
    Ok(FileMerge {
        old_path: path.to_vec(),
        path: place,
        moved,
        result,
        rules,
    })
}

/// Returns the result of a merge, made by `done` from the merged file, and adds the rules that it took.
fn result_of(
    merged: MergedFile,
    rules: &mut BTreeSet<Rule>,
    done: impl FnOnce((u32, Vec<u8>)) -> FileMergeResult,
) -> FileMergeResult {
    match merged {
        Ok((file, more)) => {
            rules.extend(more);
            done(file)
        }
        Err(failure) => FileMergeResult::Failed(failure),
    }
}

/// Merges a file that the patch renames.
fn renamed(trees: &mut Trees<'_, '_>, old: &[u8], new: &[u8]) -> Result<FileMerge> {
    let mut rules = BTreeSet::new();
    let done = |path: &[u8], moved, result, rules| FileMerge {
        old_path: new.to_vec(),
        path: path.to_vec(),
        moved,
        result,
        rules,
    };
    let (Some(base), Some(theirs)) = (trees.before.file(old)?, trees.after.file(new)?) else {
        return Ok(done(new, false, FileMergeResult::Upstream, rules));
    };
    let there = trees.ours.file(new)?;
    let Some(ours) = trees.ours.file(old)? else {
        // Upstream renamed it too.
        let Some(ours) = there else {
            return Ok(match (trees.moved)(old)? {
                Some(other) => done(
                    &other,
                    true,
                    FileMergeResult::Failed(MergeFailure::Other(format!(
                        "the patch renames {}, and upstream renamed it differently",
                        crate::series::path::shown(old)
                    ))),
                    rules,
                ),
                None => done(
                    new,
                    false,
                    FileMergeResult::Failed(MergeFailure::Gone { base: base.content }),
                    rules,
                ),
            });
        };
        let result = result_of(merged(Some(&base), &ours, &theirs)?, &mut rules, |file| {
            if same(&file, &ours) {
                FileMergeResult::Upstream
            } else {
                clean(new, Some(file))
            }
        });
        return Ok(done(new, false, result, rules));
    };
    if there.is_some() {
        return Ok(done(
            new,
            false,
            FileMergeResult::Failed(MergeFailure::Other(
                "the patch renames a file to this name, which upstream uses for another".to_owned(),
            )),
            rules,
        ));
    }
    if let Some(obstacle) = trees.ours.obstacle(new)? {
        return Ok(done(
            new,
            false,
            FileMergeResult::Failed(MergeFailure::Other(obstacle)),
            rules,
        ));
    }
    let result = result_of(merged(Some(&base), &ours, &theirs)?, &mut rules, |file| {
        FileMergeResult::Clean(BTreeMap::from([
            (old.to_vec(), None),
            (new.to_vec(), Some(file)),
        ]))
    });
    Ok(done(new, false, result, rules))
}

fn clean(path: &[u8], file: Option<(u32, Vec<u8>)>) -> FileMergeResult {
    FileMergeResult::Clean(BTreeMap::from([(path.to_vec(), file)]))
}

fn same(file: &(u32, Vec<u8>), other: &TreeFile) -> bool {
    file.0 == other.mode && file.1 == *other.content
}

/// A merged file's mode and content with the rules beyond git's merge that it took, or the reason of a failure.
type MergedFile = std::result::Result<((u32, Vec<u8>), BTreeSet<Rule>), MergeFailure>;

/// Merges three versions of a file.
fn merged(base: Option<&TreeFile>, ours: &TreeFile, theirs: &TreeFile) -> Result<MergedFile> {
    let other = |what: String| Ok(Err(MergeFailure::Other(what)));
    let mode = match base {
        _ if theirs.mode == ours.mode => ours.mode,
        Some(base) if base.mode == theirs.mode => ours.mode,
        Some(base) if base.mode == ours.mode => theirs.mode,
        _ => {
            return other(format!(
                "the patch makes this a {}, and upstream has a {} there",
                theirs.kind(),
                ours.kind()
            ));
        }
    };
    let plain = |content: &Arc<Vec<u8>>| Ok(Ok(((mode, content.to_vec()), BTreeSet::new())));
    match base {
        _ if theirs.blob == ours.blob => return plain(&ours.content),
        Some(base) if base.blob == theirs.blob => return plain(&ours.content),
        Some(base) if base.blob == ours.blob => return plain(&theirs.content),
        _ => {}
    }
    let Some(base) = base else {
        if squeezed(&[&ours.content]) == squeezed(&[&theirs.content]) {
            let content = ours.content.to_vec();
            return Ok(Ok(((mode, content), BTreeSet::from([Rule::Already]))));
        }
        return Ok(Err(MergeFailure::Lines {
            base: Arc::new(Vec::new()),
            ours: Arc::clone(&ours.content),
            theirs: Arc::clone(&theirs.content),
            regions: Vec::new(),
        }));
    };
    if [base, ours, theirs]
        .into_iter()
        .any(|file| file.is_link() || file.is_binary())
    {
        return other("both sides changed a file that is not text".to_owned());
    }
    if let Some(content) = merge(&base.content, &ours.content, &theirs.content)? {
        return Ok(Ok(((mode, content), BTreeSet::new())));
    }
    let merged = merge_loosely(&base.content, &ours.content, &theirs.content)?;
    Ok(match merged {
        LooseMerge::Clean(content, rules) => Ok(((mode, content), rules)),
        LooseMerge::Conflict(regions) => Err(MergeFailure::Lines {
            base: Arc::clone(&base.content),
            ours: Arc::clone(&ours.content),
            theirs: Arc::clone(&theirs.content),
            regions,
        }),
    })
}
