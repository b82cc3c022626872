//! Alternates between servers: each gets a turn of some milliseconds in every round, with several timed slices.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::connection::{Connection, run};
use super::plan::{Generator, Plan, Script};
use super::settings::RequestsSettings;
use crate::server::Running;
use crate::workload::burst::{Burst, BurstTime, thread_time};
use crate::workload::rounds::{MIN_ROUNDS, Rounds, SliceOf, rows};
use crate::workload::{BlockSlices, ClientFailure, Environment, TimedBlock};
use perfquilt_model::error::Result;
use perfquilt_model::observation::CLIENT_OPERATION;
use perfquilt_model::point::Point;
use perfquilt_system::process::{check_interrupted, processor_time};
use perfquilt_system::threads;

// The lengths are those of the sysbench driver (`sysbench/driver.lua`), which says why.

/// Target length of a slice.
const SLICE: Duration = Duration::from_micros(200);
/// Target length of a slice of several threads, which must be long enough for them to get into each other's way.
const BURST: Duration = Duration::from_millis(2);
/// Target length of the timed part of a turn.
const TURN: Duration = Duration::from_millis(2);
/// Target length of the part of a turn that is not timed: it fetches code and data back into the caches that the other
/// servers used in the meantime.
const LEAD: Duration = Duration::from_micros(300);
/// The least number of rounds from which the lengths are chosen.
const CALIBRATION_ROUNDS: usize = 5;
/// The most slices in a turn and transactions in a slice, should a server answer in no time.
const MAX_COUNT: f64 = 100_000.0;

/// How a server's turn in a round is spent. The counts are those of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// Transactions that are not timed.
    lead: usize,
    /// Timed slices.
    slices: usize,
    /// Transactions in a slice.
    per_slice: usize,
}

impl Turn {
    /// Chooses a turn; `one` is the time of one transaction of each connection, and a slice has at least `least`.
    fn choose(one: Duration, least: usize, settings: &RequestsSettings) -> Self {
        let one = one.as_secs_f64().max(1e-9);
        let times = |target: Duration, one: f64| (target.as_secs_f64() / one).min(MAX_COUNT);
        let is_burst = settings.threads > 1;
        let target = if is_burst { BURST } else { SLICE };
        let per_slice = match settings.slice_transactions {
            0 => (times(target, one).round() as usize).max(least),
            chosen => chosen as usize,
        };
        let slices = (times(TURN, one * per_slice as f64).round() as usize).max(1);
        if is_burst || slices == 1 {
            return Turn {
                lead: 0,
                slices: 1,
                per_slice,
            };
        }
        let lead = times(LEAD, one).ceil() as usize;
        Turn {
            lead: lead.max(least),
            slices,
            per_slice,
        }
    }

    fn transactions(&self) -> usize {
        self.lead + self.slices * self.per_slice
    }

    /// Returns the transactions of a slice.
    fn slice(&self, index: usize) -> Range<usize> {
        let start = self.lead + index * self.per_slice;
        start..start + self.per_slice
    }
}

/// A timed slice.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Slice {
    wall: Duration,
    /// Processor time of the server; zero if the kernel does not report it.
    cpu: Duration,
    /// Processor time of all threads of the client.
    client: Duration,
}

/// A server to measure.
struct Server {
    point: Point,
    processes: Vec<Process>,
}

/// A process of a server.
struct Process {
    pid: u32,
    /// Its processor time in nanoseconds when it was last read, which stays when it ends.
    nanoseconds: AtomicU64,
}

impl Server {
    /// Returns the processor time that its processes used so far; zero if the kernel does not report it.
    fn processor_time(&self) -> Duration {
        let times = self.processes.iter().map(|process| {
            if let Some(time) = processor_time(process.pid) {
                let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                process.nanoseconds.store(nanoseconds, Ordering::Relaxed);
            }
            Duration::from_nanos(process.nanoseconds.load(Ordering::Relaxed))
        });
        times.sum()
    }
}

/// Work of the connections of a server.
#[derive(Clone)]
enum Work {
    /// Runs transactions of generated scripts, one script a connection.
    Transactions(Arc<Vec<Script>>, Range<usize>),
    /// Makes the server publish what it counted for its connections.
    PublishCounters,
}

