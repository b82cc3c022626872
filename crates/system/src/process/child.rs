//! A running process and its end.

use std::io::{ErrorKind, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdout, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::{Output, signals};
use perfquilt_model::error::{Error, Kind, Result};

/// How often a waiting loop looks again.
const POLL: Duration = Duration::from_millis(5);
/// How often is asked whether a process is still wanted.
const GLANCE: Duration = Duration::from_millis(200);
/// How long the last output of a process that has ended may take to come while something that left its
/// group holds its streams open.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// How long a process whose result nobody waits for any more may take to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Unit of reading.
const PART: usize = 64 * 1024;

/// A running process. Its whole process group is killed when it ends or this is dropped, whatever comes
/// first.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    /// How it ended, once it was waited for: its id may be another's from then on.
    ended: Option<ExitStatus>,
    shown: String,
    /// Whether it is waited for although a signal asks this program to stop.
    to_its_end: bool,
}

impl Child {
    pub(super) fn new(inner: std::process::Child, shown: String, to_its_end: bool) -> Self {
        Child {
            inner,
            ended: None,
            shown,
            to_its_end,
        }
    }

    /// The process's id, which is its group's too.
    pub fn id(&self) -> u32 {
        self.inner.id()
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
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the kernel does not know it.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        match self.ended {
            None if self.has_ended()? => self.reap().map(Some),
            ended => Ok(ended),
        }
    }

    /// Whether it has ended; leaves it to be waited for.
    fn has_ended(&self) -> Result<bool> {
        let pid = Pid::from_raw(self.inner.id().cast_signed())
            .ok_or_else(|| Error::internal("a process without an id"))?;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        retry_on_intr(|| waitid(WaitId::Pid(pid), look))
            .map(|status| status.is_some())
            .map_err(|error| self.unknown(&error.into()))
    }

    /// Kills its group and waits until it has ended itself, in this order: the id of a process that was
    /// waited for may soon be that of another process and its group.
    fn reap(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        self.signal(Signal::KILL);
        let status = self.inner.wait().map_err(|error| self.unknown(&error))?;
        self.ended = Some(status);
        Ok(status)
    }

    fn unknown(&self, error: &std::io::Error) -> Error {
        Error::internal(format!("cannot wait for `{}`: {error}", self.shown))
    }

    /// Waits until it ends, `limit` is over (`None`) or a signal asks this program to stop.
    ///
    /// # Errors
    /// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
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
            if !self.to_its_end {
                signals::check_interrupted()?;
            }
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
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the kernel does not know it.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        let started = Instant::now();
        while started.elapsed() < grace {
            if let Some(status) = self.try_wait()? {
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

    /// Kills the group at once; returns how the process ended.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the kernel does not know it.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.reap()
    }

    /// Sends `signal` to the group of a process that was not waited for.
    fn signal(&self, signal: Signal) {
        if self.ended.is_some() {
            return;
        }
        if let Some(pid) = i32::try_from(self.inner.id()).ok().and_then(Pid::from_raw) {
            // An error means that the group is gone already.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Waits until it ends, `limit` is over (`None`), a signal asks this program to stop or `unwanted` says so.
    fn wait_unless(
        &mut self,
        limit: Duration,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            let ended = self.wait_within(left.min(GLANCE))?;
            if ended.is_some() || left <= GLANCE {
                return Ok(ended);
            }
            if unwanted() {
                return Err(Error::new(
                    Kind::Interrupted,
                    format!("`{}` is not wanted any more", self.shown),
                ));
            }
        }
    }

    pub(super) fn finish(
        mut self,
        started: Instant,
        limit: Duration,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Output> {
        let stdout = self.take_stdout().map(Reading::of);
        let stderr = self.take_stderr().map(Reading::of);
        let waited = self.wait_unless(limit, unwanted);
        if !matches!(waited, Ok(Some(_))) {
            // It may have lock files to take away; how it ends does not matter any more.
            let _ = self.stop(LAST_WORDS);
        }
        let Some(status) = waited? else {
            return Err(Error::bench(format!(
                "`{}` did not end within {} s",
                self.shown,
                limit.as_secs_f64()
            )));
        };
        let elapsed = started.elapsed();
        let until = Instant::now() + LAST_OUTPUT;
        let all = |reading: Option<Reading>| reading.map_or_else(Vec::new, |it| it.until(until));
        Ok(Output {
            code: status.code(),
            signal: status.signal(),
            stdout: all(stdout),
            stderr: all(stderr),
            elapsed,
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.reap();
    }
}

/// A stream that is read to its end by a thread.
struct Reading {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Nothing is sent: it is hung up at the stream's end.
    end: Receiver<()>,
}

impl Reading {
    fn of(mut stream: impl Read + Send + 'static) -> Self {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (sender, end) = mpsc::channel();
        let wanted = Arc::downgrade(&bytes);
        std::thread::spawn(move || {
            let _until_here: mpsc::Sender<()> = sender;
            let mut part = vec![0; PART];
            loop {
                let length = match stream.read(&mut part) {
                    Ok(0) => return,
                    Ok(length) => length,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(_) => return,
                };
                // Whatever else comes of a process that was left running is not kept.
                let Some(bytes) = wanted.upgrade() else {
                    return;
                };
                if let Ok(mut bytes) = bytes.lock() {
                    bytes.extend_from_slice(&part[..length]);
                }
            }
        });
        Reading { bytes, end }
    }

    /// What came until the stream's end, or until then.
    fn until(self, then: Instant) -> Vec<u8> {
        let left = then.saturating_duration_since(Instant::now());
        let _ = self.end.recv_timeout(left);
        self.bytes
            .lock()
            .map(|mut bytes| std::mem::take(&mut *bytes))
            .unwrap_or_default()
    }
}
