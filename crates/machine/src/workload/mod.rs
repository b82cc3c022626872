//! Runs clients that put load on servers: sysbench scripts interleaved over all points, or commands.
//!
//! A timed block of a workload runs on all servers of the block ([`Clients::interleave`]) in rounds. Each round is a
//! random permutation of the servers with a short slice on each, so that a disturbance of the machine affects all
//! servers of a round alike. Counting meters run a fixed number of transactions on one server
//! ([`Clients::serve`]). `docs/method.md` explains the reasons.

mod command;
mod data;
#[cfg(test)]
mod driver_tests;
mod handler;
mod interleave;
mod placement;
mod reading;
mod result;
mod rounds;
mod serve;
mod sql_bench;
mod sysbench;
mod watch;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::server::{Running, ServerAdapter};
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{
    CommandWorkload, HandlerWorkload, SysbenchWorkload, Workload, WorkloadKind, config_files,
};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Silent;
use perfquilt_patches::upstream;
use perfquilt_system::digest;

pub use placement::{Placement, allowed_cpus};
pub use serve::Serving;
pub use watch::HostMonitor;

/// The sysbench script that interleaves another script over several servers.
const DRIVER: &str = include_str!("driver.lua");
/// The sysbench script with the statements before and after the preparation of data.
const SQL: &str = include_str!("sql.lua");

/// Parameters of a timed block of one workload.
#[derive(Debug, Clone)]
pub struct TimedBlock<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Seconds of measuring, for all servers together.
    pub seconds: f64,
    /// Seconds of unmeasured running before that.
    pub warm_up_seconds: f64,
    /// Seed of the transactions and of the order of the servers.
    pub seed: u64,
}

/// Slices of a timed block of one workload: one row per slice for each server, with rows aligned by round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockSlices {
    /// Wall-clock time of the slices.
    pub time: Vec<Slices>,
    /// Processor time of the server's process in the same slices; empty if the kernel does not report
    /// it.
    pub cpu: Vec<Slices>,
    /// Wall-clock time of the operations that the client times separately, by operation; 0 in slices without it.
    pub operations: BTreeMap<String, Vec<Slices>>,
    /// Number of measured rounds.
    pub rounds: u64,
    /// Rounds discarded because a transaction on some server was restarted.
    pub discarded_rounds: u64,
}

/// Why a block of a workload could not be measured.
#[derive(Debug, Clone)]
pub struct ClientFailure {
    /// The server the client was connected to, if known.
    pub point: Option<Point>,
    /// What happened.
    pub error: Error,
}

impl From<Error> for ClientFailure {
    fn from(error: Error) -> Self {
        ClientFailure { point: None, error }
    }
}

/// Runs clients, with their scripts and the placement of clients and servers on processors.
#[derive(Debug)]
pub struct Clients {
    bench_config: PathBuf,
    /// Folder with copies of the built-in scripts; removed when dropped.
    scripts: tempfile::TempDir,
    placement: Placement,
    /// Folder of the release's unpacked sql-bench, if a workload needs it.
    sql_bench: Option<PathBuf>,
}

