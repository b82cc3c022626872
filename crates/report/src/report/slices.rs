//! The sections on single slices: their times, and how many were slow.

use std::collections::BTreeMap;

use super::Content;
use crate::document::chart::{ChartContent, ChartRow, Curve, Mark};
use crate::document::{Chart, Drawing, Ink, Node, drawn, keys, name, soft, table};
use crate::nouns::Nouns;
use crate::view::View;
use perfquilt_judge::stats::Histogram;
use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;

/// The percentiles of a distribution, as fractions.
const SHARES: [f64; 7] = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99];

/// The distribution of a point's slices on a workload, over all blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// The workload.
    pub workload: String,
    /// The point.
    pub point: Point,
    /// The number of slices.
    pub slices: usize,
    /// The 1st, 5th, 25th, 50th, 75th, 95th and 99th percentile, in nanoseconds per transaction.
    pub percentiles: [f64; 7],
    /// Pairs of a ratio and the share of slices that took at least this multiple of the release's typical time in the
    /// same round; `None` if the release was not measured.
    pub slower_than: Option<Vec<(f64, f64)>>,
}

impl Distribution {
    /// Returns the distributions of a workload's points, in the order of the points; `blocks` has the slices of each of
    /// its blocks. Values that are not finite and positive are left out.
    pub fn of(workload: &str, blocks: impl IntoIterator<Item = Vec<Slices>>) -> Vec<Self> {
        let mut by_point: BTreeMap<Point, Vec<f32>> = BTreeMap::new();
        let mut histograms: BTreeMap<Point, Histogram> = BTreeMap::new();
        for block in blocks {
            Histogram::add_block(&block, &mut histograms);
            for slices in &block {
                let transactions = slices.transactions_per_slice.max(1) as f32;
                let usable = slices.values.iter().map(|ns| ns / transactions);
                let values = by_point.entry(slices.point).or_default();
                values.extend(usable.filter(|ns| ns.is_finite() && *ns > 0.0));
            }
        }
        by_point
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(point, mut values)| Distribution {
                workload: workload.to_owned(),
                point,
                slices: values.len(),
                percentiles: percentiles(&mut values),
                slower_than: histograms.get(&point).map(Histogram::slower_than),
            })
            .collect()
    }
}

/// Returns the percentiles [`SHARES`] by nearest rank. `values` must not be empty; they are reordered.
fn percentiles(values: &mut [f32]) -> [f64; 7] {
    let last = values.len() - 1;
    SHARES.map(|share| {
        let rank = ((share * last as f64).round() as usize).min(last);
        let (_, value, _) = values.select_nth_unstable_by(rank, f32::total_cmp);
        f64::from(*value)
    })
}

/// Returns the section on the times of slices, one drawing per workload.
pub(crate) fn slices(of: &Content<'_>) -> Vec<Node> {
    let nouns = of.view.nouns();
    let mut by_workload: BTreeMap<&str, Vec<&Distribution>> = BTreeMap::new();
    for one in of.distributions() {
        by_workload.entry(&one.workload).or_default().push(one);
    }
    let all = by_workload.into_iter();
    drawn(
        "slices",
        "Raw slices",
        "Every slice of every block, as the clock read it. What the machine did meanwhile is in these widths and hits all \
         points alike; effects come from slices beside each other, and are known far better.",
        all.map(|(workload, points)| times(nouns, workload, &points)),
    )
}

/// Draws the percentiles of a workload's points.
fn times(nouns: &Nouns, workload: &str, points: &[&Distribution]) -> Drawing {
    let largest = points.iter().map(|one| one.percentiles[5]);
    let (unit, scale) = unit(largest.fold(0.0, f64::max));
    let boxes = points.iter().map(|one| {
        let [_, p5, p25, p50, p75, p95, _] = one.percentiles.map(|ns| ns / scale);
        ChartRow {
            label: nouns.point(one.point),
            marks: vec![
                Mark::Bar((p5, p95), 2, Ink::First),
                Mark::Bar((p25, p75), 10, Ink::First),
                Mark::Tick(p50, Ink::Text),
            ],
        }
    });
    let about = format!("Times of single slices of {workload}, by point");
    let content = ChartContent::RowsWithoutZero(boxes.collect());
    let chart = Chart::new(about.clone(), format!("{unit} a transaction"), content);
    let percentiles = soft(format!("Percentiles, {unit} a transaction:"));
    let mut drawing = Drawing::new(chart, percentiles);
    let table = table(about, points)
        .names("point", |one| nouns.point(one.point))
        .figures("slices", |one| one.slices.to_string());
    let table = table.each(
        SHARES
            .iter()
            .zip(0..)
            .map(|(share, at)| (format!("{:.0} %", 100.0 * share), at)),
        |one, at: &usize| format!("{:.4}", one.percentiles[*at] / scale),
    );
    drawing.below.push(table.node());
    drawing
        .heading(name(workload))
        .caption("Thin line: 5th to 95th percentile; bar: the middle half; tick: median.")
}

