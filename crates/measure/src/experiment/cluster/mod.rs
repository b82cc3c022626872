//! The executor for a cluster: tasks of blocks become jobs, each of which measures its task on one machine.
//!
//! A task consists of the blocks that follow each other in a group of the plan, so that blocks that share layouts are
//! measured by the same machine. The coordinator's lanes wait for results; one of them at a time asks the scheduler.

mod execution;
mod facts;
mod files;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::executor::{BlockJob, Event, Executor, Lane, Report};
use super::plan::{Block, BlockKind};
use crate::task::{self, SCHEMA};
use files::BlockFile;
use perfquilt_cluster::dispatch::Dispatch;
use perfquilt_cluster::doctor;
use perfquilt_cluster::scheduler::{self, JobArray, Listing, Scheduler};
use perfquilt_cluster::tasks::{self, ResultVerdict};
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_system::files::write_file;
use perfquilt_system::process::check_interrupted;
use perfquilt_system::threads::lock;

pub use execution::answer_execution;
pub(super) use execution::executes;
pub use facts::answer as answer_facts;
pub(super) use facts::facts;
pub(super) use files::BlockTask;
pub use worker::measure_blocks;

/// Blocks of a task: two layouts, each run twice.
pub(super) const TASK_BLOCKS: u32 = 4;
/// How long nothing is asked for before what was asked for is submitted.
const SETTLED: Duration = Duration::from_millis(300);
/// Time between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// Time between two reports of the tasks' states.
const TELL: Duration = Duration::from_secs(5);
/// How many machines a report names.
const MOST_NAMED: usize = 4;
/// Machines that must agree before a point is left out, or a fault is the experiment's.
const AGREEING_MACHINES: usize = 2;
/// Length of the part of an experiment's key in the names of its jobs.
const KEY_LENGTH: usize = 16;

/// Returns the number of the group of the plan that a block is in, with its kind: the blocks of a group are measured by one
/// machine, as far as they are asked for together.
fn group_of(block: &Block) -> BlockKey {
    (block.kind, block.number / TASK_BLOCKS)
}

/// Returns how many blocks of a group must be asked for before it is submitted while others are being measured: blocks
/// that share layouts must not be measured by two machines.
fn whole_group(block: &Block) -> usize {
    match block.kind {
        BlockKind::Counted => 1,
        BlockKind::EndToEnd => 2,
        BlockKind::Timed => TASK_BLOCKS as usize,
    }
}

/// Returns the tasks that `blocks` form, by number.
///
/// A task of timed blocks has the number of its group, by which a later coordinator finds the job of an earlier one, unless that
/// is among `used`; any other task that of its first block.
fn tasks_of(mut blocks: Vec<BlockJob>, used: &mut BTreeSet<u32>) -> BTreeMap<u32, Vec<BlockJob>> {
    blocks.sort_by_key(|job| key_of(&job.block));
    let mut groups: BTreeMap<BlockKey, Vec<BlockJob>> = BTreeMap::new();
    for job in blocks {
        groups.entry(group_of(&job.block)).or_default().push(job);
    }
    let mut tasks = BTreeMap::new();
    for ((kind, group), blocks) in groups {
        let first = blocks.first().map_or(0, |job| job.block.number);
        let task = match kind {
            BlockKind::Timed if used.insert(group) => 3 * group * TASK_BLOCKS,
            BlockKind::Timed => 3 * first,
            BlockKind::EndToEnd => 3 * first + 1,
            BlockKind::Counted => 3 * first + 2,
        };
        tasks.insert(task, blocks);
    }
    tasks
}

/// A block's kind and number.
type BlockKey = (BlockKind, u32);

fn key_of(block: &Block) -> BlockKey {
    (block.kind, block.number)
}

/// The machines that reported something.
type Reports<K> = BTreeMap<K, BTreeSet<String>>;

