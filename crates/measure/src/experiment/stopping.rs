//! Decides when an experiment ends, and which parts of a block to measure until then.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::plan::{Block, BlockKind, direct_blocks};
use super::remaining::words;
use perfquilt_judge::attribution::{self, Progress, Stopping};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{Meter, PlannedBlocks, Supplement};
use perfquilt_model::point::Point;
use perfquilt_store::{ExperimentId, Store};

/// Stores the `planned` blocks and returns them. Marks as extended a finished experiment that gets more blocks, and an
/// unfinished one that gets fewer or ends with wider intervals: its estimates could be seen before that decision, and
/// its intervals must hold in spite of it. A budget of time that is given after the first block is such a decision, too.
pub(super) fn plan(
    store: &Store,
    id: ExperimentId,
    mut planned: Vec<PlannedBlocks>,
) -> Result<Vec<PlannedBlocks>> {
    let old = store.planned(id)?;
    if old.is_empty() {
        store.plan(id, &planned)?;
        return Ok(planned);
    }
    // The end of another plan is for today's rule to decide.
    for plan in &mut planned {
        plan.ended = known(&old, plan).is_some_and(|old| old.ended && plan.is_same_plan(old));
    }
    let (before, now) = (progress(store, id, &old)?, progress(store, id, &planned)?);
    let shortened: BTreeSet<bool> = planned
        .iter()
        .filter(|plan| known(&old, plan).is_some_and(|old| is_shorter(plan, old)))
        .map(|plan| plan.meter.is_timed())
        .collect();
    for plan in &mut planned {
        let Some(known) = known(&old, plan) else {
            continue;
        };
        let key = (plan.workload.clone(), plan.meter);
        let ended = |progress: &BTreeMap<(String, Meter), Progress>| {
            progress.get(&key).map(|progress| progress.ended)
        };
        plan.extended = known.extended
            || match ended(&before) {
                Some(true) => ended(&now) != Some(true),
                Some(false) => shortened.contains(&plan.meter.is_timed()),
                None => false,
            };
    }
    store.plan(id, &planned)?;
    Ok(planned)
}

/// Returns how far the measured workloads and meters of an experiment are if it is `planned` so.
fn progress(
    store: &Store,
    id: ExperimentId,
    planned: &[PlannedBlocks],
) -> Result<BTreeMap<(String, Meter), Progress>> {
    if planned.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (header, observations) = store.load(id)?;
    let supplement = Supplement {
        planned: planned.to_vec(),
        unexecuted: store.unexecuted(id)?,
        ..Supplement::default()
    };
    let margin = Meter::default_margin;
    let state = attribution::attribute_with(&header, &observations, &supplement, &margin)?;
    let progress = state.progress.into_iter();
    let measured = progress.filter(|row| row.done > 0);
    Ok(measured
        .map(|row| ((row.workload.clone(), row.meter), row))
        .collect())
}

/// Returns the plans of an experiment whose first timed blocks somebody may have seen.
pub(super) fn looked_at(store: &Store, id: ExperimentId) -> Result<Vec<PlannedBlocks>> {
    let mut plans = store.planned(id)?;
    plans.retain(|plan| plan.meter.is_timed());
    for plan in &plans {
        let done = store.blocks_done(id, &plan.workload, plan.meter, false)?;
        if !done.is_empty() {
            return Ok(plans);
        }
    }
    Ok(Vec::new())
}

/// Makes the blocks that an experiment had when its time was over those that were planned. When that is does not depend
/// on what was measured, so its intervals are those of an experiment that was planned so long; unless the time was
/// limited after a look and the plans `looked_at` would go on, which marks it as extended.
pub(super) fn shorten(
    store: &Store,
    id: ExperimentId,
    mut planned: Vec<PlannedBlocks>,
    looked_at: &[PlannedBlocks],
) -> Result<()> {
    for plan in planned.iter_mut().filter(|plan| plan.meter.is_timed()) {
        let done = store.blocks_done(id, &plan.workload, plan.meter, false)?;
        let windows = plan.windows.map_or(1, NonZeroU32::get);
        let rounds = done.iter().max().map_or(0, |last| last / windows + 1);
        plan.blocks = plan.blocks.min(rounds);
        plan.min_blocks = plan.min_blocks.map(|least| least.min(rounds));
    }
    let timed = |(_, meter): &(String, Meter)| meter.is_timed();
    let as_planned = progress(store, id, looked_at)?;
    let is_cut = as_planned.iter().any(|(key, row)| timed(key) && !row.ended);
    for plan in planned.iter_mut().filter(|plan| plan.meter.is_timed()) {
        plan.extended |= is_cut;
    }
    store.plan(id, &planned)
}

