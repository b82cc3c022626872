//! Creates, resumes, resets and closes the edit branch.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strum::Display;

use super::conflict::{self, StoppedRebase};
use super::git_rebase::{self, EditWorktree};
use super::publish;
use super::{EditSession, folder};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_series::series::message::{Message, PATCH_KEY};
use perfquilt_series::series::{Series, Timestamp};
use perfquilt_series::stack::history::{self, Commit};
use perfquilt_series::stack::{self, Stack};
use perfquilt_series::upstream::objects::DAMAGED;
use perfquilt_series::upstream::{self, Objects, Release};
use perfquilt_system::git::Git;
use perfquilt_system::git::worktree::{EXPIRE, WorktreeState};
use perfquilt_system::locks::{self, Lock};
use perfquilt_system::process::quoted;

/// Options of `edit`.
#[derive(Debug, Clone, Default)]
pub struct EditRequest {
    /// The release's version; by default the current release.
    pub version: Option<String>,
    /// The patch to stop at.
    pub patch: Option<String>,
    /// Folder of the worktree; by default `.perfquilt/edit/RELEASE`.
    pub directory: Option<PathBuf>,
    /// Whether to discard the branch's commits and restart from the series.
    pub reset: bool,
    /// Fuzz for applying the series.
    pub fuzz: usize,
}

/// The state in which `edit` found the branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum BranchState {
    /// The branch is new.
    Created,
    /// It existed, and the series has all of its commits.
    Resumed,
    /// It existed, with work that is not in the series yet.
    Unsaved,
    /// It existed, and a rebase in its worktree is stopped with conflicts.
    Conflict,
    /// It existed without unsaved work, and was moved to the current series.
    Moved,
    /// It existed and was reset; its commits are kept under a reference.
    Reset,
}

/// An edit branch that is ready for work.
#[derive(Debug, Clone)]
pub struct EditBranch {
    /// The release.
    pub release: String,
    /// The branch.
    pub branch: String,
    /// The worktree.
    pub directory: PathBuf,
    /// Number of commits on the branch.
    pub commits: usize,
    /// The state in which the branch was found.
    pub state: BranchState,
    /// The rebase that is stopped with conflicts, in the state [`BranchState::Conflict`].
    pub conflict: Option<StoppedRebase>,
    /// The patch that the worktree stopped at, and whether git still has to re-apply later patches.
    pub at: Option<(String, bool)>,
    /// The reference that keeps the discarded commits, if any.
    pub kept: Option<String>,
}

/// Opens a worktree with a branch of the stack, one commit per patch.
pub fn open(ws: &Workspace, request: &EditRequest) -> Result<EditBranch> {
    let lock = publish::lock(ws)?;
    publish::recover_locked(ws, &lock)?;
    let series = Series::load_for(ws, request.version.as_deref())?;
    let release = upstream::ensure(ws, request.version.as_deref())?;
    let stack = stack::apply_with(ws, &release, &series, request.fuzz)?;
    let wanted = request
        .patch
        .as_deref()
        .map(|text| {
            series
                .find(text)
                .map(|index| series.patches()[index].name.clone())
        })
        .transpose()?;
    let store = Objects::open(&ws.object_store())?;
    let edit = EditContext {
        ws,
        store: &store,
        release: &release,
        tip: stack_tip(&stack),
        stack: &stack,
        _lock: &lock,
        checkout: Arc::new(locks::wait_file(&folder(ws).join("checkout.lock"), || {})?),
    };
    let (session, state, kept) = match EditSession::load(ws, &release.name)? {
        None => (edit.create(request)?, BranchState::Created, None),
        Some(session) => {
            edit.worktree(&session).settle()?;
            edit.resume(session, request)?
        }
    };
    let commits = history::commits(&store, &session.base, &edit.worktree(&session).tip()?)?;
    let at = match wanted {
        Some(name) => Some(stop_at(&edit.worktree(&session), &series, &commits, &name)?),
        None => None,
    };
    let conflict = match state {
        BranchState::Unsaved if at.is_none() => conflict::find(&Git::new(&session.directory))?,
        _ => None,
    };
    Ok(EditBranch {
        release: release.name.clone(),
        branch: session.branch.clone(),
        directory: session.directory.clone(),
        commits: commits.len(),
        state: if conflict.is_some() {
            BranchState::Conflict
        } else {
            state
        },
        conflict,
        at,
        kept,
    })
}

