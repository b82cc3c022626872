//! Who carries a block out: this machine, or a simulation with known answers.

use std::collections::BTreeMap;

use super::plan::Block;
use perfquilt_machine::meter::CountResult;
use perfquilt_machine::workload::BlockSlices;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::HostSample;
use perfquilt_model::point::Point;

/// Something a block brought.
#[derive(Debug, Clone)]
pub enum Event {
    /// A workload was timed on all servers that are left.
    Timed {
        /// The workload.
        workload: String,
        /// Its slices.
        measured: BlockSlices,
        /// What else happened meanwhile; `None` where there is no machine.
        moment: Option<HostSample>,
    },
    /// A workload was counted on all servers that are left.
    Counted {
        /// The workload.
        workload: String,
        /// What the counting meters read.
        readings: BTreeMap<Point, CountResult>,
    },
    /// A point's server could not be started or measured; the block goes on without it.
    Failed {
        /// The point.
        point: Point,
        /// Why.
        error: Error,
    },
}

/// Receives events; its error ends the block.
pub type Report<'a> = dyn FnMut(Event) -> Result<()> + 'a;

/// Carries blocks out. A block is a value with everything in it that differs between blocks, so that
/// it can be handed to whoever has the servers.
pub trait Executor {
    /// Measures `block`, reporting each workload as soon as it is done. `transactions` is how many a
    /// counted block counts, by workload.
    ///
    /// # Errors
    /// What keeps the block from going on: the release itself fails, the user stops it, the disk is
    /// full. Points that fail alone are events.
    fn run(
        &mut self,
        block: &Block,
        transactions: &BTreeMap<String, u64>,
        report: &mut Report<'_>,
    ) -> Result<()>;
}
