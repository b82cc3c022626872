//! Verdicts adjusted for multiple tests, and joined over the statistics of a row.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Effect, EffectKind, Operation, PatchEffects, SUITE, Verdict};
use crate::stats::{benjamini_hochberg_weighted, holm_weighted, speed};
use perfquilt_model::observation::Meter;

/// The share of a row's error probability for its typical time; the mean and the tail share the rest.
const TYPICAL: f64 = 0.8;

/// Adjusts the p-values of effects, withdraws verdicts that are no longer significant, and joins the verdicts
/// on a row's typical time, mean and tail.
///
/// The families of tests are: patches, for each meter and kind, by Holm (in 95 % of experiments no patch of
/// the table is called faster or slower wrongly, and no patch whose effect is the margin or more is called
/// without effect); all patches and workloads beside the suite, by Benjamini and Hochberg (of the cells
/// called changed, at most one in twenty is unchanged on average, and likewise of those called unchanged);
/// all operations, for each meter and kind, by Benjamini and Hochberg. A total is judged by itself. `margins`
/// are fractions of speed.
pub(super) fn adjust(
    patches: &mut [PatchEffects],
    operations: &mut [Operation],
    total: &mut [Effect],
    margins: &BTreeMap<Meter, f64>,
) {
    let mut over_patches: BTreeMap<(EffectKind, Meter), Vec<&mut Effect>> = BTreeMap::new();
    let mut over_cells: BTreeMap<(EffectKind, Meter), Vec<&mut Effect>> = BTreeMap::new();
    for patch in patches {
        // A meter that was read on a single workload has no suite, even if other meters have one.
        let suites: BTreeSet<(EffectKind, Meter)> = patch
            .effects
            .iter()
            .filter(|effect| effect.workload == SUITE)
            .map(|effect| (effect.kind, effect.meter))
            .collect();
        for effect in patch.effects.iter_mut().filter(|e| e.p_value.is_some()) {
            let family = (effect.kind, effect.meter);
            let families = if suites.contains(&family) && effect.workload != SUITE {
                &mut over_cells
            } else {
                &mut over_patches
            };
            families.entry(family).or_default().push(effect);
        }
    }
    let mut over_operations: BTreeMap<(EffectKind, Meter), Vec<&mut Effect>> = BTreeMap::new();
    let effects = operations.iter_mut().flat_map(|of| &mut of.effects);
    for effect in effects.filter(|effect| effect.p_value.is_some()) {
        let family = (effect.kind, effect.meter);
        over_operations.entry(family).or_default().push(effect);
    }
    let judge_all = |families: BTreeMap<(EffectKind, Meter), Vec<&mut Effect>>,
                     adjust: AdjustPValues| {
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
            judge(vec![effect], margin, holm_weighted);
        }
    }
}

/// A method that adjusts p-values with weights.
type AdjustPValues = fn(&[f64], &[f64]) -> Vec<f64>;

fn judge(mut family: Vec<&mut Effect>, margin: Option<f64>, adjust: AdjustPValues) {
    let mut probabilities = Vec::new();
    let mut weights = Vec::new();
    for effect in &family {
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
        weights.push(1.0 - rest);
        for p in &figures {
            probabilities.push(*p);
            weights.push(rest / figures.len() as f64);
        }
    }
    let all: f64 = weights.iter().sum();
    let mut adjusted = adjust(&probabilities, &weights).into_iter().zip(&weights);
    let inside: Vec<f64> = family
        .iter()
        .map(|effect| outside(effect, margin))
        .collect();
    let inside = adjust(&inside, &vec![1.0; inside.len()]);
    for (effect, inside) in family.iter_mut().zip(inside) {
        let error = 1.0 - effect.level;
        let Some((own, weight)) = adjusted.next() else {
            return;
        };
        effect.p_adjusted = Some(own);
        effect.equivalent = inside <= error;
        if let Some(interval) = effect.basis.filter(|basis| basis.half_width.is_finite()) {
            let least = interval.minimum_detectable(weight / all);
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
                let Some((own, _)) = adjusted.next() else {
                    return;
                };
                figure.p_adjusted = Some(own);
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
}
