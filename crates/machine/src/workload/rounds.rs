//! Rounds: a short turn on each server, in random order.

use std::time::Instant;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{Failure, Timed};

/// Rounds that the values of a block need at least.
const MIN_ROUNDS: usize = 2;

/// What `turn` gave in the measured rounds, a value a server in the servers' order. `turn` is told the
/// place of its server and a number that all turns of its round share.
///
/// Without `warm_up` every round counts and a block may have a single one: of long turns, what a second one
/// tells about the same start is worth less than a start.
pub(super) fn rounds<S: Clone + Default>(
    servers: usize,
    item: &Timed<'_>,
    warm_up: bool,
    random: &mut StdRng,
    turn: &mut dyn FnMut(usize, u64) -> Result<S, Failure>,
) -> Result<Vec<Vec<S>>, Failure> {
    let mut order: Vec<usize> = (0..servers).collect();
    let mut round = || -> Result<Vec<S>, Failure> {
        order.shuffle(random);
        let number = random.random();
        let mut values = vec![S::default(); servers];
        for &place in &order {
            values[place] = turn(place, number)?;
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
    let started = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < least || started.elapsed().as_secs_f64() < item.seconds {
        rounds.push(round()?);
    }
    Ok(rounds)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use perfquilt_config::Workload;

    #[test]
    fn every_round_has_a_turn_on_each_server_with_one_number() {
        let workload: Workload = toml::from_str("description = \"\"\nkind = \"command\"").unwrap();
        let item = Timed {
            workload: &workload,
            seconds: 0.0,
            warm_up_seconds: 0.0,
            seed: 1,
        };
        for (warm_up, turns, kept) in [(true, 9, 2), (false, 3, 1)] {
            let mut seen = Vec::new();
            let mut turn = |place: usize, number: u64| {
                seen.push((place, number));
                Ok(seen.len())
            };
            let mut random = StdRng::seed_from_u64(item.seed);
            let rounds = rounds(3, &item, warm_up, &mut random, &mut turn).unwrap();
            assert_eq!((seen.len(), rounds.len()), (turns, kept));
            for round in seen.chunks(3) {
                let mut places: Vec<usize> = round.iter().map(|(place, _)| *place).collect();
                places.sort_unstable();
                assert_eq!(places, [0, 1, 2]);
                assert!(round.iter().all(|(_, number)| *number == round[0].1));
            }
            // The values stand where their servers do, whatever the order was.
            let last = &seen[turns - 3..];
            let of_last = rounds.last().unwrap();
            for (at, (place, _)) in last.iter().enumerate() {
                assert_eq!(of_last[*place], turns - 3 + at + 1);
            }
        }
    }
}