/// Returns the unit that makes `nanoseconds` a readable number, and its length in nanoseconds.
fn unit(nanoseconds: f64) -> (&'static str, f64) {
    match nanoseconds {
        ns if ns >= 1e9 => ("s", 1e9),
        ns if ns >= 1e6 => ("ms", 1e6),
        ns if ns >= 1e3 => ("µs", 1e3),
        _ => ("ns", 1.0),
    }
}

/// Smallest share that is drawn: one slice in ten thousand.
const RAREST: f64 = 1e-4;

/// Draws the share of slow slices over their slowness for the release and the whole series, one drawing per workload.
pub(crate) fn slow_slices(view: &View<'_>, distributions: &[Distribution]) -> Vec<Drawing> {
    let last = Point::Step(view.attribution.patches.len());
    let of_workload = |workload: &String| {
        let of = |point: Point| {
            let found = distributions
                .iter()
                .find(|one| one.workload == *workload && one.point == point);
            found?.slower_than.as_deref()
        };
        let shares = [of(Point::BASE)?, of(last)?];
        Some(slowness(view.nouns(), workload, shares))
    };
    let workloads = view.attribution.workloads.iter();
    workloads.filter_map(of_workload).collect()
}

/// Draws pairs of a ratio and a share, of the release and of the whole series.
fn slowness(nouns: &Nouns, workload: &str, shares: [&[(f64, f64)]; 2]) -> Drawing {
    let curve = |(shares, ink): (&[(f64, f64)], Ink)| {
        let shares = shares.iter();
        Curve {
            ink,
            points: shares
                .map(|&(ratio, share)| (ratio, share.max(RAREST / 2.0)))
                .collect(),
        }
    };
    let curves = shares.into_iter().zip([Ink::First, Ink::Second]);
    let across = "times what point 0 typically took in the round";
    let about = format!("Share of slow slices of {workload}");
    let content = ChartContent::Shares(across, RAREST, curves.map(curve).collect());
    let chart = Chart::new(about.clone(), "share slower", content);
    let at = |shares: &[(f64, f64)], ratio: f64| {
        let mut shares = shares.iter();
        let found = shares.find(|(at, _)| *at >= ratio * 0.999);
        format!("{:.3} %", 100.0 * found.map_or(0.0, |(_, share)| *share))
    };
    let [base, full] = shares;
    let table = table(about, [1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0])
        .names("at least", |ratio| format!("{ratio} ×"))
        .figures(nouns.base, |ratio| at(base, *ratio))
        .figures(nouns.last, |ratio| at(full, *ratio));
    Drawing::new(chart, table.node())
        .heading(name(workload))
        .caption(keys(
            [
                (Ink::First, false, nouns.base),
                (Ink::Second, false, nouns.last),
            ],
            ". How many slices took at least so many times as long; both axes are logarithmic.",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_blocks() {
        let block = |point, from: u16, to: u16| Slices {
            point,
            values: (from..=to).map(|n| f32::from(n) * 10.0).collect(),
            transactions_per_slice: 10,
        };
        let mut last = block(Point::BASE, 51, 101);
        last.values.extend([f32::NAN, -1.0, 0.0]);
        let blocks = [
            vec![block(Point::BASE, 1, 50), block(Point::Step(1), 7, 7)],
            vec![last],
        ];
        let found = Distribution::of("w", blocks);
        assert_eq!(found[0].slices, 101);
        assert_eq!(
            found[0].percentiles,
            [2.0, 6.0, 26.0, 51.0, 76.0, 96.0, 100.0]
        );
        assert_eq!(found[1].percentiles, [7.0; 7]);
        assert_eq!(Distribution::of("w", []), []);
    }
}
