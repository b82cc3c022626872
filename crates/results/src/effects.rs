//! Effects of patches on the old and the new release, if both were measured.

use crate::decisions::latest;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::{self, Attribution, Effect, EffectKind};
use perfquilt_model::decision::DecisionKind;
use perfquilt_model::error::Result;
use perfquilt_model::matrix::{Matrix, MatrixCell};
use perfquilt_model::observation::Meter;
use perfquilt_model::rebase::{EffectChange, MeasuredEffect, PatchRemoval, Report};
use perfquilt_store::Store;

/// Adds the stored effects of each patch on both releases to a report, and the patches that no longer help to
/// its drop candidates.
pub fn add_effects(ws: &Workspace, report: &mut Report) -> Result<()> {
    if !ws.results().is_file() {
        return Ok(());
    }
    let store = Store::open_existing(&ws.results())?;
    let names: Vec<String> = report
        .patches
        .iter()
        .map(|patch| patch.name.clone())
        .collect();
    let Some(old) = latest(ws, &store, &report.from, &names)? else {
        return Ok(());
    };
    let new = latest(ws, &store, &report.to, &names)?;
    let changes = attribution::changes(&old, new.as_ref(), names.iter().map(String::as_str));
    for patch in &mut report.patches {
        let mut remove = |reason| {
            report.drops.push(PatchRemoval {
                index: patch.index,
                name: patch.name.clone(),
                reason,
            });
        };
        let found = changes.iter().find(|change| change.name == patch.name);
        let change = found.map(|change| effect_change(&old, new.as_ref(), change));
        if let Some((found, change)) = found.zip(change.as_ref())
            && change.no_longer_helps
            && patch.status.applies()
        {
            let meter = found.old.meter;
            remove(format!(
                "no longer helps: {} was {}, is {}",
                change.workload,
                percent(meter, change.old.estimate),
                change.new.as_ref().map_or_else(String::new, |new| format!(
                    "{} ({})",
                    percent(meter, new.estimate),
                    new.verdict
                ))
            ));
        }
        let decided = old.patches.iter().find(|of| of.name == patch.name);
        let decided = decided.and_then(|of| of.decision.as_ref());
        if let Some(of) = decided.filter(|of| of.decision == DecisionKind::Drop) {
            let lapsed = of.lapsed.as_ref();
            let lapsed = lapsed.map(|why| format!(" (the decision lapsed: {why})"));
            remove(format!(
                "decided: {}{}",
                of.reason,
                lapsed.unwrap_or_default()
            ));
        }
        patch.effect = change;
    }
    report.drops.sort_by_key(|drop| drop.index);
    Ok(())
}

/// Formats a fraction of speed on `meter` as it is shown: `+1.2 %`, `-1.2 % instructions`.
fn percent(meter: Meter, fraction: f64) -> String {
    let unit = if meter.is_shown_as_speed() {
        String::new()
    } else {
        format!(" {}", meter.shown_quantity())
    };
    format!("{:+.1} %{unit}", meter.shown(fraction) * 100.0).replace('-', "\u{2212}")
}

/// Adds to each cell of a matrix the patch's effect on time in the latest experiment on the release. Returns these experiments.
pub fn add_to_matrix(ws: &Workspace, matrix: &mut Matrix) -> Result<Vec<Option<Attribution>>> {
    if !ws.results().is_file() {
        return Ok(Vec::new());
    }
    let store = Store::open_existing(&ws.results())?;
    let mut measured = Vec::new();
    for (place, release) in matrix.releases.iter().enumerate() {
        let cells = matrix.patches.iter_mut().map(|row| &mut row.cells[place]);
        let mut cells: Vec<&mut MatrixCell> = cells.filter(|cell| cell.name.is_some()).collect();
        let names: Vec<String> = cells.iter().flat_map(|cell| cell.name.clone()).collect();
        let found = latest(ws, &store, release, &names)?;
        if let Some(attribution) = &found {
            for (cell, name) in cells.iter_mut().zip(&names) {
                let patch = attribution.patches.iter().find(|of| of.name == *name);
                let effect = patch.and_then(|patch| {
                    attribution.main_effect(&patch.effects, EffectKind::InOrder, Meter::Time)
                });
                cell.effect = effect.map(|effect| measured_effect(attribution, effect));
            }
        }
        measured.push(found);
    }
    Ok(measured)
}

fn effect_change(
    old: &Attribution,
    new: Option<&Attribution>,
    change: &attribution::PatchChange<'_>,
) -> EffectChange {
    EffectChange {
        workload: change.old.workload.clone(),
        meter: change.old.meter.name().to_owned(),
        old: measured_effect(old, change.old),
        new: new
            .zip(change.new)
            .map(|(new, effect)| measured_effect(new, effect)),
        no_longer_helps: change.no_longer_helps,
    }
}

fn measured_effect(attribution: &Attribution, effect: &Effect) -> MeasuredEffect {
    MeasuredEffect {
        experiment: attribution.experiment.clone(),
        estimate: effect.estimate,
        low: effect.low,
        high: effect.high,
        verdict: effect.verdict.to_string(),
    }
}
