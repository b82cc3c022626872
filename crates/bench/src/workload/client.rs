//! The parts of a kind of workload.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::standstill::StandstillWatch;
use super::watch::{HostMonitor, ServerUsage};
use crate::server::Running;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Section, Workload};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, Slices};
use perfquilt_model::point::Point;
use perfquilt_system::process::Output;

/// The largest of a workload's counts, so that their sums do not overflow.
const MAX_COUNT: u64 = 1_000_000_000_000;

/// A kind of workload.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadKind {
    /// The value of `kind` in a workload's file. Its section has the same name, with `_` in place of `-`.
    pub name: &'static str,
    /// Reads and checks the settings of a workload of this kind.
    pub client: fn(&Workload) -> Result<Box<dyn Client>>,
}

/// Sends a workload's requests to servers.
pub trait Client: fmt::Debug + Send + Sync {
    /// Returns the number of concurrent client threads, which determines the processors of client and servers.
    fn threads(&self) -> u32 {
        1
    }

    /// Returns how many transactions a counted block counts; `None` if perfquilt chooses their number.
    fn counted_transactions(&self) -> Option<u64> {
        None
    }

    /// Returns everything that determines the requests, except the files that [`Client::words`] name and read.
    fn identity(&self) -> Result<Vec<Vec<u8>>>;

    /// Returns the words of the commands that it runs; none if it runs no command.
    fn words(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the folder in which the commands run, if it is not this program's.
    fn directory(&self) -> Option<String> {
        None
    }

    /// Runs its commands once on a server that was just started, behind the words `tracer` that trace what they open.
    fn trace(
        &self,
        _environment: &Environment,
        _running: &Running,
        _tracer: Vec<OsString>,
    ) -> Result<()> {
        Ok(())
    }

    /// Returns whether the client runs programs of the built server besides the server itself.
    fn runs_server_programs(&self) -> bool {
        true
    }

    /// Checks that the client can run, and writes the files it needs, before anything is built or started for it.
    fn set_up(&self, _setup: &Setup<'_>) -> Result<()> {
        Ok(())
    }

    /// Returns the key of the data to prepare before a server starts from a copy of it; `None` for none. Workloads
    /// with the same key share their data.
    fn data_key(&self, _environment: &Environment) -> Result<Option<String>> {
        Ok(None)
    }

    /// Fills a running server with that data.
    fn fill(&self, _environment: &Environment, _running: &Running) -> Result<()> {
        Ok(())
    }

    /// Prepares a server that was just started.
    fn after_start(&self, _environment: &Environment, _running: &Running) -> Result<()> {
        Ok(())
    }

    /// Measures all `servers`, which are at least one, alternating between them.
    fn interleave(
        &self,
        environment: &Environment,
        servers: &mut [(Point, Running)],
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure>;

    /// Connects to a server that is to run transactions on request; `seed` determines them.
    fn connect<'a>(
        &'a self,
        environment: &'a Environment,
        running: &Running,
        seed: u64,
    ) -> Result<Box<dyn Requests + 'a>>;
}

/// A client connected to one server, which runs transactions on request. Dropping it ends the client.
pub trait Requests {
    /// Runs about `transactions`, rounded up to what the client can run, and returns their number. The n-th request
    /// runs the same transactions in every client with the same seed.
    fn run(&mut self, running: &Running, transactions: u64) -> Result<u64>;

    /// Whether transactions of the last request were restarted (a deadlock, a duplicate key), so that the server
    /// executed more than requested.
    fn restarted(&self) -> bool {
        false
    }
}

/// Where a client runs.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The workspace.
    pub workspace: &'a Workspace,
    /// The measured release, a name in the configuration.
    pub release: &'a str,
    /// Folder for the clients' files, removed after measuring. All clients share it.
    pub folder: &'a Path,
}

