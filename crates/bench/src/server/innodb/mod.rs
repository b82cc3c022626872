//! The adapter of MariaDB and MySQL: their start on a Unix socket, InnoDB's background work and its counters.

mod client;
pub(crate) mod packets;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::running::{Endpoint, ListenAddress, Running, StartPlan};
use super::{
    AdapterSetup, ClientThreads, Instrumentation, Launch, ServerAdapter, StorageCounts,
    StorageReader, provide_data,
};
use perfquilt_config::{Disk, Server};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::progress;
use perfquilt_system::process::Command;

use client::Client;

/// A server of the family: what MariaDB and MySQL do not share.
pub(super) struct Vendor {
    /// Its name in the adapter's identity.
    pub name: &'static str,
    /// Part of the identity: changes with the options on the command line.
    pub options_version: u32,
    /// Options with which a commit waits until the disk has stored it, whatever the configuration says.
    pub durable: &'static [&'static str],
    /// Options for running under valgrind.
    pub callgrind: &'static [&'static str],
    /// Functions whose instructions are not counted.
    pub uncounted: &'static [&'static str],
    /// Finds the files of a built server.
    pub layout: fn(server: &Path) -> Result<Layout>,
    /// Options of every run beside the common ones: some with the folder of the data, others without a value.
    pub options: fn(data: &Path) -> Vec<OsString>,
    /// The name of the step that fills an empty folder with data.
    pub filling: &'static str,
    /// Fills an empty folder, which need not exist, with the command that runs the built server.
    pub fill: fn(command: Command, server: &Path, data: &Path) -> Result<()>,
    /// A program, and the vendor of the built servers that have it instead.
    pub other: Option<(&'static str, &'static Vendor)>,
}

/// The parts of a built server that the adapters need.
pub(super) struct Layout {
    /// The server's program.
    pub program: PathBuf,
    /// The folder with its messages.
    pub messages: PathBuf,
    /// The folder with its character sets.
    pub charsets: PathBuf,
}

/// Runs the servers of a vendor on a Unix socket, without network.
pub(super) struct InnodbAdapter {
    vendor: &'static Vendor,
    setup: AdapterSetup,
    /// The servers' own configuration file.
    config: Option<PathBuf>,
}

impl InnodbAdapter {
    /// Creates the adapter of a workspace. Refuses a configuration file that the server would ignore.
    pub fn new(vendor: &'static Vendor, setup: AdapterSetup) -> Result<Self> {
        let file = setup.server.config.as_deref();
        let config = file.map(|file| configuration(&setup.bench_config, file));
        Ok(InnodbAdapter {
            vendor,
            config: config.transpose()?,
            setup,
        })
    }

    fn vendor_of(&self, server: &Path) -> &'static Vendor {
        match self.vendor.other {
            Some((program, other)) if server.join(program).exists() => other,
            _ => self.vendor,
        }
    }

    fn identity_of(&self, vendor: &Vendor) -> Result<String> {
        let mut digest = Sha256::new();
        digest.update(format!("{} {}\n", vendor.name, vendor.options_version));
        if let Some((_, other)) = vendor.other {
            digest.update(self.identity_of(other)?);
        }
        if self.setup.server.disk == Disk::Durable {
            digest.update(format!("{:?}\n", vendor.durable));
        }
        if let (Some(file), None) = (&self.config, vendor.other) {
            digest.update(std::fs::read(file).map_err(|e| Error::io("read", file, &e))?);
        }
        Ok(hex::encode(digest.finalize()))
    }

    /// Returns the program of a built server and the options of its every run, including the one that fills the data.
    fn words(&self, server: &Path, data: &Path) -> Result<Vec<OsString>> {
        let vendor = self.vendor_of(server);
        let layout = (vendor.layout)(server)?;
        let mut words = vec![
            layout.program.into_os_string(),
            // It must come first.
            match &self.config {
                Some(file) => option("--defaults-file=", file),
                None => "--no-defaults".into(),
            },
            option("--datadir=", data),
            option("--lc-messages-dir=", &layout.messages),
            option("--character-sets-dir=", &layout.charsets),
            // Keep the server from loading plugins from its compiled-in folder.
            option("--plugin-dir=", data),
            option("--tmpdir=", data),
        ];
        words.extend((vendor.options)(data));
        if rustix::process::geteuid().is_root() {
            // It refuses to run as root without this option.
            words.push("--user=root".into());
        }
        Ok(words)
    }
}

