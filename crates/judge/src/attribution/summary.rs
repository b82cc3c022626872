//! The headline effects of an attribution.

use super::document::{
    Attribution, ComparedWith, Effect, EffectKind, EndToEnd, PatchEffects, SUITE, Verdict,
};
use perfquilt_model::comparable::Comparable;
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;
use perfquilt_model::server_tests::PointTests;

impl Attribution {
    /// Returns the baseline of all comparisons: the release, or the name of the server that the user gave.
    pub fn base(&self) -> &str {
        self.base.as_deref().unwrap_or(&self.release)
    }

    /// Returns what the values were observed of, as far as the experiment's header tells, with all facts of the machine.
    pub fn observed(&self) -> Comparable {
        Comparable::new(&self.machine, &self.harness, &self.release, &self.recipe)
    }

    /// Returns where the figures come from, as pairs of name and value: command, time, harness, experiment. Unknown ones
    /// are left out.
    pub fn provenance(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("command", self.command.as_deref().unwrap_or_default()),
            ("started", &self.started),
            ("harness", &self.harness),
            ("experiment", &self.experiment),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
    }

    /// Returns the effects of the patches and the total, on all meters and workloads.
    pub fn series_effects(&self) -> impl Iterator<Item = &Effect> {
        let patches = self.patches.iter().flat_map(|patch| &patch.effects);
        patches.chain(&self.total)
    }

    /// Returns the meter that verdicts refer to: time if it was read, otherwise the first meter.
    pub fn main_meter(&self) -> Option<Meter> {
        self.margins.keys().next().copied()
    }

    /// Returns the workload that verdicts refer to: the suite, or the only workload of `meter`.
    pub fn main_workload(&self, meter: Meter) -> Option<&str> {
        let mut of_meter = self.progress.iter().filter(|p| p.meter == meter);
        let first = of_meter.next()?;
        Some(match of_meter.next() {
            Some(_) => SUITE,
            None => &first.workload,
        })
    }

