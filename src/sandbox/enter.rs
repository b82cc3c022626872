//! The other side: perfquilt inside a sandbox.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{CACHE_BELOW, LIMITS, REAL_TIME, limits};
use crate::config::Limits;
use crate::error::{Error, Result};
use crate::workspace::cache_dir;

/// Caches whose entries are made once and only read afterwards.
const SHARED: [&str; 2] = ["builds", "data"];

/// Takes on the limits of the sandbox this program runs in, and finds what it may use of others' caches.
/// Does nothing outside.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when it was told no limits, or its cache cannot be
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

/// Makes the finished entries of the caches `below` be found in the caches `own`.
fn borrow(own: &Path, below: &Path) -> Result<()> {
    for kind in SHARED {
        let (to, from) = (own.join(kind), below.join(kind));
        std::fs::create_dir_all(&to).map_err(|e| Error::io("create", &to, &e))?;
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

/// Whether a folder of a cache is not finished, or about to go.
fn is_work(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') || name.ends_with(".tmp") || name.ends_with(".removed")
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
}
