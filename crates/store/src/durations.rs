//! How long blocks took, which forecasts are made of.

use perfquilt_model::error::Result;
use rusqlite::params;

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

impl Store {
    /// Records how long a block of an experiment took.
    pub fn record_duration(&self, id: ExperimentId, duration: &BlockDuration) -> Result<()> {
        let values = params![
            id.0,
            duration.counted,
            duration.direct,
            duration.block,
            duration.servers,
            duration.workloads,
            duration.lanes,
            duration.slices,
            duration.seconds
        ];
        let sql = "INSERT OR REPLACE INTO durations VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        self.database.execute(sql, values).map(drop)
    }

    /// Returns how long the blocks of an experiment took; empty if an earlier version measured it.
    pub fn durations(&self, id: ExperimentId) -> Result<Vec<BlockDuration>> {
        self.database.rows(
            "SELECT counted, direct, block, servers, workloads, lanes, slices, seconds FROM durations
             WHERE experiment = ?1 ORDER BY counted, direct, block",
            params![id.0],
            |row| {
                Ok(BlockDuration {
                    counted: row.get(0)?,
                    direct: row.get(1)?,
                    block: row.get(2)?,
                    servers: row.get(3)?,
                    workloads: row.get(4)?,
                    lanes: row.get(5)?,
                    slices: row.get(6)?,
                    seconds: row.get(7)?,
                })
            },
        )
    }
}
