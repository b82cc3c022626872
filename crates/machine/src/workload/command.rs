//! Runs workloads that are commands. They alternate between servers by whole client runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::reading::{OperationTime, Patterns};
use super::rounds::rounds;
use super::{BlockSlices, ClientFailure, Clients, TimedBlock};
use crate::server::Running;
use perfquilt_config::{CommandWorkload, Workload};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;
use perfquilt_system::process::{Command, Output};

/// Returns the client's command for one server.
fn command(settings: &CommandWorkload, words: &[String], running: &Running) -> Result<Command> {
    let command = Command::from_words(&running.expand(words)?)?;
    Ok(match &settings.directory {
        Some(directory) => {
            let words = running.expand(std::slice::from_ref(directory))?;
            command.directory(Path::new(&words.concat()))
        }
        None => command,
    })
}

fn run_client(
    workload: &Workload,
    settings: &CommandWorkload,
    command: &Command,
) -> Result<Output> {
    let output = command
        .run_within(Duration::from_secs(settings.limit_seconds))
        .map_err(|error| match error.kind() {
            Kind::Bench => Error::bench(format!("workload {}: {}", workload.name, error.message()))
                .hint("raise `limit_seconds` in [command] of the workload if the client needs more time"),
            _ => error,
        })?;
    if output.success() {
        return Ok(output);
    }
    Err(Error::bench(format!(
        "workload {}: the client {}",
        workload.name,
        output.describe_exit()
    ))
    .details(output.tail(8))
    .hint(format!("the command was: {}", command.shown())))
}

/// Runs the `prepare` command on a server that was just started.
pub(super) fn prepare(
    workload: &Workload,
    settings: &CommandWorkload,
    running: &Running,
) -> Result<()> {
    match &settings.prepare {
        None => Ok(()),
        Some(words) => {
            let command = command(settings, words, running)?;
            run_client(workload, settings, &command).map(drop)
        }
    }
}

/// Runs at least `transactions`, in whole client runs, and returns their number.
pub(super) fn transactions(
    workload: &Workload,
    settings: &CommandWorkload,
    running: &Running,
    transactions: u64,
) -> Result<u64> {
    let each = settings.transactions.max(1);
    let runs = transactions.div_ceil(each);
    let command = command(settings, &settings.run, running)?;
    for _ in 0..runs {
        run_client(workload, settings, &command)?;
    }
    Ok(runs.saturating_mul(each))
}

/// One client run: wall-clock nanoseconds, processor nanoseconds of the server, and operations timed by the
/// client.
#[derive(Debug, Clone, Default)]
struct Slice {
    time: f32,
    cpu: Option<f32>,
    operations: BTreeMap<String, OperationTime>,
}

pub(super) fn interleave(
    clients: &Clients,
    servers: &mut [(Point, Running)],
    item: &TimedBlock<'_>,
    settings: &CommandWorkload,
) -> Result<BlockSlices, ClientFailure> {
    let patterns = Patterns::new(item.workload, settings)?;
    let mut commands = Vec::with_capacity(servers.len());
    for (_, running) in servers.iter() {
        let command = command(settings, &settings.run, running)?;
        commands.push(clients.placement.client(command, settings.threads));
        clients.placement.settle(running.pid(), settings.threads);
    }
    let mut slice = |index: usize, _: u64| -> Result<Slice, ClientFailure> {
        let (point, running) = &servers[index];
        let named = |error| ClientFailure {
            point: Some(*point),
            error,
        };
        let before = running.processor_time();
        let output = run_client(item.workload, settings, &commands[index]).map_err(named)?;
        let after = running.processor_time();
        let report = patterns.read(&output).map_err(named)?;
        Ok(Slice {
            time: (report.seconds * 1e9) as f32,
            cpu: before
                .zip(after)
                .and_then(|(before, after)| after.checked_sub(before))
                .filter(|spent| !spent.is_zero())
                .map(|spent| spent.as_nanos() as f32),
            operations: report.operations,
        })
    };
    let mut random = StdRng::seed_from_u64(item.seed);
    let warm_up = settings.warm_up;
    let rounds = rounds(servers.len(), item, warm_up, &mut random, &mut slice)?;
    let points: Vec<Point> = servers.iter().map(|(point, _)| *point).collect();
    Ok(block_slices(&points, &rounds, settings.transactions.max(1)))
}

/// Returns the slices of all rounds, one row per round, by point.
fn block_slices(points: &[Point], rounds: &[Vec<Slice>], transactions: u64) -> BlockSlices {
    let rows = |transactions: u64, value: &dyn Fn(&Slice) -> f32| -> Vec<Slices> {
        let row = |(index, &point): (usize, &Point)| Slices {
            point,
            nanoseconds: rounds.iter().map(|round| value(&round[index])).collect(),
            transactions_per_slice: transactions,
        };
        points.iter().enumerate().map(row).collect()
    };
    // The block's value skips slices without processor time; only a kernel that reports none at all yields no rows.
    let has_cpu = rounds.iter().flatten().any(|slice| slice.cpu.is_some());
    let operations = |slice: &Slice| slice.operations.clone();
    let commands: BTreeMap<String, u64> = rounds
        .iter()
        .flatten()
        .flat_map(operations)
        .map(|(name, operation)| (name, operation.commands))
        .collect();
    let of_operation = |(name, commands): (String, u64)| {
        let value = |slice: &Slice| {
            let operation = slice.operations.get(&name).copied().unwrap_or_default();
            // Scale a run with more or fewer commands to the number of commands of the other runs.
            let each = operation.seconds / operation.commands.max(1) as f64;
            (each * commands as f64 * 1e9) as f32
        };
        let rows = rows(commands, &value);
        (name, rows)
    };
    BlockSlices {
        time: rows(transactions, &|slice| slice.time),
        cpu: if has_cpu {
            rows(transactions, &|slice| slice.cpu.unwrap_or(0.0))
        } else {
            Vec::new()
        },
        operations: commands.into_iter().map(of_operation).collect(),
        rounds: rounds.len() as u64,
        discarded_rounds: 0,
    }
}
