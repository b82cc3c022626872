//! `perfquilt upstream`: lists, fetches and verifies releases.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use super::Context;
use super::output::cut;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_series::upstream::{self, Release, ReleaseStatus, VerifiedRelease};
use perfquilt_system::process::check_interrupted;

/// List, fetch and verify releases
#[derive(Debug, Subcommand)]
pub enum Upstream {
    /// List the configured releases and their states
    #[command(after_help = "Examples:
  perfquilt upstream list")]
    List,
    /// Fetch releases, check them and import them into the object store
    #[command(after_help = "Examples:
  perfquilt upstream fetch
  perfquilt upstream fetch --all
  perfquilt upstream fetch 11.8.6 --from mariadb-11.8.6.tar.gz")]
    Fetch {
        /// Versions to fetch (default: the current one)
        #[arg(value_name = "VERSION")]
        versions: Vec<String>,
        /// Fetch every configured release
        #[arg(long, conflicts_with = "versions")]
        all: bool,
        /// Take this copy of the release's source file instead of a download; its SHA-256 must be the recorded one
        #[arg(long, value_name = "FILE", conflicts_with = "all")]
        from: Option<PathBuf>,
    },
    /// Check that downloads, lock file and object store still agree
    #[command(after_help = "Examples:
  perfquilt upstream verify")]
    Verify {
        /// Versions to verify (default: all in the lock file)
        #[arg(value_name = "VERSION")]
        versions: Vec<String>,
    },
}

/// Runs the subcommand.
pub fn run(context: &Context, command: Upstream) -> Result<()> {
    match command {
        Upstream::List => list(context),
        Upstream::Fetch {
            versions,
            all,
            from,
        } => fetch(context, versions, all, from.as_deref()),
        Upstream::Verify { versions } => verify(context, &versions),
    }
}

fn list(context: &Context) -> Result<()> {
    let releases = upstream::list(&context.workspace()?)?;
    let width = releases.iter().map(|r| r.name.chars().count()).max();
    let width = width.unwrap_or(0);
    let row = |status: &ReleaseStatus| {
        json!({
            "name": status.name,
            "version": status.version,
            "source": status.source,
            "current": status.current,
            "sha256": status.locked.as_ref().map(|locked| &locked.sha256),
            "tree": status.locked.as_ref().map(|locked| &locked.tree),
            "imported": status.imported.is_some(),
        })
    };
    let line = |status: &ReleaseStatus| {
        let state = match (&status.imported, &status.locked) {
            (Some(tree), Some(locked)) if *tree == locked.tree => "imported",
            (Some(_), Some(_)) => "changed ",
            (Some(_), None) => "unlocked",
            (None, Some(_)) => "locked  ",
            (None, None) => "-       ",
        };
        let mark = if status.current { '*' } else { ' ' };
        let line = format!("{mark} {:width$}  {state}  {}", status.name, status.source);
        cut(&line, 80) + "\n"
    };
    list_rows(context, "releases", &releases, &row, &line)
}

fn fetch(context: &Context, versions: Vec<String>, all: bool, from: Option<&Path>) -> Result<()> {
    let ws = context.workspace()?;
    if let Some(file) = from {
        if versions.len() > 1 {
            return Err(Error::arguments("--from is the file of one release")
                .hint("perfquilt upstream fetch VERSION --from FILE"));
        }
        upstream::supply(&ws, versions.first().map(String::as_str), file)?;
    }
    let wanted: Vec<Option<String>> = if all {
        let releases = ws.config.upstream.release.iter();
        releases
            .map(|release| Some(release.version.clone()))
            .collect()
    } else if versions.is_empty() {
        vec![None]
    } else {
        versions.into_iter().map(Some).collect()
    };
    let (mut fetched, mut failed) = (Vec::new(), Vec::new());
    for version in wanted {
        check_interrupted()?;
        match upstream::fetch(&ws, version.as_deref()) {
            Ok(release) => fetched.push(release),
            Err(error) if error.kind() == Kind::Interrupted => return Err(error),
            Err(error) => failed.push(error),
        }
    }
    if !fetched.is_empty() || failed.is_empty() {
        show_fetched(context, &fetched)?;
    }
    report_failures(context, failed)
}

fn show_fetched(context: &Context, fetched: &[Release]) -> Result<()> {
    let row = |release: &Release| {
        json!({
            "name": release.name,
            "version": release.version,
            "commit": release.commit,
            "tree": release.tree,
            "sha256": release.sha256,
        })
    };
    let line = |release: &Release| format!("{}  tree {}\n", release.name, release.tree);
    list_rows(context, "releases", fetched, &row, &line)
}

fn verify(context: &Context, versions: &[String]) -> Result<()> {
    let ws = context.workspace()?;
    let (mut verified, mut failed) = (Vec::new(), Vec::new());
    for result in upstream::verify(&ws, versions)? {
        match result {
            Ok(one) => verified.push(one),
            Err(error) => failed.push(error),
        }
    }
    if !verified.is_empty() || failed.is_empty() {
        show_verified(context, &verified)?;
    }
    report_failures(context, failed)
}

/// Prints the errors of all releases; the first one's kind decides the exit code.
fn report_failures(context: &Context, mut failed: Vec<Error>) -> Result<()> {
    // The program ends with the kind of the error that is returned, the last one.
    if failed.last().map(Error::kind) != failed.first().map(Error::kind) {
        failed.rotate_left(1);
    }
    context.output.errors(failed)
}

fn show_verified(context: &Context, verified: &[VerifiedRelease]) -> Result<()> {
    let row = |one: &VerifiedRelease| json!({ "name": one.name, "file": one.file, "objects": one.objects });
    let line = |one: &VerifiedRelease| {
        let file = if one.file { ", its file" } else { "" };
        let (name, objects) = (&one.name, one.objects);
        format!("{name}  as recorded ({objects} objects{file})\n")
    };
    list_rows(context, "verified", verified, &row, &line)
}

/// Prints a list: its rows under `name`, or a line each.
fn list_rows<T>(
    context: &Context,
    name: &str,
    list: &[T],
    row: &dyn Fn(&T) -> serde_json::Value,
    line: &dyn Fn(&T) -> String,
) -> Result<()> {
    let rows: Vec<_> = list.iter().map(row).collect();
    let json = json!({ "schema": 1, name: rows });
    context
        .output
        .result(&json, || list.iter().map(line).collect())
}
