//! Notices when a server, a client or the machine stands still during a measurement: stopped by a signal, by a debugger,
//! by the freezer of a control group, or suspended. Such a time says nothing about a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::server::Running;
use perfquilt_model::point::Point;
use perfquilt_system::control_groups::{freezers, is_frozen};
use perfquilt_system::process::{OrphanProcess, children, process_tree, was_stopped};
use perfquilt_system::threads::lock;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of looks after which the list of processes is read again.
const LIST_EVERY: u32 = 10;
/// The shortest time without a turn of the watching thread that the scheduler does not explain. A busy hypervisor
/// withholds its processors for some hundredths of a second at a time, and the scheduler's times contain all other
/// waiting.
const STILL: Duration = Duration::from_millis(500);
/// The shortest suspension: the clocks are read one after the other.
const SUSPENDED: Duration = Duration::from_millis(10);

/// Something that stood still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standstill {
    /// What, as the begin of a sentence.
    pub what: String,
    /// Whether it still stands still.
    pub lasts: bool,
}

/// The findings of a watch.
#[derive(Debug, Default)]
pub struct Standstills {
    /// Standstills in rounds that were repeated, by round.
    pub repeated: Vec<String>,
    /// The repeated ones of the timed rounds.
    pub timed: u64,
    /// Standstills outside of repeated rounds.
    pub left: Option<Standstill>,
}

/// Something that stood still at some moment of a time.
#[derive(Debug)]
struct Seen {
    end: Instant,
    what: String,
}

/// Watches this machine, and all processes that this program has started.
#[derive(Debug)]
pub struct StandstillWatch {
    stop: Sender<()>,
    /// Returns what stands still at the end.
    thread: JoinHandle<Option<String>>,
    /// Standstills that no round has taken, in the order of time.
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The servers' first processes, with their labels.
    servers: Vec<(u32, String)>,
    repeated: Mutex<Vec<String>>,
    timed: AtomicU64,
    most: usize,
}

impl StandstillWatch {
    /// Begins watching; rounds are repeated `most` times.
    pub fn begin(servers: &[(Point, Running)], most: u64) -> Self {
        let servers: Vec<(u32, String)> = servers
            .iter()
            .map(|(_, running)| (running.pid(), running.label.clone()))
            .collect();
        // What happened before does not count.
        for (pid, _) in &servers {
            was_stopped(*pid);
        }
        let (stop, stopped) = mpsc::channel();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let found = Arc::clone(&seen);
        let thread = std::thread::spawn(move || watch(&stopped, &found));
        StandstillWatch {
            stop,
            thread,
            seen,
            servers,
            repeated: Mutex::default(),
            timed: AtomicU64::new(0),
            most: usize::try_from(most).unwrap_or(usize::MAX),
        }
    }

    /// Notes that a client was stopped until now.
    pub(super) fn client_was_stopped(&self) {
        note(&self.seen, "the client was stopped".to_owned());
    }

