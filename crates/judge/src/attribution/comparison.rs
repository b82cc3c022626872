//! Comparison of two experiments patch by patch: on two releases, on two machines, or before and after a change.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use strum::Display;

use super::document::{
    Attribution, ComparedWith, Effect, EffectKind, PatchEffects, SUITE, Verdict,
};
use super::summary::effect_on;
use crate::stats::{Interval, LEVEL, StoppingRule, holm, speed};
use perfquilt_model::comparable::Part;
use perfquilt_model::observation::Meter;
use perfquilt_model::warning::{self, Warning};

/// Two experiments, and the difference of each patch's effect between them (docs/json.md).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this document: 1.
    pub schema: u32,
    /// The first experiment.
    pub before: ComparedExperiment,
    /// The second experiment.
    pub after: ComparedExperiment,
    /// The reason why no differences are computed, if there is one: the figures then stand side by side only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomparable: Option<String>,
    /// The figures, by meter and workload; a suite comes before its workloads.
    pub tables: Vec<ComparisonTable>,
    /// Other differences between the experiments, in sentences.
    #[serde(flatten, serialize_with = "warning::fields")]
    pub warnings: Vec<Warning>,
    /// Whether the second experiment repeats the first, whose verdicts it confirms or not ([`replicate`]).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replicates: bool,
}

/// One of two compared experiments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedExperiment {
    /// The experiment's name.
    pub experiment: String,
    /// The release, or the name of the server that the others are compared with.
    pub release: String,
    /// The recipe of the points; empty when unknown.
    pub recipe: String,
    /// When the experiment began, RFC 3339 in UTC; empty when unknown.
    pub started: String,
    /// The measuring harness.
    pub harness: String,
    /// The machine.
    pub machine: BTreeMap<String, String>,
    /// Whether all blocks were measured.
    pub complete: bool,
    /// The reference of its points.
    pub compared_with: ComparedWith,
}

/// The figures of one meter on one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparisonTable {
    /// The meter.
    pub meter: Meter,
    /// The workload, or [`SUITE`] if both experiments have the same workloads.
    pub workload: String,
    /// The number of workloads in the figures.
    pub workloads: usize,
    /// The equivalence margin, as a fraction of speed.
    pub margin: f64,
    /// The patches of both series: those of the second in its order, then those of the first alone.
    pub patches: Vec<ComparisonRow>,
    /// The whole series.
    pub total: ComparisonRow,
}

/// The effect of a patch, or of the whole series, in both experiments.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ComparisonRow {
    /// The patch's name, in the second experiment if both have it; `None` for the whole series.
    pub patch: Option<String>,
    /// Its position in the series of the first experiment, from 1.
    pub index_before: Option<usize>,
    /// Its position in the series of the second experiment, from 1.
    pub index_after: Option<usize>,
    /// Its effect in the first experiment.
    pub before: Option<Effect>,
    /// Its effect in the second experiment.
    pub after: Option<Effect>,
    /// The second effect against the first; `None` unless both were measured, independently of each other, by the same
    /// method.
    pub difference: Option<EffectDifference>,
    /// Whether the first verdict holds in the second experiment, if that repeats the first; `None` where the first has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

/// Whether a verdict holds in a second, independent experiment on the same programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Replication {
    /// It has the same verdict, by its own observations alone.
    Holds,
    /// It has the opposite verdict; or another one, and the effects differ significantly.
    #[strum(to_string = "does not hold")]
    DoesNotHold,
    /// Neither.
    #[strum(to_string = "cannot be told")]
    CannotTell,
}

/// The difference of an effect between two experiments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct EffectDifference {
    /// The ratio of the speeds that both effects stand for, minus 1: 0.01 if the patch makes the server 1 % faster in
    /// the second experiment than it does in the first.
    pub estimate: f64,
    /// The lower confidence limit; `null` if one of the effects has no finite interval.
    pub low: Option<f64>,
    /// The upper confidence limit, likewise.
    pub high: Option<f64>,
    /// The confidence level.
    pub level: f64,
    /// Standard error on the log scale; `null` likewise.
    pub standard_error: Option<f64>,
    /// P-value of the null hypothesis that the effect is the same in both; `null` likewise.
    pub p_value: Option<f64>,
    /// P-value adjusted over the patches of all tables of this kind (suites, or single workloads) and meter; `null` for
    /// the whole series, which is tested alone.
    pub p_adjusted: Option<f64>,
    /// The verdict.
    pub verdict: DifferenceVerdict,
    /// P-value of the null hypothesis that the difference is the margin or more.
    #[serde(skip)]
    pub outside: Option<f64>,
}

