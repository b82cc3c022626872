//! Patches whose code a workload does not execute: for this workload, the points with and without the patch are the
//! same program.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::tables::{ObservationSource, TablesByMeter};
use crate::stats::BlockTable;
use perfquilt_model::observation::{ExperimentHeader, RowName, UnexecutedPatch};
use perfquilt_model::point::Point;

/// The points that are the same program as an earlier one, as far as a workload is concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unexecuted {
    /// By workload and point, the earliest such point.
    same: BTreeMap<String, BTreeMap<Point, Point>>,
    /// The points whose patch changes no function.
    same_code: BTreeSet<Point>,
}

impl Unexecuted {
    /// Collects the points from the records of an experiment with this header.
    pub fn of(header: &ExperimentHeader, patches: &[UnexecutedPatch]) -> Self {
        let mut sorted: Vec<&UnexecutedPatch> = patches.iter().collect();
        sorted.sort();
        let mut same: BTreeMap<String, BTreeMap<Point, Point>> = BTreeMap::new();
        for of in &sorted {
            let of_workload = same.entry(of.workload.clone()).or_default();
            let earlier = header.server_of(of.against);
            let first = of_workload.get(&earlier).copied().unwrap_or(earlier);
            let point = header.server_of(of.point);
            if point > first {
                of_workload.insert(point, first);
            }
        }
        let without_code = sorted.iter().filter(|of| of.functions == 0);
        Unexecuted {
            same,
            same_code: without_code.map(|of| of.point).collect(),
        }
    }

    /// Returns whether the patch of `point` is known to change no function.
    pub(super) fn leaves_code(&self, point: Point) -> bool {
        self.same_code.contains(&point)
    }

