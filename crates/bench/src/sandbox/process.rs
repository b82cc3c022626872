//! Supervises a sandbox from outside and enforces its limits.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::StatVfs;
use rustix::process::{Pid, Signal, kill_process};

use super::cgroup::Cgroup;
use crate::server::memory_available;
use perfquilt_config::SandboxLimits;
use perfquilt_model::error::{Kind, Result};
use perfquilt_system::process::{Child, stat_field};

/// Interval between counts of the resources used inside. A count takes a millisecond on a processor that may be
/// measuring.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Consecutive counts that may find no process inside: before the first one starts and after the last one ends.
const MAX_EMPTY_COUNTS: u32 = 20;
/// Process id inside of the first process that bubblewrap starts; its own is 1.
const FIRST_PID: &str = "2";

/// MiB of memory that must stay available on the machine. Memory that no process has mapped, such as that of a
/// `memfd`, counts for none of them.
const MIN_AVAILABLE_MIB: u64 = 128;

/// Interval at which a supervised process is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time for a process to end after it was asked to. Every finished block is stored already.
const GRACE: Duration = Duration::from_secs(1);
/// KiB of free space to which one free inode belongs.
const KIB_PER_INODE: u64 = 64;

/// A process with limits, with or without a sandbox.
pub trait LimitedProcess {
    /// Waits until it ends; returns `None` after `limit`.
    fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>>;

    /// Kills the process and its children if they exceed a limit, and returns the exceeded limit in words. Must be
    /// called a few times per second.
    fn enforce_limits(&mut self) -> Result<Option<String>>;

    /// Returns the limit that it had reached when it ended, in words: what it tells of itself then is not the cause.
    fn reached_limit(&self) -> Option<String> {
        None
    }

    /// Asks it to end as Ctrl-C would, and kills it after `grace`.
    fn stop(&mut self, grace: Duration) -> Result<ExitStatus>;
}

/// How a supervised process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It exited by itself.
    Exited(ExitStatus),
    /// It was stopped because of a signal to this program.
    Interrupted(ExitStatus),
    /// It was stopped because it was cancelled.
    Cancelled,
    /// It was killed because it exceeded this limit, in words.
    LimitExceeded(String),
}

/// Supervises `process` until it ends, is `cancelled`, exceeds a limit, or a signal asks this program to stop.
pub fn supervise(
    process: &mut dyn LimitedProcess,
    cancelled: &dyn Fn() -> bool,
) -> Result<ProcessEnd> {
    loop {
        match process.wait_within(POLL_INTERVAL) {
            Ok(Some(status)) => {
                let reached = process.reached_limit();
                return Ok(reached.map_or(ProcessEnd::Exited(status), ProcessEnd::LimitExceeded));
            }
            Ok(None) if cancelled() => {
                return process.stop(GRACE).map(|_| ProcessEnd::Cancelled);
            }
            Ok(None) => {}
            Err(error) if error.kind() == Kind::Interrupted => {
                return process.stop(GRACE).map(ProcessEnd::Interrupted);
            }
            Err(error) => return Err(error),
        }
        if let Some(what) = process.enforce_limits()? {
            return Ok(ProcessEnd::LimitExceeded(what));
        }
    }
}

/// Describes the exceeded time limit of a process that started at `started`; `None` within `hours`.
pub fn time_exceeded(started: Instant, hours: u64) -> Option<String> {
    (started.elapsed().as_secs() / 3600 >= hours).then(|| format!("more than {hours} hours"))
}

/// A running sandbox. Dropping it kills everything inside.
#[derive(Debug)]
pub struct SandboxProcess {
    child: Child,
    status: Arc<File>,
    limits: SandboxLimits,
    disks: Vec<PathBuf>,
    started: Instant,
    last_count: Instant,
    /// Consecutive counts that found no process inside.
    empty_counts: u32,
    /// Processes and threads of the whole machine when the sandbox was started.
    initial_tasks: u64,
    /// The kernel's own account of it, where there is one.
    group: Option<Cgroup>,
}

/// Resources used inside.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    processes: u64,
    bytes: u64,
}

