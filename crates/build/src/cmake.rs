//! Builds with CMake and ninja.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::attempt::BuildAttempt;
use super::heads;
use super::ninja::{Ninja, NinjaRun};
use super::opened::{observed, opened};
use super::profile_warnings::ProfileWarnings;
use super::run::{Line, Log, ProgramRun, run_within};
use super::toolchain::Toolchain;
use super::work::{Work, remove, write_atomically};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Step;
use perfquilt_system::files::if_there;
use perfquilt_system::process::Command;

/// File in a build tree that records the settings it was configured with; without it, CMake runs again.
pub(super) const CONFIGURED: &str = ".perfquilt-configured";

/// Name of the script in the working folder that starts compilers.
const LAUNCH: &str = "launch.sh";

/// Removes an old precompiled header before compiling it again. CMake compiles it with
/// `-include cmake_pch.hxx -x c++-header`, which ccache mistakes for a use of the old header next to it: the
/// key of the new header would depend on the previous build, and going back to an earlier point would
/// recompile everything.
const LAUNCH_SCRIPT: &str = r#"case " $* " in
*" -x c++-header "* | *" -x c-header "*)
    previous=
    for word; do
        [ "$previous" != -o ] || rm -f -- "$word"
        previous=$word
    done ;;
esac
exec "$@"
"#;

/// A CMake build of one recipe, with placeholders expanded.
#[derive(Debug, Clone)]
pub(super) struct Cmake {
    pub args: Vec<String>,
    /// Content of the file every `project()` includes.
    pub include: Option<String>,
    pub targets: Vec<String>,
    pub env: Vec<(String, String)>,
    pub jobs: usize,
}

impl Cmake {
    /// Adds the options and environment that `tools` require, for a build in the working folder `work`.
    pub(super) fn with_tools(mut self, work: &Path, tools: &Toolchain) -> Self {
        let src = work.join("src");
        let build = work.join("build");
        if let Some(flag) = &tools.linker_flag {
            for kind in ["EXE", "SHARED", "MODULE"] {
                add_to_variable(&mut self.args, &format!("CMAKE_{kind}_LINKER_FLAGS"), flag);
            }
        }
        if let Some(ccache) = &tools.ccache {
            let launch = work.join(LAUNCH);
            for language in ["C", "CXX"] {
                let variable = format!("CMAKE_{language}_COMPILER_LAUNCHER");
                if variable_of(&self.args, &variable).is_none() {
                    let list = format!("sh;{};{}", launch.display(), ccache.display());
                    self.args.push(format!("-D{variable}={list}"));
                }
            }
        }
        if self.include.is_some() {
            let include = include_file(work);
            self.args
                .push(format!("-DCMAKE_PROJECT_INCLUDE={}", include.display()));
        }
        // Keep this machine's paths out of the objects: the same sources must give the same server on
        // every machine, and with or without ccache, which makes paths relative. CMake takes its
        // initial flags from these variables; a recipe that sets CMAKE_C_FLAGS or CMAKE_CXX_FLAGS
        // itself opts out. Compilers apply the last map that matches.
        let (src, build) = (src.display(), build.display());
        let map = [
            format!("{build}=."),
            format!("{build}/="),
            "../src/=".into(),
            format!("{src}/="),
        ]
        .map(|map| format!("-ffile-prefix-map={map}"))
        .join(" ");
        for variable in ["CFLAGS", "CXXFLAGS"] {
            match self.env.iter_mut().find(|(name, _)| name == variable) {
                Some((_, flags)) => *flags = format!("{flags} {map}"),
                None => self.env.push((variable.to_owned(), map.clone())),
            }
        }
        self
    }

