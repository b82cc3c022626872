//! `perfquilt bench`: measures servers that are built already.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;

use super::Context;
use super::choices;
use super::form::Form;
use super::report;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Layouts, Preset};
use perfquilt_machine::build::Built;
use perfquilt_measure::experiment::{self, Asked, Data};
use perfquilt_measure::run::{Effects, Target, Wanted, builder, is_separate, prepare};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;
use perfquilt_store::Store;

/// What is measured; shared by the commands that measure.
#[derive(Debug, Clone, Args)]
pub struct Measuring {
    /// What to measure: a [preset.NAME] of the configuration
    #[arg(long, value_name = "NAME", default_value = "quick")]
    preset: String,
    /// Other workloads than the preset's
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<String>,
    /// Another number of blocks than the preset's; the most there may be, where the experiment ends
    /// by itself
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// How the code layouts of the servers vary from block to block (default: as the preset says, else
    /// padded where the servers can be linked again)
    #[arg(long, value_name = "HOW", value_parser = choices::layouts())]
    layouts: Option<Layouts>,
    /// End when every patch's interval is at most ± this fraction of speed: 0.003 is 0.3 %; 0 measures
    /// all blocks
    #[arg(long, value_name = "FRACTION")]
    resolution: Option<f64>,
    /// The release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    pub release: Option<String>,
    /// Only these points (the bare release is always one of them)
    #[arg(long = "point", value_name = "POINT")]
    points: Vec<Point>,
    /// What to measure of each patch: its effect in the series' order, alone on the bare release,
    /// and by leaving it out of the whole series
    #[arg(
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        default_value = "order",
        value_parser = choices::effects()
    )]
    effects: Vec<Effects>,
    /// Measure every point, also what an earlier experiment measured already and would be carried over
    #[arg(long)]
    fresh: bool,
}

impl Measuring {
    /// The preset with what the flags change.
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
            Some(resolution) if resolution > 0.0 && resolution < 1.0 => {
                preset.resolution = Some(resolution);
            }
            Some(_) => {
                return Err(Error::usage("--resolution is a fraction of speed")
                    .hint("0.003 ends the experiment at intervals of ±0.3 %"));
            }
            None => {}
        }
        preset.layouts = self.layouts.or(preset.layouts);
        Ok(preset)
    }

    /// The points and effects asked for.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            points: self.points.clone(),
            effects: self.effects.clone(),
            fresh: self.fresh,
        }
    }
}

/// The preset with another number of blocks, if one is asked for.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for too few.
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

/// The preset with another recipe, if one is asked for.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an unknown one.
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
  perfquilt bench --workload oltp_point_select     every point that is built
  perfquilt bench --point 2 --blocks 40
  perfquilt bench --server 0=0 --server 1=0@pgo    the release, plain and profile-guided
  perfquilt bench --server 0=0 --server 1=11.8.6:0 two releases
  perfquilt bench --server 0=old/ --server 1=new/  servers built elsewhere")]
pub struct Arguments {
    #[command(flatten)]
    measuring: Measuring,
    /// A server to measure as this point: [RELEASE:]POINT[@RECIPE], which is built if need be, or the
    /// folder of one built elsewhere, laid out as the recipe's `install` says
    #[arg(long = "server", value_name = "POINT=SERVER", value_parser = parse_server,
          conflicts_with_all = ["points", "release", "effects"])]
    servers: Vec<(Point, String)>,
    #[command(flatten)]
    form: Form,
}

fn parse_server(text: &str) -> Result<(Point, String), String> {
    let (point, server) = text.split_once('=').ok_or("POINT=SERVER is needed")?;
    let point: Point = point.parse().map_err(|error: Error| error.to_string())?;
    if point == Point::Control {
        return Err("the control is added by itself: it is the base's server again".into());
    }
    Ok((point, server.to_owned()))
}

/// Runs `perfquilt bench`.
///
/// # Errors
/// As [`experiment::run`]; [`Kind::Build`](perfquilt_model::error::Kind::Build) when no point but the release
/// is built; after the report, [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when a point could not be
/// measured.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    arguments.form.check(context)?;
    let progress = context.output.progress();
    let preset = arguments.measuring.preset(&ws)?;
    let (points, header, data) = if arguments.servers.is_empty() {
        let (points, header) = built_here(&ws, &preset, &arguments.measuring, progress)?;
        (points, header, Data::new())
    } else {
        named(&ws, &preset, &arguments.servers, progress)?
    };
    let asked = Asked {
        points: &points,
        data: &data,
        fresh: arguments.measuring.fresh,
    };
    let store = Store::open(&ws.results())?;
    let outcome = experiment::run(&ws, &preset, &asked, header, &store, progress)?;
    let judged = report::stored(context, &arguments.form, &ws, &store, outcome.id);
    let errors = judged.err().into_iter().chain(outcome.failed.into_values());
    context.output.errors(errors.collect())
}

