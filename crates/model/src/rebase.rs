//! The result of a rebase, from which every report format is generated (docs/json.md).

use serde::Serialize;
use strum::{Display, VariantArray};

use crate::server_tests::PointTests;

/// The result of moving a series to another release.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Version of this document: 1.
    pub schema: u32,
    /// The release the series was for.
    pub from: String,
    /// The release the series is moved to.
    pub to: String,
    /// The version of the new release, as commands accept it.
    pub version: String,
    /// The `series` file that was read.
    pub series: String,
    /// Whether no decision is pending and every patch was tried.
    pub ready: bool,
    /// Number of patches that need a decision.
    pub decisions: usize,
    /// The patches in series order.
    pub patches: Vec<PatchReport>,
    /// How the tests of the bare new release go, if they ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<PointTests>,
    /// Patches that can be dropped, with the reason.
    pub drops: Vec<PatchRemoval>,
    /// Further remarks, one sentence each.
    pub notes: Vec<String>,
    /// The result of `--write`, if it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    /// The next commands.
    pub next: Vec<String>,
}

impl Report {
    /// Returns the number of patches by status, in the order of [`Status::ALL`], without zeros.
    pub fn counts(&self) -> Vec<(Status, usize)> {
        Status::counts(self.patches.iter())
    }

    /// Returns the number of patches that could not be tried.
    pub fn untested(&self) -> usize {
        self.patches
            .iter()
            .filter(|patch| patch.status == Status::Untested)
            .count()
    }
}

/// How a patch fits the new release.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Display, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// Every hunk applies at its original lines.
    Exact,
    /// Every hunk applies unchanged, some at other lines.
    Offset,
    /// A 3-way merge applies the patch.
    Merged,
    /// An earlier manual resolution applies.
    Resolved,
    /// A 3-way merge applies the patch, and the release already has a part of it.
    #[strum(to_string = "partly upstream")]
    Partly,
    /// The release already has the patch.
    Upstream,
    /// The release has a similar change: needs a manual decision.
    #[strum(to_string = "changed upstream")]
    Changed,
    /// A conflict: needs a manual decision.
    Conflict,
    /// Depends on a patch that could not be moved.
    #[default]
    Untested,
}

impl Status {
    /// Every status, from the best to the worst.
    pub const ALL: &[Status] = Status::VARIANTS;

    /// Returns how many of the patches have each status, without those that none has.
    pub fn counts<'p>(
        patches: impl Iterator<Item = &'p PatchReport> + Clone,
    ) -> Vec<(Status, usize)> {
        let of = |status| patches.clone().filter(|p| p.status == status).count();
        let counts = Status::ALL.iter().map(|&status| (status, of(status)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Whether the patch needs a manual decision before the series can be used.
    pub fn needs_decision(self) -> bool {
        matches!(self, Status::Changed | Status::Conflict)
    }

    /// Whether the new stack contains the patch.
    pub fn applies(self) -> bool {
        use Status::{Exact, Merged, Offset, Partly, Resolved};
        matches!(self, Exact | Offset | Merged | Resolved | Partly)
    }
}

/// The kind of evidence that a release already has a patch, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceLevel {
    /// The patch's `Applied-Upstream:` names a commit or version that the release contains.
    Header,
    /// A commit between the releases makes the same change.
    PatchId,
    /// A 3-way merge leaves the tree as it was.
    Merge,
    /// The patch can be reverted, after all later ones.
    Reverse,
    /// The lines that the patch adds appeared between the releases, and those that it removes disappeared.
    Lines,
}

/// The result for one patch.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PatchReport {
    /// Its place in the series, from 1.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// How the patch fits the new release.
    pub status: Status,
    /// The evidence for the status, in a few words.
    pub evidence: String,
    /// The kind of evidence that the release already has the patch, if it does.
    #[serde(rename = "rung", skip_serializing_if = "Option::is_none")]
    pub evidence_level: Option<EvidenceLevel>,
    /// Why a person should review the merge, if it took rules that guess what the patch means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<String>,
    /// How the new release with the patches up to this one builds, if that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildResult>,
    /// Whether its server is the program of the patches before it again. Absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub same_program: bool,
    /// How the tests of the new release go with the patches up to this one, if they ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestResult>,
    /// The largest distance of a hunk from its original position, in lines.
    pub offset: i64,
    /// Where its changes are on the new release, in files that upstream changed too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<LandingPlace>,
    /// Patches that could not be moved and were left out when this one was tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<usize>,
    /// Further remarks, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Pending decisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// The difference between the old and the new patch, if the patch changed: lines in the format of
    /// `git range-diff`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub range_diff: Vec<String>,
    /// The patch's effect on the old and the new release, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectChange>,
    /// Its commit on the new release, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// How the new release builds with the patches up to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildResult {
    /// It builds.
    Ok,
    /// It does not, with the first error.
    Failed(String),
}

