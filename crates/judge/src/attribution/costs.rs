//! The cost of a transaction at each point.

use std::collections::BTreeSet;

use super::contrast::Pairing;
use super::document::TransactionCost;
use super::effects::{Effects, steps};
use super::tables::ValueRow;
use crate::stats::{BlockTable, Interval};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;

/// The least number of meter steps in a usable reading.
const FEWEST_STEPS: f64 = 4.0;

impl Effects<'_> {
    /// Returns the cost of a transaction at every point, by meter and workload, each from the first
    /// experiment that has it, excluding stale ones.
    pub(super) fn costs(&self) -> Vec<TransactionCost> {
        let mut costs = Vec::new();
        for (&meter, names) in self.workloads {
            let parts = self.operations.get(&meter);
            for workload in names.iter().chain(parts.into_iter().flatten()) {
                for point in self.points(workload, meter) {
                    let mut sources = self.by_staleness(self.sources, false);
                    let row = ValueRow { meter, workload };
                    costs.extend(sources.find_map(|(place, _)| self.cost(place, row, point)));
                }
            }
        }
        costs
    }

    /// Returns the points of the series and all other measured points.
    fn points(&self, workload: &str, meter: Meter) -> BTreeSet<Point> {
        let measured = self
            .by_staleness(self.sources, false)
            .filter_map(|(_, source)| {
                let table = source.blocks.get(&meter)?.get(workload)?;
                Some(table.points())
            });
        let series = (0..=self.header.series.len()).map(Point::Step);
        measured.flatten().copied().chain(series).collect()
    }

    /// Returns the workload that the operation `name` belongs to; `None` if `name` is a workload itself,
    /// whose name may contain a slash.
    fn whole_of(&self, name: &str, meter: Meter) -> Option<&str> {
        let names = self.workloads.get(&meter)?;
        if names.contains(name) {
            return None;
        }
        let mut slashes = name.match_indices('/');
        slashes.find_map(|(at, _)| names.get(&name[..at]).map(String::as_str))
    }

    fn cost(
        &self,
        place: usize,
        ValueRow { meter, workload }: ValueRow<'_>,
        point: Point,
    ) -> Option<TransactionCost> {
        if self.header.failed.contains_key(&point) {
            return None;
        }
        let source = &self.sources[place];
        let tables = source.blocks.get(&meter)?;
        let table = tables.get(workload)?;
        let server = self.server_of(point);
        let by_block = table.contrast(&[(server, 1.0)]);
        let by_unit = source.independent_points(meter).means(&by_block);
        let rounding = self.rounding(&[table], &[(server, 1.0)], meter, Pairing::WithinBlocks);
        let stopping_rule = self.stopping_rule(place, meter);
        let interval = Interval::under(&by_unit, stopping_rule)?.rounded(rounding);
        let known = interval.half_width.is_finite();
        let steps = |step: &f64| steps(table, server, *step);
        Some(TransactionCost {
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
            provenance: self.provenance(place),
        })
    }
}

/// Returns the number of a part's transactions per transaction of the whole workload.
fn share(whole: Option<&BlockTable>, part: &BlockTable) -> f64 {
    let whole = whole.and_then(BlockTable::transactions_a_value);
    let part = part.transactions_a_value();
    part.zip(whole).map_or(1.0, |(part, whole)| part / whole)
}
