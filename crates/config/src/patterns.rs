//! Regular expressions that extract times from the output of a workload's command.

use regex::Regex;

use super::CommandWorkload;

/// The compiled patterns of a [`CommandWorkload`].
#[derive(Debug)]
pub struct Patterns {
    /// Captures transactions per second.
    pub rate: Option<Regex>,
    /// Captures seconds.
    pub seconds: Option<Regex>,
    /// Captures `name`, `seconds` and, optionally, `commands`, one operation per match.
    pub operations: Option<Regex>,
}

/// A setting with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The key in its section.
    pub key: &'static str,
    /// The fault, as a fragment that names the key.
    pub message: String,
}

impl CommandWorkload {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// [`InvalidSetting`] for a pattern that does not compile or lacks a group, and for `rate` together with `seconds`.
    pub fn patterns(&self) -> Result<Patterns, InvalidSetting> {
        let operations = compile("operations", self.operations.as_deref())?;
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
        if self.rate.is_some() && self.seconds.is_some() {
            return Err(bad(
                "rate",
                "`rate` and `seconds` exclude each other".to_owned(),
            ));
        }
        Ok(Patterns {
            rate: compile("rate", self.rate.as_deref())?,
            seconds: compile("seconds", self.seconds.as_deref())?,
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