/// How the tests of the new release go with the patches up to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TestResult {
    /// They ran.
    Ran(PointTests),
    /// They could not run, with the reason.
    Failed(String),
}

/// One location that needs a manual decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The file on the new release.
    pub file: String,
    /// The reason for the conflict.
    pub what: String,
    /// Number of the patch's hunk in this file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunk: Option<usize>,
    /// Number of the patch's hunks in this file.
    pub hunks: usize,
    /// The first shown line of the current file, which includes the earlier patches of the series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The function there, by the line that begins it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The places that have the lines that the hunk expects, if its context does not say which one it is for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidatePlace>,
    /// The file's lines there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub now: Vec<String>,
    /// The patch's change there: lines with ` `, `-` or `+`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patch: Vec<String>,
    /// Upstream's change there between the releases: lines with ` `, `-` or `+`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upstream: Vec<String>,
    /// The location in the file that is most similar to the lines the patch expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closest: Option<Closest>,
    /// Earlier patches of the series that wrote lines there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub touched_by: Vec<String>,
}

impl Decision {
    /// Creates a decision on a file, of whose `hunks` none is singled out yet.
    pub fn new(file: String, what: String, hunks: usize) -> Self {
        Decision {
            file,
            what,
            hunks,
            ..Decision::default()
        }
    }
}

/// A place in a file where a hunk could apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CandidatePlace {
    /// The first line.
    pub line: usize,
    /// The function there, by the line that begins it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// A place on the new release that a patch changes, in a file that upstream changed too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LandingPlace {
    /// The file.
    pub file: String,
    /// The first changed line, before the change.
    pub line: usize,
    /// The function there, by the line that begins it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The function on the old release, if it has another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
}

/// The location in a file that is most similar to the lines of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Closest {
    /// The first line.
    pub line: usize,
    /// Similarity to the lines the patch expects, in per cent.
    pub expected: u8,
    /// Similarity to the lines the patch produces, in per cent.
    pub result: u8,
}

/// A patch to drop, or one that was set aside, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PatchRemoval {
    /// Its place in the series, from 1.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// A patch's effect on the old and the new release, on the workload where it was largest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectChange {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: String,
    /// The effect on the old release.
    pub old: MeasuredEffect,
    /// The effect on the new release, if it was measured.
    pub new: Option<MeasuredEffect>,
    /// Whether the patch was faster, is no longer shown to be faster, and the loss is significant with
    /// correction for all patches.
    pub no_longer_helps: bool,
}

/// A measured effect as a fraction of speed: 0.01 is 1 % faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredEffect {
    /// The experiment's name.
    pub experiment: String,
    /// The estimate.
    pub estimate: f64,
    /// The interval's lower end.
    pub low: Option<f64>,
    /// The interval's upper end.
    pub high: Option<f64>,
    /// `faster`, `slower`, `no effect` or `unclear`.
    pub verdict: String,
}

/// The result of `--write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The new branch; `None` when a folder was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit on the new branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The folder; `None` when a branch was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Paths of the changed files in the workspace.
    pub files: Vec<String>,
    /// Patches whose line in `series` was turned into a comment, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<PatchRemoval>,
}