/// The events that lanes wait for.
#[derive(Default)]
struct Waiting {
    /// Requested blocks that are in no task yet.
    pending: Vec<BlockJob>,
    /// When the last one was asked for.
    asked: Option<Instant>,
    /// The groups of timed blocks that were submitted.
    groups: BTreeSet<u32>,
    /// The blocks of submitted tasks that have no result yet.
    tasks: BTreeMap<u32, Vec<Block>>,
    /// Results that no lane has taken yet; `None` for a block that was lost.
    results: BTreeMap<BlockKey, Option<BlockFile>>,
    /// Whether a lane is asking the scheduler.
    asking: bool,
    /// When the scheduler was asked last.
    looked: Option<Instant>,
    /// The machines on which a point's server failed.
    failures: Reports<Point>,
    /// The machines on which a workload failed.
    failed_workloads: Reports<String>,
    /// The tasks of which a block failed as a whole: on which machines, and how.
    faults: BTreeMap<u32, BTreeMap<String, Failure>>,
}

/// Returns the scheduler called `name` with the settings of the workspace.
pub(crate) fn scheduler(ws: &Workspace, name: &str) -> Result<Box<dyn Scheduler>> {
    let scheduler = configured(ws, name)?;
    match scheduler.list(&["perfquilt".to_owned()]) {
        Listing::Known(_) => Ok(scheduler),
        Listing::Unknown(reason) => {
            let fault = format!("the cluster of `--on {name}` does not answer: {reason}");
            Err(Error::cluster_files(fault)
                .hint(format!("`perfquilt doctor --on {name}` checks it")))
        }
    }
}

/// Returns the scheduler called `name`, without asking whether its cluster answers.
pub(super) fn configured(ws: &Workspace, name: &str) -> Result<Box<dyn Scheduler>> {
    doctor::results(&ws.results())?;
    let schedulers = &ws.config.cluster.schedulers;
    let section = schedulers.get(name).cloned();
    let is_missing = section.is_none();
    scheduler::scheduler(name, &section.unwrap_or_default()).map_err(|error| {
        if is_missing && error.kind() == Kind::Usage && error.hint_text().is_none() {
            let fault = format!("scheduler `{name}` needs a section [cluster.{name}]");
            Error::task(fault).at(CONFIG_FILE, None)
        } else {
            error
        }
    })
}

/// Returns jobs without tasks, called `name`, whose files are in a folder of the same name.
fn jobs(ws: &Workspace, name: &str) -> Result<JobArray> {
    let config = &ws.config.cluster;
    let folder = ws.root().join(&config.folder).join(name);
    std::fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, &error))?;
    let program = match &config.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()
            .map_err(|error| Error::system_refused(format!("cannot find this program: {error}")))?,
    };
    Ok(JobArray {
        name: format!("perfquilt-{name}"),
        tasks: Vec::new(),
        class: config.class.clone(),
        folder,
        program,
        minutes: config.minutes.get(),
        not_on: Vec::new(),
    })
}

/// Returns a short name for work that `text` identifies.
fn digest_of(text: impl AsRef<[u8]>) -> String {
    hex::encode(Sha256::digest(text))[..KEY_LENGTH].to_owned()
}

/// Runs `tasks` in jobs called `name`, and passes each answer to `take`, which may request a retry. Returns the tasks that are
/// lost.
pub(crate) fn ask<T: DeserializeOwned>(
    ws: &Workspace,
    scheduler: &dyn Scheduler,
    (name, tasks): (&str, &BTreeMap<u32, Vec<u8>>),
    take: &mut dyn FnMut(u32, T) -> ResultVerdict,
) -> Result<BTreeSet<u32>> {
    let array = jobs(ws, name)?;
    let folder = array.folder.clone();
    let lost = tasks::run(scheduler, array, tasks, &mut |number, bytes| {
        let answer: T = serde_json::from_slice(bytes)
            .map_err(|error| Error::task(format!("a machine's answer is damaged: {error}")))?;
        Ok(take(number, answer))
    });
    // A folder that cannot be removed disturbs nobody.
    let _ = std::fs::remove_dir_all(&folder);
    lost
}

/// Describes the machines of a scheduler for the record of an experiment.
pub(super) fn describe(ws: &Workspace, scheduler: &str) -> String {
    match ws.config.cluster.class.as_str() {
        "" => scheduler.to_owned(),
        class => format!("{scheduler}, class {class}"),
    }
}

