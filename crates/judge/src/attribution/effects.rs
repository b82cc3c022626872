//! Effects of patches as contrasts of points, each from the first experiment that has the points.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock};

use rayon::prelude::*;

use super::correlation::{Correlations, TableKey};
use super::document::{
    Effect, EffectKind, Operation, PatchEffects, Provenance, SUITE, TailFigure, TailFigures,
    Verdict,
};
use super::mean_cost::MeanCost;
use super::pairs::Pairs;
use super::points::Points;
use super::tables::{NamesByMeter, ObservationSource, TablesByMeter};
use super::unexecuted::Unexecuted;
use crate::stats::{
    BlockTable, Interval, SharedVariance, SkewedInterval, StoppingRule, UnitInterval, Units,
    VariancePrior, shared_rows, speed,
};
use perfquilt_model::observation::{ExperimentHeader, Meter, RowName, Statistic};
use perfquilt_model::point::Point;

/// The least product of blocks and patches for which threads pay off.
const WORTH_THREADS: usize = 100_000;

const NOT_MEASURED: &str = "not measured so far";

pub(super) struct Effects<'a> {
    pub(super) header: &'a ExperimentHeader,
    /// This experiment, then those it reuses values of.
    pub(super) sources: &'a [ObservationSource],
    /// The same with values for points that are the same program for a workload.
    pub(super) completed: Cow<'a, [ObservationSource]>,
    /// The points that are the same program for a workload.
    pub(super) unexecuted: Cow<'a, Unexecuted>,
    /// The workloads that were not timed, because they execute no patch.
    pub(super) untimed: BTreeSet<String>,
    /// The points with values in these experiments.
    pub(super) points: Points,
    /// The workloads of every meter; a source needs all of them for an effect on the suite.
    pub(super) workloads: &'a NamesByMeter,
    /// The parts of workloads that clients time separately, as `workload/operation`.
    pub(super) operations: &'a NamesByMeter,
    /// The step size of meters in a run, in the meter's unit times transactions.
    pub(super) clock: &'a BTreeMap<Meter, f64>,
    /// The equivalence margins, as fractions of speed.
    pub(super) margins: BTreeMap<Meter, f64>,
    /// The stopping rules, by meter, where the number of blocks was not fixed beforehand.
    pub(super) stopping_rules: BTreeMap<Meter, StoppingRule>,
    /// The meters whose number of blocks depends on interval widths.
    pub(super) stops: BTreeSet<Meter>,
    /// The meters whose blocks have only some points each by plan.
    pub(super) windowed: BTreeSet<Meter>,
    /// The pooled variances of tables of counts.
    pub(super) spreads: SharedSpreads,
    /// The common prior of the variances of timed tables' points.
    pub(super) priors: Priors,
    /// How much the units of timed tables resemble their neighbours.
    pub(super) correlations: Correlations,
    /// Which points can be compared.
    pub(super) pairs: Pairs,
    /// Means of single points, which many effects show.
    pub(super) levels: PointMeans,
}

/// Means of statistics of the release and its control over all their blocks: all effects against the release share them.
#[derive(Default)]
pub(super) struct PointMeans(RwLock<HashMap<PointMeanKey, HashMap<String, f64>>>);

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

/// Pooled variances of tables of counts, by the source's index, statistic, meter and workload.
#[derive(Default)]
pub(super) struct SharedSpreads(BTreeMap<TableKey, BTreeMap<String, ValueSpread>>);

/// The residual variance of a table's values after subtracting block and point effects.
#[derive(Clone, Copy)]
struct ValueSpread {
    variance: f64,
    degrees_of_freedom: f64,
    range: f64,
}

impl ValueSpread {
    /// That of equal values.
    const NONE: ValueSpread = ValueSpread {
        variance: 0.0,
        degrees_of_freedom: 1.0,
        range: 0.0,
    };
}

/// The priors of the variances of timed tables, by the source's index and meter, and by workload, operation or suite.
#[derive(Default)]
pub(super) struct Priors(BTreeMap<(usize, Meter), BTreeMap<String, VariancePrior>>);

impl Priors {
    /// Estimates the priors of the meters whose values are no counts.
    pub(super) fn of(sources: &[ObservationSource], workloads: &NamesByMeter) -> Self {
        let mut priors = Priors::default();
        let none = Units::default();
        for (place, source) in sources.iter().enumerate() {
            // Machines have variances of their own.
            if source.machines.units(false).is_some() || source.machines.strata().is_some() {
                continue;
            }
            for (&meter, tables) in source.blocks.iter().filter(|(meter, _)| !is_count(**meter)) {
                let of = |name: &str, tables: &[&BlockTable]| {
                    let units = source
                        .independent(meter, Some(name), false)
                        .unwrap_or(&none);
                    let rows = units.rows_by_unit(&shared_rows(tables)?);
                    let of_sums = VariancePrior::of(&rows)?;
                    let count = tables.len() as f64;
                    Some(VariancePrior {
                        variance: of_sums.variance / (count * count),
                        ..of_sums
                    })
                };
                let names = workloads.get(&meter).into_iter().flatten();
                let suite: Option<Vec<&BlockTable>> = names.map(|name| tables.get(name)).collect();
                let suite = suite.filter(|suite| suite.len() > 1);
                let suite = suite.and_then(|suite| Some((SUITE.to_owned(), of(SUITE, &suite)?)));
                let single = tables
                    .iter()
                    .filter_map(|(name, table)| Some((name.clone(), of(name, &[table])?)));
                priors
                    .0
                    .insert((place, meter), single.chain(suite).collect());
            }
        }
        priors
    }

