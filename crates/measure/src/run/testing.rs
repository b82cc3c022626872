//! A question for the tests of this module.

use perfquilt_judge::bisect::{Direction, Question, State};
use perfquilt_model::observation::Meter;

/// Returns a question over `states` states: slower by 0.5 % or more.
pub fn question(states: usize) -> Question {
    Question {
        states: (0..states)
            .map(|k| State {
                label: k.to_string(),
                name: format!("{k:04}.patch"),
                title: String::new(),
                tree: format!("{k:040}"),
            })
            .collect(),
        change: "patch".into(),
        release: "toy-1".into(),
        recipe: "make".into(),
        workload: "load".into(),
        meter: Meter::Time.into(),
        direction: Direction::Slower,
        size: 0.005,
        error: 0.01,
        most_blocks: 400,
        known_sd: None,
    }
}
