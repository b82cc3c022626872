//! The end-to-end check: compares the total with an independent measurement of the whole series.

use super::contrast::{mean_contrast, over_units};
use super::document::{Effect, EndToEnd};
use super::effects::Effects;
use super::tables::ValueRow;
use crate::stats::SpeedChange;

impl Effects<'_> {
    /// Compares each effect of `total` with the direct comparison of its points, from the first experiment
    /// that is not stale and has both.
    pub(super) fn end_to_end(&self, total: &[Effect]) -> Vec<EndToEnd> {
        total
            .iter()
            .filter_map(|effect| self.check(effect))
            .collect()
    }

    fn check(&self, effect: &Effect) -> Option<EndToEnd> {
        let weights = self.of_servers(&[(effect.against, 1.0), (effect.point, -1.0)]);
        if weights.is_empty() || !effect.executed {
            return None;
        }
        let row = ValueRow::new(&effect.workload, effect.meter);
        self.by_staleness(&self.completed, false)
            .find_map(|(place, source)| {
                let of = |tables, direct: bool| {
                    let tables = self.tables(tables, row)?;
                    // The end-to-end blocks have no control.
                    let averaged = self.with_control(&tables, &weights);
                    let weights = averaged.as_deref().unwrap_or(&weights);
                    let by_block = mean_contrast(&tables, weights);
                    // The same rule determines the number of both kinds of block.
                    let rule = self.stopping_rule(place, row.meter);
                    let units = source.independent(row, direct);
                    let mut interval = over_units(units, weights, &by_block, rule)?;
                    if !direct {
                        let key = (place, None, row.meter);
                        interval = self.correlations.widen(key, row.workload, interval);
                    }
                    Some((interval, by_block.len()))
                };
                let (total, blocks) = of(&source.blocks, false)?;
                let (direct, directs) = of(&source.direct, true)?;
                let difference = total.minus(&direct);
                let known = difference.half_width.is_finite();
                let shown = SpeedChange::of(&difference, blocks);
                // An interval as wide as the effect itself contains 0 whatever the end-to-end blocks measured.
                let margin = self.margins.get(&effect.meter).copied().unwrap_or(0.0);
                let tells = difference.half_width <= total.estimate.abs().max(margin);
                let holds = difference.contains_zero();
                Some(EndToEnd {
                    workload: effect.workload.clone(),
                    meter: effect.meter,
                    total: SpeedChange::of(&total, blocks),
                    direct: SpeedChange::of(&direct, directs),
                    difference: shown.estimate,
                    low: shown.low,
                    high: shown.high,
                    consistent: (known && (tells || !holds)).then_some(holds),
                })
            })
    }
}
