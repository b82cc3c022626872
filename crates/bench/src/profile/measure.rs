//! Runs the same transactions on two servers, under callgrind or sampled by perf.

use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::Instant;

use super::table;
use crate::meter::samples::{Sampling, SamplingEvent};
use crate::meter::{self, CountedWork, Counter, RunTransactions, WARM_UP};
use crate::server::{self, Launch, Running, Scratch, ServerAdapter, ServerSpace};
use crate::turns::Turns;
use crate::workload::{Clients, Requests, allowed_cpus};
use perfquilt_config::Workload;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::profile::CostTable;
use perfquilt_model::progress;
use perfquilt_system::caches;
use perfquilt_system::process::check_interrupted;

/// Target seconds of a run under valgrind without counting; counting makes it about ten times as long.
const COUNTED_SECONDS: f64 = 0.3;
/// Target seconds of a sampled run.
const SAMPLED_SECONDS: f64 = 4.0;
/// Number of turns that a sampled run is divided into.
const TURNS: u64 = 40;
/// Number of servers for whose data a scratch folder has room.
const SERVERS: usize = 2;

/// CostSource of the costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostSource {
    /// Callgrind counts every instruction.
    Callgrind,
    /// perf samples the server at full speed.
    Perf(SamplingEvent),
}

impl CostSource {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            CostSource::Callgrind => "callgrind",
            CostSource::Perf(_) => "perf",
        }
    }

    /// Returns the unit of its costs, in words.
    pub fn unit(self) -> &'static str {
        match self {
            CostSource::Callgrind => "instructions",
            CostSource::Perf(by) => by.unit(),
        }
    }
}

/// A server to profile.
#[derive(Debug, Clone)]
pub struct ProfiledServer<'a> {
    /// Its name in messages.
    pub label: &'a str,
    /// Its folder.
    pub dir: &'a Path,
    /// The name of its data, and the folder of the built server that prepares them.
    pub data: (&'a str, &'a Path),
    /// The measured executable in its folder.
    pub binary: &'a str,
    /// The release that determines its configuration and clients.
    pub release: &'a str,
}

/// Makes the first (0) or second (1) server for a run, in the code layout drawn from a seed (0: the
/// linker's own), and returns its folder.
pub type MakeServer<'a> = dyn Fn(usize, u64) -> Result<PathBuf> + Sync + 'a;

/// Costs on both servers, one table per run. Run `i` of both servers ran the same transactions.
#[derive(Debug, Clone, Default)]
pub struct CostTables {
    /// Tables of the first server.
    pub before: Vec<CostTable>,
    /// Tables of the second server.
    pub after: Vec<CostTable>,
    /// Transactions per run.
    pub transactions: u64,
}

/// How two servers are profiled.
#[derive(Debug, Clone)]
pub struct ProfileRequest<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// The source of the costs.
    pub source: CostSource,
    /// Transactions of each run; with `None`, as many as fit in a few seconds.
    pub transactions: Option<u64>,
    /// Number of runs on each server, each from a fresh start.
    pub runs: u32,
}

