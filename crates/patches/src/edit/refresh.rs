//! Writing the branch back to `series` and `patches/`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::Session;
use super::attempt::Attempt;
use super::branch::{pick, refuse_unknown, stack_tip};
use super::plan::Plan;
use super::publish::{self, Change, Move};
use super::tip;
use crate::series::message::Message;
use crate::series::{Location, Series};
use crate::stack;
use crate::stack::history::{self, Commit};
use crate::upstream::{self, Objects};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::git::Git;
use perfquilt_system::git::worktree::Place;
use perfquilt_system::process::{check_interrupted, quoted};

/// What `refresh` is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The release whose branch is meant; the only branch, or the current release's, if not given.
    pub version: Option<String>,
    /// Take patches that are empty now out of the series.
    pub drop_empty: bool,
    /// Write nothing.
    pub dry_run: bool,
}

/// What becomes of a patch's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is, byte for byte.
    Kept,
    /// The same change at other lines, because of patches before it.
    Moved,
    /// Its diff is another.
    Changed,
    /// Only its header is another.
    Reworded,
    /// It is new.
    New,
}

impl Fate {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Moved => "moved",
            Fate::Changed => "changed",
            Fate::Reworded => "reworded",
            Fate::New => "new",
        }
    }
}

/// A patch of the series as it is after the refresh.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What became of its file.
    pub fate: Fate,
    /// Its name before, where that was another.
    pub renamed_from: Option<String>,
    /// Patches that were joined with it.
    pub joined: Vec<String>,
    /// Its place before, from 1; `None` for a new one.
    pub was: Option<usize>,
}

/// What a refresh did, or would do.
#[derive(Debug, Clone)]
pub struct Refreshed {
    /// The release.
    pub release: String,
    /// The worktree.
    pub directory: PathBuf,
    /// The patches in their order.
    pub patches: Vec<Outcome>,
    /// Patches that are in the series no more.
    pub removed: Vec<String>,
    /// Whether `series` changes.
    pub series_changed: bool,
    /// Where overwritten and removed files are kept, if there were any.
    pub kept: Option<PathBuf>,
    /// Files in the worktree that are in no commit.
    pub untracked: Vec<String>,
    /// The stack's last commit after it.
    pub commit: String,
    /// Whether anything changes.
    pub changed: bool,
}

/// Writes the edit branch back.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when there is no branch, work is not committed, or series and branch both changed;
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when a patch is empty, or the history is no line of commits on the release.
pub fn refresh(ws: &Workspace, wanted: &Wanted, progress: &dyn Progress) -> Result<Refreshed> {
    let lock = publish::lock(ws)?;
    publish::recover_locked(ws, &lock)?;
    let mut session = pick(ws, wanted.version.as_deref())?;
    refuse_unknown(ws, &session)?;
    let store = Objects::open(&ws.object_store())?;
    let attempt = Attempt::new(ws, &store, &session, progress);
    attempt.settle()?;
    let tip_before = tip::of(ws, &store, &session, progress)?;
    let Ready { untracked, picked } = ready(&attempt, wanted.dry_run)?;
    // That may have finished a rebase.
    let branch_tip = tip::of(ws, &store, &session, progress)?;
    let release = upstream::ensure(ws, Some(&session.version), progress)?;
    let location = Location::of(ws, Some(&session.version))?;
    let series = Series::load_for(ws, Some(&session.version))?;
    let stack = stack::apply_with(ws, &release, &series, session.fuzz)?;
    if stack_tip(&stack) != session.start && stack_tip(&stack) != branch_tip {
        return Err(Error::usage("series or patches changed since `perfquilt edit`")
            .hint("put them back as they were (`git diff` shows the difference where the workspace is a repository), or give the branch up with `perfquilt edit --reset`, which keeps its commits aside"));
    }
    let commits = history::commits(&store, &session.base, &branch_tip)?;
    let there = names(&commits);
    let plan = Plan {
        ws,
        location: &location,
        store: &store,
        release: &release,
        series: &series,
        stack: &stack,
        commits,
        drop_empty: wanted.drop_empty,
    }
    .make()?;
    if !picked.is_empty() {
        // Of a branch that is no line of commits, nothing is known.
        let before = history::commits(&store, &session.base, &tip_before).unwrap_or_default();
        refuse_lost(&session, &before, &picked, |name| {
            plan.removed.contains(name) && !there.contains(name)
        })?;
    }
    let mut changes = plan.changes(&location)?;
    let series_changed = plan.text != series.file().to_text();
    if series_changed {
        let at = changes.iter().take_while(|c| c.content.is_some()).count();
        changes.insert(
            at,
            Change {
                path: location.file.clone(),
                content: Some(plan.text.clone().into_bytes()),
            },
        );
    }
    let new_tip = stack_tip(&plan.stack);
    let mut done = Refreshed {
        release: release.name.clone(),
        directory: session.directory.clone(),
        patches: plan.made.iter().map(|made| made.outcome.clone()).collect(),
        removed: plan.removed,
        series_changed,
        kept: None,
        untracked,
        commit: new_tip.clone(),
        changed: !changes.is_empty(),
    };
    if wanted.dry_run {
        return Ok(done);
    }
    let moves = [Move {
        reference: session.reference(),
        from: branch_tip.clone(),
        to: new_tip.clone(),
    }];
    let label = jiff::Timestamp::now()
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    if branch_tip != new_tip {
        // The maintainer's own commits stay reachable.
        let part = upstream::git::reference_part(&release.name);
        history::set_reference(&store, &format!("refs/kept/{part}/refreshed"), &branch_tip)?;
    }
    done.kept = publish::publish(ws, &lock, &changes, &moves, &label)?;
    session.start = new_tip;
    session.fuzz = ws.config.series.fuzz;
    session.save(ws)?;
    Ok(done)
}

