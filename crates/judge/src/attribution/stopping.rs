//! Evaluation of the stopping rule.

use std::num::NonZeroU32;

use super::document::{
    Effect, EffectKind, MachineNoise, OpenEffect, PatchEffects, SUITE, Stopping,
};
use super::effects::Effects;
use crate::stats::{BlockTable, FORESEEABLE, blocks_needed_on_machines};
use perfquilt_model::observation::PlannedBlocks;

/// Machines are expected to go on differing if the p-value of their differences is below this.
const HETEROGENEOUS: f64 = 0.05;

impl Stopping {
    /// Evaluates the stopping `rule` on the effects of all patches and on the total, as they are so far; `None` without
    /// observations on its meter. Workloads that failed, and effects over all workloads with them, are waited for no longer.
    pub(super) fn of(
        effects: &Effects<'_>,
        rule: &PlannedBlocks,
        patches: &[PatchEffects],
        total: &[Effect],
    ) -> Option<Self> {
        let resolution = rule.resolution?;
        let min_blocks = rule.min_blocks.unwrap_or(2).max(2);
        let by_workload = effects.completed[0].blocks.get(&rule.meter)?;
        let header = effects.header;
        let failed = |workload: &str| header.has_failed(workload, rule.meter);
        let mut failures = header.failed_workloads.iter();
        let has_suite = !failures.any(|of| of.meters.contains(&rule.meter));
        let is_open = |workload: &str| match workload {
            SUITE => has_suite,
            workload => !failed(workload),
        };
        let judged = patches
            .iter()
            .flat_map(|patch| &patch.effects)
            .chain(total)
            .filter(|effect| effect.meter == rule.meter && effect.is_measured())
            .filter(|effect| effect.kind != EffectKind::Interaction && is_open(&effect.workload))
            // This experiment does not measure effects that it reuses.
            .filter(|effect| effect.from().is_none());
        let mut open = Vec::new();
        let mut used_up_windows = 0;
        let mut widest: Option<f64> = None;
        let mut expected = Some(0);
        for effect in judged {
            let width = effect
                .basis
                .map_or(f64::INFINITY, |basis| basis.ended_half_width());
            widest = Some(widest.map_or(width, |widest| widest.max(width)));
            if width <= resolution && effect.blocks >= min_blocks as usize {
                continue;
            }
            // Blocks that share layouts form one unit; further blocks are expected to do so at the same rate.
            let blocks_a_unit = effect.blocks as f64 / effect.units.max(1) as f64;
            let needed = effect
                .basis
                .and_then(|basis| basis.blocks_needed(resolution, FORESEEABLE));
            let needed = needed.map(|needed| {
                ((needed as f64 * blocks_a_unit).ceil() as usize)
                    .max(min_blocks as usize)
                    .saturating_sub(effect.blocks)
            });
            expected = expected.zip(needed).map(|(a, b): (usize, _)| a.max(b));
            // The blocks of its window are used up before those of all windows are.
            if effect.blocks >= rule.blocks as usize {
                used_up_windows += 1;
            }
            open.push(OpenEffect {
                workload: effect.workload.clone(),
                kind: effect.kind,
                point: effect.point,
                against: effect.against,
                unexecuted: if effect.workload == SUITE {
                    let same = |workload: &&String| {
                        let program = |point| effects.unexecuted.program(workload, point);
                        program(effect.point) == program(effect.against)
                    };
                    by_workload.keys().filter(same).cloned().collect()
                } else {
                    Vec::new()
                },
            });
        }
        let windows = rule.windows.map_or(1, NonZeroU32::get);
        let last = rule.all_blocks().checked_sub(1);
        let has_all = |table: &BlockTable| table.last() >= last;
        let used_up = |workload: &str| match workload {
            SUITE => by_workload.values().all(has_all),
            workload => by_workload.get(workload).is_some_and(has_all),
        };
        let blocks = by_workload
            .values()
            .filter_map(BlockTable::last)
            .max()
            .map_or(0, |block| block + 1);
        let ended = match widest {
            Some(_) => {
                used_up_windows == open.len() || open.iter().all(|open| used_up(&open.workload))
            }
            None => {
                // Without anything to measure, no block will come.
                let mut left = by_workload.iter().filter(|(name, _)| !failed(name));
                let nothing = left.clone().all(|(name, _)| effects.untimed.contains(name));
                nothing || left.all(|(_, table)| has_all(table))
            }
        };
        open.sort();
        open.dedup();
        let mut stopping = Stopping {
            meter: rule.meter,
            resolution,
            min_blocks,
            max_blocks: rule.all_blocks(),
            windows,
            blocks,
            widest: widest.filter(|widest| widest.is_finite()),
            open,
            expected: widest
                .and(expected)
                .map(|n| u32::try_from(n).unwrap_or(u32::MAX).saturating_mul(windows)),
            ended,
            earlier_rule: false,
        };
        // The effects that are known need not be those of all patches yet.
        let missing = stopping.missing_blocks();
        if widest.is_some() && missing > 0 {
            stopping.ended = false;
            stopping.expected = stopping.expected.map(|expected| expected.max(missing));
        }
        stopping.earlier_rule = rule.ended && !stopping.ended;
        stopping.ended |= rule.ended;
        Some(stopping)
    }

    /// Returns the same state with the blocks that are expected on `machines`, where these are the units: more blocks are
    /// no more units.
    pub(super) fn on_machines(
        mut self,
        machines: &[MachineNoise],
        patches: &[PatchEffects],
        total: &[Effect],
    ) -> Self {
        let by_workload: Vec<&MachineNoise> = machines
            .iter()
            .filter(|of| of.units && of.meter == self.meter)
            .collect();
        if by_workload.is_empty() || self.widest.is_none() {
            return self;
        }
        let between = |workload: &str| {
            let of = by_workload
                .iter()
                .filter(|of| workload == SUITE || of.workload == workload);
            // A mean over workloads, each with shifts of its own.
            let count = of.clone().count().max(1) as f64;
            // Differences that chance explains are not those of machines.
            let shown = of.filter(|of| of.p_value < HETEROGENEOUS);
            // The difference of two points.
            (2.0 * shown.map(|of| of.between_sd.powi(2)).sum::<f64>()).sqrt() / count
        };
        let effects: Vec<&Effect> = patches
            .iter()
            .flat_map(|patch| &patch.effects)
            .chain(total)
            .filter(|effect| effect.meter == self.meter)
            .collect();
        let needed = self.open.iter().map(|open| {
            let effect = effects.iter().find(|effect| open.is(effect))?;
            let needed = blocks_needed_on_machines(
                effect.standard_error?,
                effect.units,
                between(&effect.workload),
                effect.blocks,
                self.resolution,
            )?;
            let least = needed.max(self.min_blocks as usize);
            u32::try_from(least.saturating_sub(effect.blocks)).ok()
        });
        let needed: Option<Vec<u32>> = needed.collect();
        self.expected = needed.map(|needed| {
            let most = needed.into_iter().max().unwrap_or(0);
            most.saturating_mul(self.windows)
        });
        self
    }
}

impl OpenEffect {
    /// Returns whether this is `effect`, of the meter of the stopping rule.
    pub(super) fn is(&self, effect: &Effect) -> bool {
        (&self.workload, self.kind, self.point, self.against)
            == (&effect.workload, effect.kind, effect.point, effect.against)
    }
}
