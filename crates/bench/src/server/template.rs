//! Prepares data sets: a server fills each one once, a rename publishes it, and every start clones it.

use std::path::{Path, PathBuf};

use super::{Launch, Running, ServerAdapter, copy};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_system::caches;
use perfquilt_system::files::if_there;
use perfquilt_system::locks;
use perfquilt_system::process::check_interrupted;

/// Returns the folder of the data that starts are cloned from, and creates it if it does not exist.
///
/// Starts a server on newly prepared data, calls `fill`, stops the server cleanly and publishes the data
/// in `parent` under `key`, which must change with everything that determines the data: the release,
/// [`ServerAdapter::identity`], the workload's options. Concurrent processes create the same data only once,
/// and a killed process leaves nothing that could be mistaken for a finished data set.
pub(crate) fn prepare_template(
    parent: &Path,
    adapter: &dyn ServerAdapter,
    server: &Path,
    key: &str,
    fill: &dyn Fn(&mut Running) -> Result<()>,
) -> Result<PathBuf> {
    let published = parent.join(key);
    let lock_path = parent.join(format!("{key}.lock"));
    let mut noted = false;
    // The folder must exist after the hold as well: before it, another process may remove the entry.
    while !(published.is_dir() && caches::pin(&lock_path) && published.is_dir()) {
        caches::unpin(&lock_path);
        if let Some(_turn) = locks::try_now(&lock_path)? {
            // Another process may have published it in between.
            if !published.is_dir() {
                make(parent, adapter, server, key, fill)?;
            }
            continue;
        }
        if !noted {
            progress::note("waiting: another perfquilt fills the same data");
            noted = true;
        }
        // Wait for the data, not for the lock: after publishing, users of the data share the lock for as long as
        // they run.
        check_interrupted()?;
        std::thread::sleep(locks::POLL_INTERVAL);
    }
    Ok(published)
}

/// Creates the data; the caller holds the lock.
fn make(
    parent: &Path,
    adapter: &dyn ServerAdapter,
    server: &Path,
    key: &str,
    fill: &dyn Fn(&mut Running) -> Result<()>,
) -> Result<()> {
    let published = parent.join(key);
    let staging = format!("{key}.tmp");
    let path = parent.join(&staging);
    // Remains of a killed process. The caller holds the lock, so nothing uses them.
    if_there("remove", &path, std::fs::remove_dir_all(&path))?;
    let mut named = tempfile::Builder::new();
    let staging = named.prefix(&staging).rand_bytes(0).tempdir_in(parent);
    let staging = staging.map_err(|e| Error::io("create", &path, &e))?;
    let data = staging.path().join("data");
    adapter.prepare(server, &data)?;
    let step = progress::begin("fill the data", None);
    let mut launch = Launch::new("the data set", server, staging.path());
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
