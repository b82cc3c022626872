//! The state of each patch on each release of a workspace.

use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_model::matrix::{Matrix, MatrixCell, MatrixRow, PatchState};
use perfquilt_model::rebase::{PatchReport, Status};
use perfquilt_series::series::diff::same_lines;
use perfquilt_series::series::{Patch, Series};
use perfquilt_series::upstream;

use super::origin::origins;
use super::{RebaseRequest, rebase};

/// A release with the series that is for it.
struct ReleaseLine {
    name: String,
    version: String,
    /// `None` if it shares the current release's series.
    own: Option<Series>,
    is_fetched: bool,
}

/// Compares the series of all releases with that of the current one. Where a release shares that series, or its own lacks a
/// patch, the patch is moved there as [`rebase`] does. Uses no network: of a release that is not fetched, the state of such a
/// patch is unknown.
pub fn matrix(ws: &Workspace) -> Result<Matrix> {
    let main = Series::load(ws)?;
    let lines = release_lines(ws)?;
    let mut patches: Vec<&Patch> = main.patches().iter().collect();
    for series in lines.iter().filter_map(|line| line.own.as_ref()) {
        let mut new: Vec<&Patch> = series.patches().iter().collect();
        new.retain(|patch| counterpart(&patches, patch).is_none());
        patches.extend(new);
    }
    let origins = origins(ws, &patches)?;
    let rows = patches.iter().zip(origins);
    let rows = rows.map(|(patch, origin)| MatrixRow {
        name: patch.name.clone(),
        title: patch.title.clone(),
        cells: Vec::new(),
        origin,
    });
    let mut matrix = Matrix {
        schema: 1,
        releases: lines.iter().map(|line| line.name.clone()).collect(),
        patches: rows.collect(),
        notes: Vec::new(),
    };
    for (place, line) in lines.iter().enumerate() {
        let series = line.own.as_ref().unwrap_or(&main);
        let own: Vec<&Patch> = series.patches().iter().collect();
        let found = |patch: &Patch| counterpart(&own, patch);
        let shares = line.own.is_none() && place > 0;
        let lacks = main.patches().iter().any(|patch| found(patch).is_none());
        let unfetched = [&lines[0], line].into_iter().find(|line| !line.is_fetched);
        let asks = place > 0 && (lacks || shares && !main.patches().is_empty());
        let moved = if asks && unfetched.is_none() {
            let to = line.version.clone();
            rebase(ws, &RebaseRequest { to, from: None })?
                .report
                .patches
        } else {
            Vec::new()
        };
        for (index, (patch, row)) in patches.iter().zip(&mut matrix.patches).enumerate() {
            let cell = match found(patch) {
                Some(own) if !shares => of_own(patch, own),
                None if index >= main.patches().len() => MatrixCell {
                    state: PatchState::Missing,
                    ..of_moved(None, None)
                },
                shared => of_moved(moved.get(index), shared),
            };
            let is_unknown = cell.state == PatchState::Unknown;
            if let Some(ReleaseLine { name, version, .. }) = unfetched.filter(|_| is_unknown) {
                let note = format!("{name} is not fetched: `perfquilt upstream fetch {version}`");
                if !matrix.notes.contains(&note) {
                    matrix.notes.push(note);
                }
            }
            if cell.state == PatchState::Missing && index < main.patches().len() {
                matrix.notes.push(format!(
                    "{} lacks {}, which applies there: was it dropped by mistake?",
                    line.name, patch.name
                ));
            }
            row.cells.push(cell);
        }
    }
    Ok(matrix)
}

/// Returns the releases, the current one first.
fn release_lines(ws: &Workspace) -> Result<Vec<ReleaseLine>> {
    let mut releases = upstream::list(ws)?;
    releases.sort_by_key(|release| !release.current);
    let shared = ws.config.series_of(None)?.file;
    let mut lines = Vec::new();
    for release in releases {
        let file = ws.config.series_of(Some(&release.version))?.file;
        let own = release.current || file != shared;
        lines.push(ReleaseLine {
            own: if own {
                Some(Series::load_for(ws, Some(&release.version))?)
            } else {
                None
            },
            is_fetched: release.is_available(),
            name: release.name,
            version: release.version,
        });
    }
    Ok(lines)
}

/// Returns the patch that another series has in place of `patch`: the one of its name, else the only one of its title.
fn counterpart<'p>(patches: &[&'p Patch], patch: &Patch) -> Option<&'p Patch> {
    let mut named = patches.iter().filter(|other| other.name == patch.name);
    named.next().copied().or_else(|| {
        let mut titled = patches.iter().filter(|other| other.title == patch.title);
        titled.next().filter(|_| titled.next().is_none()).copied()
    })
}

/// Returns the cell of a patch that the release's own series has as `own`.
fn of_own(patch: &Patch, own: &Patch) -> MatrixCell {
    MatrixCell {
        state: if same_lines(&patch.files, &own.files) {
            PatchState::Same
        } else {
            PatchState::Adapted
        },
        name: Some(own.name.clone()),
        detail: String::new(),
        effect: None,
    }
}

/// Returns the cell of a patch of the current release that was `moved`; `shared` is its name if the release has no series of
/// its own.
fn of_moved(moved: Option<&PatchReport>, shared: Option<&Patch>) -> MatrixCell {
    let status = moved.map(|report| report.status);
    let state = match status {
        None => PatchState::Unknown,
        Some(Status::Upstream) => PatchState::Upstream,
        Some(Status::Changed | Status::Conflict | Status::Untested) => PatchState::Conflict,
        Some(_) if shared.is_none() => PatchState::Missing,
        Some(Status::Exact | Status::Offset) => PatchState::Same,
        Some(Status::Merged | Status::Resolved | Status::Partly) => PatchState::Adapted,
    };
    MatrixCell {
        state,
        name: shared.map(|patch| patch.name.clone()),
        detail: moved.map_or_else(String::new, |report| report.evidence.clone()),
        effect: None,
    }
}
