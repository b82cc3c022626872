//! Common parts of MariaDB and MySQL: their protocol on a Unix socket, InnoDB's background work and its counters.

mod client;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::running::{Endpoint, ListenAddress, Running, ServerProcess, StartPlan, Stop};
use super::{AdapterSetup, Instrumentation, Launch, StorageCounts, command, copy_tree};
use perfquilt_config::{Disk, Server};
use perfquilt_model::error::{Error, Result};

use client::Client;

/// The workspace's settings of its servers.
#[derive(Debug, Clone)]
pub(super) struct ServerSettings {
    /// The folder that relative paths start at.
    pub bench_config: PathBuf,
    /// The servers' own configuration file.
    pub config: Option<PathBuf>,
    /// Where the data are.
    pub disk: Disk,
    /// The servers must answer within this time.
    pub start_seconds: f64,
    /// The folder for the logs of servers that fail.
    pub logs: PathBuf,
}

/// Differences between the two servers at their start.
pub(super) struct ServerOptions {
    /// Options with which a commit waits until the disk has stored it, whatever the configuration says.
    pub durable: &'static [&'static str],
    /// Options for running under valgrind.
    pub callgrind: &'static [&'static str],
    /// Functions whose instructions are not counted.
    pub uncounted: &'static [&'static str],
}

impl ServerSettings {
    /// Returns the settings of a workspace.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the configuration file is missing, or world-writable so
    /// that the server would ignore it.
    pub fn of(setup: &AdapterSetup<'_>) -> Result<Self> {
        let file = setup.server.config.as_deref();
        let config = file.map(|file| configuration(&setup.bench_config, file));
        Ok(ServerSettings {
            bench_config: setup.bench_config.clone(),
            config: config.transpose()?,
            disk: setup.server.disk,
            start_seconds: setup.server.start_seconds,
            logs: setup.logs.clone(),
        })
    }

    /// Returns the option that names the configuration file. It must come first.
    pub fn config_option(&self) -> OsString {
        match &self.config {
            Some(file) => option("--defaults-file=", file),
            None => "--no-defaults".into(),
        }
    }

    /// Starts a server whose program and options, which `words` returns for the folder of the data, are those of its every
    /// run. Where there are no data yet, `prepare` makes them.
    pub fn start(
        &self,
        launch: &Launch<'_>,
        options: &ServerOptions,
        words: impl FnOnce(&Path) -> Result<Vec<OsString>>,
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Running> {
        let data = launch.dir.join("data");
        match launch.template {
            Some(template) => copy_tree(template, &data)?,
            None if data.exists() => {}
            None => prepare(&data)?,
        }
        let address = ListenAddress::new(launch.dir, None)?;
        let mut words = words(&data)?;
        words.extend([
            "--skip-networking".into(),
            option("--socket=", &address.socket),
            option("--pid-file=", &launch.dir.join("server.pid")),
        ]);
        if self.disk == Disk::Durable {
            words.extend(options.durable.iter().map(OsString::from));
        }
        if launch.filling {
            words.push("--innodb-fast-shutdown=0".into());
        }
        let is_callgrind = matches!(launch.instrumentation, Instrumentation::Callgrind { .. });
        if is_callgrind {
            words.extend(options.callgrind.iter().map(OsString::from));
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
            uncounted: options.uncounted,
            values,
        };
        let mut running = Running::begin(plan, &mut |endpoint| Ok(sends_greeting(endpoint)))?;
        if is_callgrind {
            let snapshot = stop_purge(&running.endpoint).map_err(|error| running.explain(error))?;
            running.hold(snapshot);
        }
        Ok(running)
    }
}

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

/// Returns the path of a configuration file, if the server would read it.
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

/// Returns the option `name`, which ends in `=`, with a path as its value.
pub(super) fn option(name: &str, value: &Path) -> OsString {
    let mut word = OsString::from(name);
    word.push(value);
    word
}

/// Returns the error for a built server without the file `what`.
pub(super) fn incomplete(server: &Path, what: &str) -> Error {
    Error::bench(format!("the built server has no {what}"))
        .details([format!("built server: {}", server.display())])
        .hint("check `install` of the recipe in bench-config/perfquilt.toml")
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
fn stop_purge(endpoint: &Endpoint) -> Result<Client> {
    let mut client = Client::connect(&endpoint.socket)?;
    client.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
    Ok(client)
}

/// Whether the server sends its greeting: a packet with a 4-byte header whose first byte of content is the
/// protocol version, 10 (255 marks an error, such as too many connections).
fn sends_greeting(endpoint: &Endpoint) -> bool {
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
