//! Runs a command of perfquilt again inside a sandbox, for patches that nobody has reviewed.
//!
//! All leftovers of these patches' code stay in an area of their own: no other command reads its state, or runs
//! a server that it built.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout};

use perfquilt_bench::sandbox::{self, ProcessEnd, Sandbox};
use perfquilt_bench::server::copy_tree;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::{Series, SeriesLocation};
use perfquilt_series::upstream::{self, Release};
use perfquilt_store::Store;
use perfquilt_system::process::{Sink, end_processes_of};
use perfquilt_system::remove::remove_tree;
use perfquilt_system::{caches, digest, files, locks};
use tempfile::TempDir;

/// Folders of a workspace that no series is in, and that may have secrets.
const PRIVATE: [&str; 2] = [".git", ".perfquilt"];

/// The area of sandboxed runs of one series on one release: a state folder and caches that only they use, since code of another
/// series may not answer for this one. It is not removed from the cache while this value lives.
#[derive(Debug)]
pub struct SandboxArea<'a> {
    ws: &'a Workspace,
    release: Option<&'a str>,
    folder: PathBuf,
    lock_file: PathBuf,
}

impl<'a> SandboxArea<'a> {
    /// Fetches `release` (the current one if `None`) and opens the area. A new one starts with the release and with a
    /// copy of the workspace's results, and replaces the area of an earlier series of the workspace.
    pub fn open(ws: &'a Workspace, release: Option<&'a str>) -> Result<Self> {
        sandbox::check_support(&ws.config.sandbox).map_err(|why| {
            Error::sandbox_unavailable(format!("there is no sandbox: {why}"))
                .hint("`perfquilt doctor` lists what is missing")
        })?;
        let fetched = upstream::ensure(ws, release)?;
        let areas = ws.cache().join(caches::SANDBOXES);
        files::make_private(&areas)?;
        let owner = key(ws, &fetched);
        let folder = areas.join(format!("{owner}-{}", series_key(ws, release)?));
        let area = SandboxArea {
            ws,
            release,
            lock_file: caches::with_suffix(&folder, ".lock"),
            folder,
        };
        area.fill()?;
        caches::pin(&area.lock_file);
        remove_others(&areas, &owner, &area.folder)?;
        Ok(area)
    }

    /// Creates the area's folders if they do not exist.
    fn fill(&self) -> Result<()> {
        let _lock = locks::wait(&self.lock_file, || {})?;
        end_processes_of(&self.folder);
        if self.ws.answers().is_fresh() {
            remove_tree(&self.folder)?;
        }
        if self.folder.is_dir() {
            return Ok(());
        }
        // The folder appears when it is complete.
        let partial = caches::with_suffix(&self.folder, ".tmp");
        remove_tree(&partial)?;
        let cache = partial.join(CACHE);
        std::fs::create_dir_all(&cache).map_err(|e| Error::io("make", &cache, &e))?;
        copy_state(self.ws, &partial.join(STATE))?;
        std::fs::rename(&partial, &self.folder).map_err(|e| Error::io("make", &self.folder, &e))
    }

    /// Creates a folder that the sandbox can write its outcome to.
    pub fn outcome(&self) -> Result<TempDir> {
        tempfile::Builder::new()
            .prefix("outcome-")
            .tempdir_in(&self.folder)
            .map_err(|e| Error::io("make a folder in", &self.folder, &e))
    }

    /// Runs this program with the arguments `words` in a sandbox without network, in which the area and the folder
    /// `outcome` can be written. Returns its exit code.
    pub fn run(
        &self,
        words: &[OsString],
        outcome: Option<&Path>,
        relay: impl FnOnce(Option<ChildStdout>, Option<ChildStderr>),
    ) -> Result<u8> {
        let ws = self.ws;
        let state = self.folder.join(STATE);
        let sandbox = allow_series(Sandbox::new(&ws.config.sandbox), ws, self.release)?
            .caches(&self.folder.join(CACHE), ws.cache())
            .write(&state)
            .link(&ws.state(), &state);
        let sandbox = match outcome {
            Some(folder) => sandbox.write(folder),
            None => sandbox,
        };
        let here = std::env::current_dir().map_err(|e| Error::io("find", Path::new("."), &e))?;
        let code = run_in_sandbox(&sandbox, words, &here, relay);
        if code
            .as_ref()
            .is_err_and(|error| error.code() == Error::sandbox_ended("").code())
        {
            // The next run starts with room again.
            remove_tree(&self.folder)?;
        }
        code
    }
}

/// Runs this program with the arguments `words` in `sandbox`, in the folder `directory`; returns its exit code. `relay` gets its two
/// streams, which are pipes: code inside can write to them, and must not reach a terminal.
pub fn run_in_sandbox(
    sandbox: &Sandbox,
    words: &[OsString],
    directory: &Path,
    relay: impl FnOnce(Option<ChildStdout>, Option<ChildStderr>),
) -> Result<u8> {
    let tool = std::env::current_exe()
        .map_err(|error| Error::system_refused(format!("cannot find this program: {error}")))?;
    let mut inside = sandbox.start(&tool, words, directory, (Sink::Pipe, Sink::Pipe))?;
    relay(inside.take_stdout(), inside.take_stderr());
    let status = match sandbox::supervise(&mut inside, &|| false)? {
        ProcessEnd::Exited(status) | ProcessEnd::Interrupted(status) => status,
        ProcessEnd::LimitExceeded(what) => {
            return Err(
                Error::sandbox_ended(format!("the sandbox was ended: {what}"))
                    .hint("[sandbox] of the configuration sets its limits"),
            );
        }
        ProcessEnd::Cancelled => return Err(Error::interrupted()),
    };
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| match status.signal() {
        Some(signal) => Error::sandbox_failed(format!("the sandbox was ended by signal {signal}")),
        None => Error::sandbox_failed("the sandbox ended unexpectedly"),
    })
}

