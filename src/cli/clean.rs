//! `perfquilt clean`: remove what the caches keep and nobody uses.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;

use super::Context;
use super::output::{plain, size};
use perfquilt_config::workspace::cache_dir;
use perfquilt_machine::build;
use perfquilt_model::error::Result;
use perfquilt_report::fit;
use perfquilt_system::caches::{self, Entry};

/// Arguments of `perfquilt clean`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt clean --dry-run            what would go
  perfquilt clean                      what nobody used for 30 days
  perfquilt clean --unused-days 0      everything that can be made again

The caches are shared by all workspaces: built servers, source and build trees, prepared data. What goes
is made again when it is needed. Downloads, measurements and the workspace's state are never touched.")]
pub struct Arguments {
    /// Remove what was not used for so many days
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    unused_days: u64,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Cleaned {
    /// Version of this document: 1.
    schema: u32,
    /// Whether nothing was removed, and it is only said what would be.
    dry_run: bool,
    /// What was or would be removed.
    removed: Vec<Entry>,
    /// What would be, but is in use.
    in_use: Vec<Entry>,
}

/// Runs `perfquilt clean`.
///
/// # Errors
/// A cache that cannot be read, or an entry that cannot be removed.
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
        build::sweep(&cache)?;
    }
    let cleaned = Cleaned {
        schema: 1,
        dry_run: arguments.dry_run,
        removed,
        in_use,
    };
    if context.output.json() {
        context.output.print_json(&cleaned)
    } else {
        context
            .output
            .print(&told(&cleaned, context.output.width()))
    }
}

fn told(cleaned: &Cleaned, columns: usize) -> String {
    let mut text = String::new();
    let line = |entry: &Entry, rest: &str| {
        // The size, and what is between the three.
        let room = columns.saturating_sub(14 + rest.len()).max(24);
        let name = fit(&plain(&entry.name), room);
        format!("{:>10}  {name}  {rest}\n", size(entry.bytes))
    };
    for entry in &cleaned.removed {
        let days = match entry.unused_days {
            0 => "used today".to_owned(),
            1 => "1 day unused".to_owned(),
            days => format!("{days} days unused"),
        };
        text += &line(entry, &format!("{}, {days}", entry.what));
    }
    for entry in &cleaned.in_use {
        text += &line(entry, "in use, stays");
    }
    let bytes: u64 = cleaned.removed.iter().map(|entry| entry.bytes).sum();
    let _ = match (cleaned.removed.is_empty(), cleaned.dry_run) {
        (true, _) => writeln!(
            text,
            "nothing to remove (`perfquilt doctor` says what the caches hold)"
        ),
        (false, true) => writeln!(text, "{} would be free", size(bytes)),
        (false, false) => writeln!(text, "{} free", size(bytes)),
    };
    text
}