    /// Configures the build tree if necessary, then builds.
    pub(super) fn build(
        &self,
        work: &Work,
        log: &mut Log,
        step: &dyn Step,
    ) -> Result<BuildAttempt> {
        let mut attempt = BuildAttempt::default();
        let src = work.src();
        let (ran, configuring) = observed(&src, || self.configure(work, log, step));
        let ran = ran?;
        let configured = ran.is_some();
        if let Some(ran) = ran {
            attempt.seconds.configure = ran.elapsed.as_secs_f64();
            if !ran.success {
                attempt.failed = Some(ran);
                attempt.opened = opened(configuring, Some(BTreeSet::new()));
                return Ok(attempt);
            }
        }
        let watched = heads::update(&work.build(), configured)?;
        // The recipe's own CMake file reads what is compiled, and what is not.
        let is_read = |path: &String| !watched.contains(&src.join(path));
        let configuring = configuring.map(|opened| opened.into_iter().filter(is_read).collect());
        let ninja = Ninja {
            work,
            targets: &self.targets,
            jobs: self.jobs,
            env: &self.env,
        };
        let (ran, building) = observed(&src, || ninja.run(log, step));
        let NinjaRun { program, times } = ran?;
        attempt.opened = opened(configuring, building);
        let wall = program.elapsed.as_secs_f64();
        // The log's times are rounded to milliseconds and may add up to more than the wall-clock time.
        let configure = times.configure.min(wall);
        let link = times.link.min(wall - configure);
        attempt.seconds.configure += configure;
        attempt.seconds.link = link;
        attempt.seconds.compile = wall - configure - link;
        attempt.units = times.units;
        attempt.profile_warnings = ProfileWarnings::count(&program.output);
        if !program.success {
            attempt.failed = Some(program);
        }
        Ok(attempt)
    }

    /// Runs CMake unless the build tree is already configured with these settings.
    fn configure(&self, work: &Work, log: &mut Log, step: &dyn Step) -> Result<Option<ProgramRun>> {
        let build = work.build();
        let marker = build.join(CONFIGURED);
        let wanted = self.settings();
        let configured = std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted);
        if configured && build.join("build.ninja").exists() {
            return Ok(None);
        }
        remove_configuration(&build)?;
        std::fs::create_dir_all(&build).map_err(|e| Error::io("create", &build, &e))?;
        if let Some(text) = &self.include {
            write_atomically(&include_file(&work.dir), text)?;
        }
        write_atomically(&work.dir.join(LAUNCH), LAUNCH_SCRIPT)?;
        step.update(0, None, "configuring");
        let command = Command::new("cmake")
            .arg("-S")
            .arg(work.src())
            .arg("-B")
            .arg(&build)
            .args(["-G", "Ninja"])
            .args(&self.args)
            .directory(&work.dir);
        let command = work.command(command, &self.env);
        let ran = run_within(&command, log, None, &mut |line| {
            if let Some(rest) = line.strip_prefix("-- ") {
                step.update(0, None, &format!("configuring: {rest}"));
            }
            Line::Output
        })?;
        if ran.success {
            write_atomically(&marker, &wanted)?;
        }
        Ok(Some(ran))
    }

    /// Returns everything the configuration depends on, as text.
    fn settings(&self) -> String {
        let mut text = self.args.join("\n");
        for (name, value) in &self.env {
            // ccache's folders do not affect the configuration.
            if !name.starts_with("CCACHE_") {
                text.push_str(&format!("\nenv {name}={value}"));
            }
        }
        if let Some(include) = &self.include {
            text.push_str("\ninclude\n");
            text.push_str(include);
        }
        text
    }
}

