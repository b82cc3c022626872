//! The sections on raw measurements: slices and blocks.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::super::nouns::Nouns;
use super::super::number;
use super::super::text::clean;
use super::super::view::View;
use super::chart::{self, Ink, Mark, Series};
use super::frame::{Name, drawing, key, scroll};
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind};
use perfquilt_judge::stats::{Histogram, speed};
use perfquilt_model::error::Result;
use perfquilt_model::observation::Slices;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
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
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = ((share * last as f64).round() as usize).min(last);
        let (_, value, _) = values.select_nth_unstable_by(rank, f32::total_cmp);
        f64::from(*value)
    })
}

/// Renders the distributions of slices, one drawing per workload.
pub(super) fn distributions(nouns: &Nouns, distributions: &[Distribution]) -> Result<Markup> {
    let mut by_workload: BTreeMap<&str, Vec<&Distribution>> = BTreeMap::new();
    for one in distributions {
        by_workload.entry(&one.workload).or_default().push(one);
    }
    let mut drawings = Vec::new();
    for (workload, points) in by_workload {
        let largest = points.iter().map(|one| one.percentiles[5]);
        let (unit, scale) = unit(largest.fold(0.0, f64::max));
        let lanes: Vec<chart::ChartRow> =
            points.iter().map(|one| lane(nouns, one, scale)).collect();
        let about = format!("Times of single slices of {}, by point", clean(workload));
        let axis = format!("{unit} a transaction");
        if let Some(svg) = chart::rows_without_zero(&about, &axis, &lanes)? {
            let caption = html! {
                "Thin line: 5th to 95th percentile; bar: the middle half; tick: median."
            };
            let table = distribution_table(&about, nouns, (unit, scale), &points);
            drawings
                .push(html! { div { h3 { (Name(workload)) } (drawing(&svg, &caption, &table)) } });
        }
    }
    Ok(html! {
        @if !drawings.is_empty() {
            section aria-labelledby="slices" {
                h2 #slices { "Raw slices" }
                p {
                    "Every slice of every block, as the clock read it. What the machine did meanwhile is in \
                     these widths and hits all points alike; effects come from slices beside each other, and \
                     are known far better."
                }
                div.charts { @for drawing in &drawings { (drawing) } }
            }
        }
    })
}

/// Smallest share that is drawn: one slice in ten thousand.
const RAREST: f64 = 1e-4;

/// Draws the share of slow slices over their slowness for the release and the whole series, one drawing per workload.
pub(super) fn tails(view: &View<'_>, distributions: &[Distribution]) -> Result<Vec<Markup>> {
    let last = Point::Step(view.attribution.patches.len());
    let mut drawings = Vec::new();
    for workload in &view.attribution.workloads {
        let of = |point: Point| {
            let found = distributions
                .iter()
                .find(|one| one.workload == *workload && one.point == point);
            found?.slower_than.as_deref()
        };
        let (Some(base), Some(full)) = (of(Point::BASE), of(last)) else {
            continue;
        };
        let lines = [(base, Ink::First), (full, Ink::Second)].map(|(shares, ink)| chart::Curve {
            ink,
            points: shares
                .iter()
                .map(|&(ratio, share)| (ratio, share.max(RAREST / 2.0)))
                .collect(),
        });
        let about = format!("Share of slow slices of {}", clean(workload));
        let axis = "times what point 0 typically took in the round";
        if let Some(svg) = chart::survival(&about, axis, "share slower", RAREST, &lines)? {
            let caption = html! {
                (key(Ink::First, false, view.nouns().base))
                (key(Ink::Second, false, view.nouns().last))
                ". How many slices took at least so many times as long; both axes are logarithmic."
            };
            let table = tail_table(&about, view.nouns(), base, full);
            drawings
                .push(html! { div { h3 { (Name(workload)) } (drawing(&svg, &caption, &table)) } });
        }
    }
    Ok(drawings)
}

