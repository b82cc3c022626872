//! The legend of a report: units of its figures and coverage of its intervals.

use super::view::View;
use super::{number, server_tests};
use perfquilt_judge::attribution::{Attribution, Effect, StoppingRule, Verdict};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;

/// Returns an effect whose interval has the kind and level of all intervals of the meter.
fn typical(attribution: &Attribution, meter: Meter) -> Option<&Effect> {
    let mut effects = attribution.series_effects();
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
        let mut kinds: Vec<(String, Vec<String>)> = Vec::new();
        let mut until_narrow = Vec::new();
        for (meter, _) in &self.columns {
            let Some(effect) = typical(attribution, *meter) else {
                continue;
            };
            let level = 100.0 * effect.level;
            let words = match effect.interval {
                StoppingRule::Anytime => format!(
                    "the {level:.0} % interval that holds however often one looks, because the experiment {}",
                    if attribution.is_complete() {
                        "was continued after its end, or shortened before it"
                    } else {
                        "is unfinished"
                    }
                ),
                StoppingRule::FixedWidth | StoppingRule::FixedSample => {
                    format!("the {level:.0} % interval over blocks")
                }
            };
            if effect.interval == StoppingRule::FixedWidth {
                until_narrow.push(meter.to_string());
            }
            match kinds.iter_mut().find(|(known, _)| *known == words) {
                Some((_, meters)) => meters.push(meter.to_string()),
                None => kinds.push((words, vec![meter.to_string()])),
            }
        }
        let intervals = match &kinds[..] {
            [] => "the 95 % interval over blocks".to_owned(),
            [(words, _)] => words.clone(),
            several => several
                .iter()
                .map(|(words, meters)| format!("for {} {words}", meters.join(" and ")))
                .collect::<Vec<_>>()
                .join("; "),
        };
        let end = match &attribution.stopping {
            Some(rule) if !until_narrow.is_empty() => format!(
                " Measuring of {} ended when every interval was ±{} or narrower, or after {} blocks.",
                until_narrow.join(" and "),
                number::margin(rule.resolution),
                rule.max_blocks
            ),
            _ => String::new(),
        };
        let mut shown = self.effects();
        let unknown = if shown.any(|effect| effect.is_measured() && effect.low.is_none()) {
            ", ? an unknown one"
        } else {
            ""
        };
        let is_open = |effect: &Effect| {
            effect.verdict == Verdict::Unclear && effect.minimum_detectable.is_some()
        };
        let detectable = if attribution.series_effects().any(is_open) {
            " Four in five such experiments would detect an effect of the minimum detectable size, with all rows \
             judged together."
        } else {
            ""
        };
        let tests = match attribution.tests_at(Point::BASE) {
            Some(tests) => format!(" {}.", server_tests::of_release(tests)),
            None => String::new(),
        };
        let units = number::units(&self.meters());
        format!("{units}; ± is {intervals}{unknown}.{end}{detectable}{tests}")
    }
}
