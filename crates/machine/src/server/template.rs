//! Prepared data: filled once by a server, published by rename, cloned for every start.

use std::path::{Path, PathBuf};

use super::{Launch, Running, ServerAdapter, copy};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::caches;
use perfquilt_system::locks;
use perfquilt_system::process::check_interrupted;

/// Makes the data that starts are cloned from, unless it is there, and returns its folder.
///
/// A server is started on newly prepared data, `fill` fills it, and after a clean stop the data is
/// published under `key`, which must change with everything that decides the data: the release,
/// [`ServerAdapter::identity`], the workload's options. Two processes that want the same data do not
/// make it twice; one that is killed leaves nothing that would be taken for finished.
///
/// # Errors
/// What the server or `fill` meet; a full disk is told as such.
pub fn prepare_template(
    ws: &Workspace,
    adapter: &dyn ServerAdapter,
    server: &Path,
    key: &str,
    fill: &dyn Fn(&mut Running) -> Result<()>,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    prepare_in(
        &ws.cache().join("data"),
        adapter,
        server,
        key,
        fill,
        progress,
    )
}

pub(super) fn prepare_in(
    parent: &Path,
    adapter: &dyn ServerAdapter,
    server: &Path,
    key: &str,
    fill: &dyn Fn(&mut Running) -> Result<()>,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let published = parent.join(key);
    let lock_path = parent.join(format!("{key}.lock"));
    let mut told = false;
    // Only what was there while it was held stays there.
    while !(published.is_dir() && caches::hold(&lock_path) && published.is_dir()) {
        caches::let_go(&lock_path);
        if let Some(_turn) = locks::try_now(&lock_path)? {
            // Another process may have made it in between.
            if !published.is_dir() {
                make(parent, adapter, server, key, fill, progress)?;
            }
            continue;
        }
        if !told {
            progress.note("waiting: another perfquilt fills the same data");
            told = true;
        }
        // Whoever fills it shares the lock from then on until its end: it is the data that is waited for, and
        // never the lock.
        check_interrupted()?;
        std::thread::sleep(locks::POLL);
    }
    Ok(published)
}

/// Makes the data; the caller holds the lock.
fn make(
    parent: &Path,
    adapter: &dyn ServerAdapter,
    server: &Path,
    key: &str,
    fill: &dyn Fn(&mut Running) -> Result<()>,
    progress: &dyn Progress,
) -> Result<()> {
    let published = parent.join(key);
    let staging = Staging::new(parent.join(format!("{key}.tmp")))?;
    let data = staging.0.join("data");
    adapter.prepare(server, &data, progress)?;
    let step = progress.begin("fill the data", None);
    let mut launch = Launch::new("the data set", server, &staging.0);
    launch.filling = true;
    let mut running = adapter.start(&launch)?;
    fill(&mut running)
        .and_then(|()| adapter.settle(&mut running))
        .map_err(|error| running.explain(error))?;
    let data = running.stop_cleanly()?;
    copy::sync_tree(&data)?;
    std::fs::rename(&data, &published).map_err(|e| Error::io("publish", &published, &e))?;
    step.finish("");
    Ok(())
}

/// Work in progress, removed on every way out.
struct Staging(PathBuf);

impl Staging {
    fn new(path: PathBuf) -> Result<Self> {
        // What a killed process left; the caller holds the lock.
        match std::fs::remove_dir_all(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &path, &e));
            }
            _ => {}
        }
        std::fs::create_dir_all(&path).map_err(|e| Error::io("create", &path, &e))?;
        Ok(Staging(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
