//! Compares the power of perfquilt's decision rule and of others at the same rate of false positives.

use crate::rules::{HISTORY, Rule, Sample};
use perfquilt_calibrate::RESTART;
use perfquilt_calibrate::random::Noise;
use perfquilt_calibrate::simulation::{counted, parallel};
use perfquilt_model::error::Result;
use perfquilt_model::progress::Progress;

/// Values per side.
pub(crate) const VALUES: usize = 40;

/// The rate of false positives that all rules are set to.
pub(crate) const RATE: f64 = 0.05;

/// The effects to find, as fractions of speed.
pub(crate) const EFFECTS: [f64; 7] = [0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012];

/// The variation of the values of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    Quiet,
    Drift,
    HeavyTails,
    Outliers,
}

impl Machine {
    pub(crate) const ALL: [Machine; 4] = [
        Machine::Quiet,
        Machine::Drift,
        Machine::HeavyTails,
        Machine::Outliers,
    ];

    fn name(self) -> &'static str {
        match self {
            Machine::Quiet => "restarts only",
            Machine::Drift => "a shared machine",
            Machine::HeavyTails => "heavy tails",
            Machine::Outliers => "outliers",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Machine::Quiet => "normal restarts of 0.6 %, nothing else",
            Machine::Drift => {
                "the same, and the machine's speed varies by 2 % from block to block, for both sides"
            }
            Machine::HeavyTails => {
                "as the shared machine, restarts with Student's distribution of 3 degrees of freedom"
            }
            Machine::Outliers => "as the shared machine, one value in twenty 1 to 4 % too slow",
        }
    }

    /// Draws the logs of costs of both sides, without effect.
    fn values(self, noise: &mut Noise) -> (Vec<f64>, Vec<f64>) {
        let draw = |noise: &mut Noise| {
            let mut value = match self {
                Machine::HeavyTails => RESTART * noise.heavy(),
                _ => RESTART * noise.normal(),
            };
            if self == Machine::Outliers && noise.chance(0.05) {
                value += 0.01 + 0.03 * noise.uniform();
            }
            value
        };
        (0..VALUES)
            .map(|_| {
                let shared = match self {
                    Machine::Quiet => 0.0,
                    _ => 0.02 * noise.normal(),
                };
                (shared + draw(noise), shared + draw(noise))
            })
            .unzip()
    }

    fn sample(self, noise: &mut Noise) -> Sample {
        let (before, after) = self.values(noise);
        Sample {
            before,
            after,
            history: (0..HISTORY).map(|_| self.values(noise)).collect(),
        }
    }
}

/// The power of the rules on one simulated machine. Shares are between 0 and 1.
#[derive(Debug)]
pub(crate) struct Power {
    /// The machine's name.
    pub(crate) machine: &'static str,
    /// The description of the machine.
    pub(crate) description: &'static str,
    /// One entry per rule.
    pub(crate) rules: Vec<RulePower>,
}

/// The power of one rule.
#[derive(Debug)]
pub(crate) struct RulePower {
    /// The project whose rule it is.
    pub(crate) rule: &'static str,
    /// The description of the rule.
    pub(crate) description: &'static str,
    /// Its rate of false positives with its own threshold.
    pub(crate) false_positives: f64,
    /// The share of comparisons in which the rule finds each of [`EFFECTS`], with its threshold set to
    /// [`RATE`] false positives.
    pub(crate) found: Vec<f64>,
}

/// Returns the number of comparisons with each effect, beside `comparisons` without one.
pub(crate) fn with_effect(comparisons: usize) -> usize {
    (comparisons / 5).max(1)
}

/// Compares the rules on all machines.
pub(crate) fn powers(comparisons: usize, seed: u64, progress: &dyn Progress) -> Result<Vec<Power>> {
    let all = comparisons + with_effect(comparisons);
    let on = |machine: Machine| {
        let name = format!("compare rules: {}", machine.name());
        counted(&name, all, progress, |done| {
            power(machine, comparisons, seed, done)
        })
    };
    Machine::ALL.into_iter().map(on).collect()
}

/// Compares the rules on `machine`: `comparisons` without effect set the thresholds, a fifth as many with
/// each effect show the power.
fn power(
    machine: Machine,
    comparisons: usize,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<Power> {
    let name = machine.name();
    let without: Vec<Vec<(f64, bool)>> = parallel(comparisons, |index| {
        let mut noise = Noise::of(seed, &format!("null {name}"), index);
        let sample = machine.sample(&mut noise);
        done();
        Ok(decisions(&sample, &mut noise))
    })?;
    let thresholds: Vec<f64> = (0..Rule::ALL.len())
        .map(|rule| {
            let mut scores: Vec<f64> = without.iter().map(|decisions| decisions[rule].0).collect();
            scores.sort_by(f64::total_cmp);
            let place = ((1.0 - RATE) * scores.len() as f64).ceil() as usize;
            scores
                .get(place.saturating_sub(1))
                .copied()
                .unwrap_or(f64::INFINITY)
        })
        .collect();
    let fewer = with_effect(comparisons);
    // The same noise for every effect and rule, so that differences between them are not chance.
    let with: Vec<Vec<Vec<bool>>> = parallel(fewer, |index| {
        let mut noise = Noise::of(seed, &format!("effect {name}"), index);
        let mut sample = machine.sample(&mut noise);
        let calm = sample.after.clone();
        let found = EFFECTS
            .iter()
            .map(|effect| {
                sample.after = calm.iter().map(|value| value - effect.ln_1p()).collect();
                let decisions = decisions(&sample, &mut noise);
                let pairs = decisions.iter().zip(&thresholds);
                pairs
                    .map(|((score, _), threshold)| score > threshold)
                    .collect()
            })
            .collect();
        done();
        Ok(found)
    })?;
    let share = |rule: usize, effect: usize| {
        let found = with.iter().filter(|found| found[effect][rule]).count();
        found as f64 / fewer as f64
    };
    let rules = Rule::ALL.into_iter().enumerate().map(|(place, rule)| {
        let reported = without.iter().filter(|decisions| decisions[place].1);
        RulePower {
            rule: rule.name(),
            description: rule.description(),
            false_positives: reported.count() as f64 / without.len().max(1) as f64,
            found: (0..EFFECTS.len())
                .map(|effect| share(place, effect))
                .collect(),
        }
    });
    Ok(Power {
        machine: name,
        description: machine.description(),
        rules: rules.collect(),
    })
}

/// Returns the score of every rule, and whether the rule reports a change.
fn decisions(sample: &Sample, noise: &mut Noise) -> Vec<(f64, bool)> {
    Rule::ALL
        .iter()
        .map(|rule| rule.decide(sample, noise))
        .map(|decision| (decision.score, decision.is_change))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_within_blocks_find_more_on_a_shared_machine() {
        let found = power(Machine::Drift, 200, 1, &|| ()).unwrap();
        let of = |rule: &str| found.rules.iter().find(|r| r.rule == rule).unwrap();
        // 0.4 %: 3 standard errors of the paired difference.
        assert!(of("perfquilt").found[3] > 0.6, "{found:?}");
        for rule in ["benchstat", "ClickHouse", "Pinpoint", "rustc-perf"] {
            assert!(of(rule).found[3] < of("perfquilt").found[3], "{found:?}");
        }
        assert!((0.01..0.12).contains(&of("perfquilt").false_positives));
    }
}
