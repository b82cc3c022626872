//! Patches applied to files in memory, without any object store: for tests and fuzzing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change::{How, outcomes};
pub use super::disk::File;
use super::disk::{Files, folders};
use super::tree::At;
use crate::series::Patch;
use crate::series::path::shown;
use crate::upstream::objects::MODE_LINK;
use perfquilt_model::error::{Error, Result};

/// A tree of files, by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryFiles {
    /// The files.
    pub files: BTreeMap<Vec<u8>, File>,
}

impl MemoryFiles {
    /// Adds a file.
    pub fn add(&mut self, path: &[u8], mode: u32, content: Vec<u8>) {
        let content = Arc::new(content);
        self.files.insert(path.to_vec(), File { mode, content });
    }

    /// Applies a patch; when that fails nothing changes.
    ///
    /// # Errors
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series) when it does not apply.
    pub fn apply(&mut self, patch: &Patch, fuzz: usize) -> Result<How> {
        let (how, outcomes) = outcomes(self, patch, fuzz)?;
        for (path, outcome) in outcomes {
            match outcome {
                Some(file) => self.files.insert(path, file),
                None => self.files.remove(&path),
            };
        }
        Ok(how)
    }
}

impl Files for MemoryFiles {
    fn at(&mut self, path: &[u8]) -> Result<At> {
        if let Some(file) = self.files.get(path) {
            return Ok(At::File { mode: file.mode });
        }
        for above in folders(path) {
            if let Some(file) = self.files.get(above) {
                let kind = match file.mode {
                    MODE_LINK => "a symbolic link",
                    _ => "a file",
                };
                return Ok(At::Blocked(format!("{} is {kind}", shown(above))));
            }
        }
        let inside = [path, b"/"].concat();
        let below = self.files.range(inside.clone()..).next();
        Ok(match below {
            Some((found, _)) if found.starts_with(&inside) => At::Folder,
            _ => At::Nothing,
        })
    }

    fn content(&mut self, path: &[u8]) -> Result<Arc<Vec<u8>>> {
        let file = self.files.get(path);
        file.map(|file| Arc::clone(&file.content))
            .ok_or_else(|| Error::internal(format!("there is no {}", shown(path))))
    }
}
