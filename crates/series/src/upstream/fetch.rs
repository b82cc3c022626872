//! Fetching a release from its configured source into the object store.

use std::path::{Path, PathBuf};

use git2::Oid;
use tempfile::TempPath;

use super::lock::LockedRelease;
use super::objects::Objects;
use super::{debian, directory, git, source_text, tarball};
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{DebianSource, ReleaseSource};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_system::locks;
use perfquilt_system::process::{Command, find_program};

/// The machine's own configuration of apt.
pub(super) const APT: &str = "/etc/apt";

/// Imports a release's tree into the object store, and returns its record.
pub(super) fn fetch(
    ws: &Workspace,
    store: &Objects,
    source: &ReleaseSource,
    locked: Option<&LockedRelease>,
) -> Result<LockedRelease> {
    let record = |tree: Oid| LockedRelease {
        version: source.version.clone(),
        source: source_text(source),
        tree: tree.to_string(),
        ..LockedRelease::default()
    };
    let label = ws.config.release_name(&source.version);
    if let Some(git) = &source.git {
        let tagged = git::fetch(store, git, ws.root(), &source.version)?;
        return Ok(LockedRelease {
            commit: tagged.commit.to_string(),
            ..record(tagged.tree)
        });
    }
    if let Some(directory) = &source.directory {
        let root = ws.root().join(directory);
        let imported = directory::import_directory(store, &root, &label)
            .map_err(|error| at_directory(ws, source, error))?;
        return Ok(record(imported.tree));
    }
    let is_recorded = |sha256: &str| {
        locked.is_none_or(|locked| locked.sha256.is_empty() || locked.sha256 == sha256)
    };
    let found = match archive(ws, source) {
        Ok((_, sha256)) if !source.copies.is_empty() && !is_recorded(&sha256) => {
            let fault = format!("the file of {label} is not the recorded one");
            copy(ws, source, locked, Error::arguments(fault))
        }
        Err(error) if error.kind() == Kind::Usage && !source.copies.is_empty() => {
            copy(ws, source, locked, error)
        }
        found => found,
    };
    let (file, sha256) = found.map_err(|error| suggest(ws, source, locked, error))?;
    let imported = tarball::import_tarball(store, &file, &label)?;
    progress::note(&format!(
        "{label}: {} files, {} MB",
        imported.files,
        imported.bytes / 1_000_000
    ));
    let name = file.file_name().unwrap_or_default();
    Ok(LockedRelease {
        file: name.to_string_lossy().into_owned(),
        sha256,
        ..record(imported.tree)
    })
}

/// Returns the path of the release's tarball and its SHA-256, after checking it.
fn archive(ws: &Workspace, source: &ReleaseSource) -> Result<(PathBuf, String)> {
    if let Some(wanted) = &source.debian {
        let all = packages(ws);
        return debian::fetch(ws.cache(), &source.version, wanted, &all, Path::new(APT)).map_err(
            |error| match error.kind() {
                Kind::Usage => error.at(CONFIG_FILE, None),
                _ => error,
            },
        );
    }
    let tarball = source
        .tarball
        .as_ref()
        .ok_or_else(|| Error::internal("a release without a source"))?;
    let expected = tarball.sha256.to_lowercase();
    if is_address(&tarball.url) {
        let file = download(ws, &tarball.url, &expected)?;
        return Ok((file, expected));
    }
    let file = ws.root().join(&tarball.url);
    if !file.is_file() {
        return Err(Error::download(format!("there is no file {}", tarball.url))
            .at(CONFIG_FILE, None)
            .hint("a relative path starts at the workspace's root"));
    }
    check(&file, &expected)?;
    Ok((file, expected))
}

/// Returns the same from the first of the release's copies that is the recorded file, or else `error`, the source's own,
/// with what is wrong with each copy.
fn copy(
    ws: &Workspace,
    source: &ReleaseSource,
    locked: Option<&LockedRelease>,
    mut error: Error,
) -> Result<(PathBuf, String)> {
    let (target, expected) = match recorded_file(ws, source, locked) {
        Ok(recorded) => recorded,
        Err(fault) => return Err(error.details([fault.message()])),
    };
    for url in &source.copies {
        progress::note(&format!("{}; trying {url}", error.message()));
        match download(ws, url, &expected) {
            Ok(file) if target.is_none() => return Ok((file, expected)),
            Ok(file) => return Ok((supply(ws, source, locked, &file)?, expected)),
            Err(fault) if fault.kind() == Kind::Usage => error = error.details([fault.message()]),
            Err(fault) => return Err(fault),
        }
    }
    Err(error)
}