    fn get(&self, (place, meter): (usize, Meter), workload: &str) -> Option<VariancePrior> {
        self.0.get(&(place, meter))?.get(workload).copied()
    }
}

impl SharedSpreads {
    /// Estimates the variances for the counting meters, what servers use and the shares of slow slices: those of the
    /// means over independent units, which intervals are taken over. The workloads that were not timed (`untimed`) have equal
    /// values.
    pub(super) fn of(sources: &[ObservationSource], untimed: &BTreeSet<String>) -> Self {
        let mut spreads = SharedSpreads::default();
        let none = Units::default();
        for (place, source) in sources.iter().enumerate() {
            let counted = source.blocks.iter().filter(|(meter, _)| is_count(**meter));
            let shares = Statistic::ALL.into_iter().filter(|of| of.is_share());
            let shares = shares.flat_map(|of| {
                let tables = source.tails.get(&of).into_iter().flatten();
                tables.map(move |(meter, tables)| (Some(of), meter, tables))
            });
            let tables = counted
                .map(|(meter, tables)| (None, meter, tables))
                .chain(shares);
            for (statistic, &meter, tables) in tables {
                let of = |name: &str, table: &BlockTable| {
                    let units = source
                        .independent(meter, Some(name), false)
                        .unwrap_or(&none);
                    let window = table.largest_window();
                    let means = units.averaged(&window.complete());
                    let (variance, range) = means.variance_and_range()?;
                    let degrees_of_freedom = (means.len() - 1) * (window.points().len() - 1);
                    Some(ValueSpread {
                        variance,
                        degrees_of_freedom: degrees_of_freedom as f64,
                        range,
                    })
                };
                let equal = untimed.iter().filter(|_| meter.is_timed());
                let known = tables
                    .iter()
                    .filter_map(|(name, table)| Some((name.clone(), of(name, table)?)))
                    .chain(equal.map(|name| (name.clone(), ValueSpread::NONE)));
                spreads.0.insert((place, statistic, meter), known.collect());
            }
        }
        spreads
    }

    /// Returns the pooled variance of a contrast over `workloads`; `None` if its values are not counts or
    /// there are too few.
    fn shared<'n>(
        &self,
        key: TableKey,
        workloads: impl Iterator<Item = &'n str>,
        weights: &[(Point, f64)],
    ) -> Option<SharedVariance> {
        let of_meter = self.0.get(&key)?;
        let each: Vec<ValueSpread> = workloads
            .map(|name| of_meter.get(name).copied())
            .collect::<Option<_>>()?;
        let n = each.len() as f64;
        let squares: f64 = weights.iter().map(|(_, weight)| weight * weight).sum();
        let sides: f64 = weights.iter().map(|(_, weight)| weight.abs()).sum::<f64>() / 2.0;
        let variance: f64 = each.iter().map(|of| of.variance).sum();
        let parts: f64 = each
            .iter()
            .map(|of| of.variance.powi(2) / of.degrees_of_freedom)
            .sum();
        Some(SharedVariance {
            variance: variance * squares / (n * n),
            // Satterthwaite's approximation; exact for a single workload.
            degrees_of_freedom: if parts > 0.0 {
                variance.powi(2) / parts
            } else {
                each.iter().map(|of| of.degrees_of_freedom).sum()
            },
            range: each.iter().map(|of| of.range).sum::<f64>() * sides / n,
        })
    }
}

