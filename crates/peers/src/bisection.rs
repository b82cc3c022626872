//! Other methods of bisecting, on the simulated noise of perfquilt's own calibration.

use std::collections::BTreeMap;

use crate::two_sample::{kolmogorov_smirnov, mann_whitney};
use perfquilt_calibrate::bisection::{Answer, Machine, Method, Performance, Perfquilt, Setting};
use perfquilt_calibrate::random::Noise;
use perfquilt_model::error::Result;
use perfquilt_model::progress::Progress;

/// The results of all methods on one kind of session.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) setting: Setting,
    /// The methods' names and results, perfquilt's first.
    pub(crate) methods: Vec<(&'static str, Performance)>,
}

/// Runs `sessions` simulated bisections per setting with every method.
pub(crate) fn cases(sessions: usize, seed: u64, progress: &dyn Progress) -> Result<Vec<Case>> {
    let mut thresholds = PinpointThresholds::new(seed);
    let case = |setting| case(setting, &mut thresholds, sessions, progress);
    Setting::all().into_iter().map(case).collect()
}

fn case(
    setting: Setting,
    thresholds: &mut PinpointThresholds,
    sessions: usize,
    progress: &dyn Progress,
) -> Result<Case> {
    let peers = Peer::all(&setting, thresholds);
    let names = std::iter::once("perfquilt").chain(peers.iter().map(Peer::name));
    let mut methods: Vec<&dyn Method> = vec![&Perfquilt];
    methods.extend(peers.iter().map(|peer| peer as &dyn Method));
    let found = setting.performances(&methods, sessions, thresholds.seed, progress)?;
    Ok(Case {
        setting,
        methods: names.zip(found).collect(),
    })
}

/// Another method of bisecting.
#[derive(Debug, Clone)]
enum Peer {
    /// `git bisect run` with a script that compares the mean of this many runs with the middle between good and
    /// bad, measured the same way.
    Mean(usize),
    /// The same with as many runs as a right answer would need if the noise were known.
    Enough(usize),
    /// Pinpoint: doubles the attempts while a comparison is neither same nor different. Holds the p-value above
    /// which two states count as the same, by number of attempts.
    Pinpoint(BTreeMap<usize, f64>),
}

/// Pinpoint's numbers of attempts.
const ATTEMPTS: [usize; 5] = [10, 20, 40, 80, 160];

/// The largest p-value with which two states count as different in Pinpoint.
const DIFFERENT: f64 = 0.01;

/// Simulated comparisons behind each of Pinpoint's upper thresholds.
const TRIALS: usize = 1000;

impl Peer {
    /// Returns all methods, configured for `setting`.
    fn all(setting: &Setting, thresholds: &mut PinpointThresholds) -> Vec<Peer> {
        vec![
            Peer::Mean(1),
            Peer::Mean(5),
            Peer::Pinpoint(thresholds.same_above(setting.machine, setting.target_size())),
            Peer::Enough(enough(setting)),
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Peer::Mean(1) => "git bisect run, one run",
            Peer::Mean(_) => "git bisect run, mean of 5",
            Peer::Pinpoint(_) => "Pinpoint's rule",
            Peer::Enough(_) => "git bisect run, mean of enough",
        }
    }
}

impl Method for Peer {
    fn answer(&self, setting: &Setting, levels: &[f64], noise: &mut Noise) -> Result<Answer> {
        Ok(match self {
            Peer::Mean(runs) | Peer::Enough(runs) => bisect(setting, levels, *runs, noise),
            Peer::Pinpoint(same) => pinpoint(setting, levels, same, noise),
        })
    }
}

/// Simulates `git bisect run`: names one change, unless bad is not slower than good by half the size.
fn bisect(setting: &Setting, levels: &[f64], runs: usize, noise: &mut Noise) -> Answer {
    let mut answer = Answer::default();
    let mut measure = |state: usize| {
        answer.values += runs;
        answer.builds += 1;
        let sum: f64 = (0..runs)
            .map(|_| levels[state] + setting.machine.unpaired_deviation(noise))
            .sum();
        sum / runs as f64
    };
    let (mut good, mut bad) = (0, levels.len() - 1);
    let (first, last) = (measure(good), measure(bad));
    if last - first < setting.target_size() / 2.0 {
        answer.nothing = true;
        return answer;
    }
    let threshold = f64::midpoint(first, last);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if measure(middle) > threshold {
            bad = middle
        } else {
            good = middle
        }
    }
    answer.named.insert(bad);
    answer
}

