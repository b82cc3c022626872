//! Workloads that are commands: the finest alternation is one client run.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use regex::Regex;

use super::{Clients, Failure, Measured, Timed};
use crate::config::{CommandWorkload, Workload};
use crate::error::{Error, Kind, Result};
use crate::point::Point;
use crate::process::{Command, Output};
use crate::server::Running;
use crate::stats::Slices;

/// The longest one client run may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Rounds that the values of a block need at least.
const MIN_ROUNDS: u64 = 2;

fn run_client(workload: &Workload, command: &Command) -> Result<Output> {
    let output = command.run_within(LIMIT)?;
    if output.success() {
        return Ok(output);
    }
    Err(Error::bench(format!(
        "workload {}: the client {}",
        workload.name,
        output.how_it_ended()
    ))
    .details(output.tail(8))
    .hint(format!("the command was: {}", command.shown())))
}

/// Fills a server that has just started.
pub(super) fn prepare(
    workload: &Workload,
    settings: &CommandWorkload,
    running: &Running,
) -> Result<()> {
    match &settings.prepare {
        None => Ok(()),
        Some(words) => {
            let command = Command::from_words(&running.expand(words)?)?;
            run_client(workload, &command).map(drop)
        }
    }
}

/// At least `transactions`, in whole client runs; returns how many.
pub(super) fn transactions(
    workload: &Workload,
    settings: &CommandWorkload,
    running: &Running,
    transactions: u64,
) -> Result<u64> {
    let each = settings.transactions.max(1);
    let runs = transactions.div_ceil(each);
    let command = Command::from_words(&running.expand(&settings.run)?)?;
    for _ in 0..runs {
        run_client(workload, &command)?;
    }
    Ok(runs * each)
}

/// The rate in `text`: transactions per second, the last match of the pattern's group.
fn rate(pattern: &Regex, text: &str) -> Option<f64> {
    let found = pattern.captures_iter(text).last()?;
    let rate: f64 = found.get(1)?.as_str().replace(',', "").parse().ok()?;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

fn pattern(workload: &Workload, settings: &CommandWorkload) -> Result<Option<Regex>> {
    let Some(text) = &settings.rate else {
        return Ok(None);
    };
    let wrong = |message: String| {
        Error::usage(message).at(
            format!("bench-config/workloads/{}.toml", workload.name),
            None,
        )
    };
    let regex = Regex::new(text).map_err(|e| wrong(format!("`rate`: {e}")))?;
    if regex.captures_len() < 2 {
        return Err(wrong("`rate` needs a group around the number".into()));
    }
    Ok(Some(regex))
}

/// One client run: nanoseconds on the clock, and those the server's threads were on a processor.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    time: f32,
    cpu: Option<f32>,
}

pub(super) fn interleave(
    clients: &Clients,
    servers: &mut [(Point, Running)],
    item: &Timed<'_>,
    settings: &CommandWorkload,
) -> Result<Measured, Failure> {
    let pattern = pattern(item.workload, settings)?;
    let transactions = settings.transactions.max(1);
    let mut commands = Vec::with_capacity(servers.len());
    for (_, running) in servers.iter() {
        let words = running.expand(&settings.run)?;
        let command = Command::from_words(&words)?;
        commands.push(clients.placement.client(command, 1));
        clients.placement.settle(running.pid(), 1);
    }
    let slice = |index: usize| -> Result<Slice, Failure> {
        let named = |error| Failure {
            point: Some(servers[index].0),
            error,
        };
        let running = &servers[index].1;
        let before = running.processor_time();
        let output = run_client(item.workload, &commands[index]).map_err(named)?;
        let after = running.processor_time();
        let seconds = match &pattern {
            None => output.elapsed.as_secs_f64(),
            Some(pattern) => {
                let text = output.stdout_text();
                let rate = rate(pattern, &text).ok_or_else(|| {
                    named(
                        Error::new(
                            Kind::Bench,
                            format!(
                                "workload {}: no transactions per second in the client's output",
                                item.workload.name
                            ),
                        )
                        .details(output.tail(8))
                        .hint("check `rate` against this output"),
                    )
                })?;
                transactions as f64 / rate
            }
        };
        Ok(Slice {
            time: (seconds * 1e9) as f32,
            cpu: before
                .zip(after)
                .and_then(|(before, after)| after.checked_sub(before))
                .filter(|spent| !spent.is_zero())
                .map(|spent| spent.as_nanos() as f32),
        })
    };
    let mut random = StdRng::seed_from_u64(item.seed);
    let mut order: Vec<usize> = (0..servers.len()).collect();
    let mut round = |random: &mut StdRng| -> Result<Vec<Slice>, Failure> {
        order.shuffle(random);
        let mut values = vec![Slice::default(); order.len()];
        for &index in &order {
            values[index] = slice(index)?;
        }
        Ok(values)
    };
    let started = Instant::now();
    loop {
        round(&mut random)?;
        if started.elapsed().as_secs_f64() >= item.warm_up_seconds {
            break;
        }
    }
    let empty: Vec<Slices> = servers
        .iter()
        .map(|(point, _)| Slices {
            point: *point,
            nanoseconds: Vec::new(),
            transactions_per_slice: transactions,
        })
        .collect();
    let (mut time, mut cpu) = (empty.clone(), empty);
    // A slice without is left out of the block's value; only a kernel that tells none at all has none.
    let mut told_cpu = false;
    let started = Instant::now();
    let mut rounds = 0;
    while rounds < MIN_ROUNDS || started.elapsed().as_secs_f64() < item.seconds {
        let values = round(&mut random)?;
        for (index, value) in values.into_iter().enumerate() {
            time[index].nanoseconds.push(value.time);
            cpu[index].nanoseconds.push(value.cpu.unwrap_or(0.0));
            told_cpu |= value.cpu.is_some();
        }
        rounds += 1;
    }
    Ok(Measured {
        time,
        cpu: if told_cpu { cpu } else { Vec::new() },
        rounds,
        spoiled_rounds: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_what_clients_print() {
        let pattern = Regex::new(r"([0-9.,]+) requests per second").unwrap();
        assert_eq!(
            rate(&pattern, "GET: rps=1\rGET: 123,456.5 requests per second\n"),
            Some(123_456.5)
        );
        assert_eq!(rate(&pattern, "nothing"), None);
        assert_eq!(rate(&pattern, "0.0 requests per second"), None);
        assert_eq!(rate(&pattern, "1.2.3 requests per second"), None);
    }
}
