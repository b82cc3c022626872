//! Releases from Debian source packages, fetched by the machine's own apt with a private configuration. It uses the
//! machine's mirror, proxies and keys and leaves its files alone.

mod apt;
mod sources;

use std::path::{Path, PathBuf};

use perfquilt_config::DebianSource;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;

use super::tarball::sha256;
use apt::{Apt, PackageFiles, SourcePackage};

/// Returns Debian's version without epoch, revision and repacking suffix.
pub fn upstream_version(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let version = version.rsplit_once('-').map_or(version, |(rest, _)| rest);
    let marks = ["+dfsg", "+ds", "+repack", "~dfsg", "~ds"];
    let end = marks.iter().filter_map(|mark| version.find(mark)).min();
    end.map_or(version, |end| &version[..end])
}

/// Returns name and SHA-256 of the upstream tarball that a `.dsc` lists.
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

/// Returns the tarball in `folder` and its SHA-256, if a description there lists it with this digest.
fn cached_tarball(folder: &Path) -> Result<Option<(PathBuf, String)>> {
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

/// Returns the folder of a release's source package below `cache`.
pub fn folder(cache: &Path, version: &str, debian: &DebianSource) -> PathBuf {
    cache
        .join("downloads")
        .join(format!("{}_{version}", debian.package))
}

/// Returns the upstream tarball of `version`, from the cache or through apt, and its SHA-256. `all` are the configured
/// packages; `etc` is `/etc/apt`.
pub fn fetch(
    cache: &Path,
    version: &str,
    wanted: &DebianSource,
    all: &[DebianSource],
    etc: &Path,
) -> Result<(PathBuf, String)> {
    let folder = folder(cache, version, wanted);
    if let Some(found) = cached_tarball(&folder)? {
        return Ok(found);
    }
    let mut apt = Apt::new(cache, wanted, all, etc)?;
    let had_lists = apt.has_lists();
    apt.update(&wanted.suite, true)?;
    let mut result = try_fetch(&apt, version, wanted, &folder);
    if result.is_err() && had_lists {
        // The lists may be older than the archive.
        perfquilt_system::process::check_interrupted()?;
        apt.update(&wanted.suite, false)?;
        result = try_fetch(&apt, version, wanted, &folder);
    }
    result
}

/// Returns the newest upstream version of a package in its suite, by the archive's current lists.
pub fn newest(
    cache: &Path,
    wanted: &DebianSource,
    all: &[DebianSource],
    etc: &Path,
) -> Result<String> {
    let mut apt = Apt::new(cache, wanted, all, etc)?;
    apt.update(&wanted.suite, false)?;
    let listed = apt.listed(&[&wanted.package])?;
    let found = listed.iter().find(|listed| listed.suite == wanted.suite);
    let DebianSource { package, suite, .. } = wanted;
    let missing = || Error::source_package(format!("{suite} has no source package {package}"));
    Ok(found.ok_or_else(missing)?.upstream().to_owned())
}

fn try_fetch(
    apt: &Apt,
    version: &str,
    wanted: &DebianSource,
    folder: &Path,
) -> Result<(PathBuf, String)> {
    let listed = apt.listed(&[&wanted.package])?;
    let of_suite: Vec<&SourcePackage> = listed
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
        return Err(Error::source_package(format!(
            "{} {version} is not in {}, which has {there}",
            wanted.package, wanted.suite
        )));
    };
    let step = progress::begin(
        &format!("downloading {} {}", found.package, found.version),
        None,
    );
    if let Err(error) = apt.download(found, folder, PackageFiles::All) {
        perfquilt_system::process::check_interrupted()?;
        // Mirrors drop Debian's own files of a version at once when the next one arrives, but not the tarball, which both have.
        let tarball = apt.download(found, folder, PackageFiles::Tarball);
        tarball.and_then(|()| describe(folder)).map_err(|_| error)?;
    }
    replace_links(folder)?;
    let file = cached_tarball(folder)?.ok_or_else(|| {
        Error::checksum(format!(
            "the upstream tarball of {} {} is missing or does not match its SHA-256",
            found.package, found.version
        ))
        .details([format!("see {}", folder.display())])
    })?;
    step.finish("");
    Ok(file)
}

