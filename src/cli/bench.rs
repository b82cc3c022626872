//! `perfquilt bench`: measures servers that are already built.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::Args;

use super::Context;
use super::choices;
use super::report;
use super::report_options::ReportOptions;
use super::series_as_written::SeriesChoice;
use perfquilt_build::Built;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Lanes, Layouts, Preset, parse_duration, parse_fraction, width_fault};
use perfquilt_measure::experiment::{self, Budget, Data, ExperimentRequest};
use perfquilt_measure::run::{Effects, RunRequest, Target, builder, is_separate, prepare};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;
use perfquilt_store::Store;
use perfquilt_system::process::quoted;

/// The preset of commands that name none.
pub(super) const DEFAULT_PRESET: &str = "quick";

/// Returns the recipe called `given`, else that of the default preset.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an unknown recipe.
pub(super) fn chosen_recipe<'n>(ws: &'n Workspace, given: Option<&'n str>) -> Result<&'n str> {
    let recipe = match given {
        Some(recipe) => recipe,
        None => &ws.config.preset(DEFAULT_PRESET)?.recipe,
    };
    ws.config.recipe(recipe)?;
    Ok(recipe)
}

/// Measurement options, shared by `run` and `bench`.
#[derive(Debug, Clone, Args)]
pub struct MeasuringOptions {
    /// Preset for building and measuring: a [preset.NAME] of the configuration
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PRESET)]
    preset: String,
    /// Workload to measure instead of the preset's; may be repeated
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<String>,
    /// Number of blocks instead of the preset's; the maximum with --resolution
    #[arg(long, value_name = "N", value_parser = choices::number::<u32>, overrides_with = "blocks")]
    blocks: Option<u32>,
    /// Variation of code layouts from block to block (default: the preset's, else padded where the servers
    /// can be relinked)
    #[arg(long, value_name = "HOW", value_parser = choices::layouts())]
    layouts: Option<Layouts>,
    /// Number of blocks to measure side by side, each on physical cores of its own: auto, or a number
    /// (default: the preset's, else auto)
    #[arg(long, value_name = "N")]
    lanes: Option<Lanes>,
    /// Measure on the machines of a cluster, with the settings of [cluster]: slurm or command (default: the
    /// preset's, else on this machine)
    #[arg(long, value_name = "ENGINE")]
    on: Option<String>,
    /// Stop once every patch's interval is within ±FRACTION of speed: 0.003 or 0.3%, at most 20%; 0 measures all
    /// blocks
    #[arg(long, value_name = "FRACTION", value_parser = parse_fraction, overrides_with = "resolution")]
    resolution: Option<f64>,
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    pub release: Option<String>,
    /// Point to measure; may be repeated (default: all; the bare release is always measured)
    #[arg(long = "point", value_name = "POINT")]
    points: Vec<Point>,
    /// Effects to measure of each patch: in the order of the series, alone on the bare release,
    /// without it against the whole series
    #[arg(
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        default_value = "order",
        value_parser = choices::effects()
    )]
    effects: Vec<Effects>,
    /// Time limit, builds included: 30m, 2h; measuring ends earlier when the resolution is reached
    /// (default: as long as the preset's blocks take)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "blocks")]
    budget: Option<Duration>,
    /// Measure every point, even where an earlier experiment's figures could be reused
    #[arg(long)]
    fresh: bool,
    /// Time each patch on all workloads, including those that do not execute the code it changes
    #[arg(long)]
    unexecuted: bool,
    #[command(flatten)]
    series: SeriesChoice,
}

impl MeasuringOptions {
    /// Returns the preset with the overrides of the flags.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an unknown preset or workload, or too few
    /// blocks.
    pub fn preset(&self, ws: &Workspace) -> Result<Preset> {
        let mut preset = ws.config.preset(&self.preset)?.clone();
        if !self.workloads.is_empty() {
            preset.workloads.clear();
            for name in &self.workloads {
                let name = ws.config.workload(name)?.name.clone();
                if !preset.workloads.contains(&name) {
                    preset.workloads.push(name);
                }
            }
        }
        let mut preset = with_blocks(preset, self.blocks)?;
        match self.resolution {
            Some(0.0) => (preset.resolution, preset.min_blocks) = (None, None),
            Some(resolution) => match width_fault("--resolution", resolution) {
                Some(fault) => return Err(Error::usage(fault)),
                None => preset.resolution = Some(resolution),
            },
            None => {}
        }
        preset.layouts = self.layouts.or(preset.layouts);
        preset.lanes = self.lanes.unwrap_or(preset.lanes);
        preset.on = self.on.clone().or(preset.on);
        Ok(preset)
    }

