//! Finds the compilers and linkers of this machine and the versions that results depend on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use perfquilt_config::{BuildSystem, Linker, Recipe};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::host::KernelFields;
use perfquilt_system::process::{Command, find_program, missing};

/// The tools a recipe uses.
#[derive(Debug, Clone)]
pub(super) struct Toolchain {
    /// Everything results depend on, one line each, for the key and for messages.
    pub lines: Vec<String>,
    /// The flag that selects the linker, unless the recipe leaves the choice to the compiler.
    pub linker_flag: Option<String>,
    /// Path of ccache, if it is installed.
    pub ccache: Option<PathBuf>,
}

impl Toolchain {
    /// Finds the installed tools. `packages` are the Debian packages whose headers and libraries the
    /// server is built against.
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
        for linker in linkers(recipe, linker_flag.as_deref()) {
            if let Ok(found) = version(&linker) {
                lines.push(format!("linker: {found}"));
            }
        }
        // The linker of the recipe's own relink command.
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

/// Programs that may precede a compiler in its command.
const LAUNCHERS: &[&str] = &["ccache", "distcc", "env", "icecc", "sccache"];

// The pattern is constant and tested.
#[allow(clippy::expect_used)]
static FUSE_LD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"-fuse-ld=([\w./+-]+)").expect("a valid pattern"));

/// Returns the linkers of a recipe: those it names itself and the one selected by the flag `chosen`, or else the
/// compiler's own.
fn linkers(recipe: &Recipe, chosen: Option<&str>) -> BTreeSet<String> {
    let found: BTreeSet<String> = words(recipe)
        .chain(chosen)
        .flat_map(|word| FUSE_LD.captures_iter(word))
        .map(|found| match &found[1] {
            "mold" => "mold".to_owned(),
            path if path.contains('/') => path.to_owned(),
            name => format!("ld.{name}"),
        })
        .collect();
    if found.is_empty() {
        ["ld".to_owned()].into()
    } else {
        found
    }
}

/// Iterates over all words of a recipe that may reach a compiler.
fn words(recipe: &Recipe) -> impl Iterator<Item = &str> {
    recipe
        .cmake_args
        .iter()
        .chain(recipe.env.values())
        .chain(recipe.configure.iter().flatten())
        .chain(recipe.build.iter().flatten())
        .map(String::as_str)
}

/// Returns the processor's architecture, and its model and flags if the recipe compiles for this processor
/// (`=native`).
fn machine(recipe: &Recipe) -> String {
    let family = std::env::consts::ARCH;
    let native = words(recipe).any(|word| word.contains("=native"));
    if !native {
        return family.to_owned();
    }
    let processor = KernelFields::read("/proc/cpuinfo");
    let field = |name: &str| processor.get(name).unwrap_or_default();
    format!("{family} {} {}", field("model name"), field("flags"))
}

/// Returns the compiler of a recipe: from CMake's variable, from the environment, or the default.
fn compiler(recipe: &Recipe, variable: &str, cmake: &str, default: &str) -> String {
    let given = recipe.cmake_args.iter().rev().find_map(|arg| {
        let (name, value) = arg.strip_prefix("-D")?.split_once('=')?;
        (name.split(':').next() == Some(cmake)).then(|| value.to_owned())
    });
    given
        .or_else(|| recipe.env.get(variable).cloned())
        .unwrap_or_else(|| default.to_owned())
}

/// Returns the compiler in a command, skipping launchers, variables and flags. CMake separates words by
/// semicolons.
fn program(words: &str) -> &str {
    let is_launcher = |word: &str| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| LAUNCHERS.contains(&name))
    };
    words
        .split(|c: char| c.is_whitespace() || c == ';')
        .filter(|word| !word.is_empty() && !word.starts_with('-') && !word.contains('='))
        .find(|word| !is_launcher(word))
        .unwrap_or(words)
}

/// Returns the first line of a program's `--version` output.
fn version(words: &str) -> Result<String> {
    let name = program(words);
    let output = Command::new(name).arg("--version").run()?;
    let text = output.stdout_text();
    match text.lines().find(|line| !line.trim().is_empty()) {
        Some(line) if output.success() => Ok(line.trim().to_owned()),
        _ => Err(Error::program_unusable(format!(
            "`{name} --version` {}",
            output.describe_exit()
        ))),
    }
}

fn choose_linker(
    linker: Linker,
    cc_version: &str,
    installed: &dyn Fn(&str) -> bool,
) -> Result<Option<String>> {
    // gcc accepts `-fuse-ld=mold` since version 12.1.
    let old_gcc = gcc_major(cc_version).is_some_and(|major| major < 12);
    let mold = || installed("mold") && !old_gcc;
    let lld = || installed("ld.lld");
    let flag = |name: &str| Ok(Some(format!("-fuse-ld={name}")));
    match linker {
        Linker::Default => Ok(None),
        Linker::Mold if old_gcc => Err(Error::recipe(format!(
            "the recipe uses the linker mold, which `{cc_version}` does not support"
        ))
        .hint("`linker = \"auto\"` selects the fastest supported linker")),
        Linker::Mold if !installed("mold") => Err(missing("mold")),
        Linker::Lld if !lld() => Err(missing("ld.lld")),
        Linker::Mold => flag("mold"),
        Linker::Lld => flag("lld"),
        Linker::Auto if mold() => flag("mold"),
        Linker::Auto if lld() => flag("lld"),
        Linker::Auto => Ok(None),
    }
}

/// Returns 12 for `gcc (Debian 12.2.0-14) 12.2.0`; `None` for other compilers.
fn gcc_major(version: &str) -> Option<u32> {
    let first = version.split_whitespace().next()?;
    let program = Path::new(first).file_name()?.to_str()?;
    if !(program.starts_with("cc") || program.starts_with("gcc") || program.contains("-gcc")) {
        return None;
    }
    let number = version.rsplit(')').next()?.split_whitespace().next()?;
    number.split('.').next()?.parse().ok()
}

/// Returns the versions of installed packages; empty on machines without dpkg.
fn package_versions(packages: &[String]) -> Vec<String> {
    if packages.is_empty() || find_program("dpkg-query").is_none() {
        return Vec::new();
    }
    // It exits with 1 if one of them is not installed but still lists the others.
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
    fn launchers_settings_and_flags_are_no_compiler() {
        for (words, expected) in [
            ("gcc", "gcc"),
            ("gcc -m64", "gcc"),
            ("g++ -std=c++17", "g++"),
            ("ccache gcc -m64", "gcc"),
            (
                "/usr/bin/env LANG=C distcc /opt/gcc-13/bin/gcc",
                "/opt/gcc-13/bin/gcc",
            ),
            ("clang;--target=x86_64-linux-gnu", "clang"),
            ("ccache", "ccache"),
        ] {
            assert_eq!(program(words), expected, "{words}");
        }
    }

    #[test]
    fn the_linkers_a_recipe_names_count() {
        let of = |recipe: &Recipe, chosen| -> Vec<String> {
            linkers(recipe, chosen).into_iter().collect()
        };
        let mut recipe = Recipe::default();
        assert_eq!(of(&recipe, None), ["ld"]);
        assert_eq!(of(&recipe, Some("-fuse-ld=mold")), ["mold"]);
        let flags = "-O2 -Wl,--gc-sections -fuse-ld=lld".to_owned();
        recipe.env.insert("LDFLAGS".to_owned(), flags);
        assert_eq!(of(&recipe, None), ["ld.lld"]);
        recipe.cmake_args = vec!["-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=gold".to_owned()];
        assert_eq!(of(&recipe, None), ["ld.gold", "ld.lld"]);
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
