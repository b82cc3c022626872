//! Checks of promises: `checks.json` has a row for each, with an experiment, a question and the limits of its answer.

use serde::{Deserialize, Serialize};

use super::experiment::Experiment;
use super::sessions::Session;
use super::simulation::parallel;
use super::{is_above, is_below};
use perfquilt_calibrate::random::Noise;
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, SUITE, Verdict};
use perfquilt_model::counted::percent;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, Statistic};
use perfquilt_model::point::Point;

/// A share with its limits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The name of the simulation or scenario.
    pub name: String,
    /// The meaning of the share, in words.
    pub what: String,
    /// The number of experiments.
    pub experiments: usize,
    /// The share found, from 0 to 1.
    pub share: f64,
    /// The lower limit of the share.
    pub least: f64,
    /// The upper limit of the share.
    pub most: f64,
}

impl Check {
    pub(super) fn is_outside(&self) -> bool {
        self.share < self.least || self.share > self.most
    }

    /// Returns whether the share is outside its limits beyond chance.
    pub(super) fn is_missed(&self) -> bool {
        is_below(self.share, self.least, self.experiments)
            || is_above(self.share, self.most, self.experiments)
    }

    pub(super) fn describe(&self) -> String {
        format!("{}: {} of {}", self.name, percent(self.share), self.what)
    }
}

/// The contribution of one simulated experiment to a share: hits, and the number they are out of.
pub(super) type Hits = (u32, u32);

/// A row of `checks.json`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default = "false_claims")]
    limits: (f64, f64),
    #[serde(default)]
    asks: Question,
    /// The meaning of the share, where the question's own words do not say it.
    what: Option<String>,
    /// The patches that it asks for.
    #[serde(default = "first")]
    of: Vec<usize>,
    /// The verdicts that it asks for.
    #[serde(default)]
    says: Vec<String>,
    /// The meter that it asks for; by default the experiment's first.
    meter: Option<Meter>,
    /// Divides the number of experiments, where they take longer than most.
    one_in: Option<usize>,
    experiment: Experiment,
    #[serde(default)]
    session: Session,
}

fn false_claims() -> (f64, f64) {
    (0.0, super::FALSE_POSITIVES)
}

fn first() -> Vec<usize> {
    vec![1]
}

/// What the share of a simulation counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// Experiments that say anything in order that is not true.
    #[default]
    Wrong,
    /// Intervals that contain the true effect.
    Covered,
    /// Patches with one of the verdicts asked for.
    Says,
    /// Experiments with a mixed patch or a regression, which is one.
    Regression,
    /// Experiments with a claim on a single workload.
    Cell,
    /// Cells that are claimed and have no effect, as a share of those claimed.
    FalseCells,
    /// Experiments with a claim over all workloads on a meter that is not the first.
    OtherMeters,
    /// Experiments with a claim on a total.
    Total,
    /// Experiments with a claim on a cumulative effect.
    Cumulative,
    /// Experiments with a claim on an operation.
    Operation,
    /// P-values of a patch's stalls of at most 5 %.
    Stalls,
    /// Intervals of the mean that contain the true effect, or none.
    Mean,
    /// Machines of a kind that are left out, or experiments that leave out a healthy one.
    Noisy,
    /// See [`Question::Noisy`].
    Shifted,
    /// See [`Question::Noisy`].
    Healthy,
    /// Functions that are named and not changed, as a share of those named.
    Functions,
}

impl Question {
    fn what(self) -> &'static str {
        match self {
            Question::Wrong => "experiments with a false claim",
            Question::Covered => "95 % intervals that contain the true effect",
            Question::Says => "experiments that find the effect",
            Question::Regression => "experiments in which the patch is mixed, and a regression",
            Question::Cell => "tables with a row called faster or slower",
            Question::FalseCells => "cells called changed that are not, on average",
            Question::OtherMeters => "experiments in which a patch is called on cpu or cycles",
            Question::Total => "experiments in which a total is called",
            Question::Cumulative => "experiments in which one is called faster or slower",
            Question::Operation => "experiments in which an operation is called faster or slower",
            Question::Stalls => "p-values of a patch's stalls of at most 5 %",
            Question::Mean => "intervals of the mean, or none, that hold",
            Question::Noisy => "noisy ones that are left out",
            Question::Shifted => "shifted ones that are left out",
            Question::Healthy => "experiments that leave out a healthy machine",
            Question::Functions => "functions named that are not changed, on average",
        }
    }
}

