//! Runs servers: a trait, adapters for MariaDB, MySQL and PostgreSQL, and an adapter for any server driven by commands.
//!
//! Every start has a fresh folder (see [`Scratch`]) with the server's data in `data/` and its log in
//! `server.log`. The server listens on a Unix socket in a private folder. Dropping a [`Running`] kills
//! the server's whole process group and removes the folder in all cases. Only `mariadb`, `mysql` and
//! `postgresql` are specific to a server.

mod command;
mod copy;
pub(crate) mod innodb;
mod listener;
mod log;
mod mariadb;
mod mysql;
pub mod postgresql;
mod program;
mod running;
mod scratch;
mod start_failure;
pub(crate) mod stream;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Config, Server};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::progress;
use perfquilt_system::digest;
use sha2::{Digest, Sha256};

use crate::inputs::{Inputs, Records};

pub use command::check_placeholders;
pub use copy::copy_tree;
pub use running::{
    Endpoint, ListenAddress, NAMES_OF_PIPES, Running, ServerProcess, StartPlan, Stop, vgdb_prefix,
};
pub use scratch::{Scratch, ServerSpace};
pub(crate) use scratch::{free_bytes, memory_available};
pub use start_failure::may_start_with;
pub(crate) use template::prepare_template;

/// Instrumentation of a running server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Instrumentation {
    /// None: full speed.
    #[default]
    Plain,
    /// Valgrind's callgrind with counting off until
    /// [`crate::meter`] switches it on.
    Callgrind {
        /// Path of the profiles: dump `n` of thread `t` of process `p` is `OUT.p.n-t`.
        out: PathBuf,
        /// Whether profiles contain addresses in addition to functions and lines.
        addresses: bool,
        /// Whether it simulates caches, which takes as long as counting.
        caches: bool,
    },
    /// What its processes open is traced, see [`Trace`](crate::inputs::Trace).
    Traced {
        /// The begin of the files of the trace.
        out: PathBuf,
    },
}

/// One start of a built server.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// Label for messages and kept logs: the point and its patch, for example `2 (0002-x.patch)`.
    pub label: &'a str,
    /// Folder of the built server, with `bin/` and `share/`.
    pub server: &'a Path,
    /// Fresh folder of this start; removed when the server stops. See [`Scratch::fresh`].
    pub dir: &'a Path,
    /// Prepared data, copied (or reflinked) to `DIR/data`. Without it, the adapter prepares `DIR/data`
    /// unless it exists.
    pub template: Option<&'a Path>,
    /// Instrumentation of the server.
    pub instrumentation: Instrumentation,
    /// Whether this start fills a template. The server must then finish its background work (purging, merging)
    /// before it stops, because the next start would otherwise continue it during a measurement.
    pub filling: bool,
    /// Extra environment.
    pub env: Vec<(String, String)>,
    /// Where a server that is trained writes its counts.
    pub counts: Option<&'a Path>,
}

impl<'a> Launch<'a> {
    /// Describes a plain start of `server` in `dir`, with newly prepared data.
    pub fn new(label: &'a str, server: &'a Path, dir: &'a Path) -> Self {
        Launch {
            label,
            server,
            dir,
            template: None,
            instrumentation: Instrumentation::Plain,
            filling: false,
            env: Vec::new(),
            counts: None,
        }
    }
}

/// The threads of a server, in all its processes, that execute the clients' work, for meters that count by thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientThreads {
    /// Every thread counts.
    All,
    /// The threads in which this function ran; all of them if no thread shows it (no symbols).
    WithFunction(&'static str),
}

/// Runs one kind of server.
pub trait ServerAdapter: Send + Sync {
    /// Returns the digest of everything except the built server and the files that [`ServerAdapter::words`] name and read
    /// that determines how it runs.
    fn identity(&self) -> Result<String>;

    /// Returns the words of the configuration's commands and paths; none if it runs the built server alone.
    fn words(&self) -> Vec<String> {
        Vec::new()
    }

    /// Fills the empty folder `data` with the files that the server needs before its first start.
    fn prepare(&self, server: &Path, data: &Path) -> Result<()>;

