//! Converts the results of a block to stored values.

use std::collections::BTreeMap;

use super::plan::Block;
use perfquilt_bench::meter::{CountResult, plain_name};
use perfquilt_model::observation::{PointFunctions, Slices};
use perfquilt_model::point::Point;

/// Returns the instructions per transaction of each function, where the meter distinguishes them.
pub(super) fn functions_of(
    block: &Block,
    workload: &str,
    point: Point,
    counts: &CountResult,
) -> Option<PointFunctions> {
    let n = counts.readings.first().map(|reading| reading.n)?.max(1) as f64;
    let mut functions = BTreeMap::new();
    for function in &counts.functions {
        let name = plain_name(&function.name);
        *functions.entry(name).or_default() += function.instructions as f64 / n;
    }
    (!functions.is_empty()).then(|| PointFunctions {
        workload: workload.to_owned(),
        block: block.number,
        point,
        functions,
    })
}

/// Returns the number of transactions in a point's slices.
pub(super) fn transactions_of(slices: &Slices) -> u64 {
    let count = slices.values.len() as u64;
    count.saturating_mul(slices.transactions_per_slice).max(1)
}

/// Rounds down to 1, 2, 5, 10, …, between 20 and 5000, so that small differences in time do not change the
/// count.
pub(super) fn round_number(count: f64) -> u64 {
    let mut best = 20;
    for magnitude in [10, 100, 1000] {
        for step in [1, 2, 5] {
            if (magnitude * step) as f64 <= count && magnitude * step > best {
                best = magnitude * step;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_transactions_are_very_many() {
        let slices = Slices {
            point: Point::BASE,
            values: vec![1.0; 3],
            transactions_per_slice: u64::MAX / 2,
        };
        assert_eq!(transactions_of(&slices), u64::MAX);
    }

    #[test]
    fn counts_are_round() {
        assert_eq!(round_number(155.0), 100);
        assert_eq!(round_number(3900.0), 2000);
        assert_eq!(round_number(1.0), 20);
        assert_eq!(round_number(1e9), 5000);
    }
}
