//! The fields of Forgejo's and Gitea's responses that perfquilt reads and GitHub's lack.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Permission {
    /// `owner`, `admin`, `write`, `read` or `none`.
    pub permission: String,
}

#[derive(Deserialize)]
pub(super) struct Status {
    pub id: u64,
    pub context: String,
    pub status: String,
    pub description: Option<String>,
}
