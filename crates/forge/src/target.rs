//! The pull request that a job is about.

use super::Repository;
use perfquilt_model::error::{Error, Result};

/// Facts about a pull request that need no request to the forge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The target repository.
    pub repository: Option<Repository>,
    /// Its number.
    pub number: Option<u64>,
    /// The commit that was measured.
    pub head: Option<String>,
    /// The owner of the source repository, for pull requests from forks, whose number the event lacks; `None` if the fork
    /// was deleted.
    pub owner: Option<String>,
    /// The source branch of such a pull request.
    pub branch: Option<String>,
    /// The URL of the workflow run that measured.
    pub run: Option<String>,
    /// When that workflow run began (RFC 3339).
    pub began: Option<String>,
}

impl Target {
    /// Returns the number.
    pub(super) fn number(&self) -> Result<u64> {
        self.number.ok_or_else(|| {
            Error::event("no pull request is given")
                .hint("give `--pr NUMBER`; in a job for pull requests, perfquilt reads it from the job's variables")
        })
    }
}

/// Returns the error about a pull request `number` that `repository` lacks.
pub(super) fn no_such_pull_request(number: u64, repository: &Repository) -> Error {
    Error::pull_request(format!(
        "there is no pull request {number} in {repository}, or the token may not see it"
    ))
}
