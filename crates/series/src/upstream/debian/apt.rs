//! The machine's apt with a private configuration.

use std::path::{Path, PathBuf};

use super::{sources, upstream_version};
use perfquilt_config::DebianSource;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_system::process::{Command, Output, find_program};

/// A source package listed by an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePackage {
    /// The source package's name.
    pub package: String,
    /// Debian's version with epoch and revision.
    pub version: String,
    /// The suite.
    pub suite: String,
}

impl SourcePackage {
    /// Returns the upstream part of the version.
    pub fn upstream(&self) -> &str {
        upstream_version(&self.version)
    }
}

/// apt with a private configuration.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    config: PathBuf,
    has_lists: bool,
}

/// Which files of a source package to download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageFiles {
    All,
    /// The `.dsc`.
    Description,
    /// The upstream tarball. apt checks it against the archive's signed index.
    Tarball,
}

impl Apt {
    /// Writes the private configuration below `cache`: for `wanted`, and for those of `others` whose archive is in the
    /// machine's sources. `etc` is the machine's own configuration, `/etc/apt`.
    pub fn new(
        cache: &Path,
        wanted: &DebianSource,
        others: &[DebianSource],
        etc: &Path,
    ) -> Result<Self> {
        if find_program("apt-get").is_none() {
            return Err(Error::program_missing("this machine has no apt-get").hint(
                "give the release as a tarball, a git tag or a directory in bench-config/perfquilt.toml",
            ));
        }
        let folder = cache.join("apt");
        let make =
            |path: &Path| std::fs::create_dir_all(path).map_err(|e| Error::io("create", path, &e));
        for inner in ["parts", "lists/partial", "cache/archives/partial"] {
            make(&folder.join(inner))?;
        }
        let stanzas = stanzas(&sources::machine_sources(etc)?, wanted, others)?;
        let parts = folder.join("parts/perfquilt.sources");
        let config = folder.join("apt.conf");
        let unchanged = std::fs::read_to_string(&parts).is_ok_and(|text| text == stanzas);
        write(&parts, &stanzas)?;
        write(&config, &configuration(&folder))?;
        let has_lists = unchanged && has_list(&folder, None);
        Ok(Apt {
            folder,
            config,
            has_lists,
        })
    }

    /// Returns whether the lists of the configured suites exist.
    pub fn has_lists(&self) -> bool {
        self.has_lists
    }

    fn command(&self, program: &str) -> Command {
        Command::new(program).arg("-c").arg(&self.config).network()
    }

    /// Fetches the archives' lists; with `only_if_missing` only if there are none.
    ///
    /// # Errors
    /// [`Kind::Usage`] with apt's error lines when there is no list of `suite` afterwards.
    pub fn update(&mut self, suite: &str, only_if_missing: bool) -> Result<()> {
        if only_if_missing && self.has_lists {
            return Ok(());
        }
        let step = progress::begin("fetching the source packages' lists", None);
        // Without this mode, apt succeeds although it reached no archive.
        let command = self
            .command("apt-get")
            .args(["-o", "APT::Update::Error-Mode=any"]);
        let output = command.args(["-q", "update"]).run()?;
        if !output.success() || !has_list(&self.folder, Some(suite)) {
            let errors = apt_errors(&output);
            // Another configured suite may have left the archive.
            if !has_list(&self.folder, Some(suite)) {
                return Err(
                    Error::source_package("apt cannot fetch the source packages' lists")
                        .details(errors)
                        .hint("is the machine's mirror reachable? `apt-get update` shows it"),
                );
            }
            let words = "apt could not refresh all lists; using those it has";
            progress::warn(Warning::old_lists(words));
        }
        self.has_lists = true;
        step.finish("");
        Ok(())
    }

    /// Returns the archives' versions of the source packages called `packages`.
    pub fn listed(&self, packages: &[&str]) -> Result<Vec<SourcePackage>> {
        let output = self
            .command("apt-cache")
            .arg("madison")
            .args(packages)
            .run_ok(Kind::Internal)?;
        Ok(parse_madison(&output.stdout_text())
            .into_iter()
            .filter(|listed| packages.contains(&listed.package.as_str()))
            .collect())
    }

    /// Downloads files of a source package into `folder`.
    pub fn download(
        &self,
        listed: &SourcePackage,
        folder: &Path,
        files: PackageFiles,
    ) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
        let mut command = self.command("apt-get");
        command = command.args(["-q", "--download-only", "--only-source"]);
        command = match files {
            PackageFiles::All => command,
            PackageFiles::Description => command.arg("--dsc-only"),
            PackageFiles::Tarball => command.arg("--tar-only"),
        };
        let output = command
            .arg("source")
            .arg(format!("{}={}", listed.package, listed.version))
            .directory(folder)
            .run()?;
        if output.success() {
            Ok(())
        } else {
            Err(Error::source_package(format!(
                "{} {} is listed by {}, but cannot be downloaded",
                listed.package, listed.version, listed.suite
            ))
            .details(apt_errors(&output)))
        }
    }

    /// Returns those of `listed` whose description can be downloaded.
    pub fn reachable<'a>(&self, listed: &'a [SourcePackage]) -> Vec<&'a SourcePackage> {
        listed
            .iter()
            .filter(|candidate| {
                tempfile::tempdir_in(&self.folder).is_ok_and(|dir| {
                    self.download(candidate, dir.path(), PackageFiles::Description)
                        .is_ok()
                })
            })
            .collect()
    }
}

