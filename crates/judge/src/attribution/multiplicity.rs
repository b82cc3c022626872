//! Verdicts adjusted for multiple tests, with error shares from instruction counts, and joined over the
//! statistics of a row.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Effect, EffectKind, Group, Operation, PatchEffects, SUITE, Verdict};
use crate::stats::{benjamini_hochberg_weighted, holm_weighted, speed};
use perfquilt_model::observation::Meter;

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
    effect: &'a mut Effect,
}

/// The families of tests, by kind of effect and meter.
type Families<'a> = BTreeMap<(EffectKind, Meter), Vec<FamilyRow<'a>>>;

/// Adjusts the p-values of effects, withdraws verdicts that are no longer significant, and joins the verdicts
/// on a row's typical time, mean and tail.
///
/// The families of tests are: patches, for each meter and kind, by Holm (in 95 % of experiments no patch of
/// the table is called faster or slower wrongly, and no patch whose effect is the margin or more is called
/// without effect), and groups likewise; all patches and workloads beside the suite, by Benjamini and Hochberg (of the cells
/// called changed, at most one in twenty is unchanged on average, and likewise of those called unchanged);
/// all operations, for each meter and kind, by Benjamini and Hochberg. A total is judged by itself. `margins`
/// are fractions of speed. On timed meters, rows of patches that changed the instructions have a larger share
/// of the error ([`row_weights`]).
pub(super) fn adjust(
    patches: &mut [PatchEffects],
    groups: &mut [Group],
    operations: &mut [Operation],
    total: &mut [Effect],
    margins: &BTreeMap<Meter, f64>,
) {
    let mut over_patches = Families::new();
    let mut over_cells = Families::new();
    let patches = patches
        .iter_mut()
        .map(|patch| (patch.index, &mut patch.effects));
    let groups = groups
        .iter_mut()
        .map(|group| (group.last, &mut group.effects));
    for (index, effects) in patches.chain(groups) {
        // A meter that was read on a single workload has no suite, even if other meters have one.
        let suites: BTreeSet<(EffectKind, Meter)> = effects
            .iter()
            .filter(|effect| effect.workload == SUITE)
            .map(|effect| (effect.kind, effect.meter))
            .collect();
        let changed = changed_instructions(effects);
        for (effect, changed) in effects.iter_mut().zip(changed) {
            if effect.p_value.is_none() {
                continue;
            }
            let family = (effect.kind, effect.meter);
            let families = if suites.contains(&family) && effect.workload != SUITE {
                &mut over_cells
            } else {
                &mut over_patches
            };
            families.entry(family).or_default().push(FamilyRow {
                patch: index,
                changed,
                effect,
            });
        }
    }
    let mut over_operations = Families::new();
    for effect in operations.iter_mut().flat_map(|of| &mut of.effects) {
        if effect.p_value.is_some() {
            let family = over_operations.entry((effect.kind, effect.meter));
            family.or_default().push(FamilyRow::unknown(effect));
        }
    }
    let judge_all = |families: Families<'_>, adjust: AdjustPValues| {
        for ((_, meter), family) in families {
            judge(family, margins.get(&meter).copied(), adjust);
        }
    };
    judge_all(over_patches, holm_weighted);
    judge_all(over_cells, benjamini_hochberg_weighted);
    judge_all(over_operations, benjamini_hochberg_weighted);
    for effect in total {
        if effect.p_value.is_some() && effect.tail.is_some() {
            let margin = margins.get(&effect.meter).copied();
            judge(vec![FamilyRow::unknown(effect)], margin, holm_weighted);
        }
    }
}

impl<'a> FamilyRow<'a> {
    /// Returns a row of which no counts are known.
    fn unknown(effect: &'a mut Effect) -> Self {
        FamilyRow {
            patch: 0,
            changed: None,
            effect,
        }
    }
}

