//! The mean and the tail of slices beside their typical time, in words and figures.

use super::number;
use perfquilt_judge::attribution::{Effect, HeavyTail, ShownChange, TailFigure, Verdict};
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
        .iter()
        .copied()
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

/// Returns what may differ although the typical time does not: `mean or slow slices may differ by more than the margin (mean
/// −0.42 % ± 3.10): measure more blocks`.
pub(super) fn not_determined(effect: &Effect, places: usize) -> Option<String> {
    let tail = effect.tail.as_deref()?;
    let Some(mean) = tail.get(Statistic::Mean) else {
        return Some("mean not known".to_owned());
    };
    Some(match mean.heavy_tail {
        Some(tail) => format!("mean not determined: {}", carried(&tail)),
        None => {
            let mean = figure(effect.meter, Statistic::Mean, mean, places);
            format!(
                "mean or slow slices may differ by more than the margin (mean {mean}): measure more blocks"
            )
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
pub(super) fn figure(meter: Meter, statistic: Statistic, of: &TailFigure, places: usize) -> String {
    let shown = |ends| number::change(&ShownChange::of(meter, of.estimate, ends), places);
    match statistic {
        Statistic::Mean if of.heavy_tail.is_some() => {
            format!("{} (not determined)", shown(None))
        }
        Statistic::Slow | Statistic::Stalled => number::shares(of.before, of.after, places),
        Statistic::Mean | Statistic::P99 => shown(of.low.zip(of.high)),
    }
}
