//! Builds by commands of the configuration, in the source tree.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::cmake::Made;
use super::ninja_log::is_unit;
use super::profile::misfits;
use super::run::{self, Line, Log, Ran};
use super::work::{Work, remove, write_whole};
use perfquilt_model::error::{Kind, Result};
use perfquilt_model::progress::Step;
use perfquilt_system::process::Command;

/// A build by commands, placeholders filled in.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    pub configure: Vec<Vec<String>>,
    pub build: Vec<Vec<String>>,
    pub env: Vec<(String, String)>,
}

impl Commands {
    /// Runs the `configure` commands unless they succeeded here before, then the `build` commands.
    pub(super) fn make(&self, work: &Work, log: &mut Log, step: &dyn Step) -> Result<Made> {
        let mut made = Made {
            failed: None,
            configure: 0.0,
            compile: 0.0,
            link: 0.0,
            units: 0,
            misfits: (0, 0),
        };
        let marker = work.dir().join("configured");
        let wanted = format!("{:?}\n{:?}\n", self.configure, self.env);
        if !std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
            remove(&marker)?;
            for words in &self.configure {
                let ran = self.run(words, work, log, step)?;
                made.configure += ran.elapsed.as_secs_f64();
                if !ran.success {
                    made.failed = Some(ran);
                    return Ok(made);
                }
            }
            write_whole(&marker, &wanted)?;
        }
        let started = SystemTime::now();
        for words in &self.build {
            let ran = self.run(words, work, log, step)?;
            made.compile += ran.elapsed.as_secs_f64();
            let (changed, without) = misfits(&ran.output);
            made.misfits.0 += changed;
            made.misfits.1 += without;
            if !ran.success {
                made.failed = Some(ran);
                break;
            }
        }
        made.units = newer_units(&work.src(), started);
        Ok(made)
    }

    fn run(&self, words: &[String], work: &Work, log: &mut Log, step: &dyn Step) -> Result<Ran> {
        let mut command = Command::from_words(words)?
            .directory(&work.src())
            .holding(work.held());
        for (name, value) in &self.env {
            command = command.env(name, value);
        }
        let ran = run::run(&command, log, &mut |line| {
            step.update(0, None, line.trim());
            Line::Output
        });
        match ran {
            // A program of the source tree is the patch's doing, not the configuration's.
            Err(error) if error.kind() == Kind::Usage && words[0].contains('/') => {
                log.line(error.message())?;
                log.flush()?;
                Ok(Ran {
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

/// Object files below `dir` made since `started`. What cannot be read does not count.
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
