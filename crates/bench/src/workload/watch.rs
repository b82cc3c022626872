//! Monitors the machine during a measurement, through /proc.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::standstill::{StandstillWatch, Standstills};
use crate::cpu_quota::ControlGroups;
use crate::server::{Endpoint, StorageCounts, StorageReader};
use perfquilt_model::observation::{HostSample, Meter};
use perfquilt_system::host::KernelFields;
use perfquilt_system::process::{process_tree, stat_field};
use perfquilt_system::threads::lock;

/// Records the state of the measuring processors and the servers, and reports the changes at the end.
#[derive(Debug)]
pub struct HostMonitor {
    cpus: Vec<usize>,
    pids: Vec<u32>,
    /// The reader of the servers' own counters and their endpoints in the order of the processes; it counts from the next
    /// [`HostMonitor::restart`] on.
    pub storage: Option<(StorageReader, Vec<Endpoint>)>,
    groups: ControlGroups,
    start: Mutex<HostState>,
    /// Has rounds repeated in which something stood still.
    pub standstills: Option<StandstillWatch>,
    /// The changes until [`HostMonitor::stop`].
    changes: Mutex<Option<(HostSample, Vec<ServerUsage>)>>,
}

/// The state of the processors and the servers at one moment.
#[derive(Debug)]
struct HostState {
    at: Instant,
    ticks: Option<Ticks>,
    servers: BTreeMap<u32, ProcessCounts>,
    /// The servers' own counters; none of a server that does not answer.
    storage: Vec<StorageCounts>,
    mhz: Option<(f64, f64)>,
    /// How long processes stood still because a processor quota was used up.
    throttled: Duration,
}

/// Times of processors, in the kernel's clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
    steal: u64,
}

/// Kernel statistics of a process: page faults, context switches, calls that read or write files and their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ProcessCounts {
    minor: u64,
    major: u64,
    /// Context switches of each thread.
    switches: BTreeMap<u32, Switches>,
    /// Bytes and calls; `None` if the kernel does not show them.
    io: Option<(u64, u64)>,
}

/// Context switches of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Switches {
    involuntary: u64,
    voluntary: u64,
}

/// Resources that a server with all its processes used while a block was timed, by meter. A value that the kernel or the
/// server does not report, or of a server without a living process, is missing.
///
/// `rss` is the most resident memory since the start, in bytes: the sum of the processes' own peaks, with memory that they share
/// counted once. Context switches are voluntary and involuntary ones; `io_calls` those of `syscr` and `syscw` of proc(5), which read
/// or wrote files or pipes, not sockets alone.
pub type ServerUsage = BTreeMap<Meter, u64>;

impl HostMonitor {
    /// Starts monitoring the processors `cpus` and the processes `pids` with their descendants.
    pub fn begin(cpus: &[usize], pids: impl IntoIterator<Item = u32>) -> HostMonitor {
        let pids: Vec<u32> = pids.into_iter().collect();
        let groups = ControlGroups::of_this_process();
        HostMonitor {
            start: Mutex::new(HostState::read(cpus, &pids, &groups, None)),
            changes: Mutex::default(),
            cpus: cpus.to_vec(),
            storage: None,
            standstills: None,
            groups,
            pids,
        }
    }

    /// Ends watching for standstills.
    pub fn end_standstills(&mut self) -> Standstills {
        let watch = self.standstills.take();
        watch.map(StandstillWatch::end).unwrap_or_default()
    }

    /// Starts again: changes until here do not count.
    pub fn restart(&self) {
        if let Some(watch) = &self.standstills {
            watch.timed_rounds_begin();
        }
        let storage = self.storage.as_ref();
        let state = HostState::read(&self.cpus, &self.pids, &self.groups, storage);
        *lock(&self.start) = state;
        *lock(&self.changes) = None;
    }

    /// Stops: changes from here on do not count. Called while clients are still connected, since a server may end the
    /// process or thread of a connection with it.
    pub fn stop(&self) {
        let changes = self.changes();
        *lock(&self.changes) = Some(changes);
    }

    /// Returns the changes from the start until the monitor was stopped, or until now: of the host, and of each server in
    /// the order of [`HostMonitor::begin`]. Values of the host that the kernel does not report are 0; ended processes do not
    /// count.
    pub fn end(self) -> (HostSample, Vec<ServerUsage>) {
        let stopped = lock(&self.changes).take();
        stopped.unwrap_or_else(|| self.changes())
    }