/// Removes the worktree and its branch if the series has all of its work.
pub fn close(ws: &Workspace, version: Option<&str>) -> Result<PathBuf> {
    let lock = publish::lock(ws)?;
    publish::recover_locked(ws, &lock)?;
    let session = pick(ws, version)?;
    let store = Objects::open(&ws.object_store())?;
    let worktree = EditWorktree::new(ws, &store, &session);
    worktree.settle()?;
    let place = session.place(ws)?;
    if place == WorktreeState::Complete {
        let tip = worktree.tip()?;
        let git = Git::new(&session.directory);
        refuse_in_progress(&git, &session.directory)?;
        let status = git.status()?;
        status.refuse(
            &session.directory,
            "commit them and run `perfquilt refresh`, or `git checkout .` to discard them",
        )?;
        if let Some(file) = status.untracked.first() {
            return Err(Error::edit_state(format!(
                "{file} in {} is in no commit",
                session.directory.display()
            ))
            .hint("add and commit it and run `perfquilt refresh`, or remove it"));
        }
        if tip != session.start || git.branch()? != Some(session.reference()) {
            refuse_unknown(ws, &session)?;
            return Err(Error::edit_state(format!(
                "the branch {} has work that is not in the series yet",
                session.branch
            ))
            .hint(
                "`perfquilt refresh` writes it to the series; `perfquilt edit --reset` discards it",
            ));
        }
    }
    let bare = Git::bare(store.path());
    if place != WorktreeState::Absent || !session.directory.exists() {
        bare.remove_worktree(&session.directory)?;
    }
    if history::reference(&store, &session.reference())?.as_ref() == Some(&session.start) {
        bare.ok(&["update-ref", "-d", &session.reference()])?;
    }
    let file = EditSession::file(ws, &session.release);
    std::fs::remove_file(&file).map_err(|e| Error::io("remove", &file, &e))?;
    Ok(session.directory)
}

/// Returns the session of a release. Without `version`, the only session, or else that of the current release.
pub(super) fn pick(ws: &Workspace, version: Option<&str>) -> Result<EditSession> {
    let all = EditSession::all(ws)?;
    let current = &ws.config.upstream.current;
    let wanted = version.unwrap_or(current);
    let named = |session: &&EditSession| session.version == wanted || session.release == wanted;
    let found = match version {
        Some(_) => all.iter().find(named),
        None if all.len() == 1 => all.first(),
        None => all.iter().find(named),
    };
    found.cloned().ok_or_else(|| {
        let error = Error::no_edit(match version {
            Some(version) => format!("no edit branch for {version}"),
            None => "there is no edit branch".to_owned(),
        });
        match all.as_slice() {
            [] => error.hint("`perfquilt edit` makes one"),
            some => {
                let names: Vec<&str> = some.iter().map(|s| s.version.as_str()).collect();
                error.hint(format!("existing edit branches: {}", names.join(", ")))
            }
        }
    })
}

/// Refuses a branch whose release was removed from the configuration: its work could not be written back.
pub(super) fn refuse_unknown(ws: &Workspace, session: &EditSession) -> Result<()> {
    if ws.config.release(Some(&session.version)).is_ok() {
        return Ok(());
    }
    Err(Error::edit_state(format!(
        "the release of branch {} is no longer configured; its work is in {}",
        session.branch,
        session.directory.display()
    ))
    .hint(format!(
        "put the [[upstream.release]] of version {} back",
        session.version
    )))
}

