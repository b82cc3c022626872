//! The fields of GitHub's responses that perfquilt reads. Optional fields may be missing.

use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct User {
    pub login: String,
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
    #[serde(default)]
    pub body: Option<String>,
    pub user: Option<User>,
    pub html_url: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Branch {
    pub sha: String,
    #[serde(rename = "ref", default)]
    pub name: String,
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
    #[serde(default)]
    pub external_id: Option<String>,
    pub html_url: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CheckRuns {
    pub check_runs: Vec<CheckRun>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Label {
    pub name: String,
}

/// GitHub's error message.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    pub message: String,
}
