//! Runs the same transactions on two servers, under callgrind or sampled by perf.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::table;
use crate::meter::call_graph::CallGraph;
use crate::meter::samples::{self, Samples, SamplingEvent};
use crate::meter::{self, Counter, WARM_UP};
use crate::server::{self, Launch, Running, Scratch, ServerAdapter, ServerSpace, prepare_template};
use crate::workload::{Clients, Serving};
use perfquilt_config::Workload;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::profile::CostTable;
use perfquilt_model::progress::Progress;
use perfquilt_system::process::check_interrupted;

/// Target seconds of a run under valgrind without counting; counting makes it about ten times as long.
const COUNTED_SECONDS: f64 = 0.3;
/// Target seconds of a sampled run.
const SAMPLED_SECONDS: f64 = 4.0;
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
pub struct Subject {
    /// Label for messages: the release and the last patch.
    pub label: String,
    /// The folder of the built server.
    pub server: PathBuf,
    /// The measured executable.
    pub executable: PathBuf,
    /// The release that determines its configuration and clients.
    pub release: String,
    /// Identifier of its data; servers of the same release share it.
    pub data: String,
    /// The folder of the built server that creates the data if it does not exist.
    pub base: PathBuf,
}

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

/// Profiles both servers. Under callgrind both run in parallel; sampled, they run one after the other, in
/// alternating order.
///
/// # Errors
/// [`Kind::Usage`] when valgrind, perf or a workload's script is missing; [`Kind::Bench`] when a server or client
/// fails.
pub fn measure(
    ws: &Workspace,
    request: &ProfileRequest<'_>,
    [before, after]: [&Subject; 2],
    progress: &dyn Progress,
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
    let sides = [
        Side::new(ws, workload, source, before, progress)?,
        Side::new(ws, workload, source, after, progress)?,
    ];
    let step = progress.begin("profile", Some(u64::from(runs)));
    let transactions = match transactions {
        Some(transactions) => transactions.max(1),
        None => sides[0].calibrate()?,
    };
    let mut tables = CostTables {
        transactions,
        ..CostTables::default()
    };
    for run in 0..runs {
        check_interrupted()?;
        let message = format!("{} transactions of {}", transactions, workload.name);
        step.update(u64::from(run), Some(u64::from(runs)), &message);
        let [first, second] = &sides;
        let seed = u64::from(run) + 1;
        let (one, other) = match (source, run % 2) {
            (CostSource::Callgrind, _) => std::thread::scope(|scope| {
                let other = scope.spawn(|| second.run(transactions, seed));
                let one = first.run(transactions, seed);
                let panicked = |_| Err(Error::internal("a run ended in a panic"));
                (one, other.join().unwrap_or_else(panicked))
            }),
            (CostSource::Perf(_), 0) => (
                first.run(transactions, seed),
                second.run(transactions, seed),
            ),
            (CostSource::Perf(_), _) => {
                let other = second.run(transactions, seed);
                (first.run(transactions, seed), other)
            }
        };
        tables.before.push(one?);
        tables.after.push(other?);
    }
    step.finish(&format!(
        "{runs} runs of {transactions} transactions on each server"
    ));
    Ok(tables)
}

/// One server with everything needed to start it.
struct Side<'a> {
    source: CostSource,
    subject: &'a Subject,
    workload: &'a Workload,
    adapter: Box<dyn ServerAdapter>,
    clients: Clients,
    template: PathBuf,
    scratch: Scratch,
}

impl<'a> Side<'a> {
    fn new(
        ws: &Workspace,
        workload: &'a Workload,
        source: CostSource,
        subject: &'a Subject,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let adapter = server::adapter(ws)?;
        let clients = Clients::new(ws, &subject.release, &[workload])?;
        let key = clients.template_key(&subject.data, adapter.as_ref(), &[workload])?;
        let template = prepare_template(
            ws,
            adapter.as_ref(),
            &subject.base,
            &key,
            &|running| clients.fill(&[workload], running),
            progress,
        )?;
        let space = ServerSpace {
            servers: SERVERS,
            bytes: server::size_of_tree(&template)?,
        };
        let scratch = Scratch::open(ws, space)?;
        Ok(Side {
            source,
            subject,
            workload,
            adapter,
            clients,
            template,
            scratch,
        })
    }

    /// Starts the server and a client for it, and calls `work` with them.
    fn with<T>(
        &self,
        seed: u64,
        work: impl FnOnce(&mut Running, &Serving<'_>, &Path) -> Result<T>,
    ) -> Result<T> {
        let dir = self.scratch.fresh()?;
        let mut launch = Launch::new(&self.subject.label, &self.subject.server, &dir);
        launch.template = Some(&self.template);
        if self.source == CostSource::Callgrind {
            launch.instrumentation = meter::call_graph_instrumentation(&dir);
        }
        let mut running = self.adapter.start(&launch)?;
        self.clients
            .after_start(self.workload, &running)
            .map_err(|error| running.explain(error))?;
        let serving = self
            .clients
            .serve(&running, self.workload, seed)
            .map_err(|error| running.explain(error))?;
        let result = work(&mut running, &serving, &dir)?;
        running.stop()?;
        Ok(result)
    }

    /// Returns the number of transactions for a run of the target length.
    fn calibrate(&self) -> Result<u64> {
        let wanted_seconds = match self.source {
            CostSource::Callgrind => COUNTED_SECONDS,
            CostSource::Perf(_) => SAMPLED_SECONDS,
        };
        self.with(0, |running, serving, _| {
            let mut transactions = 1;
            // The first transactions open tables and fill caches.
            serving.request(running, transactions)?;
            loop {
                check_interrupted()?;
                let started = Instant::now();
                let done = serving.request(running, transactions)?;
                let seconds = started.elapsed().as_secs_f64();
                if seconds >= wanted_seconds / 4.0 || done >= 1 << 24 {
                    let wanted = done as f64 * wanted_seconds / seconds.max(1e-6);
                    return Ok((wanted.ceil() as u64).max(1));
                }
                transactions = done * 2;
            }
        })
    }

    fn run(&self, transactions: u64, seed: u64) -> Result<CostTable> {
        let warm_up = transactions.div_ceil(WARM_UP);
        let executable = &self.subject.executable;
        let (table, done) = match self.source {
            CostSource::Callgrind => {
                let (graph, done): (CallGraph, u64) = self.with(seed, |running, serving, _| {
                    let threads = self.adapter.client_threads();
                    meter::call_graph(running, threads, warm_up, transactions, &|running, n| {
                        serving.request(running, n)
                    })
                })?;
                (table::of_calls(&graph, done, executable), done)
            }
            CostSource::Perf(by) => {
                let (samples, done): (Samples, u64) = self.with(seed, |running, serving, _| {
                    samples::sample(
                        running,
                        by,
                        executable,
                        warm_up,
                        transactions,
                        &|running, n| serving.request(running, n),
                    )
                })?;
                (table::of_samples(&samples, done, executable), done)
            }
        };
        match done {
            0 => Err(Error::new(Kind::Bench, "the client ran no transaction")),
            _ => Ok(table),
        }
    }
}