impl Work {
    /// Does the work of these `connections`, the first of which has the script with the index `first`.
    fn run(&self, connections: &mut [Connection<'_>], first: usize, pipeline: usize) -> Result<()> {
        match self {
            Work::Transactions(scripts, transactions) => {
                let scripts = &scripts[first..first + connections.len()];
                run(connections, scripts, transactions.clone(), pipeline)
            }
            Work::PublishCounters => connections
                .iter_mut()
                .try_for_each(Connection::publish_counters),
        }
    }
}

/// Does work on all connections of the server with an index, and returns how long that took.
type Runner<'a> = dyn FnMut(usize, Work) -> Result<BurstTime> + 'a;

/// The measured quantity.
#[derive(Clone, Copy)]
pub(super) struct Measurement<'a> {
    pub(super) environment: &'a Environment,
    pub(super) settings: &'a RequestsSettings,
    pub(super) plan: &'a Plan,
    /// The database of the workload's data.
    pub(super) database: Option<&'a str>,
}

impl Measurement<'_> {
    /// Measures all `servers`, alternating between them.
    pub(super) fn interleave(
        &self,
        servers: &[(Point, Running)],
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        let threads = self.settings.threads;
        let each = self.settings.connections / threads;
        let connect = |_| self.connect(servers, each);
        let of_threads: Vec<Vec<Vec<Connection<'_>>>> =
            (0..threads).map(connect).collect::<Result<_, _>>()?;
        let servers = self.settle(servers);
        let placement = &self.environment.placement;
        std::thread::scope(|scope| {
            // Use a new thread, since it is moved to the processors of the servers.
            let measured = scope.spawn(|| {
                placement.settle_this_thread(threads);
                self.measure(&servers, of_threads, block)
            });
            // Propagate a panic of the thread.
            measured
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Opens `count` connections to each server.
    fn connect(
        &self,
        servers: &[(Point, Running)],
        count: u32,
    ) -> Result<Vec<Vec<Connection<'_>>>, ClientFailure> {
        let mut all = Vec::new();
        for (point, running) in servers {
            let open = |_| Connection::open(self.plan, running, self.database);
            let connections: Result<Vec<Connection<'_>>> = (0..count).map(open).collect();
            all.push(connections.map_err(ClientFailure::at(*point))?);
        }
        Ok(all)
    }

    /// Returns the servers, with all their processes moved to the processors of the measurement. Connections are open, so
    /// these include those that work for a connection alone.
    fn settle(&self, servers: &[(Point, Running)]) -> Vec<Server> {
        let placement = &self.environment.placement;
        let settled = servers.iter().map(|(point, running)| {
            placement.settle(running.pid(), self.settings.threads);
            let processes = running.pids().into_iter().map(|pid| Process {
                pid,
                nanoseconds: AtomicU64::new(0),
            });
            Server {
                point: *point,
                processes: processes.collect(),
            }
        });
        settled.collect()
    }

    /// Measures with the connections of each thread, by server.
    fn measure(
        &self,
        servers: &[Server],
        mut of_threads: Vec<Vec<Vec<Connection<'_>>>>,
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        let pipeline = self.settings.pipeline as usize;
        if of_threads.len() == 1 {
            let mut connections = of_threads.remove(0);
            return self.alternate(servers, block, &mut |server, work| {
                let before = thread_time();
                let started = Instant::now();
                work.run(&mut connections[server], 0, pipeline)?;
                Ok(BurstTime {
                    wall: started.elapsed(),
                    client: thread_time().saturating_sub(before),
                })
            });
        }
        let threads = self.settings.threads;
        let each = (self.settings.connections / threads) as usize;
        let burst = Burst::new(of_threads.len());
        std::thread::scope(|scope| {
            let placement = &self.environment.placement;
            for (thread, mut connections) in of_threads.into_iter().enumerate() {
                let burst = &burst;
                scope.spawn(move || {
                    placement.settle_this_thread(threads);
                    burst.serve(|(server, work): &(usize, Work)| {
                        work.run(&mut connections[*server], thread * each, pipeline)
                    });
                });
            }
            let mut threads = burst.handle();
            self.alternate(servers, block, &mut |server, work| {
                threads.run((server, work))
            })
        })
    }

    /// Runs rounds of a turn for each server. All servers of a round get the same requests.
    fn alternate(
        &self,
        servers: &[Server],
        block: &TimedBlock<'_>,
        runner: &mut Runner<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        let mut random = StdRng::seed_from_u64(block.seed);
        let mut rounds = Rounds::new(servers.len(), block, &mut random);
        let mut generated = Generated::new(self, block);
        let pipeline = self.settings.pipeline as usize;
        // A slice should not end with fewer requests in flight than it begins with.
        let least = pipeline.div_ceil(self.plan.fewest_requests());
        let mut turn = Turn {
            lead: 0,
            slices: 1,
            per_slice: least,
        };
        // With the short turns of the warm-up, transactions take longer than later; so choose twice.
        for seconds in [block.warm_up_seconds, 0.0] {
            let mut slices = rounds.repeat(
                seconds,
                CALIBRATION_ROUNDS,
                &mut take_turns(servers, runner, &mut generated, turn),
            )?;
            let recent = slices.split_off(slices.len().saturating_sub(100));
            let one = median(recent.into_iter().flatten().flatten(), turn.per_slice);
            turn = Turn::choose(one, least, self.settings);
        }
        let publish = |runner: &mut Runner<'_>| {
            let asked = if block.reads_storage() { servers } else { &[] };
            for (index, server) in asked.iter().enumerate() {
                let published = runner(index, Work::PublishCounters);
                published.map_err(ClientFailure::at(server.point))?;
            }
            Ok::<(), ClientFailure>(())
        };
        publish(runner)?;
        block.slices_begin();
        let rounds = rounds.repeat(
            block.seconds,
            MIN_ROUNDS,
            &mut take_turns(servers, runner, &mut generated, turn),
        )?;
        publish(runner)?;
        block.slices_end();
        Ok(self.block_slices(servers, &rounds, turn))
    }

    /// Returns the slices of all rounds, one row a slice of a turn.
    fn block_slices(
        &self,
        servers: &[Server],
        rounds: &[Vec<Vec<Slice>>],
        turn: Turn,
    ) -> BlockSlices {
        let points: Vec<Point> = servers.iter().map(|server| server.point).collect();
        let slices: Vec<Vec<Slice>> = rounds
            .iter()
            .flat_map(|round| {
                (0..turn.slices)
                    .map(|index| round.iter().map(|slices| slices[index]).collect())
                    .collect::<Vec<_>>()
            })
            .collect();
        let transactions = turn.per_slice as u64 * u64::from(self.settings.connections);
        let rows = |value: &dyn Fn(&Slice) -> Duration| {
            let nanoseconds = |slice: &Slice| value(slice).as_nanos() as f32;
            rows(&points, &slices, transactions, &nanoseconds)
        };
        let operations = if self.settings.client_time {
            [(CLIENT_OPERATION.to_owned(), rows(&|slice| slice.client))].into()
        } else {
            Default::default()
        };
        let has_cpu = slices.iter().flatten().any(|slice| !slice.cpu.is_zero());
        BlockSlices {
            time: rows(&|slice| slice.wall),
            cpu: if has_cpu {
                rows(&|slice| slice.cpu)
            } else {
                Vec::new()
            },
            operations,
            rounds: rounds.len() as u64,
            untimed_share: turn.lead as f64 / (turn.slices * turn.per_slice).max(1) as f64,
            ..BlockSlices::default()
        }
    }
}

