//! The best of several variants of one patch.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Numbered, PatchHistory};
use crate::document::name;
use crate::number;
use perfquilt_judge::attribution::EffectKind;
use perfquilt_judge::stats::speed;
use perfquilt_model::point::Point;

/// The best of several variants of a patch that were measured on the same state of the server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BestVariant {
    /// The release.
    pub release: String,
    /// The experiment with the best effect.
    pub experiment: String,
    /// The number of variants: servers that differ with the patch and are the same without it.
    pub variants: usize,
    /// The number of experiments that measured them, from which the best was chosen.
    pub experiments: usize,
    /// The best effect as a fraction of speed, which is too large on average.
    pub estimate: f64,
    /// The lower end of its 95 % interval, which allows for the choice.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl BestVariant {
    /// Returns the sentence for a reader.
    pub(crate) fn text(&self, places: usize) -> String {
        let percent = |fraction| number::signed(fraction, places);
        format!(
            "best of {} variants in {} experiments on {}: {} % [{}, {}], {}",
            self.variants,
            self.experiments,
            name(&self.release),
            percent(self.estimate),
            percent(self.low),
            percent(self.high),
            name(&self.experiment)
        )
    }
}

/// Returns the best variant of a patch for each state of the server on which several were measured, on one machine, by one
/// method and on the same workloads.
///
/// The intervals of all `k` experiments that it is chosen from hold together with 95 % (Bonferroni), so that of the best one
/// does, however it is chosen.
pub(super) fn best_variants(
    history: &PatchHistory,
    attributions: &Numbered<'_>,
) -> Vec<BestVariant> {
    let mut groups: BTreeMap<_, Vec<(&str, usize)>> = BTreeMap::new();
    for (place, moment) in history.moments.iter().enumerate() {
        let effect = &moment.effect;
        let Some((_, of)) = attributions.get(moment.experiment.as_str()) else {
            continue;
        };
        let server = |point: Point| {
            let mut builds = of.builds.iter();
            builds
                .find(|build| build.point == point)
                .map(|build| build.key.as_str())
        };
        if effect.kind == EffectKind::InOrder
            && moment.estimate().is_some()
            && let Some(before) = server(effect.against)
            && let Some(with) = server(effect.point)
        {
            let workloads = moment.workloads.clone();
            let setting = (super::conditions(of), workloads, before);
            groups.entry(setting).or_default().push((with, place));
        }
    }
    let mut found: Vec<(usize, BestVariant)> = Vec::new();
    for tried in groups.into_values() {
        let variants: BTreeSet<&str> = tried.iter().map(|(with, _)| *with).collect();
        let best = tried.iter().max_by(|(_, a), (_, b)| {
            let of = |place: &usize| history.moments[*place].effect.estimate;
            of(a).total_cmp(&of(b))
        });
        if let (Some(&(_, place)), true) = (best, variants.len() > 1)
            && let Some(basis) = history.moments[place].effect.basis
        {
            let moment = &history.moments[place];
            let interval = basis.best_of(tried.len());
            found.push((
                place,
                BestVariant {
                    release: moment.release.clone(),
                    experiment: moment.experiment.clone(),
                    variants: variants.len(),
                    experiments: tried.len(),
                    estimate: speed(interval.estimate),
                    low: speed(interval.low()),
                    high: speed(interval.high()),
                },
            ));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, best)| best).collect()
}

#[cfg(test)]
mod tests {
    use super::super::history;
    use crate::tests::Experiment;
    use perfquilt_judge::attribution::Attribution;
    use perfquilt_model::observation::{Meter, PointBuild};
    use perfquilt_model::point::Point;

    fn variant(number: u64, key: &str, before: &str, gain: f64) -> Attribution {
        let mut experiment = Experiment::new(&[(gain, 0.0)]);
        experiment.seed = 17 + 1000 * number;
        experiment.header.experiment = format!("quick-{number}");
        experiment.header.started = format!("2026-03-{:02}T03:04:05Z", number + 1);
        experiment.supplement.builds = [(0, before), (1, key)]
            .map(|(point, key)| PointBuild {
                point: Point::Step(point),
                key: key.to_owned(),
                configure: 0.0,
                compile: 0.0,
                link: 0.0,
                overhead: 0.0,
                units: 0,
                cached: false,
                code_bytes: None,
                profile: None,
            })
            .to_vec();
        experiment.attribution()
    }

    #[test]
    fn the_best_variant_pays_for_the_choice() {
        let all = [
            variant(0, "a", "r", 0.01),
            variant(1, "b", "r", 0.05),
            variant(2, "b", "r", 0.04),
            variant(3, "c", "other", 0.09),
        ];
        let history = history(&all, Meter::Time, None);
        let [best] = &history.patches[0].best[..] else {
            panic!("{:?}", history.patches[0].best)
        };
        assert_eq!((best.variants, best.experiments), (2, 3));
        assert_eq!(best.experiment, "quick-1");
        let alone = &history.patches[0].moments[1].effect;
        assert_eq!(best.estimate, alone.estimate);
        assert!(best.low < alone.low.unwrap() && best.high > alone.high.unwrap());
        let text = history.document().terminal(100, false);
        assert!(
            text.contains("best of 2 variants in 3 experiments on "),
            "{text}"
        );
        assert!(
            history
                .document()
                .html()
                .unwrap()
                .contains("best of 2 variants")
        );
        // The same servers again are no variants, and the whole series has none.
        let same = super::super::history(&all[1..3], Meter::Time, None);
        assert!(same.patches.iter().all(|patch| patch.best.is_empty()));
    }
}
