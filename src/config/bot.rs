//! `[bot]`: what `perfquilt bot serve` does.

use serde::Deserialize;

/// `[bot]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bot {
    /// The repository whose pull requests it serves, as `owner/name`.
    pub repository: String,
    /// Where their commits are fetched from; without, the repository on github.com.
    pub remote: Option<String>,
    /// The preset of a run that names none.
    pub preset: String,
    /// Measure whatever somebody who may give commands pushes, without being asked.
    pub on_push: bool,
    /// Also run code of authors who may not give commands, when somebody who may asks for it: without a
    /// sandbox, with the rights of the bot.
    pub run_untrusted: bool,
    /// Set the label `PREFIX: STANDING`.
    pub label: Option<String>,
}

impl Default for Bot {
    fn default() -> Self {
        Bot {
            repository: String::new(),
            remote: None,
            preset: "quick".into(),
            on_push: false,
            run_untrusted: false,
            label: None,
        }
    }
}
