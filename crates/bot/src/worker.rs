//! Does what is in the queue: one job after the other, builds of the next beside it, and answers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use super::command::Command;
use super::job::{self, Ended, Guard};
use super::places::Places;
use super::prepare::{Brought, Prepared};
use super::serve::now;
use super::{ahead, source};
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::Draft;
use perfquilt_forge::event::Target;
use perfquilt_forge::{Client, Credentials, Found, Policy, Repository};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::progress::Progress;
use perfquilt_report::comment;
use perfquilt_results::outcome::{self, Made};
use perfquilt_store::queue::{Job, JobState, Queue};
use perfquilt_system::locks;
use perfquilt_system::process;

/// How often the queue is looked at.
pub(super) const GLANCE: Duration = Duration::from_millis(200);

/// What the bot's threads share.
#[derive(Clone)]
pub struct Bot {
    /// The workspace whose configuration, releases and results are used.
    pub workspace: Workspace,
    /// The repository served.
    pub repository: Repository,
    /// GitHub's interface.
    pub api: String,
    /// Who posts.
    pub credentials: Credentials,
    /// How patiently.
    pub policy: Policy,
    /// This program.
    pub tool: PathBuf,
    /// Whether sandboxes can be made here; else why not.
    pub sandbox: std::result::Result<(), String>,
    /// What goes on.
    pub state: State,
}

/// What the bot's threads know of each other.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// What the running job does.
    pub(super) doing: Arc<Mutex<String>>,
    /// What is built for the next one.
    pub(super) ahead: Arc<Mutex<String>>,
    /// Held by whoever makes a job's workspace and builds in it.
    pub(super) workshop: Arc<Mutex<()>>,
    /// Held by whoever measures, and by whoever builds on the processors that are measured.
    pub(super) machine: Arc<Mutex<()>>,
    /// Held by whoever finds out what to say on a pull request, and says it: the latest word must stay.
    pub(super) speaking: Arc<Mutex<()>>,
    /// The last answer on each pull request, and when it was given.
    pub(super) answers: Arc<Mutex<BTreeMap<u64, (i64, String)>>>,
}

/// What became of a job.
type Done = (JobState, String);

/// What `work` comes to. What code of strangers left is read there; nothing in it may end the bot.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::internal("the job's results end the program")))
}

/// Takes the lines that a job says and has `place` tell the last one, behind `before`.
pub(super) fn teller(
    place: &Arc<Mutex<String>>,
    before: String,
) -> impl Fn(&str) + Send + use<> + 'static {
    let place = Arc::clone(place);
    move |line: &str| {
        if let (false, Ok(mut text)) = (line.is_empty(), place.lock()) {
            *text = format!("{before}{line}");
        }
    }
}

/// What `place` tells.
pub(super) fn told(place: &Mutex<String>) -> String {
    place.lock().map(|text| text.clone()).unwrap_or_default()
}

impl Bot {
    /// Where the queue is.
    pub fn queue(&self) -> PathBuf {
        Places::new(&self.workspace).queue()
    }

    /// Makes sure that no other bot serves this workspace while what it returns is kept.
    ///
    /// # Errors
    /// [`Kind::Usage`] when one does; [`Kind::Internal`] when that cannot be found out.
    pub fn alone(&self) -> Result<impl Sized + use<>> {
        locks::try_now(&Places::new(&self.workspace).lock())?.ok_or_else(|| {
            Error::usage("another bot serves here")
                .hint("end it first, or serve another workspace with `-C`")
        })
    }

    /// What the running job does at the moment, and what is built ahead of it.
    pub fn doing(&self) -> String {
        let (doing, ahead) = (told(&self.state.doing), told(&self.state.ahead));
        if ahead.is_empty() {
            doing
        } else {
            format!("{doing} (building ahead: {ahead})")
        }
    }

    /// Forgets what was asked for in another repository than the one served: it is not done and told here. To be
    /// called before anything else is done with the queue.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the queue cannot be read or written.
    pub fn forget_others(&self, progress: &dyn Progress) -> Result<()> {
        let queue = Queue::open(&self.queue())?;
        for job in queue.keep_only(&self.repository.to_string())? {
            progress.warn(&format!(
                "job {} ({} on pull request {} of {}) is dropped: that repository is not served any more",
                job.id, job.job.command, job.job.number, job.job.repository
            ));
            super::area::remove(&Places::new(&self.workspace).job(job.id))?;
        }
        Ok(())
    }

