//! A process inside a sandbox, seen from outside.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::config::Limits;
use crate::error::Result;
use crate::process::Child;

/// How often everything inside is counted. It takes a millisecond, on a processor that may be measured.
const LOOK: Duration = Duration::from_secs(1);
/// The number that bubblewrap gives the first process it starts: its own is 1.
const FIRST: &str = "2";

/// A sandbox in use. Dropping it ends everything inside.
#[derive(Debug)]
pub struct Inside {
    child: Child,
    status: Arc<File>,
    limits: Limits,
    disks: Vec<PathBuf>,
    started: Instant,
    looked: Instant,
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
            before: u64::from(rustix::system::sysinfo().procs),
        }
    }

    /// Takes the reading end of standard error, if that is piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.take_stderr()
    }

    /// Waits until it ends or `limit` is over (`None`).
    ///
    /// # Errors
    /// [`Kind::Interrupted`](crate::error::Kind::Interrupted) when a signal asks this program to stop.
    pub fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        self.child.wait_within(limit)
    }

    /// Ends everything inside when it uses more than it may; says of what. To be called a few times a second.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be ended.
    pub fn keep_limits(&mut self) -> Result<Option<String>> {
        // Many new processes anywhere are a reason to look at once: they multiply in no time.
        let now = u64::from(rustix::system::sysinfo().procs);
        let many = now > self.before.saturating_add(self.limits.processes);
        if !many && self.looked.elapsed() < LOOK {
            return Ok(None);
        }
        self.looked = Instant::now();
        let over = self.over(self.used());
        if over.is_some() {
            self.child.kill()?;
        }
        Ok(over)
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
        if self.started.elapsed().as_secs() / 3600 >= hours {
            return Some(format!("more than {hours} hours"));
        }
        let short = |path: &PathBuf| {
            rustix::fs::statvfs(path)
                .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >> 20 < free_mib)
        };
        let short = self.disks.iter().any(short);
        short.then(|| format!("less than {free_mib} MiB were left on the disk"))
    }

    /// Asks what runs inside to end as Ctrl-C would, and ends it after `grace`.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the kernel does not know it.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        // A signal for bubblewrap itself would end everything at once.
        if let Some(first) = self.first() {
            let _ = kill_process(first, Signal::TERM);
            while started.elapsed() < grace {
                if let Some(status) = self.child.try_wait()? {
                    return Ok(status);
                }
                // It may be asked while it is being started, before it listens.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.child.kill()
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

    fn used(&self) -> Used {
        let page = rustix::param::page_size() as u64;
        let mut used = Used::default();
        self.each(|process| {
            let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            // Behind the name, which may have blanks and brackets in it.
            let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            let field = |at: usize| fields.split_whitespace().nth(at)?.parse::<u64>().ok();
            used.processes += field(17).unwrap_or(1);
            used.bytes += field(21).unwrap_or(0) * page;
        });
        used
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
