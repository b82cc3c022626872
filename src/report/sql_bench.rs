//! sql-bench's own table, and the one that says how much of it is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::legend::level;
use super::page::{BOLD, DIM, Page};
use super::text::{clean, fit, long, width};
use super::view::words_of;
use crate::attribution::{Attribution, Cost, Effect, Kind, Operation, Verdict};
use crate::error::{Error, Result};
use crate::observation::{CLIENT_OPERATION, Level, Meter, RecordedRow};
use crate::point::Point;

/// Columns narrower than this are not worth fitting into.
const NARROWEST: usize = 72;

/// A row of which no effect below this would have been seen says nothing about patches.
const BLIND: f64 = 0.1;

/// The report of an experiment with sql-bench's programs, at most `columns` wide; `color` allows ANSI colours.
///
/// First the table as sql-bench's `compare-results --relative` has it: seconds of the base, then a column a
/// point, its time relative to the base's. `recorded` has it where it was published and not measured by this
/// program. Then, a point at a time, the same rows with what is known of them.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) when no client timed operations in this experiment.
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

/// The table without intervals.
struct Table {
    /// What each column after the first is.
    heads: Vec<String>,
    rows: Vec<RecordedRow>,
}

impl Table {
    fn recorded(attribution: &Attribution, rows: &[RecordedRow]) -> Self {
        let runs = rows.iter().map(|row| row.relative.len()).max().unwrap_or(0);
        let name = attribution.patches.first().map_or("", |patch| &patch.name);
        Table {
            heads: (1..=runs)
                .map(|run| format!("{}, run {run}", clean(name)))
                .collect(),
            rows: rows.to_vec(),
        }
    }

    fn measured(attribution: &Attribution) -> Self {
        let points: Vec<Point> = (0..=attribution.patches.len())
            .map(Point::Step)
            .filter(|point| costs(attribution).any(|cost| cost.point == *point))
            .collect();
        // Operations of one name in several programs together.
        let mut sums: BTreeMap<(Level, &str), Sum<'_>> = BTreeMap::new();
        for cost in costs(attribution) {
            let seconds = seconds(cost);
            let (level, name) = match program(attribution, &cost.workload) {
                Some((_, Some(CLIENT_OPERATION))) => continue,
                Some((_, Some(operation))) => (Level::Operation, operation),
                _ => (Level::Program, cost.workload.as_str()),
            };
            let mut add = |row: (Level, &'_ str)| {
                let row = sums.entry((
                    row.0,
                    if row.0 == Level::Total {
                        "TOTALS"
                    } else {
                        name
                    },
                ));
                let (by_point, commands) = row.or_default();
                let parts = by_point.entry(cost.point).or_default();
                parts.insert(&cost.workload, seconds);
                if cost.point == Point::BASE {
                    *commands += cost.transactions;
                }
            };
            add((level, name));
            if level == Level::Operation {
                add((Level::Total, name));
            }
        }
        let rows = sums.into_iter().filter_map(|((level, name), sum)| {
            let (by_point, commands) = sum;
            let base = by_point.get(&Point::BASE)?;
            let seconds: f64 = base.values().sum();
            let relative = points.iter().filter(|point| **point != Point::BASE);
            Some(RecordedRow {
                level,
                name: name.to_owned(),
                commands: (level == Level::Operation).then_some(commands.round() as u64),
                seconds,
                // Sums of different parts say nothing of each other.
                relative: relative
                    .map(|point| {
                        let parts = by_point.get(point)?;
                        let sum: f64 = parts.values().sum();
                        parts.keys().eq(base.keys()).then_some(sum / seconds)
                    })
                    .collect(),
            })
        });
        Table {
            rows: rows.collect(),
            heads: points
                .iter()
                .filter(|point| **point != Point::BASE)
                .map(|point| head(attribution, *point))
                .collect(),
        }
    }
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

/// Seconds by point and by what they were measured of, and commands.
type Sum<'a> = (BTreeMap<Point, BTreeMap<&'a str, f64>>, f64);

/// What a row says about a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Judgement {
    Faster,
    Slower,
    NoEffect,
    Unclear,
    TooNoisy,
    TooShort,
    NotMeasured,
}

impl Judgement {
    const ALL: [Judgement; 7] = [
        Judgement::Faster,
        Judgement::Slower,
        Judgement::NoEffect,
        Judgement::Unclear,
        Judgement::TooNoisy,
        Judgement::TooShort,
        Judgement::NotMeasured,
    ];

