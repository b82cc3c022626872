//! An exact test of whether a server stalls more than others, from what stalls carried in each block.

use statrs::distribution::{ContinuousCDF, Normal};

use super::robust::median;

/// Levels of an amount up to [`CAP`] times the median.
const LEVELS: f64 = 8.0;

/// Larger amounts count as so many times the median amount, so that no single burst decides.
const CAP: f64 = 2.0;

/// The number of units with any amount from which the normal approximation is used.
const MANY: usize = 300;

/// The result of the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PermutationTest {
    /// Two-sided p-value: twice the smaller one-sided one.
    pub p_value: f64,
    /// Whether the last server has more than the others.
    pub is_more: bool,
}

impl PermutationTest {
    /// Tests whether the last column of `rows`, one per independent unit, has amounts like the other columns; amounts are
    /// at least 0, most of them 0. `None` without any amount, or without two columns.
    ///
    /// If a stall hits any server of a block alike, each of them could have been the last one with the same probability,
    /// whatever stalls last, however many come at a time and whether neighbouring blocks have as many: servers start afresh
    /// and in another order in every block. The p-value is the share of such exchanges, independently in each unit, in which
    /// the last column's sum, less the mean of the others', is as far out (randomisation test: R. A. Fisher, *The Design of
    /// Experiments*, 1935, section 21; exact, by the convolution of the units' distributions).
    pub fn of(rows: &[Vec<f64>]) -> Option<Self> {
        let columns = rows.first().map_or(0, Vec::len);
        let mut amounts: Vec<f64> = rows.iter().flatten().copied().collect();
        amounts.retain(|amount| *amount > 0.0);
        let usual = median(&mut amounts)?;
        if columns < 2 {
            return None;
        }
        let level = |amount: &f64| (LEVELS * (amount / (CAP * usual)).clamp(0.0, 1.0)).round();
        let mut units: Vec<Vec<i64>> = Vec::new();
        for row in rows {
            let levels: Vec<f64> = row.iter().map(level).collect();
            let sum: f64 = levels.iter().sum();
            // The score where each server in turn is the last one; their mean is 0.
            let scores = levels.iter().map(|of| (columns as f64 * of - sum) as i64);
            let scores: Vec<i64> = scores.collect();
            if scores.iter().any(|score| *score != 0) {
                units.push(scores);
            }
        }
        let observed: i64 = units.iter().filter_map(|scores| scores.last()).sum();
        let (least, most) = if units.len() < MANY {
            exact_tails(&units, observed)
        } else {
            normal_tails(&units, observed)
        };
        Some(PermutationTest {
            p_value: (2.0 * least.min(most)).min(1.0),
            is_more: observed > 0,
        })
    }
}

/// Returns the probabilities that the sum of one score of each unit, drawn with equal probabilities, is at most and at least
/// `observed`.
fn exact_tails(units: &[Vec<i64>], observed: i64) -> (f64, f64) {
    let mut lowest = 0;
    let mut shares = vec![1.0];
    for scores in units {
        let low = scores.iter().copied().min().unwrap_or(0);
        let high = scores.iter().copied().max().unwrap_or(0);
        let width = usize::try_from(high - low).unwrap_or(0);
        let mut next = vec![0.0; shares.len() + width];
        for score in scores {
            let shift = usize::try_from(score - low).unwrap_or(0);
            for (place, share) in shares.iter().enumerate() {
                next[place + shift] += share / scores.len() as f64;
            }
        }
        lowest += low;
        shares = next;
    }
    let (mut least, mut most) = (0.0, 0.0);
    for (sum, share) in (lowest..).zip(shares) {
        if sum <= observed {
            least += share;
        }
        if sum >= observed {
            most += share;
        }
    }
    (least, most)
}

/// The same by the central limit theorem, with half the distance of two sums for continuity.
fn normal_tails(units: &[Vec<i64>], observed: i64) -> (f64, f64) {
    let variance = |scores: &Vec<i64>| {
        let squares: i64 = scores.iter().map(|score| score * score).sum();
        squares as f64 / scores.len() as f64
    };
    let deviation = units.iter().map(variance).sum::<f64>().sqrt();
    let differences = units
        .iter()
        .flat_map(|scores| scores.iter().map(|score| score - scores[0]));
    let half = 0.5 * differences.fold(0, greatest_common_divisor) as f64;
    let normal = Normal::standard();
    let observed = observed as f64;
    (
        normal.cdf((observed + half) / deviation),
        normal.sf((observed - half) / deviation),
    )
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of two servers, of which the second stalls in `own` units and the first in `others`.
    fn rows(own: usize, others: usize, quiet: usize) -> Vec<Vec<f64>> {
        let mut rows = vec![vec![0.0, 0.13]; own];
        rows.extend(vec![vec![0.13, 0.0]; others]);
        rows.extend(vec![vec![0.0, 0.0]; quiet]);
        rows
    }

    #[test]
    fn equal_stalls_are_the_sign_test() {
        let of = |own, others| PermutationTest::of(&rows(own, others, 5)).unwrap();
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found}");
        close(of(6, 0).p_value, 2.0 * 0.5f64.powi(6));
        close(of(1, 7).p_value, 2.0 * 9.0 / 256.0);
        close(of(3, 3).p_value, 1.0);
        assert!(of(6, 0).is_more && !of(1, 7).is_more);
    }

    #[test]
    fn one_burst_proves_nothing_and_two_servers_without_any_say_nothing() {
        let mut one = rows(0, 3, 20);
        one.push(vec![0.0, 400.0]);
        assert!(PermutationTest::of(&one).unwrap().p_value > 0.5);
        assert_eq!(PermutationTest::of(&rows(0, 0, 9)), None);
        assert_eq!(PermutationTest::of(&[]), None);
        assert_eq!(PermutationTest::of(&[vec![1.0]]), None);
    }

    #[test]
    fn with_two_others_a_stall_hits_the_last_one_in_a_third_of_exchanges() {
        let stalls: Vec<Vec<f64>> = vec![vec![0.0, 0.0, 0.1]; 5];
        let found = PermutationTest::of(&stalls).unwrap();
        assert!((found.p_value - 2.0 / 243.0).abs() < 1e-12, "{found:?}");
        let others: Vec<Vec<f64>> = vec![vec![0.1, 0.0, 0.0]; 5];
        let found = PermutationTest::of(&others).unwrap();
        assert!((found.p_value - 64.0 / 243.0).abs() < 1e-12 && !found.is_more);
    }

    #[test]
    fn the_normal_approximation_continues_the_exact_test() {
        let few = PermutationTest::of(&rows(130, 169, 0)).unwrap();
        let many = PermutationTest::of(&rows(131, 170, 0)).unwrap();
        assert!(
            (few.p_value / many.p_value - 1.0).abs() < 0.05,
            "{few:?} {many:?}"
        );
    }
}