    fn changes(&self) -> (HostSample, Vec<ServerUsage>) {
        let start = lock(&self.start);
        let seconds = start.at.elapsed().as_secs_f64();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut moment = HostSample {
            seconds,
            began: now.map_or(0.0, |now| now.as_secs_f64() - seconds),
            ..HostSample::default()
        };
        if let Some((before, after)) = start.ticks.zip(read_ticks(&self.cpus)) {
            let all = after.all.saturating_sub(before.all).max(1) as f64;
            moment.idle = after.idle.saturating_sub(before.idle) as f64 / all;
            moment.steal = after.steal.saturating_sub(before.steal) as f64 / all;
        }
        let throttled = self.groups.throttled().saturating_sub(start.throttled);
        moment.throttled = throttled.as_secs_f64();
        let mut usages = Vec::with_capacity(self.pids.len());
        for &pid in &self.pids {
            usages.push(usage(pid, &start.servers, &mut moment));
        }
        // Asking comes last, since it costs the servers something too.
        let after = read_storage(self.storage.as_ref());
        for ((usage, before), after) in usages.iter_mut().zip(&start.storage).zip(after) {
            let since = |(meter, count): (Meter, u64)| {
                let before = *before.get(&meter)?;
                Some((meter, count.saturating_sub(before)))
            };
            usage.extend(after.into_iter().filter_map(since));
        }
        moment.mhz = match (start.mhz, read_mhz(&self.cpus)) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
        (moment, usages)
    }
}

/// Returns what the server `pid` used since its processes had the counts `start`, and adds to `moment` what the host
/// counts for all servers.
fn usage(pid: u32, start: &BTreeMap<u32, ProcessCounts>, moment: &mut HostSample) -> ServerUsage {
    let counts = read_counts(&[pid]);
    // Without its first process, what is left of a server is not all of it.
    if !counts.contains_key(&pid) || !start.contains_key(&pid) {
        return ServerUsage::default();
    }
    let new = ProcessCounts {
        io: Some((0, 0)),
        ..ProcessCounts::default()
    };
    let mut switches = 0;
    let mut io = Some((0, 0));
    for (pid, after) in &counts {
        // A process that is new has done all of it meanwhile.
        let before = start.get(pid).unwrap_or(&new);
        let change = |count: fn(&ProcessCounts) -> u64| count(after).saturating_sub(count(before));
        moment.minor_faults += change(|counts| counts.minor);
        moment.major_faults += change(|counts| counts.major);
        for (thread, after) in &after.switches {
            let before = before.switches.get(thread).copied().unwrap_or_default();
            let involuntary = after.involuntary.saturating_sub(before.involuntary);
            moment.preempted += involuntary;
            switches += involuntary + after.voluntary.saturating_sub(before.voluntary);
        }
        let of_process = after.io.zip(before.io);
        io = io.zip(of_process).map(|((bytes, calls), (after, before))| {
            (
                bytes + after.0.saturating_sub(before.0),
                calls + after.1.saturating_sub(before.1),
            )
        });
    }
    let pids: Vec<u32> = counts.keys().copied().collect();
    let amounts = [
        (Meter::Rss, peak_bytes(&pids)),
        (Meter::ContextSwitches, Some(switches)),
        (Meter::IoBytes, io.map(|(bytes, _)| bytes)),
        (Meter::IoCalls, io.map(|(_, calls)| calls)),
    ];
    let known = |(meter, amount)| Some((meter, amount?));
    amounts.into_iter().filter_map(known).collect()
}

impl HostState {
    fn read(
        cpus: &[usize],
        pids: &[u32],
        groups: &ControlGroups,
        storage: Option<&(StorageReader, Vec<Endpoint>)>,
    ) -> Self {
        HostState {
            // Asking comes first, since it costs the servers something too.
            storage: read_storage(storage),
            ticks: read_ticks(cpus),
            servers: read_counts(pids),
            mhz: read_mhz(cpus),
            throttled: groups.throttled(),
            at: Instant::now(),
        }
    }
}

/// Returns each server's own counters; nothing if they are not to be read.
fn read_storage(storage: Option<&(StorageReader, Vec<Endpoint>)>) -> Vec<StorageCounts> {
    let Some((reader, endpoints)) = storage else {
        return Vec::new();
    };
    // A server that does not answer fails its client as well, which reports it.
    endpoints
        .iter()
        .map(|endpoint| reader(endpoint).unwrap_or_default())
        .collect()
}

fn read_ticks(cpus: &[usize]) -> Option<Ticks> {
    ticks(&std::fs::read_to_string("/proc/stat").ok()?, cpus)
}

/// Sums the lines `cpuN user nice system idle iowait irq softirq steal …` (proc(5)).
fn ticks(text: &str, cpus: &[usize]) -> Option<Ticks> {
    let mut sum = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.strip_prefix("cpu"));
        let Some(Ok(number)) = number.map(str::parse::<usize>) else {
            continue;
        };
        let fields: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // The time of guests is included in user time.
        let Some(&[_, _, _, idle, waiting, _, _, steal]) = fields.get(..8) else {
            continue;
        };
        if cpus.contains(&number) {
            let sum = sum.get_or_insert(Ticks {
                all: 0,
                idle: 0,
                steal: 0,
            });
            sum.all += fields[..8].iter().sum::<u64>();
            sum.idle += idle + waiting;
            sum.steal += steal;
        }
    }
    sum
}

