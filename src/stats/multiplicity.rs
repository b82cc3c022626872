//! Probabilities adjusted for their number.

/// Holm's adjusted probabilities, in the order given: refusing every null hypothesis whose adjusted
/// probability is at most `α` refuses a true one with probability at most `α`, however the tests
/// depend on each other. S. Holm, *A simple sequentially rejective multiple test procedure*,
/// Scandinavian Journal of Statistics 6 (1979).
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut largest = 0.0f64;
    for (rank, index) in ascending(probabilities).into_iter().enumerate() {
        let factor = (probabilities.len() - rank) as f64;
        largest = largest.max(factor * probabilities[index]).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

/// Benjamini and Hochberg's adjusted probabilities, in the order given: of the null hypotheses with
/// an adjusted probability of at most `q`, on average at most the share `q` is true, for tests that are
/// independent or depend on each other positively. Y. Benjamini and Y. Hochberg, *Controlling the
/// false discovery rate*, Journal of the Royal Statistical Society B 57 (1995).
pub fn benjamini_hochberg(probabilities: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut smallest = 1.0f64;
    for (rank, index) in ascending(probabilities).into_iter().enumerate().rev() {
        let factor = probabilities.len() as f64 / (rank + 1) as f64;
        smallest = smallest.min(factor * probabilities[index]);
        adjusted[index] = smallest;
    }
    adjusted
}

/// The positions of the values, the smallest value first.
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
    }
}