    /// Checks that the series has all work of its edit branch, as [`SeriesChoice::check`].
    pub fn check_series(&self, context: &Context, ws: &Workspace) -> Result<()> {
        self.series.check(context, ws, &[self.release.as_deref()])
    }

    /// Returns the words of the command `perfquilt NAME …` that measures with these options, for a shell. `--budget` is left
    /// out: it does not change what is measured. `--fresh` tells which experiment the command continues.
    pub fn command(&self, name: &str) -> Vec<String> {
        let mut words: Vec<String> = ["perfquilt", name, "--preset", &self.preset]
            .map(quoted)
            .to_vec();
        let mut add = |flag: &str, value: &str| words.push(format!("{flag} {}", quoted(value)));
        for workload in &self.workloads {
            add("--workload", workload);
        }
        if let Some(blocks) = self.blocks {
            add("--blocks", &blocks.to_string());
        }
        if let Some(layouts) = self.layouts {
            add("--layouts", choices::layouts_word(layouts));
        }
        if let Some(lanes) = self.lanes {
            add("--lanes", &lanes.to_string());
        }
        if let Some(on) = &self.on {
            add("--on", on);
        }
        if let Some(resolution) = self.resolution {
            add("--resolution", &resolution.to_string());
        }
        if let Some(release) = &self.release {
            add("--release", release);
        }
        for point in &self.points {
            add("--point", &point.to_string());
        }
        if self.effects != [Effects::Order] {
            let effects: Vec<&str> = self
                .effects
                .iter()
                .copied()
                .map(choices::effects_word)
                .collect();
            add("--effects", &effects.join(","));
        }
        if self.unexecuted {
            words.push("--unexecuted".to_owned());
        }
        if self.fresh {
            words.push("--fresh".to_owned());
        }
        words
    }

    /// Returns the requested points and effects; `command` makes the request.
    pub fn request(&self, preset: &Preset, command: Option<String>) -> RunRequest {
        RunRequest {
            command,
            points: self.points.clone(),
            effects: self.effects.clone(),
            fresh: self.fresh,
            time_unexecuted: self.unexecuted,
            budget: self.budget(preset),
        }
    }

    /// Returns the time that the command may take from here on, which `preset` limits.
    fn budget(&self, preset: &Preset) -> Option<Budget> {
        // A number of blocks replaces the preset's budget.
        let of_preset = preset.budget.filter(|_| self.blocks.is_none());
        self.budget.or(of_preset).map(|duration| Budget {
            begun: Instant::now(),
            duration,
        })
    }
}

/// Returns the preset with another number of blocks, if one is given.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for fewer than two blocks.
pub fn with_blocks(mut preset: Preset, blocks: Option<u32>) -> Result<Preset> {
    if let Some(blocks) = blocks {
        if blocks < 2 {
            return Err(Error::usage("an interval needs at least 2 blocks"));
        }
        preset.blocks = blocks;
        preset.min_blocks = preset.min_blocks.map(|least| least.min(blocks));
    }
    Ok(preset)
}

/// Returns the preset with another recipe, if one is given.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an unknown recipe.
pub fn with_recipe(ws: &Workspace, mut preset: Preset, recipe: Option<&str>) -> Result<Preset> {
    if let Some(recipe) = recipe {
        ws.config.recipe(recipe)?;
        recipe.clone_into(&mut preset.recipe);
    }
    Ok(preset)
}

/// Arguments of `perfquilt bench`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bench --workload oltp_point_select      every built point
  perfquilt bench --point 2 --blocks 40
  perfquilt bench --server 0=0 --server 1=0@pgo     plain and profile-guided
  perfquilt bench --server 0=0 --server 1=11.8.6:0  two releases
  perfquilt bench --server 0=old/ --server 1=new/   servers built elsewhere")]
pub struct Arguments {
    #[command(flatten)]
    measuring: MeasuringOptions,
    /// Server to measure as this point: [RELEASE:]POINT[@RECIPE], built if necessary, or the folder of a
    /// server built elsewhere, laid out as the recipe's `install`
    #[arg(long = "server", value_name = "POINT=SERVER", value_parser = parse_server,
          conflicts_with_all = ["points", "release", "effects"])]
    servers: Vec<(Point, String)>,
    #[command(flatten)]
    report: ReportOptions,
}

impl Arguments {
    /// Returns this command for a shell, without what only concerns its report.
    fn command(&self) -> String {
        let mut words = self.measuring.command("bench");
        for (point, server) in &self.servers {
            words.push(format!("--server {}", quoted(&format!("{point}={server}"))));
        }
        words.join(" ")
    }
}