fn read_counts(pids: &[u32]) -> BTreeMap<u32, ProcessCounts> {
    let read = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        if has_ended(&stat) {
            return None;
        }
        let (minor, major) = faults(&stat)?;
        // A thread may end between listing and reading.
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let mut switches = BTreeMap::new();
        for task in tasks.flatten() {
            let status = KernelFields::read(task.path().join("status"));
            let Some(thread) = task.file_name().to_str().and_then(|id| id.parse().ok()) else {
                continue;
            };
            let of_thread = Switches {
                involuntary: status.number("nonvoluntary_ctxt_switches").unwrap_or(0),
                voluntary: status.number("voluntary_ctxt_switches").unwrap_or(0),
            };
            switches.insert(thread, of_thread);
        }
        // Threads that ended are included.
        let io = KernelFields::read(format!("/proc/{pid}/io"));
        let sum = |one, other| Some(io.number(one)? + io.number(other)?);
        Some(ProcessCounts {
            minor,
            major,
            switches,
            io: sum("rchar", "wchar").zip(sum("syscr", "syscw")),
        })
    };
    pids.iter()
        .flat_map(|&pid| process_tree(pid))
        .filter_map(|pid| Some((pid, read(pid)?)))
        .collect()
}

/// Returns whether a process has ended and only waits for its parent.
fn has_ended(stat: &str) -> bool {
    let state = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest.trim_start());
    state.starts_with(['Z', 'X'])
}

/// Returns minor and major page faults.
fn faults(stat: &str) -> Option<(u64, u64)> {
    Some((stat_field(stat, 10)?, stat_field(stat, 12)?))
}

/// Returns the most resident memory of processes: each one's own peak, and the most that one of them has of shared
/// memory. `None` if the kernel shows none of it.
fn peak_bytes(pids: &[u32]) -> Option<u64> {
    let (mut own, mut shared) = (0, 0);
    for pid in pids {
        let status = KernelFields::read(format!("/proc/{pid}/status"));
        let of_process = status.number("RssShmem").unwrap_or(0);
        // A process that ends at this moment has none.
        let peak = status.number("VmHWM").unwrap_or(0);
        own += peak.saturating_sub(of_process);
        shared = of_process.max(shared);
    }
    Some((own + shared) << 10).filter(|bytes| *bytes > 0)
}

fn read_mhz(cpus: &[usize]) -> Option<(f64, f64)> {
    mhz(&std::fs::read_to_string("/proc/cpuinfo").ok()?, cpus)
}

