//! Runs MariaDB with a bootstrapped data directory and a Unix socket, without network.

mod client;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::running::{Endpoint, ListenAddress, Running, ServerProcess, StartPlan, Stop};
use super::{
    AdapterKind, AdapterSetup, ClientThreads, Instrumentation, Launch, ServerAdapter,
    StorageCounts, StorageReader, command, copy_tree,
};
use perfquilt_config::{Disk, Server};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::process::{Command, Output};

use client::Client;

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

/// The adapter `mariadb`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "mariadb",
    check: |server| check_settings(server, "mariadb"),
    adapter: |setup| Ok(Box::new(Mariadb::of(setup)?)),
};

/// Refuses a section of its own, since the adapter has no settings.
pub(super) fn check_settings(server: &Server, adapter: &str) -> Result<()> {
    match server.settings.parse::<toml::Table>()? {
        None => Ok(()),
        Some(_) => {
            let fault = format!("adapter `{adapter}` has no settings");
            Err(server.settings.error(&[], fault))
        }
    }
}

/// Returns the path of a configuration file.
///
/// # Errors
/// [`Kind::Usage`] when the file is missing, or world-writable so that the server would ignore it.
pub(super) fn configuration(bench_config: &Path, file: &Path) -> Result<PathBuf> {
    let file = bench_config.join(file);
    let meta = std::fs::metadata(&file).map_err(|e| {
        Error::usage(format!("cannot read the server's configuration: {e}")).at(&file, None)
    })?;
    if meta.permissions().mode() & 0o002 != 0 {
        // The server skips such a file with only a warning in its log.
        return Err(
            Error::usage("this file is world-writable, so the server would ignore it")
                .at(&file, None)
                .hint(format!("chmod o-w {}", file.display())),
        );
    }
    Ok(file)
}

/// Runs `bin/mariadbd` of a built server.
#[derive(Debug)]
pub struct Mariadb {
    bench_config: PathBuf,
    config: Option<PathBuf>,
    disk: Disk,
    start_seconds: f64,
    logs: PathBuf,
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
    pub(super) fn of(setup: &AdapterSetup<'_>) -> Result<Self> {
        let adapter = Mariadb::new(
            setup.bench_config.clone(),
            setup.server.config.as_deref(),
            setup.server.start_seconds,
            setup.logs.clone(),
        )?;
        Ok(Mariadb {
            disk: setup.server.disk,
            ..adapter
        })
    }

