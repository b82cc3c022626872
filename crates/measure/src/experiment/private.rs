//! A private executable for every started server: a copy, or one linked again in another layout.
//!
//! Processes of the same file run from the same physical memory. Two servers of one executable, such as the
//! base and its control, then find in the caches the code that the other has just used, while every other
//! server has to fetch its own code again at each turn: they would look faster by some per cent. With a copy
//! each, all are alike.

use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use super::servers::{Server, Servers};
use perfquilt_build::Relink;
use perfquilt_model::error::{Error, Result};

/// Returns the bytes that the private executable `binary` of each of these servers takes, with those kept for a later
/// block with the same layouts, plus its share of the space to link `at_once` of them.
pub(super) fn room(servers: &Servers, binary: &str, at_once: usize) -> u64 {
    let executable = |server: &Server| {
        let path = server.dir.join(binary);
        std::fs::metadata(path).map_or(0, |found| found.len())
    };
    let largest = servers.values().map(executable).max().unwrap_or(0);
    let relinks = || servers.values().filter_map(|server| server.relink.as_ref());
    let links = relinks().map(Relink::temporary_bytes).max();
    let links = links
        .unwrap_or(0)
        .saturating_mul(at_once.min(servers.len()) as u64);
    // Those of the block, of the next one with the same layouts, and those that are linked for it meanwhile.
    let kept = largest.saturating_mul(if relinks().next().is_none() { 1 } else { 3 });
    kept.saturating_add(links / servers.len().max(1) as u64)
}

/// Makes `to` look like the folder `server` of a built server: `make` writes its file `binary` (from the path
/// of the original, at the path given), and everything else is a link. Returns `to`.
pub(crate) fn private_copy(
    server: &Path,
    binary: &str,
    to: &Path,
    make: &dyn Fn(&Path, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut from = server.to_path_buf();
    let mut here = to.to_path_buf();
    let parts: Vec<_> = Path::new(binary).components().collect();
    for (depth, part) in parts.iter().enumerate() {
        let Component::Normal(name) = part else {
            return Err(Error::measuring(format!(
                "`binary` is `{binary}`: it must be a path inside the result"
            )));
        };
        std::fs::create_dir_all(&here).map_err(|e| Error::io("create", &here, &e))?;
        for entry in std::fs::read_dir(&from).map_err(|e| Error::io("read", &from, &e))? {
            let entry = entry.map_err(|e| Error::io("read", &from, &e))?;
            if entry.file_name() != *name {
                let link = here.join(entry.file_name());
                symlink(entry.path(), &link).map_err(|e| Error::io("create", &link, &e))?;
            }
        }
        from.push(name);
        here.push(name);
        if depth + 1 == parts.len() {
            make(&from, &here)?;
        }
    }
    Ok(to.to_path_buf())
}

/// Copies an executable as it is.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    // A file with pages of its own, even where the file system shares the blocks.
    let copied = std::fs::copy(from, to);
    copied.map_err(|e| Error::io(&format!("copy {} to", from.display()), to, &e))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::point::Point;

    #[test]
    fn the_executable_is_copied_and_the_rest_linked() {
        let folder = tempfile::tempdir().unwrap();
        let server = folder.path().join("server");
        std::fs::create_dir_all(server.join("bin")).unwrap();
        std::fs::create_dir_all(server.join("share/x")).unwrap();
        std::fs::write(server.join("bin/d"), "d").unwrap();
        std::fs::write(server.join("bin/c"), "c").unwrap();
        let private = private_copy(&server, "bin/d", &folder.path().join("copy"), &copy).unwrap();
        assert!(!private.join("bin/d").is_symlink());
        assert_eq!(std::fs::read(private.join("bin/d")).unwrap(), b"d");
        assert!(private.join("bin/c").is_symlink());
        assert_eq!(std::fs::read(private.join("bin/c")).unwrap(), b"c");
        assert!(private.join("share/x").is_dir());
    }

    #[test]
    fn room_is_for_the_largest_executable() {
        let folder = tempfile::tempdir().unwrap();
        let server = |name: &str, bytes: usize| {
            let dir = folder.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("d"), vec![0; bytes]).unwrap();
            Server {
                label: name.to_owned(),
                dir,
                identity: String::new(),
                data: None,
                relink: None,
            }
        };
        let servers = Servers::from([
            (Point::BASE, server("a", 10)),
            (Point::Step(1), server("b", 1000)),
        ]);
        assert_eq!(room(&servers, "d", 4), 1000);
    }

    #[test]
    fn where_a_copy_fails_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("d"), "d").unwrap();
        let to = folder.path().join("no/d");
        let error = copy(&folder.path().join("d"), &to).unwrap_err();
        assert!(error.message().contains(to.to_str().unwrap()), "{error}");
    }

    #[test]
    fn paths_outside_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("copy");
        assert!(private_copy(folder.path(), "../x", &to, &copy).is_err());
    }
}