impl Effects<'_> {
    /// Computes the effects of the patches in order, and of the total.
    pub(super) fn of_patches(&self) -> (Vec<PatchEffects>, Vec<Effect>) {
        let indices: Vec<usize> = (1..=self.header.series.len()).collect();
        if self.is_worth_threads() {
            rayon::join(
                || indices.par_iter().map(|&index| self.patch(index)).collect(),
                || self.total(),
            )
        } else {
            let patches = indices.iter().map(|&index| self.patch(index)).collect();
            (patches, self.total())
        }
    }

    /// Returns whether threads save more than they cost, which they do not for an ordinary experiment.
    fn is_worth_threads(&self) -> bool {
        let blocks = self.sources.iter().flat_map(ObservationSource::each);
        let blocks: usize = blocks.map(|(_, _, table)| table.blocks()).sum();
        blocks * self.header.series.len() >= WORTH_THREADS
    }

    pub(super) fn patch(&self, index: usize) -> PatchEffects {
        let header = self.header;
        let point = Point::Step(index);
        let full = Point::Step(header.series.len());
        let mut effects = self.by_workload(|workload, meter| self.in_order(point, workload, meter));
        effects.extend(self.of_kind(EffectKind::Alone, Point::Alone(index), &[Point::BASE]));
        if self.is_known(Point::Without(index)) {
            effects.extend(self.of_kind(EffectKind::Without, full, &[Point::Without(index)]));
            effects.extend(self.interaction(index, full));
        }
        let same = self.points.first_same(point);
        let identical_to = same.filter(|_| !header.failed.contains_key(&point));
        PatchEffects {
            index,
            name: header.series[index - 1].clone(),
            title: header.titles.get(index - 1).cloned().unwrap_or_default(),
            reason: self.reason(index, identical_to, &effects),
            identical_to,
            code_unchanged: self.unexecuted.leaves_code(Point::Step(index)),
            line_numbers: header.line_numbers.contains(&Point::Step(index)),
            effects,
        }
    }

    /// Returns why a patch has no main effect: in order, on the first meter, over all workloads; `None` if it
    /// has one.
    fn reason(
        &self,
        index: usize,
        identical_to: Option<Point>,
        effects: &[Effect],
    ) -> Option<String> {
        let point = Point::Step(index);
        if let Some(reason) = self.header.failed.get(&point) {
            return Some(reason.clone());
        }
        let same = self.header.identical.get(&point);
        if let Some((same, reason)) = same.and_then(|same| self.header.failed.get_key_value(same)) {
            return Some(format!("point {same}, the same binary, failed: {reason}"));
        }
        let Some((&meter, names)) = self.workloads.first_key_value() else {
            let same = identical_to == Some(Point::Step(index - 1));
            return (!same).then(|| NOT_MEASURED.to_owned());
        };
        let in_order = || {
            effects
                .iter()
                .filter(|effect| effect.kind == EffectKind::InOrder)
        };
        let of_meter = in_order().filter(|effect| effect.meter == meter);
        let with_effect: BTreeSet<&str> = of_meter.map(|e| e.workload.as_str()).collect();
        let has = |name: &str| with_effect.contains(name);
        let all = names.len();
        let missing = names.iter().filter(|name| !has(name)).count();
        let name = names.first().map_or(SUITE, String::as_str);
        if missing == all
            && self.windowed.contains(&meter)
            && self.has_values(point, name, meter)
            && let Some(before) = self.last_with_values(point, name, meter)
        {
            return Some(format!(
                "no block has it and point {before}, the last before it with figures"
            ));
        }
        let is_of_servers = self.header.is_of_servers();
        Some(match missing {
            0 if all == 1 || has(SUITE) => return None,
            0 => "no block has it on all workloads".to_owned(),
            _ if missing < all => format!("no figures on {missing} of {all} workloads"),
            _ if in_order().next().is_some() => format!("no figures of {meter}"),
            _ if self.is_measured(point) && is_of_servers => "the base has no figures".to_owned(),
            _ if self.is_measured(point) => "no earlier point to compare with".to_owned(),
            _ => NOT_MEASURED.to_owned(),
        })
    }

    /// Computes the effect of `point` against the nearest point of the series before it that it can be compared with, or
    /// against the base if the points are no series.
    ///
    /// Where blocks measure windows of points, that is only the last one with values: a block always has the release,
    /// too, and what many patches are worth must not count as the effect of one.
    fn in_order(&self, point: Point, workload: &str, meter: Meter) -> Option<Effect> {
        if self.header.is_of_servers() {
            let base = std::iter::once((point, Point::BASE));
            return self.first_of(EffectKind::InOrder, workload, meter, base);
        }
        if !self.windowed.contains(&meter) {
            let either = &[Pairing::WithinBlocks, Pairing::AcrossBlocks];
            return self.nearest(either, point, (workload, meter), |_| true);
        }
        let last = self.last_with_values(point, workload, meter);
        let tried = |other: &Point| last.is_none_or(|last| *other >= last);
        let within = &[Pairing::WithinBlocks];
        self.nearest(within, point, (workload, meter), tried)
    }

    /// Returns the last point of the series before `point` that has values of `workload`.
    fn last_with_values(&self, point: Point, workload: &str, meter: Meter) -> Option<Point> {
        let before = self.pairs.last_valued(workload, meter, point);
        before.filter(|_| self.points.is_comparable(point))
    }

    /// Returns the effect of `point` against the nearest earlier point of the series that it can be compared with in the
    /// first of the `pairings` in which there is one; `tried` tells how far back.
    fn nearest(
        &self,
        pairings: &[Pairing],
        point: Point,
        row: (&str, Meter),
        tried: impl Fn(&Point) -> bool,
    ) -> Option<Effect> {
        if !self.points.is_comparable(point) {
            return None;
        }
        let both = (point, self.server_of(point));
        self.freshest(|stale| {
            pairings.iter().find_map(|&pairing| {
                let effect = |against: Point| {
                    let weights = [(against, 1.0), (point, -1.0)];
                    let of = Contrast {
                        kind: EffectKind::InOrder,
                        points: (point, against),
                        weights: &weights,
                        pairing,
                    };
                    self.contrast(&of, row.0, row.1, stale)
                };
                let earlier: Box<dyn Iterator<Item = Point>> = match pairing {
                    Pairing::WithinBlocks => Box::new(self.pairs.sharing(row, both, stale)),
                    Pairing::AcrossBlocks => Box::new(self.pairs.valued(row, both, stale)),
                };
                earlier.take_while(&tried).find_map(effect)
            })
        })
    }

    /// Returns whether `point` has usable values of `workload`, or of all workloads for a suite.
    fn has_values(&self, point: Point, workload: &str, meter: Meter) -> bool {
        let server = self.server_of(point);
        let has = |source: &ObservationSource| {
            let tables = self.tables(&source.blocks, workload, meter);
            tables.is_some_and(|tables| {
                let mut points = tables.iter().map(|table| table.points());
                points.all(|points| points.binary_search(&server).is_ok())
            })
        };
        !self.header.failed.contains_key(&point) && self.completed.iter().any(has)
    }

    /// Adds to each patch the cumulative effect of it and all earlier patches; these are a family of tests of their own.
    /// The effects of the first and the last patch come from the in-order effects and `total`.
    pub(super) fn add_cumulative(&self, patches: &mut [PatchEffects], total: &[Effect]) {
        let of_total = against_base(total.iter());
        let add = |patch: &mut PatchEffects| {
            let point = Point::Step(patch.index);
            let in_order = patch.effects.iter();
            let in_order =
                against_base(in_order.filter(|effect| effect.kind == EffectKind::InOrder));
            let known = |workload: &str, meter: Meter| {
                let row = (point, meter, workload);
                in_order.get(&row).or_else(|| of_total.get(&row)).copied()
            };
            let effects = self.by_workload(|workload, meter| match known(workload, meter) {
                Some(effect) => Some(Effect {
                    kind: EffectKind::Cumulative,
                    ..effect.clone()
                }),
                None => {
                    let pair = std::iter::once((point, Point::BASE));
                    self.first_of(EffectKind::Cumulative, workload, meter, pair)
                }
            });
            let behind = patch
                .effects
                .partition_point(|effect| effect.kind == EffectKind::InOrder);
            patch.effects.splice(behind..behind, effects);
        };
        if self.is_worth_threads() {
            patches.par_iter_mut().for_each(add);
        } else {
            patches.iter_mut().for_each(add);
        }
    }

    /// Computes the effect of the last point that has figures against the release; several servers that are no series have
    /// none.
    pub(super) fn total(&self) -> Vec<Effect> {
        if self.header.is_of_servers() && self.header.series.len() > 1 {
            return Vec::new();
        }
        let patched = self.points.patched();
        self.by_workload(|workload, meter| {
            let pairs = patched.iter().map(|&point| (point, Point::BASE));
            self.first_of(EffectKind::Total, workload, meter, pairs)
        })
    }

    /// Computes the effects on the operations of workloads: each patch in order, and cumulative.
    pub(super) fn of_operations(&self) -> Vec<Operation> {
        let mut made = Vec::new();
        for (&meter, names) in self.operations {
            for name in names {
                let mut effects = Vec::new();
                for index in 1..=self.header.series.len() {
                    let point = Point::Step(index);
                    effects.extend(self.in_order(point, name, meter));
                    let all = std::iter::once((point, Point::BASE));
                    effects.extend(self.first_of(EffectKind::Cumulative, name, meter, all));
                }
                let row = RowName::from(name.as_str());
                made.push(Operation {
                    workload: row.workload.to_owned(),
                    operation: row.operation.unwrap_or_default().to_owned(),
                    meter,
                    effects,
                });
            }
        }
        made
    }

    /// Computes the effect in order minus the effect without, block by block, so that their common values are
    /// not counted twice.
    fn interaction(&self, index: usize, full: Point) -> Vec<Effect> {
        let (before, point) = (Point::Step(index - 1), Point::Step(index));
        let without = Point::Without(index);
        let weights = [(before, 1.0), (point, -1.0), (without, -1.0), (full, 1.0)];
        let points = (point, without);
        self.by_workload(|workload, meter| {
            let of = Contrast {
                kind: EffectKind::Interaction,
                points,
                weights: &weights,
                pairing: Pairing::WithinBlocks,
            };
            self.freshest(|stale| self.contrast(&of, workload, meter, stale))
        })
    }

    /// Computes the effects of `point` by meter, the suite first, then the workloads; each against the first
    /// of `against` that it can be compared with.
    pub(super) fn of_kind(&self, kind: EffectKind, point: Point, against: &[Point]) -> Vec<Effect> {
        self.by_workload(|workload, meter| {
            let pairs = against.iter().map(|&against| (point, against));
            self.first_of(kind, workload, meter, pairs)
        })
    }

    /// Returns the effect of the first comparable pair (point and baseline) of `pairs`: within blocks, or
    /// across them if no pair shares a block.
    fn first_of(
        &self,
        kind: EffectKind,
        workload: &str,
        meter: Meter,
        pairs: impl Iterator<Item = (Point, Point)> + Clone,
    ) -> Option<Effect> {
        self.freshest(|stale| {
            let pairings = [Pairing::WithinBlocks, Pairing::AcrossBlocks];
            pairings.into_iter().find_map(|pairing| {
                pairs.clone().find_map(|(point, against)| {
                    let weights = [(against, 1.0), (point, -1.0)];
                    let of = Contrast {
                        kind,
                        points: (point, against),
                        weights: &weights,
                        pairing,
                    };
                    self.contrast(&of, workload, meter, stale)
                })
            })
        })
    }

    /// Returns the result of `find` from experiments that are not stale or, failing that, from stale ones.
    fn freshest<R>(&self, find: impl Fn(bool) -> Option<R>) -> Option<R> {
        find(false).or_else(|| find(true))
    }

    /// Calls `make` for each meter's suite and its workloads, and collects the results.
    pub(super) fn by_workload<R>(&self, make: impl Fn(&str, Meter) -> Option<R>) -> Vec<R> {
        let mut made = Vec::new();
        for (&meter, workloads) in self.workloads {
            let suite = (workloads.len() > 1).then_some(SUITE);
            let single = workloads.iter().map(String::as_str);
            for workload in suite.into_iter().chain(single) {
                made.extend(make(workload, meter));
            }
        }
        made
    }

    /// Computes the effect for the contrast `of` log costs, from the first source that has it among the
    /// `stale` ones or the others.
    fn contrast(
        &self,
        of: &Contrast<'_>,
        workload: &str,
        meter: Meter,
        stale: bool,
    ) -> Option<Effect> {
        let failed = &self.header.failed;
        if of
            .weights
            .iter()
            .any(|(point, _)| failed.contains_key(point))
        {
            return None;
        }
        let stopping_rule = self.stopping_rule(0, meter);
        let effect = Effect {
            kind: of.kind,
            workload: workload.to_owned(),
            meter,
            point: of.points.0,
            against: of.points.1,
            estimate: 0.0,
            low: Some(0.0),
            high: Some(0.0),
            level: stopping_rule.level(),
            interval: stopping_rule,
            standard_error: Some(0.0),
            verdict: Verdict::NoEffect,
            minimum_detectable: Some(0.0),
            equivalent: true,
            p_value: None,
            p_adjusted: None,
            error_share: None,
            blocks: 0,
            units: 0,
            identical: true,
            executed: true,
            unpaired: false,
            with_control: false,
            tail: None,
            cells: None,
            provenance: None,
            basis: None,
            ended_half_width: None,
        };
        let of_pair = self.of_servers(of.weights);
        if of_pair.is_empty() {
            return Some(effect);
        }
        let unexecuted = || Effect {
            identical: false,
            executed: false,
            ..effect.clone()
        };
        let is_unexecuted = self.is_unexecuted(&of_pair, workload, meter);
        if is_unexecuted && meter.is_timed() {
            return Some(unexecuted());
        }
        if self.untimed.contains(workload) && meter.is_timed() {
            return None;
        }
        self.by_staleness(&self.completed, stale)
            .find_map(|(place, source)| {
                let tables = self.tables(&source.blocks, workload, meter)?;
                let averaged = self.averaged(of.pairing, &tables, &of_pair);
                let weights = averaged.as_deref().unwrap_or(&of_pair);
                let stopping_rule = self.stopping_rule(place, meter);
                let sample = ContrastSample {
                    tables: &tables,
                    units: source.independent(meter, Some(workload), false),
                    stopping_rule,
                    counts: is_count(meter),
                    shared: self.shared((place, None, meter), workload, weights),
                    states: states(meter),
                    costs: None,
                    machines: source.machines.strata().filter(|_| meter.is_timed()),
                };
                let ContrastEstimate {
                    interval,
                    blocks,
                    units,
                    ..
                } = sample.compare(weights, of.pairing)?;
                let judged = |interval: Interval| match of.pairing {
                    Pairing::WithinBlocks => {
                        let squares: f64 = weights.iter().map(|(_, weight)| weight * weight).sum();
                        let interval = match self.priors.get((place, meter), workload) {
                            Some(prior) => interval.moderated(prior, squares),
                            None => interval,
                        };
                        let key = (place, None, meter);
                        self.correlations.widen(key, workload, interval)
                    }
                    Pairing::AcrossBlocks => interval,
                };
                let at_end = self.rule_at_end(meter);
                let if_ended =
                    (interval.stopping_rule != at_end).then(|| judged(interval.under_rule(at_end)));
                let interval = judged(interval);
                let if_ended = if_ended.unwrap_or(interval);
                let units = match of.pairing {
                    Pairing::WithinBlocks => units.min(interval.blocks),
                    Pairing::AcrossBlocks => units,
                };
                let rounding = self.rounding(&tables, weights, meter);
                let if_ended = if_ended.rounded(rounding).half_width;
                let interval = interval.rounded(rounding);
                let known = interval.half_width.is_finite();
                let margin = self.margins.get(&meter).copied().unwrap_or(0.0);
                let mut found = Effect {
                    estimate: speed(interval.estimate),
                    low: known.then(|| speed(interval.low())),
                    high: known.then(|| speed(interval.high())),
                    verdict: verdict(&interval, Some(margin)),
                    minimum_detectable: known.then(|| speed(interval.minimum_detectable(1.0))),
                    equivalent: interval.equivalent(margin),
                    level: interval.stopping_rule.level(),
                    interval: interval.stopping_rule,
                    standard_error: Some(interval.standard_error).filter(|error| error.is_finite()),
                    p_value: interval
                        .standard_error
                        .is_finite()
                        .then(|| interval.p_value()),
                    blocks,
                    units,
                    identical: false,
                    unpaired: of.pairing == Pairing::AcrossBlocks,
                    with_control: averaged.is_some(),
                    tail: self.tail(of, &of_pair, (workload, meter), place, stopping_rule),
                    provenance: Some(self.provenance(place)),
                    basis: Some(interval),
                    ended_half_width: Some(if_ended).filter(|width| width.is_finite()),
                    ..effect.clone()
                };
                if let Some(tail) = &mut found.tail {
                    tail.typical = found.verdict;
                }
                // Counts are read at all points. Those that contradict the claim are shown, with a warning.
                if is_unexecuted && (found.equivalent || !found.leaves_out_zero()) {
                    return Some(unexecuted());
                }
                if stale {
                    found.verdict = Verdict::Unclear;
                    found.equivalent = false;
                    found.p_value = None;
                    found.tail = None;
                }
                Some(found)
            })
    }

    /// Computes the mean and the tail of the contrast's slices in the source at `place`; `None` if the source
    /// has neither.
    fn tail(
        &self,
        of: &Contrast<'_>,
        of_pair: &[(Point, f64)],
        (workload, meter): (&str, Meter),
        place: usize,
        stopping_rule: StoppingRule,
    ) -> Option<Box<TailFigures>> {
        let source = &self.completed[place];
        if of.kind == EffectKind::Interaction || source.tails.is_empty() {
            return None;
        }
        let margin = self.margins.get(&meter).copied();
        let figure = |statistic: Statistic| -> Option<TailFigure> {
            let tables = self.tables(source.tails.get(&statistic)?, workload, meter)?;
            let averaged = self.averaged(of.pairing, &tables, of_pair);
            let weights = averaged.as_deref().unwrap_or(of_pair);
            let counts = statistic.is_share();
            let typical = self.tables(&source.blocks, workload, meter)?;
            let costs = (statistic == Statistic::Mean).then(|| MeanCost::new(&tables, &typical));
            let least = margin.unwrap_or(0.0) / 2.0;
            let heavy_tail = costs.as_ref().and_then(|costs| {
                let stalled = source.tails.get(&Statistic::Stalled)?;
                costs.heavy_tail(&self.tables(stalled, workload, meter)?, weights, least)
            });
            let sample = ContrastSample {
                tables: &tables,
                units: source.independent(meter, Some(workload), false),
                stopping_rule,
                counts,
                shared: self.shared((place, Some(statistic), meter), workload, weights),
                // Most shares of slow slices are 0 at every start.
                states: 0.0,
                costs,
                machines: source.machines.strata().filter(|_| meter.is_timed()),
            };
            let found = sample.compare(weights, of.pairing)?;
            let (interval, blocks) = (found.interval, found.blocks);
            // An exact test holds at one look only.
            let is_exchangeable = statistic == Statistic::Stalled
                && of.pairing == Pairing::WithinBlocks
                && stopping_rule != StoppingRule::Anytime;
            let key = (place, Some(statistic), meter);
            let widened = match of.pairing {
                Pairing::WithinBlocks => self.correlations.widen(key, workload, interval),
                Pairing::AcrossBlocks => interval,
            };
            // The better of two tests, at half of the error each.
            let permuted = is_exchangeable
                .then(|| {
                    let means =
                        self.tables(source.tails.get(&Statistic::Mean)?, workload, meter)?;
                    MeanCost::new(&means, &typical).stalls_alike(&tables, weights, sample.units)
                })
                .flatten()
                .filter(|found| found.p_value < widened.p_value());
            // Exchanges hold whatever neighbouring blocks share.
            let interval = if permuted.is_some() {
                interval
            } else {
                widened
            };
            let known = interval.half_width.is_finite() && heavy_tail.is_none();
            let ends = interval.skewed(&sample.skewed_values(&found));
            let shown = |value: f64| if counts { value } else { speed(value) };
            let level = |point: Point| {
                let server = self.server_of(point);
                let single = [(server, 1.0)];
                let both = [(server, 0.5), (Point::Control, 0.5)];
                let is_average = averaged.is_some() && server == self.server_of(Point::BASE);
                let mean = self.levels.get((key, server, is_average), workload, || {
                    let values = sample.by_block(if is_average { &both } else { &single });
                    values.iter().map(|(_, v)| v).sum::<f64>() / values.len().max(1) as f64
                });
                if counts { mean } else { mean.exp() }
            };
            let tests = if is_exchangeable { 2.0 } else { 1.0 };
            let (p_value, verdict) = match permuted {
                Some(found) => (
                    Some((tests * found.p_value).min(1.0)),
                    if found.is_more {
                        Verdict::Slower
                    } else {
                        Verdict::Faster
                    },
                ),
                None => (
                    (interval.standard_error.is_finite() && heavy_tail.is_none())
                        .then(|| (tests * ends.towards_zero().p_value()).min(1.0)),
                    if heavy_tail.is_some() {
                        Verdict::Unclear
                    } else {
                        ends.verdict(margin.filter(|_| statistic == Statistic::Mean))
                    },
                ),
            };
            Some(TailFigure {
                estimate: shown(interval.estimate),
                low: known.then(|| shown(ends.low.low())),
                high: known.then(|| shown(ends.high.high())),
                before: level(of.points.1),
                after: level(of.points.0),
                verdict,
                p_value,
                p_adjusted: None,
                error_share: None,
                blocks,
                with_control: averaged.is_some(),
                heavy_tail,
                basis: heavy_tail.is_none().then(|| ends.wider()),
            })
        };
        let tail = TailFigures {
            typical: Verdict::Unclear,
            mean: figure(Statistic::Mean),
            slow: figure(Statistic::Slow),
            p99: figure(Statistic::P99),
            stalled: figure(Statistic::Stalled),
        };
        tail.figures().next()?;
        Some(Box::new(tail))
    }

    /// Returns [`SharedSpreads::shared`] over a workload, or over all workloads of a suite.
    fn shared(
        &self,
        key: TableKey,
        workload: &str,
        weights: &[(Point, f64)],
    ) -> Option<SharedVariance> {
        match workload {
            SUITE => {
                let names = self.workloads.get(&key.2)?;
                self.spreads
                    .shared(key, names.iter().map(String::as_str), weights)
            }
            workload => self.spreads.shared(key, std::iter::once(workload), weights),
        }
    }

    /// Replaces points by the points that have their binary's observations, and adds up their weights;
    /// weights of 0 are dropped.
    pub(super) fn of_servers(&self, weights: &[(Point, f64)]) -> Vec<(Point, f64)> {
        let mut joined: BTreeMap<Point, f64> = BTreeMap::new();
        for &(point, weight) in weights {
            *joined.entry(self.server_of(point)).or_default() += weight;
        }
        joined.retain(|_, weight| *weight != 0.0);
        joined.into_iter().collect()
    }

    /// Returns `weights` of servers with half of the release's weight moved to its control, if every block of
    /// `tables` that has their points has the control, too; `None` otherwise, and if they do not have the
    /// release, or have the control already.
    ///
    /// The control is the release once more, so the mean of both is known better than either. A block is worth
    /// more than the second value, so the control is left out rather than any block.
    pub(super) fn with_control(
        &self,
        tables: &[&BlockTable],
        weights: &[(Point, f64)],
    ) -> Option<Vec<(Point, f64)>> {
        if self.header.failed.contains_key(&Point::Control)
            || weights.iter().any(|&(point, _)| point == Point::Control)
        {
            return None;
        }
        let release = self.server_of(Point::BASE);
        let place = weights.iter().position(|&(point, _)| point == release)?;
        let has_control =
            |table: &&BlockTable| table.points().binary_search(&Point::Control).is_ok();
        if !tables.iter().all(has_control) {
            return None;
        }
        let mut averaged = weights.to_vec();
        averaged[place].1 /= 2.0;
        averaged.push((Point::Control, averaged[place].1));
        let with_both = mean_contrast(tables, &averaged).len();
        (with_both > 0 && with_both == mean_contrast(tables, weights).len()).then_some(averaged)
    }

    /// Returns [`Effects::with_control`] where points are compared within blocks.
    fn averaged(
        &self,
        pairing: Pairing,
        tables: &[&BlockTable],
        weights: &[(Point, f64)],
    ) -> Option<Vec<(Point, f64)>> {
        match pairing {
            Pairing::WithinBlocks => self.with_control(tables, weights),
            Pairing::AcrossBlocks => None,
        }
    }

    /// Iterates over the stale `sources`, or over the others, with their indices.
    pub(super) fn by_staleness<'s>(
        &self,
        sources: &'s [ObservationSource],
        stale: bool,
    ) -> impl Iterator<Item = (usize, &'s ObservationSource)> {
        sources
            .iter()
            .enumerate()
            .filter(move |(place, _)| stale == self.is_stale(*place))
    }

    /// Returns whether the servers of a contrast are the same program for a workload, or for each of a suite: it does
    /// not execute what distinguishes them.
    fn is_unexecuted(&self, of_servers: &[(Point, f64)], workload: &str, meter: Meter) -> bool {
        if self.unexecuted.is_empty() {
            return false;
        }
        let on = |workload: &str| {
            let mut joined: BTreeMap<Point, f64> = BTreeMap::new();
            for &(point, weight) in of_servers {
                let program = self.unexecuted.program(workload, point);
                *joined.entry(program).or_default() += weight;
            }
            joined.values().all(|weight| *weight == 0.0)
        };
        match workload {
            SUITE => {
                let names = self.workloads.get(&meter);
                names.is_some_and(|names| names.iter().all(|name| on(name)))
            }
            workload => on(workload),
        }
    }

    /// Returns the rule that determined the number of blocks of the source at `place`.
    pub(super) fn stopping_rule(&self, place: usize, meter: Meter) -> StoppingRule {
        let own = self.stopping_rules.get(&meter).copied();
        match place {
            0 => own.unwrap_or(StoppingRule::FixedSample),
            // Reused experiments had ended.
            _ => self.rule_at_end(meter),
        }
    }

    /// Returns the rule that will have determined the number of blocks at the end.
    fn rule_at_end(&self, meter: Meter) -> StoppingRule {
        if self.stops.contains(&meter) {
            StoppingRule::FixedWidth
        } else {
            StoppingRule::FixedSample
        }
    }

    /// Returns the bound of a contrast's error that comes from the meter's step size: half a step per side.
    pub(super) fn rounding(
        &self,
        tables: &[&BlockTable],
        weights: &[(Point, f64)],
        meter: Meter,
    ) -> f64 {
        let Some(step) = self.clock.get(&meter) else {
            return 0.0;
        };
        let of = |table: &&BlockTable| -> f64 {
            let sides = weights.iter();
            sides
                .map(|&(point, weight)| 0.5 * weight.abs() * steps(table, point, *step).recip())
                .sum()
        };
        tables.iter().map(of).sum::<f64>() / tables.len().max(1) as f64
    }

    fn is_stale(&self, place: usize) -> bool {
        place > 0 && self.header.reused[place - 1].stale.is_some()
    }

    pub(super) fn provenance(&self, place: usize) -> Provenance {
        if place == 0 {
            return Provenance::Measured;
        }
        let name = self.header.reused[place - 1].experiment.clone();
        if self.is_stale(place) {
            Provenance::Stale(name)
        } else {
            Provenance::Reused(name)
        }
    }

    /// Returns the tables of a workload, or of all workloads of a suite; `None` if one is missing.
    pub(super) fn tables<'t>(
        &self,
        tables: &'t TablesByMeter,
        workload: &str,
        meter: Meter,
    ) -> Option<Vec<&'t BlockTable>> {
        let of_meter = tables.get(&meter)?;
        match workload {
            SUITE => {
                let names = self.workloads.get(&meter)?;
                names.iter().map(|name| of_meter.get(name)).collect()
            }
            workload => Some(vec![of_meter.get(workload)?]),
        }
    }

    /// Returns the point whose observations stand for `point`: the measured one with the same binary. The
    /// control has the release's binary by design and is not replaced.
    pub(super) fn server_of(&self, point: Point) -> Point {
        self.points.server_of(point)
    }

    fn is_measured(&self, point: Point) -> bool {
        self.points.is_measured(point)
    }

    fn is_known(&self, point: Point) -> bool {
        self.header.identical.contains_key(&point) || self.is_measured(point)
    }
}

