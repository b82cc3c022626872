//! The forges that perfquilt knows.

use super::credentials::{Variable, first_set};
use super::kind::ForgeKind;
use super::{forgejo, github, gitlab};
use perfquilt_model::error::{Error, Result};

/// The forges, the default first. A job that sets the variables of several is of the last of them: others imitate the
/// default's.
pub const FORGES: [&ForgeKind; 3] = [&github::KIND, &gitlab::KIND, &forgejo::KIND];

impl ForgeKind {
    /// Returns the forge of this name.
    pub fn named(name: &str) -> Result<&'static ForgeKind> {
        let found = FORGES.into_iter().find(|kind| kind.name == name);
        found.ok_or_else(|| {
            let known = FORGES.map(|kind| format!("`{}`", kind.name)).join(", ");
            Error::arguments(format!("`{name}` is no forge")).hint(format!("there are {known}"))
        })
    }

    /// Returns the forge whose job this is, else the default.
    pub fn of_environment(variable: Variable<'_>) -> &'static ForgeKind {
        let is_job = |kind: &&ForgeKind| first_set(variable, kind.job_variables).is_some();
        let found = FORGES.into_iter().rev().find(is_job);
        found.unwrap_or(FORGES[0])
    }
}
