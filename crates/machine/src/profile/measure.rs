//! Runs two servers with the same transactions, under callgrind or sampled by perf.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::table;
use crate::meter::call_graph::CallGraph;
use crate::meter::samples::{self, Sampled, Samples};
use crate::meter::{self, Counter, WARM_UP};
use crate::server::{self, Launch, Running, Scratch, ServerAdapter, prepare_template};
use crate::workload::{Clients, Serving};
use perfquilt_config::Workload;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::profile::CostTable;
use perfquilt_model::progress::Progress;
use perfquilt_system::process::check_interrupted;

/// Seconds that a run's transactions take under valgrind without counting: counted, they take some tenfold.
const COUNTED_SECONDS: f64 = 0.3;
/// Seconds of a sampled run.
const SAMPLED_SECONDS: f64 = 4.0;
/// Room for the data of a server, beside its template's size.
const SERVERS: usize = 2;

/// Where costs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Every instruction is counted, by callgrind.
    Callgrind,
    /// The server is sampled at full speed, by perf.
    Perf(Sampled),
}

impl Source {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Callgrind => "callgrind",
            Source::Perf(_) => "perf",
        }
    }

    /// The unit of its costs, in words.
    pub fn unit(self) -> &'static str {
        match self {
            Source::Callgrind => "instructions",
            Source::Perf(by) => by.unit(),
        }
    }
}

/// A server to look into.
#[derive(Debug, Clone)]
pub struct Subject {
    /// What it is, for people: the release and the last patch.
    pub label: String,
    /// The folder of the built server.
    pub server: PathBuf,
    /// The measured executable.
    pub executable: PathBuf,
    /// The release whose configuration and clients it gets.
    pub release: String,
    /// What its data is known by: servers of the same release share it.
    pub data: String,
    /// The folder of the built server that makes the data, if it is not there.
    pub base: PathBuf,
}

/// What transactions cost both servers, a table a run; run `i` of both did the same transactions.
#[derive(Debug, Clone, Default)]
pub struct Pair {
    /// The first server's.
    pub before: Vec<CostTable>,
    /// The second's.
    pub after: Vec<CostTable>,
    /// Transactions of a run.
    pub transactions: u64,
}

/// Looks into both servers `runs` times, each time from fresh starts, with `transactions` (`None`: as many as
/// take some seconds). Counted, both run side by side; sampled, one after the other, the first one first in every
/// other run.
///
/// # Errors
/// [`Kind::Usage`] when valgrind, perf or a workload's script is missing; [`Kind::Bench`] when a server or client
/// fails.
pub fn measure(
    ws: &Workspace,
    workload: &Workload,
    source: Source,
    [before, after]: [&Subject; 2],
    transactions: Option<u64>,
    runs: u32,
    progress: &dyn Progress,
) -> Result<Pair> {
    // Says what is missing before anything is started.
    if source == Source::Callgrind {
        Counter::callgrind()?;
    }
    let sides = [
        Side::new(ws, workload, source, before, progress)?,
        Side::new(ws, workload, source, after, progress)?,
    ];
    let step = progress.begin("profile", Some(u64::from(runs)));
    let transactions = match transactions {
        Some(transactions) => transactions.max(1),
        None => sides[0].enough()?,
    };
    let mut pair = Pair {
        transactions,
        ..Pair::default()
    };
    for run in 0..runs {
        check_interrupted()?;
        let message = format!("{} transactions of {}", transactions, workload.name);
        step.update(u64::from(run), Some(u64::from(runs)), &message);
        let [first, second] = &sides;
        let seed = u64::from(run) + 1;
        let (one, other) = match (source, run % 2) {
            (Source::Callgrind, _) => std::thread::scope(|scope| {
                let other = scope.spawn(|| second.run(transactions, seed));
                let one = first.run(transactions, seed);
                let panicked = |_| Err(Error::internal("a run ended in a panic"));
                (one, other.join().unwrap_or_else(panicked))
            }),
            (Source::Perf(_), 0) => (
                first.run(transactions, seed),
                second.run(transactions, seed),
            ),
            (Source::Perf(_), _) => {
                let other = second.run(transactions, seed);
                (first.run(transactions, seed), other)
            }
        };
        pair.before.push(one?);
        pair.after.push(other?);
    }
    step.finish(&format!(
        "{runs} runs of {transactions} transactions on each server"
    ));
    Ok(pair)
}

/// One server and what it needs to be started.
struct Side<'a> {
    source: Source,
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
        source: Source,
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
        let scratch = Scratch::open(ws, SERVERS, server::size_of_tree(&template)?)?;
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

    /// Starts the server and a client for it, and lets `work` work with them.
    fn with<T>(
        &self,
        seed: u64,
        work: impl FnOnce(&mut Running, &Serving<'_>, &Path) -> Result<T>,
    ) -> Result<T> {
        let dir = self.scratch.fresh()?;
        let mut launch = Launch::new(&self.subject.label, &self.subject.server, &dir);
        launch.template = Some(&self.template);
        if self.source == Source::Callgrind {
            launch.under = meter::under_for_call_graph(&dir);
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

    /// Transactions that make a run long enough.
    fn enough(&self) -> Result<u64> {
        let wanted_seconds = match self.source {
            Source::Callgrind => COUNTED_SECONDS,
            Source::Perf(_) => SAMPLED_SECONDS,
        };
        self.with(0, |running, serving, _| {
            let mut transactions = 1;
            // The first ones open tables and fill caches.
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
            Source::Callgrind => {
                let (graph, done): (CallGraph, u64) = self.with(seed, |running, serving, _| {
                    let threads = self.adapter.client_threads();
                    meter::call_graph(running, threads, warm_up, transactions, &|running, n| {
                        serving.request(running, n)
                    })
                })?;
                (table::of_calls(&graph, done, executable), done)
            }
            Source::Perf(by) => {
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
            0 => Err(Error::new(Kind::Bench, "no transaction was done")),
            _ => Ok(table),
        }
    }
}
