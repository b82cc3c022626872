//! Runs PostgreSQL with a data directory made by `initdb` and a Unix socket, without network.
//!
//! The server serves each connection in a process of its own, a child of the postmaster that leads its own session.
//! [`ServerProcess::Postmaster`] has what follows from this for stopping it.

pub mod client;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::running::{Endpoint, ListenAddress, Running, ServerProcess, StartPlan, Stop};
use super::{
    AdapterKind, AdapterSetup, ClientThreads, Launch, ServerAdapter, StorageCounts, StorageReader,
    part, provide_data,
};
use perfquilt_config::{Disk, Section, Server};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::progress;
use perfquilt_system::process::Command;

use client::{Client, Rows, USER};

/// Part of the identity: changes with the options on the command line.
const OPTIONS_VERSION: u32 = 1;
/// The name of the socket in its folder, which PostgreSQL derives from its port.
const SOCKET: &str = ".s.PGSQL.5432";
/// Timeout of `initdb`, which takes about a second.
const INITDB_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout of one answer to a login that tests whether the server is ready; under valgrind one takes seconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// The adapter `postgresql`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "postgresql",
    check: |server| Settings::read(server).map(drop),
    adapter: |setup| {
        let config = setup.server.config.as_ref();
        let config = config.map(|file| setup.bench_config.join(file));
        if let Some(file) = &config {
            std::fs::metadata(file).map_err(|e| {
                Error::input_unreadable(format!("cannot read the server's configuration: {e}"))
                    .at(file, None)
            })?;
        }
        Ok(Box::new(Postgresql {
            settings: Settings::read(&setup.server)?,
            config,
            setup,
        }))
    },
};

/// `[server.postgresql]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Further options of `initdb`; by default `--encoding=UTF8` and `--locale=C`.
    initdb: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        // A locale of the machine would make sorting depend on the C library's version.
        let options = ["--encoding=UTF8", "--locale=C"];
        Settings {
            initdb: options.map(str::to_owned).to_vec(),
        }
    }
}

impl Settings {
    fn read(server: &Server) -> Result<Self> {
        let section: &Section = &server.settings;
        let settings: Settings = section.parse()?.unwrap_or_default();
        for option in &settings.initdb {
            let name = option.split('=').next().unwrap_or_default();
            // With these the adapter could not find its data or log in.
            if ["-D", "--pgdata", "-U", "--username", "-A", "--auth"].contains(&name)
                || !option.starts_with('-')
            {
                let fault = format!("`{option}` cannot be an option of initdb here");
                return Err(section.error(&["initdb"], fault).hint(
                    "perfquilt sets the data folder, the user and the authentication; write an \
                     option with a value as one word, `--name=value`",
                ));
            }
        }
        Ok(settings)
    }
}

/// Runs `bin/postgres` of a built server.
#[derive(Debug)]
struct Postgresql {
    settings: Settings,
    setup: AdapterSetup,
    config: Option<PathBuf>,
}

impl Postgresql {
    /// Returns the options of every start.
    fn options(&self, data: &Path, folder: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["-D".into(), data.into()];
        let mut set = |setting: OsString| words.extend(["-c".into(), setting]);
        let path = |name: &str, path: &Path| {
            let mut setting = OsString::from(name);
            setting.push("=");
            setting.push(path);
            setting
        };
        if let Some(file) = &self.config {
            set(path("config_file", file));
            // Otherwise it would look for these beside the configuration.
            set(path("hba_file", &data.join("pg_hba.conf")));
            set(path("ident_file", &data.join("pg_ident.conf")));
        }
        set(path("unix_socket_directories", folder));
        for setting in FIXED.iter().chain(durability(self.setup.server.disk)) {
            set((*setting).into());
        }
        words
    }
}

/// Settings of every start, with which the command line overrides the configuration.
const FIXED: &[&str] = &[
    "listen_addresses=",
    "port=5432",
    // The socket's folder is private already.
    "unix_socket_permissions=0700",
    "external_pid_file=",
    // A crashed session must end the server, not restart it in the middle of a measurement.
    "restart_after_crash=off",
    // To standard error, which is the server's log.
    "logging_collector=off",
    "log_destination=stderr",
    // Shared memory in the data folder is removed with it.
    "dynamic_shared_memory_type=mmap",
];

/// Returns the settings that decide what a commit waits for.
fn durability(disk: Disk) -> &'static [&'static str] {
    match disk {
        Disk::Memory => &[
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
        ],
        Disk::Durable => &["fsync=on", "full_page_writes=on", "synchronous_commit=on"],
    }
}

/// Functions that callgrind does not count: waiting for the client, whose cost depends on when its next message
/// arrives, and the report of statistics when a session becomes idle, which depends on the clock.
const UNCOUNTED: &[&str] = &["secure_read", "pgstat_report_stat"];

/// Checks that root can be an ordinary user here, since PostgreSQL refuses to run as root.
fn check_user() -> Result<()> {
    match Command::new("true").ordinary_user().run() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == Kind::Interrupted => Err(error),
        Err(error) => Err(Error::server_settings(
            "PostgreSQL refuses to run as root, and this machine forbids the user namespace in which \
             perfquilt would run it as an ordinary user",
        )
        .details([error.to_string()])
        .hint("run perfquilt as another user, or allow user namespaces (in Docker: --security-opt seccomp=unconfined)")),
    }
}

