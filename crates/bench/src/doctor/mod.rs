//! Checks whether a machine meets the requirements of a workspace, and reports its features.
//!
//! The packages come from two lists in the same format: `ci/packages.txt`, built into the program, and the
//! workspace's own `bench-config/packages.txt`. `ci/install-deps` reads the same files.

mod machine;

use std::path::Path;

use serde::Serialize;

use perfquilt_config::packages::{self, PackageStatus, Requirement};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_series::upstream;

pub use machine::{CacheUsage, Machine};

/// Free disk space in bytes that a build of a large server needs: source, objects, results, ccache.
pub const RECOMMENDED_DISK: u64 = 10 << 30;

/// Result of all checks.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorReport {
    /// Version of this document: 1.
    pub schema: u32,
    /// Whether all required packages are installed.
    pub ok: bool,
    /// Every checked package.
    pub packages: Vec<PackageStatus>,
    /// The command that installs missing packages; `None` if none is missing.
    pub install: Option<String>,
    /// The release of the series; `None` outside a workspace.
    pub release: Option<Release>,
    /// The single command that installs and fetches everything missing; `None` if nothing is missing.
    pub repair: Option<String>,
    /// This machine.
    pub machine: Machine,
    /// Contents of the caches.
    pub caches: Vec<CacheUsage>,
}

/// A release and whether it is available.
#[derive(Debug, Clone, Serialize)]
pub struct Release {
    /// Name of the release.
    pub name: String,
    /// Whether it is in the object store.
    pub imported: bool,
}

impl DoctorReport {
    /// Returns the names of missing required packages.
    pub fn missing(&self) -> Vec<&str> {
        self.packages
            .iter()
            .filter(|status| !status.present && status.need == Requirement::Required)
            .map(|status| status.package.as_str())
            .collect()
    }
}

/// Checks this machine for `workspace`, or for the common requirements of all workspaces.
pub fn examine(workspace: Option<&Workspace>, cache: &Path) -> Result<DoctorReport> {
    let packages = packages::check(&packages::packages(workspace)?);
    let state = workspace.map(Workspace::state);
    let install = packages::install_command(&packages);
    let release = match workspace {
        Some(workspace) => release(workspace)?,
        None => None,
    };
    let fetch = workspace
        .filter(|_| release.as_ref().is_some_and(|release| !release.imported))
        .map(fetch_command);
    let repair: Vec<String> = install.iter().cloned().chain(fetch).collect();
    let mut report = DoctorReport {
        schema: 1,
        ok: true,
        repair: Some(repair.join(" && ")).filter(|command| !command.is_empty()),
        release,
        install,
        packages,
        machine: Machine::inspect(cache),
        caches: machine::cache_usage(cache, state.as_deref()),
    };
    report.ok = report.missing().is_empty();
    Ok(report)
}

fn release(workspace: &Workspace) -> Result<Option<Release>> {
    let current = upstream::list(workspace)?.into_iter().find(|r| r.current);
    Ok(current.map(|status| Release {
        imported: status.is_available(),
        name: status.name,
    }))
}

/// Returns the command that fetches the release, for the current directory.
fn fetch_command(workspace: &Workspace) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    if here.starts_with(workspace.root()) {
        "perfquilt upstream fetch".to_owned()
    } else {
        format!("perfquilt -C {} upstream fetch", workspace.root().display())
    }
}
