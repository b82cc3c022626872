//! Samples where a server spends its time, with `perf record`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use object::{Object, ObjectSegment};
use regex::Regex;

use super::perf::{self, PerfSession};
use super::plain_name;
use crate::server::Running;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::process::{Command, find_program};

/// Samples per second. Not a multiple of 1000, so that samples do not synchronise with timers.
const FREQUENCY: &str = "3989";

/// Event that triggers samples, and the unit of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingEvent {
    /// Processor cycles, from the processor's own counters.
    Cycles,
    /// Nanoseconds of processor time, from the kernel's clock.
    Nanoseconds,
}

impl SamplingEvent {
    /// Returns the event this machine can sample by, preferring cycles.
    pub fn detect() -> Result<Self> {
        if find_program("perf").is_none() {
            return Err(Error::program_missing("perf is not installed")
                .hint("install Debian's package linux-perf, or use `--source callgrind`"));
        }
        if perf::counts("cycles:u")? {
            return Ok(SamplingEvent::Cycles);
        }
        if perf::counts("cpu-clock:u")? {
            Ok(SamplingEvent::Nanoseconds)
        } else {
            let paranoid = std::fs::read_to_string(PARANOID).unwrap_or_default();
            let permission = permission(paranoid.trim().parse().ok());
            Err(
                Error::meter_unavailable("perf is not permitted to sample processes")
                    .hint(format!("{permission}, or use `--source callgrind`")),
            )
        }
    }

    fn event(self) -> &'static str {
        match self {
            SamplingEvent::Cycles => "cycles:u",
            SamplingEvent::Nanoseconds => "cpu-clock:u",
        }
    }

    /// Returns the unit of costs, in words.
    pub fn unit(self) -> &'static str {
        match self {
            SamplingEvent::Cycles => "cycles",
            SamplingEvent::Nanoseconds => "nanoseconds",
        }
    }
}

/// The kernel's setting of the perf events that unprivileged users may use.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// Returns what permits perf to sample a user's own processes, where it may not at this value of [`PARANOID`].
fn permission(paranoid: Option<i32>) -> String {
    match paranoid {
        Some(value) if value > 2 => {
            format!("set {PARANOID} from {value} to 2 (`sysctl kernel.perf_event_paranoid=2`)")
        }
        Some(_) => "permit the system call perf_event_open (in a container: `--cap-add PERFMON` and a seccomp \
                    profile that allows it)"
            .to_owned(),
        None => "use a kernel with perf events (CONFIG_PERF_EVENTS)".to_owned(),
    }
}

/// Position of a sample.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SamplePosition {
    /// The function, without suffixes added by the compiler.
    pub function: String,
    /// The address in the server's own executable; `None` in other files.
    pub address: Option<u64>,
}

/// Costs of a server's threads by position; user space only.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// In the unit of the sampling event.
    pub spent: BTreeMap<SamplePosition, f64>,
    /// Number of samples.
    pub count: u64,
}

/// Samples of a server's time that perf is taking.
pub struct Sampling(PerfSession);

impl Sampling {
    /// Starts to sample all threads of `running`.
    pub fn start(running: &Running, by: SamplingEvent) -> Result<Self> {
        let words = ["record", "-q", "-F", FREQUENCY, "-e", by.event()];
        let mut session = PerfSession::attach(running.dir(), &running.pids(), &words)?;
        session.enable()?;
        Ok(Sampling(session))
    }

    /// Stops sampling `running` and returns the samples. `executable` is the server's own file.
    pub fn finish(self, running: &Running, executable: &Path) -> Result<Samples> {
        let file = self.0.finish()?;
        let output = Command::new("perf")
            .unrestricted()
            .args([
                "script",
                "--show-mmap-events",
                "-F",
                "tid,period,ip,sym,symoff,dso",
                "-i",
            ])
            .arg(&file)
            .run_ok(Kind::Bench)?;
        let samples = Samples::parse(&output.stdout_text(), &Segments::of(executable));
        if samples.spent.is_empty() {
            return Err(Error::meter_failed(format!(
                "perf took no sample of {}",
                running.label
            )));
        }
        Ok(samples)
    }
}

/// `tid period ip symbol+offset (object)`.
static SAMPLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^\s*\d+\s+(\d+)\s+([0-9a-f]+)\s+(.*?)(?:\+0x[0-9a-f]+)?\s+\((.*)\)$")
        .unwrap_or_else(|error| unreachable!("{error}"))
});

