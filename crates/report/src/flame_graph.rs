//! A differential flame graph of two servers.
//!
//! Callgrind records the call graph, but no whole stacks. A function's cost is therefore shared among its call paths
//! in proportion to the cost of its callers' calls, as gprof does (Graham, Kessler, McKusick, *gprof: a call graph
//! execution profiler*, SIGPLAN Symposium on Compiler Construction, 1982).

use std::collections::{BTreeMap, BTreeSet};

use perfquilt_model::error::{Error, Result};
use perfquilt_model::profile::CostTable;

/// Call paths below this share of the total cost are not followed further.
const MIN_SHARE: f64 = 0.0005;

/// Returns the flame graph as SVG: frames are as wide as their cost per transaction in `after`, red where it is higher
/// than in `before`, blue where it is lower.
pub fn flame_graph(title: &str, before: &[CostTable], after: &[CostTable]) -> Result<String> {
    let mut stacks: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (stack, cost) in folded(before) {
        stacks.entry(stack).or_default().0 = cost;
    }
    for (stack, cost) in folded(after) {
        stacks.entry(stack).or_default().1 = cost;
    }
    let lines: Vec<String> = stacks
        .into_iter()
        .map(|(stack, (before, after))| format!("{stack} {before:.0} {after:.0}"))
        .collect();
    let mut options = inferno::flamegraph::Options::default();
    options.title = title.to_owned();
    options.count_name = "instructions a transaction".to_owned();
    options.min_width = 0.1;
    let mut svg = Vec::new();
    inferno::flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| Error::internal(format!("cannot draw the flame graph: {error}")))?;
    Ok(String::from_utf8_lossy(&svg).into_owned())
}

/// Returns the own cost by stack (`main;f;g`), the mean over `tables`.
fn folded(tables: &[CostTable]) -> BTreeMap<String, f64> {
    let mut stacks = BTreeMap::new();
    for table in tables {
        let walk = Walk::new(table, tables.len() as f64);
        let called: BTreeSet<&String> = table.calls.keys().map(|(_, callee)| callee).collect();
        for (name, costs) in &table.functions {
            if !called.contains(name) && !table.inlined.contains(name) {
                walk.go(name, costs.inclusive, &mut vec![name], &mut stacks);
            }
        }
    }
    stacks
}

/// Distributes the costs of a table over call paths.
struct Walk<'a> {
    table: &'a CostTable,
    /// The functions that a function calls or has inlined, with their costs.
    callees: BTreeMap<&'a str, Vec<(&'a String, f64)>>,
    least: f64,
    runs: f64,
}

impl<'a> Walk<'a> {
    fn new(table: &'a CostTable, runs: f64) -> Self {
        // A function may be called in some places and inlined in others.
        let mut costs: BTreeMap<(&str, &String), f64> = BTreeMap::new();
        let calls = table.calls.iter().map(|(pair, of)| (pair, of.inclusive));
        let nested = table.nested.iter().map(|(pair, cost)| (pair, *cost));
        for ((caller, callee), cost) in calls.chain(nested) {
            if caller != callee {
                *costs.entry((caller.as_str(), callee)).or_default() += cost;
            }
        }
        let mut callees: BTreeMap<&str, Vec<(&String, f64)>> = BTreeMap::new();
        for ((caller, callee), cost) in costs {
            callees.entry(caller).or_default().push((callee, cost));
        }
        Walk {
            table,
            callees,
            least: MIN_SHARE * table.total,
            runs,
        }
    }