/// Parameters of a timed block of one workload.
#[derive(Debug, Clone)]
pub struct TimedBlock<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Seconds of measuring, for all servers together.
    pub seconds: f64,
    /// Seconds of unmeasured running before that.
    pub warm_up_seconds: f64,
    /// Seed of the transactions and of the order of the servers.
    pub seed: u64,
    /// How often this block was begun on the same servers before, which ended when one of them failed. Sequences and unique
    /// numbers begin behind everything that was inserted then.
    pub attempt: u32,
    /// Monitors the host, from the first timed slice on.
    pub monitor: Option<&'a HostMonitor>,
}

impl TimedBlock<'_> {
    /// Whether the servers' own counters are read at the begin and at the end of the timed slices.
    pub fn reads_storage(&self) -> bool {
        self.monitor
            .is_some_and(|monitor| monitor.storage.is_some())
    }

    /// Returns whether something stood still in the round that began at `begin`: the client then repeats the round, which
    /// says nothing about a server.
    pub fn repeats(&self, begin: Instant) -> bool {
        self.standstills().is_some_and(|watch| watch.repeats(begin))
    }

    /// Notes that a client was stopped, if it was.
    pub(super) fn look_at_client(&self, output: &Output) {
        if let Some(watch) = self.standstills().filter(|_| output.was_stopped) {
            watch.client_was_stopped();
        }
    }

    fn standstills(&self) -> Option<&StandstillWatch> {
        self.monitor?.standstills.as_ref()
    }

    /// Marks the begin of the timed slices. What happened on the host before, when clients connected and read the
    /// data, does not count.
    pub fn slices_begin(&self) {
        if let Some(monitor) = self.monitor {
            monitor.restart();
        }
    }

    /// Marks the end of the timed slices, while clients are still connected.
    pub fn slices_end(&self) {
        if let Some(monitor) = self.monitor {
            monitor.stop();
        }
    }
}

/// Slices of a timed block of one workload: one row per slice for each server, with rows aligned by round.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSlices {
    /// Wall-clock time of the slices.
    pub time: Vec<Slices>,
    /// Processor time of the server's process in the same slices; empty if the kernel does not report
    /// it.
    pub cpu: Vec<Slices>,
    /// Wall-clock time of the operations that the client times separately, by operation; without the servers that have
    /// none of it.
    pub operations: BTreeMap<String, Vec<Slices>>,
    /// Meters that are read once a block ([`Meter::is_usage`]): a single slice with all of the block's transactions for
    /// each server. The caller of the client fills them in.
    pub usage: BTreeMap<Meter, Vec<Slices>>,
    /// Number of measured rounds.
    pub rounds: u64,
    /// Rounds discarded because a transaction on some server was restarted.
    pub discarded_rounds: u64,
    /// Transactions that each server executed in these rounds outside of any slice, per transaction in a slice: the
    /// untimed begin of a turn. Only [`BlockSlices::add_usage`] needs it.
    #[serde(skip)]
    pub untimed_share: f64,
}

impl BlockSlices {
    /// Returns what multiplies the transactions in slices to give all that each server executed while slices were
    /// timed, discarded rounds and those that were `repeated` included.
    fn executed_per_timed(&self, repeated: u64) -> f64 {
        let discarded = (self.discarded_rounds + repeated) as f64 / self.rounds.max(1) as f64;
        (1.0 + self.untimed_share) * (1.0 + discarded)
    }

    /// Fills in the meters that are read once a block. `usage` has what each server used meanwhile, in the order of the
    /// servers, in `repeated` rounds, too.
    pub fn add_usage(&mut self, usage: &[(Point, ServerUsage)], repeated: u64) {
        // Servers of one point run the same number of transactions.
        let transactions = |point: Point| {
            let rows = self.time.iter().filter(|slices| slices.point == point);
            let all: u64 = rows
                .map(|slices| slices.values.len() as u64 * slices.transactions_per_slice)
                .sum();
            let servers = usage.iter().filter(|(other, _)| *other == point).count();
            let timed = all as f64 / servers.max(1) as f64;
            ((timed * self.executed_per_timed(repeated)).round() as u64).max(1)
        };
        let meters = Meter::ALL.into_iter().filter(|meter| meter.is_usage());
        let rows_of = |meter: Meter| {
            let row = |(point, used): &(Point, ServerUsage)| {
                let (point, amount) = (*point, *used.get(&meter)?);
                let is_peak = meter == Meter::Rss;
                Some(Slices {
                    point,
                    // A cost is above 0: nothing in a whole block counts as one.
                    values: vec![amount.max(1) as f32],
                    transactions_per_slice: if is_peak { 1 } else { transactions(point) },
                })
            };
            usage.iter().filter_map(row).collect()
        };
        self.usage = meters.map(|meter| (meter, rows_of(meter))).collect();
    }

