//! Making the edit branch, taking it up again, and putting it away.

use std::path::PathBuf;

use super::attempt::{self, Attempt};
use super::publish;
use super::tip;
use super::{Session, folder};
use crate::series::message::Message;
use crate::series::{Series, Timestamp};
use crate::stack::history::{self, Commit};
use crate::stack::{self, Stack};
use crate::upstream::{self, Objects, Release};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::git::Git;
use perfquilt_system::git::worktree::{EXPIRE, Place};
use perfquilt_system::locks::Lock;
use perfquilt_system::process::quoted;

/// What `edit` is asked for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The release; the current one if not given.
    pub version: Option<String>,
    /// The patch to stop at.
    pub patch: Option<String>,
    /// Where the worktree goes; `.perfquilt/edit/RELEASE` if not given.
    pub directory: Option<PathBuf>,
    /// Give up what is in the branch and begin anew.
    pub reset: bool,
    /// Fuzz allowed when the series is applied.
    pub fuzz: usize,
}

/// How an edit branch was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is new.
    Created,
    /// It was there, with nothing that is not in the series.
    Resumed,
    /// It was there, with work that is not in the series yet.
    Unsaved,
    /// It was there, without work, and follows the series as it is now.
    Moved,
    /// It was there; its work was put aside.
    Reset,
}

/// An edit branch, ready to be worked on.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The release.
    pub release: String,
    /// The branch.
    pub branch: String,
    /// The worktree.
    pub directory: PathBuf,
    /// Commits on the branch.
    pub commits: usize,
    /// How it was found.
    pub state: State,
    /// The patch the worktree stands at, with whether patches follow that git has put off.
    pub at: Option<(String, bool)>,
    /// The reference under which put aside work is kept.
    pub kept: Option<String>,
}

/// Gives a worktree with a branch of the stack, one commit a patch.
///
/// # Errors
/// [`Kind::Series`] when the series does not apply, [`Kind::Usage`] when there is work that would be
/// lost, when git is missing, or when there is no such patch.
pub fn open(ws: &Workspace, request: &Request, progress: &dyn Progress) -> Result<Opened> {
    let lock = publish::lock(ws)?;
    publish::recover_locked(ws, &lock)?;
    let series = Series::load_for(ws, request.version.as_deref())?;
    let release = upstream::ensure(ws, request.version.as_deref(), progress)?;
    let stack = stack::apply_with(ws, &release, &series, request.fuzz)?;
    let wanted = request
        .patch
        .as_deref()
        .map(|text| find_patch(&series, text))
        .transpose()?;
    let store = Objects::open(&ws.object_store())?;
    let edit = Edit {
        ws,
        store: &store,
        release: &release,
        tip: stack_tip(&stack),
        progress,
        _lock: &lock,
    };
    let (session, state, kept) = match Session::load(ws, &release.name)? {
        None => (edit.create(request)?, State::Created, None),
        Some(session) => {
            edit.attempt(&session).settle()?;
            edit.resume(session, request)?
        }
    };
    let commits = history::commits(&store, &session.base, &edit.branch_tip(&session)?)?;
    let at = match wanted {
        Some(name) => Some(stop_at(&edit.attempt(&session), &series, &commits, &name)?),
        None => None,
    };
    Ok(Opened {
        release: release.name.clone(),
        branch: session.branch.clone(),
        directory: session.directory.clone(),
        commits: commits.len(),
        state,
        at,
        kept,
    })
}

