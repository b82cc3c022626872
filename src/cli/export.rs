//! `perfquilt export`: writes a point's source tree to a folder.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::Context;
use super::output::shown;
use super::plain::plain_lines;
use perfquilt_import::{ExportedSeries, export};
use perfquilt_measure::run::prepare;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_rebase::PointTrees;
use perfquilt_series::stack;

/// Write a point's source tree to a folder, or the series to a package
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt export 0 /tmp/bare              the bare release
  perfquilt export without:2 /tmp/tree      the series without patch 2
  perfquilt export --package ../srv.spec    the series into an RPM spec
  perfquilt export --package ../srv-1.0     into a Debian source tree")]
pub struct Export {
    /// Point: 0 (the bare release), K (after patch K), alone:K or without:K
    #[arg(required_unless_present = "package")]
    point: Option<Point>,
    /// Folder to write to, new or empty
    #[arg(value_name = "DIR", required_unless_present = "package")]
    target: Option<PathBuf>,
    /// Package to write the series to: an RPM .spec, or a tree with debian/
    #[arg(long, value_name = "PATH", conflicts_with_all = ["point", "target"])]
    package: Option<PathBuf>,
    /// With --package: show what would change, and write nothing
    #[arg(short = 'n', long, requires = "package")]
    dry_run: bool,
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
}

/// Runs the subcommand.
pub fn run(context: &Context, args: &Export) -> Result<()> {
    let ws = context.workspace()?;
    if let Some(package) = &args.package {
        let release = args.release.as_deref();
        return show_package(
            context,
            &export(&ws, release, package, args.dry_run)?,
            args.dry_run,
        );
    }
    let (Some(point), Some(target)) = (args.point, &args.target) else {
        return Err(Error::arguments("name a point and a folder, or a package"));
    };
    refuse_unless_empty(target)?;
    let prepared = prepare(&ws, args.release.as_deref())?;
    let tree = prepared.stack.tree(point)?;
    let release = &prepared.release;
    std::fs::create_dir_all(target).map_err(|error| match error.kind() {
        std::io::ErrorKind::StorageFull => Error::io("create", target, &error),
        _ => Error::output(format!("cannot create {}: {error}", target.display()))
            .hint("name a folder that can be created"),
    })?;
    let files = stack::export(&ws.object_store(), &tree, target)?;
    let json = json!({
        "schema": 1,
        "release": release.name,
        "point": point.to_string(),
        "tree": tree,
        "directory": shown(target),
        "files": files,
    });
    let (name, target) = (&release.name, target.display());
    let text = || format!("{name} point {point}: {files} files in {target}\n");
    context.output.result(&json, text)
}

/// Shows what was written to a package.
fn show_package(context: &Context, exported: &ExportedSeries, dry_run: bool) -> Result<()> {
    let json = json!({ "schema": 1, "dry_run": dry_run, "exported": exported });
    let patches = counted(exported.patches, "patch", "patches");
    let mut text = format!("{patches} to {}\n", exported.package);
    for path in &exported.written {
        text.push_str(&format!("changed: {}\n", path.display()));
    }
    for note in &exported.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text.push_str(match (exported.written.is_empty(), dry_run) {
        (true, _) => "nothing to change\n",
        (false, true) => "nothing was written (--dry-run)\n",
        (false, false) => "",
    });
    context.output.result(&json, || plain_lines(&text))
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