/// Maps point, meter and workload to the effect against the release, the first if there are several.
fn against_base<'e>(
    effects: impl Iterator<Item = &'e Effect>,
) -> BTreeMap<(Point, Meter, &'e str), &'e Effect> {
    let mut by_row = BTreeMap::new();
    for effect in effects.filter(|effect| effect.against == Point::BASE) {
        let row = (effect.point, effect.meter, effect.workload.as_str());
        by_row.entry(row).or_insert(effect);
    }
    by_row
}

/// Returns the number of meter steps in one value of `point` over all its transactions; infinite without
/// values.
pub(super) fn steps(table: &BlockTable, point: Point, step: f64) -> f64 {
    match (table.mean(point), table.transactions_a_value()) {
        (Some(mean), Some(transactions)) => mean.exp() * transactions / step,
        _ => f64::INFINITY,
    }
}

/// The blocks of two points that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pairing {
    /// Blocks that have both points: block effects cancel.
    WithinBlocks,
    /// All blocks of one point with all blocks of the other, because no block has both.
    AcrossBlocks,
}

/// A contrast of points: `weights` of the logarithms of their costs, reported as an effect of `points.0`
/// against `points.1`.
struct Contrast<'a> {
    kind: EffectKind,
    points: (Point, Point),
    weights: &'a [(Point, f64)],
    pairing: Pairing,
}

