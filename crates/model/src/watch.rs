//! Changes of state that `perfquilt watch` reports (docs/json.md).

use std::fmt;

use serde::Serialize;

/// A change of a patch's state, or of the whole series', on a line of upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateChange {
    /// Version of this document: 1.
    pub schema: u32,
    /// A digest of line, change, patch and commit: the same change has the same one in every look.
    pub id: String,
    /// The line of upstream.
    pub line: String,
    /// What changed.
    pub change: ChangeKind,
    /// The patch; `None` if it is the whole series.
    pub patch: Option<String>,
    /// The upstream commit with which it changed; a release's name where upstream's history is unknown.
    pub commit: String,
    /// The first line of the commit's message.
    pub title: String,
    /// Where the look began: a commit, or a release's name.
    pub since: String,
    /// Why it counts as changed, one sentence fragment each.
    pub evidence: Vec<String>,
    /// The next commands.
    pub next: Vec<String>,
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Upstream has the patch now.
    TakenUpstream,
    /// The patch does not apply without a decision any more.
    Conflict,
    /// Upstream had the patch's change and no longer has it, or nothing of the patch is in the server any more.
    Removed,
    /// The patch applies again.
    AppliesAgain,
    /// The server does not build with the patch any more.
    BuildFails,
    /// The server's own tests newly fail with the patch.
    TestsFail,
    /// Upstream is slower.
    Slower,
    /// The series helps less.
    NoLongerHelps,
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ChangeKind::TakenUpstream => "taken upstream",
            ChangeKind::Conflict => "conflict",
            ChangeKind::Removed => "removed",
            ChangeKind::AppliesAgain => "applies again",
            ChangeKind::BuildFails => "build fails",
            ChangeKind::TestsFail => "tests fail",
            ChangeKind::Slower => "slower",
            ChangeKind::NoLongerHelps => "no longer helps",
        })
    }
}
