//! Warnings about the validity of the figures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use statrs::distribution::{Binomial, DiscreteCDF};

use super::correlation::is_single_round;
use super::document::{
    Attribution, Effect, EffectKind, ExcludedMachine, ExclusionReason, SUITE, Stopping,
};
use super::tables::ObservationSource;
use super::unexecuted::Unexecuted;
use crate::stats::{BlockTable, CompleteBlocks, blocks_needed, holm, median};
use perfquilt_model::observation::{Conditions, MachineName, Meter, RowName};
use perfquilt_model::point::Point;

/// A condition that limits the validity of an experiment's figures. Its text states the condition and the
/// remedy.
#[derive(Debug, Clone, PartialEq)]
enum Warning<'a> {
    /// The control's interval excludes 0 in these of `of` intervals.
    Control { missed: Vec<String>, of: usize },
    /// Counts differ where no code of a patch is said to run.
    Contradicted { patch: usize, row: WarningRow<'a> },
    /// Lanes find different effects.
    Lanes { row: WarningRow<'a>, largest: f64 },
    /// All blocks may have run at one time, on different lanes.
    OneRound { row: WarningRow<'a>, blocks: usize },
    /// Machines find different effects.
    Differing {
        row: WarningRow<'a>,
        between: f64,
        units: bool,
    },
    /// A machine is left out; the total over all workloads with and without the excluded machines.
    Excluded {
        machine: &'a ExcludedMachine,
        with: Option<&'a Effect>,
    },
    /// More machines are needed for the resolution.
    Machines {
        row: WarningRow<'a>,
        needed: usize,
        of: usize,
    },
    /// An earlier version's stopping rule ended the experiment, and this one's would have measured more.
    EarlierRule {
        rule: &'a Stopping,
        harness: &'a str,
    },
    /// Machines that are the units of intervals have the same name, and may be one machine.
    Namesakes { name: &'a str, machines: usize },
    /// A point changed in the middle of the experiment while the others did not.
    Changed {
        row: WarningRow<'a>,
        point: Point,
        halves: f64,
    },
    /// The end-to-end check fails.
    EndToEnd,
    /// Effects compare points that share no block; `all` if every effect does.
    Unpaired { all: bool },
    /// Points lack values on a workload while other workloads have them.
    Lacking {
        row: WarningRow<'a>,
        points: Vec<Point>,
    },
    /// Operations of a workload lack values in blocks in which other rows of the workload have some, with the points.
    Operations {
        workload: &'a str,
        meter: Meter,
        lacking: Vec<(&'a str, Vec<Point>)>,
    },
    /// Blocks lack points; `stopped` if the stopping rule may be the reason, `across` if any effect compares
    /// points that share no block.
    Incomplete {
        row: WarningRow<'a>,
        blocks: usize,
        of: usize,
        stopped: bool,
        across: bool,
        /// The point that lacks more values than chance explains, and their number.
        mostly: Option<(Point, u64)>,
    },
    /// All values of a table are equal.
    Still { row: WarningRow<'a> },
    /// Blocks have outliers too large for noise.
    Outliers {
        row: WarningRow<'a>,
        blocks: Vec<u32>,
        of: usize,
    },
    /// The hypervisor gave the processors to others.
    Stolen(&'a Conditions),
    /// The processors waited.
    Idle(&'a Conditions),
    /// A processor quota stopped servers or clients.
    Throttled(&'a Conditions),
    /// Servers were interrupted by others on their processors.
    Preempted(&'a Conditions),
    /// Servers read their own pages from a disk.
    Swapped(&'a Conditions),
    /// The processors' frequency moved.
    Frequency(&'a Conditions, f64, f64),
}

/// The workload and meter of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WarningRow<'a> {
    workload: &'a str,
    meter: Meter,
}

impl fmt::Display for WarningRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.workload, self.meter)
    }
}

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

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Control { missed, of } => write!(
                f,
                "The control, the same binary measured twice, differs from itself in {} of {of} \
                 intervals ({}). One interval in twenty misses by chance even when all is well; \
                 read effects of that size with care.",
                missed.len(),
                missed.join(", ")
            ),
            Warning::Contradicted { patch, row } => write!(
                f,
                "No code that patch {patch} changes seemed to run, but {row} differs: its times may differ, too. \
                 `--unexecuted` measures them."
            ),
            Warning::Lanes { row, largest } => write!(
                f,
                "Lanes disagree on {row}: a point differs by {} from lane to lane, more than chance explains. \
                 Effects are the mean over lanes; `lanes = 1` in the preset measures on one.",
                percent(*largest)
            ),
            Warning::OneRound { row, blocks } => write!(
                f,
                "The {blocks} blocks of {row} ran at one time, on different lanes: nothing tells what disturbed all of \
                 them, so there is no interval. Measure twice as many blocks as there are lanes or more, or with `lanes = 1` in the preset."
            ),
            Warning::Differing {
                row,
                between,
                units,
            } => write!(
                f,
                "Machines find different effects on {row}: a point varies by {} from machine to machine, more than \
                 chance explains. {}",
                percent(*between),
                if *units {
                    "Intervals allow for it; `report` shows each machine."
                } else {
                    "Intervals hold on these machines only; six machines or more would give one for their class."
                }
            ),
            Warning::Excluded { machine, with } => {
                write!(
                    f,
                    "Machine {} is left out ({} blocks): ",
                    machine.machine.escape_debug(),
                    machine.blocks
                )?;
                match machine.reason {
                    ExclusionReason::Control(difference) => write!(
                        f,
                        "its control, the same binary measured twice, differs from itself by {}",
                        percent(difference)
                    )?,
                    ExclusionReason::Spread(factor) => {
                        write!(
                            f,
                            "its values vary {factor:.1} times as much as those of the others"
                        )?;
                    }
                }
                write!(
                    f,
                    " on {} ({}), more than chance explains.",
                    machine.workload, machine.meter
                )?;
                match with {
                    Some(total) => write!(
                        f,
                        " With all machines, the total would be {}.",
                        percent(total.shown().estimate)
                    ),
                    None => Ok(()),
                }
            }
            Warning::Machines { row, needed, of } => write!(
                f,
                "Machines differ on {row}, so that more blocks on these {of} do not reach the resolution asked for: \
                 it needs {needed} machines."
            ),
            Warning::EarlierRule { rule, harness } => {
                write!(
                    f,
                    "{harness} ended this experiment by its own rule; today's would have measured more"
                )?;
                match rule.widest {
                    Some(widest) => write!(
                        f,
                        " (widest interval ±{:.2} %, requested ±{:.2} %).",
                        100.0 * widest,
                        100.0 * rule.resolution
                    ),
                    None => f.write_str("."),
                }
            }
            Warning::Namesakes { name, machines } => write!(
                f,
                "{machines} machines have the name {}: each file counts as a machine of its own. If they are one \
                 machine that measured several times, the intervals do not hold for other machines.",
                name.escape_debug()
            ),
            Warning::Changed { row, point, halves } => write!(
                f,
                "Point {point} of {row} was {} {} in the second half of the blocks than in the first, against \
                 the other points: its figures are a mean of two states. Look for a cause specific to \
                 this server, and measure again.",
                percent(row.meter.shown(*halves).abs()),
                match (*halves > 0.0, row.meter.is_shown_as_speed()) {
                    (true, true) => "faster",
                    (false, true) => "slower",
                    (true, false) => "cheaper",
                    (false, false) => "more expensive",
                },
            ),
            Warning::EndToEnd => write!(
                f,
                "The end-to-end check fails: what the series is worth where all points take turns is \
                 not what it is worth measured directly against the release. One such check in \
                 twenty fails by chance; else the points disturb each other, and the effects are \
                 not those of a server alone."
            ),
            Warning::Unpaired { all: true } => write!(
                f,
                "Points were measured in runs of their own, not in turns: whatever changed on the \
                 machine between the runs counts as an effect, and no interval knows of it. Measure \
                 all points in each block."
            ),
            Warning::Unpaired { all: false } => write!(
                f,
                "Some points share no block with those they are compared with: whatever changed on the \
                 machine between their blocks counts as an effect, and no interval knows of it. Measure \
                 all points in each block."
            ),
            Warning::Lacking { row, points } => write!(
                f,
                "{row} has no value of {}, which other workloads have: nothing is known of {} over all \
                 workloads.",
                list(points),
                if points.len() > 1 { "them" } else { "it" },
            ),
            Warning::Operations {
                workload,
                meter,
                lacking,
            } => {
                const SHOWN: usize = 3;
                let shown = lacking.iter().take(SHOWN);
                let shown: Vec<String> = shown
                    .map(|(operation, points)| format!("{operation} on {}", list(points)))
                    .collect();
                let more = match lacking.len().saturating_sub(SHOWN) {
                    0 => String::new(),
                    more => format!(" and {more} more operations"),
                };
                write!(
                    f,
                    "{workload} ({meter}) has no value of {}{more} in some blocks in which it has others: less was run there, \
                     or its output was not understood, so {workload} as a whole may not compare the same work.",
                    shown.join(", ")
                )
            }
            Warning::Incomplete {
                row,
                blocks,
                of,
                stopped,
                across,
                mostly,
            } => {
                let why = if *stopped {
                    " (left out when its effects were known well enough, or failed)"
                } else {
                    ""
                };
                let else_all = if *across {
                    ", or all of either where none has both"
                } else {
                    ""
                };
                write!(
                    f,
                    "{blocks} of {of} blocks of {row} lack a point{why}; every effect uses the \
                     blocks that have both its points{else_all}, so effects need not add up exactly."
                )?;
                let Some((point, missing)) = mostly else {
                    return Ok(());
                };
                write!(
                    f,
                    " Point {point} lacks a value in {missing} of them, more than chance explains: if it fails \
                     when it is slow, its effect looks better than it is."
                )
            }
            Warning::Still { row } => write!(
                f,
                "All blocks of {row} agree to the last digit: check that these are measured values."
            ),
            Warning::Outliers { row, blocks, of } => write!(
                f,
                "{} of {of} blocks of {row} have a value far from the others (block {}{}): a clock \
                 that jumped, or another unit? They are used, and make the intervals wide.",
                blocks.len(),
                blocks.first().copied().unwrap_or_default(),
                if blocks.len() > 1 { " first" } else { "" },
            ),
            Warning::Stolen(of) => write!(
                f,
                "The hypervisor gave {} of the processor's time to other machines while {} was \
                 measured ({} in the worst block). The intervals contain that; a quieter hour or a \
                 machine of its own makes them narrower.",
                percent(of.steal.mean),
                of.workload,
                percent(of.steal.worst)
            ),
            Warning::Throttled(of) => write!(
                f,
                "The kernel stopped servers or clients for {} of the time while {} was measured ({} in the worst block), \
                 because the processor quota of their control group was used up. Remove the quota (`cpu.max`, `docker run \
                 --cpus`), or give whole processors instead (`cpuset`).",
                percent(of.throttled.mean),
                of.workload,
                percent(of.throttled.worst)
            ),
            Warning::Idle(of) => write!(
                f,
                "The processor had nothing to do for {} of the time while {} was measured: servers \
                 or clients wait for something else, and effects on time are diluted by that. Data \
                 in memory and as many client threads as processors make a workload bound by the \
                 processor.",
                percent(of.idle.mean),
                of.workload
            ),
            Warning::Preempted(of) => write!(
                f,
                "Servers were taken off their processor {:.0} times a second while {} was \
                 measured. Stop what else runs there, or let perfquilt use real-time scheduling \
                 (as root, or with CAP_SYS_NICE).",
                of.preempted, of.workload
            ),
            Warning::Swapped(of) => write!(
                f,
                "Servers had to read {} of their own pages from a disk while {} was measured: the \
                 machine has too little memory. Measure fewer points at once (`--point`), or \
                 smaller tables.",
                of.major_faults, of.workload
            ),
            Warning::Frequency(of, low, high) => write!(
                f,
                "The processor ran at {low:.0} to {high:.0} MHz while {} was measured. Points take \
                 turns, so that it hits all alike; a fixed frequency (`cpupower frequency-set`) \
                 makes the intervals narrower.",
                of.workload
            ),
        }
    }
}

/// `point 2`, `points 2, 3`, `points 2, 3, 4, 5 and 7 more`.
fn list(points: &[Point]) -> String {
    const SHOWN: usize = 4;
    let shown = points.iter().take(SHOWN);
    let shown: Vec<String> = shown.map(Point::to_string).collect();
    let noun = if points.len() > 1 { "points" } else { "point" };
    match points.len().saturating_sub(SHOWN) {
        0 => format!("{noun} {}", shown.join(", ")),
        more => format!("{noun} {} and {more} more", shown.join(", ")),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Returns the warnings as text, one or two sentences each.
/// `windowed` has the meters whose blocks have only some points each by plan.
pub(super) fn warnings(
    attribution: &Attribution,
    source: &ObservationSource,
    windowed: &BTreeSet<Meter>,
    unexecuted: &Unexecuted,
) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(control(attribution));
    warnings.extend(dependent(attribution));
    warnings.extend(end_to_end(attribution));
    warnings.extend(excluded(attribution));
    warnings.extend(differing_machines(attribution));
    warnings.extend(few_machines(attribution));
    warnings.extend(namesakes(source));
    warnings.extend(earlier_rule(attribution));
    let mut judged = attribution.effects().filter(|effect| effect.is_measured());
    let all = judged.all(|effect| effect.unpaired);
    let unpaired = attribution.is_unpaired();
    warnings.extend(unpaired.then_some(Warning::Unpaired { all }));
    warnings.extend(lacking(attribution, source, unexecuted));
    warnings.extend(contradicted(attribution));
    warnings.extend(lacking_operations(attribution, source));
    let measured = attribution.effects().filter(|effect| effect.is_measured());
    let rows: BTreeSet<(Meter, &str, bool)> = measured
        .map(|effect| (effect.meter, effect.workload.as_str(), effect.unpaired))
        .collect();
    for (meter, workload, table) in source.each() {
        if attribution.workloads.binary_search(workload).is_err() {
            continue;
        }
        let row = WarningRow { workload, meter };
        let blocks = if windowed.contains(&meter) {
            0
        } else {
            table.incomplete_blocks()
        };
        let of_row = |unpaired| rows.contains(&(meter, workload.as_str(), unpaired));
        let across = of_row(true);
        if blocks > 0 && (!across || of_row(false)) {
            let rule = attribution.stopping.as_ref();
            let stopped = rule.is_some_and(|rule| rule.meter == meter);
            warnings.push(Warning::Incomplete {
                row,
                blocks,
                of: table.blocks(),
                stopped,
                across,
                mostly: mostly_missing(table).filter(|_| !stopped && !across),
            });
        }
        if meter.is_timed() && is_single_round(source, table) {
            let blocks = table.blocks();
            warnings.push(Warning::OneRound { row, blocks });
        }
        let window = table.largest_window();
        let complete = window.complete();
        let still = complete
            .spread()
            .is_some_and(|s| s.sd < 1e-12 && s.blocks > 2);
        if still && meter != Meter::Instructions {
            warnings.push(Warning::Still { row });
        }
        let outliers = outlier_blocks(&complete, window.points().len());
        if !outliers.is_empty() {
            warnings.push(Warning::Outliers {
                row,
                blocks: outliers,
                of: table.blocks(),
            });
        }
    }
    warnings.extend(attribution.noise.conditions.iter().flat_map(disturbed));
    warnings.iter().map(Warning::to_string).collect()
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
fn contradicted(attribution: &Attribution) -> Vec<Warning<'_>> {
    let mut warnings = Vec::new();
    for patch in &attribution.patches {
        let in_order = |effect: &&Effect| effect.kind == EffectKind::InOrder;
        let effects = || patch.effects.iter().filter(in_order);
        let untimed: BTreeSet<&str> = effects()
            .filter(|effect| effect.meter.is_timed() && !effect.executed)
            .map(|effect| effect.workload.as_str())
            .collect();
        let counted = effects().filter(|effect| !effect.meter.is_timed() && effect.executed);
        let differs = |effect: &&Effect| {
            effect.workload != SUITE && effect.leaves_out_zero() && !effect.equivalent
        };
        for effect in counted.filter(differs) {
            if untimed.contains(effect.workload.as_str()) {
                let row = WarningRow {
                    workload: &effect.workload,
                    meter: effect.meter,
                };
                warnings.push(Warning::Contradicted {
                    patch: patch.index,
                    row,
                });
            }
        }
    }
    warnings
}

/// Finds the tables of a meter that lack points which other tables have.
fn lacking<'a>(
    attribution: &Attribution,
    source: &'a ObservationSource,
    unexecuted: &Unexecuted,
) -> Vec<Warning<'a>> {
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
                let row = WarningRow { workload, meter };
                warnings.push(Warning::Lacking { row, points });
            }
        }
    }
    warnings
}

