//! Running servers: a trait, MariaDB's adapter, and one for any server driven by commands.
//!
//! A start always happens in a fresh folder of its own (see [`Scratch`]) that holds the server's
//! data in `data/` and its log in `server.log`; the server is reached through a Unix socket nobody
//! else can open. Dropping a [`Running`] kills the server's whole process group and removes the
//! folder, whatever happened before. Nothing outside `mariadb` knows MariaDB.

mod command;
mod copy;
mod log;
mod mariadb;
mod running;
mod scratch;
mod template;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use perfquilt_config::Adapter;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;

pub use copy::{copy_tree, size_of_tree};
pub use running::{Endpoint, Running, processor_time};
pub use running::{has_other_time, vgdb_prefix};
pub use scratch::Scratch;
pub use template::prepare_template;

/// What a server runs under.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Under {
    /// Nothing: full speed.
    #[default]
    Plain,
    /// Valgrind's callgrind with the instrumentation off until
    /// [`crate::meter`] switches it on.
    Callgrind {
        /// The path profiles are written to: dump `n` of thread `t` becomes `OUT.n-t`.
        out: PathBuf,
        /// Whether profiles tell addresses beside functions and lines.
        addresses: bool,
    },
}

/// One start of a built server.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// For messages and kept logs: the point and its patch, for example `2 (0002-x.patch)`.
    pub label: &'a str,
    /// Folder of the built server, with `bin/` and `share/`.
    pub server: &'a Path,
    /// Fresh folder of this start; removed when the server is stopped. See [`Scratch::fresh`].
    pub dir: &'a Path,
    /// Prepared data, copied (or reflinked) to `DIR/data`. Without it, `DIR/data` is prepared anew
    /// unless it is there already.
    pub template: Option<&'a Path>,
    /// What the server runs under.
    pub under: Under,
    /// The processors it may use; all of them without.
    pub cpus: Option<&'a [usize]>,
    /// Whether this start fills a template: the server is then told to leave nothing to be done
    /// after its next start (purging, merging), since that would happen while others are measured.
    pub filling: bool,
    /// Extra environment.
    pub env: Vec<(String, String)>,
}

impl<'a> Launch<'a> {
    /// A plain start of `server` in `dir`, on any processor, with newly prepared data.
    pub fn new(label: &'a str, server: &'a Path, dir: &'a Path) -> Self {
        Launch {
            label,
            server,
            dir,
            template: None,
            under: Under::Plain,
            cpus: None,
            filling: false,
            env: Vec::new(),
        }
    }
}

/// Which threads of a server do the clients' work, for meters that count by thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientThreads {
    /// Every thread of the process counts.
    All,
    /// Those in which this function ran; all of them where no thread shows it (no symbols).
    WithFunction(&'static str),
}

/// Knows how to run one kind of server.
pub trait ServerAdapter: Send + Sync {
    /// Digest of everything but the built server that decides how it runs: part of the harness's
    /// identity and of the key of prepared data.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when a configuration file cannot be read.
    fn identity(&self) -> Result<String>;

    /// Fills the empty folder `data` with what the server needs before its first start.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) with what the server said.
    fn prepare(&self, server: &Path, data: &Path, progress: &dyn Progress) -> Result<()>;

    /// Starts the server and returns once it takes connections.
    ///
    /// Call this from a thread that lives as long as the server may: the kernel kills the server
    /// when that thread ends.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) with the log's tail when it ends or does not
    /// become ready in time; [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when its program or
    /// valgrind is missing.
    fn start(&self, launch: &Launch<'_>) -> Result<Running>;

    /// Called once after a data set was filled, before the server is stopped: brings it into the
    /// state in which it is cloned.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) with what the server said.
    fn settle(&self, running: &mut Running) -> Result<()>;

    /// Which threads do the clients' work.
    fn client_threads(&self) -> ClientThreads;
}

/// The adapter that `[server]` names.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the section or its files are wrong.
pub fn adapter(ws: &Workspace) -> Result<Box<dyn ServerAdapter>> {
    let server = &ws.config.server;
    Ok(match server.adapter {
        Adapter::Mariadb => Box::new(mariadb::Mariadb::new(
            ws.bench_config(),
            server.config.as_deref(),
            server.start_seconds,
            logs(ws),
        )?),
        Adapter::Command => Box::new(command::CommandAdapter::new(
            server.command.clone().ok_or_else(|| {
                Error::usage("adapter `command` needs a [server.command] section")
            })?,
            ws.bench_config(),
            server.start_seconds,
            logs(ws),
        )?),
    })
}

/// Where logs of servers that failed are kept.
fn logs(ws: &Workspace) -> PathBuf {
    ws.state().join("logs")
}
