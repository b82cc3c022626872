//! The closure check: does the sum of the parts agree with an independent measurement of the whole?

use std::collections::BTreeMap;

use super::document::{Closure, Effect, Part};
use super::effects::{Effects, mean_contrast, over_units};
use crate::stats::{Interval, Looks, Units, speed};
use perfquilt_model::observation::Meter;

impl Effects<'_> {
    /// Each effect of `total` beside the direct comparison of its points, from the first experiment
    /// that holds and has both.
    pub(super) fn closure(&self, total: &[Effect]) -> Vec<Closure> {
        total
            .iter()
            .filter_map(|effect| self.check(effect))
            .collect()
    }

    fn check(&self, effect: &Effect) -> Option<Closure> {
        let weights = self.of_servers(&[(effect.against, 1.0), (effect.point, -1.0)]);
        if weights.is_empty() {
            return None;
        }
        self.speaking(false).find_map(|(_, source)| {
            let of = |tables, units: &BTreeMap<Meter, Units>| {
                let tables = self.tables(tables, &effect.workload, effect.meter)?;
                let by_block = mean_contrast(&tables, &weights);
                // The number of either kind of block follows from the same rule.
                let looks = if self.stops.contains(&effect.meter) {
                    Looks::Widths
                } else {
                    Looks::Fixed
                };
                let found = over_units(units.get(&effect.meter), &weights, &by_block, looks)?;
                Some((found.interval, by_block.len()))
            };
            let (total, blocks) = of(&source.blocks, &source.units)?;
            let (direct, directs) = of(&source.direct, &source.direct_units)?;
            let difference = total.less(&direct);
            let known = difference.half_width.is_finite();
            // An interval as wide as the effect itself holds 0 whatever the direct blocks had.
            let margin = self.margins.get(&effect.meter).copied().unwrap_or(0.0);
            let tells = difference.half_width <= total.estimate.abs().max(margin);
            let holds = difference.contains_zero();
            Some(Closure {
                workload: effect.workload.clone(),
                meter: effect.meter,
                total: part(&total, blocks),
                direct: part(&direct, directs),
                difference: speed(difference.estimate),
                low: known.then(|| speed(difference.low())),
                high: known.then(|| speed(difference.high())),
                consistent: (known && (tells || !holds)).then_some(holds),
            })
        })
    }
}

fn part(interval: &Interval, blocks: usize) -> Part {
    let known = interval.half_width.is_finite();
    Part {
        estimate: speed(interval.estimate),
        low: known.then(|| speed(interval.low())),
        high: known.then(|| speed(interval.high())),
        blocks,
    }
}
