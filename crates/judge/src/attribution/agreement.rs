//! Agreement between time and instructions.

use strum::Display;

use super::document::{Effect, Verdict};

/// Agreement between time and instructions on an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum Agreement {
    /// Both show an effect in the same direction and of comparable size.
    #[strum(to_string = "time and instructions agree")]
    Both,
    /// Time shows an effect; instructions show none, or one too small to explain it: possibly code layout or
    /// caches.
    #[strum(to_string = "time only: possibly code layout or caches")]
    TimeOnly,
    /// Instructions show an effect, time does not.
    #[strum(to_string = "instructions change, and time does not show it")]
    InstructionsOnly,
    /// They show opposite effects.
    #[strum(to_string = "time and instructions disagree")]
    Opposite,
}

/// Instructions explain an effect on time when they show at least this share of it.
const EXPLAINS: f64 = 0.2;

impl Agreement {
    /// Compares two effects between the same points on the same workload, typical time against instructions;
    /// `None` if neither shows an effect or instructions are unclear.
    pub fn of(time: &Effect, instructions: &Effect) -> Option<Self> {
        let shown = |of: &Effect| of.typical().is_shown();
        // By itself or on a workload of the row; or nothing is known of time.
        let shows_itself =
            time.leaves_out_zero() || time.verdict.is_shown() || time.withheld.is_some();
        match (shown(time), shown(instructions)) {
            (false, false) => None,
            (false, true) if shows_itself => None,
            (false, true) => Some(Agreement::InstructionsOnly),
            (true, false) if instructions.own_verdict() == Verdict::Unclear => None,
            (true, false) => Some(Agreement::TimeOnly),
            (true, true) => {
                // The confidence limit of time nearest to 0 is the least effect to explain.
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
}
