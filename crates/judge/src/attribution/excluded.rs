//! Observations that no figure uses, with the reason: none is dropped silently.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Effect, EffectKind, SUITE};
use super::effects::Effects;
use super::tables::{ValueRow, each};
use crate::stats::BlockTable;
use perfquilt_model::observation::ExcludedReadings;
use perfquilt_model::point::Point;

/// The sets of points compared together, each with that of its points which is in the fewest sets: all sets have the
/// release, and most points are in two or three.
type SetsByPoint<'s> = BTreeMap<Point, Vec<&'s BTreeSet<Point>>>;

fn by_point(sets: &BTreeSet<BTreeSet<Point>>) -> SetsByPoint<'_> {
    let mut counts: BTreeMap<Point, usize> = BTreeMap::new();
    for &point in sets.iter().flatten() {
        *counts.entry(point).or_default() += 1;
    }
    let mut found = SetsByPoint::new();
    for set in sets {
        if let Some(&rarest) = set.iter().min_by_key(|point| counts.get(point)) {
            found.entry(rarest).or_default().push(set);
        }
    }
    found
}

impl Effects<'_> {
    /// Returns the observations of this experiment that none of `effects` uses.
    pub(super) fn excluded_readings<'e>(
        &self,
        effects: impl Iterator<Item = &'e Effect> + Clone,
    ) -> Vec<ExcludedReadings> {
        let Some(own) = self.sources.first() else {
            return Vec::new();
        };
        let mut rows: BTreeMap<ValueRow<'_>, Vec<&Effect>> = BTreeMap::new();
        let mut direct = BTreeSet::new();
        for effect in effects {
            rows.entry(ValueRow::new(&effect.workload, effect.meter))
                .or_default()
                .push(effect);
            if effect.kind == EffectKind::Total {
                direct.extend(self.points_of(effect, ""));
            }
        }
        let direct = by_point(&direct);
        let mut left_out = Vec::new();
        for (row, table) in each(&own.blocks) {
            let suite = ValueRow::new(SUITE, row.meter);
            let of = |row| rows.get(&row).into_iter().flatten();
            let sets: BTreeSet<BTreeSet<Point>> = of(row)
                .chain(of(suite))
                .flat_map(|effect| self.points_of(effect, row.workload))
                .collect();
            left_out.extend(self.unused(row, table, &by_point(&sets)));
        }
        for (row, table) in each(&own.direct) {
            left_out.extend(self.unused(row, table, &direct));
        }
        left_out
    }

    /// Returns the sets of points that a block of `workload` must have for `effect` to use it.
    fn points_of(&self, effect: &Effect, workload: &str) -> Vec<BTreeSet<Point>> {
        let mut points = vec![effect.point, effect.against];
        if let (EffectKind::Interaction, Point::Step(k)) = (effect.kind, effect.point) {
            points.push(Point::Step(k - 1));
            points.push(Point::Step(self.header.series.len()));
        }
        let servers = points.into_iter().map(|p| self.server_of(p));
        let timed = effect.meter.is_timed();
        let servers = servers.map(|server| {
            if timed {
                self.unexecuted.program(workload, server)
            } else {
                server
            }
        });
        if effect.unpaired {
            servers.map(|server| BTreeSet::from([server])).collect()
        } else {
            vec![servers.collect()]
        }
    }

    /// Returns the values of a table that belong to none of the compared sets of points in their block.
    fn unused(
        &self,
        row: ValueRow<'_>,
        table: &BlockTable,
        sets: &SetsByPoint<'_>,
    ) -> Vec<ExcludedReadings> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (points, blocks) in table.point_sets() {
            let all: BTreeSet<Point> = points.iter().copied().collect();
            let compared = points.iter().filter_map(|point| sets.get(point)).flatten();
            let compared = compared.filter(|set| set.is_subset(&all));
            let used: BTreeSet<Point> = compared.flat_map(|set| set.iter()).copied().collect();
            for &point in points.iter().filter(|point| !used.contains(point)) {
                *counts.entry(self.why_unused(point)).or_default() += blocks;
            }
        }
        counts
            .into_iter()
            .map(|(reason, count)| ExcludedReadings {
                workload: row.workload.to_owned(),
                meter: row.meter,
                count,
                reason,
            })
            .collect()
    }

    fn why_unused(&self, point: Point) -> String {
        let server = self.server_of(point);
        if self.header.failed.contains_key(&point) {
            format!("point {point} failed")
        } else if server != point {
            format!("point {point} is the same binary as point {server}, whose values count")
        } else {
            "the block lacks every point they are compared with".to_owned()
        }
    }
}
