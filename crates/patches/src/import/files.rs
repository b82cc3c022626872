//! Reads folders of patches: with a `series`, without one, and one folder for each release.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::{MAX_BYTES, Source, SourcePatch};
use crate::series::{SeriesFile, looks_like_patch, path};
use crate::stack::format::changed_paths;
use crate::stack::trial::TrialTree;
use crate::upstream::Objects;
use crate::upstream::objects::{MODE_EXEC, MODE_LINK};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};

/// Places of a series below a source tree's root.
const PLACES: [&str; 3] = ["", "debian/patches", "patches"];

/// Returns version and folder of every configured release that has a folder of its name in `source`.
pub(super) fn folders_of_releases(ws: &Workspace, source: &Path) -> Result<Vec<(String, PathBuf)>> {
    let releases = ws.config.upstream.release.iter();
    let found = releases.filter_map(|release| {
        let names = [
            release.version.clone(),
            ws.config.release_name(&release.version),
        ];
        let folder = names
            .iter()
            .map(|name| source.join(name))
            .find(|it| it.is_dir())?;
        Some((release.version.clone(), folder))
    });
    Ok(found.collect())
}

/// Reads a folder of patches, or a tree with one.
pub(super) fn read(source: &Path) -> Result<Source> {
    let place = PLACES
        .iter()
        .map(|place| source.join(place))
        .find(|folder| folder.join("series").is_file());
    match place {
        Some(folder) => with_series(source, &folder),
        None => without_series(source),
    }
}

fn with_series(source: &Path, folder: &Path) -> Result<Source> {
    let bytes = contents(&folder.join("series"))?;
    let shown = folder.join("series").display().to_string();
    let (file, faults) = SeriesFile::parse(&bytes, &shown);
    if let Some(fault) = faults.into_iter().next() {
        return Err(fault);
    }
    if file.entries().is_empty() {
        return Err(Error::usage("the series has no patches").at(shown, None));
    }
    let names: Vec<String> = file
        .entries()
        .iter()
        .map(|entry| entry.name.clone())
        .collect();
    let root = if folder == source { None } else { Some(source) };
    let applied = root.filter(|root| is_applied(root, &names));
    // A workspace of perfquilt has its patches in a folder beside the series.
    let beside = folder.join("patches");
    let is_inside = |name: &String| {
        let mut parts = Path::new(name).components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    };
    // Other names are refused below, without a look at what they lead to.
    let is_in = |folder: &Path, name: &String| !is_inside(name) || folder.join(name).is_file();
    let are_in = |folder: &Path| names.iter().all(|name| is_in(folder, name));
    let place = if are_in(&beside) && !are_in(folder) {
        beside.as_path()
    } else {
        folder
    };
    if let Some(missing) = names.iter().find(|name| !is_in(place, name)) {
        return Err(Error::usage(format!(
            "there is no file {}",
            place.join(missing).display()
        ))
        .at(shown, None)
        .hint("the patches of a series are in its folder, or in a folder `patches` there"));
    }
    Ok(Source {
        kind: format!("the series in {}", folder.display()),
        series: bytes,
        patches: patches(place, &names)?,
        base: None,
        applied: applied.map(Path::to_owned),
        notes: Vec::new(),
    })
}

fn without_series(source: &Path) -> Result<Source> {
    let mut names = Vec::new();
    let failed = |error: std::io::Error| Error::io("read", source, &error);
    for entry in std::fs::read_dir(source).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if looks_like_patch(&name) && entry.path().is_file() {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(Error::usage(format!(
            "{} has neither a `series` nor patches",
            source.display()
        ))
        .hint("patches end in .patch or .diff; for a git repository, name a range: BASE..TIP"));
    }
    names.sort_by_key(|name| natural(name));
    let series: String = names.iter().map(|name| format!("{name}\n")).collect();
    Ok(Source {
        kind: format!(
            "the patches in {}, in the order of their names",
            source.display()
        ),
        series: series.into_bytes(),
        patches: patches(source, &names)?,
        base: None,
        applied: None,
        notes: Vec::new(),
    })
}

/// Returns a key that sorts numbers in names by their values, and before letters.
fn natural(name: &str) -> Vec<(bool, u64, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let value = rest[..digits].parse().unwrap_or(u64::MAX);
        let text = digits == 0;
        let other = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |at| digits + at);
        key.push((text, value, rest[digits..other].to_owned()));
        rest = &rest[other..];
    }
    key
}

fn patches(folder: &Path, names: &[String]) -> Result<Vec<SourcePatch>> {
    let mut size = 0;
    let mut found = Vec::new();
    for name in names {
        let bytes = contents(&folder.join(name))?;
        size += bytes.len() as u64;
        if size > MAX_BYTES {
            return Err(Error::usage(format!(
                "the patches are more than {} MB",
                MAX_BYTES >> 20
            )));
        }
        found.push(SourcePatch {
            name: name.clone(),
            bytes,
            origin: None,
            resolutions: Vec::new(),
            tree: None,
        });
    }
    Ok(found)
}

fn contents(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Error::io("read", path, &error);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(Error::usage(format!(
            "{} is not a file of at most {} MB",
            path.display(),
            MAX_BYTES >> 20
        )));
    }
    std::fs::read(path).map_err(failed)
}

/// Returns whether quilt has applied all patches to the tree.
fn is_applied(root: &Path, names: &[String]) -> bool {
    let listed = std::fs::read_to_string(root.join(".pc/applied-patches")).unwrap_or_default();
    let applied: BTreeSet<&str> = listed.lines().collect();
    names.iter().all(|name| applied.contains(name.as_str()))
}

/// Compares the files that the series changes with those of a tree on disk.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) for the first file that differs.
pub(super) fn compare(objects: &Objects, base: &str, tree: &str, folder: &Path) -> Result<()> {
    let mut trial = TrialTree::new(objects, tree)?;
    for path in changed_paths(objects, base, tree)? {
        let place = folder.join(std::ffi::OsStr::from_bytes(&path));
        let there = std::fs::symlink_metadata(&place).ok();
        let same = match (trial.file(&path)?, there) {
            (None, there) => there.is_none(),
            (Some(_), None) => false,
            (Some(file), Some(there)) if file.mode == MODE_LINK => {
                there.is_symlink()
                    && std::fs::read_link(&place)
                        .is_ok_and(|target| target.as_os_str().as_bytes() == &**file.content)
            }
            (Some(file), Some(there)) => {
                use std::os::unix::fs::PermissionsExt;
                there.is_file()
                    && (there.permissions().mode() & 0o100 != 0) == (file.mode == MODE_EXEC)
                    && std::fs::read(&place).is_ok_and(|content| content == **file.content)
            }
        };
        if !same {
            return Err(Error::series(format!(
                "the patches make another {} than the source's tree has; nothing was written",
                path::shown(&path)
            ))
            .hint("the tree has changes of its own, or is of another release; `quilt refresh` there takes changes into the top patch"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sort_by_value() {
        let mut names = vec![
            "10-b.patch",
            "9-c.patch",
            "010a.patch",
            "a2.diff",
            "a10.diff",
        ];
        names.sort_by_key(|name| natural(name));
        assert_eq!(
            names,
            [
                "9-c.patch",
                "10-b.patch",
                "010a.patch",
                "a2.diff",
                "a10.diff"
            ]
        );
    }
}
