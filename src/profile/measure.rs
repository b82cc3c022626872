//! Runs two servers under callgrind with the same transactions.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::table::Table;
use crate::config::Workload;
use crate::error::{Error, Kind, Result};
use crate::meter::{self, call_graph::CallGraph};
use crate::process::check_interrupted;
use crate::progress::Progress;
use crate::server::{self, Launch, Running, Scratch, ServerAdapter, prepare_template};
use crate::workload::{Clients, Serving};
use crate::workspace::Workspace;

/// Seconds that a run's transactions take under valgrind without counting: counted, they take some tenfold.
const RUN_SECONDS: f64 = 0.3;
/// The share of the counted transactions that is done uncounted before.
const WARM_UP: u64 = 5;
/// Room for the data of a server, beside its template's size.
const SERVERS: usize = 2;

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

/// What both servers executed, a table a run; run `i` of both did the same transactions.
#[derive(Debug, Clone, Default)]
pub struct Pair {
    /// The first server's.
    pub before: Vec<Table>,
    /// The second's.
    pub after: Vec<Table>,
    /// Transactions of a run.
    pub transactions: u64,
}

/// Looks into both servers `runs` times, each time from fresh starts, with `transactions` (`None`: as many as
/// take some seconds).
///
/// # Errors
/// [`Kind::Usage`] when valgrind or a workload's script is missing; [`Kind::Bench`] when a server or client
/// fails.
pub fn measure(
    ws: &Workspace,
    workload: &Workload,
    before: &Subject,
    after: &Subject,
    transactions: Option<u64>,
    runs: u32,
    progress: &dyn Progress,
) -> Result<Pair> {
    // Says what is missing before anything is started.
    meter::Counter::callgrind()?;
    let sides = [
        Side::new(ws, workload, before, progress)?,
        Side::new(ws, workload, after, progress)?,
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
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| second.run(transactions, u64::from(run) + 1));
            let one = first.run(transactions, u64::from(run) + 1);
            (one, other.join())
        });
        pair.before.push(one?);
        pair.after
            .push(other.map_err(|_| Error::internal("a run ended in a panic"))??);
    }
    step.finish(&format!(
        "{runs} runs of {transactions} transactions on each server"
    ));
    Ok(pair)
}

/// One server and what it needs to be started.
struct Side<'a> {
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
        launch.under = meter::under_for_call_graph(&dir);
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
        self.with(0, |running, serving, _| {
            let mut transactions = 1;
            // The first ones open tables and fill caches.
            serving.request(running, transactions)?;
            loop {
                check_interrupted()?;
                let started = Instant::now();
                let done = serving.request(running, transactions)?;
                let seconds = started.elapsed().as_secs_f64();
                if seconds >= RUN_SECONDS / 4.0 || done >= 1 << 24 {
                    let wanted = done as f64 * RUN_SECONDS / seconds.max(1e-6);
                    return Ok((wanted.ceil() as u64).max(1));
                }
                transactions = done * 2;
            }
        })
    }

    fn run(&self, transactions: u64, seed: u64) -> Result<Table> {
        let (graph, done): (CallGraph, u64) = self.with(seed, |running, serving, _| {
            meter::call_graph(
                running,
                self.adapter.client_threads(),
                transactions.div_ceil(WARM_UP),
                transactions,
                &|running, transactions| serving.request(running, transactions),
            )
        })?;
        if done == 0 {
            return Err(Error::new(Kind::Bench, "no transaction was done"));
        }
        Ok(Table::new(&graph, done, &self.subject.executable))
    }
}
