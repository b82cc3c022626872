//! The mean and the tail of slices beside their typical time, in words and figures.

use super::document::chart::{ChartRow, axis, estimate_marks, estimates};
use super::document::{
    Cell, Chart, Column, Drawing, Figure, Ink, Node, drawings, literal, paragraph, section, table,
};
use super::number;
use super::report::{Distribution, slow_slices};
use super::view::View;
use perfquilt_judge::attribution::{
    Effect, HeavyTail, ShownChange, TailFigure, TailFigures, Verdict,
};
use perfquilt_judge::stats::STALLED;
use perfquilt_model::observation::{Meter, Statistic};

/// Describes how the mean and the tail differ from the typical time: `faster typically, slower in the tail
/// (99th percentile −38.0 % ± 3.1)`. `None` if they agree with it or show no effect.
pub(super) fn describe(effect: &Effect, places: usize) -> Option<String> {
    let tail = effect.tail.as_deref()?;
    let shown = |statistic: Statistic| {
        let figure = tail.get(statistic)?;
        let verdict = figure.verdict;
        verdict.is_shown().then_some((verdict, statistic, figure))
    };
    let adds = |&(verdict, statistic, figure): &(Verdict, Statistic, &TailFigure)| {
        verdict != tail.typical || statistic == Statistic::Mean && is_apart(figure, effect)
    };
    let shown: Vec<_> = Statistic::ALL
        .into_iter()
        .filter_map(shown)
        .filter(adds)
        .collect();
    if shown.is_empty() {
        return None;
    }
    if let [(verdict, statistic @ Statistic::Mean, figure)] = shown[..]
        && verdict == tail.typical
    {
        return Some(format!(
            "in the mean {}",
            named(effect.meter, statistic, figure, places)
        ));
    }
    let mut parts = vec![format!("{} typically", tail.typical)];
    for verdict in [Verdict::Faster, Verdict::Slower] {
        let of = |statistics: &[Statistic]| -> Vec<String> {
            shown
                .iter()
                .filter(|(own, statistic, _)| *own == verdict && statistics.contains(statistic))
                .map(|(_, statistic, figure)| named(effect.meter, *statistic, figure, places))
                .collect()
        };
        let mean = of(&[Statistic::Mean]);
        let rest = of(&[Statistic::Slow, Statistic::P99, Statistic::Stalled]);
        let mut places = Vec::new();
        if let Some(figure) = mean.first() {
            places.push(format!("in the mean ({figure})"));
        }
        if !rest.is_empty() {
            places.push(format!("in the tail ({})", rest.join(", ")));
        }
        if !places.is_empty() {
            parts.push(format!("{verdict} {}", places.join(" and ")));
        }
    }
    Some(parts.join(", "))
}

/// Returns what may differ although the typical time does not: `mean or tail not determined, mean −0.42 % ± 3.10`.
pub(super) fn not_determined(effect: &Effect, places: usize) -> Option<String> {
    let tail = effect.tail.as_deref()?;
    let Some(mean) = &tail.mean else {
        return Some("mean not known".to_owned());
    };
    Some(match mean.heavy_tail {
        Some(tail) => format!("mean not determined: {}", carried(&tail)),
        None => {
            let mean = figure(effect.meter, Statistic::Mean, mean, places);
            format!("mean or tail not determined, mean {mean}")
        }
    })
}

/// Describes the stalls that decide a mean: `slices above 20 × in 5 of 24 blocks carry 9.8 %, each 310 × (150 × before)`.
fn carried(tail: &HeavyTail) -> String {
    let length = match (tail.length_before, tail.length_after) {
        (Some(before), Some(after)) => format!(", each {after:.0} × ({before:.0} × before)"),
        (None, Some(after)) => format!(", each {after:.0} × (none before)"),
        (Some(before), None) => format!(", each {before:.0} × before (none now)"),
        (None, None) => String::new(),
    };
    format!(
        "slices above {STALLED:.0} × in {} of {} blocks carry {} %{length}",
        tail.blocks,
        tail.of,
        number::plain(tail.carried, 1)
    )
}

/// Returns whether the intervals of the mean and of the typical time do not overlap.
fn is_apart(mean: &TailFigure, effect: &Effect) -> bool {
    let ends = |low: Option<f64>, high: Option<f64>| low.zip(high);
    match (ends(mean.low, mean.high), ends(effect.low, effect.high)) {
        (Some((low, high)), Some((own_low, own_high))) => high < own_low || low > own_high,
        _ => false,
    }
}

