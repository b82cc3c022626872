//! Maintainers' decisions on patches that are slower.

use std::collections::BTreeSet;

use super::document::{
    AppliedDecision, Attribution, Effect, EffectKind, PatchEffects, SUITE, Verdict,
};
use super::summary::effect_on;
use perfquilt_model::decision::{DecisionKind, PatchDecision};
use perfquilt_model::observation::Statistic;

impl Attribution {
    /// Adds the latest of `decisions` on each patch for this release and recipe, and whether it still holds for the programs
    /// and workloads that were measured here.
    pub fn decide(&mut self, decisions: &[PatchDecision]) {
        for patch in &mut self.patches {
            let mut recorded = decisions.iter();
            let is_ours = |of: &&PatchDecision| of.is_of(&patch.name, &self.release, &self.recipe);
            if let Some(found) = recorded.rfind(is_ours) {
                let lapsed = found.lapsed(patch.index, &self.bound);
                patch.decision = Some(AppliedDecision {
                    decision: found.decision,
                    reason: found.reason.clone(),
                    workloads: Some(found.workloads.keys().cloned().collect()),
                    lapsed: lapsed.map(|difference| difference.to_string()),
                });
            }
        }
    }

    /// Accepts on all workloads, for `reason`, that the patch of this number is slower, if there is one and the acceptance
    /// has not `lapsed`.
    pub fn accept(&mut self, patch: usize, reason: &str, lapsed: Option<String>) {
        let found = self.patches.iter_mut().find(|of| of.index == patch);
        if let Some(found) = found {
            found.decision = Some(AppliedDecision {
                decision: DecisionKind::Keep,
                reason: reason.to_owned(),
                workloads: None,
                lapsed,
            });
        }
    }

    /// Returns the workloads on which a patch is slower; all if it is only over all of them.
    pub fn slower_on<'a>(&self, patch: &'a PatchEffects) -> BTreeSet<&'a str> {
        let Some(meter) = self.main_meter() else {
            return BTreeSet::new();
        };
        let all = patch.effects.iter();
        let all = all.filter(|of| (of.kind, of.meter) == (EffectKind::InOrder, meter));
        let mut found = BTreeSet::new();
        for effect in self.regressions(patch, meter) {
            match &effect.cells {
                _ if effect.workload != SUITE => drop(found.insert(&*effect.workload)),
                Some(cells) if !matches!(cells.own, Verdict::Slower | Verdict::Mixed) => {
                    found.extend(cells.slower.iter().map(String::as_str));
                }
                _ => found.extend(
                    all.clone()
                        .map(|of| &*of.workload)
                        .filter(|of| *of != SUITE),
                ),
            }
        }
        found
    }

    /// Returns the workloads on which a patch is slower and no decision that holds accepts it.
    pub fn unaccepted_on<'a>(&self, patch: &'a PatchEffects) -> BTreeSet<&'a str> {
        let mut slower = self.slower_on(patch);
        let decision = patch.decision.as_ref();
        if let Some(decision) = decision.filter(|decision| decision.lapsed.is_none()) {
            let accepted = decision.workloads.as_ref();
            slower.retain(|name| accepted.is_some_and(|accepted| !accepted.contains(*name)));
        }
        slower
    }

    /// Returns whether a patch is slower, and a decision that holds accepts that.
    pub fn is_accepted(&self, patch: &PatchEffects) -> bool {
        !self.slower_on(patch).is_empty() && self.unaccepted_on(patch).is_empty()
    }

    /// Returns those of [`Attribution::slower_patches`] that no decision accepts.
    pub fn unaccepted_patches(&self) -> Vec<&PatchEffects> {
        let mut slower = self.slower_patches();
        slower.retain(|patch| !self.is_accepted(patch));
        slower
    }

    /// Returns whether the whole series is slower by `total` also without the estimated effects of the accepted patches: the
    /// upper limit of one of its figures that are slower lies below their sum.
    pub(super) fn is_beyond_accepted(&self, total: &Effect) -> bool {
        let on = |effects, kind, workload| effect_on(effects, kind, total.meter, workload);
        let accepted = self.patches.iter().filter(|patch| self.is_accepted(patch));
        let accepted: Vec<&Effect> = accepted
            .filter_map(|patch| on(&patch.effects, EffectKind::InOrder, &total.workload))
            .collect();
        if accepted.is_empty() || !total.is_regression() {
            return total.is_regression();
        }
        let figures = std::iter::once(None).chain(Statistic::ALL.iter().copied().map(Some));
        let is_beyond = |statistic| {
            let Some((_, high, Verdict::Slower)) = figure(total, statistic) else {
                return false;
            };
            let known = accepted.iter().filter_map(|of| figure(of, statistic));
            let sum: f64 = known.map(|(estimate, ..)| estimate).sum();
            high.is_none_or(|high| high < sum)
        };
        let mut slower = total.cells.iter().flat_map(|cells| &cells.slower);
        let mut figures = figures;
        figures.any(is_beyond)
            || slower.any(|name| {
                let single = on(&self.total, EffectKind::Total, name);
                single.is_none_or(|single| self.is_beyond_accepted(single))
            })
    }
}

/// Returns the estimate, the upper limit and the verdict of a statistic of an effect; of its typical value for `None`.
fn figure(effect: &Effect, statistic: Option<Statistic>) -> Option<(f64, Option<f64>, Verdict)> {
    let tail = effect.tail.as_ref();
    let Some(statistic) = statistic else {
        let verdict = tail.map_or(effect.own_verdict(), |tail| tail.typical);
        return Some((effect.estimate, effect.high, verdict));
    };
    let found = tail?.get(statistic)?;
    Some((found.estimate, found.high, found.verdict))
}
