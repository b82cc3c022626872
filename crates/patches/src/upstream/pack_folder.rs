//! The folder of packs in an object store.

use std::path::{Path, PathBuf};

/// Prefix of the names of unfinished packs.
pub const TEMPORARY_PREFIX: &str = "tmp_perfquilt_";

/// Returns the folder of packs of the store at `store`.
pub fn path(store: &Path) -> PathBuf {
    store.join("objects/pack")
}

/// Removes the unfinished packs that killed processes left in the store at `store`. The caller holds the import lock.
pub fn remove_unfinished(store: &Path) {
    let Ok(entries) = std::fs::read_dir(path(store)) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(TEMPORARY_PREFIX) {
            // A concurrent removal has the same effect.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
