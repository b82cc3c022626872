//! Manual resolution of conflicts in a git worktree; the results are recorded and reused.
//!
//! A resolution is recorded as a commit on the tree it was made for. It applies wherever the files it changes have
//! the same content, so a second rebase, or one with different neighbouring patches, reuses it.

use std::path::{Path, PathBuf};

use git2::Oid;
use serde::{Deserialize, Serialize};

use super::{RebasedSeries, Status};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_series::series::Patch;
use perfquilt_series::series::path::shown;
use perfquilt_series::stack::format::changed_paths;
use perfquilt_series::stack::history;
use perfquilt_series::stack::tree::{FileState, FileStates};
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::state;
use perfquilt_series::upstream::Objects;
use perfquilt_system::files::{if_there, write_file};
use perfquilt_system::git::worktree::{self, WorktreeState};
use perfquilt_system::git::{Git, nul_separated};
use perfquilt_system::locks::{self, Lock};
use perfquilt_system::process::quoted;

/// A recorded manual resolution of a patch.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The commit that records it.
    pub commit: String,
    /// The files that it writes or removes.
    pub files: FileStates,
}

/// A conflict that is open in a worktree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenConflict {
    schema: u32,
    /// The patch's name.
    pub patch: String,
    /// The patch's digest.
    digest: String,
    /// The target release.
    pub version: String,
    /// The base commit of the worktree: the new release with the earlier patches.
    parent: String,
    /// The worktree; stored relative to the workspace.
    pub directory: PathBuf,
    /// The files in conflict.
    #[serde(default)]
    pub files: Vec<String>,
}

fn folder(ws: &Workspace) -> PathBuf {
    ws.state().join("rebase")
}

fn state_file(ws: &Workspace) -> PathBuf {
    folder(ws).join("open.json")
}

/// Waits for other commands that open or close a conflict. They stay locked out while the returned lock lives.
fn lock(ws: &Workspace) -> Result<Lock> {
    locks::wait(&folder(ws).join("lock"), || {})
}

/// Returns the open conflict, if any.
pub(super) fn opened(ws: &Workspace) -> Result<Option<OpenConflict>> {
    let hint = "`perfquilt rebase RELEASE --abort` closes the conflict without a result";
    let found = state::read(&state_file(ws), || hint.to_owned())?;
    Ok(found.map(|open: OpenConflict| OpenConflict {
        directory: ws.root().join(&open.directory),
        ..open
    }))
}

/// Refuses an open conflict for a release other than `release`; `option` is the requested option, for the hint.
fn refuse_other(ws: &Workspace, open: &OpenConflict, release: &str, option: &str) -> Result<()> {
    // A release that was removed from the configuration is still accepted.
    if release == open.version {
        return Ok(());
    }
    let version = &ws.config.release(Some(release))?.version;
    if *version == open.version {
        return Ok(());
    }
    Err(Error::resolution(format!(
        "the open conflict is for {}, not for {version}",
        open.version
    ))
    .hint(format!("`perfquilt rebase {} {option}`", open.version)))
}

/// Returns the files with unresolved conflicts.
fn unmerged(git: &Git) -> Result<Vec<String>> {
    let names = git.ok(&["diff", "--name-only", "-z", "--diff-filter=U"])?;
    Ok(nul_separated(&names).map(str::to_owned).collect())
}

