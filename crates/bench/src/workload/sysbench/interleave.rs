//! Runs one sysbench process over all servers of a block.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{SysbenchSettings, command_line, data, result};
use crate::server::Running;
use crate::workload::{BlockSlices, ClientFailure, Environment, TimedBlock};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_system::process::{Command, Sink};

/// Seconds allowed beyond warm-up and measuring: for connecting, reading all tables, a slow machine.
const EXTRA_SECONDS: f64 = 120.0;

/// Interval between checks for the begin and the end of the timed slices.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the command that runs sysbench with the driver, which writes its results to `folder`.
pub(super) fn driver(
    environment: &Environment,
    servers: &[&Running],
    settings: &SysbenchSettings,
    folder: &Path,
    seed: u64,
) -> Result<Command> {
    let joined = |text: &dyn Fn(&Running) -> String| {
        let texts: Vec<String> = servers.iter().map(|running| text(running)).collect();
        texts.join(",")
    };
    let sockets = joined(&|running| running.endpoint.socket.display().to_string());
    let pids = joined(&|running| running.pid().to_string());
    if sockets.matches(',').count() + 1 != servers.len() {
        return Err(Error::internal(format!(
            "a socket's path has a comma: {sockets}"
        )));
    }
    let script = command_line::find_script(&environment.bench_config, &settings.script)?;
    let database = data::database(&data::key(environment, settings)?);
    let driver = environment.folder().join("driver.lua");
    let command = command_line::command(&driver, &sockets, &database)
        .args(command_line::options(settings, None))
        .arg(format!("--threads={}", settings.threads))
        .args(["--time=0", "--events=0", "run"])
        .env("PERFQUILT_SCRIPT", &script)
        .env("PERFQUILT_SOCKETS", &sockets)
        .env("PERFQUILT_PIDS", &pids)
        .env("PERFQUILT_OUT", folder)
        // Lua represents integers exactly only up to 2^53.
        .env("PERFQUILT_SEED", (seed >> 12).to_string())
        .stdout(Sink::File(folder.join("log")))
        .stderr(Sink::File(folder.join("log")));
    Ok(command)
}

pub(super) fn run(
    environment: &Environment,
    servers: &mut [(Point, Running)],
    item: &TimedBlock<'_>,
    settings: &SysbenchSettings,
) -> Result<BlockSlices, ClientFailure> {
    let folder = environment.results_folder()?;
    let points: Vec<Point> = servers.iter().map(|(point, _)| *point).collect();
    let references: Vec<&Running> = servers.iter().map(|(_, running)| running).collect();
    for running in &references {
        environment
            .placement
            .settle(running.pid(), settings.threads);
    }
    let command = driver(environment, &references, settings, folder.path(), item.seed)?
        .env("PERFQUILT_MODE", "interleave")
        .env("PERFQUILT_ACKNOWLEDGED", "1")
        .env("PERFQUILT_ATTEMPT", item.attempt.to_string())
        .env("PERFQUILT_SECONDS", item.seconds.to_string())
        .env("PERFQUILT_WARMUP_SECONDS", item.warm_up_seconds.to_string())
        .env(
            "PERFQUILT_SLICE_TRANSACTIONS",
            settings.slice_transactions.to_string(),
        );
    let mut child = environment
        .placement
        .client(command, settings.threads)
        .spawn()?;
    let limit = item.warm_up_seconds + 4.0 * item.seconds + EXTRA_SECONDS;
    let limit = Duration::from_secs_f64(limit);
    let started = Instant::now();
    let mut status = None;
    let mut wait_for = |file: &str, not_before: Duration| -> Result<()> {
        let file = folder.path().join(file);
        if status.is_none() {
            status = child.wait_within(not_before)?;
        }
        while status.is_none() && !file.exists() && started.elapsed() < limit {
            status = child.wait_within(POLL_INTERVAL)?;
        }
        Ok(())
    };
    // The driver waits at both until its file is removed.
    let acknowledge = |file: &str| {
        let _ = std::fs::remove_file(folder.path().join(file));
    };
    wait_for("timed", Duration::from_secs_f64(item.warm_up_seconds))?;
    item.slices_begin();
    acknowledge("timed");
    wait_for("measured", Duration::from_secs_f64(item.seconds))?;
    item.slices_end();
    acknowledge("measured");
    if status.is_none() {
        status = child.wait_within(limit.saturating_sub(started.elapsed()))?;
    }
    let Some(status) = status else {
        return Err(Error::client_failed(format!(
            "workload {} did not end within {:.0} s",
            item.workload.name,
            limit.as_secs_f64()
        ))
        .hint("a server has stopped answering, or a transaction takes minutes")
        .into());
    };
    if status.success() {
        return Ok(result::read_slices(&folder.path().join("slices"), &points)?);
    }
    Err(failure(folder.path(), &item.workload.name, &points))
}

/// Returns why the driver of `folder` ended and on which server.
pub(super) fn failure(folder: &Path, workload: &str, points: &[Point]) -> ClientFailure {
    let log = std::fs::read(folder.join("log")).unwrap_or_default();
    let (server, lines) = result::read_failure(&folder.join("error")).unwrap_or_else(|| {
        let log = String::from_utf8_lossy(&log);
        (0, command_line::error_lines(&log))
    });
    ClientFailure {
        point: server
            .checked_sub(1)
            .and_then(|index| points.get(index))
            .copied(),
        error: Error::client_failed(format!("workload {workload} failed")).details(lines),
    }
}
