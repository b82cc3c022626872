//! What is asked: the states in their order, and what counts as a change.

use serde::{Deserialize, Serialize};

use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Metric;

/// The change that is looked for unless something else is asked, as a fraction of speed.
pub const DEFAULT_SIZE: f64 = 0.005;

/// The share of sessions in which a named change may be none, and of changes of at least the size that
/// may be missed.
pub const DEFAULT_ERROR: f64 = 0.01;

/// Which changes are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// What costs speed.
    #[default]
    Slower,
    /// What gains speed.
    Faster,
    /// Both.
    Both,
}

impl Direction {
    /// In words, for "something … there".
    pub fn word(self) -> &'static str {
        match self {
            Direction::Slower => "slower",
            Direction::Faster => "faster",
            Direction::Both => "changed",
        }
    }
}

/// One state that can be built and measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// How a person names it: a point (`4`), a commit (`1a2b3c4`).
    pub label: String,
    /// The change that makes it out of the state before: a patch's file name, a commit's id. Of the
    /// first state, what it is.
    pub name: String,
    /// The change's title; empty when there is none.
    #[serde(default)]
    pub title: String,
    /// The git tree of its sources. Empty until it is known, where making it takes time.
    #[serde(default)]
    pub tree: String,
}

/// A question to the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The states from the good one to the bad one.
    pub states: Vec<State>,
    /// What a change between two of them is called: `patch` or `commit`.
    #[serde(default = "patch")]
    pub change: String,
    /// The release they belong to, for example `mariadb-10.11.18`.
    pub release: String,
    /// How they are built.
    pub recipe: String,
    /// What the servers are asked to do.
    pub workload: String,
    /// What is read.
    pub meter: Metric,
    /// Which changes are looked for.
    pub direction: Direction,
    /// The smallest change looked for, as a fraction of speed.
    pub size: f64,
    /// The error rate: see [`DEFAULT_ERROR`].
    pub error: f64,
    /// The most blocks spent on one comparison before it counts as undecidable.
    pub most_blocks: usize,
    /// The standard deviation of one block's log ratio of two states, where it is known beforehand: of
    /// meters that count. Scatter that turns out larger is believed instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_sd: Option<f64>,
}

fn patch() -> String {
    "patch".to_owned()
}

impl Question {
    /// Checks what a person or a file may have wrong.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when there is nothing between good and bad, or a number
    /// makes no sense.
    pub fn check(&self) -> Result<()> {
        if self.states.len() < 2 {
            return Err(Error::usage("good and bad are the same state")
                .hint("`--good` and `--bad` name two points of the series, good before bad"));
        }
        if !(self.size > 0.0 && self.size < 0.5) {
            return Err(
                Error::usage("the size of a change is between 0 and 50 % of speed")
                    .hint("`--size 0.5%` looks for changes of half a per cent and more"),
            );
        }
        if !(self.error > 0.0 && self.error <= 0.2) {
            return Err(Error::usage("the error rate is above 0 and at most 20 %"));
        }
        if self.most_blocks < 2 {
            return Err(Error::usage("a comparison needs at least 2 blocks"));
        }
        match self.known_sd {
            Some(sd) if !(sd.is_finite() && sd > 0.0) => {
                Err(Error::usage("a known deviation is a number above 0"))
            }
            _ => Ok(()),
        }
    }

    /// The last state's place.
    pub fn last(&self) -> usize {
        self.states.len().saturating_sub(1)
    }
}
