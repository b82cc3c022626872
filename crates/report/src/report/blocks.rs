//! The section on single blocks: whether the machine drifted, and the effect with it.

use std::collections::BTreeMap;

use super::Content;
use crate::document::chart::{ChartContent, Series};
use crate::document::{Chart, Drawing, Ink, Node, drawn, keys, name, table};
use crate::number;
use crate::view::View;
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, effect_on};
use perfquilt_judge::stats::speed;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
use perfquilt_model::point::Point;

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

/// Returns the section on the machine's drift and the series' effect block by block, one drawing per workload.
pub(crate) fn blocks(of: &Content<'_>) -> Vec<Node> {
    let view = of.view;
    let (Some(&(meter, places)), Some(page)) = (view.columns.first(), of.page) else {
        return Vec::new();
    };
    let (header, observations) = (page.header, page.observations);
    let by_workload = blocks_by_workload(view.attribution, header, observations, meter);
    let most = (MAX_POINTS / 2 / by_workload.len().max(1)).clamp(20, MAX_BLOCKS);
    let all = by_workload.iter().filter_map(|blocks| {
        let drifts = blocks.drifts(meter, header.server_of(Point::BASE));
        let shown = thinned(&drifts, most);
        let drawing = || drawing(view, blocks.workload, (meter, places), &shown, drifts.len());
        (drifts.len() > 1).then(drawing)
    });
    drawn(
        "blocks",
        "Block by block",
        "Whether the machine drifted, and whether the effect did with it. Points of one block take turns, so a slow block is \
         slow for all of them.",
        all,
    )
}

/// Draws some of `all` blocks of a workload.
fn drawing(
    view: &View<'_>,
    workload: &str,
    (meter, places): (Meter, usize),
    shown: &[&BlockDrift],
    all: usize,
) -> Drawing {
    let nouns = view.nouns();
    let series = |ink, joined, of: &dyn Fn(&BlockDrift) -> Option<f64>| {
        let point = |m: &&BlockDrift| Some((f64::from(m.block), 100.0 * of(m)?, None));
        Series {
            ink,
            joined,
            points: shown.iter().filter_map(point).collect(),
        }
    };
    let lines = vec![
        series(Ink::First, true, &|drift| Some(drift.release)),
        series(Ink::Second, false, &|drift| drift.total),
    ];
    let about = format!("{meter} of {workload} block by block");
    let chart = Chart::new(about.clone(), "%", ChartContent::Series("block", lines));
    let percent = |share| format!("{} %", number::signed(share, places));
    let table = table(about, shown)
        .figures("block", |drift| drift.block.to_string())
        .figures(format!("{}, cost", nouns.base), |drift| {
            percent(drift.release)
        })
        .figures(
            format!("{}, {}", nouns.last, meter.shown_quantity()),
            |drift| drift.total.map_or("–".to_owned(), percent),
        );
    let left_out = if shown.len() < all {
        format!(". {} of {all} blocks are drawn.", shown.len())
    } else {
        String::new()
    };
    let cost = format!("cost of {} against its mean", nouns.base);
    let effect = format!("effect of {} in the block alone", nouns.last);
    let keys = keys(
        [(Ink::First, false, &*cost), (Ink::Second, true, &effect)],
        left_out,
    );
    Drawing::new(chart, table.node())
        .heading(name(workload))
        .caption(keys)
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
    let total = |workload| effect_on(&attribution.total, EffectKind::Total, meter, workload);
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
