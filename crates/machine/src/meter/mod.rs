//! Counting meters: what a server executes per transaction, from hardware counters or callgrind.
//!
//! A meter knows nothing of clients: it is given a function that makes the server do a number of
//! transactions. The counts of both sources are of user space alone.

pub mod call_graph;
pub mod callgrind;
mod name;
mod perf;
pub mod samples;
mod vgdb;

use std::path::Path;

use crate::server::{ClientThreads, Running, Under};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_system::process::{Command, find_program};

pub use name::plain_name;

use call_graph::CallGraph;
use callgrind::{FunctionCost, Profile};

/// So many counted transactions come after one that is not: caches and the server's memory pools have settled
/// by then.
pub const WARM_UP: u64 = 5;

/// A meter's reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// The meter.
    pub meter: Meter,
    /// Its reading per transaction, in [`Meter::unit`].
    pub value: f64,
    /// Transactions that `value` stands for.
    pub n: u64,
}

/// What one count gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// One reading a meter.
    pub counted: Vec<Counted>,
    /// Every function's own cost over all counted transactions, dearest first; empty where the
    /// source does not tell functions apart.
    pub functions: Vec<FunctionCost>,
}

/// Makes a server do (at least) a number of transactions and returns how many it did.
pub type RunTransactions<'a> = dyn Fn(&Running, u64) -> Result<u64> + 'a;

/// Where counts come from on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Perf {
        sources: Vec<&'static perf::Source>,
        meters: Vec<Meter>,
    },
    Callgrind {
        version: String,
    },
}

impl Counter {
    /// Hardware counters if this machine has them, else callgrind.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it has neither.
    pub fn detect() -> Result<Self> {
        match Self::hardware()? {
            Some(counter) if counter.meters().contains(&Meter::Instructions) => Ok(counter),
            _ => Self::callgrind(),
        }
    }

    /// The processor's counters, as far as they can be read here; `None` where none can.
    ///
    /// # Errors
    /// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
    pub fn hardware() -> Result<Option<Self>> {
        let sources = perf::supported()?;
        let meters = sources.iter().map(|source| source.meter).collect();
        Ok((!sources.is_empty()).then_some(Counter {
            source: Source::Perf { sources, meters },
        }))
    }

    /// Callgrind, even where there are hardware counters: it tells functions apart.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when valgrind is not installed.
    pub fn callgrind() -> Result<Self> {
        for program in ["valgrind", "vgdb"] {
            if find_program(program).is_none() {
                return Err(Error::usage(format!(
                    "instructions cannot be counted: this machine has no hardware counters for \
                     `perf stat`, and `{program}` is not installed"
                ))
                .hint("`perfquilt doctor` names the command that installs valgrind"));
            }
        }
        let output = Command::new("valgrind").arg("--version").run()?;
        Ok(Counter {
            source: Source::Callgrind {
                version: output.stdout_text().trim().to_owned(),
            },
        })
    }

    /// The source in words, for the record of an experiment: counts of different sources do not
    /// compare.
    pub fn describe(&self) -> String {
        match &self.source {
            Source::Perf { sources, .. } => {
                let events: Vec<&str> = sources.iter().flat_map(|of| of.events).copied().collect();
                format!(
                    "perf: hardware counters, user space, all threads of the server: {}",
                    events.join(", ")
                )
            }
            Source::Callgrind { version } => format!(
                "callgrind ({version}): clients' threads, simulated caches of 32 KiB (8-way)"
            ),
        }
    }

    /// The same, but reading no other meters than these: a processor has few counters, and what does not fit
    /// beside others is not counted exactly.
    #[must_use]
    pub fn only(self, wanted: &[Meter]) -> Self {
        let source = match self.source {
            Source::Perf {
                mut sources,
                mut meters,
            } => {
                sources.retain(|source| wanted.contains(&source.meter));
                meters.retain(|meter| wanted.contains(meter));
                Source::Perf { sources, meters }
            }
            callgrind @ Source::Callgrind { .. } => callgrind,
        };
        Counter { source }
    }

    /// The meters it reads.
    pub fn meters(&self) -> &[Meter] {
        match &self.source {
            Source::Perf { meters, .. } => meters,
            Source::Callgrind { .. } => &[Meter::Instructions, Meter::L1iMisses],
        }
    }

    /// The meters it reads, each with the events it is made of; callgrind has none.
    pub fn events(&self) -> Vec<(Meter, String)> {
        match &self.source {
            Source::Perf { sources, .. } => sources
                .iter()
                .map(|source| (source.meter, source.events.join(" / ")))
                .collect(),
            Source::Callgrind { .. } => Vec::new(),
        }
    }

    /// What a server started in `dir` must run under to be counted.
    pub fn under(&self, dir: &Path) -> Under {
        match self.source {
            Source::Perf { .. } => Under::Plain,
            Source::Callgrind { .. } => Under::Callgrind {
                out: dir.join("callgrind.out"),
                addresses: false,
            },
        }
    }

    /// Lets `running`, started under [`Counter::under`], do `warm_up` transactions uncounted and
    /// then `transactions` counted ones. `run` must do the same work every time (a fixed seed), and
    /// in one piece: what a client does to connect is counted once a call.
    ///
    /// # Errors
    /// What `run` meets; [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when the server ends or the
    /// source counts nothing.
    pub fn count(
        &self,
        running: &mut Running,
        threads: ClientThreads,
        warm_up: u64,
        transactions: u64,
        run: &RunTransactions<'_>,
    ) -> Result<Counts> {
        if warm_up > 0 {
            done(running, warm_up, run)?;
        }
        match &self.source {
            Source::Perf { sources, .. } => count_with_perf(running, sources, transactions, run),
            Source::Callgrind { .. } => count_with_callgrind(running, threads, transactions, run),
        }
    }
}

