//! The stack: the series applied to a release, as a chain of git commits.
//!
//! Applying a series checks nothing out: it changes files in memory and writes only the tree objects on the changed
//! paths. The commits depend only on the release and the patches, so the same series on the same release has the same
//! commit ids everywhere.

mod cache;
mod change;
mod commit;
pub mod conflict;
pub mod format;
pub mod history;
mod lines;
mod moved_lines;
mod pending;
pub mod place;
pub mod tree;
mod tree_object;
mod tree_pairs;
pub mod trial;
mod worktree;

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use git2::Oid;

use crate::series::{FileDiff, Patch, Presence, Series};
use crate::upstream::{Objects, Release};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::process::check_interrupted;

pub use change::PatchFit;
pub use moved_lines::MovedLines;
pub use worktree::is_on_disk;
pub use worktree::{MoveResult, Worktree, export};

use cache::{StackCache, StackRecord};
use change::apply_patch;
use commit::{CommittedTree, PatchChanges, commit_all, hash_all};
use tree::WorkingTree;
use tree_object::TreeObject;
use trial::TrialTree;

pub use crate::upstream::objects::oid;

/// A release with a series applied to it.
#[derive(Debug, Clone)]
pub struct Stack {
    /// The release.
    pub release: Release,
    /// The applied patches in order.
    pub steps: Vec<AppliedPatch>,
    /// The series.
    pub series: Series,
    /// The path of the object store.
    pub store: PathBuf,
    /// The number of context lines that may be ignored.
    pub fuzz: usize,
}

/// A patch applied as part of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedPatch {
    /// The patch's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The commit with this and all earlier patches.
    pub commit: String,
    /// That commit's tree.
    pub tree: String,
    /// Offset and fuzz of its hunks.
    pub fit: PatchFit,
}

/// Applies the whole series to the release, with the fuzz that `[series]` allows.
pub fn apply(ws: &Workspace, release: &Release, series: &Series) -> Result<Stack> {
    apply_with(ws, release, series, ws.config.series.fuzz)
}

/// Applies the whole series to the release, ignoring up to `fuzz` lines of context where a hunk does not fit otherwise.
pub fn apply_with(
    ws: &Workspace,
    release: &Release,
    series: &Series,
    fuzz: usize,
) -> Result<Stack> {
    let store = Objects::open(&ws.object_store())?;
    let patches: Vec<&Patch> = series.patches().iter().collect();
    let steps = chain(&store, release, &patches, fuzz).map_err(|error| {
        let Some(failed) = failed_patch(&patches, &error) else {
            return error;
        };
        let keys = cache::keys(release, &patches[..failed], fuzz);
        let applied = StackCache::new(&store).longest(&keys);
        let mut trees: Vec<Oid> = oid(&release.tree).into_iter().collect();
        trees.extend(applied.iter().map(|record| record.committed.tree));
        with_other_patches(&store, &trees, &patches, fuzz, error)
    })?;
    Ok(Stack {
        release: release.clone(),
        steps,
        series: series.clone(),
        store: ws.object_store(),
        fuzz,
    })
}

/// Applies `patches` in order, one commit each, after the longest cached prefix. Caches the applied patches even if a
/// later one fails.
pub fn chain(
    store: &Objects,
    release: &Release,
    patches: &[&Patch],
    fuzz: usize,
) -> Result<Vec<AppliedPatch>> {
    let cache = StackCache::new(store);
    let keys = cache::keys(release, patches, fuzz);
    let mut records = cache.longest(&keys);
    if records.len() < patches.len() {
        let start = match records.last() {
            Some(record) => record.committed,
            None => CommittedTree {
                commit: oid(&release.commit)?,
                tree: oid(&release.tree)?,
            },
        };
        let (new, fault) = apply_on(store, start, &patches[records.len()..], fuzz)?;
        let any = !new.is_empty();
        records.extend(new);
        if any {
            let published = cache.publish(&keys[..records.len()], &records);
            fault.and(published)?;
        } else {
            fault?;
        }
    }
    let steps = patches
        .iter()
        .zip(records)
        .map(|(patch, record)| AppliedPatch {
            name: patch.name.clone(),
            title: patch.title.clone(),
            commit: record.committed.commit.to_string(),
            tree: record.committed.tree.to_string(),
            fit: record.fit,
        });
    Ok(steps.collect())
}

/// Capacity, in patches, of the queue before each of the following threads.
const QUEUE_CAPACITY: usize = 32;

