//! Runs a build program: its lines go to the log and to a listener, and a signal stops it cleanly.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::{
    Child, Command, DeathSignal, Sink, check_interrupted, how_it_ended,
};

/// How often a silent program is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long a program may take to end its own children once it was asked to.
const GRACE: Duration = Duration::from_secs(20);
/// How long lines of a program that has ended may still come while something holds its output open.
const LAST_LINES: Duration = Duration::from_secs(2);
/// Lines kept in memory for the error message, as many of the beginning as of the end; the log has them all.
const KEPT_LINES: usize = 20_000;

/// The log of one build.
pub(super) struct Log {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Log {
    pub(super) fn create(path: &Path) -> Result<Log> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
        }
        let file = File::create(path).map_err(|e| Error::io("create", path, &e))?;
        Ok(Log {
            file: BufWriter::new(file),
            path: path.to_owned(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.file, "{text}").map_err(|e| Error::io("write", &self.path, &e))
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.file
            .flush()
            .map_err(|e| Error::io("write", &self.path, &e))
    }
}

/// What a listener makes of a line.
pub(super) enum Line {
    /// Progress: logged in this form, not part of the output.
    Status(String),
    /// Output: logged, and kept for the error message.
    Output,
}

/// The beginning and the end of what a program writes.
#[derive(Default)]
struct Lines {
    first: Vec<String>,
    last: VecDeque<String>,
}

impl Lines {
    fn push(&mut self, line: String) {
        if self.first.len() < KEPT_LINES / 2 {
            self.first.push(line);
            return;
        }
        if self.last.len() == KEPT_LINES / 2 {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    fn into_vec(mut self) -> Vec<String> {
        self.first.extend(self.last);
        self.first
    }
}

/// What a program left.
pub(super) struct Ran {
    pub success: bool,
    /// As [`how_it_ended`] says it.
    pub ended: String,
    pub output: Vec<String>,
    pub elapsed: Duration,
}

/// Runs `command` to its end.
///
/// # Errors
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) once it and its children were stopped;
/// failures to start it or to write the log. How it ended is the caller's to judge.
pub(super) fn run(
    command: &Command,
    log: &mut Log,
    listener: &mut dyn FnMut(&str) -> Line,
) -> Result<Ran> {
    let started = Instant::now();
    log.line(&format!("$ {}", command.shown()))?;
    let mut child = command
        .clone()
        .stdout(Sink::Pipe)
        .stderr(Sink::Merged)
        .death_signal(DeathSignal::Terminate)
        .spawn()?;
    let (sender, lines) = mpsc::channel();
    if let Some(stream) = child.take_stdout() {
        read_lines(stream, sender);
    }
    let mut output = Lines::default();
    // Dropped instead of stopped, the program would die before it could end its own children.
    let status = match pump(&mut child, &lines, log, listener, &mut output) {
        Ok(status) => status,
        Err(error) => {
            child.stop(GRACE)?;
            // What it was doing matters more than a log that cannot be written any more.
            let _ = log.line(error.message()).and_then(|()| log.flush());
            return Err(error);
        }
    };
    log.flush()?;
    Ok(Ran {
        success: status.success(),
        ended: how_it_ended(status),
        output: output.into_vec(),
        elapsed: started.elapsed(),
    })
}

fn pump(
    child: &mut Child,
    lines: &Receiver<String>,
    log: &mut Log,
    listener: &mut dyn FnMut(&str) -> Line,
    output: &mut Lines,
) -> Result<ExitStatus> {
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match lines.recv_timeout(POLL) {
            Ok(line) => match listener(&line) {
                Line::Status(text) => log.line(&text)?,
                Line::Output => {
                    log.line(&line)?;
                    output.push(line);
                }
            },
            Err(RecvTimeoutError::Timeout) => {
                // Something it left running may hold the pipes open; that does not count. On a busy
                // machine its own last lines may be on their way for a while.
                match ended {
                    None => ended = child.try_wait()?.map(|status| (status, Instant::now())),
                    Some((status, at)) if at.elapsed() >= LAST_LINES => return Ok(status),
                    Some(_) => {}
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        check_interrupted()?;
    }
    loop {
        if let Some(status) = child.wait_within(GRACE)? {
            return Ok(status);
        }
    }
}

fn read_lines(stream: impl Read + Send + 'static, sender: Sender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while reader
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|read| read > 0)
        {
            let line = String::from_utf8_lossy(&bytes);
            if sender
                .send(line.trim_end_matches(['\n', '\r']).to_owned())
                .is_err()
            {
                return;
            }
            bytes.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let mut lines = Lines::default();
        for number in 0..3 * KEPT_LINES {
            lines.push(number.to_string());
        }
        let kept = lines.into_vec();
        assert_eq!(kept.len(), KEPT_LINES);
        assert_eq!(kept[0], "0");
        assert_eq!(kept[KEPT_LINES - 1], (3 * KEPT_LINES - 1).to_string());
    }

    #[test]
    fn last_lines_are_waited_for_and_programs_left_running_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::create(&folder.path().join("log")).unwrap();
        // What stays in the program's group ends with it.
        let script = "setsid sh -c 'touch on; exec sleep 20' & \
                      until test -e on; do sleep 0.01; done; echo last >&2; exit 3";
        let command = Command::new("sh")
            .args(["-c", script])
            .directory(folder.path());
        let ran = run(&command, &mut log, &mut |_| Line::Output).unwrap();
        assert_eq!(ran.output, ["last"]);
        assert_eq!(ran.ended, "exited with 3");
        assert!(ran.elapsed >= LAST_LINES && ran.elapsed < Duration::from_secs(15));
    }
}
