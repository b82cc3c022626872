//! Counting meters: events per transaction of a server, from hardware counters or callgrind.
//!
//! Meters do not depend on clients: the caller passes a function that runs a number of transactions on the
//! server. Both sources count user space only.

pub mod call_graph;
mod name;
mod perf;
pub mod samples;
mod vgdb;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::server::{ClientThreads, Instrumentation, Running};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_system::packages::install_hint;
use perfquilt_system::process::{Command, find_program};

pub use name::plain_name;

use call_graph::{CallGraph, FunctionCost};

/// Counted transactions per uncounted one before them, which fills caches and the server's memory pools.
pub const WARM_UP: u64 = 5;

/// A meter's reading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeterReading {
    /// The meter.
    pub meter: Meter,
    /// Its reading per transaction, in [`Meter::unit`].
    pub value: f64,
    /// Counted transactions.
    pub n: u64,
}

/// Result of counting a number of transactions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountResult {
    /// One reading per meter.
    pub readings: Vec<MeterReading>,
    /// Own cost of every function over all counted transactions, highest first; empty if the source does
    /// not distinguish functions.
    pub functions: Vec<FunctionCost>,
}

/// Runs (at least) a number of transactions on a server and returns how many it ran.
pub type RunTransactions<'a> = dyn FnMut(&Running, u64) -> Result<u64> + 'a;

/// This machine's source of counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// The meters it reads.
    pub meters: Vec<Meter>,
    backend: Backend,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Backend {
    Perf(Vec<&'static perf::EventSource>),
    /// With its version.
    Callgrind(String),
}

impl Counter {
    /// Chooses hardware counters if this machine has them, else callgrind.
    pub fn detect() -> Result<Self> {
        match Self::hardware()? {
            Some(counter) if counter.meters.contains(&Meter::Instructions) => Ok(counter),
            _ => Self::callgrind(),
        }
    }

    /// Returns the processor's readable counters; `None` if there are none.
    pub fn hardware() -> Result<Option<Self>> {
        let sources = perf::supported()?;
        let meters = sources.iter().map(|source| source.meter).collect();
        Ok((!sources.is_empty()).then_some(Counter {
            meters,
            backend: Backend::Perf(sources),
        }))
    }

    /// Returns callgrind even on machines with hardware counters, because it distinguishes functions.
    pub fn callgrind() -> Result<Self> {
        for program in ["valgrind", "vgdb"] {
            if find_program(program).is_none() {
                return Err(Error::meter_unavailable(format!(
                    "instructions cannot be counted: this machine has no hardware counters for \
                     `perf stat`, and `{program}` is not installed"
                ))
                .hint(install_hint("valgrind").unwrap_or_else(|| {
                    "`perfquilt doctor` names the command that installs valgrind".to_owned()
                })));
            }
        }
        let output = Command::new("valgrind").arg("--version").run()?;
        Ok(Counter {
            meters: vec![Meter::Instructions, Meter::L1iMisses],
            backend: Backend::Callgrind(output.stdout_text().trim().to_owned()),
        })
    }

    /// Describes the source for the record of an experiment: counts of different sources are not comparable.
    pub fn describe(&self) -> String {
        match &self.backend {
            Backend::Perf(sources) => {
                let events: Vec<&str> = sources
                    .iter()
                    .flat_map(|source| source.events)
                    .copied()
                    .collect();
                format!(
                    "perf: hardware counters, user space, all threads of the server: {}",
                    events.join(", ")
                )
            }
            // Simulated only where misses are wanted, which changes no other count.
            Backend::Callgrind(version) => format!(
                "callgrind ({version}): clients' threads, simulated caches of 32 KiB (8-way)"
            ),
        }
    }

    /// Restricts the counter to these meters: a processor has few hardware counters, and perf only extrapolates
    /// events that do not fit; callgrind takes twice as long with caches.
    #[must_use]
    pub fn only(mut self, wanted: &[Meter]) -> Self {
        if let Backend::Perf(sources) = &mut self.backend {
            sources.retain(|source| wanted.contains(&source.meter));
        }
        self.meters.retain(|meter| wanted.contains(meter));
        self
    }

    /// Returns the meters it reads, each with its events; callgrind has none.
    pub fn events(&self) -> Vec<(Meter, String)> {
        match &self.backend {
            Backend::Perf(sources) => sources
                .iter()
                .map(|source| (source.meter, source.events.join(" / ")))
                .collect(),
            Backend::Callgrind(_) => Vec::new(),
        }
    }

    /// Returns the instrumentation for counting a server started in `dir`.
    pub fn instrumentation(&self, dir: &Path) -> Instrumentation {
        match &self.backend {
            Backend::Perf(_) => Instrumentation::Plain,
            Backend::Callgrind(_) => Instrumentation::Callgrind {
                out: dir.join("callgrind.out"),
                addresses: false,
                caches: self.meters.contains(&Meter::L1iMisses),
            },
        }
    }

    /// Counts the work on a server that was started with [`Counter::instrumentation`].
    pub fn count(&self, mut work: CountedWork<'_>) -> Result<CountResult> {
        work.warm_up()?;
        match &self.backend {
            Backend::Perf(sources) => work.count_with_perf(sources),
            Backend::Callgrind(_) => work.count_with_callgrind(),
        }
    }
}

/// Transactions to count on a server.
pub struct CountedWork<'w> {
    /// The server.
    pub running: &'w mut Running,
    /// Its threads that execute the clients' work.
    pub threads: ClientThreads,
    /// The number of counted transactions; [`WARM_UP`] tells how many others come before them.
    pub transactions: u64,
    /// Does the same work every time (a fixed seed), and all of it in one call: the cost of connecting counts once per call.
    pub run: &'w mut RunTransactions<'w>,
}

