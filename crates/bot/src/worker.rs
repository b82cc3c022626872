//! Runs the queued jobs, one after the other, and posts their results.

use std::collections::BTreeSet;
use std::path::Path;

use super::area::{self, Area};
use super::bot::{
    Bot, BotThread, POLL_INTERVAL, catch_panics, in_one_line, persistently, progress_writer,
    unless_interrupted,
};
use super::command::Command;
use super::job::{self, Isolation, JobEnd, JobEnvironment};
use super::judging::CommentQuestion;
use super::paths::BotPaths;
use super::prepare::Preparation;
use super::serve::now;
use super::{fetch, prebuild};
use perfquilt_config::RepositoryKind;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_results::outcome::{self, OutcomePart, RunStart};
use perfquilt_store::queue::{Job, JobState};
use perfquilt_system::process;

/// The final state of a job and a text about it.
type JobResult = (JobState, String);

impl Bot {
    /// Drops the jobs of other repositories than the one served, without posting to them. Must be called before
    /// anything else uses the queue.
    pub fn drop_foreign_jobs(&self) -> Result<()> {
        for job in self.open_queue()?.remove_other_repositories()? {
            progress::warn(Warning::foreign_job(format!(
                "job {} ({} on pull request {} of {}) is dropped: the bot no longer serves that repository",
                job.id, job.job.command, job.number, job.repository
            )));
        }
        Ok(())
    }

    /// Runs jobs until a signal asks to stop or, if `until_idle`, no job can start. Jobs that were running when the bot last
    /// stopped come first.
    pub fn work(&self, until_idle: bool) -> Result<()> {
        let thread = self.thread()?;
        let queue = &thread.queue;
        let (back, given_up) = queue.recover(now())?;
        let paths = BotPaths::new(&self.workspace);
        let sweep = || -> Result<()> {
            let (open, _) = queue.list(0, now())?;
            let open: BTreeSet<i64> = open.iter().map(|job| job.id).collect();
            area::sweep(&paths, &open);
            Ok(())
        };
        sweep()?;
        if back > 0 {
            progress::note(&format!(
                "resuming {back} jobs that were running when the bot stopped"
            ));
        }
        for job in given_up {
            let words = format!("job {} crashed the bot several times", job.id);
            progress::warn(Warning::crashing_job(words));
            thread.post_failure(job.number);
        }
        if let Err(why) = &self.sandbox {
            let error = Error::sandbox_unavailable(format!("there is no sandbox: {why}"));
            progress::warn(error.into());
        }
        // Reports an unreachable remote at once instead of hours later with the first job. It is only a
        // warning, because the remote may be down temporarily.
        if let Err(error) = fetch::check_remote(&paths, &thread.remote()) {
            progress::warn(in_one_line(&error));
        }
        while !process::interrupted() {
            let next = persistently(|| queue.next(now()));
            let Some(job) = unless_interrupted(next)?.flatten() else {
                if until_idle {
                    break;
                }
                std::thread::sleep(POLL_INTERVAL);
                continue;
            };
            let name = format!("{} on pull request {}", job.job.command, job.number);
            progress::note(&format!("job {}: {name}", job.id));
            let (state, result) = match catch_panics(|| thread.run_job(&job)) {
                Ok(done) => done,
                // The measurements are stored, and the next start of the bot resumes the job.
                Err(error) if error.kind() == Kind::Interrupted => {
                    // If the disk is full, the next start finds it running, which is as good.
                    if let Err(error) = queue.requeue(job.id) {
                        progress::warn(error.into());
                    }
                    break;
                }
                Err(error) => {
                    // The final line with the job's state has no room for details and hint.
                    let details = error.detail_lines().iter().map(String::as_str);
                    for line in details.chain(error.hint_text()) {
                        progress::note(&format!("job {}: {line}", job.id));
                    }
                    let result = error.to_string();
                    let postpone = || queue.postpone(&job, &result, now());
                    let later = error.is_transient()
                        && unless_interrupted(persistently(postpone))?.unwrap_or(true);
                    let state = if later {
                        JobState::Waiting
                    } else {
                        JobState::Failed
                    };
                    (state, result)
                }
            };
            progress::note(&format!("job {}: {}: {result}", job.id, state.name()));
            // Before the queue is written: the job may have filled its disk.
            if state != JobState::Waiting {
                thread.remove_area(&job);
            }
            if ![JobState::Held, JobState::Waiting].contains(&state) {
                let end = || queue.end(job.id, state, &result, now());
                if unless_interrupted(persistently(end))?.is_none() {
                    break;
                }
            }
            if [JobState::Cancelled, JobState::Failed].contains(&state) {
                thread.post_failure(job.number);
            }
            // Those of jobs that were built ahead, and cancelled since.
            if let Err(error) = sweep() {
                progress::warn(error.into());
            }
            self.set_progress("");
        }
        Ok(())
    }
}

