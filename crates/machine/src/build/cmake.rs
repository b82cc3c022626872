//! CMake and ninja.

use std::path::{Path, PathBuf};

use super::heads;
use super::ninja::Ninja;
use super::profile;
use super::run::{self, Line, Log, Ran};
use super::toolchain::Toolchain;
use super::work::{Work, remove, write_whole};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Step;
use perfquilt_system::process::Command;

/// Says in the build tree with which settings it was configured.
const CONFIGURED: &str = ".perfquilt-configured";

/// The script that starts compilers, in the working folder.
const LAUNCH: &str = "launch.sh";

/// Removes an old precompiled header before it is made again. CMake makes it with
/// `-include cmake_pch.hxx -x c++-header`, which ccache takes for a use of the old one beside it: the
/// key of the new one would depend on what was built before, and going back to an earlier point would
/// compile everything again.
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

/// A CMake build of one recipe, placeholders filled in.
#[derive(Debug, Clone)]
pub(super) struct Cmake {
    pub args: Vec<String>,
    /// Content of the file every `project()` includes.
    pub include: Option<String>,
    pub targets: Vec<String>,
    pub env: Vec<(String, String)>,
    pub jobs: usize,
    /// Digest of the source tree's build files.
    pub steering: String,
}

/// What a run of a build system did.
pub(super) struct Made {
    /// The program that failed, if one did.
    pub failed: Option<Ran>,
    pub configure: f64,
    pub compile: f64,
    pub link: f64,
    pub units: u64,
    /// Functions that the profile does not fit, and files it knows nothing of.
    pub misfits: (u64, u64),
}

impl Made {
    /// Adds what an earlier try of the same build has cost.
    pub(super) fn add(&mut self, earlier: &Made) {
        self.configure += earlier.configure;
        self.compile += earlier.compile;
        self.link += earlier.link;
        self.units += earlier.units;
        self.misfits.0 += earlier.misfits.0;
        self.misfits.1 += earlier.misfits.1;
    }
}

impl Cmake {
    /// The settings of a recipe for the given tools.
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
        // Paths of this machine must not get into what is compiled: the same sources give the same
        // server everywhere, and with and without ccache, which makes paths relative. CMake takes
        // its first flags from these variables; a recipe that sets CMAKE_C_FLAGS or CMAKE_CXX_FLAGS
        // itself does so on its own account. Of several that match, compilers take the last.
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

    /// Configures if need be and builds.
    pub(super) fn make(&self, work: &Work, log: &mut Log, step: &dyn Step) -> Result<Made> {
        let mut made = Made {
            failed: None,
            configure: 0.0,
            compile: 0.0,
            link: 0.0,
            units: 0,
            misfits: (0, 0),
        };
        let ran = self.configure(work, log, step)?;
        let configured = ran.is_some();
        if let Some(ran) = ran {
            made.configure = ran.elapsed.as_secs_f64();
            if !ran.success {
                made.failed = Some(ran);
                return Ok(made);
            }
        }
        heads::note(&work.build(), configured)?;
        let ninja = Ninja {
            build: &work.build(),
            targets: &self.targets,
            jobs: self.jobs,
            env: &self.env,
            lock: work.held(),
        };
        let done = ninja.run(log, step)?;
        let wall = done.ran.elapsed.as_secs_f64();
        // The log's clock has milliseconds; never more than there was.
        let configure = done.spent.configure.min(wall);
        made.configure += configure;
        made.link = done.spent.link.min(wall - configure);
        made.compile = wall - configure - made.link;
        made.units = done.spent.units;
        made.misfits = profile::misfits(&done.ran.output);
        if !done.ran.success {
            made.failed = Some(done.ran);
        }
        Ok(made)
    }

