//! Comparison of two servers function by function over several runs. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use perfquilt_model::profile::{CostTable, FunctionCosts};

use crate::stats::{Interval, LEVEL, benjamini_hochberg};

/// A cost per transaction of two servers, and the interval of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostChange {
    /// The first server's cost, averaged over runs.
    pub before: f64,
    /// The second server's cost, likewise.
    pub after: f64,
    /// Half-width of the 95 % interval of `after − before`; `null` with a single run.
    pub half_width: Option<f64>,
    /// P-value of the null hypothesis of no difference; 1 with a single run.
    #[serde(skip)]
    p_value: f64,
}

impl CostChange {
    /// Compares one value per run of each server; run `i` of both executed the same transactions. `sample` is the cost of
    /// one sample, 0 where all was counted.
    ///
    /// The number of samples in a function has at least Poisson's variance: few samples often differ by the same number in
    /// every run, which says nothing about the next one.
    fn of(before: &[f64], after: &[f64], sample: f64) -> Self {
        let sum = |values: &[f64]| values.iter().sum::<f64>();
        let mean = |values: &[f64]| sum(values) / values.len().max(1) as f64;
        let differences: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        let least = (sample * (sum(before) + sum(after))).sqrt() / differences.len().max(1) as f64;
        let interval = Interval::of(&differences).map(|found| {
            let error = found.standard_error.max(least);
            let (blocks, freedom) = (found.blocks, found.degrees_of_freedom);
            Interval::with(found.estimate, error, blocks, freedom, found.stopping_rule)
        });
        CostChange {
            before: mean(before),
            after: mean(after),
            half_width: interval
                .map(|interval| interval.half_width)
                .filter(|width| width.is_finite()),
            p_value: interval.map_or(1.0, |interval| interval.p_value()),
        }
    }

    /// Returns `after − before`.
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }

    /// Returns whether the interval of the difference excludes 0.
    pub fn is_shown(&self) -> bool {
        self.half_width
            .is_some_and(|width| self.difference().abs() > width)
    }
}

/// The costs of one function on two servers. All numbers are per transaction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FunctionDifference {
    /// Its name.
    pub name: String,
    /// Whether it was inlined anywhere, so its costs come from debug information.
    pub inlined: bool,
    /// Its own cost.
    pub own: CostChange,
    /// Its cost including callees.
    pub inclusive: CostChange,
    /// The number of calls.
    pub calls: CostChange,
    /// Whether its own cost changed, at a false discovery rate of 5 % over the functions (Benjamini and
    /// Hochberg). Always false with a single run.
    pub changed: bool,
}

/// Calls from one function to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallEdge {
    /// The caller.
    pub caller: String,
    /// The callee.
    pub callee: String,
    /// The number of calls.
    pub calls: CostChange,
    /// The cost of these calls.
    pub inclusive: CostChange,
}

/// A line of a function and its cost on one server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotLine {
    /// The file as given in the debug information.
    pub file: String,
    /// The line.
    pub line: u32,
    /// Own cost per transaction.
    pub own: f64,
}

/// Two servers compared function by function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileDifference {
    /// Version of this document: 1.
    pub schema: u32,
    /// The name of the first server.
    pub before: String,
    /// The name of the second server.
    pub after: String,
    /// The workload.
    pub workload: String,
    /// The profiler that the numbers come from.
    pub source: String,
    /// Number of runs of each server.
    pub runs: usize,
    /// Number of transactions in a run.
    pub transactions: u64,
    /// The unit of costs: `instructions`, `cycles` or `nanoseconds`.
    pub unit: String,
    /// The total cost.
    pub total: CostChange,
    /// The functions, sorted by difference of own cost, the largest first.
    pub functions: Vec<FunctionDifference>,
}

