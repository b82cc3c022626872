//! The lists of packages that a workspace needs, and whether each is there.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use perfquilt_config::workspace::Workspace;
use perfquilt_config::{BuildSystem, Config, WorkloadKind};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::read_text;
use perfquilt_system::process::{Command, find_program};

/// What every workspace needs; `ci/install-deps` reads the same file.
const BASE: &str = include_str!("../../../ci/packages.txt");
/// Where a workspace lists what its own server needs.
const OWN: &str = "bench-config/packages.txt";

/// How much a package is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Nothing works without.
    Required,
    /// One can do without.
    Recommended,
    /// Of use on some machines; never installed unasked.
    Optional,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// The Debian package's name.
    pub name: String,
    /// How much this workspace needs it.
    pub need: Need,
    /// How it is found where dpkg does not list it.
    pub found_by: FoundBy,
    /// What it is for.
    pub purpose: String,
}

/// How the presence of a package shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundBy {
    /// A program on `PATH`.
    Program(String),
    /// A header below an include folder of the system.
    Header(String),
    /// A module known to pkg-config.
    PkgConfig(String),
    /// A module of Perl's.
    Perl(String),
    /// A module of Python's.
    Python(String),
}

/// A package and whether it is there.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// The Debian package's name.
    pub package: String,
    /// How much this workspace needs it.
    pub need: Need,
    /// What it is for.
    pub purpose: String,
    /// Whether it is there.
    pub present: bool,
    /// Its version, where it came as a package.
    pub version: Option<String>,
}

/// The packages of a workspace (`None`: of every workspace), in the order of the lists.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) naming file and line of a malformed list.
pub fn packages(workspace: Option<&Workspace>) -> Result<Vec<Package>> {
    let config = workspace.map(|ws| &ws.config);
    let mut packages = parse("ci/packages.txt", BASE, config)?;
    if let Some(ws) = workspace {
        let path = ws.root().join(OWN);
        if path.exists() {
            packages.extend(parse(OWN, &read_text(&path, OWN)?, config)?);
        }
    }
    Ok(packages)
}

fn parse(file: &str, text: &str, config: Option<&Config>) -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |message: String| Error::usage(message).at(file, index + 1);
        let mut words = line.split_whitespace();
        let (Some(name), Some(need), Some(found_by)) = (words.next(), words.next(), words.next())
        else {
            return Err(wrong("a line needs PACKAGE NEED FOUND-BY PURPOSE".into()));
        };
        if !is_package(name) {
            return Err(wrong(format!("`{name}` is no name of a package")));
        }
        let need = need_of(need, config).ok_or_else(|| {
            wrong(format!("`{need}` is not a need"))
                .hint("required, recommended, optional, tests, cmake, debian, git, sysbench, sql-bench, instructions")
        })?;
        let found_by = match found_by.split_once(':') {
            Some(("program", program)) => FoundBy::Program(program.to_owned()),
            Some(("header", header)) => FoundBy::Header(header.to_owned()),
            Some(("pkg-config", module)) => FoundBy::PkgConfig(module.to_owned()),
            Some(("perl", module)) if is_module(module) => FoundBy::Perl(module.to_owned()),
            Some(("python", module)) if is_module(module) => FoundBy::Python(module.to_owned()),
            _ => {
                return Err(
                    wrong(format!("`{found_by}` does not say how to find it")).hint(
                        "program:NAME, header:PATH, pkg-config:NAME, perl:MODULE or python:MODULE",
                    ),
                );
            }
        };
        packages.push(Package {
            name: name.to_owned(),
            need,
            found_by,
            purpose: words.collect::<Vec<_>>().join(" "),
        });
    }
    Ok(packages)
}

/// Whether it is a Debian package's name: it stands in commands.
fn is_package(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.bytes().all(plain)
}

/// Whether it is a module's name alone: what follows one would be run.
fn is_module(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.:".contains(&b);
    !name.is_empty() && name.bytes().all(plain)
}

/// What a word of the second column means for this configuration; `None` for an unknown word.
fn need_of(word: &str, config: Option<&Config>) -> Option<Need> {
    let when = |condition: fn(&Config) -> bool| match config {
        Some(config) if condition(config) => Need::Required,
        _ => Need::Optional,
    };
    Some(match word {
        "required" => Need::Required,
        "recommended" => Need::Recommended,
        // What only the tests of this program need is `ci/install-deps --tests`'s.
        "optional" | "tests" => Need::Optional,
        "cmake" => when(|config| {
            let mut recipes = config.recipe.values();
            recipes.any(|recipe| recipe.system == Some(BuildSystem::Cmake))
        }),
        "debian" => when(|config| config.upstream.release.iter().any(|r| r.debian.is_some())),
        "git" => when(|config| config.upstream.release.iter().any(|r| r.git.is_some())),
        "sysbench" => when(|config| has_workload(config, WorkloadKind::Sysbench)),
        "sql-bench" => when(|config| has_workload(config, WorkloadKind::SqlBench)),
        "instructions" => when(|config| {
            let mut meters = config.preset.values().flat_map(|preset| &preset.meters);
            meters.any(|meter| !meter.is_timed())
        }),
        _ => return None,
    })
}

