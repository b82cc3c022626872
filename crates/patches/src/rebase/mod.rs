//! Moving a series from one release to another, and saying for every patch how that went.
//!
//! Two stacks grow side by side: the series on its old release, where every patch fits, and the same
//! on the new one. A patch is put on the new tree as it is, exactly or with an offset; failing that its
//! change between the two old trees is merged in, file by file. A patch that cannot be moved is left
//! out on both sides, so that the following ones are still tried, as far as they do without it.
//! Whether the new release has a patch already is told by comparing trees, not by how a program ended.
//!
//! Nothing in the workspace changes here: [`mod@write`] does that, and [`resolve`] opens a conflict.

mod branch;
mod configuration;
mod decision;
mod evidence;
mod history;
mod moved;
mod mover;
mod range_diff;
pub mod resolve;
mod three_way;
pub mod write;

pub use evidence::named_paths;
pub use perfquilt_model::rebase::{
    Closest, Decision, Drop, EffectChange, PatchReport, Report, Rung, Status, Worth, Written,
};

use crate::series::Series;
use crate::upstream::{self, Objects, Release};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::process::check_interrupted;

use mover::Mover;

/// Which series goes where.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The release to go to.
    pub to: String,
    /// The release whose series it is (`None`: the current one).
    pub from: Option<String>,
}

/// A series moved in the object store.
#[derive(Debug)]
pub struct Rebased {
    /// What to tell.
    pub report: Report,
    /// The old release.
    pub from: Release,
    /// The new release.
    pub to: Release,
    /// The series as it is.
    pub series: Series,
    /// One step a patch.
    pub steps: Vec<Step>,
}

/// A patch on both sides.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// The old tree before the patch, without patches that could not be moved.
    pub old_before: String,
    /// The old tree after the patch; `None` when it needs one that could not be moved.
    pub old_after: Option<String>,
    /// The new tree before the patch.
    pub new_before: String,
    /// The new tree after the patch, which is the one before it where it does not apply.
    pub new_after: String,
    /// The commit of the new tree before the patch.
    pub parent: String,
    /// Whether the patch is left out on both sides because somebody must decide about it.
    pub held: bool,
}

/// Moves the series in the object store and reports on it.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an unknown release, or the one the series is for;
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when the series does not apply to its own release;
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
pub fn rebase(ws: &Workspace, request: &Request, progress: &dyn Progress) -> Result<Rebased> {
    let source = ws.config.release(request.from.as_deref())?;
    let target = ws.config.release(Some(&request.to))?;
    if source.version == target.version {
        return Err(
            Error::usage(format!("the series is for {} already", request.to)).hint(format!(
                "name another release; there are: {}",
                ws.config
                    .upstream
                    .release
                    .iter()
                    .map(|release| release.version.as_str())
                    .filter(|version| *version != source.version)
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        );
    }
    let series = Series::load_for(ws, Some(&source.version))?;
    if series.patches().is_empty() {
        return Err(Error::usage("the series has no patches")
            .hint("`perfquilt rebase` moves a series from one release to another"));
    }
    let from = upstream::ensure(ws, Some(&source.version), progress)?;
    let to = upstream::ensure(ws, Some(&target.version), progress)?;
    let objects = Objects::open(&ws.object_store())?;
    let mut mover = Mover::new(ws, &objects, &from, &to, &series)?;
    let step = progress.begin(
        &format!("moving {} to {}", from.name, to.name),
        Some(series.patches().len() as u64),
    );
    for (index, patch) in series.patches().iter().enumerate() {
        check_interrupted()?;
        step.update(index as u64, None, &patch.name);
        mover.patch(index, patch, progress)?;
    }
    step.finish("");
    let (patches, steps) = mover.finish(&objects, &series)?;
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
        schema: 1,
        from: from.name.clone(),
        to: to.name.clone(),
        version: to.version.clone(),
        series: files.file.to_string_lossy().into_owned(),
        ready: false,
        decisions: 0,
        patches,
        drops: Vec::new(),
        notes,
        written: None,
        next: Vec::new(),
    };
    conclude(&mut report, request);
    Ok(Rebased {
        report,
        from,
        to,
        series,
        steps,
    })
}

/// The tree of `to`, some commit of upstream's, with the `series` of `from` on top: every patch moved as
/// [`rebase`] moves it, but without looking at what upstream's history says.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when somebody must decide about a patch; as [`rebase`].
pub fn tree_on(
    ws: &Workspace,
    from: &Release,
    to: &Release,
    series: &Series,
    progress: &dyn Progress,
) -> Result<String> {
    let objects = Objects::open(&ws.object_store())?;
    let mut mover = Mover::new(ws, &objects, from, to, series)?.without_history();
    for (index, patch) in series.patches().iter().enumerate() {
        check_interrupted()?;
        mover.patch(index, patch, progress)?;
    }
    let (patches, steps) = mover.finish(&objects, series)?;
    let held = patches
        .iter()
        .find(|patch| patch.status.needs_decision() || patch.status == Status::Untested);
    if let Some(patch) = held {
        return Err(Error::series(format!(
            "{} does not apply to {}",
            patch.name, to.name
        )));
    }
    Ok(steps
        .last()
        .map_or_else(|| to.tree.clone(), |step| step.new_after.clone()))
}

/// Counts, drop candidates and the next commands.
fn conclude(report: &mut Report, request: &Request) {
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
        .map(|patch| Drop {
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

/// The command that makes this report again.
pub fn command(report: &Report, request: &Request) -> String {
    match &request.from {
        Some(from) => format!("perfquilt rebase {} --from {from}", report.version),
        None => format!("perfquilt rebase {}", report.version),
    }
}
