//! A change of state on a line of upstream.

use super::document::{Document, Text, list, literal, name, sentence, title};
use perfquilt_model::watch::{ChangeKind, StateChange};

/// Returns the document about a change.
pub fn document(change: &StateChange) -> Document {
    let of = change.patch.as_deref().unwrap_or("the series");
    let what = match change.change {
        ChangeKind::TakenUpstream => "upstream has it",
        ChangeKind::Conflict => "it conflicts and needs a decision",
        ChangeKind::Removed => "upstream's commit removed its change",
        ChangeKind::AppliesAgain => "it applies again",
        ChangeKind::BuildFails => "the server does not build with it",
        ChangeKind::TestsFail => "tests newly fail with it",
        ChangeKind::Slower => "upstream is slower",
        ChangeKind::NoLongerHelps => "it helps less",
    };
    let commit = name(&change.commit);
    let by = if change.title.is_empty() || change.title == change.commit {
        format!("since {commit}")
    } else {
        format!("since {commit} ({})", literal(&change.title))
    };
    let head = format!(
        "{} on {}: {}",
        name(of),
        literal(&change.line),
        change.change
    );
    let mut lines: Vec<Text> = vec![format!("{what} {by}").into()];
    lines.extend(change.evidence.iter().map(|text| sentence(text)));
    lines.extend(
        change
            .next
            .iter()
            .map(|text| format!("next: {}", name(text)).into()),
    );
    let (id, since) = (name(&change.id), name(&change.since));
    lines.push(format!("report {id}, of a look that began at {since}").into());
    let mut nodes = vec![title(head)];
    nodes.extend(list(lines));
    Document(nodes)
}
