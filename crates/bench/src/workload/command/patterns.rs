//! Regular expressions that extract times from the output of a workload's command.

use regex::Regex;

use super::CommandSettings;
use perfquilt_config::Section;
use perfquilt_model::error::Result;

/// The compiled patterns of a [`CommandSettings`].
#[derive(Debug)]
pub(super) struct Patterns {
    /// Captures transactions per second.
    pub(super) rate: Option<Regex>,
    /// Captures seconds.
    pub(super) seconds: Option<Regex>,
    /// Captures `name`, `seconds` and, optionally, `commands`, one operation per match.
    pub(super) operations: Option<Regex>,
}

impl Patterns {
    /// Compiles the patterns of `settings`, those of a workload's `section`.
    pub(super) fn new(settings: &CommandSettings, section: &Section) -> Result<Self> {
        let operations = compile(section, "operations", settings.operations.as_deref())?;
        if let Some(operations) = &operations {
            let has = |wanted: &str| operations.capture_names().flatten().any(|n| n == wanted);
            for group in ["name", "seconds"] {
                if !has(group) {
                    let fault =
                        format!("`operations` needs a group called {group}: (?P<{group}>…)");
                    return Err(section.error(&["operations"], fault));
                }
            }
        }
        if settings.rate.is_some() && settings.seconds.is_some() {
            let fault = "`rate` and `seconds` exclude each other";
            return Err(section.error(&["rate"], fault));
        }
        Ok(Patterns {
            rate: compile(section, "rate", settings.rate.as_deref())?,
            seconds: compile(section, "seconds", settings.seconds.as_deref())?,
            operations,
        })
    }
}

fn compile(section: &Section, key: &str, text: Option<&str>) -> Result<Option<Regex>> {
    let bad = |fault: String| section.error(&[key], fault);
    let Some(text) = text else { return Ok(None) };
    let regex = Regex::new(text).map_err(|error| bad(format!("`{key}`: {error}")))?;
    match regex.captures_len() {
        0 | 1 => Err(bad(format!("`{key}` needs a group around the number"))),
        _ => Ok(Some(regex)),
    }
}
