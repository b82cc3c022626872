//! The worker: measures a task on the machine it runs on, and publishes each block.

use std::path::Path;
use std::sync::Mutex;

use super::files::BlockTask;
use crate::experiment::executor::{BlockJob, Event, Executor, Lane};
use crate::experiment::identity::{Facts, harness};
use crate::experiment::machine::{Setup, ThisMachine};
use crate::experiment::servers::{Server, add_relinks};
use crate::task;
use perfquilt_bench::workload::workload_identity;
use perfquilt_build::is_intact;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{BUILD_RECORD, Lanes, Layouts, Workload};
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::caches;
use perfquilt_system::process::{check_interrupted, check_interrupted_soon};
use perfquilt_system::threads::{self, lock};

/// Measures the task of the file `path` and publishes its blocks, as those of `machine`. Blocks that another worker has
/// published are left out.
///
/// # Errors
/// [`Kind::Usage`] when the file is no task, or this machine's harness or workloads are not those of the coordinator; the errors
/// of measuring, which are published with the block as well.
pub fn measure_blocks(path: &Path, machine: &str) -> Result<()> {
    let task: BlockTask = task::read(path)?;
    let here = Here::open(&task).or_else(|error| tell(&task, machine, error))?;
    measure(&here.machine()?, &task, machine)
}

/// Returns `error`, which keeps this machine from measuring `task`; what is wrong with its servers is published in place of
/// the first block that is not, so that the coordinator tells it and asks another machine.
fn tell<T>(task: &BlockTask, machine: &str, error: Error) -> Result<T> {
    let missing = |job: &&BlockJob| !task.result_path(&job.block).exists();
    if error.kind() == Kind::Bench
        && let Some(job) = task.blocks.iter().find(missing)
    {
        task.publish(&job.block, (machine, 0), Vec::new(), Some(&error))?;
    }
    Err(error)
}

/// The workspace of a task on this machine, which measures as the task's coordinator expects.
pub(super) struct Here {
    ws: Workspace,
    workloads: Vec<Workload>,
    setup: Setup,
}

impl Here {
    /// Opens the workspace of `task`.
    pub(super) fn open(task: &BlockTask) -> Result<Self> {
        // A job has no home folder that would tell where the cache is.
        let ws = Workspace::open_with_cache(&task.workspace, task.cache.clone())?;
        let preset = ws.config.preset(&task.preset)?;
        let workloads: Vec<Workload> = task
            .workloads
            .keys()
            .map(|name| preset.workload(&ws.config, name))
            .collect::<Result<_>>()?;
        check_same(&ws, task, &workloads)?;
        let mut setup = task.setup.clone();
        for server in setup.servers.values() {
            // Another machine may be clearing the cache.
            caches::pin(&server.dir.join(BUILD_RECORD));
            if server.dir.starts_with(ws.cache()) {
                check_contents(server)?;
            }
        }
        if setup.layouts != Layouts::Off {
            add_relinks(&mut setup.servers, setup.layouts).map_err(Error::cluster)?;
        }
        Ok(Here {
            ws,
            workloads,
            setup,
        })
    }

    /// Prepares this machine for measuring the task.
    pub(super) fn machine<'h>(&'h self) -> Result<ThisMachine<'h>> {
        ThisMachine::new(&self.ws, &self.workloads, Lanes::Auto, self.setup.clone())
    }
}

/// Checks that a server in the cache is what the coordinator built.
fn check_contents(server: &Server) -> Result<()> {
    if is_intact(&server.dir) {
        return Ok(());
    }
    let shown = server.dir.display();
    let fault = format!("{}: the cached server ({shown}) is damaged", server.label);
    Err(Error::cluster(fault)
        .hint("check disk and memory of this machine; the next `perfquilt run` rebuilds it"))
}

/// Refuses a task whose values would not be comparable with those of other machines.
fn check_same(ws: &Workspace, task: &BlockTask, workloads: &[Workload]) -> Result<()> {
    let facts = Facts::here(!task.setup.count_meters.is_empty())?;
    let harness = harness(ws, &facts.counter, task.setup.layouts)?;
    let mut here = Comparable::new(&facts.machine, &harness, "", "");
    let mut there = Comparable::of(&task.setup.header);
    for workload in workloads {
        let part = Part::Workload(workload.name.clone());
        here = here.with(part, workload_identity(ws, workload)?);
    }
    for (name, digest) in &task.workloads {
        there = there.with(Part::Workload(name.clone()), digest);
    }
    let matters = |part: &Part| match part {
        Part::Machine(fact) => ["processor", "virtualisation"].contains(&fact.as_str()),
        part => matches!(part, Part::Harness | Part::Workload(_)),
    };
    let Some(difference) = there.only(matters).difference(&here.only(matters)) else {
        return Ok(());
    };
    let hint = match difference.part {
        Part::Machine(_) => "give each kind of machine a class of its own",
        Part::Workload(_) => "has the workspace changed since the job was submitted?",
        _ => "install the same version of perfquilt and its tools on all machines",
    };
    let fault = format!("this machine cannot measure for the coordinator: {difference}");
    Err(Error::task(fault).hint(hint))
}

/// Measures the blocks on all lanes.
fn measure(machine: &ThisMachine<'_>, task: &BlockTask, name: &str) -> Result<()> {
    // Blocks that repeat layouts come after those that have linked them, so that no lane waits for another's links.
    let (first, again): (Vec<_>, Vec<_>) = task.blocks.iter().partition(|job| job.block.again);
    let next = Mutex::new(first.into_iter().chain(again));
    let measured = threads::each(0..machine.lanes(), |lane| {
        let mut open = machine.open(lane)?;
        loop {
            check_interrupted()?;
            let Some(job) = lock(&next).next() else {
                return Ok(());
            };
            if !task.result_path(&job.block).exists() {
                measure_block(open.as_mut(), task, job, (name, lane))?;
            }
        }
    });
    measured.into_iter().collect()
}

/// Measures a block on an open lane and publishes it, as that of a lane of a machine.
fn measure_block(
    open: &mut dyn Lane,
    task: &BlockTask,
    job: &BlockJob,
    by: (&str, u32),
) -> Result<()> {
    let mut events: Vec<Event> = Vec::new();
    let outcome = open.run(job, &mut |event| {
        events.push(event);
        Ok(())
    });
    // The task of a block that is not published is submitted again, or the experiment goes on another day.
    let error = match outcome {
        Err(error) if error.kind() == Kind::Interrupted => return Err(error),
        outcome => outcome.err(),
    };
    let is_failure =
        |event: &Event| matches!(event, Event::Failed { .. } | Event::WorkloadFailed { .. });
    if error.is_some() || events.iter().any(is_failure) {
        check_interrupted_soon()?;
    }
    task.publish(&job.block, by, events, error.as_ref())?;
    error.map_or(Ok(()), Err)
}
