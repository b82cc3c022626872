//! The fields of GitHub's responses and events that perfquilt reads. Optional fields may be missing.
//!
//! Models of GitHub's whole API demand far more: all fields of every account and repository, an author of every issue and
//! comment (a deleted account has none), and known values of states that GitHub may extend. A check run's
//! external id is missing, and `{:?}` shows an installation's token.

use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct User {
    pub login: String,
    /// `User`, `Bot`, ….
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RepositoryName {
    pub full_name: String,
    pub id: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct App {
    pub slug: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Installation {
    pub id: u64,
}

#[derive(Clone, Deserialize)]
pub(super) struct InstallationToken {
    pub token: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Comment {
    pub id: u64,
    pub body: Option<String>,
    pub user: Option<User>,
    pub html_url: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Branch {
    pub sha: String,
    #[serde(rename = "ref", default)]
    pub name: String,
    /// `owner:branch`; without a colon for a deleted repository.
    #[serde(default)]
    pub label: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct PullRequestData {
    pub number: u64,
    pub state: String,
    pub head: Branch,
    pub base: Branch,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CheckRun {
    pub id: u64,
    pub external_id: Option<String>,
    pub html_url: Option<String>,
    /// When the measurement began.
    pub started_at: Option<String>,
    /// The App that wrote it, which alone may change it.
    pub app: Option<App>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CheckRuns {
    pub check_runs: Vec<CheckRun>,
}
