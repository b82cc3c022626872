//! Runs MySQL with an initialised data directory and a Unix socket, without network. Servers with a `bin/mariadbd` are
//! left to MariaDB's adapter, so that one experiment can compare the two.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::innodb::{
    ServerOptions, ServerSettings, analyze_tables, check_settings, incomplete, option, read_storage,
};
use super::mariadb::Mariadb;
use super::running::Running;
use super::{AdapterKind, ClientThreads, Launch, ServerAdapter, StorageReader};
use perfquilt_config::Disk;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::{Progress, Silent};
use perfquilt_system::process::Command;

/// Part of the identity: changes with the options on the command line.
const OPTIONS_VERSION: u32 = 2;

/// Timeout of the initialisation.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(300);

/// The databases of clients, which the initialisation creates.
const DATABASES: &str = "CREATE DATABASE test;\nCREATE DATABASE sbtest;\n";

const OPTIONS: ServerOptions = ServerOptions {
    durable: &[
        "--innodb-flush-log-at-trx-commit=1",
        "--sync-binlog=1",
        "--innodb-doublewrite=ON",
        "--innodb-flush-method=fsync",
    ],
    callgrind: &[
        "--innodb-use-native-aio=0",
        // Resolving a stack under valgrind takes minutes.
        "--skip-stack-trace",
    ],
    // Reads from the client (see MariaDB's), which here has a C++ name.
    uncounted: &["vio_read(*"],
};

/// The adapter `mysql`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "mysql",
    check: |server| check_settings(server, "mysql"),
    adapter: |setup| Ok(Box::new(Mysql::new(ServerSettings::of(setup)?))),
};

/// Runs `bin/mysqld` of a built server.
#[derive(Debug)]
struct Mysql {
    mariadb: Mariadb,
    settings: ServerSettings,
}

fn is_mariadb(server: &Path) -> bool {
    server.join("bin/mariadbd").exists()
}

/// Returns a file of the built server.
fn part(server: &Path, name: &str) -> Result<PathBuf> {
    let path = server.join(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(incomplete(server, name))
    }
}

impl Mysql {
    fn new(settings: ServerSettings) -> Self {
        Mysql {
            mariadb: Mariadb::new(settings.clone()),
            settings,
        }
    }

    /// Returns the program and the options of every run, including the initialisation.
    fn common(&self, server: &Path, data: &Path) -> Result<Vec<OsString>> {
        let messages = part(server, "share/english/errmsg.sys")?;
        let messages = messages.ancestors().nth(2).unwrap_or(server);
        let mut words: Vec<OsString> = vec![
            part(server, "bin/mysqld")?.into(),
            self.settings.config_option(),
            option("--datadir=", data),
            option("--lc-messages-dir=", messages),
            option("--character-sets-dir=", &part(server, "share/charsets")?),
            // Keep the server from loading plugins and from using files of the compiled-in folders.
            option("--plugin-dir=", data),
            option("--tmpdir=", data),
            option("--secure-file-priv=", data),
            // The X plugin would listen on a socket of its own, outside of the server's folder.
            "--loose-mysqlx=OFF".into(),
        ];
        if rustix::process::geteuid().is_root() {
            // It refuses to run as root without this option.
            words.push("--user=root".into());
        }
        Ok(words)
    }
}

impl ServerAdapter for Mysql {
    fn identity(&self) -> Result<String> {
        let mut digest = Sha256::new();
        digest.update(format!("mysql {OPTIONS_VERSION}\n"));
        digest.update(self.mariadb.identity()?);
        if self.settings.disk == Disk::Durable {
            digest.update(format!("{:?}\n", OPTIONS.durable));
        }
        Ok(hex::encode(digest.finalize()))
    }

    fn prepare(&self, server: &Path, data: &Path, progress: &dyn Progress) -> Result<()> {
        if is_mariadb(server) {
            return self.mariadb.prepare(server, data, progress);
        }
        std::fs::create_dir_all(data).map_err(|e| Error::io("create", data, &e))?;
        let words = self.common(server, data)?;
        let step = progress.begin("initialize", None);
        // The folder of the data must be empty.
        let statements = tempfile::NamedTempFile::new()
            .map_err(|e| Error::io("create a file in", &std::env::temp_dir(), &e))?;
        std::fs::write(statements.path(), DATABASES)
            .map_err(|e| Error::io("write", statements.path(), &e))?;
        // Makes a user `root` without a password.
        let output = Command::new(&words[0])
            .args(&words[1..])
            .arg("--initialize-insecure")
            .arg(option("--init-file=", statements.path()))
            .directory(server)
            .run_within(INITIALIZE_TIMEOUT)?;
        if !output.success() {
            return Err(Error::bench(format!(
                "the server could not fill an empty data directory (initialisation {})",
                output.describe_exit()
            ))
            .details(output.tail(14)));
        }
        step.finish("");
        Ok(())
    }

    fn start(&self, launch: &Launch<'_>) -> Result<Running> {
        if is_mariadb(launch.server) {
            return self.mariadb.start(launch);
        }
        let words = |data: &Path| self.common(launch.server, data);
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

    fn shares_data(&self, server: &Path, other: &Path) -> bool {
        is_mariadb(server) == is_mariadb(other)
    }

    fn storage_reader(&self) -> Option<StorageReader> {
        Some(read_storage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder laid out as a built server, whose program writes its arguments to `args` in the folder of the data.
    fn server(program: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "share/english", "share/charsets"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("share/english/errmsg.sys"), "").unwrap();
        let binary = folder.path().join("bin").join(program);
        let script = "#!/bin/sh\nfor word; do case $word in --datadir=*) data=${word#*=};; esac; done\n\
                      ls \"$data\" > \"$0.found\"; printf '%s\\n' \"$@\" > \"$data/args\"\n";
        std::fs::write(&binary, script).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&binary, mode).unwrap();
        folder
    }

    fn adapter(folder: &Path) -> Mysql {
        Mysql::new(ServerSettings {
            bench_config: folder.into(),
            config: None,
            disk: Disk::default(),
            start_seconds: 5.0,
            logs: folder.into(),
        })
    }

    #[test]
    fn data_is_initialised_in_an_empty_folder() {
        let server = server("mysqld");
        let data = server.path().join("data");
        adapter(server.path())
            .prepare(server.path(), &data, &Silent)
            .unwrap();
        let found = std::fs::read_to_string(server.path().join("bin/mysqld.found")).unwrap();
        assert_eq!(found, "");
        let args = std::fs::read_to_string(data.join("args")).unwrap();
        let args: Vec<&str> = args.lines().collect();
        assert_eq!(args[0], "--no-defaults");
        let share = format!("--lc-messages-dir={}/share", server.path().display());
        for expected in ["--initialize-insecure", &share] {
            assert!(args.contains(&expected), "{args:?}");
        }
    }

    #[test]
    fn an_incomplete_server_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let error = adapter(folder.path())
            .prepare(folder.path(), &data, &Silent)
            .unwrap_err();
        assert!(
            error.message().contains("share/english/errmsg.sys"),
            "{error}"
        );
    }

    #[test]
    fn mysql_and_mariadb_have_data_of_their_own() {
        let (mysql, mariadb) = (server("mysqld"), server("mariadbd"));
        let adapter = adapter(mysql.path());
        assert!(!adapter.shares_data(mysql.path(), mariadb.path()));
        assert!(adapter.shares_data(mysql.path(), mysql.path()));
        assert!(adapter.shares_data(mariadb.path(), mariadb.path()));
    }
}
