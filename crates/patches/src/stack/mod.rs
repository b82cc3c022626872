//! The stack: the series applied to a release, as a chain of git commits.
//!
//! Nothing is checked out: files are changed in memory, and only the tree objects on the changed
//! paths are written. Commits depend on the release and the patches alone, so the same series on the
//! same release has the same names everywhere.

mod cache;
mod change;
mod commit;
mod conflict;
mod counted;
mod disk;
mod folder;
pub mod format;
pub mod history;
mod lines;
pub mod memory;
pub mod merge;
mod place;
mod tree;
pub mod trial;
mod worktree;

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use git2::Oid;

use crate::series::{Patch, Series};
use crate::upstream::{Objects, Release, merge_small};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_system::process::check_interrupted;

pub use change::How;
pub use counted::{CountedTrees, Counts};
pub use worktree::{Moved, Worktree, export};

use cache::{Cache, Record};
use change::apply_patch;
use commit::{Committed, Step, commit_all, name_all};
use tree::WorkingTree;

/// A release with the series on top of it.
#[derive(Debug, Clone)]
pub struct Stack {
    /// The release.
    pub release: Release,
    /// One step a patch, in order.
    pub steps: Vec<Applied>,
    series: Series,
    store: PathBuf,
    fuzz: usize,
}

/// A patch in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The patch's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The commit with this and all earlier patches.
    pub commit: String,
    /// That commit's tree.
    pub tree: String,
    /// Whether it fitted where it was written.
    pub how: How,
}

/// Applies the whole series to the release, with the fuzz that `[series]` allows.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when a patch does not apply, naming patch, line, file
/// and what was expected.
pub fn apply(ws: &Workspace, release: &Release, series: &Series) -> Result<Stack> {
    apply_with(ws, release, series, ws.config.series.fuzz)
}

/// Like [`apply`], ignoring up to `fuzz` lines of context where a hunk fits nowhere otherwise.
///
/// # Errors
/// As [`apply`].
pub fn apply_with(
    ws: &Workspace,
    release: &Release,
    series: &Series,
    fuzz: usize,
) -> Result<Stack> {
    let store = Objects::open(&ws.object_store())?;
    let patches: Vec<&Patch> = series.patches().iter().collect();
    let steps = chain(&store, release, &patches, fuzz)?;
    Ok(Stack {
        release: release.clone(),
        steps,
        series: series.clone(),
        store: ws.object_store(),
        fuzz,
    })
}

impl Stack {
    /// The tree of a point; [`Point::Alone`] and [`Point::Without`] are applied when asked for.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for a point beyond the series,
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series) when a patch cannot be separated from the others.
    pub fn tree(&self, point: Point) -> Result<String> {
        let patches = self.series.patches();
        match point {
            Point::Control | Point::Step(0) => Ok(self.release.tree.clone()),
            Point::Step(k) => self
                .steps
                .get(k - 1)
                .map(|step| step.tree.clone())
                .ok_or_else(|| self.beyond(k)),
            Point::Alone(k) => {
                let patch = self.series.patch(k).ok_or_else(|| self.beyond(k))?;
                self.other(&[patch]).map_err(|error| {
                    let needs = self.needed_by(k);
                    not_separable(
                        patch,
                        k,
                        &error,
                        &match needs {
                            Some(j) => format!("it needs patch {j} ({})", patches[j - 1].name),
                            None => "it needs earlier patches".to_owned(),
                        },
                    )
                })
            }
            Point::Without(k) => {
                let patch = self.series.patch(k).ok_or_else(|| self.beyond(k))?;
                let rest: Vec<&Patch> = patches.iter().filter(|p| p.name != patch.name).collect();
                self.other(&rest).map_err(|error| {
                    let failed = patches
                        .iter()
                        .position(|p| error.place().is_some_and(|place| place.file == *p.shown));
                    not_separable(
                        patch,
                        k,
                        &error,
                        &match failed {
                            Some(j) => format!("needed by patch {} ({})", j + 1, patches[j].name),
                            None => "a later patch needs it".to_owned(),
                        },
                    )
                })
            }
        }
    }

    fn other(&self, patches: &[&Patch]) -> Result<String> {
        let store = Objects::open(&self.store)?;
        let steps = chain(&store, &self.release, patches, self.fuzz)?;
        Ok(steps
            .last()
            .map_or_else(|| self.release.tree.clone(), |step| step.tree.clone()))
    }

    /// The latest earlier patch that patch `k` cannot do without: the last of the shortest beginning
    /// of the series on which `k` applies.
    fn needed_by(&self, k: usize) -> Option<usize> {
        let patches = self.series.patches();
        let store = Objects::open(&self.store).ok()?;
        // Patch k applies after the first k - 1 and not after none; in between the border is sought.
        let (mut without, mut with) = (0, k - 1);
        while with - without > 1 {
            let middle = (without + with) / 2;
            let mut trial: Vec<&Patch> = patches[..middle].iter().collect();
            trial.push(&patches[k - 1]);
            if applies(&store, &self.release, &trial, self.fuzz) {
                with = middle;
            } else {
                without = middle;
            }
        }
        (with > 0).then_some(with)
    }

    fn beyond(&self, k: usize) -> Error {
        Error::usage(format!(
            "there is no patch {k}: the series has {}",
            self.steps.len()
        ))
    }
}

