//! Moves a series from one release to another and reports the status of every patch.
//!
//! Two stacks grow side by side: the series on its old release, where every patch applies, and the series on
//! the new release. The mover applies a patch to the new tree unchanged, exactly or with an offset; if that
//! fails, it merges the change between the two old trees, file by file. A patch that cannot be moved is left
//! out of both stacks, so that later patches that do not depend on it are still tried. Comparing trees, rather
//! than exit codes, shows whether the new release already has a patch.
//!
//! This module does not change the workspace: [`mod@write`] writes the result, and [`resolve`] opens conflicts.

mod branch;
mod configuration;
mod decision;
pub mod edit;
mod evidence;
mod function;
mod guarded;
mod histogram;
mod history;
mod landing;
mod line_runs;
mod lines_there;
mod loose_merge;
pub mod matrix;
mod merge;
mod moved;
mod mover;
mod origin;
mod placement;
mod plan;
mod points;
mod range_diff;
pub mod resolve;
mod squeezed;
pub mod three_way;
pub mod transfer;
pub mod watch;
pub mod write;

pub use configuration::with_folder;
pub use evidence::named_paths;
pub use perfquilt_model::rebase::{
    Closest, Decision, EffectChange, EvidenceLevel, MeasuredEffect, PatchRemoval, PatchReport,
    Report, Status, Written,
};
pub use plan::WriteOptions;
pub use points::PointTrees;

use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_series::series::Series;
use perfquilt_series::upstream::{self, Objects, Release};
use perfquilt_system::process::quoted;

use mover::moved;

/// The series to move and the release to move it to.
#[derive(Debug, Clone, Default)]
pub struct RebaseRequest {
    /// The target release.
    pub to: String,
    /// The release that the series is for (`None`: the current one).
    pub from: Option<String>,
}

/// The result of a rebase in the object store.
#[derive(Debug)]
pub struct RebasedSeries {
    /// The report.
    pub report: Report,
    /// The old release.
    pub from: Release,
    /// The new release.
    pub to: Release,
    /// The unchanged series.
    pub series: Series,
    /// One step per patch.
    pub steps: Vec<PatchStep>,
}

/// The trees before and after a patch, given by their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreePair {
    /// The tree before it.
    pub before: String,
    /// The tree after it; the same if it does not apply.
    pub after: String,
}

/// The trees before and after a patch on both stacks.
#[derive(Debug, Clone, Default)]
pub struct PatchStep {
    /// On the old stack: without held patches, if the patch does without their lines.
    pub old: TreePair,
    /// On the old stack with all earlier patches.
    pub whole: TreePair,
    /// On the new stack.
    pub new: TreePair,
    /// The commit of the new tree before the patch.
    pub parent: String,
}

/// Moves the series in the object store and reports on it.
pub fn rebase(ws: &Workspace, request: &RebaseRequest) -> Result<RebasedSeries> {
    let source = ws.config.release(request.from.as_deref())?;
    let target = ws.config.release(Some(&request.to))?;
    if source.version == target.version {
        let releases = ws.config.upstream.release.iter();
        let others: Vec<&str> = releases
            .map(|release| release.version.as_str())
            .filter(|version| *version != source.version)
            .collect();
        let hint = if others.is_empty() {
            "add the new release to bench-config/perfquilt.toml, as a table [[upstream.release]]"
                .to_owned()
        } else {
            format!("name another release; available: {}", others.join(", "))
        };
        let fault = format!("the series is already for {}", request.to);
        return Err(Error::rebase_target(fault).hint(hint));
    }
    let series = Series::load_for(ws, Some(&source.version))?;
    if series.patches().is_empty() {
        return Err(Error::series_empty("the series has no patches")
            .hint("`perfquilt rebase` moves a series from one release to another"));
    }
    let from = upstream::ensure(ws, Some(&source.version))?;
    let to = upstream::ensure(ws, Some(&target.version))?;
    let objects = Objects::open(&ws.object_store())?;
    let (patches, steps) = moved(ws, &objects, &from, &to, &series, true)?;
    let mut notes = Vec::new();
    let files = ws.config.series_of(Some(&source.version))?;
    let own = ws.config.series_of(Some(&target.version))?.patches;
    if own != files.patches && ws.root().join(&own).is_dir() {
        notes.push(format!(
            "{} has a series of its own in {}, which --write replaces",
            to.name,
            own.display()
        ));
    }
    let mut report = Report {
        series: files.file.to_string_lossy().into_owned(),
        notes,
        ..report_of(&from, &to, patches)
    };
    conclude(&mut report, request);
    // `--continue` and `--abort` report a damaged record of an open conflict.
    if let Ok(Some(open)) = resolve::opened(ws)
        && open.version == target.version
        && open.directory.is_dir()
    {
        let folder = quoted(&open.directory.to_string_lossy());
        let command = command(&report, request);
        report.next = vec![format!("cd {folder}"), format!("{command} --continue")];
    }
    Ok(RebasedSeries {
        report,
        from,
        to,
        series,
        steps,
    })
}

