//! The mean and the tail of a contrast's slices.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::Effects;
use crate::attribution::contrast::{Contrast, ContrastSample, Pairing};
use crate::attribution::correlation::TableKey;
use crate::attribution::document::{EffectKind, TailFigure, TailFigures, Verdict};
use crate::attribution::mean_cost::MeanCost;
use crate::attribution::tables::{ObservationSource, ValueRow};
use crate::stats::{BlockTable, StoppingRule, speed};
use perfquilt_model::observation::Statistic;
use perfquilt_model::point::Point;

/// Means of statistics of the release and its control over all their blocks: all effects against the release share them.
#[derive(Default)]
pub(in crate::attribution) struct PointMeans(RwLock<HashMap<PointMeanKey, HashMap<String, f64>>>);

/// A statistic of a point in a source, and whether it is averaged with the control's.
type PointMeanKey = (TableKey, Point, bool);

impl PointMeans {
    /// Returns the mean of a point on a workload, the one computed before if there is one.
    fn get(&self, key: PointMeanKey, workload: &str, compute: impl FnOnce() -> f64) -> f64 {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(&key).and_then(|means| means.get(workload));
        if let Some(found) = found {
            return *found;
        }
        drop(known);
        let mean = compute();
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known
            .entry(key)
            .or_default()
            .insert(workload.to_owned(), mean);
        mean
    }
}

/// A contrast whose mean and tail are estimated from the source at `place`.
pub(super) struct TailContrast<'a> {
    pub(super) effects: &'a Effects<'a>,
    pub(super) of: &'a Contrast,
    /// The contrast's weights, by server.
    pub(super) of_servers: &'a [(Point, f64)],
    pub(super) row: ValueRow<'a>,
    pub(super) place: usize,
    pub(super) stopping_rule: StoppingRule,
}

impl TailContrast<'_> {
    /// Returns the mean and the tail; `None` if the source has neither.
    pub(super) fn figures(&self) -> Option<Box<TailFigures>> {
        if self.of.kind == EffectKind::Interaction || self.source().tails.is_empty() {
            return None;
        }
        let all = Statistic::ALL.iter();
        let figures = all.filter_map(|&of| Some((of, self.figure(of)?))).collect();
        let tail = TailFigures {
            typical: Verdict::Unclear,
            figures,
        };
        (!tail.figures.is_empty()).then(|| Box::new(tail))
    }

    fn figure(&self, statistic: Statistic) -> Option<TailFigure> {
        let ValueRow { meter, workload } = self.row;
        let effects = self.effects;
        let tables = self.tables(statistic)?;
        let typical = effects.tables(&self.source().blocks, self.row)?;
        let averaged = effects.averaged(self.of.pairing, &tables, self.of_servers);
        let weights = averaged.as_deref().unwrap_or(self.of_servers);
        let margin = effects.margins.get(&meter).copied();
        let costs = (statistic == Statistic::Mean).then(|| MeanCost::new(&tables, &typical));
        let least = margin.unwrap_or(0.0) / 2.0;
        let heavy_tail = costs
            .as_ref()
            .and_then(|costs| costs.heavy_tail(&self.tables(Statistic::Stalled)?, weights, least));
        let key = (self.place, Some(statistic), meter);
        let sample = ContrastSample {
            costs,
            ..effects.sample(&tables, key, workload, weights, self.stopping_rule)
        };
        let found = sample.compare(weights, self.of.pairing)?;
        let widened = match self.of.pairing {
            Pairing::WithinBlocks => effects.correlations.widen(key, workload, found.interval),
            Pairing::AcrossBlocks => found.interval,
        };
        // An exact test holds at one look only.
        let is_exchangeable = statistic == Statistic::Stalled
            && self.of.pairing == Pairing::WithinBlocks
            && self.stopping_rule != StoppingRule::Anytime;
        // The better of two tests, at half of the error each.
        let tests = if is_exchangeable { 2.0 } else { 1.0 };
        let permuted = is_exchangeable
            .then(|| {
                let means = self.tables(Statistic::Mean)?;
                MeanCost::new(&means, &typical).stalls_alike(&tables, weights, sample.units)
            })
            .flatten()
            .filter(|found| found.p_value < widened.p_value());
        // Exchanges hold whatever neighbouring blocks share.
        let interval = if permuted.is_some() {
            found.interval
        } else {
            widened
        };
        let ends = interval.skewed(&sample.skewed_values(&found));
        let (p_value, verdict) = if let Some(found) = permuted {
            let verdict = if found.is_more {
                Verdict::Slower
            } else {
                Verdict::Faster
            };
            (Some(found.p_value), verdict)
        } else if heavy_tail.is_some() {
            (None, Verdict::Unclear)
        } else {
            let has_error = interval.standard_error.is_finite();
            let margin = margin.filter(|_| statistic == Statistic::Mean);
            let p_value = has_error.then(|| ends.towards_zero().p_value());
            (p_value, ends.verdict(margin))
        };
        let known = interval.half_width.is_finite() && heavy_tail.is_none();
        let shown = |value: f64| {
            if sample.counts { value } else { speed(value) }
        };
        let with_control = averaged.is_some();
        let level = |point: Point| {
            let mean = self.level(point, key, &sample, with_control);
            if sample.counts { mean } else { mean.exp() }
        };
        Some(TailFigure {
            estimate: shown(interval.estimate),
            low: known.then(|| shown(ends.low.low())),
            high: known.then(|| shown(ends.high.high())),
            before: level(self.of.points.1),
            after: level(self.of.points.0),
            verdict,
            p_value: p_value.map(|p_value| (tests * p_value).min(1.0)),
            p_adjusted: None,
            error_share: None,
            blocks: found.blocks,
            with_control,
            heavy_tail,
            basis: heavy_tail.is_none().then(|| ends.wider()),
        })
    }

    fn source(&self) -> &ObservationSource {
        &self.effects.completed[self.place]
    }

    fn tables(&self, statistic: Statistic) -> Option<Vec<&BlockTable>> {
        let tables = self.source().tails.get(&statistic)?;
        self.effects.tables(tables, self.row)
    }

    /// Returns the mean of a point's values; the release's with those of its control, if the contrast has both.
    fn level(
        &self,
        point: Point,
        key: TableKey,
        sample: &ContrastSample<'_>,
        with_control: bool,
    ) -> f64 {
        let server = self.effects.server_of(point);
        let is_average = with_control && server == self.effects.server_of(Point::BASE);
        let levels = &self.effects.levels;
        levels.get((key, server, is_average), self.row.workload, || {
            let single = [(server, 1.0)];
            let both = [(server, 0.5), (Point::Control, 0.5)];
            let values = sample.by_block(if is_average { &both } else { &single });
            values.iter().map(|(_, v)| v).sum::<f64>() / values.len().max(1) as f64
        })
    }
}
