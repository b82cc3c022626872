//! Extracts a client's own measurements from its output with the workload's patterns.

use std::collections::BTreeMap;
use std::ops::Range;

use regex::{Captures, Match, Regex};

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
    pub(super) fn read(
        output: &Output,
        patterns: &Patterns,
        transactions: u64,
        workload: &str,
    ) -> Result<ClientReport, UnreadableOutput> {
        let text = output.stdout_text();
        let unreadable = |key: &'static str, fault: String| UnreadableOutput {
            key,
            error: Error::client_result(format!("workload {workload}: {fault}"))
                .details(output.tail(8))
                .hint(format!("check `{key}` against this output")),
        };
        let seconds = match (&patterns.rate, &patterns.seconds) {
            (Some(rate), _) => {
                let rate = only(rate, &text, "transactions per second", |found| found.rate())
                    .map_err(|fault| unreadable("rate", fault))?;
                transactions.max(1) as f64 / rate
            }
            (None, Some(seconds)) => only(seconds, &text, "seconds", |found| {
                found.seconds().filter(|seconds| *seconds > 0.0)
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

/// The group of a match that holds a number.
struct NumberMatch<'t> {
    text: &'t str,
    group: Match<'t>,
    /// The range of the whole match.
    matched: Range<usize>,
}

impl<'t> NumberMatch<'t> {
    fn new(text: &'t str, captures: &Captures<'t>, group: Option<Match<'t>>) -> Option<Self> {
        Some(NumberMatch {
            text,
            group: group?,
            matched: captures.get_match().range(),
        })
    }

    /// Returns the number that the group is only a part of, if it is.
    fn around(&self) -> Option<&'t str> {
        number::around(self.text, self.group.range(), self.matched.clone())
    }

    /// Returns the number in the group; `None` if the group has only a part of it.
    fn whole(&self) -> Option<f64> {
        match self.around() {
            None => number::parse(self.group.as_str()),
            Some(_) => None,
        }
    }

    /// Returns the word right behind the number, or behind one blank.
    fn word_behind(&self) -> &'t str {
        let rest = &self.text[self.group.end()..];
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_alphabetic());
        &rest[..end.unwrap_or(rest.len())]
    }

    /// Returns transactions per second, in thousands (`12.5k`) or millions (`1.2M`) if the client prints them so.
    fn rate(&self) -> Option<f64> {
        let thousands = |unit: &str| match unit {
            "k" | "K" => Some(1e3),
            "M" => Some(1e6),
            "G" => Some(1e9),
            _ => None,
        };
        let group = self.group.as_str();
        let number = group.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let rate = if let Some(unit) = thousands(&group[number.len()..]) {
            let whole = number::parse(number).filter(|_| self.around().is_none());
            whole.map(|rate| rate * unit)
        } else {
            let attached = !self.text[self.group.end()..].starts_with(' ');
            let unit = thousands(self.word_behind()).filter(|_| attached);
            self.whole().map(|rate| rate * unit.unwrap_or(1.0))
        };
        rate.filter(|rate| *rate > 0.0)
    }

    /// Returns seconds, of a number in the unit that the client prints behind it. They have decimals: `1,234` may mean
    /// little more than one. `None` for a unit that may be several.
    fn seconds(&self) -> Option<f64> {
        let unit = match self.word_behind() {
            "ns" | "nsec" | "nsecs" | "nanosecond" | "nanoseconds" => 1e-9,
            "us" | "\u{b5}s" | "\u{3bc}s" | "usec" | "usecs" | "microsecond" | "microseconds" => {
                1e-6
            }
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 1e-3,
            "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "m" => return None,
            _ => 1.0,
        };
        let seconds = self.whole();
        let seconds = seconds.filter(|_| !number::is_ambiguous(self.group.as_str()));
        seconds
            .map(|seconds| seconds * unit)
            .filter(|seconds| *seconds >= 0.0)
    }

    /// Describes a group that is not a number of `what`.
    fn fault(&self, what: &str) -> String {
        let found = self.group.as_str();
        let whole = self.around().unwrap_or(found);
        let separator = if whole.contains(',') {
            "; decimals need a point, as with LC_ALL=C"
        } else if whole.contains(' ') {
            "; groups of digits need a comma or nothing between them, as with LC_ALL=C"
        } else {
            ""
        };
        let part = if whole == found {
            String::new()
        } else {
            format!(" (the pattern finds `{}` of it)", found.escape_debug())
        };
        format!(
            "`{}` is not a number of {what}{separator}{part}",
            whole.escape_debug()
        )
    }
}

