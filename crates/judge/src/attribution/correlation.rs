//! Correlation between blocks that ran at one time or one after the other, by table.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Attribution, FEWEST_FOR_SMALL};
use super::tables::{NamesByMeter, ObservationSource, ValueRow, rows};
use crate::stats::{
    BlockTable, Interval, MachineCorrelation, UnitCorrelation, Units, blocks_in_wave, equal_rounds,
    rounds_of_times, shared_rows, without_bias,
};
use perfquilt_model::observation::{Meter, Statistic};

/// A table of values: the source's index, `None` for the typical value, and the meter.
pub(super) type TableKey = (usize, Option<Statistic>, Meter);

/// The correlation of units of timed blocks by table, and by workload, operation or suite.
#[derive(Default)]
pub(super) struct Correlations(BTreeMap<TableKey, BTreeMap<String, Correlation>>);

/// The reason that widens the intervals of a table.
#[derive(Clone, Copy)]
enum Correlation {
    Units(UnitCorrelation),
    Machines(MachineCorrelation),
    /// All units ran at one time: nothing tells what they share.
    SingleRound,
}

impl Correlations {
    /// Estimates the correlations in `sources`; few blocks of the first have at least that of `earlier` experiments.
    pub(super) fn of(
        sources: &[ObservationSource],
        workloads: &NamesByMeter,
        earlier: Option<f64>,
    ) -> Self {
        let mut all = Correlations::default();
        for (place, source) in sources.iter().enumerate() {
            let tails = source.tails.iter().map(|(of, tables)| (Some(*of), tables));
            let earlier = earlier.filter(|_| place == 0);
            for (statistic, tables) in std::iter::once((None, &source.blocks)).chain(tails) {
                for (&meter, by_name) in tables.iter().filter(|(meter, _)| meter.is_timed()) {
                    let found = rows(by_name, workloads.get(&meter));
                    let found = found.filter_map(|(workload, tables)| {
                        let found = of_tables(source, ValueRow { meter, workload }, &tables)?;
                        Some((workload.to_owned(), found.at_least(&tables, earlier)))
                    });
                    all.0.insert((place, statistic, meter), found.collect());
                }
            }
        }
        all
    }

    /// Returns `interval`, that of a contrast in the table `key` of `workload`, widened by the correlation of its units.
    pub(super) fn widen(&self, key: TableKey, workload: &str, interval: Interval) -> Interval {
        let of_table = self.0.get(&key).and_then(|by_name| by_name.get(workload));
        match of_table {
            Some(Correlation::Units(of)) => of.widen(interval),
            Some(Correlation::Machines(of)) => of.widen(interval),
            Some(Correlation::SingleRound) => {
                Interval::unknown(interval.estimate, 1, interval.stopping_rule)
            }
            None => interval,
        }
    }
}

impl Correlation {
    /// Returns the correlation with that of `earlier` experiments, where blocks are so few that their own tells little.
    fn at_least(self, tables: &[&BlockTable], earlier: Option<f64>) -> Self {
        let blocks = tables.iter().map(|table| table.blocks()).min();
        match (self, earlier) {
            (Correlation::Units(of), Some(earlier))
                if blocks.is_some_and(|blocks| blocks < FEWEST_FOR_SMALL) =>
            {
                Correlation::Units(of.at_least(earlier))
            }
            (other, _) => other,
        }
    }
}

/// The least number of experiments whose blocks tell what later ones may assume.
const FEWEST_EARLIER: usize = 3;

