//! Switches callgrind's counting on and off in a running server.
//!
//! `callgrind_control` is a Perl script around `vgdb` that expects the pipes in one shared folder. This module calls
//! `vgdb` itself, with the pipes in the folder of the start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::call_graph::CallGraph;
use crate::server::{Instrumentation, Running};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::process::Command;
use perfquilt_system::threads;

/// Timeout of one command; a dump of a large server takes well under a second.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts at one command: valgrind occasionally misses one while a thread starts or ends.
const ATTEMPTS: u32 = 3;

/// Controls the processes of one server that runs under callgrind.
pub(super) struct Control {
    prefix: PathBuf,
    pids: Vec<u32>,
    out: PathBuf,
}

impl Control {
    /// Returns the control of the processes that the server has now. A process that it starts later inherits whether it
    /// counts.
    pub(super) fn new(running: &Running) -> Result<Self> {
        let Instrumentation::Callgrind { out, .. } = &running.instrumentation else {
            return Err(Error::internal("the server does not run under callgrind"));
        };
        Ok(Control {
            prefix: crate::server::vgdb_prefix(running.dir()),
            pids: running.pids(),
            out: out.clone(),
        })
    }

    /// Switches counting on or off; on removes the profiles of processes that ended before.
    pub(super) fn instrument(&self, running: &mut Running, on: bool) -> Result<()> {
        if on {
            for file in self.files()? {
                remove(&file)?;
            }
        }
        self.send(running, &["instrumentation", if on { "on" } else { "off" }])
    }

    /// Dumps one profile per thread, reads it and removes it; counts restart at zero. Processes that
    /// ended since counting began have left theirs.
    pub(super) fn dump(&self, running: &mut Running) -> Result<Vec<CallGraph>> {
        self.send(running, &["dump"])?;
        let mut profiles = Vec::new();
        for file in self.files()? {
            profiles.push(CallGraph::read(&file)?);
            remove(&file)?;
        }
        Ok(profiles)
    }

    /// Sends a command to all processes that still run.
    fn send(&self, running: &mut Running, words: &[&str]) -> Result<()> {
        let command = words.join(" ");
        // A process answers within a third of a second, most of which vgdb waits.
        let answers = threads::each(&self.pids, |pid| self.send_to(*pid, &command));
        running.check()?;
        for answer in answers {
            if let Some(output) = answer? {
                let label = &running.label;
                return Err(Error::meter_failed(format!(
                    "valgrind did not execute `{command}` in the server of {label}"
                ))
                .details(output)
                .hint("vgdb must be allowed to trace its own processes (ptrace), which some containers forbid"));
            }
        }
        Ok(())
    }

    /// Sends a command to one process; returns the last output of vgdb if the process lives and does not execute it.
    fn send_to(&self, pid: u32, command: &str) -> Result<Option<Vec<String>>> {
        let mut prefix = std::ffi::OsString::from("--vgdb-prefix=");
        prefix.push(&self.prefix);
        let mut prefix_and_pid = vec![prefix, format!("--pid={pid}").into()];
        // vgdb expects each command as one argument.
        prefix_and_pid.extend(["-c".into(), command.into()]);
        let vgdb = Command::new("vgdb")
            .unrestricted()
            .without_env(crate::server::NAMES_OF_PIPES)
            .args(prefix_and_pid);
        let mut last = Vec::new();
        for _ in 0..ATTEMPTS {
            match vgdb.run_within(TIMEOUT) {
                Ok(output) if output.success() => return Ok(None),
                Ok(output) => last = output.tail(5),
                // On a timeout the server may be the reason; it is checked afterwards.
                Err(error) if error.kind() == Kind::Bench => last = vec![error.to_string()],
                Err(error) => return Err(error),
            }
            if !Path::new(&format!("/proc/{pid}")).exists() {
                return Ok(None);
            }
        }
        Ok(Some(last))
    }

    /// Lists the profiles written so far: `OUT.PID.PART-THREAD`, or `OUT.PID-THREAD` of a process that ended.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let folder = self.out.parent().unwrap_or(Path::new("."));
        let Some(name) = self.out.file_name().and_then(|name| name.to_str()) else {
            return Err(Error::internal("the profile's path has no name"));
        };
        let is_profile = |candidate: &str| {
            let numbers = candidate
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('.'))
                .and_then(|rest| rest.split_once('-'));
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            numbers.is_some_and(|(part, thread)| part.split('.').all(digits) && digits(thread))
        };
        let entries = std::fs::read_dir(folder).map_err(|e| Error::io("read", folder, &e))?;
        let mut files: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_profile))
            .map(|entry| entry.path())
            .collect();
        files.sort();
        Ok(files)
    }
}

fn remove(file: &Path) -> Result<()> {
    std::fs::remove_file(file).map_err(|e| Error::io("remove", file, &e))
}
