//! Decision rules of other projects for changes of speed, for comparison.
//!
//! Each rule computes a score from two samples of values, larger for stronger evidence, so that all can be set
//! to the same rate of false positives, and decides by its own threshold whether to report a change.

use statrs::distribution::{ContinuousCDF, Normal};

use super::random::Noise;
use perfquilt_judge::stats::{Interval, median};

/// A decision rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Perfquilt,
    Benchstat,
    ClickHouse,
    Pinpoint,
    RustcPerf,
}

/// The measurements of both sides, as logs of costs. Values at the same index were measured at the same time.
pub(super) struct Sample {
    pub(super) before: Vec<f64>,
    pub(super) after: Vec<f64>,
    /// Earlier changes without effect, each measured like this one, for rules that use them.
    pub(super) history: Vec<(Vec<f64>, Vec<f64>)>,
}

/// The result of a rule on a sample.
pub(super) struct Answer {
    /// Larger for stronger evidence.
    pub(super) score: f64,
    /// Whether the score passes the rule's own threshold.
    pub(super) speaks: bool,
}

impl Rule {
    pub(super) const ALL: [Rule; 5] = [
        Rule::Perfquilt,
        Rule::Benchstat,
        Rule::ClickHouse,
        Rule::Pinpoint,
        Rule::RustcPerf,
    ];

    /// Returns its name and its description.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Rule::Perfquilt => (
                "perfquilt",
                "Student's test of the differences within blocks, at 5 %",
            ),
            Rule::Benchstat => ("benchstat", "Mann-Whitney U test of all values, at 5 %"),
            Rule::ClickHouse => (
                "ClickHouse",
                "difference of medians beyond the 0.99 quantile of random relabelings (without its floor \
                 of 15 %, under which nothing here would ever be found)",
            ),
            Rule::Pinpoint => (
                "Pinpoint",
                "smaller p-value of Kolmogorov-Smirnov and Mann-Whitney, at 1 %, looked at with 10, 20 \
                 and 40 values a side",
            ),
            Rule::RustcPerf => (
                "rustc-perf",
                "change of the minimum beyond Q3 + 3 IQR of the last 30 changes",
            ),
        }
    }

    pub(super) fn answer(self, sample: &Sample, noise: &mut Noise) -> Answer {
        let (before, after) = (&sample.before, &sample.after);
        match self {
            Rule::Perfquilt => {
                let ratios: Vec<f64> = before.iter().zip(after).map(|(b, a)| b - a).collect();
                by_probability(Interval::of(&ratios).map_or(1.0, |i| i.p_value()), 0.05)
            }
            Rule::Benchstat => by_probability(mann_whitney(before, after), 0.05),
            Rule::ClickHouse => {
                let threshold = relabeled(before, after, noise);
                let score = (middle(before) - middle(after)).abs() / threshold;
                Answer {
                    score,
                    speaks: score > 1.0,
                }
            }
            Rule::Pinpoint => {
                let looks = [10, 20, 40].into_iter().filter(|&n| n <= before.len());
                let smallest = looks
                    .map(|n| {
                        let (before, after) = (&before[..n], &after[..n]);
                        mann_whitney(before, after).min(kolmogorov_smirnov(before, after))
                    })
                    .fold(1.0, f64::min);
                by_probability(smallest, 0.01)
            }
            Rule::RustcPerf => {
                let change = |before: &[f64], after: &[f64]| (least(before) - least(after)).abs();
                let mut earlier: Vec<f64> = sample
                    .history
                    .iter()
                    .map(|(before, after)| change(before, after))
                    .collect();
                earlier.sort_by(f64::total_cmp);
                let (q1, q3) = (quantile(&earlier, 0.25), quantile(&earlier, 0.75));
                let score = change(before, after) / (q3 + 3.0 * (q3 - q1));
                Answer {
                    score,
                    speaks: score >= 1.0,
                }
            }
        }
    }
}

/// The number of earlier changes that rustc-perf's rule uses.
pub(super) const HISTORY: usize = 30;

fn by_probability(p: f64, threshold: f64) -> Answer {
    Answer {
        score: -p.max(1e-300).ln(),
        speaks: p <= threshold,
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn middle(values: &[f64]) -> f64 {
    median(&mut values.to_vec()).unwrap_or(f64::NAN)
}

/// Returns a quantile of sorted values, interpolated between the two nearest.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(a), Some(b)) => a + (b - a) * place.fract(),
        _ => f64::NAN,
    }
}

/// The number of random relabelings behind a threshold. The original rule takes 10,000; the 0.99 quantile of
/// 400 varies by a few per cent, which at equal false positives costs almost no power.
const RELABELINGS: usize = 400;

