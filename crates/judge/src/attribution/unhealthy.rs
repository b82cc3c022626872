//! Machines whose values are left out, because their control or the spread of their values is unlike the others'.

use std::collections::BTreeSet;

use super::document::ExcludedMachine;
use super::tables::{NamesByMeter, ObservationSource, ValueRow};
use crate::stats::{HealthTest, Symptom, holm};
use perfquilt_model::observation::Meter;

/// The probability that a healthy machine is excluded, over all machines, workloads and meters.
const ERROR: f64 = 0.005;
/// Permutations for each test of a machine, so that the smallest p-value stays below [`ERROR`] over all of them.
const PERMUTATIONS: f64 = 1.25 / ERROR;
/// How much more values must vary than those of the other machines.
const LARGEST_SPREAD: f64 = 1.5;
/// How far the control must be from the release, as a fraction of speed: less shifts no effect that reports show.
const LARGEST_CONTROL: f64 = 5e-4;

/// Returns whether values of `meter` tell how well a machine measures.
pub(super) fn is_tested(meter: Meter) -> bool {
    meter.is_timed() && !meter.is_usage()
}

/// Returns the number of permutations for each test of a machine in one of so many tables, of which each has two.
pub(super) fn permutations(tables: usize) -> usize {
    (PERMUTATIONS * 2.0 * tables as f64).ceil() as usize
}

/// The machines of `source` to leave out, with their numbers. Blocks of some machine must be left.
///
/// A server's usage (memory, calls) may be the same in most blocks, so that a single call more would be a fault. It
/// tells nothing about how well a machine measures time.
pub(super) fn unhealthy(
    source: &ObservationSource,
    workloads: &NamesByMeter,
) -> (BTreeSet<u32>, Vec<ExcludedMachine>) {
    let mut tests: Vec<(ValueRow<'_>, HealthTest)> = Vec::new();
    let by_block = source.machines.by_block();
    let is_timed = |row: &ValueRow<'_>| is_tested(row.meter) && row.is_whole(workloads);
    let timed: Vec<_> = source.each().filter(|(row, _)| is_timed(row)).collect();
    let permutations = u32::try_from(permutations(timed.len())).unwrap_or(u32::MAX);
    for (row, table) in timed {
        let units = source.units_of(row.meter);
        let window = table.largest_window();
        let found = window.test_health(by_block, units, permutations);
        tests.extend(found.into_iter().map(|test| (row, test)));
    }
    let p_values: Vec<f64> = tests.iter().map(|(_, test)| test.p_value).collect();
    let names = source.machines.names();
    let mut numbers = BTreeSet::new();
    let mut excluded: Vec<ExcludedMachine> = Vec::new();
    for ((row, test), p_value) in tests.iter().zip(holm(&p_values)) {
        let is_large = match test.symptom {
            Symptom::Control(difference) => difference.abs() >= LARGEST_CONTROL,
            Symptom::Spread(factor) => factor >= LARGEST_SPREAD,
        };
        // One reason a machine is enough.
        if p_value >= ERROR || !is_large || !numbers.insert(test.group) {
            continue;
        }
        excluded.push(ExcludedMachine {
            machine: names
                .get(&test.group)
                .copied()
                .unwrap_or_default()
                .to_owned(),
            workload: row.workload.to_owned(),
            meter: row.meter,
            blocks: by_block
                .values()
                .filter(|number| **number == test.group)
                .count(),
            reason: test.symptom,
            p_value,
        });
    }
    if 2 * numbers.len() > source.machines.count() {
        // Where most machines are unlike the others, nobody can tell which ones are right.
        return (BTreeSet::new(), Vec::new());
    }
    excluded.sort_by(|a, b| a.machine.cmp(&b.machine));
    (numbers, excluded)
}