/// Marks as extended an experiment whose end its stopping rule decided without a workload that has now been measured.
pub(super) fn extend(store: &Store, id: ExperimentId, planned: &mut [PlannedBlocks]) -> Result<()> {
    for plan in planned.iter_mut().filter(|plan| plan.min_blocks.is_some()) {
        plan.extended = true;
    }
    store.plan(id, planned)
}

/// Gives an experiment so many timed blocks, a number that nothing but its pilot's duration decides.
pub(super) fn set_blocks(
    store: &Store,
    id: ExperimentId,
    planned: &mut [PlannedBlocks],
    blocks: u32,
) -> Result<()> {
    for plan in planned.iter_mut().filter(|plan| plan.meter.is_timed()) {
        plan.blocks = blocks;
        plan.min_blocks = plan.min_blocks.map(|least| least.min(blocks));
    }
    store.plan(id, planned)
}

/// Returns the one of the plans `old` with the workload and meter of `plan`.
fn known<'a>(old: &'a [PlannedBlocks], plan: &PlannedBlocks) -> Option<&'a PlannedBlocks> {
    old.iter()
        .find(|old| (&old.workload, old.meter) == (&plan.workload, plan.meter))
}

/// Returns whether `new` may end an experiment after fewer blocks than `old`.
fn is_shorter(new: &PlannedBlocks, old: &PlannedBlocks) -> bool {
    let least = |plan: &PlannedBlocks| plan.min_blocks.unwrap_or(plan.blocks);
    let resolutions = old.resolution.zip(new.resolution);
    new.blocks < old.blocks
        || least(new) < least(old)
        || resolutions.is_some_and(|(old, new)| new > old)
}

/// Returns whether the end-to-end block `number` is needed: always while the experiment goes on, and after its end
/// until there are as many as its length requires.
fn needs_direct(number: u32, stopping: &Stopping) -> bool {
    !stopping.ended || number < direct_blocks(stopping.blocks.div_ceil(stopping.windows))
}

/// Returns the part of the planned `block` that is needed; no workload if none of it is. `measured` returns the point that a
/// workload is measured on for another point.
pub fn still_needed(
    block: Block,
    stopping: &Stopping,
    measured: &dyn Fn(&str, Point) -> Point,
) -> Block {
    match block.kind {
        BlockKind::Counted => block,
        BlockKind::Timed => needed(block, stopping, measured),
        BlockKind::EndToEnd if needs_direct(block.number, stopping) => block,
        BlockKind::EndToEnd => Block {
            workloads: Vec::new(),
            ..block
        },
    }
}

/// Returns the part of `block` that is needed: workloads with an undecided effect, and the points of these
/// effects, beside the release and its control. `measured` returns the point that a workload is measured on for
/// another point.
pub(super) fn needed(
    mut block: Block,
    stopping: &Stopping,
    measured: &dyn Fn(&str, Point) -> Point,
) -> Block {
    block
        .workloads
        .retain(|workload| stopping.needs_workload(workload));
    if stopping.widest.is_none() || block.round < stopping.min_blocks {
        // Effects without figures are not among the open ones: another window has their points.
        return block;
    }
    let open = stopping.open.iter().flat_map(|open| {
        let workloads = block.workloads.iter();
        let workloads = workloads.filter(|workload| open.needs(workload));
        workloads.map(move |workload| (workload, open))
    });
    let pairs = open.map(|(workload, open)| {
        [
            measured(workload, open.point),
            measured(workload, open.against),
        ]
    });
    let here: BTreeSet<Point> = pairs
        .filter(|pair| pair.iter().all(|point| block.points.contains(point)))
        .flatten()
        .collect();
    block
        .points
        .retain(|point| point.is_unpatched() || here.contains(point));
    block
}

