//! Builds points as jobs of a cluster: the base once, then runs of neighbouring points side by side, so that what
//! they share is compiled once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{StoredTrees, builder_on};
use crate::experiment::{ask_cluster, cluster_scheduler};
use crate::task::{self, SCHEMA, TaskKind};
use perfquilt_build::{BuildItem, Builder, Built};
use perfquilt_cluster::exchange::publish;
use perfquilt_cluster::tasks::{ResultVerdict, result_of};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::progress;
use perfquilt_system::host::host_name;
use perfquilt_system::process::check_interrupted_soon;

/// Attempts at a point, each on another machine if possible, before it counts as one that cannot be built.
const ATTEMPTS: usize = 2;

/// A task to build points.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    kind: TaskKind,
    schema: u32,
    workspace: PathBuf,
    cache: PathBuf,
    recipe: String,
    /// The bare release, on which profiles are made.
    base: BuildItem,
    items: Vec<BuildItem>,
    /// Whether servers of earlier builds count.
    fresh: bool,
    /// The coordinator's compilers and linkers, which the machine's must equal.
    toolchain: Vec<String>,
}

/// The outcome of a task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskResult {
    schema: u32,
    machine: String,
    /// Why the machine built nothing.
    refused: Option<Failure>,
    /// Trees that could not be built.
    failed: BTreeMap<String, Failure>,
}

/// Builds points with one recipe.
pub(super) struct PointBuilder<'a> {
    ws: &'a Workspace,
    /// The scheduler of the cluster that builds; `None` for this machine.
    on: Option<&'a str>,
    pub(super) builder: Builder,
    recipe: &'a str,
    base: BuildItem,
}

impl<'a> PointBuilder<'a> {
    /// Builds with the recipe called `recipe` on this machine, or as jobs of the scheduler `on`; `base` is the bare release.
    pub(super) fn new(
        ws: &'a Workspace,
        recipe: &'a str,
        on: Option<&'a str>,
        base: BuildItem,
    ) -> Result<Self> {
        Ok(PointBuilder {
            builder: builder_on(ws, recipe, &base)?,
            ws,
            on,
            recipe,
            base,
        })
    }

    /// Builds one item. Returns its server, and the seconds that this took: 0 for a server of the cache.
    pub(super) fn build_one(&self, item: &BuildItem) -> Result<(Built, f64)> {
        let started = Instant::now();
        let mut results = self.build(std::slice::from_ref(item))?;
        let missing = || Err(Error::internal("nothing was built"));
        let built = results.next().unwrap_or_else(missing)?;
        let seconds = if built.cached {
            0.0
        } else {
            started.elapsed().as_secs_f64()
        };
        Ok((built, seconds))
    }

