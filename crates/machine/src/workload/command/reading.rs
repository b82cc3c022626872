//! Extracts a client's own measurements from its output with the workload's patterns.

use std::collections::BTreeMap;

use regex::Regex;

use super::patterns::Patterns;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::Output;

/// An operation that the client timed separately.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct OperationTime {
    /// Number of commands.
    pub(super) commands: u64,
    /// Total seconds of the commands.
    pub(super) seconds: f64,
}

/// Measurements in the output of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientReport {
    /// Seconds of the run.
    pub(super) seconds: f64,
    /// Operations by name.
    pub(super) operations: BTreeMap<String, OperationTime>,
}

impl ClientReport {
    /// Extracts the measurements of a run of `transactions` from its output; `workload` is its name in messages.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when a pattern finds no match.
    pub(super) fn read(
        output: &Output,
        patterns: &Patterns,
        transactions: u64,
        workload: &str,
    ) -> Result<ClientReport> {
        let text = output.stdout_text();
        let missing = |what: &str, key: &str| {
            Error::bench(format!(
                "workload {workload}: no {what} in the client's output"
            ))
            .details(output.tail(8))
            .hint(format!("check `{key}` against this output"))
        };
        let seconds = match (&patterns.rate, &patterns.seconds) {
            (Some(rate), _) => {
                let rate = last_number(rate, &text)
                    .ok_or_else(|| missing("transactions per second", "rate"))?;
                transactions.max(1) as f64 / rate
            }
            (None, Some(seconds)) => {
                last_number(seconds, &text).ok_or_else(|| missing("seconds", "seconds"))?
            }
            (None, None) => output.elapsed.as_secs_f64(),
        };
        let operations = match &patterns.operations {
            Some(pattern) => operations(pattern, &text),
            None => BTreeMap::new(),
        };
        if patterns.operations.is_some() && operations.is_empty() {
            return Err(missing("operation", "operations"));
        }
        Ok(ClientReport {
            seconds,
            operations,
        })
    }
}

/// Returns the number in the first group of the last match if it is finite and positive.
fn last_number(pattern: &Regex, text: &str) -> Option<f64> {
    let found = pattern.captures_iter(text).last()?;
    let number: f64 = found.get(1)?.as_str().replace(',', "").parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number)
}

/// Returns the operations in `text`, adding up those with the same name.
fn operations(pattern: &Regex, text: &str) -> BTreeMap<String, OperationTime> {
    let mut found: BTreeMap<String, OperationTime> = BTreeMap::new();
    for captures in pattern.captures_iter(text) {
        let group = |name| captures.name(name).map(|group| group.as_str());
        let seconds = group("seconds").and_then(|text| text.parse::<f64>().ok());
        let (Some(name), Some(seconds)) = (group("name"), seconds) else {
            continue;
        };
        if name.is_empty() || !(seconds.is_finite() && seconds >= 0.0) {
            continue;
        }
        let commands = group("commands").and_then(|text| text.parse().ok());
        let part = found.entry(name.to_owned()).or_default();
        part.commands += commands.unwrap_or(1).max(1);
        part.seconds += seconds;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_what_clients_print() {
        let pattern = Regex::new(r"([0-9.,]+) requests per second").unwrap();
        assert_eq!(
            last_number(&pattern, "GET: rps=1\rGET: 123,456.5 requests per second\n"),
            Some(123_456.5)
        );
        assert_eq!(last_number(&pattern, "nothing"), None);
        assert_eq!(last_number(&pattern, "0.0 requests per second"), None);
        assert_eq!(last_number(&pattern, "1.2.3 requests per second"), None);
    }

    #[test]
    fn operations_of_one_name_are_added_up() {
        let pattern =
            Regex::new(r"(?m)^Time for (?P<name>\S+) \((?P<commands>\d+)\): (?P<seconds>\S+)$")
                .unwrap();
        let text = "Time for a (10): 0.5\nTime for b (1): 2e-05\nTime for a (5): 0.25\n\
                    Time for c (1): nan\n";
        let found = operations(&pattern, text);
        let a = OperationTime {
            commands: 15,
            seconds: 0.75,
        };
        assert_eq!(found["a"], a);
        assert!((found["b"].seconds - 2e-5).abs() < 1e-12);
        assert_eq!(found.len(), 2);
    }
}
