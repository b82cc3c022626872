//! Hardware counters through `perf stat`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::server::Running;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_system::process::{Child, Command, check_interrupted, find_program};

/// Events behind a meter's reading. They count user space only, since patches do not change the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventSource {
    pub(super) meter: Meter,
    /// Names of the events in perf.
    pub(super) events: &'static [&'static str],
    formula: Formula,
}

/// How a reading is computed from the events' counts.
#[derive(Debug, PartialEq, Eq)]
enum Formula {
    /// The count of the first event per transaction.
    Count,
    /// The count of the first event divided by this multiple of the second's count.
    Share(u8),
}

const fn count(meter: Meter, events: &'static [&'static str]) -> EventSource {
    EventSource {
        meter,
        events,
        formula: Formula::Count,
    }
}

const fn share(events: &'static [&'static str], slots: u8) -> EventSource {
    EventSource {
        meter: Meter::FrontendBound,
        events,
        formula: Formula::Share(slots),
    }
}

/// Sources by meter in order of preference: perf's generic events, then Intel's own event names.
///
/// `frontend_bound` is level 1 of the top-down method (Yasin, "A Top-Down method for performance analysis and
/// counters architecture", ISPASS 2014): slots in which the front end delivered nothing although the back end
/// would have taken it, of all slots. Processors since Ice Lake count slots themselves; before, there are four a
/// cycle. Elsewhere it is the share of cycles in which the front end was stalled.
const SOURCES: [EventSource; 11] = [
    count(Meter::Instructions, &["instructions:u"]),
    count(Meter::Cycles, &["cycles:u"]),
    count(Meter::L1iMisses, &["L1-icache-load-misses:u"]),
    count(Meter::L1iMisses, &["icache_64b.iftag_miss:u"]),
    count(Meter::L1iMisses, &["icache.misses:u"]),
    count(Meter::BranchMisses, &["branch-misses:u"]),
    count(Meter::BranchMisses, &["br_misp_retired.all_branches:u"]),
    // The kernel accepts the group only with the slots first.
    share(&["topdown-fe-bound:u", "slots:u"], 1),
    share(&["idq_uops_not_delivered.core:u", "cycles:u"], 4),
    share(&["stalled-cycles-frontend:u", "cycles:u"], 1),
    share(&["idle-cycles-frontend:u", "cycles:u"], 1),
];

/// Timeout for perf to attach or to answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns one source for each meter this machine supports; empty without perf, without permission, or in most
/// virtual machines.
pub(super) fn supported() -> Result<Vec<&'static EventSource>> {
    if find_program("perf").is_none() {
        return Ok(Vec::new());
    }
    of_machine(&stat)
}

/// Returns the output of `perf stat` for these events and a program that does nothing; `None` if perf refuses
/// them.
fn stat(events: &str) -> Result<Option<String>> {
    let output = Command::new("perf")
        .unrestricted()
        .args(["stat", "-x,", "-e", events, "--", "true"])
        .run_within(TIMEOUT)?;
    Ok(output.success().then(|| output.stderr_text()))
}

/// Whether an event counts anything on this machine.
pub(super) fn counts(event: &str) -> Result<bool> {
    let text = stat(event)?.unwrap_or_default();
    Ok(value_of(&text, event).is_some_and(|value| value > 0.0))
}

/// Returns the first source of each meter that counts something. Each is tried separately, because perf refuses a
/// whole list of events if it does not know one of them.
fn of_machine(stat: &dyn Fn(&str) -> Result<Option<String>>) -> Result<Vec<&'static EventSource>> {
    let mut found: Vec<&'static EventSource> = Vec::new();
    for source in &SOURCES {
        if found.iter().any(|other| other.meter == source.meter) {
            continue;
        }
        let text = stat(&events(&[source]))?.unwrap_or_default();
        let counts = |event: &&str| value_of(&text, event).is_some_and(|value| value > 0.0);
        if source.events.iter().all(counts) {
            found.push(source);
        }
    }
    Ok(found)
}

/// Formats all events for perf's option `-e`, with groups in braces.
fn events(sources: &[&EventSource]) -> String {
    let names = |source: &&EventSource| match (source.events, &source.formula) {
        ([metric, slots], Formula::Share(1)) if metric.starts_with("topdown") => {
            format!("{{{slots},{metric}}}")
        }
        (events, Formula::Share(_)) => format!("{{{}}}", events.join(",")),
        (events, Formula::Count) => events.join(","),
    };
    sources.iter().map(names).collect::<Vec<_>>().join(",")
}

/// Returns the count of an event in the output of `perf stat -x,`.
fn value_of(text: &str, event: &str) -> Option<f64> {
    fields_of(text, event)?.first()?.parse().ok()
}