/// Removes the worktree and its branch when everything is in the series.
///
/// # Errors
/// [`Kind::Usage`] when there is none or work would be lost.
pub fn close(ws: &Workspace, version: Option<&str>, progress: &dyn Progress) -> Result<PathBuf> {
    let lock = publish::lock(ws)?;
    publish::recover_locked(ws, &lock)?;
    let session = pick(ws, version)?;
    let store = Objects::open(&ws.object_store())?;
    let attempt = Attempt::new(ws, &store, &session, progress);
    attempt.settle()?;
    let place = session.place(ws)?;
    if place == Place::Whole {
        let tip = tip::of(ws, &store, &session, progress)?;
        let git = Git::new(&session.directory);
        refuse_in_progress(&git)?;
        let status = git.status()?;
        status.refuse(
            &session.directory,
            "commit them and run `perfquilt refresh`, or `git checkout .` to give them up",
        )?;
        if let Some(file) = status.untracked.first() {
            return Err(Error::usage(format!(
                "{file} in {} is in no commit",
                session.directory.display()
            ))
            .hint("add and commit it and run `perfquilt refresh`, or remove it"));
        }
        if tip != session.start || git.branch()? != Some(session.reference()) {
            refuse_unknown(ws, &session)?;
            return Err(Error::usage(format!(
                "the branch {} has work that is not in the series yet",
                session.branch
            ))
            .hint(
                "`perfquilt refresh` writes it to the series; `perfquilt edit --reset` gives it up",
            ));
        }
    }
    let bare = Git::bare(store.path());
    if place != Place::None || !session.directory.exists() {
        bare.remove_worktree(&session.directory)?;
    }
    if history::reference(&store, &session.reference())?.as_ref() == Some(&session.start) {
        bare.ok(&["update-ref", "-d", &session.reference()])?;
    }
    let file = Session::file(ws, &session.release);
    std::fs::remove_file(&file).map_err(|e| Error::io("remove", &file, &e))?;
    Ok(session.directory)
}

/// The session of a release, or the only one.
pub(super) fn pick(ws: &Workspace, version: Option<&str>) -> Result<Session> {
    let all = Session::all(ws)?;
    let current = &ws.config.upstream.current;
    let wanted = version.unwrap_or(current);
    let named = |session: &&Session| session.version == wanted || session.release == wanted;
    let found = match version {
        Some(_) => all.iter().find(named),
        None if all.len() == 1 => all.first(),
        None => all.iter().find(named),
    };
    found.cloned().ok_or_else(|| {
        let error = Error::usage(match version {
            Some(version) => format!("no edit branch for {version}"),
            None => "there is no edit branch".to_owned(),
        });
        match all.as_slice() {
            [] => error.hint("`perfquilt edit` makes one"),
            some => {
                let names: Vec<&str> = some.iter().map(|s| s.version.as_str()).collect();
                error.hint(format!("there are some for: {}", names.join(", ")))
            }
        }
    })
}

/// An error where the branch's release is not in the configuration any more: its work cannot become patches then.
pub(super) fn refuse_unknown(ws: &Workspace, session: &Session) -> Result<()> {
    if ws.config.release(Some(&session.version)).is_ok() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "the release of the branch {} is not in the configuration any more; its work is in {}",
        session.branch,
        session.directory.display()
    ))
    .hint(format!(
        "put the [[upstream.release]] of version {} back",
        session.version
    )))
}

/// The commit with all patches.
pub(super) fn stack_tip(stack: &Stack) -> String {
    stack
        .steps
        .last()
        .map_or_else(|| stack.release.commit.clone(), |step| step.commit.clone())
}

pub(super) fn refuse_in_progress(git: &Git) -> Result<()> {
    match git.in_progress()? {
        None => Ok(()),
        Some((what, next)) => Err(
            Error::usage(format!("a {what} is under way in the worktree"))
                .hint(format!("finish it with `{next}`")),
        ),
    }
}

struct Edit<'a> {
    ws: &'a Workspace,
    store: &'a Objects,
    release: &'a Release,
    /// The stack of the series as it is now.
    tip: String,
    progress: &'a dyn Progress,
    _lock: &'a Lock,
}