impl ProfileDifference {
    /// Compares the functions of `before` and `after`, with one table per run.
    pub fn functions_of(before: &[CostTable], after: &[CostTable]) -> Vec<FunctionDifference> {
        let tables = || before.iter().chain(after);
        let names: BTreeSet<&String> = tables().flat_map(|table| table.functions.keys()).collect();
        let mut functions: Vec<FunctionDifference> = names
            .into_iter()
            .map(|name| {
                let of = |table: &CostTable| table.functions.get(name).copied();
                let change =
                    |number: fn(&FunctionCosts) -> f64| changed([before, after], &of, number);
                FunctionDifference {
                    name: name.clone(),
                    inlined: tables().any(|table| table.inlined.contains(name)),
                    own: change(|costs| costs.own),
                    inclusive: change(|costs| costs.inclusive),
                    calls: change(|costs| costs.calls),
                    changed: false,
                }
            })
            .collect();
        let p_values: Vec<f64> = functions.iter().map(|f| f.own.p_value).collect();
        let adjusted = benjamini_hochberg(&p_values);
        for (function, p) in functions.iter_mut().zip(adjusted) {
            function.changed = p <= 1.0 - LEVEL && function.own.is_shown();
        }
        let size = |function: &FunctionDifference| function.own.difference().abs();
        functions.sort_by(|a, b| size(b).total_cmp(&size(a)));
        functions
    }

    /// Compares the total costs of `before` and `after`.
    pub fn total_of(before: &[CostTable], after: &[CostTable]) -> CostChange {
        let all =
            |tables: &[CostTable]| -> Vec<f64> { tables.iter().map(|table| table.total).collect() };
        CostChange::of(&all(before), &all(after), sample_of([before, after]))
    }

    /// Compares the calls of `callee` by caller, sorted by change of the calls' cost, the largest first.
    pub fn callers(before: &[CostTable], after: &[CostTable], callee: &str) -> Vec<CallEdge> {
        let names: BTreeSet<&(String, String)> = before
            .iter()
            .chain(after)
            .flat_map(|table| table.calls.keys())
            .filter(|(_, to)| to == callee)
            .collect();
        let mut edges: Vec<CallEdge> = names
            .into_iter()
            .map(|key| {
                let of = |table: &CostTable| table.calls.get(key).copied();
                let change =
                    |number: fn(&FunctionCosts) -> f64| changed([before, after], &of, number);
                CallEdge {
                    caller: key.0.clone(),
                    callee: key.1.clone(),
                    calls: change(|costs| costs.calls),
                    inclusive: change(|costs| costs.inclusive),
                }
            })
            .collect();
        let size = |edge: &CallEdge| edge.inclusive.difference().abs();
        edges.sort_by(|a, b| size(b).total_cmp(&size(a)));
        edges
    }

    /// Returns the lines of `function` in one server's `tables`, in source order.
    pub fn lines(tables: &[CostTable], function: &str) -> Vec<HotLine> {
        let mut lines: BTreeMap<(&String, u32), f64> = BTreeMap::new();
        for table in tables {
            for ((name, file, line), cost) in &table.lines {
                if name == function {
                    *lines.entry((file, *line)).or_default() += cost / tables.len() as f64;
                }
            }
        }
        lines
            .into_iter()
            .map(|((file, line), own)| HotLine {
                file: file.clone(),
                line,
                own,
            })
            .collect()
    }
}

/// Compares one number of the costs that `of` looks up in the table of each run; 0 if there are none.
fn changed(
    [before, after]: [&[CostTable]; 2],
    of: &dyn Fn(&CostTable) -> Option<FunctionCosts>,
    number: fn(&FunctionCosts) -> f64,
) -> CostChange {
    let all = |tables: &[CostTable]| -> Vec<f64> {
        let costs = tables.iter().map(|table| of(table).unwrap_or_default());
        costs.map(|costs| number(&costs)).collect()
    };
    CostChange::of(&all(before), &all(after), sample_of([before, after]))
}