fn has_workload(config: &Config, kind: WorkloadKind) -> bool {
    let mut workloads = config.workloads.values();
    workloads.any(|workload| workload.kind == kind)
}

/// Looks for each package: its program, header or module, else the package itself.
pub fn look(packages: &[Package]) -> Vec<Found> {
    let versions = installed(packages);
    packages
        .iter()
        .map(|package| {
            let version = versions.get(&package.name).cloned();
            Found {
                package: package.name.clone(),
                need: package.need,
                purpose: package.purpose.clone(),
                present: version.is_some() || is_found(&package.found_by),
                version,
            }
        })
        .collect()
}

fn is_found(by: &FoundBy) -> bool {
    match by {
        FoundBy::Program(name) => find_program(name).is_some(),
        FoundBy::Header(path) => {
            let folders = ["/usr/include", "/usr/local/include"];
            folders.iter().any(|dir| Path::new(dir).join(path).exists())
        }
        FoundBy::PkgConfig(module) => Command::new("pkg-config")
            .args(["--exists", module])
            .run()
            .is_ok_and(|output| output.success()),
        FoundBy::Perl(module) => Command::new("perl")
            .args([&format!("-M{module}"), "-e", "1"])
            .run()
            .is_ok_and(|output| output.success()),
        FoundBy::Python(module) => Command::new("python3")
            .args(["-c", &format!("import {module}")])
            .run()
            .is_ok_and(|output| output.success()),
    }
}

/// Versions of the packages that are installed, where the machine has dpkg.
fn installed(packages: &[Package]) -> BTreeMap<String, String> {
    if packages.is_empty() || find_program("dpkg-query").is_none() {
        return BTreeMap::new();
    }
    // It exits with 1 when it does not know one of them, and lists the others all the same.
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n"])
        .args(packages.iter().map(|package| &package.name))
        .run();
    let text = output
        .map(|output| output.stdout_text())
        .unwrap_or_default();
    text.lines()
        .filter_map(|line| line.strip_prefix("installed ")?.split_once(' '))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect()
}

/// The command that installs what is required or recommended and missing; `None` when nothing is.
pub fn install_command(found: &[Found]) -> Option<String> {
    let missing: Vec<&str> = found
        .iter()
        .filter(|found| !found.present && found.need != Need::Optional)
        .map(|found| found.package.as_str())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let sudo = if rustix::process::geteuid().is_root() {
        ""
    } else {
        "sudo "
    };
    Some(format!(
        "{sudo}apt-get install -y --no-install-recommends {}",
        missing.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_this_repository_are_well_formed() {
        assert!(parse("ci/packages.txt", BASE, None).unwrap().len() > 10);
        let own = include_str!("../../../bench-config/packages.txt");
        let packages = parse(OWN, own, None).unwrap();
        assert!(packages.iter().any(|package| package.name == "libfmt-dev"));
    }

    #[test]
    fn malformed_lists_name_the_line() {
        for text in [
            "gcc\n",
            "\ngcc sometimes program:cc x\n",
            "# x\ngcc required cc x\n",
            "gcc;id required program:gcc x\n",
            "gcc required python:os;os.abort() x\n",
            "gcc required perl:POSIX;abort() x\n",
        ] {
            let error = parse("list", text, None).unwrap_err();
            let line = text.lines().position(|line| line.starts_with("gcc"));
            assert_eq!(error.place().unwrap().line, line.map(|index| index + 1));
        }
    }

    #[test]
    fn what_is_missing_is_installed_but_for_the_optional() {
        let found = |package: &str, need, present| Found {
            package: package.into(),
            need,
            purpose: String::new(),
            present,
            version: None,
        };
        let all = [
            found("a", Need::Required, true),
            found("b", Need::Required, false),
            found("c", Need::Recommended, false),
            found("d", Need::Optional, false),
        ];
        let command = install_command(&all).unwrap();
        assert!(
            command.ends_with("--no-install-recommends b c"),
            "{command}"
        );
        assert_eq!(install_command(&all[..1]), None);
    }

    #[test]
    fn packages_are_found_without_dpkg() {
        assert!(is_found(&FoundBy::Program("sh".into())));
        assert!(!is_found(&FoundBy::Program("no-such-program".into())));
        assert!(!is_found(&FoundBy::Header("no/such.h".into())));
        assert!(is_found(&FoundBy::Header("stdio.h".into())));
    }
}