/// Whether the event was counted only part of the time, because there are fewer counters than events. Its count is
/// then an extrapolation.
fn is_extrapolated(text: &str, event: &str) -> bool {
    let fields = fields_of(text, event);
    let share = fields.and_then(|fields| fields.get(4)?.parse::<f64>().ok());
    share.is_some_and(|share| share < 100.0)
}

/// Returns the fields of an event's line: count, unit, event, nanoseconds counted, percentage of the time counted, ….
fn fields_of<'a>(text: &'a str, event: &str) -> Option<Vec<&'a str>> {
    let bare = |name: &str| name.trim_end_matches(":u").to_owned();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    lines.find(|fields| {
        let name = fields.get(2).map(|name| bare(name));
        name == Some(bare(event))
    })
}

/// A perf process attached to a server that counts or samples between [`PerfSession::enable`] and [`PerfSession::finish`].
pub(super) struct PerfSession {
    child: Child,
    control: File,
    answer: File,
    out: PathBuf,
}

impl PerfSession {
    /// Attaches `perf stat` to all current and future threads and children of `running`.
    pub(super) fn count(running: &Running, sources: &[&EventSource]) -> Result<Self> {
        let words = ["stat", "-x,", "-e", &events(sources)];
        Self::attach(running.dir(), &running.pids(), &words)
    }

    /// Attaches perf with the arguments `words` to all threads of the processes `pids`; its files are in `dir`.
    pub(super) fn attach(dir: &Path, pids: &[u32], words: &[&str]) -> Result<Self> {
        let (control_path, answer_path) = (dir.join("perf-control"), dir.join("perf-answer"));
        let out = dir.join("perf-out");
        for path in [&control_path, &answer_path, &out] {
            // Remains of an earlier count on the same server.
            let _ = std::fs::remove_file(path);
        }
        let control = pipe(&control_path)?;
        let answer = pipe(&answer_path)?;
        let mut fifo = std::ffi::OsString::from("--control=fifo:");
        fifo.push(&control_path);
        fifo.push(",");
        fifo.push(&answer_path);
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let pids = pids.join(",");
        let child = Command::new("perf")
            .unrestricted()
            .args(words)
            .args(["--delay=-1", "-p"])
            .arg(pids)
            .arg(fifo)
            .arg("-o")
            .arg(&out)
            .spawn()?;
        Ok(PerfSession {
            child,
            control,
            answer,
            out,
        })
    }

    /// Starts counting; returns once perf has confirmed it.
    pub(super) fn enable(&mut self) -> Result<()> {
        self.command("enable")
    }

    /// Stops perf and returns its output file.
    pub(super) fn finish(mut self) -> Result<PathBuf> {
        self.command("disable")?;
        self.child.interrupt();
        if self.child.wait_within(TIMEOUT)?.is_none() {
            return Err(Error::meter_failed("perf did not exit"));
        }
        Ok(self.out)
    }

