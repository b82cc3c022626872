//! Processes of one user that measure on the same processors take turns, since both would disturb each other.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::server::Scratch;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Kind, Result};
use perfquilt_model::progress;
use perfquilt_system::host::host_name;
use perfquilt_system::locks::{self, Lock};

/// The turns of this process.
pub struct Turns {
    /// The folders that a user's runs share.
    folders: Vec<PathBuf>,
    /// Whether the user knows that another process measures too.
    told: AtomicBool,
}

impl Turns {
    /// Turns among all processes that share the cache of `ws`, or the disk of `scratch`.
    pub fn new(ws: &Workspace, scratch: &Scratch) -> Self {
        let folders = [Some(ws.cache()), scratch.path().parent()];
        Turns {
            folders: folders.into_iter().flatten().map(Into::into).collect(),
            told: AtomicBool::new(false),
        }
    }

    /// Waits until no other process of the same user measures on these processors; the turn ends when the locks are dropped. A
    /// sandbox shares neither folder with others, so jobs in sandboxes must be measured one at a time, as the bot does.
    pub fn take(&self, cpus: &[usize]) -> Result<Vec<Lock>> {
        // The next turn would otherwise begin before a waiting process polls the lock.
        std::thread::sleep(3 * locks::POLL_INTERVAL);
        let mut held = Vec::new();
        for path in self.paths(cpus, &host_name()) {
            match locks::wait(&path, || self.tell()) {
                Ok(lock) => held.push(lock),
                Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                // Measuring works on a file system without locks too.
                Err(_) => {}
            }
        }
        Ok(held)
    }

    /// Returns the lock files. All processes take them in this order, so that two cannot wait for each other. Machines that
    /// share a folder have locks of their own, by the name `host`.
    fn paths(&self, cpus: &[usize], host: &str) -> Vec<PathBuf> {
        let paths = |folder: &PathBuf| -> Vec<PathBuf> {
            let path = |cpu: &usize| folder.join(format!("measuring-{host}-{cpu}.lock"));
            cpus.iter().map(path).collect()
        };
        self.folders.iter().flat_map(paths).collect()
    }

    /// Tells the user, once, why measuring takes longer than expected.
    fn tell(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            progress::note(
                "another perfquilt measures on this machine: both take turns, block by block",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_one_order() {
        let turns = Turns {
            folders: ["/a", "/b"].map(PathBuf::from).into(),
            told: AtomicBool::new(false),
        };
        let paths = turns.paths(&[1, 2], "h");
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(
            names,
            [
                "/a/measuring-h-1.lock",
                "/a/measuring-h-2.lock",
                "/b/measuring-h-1.lock",
                "/b/measuring-h-2.lock"
            ]
        );
    }
}
