//! How long blocks took, which forecasts are made of.

use perfquilt_model::error::Result;

use super::columns::record;
use super::{ExperimentId, Store};

/// How long a block took, with the start of its servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockDuration {
    /// Whether it counted; otherwise it timed.
    pub counted: bool,
    /// Whether it belongs to the end-to-end check.
    pub direct: bool,
    /// The block's number.
    pub block: u32,
    /// Servers of the block.
    pub servers: u32,
    /// Workloads measured on them.
    pub workloads: u32,
    /// Lanes that measured side by side.
    pub lanes: u32,
    /// Seconds that the settings give to its slices, all workloads together; 0 for a counted block.
    pub slices: f64,
    /// Seconds that it took.
    pub seconds: f64,
}

record!(BlockDuration: counted, direct, block, servers, workloads, lanes, slices, seconds);

impl Store {
    /// Records how long a block of an experiment took.
    pub fn record_duration(&self, id: ExperimentId, duration: &BlockDuration) -> Result<()> {
        let into = "INSERT OR REPLACE INTO durations";
        self.database
            .write(into, &[("experiment", &id.0)], duration)
    }

    /// Returns how long the blocks of an experiment took; empty if an earlier version measured it.
    pub fn durations(&self, id: ExperimentId) -> Result<Vec<BlockDuration>> {
        self.database.records(
            "FROM durations WHERE experiment = ?1 ORDER BY counted, direct, block",
            [id.0],
        )
    }
}