    /// `measured` says whether both points ran the program: a time of nothing is no observation.
    fn of(effect: Option<&Effect>, too_short: bool, measured: bool) -> Self {
        let Some(effect) = effect.filter(|_| !too_short) else {
            return match too_short || measured {
                true => Judgement::TooShort,
                false => Judgement::NotMeasured,
            };
        };
        match effect.verdict {
            Verdict::Faster => Judgement::Faster,
            Verdict::Slower => Judgement::Slower,
            Verdict::NoEffect => Judgement::NoEffect,
            Verdict::Unclear => match effect.minimum_detectable {
                Some(smallest) if smallest <= BLIND => Judgement::Unclear,
                _ => Judgement::TooNoisy,
            },
        }
    }

    fn words(self) -> &'static str {
        match self {
            Judgement::Faster => "faster",
            Judgement::Slower => "slower",
            Judgement::NoEffect => "no effect",
            Judgement::Unclear => "unclear",
            Judgement::TooNoisy => "too noisy",
            Judgement::TooShort => "too short",
            Judgement::NotMeasured => "not measured",
        }
    }

    fn style(self) -> &'static str {
        match self {
            Judgement::Faster => "\x1b[32m",
            Judgement::Slower => "\x1b[31m",
            Judgement::NoEffect | Judgement::Unclear => "",
            Judgement::TooNoisy | Judgement::TooShort | Judgement::NotMeasured => DIM,
        }
    }
}

/// A judged row.
struct Judged<'a> {
    /// The program of an operation, where it is known.
    program: Option<&'a str>,
    label: String,
    level: Level,
    seconds: Option<f64>,
    effect: Option<&'a Effect>,
    judgement: Judgement,
}

impl Page {
    fn rule(&mut self) {
        self.line(&"─".repeat(self.width), DIM);
    }

    /// sql-bench's table: as many columns as fit, the last ones first where they do not all.
    fn relative(&mut self, table: &Table) {
        const FIGURE: usize = 8;
        let labels: Vec<String> = table
            .rows
            .iter()
            .map(|row| label(&row.name, row.commands))
            .collect();
        let longest = labels.iter().map(|label| width(label)).fold(9, usize::max);
        let fit_columns = self.width.saturating_sub(longest.min(36) + 10) / FIGURE;
        let skipped = table.heads.len().saturating_sub(fit_columns.max(1));
        let shown = table.heads.len() - skipped;
        let room = (self.width - 10 - FIGURE * shown).min(longest);
        self.paragraph(
            "Time relative to the first column, which is in seconds: below 1 is faster. As \
             sql-bench's compare-results prints it:",
            "",
        );
        for (number, head) in table.heads.iter().enumerate().skip(skipped) {
            let head = fit(head, self.width - 6);
            self.line(&format!("{:>4}  {head}", number + 1), "");
        }
        if skipped > 0 {
            self.paragraph(
                &format!("({skipped} more columns need a wider terminal, or a pipe.)"),
                "",
            );
        }
        let mut line = format!("{:room$}{:>10}", "operation", "seconds");
        for number in skipped + 1..=table.heads.len() {
            let _ = write!(line, "{number:>FIGURE$}");
        }
        self.line(&line, BOLD);
        let mut level = None;
        for (row, label) in table.rows.iter().zip(&labels) {
            if level != Some(row.level) {
                self.rule();
                level = Some(row.level);
            }
            let label = fit(label, room);
            let pad = room - width(&label);
            let mut line = format!("{label}{:pad$}{:>10}", "", seconds_words(row.seconds));
            for value in &row.relative[skipped.min(row.relative.len())..] {
                let _ = match value {
                    Some(value) => write!(line, "{value:>FIGURE$.3}"),
                    None => write!(line, "{:>FIGURE$}", "–"),
                };
            }
            self.line(&line, "");
        }
    }

