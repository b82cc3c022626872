//! What a transaction costs at each point.

use std::collections::BTreeSet;

use super::collect::Source;
use super::document::{Cost, Provenance};
use super::effects::{Effects, means, steps};
use crate::stats::{BlockTable, Interval, Looks};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;

/// A reading of fewer steps of its meter says nothing.
const FEWEST_STEPS: f64 = 4.0;

impl Effects<'_> {
    /// The cost of a transaction at every point, by meter and workload, each from the first experiment
    /// that has it; those that hold no more are left out.
    pub(super) fn costs(&self) -> Vec<Cost> {
        let mut costs = Vec::new();
        for (&meter, names) in self.workloads {
            let parts = self.operations.get(&meter);
            for workload in names.iter().chain(parts.into_iter().flatten()) {
                for point in self.points(workload, meter) {
                    let found = self.speaking(false).find_map(|(place, source)| {
                        self.cost(source, self.provenance(place), workload, meter, point)
                    });
                    costs.extend(found);
                }
            }
        }
        costs
    }

    /// The points of the series, and what else was measured.
    fn points(&self, workload: &str, meter: Meter) -> BTreeSet<Point> {
        let measured = self.speaking(false).filter_map(|(_, source)| {
            let table = source.blocks.get(&meter)?.get(workload)?;
            Some(table.points())
        });
        let series = (0..=self.header.series.len()).map(Point::Step);
        measured.flatten().copied().chain(series).collect()
    }

    /// The workload whose operation `name` is; `None` for one of its own, whose name may have a slash.
    fn whole_of(&self, name: &str, meter: Meter) -> Option<&str> {
        let names = self.workloads.get(&meter)?;
        let is_whole = |whole: &&String| {
            name.strip_prefix(whole.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        };
        if names.contains(name) {
            None
        } else {
            names.iter().find(is_whole).map(String::as_str)
        }
    }

    fn cost(
        &self,
        source: &Source,
        provenance: Provenance,
        workload: &str,
        meter: Meter,
        point: Point,
    ) -> Option<Cost> {
        if self.header.failed.contains_key(&point) {
            return None;
        }
        let tables = source.blocks.get(&meter)?;
        let table = tables.get(workload)?;
        let server = self.server_of(point);
        let by_block = table.contrast(&[(server, 1.0)]);
        let by_unit = means(source.units.get(&meter), &by_block);
        let looks = self.looks.get(&meter).copied().unwrap_or(Looks::Fixed);
        let interval = Interval::after(&by_unit, looks)?;
        let known = interval.half_width.is_finite();
        let steps = |step: &f64| steps(table, server, *step);
        Some(Cost {
            workload: workload.to_owned(),
            meter,
            point,
            estimate: interval.estimate.exp(),
            low: known.then(|| interval.low().exp()),
            high: known.then(|| interval.high().exp()),
            blocks: by_block.len(),
            transactions: match self.whole_of(workload, meter) {
                Some(whole) => share(tables.get(whole), table),
                None => 1.0,
            },
            too_short: self
                .clock
                .get(&meter)
                .is_some_and(|step| steps(step) < FEWEST_STEPS),
            provenance,
        })
    }
}

/// How many of a part's transactions there are in one of the whole workload's.
fn share(whole: Option<&BlockTable>, part: &BlockTable) -> f64 {
    let whole = whole.and_then(BlockTable::transactions_a_value);
    let part = part.transactions_a_value();
    part.zip(whole).map_or(1.0, |(part, whole)| part / whole)
}
