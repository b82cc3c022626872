//! The settings of a bisection.

use perfquilt_config::Preset;
use perfquilt_judge::bisect::{Decision, Direction, Question, Revision};
use perfquilt_model::observation::{Meter, Metric};

/// The standard deviation of the log ratio of two counts. Counts of real servers vary less from start to start
/// (docs/results); a larger observed deviation replaces it.
const COUNTED_SD: f64 = 0.0005;

/// The default preset.
pub const DEFAULT_PRESET: &str = "quick";

/// The settings of a bisection.
#[derive(Debug, Clone)]
pub struct BisectRequest {
    /// The workload to run.
    pub workload: String,
    /// The metric to compare.
    pub meter: Metric,
    /// The direction of the changes to find.
    pub direction: Direction,
    /// The smallest change to find, as a fraction of speed.
    pub size: f64,
    /// The error rate.
    pub error: f64,
    /// The maximum number of blocks of one comparison.
    pub most_blocks: usize,
    /// Preset for building and measuring.
    pub preset: Preset,
    /// The preset's name.
    pub preset_name: String,
    /// The recipe that replaces the preset's, if any.
    pub recipe: Option<String>,
    /// Whether to profile which functions a found change made more or less expensive.
    pub profile: bool,
    /// Words a decision for the progress output.
    pub describe: fn(&Question, &Decision) -> String,
}

impl BisectRequest {
    /// Returns the options that give a further command the same preset and recipe; empty for the defaults.
    pub(super) fn with_preset(&self) -> String {
        let preset = if self.preset_name == DEFAULT_PRESET {
            String::new()
        } else {
            format!(" --preset {}", self.preset_name)
        };
        let on = self.preset.on.as_ref();
        let on = on.map(|on| format!(" --on {on}")).unwrap_or_default();
        match &self.recipe {
            Some(recipe) => format!("{preset} --recipe {recipe}{on}"),
            None => preset + &on,
        }
    }

    /// Returns the option that gives `profile`, which takes no preset, the same recipe.
    pub(super) fn with_recipe(&self) -> String {
        if self.with_preset().is_empty() {
            String::new()
        } else {
            format!(" --recipe {}", self.preset.recipe)
        }
    }

    /// Returns the question about states of no particular release.
    pub(super) fn question_of(&self, states: &[Revision]) -> Question {
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
    use super::super::testing::request;
    use super::*;

    #[test]
    fn further_commands_build_and_measure_alike() {
        let options = |request: BisectRequest| (request.with_preset(), request.with_recipe());
        let both = |run: &str, profile: &str| (run.to_owned(), profile.to_owned());
        assert_eq!(options(request("quick", None)), both("", ""));
        assert_eq!(
            options(request("long", None)),
            both(" --preset long", " --recipe make")
        );
        let (run, _) = options(request("long", Some("slow")));
        assert_eq!(run, " --preset long --recipe slow");
    }
}