/// Returns the commit with all patches.
pub(super) fn stack_tip(stack: &Stack) -> String {
    stack
        .steps
        .last()
        .map_or_else(|| stack.release.commit.clone(), |step| step.commit.clone())
}

fn refuse_in_progress(git: &Git, worktree: &Path) -> Result<()> {
    if let Some(stopped) = conflict::find(git)? {
        return Err(stopped.error(Kind::Usage, worktree));
    }
    match git.in_progress()? {
        None => Ok(()),
        Some((what, next)) => Err(Error::edit_state(format!(
            "a {what} is in progress in the worktree"
        ))
        .hint(format!("finish it with `{next}`"))),
    }
}

struct EditContext<'a> {
    ws: &'a Workspace,
    store: &'a Objects,
    release: &'a Release,
    /// Last commit of the current series' stack.
    tip: String,
    stack: &'a Stack,
    _lock: &'a Lock,
    /// Locked until git has ended, which removes a worktree that it could not complete, even after this program died.
    checkout: Arc<File>,
}

impl EditContext<'_> {
    fn worktree<'a>(&'a self, session: &'a EditSession) -> EditWorktree<'a> {
        EditWorktree::new(self.ws, self.store, session)
    }

    fn create(&self, request: &EditRequest) -> Result<EditSession> {
        let directory = request.directory.as_deref();
        let mut session = EditSession::new(self.ws, self.release, directory, request.fuzz)?;
        let checked_out = self.is_checked_out(&session)?;
        self.worktree(&session).settle()?;
        if let Ok(mut entries) = std::fs::read_dir(&session.directory)
            && entries.next().is_some()
            && !checked_out
        {
            return Err(Error::folder_taken(format!(
                "{} is not empty",
                session.directory.display()
            ))
            .hint("name a new or empty folder with --worktree"));
        }
        // If the session's file was removed, a branch without a session remains. Its work must not be lost.
        match history::reference(self.store, &session.reference())? {
            Some(found) if found != self.tip => {
                let words = format!("using the existing branch {}", session.branch);
                progress::warn(Warning::existing_branch(words));
            }
            _ => history::set_reference(self.store, &session.reference(), &self.tip)?,
        }
        session.start.clone_from(&self.tip);
        self.prepare_store(&session)?;
        if !checked_out {
            self.check_out(&session)?;
        }
        session.save(self.ws)?;
        Ok(session)
    }

    /// Returns whether the branch has its worktree. Removes one that a killed git left incomplete.
    fn is_checked_out(&self, session: &EditSession) -> Result<bool> {
        let place = session.place(self.ws)?;
        if place == WorktreeState::Incomplete {
            Git::bare(self.store.path()).remove_worktree(&session.directory)?;
        }
        Ok(place == WorktreeState::Complete)
    }

    /// Configures the store for the worktree, so that git shows how far the branch is ahead of the release.
    fn prepare_store(&self, session: &EditSession) -> Result<()> {
        let tag = format!(
            "refs/tags/{}",
            upstream::git::reference_part(&self.release.name)
        );
        history::set_reference(self.store, &tag, &self.release.commit)?;
        let branch = &session.branch;
        self.store.prepare_worktrees(&[
            (format!("branch.{branch}.remote").as_str(), "."),
            (format!("branch.{branch}.merge").as_str(), tag.as_str()),
        ])
    }

    fn check_out(&self, session: &EditSession) -> Result<()> {
        let git = Git::bare(self.store.path());
        git.ok(&["worktree", "prune", EXPIRE])?;
        let parent = folder(self.ws);
        std::fs::create_dir_all(&parent).map_err(|e| Error::io("create", &parent, &e))?;
        let step = progress::begin("checking out", None);
        // The second `--force` overrides the lock that a killed git may have left.
        let output = git
            .command(&["worktree", "add", "--quiet", "--force", "--force"])
            .arg(&session.directory)
            .arg(&session.branch)
            .holding(&self.checkout)
            .run()?;
        if !output.success() {
            let (branch, dir) = (&session.branch, session.directory.display());
            let details = output.tail(8);
            let damaged = details.iter().any(|line| line.contains("corrupt"));
            let error = Error::edit_state(format!("git cannot check {branch} out to {dir}"))
                .details(details);
            return Err(if damaged { error.hint(DAMAGED) } else { error });
        }
        step.finish("");
        Ok(())
    }

    fn resume(
        &self,
        mut session: EditSession,
        request: &EditRequest,
    ) -> Result<(EditSession, BranchState, Option<String>)> {
        if let Some(dir) = &request.directory {
            let wanted = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
            if wanted != session.directory {
                return Err(Error::edit_state(format!(
                    "the edit branch is checked out in {}",
                    session.directory.display()
                ))
                .hint("`perfquilt edit --close` closes it"));
            }
        }
        self.prepare_store(&session)?;
        if !self.is_checked_out(&session)? {
            // The user removed the folder; the commits still exist.
            let tip = self.worktree(&session).find_tip()?;
            if tip.is_none_or(|tip| tip == session.start) {
                history::set_reference(self.store, &session.reference(), &self.tip)?;
                session.restart(&self.tip);
                session.fuzz = request.fuzz;
            }
            self.check_out(&session)?;
            session.save(self.ws)?;
        }
        let git = Git::new(&session.directory);
        let tip = self.worktree(&session).tip()?;
        if request.reset {
            return self.reset(session, &tip, request);
        }
        if tip == self.tip && session.start != tip {
            // A killed command moved the branch to the current series without updating the session.
            session.restart(&tip);
            session.fuzz = request.fuzz;
            session.save(self.ws)?;
        }
        let busy = git.in_progress()?.is_some();
        let on_branch = git.branch()? == Some(session.reference());
        let unsaved = tip != session.start || busy || !on_branch;
        let same = session.starts_at(self.store, self.stack)?;
        let changed = || -> Result<bool> { Ok(!git.status()?.changed.is_empty()) };
        if same && session.is_old() && (unsaved || changed()?) {
            progress::warn(Warning::old_patch_lines(format!(
                "an earlier version of perfquilt made the branch {}; `perfquilt refresh` reads its `Patch:` lines once more and writes `{PATCH_KEY}:`",
                session.branch
            )));
        }
        if same && (!session.is_old() || unsaved || changed()?) {
            let state = if unsaved || changed()? {
                BranchState::Unsaved
            } else {
                BranchState::Resumed
            };
            return Ok((session, state, None));
        }
        if unsaved || changed()? {
            return Err(Error::edit_conflict(format!(
                "both changed since the last `perfquilt edit`: the series, and the branch in {}",
                session.directory.display()
            ))
            .hint("restore series and patches and run `perfquilt refresh`, or discard the branch with `perfquilt edit --reset`, which keeps its commits under a reference"));
        }
        self.move_to_tip(&mut session, &git, request)?;
        Ok((session, BranchState::Moved, None))
    }

    fn reset(
        &self,
        mut session: EditSession,
        tip: &str,
        request: &EditRequest,
    ) -> Result<(EditSession, BranchState, Option<String>)> {
        let git = Git::new(&session.directory);
        refuse_in_progress(&git, &session.directory)?;
        git.status()?.refuse(
            &session.directory,
            "`git stash` keeps them, `git checkout .` discards them",
        )?;
        let mut kept = None;
        if tip != self.tip {
            kept = Some(git_rebase::keep(self.store, &session.release, tip)?);
        }
        // The checked-out commit may be on no branch.
        let own = git.ok(&["rev-list", "--max-count=1", "HEAD", "--not", tip, &self.tip])?;
        if !own.is_empty() {
            let name = git_rebase::keep(self.store, &session.release, &own)?;
            progress::warn(Warning::kept_commit(format!(
                "the checked-out commit was not on the branch; it is kept as {name}"
            )));
            kept.get_or_insert(name);
        }
        self.move_to_tip(&mut session, &git, request)?;
        Ok((session, BranchState::Reset, kept))
    }

    fn move_to_tip(
        &self,
        session: &mut EditSession,
        git: &Git,
        request: &EditRequest,
    ) -> Result<()> {
        // An interrupted checkout would leave files that look like unsaved work.
        git.command(&["checkout", "-q", "-B", &session.branch, &self.tip])
            .uninterruptible()
            .run_ok(Kind::Usage)?;
        session.restart(&self.tip);
        session.fuzz = request.fuzz;
        session.save(self.ws)
    }
}

