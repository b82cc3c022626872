//! Builds of the job that is measured next, while another one is measured.
//!
//! Whoever compiles beside a measurement changes it: caches, memory and, on one chip, clock rates are shared. So
//! builds run meanwhile only on processors that the configuration sets apart (`ahead_cpus`), on which then nothing
//! is measured. Without, they run when nothing is measured: while results are posted, or commits fetched; and so
//! does what comes before a build.

use std::collections::BTreeSet;

use super::command::Command;
use super::job::{self, Guard};
use super::prepare::Brought;
use super::serve::now;
use super::worker::{Bot, GLANCE, guarded, teller};
use perfquilt_forge::Client;
use perfquilt_machine::workload::allowed_cpus;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_store::queue::{Job, JobState, Queue};
use perfquilt_system::process;

/// The processors that jobs are measured on; all when there are none.
pub(super) fn measured(bot: &perfquilt_config::Bot) -> Vec<usize> {
    if bot.ahead_cpus.is_empty() {
        Vec::new()
    } else {
        let mut cpus = allowed_cpus();
        cpus.retain(|cpu| !bot.ahead_cpus.contains(cpu));
        cpus
    }
}

/// Checks that processors remain to measure on, and that those to build on exist.
///
/// # Errors
/// [`Kind::Usage`].
pub fn check(bot: &perfquilt_config::Bot) -> Result<()> {
    let cpus = allowed_cpus();
    let unknown = bot.ahead_cpus.iter().find(|cpu| !cpus.contains(cpu));
    let why = match unknown {
        Some(cpu) => format!("there is no processor {cpu}"),
        None if !bot.ahead_cpus.is_empty() && measured(bot).is_empty() => {
            "no processor is left to measure on".to_owned()
        }
        None => return Ok(()),
    };
    Err(Error::usage(why)
        .at(perfquilt_config::CONFIG_FILE, None)
        .hint(format!(
            "`ahead_cpus` of [bot] are some of {cpus:?}, not all"
        )))
}

/// Builds ahead until a signal asks to stop.
pub(super) fn build(
    bot: &Bot,
    queue: &Queue,
    client: &Client,
    progress: &dyn Progress,
) -> Result<()> {
    // What was built, or cannot be.
    let mut seen: BTreeSet<i64> = BTreeSet::new();
    while !process::interrupted() {
        let (open, _) = queue.list(0, now())?;
        let busy = open.iter().any(|job| job.state == JobState::Running);
        // A job that is held comes again once it is approved.
        let held = open.iter().filter(|job| job.state == JobState::Held);
        held.for_each(|job| {
            seen.remove(&job.id);
        });
        let next = open
            .into_iter()
            .find(|job| job.state == JobState::Waiting && !seen.contains(&job.id));
        let (true, Some(job)) = (busy, next) else {
            std::thread::sleep(GLANCE);
            continue;
        };
        seen.insert(job.id);
        match guarded(|| one(bot, queue, client, &job, progress)) {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Interrupted => break,
            // The job's own turn tells.
            Err(error) => progress.note(&format!("job {} cannot be built ahead: {error}", job.id)),
        }
        if let Ok(mut ahead) = bot.state.ahead.lock() {
            ahead.clear();
        }
    }
    Ok(())
}

fn one(
    bot: &Bot,
    queue: &Queue,
    client: &Client,
    job: &Job,
    progress: &dyn Progress,
) -> Result<()> {
    let config = &bot.workspace.config;
    let wish = Command::written(&job.job.command);
    let Some(wish) = wish.filter(|wish| job::building(wish, config, 0).is_some()) else {
        return Ok(());
    };
    let Ok(guard) = Guard::of(config, &bot.sandbox, job.job.trusted) else {
        return Ok(());
    };
    let unwanted = || {
        queue
            .state(job.id)
            .is_ok_and(|state| state == Some(JobState::Cancelled))
    };
    let Some(_workshop) = Bot::wait(&bot.state.workshop, &unwanted)? else {
        return Ok(());
    };
    let apart = !config.bot.ahead_cpus.is_empty();
    let _machine = if apart {
        None
    } else {
        match Bot::wait(&bot.state.machine, &unwanted)? {
            None => return Ok(()),
            held => held,
        }
    };
    // Its turn may have come meanwhile.
    if queue.state(job.id)? != Some(JobState::Waiting) {
        return Ok(());
    }
    let number = job.job.number;
    let found = bot.find(client, number)?;
    let brought = bot.prepare(queue, &found, job, guard, &unwanted, progress)?;
    let Brought::Series(prepared) = brought else {
        return Ok(());
    };
    // A series that cannot be read is not built, either.
    let count = prepared.patches.unwrap_or_default();
    let Some(arguments) = job::building(&wish, config, count) else {
        return Ok(());
    };
    progress.note(&format!("job {}: building ahead", job.id));
    let tell = teller(&bot.state.ahead, format!("pull request {number}: "));
    let cpus = &config.bot.ahead_cpus;
    job::run(
        &bot.tool,
        &prepared.ready,
        &arguments,
        cpus,
        &unwanted,
        tell,
    )?;
    progress.note(&format!("job {}: built ahead", job.id));
    Ok(())
}