/// Adds how to go on when a release's file cannot be fetched.
fn suggest(
    ws: &Workspace,
    source: &ReleaseSource,
    locked: Option<&LockedRelease>,
    error: Error,
) -> Error {
    if error.kind() != Kind::Usage {
        return error;
    }
    let error = match recorded_file(ws, source, locked) {
        Ok((Some(target), sha256)) => error.details([
            format!(
                "{} has sha256 {sha256}",
                target.file_name().unwrap_or_default().to_string_lossy()
            ),
            format!(
                "with a copy from upstream or an archive of old packages: perfquilt upstream fetch {} --from FILE",
                source.version
            ),
        ]),
        _ => error,
    };
    match &source.debian {
        Some(wanted) if error.hint_text().is_none() => {
            let hint = debian::available(ws.cache(), &source.version, wanted, &packages(ws), APT);
            error.hint_if(hint)
        }
        _ => error,
    }
}

/// Returns all configured source packages.
pub(super) fn packages(ws: &Workspace) -> Vec<DebianSource> {
    let releases = ws.config.upstream.release.iter();
    releases
        .filter_map(|release| release.debian.clone())
        .collect()
}

/// Adds the line of a release's `directory` in the configuration to an error without a place of its own.
fn at_directory(ws: &Workspace, source: &ReleaseSource, error: Error) -> Error {
    if error.kind() != Kind::Usage || error.location().is_some() {
        return error;
    }
    let mut releases = ws.config.upstream.release.iter();
    let index = releases.position(|release| release.version == source.version);
    let index = index.unwrap_or_default().to_string();
    ws.config
        .locate(&["upstream", "release", &index, "directory"], error)
}

/// Returns whether a release is a tarball given by its path: the user's own file, not a download in the cache.
pub(super) fn is_local_file(source: &ReleaseSource) -> bool {
    let tarball = source.tarball.as_ref();
    tarball.is_some_and(|tarball| !is_address(&tarball.url))
}

/// Returns the folder of a download with this SHA-256.
fn download_folder(ws: &Workspace, sha256: &str) -> PathBuf {
    let name = sha256.get(..16).unwrap_or_default();
    ws.cache().join("downloads").join(name)
}

/// Returns the name of the file that an address ends in.
fn name_in(url: &str) -> &str {
    url.split(['?', '#'])
        .next()
        .and_then(|path| path.rsplit('/').next())
        .filter(|name| !name.is_empty() && !name.starts_with('.'))
        .unwrap_or("release.tar")
}

