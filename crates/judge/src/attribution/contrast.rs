//! Contrasts of points: their values in blocks, their intervals, and the verdict on one.

use std::collections::BTreeMap;

use super::document::{EffectKind, Verdict};
use super::mean_cost::MeanCost;
use crate::stats::{
    BlockTable, FEWEST_COUNTED, Interval, SharedVariance, SkewedInterval, StoppingRule, Units,
    are_equal, readings_correlation,
};
use perfquilt_model::point::Point;

/// The blocks of two points that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pairing {
    /// Blocks that have both points: block effects cancel.
    WithinBlocks,
    /// All blocks of one point with all blocks of the other, because no block has both.
    AcrossBlocks,
}

/// A contrast of points: `weights` of the logarithms of their costs, reported as an effect of `points.0`
/// against `points.1`.
pub(super) struct Contrast {
    pub(super) kind: EffectKind,
    pub(super) points: (Point, Point),
    pub(super) weights: Vec<(Point, f64)>,
    pub(super) pairing: Pairing,
}

impl Contrast {
    /// Creates the contrast of two points.
    pub(super) fn of_pair(kind: EffectKind, points: (Point, Point), pairing: Pairing) -> Self {
        Contrast {
            kind,
            points,
            weights: vec![(points.1, 1.0), (points.0, -1.0)],
            pairing,
        }
    }
}

/// The estimate of a contrast.
pub(super) struct ContrastEstimate {
    pub(super) interval: Interval,
    pub(super) blocks: usize,
    /// The number of independent units.
    pub(super) units: usize,
    /// Its value in each block; empty where it is not compared within blocks.
    pub(super) by_block: Vec<(u32, f64)>,
}

/// The values behind a contrast.
pub(super) struct ContrastSample<'a> {
    pub(super) tables: &'a [&'a BlockTable],
    pub(super) units: &'a Units,
    pub(super) stopping_rule: StoppingRule,
    /// Whether the values are counts.
    pub(super) counts: bool,
    /// The pooled variance of counts.
    pub(super) shared: Option<SharedVariance>,
    /// The distance of two states of a server that counts distinguish, as a fraction.
    pub(super) states: f64,
    /// The same tables, where they have means of slices.
    pub(super) costs: Option<MeanCost<'a>>,
    /// The machine of each block, where machines weigh alike.
    pub(super) machines: Option<&'a BTreeMap<u32, u32>>,
}

impl ContrastSample<'_> {
    /// Estimates the contrast; `None` without values.
    pub(super) fn compare(
        &self,
        weights: &[(Point, f64)],
        pairing: Pairing,
    ) -> Option<ContrastEstimate> {
        match pairing {
            Pairing::WithinBlocks => {
                let by_block = self.by_block(weights);
                let interval = self.interval(weights, &by_block)?;
                Some(ContrastEstimate {
                    interval,
                    blocks: by_block.len(),
                    units: interval.blocks,
                    by_block,
                })
            }
            Pairing::AcrossBlocks => self.across(weights),
        }
    }

    fn interval(&self, weights: &[(Point, f64)], by_block: &[(u32, f64)]) -> Option<Interval> {
        let (units, rule) = (self.units, self.stopping_rule);
        if self.counts {
            let values = units.means(by_block);
            return Interval::of_counts(&values, rule, self.shared, self.states);
        }
        let machines = self.machines;
        let of_machines = machines.and_then(|of| over_machines(units, of, by_block, rule));
        of_machines.or_else(|| over_units(units, weights, by_block, rule))
    }

    /// Returns the values of independent units whose mean is the contrast, if they are mean costs of blocks, which have a
    /// long tail.
    pub(super) fn skewed_values(&self, found: &ContrastEstimate) -> Vec<f64> {
        if self.costs.is_some() {
            self.units.means(&found.by_block)
        } else {
            Vec::new()
        }
    }

    /// Returns one value per block that has all points, sorted by block, whose mean is the contrast.
    pub(super) fn by_block(&self, weights: &[(Point, f64)]) -> Vec<(u32, f64)> {
        match &self.costs {
            Some(costs) => costs.contributions(weights),
            None => mean_contrast(self.tables, weights),
        }
    }

    /// Estimates the contrast of two points that share no block; `None` if they do share one, or one has no
    /// values.
    fn across(&self, weights: &[(Point, f64)]) -> Option<ContrastEstimate> {
        let &[(one, weight), (other, _)] = weights else {
            return None;
        };
        if !mean_contrast(self.tables, weights).is_empty() {
            return None;
        }
        let of = |point| -> Option<ContrastEstimate> {
            let weights = [(point, weight)];
            let by_block = self.by_block(&weights);
            let found = over_units(self.units, &weights, &by_block, StoppingRule::FixedSample)?;
            let correlation = readings_correlation(&self.units.means(&by_block));
            let mut interval = correlation.map_or(found, |of| of.widen(found));
            let tables = self.tables.iter();
            let mut readings = tables.map(|table| table.contrast(&[(point, 1.0)]));
            // Equal ones show no variance.
            if readings.any(|of| of.len() < FEWEST_COUNTED && are_equal(&of)) {
                interval = Interval::unknown(found.estimate, interval.blocks, found.stopping_rule);
            }
            Some(ContrastEstimate {
                interval,
                blocks: by_block.len(),
                units: found.blocks,
                by_block: Vec::new(),
            })
        };
        let (first, second) = (of(one)?, of(other)?);
        Some(ContrastEstimate {
            interval: first.interval.minus(&second.interval),
            blocks: first.blocks + second.blocks,
            units: first.units + second.units,
            by_block: Vec::new(),
        })
    }
}

