//! Releases from Debian source packages, fetched by the machine's own apt with a private
//! configuration: the machine's mirror, proxies and keys are used, its files are not touched.

mod sources;

use std::path::{Path, PathBuf};

use crate::config::DebianSource;
use crate::error::{Error, Kind, Result};
use crate::process::{Command, find_program};
use crate::progress::Progress;

use super::tarball::sha256;

/// A source package's upstream tarball on the disk, checked against its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// The tarball.
    pub file: PathBuf,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
    /// Where it came from, for people.
    pub source: String,
}

/// A source package as an archive lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The source package's name.
    pub package: String,
    /// Debian's version, epoch and revision included.
    pub version: String,
    /// The suite.
    pub suite: String,
}

impl Listed {
    /// The upstream part of the version.
    pub fn upstream(&self) -> &str {
        upstream_version(&self.version)
    }
}

/// Debian's version without epoch, revision and repacking mark.
pub fn upstream_version(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let version = version.rsplit_once('-').map_or(version, |(rest, _)| rest);
    let marks = ["+dfsg", "+ds", "+repack", "~dfsg", "~ds"];
    let end = marks.iter().filter_map(|mark| version.find(mark)).min();
    end.map_or(version, |end| &version[..end])
}

/// apt with a configuration of our own.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    config: PathBuf,
    has_lists: bool,
}

impl Apt {
    /// Writes the private configuration below `cache` for everything in `wanted`.
    ///
    /// # Errors
    /// [`Kind::Usage`] when there is no apt or it has no archive to ask.
    pub fn new(cache: &Path, wanted: &[DebianSource]) -> Result<Self> {
        Self::with_etc(cache, wanted, Path::new("/etc/apt"))
    }

    fn with_etc(cache: &Path, wanted: &[DebianSource], etc: &Path) -> Result<Self> {
        if find_program("apt-get").is_none() {
            return Err(Error::usage("this machine has no apt-get").hint(
                "give the release as a tarball, a git tag or a directory in bench-config/perfquilt.toml",
            ));
        }
        let folder = cache.join("apt");
        let make =
            |path: &Path| std::fs::create_dir_all(path).map_err(|e| Error::io("create", path, &e));
        for inner in ["parts", "lists/partial", "cache/archives/partial"] {
            make(&folder.join(inner))?;
        }
        let stanzas = stanzas(&sources::machine_sources(etc)?, wanted)?;
        let parts = folder.join("parts/perfquilt.sources");
        let config = folder.join("apt.conf");
        let unchanged = std::fs::read_to_string(&parts).is_ok_and(|text| text == stanzas);
        write(&parts, &stanzas)?;
        write(&config, &configuration(&folder))?;
        let has_lists = unchanged
            && std::fs::read_dir(folder.join("lists")).is_ok_and(|entries| {
                entries.flatten().any(|entry| {
                    entry
                        .file_name()
                        .to_string_lossy()
                        .contains("_source_Sources")
                })
            });
        Ok(Apt {
            folder,
            config,
            has_lists,
        })
    }

    fn command(&self, program: &str) -> Command {
        Command::new(program).arg("-c").arg(&self.config)
    }

    /// Fetches the archives' lists, unless `only_if_missing` and they are there.
    ///
    /// # Errors
    /// [`Kind::Usage`] with apt's own words when nothing could be fetched.
    pub fn update(&mut self, only_if_missing: bool, progress: &dyn Progress) -> Result<()> {
        if only_if_missing && self.has_lists {
            return Ok(());
        }
        let step = progress.begin("fetching the source packages' lists", None);
        let output = self.command("apt-get").args(["-q", "update"]).run()?;
        if !output.success() {
            let errors = apt_errors(&output);
            if !self.has_lists {
                return Err(Error::usage("apt cannot fetch the source packages' lists")
                    .details(errors)
                    .hint("is the machine's mirror reachable? `apt-get update` tells"));
            }
            progress.warn("apt could not refresh the lists; using those from before");
        }
        self.has_lists = true;
        step.finish("");
        Ok(())
    }

    /// What the archives list of the source packages called `packages`.
    ///
    /// # Errors
    /// [`Kind::Internal`] when apt cannot read its lists.
    pub fn listed(&self, packages: &[&str]) -> Result<Vec<Listed>> {
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

    /// Downloads a source package's files into `folder`; `description_only` fetches just the `.dsc`.
    ///
    /// # Errors
    /// [`Kind::Usage`] with apt's own words.
    pub fn download(&self, listed: &Listed, folder: &Path, description_only: bool) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
        let what = if description_only {
            "--dsc-only"
        } else {
            "--download-only"
        };
        let output = self
            .command("apt-get")
            .args(["-q", "--download-only", "--only-source", what, "source"])
            .arg(format!("{}={}", listed.package, listed.version))
            .directory(folder)
            .run()?;
        if output.success() {
            Ok(())
        } else {
            Err(Error::usage(format!(
                "{} {} is listed by {}, but cannot be downloaded",
                listed.package, listed.version, listed.suite
            ))
            .details(apt_errors(&output)))
        }
    }

