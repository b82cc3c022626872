//! Warnings about the validity of the figures: each states a condition and the remedy, in one or two sentences.

use std::collections::{BTreeMap, BTreeSet};

use statrs::distribution::{Binomial, DiscreteCDF};

use super::correlation::is_single_round;
use super::document::{
    Attribution, DRIFT, Dependence, Effect, EffectKind, ExcludedMachine, PatchEffects, SUITE,
};
use super::tables::{ObservationSource, ValueRow};
use super::unexecuted::Unexecuted;
use crate::stats::{
    BlockTable, CompleteBlocks, FEWEST_COUNTED, Symptom, are_equal, between_rounds, blocks_needed,
    holm, median, readings_correlation,
};
use perfquilt_model::counted::{listed, percent};
use perfquilt_model::observation::{
    Conditions, ExcludedReadings, ExperimentHeader, FailedWorkload, MachineName, Meter, RowName,
    Withheld,
};
use perfquilt_model::point::Point;
use perfquilt_model::warning::Warning;

/// The share of processor time taken by the hypervisor above which a warning is due.
const STOLEN: f64 = 0.02;
/// The share of idle processor time above which a warning is due.
const IDLE: f64 = 0.25;
/// The share of a block's time for which a quota stopped processes from which on it is reported.
const THROTTLED: f64 = 0.001;
/// The number of preemptions of servers per second above which a warning is due.
const PREEMPTED: f64 = 100.0;
/// The ratio of processor frequencies above which a warning is due.
const FREQUENCY: f64 = 1.05;

/// `point 2`, `points 2, 3`, `points 2, 3, 4, 5 and 7 more`.
fn list(points: &[Point]) -> String {
    let noun = if points.len() > 1 { "points" } else { "point" };
    format!("{noun} {}", listed(points, 4))
}

/// A warning, and the effects that have no verdict for what it says.
pub(super) type Ground = (Warning, Option<Withheld>);

/// Withholds the effects on a row that compare one of `points`, or all of them if there are none, for this `reason`.
fn withheld(row: ValueRow<'_>, points: Vec<Point>, reason: &str) -> Withheld {
    Withheld {
        workload: Some(row.workload.to_owned()),
        meter: Some(row.meter),
        points,
        reason: reason.to_owned(),
    }
}

/// Finds what takes away the ground of verdicts in `source`: points that lack more values than chance explains, points that changed while they were measured, and work that is missing in part. `partial` tells for
/// which meters blocks lack points by plan.
pub(super) fn grounds(
    header: &ExperimentHeader,
    source: &ObservationSource,
    dependence: &[Dependence],
    left_out: &[ExcludedReadings],
    partial: impl Fn(Meter) -> bool,
) -> Vec<Ground> {
    let mut grounds = changed_points(source, dependence);
    grounds.extend(lacking_operations(header, source, left_out));
    for (row, table) in source.each() {
        let complete = table.largest_window().complete();
        let still = complete.len() > 2 && complete.spread().is_some_and(|sd| sd < 1e-12);
        if still && row.meter != Meter::Instructions {
            let text = format!(
                "All blocks of {row} agree to the last digit: check that these are measured values."
            );
            grounds.push((Warning::equal_blocks(text), None));
        }
        let lacks = (!complete.is_empty() && !partial(row.meter)).then(|| mostly_missing(table));
        if let Some((point, missing)) = lacks.flatten() {
            let text = format!(
                "Point {point} of {row} lacks a value in {missing} of {} blocks, more than chance explains: if it fails when it \
                 is slow, its effect looks better than it is.",
                table.blocks()
            );
            let reason = "it lacks more values than chance explains";
            let withheld = withheld(row, vec![point], reason);
            grounds.push((Warning::missing_values(text), Some(withheld)));
        }
    }
    grounds
}

