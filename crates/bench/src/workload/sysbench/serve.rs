//! Runs transactions on request, for meters that are switched on and off around them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{SysbenchSettings, interleave};
use crate::server::Running;
use crate::workload::{Environment, Requests};
use perfquilt_model::error::{Error, Result};

use perfquilt_system::process::{Child, check_interrupted};

/// Timeout of one request; servers under valgrind are slow.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// A sysbench connected to one server.
pub(super) struct SysbenchSession<'a> {
    workload: &'a str,
    child: Child,
    folder: tempfile::TempDir,
    requests: u32,
    threads: u64,
    restarted: bool,
}

impl<'a> SysbenchSession<'a> {
    /// Starts sysbench with the driver, behind the words `before` if there are any; `workload` is its name in messages.
    pub(super) fn new(
        environment: &Environment,
        running: &Running,
        settings: &SysbenchSettings,
        (seed, before): (u64, Vec<OsString>),
        workload: &'a str,
    ) -> Result<Self> {
        let folder = environment.results_folder()?;
        let command = interleave::driver(environment, &[running], settings, folder.path(), seed)?
            .env("PERFQUILT_MODE", "serve")
            .behind(before);
        Ok(SysbenchSession {
            workload,
            child: command.spawn()?,
            folder,
            requests: 0,
            threads: u64::from(settings.threads),
            restarted: false,
        })
    }
}

impl Requests for SysbenchSession<'_> {
    /// Runs a multiple of the threads.
    fn run(&mut self, _running: &Running, transactions: u64) -> Result<u64> {
        self.requests += 1;
        let number = self.requests;
        let each = transactions.div_ceil(self.threads).max(1);
        let path = |name: String| -> PathBuf { self.folder.path().join(name) };
        let part = path(format!("request.{number}.part"));
        let request = path(format!("request.{number}"));
        std::fs::write(&part, each.to_string())
            .and_then(|()| std::fs::rename(&part, &request))
            .map_err(|e| Error::io("write", &request, &e))?;
        let answer = path(format!("done.{number}"));
        let started = Instant::now();
        while !is_complete(&answer) {
            check_interrupted()?;
            if self.child.try_wait()?.is_some() {
                return Err(interleave::failure(self.folder.path(), self.workload, &[]).error);
            }
            if started.elapsed() > TIMEOUT {
                return Err(Error::client_failed(format!(
                    "workload {}: {transactions} transactions did not end within {} s",
                    self.workload,
                    TIMEOUT.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.restarted = read_restarted(&answer)?;
        Ok(each * self.threads)
    }

    fn restarted(&self) -> bool {
        self.restarted
    }
}

/// Returns whether the driver has written the whole of its answer, a line; the file exists earlier.
fn is_complete(answer: &Path) -> bool {
    std::fs::read(answer).is_ok_and(|text| text.ends_with(b"\n"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let answer = folder.path().join("done.1");
        assert!(!is_complete(&answer));
        for (text, complete) in [("", false), ("on", false), ("once\n", true)] {
            std::fs::write(&answer, text).unwrap();
            assert_eq!(is_complete(&answer), complete, "{text:?}");
        }
    }
}
