//! Verdicts adjusted for multiple tests, with error shares from instruction counts, and joined over the
//! statistics of a row.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{
    Cells, Effect, EffectKind, Operation, PatchEffects, SUITE, TailFigure, Verdict,
};
use crate::stats::{benjamini_hochberg_weighted, holm_weighted};
use perfquilt_model::observation::{Meter, Statistic};
use perfquilt_model::point::Point;

/// The share of a row's error probability for its typical time; the mean and the tail share the rest.
const TYPICAL: f64 = 0.8;

/// The least effect on instructions that counts as a change: several times the error of counts, and a fifth of
/// the effects on time that experiments can show.
const CHANGED: f64 = 5e-4;

/// The largest fraction of their error share that patches with unchanged counts give up.
const GIVEN_UP: f64 = 0.5;

/// In families of no more patches, none gives up anything: the others would gain little.
const FEW_PATCHES: f64 = 4.0;

/// A row of a family of tests.
struct FamilyRow<'a> {
    /// The patch's position in the series.
    patch: usize,
    /// Whether the patch changed the instructions of the same workload; `None` if it is unknown.
    changed: Option<bool>,
    /// For a row over all workloads, the largest p-value of the null hypothesis that one of them lies outside the margin; 0
    /// for other rows.
    cells_outside: f64,
    effect: &'a mut Effect,
}

/// The families of tests, by kind of effect and meter.
type Families<'a> = BTreeMap<(EffectKind, Meter), Vec<FamilyRow<'a>>>;

/// The share of a family's error probability for the rows over all workloads, where single workloads are judged
/// beside them; these have the rest.
const OVER_ALL: f64 = 0.8;

/// Adjusts the p-values of effects, withdraws verdicts that are no longer significant, and joins the verdicts
/// on a row's typical time, mean and tail, and those on single workloads to the row over all of them.
///
/// A family of tests has the rows of one meter and kind of effect; in 95 % of experiments none of them is called
/// faster or slower if none has an effect. Its rows over all workloads are judged by Holm, with four fifths of the error
/// (in 96 % of experiments none is called wrongly, and none whose effect is the margin or more, over all workloads or on a single
/// one, is called without effect).
/// Single workloads of patches are *cells*, judged with the rest: of the cells called changed, at most one in a hundred is
/// unchanged on average ([`judge_cells`]). The total is a family likewise; operations are cells of
/// families without rows over all workloads, with the whole error. The meters beside the first one, which verdicts are
/// about, divide the error of one family among them ([`MeterRules`]). `margins` are fractions of speed. On timed meters, rows of patches that changed the instructions have a larger share
/// of the error ([`row_weights`]).
pub(super) fn adjust(
    patches: &mut [PatchEffects],
    operations: &mut [Operation],
    total: &mut [Effect],
    margins: &BTreeMap<Meter, f64>,
) {
    let judged = patches.iter().flat_map(|of| &of.effects);
    let meters = MeterRules::of(margins, judged.chain(&*total));
    let of_patches = patches
        .iter_mut()
        .map(|patch| (patch.index, patch.effects.as_mut_slice()));
    judge_families(of_patches, &meters);
    judge_families(std::iter::once((0, &mut *total)), &meters);
    let mut over_operations = Families::new();
    for effect in operations.iter_mut().flat_map(|of| &mut of.effects) {
        if effect.p_value.is_some() {
            let family = over_operations.entry((effect.kind, effect.meter));
            family.or_default().push(FamilyRow {
                patch: 0,
                changed: None,
                cells_outside: 0.0,
                effect,
            });
        }
    }
    for ((_, meter), family) in over_operations {
        judge_cells(family, meters.rule(meter), 1.0);
    }
    let operations = operations.iter_mut().map(|of| &mut of.effects);
    let patches = patches.iter_mut().map(|patch| &mut patch.effects);
    for effects in patches.chain(operations) {
        withhold_runs(effects);
        join_cells(effects);
    }
    withhold_runs(total);
    join_cells(total);
}