/// The verdict on a difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum DifferenceVerdict {
    /// The patch is worth more in the second experiment, significant after adjustment.
    #[strum(to_string = "worth more")]
    More,
    /// It is worth less, likewise.
    #[strum(to_string = "worth less")]
    Less,
    /// Neither, and the difference lies within the margin, significant after adjustment likewise.
    #[strum(to_string = "the same")]
    Same,
    /// None of these.
    #[default]
    Unclear,
}

impl DifferenceVerdict {
    /// Returns whether the difference is significant.
    pub fn is_shown(self) -> bool {
        matches!(self, DifferenceVerdict::More | DifferenceVerdict::Less)
    }
}

impl Comparison {
    /// Iterates over the tables that verdicts are about: the suites, or all tables without one.
    pub fn main_tables(&self) -> impl Iterator<Item = &ComparisonTable> {
        let suite = self.has_suite();
        self.tables
            .iter()
            .filter(move |table| !suite || table.workload == SUITE)
    }

    /// Returns whether both experiments are of servers that are no series.
    pub fn is_of_servers(&self) -> bool {
        let mut both = [&self.before, &self.after].into_iter();
        both.all(|of| of.compared_with == ComparedWith::Base)
    }

    /// Returns the number of verdicts of the first experiment whose replication is `wanted`.
    pub fn replications(&self, wanted: Replication) -> usize {
        let tables = self.tables.iter();
        let rows = tables.flat_map(|table| table.patches.iter().chain([&table.total]));
        rows.filter(|row| row.replication == Some(wanted)).count()
    }

    /// Returns whether there are figures over all workloads.
    pub fn has_suite(&self) -> bool {
        self.tables.iter().any(|table| table.workload == SUITE)
    }
}

/// Compares two experiments patch by patch: in-order effects of the patches that both have, and of the whole series, on
/// every meter and workload that both have.
///
/// The blocks of two experiments are independent, so the variance of a difference is the sum of the variances of both
/// effects (on the log scale), with Welch's degrees of freedom ([`Interval::minus`]). Holm's method adjusts the
/// p-values over patches in both directions: in 95 % of comparisons, no patch whose effect is unchanged is called worth more
/// or less, and in 95 % none whose effect changed by the margin or more is called the same. Effects
/// measured by different harnesses are never compared, nor those that share observations.
pub fn compare(before: &Attribution, after: &Attribution) -> Comparison {
    let incomparable = incomparable(before, after);
    let pairs = pairs(before, after);
    let mut tables = Vec::new();
    let meters = Meter::ALL
        .into_iter()
        .filter(|meter| before.margins.contains_key(meter) && after.margins.contains_key(meter));
    for meter in meters {
        for workload in workloads(before, after, meter) {
            tables.push(table(before, after, &pairs, meter, &workload));
        }
    }
    if incomparable.is_none() {
        judge(before, after, &mut tables);
    }
    Comparison {
        schema: 1,
        before: experiment(before),
        after: experiment(after),
        incomparable,
        tables,
        warnings: warnings(before, after, &pairs),
        replicates: false,
    }
}

