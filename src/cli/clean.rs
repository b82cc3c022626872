//! `perfquilt clean`: removes unused entries from the caches.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;

use super::Context;
use super::choices;
use super::output::size;
use super::plain::plain;
use perfquilt_config::workspace::cache_dir;
use perfquilt_model::counted::counted;
use perfquilt_model::error::Result;
use perfquilt_report::fit;
use perfquilt_system::caches::{self, CacheEntry};

/// Arguments of `perfquilt clean`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt clean --dry-run            list what would be removed
  perfquilt clean                      remove what was unused for 30 days
  perfquilt clean --unused-days 0      remove everything not in use

All workspaces share the caches: built servers, profiles, source and build trees, test results, prepared \
data, and leftovers of sandboxed runs. perfquilt recreates removed entries when it needs them. Downloads, ccache's folder, measurements and \
the workspace's state are never touched.")]
pub struct Arguments {
    /// Days without use after which an entry is removed
    #[arg(long, value_name = "DAYS", value_parser = choices::number::<u64>, default_value_t = 30)]
    unused_days: u64,
    /// List what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct CleanReport {
    /// Version of this document: 1.
    schema: u32,
    /// Whether this was a dry run, which removes nothing.
    dry_run: bool,
    /// The entries that were removed, or would be.
    removed: Vec<CacheEntry>,
    /// The entries that are unused long enough but locked by a running command.
    in_use: Vec<CacheEntry>,
}

/// Runs `perfquilt clean`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let unused = Duration::from_secs(arguments.unused_days.saturating_mul(86_400));
    let (mut removed, mut in_use) = (Vec::new(), Vec::new());
    let cache = cache_dir()?;
    for entry in caches::unused(&cache, unused, SystemTime::now())? {
        if arguments.dry_run || caches::remove(&entry)? {
            removed.push(entry)
        } else {
            in_use.push(entry)
        }
    }
    if !arguments.dry_run {
        perfquilt_build::sweep(&cache)?;
    }
    let report = CleanReport {
        schema: 1,
        dry_run: arguments.dry_run,
        removed,
        in_use,
    };
    let columns = context.output.width();
    context.output.result(&report, || text(&report, columns))
}

fn text(report: &CleanReport, columns: usize) -> String {
    let mut text = String::new();
    let line = |entry: &CacheEntry, rest: &str| {
        // The size column and the gaps between the three columns take 14.
        let room = columns.saturating_sub(14 + rest.len()).max(24);
        let name = fit(&plain(&entry.name), room);
        format!("{:>10}  {name}  {rest}\n", size(entry.bytes))
    };
    for entry in &report.removed {
        let days = match entry.unused_days {
            0 => "used today".to_owned(),
            days => format!("{} unused", counted(days, "day", "days")),
        };
        text += &line(entry, &format!("{}, {days}", entry.what));
    }
    for entry in &report.in_use {
        text += &line(entry, "in use, kept");
    }
    let bytes: u64 = report.removed.iter().map(|entry| entry.bytes).sum();
    let _ = match (report.removed.is_empty(), report.dry_run) {
        (true, _) => writeln!(
            text,
            "nothing to remove (`perfquilt doctor` shows the size of the caches)"
        ),
        (false, true) => writeln!(text, "{} would be freed", size(bytes)),
        (false, false) => writeln!(text, "{} freed", size(bytes)),
    };
    text
}