/// Returns the correlation of consecutive blocks of time in `earlier` experiments on one class of machines: the mean over
/// experiments of R. A. Fisher's z (*Metron* 1, 1921), of those with twelve blocks or more. `None` with fewer than three, or if
/// it is not above 0.
pub fn earlier_correlation(earlier: &[Attribution]) -> Option<f64> {
    let of_experiment = |of: &Attribution| {
        let of_time = of.noise.dependence.iter();
        let all: Vec<f64> = of_time
            .filter(|of| of.meter == Meter::Time && of.units >= FEWEST_FOR_SMALL)
            .map(|of| without_bias(of.lag1, of.units).clamp(-0.99, 0.99).atanh())
            .collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let all: Vec<f64> = earlier.iter().filter_map(of_experiment).collect();
    let mean = (all.iter().sum::<f64>() / all.len() as f64).tanh();
    (all.len() >= FEWEST_EARLIER && mean > 0.0).then_some(mean)
}

/// Estimates what widens the intervals of the mean over `tables`: the correlation of machines where they are units, else that
/// of units.
fn of_tables(
    source: &ObservationSource,
    row: ValueRow<'_>,
    tables: &[&BlockTable],
) -> Option<Correlation> {
    if source.machines.units(false).is_some() {
        let places = source.machines.by_block();
        let rows: Option<Vec<(u32, Vec<f64>)>> = shared_rows(tables)?
            .into_iter()
            .map(|(block, row)| Some((*places.get(&block)?, row)))
            .collect();
        return MachineCorrelation::of(&rows?).map(Correlation::Machines);
    }
    if tables.iter().all(|table| is_single_round(source, table)) {
        return Some(Correlation::SingleRound);
    }
    correlation(source, row, tables).map(Correlation::Units)
}

/// Returns whether all timed blocks of `table` ran at one time; where their times are unknown, whether they are on different
/// lanes, none of which has a second one.
pub(super) fn is_single_round(source: &ObservationSource, table: &BlockTable) -> bool {
    let lanes: BTreeSet<u32> = source.lanes.values().copied().collect();
    let blocks = table.blocks();
    if lanes.len() < 2 || blocks < 2 {
        return false;
    }
    match times(source, &table.block_numbers()) {
        Some(times) => rounds_of_times(&times).len() == 1,
        None => blocks <= lanes.len(),
    }
}

/// Returns the factor by which correlation widens the intervals of a timed table of `source`, with as many units as it has;
/// 1 where machines are units, or where the correlation is not estimated.
pub(super) fn widening(source: &ObservationSource, row: ValueRow<'_>, table: &BlockTable) -> f64 {
    if source.machines.units(false).is_some() {
        return 1.0;
    }
    let units = source.by_layout(row);
    let found = correlation(source, row, &[table]);
    let count = units.mean_rows(&table.largest_window().complete()).len();
    found.map_or(1.0, |of| of.variance_factor(count).sqrt())
}

/// Returns when each of `blocks` began and ended; `None` if that is unknown of one, or several machines measured, whose
/// clocks may differ.
fn times(source: &ObservationSource, blocks: &[u32]) -> Option<BTreeMap<u32, (f64, f64)>> {
    if source.machines.names().len() > 1 {
        return None;
    }
    blocks
        .iter()
        .map(|block| Some((*block, *source.times.get(block)?)))
        .collect()
}

/// Groups the units of `blocks`, each named by its first block, into rounds that may have run at one time. Where times are
/// unknown, neighbouring blocks make a round: as many as there are lanes, since a lane takes the next block as soon as it is
/// free, or a row of each machine.
fn rounds(source: &ObservationSource, units: &Units, blocks: &[u32]) -> Vec<Vec<u32>> {
    let mut seen = BTreeSet::new();
    let is_first = |block: &&u32| seen.insert(units.of(**block));
    let firsts: Vec<u32> = blocks.iter().filter(is_first).copied().collect();
    if let Some(times) = times(source, &firsts) {
        return rounds_of_times(&times);
    }
    let lanes: BTreeSet<u32> = source.lanes.values().copied().collect();
    let at_once = lanes.len().max(blocks_in_wave(source.machines.by_block()));
    let size = (at_once * firsts.len()).div_ceil(blocks.len().max(1));
    let mut left = firsts.into_iter();
    equal_rounds(left.len(), size)
        .into_iter()
        .map(|size| left.by_ref().take(size).collect())
        .collect()
}

/// Estimates the correlation of the units of blocks that all of `tables` have, each value being the mean over the tables.
/// `None` where layouts cross, whose intervals have components of their own, or where too few blocks have the same points.
fn correlation(
    source: &ObservationSource,
    row: ValueRow<'_>,
    tables: &[&BlockTable],
) -> Option<UnitCorrelation> {
    let units = source.by_layout(row);
    let shared = shared_rows(tables)?;
    let blocks: Vec<u32> = shared.keys().copied().collect();
    let of_blocks = shared.iter().map(|(block, row)| (*block, row.as_slice()));
    let mut rows = units.means_by_unit(of_blocks);
    if rows.is_empty() || rows.len() * 2 < blocks.len() {
        return None;
    }
    let rounds = rounds(source, units, &blocks);
    let sizes: Vec<usize> = rounds.iter().map(Vec::len).collect();
    let in_order: Vec<u32> = rounds.concat();
    let rows: Vec<Vec<f64>> = in_order
        .iter()
        .filter_map(|first| rows.remove(&units.of(*first)))
        .collect();
    let found = UnitCorrelation::of(&rows, &sizes)?;
    match times(source, &in_order) {
        Some(times) => {
            let times: Vec<(f64, f64)> = in_order.iter().map(|first| times[first]).collect();
            Some(found.or_beside(&rows, &times))
        }
        None => Some(found),
    }
}
