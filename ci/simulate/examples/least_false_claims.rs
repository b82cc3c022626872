//! How seldom could any rule claim an effect falsely while one server drifts, and still find true effects?
//!
//! ```text
//! cargo run --release --package perfquilt-simulate --example least_false_claims
//! ```
//!
//! By the lemma of J. Neyman and E. S. Pearson (Philosophical Transactions A 231, 1933), no rule that finds a true effect with
//! a given power, claims one in at most 5 % of experiments without drift, and does not depend on the unit of the values makes
//! fewer false claims under a drift than the one that compares the three likelihoods of the values' direction. It knows the
//! size of the effect and the kind of the drift, which no real rule does. The effect is the one that Student's test detects in
//! 80 % of experiments without drift; the drifts are those of `checks.json`.

#![allow(clippy::print_stdout)]

use perfquilt_calibrate::random::Noise;

const EXPERIMENTS: usize = 20_000;
/// Standard errors between Student's critical value and the effect that is detected in 80 %.
const DETECTED: f64 = 0.88;
/// The points of the numerical integral over the scale.
const POINTS: usize = 120;

/// A distribution of values: the covariance's Cholesky factor, and means of which each is equally probable.
struct Model {
    factor: Vec<Vec<f64>>,
    means: Vec<Vec<f64>>,
}

impl Model {
    /// Returns independent values with variance 1.
    fn independent(means: Vec<Vec<f64>>) -> Self {
        let n = means[0].len();
        let unit = |i: usize| (0..n).map(|j| f64::from(u8::from(i == j))).collect();
        Model {
            factor: (0..n).map(unit).collect(),
            means,
        }
    }

    /// Returns values with mean 0 and a covariance.
    fn with_covariance(n: usize, covariance: impl Fn(usize, usize) -> f64) -> Self {
        let mut factor = vec![vec![0.0; n]; n];
        for i in 0..n {
            for j in 0..=i {
                let known: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
                let left = covariance(i, j) - known;
                factor[i][j] = if i == j {
                    left.sqrt()
                } else {
                    left / factor[j][j]
                };
            }
        }
        Model {
            factor,
            means: vec![vec![0.0; n]],
        }
    }

    fn draw(&self, noise: &mut Noise) -> Vec<f64> {
        let mean = &self.means[noise.below(self.means.len())];
        let normal: Vec<f64> = mean.iter().map(|_| noise.normal()).collect();
        let rows = self.factor.iter().zip(mean);
        rows.map(|(row, mean)| mean + row.iter().zip(&normal).map(|(a, b)| a * b).sum::<f64>())
            .collect()
    }

    /// Solves for the independent values behind `values`.
    fn whitened(&self, values: &[f64]) -> Vec<f64> {
        let mut white: Vec<f64> = Vec::with_capacity(values.len());
        for (row, value) in self.factor.iter().zip(values) {
            let known: f64 = row.iter().zip(&white).map(|(a, b)| a * b).sum();
            white.push((value - known) / row[white.len()]);
        }
        white
    }

