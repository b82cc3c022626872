//! The table of a point with intervals, and the judgement of each row.

use std::collections::{BTreeMap, BTreeSet};

use super::{costs, format_seconds, head, label, operations, program, seconds};
use crate::document::{Cell, Node, Style, heading, literal, paragraph, table};
use crate::legend::level;
use crate::nouns::Nouns;
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, TransactionCost, Verdict};
use perfquilt_model::observation::{Meter, RecordedRow, RowLevel};
use perfquilt_model::point::Point;

/// Largest minimum detectable effect, as a fraction, of a row that is not too noisy.
const MAX_DETECTABLE: f64 = 0.1;

/// The judgement of a row about a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Judgement {
    Faster,
    Slower,
    NoEffect,
    Unclear,
    TooNoisy,
    OneRun,
    TooShort,
    NotMeasured,
}

impl Judgement {
    /// All judgements, with their names and styles.
    const ALL: [(Judgement, &str, Style); 8] = [
        (Judgement::Faster, "faster", Style::Good),
        (Judgement::Slower, "slower", Style::Bad),
        (Judgement::NoEffect, "no effect", Style::Plain),
        (Judgement::Unclear, "unclear", Style::Plain),
        (Judgement::TooNoisy, "too noisy", Style::Quiet),
        (Judgement::OneRun, "one run", Style::Quiet),
        (Judgement::TooShort, "too short", Style::Quiet),
        (Judgement::NotMeasured, "not measured", Style::Quiet),
    ];

    /// Judges a row; `measured` says whether both points ran the program, as a time of zero is not stored.
    fn of(effect: Option<&Effect>, too_short: bool, measured: bool) -> Self {
        let Some(effect) = effect.filter(|_| !too_short) else {
            return if too_short || measured {
                Judgement::TooShort
            } else {
                Judgement::NotMeasured
            };
        };
        if effect.unpaired && effect.low.is_none() {
            return Judgement::OneRun;
        }
        match effect.verdict {
            Verdict::Faster => Judgement::Faster,
            Verdict::Slower => Judgement::Slower,
            Verdict::NoEffect | Verdict::NoTypicalEffect => Judgement::NoEffect,
            // Operations have no tail figures, so they are never mixed.
            Verdict::Mixed | Verdict::Unclear => match effect.minimum_detectable {
                Some(smallest) if smallest <= MAX_DETECTABLE => Judgement::Unclear,
                _ => Judgement::TooNoisy,
            },
        }
    }

    fn name(self) -> &'static str {
        Judgement::ALL[self as usize].1
    }

    fn style(self) -> Style {
        Judgement::ALL[self as usize].2
    }
}

/// A judged row.
struct JudgedRow<'a> {
    /// The program of an operation, if known.
    program: Option<&'a str>,
    label: String,
    level: RowLevel,
    seconds: Option<f64>,
    effect: Option<&'a Effect>,
    judgement: Judgement,
}

/// Returns the table of a point with intervals and verdicts; nothing if no row has an effect.
pub(super) fn judged(
    attribution: &Attribution,
    point: Point,
    recorded: Option<&[RecordedRow]>,
) -> Vec<Node> {
    let rows = judged_rows(attribution, point, recorded);
    if rows.iter().all(|row| row.effect.is_none()) {
        return Vec::new();
    }
    let title = format!("Intervals and verdicts of {}", head(attribution, point));
    let interval = format!("{:.0} % interval", level(attribution, Meter::Time));
    let mut group = None;
    let lines = rows.iter().flat_map(|row| {
        let of = (row.level, row.program);
        let is_apart = group.replace(of) != Some(of);
        let program = row
            .program
            .filter(|_| is_apart && row.level == RowLevel::Operation);
        let head = program.map(|program| (literal(program), None, true));
        let line = (literal(&row.label), Some(row), is_apart && head.is_none());
        head.into_iter().chain([line])
    });
    let cell = |row: Option<&JudgedRow<'_>>, text: &dyn Fn(&JudgedRow<'_>) -> String| {
        let cell = |row: &JudgedRow<'_>| Cell::from(text(row)).styled(row.judgement.style());
        row.map(cell).unwrap_or_default()
    };
    let dash = || "–".to_owned();
    let table = table("Intervals and verdicts of a point", lines)
        .names("operation", |(name, row, _)| {
            let style = row.map(|row| row.judgement.style());
            Cell::from(name).styled(style.unwrap_or_default())
        })
        .figures("seconds", |(_, row, _)| {
            cell(*row, &|row| row.seconds.map_or_else(dash, format_seconds))
        })
        .figures("relative", |(_, row, _)| {
            cell(*row, &|row| {
                row.effect
                    .map_or_else(dash, |effect| ratio(effect.estimate))
            })
        })
        .words(interval, |(_, row, _)| cell(*row, &format_interval))
        .words("verdict", |(_, row, _)| {
            cell(*row, &|row| row.judgement.name().to_owned())
        })
        .total_if(|(.., is_apart)| *is_apart);
    let noun = Nouns::of(attribution).one;
    vec![heading(title), table.node(), paragraph(tally(&rows, noun))]
}

