//! Extracts a client's own measurements from its output with the workload's patterns.

use std::collections::BTreeMap;

use regex::Regex;

use super::patterns::Patterns;
use perfquilt_model::error::Error;
use perfquilt_model::number;
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

/// Output that a pattern does not fit.
#[derive(Debug)]
pub(super) struct UnreadableOutput {
    /// The key of the pattern.
    pub(super) key: &'static str,
    /// The error, without a place.
    pub(super) error: Error,
}

impl ClientReport {
    /// Extracts the measurements of a run of `transactions` from its output; `workload` is its name in messages.
    ///
    /// # Errors
    /// [`UnreadableOutput`] of [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when a pattern finds no match, or
    /// something else than a number.
    pub(super) fn read(
        output: &Output,
        patterns: &Patterns,
        transactions: u64,
        workload: &str,
    ) -> Result<ClientReport, UnreadableOutput> {
        let text = output.stdout_text();
        let unreadable = |key: &'static str, fault: String| UnreadableOutput {
            key,
            error: Error::bench(format!("workload {workload}: {fault}"))
                .details(output.tail(8))
                .hint(format!("check `{key}` against this output")),
        };
        let seconds = match (&patterns.rate, &patterns.seconds) {
            (Some(rate), _) => {
                let rate = last(rate, &text, "transactions per second", positive)
                    .map_err(|fault| unreadable("rate", fault))?;
                transactions.max(1) as f64 / rate
            }
            (None, Some(seconds)) => last(seconds, &text, "seconds", |text| {
                seconds_of(text).filter(|seconds| *seconds > 0.0)
            })
            .map_err(|fault| unreadable("seconds", fault))?,
            (None, None) => output.elapsed.as_secs_f64(),
        };
        let operations = match &patterns.operations {
            Some(pattern) => {
                operations(pattern, &text).map_err(|fault| unreadable("operations", fault))?
            }
            None => BTreeMap::new(),
        };
        Ok(ClientReport {
            seconds,
            operations,
        })
    }
}

/// Returns the number in the first group of the last match; `what` describes it in the fault.
fn last(
    pattern: &Regex,
    text: &str,
    what: &str,
    number: fn(&str) -> Option<f64>,
) -> Result<f64, String> {
    let found = pattern
        .captures_iter(text)
        .last()
        .and_then(|found| found.get(1))
        .ok_or_else(|| format!("no {what} in the client's output"))?;
    number(found.as_str()).ok_or_else(|| no_number(found.as_str(), what))
}

fn no_number(text: &str, what: &str) -> String {
    let comma = if text.contains(',') {
        "; decimals need a point, as with LC_ALL=C"
    } else {
        ""
    };
    format!("`{}` is no number of {what}{comma}", text.escape_debug())
}

fn positive(text: &str) -> Option<f64> {
    number::parse(text).filter(|number| *number > 0.0)
}

/// Parses seconds, which have decimals: `1,234` may mean little more than one.
fn seconds_of(text: &str) -> Option<f64> {
    number::parse(text).filter(|seconds| *seconds >= 0.0 && !number::is_ambiguous(text))
}

/// Returns the operations in `text`, adding up those with the same name.
fn operations(pattern: &Regex, text: &str) -> Result<BTreeMap<String, OperationTime>, String> {
    let mut found: BTreeMap<String, OperationTime> = BTreeMap::new();
    for captures in pattern.captures_iter(text) {
        let group = |name| captures.name(name).map_or("", |group| group.as_str());
        let name = group("name");
        if name.is_empty() {
            let whole = captures.get(0).map_or("", |all| all.as_str());
            return Err(format!("`{}` names no operation", whole.escape_debug()));
        }
        let seconds = seconds_of(group("seconds"))
            .ok_or_else(|| no_number(group("seconds"), &format!("seconds of {name}")))?;
        let commands = match captures.name("commands") {
            None => 1,
            Some(count) => commands(count.as_str())
                .ok_or_else(|| no_number(count.as_str(), &format!("commands of {name}")))?,
        };
        let part = found.entry(name.to_owned()).or_default();
        part.commands += commands;
        part.seconds += seconds;
    }
    if found.is_empty() {
        return Err("no operation in the client's output".to_owned());
    }
    Ok(found)
}

/// Parses a number of commands. An operation without commands counts as one, so that its time is not lost.
fn commands(text: &str) -> Option<u64> {
    let number = number::parse(text)?;
    let is_count = number >= 0.0 && number.fract() == 0.0 && number < 9e15;
    is_count.then_some((number as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_what_clients_print() {
        let pattern = Regex::new(r"([0-9.,]+) requests per second").unwrap();
        let rate = |text: &str| last(&pattern, text, "transactions per second", positive);
        let text = "GET: rps=1\rGET: 123,456.5 requests per second\n";
        assert_eq!(rate(text), Ok(123_456.5));
        let none = "no transactions per second in the client's output";
        assert_eq!(rate("nothing"), Err(none.to_owned()));
        for wrong in ["0.0", "1.2.3", "1234,5", "12,34", "0,123"] {
            let fault = rate(&format!("{wrong} requests per second")).unwrap_err();
            assert!(
                fault.starts_with(&format!("`{wrong}` is no number")),
                "{fault}"
            );
        }
    }

    const OPERATION: &str =
        r"(?m)^Time for (?P<name>\S*) \((?P<commands>[^)]+)\): (?P<seconds>\S+)$";

    #[test]
    fn operations_of_one_name_are_added_up() {
        let pattern = Regex::new(OPERATION).unwrap();
        let text = "Time for a (10): 0.5\nTime for b (1): 2e-05\nTime for a (1,005): 0.25\n\
                    Time for c (0): 0\n";
        let found = operations(&pattern, text).unwrap();
        let a = OperationTime {
            commands: 1015,
            seconds: 0.75,
        };
        assert_eq!(found["a"], a);
        assert!((found["b"].seconds - 2e-5).abs() < 1e-12);
        assert_eq!(found["c"].commands, 1);
    }

    #[test]
    fn an_operation_that_cannot_be_read_is_never_dropped() {
        let pattern = Regex::new(OPERATION).unwrap();
        for (line, fault) in [
            ("Time for c (1): nan", "`nan` is no number of seconds of c"),
            (
                "Time for c (1): 0,25",
                "`0,25` is no number of seconds of c; decimals",
            ),
            (
                "Time for c (1): 1,234",
                "`1,234` is no number of seconds of c; decimals",
            ),
            ("Time for c (1): -1", "`-1` is no number of seconds of c"),
            (
                "Time for c (1,5): 1",
                "`1,5` is no number of commands of c; decimals",
            ),
            ("Time for c (two): 1", "`two` is no number of commands of c"),
            ("Time for  (1): 1", "`Time for  (1): 1` names no operation"),
            ("nothing", "no operation in the client's output"),
        ] {
            let ok = if line == "nothing" {
                ""
            } else {
                "Time for a (10): 0.5\n"
            };
            let found = operations(&pattern, &format!("{ok}{line}\n")).unwrap_err();
            assert!(found.starts_with(fault), "{line}: {found}");
        }
    }
}
