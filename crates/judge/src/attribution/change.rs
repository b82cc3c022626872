//! What patches were worth in one experiment and are worth in another: before and after a rebase.

use super::document::{Attribution, Effect, Kind, PatchEffects, Verdict};
use crate::stats::{LEVEL, Loss, holm};
use perfquilt_model::observation::Meter;

/// What became of a patch's effect, on the workload where it was worth most.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<'a> {
    /// The patch's name.
    pub name: &'a str,
    /// The effect before.
    pub old: &'a Effect,
    /// The same effect (workload, meter) now, when it was measured and holds.
    pub new: Option<&'a Effect>,
    /// What it lost, as far as both experiments tell.
    pub loss: Option<Loss>,
    /// It was faster, is not shown to be faster now, and the loss is shown, for all patches together.
    pub no_longer_helps: bool,
}

/// What became of the patches that both experiments have an effect of, in the order of `names`.
///
/// That a patch no longer helps is the claim of a test of its own, of `old − new` with both errors: that
/// the old effect was called faster, and was the largest of those that were, is part of its condition
/// ([`Loss`]). Over patches the probabilities are adjusted by Holm, so that of all patches whose effect is
/// what it was, none is said to help no longer in 95 % of comparisons.
pub fn changes<'a>(
    old: &'a Attribution,
    new: Option<&'a Attribution>,
    names: impl Iterator<Item = &'a str>,
) -> Vec<Change<'a>> {
    let mut changes: Vec<Change<'a>> = names.filter_map(|name| change(old, new, name)).collect();
    let tested = |change: &&mut Change<'a>| change.loss.is_some();
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
) -> Option<Change<'a>> {
    let patch = old.patches.iter().find(|patch| patch.name == name)?;
    let (before, candidates) = headline(old, patch)?;
    let after = new.and_then(|new| {
        let patch = new.patches.iter().find(|patch| patch.name == name)?;
        patch.effects.iter().find(|effect| {
            effect.kind == Kind::InOrder
                // What another machine or harness said is no base for a verdict.
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
    Some(Change {
        name,
        old: before,
        new: after,
        loss,
        no_longer_helps: false,
    })
}

/// The effect a patch is kept for: the surest gain, on time if there is one there; else the one that
/// verdicts are about. With it, of how many gains it is the surest.
fn headline<'a>(
    attribution: &'a Attribution,
    patch: &'a PatchEffects,
) -> Option<(&'a Effect, usize)> {
    let in_order = || patch.effects.iter().filter(|e| e.kind == Kind::InOrder);
    let gain = |meter: Meter| {
        let faster =
            |effect: &&Effect| effect.meter == meter && effect.typical() == Verdict::Faster;
        let mut gains: Vec<&Effect> = in_order().filter(faster).collect();
        gains.sort_by(|a, b| b.low.unwrap_or(0.0).total_cmp(&a.low.unwrap_or(0.0)));
        Some((*gains.first()?, gains.len()))
    };
    Meter::ALL.into_iter().find_map(gain).or_else(|| {
        let meter = attribution.main_meter()?;
        let effect = attribution.main_effect(&patch.effects, Kind::InOrder, meter)?;
        Some((effect, 1))
    })
}
