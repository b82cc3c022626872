//! `[server]`: how a built server runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// The adapter that runs the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adapter {
    /// MariaDB: bootstraps a data directory and connects through a socket.
    Mariadb,
    /// Any server, through commands in the configuration.
    Command,
}

/// `[server]`: how a built server runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The adapter that runs the server.
    pub adapter: Adapter,
    /// The server's own configuration file, relative to `bench-config/`.
    pub config: Option<PathBuf>,
    /// Timeout in seconds until a server is ready.
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
/// the kernel), `{port}` (a free loopback port, for servers that require one) and `{config}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandServer {
    /// Starts the server in the foreground.
    pub start: Vec<String>,
    /// Exits with 0 once the server is ready; repeated until then.
    pub ready: Vec<String>,
    /// Asks the server to stop; by default perfquilt sends SIGTERM.
    pub stop: Option<Vec<String>>,
    /// Additional environment variables of the server.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}