/// Blocks with a value, by point.
type BlockCounts = BTreeMap<Point, u64>;

/// Finds operations that lack values in blocks in which other rows of their workload have some.
fn lacking_operations<'a>(
    attribution: &Attribution,
    source: &'a ObservationSource,
) -> Vec<Warning<'a>> {
    let mut warnings = Vec::new();
    for (&meter, tables) in &source.blocks {
        let mut by_workload: BTreeMap<&str, Vec<(Option<&str>, BlockCounts)>> = BTreeMap::new();
        for (name, table) in tables {
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
            most.retain(|point, _| !attribution.failed.contains_key(point));
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
            if !lacking.is_empty() {
                warnings.push(Warning::Operations {
                    workload,
                    meter,
                    lacking,
                });
            }
        }
    }
    warnings
}

fn disturbed(of: &Conditions) -> impl Iterator<Item = Warning<'_>> {
    let throttled = of.throttled.worst > THROTTLED;
    let frequency = of.mhz.filter(|(low, high)| *high > FREQUENCY * low);
    [
        (of.steal.mean > STOLEN).then_some(Warning::Stolen(of)),
        throttled.then_some(Warning::Throttled(of)),
        // Throttled processors are idle, too.
        (of.idle.mean > IDLE && !throttled).then_some(Warning::Idle(of)),
        (of.preempted > PREEMPTED).then_some(Warning::Preempted(of)),
        // Reading the program's own file accounts for about one page per block, in a fraction of a
        // millisecond.
        (of.major_faults > of.blocks as u64).then_some(Warning::Swapped(of)),
        frequency.map(|(low, high)| Warning::Frequency(of, low, high)),
    ]
    .into_iter()
    .flatten()
}

