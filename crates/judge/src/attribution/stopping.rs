//! When an experiment that stops by itself has measured enough.

use std::collections::BTreeSet;

use serde::Serialize;

use super::collect::Tables;
use super::document::{Effect, Kind, PatchEffects, SUITE};
use crate::stats::{BlockTable, blocks_needed, half_width};
use perfquilt_model::observation::{Meter, Planned};
use perfquilt_model::point::Point;

/// Where an experiment stands that ends when its intervals are narrow enough.
///
/// It looks at the widths of intervals and never at estimates, so that the estimates are as good as
/// those of a fixed number of blocks (`stats::widening`). Everything in it follows from stored
/// observations: an experiment that was interrupted decides as if it had not been.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stopping {
    /// The meter whose intervals are looked at.
    pub meter: Meter,
    /// The half-width wanted of every patch's interval and of the total's, as a fraction of speed.
    pub resolution: f64,
    /// The least blocks behind an interval that counts as narrow enough.
    pub min_blocks: u32,
    /// The most blocks there may be.
    pub max_blocks: u32,
    /// Blocks begun so far.
    pub blocks: u32,
    /// The widest half-width so far; `null` with a single block.
    pub widest: Option<f64>,
    /// The effects whose interval is too wide still.
    pub open: Vec<Open>,
    /// Further blocks that are expected to be needed, if there were no limit to them; `null` before
    /// the spread can be estimated.
    pub expected: Option<u32>,
    /// Whether no block will follow: nothing is open, or the blocks are used up.
    pub ended: bool,
}

/// An effect whose interval is too wide still.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Open {
    /// The workload, or [`SUITE`].
    pub workload: String,
    /// Which points are compared.
    pub kind: Kind,
    /// The point whose speed is told.
    pub point: Point,
    /// The point it is compared with.
    pub against: Point,
}

/// More blocks than anybody measures; where a forecast ends.
const FORESEEABLE: usize = 1_000_000;

impl Stopping {
    /// The state of the rule that `planned` gives to the experiment, if it gives one. `effects` are
    /// those of all patches and the total, `tables` the observations.
    pub(super) fn of(
        planned: &[Planned],
        patches: &[PatchEffects],
        total: &[Effect],
        tables: &Tables,
    ) -> Option<Self> {
        let (rule, resolution) = planned
            .iter()
            .find_map(|plan| Some((plan, plan.resolution?)))?;
        let min_blocks = rule.min_blocks.unwrap_or(2).max(2);
        let by_workload = tables.get(&rule.meter)?;
        let judged = patches
            .iter()
            .flat_map(|patch| &patch.effects)
            .chain(total)
            .filter(|effect| effect.meter == rule.meter && !effect.identical)
            .filter(|effect| effect.kind != Kind::Interaction)
            // What is known from an earlier experiment is not measured in this one.
            .filter(|effect| effect.from().is_none());
        let mut open = Vec::new();
        let mut widest: Option<f64> = None;
        let mut expected = Some(0);
        for effect in judged {
            let error = effect.standard_error.unwrap_or(f64::INFINITY);
            let width = half_width(error, effect.units);
            widest = Some(widest.map_or(width, |widest| widest.max(width)));
            if width <= resolution && effect.blocks >= min_blocks as usize {
                continue;
            }
            // Blocks that share layouts are one unit, and will go on to be.
            let blocks_a_unit = effect.blocks as f64 / effect.units.max(1) as f64;
            let needed =
                blocks_needed(error, effect.units, resolution, FORESEEABLE).map(|needed| {
                    ((needed as f64 * blocks_a_unit).ceil() as usize)
                        .max(min_blocks as usize)
                        .saturating_sub(effect.blocks)
                });
            expected = expected.zip(needed).map(|(a, b): (usize, _)| a.max(b));
            open.push(Open {
                workload: effect.workload.clone(),
                kind: effect.kind,
                point: effect.point,
                against: effect.against,
            });
        }
        open.sort();
        open.dedup();
        let last = rule.blocks.checked_sub(1);
        let used_up = |workload: &str| match workload {
            SUITE => by_workload.values().all(|table| table.last() >= last),
            workload => by_workload
                .get(workload)
                .is_some_and(|table| table.last() >= last),
        };
        let blocks = by_workload
            .values()
            .filter_map(BlockTable::last)
            .max()
            .map_or(0, |block| block + 1);
        let ended = match widest {
            Some(_) => open.iter().all(|open| used_up(&open.workload)),
            None => by_workload.values().all(|table| table.last() >= last),
        };
        Some(Stopping {
            meter: rule.meter,
            resolution,
            min_blocks,
            max_blocks: rule.blocks,
            blocks,
            widest: widest.filter(|widest| widest.is_finite()),
            open,
            expected: match widest {
                Some(_) => expected.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
                None => None,
            },
            ended,
        })
    }

    /// Whether a further block would need `workload`.
    pub fn needs_workload(&self, workload: &str) -> bool {
        // Before the first figures all is open. The suite takes blocks that have every workload.
        self.widest.is_none() && !self.ended
            || self
                .open
                .iter()
                .any(|open| open.workload == workload || open.workload == SUITE)
    }

    /// The points that a further block would need, the release and its control left aside; `None` when
    /// that is all of them.
    pub fn needed_points(&self) -> Option<BTreeSet<Point>> {
        let known = !self.open.is_empty();
        known.then(|| {
            let points = self.open.iter().flat_map(|open| [open.point, open.against]);
            points.collect()
        })
    }
}