/// Compares an experiment `after` that repeats `before` on the same programs, on another machine or by another way of reading meters:
/// whether its verdicts hold.
///
/// Each experiment is judged by its own observations and rules, so a verdict that holds was found twice; where it is wrong here, the
/// chance of finding it is the 5 % of any family of verdicts. One that does not hold differs by Holm's adjustment of the difference,
/// or is opposite, which both families found. Where servers ran in a single layout here and in several there, that layout counts as
/// one more drawn from those: its effect varies around their mean with the variance `s²` of one of their `n` units, which is
/// added to that of the estimate, on the `n − 1` degrees of freedom with which it is known (a prediction interval).
pub fn replicate(before: &Attribution, after: &Attribution) -> Comparison {
    let one_layout = after.noise.layouts < 2 && before.noise.layouts > 1;
    let mut repeated = after.clone();
    if one_layout {
        let rows = repeated.patches.len();
        let effects = repeated
            .patches
            .iter_mut()
            .flat_map(|patch| &mut patch.effects);
        for effect in effects
            .chain(&mut repeated.total)
            .filter(|of| of.meter.is_timed())
        {
            let mut same = before
                .series_effects()
                .filter(|there| same_question(there, effect));
            if let Some(there) = same.next() {
                let margin = after.margins.get(&effect.meter).copied().unwrap_or(0.0);
                effect.vary_with_layout(there, margin, rows);
            }
        }
    }
    let mut compared = compare(before, &repeated);
    compared.replicates = true;
    if compared.incomparable.take().is_some() {
        judge(before, &repeated, &mut compared.tables);
    }
    for table in &mut compared.tables {
        for row in table.patches.iter_mut().chain([&mut table.total]) {
            row.replication = row.replication();
        }
    }
    let others = &mut compared.warnings;
    let bound = before.bound.differences(&after.bound);
    let bound: Vec<String> = bound.map(|of| of.to_string()).collect();
    let bound = match bound.as_slice() {
        [] => Warning::same_programs("Programs and workloads are the same, by their digests."),
        bound => {
            let others = bound.join(", ");
            Warning::other_conditions(format!("The second experiment has {others}."))
        }
    };
    others.insert(0, bound);
    if before.harness != after.harness && !one_layout {
        let (old, new) = (&before.harness, &after.harness);
        others.push(Warning::other_method(format!(
            "They were measured by different methods ({old} and {new})."
        )));
    }
    if one_layout {
        others.push(Warning::layout_from_first(
            "Here the servers ran in a single layout, because they cannot be linked again on this machine: how times vary \
             between layouts is taken from the first experiment, and intervals are wider.",
        ));
    }
    compared
}

/// Returns whether two effects answer the same question.
fn same_question(one: &Effect, other: &Effect) -> bool {
    let question = |of: &Effect| (of.kind, of.meter, of.point, of.against);
    question(one) == question(other) && one.workload == other.workload
}

impl Effect {
    /// Widens an effect that was measured in one layout by the variance that the effect `there` has between units in different
    /// layouts. A verdict that does not hold then for one of so many `rows`, within `margin`, becomes unclear.
    fn vary_with_layout(&mut self, there: &Effect, margin: f64, rows: usize) {
        let (Some(here), Some(mean)) = (self.basis, there.basis) else {
            return;
        };
        let one = mean.standard_error * (there.units as f64).sqrt();
        let freedom = mean.degrees_of_freedom;
        let layout = Interval::with(0.0, one, there.units, freedom, StoppingRule::FixedSample);
        let wide = here.minus(&layout);
        let ends = |of: &Interval| (speed(of.low()), speed(of.high()));
        let known = wide.half_width.is_finite().then(|| ends(&wide));
        (self.low, self.high) = known.unzip();
        let (low, high) = ends(&wide.best_of(rows));
        let is_shown = match self.verdict {
            Verdict::NoEffect | Verdict::NoTypicalEffect => -margin < low && high < margin,
            _ => low > 0.0 || high < 0.0,
        };
        if !is_shown {
            self.verdict = Verdict::Unclear;
        }
        self.basis = Some(wide);
    }
}

impl ComparisonRow {
    fn replication(&self) -> Option<Replication> {
        let (old, new) = (self.before.as_ref()?, self.after.as_ref()?);
        let differs = self.difference.is_some_and(|of| of.verdict.is_shown());
        match (old.verdict, new.verdict) {
            (Verdict::Unclear | Verdict::Mixed, _) => None,
            (one, other) if one == other => Some(Replication::Holds),
            (Verdict::NoTypicalEffect, Verdict::NoEffect) => Some(Replication::Holds),
            (Verdict::Faster, Verdict::Slower) | (Verdict::Slower, Verdict::Faster) => {
                Some(Replication::DoesNotHold)
            }
            (_, Verdict::Unclear | Verdict::Mixed) => Some(Replication::CannotTell),
            _ if differs => Some(Replication::DoesNotHold),
            _ => Some(Replication::CannotTell),
        }
    }
}

fn experiment(of: &Attribution) -> ComparedExperiment {
    ComparedExperiment {
        experiment: of.experiment.clone(),
        release: of.base().to_owned(),
        recipe: of.recipe.clone(),
        started: of.started.clone(),
        harness: of.harness.clone(),
        machine: of.machine.clone(),
        complete: of.is_complete(),
        compared_with: of.compared_with,
    }
}

/// A name and a start time, which tell experiments of different stores from each other.
type Origin<'a> = (&'a str, &'a str);

