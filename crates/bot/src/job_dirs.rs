//! State and caches of sandboxed pull requests. Each pull request has its own, whoever its author is: no trusted process
//! and no other job uses what the code of one could write.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use super::paths::BotPaths;
use perfquilt_bench::server::copy_tree;
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::Repository;
use perfquilt_model::error::{Error, Result};
use perfquilt_patches::upstream::Release;
use perfquilt_store::Store;
use perfquilt_system::remove::remove_tree;

/// The maximum number of pull requests whose state is kept; each can take as much space as a source tree and a
/// build tree.
pub(super) const MAX_KEPT: usize = 3;
/// The file that records the repository and release a state directory belongs to.
const STAMP_FILE: &str = "stamp";

/// The state directory and cache directory of one pull request.
#[derive(Debug, Clone)]
pub(super) struct JobDirs {
    /// The directory that its `.perfquilt` links to.
    pub state: PathBuf,
    /// The directory that serves as `$XDG_CACHE_HOME/perfquilt`.
    pub cache: PathBuf,
}

impl JobDirs {
    /// Opens the directories of pull request `number` of `repository`. New ones start with the sources of
    /// `release` and the results of `ws`, and evict the least recently used ones, except those of the pull requests
    /// `running`.
    pub(super) fn open(
        paths: &BotPaths,
        ws: &Workspace,
        (repository, number): (&Repository, u64),
        release: &Release,
        running: &BTreeSet<u64>,
    ) -> Result<Self> {
        let folder = paths.area(number);
        let dirs = JobDirs {
            state: folder.join("state"),
            cache: folder.join("cache/perfquilt"),
        };
        let stamp = folder.join(STAMP_FILE);
        let wanted = format!("{repository} {} {}\n", release.name, release.commit);
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            perfquilt_system::caches::touch(&stamp);
            return Ok(dirs);
        }
        evict(paths, number, running);
        remove_tree(&folder)?;
        std::fs::create_dir_all(&dirs.cache).map_err(|e| Error::io("make", &dirs.cache, &e))?;
        let objects = ws.object_store();
        copy_tree(&objects, &dirs.state.join("objects.git"))?;
        if ws.results().is_file() {
            Store::open_existing(&ws.results())?.copy_to(&dirs.state.join("results.db"))?;
        }
        std::fs::write(&stamp, wanted).map_err(|e| Error::io("write", &stamp, &e))?;
        Ok(dirs)
    }
}

/// Removes the least recently used directories, other than those of pull request `number` and of the `running` ones,
/// above the maximum. Failures are logged.
fn evict(paths: &BotPaths, number: u64, running: &BTreeSet<u64>) {
    let folder = paths.areas();
    let mut kept = running.clone();
    kept.insert(number);
    let is_kept = |name: &str| name.parse().is_ok_and(|number| kept.contains(&number));
    let mut others: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_name().to_str().is_some_and(is_kept))
        .map(|entry| {
            let used =
                std::fs::metadata(entry.path().join(STAMP_FILE)).and_then(|meta| meta.modified());
            (used.unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
        })
        .collect();
    others.sort_unstable();
    let many = others
        .len()
        .saturating_sub(MAX_KEPT.saturating_sub(kept.len()));
    for (_, path) in others.into_iter().take(many) {
        if let Err(error) = remove_tree(&path) {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_directories_go_but_never_those_in_use() {
        let root = tempfile::tempdir().unwrap();
        let paths = BotPaths::at(root.path());
        let folder = paths.areas();
        for (age, number) in [50, 40, 30, 20, 10].into_iter().zip(1..) {
            let stamp = folder.join(format!("{number}/{STAMP_FILE}"));
            std::fs::create_dir_all(stamp.parent().unwrap()).unwrap();
            let file = std::fs::File::create(&stamp).unwrap();
            let used = SystemTime::now() - std::time::Duration::from_secs(age);
            file.set_modified(used).unwrap();
        }
        evict(&paths, 9, &[1].into());
        let mut left: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["1", "5"]);
    }
}
