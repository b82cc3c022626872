//! Runs a build program, passes its lines to the log and to a listener, and stops it cleanly on a signal.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::{
    Child, Command, DeathSignal, Sink, check_interrupted, describe_exit,
};

/// Interval at which a silent program is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time for a program to end its own children after it was asked to stop.
const GRACE: Duration = Duration::from_secs(20);
/// Time for which the remaining output of an ended program is awaited while another process holds its pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Lines kept in memory for the error message, half from the beginning and half from the end; the log has all.
const KEPT_LINES: usize = 20_000;
/// Bytes of these lines.
const KEPT_BYTES: usize = 64 << 20;
/// Bytes of a line; the rest of a longer one counts as further lines.
const MAX_LINE: u64 = 1 << 20;
/// Lines read ahead of the log.
const LINES_AHEAD: usize = 1024;

/// The log of one build.
pub(crate) struct Log {
    file: BufWriter<File>,
    pub(crate) path: PathBuf,
}

impl Log {
    pub(crate) fn create(path: &Path) -> Result<Log> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
        }
        let file = File::create(path).map_err(|e| Error::io("create", path, &e))?;
        Ok(Log {
            file: BufWriter::new(file),
            path: path.to_owned(),
        })
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.file, "{text}").map_err(|e| Error::io("write", &self.path, &e))
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.file
            .flush()
            .map_err(|e| Error::io("write", &self.path, &e))
    }
}

/// A listener's classification of a line.
pub(crate) enum Line {
    /// Progress: logged in this form, not part of the output.
    Status(String),
    /// Output: logged, and kept for the error message.
    Output,
}

/// The first and the last lines of a program's output.
#[derive(Default)]
struct Lines {
    first: Vec<String>,
    first_bytes: usize,
    last: VecDeque<String>,
    last_bytes: usize,
}

impl Lines {
    fn push(&mut self, line: String) {
        let fits =
            self.first.len() < KEPT_LINES / 2 && self.first_bytes + line.len() <= KEPT_BYTES / 2;
        if self.last.is_empty() && fits {
            self.first_bytes += line.len();
            self.first.push(line);
            return;
        }
        self.last_bytes += line.len();
        self.last.push_back(line);
        while self.last.len() > KEPT_LINES / 2 || self.last_bytes > KEPT_BYTES / 2 {
            let dropped = self.last.pop_front().unwrap_or_default();
            self.last_bytes -= dropped.len();
        }
    }

    fn into_vec(mut self) -> Vec<String> {
        self.first.extend(self.last);
        self.first
    }
}

/// A finished run of a program.
pub(crate) struct ProgramRun {
    pub success: bool,
    /// How it ended, in words of [`describe_exit`].
    pub ended: String,
    pub output: Vec<String>,
    pub elapsed: Duration,
}

/// Runs `command` until it ends, for at most `limit` if there is one. A failed command is not an error here: the caller
/// checks [`ProgramRun::success`].
///
/// # Errors
/// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when the time is over, after stopping the command and its children.
pub(crate) fn run_within(
    command: &Command,
    log: &mut Log,
    limit: Option<Duration>,
    listener: &mut dyn FnMut(&str) -> Line,
) -> Result<ProgramRun> {
    let started = Instant::now();
    log.line(&format!("$ {}", command.shown()))?;
    let mut child = command
        .clone()
        .stdout(Sink::Pipe)
        .stderr(Sink::Merged)
        .death_signal(DeathSignal::Terminate)
        .spawn()?;
    let (sender, lines) = mpsc::sync_channel(LINES_AHEAD);
    if let Some(stream) = child.take_stdout() {
        read_lines(stream, sender);
    }
    let mut output = Lines::default();
    // Dropping the child would kill the program before it could end its own children.
    let mut check = || {
        if limit.is_some_and(|limit| started.elapsed() > limit) {
            let seconds = limit.unwrap_or_default().as_secs();
            return Err(Error::program_limit(format!(
                "`{}` did not end within {seconds} s",
                command.shown()
            )));
        }
        check_interrupted()
    };
    let status = match pump(&mut child, &lines, &mut check, &mut |line| {
        match listener(&line) {
            Line::Status(text) => log.line(&text)?,
            Line::Output => {
                log.line(&line)?;
                output.push(line);
            }
        }
        Ok(())
    }) {
        Ok(status) => status,
        Err(error) => {
            child.stop(GRACE)?;
            // The original error matters more than a failure to write the log.
            let _ = log.line(error.message()).and_then(|()| log.flush());
            return Err(error);
        }
    };
    log.flush()?;
    Ok(ProgramRun {
        success: status.success(),
        ended: describe_exit(status),
        output: output.into_vec(),
        elapsed: started.elapsed(),
    })
}

