//! Reads the lists of packages that a workspace needs and checks whether each is installed.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::workspace::Workspace;
use crate::{BuildSystem, Config};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::read_text;
use perfquilt_system::packages::{self as debian, LIST as BASE};
use perfquilt_system::process::{Command, find_program};

/// File in which a workspace lists the packages for its own server.
const OWN: &str = "bench-config/packages.txt";

/// How much a package is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    /// Nothing works without it.
    Required,
    /// Useful, but not necessary.
    Recommended,
    /// Useful on some machines; never installed automatically.
    Optional,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Name of the Debian package.
    pub name: String,
    /// How much this workspace needs it.
    pub need: Requirement,
    /// How to detect it if dpkg does not list it.
    pub found_by: Detection,
    /// Its purpose.
    pub purpose: String,
}

/// How to detect a package without dpkg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detection {
    /// A program on `PATH`.
    Program(String),
    /// A header below an include folder of the system.
    Header(String),
    /// A module known to pkg-config.
    PkgConfig(String),
    /// A Perl module.
    Perl(String),
    /// A Python module.
    Python(String),
}

/// A package with its state on this machine.
#[derive(Debug, Clone, Serialize)]
pub struct PackageStatus {
    /// Name of the Debian package.
    pub package: String,
    /// How much this workspace needs it.
    pub need: Requirement,
    /// Its purpose.
    pub purpose: String,
    /// Whether it is installed.
    pub present: bool,
    /// Its version, if it was installed as a package.
    pub version: Option<String>,
}

/// Returns the packages of a workspace (`None`: those of every workspace), in the order of the lists.
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
        let wrong = |message: String| Error::configuration(message).at(file, index + 1);
        let mut words = line.split_whitespace();
        let (Some(name), Some(need), Some(found_by)) = (words.next(), words.next(), words.next())
        else {
            return Err(wrong("a line needs PACKAGE NEED FOUND-BY PURPOSE".into()));
        };
        if !is_package(name) {
            return Err(wrong(format!("`{name}` is not a valid package name")));
        }
        // Developers of perfquilt need them; no workspace does.
        let for_developers = ["tests", "release"].contains(&need);
        let need = if for_developers {
            Requirement::Optional
        } else {
            need_of(need, config).ok_or_else(|| {
                wrong(format!("`{need}` is not a need"))
                    .hint("required, recommended, optional, tests, release, cmake, debian, git, sysbench, sql-bench, instructions")
            })?
        };
        let found_by = match found_by.split_once(':') {
            Some(("program", program)) => Detection::Program(program.to_owned()),
            Some(("header", header)) => Detection::Header(header.to_owned()),
            Some(("pkg-config", module)) => Detection::PkgConfig(module.to_owned()),
            Some(("perl", module)) if is_module(module) => Detection::Perl(module.to_owned()),
            Some(("python", module)) if is_module(module) => Detection::Python(module.to_owned()),
            _ => {
                return Err(
                    wrong(format!("`{found_by}` is not a way to find a package")).hint(
                        "program:NAME, header:PATH, pkg-config:NAME, perl:MODULE or python:MODULE",
                    ),
                );
            }
        };
        if !for_developers {
            packages.push(Package {
                name: name.to_owned(),
                need,
                found_by,
                purpose: words.collect::<Vec<_>>().join(" "),
            });
        }
    }
    Ok(packages)
}

/// Whether `name` is a valid name of a Debian package; it becomes part of a command.
fn is_package(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.bytes().all(plain)
}

/// Whether `name` is only the name of a module; it becomes part of a script.
fn is_module(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.:".contains(&b);
    !name.is_empty() && name.bytes().all(plain)
}