/// Returns the experiment that measured `effect`.
fn origin<'a>(attribution: &'a Attribution, effect: &'a Effect) -> Origin<'a> {
    let Some(name) = effect.from() else {
        return (&attribution.experiment, &attribution.started);
    };
    let source = attribution
        .sources
        .iter()
        .find(|source| source.experiment == name);
    (name, source.map_or("", |source| &source.started))
}

fn incomparable(before: &Attribution, after: &Attribution) -> Option<String> {
    if (&before.experiment, &before.started) == (&after.experiment, &after.started) {
        return Some("Both are the same experiment.".to_owned());
    }
    if before.is_of_servers() != after.is_of_servers() {
        let why = "One is a series of patches and the other of servers that are no series, so no differences are \
            computed.";
        return Some(why.to_owned());
    }
    let harness = |of: &Attribution| of.observed().only(|part| *part == Part::Harness);
    let difference = harness(before).difference(&harness(after))?;
    Some(format!(
        "They were measured by different methods ({difference}), so no differences are computed."
    ))
}

/// A patch in both series; at least one side has it.
type Pair<'a> = (Option<&'a PatchEffects>, Option<&'a PatchEffects>);

/// Matches the patches of both series by name, else by a title that is unique in each.
fn pairs<'a>(before: &'a Attribution, after: &'a Attribution) -> Vec<Pair<'a>> {
    let named = |of: &'a Attribution, name: &str| of.patches.iter().find(|it| it.name == name);
    let titled = |of: &'a Attribution, title: &str| {
        let mut found = of.patches.iter().filter(|it| it.title == title);
        found
            .next()
            .filter(|_| !title.is_empty() && found.next().is_none())
    };
    let mut pairs: Vec<Pair<'a>> = Vec::new();
    for patch in &after.patches {
        let same_title = || {
            let old = titled(before, &patch.title)?;
            let unique = titled(after, &patch.title).is_some();
            (unique && named(after, &old.name).is_none()).then_some(old)
        };
        let old = named(before, &patch.name).or_else(same_title);
        pairs.push((old, Some(patch)));
    }
    let matched: BTreeSet<usize> = pairs
        .iter()
        .filter_map(|(old, _)| Some(old.as_ref()?.index))
        .collect();
    let only = before
        .patches
        .iter()
        .filter(|patch| !matched.contains(&patch.index));
    pairs.extend(only.map(|patch| (Some(patch), None)));
    pairs
}

/// Returns the workloads that both experiments have figures of, after [`SUITE`] if they are the same several.
fn workloads(before: &Attribution, after: &Attribution, meter: Meter) -> Vec<String> {
    let of = |attribution: &Attribution| -> BTreeSet<String> {
        let measured = attribution.progress.iter().filter(|it| it.meter == meter);
        measured.map(|it| it.workload.clone()).collect()
    };
    let (old, new) = (of(before), of(after));
    let suite = (old == new && old.len() > 1).then(|| SUITE.to_owned());
    suite
        .into_iter()
        .chain(old.intersection(&new).cloned())
        .collect()
}

fn table(
    before: &Attribution,
    after: &Attribution,
    pairs: &[Pair<'_>],
    meter: Meter,
    workload: &str,
) -> ComparisonTable {
    let find = |effects: &[Effect], kind| effect_on(effects, kind, meter, workload).cloned();
    let patch = |&(old, new): &Pair<'_>| ComparisonRow {
        patch: new.or(old).map(|it| it.name.clone()),
        index_before: old.map(|it| it.index),
        index_after: new.map(|it| it.index),
        before: old.and_then(|it| find(&it.effects, EffectKind::InOrder)),
        after: new.and_then(|it| find(&it.effects, EffectKind::InOrder)),
        ..ComparisonRow::default()
    };
    // The last of several servers does not stand for all.
    let total = |of: &Attribution| {
        let total = find(&of.total, EffectKind::Total);
        total.filter(|_| !of.is_of_servers())
    };
    let margin = |of: &Attribution| of.margins.get(&meter).copied().unwrap_or(0.0);
    ComparisonTable {
        meter,
        workload: workload.to_owned(),
        workloads: match workload {
            SUITE => {
                let of_meter = after.progress.iter().filter(|it| it.meter == meter);
                of_meter.count()
            }
            _ => 1,
        },
        margin: margin(before).min(margin(after)),
        patches: pairs.iter().map(patch).collect(),
        total: ComparisonRow {
            before: total(before),
            after: total(after),
            ..ComparisonRow::default()
        },
    }
}