fn control(attribution: &Attribution) -> Option<Warning<'_>> {
    let control = &attribution.noise.control;
    let missed: Vec<String> = control
        .iter()
        .filter(|control| control.contains_zero == Some(false))
        .map(|control| match control.effect.workload.as_str() {
            SUITE => format!("{} over all workloads", control.effect.meter),
            workload => format!("{} of {workload}", control.effect.meter),
        })
        .collect();
    (!missed.is_empty()).then_some(Warning::Control {
        missed,
        of: control.len(),
    })
}

/// The significance level for adjusted p-values of dependence.
const SIGNIFICANCE: f64 = 0.01;

/// Finds points that changed during the experiment, and lanes that disagree.
fn dependent(attribution: &Attribution) -> Vec<Warning<'_>> {
    let tables = &attribution.noise.dependence;
    let of_points = || {
        tables
            .iter()
            .flat_map(|of| of.points.iter().map(move |point| (of, point)))
    };
    let halves: Vec<f64> = of_points().map(|(_, point)| point.halves_p_value).collect();
    let mut warnings = Vec::new();
    for ((of, point), p) in of_points().zip(holm(&halves)) {
        if p < SIGNIFICANCE {
            let row = WarningRow {
                workload: &of.workload,
                meter: of.meter,
            };
            warnings.push(Warning::Changed {
                row,
                point: point.point,
                halves: point.halves,
            });
        }
    }
    let lanes = &attribution.noise.lanes;
    let p_values: Vec<f64> = lanes.iter().map(|of| of.p_value).collect();
    for (of, p) in lanes.iter().zip(holm(&p_values)) {
        if p < SIGNIFICANCE {
            let row = WarningRow {
                workload: &of.workload,
                meter: of.meter,
            };
            let largest = of.lanes.iter().map(|lane| lane.figures.largest_difference);
            let largest = largest.fold(0.0, f64::max);
            warnings.push(Warning::Lanes { row, largest });
        }
    }
    warnings
}