/// Returns the function that runs a server's turn in a round.
fn take_turns<'a>(
    servers: &'a [Server],
    runner: &'a mut Runner<'_>,
    generated: &'a mut Generated<'_>,
    turn: Turn,
) -> Box<SliceOf<'a, Vec<Slice>>> {
    Box::new(move |index, number| {
        check_interrupted()?;
        let server = &servers[index];
        let scripts = generated.of_round(number, turn.transactions());
        let mut time = |transactions| {
            let work = Work::Transactions(Arc::clone(scripts), transactions);
            runner(index, work).map_err(ClientFailure::at(server.point))
        };
        if turn.lead > 0 {
            time(0..turn.lead)?;
        }
        let mut before = server.processor_time();
        let mut slices = Vec::with_capacity(turn.slices);
        for slice in 0..turn.slices {
            let spent = time(turn.slice(slice))?;
            let after = server.processor_time();
            slices.push(Slice {
                wall: spent.wall,
                client: spent.client,
                cpu: after.saturating_sub(before),
            });
            before = after;
        }
        Ok(slices)
    })
}

/// Returns the median time of a slice divided by its transactions.
fn median(slices: impl Iterator<Item = Slice>, per_slice: usize) -> Duration {
    let mut times: Vec<Duration> = slices.map(|slice| slice.wall).collect();
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    middle.div_f64(per_slice.max(1) as f64)
}

/// The requests of the current round, generated once for all servers.
struct Generated<'a> {
    generator: Generator<'a>,
    connections: usize,
    number: Option<u64>,
    scripts: Arc<Vec<Script>>,
}

