//! Writes the edit branch back to `series` and `patches/`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::EditSession;
use super::branch::{pick, refuse_unknown, stack_tip};
use super::conflict;
use super::git_rebase::EditWorktree;
use super::plan::{EmptyCommit, Planner, RefreshedPatch};
use super::publish::{self, FileChange, ReferenceMove};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_series::series::message::{Message, PATCH_KEY, with_new_key};
use perfquilt_series::series::{Series, SeriesLocation, looks_like_patch};
use perfquilt_series::stack;
use perfquilt_series::stack::history::{self, Commit};
use perfquilt_series::upstream::{self, Objects};
use perfquilt_system::git::worktree::WorktreeState;
use perfquilt_system::process::{check_interrupted, quoted};

/// Options of `refresh`.
#[derive(Debug, Clone, Default)]
pub struct RefreshOptions {
    /// The release of the branch; by default the only branch, or that of the current release.
    pub version: Option<String>,
    /// Whether to remove patches that became empty from the series.
    pub drop_empty: bool,
    /// Whether to write nothing.
    pub dry_run: bool,
}

/// The changes that a refresh made, or would make.
#[derive(Debug, Clone)]
pub struct RefreshResult {
    /// The release.
    pub release: String,
    /// The worktree.
    pub directory: PathBuf,
    /// The patches in their order.
    pub patches: Vec<RefreshedPatch>,
    /// Names of patches that left the series.
    pub removed: Vec<String>,
    /// Commits that left the branch because they were empty.
    pub dropped: Vec<EmptyCommit>,
    /// Whether `series` changes.
    pub series_changed: bool,
    /// Folder that keeps overwritten and removed files, if there were any.
    pub kept: Option<PathBuf>,
    /// Untracked files in the worktree.
    pub untracked: Vec<String>,
    /// The stack's last commit after the refresh.
    pub commit: String,
    /// Whether anything changes.
    pub changed: bool,
}

/// Writes the edit branch back.
///
/// # Errors
/// [`Kind::Usage`] when there is no branch or work is uncommitted;
/// [`Kind::Series`] when series and branch both changed, a patch is empty, or the branch is not a linear history on the release.
pub fn refresh(ws: &Workspace, options: &RefreshOptions) -> Result<RefreshResult> {
    let lock = publish::lock(ws)?;
    publish::recover_locked(ws, &lock)?;
    let mut session = pick(ws, options.version.as_deref())?;
    refuse_unknown(ws, &session)?;
    let store = Objects::open(&ws.object_store())?;
    let worktree = EditWorktree::new(ws, &store, &session);
    worktree.settle()?;
    let tip_before = worktree.tip()?;
    let CommittedWork { untracked, picked } = ready(&worktree, options.dry_run)?;
    // `ready` may have finished a rebase, which moves the branch.
    let branch_tip = worktree.tip()?;
    let release = upstream::ensure(ws, Some(&session.version))?;
    let location = SeriesLocation::of(ws, Some(&session.version))?;
    let series = Series::load_for(ws, Some(&session.version))?;
    let stack = stack::apply_with(ws, &release, &series, session.fuzz)?;
    let mut commits = history::commits(&store, &session.base, &branch_tip)?;
    if read_old_names(&mut commits, &series, session.is_old()) {
        progress::warn(Warning::old_patch_lines(format!(
            "lines `Patch: NAME` of the branch {} are read as names of patches, as in earlier versions; the line is called `{PATCH_KEY}:` now",
            session.branch
        )));
    }
    let tip = stack_tip(&stack);
    // A refresh that was killed may have written the series up to a later commit without recording that.
    let place = |id: &str| commits.iter().position(|commit| commit.id == id);
    let is_later = place(&tip) > place(&session.start)
        && (session.start == session.base || place(&session.start).is_some());
    if !session.starts_at(&store, &stack)? && tip != branch_tip && !is_later {
        return Err(Error::edit_conflict("series or patches changed since `perfquilt edit`")
            .hint("restore them (`git diff` shows the difference if the workspace is a repository), or discard the branch with `perfquilt edit --reset`, which keeps its commits under a reference"));
    }
    let present: BTreeSet<String> = commits.iter().flat_map(patch_names).collect();
    let plan = Planner {
        ws,
        location: &location,
        store: &store,
        release: &release,
        series: &series,
        stack: &stack,
        commits,
        drop_empty: options.drop_empty,
    }
    .plan()?;
    if !picked.is_empty() {
        // The previous branch may not have been linear; then there is nothing to compare with.
        let before = history::commits(&store, &session.base, &tip_before).unwrap_or_default();
        refuse_lost(&session, &before, &picked, |name| {
            plan.removed.contains(name) && !present.contains(name)
        })?;
    }
    let mut changes = plan.changes(&location)?;
    let series_changed = plan.text != series.file().to_text();
    if series_changed {
        let at = changes.iter().take_while(|c| c.content.is_some()).count();
        changes.insert(
            at,
            FileChange {
                path: location.file.clone(),
                content: Some(plan.text.clone().into_bytes()),
            },
        );
    }
    let new_tip = stack_tip(&plan.stack);
    let mut done = RefreshResult {
        release: release.name.clone(),
        directory: session.directory.clone(),
        patches: plan.made.iter().map(|made| made.outcome.clone()).collect(),
        removed: plan.removed,
        dropped: plan.dropped,
        series_changed,
        kept: None,
        untracked,
        commit: new_tip.clone(),
        changed: !changes.is_empty(),
    };
    if options.dry_run {
        return Ok(done);
    }
    let moves = [ReferenceMove {
        reference: session.reference(),
        from: branch_tip.clone(),
        to: new_tip.clone(),
    }];
    if branch_tip != new_tip {
        // The reference keeps the maintainer's own commits reachable.
        let part = upstream::git::reference_part(&release.name);
        history::set_reference(&store, &format!("refs/kept/{part}/refreshed"), &branch_tip)?;
    }
    done.kept = publish::publish(ws, &lock, &changes, &moves)?;
    session.restart(&new_tip);
    session.fuzz = ws.config.series.fuzz;
    session.save(ws)?;
    Ok(done)
}

