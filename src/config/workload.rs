//! `bench-config/workloads/NAME.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What the server is asked to do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The name: the file's name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Which client runs it.
    pub kind: WorkloadKind,
    /// Patches (numbers or names' prefixes) this workload is meant to exercise; only for people.
    #[serde(default)]
    pub exercises: Vec<String>,
    /// `[sysbench]`, for [`WorkloadKind::Sysbench`].
    pub sysbench: Option<SysbenchWorkload>,
    /// `[command]`, for [`WorkloadKind::Command`].
    pub command: Option<CommandWorkload>,
}

/// Which client runs a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// A sysbench Lua script, all points interleaved inside one sysbench process.
    Sysbench,
    /// A command a slice.
    Command,
}

/// `[sysbench]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SysbenchWorkload {
    /// A script of sysbench's own (`oltp_read_only`) or, ending in `.lua`, of
    /// `bench-config/sysbench/`.
    pub script: String,
    /// The script that prepares the data, named like `script`, which it is by default. It is given
    /// the options about tables alone, so that workloads which agree on those share their data.
    #[serde(default)]
    pub prepare: Option<String>,
    /// Options of the script, without the leading dashes.
    #[serde(default)]
    pub options: BTreeMap<String, toml::Value>,
    /// Client threads, each with its own connections.
    #[serde(default = "one")]
    pub threads: u32,
    /// Transactions in one slice (one thread); 0 lets the tool choose so that a slice lasts about a
    /// millisecond.
    #[serde(default)]
    pub slice_transactions: u32,
    /// Transactions counted by the counting meters in one restart; 0 lets the tool choose.
    #[serde(default)]
    pub count_transactions: u32,
}

fn one() -> u32 {
    1
}

/// `[command]`: placeholders as in the server's commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandWorkload {
    /// Fills the server once after each start.
    #[serde(default)]
    pub prepare: Option<Vec<String>>,
    /// One slice.
    pub run: Vec<String>,
    /// Transactions that one slice does.
    pub transactions: u64,
    /// A regular expression with one group over the client's output that captures transactions per
    /// second; without it the slice's wall-clock time counts.
    #[serde(default)]
    pub rate: Option<String>,
}