impl<'a> Generated<'a> {
    fn new(measurement: &Measurement<'a>, block: &TimedBlock<'_>) -> Self {
        Generated {
            generator: Generator::new(measurement.plan, block.seed).at_attempt(block.attempt),
            connections: measurement.settings.connections as usize,
            number: None,
            scripts: Arc::default(),
        }
    }

    /// Returns the scripts of the round with this number: `count` transactions for each connection.
    fn of_round(&mut self, number: u64, count: usize) -> &Arc<Vec<Script>> {
        if self.number != Some(number) {
            self.number = Some(number);
            self.generator.reseed(number);
            self.scripts = Arc::new(scripts(&mut self.generator, self.connections, count));
        }
        &self.scripts
    }
}

/// Generates `count` transactions for each of `connections`.
fn scripts(generator: &mut Generator<'_>, connections: usize, count: usize) -> Vec<Script> {
    let generate = |_| {
        let mut script = Script::default();
        generator.generate(count, &mut script);
        script
    };
    (0..connections).map(generate).collect()
}

/// Connections that run transactions on request.
pub(super) struct OnRequest<'a> {
    generator: Generator<'a>,
    connections: Vec<Connection<'a>>,
    settings: &'a RequestsSettings,
    seed: u64,
    /// Requests served so far.
    served: u64,
}

/// The most transactions of a connection that are generated at once.
const BATCH: u64 = 4096;

impl<'a> OnRequest<'a> {
    pub(super) fn new(
        settings: &'a RequestsSettings,
        plan: &'a Plan,
        database: Option<&str>,
        running: &Running,
        seed: u64,
    ) -> Result<Self> {
        let open = |_| Connection::open(plan, running, database);
        Ok(OnRequest {
            generator: Generator::new(plan, seed),
            connections: (0..settings.connections).map(open).collect::<Result<_>>()?,
            settings,
            seed,
            served: 0,
        })
    }

    fn run_batch(&mut self, count: usize) -> Result<()> {
        let connections = self.connections.len();
        let scripts = scripts(&mut self.generator, connections, count);
        let pipeline = self.settings.pipeline as usize;
        let each = connections / (self.settings.threads as usize).max(1);
        let parts = self.connections.chunks_mut(each).zip(scripts.chunks(each));
        let done = threads::each(parts, |(own, scripts)| {
            run(own, scripts, 0..count, pipeline)
        });
        done.into_iter().collect()
    }
}

impl crate::workload::Requests for OnRequest<'_> {
    /// Runs a multiple of the connections.
    fn run(&mut self, _running: &Running, transactions: u64) -> Result<u64> {
        let connections = self.connections.len() as u64;
        let each = transactions.div_ceil(connections).max(1);
        self.served += 1;
        // Every request has transactions of its own that depend on nothing before it.
        self.generator
            .reseed(self.seed.wrapping_add(self.served.wrapping_mul(7919)));
        let mut left = each;
        while left > 0 {
            let batch = left.min(BATCH);
            self.run_batch(batch as usize)?;
            left -= batch;
        }
        Ok(each * connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> RequestsSettings {
        let text = format!("protocol = 'resp'\ntransaction = []\n{text}");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn turns_have_slices_of_a_fifth_of_a_millisecond() {
        let choose = |micros, least, text| {
            Turn::choose(Duration::from_micros(micros), least, &settings(text))
        };
        let turn = |lead, slices, per_slice| Turn {
            lead,
            slices,
            per_slice,
        };
        assert_eq!(choose(20, 1, ""), turn(15, 10, 10));
        assert_eq!(choose(150, 1, ""), turn(2, 13, 1));
        // A transaction longer than a turn, and pipelines longer than a slice.
        assert_eq!(choose(5000, 1, ""), turn(0, 1, 1));
        assert_eq!(choose(10, 100, ""), turn(100, 2, 100));
        assert_eq!(choose(20, 1, "slice_transactions = 50"), turn(15, 2, 50));
        assert_eq!(choose(20, 1, "threads = 4"), turn(0, 1, 100));
        // A clock that stands still.
        assert_eq!(choose(0, 1, "").per_slice, 100_000);
    }

    #[test]
    fn the_slices_of_a_turn_follow_its_lead() {
        let turn = Turn {
            lead: 3,
            slices: 2,
            per_slice: 5,
        };
        assert_eq!((turn.slice(0), turn.slice(1)), (3..8, 8..13));
        assert_eq!(turn.transactions(), 13);
    }
}