/// The significance level for adjusted p-values of differences between machines.
const DIFFERING: f64 = 0.05;

/// Finds tables on which machines differ.
fn differing_machines(attribution: &Attribution) -> Vec<Warning<'_>> {
    let machines = &attribution.noise.machines;
    let p_values: Vec<f64> = machines.iter().map(|of| of.p_value).collect();
    let found = machines.iter().zip(holm(&p_values));
    found
        .filter(|(of, p)| *p < DIFFERING && of.between_sd > 0.0)
        .map(|(of, _)| Warning::Differing {
            row: WarningRow {
                workload: &of.workload,
                meter: of.meter,
            },
            between: of.between_sd,
            units: of.units,
        })
        .collect()
}

/// The excluded machines.
fn excluded(attribution: &Attribution) -> Vec<Warning<'_>> {
    let noise = &attribution.noise;
    let meter = attribution.main_meter();
    let suite = |effect: &&Effect| Some(effect.meter) == meter && effect.workload == SUITE;
    let total = &noise.total_with_excluded;
    let with = total
        .iter()
        .find(suite)
        .or_else(|| total.iter().find(|effect| Some(effect.meter) == meter));
    let each = noise.excluded_machines.iter();
    each.map(|machine| Warning::Excluded { machine, with })
        .collect()
}