    /// Does jobs until a signal asks to stop. What was running when the bot ended last is done first.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the queue cannot be read or written.
    pub fn work(&self, progress: &dyn Progress) -> Result<()> {
        let queue = Queue::open(&self.queue())?;
        let client = self.client()?;
        let (back, given_up) = queue.recover(now())?;
        if back > 0 {
            progress.note(&format!(
                "{back} jobs were running when the bot ended, and go on"
            ));
        }
        for job in given_up {
            progress.warn(&format!("job {} ended the bot several times", job.id));
            self.excuse(&queue, &client, job.job.number, progress);
        }
        if let Err(why) = &self.sandbox {
            progress.warn(&format!("there is no sandbox: {why}"));
        }
        // Told at once, and not hours later by the first job; a remote may be out of reach for a while.
        if let Err(error) = source::answers(&Places::new(&self.workspace), &self.remote()) {
            let hint = error.hint_text().unwrap_or_default();
            progress.warn(&format!(
                "{error} ({hint}): {}",
                error.detail_lines().join("; ")
            ));
        }
        while !process::interrupted() {
            let Some(job) = queue.next(now())? else {
                std::thread::sleep(GLANCE);
                continue;
            };
            let name = format!("{} on pull request {}", job.job.command, job.job.number);
            progress.note(&format!("job {}: {name}", job.id));
            let (state, result) = match guarded(|| self.carry_out(&queue, &client, &job, progress))
            {
                Ok(done) => done,
                // What was measured is kept, and the next start goes on.
                Err(error) if error.kind() == Kind::Interrupted => {
                    queue.put_back(job.id)?;
                    break;
                }
                Err(error) => {
                    // The last line, which tells how it ended, has no room for them.
                    let details = error.detail_lines().iter().map(String::as_str);
                    for line in details.chain(error.hint_text()) {
                        progress.note(&format!("job {}: {line}", job.id));
                    }
                    let result = error.to_string();
                    let later = error.is_passing() && queue.postpone(&job, &result, now())?;
                    let state = if later {
                        JobState::Waiting
                    } else {
                        JobState::Failed
                    };
                    (state, result)
                }
            };
            progress.note(&format!("job {}: {}: {result}", job.id, state.name()));
            if ![JobState::Held, JobState::Waiting].contains(&state) {
                queue.end(job.id, state, &result, now())?;
            }
            if [JobState::Cancelled, JobState::Failed].contains(&state) {
                self.excuse(&queue, &client, job.job.number, progress);
            }
            if let Err(error) = super::area::remove(&Places::new(&self.workspace).job(job.id)) {
                progress.warn(&error.to_string());
            }
            self.tell("");
        }
        Ok(())
    }

    /// Builds what is measured next, until a signal asks to stop.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the queue cannot be read.
    pub fn build_ahead(&self, progress: &dyn Progress) -> Result<()> {
        ahead::build(
            self,
            &Queue::open(&self.queue())?,
            &self.client()?,
            progress,
        )
    }

    pub(super) fn client(&self) -> Result<Client> {
        Client::new(
            self.repository.clone(),
            &self.api,
            self.credentials.clone(),
            self.policy,
        )
    }

    fn tell(&self, text: &str) {
        if let Ok(mut doing) = self.state.doing.lock() {
            doing.clear();
            doing.push_str(text);
        }
    }

    pub(super) fn find(&self, client: &Client, number: u64) -> Result<Found> {
        let target = Target {
            number: Some(number),
            ..Target::default()
        };
        perfquilt_forge::find_pull_request(client, &target)
    }

