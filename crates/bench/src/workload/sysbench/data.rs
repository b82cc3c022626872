//! Prepares data sets: the content of a workload's tables before its server starts.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{SysbenchSettings, command_line};
use crate::server::Running;
use crate::workload::Environment;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::Command;

/// Options that determine the data prepared by sysbench's own scripts; workloads with equal values share
/// their data.
const TABLE_OPTIONS: [&str; 7] = [
    "tables",
    "table-size",
    "auto-inc",
    "secondary",
    "create-secondary",
    "mysql-storage-engine",
    "rand-type",
];

/// Timeout for filling a data set.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Returns the script that prepares the data, and the options it gets (`None`: all).
fn preparation(settings: &SysbenchSettings) -> (&str, Option<&'static [&'static str]>) {
    match &settings.prepare {
        Some(script) => (script, Some(&TABLE_OPTIONS)),
        None if settings.script.ends_with(".lua") => (&settings.script, None),
        // The scripts of sysbench's `oltp_…` family all prepare the same tables.
        None if settings.script.starts_with("oltp_") => ("oltp_read_only", Some(&TABLE_OPTIONS)),
        None => (&settings.script, Some(&TABLE_OPTIONS)),
    }
}

/// Returns the digest of everything that determines the data.
pub(super) fn key(environment: &Environment, settings: &SysbenchSettings) -> Result<String> {
    let (script, only) = preparation(settings);
    let mut digest = Sha256::new();
    digest.update(script);
    for option in command_line::options(settings, only) {
        digest.update(format!("\n{option}"));
    }
    if let Some(path) = command_line::own_script(&environment.bench_config, script) {
        digest.update(std::fs::read(&path).map_err(|e| Error::io("read", &path, &e))?);
    }
    Ok(hex::encode(digest.finalize())[..16].to_owned())
}

/// Returns the database of a data set.
pub(super) fn database(key: &str) -> String {
    format!("perfquilt_{key}")
}

/// Creates the data set on a running server.
pub(super) fn fill(
    environment: &Environment,
    settings: &SysbenchSettings,
    running: &Running,
) -> Result<()> {
    let (script, only) = preparation(settings);
    let socket = running.endpoint.socket.to_string_lossy();
    let database = database(&key(environment, settings)?);
    let sql = environment.folder().join("sql.lua");
    // Every installation has this database.
    run(command_line::command(&sql, &socket, "mysql")
        .env("PERFQUILT_DATABASE", &database)
        .arg("create"))?;
    let script = command_line::find_script(&environment.bench_config, script)?;
    run(command_line::command(&script, &socket, &database)
        .args(command_line::options(settings, only))
        .arg("--threads=1")
        // A fixed seed makes the data reproducible.
        .arg("--rand-seed=1")
        .arg("prepare"))?;
    run(command_line::command(&sql, &socket, &database).arg("analyze"))
}

fn run(command: Command) -> Result<()> {
    let output = command.run_within(TIMEOUT)?;
    if output.success() {
        return Ok(());
    }
    let text = output.stdout_text() + &output.stderr_text();
    Err(Error::server_data(format!(
        "sysbench could not prepare the data ({})",
        output.describe_exit()
    ))
    .details(command_line::error_lines(&text))
    .hint(format!("the command was: {}", command.shown())))
}