/// The estimate of a contrast.
struct ContrastEstimate {
    interval: Interval,
    blocks: usize,
    /// The number of independent units.
    units: usize,
    /// Its value in each block; empty where it is not compared within blocks.
    by_block: Vec<(u32, f64)>,
}

/// The values behind a contrast.
struct ContrastSample<'a> {
    tables: &'a [&'a BlockTable],
    units: Option<&'a Units>,
    stopping_rule: StoppingRule,
    /// Whether the values are counts.
    counts: bool,
    /// The pooled variance of counts.
    shared: Option<SharedVariance>,
    /// The distance of two states of a server that counts distinguish, as a fraction.
    states: f64,
    /// The same tables, where they have means of slices.
    costs: Option<MeanCost<'a>>,
    /// The machine of each block, where machines weigh alike.
    machines: Option<&'a BTreeMap<u32, u32>>,
}

impl ContrastSample<'_> {
    /// Estimates the contrast; `None` without values.
    fn compare(&self, weights: &[(Point, f64)], pairing: Pairing) -> Option<ContrastEstimate> {
        match pairing {
            Pairing::WithinBlocks => {
                let by_block = self.by_block(weights);
                let found = self.interval(weights, &by_block)?;
                Some(ContrastEstimate {
                    interval: found.interval,
                    blocks: by_block.len(),
                    units: found.units,
                    by_block,
                })
            }
            Pairing::AcrossBlocks => self.across(weights),
        }
    }

    fn interval(&self, weights: &[(Point, f64)], by_block: &[(u32, f64)]) -> Option<UnitInterval> {
        if self.counts {
            let values = Units::values(self.units, by_block);
            return Some(UnitInterval {
                interval: Interval::of_counts(
                    &values,
                    self.stopping_rule,
                    self.shared,
                    self.states,
                )?,
                units: values.len(),
            });
        }
        let of_machines = self
            .machines
            .and_then(|machines| over_machines(self.units, machines, by_block, self.stopping_rule));
        match of_machines {
            Some(found) => Some(found),
            None => over_units(self.units, weights, by_block, self.stopping_rule),
        }
    }

    /// Returns the values of independent units whose mean is the contrast, if they are mean costs of blocks, which have a
    /// long tail.
    fn skewed_values(&self, found: &ContrastEstimate) -> Vec<f64> {
        if self.costs.is_some() {
            Units::values(self.units, &found.by_block)
        } else {
            Vec::new()
        }
    }

    /// Returns one value per block that has all points, sorted by block, whose mean is the contrast.
    fn by_block(&self, weights: &[(Point, f64)]) -> Vec<(u32, f64)> {
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
        let of = |point| -> Option<(UnitInterval, usize)> {
            let weights = [(point, weight)];
            let by_block = self.by_block(&weights);
            let found = over_units(self.units, &weights, &by_block, StoppingRule::FixedSample)?;
            Some((found, by_block.len()))
        };
        let ((first, blocks), (second, others)) = (of(one)?, of(other)?);
        let interval = first.interval.minus(&second.interval);
        Some(ContrastEstimate {
            interval,
            blocks: blocks + others,
            units: first.units + second.units,
            by_block: Vec::new(),
        })
    }
}