/// Returns the number of blocks of a wave: a task for each machine.
pub(super) fn wave(ws: &Workspace) -> NonZeroU32 {
    let machines = ws.config.cluster.machines;
    machines.saturating_mul(NonZeroU32::new(TASK_BLOCKS).unwrap_or(NonZeroU32::MIN))
}

/// A cluster as an executor.
pub struct Cluster<'a> {
    /// A task without blocks.
    template: BlockTask,
    /// Blocks of a wave.
    wave: u32,
    /// The number of machines that measure at once.
    machines: usize,
    dispatch: Mutex<Dispatch<'a>>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// The last report of the tasks' states, and its time.
    told: Mutex<Option<(String, Instant)>>,
}

impl<'a> Cluster<'a> {
    /// Prepares the folder of exchange for the tasks of the experiment of `template`, whose waves have `wave` blocks.
    pub(super) fn new(
        ws: &Workspace,
        scheduler: &'a dyn Scheduler,
        mut template: BlockTask,
        wave: u32,
    ) -> Result<Self> {
        let short: String = template.experiment.chars().take(KEY_LENGTH).collect();
        let array = jobs(ws, &short)?;
        template.results.clone_from(&array.folder);
        Ok(Cluster {
            template,
            wave,
            machines: usize::try_from(ws.config.cluster.machines.get()).unwrap_or(usize::MAX),
            dispatch: Mutex::new(Dispatch::new(scheduler, array)),
            waiting: Mutex::default(),
            changed: Condvar::new(),
            told: Mutex::default(),
        })
    }

    /// Reads the result of a block, if there is one. A file that is not its result is removed, so that another attempt
    /// can publish a better one.
    fn read(&self, block: &Block) -> Option<BlockFile> {
        let path = self.template.result_path(block);
        match BlockFile::read(&path, &self.template.experiment, block) {
            Ok(found) => found,
            Err(error) => {
                progress::warn(error.into());
                remove(&path);
                None
            }
        }
    }

    /// Writes the files of the tasks that `blocks` form, and adds them to the dispatch.
    fn submit(&self, blocks: Vec<BlockJob>) -> Result<BTreeMap<u32, Vec<Block>>> {
        let mut submitted = BTreeMap::new();
        let tasks = tasks_of(blocks, &mut lock(&self.waiting).groups);
        let mut dispatch = lock(&self.dispatch);
        for (number, blocks) in tasks {
            let asked: Vec<Block> = blocks.iter().map(|job| job.block.clone()).collect();
            let path = dispatch.task_file(number);
            // A job of an earlier coordinator may be measuring the task, and more of it.
            let there = task::read(&path).is_ok_and(|task: BlockTask| {
                task.schema == SCHEMA && blocks.iter().all(|job| task.blocks.contains(job))
            });
            if !there {
                let task = BlockTask {
                    blocks,
                    ..self.template.clone()
                };
                write_file(&path, &task::to_bytes(&task)?)?;
            }
            dispatch.add(number);
            submitted.insert(number, asked);
        }
        Ok(submitted)
    }

    /// Takes the requested blocks, once no further ones are requested. While tasks are being measured, whose ends have
    /// further blocks asked for, groups wait until they are whole.
    fn settled(&self) -> Vec<BlockJob> {
        let mut waiting = lock(&self.waiting);
        if waiting.asked.is_none_or(|asked| asked.elapsed() < SETTLED) {
            return Vec::new();
        }
        let pending = std::mem::take(&mut waiting.pending);
        if waiting.tasks.is_empty() {
            waiting.asked = None;
            return pending;
        }
        let mut sizes: BTreeMap<BlockKey, usize> = BTreeMap::new();
        for job in &pending {
            *sizes.entry(group_of(&job.block)).or_default() += 1;
        }
        let is_whole = |job: &BlockJob| sizes[&group_of(&job.block)] >= whole_group(&job.block);
        let (whole, rest): (Vec<_>, Vec<_>) = pending.into_iter().partition(is_whole);
        waiting.asked = (!rest.is_empty()).then(Instant::now);
        waiting.pending = rest;
        whole
    }