    /// Starts the server and returns once it accepts connections.
    ///
    /// Call this from a thread that outlives the server: the kernel kills the server when that thread ends.
    fn start(&self, launch: &Launch<'_>) -> Result<Running>;

    /// Prepares a newly filled data set for cloning. Called once, before the server is stopped.
    fn settle(&self, running: &mut Running) -> Result<()>;

    /// Returns the threads that execute the clients' work.
    fn client_threads(&self) -> ClientThreads;

    /// Whether the built servers can start from copies of the same data.
    fn shares_data(&self, _server: &Path, _other: &Path) -> bool {
        true
    }

    /// Returns what reads the server's own counters of its storage; `None` if perfquilt knows none.
    fn storage_reader(&self) -> Option<StorageReader> {
        None
    }
}

/// Provides the folder with the data of a start: a copy of the prepared ones, or the ones that are there or that `adapter`
/// prepares now.
fn provide_data(adapter: &dyn ServerAdapter, launch: &Launch<'_>) -> Result<PathBuf> {
    let data = launch.dir.join("data");
    match launch.template {
        Some(template) => copy_tree(template, &data)?,
        None if data.exists() => {}
        None => progress::silently(|| adapter.prepare(launch.server, &data))?,
    }
    Ok(data)
}

/// Returns a file of the built server.
fn part(server: &Path, name: &str) -> Result<PathBuf> {
    let path = server.join(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(incomplete(server, name))
    }
}

/// Returns the error for a built server without the file `what`.
fn incomplete(server: &Path, what: &str) -> Error {
    Error::server_program(format!("the built server has no {what}"))
        .details([format!("built server: {}", server.display())])
        .hint("check `install` of the recipe in bench-config/perfquilt.toml")
}

/// Reads the counters of a running server.
pub type StorageReader = fn(&Endpoint) -> Result<StorageCounts>;

/// A server's own counts since its start: reads of data files, writes of data files and logs, and how often the disk had to
/// store these.
pub type StorageCounts = BTreeMap<Meter, u64>;

/// The adapters. A new one is a file with its [`ServerAdapter`] and a line here.
pub const ADAPTERS: &[AdapterKind] = &[mariadb::KIND, mysql::KIND, postgresql::KIND, command::KIND];

/// A kind of server adapter.
#[derive(Debug, Clone, Copy)]
pub struct AdapterKind {
    /// The value of `adapter` in `[server]`. Its settings are in the section `[server.NAME]`.
    pub name: &'static str,
    /// Checks these settings.
    pub check: fn(&Server) -> Result<()>,
    /// Creates the adapter.
    pub adapter: fn(AdapterSetup) -> Result<Box<dyn ServerAdapter>>,
}

/// The workspace whose servers an adapter runs.
#[derive(Debug, Clone)]
pub struct AdapterSetup {
    /// `[server]`.
    pub server: Server,
    /// The workspace's `bench-config/`.
    pub bench_config: PathBuf,
    /// The folder for logs of failed servers.
    pub logs: PathBuf,
}

/// Checks `[server]`.
pub fn check(config: &Config) -> Result<()> {
    if config.server.adapter.is_empty() {
        // A workspace that only keeps a series.
        return Ok(());
    }
    let kind = kind(config)?;
    let owner = format!("the adapter `{}`", kind.name);
    config.server.settings.check_alone(&owner)?;
    (kind.check)(&config.server)
}

/// Returns the adapter named in `[server]`.
pub fn adapter(ws: &Workspace) -> Result<Box<dyn ServerAdapter>> {
    (kind(&ws.config)?.adapter)(AdapterSetup {
        server: ws.config.server.clone(),
        bench_config: ws.bench_config(),
        logs: ws.state().join("logs"),
    })
}

/// Returns the files that the server of `ws` and the configuration's commands for it read, see [`Inputs::known`].
pub fn inputs(ws: &Workspace, adapter: &dyn ServerAdapter) -> Result<(Inputs, Option<Records>)> {
    let words = adapter.words();
    let declared = &ws.config.server.inputs;
    Inputs::known(ws, (&words, Some("{config}")), declared)
}

/// Returns the digest of everything except the built server that determines how it runs. It is part of the harness's
/// identity and of the key of prepared data.
pub fn identity(ws: &Workspace, adapter: &dyn ServerAdapter) -> Result<String> {
    let mut digest = Sha256::new();
    digest::add(&mut digest, adapter.identity()?.as_bytes());
    inputs(ws, adapter)?.0.digest(&mut digest);
    Ok(hex::encode(digest.finalize()))
}

fn kind(config: &Config) -> Result<&'static AdapterKind> {
    let name = &config.server.adapter;
    if name.is_empty() {
        return Err(Config::lacks("[server]", "measuring"));
    }
    let kind = ADAPTERS.iter().find(|kind| kind.name == name);
    kind.ok_or_else(|| {
        let unknown = Error::unknown("adapter", name, ADAPTERS.iter().map(|kind| kind.name));
        config.locate(&["server", "adapter"], unknown)
    })
}
