//! Finds files by pattern and lists those of a folder.

use std::collections::BTreeMap;
use std::fs::{File, FileType};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::digest::{add, add_all};

/// Whether the last part of `path` is a pattern with `*`. Stars in the names of folders are ordinary characters.
pub(super) fn has_stars(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().contains('*'))
}

/// Returns `path` if it exists; with `*` in its last part, every matching entry of its folder, sorted.
pub(super) fn matching(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (Some(folder), true) = (path.parent(), name.contains('*')) else {
        return path.exists().then(|| path.to_owned()).into_iter().collect();
    };
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_match(&name, &entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Whether `name` matches `pattern`, where `*` stands for any characters.
fn is_match(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(head) else {
        return false;
    };
    let mut ends = name
        .char_indices()
        .map(|(index, _)| index)
        .chain([name.len()]);
    ends.any(|index| is_match(rest, &name[index..]))
}

/// Whether `dir` contains all `files`, each with its recorded size in bytes.
pub(super) fn is_complete(dir: &Path, files: &BTreeMap<String, u64>) -> bool {
    files.iter().all(|(name, size)| {
        std::fs::metadata(dir.join(name)).is_ok_and(|found| found.len() == *size)
    })
}

/// Returns the digest of the contents of `files` below `dir`, whether a process loads them or not.
pub(super) fn digest(dir: &Path, files: &BTreeMap<String, u64>) -> Result<String> {
    let mut all = Sha256::new();
    for (name, size) in files {
        let path = dir.join(name);
        let failed = |error: std::io::Error| Error::io("read", &path, &error);
        add(&mut all, name.as_bytes());
        all.update(size.to_le_bytes());
        let mut file = File::open(&path).map_err(failed)?;
        add_all(&mut all, &mut file).map_err(failed)?;
    }
    Ok(hex::encode(all.finalize()))
}

/// Lists what is below `dir` by relative path, without following links. Omits what cannot be read.
pub(super) fn walk(dir: &Path) -> Vec<(PathBuf, FileType)> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(dir.join(&folder));
        for entry in entries.into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let path = folder.join(entry.file_name());
            if kind.is_dir() {
                folders.push(path.clone());
            }
            found.push((path, kind));
        }
    }
    found
}

/// Lists every file below `dir` by relative path, with its size in bytes.
pub(super) fn list(dir: &Path) -> Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| Error::io("read", &folder, &e))? {
            let path = entry.map_err(|e| Error::io("read", &folder, &e))?.path();
            let meta = std::fs::metadata(&path).map_err(|e| Error::io("read", &path, &e))?;
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap_or(&path);
            files.insert(name.to_string_lossy().into_owned(), meta.len());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_names() {
        for name in ["mysql_system_tables.sql", "mariadb_system_tables_data.sql"] {
            assert!(is_match("m*_system_tables*.sql", name), "{name}");
        }
        for name in ["mysql_test_db.sql", "mysql_system_tables.sql.in", ""] {
            assert!(!is_match("m*_system_tables*.sql", name), "{name}");
        }
    }
}