/// Returns the number in the first group of the pattern's match; `what` describes it in the fault. Several matches must
/// give one number: a client that prints intermediate results, too, would be measured by one of them.
fn only(
    pattern: &Regex,
    text: &str,
    what: &str,
    number: impl Fn(&NumberMatch<'_>) -> Option<f64>,
) -> Result<f64, String> {
    let mut numbers: Vec<(f64, &str)> = Vec::new();
    for captures in pattern.captures_iter(text) {
        let Some(found) = NumberMatch::new(text, &captures, captures.get(1)) else {
            continue;
        };
        let value = number(&found).ok_or_else(|| found.fault(what))?;
        if numbers.iter().all(|(other, _)| *other != value) {
            numbers.push((value, found.group.as_str()));
        }
    }
    match numbers.as_slice() {
        [] => Err(format!("no {what} in the client's output")),
        [(value, _)] => Ok(*value),
        [first, .., last] => Err(format!(
            "the pattern finds {} numbers of {what} in the client's output, from `{}` to `{}`: it must fit only that of \
             the whole run",
            numbers.len(),
            first.1.escape_debug(),
            last.1.escape_debug()
        )),
    }
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
        let number = |group| NumberMatch::new(text, &captures, captures.name(group));
        let seconds = number("seconds");
        let seconds = seconds.ok_or_else(|| format!("operation {name} has no seconds"))?;
        let seconds = seconds
            .seconds()
            .ok_or_else(|| seconds.fault(&format!("seconds of {name}")))?;
        let commands = match number("commands") {
            None => 1,
            Some(count) => {
                commands(&count).ok_or_else(|| count.fault(&format!("commands of {name}")))?
            }
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
fn commands(found: &NumberMatch<'_>) -> Option<u64> {
    let number = found.whole()?;
    let is_count = number >= 0.0 && number.fract() == 0.0 && number < 9e15;
    is_count.then_some((number as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_what_clients_print() {
        let pattern = Regex::new(r"([0-9.,]+) requests per second").unwrap();
        let rate = |text: &str| {
            only(&pattern, text, "transactions per second", |found| {
                found.rate()
            })
        };
        let text = "GET: rps=1\rGET: 123,456.5 requests per second\n";
        assert_eq!(rate(text), Ok(123_456.5));
        let none = "no transactions per second in the client's output";
        assert_eq!(rate("nothing"), Err(none.to_owned()));
        for wrong in ["0.0", "1.2.3", "1234,5", "12,34", "0,123"] {
            let fault = rate(&format!("{wrong} requests per second")).unwrap_err();
            assert!(
                fault.starts_with(&format!("`{wrong}` is not a number")),
                "{fault}"
            );
        }
    }

    #[test]
    fn a_number_that_the_pattern_cuts_is_refused() {
        let pattern = Regex::new(r"([0-9.]+)k? requests per second").unwrap();
        let rate = |text: &str| {
            only(&pattern, text, "transactions per second", |found| {
                found.rate()
            })
        };
        let cut = "`1,234.5` is not a number of transactions per second; decimals need a point, as with LC_ALL=C (the \
                   pattern finds `234.5` of it)";
        assert_eq!(rate("1,234.5 requests per second"), Err(cut.to_owned()));
        assert!(rate("-5 requests per second").is_err());
        let blank = rate("2 100 requests per second").unwrap_err();
        assert!(blank.starts_with("`2 100` is not a number"), "{blank}");
        let columns = Regex::new(r"(?m)^\d+ ([0-9.]+) requests").unwrap();
        let column = only(&columns, "2 100 requests", "transactions", |found| {
            found.rate()
        });
        assert_eq!(column, Ok(100.0));
        // Thousands, as the client prints them.
        assert_eq!(rate("12.5k requests per second"), Ok(12_500.0));
        let whole = Regex::new(r"(\S+) requests per second").unwrap();
        let rate = |text: &str| {
            only(&whole, text, "transactions per second", |found| {
                found.rate()
            })
        };
        assert_eq!(rate("12.5k requests per second"), Ok(12_500.0));
        assert!(rate("12.5ks requests per second").is_err());
    }

    #[test]
    fn intermediate_results_are_not_taken_for_the_run() {
        let pattern = Regex::new(r"tps: ([0-9.]+)").unwrap();
        let rate = |text: &str| {
            only(&pattern, text, "transactions per second", |found| {
                found.rate()
            })
        };
        assert_eq!(rate("tps: 5\ntps: 5.0\n"), Ok(5.0));
        let several = rate("1 s tps: 4\n2 s tps: 5\n3 s tps: 4.5\n").unwrap_err();
        assert!(
            several.starts_with("the pattern finds 3 numbers of transactions per second")
                && several.contains("from `4` to `4.5`"),
            "{several}"
        );
    }

    #[test]
    fn seconds_are_in_the_unit_that_the_client_prints() {
        let pattern = Regex::new(r"took ([0-9.]+)").unwrap();
        let seconds = |text: &str| only(&pattern, text, "seconds", |found| found.seconds());
        for (text, expected) in [
            ("took 1.5", 1.5),
            ("took 1.5s", 1.5),
            ("took 1.5 seconds", 1.5),
            ("took 1.5 (all)", 1.5),
            ("took 980us", 980e-6),
            ("took 980\u{b5}s.", 980e-6),
            ("took 980\u{3bc}s", 980e-6),
            ("took 12 ms", 12e-3),
            ("took 3ns", 3e-9),
            ("took 2 minutes", 120.0),
        ] {
            let found = seconds(text).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-12, "{text}: {found}");
        }
        for wrong in ["took 2m", "took 1m3.5s", "took 1e-3s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
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
            (
                "Time for c (1): nan",
                "`nan` is not a number of seconds of c",
            ),
            (
                "Time for c (1): 0,25",
                "`0,25` is not a number of seconds of c; decimals",
            ),
            (
                "Time for c (1): 1,234",
                "`1,234` is not a number of seconds of c; decimals",
            ),
            ("Time for c (1): -1", "`-1` is not a number of seconds of c"),
            (
                "Time for c (1,5): 1",
                "`1,5` is not a number of commands of c; decimals",
            ),
            (
                "Time for c (two): 1",
                "`two` is not a number of commands of c",
            ),
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