/// Writes a description of the upstream tarball in `folder`, which was checked, so that the cached file is checked
/// as any other.
pub fn describe(folder: &Path) -> Result<()> {
    let io = |e| Error::io("read", folder, &e);
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.contains(".tar.") {
            continue;
        }
        let size = std::fs::metadata(&path).map_err(io)?.len();
        let text = format!("Checksums-Sha256:\n {} {size} {name}\n", sha256(&path)?);
        if upstream_tarball(&text).is_some() {
            let description = folder.join("tarball.dsc");
            return std::fs::write(&description, text)
                .map_err(|e| Error::io("write", &description, &e));
        }
    }
    Err(Error::source_package(
        "the source package has no upstream tarball",
    ))
}

/// Replaces symbolic links in `folder` by copies. apt links to files of a local archive, and the cache must outlive
/// that.
fn replace_links(folder: &Path) -> Result<()> {
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

/// Returns a hint that lists the versions of the packages `all` that can be downloaded instead; `None` without apt.
pub fn available(
    cache: &Path,
    version: &str,
    wanted: &DebianSource,
    all: &[DebianSource],
    etc: impl AsRef<Path>,
) -> Option<String> {
    let apt = Apt::new(cache, wanted, all, etc.as_ref()).ok()?;
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
    Some(if reachable.is_empty() {
        "no other version is available either; is the machine's mirror reachable?".to_owned()
    } else {
        format!(
            "name another address of its file in `copies`; other versions in the archive: {}",
            reachable.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use perfquilt_system::process::find_program;

    /// Creates a local archive that lists the releases 1.0, 2.0 and 3.0. The files of 2.0 are missing, and of 3.0 all but
    /// the tarball.
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
        for version in ["1.0", "2.0", "3.0"] {
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
        std::fs::remove_file(root.join("archive/pool/srv_3.0-1.dsc")).unwrap();
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
    fn fetches_through_apt_and_lists_available_versions() {
        assert!(
            find_program("apt-get").is_some(),
            "this test needs apt-get, which every Debian machine has"
        );
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
            fetch(&cache, version, &wanted, &all, &etc)
        };
        let download = get("1.0").unwrap();
        assert_eq!(std::fs::read(&download.0).unwrap(), b"not really a tarball");
        assert_eq!(download.1, sha256(&download.0).unwrap());

        let hint = |version: &str| {
            let all = [wanted.clone()];
            available(&cache, version, &wanted, &all, &etc).unwrap()
        };
        let gone = get("2.0").unwrap_err();
        assert_eq!(
            gone.message(),
            "srv 1:2.0-1 is listed by test, but cannot be downloaded"
        );
        assert_eq!(
            hint("2.0"),
            "name another address of its file in `copies`; other versions in the archive: srv 1.0 (test)"
        );
        // The archive's signed list has the tarball's digest too.
        let download = get("3.0").unwrap();
        assert_eq!(download.1, sha256(&download.0).unwrap());
        assert_eq!(get("3.0").unwrap(), download);
        let download = get("1.0").unwrap();
        let unknown = get("4.0").unwrap_err();
        assert_eq!(
            unknown.message(),
            "srv 4.0 is not in test, which has 1.0, 2.0, 3.0"
        );

        // Another release's suite has left the archive.
        std::fs::remove_dir_all(cache.join("apt")).unwrap();
        let left = DebianSource {
            suite: "left".into(),
            ..wanted.clone()
        };
        let all = [left.clone(), wanted.clone()];
        std::fs::remove_file(download.0.with_file_name("srv_1.0-1.dsc")).unwrap();
        assert_eq!(fetch(&cache, "1.0", &wanted, &all, &etc).unwrap(), download);
        let fault = fetch(&cache, "1.1", &left, &all, &etc).unwrap_err();
        assert!(
            fault
                .message()
                .contains("cannot fetch the source packages' lists"),
            "{fault}"
        );

        // A downloaded file needs neither apt nor the archive; a damaged one is an error.
        std::fs::remove_dir_all(dir.path().join("archive")).unwrap();
        std::fs::remove_dir_all(cache.join("apt")).unwrap();
        assert_eq!(get("1.0").unwrap(), download);
        std::fs::write(&download.0, "damaged").unwrap();
        assert!(get("1.0").is_err());
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