/// Returns the warnings beside those on [`grounds`]. `windowed` has the meters whose blocks have only some points each by plan.
pub(super) fn warnings(
    attribution: &Attribution,
    source: &ObservationSource,
    windowed: &BTreeSet<Meter>,
    unexecuted: &Unexecuted,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(failed_workloads(attribution));
    warnings.extend(control(attribution));
    warnings.extend(disagreeing_lanes(attribution));
    warnings.extend(end_to_end(attribution));
    warnings.extend(excluded(attribution));
    warnings.extend(differing_machines(attribution));
    warnings.extend(few_machines(attribution));
    warnings.extend(namesakes(source));
    warnings.extend(earlier_rule(attribution));
    warnings.extend(unpaired(attribution));
    warnings.extend(lacking(attribution, source, unexecuted));
    let measured = attribution.effects().filter(|effect| effect.is_measured());
    let compared: BTreeSet<(ValueRow<'_>, bool)> = measured
        .map(|of| (ValueRow::new(&of.workload, of.meter), of.unpaired))
        .collect();
    for (row, table) in source.each() {
        let own = |name: &String| name.as_str().cmp(row.workload);
        if attribution.workloads.binary_search_by(own).is_err() {
            continue;
        }
        let meter = row.meter;
        let has = |unpaired| compared.contains(&(row, unpaired));
        if !windowed.contains(&meter) && (!has(true) || has(false)) {
            let rule = attribution.stopping.as_ref();
            let stopped = rule.is_some_and(|rule| rule.meter == meter);
            warnings.extend(incomplete(row, table, stopped, has(true)));
        }
        if meter.is_timed() && is_single_round(source, table) {
            warnings.push(Warning::one_time(format!(
                "The {} blocks of {row} ran at one time, on different lanes: nothing tells what disturbed all of \
                 them, so there is no interval. Measure twice as many blocks as there are lanes or more, or with `lanes = 1` in the preset.",
                table.blocks()
            )));
        }
        let window = table.largest_window();
        let complete = window.complete();
        let outliers = outlier_blocks(&complete, window.points().len());
        if let Some(first) = outliers.first() {
            warnings.push(Warning::outliers(format!(
                "{} of {} blocks of {row} have a value far from the others (block {first}{}): a clock \
                 that jumped, or another unit? They are used, and make the intervals wide.",
                outliers.len(),
                table.blocks(),
                if outliers.len() > 1 { " first" } else { "" },
            )));
        }
    }
    let across_blocks = source
        .each()
        .filter(|(row, _)| compared.contains(&(*row, true)));
    warnings.extend(of_readings(across_blocks));
    warnings.extend(attribution.noise.conditions.iter().flat_map(disturbed));
    warnings
}

/// Tells which points' readings show no noise, or depend on each other, in rows that are compared across blocks.
fn of_readings<'s>(rows: impl Iterator<Item = (ValueRow<'s>, &'s BlockTable)>) -> Vec<Warning> {
    let (mut few_equal, mut equal, mut alike) = (Vec::new(), Vec::new(), Vec::new());
    for (row, table) in rows {
        for &point in table.points() {
            let readings = table.contrast(&[(point, 1.0)]);
            let logs: Vec<f64> = readings.iter().map(|(_, log)| *log).collect();
            let named = format!("{row} at point {point}");
            if are_equal(&readings) && logs.len() < FEWEST_COUNTED {
                few_equal.push(named);
            } else if are_equal(&readings) {
                equal.push(named);
            } else if readings_correlation(&logs).is_some_and(|of| of.widens()) {
                alike.push(named);
            }
        }
    }
    type Constructor = fn(String) -> Warning;
    let kinds: [(_, Constructor, _, _); 3] = [
        (
            few_equal,
            Warning::few_readings,
            "Fewer than six readings that agree to the last digit show no noise, so there is no interval",
            "Measure six times or more, or longer",
        ),
        (
            equal,
            Warning::equal_readings,
            "Readings agree to the last digit, and intervals are as wide as that digit leaves open",
            "Check that these are measured values",
        ),
        (
            alike,
            Warning::dependent_readings,
            "Consecutive readings resemble each other, and intervals are wider for it",
            "Measure all points in turns: no interval knows of a drift that goes on",
        ),
    ];
    let told = kinds.into_iter().filter(|(rows, ..)| !rows.is_empty());
    told.map(|(rows, warning, what, remedy)| {
        warning(format!("{what}: {}. {remedy}.", listed(&rows, 3)))
    })
    .collect()
}