impl Clients {
    /// Creates clients for the workloads of `ws` on the servers of `release`, a name in its configuration.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when a workload's script does not exist;
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a temporary folder cannot be created.
    pub fn new(ws: &Workspace, release: &str, workloads: &[&Workload]) -> Result<Self> {
        let scripts = tempfile::Builder::new()
            .prefix("perfquilt-")
            .tempdir()
            .map_err(|e| Error::io("create a folder in", &std::env::temp_dir(), &e))?;
        for (name, text) in [("driver.lua", DRIVER), ("sql.lua", SQL)] {
            let path = scripts.path().join(name);
            std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))?;
        }
        let mut clients = Clients {
            bench_config: ws.bench_config(),
            scripts,
            placement: Placement::of_this_machine(),
            sql_bench: None,
        };
        for workload in workloads {
            if let Some(settings) = &workload.sysbench {
                sysbench::check(&clients.bench_config, workload, settings)?;
            }
            if let Some(settings) = &workload.sql_bench {
                let folder = match &clients.sql_bench {
                    Some(folder) => folder,
                    None => clients
                        .sql_bench
                        .insert(sql_bench(ws, release, &clients.scripts)?),
                };
                sql_bench::check(workload, settings, folder)?;
            }
        }
        Ok(clients)
    }

    /// Returns the placement of servers and clients.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    fn script(&self, name: &str) -> PathBuf {
        self.scripts.path().join(name)
    }

    /// Creates an empty folder for the results of one run of a client.
    fn results_folder(&self) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(self.scripts.path())
            .map_err(|e| Error::io("create a folder in", self.scripts.path(), &e))
    }

    /// Measures one workload on all `servers`, alternating between them.
    ///
    /// # Errors
    /// A [`ClientFailure`] that names the server if the client knows which one failed. The caller checks
    /// whether a server has crashed.
    pub fn interleave(
        &self,
        servers: &mut [(Point, Running)],
        item: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        if servers.is_empty() {
            return Err(Error::internal("no server to measure").into());
        }
        match self.program(item.workload)? {
            Program::Sysbench(settings) => interleave::run(self, servers, item, settings),
            Program::Command(settings) => command::interleave(self, servers, item, &settings),
            Program::Handler(settings) => handler::interleave(self, servers, item, settings),
        }
    }

    /// Prepares a server that was just started from its template for a workload.
    ///
    /// # Errors
    /// Failures of the workload's `prepare` command.
    pub fn after_start(&self, workload: &Workload, running: &Running) -> Result<()> {
        match self.program(workload)? {
            Program::Sysbench(_) => Ok(()),
            Program::Command(settings) => command::prepare(workload, &settings, running),
            Program::Handler(settings) => handler::prepare(settings, running),
        }
    }

    /// Starts a client connected to `running` that runs transactions on request.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when the client cannot connect.
    pub fn serve<'a>(
        &'a self,
        running: &Running,
        workload: &'a Workload,
        seed: u64,
    ) -> Result<Serving<'a>> {
        match self.program(workload)? {
            Program::Sysbench(settings) => {
                serve::Serving::sysbench(self, running, workload, settings, seed)
            }
            Program::Command(settings) => Ok(serve::Serving::command(workload, settings)),
            Program::Handler(settings) => {
                serve::Serving::handler(running, workload, settings, seed)
            }
        }
    }

    /// Returns the client of a workload with the settings of its kind.
    fn program<'a>(&self, workload: &'a Workload) -> Result<Program<'a>> {
        let incomplete = || {
            Error::internal(format!(
                "workload `{}` lacks the section of its kind",
                workload.name
            ))
        };
        match workload.kind {
            WorkloadKind::Sysbench => workload.sysbench.as_ref().map(Program::Sysbench),
            WorkloadKind::Command => {
                let settings = workload.command.as_ref();
                settings.map(|settings| Program::Command(Cow::Borrowed(settings)))
            }
            WorkloadKind::SqlBench => {
                let settings = workload.sql_bench.as_ref().zip(self.sql_bench.as_ref());
                settings.map(|(settings, folder)| {
                    Program::Command(Cow::Owned(sql_bench::command(settings, folder)))
                })
            }
            WorkloadKind::Handler => workload.handler.as_ref().map(Program::Handler),
        }
        .ok_or_else(incomplete)
    }

    /// Returns the key of the prepared data of `workload`; `None` if it needs none before the start.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when its script cannot be read.
    pub fn data_key(&self, workload: &Workload) -> Result<Option<String>> {
        match (workload.kind, &workload.sysbench) {
            (WorkloadKind::Sysbench, Some(settings)) => data::key(self, settings).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the key of the prepared data of `workloads`: a digest of the release that creates it, the identity of
    /// the adapter and every data set.
    ///
    /// # Errors
    /// See [`Clients::data_key`] and [`ServerAdapter::identity`].
    pub fn template_key(
        &self,
        release: &str,
        adapter: &dyn ServerAdapter,
        workloads: &[&Workload],
    ) -> Result<String> {
        let mut sets = BTreeSet::new();
        for workload in workloads {
            sets.extend(self.data_key(workload)?);
        }
        let mut digest = Sha256::new();
        digest.update(format!("{release}\n{}\n", adapter.identity()?));
        sets.iter()
            .for_each(|set| digest.update(format!("{set}\n")));
        Ok(format!(
            "{release}-{}",
            &hex::encode(digest.finalize())[..16]
        ))
    }

    /// Fills a running server with the data of all `workloads`, each data set once, in a database of
    /// its own.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) with the error messages of sysbench.
    pub fn fill(&self, workloads: &[&Workload], running: &Running) -> Result<()> {
        let mut sets = BTreeMap::new();
        for workload in workloads {
            if let (WorkloadKind::Sysbench, Some(settings)) = (workload.kind, &workload.sysbench) {
                sets.insert(data::key(self, settings)?, settings);
            }
        }
        sets.into_iter()
            .try_for_each(|(key, settings)| data::fill(self, &key, settings, running))
    }
}

/// Returns the digest of the client code that affects measurements, which is part of the harness's identity.
pub fn identity() -> String {
    let mut digest = Sha256::new();
    digest.update(DRIVER);
    digest.update(SQL);
    hex::encode(digest.finalize())
}

/// Returns the digest of a workload: its settings, its scripts, the files of `bench_config` that its commands name,
/// and the version of its client.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a script cannot be read;
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when another file cannot.
pub fn workload_identity(bench_config: &Path, workload: &Workload) -> Result<String> {
    let mut digest = Sha256::new();
    digest.update(format!(
        "{:?} {:?} {:?}",
        workload.kind, workload.sysbench, workload.command
    ));
    if let Some(settings) = &workload.sql_bench {
        digest.update(format!("{settings:?}"));
    }
    if let Some(settings) = &workload.handler {
        digest.update(format!("{settings:?} {}", handler::VERSION));
    }
    if let Some(settings) = &workload.sysbench {
        digest.update(sysbench::version());
        let scripts = [Some(&settings.script), settings.prepare.as_ref()];
        for script in scripts.into_iter().flatten() {
            if let Some(path) = sysbench::own_script(bench_config, script) {
                let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, &e))?;
                digest::add(&mut digest, &bytes);
            }
        }
    }
    let mut words: Vec<&String> = Vec::new();
    if let Some(settings) = &workload.command {
        words.extend(&settings.run);
        words.extend(settings.prepare.iter().flatten());
        words.extend(&settings.directory);
    }
    if let Some(settings) = &workload.sql_bench {
        words.extend(&settings.options);
    }
    for (name, bytes) in config_files(words.into_iter().map(String::as_str), bench_config)? {
        digest::add(&mut digest, name.as_bytes());
        digest::add(&mut digest, &bytes);
    }
    Ok(hex::encode(digest.finalize()))
}

