//! `perfquilt watch`: reports what changes upstream for the patches of a series.

use std::time::Duration;

use clap::Args;

use super::Context;
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::{Forge, post_once};
use perfquilt_judge::bisect::{DEFAULT_SIZE, Question};
use perfquilt_measure::run::request::BisectRequest;
use perfquilt_measure::run::watch::{WatchOptions, look};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_model::watch::StateChange;
use perfquilt_report::watch::document;
use perfquilt_system::files::write_file;
use perfquilt_system::locks;
use perfquilt_system::process;

/// Arguments of `perfquilt watch`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt watch --once       from cron or a systemd timer
  perfquilt watch --once trixie

[watch] of the configuration names the lines. Each change of a patch's state is one report, as Markdown and JSON in \
the folder of reports; while nothing changes, there is none.")]
pub struct Arguments {
    /// Lines to look at (default: all)
    #[arg(value_name = "LINE")]
    lines: Vec<String>,
    /// Look once instead of again and again
    #[arg(long)]
    once: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// With `--once`, those of the lines that could not be looked at.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    loop {
        let ws = context.workspace()?;
        let looked = look_at_all(context, &ws, &arguments.lines);
        match looked {
            looked if arguments.once => return looked,
            Err(error) if matches!(error.kind(), Kind::Interrupted | Kind::Usage) => {
                return Err(error);
            }
            Err(error) => context.output.error(&error),
            Ok(()) => {}
        }
        process::sleep(Duration::from_secs(ws.config.watch.seconds.into()))?;
    }
}

/// Looks at the lines of these names, or at all.
fn look_at_all(context: &Context, ws: &Workspace, names: &[String]) -> Result<()> {
    let watch = &ws.config.watch;
    let all = || watch.line.iter();
    if watch.line.is_empty() {
        let fault = Error::arguments("there is no line of upstream to watch");
        return Err(
            fault.hint("name one in bench-config/perfquilt.toml, as a table [[watch.line]]")
        );
    }
    for name in names {
        if !all().any(|line| line.name == *name) {
            return Err(Error::unknown("line", name, all().map(|line| &line.name)));
        }
    }
    let _lock = locks::wait(&ws.state().join("watch.lock"), || {
        progress::note("waiting for another `perfquilt watch`");
    })?;
    let preset = ws.config.preset(&watch.preset).ok();
    let builds = watch.build.unwrap_or(preset.is_some());
    let recipe = if builds {
        Some(&*ws.config.preset(&watch.preset)?.recipe)
    } else {
        None
    };
    let measure = if watch.measure.unwrap_or(builds) {
        requests(ws)?
    } else {
        Vec::new()
    };
    let options = WatchOptions {
        recipe,
        test: watch.test,
        measure: &measure,
    };
    let forge = forge(ws)?;
    let mut found = Vec::new();
    let mut failed = Vec::new();
    for line in all().filter(|line| names.is_empty() || names.contains(&line.name)) {
        let mut emit = |change: &StateChange| {
            if write(ws, change, forge.as_deref())? {
                found.push(change.clone());
            }
            Ok(())
        };
        match look(ws, line, &options, &mut emit) {
            Err(error) if error.kind() == Kind::Interrupted => return Err(error),
            looked => failed.extend(looked.err()),
        }
    }
    let json = serde_json::json!({ "schema": 1, "changes": found });
    context.output.result(&json, || {
        let line = |change: &StateChange| {
            let of = change.patch.as_deref().unwrap_or("the series");
            let file = watch.reports.join(format!("{}.md", change.id));
            let (line, what) = (&change.line, change.change);
            let text = format!("{line}: {of}: {what}: {}\n", file.display());
            super::plain::plain_lines(&text)
        };
        found.iter().map(line).collect()
    })?;
    context.output.errors(failed)
}

/// Returns what to measure: each workload of the preset.
fn requests(ws: &Workspace) -> Result<Vec<BisectRequest>> {
    let watch = &ws.config.watch;
    let preset = ws.config.preset(&watch.preset)?;
    let workloads = preset.workloads.iter();
    Ok(workloads
        .map(|workload| BisectRequest {
            question: Question {
                size: watch.size.unwrap_or(DEFAULT_SIZE),
                most_blocks: watch.blocks,
                ..Question::about(workload, watch.meter.into())
            },
            preset: preset.clone(),
            recipe: None,
            profile: false,
            describe: perfquilt_report::bisect::step,
        })
        .collect())
}

/// Returns the forge that gets comments, if one does.
fn forge(ws: &Workspace) -> Result<Option<Box<dyn Forge>>> {
    if ws.config.watch.comment_on.is_none() {
        return Ok(None);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let kind = super::bot::forge_kind(&ws.config.bot)?;
    let repository = ws.config.bot.repository.parse()?;
    kind.open(repository, None, &variable).map(Some)
}

/// Writes the report on a change, unless there is one. Returns whether it wrote one; the JSON document is written last, so
/// that a comment that could not be written is tried again.
fn write(ws: &Workspace, change: &StateChange, forge: Option<&dyn Forge>) -> Result<bool> {
    let folder = ws.root().join(&ws.config.watch.reports);
    let json = folder.join(format!("{}.json", change.id));
    if json.is_file() {
        return Ok(false);
    }
    std::fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, &error))?;
    let text = document(change).markdown();
    write_file(&folder.join(format!("{}.md", change.id)), text.as_bytes())?;
    if let Some((forge, number)) = forge.zip(ws.config.watch.comment_on) {
        post_once(forge, number, &format!("watch {}", change.id), &text)?;
    }
    write_file(&json, super::output::json(change)?.as_bytes())?;
    Ok(true)
}