fn not_separable(patch: &Patch, k: usize, cause: &Error, why: &str) -> Error {
    let error = Error::series(format!(
        "patch {k} ({}) is not separable: {why}",
        patch.name
    ))
    .details([cause.to_string()]);
    match cause.place() {
        Some(place) => error.at(place.file.clone(), place.line),
        None => error,
    }
}

/// Applies `patches` in order, one commit each, but for the beginning that is remembered. What could
/// be applied is remembered even if a later patch fails.
fn chain(
    store: &Objects,
    release: &Release,
    patches: &[&Patch],
    fuzz: usize,
) -> Result<Vec<Applied>> {
    let cache = Cache::new(store);
    let keys = cache::keys(release, patches, fuzz);
    let mut records = cache.longest(&keys);
    if records.len() < patches.len() {
        let start = match records.last() {
            Some(record) => record.committed,
            None => Committed {
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
            // The stack is there; that packs are many is no reason to fail.
            if let Err(error) = merge_small(store) {
                tracing::debug!("packs were not merged: {error}");
            }
        } else {
            fault?;
        }
    }
    let steps = patches.iter().zip(records).map(|(patch, record)| Applied {
        name: patch.name.clone(),
        title: patch.title.clone(),
        commit: record.committed.commit.to_string(),
        tree: record.committed.tree.to_string(),
        how: record.how,
    });
    Ok(steps.collect())
}

/// Patches whose changes wait for each of the threads that follow.
const WAITING: usize = 32;

/// Applies `patches` in order on top of `start` and commits them. Returns what was done, and why it
/// ended early if it did.
fn apply_on(
    store: &Objects,
    start: Committed,
    patches: &[&Patch],
    fuzz: usize,
) -> Result<(Vec<Record>, Result<()>)> {
    let (sender, applied) = sync_channel(WAITING);
    let (namer, named) = sync_channel(WAITING);
    let other = store.again()?;
    std::thread::scope(|scope| {
        scope.spawn(move || name_all(&applied, &namer));
        let committer = scope.spawn(move || {
            let other = other;
            commit_all(&other, start, patches.len(), &named)
        });
        let mut tree = WorkingTree::new(store, start.tree);
        let mut hows = Vec::with_capacity(patches.len());
        let mut fault = Ok(());
        for patch in patches {
            let applied = check_interrupted().and_then(|()| apply_patch(&mut tree, patch, fuzz));
            match applied {
                Ok(how) => hows.push(how),
                Err(error) => {
                    fault = Err(error);
                    break;
                }
            }
            let changes = tree.take_changes();
            // Nobody listens once the committer has failed; its error is the one to report.
            if sender.send(Step { patch, changes }).is_err() {
                break;
            }
        }
        drop(sender);
        let committed = committer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let records = committed.into_iter().zip(hows);
        let records = records.map(|(committed, how)| Record { committed, how });
        Ok((records.collect(), fault))
    })
}

/// Whether `patches` apply in order.
fn applies(store: &Objects, release: &Release, patches: &[&Patch], fuzz: usize) -> bool {
    let attempt = || -> Result<()> {
        let mut tree = WorkingTree::new(store, oid(&release.tree)?);
        for patch in patches {
            apply_patch(&mut tree, patch, fuzz)?;
        }
        Ok(())
    };
    attempt().is_ok()
}

fn oid(text: &str) -> Result<Oid> {
    Oid::from_str(text).map_err(|_| Error::internal(format!("`{text}` names no object")))
}