/// The client of a workload with its settings.
enum Program<'a> {
    Sysbench(&'a SysbenchWorkload),
    Command(Cow<'a, CommandWorkload>),
    Handler(&'a HandlerWorkload),
}

/// Unpacks the sql-bench of `release` below `scripts`.
fn sql_bench(ws: &Workspace, release: &str, scripts: &tempfile::TempDir) -> Result<PathBuf> {
    let release = upstream::ensure(ws, Some(release), &Silent)?;
    let Some(files) = upstream::files_of(ws, &release, sql_bench::FOLDER)? else {
        return Err(Error::usage(format!(
            "{} comes without {}",
            release.name,
            sql_bench::FOLDER
        ))
        .hint("choose workloads of another kind, or a release that has it"));
    };
    let folder = scripts.path().join(sql_bench::FOLDER);
    sql_bench::unpack(&files, &folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns for each of `files`, paths below the configuration's folder, whether the identity of a workload changes
    /// with it.
    fn depends_on(text: &str, files: &[&str]) -> Vec<bool> {
        let folder = tempfile::tempdir().unwrap();
        let workload: Workload = toml::from_str(&format!("description = \"\"\n{text}")).unwrap();
        let identity = || workload_identity(folder.path(), &workload).unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "one").unwrap();
        }
        let changes = |file: &&str| {
            let before = identity();
            std::fs::write(folder.path().join(file), "two").unwrap();
            identity() != before
        };
        files.iter().map(changes).collect()
    }

    #[test]
    fn the_identity_changes_with_any_of_a_workloads_files() {
        let command = "kind = \"command\"\n[command]\nrun = [\"c\", \"--query={config}/q/reads.sql\"]\n\
                       prepare = [\"sh\", \"{config}/fill.sh\"]\ntransactions = 1";
        assert_eq!(
            depends_on(command, &["q/reads.sql", "fill.sh", "other.sql"]),
            [true, true, false]
        );
        let sysbench = "kind = \"sysbench\"\n[sysbench]\nscript = \"a.lua\"\nprepare = \"b.lua\"";
        let scripts = ["sysbench/a.lua", "sysbench/b.lua", "sysbench/c.lua"];
        assert_eq!(depends_on(sysbench, &scripts), [true, true, false]);
    }

    #[test]
    fn the_threads_of_every_kind_are_known() {
        let threads = |text: &str| {
            let workload: Workload =
                toml::from_str(&format!("description = \"\"\n{text}")).unwrap();
            workload.threads()
        };
        let command = "kind = \"command\"\n[command]\nrun = [\"c\"]\ntransactions = 1\n";
        assert_eq!(threads(command), 1);
        assert_eq!(threads(&format!("{command}threads = 64")), 64);
        let handler =
            "kind = \"handler\"\n[handler]\nengine = \"Aria\"\nform = \"text\"\nthreads = 8";
        assert_eq!(threads(handler), 8);
        let sysbench = "kind = \"sysbench\"\n[sysbench]\nscript = \"a\"\nthreads = 4";
        assert_eq!(threads(sysbench), 4);
        assert_eq!(
            threads("kind = \"sql-bench\"\n[sql_bench]\nprogram = \"select\""),
            1
        );
    }
}
