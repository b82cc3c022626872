//! What a patch was worth in one experiment and is worth in another: before and after a rebase.

use super::document::{Attribution, Effect, Kind, PatchEffects, Verdict};
use crate::observation::Meter;

/// What became of a patch's effect, on the workload where it was worth most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change<'a> {
    /// The effect before.
    pub old: &'a Effect,
    /// The same effect (workload, meter) now, when it was measured and holds.
    pub new: Option<&'a Effect>,
    /// It was faster, and now it is shown not to be, or would have been seen if it were.
    pub no_longer_helps: bool,
}

/// What became of the patch called `name`; `None` when `old` has no effect of it.
pub fn change<'a>(
    old: &'a Attribution,
    new: Option<&'a Attribution>,
    name: &str,
) -> Option<Change<'a>> {
    let patch = old.patches.iter().find(|patch| patch.name == name)?;
    let before = headline(old, patch)?;
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
    let no_longer_helps = before.verdict == Verdict::Faster
        && after.is_some_and(|effect| match effect.verdict {
            Verdict::NoEffect | Verdict::Slower => true,
            Verdict::Faster => false,
            // An effect as large as the old one would have been seen.
            Verdict::Unclear => effect
                .minimum_detectable
                .is_some_and(|least| least < before.estimate),
        });
    Some(Change {
        old: before,
        new: after,
        no_longer_helps,
    })
}

/// The effect a patch is kept for: the surest gain, on time if there is one there; else the one that
/// verdicts are about.
fn headline<'a>(attribution: &'a Attribution, patch: &'a PatchEffects) -> Option<&'a Effect> {
    let in_order = || patch.effects.iter().filter(|e| e.kind == Kind::InOrder);
    let gain = |meter: Meter| {
        in_order()
            .filter(|effect| effect.meter == meter && effect.verdict == Verdict::Faster)
            .max_by(|a, b| a.low.unwrap_or(0.0).total_cmp(&b.low.unwrap_or(0.0)))
    };
    Meter::ALL.into_iter().find_map(gain).or_else(|| {
        let meter = attribution.main_meter()?;
        attribution.main_effect(&patch.effects, Kind::InOrder, meter)
    })
}
