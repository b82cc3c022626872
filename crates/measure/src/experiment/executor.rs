//! The interface of executors: this machine, or a simulation with known effects.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::plan::Block;
use perfquilt_bench::meter::CountResult;
use perfquilt_bench::workload::BlockSlices;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::HostSample;
use perfquilt_model::point::Point;

/// A block to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockJob {
    /// The block. It contains everything that differs between blocks, so that any lane can measure it.
    pub block: Block,
    /// The number of transactions that a counted block counts, by workload.
    pub transactions: BTreeMap<String, u64>,
}

/// Where a block was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The machine; `None` for the one that runs the experiment.
    pub machine: Option<String>,
    /// The lane of that machine, from 0; `None` if it has only one.
    pub lane: Option<u32>,
}

/// A result of a block.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The block was measured elsewhere than on the executor's lane; comes before its results. A file of a block says that
    /// once.
    #[serde(skip)]
    Placed(Place),
    /// A workload was timed on all remaining servers.
    Timed {
        /// The workload.
        workload: String,
        /// Its slices.
        measured: BlockSlices,
        /// The activity of the host meanwhile; `None` where there is no machine.
        sample: Option<HostSample>,
    },
    /// A workload was counted on all remaining servers.
    Counted {
        /// The workload.
        workload: String,
        /// The readings of the counting meters.
        readings: BTreeMap<Point, CountResult>,
    },
    /// A point's server could not be started or measured; the block goes on without it.
    Failed {
        /// The point.
        point: Point,
        /// The reason.
        #[serde(serialize_with = "as_failure", deserialize_with = "from_failure")]
        error: Error,
    },
    /// A workload's client failed although the base's server ran; the block goes on without it.
    WorkloadFailed {
        /// The workload.
        workload: String,
        /// The reason.
        #[serde(serialize_with = "as_failure", deserialize_with = "from_failure")]
        error: Error,
    },
}

fn as_failure<S: Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
    Failure::new(error, None).serialize(serializer)
}

fn from_failure<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Error, D::Error> {
    Ok(Failure::deserialize(deserializer)?.cut().into())
}

/// Receives events; its error ends the block.
pub type Report<'a> = dyn FnMut(Event) -> Result<()> + 'a;

/// Measures blocks on one lane or several, side by side.
pub trait Executor: Sync {
    /// Returns the number of lanes, at least 1.
    fn lanes(&self) -> u32 {
        1
    }

    /// Returns the number of blocks of a wave, at least 1: the stopping rule looks at complete waves only, so that which
    /// blocks are back first decides nothing. `None` if it looks after each block.
    fn wave(&self) -> Option<u32> {
        None
    }

    /// Returns what the record of an experiment says of the machine beside its class; nothing where machines have their own.
    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Opens the lane `number`, from 0, on the thread that measures its blocks.
    fn open(&self, number: u32) -> Result<Box<dyn Lane + '_>>;

    /// Ends measuring; the experiment is `over` if nothing is left to measure.
    fn close(&self, _over: bool) {}
}

/// Measures one block at a time.
pub trait Lane {
    /// Measures the block of `job` and reports each workload as soon as it is done.
    ///
    /// # Errors
    /// Errors that end the block: the release itself fails, the user stops it, the disk is full. Failures of
    /// single points and workloads are events.
    fn run(&mut self, job: &BlockJob, report: &mut Report<'_>) -> Result<()>;
}
