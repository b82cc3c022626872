//! Simulated bisections with known culprits: the share of right answers and their cost.

mod page;

use std::collections::BTreeSet;
use std::time::Instant;

use serde::Serialize;

use super::simulation::{counted, parallel};
use perfquilt_calibrate::random::Noise;
use perfquilt_judge::bisect::{
    Action, BisectOutcome, Bisector, Conclusion, Culprit, DEFAULT_SIZE, Event, MeasuredBlock,
    Question, Revision,
};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;

/// The standard deviation of one value around its block, restart and layout included, as measured on a real
/// server (docs/results, `oltp_read_only`).
const VALUE_SD: f64 = 0.0086;

/// The standard deviation of a shared machine's speed from one run to the next.
const DRIFT: f64 = 0.02;

/// Seconds of one value: a start, a warm-up and a measurement.
const VALUE_SECONDS: f64 = 3.0;

/// The sizes of culprits, as fractions of speed.
const SIZES: [f64; 5] = [0.003, 0.005, 0.01, 0.02, 0.05];

/// The numbers of changes.
const CHANGES: [usize; 3] = [8, 64, 1024];

/// The numbers of culprits among them.
const CULPRITS: [usize; 3] = [0, 1, 3];

/// The smallest share of sessions that must be right, of those that name a change and of those that report
/// none.
const RIGHT: f64 = 0.99;

/// A simulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    /// Nothing but restarts.
    Quiet,
    /// The speed of the whole machine varies too.
    Shared,
    /// The same with heavier tails than normal.
    HeavyTails,
}

impl Machine {
    /// All machines.
    const ALL: [Machine; 3] = [Machine::Quiet, Machine::Shared, Machine::HeavyTails];

    /// Returns its name.
    fn name(self) -> &'static str {
        match self {
            Machine::Quiet => "a quiet machine",
            Machine::Shared => "a shared machine",
            Machine::HeavyTails => "heavy tails",
        }
    }

    /// Returns the description of its noise.
    fn description(self) -> &'static str {
        match self {
            Machine::Quiet => {
                "normal values of 0.86 %, restarts and layouts included, and nothing else"
            }
            Machine::Shared => "the same, and the machine's speed varies by 2 % from run to run",
            Machine::HeavyTails => {
                "as the shared machine, values with Student's distribution of 3 degrees of freedom"
            }
        }
    }

    /// Draws the deviation, as a log, that all values measured at the same time share.
    fn shared_deviation(self, noise: &mut Noise) -> f64 {
        match self {
            Machine::Quiet => 0.0,
            _ => DRIFT * noise.normal(),
        }
    }

    /// Draws the deviation of a single start, as a log.
    fn start_deviation(self, noise: &mut Noise) -> f64 {
        match self {
            Machine::HeavyTails => VALUE_SD * noise.heavy(),
            _ => VALUE_SD * noise.normal(),
        }
    }
}

/// The results of simulated bisections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bisections {
    /// Version of this document: 2.
    pub schema: u32,
    /// The version of the program.
    pub version: &'static str,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Sessions per case.
    pub sessions: usize,
    /// The duration in seconds.
    pub seconds: f64,
    /// The number of threads.
    pub threads: usize,
    /// One entry per machine and case.
    pub cases: Vec<Case>,
}

/// One kind of session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Case {
    /// The machine's name.
    pub machine: &'static str,
    /// The description of the machine.
    pub description: &'static str,
    /// Its settings.
    #[serde(flatten)]
    pub setting: Setting,
    /// The results of its sessions.
    #[serde(flatten)]
    pub performance: Performance,
}

/// The results of a method of bisecting. Shares are between 0 and 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Performance {
    /// The share of sessions that name at least one change.
    pub named: f64,
    /// The share of those in which every named change is a culprit; `None` where none was named.
    pub right: Option<f64>,
    /// The share of sessions that name exactly the culprits.
    pub exact: f64,
    /// Seconds of benchmark, on average.
    pub seconds: f64,
    /// Servers built, on average.
    pub builds: f64,
    /// Servers built in the worst of twenty sessions.
    pub builds_worst: usize,
}

