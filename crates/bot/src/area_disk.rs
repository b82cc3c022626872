//! A file system of their own for the areas of jobs, in a file whose blocks are all allocated: no flood of
//! bytes or inodes there reaches the queue, the results or the rest of the machine.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::bot::Bot;
use super::paths::BotPaths;
use perfquilt_bench::sandbox::{Protection, protections};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_system::process::Command;

/// The longest time that one of the commands may take.
const TIMEOUT: Duration = Duration::from_secs(120);

impl Bot {
    /// Mounts the file system of `area_mib` of the configuration, which is made if it does not exist. Does nothing where one
    /// is mounted already, by an earlier start or by an administrator.
    pub fn mount_areas(&self) -> Result<()> {
        let mib = self.workspace.config.bot.area_mib;
        let paths = BotPaths::new(&self.workspace);
        let areas = paths.areas();
        if mib == 0 {
            return Ok(());
        }
        std::fs::create_dir_all(&areas).map_err(|e| Error::io("make", &areas, &e))?;
        if is_mounted(&areas)? {
            return Ok(());
        }
        let hint = "start the bot as root, or mount one yourself: `perfquilt doctor --bot` has the commands";
        let file = paths.area_file();
        let bytes = mib.saturating_mul(1 << 20);
        let size = std::fs::metadata(&file).map_or(0, |found| found.len());
        if size != bytes {
            make(&file, bytes).map_err(|error| error.hint(hint))?;
        }
        let words: [&std::ffi::OsStr; 4] = [
            "-o".as_ref(),
            "loop,nosuid,nodev".as_ref(),
            file.as_os_str(),
            areas.as_os_str(),
        ];
        run(&Command::new("mount").args(words)).map_err(|error| error.hint(hint))?;
        progress::note(&format!(
            "jobs have {mib} MiB of their own at {}",
            areas.display()
        ));
        Ok(())
    }
}

/// Returns the protections of this machine against code of the pull requests that a bot in the workspace `ws` serves.
pub fn bot_protections(ws: &Workspace) -> Vec<Protection> {
    let paths = BotPaths::new(ws);
    protections(&ws.config.sandbox, &paths.areas(), &paths.root(), ws.root())
}

/// Makes the file system in `file`. It has its name when it is complete.
fn make(file: &Path, bytes: u64) -> Result<()> {
    let partial = file.with_extension("tmp");
    let failed = |error: std::io::Error| Error::io("make", &partial, &error);
    let handle = File::create(&partial).map_err(failed)?;
    // All of it, so that writing to the file system never needs a block of the disk below.
    let allocated = rustix::fs::fallocate(&handle, rustix::fs::FallocateFlags::empty(), 0, bytes);
    let made = allocated
        .map_err(|error| failed(error.into()))
        .and_then(|()| {
            let words = ["-q", "-F", "-m", "0"].map(std::ffi::OsStr::new);
            run(&Command::new("mkfs.ext4").args(words).arg(&partial))
        })
        .and_then(|()| std::fs::rename(&partial, file).map_err(failed));
    if made.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    made
}

fn run(command: &Command) -> Result<()> {
    let output = command.run_within(TIMEOUT)?;
    command.require_success(output, Kind::Internal).map(drop)
}

/// Returns whether `folder` is the root of a file system.
fn is_mounted(folder: &Path) -> Result<bool> {
    let device = |path: &Path| {
        let found = std::fs::metadata(path).map_err(|e| Error::io("read", path, &e))?;
        Ok::<u64, Error>(found.dev())
    };
    let above = folder.parent().unwrap_or(folder);
    Ok(device(folder)? != device(above)?)
}
