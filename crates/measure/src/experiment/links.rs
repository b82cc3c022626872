//! Executables in layouts that several servers run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use perfquilt_bench::server::Scratch;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::threads::lock;

/// A built server's folder and the seed of a layout.
type LinkKey = (PathBuf, u64);

/// The path of a linked executable, once it is linked.
type Linked = Arc<Mutex<Option<PathBuf>>>;

/// The executables that were linked and are needed again.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<BTreeMap<LinkKey, Linked>>);

impl Links {
    /// Returns the executable of the built server in `dir` in the layout `seed`. If there is none, `link` writes it into
    /// a new folder of `scratch`. Another thread that needs the same one waits.
    pub(super) fn executable(
        &self,
        (dir, seed): (&Path, u64),
        scratch: &Scratch,
        link: &dyn Fn(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let linked = {
            let mut links = lock(&self.0);
            let key = (dir.to_path_buf(), seed);
            Arc::clone(links.entry(key).or_default())
        };
        let mut linked = lock(&linked);
        if let Some(path) = &*linked {
            return Ok(path.clone());
        }
        let folder = scratch.fresh()?;
        let path = folder.join("executable");
        link(&path)?;
        if !path.is_file() {
            return Err(Error::internal("the linker wrote nothing"));
        }
        *linked = Some(path.clone());
        Ok(path)
    }

    /// Removes the executables in the layouts `seeds`, which no later block runs.
    pub(super) fn forget(&self, seeds: &[u64]) {
        let gone: Vec<Linked> = {
            let mut links = lock(&self.0);
            let gone = links.extract_if(.., |(_, seed), _| seeds.contains(seed));
            gone.map(|(_, linked)| linked).collect()
        };
        for linked in gone {
            let path = lock(&linked).take();
            if let Some(folder) = path.as_deref().and_then(Path::parent) {
                let _ = std::fs::remove_dir_all(folder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn an_executable_is_linked_once_until_it_is_forgotten() {
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::within(base.path()).unwrap();
        let links = Links::default();
        let count = AtomicUsize::new(0);
        let get = |dir: &str, seed: u64| {
            let link = |path: &Path| {
                count.fetch_add(1, Ordering::Relaxed);
                std::fs::write(path, "x").unwrap();
                Ok(())
            };
            links.executable((Path::new(dir), seed), &scratch, &link)
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| get("a", 1).unwrap());
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let (first, other) = (get("a", 1).unwrap(), get("b", 1).unwrap());
        assert_ne!(first, other);
        get("a", 2).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 3);
        links.forget(&[1]);
        assert!(!first.exists() && !other.exists());
        get("a", 2).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 3);
        get("a", 1).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_link_that_failed_is_tried_again() {
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::within(base.path()).unwrap();
        let links = Links::default();
        let key = (Path::new("a"), 1);
        let failed = links.executable(key, &scratch, &|_| Err(Error::client_failed("no linker")));
        assert!(failed.is_err());
        let write = |path: &Path| {
            std::fs::write(path, "x").unwrap();
            Ok(())
        };
        assert!(links.executable(key, &scratch, &write).is_ok());
    }
}
