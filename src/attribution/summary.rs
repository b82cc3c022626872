//! What readers ask first: the headline effects.

use super::document::{Attribution, Closure, Effect, Kind, PatchEffects, SUITE, Verdict};
use crate::observation::Meter;

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

    /// The patches whose main in-order effect has `verdict`.
    pub fn patches_with(&self, verdict: Verdict) -> Vec<&PatchEffects> {
        let Some(meter) = self.main_meter() else {
            return Vec::new();
        };
        self.patches
            .iter()
            .filter(|patch| {
                self.main_effect(&patch.effects, Kind::InOrder, meter)
                    .is_some_and(|effect| effect.verdict == verdict)
            })
            .collect()
    }

    /// Whether a patch or the whole series is slower.
    pub fn is_regression(&self) -> bool {
        let total = self
            .main_meter()
            .and_then(|meter| self.main_effect(&self.total, Kind::Total, meter));
        total.is_some_and(|total| total.verdict == Verdict::Slower)
            || !self.patches_with(Verdict::Slower).is_empty()
    }

    /// Whether the experiment leaves a question open: a patch that is unclear or has no effect to
    /// show, or blocks still to be measured.
    pub fn is_inconclusive(&self) -> bool {
        !self.is_complete()
            || !self.patches_with(Verdict::Unclear).is_empty()
            || self.patches.iter().any(|patch| patch.reason.is_some())
    }
}
