//! Locks an experiment, so that one process at a time measures it.

use std::path::{Path, PathBuf};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::locks::{self, Lock};

/// Keeps other processes from measuring the same experiment until it is dropped.
#[derive(Debug)]
pub(super) struct ExperimentLock {
    path: PathBuf,
    _held: Lock,
}

impl ExperimentLock {
    /// Locks the experiment of `key` in the workspace with the state folder `state`.
    /// Fails while another process holds the lock.
    pub(super) fn of(state: &Path, key: &str) -> Result<Self> {
        let name = format!("experiment-{}.lock", key.replace(' ', "-"));
        let path = state.join("locks").join(name);
        match locks::try_now(&path)? {
            Some(held) => Ok(ExperimentLock { path, _held: held }),
            None => Err(
                Error::locked("another process is measuring this experiment")
                    .hint("wait until it is done; the same command then reports the result"),
            ),
        }
    }
}

impl Drop for ExperimentLock {
    fn drop(&mut self) {
        // A process that opened the file meanwhile checks that it still exists.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;

    #[test]
    fn one_process_at_a_time_has_an_experiment() {
        let state = tempfile::tempdir().unwrap();
        let first = ExperimentLock::of(state.path(), "key fresh 2").unwrap();
        let error = ExperimentLock::of(state.path(), "key fresh 2").unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(ExperimentLock::of(state.path(), "key").is_ok());
        drop(first);
        assert!(ExperimentLock::of(state.path(), "key fresh 2").is_ok());
        let left = std::fs::read_dir(state.path().join("locks")).unwrap();
        assert_eq!(left.count(), 0);
    }
}
