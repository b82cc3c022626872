//! Hardware counters through `perf stat`, where the machine has them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};
use crate::observation::Meter;
use crate::process::{Child, Command, check_interrupted, find_program};
use crate::server::Running;

/// The events counted, in user space only: the kernel's part is not the patches'.
const EVENTS: [(Meter, &str); 2] = [
    (Meter::Instructions, "instructions:u"),
    (Meter::L1iMisses, "L1-icache-load-misses:u"),
];
/// How long perf may take to attach or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The meters whose events this machine counts; empty without perf, without permission, or in most
/// virtual machines.
pub(super) fn supported() -> Result<Vec<Meter>> {
    if find_program("perf").is_none() {
        return Ok(Vec::new());
    }
    let output = Command::new("perf")
        .args(["stat", "-x,", "-e", &events(&Meter::ALL)])
        .args(["--", "true"])
        .run_within(PATIENCE)?;
    if !output.success() {
        return Ok(Vec::new());
    }
    let text = output.stderr_text();
    let meters = EVENTS.map(|(meter, _)| meter);
    Ok(meters
        .into_iter()
        .filter(|&meter| value_of(&text, meter).is_some_and(|value| value > 0.0))
        .collect())
}

fn events(meters: &[Meter]) -> String {
    let names = EVENTS
        .iter()
        .filter(|(meter, _)| meters.contains(meter))
        .map(|(_, event)| *event);
    names.collect::<Vec<_>>().join(",")
}

/// The count of a meter's event in the lines of `perf stat -x,` (count, unit, event, …).
fn value_of(text: &str, meter: Meter) -> Option<f64> {
    let (_, event) = EVENTS.iter().find(|(candidate, _)| *candidate == meter)?;
    let bare = |name: &str| name.trim_end_matches(":u").to_owned();
    text.lines().find_map(|line| {
        let mut fields = line.split(',');
        let value = fields.next()?;
        let name = fields.nth(1)?;
        (bare(name) == bare(event)).then(|| value.parse().ok())?
    })
}

/// perf attached to a server, counting between [`Session::enable`] and [`Session::finish`].
pub(super) struct Session {
    child: Child,
    control: File,
    answer: File,
    out: PathBuf,
}

impl Session {
    /// Attaches to all threads of `running` and those they will start.
    pub(super) fn attach(running: &Running, meters: &[Meter]) -> Result<Self> {
        Self::attach_events(running.dir(), running.pid(), &events(meters))
    }

    fn attach_events(dir: &Path, pid: u32, events: &str) -> Result<Self> {
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
            .args(["stat", "-x,", "--delay=-1", "-e", events, "-p"])
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

    /// Starts counting; returns once perf has done so.
    pub(super) fn enable(&mut self) -> Result<()> {
        self.command("enable")
    }

    /// Stops counting and returns what `perf stat` wrote.
    pub(super) fn finish(mut self) -> Result<String> {
        self.command("disable")?;
        self.child.interrupt();
        if self.child.wait_within(PATIENCE)?.is_none() {
            return Err(Error::bench("perf did not end"));
        }
        std::fs::read_to_string(&self.out).map_err(|e| Error::io("read", &self.out, &e))
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

/// The counts of `meters` in what [`Session::finish`] returned.
pub(super) fn counts(text: &str, meters: &[Meter]) -> Result<Vec<(Meter, f64)>> {
    meters
        .iter()
        .map(|&meter| {
            let value = value_of(text, meter).ok_or_else(|| {
                Error::bench(format!("perf did not count {meter}")).details(text.lines())
            })?;
            Ok((meter, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTED: &str = "# started on Sat\n\n394375123,,instructions:u,100,100.00,,\n\
                           8810000,,L1-icache-load-misses,100,100.00,,\n";

    #[test]
    fn counts_are_read_with_and_without_modifier() {
        let meters = [Meter::Instructions, Meter::L1iMisses];
        assert_eq!(
            counts(COUNTED, &meters).unwrap(),
            [
                (Meter::Instructions, 394_375_123.0),
                (Meter::L1iMisses, 8_810_000.0)
            ]
        );
    }

    #[test]
    fn what_is_not_counted_is_an_error() {
        for text in [
            "<not supported>,,instructions:u,0,100.00,,\n",
            "<not counted>,,instructions:u,0,0,,\n",
            "",
        ] {
            assert!(counts(text, &[Meter::Instructions]).is_err(), "{text}");
        }
    }

    #[test]
    fn asking_the_machine_gives_known_meters_only() {
        let meters = supported().unwrap();
        assert!(
            meters
                .iter()
                .all(|meter| EVENTS.iter().any(|(m, _)| m == meter))
        );
    }
}