    /// Builds the `items`: as jobs all of them at once, on this machine each when its result is asked for.
    pub(super) fn build<'i>(
        &'i self,
        items: &'i [BuildItem],
    ) -> Result<impl Iterator<Item = Result<Built>> + 'i> {
        let known: Vec<bool> = items.iter().map(|item| self.is_cached(item)).collect();
        let jobs = match self.on {
            Some(scheduler) => Some(self.in_jobs(scheduler, items)?),
            None => None,
        };
        let source = StoredTrees::new(self.ws);
        let build = move |(item, cached): (&BuildItem, bool)| match &jobs {
            Some(failed) => {
                let built = self.built(item, failed)?;
                Ok(Built { cached, ..built })
            }
            None => self.builder.build(item, &source),
        };
        Ok(items.iter().zip(known).map(build))
    }

    fn is_cached(&self, item: &BuildItem) -> bool {
        self.builder.cached(&item.tree).is_some()
    }

    /// Builds the `items` that are not in the cache as jobs; returns the errors by tree. Everything else is in the cache then.
    fn in_jobs(&self, scheduler: &str, items: &[BuildItem]) -> Result<BTreeMap<String, Error>> {
        let mut seen = BTreeSet::new();
        let mut missing = items.to_vec();
        missing.retain(|item| !self.is_cached(item) && seen.insert(item.tree.clone()));
        let is_base = |item: &BuildItem| item.tree == self.base.tree;
        let (base, others): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_base);
        let mut failed = BTreeMap::new();
        if !base.is_empty() {
            failed.extend(self.side_by_side(scheduler, vec![base])?);
        }
        if failed.is_empty() && !others.is_empty() {
            let machines =
                usize::try_from(self.ws.config.cluster.machines.get()).unwrap_or(usize::MAX);
            let size = others.len().div_ceil(machines).max(1);
            let runs = others.chunks(size).map(<[BuildItem]>::to_vec).collect();
            failed.extend(self.side_by_side(scheduler, runs)?);
        } else {
            let why = "not built, as the release itself could not be";
            let unbuilt = others.into_iter();
            failed.extend(unbuilt.map(|item| (item.tree, Error::build_job(why))));
        }
        Ok(failed)
    }

    /// Builds each of the `runs` in a job of its own.
    fn side_by_side(
        &self,
        scheduler: &str,
        runs: Vec<Vec<BuildItem>>,
    ) -> Result<BTreeMap<String, Error>> {
        let task = |items: &Vec<BuildItem>| {
            task::to_bytes(&Task {
                kind: TaskKind::Build,
                schema: SCHEMA,
                workspace: self.ws.root().to_path_buf(),
                cache: self.ws.cache().to_path_buf(),
                recipe: self.recipe.to_owned(),
                base: self.base.clone(),
                items: items.clone(),
                fresh: self.ws.answers().is_fresh(),
                toolchain: self.builder.toolchain().to_vec(),
            })
        };
        let mut files = BTreeMap::new();
        for (number, items) in (0_u32..).zip(&runs) {
            files.insert(number, task(items)?);
        }
        // A new coordinator finds the jobs of a killed one by this name.
        let items = runs.iter().flatten();
        let mut keys: Vec<String> = items.map(|item| self.builder.key(&item.tree)).collect();
        let is_fresh = self.ws.answers().is_fresh();
        if is_fresh {
            // Results that an earlier job left do not count.
            let id = std::process::id();
            keys.push(format!("{} {id} {:?}", host_name(), SystemTime::now()));
        }
        let digest = hex::encode(Sha256::digest(keys.join(" ")));
        let name = format!("build-{}", &digest[..16]);
        let scheduler = cluster_scheduler(self.ws, scheduler)?;
        let points: usize = runs.iter().map(Vec::len).sum();
        let step = progress::begin(
            &format!("building {points} points in {} jobs", runs.len()),
            None,
        );
        let mut attempts: BTreeMap<u32, usize> = BTreeMap::new();
        let mut failures: BTreeMap<u32, TaskResult> = BTreeMap::new();
        let mut take = |number: u32, result: TaskResult| {
            // A result that a killed coordinator left may be about servers that were removed since.
            let mut items = runs.get(number as usize).into_iter().flatten();
            let has_all = is_fresh || items.all(|item| self.is_cached(item));
            if result.refused.is_none() && result.failed.is_empty() && has_all {
                failures.remove(&number);
                return ResultVerdict::Done;
            }
            let machine = result.machine.escape_debug();
            for failure in result.refused.iter().chain(result.failed.values()) {
                let error = Error::from(failure.clone().cut());
                progress::warn(error.warning(&machine));
            }
            failures.insert(number, result);
            let count = attempts.entry(number).or_default();
            *count += 1;
            if *count < ATTEMPTS {
                ResultVerdict::Retry
            } else {
                ResultVerdict::Done
            }
        };
        let tasks = (name.as_str(), &files);
        let lost = ask_cluster(self.ws, scheduler.as_ref(), tasks, &mut take)?;
        let mut failed = BTreeMap::new();
        for (number, items) in (0_u32..).zip(&runs) {
            let result = failures.remove(&number);
            if let Some(refused) = result.as_ref().and_then(|result| result.refused.clone()) {
                return Err(refused.cut().into());
            }
            let mut reasons = result.map(|result| result.failed).unwrap_or_default();
            for item in items {
                let reason = reasons
                    .remove(&item.tree)
                    .map(|failure| failure.cut().into());
                let was_lost = lost.contains(&number) && !self.is_cached(item);
                let is_lost = was_lost.then(|| {
                    Error::build_job(format!("the job that builds {} is lost", item.label))
                });
                match reason.or(is_lost) {
                    Some(error) => drop(failed.insert(item.tree.clone(), error)),
                    None => self.builder.add_built(&item.tree),
                }
            }
        }
        step.finish(&format!(
            "built {} of {points} points in {} jobs",
            points - failed.len(),
            runs.len()
        ));
        Ok(failed)
    }

    /// Returns the server of `item` after jobs that had the errors `failed`.
    fn built(&self, item: &BuildItem, failed: &BTreeMap<String, Error>) -> Result<Built> {
        match failed.get(&item.tree) {
            Some(error) => Err(error.clone()),
            None => self.builder.cached(&item.tree).ok_or_else(|| {
                Error::build_job(format!("a job has built {}, but it is not in the cache", item.label))
                    .hint("the machines of a cluster and this one must share the cache; `perfquilt doctor --on SCHEDULER` checks it")
            }),
        }
    }
}

/// Builds the points of the task in the file `path` on this machine, called `machine`, and publishes what became of
/// them.
///
/// # Errors
/// [`Kind::Usage`] when it is no such task; [`Kind::Interrupted`], which publishes nothing;
/// [`Kind::Internal`] when the result cannot be written.
pub fn build_task(path: &Path, machine: &str) -> Result<()> {
    let task: Task = task::read(path)?;
    let mut result = TaskResult {
        schema: SCHEMA,
        machine: machine.to_owned(),
        refused: None,
        failed: BTreeMap::new(),
    };
    match build_items(&task, machine) {
        Ok(failed) => result.failed = failed,
        Err(error) if error.kind() == Kind::Interrupted => return Err(error),
        Err(error) => result.refused = Some(Failure::new(&error, None)),
    }
    if result.refused.is_some() || !result.failed.is_empty() {
        check_interrupted_soon()?;
    }
    publish(&result_of(path), &task::to_bytes(&result)?).map(|_| ())
}

/// Builds the points of `task`; returns the failures by tree.
fn build_items(task: &Task, machine: &str) -> Result<BTreeMap<String, Failure>> {
    let ws = Workspace::open_with_cache(&task.workspace, task.cache.clone())?;
    let user = rustix::process::getuid().as_raw();
    let scratch = ws.config.cluster.scratch(machine, user)?;
    let ws = ws.build_in(scratch).asking(task.fresh);
    let builder = builder_on(&ws, &task.recipe, &task.base)?;
    if builder.toolchain() != task.toolchain {
        let differs = |line: &&String| !task.toolchain.contains(line);
        let others: Vec<String> = builder
            .toolchain()
            .iter()
            .filter(differs)
            .cloned()
            .collect();
        return Err(
            Error::toolchain("this machine builds with other tools than the coordinator")
                .details(others)
                .hint("install the same compilers on all machines of the class, and on the coordinator"),
        );
    }
    let source = StoredTrees::new(&ws);
    let mut failed = BTreeMap::new();
    for item in &task.items {
        match builder.build(item, &source) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), Kind::Interrupted | Kind::Usage) => {
                return Err(error);
            }
            Err(error) => {
                failed.insert(item.tree.clone(), Failure::new(&error, Some(item.point)));
            }
        }
    }
    Ok(failed)
}
