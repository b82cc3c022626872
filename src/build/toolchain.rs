//! What compiles and links here, as far as results depend on it.

use std::path::{Path, PathBuf};

use crate::config::{BuildSystem, Linker, Recipe};
use crate::error::{Error, Result};
use crate::process::{Command, find_program};

/// The tools a recipe uses.
#[derive(Debug, Clone)]
pub(super) struct Toolchain {
    /// Everything results depend on, a line each, for the key and for people.
    pub lines: Vec<String>,
    /// The flag that chooses the linker, where the recipe does not leave that to the compiler.
    pub linker_flag: Option<String>,
    /// ccache, when it is there.
    pub ccache: Option<PathBuf>,
}

impl Toolchain {
    /// Looks at what is installed. `packages` are the Debian packages whose headers and libraries the
    /// server is built against.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when a tool is missing.
    pub(super) fn find(recipe: &Recipe, packages: &[String]) -> Result<Toolchain> {
        let cmake = recipe.system != Some(BuildSystem::Command);
        let mut lines = vec![format!("machine: {}", machine(recipe))];
        let cc = compiler(recipe, "CC", "CMAKE_C_COMPILER", "cc");
        let cc_version = version(&cc)?;
        lines.push(format!("cc: {cc_version}"));
        let cxx = compiler(recipe, "CXX", "CMAKE_CXX_COMPILER", "c++");
        // A server in plain C does not need it; CMake says so when one does.
        if let Ok(found) = version(&cxx) {
            lines.push(format!("c++: {found}"));
        }
        let mut linker_flag = None;
        if cmake {
            lines.push(format!("cmake: {}", version("cmake")?));
            find_program("ninja").ok_or_else(|| missing("ninja"))?;
            let linker = recipe.linker.unwrap_or(Linker::Default);
            linker_flag = choose_linker(linker, &cc_version, &|name| find_program(name).is_some())?;
        }
        let linker = match linker_flag.as_deref() {
            Some("-fuse-ld=mold") => "mold",
            Some(_) => "ld.lld",
            None => "ld",
        };
        if let Ok(found) = version(linker) {
            lines.push(format!("linker: {found}"));
        }
        // What links it again, where the recipe says so itself.
        for program in ["mold", "lld"] {
            let relink = recipe.relink.iter().flat_map(|relink| &relink.command);
            if relink.into_iter().any(|word| word.contains(program)) {
                let program = if program == "lld" { "ld.lld" } else { program };
                let found = version(program).map_err(|_| missing(program))?;
                lines.push(format!("relink: {found}"));
            }
        }
        lines.extend(package_versions(packages));
        Ok(Toolchain {
            lines,
            linker_flag,
            ccache: find_program("ccache"),
        })
    }
}

fn missing(program: &str) -> Error {
    Error::usage(format!("`{program}` is not installed"))
        .hint("`perfquilt doctor` names what is missing and the command that installs it")
}

/// The processor's family; and the processor itself when the code is made for it alone.
fn machine(recipe: &Recipe) -> String {
    let family = std::env::consts::ARCH;
    let native = recipe
        .cmake_args
        .iter()
        .chain(recipe.env.values())
        .chain(recipe.configure.iter().flatten())
        .chain(recipe.build.iter().flatten())
        .any(|word| word.contains("=native"));
    if !native {
        return family.to_owned();
    }
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split_once(':'))
            .map_or("", |(_, value)| value.trim())
    };
    format!("{family} {} {}", field("model name"), field("flags"))
}

/// The compiler a recipe means: by CMake's variable, by the environment, or the usual one.
fn compiler(recipe: &Recipe, variable: &str, cmake: &str, usual: &str) -> String {
    let given = recipe.cmake_args.iter().rev().find_map(|arg| {
        let (name, value) = arg.strip_prefix("-D")?.split_once('=')?;
        (name.split(':').next() == Some(cmake)).then(|| value.to_owned())
    });
    given
        .or_else(|| recipe.env.get(variable).cloned())
        .unwrap_or_else(|| usual.to_owned())
}

/// The first line a program says about its version. Of `ccache gcc` the compiler counts.
fn version(program: &str) -> Result<String> {
    let name = program.split_whitespace().next_back().unwrap_or(program);
    let output = Command::new(name).arg("--version").run()?;
    let text = output.stdout_text();
    match text.lines().find(|line| !line.trim().is_empty()) {
        Some(line) if output.success() => Ok(line.trim().to_owned()),
        _ => Err(Error::usage(format!(
            "`{name} --version` {}",
            output.how_it_ended()
        ))),
    }
}

