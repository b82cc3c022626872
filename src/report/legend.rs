//! What the figures of a report are, and what their intervals promise.

use super::number;
use super::view::View;
use crate::attribution::Interval;
use crate::observation::Meter;

impl View<'_> {
    /// What the figures are, and which interval ± is of which meter.
    pub(super) fn legend(&self) -> String {
        let attribution = self.attribution;
        let of = |meter: Meter| {
            let effects = attribution.patches.iter().flat_map(|patch| &patch.effects);
            let mut effects = effects.chain(&attribution.total);
            effects.find(|effect| effect.meter == meter && !effect.identical)
        };
        let mut said: Vec<(String, Vec<String>)> = Vec::new();
        for (meter, _) in &self.columns {
            let Some(effect) = of(*meter) else { continue };
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
        format!("Per cent of speed, + is faster (fewer instructions); ± is {intervals}.")
    }
}