fn is_address(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

fn check(file: &Path, expected: &str) -> Result<()> {
    let found = tarball::sha256(file)?;
    if found == expected {
        return Ok(());
    }
    Err(
        Error::checksum(format!("{} does not match its SHA-256", file.display()))
            .details([format!("expected {expected}"), format!("found    {found}")])
            .hint("it is damaged or another file; if the configuration is wrong, correct it there"),
    )
}

/// Downloads a tarball unless the cache has it with the expected digest, which names its folder. Returns the checked
/// file.
fn download(ws: &Workspace, url: &str, expected: &str) -> Result<PathBuf> {
    let scheme = url.split("://").next().unwrap_or_default();
    if !["http", "https", "ftp"].contains(&scheme) {
        return Err(Error::download(format!("cannot download from {scheme}://"))
            .at(CONFIG_FILE, None)
            .hint("http, https, ftp or a file's path"));
    }
    let name = name_in(url);
    let folder = download_folder(ws, expected);
    let target = folder.join(name);
    let is_there =
        || -> Result<bool> { Ok(target.is_file() && tarball::sha256(&target)? == expected) };
    if is_there()? {
        return Ok(target);
    }
    // A fixed name, so that the next download replaces the leftover of a killed one.
    let part = folder.join(format!(".{name}.part"));
    let _turn = locks::wait(&part, || {
        progress::note(&format!("waiting: another perfquilt downloads {name}"));
    })?;
    // Dropping it removes the file before the lock is released, unless `persist` renames it.
    let part = TempPath::try_from_path(&part).map_err(|e| Error::io("find", &part, &e))?;
    if is_there()? {
        return Ok(target);
    }
    let command = if find_program("curl").is_some() {
        Command::new("curl")
            .args(["--fail", "--silent", "--show-error", "--location"])
            .args([
                "--proto",
                "=http,https,ftp",
                "--retry",
                "2",
                "--connect-timeout",
                "30",
                // A server that sends nothing more counts as down.
                "--speed-limit",
                "1024",
                "--speed-time",
                "60",
            ])
            .arg("--output")
            .arg(part.as_os_str())
            .args(["--", url])
    } else if find_program("wget").is_some() {
        Command::new("wget")
            .args(["--quiet", "--tries=3", "--timeout=30", "-O"])
            .arg(part.as_os_str())
            .args(["--", url])
    } else {
        return Err(Error::download("neither curl nor wget is installed")
            .hint("`apt-get install curl`, or give the tarball as a file"));
    };
    let step = progress::begin(&format!("downloading {name}"), None);
    let output = command.network().run()?;
    if !output.success() {
        return Err(Error::download(format!("cannot download {url}"))
            .details(output.tail(4))
            .hint("give the address of a reachable copy, or the tarball as a file"));
    }
    let found = tarball::sha256(&part)?;
    if found != expected {
        return Err(Error::checksum(format!("{url} does not match its SHA-256"))
            .details([format!("expected {expected}"), format!("found    {found}")])
            .hint("it is another file than the configuration names, or it changed"));
    }
    part.persist(&target)
        .map_err(|error| Error::io("write", &target, &error.error))?;
    step.finish("");
    Ok(target)
}

/// Puts `file`, the source file of a release from elsewhere, into the cache as if it had been downloaded, and returns its
/// path there. The recorded or configured digest decides whether it is that file.
pub(super) fn supply(
    ws: &Workspace,
    source: &ReleaseSource,
    locked: Option<&LockedRelease>,
    file: &Path,
) -> Result<PathBuf> {
    if !file.is_file() {
        return Err(Error::download(format!(
            "there is no file {}",
            file.display()
        )));
    }
    let (Some(target), expected) = recorded_file(ws, source, locked)? else {
        return Err(not_downloaded(source));
    };
    if target == file {
        return Ok(target);
    }
    check(file, &expected)?;
    let folder = target.parent().unwrap_or(ws.cache());
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
    // Renamed, so that a killed copy leaves no half a file under that name.
    let copy = folder.join(".copy");
    std::fs::copy(file, &copy).map_err(|e| Error::io("copy", &copy, &e))?;
    std::fs::rename(&copy, &target).map_err(|e| Error::io("write", &target, &e))?;
    if source.debian.is_some() {
        debian::describe(folder)?;
    }
    Ok(target)
}

/// Returns where the cache has the source file of a release, if it is downloaded, and its recorded or configured SHA-256.
fn recorded_file(
    ws: &Workspace,
    source: &ReleaseSource,
    locked: Option<&LockedRelease>,
) -> Result<(Option<PathBuf>, String)> {
    let version = &source.version;
    if let Some(debian) = &source.debian {
        let Some(locked) = locked.filter(|locked| !locked.sha256.is_empty()) else {
            return Err(Error::lock_file(format!(
                "cannot verify the file of release {version}: the lock file has no SHA-256 of it"
            ))
            .at("bench-config/upstream.lock", None)
            .hint(
                "give the release as `tarball = { url, sha256 }` in bench-config/perfquilt.toml",
            ));
        };
        let target = debian::folder(ws.cache(), version, debian).join(file_name(&locked.file)?);
        return Ok((Some(target), locked.sha256.clone()));
    }
    let Some(tarball) = &source.tarball else {
        return Err(not_downloaded(source));
    };
    let expected = tarball.sha256.to_lowercase();
    let target = is_address(&tarball.url)
        .then(|| download_folder(ws, &expected).join(name_in(&tarball.url)));
    Ok((target, expected))
}

fn not_downloaded(source: &ReleaseSource) -> Error {
    Error::arguments(format!(
        "release {} is not downloaded as a file, so `--from` does not apply",
        source.version
    ))
    .at(CONFIG_FILE, None)
}

/// Returns `name` if it is the name of a file and no path.
fn file_name(name: &str) -> Result<&str> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(
            Error::arguments(format!("`{}` is not a file name", name.escape_debug()))
                .at("bench-config/upstream.lock", None),
        );
    }
    Ok(name)
}

/// Returns the source file `name` of a release with its current SHA-256, if it still exists. Does not use the network.
pub(super) fn existing_file(
    ws: &Workspace,
    source: &ReleaseSource,
    name: &str,
) -> Result<Option<(PathBuf, String)>> {
    let file = if let Some(debian) = &source.debian {
        debian::folder(ws.cache(), &source.version, debian).join(name)
    } else if let Some(tarball) = &source.tarball {
        if is_address(&tarball.url) {
            download_folder(ws, &tarball.sha256.to_lowercase()).join(name)
        } else {
            ws.root().join(&tarball.url)
        }
    } else {
        return Ok(None);
    };
    if !file.is_file() {
        return Ok(None);
    }
    let found = tarball::sha256(&file)?;
    Ok(Some((file, found)))
}
