//! sql-bench's own table, and a table of the same rows with intervals and verdicts.

mod judged;
mod relative;

use super::document::{self, Document, name};
use super::nouns::point_name;
use super::report::warnings;
use super::text::clean;
use judged::judged;
use perfquilt_judge::attribution::{Attribution, Operation, TransactionCost};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{CLIENT_OPERATION, Meter, RecordedTable};
use perfquilt_model::point::Point;
use relative::RelativeTable;

/// Returns the report of an experiment with sql-bench's programs, for a terminal of `columns` columns.
///
/// The first table is that of sql-bench's `compare-results --relative`: seconds of the base, then one column per point
/// with its time relative to the base's. `recorded` has its rows if they were published and not measured by this
/// program. Then, one table per point has the same rows with intervals and verdicts.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when no client timed operations in this experiment.
pub(super) fn document(
    attribution: &Attribution,
    recorded: Option<&RecordedTable>,
    columns: usize,
) -> Result<Document> {
    if operations(attribution).next().is_none() {
        return Err(
            Error::no_results("no client of this experiment timed single operations")
                .hint("`--format sql-bench` is for workloads of the kind sql-bench"),
        );
    }
    let table = match recorded {
        Some(table) => RelativeTable::recorded(table),
        None => RelativeTable::measured(attribution),
    };
    let rows = recorded.map(|table| &*table.rows);
    let points = (1..=attribution.patches.len()).map(Point::Step);
    let mut nodes = vec![document::title(title(attribution))];
    nodes.extend(table.nodes(columns));
    nodes.extend(points.flat_map(|point| judged(attribution, point, rows)));
    nodes.extend(warnings(&attribution.warnings));
    Ok(Document(nodes))
}

/// Returns the release, or the experiment and what its servers are compared with.
fn title(attribution: &Attribution) -> String {
    let base = name(attribution.base());
    if attribution.is_of_servers() {
        format!("{}, compared with {base}", name(&attribution.experiment))
    } else {
        base
    }
}

/// Returns the heading of a point, with the name of its last patch.
fn head(attribution: &Attribution, point: Point) -> String {
    let Point::Step(k @ 1..) = point else {
        return point_name(point);
    };
    let last = name(attribution.patches.get(k - 1).map_or("", |p| &p.name));
    match k {
        _ if attribution.is_of_servers() => last,
        1 => last,
        k => format!("patches 1 to {k}, {last} last"),
    }
}

/// Returns the operations that clients timed, without the clients' own processor time.
fn operations(attribution: &Attribution) -> impl Iterator<Item = &Operation> {
    let operations = attribution.operations.iter();
    operations.filter(|of| of.meter == Meter::Time && of.operation != CLIENT_OPERATION)
}

fn costs(attribution: &Attribution) -> impl Iterator<Item = &TransactionCost> {
    let costs = attribution.costs.iter();
    costs.filter(|cost| cost.meter == Meter::Time)
}

/// Returns the program that `workload` is or belongs to, and its operation in the latter case.
fn program<'w>(
    attribution: &'w Attribution,
    workload: &'w str,
) -> Option<(&'w str, Option<&'w str>)> {
    let programs = &attribution.workloads;
    // The name of a program may contain a slash.
    if let Some(program) = programs.iter().find(|program| *program == workload) {
        return Some((program.as_str(), None));
    }
    programs.iter().find_map(|program| {
        let operation = workload.strip_prefix(program.as_str())?.strip_prefix('/')?;
        Some((program.as_str(), Some(operation)))
    })
}

/// Returns the seconds of one run.
fn seconds(cost: &TransactionCost) -> f64 {
    cost.estimate * cost.transactions / 1e9
}

fn label(name: &str, commands: Option<u64>) -> String {
    match commands {
        Some(commands) => format!("{} ({commands})", clean(name)),
        None => clean(name),
    }
}

/// Formats seconds with two decimals like sql-bench, shorter times with two significant digits.
fn format_seconds(seconds: f64) -> String {
    match seconds {
        0.0 | 0.1.. => format!("{seconds:.2}"),
        0.01.. => format!("{seconds:.3}"),
        0.001.. => format!("{seconds:.4}"),
        _ => format!("{seconds:.6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Experiment;
    use super::*;

    /// An experiment on program "program" with one patch; operation "a" ran at both points, "b" at the base only.
    pub(super) fn experiment() -> Attribution {
        let mut experiment = Experiment::new(&[(0.1, 0.0)]);
        experiment.workloads = vec!["program"];
        let mut attribution = experiment.attribution();
        let time = costs(&attribution).next().unwrap().clone();
        let cost = |point: Point, operation: &str, seconds: f64| TransactionCost {
            point,
            workload: format!("program/{operation}"),
            estimate: 1e9 * seconds,
            transactions: 1.0,
            too_short: false,
            ..time.clone()
        };
        attribution.costs.extend([
            cost(Point::BASE, "a", 1.0),
            cost(Point::BASE, "b", 9.0),
            cost(Point::Step(1), "a", 1.0),
        ]);
        let operation = |name: &str| Operation {
            workload: "program".into(),
            operation: name.into(),
            meter: Meter::Time,
            effects: Vec::new(),
        };
        attribution.operations = vec![operation("a"), operation("b")];
        attribution
    }
}