/// Finds effects that compare points which share no block.
fn unpaired(attribution: &Attribution) -> Option<Warning> {
    let mut judged = attribution.effects().filter(|effect| effect.is_measured());
    let which = if judged.all(|effect| effect.unpaired) {
        "Points were measured in runs of their own, not in turns: whatever changed on the \
         machine between the runs"
    } else {
        "Some points share no block with those they are compared with: whatever changed on the \
         machine between their blocks"
    };
    attribution.is_unpaired().then(|| {
        Warning::unpaired(format!(
            "{which} counts as an effect, and no interval knows of it. Measure all points in each block."
        ))
    })
}

/// Tells how many blocks of a table lack points; `stopped` if the stopping rule may be the reason, `across` if any effect
/// compares points that share no block.
fn incomplete(
    row: ValueRow<'_>,
    table: &BlockTable,
    stopped: bool,
    across: bool,
) -> Option<Warning> {
    let blocks = table.incomplete_blocks();
    if blocks == 0 {
        return None;
    }
    let why = if stopped {
        " (left out when its effects were known well enough, or failed)"
    } else {
        ""
    };
    let else_all = if across {
        ", or all of either where none has both"
    } else {
        ""
    };
    Some(Warning::incomplete_blocks(format!(
        "{blocks} of {} blocks of {row} lack a point{why}; every effect uses the \
         blocks that have both its points{else_all}, so effects need not add up exactly.",
        table.blocks()
    )))
}

/// Returns the point that lacks more values of a table than chance explains, and how many it lacks: where each missing one
/// might be any point's, so many of them are its with a probability of less than 1 % over all points (binomial
/// distribution, Bonferroni).
fn mostly_missing(table: &BlockTable) -> Option<(Point, u64)> {
    let blocks = table.blocks() as u64;
    let by_point = table.blocks_by_point();
    let points = by_point.len() as f64;
    let missing = |of: u64| blocks.saturating_sub(of);
    let all: u64 = by_point.values().map(|of| missing(*of)).sum();
    let (point, most) = by_point
        .into_iter()
        .map(|(point, of)| (point, missing(of)))
        .max_by_key(|(_, missing)| *missing)?;
    let by_chance = Binomial::new(points.recip(), all).ok()?;
    let as_many = by_chance.sf(most.checked_sub(1)?);
    (as_many * points < SIGNIFICANCE).then_some((point, most))
}

/// Finds counts that differ although the workload is said not to execute the patch.
pub(super) fn contradicted(patches: &[PatchEffects]) -> Vec<Ground> {
    let mut grounds = Vec::new();
    for patch in patches {
        let in_order = |effect: &&Effect| effect.kind == EffectKind::InOrder;
        let effects = || patch.effects.iter().filter(in_order);
        let untimed: BTreeMap<&str, Meter> = effects()
            .filter(|effect| effect.meter.is_timed() && !effect.executed)
            .map(|effect| (effect.workload.as_str(), effect.meter))
            .collect();
        let counted = effects().filter(|effect| !effect.meter.is_timed() && effect.executed);
        let differs = |effect: &&Effect| {
            effect.workload != SUITE && effect.leaves_out_zero() && !effect.equivalent
        };
        for effect in counted.filter(differs) {
            if let Some(timed) = untimed.get(effect.workload.as_str()) {
                let text = format!(
                    "No code that patch {} changes seemed to run, but {} differs: its times may differ, too. \
                     `--unexecuted` measures them.",
                    patch.index,
                    ValueRow::new(&effect.workload, effect.meter)
                );
                let row = ValueRow::new(&effect.workload, *timed);
                let points = vec![Point::Step(patch.index)];
                let reason = "its counts differ, and it was not timed";
                let withheld = withheld(row, points, reason);
                grounds.push((Warning::contradicted(text), Some(withheld)));
            }
        }
    }
    grounds
}

