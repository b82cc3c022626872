//! Schedulers: queueing systems that run jobs on the machines of a cluster.
//!
//! A scheduler's answers are hints. Only published results say what was measured, so a scheduler that fails, hangs or
//! lists nothing leaves the state of jobs unknown.

mod command;
mod slurm;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use perfquilt_config::Section;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::Output;

pub use command::CommandScheduler;
pub use slurm::Slurm;

/// Maximum time of one call of a scheduler's programs. A controller that hangs answers none of them.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A job array. Each of its tasks is one job, which carries out the task of a file on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobArray {
    /// Its name, by which a coordinator finds its jobs again: no other array has the same.
    pub name: String,
    /// The numbers of its tasks.
    pub tasks: Vec<u32>,
    /// The class of machines that may run it; empty for any.
    pub class: String,
    /// The folder of its files, which all machines see.
    pub folder: PathBuf,
    /// The program on the machines, whose `worker FILE` measures a task.
    pub program: PathBuf,
    /// Minutes after which a job is ended.
    pub minutes: u32,
    /// Machines that are not to run it, as the scheduler calls them.
    pub not_on: Vec<String>,
}

impl JobArray {
    /// Returns the path of the file with a task's task.
    pub fn task_file(&self, task: u32) -> PathBuf {
        self.folder.join(format!("task-{task}.json"))
    }
}

/// The state of a job as its scheduler describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It waits for a machine.
    Queued,
    /// It waits for something that does not happen by itself, for this reason.
    Held(String),
    /// It runs on this machine, as the scheduler calls it.
    Running(String),
    /// It ended, successfully or not.
    Ended,
}

/// A scheduler's answer about job arrays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// The states by array and task, of those that the scheduler still knows.
    Known(BTreeMap<(String, u32), JobState>),
    /// The scheduler did not answer, for this reason.
    Unknown(String),
}

/// A queueing system.
pub trait Scheduler: Send + Sync {
    /// Submits an array.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the scheduler refuses it;
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when it is unknown whether it was accepted.
    fn submit(&self, array: &JobArray) -> Result<()>;

    /// Lists the jobs of the arrays called `names`.
    fn list(&self, names: &[String]) -> Listing;

    /// Returns the names of processes that submitting left in its process group, and which ended with it.
    fn cut_off(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// Cancels the jobs of the arrays called `names`.
    fn cancel(&self, names: &[String]) -> Result<()>;
}

/// Says how a command of a scheduler failed: `WHAT exited with 3: no quota`.
fn failure(what: &str, output: &Output) -> String {
    let exit = output.describe_exit();
    match output.tail(5).join("\n  ") {
        said if said.is_empty() => format!("{what} {exit}"),
        said => format!("{what} {exit}: {said}"),
    }
}

/// Creates a scheduler from its section of the configuration.
type MakeScheduler = fn(&Section) -> Result<Box<dyn Scheduler>>;

/// The schedulers by name.
const SCHEDULERS: [(&str, MakeScheduler); 2] = [
    ("slurm", |section| Ok(Box::new(Slurm::read(section)?))),
    ("command", |section| {
        Ok(Box::new(CommandScheduler::read(section)?))
    }),
];

/// Refuses a name that no scheduler has.
pub fn check_name(name: &str) -> Result<()> {
    known(name).map(drop)
}

fn known(name: &str) -> Result<MakeScheduler> {
    let known = SCHEDULERS.iter().find(|(known, _)| *known == name);
    known.map(|(_, make)| *make).ok_or_else(|| {
        let names = SCHEDULERS.map(|(name, _)| name).join(", ");
        Error::configuration(format!("there is no scheduler `{name}`"))
            .hint(format!("available: {names}"))
    })
}

/// Returns the scheduler called `name` with the settings in `section`.
pub fn scheduler(name: &str, section: &Section) -> Result<Box<dyn Scheduler>> {
    known(name)?(section)
}
