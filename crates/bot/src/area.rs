//! What strangers' pull requests leave behind: state and caches, apart for each, so that nobody's results depend
//! on what a stranger's code wrote.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::places::Places;
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::Repository;
use perfquilt_machine::server::copy_tree;
use perfquilt_model::error::{Error, Result};
use perfquilt_patches::upstream::Release;
use perfquilt_store::Store;
use perfquilt_system::process::Command;

/// Pull requests whose state is kept; each may take as much as a source and a build tree.
const MOST: usize = 3;
/// Says, beside an area, whose it is and which release it has.
const STAMP: &str = "stamp";

/// State and caches of one pull request.
#[derive(Debug, Clone)]
pub(super) struct Area {
    /// What `.perfquilt` is for it.
    pub state: PathBuf,
    /// What `$XDG_CACHE_HOME/perfquilt` is.
    pub cache: PathBuf,
}

impl Area {
    /// The area of pull request `number` of `repository`, with `release` and the results of `ws` when it is new.
    /// Areas that were used longest ago are removed.
    ///
    /// # Errors
    /// Failures of the file system.
    pub(super) fn open(
        places: &Places,
        ws: &Workspace,
        (repository, number): (&Repository, u64),
        release: &Release,
    ) -> Result<Self> {
        let folder = places.areas().join(number.to_string());
        let area = Area {
            state: folder.join("state"),
            cache: folder.join("cache/perfquilt"),
        };
        let stamp = folder.join(STAMP);
        let wanted = format!("{repository} {} {}\n", release.name, release.commit);
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            perfquilt_system::caches::touch(&stamp);
            return Ok(area);
        }
        evict(places, number);
        remove(&folder)?;
        std::fs::create_dir_all(&area.cache).map_err(|e| Error::io("make", &area.cache, &e))?;
        let objects = ws.object_store();
        copy_tree(&objects, &area.state.join("objects.git"))?;
        if ws.results().is_file() {
            Store::open_existing(&ws.results())?.copy_to(&area.state.join("results.db"))?;
        }
        std::fs::write(&stamp, wanted).map_err(|e| Error::io("write", &stamp, &e))?;
        Ok(area)
    }
}

/// Removes what is too much beside the area of pull request `number`, as far as it can be.
fn evict(places: &Places, number: u64) {
    let folder = places.areas();
    let mut others: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name() != *number.to_string())
        .map(|entry| {
            let used = std::fs::metadata(entry.path().join(STAMP)).and_then(|meta| meta.modified());
            (used.unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
        })
        .collect();
    others.sort_unstable();
    let many = others.len().saturating_sub(MOST - 1);
    for (_, path) in others.into_iter().take(many) {
        if let Err(error) = remove(&path) {
            tracing::warn!("{error}");
        }
    }
}

/// Removes the folder `path`, whatever rights were taken from folders in it, and however deep they are. Links are
/// not followed.
///
/// # Errors
/// What cannot be removed.
pub(super) fn remove(path: &Path) -> Result<()> {
    // Folders in each other without end would take all stack and descriptors of this program, and their paths are
    // longer than the kernel takes; these programs see to that.
    let gone = || -> Result<bool> {
        Command::new("rm").args(["-rf", "--"]).arg(path).run()?;
        Ok(std::fs::symlink_metadata(path).is_err())
    };
    if std::fs::symlink_metadata(path).is_err() || gone()? {
        return Ok(());
    }
    let unlock = ["-R", "u+rwx", "--"];
    Command::new("chmod").args(unlock).arg(path).run()?;
    if gone()? {
        Ok(())
    } else {
        Err(Error::internal(format!("cannot remove {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folders_deeper_than_any_path_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let area = folder.path().join("area");
        std::fs::create_dir(&area).unwrap();
        for _ in 0..5 {
            // What is there goes below a thousand new folders.
            let top = folder.path().join("top");
            let bottom = top.join("d/".repeat(1000));
            std::fs::create_dir_all(&bottom).unwrap();
            std::fs::rename(&area, bottom.join("area")).unwrap();
            std::fs::rename(&top, &area).unwrap();
        }
        remove(&area).unwrap();
        assert!(!area.exists());
    }

    #[test]
    fn folders_without_rights_are_removed_and_links_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (area, outside) = (folder.path().join("area"), folder.path().join("outside"));
        std::fs::create_dir_all(area.join("a/b")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("x"), "").unwrap();
        std::os::unix::fs::symlink(&outside, area.join("a/link")).unwrap();
        for closed in ["a/b", "a"] {
            let none = std::fs::Permissions::from_mode(0o000);
            std::fs::set_permissions(area.join(closed), none).unwrap();
        }
        remove(&area).unwrap();
        remove(&area).unwrap();
        assert!(!area.exists() && outside.join("x").is_file());
    }
}
