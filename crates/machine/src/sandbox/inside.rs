//! A process inside a sandbox, seen from outside.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use perfquilt_config::Limits;
use perfquilt_model::error::{Kind, Result};
use perfquilt_system::process::{Child, stat_field};

/// How often everything inside is counted. It takes a millisecond, on a processor that may be measured.
const LOOK: Duration = Duration::from_secs(1);
/// How many looks in a row may find nothing inside: before the first process is there, and after the last.
const UNSEEN: u32 = 20;
/// The number that bubblewrap gives the first process it starts: its own is 1.
const FIRST: &str = "2";

/// How often what is watched is looked at.
const GLANCE: Duration = Duration::from_millis(250);
/// How long it may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(60);

/// A process with limits, in a sandbox or without.
pub trait Watched {
    /// Waits until it ends or `limit` is over (`None`).
    ///
    /// # Errors
    /// [`Kind::Interrupted`] when a signal asks this program to stop.
    fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>>;

    /// Ends everything that it started when it uses more than it may; says of what. To be called a few times a
    /// second.
    ///
    /// # Errors
    /// [`Kind::Internal`] when it cannot be ended.
    fn keep_limits(&mut self) -> Result<Option<String>>;

    /// Asks it to end as Ctrl-C would, and ends it after `grace`.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the kernel does not know it.
    fn stop(&mut self, grace: Duration) -> Result<ExitStatus>;
}

/// How a process that was watched ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Itself(ExitStatus),
    /// As it was asked to, for a signal asks this program to stop.
    Interrupted(ExitStatus),
    /// As it was asked to, for it is not wanted any more.
    Unwanted,
    /// By force, for it used more than it may; of what, in words.
    Limited(String),
}

/// Watches `process` until it ends, is `unwanted`, uses more than it may, or a signal asks this program to stop.
///
/// # Errors
/// [`Kind::Internal`] when the kernel does not know it.
pub fn watch(process: &mut impl Watched, unwanted: &dyn Fn() -> bool) -> Result<End> {
    loop {
        match process.wait_within(GLANCE) {
            Ok(Some(status)) => return Ok(End::Itself(status)),
            Ok(None) if unwanted() => return process.stop(GRACE).map(|_| End::Unwanted),
            Ok(None) => {}
            Err(error) if error.kind() == Kind::Interrupted => {
                return process.stop(GRACE).map(End::Interrupted);
            }
            Err(error) => return Err(error),
        }
        if let Some(what) = process.keep_limits()? {
            return Ok(End::Limited(what));
        }
    }
}

/// What is said of a process that ran for more than `hours`.
pub fn too_long(started: Instant, hours: u64) -> Option<String> {
    (started.elapsed().as_secs() / 3600 >= hours).then(|| format!("more than {hours} hours"))
}

/// A sandbox in use. Dropping it ends everything inside.
#[derive(Debug)]
pub struct Inside {
    child: Child,
    status: Arc<File>,
    limits: Limits,
    disks: Vec<PathBuf>,
    started: Instant,
    looked: Instant,
    /// Looks in a row that found nothing inside.
    unseen: u32,
    /// Processes and threads of the whole machine when it was started.
    before: u64,
}

/// What is used inside.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    processes: u64,
    bytes: u64,
}

impl Inside {
    pub(super) fn new(
        child: Child,
        status: Arc<File>,
        limits: Limits,
        disks: Vec<PathBuf>,
    ) -> Self {
        Inside {
            child,
            status,
            limits,
            disks,
            started: Instant::now(),
            looked: Instant::now(),
            unseen: 0,
            before: u64::from(rustix::system::sysinfo().procs),
        }
    }