impl Drop for SandboxArea<'_> {
    fn drop(&mut self) {
        caches::unpin(&self.lock_file);
    }
}

/// The area's state folder.
const STATE: &str = "state";
/// The area's cache folder; its last component must be that of the workspace's cache.
const CACHE: &str = "cache/perfquilt";

/// Returns the name of the area of `ws` on `release`.
fn key(ws: &Workspace, release: &Release) -> String {
    let root = std::fs::canonicalize(ws.root()).unwrap_or_else(|_| ws.root().to_owned());
    let commit = release.commit.to_string();
    let parts = [
        root.as_os_str().as_encoded_bytes(),
        release.name.as_bytes(),
        commit.as_bytes(),
        env!("CARGO_PKG_VERSION").as_bytes(),
    ];
    digest::of(parts)[..16].to_owned()
}

/// Returns the digest of the series of `ws` for `release`.
fn series_key(ws: &Workspace, release: Option<&str>) -> Result<String> {
    // Errors of a series quote it, so nothing is read that the sandbox does not show.
    allow_series(Sandbox::default(), ws, release)?;
    let series = Series::load_for(ws, release)?;
    let patches = series.patches().iter();
    let parts = patches.flat_map(|patch| [&patch.name, &patch.digest]);
    Ok(digest::of(parts)[..16].to_owned())
}

/// Removes the areas of `owner` in the folder `areas` other than `kept`, unless a run uses them.
fn remove_others(areas: &Path, owner: &str, kept: &Path) -> Result<()> {
    let entries = std::fs::read_dir(areas).map_err(|e| Error::io("read", areas, &e))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let theirs = entry
            .file_name()
            .to_string_lossy()
            .strip_prefix(owner)
            .is_some_and(|rest| rest.starts_with('-'));
        if theirs && path != kept && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let lock = caches::with_suffix(&path, ".lock");
            if let Some(_unused) = locks::try_now(&lock)? {
                remove_tree(&path)?;
                caches::remove_file(&lock)?;
            }
        }
    }
    Ok(())
}

/// Copies the releases and the results of `ws` to the state folder `state` of an untrusted workspace.
fn copy_state(ws: &Workspace, state: &Path) -> Result<()> {
    copy_tree(&ws.object_store(), &state.join("objects.git"))?;
    if ws.results().is_file() {
        Store::open_existing(&ws.results())?.copy_to(&state.join("results.db"))?;
    }
    Ok(())
}

/// Makes the series of `release` readable in the sandbox, with the files and variables that locate it: those of the
/// configuration and of quilt.
fn allow_series(sandbox: Sandbox, ws: &Workspace, release: Option<&str>) -> Result<Sandbox> {
    let series = SeriesLocation::of(ws, release)?;
    let mut sandbox = sandbox.read(&ws.bench_config());
    for name in ["QUILT_PC", "QUILT_PATCHES", "QUILT_SERIES"] {
        if let Some(value) = std::env::var_os(name) {
            sandbox = sandbox.env(name, value);
        }
    }
    let given = std::env::var_os("QUILT_PC").filter(|value| !value.is_empty());
    let noted = ws.root().join(given.unwrap_or_else(|| ".pc".into()));
    let notes = [".quilt_patches", ".quilt_series"].map(|name| noted.join(name));
    for path in [&series.file, &series.folder].into_iter().chain(&notes) {
        require_inside(ws.root(), path)?;
        sandbox = sandbox.read(path);
    }
    Ok(sandbox)
}

/// Refuses a path of the series that leads out of the workspace `root`, or to a private folder: a link in an untrusted author's
/// series would make its target readable for the untrusted code.
fn require_inside(root: &Path, path: &Path) -> Result<()> {
    let Some(real) = files::if_there("find", path, std::fs::canonicalize(path))? else {
        return Ok(());
    };
    let root = std::fs::canonicalize(root).map_err(|e| Error::io("find", root, &e))?;
    let below = real.strip_prefix(&root).ok();
    let is_private = |below: &Path| {
        let mut parts = below.components();
        parts.any(|part| PRIVATE.iter().any(|name| part.as_os_str() == *name))
    };
    if below.is_some_and(|below| !below.as_os_str().is_empty() && !is_private(below)) {
        return Ok(());
    }
    Err(Error::sandbox_unavailable(format!(
        "a sandboxed run does not read {}, which is {}",
        path.display(),
        real.display()
    ))
    .hint("series and patches must be in the workspace, and not in .git or .perfquilt"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use perfquilt_model::error::Kind;

    #[test]
    fn a_series_that_leads_out_of_the_workspace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("workspace");
        for below in ["workspace/debian/patches", "workspace/.git", "outside"] {
            std::fs::create_dir_all(folder.path().join(below)).unwrap();
        }
        let link = |name: &str, target: &str| {
            symlink(target, root.join(name)).unwrap();
            require_inside(&root, &root.join(name))
        };
        link("patches", "debian/patches").unwrap();
        link("nowhere", "missing").unwrap();
        require_inside(&root, &root.join("series")).unwrap();
        for (name, target) in [
            ("a", "../outside"),
            ("b", ".git"),
            ("c", "."),
            ("d", "/etc/passwd"),
            ("e", ".."),
        ] {
            let error = link(name, target).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{name}: {error}");
        }
    }
}