/// Returns the need that a word of the second column means for this configuration; `None` for an unknown word.
fn need_of(word: &str, config: Option<&Config>) -> Option<Requirement> {
    let when = |condition: fn(&Config) -> bool| match config {
        Some(config) if condition(config) => Requirement::Required,
        _ => Requirement::Optional,
    };
    Some(match word {
        "required" => Requirement::Required,
        "recommended" => Requirement::Recommended,
        "optional" => Requirement::Optional,
        "cmake" => when(|config| {
            let mut recipes = config.recipe.values();
            recipes.any(|recipe| recipe.system == Some(BuildSystem::Cmake))
        }),
        "debian" => when(|config| config.upstream.release.iter().any(|r| r.debian.is_some())),
        // Without it, a series can be measured, but not edited, imported or rebased.
        "git" => match when(|config| config.upstream.release.iter().any(|r| r.git.is_some())) {
            Requirement::Required => Requirement::Required,
            Requirement::Recommended | Requirement::Optional => Requirement::Recommended,
        },
        "sysbench" => when(|config| has_workload(config, "sysbench")),
        "sql-bench" => when(|config| has_workload(config, "sql-bench")),
        "instructions" => when(|config| {
            let mut meters = config.preset.values().flat_map(|preset| &preset.meters);
            meters.any(|meter| !meter.is_timed())
        }),
        _ => return None,
    })
}

fn has_workload(config: &Config, kind: &str) -> bool {
    let mut workloads = config.workloads.values();
    workloads.any(|workload| workload.kind == kind)
}

/// Checks whether each package is installed, by dpkg or else by its program, header or module.
pub fn check(packages: &[Package]) -> Vec<PackageStatus> {
    let versions = installed(packages);
    packages
        .iter()
        .map(|package| {
            let version = versions.get(&package.name).cloned();
            PackageStatus {
                package: package.name.clone(),
                need: package.need,
                purpose: package.purpose.clone(),
                present: version.is_some() || is_found(&package.found_by),
                version,
            }
        })
        .collect()
}

fn is_found(by: &Detection) -> bool {
    match by {
        Detection::Program(name) => find_program(name).is_some(),
        Detection::Header(path) => {
            let folders = ["/usr/include", "/usr/local/include"];
            folders.iter().any(|dir| Path::new(dir).join(path).exists())
        }
        Detection::PkgConfig(module) => Command::new("pkg-config")
            .args(["--exists", module])
            .run()
            .is_ok_and(|output| output.success()),
        Detection::Perl(module) => Command::new("perl")
            .args([&format!("-M{module}"), "-e", "1"])
            .run()
            .is_ok_and(|output| output.success()),
        Detection::Python(module) => Command::new("python3")
            .args(["-c", &format!("import {module}")])
            .run()
            .is_ok_and(|output| output.success()),
    }
}

/// Returns the versions of installed packages; empty on machines without dpkg.
fn installed(packages: &[Package]) -> BTreeMap<String, String> {
    if packages.is_empty() || find_program("dpkg-query").is_none() {
        return BTreeMap::new();
    }
    // It exits with 1 if it does not know one of them but still lists the others.
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

/// Returns the command that installs missing required and recommended packages; `None` if none is missing.
pub fn install_command(packages: &[PackageStatus]) -> Option<String> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|status| !status.present && status.need != Requirement::Optional)
        .map(|status| status.package.as_str())
        .collect();
    (!missing.is_empty()).then(|| debian::install_command(&missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_this_repository_are_well_formed() {
        let base = parse("ci/packages.txt", BASE, None).unwrap();
        assert!(base.len() > 10);
        // A package for developers that no workspace needs.
        assert!(!base.iter().any(|package| package.name == "mmdebstrap"));
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
            assert_eq!(error.location().unwrap().line, line.map(|index| index + 1));
        }
    }

    #[test]
    fn missing_packages_are_installed_except_optional_ones() {
        let status = |package: &str, need, present| PackageStatus {
            package: package.into(),
            need,
            purpose: String::new(),
            present,
            version: None,
        };
        let all = [
            status("a", Requirement::Required, true),
            status("b", Requirement::Required, false),
            status("c", Requirement::Recommended, false),
            status("d", Requirement::Optional, false),
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
        assert!(is_found(&Detection::Program("sh".into())));
        assert!(!is_found(&Detection::Program("no-such-program".into())));
        assert!(!is_found(&Detection::Header("no/such.h".into())));
        assert!(is_found(&Detection::Header("stdio.h".into())));
    }
}
