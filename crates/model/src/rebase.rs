//! What a rebase found: one value, from which every form of the report is made (docs/json.md).

use std::fmt;

use serde::Serialize;

/// What became of a series on another release.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of this document: 1.
    pub schema: u32,
    /// The release the series was for.
    pub from: String,
    /// The release it is moved to.
    pub to: String,
    /// The version of the latter, as commands take it.
    pub version: String,
    /// The `series` file that was read.
    pub series: String,
    /// Whether nothing is left to decide.
    pub ready: bool,
    /// How many patches somebody must look at.
    pub decisions: usize,
    /// The patches, in the series' order.
    pub patches: Vec<PatchReport>,
    /// Patches that may go, with the reason.
    pub drops: Vec<Drop>,
    /// What else the reader must know, one sentence each.
    pub notes: Vec<String>,
    /// What was written, with `--write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    /// The commands to go on with.
    pub next: Vec<String>,
}

impl Report {
    /// How many patches have a status, in the order of [`Status::ALL`], without zeros.
    pub fn counts(&self) -> Vec<(Status, usize)> {
        Status::ALL
            .into_iter()
            .map(|status| {
                let count = self.patches.iter().filter(|p| p.status == status).count();
                (status, count)
            })
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Patches that could not be tried.
    pub fn untested(&self) -> usize {
        self.patches
            .iter()
            .filter(|patch| patch.status == Status::Untested)
            .count()
    }
}

/// How a patch fits the new release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every hunk where it was written.
    Exact,
    /// Every hunk as it was written, some on other lines.
    Offset,
    /// By a 3-way merge.
    Merged,
    /// As decided by a person before.
    Resolved,
    /// By a 3-way merge, and a part of it is in the release already.
    Partly,
    /// The release has it already.
    Upstream,
    /// The release has something like it: a person decides.
    Changed,
    /// A person decides.
    Conflict,
    /// Needs a patch that could not be moved.
    Untested,
}

impl Status {
    /// Every status, from the best to the worst.
    pub const ALL: [Status; 9] = [
        Status::Exact,
        Status::Offset,
        Status::Merged,
        Status::Resolved,
        Status::Partly,
        Status::Upstream,
        Status::Changed,
        Status::Conflict,
        Status::Untested,
    ];

    /// Whether a person must look at it before the series can be used.
    pub fn needs_decision(self) -> bool {
        matches!(self, Status::Changed | Status::Conflict)
    }

    /// Whether the new stack has the patch.
    pub fn applies(self) -> bool {
        use Status::{Exact, Merged, Offset, Partly, Resolved};
        matches!(self, Exact | Offset | Merged | Resolved | Partly)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Status::Exact => "exact",
            Status::Offset => "offset",
            Status::Merged => "merged",
            Status::Resolved => "resolved",
            Status::Partly => "partly upstream",
            Status::Upstream => "upstream",
            Status::Changed => "changed upstream",
            Status::Conflict => "conflict",
            Status::Untested => "untested",
        })
    }
}

/// What told that a release has a patch already, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// The patch's `Applied-Upstream:` names a commit or version that the release contains.
    Header,
    /// A commit between the releases makes the same change.
    PatchId,
    /// A 3-way merge leaves the tree as it was.
    Merge,
    /// The patch can be taken back, after all later ones.
    Reverse,
}

/// One patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchReport {
    /// Its place in the series, from 1.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// How it fits.
    pub status: Status,
    /// What shows that, in a few words.
    pub evidence: String,
    /// What told that the release has it, where it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<Rung>,
    /// The largest distance of a hunk from where it was written, in lines.
    pub offset: i64,
    /// Patches that could not be moved and without which this one was tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<usize>,
    /// What else there is to know, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What there is to decide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// The old patch compared with the new one, where the patch changed: lines as `git range-diff`
    /// shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub range_diff: Vec<String>,
    /// What it was worth on the old release and is on the new one, where that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectChange>,
    /// Its commit on the new release, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// One place that a person must look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The file on the new release.
    pub file: String,
    /// What is the matter.
    pub what: String,
    /// Which of the patch's hunks of this file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunk: Option<usize>,
    /// How many hunks the patch has there.
    pub hunks: usize,
    /// The first line shown of the file as it is now, with the earlier patches of the series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The file's lines there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub now: Vec<String>,
    /// What the patch wants there: lines with ` `, `-` or `+`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patch: Vec<String>,
    /// What upstream changed there between the releases: lines with ` `, `-` or `+`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upstream: Vec<String>,
    /// Where the file is most like what the patch expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closest: Option<Closest>,
    /// Earlier patches of the series that wrote lines there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub touched_by: Vec<String>,
}

/// Where a file is most like something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Closest {
    /// The first line.
    pub line: usize,
    /// How alike it is to what the patch expects, in per cent.
    pub expected: u8,
    /// How alike it is to what the patch leaves, in per cent.
    pub result: u8,
}

/// A patch that may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drop {
    /// Its place in the series, from 1.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What a patch was worth and is worth, on the workload where it was worth most.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectChange {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: String,
    /// On the old release.
    pub old: Worth,
    /// On the new one, when it was measured.
    pub new: Option<Worth>,
    /// It was faster, is not shown to be faster now, and what it lost is shown, for all patches together.
    pub no_longer_helps: bool,
}

/// An effect: a fraction of speed, 0.01 is 1 % faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worth {
    /// The experiment.
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

/// What `--write` wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The new branch; `None` when a folder was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The folder; `None` when a branch was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Files that changed, by their path in the workspace.
    pub files: Vec<String>,
    /// Patches whose line in `series` became a comment, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<Drop>,
}