    fn command(&mut self, word: &str) -> Result<()> {
        self.control
            .write_all(format!("{word}\n").as_bytes())
            .map_err(|error| Error::system_refused(format!("cannot write to perf: {error}")))?;
        let started = Instant::now();
        let mut said = Vec::new();
        while !said.ends_with(b"ack\n\0") && !said.ends_with(b"ack\n") {
            let mut bytes = [0; 64];
            if let Ok(count) = self.answer.read(&mut bytes) {
                said.extend_from_slice(&bytes[..count]);
                continue;
            }
            check_interrupted()?;
            if let Some(status) = self.child.try_wait()? {
                return Err(Error::meter_failed(format!("perf exited early ({status})")));
            }
            if started.elapsed() > TIMEOUT {
                return Err(Error::meter_failed(format!("perf did not answer `{word}`")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Creates a named pipe and opens it for reading and writing, so that neither side blocks until the
/// other opens it.
fn pipe(path: &Path) -> Result<File> {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR)
        .map_err(std::io::Error::from)
        .and_then(|()| {
            File::options()
                .read(true)
                .write(true)
                .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                .open(path)
        })
        .map_err(|e| Error::io("make a pipe", path, &e))
}

/// Returns the readings of `sources` in the output of `perf stat`, for `n` transactions.
pub(super) fn readings(text: &str, sources: &[&EventSource], n: u64) -> Result<Vec<(Meter, f64)>> {
    let events = sources.iter().flat_map(|source| source.events).copied();
    let extrapolated: BTreeSet<&str> = events
        .filter(|event| value_of(text, event).is_some() && is_extrapolated(text, event))
        .collect();
    if !extrapolated.is_empty() {
        let names: Vec<&str> = extrapolated.into_iter().collect();
        return Err(Error::meter_failed(format!(
            "this processor has too few counters for all events at once: {} had none part of the time",
            names.join(", ")
        ))
        .details(text.lines())
        .hint("list fewer `meters` in the preset and the others in another one"));
    }
    sources
        .iter()
        .map(|source| {
            let counts: Option<Vec<f64>> = source
                .events
                .iter()
                .map(|event| value_of(text, event))
                .collect();
            let value = match (counts.as_deref(), &source.formula) {
                (Some([count]), Formula::Count) => Some(count / n as f64),
                (Some([part, whole]), Formula::Share(slots)) if *whole > 0.0 => {
                    Some(part / (whole * f64::from(*slots)))
                }
                _ => None,
            };
            let value = value.ok_or_else(|| {
                Error::meter_failed(format!("perf did not count {}", source.meter))
                    .details(text.lines())
            })?;
            Ok((source.meter, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(meter: Meter) -> &'static EventSource {
        SOURCES.iter().find(|source| source.meter == meter).unwrap()
    }

    #[test]
    fn counts_are_read_with_and_without_modifier() {
        let text = "# started on Sat\n\n394375123,,instructions:u,100,100.00,,\n\
                    8810000,,L1-icache-load-misses,100,100.00,,\n";
        let sources = [source(Meter::Instructions), source(Meter::L1iMisses)];
        assert_eq!(
            readings(text, &sources, 1000).unwrap(),
            [
                (Meter::Instructions, 394_375.123),
                (Meter::L1iMisses, 8810.0)
            ]
        );
    }

    #[test]
    fn a_share_is_of_slots() {
        let text = "815,,idq_uops_not_delivered.core:u,1,100.00,,\n250,,cycles:u,1,100.00,,\n\
                    300,,slots:u,1,100.00,,\n90,,topdown-fe-bound:u,1,100.00,,\n";
        let of = |event: &str| {
            let mut sources = SOURCES.iter();
            let source = sources.find(|source| source.events[0] == event).unwrap();
            readings(text, &[source], 7).unwrap()[0].1
        };
        assert_eq!(of("idq_uops_not_delivered.core:u"), 0.815);
        assert_eq!(of("topdown-fe-bound:u"), 0.3);
    }

    #[test]
    fn an_uncounted_event_is_an_error() {
        for text in [
            "<not supported>,,instructions:u,0,100.00,,\n",
            "<not counted>,,instructions:u,0,0,,\n",
            "",
        ] {
            assert!(
                readings(text, &[source(Meter::Instructions)], 1).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn an_extrapolated_count_is_an_error() {
        let text = "394375123,,instructions:u,100,100.00,,\n\
                    8810000,,L1-icache-load-misses:u,75,74.98,,\n";
        let sources = [source(Meter::Instructions), source(Meter::L1iMisses)];
        let error = readings(text, &sources, 1000).unwrap_err();
        let message = error.message();
        assert!(message.contains("L1-icache-load-misses:u had"), "{message}");
        assert!(readings(text, &sources[..1], 1000).is_ok());
    }

    #[test]
    fn the_first_source_that_counts_is_taken() {
        // An Intel processor before Ice Lake, without the generic cache event.
        let known = [
            "instructions:u",
            "cycles:u",
            "icache.misses:u",
            "branch-misses:u",
            "idq_uops_not_delivered.core:u",
        ];
        let stat = |events: &str| {
            let asked: Vec<&str> = events.trim_matches(['{', '}']).split(',').collect();
            // perf fails entirely if one event is unknown.
            let all = asked.iter().all(|event| known.contains(event));
            let line = |event: &&str| format!("12,,{event},100,100.00,,\n");
            Ok(all.then(|| asked.iter().map(line).collect::<String>()))
        };
        let found = of_machine(&stat).unwrap();
        let first: Vec<&str> = found.iter().map(|source| source.events[0]).collect();
        assert_eq!(
            first,
            [
                "instructions:u",
                "cycles:u",
                "icache.misses:u",
                "branch-misses:u",
                "idq_uops_not_delivered.core:u"
            ]
        );
        assert_eq!(
            events(&found[3..]),
            "branch-misses:u,{idq_uops_not_delivered.core:u,cycles:u}"
        );
        let slots = SOURCES
            .iter()
            .find(|s| s.events[0].starts_with("topdown"))
            .unwrap();
        assert_eq!(events(&[slots]), "{slots:u,topdown-fe-bound:u}");
        // A machine without hardware counters.
        assert_eq!(
            of_machine(&|_| Ok(None)).unwrap(),
            Vec::<&EventSource>::new()
        );
    }

    #[test]
    fn asking_the_machine_gives_each_meter_once() {
        let found = supported().unwrap();
        let meters: std::collections::BTreeSet<Meter> = found.iter().map(|s| s.meter).collect();
        assert_eq!(meters.len(), found.len());
    }
}