    /// Those of `listed` whose description can be downloaded.
    fn reachable<'a>(&self, listed: &'a [Listed]) -> Vec<&'a Listed> {
        listed
            .iter()
            .filter(|candidate| {
                tempfile::tempdir_in(&self.folder)
                    .is_ok_and(|dir| self.download(candidate, dir.path(), true).is_ok())
            })
            .collect()
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| Error::io("write", path, &e))
}

fn stanzas(machine: &[sources::Source], wanted: &[DebianSource]) -> Result<String> {
    let own_suite = own_suite();
    let mut archives: Vec<(Option<&str>, Vec<String>)> = Vec::new();
    for debian in wanted {
        let archive = debian.archive.as_deref();
        let index = archives
            .iter()
            .position(|(known, _)| *known == archive)
            .unwrap_or_else(|| {
                archives.push((archive, Vec::new()));
                archives.len() - 1
            });
        if !archives[index].1.contains(&debian.suite) {
            archives[index].1.push(debian.suite.clone());
        }
    }
    let mut text = String::new();
    for (archive, suites) in archives {
        let source = sources::choose(machine, archive, own_suite.as_deref()).ok_or_else(|| {
            let which = archive.map_or_else(
                || "a Debian archive".to_owned(),
                |archive| format!("an archive whose address ends in `{archive}`"),
            );
            Error::usage(format!("the machine's apt sources do not have {which}"))
                .hint("add one below /etc/apt/sources.list.d, or give the release as a tarball")
        })?;
        text.push_str(&sources::private_stanza(source, &suites));
        text.push('\n');
    }
    Ok(text)
}

fn own_suite() -> Option<String> {
    let text = std::fs::read_to_string("/etc/os-release").ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim_matches('"').to_owned())
}

/// The machine's configuration is read first, so its proxies and credentials hold; its hooks around
/// `update` are for the machine's own lists and are left out.
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

fn apt_errors(output: &crate::process::Output) -> Vec<String> {
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

fn parse_madison(text: &str) -> Vec<Listed> {
    text.lines()
        .filter_map(|line| {
            let mut columns = line.split('|').map(str::trim);
            let (package, version) = (columns.next()?, columns.next()?);
            let place = columns.next()?.strip_suffix(" Sources")?;
            let (_, suite) = place.rsplit_once(' ')?;
            let (suite, _) = suite.rsplit_once('/').unwrap_or((suite, ""));
            Some(Listed {
                package: package.to_owned(),
                version: version.to_owned(),
                suite: suite.to_owned(),
            })
        })
        .collect()
}

/// Name and SHA-256 of the upstream tarball that a `.dsc` describes.
fn upstream_tarball(dsc: &str) -> Option<(String, String)> {
    let mut inside = false;
    let mut native = None;
    for line in dsc.lines() {
        if let Some(entry) = line.strip_prefix(' ')
            && inside
        {
            let mut words = entry.split_whitespace();
            let (sum, _, name) = (words.next()?, words.next()?, words.next()?);
            if name.contains('/') || sum.len() != 64 {
                return None;
            }
            if name.contains(".orig.tar.") && !name.ends_with(".asc") {
                return Some((name.to_owned(), sum.to_owned()));
            }
            if name.contains(".tar.")
                && !name.contains(".debian.tar.")
                && !name.contains(".orig-")
                && !name.ends_with(".asc")
            {
                native = Some((name.to_owned(), sum.to_owned()));
            }
        } else {
            inside = line.starts_with("Checksums-Sha256:");
        }
    }
    native
}

/// The tarball in `folder`, if a description there names one and its digest is right.
fn already_there(folder: &Path) -> Result<Option<(PathBuf, String)>> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(None);
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "dsc") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, &e))?;
        let Some((name, expected)) = upstream_tarball(&text) else {
            continue;
        };
        let file = folder.join(name);
        if file.is_file() && sha256(&file)? == expected {
            return Ok(Some((file, expected)));
        }
    }
    Ok(None)
}

