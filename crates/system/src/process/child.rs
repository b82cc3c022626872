//! Running processes and their termination.

use std::io::{ErrorKind, PipeWriter, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdout, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpgrp, kill_process_group, pidfd_open, waitid,
};

use super::orphans::{OrphanProcess, OrphanTracker, forget_child, others_of_group};
use super::{Command, DeathSignal, Output, signals, terminal};
use perfquilt_model::error::{Error, Result};

/// How often a waiting loop checks the process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often a waiting loop checks for cancellation.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long to wait for the last output of an exited process while a process outside its group open_file its
/// streams open.
const OUTPUT_GRACE: Duration = Duration::from_secs(2);
/// How long a cancelled process may take to exit by itself.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// How long a child with [`DeathSignal::Quit`](super::DeathSignal::Quit) may take to end its own children. PostgreSQL
/// kills those that do not end within five seconds.
const QUIT_GRACE: Duration = Duration::from_secs(15);
/// The size of a read, in bytes.
const READ_SIZE: usize = 64 * 1024;

/// A running process. Its process group is killed when the process ends or this value is dropped.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    /// The exit status, once the process was reaped: from then on its id may belong to another process.
    ended: Option<ExitStatus>,
    shown: String,
    /// Whether to keep waiting for it when a signal asks this program to stop.
    uninterruptible: bool,
    /// Whether it gets SIGQUIT, on which it ends its children, before its group is killed.
    quits: bool,
    /// The group is killed when this pipe is closed.
    _lifeline: Option<PipeWriter>,
    /// Whether its group is the one that reads the terminal.
    has_terminal: bool,
    /// The mark of the processes that it starts, if they all end with it.
    orphan_tracker: Option<OrphanTracker>,
    /// The processes that went on when it had ended by itself.
    orphans: Vec<OrphanProcess>,
    /// The names of the processes that went on in its group when it had ended by itself.
    cut_off: Vec<String>,
    /// Whether it was stopped while this program waited for it.
    was_stopped: bool,
}

/// Returns whether the child `pid` of this program was stopped by a signal, or continued after that, since this was asked
/// last; false for other processes.
pub fn was_stopped(pid: u32) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
    let pid = Pid::from_raw(pid.cast_signed());
    pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))))
}

impl Child {
    pub(super) fn new(
        inner: std::process::Child,
        command: &Command,
        lifeline: Option<PipeWriter>,
    ) -> Self {
        Child {
            inner,
            ended: None,
            shown: command.shown(),
            uninterruptible: command.uninterruptible,
            quits: command.death_signal == DeathSignal::Quit,
            _lifeline: lifeline,
            has_terminal: command.foreground,
            orphan_tracker: command.mark.clone().map(OrphanTracker::new),
            orphans: Vec::new(),
            was_stopped: false,
            cut_off: Vec::new(),
        }
    }

    /// Returns the process id, which is also the group's id.
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

