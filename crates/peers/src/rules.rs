//! Decision rules of other projects for changes of speed, beside perfquilt's.
//!
//! Each rule computes a score from two samples of values, larger for stronger evidence, so that all can be set
//! to the same rate of false positives, and decides by its own threshold whether to report a change.

use crate::two_sample::{kolmogorov_smirnov, mann_whitney};
use perfquilt_calibrate::random::Noise;
use perfquilt_judge::stats::{Interval, median};

/// A decision rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Perfquilt,
    Benchstat,
    ClickHouse,
    Pinpoint,
    RustcPerf,
}

/// The measurements of both sides, as logs of costs. Values at the same index were measured at the same time.
pub(crate) struct Sample {
    pub(crate) before: Vec<f64>,
    pub(crate) after: Vec<f64>,
    /// Earlier changes without effect, each measured like this one, for rules that use them.
    pub(crate) history: Vec<(Vec<f64>, Vec<f64>)>,
}

/// The decision of a rule on a sample.
pub(crate) struct Decision {
    /// Larger for stronger evidence.
    pub(crate) score: f64,
    /// Whether the score passes the rule's own threshold.
    pub(crate) is_change: bool,
}

impl Rule {
    pub(crate) const ALL: [Rule; 5] = [
        Rule::Perfquilt,
        Rule::Benchstat,
        Rule::ClickHouse,
        Rule::Pinpoint,
        Rule::RustcPerf,
    ];

    /// Returns the name of the project.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::Perfquilt => "perfquilt",
            Rule::Benchstat => "benchstat",
            Rule::ClickHouse => "ClickHouse",
            Rule::Pinpoint => "Pinpoint",
            Rule::RustcPerf => "rustc-perf",
        }
    }

    /// Returns the description of the rule.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Rule::Perfquilt => "Student's test of the differences within blocks, at 5 %",
            Rule::Benchstat => "Mann-Whitney U test of all values, at 5 %",
            Rule::ClickHouse => {
                "difference of medians beyond the 0.99 quantile of random relabelings (without its floor \
                 of 15 %, under which nothing here would ever be found)"
            }
            Rule::Pinpoint => {
                "smaller p-value of Kolmogorov-Smirnov and Mann-Whitney, at 1 %, looked at with 10, 20 \
                 and 40 values a side"
            }
            Rule::RustcPerf => "change of the minimum beyond Q3 + 3 IQR of the last 30 changes",
        }
    }

    /// Applies the rule to `sample`; `noise` draws the relabelings.
    pub(crate) fn decide(self, sample: &Sample, noise: &mut Noise) -> Decision {
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
                Decision {
                    score,
                    is_change: score > 1.0,
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
                Decision {
                    score,
                    is_change: score >= 1.0,
                }
            }
        }
    }
}

/// The number of earlier changes that rustc-perf's rule uses.
pub(crate) const HISTORY: usize = 30;

fn by_probability(p: f64, threshold: f64) -> Decision {
    Decision {
        score: -p.max(1e-300).ln(),
        is_change: p <= threshold,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_finds_a_large_change_and_rarely_reports_one_without() {
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
                    claims[place] += usize::from(rule.decide(&sample, &mut noise).is_change);
                }
            }
            assert!(claims[0] < 30, "{rule:?}: {claims:?}");
            assert!(claims[1] > 180, "{rule:?}: {claims:?}");
        }
    }
}