fn parse_server(text: &str) -> Result<(Point, String), String> {
    let (point, server) = text.split_once('=').ok_or("POINT=SERVER is needed")?;
    let point: Point = point.parse().map_err(|error: Error| error.to_string())?;
    if point == Point::Control {
        return Err("the control is added automatically: it is the base's server again".into());
    }
    Ok((point, server.to_owned()))
}

/// Runs `perfquilt bench`.
///
/// # Errors
/// Those of [`experiment::run`]; [`Kind::Build`](perfquilt_model::error::Kind::Build) when no point but the release
/// is built; after the report, [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when a point could not be
/// measured.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    arguments.report.check(context)?;
    let named = arguments.servers.iter();
    let releases: Vec<_> = match named.len() {
        0 => vec![arguments.measuring.release.as_deref()],
        _ => named.filter_map(|(_, name)| Target::series(name)).collect(),
    };
    arguments.measuring.series.check(context, &ws, &releases)?;
    let progress = context.output.progress();
    let preset = arguments.measuring.preset(&ws)?;
    let (points, mut header, data) = if arguments.servers.is_empty() {
        let (points, header) = built_here(&ws, &preset, &arguments.measuring, progress)?;
        (points, header, Data::new())
    } else {
        named_servers(&ws, &preset, &arguments.servers, progress)?
    };
    header.command = Some(arguments.command());
    let request = ExperimentRequest {
        points: &points,
        data: &data,
        fresh: arguments.measuring.fresh,
        time_unexecuted: arguments.measuring.unexecuted,
        budget: arguments.measuring.budget(&preset),
    };
    let store = Store::open(&ws.results())?;
    let outcome = experiment::run(&ws, &preset, &request, header, &store, progress);
    let outcome = report::show_stopped(
        context,
        &arguments.report,
        &ws,
        (&store, store.current()),
        outcome,
    )?;
    let judged = report::show_stored(context, &arguments.report, &ws, &store, outcome.id);
    let errors = judged.err().into_iter().chain(outcome.failed.into_values());
    context.output.errors(errors.collect())
}

/// Returns the points whose servers are in the cache.
fn built_here(
    ws: &Workspace,
    preset: &Preset,
    measuring: &MeasuringOptions,
    progress: &dyn Progress,
) -> Result<(Vec<(Point, Built)>, ExperimentHeader)> {
    let prepared = prepare(ws, measuring.release.as_deref(), progress)?;
    let builder = builder(ws, &preset.recipe, &prepared)?;
    let patches = prepared.series.patches();
    let mut points = Vec::new();
    let mut missing = BTreeMap::new();
    let mut unbuilt = Vec::new();
    for point in measuring.request(preset, None).points(&prepared)? {
        let tree = match prepared.stack.tree(point) {
            Err(error) if is_separate(point) && error.kind() == Kind::Series => {
                progress.note(&error.to_string());
                missing.insert(point, error.message().to_owned());
                continue;
            }
            tree => tree?,
        };
        match builder.cached(&tree) {
            Some(built) => points.push((point, built)),
            None => {
                unbuilt.push(point);
                missing.insert(point, "not built".to_owned());
            }
        }
    }
    for point in &unbuilt {
        progress.warn(&format!("leaving out point {point}, which is not built"));
    }
    if points.len() < 2 || missing.contains_key(&Point::BASE) {
        return Err(too_few(&unbuilt, &preset.recipe, measuring));
    }
    let mut header = ExperimentHeader::new(&prepared.release.name, &preset.recipe);
    header.series = patches.iter().map(|patch| patch.name.clone()).collect();
    header.titles = patches.iter().map(|patch| patch.title.clone()).collect();
    header.failed = missing;
    Ok((points, header))
}

/// Returns the error for fewer than two built points; `unbuilt` are those that could be built.
fn too_few(unbuilt: &[Point], recipe: &str, measuring: &MeasuringOptions) -> Error {
    if unbuilt.is_empty() {
        return Error::usage("there is nothing to compare: the release is the only point")
            .hint("name others with `--point`; without it, every point of the series is measured");
    }
    let mut words = vec!["perfquilt build".to_owned(), format!("--recipe {recipe}")];
    let release = measuring.release.iter();
    words.extend(release.map(|release| format!("--release {release}")));
    // Without arguments, `build` builds the points in order.
    if unbuilt.iter().any(|point| is_separate(*point)) {
        words.extend(unbuilt.iter().map(Point::to_string));
    }
    Error::build("there is nothing to compare: too few points are built").hint(format!(
        "`{}` builds them, `perfquilt run` builds and measures",
        words.join(" ")
    ))
}