/// Calls `run` and checks that it ran transactions and that the server is still up.
pub(crate) fn run_checked(
    running: &mut Running,
    transactions: u64,
    run: &mut RunTransactions<'_>,
) -> Result<u64> {
    match run(running, transactions) {
        Ok(0) => Err(Error::no_transaction(format!(
            "the workload ran no transaction on the server of {}",
            running.label
        ))),
        Ok(n) => running.check().map(|()| n),
        Err(error) => Err(running.explain(error)),
    }
}

impl CountedWork<'_> {
    fn warm_up(&mut self) -> Result<()> {
        let transactions = self.transactions.div_ceil(WARM_UP);
        run_checked(self.running, transactions, self.run).map(drop)
    }

    fn run(&mut self) -> Result<u64> {
        run_checked(self.running, self.transactions, self.run)
    }

    fn count_with_perf(&mut self, sources: &[&perf::EventSource]) -> Result<CountResult> {
        let mut session = perf::PerfSession::count(self.running, sources)?;
        session.enable()?;
        let n = self.run()?;
        let file = session.finish()?;
        let text = std::fs::read_to_string(&file).map_err(|e| Error::io("read", &file, &e))?;
        let readings = perf::readings(&text, sources, n)?
            .into_iter()
            .map(|(meter, value)| MeterReading { meter, value, n })
            .collect();
        Ok(CountResult {
            readings,
            functions: Vec::new(),
        })
    }

    fn count_with_callgrind(&mut self) -> Result<CountResult> {
        let (graph, n) = self.instrumented()?;
        let reading = |meter, total: u64| MeterReading {
            meter,
            value: total as f64 / n as f64,
            n,
        };
        Ok(CountResult {
            readings: vec![
                reading(Meter::Instructions, graph.instructions),
                reading(Meter::L1iMisses, graph.l1i_misses),
            ],
            functions: graph.own_costs(),
        })
    }

    /// Runs the transactions with callgrind's counting on; returns the costs of the clients' threads and the number of
    /// transactions.
    fn instrumented(&mut self) -> Result<(CallGraph, u64)> {
        let control = vgdb::Control::new(self.running)?;
        control.instrument(self.running, true)?;
        let n = self.run()?;
        control.instrument(self.running, false)?;
        let graph = of_clients(&control.dump(self.running)?, self.threads);
        if graph.instructions > 0 {
            return Ok((graph, n));
        }
        let label = &self.running.label;
        Err(Error::meter_failed(format!("callgrind counted nothing in the server of {label}")).hint(
            "the command that starts the server must stay in the foreground and be the server itself",
        ))
    }
}

/// Returns the instrumentation of a server started in `dir` for [`call_graph()`].
pub fn call_graph_instrumentation(dir: &Path) -> Instrumentation {
    Instrumentation::Callgrind {
        out: dir.join("callgrind.out"),
        addresses: true,
        caches: false,
    }
}

/// Returns the call graph with costs of the clients' threads for work on a server that was started with
/// [`call_graph_instrumentation`], and the number of counted transactions.
pub fn call_graph(mut work: CountedWork<'_>) -> Result<(CallGraph, u64)> {
    work.warm_up()?;
    work.instrumented()
}

/// Sums the costs of the clients' threads.
fn of_clients(graphs: &[CallGraph], threads: ClientThreads) -> CallGraph {
    if let ClientThreads::WithFunction(name) = threads {
        let clients: Vec<&CallGraph> = graphs.iter().filter(|graph| graph.ran(name)).collect();
        if !clients.is_empty() {
            return CallGraph::sum(clients);
        }
    }
    CallGraph::sum(graphs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(function: &str, instructions: u64) -> CallGraph {
        CallGraph {
            instructions,
            functions: vec![function.to_owned()],
            ..CallGraph::default()
        }
    }

    #[test]
    fn caches_are_simulated_only_where_misses_are_wanted() {
        let counter = Counter {
            meters: vec![Meter::Instructions, Meter::L1iMisses],
            backend: Backend::Callgrind(String::new()),
        };
        let simulates = |wanted: &[Meter]| {
            let all = counter.describe();
            let counter = counter.clone().only(wanted);
            assert_eq!(counter.meters, wanted);
            // Counts with caches and without are comparable.
            assert_eq!(counter.describe(), all);
            match counter.instrumentation(Path::new("/x")) {
                Instrumentation::Callgrind { caches, .. } => caches,
                other => panic!("{other:?}"),
            }
        };
        assert!(!simulates(&[Meter::Instructions]));
        assert!(simulates(&[Meter::Instructions, Meter::L1iMisses]));
    }

    #[test]
    fn only_clients_threads_are_counted() {
        let all = [
            profile("main", 7),
            profile("do_command(THD*)", 100),
            profile("do_command(THD*)", 200),
        ];
        let with = ClientThreads::WithFunction("do_command");
        assert_eq!(of_clients(&all, with).instructions, 300);
        assert_eq!(of_clients(&all, ClientThreads::All).instructions, 307);
        // Without symbols the threads cannot be distinguished.
        let none = ClientThreads::WithFunction("no_such");
        assert_eq!(of_clients(&all, none).instructions, 307);
    }
}
