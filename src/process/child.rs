//! A running process and its end.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdout, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::{Output, signals};
use crate::error::{Error, Result};

/// How often a waiting loop looks again.
const POLL: Duration = Duration::from_millis(5);

/// A running process; its whole process group is killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    shown: String,
}

impl Child {
    pub(super) fn new(inner: std::process::Child, shown: String) -> Self {
        Child { inner, shown }
    }

    /// The process's id, which is its group's too.
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// The command as a user would type it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Takes the reading end of its standard output, if that is piped.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.inner.stdout.take()
    }

    /// Takes the reading end of its standard error, if that is piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.inner.stderr.take()
    }

    /// Whether it has ended, and how; does not wait.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the kernel does not know it.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.inner
            .try_wait()
            .map_err(|error| Error::internal(format!("cannot wait for `{}`: {error}", self.shown)))
    }

    /// Waits until it ends, `limit` is over (`None`) or a signal asks this program to stop.
    ///
    /// # Errors
    /// [`Kind::Interrupted`](crate::error::Kind::Interrupted).
    pub fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        // The kernel wakes this thread when the process ends: how long it ran is known exactly, and
        // watching costs nothing.
        let end = Pid::from_raw(self.inner.id().cast_signed())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            signals::check_interrupted()?;
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            match &end {
                Some(end) => {
                    let pause = Timespec::try_from(left.min(POLL * 8)).ok();
                    // Interrupted by a signal or not, the loop looks again.
                    let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], pause.as_ref());
                }
                None => std::thread::sleep(left.min(POLL)),
            }
        }
    }

    /// Asks the group to end (SIGTERM) and kills it after `grace`; returns how the process ended.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the kernel does not know it.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        let started = Instant::now();
        while started.elapsed() < grace {
            if let Some(status) = self.try_wait()? {
                self.signal(Signal::KILL);
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
        self.kill()
    }

    /// Sends SIGINT to the group, as Ctrl-C in a terminal would.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Kills the group at once.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the kernel does not know it.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.inner
            .wait()
            .map_err(|error| Error::internal(format!("cannot wait for `{}`: {error}", self.shown)))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.inner.id()).ok().and_then(Pid::from_raw) {
            // An error means that the group is gone already.
            let _ = kill_process_group(pid, signal);
        }
    }

    pub(super) fn finish(mut self, started: Instant, limit: Duration) -> Result<Output> {
        let stdout = self.take_stdout().map(read_all);
        let stderr = self.take_stderr().map(read_all);
        let Some(status) = self.wait_within(limit)? else {
            self.kill()?;
            return Err(Error::bench(format!(
                "`{}` did not end within {} s",
                self.shown,
                limit.as_secs_f64()
            )));
        };
        // What it left behind in its group would keep the pipes open.
        self.signal(Signal::KILL);
        Ok(Output {
            code: status.code(),
            signal: status.signal(),
            stdout: joined(stdout),
            stderr: joined(stderr),
            elapsed: started.elapsed(),
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !matches!(self.inner.try_wait(), Ok(Some(_))) {
            self.signal(Signal::KILL);
            let _ = self.inner.wait();
        }
    }
}

fn read_all(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    })
}

fn joined(reader: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    reader
        .and_then(|handle| handle.join().ok())
        .unwrap_or_default()
}