/// Adds the differences and their verdicts to the rows.
fn judge(before: &Attribution, after: &Attribution, tables: &mut [ComparisonTable]) {
    for table in tables.iter_mut() {
        let rows = table.patches.iter_mut().chain([&mut table.total]);
        for row in rows {
            let (Some(old), Some(new)) = (&row.before, &row.after) else {
                continue;
            };
            let independent = !(old.is_measured() && new.is_measured())
                || origin(before, old) != origin(after, new);
            if independent && !old.is_stale() && !new.is_stale() {
                row.difference = difference(old, new, table.margin);
            }
        }
        if let Some(total) = &mut table.total.difference {
            total.judge(total.p_value, total.outside);
        }
    }
    // Patches are judged together: those of the suites, and those of single workloads.
    let families: BTreeSet<(Meter, bool)> = tables.iter().map(family).collect();
    for of in families {
        let mut differences: Vec<&mut EffectDifference> = tables
            .iter_mut()
            .filter(|table| family(table) == of)
            .flat_map(|table| &mut table.patches)
            .filter_map(|row| row.difference.as_mut())
            .filter(|difference| difference.p_value.is_some())
            .collect();
        let raw: Vec<f64> = differences.iter().filter_map(|it| it.p_value).collect();
        let outside = differences.iter().map(|it| it.outside.unwrap_or(1.0));
        let outside = holm(&outside.collect::<Vec<_>>());
        let adjusted = holm(&raw).into_iter().zip(outside);
        for (difference, (adjusted, outside)) in differences.iter_mut().zip(adjusted) {
            difference.p_adjusted = Some(adjusted);
            difference.judge(Some(adjusted), Some(outside));
        }
    }
}

fn family(table: &ComparisonTable) -> (Meter, bool) {
    (table.meter, table.workload == SUITE)
}

/// Returns the difference of two independent effects, not judged yet unless it is exactly 0.
fn difference(old: &Effect, new: &Effect, margin: f64) -> Option<EffectDifference> {
    // Effects that are exactly 0 have no error.
    let interval = match (old.is_measured(), new.is_measured()) {
        (true, true) => new.basis.as_ref()?.minus(old.basis.as_ref()?),
        (false, true) => *new.basis.as_ref()?,
        (true, false) => {
            let old = *old.basis.as_ref()?;
            Interval {
                estimate: -old.estimate,
                ..old
            }
        }
        (false, false) => {
            return Some(EffectDifference {
                low: Some(0.0),
                high: Some(0.0),
                level: LEVEL,
                standard_error: Some(0.0),
                verdict: DifferenceVerdict::Same,
                ..EffectDifference::default()
            });
        }
    };
    let known = interval.half_width.is_finite();
    let ends = (speed(interval.low()), speed(interval.high()));
    Some(EffectDifference {
        estimate: speed(interval.estimate),
        low: known.then_some(ends.0),
        high: known.then_some(ends.1),
        level: interval.stopping_rule.level(),
        standard_error: known.then_some(interval.standard_error),
        p_value: known.then(|| interval.p_value()),
        outside: known.then(|| interval.equivalence_p_value(margin)),
        ..EffectDifference::default()
    })
}

impl EffectDifference {
    /// Calls a difference whose adjusted p-value is small enough: that of no difference, or of one outside the margin.
    fn judge(&mut self, p_value: Option<f64>, outside: Option<f64>) {
        let is_shown = |p: Option<f64>| p.is_some_and(|p| p <= 1.0 - self.level);
        self.verdict = match (is_shown(p_value), self.estimate > 0.0) {
            (true, true) => DifferenceVerdict::More,
            (true, false) => DifferenceVerdict::Less,
            _ if is_shown(outside) => DifferenceVerdict::Same,
            _ => self.verdict,
        };
    }
}

