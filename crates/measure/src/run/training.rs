//! Trains instrumented servers for profile-guided builds.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Prepared;
use perfquilt_bench::server::{self, Launch, Scratch, ServerSpace};
use perfquilt_bench::workload::{self, Clients};
use perfquilt_build::{BuildItem, Builder, Built, Training};
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Profile, Workload};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_system::caches;

/// The seed of every training run, so that all draw the same numbers.
const SEED: u64 = 1;

/// Returns a builder of `prepared`'s points with the recipe called `recipe`, which trains the profiles that the
/// recipe needs.
pub fn builder(ws: &Workspace, recipe: &str, prepared: &Prepared) -> Result<Builder> {
    builder_on(ws, recipe, &super::build_item(prepared, Point::BASE)?)
}

/// Returns a builder like that of [`builder`], with `base` as the bare release.
pub fn builder_on(ws: &Workspace, recipe: &str, base: &BuildItem) -> Result<Builder> {
    Builder::guided(ws, recipe, base, &|profile| {
        Ok(Arc::new(Trainer::new(ws, profile, &base.release)?))
    })
}

/// Starts a server and runs the workloads of a profile on it.
#[derive(Debug)]
struct Trainer {
    ws: Workspace,
    workloads: Vec<Workload>,
    transactions: u64,
    release: String,
}

impl Trainer {
    fn new(ws: &Workspace, profile: &Profile, release: &str) -> Result<Self> {
        let workloads = profile.workloads.iter();
        let workloads = workloads.map(|name| ws.config.workload(name).cloned());
        Ok(Trainer {
            workloads: workloads.collect::<Result<_>>()?,
            ws: ws.clone(),
            transactions: profile.transactions,
            release: release.to_owned(),
        })
    }
}

impl Training for Trainer {
    fn identity(&self) -> Result<String> {
        let mut digest = Sha256::new();
        let adapter = server::adapter(&self.ws)?;
        digest.update(server::identity(&self.ws, adapter.as_ref())?);
        digest.update(format!(" {} {}", workload::identity(), self.transactions));
        for one in &self.workloads {
            let identity = workload::workload_identity(&self.ws, one)?;
            digest.update(format!(" {identity}"));
        }
        Ok(hex::encode(digest.finalize()))
    }

    fn train(
        &self,
        server: &Built,
        label: &str,
        env: &[(String, String)],
        into: &Path,
    ) -> Result<()> {
        let adapter = server::adapter(&self.ws)?;
        let clients = Clients::new(&self.ws, &self.release, &self.workloads)?;
        let data = (self.release.as_str(), server.dir.as_path());
        let template = clients.template(&self.ws, adapter.as_ref(), data)?;
        let space = ServerSpace {
            servers: 1,
            bytes: caches::size(&template),
        };
        let scratch = Scratch::open(&self.ws, space)?;
        let dir = scratch.fresh()?;
        let mut launch = Launch::new(label, &server.dir, &dir);
        launch.template = Some(&template);
        launch.env = env.to_vec();
        launch.counts = Some(into);
        let mut running = adapter.start(&launch)?;
        for one in &self.workloads {
            let done = clients
                .after_start(one, &running)
                .and_then(|()| clients.serve(&running, one, SEED))
                .and_then(|mut client| client.run(&running, self.transactions))
                .map_err(|error| running.explain(error))?;
            if done == 0 {
                return Err(Error::no_transaction(format!(
                    "{} did no transaction on {label}",
                    one.name
                )));
            }
        }
        // A killed server would not write its profile.
        running.stop_cleanly()?;
        std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", &dir, &error))
    }
}
