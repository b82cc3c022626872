//! Runs `bin/line-server SOCKET`, which answers every line with a line.

use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{
    AdapterKind, AdapterSetup, ClientThreads, Launch, ListenAddress, Running, ServerAdapter,
    StartPlan, Stop, copy_tree,
};
use perfquilt_model::error::{Error, Result};

/// The adapter `line`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "line",
    check: |server| match server.settings.parse::<toml::Table>()? {
        None => Ok(()),
        Some(_) => Err(server.settings.error(&[], "adapter `line` has no settings")),
    },
    adapter: |setup| Ok(Box::new(LineServer(setup))),
};

/// Part of the identity: changes with the options on the command line.
const OPTIONS_VERSION: u32 = 1;

/// Runs the server.
struct LineServer(AdapterSetup);

impl ServerAdapter for LineServer {
    fn identity(&self) -> Result<String> {
        Ok(format!("line {OPTIONS_VERSION}"))
    }

    fn prepare(&self, _server: &Path, data: &Path) -> Result<()> {
        std::fs::create_dir_all(data).map_err(|e| Error::io("create", data, &e))
    }

    fn start(&self, launch: &Launch<'_>) -> Result<Running> {
        if let Some(template) = launch.template {
            copy_tree(template, &launch.dir.join("data"))?;
        }
        let address = ListenAddress::new(launch.dir, None)?;
        let words = vec![
            launch.server.join("bin/line-server").into(),
            address.endpoint.socket.clone().into(),
        ];
        let plan = StartPlan {
            stop: Stop::Signal { may_kill: true },
            ..StartPlan::new(&self.0, launch, address, words)
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