impl Performance {
    /// Computes the shares and means of a method's answers.
    fn of(answers: &[Judged]) -> Self {
        let all = answers.len().max(1) as f64;
        let share = |count: usize, of: f64| count as f64 / of.max(1.0);
        let named = answers.iter().filter(|a| a.right.is_some()).count();
        let right = answers.iter().filter(|a| a.right == Some(true)).count();
        let mean = |what: fn(&Judged) -> usize| {
            answers
                .iter()
                .map(|answer| what(answer) as f64)
                .sum::<f64>()
                / all
        };
        let mut builds: Vec<usize> = answers.iter().map(|answer| answer.builds).collect();
        builds.sort_unstable();
        let worst = (builds.len() * 19).div_ceil(20).saturating_sub(1);
        Performance {
            named: share(named, all),
            right: (named > 0).then(|| share(right, named as f64)),
            exact: share(answers.iter().filter(|a| a.exact).count(), all),
            seconds: VALUE_SECONDS * mean(|answer| answer.values),
            builds: mean(|answer| answer.builds),
            builds_worst: builds.get(worst).copied().unwrap_or(0),
        }
    }
}

/// The answer of one session compared with the truth, and its cost.
#[derive(Debug, Clone)]
struct Judged {
    /// Whether all named changes are culprits; `None` where none is named.
    right: Option<bool>,
    /// Whether it names exactly the culprits, or reports explicitly that there is no change if there are none.
    exact: bool,
    /// Values measured.
    values: usize,
    /// Servers built.
    builds: usize,
}

impl Judged {
    fn of(outcome: &BisectOutcome, truth: &BTreeSet<usize>) -> Self {
        // A range of several changes names no single one.
        let is_one = |culprit: &&Culprit| culprit.confirmed && culprit.to == culprit.from + 1;
        let culprits = outcome.culprits.iter().filter(is_one);
        let named: BTreeSet<usize> = culprits.map(|culprit| culprit.to).collect();
        let says_nothing = matches!(
            outcome.conclusion,
            Conclusion::Nothing | Conclusion::Opposite
        );
        Judged {
            right: (!named.is_empty()).then(|| named.is_subset(truth)),
            exact: if truth.is_empty() {
                says_nothing
            } else {
                named == *truth
            },
            values: outcome.cost.values as usize,
            builds: outcome.cost.builds as usize,
        }
    }
}

impl Bisections {
    /// Returns the limits that were missed, one fragment each, beyond two standard errors of chance.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for case in &self.cases {
            let own = &case.performance;
            let place = format!(
                "{}, {} changes, {} culprits of {:.1} %",
                case.machine,
                case.setting.changes,
                case.setting.culprits,
                100.0 * case.setting.size
            );
            let share = |share: f64, of: f64, what: &str, faults: &mut Vec<String>| {
                let allowed = 2.0 * (RIGHT * (1.0 - RIGHT) / of.max(1.0)).sqrt();
                if share < RIGHT - allowed {
                    faults.push(format!("{place}: {:.1} % {what}", 100.0 * share));
                }
            };
            let sessions = self.sessions as f64;
            if case.setting.culprits == 0 {
                share(
                    own.exact,
                    sessions,
                    "say that there is nothing",
                    &mut faults,
                );
            } else if let Some(right) = own.right {
                share(
                    right,
                    sessions * own.named,
                    "are right when they name one",
                    &mut faults,
                );
            }
            if case.setting.culprits == 1 {
                share(own.exact, sessions, "find the culprit", &mut faults);
            }
        }
        faults
    }
}

/// Runs `sessions` simulated bisections per case. The same seed gives the same figures.
pub fn bisections(sessions: usize, seed: u64) -> Result<Bisections> {
    let started = Instant::now();
    let mut cases = Vec::new();
    for setting in Setting::all() {
        cases.push(Case {
            machine: setting.machine.name(),
            description: setting.machine.description(),
            setting,
            performance: setting.performance(sessions, seed)?,
        });
    }
    Ok(Bisections {
        schema: 2,
        version: env!("CARGO_PKG_VERSION"),
        seed,
        sessions,
        seconds: started.elapsed().as_secs_f64(),
        threads: rayon::current_num_threads(),
        cases,
    })
}

/// The settings of simulated sessions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Setting {
    /// The machine.
    #[serde(skip)]
    machine: Machine,
    /// Changes between good and bad.
    pub changes: usize,
    /// The number of culprits among them.
    pub culprits: usize,
    /// The slowdown by each culprit, as a fraction of speed; without culprits, the size to find.
    pub size: f64,
}