/// Closes the data folder to other users, which the server requires.
fn make_private(data: &Path) -> Result<()> {
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(data, mode).map_err(|e| Error::io("make private", data, &e))
}

impl ServerAdapter for Postgresql {
    fn identity(&self) -> Result<String> {
        let mut digest = Sha256::new();
        digest.update(format!(
            "postgresql {OPTIONS_VERSION} {:?} {:?}\n",
            self.settings,
            durability(self.setup.server.disk)
        ));
        if let Some(file) = &self.config {
            digest.update(std::fs::read(file).map_err(|e| Error::io("read", file, &e))?);
        }
        Ok(hex::encode(digest.finalize()))
    }

    fn prepare(&self, server: &Path, data: &Path) -> Result<()> {
        let initdb = part(server, "bin/initdb")?;
        check_user()?;
        let step = progress::begin("initdb", None);
        // It tries POSIX's shared memory, and would take System V's, which a sandbox limits.
        let folders = [data.parent().unwrap_or(data), Path::new("/dev/shm")];
        let output = Command::new(&initdb)
            .args(["--no-sync", "--no-instructions", "--auth=trust"])
            .args(["--username", USER])
            .args(&self.settings.initdb)
            .arg("-D")
            .arg(data)
            .writing_to(folders.map(Into::into).to_vec())
            .ordinary_user()
            .run_within(INITDB_TIMEOUT)?;
        if !output.success() {
            return Err(Error::server_data(format!(
                "initdb of the built server {}",
                output.describe_exit()
            ))
            .details(output.tail(14)));
        }
        step.finish("");
        Ok(())
    }

    fn start(&self, launch: &Launch<'_>) -> Result<Running> {
        let postgres = part(launch.server, "bin/postgres")?;
        check_user()?;
        let data = provide_data(self, launch)?;
        make_private(&data)?;
        let mut address = ListenAddress::new(launch.dir, None)?;
        let socket = &mut address.endpoint.socket;
        socket.set_file_name(SOCKET);
        let folder = socket.parent().unwrap_or(launch.dir).to_path_buf();
        let mut words = vec![postgres.into()];
        words.extend(self.options(&data, &folder));
        let mut plan = StartPlan {
            stop: Stop::Interrupt,
            process: ServerProcess::Postmaster,
            uncounted: UNCOUNTED,
            ..StartPlan::new(&self.setup, launch, address, words)
        };
        // Clients of libpq are given the folder, as their host.
        let folder = folder.display().to_string();
        plan.values.insert("socket".to_owned(), folder);
        Running::begin(plan, &mut |endpoint| {
            let probe = Client::connect_within(&endpoint.socket, "postgres", PROBE_TIMEOUT);
            Ok(probe.is_ok())
        })
    }

    fn settle(&self, running: &mut Running) -> Result<()> {
        let socket = &running.endpoint.socket;
        let databases = Client::connect(socket, "postgres")?
            .query("SELECT datname FROM pg_database WHERE datallowconn ORDER BY oid")?;
        for database in databases.into_iter().flatten().flatten() {
            // Plans depend on the statistics, which all clones share. Freezing sets all hint bits, which the first
            // reader of a row would set otherwise.
            Client::connect(socket, &database)?.query("VACUUM (FREEZE, ANALYZE)")?;
        }
        Client::connect(socket, "postgres")?
            .query("CHECKPOINT")
            .map(drop)
    }

    fn client_threads(&self) -> ClientThreads {
        // The loop of a session; the postmaster and its background processes never enter it.
        ClientThreads::WithFunction("PostgresMain")
    }

    fn storage_reader(&self) -> Option<StorageReader> {
        Some(read_storage)
    }
}

/// Reads the cumulative statistics. Release 16 has a view of all input and output, which from 18 on includes the log.
fn read_storage(endpoint: &Endpoint) -> Result<StorageCounts> {
    let mut client = Client::connect(&endpoint.socket, "postgres")?;
    let version = number(&client.query("SHOW server_version_num")?, 0);
    let files = match version {
        160_000.. => "SELECT sum(reads), sum(writes), sum(fsyncs) FROM pg_stat_io",
        _ => {
            "SELECT (SELECT sum(blks_read) FROM pg_stat_database), \
             buffers_checkpoint + buffers_clean + buffers_backend, buffers_backend_fsync FROM pg_stat_bgwriter"
        }
    };
    let files = client.query(files)?;
    let log = match version {
        180_000.. => Rows::new(),
        // Before release 14 nothing counts the log.
        ..140_000 => Rows::new(),
        _ => client.query("SELECT wal_write, wal_sync FROM pg_stat_wal")?,
    };
    let (writes, syncs) = (number(&log, 0), number(&log, 1));
    Ok(StorageCounts::from([
        (Meter::ServerReads, number(&files, 0)),
        (Meter::ServerWrites, number(&files, 1) + writes),
        (Meter::ServerSyncs, number(&files, 2) + syncs),
    ]))
}

/// Returns a number of the first row; 0 without it.
fn number(rows: &Rows, column: usize) -> u64 {
    let value = rows.first().and_then(|row| row.get(column)?.as_deref());
    value.and_then(|text| text.parse().ok()).unwrap_or(0)
}