/// Returns the 0.99 quantile of the absolute difference of medians over random relabelings.
fn relabeled(before: &[f64], after: &[f64], noise: &mut Noise) -> f64 {
    let mut pool: Vec<f64> = before.iter().chain(after).copied().collect();
    let mut differences: Vec<f64> = (0..RELABELINGS)
        .map(|_| {
            noise.shuffle(&mut pool);
            let (left, right) = pool.split_at_mut(before.len());
            let of = |values: &mut [f64]| median(values).unwrap_or(f64::NAN);
            (of(left) - of(right)).abs()
        })
        .collect();
    differences.sort_by(f64::total_cmp);
    quantile(&differences, 0.99)
}

/// Returns the two-sided p-value of the Mann-Whitney U test, by the normal approximation with continuity
/// correction (values are continuous: no ties).
pub(super) fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (a.len() as f64, b.len() as f64);
    let mut all: Vec<(f64, bool)> = a.iter().map(|&v| (v, true)).collect();
    all.extend(b.iter().map(|&v| (v, false)));
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let ranks: f64 = all
        .iter()
        .enumerate()
        .filter(|(_, (_, first))| *first)
        .map(|(place, _)| place as f64 + 1.0)
        .sum();
    let u = ranks - n * (n + 1.0) / 2.0;
    let sd = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / sd;
    2.0 * Normal::standard().sf(z)
}

/// Returns the p-value of the two-sample Kolmogorov-Smirnov test, by the limiting distribution.
pub(super) fn kolmogorov_smirnov(a: &[f64], b: &[f64]) -> f64 {
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let (a, b) = (sorted(a), sorted(b));
    let (mut i, mut j, mut largest) = (0, 0, 0f64);
    while i < a.len() && j < b.len() {
        if a[i] <= b[j] {
            i += 1
        } else {
            j += 1
        }
        largest = largest.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
    }
    let size = ((a.len() * b.len()) as f64 / (a.len() + b.len()) as f64).sqrt();
    let lambda = (size + 0.12 + 0.11 / size) * largest;
    let tail: f64 = (1..=100)
        .map(|k| {
            let k = f64::from(k);
            let sign = if k % 2.0 == 1.0 { 2.0 } else { -2.0 };
            sign * (-2.0 * k * k * lambda * lambda).exp()
        })
        .sum();
    if lambda < 0.2 {
        1.0
    } else {
        tail.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_agree_with_known_values() {
        // R: wilcox.test(1:10, 6:15 + 0.5, exact = FALSE)$p.value, with continuity correction: U = 10.
        let a: Vec<f64> = (1..=10).map(f64::from).collect();
        let b: Vec<f64> = (6..=15).map(|v| f64::from(v) + 0.5).collect();
        let sd = (10.0f64 * 10.0 * 21.0 / 12.0).sqrt();
        let u = 15.0f64.max(
            b.iter()
                .map(|b| a.iter().filter(|a| *a > b).count() as f64)
                .sum(),
        );
        let expected = 2.0 * Normal::standard().sf(((u - 50.0).abs() - 0.5) / sd);
        let found = mann_whitney(&a, &b);
        assert!((found - expected).abs() < 0.01, "{found} {expected}");
        assert!(
            (mann_whitney(&a, &a.iter().map(|v| v + 1e-9).collect::<Vec<_>>()) - 1.0).abs() < 0.4
        );
        // Disjoint samples: D = 1.
        let far: Vec<f64> = a.iter().map(|v| v + 100.0).collect();
        assert!(kolmogorov_smirnov(&a, &far) < 1e-4);
        assert!(kolmogorov_smirnov(&a, &a) > 0.99);
    }

    #[test]
    fn every_rule_sees_a_large_change_and_keeps_its_errors_without() {
        let mut noise = Noise::of(5, "rules", 0);
        for rule in Rule::ALL {
            let mut claims = [0, 0];
            for _ in 0..200 {
                for (place, effect) in [0.0, 0.05].into_iter().enumerate() {
                    let mut draw = |effect: f64| -> Vec<f64> {
                        (0..40).map(|_| 0.01 * noise.normal() - effect).collect()
                    };
                    let sample = Sample {
                        before: draw(0.0),
                        after: draw(effect),
                        history: (0..HISTORY).map(|_| (draw(0.0), draw(0.0))).collect(),
                    };
                    claims[place] += usize::from(rule.answer(&sample, &mut noise).speaks);
                }
            }
            assert!(claims[0] < 30, "{rule:?}: {claims:?}");
            assert!(claims[1] > 180, "{rule:?}: {claims:?}");
        }
    }
}