    /// Returns whether something stood still in the round that began at `begin` and ends now, so that the round is to be
    /// repeated.
    pub(super) fn repeats(&self, begin: Instant) -> bool {
        self.look_at_servers();
        let mut repeated = lock(&self.repeated);
        if repeated.len() >= self.most {
            return false;
        }
        let mut seen = lock(&self.seen);
        let mut here = seen.extract_if(.., |seen| seen.end >= begin);
        let Some(first) = here.next() else {
            return false;
        };
        here.for_each(drop);
        repeated.push(first.what);
        self.timed.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Notes that the timed rounds begin here.
    pub(super) fn timed_rounds_begin(&self) {
        self.timed.store(0, Ordering::Relaxed);
    }

    /// Notes servers that were stopped since the last look, also when that was too short for the thread to see.
    fn look_at_servers(&self) {
        for (pid, label) in &self.servers {
            if was_stopped(*pid) {
                note(&self.seen, format!("the server of {label} was stopped"));
            }
        }
    }

    /// Ends watching.
    pub fn end(self) -> Standstills {
        self.look_at_servers();
        drop(self.stop);
        let lasting = self.thread.join().ok().flatten();
        let seen = std::mem::take(&mut *lock(&self.seen));
        let left = match lasting {
            Some(what) => Some(Standstill { what, lasts: true }),
            None => seen.into_iter().next().map(|seen| Standstill {
                what: seen.what,
                lasts: false,
            }),
        };
        Standstills {
            repeated: std::mem::take(&mut *lock(&self.repeated)),
            timed: self.timed.into_inner(),
            left,
        }
    }
}

fn note(seen: &Mutex<Vec<Seen>>, what: String) {
    let end = Instant::now();
    let mut seen = lock(seen);
    seen.push(Seen { end, what });
}

/// Looks until `stopped` is closed; notes what stood still, and returns what stands still at the end.
fn watch(stopped: &Receiver<()>, seen: &Mutex<Vec<Seen>>) -> Option<String> {
    let own = std::process::id();
    let own_freezers = freezers(own);
    let mut processes = Vec::new();
    let mut frozen_by: BTreeMap<PathBuf, u32> = BTreeMap::new();
    let mut before = Turn::now();
    for look in 0u32.. {
        let ends = stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout);
        let now = Turn::now();
        let new = if look % LIST_EVERY == 0 {
            processes.clear();
            frozen_by.clear();
            process_tree(own).split_off(1)
        } else {
            // A client may last for a fraction of a second.
            let new = children(own).into_iter();
            let new = new.filter(|pid| !processes.contains(pid));
            new.flat_map(process_tree).collect()
        };
        for pid in &new {
            // A group that has this program, too, freezes this thread.
            let freezers = freezers(*pid).into_iter();
            for file in freezers.filter(|file| !own_freezers.contains(file)) {
                frozen_by.entry(file).or_insert(*pid);
            }
        }
        processes.extend(new);
        let process = standing_still(&processes, &frozen_by);
        if let Some(what) = process.clone().or_else(|| now.standstill_since(&before)) {
            note(seen, what);
        }
        if ends {
            return process;
        }
        // What was done since then is not waiting.
        before = Turn::now();
    }
    None
}

/// Returns which of the processes stands still; `freezers` are the files of their groups that tell it, each with one of the
/// group.
fn standing_still(processes: &[u32], freezers: &BTreeMap<PathBuf, u32>) -> Option<String> {
    let mut living = processes.iter().filter_map(|&pid| OrphanProcess::read(pid));
    if let Some(stopped) = living.find(OrphanProcess::is_stopped) {
        return Some(format!("{stopped} was stopped"));
    }
    let (file, pid) = freezers.iter().find(|(file, _)| is_frozen(file))?;
    let process = OrphanProcess::read(*pid)?;
    let group = file.parent().unwrap_or(file);
    Some(format!(
        "{process} was frozen by its control group {}",
        group.display()
    ))
}

/// The clocks at a turn of the watching thread.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// The clock that stops while the machine is suspended.
    monotonic: Duration,
    /// The clock that goes on.
    boot: Duration,
    /// The time that this thread ran, and that it waited for a processor; `None` if the kernel does not report it.
    scheduled: Option<Duration>,
}

impl Turn {
    fn now() -> Self {
        Turn {
            monotonic: clock(ClockId::Monotonic),
            boot: clock(ClockId::Boottime),
            scheduled: std::fs::read_to_string("/proc/thread-self/schedstat")
                .ok()
                .and_then(|text| scheduled(&text)),
        }
    }

