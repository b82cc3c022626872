//! Runs sysbench scripts: one sysbench process alternates between all servers of a block.

mod command_line;
mod data;
#[cfg(test)]
mod driver_tests;
mod interleave;
mod result;
mod serve;

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::Deserialize;

use super::client::one;
use super::{
    BlockSlices, Client, ClientFailure, Environment, Requests, Setup, TimedBlock, WorkloadKind,
    check_count, settings,
};
use crate::server::Running;
use perfquilt_config::{Section, Workload};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;

/// The kind `sysbench`.
pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "sysbench",
    client: |workload| Ok(Box::new(Sysbench::new(workload)?)),
};

/// The largest number of threads.
const MAX_THREADS: u32 = 1024;

/// The script that interleaves another script over several servers.
const DRIVER: &str = include_str!("driver.lua");
/// The script with the statements before and after the preparation of data.
const SQL: &str = include_str!("sql.lua");
/// All scripts of perfquilt's own.
pub(super) const SCRIPTS: [&str; 2] = [DRIVER, SQL];

/// `[sysbench]`: settings of a sysbench workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SysbenchSettings {
    /// A script of sysbench's own (`oltp_read_only`) or, ending in `.lua`, of `bench-config/sysbench/`.
    pub(super) script: String,
    /// The script that prepares the data, by default `script`. It gets only the options about tables, so workloads with
    /// the same ones share their data.
    pub(super) prepare: Option<String>,
    /// Options of the script, without leading dashes.
    #[serde(default)]
    pub(super) options: BTreeMap<String, toml::Value>,
    /// Number of client threads, each with its own connections.
    #[serde(default = "one")]
    pub(super) threads: u32,
    /// Transactions of each thread in one slice; 0: as many as take about 0.2 ms, or 2 ms with several threads.
    #[serde(default)]
    pub(super) slice_transactions: u32,
    /// Transactions per restart for the counting meters; 0: perfquilt chooses.
    #[serde(default)]
    pub(super) count_transactions: u32,
}

/// A sysbench workload.
#[derive(Debug)]
struct Sysbench {
    name: String,
    settings: SysbenchSettings,
    section: Section,
}

impl Sysbench {
    fn new(workload: &Workload) -> Result<Self> {
        let sysbench = Sysbench {
            name: workload.name.clone(),
            settings: settings(workload)?,
            section: workload.settings.clone(),
        };
        let threads = sysbench.settings.threads;
        check_count(&sysbench.section, "threads", threads)?;
        if threads > MAX_THREADS {
            let fault = format!("`threads` must be at most {MAX_THREADS}");
            return Err(sysbench.section.error(&["threads"], fault));
        }
        command_line::check_options(&sysbench.settings, &sysbench.section)?;
        Ok(sysbench)
    }
}

impl Client for Sysbench {
    fn threads(&self) -> u32 {
        self.settings.threads
    }

    fn runs_server_programs(&self) -> bool {
        false
    }

    fn counted_transactions(&self) -> Option<u64> {
        let configured = self.settings.count_transactions;
        (configured > 0).then_some(configured.into())
    }

    fn identity(&self) -> Result<Vec<Vec<u8>>> {
        Ok(vec![format!("{:?}", self.settings).into_bytes()])
    }

    fn words(&self) -> Vec<String> {
        command_line::words(&self.settings)
    }

    fn set_up(&self, setup: &Setup<'_>) -> Result<()> {
        command_line::check_files(
            &setup.workspace.bench_config(),
            &self.settings,
            &self.section,
        )?;
        for (name, text) in [("driver.lua", DRIVER), ("sql.lua", SQL)] {
            let path = setup.folder.join(name);
            std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))?;
        }
        Ok(())
    }

    fn data_key(&self, environment: &Environment) -> Result<Option<String>> {
        data::key(environment, &self.settings).map(Some)
    }

    fn fill(&self, environment: &Environment, running: &Running) -> Result<()> {
        data::fill(environment, &self.settings, running)
    }

    fn interleave(
        &self,
        environment: &Environment,
        servers: &mut [(Point, Running)],
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        interleave::run(environment, servers, block, &self.settings)
    }

    fn connect<'a>(
        &'a self,
        environment: &'a Environment,
        running: &Running,
        seed: u64,
    ) -> Result<Box<dyn Requests + 'a>> {
        let session = serve::SysbenchSession::new(
            environment,
            running,
            &self.settings,
            (seed, Vec::new()),
            &self.name,
        )?;
        Ok(Box::new(session))
    }

    fn trace(
        &self,
        environment: &Environment,
        running: &Running,
        tracer: Vec<OsString>,
    ) -> Result<()> {
        let once = (0, tracer);
        serve::SysbenchSession::new(environment, running, &self.settings, once, &self.name)?
            .run(running, 1)
            .map(drop)
    }
}