    /// Submits the requested blocks, reads the results that are there, and asks the scheduler about the others.
    fn look(&self) -> Result<()> {
        let mut pending = self.settled();
        // An earlier coordinator's jobs may have measured them. Where one failed, that coordinator has stopped: what was wrong may
        // be mended.
        pending.retain(|asked| match self.read(&asked.block) {
            Some(file) if file.error.is_none() => {
                let key = key_of(&asked.block);
                lock(&self.waiting).results.insert(key, Some(file));
                false
            }
            Some(_) => {
                remove(&self.template.result_path(&asked.block));
                true
            }
            None => true,
        });
        let submitted = self.submit(pending)?;
        let open = {
            let mut waiting = lock(&self.waiting);
            waiting.tasks.extend(submitted);
            waiting.tasks.clone()
        };
        for (task, blocks) in open {
            for block in blocks {
                if let Some(file) = self.read(&block) {
                    self.receive(task, &block, file)?;
                }
            }
        }
        let warnings = lock(&self.dispatch).poll()?.into_iter();
        warnings.for_each(progress::warn);
        let lost = lock(&self.dispatch).lost.clone();
        let mut waiting = lock(&self.waiting);
        for task in lost {
            for block in waiting.tasks.remove(&task).into_iter().flatten() {
                waiting.results.insert(key_of(&block), None);
            }
        }
        drop(waiting);
        self.tell_state();
        Ok(())
    }

    /// Tells what became of the tasks, if that has changed.
    fn tell_state(&self) {
        let dispatch = lock(&self.dispatch);
        let counts = dispatch.counts();
        let machines: Vec<&str> = dispatch.machines().into_iter().collect();
        let running = match (counts.running, machines.is_empty()) {
            (running, true) => format!("{running} running"),
            (running, false) => format!("{running} running on {}", list_of(&machines)),
        };
        let lost = match counts.lost {
            0 => String::new(),
            lost => format!(", {lost} lost"),
        };
        let text = format!(
            "tasks: {} done, {running}, {} queued{lost}",
            counts.done, counts.queued
        );
        drop(dispatch);
        let mut told = lock(&self.told);
        let is_new = told
            .as_ref()
            .is_none_or(|(before, when)| *before != text && when.elapsed() >= TELL);
        if is_new {
            progress::note(&text);
            *told = Some((text, Instant::now()));
        }
    }

    /// Takes the result of a block of `task`. A block that failed, as a whole or in a workload, is measured again on another
    /// machine: only when two machines agree is it the experiment's fault, or the workload's.
    fn receive(&self, task: u32, block: &Block, file: BlockFile) -> Result<()> {
        let mut waiting = lock(&self.waiting);
        if let Some(failure) = &file.error {
            let machine = file.machine.clone();
            remove(&self.template.result_path(block));
            let error = Error::from(failure.clone());
            progress::warn(error.warning(&machine));
            lock(&self.dispatch).retry(task);
            let faults = waiting.faults.entry(task).or_default();
            faults.insert(machine, failure.clone());
            if faults.len() >= AGREEING_MACHINES.min(self.machines) {
                let machines: Vec<&str> = faults.keys().map(String::as_str).collect();
                let fault = format!("{} (on {})", failure.message, machines.join(", "));
                let told = Failure {
                    message: fault,
                    place: None,
                    hint: None,
                    ..failure.clone()
                };
                return Err(told.into());
            }
            return Ok(());
        }
        if let Some((workload, error)) = self.unconfirmed(&mut waiting, &file) {
            let who = format!("{}: workload {workload}", &file.machine);
            progress::warn(error.warning(who));
            remove(&self.template.result_path(block));
            lock(&self.dispatch).retry(task);
            return Ok(());
        }
        waiting.results.insert(key_of(block), Some(file));
        let is_done = waiting.tasks.get_mut(&task).is_some_and(|blocks| {
            blocks.retain(|other| other.number != block.number);
            blocks.is_empty()
        });
        if is_done {
            waiting.tasks.remove(&task);
            waiting.faults.remove(&task);
            drop(waiting);
            lock(&self.dispatch).finish(task);
        }
        Ok(())
    }

