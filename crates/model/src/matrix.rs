//! Each patch of a series on each release (docs/json.md).

use serde::Serialize;
use strum::Display;

use crate::rebase::MeasuredEffect;

/// The patches of all series of a workspace, by release.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Matrix {
    /// Version of this document: 1.
    pub schema: u32,
    /// The releases in the order of the configuration, the current one first.
    pub releases: Vec<String>,
    /// The patches in the order of the current release's series, then those that only other releases have.
    pub patches: Vec<MatrixRow>,
    /// Remarks, one sentence each: patches that a release lacks although they apply there, and releases that are not fetched.
    pub notes: Vec<String>,
}

/// A patch on all releases.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MatrixRow {
    /// Its name in the first series that has it.
    pub name: String,
    /// Its title.
    pub title: String,
    /// One cell a release.
    pub cells: Vec<MatrixCell>,
    /// What its header and earlier rebases tell, for the ledger.
    #[serde(skip)]
    pub origin: PatchOrigin,
}

/// What a patch's header and earlier rebases tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PatchOrigin {
    /// The author in its header.
    pub owner: Option<String>,
    /// The fields of its header about upstream and the addresses in its text.
    pub upstream: Vec<String>,
    /// The conflicts of it that were resolved in this workspace: `0003-x.patch on 11.8.6`.
    pub conflicts: Vec<String>,
}

/// A patch on a release.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MatrixCell {
    /// Its state.
    pub state: PatchState,
    /// Its name in the series of the release; `None` if that lacks it.
    pub name: Option<String>,
    /// The evidence for the state, where the patch was moved; else empty.
    pub detail: String,
    /// Its effect on time in the release's latest experiment; `None` without one.
    pub effect: Option<MeasuredEffect>,
}

/// The state of a patch on a release, compared with the current release's patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum PatchState {
    /// The release has it with the same removed and added lines, or it applies there unchanged.
    Same,
    /// The release has it with other lines, or a merge applies it.
    Adapted,
    /// The release's own series lacks it, or only another release has it.
    Missing,
    /// The release itself has the change.
    Upstream,
    /// It does not apply there without a decision.
    Conflict,
    /// The release is not fetched.
    Unknown,
}