fn tail_table(about: &str, nouns: &Nouns, base: &[(f64, f64)], full: &[(f64, f64)]) -> Markup {
    let share = |shares: &[(f64, f64)], ratio: f64| {
        let mut shares = shares.iter();
        let found = shares.find(|(at, _)| *at >= ratio * 0.999);
        format!("{:.3} %", 100.0 * found.map_or(0.0, |(_, share)| *share))
    };
    let table = html! {
        table {
            thead { tr {
                th.n scope="col" { "at least" }
                th.n scope="col" { (nouns.base) }
                th.n scope="col" { (nouns.last) }
            } }
            tbody { @for ratio in [1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0] {
                tr {
                    th.n scope="row" { (ratio) " ×" }
                    td.n { (share(base, ratio)) }
                    td.n { (share(full, ratio)) }
                }
            } }
        }
    };
    scroll(about, &table)
}

fn lane(nouns: &Nouns, one: &Distribution, scale: f64) -> chart::ChartRow {
    let [_, p5, p25, p50, p75, p95, _] = one.percentiles.map(|ns| ns / scale);
    chart::ChartRow {
        label: nouns.point(one.point),
        marks: vec![
            Mark::Bar((p5, p95), 2, Ink::First),
            Mark::Bar((p25, p75), 10, Ink::First),
            Mark::Tick(p50, Ink::Text),
        ],
    }
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

fn distribution_table(
    about: &str,
    nouns: &Nouns,
    (unit, scale): (&str, f64),
    points: &[&Distribution],
) -> Markup {
    let table = html! {
        table {
            caption { "Percentiles, " (unit) " a transaction" }
            thead { tr {
                th scope="col" { "point" }
                th.n scope="col" { "slices" }
                @for share in SHARES { th.n scope="col" { (format!("{:.0} %", 100.0 * share)) } }
            } }
            tbody { @for one in points {
                tr {
                    th scope="row" { (nouns.point(one.point)) }
                    td.n { (one.slices) }
                    @for ns in one.percentiles { td.n { (format!("{:.4}", ns / scale)) } }
                }
            } }
        }
    };
    scroll(about, &table)
}

/// Maximum number of points in all drawings of blocks together.
const MAX_POINTS: usize = 8000;
/// Maximum number of blocks in one drawing.
const MAX_BLOCKS: usize = 240;

/// The drift and the effect in one block.
struct BlockDrift {
    block: u32,
    /// The release's cost against its mean over blocks, as a fraction.
    release: f64,
    /// The series' effect in this block alone, as it is shown.
    total: Option<f64>,
}

/// Renders the machine's drift and the series' effect block by block, one drawing per workload.
pub(super) fn drift(
    view: &View<'_>,
    header: &ExperimentHeader,
    observations: &[Observation],
) -> Result<Markup> {
    let Some((meter, places)) = view.columns.first().copied() else {
        return Ok(html! {});
    };
    let by_workload = blocks_by_workload(view.attribution, header, observations, meter);
    let nouns = view.nouns();
    let most = (MAX_POINTS / 2 / by_workload.len().max(1)).clamp(20, MAX_BLOCKS);
    let mut drawings = Vec::new();
    for blocks in by_workload {
        let workload = blocks.workload;
        let drifts = blocks.drifts(meter, header.server_of(Point::BASE));
        if drifts.len() < 2 {
            continue;
        }
        let shown = thinned(&drifts, most);
        let points = |of: &dyn Fn(&BlockDrift) -> Option<f64>| -> Vec<_> {
            let point = |m: &&BlockDrift| Some((f64::from(m.block), 100.0 * of(m)?, None));
            shown.iter().filter_map(point).collect()
        };
        let lines = [
            Series {
                ink: Ink::First,
                joined: true,
                points: points(&|drift| Some(drift.release)),
            },
            Series {
                ink: Ink::Second,
                joined: false,
                points: points(&|drift| drift.total),
            },
        ];
        let about = format!("{meter} of {} block by block", clean(workload));
        if let Some(svg) = chart::series(&about, "block", "%", &lines)? {
            let caption = html! {
                (key(Ink::First, false, &format!("cost of {} against its mean", nouns.base)))
                (key(Ink::Second, true, &format!("effect of {} in the block alone", nouns.last)))
                @if shown.len() < drifts.len() {
                    ". " (shown.len()) " of " (drifts.len()) " blocks are drawn."
                }
            };
            let table = drift_table(&about, (nouns, meter), &shown, places);
            drawings
                .push(html! { div { h3 { (Name(workload)) } (drawing(&svg, &caption, &table)) } });
        }
    }
    Ok(html! {
        @if !drawings.is_empty() {
            section aria-labelledby="blocks" {
                h2 #blocks { "Block by block" }
                p {
                    "Whether the machine drifted, and whether the effect did with it. Points of one block \
                     take turns, so a slow block is slow for all of them."
                }
                div.charts { @for drawing in &drawings { (drawing) } }
            }
        }
    })
}

fn drift_table(
    about: &str,
    (nouns, meter): (&Nouns, Meter),
    drifts: &[&BlockDrift],
    places: usize,
) -> Markup {
    let table = html! {
        table {
            thead { tr {
                th.n scope="col" { "block" }
                th.n scope="col" { (nouns.base) ", cost" }
                th.n scope="col" { (nouns.last) ", " (meter.shown_quantity()) }
            } }
            tbody { @for drift in drifts {
                tr {
                    td.n { (drift.block) }
                    td.n { (number::signed(drift.release, places)) " %" }
                    td.n { @match drift.total {
                        Some(total) => { (number::signed(total, places)) " %" }
                        None => "–",
                    } }
                }
            } }
        }
    };
    scroll(about, &table)
}

type Blocks = BTreeMap<u32, BTreeMap<Point, f64>>;

/// A workload's blocks, and the two points that the total compares.
struct WorkloadBlocks<'a> {
    workload: &'a str,
    ends: Option<(Point, Point)>,
    blocks: Blocks,
}

