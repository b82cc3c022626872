//! The clients of an experiment's workloads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{
    BlockSlices, Client, ClientFailure, Environment, KINDS, Placement, Requests, Setup, TimedBlock,
    WorkloadKind, client_of,
};
use crate::server::{self, Running, ServerAdapter, prepare_template};
use perfquilt_config::Workload;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;

/// Runs clients, with their scripts and the placement of clients and servers on processors.
#[derive(Debug)]
pub struct Clients {
    environment: Environment,
    /// The clients by workload.
    clients: BTreeMap<String, Box<dyn Client>>,
}

impl Clients {
    /// Creates clients for the workloads of `ws` on the servers of `release`, a name in its configuration.
    pub fn new(ws: &Workspace, release: &str, workloads: &[Workload]) -> Result<Self> {
        Self::of_kinds(KINDS, ws, release, workloads)
    }

    /// Creates clients for workloads of `kinds`.
    pub fn of_kinds(
        kinds: &[WorkloadKind],
        ws: &Workspace,
        release: &str,
        workloads: &[Workload],
    ) -> Result<Self> {
        let environment = Environment::new(ws.bench_config())?;
        let mut clients = BTreeMap::new();
        for workload in workloads {
            let client = client_of(workload, kinds)?;
            client.set_up(&Setup {
                workspace: ws,
                release,
                folder: environment.folder(),
            })?;
            clients.insert(workload.name.clone(), client);
        }
        Ok(Clients {
            environment,
            clients,
        })
    }

    /// Returns the placement of servers and clients.
    pub fn placement(&self) -> &Placement {
        &self.environment.placement
    }

    /// Returns the number of a workload's concurrent client threads.
    pub fn threads(&self, workload: &Workload) -> u32 {
        self.clients
            .get(&workload.name)
            .map_or(1, |client| client.threads())
    }

    /// Measures one workload on all `servers`, alternating between them.
    /// The caller checks whether a server has crashed.
    pub fn interleave(
        &self,
        servers: &mut [(Point, Running)],
        item: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        if servers.is_empty() {
            return Err(Error::internal("no server to measure").into());
        }
        let client = self.client(item.workload)?;
        client.interleave(&self.environment, servers, item)
    }

    /// Prepares a server that was just started from its template for a workload.
    pub fn after_start(&self, workload: &Workload, running: &Running) -> Result<()> {
        self.client(workload)?
            .after_start(&self.environment, running)
    }

    /// Runs a workload's commands once on a server that was just started from its template, behind the words `tracer` that
    /// trace what they open.
    pub fn trace(
        &self,
        workload: &Workload,
        running: &Running,
        tracer: Vec<OsString>,
    ) -> Result<()> {
        self.client(workload)?
            .trace(&self.environment, running, tracer)
    }

    /// Returns the folder of perfquilt's own files for the clients.
    pub fn folder(&self) -> &Path {
        self.environment.folder()
    }

    /// Starts a client connected to `running` that runs transactions on request. Dropping it ends it.
    pub fn serve(
        &self,
        running: &Running,
        workload: &Workload,
        seed: u64,
    ) -> Result<Box<dyn Requests + '_>> {
        self.client(workload)?
            .connect(&self.environment, running, seed)
    }

    fn client(&self, workload: &Workload) -> Result<&dyn Client> {
        let client = self.clients.get(&workload.name).map(AsRef::as_ref);
        client.ok_or_else(|| Error::internal(format!("no client for workload `{}`", workload.name)))
    }

    /// Returns the data sets that clients need before the start by their keys, each with a client that prepares it.
    pub fn data_sets(&self) -> Result<BTreeMap<String, &dyn Client>> {
        let mut sets = BTreeMap::new();
        for client in self.clients.values() {
            let key = client.data_key(&self.environment)?;
            sets.extend(key.map(|key| (key, client.as_ref())));
        }
        Ok(sets)
    }

    /// Returns the key of the prepared data of the workloads: a digest of the release that creates it, the identity of
    /// the adapter and every data set.
    pub fn template_key(
        &self,
        ws: &Workspace,
        release: &str,
        adapter: &dyn ServerAdapter,
    ) -> Result<String> {
        let mut digest = Sha256::new();
        digest.update(format!("{release}\n{}\n", server::identity(ws, adapter)?));
        for set in self.data_sets()?.keys() {
            digest.update(format!("{set}\n"));
        }
        Ok(format!(
            "{release}-{}",
            &hex::encode(digest.finalize())[..16]
        ))
    }

    /// Returns the folder of the data of the workloads that starts are cloned from. The built server in the folder `server`
    /// prepares them as those of `release`, unless they exist.
    pub fn template(
        &self,
        ws: &Workspace,
        adapter: &dyn ServerAdapter,
        (release, server): (&str, &Path),
    ) -> Result<PathBuf> {
        let key = self.template_key(ws, release, adapter)?;
        // Each data set is filled once, in a database of its own.
        let fill = |running: &mut Running| {
            let mut clients = self.data_sets()?.into_values();
            clients.try_for_each(|client| client.fill(&self.environment, running))
        };
        prepare_template(&ws.cache().join("data"), adapter, server, &key, &fill)
    }
}
