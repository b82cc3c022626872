//! The machines that measured the blocks of one experiment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use crate::stats::Units;

/// From so many machines on, a machine is the unit of intervals, which then hold for all machines of the class; with
/// fewer, they hold for these machines alone. Intervals over five means would be half as wide again.
pub const FEWEST_MACHINES_AS_UNITS: usize = 6;

/// The machines of timed blocks, or of counted ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Machines {
    /// Their numbers, in the order in which they were added.
    numbers: BTreeMap<String, u32>,
    blocks: BlockMachines,
    direct: BlockMachines,
}

/// The machines of blocks of one kind.
#[derive(Debug, Clone, Default)]
struct BlockMachines {
    by_block: BTreeMap<u32, u32>,
    /// Computed on first use.
    units: OnceLock<Units>,
}

impl BlockMachines {
    fn add(&mut self, block: u32, machine: u32) {
        if self.by_block.insert(block, machine).is_none() {
            self.units.take();
        }
    }

    fn units(&self) -> &Units {
        self.units.get_or_init(|| Units::of_groups(&self.by_block))
    }
}

impl Machines {
    /// Records that `machine` measured `block`, which is of the end-to-end check if `direct`.
    pub(super) fn add(&mut self, machine: &str, block: u32, direct: bool) {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = match self.numbers.get(machine) {
            Some(&number) => number,
            None => *self.numbers.entry(machine.to_owned()).or_insert(next),
        };
        let of = if direct {
            &mut self.direct
        } else {
            &mut self.blocks
        };
        of.add(block, number);
    }

    /// Returns the names of the machines by number.
    pub(super) fn names(&self) -> BTreeMap<u32, &str> {
        let numbers = self.numbers.iter();
        numbers
            .map(|(name, &number)| (number, name.as_str()))
            .collect()
    }

    /// Returns the machine's number of each block over all points.
    pub(super) fn by_block(&self) -> &BTreeMap<u32, u32> {
        &self.blocks.by_block
    }

    /// Returns the machine's number of each end-to-end block.
    pub(super) fn by_direct_block(&self) -> &BTreeMap<u32, u32> {
        &self.direct.by_block
    }

    /// Returns the machines but those with the numbers `excluded`.
    pub(super) fn without(&self, excluded: &BTreeSet<u32>) -> Self {
        let mut left = self.clone();
        left.numbers.retain(|_, number| !excluded.contains(number));
        for of in [&mut left.blocks, &mut left.direct] {
            of.by_block.retain(|_, machine| !excluded.contains(machine));
            of.units.take();
        }
        left
    }

    /// Returns the machine of each block over all points if several measured some, but too few to be units: they weigh
    /// alike, whatever the number of their blocks.
    pub(super) fn strata(&self) -> Option<&BTreeMap<u32, u32>> {
        let few = 2..FEWEST_MACHINES_AS_UNITS;
        few.contains(&self.count()).then_some(&self.blocks.by_block)
    }

    /// Returns the number of machines.
    pub(super) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the machines as units of the blocks over all points, or of the direct ones; `None` if there are too few.
    pub(super) fn units(&self, direct: bool) -> Option<&Units> {
        let of = if direct { &self.direct } else { &self.blocks };
        (self.count() >= FEWEST_MACHINES_AS_UNITS).then(|| of.units())
    }
}
