//! The legend of a report: units of its figures and coverage of its intervals.

use super::view::View;
use super::{number, server_tests};
use perfquilt_judge::attribution::{Attribution, Effect, Interval, Verdict};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;

/// Returns an effect whose interval has the kind and level of all intervals of the meter.
fn typical(attribution: &Attribution, meter: Meter) -> Option<&Effect> {
    let effects = attribution.patches.iter().flat_map(|patch| &patch.effects);
    let mut effects = effects.chain(&attribution.total);
    effects.find(|effect| effect.meter == meter && effect.is_measured())
}

/// Returns the confidence level of a meter's intervals in per cent; it is higher while the experiment is unfinished.
pub(super) fn level(attribution: &Attribution, meter: Meter) -> f64 {
    typical(attribution, meter).map_or(95.0, |effect| 100.0 * effect.level)
}

impl View<'_> {
    /// Returns the legend: the unit of the figures, the kind of interval of each meter, and how the bare release's
    /// tests go.
    pub(super) fn legend(&self) -> String {
        let attribution = self.attribution;
        let mut said: Vec<(String, Vec<String>)> = Vec::new();
        for (meter, _) in &self.columns {
            let Some(effect) = typical(attribution, *meter) else {
                continue;
            };
            let level = 100.0 * effect.level;
            let words = match (effect.interval, &attribution.stopping) {
                (Interval::Anytime, _) if attribution.is_complete() => format!(
                    "the {level:.0} % interval that holds whenever one looks, since the experiment went on \
                     after its end"
                ),
                (Interval::Anytime, _) => format!(
                    "the {level:.0} % interval that holds whenever one looks, as long as the experiment \
                     goes on"
                ),
                (Interval::Sequential, Some(rule)) => format!(
                    "the {level:.0} % interval over blocks, measured until it was ±{} or narrower, or \
                     {} blocks were used",
                    number::margin(rule.resolution),
                    rule.max_blocks
                ),
                _ => format!("the {level:.0} % interval over blocks"),
            };
            match said.iter_mut().find(|(known, _)| *known == words) {
                Some((_, meters)) => meters.push(meter.to_string()),
                None => said.push((words, vec![meter.to_string()])),
            }
        }
        let intervals = match &said[..] {
            [] => "the 95 % interval over blocks".to_owned(),
            [(words, _)] => words.clone(),
            several => several
                .iter()
                .map(|(words, meters)| format!("for {} {words}", meters.join(" and ")))
                .collect::<Vec<_>>()
                .join("; "),
        };
        let effects = attribution.patches.iter().flat_map(|patch| &patch.effects);
        let is_open = |effect: &Effect| {
            effect.verdict == Verdict::Unclear && effect.minimum_detectable.is_some()
        };
        let seen = if effects.chain(&attribution.total).any(is_open) {
            " Four such experiments in five call an effect of the minimum detectable size, among all rows that \
             are judged together."
        } else {
            ""
        };
        let tests = match attribution.tests_at(Point::BASE) {
            Some(tests) => format!(" {}.", server_tests::of_release(tests)),
            None => String::new(),
        };
        format!(
            "Per cent of speed, + is faster (fewer instructions); ± is {intervals}.{seen}{tests}"
        )
    }
}