fn mhz(text: &str, cpus: &[usize]) -> Option<(f64, f64)> {
    let mut processor = None;
    let mut range: Option<(f64, f64)> = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        match name.trim() {
            "processor" => processor = value.trim().parse::<usize>().ok(),
            "cpu MHz" if processor.is_some_and(|number| cpus.contains(&number)) => {
                if let Ok(value) = value.trim().parse::<f64>() {
                    let (low, high) = range.unwrap_or((value, value));
                    range = Some((low.min(value), high.max(value)));
                }
            }
            _ => {}
        }
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_measuring_processors() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\n\
                    cpu0 1 1 1 1 1 1 1 1 0 0\n\
                    cpu1 10 0 5 20 2 0 1 4 8 0\n\
                    intr 5 cpu1\n";
        let found = ticks(text, &[1]).unwrap();
        assert_eq!((found.all, found.idle, found.steal), (42, 22, 4));
        assert_eq!(ticks(text, &[0, 1]).unwrap().all, 50);
        assert_eq!(ticks(text, &[]), None);
        assert_eq!(ticks("cpu0 1 2", &[0]), None);
    }

    #[test]
    fn the_name_of_a_process_does_not_matter() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 345 6 7 8 9 10";
        assert_eq!(faults(stat), Some((345, 7)));
        assert_eq!(faults("12 (a"), None);
    }

    #[test]
    fn frequencies_are_those_of_the_measuring_processors() {
        let text = "processor\t: 0\ncpu MHz\t\t: 2000.5\n\nprocessor\t: 1\ncpu MHz\t\t: 3000.0\n";
        assert_eq!(mhz(text, &[1]), Some((3000.0, 3000.0)));
        assert_eq!(mhz(text, &[0, 1]), Some((2000.5, 3000.0)));
        assert_eq!(mhz("processor : 0\n", &[0]), None);
    }

    #[test]
    fn this_process_and_machine_can_be_monitored() {
        let cpus = super::super::allowed_cpus();
        let monitor = HostMonitor::begin(&cpus, [std::process::id(), u32::MAX]);
        let work: u64 = (0..3_000_000u64).fold(1, |a, b| a.rotate_left(7) ^ b);
        // So large that the allocator takes it from the kernel.
        let pages = vec![1u8; 64 << 20];
        let (moment, usage) = monitor.end();
        assert_eq!(usage.len(), 2);
        assert!(usage[0][&Meter::Rss] > 64 << 20, "{usage:?}");
        assert_eq!(usage[1], ServerUsage::default());
        assert!(work != 0 && pages.len() > 1);
        assert!(moment.seconds > 0.0);
        assert!((0.0..=1.0).contains(&moment.idle), "{moment:?}");
        assert!((0.0..=1.0).contains(&moment.steal), "{moment:?}");
        assert!(moment.minor_faults > 0, "{moment:?}");
    }

    #[test]
    fn calls_and_bytes_of_files_are_counted() {
        let monitor = HostMonitor::begin(&[], [std::process::id()]);
        let file = tempfile::NamedTempFile::new().unwrap();
        for _ in 0..50 {
            std::fs::write(file.path(), [1; 1000]).unwrap();
        }
        let (_, usage) = monitor.end();
        assert!(usage[0][&Meter::IoCalls] >= 50, "{usage:?}");
        assert!(usage[0][&Meter::IoBytes] >= 50_000, "{usage:?}");
    }

    #[test]
    fn servers_are_asked_at_the_begin_and_at_the_end() {
        use std::sync::atomic::{AtomicU64, Ordering};

        static ASKED: AtomicU64 = AtomicU64::new(0);
        fn reader(endpoint: &Endpoint) -> perfquilt_model::error::Result<StorageCounts> {
            let asked = ASKED.fetch_add(1, Ordering::Relaxed);
            if endpoint.port.is_none() {
                return Err(perfquilt_model::error::Error::client_failed("no answer"));
            }
            Ok(StorageCounts::from([
                (Meter::ServerReads, 10 * asked),
                (Meter::ServerWrites, 100),
                (Meter::ServerSyncs, 7),
            ]))
        }
        let endpoint = |port| Endpoint {
            socket: "/nonexistent".into(),
            port,
        };
        let own = std::process::id();
        let mut monitor = HostMonitor::begin(&[], [own, own]);
        assert!(monitor.storage.is_none());
        monitor.storage = Some((reader, vec![endpoint(Some(1)), endpoint(None)]));
        monitor.restart();
        let (_, usage) = monitor.end();
        let counted = |usage: &ServerUsage| {
            [Meter::ServerReads, Meter::ServerWrites, Meter::ServerSyncs]
                .map(|meter| usage.get(&meter).copied())
        };
        assert_eq!(counted(&usage[0]), [Some(20), Some(0), Some(0)]);
        assert_eq!(counted(&usage[1]), [None; 3]);
    }

    #[test]
    fn a_server_without_a_living_process_has_no_usage() {
        let mut child = perfquilt_system::process::Command::new("sleep")
            .arg("0.05")
            .spawn()
            .unwrap();
        let monitor = HostMonitor::begin(&[], [child.id()]);
        let stat = format!("/proc/{}/stat", child.id());
        let until = Instant::now() + Duration::from_secs(10);
        while !has_ended(&std::fs::read_to_string(&stat).unwrap()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (_, usage) = monitor.end();
        // It is a zombie, whose values the kernel shows as 0.
        assert_eq!(usage, [ServerUsage::default()]);
        child.kill().unwrap();
    }

    #[test]
    fn a_stopped_monitor_counts_no_more() {
        let monitor = HostMonitor::begin(&[], [std::process::id()]);
        monitor.stop();
        let file = tempfile::NamedTempFile::new().unwrap();
        for _ in 0..2000 {
            std::fs::write(file.path(), [1; 10_000]).unwrap();
        }
        let (_, usage) = monitor.end();
        // Other tests of this process write less meanwhile.
        assert!(usage[0][&Meter::IoBytes] < 20_000_000, "{usage:?}");
    }

    #[test]
    fn only_what_follows_the_last_start_counts() {
        let own = std::process::id();
        let touch = || std::hint::black_box(vec![1u8; 16 << 20]);
        let monitor = HostMonitor::begin(&[], [own]);
        let first = touch();
        let before =
            HostState::read(&[], &[own], &ControlGroups::default(), None).servers[&own].minor;
        monitor.restart();
        let (moment, _) = monitor.end();
        assert!(before > 0 && first.len() > 1);
        // 16 MiB are 4096 pages; other tests of this process touch fewer at the same moment.
        assert!(moment.minor_faults < 4000, "{moment:?}");
        assert!(moment.seconds < 1.0, "{moment:?}");
    }
}