/// Judges the effects of subjects (patches, or the series) together; a subject's effects are those of all its meters,
/// kinds and workloads.
fn judge_families<'a>(
    subjects: impl Iterator<Item = (usize, &'a mut [Effect])>,
    meters: &MeterRules<'_>,
) {
    let mut rows = Families::new();
    let mut cells = Families::new();
    for (index, effects) in subjects {
        // A meter that was read on a single workload has no suite, even if other meters have one.
        let suites: BTreeSet<(EffectKind, Meter)> = effects
            .iter()
            .filter(|effect| effect.workload == SUITE)
            .map(|effect| (effect.kind, effect.meter))
            .collect();
        let changed = changed_instructions(effects);
        let mut outside: BTreeMap<(EffectKind, Meter), f64> = BTreeMap::new();
        for cell in effects
            .iter()
            .filter(|of| of.workload != SUITE && of.is_measured())
        {
            let most = outside.entry((cell.kind, cell.meter)).or_default();
            *most = most.max(any_outside(cell, meters.rule(cell.meter).margin));
        }
        for (effect, changed) in effects.iter_mut().zip(changed) {
            if effect.p_value.is_none() {
                continue;
            }
            let family = (effect.kind, effect.meter);
            let families = if suites.contains(&family) && effect.workload != SUITE {
                &mut cells
            } else {
                &mut rows
            };
            let of_suite = outside.get(&family).filter(|_| effect.workload == SUITE);
            let cells_outside = of_suite.copied().unwrap_or_default();
            families.entry(family).or_default().push(FamilyRow {
                patch: index,
                changed,
                cells_outside,
                effect,
            });
        }
    }
    for (family, rows) in rows {
        let share = if cells.contains_key(&family) {
            OVER_ALL
        } else {
            1.0
        };
        judge_rows(rows, meters.rule(family.1), share);
    }
    for ((_, meter), cells) in cells {
        judge_cells(cells, meters.rule(meter), 1.0 - OVER_ALL);
    }
}

/// A meter's equivalence margin, and its share of the error.
#[derive(Clone, Copy)]
struct MeterRule {
    margin: Option<f64>,
    share: f64,
}

/// The meters' margins and shares of the error.
///
/// The first meter is the primary one: verdicts, headlines and exit codes are about it, and its families have the whole
/// error. The others are secondary. Together they have the error of one family, in equal parts (Bonferroni), so that
/// reading more meters does not make a false claim more likely.
struct MeterRules<'a> {
    margins: &'a BTreeMap<Meter, f64>,
    primary: Option<Meter>,
    secondary: usize,
}

impl<'a> MeterRules<'a> {
    fn of<'e>(margins: &'a BTreeMap<Meter, f64>, judged: impl Iterator<Item = &'e Effect>) -> Self {
        let tested = judged.filter(|effect| effect.p_value.is_some());
        let meters: BTreeSet<Meter> = tested.map(|effect| effect.meter).collect();
        MeterRules {
            margins,
            primary: meters.first().copied(),
            secondary: meters.len().saturating_sub(1),
        }
    }

    fn rule(&self, meter: Meter) -> MeterRule {
        MeterRule {
            margin: self.margins.get(&meter).copied(),
            share: if self.primary == Some(meter) {
                1.0
            } else {
                1.0 / self.secondary.max(1) as f64
            },
        }
    }
}

/// Takes back the verdicts on typical times that a run of blocks makes alone.
fn withhold_runs(effects: &mut [Effect]) {
    for effect in effects.iter_mut().filter(|of| of.typical().is_shown()) {
        if let Some(reason) = effect.run.take() {
            effect.withhold(&reason);
        }
    }
}

