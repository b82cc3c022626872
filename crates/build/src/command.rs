//! Builds with commands of the configuration, in the source tree.

use std::path::Path;
use std::time::Duration;

use super::attempt::BuildAttempt;
use super::ninja_log::is_unit;
use super::profile_warnings::ProfileWarnings;
use super::run::{self, Line, Log, ProgramRun};
use super::work::{Work, remove};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Step;
use perfquilt_system::process::{Command, find_program};

/// A build by commands, with placeholders expanded.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    pub configure: Vec<Vec<String>>,
    pub build: Vec<Vec<String>>,
    pub env: Vec<(String, String)>,
}

impl Commands {
    /// Runs the `configure` commands, then the `build` commands.
    pub(super) fn build(
        &self,
        work: &Work,
        log: &mut Log,
        step: &dyn Step,
    ) -> Result<BuildAttempt> {
        let mut attempt = BuildAttempt::default();
        for words in &self.configure {
            let ran = self.run(words, work, log, step)?;
            attempt.configure += ran.elapsed.as_secs_f64();
            if !ran.success {
                attempt.failed = Some(ran);
                return Ok(attempt);
            }
        }
        for words in &self.build {
            let ran = self.run(words, work, log, step)?;
            attempt.compile += ran.elapsed.as_secs_f64();
            attempt.profile_warnings += ProfileWarnings::count(&ran.output);
            if !ran.success {
                attempt.failed = Some(ran);
                break;
            }
        }
        attempt.units = units(&work.src());
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

/// Compilers that build commands call by name.
const COMPILERS: [&str; 6] = ["cc", "gcc", "clang", "c++", "g++", "clang++"];

/// Makes the build commands call compilers through `ccache`: links of the compilers' names to it, in a folder of `work`,
/// come first on the `PATH` of `env`. Make and configure scripts have no common setting for this.
pub(super) fn with_ccache(
    mut env: Vec<(String, String)>,
    work: &Path,
    ccache: &Path,
) -> Result<Vec<(String, String)>> {
    let folder = work.join("compilers");
    std::fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, &e))?;
    for name in COMPILERS
        .into_iter()
        .filter(|name| find_program(name).is_some())
    {
        let link = folder.join(name);
        if !std::fs::read_link(&link).is_ok_and(|target| target == ccache) {
            remove(&link)?;
            std::os::unix::fs::symlink(ccache, &link).map_err(|e| Error::io("link", &link, &e))?;
        }
    }
    let folder = folder.display();
    match env.iter_mut().find(|(name, _)| name == "PATH") {
        Some((_, path)) => *path = format!("{folder}:{path}"),
        None => {
            let path = std::env::var("PATH").unwrap_or_default();
            env.push(("PATH".to_owned(), format!("{folder}:{path}")));
        }
    }
    Ok(env)
}

/// Counts the object files below `dir`; unreadable files and folders do not count.
fn units(dir: &Path) -> u64 {
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
            } else if is_unit(&entry.file_name().to_string_lossy()) {
                units += 1;
            }
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_called_through_ccache_first() {
        let work = tempfile::tempdir().unwrap();
        let given = vec![("PATH".to_owned(), "/own".to_owned())];
        for ccache in ["/opt/old/ccache", "/usr/bin/ccache"] {
            let env = with_ccache(given.clone(), work.path(), Path::new(ccache)).unwrap();
            let folder = work.path().join("compilers");
            assert_eq!(
                env,
                [("PATH".to_owned(), format!("{}:/own", folder.display()))]
            );
            assert_eq!(
                std::fs::read_link(folder.join("cc")).unwrap(),
                Path::new(ccache)
            );
        }
        let env = with_ccache(Vec::new(), work.path(), Path::new("/usr/bin/ccache")).unwrap();
        assert!(env[0].1.ends_with(&std::env::var("PATH").unwrap()));
    }
}