/// Names the workloads that failed.
fn failed_workloads(attribution: &Attribution) -> impl Iterator<Item = Warning> {
    let failed = attribution.failed_workloads.iter();
    failed.map(|FailedWorkload { meters, reason, .. }| {
        // It may begin with a file instead.
        let sentence = match reason.strip_prefix("workload ") {
            Some(rest) => format!("Workload {rest}"),
            None => reason.clone(),
        };
        Warning::failed_workload(format!(
            "{sentence}; no further blocks of it were measured ({}).",
            listed(meters, meters.len())
        ))
    })
}

/// Finds the tables of a meter that lack points which other tables have.
fn lacking(
    attribution: &Attribution,
    source: &ObservationSource,
    unexecuted: &Unexecuted,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (&meter, tables) in &source.blocks {
        // The progress section reports workloads that have not begun.
        let begun = |name: &String, table: &BlockTable| {
            table.blocks() > 0 && attribution.workloads.binary_search(name).is_ok()
        };
        let tables = tables.iter().filter(|(name, table)| begun(name, table));
        let tables: Vec<(&String, &BlockTable)> = tables.collect();
        let all: BTreeSet<Point> = tables
            .iter()
            .flat_map(|(_, table)| table.points())
            .filter(|point| !attribution.failed.contains_key(point))
            .copied()
            .collect();
        for (workload, table) in tables {
            let lacks = |point: &Point| table.points().binary_search(point).is_err();
            let left_out = unexecuted.untimed_points(workload, &all);
            let planned = |point: &Point| !meter.is_timed() || !left_out.contains_key(point);
            let points: Vec<Point> = all.iter().copied().filter(lacks).filter(planned).collect();
            if !points.is_empty() {
                warnings.push(Warning::lacking_points(format!(
                    "{} has no value of {}, which other workloads have: nothing is known of {} over all \
                     workloads.",
                    ValueRow { meter, workload },
                    list(&points),
                    if points.len() > 1 { "them" } else { "it" },
                )));
            }
        }
    }
    warnings
}

/// Blocks with a value, by point.
type BlockCounts = BTreeMap<Point, u64>;

/// Finds operations that lack values in blocks in which other rows of their workload have some.
fn lacking_operations(
    header: &ExperimentHeader,
    source: &ObservationSource,
    left_out: &[ExcludedReadings],
) -> Vec<Ground> {
    const SHOWN: usize = 3;
    let mut grounds = Vec::new();
    for (&meter, tables) in &source.blocks {
        let mut by_workload: BTreeMap<&str, Vec<(Option<&str>, BlockCounts)>> = BTreeMap::new();
        for (name, table) in tables {
            // Readings that were left out were run.
            if left_out
                .iter()
                .any(|of| (&of.workload, of.meter) == (name, meter))
            {
                continue;
            }
            let row = RowName::from(name.as_str());
            let rows = by_workload.entry(row.workload).or_default();
            rows.push((row.operation, table.blocks_by_point()));
        }
        for (workload, rows) in by_workload {
            let mut most = BlockCounts::new();
            for (&point, &blocks) in rows.iter().flat_map(|(_, blocks)| blocks) {
                let most = most.entry(point).or_default();
                *most = (*most).max(blocks);
            }
            most.retain(|point, _| !header.failed.contains_key(point));
            let lacks = |blocks: &BlockCounts| -> Vec<Point> {
                let of_point = |point: &Point| blocks.get(point).copied().unwrap_or(0);
                let lacking = most.iter().filter(|(point, most)| of_point(point) < **most);
                lacking.map(|(point, _)| *point).collect()
            };
            let lacking: Vec<(&str, Vec<Point>)> = rows
                .iter()
                .filter_map(|(operation, blocks)| Some(((*operation)?, lacks(blocks))))
                .filter(|(_, points)| !points.is_empty())
                .collect();
            if lacking.is_empty() {
                continue;
            }
            let named = |(operation, points): &(&str, Vec<Point>)| {
                format!("{operation} on {}", list(points))
            };
            let named: Vec<String> = lacking.iter().map(named).collect();
            let are_more = named.len() > SHOWN;
            let noun = if are_more { " operations" } else { "" };
            let row = ValueRow { meter, workload };
            let text = format!(
                "{row} has no value of {}{noun} in some blocks in which it has others: less was run there, \
                 or its output was not understood, so {workload} as a whole may not compare the same work.",
                listed(&named, SHOWN)
            );
            let points = lacking.into_iter().flat_map(|(_, points)| points);
            let points: BTreeSet<Point> = points.collect();
            let points = points.into_iter().collect();
            let reason = "part of the work is missing in some blocks";
            let withheld = withheld(row, points, reason);
            grounds.push((Warning::missing_work(text), Some(withheld)));
        }
    }
    grounds
}

