//! Runs MySQL with an initialised data directory. Servers with a `bin/mariadbd` are run as MariaDB, so that one experiment
//! can compare the two.

use std::path::Path;
use std::time::Duration;

use super::innodb::{InnodbAdapter, Layout, Vendor, check_settings, option};
use super::{AdapterKind, mariadb, part};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::Command;

/// Timeout of the initialisation.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(300);

/// The databases of clients, which the initialisation creates.
const DATABASES: &str = "CREATE DATABASE test;\nCREATE DATABASE sbtest;\n";

static VENDOR: Vendor = Vendor {
    name: "mysql",
    options_version: 2,
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
    layout,
    options: |data| {
        vec![
            // Keeps the server from using files of the compiled-in folder.
            option("--secure-file-priv=", data),
            // The X plugin would listen on a socket of its own, outside of the server's folder.
            "--loose-mysqlx=OFF".into(),
        ]
    },
    filling: "initialize",
    fill: initialize,
    other: Some(("bin/mariadbd", &mariadb::VENDOR)),
};

/// The adapter `mysql`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "mysql",
    check: |server| check_settings(server, "mysql"),
    adapter: |setup| Ok(Box::new(InnodbAdapter::new(&VENDOR, setup)?)),
};

fn layout(server: &Path) -> Result<Layout> {
    let messages = part(server, "share/english/errmsg.sys")?;
    Ok(Layout {
        messages: messages.ancestors().nth(2).unwrap_or(server).to_path_buf(),
        program: part(server, "bin/mysqld")?,
        charsets: part(server, "share/charsets")?,
    })
}

fn initialize(command: Command, server: &Path, data: &Path) -> Result<()> {
    std::fs::create_dir_all(data).map_err(|e| Error::io("create", data, &e))?;
    // The folder of the data must be empty.
    let statements = tempfile::NamedTempFile::new()
        .map_err(|e| Error::io("create a file in", &std::env::temp_dir(), &e))?;
    std::fs::write(statements.path(), DATABASES)
        .map_err(|e| Error::io("write", statements.path(), &e))?;
    // Makes a user `root` without a password.
    let output = command
        .arg("--initialize-insecure")
        .arg(option("--init-file=", statements.path()))
        .directory(server)
        .run_within(INITIALIZE_TIMEOUT)?;
    if output.success() {
        return Ok(());
    }
    Err(Error::server_data(format!(
        "the server could not fill an empty data directory (initialisation {})",
        output.describe_exit()
    ))
    .details(output.tail(14)))
}

#[cfg(test)]
mod tests {
    use super::super::ServerAdapter;
    use super::super::tests::innodb_adapter;
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

    fn adapter(folder: &Path) -> Box<dyn ServerAdapter> {
        innodb_adapter(&KIND, folder, None).unwrap()
    }

    #[test]
    fn data_is_initialised_in_an_empty_folder() {
        let server = server("mysqld");
        let data = server.path().join("data");
        adapter(server.path())
            .prepare(server.path(), &data)
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
            .prepare(folder.path(), &data)
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
