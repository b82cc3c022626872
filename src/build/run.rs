//! Runs a build program: its lines go to the log and to a listener, and a signal stops it cleanly.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::process::{Child, Command, DeathSignal, Sink, check_interrupted};

/// How often a silent program is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long a program may take to end its own children once it was asked to.
const GRACE: Duration = Duration::from_secs(20);
/// How long lines of a program that has ended may still come while something holds its output open.
const LAST_LINES: Duration = Duration::from_secs(2);
/// Lines kept in memory for the error message; the log has them all.
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

/// What a program left.
pub(super) struct Ran {
    pub success: bool,
    /// `exited with 1`, `was ended by signal 9`.
    pub ended: String,
    pub output: Vec<String>,
    pub elapsed: Duration,
}

/// Runs `command` to its end.
///
/// # Errors
/// [`Kind::Interrupted`](crate::error::Kind::Interrupted) once it and its children were stopped;
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
    let mut output = Vec::new();
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
        output,
        elapsed: started.elapsed(),
    })
}

fn pump(
    child: &mut Child,
    lines: &Receiver<String>,
    log: &mut Log,
    listener: &mut dyn FnMut(&str) -> Line,
    output: &mut Vec<String>,
) -> Result<ExitStatus> {
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match lines.recv_timeout(POLL) {
            Ok(line) => match listener(&line) {
                Line::Status(text) => log.line(&text)?,
                Line::Output => {
                    log.line(&line)?;
                    if output.len() < KEPT_LINES {
                        output.push(line);
                    }
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

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
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
    fn last_lines_are_waited_for_and_programs_left_running_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::create(&folder.path().join("log")).unwrap();
        let command = Command::new("sh").args(["-c", "sleep 20 & echo last >&2; exit 3"]);
        let ran = run(&command, &mut log, &mut |_| Line::Output).unwrap();
        assert_eq!(ran.output, ["last"]);
        assert_eq!(ran.ended, "exited with 3");
        assert!(ran.elapsed >= LAST_LINES && ran.elapsed < Duration::from_secs(15));
    }
}