/// Finds disturbances of the machine.
fn disturbed(of: &Conditions) -> Vec<Warning> {
    let workload = &of.workload;
    let mut warnings = Vec::new();
    if of.steal.mean > STOLEN {
        warnings.push(Warning::stolen_time(format!(
            "The hypervisor gave {} of the processor's time to other machines while {workload} was \
             measured ({} in the worst block). The intervals contain that; a quieter hour or a \
             machine of its own makes them narrower.",
            percent(of.steal.mean),
            percent(of.steal.worst)
        )));
    }
    if of.throttled.worst > THROTTLED {
        warnings.push(Warning::throttled(format!(
            "The kernel stopped servers or clients for {} of the time while {workload} was measured ({} in the worst block), \
             because the processor quota of their control group was used up. Remove the quota (`cpu.max`, `docker run \
             --cpus`), or give whole processors instead (`cpuset`).",
            percent(of.throttled.mean),
            percent(of.throttled.worst)
        )));
    } else if of.idle.mean > IDLE {
        // Throttled processors are idle, too.
        warnings.push(Warning::idle(format!(
            "The processor had nothing to do for {} of the time while {workload} was measured: servers \
             or clients wait for something else, and effects on time are diluted by that. Data \
             in memory and as many client threads as processors make a workload bound by the \
             processor.",
            percent(of.idle.mean)
        )));
    }
    if of.preempted > PREEMPTED {
        warnings.push(Warning::preempted(format!(
            "Servers were taken off their processor {:.0} times a second while {workload} was \
             measured. Stop what else runs there, or let perfquilt use real-time scheduling \
             (as root, or with CAP_SYS_NICE).",
            of.preempted
        )));
    }
    // Reading the program's own file accounts for about one page per block, in a fraction of a
    // millisecond.
    if of.major_faults > of.blocks as u64 {
        warnings.push(Warning::paged(format!(
            "Servers had to read {} of their own pages from a disk while {workload} was measured: the \
             machine has too little memory. Measure fewer points at once (`--point`), or \
             smaller tables.",
            of.major_faults
        )));
    }
    if let Some((low, high)) = of.mhz.filter(|(low, high)| *high > FREQUENCY * low) {
        warnings.push(Warning::frequency(format!(
            "The processor ran at {low:.0} to {high:.0} MHz while {workload} was measured. Points take \
             turns, so that it hits all alike; a fixed frequency (`cpupower frequency-set`) \
             makes the intervals narrower."
        )));
    }
    warnings
}

