//! Each patch with its origin, states, decisions and next step.

use super::document::{
    Cell, Document, Text, list, literal, name, paragraph, sentence, soft, table, title,
};
use super::matrix::states;
use super::server_tests::of_patch;
use perfquilt_model::decision::DecisionKind;
use perfquilt_model::ledger::{Ledger, LedgerDecision, LedgerRow};

/// Returns the document about a ledger.
pub fn document(ledger: &Ledger) -> Document {
    let mut nodes = vec![title("Ledger")];
    if ledger.patches.is_empty() {
        nodes.push(paragraph("No series has a patch."));
        return Document(nodes);
    }
    let rows = ledger.patches.iter();
    let of_states = rows.clone().map(|row| (&*row.name, &*row.cells, row));
    let about = "State and next step of each patch";
    let states = states(about, of_states, &ledger.releases)
        .prose("next step", |(_, (.., row))| sentence(&row.next));
    nodes.push(states.stacking().node());
    let origins = table("Origin and decisions of each patch", rows.enumerate())
        .figures("#", |(index, _)| (index + 1).to_string())
        .names("owner", |(_, row)| {
            name(row.origin.owner.as_deref().unwrap_or("unknown"))
        })
        .prose("upstream, past conflicts, tests, decisions", |(_, row)| {
            let mut lines = facts(row).into_iter();
            Cell::from(lines.next().unwrap_or_else(|| "–".into())).below(lines)
        });
    nodes.push(origins.stacking().node());
    nodes.push(soft(
        "Effects are those on typical speed in the release's latest experiment, with 95 % intervals. A decision holds for \
         the programs and workloads that were measured when it was made.",
    ));
    nodes.extend(list(ledger.notes.iter().map(|note| sentence(note))));
    Document(nodes)
}

/// Returns what is known of a patch, a line each.
fn facts(row: &LedgerRow) -> Vec<Text> {
    let mut lines: Vec<Text> = row
        .origin
        .upstream
        .iter()
        .map(|of| literal(of).into())
        .collect();
    let conflicts = row.origin.conflicts.iter();
    lines.extend(conflicts.map(|of| format!("conflict resolved: {}", literal(of)).into()));
    lines.extend(row.tests.as_ref().map(|of| sentence(&of_patch(of))));
    lines.extend(row.decisions.iter().map(|of| sentence(&decided(of))));
    lines
}

fn decided(of: &LedgerDecision) -> String {
    let LedgerDecision {
        release,
        reason,
        checked,
        ..
    } = of;
    let day = of.decided.split('T').next().unwrap_or_default();
    let what = match of.decision {
        DecisionKind::Keep => "accepted",
        DecisionKind::Drop => "to be dropped at the next rebase",
    };
    let state = match &of.lapsed {
        Some(why) => format!(", lapsed ({why})"),
        None if *checked => String::new(),
        None => ", unchecked (no experiment of it here)".to_owned(),
    };
    format!("{what} on {release}, {day}{state}: {reason}")
}