/// Collects the experiment's own values of `meter`, of the release and of the points that the total compares.
fn blocks_by_workload<'a>(
    attribution: &'a Attribution,
    header: &ExperimentHeader,
    observations: &[Observation],
    meter: Meter,
) -> Vec<WorkloadBlocks<'a>> {
    let total = |workload: &str| {
        let mut totals = attribution.total.iter();
        totals.find(|e| e.kind == EffectKind::Total && e.workload == workload && e.meter == meter)
    };
    let blocks = |workload: &'a String| {
        let ends = |e: &Effect| (header.server_of(e.point), header.server_of(e.against));
        let blocks = WorkloadBlocks {
            workload,
            ends: total(workload).map(ends),
            blocks: Blocks::new(),
        };
        (workload.as_str(), blocks)
    };
    let mut by_workload: BTreeMap<&str, WorkloadBlocks<'_>> =
        attribution.workloads.iter().map(blocks).collect();
    let release = header.server_of(Point::BASE);
    for observation in observations {
        let own = observation.meter == meter
            && !observation.direct
            && observation.value > 0.0
            && observation.experiment == header.experiment;
        let Some(blocks) = by_workload
            .get_mut(observation.workload.as_str())
            .filter(|_| own)
        else {
            continue;
        };
        let point = observation.point;
        if point == release || blocks.ends.is_some_and(|(a, b)| point == a || point == b) {
            let block = blocks.blocks.entry(observation.block).or_default();
            block.insert(point, observation.value);
        }
    }
    by_workload.into_values().collect()
}

impl WorkloadBlocks<'_> {
    fn drifts(&self, meter: Meter, release: Point) -> Vec<BlockDrift> {
        let logs = || {
            let values = self.blocks.values();
            values.filter_map(|points| Some(points.get(&release)?.ln()))
        };
        let mean = logs().sum::<f64>() / logs().count().max(1) as f64;
        let drift = |(&block, points): (&u32, &BTreeMap<Point, f64>)| {
            Some(BlockDrift {
                block,
                release: (points.get(&release)?.ln() - mean).exp_m1(),
                total: self.ends.and_then(|(point, against)| {
                    let faster = speed((points.get(&against)? / points.get(&point)?).ln());
                    Some(meter.shown(faster))
                }),
            })
        };
        self.blocks.iter().filter_map(drift).collect()
    }
}

/// Selects at most `most` evenly spaced blocks.
fn thinned(drifts: &[BlockDrift], most: usize) -> Vec<&BlockDrift> {
    let step = drifts.len().div_ceil(most).max(1);
    drifts.iter().step_by(step).collect()
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

    #[test]
    fn thinning_keeps_order_and_limit() {
        let drifts: Vec<BlockDrift> = (0..1000)
            .map(|block| BlockDrift {
                block,
                release: 0.0,
                total: None,
            })
            .collect();
        let shown = thinned(&drifts, 240);
        assert!(shown.len() <= 240 && shown.len() > 120);
        assert!(shown.is_sorted_by_key(|drift| drift.block));
    }
}
