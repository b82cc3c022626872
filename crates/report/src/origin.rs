//! The sources of reused figures, the unused observations and the end-to-end check, in words.

use super::number;
use super::view::View;
use perfquilt_judge::attribution::{Effect, Provenance, ShownChange};
use perfquilt_judge::stats::SpeedChange;

impl View<'_> {
    /// Describes the source of a reused figure; `None` for a figure of this experiment.
    pub(super) fn origin_of(&self, effect: &Effect) -> Option<String> {
        let sources = &self.attribution.sources;
        let kinds = |stale: bool| {
            sources
                .iter()
                .filter(|o| o.stale.is_some() == stale)
                .count()
        };
        match effect.provenance.as_ref()? {
            Provenance::Measured => None,
            Provenance::Reused(_) if kinds(false) == 1 => Some("reused".to_owned()),
            Provenance::Reused(name) => Some(format!("reused from {name}")),
            Provenance::Stale(_) if kinds(true) == 1 => Some("measured elsewhere".to_owned()),
            Provenance::Stale(name) => Some(format!("measured in {name}")),
        }
    }

    /// Returns a sentence for each earlier experiment that figures are from; `name` escapes a name for the format.
    pub(super) fn origins(&self, name: &dyn Fn(&str) -> String) -> Vec<String> {
        let sentence = |origin: &perfquilt_model::observation::ReusedFrom| {
            let day = origin.started.split('T').next().unwrap_or_default();
            let from = match day {
                "" => name(&origin.experiment),
                day => format!("{} of {}", name(&origin.experiment), name(day)),
            };
            match &origin.stale {
                None => format!(
                    "Reused from {from}: the same binaries, workloads, machine and harness."
                ),
                Some(why) => format!(
                    "Stale, from {from} ({}): shown until measured again; no verdict rests on it.",
                    name(why)
                ),
            }
        };
        self.attribution.sources.iter().map(sentence).collect()
    }

    /// Returns the end-to-end check of the first column's meter in one line.
    pub(super) fn end_to_end(&self) -> Option<String> {
        let (meter, places) = self.columns.first().copied()?;
        let check = self.attribution.main_end_to_end(meter)?;
        let shown =
            |estimate, ends| number::change(&ShownChange::of(meter, estimate, ends), places);
        let part = |part: &SpeedChange| shown(part.estimate, part.ends());
        Some(format!(
            "End to end: total {}, directly {}, difference {}: {}",
            part(&check.total),
            part(&check.direct),
            shown(check.difference, check.low.zip(check.high)),
            match check.consistent {
                Some(true) => "consistent",
                Some(false) => "not consistent",
                None => "too few blocks to tell",
            }
        ))
    }

    /// Returns a line for each kind of observation that no figure uses.
    pub(super) fn left_out(&self, name: &dyn Fn(&str) -> String) -> Vec<String> {
        self.attribution
            .left_out
            .iter()
            .map(|left| {
                format!(
                    "{} of {} ({}): {}",
                    left.count,
                    name(&left.workload),
                    left.meter,
                    name(&left.reason)
                )
            })
            .collect()
    }
}