/// Formats the progress of the experiment: the block, the budget, the width reached and the target, the
/// remaining time.
pub(super) fn message(name: &str, stopping: Option<&Stopping>, coming: u64) -> String {
    let time = words(coming);
    let Some(stopping) = stopping else {
        return format!("{name}, {time} left");
    };
    let wanted = 100.0 * stopping.resolution;
    let left = stopping.max_blocks.saturating_sub(stopping.blocks);
    let widest = stopping.widest.filter(|width| width.is_finite());
    match (widest, stopping.expected) {
        (Some(widest), Some(expected)) if expected <= left => {
            format!(
                "{name}: ±{:.2} of ±{wanted:.2} %, {time} to go",
                100.0 * widest
            )
        }
        (Some(widest), Some(expected)) => format!(
            "{name}: ±{:.2} of ±{wanted:.2} % (needs {}), {time} left",
            100.0 * widest,
            stopping.blocks.saturating_add(expected)
        ),
        _ => format!("{name} for ±{wanted:.2} %, {time} at most"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_judge::attribution::{EffectKind, OpenEffect, SUITE};
    use perfquilt_model::observation::Meter;

    fn stopping(open: &[(&str, usize)]) -> Stopping {
        Stopping {
            meter: Meter::Time,
            resolution: 0.005,
            min_blocks: 10,
            max_blocks: 40,
            windows: 1,
            blocks: 12,
            widest: Some(0.0062),
            open: open
                .iter()
                .map(|&(workload, patch)| OpenEffect {
                    workload: workload.into(),
                    kind: EffectKind::InOrder,
                    point: Point::Step(patch),
                    against: Point::Step(patch - 1),
                    unexecuted: Vec::new(),
                })
                .collect(),
            expected: Some(7),
            ended: open.is_empty(),
            earlier_rule: false,
        }
    }

    fn block() -> Block {
        Block {
            number: 12,
            kind: BlockKind::Timed,
            points: [3, 0, 2, 1, 4]
                .map(Point::Step)
                .into_iter()
                .chain([Point::Control])
                .collect(),
            workloads: vec!["x".into(), "y".into()],
            seed: 1,
            layouts: BTreeMap::new(),
            again: false,
            round: 12,
            copies: 1,
        }
    }

    #[test]
    fn only_open_questions_are_measured() {
        let none = |_: &str, point: Point| point;
        let left = needed(block(), &stopping(&[("x", 3)]), &none);
        assert_eq!(left.workloads, ["x"]);
        // The points keep the order of the block.
        assert_eq!(
            left.points,
            [Point::Step(3), Point::BASE, Point::Step(2), Point::Control]
        );
        let left = needed(block(), &stopping(&[(SUITE, 1)]), &none);
        assert_eq!(left.workloads, ["x", "y"]);
        assert!(needed(block(), &stopping(&[]), &none).workloads.is_empty());
    }

    #[test]
    fn no_block_of_a_window_is_spared_before_every_window_has_its_least() {
        let none = |_: &str, point: Point| point;
        let state = |blocks: u32| Stopping {
            windows: 3,
            max_blocks: 3 * 40,
            blocks,
            ended: false,
            ..stopping(&[("x", 3)])
        };
        let of_window = |round: u32| Block { round, ..block() };
        // The effects of the first windows are known, and one of them is wide on a single workload.
        let left = needed(of_window(0), &state(12), &none);
        assert_eq!(left, of_window(0));
        // Every window has had its ten blocks.
        let left = needed(of_window(10), &state(3 * 10), &none);
        assert_eq!(left.workloads, ["x"]);
    }

    #[test]
    fn a_point_measured_through_another_keeps_that_one() {
        let identical = |_: &str, point: Point| match point {
            Point::Step(2) => Point::Step(1),
            point => point,
        };
        let left = needed(block(), &stopping(&[("x", 3)]), &identical);
        assert!(left.points.contains(&Point::Step(1)));
        assert!(!left.points.contains(&Point::Step(2)));
    }

    #[test]
    fn the_line_fits_beside_the_bar() {
        let mut state = stopping(&[("x", 3)]);
        let name = "block 113 of at most 200";
        let line = message(name, Some(&state), 125_000);
        assert_eq!(
            line,
            "block 113 of at most 200: ±0.62 of ±0.50 %, 2 min 5 s to go"
        );
        assert!(line.chars().count() <= 59);
        state.expected = Some(90);
        let line = message(name, Some(&state), 125_000);
        assert!(line.contains("(needs 102)"), "{line}");
        state.widest = None;
        assert!(message(name, Some(&state), 1).contains("for ±0.50 %"));
        assert_eq!(
            message("block 1 of 4", None, 9000),
            "block 1 of 4, 9 s left"
        );
    }
}