fn control(attribution: &Attribution) -> Option<Warning> {
    let control = &attribution.noise.control;
    let missed: Vec<String> = control
        .iter()
        .filter(|control| control.contains_zero == Some(false))
        .map(|control| match control.effect.workload.as_str() {
            SUITE => format!("{} over all workloads", control.effect.meter),
            workload => format!("{} of {workload}", control.effect.meter),
        })
        .collect();
    (!missed.is_empty()).then(|| {
        Warning::control_differs(format!(
            "The control, the same binary measured twice, differs from itself in {} of {} \
             intervals ({}). One interval in twenty misses by chance even when all is well; \
             read effects of that size with care.",
            missed.len(),
            control.len(),
            missed.join(", ")
        ))
    })
}

/// The significance level for adjusted p-values of dependence.
const SIGNIFICANCE: f64 = 0.01;

/// Finds points that changed during the experiment.
fn changed_points(source: &ObservationSource, tables: &[Dependence]) -> Vec<Ground> {
    // Machines may differ, and one of them may have measured most of a half.
    let of_one_machine = source.machines.names().len() < 2;
    let of_points = || {
        tables
            .iter()
            .flat_map(|of| of.points.iter().map(move |point| (of, point)))
    };
    let halves: Vec<f64> = of_points().map(|(_, point)| point.halves_p_value).collect();
    let found = of_points().zip(holm(&halves));
    let changed = found
        .filter(|(_, p)| *p < SIGNIFICANCE)
        .map(|((of, point), _)| {
            let text = format!(
                "Point {} of {} was {} {} in the second half of the blocks than in the first, against \
                 the other points: its figures are a mean of two states. Look for a cause specific to \
                 this server, and measure again.",
                point.point,
                ValueRow::new(&of.workload, of.meter),
                percent(of.meter.shown(point.halves).abs()),
                match (point.halves > 0.0, of.meter.is_shown_as_speed()) {
                    (true, true) => "faster",
                    (false, true) => "slower",
                    (true, false) => "cheaper",
                    (false, false) => "more expensive",
                },
            );
            (Warning::two_states(text), of, vec![point.point])
        });
    let alike = tables
        .iter()
        .filter(|of| of.lag1_p_value < SIGNIFICANCE && are_few(of.lag1, of.units));
    let following = alike.map(|of| {
        let text = format!(
            "Consecutive blocks of {} resemble each other so much that {} blocks tell less than {FEWEST_INDEPENDENT} \
             independent ones would: intervals are as wide as two blocks leave open, and unknown where 0 is in them. Look for \
             what changes slowly on this machine, or measure several times as many blocks.",
            ValueRow::new(&of.workload, of.meter),
            of.units,
        );
        (Warning::dependent_blocks(text), of, Vec::new())
    });
    changed
        .chain(following)
        .map(|(warning, of, points)| {
            let withheld = withheld(ValueRow::new(&of.workload, of.meter), points, DRIFT);
            (warning, of_one_machine.then_some(withheld))
        })
        .collect()
}

/// So many independent blocks at least must be worth as much as those measured.
const FEWEST_INDEPENDENT: f64 = 6.0;

/// Returns whether `units` with this lag-1 autocorrelation are worth fewer than [`FEWEST_INDEPENDENT`] independent ones.
fn are_few(lag1: f64, units: usize) -> bool {
    let correlation = between_rounds(lag1, units);
    units as f64 * (1.0 - correlation) / (1.0 + correlation) < FEWEST_INDEPENDENT
}

/// Finds lanes that disagree.
fn disagreeing_lanes(attribution: &Attribution) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let lanes = &attribution.noise.lanes;
    let p_values: Vec<f64> = lanes.iter().map(|of| of.p_value).collect();
    for (of, p) in lanes.iter().zip(holm(&p_values)) {
        if p < SIGNIFICANCE {
            let largest = of.lanes.iter().map(|lane| lane.figures.largest_difference);
            warnings.push(Warning::lanes_differ(format!(
                "Lanes disagree on {}: a point differs by {} from lane to lane, more than chance explains. \
                 Effects are the mean over lanes; `lanes = 1` in the preset measures on one.",
                ValueRow::new(&of.workload, of.meter),
                percent(largest.fold(0.0, f64::max))
            )));
        }
    }
    warnings
}