impl SandboxProcess {
    pub(super) fn new(
        child: Child,
        status: Arc<File>,
        limits: SandboxLimits,
        disks: Vec<PathBuf>,
        group: Option<Cgroup>,
    ) -> Self {
        SandboxProcess {
            child,
            status,
            limits,
            disks,
            started: Instant::now(),
            last_count: Instant::now(),
            empty_counts: 0,
            initial_tasks: u64::from(rustix::system::sysinfo().procs),
            group,
        }
    }

    /// Takes the reading end of standard output if it is piped.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.take_stdout()
    }

    /// Takes the reading end of standard error if it is piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.take_stderr()
    }

    /// Returns the exceeded limit of processes or memory, in words.
    fn exceeded(&self, usage: Usage) -> Option<String> {
        let SandboxLimits {
            memory_mib,
            processes,
            ..
        } = self.limits;
        // The kernel may refuse the process that would be one too many, and then none exceeds the limit.
        if usage.processes >= processes {
            return Some(format!("more than {processes} processes"));
        }
        (usage.bytes >> 20 > memory_mib).then(|| format!("more than {memory_mib} MiB of memory"))
    }

    /// Returns the exceeded limit among those that take a few system calls to check, in words.
    fn exceeded_at_once(&self) -> Option<String> {
        if let Some(exceeded) = self.group.as_ref().and_then(Cgroup::exceeded) {
            return Some(exceeded);
        }
        // 0 means that the kernel does not say.
        if (1..MIN_AVAILABLE_MIB << 20).contains(&memory_available()) {
            return Some(format!(
                "less than {MIN_AVAILABLE_MIB} MiB of the machine's memory were left"
            ));
        }
        if let Some(exceeded) = time_exceeded(self.started, self.limits.hours) {
            return Some(exceeded);
        }
        self.short_disk()
    }

    /// Describes what a disk that the sandbox writes to lacks.
    fn short_disk(&self) -> Option<String> {
        let mut disks = self.disks.iter();
        disks.find_map(|path| short_of(&rustix::fs::statvfs(path).ok()?, self.limits.free_mib))
    }

    /// Returns the process namespace of the sandbox.
    fn namespace(&self) -> Option<PathBuf> {
        let mut text = [0; 1024];
        let length = self.status.read_at(&mut text, 0).ok()?;
        let line = text[..length].split(|&byte| byte == b'\n').next()?;
        let status: serde_json::Value = serde_json::from_slice(line).ok()?;
        let id = status["child-pid"].as_u64()?;
        std::fs::read_link(format!("/proc/{id}/ns/pid")).ok()
    }

    /// Calls `visit` with the folder in `/proc` of every process inside.
    fn for_each_process(&self, mut visit: impl FnMut(&Path)) {
        let Some(namespace) = self.namespace() else {
            return;
        };
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let path = entry.path();
            if std::fs::read_link(path.join("ns/pid")).is_ok_and(|found| found == namespace) {
                visit(&path);
            }
        }
    }

    /// Returns the resources used inside; `None` if there is no process.
    fn usage(&self) -> Option<Usage> {
        let page = rustix::param::page_size() as u64;
        let mut usage = Usage::default();
        self.for_each_process(|process| {
            let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            // Fields 20 and 24: threads, and pages in memory.
            usage.processes += stat_field(&stat, 20).unwrap_or(1);
            usage.bytes += stat_field(&stat, 24).unwrap_or(0) * page;
        });
        (usage.processes > 0).then_some(usage)
    }

    /// Kills everything inside.
    fn kill(&mut self) -> Result<ExitStatus> {
        if let Some(group) = &self.group {
            group.kill();
        }
        self.child.kill()
    }

    /// Returns the first process inside.
    fn first(&self) -> Option<Pid> {
        let mut first = None;
        self.for_each_process(|process| {
            let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let mut numbers = numbers.unwrap_or_default().split_whitespace();
            let outer = numbers.next().and_then(|number| number.parse().ok());
            if numbers.next_back() == Some(FIRST_PID) {
                first = outer.and_then(Pid::from_raw);
            }
        });
        first
    }
}

