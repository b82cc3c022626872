//! Runs `bin/line-server SOCKET`, which answers every line with a line.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::{
    AdapterKind, ClientThreads, Launch, ListenAddress, Running, ServerAdapter, ServerProcess,
    StartPlan, Stop, copy_tree, placeholder_values,
};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;

/// The adapter `line`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "line",
    check: |server| match server.settings.parse::<toml::Table>()? {
        None => Ok(()),
        Some(_) => Err(server.settings.error(&[], "adapter `line` has no settings")),
    },
    adapter: |setup| {
        Ok(Box::new(LineServer {
            bench_config: setup.bench_config.clone(),
            start_seconds: setup.server.start_seconds,
            logs: setup.logs.clone(),
        }))
    },
};

/// Part of the identity: changes with the options on the command line.
const OPTIONS_VERSION: u32 = 1;

/// Runs the server.
struct LineServer {
    bench_config: PathBuf,
    start_seconds: f64,
    logs: PathBuf,
}

impl ServerAdapter for LineServer {
    fn identity(&self) -> Result<String> {
        Ok(format!("line {OPTIONS_VERSION}"))
    }

    fn prepare(&self, _server: &Path, data: &Path, _progress: &dyn Progress) -> Result<()> {
        std::fs::create_dir_all(data).map_err(|e| Error::io("create", data, &e))
    }

    fn start(&self, launch: &Launch<'_>) -> Result<Running> {
        if let Some(template) = launch.template {
            copy_tree(template, &launch.dir.join("data"))?;
        }
        let address = ListenAddress::new(launch.dir, None)?;
        let plan = StartPlan {
            launch,
            words: vec![
                launch.server.join("bin/line-server").into(),
                address.socket.clone().into(),
            ],
            env: BTreeMap::new(),
            values: placeholder_values(launch, &address, &self.bench_config),
            address,
            stop: Stop::Signal { may_kill: true },
            process: ServerProcess::Group,
            start_seconds: self.start_seconds,
            kept_logs: self.logs.clone(),
            uncounted: &[],
        };
        Running::begin(plan, &mut |endpoint| {
            Ok(UnixStream::connect(&endpoint.socket).is_ok())
        })
    }

    fn settle(&self, _running: &mut Running) -> Result<()> {
        Ok(())
    }

    fn client_threads(&self) -> ClientThreads {
        ClientThreads::All
    }
}