    /// Returns the exit status if the process has ended; does not wait.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        match self.ended {
            None if self.has_ended()? => self.reap().map(Some),
            ended => Ok(ended),
        }
    }

    /// Remembers its descendants, to find them again when it has ended. Only with [`Command::mark`](super::Command::mark).
    pub fn note_descendants(&mut self) {
        let first = self.id();
        if let Some(tracker) = &mut self.orphan_tracker {
            tracker.note(first);
        }
    }

    /// Returns the living processes that it started and that are no longer its descendants. Only with
    /// [`Command::mark`](super::Command::mark).
    pub fn strays(&self) -> Vec<OrphanProcess> {
        let tracker = self
            .orphan_tracker
            .as_ref()
            .filter(|_| self.ended.is_none());
        tracker.map_or_else(Vec::new, |tracker| tracker.strays(self.id()))
    }

    /// Returns the processes that went on when it ended by itself; they were ended. Only with
    /// [`Command::mark`](super::Command::mark).
    pub fn orphans(&self) -> &[OrphanProcess] {
        &self.orphans
    }

    /// Returns whether the process has ended, without reaping it.
    fn has_ended(&self) -> Result<bool> {
        let pid = Pid::from_raw(self.inner.id().cast_signed())
            .ok_or_else(|| Error::system_refused("a process without an id"))?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        retry_on_intr(|| waitid(WaitId::Pid(pid), options))
            .map(|status| status.is_some())
            .map_err(|error| self.unknown(&error.into()))
    }

    /// Kills the group, then reaps the process, in this order: after reaping, the id may soon belong to another
    /// process and group.
    fn reap(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        if let Some(tracker) = &self.orphan_tracker
            && self.has_ended()?
        {
            self.orphans = tracker.others(self.id());
        }
        if self.uninterruptible && self.has_ended()? {
            self.cut_off = others_of_group(self.id());
        }
        if self.quits {
            self.signal(Signal::QUIT);
            let started = Instant::now();
            while !self.has_ended()? && started.elapsed() < QUIT_GRACE {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        self.signal(Signal::KILL);
        let status = self.inner.wait().map_err(|error| self.unknown(&error))?;
        self.ended = Some(status);
        forget_child(self.inner.id());
        if let Some(tracker) = &self.orphan_tracker {
            tracker.end(self.id());
        }
        if self.has_terminal {
            terminal::give_to(getpgrp());
        }
        Ok(status)
    }

    fn unknown(&self, error: &std::io::Error) -> Error {
        Error::system_refused(format!("cannot wait for `{}`: {error}", self.shown))
    }

    /// Waits until the process ends, `limit` has passed (`None`) or a signal asks this program to stop.
    pub fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        // The kernel wakes this thread when the process ends, so its run time is exact and waiting costs
        // nothing.
        let end = Pid::from_raw(self.inner.id().cast_signed())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            if !self.uninterruptible {
                signals::check_interrupted()?;
            }
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            self.was_stopped |= was_stopped(self.id());
            match &end {
                Some(end) => {
                    let pause = Timespec::try_from(left.min(POLL_INTERVAL * 8)).ok();
                    // The loop checks again even after an interrupting signal.
                    let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], pause.as_ref());
                }
                None => std::thread::sleep(left.min(POLL_INTERVAL)),
            }
        }
    }

    /// Asks the group to end (SIGTERM) and kills it after `grace`; returns how the process ended.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.end_within(grace)
    }

    /// Like [`Child::stop`], with SIGINT.
    pub fn stop_by_interrupt(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.interrupt();
        self.end_within(grace)
    }

    fn end_within(&mut self, grace: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        while started.elapsed() < grace {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.kill()
    }

    /// Sends SIGINT to the group, as Ctrl-C in a terminal would.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Kills the group at once; returns how the process ended.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.reap()
    }

    /// Sends `signal` to the group of a process that was not reaped.
    fn signal(&self, signal: Signal) {
        if self.ended.is_some() {
            return;
        }
        if let Some(pid) = i32::try_from(self.inner.id()).ok().and_then(Pid::from_raw) {
            // An error means that the group is gone already.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Waits until the process ends, `limit` has passed (`None`), a signal asks this program to stop or
    /// `cancelled` returns true.
    fn wait_cancellable(
        &mut self,
        limit: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            let ended = self.wait_within(left.min(CANCEL_POLL_INTERVAL))?;
            if ended.is_some() || left <= CANCEL_POLL_INTERVAL {
                return Ok(ended);
            }
            if cancelled() {
                return Err(Error::ended_by_signal(format!(
                    "`{}` was cancelled",
                    self.shown
                )));
            }
        }
    }

    pub(super) fn finish(
        mut self,
        started: Instant,
        limit: Duration,
        output_limit: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Output> {
        let stdout = self.take_stdout();
        let stdout = stdout.map(|stream| StreamReader::of(stream, output_limit));
        let stdout = stdout.transpose()?;
        let stderr = self.take_stderr();
        let stderr = stderr.map(|stream| StreamReader::of(stream, output_limit));
        let stderr = stderr.transpose()?;
        let waited = self.wait_cancellable(limit, cancelled);
        if !matches!(waited, Ok(Some(_))) {
            // Gives the process time to remove its lock files; its exit status no longer matters.
            let _ = self.stop(STOP_GRACE);
        }
        let Some(status) = waited? else {
            return Err(Error::program_limit(format!(
                "`{}` did not end within {} s",
                self.shown,
                limit.as_secs_f64()
            )));
        };
        let elapsed = started.elapsed();
        let until = Instant::now() + OUTPUT_GRACE;
        let all =
            |reading: Option<StreamReader>| reading.map_or_else(Vec::new, |it| it.until(until));
        let (stdout, stderr) = (all(stdout), all(stderr));
        if stdout.len() > output_limit || stderr.len() > output_limit {
            return Err(Error::program_limit(format!(
                "`{}` wrote more than {output_limit} bytes",
                self.shown
            )));
        }
        Ok(Output {
            code: status.code(),
            signal: status.signal(),
            stdout,
            stderr,
            elapsed,
            was_stopped: self.was_stopped,
            cut_off: std::mem::take(&mut self.cut_off),
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.reap();
    }
}

/// A stream that a thread reads to its end or to its limit.
struct StreamReader {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// The channel closes at the stream's end; nothing is sent.
    end: Receiver<()>,
}

impl StreamReader {
    /// Reads `stream`, and closes it once it has given more than `limit` bytes, which ends the process that writes it.
    fn of(mut stream: impl Read + Send + 'static, limit: usize) -> Result<Self> {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (sender, end) = mpsc::channel();
        let wanted = Arc::downgrade(&bytes);
        let read = std::thread::Builder::new().spawn(move || {
            let _until_here: mpsc::Sender<()> = sender;
            let mut part = vec![0; READ_SIZE];
            loop {
                let length = match stream.read(&mut part) {
                    Ok(0) => return,
                    Ok(length) => length,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(_) => return,
                };
                // Later output of a process that was left running is dropped.
                let Some(bytes) = wanted.upgrade() else {
                    return;
                };
                if let Ok(mut bytes) = bytes.lock() {
                    bytes.extend_from_slice(&part[..length]);
                    if bytes.len() > limit {
                        return;
                    }
                }
            }
        });
        read.map_err(|error| super::no_thread(&error))?;
        Ok(StreamReader { bytes, end })
    }

    /// Returns the bytes read until the stream's end, or until `then`.
    fn until(self, then: Instant) -> Vec<u8> {
        let left = then.saturating_duration_since(Instant::now());
        let _ = self.end.recv_timeout(left);
        self.bytes
            .lock()
            .map(|mut bytes| std::mem::take(&mut *bytes))
            .unwrap_or_default()
    }
}