fn named(meter: Meter, statistic: Statistic, figure: &TailFigure, places: usize) -> String {
    let shown = self::figure(meter, statistic, figure, places);
    match statistic {
        Statistic::Mean => shown,
        Statistic::Slow => format!("slow slices {shown}"),
        Statistic::P99 => format!("99th percentile {shown}"),
        Statistic::Stalled => format!("stalled slices {shown}"),
    }
}

/// Formats a figure with its interval, or the share of slow slices before and after.
fn figure(meter: Meter, statistic: Statistic, of: &TailFigure, places: usize) -> String {
    let shown = |ends| number::change(&ShownChange::of(meter, of.estimate, ends), places);
    match statistic {
        Statistic::Mean if of.heavy_tail.is_some() => {
            format!("{} (not determined)", shown(None))
        }
        Statistic::Slow | Statistic::Stalled => number::shares(of.before, of.after, places),
        Statistic::Mean | Statistic::P99 => shown(of.low.zip(of.high)),
    }
}

/// The columns of the section on mean and tail.
const HEADS: [&str; 5] = [
    "typical speed",
    "mean",
    "slow slices",
    "stalled slices",
    "99th percentile",
];

/// The statistics among [`HEADS`] that are drawn, as they are fractions of speed.
const INKS: [(Ink, &str); 3] = [
    (Ink::First, HEADS[0]),
    (Ink::Second, HEADS[1]),
    (Ink::Third, HEADS[4]),
];

/// What the figures of the section are.
const ABOUT: &str = "\
Per cent of speed (+ is faster). The typical time leaves out the slowest and the fastest fifth of the slices. The mean counts every slice; its inverse is \
the throughput; it is not determined where a few stalls carry much of it. Slow slices took more than twice the typical time of \
their round, stalled ones more than twenty times: the share before and after. Bold figures are significant after adjustment for all rows.";

/// Returns the section on typical time, mean and tail of each patch, where a tail is known, on the suite or single workload
/// that verdicts are about.
pub(super) fn mean_and_tail(view: &View<'_>, distributions: &[Distribution]) -> Option<Node> {
    let (meter, places) = view.columns.first().copied()?;
    let rows = view.rows.iter().filter_map(|row| {
        let effect = row.effects.first().copied().flatten()?;
        Some((row.label.text(), effect, effect.tail.as_deref()?))
    });
    let rows: Vec<(String, &Effect, &TailFigures)> = rows.collect();
    let about = format!("Typical time, mean and tail of each {}", view.nouns().one);
    let columns = [Column::names(view.nouns().one)].into_iter();
    let columns = columns.chain(HEADS.map(Column::figures));
    let table = table(
        about.clone(),
        columns,
        rows.iter().map(|row| cells(row, places)),
    );
    let chart = Chart::of_rows(about, axis(&[meter]), rows.iter().map(marks).collect());
    let chart = Drawing::alone(chart).caption(estimates(INKS));
    let drawn = [chart].into_iter().chain(slow_slices(view, distributions));
    let nodes = [paragraph(ABOUT), table].into_iter().chain(drawings(drawn));
    section("tail", "Mean and tail", nodes.filter(|_| !rows.is_empty()))
}

/// Returns the cells of a row: its name, and the figures below [`HEADS`].
fn cells((name, effect, tail): &(String, &Effect, &TailFigures), places: usize) -> Vec<Cell> {
    let typical = number::effect(effect, places);
    let typical = Figure::marked(typical, tail.typical.is_shown());
    let statistics = [
        Statistic::Mean,
        Statistic::Slow,
        Statistic::Stalled,
        Statistic::P99,
    ];
    let others = statistics.map(|statistic| match tail.get(statistic) {
        Some(of) => {
            let text = figure(effect.meter, statistic, of, places);
            Figure::marked(text, of.verdict.is_shown())
        }
        None => Figure::plain("–"),
    });
    let figures = [typical].into_iter().chain(others).map(Cell::from);
    [literal(name).into()].into_iter().chain(figures).collect()
}

/// Returns the marks of typical time, mean and 99th percentile, below each other.
fn marks((name, effect, tail): &(String, &Effect, &TailFigures)) -> ChartRow {
    let of = |figure: &TailFigure| {
        ShownChange::of(effect.meter, figure.estimate, figure.low.zip(figure.high))
    };
    let figures = [
        Some(effect.shown()),
        tail.mean.as_ref().map(of),
        tail.p99.as_ref().map(of),
    ];
    let figures = figures.into_iter().zip(INKS).zip([-6, 0, 6]);
    let marks =
        figures.filter_map(|((figure, (ink, _)), dy)| Some(estimate_marks(&figure?, dy, ink)));
    ChartRow {
        label: name.clone(),
        marks: marks.flatten().collect(),
    }
}
