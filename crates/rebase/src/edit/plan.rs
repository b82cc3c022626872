//! Plans a refresh: file and bytes of each patch, verified against the branch's trees before anything is
//! written.

use std::collections::BTreeSet;

use strum::Display;

use super::assign::{self, Assignment, BranchCommit, OriginalPatch, short};
use super::branch::stack_tip;
use super::publish::FileChange;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_series::series::message::{self, Message, PATCH_KEY, patch_line};
use perfquilt_series::series::rewritten;
use perfquilt_series::series::write::{self, SeriesLine};
use perfquilt_series::series::{
    Patch, Series, SeriesEntry, SeriesFile, SeriesLocation, compress, compression, path,
};
use perfquilt_series::stack::history::{self, Commit};
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::stack::{self, AppliedPatch, Stack, format, if_applies};
use perfquilt_series::upstream::{Objects, Release};

/// How a refresh changes a patch's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum PatchChange {
    /// The file stays the same, byte for byte.
    Kept,
    /// The change is the same, at other lines because of earlier patches.
    Moved,
    /// The diff differs.
    Changed,
    /// Only the header differs.
    Reworded,
    /// The patch is new.
    New,
}

/// A patch of the series after the refresh.
#[derive(Debug, Clone)]
pub struct RefreshedPatch {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// How its file changes.
    pub change: PatchChange,
    /// Its previous name, if it was renamed.
    pub renamed_from: Option<String>,
    /// Names of patches that were squashed into it.
    pub joined: Vec<String>,
    /// Its previous place in the series, from 1; `None` for a new patch.
    pub old_index: Option<usize>,
}

/// A commit of the branch without a change, which is no patch of the series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyCommit {
    /// Its abbreviated id.
    pub commit: String,
    /// Its title.
    pub title: String,
}

/// The planned content of a patch.
pub(super) struct PlannedPatch {
    pub(super) outcome: RefreshedPatch,
    /// Its index in the old series; `None` for a new patch.
    from: Option<usize>,
    /// Its decompressed bytes.
    bytes: Vec<u8>,
    /// Header and canonical diff, the fallback if `bytes` do not give the right tree.
    canonical: Vec<u8>,
    /// Whether the patch's options in `series` must be removed.
    plain: bool,
    tree: String,
}

/// The input of a refresh.
pub(super) struct Planner<'a> {
    pub(super) ws: &'a Workspace,
    pub(super) location: &'a SeriesLocation,
    pub(super) store: &'a Objects,
    pub(super) release: &'a Release,
    pub(super) series: &'a Series,
    pub(super) stack: &'a Stack,
    /// The commits of the branch, in order.
    pub(super) commits: Vec<Commit>,
    /// Whether to remove patches that became empty.
    pub(super) drop_empty: bool,
}

/// The planned changes of a refresh.
pub(super) struct RefreshPlan {
    pub(super) made: Vec<PlannedPatch>,
    /// Names of patches that leave the series.
    pub(super) removed: Vec<String>,
    /// Commits that leave the branch because they are empty.
    pub(super) dropped: Vec<EmptyCommit>,
    /// The text of the new `series`.
    pub(super) text: String,
    /// The stack of the new series.
    pub(super) stack: Stack,
    /// Names of the patches in the old series.
    old_names: Vec<String>,
}

