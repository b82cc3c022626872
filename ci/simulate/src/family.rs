//! Null experiments through the whole pipeline: the rate of false claims.

use serde::Serialize;

use super::checks::Check;
use super::scenario::Scenario;
use super::sessions::ended;
use super::simulation::parallel;
use super::{COVERAGE, FALSE_POSITIVES};
use perfquilt_calibrate::random::Noise;
use perfquilt_config::DEFAULT_MIN_BLOCKS;
use perfquilt_judge::attribution::{Effect, EffectKind, PatchEffects, Verdict};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;

/// The maximum number of blocks of a simulated experiment.
pub(super) const BLOCKS: u32 = 40;
/// The half-width at which a simulated experiment ends.
pub(super) const RESOLUTION: f64 = 0.005;

/// The results of the null experiments of a scenario. Shares are between 0 and 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Family {
    /// The scenario's name.
    pub scenario: String,
    /// The description of the scenario.
    pub description: String,
    /// The number of experiments.
    pub experiments: usize,
    /// The share of experiments in which some patch was called faster or slower at the end.
    pub false_positives: f64,
    /// The same share if a person looks after every block and stops the experiment by hand at the first patch
    /// that is called faster or slower.
    pub false_positives_peeking: f64,
    /// The share of experiments in which Student's test, as if the number of blocks had been fixed and without
    /// Holm's adjustment, calls some patch faster or slower at some look: the errors that the rules prevent.
    pub false_positives_naive: f64,
    /// The share of the patches' intervals at the end that contain the true effect.
    pub coverage: f64,
    /// The share of the total's intervals at the end that contain the true effect.
    pub coverage_total: f64,
    /// Blocks measured, on average over experiments and workloads.
    pub blocks: f64,
    /// The share of experiments that used all blocks.
    pub budget_used: f64,
    /// The share of patches whose verdict at the end is `no effect`.
    pub no_effect: f64,
}

impl Family {
    /// Returns the shares that have limits.
    pub(super) fn checks(&self) -> [Check; 3] {
        let check = |what: &str, share, (least, most)| Check {
            name: self.scenario.clone(),
            what: what.to_owned(),
            experiments: self.experiments,
            share,
            least,
            most,
        };
        let false_claims = (0.0, FALSE_POSITIVES);
        [
            check(
                "experiments with a false claim at the end",
                self.false_positives,
                false_claims,
            ),
            check(
                "experiments with a false claim when stopped by hand",
                self.false_positives_peeking,
                false_claims,
            ),
            check(
                "intervals that contain the true effect",
                self.coverage,
                COVERAGE,
            ),
        ]
    }
}

/// The result of one experiment.
#[derive(Default)]
struct One {
    false_positive: bool,
    peeking: bool,
    naive: bool,
    held: u32,
    intervals: u32,
    total_held: u32,
    totals: u32,
    blocks: f64,
    budget_used: bool,
    no_effect: u32,
}

