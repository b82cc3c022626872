//! `perfquilt upstream`: lists, fetches and verifies releases.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use super::Context;
use super::output::cut;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_series::upstream::{self, Release, VerifiedRelease};
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
    if context.output.json() {
        let list: Vec<_> = releases
            .iter()
            .map(|status| {
                json!({
                    "name": status.name,
                    "version": status.version,
                    "source": status.source,
                    "current": status.current,
                    "sha256": status.locked.as_ref().map(|locked| &locked.sha256),
                    "tree": status.locked.as_ref().map(|locked| &locked.tree),
                    "imported": status.imported.is_some(),
                })
            })
            .collect();
        return context
            .output
            .print_json(&json!({ "schema": 1, "releases": list }));
    }
    let mut text = String::new();
    let width = releases.iter().map(|r| r.name.chars().count()).max();
    let width = width.unwrap_or(0);
    for status in &releases {
        let state = match (&status.imported, &status.locked) {
            (Some(tree), Some(locked)) if *tree == locked.tree => "imported",
            (Some(_), Some(_)) => "changed ",
            (Some(_), None) => "unlocked",
            (None, Some(_)) => "locked  ",
            (None, None) => "-       ",
        };
        let mark = if status.current { '*' } else { ' ' };
        let line = format!("{mark} {:width$}  {state}  {}", status.name, status.source);
        text.push_str(&cut(&line, 80));
        text.push('\n');
    }
    context.output.print(&text)
}

fn fetch(context: &Context, versions: Vec<String>, all: bool, from: Option<&Path>) -> Result<()> {
    let ws = context.workspace()?;
    if let Some(file) = from {
        if versions.len() > 1 {
            return Err(Error::usage("--from is the file of one release")
                .hint("perfquilt upstream fetch VERSION --from FILE"));
        }
        upstream::supply(&ws, versions.first().map(String::as_str), file)?;
    }
    let progress = context.output.progress();
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
        match upstream::fetch(&ws, version.as_deref(), progress) {
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
    if context.output.json() {
        let list: Vec<_> = fetched
            .iter()
            .map(|release| {
                json!({
                    "name": release.name,
                    "version": release.version,
                    "commit": release.commit,
                    "tree": release.tree,
                    "sha256": release.sha256,
                })
            })
            .collect();
        return context
            .output
            .print_json(&json!({ "schema": 1, "releases": list }));
    }
    let lines: String = fetched
        .iter()
        .map(|release| format!("{}  tree {}\n", release.name, release.tree))
        .collect();
    context.output.print(&lines)
}

fn verify(context: &Context, versions: &[String]) -> Result<()> {
    let ws = context.workspace()?;
    let (mut verified, mut failed) = (Vec::new(), Vec::new());
    for result in upstream::verify(&ws, versions, context.output.progress())? {
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
    if context.output.json() {
        let list: Vec<_> = verified
            .iter()
            .map(|one| json!({ "name": one.name, "file": one.file, "objects": one.objects }))
            .collect();
        return context
            .output
            .print_json(&json!({ "schema": 1, "verified": list }));
    }
    let lines: String = verified
        .iter()
        .map(|one| {
            let file = if one.file { ", its file" } else { "" };
            format!(
                "{}  as recorded ({} objects{file})\n",
                one.name, one.objects
            )
        })
        .collect();
    context.output.print(&lines)
}
