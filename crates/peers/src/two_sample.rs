//! Tests of two samples, as other projects compute them.

use statrs::stats_tests::Alternative;
use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};

/// Returns the two-sided p-value of the Mann-Whitney U test, by the normal approximation with continuity
/// correction; 1 for empty samples.
pub(crate) fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let method = MannWhitneyUMethod::AsymptoticInclContinuityCorrection;
    mannwhitneyu(a, b, method, Alternative::TwoSided).map_or(1.0, |(_, p)| p)
}

/// Returns the p-value of the two-sample Kolmogorov-Smirnov test, by the limiting distribution with Stephens'
/// correction for small samples. Values are continuous: no ties.
///
/// Pinpoint computes its p-values with this correction, which statrs 0.19 does not have: without it, and with
/// exact p-values, ten values a side at a distance of 0.7 would not differ at 1 %. Nor does the asymptotic test
/// of statrs return for samples at distance 0.
pub(crate) fn kolmogorov_smirnov(a: &[f64], b: &[f64]) -> f64 {
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let (a, b) = (sorted(a), sorted(b));
    let (n, m) = (a.len() as f64, b.len() as f64);
    let (mut i, mut j, mut distance) = (0, 0, 0f64);
    while i < a.len() && j < b.len() {
        if a[i] <= b[j] {
            i += 1
        } else {
            j += 1
        }
        // In whole numbers, as equal distances must give equal p-values: thresholds are compared with them.
        distance = distance.max((i as f64 * m - j as f64 * n).abs());
    }
    let size = (n * m / (n + m)).sqrt();
    kolmogorov_tail((size + 0.12 + 0.11 / size) * distance / (n * m))
}

/// Returns the probability that Kolmogorov's distribution exceeds `x`.
fn kolmogorov_tail(x: f64) -> f64 {
    // The series converges slowly near 0, where the probability is 1 to more than ten digits.
    if x < 0.2 {
        return 1.0;
    }
    let tail: f64 = (1..=100)
        .map(|k| {
            let sign = if k % 2 == 1 { 2.0 } else { -2.0 };
            sign * (-2.0 * (f64::from(k) * x).powi(2)).exp()
        })
        .sum();
    tail.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::stats_tests::NaNPolicy;
    use statrs::stats_tests::ks_test::{KSTwoSampleAlternativeMethod, ks_twosample};

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-8, "{found} {expected}");
    }

    #[test]
    fn p_values_agree_with_known_values() {
        let a: Vec<f64> = (1..=10).map(f64::from).collect();
        let b: Vec<f64> = (6..=15).map(|v| f64::from(v) + 0.5).collect();
        // U = 10: twice the normal tail beyond (40 - 0.5) / sqrt(10 * 10 * 21 / 12).
        assert_close(mann_whitney(&a, &b), 0.0028272721);
        // D = 0.6, times sqrt(5) + 0.12 + 0.11 / sqrt(5).
        assert_close(kolmogorov_smirnov(&a, &b), 0.0310467811);
        // Unequal sizes, U = 10 and D = 0.6.
        assert_close(mann_whitney(&a, &b[..5]), 0.0757526876);
        assert_close(kolmogorov_smirnov(&a, &b[..5]), 0.1103275415);
        // Quantiles of Kolmogorov's distribution (Smirnov, 1948).
        for (x, p) in [(1.224, 0.1), (1.358, 0.05), (1.628, 0.01), (1.949, 0.001)] {
            assert!((kolmogorov_tail(x) / p - 1.0).abs() < 0.005, "{x}");
        }
    }

    #[test]
    fn equal_samples_do_not_differ_and_disjoint_ones_do() {
        let a: Vec<f64> = (1..=10).map(f64::from).collect();
        assert!(mann_whitney(&a, &a.iter().map(|v| v + 1e-9).collect::<Vec<_>>()) > 0.6);
        assert!(kolmogorov_smirnov(&a, &a) > 0.99);
        let far: Vec<f64> = a.iter().map(|v| v + 100.0).collect();
        assert!(mann_whitney(&a, &far) < 1e-3);
        assert!(kolmogorov_smirnov(&a, &far) < 1e-4);
    }

    #[test]
    fn equal_distances_have_equal_p_values() {
        // The distance of 0.3 at every pair of ranks.
        let b: Vec<f64> = (1..=10).map(f64::from).collect();
        let found: Vec<f64> = (0..=7)
            .map(|below: u32| {
                let a = (0..10).map(|place| match place {
                    place if place < below => f64::from(place) + 0.9,
                    place if place < below + 3 => f64::from(below) + 0.5 + 0.01 * f64::from(place),
                    place => f64::from(place) - 1.9,
                });
                kolmogorov_smirnov(&a.collect::<Vec<_>>(), &b)
            })
            .collect();
        assert!(found.iter().all(|p| *p == found[0]), "{found:?}");
    }

    #[test]
    fn ten_values_a_side_at_a_distance_of_seven_tenths_differ_at_one_per_cent() {
        let a: Vec<f64> = (1..=10).map(f64::from).collect();
        let b: Vec<f64> = (8..=17).map(|v| f64::from(v) - 0.5).collect();
        let found = kolmogorov_smirnov(&a, &b);
        assert!(found < 0.01, "{found}");
        let exact = KSTwoSampleAlternativeMethod::TwoSidedExact;
        let asymptotic = KSTwoSampleAlternativeMethod::TwoSidedAsymptotic;
        for method in [exact, asymptotic] {
            let (distance, p) =
                ks_twosample(a.clone(), b.clone(), method, NaNPolicy::Error).unwrap();
            assert!((distance - 0.7).abs() < 1e-9 && p > 0.01, "{distance} {p}");
        }
    }
}