/// Profiles both servers. Under callgrind both run in parallel; sampled, they take turns. `make` makes the server of each
/// run; with `None` it runs where it was built.
pub fn measure(
    ws: &Workspace,
    request: &ProfileRequest<'_>,
    [before, after]: [ProfiledServer<'_>; 2],
    make: Option<&MakeServer<'_>>,
) -> Result<CostTables> {
    let &ProfileRequest {
        workload,
        source,
        transactions,
        runs,
    } = request;
    // Report missing programs before starting anything.
    if source == CostSource::Callgrind {
        Counter::callgrind()?;
    }
    let side = |server, place| Side::new(ws, request, server, make.map(|make| (make, place)));
    let sides = [side(before, 0)?, side(after, 1)?];
    let turns = Turns::new(ws, &sides[0].scratch);
    let cpus = allowed_cpus();
    let step = progress::begin("profile", Some(u64::from(runs)));
    let transactions = match transactions {
        Some(transactions) => transactions.max(1),
        None => {
            let _turn = turns.take(&cpus)?;
            sides[0].calibrate()?
        }
    };
    let mut tables = CostTables {
        transactions,
        ..CostTables::default()
    };
    for run in 0..runs {
        check_interrupted()?;
        let message = format!("{} transactions of {}", transactions, workload.name);
        step.update(u64::from(run), Some(u64::from(runs)), &message);
        let seed = u64::from(run) + 1;
        let _turn = turns.take(&cpus)?;
        let (one, other) = match source {
            CostSource::Callgrind => count_both(&sides, transactions, seed)?,
            CostSource::Perf(by) => sample_both(&sides, by, transactions, seed)?,
        };
        tables.before.push(one);
        tables.after.push(other);
    }
    step.finish(&format!(
        "{runs} runs of {transactions} transactions on each server"
    ));
    Ok(tables)
}

/// Counts on both servers in parallel.
fn count_both(
    [first, second]: &[Side<'_>; 2],
    transactions: u64,
    seed: u64,
) -> Result<(CostTable, CostTable)> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| second.count(transactions, seed));
        let one = first.count(transactions, seed);
        let panicked = |_| Err(Error::internal("a run panicked"));
        Ok((one?, other.join().unwrap_or_else(panicked)?))
    })
}