fn warnings(before: &Attribution, after: &Attribution, pairs: &[Pair<'_>]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let (old, new) = (before.observed(), after.observed());
    let others: Vec<String> = old
        .differences(&new)
        .filter(|of| matches!(of.part, Part::Machine(_) | Part::Recipe))
        .map(|of| of.to_string())
        .collect();
    if !others.is_empty() {
        warnings.push(Warning::other_conditions(format!(
            "The second experiment has {}: a difference may come from that.",
            others.join(", ")
        )));
    }
    let of_servers = before.is_of_servers() && after.is_of_servers();
    if of_servers && before.base() != after.base() {
        warnings.push(Warning::other_bases(format!(
            "The bases differ (`{}` and `{}`): a difference may be theirs.",
            before.base(),
            after.base()
        )));
    }
    let (old, new) = (&before.workloads, &after.workloads);
    if old != new {
        warnings.push(Warning::other_workloads(
            "The workloads differ: only those that both have are compared, one by one.",
        ));
    }
    let in_order = of_servers
        || pairs.iter().all(
            |(old, new)| matches!((old, new), (Some(old), Some(new)) if old.index == new.index),
        );
    if !in_order {
        warnings.push(Warning::other_series(
            "The series differ, and a patch's effect may depend on the patches before it.",
        ));
    }
    for (of, which) in [(before, "first"), (after, "second")] {
        if !of.is_complete() {
            let words = format!("The {which} experiment is not finished.");
            warnings.push(Warning::unfinished(words));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::attribution::attribute;
    use crate::attribution::tests::{header, observation};
    use perfquilt_model::point::Point;

    /// An experiment with the given effects of patches, whose values vary by up to 0.5 %.
    fn experiment(
        started: &str,
        patches: &[(&str, f64)],
        workloads: &[&str],
        seed: u64,
    ) -> Attribution {
        let mut header = header(patches.len());
        header.started = started.to_owned();
        header.series = patches.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut random = StdRng::seed_from_u64(seed);
        let mut observations = Vec::new();
        for workload in workloads {
            for block in 0..20 {
                let mut cost = 1e6;
                for place in 0..=patches.len() {
                    if place > 0 {
                        cost /= 1.0 + patches[place - 1].1;
                    }
                    let noise = 1.0 + 0.01 * (random.random::<f64>() - 0.5);
                    let point = Point::Step(place);
                    let value = cost * noise;
                    observations.push(observation(workload, Meter::Time, block, point, value));
                }
            }
        }
        attribute(&header, &observations, &Meter::default_margin).unwrap()
    }

    fn changes(comparison: &Comparison) -> Vec<Option<DifferenceVerdict>> {
        let table = comparison.main_tables().next().unwrap();
        let rows = table.patches.iter().chain([&table.total]);
        rows.map(|row| row.difference.map(|it| it.verdict))
            .collect()
    }

    #[test]
    fn a_loss_is_found_and_the_rest_stays_the_same() {
        let old = experiment("old", &[("a", 0.05), ("b", 0.02)], &["w", "x"], 1);
        let new = experiment("new", &[("a", 0.01), ("b", 0.02)], &["w", "x"], 2);
        let compared = compare(&old, &new);
        assert_eq!(compared.incomparable, None);
        assert_eq!(compared.tables.len(), 3);
        use DifferenceVerdict::{Less, More, Same};
        assert_eq!(changes(&compared), [Some(Less), Some(Same), Some(Less)]);
        assert_eq!(
            changes(&compare(&new, &old)),
            [Some(More), Some(Same), Some(More)]
        );
        let row = &compared.tables[0].patches[0];
        let lost = row.difference.unwrap();
        let ratio = (1.0 + row.after.as_ref().unwrap().estimate)
            / (1.0 + row.before.as_ref().unwrap().estimate);
        assert!((1.0 + lost.estimate - ratio).abs() < 1e-9);
        assert!(lost.low < Some(lost.estimate) && Some(lost.estimate) < lost.high);
    }

    fn replications(before: &Attribution, after: &Attribution) -> Vec<Option<Replication>> {
        let compared = replicate(before, after);
        let table = compared.main_tables().next().unwrap();
        table.patches.iter().map(|row| row.replication).collect()
    }

    #[test]
    fn a_verdict_holds_if_it_is_found_again_and_does_not_where_another_one_is() {
        let of = |started: &str, effects: [f64; 4], seed: u64| {
            let names = ["a", "b", "c", "d"];
            let patches: Vec<(&str, f64)> = names.into_iter().zip(effects).collect();
            experiment(started, &patches, &["w"], seed)
        };
        let there = of("there", [0.05, 0.05, 0.0, 0.03], 1);
        let same = of("here", [0.05, 0.05, 0.0, 0.03], 2);
        assert_eq!(replications(&there, &same), [Some(Replication::Holds); 4]);
        let other = of("here", [-0.05, 0.0, 0.05, 0.02], 5);
        // A patch that is worth less is still faster.
        use Replication::{DoesNotHold, Holds};
        let expected = [DoesNotHold, DoesNotHold, DoesNotHold, Holds];
        assert_eq!(replications(&there, &other), expected.map(Some));
        let compared = replicate(&there, &other);
        assert_eq!(compared.replications(DoesNotHold), 3);
        assert!(compared.replicates && !compare(&there, &other).replicates);
        // Another method is no reason not to look.
        let mut elsewhere = same.clone();
        elsewhere.harness = "another".to_owned();
        assert_eq!(replications(&there, &elsewhere), [Some(Holds); 4]);
        let warned = replicate(&there, &elsewhere).warnings;
        let codes: Vec<u16> = warned.iter().map(|of| of.code().number).collect();
        assert_eq!(codes, [786, 787], "{warned:?}");
    }

    /// An experiment of 20 blocks on one patch with this `effect`, in so many layouts, each of which adds up to 1 % to or takes it
    /// from a point.
    fn in_layouts(started: &str, effect: f64, layouts: u64, random: &mut StdRng) -> Attribution {
        let mut header = header(1);
        header.started = started.to_owned();
        let mut draw = |width: f64| 1.0 + width * (random.random::<f64>() - 0.5);
        let mut observations = Vec::new();
        for layout in 0..layouts {
            let shift = [draw(0.02), draw(0.02)];
            for block in 0..20 / layouts {
                let block = u32::try_from(layout * (20 / layouts) + block).unwrap();
                for (place, shift) in shift.into_iter().enumerate() {
                    let cost = if place == 0 {
                        1e6
                    } else {
                        1e6 / (1.0 + effect)
                    };
                    let value = cost * shift * draw(0.005);
                    let mut one = observation("w", Meter::Time, block, Point::Step(place), value);
                    one.layout = if layouts > 1 { layout + 1 } else { 0 };
                    observations.push(one);
                }
            }
        }
        attribute(&header, &observations, &Meter::default_margin).unwrap()
    }

    #[test]
    fn what_a_single_layout_makes_of_no_effect_confirms_nothing() {
        let mut random = StdRng::seed_from_u64(5);
        let mut share = |effect: f64| {
            let mut holds = 0;
            for _ in 0..200 {
                let there = in_layouts("there", 0.1, 10, &mut random);
                let here = in_layouts("here", effect, 1, &mut random);
                holds += usize::from(replications(&there, &here) == [Some(Replication::Holds)]);
            }
            holds
        };
        // 5 % of 200 are 10; one in a thousand such tests would see more than 20.
        let (wrong, right) = (share(0.0), share(0.1));
        assert!(wrong <= 20, "{wrong}");
        assert!(right >= 160, "{right}");
    }

    #[test]
    fn an_exact_effect_is_compared_at_the_level_of_the_other() {
        let supplement = |planned| perfquilt_model::observation::Supplement {
            planned: vec![planned],
            ..Default::default()
        };
        use perfquilt_model::observation::PlannedBlocks;
        let margin = &Meter::default_margin;
        let mut same = header(1);
        same.started = "old".to_owned();
        same.identical = BTreeMap::from([(Point::Step(1), Point::BASE)]);
        let none = supplement(PlannedBlocks::fixed("w", Meter::Time, 0));
        let old = crate::attribution::attribute_with(&same, &[], &none, margin).unwrap();
        let mut observations = Vec::new();
        for block in 0..20u32 {
            for (point, gain) in [(0, 0.0), (1, 0.0048)] {
                let noise = 0.001 * f64::from((block * 7 + point * 5) % 11);
                let (point, value) = (Point::Step(point as usize), 1e6 * (noise - gain).exp());
                observations.push(observation("w", Meter::Time, block, point, value));
            }
        }
        let verdict = |blocks: u32| {
            let plan = supplement(PlannedBlocks::fixed("w", Meter::Time, blocks));
            let header = header(1);
            let new = crate::attribution::attribute_with(&header, &observations, &plan, margin);
            let compared = compare(&old, &new.unwrap());
            let difference = compared.tables[0].total.difference.unwrap();
            let p_value = difference.p_value.unwrap();
            assert!((0.01..0.05).contains(&p_value) || blocks == 20, "{p_value}");
            (difference.level, difference.verdict)
        };
        assert_eq!(verdict(20), (0.95, DifferenceVerdict::More));
        // The experiment is unfinished, and its wider interval leaves the margin.
        assert_eq!(verdict(60), (0.99, DifferenceVerdict::Unclear));
    }

    #[test]
    fn whole_steps_of_the_clock_are_no_difference() {
        let supplement = perfquilt_model::observation::Supplement {
            clock: BTreeMap::from([(Meter::Time, 1e9)]),
            ..Default::default()
        };
        // Runs of 100 transactions and 20 s, in whole seconds.
        let of = |started: &str, seconds: f64| {
            let mut header = header(1);
            header.started = started.to_owned();
            let mut observations = Vec::new();
            for block in 0..6 {
                for (point, seconds) in [(0, 20.0), (1, seconds)] {
                    let (point, value) = (Point::Step(point), seconds * 1e7);
                    observations.push(observation("w", Meter::Time, block, point, value));
                }
            }
            let margin = &Meter::default_margin;
            crate::attribution::attribute_with(&header, &observations, &supplement, margin).unwrap()
        };
        let compared = compare(&of("old", 20.0), &of("new", 21.0));
        assert_eq!(changes(&compared), [Some(DifferenceVerdict::Unclear); 2]);
        let row = compared.tables[0].total.difference.unwrap();
        // Half a second on each of four sides.
        let width = row.high.unwrap().ln_1p() - row.low.unwrap().ln_1p();
        assert!(
            (width / 2.0 - (3.0 * 0.025 + 0.5 / 21.0)).abs() < 1e-6,
            "{row:?}"
        );
        assert!(row.p_value.unwrap() > 0.99, "{row:?}");
        // A change that no rounding explains is a difference.
        let compared = compare(&of("old", 20.0), &of("new", 25.0));
        assert_eq!(changes(&compared), [Some(DifferenceVerdict::Less); 2]);
    }

    #[test]
    fn other_patches_and_workloads_stand_alone() {
        let old = experiment("old", &[("a", 0.05), ("gone", 0.02)], &["w"], 1);
        let new = experiment("new", &[("fresh", 0.01), ("a", 0.05)], &["w", "x"], 2);
        let compared = compare(&old, &new);
        let [table] = &compared.tables[..] else {
            panic!("{compared:?}")
        };
        assert_eq!(table.workload, "w");
        let names: Vec<_> = table
            .patches
            .iter()
            .map(|row| row.patch.as_deref())
            .collect();
        assert_eq!(names, [Some("fresh"), Some("a"), Some("gone")]);
        assert_eq!(changes(&compared)[0], None);
        assert_eq!(changes(&compared)[2], None);
        assert_eq!(compared.warnings.len(), 2, "{:?}", compared.warnings);
    }

    #[test]
    fn other_methods_and_the_same_observations_are_not_compared() {
        let old = experiment("old", &[("a", 0.05)], &["w"], 1);
        assert_eq!(
            compare(&old, &old).incomparable.as_deref(),
            Some("Both are the same experiment.")
        );
        let mut new = experiment("new", &[("a", 0.01)], &["w"], 2);
        new.harness = "another".to_owned();
        let compared = compare(&old, &new);
        assert!(
            compared
                .incomparable
                .unwrap()
                .contains("harness `another` instead of `perfquilt test`")
        );
        assert!(compared.tables[0].patches[0].difference.is_none());
        assert!(compared.tables[0].patches[0].after.is_some());
    }

    #[test]
    fn a_renamed_patch_is_found_by_its_title() {
        let titled = |mut of: Attribution| {
            for patch in &mut of.patches {
                patch.title = format!("Title of {}", patch.index);
            }
            of
        };
        let old = titled(experiment("old", &[("a", 0.05), ("b", 0.0)], &["w"], 1));
        let new = titled(experiment(
            "new",
            &[("renamed", 0.05), ("b", 0.0)],
            &["w"],
            2,
        ));
        let compared = compare(&old, &new);
        assert_eq!(compared.tables[0].patches.len(), 2);
        assert_eq!(compared.tables[0].patches[0].index_before, Some(1));
    }

    #[test]
    fn unchanged_effects_are_hardly_ever_called_changed() {
        let mut wrong = 0;
        for seed in 0..400 {
            let patches = [("a", 0.05), ("b", 0.0), ("c", 0.01), ("d", 0.02)];
            let old = experiment("old", &patches, &["w"], 2 * seed);
            let new = experiment("new", &patches, &["w"], 2 * seed + 1);
            let compared = compare(&old, &new);
            let rows = &compared.tables[0].patches;
            wrong += usize::from(
                rows.iter()
                    .any(|row| row.difference.is_some_and(|it| it.verdict.is_shown())),
            );
        }
        // 5 % of 400 are 20, standard deviation 4.4.
        assert!(wrong <= 32, "{wrong}");
    }
}
