//! Runs MariaDB with a bootstrapped data directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::innodb::{InnodbAdapter, Layout, Vendor, check_settings};
use super::{AdapterKind, incomplete};
use perfquilt_model::error::{Error, Result};
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

pub(super) static VENDOR: Vendor = Vendor {
    name: "mariadb",
    options_version: 1,
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
    layout,
    options: |_| Vec::new(),
    filling: "bootstrap",
    fill: bootstrap,
    other: None,
};

/// The adapter `mariadb`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "mariadb",
    check: |server| check_settings(server, "mariadb"),
    adapter: |setup| Ok(Box::new(InnodbAdapter::new(&VENDOR, setup)?)),
};

fn layout(server: &Path) -> Result<Layout> {
    let program = ["bin/mariadbd", "sbin/mariadbd", "bin/mysqld"]
        .iter()
        .map(|name| server.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| incomplete(server, "bin/mariadbd"))?;
    let needed = |name: &str| {
        shared_folder(server, name).ok_or_else(|| incomplete(server, &format!("share/{name}")))
    };
    Ok(Layout {
        program,
        messages: needed("english/errmsg.sys")?,
        charsets: needed("charsets/Index.xml")?.join("charsets"),
    })
}

/// Returns the folder inside `share/` that contains the file `name`.
fn shared_folder(server: &Path, name: &str) -> Option<PathBuf> {
    let folders = SHARE_FOLDERS.iter();
    let mut folders = folders.map(|folder| server.join("share").join(folder));
    folders.find(|folder| folder.join(name).exists())
}

fn bootstrap(command: Command, server: &Path, data: &Path) -> Result<()> {
    let mut input = b"create database test;\ncreate database sbtest;\nuse mysql;\n".to_vec();
    for names in SYSTEM_SQL {
        let mut found = names
            .iter()
            .filter_map(|name| Some(shared_folder(server, name)?.join(name)));
        let missing = || incomplete(server, &format!("share/{}", names[1]));
        let file = found.next().ok_or_else(missing)?;
        let text = std::fs::read(&file).map_err(|e| Error::io("read", &file, &e))?;
        input.extend_from_slice(&text);
        input.push(b'\n');
    }
    let system = data.join("mysql");
    std::fs::create_dir_all(&system).map_err(|e| Error::io("create", &system, &e))?;
    let output = command
        .args(["--bootstrap", "--max-allowed-packet=8M", "--log-warnings=0"])
        .directory(data)
        .stdin(input)
        .run_within(Duration::from_secs(300))?;
    check_bootstrap(&output)
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
    Err(Error::server_data(format!(
        "the server could not fill an empty data directory (bootstrap {})",
        output.describe_exit()
    ))
    .details(details))
}
