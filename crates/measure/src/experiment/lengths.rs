//! How long a block measures each workload.

use std::collections::BTreeMap;

/// The number of servers that share the configured seconds of a block. More servers take longer in proportion, so that
/// each is measured as long.
const SERVERS_IN_BLOCK_SECONDS: f64 = 6.0;

/// Returns how much longer a block of so many servers takes than the configured seconds.
pub(super) fn share(servers: usize) -> f64 {
    (servers as f64 / SERVERS_IN_BLOCK_SECONDS).max(1.0)
}

/// Separates a workload's identity from the seconds of its blocks.
pub(super) const LENGTH: &str = " seconds ";

/// Seconds of a block's measuring by workload, for up to six servers together.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockSeconds {
    configured: f64,
    /// Those that a pilot chose.
    chosen: BTreeMap<String, f64>,
}

impl BlockSeconds {
    /// Uses the configured seconds for every workload.
    pub fn fixed(configured: f64) -> Self {
        BlockSeconds {
            configured,
            chosen: BTreeMap::new(),
        }
    }

    /// Uses the seconds that a pilot chose, where it did.
    pub fn chosen(configured: f64, chosen: BTreeMap<String, f64>) -> Self {
        BlockSeconds { configured, chosen }
    }

    /// Returns the seconds of `workload`.
    pub fn of(&self, workload: &str) -> f64 {
        let chosen = self.chosen.get(workload).copied();
        chosen.unwrap_or(self.configured)
    }
}
