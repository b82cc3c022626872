//! The settings of a bisection.

use perfquilt_config::Preset;
use perfquilt_judge::bisect::{Decision, Question, Revision};
use perfquilt_model::error::Result;

/// The default preset.
pub const DEFAULT_PRESET: &str = "quick";

/// States in their order.
#[derive(Debug)]
pub struct RevisionRange {
    /// The release they belong to.
    pub release: String,
    /// The noun for a change from one to the next: `patch` or `commit`.
    pub noun: &'static str,
    /// The states, with their trees where these are available without work.
    pub states: Vec<Revision>,
}

/// The settings of a bisection.
#[derive(Debug, Clone)]
pub struct BisectRequest {
    /// The question, without states.
    pub question: Question,
    /// Preset for building and measuring.
    pub preset: Preset,
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
        let preset = if self.preset.name == DEFAULT_PRESET {
            String::new()
        } else {
            format!(" --preset {}", self.preset.name)
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

    /// Returns the question about the states of `range`.
    pub(super) fn question_of(&self, range: &RevisionRange) -> Result<Question> {
        let question = Question {
            states: range.states.clone(),
            change: range.noun.to_owned(),
            release: range.release.clone(),
            recipe: self.preset.recipe.clone(),
            ..self.question.clone()
        };
        question.check()?;
        Ok(question)
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
