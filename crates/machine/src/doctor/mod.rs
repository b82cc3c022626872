//! Checks that a machine has what a workspace needs, and says what it offers.
//!
//! The packages come from two lists in one form: `ci/packages.txt`, built into the program, and the
//! workspace's own `bench-config/packages.txt`. `ci/install-deps` reads the same files.

mod machine;

use std::path::Path;

use serde::Serialize;

use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_patches::upstream;

pub use crate::packages::{Found, FoundBy, Need, Package, packages};
pub use machine::{Holding, Machine};

/// Free disk below which a build of a large server may not fit: source, objects, results, ccache.
pub const WANTED_DISK: u64 = 10 << 30;

/// The whole examination.
#[derive(Debug, Clone, Serialize)]
pub struct Examination {
    /// Version of this document: 1.
    pub schema: u32,
    /// Whether everything required is there.
    pub ok: bool,
    /// Every package asked about.
    pub packages: Vec<Found>,
    /// The command that installs what is missing; `None` when nothing is.
    pub install: Option<String>,
    /// The release that the series is for; `None` outside a workspace.
    pub release: Option<Release>,
    /// The one command that brings everything that is missing; `None` when nothing is.
    pub repair: Option<String>,
    /// This machine.
    pub machine: Machine,
    /// What the caches hold.
    pub caches: Vec<Holding>,
}

/// Whether a release is at hand.
#[derive(Debug, Clone, Serialize)]
pub struct Release {
    /// Its name.
    pub name: String,
    /// Whether it is in the object store.
    pub imported: bool,
}

impl Examination {
    /// Names of the packages that are required and missing.
    pub fn missing(&self) -> Vec<&str> {
        self.packages
            .iter()
            .filter(|found| !found.present && found.need == Need::Required)
            .map(|found| found.package.as_str())
            .collect()
    }
}

/// Examines this machine for `workspace`, or for what every workspace needs.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for a malformed list of packages or lock file.
pub fn examine(workspace: Option<&Workspace>, cache: &Path) -> Result<Examination> {
    let found = crate::packages::look(&packages(workspace)?);
    let state = workspace.map(Workspace::state);
    let install = crate::packages::install_command(&found);
    let release = match workspace {
        Some(workspace) => release(workspace)?,
        None => None,
    };
    let fetch = workspace
        .filter(|_| release.as_ref().is_some_and(|release| !release.imported))
        .map(fetch_command);
    let repair: Vec<String> = install.iter().cloned().chain(fetch).collect();
    let mut examination = Examination {
        schema: 1,
        ok: true,
        repair: Some(repair.join(" && ")).filter(|command| !command.is_empty()),
        release,
        install,
        packages: found,
        machine: Machine::look(cache),
        caches: machine::holdings(cache, state.as_deref()),
    };
    examination.ok = examination.missing().is_empty();
    Ok(examination)
}

fn release(workspace: &Workspace) -> Result<Option<Release>> {
    let current = upstream::list(workspace)?.into_iter().find(|r| r.current);
    Ok(current.map(|status| Release {
        imported: status.at_hand(),
        name: status.name,
    }))
}

/// What fetches the release, from where the user is.
fn fetch_command(workspace: &Workspace) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    if here.starts_with(workspace.root()) {
        "perfquilt upstream fetch".to_owned()
    } else {
        format!("perfquilt -C {} upstream fetch", workspace.root().display())
    }
}