/// Starts a git rebase that stops at the commit of a patch. Returns the name and whether later patches follow.
fn stop_at(
    worktree: &EditWorktree<'_>,
    series: &Series,
    commits: &[Commit],
    name: &str,
) -> Result<(String, bool)> {
    let session = worktree.session;
    let git = &worktree.git();
    if is_stopped_at(git, name)? {
        return Ok((name.to_owned(), true));
    }
    refuse_in_progress(git, &session.directory)?;
    git.status()?
        .refuse(&session.directory, "commit them first, or `git stash` them")?;
    if git.branch()? != Some(session.reference()) {
        return Err(
            Error::edit_state("another branch is checked out in the worktree")
                .hint(format!("`git checkout {}` there", session.branch)),
        );
    }
    let title = series
        .patches()
        .iter()
        .find(|patch| patch.name == name)
        .map(|patch| patch.title.clone());
    let last = |wanted: &dyn Fn(&Message, &[String]) -> bool| {
        commits.iter().rposition(|commit| {
            let (message, names) = Message::parse(&commit.message, None, commit.date);
            wanted(&message, &names)
        })
    };
    let found = last(&|_, names| names.iter().any(|other| other == name))
        .or_else(|| last(&|message, _| Some(&message.title) == title.as_ref()));
    let Some(at) = found else {
        return Err(Error::edit_state(format!(
            "no commit of the branch is patch \"{name}\" any more"
        ))
        .hint(format!(
            "`git -C {} log` shows its commits",
            quoted(&session.directory.to_string_lossy())
        )));
    };
    if at + 1 == commits.len() {
        return Ok((name.to_owned(), false));
    }
    let commit = &commits[at].id;
    let onto = match at {
        0 => session.base.clone(),
        _ => commits[at - 1].id.clone(),
    };
    let settings = [
        "rebase.abbreviateCommands=false",
        "rebase.autoSquash=false",
        "rebase.updateRefs=false",
        "rebase.missingCommitsCheck=ignore",
    ];
    let settings = settings.iter().flat_map(|setting| ["-c", setting]);
    let words = ["rebase", "--interactive", "--keep-empty", onto.as_str()];
    let words: Vec<&str> = settings.chain(words).collect();
    let editor = ("GIT_SEQUENCE_EDITOR", "sed -i -e '1s/^pick /edit /'");
    let ended = worktree.run(&words, editor)?;
    if !ended.success || !ended.under_way {
        return Err(
            Error::edit_state(format!("git cannot stop at commit {commit}")).details(ended.said),
        );
    }
    Ok((name.to_owned(), true))
}

/// Whether git is already stopped at the commit of a patch, because of an earlier `edit`.
fn is_stopped_at(git: &Git, name: &str) -> Result<bool> {
    if !matches!(git.in_progress()?, Some(("rebase", _))) || !git.status()?.changed.is_empty() {
        return Ok(false);
    }
    let message = git.ok(&["log", "-1", "--format=%B"])?;
    let (_, names) = Message::parse(&message, None, Timestamp::default());
    Ok(names.iter().any(|other| other == name))
}
