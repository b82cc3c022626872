//! What readers ask first: the headline effects.

use super::document::{Attribution, Closure, Effect, Kind, PatchEffects, SUITE, Verdict};
use crate::stats::holm;
use perfquilt_model::observation::Meter;

impl Attribution {
    /// What everything is compared with: the release, or the server that somebody named.
    pub fn base(&self) -> &str {
        match self.base.as_str() {
            "" => &self.release,
            base => base,
        }
    }

    /// The meter verdicts are about: time where it was read, else the first that was.
    pub fn main_meter(&self) -> Option<Meter> {
        self.margins.keys().next().copied()
    }

    /// The workload verdicts are about: the suite, or the only workload of `meter`.
    pub fn main_workload(&self, meter: Meter) -> Option<&str> {
        let mut of_meter = self.progress.iter().filter(|p| p.meter == meter);
        let first = of_meter.next()?;
        Some(match of_meter.next() {
            Some(_) => SUITE,
            None => &first.workload,
        })
    }

    /// Of `effects`, the one of `kind` and `meter` that verdicts are about.
    pub fn main_effect<'a>(
        &self,
        effects: &'a [Effect],
        kind: Kind,
        meter: Meter,
    ) -> Option<&'a Effect> {
        let workload = self.main_workload(meter)?;
        effects
            .iter()
            .find(|e| e.kind == kind && e.meter == meter && e.workload == workload)
    }

    /// The closure check of `meter` that is judged.
    pub fn main_closure(&self, meter: Meter) -> Option<&Closure> {
        let workload = self.main_workload(meter)?;
        let mut checks = self.closure.iter();
        checks.find(|check| check.meter == meter && check.workload == workload)
    }

    /// Whether no more blocks are to be measured: all that were planned are done, the stopping rule
    /// has ended the experiment, or no plan is known.
    pub fn is_complete(&self) -> bool {
        self.progress.iter().all(|p| p.ended)
    }

    /// The patches that make the server slower by their main in-order effect ([`Effect::is_regression`]). One
    /// that has no such effect, as it was not measured on all workloads, is slower where it is on some workload.
    pub fn slower_patches(&self) -> Vec<&PatchEffects> {
        let Some(meter) = self.main_meter() else {
            return Vec::new();
        };
        let slower = |effect: &Effect| {
            (effect.kind, effect.meter) == (Kind::InOrder, meter) && effect.is_regression()
        };
        self.patches
            .iter()
            .filter(
                |patch| match self.main_effect(&patch.effects, Kind::InOrder, meter) {
                    Some(effect) => effect.is_regression(),
                    None => patch.effects.iter().any(slower),
                },
            )
            .collect()
    }

    /// The patches whose main in-order effect has `verdict`.
    pub fn patches_with(&self, verdict: Verdict) -> Vec<&PatchEffects> {
        let Some(meter) = self.main_meter() else {
            return Vec::new();
        };
        let main = |patch: &&PatchEffects| {
            let effect = self.main_effect(&patch.effects, Kind::InOrder, meter);
            effect.is_some_and(|effect| effect.verdict == verdict)
        };
        self.patches.iter().filter(main).collect()
    }

    /// Whether a patch or the whole series is slower: over all workloads, or on one where there is no figure
    /// over all of them.
    pub fn is_regression(&self) -> bool {
        let total = self.main_meter().is_some_and(|m| self.is_total_slower(m));
        total || !self.slower_patches().is_empty()
    }

    fn is_total_slower(&self, meter: Meter) -> bool {
        if let Some(total) = self.main_effect(&self.total, Kind::Total, meter) {
            return total.is_regression();
        }
        // Many workloads are as many chances, and nothing else has adjusted these.
        let single = || self.total.iter().filter(|effect| effect.meter == meter);
        let raw: Vec<f64> = single().map(|e| e.p_value.unwrap_or(1.0)).collect();
        let mut judged = single().zip(holm(&raw));
        judged.any(|(e, adjusted)| e.typical() == Verdict::Slower && adjusted <= 1.0 - e.level)
    }

    /// Whether the experiment leaves a question open: a patch that is unclear or has no effect to
    /// show, a series without a figure, or blocks still to be measured.
    pub fn is_inconclusive(&self) -> bool {
        let lacks = |meter: Meter| {
            let has = |effects: &[Effect], kind| self.main_effect(effects, kind, meter).is_some();
            let mut patches = self.patches.iter();
            patches.any(|patch| !has(&patch.effects, Kind::InOrder))
                || !self.patches.is_empty() && !has(&self.total, Kind::Total)
        };
        !self.is_complete()
            || !self.patches_with(Verdict::Unclear).is_empty()
            || !self.patches_with(Verdict::Mixed).is_empty()
            || self.patches.iter().any(|patch| patch.reason.is_some())
            || self.main_meter().is_some_and(lacks)
    }

    /// The effects of the patches, of the series and of the control.
    pub(super) fn effects(&self) -> impl Iterator<Item = &Effect> {
        let patches = self.patches.iter().flat_map(|patch| &patch.effects);
        let control = self.noise.control.iter().map(|control| &control.effect);
        patches.chain(&self.total).chain(control)
    }

    /// Whether some effect compares points that share no block.
    pub fn is_unpaired(&self) -> bool {
        self.effects().any(|effect| effect.unpaired)
    }
}
