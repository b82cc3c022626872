//! Builds with commands of the configuration, in the source tree.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::attempt::BuildAttempt;
use super::files::walk;
use super::ninja_log::is_unit;
use super::opened::{observed, opened};
use super::profile_warnings::ProfileWarnings;
use super::run::{Line, Log, ProgramRun, run_within};
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
        let configure = self.configure.iter().map(|words| (words, false));
        let build = self.build.iter().map(|words| (words, true));
        let (done, building) = observed(&work.src(), || -> Result<()> {
            for (words, is_build) in configure.chain(build) {
                let ran = self.run(words, work, log, step)?;
                let seconds = if is_build {
                    &mut attempt.seconds.compile
                } else {
                    &mut attempt.seconds.configure
                };
                *seconds += ran.elapsed.as_secs_f64();
                attempt.profile_warnings += ProfileWarnings::count(&ran.output);
                if !ran.success {
                    attempt.failed = Some(ran);
                    break;
                }
            }
            Ok(())
        });
        done?;
        attempt.opened = opened(Some(BTreeSet::new()), building);
        let files = walk(&work.src());
        let is_object = |path: &Path| is_unit(&path.to_string_lossy());
        attempt.units = files.iter().filter(|(path, _)| is_object(path)).count() as u64;
        Ok(attempt)
    }

    fn run(
        &self,
        words: &[String],
        work: &Work,
        log: &mut Log,
        step: &dyn Step,
    ) -> Result<ProgramRun> {
        let command = Command::from_words(words)?.directory(&work.src());
        let command = work.command(command, &self.env);
        let ran = run_within(&command, log, None, &mut |line| {
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