/// Joins the verdicts on single workloads to the rows over all workloads: a patch that is faster over all of them and
/// slower on one is mixed. An interaction is the difference between two effects, and no patch is slower by it.
fn join_cells(effects: &mut [Effect]) {
    let is_cell = |effect: &Effect| effect.workload != SUITE && effect.is_shown();
    let cells: Vec<(EffectKind, Meter, String, bool)> = effects
        .iter()
        .filter(|effect| is_cell(effect))
        .map(|of| (of.kind, of.meter, of.workload.clone(), of.is_regression()))
        .collect();
    let suites = effects
        .iter_mut()
        .filter(|effect| effect.workload == SUITE && effect.kind != EffectKind::Interaction);
    let judged = |effect: &&mut Effect| effect.p_value.is_some() || effect.withheld.is_some();
    for effect in suites.filter(judged) {
        let that_are = |slower: bool| -> Vec<String> {
            let own = cells
                .iter()
                .filter(|of| (of.0, of.1, of.3) == (effect.kind, effect.meter, slower));
            own.map(|of| of.2.clone()).collect()
        };
        let (faster, slower) = (that_are(false), that_are(true));
        if faster.is_empty() && slower.is_empty() {
            continue;
        }
        let own = effect.verdict;
        let some = |those: &[String], verdict| (!those.is_empty()).then_some(verdict);
        let cells = [
            some(&faster, Verdict::Faster),
            some(&slower, Verdict::Slower),
        ];
        effect.verdict = joined(own, &cells.into_iter().flatten().collect::<Vec<_>>());
        effect.cells = Some(Cells {
            own,
            faster,
            slower,
        });
    }
}

/// Returns, for each of a patch's effects, whether the counts of instructions show the same kind of effect on the
/// same workload; `None` for meters that are not timed, and where the counts are not known or stale.
///
/// Counts come from blocks of their own, so nothing here depends on a time.
fn changed_instructions(effects: &[Effect]) -> Vec<Option<bool>> {
    fn row(of: &Effect) -> (EffectKind, Point, Point, &str) {
        (of.kind, of.point, of.against, of.workload.as_str())
    }
    let counted = effects
        .iter()
        .filter(|effect| effect.meter == Meter::Instructions && !effect.is_stale())
        .filter(|effect| effect.low.is_some());
    let mut counts = BTreeMap::new();
    for effect in counted {
        counts.entry(row(effect)).or_insert(effect);
    }
    let of = |effect: &Effect| {
        if !effect.meter.is_timed() {
            return None;
        }
        let counted = counts.get(&row(effect))?;
        Some(counted.leaves_out_zero() && counted.estimate.abs() >= CHANGED)
    };
    effects.iter().map(of).collect()
}

/// Returns the weights of a family's rows, which add up to their number: 1 for all unless the counts of
/// instructions tell some rows from others.
///
/// Of `k` rows with known counts, each of the `u` unchanged ones gives up the fraction `s` of its share, and the
/// `k − u` changed ones get it in equal parts:
///
/// ```text
/// s = ½ · (1 − 4/patches) · u/k        unchanged: 1 − s        changed: 1 + s · u/(k − u)
/// ```
///
/// So a row keeps half of its share at least, and gives up little where the changed ones would gain little: in
/// short series, and where most rows changed. Shares that do not depend on the tested values keep the guarantees of
/// the adjustments: C. R. Genovese, K. Roeder and L. Wasserman, *False discovery control with p-value weighting*,
/// Biometrika 93 (2006). While an experiment goes on, counts may become known between two looks; a row's share at
/// any look is at most its largest one, and these add up to less than 1.5.
fn row_weights(family: &[FamilyRow<'_>]) -> Vec<f64> {
    let count = |changed: bool| {
        let rows = family.iter().filter(|row| row.changed == Some(changed));
        rows.count() as f64
    };
    let (changed, unchanged) = (count(true), count(false));
    if changed == 0.0 || unchanged == 0.0 {
        return vec![1.0; family.len()];
    }
    let patches: BTreeSet<usize> = family.iter().map(|row| row.patch).collect();
    let long = (1.0 - FEW_PATCHES / patches.len() as f64).max(0.0);
    let given_up = GIVEN_UP * long * unchanged / (changed + unchanged);
    let weight = |row: &FamilyRow<'_>| match row.changed {
        Some(true) => 1.0 + given_up * unchanged / changed,
        Some(false) => 1.0 - given_up,
        None => 1.0,
    };
    family.iter().map(weight).collect()
}