impl Planner<'_> {
    /// Plans every patch and verifies the result.
    pub(super) fn plan(self) -> Result<RefreshPlan> {
        let commits: Vec<BranchCommit> = self.commits.iter().map(BranchCommit::from).collect();
        let originals = self.originals()?;
        let assigned = assign::assign(&originals, &commits)?;
        let mut taken = self.location.files();
        taken.extend(originals.iter().map(|original| original.name.clone()));
        // New patches are added here, so that their names are numbered consecutively.
        let mut entries: Vec<SeriesEntry> = self.series.file().entries().to_vec();
        let mut made = Vec::new();
        let mut empty_patches = Vec::new();
        let mut dropped = Vec::new();
        let mut parent = self.release.tree.clone();
        for (commit, assigned) in commits.iter().zip(&assigned) {
            let original = assigned.from.map(|index| &originals[index]);
            let was_empty = assigned
                .from
                .is_some_and(|index| self.series.patches()[index].files.is_empty());
            if commit.tree == parent && !was_empty {
                let id = short(&commit.id);
                match original {
                    Some(original) => {
                        empty_patches.push(format!("{} (commit {id})", original.name));
                    }
                    None => dropped.push(EmptyCommit {
                        commit: id.to_owned(),
                        title: commit.message.title.clone(),
                    }),
                }
                continue;
            }
            let name = self.name(commit, assigned, original, &mut entries, &mut taken)?;
            made.push(self.patch(commit, assigned, &originals, name, &parent)?);
            parent.clone_from(&commit.tree);
        }
        let any_empty = !empty_patches.is_empty() || !dropped.is_empty();
        if any_empty && !self.drop_empty {
            return Err(empty_error(&empty_patches, &dropped));
        }
        let plan = self.verified(made)?;
        Ok(RefreshPlan { dropped, ..plan })
    }

    fn originals(&self) -> Result<Vec<OriginalPatch>> {
        let last = stack_tip(self.stack);
        let commits = history::commits(self.store, &self.release.commit, &last)?;
        Ok(self
            .stack
            .steps
            .iter()
            .zip(commits)
            .map(|(step, commit)| OriginalPatch {
                name: step.name.clone(),
                commit: step.commit.clone(),
                tree: step.tree.clone(),
                message: Message::parse(&commit.message, commit.author, commit.date).0,
            })
            .collect())
    }

    fn name(
        &self,
        commit: &BranchCommit,
        assigned: &Assignment,
        original: Option<&OriginalPatch>,
        entries: &mut Vec<SeriesEntry>,
        taken: &mut BTreeSet<String>,
    ) -> Result<String> {
        let place = || format!("commit {}", short(&commit.id));
        if let Some(named) = &assigned.named {
            path::check(named.as_bytes()).map_err(|error| {
                Error::patch_name(format!(
                    "{}: {}: {}",
                    place(),
                    patch_line(named),
                    error.message()
                ))
                .hint("the line names a file below the folder of patches")
            })?;
            if named.starts_with('#') || named == "series" {
                return Err(Error::patch_name(format!(
                    "{}: {} cannot be a patch's name",
                    place(),
                    patch_line(named)
                )));
            }
            if !taken.insert(named.clone()) {
                return Err(Error::patch_name(format!(
                    "{}: the file {named} already exists",
                    place()
                ))
                .hint(format!(
                    "give it another name on its `{PATCH_KEY}:` line, or remove that line"
                )));
            }
            return Ok(named.clone());
        }
        if let Some(original) = original {
            return Ok(original.name.clone());
        }
        let name = write::name_for(&commit.message.title, entries, taken);
        taken.insert(name.clone());
        entries.push(SeriesEntry::plain(&name));
        Ok(name)
    }

    fn patch(
        &self,
        commit: &BranchCommit,
        assigned: &Assignment,
        originals: &[OriginalPatch],
        name: String,
        parent: &str,
    ) -> Result<PlannedPatch> {
        let (diff, submodule) = format::commit_diff(self.store, parent, &commit.tree)?;
        if let Some(path) = submodule {
            return Err(Error::patch_unsupported(format!(
                "commit {} changes the submodule {path}, which patches cannot do",
                short(&commit.id)
            )));
        }
        let joined = assigned
            .absorbed
            .iter()
            .map(|&index| originals[index].name.clone());
        let mut outcome = RefreshedPatch {
            title: commit.message.title.clone(),
            change: PatchChange::New,
            renamed_from: None,
            joined: joined.collect(),
            old_index: assigned.from.map(|index| index + 1),
            name,
        };
        let absorbed = assigned.absorbed.iter();
        let absorbed =
            absorbed.map(|&index| self.location.bytes(&self.series.file().entries()[index]));
        let absorbed: Vec<Vec<u8>> = absorbed.collect::<Result<_>>()?;
        let headers: Vec<&[u8]> = absorbed
            .iter()
            .map(|bytes| write::header_bytes(bytes))
            .collect();
        let Some(index) = assigned.from else {
            let header = message::add_fields(&message::new_header(&commit.message), &headers);
            let sources: Vec<&[u8]> = absorbed.iter().map(Vec::as_slice).collect();
            let bytes = rewritten(&sources, &header, &diff);
            return Ok(PlannedPatch {
                canonical: bytes.clone(),
                bytes,
                outcome,
                from: None,
                plain: true,
                tree: commit.tree.clone(),
            });
        };
        let original = &originals[index];
        let entry = &self.series.file().entries()[index];
        if outcome.name != original.name {
            outcome.renamed_from = Some(original.name.clone());
        }
        let bytes = self.location.bytes(entry)?;
        let old_header = write::header_bytes(&bytes).to_vec();
        let header = message::update_header(&old_header, &original.message, &commit.message);
        let header = message::add_fields(&header, &headers);
        let sources: Vec<&[u8]> = std::iter::once(&bytes)
            .chain(&absorbed)
            .map(Vec::as_slice)
            .collect();
        let before = match index {
            0 => &self.release.tree,
            _ => &self.stack.steps[index - 1].tree,
        };
        let step = &self.stack.steps[index];
        let old_diff = format::diff(self.store, before, &step.tree)?;
        let was_canonical = bytes == rewritten(&[&bytes], &old_header, &old_diff);
        let same_diff = diff == old_diff && step.fit.fuzz == 0;
        // The old patch may still give the same tree although its canonical diff differs.
        let fits = same_diff || self.fits(index, parent, &commit.tree)?;
        let keep_diff = same_diff || (fits && !was_canonical);
        outcome.change = match (header == old_header, fits) {
            (true, true) if keep_diff => PatchChange::Kept,
            (true, true) => PatchChange::Moved,
            (false, true) => PatchChange::Reworded,
            (_, false) => PatchChange::Changed,
        };
        let canonical = rewritten(&sources, &header, &diff);
        let new = if keep_diff {
            write::compose(&header, &bytes[old_header.len()..])
        } else {
            canonical.clone()
        };
        Ok(PlannedPatch {
            bytes: if outcome.change == PatchChange::Kept {
                bytes
            } else {
                new
            },
            canonical,
            outcome,
            from: Some(index),
            plain: !keep_diff,
            tree: commit.tree.clone(),
        })
    }

    /// Whether the unchanged old patch turns the parent's tree into the commit's.
    fn fits(&self, index: usize, parent: &str, wanted: &str) -> Result<bool> {
        let mut trial = TrialTree::new(self.store, parent)?;
        let patch = &self.series.patches()[index];
        let applied = if_applies(trial.apply(patch, self.ws.config.series.fuzz))?;
        Ok(applied.is_some() && trial.write()? == wanted)
    }

    /// Applies the planned series and compares every tree with the branch's.
    fn verified(&self, mut made: Vec<PlannedPatch>) -> Result<RefreshPlan> {
        let old_names: Vec<String> = self
            .series
            .patches()
            .iter()
            .map(|patch| patch.name.clone())
            .collect();
        loop {
            let (text, series) = self.compose(&made)?;
            let applied = stack::apply(self.ws, self.release, &series);
            let wrong = match &applied {
                Ok(stack) => made.iter().zip(&stack.steps).position(
                    |(made, step): (&PlannedPatch, &AppliedPatch)| made.tree != step.tree,
                ),
                Err(error) if error.kind() == Kind::Series => series
                    .patches()
                    .iter()
                    .position(|patch| error.location().is_some_and(|at| at.file == *patch.shown)),
                Err(error) => return Err(error.clone()),
            };
            match (wrong, applied) {
                (None, Ok(stack)) => {
                    let names: BTreeSet<&str> =
                        made.iter().map(|made| made.outcome.name.as_str()).collect();
                    let renamed: BTreeSet<&str> = made
                        .iter()
                        .filter_map(|made| made.outcome.renamed_from.as_deref())
                        .collect();
                    let removed = old_names
                        .iter()
                        .filter(|name| {
                            !names.contains(name.as_str()) && !renamed.contains(name.as_str())
                        })
                        .cloned()
                        .collect();
                    return Ok(RefreshPlan {
                        made,
                        removed,
                        dropped: Vec::new(),
                        text,
                        stack,
                        old_names,
                    });
                }
                (Some(at), _) if !made[at].plain => {
                    // The patch's own bytes have another effect here; the canonical diff is reliable.
                    let patch = &mut made[at];
                    patch.bytes.clone_from(&patch.canonical);
                    patch.plain = true;
                    patch.outcome.change = PatchChange::Changed;
                }
                (_, applied) => {
                    let cause = applied.err().map(|error| error.to_string());
                    let name = wrong.map_or("?", |at| made[at].outcome.name.as_str());
                    return Err(Error::other_effect(format!(
                        "{name} would not reproduce the branch's tree; nothing was written"
                    ))
                    .details(cause));
                }
            }
        }
    }

    fn compose(&self, made: &[PlannedPatch]) -> Result<(String, Series)> {
        let wanted: Vec<SeriesLine> = made
            .iter()
            .map(|made| SeriesLine {
                name: made.outcome.name.clone(),
                from: made.from,
                plain: made.plain,
            })
            .collect();
        let text = write::series(self.series.file(), &wanted);
        let file = SeriesFile::read(text.as_bytes(), &self.location.shown)?;
        let mut patches = Vec::new();
        for (made, entry) in made.iter().zip(file.entries()) {
            let shown = self.location.shown_patch(&entry.name);
            patches.push(Patch::parse(entry, &shown, &made.bytes)?);
        }
        Ok((text, Series::assemble(file, patches)))
    }
}

