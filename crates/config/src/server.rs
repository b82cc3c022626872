//! `[server]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// Which code runs the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adapter {
    /// MariaDB: bootstraps a data directory, talks through a socket.
    Mariadb,
    /// Any server, by commands of the configuration.
    Command,
}

/// `[server]`: how a built server is run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Which code runs it.
    pub adapter: Adapter,
    /// The server's own configuration file, relative to `bench-config/`.
    pub config: Option<PathBuf>,
    /// Seconds a server may take until it is ready.
    #[serde(default = "default_start_seconds")]
    pub start_seconds: f64,
    /// `[server.command]`, for [`Adapter::Command`].
    pub command: Option<CommandServer>,
}

fn default_start_seconds() -> f64 {
    60.0
}

/// `[server.command]`: commands with the placeholders `{server}` (folder of the built server),
/// `{dir}` (fresh folder of this start: data, logs), `{socket}` (a Unix socket path, short enough for
/// the kernel), `{port}` (a free loopback port, for servers that cannot do without) and `{config}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandServer {
    /// The server, in the foreground.
    pub start: Vec<String>,
    /// Exits with 0 once the server is ready; tried until then.
    pub ready: Vec<String>,
    /// Asks the server to stop; without it, SIGTERM does.
    pub stop: Option<Vec<String>>,
    /// Extra environment of the server.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}
