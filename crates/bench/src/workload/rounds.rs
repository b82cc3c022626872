//! Runs rounds of one slice on each server, in random order.

use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{ClientFailure, TimedBlock};
use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;

/// Minimum number of measured rounds of a block.
pub(super) const MIN_ROUNDS: usize = 2;

/// Runs a slice on one server: gets the index of the server and a random number shared by all slices of the round.
pub type SliceOf<'a, S> = dyn FnMut(usize, u64) -> Result<S, ClientFailure> + 'a;

/// Runs rounds and returns the results of the measured ones, in the order of the servers.
///
/// Without `warm_up` every round counts and a block may consist of a single one: with long slices, another start is
/// more informative than a second slice on the same start.
pub fn rounds<S: Clone + Default>(
    servers: usize,
    item: &TimedBlock<'_>,
    warm_up: bool,
    random: &mut StdRng,
    slice: &mut SliceOf<'_, S>,
) -> Result<Vec<Vec<S>>, ClientFailure> {
    let mut rounds = Rounds::new(servers, item, random);
    if !warm_up {
        return rounds.measure(1, slice);
    }
    rounds.repeat(item.warm_up_seconds, 1, slice)?;
    rounds.measure(MIN_ROUNDS, slice)
}

/// Rounds of one slice on each server, in random order.
pub(super) struct Rounds<'a> {
    block: &'a TimedBlock<'a>,
    order: Vec<usize>,
    random: &'a mut StdRng,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(servers: usize, block: &'a TimedBlock<'a>, random: &'a mut StdRng) -> Self {
        Rounds {
            block,
            order: (0..servers).collect(),
            random,
        }
    }

    /// Runs the measured rounds, at least `least`, and returns their results in the order of the servers.
    pub(super) fn measure<S: Clone + Default>(
        &mut self,
        least: usize,
        slice: &mut SliceOf<'_, S>,
    ) -> Result<Vec<Vec<S>>, ClientFailure> {
        let block = self.block;
        block.slices_begin();
        let rounds = self.repeat(block.seconds, least, slice);
        block.slices_end();
        rounds
    }

    /// Runs rounds for `seconds`, at least `least`, and returns their results in the order of the servers. A round in which
    /// something stood still is repeated.
    pub(super) fn repeat<S: Clone + Default>(
        &mut self,
        seconds: f64,
        least: usize,
        slice: &mut SliceOf<'_, S>,
    ) -> Result<Vec<Vec<S>>, ClientFailure> {
        let started = Instant::now();
        let mut rounds = Vec::new();
        let mut wasted = Duration::ZERO;
        let is_over = |wasted| started.elapsed().saturating_sub(wasted).as_secs_f64() >= seconds;
        while rounds.len() < least || !is_over(wasted) {
            let begin = Instant::now();
            self.order.shuffle(self.random);
            let number = self.random.random();
            let mut values = vec![S::default(); self.order.len()];
            for &index in &self.order {
                values[index] = slice(index, number)?;
            }
            if self.block.repeats(begin) {
                wasted += begin.elapsed();
                continue;
            }
            rounds.push(values);
        }
        Ok(rounds)
    }
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
        values: rounds
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
            attempt: 0,
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
