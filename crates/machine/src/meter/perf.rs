//! Hardware counters through `perf stat`, where the machine has them.

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

/// Where a meter's reading comes from: events counted in user space only, since the kernel's part is not
/// the patches'.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) meter: Meter,
    /// The events, as perf calls them.
    pub(super) events: &'static [&'static str],
    reading: Reading,
}

/// What is made of the events' counts.
#[derive(Debug, PartialEq, Eq)]
enum Reading {
    /// The first's, a transaction.
    Count,
    /// The first's over so many times the second's.
    Share(u8),
}

const fn count(meter: Meter, events: &'static [&'static str]) -> Source {
    Source {
        meter,
        events,
        reading: Reading::Count,
    }
}

const fn share(events: &'static [&'static str], slots: u8) -> Source {
    Source {
        meter: Meter::FrontendBound,
        events,
        reading: Reading::Share(slots),
    }
}

/// By meter, the best first: perf's generic events, then those of Intel's processors by their own names.
///
/// Bound by the front end: level 1 of the top-down method (Yasin, "A Top-Down method for performance analysis and
/// counters architecture", ISPASS 2014): slots in which the front end delivered nothing although the back end
/// would have taken it, of all slots. Processors since Ice Lake count slots themselves; before, there are four a
/// cycle. Elsewhere it is the share of cycles in which the front end was stalled.
const SOURCES: [Source; 11] = [
    count(Meter::Instructions, &["instructions:u"]),
    count(Meter::Cycles, &["cycles:u"]),
    count(Meter::L1iMisses, &["L1-icache-load-misses:u"]),
    count(Meter::L1iMisses, &["icache_64b.iftag_miss:u"]),
    count(Meter::L1iMisses, &["icache.misses:u"]),
    count(Meter::BranchMisses, &["branch-misses:u"]),
    count(Meter::BranchMisses, &["br_misp_retired.all_branches:u"]),
    // The slots lead the group, or the kernel refuses it.
    share(&["topdown-fe-bound:u", "slots:u"], 1),
    share(&["idq_uops_not_delivered.core:u", "cycles:u"], 4),
    share(&["stalled-cycles-frontend:u", "cycles:u"], 1),
    share(&["idle-cycles-frontend:u", "cycles:u"], 1),
];

/// How long perf may take to attach or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where this machine's meters come from, one source each; empty without perf, without permission, or in most
/// virtual machines.
///
/// # Errors
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
pub(super) fn supported() -> Result<Vec<&'static Source>> {
    if find_program("perf").is_none() {
        return Ok(Vec::new());
    }
    of_machine(&stat)
}

/// What `perf stat` counts of these events in a program that does nothing; `None` where it refuses them.
fn stat(events: &str) -> Result<Option<String>> {
    let output = Command::new("perf")
        .args(["stat", "-x,", "-e", events, "--", "true"])
        .run_within(PATIENCE)?;
    Ok(output.success().then(|| output.stderr_text()))
}

/// Whether an event counts anything on this machine.
pub(super) fn counts(event: &str) -> Result<bool> {
    let text = stat(event)?.unwrap_or_default();
    Ok(value_of(&text, event).is_some_and(|value| value > 0.0))
}

/// The first source of each meter that counts something. Each is tried by itself: perf refuses all events for
/// one that it does not know.
fn of_machine(stat: &dyn Fn(&str) -> Result<Option<String>>) -> Result<Vec<&'static Source>> {
    let mut found: Vec<&'static Source> = Vec::new();
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

/// All events as perf's option `-e` takes them, groups in braces.
fn events(sources: &[&Source]) -> String {
    let of = |source: &&Source| match (source.events, &source.reading) {
        ([metric, slots], Reading::Share(1)) if metric.starts_with("topdown") => {
            format!("{{{slots},{metric}}}")
        }
        (events, Reading::Share(_)) => format!("{{{}}}", events.join(",")),
        (events, Reading::Count) => events.join(","),
    };
    sources.iter().map(of).collect::<Vec<_>>().join(",")
}

/// The count of an event in the lines of `perf stat -x,`.
fn value_of(text: &str, event: &str) -> Option<f64> {
    fields_of(text, event)?.first()?.parse().ok()
}

/// Whether the event was counted in a part of the time only, because there are fewer counters than events;
/// its count is an extrapolation then.
fn is_extrapolated(text: &str, event: &str) -> bool {
    let fields = fields_of(text, event);
    let share = fields.and_then(|fields| fields.get(4)?.parse::<f64>().ok());
    share.is_some_and(|share| share < 100.0)
}

/// The fields of an event's line: count, unit, event, nanoseconds counted, per cent of the time counted, ….
fn fields_of<'a>(text: &'a str, event: &str) -> Option<Vec<&'a str>> {
    let bare = |name: &str| name.trim_end_matches(":u").to_owned();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    lines.find(|fields| {
        let name = fields.get(2).map(|name| bare(name));
        name == Some(bare(event))
    })
}