/// Returns the interval of a contrast's mean over the independent units of its blocks.
pub(super) fn over_units(
    units: &Units,
    weights: &[(Point, f64)],
    by_block: &[(u32, f64)],
    stopping_rule: StoppingRule,
) -> Option<Interval> {
    let points: Vec<Point> = weights.iter().map(|(point, _)| *point).collect();
    units.interval(&points, by_block, stopping_rule)
}

/// Returns the interval of a contrast's mean over machines, each with the same weight; `None` where a machine has too few
/// units, or a unit has blocks of several machines.
fn over_machines(
    units: &Units,
    machines: &BTreeMap<u32, u32>,
    by_block: &[(u32, f64)],
    stopping_rule: StoppingRule,
) -> Option<Interval> {
    let mut of_machines: BTreeMap<u32, Vec<(u32, f64)>> = BTreeMap::new();
    for &(block, value) in by_block {
        let machine = *machines.get(&block)?;
        if machines.get(&units.of(block)) != Some(&machine) {
            return None;
        }
        of_machines.entry(machine).or_default().push((block, value));
    }
    let values: Vec<Vec<f64>> = of_machines.values().map(|of| units.means(of)).collect();
    Interval::stratified(&values, stopping_rule)
}

/// Returns the mean over tables of the contrast of log costs, for every block in which all tables have the
/// points, sorted by block. For two points it is the log of the geometric mean of the ratios.
pub(super) fn mean_contrast(tables: &[&BlockTable], weights: &[(Point, f64)]) -> Vec<(u32, f64)> {
    // Most pairs of points of a suite share no block; this check is cheaper than one contrast after the other.
    if tables.len() > 1 && !tables.iter().all(|table| table.shares_block(weights)) {
        return Vec::new();
    }
    let mut tables_left = tables.iter();
    let Some(first) = tables_left.next() else {
        return Vec::new();
    };
    let mut sums = first.contrast(weights);
    for table in tables_left {
        let mut other = table.contrast(weights).into_iter().peekable();
        sums.retain_mut(|(block, sum)| {
            while other.next_if(|(there, _)| there < block).is_some() {}
            match other.next_if(|(there, _)| there == block) {
                Some((_, value)) => {
                    *sum += value;
                    true
                }
                None => false,
            }
        });
    }
    for (_, sum) in &mut sums {
        *sum /= tables.len() as f64;
    }
    sums
}

impl SkewedInterval {
    /// Returns the verdict as [`verdict`] does.
    pub(super) fn verdict(&self, margin: Option<f64>) -> Verdict {
        match verdict(&self.towards_zero(), None) {
            Verdict::Unclear if margin.is_some_and(|margin| self.wider().equivalent(margin)) => {
                Verdict::NoEffect
            }
            verdict => verdict,
        }
    }
}

/// Returns the verdict for a single interval; `no effect` requires a margin.
pub(super) fn verdict(interval: &Interval, margin: Option<f64>) -> Verdict {
    if interval.low() > 0.0 {
        Verdict::Faster
    } else if interval.high() < 0.0 {
        Verdict::Slower
    } else if margin.is_some_and(|margin| interval.equivalent(margin)) {
        Verdict::NoEffect
    } else {
        Verdict::Unclear
    }
}
