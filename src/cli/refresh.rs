//! `perfquilt refresh`: writes the edit branch back to `series` and `patches/`.

use clap::Args;
use serde_json::json;

use super::Context;
use super::output::{cut, shown};
use perfquilt_model::error::Result;
use perfquilt_rebase::edit::{self, RefreshOptions, RefreshResult, RefreshedPatch};

/// Write the edit branch back to the series and its patches
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt refresh --dry-run           show what would change in each patch
  perfquilt refresh")]
pub struct Refresh {
    /// Release of the branch (default: that of the only branch, or the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Remove patches that became empty, and skip empty commits
    #[arg(long)]
    drop_empty: bool,
    /// Show what would be written, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Runs the subcommand.
pub fn run(context: &Context, args: &Refresh) -> Result<()> {
    let ws = context.workspace()?;
    let options = RefreshOptions {
        version: args.release.clone(),
        drop_empty: args.drop_empty,
        dry_run: args.dry_run,
    };
    let done = edit::refresh(&ws, &options)?;
    let patches = done.patches.iter().enumerate().map(|(index, patch)| {
        json!({
            "index": index + 1,
            "name": patch.name,
            "title": patch.title,
            "fate": patch.change.to_string(),
            "was": patch.old_index,
            "renamed_from": patch.renamed_from,
            "joined": patch.joined,
        })
    });
    let json = json!({
        "schema": 1,
        "release": done.release,
        "directory": shown(&done.directory),
        "dry_run": args.dry_run,
        "changed": done.changed,
        "series_changed": done.series_changed,
        "patches": patches.collect::<Vec<_>>(),
        "removed": done.removed,
        "dropped": done.dropped.iter().map(|empty| json!({
            "commit": empty.commit,
            "title": empty.title,
        })).collect::<Vec<_>>(),
        "kept": done.kept.as_deref().map(shown),
        "untracked": done.untracked,
        "commit": done.commit,
    });
    let columns = context.output.width();
    let text = || text(&done, args.dry_run, columns);
    context.output.result(&json, text)
}

fn text(done: &RefreshResult, dry_run: bool, columns: usize) -> String {
    let digits = done.patches.len().to_string().len();
    let mut dropped = String::new();
    for empty in &done.dropped {
        let (commit, title) = (&empty.commit, &empty.title);
        let line = format!(
            "{:>digits$}  dropped   empty commit {commit} ({title})",
            "-"
        );
        dropped.push_str(&cut(&line, columns));
        dropped.push('\n');
    }
    if !done.changed {
        return format!(
            "{dropped}{}: series and patches agree with the branch\n",
            done.release
        );
    }
    let mut text = String::new();
    for (index, patch) in done.patches.iter().enumerate() {
        let line = format!(
            "{:>digits$}  {:<8}  {}{}",
            index + 1,
            patch.change,
            patch.name,
            remark(patch)
        );
        text.push_str(&cut(&line, columns));
        text.push('\n');
    }
    let joined: Vec<&String> = done
        .patches
        .iter()
        .flat_map(|patch| &patch.joined)
        .collect();
    for name in done.removed.iter().filter(|name| !joined.contains(name)) {
        let line = format!("{:>digits$}  removed   {name}", "-");
        text.push_str(&cut(&line, columns));
        text.push('\n');
    }
    text.push_str(&dropped);
    if dry_run {
        text.push_str("nothing was written (--dry-run)\n");
    } else if let Some(kept) = &done.kept {
        text.push_str(&format!(
            "the previous files are kept in {}\n",
            kept.display()
        ));
    }
    text
}

fn remark(patch: &RefreshedPatch) -> String {
    let mut remarks = Vec::new();
    if let Some(old) = &patch.renamed_from {
        remarks.push(format!("was {old}"));
    }
    if !patch.joined.is_empty() {
        remarks.push(format!("joined with {}", patch.joined.join(", ")));
    }
    if remarks.is_empty() {
        String::new()
    } else {
        format!(" ({})", remarks.join("; "))
    }
}
