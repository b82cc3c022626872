//! Each patch on each release.

use super::document::{
    Cell, Document, Style, TableBuilder, list, literal, name, paragraph, sentence, soft, table,
    title,
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
    let rows = matrix.patches.iter();
    let rows = rows.map(|row| (&*row.name, &*row.cells, row));
    nodes.push(states("patches by release", rows, &matrix.releases).node());
    nodes.push(soft(
        "Each state is that beside the current release's patch: the same lines removed and added, adapted ones, or missing \
         from the release's series. Effects are those on typical speed in the release's latest experiment, with 95 % intervals.",
    ));
    nodes.extend(list(details(matrix)));
    Document(nodes)
}

/// A row's place in its table, the name and cells of its patch, and the rest.
type StateRow<'r, R> = (usize, (&'r str, &'r [MatrixCell], R));

/// Begins a table with the name and cells of each row: the patches' states on the releases.
pub(crate) fn states<'r, R>(
    about: &str,
    rows: impl Iterator<Item = (&'r str, &'r [MatrixCell], R)>,
    releases: &[String],
) -> TableBuilder<StateRow<'r, R>> {
    let table = table(about, rows.enumerate())
        .figures("#", |(index, _)| (index + 1).to_string())
        .names("patch", |(_, (patch, ..))| name(patch));
    let releases = releases.iter().enumerate();
    releases.fold(table, |table, (place, release)| {
        table.words(literal(release), |(_, (patch, cells, _))| {
            cell(&cells[place], patch)
        })
    })
}

/// Returns the sentences below the table: why patches conflict or are upstream, and the matrix's own remarks.
fn details(matrix: &Matrix) -> Vec<Cell> {
    let mut lines: Vec<Cell> = Vec::new();
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

fn cell(of: &MatrixCell, patch: &str) -> Cell {
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
