//! Each patch on each release.

use super::document::{
    Cell, Document, Item, Style, list, literal, name, paragraph, sentence, soft, table, title,
};
use super::number;
use perfquilt_model::matrix::{Matrix, MatrixCell, PatchState};

/// Decimals of the effects.
const PLACES: usize = 2;

/// Returns the document about a matrix.
pub fn document(matrix: &Matrix) -> Document {
    let mut nodes = vec![title("Patches by release")];
    if matrix.patches.is_empty() {
        nodes.push(paragraph("No series has a patch."));
        return Document(nodes);
    }
    let mut states = table("patches by release", matrix.patches.iter().enumerate())
        .figures("#", |(index, _)| (index + 1).to_string())
        .names("patch", |(_, row)| name(&row.name));
    for (place, release) in matrix.releases.iter().enumerate() {
        states = states.words(literal(release), |(_, row)| {
            cell(&row.cells[place], &row.name)
        });
    }
    nodes.push(states.node());
    nodes.push(soft(
        "Each state is that beside the current release's patch: the same lines removed and added, adapted ones, or missing \
         from the release's series. Effects are those on typical speed in the release's latest experiment, with 95 % intervals.",
    ));
    nodes.extend(list(details(matrix)));
    Document(nodes)
}

/// Returns the sentences below the table: why patches conflict or are upstream, and the matrix's own remarks.
fn details(matrix: &Matrix) -> Vec<Item> {
    let mut lines: Vec<Item> = Vec::new();
    for row in &matrix.patches {
        for (release, of) in matrix.releases.iter().zip(&row.cells) {
            if let PatchState::Upstream | PatchState::Conflict = of.state {
                let (patch, why) = (name(&row.name), literal(&of.detail));
                let line = format!("{patch} on {}: {}: {why}", literal(release), of.state);
                lines.push(line.into());
            }
        }
    }
    lines.extend(matrix.notes.iter().map(|note| sentence(note).into()));
    lines
}

pub(crate) fn cell(of: &MatrixCell, patch: &str) -> Cell {
    let style = match of.state {
        PatchState::Same | PatchState::Adapted => Style::Plain,
        PatchState::Upstream => Style::Good,
        PatchState::Missing | PatchState::Conflict => Style::Bad,
        PatchState::Unknown => Style::Open,
    };
    let other = of.name.as_deref().filter(|own| *own != patch);
    let cell = Cell::from(of.state.to_string()).styled(style);
    let cell = cell.remark(other.map(name).unwrap_or_default());
    let Some(effect) = &of.effect else {
        return cell;
    };
    let figure = number::interval(effect.estimate, effect.low.zip(effect.high), PLACES);
    cell.below([format!("{figure} ({})", effect.verdict)])
}
