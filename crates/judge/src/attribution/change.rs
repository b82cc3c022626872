//! Comparison of the patches' effects in two experiments: before and after a rebase.

use super::document::{Attribution, Effect, EffectKind, PatchEffects, Verdict};
use crate::stats::{LEVEL, Loss, holm};
use perfquilt_model::observation::Meter;

/// A patch's effect in two experiments, on the workload where it was worth most.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchChange<'a> {
    /// The patch's name.
    pub name: &'a str,
    /// The effect before.
    pub old: &'a Effect,
    /// The same effect (workload, meter) in the new experiment, if it was measured and is not stale.
    pub new: Option<&'a Effect>,
    /// The loss, if both experiments have an interval.
    pub loss: Option<Loss>,
    /// Whether the effect was faster, is not faster now, and the loss is significant after adjustment over
    /// all patches.
    pub no_longer_helps: bool,
}

/// Compares the patches that both experiments have an effect of, in the order of `names`.
///
/// The claim that a patch no longer helps rests on a test of its own, of `old − new` with both standard
/// errors, conditional on the old effect having been called faster and having been the largest of those
/// called ([`Loss`]). Holm's method adjusts the p-values over patches: in 95 % of comparisons, no patch whose
/// effect is unchanged is reported as no longer helping.
pub fn changes<'a>(
    old: &'a Attribution,
    new: Option<&'a Attribution>,
    names: impl Iterator<Item = &'a str>,
) -> Vec<PatchChange<'a>> {
    let mut changes: Vec<PatchChange<'a>> =
        names.filter_map(|name| change(old, new, name)).collect();
    let tested = |change: &&mut PatchChange<'a>| change.loss.is_some();
    let losses = changes.iter().filter_map(|change| change.loss);
    let raw: Vec<f64> = losses.map(|loss| loss.p_value).collect();
    for (change, adjusted) in changes.iter_mut().filter(tested).zip(holm(&raw)) {
        let still_helps = change
            .new
            .is_some_and(|effect| effect.typical() == Verdict::Faster);
        change.no_longer_helps = adjusted <= 1.0 - LEVEL && !still_helps;
    }
    changes
}

fn change<'a>(
    old: &'a Attribution,
    new: Option<&'a Attribution>,
    name: &'a str,
) -> Option<PatchChange<'a>> {
    let patch = old.patches.iter().find(|patch| patch.name == name)?;
    let (before, candidates) = headline(old, patch)?;
    let after = new.and_then(|new| {
        let patch = new.patches.iter().find(|patch| patch.name == name)?;
        patch.effects.iter().find(|effect| {
            effect.kind == EffectKind::InOrder
                // Values from another machine or harness support no verdict.
                && !effect.is_stale()
                && effect.workload == before.workload
                && effect.meter == before.meter
        })
    });
    let loss = after
        .filter(|_| before.typical() == Verdict::Faster)
        .and_then(|after| {
            let share = before.p_value? / before.p_adjusted.or(before.p_value)?;
            let share = if share.is_finite() { share } else { 1.0 };
            Loss::of(
                before.basis.as_ref()?,
                share,
                candidates,
                after.basis.as_ref()?,
            )
        });
    Some(PatchChange {
        name,
        old: before,
        new: after,
        loss,
        no_longer_helps: false,
    })
}

/// Returns the effect that a patch is kept for: the gain with the largest lower confidence limit, on time if
/// there is one; otherwise the effect that verdicts refer to. Returns with it the number of gains it was
/// selected from.
fn headline<'a>(
    attribution: &'a Attribution,
    patch: &'a PatchEffects,
) -> Option<(&'a Effect, usize)> {
    let in_order = || {
        patch
            .effects
            .iter()
            .filter(|e| e.kind == EffectKind::InOrder)
    };
    let gain = |meter: Meter| {
        let faster =
            |effect: &&Effect| effect.meter == meter && effect.typical() == Verdict::Faster;
        let mut gains: Vec<&Effect> = in_order().filter(faster).collect();
        gains.sort_by(|a, b| b.low.unwrap_or(0.0).total_cmp(&a.low.unwrap_or(0.0)));
        Some((*gains.first()?, gains.len()))
    };
    Meter::ALL.into_iter().find_map(gain).or_else(|| {
        let meter = attribution.main_meter()?;
        let effect = attribution.main_effect(&patch.effects, EffectKind::InOrder, meter)?;
        Some((effect, 1))
    })
}