impl Edit<'_> {
    fn attempt<'a>(&'a self, session: &'a Session) -> Attempt<'a> {
        Attempt::new(self.ws, self.store, session, self.progress)
    }

    fn branch_tip(&self, session: &Session) -> Result<String> {
        tip::of(self.ws, self.store, session, self.progress)
    }

    fn create(&self, request: &Request) -> Result<Session> {
        let directory = request.directory.as_deref();
        let mut session = Session::new(self.ws, self.release, directory, request.fuzz)?;
        let checked_out = self.is_checked_out(&session)?;
        self.attempt(&session).settle()?;
        if let Ok(mut entries) = std::fs::read_dir(&session.directory)
            && entries.next().is_some()
            && !checked_out
        {
            return Err(
                Error::usage(format!("{} is not empty", session.directory.display()))
                    .hint("name a new or empty folder with --worktree"),
            );
        }
        // A branch without a session: its file was removed. Its work is not thrown away.
        match history::reference(self.store, &session.reference())? {
            Some(found) if found != self.tip => {
                self.progress.warn(&format!(
                    "the branch {} was there already; it is taken up as it is",
                    session.branch
                ));
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

    /// Whether the branch has its worktree. One that a killed git left half made is taken away.
    fn is_checked_out(&self, session: &Session) -> Result<bool> {
        let place = session.place(self.ws)?;
        if place == Place::HalfMade {
            Git::bare(self.store.path()).remove_worktree(&session.directory)?;
        }
        Ok(place == Place::Whole)
    }

    /// Sets the store up for the worktree; git shows how far the branch is ahead of the release.
    fn prepare_store(&self, session: &Session) -> Result<()> {
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

    fn check_out(&self, session: &Session) -> Result<()> {
        let git = Git::bare(self.store.path());
        git.ok(&["worktree", "prune", EXPIRE])?;
        let parent = folder(self.ws);
        std::fs::create_dir_all(&parent).map_err(|e| Error::io("create", &parent, &e))?;
        let step = self.progress.begin("checking out", None);
        // Forced twice: also over one that a killed git left locked.
        let output = git
            .command(&["worktree", "add", "--quiet", "--force", "--force"])
            .arg(&session.directory)
            .arg(&session.branch)
            .run()?;
        if !output.success() {
            let (branch, dir) = (&session.branch, session.directory.display());
            return Err(
                Error::usage(format!("git cannot check {branch} out to {dir}"))
                    .details(output.tail(8)),
            );
        }
        step.finish("");
        Ok(())
    }

    fn resume(
        &self,
        mut session: Session,
        request: &Request,
    ) -> Result<(Session, State, Option<String>)> {
        if let Some(dir) = &request.directory {
            let wanted = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
            if wanted != session.directory {
                return Err(Error::usage(format!(
                    "the edit branch is checked out in {}",
                    session.directory.display()
                ))
                .hint("`perfquilt edit --close` puts it away"));
            }
        }
        self.prepare_store(&session)?;
        if !self.is_checked_out(&session)? {
            // Somebody removed the folder; the commits are still there.
            let tip = tip::find(self.ws, self.store, &session, self.progress)?;
            if tip.is_none_or(|tip| tip == session.start) {
                history::set_reference(self.store, &session.reference(), &self.tip)?;
                session.start.clone_from(&self.tip);
                session.fuzz = request.fuzz;
            }
            self.check_out(&session)?;
            session.save(self.ws)?;
        }
        let git = Git::new(&session.directory);
        let tip = self.branch_tip(&session)?;
        if request.reset {
            return self.reset(session, &tip, request);
        }
        if tip == self.tip && session.start != tip {
            // A killed command moved the branch to the series as it is, and did not say so.
            session.start.clone_from(&tip);
            session.fuzz = request.fuzz;
            session.save(self.ws)?;
        }
        let busy = git.in_progress()?.is_some();
        let on_branch = git.branch()? == Some(session.reference());
        let unsaved = tip != session.start || busy || !on_branch;
        let same = session.start == self.tip;
        let changed = || -> Result<bool> { Ok(!git.status()?.changed.is_empty()) };
        if same {
            let state = if unsaved || changed()? {
                State::Unsaved
            } else {
                State::Resumed
            };
            return Ok((session, state, None));
        }
        if unsaved || changed()? {
            return Err(Error::usage(format!(
                "both changed since the last `perfquilt edit`: the series, and the branch in {}",
                session.directory.display()
            ))
            .hint("put series and patches back as they were and `perfquilt refresh`, or give the branch up with `perfquilt edit --reset`, which keeps its commits aside"));
        }
        self.move_to_tip(&mut session, &git, request)?;
        Ok((session, State::Moved, None))
    }

    fn reset(
        &self,
        mut session: Session,
        tip: &str,
        request: &Request,
    ) -> Result<(Session, State, Option<String>)> {
        let git = Git::new(&session.directory);
        refuse_in_progress(&git)?;
        git.status()?.refuse(
            &session.directory,
            "`git stash` keeps them, `git checkout .` gives them up",
        )?;
        let mut kept = None;
        if tip != self.tip {
            kept = Some(attempt::keep(self.store, &session.release, tip)?);
        }
        // What is checked out may be on no branch.
        let own = git.ok(&["rev-list", "--max-count=1", "HEAD", "--not", tip, &self.tip])?;
        if !own.is_empty() {
            let name = attempt::keep(self.store, &session.release, &own)?;
            self.progress.warn(&format!(
                "what was checked out was not on the branch; its commits are kept as {name}"
            ));
            kept.get_or_insert(name);
        }
        self.move_to_tip(&mut session, &git, request)?;
        Ok((session, State::Reset, kept))
    }

    fn move_to_tip(&self, session: &mut Session, git: &Git, request: &Request) -> Result<()> {
        // Cut off, it would leave files that look like work.
        git.command(&["checkout", "-q", "-B", &session.branch, &self.tip])
            .to_its_end()
            .run_ok(Kind::Usage)?;
        session.start.clone_from(&self.tip);
        session.fuzz = request.fuzz;
        session.save(self.ws)
    }
}

/// The patch somebody means: its name, its number, or a part of its name that no other has.
fn find_patch(series: &Series, text: &str) -> Result<String> {
    let patches = series.patches();
    if let Some(patch) = patches.iter().find(|patch| patch.name == text) {
        return Ok(patch.name.clone());
    }
    if let Ok(number) = text.parse::<usize>()
        && let Some(patch) = series.patch(number)
    {
        return Ok(patch.name.clone());
    }
    let text_in = text.strip_prefix("patches/").unwrap_or(text);
    let holding: Vec<&str> = patches
        .iter()
        .map(|patch| patch.name.as_str())
        .filter(|name| name.contains(text_in))
        .collect();
    let error = || Error::usage(format!("no patch \"{text}\" in the series"));
    match holding.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => {
            let nearest = patches
                .iter()
                .map(|patch| (strsim::jaro_winkler(&patch.name, text), &patch.name))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            Err(match nearest {
                Some((_, name)) => error().hint(format!("did you mean \"{name}\"?")),
                None => error().hint("the series is empty"),
            })
        }
        several => Err(Error::usage(format!("\"{text}\" may be several patches"))
            .details(several.iter().take(10).map(|name| (*name).to_owned()))
            .hint("give more of the name, or its number")),
    }
}

/// Has git stop at the commit of a patch, the rest to follow.
fn stop_at(
    attempt: &Attempt<'_>,
    series: &Series,
    commits: &[Commit],
    name: &str,
) -> Result<(String, bool)> {
    let session = attempt.session;
    let git = &Git::new(&session.directory);
    if stands_at(git, name)? {
        return Ok((name.to_owned(), true));
    }
    refuse_in_progress(git)?;
    git.status()?
        .refuse(&session.directory, "commit them first, or `git stash` them")?;
    if git.branch()? != Some(session.reference()) {
        return Err(
            Error::usage("another branch is checked out in the worktree")
                .hint(format!("`git checkout {}` there", session.branch)),
        );
    }
    let title = series
        .patches()
        .iter()
        .find(|patch| patch.name == name)
        .map(|patch| patch.title.clone());
    let of = |wanted: &dyn Fn(&Message, &[String]) -> bool| {
        commits.iter().rposition(|commit| {
            let (message, names) = Message::parse(&commit.message, None, commit.date);
            wanted(&message, &names)
        })
    };
    let found = of(&|_, names| names.iter().any(|other| other == name))
        .or_else(|| of(&|message, _| Some(&message.title) == title.as_ref()));
    let Some(at) = found else {
        return Err(Error::usage(format!(
            "no commit of the branch is patch \"{name}\" any more"
        ))
        .hint(format!(
            "`git -C {} log` shows what is there",
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
    let words = [
        "-c",
        "rebase.abbreviateCommands=false",
        "-c",
        "rebase.autoSquash=false",
        "-c",
        "rebase.updateRefs=false",
        "-c",
        "rebase.missingCommitsCheck=ignore",
        "rebase",
        "--interactive",
        "--keep-empty",
        onto.as_str(),
    ];
    let editor = ("GIT_SEQUENCE_EDITOR", "sed -i -e '1s/^pick /edit /'");
    let ended = attempt.run(&words, editor)?;
    if !ended.success || !ended.under_way {
        return Err(Error::usage(format!("git cannot stop at commit {commit}")).details(ended.said));
    }
    Ok((name.to_owned(), true))
}

/// Whether git stands at the commit of a patch already, as an earlier `edit` had it stop.
fn stands_at(git: &Git, name: &str) -> Result<bool> {
    if !matches!(git.in_progress()?, Some(("rebase", _))) || !git.status()?.changed.is_empty() {
        return Ok(false);
    }
    let message = git.ok(&["log", "-1", "--format=%B"])?;
    let (_, names) = Message::parse(&message, None, Timestamp::default());
    Ok(names.iter().any(|other| other == name))
}
