//! The fields of GitLab's responses and hooks that perfquilt reads. Optional fields may be missing.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct User {
    pub username: String,
    #[serde(default)]
    pub bot: bool,
}

#[derive(Deserialize)]
pub(super) struct Member {
    /// 10 is a guest, 20 a reporter, 30 a developer, 40 a maintainer, 50 an owner.
    pub access_level: u64,
}

#[derive(Deserialize)]
pub(super) struct Note {
    pub id: u64,
    pub body: Option<String>,
    pub author: Option<User>,
}

#[derive(Deserialize)]
pub(super) struct MergeRequest {
    pub state: String,
    /// The head commit.
    pub sha: Option<String>,
    pub source_branch: String,
    pub target_branch: String,
    /// The pipeline of the last commit, if there was one.
    pub head_pipeline: Option<Pipeline>,
    pub diff_refs: Option<DiffRefs>,
    #[serde(default)]
    pub labels: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Pipeline {
    pub id: u64,
    pub sha: String,
}

#[derive(Deserialize)]
pub(super) struct DiffRefs {
    /// The commit of the target branch that it is compared with.
    pub start_sha: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Status {
    pub id: u64,
    pub name: String,
    pub status: String,
    pub description: Option<String>,
}
