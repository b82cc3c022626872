//! Tables of observations, by the experiment that made them.

use std::collections::{BTreeMap, BTreeSet};

use super::machines::Machines;
use crate::stats::{BlockTable, Units};
use perfquilt_model::observation::{Meter, ObservationRef, Statistic};

/// Tables by meter and workload.
pub(super) type TablesByMeter = BTreeMap<Meter, BTreeMap<String, BlockTable>>;

/// Iterates over the tables.
pub(super) fn each(tables: &TablesByMeter) -> impl Iterator<Item = (Meter, &String, &BlockTable)> {
    tables.iter().flat_map(|(&meter, by_workload)| {
        by_workload
            .iter()
            .map(move |(workload, table)| (meter, workload, table))
    })
}

/// Names of workloads, or of operations as `workload/operation`, by meter.
pub(super) type NamesByMeter = BTreeMap<Meter, BTreeSet<String>>;

/// The observations of one experiment.
#[derive(Clone, Default)]
pub(super) struct ObservationSource {
    /// Tables of the blocks over all points.
    pub(super) blocks: TablesByMeter,
    /// The independent units of these blocks, by meter: timed and counted blocks have separate numbers.
    pub(super) units: BTreeMap<Meter, Units>,
    /// Tables of the closure check's blocks, which have only the release and the whole series.
    pub(super) direct: TablesByMeter,
    /// The independent units of the closure check's blocks.
    pub(super) direct_units: BTreeMap<Meter, Units>,
    /// The lane that measured each timed block, where several did.
    pub(super) lanes: BTreeMap<u32, u32>,
    /// When each timed block began and ended, where that is known.
    pub(super) times: BTreeMap<u32, (f64, f64)>,
    /// The machines that measured timed blocks, where several did.
    pub(super) machines: Machines,
    /// The machines that measured counted blocks, likewise.
    pub(super) counting_machines: Machines,
    /// Tables of the mean and the tail in the blocks over all points.
    pub(super) tails: BTreeMap<Statistic, TablesByMeter>,
}

impl ObservationSource {
    /// Adds an observation. Returns `false`, without a value, if its block already has its point.
    pub(super) fn add(&mut self, observation: &ObservationRef<'_>) -> bool {
        let (tables, units) = if observation.direct {
            (&mut self.direct, &mut self.direct_units)
        } else {
            (&mut self.blocks, &mut self.units)
        };
        let ObservationRef {
            block,
            point,
            layout,
            value,
            n,
            ..
        } = *observation;
        let units = units.entry(observation.meter).or_default();
        units.note(block, point, layout);
        if let Some(lane) = observation.lane
            && observation.meter.is_timed()
            && !observation.direct
        {
            self.lanes.insert(block, lane);
            if let Some((began, ended)) = observation.began.zip(observation.ended) {
                // A block has one workload after the other.
                let time = self.times.entry(block).or_insert((began, ended));
                *time = (time.0.min(began), time.1.max(ended));
            }
        }
        if let Some(machine) = &observation.machine {
            let machines = if observation.meter.is_timed() {
                &mut self.machines
            } else {
                &mut self.counting_machines
            };
            machines.add(machine, block, observation.direct);
        }
        let is_new = table_of(tables, observation).insert(block, point, value, n);
        if is_new {
            self.add_tail(observation);
        }
        is_new
    }

    /// Returns the independent units of the blocks over all points, or of the closure check's if `direct`: machines, if
    /// enough of them measured such blocks.
    pub(super) fn independent(&self, meter: Meter, direct: bool) -> Option<&Units> {
        let machines = if meter.is_timed() {
            self.machines.units(direct)
        } else {
            self.counting_machines.units(direct)
        };
        let by_meter = if direct {
            &self.direct_units
        } else {
            &self.units
        };
        machines.or_else(|| by_meter.get(&meter))
    }

    /// Iterates over the tables of the blocks over all points.
    pub(super) fn each(&self) -> impl Iterator<Item = (Meter, &String, &BlockTable)> {
        each(&self.blocks)
    }

    /// Adds an observation's mean and tail, unless it belongs to the closure check.
    fn add_tail(&mut self, observation: &ObservationRef<'_>) {
        if observation.direct {
            return;
        }
        let ObservationRef {
            block, point, n, ..
        } = *observation;
        let values = [
            (Statistic::Mean, observation.mean.map(f64::ln)),
            (Statistic::Slow, observation.slow),
            (Statistic::P99, observation.p99.map(f64::ln)),
            (Statistic::Stalled, observation.stalled),
        ];
        for (statistic, value) in values {
            if let Some(value) = value {
                let tables = self.tails.entry(statistic).or_default();
                let table = table_of(tables, observation);
                // The insertion of the value has already ruled out a duplicate point.
                table.insert_plain(block, point, value, n);
            }
        }
    }

    /// Returns this source without the timed blocks that the machines with these numbers measured.
    pub(super) fn without_machines(&self, excluded: &BTreeSet<u32>) -> Self {
        let filtered = |tables: &TablesByMeter, of: &BTreeMap<u32, u32>| -> TablesByMeter {
            let keeps = |block: u32| {
                of.get(&block)
                    .is_none_or(|machine| !excluded.contains(machine))
            };
            tables
                .iter()
                .map(|(&meter, by_workload)| {
                    let each = by_workload.iter().map(|(workload, table)| {
                        let table = if meter.is_timed() {
                            table.filtered(&keeps)
                        } else {
                            table.clone()
                        };
                        (workload.clone(), table)
                    });
                    (meter, each.collect())
                })
                .collect()
        };
        let blocks = self.machines.by_block();
        ObservationSource {
            blocks: filtered(&self.blocks, blocks),
            direct: filtered(&self.direct, self.machines.by_direct_block()),
            tails: self
                .tails
                .iter()
                .map(|(&statistic, tables)| (statistic, filtered(tables, blocks)))
                .collect(),
            machines: self.machines.without(excluded),
            counting_machines: self.counting_machines.clone(),
            units: self.units.clone(),
            direct_units: self.direct_units.clone(),
            lanes: self.lanes.clone(),
            times: self.times.clone(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.each().all(|(_, _, table)| table.blocks() == 0)
    }
}

/// Returns the table of an observation's meter and workload. The name is copied for the first observation
/// only.
fn table_of<'t>(
    tables: &'t mut TablesByMeter,
    observation: &ObservationRef<'_>,
) -> &'t mut BlockTable {
    let by_workload = tables.entry(observation.meter).or_default();
    if !by_workload.contains_key(&*observation.workload) {
        let name = observation.workload.clone().into_owned();
        by_workload.insert(name, BlockTable::default());
    }
    by_workload
        .get_mut(&*observation.workload)
        .unwrap_or_else(|| unreachable!("it was just made"))
}