/// Parts of one hit: the least common multiple of small numbers.
const PARTS: u32 = 840;

/// Returns the share of `wrong` ones among `all`.
pub(super) fn share_of(wrong: usize, all: usize) -> Hits {
    let parts = (PARTS as usize * wrong) / all.max(1);
    (u32::try_from(parts).unwrap_or(PARTS), PARTS)
}

/// Returns the hits of a single experiment: one of one, or none.
pub(super) fn hit(is_hit: bool) -> Hits {
    (u32::from(is_hit), 1)
}

impl Row {
    fn run(&self, noise: &mut Noise) -> Result<Hits> {
        match &self.experiment {
            Experiment::Fleet(fleet) => Ok(fleet.measure(noise)?.asked(self.asks)),
            Experiment::Functions(count) => Ok(super::sessions::false_functions(*count, noise)),
            experiment => {
                let asked =
                    |experiment: &Experiment, found: &Attribution| self.asked(experiment, found);
                self.session.run(experiment, &asked, noise)
            }
        }
    }

    fn asked(&self, experiment: &Experiment, found: &Attribution) -> Hits {
        let effects = found.patches.iter().flat_map(|patch| &patch.effects);
        let main_meter = experiment.meter();
        let meter = self.meter.unwrap_or(main_meter);
        let of_kind = |kind: EffectKind| effects.clone().filter(move |of| of.kind == kind);
        let mut in_order = of_kind(EffectKind::InOrder).filter(|of| of.meter == meter);
        let cells = of_kind(EffectKind::InOrder).filter(|of| of.workload != SUITE);
        let mut called = cells.filter(|of| of.is_shown());
        let is_shown = |of: &Effect| of.verdict.is_shown();
        let truths = |of: &Effect| experiment.truths(of);
        match self.asks {
            Question::Wrong => hit(in_order.any(|of| is_wrong(of, &truths(of)))),
            Question::Cell => hit(called.next().is_some()),
            Question::OtherMeters => hit(of_kind(EffectKind::InOrder)
                .filter(|of| of.meter != main_meter && of.workload == SUITE)
                .any(is_shown)),
            Question::Total => hit(found
                .total
                .iter()
                .any(|of| of.meter == meter && is_shown(of))),
            Question::Cumulative => hit(of_kind(EffectKind::Cumulative).any(is_shown)),
            Question::Operation => {
                let mut operations = found.operations.iter().flat_map(|of| &of.effects);
                hit(operations.any(is_shown))
            }
            Question::FalseCells => {
                let called: Vec<&Effect> = called.collect();
                let is_false = |of: &&&Effect| truths(of)[0] == 0.0;
                share_of(called.iter().filter(is_false).count(), called.len())
            }
            _ => self.asked_of_patches(experiment, found, meter),
        }
    }

    /// Counts the patches of [`Row::of`] for which the answer is yes.
    fn asked_of_patches(&self, experiment: &Experiment, found: &Attribution, meter: Meter) -> Hits {
        let patches = found
            .patches
            .iter()
            .filter_map(|patch| found.main_effect(&patch.effects, EffectKind::InOrder, meter));
        let is_asked = |of: &&Effect| self.of.iter().any(|&step| of.point == Point::Step(step));
        patches.filter(is_asked).fold((0, 0), |sum, of| {
            let tail = of.tail.as_ref();
            let holds = |low: Option<f64>, high: Option<f64>, truth: f64| {
                low.is_none_or(|low| low <= truth) && high.is_none_or(|high| truth <= high)
            };
            let is_hit = match self.asks {
                Question::Covered => holds(of.low, of.high, experiment.truths(of)[0]),
                Question::Says => self.says.contains(&of.verdict.to_string()),
                Question::Regression => {
                    let is_mixed =
                        self.says.is_empty() || self.says.contains(&of.verdict.to_string());
                    is_mixed && of.is_regression() && found.is_regression()
                }
                Question::Stalls => tail
                    .and_then(|tail| tail.get(Statistic::Stalled)?.p_value)
                    .is_some_and(|p| p <= 0.05),
                Question::Mean => tail
                    .and_then(|tail| tail.get(Statistic::Mean))
                    .is_none_or(|mean| holds(mean.low, mean.high, experiment.mean_effect())),
                _ => false,
            };
            (sum.0 + u32::from(is_hit), sum.1 + 1)
        })
    }