/// Passes the lines of a program to `take` until it ends, or `check` returns an error.
fn pump(
    child: &mut Child,
    lines: &Receiver<String>,
    check: &mut dyn FnMut() -> Result<()>,
    take: &mut dyn FnMut(String) -> Result<()>,
) -> Result<ExitStatus> {
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut polled = Instant::now();
    loop {
        match lines.recv_timeout(POLL_INTERVAL) {
            Ok(line) => take(line)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if polled.elapsed() >= POLL_INTERVAL {
            polled = Instant::now();
            // A process it left running may hold the pipe open, or write to it for ever, and is not waited for. On a
            // busy machine the program's own last lines may arrive late.
            match ended {
                None => ended = child.try_wait()?.map(|status| (status, Instant::now())),
                Some((status, at)) if at.elapsed() >= DRAIN_TIMEOUT => return Ok(status),
                Some(_) => {}
            }
        }
        check()?;
    }
    loop {
        if let Some(status) = child.wait_within(GRACE)? {
            return Ok(status);
        }
    }
}

fn read_lines(stream: impl Read + Send + 'static, sender: SyncSender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while reader
            .by_ref()
            .take(MAX_LINE)
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
    fn memory_does_not_grow_with_the_length_of_lines() {
        let mut lines = Lines::default();
        let long = "x".repeat(KEPT_BYTES / 16);
        for _ in 0..40 {
            lines.push(long.clone());
        }
        lines.push("last".to_owned());
        let kept = lines.into_vec();
        assert!(kept.iter().map(String::len).sum::<usize>() <= KEPT_BYTES);
        assert_eq!(kept.last().map(String::as_str), Some("last"));
    }

    #[test]
    fn a_background_program_that_never_stops_writing_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::create(&folder.path().join("log")).unwrap();
        let script = "setsid sh -c 'touch on; while test -e on; do echo x; sleep 0.01; done' & \
                      until test -e on; do sleep 0.01; done";
        let command = Command::new("sh")
            .args(["-c", script])
            .directory(folder.path());
        let ran = run_within(&command, &mut log, None, &mut |_| Line::Output).unwrap();
        assert!(ran.success && ran.elapsed >= DRAIN_TIMEOUT);
        std::fs::remove_file(folder.path().join("on")).unwrap();
    }

    #[test]
    fn an_endless_line_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::create(&folder.path().join("log")).unwrap();
        let command = Command::new("head").args(["-c", "2500000", "/dev/zero"]);
        let ran = run_within(&command, &mut log, None, &mut |_| Line::Output).unwrap();
        let lengths: Vec<u64> = ran.output.iter().map(|line| line.len() as u64).collect();
        assert_eq!(lengths, [MAX_LINE, MAX_LINE, 2_500_000 - 2 * MAX_LINE]);
    }

    #[test]
    fn late_output_is_awaited_and_background_programs_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::create(&folder.path().join("log")).unwrap();
        // Processes in the program's group end with it, so the sleeper needs a session of its own.
        let script = "setsid sh -c 'touch on; exec sleep 20' & \
                      until test -e on; do sleep 0.01; done; echo last >&2; exit 3";
        let command = Command::new("sh")
            .args(["-c", script])
            .directory(folder.path());
        let ran = run_within(&command, &mut log, None, &mut |_| Line::Output).unwrap();
        assert_eq!(ran.output, ["last"]);
        assert_eq!(ran.ended, "exited with 3");
        assert!(ran.elapsed >= DRAIN_TIMEOUT && ran.elapsed < Duration::from_secs(15));
    }
}
