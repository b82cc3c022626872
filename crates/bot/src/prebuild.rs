//! Prebuilding: builds for the next job while another job is measured.
//!
//! A compiler running beside a measurement disturbs it: caches, memory and, on one chip, clock rates are
//! shared. While a job is measured, the bot therefore prebuilds only on the processors that the configuration
//! reserves (`ahead_cpus`), and never measures on those. Without reserved processors, it prebuilds while
//! nothing is measured, that is, while results are posted or commits are fetched. The same holds for the steps
//! before a build.

use std::collections::BTreeSet;

use super::bot::{Bot, BotThread, POLL_INTERVAL, catch_panics, persistently, progress_writer};
use super::command::Command;
use super::job::{self, Isolation};
use super::prepare::Preparation;
use super::serve::now;
use perfquilt_bench::workload::allowed_cpus;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_store::queue::{Job, JobState};
use perfquilt_system::process;

/// The number of jobs at the front of the queue that are built ahead: each takes as much space as a source tree and a build
/// tree.
const MOST_AHEAD: usize = 2;

/// Returns the processors that are reserved for prebuilding, if any.
fn reserved_cpus(bot: &perfquilt_config::Bot) -> Option<&[usize]> {
    Some(&bot.prebuild_cpus[..]).filter(|cpus| !cpus.is_empty())
}

/// Returns the processors that jobs are measured on; `None` means all.
pub(super) fn measuring_cpus(bot: &perfquilt_config::Bot) -> Option<Vec<usize>> {
    let reserved = reserved_cpus(bot)?;
    let mut cpus = allowed_cpus();
    cpus.retain(|cpu| !reserved.contains(cpu));
    Some(cpus)
}

/// Checks that the reserved processors exist and that some remain to measure on.
pub fn check_processors(bot: &perfquilt_config::Bot) -> Result<()> {
    let cpus = allowed_cpus();
    let unknown = bot.prebuild_cpus.iter().find(|cpu| !cpus.contains(cpu));
    let why = match unknown {
        Some(cpu) => format!("there is no processor {cpu}"),
        None if measuring_cpus(bot).is_some_and(|cpus| cpus.is_empty()) => {
            "no processor is left to measure on".to_owned()
        }
        None => return Ok(()),
    };
    Err(Error::bot_settings(why)
        .at(perfquilt_config::CONFIG_FILE, None)
        .hint(format!(
            "`ahead_cpus` in [bot] must name some of {cpus:?}, but not all"
        )))
}

impl Bot {
    /// Prebuilds waiting jobs until a signal asks to stop.
    pub fn prebuild(&self) -> Result<()> {
        let thread = self.thread()?;
        // Jobs that are built already or cannot be built.
        let mut seen: BTreeSet<i64> = BTreeSet::new();
        while !process::interrupted() {
            let (open, _) = match persistently(|| thread.queue.list(0, now())) {
                Err(error) if error.kind() == Kind::Interrupted => break,
                listed => listed?,
            };
            let busy = open.iter().any(|job| job.state == JobState::Running);
            // A held job returns to the queue once it is approved.
            let held = open.iter().filter(|job| job.state == JobState::Held);
            held.for_each(|job| {
                seen.remove(&job.id);
            });
            let next = open
                .into_iter()
                .filter(|job| job.state == JobState::Waiting && !job.job.head.is_empty())
                .take(MOST_AHEAD)
                .find(|job| !seen.contains(&job.id));
            let (true, Some(job)) = (busy, next) else {
                std::thread::sleep(POLL_INTERVAL);
                continue;
            };
            seen.insert(job.id);
            match catch_panics(|| thread.prebuild_job(&job)) {
                Ok(()) => {}
                Err(error) if error.kind() == Kind::Interrupted => break,
                // The job reports the error itself when its turn comes.
                Err(error) => {
                    progress::note(&format!("job {} cannot be built ahead: {error}", job.id))
                }
            }
            if let Ok(mut text) = self.state.prebuild.lock() {
                text.clear();
            }
        }
        Ok(())
    }
}

impl BotThread<'_> {
    /// Builds the points that `job` measures, unless it cannot be built in advance.
    fn prebuild_job(&self, job: &Job) -> Result<()> {
        let BotThread { bot, queue, .. } = self;
        let config = &bot.workspace.config;
        let command = Command::from_text(&job.job.command);
        let Some(command) =
            command.filter(|command| job::build_arguments(command, config, 0).is_some())
        else {
            return Ok(());
        };
        let Ok(isolation) = Isolation::of(config, &bot.sandbox, job.job.trusted) else {
            return Ok(());
        };
        let cancelled = || self.is_cancelled(job);
        let Some(_build_guard) = Bot::wait_for_lock(&bot.state.build_lock, &cancelled)? else {
            return Ok(());
        };
        let _machine_guard = if reserved_cpus(&config.bot).is_some() {
            None
        } else {
            match Bot::wait_for_lock(&bot.state.machine_lock, &cancelled)? {
                None => return Ok(()),
                held => held,
            }
        };
        // The worker may have started the job while this thread waited.
        if queue.state(job.id)? != Some(JobState::Waiting) {
            return Ok(());
        }
        self.build(job, &command, isolation, &cancelled)
    }

    /// Builds the points that `command`, the one of `job`, measures, on the reserved processors if there are any.
    fn build(
        &self,
        job: &Job,
        command: &Command,
        isolation: Isolation,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let bot = self.bot;
        let config = &bot.workspace.config;
        let number = job.number;
        let found = self.find_pull_request(number)?;
        let Preparation::Ready(prepared) = self.prepare(&found, job, isolation)? else {
            return Ok(());
        };
        let Some(arguments) = job::build_arguments(command, config, prepared.patches) else {
            return Ok(());
        };
        progress::note(&format!("job {}: building ahead", job.id));
        let on_line = progress_writer(&bot.state.prebuild, format!("pull request {number}: "));
        job::run(
            &bot.tool,
            &prepared.environment,
            &arguments,
            reserved_cpus(&config.bot),
            cancelled,
            on_line,
        )?;
        progress::note(&format!("job {}: built ahead", job.id));
        Ok(())
    }
}
