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
    /// Writes the private configuration below `cache` for `wanted`, and for those of `others` whose
    /// archive the machine has. `etc` is the machine's own configuration, `/etc/apt`.
    ///
    /// # Errors
    /// [`Kind::Usage`] when there is no apt or it has no archive to ask.
    pub fn new(
        cache: &Path,
        wanted: &DebianSource,
        others: &[DebianSource],
        etc: &Path,
    ) -> Result<Self> {
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
        let stanzas = stanzas(&sources::machine_sources(etc)?, wanted, others)?;
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

fn stanzas(
    machine: &[sources::Source],
    wanted: &DebianSource,
    others: &[DebianSource],
) -> Result<String> {
    let own_suite = own_suite();
    let choose = |archive: Option<&str>| sources::choose(machine, archive, own_suite.as_deref());
    let mut archives: Vec<(&sources::Source, Vec<String>)> = Vec::new();
    // The same text whichever of the releases is wanted, so that the lists stay good.
    let mut all: Vec<&DebianSource> = others.iter().collect();
    if !others.iter().any(|other| same_place(other, wanted)) {
        all.push(wanted);
    }
    for debian in all {
        let archive = debian.archive.as_deref();
        let source = match choose(archive) {
            Some(source) => source,
            None if !same_place(debian, wanted) => continue,
            None => {
                let which = archive.map_or_else(
                    || "a Debian archive".to_owned(),
                    |archive| format!("an archive whose address ends in `{archive}`"),
                );
                let error = format!("the machine's apt sources do not have {which}");
                return Err(Error::usage(error).hint(
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
    let stanza = |(source, suites): &(&sources::Source, Vec<String>)| {
        sources::private_stanza(source, suites)
    };
    Ok(archives.iter().map(stanza).collect::<Vec<_>>().join("\n"))
}

fn same_place(a: &DebianSource, b: &DebianSource) -> bool {
    a.archive == b.archive && a.suite == b.suite
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
        let text = std::fs::read_to_string(&path).unwrap_or_default();
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

/// The upstream tarball of `version`, from the cache if it is there, else through apt. `all` are the
/// configured packages, which an error names if they can be had; `etc` is `/etc/apt`.
///
/// # Errors
/// [`Kind::Usage`] when the version cannot be had, naming those that can.
pub fn fetch(
    cache: &Path,
    version: &str,
    wanted: &DebianSource,
    all: &[DebianSource],
    etc: &Path,
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
    let mut apt = Apt::new(cache, wanted, all, etc)?;
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
        let mut there: Vec<&str> = of_suite.iter().map(|listed| listed.upstream()).collect();
        there.sort_unstable();
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
    own_copies(folder)?;
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

/// From an archive on the disk apt makes symbolic links; the cache must outlive that archive.
fn own_copies(folder: &Path) -> Result<()> {
    let io = |e| Error::io("copy into", folder, &e);
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_type().map_err(io)?.is_symlink() {
            let copy = folder.join(".copy");
            std::fs::copy(entry.path(), &copy).map_err(io)?;
            std::fs::rename(&copy, entry.path()).map_err(io)?;
        }
    }
    Ok(())
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

    use crate::progress::Silent;

    /// An archive on the disk with the releases 1.0, and 2.0, whose files are gone.
    fn archive(root: &Path) -> PathBuf {
        let make = |path: &str, content: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        let sum = |path: &str| {
            let path = root.join(path);
            (
                sha256(&path).unwrap(),
                std::fs::metadata(&path).unwrap().len(),
            )
        };
        let mut sources = String::new();
        for version in ["1.0", "2.0"] {
            let orig = format!("srv_{version}.orig.tar.gz");
            make(&format!("archive/pool/{orig}"), "not really a tarball");
            let (digest, size) = sum(&format!("archive/pool/{orig}"));
            let dsc = format!("srv_{version}-1.dsc");
            make(
                &format!("archive/pool/{dsc}"),
                &format!(
                    "Format: 3.0 (quilt)\nSource: srv\nChecksums-Sha256:\n {digest} {size} {orig}\n"
                ),
            );
            let (dsc_digest, dsc_size) = sum(&format!("archive/pool/{dsc}"));
            sources.push_str(&format!(
                "Package: srv\nBinary: srv\nVersion: 1:{version}-1\nArchitecture: any\n\
                 Format: 3.0 (quilt)\nDirectory: pool\nChecksums-Sha256:\n \
                 {dsc_digest} {dsc_size} {dsc}\n {digest} {size} {orig}\n\n"
            ));
        }
        make("archive/dists/test/main/source/Sources", &sources);
        let (digest, size) = sum("archive/dists/test/main/source/Sources");
        make(
            "archive/dists/test/Release",
            &format!(
                "Suite: test\nCodename: test\nComponents: main\nArchitectures: amd64\n\
                 Date: Mon, 03 Jun 2024 10:00:00 UTC\nSHA256:\n {digest} {size} main/source/Sources\n"
            ),
        );
        std::fs::remove_file(root.join("archive/pool/srv_2.0.orig.tar.gz")).unwrap();
        std::fs::remove_file(root.join("archive/pool/srv_2.0-1.dsc")).unwrap();
        make(
            "etc/sources.list.d/local.sources",
            &format!(
                "Types: deb\nURIs: file:{}\nSuites: other\nComponents: main\nTrusted: yes\n",
                root.join("archive").display()
            ),
        );
        root.join("etc")
    }

    #[test]
    fn fetches_through_apt_and_names_what_can_be_had() {
        if find_program("apt-get").is_none() {
            // Other systems have no apt to test.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let etc = archive(dir.path());
        let cache = dir.path().join("cache");
        let wanted = DebianSource {
            package: "srv".into(),
            suite: "test".into(),
            archive: None,
        };
        let get = |version: &str| {
            let all = [wanted.clone()];
            fetch(&cache, version, &wanted, &all, &etc, &Silent)
        };
        let download = get("1.0").unwrap();
        assert_eq!(
            std::fs::read(&download.file).unwrap(),
            b"not really a tarball"
        );
        assert_eq!(download.sha256, sha256(&download.file).unwrap());

        let gone = get("2.0").unwrap_err();
        assert_eq!(
            gone.message(),
            "srv 1:2.0-1 is listed by test, but cannot be downloaded"
        );
        assert_eq!(
            gone.hint_text().unwrap(),
            "can be had: srv 1.0 (test); set one in bench-config/perfquilt.toml"
        );
        let unknown = get("3.0").unwrap_err();
        assert_eq!(
            unknown.message(),
            "srv 3.0 is not in test, which has 1.0, 2.0"
        );

        // Once downloaded, neither apt nor the archive is needed; a damaged file is noticed.
        std::fs::remove_dir_all(dir.path().join("archive")).unwrap();
        std::fs::remove_dir_all(cache.join("apt")).unwrap();
        assert_eq!(get("1.0").unwrap(), download);
        std::fs::write(&download.file, "damaged").unwrap();
        assert!(get("1.0").is_err());
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