impl ServerAdapter for InnodbAdapter {
    fn identity(&self) -> Result<String> {
        self.identity_of(self.vendor)
    }

    fn prepare(&self, server: &Path, data: &Path) -> Result<()> {
        let vendor = self.vendor_of(server);
        let words = self.words(server, data)?;
        let step = progress::begin(vendor.filling, None);
        let command = Command::new(&words[0]).args(&words[1..]);
        (vendor.fill)(command.writing_beside(data), server, data)?;
        step.finish("");
        Ok(())
    }

    fn start(&self, launch: &Launch<'_>) -> Result<Running> {
        let vendor = self.vendor_of(launch.server);
        let data = provide_data(self, launch)?;
        let address = ListenAddress::new(launch.dir, None)?;
        let mut words = self.words(launch.server, &data)?;
        words.extend([
            "--skip-networking".into(),
            option("--socket=", &address.endpoint.socket),
            option("--pid-file=", &launch.dir.join("server.pid")),
        ]);
        if self.setup.server.disk == Disk::Durable {
            words.extend(vendor.durable.iter().map(OsString::from));
        }
        if launch.filling {
            words.push("--innodb-fast-shutdown=0".into());
        }
        let is_callgrind = matches!(launch.instrumentation, Instrumentation::Callgrind { .. });
        if is_callgrind {
            words.extend(vendor.callgrind.iter().map(OsString::from));
        }
        let plan = StartPlan {
            uncounted: vendor.uncounted,
            ..StartPlan::new(&self.setup, launch, address, words)
        };
        let mut running = Running::begin(plan, &mut |endpoint| Ok(sends_greeting(endpoint)))?;
        if is_callgrind {
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

    fn shares_data(&self, server: &Path, other: &Path) -> bool {
        self.vendor_of(server).name == self.vendor_of(other).name
    }

    fn storage_reader(&self) -> Option<StorageReader> {
        Some(read_storage)
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
        Error::input_unreadable(format!("cannot read the server's configuration: {e}"))
            .at(&file, None)
    })?;
    if meta.permissions().mode() & 0o002 != 0 {
        // The server skips such a file with only a warning in its log.
        return Err(Error::server_settings(
            "this file is world-writable, so the server would ignore it",
        )
        .at(&file, None)
        .hint(format!("chmod o-w {}", file.display())));
    }
    Ok(file)
}

/// Returns the option `name`, which ends in `=`, with a path as its value.
pub(super) fn option(name: &str, value: &Path) -> OsString {
    let mut word = OsString::from(name);
    word.push(value);
    word
}

/// Computes the statistics of all tables.
fn analyze_tables(endpoint: &Endpoint) -> Result<()> {
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
fn read_storage(endpoint: &Endpoint) -> Result<StorageCounts> {
    let mut client = Client::connect(&endpoint.socket)?;
    let rows = client.query("SHOW GLOBAL STATUS LIKE 'Innodb_data_%'")?;
    let value = |name: &str| {
        let found = rows
            .iter()
            .find(|row| row.first().is_some_and(|first| first == name));
        let number = found.and_then(|row| row.get(1)?.parse().ok());
        number.ok_or_else(|| {
            Error::server_failed(format!("the server has no status variable {name}"))
        })
    };
    Ok(StorageCounts::from([
        (Meter::ServerReads, value("Innodb_data_reads")?),
        (Meter::ServerWrites, value("Innodb_data_writes")?),
        (Meter::ServerSyncs, value("Innodb_data_fsyncs")?),
    ]))
}