/// Returns the interval of a contrast's mean over the independent units of its blocks.
pub(super) fn over_units(
    units: Option<&Units>,
    weights: &[(Point, f64)],
    by_block: &[(u32, f64)],
    stopping_rule: StoppingRule,
) -> Option<UnitInterval> {
    let none = Units::default();
    let points: Vec<Point> = weights.iter().map(|(point, _)| *point).collect();
    units
        .unwrap_or(&none)
        .interval(&points, by_block, stopping_rule)
}

/// Returns the interval of a contrast's mean over machines, each with the same weight; `None` where a machine has too few
/// units, or a unit has blocks of several machines.
fn over_machines(
    units: Option<&Units>,
    machines: &BTreeMap<u32, u32>,
    by_block: &[(u32, f64)],
    stopping_rule: StoppingRule,
) -> Option<UnitInterval> {
    let none = Units::default();
    let units = units.unwrap_or(&none);
    let mut of_machines: BTreeMap<u32, Vec<(u32, f64)>> = BTreeMap::new();
    for &(block, value) in by_block {
        let machine = *machines.get(&block)?;
        if machines.get(&units.of(block)) != Some(&machine) {
            return None;
        }
        of_machines.entry(machine).or_default().push((block, value));
    }
    let values: Vec<Vec<f64>> = of_machines.values().map(|of| units.means(of)).collect();
    let interval = Interval::stratified(&values, stopping_rule)?;
    Some(UnitInterval {
        interval,
        units: interval.blocks,
    })
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

/// Returns whether the values of `meter` are counts, of events or of what a server uses: starts may agree exactly or lie
/// far apart, so few of them show little of their variance.
fn is_count(meter: Meter) -> bool {
    !meter.is_timed() || meter.is_usage()
}

/// Returns how far apart two states are in which a server may start, as a fraction of a count: hash seeds and addresses were
/// seen to change instructions by 4 · 10⁻⁴, and what a server uses by a per cent.
fn states(meter: Meter) -> f64 {
    if meter.is_usage() { 1e-2 } else { 4e-4 }
}

impl SkewedInterval {
    /// Returns the verdict as [`verdict`] does.
    fn verdict(&self, margin: Option<f64>) -> Verdict {
        match verdict(&self.towards_zero(), None) {
            Verdict::Unclear if margin.is_some_and(|margin| self.wider().equivalent(margin)) => {
                Verdict::NoEffect
            }
            verdict => verdict,
        }
    }
}

/// Returns the verdict for a single interval; `no effect` requires a margin.
fn verdict(interval: &Interval, margin: Option<f64>) -> Verdict {
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
