//! How long a block measures each workload.

/// The number of servers that share the configured seconds of a block. More servers take longer in proportion, so that
/// each is measured as long.
const SERVERS_IN_BLOCK_SECONDS: f64 = 6.0;

/// Returns how much longer a block of so many servers takes than the configured seconds.
pub(super) fn share(servers: usize) -> f64 {
    (servers as f64 / SERVERS_IN_BLOCK_SECONDS).max(1.0)
}
