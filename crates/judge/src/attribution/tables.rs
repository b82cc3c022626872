//! Tables of observations, by the experiment that made them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::OnceLock;

use super::document::SUITE;
use super::machines::Machines;
use crate::stats::{BlockTable, Units, shared_rows};
use perfquilt_model::observation::{Meter, Observation, RowName, Statistic};

/// Tables by meter and workload.
pub(super) type TablesByMeter = BTreeMap<Meter, BTreeMap<String, BlockTable>>;

/// A meter's values of a workload, of an operation, or of all workloads as [`SUITE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueRow<'a> {
    pub(super) meter: Meter,
    pub(super) workload: &'a str,
}

impl<'a> ValueRow<'a> {
    pub(super) fn new(workload: &'a str, meter: Meter) -> Self {
        ValueRow { meter, workload }
    }

    /// Returns whether it is that of a whole workload, not of an operation of one.
    pub(super) fn is_whole(self, workloads: &NamesByMeter) -> bool {
        let names = workloads.get(&self.meter);
        names.is_some_and(|names| names.contains(self.workload))
    }
}

impl fmt::Display for ValueRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.workload, self.meter)
    }
}

/// Iterates over the tables.
pub(super) fn each(tables: &TablesByMeter) -> impl Iterator<Item = (ValueRow<'_>, &BlockTable)> {
    tables.iter().flat_map(|(&meter, by_workload)| {
        let tables = by_workload.iter();
        tables.map(move |(workload, table)| (ValueRow { meter, workload }, table))
    })
}

/// Names of workloads, or of operations as `workload/operation`, by meter.
pub(super) type NamesByMeter = BTreeMap<Meter, BTreeSet<String>>;

/// Iterates over the rows of a meter, with the tables that each is over: one for a workload or an operation, those of all
/// `workloads` for the suite, if there are several and none is missing.
pub(super) fn rows<'t>(
    tables: &'t BTreeMap<String, BlockTable>,
    workloads: Option<&BTreeSet<String>>,
) -> impl Iterator<Item = (&'t str, Vec<&'t BlockTable>)> {
    let workloads = workloads.into_iter().flatten();
    let suite: Option<Vec<_>> = workloads.map(|name| tables.get(name)).collect();
    let suite = suite.filter(|suite| suite.len() > 1);
    let single = tables.iter();
    let single = single.map(|(name, table)| (name.as_str(), vec![table]));
    single.chain(suite.map(|tables| (SUITE, tables)))
}

/// The observations of one experiment.
#[derive(Clone, Default)]
pub(super) struct ObservationSource {
    /// Tables of the blocks over all points.
    pub(super) blocks: TablesByMeter,
    /// The independent units of these blocks, by meter: timed and counted blocks have separate numbers.
    pub(super) units: BTreeMap<Meter, Units>,
    /// Tables of the end-to-end check's blocks, which have only the release and the whole series.
    pub(super) direct: TablesByMeter,
    /// The independent units of the end-to-end check's blocks.
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
    /// The rows in which layouts show no variance, and their units; computed on first use.
    without_effect: OnceLock<BTreeMap<Meter, WithoutEffect>>,
}

/// The rows of a meter in which layouts show no variance.
#[derive(Clone)]
struct WithoutEffect {
    units: Units,
    /// Workloads, operations, and [`SUITE`].
    rows: BTreeSet<String>,
}