/// The significance level for adjusted p-values of differences between machines.
const DIFFERING: f64 = 0.05;

/// Finds tables on which machines differ.
fn differing_machines(attribution: &Attribution) -> Vec<Warning> {
    let machines = &attribution.noise.machines;
    let p_values: Vec<f64> = machines.iter().map(|of| of.p_value).collect();
    let found = machines.iter().zip(holm(&p_values));
    found
        .filter(|(of, p)| *p < DIFFERING && of.between_sd > 0.0)
        .map(|(of, _)| {
            Warning::machines_differ(format!(
                "Machines find different effects on {}: a point varies by {} from machine to machine, more than \
                 chance explains. {}",
                ValueRow::new(&of.workload, of.meter),
                percent(of.between_sd),
                if of.units {
                    "Intervals allow for it; `report` shows each machine."
                } else {
                    "Intervals hold on these machines only; six machines or more would give one for their class."
                }
            ))
        })
        .collect()
}

/// Names the excluded machines, with the total over all workloads with and without them.
fn excluded(attribution: &Attribution) -> Vec<Warning> {
    let noise = &attribution.noise;
    let meter = attribution.main_meter();
    let suite = |effect: &&Effect| Some(effect.meter) == meter && effect.workload == SUITE;
    let total = &noise.total_with_excluded;
    let with = total
        .iter()
        .find(suite)
        .or_else(|| total.iter().find(|effect| Some(effect.meter) == meter));
    let with = with.map_or_else(String::new, |total| {
        format!(
            " With all machines, the total would be {}.",
            percent(total.shown().estimate)
        )
    });
    let warning = |machine: &ExcludedMachine| {
        let why = match machine.reason {
            Symptom::Control(difference) => format!(
                "its control, the same binary measured twice, differs from itself by {}",
                percent(difference)
            ),
            Symptom::Spread(factor) => {
                format!("its values vary {factor:.1} times as much as those of the others")
            }
        };
        Warning::excluded_machine(format!(
            "Machine {} is left out ({} blocks): {why} on {}, more than chance explains.{with}",
            machine.machine.escape_debug(),
            machine.blocks,
            ValueRow::new(&machine.workload, machine.meter)
        ))
    };
    noise.excluded_machines.iter().map(warning).collect()
}

/// The most machines that a warning asks for.
const MOST_MACHINES: usize = 100_000;

/// Where machines are the units of intervals that have stayed too wide, tells how many would do.
fn few_machines(attribution: &Attribution) -> Option<Warning> {
    let rule = attribution.stopping.as_ref().filter(|rule| rule.ended)?;
    attribution.noise.machines.iter().find(|of| of.units)?;
    let is_open = |effect: &&Effect| {
        let mut open = rule.open.iter();
        effect.meter == rule.meter && open.any(|of| of.is(effect))
    };
    let wider = |a: &&Effect, b: &&Effect| {
        let error = |of: &Effect| of.standard_error.unwrap_or(0.0);
        error(a).total_cmp(&error(b))
    };
    let widest = attribution.effects().filter(is_open).max_by(wider)?;
    let needed = blocks_needed(
        widest.standard_error?,
        widest.units,
        rule.resolution,
        MOST_MACHINES,
    )?;
    let of = widest.units;
    (needed > of).then(|| {
        Warning::few_machines(format!(
            "Machines differ on {}, so that more blocks on these {of} do not reach the resolution asked for: \
             it needs {needed} machines.",
            ValueRow::new(&widest.workload, widest.meter)
        ))
    })
}

