//! The result of a bisection as a document with everything that a report shows.

use serde::{Deserialize, Serialize};

use super::question::Question;
use crate::stats::SpeedChange;
use perfquilt_model::observation::FunctionChange;

/// The effect between two states; its interval is valid at all looks, with the level 1 − the question's error rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpanEffect {
    /// The index of the earlier state.
    pub from: usize,
    /// The index of the later state.
    pub to: usize,
    /// The effect; `None` if no block has both states.
    pub effect: Option<SpeedChange>,
}

/// A decision of the bisector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Number of blocks measured before it.
    pub after: u32,
    /// The decision.
    #[serde(flatten)]
    pub how: DecisionKind,
}

/// The kind of a decision, with the figures behind it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum DecisionKind {
    /// A span changed in the requested direction; the bisector searches it.
    Changed(SpanEffect),
    /// A span has no change of the requested size.
    Unchanged(SpanEffect),
    /// A span is undecided after the largest number of blocks.
    Undecided(SpanEffect),
    /// The bisector chose the part of a changed span that contains the change, or the larger one of several.
    Narrowed {
        /// The parts that were compared, in order.
        parts: Vec<SpanEffect>,
        /// The index of the part that the bisector searches next.
        chosen: usize,
        /// The reason for the choice.
        why: NarrowingReason,
    },
    /// A state could not be used; the bisector takes another one.
    Skipped {
        /// Its index.
        state: usize,
        /// The reason, in one line.
        reason: String,
    },
    /// The bisector named a change, which fresh blocks must confirm.
    Named {
        /// The last state without it.
        from: usize,
        /// The first state with it.
        to: usize,
    },
    /// Fresh blocks confirmed a named change.
    Confirmed(SpanEffect),
    /// Fresh blocks refuted a named change.
    Refuted(SpanEffect),
}

/// The reason for choosing a part of a changed span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NarrowingReason {
    /// The part changed significantly.
    Shown,
    /// The part is far likelier than any other to contain the change.
    Likelier,
    /// All other parts have the same server at both ends.
    OnlyOne,
}

/// A change that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// The last state without it.
    pub from: usize,
    /// The first state with it; a single change if this is `from + 1`, otherwise a range of changes.
    pub to: usize,
    /// The changes' names, in order.
    pub names: Vec<String>,
    /// The changes' titles, in order; empty if there are none.
    pub titles: Vec<String>,
    /// Its effect in fresh blocks.
    pub effect: Option<SpeedChange>,
    /// Whether fresh blocks confirmed it; otherwise they did not decide within the budget.
    pub confirmed: bool,
    /// The reason why it is a range instead of a single change, as a sentence fragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// The files it changes, if they are known.
    #[serde(default)]
    pub files: Vec<FileStat>,
    /// The functions whose own instructions it changed, largest change first; `None` if they were not
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<Vec<FunctionChange>>,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Its path in the source tree.
    pub path: String,
    /// Lines added and removed; `None` for binary files.
    pub lines: Option<(u64, u64)>,
}

/// A part of the range outside the named changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemainingSpan {
    /// The effect between its ends.
    #[serde(flatten)]
    pub measured: SpanEffect,
    /// The status of the part.
    pub ending: SpanStatus,
}

/// The status of a part of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanStatus {
    /// It has no change of the requested size.
    Unchanged,
    /// Both ends have the same server.
    Identical,
    /// Undecided after the largest number of blocks.
    Undecided,
}

/// The conclusion of a bisection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// At least one change was named and confirmed.
    Found,
    /// There is no change of the requested size.
    Nothing,
    /// There is no such change, and the whole range changed in the opposite direction.
    Opposite,
    /// The allowed number of blocks did not decide.
    Undecided,
    /// The session has not ended.
    Unfinished,
}

/// The cost of the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionCost {
    /// Blocks measured in the session.
    pub blocks: u32,
    /// Number of values: servers started and measured.
    pub values: u32,
    /// Seconds of measuring.
    pub seconds: f64,
    /// Servers built, excluding cached ones.
    pub builds: u32,
    /// Seconds of building.
    pub build_seconds: f64,
    /// Blocks of earlier experiments that were used.
    pub stored: u32,
}

/// The result of a bisection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BisectOutcome {
    /// Version of this document: 1.
    pub schema: u32,
    /// The question.
    pub question: Question,
    /// The conclusion.
    pub conclusion: Conclusion,
    /// The changes found, in order.
    pub culprits: Vec<Culprit>,
    /// The remaining parts of the range, in order.
    pub rest: Vec<RemainingSpan>,
    /// The effect between good and bad.
    pub total: SpanEffect,
    /// The decisions, in order.
    pub path: Vec<Decision>,
    /// The cost of the session.
    pub cost: SessionCost,
    /// The reasons why there are no figures or why they may be out of date, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The suggested next commands, with descriptions.
    #[serde(default)]
    pub next: Vec<NextCommand>,
}

/// A suggested next command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextCommand {
    /// Its description, as a sentence fragment.
    pub what: String,
    /// The command.
    pub command: String,
}
