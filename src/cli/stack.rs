//! `perfquilt stack`: applies the series and prints the chain of commits.

use clap::Args;
use serde_json::json;

use super::output::cut;
use super::{Context, choices};
use perfquilt_measure::run::prepare_with;
use perfquilt_model::error::Result;

/// Apply the series to a release and print the chain of commits
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt stack
  perfquilt stack --release 11.8.6")]
pub struct Stack {
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Context lines that may be ignored where a hunk does not apply otherwise (default: `fuzz` of [series],
    /// 0 if not set)
    #[arg(long, value_name = "N", value_parser = choices::number::<usize>)]
    fuzz: Option<usize>,
}

/// Runs the subcommand.
pub fn run(context: &Context, args: &Stack) -> Result<()> {
    let ws = context.workspace()?;
    let fuzz = args.fuzz.unwrap_or(ws.config.series.fuzz);
    let stack = prepare_with(&ws, args.release.as_deref(), fuzz)?.stack;
    let steps = stack.steps.iter().enumerate().map(|(index, step)| {
        json!({
            "index": index + 1,
            "name": step.name,
            "title": step.title,
            "commit": step.commit,
            "tree": step.tree,
            "offset": step.fit.offset,
            "fuzz": step.fit.fuzz,
        })
    });
    let json = json!({
        "schema": 1,
        "release": {
            "name": stack.release.name,
            "commit": stack.release.commit,
            "tree": stack.release.tree,
        },
        "steps": steps.collect::<Vec<_>>(),
    });
    let digits = stack.steps.len().to_string().len();
    let mut text = format!(
        "{:>digits$}  {}  {:<10} {}\n",
        0,
        &stack.release.commit[..12],
        "",
        stack.release.name
    );
    for (index, step) in stack.steps.iter().enumerate() {
        let line = format!(
            "{:>digits$}  {}  {:<10} {}",
            index + 1,
            &step.commit[..12],
            step.fit.to_string(),
            step.name
        );
        text.push_str(&cut(&line, 80));
        text.push('\n');
    }
    context.output.result(&json, || text)
}
