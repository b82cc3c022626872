//! The settings of a bisection.

use perfquilt_config::Preset;
use perfquilt_judge::bisect::{Decision, Direction, Question, State};
use perfquilt_model::observation::{Meter, Metric};

/// The standard deviation of the log ratio of two counts: what counts of real servers vary by from start
/// to start is less (docs/results), and more is believed when it is seen.
const COUNTED_SD: f64 = 0.0005;

/// The preset where none is named.
pub const DEFAULT_PRESET: &str = "quick";

/// The settings of a bisection.
#[derive(Debug, Clone)]
pub struct BisectRequest {
    /// What the servers are asked to do.
    pub workload: String,
    /// What is read.
    pub meter: Metric,
    /// Which changes are looked for.
    pub direction: Direction,
    /// The smallest change looked for, as a fraction of speed.
    pub size: f64,
    /// The error rate.
    pub error: f64,
    /// The most blocks of one comparison.
    pub most_blocks: usize,
    /// How is built and measured.
    pub preset: Preset,
    /// The preset's name.
    pub preset_name: String,
    /// The recipe in the place of the preset's, if another one was asked for.
    pub recipe: Option<String>,
    /// Leave stored measurements alone and begin a new session.
    pub fresh: bool,
    /// Look which functions a change that was found made dearer or cheaper.
    pub profile: bool,
    /// Words a decision for the progress output.
    pub describe: fn(&Question, &Decision) -> String,
}

impl BisectRequest {
    /// The options with which a further command takes the same preset and recipe: none for the usual ones.
    pub(super) fn with_preset(&self) -> String {
        let preset = if self.preset_name == DEFAULT_PRESET {
            String::new()
        } else {
            format!(" --preset {}", self.preset_name)
        };
        match &self.recipe {
            Some(recipe) => format!("{preset} --recipe {recipe}"),
            None => preset,
        }
    }

    /// The option with which `profile`, which takes no preset, takes the same recipe.
    pub(super) fn with_recipe(&self) -> String {
        if self.with_preset().is_empty() {
            String::new()
        } else {
            format!(" --recipe {}", self.preset.recipe)
        }
    }

    /// The question about states of no release in particular.
    pub(super) fn question_of(&self, states: &[State]) -> Question {
        Question {
            states: states.to_vec(),
            change: String::new(),
            release: String::new(),
            recipe: self.preset.recipe.clone(),
            workload: self.workload.clone(),
            meter: self.meter,
            direction: self.direction,
            size: self.size,
            error: self.error,
            most_blocks: self.most_blocks,
            known_sd: (self.meter == Meter::Instructions.into()).then_some(COUNTED_SD),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_commands_build_and_measure_alike() {
        let request = |preset: &str, recipe: Option<&str>| BisectRequest {
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
            fresh: false,
            profile: true,
            describe: |_, _| String::new(),
        };
        let options = |request: BisectRequest| (request.with_preset(), request.with_recipe());
        let told = |run: &str, profile: &str| (run.to_owned(), profile.to_owned());
        assert_eq!(options(request("quick", None)), told("", ""));
        assert_eq!(
            options(request("long", None)),
            told(" --preset long", " --recipe make")
        );
        let (run, _) = options(request("long", Some("slow")));
        assert_eq!(run, " --preset long --recipe slow");
    }
}