    /// Returns the one of `effects` of `kind` and `meter` that verdicts refer to.
    pub fn main_effect<'a>(
        &self,
        effects: &'a [Effect],
        kind: EffectKind,
        meter: Meter,
    ) -> Option<&'a Effect> {
        effect_on(effects, kind, meter, self.main_workload(meter)?)
    }

    /// Returns the end-to-end check of `meter` on the main workload.
    pub fn main_end_to_end(&self, meter: Meter) -> Option<&EndToEnd> {
        let workload = self.main_workload(meter)?;
        let mut checks = self.end_to_end.iter();
        checks.find(|check| check.meter == meter && check.workload == workload)
    }

    /// Returns whether the experiment is complete: all planned blocks are done, the stopping rule has ended
    /// it, or it has no plan.
    pub fn is_complete(&self) -> bool {
        self.progress.iter().all(|p| p.ended)
    }

    /// Returns the patches whose main in-order effect is a regression ([`Effect::is_regression`]). A patch
    /// without a main effect, because it was not measured on all workloads, counts if it has a regression on
    /// any workload.
    pub fn slower_patches(&self) -> Vec<&PatchEffects> {
        let Some(meter) = self.main_meter() else {
            return Vec::new();
        };
        let is_slower = |patch: &&PatchEffects| !self.regressions(patch, meter).is_empty();
        self.patches.iter().filter(is_slower).collect()
    }

    /// Returns the patches whose main in-order effect has `verdict`.
    pub fn patches_with(&self, verdict: Verdict) -> Vec<&PatchEffects> {
        let Some(meter) = self.main_meter() else {
            return Vec::new();
        };
        let main = |patch: &&PatchEffects| {
            let effect = self.main_effect(&patch.effects, EffectKind::InOrder, meter);
            effect.is_some_and(|effect| effect.verdict == verdict)
        };
        self.patches.iter().filter(main).collect()
    }

    /// Returns the comparison of the server's own tests at `point`.
    pub fn tests_at(&self, point: Point) -> Option<&PointTests> {
        self.tests.iter().find(|tests| tests.point == point)
    }

    /// Returns the numbers of the patches with which a test newly fails.
    pub fn patches_with_new_failures(&self) -> Vec<usize> {
        let tests = self.tests.iter().filter(|tests| !tests.new.is_empty());
        tests.filter_map(|tests| tests.point.step()).collect()
    }

    /// Returns the in-order effects that make a patch slower: the main one, or those on single workloads if it has none.
    pub(super) fn regressions<'a>(&self, patch: &'a PatchEffects, meter: Meter) -> Vec<&'a Effect> {
        let main = self.main_effect(&patch.effects, EffectKind::InOrder, meter);
        let of_meter = |effect: &&Effect| {
            let is_main = main.is_none_or(|main| main.workload == effect.workload);
            (effect.kind, effect.meter) == (EffectKind::InOrder, meter) && is_main
        };
        let effects = patch.effects.iter().filter(of_meter);
        effects.filter(|effect| effect.is_regression()).collect()
    }

    /// Returns whether a patch or the whole series is slower, over all workloads or on a single one if there
    /// is no figure over all of them, and no decision accepts that.
    pub fn is_regression(&self) -> bool {
        let Some(meter) = self.main_meter() else {
            return false;
        };
        let is_beyond = |total: &Effect| self.is_beyond_accepted(total);
        let total = match self.main_effect(&self.total, EffectKind::Total, meter) {
            Some(total) => is_beyond(total),
            // Without a figure over all workloads, the single ones are judged together.
            None => {
                let mut single = self.total.iter().filter(|effect| effect.meter == meter);
                single.any(is_beyond)
            }
        };
        total || !self.unaccepted_patches().is_empty()
    }

    /// Returns whether the experiment is inconclusive: a patch is unclear, mixed or without effect on the typical time
    /// alone, or has no figure, the series has no figure, or blocks remain.
    pub fn is_inconclusive(&self) -> bool {
        let lacks = |meter: Meter| {
            let has = |effects: &[Effect], kind| self.main_effect(effects, kind, meter).is_some();
            let mut patches = self.patches.iter();
            patches.any(|patch| !has(&patch.effects, EffectKind::InOrder))
                || self.has_total() && !has(&self.total, EffectKind::Total)
        };
        !self.is_complete()
            || !self.patches_with(Verdict::Unclear).is_empty()
            || !self.patches_with(Verdict::Mixed).is_empty()
            || !self.patches_with(Verdict::NoTypicalEffect).is_empty()
            || self.patches.iter().any(|patch| patch.reason.is_some())
            || self.main_meter().is_some_and(lacks)
    }

    /// Returns whether the points are servers that the user named, and no series of patches.
    pub fn is_of_servers(&self) -> bool {
        self.compared_with == ComparedWith::Base
    }

    /// Returns whether the last point stands for all: that of a series does, one of several servers does not.
    pub fn has_total(&self) -> bool {
        let servers = self.patches.len();
        servers == 1 || servers > 1 && !self.is_of_servers()
    }

    /// Iterates over the effects of the patches, of the series and of the control.
    pub(super) fn effects(&self) -> impl Iterator<Item = &Effect> {
        let control = self.noise.control.iter().map(|control| &control.effect);
        self.series_effects().chain(control)
    }

    /// Returns whether any effect compares points that share no block.
    pub fn is_unpaired(&self) -> bool {
        self.effects().any(|effect| effect.unpaired)
    }

    /// Returns whether any effect is against the mean of the release and its control.
    pub fn uses_control(&self) -> bool {
        self.effects().any(|effect| effect.with_control)
    }
}

/// Returns the first of `effects` that is of this kind, on a meter and a workload.
pub fn effect_on<'e>(
    effects: &'e [Effect],
    kind: EffectKind,
    meter: Meter,
    workload: &str,
) -> Option<&'e Effect> {
    effects
        .iter()
        .find(|e| e.kind == kind && e.meter == meter && e.workload == workload)
}