impl LimitedProcess for SandboxProcess {
    fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        self.child.wait_within(limit)
    }

    fn enforce_limits(&mut self) -> Result<Option<String>> {
        if let Some(exceeded) = self.exceeded_at_once() {
            self.kill()?;
            return Ok(Some(exceeded));
        }
        // Count at once if the machine has many new processes, because a fork bomb grows quickly.
        let now = u64::from(rustix::system::sysinfo().procs);
        let many = now > self.initial_tasks.saturating_add(self.limits.processes / 2);
        if !many && self.last_count.elapsed() < COUNT_INTERVAL {
            return Ok(None);
        }
        self.last_count = Instant::now();
        let usage = self.usage();
        self.empty_counts = match usage {
            Some(_) => 0,
            None => self.empty_counts + 1,
        };
        let exceeded = match self.empty_counts {
            // Limits cannot be enforced on processes that cannot be counted.
            MAX_EMPTY_COUNTS.. => Some("its resource usage cannot be determined".to_owned()),
            _ => self.exceeded(usage.unwrap_or_default()),
        };
        if exceeded.is_some() {
            self.kill()?;
        }
        Ok(exceeded)
    }

    fn reached_limit(&self) -> Option<String> {
        let of_group = self.group.as_ref().and_then(Cgroup::exceeded);
        // A flood may end by its own error, before the next look at the disk.
        of_group.or_else(|| self.short_disk())
    }

    fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        // A signal to bubblewrap itself would kill everything at once.
        if let Some(first) = self.first() {
            let _ = kill_process(first, Signal::TERM);
            while started.elapsed() < grace {
                if let Some(status) = self.child.try_wait()? {
                    return Ok(status);
                }
                // The limits still apply to a process that ignores the signal.
                if self.enforce_limits()?.is_some() {
                    break;
                }
                // The process may not have installed its signal handler yet.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.kill()
    }
}

/// Describes which of bytes and inodes a disk lacks, of which `free_mib` must stay free.
fn short_of(disk: &StatVfs, free_mib: u64) -> Option<String> {
    if disk.f_bavail.saturating_mul(disk.f_frsize) >> 20 < free_mib {
        return Some(format!("less than {free_mib} MiB were left on the disk"));
    }
    // Some file systems have no fixed number of inodes.
    let needed = free_mib.saturating_mul(1024) / KIB_PER_INODE;
    let few = disk.f_files > 0 && disk.f_favail < needed.min(disk.f_files / 4);
    few.then(|| format!("less than {needed} files could still be made on the disk"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_system::process::Command;

    #[test]
    fn space_and_files_are_left_for_others() {
        let mut disk = rustix::fs::statvfs("/").unwrap();
        (disk.f_frsize, disk.f_bavail) = (4096, 600 << 8);
        (disk.f_files, disk.f_favail) = (1_000_000, 9600);
        assert_eq!(short_of(&disk, 600), None);
        assert!(short_of(&disk, 601).unwrap().contains("601 MiB"));
        disk.f_favail = 9599;
        assert!(short_of(&disk, 600).unwrap().contains("9600 files"));
        disk.f_files = 0;
        assert_eq!(short_of(&disk, 600), None);
        // A small disk has few files.
        (disk.f_files, disk.f_favail) = (4000, 1000);
        assert_eq!(short_of(&disk, 600), None);
    }

    #[test]
    fn a_sandbox_that_cannot_be_counted_is_killed() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        // An empty status file: bubblewrap reports no process.
        let status = Arc::new(tempfile::tempfile().unwrap());
        let limits = SandboxLimits {
            processes: 1,
            ..SandboxLimits::default()
        };
        let mut sandbox = SandboxProcess::new(child, status, limits, Vec::new(), None);
        // Makes every call count.
        sandbox.initial_tasks = 0;
        for _ in 1..MAX_EMPTY_COUNTS {
            assert_eq!(sandbox.enforce_limits().unwrap(), None);
        }
        assert!(sandbox.enforce_limits().unwrap().is_some());
        let status = sandbox.wait_within(Duration::ZERO).unwrap().unwrap();
        assert!(!status.success());
    }
}
