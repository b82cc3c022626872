//! How long blocks took, which forecasts are made of.

use serde::{Deserialize, Serialize};

use perfquilt_model::error::Result;

use super::{ExperimentId, Store, facts};

/// How long a block took, with the start of its servers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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

impl Store {
    /// Records how long a block of an experiment took.
    pub fn record_duration(&self, id: ExperimentId, duration: &BlockDuration) -> Result<()> {
        let (counted, direct, block) = (duration.counted, duration.direct, duration.block);
        let name = format!("{counted} {direct} {block:09}");
        self.database.put_fact(id, facts::DURATION, &name, duration)
    }

    /// Returns how long the blocks of an experiment took, ordered by their kind and number.
    pub fn durations(&self, id: ExperimentId) -> Result<Vec<BlockDuration>> {
        self.database.facts(id, facts::DURATION)
    }
}
