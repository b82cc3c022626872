//! `perfquilt edit`: checks out the series as a git branch, or as a tree for quilt.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::Context;
use super::choices;
use super::output::shown;
use super::plain::plain_lines;
use perfquilt_model::counted::counted;
use perfquilt_model::error::Result;
use perfquilt_rebase::edit::{self, BranchState, EditBranch, EditRequest, StoppedRebase};
use perfquilt_system::process::quoted;

/// Check out the stack as a git branch, one commit per patch, for editing with git
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt edit                        the whole series as a branch
  perfquilt edit 0002-row-guards        stop at this patch")]
pub struct Edit {
    /// Patch to stop at, by its name, its number or a part of its name; the later patches follow
    patch: Option<String>,
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Folder of the worktree (default: .perfquilt/edit/RELEASE)
    #[arg(long, value_name = "DIR")]
    worktree: Option<PathBuf>,
    /// Reset the branch to the series; commits that are not in it are kept under another reference
    #[arg(long)]
    reset: bool,
    /// Remove the worktree, unless it has work that is not in the series
    #[arg(long, conflicts_with_all = ["patch", "worktree", "reset"])]
    close: bool,
    /// Context lines that may be ignored where a hunk does not apply otherwise (default: `fuzz` of [series],
    /// 0 if not set)
    #[arg(long, value_name = "N", value_parser = choices::number::<usize>)]
    fuzz: Option<usize>,
    /// Folder to unpack the bare release into instead, ready for `quilt push`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["patch", "worktree", "reset", "close", "fuzz"])]
    quilt: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(context: &Context, args: &Edit) -> Result<()> {
    let ws = context.workspace()?;
    if let Some(dir) = &args.quilt {
        let tree = edit::quilt(&ws, args.release.as_deref(), dir)?;
        let folder = shown(&tree.directory);
        let json = json!({
            "schema": 1,
            "release": tree.release,
            "directory": folder,
            "files": tree.files,
            "patches": tree.patches,
        });
        let text = format!(
            "{}: {} files in {}, no patch applied\n\n  cd {} && quilt push -a\n\n\
             quilt reads and writes the workspace's own series and patches there.\n",
            tree.release,
            tree.files,
            tree.directory.display(),
            quoted(&folder),
        );
        return context.output.result(&json, || text);
    }
    if args.close {
        let directory = edit::close(&ws, args.release.as_deref())?;
        let json = json!({ "schema": 1, "closed": shown(&directory) });
        let text = || format!("removed {}\n", directory.display());
        return context.output.result(&json, text);
    }
    let request = EditRequest {
        version: args.release.clone(),
        patch: args.patch.clone(),
        directory: args.worktree.clone(),
        reset: args.reset,
        fuzz: args.fuzz.unwrap_or(ws.config.series.fuzz),
    };
    let opened = edit::open(&ws, &request)?;
    let json = json!({
        "schema": 1,
        "release": opened.release,
        "branch": opened.branch,
        "directory": shown(&opened.directory),
        "commits": opened.commits,
        "state": opened.state.to_string(),
        "patch": opened.at.as_ref().map(|(name, _)| name),
        "conflict": opened.conflict.as_ref().map(|stopped| json!({
            "patch": stopped.patch,
            "files": stopped.files,
        })),
        "kept": opened.kept,
    });
    let text = || plain_lines(&text(&opened));
    context.output.result(&json, text)
}

fn text(opened: &EditBranch) -> String {
    let mut text = format!(
        "{}: {} on branch {} in {}\n",
        opened.release,
        counted(opened.commits, "commit", "commits"),
        opened.branch,
        opened.directory.display()
    );
    text.push_str(match opened.state {
        // `conflict_text` describes this state.
        BranchState::Created | BranchState::Conflict => "",
        BranchState::Resumed => "the worktree exists already, and the series has all of its work\n",
        BranchState::Unsaved => {
            "the worktree exists already, with work that is not in the series yet\n"
        }
        BranchState::Moved => "the worktree exists already, and was updated to the series\n",
        BranchState::Reset => "the worktree was reset\n",
    });
    if let Some(kept) = &opened.kept {
        text.push_str(&format!("its previous commits are kept as {kept}\n"));
    }
    let directory = quoted(&shown(&opened.directory));
    if let Some(stopped) = &opened.conflict {
        text.push_str(&conflict_text(stopped, &directory));
        return text;
    }
    match &opened.at {
        Some((name, true)) => text.push_str(&format!(
            "it is stopped at {name}; the later patches follow\n\n  cd {directory}\n  … edit …\n  git commit --amend -a\n  git rebase --continue\n  perfquilt refresh\n"
        )),
        Some((name, false)) => text.push_str(&format!(
            "it is stopped at {name}, the last patch\n\n  cd {directory}\n  … edit …\n  git commit --amend -a\n  perfquilt refresh\n"
        )),
        None if opened.commits == 0 => text.push_str(&format!(
            "\n  cd {directory}\n  … edit …\n  git commit -a            the first patch\n  perfquilt refresh        write series and patches\n"
        )),
        None => text.push_str(&format!(
            "\n  cd {directory}\n  git rebase -i            amend, reorder, squash, drop\n  git commit               a new patch\n  perfquilt refresh        write series and patches\n"
        )),
    }
    text
}

/// Describes a rebase that is stopped with conflicts, and the steps that finish it.
fn conflict_text(stopped: &StoppedRebase, directory: &str) -> String {
    let mut text = format!(
        "the worktree exists already: {}\n\n  cd {directory}\n",
        stopped.sentence()
    );
    if !stopped.files.is_empty() {
        let files: Vec<String> = stopped.files.iter().map(|file| quoted(file)).collect();
        text.push_str(&format!(
            "  … resolve the conflicts …\n  git add {}\n",
            files.join(" ")
        ));
    }
    text.push_str("  git rebase --continue\n  perfquilt refresh\n");
    text
}