impl ObservationSource {
    /// Adds an observation. Returns `false`, without a value, if its block already has its point.
    pub(super) fn add(&mut self, observation: &Observation) -> bool {
        self.without_effect.take();
        let (tables, units) = if observation.direct {
            (&mut self.direct, &mut self.direct_units)
        } else {
            (&mut self.blocks, &mut self.units)
        };
        let Observation {
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

    /// Returns the independent units of a row in the blocks over all points, or in the end-to-end check's if `direct`: machines,
    /// if enough of them measured such blocks; blocks, where layouts show no variance in comparisons.
    pub(super) fn independent(&self, row: ValueRow<'_>, direct: bool) -> &Units {
        let by_layout = || {
            if direct {
                self.direct_units.get(&row.meter).unwrap_or(Units::none())
            } else {
                self.by_layout(row)
            }
        };
        self.machines_of(row.meter)
            .units(direct)
            .unwrap_or_else(by_layout)
    }

    /// Returns the independent units of the costs of single points, which always vary with layouts.
    pub(super) fn independent_points(&self, meter: Meter) -> &Units {
        let machines = self.machines_of(meter).units(false);
        machines.unwrap_or_else(|| self.units_of(meter))
    }

    fn machines_of(&self, meter: Meter) -> &Machines {
        if meter.is_timed() {
            &self.machines
        } else {
            &self.counting_machines
        }
    }

    /// Returns the units of the blocks over all points that share layouts on a row; the blocks, where layouts show no
    /// variance.
    pub(super) fn by_layout(&self, row: ValueRow<'_>) -> &Units {
        let blocks = self.units_in(row);
        blocks.unwrap_or_else(|| self.units_of(row.meter))
    }

    /// Returns the units of the blocks over all points that share layouts.
    pub(super) fn units_of(&self, meter: Meter) -> &Units {
        self.units.get(&meter).unwrap_or(Units::none())
    }

    /// Returns the blocks as units if layouts show no variance on a row.
    fn units_in(&self, row: ValueRow<'_>) -> Option<&Units> {
        let known = self.without_effect.get_or_init(|| {
            let timed = self.blocks.iter().filter(|(meter, _)| meter.is_timed());
            timed
                .filter_map(|(&meter, tables)| Some((meter, self.without_effect(meter, tables)?)))
                .collect()
        });
        let of_meter = known.get(&row.meter)?;
        let has_row = of_meter.rows.contains(row.workload);
        has_row.then_some(&of_meter.units)
    }

    fn without_effect(
        &self,
        meter: Meter,
        tables: &BTreeMap<String, BlockTable>,
    ) -> Option<WithoutEffect> {
        let units = self.units.get(&meter).filter(|units| units.repeat())?;
        let shows = |tables: &[&BlockTable]| {
            shared_rows(tables).is_some_and(|rows| units.show_no_variance(&rows))
        };
        let single = tables.iter().filter(|(_, table)| shows(&[table]));
        let mut rows: BTreeSet<String> = single.map(|(name, _)| name.clone()).collect();
        let whole = |name: &&String| RowName::from(name.as_str()).operation.is_none();
        let suite: Vec<&BlockTable> = tables
            .keys()
            .filter(whole)
            .map(|name| &tables[name])
            .collect();
        if suite.len() > 1 && shows(&suite) {
            rows.insert(SUITE.to_owned());
        }
        (!rows.is_empty()).then(|| WithoutEffect {
            units: units.without_effect(),
            rows,
        })
    }

    /// Iterates over the tables of the blocks over all points.
    pub(super) fn each(&self) -> impl Iterator<Item = (ValueRow<'_>, &BlockTable)> {
        each(&self.blocks)
    }

    /// Adds an observation's mean and tail, unless it belongs to the end-to-end check.
    fn add_tail(&mut self, observation: &Observation) {
        if observation.direct {
            return;
        }
        let Observation {
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
        let mut left = self.clone();
        left.without_effect.take();
        left.machines = self.machines.without(excluded);
        let direct = (&mut left.direct, self.machines.by_direct_block());
        let blocks = left.tails.values_mut().chain([&mut left.blocks]);
        let blocks = blocks.map(|tables| (tables, self.machines.by_block()));
        for (tables, machines) in blocks.chain([direct]) {
            let is_left_out = |machine: &u32| excluded.contains(machine);
            let keeps = |block: u32| !machines.get(&block).is_some_and(is_left_out);
            let timed = tables.iter_mut().filter(|(meter, _)| meter.is_timed());
            for table in timed.flat_map(|(_, tables)| tables.values_mut()) {
                *table = table.filtered(&keeps);
            }
        }
        left
    }

    pub(super) fn is_empty(&self) -> bool {
        self.each().all(|(_, table)| table.blocks() == 0)
    }
}

/// Returns the table of an observation's meter and workload. The name is copied for the first observation
/// only.
fn table_of<'t>(tables: &'t mut TablesByMeter, observation: &Observation) -> &'t mut BlockTable {
    let by_workload = tables.entry(observation.meter).or_default();
    let name = observation.workload.as_str();
    if !by_workload.contains_key(name) {
        by_workload.insert(name.to_owned(), BlockTable::default());
    }
    by_workload
        .get_mut(name)
        .unwrap_or_else(|| unreachable!("it was just made"))
}