/// `… PERF_RECORD_MMAP2 pid/tid: [start(length) @ offset device inode generation]: r-xp path`; the offset of an
/// anonymous mapping is 0 without 0x.
static MAPPING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"PERF_RECORD_MMAP2? -?\d+/\d+: \[0x([0-9a-f]+)\(0x([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+)[^\]]*\]: \S+ (.*)$",
    )
    .unwrap_or_else(|error| unreachable!("{error}"))
});

impl Samples {
    /// Parses the output of `perf script --show-mmap-events -F tid,period,ip,sym,symoff,dso` for a server with this
    /// executable.
    fn parse(text: &str, executable: &Segments) -> Self {
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let mut mappings: Vec<(u64, u64, u64)> = Vec::new();
        let mut spent: BTreeMap<SamplePosition, f64> = BTreeMap::new();
        let mut count = 0;
        for line in text.lines() {
            if let Some(found) = MAPPING.captures(line) {
                if executable.is(&found[4]) {
                    mappings.push((number(&found[1]), number(&found[2]), number(&found[3])));
                }
                continue;
            }
            let Some(found) = SAMPLE.captures(line) else {
                continue;
            };
            let ip = number(&found[2]);
            let offset = moved(&mappings, ip);
            let position = SamplePosition {
                function: plain_name(&found[3]),
                address: offset.and_then(|offset| moved(&executable.segments, offset)),
            };
            *spent.entry(position).or_default() += found[1].parse::<f64>().unwrap_or(0.0);
            count += 1;
        }
        Samples { spent, count }
    }
}

/// An executable's segments, which map file offsets to addresses.
struct Segments {
    name: String,
    /// File offset, length and address of each segment.
    segments: Vec<(u64, u64, u64)>,
}

impl Segments {
    /// Reads the segments of the file at `path`; none if it cannot be read.
    fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let segments = match object::File::parse(bytes.as_slice()) {
            Ok(file) => file
                .segments()
                .map(|segment| {
                    let (offset, length) = segment.file_range();
                    (offset, length, segment.address())
                })
                .collect(),
            Err(_) => Vec::new(),
        };
        let name = path.file_name().unwrap_or_default();
        Segments {
            name: name.to_string_lossy().into_owned(),
            segments,
        }
    }

    /// Whether a mapped file has the executable's name; servers run from copies in other folders.
    fn is(&self, mapped: &str) -> bool {
        mapped.rsplit('/').next() == Some(&self.name)
    }
}

/// Returns where `place` is after the move of the range that has it: ranges are a start, a length and the start after the move.
fn moved(ranges: &[(u64, u64, u64)], place: u64) -> Option<u64> {
    let has_place = |(start, length, _): &&(u64, u64, u64)| {
        (*start..start.saturating_add(*length)).contains(&place)
    };
    let (start, _, to) = ranges.iter().find(has_place)?;
    Some(place - start + to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_addresses() {
        let executable = Segments {
            name: "server".into(),
            segments: vec![(0, 0x1000, 0), (0x1290, 0x2000, 0x2290)],
        };
        let text = "    0 PERF_RECORD_MMAP2 7/7: [0x5000(0x2000) @ 0x1000 fe:00 99 0]: r-xp /x y/server\n\
                    0 PERF_RECORD_MMAP2 7/7: [0x9000(0x1000) @ 0 00:00 0 0]: r-xp [vdso]\n\
                    9     250000      5300 String::append(char const*, unsigned int)+0x10 (/x y/server)\n\
                    9     250000      5300 String::append(char const*, unsigned int)+0x10 (/x y/server)\n\
                    9     250000      9010 [unknown] ([vdso])\n\
                    8          1      9110 main (/lib/libc.so.6)\n\
                    nonsense\n";
        let samples = Samples::parse(text, &executable);
        let position = |function: &str, address| SamplePosition {
            function: function.into(),
            address,
        };
        assert_eq!(
            samples.spent,
            BTreeMap::from([
                (
                    position("String::append(char const*, unsigned int)", Some(0x2300)),
                    500_000.0
                ),
                (position("[unknown]", None), 250_000.0),
                (position("main", None), 1.0),
            ])
        );
        assert_eq!(samples.count, 4);
    }

    #[test]
    fn the_missing_permission_is_named() {
        assert!(permission(Some(3)).contains("from 3 to 2"));
        for allowed in [2, -1] {
            let words = permission(Some(allowed));
            assert!(words.contains("perf_event_open") && !words.contains("sysctl"));
        }
        assert!(permission(None).contains("CONFIG_PERF_EVENTS"));
    }

    #[test]
    fn the_segments_of_this_test_are_read() {
        let own = Segments::of(&std::env::current_exe().unwrap());
        assert!(own.segments.len() > 2);
        assert!(Segments::of(Path::new("/none")).segments.is_empty());
    }
}