/// Returns the number of runs with which, for normal values, a whole bisection is right in 99 % of cases: the
/// distance of a state from the threshold is half the change, the error that of a mean and of the mean of two.
fn enough(setting: &Setting) -> usize {
    let states = (setting.changes as f64).log2() + 1.0;
    let critical_value = perfquilt_judge::stats::normal_quantile(1.0 - 0.01 / states);
    let sd = setting.machine.unpaired_sd() * 1.5f64.sqrt();
    (critical_value * sd / (setting.size / 2.0)).powi(2).ceil() as usize
}

/// Simulates Pinpoint, which inserts the middle between neighbours that differ, until neighbours are adjacent.
fn pinpoint(
    setting: &Setting,
    levels: &[f64],
    same: &BTreeMap<usize, f64>,
    noise: &mut Noise,
) -> Answer {
    let mut answer = Answer::default();
    let mut values: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut pending = vec![(0, levels.len() - 1)];
    let mut any_differ = false;
    while let Some((a, b)) = pending.pop() {
        let mut differ = false;
        for attempts in ATTEMPTS {
            for state in [a, b] {
                let known = values.entry(state).or_insert_with(|| {
                    answer.builds += 1;
                    Vec::new()
                });
                while known.len() < attempts {
                    answer.values += 1;
                    known.push(levels[state] + setting.machine.unpaired_deviation(noise));
                }
            }
            let p = probability(&values[&a], &values[&b]);
            differ = p <= DIFFERENT;
            if differ || p > same[&attempts] {
                break;
            }
        }
        any_differ |= differ;
        match (differ, b - a) {
            (true, 1) => {
                answer.named.insert(b);
            }
            (true, _) => {
                let middle = a.midpoint(b);
                pending.extend([(a, middle), (middle, b)]);
            }
            (false, _) => {}
        }
    }
    answer.nothing = !any_differ;
    answer
}

fn probability(a: &[f64], b: &[f64]) -> f64 {
    mann_whitney(a, b).min(kolmogorov_smirnov(a, b))
}

/// Pinpoint's upper thresholds, by machine and size to find.
#[derive(Debug)]
struct PinpointThresholds {
    seed: u64,
    known: Vec<((Machine, f64), BTreeMap<usize, f64>)>,
}

impl PinpointThresholds {
    fn new(seed: u64) -> Self {
        PinpointThresholds {
            seed,
            known: Vec::new(),
        }
    }

    /// Returns the p-value that comparisons of states that differ by `size` exceed in one case of a hundred, by
    /// number of attempts: above it Pinpoint calls them the same.
    fn same_above(&mut self, machine: Machine, size: f64) -> BTreeMap<usize, f64> {
        let key = (machine, size);
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == key) {
            return known.clone();
        }
        let mut noise = Noise::of(self.seed, &format!("pinpoint {machine:?} {size}"), 0);
        let found: BTreeMap<usize, f64> = ATTEMPTS
            .into_iter()
            .map(|attempts| {
                let mut draw = |effect: f64| -> Vec<f64> {
                    (0..attempts)
                        .map(|_| effect + machine.unpaired_deviation(&mut noise))
                        .collect()
                };
                let mut found: Vec<f64> = (0..TRIALS)
                    .map(|_| probability(&draw(0.0), &draw(size)))
                    .collect();
                found.sort_by(f64::total_cmp);
                (attempts, found[TRIALS * 99 / 100])
            })
            .collect();
        self.known.push((key, found.clone()));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::progress::Silent;

    fn methods(machine: Machine, changes: usize, culprits: usize, size: f64) -> Vec<Performance> {
        let setting = Setting {
            machine,
            changes,
            culprits,
            size,
        };
        let found = case(setting, &mut PinpointThresholds::new(1), 20, &Silent).unwrap();
        assert_eq!(found.methods[0].0, "perfquilt");
        found.methods.into_iter().map(|(_, found)| found).collect()
    }

    #[test]
    fn large_culprits_are_found_by_all_and_small_ones_by_repeated_measurements() {
        let large = methods(Machine::Quiet, 8, 1, 0.05);
        assert!(large.iter().all(|method| method.exact > 0.8), "{large:?}");
        let small = methods(Machine::Shared, 8, 1, 0.01);
        assert!(small[0].exact >= 0.95, "{small:?}");
        assert!(small[1].exact < 0.6 && small[2].exact < 0.8, "{small:?}");
    }

    #[test]
    fn a_plain_bisection_names_one_change_whatever_there_is() {
        let none = methods(Machine::Shared, 8, 0, 0.01);
        assert!(none[0].exact >= 0.95, "{none:?}");
        assert!(none[1].exact < 0.9, "{none:?}");
        let three = methods(Machine::Quiet, 64, 3, 0.02);
        assert!(three[0].exact >= 0.9, "{three:?}");
        assert_eq!(three[1].exact, 0.0);
    }
}
