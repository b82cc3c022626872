//! The extent of an experiment: the time and memory that judging it takes follow from it.

use super::collect::Collector;
use super::tables::{ObservationSource, TablesByMeter};
use super::unhealthy::{is_tested, permutations};
use crate::stats::{BlockTable, FEWEST_GROUPS};

/// The largest number of workloads, operations included, of one meter of an untrusted experiment.
pub const MOST_WORKLOADS: usize = 2000;
/// The largest number of effects of an untrusted experiment: patches times workloads, over all meters.
pub const MOST_EFFECTS: usize = 200_000;
/// The largest number of values of an untrusted experiment, over all workloads and meters, and over means and tails;
/// points that are the same program as another have its values.
const MOST_VALUES: usize = 20_000_000;

/// The largest number of values that tests of machines may permute in an untrusted experiment (see [`most_permuted`]).
const MOST_PERMUTED: usize = 1_000_000_000;

impl Collector<'_> {
    /// Checks that the observations so far are not more than an untrusted author's may be; the number of points is limited by
    /// [`MOST_PATCHES`](perfquilt_model::observation::MOST_PATCHES).
    pub fn check_extent(&self) -> Result<(), String> {
        let tables = || self.sources().iter().flat_map(all_tables);
        let by_meter = || tables().flat_map(|tables| tables.values());
        let over = |found: usize, most: usize, what: &str| {
            let message = format!("{found} {what}; at most {most} are judged");
            if found > most { Err(message) } else { Ok(()) }
        };
        let workloads = by_meter().map(|of| of.len()).max().unwrap_or(0);
        over(workloads, MOST_WORKLOADS, "workloads of one meter")?;
        let effects = self.sources().iter().flat_map(|of| of.blocks.values());
        let effects: usize = effects.map(|of| of.len() + 1).sum();
        let effects = effects.saturating_mul(self.patches_in_series());
        over(effects, MOST_EFFECTS, "effects (patches times workloads)")?;
        let values = by_meter().flat_map(|of| of.values());
        let values: usize = values.map(BlockTable::values).sum();
        let copies: usize = tables()
            .map(|of| self.unexecuted().most_completed(of))
            .sum();
        let values = values.saturating_add(copies);
        over(values, MOST_VALUES, "values")?;
        let permuted = self.sources().first().map_or(0, most_permuted);
        over(
            permuted,
            MOST_PERMUTED,
            "permuted values of machines (workloads squared times blocks)",
        )
    }
}

/// Returns how many values the tests of machines permute at most.
fn most_permuted(source: &ObservationSource) -> usize {
    if source.machines.count() < FEWEST_GROUPS {
        return 0;
    }
    let timed = source.blocks.iter().filter(|(meter, _)| is_tested(**meter));
    let tables: usize = timed.map(|(_, of)| of.len()).sum();
    let blocks = source.machines.by_block().len();
    permutations(tables)
        .saturating_mul(2 * tables)
        .saturating_mul(blocks)
}

fn all_tables(source: &ObservationSource) -> impl Iterator<Item = &TablesByMeter> {
    [&source.blocks, &source.direct]
        .into_iter()
        .chain(source.tails.values())
}
