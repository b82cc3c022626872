//! A request and a question for the tests of this folder.

use super::request::{BisectRequest, RevisionRange};
use perfquilt_config::Preset;
use perfquilt_judge::bisect::{Question, Revision};
use perfquilt_model::observation::Meter;

/// A request for a preset called `preset`, with another recipe or its own.
pub fn request(preset: &str, recipe: Option<&str>) -> BisectRequest {
    let settings =
        "recipe = \"make\"\nworkloads = []\nmeters = []\nblocks = 5\nblock_seconds = 1.0\n";
    BisectRequest {
        question: Question::about("load", Meter::Time.into()),
        preset: Preset {
            name: preset.into(),
            ..toml::from_str(settings).unwrap()
        },
        recipe: recipe.map(str::to_owned),
        profile: true,
        describe: |_, _| String::new(),
    }
}

/// A question about so many states: slower by 0.5 % or more.
pub fn question(states: usize) -> Question {
    let states = (0..states)
        .map(|k| Revision {
            label: k.to_string(),
            name: format!("{k:04}.patch"),
            title: String::new(),
            tree: format!("{k:040}"),
        })
        .collect();
    let range = RevisionRange {
        release: "toy-1".into(),
        noun: "patch",
        states,
    };
    request("quick", None).question_of(&range).unwrap()
}