    /// One point's rows with intervals and verdicts.
    fn judged(
        &mut self,
        attribution: &Attribution,
        point: Point,
        recorded: Option<&[RecordedRow]>,
    ) {
        let rows = judged_rows(attribution, point, recorded);
        if rows.iter().all(|row| row.effect.is_none()) {
            return;
        }
        self.blank();
        let head = format!("What is known of {}", head(attribution, point));
        self.line(&fit(&head, self.width), BOLD);
        let intervals: Vec<String> = rows.iter().map(interval_words).collect();
        let widest = intervals.iter().map(|text| width(text));
        let widest = widest.fold(13, usize::max);
        let verdicts = rows.iter().map(|row| width(row.judgement.words()));
        let figures = 10 + 10 + 2 + widest + 2 + verdicts.fold(9, usize::max);
        let longest = rows.iter().map(|row| width(&row.label)).fold(9, usize::max);
        let room = longest.min(self.width.saturating_sub(figures)).max(12);
        let interval = format!("{:.0} % interval", level(attribution, Meter::Time));
        let line = format!(
            "{:room$}{:>10}{:>10}  {interval:<widest$}  verdict",
            "operation", "seconds", "relative"
        );
        self.line(&line, BOLD);
        let mut group = None;
        for (row, interval) in rows.iter().zip(&intervals) {
            if group != Some((row.level, row.program)) {
                self.rule();
                if let (Level::Operation, Some(program)) = (row.level, row.program) {
                    self.line(&clean(program), BOLD);
                }
                group = Some((row.level, row.program));
            }
            let label = fit(&row.label, room);
            let pad = room - width(&label);
            let seconds = row.seconds.map_or_else(|| "–".to_owned(), seconds_words);
            let relative = row.effect.map(|effect| ratio(effect.estimate));
            let line = format!(
                "{label}{:pad$}{seconds:>10}{:>10}  {interval:<widest$}  {}",
                "",
                relative.unwrap_or_else(|| "–".to_owned()),
                row.judgement.words()
            );
            self.line(&line, row.judgement.style());
        }
        self.rule();
        self.paragraph(&tally(&rows), "");
    }
}

/// The rows of `point`: as in the published table where there is one, else programs with their operations.
fn judged_rows<'a>(
    attribution: &'a Attribution,
    point: Point,
    recorded: Option<&[RecordedRow]>,
) -> Vec<Judged<'a>> {
    let wanted = |effect: &&Effect| {
        effect.kind == Kind::Cumulative && effect.meter == Meter::Time && effect.point == point
    };
    let parts = attribution.operations.iter().flat_map(|of| &of.effects);
    let all = attribution.patches.iter().flat_map(|patch| &patch.effects);
    let effects: BTreeMap<&str, &Effect> = all
        .chain(parts)
        .filter(wanted)
        .map(|effect| (effect.workload.as_str(), effect))
        .collect();
    let base: BTreeMap<&str, &Cost> = costs(attribution)
        .filter(|cost| cost.point == Point::BASE)
        .map(|cost| (cost.workload.as_str(), cost))
        .collect();
    let too_short: Vec<&str> = costs(attribution)
        .filter(|cost| cost.too_short)
        .map(|cost| cost.workload.as_str())
        .collect();
    // Programs that ran at both points.
    let ran = |wanted: Point| -> BTreeSet<&str> {
        costs(attribution)
            .filter(|cost| cost.point == wanted)
            .filter_map(|cost| Some(program(attribution, &cost.workload)?.0))
            .collect()
    };
    let ran: BTreeSet<&str> = ran(Point::BASE)
        .intersection(&ran(point))
        .copied()
        .collect();
    let row = |level: Level, workload: &str, label: String, seconds: Option<f64>| {
        let effect = effects.get(workload).copied();
        let measured = program(attribution, workload).is_some_and(|of| ran.contains(of.0));
        Judged {
            program: None,
            label,
            level,
            seconds,
            effect,
            judgement: Judgement::of(effect, too_short.contains(&workload), measured),
        }
    };
    if let Some(rows) = recorded {
        return rows
            .iter()
            .map(|of| {
                let workload = of.workload();
                row(
                    of.level,
                    &workload,
                    label(&of.name, of.commands),
                    Some(of.seconds),
                )
            })
            .collect();
    }
    let programs = attribution.workloads.iter().map(|workload| {
        let seconds = base.get(workload.as_str()).map(|cost| seconds(cost));
        row(Level::Program, workload, clean(workload), seconds)
    });
    let operations = operations(attribution).map(|of| {
        let workload = format!("{}/{}", of.workload, of.operation);
        let cost = base.get(workload.as_str());
        let commands = cost.map(|cost| cost.transactions.round() as u64);
        let label = label(&of.operation, commands);
        let seconds = cost.map(|cost| seconds(cost));
        Judged {
            program: Some(&of.workload),
            ..row(Level::Operation, &workload, label, seconds)
        }
    });
    programs.chain(operations).collect()
}

