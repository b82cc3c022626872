//! A post to a pull request, and its result.

use serde::Serialize;

use super::Conclusion;
use super::sticky::CommentUpdate;
use perfquilt_model::comment::MeasurementStatus;
use perfquilt_model::error::{Error, Result};

/// Further parts to post besides the comment.
#[derive(Debug, Clone)]
pub struct PostOptions {
    /// Distinguishes several comments of perfquilt on one pull request.
    pub id: String,
    /// Whether to write a check run.
    pub check: bool,
    /// The prefix of the label `PREFIX: STATUS`; `None` for no label.
    pub label: Option<String>,
    /// Whether a regression makes the check run red.
    pub fail_on_regression: bool,
    /// Whether an inconclusive result makes the check run red.
    pub fail_on_inconclusive: bool,
}

impl PostOptions {
    /// Returns the check run's conclusion for a status.
    pub fn conclusion(&self, status: MeasurementStatus) -> Conclusion {
        Conclusion::of(status, self.fail_on_regression, self.fail_on_inconclusive)
    }

    /// Returns the maximum size of a comment in bytes, without its mark, for a forge's maximum.
    pub fn limit(&self, max_comment_bytes: usize) -> Result<usize> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        // Two hyphens would end the HTML comment that contains the mark.
        if self.id.is_empty()
            || self.id.len() > 100
            || !self.id.bytes().all(plain)
            || self.id.contains("--")
        {
            return Err(
                Error::arguments(format!("`{}` is not a valid comment id", self.id)).hint(
                    "at most 100 letters, digits and single hyphens, for example `redis-quick`",
                ),
            );
        }
        Ok(max_comment_bytes - 512)
    }
}

/// The result of posting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PostResult {
    /// The pull request's number.
    pub number: u64,
    /// The commit it is about.
    pub head: String,
    /// The comment's title.
    pub title: String,
    /// `faster`, `regression`, ….
    #[serde(rename = "standing")]
    pub status: String,
    /// The check run's conclusion.
    pub conclusion: &'static str,
    /// The comment.
    pub comment: CommentUpdate,
    /// The URL of the check run, if there is one.
    pub check_run: Option<String>,
    /// The label, if there is one.
    pub label: Option<String>,
}

/// A pull request's number, commits and state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Its number.
    pub number: u64,
    /// Its head commit.
    pub head: String,
    /// The last commit of its target branch.
    pub base: String,
    /// The name of its target branch.
    pub branch: String,
    /// Whether it is open.
    pub open: bool,
}
