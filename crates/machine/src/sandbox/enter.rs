//! The other side: perfquilt inside a sandbox.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::{CACHE_BELOW, LIMITS, REAL_TIME, limits};
use perfquilt_config::Limits;
use perfquilt_config::workspace::cache_dir;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::caches::is_work;

/// Caches whose entries are made once and only read afterwards.
const SHARED: [&str; 2] = ["builds", "data"];

/// Takes on the limits of the sandbox this program runs in, and finds what it may use of others' caches.
/// Does nothing outside.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it was told no limits, or its cache cannot be
/// written.
pub fn enter() -> Result<()> {
    let Some(text) = std::env::var_os(LIMITS) else {
        return Ok(());
    };
    let given: Limits = serde_json::from_str(&text.to_string_lossy())
        .map_err(|error| Error::internal(format!("{LIMITS} is no set of limits: {error}")))?;
    limits::take_on(&given, std::env::var_os(REAL_TIME).is_some());
    match std::env::var_os(CACHE_BELOW) {
        Some(below) => borrow(&cache_dir()?, Path::new(&below)),
        None => Ok(()),
    }
}

/// Makes the finished entries of the caches `below` be found in the caches `own`, and those that are gone be
/// made anew there.
fn borrow(own: &Path, below: &Path) -> Result<()> {
    for kind in SHARED {
        let (to, from) = (own.join(kind), below.join(kind));
        std::fs::create_dir_all(&to).map_err(|e| Error::io("create", &to, &e))?;
        for entry in std::fs::read_dir(&to).into_iter().flatten().flatten() {
            let link = entry.path();
            if link.is_symlink() && !link.exists() {
                std::fs::remove_file(&link).map_err(|e| Error::io("remove", &link, &e))?;
            }
        }
        for entry in std::fs::read_dir(&from).into_iter().flatten().flatten() {
            let finished =
                entry.file_type().is_ok_and(|kind| kind.is_dir()) && !is_work(&entry.file_name());
            let link = to.join(entry.file_name());
            // What is there is this sandbox's own, or borrowed before.
            if finished && std::fs::symlink_metadata(&link).is_err() {
                symlink(entry.path(), &link).map_err(|e| Error::io("link", &link, &e))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_finished_is_borrowed() {
        let folder = tempfile::tempdir().unwrap();
        let (own, below) = (folder.path().join("own"), folder.path().join("below"));
        for name in [
            "builds/k1",
            "builds/k2",
            "builds/.partial-x",
            "data/d",
            "data/e.tmp",
        ] {
            std::fs::create_dir_all(below.join(name)).unwrap();
        }
        std::fs::create_dir_all(own.join("builds/k2")).unwrap();
        borrow(&own, &below).unwrap();
        borrow(&own, &below).unwrap();
        let linked = |name: &str| own.join(name).is_symlink();
        assert!(linked("builds/k1") && linked("data/d"));
        assert!(!linked("builds/k2") && own.join("builds/k2").is_dir());
        assert!(!own.join("builds/.partial-x").exists() && !own.join("data/e.tmp").exists());
    }

    #[test]
    fn what_was_borrowed_and_is_gone_can_be_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (own, below) = (folder.path().join("own"), folder.path().join("below"));
        std::fs::create_dir_all(below.join("data/d")).unwrap();
        borrow(&own, &below).unwrap();
        std::fs::remove_dir(below.join("data/d")).unwrap();
        borrow(&own, &below).unwrap();
        std::fs::create_dir(own.join("data/d")).unwrap();
        borrow(&own, &below).unwrap();
        assert!(own.join("data/d").is_dir());
    }
}