fn done(running: &mut Running, transactions: u64, run: &RunTransactions<'_>) -> Result<u64> {
    match run(running, transactions) {
        Ok(0) => Err(Error::bench(format!(
            "the workload did no transaction on the server of {}",
            running.label()
        ))),
        Ok(n) => running.check().map(|()| n),
        Err(error) => Err(running.explain(error)),
    }
}

fn count_with_perf(
    running: &mut Running,
    sources: &[&perf::Source],
    transactions: u64,
    run: &RunTransactions<'_>,
) -> Result<Counts> {
    let mut session = perf::Session::count(running, sources)?;
    session.enable()?;
    let n = done(running, transactions, run)?;
    let file = session.finish()?;
    let text = std::fs::read_to_string(&file).map_err(|e| Error::io("read", &file, &e))?;
    let counted = perf::readings(&text, sources, n)?
        .into_iter()
        .map(|(meter, value)| Counted { meter, value, n })
        .collect();
    Ok(Counts {
        counted,
        functions: Vec::new(),
    })
}

fn count_with_callgrind(
    running: &mut Running,
    threads: ClientThreads,
    transactions: u64,
    run: &RunTransactions<'_>,
) -> Result<Counts> {
    let (profiles, n) = instrumented(running, transactions, run, Profile::read)?;
    let profile = of_clients(&profiles, threads);
    if profile.instructions == 0 {
        return Err(nothing_counted(running));
    }
    let reading = |meter, total: u64| Counted {
        meter,
        value: total as f64 / n as f64,
        n,
    };
    Ok(Counts {
        counted: vec![
            reading(Meter::Instructions, profile.instructions),
            reading(Meter::L1iMisses, profile.l1i_misses),
        ],
        functions: profile.functions,
    })
}

/// Has `transactions` done with callgrind's instrumentation on; returns what `read` reads of each thread's
/// profile, and how many were done.
fn instrumented<P>(
    running: &mut Running,
    transactions: u64,
    run: &RunTransactions<'_>,
    read: impl Fn(&Path) -> Result<P>,
) -> Result<(Vec<P>, u64)> {
    let control = vgdb::Control::new(running)?;
    control.instrument(running, true)?;
    let n = done(running, transactions, run)?;
    control.instrument(running, false)?;
    Ok((control.dump(running, read)?, n))
}

fn nothing_counted(running: &Running) -> Error {
    Error::bench(format!(
        "callgrind counted nothing in the server of {}",
        running.label()
    ))
    .hint(
        "does the command that starts the server stay in the foreground, and is the server itself?",
    )
}

/// What a server started in `dir` must run under for [`call_graph()`].
pub fn under_for_call_graph(dir: &Path) -> Under {
    Under::Callgrind {
        out: dir.join("callgrind.out"),
        addresses: true,
    }
}

/// Who called whom at what cost in the clients' threads, while `running`, started under
/// [`under_for_call_graph`], did `transactions` after as many uncounted ones as `warm_up` says; and how many it
/// did. See [`Counter::count`] for `run`.
///
/// # Errors
/// As [`Counter::count`].
pub fn call_graph(
    running: &mut Running,
    threads: ClientThreads,
    warm_up: u64,
    transactions: u64,
    run: &RunTransactions<'_>,
) -> Result<(CallGraph, u64)> {
    if warm_up > 0 {
        done(running, warm_up, run)?;
    }
    let (graphs, n) = instrumented(running, transactions, run, CallGraph::read)?;
    let clients: Vec<&CallGraph> = match threads {
        ClientThreads::WithFunction(name) => graphs.iter().filter(|g| g.ran(name)).collect(),
        ClientThreads::All => Vec::new(),
    };
    let graph = if clients.is_empty() {
        CallGraph::sum(&graphs)
    } else {
        CallGraph::sum(clients)
    };
    match graph.instructions {
        0 => Err(nothing_counted(running)),
        _ => Ok((graph, n)),
    }
}

/// The clients' share of what all threads did.
fn of_clients(profiles: &[Profile], threads: ClientThreads) -> Profile {
    if let ClientThreads::WithFunction(name) = threads {
        let clients: Vec<&Profile> = profiles.iter().filter(|p| p.ran(name)).collect();
        if !clients.is_empty() {
            return Profile::sum(clients);
        }
    }
    Profile::sum(profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(function: &str, instructions: u64) -> Profile {
        Profile {
            instructions,
            l1i_misses: 1,
            functions: vec![FunctionCost {
                name: function.into(),
                instructions,
                l1i_misses: 1,
            }],
        }
    }

    #[test]
    fn clients_threads_alone_are_counted() {
        let all = [
            profile("main", 7),
            profile("do_command(THD*)", 100),
            profile("do_command(THD*)", 200),
        ];
        let with = ClientThreads::WithFunction("do_command");
        assert_eq!(of_clients(&all, with).instructions, 300);
        assert_eq!(of_clients(&all, ClientThreads::All).instructions, 307);
        // Without symbols nothing can be told apart.
        let none = ClientThreads::WithFunction("no_such");
        assert_eq!(of_clients(&all, none).instructions, 307);
    }
}
