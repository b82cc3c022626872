//! Other methods to find the change behind a regression, on the same simulated noise.

use std::collections::BTreeMap;

use super::super::random::Noise;
use super::super::rivals::{kolmogorov_smirnov, mann_whitney};
use super::{Answer, Machine, Setting};

/// A method to find a culprit.
#[derive(Debug, Clone)]
pub(super) enum Rival {
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

impl Rival {
    /// Returns all methods, configured for `setting`.
    pub(super) fn all(setting: &Setting, rules: &mut Pinpoints) -> Vec<Rival> {
        vec![
            Rival::Mean(1),
            Rival::Mean(5),
            Rival::Pinpoint(rules.same_above(setting.asked())),
            Rival::Enough(enough(setting)),
        ]
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Rival::Mean(1) => "git bisect run, one run",
            Rival::Mean(_) => "git bisect run, mean of 5",
            Rival::Pinpoint(_) => "Pinpoint's rule",
            Rival::Enough(_) => "git bisect run, mean of enough",
        }
    }

    pub(super) fn answer(&self, setting: &Setting, levels: &[f64], noise: &mut Noise) -> Answer {
        match self {
            Rival::Mean(runs) | Rival::Enough(runs) => bisect(setting, levels, *runs, noise),
            Rival::Pinpoint(same) => pinpoint(setting, levels, same, noise),
        }
    }
}

/// Simulates `git bisect run`: names one change, unless bad is not slower than good by half the size.
fn bisect(setting: &Setting, levels: &[f64], runs: usize, noise: &mut Noise) -> Answer {
    let mut answer = Answer::default();
    let mut measure = |state: usize| {
        answer.values += runs;
        answer.builds += 1;
        let sum: f64 = (0..runs)
            .map(|_| levels[state] + setting.machine.moment(noise) + setting.machine.own(noise))
            .sum();
        sum / runs as f64
    };
    let (mut good, mut bad) = (0, levels.len() - 1);
    let (first, last) = (measure(good), measure(bad));
    if last - first < setting.asked() / 2.0 {
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
    let reach = perfquilt_judge::stats::normal_quantile(1.0 - 0.01 / states);
    let sd = setting.machine.run_sd() * 1.5f64.sqrt();
    (reach * sd / (setting.size / 2.0)).powi(2).ceil() as usize
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
    let mut at_all = false;
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
                    let run = setting.machine.moment(noise) + setting.machine.own(noise);
                    known.push(levels[state] + run);
                }
            }
            let p = probability(&values[&a], &values[&b]);
            differ = p <= DIFFERENT;
            if differ || p > same[&attempts] {
                break;
            }
        }
        at_all |= differ;
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
    answer.nothing = !at_all;
    answer
}

fn probability(a: &[f64], b: &[f64]) -> f64 {
    mann_whitney(a, b).min(kolmogorov_smirnov(a, b))
}

/// Pinpoint's upper thresholds on a machine, by the size to find.
#[derive(Debug)]
pub(super) struct Pinpoints {
    machine: Machine,
    seed: u64,
    known: Vec<(f64, BTreeMap<usize, f64>)>,
}

impl Pinpoints {
    pub(super) fn new(machine: Machine, seed: u64) -> Self {
        Pinpoints {
            machine,
            seed,
            known: Vec::new(),
        }
    }

    /// Returns the p-value that comparisons of states that differ by `size` exceed in one case of a hundred, by
    /// number of attempts: above it Pinpoint calls them the same.
    fn same_above(&mut self, size: f64) -> BTreeMap<usize, f64> {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == size) {
            return known.clone();
        }
        let machine = self.machine;
        let mut noise = Noise::of(self.seed, &format!("pinpoint {machine:?} {size}"), 0);
        let found: BTreeMap<usize, f64> = ATTEMPTS
            .into_iter()
            .map(|attempts| {
                let mut draw = |effect: f64| -> Vec<f64> {
                    (0..attempts)
                        .map(|_| effect + machine.moment(&mut noise) + machine.own(&mut noise))
                        .collect()
                };
                let mut found: Vec<f64> = (0..TRIALS)
                    .map(|_| probability(&draw(0.0), &draw(size)))
                    .collect();
                found.sort_by(f64::total_cmp);
                (attempts, found[TRIALS * 99 / 100])
            })
            .collect();
        self.known.push((size, found.clone()));
        found
    }
}