/// Tells of an end by an earlier version's rule, where this one's would have measured more.
fn earlier_rule(attribution: &Attribution) -> Option<Warning> {
    let rule = attribution.stopping.as_ref();
    let rule = rule.filter(|rule| rule.earlier_rule)?;
    let widest = rule.widest.map_or_else(String::new, |widest| {
        format!(
            " (widest interval ±{:.2} %, requested ±{:.2} %)",
            100.0 * widest,
            100.0 * rule.resolution
        )
    });
    Some(Warning::earlier_rule(format!(
        "{} ended this experiment by its own rule; today's would have measured more{widest}.",
        attribution.harness
    )))
}

/// Finds machines of the same name among those that are the units of intervals.
fn namesakes(source: &ObservationSource) -> Vec<Warning> {
    if source.machines.units(false).is_none() {
        return Vec::new();
    }
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for stored in source.machines.names().into_values() {
        *by_name.entry(MachineName::from(stored).name).or_default() += 1;
    }
    let several = by_name.into_iter().filter(|(_, machines)| *machines > 1);
    several
        .map(|(name, machines)| {
            Warning::namesakes(format!(
                "{machines} machines have the name {}: each file counts as a machine of its own. If they are one \
                 machine that measured several times, the intervals do not hold for other machines.",
                name.escape_debug()
            ))
        })
        .collect()
}

fn end_to_end(attribution: &Attribution) -> Option<Warning> {
    let meter = attribution.main_meter()?;
    let check = attribution.main_end_to_end(meter)?;
    let fails = check.consistent == Some(false);
    fails.then(|| {
        Warning::end_to_end(
            "The end-to-end check fails: what the series is worth where all points take turns is \
         not what it is worth measured directly against the release. One such check in \
         twenty fails by chance; else the points disturb each other, and the effects are \
         not those of a server alone.",
        )
    })
}

/// Residuals of `block + point` beyond this many robust standard deviations are outliers.
const OUTLIER_DEVIATIONS: f64 = 100.0;

/// The least deviation (10 %) of an outlier, however small the other residuals are.
const LEAST_OUTLIER: f64 = 0.1;

/// Returns whether no point's ratio to the block's first point ranges over more than half of
/// [`LEAST_OUTLIER`], in which case there cannot be an outlier.
fn is_calm(complete: &CompleteBlocks, points: usize) -> bool {
    let mut ranges = vec![(f64::INFINITY, f64::NEG_INFINITY); points];
    for (_, values) in complete.rows() {
        for (range, value) in ranges.iter_mut().zip(values) {
            let ratio = value - values[0];
            *range = (range.0.min(ratio), range.1.max(ratio));
        }
    }
    ranges
        .iter()
        .all(|(low, high)| high - low < LEAST_OUTLIER / 2.0)
}

/// Returns the blocks that contain an outlier.
fn outlier_blocks(complete: &CompleteBlocks, points: usize) -> Vec<u32> {
    if points < 2 || complete.len() < 4 || is_calm(complete, points) {
        return Vec::new();
    }
    let center = |values: &[f64]| median(&mut values.to_vec()).unwrap_or(0.0);
    let typical: Vec<f64> = (0..points)
        .map(|column| {
            let rows = complete.rows();
            let mut values: Vec<f64> = rows.map(|(_, row)| row[column] - center(row)).collect();
            median(&mut values).unwrap_or(0.0)
        })
        .collect();
    let farthest: Vec<(u32, f64)> = complete
        .rows()
        .map(|(block, values)| {
            let center = center(values);
            let far = values
                .iter()
                .zip(&typical)
                .map(|(value, typical)| (value - center - typical).abs())
                .fold(0.0, f64::max);
            (block, far)
        })
        .collect();
    let mut sizes: Vec<f64> = farthest.iter().map(|(_, far)| *far).collect();
    let usual = median(&mut sizes).unwrap_or(0.0);
    farthest
        .into_iter()
        .filter(|(_, far)| *far > LEAST_OUTLIER.max(OUTLIER_DEVIATIONS * usual))
        .map(|(block, _)| block)
        .collect()
}
