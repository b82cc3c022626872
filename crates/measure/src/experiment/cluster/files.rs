//! The files of a task: what a worker is to measure, and what it publishes for each block.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::experiment::executor::{BlockJob, Event, Place};
use crate::experiment::machine::Setup;
use crate::experiment::plan::{Block, BlockKind};
use crate::task::{self, SCHEMA, TaskKind};
use perfquilt_bench::workload::workload_identity;
use perfquilt_cluster::exchange::publish;
use perfquilt_config::Workload;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::point::Point;
use perfquilt_system::files::read_untrusted;

/// The longest name of a machine, in bytes.
const LONGEST_NAME: usize = 255;
/// The largest file of a task or of a block, in bytes.
const LARGEST: u64 = 256 << 20;

/// The task of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::experiment) struct BlockTask {
    pub kind: TaskKind,
    pub schema: u32,
    /// The experiment's key.
    pub experiment: String,
    pub workspace: PathBuf,
    pub cache: PathBuf,
    pub preset: String,
    /// The identities of the workloads, which the worker's must equal.
    pub workloads: BTreeMap<String, String>,
    #[serde(flatten)]
    pub setup: Setup,
    pub blocks: Vec<BlockJob>,
    /// The folder for results.
    pub results: PathBuf,
}

impl BlockTask {
    /// Returns a task without blocks of the experiment with this key, whose blocks `setup` measures.
    pub(in crate::experiment) fn empty(
        ws: &Workspace,
        (experiment, preset): (&str, &str),
        workloads: &[Workload],
        setup: Setup,
    ) -> Result<Self> {
        let workloads = workloads.iter().map(|workload| {
            let identity = workload_identity(ws, workload)?;
            Ok((workload.name.clone(), identity))
        });
        Ok(BlockTask {
            kind: TaskKind::Blocks,
            schema: SCHEMA,
            experiment: experiment.to_owned(),
            workspace: ws.root().to_path_buf(),
            cache: ws.cache().to_path_buf(),
            preset: preset.to_owned(),
            workloads: workloads.collect::<Result<_>>()?,
            setup,
            blocks: Vec::new(),
            results: PathBuf::new(),
        })
    }

    /// Returns the path of a block's result in the folder of results.
    pub(super) fn result_path(&self, block: &Block) -> PathBuf {
        let kind = match block.kind {
            BlockKind::Counted => "counted",
            BlockKind::EndToEnd => "direct",
            BlockKind::Timed => "block",
        };
        self.results.join(format!("{kind}-{}.json", block.number))
    }

    /// Publishes what a lane of `machine` found of `block`, unless another one has.
    pub(super) fn publish(
        &self,
        block: &Block,
        (machine, lane): (&str, u32),
        events: Vec<Event>,
        error: Option<&Error>,
    ) -> Result<()> {
        let file = BlockFile {
            schema: SCHEMA,
            experiment: self.experiment.clone(),
            block: block.clone(),
            machine: machine.to_owned(),
            lane,
            events,
            error: error.map(|error| Failure::new(error, None)),
        };
        publish(&self.result_path(block), &task::to_bytes(&file)?).map(drop)
    }
}

/// The result of one block.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockFile {
    schema: u32,
    experiment: String,
    /// The measurements.
    block: Block,
    /// The machine that measured it.
    pub(super) machine: String,
    /// The lane of that machine.
    lane: u32,
    /// Without places.
    events: Vec<Event>,
    /// Why the block ended before its end.
    pub(super) error: Option<Failure>,
}

impl BlockFile {
    /// Returns the workloads that failed, with the reasons.
    pub(super) fn failed_workloads(&self) -> impl Iterator<Item = (&str, &Error)> {
        self.events.iter().filter_map(|event| match event {
            Event::WorkloadFailed { workload, error } => Some((workload.as_str(), error)),
            _ => None,
        })
    }

    /// Reads the result of `block`; `None` if there is none yet.
    ///
    /// The file is not trusted: code of the measured patches ran on the machine that wrote it.
    pub(super) fn read(path: &Path, experiment: &str, block: &Block) -> Result<Option<Self>> {
        let Some(bytes) = read_untrusted(path, LARGEST)? else {
            return Ok(None);
        };
        let wrong =
            |why: String| Error::task(format!("not this block's result: {why}")).at(path, None);
        let file: BlockFile =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if file.schema != SCHEMA {
            return Err(wrong(format!(
                "its schema is {}, not {SCHEMA}",
                file.schema
            )));
        }
        if file.experiment != experiment || file.block != *block {
            return Err(wrong("it is of another experiment or block".to_owned()));
        }
        // Each text of an untrusted author ends up on a terminal.
        let is_name = |c: char| c.is_ascii_graphic();
        if file.machine.is_empty()
            || file.machine.len() > LONGEST_NAME
            || !file.machine.chars().all(is_name)
        {
            return Err(wrong("it names no machine".to_owned()));
        }
        Ok(Some(BlockFile {
            error: file.error.map(Failure::cut),
            ..file
        }))
    }

    /// Returns the events, checked against `block`.
    pub(super) fn into_events(self, block: &Block) -> Result<Vec<Event>> {
        let wrong = |why: String| {
            Error::task(format!(
                "a result of block {} is damaged: {why}",
                block.number
            ))
        };
        let place = Event::Placed(Place {
            machine: Some(self.machine),
            lane: Some(self.lane),
        });
        let checked = self.events.into_iter().map(|event| {
            check(&event, block).map_err(wrong)?;
            Ok(event)
        });
        std::iter::once(Ok(place)).chain(checked).collect()
    }
}

/// Refuses workloads and points that `block` does not measure, and more values of a point than its servers give.
fn check(event: &Event, block: &Block) -> std::result::Result<(), String> {
    let workload = |name: &String| {
        let known = block.workloads.contains(name);
        let fault = || format!("the block has no workload {name:?}");
        known.then_some(()).ok_or_else(fault)
    };
    let point = |point: Point| {
        let known = block.points.contains(&point);
        known
            .then_some(())
            .ok_or_else(|| format!("the block has no point {point}"))
    };
    match event {
        Event::Timed {
            workload: name,
            measured,
            ..
        } => {
            workload(name)?;
            let lists = [&measured.time, &measured.cpu].into_iter();
            let lists = lists
                .chain(measured.operations.values())
                .chain(measured.usage.values());
            for list in lists {
                let mut counts: BTreeMap<Point, u32> = BTreeMap::new();
                for slices in list {
                    point(slices.point)?;
                    if slices.transactions_per_slice == 0 {
                        return Err("a slice without transactions".to_owned());
                    }
                    let count = counts.entry(slices.point).or_default();
                    *count += 1;
                    if *count > block.copies.max(1) {
                        return Err(format!(
                            "the block has no {count} values of point {}",
                            slices.point
                        ));
                    }
                }
            }
            Ok(())
        }
        Event::Counted {
            workload: name,
            readings,
        } => {
            workload(name)?;
            readings.keys().copied().try_for_each(point)
        }
        Event::Failed { point: failed, .. } => point(*failed),
        Event::WorkloadFailed { workload: name, .. } => workload(name),
        Event::Placed(_) => Ok(()),
    }
}
