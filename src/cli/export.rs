//! `perfquilt export`: writes a point's source tree to a folder.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::Context;
use super::output::shown;
use perfquilt_measure::run::prepare;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_rebase::PointTrees;
use perfquilt_series::stack;

/// Write a point's source tree to a folder
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt export 0 /tmp/bare          the bare release
  perfquilt export without:2 /tmp/tree  the series without patch 2")]
pub struct Export {
    /// Point: 0 (the bare release), K (after patch K), alone:K or without:K
    point: Point,
    /// Folder to write to, new or empty
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
}

/// Runs the subcommand.
pub fn run(context: &Context, args: &Export) -> Result<()> {
    let ws = context.workspace()?;
    let progress = context.output.progress();
    refuse_unless_empty(&args.target)?;
    let prepared = prepare(&ws, args.release.as_deref(), progress)?;
    let tree = prepared.stack.tree(args.point)?;
    let release = &prepared.release;
    std::fs::create_dir_all(&args.target).map_err(|error| match error.kind() {
        std::io::ErrorKind::StorageFull => Error::io("create", &args.target, &error),
        _ => Error::output(format!("cannot create {}: {error}", args.target.display()))
            .hint("name a folder that can be created"),
    })?;
    let files = stack::export(&ws.object_store(), &tree, &args.target, progress)?;
    let json = json!({
        "schema": 1,
        "release": release.name,
        "point": args.point.to_string(),
        "tree": tree,
        "directory": shown(&args.target),
        "files": files,
    });
    let (name, point, target) = (&release.name, args.point, args.target.display());
    let text = || format!("{name} point {point}: {files} files in {target}\n");
    context.output.result(&json, text)
}

fn refuse_unless_empty(directory: &std::path::Path) -> Result<()> {
    match std::fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(
                Error::folder_taken(format!("{} is not empty", directory.display()))
                    .hint("name a new folder, or empty this one first"),
            ),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Err(Error::output(format!("{} is a file", directory.display())))
        }
        Err(error) => Err(Error::io("read", directory, &error)),
    }
}