    /// Returns the slices of a timed meter; none of a counted one.
    pub fn of(&self, meter: Meter) -> &[Slices] {
        match meter {
            Meter::Time => &self.time,
            Meter::Cpu => &self.cpu,
            _ => self.usage.get(&meter).map_or(&[], Vec::as_slice),
        }
    }
}

/// Why a block of a workload could not be measured.
#[derive(Debug, Clone)]
pub struct ClientFailure {
    /// The server the client was connected to, if known.
    pub point: Option<Point>,
    /// The event.
    pub error: Error,
}

impl ClientFailure {
    /// Returns what makes the error of a client that was connected to the server of `point` a failure.
    pub fn at(point: Point) -> impl Fn(Error) -> Self {
        move |error| ClientFailure {
            point: Some(point),
            error,
        }
    }
}

impl From<Error> for ClientFailure {
    fn from(error: Error) -> Self {
        ClientFailure { point: None, error }
    }
}

/// Returns the settings of a workload from the section of its kind.
pub fn settings<S: serde::de::DeserializeOwned>(workload: &Workload) -> Result<S> {
    workload.settings.parse()?.ok_or_else(|| {
        let (kind, section) = (&workload.kind, workload.settings.name());
        let fault = format!("kind `{kind}` needs a [{section}] section");
        workload.locate(&["kind"], Error::workload(fault))
    })
}

/// Checks that a setting that counts something is at least 1, and small enough to be added up.
pub fn check_count(section: &Section, key: &str, count: impl Into<u64>) -> Result<()> {
    match count.into() {
        0 => Err(section.error(&[key], format!("`{key}` must be at least 1"))),
        1..=MAX_COUNT => Ok(()),
        _ => Err(section.error(&[key], format!("`{key}` must be at most {MAX_COUNT}"))),
    }
}

/// The default number of client threads.
pub(super) fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_divided_by_all_executed_transactions() {
        // Ten slices of four timed transactions; one untimed for every eight timed; one round of five discarded.
        let mut measured = BlockSlices {
            time: vec![Slices {
                point: Point::Step(0),
                values: vec![1.0; 10],
                transactions_per_slice: 4,
            }],
            rounds: 4,
            discarded_rounds: 1,
            untimed_share: 0.125,
            ..BlockSlices::default()
        };
        let used = ServerUsage::from([(Meter::Rss, 1 << 20), (Meter::ContextSwitches, 112)]);
        measured.add_usage(&[(Point::Step(0), used.clone())], 0);
        let [switches] = measured.of(Meter::ContextSwitches) else {
            panic!("{measured:?}")
        };
        // 40 × 1.125 × 1.25, to a whole transaction.
        assert_eq!(switches.transactions_per_slice, 56);
        assert_eq!(switches.values, [112.0]);
        assert_eq!(measured.of(Meter::Rss)[0].transactions_per_slice, 1);
        // Two rounds more, of those that stood still.
        measured.add_usage(&[(Point::Step(0), used)], 2);
        let switches = &measured.of(Meter::ContextSwitches)[0];
        assert_eq!(switches.transactions_per_slice, 79);
        // Nothing in a whole block is one; what is unknown is missing.
        let used = ServerUsage::from([(Meter::IoCalls, 0)]);
        measured.add_usage(&[(Point::Step(0), used)], 0);
        assert_eq!(measured.of(Meter::IoCalls)[0].values, [1.0]);
        for unknown in [Meter::Rss, Meter::ContextSwitches, Meter::IoBytes] {
            assert!(measured.of(unknown).is_empty(), "{unknown}");
        }
    }
}
