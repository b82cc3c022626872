//! Lines of upstream as they are now: the tips of branches, and the newest versions in Debian's suites. Neither the
//! configuration nor the lock file names them; references keep them in the object store.

use std::path::Path;

use super::{Objects, Release, debian, fetch, git, write_commit};
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{BranchSource, DebianSource, ReleaseSource};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;

/// Fetches a branch with its history into `reference`, and returns its last commit.
pub fn fetch_branch(ws: &Workspace, source: &BranchSource, reference: &str) -> Result<String> {
    let BranchSource { remote, branch } = source;
    let step = progress::begin(&format!("fetching {branch} from {remote}"), None);
    let store = Objects::open_or_create(&ws.object_store())?;
    let _lock = store.lock_import()?;
    let head = format!("refs/heads/{branch}");
    let fetched = git::fetch_into(&store, ws.root(), &[], (remote, &head), reference)?;
    if !fetched.success() {
        let fault = format!("cannot fetch branch {branch} from {remote}");
        return Err(Error::download(fault)
            .details(fetched.tail(6))
            .hint("is the remote's address right, and does it have the branch?"));
    }
    store.refresh()?;
    step.finish("");
    store
        .git()
        .ok(&["rev-parse", &format!("{reference}^{{commit}}")])
}

/// Imports the newest version of a source package in its suite.
pub fn fetch_newest(ws: &Workspace, source: &DebianSource) -> Result<Release> {
    let mut all = fetch::packages(ws);
    all.push(source.clone());
    let version = debian::newest(ws.cache(), source, &all, Path::new(fetch::APT))?;
    let release = ReleaseSource {
        version,
        debian: Some(source.clone()),
        tarball: None,
        git: None,
        directory: None,
        copies: Vec::new(),
        patches: None,
    };
    let name = ws.config.release_name(&release.version);
    let store = Objects::open_or_create(&ws.object_store())?;
    let _lock = store.lock_import()?;
    let fetched = fetch::fetch(ws, &store, &release, None)?;
    let commit = write_commit(&store, &name, &fetched)?;
    Ok(super::release(&name, commit, &fetched))
}