    fn configure(&self, work: &Work, log: &mut Log, step: &dyn Step) -> Result<Option<Ran>> {
        let build = work.build();
        let marker = build.join(CONFIGURED);
        let wanted = self.settings();
        let configured = std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted);
        if configured && build.join("build.ninja").exists() {
            return Ok(None);
        }
        forget(&build)?;
        std::fs::create_dir_all(&build).map_err(|e| Error::io("create", &build, &e))?;
        if let Some(text) = &self.include {
            write_whole(&include_file(work.dir()), text)?;
        }
        write_whole(&work.dir().join(LAUNCH), LAUNCH_SCRIPT)?;
        step.update(0, None, "configuring");
        let mut command = Command::new("cmake")
            .arg("-S")
            .arg(work.src())
            .arg("-B")
            .arg(&build)
            .args(["-G", "Ninja"])
            .args(&self.args)
            .directory(work.dir())
            .holding(work.held());
        for (name, value) in &self.env {
            command = command.env(name, value);
        }
        let ran = run::run(&command, log, &mut |line| {
            if let Some(rest) = line.strip_prefix("-- ") {
                step.update(0, None, &format!("configuring: {rest}"));
            }
            Line::Output
        })?;
        if ran.success {
            write_whole(&marker, &wanted)?;
        }
        Ok(Some(ran))
    }

    /// Everything the configuration depends on.
    fn settings(&self) -> String {
        let mut text = self.args.join("\n");
        for (name, value) in &self.env {
            // Where ccache keeps its things is no part of it.
            if !name.starts_with("CCACHE_") {
                text.push_str(&format!("\nenv {name}={value}"));
            }
        }
        if let Some(include) = &self.include {
            text.push_str("\ninclude\n");
            text.push_str(include);
        }
        text.push_str("\nbuild files ");
        text.push_str(&self.steering);
        text
    }
}

/// Removes what CMake has found out and was told before: it would live on in its cache. What was compiled
/// stays, in folders called `TARGET.dir`; ninja knows by its log whether the commands are still the same.
fn forget(build: &Path) -> Result<()> {
    for stale in [CONFIGURED, "CMakeCache.txt"] {
        remove(&build.join(stale))?;
    }
    let folder = build.join("CMakeFiles");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("read", &folder, &error)),
    };
    for entry in entries {
        let path = entry.map_err(|e| Error::io("read", &folder, &e))?.path();
        if path.extension().is_none_or(|extension| extension != "dir") {
            remove(&path)?;
        }
    }
    Ok(())
}

/// The include file has a place of its own: the path is part of the configuration, and two
/// workspaces with the same recipe share one working folder.
fn include_file(work: &Path) -> PathBuf {
    work.join("include.cmake")
}

/// The value of the last `-DNAME=VALUE` or `-DNAME:TYPE=VALUE` in `args`.
fn variable_of<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    args.iter().rev().find_map(|arg| {
        let (found, value) = arg.strip_prefix("-D")?.split_once('=')?;
        (found.split(':').next() == Some(name)).then_some(value)
    })
}

/// Adds `flag` to what `args` say of the variable `name`.
fn add_to_variable(args: &mut Vec<String>, name: &str, flag: &str) {
    let value = match variable_of(args, name) {
        // The recipe has chosen.
        Some(value) if value.contains("-fuse-ld=") => return,
        Some(value) => format!("{value} {flag}"),
        None => flag.to_owned(),
    };
    args.push(format!("-D{name}={value}"));
}

/// Environment of ccache: its own folder below the cache unless the user chose one, and the leave
/// to look past what precompiled headers and our moved source files would otherwise make it miss:
/// nobody but us writes there while a compiler runs.
///
/// Paths below the working folder `work` count as relative, so that what was compiled in one working
/// folder is found from another.
pub(super) fn ccache_env(
    cache: &Path,
    work: &Path,
    user: &dyn Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let sloppiness = "pch_defines,time_macros,include_file_mtime,include_file_ctime";
    let mut env = vec![
        ("CCACHE_SLOPPINESS".to_owned(), sloppiness.to_owned()),
        ("CCACHE_BASEDIR".to_owned(), work.display().to_string()),
    ];
    if !user("CCACHE_DIR") {
        let dir = cache.join("ccache").display().to_string();
        env.push(("CCACHE_DIR".to_owned(), dir));
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
        let ours = ccache_env(Path::new("/c"), Path::new("/c/work/x"), &|_| false);
        assert!(ours.contains(&("CCACHE_DIR".into(), "/c/ccache".into())));
        let theirs = ccache_env(Path::new("/c"), Path::new("/c/work/x"), &|name| {
            name == "CCACHE_DIR"
        });
        assert!(
            !theirs
                .iter()
                .any(|(name, _)| name == "CCACHE_DIR" || name == "CCACHE_MAXSIZE")
        );
    }
}