    /// Distributes `amount`, the cost of the last function of `path` on this path, over its own stack and its callees.
    fn go(
        &self,
        name: &str,
        amount: f64,
        path: &mut Vec<&'a String>,
        stacks: &mut BTreeMap<String, f64>,
    ) {
        let Some(costs) = self.table.functions.get(name) else {
            return;
        };
        let calls = self.callees.get(name).map_or(&[][..], Vec::as_slice);
        let all = costs.own + calls.iter().map(|(_, cost)| cost).sum::<f64>();
        let share = if all > 0.0 { amount / all } else { 0.0 };
        let mut add = |path: &[&String], cost: f64| {
            let clean = |name: &&String| name.replace([';', '\n'], ":");
            let stack = path.iter().map(clean).collect::<Vec<_>>().join(";");
            *stacks.entry(stack).or_default() += cost / self.runs;
        };
        add(path, costs.own * share);
        let mut below = Vec::new();
        for &(callee, cost) in calls {
            let amount = cost * share;
            if path.contains(&callee) || amount < self.least {
                path.push(callee);
                add(path, amount);
                path.pop();
            } else {
                below.push((callee, amount));
            }
        }
        for (callee, amount) in below {
            path.push(callee);
            self.go(callee, amount, path, stacks);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::profile::FunctionCosts;

    fn table(leaf: f64) -> CostTable {
        let costs = |own, inclusive| FunctionCosts {
            own,
            inclusive,
            calls: 1.0,
        };
        let edge = |inclusive| costs(0.0, inclusive);
        let key = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        CostTable {
            total: 100.0 + leaf,
            functions: BTreeMap::from([
                ("main".to_owned(), costs(10.0, 100.0 + leaf)),
                ("f".to_owned(), costs(60.0, 60.0 + 0.75 * leaf)),
                ("g".to_owned(), costs(30.0, 30.0 + 0.25 * leaf)),
                ("leaf".to_owned(), costs(leaf, leaf)),
            ]),
            calls: BTreeMap::from([
                (key("main", "f"), edge(60.0 + 0.75 * leaf)),
                (key("main", "g"), edge(30.0 + 0.25 * leaf)),
                (key("f", "leaf"), edge(0.75 * leaf)),
                (key("g", "leaf"), edge(0.25 * leaf)),
            ]),
            ..CostTable::default()
        }
    }

    #[test]
    fn costs_are_shared_among_the_ways_to_a_function() {
        let stacks = folded(&[table(100.0), table(100.0)]);
        assert!((stacks.values().sum::<f64>() - 200.0).abs() < 1e-9);
        assert!((stacks["main;f;leaf"] - 75.0).abs() < 1e-9);
        assert!((stacks["main;g;leaf"] - 25.0).abs() < 1e-9);
        assert!((stacks["main"] - 10.0).abs() < 1e-9);
    }

    #[test]
    fn inlined_functions_are_drawn_in_those_around_them() {
        let costs = |own, inclusive| FunctionCosts {
            own,
            inclusive,
            calls: 1.0,
        };
        let key = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let table = CostTable {
            total: 100.0,
            functions: BTreeMap::from([
                ("main".to_owned(), costs(10.0, 100.0)),
                ("step".to_owned(), costs(40.0, 90.0)),
                ("leaf".to_owned(), costs(50.0, 50.0)),
            ]),
            inlined: ["step".to_owned()].into(),
            calls: BTreeMap::from([(key("step", "leaf"), costs(0.0, 50.0))]),
            nested: BTreeMap::from([(key("main", "step"), 90.0)]),
            ..CostTable::default()
        };
        let stacks = folded(&[table]);
        let drawn: Vec<(&str, f64)> = stacks.iter().map(|(s, cost)| (s.as_str(), *cost)).collect();
        assert_eq!(drawn[0], ("main", 10.0));
        assert_eq!(drawn[1..], [("main;step", 40.0), ("main;step;leaf", 50.0)]);
    }

    #[test]
    fn recursion_ends_and_names_cannot_break_the_drawing() {
        let mut table = table(100.0);
        let back = ("leaf".to_owned(), "f".to_owned());
        table.calls.insert(
            back,
            FunctionCosts {
                own: 0.0,
                inclusive: 40.0,
                calls: 1.0,
            },
        );
        assert!(folded(&[table.clone()]).len() < 20);
        table.functions.insert(
            "a;b\n<script>".to_owned(),
            FunctionCosts {
                own: 50.0,
                inclusive: 50.0,
                calls: 0.0,
            },
        );
        let svg = flame_graph("<x>", &[table.clone()], &[table]).unwrap();
        assert!(svg.contains("<svg") && !svg.contains("<script>\n") && !svg.contains("b\n<"));
        assert!(svg.contains("&lt;x&gt;"));
    }
}