/// Runs `experiments` null experiments of `scenario`, and reports each finished one to `done`.
pub(super) fn family(
    scenario: &Scenario,
    experiments: usize,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<Family> {
    let all: Vec<One> = parallel(experiments, |index| {
        let mut noise = Noise::of(seed, &scenario.name, index);
        let one = one(scenario, &mut noise)?;
        done();
        Ok(one)
    })?;
    let n = all.len().max(1) as f64;
    let share = |of: fn(&One) -> bool| all.iter().filter(|one| of(one)).count() as f64 / n;
    let sum = |of: fn(&One) -> u32| all.iter().map(|one| f64::from(of(one))).sum::<f64>();
    let intervals = sum(|one| one.intervals).max(1.0);
    Ok(Family {
        scenario: scenario.name.clone(),
        description: scenario.description.clone(),
        experiments: all.len(),
        false_positives: share(|one| one.false_positive),
        false_positives_peeking: share(|one| one.peeking),
        false_positives_naive: share(|one| one.naive),
        coverage: sum(|one| one.held) / intervals,
        coverage_total: sum(|one| one.total_held) / sum(|one| one.totals).max(1.0),
        blocks: all.iter().map(|one| one.blocks).sum::<f64>() / n,
        budget_used: share(|one| one.budget_used),
        no_effect: sum(|one| one.no_effect) / intervals,
    })
}

/// Simulates one experiment from the first block to the end, through the tables, intervals, adjustments and
/// verdicts of a real one.
fn one(scenario: &Scenario, noise: &mut Noise) -> Result<One> {
    let mut one = One::default();
    let rule = (RESOLUTION, DEFAULT_MIN_BLOCKS);
    let end = ended(&scenario.experiment, rule, noise, &mut |collector| {
        let (patches, stopping) = collector.patches(&Meter::default_margin);
        let goes_on = stopping.as_ref().is_none_or(|stopping| !stopping.ended);
        one.peeking |= goes_on && claims(&patches);
        one.naive |= main_effects(&patches).any(|effect| student(effect) < 0.05);
        stopping
    })?;
    if !end.is_complete() {
        return Err(Error::internal("a simulated experiment did not end"));
    }
    one.false_positive = claims(&end.patches);
    one.peeking |= one.false_positive;
    for effect in judged(&end.patches) {
        one.intervals += 1;
        one.held += u32::from(!effect.leaves_out_zero());
        one.no_effect += u32::from(effect.verdict == Verdict::NoEffect);
    }
    for effect in &end.total {
        one.totals += 1;
        one.total_held += u32::from(!effect.leaves_out_zero());
    }
    let done = end.progress.iter().map(|of| f64::from(of.done));
    one.blocks = done.sum::<f64>() / end.progress.len().max(1) as f64;
    one.budget_used = end.stopping.is_some_and(|state| !state.open.is_empty());
    Ok(one)
}

/// Returns the in-order effects of all patches on all workloads and the suite.
fn judged(patches: &[PatchEffects]) -> impl Iterator<Item = &Effect> {
    let effects = patches.iter().flat_map(|patch| &patch.effects);
    effects.filter(|effect| effect.kind == EffectKind::InOrder)
}

/// Returns the effects that the patches' verdicts are about: of the suite, or the only workload.
fn main_effects(patches: &[PatchEffects]) -> impl Iterator<Item = &Effect> {
    patches.iter().filter_map(|patch| {
        let mut effects = patch.effects.iter();
        // The suite comes first.
        effects.find(|effect| effect.kind == EffectKind::InOrder)
    })
}

/// Returns whether a patch is called faster or slower, by the effect its verdict is about.
fn claims(patches: &[PatchEffects]) -> bool {
    main_effects(patches).any(|effect| effect.verdict.is_shown())
}

/// Returns the p-value of Student's test, as if the number of blocks had been fixed.
fn student(effect: &Effect) -> f64 {
    use statrs::distribution::{ContinuousCDF, StudentsT};
    let freedom = effect.blocks.saturating_sub(1) as f64;
    let error = effect.standard_error.unwrap_or(f64::INFINITY);
    let statistic = (effect.estimate.ln_1p() / error).abs();
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |t| 2.0 * t.sf(statistic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::scenarios;

    #[test]
    fn every_scenario_ends_and_together_they_stay_within_the_limits() {
        let scenarios = scenarios().unwrap();
        let run = |scenario| family(scenario, 15, 1, &|| ()).unwrap();
        let all: Vec<Family> = scenarios.iter().map(run).collect();
        let mean = |of: fn(&Family) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        // The limits of the calibration, and two standard errors for this number of experiments and intervals.
        let allowed = |share: f64, of: f64| 2.0 * (share * (1.0 - share) / of).sqrt();
        let experiments = 15.0 * all.len() as f64;
        let most = 0.055 + allowed(0.055, experiments);
        assert!(
            mean(|family| family.false_positives) < most,
            "{most} {all:?}"
        );
        assert!(
            mean(|family| family.false_positives_peeking) < most,
            "{most} {all:?}"
        );
        let coverage = mean(|family| family.coverage);
        // Neighbouring patches share a point: half as many intervals are independent.
        let allowed = allowed(0.94, 2.0 * experiments);
        assert!(
            (0.94 - allowed..=0.97 + allowed).contains(&coverage),
            "{all:?}"
        );
        for found in &all {
            assert!((10.0..=40.0).contains(&found.blocks), "{found:?}");
        }
        // Naive looks at every block must produce false positives.
        assert!(mean(|family| family.false_positives_naive) > 0.2, "{all:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_result() {
        let missing = &scenarios().unwrap()[5];
        let run = |seed| family(missing, 6, seed, &|| ()).unwrap();
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