/// The points that are in the cache of built servers.
fn built_here(
    ws: &Workspace,
    preset: &Preset,
    measuring: &Measuring,
    progress: &dyn Progress,
) -> Result<(Vec<(Point, Built)>, ExperimentHeader)> {
    let prepared = prepare(ws, measuring.release.as_deref(), progress)?;
    let builder = builder(ws, &preset.recipe, &prepared)?;
    let patches = prepared.series.patches();
    let mut points = Vec::new();
    let mut missing = BTreeMap::new();
    let mut unbuilt = Vec::new();
    for point in measuring.wanted().points(&prepared)? {
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
        progress.warn(&format!("point {point} is not built and left out"));
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

/// The error where fewer than two points are there; `unbuilt` are those that could be built.
fn too_few(unbuilt: &[Point], recipe: &str, measuring: &Measuring) -> Error {
    if unbuilt.is_empty() {
        return Error::usage("there is nothing to compare: the release is the only point there is")
            .hint("`--point` names others; without it, every point of the series is one");
    }
    let mut words = vec!["perfquilt build".to_owned(), format!("--recipe {recipe}")];
    let release = measuring.release.iter();
    words.extend(release.map(|release| format!("--release {release}")));
    // Those in order are built unless others are named.
    if unbuilt.iter().any(|point| is_separate(*point)) {
        words.extend(unbuilt.iter().map(Point::to_string));
    }
    Error::build("there is nothing to compare: too few points are built").hint(format!(
        "`{}` builds them, `perfquilt run` builds and measures",
        words.join(" ")
    ))
}

/// Servers, what is known of them, and the data of those of other releases.
type Named = (Vec<(Point, Built)>, ExperimentHeader, Data);

/// Servers by name, and the data of those of another release than the first one's.
fn named(
    ws: &Workspace,
    preset: &Preset,
    servers: &[(Point, String)],
    progress: &dyn Progress,
) -> Result<Named> {
    let given: Vec<Point> = servers.iter().map(|(point, _)| *point).collect();
    check_points(&given)?;
    let mut targets: BTreeMap<Point, Target> = BTreeMap::new();
    for (point, name) in servers {
        let target = Target::find(ws, name, &preset.recipe, progress)?;
        targets.insert(*point, target);
    }
    let base = &targets[&Point::BASE];
    let mut header = ExperimentHeader::new(&base.release, &base.recipe);
    header.base = base.label.clone();
    let label = |target: &Target| target.label.clone();
    let at = |k: usize| [Point::Step(k), Point::Alone(k), Point::Without(k)];
    let last = targets.keys().filter_map(|point| place(*point)).max();
    header.series = (1..=last.unwrap_or(0))
        .filter_map(|k| {
            let mut found = at(k).into_iter().filter_map(|point| targets.get(&point));
            found.next().map(label)
        })
        .collect();
    let release = base.release.clone();
    // Folders may hold any version; they get the first server's data, as if they were points.
    let other = |target: &Target| target.tree.is_some() && target.release != release;
    let data: Data = targets
        .iter()
        .filter(|(_, target)| other(target))
        .map(|(point, target)| (*point, (target.data.clone(), target.base.clone())))
        .collect();
    let built = targets.into_iter();
    let built = built.map(|(point, target)| (point, target.built));
    Ok((built.collect(), header, data))
}

/// Checks that each of the points `given` to servers is there once, the base too, and none before it is missing.
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
    let places: BTreeSet<usize> = points.into_iter().filter_map(place).collect();
    let last = places.last().copied().unwrap_or(0);
    match (1..=last).find(|k| !places.contains(k)) {
        Some(gap) => Err(
            Error::usage(format!("there is a point {last}, but no point {gap}"))
                .hint("`--server` numbers servers without gaps: 0, 1, 2"),
        ),
        None => Ok(()),
    }
}

/// Which patch's point it is; `None` for the base.
fn place(point: Point) -> Option<usize> {
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