/// Servers to measure, their header, and the data of those of other releases.
type NamedServers = (Vec<(Point, Built)>, ExperimentHeader, Data);

/// Finds the servers of `--server`, and the data of those of another release than the first one's.
fn named_servers(
    ws: &Workspace,
    preset: &Preset,
    servers: &[(Point, String)],
    progress: &dyn Progress,
) -> Result<NamedServers> {
    let given: Vec<Point> = servers.iter().map(|(point, _)| *point).collect();
    check_points(&given)?;
    let mut targets: BTreeMap<Point, Target> = BTreeMap::new();
    for (point, name) in servers {
        let target = Target::find(ws, name, &preset.recipe, progress)?;
        targets.insert(*point, target);
    }
    let base = &targets[&Point::BASE];
    let mut header =
        ExperimentHeader::new(&base.release, base.recipe.as_deref().unwrap_or_default());
    header.base = Some(base.label.clone());
    let label = |target: &Target| target.label.clone();
    let at = |k: usize| [Point::Step(k), Point::Alone(k), Point::Without(k)];
    let last = targets
        .keys()
        .filter_map(|point| patch_number(*point))
        .max();
    header.series = (1..=last.unwrap_or(0))
        .filter_map(|k| {
            let mut found = at(k).into_iter().filter_map(|point| targets.get(&point));
            found.next().map(label)
        })
        .collect();
    let release = base.release.clone();
    let adapter = perfquilt_bench::server::adapter(ws)?;
    // A folder may hold any version; where it can, it gets the first server's data, as if it were a point.
    // That server's own data must not be taken for the data of the workspace's release.
    let other = |point: Point, target: &Target| {
        let is_release = target.tree.is_some() && target.release != release;
        let is_folder = point == Point::BASE && target.tree.is_none();
        is_release || is_folder || !adapter.shares_data(&target.base, &base.base)
    };
    let data: Data = targets
        .iter()
        .filter(|(point, target)| other(**point, target))
        .map(|(point, target)| (*point, (target.data.clone(), target.base.clone())))
        .collect();
    let built = targets.into_iter();
    let built = built.map(|(point, target)| (point, target.built));
    Ok((built.collect(), header, data))
}

/// Checks that the points `given` to servers are distinct, include the base and have no gaps.
fn check_points(given: &[Point]) -> Result<()> {
    let points: BTreeSet<Point> = given.iter().copied().collect();
    if points.len() < given.len() {
        let twice = |point: &&Point| given.iter().filter(|other| other == point).count() > 1;
        let twice = given.iter().find(twice).unwrap_or(&Point::BASE);
        return Err(Error::usage(format!("point {twice} is given twice")));
    }
    if !points.contains(&Point::BASE) {
        return Err(Error::usage("there is nothing to compare with")
            .hint("`--server 0=…` names the server all others are compared with"));
    }
    let numbers: BTreeSet<usize> = points.into_iter().filter_map(patch_number).collect();
    let last = numbers.last().copied().unwrap_or(0);
    match (1..=last).find(|k| !numbers.contains(k)) {
        Some(gap) => Err(
            Error::usage(format!("there is a point {last}, but no point {gap}"))
                .hint("`--server` numbers servers without gaps: 0, 1, 2"),
        ),
        None => Ok(()),
    }
}

/// Returns the number of the patch that the point belongs to; `None` for the base.
fn patch_number(point: Point) -> Option<usize> {
    match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => Some(k).filter(|k| *k > 0),
        Point::Control => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_point() {
        assert_eq!(
            parse_server("alone:2=a/b"),
            Ok((Point::Alone(2), "a/b".to_owned()))
        );
        for wrong in ["2", "x=a", "control=a"] {
            assert!(parse_server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn servers_are_numbered_without_gaps() {
        let check = |points: &[Point]| check_points(points).map_err(|e| e.message().to_owned());
        let steps = |numbers: &[usize]| -> Vec<Point> {
            numbers.iter().copied().map(Point::Step).collect()
        };
        assert_eq!(check(&steps(&[0, 2, 1])), Ok(()));
        assert_eq!(
            check(&[Point::BASE, Point::Alone(1), Point::Step(2)]),
            Ok(())
        );
        let gap = "there is a point 9, but no point 2".to_owned();
        assert_eq!(check(&steps(&[0, 1, 9])), Err(gap));
        let twice = "point 1 is given twice".to_owned();
        assert_eq!(check(&steps(&[0, 1, 1])), Err(twice));
        assert!(check(&steps(&[1])).is_err());
    }
}
