//! How the meters agree.

use super::document::{Effect, Verdict};

/// How time and instructions agree on an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// Both show it, in the same direction and of comparable size.
    Both,
    /// Time shows it, instructions do not, or too little to explain it: possibly code layout or
    /// caches.
    TimeOnly,
    /// Instructions show it, time does not.
    InstructionsOnly,
    /// They show opposite effects.
    Opposite,
}

/// Instructions explain an effect on time when they show at least this share of it.
const EXPLAINS: f64 = 0.2;

impl Agreement {
    /// How two effects between the same points on the same workload agree, typical time against
    /// instructions; `None` when neither shows
    /// anything or instructions are unclear.
    pub fn of(time: &Effect, instructions: &Effect) -> Option<Self> {
        let shown = |of: &Effect| of.typical().is_shown();
        match (shown(time), shown(instructions)) {
            (false, false) => None,
            (false, true) => Some(Agreement::InstructionsOnly),
            (true, false) if instructions.verdict == Verdict::Unclear => None,
            (true, false) => Some(Agreement::TimeOnly),
            (true, true) => {
                // The end of time's interval that is nearest to 0 is the least to be explained.
                let least = [time.low, time.high]
                    .into_iter()
                    .flatten()
                    .map(f64::abs)
                    .fold(time.estimate.abs(), f64::min);
                let enough = instructions.estimate.abs() >= EXPLAINS * least;
                Some(match time.typical() == instructions.typical() {
                    true if enough => Agreement::Both,
                    false if enough => Agreement::Opposite,
                    _ => Agreement::TimeOnly,
                })
            }
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Agreement::Both => "time and instructions agree",
            Agreement::TimeOnly => "time only: possibly code layout or caches",
            Agreement::InstructionsOnly => "instructions only",
            Agreement::Opposite => "time and instructions disagree",
        }
    }
}