/// The upstream tarball of `version`, from the cache if it is there, else through apt.
///
/// # Errors
/// [`Kind::Usage`] when the version cannot be had, naming those that can.
pub fn fetch(
    cache: &Path,
    version: &str,
    wanted: &DebianSource,
    all: &[DebianSource],
    progress: &dyn Progress,
) -> Result<Download> {
    let folder = cache
        .join("downloads")
        .join(format!("{}_{version}", wanted.package));
    let source = format!("debian {} {}", wanted.suite, wanted.package);
    let done = |(file, sha256)| Download {
        file,
        sha256,
        source: source.clone(),
    };
    if let Some(found) = already_there(&folder)? {
        return Ok(done(found));
    }
    let mut apt = Apt::new(cache, all)?;
    let had_lists = apt.has_lists;
    apt.update(true, progress)?;
    let mut result = try_fetch(&apt, version, wanted, &folder, progress);
    if result.is_err() && had_lists {
        // The lists may be older than the archive.
        crate::process::check_interrupted()?;
        apt.update(false, progress)?;
        result = try_fetch(&apt, version, wanted, &folder, progress);
    }
    result.map(done).map_err(|error| {
        if error.kind() == Kind::Interrupted {
            return error;
        }
        let hint = reachable_hint(&apt, version, wanted, all);
        error.hint(hint)
    })
}

fn try_fetch(
    apt: &Apt,
    version: &str,
    wanted: &DebianSource,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<(PathBuf, String)> {
    let listed = apt.listed(&[&wanted.package])?;
    let of_suite: Vec<&Listed> = listed
        .iter()
        .filter(|listed| listed.suite == wanted.suite)
        .collect();
    let Some(found) = of_suite.iter().find(|listed| listed.upstream() == version) else {
        let there: Vec<&str> = of_suite.iter().map(|listed| listed.upstream()).collect();
        let there = if there.is_empty() {
            "no such source package".to_owned()
        } else {
            there.join(", ")
        };
        return Err(Error::usage(format!(
            "{} {version} is not in {}, which has {there}",
            wanted.package, wanted.suite
        )));
    };
    let step = progress.begin(
        &format!("downloading {} {}", found.package, found.version),
        None,
    );
    apt.download(found, folder, false)?;
    let file = already_there(folder)?.ok_or_else(|| {
        Error::usage(format!(
            "the upstream tarball of {} {} is missing or fails its sha256",
            found.package, found.version
        ))
        .details([format!("see {}", folder.display())])
    })?;
    step.finish("");
    Ok(file)
}

fn reachable_hint(apt: &Apt, version: &str, wanted: &DebianSource, all: &[DebianSource]) -> String {
    let mut packages: Vec<&str> = all.iter().map(|debian| debian.package.as_str()).collect();
    packages.push(&wanted.package);
    packages.sort_unstable();
    packages.dedup();
    let mut listed = apt.listed(&packages).unwrap_or_default();
    listed.retain(|candidate| candidate.upstream() != version || candidate.suite != wanted.suite);
    let reachable: Vec<String> = apt
        .reachable(&listed)
        .into_iter()
        .map(|listed| {
            format!(
                "{} {} ({})",
                listed.package,
                listed.upstream(),
                listed.suite
            )
        })
        .collect();
    if reachable.is_empty() {
        "no other version can be had either; is the machine's mirror reachable?".to_owned()
    } else {
        format!(
            "can be had: {}; set one in bench-config/perfquilt.toml",
            reachable.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_versions() {
        for (debian, upstream) in [
            ("1:10.11.18-0+deb12u1", "10.11.18"),
            ("5:7.0.15-1~deb12u5", "7.0.15"),
            ("2.0", "2.0"),
            ("1.2+dfsg1-3", "1.2"),
            ("1.0-rc1-2", "1.0-rc1"),
        ] {
            assert_eq!(upstream_version(debian), upstream);
        }
    }

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
    fn descriptions() {
        let sum = "a".repeat(64);
        let dsc = format!(
            "Checksums-Sha1:\n bb 1 x.orig.tar.gz\nChecksums-Sha256:\n {sum} 1 x_1.orig.tar.gz.asc\n \
             {sum} 1 x_1-1.debian.tar.xz\n {sum} 1 x_1.orig.tar.gz\nFiles:\n cc 1 y.orig.tar.gz\n"
        );
        assert_eq!(
            upstream_tarball(&dsc),
            Some(("x_1.orig.tar.gz".to_owned(), sum.clone()))
        );
        let escaping = format!("Checksums-Sha256:\n {sum} 1 ../x_1.orig.tar.gz\n");
        assert_eq!(upstream_tarball(&escaping), None);
    }
}