    /// Creates an adapter whose servers read `config` (a file in the workspace's `bench_config`), must start within
    /// `start_seconds`, and leave their logs in `logs` when they fail.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the file is missing, or world-writable so that the server would ignore it.
    pub fn new(
        bench_config: PathBuf,
        config: Option<&Path>,
        start_seconds: f64,
        logs: PathBuf,
    ) -> Result<Self> {
        let config = config.map(|file| configuration(&bench_config, file));
        let config = config.transpose()?;
        Ok(Mariadb {
            bench_config,
            config,
            disk: Disk::default(),
            start_seconds,
            logs,
        })
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

    /// Returns the options of every run, including the bootstrap. The configuration file must come first.
    fn common(&self, layout: &Layout, data: &Path) -> Vec<OsString> {
        let mut words = vec![match &self.config {
            Some(file) => option("--defaults-file=", file),
            None => "--no-defaults".into(),
        }];
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

pub(super) fn option(name: &str, value: &Path) -> OsString {
    let mut word = OsString::from(name);
    word.push(value);
    word
}

pub(super) fn incomplete(server: &Path, what: &str) -> Error {
    Error::bench(format!("the built server has no {what}"))
        .details([format!("built server: {}", server.display())])
        .hint("check `install` of the recipe in bench-config/perfquilt.toml")
}

impl ServerAdapter for Mariadb {
    fn identity(&self) -> Result<String> {
        let mut digest = Sha256::new();
        digest.update(format!("mariadb {OPTIONS_VERSION}\n"));
        if self.disk == Disk::Durable {
            digest.update(format!("{DURABLE_OPTIONS:?}\n"));
        }
        if let Some(file) = &self.config {
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
        let data = launch.dir.join("data");
        match launch.template {
            Some(template) => copy_tree(template, &data)?,
            None if data.exists() => {}
            None => self.prepare(launch.server, &data, &perfquilt_model::progress::Silent)?,
        }
        let address = ListenAddress::new(launch.dir, None)?;
        let mut words = vec![OsString::from(&layout.program)];
        words.extend(self.common(&layout, &data));
        words.extend([
            "--skip-networking".into(),
            option("--socket=", &address.socket),
            option("--pid-file=", &launch.dir.join("server.pid")),
        ]);
        if self.disk == Disk::Durable {
            words.extend(DURABLE_OPTIONS.map(OsString::from));
        }
        if launch.filling {
            words.push("--innodb-fast-shutdown=0".into());
        }
        if matches!(launch.instrumentation, Instrumentation::Callgrind { .. }) {
            words.extend(CALLGRIND_OPTIONS.map(OsString::from));
        }
        let values = command::placeholder_values(launch, &address, &self.bench_config);
        let plan = StartPlan {
            launch,
            words,
            env: BTreeMap::new(),
            address,
            stop: Stop::Signal { may_kill: false },
            process: ServerProcess::Group,
            start_seconds: self.start_seconds,
            kept_logs: self.logs.clone(),
            uncounted: UNCOUNTED,
            values,
        };
        let mut running = Running::begin(plan, &mut |endpoint| Ok(sends_greeting(endpoint)))?;
        if matches!(launch.instrumentation, Instrumentation::Callgrind { .. }) {
            let snapshot = stop_purge(&running.endpoint).map_err(|error| running.explain(error))?;
            running.hold(snapshot);
        }
        Ok(running)
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

/// Computes the statistics of all tables.
pub(super) fn analyze_tables(endpoint: &Endpoint) -> Result<()> {
    let mut client = Client::connect(&endpoint.socket)?;
    let tables = client.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES \
         WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN \
         ('mysql', 'information_schema', 'performance_schema', 'sys')",
    )?;
    for table in tables {
        let quoted: Vec<String> = table
            .iter()
            .map(|name| format!("`{}`", name.replace('`', "``")))
            .collect();
        // Query plans depend on these statistics, so all clones of the data must share them.
        client.query(&format!("ANALYZE TABLE {}", quoted.join(".")))?;
    }
    Ok(())
}

/// Opens a snapshot, which stops the purge of newer row versions as long as it is open.
///
/// The progress of the purge of old row versions affects the cost of updates. Under valgrind, where one thread runs
/// at a time, that progress is random: the instructions of an update workload differ by 30 % from start to start
/// with purge and by less than 0.1 % without.
pub(super) fn stop_purge(endpoint: &Endpoint) -> Result<Client> {
    let mut client = Client::connect(&endpoint.socket)?;
    client.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
    Ok(client)
}

/// Functions that read from the client. If the next packet has not arrived, the server polls, waits and polls again,
/// so that the cost depends on timing.
const UNCOUNTED: &[&str] = &["vio_read"];

/// Options with which a commit waits until the disk has stored it, whatever the configuration says.
const DURABLE_OPTIONS: [&str; 4] = [
    "--innodb-flush-log-at-trx-commit=1",
    "--loose-sync-binlog=1",
    "--innodb-doublewrite=1",
    "--innodb-flush-method=fsync",
];

/// Options for running under valgrind.
const CALLGRIND_OPTIONS: [&str; 3] = [
    // The server hangs at start with io_uring.
    "--innodb-use-native-aio=0",
    // Releases with this option otherwise reserve terabytes of address space. They round the value up to at
    // least the size of the pool.
    "--loose-innodb-buffer-pool-size-max=1",
    // Resolving a stack under valgrind takes minutes.
    "--skip-stack-trace",
];

/// Whether the server sends its greeting: a packet with a 4-byte header whose first byte of content is the
/// protocol version, 10 (255 marks an error, such as too many connections).
pub(super) fn sends_greeting(endpoint: &Endpoint) -> bool {
    let greeting = || -> std::io::Result<[u8; 5]> {
        let mut stream = UnixStream::connect(&endpoint.socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        Ok(head)
    };
    greeting().is_ok_and(|head| head[4] == 10)
}

/// Reads InnoDB's counters of data files and logs.
pub(super) fn read_storage(endpoint: &Endpoint) -> Result<StorageCounts> {
    let mut client = Client::connect(&endpoint.socket)?;
    let rows = client.query("SHOW GLOBAL STATUS LIKE 'Innodb_data_%'")?;
    let value = |name: &str| {
        let found = rows
            .iter()
            .find(|row| row.first().is_some_and(|first| first == name));
        let number = found.and_then(|row| row.get(1)?.parse().ok());
        number.ok_or_else(|| Error::bench(format!("the server has no status variable {name}")))
    };
    Ok(StorageCounts {
        reads: value("Innodb_data_reads")?,
        writes: value("Innodb_data_writes")?,
        syncs: value("Innodb_data_fsyncs")?,
    })
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
