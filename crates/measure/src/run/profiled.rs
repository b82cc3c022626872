//! Fresh links of the servers of a sampled profile.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::NamedServer;
use crate::experiment::private::{copy, private_copy};
use perfquilt_bench::server::{Scratch, ServerSpace};
use perfquilt_build::Relink;
use perfquilt_config::Layouts;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_system::mounts::may_execute;
use perfquilt_system::threads::lock;

/// Makes the executables of two servers afresh for each run of a profile, in a code layout that both share: code that
/// they have in common lies at the same addresses, and no layout is behind all runs.
#[derive(Debug)]
pub struct FreshLinks {
    scratch: Scratch,
    sides: [LinkedSide; 2],
}

#[derive(Debug)]
struct LinkedSide {
    server: PathBuf,
    /// The measured executable inside the server's folder; without one, the server runs where it was built.
    binary: Option<String>,
    /// `None` if the executable cannot be linked again.
    relink: Option<Relink>,
    /// The folder of the last run.
    last: Mutex<Option<PathBuf>>,
}

impl FreshLinks {
    /// Prepares the links of two servers, each given with its measured executable. Notes why there is but one layout, if
    /// one of them cannot be linked again.
    pub fn new(ws: &Workspace, servers: [(&NamedServer, Option<&str>); 2]) -> Result<Self> {
        let mut sides = servers.map(|(named, binary)| LinkedSide {
            server: named.built.dir.clone(),
            binary: binary.map(str::to_owned),
            relink: None,
            last: Mutex::default(),
        });
        let relinks = sides
            .iter()
            .map(|side| Relink::of(&side.server, Layouts::Padded))
            .collect::<std::result::Result<Vec<Relink>, String>>();
        match relinks {
            Ok(mut relinks) => {
                Relink::align(&mut relinks.iter_mut().collect::<Vec<_>>());
                for (side, relink) in sides.iter_mut().zip(relinks) {
                    side.relink = Some(relink);
                }
            }
            Err(why) => progress::note(&format!(
                "both servers run in the linker's own layout, so a function may differ because it lies elsewhere: {why}"
            )),
        }
        let space = ServerSpace {
            servers: sides.len(),
            bytes: sides.iter().map(LinkedSide::bytes).max().unwrap_or(0),
        };
        let scratch = Scratch::open(ws, space)?;
        // Containers often mount the RAM disk noexec.
        let scratch = if may_execute(scratch.path()) {
            scratch
        } else {
            Scratch::within(&ws.cache().join("run"))?
        };
        Ok(FreshLinks { scratch, sides })
    }

    /// Makes the first (0) or second (1) server in the layout drawn from a seed, 0 for the linker's own, and removes the
    /// one that was made for that side before. Returns its folder.
    pub fn make(&self, side: usize, layout: u64) -> Result<PathBuf> {
        let side = &self.sides[side];
        let Some(binary) = &side.binary else {
            return Ok(side.server.clone());
        };
        let folder = self.scratch.fresh()?;
        let mut last = lock(&side.last);
        if let Some(last) = last.replace(folder.clone()) {
            std::fs::remove_dir_all(&last).map_err(|e| Error::io("remove", &last, &e))?;
        }
        let make = |from: &Path, to: &Path| match &side.relink {
            Some(relink) if layout != 0 => relink.link(layout, to),
            _ => copy(from, to),
        };
        private_copy(&side.server, binary, &folder, &make)
    }
}

impl LinkedSide {
    /// Returns the space that its executable takes, while it is linked.
    fn bytes(&self) -> u64 {
        let executable = self.binary.as_ref().map(|binary| self.server.join(binary));
        let size = executable.and_then(|path| std::fs::metadata(path).ok());
        let linking = self.relink.as_ref().map_or(0, Relink::temporary_bytes);
        size.map_or(0, |found| found.len()).saturating_add(linking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_an_executable_of_its_own_and_the_last_ones_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let server = base.path().join("built");
        std::fs::create_dir_all(server.join("bin")).unwrap();
        std::fs::write(server.join("bin/d"), "d").unwrap();
        let side = |binary: Option<&str>| LinkedSide {
            server: server.clone(),
            binary: binary.map(str::to_owned),
            relink: None,
            last: Mutex::default(),
        };
        let servers = FreshLinks {
            scratch: Scratch::within(&base.path().join("run")).unwrap(),
            sides: [side(Some("bin/d")), side(None)],
        };
        let first = servers.make(0, 1).unwrap();
        assert_eq!(std::fs::read(first.join("bin/d")).unwrap(), b"d");
        assert!(!first.join("bin/d").is_symlink());
        let second = servers.make(0, 2).unwrap();
        assert!(!first.exists() && second.join("bin/d").is_file());
        // Without a measured executable nothing is copied.
        assert_eq!(servers.make(1, 1).unwrap(), server);
        assert!(server.join("bin/d").is_file());
    }
}
