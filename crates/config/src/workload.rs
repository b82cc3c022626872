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
    /// `[sql_bench]`, for [`WorkloadKind::SqlBench`].
    pub sql_bench: Option<SqlBenchWorkload>,
    /// `[handler]`, for [`WorkloadKind::Handler`].
    pub handler: Option<HandlerWorkload>,
}

impl Workload {
    /// Client threads that work at the same time, which decide where its client and servers run.
    pub fn threads(&self) -> u32 {
        let told = match self.kind {
            WorkloadKind::Sysbench => self.sysbench.as_ref().map(|it| it.threads),
            WorkloadKind::Command => self.command.as_ref().map(|it| it.threads),
            WorkloadKind::Handler => self.handler.as_ref().map(|it| it.threads),
            WorkloadKind::SqlBench => None,
        };
        told.unwrap_or(1)
    }
}

/// Which client runs a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// A sysbench Lua script, all points interleaved inside one sysbench process.
    Sysbench,
    /// A command a slice.
    Command,
    /// A program of the release's own sql-bench a slice.
    SqlBench,
    /// `HANDLER … READ` by primary key, from this program's own client.
    Handler,
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
    /// Transactions of each thread in one slice; 0 lets the tool choose so that a slice lasts about 0.2 ms, or
    /// 2 ms with several threads.
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
    /// The folder that `run` starts in.
    #[serde(default)]
    pub directory: Option<String>,
    /// Transactions that one slice does.
    pub transactions: u64,
    /// Client threads or connections that work at the same time: with several, client and server have all
    /// processors.
    #[serde(default = "one")]
    pub threads: u32,
    /// A regular expression with one group over the client's output that captures transactions per
    /// second; without it the slice's wall-clock time counts.
    #[serde(default)]
    pub rate: Option<String>,
    /// A regular expression with one group over the client's output that captures the seconds of the
    /// slice, instead of `rate`.
    #[serde(default)]
    pub seconds: Option<String>,
    /// A regular expression with groups `name`, `seconds` and, optionally, `commands` over the client's
    /// output, a match an operation that the client times apart.
    #[serde(default)]
    pub operations: Option<String>,
    /// Whether slices before those of a block warm the server up; without, a block may have a single round.
    #[serde(default = "yes")]
    pub warm_up: bool,
    /// Seconds that one slice may take.
    #[serde(default = "ten_minutes")]
    pub limit_seconds: u64,
}

fn yes() -> bool {
    true
}

fn ten_minutes() -> u64 {
    600
}

/// `[handler]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlerWorkload {
    /// The table's engine.
    pub engine: String,
    /// How a read is asked for.
    pub form: HandlerForm,
    /// Rows of the table.
    #[serde(default = "ten_thousand")]
    pub rows: u32,
    /// Connections, each in a client thread of its own.
    #[serde(default = "one")]
    pub threads: u32,
}

/// How `HANDLER … READ` is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerForm {
    /// As text.
    Text,
    /// Prepared by SQL's `PREPARE`, and `EXECUTE` as text.
    Prepare,
    /// Prepared by the client, in the binary protocol.
    Binary,
}

fn ten_thousand() -> u32 {
    10_000
}

/// `[sql_bench]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlBenchWorkload {
    /// The program: `select` is `sql-bench/test-select` in the release's tree.
    pub program: String,
    /// The engine of its tables.
    #[serde(default = "myisam")]
    pub engine: String,
    /// Whether it does about a hundredth of its work.
    #[serde(default)]
    pub small: bool,
    /// Further options of the program, as it takes them.
    #[serde(default)]
    pub options: Vec<String>,
}

fn myisam() -> String {
    "MyISAM".to_owned()
}
