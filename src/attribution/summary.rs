//! What readers ask first: the headline effects and how the meters agree.

use super::document::{Attribution, Closure, Effect, Kind, PatchEffects, SUITE, Verdict};
use crate::observation::Meter;

/// How time and instructions agree on an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// Both show it, in the same direction and of comparable size.
    Both,
    /// Time shows it, instructions do not, or too little to explain it: possibly code layout or
    /// caches.
    TimeOnly,
    /// Instructions show it, time does not.
    InstructionsOnly,
    /// They show opposite effects.
    Opposite,
}

/// Instructions explain an effect on time when they show at least this share of it.
const EXPLAINS: f64 = 0.2;

impl Agreement {
    /// How two effects between the same points on the same workload agree; `None` when neither shows
    /// anything or instructions are unclear.
    pub fn of(time: &Effect, instructions: &Effect) -> Option<Self> {
        let shown = Effect::is_shown;
        match (shown(time), shown(instructions)) {
            (false, false) => None,
            (false, true) => Some(Agreement::InstructionsOnly),
            (true, false) if instructions.verdict == Verdict::Unclear => None,
            (true, false) => Some(Agreement::TimeOnly),
            (true, true) => {
                // The end of time's interval that is nearest to 0 is the least to be explained.
                let least = [time.low, time.high]
                    .into_iter()
                    .flatten()
                    .map(f64::abs)
                    .fold(time.estimate.abs(), f64::min);
                let enough = instructions.estimate.abs() >= EXPLAINS * least;
                Some(match time.verdict == instructions.verdict {
                    true if enough => Agreement::Both,
                    false if enough => Agreement::Opposite,
                    _ => Agreement::TimeOnly,
                })
            }
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Agreement::Both => "time and instructions agree",
            Agreement::TimeOnly => "time only: possibly code layout or caches",
            Agreement::InstructionsOnly => "instructions only",
            Agreement::Opposite => "time and instructions disagree",
        }
    }
}

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