/// Returns the cost of one sample, the largest of all runs.
fn sample_of(tables: [&[CostTable]; 2]) -> f64 {
    let all = tables.into_iter().flatten();
    all.map(|table| table.sample).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(costs: &[(&str, f64)]) -> CostTable {
        let functions = costs.iter().map(|&(name, own)| {
            let costs = FunctionCosts {
                own,
                inclusive: 2.0 * own,
                calls: 1.0,
            };
            (name.to_owned(), costs)
        });
        CostTable {
            total: costs.iter().map(|(_, own)| own).sum(),
            functions: functions.collect(),
            ..CostTable::default()
        }
    }

    #[test]
    fn functions_are_compared_by_name_and_run() {
        // The second run has more work for both servers; the difference is the same.
        let before = [
            table(&[("a", 100.0), ("b", 50.0)]),
            table(&[("a", 200.0), ("b", 50.0)]),
        ];
        let after = [
            table(&[("a", 90.0), ("c", 7.0), ("b", 50.0)]),
            table(&[("a", 190.0), ("c", 7.0), ("b", 50.0)]),
        ];
        let functions = ProfileDifference::functions_of(&before, &after);
        let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["a", "c", "b"]);
        assert_eq!(
            (functions[0].own.before, functions[0].own.after),
            (150.0, 140.0)
        );
        let changed: Vec<bool> = functions.iter().map(|f| f.changed).collect();
        assert_eq!(changed, [true, true, false]);
        let all = ProfileDifference::total_of(&before, &after);
        assert!((all.difference() + 3.0).abs() < 1e-9 && all.is_shown());
        // One run has no interval.
        let single = ProfileDifference::functions_of(&before[..1], &after[..1]);
        assert_eq!(single[0].own.half_width, None);
        assert!(!single[0].changed);
    }

    #[test]
    fn few_samples_that_differ_alike_in_every_run_show_nothing() {
        let tables = |rare: f64, hot: f64| -> Vec<CostTable> {
            let run = || CostTable {
                sample: 25.0,
                ..table(&[("rare", rare), ("hot", hot), ("gone", 100.0 * rare)])
            };
            (0..4).map(|_| run()).collect()
        };
        // One sample more in each of four runs; a hundred times as many of a thousand.
        let (before, mut after) = (tables(25.0, 25_000.0), tables(50.0, 30_000.0));
        for table in &mut after {
            table.functions.remove("gone");
        }
        let functions = ProfileDifference::functions_of(&before, &after);
        let changed = |functions: &[FunctionDifference]| -> Vec<String> {
            let changed = functions.iter().filter(|f| f.changed);
            changed.map(|f| f.name.clone()).collect()
        };
        assert_eq!(changed(&functions), ["hot", "gone"]);
        // Counted instructions are exact.
        let counted = |tables: &[CostTable]| -> Vec<CostTable> {
            let of = |table: &CostTable| CostTable {
                sample: 0.0,
                ..table.clone()
            };
            tables.iter().map(of).collect()
        };
        let functions = ProfileDifference::functions_of(&counted(&before), &counted(&after));
        assert_eq!(changed(&functions), ["hot", "gone", "rare"]);
    }

    #[test]
    fn of_many_functions_that_only_vary_hardly_any_is_said_to_have_changed() {
        // Sampled costs: every function varies independently from run to run, and one has changed.
        let mut state = 7u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 16) / 65_536.0
        };
        let mut run = |changed: f64| -> CostTable {
            let names: Vec<String> = (0..1000).map(|k| format!("f{k}")).collect();
            let costs: Vec<(&str, f64)> = names
                .iter()
                .enumerate()
                .map(|(k, name)| (name.as_str(), if k == 0 { changed } else { 50.0 } + noise()))
                .collect();
            table(&costs)
        };
        let before: Vec<CostTable> = (0..5).map(|_| run(100.0)).collect();
        let after: Vec<CostTable> = (0..5).map(|_| run(60.0)).collect();
        let functions = ProfileDifference::functions_of(&before, &after);
        let by_chance = functions.iter().filter(|f| f.own.is_shown()).count();
        let changed: Vec<&str> = functions
            .iter()
            .filter(|f| f.changed)
            .map(|f| f.name.as_str())
            .collect();
        assert!(by_chance > 20, "{by_chance}");
        assert_eq!(changed, ["f0"]);
    }
}
