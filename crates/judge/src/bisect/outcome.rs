//! What a session came to, as a document: everything a report shows is in it.

use serde::{Deserialize, Serialize};

use super::question::Question;
use perfquilt_model::observation::FunctionChange;

/// An effect as fractions of speed, with its interval over all looks; its level is what the question's
/// error rate leaves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The mean: −0.01 is 1 % slower.
    pub estimate: f64,
    /// The interval's lower end; `None` where nothing can be said yet.
    pub low: Option<f64>,
    /// The interval's upper end.
    pub high: Option<f64>,
    /// Independent blocks behind it.
    pub blocks: usize,
}

impl Effect {
    /// That of the same server on both sides.
    pub(super) fn none() -> Self {
        Effect {
            estimate: 0.0,
            low: Some(0.0),
            high: Some(0.0),
            blocks: 0,
        }
    }
}

/// The effect between two states.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The earlier state's place.
    pub from: usize,
    /// The later state's place.
    pub to: usize,
    /// What lies between them; `None` where the two were never in one block.
    pub effect: Option<Effect>,
}

/// One step of the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Blocks that were measured before it.
    pub after: u32,
    /// What was decided.
    #[serde(flatten)]
    pub how: How,
}

/// What was decided, with the figures it was decided by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum How {
    /// A span is slower (or whatever is looked for): it is searched.
    Changed(Measured),
    /// A span has no change of the size looked for.
    Unchanged(Measured),
    /// The most blocks were spent on a span and did not decide it.
    Undecided(Measured),
    /// Of a changed span, the part that has the change, or the larger one of several.
    Narrowed {
        /// The parts that were compared, in order.
        parts: Vec<Measured>,
        /// Which of them goes on to be searched.
        chosen: usize,
        /// Why that one.
        why: Part,
    },
    /// A state could not be used and another one is taken.
    Skipped {
        /// Its place.
        state: usize,
        /// Why, in one line.
        reason: String,
    },
    /// A change was arrived at: it is to be confirmed from fresh blocks.
    Named {
        /// The last state without it.
        from: usize,
        /// The first state with it.
        to: usize,
    },
    /// Fresh blocks confirm a named change.
    Confirmed(Measured),
    /// Fresh blocks show that a named change is none.
    Refuted(Measured),
}

/// Why a part of a changed span goes on to be searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// It is shown to be changed.
    Shown,
    /// That the change is in it is far likelier than in any other.
    Likelier,
    /// All other parts are the same server at both ends.
    OnlyOne,
}

/// A change that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// The last state without it.
    pub from: usize,
    /// The first state with it: with `from + 1` a single change, else one of several.
    pub to: usize,
    /// The changes' names, in order.
    pub names: Vec<String>,
    /// The changes' titles, in order; empty where there are none.
    pub titles: Vec<String>,
    /// Its effect in fresh blocks.
    pub effect: Option<Effect>,
    /// Whether fresh blocks confirmed it, or could not decide within the budget.
    pub confirmed: bool,
    /// Why it is a range and no single change, as a fragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// The files it changes, where they are known.
    #[serde(default)]
    pub files: Vec<FileStat>,
    /// The functions whose own instructions it changed, largest first; `None` where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<Vec<FunctionChange>>,
}

/// What a change does to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Its path in the source tree.
    pub path: String,
    /// Lines added and removed; `None` for files that have no lines.
    pub lines: Option<(u64, u64)>,
}

/// A part of the range without a change that is named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    /// What lies between its ends.
    #[serde(flatten)]
    pub measured: Measured,
    /// What is known of it.
    pub ending: Ending,
}

/// What is known of a part of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It has no change of the size looked for.
    Unchanged,
    /// Both ends are the same server.
    Identical,
    /// The most blocks did not decide.
    Undecided,
}

/// What the session found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// At least one change is named and confirmed.
    Found,
    /// There is none of the size looked for.
    Nothing,
    /// There is none, and the whole range changed the other way round.
    Opposite,
    /// It could not be decided with the blocks allowed.
    Undecided,
    /// The session goes on.
    Unfinished,
}

/// What it cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Blocks measured in the session.
    pub blocks: u32,
    /// Values: servers started and measured.
    pub values: u32,
    /// Seconds of measuring.
    pub seconds: f64,
    /// Servers built, those from the cache left out.
    pub builds: u32,
    /// Seconds of building.
    pub build_seconds: f64,
    /// Blocks of earlier experiments that were used.
    pub stored: u32,
}

/// A session's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Version of this document: 1.
    pub schema: u32,
    /// What was asked.
    pub question: Question,
    /// The answer.
    pub conclusion: Conclusion,
    /// The changes found, in order.
    pub culprits: Vec<Culprit>,
    /// What lies between them, in order.
    pub rest: Vec<Rest>,
    /// Bad against good.
    pub total: Measured,
    /// The path taken.
    pub path: Vec<Decision>,
    /// What it cost.
    pub cost: Cost,
    /// Why there are no figures, or why they may be out of date: one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The commands that go on from here, with what they do.
    #[serde(default)]
    pub next: Vec<Next>,
}

/// A command that goes on from here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// What it does, as a fragment.
    pub what: String,
    /// The command.
    pub command: String,
}
