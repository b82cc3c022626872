//! Runs MariaDB with a bootstrapped data directory and a Unix socket, without network.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::innodb::{
    ServerOptions, ServerSettings, analyze_tables, check_settings, incomplete, option, read_storage,
};
use super::running::Running;
use super::{AdapterKind, ClientThreads, Launch, ServerAdapter, StorageReader};
use perfquilt_config::Disk;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::{Progress, Silent};
use perfquilt_system::process::{Command, Output};

/// SQL files that create an empty installation, in this order; each with its name in releases from 11.0 on and its
/// earlier name.
const SYSTEM_SQL: [[&str; 2]; 2] = [
    ["mariadb_system_tables.sql", "mysql_system_tables.sql"],
    [
        "mariadb_system_tables_data.sql",
        "mysql_system_tables_data.sql",
    ],
];

/// Folders inside `share/` that may contain its files; packages and builds differ.
const SHARE_FOLDERS: [&str; 5] = ["", "mariadb", "mysql", "scripts", "sql"];

/// Part of the identity: changes with the options on the command line.
const OPTIONS_VERSION: u32 = 1;

const OPTIONS: ServerOptions = ServerOptions {
    durable: &[
        "--innodb-flush-log-at-trx-commit=1",
        "--loose-sync-binlog=1",
        "--innodb-doublewrite=1",
        "--innodb-flush-method=fsync",
    ],
    callgrind: &[
        // The server hangs at start with io_uring.
        "--innodb-use-native-aio=0",
        // Releases with this option otherwise reserve terabytes of address space. They round the value up to at
        // least the size of the pool.
        "--loose-innodb-buffer-pool-size-max=1",
        // Resolving a stack under valgrind takes minutes.
        "--skip-stack-trace",
    ],
    // Reads from the client. If the next packet has not arrived, the server polls, waits and polls again, so that the
    // cost depends on timing.
    uncounted: &["vio_read"],
};

/// The adapter `mariadb`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "mariadb",
    check: |server| check_settings(server, "mariadb"),
    adapter: |setup| Ok(Box::new(Mariadb::new(ServerSettings::of(setup)?))),
};

/// Runs `bin/mariadbd` of a built server.
#[derive(Debug)]
pub struct Mariadb {
    settings: ServerSettings,
}

/// The parts of a built server that the adapter needs.
struct Layout {
    program: PathBuf,
    messages: PathBuf,
    charsets: PathBuf,
    sql: Vec<PathBuf>,
}

impl Mariadb {
    /// Creates the adapter of a workspace.
    pub(super) fn new(settings: ServerSettings) -> Self {
        Mariadb { settings }
    }

    fn layout(server: &Path) -> Result<Layout> {
        let program = ["bin/mariadbd", "sbin/mariadbd", "bin/mysqld"]
            .iter()
            .map(|name| server.join(name))
            .find(|path| path.is_file())
            .ok_or_else(|| incomplete(server, "bin/mariadbd"))?;
        let share = |name: &str| {
            SHARE_FOLDERS
                .iter()
                .map(|folder| server.join("share").join(folder))
                .find(|folder| folder.join(name).exists())
        };
        let needed =
            |name: &str| share(name).ok_or_else(|| incomplete(server, &format!("share/{name}")));
        let sql = SYSTEM_SQL
            .iter()
            .map(|names| {
                names
                    .iter()
                    .find_map(|name| share(name).map(|folder| folder.join(name)))
                    .ok_or_else(|| incomplete(server, &format!("share/{}", names[1])))
            })
            .collect::<Result<_>>()?;
        Ok(Layout {
            program,
            messages: needed("english/errmsg.sys")?,
            charsets: needed("charsets/Index.xml")?.join("charsets"),
            sql,
        })
    }

    /// Returns the options of every run, including the bootstrap.
    fn common(&self, layout: &Layout, data: &Path) -> Vec<OsString> {
        let mut words = vec![self.settings.config_option()];
        words.extend([
            option("--datadir=", data),
            option("--lc-messages-dir=", &layout.messages),
            option("--character-sets-dir=", &layout.charsets),
            // Keep the server from loading plugins from its compiled-in folder.
            option("--plugin-dir=", data),
            option("--tmpdir=", data),
        ]);
        if rustix::process::geteuid().is_root() {
            // It refuses to run as root without this option.
            words.push("--user=root".into());
        }
        words
    }
}

impl ServerAdapter for Mariadb {
    fn identity(&self) -> Result<String> {
        let mut digest = Sha256::new();
        digest.update(format!("mariadb {OPTIONS_VERSION}\n"));
        if self.settings.disk == Disk::Durable {
            digest.update(format!("{:?}\n", OPTIONS.durable));
        }
        if let Some(file) = &self.settings.config {
            digest.update(std::fs::read(file).map_err(|e| Error::io("read", file, &e))?);
        }
        Ok(hex::encode(digest.finalize()))
    }

    fn prepare(&self, server: &Path, data: &Path, progress: &dyn Progress) -> Result<()> {
        let layout = Self::layout(server)?;
        let step = progress.begin("bootstrap", None);
        let system = data.join("mysql");
        std::fs::create_dir_all(&system).map_err(|e| Error::io("create", &system, &e))?;
        let mut input = b"create database test;\ncreate database sbtest;\nuse mysql;\n".to_vec();
        for file in &layout.sql {
            let text = std::fs::read(file).map_err(|e| Error::io("read", file, &e))?;
            input.extend_from_slice(&text);
            input.push(b'\n');
        }
        let output = Command::new(&layout.program)
            .args(self.common(&layout, data))
            .args(["--bootstrap", "--max-allowed-packet=8M", "--log-warnings=0"])
            .directory(data)
            .stdin(input)
            .run_within(Duration::from_secs(300))?;
        check_bootstrap(&output)?;
        step.finish("");
        Ok(())
    }

    fn start(&self, launch: &Launch<'_>) -> Result<Running> {
        let layout = Self::layout(launch.server)?;
        let words = |data: &Path| {
            let mut words = vec![OsString::from(&layout.program)];
            words.extend(self.common(&layout, data));
            Ok(words)
        };
        let prepare = |data: &Path| self.prepare(launch.server, data, &Silent);
        self.settings.start(launch, &OPTIONS, words, prepare)
    }

    fn settle(&self, running: &mut Running) -> Result<()> {
        analyze_tables(&running.endpoint)
    }

    fn client_threads(&self) -> ClientThreads {
        // This function reads and executes one command of a client; background threads never run it.
        ClientThreads::WithFunction("do_command")
    }

    fn storage_reader(&self) -> Option<StorageReader> {
        Some(read_storage)
    }
}

fn check_bootstrap(output: &Output) -> Result<()> {
    let text = output.stderr_text();
    // The bootstrap continues after a failed statement and may still exit with 0.
    let errors: Vec<String> = text
        .lines()
        .filter(|line| line.contains("ERROR"))
        .take(10)
        .map(str::to_owned)
        .collect();
    if output.success() && errors.is_empty() {
        return Ok(());
    }
    let details = if errors.is_empty() {
        output.tail(14)
    } else {
        errors
    };
    Err(Error::new(
        Kind::Bench,
        format!(
            "the server could not fill an empty data directory (bootstrap {})",
            output.describe_exit()
        ),
    )
    .details(details))
}