    /// Returns the log density of the values' direction, up to a constant that all models of so many values share.
    fn log_density(&self, values: &[f64]) -> f64 {
        let length = dot(values, values).sqrt();
        let direction: Vec<f64> = values.iter().map(|value| value / length).collect();
        let direction = self.whitened(&direction);
        let scale: f64 = self
            .factor
            .iter()
            .enumerate()
            .map(|(i, row)| row[i].ln())
            .sum();
        let of_mean = |mean: &Vec<f64>| {
            let mean = self.whitened(mean);
            let radial = over_lengths(
                values.len(),
                dot(&direction, &direction),
                dot(&direction, &mean),
            );
            radial - 0.5 * dot(&mean, &mean) - scale
        };
        let all: Vec<f64> = self.means.iter().map(of_mean).collect();
        log_sum(&all) - (all.len() as f64).ln()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn log_sum(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + logs.iter().map(|log| (log - most).exp()).sum::<f64>().ln()
}

/// Returns the logarithm of `∫ r^(n−1) exp(−(a r² − 2 b r)/2) dr`.
fn over_lengths(n: usize, a: f64, b: f64) -> f64 {
    let power = n as f64 - 1.0;
    let peak = (b + (b * b + 4.0 * a * power).sqrt()) / (2.0 * a);
    let reach = 10.0 / a.sqrt();
    let (low, high) = ((peak - reach).max(1e-9), peak + reach);
    let step = (high - low) / POINTS as f64;
    let log = |place: usize| {
        let r = low + step * (place as f64 + 0.5);
        power * r.ln() - 0.5 * a * r * r + b * r
    };
    log_sum(&(0..POINTS).map(log).collect::<Vec<_>>()) + step.ln()
}

/// Returns the contrasts of values with the mean of those before (Helmert), which do not depend on a common level.
fn without_level(values: &[f64]) -> Vec<f64> {
    let contrast = |k: usize| {
        let before: f64 = values[..k].iter().sum();
        (before - k as f64 * values[k]) / ((k * (k + 1)) as f64).sqrt()
    };
    (1..values.len()).map(contrast).collect()
}

/// Returns the least share of false claims under `drift` at a power, if values without drift give 5 % at most.
fn least(effect: &Model, drift: &Model, power: f64) -> f64 {
    let none = Model::independent(vec![vec![0.0; effect.factor.len()]]);
    let mut noise = Noise::of(1, "least false claims", 0);
    // How much more the values look like no effect, and like the drift, than like the effect, in either direction.
    let against = |values: &[f64]| {
        let own = effect.log_density(values);
        [
            none.log_density(values) - own,
            drift.log_density(values) - own,
        ]
    };
    let mut draw = |of: &Model| -> Vec<[[f64; 2]; 2]> {
        let both = |values: Vec<f64>| {
            let negated: Vec<f64> = values.iter().map(|value| -value).collect();
            [against(&values), against(&negated)]
        };
        (0..EXPERIMENTS)
            .map(|_| both(of.draw(&mut noise)))
            .collect()
    };
    let (found, silent, false_claims) = (draw(effect), draw(&none), draw(drift));
    let share = |weight: f64, of: &[[[f64; 2]; 2]]| {
        let statistic = |[none, drift]: [f64; 2]| log_sum(&[none + weight, drift]);
        let mut sorted: Vec<f64> = found.iter().map(|[own, _]| statistic(*own)).collect();
        sorted.sort_by(f64::total_cmp);
        let most = sorted[(power * EXPERIMENTS as f64) as usize];
        let is_claim = |both: &&[[f64; 2]; 2]| both.iter().any(|of| statistic(*of) <= most);
        of.iter().filter(is_claim).count() as f64 / EXPERIMENTS as f64
    };
    let mut weights = (-60..=60).map(|step| f64::from(step) / 5.0);
    let weight = weights.find(|weight| share(*weight, &silent) <= 0.05);
    weight.map_or(f64::NAN, |weight| share(weight, &false_claims))
}

fn main() {
    let report = |name: &str, effect: &Model, drift: &Model| {
        let [all, tenth] = [0.8, 0.72].map(|power| 100.0 * least(effect, drift, power));
        println!("{name}: {all:.1} % at 80 % power, {tenth:.1} % at 72 %");
    };
    // A difference from the mean of two other servers, in units of its standard deviation.
    let constant = |n: usize, critical: f64| {
        let size = (critical + DETECTED) / (n as f64).sqrt();
        Model::independent(vec![vec![size; n]])
    };
    for length in [12, 6] {
        let shifted = |start: usize| {
            let size = 1.25 / 1.5f64.sqrt();
            let is_in = |place: usize| (start..start + length).contains(&place);
            (0..24)
                .map(|place| if is_in(place) { size } else { 0.0 })
                .collect()
        };
        let drift = Model::independent((0..=24 - length).map(shifted).collect());
        let name = format!("one server 1 % off during {length} of 24 consecutive blocks");
        report(&name, &constant(24, 2.07), &drift);
    }
    let serial = |rho: f64, i: usize, j: usize| rho.powf(i.abs_diff(j) as f64);
    for (n, critical) in [(24, 2.07), (40, 2.02)] {
        let own = |i: usize, j: usize| if i == j { 0.5 } else { 0.0 };
        let drift = Model::with_covariance(n, |i, j| serial(0.9, i, j) + own(i, j));
        let name =
            format!("{n} blocks of which one server's follow the one before with correlation 0.9");
        report(&name, &constant(n, critical), &drift);
    }
    for (n, critical) in [(6, 2.23), (10, 2.10)] {
        let unit = |of: usize| {
            let values: Vec<f64> = (0..2 * n).map(|at| f64::from(u8::from(at == of))).collect();
            without_level(&values)
        };
        let basis: Vec<Vec<f64>> = (0..2 * n).map(unit).collect();
        let of_values = |i: usize, j: usize| {
            if (i < n) == (j < n) {
                serial(0.5, i, j)
            } else {
                0.0
            }
        };
        let drift = Model::with_covariance(2 * n - 1, |p, q| {
            let pairs = (0..2 * n).flat_map(|i| (0..2 * n).map(move |j| (i, j)));
            pairs
                .map(|(i, j)| basis[i][p] * of_values(i, j) * basis[j][q])
                .sum()
        });
        let size = (critical + DETECTED) * (2.0 / n as f64).sqrt();
        let both: Vec<f64> = (0..2 * n)
            .map(|at| if at < n { size } else { 0.0 })
            .collect();
        let effect = Model::independent(vec![without_level(&both)]);
        let name = format!(
            "runs of their own, {n} readings that follow the one before with correlation 0.5"
        );
        report(&name, &effect, &drift);
    }
}
