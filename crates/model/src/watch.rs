//! Changes of state that `perfquilt watch` reports (docs/json.md).

use serde::Serialize;
use strum::Display;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum ChangeKind {
    /// Upstream has the patch now.
    #[strum(to_string = "taken upstream")]
    TakenUpstream,
    /// The patch does not apply without a decision any more.
    Conflict,
    /// Upstream had the patch's change and no longer has it, or nothing of the patch is in the server any more.
    Removed,
    /// The patch applies again.
    #[strum(to_string = "applies again")]
    AppliesAgain,
    /// The server does not build with the patch any more.
    #[strum(to_string = "build fails")]
    BuildFails,
    /// The server's own tests newly fail with the patch.
    #[strum(to_string = "tests fail")]
    TestsFail,
    /// Upstream is slower.
    Slower,
    /// The series helps less.
    #[strum(to_string = "no longer helps")]
    NoLongerHelps,
}
