//! `perfquilt status`: shows the release, the series and how each patch applies.

use clap::Args;
use serde_json::json;

use super::Context;
use super::bench;
use super::output::{counted, cut, pad};
use perfquilt_measure::run::{NextStep, Prepared, next_step, prepare};
use perfquilt_model::error::Result;
use perfquilt_model::point::Point;
use perfquilt_patches::series::Series;
use perfquilt_patches::upstream::{self, Objects};
use perfquilt_report::width;

/// Show the release, the series and how each patch applies
#[derive(Debug, Default, Args)]
#[command(after_help = "Examples:
  perfquilt status
  perfquilt status --release 11.8.6      the series on another release
  perfquilt status --json")]
pub struct Status {
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// Those of [`Series::load_for`], [`prepare`] and [`next_step`]; an unknown release.
pub fn run(context: &Context, arguments: &Status) -> Result<()> {
    let ws = context.workspace()?;
    let version = match arguments.release.as_deref() {
        Some(version) => &ws.config.release(Some(version))?.version,
        None => &ws.config.upstream.current,
    };
    let release = (*version != ws.config.upstream.current).then_some(version.as_str());
    let series = Series::load_for(&ws, release)?;
    let name = format!("{}-{version}", ws.config.upstream.name);
    let releases = upstream::list(&ws)?;
    let at_hand = releases
        .iter()
        .any(|of| of.name == name && of.is_available());
    // `status` must not use the network, so a release that is not fetched stays unapplied.
    let applied = if at_hand && Objects::open(&ws.object_store()).is_ok() {
        Some(prepare(&ws, release, context.output.progress())?)
    } else {
        None
    };
    let next = match &applied {
        Some(prepared) => next_step(&ws, prepared, bench::DEFAULT_PRESET)?,
        None => Some(NextStep::Fetch),
    };
    let steps = applied
        .as_ref()
        .map(|Prepared { stack, .. }| stack.steps.as_slice());
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
            "next": next,
        }));
    }
    let count = series.patches().len();
    let mut text = format!("{name}, {}\n", counted(count, "patch", "patches"));
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
    if let Some(next) = next {
        text += &format!("next: {}\n", advice(&next, count, release));
    }
    context.output.print(&text)
}

/// Returns the command of the next step on `release` (`None`: the current one), and what it does.
fn advice(next: &NextStep, patches: usize, release: Option<&str>) -> String {
    let option = release.map_or_else(String::new, |version| format!(" --release {version}"));
    match next {
        NextStep::Fetch => match release {
            Some(version) => format!("`perfquilt upstream fetch {version}` imports the release"),
            None => "`perfquilt upstream fetch` imports the release".to_owned(),
        },
        NextStep::Refresh { version } => {
            format!(
                "`perfquilt refresh --release {version}` writes the edit branch back to the series"
            )
        }
        NextStep::Doctor => "`perfquilt doctor` shows what this machine lacks to build".to_owned(),
        NextStep::Run { .. } | NextStep::Report { .. } if patches == 0 => {
            "`perfquilt import SOURCE` imports patches (or edit patches/ and series)".to_owned()
        }
        NextStep::Run { points, .. } if points.is_empty() => {
            format!(
                "`perfquilt run{option}` compares the points of this series, which are all measured"
            )
        }
        NextStep::Run { points, unbuilt } => {
            let builds = match unbuilt {
                0 => String::new(),
                count => format!("builds {} and ", counted(*count, "point", "points")),
            };
            let all = points.len() > patches;
            let what = match points.as_slice() {
                _ if all => "all points".to_owned(),
                [point] => format!("point {point}"),
                points => format!("points {}", listed(points)),
            };
            format!("`perfquilt run{option}` {builds}measures {what}")
        }
        NextStep::Report { experiment } => {
            // The latest experiment may be on another release.
            let name = release.map_or_else(String::new, |_| format!(" {experiment}"));
            format!("`perfquilt report{name}` shows the effects; every point is measured")
        }
    }
}

/// Lists the first few points.
fn listed(points: &[Point]) -> String {
    const MOST: usize = 5;
    let names = points.iter().take(MOST).map(Point::to_string);
    let mut text = names.collect::<Vec<_>>().join(", ");
    if points.len() > MOST {
        text += &format!(" and {} more", points.len() - MOST);
    }
    text
}