/// Applies `patches` in order on top of `start` and commits them. Returns the applied patches, and the error if a patch
/// does not apply.
fn apply_on(
    store: &Objects,
    start: CommittedTree,
    patches: &[&Patch],
    fuzz: usize,
) -> Result<(Vec<StackRecord>, Result<()>)> {
    let (sender, applied) = sync_channel(QUEUE_CAPACITY);
    let (namer, named) = sync_channel(QUEUE_CAPACITY);
    let other = Objects::open(store.path())?;
    std::thread::scope(|scope| {
        scope.spawn(move || hash_all(&applied, &namer));
        let committer = scope.spawn(move || {
            let other = other;
            commit_all(&other, start, patches.len(), &named)
        });
        let mut tree = WorkingTree::new(store, TreeObject::read(store, start.tree)?);
        let mut fits = Vec::with_capacity(patches.len());
        let mut fault = Ok(());
        for patch in patches {
            let applied = check_interrupted().and_then(|()| apply_patch(&mut tree, patch, fuzz));
            match applied {
                Ok(fit) => fits.push(fit),
                Err(error) => {
                    fault = Err(error);
                    break;
                }
            }
            let changes = tree.take_changes();
            // The receiver is gone once the committer has failed; then its error is the one to report.
            if sender.send(PatchChanges { patch, changes }).is_err() {
                break;
            }
        }
        drop(sender);
        // Freed while the committer is still at work.
        drop(tree);
        let committed = committer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let records = committed.into_iter().zip(fits);
        let records = records.map(|(committed, fit)| StackRecord { committed, fit });
        Ok((records.collect(), fault))
    })
}

/// Distance in the series, in patches, up to which perfquilt searches for another place of a patch that does not apply.
const NEAR: usize = 8;

/// Returns the index of the patch that an error is about.
fn failed_patch(patches: &[&Patch], error: &Error) -> Option<usize> {
    let is_at = |patch: &&Patch| error.location().is_some_and(|at| at.file == *patch.shown);
    patches.iter().position(is_at)
}

/// Adds to the error of a patch that does not apply what the others have to do with it: the earlier one that made its
/// change, or a nearby place in the series where it applies. `trees` are those before the first patch and after each one
/// that applies.
pub fn with_other_patches(
    store: &Objects,
    trees: &[Oid],
    patches: &[&Patch],
    fuzz: usize,
    error: Error,
) -> Error {
    let Some(failed) = failed_patch(patches, &error) else {
        return error;
    };
    if let Some(first) = error
        .location()
        .and_then(|at| made_by(store, trees, patches[failed], at.line?))
    {
        return error.hint(format!(
            "patch {} ({}) has made this change already: if the two are one, remove one of them",
            first + 1,
            patches[first].name
        ));
    }
    let moved = |count: usize, rest: &[&Patch]| {
        trees
            .get(count)
            .is_some_and(|tree| applies(store, *tree, rest, fuzz))
    };
    let after = (failed + 1..patches.len()).take(NEAR).find(|&last| {
        let order = [&patches[failed + 1..=last], &[patches[failed]]].concat();
        moved(failed, &order)
    });
    let before = || {
        (0..failed).rev().take(NEAR).find(|&first| {
            let order = [&[patches[failed]], &patches[first..failed]].concat();
            moved(first, &order)
        })
    };
    let place = match after {
        Some(last) => Some(("after", last)),
        None => before().map(|first| ("before", first)),
    };
    match place {
        Some((side, index)) => error.hint(format!(
            "it applies {side} patch {} ({}): are they in the wrong order in the series?",
            index + 1,
            patches[index].name
        )),
        None => error,
    }
}

/// Returns the index of the patch that made the change of the hunk or diff in line `line` of a patch that does not apply.
fn made_by(store: &Objects, trees: &[Oid], patch: &Patch, line: usize) -> Option<usize> {
    let hunk_in = |diff: &FileDiff| diff.hunks.iter().position(|hunk| hunk.line == line);
    let diff = patch
        .files
        .iter()
        .find(|diff| diff.line == line || hunk_in(diff).is_some())?;
    let hunk = hunk_in(diff).map(|index| &diff.hunks[index]);
    let mut trial = TrialTree::new(store, &trees.last()?.to_string()).ok()?;
    let mut is_made = |tree: &&Oid| {
        let is_read = trial.reset(&tree.to_string()).is_ok();
        let mut file = |name: &Vec<u8>| trial.file(name).ok().flatten();
        let is_gone = diff.rename || diff.after == Presence::Absent;
        is_read
            && match diff.names().find_map(&mut file) {
                _ if is_gone && diff.old.as_ref().is_some_and(|old| file(old).is_some()) => false,
                None => diff.after == Presence::Absent,
                Some(file) => match hunk {
                    Some(hunk) => conflict::contains_result(hunk, &file.content),
                    None => conflict::already_applied(diff, &file.content),
                },
            }
    };
    let made = trees.iter().rev().take_while(&mut is_made).count();
    // The patch before the first of these trees; the release may have the change itself.
    (made > 0)
        .then(|| trees.len() - made)
        .and_then(|first| first.checked_sub(1))
}

/// Returns `None` for the error of a patch that does not apply.
pub fn if_applies<T>(applied: Result<T>) -> Result<Option<T>> {
    match applied {
        Err(error) if error.kind() == Kind::Series => Ok(None),
        applied => applied.map(Some),
    }
}

/// Returns whether `patches` apply in order on `tree`.
pub fn applies(store: &Objects, tree: Oid, patches: &[&Patch], fuzz: usize) -> bool {
    let attempt = || -> Result<()> {
        let mut tree = WorkingTree::new(store, TreeObject::read(store, tree)?);
        for patch in patches {
            apply_patch(&mut tree, patch, fuzz)?;
        }
        Ok(())
    };
    attempt().is_ok()
}