/// Returns the part of an outcome that `command` did not make.
fn without_results(command: &Command) -> OutcomePart<'static> {
    match command {
        Command::Bisect { .. } => OutcomePart::Bisection(None),
        _ => OutcomePart::Run(None),
    }
}

impl BotThread<'_> {
    /// Measures and posts; returns how the job ended.
    fn run_job(&self, job: &Job) -> Result<JobResult> {
        let BotThread { bot, queue, .. } = self;
        let config = &bot.workspace.config;
        let number = job.number;
        let not = |why: &str| Ok((JobState::Cancelled, why.to_owned()));
        let found = self.find_pull_request(number)?;
        if !found.open {
            return not("the pull request is closed");
        }
        if job.job.head != found.head {
            return not("the pull request has a newer commit");
        }
        let no_job = || Error::bot_settings(format!("`{}` is not a job command", job.job.command));
        let command = Command::from_text(&job.job.command).ok_or_else(no_job)?;
        let isolation = match Isolation::of(config, &bot.sandbox, job.job.trusted) {
            Ok(isolation) => isolation,
            Err(why) => return not(&why),
        };
        bot.set_progress("");
        self.update_comment(&found, None, false)?;
        bot.set_progress("fetching the pull request");
        let cancelled = || self.is_cancelled(job);
        // The queue has the reason.
        let cancelled_job = || not("cancelled");
        let Some(build_guard) = Bot::wait_for_lock(&bot.state.build_lock, &cancelled)? else {
            return cancelled_job();
        };
        let prepared = match self.prepare(&found, job, isolation)? {
            Preparation::Cancelled => return cancelled_job(),
            Preparation::Superseded => return not("the pull request has a newer commit"),
            Preparation::NeedsApproval(files) => {
                queue.hold(job.id, &files.join("\n"))?;
                self.update_comment(&found, None, false)?;
                return Ok((JobState::Held, format!("{} files", files.len())));
            }
            // The bot posts why the pull request has no usable series.
            Preparation::NoSeries(error) => {
                return self.post_error(job, &error, OutcomePart::Run(None));
            }
            Preparation::Ready(prepared) => prepared,
        };
        // Earlier results stay posted: this command adds nothing to them.
        let count = prepared.patches;
        if let Some(patch) = job::patch_number(&command)
            && patch > count
        {
            return not(&format!(
                "there is no patch {patch}: the series has {}",
                counted(count, "patch", "patches")
            ));
        }
        let arguments =
            job::run_arguments(&command, &config.bot.preset, count).ok_or_else(no_job)?;
        let run_in = |environment: &JobEnvironment, arguments: &[String]| {
            let Some(_machine_guard) = Bot::wait_for_lock(&bot.state.machine_lock, &cancelled)?
            else {
                return Ok(JobEnd::Cancelled);
            };
            let cpus = prebuild::measuring_cpus(&config.bot);
            job::run(
                &bot.tool,
                environment,
                arguments,
                cpus.as_deref(),
                &cancelled,
                progress_writer(&bot.state.progress, String::new()),
            )
        };
        let run = |arguments: &[String]| run_in(&prepared.environment, arguments);
        let mut ended = JobEnd::Exited;
        // The release's code is trusted: it is built once for all pull requests, whose code reads it. If that fails, the job
        // tells why.
        if config.bot.kind == RepositoryKind::Series
            && isolation == Isolation::Sandbox
            && let Some(release) = job::release_arguments(&command, config)
        {
            ended = run_in(&JobEnvironment::of_bot(&bot.workspace), &release)?;
        }
        if ended == JobEnd::Exited
            && let Some(building) = job::build_arguments(&command, config, count)
        {
            ended = run(&building)?;
        }
        drop(build_guard);
        let mut start = self.start_of(job)?;
        if ended == JobEnd::Exited {
            // Without one, the job says which there are.
            if let Some(preset) = job::preset_of(&command, config) {
                start = start.asking(preset, &prepared.outcome)?;
            }
            let outcome = prepared.outcome.display().to_string();
            let mut arguments = arguments;
            arguments.extend(["--outcome".to_owned(), outcome]);
            ended = run(&arguments)?;
        }
        match ended {
            JobEnd::Cancelled => cancelled_job(),
            JobEnd::LimitExceeded(what) => {
                // What follows needs room on the disk.
                self.remove_area(job);
                let error = Error::job_ended(format!("the job was stopped: {what}"))
                    .hint("[sandbox] of the bot's configuration sets its limits");
                self.post_error(job, &error, without_results(&command))
            }
            JobEnd::Exited => self.post_outcome(job, &command, &prepared.outcome, &start),
        }
    }

    /// Returns whether somebody has approved the commit of `job`.
    pub(super) fn is_approved(&self, job: &Job) -> Result<bool> {
        self.queue.is_approved(job.number, &job.job.head)
    }

    /// Returns the start of the run of `job`.
    fn start_of(&self, job: &Job) -> Result<RunStart> {
        let began = job.started.unwrap_or(job.received);
        let approved = job.job.trusted || self.is_approved(job)?;
        Ok(RunStart {
            head: job.job.head.clone(),
            began: jiff::Timestamp::from_second(began)
                .map_or_else(|_| String::new(), |began| began.to_string()),
            unapproved: !approved,
            ..RunStart::default()
        })
    }

    /// Removes the area of a job, which may have filled its disk. The sweep after the job retries a failed removal.
    fn remove_area(&self, job: &Job) {
        if let Err(error) = Area::of(&BotPaths::new(&self.bot.workspace), job.id).remove() {
            progress::warn(error.into());
        }
    }

    /// Stores a job's outcome and posts it.
    fn post_outcome(
        &self,
        job: &Job,
        command: &Command,
        from: &Path,
        start: &RunStart,
    ) -> Result<JobResult> {
        let bot = self.bot;
        let stored = bot.outcome(job.number);
        let cancelled = || self.is_cancelled(job);
        let bisected = matches!(command, Command::Bisect { .. });
        let Err(error) = bot.take_outcome(from, &stored, start, bisected, &cancelled) else {
            return self.post_stored(job);
        };
        if cancelled() {
            return Ok((JobState::Cancelled, "cancelled".to_owned()));
        }
        if error.kind() == Kind::Interrupted {
            return Err(error);
        }
        // The reason, which names files of this machine, is for the log.
        for line in std::iter::once(error.to_string()).chain(error.detail_lines().iter().cloned()) {
            progress::note(&format!("job {}: {line}", job.id));
        }
        let told = Error::internal("the job ended without a readable result")
            .hint("the bot's log has the reason");
        let failures = vec![Failure::new(&told, None)];
        let start = self.start_of(job)?;
        outcome::update(&stored, &start, failures, without_results(command))?;
        Ok((JobState::Failed, told.to_string()))
    }

    /// Posts the error of a job without results.
    fn post_error(&self, job: &Job, error: &Error, made: OutcomePart<'_>) -> Result<JobResult> {
        let bot = self.bot;
        let stored = bot.outcome(job.number);
        let failures = vec![Failure::new(error, None)];
        outcome::update(&stored, &self.start_of(job)?, failures, made)?;
        self.post_stored(job)
    }

    /// Posts the stored results for the pull request of `job` and marks the job as done.
    fn post_stored(&self, job: &Job) -> Result<JobResult> {
        let found = self.find_pull_request(job.number)?;
        let lock = self.bot.comment_lock(found.number);
        let _comment_guard = Bot::wait_for_lock(&lock, &|| false)?;
        let posting = self.posting();
        let posted = self.post_results(&found, &posting, CommentQuestion::default(), false)?;
        self.remove_area(job);
        self.queue
            .end(job.id, JobState::Done, &posted.title, now())?;
        Ok((JobState::Done, posted.title))
    }
}