impl Setting {
    /// Returns all settings, those of a machine next to each other.
    fn all() -> Vec<Setting> {
        let mut all = Vec::new();
        for machine in Machine::ALL {
            for culprits in CULPRITS {
                let sizes: &[f64] = match culprits {
                    0 => &[DEFAULT_SIZE],
                    _ => &SIZES,
                };
                for changes in CHANGES {
                    all.extend(sizes.iter().map(|&size| Setting {
                        machine,
                        changes,
                        culprits,
                        size,
                    }));
                }
            }
        }
        all
    }

    /// Returns the size to find: the default, or less if the culprits are smaller.
    fn target_size(&self) -> f64 {
        self.size.min(DEFAULT_SIZE)
    }

    /// Runs `sessions` sessions. The same seed gives the same culprits and figures.
    fn performance(&self, sessions: usize, seed: u64) -> Result<Performance> {
        let step = format!(
            "bisect on {}: {} changes, {} culprits of {:.1} %",
            self.machine.name(),
            self.changes,
            self.culprits,
            100.0 * self.size
        );
        let purpose = format!(
            "bisect {:?} {} {} {}",
            self.machine, self.changes, self.culprits, self.size
        );
        let answers = counted(&step, sessions, |done| {
            parallel(sessions, |index| {
                let mut noise = Noise::of(seed, &purpose, index);
                let truth = self.truth(&mut noise);
                let outcome = self.outcome(&self.levels(&truth), &mut noise)?;
                done();
                Ok(Judged::of(&outcome, &truth))
            })
        })?;
        Ok(Performance::of(&answers))
    }

    /// Draws the positions of the culprits.
    fn truth(&self, noise: &mut Noise) -> BTreeSet<usize> {
        let mut places: Vec<usize> = (1..=self.changes).collect();
        noise.shuffle(&mut places);
        places.into_iter().take(self.culprits).collect()
    }

    /// Returns the logs of the states' costs.
    fn levels(&self, truth: &BTreeSet<usize>) -> Vec<f64> {
        let step = -(-self.size).ln_1p();
        (0..=self.changes)
            .map(|state| truth.range(..=state).count() as f64 * step)
            .collect()
    }

    /// Simulates a session of `perfquilt bisect`; `levels` are the logs of the states' costs.
    fn outcome(&self, levels: &[f64], noise: &mut Noise) -> Result<BisectOutcome> {
        let mut bisector = Bisector::new(Question {
            states: vec![Revision::default(); levels.len()],
            size: self.target_size(),
            most_blocks: 10_000,
            ..Question::about("", Meter::Time.into())
        });
        let mut number = 0;
        loop {
            let event = match bisector.action() {
                Action::Build { state } => Event::Built {
                    state: *state,
                    identity: state.to_string(),
                    seconds: 0.0,
                    cached: false,
                },
                Action::Measure { states, .. } => {
                    let shared = self.machine.shared_deviation(noise);
                    number += 1;
                    Event::Block(MeasuredBlock {
                        number,
                        values: states
                            .iter()
                            .map(|&state| {
                                let own = self.machine.start_deviation(noise);
                                (state, (levels[state] + shared + own).exp())
                            })
                            .collect(),
                        ..MeasuredBlock::default()
                    })
                }
                Action::Done => return Ok(bisector.outcome()),
                Action::Broken { .. } => {
                    return Err(Error::internal("a simulated state cannot break"));
                }
            };
            bisector.apply(&event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perfquilt(machine: Machine, changes: usize, culprits: usize, size: f64) -> Performance {
        let setting = Setting {
            machine,
            changes,
            culprits,
            size,
        };
        setting.performance(20, 1).unwrap()
    }

    #[test]
    fn culprits_of_all_sizes_are_found() {
        let large = perfquilt(Machine::Quiet, 8, 1, 0.05);
        assert!(large.exact > 0.8, "{large:?}");
        let small = perfquilt(Machine::Shared, 8, 1, 0.01);
        assert!(small.exact >= 0.95, "{small:?}");
        assert!(small.builds <= 6.0, "{small:?}");
    }

    #[test]
    fn no_culprit_and_several_culprits_are_distinguished() {
        let none = perfquilt(Machine::Shared, 8, 0, 0.01);
        assert!(none.exact >= 0.95, "{none:?}");
        let three = perfquilt(Machine::Quiet, 64, 3, 0.02);
        assert!(three.exact >= 0.9, "{three:?}");
    }
}
