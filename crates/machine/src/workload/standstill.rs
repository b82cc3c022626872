//! Notices when a server, a client or the machine stands still during a measurement: stopped by a signal, by a debugger,
//! by the freezer of a control group, or suspended. Such a time says nothing about a server.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::server::Running;
use perfquilt_model::point::Point;
use perfquilt_system::process::{children, family, standing_still};

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

/// Watches this machine, and all processes that this program has started.
#[derive(Debug)]
pub struct StandstillWatch {
    stop: Sender<()>,
    thread: JoinHandle<Option<Standstill>>,
}

impl StandstillWatch {
    /// Begins watching.
    pub fn begin(servers: &[(Point, Running)]) -> Self {
        // What happened before does not count.
        for (_, running) in servers {
            running.was_stopped();
        }
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || watch(&stopped));
        StandstillWatch { stop, thread }
    }

    /// Ends watching; returns what stood still, if anything did.
    pub fn end(self, servers: &[(Point, Running)]) -> Option<Standstill> {
        drop(self.stop);
        let seen = self.thread.join().ok().flatten();
        // Also a stop that was too short for the thread to see.
        let mut stopped = servers.iter().filter(|(_, running)| running.was_stopped());
        let stopped = stopped.next().map(|(_, running)| Standstill {
            what: format!("the server of {} was stopped", running.label()),
            lasts: false,
        });
        seen.or(stopped)
    }
}

/// Looks until `stopped` is closed; returns what stands still at the end, or the first thing that stood still.
fn watch(stopped: &Receiver<()>) -> Option<Standstill> {
    let own = std::process::id();
    let mut processes = Vec::new();
    let mut found: Option<Standstill> = None;
    let mut before = Turn::now();
    for look in 0u32.. {
        let ends = stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout);
        let now = Turn::now();
        if look % LIST_EVERY == 0 {
            processes = family(own).split_off(1);
        } else {
            // A client may last for a fraction of a second.
            let new = children(own).into_iter();
            let new = new.filter(|pid| !processes.contains(pid));
            let new: Vec<u32> = new.flat_map(family).collect();
            processes.extend(new);
        }
        let machine = now.standstill_since(&before);
        let still = standing_still(&processes);
        let process = still.first().map(|name| format!("{name} was stopped"));
        if let Some(what) = process.filter(|_| ends || found.is_none()) {
            found = Some(Standstill { what, lasts: ends });
        } else if let Some(what) = machine.filter(|_| found.is_none()) {
            found = Some(Standstill { what, lasts: false });
        }
        if ends {
            break;
        }
        // What was done since then is not waiting.
        before = Turn::now();
    }
    found
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

    #[test]
    fn a_stopped_process_is_noticed_by_its_name() {
        use rustix::process::{Pid, Signal, kill_process};
        let mut child = perfquilt_system::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let watch = StandstillWatch::begin(&[]);
        std::thread::sleep(4 * PAUSE);
        let found = watch.end(&[]).unwrap();
        child.kill().unwrap();
        assert!(found.what.starts_with("`sleep` (process "), "{found:?}");
        assert!(found.lasts);
    }
}