/// The most machines that a warning asks for.
const MOST_MACHINES: usize = 100_000;

/// Where machines are the units of intervals that have stayed too wide, tells how many would do.
fn few_machines(attribution: &Attribution) -> Option<Warning<'_>> {
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
    let row = WarningRow {
        workload: &widest.workload,
        meter: widest.meter,
    };
    let of = widest.units;
    (needed > of).then_some(Warning::Machines { row, needed, of })
}

/// The end by an earlier version's rule.
fn earlier_rule(attribution: &Attribution) -> Option<Warning<'_>> {
    let rule = attribution.stopping.as_ref();
    let rule = rule.filter(|rule| rule.earlier_rule)?;
    let harness = &attribution.harness;
    Some(Warning::EarlierRule { rule, harness })
}

/// Finds machines of the same name among those that are the units of intervals.
fn namesakes(source: &ObservationSource) -> Vec<Warning<'_>> {
    if source.machines.units(false).is_none() {
        return Vec::new();
    }
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for stored in source.machines.names().into_values() {
        *by_name.entry(MachineName::from(stored).name).or_default() += 1;
    }
    let several = by_name.into_iter().filter(|(_, machines)| *machines > 1);
    several
        .map(|(name, machines)| Warning::Namesakes { name, machines })
        .collect()
}

fn end_to_end(attribution: &Attribution) -> Option<Warning<'_>> {
    let meter = attribution.main_meter()?;
    let check = attribution.main_end_to_end(meter)?;
    (check.consistent == Some(false)).then_some(Warning::EndToEnd)
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
