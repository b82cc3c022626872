//! Adjusted p-values for multiple tests.

/// Returns Holm's adjusted p-values, in the order given: rejecting every null hypothesis whose adjusted
/// p-value is at most `α` rejects a true one with probability at most `α` (the family-wise error), whatever
/// the dependence between the tests. S. Holm, *A simple sequentially rejective multiple test procedure*,
/// Scandinavian Journal of Statistics 6 (1979).
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    holm_weighted(p_values, &vec![1.0; p_values.len()])
}

/// Returns Holm's adjusted p-values with weights above 0: a test with twice the weight may use twice the
/// error. Section 3 of Holm's paper.
pub fn holm_weighted(p_values: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; p_values.len()];
    let scaled: Vec<f64> = p_values.iter().zip(weights).map(|(p, w)| p / w).collect();
    let mut left: f64 = weights.iter().sum();
    let mut largest = 0.0f64;
    for index in ascending(&scaled) {
        largest = largest.max(left * scaled[index]).min(1.0);
        adjusted[index] = largest;
        left -= weights[index];
    }
    adjusted
}

/// Returns Benjamini and Hochberg's adjusted p-values, in the order given: among the null hypotheses with an
/// adjusted p-value of at most `q`, the expected share of true ones (the false discovery rate) is at most
/// `q`, for tests that are independent or positively dependent. Y. Benjamini and Y. Hochberg, *Controlling
/// the false discovery rate*, Journal of the Royal Statistical Society B 57 (1995).
pub fn benjamini_hochberg(p_values: &[f64]) -> Vec<f64> {
    benjamini_hochberg_weighted(p_values, &vec![1.0; p_values.len()])
}

/// Returns Benjamini and Hochberg's adjusted p-values with weights above 0: a test with twice the weight may
/// use twice the error. C. R. Genovese, K. Roeder and L. Wasserman, *False discovery control with p-value
/// weighting*, Biometrika 93 (2006).
pub fn benjamini_hochberg_weighted(p_values: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; p_values.len()];
    let mean = weights.iter().sum::<f64>() / weights.len().max(1) as f64;
    let scaled: Vec<f64> = p_values
        .iter()
        .zip(weights)
        .map(|(p, w)| p / (w / mean))
        .collect();
    let mut smallest = 1.0f64;
    for (rank, index) in ascending(&scaled).into_iter().enumerate().rev() {
        let factor = p_values.len() as f64 / (rank + 1) as f64;
        smallest = smallest.min(factor * scaled[index]);
        adjusted[index] = smallest;
    }
    adjusted
}

/// Returns the indices of the values in ascending order of value.
fn ascending(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }

    #[test]
    fn adjusted_as_r_does() {
        // p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") and "BH"
        let p = [0.01, 0.04, 0.03, 0.005];
        close(&holm(&p), &[0.03, 0.06, 0.06, 0.02]);
        close(&benjamini_hochberg(&p), &[0.02, 0.04, 0.04, 0.02]);
        assert!(holm(&[]).is_empty());
        assert_eq!(benjamini_hochberg(&[0.2]), [0.2]);
    }

    #[test]
    fn a_weight_is_a_share_of_the_error() {
        // 0.8 and 0.2 of 5 %: 4 % and 1 %; the second gets all of it once the first is rejected.
        close(&holm_weighted(&[0.04, 0.05], &[0.8, 0.2]), &[0.05, 0.05]);
        close(&holm_weighted(&[0.2, 0.01], &[0.8, 0.2]), &[0.2, 0.05]);
        close(
            &benjamini_hochberg_weighted(&[0.2, 0.01], &[0.8, 0.2]),
            &[0.125, 0.05],
        );
    }

    proptest! {
        #[test]
        fn adjusting_keeps_the_order_and_never_lowers(
            p in prop::collection::vec(0.0f64..=1.0, 1..20),
        ) {
            let (holm, bh) = (holm(&p), benjamini_hochberg(&p));
            for i in 0..p.len() {
                prop_assert!(bh[i] >= p[i] - 1e-15 && holm[i] >= bh[i] - 1e-15 && holm[i] <= 1.0);
                for j in 0..p.len() {
                    prop_assert!(p[i] > p[j] || (holm[i] <= holm[j] && bh[i] <= bh[j]));
                }
            }
        }

        #[test]
        fn weighted_holm_is_at_least_as_good_as_weighted_bonferroni(
            tests in prop::collection::vec((0.0f64..=1.0, 0.1f64..10.0), 1..20),
            scale in 0.1f64..10.0,
        ) {
            let (p, weights): (Vec<f64>, Vec<f64>) = tests.into_iter().unzip();
            let all: f64 = weights.iter().sum();
            let adjusted = holm_weighted(&p, &weights);
            for ((own, p), weight) in adjusted.iter().zip(&p).zip(&weights) {
                prop_assert!(*own <= (p * all / weight).min(1.0) + 1e-12);
                prop_assert!(*own >= p - 1e-12);
            }
            // The first test that is rejected pays for its share in full.
            let scaled = p.iter().zip(&weights).map(|(p, weight)| p * all / weight);
            let least = scaled.fold(f64::INFINITY, f64::min).min(1.0);
            prop_assert!((adjusted.iter().copied().fold(1.0, f64::min) - least).abs() < 1e-12);
            // Shares count, and not the size of weights.
            let larger: Vec<f64> = weights.iter().map(|weight| scale * weight).collect();
            for (one, other) in adjusted.iter().zip(holm_weighted(&p, &larger)) {
                prop_assert!((one - other).abs() < 1e-9);
            }
        }
    }
}