    /// Returns what stood still between two turns that are [`PAUSE`] apart.
    fn standstill_since(&self, before: &Turn) -> Option<String> {
        let monotonic = self.monotonic.saturating_sub(before.monotonic);
        let suspended = self
            .boot
            .saturating_sub(before.boot)
            .saturating_sub(monotonic);
        if suspended > SUSPENDED {
            let seconds = suspended.as_secs_f64();
            return Some(format!("the machine was suspended for {seconds:.1} s"));
        }
        // A thread that may not run at all neither runs nor waits for a processor.
        let (now, before) = self.scheduled.zip(before.scheduled)?;
        let still = monotonic
            .saturating_sub(PAUSE)
            .saturating_sub(now.saturating_sub(before));
        (still > STILL).then(|| {
            let seconds = still.as_secs_f64();
            format!("perfquilt or the machine stood still for {seconds:.1} s")
        })
    }
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Returns the sum of the first two numbers of `/proc/PID/schedstat`: nanoseconds on a processor, and waiting for one.
fn scheduled(text: &str) -> Option<Duration> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Duration::from_nanos(ran.saturating_add(waited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(monotonic: u64, boot: u64, scheduled: Option<u64>) -> Turn {
        Turn {
            monotonic: Duration::from_millis(monotonic),
            boot: Duration::from_millis(boot),
            scheduled: scheduled.map(Duration::from_millis),
        }
    }

    #[test]
    fn only_time_that_nothing_explains_is_a_standstill() {
        let start = turn(1000, 5000, Some(0));
        let after = |of: Turn| of.standstill_since(&start);
        assert_eq!(after(turn(1051, 5051, Some(1))), None);
        // A busy machine lets the thread wait for a second.
        assert_eq!(after(turn(2050, 6050, Some(1000))), None);
        let still = after(turn(3050, 7050, Some(1))).unwrap();
        assert!(still.ends_with("stood still for 2.0 s"), "{still}");
        let suspended = after(turn(1050, 9050, Some(1))).unwrap();
        assert!(suspended.ends_with("suspended for 4.0 s"), "{suspended}");
        assert_eq!(turn(9000, 13000, None).standstill_since(&start), None);
        assert_eq!(
            scheduled("1000000 2000000 7\n"),
            Some(Duration::from_millis(3))
        );
        assert_eq!(scheduled("x"), None);
    }

    /// A watch sees what stands still in all tests of this program.
    fn alone() -> std::sync::MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        lock(&ALONE)
    }

    fn sleep() -> perfquilt_system::process::Child {
        let sleep = perfquilt_system::process::Command::new("sleep").arg("30");
        sleep.spawn().unwrap()
    }

    fn signal(pid: u32, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    #[test]
    fn a_stopped_process_is_noticed_by_its_name() {
        let _alone = alone();
        let mut child = sleep();
        signal(child.id(), rustix::process::Signal::STOP);
        let watch = StandstillWatch::begin(&[], 5);
        std::thread::sleep(4 * PAUSE);
        let found = watch.end().left.unwrap();
        child.kill().unwrap();
        assert!(found.what.starts_with("`sleep` (process "), "{found:?}");
        assert!(found.lasts);
    }

    #[test]
    fn the_rounds_in_which_something_stood_still_are_repeated_until_there_are_too_many() {
        let _alone = alone();
        let watch = StandstillWatch::begin(&[], 2);
        watch.client_was_stopped();
        // It was over before the round.
        std::thread::sleep(Duration::from_millis(2));
        assert!(!watch.repeats(Instant::now()));
        for repeated in [true, true, false] {
            let begin = Instant::now();
            watch.client_was_stopped();
            watch.client_was_stopped();
            assert_eq!(watch.repeats(begin), repeated);
            assert!(!watch.repeats(Instant::now()));
            watch.timed_rounds_begin();
        }
        let found = watch.end();
        assert_eq!(found.repeated, ["the client was stopped"; 2]);
        assert_eq!(found.timed, 0);
        assert!(found.left.is_some_and(|left| !left.lasts));
    }

    #[test]
    #[allow(clippy::print_stdout)] // Says what a machine cannot show.
    fn a_process_in_a_frozen_control_group_is_noticed_by_its_name_and_group() {
        let _alone = alone();
        let mut tried = 0;
        for (parent, state, frozen, thawed) in [
            ("/sys/fs/cgroup", "cgroup.freeze", "1", "0"),
            ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
            (
                "/sys/fs/cgroup/freezer",
                "freezer.state",
                "FROZEN",
                "THAWED",
            ),
        ] {
            let group =
                std::path::Path::new(parent).join(format!("perfquilt-test-{}", std::process::id()));
            let made = std::fs::create_dir(&group);
            if made.is_err() || !group.join(state).exists() {
                println!("skipped: {parent} lets this user make no group with {state}");
                let _ = std::fs::remove_dir(&group);
                continue;
            }
            tried += 1;
            let mut child = sleep();
            std::fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
            let watch = StandstillWatch::begin(&[], 5);
            std::fs::write(group.join(state), frozen).unwrap();
            std::thread::sleep(20 * PAUSE);
            let begin = Instant::now();
            // The thread that looks may wait for a processor for long.
            let repeats = (0..200).any(|_| {
                std::thread::sleep(3 * PAUSE);
                watch.repeats(begin)
            });
            std::fs::write(group.join(state), thawed).unwrap();
            child.kill().unwrap();
            let found = watch.end();
            let removed = || std::fs::remove_dir(&group).is_ok();
            assert!((0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                removed()
            }));
            assert!(repeats, "{parent}: {found:?}");
            let what = &found.repeated[0];
            let words = format!("was frozen by its control group {}", group.display());
            assert!(what.starts_with("`sleep` (process "), "{what}");
            assert!(what.ends_with(&words), "{what}");
        }
        println!("{tried} kinds of control groups froze a process");
    }
}
