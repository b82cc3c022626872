//! Clients that run transactions on request, for meters that are switched on and off around them.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Clients, command, handler, interleave};
use crate::server::Running;
use perfquilt_config::{CommandWorkload, HandlerWorkload, SysbenchWorkload, Workload};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_system::process::{Child, check_interrupted};

/// Timeout of one request; servers under valgrind are slow.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// A client for one server, connected and prepared before the first request. Dropping it ends the client.
#[derive(Debug)]
pub struct Serving<'a> {
    workload: &'a Workload,
    client: Client<'a>,
}

#[derive(Debug)]
enum Client<'a> {
    Sysbench {
        child: RefCell<Child>,
        folder: tempfile::TempDir,
        requests: Cell<u32>,
        threads: u64,
        restarted: Cell<bool>,
    },
    Command(Cow<'a, CommandWorkload>),
    Handler(Box<RefCell<handler::Reader>>),
}

impl<'a> Serving<'a> {
    pub(super) fn sysbench(
        clients: &'a Clients,
        running: &Running,
        workload: &'a Workload,
        settings: &'a SysbenchWorkload,
        seed: u64,
    ) -> Result<Self> {
        let folder = clients.results_folder()?;
        let servers = [(Point::BASE, running)];
        let command = interleave::driver(clients, &servers, settings, folder.path(), seed)?
            .env("PERFQUILT_MODE", "serve");
        Ok(Serving {
            workload,
            client: Client::Sysbench {
                child: RefCell::new(command.spawn()?),
                folder,
                requests: Cell::new(0),
                threads: u64::from(settings.threads),
                restarted: Cell::new(false),
            },
        })
    }

    pub(super) fn command(workload: &'a Workload, settings: Cow<'a, CommandWorkload>) -> Self {
        Serving {
            workload,
            client: Client::Command(settings),
        }
    }

    pub(super) fn handler(
        running: &Running,
        workload: &'a Workload,
        settings: &HandlerWorkload,
        seed: u64,
    ) -> Result<Self> {
        let reader = handler::Reader::new(settings, running, seed)?;
        Ok(Serving {
            workload,
            client: Client::Handler(Box::new(RefCell::new(reader))),
        })
    }

    /// Runs about `transactions` (rounded up to a multiple of the threads for sysbench, of one run for a command) and
    /// returns their number. The n-th request runs the same transactions in every client with the same seed.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when the client fails.
    pub fn request(&self, running: &Running, transactions: u64) -> Result<u64> {
        match &self.client {
            Client::Command(settings) => {
                command::transactions(self.workload, settings, running, transactions)
            }
            Client::Handler(reader) => reader.borrow_mut().reads(transactions),
            Client::Sysbench {
                child,
                folder,
                requests,
                threads,
                restarted,
            } => {
                let number = requests.get() + 1;
                requests.set(number);
                let each = transactions.div_ceil(*threads).max(1);
                let path = |name: String| -> PathBuf { folder.path().join(name) };
                let part = path(format!("request.{number}.part"));
                let request = path(format!("request.{number}"));
                std::fs::write(&part, each.to_string())
                    .and_then(|()| std::fs::rename(&part, &request))
                    .map_err(|e| Error::io("write", &request, &e))?;
                let answer = path(format!("done.{number}"));
                let started = Instant::now();
                while !answer.exists() {
                    check_interrupted()?;
                    if child.borrow_mut().try_wait()?.is_some() {
                        let name = &self.workload.name;
                        return Err(interleave::failure(folder.path(), name, &[]).error);
                    }
                    if started.elapsed() > TIMEOUT {
                        return Err(Error::bench(format!(
                            "workload {}: {transactions} transactions did not end within {} s",
                            self.workload.name,
                            TIMEOUT.as_secs()
                        )));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                restarted.set(read_restarted(&answer)?);
                Ok(each * threads)
            }
        }
    }

    /// Whether transactions of the last request were restarted (a deadlock, a duplicate key), so that the server
    /// executed more than requested.
    pub fn restarted(&self) -> bool {
        match &self.client {
            Client::Sysbench { restarted, .. } => restarted.get(),
            Client::Command(_) | Client::Handler(_) => false,
        }
    }
}

/// Returns whether the driver restarted transactions, from its answer to a request.
pub(super) fn read_restarted(answer: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(answer).map_err(|e| Error::io("read", answer, &e))?;
    match text.trim_end() {
        "once" => Ok(false),
        "again" => Ok(true),
        other => Err(Error::internal(format!("the driver answered `{other}`"))),
    }
}
