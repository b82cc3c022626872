//! Switches callgrind's counting on and off in a running server.
//!
//! `callgrind_control` is a Perl script around `vgdb` that expects the pipes in one shared folder. This module calls
//! `vgdb` itself, with the pipes in the folder of the start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::server::{Instrumentation, Running};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::process::Command;

/// Timeout of one command; a dump of a large server takes well under a second.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts at one command: valgrind occasionally misses one while a thread starts or ends.
const ATTEMPTS: u32 = 3;

/// Controls one server that runs under callgrind.
pub(super) struct Control {
    prefix: PathBuf,
    pid: u32,
    out: PathBuf,
}

impl Control {
    pub(super) fn new(running: &Running) -> Result<Self> {
        let Instrumentation::Callgrind { out, .. } = running.instrumentation() else {
            return Err(Error::internal("the server does not run under callgrind"));
        };
        Ok(Control {
            prefix: crate::server::vgdb_prefix(running.dir()),
            pid: running.pid(),
            out: out.clone(),
        })
    }

    /// Switches counting on or off.
    pub(super) fn instrument(&self, running: &mut Running, on: bool) -> Result<()> {
        self.send(running, &["instrumentation", if on { "on" } else { "off" }])
    }

    /// Dumps one profile per thread, parses each with `read` and removes it; counts restart at zero.
    pub(super) fn dump<P>(
        &self,
        running: &mut Running,
        read: impl Fn(&Path) -> Result<P>,
    ) -> Result<Vec<P>> {
        for file in self.files()? {
            remove(&file)?;
        }
        self.send(running, &["dump"])?;
        let mut profiles = Vec::new();
        for file in self.files()? {
            profiles.push(read(&file)?);
            remove(&file)?;
        }
        Ok(profiles)
    }

    fn send(&self, running: &mut Running, words: &[&str]) -> Result<()> {
        let mut prefix = std::ffi::OsString::from("--vgdb-prefix=");
        prefix.push(&self.prefix);
        let mut prefix_and_pid = vec![prefix, format!("--pid={}", self.pid).into()];
        // vgdb expects each command as one argument.
        prefix_and_pid.extend(["-c".into(), words.join(" ").into()]);
        let command = Command::new("vgdb").args(prefix_and_pid);
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match command.run_within(TIMEOUT) {
                Ok(output) if output.success() => return Ok(()),
                Ok(output) => last = Some(output.tail(5)),
                // On a timeout the server may be the reason; it is checked below.
                Err(error) if error.kind() == Kind::Bench => last = Some(vec![error.to_string()]),
                Err(error) => return Err(error),
            }
            running.check()?;
        }
        Err(Error::bench(format!(
            "valgrind did not execute `{}` in the server of {}",
            words.join(" "),
            running.label()
        ))
        .details(last.unwrap_or_default())
        .hint("vgdb must be allowed to trace its own processes (ptrace), which some containers forbid"))
    }

    /// Lists the profiles written so far: `OUT.PART-THREAD`.
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
            numbers.is_some_and(|(part, thread)| digits(part) && digits(thread))
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