    fn one_in(&self) -> usize {
        let large = if self.experiment.is_large() { 10 } else { 2 };
        self.one_in.unwrap_or(large)
    }
}

fn is_wrong(effect: &Effect, truths: &[f64]) -> bool {
    let mut truths = truths.iter();
    let margin = effect.meter.default_margin();
    match effect.verdict {
        Verdict::Faster => truths.all(|gain| *gain <= 0.0),
        Verdict::Slower => truths.all(|gain| *gain >= 0.0),
        Verdict::Mixed => truths.all(|gain| *gain == 0.0),
        Verdict::NoEffect => truths.any(|gain| gain.abs() > margin),
        Verdict::NoTypicalEffect | Verdict::Unclear => false,
    }
}

fn rows() -> Result<Vec<Row>> {
    serde_json::from_str(include_str!("checks.json"))
        .map_err(|error| Error::internal(format!("checks.json: {error}")))
}

/// Runs the checks whose names contain `only`; `experiments` is the number for the fastest ones.
pub(super) fn checks(
    experiments: usize,
    seed: u64,
    only: &str,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for of in rows()?.iter().filter(|of| of.name.contains(only)) {
        let count = experiments.div_ceil(of.one_in());
        let hits: Vec<Hits> =
            parallel(count, |index| of.run(&mut Noise::of(seed, &of.name, index)))?;
        let sum = |part: fn(&Hits) -> u32| hits.iter().map(|hit| f64::from(part(hit))).sum::<f64>();
        let what = of.what.as_deref().unwrap_or(of.asks.what());
        checks.push(Check {
            name: of.name.clone(),
            what: what.to_owned(),
            experiments: count,
            share: sum(|hit| hit.0) / sum(|hit| hit.1).max(1.0),
            least: of.limits.0,
            most: of.limits.1,
        });
        done();
    }
    Ok(checks)
}

/// Returns the number of checks.
pub(super) fn count() -> Result<usize> {
    Ok(rows()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_simulation_misses_no_limit() {
        let found = checks(100, 1, "", &|| ()).unwrap();
        assert_eq!(found.len(), count().unwrap());
        let missed = found.iter().filter(|check| check.is_missed());
        let faults: Vec<String> = missed.map(Check::describe).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn every_family_of_the_documents_is_simulated_at_its_level() {
        let page = include_str!("../../../docs/statistics.md");
        let table = page.split("<!-- families").nth(1).unwrap();
        let rows = table
            .lines()
            .skip(3)
            .take_while(|line| line.starts_with('|'));
        let simulated = super::rows().unwrap();
        let mut count = 0;
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, family, _, level, name, _] = cells[..] else {
                panic!("{row}")
            };
            let percent: f64 = level.split(' ').next().unwrap().parse().unwrap();
            // Beside the nominal level, the chance of ten thousand experiments.
            let most = percent / 100.0 + 0.005;
            let of_row = simulated.iter().filter(|of| of.name == name);
            let limits: Vec<f64> = of_row.map(|of| of.limits.1).collect();
            assert!(
                !limits.is_empty() && limits.iter().all(|limit| *limit <= most + 1e-9),
                "{family}: {limits:?}"
            );
            count += 1;
        }
        assert!(count >= 8, "{count}");
    }

    #[test]
    fn a_share_outside_its_limits_is_a_fault_unless_chance_explains_it() {
        let check = |share, experiments| Check {
            name: "x".into(),
            what: String::new(),
            experiments,
            share,
            least: 0.0,
            most: crate::FALSE_POSITIVES,
        };
        assert!(check(0.06, 10_000).is_missed());
        assert!(!check(0.06, 400).is_missed() && check(0.06, 400).is_outside());
        assert!(check(0.12, 400).is_missed() && check(0.12, 400).describe().contains("12.0 %"));
    }
}