/// Returns whether apt has a list of source packages, of `suite` if one is given.
fn has_list(folder: &Path, suite: Option<&str>) -> bool {
    let of_suite = suite.map(|suite| format!("_dists_{}_", suite.replace('/', "_")));
    std::fs::read_dir(folder.join("lists")).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.contains("_source_Sources")
                && of_suite.as_ref().is_none_or(|part| name.contains(part))
        })
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| Error::io("write", path, &e))
}

fn stanzas(
    machine: &[sources::AptSource],
    wanted: &DebianSource,
    others: &[DebianSource],
) -> Result<String> {
    let own_suite = own_suite();
    let choose = |archive: Option<&str>| sources::choose(machine, archive, own_suite.as_deref());
    let mut archives: Vec<(&sources::AptSource, Vec<String>)> = Vec::new();
    // The text must not depend on which release is fetched, so that the lists stay valid.
    let mut all: Vec<&DebianSource> = others.iter().collect();
    if !others.iter().any(|other| same_suite(other, wanted)) {
        all.push(wanted);
    }
    for debian in all {
        let archive = debian.archive.as_deref();
        let source = match choose(archive) {
            Some(source) => source,
            None if !same_suite(debian, wanted) => continue,
            None => {
                let which = archive.map_or_else(
                    || "a Debian archive".to_owned(),
                    |archive| format!("an archive whose address ends in `{archive}`"),
                );
                let error = format!("the machine's apt sources do not have {which}");
                return Err(Error::source_package(error).hint(
                    "add one below /etc/apt/sources.list.d, or give the release as a tarball",
                ));
            }
        };
        match archives.iter_mut().find(|(known, _)| *known == source) {
            Some((_, suites)) if suites.contains(&debian.suite) => {}
            Some((_, suites)) => suites.push(debian.suite.clone()),
            None => archives.push((source, vec![debian.suite.clone()])),
        }
    }
    let stanza = |(source, suites): &(&sources::AptSource, Vec<String>)| {
        sources::private_stanza(source, suites)
    };
    Ok(archives.iter().map(stanza).collect::<Vec<_>>().join("\n"))
}

fn same_suite(a: &DebianSource, b: &DebianSource) -> bool {
    a.archive == b.archive && a.suite == b.suite
}

fn own_suite() -> Option<String> {
    let text = std::fs::read_to_string("/etc/os-release").ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim_matches('"').to_owned())
}

/// Returns the private configuration. apt reads the machine's configuration first, so its proxies and credentials
/// apply. The private one clears the hooks around `update`, which are for the machine's own lists.
fn configuration(folder: &Path) -> String {
    let path = |inner: &str| {
        let text = folder.join(inner).to_string_lossy().into_owned();
        text.replace('"', "")
    };
    let mut text = format!(
        "Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"{}\";\n\
         Dir::State::lists \"{}\";\nDir::Cache \"{}\";\nDir::Cache::archives \"archives/\";\n\
         Acquire::Languages \"none\";\nAPT::Get::List-Cleanup \"false\";\nAcquire::Retries \"2\";\n\
         #clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n",
        path("parts"),
        path("lists"),
        path("cache"),
    );
    if rustix::process::geteuid().is_root() {
        // apt's own user cannot write below root's cache folder.
        text.push_str("APT::Sandbox::User \"root\";\n");
    }
    text
}

fn apt_errors(output: &Output) -> Vec<String> {
    let text = output.stderr_text();
    let lines: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with("E:") || line.starts_with("Err:"))
        .map(str::to_owned)
        .collect();
    if lines.is_empty() {
        output.tail(5)
    } else {
        lines.into_iter().take(8).collect()
    }
}

fn parse_madison(text: &str) -> Vec<SourcePackage> {
    text.lines()
        .filter_map(|line| {
            let mut columns = line.split('|').map(str::trim);
            let (package, version) = (columns.next()?, columns.next()?);
            let place = columns.next()?.strip_suffix(" Sources")?;
            let (_, suite) = place.rsplit_once(' ')?;
            let (suite, _) = suite.rsplit_once('/').unwrap_or((suite, ""));
            Some(SourcePackage {
                package: package.to_owned(),
                version: version.to_owned(),
                suite: suite.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings() {
        let text = "   mariadb | 1:10.11.18-0+deb12u1 | http://m/debian bookworm/main Sources\n\
                    mariadb | 1:10.11.14 | http://m/debian bookworm/main amd64 Packages\n\
                    N: nonsense\n";
        let listed = parse_madison(text);
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].suite, "bookworm");
        assert_eq!(listed[0].upstream(), "10.11.18");
    }

    #[test]
    fn the_machines_files_are_not_touched() {
        let text = configuration(Path::new("/cache/apt"));
        for wanted in [
            "Dir::Etc::sourcelist \"/dev/null\"",
            "Dir::Etc::sourceparts \"/cache/apt/parts\"",
            "Dir::State::lists \"/cache/apt/lists\"",
            "Dir::Cache \"/cache/apt/cache\"",
            "#clear APT::Update::Post-Invoke;",
        ] {
            assert!(text.contains(wanted), "{wanted}");
        }
    }
}
