//! `perfquilt accept`: records a decision on a patch.

use clap::Args;

use super::Context;
use perfquilt_model::decision::DecisionKind;
use perfquilt_model::error::Result;
use perfquilt_results::decisions::{DECISIONS_FILE, record};
use perfquilt_series::series::Series;

/// Arguments of `perfquilt accept`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt accept 0003 fixes a crash, 1 % is its price
  perfquilt accept 0003 --drop upstream does the same since 11.4

The decision is bound to the programs before and with the patch and to the workloads on which it is slower: it lapses \
when one of them changes.")]
pub struct Arguments {
    /// Patch, by its name, its number or a unique part of its name
    patch: String,
    /// Why it stays although it is slower
    #[arg(required = true, num_args = 1..)]
    reason: Vec<String>,
    /// Drop the patch at the next rebase
    #[arg(long)]
    drop: bool,
    /// Release whose latest experiment the decision is about (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
}

/// Runs the subcommand.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    let release = ws.config.release(arguments.release.as_deref())?;
    let series = Series::load_for(&ws, Some(&release.version))?;
    let name = &series.patches()[series.find(&arguments.patch)?].name;
    let kind = if arguments.drop {
        DecisionKind::Drop
    } else {
        DecisionKind::Keep
    };
    let release = ws.config.release_name(&release.version);
    let decided = record(&ws, name, &release, kind, &arguments.reason.join(" "))?;
    let json = serde_json::json!({ "schema": 1, "file": DECISIONS_FILE, "decision": decided });
    context.output.result(&json, || {
        let workloads: Vec<&str> = decided.workloads.keys().map(String::as_str).collect();
        let what = match kind {
            DecisionKind::Keep => "accepted as slower",
            DecisionKind::Drop => "to be dropped at the next rebase, measured",
        };
        let text = format!("{name}: {what} on {}\n", workloads.join(", "));
        super::plain::plain_lines(&format!("{text}written to {DECISIONS_FILE}: commit it\n"))
    })
}