/// The figures of a row: its typical time, then its mean and tail.
struct Figures {
    p_values: Vec<f64>,
    /// The shares of the row's error; they add up to 1.
    shares: Vec<f64>,
}

impl Figures {
    fn of(effect: &Effect) -> Self {
        let tail = effect.tail.iter().flat_map(|tail| &tail.figures);
        let tail: Vec<f64> = tail
            .map(|(_, figure)| figure.p_value.unwrap_or(1.0))
            .collect();
        let rest = if tail.is_empty() { 0.0 } else { 1.0 - TYPICAL };
        let each = rest / tail.len().max(1) as f64;
        Figures {
            shares: std::iter::once(1.0 - rest)
                .chain(tail.iter().map(|_| each))
                .collect(),
            p_values: std::iter::once(effect.p_value.unwrap_or(1.0))
                .chain(tail)
                .collect(),
        }
    }
}

/// Judges rows by Holm with `share` of the error that the meter has.
fn judge_rows(mut family: Vec<FamilyRow<'_>>, meter: MeterRule, share: f64) {
    let share = share * meter.share;
    let row_weights = row_weights(&family);
    let figures: Vec<Figures> = family.iter().map(|row| Figures::of(row.effect)).collect();
    let mut probabilities = Vec::new();
    let mut weights = Vec::new();
    for (figures, row_weight) in figures.iter().zip(&row_weights) {
        probabilities.extend(&figures.p_values);
        weights.extend(figures.shares.iter().map(|share| row_weight * share));
    }
    let all: f64 = weights.iter().sum();
    let adjusted = holm_weighted(&probabilities, &weights);
    let mut adjusted = adjusted.into_iter().map(|p| (p / share).min(1.0));
    let mut shares = weights.iter().map(|weight| share * weight / all);
    let inside = inside(&family, meter, holm_weighted);
    for (row, (figures, inside)) in family.iter_mut().zip(figures.iter().zip(inside)) {
        let own = adjusted.by_ref().zip(shares.by_ref());
        conclude(row.effect, own.take(figures.p_values.len()), inside);
    }
}

/// Judges cells with `share` of the error that the meter has: a cell's p-value is that of Simes's test over its figures (R. J. Simes, *An
/// improved Bonferroni procedure*, Biometrika 73, 1986), Benjamini and Hochberg's method selects cells, and within a
/// selected one the figures are judged by the same method at the level of the selection, which keeps the average error
/// over the selected cells (Y. Benjamini and M. Bogomolov, *Selective inference on multiple families of hypotheses*,
/// Journal of the Royal Statistical Society B 76, 2014). So a changed cell that shows in several figures is one claim, and
/// allows no further false ones.
fn judge_cells(mut family: Vec<FamilyRow<'_>>, meter: MeterRule, share: f64) {
    let share = share * meter.share;
    let weights = row_weights(&family);
    let figures: Vec<Figures> = family.iter().map(|row| Figures::of(row.effect)).collect();
    let within: Vec<Vec<f64>> = figures
        .iter()
        .map(|of| benjamini_hochberg_weighted(&of.p_values, &of.shares))
        .collect();
    let simes: Vec<f64> = within
        .iter()
        .map(|adjusted| adjusted.iter().copied().fold(1.0, f64::min))
        .collect();
    let selected = benjamini_hochberg_weighted(&simes, &weights);
    let inside = inside(&family, meter, benjamini_hochberg_weighted);
    let all = family.len() as f64;
    let mut ascending = selected.clone();
    ascending.sort_by(f64::total_cmp);
    for (place, (row, inside)) in family.iter_mut().zip(inside).enumerate() {
        let error = share * (1.0 - row.effect.level);
        let count = ascending.partition_point(|p| *p <= error).max(1) as f64;
        let own = within[place].iter().zip(&figures[place].shares);
        let own = own.map(|(p, of)| {
            let level = weights[place] * count / all;
            let adjusted = (p / level).max(selected[place]) / share;
            (adjusted.min(1.0), share * weights[place] * of / all)
        });
        conclude(row.effect, own, inside);
    }
}

