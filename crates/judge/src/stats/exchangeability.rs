//! A permutation test for differences between copies of the same server.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::robust::{add_row, deviations};

/// P-values of the hypothesis that copies of one server are exchangeable within units.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchangeability {
    /// P-value by experiment, under the null hypothesis that no difference stays with a copy from unit to
    /// unit.
    pub each: Vec<f64>,
    /// P-value of all experiments together.
    pub all: f64,
}

/// Tests whether any difference stays with a copy for the length of an experiment. `experiments` have one row
/// of logarithms per unit, each with the copies in the same order.
///
/// The statistic of an experiment is `Σ_copies (Σ_units z)² / Σ z²` of the deviations `z` from the units'
/// means, that of all experiments their sum. Its null distribution comes from `permutations` random
/// permutations of the copies within every unit, which assume nothing about the distribution of values: E. J.
/// G. Pitman, *Significance tests which may be applied to samples from any populations III: the analysis of
/// variance test*, Biometrika 29 (1938). The same `seed` gives the same result.
pub fn exchangeability(
    experiments: &[Vec<Vec<f64>>],
    permutations: u32,
    seed: u64,
) -> Exchangeability {
    let mut together = vec![0.0; permutations as usize];
    let mut observed = 0.0;
    // Permutations that differ only in the order of summation count as equal.
    let at_least = |values: &[f64], own: f64| {
        let larger = values.iter().filter(|value| **value >= own * (1.0 - 1e-12));
        1 + u32::try_from(larger.count()).unwrap_or(u32::MAX - 1)
    };
    let mut each = Vec::with_capacity(experiments.len());
    for (rows, number) in experiments.iter().zip(0u64..) {
        // Each experiment has its own seed, so its result does not depend on the others.
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(number));
        let mut rows: Vec<Vec<f64>> = rows.iter().map(|row| deviations(row)).collect();
        let own = statistic(&rows);
        observed += own;
        let found: Vec<f64> = (0..permutations)
            .map(|_| {
                rows.iter_mut().for_each(|row| row.shuffle(&mut random));
                statistic(&rows)
            })
            .collect();
        add_row(&mut together, &found);
        each.push(at_least(&found, own));
    }
    let share = |count: u32| f64::from(count) / f64::from(permutations + 1);
    Exchangeability {
        each: each.into_iter().map(share).collect(),
        all: share(at_least(&together, observed)),
    }
}

fn statistic(rows: &[Vec<f64>]) -> f64 {
    let copies = rows.first().map_or(0, Vec::len);
    let squares: f64 = rows.iter().flatten().map(|z| z * z).sum();
    if squares == 0.0 {
        return 0.0;
    }
    let of_copy = |copy: usize| rows.iter().map(|row| row[copy]).sum::<f64>().powi(2);
    (0..copies).map(of_copy).sum::<f64>() / squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::sum_of_twelve;

    fn experiment(random: &mut StdRng, stays: f64) -> Vec<Vec<f64>> {
        let mut row = || -> Vec<f64> {
            let mut normal = || sum_of_twelve(random);
            let drift = 5.0 * normal();
            (0..5)
                .map(|copy| drift + normal() + if copy == 2 { stays } else { 0.0 })
                .collect()
        };
        (0..18).map(|_| row()).collect()
    }

    #[test]
    fn what_stays_with_a_copy_is_found_and_what_does_not_is_not() {
        let mut random = StdRng::seed_from_u64(4);
        let several = |random: &mut StdRng, stays: f64| -> Vec<_> {
            (0..20).map(|_| experiment(random, stays)).collect()
        };
        let none = exchangeability(&several(&mut random, 0.0), 499, 1);
        assert!(none.all > 0.05, "{none:?}");
        assert!(
            none.each.iter().filter(|p| **p < 0.05).count() <= 3,
            "{none:?}"
        );
        // Each by itself hardly shows it.
        let some = exchangeability(&several(&mut random, 0.5), 499, 1);
        assert!(some.all < 0.01, "{some:?}");
        assert_eq!(
            exchangeability(&several(&mut random, 0.0)[..0], 9, 1).all,
            1.0
        );
    }

    #[test]
    fn without_blocks_nothing_is_claimed() {
        let found = exchangeability(&[Vec::new(), vec![vec![1.0; 4]; 3]], 99, 1);
        assert_eq!(found.each, [1.0, 1.0]);
    }
}
