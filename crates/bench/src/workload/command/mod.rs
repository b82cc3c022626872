//! Runs workloads that are commands. They alternate between servers by whole client runs.

mod patterns;
mod reading;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Deserialize;

use super::client::one;
use super::rounds::{rounds, rows};
use super::{
    BlockSlices, Client, ClientFailure, Environment, Requests, TimedBlock, WorkloadKind,
    check_count, settings,
};
use crate::server::{Running, check_placeholders};
use perfquilt_config::Workload;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::point::Point;
use perfquilt_system::process::{Command, Output};

use patterns::Patterns;
use reading::{ClientReport, OperationTime};

/// The kind `command`.
pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "command",
    client: |workload| Ok(Box::new(CommandClient::new(workload)?)),
};

/// `[command]`: settings of a command workload, with the placeholders of the server's commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandSettings {
    /// Prepares the server's data once after each start.
    pub(super) prepare: Option<Vec<String>>,
    /// Runs one slice.
    pub(super) run: Vec<String>,
    /// The working directory of `run`.
    pub(super) directory: Option<String>,
    /// Transactions per slice.
    pub(super) transactions: u64,
    /// Threads or connections of the client. With several, client and servers have all processors.
    #[serde(default = "one")]
    pub(super) threads: u32,
    /// A regular expression over the client's output whose group is transactions per second (`12.5k` is 12500), one
    /// number; without it and `seconds`, the slice's wall-clock time counts.
    pub(super) rate: Option<String>,
    /// A regular expression whose group is the seconds of the slice, instead of `rate`; a unit behind the number (`ns`,
    /// `us`, `ms`, `min`, `h`) counts.
    pub(super) seconds: Option<String>,
    /// A regular expression with groups `name`, `seconds` and, optionally, `commands`: each match is an operation
    /// that the client times separately.
    pub(super) operations: Option<String>,
    /// Whether further slices warm the server up before each block; without, a block may have a single round.
    #[serde(default = "yes")]
    pub(super) warm_up: bool,
    /// Timeout of a slice in seconds.
    #[serde(default = "ten_minutes")]
    pub(super) limit_seconds: u64,
}

fn yes() -> bool {
    true
}

fn ten_minutes() -> u64 {
    600
}

/// A workload that is a command.
#[derive(Debug, Clone)]
pub(super) struct CommandClient {
    pub(super) name: String,
    pub(super) settings: CommandSettings,
}

impl CommandClient {
    fn new(workload: &Workload) -> Result<Self> {
        let own: CommandSettings = settings(workload)?;
        let section = &workload.settings;
        check_count(section, "transactions", own.transactions)?;
        check_count(section, "limit_seconds", own.limit_seconds)?;
        check_count(section, "threads", own.threads)?;
        let directory = own.directory.as_ref().map(std::slice::from_ref);
        for (key, words) in [
            ("run", Some(own.run.as_slice())),
            ("prepare", own.prepare.as_deref()),
            ("directory", directory),
        ] {
            let Some(words) = words else { continue };
            if key != "directory" && words.first().is_none_or(String::is_empty) {
                return Err(section.error(&[key], format!("`{key}` is an empty command")));
            }
            check_placeholders(words).map_err(|error| section.locate(&[key], error))?;
        }
        Patterns::new(&own, section)?;
        Ok(CommandClient {
            name: workload.name.clone(),
            settings: own,
        })
    }

    /// Returns a command of the workload for one server, in the folder of the settings.
    fn command(&self, words: &[String], running: &Running) -> Result<Command> {
        let command = Command::from_words(&running.expand(words)?)?;
        Ok(match &self.settings.directory {
            Some(directory) => {
                let words = running.expand(std::slice::from_ref(directory))?;
                command.directory(Path::new(&words.concat()))
            }
            None => command,
        })
    }

    /// Returns the client's command for one server. Processes that a run leaves behind end with it.
    fn client_command(&self, running: &Running) -> Result<Command> {
        let mark = format!("{}/client", running.mark());
        Ok(self.command(&self.settings.run, running)?.mark(mark))
    }

    fn run(&self, command: &Command) -> Result<Output> {
        let workload = &self.name;
        let output = command
            .run_within(Duration::from_secs(self.settings.limit_seconds))
            .map_err(|error| match error.kind() {
                Kind::Bench => Error::client_failed(format!("workload {workload}: {}", error.message()))
                    .hint("raise `limit_seconds` in [command] of the workload if the client needs more time"),
                _ => error,
            })?;
        if output.success() {
            return Ok(output);
        }
        let exit = output.describe_exit();
        Err(
            Error::client_failed(format!("workload {workload}: the client {exit}"))
                .details(output.tail(8))
                .hint(format!("the command was: {}", command.shown())),
        )
    }
}

