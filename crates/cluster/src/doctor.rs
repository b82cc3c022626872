//! Checks whether a workspace can use a cluster.

use std::path::Path;

use serde::Serialize;

use super::exchange::publish;
use super::scheduler::{self, Listing};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::{locks, mounts};

/// A check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The subject of the check, in a word or two.
    pub what: &'static str,
    /// Whether it is as it must be.
    pub ok: bool,
    /// The finding.
    pub found: String,
}

impl Check {
    /// Returns the check of `what` with its result.
    pub fn of(what: &'static str, result: Result<String>) -> Self {
        let (ok, found) = match result {
            Ok(found) => (true, found),
            Err(error) => (false, error.to_string()),
        };
        Check { what, ok, found }
    }
}

/// Checks the scheduler called `name` and the shared folders of `ws`.
pub fn examine(ws: &Workspace, name: &str) -> Vec<Check> {
    vec![
        Check::of("queue", queue(ws, name)),
        Check::of(
            "shared folder",
            folder(&ws.root().join(&ws.config.cluster.folder)),
        ),
        Check::of("results", results(&ws.results())),
    ]
}

fn queue(ws: &Workspace, name: &str) -> Result<String> {
    let section = ws
        .config
        .cluster
        .schedulers
        .get(name)
        .cloned()
        .unwrap_or_default();
    match scheduler::scheduler(name, &section)?.list(&["perfquilt".to_owned()]) {
        Listing::Known(_) => Ok(format!("{name} answers")),
        Listing::Unknown(reason) => Err(Error::cluster_files(format!(
            "{name} does not answer: {reason}"
        ))),
    }
}

/// Checks that `folder` has all that results are exchanged by: hard links that fail where there is a file, renames and
/// locks.
fn folder(folder: &Path) -> Result<String> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, &error))?;
    let trial = tempfile::Builder::new()
        .prefix("doctor-")
        .tempdir_in(folder)
        .map_err(|error| Error::io("write", folder, &error))?;
    let path = trial.path().join("result");
    if !publish(&path, b"1")? || publish(&path, b"2")? {
        return Err(Error::cluster_files(format!(
            "hard links in {} replace files",
            folder.display()
        )));
    }
    let moved = trial.path().join("moved");
    std::fs::rename(&path, &moved).map_err(|error| Error::io("rename", &path, &error))?;
    let lock = trial.path().join("lock");
    let held = locks::try_now(&lock)?;
    if held.is_none() || locks::try_now(&lock)?.is_some() {
        return Err(Error::cluster_files(format!(
            "locks in {} do not exclude other processes",
            folder.display()
        )));
    }
    Ok(match mounts::network_file_system(folder) {
        Some(kind) => format!("links, renames and locks work (on {kind})"),
        None => "links, renames and locks work (no network file system that is known)".to_owned(),
    })
}

/// Checks that the database at `path` is on a local disk.
pub fn results(path: &Path) -> Result<String> {
    // A link leads to the disk that has the file.
    let real = std::fs::canonicalize(path);
    let real = real.as_deref().unwrap_or(path);
    match mounts::network_file_system(real) {
        None => Ok("on a local disk".to_owned()),
        Some(kind) => Err(Error::cluster_files(format!(
            "{} is on {kind}, where SQLite's log does not work",
            path.display()
        ))
        .hint("move it to a local disk, and link to it from here")),
    }
}
