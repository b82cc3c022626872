//! Runs rounds of one slice on each server, in random order.

use std::time::Instant;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{ClientFailure, TimedBlock};
use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;

/// Minimum number of measured rounds of a block.
const MIN_ROUNDS: usize = 2;

/// Runs rounds and returns the results of the measured ones, in the order of the servers. `slice` gets the index of
/// its server and a random number shared by all slices of the round.
///
/// Without `warm_up` every round counts and a block may consist of a single one: with long slices, another start is
/// more informative than a second slice on the same start.
pub fn rounds<S: Clone + Default>(
    servers: usize,
    item: &TimedBlock<'_>,
    warm_up: bool,
    random: &mut StdRng,
    slice: &mut dyn FnMut(usize, u64) -> Result<S, ClientFailure>,
) -> Result<Vec<Vec<S>>, ClientFailure> {
    let mut order: Vec<usize> = (0..servers).collect();
    let mut round = || -> Result<Vec<S>, ClientFailure> {
        order.shuffle(random);
        let number = random.random();
        let mut values = vec![S::default(); servers];
        for &index in &order {
            values[index] = slice(index, number)?;
        }
        Ok(values)
    };
    let mut least = 1;
    if warm_up {
        least = MIN_ROUNDS;
        let started = Instant::now();
        loop {
            round()?;
            if started.elapsed().as_secs_f64() >= item.warm_up_seconds {
                break;
            }
        }
    }
    item.slices_begin();
    let started = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < least || started.elapsed().as_secs_f64() < item.seconds {
        rounds.push(round()?);
    }
    Ok(rounds)
}

/// Returns one row per point from the slices of rounds, which are in the order of `points`; `nanoseconds` returns a slice's
/// time, and each slice ran `transactions`.
pub fn rows<S>(
    points: &[Point],
    rounds: &[Vec<S>],
    transactions: u64,
    nanoseconds: &dyn Fn(&S) -> f32,
) -> Vec<Slices> {
    let row = |(index, &point): (usize, &Point)| Slices {
        point,
        nanoseconds: rounds
            .iter()
            .map(|round| nanoseconds(&round[index]))
            .collect(),
        transactions_per_slice: transactions,
    };
    points.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use perfquilt_config::Workload;

    #[test]
    fn every_round_has_a_slice_on_each_server_with_one_number() {
        let workload: Workload = toml::from_str("description = \"\"\nkind = \"command\"").unwrap();
        let item = TimedBlock {
            workload: &workload,
            seconds: 0.0,
            warm_up_seconds: 0.0,
            seed: 1,
            monitor: None,
        };
        for (warm_up, slices, measured) in [(true, 9, 2), (false, 3, 1)] {
            let mut seen = Vec::new();
            let mut slice = |index: usize, number: u64| {
                seen.push((index, number));
                Ok(seen.len())
            };
            let mut random = StdRng::seed_from_u64(item.seed);
            let rounds = rounds(3, &item, warm_up, &mut random, &mut slice).unwrap();
            assert_eq!((seen.len(), rounds.len()), (slices, measured));
            for round in seen.chunks(3) {
                let mut indexes: Vec<usize> = round.iter().map(|(index, _)| *index).collect();
                indexes.sort_unstable();
                assert_eq!(indexes, [0, 1, 2]);
                assert!(round.iter().all(|(_, number)| *number == round[0].1));
            }
            // The values are in the order of the servers, not of the slices.
            let last = &seen[slices - 3..];
            let of_last = rounds.last().unwrap();
            for (at, (index, _)) in last.iter().enumerate() {
                assert_eq!(of_last[*index], slices - 3 + at + 1);
            }
        }
    }
}