impl Client for CommandClient {
    fn threads(&self) -> u32 {
        self.settings.threads
    }

    /// A command cannot do less than one run, whose size its configuration chose.
    fn counted_transactions(&self) -> Option<u64> {
        Some(self.settings.transactions)
    }

    fn identity(&self) -> Result<Vec<Vec<u8>>> {
        Ok(vec![format!("{:?}", self.settings).into_bytes()])
    }

    fn words(&self) -> Vec<String> {
        let settings = &self.settings;
        let words = settings
            .run
            .iter()
            .chain(settings.prepare.iter().flatten())
            .chain(&settings.directory);
        words.cloned().collect()
    }

    fn directory(&self) -> Option<String> {
        self.settings.directory.clone()
    }

    fn trace(&self, _: &Environment, running: &Running, tracer: Vec<OsString>) -> Result<()> {
        for words in self.settings.prepare.iter().chain([&self.settings.run]) {
            let command = self.command(words, running)?.behind(tracer.clone());
            self.run(&command.belonging_to(&running.mark()))?;
        }
        Ok(())
    }

    fn after_start(&self, _environment: &Environment, running: &Running) -> Result<()> {
        let Some(words) = &self.settings.prepare else {
            return Ok(());
        };
        // Processes that it leaves running are part of the server.
        let command = self.command(words, running)?.belonging_to(&running.mark());
        let done = self.run(&command).map(drop);
        done.map_err(|error| own_failure(words, running, error))
    }

    fn interleave(
        &self,
        environment: &Environment,
        servers: &mut [(Point, Running)],
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        let settings = &self.settings;
        let (workload, section) = (&self.name, &block.workload.settings);
        let patterns = Patterns::new(settings, section)?;
        let placement = &environment.placement;
        let mut commands = Vec::with_capacity(servers.len());
        for (_, running) in servers.iter() {
            let command = self.client_command(running)?;
            commands.push(placement.client(command, settings.threads));
            placement.settle(running.pid(), settings.threads);
        }
        let mut slice = |index: usize, _: u64| -> Result<Slice, ClientFailure> {
            let (point, running) = &servers[index];
            let named = |error| ClientFailure {
                point: Some(*point),
                error: own_failure(&settings.run, running, error),
            };
            let before = running.processor_time();
            let output = self.run(&commands[index]).map_err(named)?;
            let after = running.processor_time();
            block.look_at_client(&output);
            let report = ClientReport::read(&output, &patterns, settings.transactions, workload)
                .map_err(|fault| section.locate(&[fault.key], fault.error))
                .map_err(named)?;
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
        let mut random = StdRng::seed_from_u64(block.seed);
        let warm_up = settings.warm_up;
        let rounds = rounds(servers.len(), block, warm_up, &mut random, &mut slice)?;
        let points: Vec<Point> = servers.iter().map(|(point, _)| *point).collect();
        check_operations(&points, &rounds).map_err(|(point, fault)| {
            let error = Error::client_result(format!("workload {workload}: {fault}"))
                .hint("check `operations` against the client's output: it must fit each of its lines about an operation");
            ClientFailure::at(point)(section.locate(&["operations"], error))
        })?;
        Ok(block_slices(&points, &rounds, settings.transactions.max(1)))
    }

    fn connect<'a>(
        &'a self,
        _environment: &'a Environment,
        _running: &Running,
        _seed: u64,
    ) -> Result<Box<dyn Requests + 'a>> {
        Ok(Box::new(Runs(Cow::Borrowed(self))))
    }
}

/// Runs a workload's command on request.
pub(super) struct Runs<'a>(pub(super) Cow<'a, CommandClient>);

impl Requests for Runs<'_> {
    /// Runs whole client runs.
    fn run(&mut self, running: &Running, transactions: u64) -> Result<u64> {
        let each = self.0.settings.transactions.max(1);
        let runs = transactions.div_ceil(each);
        let command = self.0.client_command(running)?;
        for _ in 0..runs {
            self.0.run(&command)?;
        }
        Ok(runs.saturating_mul(each))
    }
}

/// Returns the error of a command of a workload that could not be run on this server, see [`Running::own_failure`].
fn own_failure(words: &[String], running: &Running, error: Error) -> Error {
    match running.expand(words) {
        Ok(words) => running.own_failure(&words, error),
        Err(_) => error,
    }
}

/// One client run: wall-clock nanoseconds, processor nanoseconds of the server, and operations timed by the
/// client.
#[derive(Debug, Clone, Default)]
struct Slice {
    time: f32,
    cpu: Option<f32>,
    operations: BTreeMap<String, OperationTime>,
}