    /// Returns a workload of a block's result that has failed on this machine alone so far.
    fn unconfirmed<'f>(
        &self,
        waiting: &mut Waiting,
        file: &'f BlockFile,
    ) -> Option<(&'f str, &'f Error)> {
        let mut failed: Vec<_> = file.failed_workloads().collect();
        failed.retain(|(workload, _)| {
            let reports = &mut waiting.failed_workloads;
            !self.agree(reports, (*workload).to_owned(), &file.machine)
        });
        failed.pop()
    }

    /// Adds a machine's report of `what`. Returns whether enough machines have reported it.
    fn agree<K: Ord>(&self, reports: &mut Reports<K>, what: K, machine: &str) -> bool {
        let machines = reports.entry(what).or_default();
        machines.insert(machine.to_owned());
        machines.len() >= AGREEING_MACHINES.min(self.machines)
    }

    /// Waits for the result of a block; `None` when it was lost.
    fn wait_for(&self, key: BlockKey) -> Result<Option<BlockFile>> {
        loop {
            let mut waiting = lock(&self.waiting);
            if let Some(result) = waiting.results.remove(&key) {
                return Ok(result);
            }
            check_interrupted()?;
            let is_due = waiting.looked.is_none_or(|looked| looked.elapsed() >= LOOK)
                || waiting
                    .asked
                    .is_some_and(|asked| asked.elapsed() >= SETTLED);
            if waiting.asking || !is_due {
                let waited = self.changed.wait_timeout(waiting, SETTLED);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            waiting.asking = true;
            drop(waiting);
            let looked = self.look();
            let mut waiting = lock(&self.waiting);
            waiting.asking = false;
            waiting.looked = Some(Instant::now());
            drop(waiting);
            self.changed.notify_all();
            looked?;
        }
    }
}

/// Returns `n1, n2, n3, n4 and 6 others`.
fn list_of(names: &[&str]) -> String {
    match names.len().checked_sub(MOST_NAMED) {
        None | Some(0) => names.join(", "),
        Some(1) => format!("{} and another one", names[..MOST_NAMED].join(", ")),
        Some(others) => format!("{} and {others} others", names[..MOST_NAMED].join(", ")),
    }
}

fn remove(path: &Path) {
    // One that cannot be removed is refused again at the next look.
    let _ = std::fs::remove_file(path);
}

impl Executor for Cluster<'_> {
    fn lanes(&self) -> u32 {
        self.wave
    }

    fn wave(&self) -> Option<u32> {
        Some(self.wave)
    }

    fn open(&self, _number: u32) -> Result<Box<dyn Lane + '_>> {
        Ok(Box::new(self))
    }

    /// Cancels the jobs that are left, and removes the folder of exchange if the experiment is `over`.
    fn close(&self, over: bool) {
        let dispatch = lock(&self.dispatch);
        if !dispatch.is_over()
            && let Err(error) = dispatch.cancel()
        {
            progress::warn(error.warning("jobs may be left in the queue"));
            return;
        }
        if over {
            // Another run overwrites or ignores the remaining files.
            let _ = std::fs::remove_dir_all(&self.template.results);
        }
    }
}

/// A lane of the coordinator: one block on its way through the cluster.
impl Lane for &Cluster<'_> {
    fn run(&mut self, job: &BlockJob, report: &mut Report<'_>) -> Result<()> {
        let block = &job.block;
        {
            let mut waiting = lock(&self.waiting);
            waiting.asked = Some(Instant::now());
            waiting.pending.push(job.clone());
        }
        let Some(file) = self.wait_for(key_of(block))? else {
            // A hole: further blocks make up for it.
            return Ok(());
        };
        let machine = file.machine.clone();
        for event in file.into_events(block)? {
            // A point whose server failed on one machine alone stays.
            if let Event::Failed { point, .. } = &event {
                let reports = &mut lock(&self.waiting).failures;
                if !self.agree(reports, *point, &machine) {
                    continue;
                }
            }
            report(event)?;
        }
        Ok(())
    }
}