/// Returns the rows of `point`: those of the published table if there is one, else programs with their operations.
fn judged_rows<'a>(
    attribution: &'a Attribution,
    point: Point,
    recorded: Option<&[RecordedRow]>,
) -> Vec<JudgedRow<'a>> {
    let wanted = |effect: &&Effect| {
        effect.kind == EffectKind::Cumulative
            && effect.meter == Meter::Time
            && effect.point == point
    };
    let parts = attribution.operations.iter().flat_map(|of| &of.effects);
    let all = attribution.patches.iter().flat_map(|patch| &patch.effects);
    let effects: BTreeMap<&str, &Effect> = all
        .chain(parts)
        .filter(wanted)
        .map(|effect| (effect.workload.as_str(), effect))
        .collect();
    let base: BTreeMap<&str, &TransactionCost> = costs(attribution)
        .filter(|cost| cost.point == Point::BASE)
        .map(|cost| (cost.workload.as_str(), cost))
        .collect();
    let too_short: Vec<&str> = costs(attribution)
        .filter(|cost| cost.too_short && [Point::BASE, point].contains(&cost.point))
        .map(|cost| cost.workload.as_str())
        .collect();
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
    let row = |level: RowLevel, workload: &str, label: String, seconds: Option<f64>| {
        let effect = effects.get(workload).copied();
        let measured = program(attribution, workload).is_some_and(|of| ran.contains(of.0));
        JudgedRow {
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
        row(RowLevel::Program, workload, workload.clone(), seconds)
    });
    let operations = operations(attribution).map(|of| {
        let workload = format!("{}/{}", of.workload, of.operation);
        let cost = base.get(workload.as_str());
        let commands = cost.map(|cost| cost.transactions.round() as u64);
        let label = label(&of.operation, commands);
        let seconds = cost.map(|cost| seconds(cost));
        JudgedRow {
            program: Some(&of.workload),
            ..row(RowLevel::Operation, &workload, label, seconds)
        }
    });
    programs.chain(operations).collect()
}

/// Summarises the judgements of the operations; `noun` is what the rows are about.
fn tally(rows: &[JudgedRow<'_>], noun: &str) -> String {
    let rows: Vec<&JudgedRow<'_>> = rows
        .iter()
        .filter(|row| row.level == RowLevel::Operation)
        .collect();
    let counted: Vec<String> = Judgement::ALL
        .into_iter()
        .map(|(judgement, name, _)| {
            let count = rows.iter().filter(|row| row.judgement == judgement).count();
            (judgement, count, name)
        })
        // Unmeasured operations are rare, so zero of them are not mentioned.
        .filter(|(judgement, count, _)| *judgement != Judgement::NotMeasured || *count > 0)
        .map(|(_, count, name)| format!("{count} {name}"))
        .collect();
    let evident = [Judgement::Faster, Judgement::Slower];
    let evident = rows.iter().filter(|row| evident.contains(&row.judgement));
    format!(
        "{} of {} operations show an effect: {}. Too short: a run takes fewer than four steps of its clock, or \
         none. Too noisy: an effect of {:.0} % would not have been seen. Neither says anything of the {noun}.",
        evident.count(),
        rows.len(),
        counted.join(", "),
        100.0 * MAX_DETECTABLE
    )
}

/// Formats the ends of a row's interval as ratios of times, or a dash.
fn format_interval(row: &JudgedRow<'_>) -> String {
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
    if text == "1.000" && speed.abs() > 1e-6 {
        format!("{ratio:.4}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::super::tests::experiment;
    use super::*;
    use crate::text::width;

    #[test]
    fn long_names_and_wide_intervals_stay_within_the_columns() {
        let mut attribution = experiment();
        let name = "an_operation_whose_name_takes_all_of_the_room_of_its_column";
        let effect = Effect {
            kind: EffectKind::Cumulative,
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
        let text = document(&attribution, None, 80)
            .unwrap()
            .terminal(80, false);
        assert!(text.contains("100.000–1000.000  too noisy"), "{text}");
        for line in text.lines() {
            assert!(width(line) <= 80, "{line}");
        }
        assert_eq!(ratio(-1.0), ">10⁶");
    }

    #[test]
    fn what_did_not_run_is_not_too_short() {
        let mut attribution = experiment();
        let of = |attribution: &Attribution| -> Vec<Judgement> {
            let rows = judged_rows(attribution, Point::Step(1), None);
            let rows = rows.iter().filter(|row| row.level == RowLevel::Operation);
            rows.map(|row| row.judgement).collect()
        };
        // It ran, and took less than a step of its clock.
        assert_eq!(of(&attribution), [Judgement::TooShort; 2]);
        attribution.costs.retain(|cost| cost.point == Point::BASE);
        assert_eq!(of(&attribution), [Judgement::NotMeasured; 2]);
    }
}
