//! sql-bench's own table, and the one that says how much of it is known.

mod judged;
mod relative;

use super::page::{BOLD, DIM, Page};
use super::text::{clean, long};
use super::view::words_of;
use perfquilt_judge::attribution::{Attribution, Cost, Operation};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{CLIENT_OPERATION, Meter, RecordedRow};
use perfquilt_model::point::Point;
use relative::Table;

/// Columns narrower than this are not worth fitting into.
const NARROWEST: usize = 72;

/// The report of an experiment with sql-bench's programs, at most `columns` wide; `color` allows ANSI colours.
///
/// First the table as sql-bench's `compare-results --relative` has it: seconds of the base, then a column a
/// point, its time relative to the base's. `recorded` has it where it was published and not measured by this
/// program. Then, a point at a time, the same rows with what is known of them.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when no client timed operations in this experiment.
pub fn sql_bench(
    attribution: &Attribution,
    recorded: Option<&[RecordedRow]>,
    columns: usize,
    color: bool,
) -> Result<String> {
    if operations(attribution).next().is_none() {
        return Err(
            Error::usage("no client of this experiment timed operations apart")
                .hint("`--format sql-bench` is for workloads of the kind sql-bench"),
        );
    }
    let mut page = Page::new(columns.max(NARROWEST), color);
    let table = match recorded {
        Some(rows) => Table::recorded(attribution, rows),
        None => Table::measured(attribution),
    };
    page.line(&clean(attribution.base()), BOLD);
    page.relative(&table);
    for point in 1..=attribution.patches.len() {
        page.judged(attribution, Point::Step(point), recorded);
    }
    for warning in &attribution.warnings {
        page.blank();
        page.paragraph(&format!("Note: {}", long(warning)), "");
    }
    Ok(page.text)
}

/// A point with the patch that made it.
fn head(attribution: &Attribution, point: Point) -> String {
    let Point::Step(k @ 1..) = point else {
        return words_of(point);
    };
    let name = attribution.patches.get(k - 1).map_or("", |p| &p.name);
    match k {
        1 => clean(name),
        k => format!("patches 1 to {k}, {} last", clean(name)),
    }
}

/// The operations that clients timed; a client's own time beside the server's is none.
fn operations(attribution: &Attribution) -> impl Iterator<Item = &Operation> {
    let operations = attribution.operations.iter();
    operations.filter(|of| of.meter == Meter::Time && of.operation != CLIENT_OPERATION)
}

fn costs(attribution: &Attribution) -> impl Iterator<Item = &Cost> {
    let costs = attribution.costs.iter();
    costs.filter(|cost| cost.meter == Meter::Time)
}

/// The program that `workload` is or is a part of, and the operation that it then is.
fn program<'w>(
    attribution: &'w Attribution,
    workload: &'w str,
) -> Option<(&'w str, Option<&'w str>)> {
    let programs = &attribution.workloads;
    // A program's own name may have a slash.
    if let Some(program) = programs.iter().find(|program| *program == workload) {
        return Some((program.as_str(), None));
    }
    programs.iter().find_map(|program| {
        let operation = workload.strip_prefix(program.as_str())?.strip_prefix('/')?;
        Some((program.as_str(), Some(operation)))
    })
}

/// Seconds of one run.
fn seconds(cost: &Cost) -> f64 {
    cost.estimate * cost.transactions / 1e9
}

impl Page {
    fn rule(&mut self) {
        self.line(&"─".repeat(self.width), DIM);
    }
}

fn label(name: &str, commands: Option<u64>) -> String {
    match commands {
        Some(commands) => format!("{} ({commands})", clean(name)),
        None => clean(name),
    }
}

/// Seconds to two decimals as sql-bench has them, shorter ones to two digits that count.
fn seconds_words(seconds: f64) -> String {
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

    /// Program "program" at the base and with one patch: its operation "a" ran at both, "b" at the base alone.
    pub(super) fn experiment() -> Attribution {
        let mut experiment = Experiment::new(&[(0.1, 0.0)]);
        experiment.workloads = vec!["program"];
        let mut attribution = experiment.attribution();
        let time = costs(&attribution).next().unwrap().clone();
        let cost = |point: Point, operation: &str, seconds: f64| Cost {
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
