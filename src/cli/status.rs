//! `perfquilt status`: shows the release, the series and how each patch applies.

use clap::Args;
use serde_json::json;

use super::Context;
use super::measuring;
use super::output::{cut, pad, shown};
use super::plain::plain_lines;
use perfquilt_config::workspace::Workspace;
use perfquilt_measure::run::{NextStep, next_step, prepare};
use perfquilt_model::counted::{counted, listed};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_rebase::edit::{self, UnwrittenBranch};
use perfquilt_report::width;
use perfquilt_series::series::{Series, SeriesFile};
use perfquilt_series::stack::{self, AppliedPatch};
use perfquilt_series::upstream::{self, Objects};

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

/// How far the series applies to the release.
#[derive(Default)]
struct AppliedPart {
    /// The patches that apply, in order.
    steps: Vec<AppliedPatch>,
    /// The error of the following patch, if it does not apply.
    fault: Option<Error>,
    next: Option<NextStep>,
}

impl AppliedPart {
    /// Applies the series to an imported release.
    fn of(ws: &Workspace, release: Option<&str>, series: &Series) -> Result<AppliedPart> {
        let fault = match prepare(ws, release) {
            Ok(prepared) => {
                let next = next_step(ws, &prepared, measuring::DEFAULT_PRESET)?;
                let steps = prepared.stack.steps;
                return Ok(AppliedPart {
                    steps,
                    fault: None,
                    next,
                });
            }
            Err(error) => error,
        };
        let is_at = |shown: &str| fault.location().is_some_and(|at| at.file == *shown);
        let mut patches = series.patches().iter();
        let failed = patches.position(|patch| is_at(&patch.shown));
        let Some(failed) = failed.filter(|_| fault.kind() == Kind::Series) else {
            return Err(fault);
        };
        let before = series.patches()[..failed].to_vec();
        let before = Series::assemble(SeriesFile::default(), before);
        let imported = upstream::ensure(ws, release)?;
        Ok(AppliedPart {
            steps: stack::apply(ws, &imported, &before)?.steps,
            fault: Some(fault),
            next: None,
        })
    }

    /// Returns whether patch `index`, from 0, applies; `None` if this is unknown.
    fn applies(&self, index: usize) -> Option<bool> {
        if index < self.steps.len() {
            Some(true)
        } else if index == self.steps.len() && self.fault.is_some() {
            Some(false)
        } else {
            None
        }
    }

    /// Describes how patch `index`, from 0, applies.
    fn fit(&self, index: usize) -> String {
        match (self.steps.get(index), self.applies(index)) {
            (Some(step), _) => step.fit.to_string(),
            (None, Some(_)) => "fails".to_owned(),
            (None, None) => "-".to_owned(),
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Those of [`Series::load_for`], [`prepare`] and [`next_step`]; an unknown release. If a patch does not apply, its
/// error is returned after the table was printed.
pub fn run(context: &Context, arguments: &Status) -> Result<()> {
    let ws = context.workspace()?;
    let version = match arguments.release.as_deref() {
        Some(version) => &ws.config.release(Some(version))?.version,
        None => &ws.config.upstream.current,
    };
    let release = (*version != ws.config.upstream.current).then_some(version.as_str());
    let series = Series::load_for(&ws, release)?;
    let name = ws.config.release_name(version);
    let releases = upstream::list(&ws)?;
    let at_hand = releases
        .iter()
        .any(|one| one.name == name && one.is_available());
    // `status` must not use the network, so a release that is not fetched stays unapplied.
    let applied = if at_hand && Objects::open(&ws.object_store()).is_ok() {
        AppliedPart::of(&ws, release, &series)?
    } else {
        AppliedPart {
            next: Some(NextStep::Fetch),
            ..AppliedPart::default()
        }
    };
    let unwritten = match Objects::open(&ws.object_store()) {
        Ok(_) => edit::unwritten(&ws, None)?,
        Err(_) => Vec::new(),
    };
    let patches = series.patches().iter().enumerate().map(|(index, patch)| {
        let step = applied.steps.get(index);
        json!({
            "index": index + 1,
            "name": patch.name,
            "title": patch.title,
            "files": patch.files.len(),
            "applies": applied.applies(index),
            "offset": step.map(|step| step.fit.offset),
            "fuzz": step.map(|step| step.fit.fuzz),
            "tree": step.map(|step| &step.tree),
        })
    });
    let json = json!({
        "schema": 1,
        "release": name,
        "imported": at_hand,
        "patches": patches.collect::<Vec<_>>(),
        "unwritten": unwritten.iter().map(|branch| json!({
            "version": branch.version,
            "branch": branch.branch,
            "directory": shown(&branch.directory),
            "state": branch.sentence(),
            "next": branch.next(),
        })).collect::<Vec<_>>(),
        "next": applied.next,
    });
    let count = series.patches().len();
    let mut text = format!("{name}, {}\n", counted(count, "patch", "patches"));
    let digits = count.to_string().len();
    let names = series.patches().iter().map(|patch| width(&patch.name));
    let columns = context.output.width();
    let room = names.max().unwrap_or(0).min(longest_name(columns));
    for (index, patch) in series.patches().iter().enumerate() {
        let how = applied.fit(index);
        let line = format!(
            "{:>digits$}  {}  {how:<10} {}",
            index + 1,
            pad(&cut(&patch.name, room), room),
            patch.title
        );
        text.push_str(&cut(&line, columns));
        text.push('\n');
    }
    text += &plain_lines(&work_text(&unwritten));
    match &applied.next {
        // `work_text` names the commands.
        None | Some(NextStep::Refresh { .. }) => {}
        Some(next) => text += &format!("next: {}\n", advice(next, count, release)),
    }
    context.output.result(&json, || text)?;
    applied.fault.map_or(Ok(()), Err)
}

/// Returns the maximum width of a patch's name in lines of `columns` columns, which leaves room for the other cells.
fn longest_name(columns: usize) -> usize {
    columns.saturating_sub(46).clamp(12, 60)
}

/// Describes work on edit branches that is not in the series, and how it gets there.
fn work_text(unwritten: &[UnwrittenBranch]) -> String {
    let lines = unwritten.iter();
    lines
        .map(|branch| format!("{}\nnext: {}\n", branch.sentence(), branch.next()))
        .collect()
}

/// Returns the command of the next step on `release` (`None`: the current one), and what it does.
fn advice(next: &NextStep, patches: usize, release: Option<&str>) -> String {
    let option = release.map_or_else(String::new, |version| format!(" --release {version}"));
    match next {
        NextStep::Fetch => match release {
            Some(version) => format!("`perfquilt upstream fetch {version}` imports the release"),
            None => "`perfquilt upstream fetch` imports the release".to_owned(),
        },
        NextStep::Refresh { version } => format!("`perfquilt refresh --release {version}`"),
        NextStep::Doctor => "`perfquilt doctor` lists what this machine needs to build".to_owned(),
        NextStep::Run { .. } | NextStep::Report { .. } if patches == 0 => {
            "`perfquilt edit` makes a git branch for your own patches; `perfquilt import SOURCE` imports others'"
                .to_owned()
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
                points => format!("points {}", listed(points, 5)),
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