/// The adjusted p-values of a row's equivalence tests.
#[derive(Clone, Copy)]
struct EquivalencePValues {
    /// Of the typical time.
    typical: f64,
    /// Of typical time, mean and share of slow slices together.
    all: f64,
    /// Of all of these on every single workload, too, if it is a row over all of them.
    cells: f64,
}

/// Returns the adjusted p-values of the equivalence tests of a family's rows, with equal shares.
fn inside(
    family: &[FamilyRow<'_>],
    meter: MeterRule,
    adjust: fn(&[f64], &[f64]) -> Vec<f64>,
) -> Vec<EquivalencePValues> {
    let adjusted = |of: fn(&FamilyRow<'_>, Option<f64>) -> f64| {
        let rows = family.iter();
        let raw: Vec<f64> = rows.map(|row| of(row, meter.margin)).collect();
        let adjusted = adjust(&raw, &vec![1.0; raw.len()]).into_iter();
        adjusted
            .map(|p| (p / meter.share).min(1.0))
            .collect::<Vec<f64>>()
    };
    let typical = adjusted(|row, margin| outside(row.effect, margin));
    let all = adjusted(|row, margin| any_outside(row.effect, margin));
    // That of a union of hypotheses is the largest of theirs (Berger 1982, see `any_outside`).
    let cells = adjusted(|row, margin| any_outside(row.effect, margin).max(row.cells_outside));
    let each = typical.into_iter().zip(all).zip(cells);
    each.map(|((typical, all), cells)| EquivalencePValues {
        typical,
        all,
        cells,
    })
    .collect()
}

/// Sets the verdicts of a row's figures and of the row. `figures` has the adjusted p-value and the share of the error of
/// its typical time, then of its mean and tail.
fn conclude(
    effect: &mut Effect,
    mut figures: impl Iterator<Item = (f64, f64)>,
    inside: EquivalencePValues,
) {
    let error = 1.0 - effect.level;
    let Some((own, share)) = figures.next() else {
        return;
    };
    effect.p_adjusted = Some(own);
    effect.error_share = Some(share);
    effect.equivalent = inside.typical <= error;
    if effect
        .basis
        .is_some_and(|basis| basis.half_width.is_finite())
    {
        effect.minimum_detectable = effect.detectable(share);
    }
    let typical = match effect.verdict {
        Verdict::Faster if own <= error => Verdict::Faster,
        Verdict::Slower if own <= error => Verdict::Slower,
        _ if effect.equivalent => Verdict::NoEffect,
        _ => Verdict::Unclear,
    };
    let mut shown = Vec::new();
    if let Some(tail) = &mut effect.tail {
        tail.typical = typical;
        for (figure, (own, share)) in tail.figures.values_mut().zip(figures) {
            figure.p_adjusted = Some(own);
            figure.error_share = Some(share);
            if figure.verdict.is_shown() && own > error {
                figure.verdict = Verdict::Unclear;
            }
            shown.push(figure.verdict);
        }
    }
    effect.verdict = match joined(typical, &shown) {
        // An effect on one workload is none on the others, and hardly one over all.
        Verdict::NoEffect if inside.cells > inside.all && inside.cells > error => Verdict::Unclear,
        Verdict::NoEffect if inside.all > error => Verdict::NoTypicalEffect,
        verdict => verdict,
    };
}

/// Returns the p-value of the equivalence test, under the null hypothesis that the effect lies outside the
/// margin.
fn outside(effect: &Effect, margin: Option<f64>) -> f64 {
    match (&effect.basis, margin) {
        (Some(interval), Some(margin)) => interval.equivalence_p_value(margin),
        _ => 1.0,
    }
}

/// Returns the p-value of the null hypothesis that the typical time, the mean or the share of slow slices lies outside
/// the margin, which is rejected where each of them is shown to lie inside (R. L. Berger, *Multiparameter hypothesis
/// testing and acceptance sampling*, Technometrics 24, 1982): the largest of their p-values.
///
/// A 99th percentile may differ by more while the mean does not, and is no part of it.
fn any_outside(effect: &Effect, margin: Option<f64>) -> f64 {
    let of = |figure: Option<&TailFigure>| match (figure.and_then(|of| of.basis), margin) {
        (Some(interval), Some(margin)) => interval.equivalence_p_value(margin),
        _ => 1.0,
    };
    let typical = outside(effect, margin);
    match &effect.tail {
        Some(tail) => [Statistic::Mean, Statistic::Slow]
            .map(|statistic| of(tail.get(statistic)))
            .into_iter()
            .fold(typical, f64::max),
        None => typical,
    }
}

/// Returns the verdict on a row from the verdicts on its typical time, mean and tail, or on it and on its cells.
fn joined(typical: Verdict, others: &[Verdict]) -> Verdict {
    let says = |verdict| {
        let of = |own: &Verdict| *own == verdict || *own == Verdict::Mixed;
        of(&typical) || others.iter().any(of)
    };
    match (says(Verdict::Faster), says(Verdict::Slower)) {
        (true, true) => Verdict::Mixed,
        (true, false) => Verdict::Faster,
        (false, true) => Verdict::Slower,
        (false, false) => typical,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::StoppingRule;

    #[test]
    fn what_a_row_says_is_contradicted_by_its_tail() {
        use Verdict::{Faster, Mixed, NoEffect, Slower, Unclear};
        for (typical, tail, expected) in [
            (Faster, [Unclear, Unclear], Faster),
            (Faster, [NoEffect, Slower], Mixed),
            (Slower, [Faster, Unclear], Mixed),
            (NoEffect, [Unclear, Slower], Slower),
            (NoEffect, [Faster, Unclear], Faster),
            (NoEffect, [Unclear, Unclear], NoEffect),
            (Unclear, [NoEffect, Unclear], Unclear),
            (Unclear, [Faster, Slower], Mixed),
        ] {
            assert_eq!(joined(typical, &tail), expected, "{typical} {tail:?}");
        }
    }

    /// Returns the weights of rows, one a patch, with these changes of instructions.
    fn weights(changed: &[Option<bool>]) -> Vec<f64> {
        let mut effects = vec![effect(); changed.len()];
        let rows = effects.iter_mut().zip(changed).enumerate();
        let family: Vec<FamilyRow<'_>> = rows
            .map(|(place, (effect, &changed))| FamilyRow {
                patch: place + 1,
                changed,
                cells_outside: 0.0,
                effect,
            })
            .collect();
        row_weights(&family)
    }

    fn effect() -> Effect {
        use perfquilt_model::point::Point;
        Effect {
            kind: EffectKind::InOrder,
            workload: "w".into(),
            meter: Meter::Time,
            point: Point::Step(1),
            against: Point::BASE,
            estimate: 0.0,
            low: None,
            high: None,
            level: 0.95,
            interval: StoppingRule::FixedSample,
            standard_error: None,
            verdict: Verdict::Unclear,
            minimum_detectable: None,
            equivalent: false,
            p_value: Some(1.0),
            p_adjusted: None,
            error_share: None,
            blocks: 9,
            units: 9,
            identical: false,
            executed: true,
            unpaired: false,
            with_control: false,
            tail: None,
            cells: None,
            withheld: None,
            provenance: Some(super::super::document::Provenance::Measured),
            basis: None,
            of_blocks: None,
            ended_half_width: None,
            run: None,
        }
    }

    #[test]
    fn six_of_sixty_get_nearly_half_of_the_error() {
        let mut changed = vec![Some(false); 60];
        changed[10..16].fill(Some(true));
        let found = weights(&changed);
        assert!((found[0] - 0.58).abs() < 1e-12 && (found[12] - 4.78).abs() < 1e-12);
    }

    #[test]
    fn short_series_share_equally() {
        for patches in 1..=4 {
            for changed in 0..=patches {
                let rows: Vec<Option<bool>> = (0..patches).map(|k| Some(k < changed)).collect();
                assert_eq!(weights(&rows), vec![1.0; patches]);
            }
        }
        // Two workloads do not make two patches eight.
        let mut effects = vec![effect(); 8];
        let rows = effects.iter_mut().enumerate();
        let family: Vec<FamilyRow<'_>> = rows
            .map(|(place, effect)| FamilyRow {
                patch: place / 2,
                changed: Some(place == 0),
                cells_outside: 0.0,
                effect,
            })
            .collect();
        assert_eq!(row_weights(&family), vec![1.0; 8]);
    }

    #[test]
    fn a_change_is_shown_and_large_enough_on_the_same_row() {
        let counted = |estimate: f64, half: f64| Effect {
            meter: Meter::Instructions,
            estimate,
            low: Some(estimate - half),
            high: Some(estimate + half),
            ..effect()
        };
        let found = |counted: Effect| changed_instructions(&[effect(), counted])[0];
        assert_eq!(found(counted(0.002, 0.0001)), Some(true));
        assert_eq!(found(counted(-0.002, 0.0001)), Some(true));
        assert_eq!(found(counted(0.0004, 0.0001)), Some(false));
        assert_eq!(found(counted(0.002, 0.003)), Some(false));
        let other = |change: &dyn Fn(&mut Effect)| {
            let mut counted = counted(0.002, 0.0001);
            change(&mut counted);
            found(counted)
        };
        use super::super::document::Provenance::Stale;
        use perfquilt_model::point::Point;
        assert_eq!(other(&|e| e.workload = "v".into()), None);
        assert_eq!(other(&|e| e.kind = EffectKind::Alone), None);
        assert_eq!(other(&|e| e.against = Point::Step(3)), None);
        assert_eq!(other(&|e| e.meter = Meter::Cycles), None);
        assert_eq!(other(&|e| (e.low, e.high) = (None, None)), None);
        assert_eq!(other(&|e| e.provenance = Some(Stale("old".into()))), None);
        // Counts do not decide about themselves.
        let counts = [counted(0.002, 0.0001), counted(0.002, 0.0001)];
        assert_eq!(changed_instructions(&counts), [None, None]);
    }

    proptest! {
        #[test]
        fn weights_add_up_and_no_row_loses_more_than_half(
            changed in prop::collection::vec(prop::option::of(any::<bool>()), 1..80),
        ) {
            let found = weights(&changed);
            prop_assert!((found.iter().sum::<f64>() - changed.len() as f64).abs() < 1e-9);
            let known: Vec<bool> = changed.iter().flatten().copied().collect();
            let tells = known.contains(&true) && known.contains(&false) && changed.len() > 4;
            for (weight, changed) in found.iter().zip(&changed) {
                match changed {
                    Some(true) if tells => prop_assert!(*weight > 1.0),
                    Some(false) if tells => prop_assert!((0.5..1.0).contains(weight)),
                    _ => prop_assert_eq!(*weight, 1.0),
                }
            }
        }
    }
}
