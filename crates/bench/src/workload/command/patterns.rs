//! Regular expressions that extract times from the output of a workload's command.

use regex::Regex;

use super::CommandSettings;

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

/// A setting with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidSetting {
    /// The key in its section.
    pub(super) key: &'static str,
    /// The fault, as a fragment that names the key.
    pub(super) message: String,
}

impl Patterns {
    /// Compiles the patterns of `settings`.
    pub(super) fn new(settings: &CommandSettings) -> Result<Self, InvalidSetting> {
        let operations = compile("operations", settings.operations.as_deref())?;
        if let Some(operations) = &operations {
            let has = |wanted: &str| operations.capture_names().flatten().any(|n| n == wanted);
            for group in ["name", "seconds"] {
                if !has(group) {
                    return Err(bad(
                        "operations",
                        format!("`operations` needs a group called {group}: (?P<{group}>…)"),
                    ));
                }
            }
        }
        if settings.rate.is_some() && settings.seconds.is_some() {
            return Err(bad(
                "rate",
                "`rate` and `seconds` exclude each other".to_owned(),
            ));
        }
        Ok(Patterns {
            rate: compile("rate", settings.rate.as_deref())?,
            seconds: compile("seconds", settings.seconds.as_deref())?,
            operations,
        })
    }
}

fn bad(key: &'static str, message: String) -> InvalidSetting {
    InvalidSetting { key, message }
}

fn compile(key: &'static str, text: Option<&str>) -> Result<Option<Regex>, InvalidSetting> {
    let Some(text) = text else { return Ok(None) };
    let regex = Regex::new(text).map_err(|error| bad(key, format!("`{key}`: {error}")))?;
    match regex.captures_len() {
        0 | 1 => Err(bad(key, format!("`{key}` needs a group around the number"))),
        _ => Ok(Some(regex)),
    }
}