/// Removes CMake's cached settings and checks, which would otherwise survive in its cache. The compiled objects,
/// in folders called `TARGET.dir`, stay: ninja's log shows whether their commands have changed.
fn remove_configuration(build: &Path) -> Result<()> {
    for stale in [CONFIGURED, "CMakeCache.txt"] {
        remove(&build.join(stale))?;
    }
    let folder = build.join("CMakeFiles");
    let entries = if_there("read", &folder, std::fs::read_dir(&folder))?;
    for entry in entries.into_iter().flatten() {
        let path = entry.map_err(|e| Error::io("read", &folder, &e))?.path();
        if path.extension().is_none_or(|extension| extension != "dir") {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Returns the path of the include file in the working folder `work`. The path is part of the configuration, and
/// two workspaces with the same recipe share one working folder.
fn include_file(work: &Path) -> PathBuf {
    work.join("include.cmake")
}

/// Returns the value of the last `-DNAME=VALUE` or `-DNAME:TYPE=VALUE` in `args`.
fn variable_of<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    args.iter().rev().find_map(|arg| {
        let (found, value) = arg.strip_prefix("-D")?.split_once('=')?;
        (found.split(':').next() == Some(name)).then_some(value)
    })
}

/// Adds `flag` to the value of the variable `name` in `args`.
fn add_to_variable(args: &mut Vec<String>, name: &str, flag: &str) {
    let value = match variable_of(args, name) {
        // The recipe chooses its linker itself.
        Some(value) if value.contains("-fuse-ld=") => return,
        Some(value) => format!("{value} {flag}"),
        None => flag.to_owned(),
    };
    args.push(format!("-D{name}={value}"));
}

/// Returns ccache's environment: its own folder below the cache, or below the machine's own folder `scratch` with a
/// storage below the cache that all machines share, unless the user chose others; and a sloppiness
/// that avoids misses caused by precompiled headers and by source files whose times changed. It is safe because
/// nothing else writes to the sources while a compiler runs.
///
/// ccache treats paths below the working folder `work` as relative, so that objects compiled in one working
/// folder are hits in another.
pub(super) fn ccache_env(
    cache: &Path,
    scratch: Option<&Path>,
    work: &Path,
    user: &dyn Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let sloppiness = "pch_defines,time_macros,include_file_mtime,include_file_ctime";
    let mut env = vec![
        ("CCACHE_SLOPPINESS".to_owned(), sloppiness.to_owned()),
        ("CCACHE_BASEDIR".to_owned(), work.display().to_string()),
    ];
    if !user("CCACHE_DIR") {
        let dir = scratch
            .unwrap_or(cache)
            .join("ccache")
            .display()
            .to_string();
        env.push(("CCACHE_DIR".to_owned(), dir));
        if scratch.is_some() && !user("CCACHE_REMOTE_STORAGE") {
            // Locks of ccache's own folder do not reach other machines; the form for remote storage needs none.
            let shared = format!("file:{}", cache.join("ccache-shared").display());
            env.push(("CCACHE_REMOTE_STORAGE".to_owned(), shared));
        }
        if !user("CCACHE_MAXSIZE") {
            env.push(("CCACHE_MAXSIZE".to_owned(), "10G".to_owned()));
        }
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_joins_the_recipes_flags() {
        let mut args = vec!["-DCMAKE_EXE_LINKER_FLAGS:STRING=-rdynamic".to_owned()];
        add_to_variable(&mut args, "CMAKE_EXE_LINKER_FLAGS", "-fuse-ld=mold");
        let value = variable_of(&args, "CMAKE_EXE_LINKER_FLAGS");
        assert_eq!(value, Some("-rdynamic -fuse-ld=mold"));
        let before = args.clone();
        add_to_variable(&mut args, "CMAKE_EXE_LINKER_FLAGS", "-fuse-ld=lld");
        assert_eq!(args, before, "the recipe has chosen");
    }

    #[test]
    fn the_users_ccache_is_respected() {
        let ours = ccache_env(Path::new("/c"), None, Path::new("/c/work/x"), &|_| false);
        assert!(ours.contains(&("CCACHE_DIR".into(), "/c/ccache".into())));
        let apart = ccache_env(
            Path::new("/c"),
            Some(Path::new("/s")),
            Path::new("/s/work/x"),
            &|_| false,
        );
        assert!(apart.contains(&("CCACHE_DIR".into(), "/s/ccache".into())));
        let shared = (
            "CCACHE_REMOTE_STORAGE".into(),
            "file:/c/ccache-shared".into(),
        );
        assert!(apart.contains(&shared) && !ours.contains(&shared));
        let theirs = ccache_env(Path::new("/c"), None, Path::new("/c/work/x"), &|name| {
            name == "CCACHE_DIR"
        });
        assert!(
            !theirs
                .iter()
                .any(|(name, _)| name == "CCACHE_DIR" || name == "CCACHE_MAXSIZE")
        );
    }
}