/// Gives the lines by which earlier versions named patches today's key, in commits without a line of that key: names of
/// the series, and on an old branch all names of files. Returns whether there were any.
fn read_old_names(commits: &mut [Commit], series: &Series, is_old: bool) -> bool {
    let names: BTreeSet<&str> = series.patches().iter().map(|it| it.name.as_str()).collect();
    let is_patch = |name: &str| {
        names.contains(name) || (is_old && looks_like_patch(name) && !name.contains(':'))
    };
    let mut any = false;
    for commit in commits {
        let text = with_new_key(&commit.message, is_patch);
        if patch_names(commit).is_empty() && text.trim_end() != commit.message.trim_end() {
            commit.message = text;
            any = true;
        }
    }
    any
}

/// Returns the names of patches on a commit's `Perfquilt-Patch:` lines.
fn patch_names(commit: &Commit) -> Vec<String> {
    Message::parse(&commit.message, None, commit.date).1
}

/// Refuses a branch that lacks a patch which git was to pick. A killed git counts its current commit as applied.
fn refuse_lost(
    session: &EditSession,
    before: &[Commit],
    picked: &[String],
    gone: impl Fn(&String) -> bool,
) -> Result<()> {
    for commit in before {
        let was_picked = picked.iter().any(|id| commit.id.starts_with(id.as_str()));
        let lost = patch_names(commit)
            .into_iter()
            .find(|name| was_picked && gone(name));
        if let Some(name) = lost {
            return Err(Error::edit_conflict(format!(
                "git did not re-apply {name}: the branch lacks it; nothing was written"
            ))
            .hint(format!(
                "`git -C {} cherry-pick {:.12}` adds it at the end; another `perfquilt refresh` removes it from the series",
                quoted(&session.directory.to_string_lossy()),
                commit.id
            )));
        }
    }
    Ok(())
}

/// The worktree's state after [`ready`]: all work is committed.
#[derive(Default)]
struct CommittedWork {
    /// Untracked files.
    untracked: Vec<String>,
    /// Commits that git was to pick unchanged, if a rebase was finished.
    picked: Vec<String>,
}

/// Checks that all work is committed on the branch, and continues a running rebase.
fn ready(worktree: &EditWorktree<'_>, dry_run: bool) -> Result<CommittedWork> {
    let session = worktree.session;
    if session.place(worktree.ws)? != WorktreeState::Complete {
        progress::warn(Warning::worktree_gone(format!(
            "{} no longer exists; using the commits of {}",
            session.directory.display(),
            session.branch
        )));
        return Ok(CommittedWork::default());
    }
    let git = worktree.git();
    // The error for uncommitted changes suggests to amend, which would join the conflicting patch with the one before.
    if let Some(stopped) = conflict::find(&git)? {
        return Err(stopped.error(Kind::Usage, &session.directory));
    }
    let status = git.status()?;
    let under_way = git.in_progress()?;
    status.refuse(
        &session.directory,
        match under_way {
            Some(_) => "`git commit --amend -a` makes them part of the patch it stopped at",
            None => "`git commit --amend -a` makes them part of the last patch, `git commit` a patch of their own, `git stash` puts them aside",
        },
    )?;
    let mut picked = Vec::new();
    if let Some((what, next)) = under_way {
        if what != "rebase" || dry_run {
            return Err(
                Error::edit_state(format!("a {what} is in progress in the worktree"))
                    .hint(format!("finish it first: `{next}`")),
            );
        }
        let step = progress::begin("continuing the rebase", None);
        let ended = worktree.run(&["rebase", "--continue"], ("GIT_EDITOR", "true"))?;
        if ended.undone {
            return Err(
                Error::edit_state("git failed while it re-applied the later patches")
                    .at(session.directory.clone(), None)
                    .details(ended.said)
                    .hint("the worktree was restored; `perfquilt refresh` tries again"),
            );
        }
        if let Some(stopped) = conflict::find(&git)? {
            return Err(stopped
                .error(Kind::Series, &session.directory)
                .details(ended.said));
        }
        if !ended.success || ended.under_way {
            return Err(Error::edit_conflict(
                "git stopped while it re-applied the later patches",
            )
            .at(session.directory.clone(), None)
            .details(ended.said)
            .hint("resolve it in the worktree, `git add` the files, `git rebase --continue`, then `perfquilt refresh` again"));
        }
        check_interrupted()?;
        picked = ended.picked;
        step.finish("");
    }
    let head = git.branch()?;
    if head != Some(session.reference()) {
        let shown = head.map_or_else(
            || "no branch".to_owned(),
            |name| name.trim_start_matches("refs/heads/").to_owned(),
        );
        return Err(Error::edit_state(format!(
            "{shown} is checked out in {} instead of {}",
            session.directory.display(),
            session.branch
        ))
        .hint(format!(
            "`git checkout {0}` goes back to it; `git checkout -B {0}` makes what is checked out the branch",
            session.branch
        )));
    }
    for file in &status.untracked {
        let words = format!("{file} is not committed, so it is in no patch");
        progress::warn(Warning::uncommitted_file(words));
    }
    Ok(CommittedWork {
        untracked: status.untracked,
        picked,
    })
}
