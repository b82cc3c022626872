//! The values of one point by block.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The values of one point by block, in any order of arrival: those that arrive in the order of blocks are appended.
#[derive(Debug, Clone, Default)]
pub(super) struct Column {
    /// Sorted.
    blocks: Vec<u32>,
    values: Vec<f64>,
    /// The values that arrived after a later block's. Inserting them above would take as long as the column is.
    late: BTreeMap<u32, f64>,
    /// All values, sorted by block, if some are late; computed on first use.
    merged: OnceLock<(Vec<u32>, Vec<f64>)>,
    /// The mean of all values; computed on first use.
    mean: OnceLock<f64>,
}

impl Column {
    /// Adds a value. Returns `false`, changing nothing, if the block has one.
    pub(super) fn insert(&mut self, block: u32, value: f64) -> bool {
        if self.blocks.last().is_none_or(|last| *last < block) {
            self.blocks.push(block);
            self.values.push(value);
        } else if self.blocks.binary_search(&block).is_ok() || self.late.contains_key(&block) {
            return false;
        } else {
            self.late.insert(block, value);
        }
        self.merged.take();
        self.mean.take();
        true
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.blocks.len() + self.late.len()
    }

    /// Returns the blocks in order, and their values.
    pub(super) fn sorted(&self) -> (&[u32], &[f64]) {
        if self.late.is_empty() {
            return (&self.blocks, &self.values);
        }
        let (blocks, values) = self.merged.get_or_init(|| {
            let mut late = self.late.iter().peekable();
            let (mut blocks, mut values) = (Vec::new(), Vec::new());
            for (&block, &value) in self.blocks.iter().zip(&self.values) {
                while let Some((&earlier, &value)) = late.next_if(|(late, _)| **late < block) {
                    blocks.push(earlier);
                    values.push(value);
                }
                blocks.push(block);
                values.push(value);
            }
            (blocks, values)
        });
        (blocks, values)
    }

    /// Returns the mean of all values; `None` without values.
    pub(super) fn mean(&self) -> Option<f64> {
        let (_, values) = self.sorted();
        let mean = || values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then(|| *self.mean.get_or_init(mean))
    }

    /// Returns the column of the blocks for which `keeps` is true.
    pub(super) fn filtered(&self, keeps: &dyn Fn(u32) -> bool) -> Column {
        let (blocks, values) = self.sorted();
        let kept = blocks
            .iter()
            .zip(values)
            .filter(|(block, _)| keeps(**block));
        let (blocks, values) = kept.map(|(block, value)| (*block, *value)).unzip();
        Column {
            blocks,
            values,
            ..Column::default()
        }
    }
}

/// Returns the place of the first of the sorted `blocks` from place `from` on that is not before `block`, in the logarithm
/// of the distance.
pub(super) fn seek(blocks: &[u32], from: usize, block: u32) -> usize {
    let left = blocks.get(from..).unwrap_or_default();
    #[cfg(test)]
    counted::step();
    let mut step = 1;
    while left.get(step - 1).is_some_and(|found| *found < block) {
        step *= 2;
    }
    let near = &left[step / 2..step.min(left.len())];
    from + step / 2 + near.partition_point(|found| *found < block)
}

/// Counts the work of this thread, so that tests see how it grows without a clock.
#[cfg(test)]
pub(crate) mod counted {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts a step.
    pub(crate) fn step() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Returns how many steps `work` takes.
    pub(crate) fn steps_of(work: impl FnOnce()) -> u64 {
        let before = STEPS.get();
        work();
        STEPS.get() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_arrival_does_not_matter_and_a_block_counts_once() {
        let mut column = Column::default();
        for block in [5u32, 3, 9, 1, 4, 10, 7] {
            assert!(column.insert(block, f64::from(block)));
            assert!(!column.insert(block, 0.0));
        }
        assert_eq!(column.sorted().0, [1, 3, 4, 5, 7, 9, 10]);
        assert!(column.insert(8, 8.0));
        let (blocks, values) = column.sorted();
        assert_eq!(blocks, [1, 3, 4, 5, 7, 8, 9, 10]);
        assert!(
            blocks
                .iter()
                .zip(values)
                .all(|(block, value)| f64::from(*block) == *value)
        );
        assert_eq!((column.len(), column.mean()), (8, Some(47.0 / 8.0)));
        let kept = column.filtered(&|block| block % 2 == 0);
        assert_eq!(kept.sorted().0, [4, 8, 10]);
    }

    #[test]
    fn a_place_is_found_from_any_earlier_one() {
        let blocks: Vec<u32> = (0..100).map(|k| 3 * k).collect();
        for from in [0, 1, 7, 50, 99, 100, 101] {
            for block in 0..302 {
                let all = blocks.iter().enumerate().skip(from);
                let first = all.clone().find(|(_, found)| **found >= block);
                let expected = first.map_or(from.max(100), |(place, _)| place);
                assert_eq!(seek(&blocks, from, block), expected, "{from} {block}");
            }
        }
    }
}
