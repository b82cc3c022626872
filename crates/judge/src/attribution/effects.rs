//! Effects of patches as contrasts of points, each from the first experiment that has the points.

mod tail;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::contrast::{Contrast, ContrastSample, Pairing, mean_contrast, verdict};
use super::correlation::{Correlations, TableKey};
use super::document::{
    DRIFT, Dependence, Effect, EffectKind, Operation, PatchEffects, Provenance, SUITE, Verdict,
};
use super::pairs::Pairs;
use super::points::Points;
use super::tables::{NamesByMeter, ObservationSource, TablesByMeter, ValueRow};
use super::unexecuted::Unexecuted;
use super::variances::{Priors, SharedSpreads, is_count, states};
use super::warnings::Ground;
use crate::stats::{
    BlockTable, Interval, SlowVariation, StoppingRule, digit_error, run_that_differs, speed,
};
use perfquilt_model::observation::{ExperimentHeader, Meter, RowName, Statistic, Withheld};
use perfquilt_model::point::Point;
use tail::TailContrast;

pub(super) use tail::PointMeans;

/// The least product of blocks and patches for which threads pay off.
const WORTH_THREADS: usize = 100_000;

/// In which blocks points are compared, in order of preference.
const PAIRINGS: [Pairing; 2] = [Pairing::WithinBlocks, Pairing::AcrossBlocks];

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
    /// The meter whose typical effects alone are computed; `None` for all figures of all meters.
    pub(super) widths_of: Option<Meter>,
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
    /// The effects that the observations cannot tell.
    pub(super) withheld: &'a [Withheld],
    /// What takes away the ground of further verdicts.
    pub(super) grounds: Vec<Ground>,
    /// Whether blocks of whole workloads depend on each other.
    pub(super) dependence: Vec<Dependence>,
    /// Which points can be compared.
    pub(super) pairs: Pairs,
    /// Means of single points, which many effects show.
    pub(super) levels: PointMeans,
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
        let blocks: usize = blocks.map(|(_, table)| table.blocks()).sum();
        blocks * self.header.series.len() >= WORTH_THREADS
    }

    pub(super) fn patch(&self, index: usize) -> PatchEffects {
        let header = self.header;
        let point = Point::Step(index);
        let full = Point::Step(header.series.len());
        let mut effects = self.by_workload(|row| self.in_order(point, row));
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
            line_numbers: header.line_numbers.contains(&point),
            unread: header.unread.get(&point).cloned().unwrap_or_default(),
            not_in_server: header.unread.contains_key(&point)
                && self.points.server_of(point) == self.points.server_of(Point::Step(index - 1)),
            effects,
            decision: None,
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
        let workload = names.first().map_or(SUITE, String::as_str);
        let row = ValueRow { meter, workload };
        if missing == all
            && self.windowed.contains(&meter)
            && self.has_values(point, row)
            && let Some(before) = self.last_with_values(point, row)
        {
            return Some(format!(
                "no block has it and point {before}, the last before it with figures"
            ));
        }
        let is_of_servers = self.header.is_of_servers();
        Some(match missing {
            0 if all == 1 || has(SUITE) => return None,
            0 => "no block has it on all workloads".to_owned(),
            _ if missing < all => {
                let failed = |name: &&String| self.header.has_failed(name, meter);
                let lacking = names.iter().filter(|name| !has(name));
                match lacking.clone().next() {
                    Some(name) if missing == 1 && failed(&name) => {
                        format!("workload {name} failed")
                    }
                    _ if lacking.clone().all(|name| failed(&name)) => {
                        format!("{missing} of {all} workloads failed")
                    }
                    _ => format!("no figures on {missing} of {all} workloads"),
                }
            }
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
    fn in_order(&self, point: Point, row: ValueRow<'_>) -> Option<Effect> {
        if self.header.is_of_servers() {
            let base = std::iter::once((point, Point::BASE));
            return self.first_of(EffectKind::InOrder, row, base);
        }
        if !self.points.is_comparable(point) {
            return None;
        }
        let is_windowed = self.windowed.contains(&row.meter);
        let pairings = if is_windowed {
            &PAIRINGS[..1]
        } else {
            &PAIRINGS
        };
        let last = is_windowed.then(|| self.last_with_values(point, row));
        let last = last.flatten();
        let server = self.server_of(point);
        self.first_in(EffectKind::InOrder, row, pairings, |pairing, stale| {
            let earlier = self.pairs.earlier(pairing, row, point, server, stale);
            let earlier = earlier.take_while(move |other| last.is_none_or(|last| *other >= last));
            earlier.map(move |against| (point, against))
        })
    }

    /// Returns the last point of the series before `point` that has values of a workload.
    fn last_with_values(&self, point: Point, row: ValueRow<'_>) -> Option<Point> {
        let before = self.pairs.last_valued(row, point);
        before.filter(|_| self.points.is_comparable(point))
    }

    /// Returns whether `point` has usable values on a row.
    fn has_values(&self, point: Point, row: ValueRow<'_>) -> bool {
        let server = self.server_of(point);
        let has = |source: &ObservationSource| {
            let tables = self.tables(&source.blocks, row);
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
            let known = |key| in_order.get(&key).or_else(|| of_total.get(&key));
            let effects = self.by_workload(|row| match known((point, row)) {
                Some(effect) => Some(Effect {
                    kind: EffectKind::Cumulative,
                    ..Effect::clone(effect)
                }),
                None => self.cumulative(point, row),
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

    /// Computes the effect of a point against the release.
    fn cumulative(&self, point: Point, row: ValueRow<'_>) -> Option<Effect> {
        let pair = std::iter::once((point, Point::BASE));
        self.first_of(EffectKind::Cumulative, row, pair)
    }

    /// Computes the effect of the last point that has figures against the release; several servers that are no series have
    /// none.
    pub(super) fn total(&self) -> Vec<Effect> {
        if self.header.is_of_servers() && self.header.series.len() > 1 {
            return Vec::new();
        }
        let patched = self.points.patched();
        let pairs = patched.iter().map(|&point| (point, Point::BASE));
        self.by_workload(|row| self.first_of(EffectKind::Total, row, pairs.clone()))
    }

    /// Computes the effects on the operations of workloads: each patch in order, and cumulative.
    pub(super) fn of_operations(&self) -> Vec<Operation> {
        let mut made = Vec::new();
        for (&meter, names) in self.operations {
            for workload in names {
                let row = ValueRow { meter, workload };
                let mut effects = Vec::new();
                for index in 1..=self.header.series.len() {
                    let point = Point::Step(index);
                    effects.extend(self.in_order(point, row));
                    effects.extend(self.cumulative(point, row));
                }
                let name = RowName::from(workload.as_str());
                made.push(Operation {
                    workload: name.workload.to_owned(),
                    operation: name.operation.unwrap_or_default().to_owned(),
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
        let of = Contrast {
            kind: EffectKind::Interaction,
            points: (point, without),
            weights: vec![(before, 1.0), (point, -1.0), (without, -1.0), (full, 1.0)],
            pairing: Pairing::WithinBlocks,
        };
        self.by_workload(|row| self.freshest(|stale| self.contrast(&of, row, stale)))
    }

    /// Computes the effects of `point` by meter, the suite first, then the workloads; each against the first
    /// of `against` that it can be compared with.
    pub(super) fn of_kind(&self, kind: EffectKind, point: Point, against: &[Point]) -> Vec<Effect> {
        let pairs = against.iter().map(|&against| (point, against));
        self.by_workload(|row| self.first_of(kind, row, pairs.clone()))
    }

    /// Returns the effect of the first comparable pair (point and baseline) of `pairs`: within blocks, or
    /// across them if no pair shares a block.
    fn first_of(
        &self,
        kind: EffectKind,
        row: ValueRow<'_>,
        pairs: impl Iterator<Item = (Point, Point)> + Clone,
    ) -> Option<Effect> {
        self.first_in(kind, row, &PAIRINGS, |_, _| pairs.clone())
    }

    /// Returns the effect of the first comparable pair of those that `pairs` has for a pairing and for experiments that are
    /// stale or not, in the first of the `pairings` in which there is one.
    fn first_in<I: Iterator<Item = (Point, Point)>>(
        &self,
        kind: EffectKind,
        row: ValueRow<'_>,
        pairings: &[Pairing],
        pairs: impl Fn(Pairing, bool) -> I,
    ) -> Option<Effect> {
        self.freshest(|stale| {
            pairings.iter().find_map(|&pairing| {
                pairs(pairing, stale).find_map(|points| {
                    let of = Contrast::of_pair(kind, points, pairing);
                    self.contrast(&of, row, stale)
                })
            })
        })
    }

    /// Returns the result of `find` from experiments that are not stale or, failing that, from stale ones.
    fn freshest<R>(&self, find: impl Fn(bool) -> Option<R>) -> Option<R> {
        find(false).or_else(|| find(true))
    }

    /// Calls `make` for each meter's suite and its workloads, and collects the results.
    pub(super) fn by_workload<'s, R>(&'s self, make: impl Fn(ValueRow<'s>) -> Option<R>) -> Vec<R> {
        let mut made = Vec::new();
        let is_asked = |meter: &Meter| self.widths_of.is_none_or(|only| only == *meter);
        for (&meter, workloads) in self.workloads.iter().filter(|(meter, _)| is_asked(meter)) {
            let suite = (workloads.len() > 1).then_some(SUITE);
            let single = workloads.iter().map(String::as_str);
            for workload in suite.into_iter().chain(single) {
                made.extend(make(ValueRow { meter, workload }));
            }
        }
        made
    }

    /// Computes the effect for the contrast `of` log costs, from the first source that has it among the
    /// `stale` ones or the others.
    fn contrast(&self, of: &Contrast, row: ValueRow<'_>, stale: bool) -> Option<Effect> {
        let is_failed = |(point, _): &(Point, f64)| self.header.failed.contains_key(point);
        if of.weights.iter().any(is_failed) {
            return None;
        }
        let of_servers = self.of_servers(&of.weights);
        if of_servers.is_empty() {
            return Some(self.of_same_program(of, row));
        }
        let unexecuted = || Effect {
            identical: false,
            executed: false,
            ..self.of_same_program(of, row)
        };
        let is_unexecuted = self.is_unexecuted(&of_servers, row);
        if is_unexecuted && row.meter.is_timed() {
            return Some(unexecuted());
        }
        if self.untimed.contains(row.workload) && row.meter.is_timed() {
            return None;
        }
        let mut sources = self.by_staleness(&self.completed, stale);
        let mut found =
            sources.find_map(|(place, _)| self.measured(of, &of_servers, row, place))?;
        // Counts are read at all points. Those that contradict the claim are shown, with a warning.
        if is_unexecuted && (found.equivalent || !found.leaves_out_zero()) {
            return Some(unexecuted());
        }
        if stale {
            found.verdict = Verdict::Unclear;
            found.equivalent = false;
            found.p_value = None;
            found.tail = None;
        } else {
            self.withhold(std::iter::once(&mut found), &self.grounds);
        }
        Some(found)
    }

    /// Takes back the verdicts of the `effects` that lack ground.
    pub(super) fn withhold<'e>(
        &self,
        effects: impl Iterator<Item = &'e mut Effect>,
        grounds: &[Ground],
    ) {
        let notes = self.withheld.iter();
        let all = || notes.clone().chain(grounds.iter().flat_map(|(_, of)| of));
        for effect in effects {
            let is_of = |of: &&Withheld| {
                let names = self.workloads.get(&effect.meter);
                let is_part = |name: &String| {
                    effect.workload == SUITE && names.is_some_and(|names| names.contains(name))
                };
                let has_row = |name: &String| *name == effect.workload || is_part(name);
                let compared = |point: &Point| {
                    [effect.point, effect.against]
                        .map(|of| self.server_of(of))
                        .contains(point)
                };
                of.meter.is_none_or(|meter| meter == effect.meter)
                    && of.workload.as_ref().is_none_or(has_row)
                    && (of.points.is_empty() || of.points.iter().any(compared))
            };
            let found = || all().filter(&is_of);
            match found().find(|of| of.reason != DRIFT) {
                Some(of) => effect.withhold(&of.reason),
                None if found().next().is_some() => effect.widen_for_drift(),
                None => {}
            }
        }
    }

    /// Returns the effect of points that are one binary: none.
    fn of_same_program(&self, of: &Contrast, row: ValueRow<'_>) -> Effect {
        let stopping_rule = self.stopping_rule(0, row.meter);
        Effect {
            kind: of.kind,
            workload: row.workload.to_owned(),
            meter: row.meter,
            point: of.points.0,
            against: of.points.1,
            low: Some(0.0),
            high: Some(0.0),
            level: stopping_rule.level(),
            interval: stopping_rule,
            standard_error: Some(0.0),
            verdict: Verdict::NoEffect,
            minimum_detectable: Some(0.0),
            equivalent: true,
            identical: true,
            executed: true,
            ..Effect::default()
        }
    }

    /// Estimates a contrast from the source at `place`; `None` without values. `of_servers` has the contrast's weights by
    /// server.
    fn measured(
        &self,
        of: &Contrast,
        of_servers: &[(Point, f64)],
        row: ValueRow<'_>,
        place: usize,
    ) -> Option<Effect> {
        let ValueRow { meter, workload } = row;
        let tables = self.tables(&self.completed[place].blocks, row)?;
        let averaged = self.averaged(of.pairing, &tables, of_servers);
        let weights = averaged.as_deref().unwrap_or(of_servers);
        let stopping_rule = self.stopping_rule(place, meter);
        let key = (place, None, meter);
        let sample = self.sample(&tables, key, workload, weights, stopping_rule);
        let found = sample.compare(weights, of.pairing)?;
        let values = sample.units.means(&found.by_block);
        // Each of several workloads must show no effect for a patch to have none.
        let family = match workload {
            SUITE => 1,
            _ => self.workloads.get(&meter).map_or(1, BTreeSet::len),
        };
        let slow = SlowVariation::of(&values, family).filter(|_| meter.is_timed());
        let judged = |interval: Interval| match of.pairing {
            Pairing::WithinBlocks => {
                let squares: f64 = weights.iter().map(|(_, weight)| weight * weight).sum();
                let prior = self.priors.get(place, row);
                let interval = prior.map_or(interval, |prior| interval.moderated(prior, squares));
                let of_all = self.correlations.widen(key, workload, interval);
                // What one server alone has hardly shows in all of them.
                let own = slow.map_or(interval, |of| of.widen(interval));
                if own.half_width > of_all.half_width {
                    own
                } else {
                    of_all
                }
            }
            Pairing::AcrossBlocks => interval,
        };
        let rounding = self.rounding(&tables, weights, meter, of.pairing);
        let judged = |rule| judged(found.interval.under_rule(rule)).rounded(rounding);
        let interval = judged(found.interval.stopping_rule);
        let ended = match self.rule_at_end(meter) {
            rule if rule == interval.stopping_rule => interval,
            rule => judged(rule),
        };
        let units = match of.pairing {
            Pairing::WithinBlocks => found.units.min(interval.blocks),
            Pairing::AcrossBlocks => found.units,
        };
        let known = interval.half_width.is_finite();
        let margin = self.margins.get(&meter).copied().unwrap_or(0.0);
        let verdict = verdict(&interval, Some(margin));
        let has_error = interval.standard_error.is_finite();
        let is_of_one_machine = self.completed[place].machines.names().len() < 2;
        let is_run = verdict.is_shown() && meter.is_timed() && is_of_one_machine;
        let contrast = TailContrast {
            effects: self,
            of,
            of_servers,
            row,
            place,
            stopping_rule,
        };
        let mut tail = match self.widths_of {
            None => contrast.figures(),
            Some(_) => None,
        };
        if let Some(tail) = &mut tail {
            tail.typical = verdict;
        }
        let mut effect = Effect {
            estimate: speed(interval.estimate),
            low: known.then(|| speed(interval.low())),
            high: known.then(|| speed(interval.high())),
            verdict,
            minimum_detectable: None,
            equivalent: interval.equivalent(margin),
            level: interval.stopping_rule.level(),
            interval: interval.stopping_rule,
            standard_error: has_error.then_some(interval.standard_error),
            p_value: has_error.then(|| interval.p_value()),
            blocks: found.blocks,
            units,
            identical: false,
            unpaired: of.pairing == Pairing::AcrossBlocks,
            with_control: averaged.is_some(),
            tail,
            provenance: Some(self.provenance(place)),
            basis: Some(interval),
            of_blocks: Some(found.interval),
            ended_half_width: Some(ended.half_width).filter(|width| width.is_finite()),
            run: is_run
                .then(|| drift_of_run(&values, found.blocks))
                .flatten(),
            ..self.of_same_program(of, row)
        };
        effect.minimum_detectable = effect.detectable(1.0);
        if effect.estimate.abs() < effect.least_claim() && verdict.is_shown() {
            effect.verdict = if effect.equivalent {
                Verdict::NoEffect
            } else {
                Verdict::Unclear
            };
        }
        Some(effect)
    }

    /// Returns the values behind a contrast of the tables `key`.
    pub(super) fn sample<'s>(
        &'s self,
        tables: &'s [&'s BlockTable],
        key: TableKey,
        workload: &str,
        weights: &[(Point, f64)],
        stopping_rule: StoppingRule,
    ) -> ContrastSample<'s> {
        let (place, statistic, meter) = key;
        let source = &self.completed[place];
        let row = ValueRow { meter, workload };
        let names = self.names_of(row);
        ContrastSample {
            tables,
            units: source.independent(row, false),
            stopping_rule,
            counts: statistic.map_or(is_count(meter), Statistic::is_share),
            shared: names.and_then(|names| self.spreads.shared(key, &names, weights)),
            // Most shares of slow slices are 0 at every start.
            states: statistic.map_or(states(meter), |_| 0.0),
            costs: None,
            machines: source.machines.strata().filter(|_| meter.is_timed()),
        }
    }

    /// Returns the workload or operation of a row, or all workloads of a suite.
    fn names_of<'r>(&'r self, row: ValueRow<'r>) -> Option<Vec<&'r str>> {
        if row.workload != SUITE {
            return Some(vec![row.workload]);
        }
        let names = self.workloads.get(&row.meter)?;
        Some(names.iter().map(String::as_str).collect())
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
    pub(super) fn averaged(
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
    fn is_unexecuted(&self, of_servers: &[(Point, f64)], row: ValueRow<'_>) -> bool {
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
        self.names_of(row)
            .is_some_and(|names| names.into_iter().all(on))
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

    /// Returns the bound of a contrast's error that comes from the meter's step size, known or seen in the values: half a step
    /// per side.
    pub(super) fn rounding(
        &self,
        tables: &[&BlockTable],
        weights: &[(Point, f64)],
        meter: Meter,
        pairing: Pairing,
    ) -> f64 {
        let step = self.clock.get(&meter);
        if step.is_none() && is_count(meter) && pairing == Pairing::WithinBlocks {
            return 0.0;
        }
        let of = |table: &&BlockTable| -> f64 {
            let sides = weights.iter();
            sides
                .map(|&(point, weight)| match step {
                    Some(step) => 0.5 * weight.abs() * steps(table, point, *step).recip(),
                    None => weight.abs() * digit_error(&table.contrast(&[(point, 1.0)])),
                })
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
        row: ValueRow<'_>,
    ) -> Option<Vec<&'t BlockTable>> {
        let of_meter = tables.get(&row.meter)?;
        let names = self.names_of(row)?;
        names.into_iter().map(|name| of_meter.get(name)).collect()
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

/// Returns why a difference between values of `blocks` blocks is none if a run of them makes it alone.
fn drift_of_run(values: &[f64], blocks: usize) -> Option<String> {
    let run = run_that_differs(values)? * blocks / values.len();
    Some(format!(
        "{DRIFT} ({run} consecutive blocks of {blocks} show the difference alone)"
    ))
}

/// Maps point and row to the effect against the release, the first if there are several.
fn against_base<'e>(
    effects: impl Iterator<Item = &'e Effect>,
) -> BTreeMap<(Point, ValueRow<'e>), &'e Effect> {
    let mut by_row = BTreeMap::new();
    for effect in effects.filter(|effect| effect.against == Point::BASE) {
        let row = (effect.point, ValueRow::new(&effect.workload, effect.meter));
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
