//! A request and a question for the tests of this folder.

use super::request::BisectRequest;
use perfquilt_judge::bisect::{Direction, Question, Revision};
use perfquilt_model::observation::Meter;

/// A request for a preset called `preset`, with another recipe or its own.
pub fn request(preset: &str, recipe: Option<&str>) -> BisectRequest {
    BisectRequest {
        workload: "load".into(),
        meter: Meter::Time.into(),
        direction: Direction::Slower,
        size: 0.005,
        error: 0.01,
        most_blocks: 400,
        preset: toml::from_str(
            "recipe = \"make\"\nworkloads = []\nmeters = []\nblocks = 5\nblock_seconds = 1.0\n",
        )
        .unwrap(),
        preset_name: preset.into(),
        recipe: recipe.map(str::to_owned),
        profile: true,
        describe: |_, _| String::new(),
    }
}

/// A question about so many states: slower by 0.5 % or more.
pub fn question(states: usize) -> Question {
    let states: Vec<Revision> = (0..states)
        .map(|k| Revision {
            label: k.to_string(),
            name: format!("{k:04}.patch"),
            title: String::new(),
            tree: format!("{k:040}"),
        })
        .collect();
    Question {
        change: "patch".into(),
        release: "toy-1".into(),
        ..request("quick", None).question_of(&states)
    }
}