    /// Returns whether every workload executes every patch, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.same.is_empty()
    }

    /// Returns the earliest point that is the same program as `point` for a workload or a part of one.
    pub fn program(&self, workload: &str, point: Point) -> Point {
        self.programs(workload)(point)
    }

    /// Returns [`Unexecuted::program`] on one workload, for many points.
    pub(super) fn programs(&self, workload: &str) -> impl Fn(Point) -> Point {
        let row = RowName::from(workload);
        let whole = self.same.get(workload);
        let of = whole.or_else(|| self.same.get(row.workload));
        move |point| {
            of.and_then(|points| points.get(&point))
                .copied()
                .unwrap_or(point)
        }
    }

    /// Returns how many values [`Unexecuted::complete`] makes at most for tables.
    pub(super) fn most_completed(&self, tables: &TablesByMeter) -> usize {
        let of = |(name, table): (&String, &BlockTable)| {
            let whole = RowName::from(name.as_str()).workload;
            let same = self.same.get(name).or_else(|| self.same.get(whole));
            same.map_or(0, |same| table.blocks().saturating_mul(same.len() + 1))
        };
        let timed = tables.iter().filter(|(meter, _)| meter.is_timed());
        let of_meter = |tables: &BTreeMap<String, BlockTable>| {
            let empty = tables.values().filter(|table| table.blocks() == 0).count();
            let values: usize = tables.values().map(BlockTable::values).sum();
            let copied: usize = tables.iter().map(of).sum();
            copied.saturating_add(empty.saturating_mul(values))
        };
        timed.map(|(_, tables)| of_meter(tables)).sum()
    }

    /// Maps those of `points` that are not timed on `workload` to the earliest of them that is the same program.
    pub fn untimed_points<'p>(
        &self,
        workload: &str,
        points: impl IntoIterator<Item = &'p Point>,
    ) -> BTreeMap<Point, Point> {
        let points: BTreeSet<Point> = points.into_iter().copied().collect();
        let mut first: BTreeMap<Point, Point> = BTreeMap::new();
        let mut untimed = BTreeMap::new();
        for point in points {
            let timed = *first.entry(self.program(workload, point)).or_insert(point);
            if timed != point {
                untimed.insert(point, timed);
            }
        }
        untimed
    }

    /// Returns whether `workload` executes none of the patches that distinguish `points`, so that it need not be
    /// timed at all.
    pub fn is_untimed<'p>(
        &self,
        workload: &str,
        points: impl IntoIterator<Item = &'p Point>,
    ) -> bool {
        let mut patched = points
            .into_iter()
            .filter(|point| !point.is_unpatched())
            .peekable();
        patched.peek().is_some()
            && patched.all(|&point| self.program(workload, point) == Point::BASE)
    }

    /// Returns all patched points of the records.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> {
        self.same.values().flat_map(|points| points.keys()).copied()
    }

    /// Returns the workloads of `tables` that have no values because they execute no patch.
    fn untimed<'t>(
        &self,
        header: &ExperimentHeader,
        tables: &'t TablesByMeter,
    ) -> BTreeSet<&'t str> {
        let steps: Vec<Point> = (1..=header.series.len())
            .map(Point::Step)
            .filter(|point| !header.failed.contains_key(point))
            .map(|point| header.server_of(point))
            .collect();
        let timed = tables.iter().filter(|(meter, _)| meter.is_timed());
        timed
            .flat_map(|(_, by_workload)| by_workload)
            .filter(|(name, table)| table.blocks() == 0 && self.is_untimed(name, &steps))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Returns the workloads that are not timed because they execute no patch.
    pub(super) fn untimed_workloads(
        &self,
        header: &ExperimentHeader,
        sources: &[ObservationSource],
    ) -> BTreeSet<String> {
        if self.is_empty() {
            return BTreeSet::new();
        }
        let of = |source: &ObservationSource| -> BTreeSet<String> {
            let names = self.untimed(header, &source.blocks).into_iter();
            names.map(str::to_owned).collect()
        };
        sources.first().map(of).unwrap_or_default()
    }

    /// Returns the tables with values for the points that were not timed: those of the point that is the same
    /// program. Where that is the release, it is the mean of the release and its control, as in all effects against
    /// the release. A workload that was not timed at all has equal values.
    ///
    /// Effects over all workloads thus have an effect of exactly 0 on a workload that does not execute the patch.
    pub(super) fn complete<'s>(
        &self,
        header: &ExperimentHeader,
        sources: &'s [ObservationSource],
    ) -> Cow<'s, [ObservationSource]> {
        if self.is_empty() {
            return Cow::Borrowed(sources);
        }
        let untimed = self.untimed_workloads(header, sources);
        let mut completed = sources.to_vec();
        for source in &mut completed {
            let tails = source.tails.values_mut();
            for tables in tails.chain([&mut source.blocks]) {
                self.copy_values(header, tables);
                fill(tables, &untimed);
            }
            fill(&mut source.direct, &untimed);
        }
        Cow::Owned(completed)
    }

    fn copy_values(&self, header: &ExperimentHeader, tables: &mut TablesByMeter) {
        let timed = tables.iter_mut().filter(|(meter, _)| meter.is_timed());
        for (name, table) in timed.flat_map(|(_, by_workload)| by_workload) {
            let whole = RowName::from(name.as_str()).workload;
            let Some(same) = self.same.get(name).or_else(|| self.same.get(whole)) else {
                continue;
            };
            let transactions = table.transactions_a_value().unwrap_or(1.0);
            let mut programs: BTreeMap<Point, Vec<Point>> = BTreeMap::new();
            for (&point, &first) in same {
                let members = programs.entry(first).or_insert_with(|| vec![first]);
                members.push(point);
            }
            for (program, members) in programs {
                let mut values: BTreeMap<u32, f64> = BTreeMap::new();
                for &point in members.iter().rev() {
                    values.extend(table.contrast(&[(point, 1.0)]));
                }
                if program == Point::BASE && !header.failed.contains_key(&Point::Control) {
                    let both = [(Point::BASE, 0.5), (Point::Control, 0.5)];
                    values.extend(table.contrast(&both));
                }
                for &point in &members {
                    for (&block, &value) in &values {
                        // A point that was timed has a value already, which stays.
                        table.insert_plain(block, point, value, transactions as u64);
                    }
                }
            }
        }
    }
}

/// Gives the workloads `untimed` equal values in all blocks of the other workloads.
fn fill(tables: &mut TablesByMeter, untimed: &BTreeSet<String>) {
    for (_, by_workload) in tables.iter_mut().filter(|(meter, _)| meter.is_timed()) {
        let mut places: BTreeSet<(u32, Point)> = BTreeSet::new();
        for (name, table) in &*by_workload {
            // Parts of a workload may have blocks of their own.
            if RowName::from(name.as_str()).operation.is_none() {
                for &point in table.points() {
                    let blocks = table.contrast(&[(point, 1.0)]);
                    places.extend(blocks.into_iter().map(|(block, _)| (block, point)));
                }
            }
        }
        for name in untimed {
            let table: &mut BlockTable = by_workload.entry(name.clone()).or_default();
            for &(block, point) in &places {
                table.insert_plain(block, point, 0.0, 1);
            }
        }
    }
}
