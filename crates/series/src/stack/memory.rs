//! Applying patches to files in memory without an object store, for tests and fuzzing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change::{PatchFit, patch_effect};
use super::pending::{FileSource, folders};
pub use super::tree::FileState;
use super::tree::{Obstacle, PathState};
use crate::series::Patch;
use crate::series::path::shown;
use perfquilt_model::error::{Error, Result};

/// A tree of files, by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryFiles {
    /// The files.
    pub files: BTreeMap<Vec<u8>, FileState>,
}

impl MemoryFiles {
    /// Adds a file.
    pub fn add(&mut self, path: &[u8], mode: u32, content: Vec<u8>) {
        let content = Arc::new(content);
        self.files
            .insert(path.to_vec(), FileState { mode, content });
    }

    /// Applies a patch; on an error nothing changes.
    pub fn apply(&mut self, patch: &Patch, fuzz: usize) -> Result<PatchFit> {
        let (fit, effect) = patch_effect(self, patch, fuzz)?;
        let mut files = self.files.clone();
        for (path, file) in effect {
            match file {
                Some(file) => files.insert(path, file),
                None => files.remove(&path),
            };
        }
        let is_folder = |path: &Vec<u8>| {
            let inside = [path, &b"/"[..]].concat();
            let below = files.range(inside.clone()..).next();
            below.is_some_and(|(found, _)| found.starts_with(&inside))
        };
        // Not all files of a folder have left it.
        if let Some(path) = files.keys().find(|path| is_folder(path)) {
            return Err(Error::series(format!("{} is a folder", shown(path))));
        }
        self.files = files;
        Ok(fit)
    }
}

impl FileSource for MemoryFiles {
    fn at(&mut self, path: &[u8]) -> Result<PathState> {
        if let Some(file) = self.files.get(path) {
            return Ok(PathState::File { mode: file.mode });
        }
        for above in folders(path) {
            if let Some(file) = self.files.get(above) {
                let (path, mode) = (above.to_vec(), file.mode);
                return Ok(PathState::Blocked(Obstacle { path, mode }));
            }
        }
        let inside = [path, b"/"].concat();
        let below = self.files.range(inside.clone()..).next();
        Ok(match below {
            Some((found, _)) if found.starts_with(&inside) => PathState::Folder,
            _ => PathState::Nothing,
        })
    }

    fn content(&mut self, path: &[u8]) -> Result<Arc<Vec<u8>>> {
        let file = self.files.get(path);
        file.map(|file| Arc::clone(&file.content))
            .ok_or_else(|| Error::internal(format!("there is no {}", shown(path))))
    }
}