/// Samples both servers, which take turns in the order A B B A …: a change of the machine's speed that lasts longer
/// than a turn affects both alike.
fn sample_both(
    [first, second]: &[Side<'_>; 2],
    by: SamplingEvent,
    transactions: u64,
    seed: u64,
) -> Result<(CostTable, CostTable)> {
    first.with(seed, |one, of_one, of_first| {
        second.with(seed, |other, of_other, of_second| {
            let mut of_one = |running: &Running, n| of_one.run(running, n);
            let mut of_other = |running: &Running, n| of_other.run(running, n);
            let mut servers: [(&mut Running, &mut RunTransactions<'_>); 2] =
                [(one, &mut of_one), (other, &mut of_other)];
            for (running, run) in &mut servers {
                meter::run_checked(running, transactions.div_ceil(WARM_UP), *run)?;
            }
            let samplings = [
                Sampling::start(servers[0].0, by)?,
                Sampling::start(servers[1].0, by)?,
            ];
            let mut done = [0; 2];
            for (turn, length) in turns(transactions).enumerate() {
                for index in order(turn, seed) {
                    let (running, run) = &mut servers[index];
                    done[index] += meter::run_checked(running, length, *run)?;
                }
            }
            let table =
                |sampling: Sampling, executable: &Path, index: usize| -> Result<CostTable> {
                    let samples = sampling.finish(servers[index].0, executable)?;
                    Ok(table::of_samples(&samples, done[index], executable))
                };
            let [one, other] = samplings;
            Ok((table(one, of_first, 0)?, table(other, of_second, 1)?))
        })
    })
}

/// Returns the transactions of each turn: equal numbers, up to one, of `transactions` in all.
fn turns(transactions: u64) -> impl Iterator<Item = u64> {
    let count = TURNS.min(transactions).max(1);
    (0..count).map(move |turn| transactions / count + u64::from(turn < transactions % count))
}

/// Returns the order of the servers in a turn of the run with this seed.
fn order(turn: usize, seed: u64) -> [usize; 2] {
    if (turn as u64)
        .div_ceil(2)
        .wrapping_add(seed)
        .is_multiple_of(2)
    {
        [0, 1]
    } else {
        [1, 0]
    }
}

/// One server with everything needed to start it.
struct Side<'a> {
    source: CostSource,
    server: ProfiledServer<'a>,
    workload: &'a Workload,
    adapter: Box<dyn ServerAdapter>,
    clients: Clients,
    template: PathBuf,
    scratch: Scratch,
    make: Option<(&'a MakeServer<'a>, usize)>,
}

impl<'a> Side<'a> {
    fn new(
        ws: &Workspace,
        request: &ProfileRequest<'a>,
        server: ProfiledServer<'a>,
        make: Option<(&'a MakeServer<'a>, usize)>,
    ) -> Result<Self> {
        let workload = request.workload;
        let adapter = server::adapter(ws)?;
        let clients = Clients::new(ws, server.release, from_ref(workload))?;
        let template = clients.template(ws, adapter.as_ref(), server.data)?;
        let space = ServerSpace {
            servers: SERVERS,
            bytes: caches::size(&template),
        };
        let scratch = Scratch::open(ws, space)?;
        Ok(Side {
            source: request.source,
            server,
            workload,
            adapter,
            clients,
            template,
            scratch,
            make,
        })
    }

    /// Starts the server of the run with a seed and a client for it, and calls `work` with them and the measured executable.
    fn with<T>(
        &self,
        seed: u64,
        work: impl FnOnce(&mut Running, &mut dyn Requests, &Path) -> Result<T>,
    ) -> Result<T> {
        let dir = self.scratch.fresh()?;
        let server = match self.make {
            Some((make, place)) => make(place, seed)?,
            None => self.server.dir.to_owned(),
        };
        let executable = server.join(self.server.binary);
        let mut launch = Launch::new(self.server.label, &server, &dir);
        launch.template = Some(&self.template);
        if self.source == CostSource::Callgrind {
            launch.instrumentation = meter::call_graph_instrumentation(&dir);
        }
        let mut running = self.adapter.start(&launch)?;
        self.clients
            .after_start(self.workload, &running)
            .map_err(|error| running.explain(error))?;
        let mut client = self
            .clients
            .serve(&running, self.workload, seed)
            .map_err(|error| running.explain(error))?;
        let result = work(&mut running, client.as_mut(), &executable)?;
        running.stop()?;
        Ok(result)
    }

    /// Returns the number of transactions for a run of the target length.
    fn calibrate(&self) -> Result<u64> {
        let wanted_seconds = match self.source {
            CostSource::Callgrind => COUNTED_SECONDS,
            CostSource::Perf(_) => SAMPLED_SECONDS,
        };
        self.with(0, |running, client, _| {
            let mut transactions = 1;
            // The first transactions open tables and fill caches.
            client.run(running, transactions)?;
            loop {
                check_interrupted()?;
                let started = Instant::now();
                let done = client.run(running, transactions)?;
                let seconds = started.elapsed().as_secs_f64();
                if seconds >= wanted_seconds / 4.0 || done >= 1 << 24 {
                    let wanted = done as f64 * wanted_seconds / seconds.max(1e-6);
                    return Ok((wanted.ceil() as u64).max(1));
                }
                transactions = done * 2;
            }
        })
    }

    /// Counts under callgrind.
    fn count(&self, transactions: u64, seed: u64) -> Result<CostTable> {
        self.with(seed, |running, client, executable| {
            let (graph, done) = meter::call_graph(CountedWork {
                running,
                threads: self.adapter.client_threads(),
                transactions,
                run: &mut |running, n| client.run(running, n),
            })?;
            Ok(table::of_calls(&graph, done, executable))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_divide_all_transactions() {
        for transactions in [1, 7, TURNS, TURNS + 1, 10 * TURNS - 1, 123_456] {
            let turns: Vec<u64> = turns(transactions).collect();
            assert_eq!(turns.iter().sum::<u64>(), transactions);
            assert!(turns.len() as u64 <= TURNS);
            assert!(turns[0] - turns[turns.len() - 1] <= 1, "{turns:?}");
        }
    }

    #[test]
    fn no_server_is_always_first() {
        for seed in [1, 2] {
            let firsts: Vec<usize> = (0..8).map(|turn| order(turn, seed)[0]).collect();
            let of_second = firsts.iter().sum::<usize>();
            assert_eq!(of_second, 4, "{firsts:?}");
        }
        assert_ne!(order(0, 1), order(0, 2));
    }
}