/// perf attached to a server, counting or sampling between [`Session::enable`] and [`Session::finish`].
pub(super) struct Session {
    child: Child,
    control: File,
    answer: File,
    out: PathBuf,
}

impl Session {
    /// Attaches `perf stat` to all threads of `running` and those they will start.
    pub(super) fn count(running: &Running, sources: &[&Source]) -> Result<Self> {
        let words = ["stat", "-x,", "-e", &events(sources)];
        Self::attach(running.dir(), running.pid(), &words)
    }

    /// Attaches perf with these `words` to all threads of process `pid`; its files are in `dir`.
    pub(super) fn attach(dir: &Path, pid: u32, words: &[&str]) -> Result<Self> {
        let (control_path, answer_path) = (dir.join("perf-control"), dir.join("perf-answer"));
        let out = dir.join("perf-out");
        for path in [&control_path, &answer_path, &out] {
            // From an earlier count on the same server.
            let _ = std::fs::remove_file(path);
        }
        let control = pipe(&control_path)?;
        let answer = pipe(&answer_path)?;
        let mut fifo = std::ffi::OsString::from("--control=fifo:");
        fifo.push(&control_path);
        fifo.push(",");
        fifo.push(&answer_path);
        let child = Command::new("perf")
            .args(words)
            .args(["--delay=-1", "-p"])
            .arg(pid.to_string())
            .arg(fifo)
            .arg("-o")
            .arg(&out)
            .spawn()?;
        Ok(Session {
            child,
            control,
            answer,
            out,
        })
    }

    /// Starts; returns once perf has done so.
    pub(super) fn enable(&mut self) -> Result<()> {
        self.command("enable")
    }

    /// Stops and returns the file that perf wrote.
    pub(super) fn finish(mut self) -> Result<PathBuf> {
        self.command("disable")?;
        self.child.interrupt();
        if self.child.wait_within(PATIENCE)?.is_none() {
            return Err(Error::bench("perf did not end"));
        }
        Ok(self.out)
    }

    fn command(&mut self, word: &str) -> Result<()> {
        self.control
            .write_all(format!("{word}\n").as_bytes())
            .map_err(|error| Error::internal(format!("cannot write to perf: {error}")))?;
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
                return Err(Error::bench(format!("perf ended early ({status})")));
            }
            if started.elapsed() > PATIENCE {
                return Err(Error::bench(format!("perf did not answer `{word}`")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Makes a named pipe and opens it for reading and writing, so that neither side waits for the
/// other to open it.
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

/// The readings of `sources` in what `perf stat` wrote, for `n` transactions.
///
/// # Errors
/// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when an event was not counted, or in a part of the time only.
pub(super) fn readings(text: &str, sources: &[&Source], n: u64) -> Result<Vec<(Meter, f64)>> {
    let events = sources.iter().flat_map(|source| source.events).copied();
    let extrapolated: BTreeSet<&str> = events
        .filter(|event| value_of(text, event).is_some() && is_extrapolated(text, event))
        .collect();
    if !extrapolated.is_empty() {
        let names: Vec<&str> = extrapolated.into_iter().collect();
        return Err(Error::bench(format!(
            "this processor has too few counters for all events at once: {} had none for a part of the time",
            names.join(", ")
        ))
        .details(text.lines())
        .hint("name fewer `meters` in the preset, and the others in another one"));
    }
    sources
        .iter()
        .map(|source| {
            let counts: Option<Vec<f64>> = source
                .events
                .iter()
                .map(|event| value_of(text, event))
                .collect();
            let value = match (counts.as_deref(), &source.reading) {
                (Some([count]), Reading::Count) => Some(count / n as f64),
                (Some([part, whole]), Reading::Share(slots)) if *whole > 0.0 => {
                    Some(part / (whole * f64::from(*slots)))
                }
                _ => None,
            };
            let value = value.ok_or_else(|| {
                Error::bench(format!("perf did not count {}", source.meter)).details(text.lines())
            })?;
            Ok((source.meter, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(meter: Meter) -> &'static Source {
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
    fn what_is_not_counted_is_an_error() {
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
    fn what_is_counted_in_a_part_of_the_time_is_an_error() {
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
            // One unknown event, and perf does nothing at all.
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
        // A machine without any.
        assert_eq!(of_machine(&|_| Ok(None)).unwrap(), Vec::<&Source>::new());
    }

    #[test]
    fn asking_the_machine_gives_each_meter_once() {
        let found = supported().unwrap();
        let meters: std::collections::BTreeSet<Meter> = found.iter().map(|s| s.meter).collect();
        assert_eq!(meters.len(), found.len());
    }
}