fn choose_linker(
    linker: Linker,
    cc_version: &str,
    installed: &dyn Fn(&str) -> bool,
) -> Result<Option<String>> {
    // gcc knows the word `mold` since version 12.1.
    let old_gcc = gcc_major(cc_version).is_some_and(|major| major < 12);
    let mold = || installed("mold") && !old_gcc;
    let lld = || installed("ld.lld");
    let flag = |name: &str| Ok(Some(format!("-fuse-ld={name}")));
    match linker {
        Linker::Default => Ok(None),
        Linker::Mold if old_gcc => Err(Error::usage(format!(
            "the recipe wants the linker mold, which `{cc_version}` does not know"
        ))
        .hint("`linker = \"auto\"` takes the fastest that works")),
        Linker::Mold if !installed("mold") => Err(missing("mold")),
        Linker::Lld if !lld() => Err(missing("ld.lld")),
        Linker::Mold => flag("mold"),
        Linker::Lld => flag("lld"),
        Linker::Auto if mold() => flag("mold"),
        Linker::Auto if lld() => flag("lld"),
        Linker::Auto => Ok(None),
    }
}

/// 12 of `gcc (Debian 12.2.0-14) 12.2.0`; `None` for other compilers.
fn gcc_major(version: &str) -> Option<u32> {
    let first = version.split_whitespace().next()?;
    let program = Path::new(first).file_name()?.to_str()?;
    if !(program.starts_with("cc") || program.starts_with("gcc") || program.contains("-gcc")) {
        return None;
    }
    let number = version.rsplit(')').next()?.split_whitespace().next()?;
    number.split('.').next()?.parse().ok()
}

/// The versions of installed packages, where the machine has dpkg.
fn package_versions(packages: &[String]) -> Vec<String> {
    if packages.is_empty() || find_program("dpkg-query").is_none() {
        return Vec::new();
    }
    // It exits with 1 when one of them is not installed, and names the others all the same.
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${Version}\\n", "libc6-dev"])
        .args(packages)
        .run();
    let text = output
        .map(|output| output.stdout_text())
        .unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const GCC: &str = "cc (Debian 12.2.0-14+deb12u1) 12.2.0";

    #[test]
    fn linkers_by_preference() {
        let all = |_: &str| true;
        let none = |_: &str| false;
        let choose = |linker, version: &str, has: &dyn Fn(&str) -> bool| {
            choose_linker(linker, version, has).unwrap()
        };
        assert_eq!(choose(Linker::Auto, GCC, &all).unwrap(), "-fuse-ld=mold");
        let old = "gcc (Debian 10.2.1-6) 10.2.1 20210110";
        assert_eq!(gcc_major(old), Some(10));
        assert!(gcc_major("Debian clang version 14.0.6").is_none());
        assert_eq!(choose(Linker::Auto, GCC, &none), None);
        assert_eq!(choose(Linker::Default, old, &all), None);
        assert!(choose_linker(Linker::Mold, GCC, &none).is_err());
        assert_eq!(choose(Linker::Auto, old, &all).unwrap(), "-fuse-ld=lld");
        assert!(choose_linker(Linker::Mold, old, &all).is_err());
    }

    #[test]
    fn the_recipes_compiler_counts() {
        let mut recipe = Recipe {
            env: [("CC".to_owned(), "clang".to_owned())].into(),
            ..Recipe::default()
        };
        let cc = |recipe: &Recipe| compiler(recipe, "CC", "CMAKE_C_COMPILER", "cc");
        assert_eq!(cc(&recipe), "clang");
        recipe.cmake_args = vec!["-DCMAKE_C_COMPILER:STRING=gcc-13".into()];
        assert_eq!(cc(&recipe), "gcc-13");
        assert_eq!(cc(&Recipe::default()), "cc");
    }

    #[test]
    fn native_code_depends_on_the_processor() {
        let recipe = Recipe {
            cmake_args: vec!["-DCMAKE_C_FLAGS=-march=native".into()],
            ..Recipe::default()
        };
        assert!(machine(&recipe).len() > machine(&Recipe::default()).len());
    }

    #[test]
    fn this_machine_has_a_toolchain() {
        let recipe = Recipe {
            linker: Some(Linker::Auto),
            ..Recipe::default()
        };
        let found = Toolchain::find(&recipe, &[]).unwrap();
        for tool in ["machine: ", "cc: ", "cmake: "] {
            assert!(
                found.lines.iter().any(|line| line.starts_with(tool)),
                "{tool}"
            );
        }
    }
}
