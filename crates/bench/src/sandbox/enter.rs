//! Sets up perfquilt when it runs inside a sandbox.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::{LIMITS, REAL_TIME, SHARED_CACHE, domain, limits, seccomp};
use perfquilt_config::SandboxLimits;
use perfquilt_config::workspace::cache_dir;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::caches::is_unfinished;

/// Caches whose entries never change once finished.
const SHARED_KINDS: [&str; 3] = ["builds", "data", "tests"];

/// Applies the limits of the sandbox this program runs in and links the shared caches. Does nothing outside a
/// sandbox.
pub fn enter() -> Result<()> {
    let Some(text) = std::env::var_os(LIMITS) else {
        return Ok(());
    };
    let given: SandboxLimits = serde_json::from_str(&text.to_string_lossy()).map_err(|error| {
        Error::sandbox_failed(format!("{LIMITS} is not a valid set of limits: {error}"))
    })?;
    limits::apply(&given, std::env::var_os(REAL_TIME).is_some());
    let cache = cache_dir()?;
    domain::prepare(&cache)?;
    seccomp::restrict()?;
    std::env::var_os(SHARED_CACHE).map_or(Ok(()), |shared| link_shared(&cache, Path::new(&shared)))
}

/// Links the finished entries of the caches `shared` into the caches `own`, and removes links whose entries are
/// gone, so that they can be created again.
fn link_shared(own: &Path, shared: &Path) -> Result<()> {
    for kind in SHARED_KINDS {
        let (to, from) = (own.join(kind), shared.join(kind));
        std::fs::create_dir_all(&to).map_err(|e| Error::io("create", &to, &e))?;
        for entry in std::fs::read_dir(&to).into_iter().flatten().flatten() {
            let link = entry.path();
            if link.is_symlink() && !link.exists() {
                std::fs::remove_file(&link).map_err(|e| Error::io("remove", &link, &e))?;
            }
        }
        for entry in std::fs::read_dir(&from).into_iter().flatten().flatten() {
            let finished = entry.file_type().is_ok_and(|kind| kind.is_dir())
                && !is_unfinished(&entry.file_name())
                && is_readable(&entry.path());
            let link = to.join(entry.file_name());
            // An existing entry is this sandbox's own or already a link.
            if finished && std::fs::symlink_metadata(&link).is_err() {
                symlink(entry.path(), &link).map_err(|e| Error::io("link", &link, &e))?;
            }
        }
    }
    Ok(())
}

/// Returns whether this user can read everything in the folder `path`: a server's data may be for its owner only.
fn is_readable(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    let Ok(entries) = std::fs::read_dir(path) else {
        return false;
    };
    entries.flatten().all(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => is_readable(&entry.path()),
        Ok(kind) if kind.is_file() => access(entry.path(), Access::READ_OK).is_ok(),
        kind => kind.is_ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_entries_are_linked() {
        let folder = tempfile::tempdir().unwrap();
        let (own, shared) = (folder.path().join("own"), folder.path().join("shared"));
        for name in [
            "builds/k1",
            "builds/k2",
            "builds/.partial-x",
            "data/d",
            "data/e.tmp",
        ] {
            std::fs::create_dir_all(shared.join(name)).unwrap();
        }
        std::fs::create_dir_all(own.join("builds/k2")).unwrap();
        link_shared(&own, &shared).unwrap();
        link_shared(&own, &shared).unwrap();
        let linked = |name: &str| own.join(name).is_symlink();
        assert!(linked("builds/k1") && linked("data/d"));
        assert!(!linked("builds/k2") && own.join("builds/k2").is_dir());
        assert!(!own.join("builds/.partial-x").exists() && !own.join("data/e.tmp").exists());
    }

    #[test]
    fn entries_that_are_gone_can_be_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let (own, shared) = (folder.path().join("own"), folder.path().join("shared"));
        std::fs::create_dir_all(shared.join("data/d")).unwrap();
        link_shared(&own, &shared).unwrap();
        std::fs::remove_dir(shared.join("data/d")).unwrap();
        link_shared(&own, &shared).unwrap();
        std::fs::create_dir(own.join("data/d")).unwrap();
        link_shared(&own, &shared).unwrap();
        assert!(own.join("data/d").is_dir());
    }
}