/// Returns a report on patches, without its conclusions.
fn report_of(from: &Release, to: &Release, patches: Vec<PatchReport>) -> Report {
    Report {
        schema: 1,
        from: from.name.clone(),
        to: to.name.clone(),
        version: to.version.clone(),
        patches,
        ..Report::default()
    }
}

/// Returns the tree of `to`, any commit of upstream's, with the `series` of `from` on top. The patches are moved as
/// in [`rebase`], but without evidence from upstream's history.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when a patch needs a decision; otherwise the errors of [`rebase`].
pub fn tree_on(ws: &Workspace, from: &Release, to: &Release, series: &Series) -> Result<String> {
    let objects = Objects::open(&ws.object_store())?;
    let moved = || moved(ws, &objects, from, to, series, false);
    let (patches, steps) = progress::silently(moved)?;
    let held = patches
        .iter()
        .find(|patch| patch.status.needs_decision() || patch.status == Status::Untested);
    if let Some(patch) = held {
        return Err(Error::hunk(format!(
            "{} does not apply to {}",
            patch.name, to.name
        )));
    }
    Ok(steps
        .last()
        .map_or_else(|| to.tree.clone(), |step| step.new.after.clone()))
}

/// Completes the report with counts, drop candidates and the next commands.
fn conclude(report: &mut Report, request: &RebaseRequest) {
    report.decisions = report
        .patches
        .iter()
        .filter(|patch| patch.status.needs_decision())
        .count();
    report.ready = report.decisions == 0 && report.untested() == 0;
    report.drops = report
        .patches
        .iter()
        .filter(|patch| patch.status == Status::Upstream)
        .map(|patch| PatchRemoval {
            index: patch.index,
            name: patch.name.clone(),
            reason: format!("the release has it: {}", patch.evidence),
        })
        .collect();
    let command = command(report, request);
    let first = report
        .patches
        .iter()
        .find(|patch| patch.status.needs_decision());
    report.next = match first {
        Some(patch) => vec![format!("{command} --resolve {}", patch.index)],
        None => vec![format!("{command} --write")],
    };
}

/// Returns the hint for a report with open decisions: the open conflict, or the command that opens the first one.
pub fn decision_hint(report: &Report) -> Option<String> {
    match report.next.as_slice() {
        [] => None,
        [command] => Some(format!("`{command}` opens the first")),
        [folder, .., command] => Some(format!(
            "a conflict is open: `{folder}`, resolve and commit it, then `{command}`"
        )),
    }
}

/// Returns the command that produces this report again.
pub fn command(report: &Report, request: &RebaseRequest) -> String {
    match &request.from {
        Some(from) => format!("perfquilt rebase {} --from {from}", report.version),
        None => format!("perfquilt rebase {}", report.version),
    }
}
