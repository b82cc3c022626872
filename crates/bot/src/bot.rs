//! The bot's configuration and the state that its threads share.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use super::paths::BotPaths;
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::{Forge, PullRequest, Repository, RetryPolicy, Target};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_store::queue::{Job, JobState, Queue};
use perfquilt_system::threads::lock;
use perfquilt_system::{files, locks, process};

/// Time between two attempts to read or write the queue.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How often the bot's threads poll the queue.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The bot: its configuration and the state that its threads share.
#[derive(Clone)]
pub struct Bot {
    /// The bot's workspace, with the configuration, releases and results.
    pub workspace: Workspace,
    /// The name of the service with the pull requests, in texts.
    pub service: &'static str,
    /// Connects to it.
    pub connector: Connector,
    /// The repository whose pull requests the bot serves.
    pub repository: Repository,
    /// The retry policy for requests to the forge.
    pub policy: RetryPolicy,
    /// The path of the perfquilt executable.
    pub tool: PathBuf,
    /// Whether this machine supports sandboxes; otherwise the reason why not.
    pub sandbox: std::result::Result<(), String>,
    /// The state that the bot's threads share.
    pub state: SharedState,
}

/// Connects to the service with the pull requests of a repository.
pub type Connector = Arc<dyn Fn(&Repository, RetryPolicy) -> Result<Box<dyn Forge>> + Send + Sync>;

/// The state that the bot's threads share.
#[derive(Debug, Clone, Default)]
pub struct SharedState {
    /// The progress of the running job.
    pub(super) progress: Arc<Mutex<String>>,
    /// The progress of prebuilding.
    pub(super) prebuild: Arc<Mutex<String>>,
    /// Held while a thread prepares a job's workspace and builds in it.
    pub(super) build_lock: Arc<Mutex<()>>,
    /// Held while a thread measures, or builds on the processors for measuring.
    pub(super) machine_lock: Arc<Mutex<()>>,
    /// Held while a thread composes and posts a comment on a pull request, by number, so that an older text never replaces a
    /// newer one.
    pub(super) comment_locks: Arc<Mutex<BTreeMap<u64, Arc<Mutex<()>>>>>,
    /// Held while results are judged that may need all the time and memory of [`super::judging`].
    pub(super) judge_lock: Arc<Mutex<()>>,
    /// Pull requests whose comments take long: judging their results, or another thread writes them.
    pub(super) slow: Arc<Mutex<BTreeSet<u64>>>,
    /// The last answer on each pull request, with the time it was given.
    pub(super) answers: Arc<Mutex<BTreeMap<u64, (i64, String)>>>,
}

/// One of the bot's threads, with its own connections to the queue and to the forge.
pub(super) struct BotThread<'a> {
    pub(super) bot: &'a Bot,
    pub(super) queue: Queue,
    pub(super) forge: Box<dyn Forge>,
}

/// Runs `work` and converts a panic into an error: `work` reads results of untrusted code, and nothing in them
/// may terminate the bot.
pub(super) fn catch_panics<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::internal("reading the job's results panicked")))
}

/// Repeats `work`, which reads or writes the queue, until it succeeds or a signal asks to stop: a full disk may have room
/// again later, and the bot must not end meanwhile. Reports the first failure.
///
/// # Errors
/// [`Kind::Interrupted`]; errors of other kinds than [`Kind::Internal`].
pub(super) fn persistently<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let mut is_reported = false;
    loop {
        match work() {
            Err(error) if error.kind() == Kind::Internal => {
                if !is_reported {
                    is_reported = true;
                    let words = format!("{error}; the bot retries until it succeeds");
                    progress::warn(error.reworded(words).into());
                }
                process::sleep(RETRY_INTERVAL)?;
            }
            done => return done,
        }
    }
}

/// Returns the warning of an error with its details and its hint.
pub(super) fn in_one_line(error: &Error) -> Warning {
    let hint = error.hint_text().map(|hint| format!(" ({hint})"));
    let told = format!("{error}{}", hint.unwrap_or_default());
    let details = error.detail_lines().iter();
    let told = details.fold(told, |told, line| format!("{told}; {line}"));
    error.clone().reworded(told).into()
}

/// Returns `None` for an error that says that a signal asks to stop.
pub(super) fn unless_interrupted<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Err(error) if error.kind() == Kind::Interrupted => Ok(None),
        done => done.map(Some),
    }
}