    /// Waits for a lock; gives up when the bot is to stop, or `unwanted` says so.
    pub(super) fn wait<'a>(
        lock: &'a Mutex<()>,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Option<MutexGuard<'a, ()>>> {
        loop {
            match lock.try_lock() {
                Ok(guard) => return Ok(Some(guard)),
                // Whoever held it left nothing half done that the next one does not make anew.
                Err(TryLockError::Poisoned(poisoned)) => return Ok(Some(poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => {}
            }
            process::check_interrupted()?;
            if unwanted() {
                return Ok(None);
            }
            std::thread::sleep(GLANCE / 4);
        }
    }

    /// Measures and posts; says how the job ended.
    fn carry_out(
        &self,
        queue: &Queue,
        client: &Client,
        job: &Job,
        progress: &dyn Progress,
    ) -> Result<Done> {
        let config = &self.workspace.config;
        let number = job.job.number;
        let not = |why: &str| Ok((JobState::Cancelled, why.to_owned()));
        let found = self.find(client, number)?;
        if !found.open {
            return not("the pull request is closed");
        }
        if !job.job.head.is_empty() && job.job.head != found.newest {
            return not("the pull request has a newer commit");
        }
        queue.takes(job.id, &found.newest)?;
        let no_job = || Error::usage(format!("`{}` is no job", job.job.command));
        let wish = Command::written(&job.job.command).ok_or_else(no_job)?;
        let guard = match Guard::of(config, &self.sandbox, job.job.trusted) {
            Ok(guard) => guard,
            Err(why) => return not(&why),
        };
        self.tell("");
        self.say(queue, client, &found, "", progress)?;
        self.tell("fetching the pull request");
        let unwanted = || {
            queue
                .state(job.id)
                .is_ok_and(|state| state == Some(JobState::Cancelled))
        };
        // The queue knows why.
        let cancelled = || not("cancelled");
        let Some(workshop) = Self::wait(&self.state.workshop, &unwanted)? else {
            return cancelled();
        };
        let prepared = match self.prepare(queue, &found, job, guard, &unwanted, progress)? {
            Brought::Unwanted => return cancelled(),
            Brought::Newer => return not("the pull request has a newer commit"),
            Brought::Steering { head, files } => {
                queue.hold(job.id, &head, &files.join("\n"))?;
                self.say(queue, client, &found, "", progress)?;
                return Ok((JobState::Held, format!("{} files", files.len())));
            }
            // A pull request without a series is told so.
            Brought::Nothing { head, error } => {
                let failed = (head.as_str(), &error);
                return self.publish(queue, client, job, failed, Made::Run(None), progress);
            }
            Brought::Series(prepared) => prepared,
        };
        // What was measured before stays: nothing new is known of it.
        if let (Some(patch), Some(count)) = (job::patch(&wish), prepared.patches)
            && patch > count
        {
            return not(&format!(
                "there is no patch {patch}; the series has {count}"
            ));
        }
        let count = prepared.patches.unwrap_or_default();
        let arguments = job::arguments(&wish, &config.bot.preset, count).ok_or_else(no_job)?;
        let run = |arguments: &[String]| {
            let Some(_machine) = Self::wait(&self.state.machine, &unwanted)? else {
                return Ok(Ended::Cancelled);
            };
            let cpus = ahead::measured(&config.bot);
            job::run(
                &self.tool,
                &prepared.ready,
                arguments,
                &cpus,
                &unwanted,
                teller(&self.state.doing, String::new()),
            )
        };
        let mut ended = Ended::Itself;
        if let Some(building) = job::building(&wish, config, count) {
            ended = run(&building)?;
        }
        drop(workshop);
        if ended == Ended::Itself {
            let outcome = source::outcome(&prepared.ready.folder)
                .display()
                .to_string();
            let mut arguments = arguments;
            arguments.extend(["--outcome".to_owned(), outcome]);
            ended = run(&arguments)?;
        }
        match ended {
            Ended::Cancelled => cancelled(),
            Ended::Limited(what) => {
                let error = Error::bench(format!("the job was ended: {what}"))
                    .hint("[sandbox] of the bot's configuration sets its limits");
                let made = match wish {
                    Command::Bisect { .. } => Made::Bisection(None),
                    _ => Made::Run(None),
                };
                let failed = (prepared.head.as_str(), &error);
                self.publish(queue, client, job, failed, made, progress)
            }
            Ended::Itself => self.publish_run(queue, client, job, (&prepared, &wish), progress),
        }
    }

    /// Takes over what a job came to, and posts it.
    fn publish_run(
        &self,
        queue: &Queue,
        client: &Client,
        job: &Job,
        (prepared, wish): (&Prepared, &Command),
        progress: &dyn Progress,
    ) -> Result<Done> {
        let from = source::outcome(&prepared.ready.folder);
        if !from.join(outcome::OUTCOME_FILE).exists() {
            return Err(Error::internal("the job ended without a result").details([self.doing()]));
        }
        let kept = Places::new(&self.workspace).outcome(&self.repository, job.job.number);
        let margin = |meter| self.workspace.config.margin(meter);
        let bisected = matches!(wish, Command::Bisect { .. });
        outcome::take(&from, &kept, &prepared.head, bisected, &margin)?;
        self.post(queue, client, job, progress)
    }

    /// Posts why a job has no figures.
    fn publish(
        &self,
        queue: &Queue,
        client: &Client,
        job: &Job,
        (head, error): (&str, &Error),
        made: Made<'_>,
        progress: &dyn Progress,
    ) -> Result<Done> {
        let kept = Places::new(&self.workspace).outcome(&self.repository, job.job.number);
        outcome::put(&kept, head, vec![Failure::new(error, None)], made)?;
        self.post(queue, client, job, progress)
    }

    /// Posts what is kept for the pull request of `job`, which is done then.
    fn post(
        &self,
        queue: &Queue,
        client: &Client,
        job: &Job,
        progress: &dyn Progress,
    ) -> Result<Done> {
        let kept = self.kept(job.job.number)?;
        let found = self.find(client, job.job.number)?;
        let _speaking = Self::wait(&self.state.speaking, &|| false)?;
        let notice = kept.notice();
        let posted = perfquilt_forge::post(
            client,
            &self.posting(),
            &found,
            &Draft {
                subject: &notice.subject,
                write: &|subject, limit| comment(&notice.about(subject), limit),
            },
            progress,
        )?;
        queue.end(job.id, JobState::Done, &posted.title, now())?;
        Ok((JobState::Done, posted.title))
    }
}
