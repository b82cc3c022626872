//! `perfquilt status`: shows the release, the series and how each patch applies.

use clap::Args;
use serde_json::json;

use super::Context;
use super::output::{counted, cut, pad};
use perfquilt_model::error::Result;
use perfquilt_patches::series::Series;
use perfquilt_patches::stack;
use perfquilt_patches::upstream::{self, Objects};
use perfquilt_report::width;

/// Show the release, the series and how each patch applies
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt status
  perfquilt status --json")]
pub struct Status {}

/// Runs the subcommand.
///
/// # Errors
/// Those of [`Series::load`] and [`stack::apply`].
pub fn run(context: &Context, _args: &Status) -> Result<()> {
    let ws = context.workspace()?;
    let series = Series::load(&ws)?;
    let releases = upstream::list(&ws)?;
    let current = releases.iter().find(|release| release.current);
    let name = current.map_or_else(
        || format!("{}-{}", ws.config.upstream.name, ws.config.upstream.current),
        |release| release.name.clone(),
    );
    let at_hand = current.is_some_and(upstream::ReleaseStatus::is_available);
    // `status` must not use the network, so a release that is not fetched stays unapplied.
    let applied = if at_hand && Objects::open(&ws.object_store()).is_ok() {
        let release = upstream::ensure(&ws, None, context.output.progress())?;
        Some(stack::apply(&ws, &release, &series)?)
    } else {
        None
    };
    let steps = applied.as_ref().map(|stack| stack.steps.as_slice());
    if context.output.json() {
        let patches: Vec<_> = series
            .patches()
            .iter()
            .enumerate()
            .map(|(index, patch)| {
                let step = steps.map(|steps| &steps[index]);
                json!({
                    "index": index + 1,
                    "name": patch.name,
                    "title": patch.title,
                    "files": patch.files.len(),
                    "offset": step.map(|step| step.fit.offset),
                    "fuzz": step.map(|step| step.fit.fuzz),
                    "tree": step.map(|step| &step.tree),
                })
            })
            .collect();
        return context.output.print_json(&json!({
            "schema": 1,
            "release": name,
            "imported": at_hand,
            "patches": patches,
        }));
    }
    let count = series.patches().len();
    let mut text = format!("{name}, {}\n", counted(count, "patch", "patches"));
    if !at_hand {
        text.push_str("the release is not imported yet; run `perfquilt upstream fetch`\n");
    }
    let digits = count.to_string().len();
    let names = series.patches().iter().map(|patch| width(&patch.name));
    let room = names.max().unwrap_or(0).min(34);
    for (index, patch) in series.patches().iter().enumerate() {
        let how = steps.map_or_else(|| "-".to_owned(), |steps| steps[index].fit.to_string());
        let line = format!(
            "{:>digits$}  {}  {how:<10} {}",
            index + 1,
            pad(&cut(&patch.name, room), room),
            patch.title
        );
        text.push_str(&cut(&line, 80));
        text.push('\n');
    }
    context.output.print(&text)
}
