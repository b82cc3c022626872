//! Standard errors within blocks.

use std::collections::BTreeMap;

use perfquilt_model::observation::{ExcludedReadings, Meter, Slices, WithinBlockError};

use crate::stats;

/// Accumulates the standard errors within an experiment's blocks from their slices.
#[derive(Debug, Clone, Default)]
pub struct WithinBlocks {
    workloads: BTreeMap<String, WorkloadSums>,
}

#[derive(Debug, Clone, Default)]
struct WorkloadSums {
    /// Sum of the squared standard errors.
    squares: f64,
    values: u32,
    left_out: u64,
}

impl WithinBlocks {
    /// Adds the slices of one block of `workload`.
    pub fn add(&mut self, workload: &str, slices: &[Slices]) {
        let sums = self.workloads.entry(workload.to_owned()).or_default();
        for value in stats::reduce_block(slices) {
            if let Some(error) = value.standard_error {
                sums.squares += error * error;
                sums.values += 1;
            }
            sums.left_out += value.left_out as u64;
        }
    }

    /// Returns the standard deviation within a block, as a fraction of speed, by workload, and the number of
    /// slices whose time was unusable.
    pub fn finish(self) -> (Vec<WithinBlockError>, Vec<ExcludedReadings>) {
        let left_out = self.workloads.iter().filter(|(_, sums)| sums.left_out > 0);
        let left_out = left_out.map(|(workload, sums)| ExcludedReadings {
            workload: workload.clone(),
            meter: Meter::Time,
            count: sums.left_out,
            reason: "slices whose time is not a number above 0".to_owned(),
        });
        let left_out = left_out.collect();
        let within = self
            .workloads
            .into_iter()
            .filter(|(_, sums)| sums.values > 0);
        let within = within.map(|(workload, sums)| WithinBlockError {
            workload,
            meter: Meter::Time,
            sd: (sums.squares / f64::from(sums.values)).sqrt(),
        });
        (within.collect(), left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::point::Point;

    #[test]
    fn exactness_and_unusable_slices_by_workload() {
        let slices = |point: usize| Slices {
            point: Point::Step(point),
            values: (0..64)
                .map(|round| match (point, round) {
                    (1, 7) => f32::NAN,
                    _ => 1e6 * (1.0 + 0.01 * ((round * (point + 3)) % 5) as f32),
                })
                .collect(),
            transactions_per_slice: 1,
        };
        let mut blocks = WithinBlocks::default();
        blocks.add("x", &[slices(0), slices(1)]);
        blocks.add("x", &[slices(0), slices(1)]);
        let (within, left_out) = blocks.finish();
        assert_eq!(within.len(), 1);
        assert!(
            within[0].sd > 0.0 && within[0].sd < 0.01,
            "{}",
            within[0].sd
        );
        assert_eq!((left_out[0].workload.as_str(), left_out[0].count), ("x", 2));
    }
}