/// Checks that all slices of a point have the same operations; otherwise returns the point and the fault.
///
/// The value of an operation would be that of the slices that happen to have it.
fn check_operations(points: &[Point], rounds: &[Vec<Slice>]) -> Result<(), (Point, String)> {
    let slices = || {
        rounds
            .iter()
            .flat_map(|round| points.iter().copied().zip(round))
    };
    let mut names: BTreeMap<Point, BTreeSet<&str>> = BTreeMap::new();
    for (point, slice) in slices() {
        let of_point = names.entry(point).or_default();
        of_point.extend(slice.operations.keys().map(String::as_str));
    }
    for (point, names) in names {
        let all = slices().filter(|(other, _)| *other == point).count();
        for name in names {
            let has = |(other, slice): &(Point, &Slice)| {
                *other == point && slice.operations.contains_key(name)
            };
            let missing = all - slices().filter(has).count();
            if missing > 0 {
                let fault = format!(
                    "operation `{}` is missing from the client's output in {missing} of {all} slices",
                    name.escape_debug()
                );
                return Err((point, fault));
            }
        }
    }
    Ok(())
}

/// Returns the slices of all rounds, one row per round, by point.
fn block_slices(points: &[Point], rounds: &[Vec<Slice>], transactions: u64) -> BlockSlices {
    let rows = |transactions: u64, value: &dyn Fn(&Slice) -> f32| {
        rows(points, rounds, transactions, value)
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
            let Some(operation) = slice.operations.get(&name) else {
                return f32::NAN;
            };
            // Scale a run with more or fewer commands to the number of commands of the other runs.
            let each = operation.seconds / operation.commands.max(1) as f64;
            (each * commands as f64 * 1e9) as f32
        };
        let mut rows = rows(commands, &value);
        rows.retain(|row| row.values.iter().all(|time| !time.is_nan()));
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
        ..BlockSlices::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [Point; 2] = [Point::BASE, Point::Step(1)];

    /// A slice of 3 s, with the seconds of operations of two commands each.
    fn slice(operations: &[(&str, f64)]) -> Slice {
        let time = |&(name, seconds): &(&str, f64)| {
            let commands = 2;
            (name.to_owned(), OperationTime { commands, seconds })
        };
        Slice {
            time: 3e9,
            cpu: None,
            operations: operations.iter().map(time).collect(),
        }
    }

    #[test]
    fn an_operation_missing_from_some_slices_of_a_server_is_an_error() {
        let both = slice(&[("a", 1.0), ("b", 2.0)]);
        let one = slice(&[("a", 1.0)]);
        let none = slice(&[]);
        let check = |rounds: &[[&Slice; 2]]| {
            let rounds: Vec<Vec<Slice>> = rounds
                .iter()
                .map(|round| round.map(Clone::clone).to_vec())
                .collect();
            check_operations(&POINTS, &rounds)
        };
        assert_eq!(check(&[[&both, &both], [&both, &both]]), Ok(()));
        // A server that never has it has no value of it.
        assert_eq!(check(&[[&both, &one], [&both, &one]]), Ok(()));
        assert_eq!(check(&[[&both, &none], [&both, &none]]), Ok(()));
        let fault = |name: &str, missing: usize, all: usize| {
            format!(
                "operation `{name}` is missing from the client's output in {missing} of {all} slices"
            )
        };
        assert_eq!(
            check(&[[&both, &both], [&both, &one]]),
            Err((Point::Step(1), fault("b", 1, 2)))
        );
        assert_eq!(
            check(&[[&one, &both], [&both, &both], [&one, &both]]),
            Err((Point::BASE, fault("b", 2, 3)))
        );
        assert_eq!(
            check(&[[&both, &none], [&both, &both]]),
            Err((Point::Step(1), fault("a", 1, 2)))
        );
        // Two servers of one point are measured alike.
        let copies = [Point::Step(1), Point::Step(1)];
        assert_eq!(
            check_operations(&copies, &[vec![both, one]]),
            Err((Point::Step(1), fault("b", 1, 2)))
        );
    }

    #[test]
    fn an_operation_that_a_server_never_has_is_missing_and_not_zero() {
        let rounds = vec![
            vec![slice(&[("a", 1.0), ("b", 2.0)]), slice(&[("a", 0.5)])],
            vec![slice(&[("a", 1.5), ("b", 0.0)]), slice(&[("a", 0.5)])],
        ];
        let measured = block_slices(&POINTS, &rounds, 1);
        let of = |name: &str| -> Vec<(Point, Vec<f32>)> {
            let rows = measured.operations[name].iter();
            rows.map(|row| (row.point, row.values.clone())).collect()
        };
        let a = [
            (Point::BASE, vec![1e9, 1.5e9]),
            (Point::Step(1), vec![5e8, 5e8]),
        ];
        assert_eq!(of("a"), a);
        // A time of 0 that the client printed is one.
        assert_eq!(of("b"), [(Point::BASE, vec![2e9, 0.0])]);
    }
}