/// Returns, for each of a patch's effects, whether the counts of instructions show the same kind of effect on the
/// same workload; `None` for meters that are not timed, and where the counts are not known or stale.
///
/// Counts come from blocks of their own, so nothing here depends on a time.
fn changed_instructions(effects: &[Effect]) -> Vec<Option<bool>> {
    let counts: Vec<&Effect> = effects
        .iter()
        .filter(|effect| effect.meter == Meter::Instructions && !effect.is_stale())
        .filter(|effect| effect.low.is_some())
        .collect();
    let of = |effect: &Effect| {
        if !effect.meter.is_timed() {
            return None;
        }
        let same = |counted: &&&Effect| {
            counted.kind == effect.kind
                && (counted.point, counted.against) == (effect.point, effect.against)
                && counted.workload == effect.workload
        };
        let counted = counts.iter().find(same)?;
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

/// A method that adjusts p-values with weights.
type AdjustPValues = fn(&[f64], &[f64]) -> Vec<f64>;

fn judge(mut family: Vec<FamilyRow<'_>>, margin: Option<f64>, adjust: AdjustPValues) {
    let mut probabilities = Vec::new();
    let mut weights = Vec::new();
    for (FamilyRow { effect, .. }, row_weight) in family.iter().zip(row_weights(&family)) {
        let tail = effect.tail.iter().flat_map(|tail| tail.figures());
        let figures: Vec<f64> = tail
            .map(|(_, figure)| figure.p_value.unwrap_or(1.0))
            .collect();
        let rest = if figures.is_empty() {
            0.0
        } else {
            1.0 - TYPICAL
        };
        probabilities.push(effect.p_value.unwrap_or(1.0));
        weights.push(row_weight * (1.0 - rest));
        for p in &figures {
            probabilities.push(*p);
            weights.push(row_weight * rest / figures.len() as f64);
        }
    }
    let all: f64 = weights.iter().sum();
    let shares = weights.iter().map(|weight| weight / all);
    let mut adjusted = adjust(&probabilities, &weights).into_iter().zip(shares);
    let inside: Vec<f64> = family
        .iter()
        .map(|row| outside(row.effect, margin))
        .collect();
    let inside = adjust(&inside, &vec![1.0; inside.len()]);
    for (FamilyRow { effect, .. }, inside) in family.iter_mut().zip(inside) {
        let error = 1.0 - effect.level;
        let Some((own, share)) = adjusted.next() else {
            return;
        };
        effect.p_adjusted = Some(own);
        effect.error_share = Some(share);
        effect.equivalent = inside <= error;
        if let Some(interval) = effect.basis.filter(|basis| basis.half_width.is_finite()) {
            let least = interval.minimum_detectable(share);
            effect.minimum_detectable = Some(speed(least)).filter(|_| least.is_finite());
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
            for figure in tail.figures_mut() {
                let Some((own, share)) = adjusted.next() else {
                    return;
                };
                figure.p_adjusted = Some(own);
                figure.error_share = Some(share);
                if figure.verdict.is_shown() && own > error {
                    figure.verdict = Verdict::Unclear;
                }
                shown.push(figure.verdict);
            }
        }
        effect.verdict = joined(typical, &shown);
    }
}

/// Returns the p-value of the equivalence test, under the null hypothesis that the effect lies outside the
/// margin.
fn outside(effect: &Effect, margin: Option<f64>) -> f64 {
    match (&effect.basis, margin) {
        (Some(interval), Some(margin)) => interval.equivalence_p_value(margin),
        _ => 1.0,
    }
}

/// Returns the verdict on a row from the verdicts on its typical time, mean and tail.
fn joined(typical: Verdict, tail: &[Verdict]) -> Verdict {
    let says = |verdict| typical == verdict || tail.contains(&verdict);
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
            interval: super::super::document::Interval::Fixed,
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
            provenance: Some(super::super::document::Provenance::Measured),
            basis: None,
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
