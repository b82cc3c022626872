//! Writes a moved series: as one commit on a new branch of the workspace's git repository, or into a new
//! folder. The user's files, index and branch stay as they are, and no patch is dropped.

use std::path::Path;

use super::branch::write_branch;
use super::plan::{WriteOptions, WritePlan, is_inside, plain, plan};
use super::{PatchReport, RebasedSeries, decision_hint};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::rebase::{Status, Written};
use perfquilt_system::files::if_there;
use perfquilt_system::process::check_interrupted;

/// Writes the result of [`rebase`](super::rebase()).
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) while decisions are pending;
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the workspace is not a git repository, its series is
/// not committed, the branch exists, or the folder is not empty. In these cases nothing is written.
pub fn write(ws: &Workspace, rebased: &RebasedSeries, options: &WriteOptions) -> Result<Written> {
    let undecided: Vec<&PatchReport> = rebased
        .report
        .patches
        .iter()
        .filter(|patch| patch.status.needs_decision() || patch.status == Status::Untested)
        .collect();
    if !undecided.is_empty() && !options.hold {
        return Err(Error::rebase_decision("some patches need a decision first")
            .details(
                undecided
                    .iter()
                    .map(|patch| format!("{} {}: {}", patch.index, patch.name, patch.status)),
            )
            .hint(format!(
                "{}; --hold writes the series without them, as comments",
                decision_hint(&rebased.report).unwrap_or_default()
            )));
    }
    let plan = plan(ws, rebased, options)?;
    check_interrupted()?;
    match &options.output {
        Some(folder) => write_folder(folder, plan),
        None => write_branch(ws, rebased, options, plan),
    }
}

/// Writes all files to a new folder, which appears in one step.
fn write_folder(folder: &Path, plan: WritePlan) -> Result<Written> {
    if let Some(path) = plan.files.keys().find(|path| !is_inside(plain(path))) {
        return Err(Error::rebase_target(format!(
            "{} is not below the workspace, and cannot be written to a separate folder",
            path.display()
        )));
    }
    let target = std::path::absolute(folder).map_err(|e| Error::io("find", folder, &e))?;
    let entries = if_there("read", &target, std::fs::read_dir(&target))?;
    if entries.into_iter().flatten().next().is_some() {
        return Err(
            Error::folder_taken(format!("{} is not empty", folder.display()))
                .hint("name a new folder"),
        );
    }
    let parent = target.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, &e))?;
    let io = |error| Error::io("write", &target, &error);
    let temporary = tempfile::Builder::new()
        .prefix(".perfquilt-")
        .tempdir_in(parent)
        .map_err(io)?;
    for (path, bytes) in &plan.files {
        let file = temporary.path().join(path);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        std::fs::write(&file, bytes).map_err(io)?;
    }
    check_interrupted()?;
    if target.is_dir() {
        std::fs::remove_dir(&target).map_err(io)?;
    }
    std::fs::rename(temporary.keep(), &target).map_err(io)?;
    Ok(Written {
        branch: None,
        commit: None,
        folder: Some(folder.to_string_lossy().into_owned()),
        files: plan.changed_files(),
        set_aside: plan.set_aside,
    })
}