/// The names of patches on the commits' `Patch:` lines.
fn names(commits: &[Commit]) -> BTreeSet<String> {
    let messages = commits
        .iter()
        .map(|commit| Message::parse(&commit.message, None, commit.date));
    messages.flat_map(|(_, names)| names).collect()
}

/// An error where a patch is `gone` that git was to put back: a git that was killed takes the commit it was at for done.
fn refuse_lost(
    session: &Session,
    before: &[Commit],
    picked: &[String],
    gone: impl Fn(&String) -> bool,
) -> Result<()> {
    for commit in before {
        let was_picked = picked.iter().any(|id| commit.id.starts_with(id.as_str()));
        let (_, names) = Message::parse(&commit.message, None, commit.date);
        let lost = names.into_iter().find(|name| was_picked && gone(name));
        if let Some(name) = lost {
            return Err(Error::series(format!(
                "git was to put {name} back on top, and the branch does not have it; nothing was written"
            ))
            .hint(format!(
                "`git -C {} cherry-pick {:.12}` puts it at the end; `perfquilt refresh` again takes it out of the series",
                quoted(&session.directory.to_string_lossy()),
                commit.id
            )));
        }
    }
    Ok(())
}

/// A branch of which everything is in commits.
#[derive(Default)]
struct Ready {
    /// Files git does not know.
    untracked: Vec<String>,
    /// Where a rebase was finished, the commits that git was to put back as they are.
    picked: Vec<String>,
}

/// Makes sure that everything is in commits of the branch.
fn ready(attempt: &Attempt<'_>, dry_run: bool) -> Result<Ready> {
    let (session, progress) = (attempt.session, attempt.progress);
    if session.place(attempt.ws)? != Place::Whole {
        progress.warn(&format!(
            "{} is gone; the commits of {} are used as they are",
            session.directory.display(),
            session.branch
        ));
        return Ok(Ready::default());
    }
    let git = Git::new(&session.directory);
    let status = git.status()?;
    let under_way = git.in_progress()?;
    status.refuse(
        &session.directory,
        match under_way {
            Some(_) => "`git commit --amend -a` makes them part of the patch it stopped at; after a conflict, `git add` them and `git rebase --continue`",
            None => "`git commit --amend -a` makes them part of the last patch, `git commit` a patch of their own, `git stash` puts them aside",
        },
    )?;
    let mut picked = Vec::new();
    if let Some((what, next)) = under_way {
        if what != "rebase" || dry_run {
            return Err(
                Error::usage(format!("a {what} is under way in the worktree"))
                    .hint(format!("finish it first: `{next}`")),
            );
        }
        let step = progress.begin("continuing the rebase", None);
        let ended = attempt.run(&["rebase", "--continue"], ("GIT_EDITOR", "true"))?;
        if ended.undone {
            return Err(
                Error::usage("git failed while it put the following patches back on top")
                    .at(session.directory.clone(), None)
                    .details(ended.said)
                    .hint("the worktree is as it was before; `perfquilt refresh` tries again"),
            );
        }
        if !ended.success || ended.under_way {
            return Err(Error::series(
                "git stopped while it put the following patches back on top",
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
        return Err(Error::usage(format!(
            "{shown} is checked out in {}, not {}",
            session.directory.display(),
            session.branch
        ))
        .hint(format!(
            "`git checkout {0}` goes back to it; `git checkout -B {0}` makes what is checked out the branch",
            session.branch
        )));
    }
    for file in &status.untracked {
        progress.warn(&format!("{file} is in no commit, so it is in no patch"));
    }
    Ok(Ready {
        untracked: status.untracked,
        picked,
    })
}