/// Opens a patch's conflict in a worktree in git's usual form: markers in the files, three versions in the index
/// and `CHERRY_PICK_HEAD`, so that `git mergetool` and similar tools work.
pub fn open(ws: &Workspace, rebased: &RebasedSeries, which: &str) -> Result<OpenConflict> {
    let index = rebased.series.find(which)?;
    let (report, step) = (&rebased.report.patches[index], &rebased.steps[index]);
    let patch = &rebased.series.patches()[index];
    let objects = Objects::open(&ws.object_store())?;
    let _lock = lock(ws)?;
    if let Some(open) = opened(ws)? {
        let same = open.digest == patch.digest && open.parent == step.parent;
        if !same {
            return Err(Error::resolution(format!(
                "the conflict of {} is still open in {}",
                open.patch,
                open.directory.display()
            ))
            .hint(format!(
                "`perfquilt rebase {} --continue` accepts its result, `--abort` discards it",
                open.version
            )));
        }
        if worktree::inspect(&open.directory, objects.path(), ws.root())? == WorktreeState::Complete
        {
            return Ok(open);
        }
    }
    if !report.status.needs_decision() && report.review.is_none() {
        let error = Error::resolution(format!(
            "{} needs no decision: {}",
            patch.name, report.status
        ));
        return Err(match report.status {
            Status::Untested => error.hint(format!("it {}; open that one", report.evidence)),
            _ => error,
        });
    }
    let mut trial = TrialTree::new(&objects, &step.old.before)?;
    let base = trial.commit(&step.old.before, &rebased.from.commit, patch)?;
    let theirs = trial.commit(&step.old.after, &base, patch)?;
    trial.finish()?;
    let directory = folder(ws).join(format!("{}-{}", rebased.to.version, index + 1));
    let mut open = OpenConflict {
        schema: 1,
        patch: patch.name.clone(),
        digest: patch.digest.clone(),
        version: rebased.to.version.clone(),
        parent: step.parent.clone(),
        directory: directory.clone(),
        files: Vec::new(),
    };
    objects.prepare_worktrees(&[
        ("merge.conflictStyle", "diff3"),
        ("mergetool.keepBackup", "false"),
    ])?;
    // Removes remains of a killed command: a conflict is only open once its state file is written.
    close(ws)?;
    let waiting = progress::begin("checking out the release with the earlier patches", None);
    let added = Git::bare(objects.path())
        .command(&["worktree", "add", "--quiet", "--detach"])
        .args(["--force", "--force"])
        .arg(&directory)
        .arg(&open.parent)
        .run()?;
    if !added.success() {
        let message = format!("git cannot check out to {}", directory.display());
        return Err(Error::resolution(message).details(added.tail(8)));
    }
    let git = Git::new(&directory);
    let picked = git.run(&[
        "-c",
        "rerere.enabled=false",
        "-c",
        "merge.conflictStyle=diff3",
        "cherry-pick",
        &theirs,
    ])?;
    waiting.finish("");
    perfquilt_system::process::check_interrupted()?;
    open.files = unmerged(&git)?;
    let picking = git.run(&["rev-parse", "--quiet", "--verify", "CHERRY_PICK_HEAD"])?;
    if !picked.success() && open.files.is_empty() && !picking.success() {
        let tail = picked.tail(8);
        close(ws)?;
        return Err(Error::resolution("git cannot apply the patch in the worktree").details(tail));
    }
    save(ws, &open)?;
    Ok(open)
}

/// Records the commits in the worktree of the conflict open for `release` as its resolution. Returns the patch's name.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when no conflict is open, or one for another release;
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) while the worktree has unmerged or uncommitted files,
/// no commit, or a conflict marker in it.
pub fn take(ws: &Workspace, release: &str) -> Result<String> {
    let _lock = lock(ws)?;
    let Some(open) = opened(ws)? else {
        return Err(Error::resolution("no conflict is open")
            .hint("`perfquilt rebase RELEASE --resolve PATCH` opens one"));
    };
    refuse_other(ws, &open, release, "--continue")?;
    let dir = open.directory.display().to_string();
    let objects = Objects::open(&ws.object_store())?;
    if worktree::inspect(&open.directory, objects.path(), ws.root())? != WorktreeState::Complete {
        remove_state(ws)?;
        return Err(Error::resolution(format!("the worktree {dir} is gone"))
            .hint("open the conflict again with --resolve"));
    }
    let git = Git::new(&open.directory);
    let unmerged = unmerged(&git)?;
    let word = quoted(&dir);
    let finish = format!("git -C {word} add -A && git -C {word} cherry-pick --continue");
    if !unmerged.is_empty() {
        return Err(
            Error::resolution_unfinished(format!("there are unmerged files in {dir}"))
                .details(unmerged)
                .hint(format!("once they are right: `{finish}`")),
        );
    }
    let status = git.status()?;
    let picking = git.run(&["rev-parse", "--quiet", "--verify", "CHERRY_PICK_HEAD"])?;
    if !status.changed.is_empty() || picking.success() {
        return Err(Error::resolution_unfinished(format!(
            "there are uncommitted changes in {dir}"
        ))
        .details(status.changed.into_iter().take(10))
        .hint(format!("`{finish}`")));
    }
    if let Some(file) = status.untracked.first() {
        return Err(
            Error::resolution_unfinished(format!("{file} in {dir} is not committed"))
                .hint("add it and `git commit --amend`, or remove it"),
        );
    }
    let head = git.ok(&["rev-parse", "HEAD"])?;
    if head == open.parent {
        return Err(Error::resolution_unfinished(format!("nothing was committed in {dir}")).hint(format!(
            "if the patch became empty, record that with `git -C {word} commit --allow-empty -m upstream`"
        )));
    }
    let commits = history::commits(&objects, &open.parent, &head)?;
    let tree = &commits
        .last()
        .ok_or_else(|| Error::internal("a commit without itself"))?
        .tree;
    let before = objects.tree_named(&open.parent)?;
    refuse_markers(&objects, &before, tree, &open.directory)?;
    // Several commits form one resolution.
    let decision = objects.commit_named(
        tree,
        &open.parent,
        &format!("{} on {}", open.patch, open.version),
    )?;
    let name = format!("{}/{}", prefix(&open.digest), &decision[..16]);
    history::set_reference(&objects, &name, &decision)?;
    close(ws)?;
    Ok(open.patch)
}

