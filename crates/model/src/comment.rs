//! Comments on pull requests.

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// The pull request and its commits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestRef {
    /// The pull request's number.
    pub number: Option<u64>,
    /// The commit that was measured.
    pub head: String,
    /// The commit it is compared with.
    pub base: String,
    /// The pull request's latest commit, if it is no longer `head`.
    pub moved_on: Option<String>,
    /// Address of the page of the measuring job.
    pub run: Option<String>,
    /// When the measurement began (RFC 3339), if known.
    pub began: Option<String>,
    /// Address or path of the full report.
    pub report: Option<String>,
}

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comment {
    /// The verdict in one line of plain text.
    pub title: String,
    /// The comment as GitHub-flavoured Markdown.
    pub body: String,
    /// The overall result.
    pub status: MeasurementStatus,
}

/// The overall result of measuring a pull request. If several variants apply, the first one counts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Display, VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum MeasurementStatus {
    /// The series does not apply, or something could not be built or measured.
    Failed,
    /// A patch, or the whole series, is slower, or a patch no longer helps after a rebase.
    Regression,
    /// Measurements are incomplete or have not started.
    Unfinished,
    /// The series is faster.
    Faster,
    /// The series has no effect.
    #[strum(to_string = "no effect")]
    NoEffect,
    /// The series is slower, by no more than patches whose loss a maintainer accepted.
    Accepted,
    /// The effect of the series is indistinguishable from noise.
    Unclear,
}

impl MeasurementStatus {
    /// All of them.
    pub const ALL: &[MeasurementStatus] = MeasurementStatus::VARIANTS;
}
