//! The ledger: each patch with its states, effects, decisions and next step.

use crate::decisions;
use crate::effects::add_to_matrix;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::{Attribution, PatchEffects};
use perfquilt_model::decision::{DecisionKind, PatchDecision};
use perfquilt_model::error::Result;
use perfquilt_model::ledger::{Ledger, LedgerDecision, LedgerRow};
use perfquilt_model::matrix::{Matrix, MatrixRow, PatchState};
use perfquilt_model::point::Point;

/// A remark on the conflicts.
const CONFLICTS: &str = "Past conflicts are those that `perfquilt rebase --resolve` recorded in this workspace; others left \
    no record.";

/// Makes the ledger of the patches in a matrix, with the effects, tests and decisions of the workspace.
pub fn ledger(ws: &Workspace, mut matrix: Matrix) -> Result<Ledger> {
    let measured = add_to_matrix(ws, &mut matrix)?;
    let recorded = decisions::read(ws)?;
    let mut notes = matrix.notes;
    notes.push(CONFLICTS.to_owned());
    let releases = matrix.releases;
    let rows = matrix.patches.into_iter().map(|row| {
        let here = |place: usize| -> Option<(&Attribution, &PatchEffects)> {
            let attribution = measured.get(place)?.as_ref()?;
            let name = row.cells[place].name.as_ref()?;
            let mut patches = attribution.patches.iter();
            Some((attribution, patches.find(|patch| patch.name == *name)?))
        };
        let decisions: Vec<LedgerDecision> = (0..releases.len())
            .filter_map(|place| {
                let name = row.cells[place].name.as_ref()?;
                let is_ours =
                    |of: &&PatchDecision| of.patch == *name && of.release == releases[place];
                let found = recorded.iter().rfind(is_ours)?;
                let applied = here(place).and_then(|(_, patch)| patch.decision.as_ref());
                Some(LedgerDecision {
                    release: releases[place].clone(),
                    decision: found.decision,
                    reason: found.reason.clone(),
                    decided: found.decided.clone(),
                    checked: applied.is_some(),
                    lapsed: applied.and_then(|applied| applied.lapsed.clone()),
                })
            })
            .collect();
        let current = here(0);
        LedgerRow {
            next: next(&row, &releases, &decisions, current),
            tests: current.and_then(|(attribution, patch)| {
                attribution.tests_at(Point::Step(patch.index)).cloned()
            }),
            name: row.name,
            title: row.title,
            origin: row.origin,
            cells: row.cells,
            decisions,
        }
    });
    Ok(Ledger {
        schema: 1,
        patches: rows.collect(),
        releases: releases.clone(),
        notes,
    })
}

/// Returns the next step for a patch: what keeps it from applying first, then what it is worth.
fn next(
    row: &MatrixRow,
    releases: &[String],
    decisions: &[LedgerDecision],
    current: Option<(&Attribution, &PatchEffects)>,
) -> String {
    let on = |state: PatchState| {
        let place = row.cells.iter().position(|cell| cell.state == state)?;
        let version = releases[place].rsplit_once('-');
        Some((&releases[place], version.map_or("", |(_, version)| version)))
    };
    if let Some((_, version)) = on(PatchState::Conflict) {
        return format!(
            "resolve: `perfquilt rebase {version} --resolve {}`",
            row.name
        );
    }
    let dropped = |of: &&LedgerDecision| of.decision == DecisionKind::Drop && of.lapsed.is_none();
    if let Some(of) = decisions.iter().find(dropped) {
        return format!("drop at the next rebase of {}: {}", of.release, of.reason);
    }
    if let Some((release, _)) = on(PatchState::Upstream) {
        return format!("drop on {release}, which has it");
    }
    if let Some(of) = decisions.iter().find(|of| of.lapsed.is_some()) {
        return format!("decide again on {}: the decision lapsed", of.release);
    }
    if row.cells[0].name.is_some() && on(PatchState::Missing).is_some() {
        return "compare the series of the releases: one lacks it".to_owned();
    }
    match current {
        _ if row.cells[0].name.is_none() => "none: the current release does not have it".to_owned(),
        None => "measure: `perfquilt run`".to_owned(),
        Some((of, patch)) if !of.unaccepted_on(patch).is_empty() => {
            format!(
                "speed it up, drop it, or `perfquilt accept {} REASON`",
                row.name
            )
        }
        Some((of, patch)) if of.patches_with_new_failures().contains(&patch.index) => {
            "mend the tests that it makes fail: `perfquilt test`".to_owned()
        }
        Some(_) => "none".to_owned(),
    }
}