/// Closes the conflict open for `release` and discards its worktree. Returns the patch's name.
pub fn abort(ws: &Workspace, release: &str) -> Result<String> {
    let _lock = lock(ws)?;
    let name = match opened(ws) {
        Ok(Some(open)) => {
            refuse_other(ws, &open, release, "--abort")?;
            open.patch
        }
        Ok(None) => return Err(Error::resolution("no conflict is open")),
        // This command must also be able to close a conflict with a damaged state file.
        Err(_) => "the conflict".to_owned(),
    };
    close(ws)?;
    Ok(name)
}

fn close(ws: &Workspace) -> Result<()> {
    let store = Git::bare(&ws.object_store());
    if let Ok(entries) = std::fs::read_dir(folder(ws)) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            // If the workspace was moved, this updates the worktree's path in the store.
            let _ = worktree::inspect(&entry.path(), &ws.object_store(), ws.root());
            store.remove_worktree(&entry.path())?;
        }
    }
    remove_state(ws)
}

fn save(ws: &Workspace, open: &OpenConflict) -> Result<()> {
    let mut written = open.clone();
    written.directory = ws.written(&open.directory);
    write_file(&state_file(ws), &state::text(&written)?)
}

fn remove_state(ws: &Workspace) -> Result<()> {
    let path = state_file(ws);
    if_there("remove", &path, std::fs::remove_file(&path)).map(drop)
}

/// Refuses a resolution that adds conflict markers.
fn refuse_markers(objects: &Objects, before: &str, after: &str, dir: &Path) -> Result<()> {
    // `=======` alone underlines titles; it stands between two of these.
    let markers: [&[u8]; 3] = [b"<<<<<<< ", b"||||||| ", b">>>>>>> "];
    let marker = |line: &[u8]| markers.iter().any(|marker| line.starts_with(marker));
    let (mut old, mut new) = (
        TrialTree::new(objects, before)?,
        TrialTree::new(objects, after)?,
    );
    for path in changed_paths(objects, before, after)? {
        let Some(file) = new.file(&path)? else {
            continue;
        };
        let had = old
            .file(&path)?
            .is_some_and(|file| file.content.split(|&b| b == b'\n').any(marker));
        let line = file.content.split(|&b| b == b'\n').position(marker);
        if let (Some(line), false) = (line, had) {
            return Err(Error::resolution_unfinished("a conflict marker remains")
                .at(dir.join(shown(&path)), line + 1)
                .hint("resolve it and commit again"));
        }
    }
    Ok(())
}

fn prefix(digest: &str) -> String {
    format!("refs/decided/{}", &digest[..16])
}

/// Returns the patch and the release of each recorded resolution: `0003-x.patch on 11.8.6`.
pub(super) fn resolved(ws: &Workspace) -> Result<Vec<String>> {
    let store = ws.object_store();
    if !store.join("HEAD").is_file() {
        return Ok(Vec::new());
    }
    let listed = Git::bare(&store).ok(&["for-each-ref", "--format=%(subject)", "refs/decided"])?;
    let mut found: Vec<String> = listed.lines().map(str::to_owned).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// Returns the recorded resolution of this patch whose files have the same content as then, if any.
pub fn remembered(
    objects: &Objects,
    patch: &Patch,
    tree: &mut TrialTree<'_>,
) -> Result<Option<Resolution>> {
    for (before, commit) in objects.commits_below(&prefix(&patch.digest))? {
        let (old_tree, new_tree) = (objects.tree_named(&before)?, objects.tree_named(&commit)?);
        let (mut old, mut new) = (
            TrialTree::new(objects, &old_tree)?,
            TrialTree::new(objects, &new_tree)?,
        );
        let mut files = FileStates::new();
        let mut fits = true;
        for path in changed_paths(objects, &old_tree, &new_tree)? {
            let same = match (old.blob(&path)?, tree.blob(&path)?) {
                (Some(then), Some(now)) => then == now,
                (None, None) => tree.obstacle(&path)?.is_none(),
                _ => false,
            };
            fits &= same;
            let file = new.file(&path)?.map(FileState::from);
            files.insert(path, file);
        }
        // An empty resolution applies while the files that the patch names are unchanged.
        if files.is_empty() {
            for path in super::evidence::named_paths(patch) {
                let blob = |file: Option<(u32, Oid)>| file.map(|(_, blob)| blob);
                fits &= blob(old.blob(&path)?) == blob(tree.blob(&path)?);
            }
        }
        if fits {
            return Ok(Some(Resolution { commit, files }));
        }
    }
    Ok(None)
}
