//! Checks that a machine has what a workspace needs, and says what it offers.
//!
//! The packages come from two lists in one form: `ci/packages.txt`, built into the program, and the
//! workspace's own `bench-config/packages.txt`. `ci/install-deps` reads the same files.

mod machine;
mod packages;

use std::path::Path;

use serde::Serialize;

use crate::error::Result;
use crate::workspace::Workspace;

pub use machine::{Holding, Machine};
pub use packages::{Found, FoundBy, Need, Package, packages};

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
    /// This machine.
    pub machine: Machine,
    /// What the caches hold.
    pub caches: Vec<Holding>,
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
/// [`Kind::Usage`](crate::error::Kind::Usage) for a malformed list of packages.
pub fn examine(workspace: Option<&Workspace>, cache: &Path) -> Result<Examination> {
    let found = packages::look(&packages(workspace)?);
    let state = workspace.map(Workspace::state);
    let mut examination = Examination {
        schema: 1,
        ok: true,
        install: packages::install_command(&found),
        packages: found,
        machine: Machine::look(cache),
        caches: machine::holdings(cache, state.as_deref()),
    };
    examination.ok = examination.missing().is_empty();
    Ok(examination)
}