impl RefreshPlan {
    /// Returns the files to write, followed by the files to remove.
    pub(super) fn changes(&self, location: &SeriesLocation) -> Result<Vec<FileChange>> {
        let patches = &location.folder;
        let mut changes = Vec::new();
        let mut files: BTreeSet<&str> = BTreeSet::new();
        for made in &self.made {
            let name = made.outcome.name.as_str();
            files.insert(name);
            let renamed = made.outcome.renamed_from.as_deref();
            let content = match (made.outcome.change, renamed) {
                (PatchChange::Kept, None) => continue,
                (PatchChange::Kept, Some(old)) if compression(old) == compression(name) => {
                    location.raw(old)?
                }
                _ => compress(name, &made.bytes)?,
            };
            changes.push(FileChange {
                path: patches.join(name),
                content: Some(content),
            });
        }
        for name in &self.old_names {
            if !files.contains(name.as_str()) {
                changes.push(FileChange {
                    path: patches.join(name),
                    content: None,
                });
            }
        }
        Ok(changes)
    }
}

/// Returns the error for patches that became empty and for empty commits that are no patches of the series.
fn empty_error(patches: &[String], commits: &[EmptyCommit]) -> Error {
    let commit_names: Vec<String> = commits
        .iter()
        .map(|empty| format!("{} ({})", empty.commit, empty.title))
        .collect();
    let mut causes = Vec::new();
    if !patches.is_empty() {
        let verb = if patches.len() == 1 {
            "a patch is"
        } else {
            "patches are"
        };
        causes.push(format!("{verb} empty now: {}", patches.join(", ")));
    }
    if !commits.is_empty() {
        let verb = if commits.len() == 1 {
            "a commit is"
        } else {
            "commits are"
        };
        causes.push(format!("{verb} empty: {}", commit_names.join(", ")));
    }
    let effect = match (patches.len(), commits.len()) {
        (1, 0) => "removes it from the series and keeps a backup of its file",
        (_, 0) => "removes them from the series and keeps backups of their files",
        (0, 1) => "drops it from the branch",
        (0, _) => "drops them from the branch",
        _ => {
            "removes the patches from the series, with backups of their files, and drops the commits from the branch"
        }
    };
    Error::patch_name(causes.join("; ")).hint(format!("`perfquilt refresh --drop-empty` {effect}"))
}
