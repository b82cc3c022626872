//! The question of a bisection: the states in their order, and the definition of a change.

use serde::{Deserialize, Serialize};

use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, Metric};

/// The default smallest change to find, as a fraction of speed.
pub const DEFAULT_SIZE: f64 = 0.005;

/// The default error rate: the share of sessions that name a change wrongly, and of changes of at least the
/// size that are missed.
pub const DEFAULT_ERROR: f64 = 0.01;

/// The default largest number of blocks for one comparison.
pub const DEFAULT_BLOCKS: usize = 400;

/// The direction of changes to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Changes that cost speed.
    #[default]
    Slower,
    /// Changes that gain speed.
    Faster,
    /// Both.
    Both,
}

/// One state that can be built and measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Its name for users: a point (`4`), a commit (`1a2b3c4`).
    pub label: String,
    /// The change that leads to it from the preceding state: a patch's file name, a commit's id. For the
    /// first state, its description.
    pub name: String,
    /// The change's title; empty if there is none.
    #[serde(default)]
    pub title: String,
    /// The git tree of its sources. Empty until it is known, if computing it takes time.
    #[serde(default)]
    pub tree: String,
}

/// The input of the bisector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The states from the good one to the bad one.
    pub states: Vec<Revision>,
    /// The noun for a change between two states: `patch` or `commit`.
    #[serde(default = "patch")]
    pub change: String,
    /// The release of the states, for example `mariadb-10.11.18`.
    pub release: String,
    /// The build recipe.
    pub recipe: String,
    /// The workload.
    pub workload: String,
    /// The metric.
    pub meter: Metric,
    /// The direction of changes to find.
    pub direction: Direction,
    /// The smallest change to find, as a fraction of speed.
    pub size: f64,
    /// The error rate: see [`DEFAULT_ERROR`].
    pub error: f64,
    /// The largest number of blocks for one comparison; after that it is undecided.
    pub most_blocks: usize,
    /// The prior standard deviation of one block's log ratio of two states, for meters that count. A larger
    /// observed standard deviation takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_sd: Option<f64>,
}

fn patch() -> String {
    "patch".to_owned()
}

/// The standard deviation of the log ratio of two counts. Counts of real servers vary less from start to start
/// (docs/results); a larger observed deviation replaces it.
const COUNTED_SD: f64 = 0.0005;

impl Question {
    /// Returns the number of blocks from `blocks` to the next look: `first` to the first look, then an eighth more each time,
    /// up to the most blocks, but at least one.
    pub(super) fn next_blocks(&self, blocks: usize, first: usize) -> usize {
        let next = match blocks {
            0 => first,
            n => n.div_ceil(8),
        };
        next.min(self.most_blocks.saturating_sub(blocks).max(1))
    }

    /// Returns the question what made `workload` slower, about no states yet, with the default size, error rate and number of
    /// blocks.
    pub fn about(workload: &str, meter: Metric) -> Self {
        Question {
            states: Vec::new(),
            change: patch(),
            release: String::new(),
            recipe: String::new(),
            workload: workload.to_owned(),
            meter,
            direction: Direction::Slower,
            size: DEFAULT_SIZE,
            error: DEFAULT_ERROR,
            most_blocks: DEFAULT_BLOCKS,
            known_sd: (meter == Meter::Instructions.into()).then_some(COUNTED_SD),
        }
    }

    /// Checks the question.
    pub fn check(&self) -> Result<()> {
        if self.states.len() < 2 {
            return Err(Error::bisection_question("good and bad are the same state")
                .hint("`--good` and `--bad` name two points of the series, good before bad"));
        }
        if !(self.size > 0.0 && self.size < 0.5) {
            return Err(Error::bisection_question(
                "the size of a change is between 0 and 50 % of speed",
            )
            .hint("`--size 0.5%` looks for changes of half a per cent and more"));
        }
        if !(self.error > 0.0 && self.error <= 0.2) {
            return Err(Error::bisection_question(
                "the error rate is above 0 and at most 20 %",
            ));
        }
        if self.most_blocks < 2 {
            return Err(Error::bisection_question(
                "a comparison needs at least 2 blocks",
            ));
        }
        match self.known_sd {
            Some(sd) if !(sd.is_finite() && sd > 0.0) => Err(Error::bisection_question(
                "the prior standard deviation must be above 0",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the log ratio of costs of a loss of speed by [`Question::size`].
    pub(super) fn loss(&self) -> f64 {
        -(-self.size).ln_1p()
    }

    /// Returns the log ratio of costs, inverted, of a gain of speed by [`Question::size`].
    pub(super) fn gain(&self) -> f64 {
        self.size.ln_1p()
    }

    /// Returns the index of the last state.
    pub fn last(&self) -> usize {
        self.states.len().saturating_sub(1)
    }
}