/// How much of a table is evidence.
fn tally(rows: &[Judged<'_>]) -> String {
    let rows: Vec<&Judged<'_>> = rows
        .iter()
        .filter(|row| row.level == Level::Operation)
        .collect();
    let counted: Vec<String> = Judgement::ALL
        .into_iter()
        .map(|judgement| {
            let count = rows.iter().filter(|row| row.judgement == judgement).count();
            (judgement, count)
        })
        // Rarely is anything not measured.
        .filter(|(judgement, count)| *judgement != Judgement::NotMeasured || *count > 0)
        .map(|(judgement, count)| format!("{count} {}", judgement.words()))
        .collect();
    let evident = [Judgement::Faster, Judgement::Slower];
    let evident = rows.iter().filter(|row| evident.contains(&row.judgement));
    format!(
        "{} of {} operations show an effect: {}. Too short: a run takes fewer than four steps of its clock, or \
         none. Too noisy: an effect of {:.0} % would not have been seen. Neither says anything of the patch.",
        evident.count(),
        rows.len(),
        counted.join(", "),
        100.0 * BLIND
    )
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

/// The ends of a row's interval as ratios of times, or a dash.
fn interval_words(row: &Judged<'_>) -> String {
    // A faster server needs less time: the ends change places.
    match row.effect.and_then(|of| Some((of.high?, of.low?))) {
        Some((high, low)) => format!("{}–{}", ratio(high), ratio(low)),
        None => "–".to_owned(),
    }
}

/// An effect on speed as a ratio of times.
fn ratio(speed: f64) -> String {
    let ratio = 1.0 / (1.0 + speed);
    if ratio > 1e6 {
        return ">10⁶".to_owned();
    }
    let text = format!("{ratio:.3}");
    // An end that is not 1 must not look like it.
    match text == "1.000" && speed.abs() > 1e-6 {
        true => format!("{ratio:.4}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Experiment;
    use super::*;

    fn experiment() -> Attribution {
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

    #[test]
    fn sums_of_different_parts_are_not_compared() {
        let table = Table::measured(&experiment());
        let relative = |name: &str| {
            let mut rows = table.rows.iter();
            rows.find(|row| row.name == name).unwrap().relative[0]
        };
        assert_eq!(relative("a"), Some(1.0));
        assert_eq!(relative("b"), None);
        assert_eq!(relative("TOTALS"), None);
    }

    #[test]
    fn long_names_and_wide_intervals_stay_within_the_columns() {
        let mut attribution = experiment();
        let name = "an_operation_whose_name_takes_all_of_the_room_of_its_column";
        let effect = Effect {
            kind: Kind::Cumulative,
            meter: Meter::Time,
            point: Point::Step(1),
            verdict: Verdict::Unclear,
            minimum_detectable: None,
            workload: format!("program/{name}"),
            low: Some(-0.999),
            high: Some(-0.99),
            ..attribution.patches[0].effects[0].clone()
        };
        attribution.operations[0].operation = name.to_owned();
        attribution.operations[0].effects = vec![effect];
        let text = sql_bench(&attribution, None, 80, false).unwrap();
        assert!(text.contains("100.000–1000.000  too noisy"), "{text}");
        for line in text.lines() {
            assert!(width(line) <= 80, "{line}");
        }
        assert_eq!(ratio(-1.0), ">10⁶");
    }

    #[test]
    fn a_clients_own_time_is_no_operation() {
        let mut attribution = experiment();
        for of in &mut attribution.operations {
            of.operation = CLIENT_OPERATION.to_owned();
        }
        assert!(sql_bench(&attribution, None, 80, false).is_err());
        attribution.costs[0].workload = format!("program/{CLIENT_OPERATION}");
        let rows = Table::measured(&attribution).rows;
        assert!(rows.iter().all(|row| row.name != CLIENT_OPERATION));
    }

    #[test]
    fn what_did_not_run_is_not_too_short() {
        let mut attribution = experiment();
        let of = |attribution: &Attribution| -> Vec<Judgement> {
            let rows = judged_rows(attribution, Point::Step(1), None);
            let rows = rows.iter().filter(|row| row.level == Level::Operation);
            rows.map(|row| row.judgement).collect()
        };
        // It ran, and took less than a step of its clock.
        assert_eq!(of(&attribution), [Judgement::TooShort; 2]);
        attribution.costs.retain(|cost| cost.point == Point::BASE);
        assert_eq!(of(&attribution), [Judgement::NotMeasured; 2]);
    }
}