    /// Takes the reading end of standard error, if that is piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.take_stderr()
    }

    fn over(&self, used: Used) -> Option<String> {
        let Limits {
            memory_mib,
            processes,
            free_mib,
            hours,
            ..
        } = self.limits;
        if used.processes > processes {
            return Some(format!("more than {processes} processes"));
        }
        if used.bytes >> 20 > memory_mib {
            return Some(format!("more than {memory_mib} MiB of memory"));
        }
        if let Some(long) = too_long(self.started, hours) {
            return Some(long);
        }
        let short = |path: &PathBuf| {
            rustix::fs::statvfs(path)
                .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >> 20 < free_mib)
        };
        let short = self.disks.iter().any(short);
        short.then(|| format!("less than {free_mib} MiB were left on the disk"))
    }

    /// The namespace of processes inside.
    fn namespace(&self) -> Option<PathBuf> {
        let mut text = [0; 1024];
        let length = self.status.read_at(&mut text, 0).ok()?;
        let line = text[..length].split(|&byte| byte == b'\n').next()?;
        let status: serde_json::Value = serde_json::from_slice(line).ok()?;
        let id = status["child-pid"].as_u64()?;
        std::fs::read_link(format!("/proc/{id}/ns/pid")).ok()
    }

    /// Every process inside.
    fn each(&self, mut of: impl FnMut(&Path)) {
        let Some(namespace) = self.namespace() else {
            return;
        };
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let path = entry.path();
            if std::fs::read_link(path.join("ns/pid")).is_ok_and(|found| found == namespace) {
                of(&path);
            }
        }
    }

    /// `None` when no process is found inside.
    fn used(&self) -> Option<Used> {
        let page = rustix::param::page_size() as u64;
        let mut used = Used::default();
        self.each(|process| {
            let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            // Threads, and pages in memory.
            used.processes += stat_field(&stat, 20).unwrap_or(1);
            used.bytes += stat_field(&stat, 24).unwrap_or(0) * page;
        });
        (used.processes > 0).then_some(used)
    }

    fn first(&self) -> Option<Pid> {
        let mut first = None;
        self.each(|process| {
            let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let mut numbers = numbers.unwrap_or_default().split_whitespace();
            let outer = numbers.next().and_then(|number| number.parse().ok());
            if numbers.next_back() == Some(FIRST) {
                first = outer.and_then(Pid::from_raw);
            }
        });
        first
    }
}

impl Watched for Inside {
    fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        self.child.wait_within(limit)
    }

    fn keep_limits(&mut self) -> Result<Option<String>> {
        // Many new processes anywhere are a reason to look at once: they multiply in no time.
        let now = u64::from(rustix::system::sysinfo().procs);
        let many = now > self.before.saturating_add(self.limits.processes);
        if !many && self.looked.elapsed() < LOOK {
            return Ok(None);
        }
        self.looked = Instant::now();
        let used = self.used();
        self.unseen = match used {
            Some(_) => 0,
            None => self.unseen + 1,
        };
        let over = match self.unseen {
            // What cannot be counted has no limits.
            UNSEEN.. => Some("what it uses cannot be counted".to_owned()),
            _ => self.over(used.unwrap_or_default()),
        };
        if over.is_some() {
            self.child.kill()?;
        }
        Ok(over)
    }

    fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        // A signal for bubblewrap itself would end everything at once.
        if let Some(first) = self.first() {
            let _ = kill_process(first, Signal::TERM);
            while started.elapsed() < grace {
                if let Some(status) = self.child.try_wait()? {
                    return Ok(status);
                }
                // Who does not listen has no more than before while that is waited for.
                if self.keep_limits()?.is_some() {
                    break;
                }
                // It may be asked while it is being started, before it listens.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.child.kill()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_system::process::Command;

    #[test]
    fn what_cannot_be_counted_is_ended() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        // Bubblewrap says nothing of what is inside.
        let status = Arc::new(tempfile::tempfile().unwrap());
        let limits = Limits {
            processes: 0,
            ..Limits::default()
        };
        let mut inside = Inside::new(child, status, limits, Vec::new());
        // It is looked at each time.
        inside.before = 0;
        for _ in 1..UNSEEN {
            assert_eq!(inside.keep_limits().unwrap(), None);
        }
        assert!(inside.keep_limits().unwrap().is_some());
        let status = inside.wait_within(Duration::ZERO).unwrap().unwrap();
        assert!(!status.success());
    }
}
