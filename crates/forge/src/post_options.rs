//! A post to a pull request, and its result.

use serde::Serialize;

use perfquilt_model::comment::MeasurementStatus;
use perfquilt_model::error::{Error, Result};

/// The conclusion of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conclusion {
    /// Green.
    Success,
    /// Grey: neither good nor bad.
    Neutral,
    /// Red.
    Failure,
}

impl Conclusion {
    /// Returns the conclusion for a status. A regression or an inconclusive result is red only on request: a
    /// measurement informs, and the maintainers decide about merging.
    pub fn of(
        status: MeasurementStatus,
        fail_on_regression: bool,
        fail_on_inconclusive: bool,
    ) -> Self {
        match status {
            MeasurementStatus::Faster
            | MeasurementStatus::NoEffect
            | MeasurementStatus::Accepted => Conclusion::Success,
            MeasurementStatus::Failed => Conclusion::Failure,
            MeasurementStatus::Regression if fail_on_regression => Conclusion::Failure,
            MeasurementStatus::Unclear | MeasurementStatus::Unfinished if fail_on_inconclusive => {
                Conclusion::Failure
            }
            _ => Conclusion::Neutral,
        }
    }

    /// Returns its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Conclusion::Success => "success",
            Conclusion::Neutral => "neutral",
            Conclusion::Failure => "failure",
        }
    }
}

/// Further parts to post besides the comment.
#[derive(Debug, Clone)]
pub struct PostOptions {
    /// Distinguishes several comments of perfquilt on one pull request.
    pub id: String,
    /// Whether to write a status, on some forges a check run.
    pub check: bool,
    /// The prefix of the label `PREFIX: STATUS`; `None` for no label.
    pub label: Option<String>,
    /// Whether a regression makes the status red.
    pub fail_on_regression: bool,
    /// Whether an inconclusive result makes the status red.
    pub fail_on_inconclusive: bool,
}

impl PostOptions {
    /// Returns the conclusion for the overall result.
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
    /// The conclusion of the status.
    pub conclusion: &'static str,
    /// The comment.
    pub comment: CommentUpdate,
    /// The URL of the status or check run, if there is one.
    pub check_run: Option<String>,
    /// The label, if there is one.
    pub label: Option<String>,
}

/// How a comment was updated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommentUpdate {
    /// The comment's URL.
    pub url: String,
    /// `created`, `updated`, `unchanged`, or `newer` when a comment about a later commit, or about a measurement that began
    /// later, exists, which stays.
    pub action: &'static str,
    /// The number of duplicates that were deleted.
    pub removed: usize,
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
    /// The reference of its head commit in the repository.
    pub reference: String,
    /// Whether it is open.
    pub open: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_depends_on_the_options() {
        use Conclusion::{Failure, Neutral, Success};
        let all = MeasurementStatus::ALL.iter().copied();
        let quiet = all
            .clone()
            .map(|status| Conclusion::of(status, false, false));
        let quiet: Vec<Conclusion> = quiet.collect();
        assert_eq!(
            quiet,
            [
                Failure, Neutral, Neutral, Success, Success, Success, Neutral
            ]
        );
        let strict: Vec<Conclusion> = all
            .map(|status| Conclusion::of(status, true, true))
            .collect();
        assert_eq!(
            strict,
            [
                Failure, Failure, Failure, Success, Success, Success, Failure
            ]
        );
    }
}