/// Returns a function that stores the last line a job wrote in `target`, after `prefix`.
pub(super) fn progress_writer(
    target: &Arc<Mutex<String>>,
    prefix: String,
) -> impl Fn(&str) + Send + use<> + 'static {
    let target = Arc::clone(target);
    move |line: &str| {
        if !line.is_empty() {
            *lock(&target) = format!("{prefix}{line}");
        }
    }
}

/// Returns the text in `target`.
pub(super) fn current_text(target: &Mutex<String>) -> String {
    lock(target).clone()
}

impl Bot {
    /// Returns the path of the queue's file.
    pub fn queue_path(&self) -> PathBuf {
        BotPaths::new(&self.workspace).queue()
    }

    /// Makes the workspace accessible to the bot's user only: a program that a job left there would have the bot's rights for
    /// whoever reaches it, and the file of git's settings may have passwords.
    pub fn make_private(&self) -> Result<()> {
        let ws = &self.workspace;
        for folder in [ws.root(), &BotPaths::new(ws).root()] {
            files::make_private(folder)?;
        }
        let settings = super::fetch::settings_file(ws);
        let open = settings
            .filter(|file| std::fs::metadata(file).is_ok_and(|found| !files::is_private(&found)));
        open.map_or(Ok(()), |file| {
            let file = file.display();
            Err(Error::secret_readable(format!(
                "other users can read {file}, which may have passwords"
            ))
            .hint(format!("chmod 600 {file}")))
        })
    }

    /// Locks the workspace against other bots while the returned value lives, and ends what a killed one left.
    pub fn lock_workspace(&self) -> Result<impl Sized + use<>> {
        let paths = BotPaths::new(&self.workspace);
        let lock = locks::try_now(&paths.lock())?.ok_or_else(|| {
            Error::locked("another bot already serves this workspace")
                .hint("stop it first, or serve another workspace with `-C`")
        })?;
        process::end_processes_of(&paths.areas());
        Ok(lock)
    }

    /// Returns the progress of the running job and of prebuilding.
    pub fn progress_text(&self) -> String {
        let progress = current_text(&self.state.progress);
        match current_text(&self.state.prebuild).as_str() {
            "" => progress,
            ahead => format!("{progress} (building ahead: {ahead})"),
        }
    }

    /// Returns a connection to the forge that retries as `policy` says.
    pub fn connect(&self, policy: RetryPolicy) -> Result<Box<dyn Forge>> {
        (self.connector)(&self.repository, policy)
    }

    /// Opens the connections of a thread.
    pub(super) fn thread(&self) -> Result<BotThread<'_>> {
        Ok(BotThread {
            bot: self,
            queue: self.open_queue()?,
            forge: self.connect(self.policy)?,
        })
    }

    /// Returns the folder with the last outcome of a pull request.
    pub(super) fn outcome(&self, number: u64) -> PathBuf {
        BotPaths::new(&self.workspace).outcome(&self.repository, number)
    }

    /// Opens the queue.
    pub(super) fn open_queue(&self) -> Result<Queue> {
        Queue::open(&self.queue_path(), self.repository.to_string())
    }

    /// Returns the lock of the comment on a pull request.
    pub(super) fn comment_lock(&self, number: u64) -> Arc<Mutex<()>> {
        let mut locks = lock(&self.state.comment_locks);
        Arc::clone(locks.entry(number).or_default())
    }

    pub(super) fn set_progress(&self, text: &str) {
        text.clone_into(&mut lock(&self.state.progress));
    }

    /// Waits for a lock; returns `None` once `cancelled` returns true, and an error when the bot stops.
    pub(super) fn wait_for_lock<'a>(
        lock: &'a Mutex<()>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<MutexGuard<'a, ()>>> {
        loop {
            match lock.try_lock() {
                Ok(guard) => return Ok(Some(guard)),
                // A panicking holder leaves no state behind that the next one does not recreate.
                Err(TryLockError::Poisoned(poisoned)) => return Ok(Some(poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => {}
            }
            process::check_interrupted()?;
            if cancelled() {
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL / 4);
        }
    }
}

impl BotThread<'_> {
    pub(super) fn find_pull_request(&self, number: u64) -> Result<PullRequest> {
        let target = Target {
            number: Some(number),
            ..Target::default()
        };
        self.forge.find(&target)
    }

    /// Returns whether `job` was cancelled.
    pub(super) fn is_cancelled(&self, job: &Job) -> bool {
        let state = self.queue.state(job.id);
        state.is_ok_and(|state| state == Some(JobState::Cancelled))
    }
}
