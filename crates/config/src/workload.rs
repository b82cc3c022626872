//! Workloads: `bench-config/workloads/NAME.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A workload: the client and its settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The name: the file's name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// One-line description.
    pub description: String,
    /// The client that runs the workload.
    pub kind: WorkloadKind,
    /// Patches (numbers or prefixes of names) that this workload exercises; informational.
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
    /// Returns the number of concurrent client threads, which determines the processors of client and servers.
    pub fn threads(&self) -> u32 {
        let threads = match self.kind {
            WorkloadKind::Sysbench => self.sysbench.as_ref().map(|it| it.threads),
            WorkloadKind::Command => self.command.as_ref().map(|it| it.threads),
            WorkloadKind::Handler => self.handler.as_ref().map(|it| it.threads),
            WorkloadKind::SqlBench => None,
        };
        threads.unwrap_or(1)
    }
}

/// The client that runs a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// A sysbench Lua script, all points interleaved inside one sysbench process.
    Sysbench,
    /// One command per slice.
    Command,
    /// One program of the release's own sql-bench per slice.
    SqlBench,
    /// `HANDLER … READ` by primary key, from perfquilt's own client.
    Handler,
}

/// `[sysbench]`: settings of a sysbench workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SysbenchWorkload {
    /// A script of sysbench's own (`oltp_read_only`) or, ending in `.lua`, of
    /// `bench-config/sysbench/`.
    pub script: String,
    /// The script that prepares the data, in the same form as `script`, which is the default. It gets only
    /// the options about tables, so that workloads with the same table options share their data.
    #[serde(default)]
    pub prepare: Option<String>,
    /// Options of the script, without leading dashes.
    #[serde(default)]
    pub options: BTreeMap<String, toml::Value>,
    /// Number of client threads, each with its own connections.
    #[serde(default = "one")]
    pub threads: u32,
    /// Transactions of each thread in one slice. With 0, perfquilt chooses the number so that a slice lasts
    /// about 0.2 ms, or 2 ms with several threads.
    #[serde(default)]
    pub slice_transactions: u32,
    /// Transactions counted by the counting meters per restart; with 0, perfquilt chooses the number.
    #[serde(default)]
    pub count_transactions: u32,
}

fn one() -> u32 {
    1
}

/// `[command]`: settings of a command workload, with the placeholders of the server's commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandWorkload {
    /// Prepares the server's data once after each start.
    #[serde(default)]
    pub prepare: Option<Vec<String>>,
    /// Runs one slice.
    pub run: Vec<String>,
    /// The working directory of `run`.
    #[serde(default)]
    pub directory: Option<String>,
    /// Transactions per slice.
    pub transactions: u64,
    /// Number of concurrent client threads or connections. With several, client and server may use all
    /// processors.
    #[serde(default = "one")]
    pub threads: u32,
    /// A regular expression with one group over the client's output that captures transactions per
    /// second; by default the slice's wall-clock time counts.
    #[serde(default)]
    pub rate: Option<String>,
    /// A regular expression with one group over the client's output that captures the seconds of the
    /// slice, instead of `rate`.
    #[serde(default)]
    pub seconds: Option<String>,
    /// A regular expression with groups `name`, `seconds` and, optionally, `commands` over the client's
    /// output; each match is an operation that the client times separately.
    #[serde(default)]
    pub operations: Option<String>,
    /// Whether additional slices warm the server up before each block; if false, a block may have a single
    /// round.
    #[serde(default = "yes")]
    pub warm_up: bool,
    /// Timeout of a slice in seconds.
    #[serde(default = "ten_minutes")]
    pub limit_seconds: u64,
}

fn yes() -> bool {
    true
}

fn ten_minutes() -> u64 {
    600
}

/// `[handler]`: settings of a `HANDLER` workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlerWorkload {
    /// The table's engine.
    pub engine: String,
    /// How the client sends a read.
    pub form: HandlerForm,
    /// Number of rows in the table.
    #[serde(default = "ten_thousand")]
    pub rows: u32,
    /// Number of connections, each in its own client thread.
    #[serde(default = "one")]
    pub threads: u32,
}

/// How the client sends `HANDLER … READ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerForm {
    /// As text.
    Text,
    /// Prepared with SQL's `PREPARE` and executed with `EXECUTE` as text.
    Prepare,
    /// Prepared through the binary protocol.
    Binary,
}

fn ten_thousand() -> u32 {
    10_000
}

/// `[sql_bench]`: settings of a sql-bench workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlBenchWorkload {
    /// The program: `select` is `sql-bench/test-select` in the release's tree.
    pub program: String,
    /// The engine of its tables.
    #[serde(default = "myisam")]
    pub engine: String,
    /// Whether the program does only about a hundredth of its work.
    #[serde(default)]
    pub small: bool,
    /// Further command-line options of the program.
    #[serde(default)]
    pub options: Vec<String>,
}

fn myisam() -> String {
    "MyISAM".to_owned()
}
