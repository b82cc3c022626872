//! The section on the mean and the tail of slices beside their typical time.

use super::Content;
use super::slices::slow_slices;
use crate::document::chart::{ChartRow, axis, changes_row};
use crate::document::{
    Chart, Drawing, Figure, Ink, Node, drawings, estimates, literal, paragraph, section, table,
};
use crate::number;
use crate::tail::figure;
use perfquilt_judge::attribution::{Effect, ShownChange, TailFigure, TailFigures};
use perfquilt_model::observation::Statistic;

/// The statistics that are drawn, as they are fractions of speed.
const INKS: [(Ink, &str); 3] = [
    (Ink::First, "typical speed"),
    (Ink::Second, "mean"),
    (Ink::Third, "99th percentile"),
];

/// The columns of the section besides the typical speed.
const COLUMNS: [(&str, Statistic); 4] = [
    ("mean", Statistic::Mean),
    ("slow slices", Statistic::Slow),
    ("stalled slices", Statistic::Stalled),
    ("99th percentile", Statistic::P99),
];

/// The meaning of the section's figures.
const ABOUT: &str = "\
Per cent of speed (+ is faster). The typical time leaves out the slowest and the fastest fifth of the slices. The mean counts every slice; its inverse is \
the throughput; it is not determined where a few stalls carry much of it. Slow slices took more than twice the typical time of \
their round, stalled ones more than twenty times: the share before and after. Bold figures are significant after adjustment for all rows.";

/// Returns the section on typical time, mean and tail of each patch, where a tail is known, on the suite or single workload
/// that verdicts are about.
pub(crate) fn mean_and_tail(of: &Content<'_>) -> Vec<Node> {
    let view = of.view;
    let Some(&(meter, places)) = view.columns.first() else {
        return Vec::new();
    };
    let rows = view.rows.iter().filter_map(|row| {
        let effect = row.effects.first().copied().flatten()?;
        Some((row.label.text(), effect, effect.tail.as_deref()?))
    });
    let rows: Vec<(String, &Effect, &TailFigures)> = rows.collect();
    let about = format!("Typical time, mean and tail of each {}", view.nouns().one);
    let table = table(about.clone(), &rows)
        .names(view.nouns().one, |(name, ..)| literal(name))
        .figures("typical speed", |(_, effect, tail)| {
            Figure::marked(number::effect(effect, places), tail.typical.is_shown())
        })
        .each(COLUMNS, |(_, effect, tail), statistic| {
            let Some(of) = tail.get(*statistic) else {
                return Figure::plain("–");
            };
            let text = figure(effect.meter, *statistic, of, places);
            Figure::marked(text, of.verdict.is_shown())
        })
        .node();
    let chart = Chart::of_rows(about, axis(&[meter]), rows.iter().map(marks).collect());
    let chart = Drawing::alone(chart).caption(estimates(INKS));
    let drawn = [chart]
        .into_iter()
        .chain(slow_slices(view, of.distributions()));
    let nodes = [paragraph(ABOUT), table].into_iter().chain(drawings(drawn));
    section("tail", "Mean and tail", nodes.filter(|_| !rows.is_empty()))
}

/// Returns the marks of typical time, mean and 99th percentile, below each other.
fn marks((name, effect, tail): &(String, &Effect, &TailFigures)) -> ChartRow {
    let of = |figure: &TailFigure| {
        ShownChange::of(effect.meter, figure.estimate, figure.low.zip(figure.high))
    };
    let figures = [
        Some(effect.shown()),
        tail.get(Statistic::Mean).map(of),
        tail.get(Statistic::P99).map(of),
    ];
    changes_row(name.clone(), &figures, &INKS.map(|(ink, _)| ink))
}
