//! Builds with commands of the configuration, in the source tree.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::attempt::BuildAttempt;
use super::ninja_log::is_unit;
use super::profile_warnings::ProfileWarnings;
use super::run::{self, Line, Log, ProgramRun};
use super::work::{Work, remove, write_atomically};
use perfquilt_model::error::{Kind, Result};
use perfquilt_model::progress::Step;
use perfquilt_system::process::Command;

/// A build by commands, with placeholders expanded.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    pub configure: Vec<Vec<String>>,
    pub build: Vec<Vec<String>>,
    pub env: Vec<(String, String)>,
}

impl Commands {
    /// Runs the `configure` commands unless they succeeded in this folder before, then the `build` commands.
    pub(super) fn build(
        &self,
        work: &Work,
        log: &mut Log,
        step: &dyn Step,
    ) -> Result<BuildAttempt> {
        let mut attempt = BuildAttempt::default();
        let marker = work.dir().join("configured");
        let wanted = format!("{:?}\n{:?}\n", self.configure, self.env);
        if !std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
            remove(&marker)?;
            for words in &self.configure {
                let ran = self.run(words, work, log, step)?;
                attempt.configure += ran.elapsed.as_secs_f64();
                if !ran.success {
                    attempt.failed = Some(ran);
                    return Ok(attempt);
                }
            }
            write_atomically(&marker, &wanted)?;
        }
        let started = SystemTime::now();
        for words in &self.build {
            let ran = self.run(words, work, log, step)?;
            attempt.compile += ran.elapsed.as_secs_f64();
            attempt.profile_warnings += ProfileWarnings::count(&ran.output);
            if !ran.success {
                attempt.failed = Some(ran);
                break;
            }
        }
        attempt.units = newer_units(&work.src(), started);
        Ok(attempt)
    }

    fn run(
        &self,
        words: &[String],
        work: &Work,
        log: &mut Log,
        step: &dyn Step,
    ) -> Result<ProgramRun> {
        let mut command = Command::from_words(words)?
            .directory(&work.src())
            .holding(work.lock_file());
        for (name, value) in &self.env {
            command = command.env(name, value);
        }
        let ran = run::run(&command, log, &mut |line| {
            step.update(0, None, line.trim());
            Line::Output
        });
        match ran {
            // A missing program of the source tree is a fault of the patch, not of the configuration.
            Err(error) if error.kind() == Kind::Usage && words[0].contains('/') => {
                log.line(error.message())?;
                log.flush()?;
                Ok(ProgramRun {
                    success: false,
                    ended: "was not started".to_owned(),
                    output: vec![error.message().to_owned()],
                    elapsed: Duration::ZERO,
                })
            }
            ran => ran,
        }
    }
}

/// Counts the object files below `dir` written since `started`; unreadable files and folders do not count.
fn newer_units(dir: &Path, started: SystemTime) -> u64 {
    let mut units = 0;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                folders.push(entry.path());
            } else if is_unit(&entry.file_name().to_string_lossy())
                && meta.modified().is_ok_and(|time| time >= started)
            {
                units += 1;
            }
        }
    }
    units
}
