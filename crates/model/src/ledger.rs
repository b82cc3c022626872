//! What is known and decided about each patch of a series (docs/json.md).

use serde::Serialize;

use crate::decision::DecisionKind;
use crate::matrix::{MatrixCell, PatchOrigin};
use crate::server_tests::PointTests;

/// The patches of all series of a workspace, with what is known of each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ledger {
    /// Version of this document: 1.
    pub schema: u32,
    /// The releases in the order of the configuration, the current one first.
    pub releases: Vec<String>,
    /// The patches, in the order of [`Matrix`](crate::matrix::Matrix).
    pub patches: Vec<LedgerRow>,
    /// Remarks, one sentence each.
    pub notes: Vec<String>,
}

/// A patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LedgerRow {
    /// Its name in the first series that has it.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What its header and earlier rebases tell.
    #[serde(flatten)]
    pub origin: PatchOrigin,
    /// Its state and effect on each release.
    pub cells: Vec<MatrixCell>,
    /// The server's own tests on the current release with it, if they ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<PointTests>,
    /// The recorded decisions on it.
    pub decisions: Vec<LedgerDecision>,
    /// What to do next.
    pub next: String,
}

/// A decision on a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerDecision {
    /// The release.
    pub release: String,
    /// What was decided.
    pub decision: DecisionKind,
    /// Why.
    pub reason: String,
    /// When (RFC 3339).
    pub decided: String,
    /// Whether it could be checked: an experiment on the release tells its programs.
    pub checked: bool,
    /// Why it no longer holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lapsed: Option<String>,
}
