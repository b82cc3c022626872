//! The main job: stacks, builds and measures a series.

pub mod bisect;
mod built;
mod checked_out;
pub mod commits;
mod explain;
mod jobs;
mod named;
mod next_step;
mod profiled;
mod reach;
mod rebased;
pub mod releases;
pub mod request;
pub mod revisions;
mod sandboxed;
mod server_tests;
mod servers;
pub mod sessions;
pub mod step;
#[cfg(test)]
pub(crate) mod testing;
mod training;
pub mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::experiment::{self, Budget, Forecast, ReusePolicy, Server, Servers};
use perfquilt_bench::server;
use perfquilt_build::{BuildItem, Built, Changes, SourceTree};
use perfquilt_config::Preset;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::{ExperimentHeader, PointBuild};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_rebase::PointTrees;
use perfquilt_series::series::Series;
use perfquilt_series::stack::{self, Stack, Worktree};
use perfquilt_series::upstream::{self, Release};
use perfquilt_store::{ExperimentId, Store};
use serde::Serialize;

pub use built::BuiltServer;
use jobs::PointBuilder;
pub use jobs::build_task;
pub use named::{FoundServer, NamedServer, series_of};
pub use next_step::{NextStep, measured_as_it_is, next_step};
pub use profiled::FreshLinks;
pub use rebased::build_rebased;
pub use sandboxed::{SandboxArea, run_in_sandbox};
pub use server_tests::{new_failures, test_points};
pub use training::{builder, builder_on};

/// A series applied to a release.
#[derive(Debug)]
pub struct Prepared {
    /// The release.
    pub release: Release,
    /// The series.
    pub series: Series,
    /// The stack.
    pub stack: Stack,
}

/// Fetches and imports the release if necessary, and applies the series to it.
pub fn prepare(ws: &Workspace, release: Option<&str>) -> Result<Prepared> {
    prepare_with(ws, release, ws.config.series.fuzz)
}

/// Prepares a release like [`prepare`]; a hunk may ignore `fuzz` lines of context.
pub fn prepare_with(ws: &Workspace, release: Option<&str>, fuzz: usize) -> Result<Prepared> {
    let series = Series::load_for(ws, release)?;
    let release = upstream::ensure(ws, release)?;
    let stack = stack::apply_with(ws, &release, &series, fuzz)
        .map_err(|error| of_another_release(ws, &release, error))?;
    Ok(Prepared {
        release,
        series,
        stack,
    })
}

/// Adds the hint to rebase the current release's series when it does not apply to another release.
fn of_another_release(ws: &Workspace, release: &Release, error: Error) -> Error {
    let version = &release.version;
    let configured = ws.config.release(Some(version));
    let has_own = configured.is_ok_and(|release| release.patches.is_some());
    if error.kind() == Kind::Series && *version != ws.config.upstream.current && !has_own {
        error.hint(format!(
            "the series is that of {}; `perfquilt rebase {version}` moves it to this release",
            ws.config.upstream.current
        ))
    } else {
        error
    }
}

/// Source trees of a workspace's object store.
#[derive(Debug)]
pub struct StoredTrees {
    store: PathBuf,
}

impl StoredTrees {
    /// Opens the trees of the object store of `ws`.
    pub fn new(ws: &Workspace) -> Self {
        StoredTrees {
            store: ws.object_store(),
        }
    }
}

impl SourceTree for StoredTrees {
    fn changes(&self, tree: &str, dir: &Path) -> Result<Option<Changes>> {
        let paths = Worktree::open(&self.store, dir)?.changes(tree)?;
        let text =
            |(path, kept): (Vec<u8>, bool)| (String::from_utf8_lossy(&path).into_owned(), kept);
        Ok(paths.map(|paths| paths.into_iter().map(text).collect()))
    }

    fn move_to(&self, tree: &str, dir: &Path) -> Result<()> {
        Worktree::open(&self.store, dir)?.move_to(tree)?;
        Ok(())
    }
}

/// A point with its server, or the error of its build.
#[derive(Debug)]
pub struct BuiltPoint {
    /// The point.
    pub point: Point,
    /// The release, or the patch that makes the point, for display.
    pub label: String,
    /// The server.
    pub built: Result<Built>,
}

/// Builds `points` with the recipe called `recipe` on this machine, or as jobs of the scheduler `on`. The other points are
/// built even if one fails; only an interruption ends the build early.
pub fn build_points(
    ws: &Workspace,
    prepared: &Prepared,
    (recipe, on): (&str, Option<&str>),
    points: &[Point],
) -> Result<Vec<BuiltPoint>> {
    let base = build_item(prepared, Point::BASE)?;
    let points_builder = PointBuilder::new(ws, recipe, on, base)?;
    let (items, absent) = build_items(prepared, points)?;
    let absent = absent.into_iter().map(|(point, error)| BuiltPoint {
        point,
        label: point.to_string(),
        built: Err(error),
    });
    let mut done: Vec<BuiltPoint> = absent.collect();
    for (item, built) in items.iter().zip(points_builder.build(&items)?) {
        let point = item.point;
        match &built {
            Err(error) if matches!(error.kind(), Kind::Interrupted | Kind::Usage) => {
                return Err(error.clone());
            }
            Err(error) => progress::warn(error.warning(format!("point {point} failed"))),
            Ok(built) if built.cached => {
                progress::note(&format!("point {point}: {} is in the cache", item.label));
            }
            Ok(_) => {}
        }
        done.push(BuiltPoint {
            point,
            label: item.label.clone(),
            built,
        });
    }
    done.sort_by_key(|built| points.iter().position(|point| *point == built.point));
    Ok(done)
}

/// Returns whether a point exists only to isolate the effect of one patch. A failure to build it is a result,
/// not an error.
pub fn is_separate(point: Point) -> bool {
    matches!(point, Point::Alone(_) | Point::Without(_))
}

/// Returns the items of `points`, and the points that do not exist because other patches stand on one, with the reasons,
/// which are also noted.
fn build_items(
    prepared: &Prepared,
    points: &[Point],
) -> Result<(Vec<BuildItem>, BTreeMap<Point, Error>)> {
    let mut items = Vec::new();
    let mut absent = BTreeMap::new();
    for &point in points {
        match build_item(prepared, point) {
            Err(error) if is_separate(point) && error.kind() == Kind::Series => {
                progress::note(&error.to_string());
                absent.insert(point, error);
            }
            item => items.push(item?),
        }
    }
    Ok((items, absent))
}

fn build_item(prepared: &Prepared, point: Point) -> Result<BuildItem> {
    let release = &prepared.release.name;
    let patches = prepared.series.patches();
    let patch = point.patch().map(|k| patches[k - 1].name.clone());
    Ok(BuildItem {
        label: match (&patch, point) {
            (None, _) => release.clone(),
            (Some(patch), Point::Without(_)) => format!("{release} without {patch}"),
            (Some(patch), Point::Alone(_)) => format!("{release} with {patch} alone"),
            (Some(patch), _) => format!("{release} up to {patch}"),
        },
        point,
        tree: prepared.stack.tree(point)?,
        base: prepared.stack.tree(Point::BASE)?,
        patch,
        touches: touched(prepared, point),
        release: release.clone(),
    })
}

/// Returns the files that the patch which makes `point` changes, for the error when it does not compile.
fn touched(prepared: &Prepared, point: Point) -> Vec<String> {
    let (Point::Step(k) | Point::Alone(k)) = point else {
        return Vec::new();
    };
    let files = prepared.series.patch(k).map(|patch| &patch.files);
    let paths = files
        .into_iter()
        .flatten()
        .filter_map(|file| file.new.as_ref().or(file.old.as_ref()));
    paths
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect()
}

/// The result of a run.
#[derive(Debug)]
pub struct MeasuredRun {
    /// The experiment in the workspace's store.
    pub experiment: ExperimentId,
    /// Points whose build failed, with the whole error.
    pub build_errors: BTreeMap<Point, Error>,
    /// Points and workloads that failed while being measured.
    pub failed: experiment::Failed,
    /// The error that ended measuring early, if any: a signal, or a failed server of the bare release. Blocks
    /// measured before it count.
    pub stopped: Option<Error>,
    /// Faults of the server's own tests, if they ran.
    pub tests: TestFailures,
}

impl MeasuredRun {
    /// Returns the failures of the run: what ended it, then those of workloads and of single points.
    pub fn failures(&self) -> Vec<Failure> {
        let stopped = self.stopped.iter().map(|error| Failure::new(error, None));
        let points = self.build_errors.iter().chain(&self.failed.points);
        let workloads = self.failed.workloads.values();
        stopped
            .chain(workloads.map(|error| Failure::new(error, None)))
            .chain(points.map(|(&point, error)| Failure::new(error, Some(point))))
            .chain(
                self.tests
                    .lacking
                    .iter()
                    .map(|(point, error)| Failure::new(error, *point)),
            )
            .collect()
    }
}

/// A run of the series: its settings, and the receiver of its progress.
#[derive(Clone, Copy)]
pub struct RunJob<'a> {
    /// The workspace.
    pub ws: &'a Workspace,
    /// The settings.
    pub preset: &'a Preset,
    /// The points and effects.
    pub wanted: &'a RunRequest,
}

impl RunJob<'_> {
    /// Measures the points of `release` (`None`: the current one). Takes existing results from the caches and the store.
    ///
    /// # Errors
    /// The errors of its steps; points that cannot be built or measured are in the outcome instead, as
    /// long as the bare release can.
    pub fn run(&self, release: Option<&str>) -> Result<MeasuredRun> {
        let (ws, preset) = (self.ws, self.preset);
        let prepared = prepare(ws, release)?;
        let points = self.wanted.points(&prepared)?;
        // A fault of the server's section should not wait until everything is built.
        server::adapter(ws)?;
        let how = (preset.recipe.as_str(), preset.on.as_deref());
        let built = build_points(ws, &prepared, how, &points)?;
        let tests = if preset.test {
            self.test(&prepared, &built)?
        } else {
            TestFailures::default()
        };
        let mut outcome = self.measure(&prepared, built)?;
        outcome.tests = tests;
        Ok(outcome)
    }

    /// Returns the forecast of [`RunJob::run`]. Applies the series, and builds and measures nothing.
    pub fn foresee(&self, release: Option<&str>) -> Result<RunForecast> {
        let (ws, preset, wanted) = (self.ws, self.preset, self.wanted);
        let prepared = prepare(ws, release)?;
        let builder = builder(ws, &preset.recipe, &prepared)?;
        let mut points = Vec::new();
        let mut unbuilt = Vec::new();
        for point in wanted.points(&prepared)? {
            let tree = match prepared.stack.tree(point) {
                // A patch that others stand on has no such point.
                Err(error) if is_separate(point) && error.kind() == Kind::Series => continue,
                tree => tree?,
            };
            let built = builder.cached(&tree);
            if built.is_none() {
                unbuilt.push(point);
            }
            points.push((point, built.map(|built| built.identity)));
        }
        let header = self.header(&prepared);
        let budget = wanted.budget.map(|budget| budget.duration);
        let question = experiment::Foreseen {
            points: &points,
            time_unexecuted: wanted.time_unexecuted,
            budget,
        };
        let (mut forecast, is_measured) = experiment::foresee(ws, preset, &question, header)?;
        if prepared.series.patches().is_empty() {
            // There is nothing to compare the release with.
            forecast = Forecast {
                blocks: 0,
                most_blocks: 0,
                count_blocks: 0,
                seconds: 0.0,
                ..forecast
            };
        }
        Ok(RunForecast {
            release: prepared.release.name.clone(),
            unbuilt,
            is_measured,
            forecast,
        })
    }

    /// Runs the server's own tests at the points of the series that were built. A suite that does not run is no reason not
    /// to measure.
    fn test(&self, prepared: &Prepared, built: &[BuiltPoint]) -> Result<TestFailures> {
        let has_server = |built: &&BuiltPoint| built.built.is_ok();
        let points: Vec<Point> = built
            .iter()
            .filter(has_server)
            .map(|built| built.point)
            .filter(|point| !is_separate(*point))
            .collect();
        if !points.contains(&Point::BASE) {
            return Ok(TestFailures::default());
        }
        let recipe = &self.preset.recipe;
        match test_points(self.ws, prepared, recipe, &points) {
            Ok(tested) => Ok(TestFailures {
                new: new_failures(&tested),
                lacking: tested
                    .into_iter()
                    .filter_map(|tested| Some((Some(tested.point), tested.tests.err()?)))
                    .collect(),
            }),
            Err(error) if matches!(error.kind(), Kind::Interrupted | Kind::Usage) => Err(error),
            Err(error) => {
                let words = "the server's own tests did not run";
                progress::warn(error.warning(words));
                Ok(TestFailures {
                    lacking: vec![(None, error)],
                    new: None,
                })
            }
        }
    }

    /// Returns the header of an experiment on the series.
    fn header(&self, prepared: &Prepared) -> ExperimentHeader {
        let mut header = ExperimentHeader::new(&prepared.release.name, &self.preset.recipe);
        let patches = prepared.series.patches().iter();
        (header.series, header.titles) = patches
            .map(|patch| (patch.name.clone(), patch.title.clone()))
            .unzip();
        header.command.clone_from(&self.wanted.command);
        header.commit.clone_from(&self.wanted.commit);
        header
    }

    fn measure(&self, prepared: &Prepared, built: Vec<BuiltPoint>) -> Result<MeasuredRun> {
        let (ws, preset) = (self.ws, self.preset);
        let mut header = self.header(prepared);
        let mut measurable = BTreeMap::new();
        let mut build_errors = BTreeMap::new();
        for point in built {
            match point.built {
                Ok(server) => {
                    measurable.insert(point.point, server);
                }
                Err(error) if point.point == Point::BASE => return Err(error),
                Err(error) if is_separate(point.point) => {
                    let reason = error.message().to_owned();
                    header.failed.insert(point.point, reason);
                }
                Err(error) => {
                    header.failed.insert(point.point, error.to_string());
                    build_errors.insert(point.point, error);
                }
            }
        }
        reach::describe(ws, prepared, &measurable, &mut header)?;
        let binary = ws.config.recipe(&preset.recipe)?.binary.as_deref();
        let builds = measurable.iter();
        let builds: Vec<PointBuild> = builds
            .map(|(point, server)| server.record(*point, binary))
            .collect();
        let servers = measurable.iter();
        let servers = servers.map(|(&point, built)| (point, Server::new(point, built, &header)));
        let servers = servers.collect();
        Ok(MeasuredRun {
            build_errors,
            ..self.measure_points(header, &servers, &builds)?
        })
    }

    /// Measures built points with the settings of `preset`, and stores the observations and the records of their builds.
    fn measure_points(
        &self,
        header: ExperimentHeader,
        servers: &Servers,
        builds: &[PointBuild],
    ) -> Result<MeasuredRun> {
        let ws = self.ws;
        let store = Store::open(&ws.results())?;
        let request = experiment::ExperimentRequest {
            servers,
            reuse: if ws.answers().is_fresh() {
                ReusePolicy::Repeat
            } else {
                ReusePolicy::Reuse
            },
            time_unexecuted: self.wanted.time_unexecuted,
            budget: self.wanted.budget,
        };
        let measured = experiment::run(ws, self.preset, &request, header, &store);
        let (experiment, failed, stopped) = match measured {
            Ok(outcome) => (outcome.id, outcome.failed, None),
            Err(error) => match store.current() {
                Some(experiment) => (experiment, experiment::Failed::default(), Some(error)),
                None => return Err(error),
            },
        };
        store.record_builds(experiment, builds)?;
        Ok(MeasuredRun {
            experiment,
            build_errors: BTreeMap::new(),
            failed,
            stopped,
            tests: TestFailures::default(),
        })
    }
}

/// Why tests of a run have no results, and the error that names those that newly fail.
#[derive(Debug, Default)]
pub struct TestFailures {
    /// Points without results; `None` stands for all of them.
    pub lacking: Vec<(Option<Point>, Error)>,
    /// The patches with which tests newly fail.
    pub new: Option<Error>,
}

/// A run as it is expected to be.
#[derive(Debug, Serialize)]
pub struct RunForecast {
    /// The release.
    pub release: String,
    /// The points that are not built.
    pub unbuilt: Vec<Point>,
    /// Whether earlier figures answer everything, so that nothing is measured.
    pub is_measured: bool,
    /// The measurements.
    #[serde(flatten)]
    pub forecast: Forecast,
}

/// The kinds of effects of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// Against the point before it.
    Order,
    /// On the bare release, without the other patches.
    Alone,
    /// The whole series against the series without it.
    Without,
}

/// The points and effects that a run measures.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// The points to measure; if empty, all of the series in order.
    pub points: Vec<Point>,
    /// Effects of the patches to measure; those in order are always included.
    pub effects: Vec<Effects>,
    /// Whether to time workloads that do not execute the code that a patch changes, too.
    pub time_unexecuted: bool,
    /// The time that the command may take; `None` without a limit.
    pub budget: Option<Budget>,
    /// The command that makes this request, for the experiment's header.
    pub command: Option<String>,
    /// The commit of the workspace, if all of its files are in it, likewise.
    pub commit: Option<String>,
}

impl RunRequest {
    /// Returns the points to build and measure, the bare release first.
    pub fn points(&self, prepared: &Prepared) -> Result<Vec<Point>> {
        let count = prepared.series.patches().len();
        let mut points: Vec<Point> = (0..=count).map(Point::Step).collect();
        if !self.points.is_empty() {
            points = vec![Point::BASE];
            points.extend_from_slice(&self.points);
            points.retain(|point| *point != Point::Control);
        }
        for point in points.clone() {
            if point.patch() > Some(count) {
                return Err(Point::beyond(&format!("point {point}"), count));
            }
            if let Some(k) = point.step() {
                if self.effects.contains(&Effects::Alone) {
                    points.push(Point::Alone(k));
                }
                if self.effects.contains(&Effects::Without) {
                    points.extend([Point::Without(k), Point::Step(count)]);
                }
            }
        }
        points.sort_unstable();
        points.dedup();
        Ok(points)
    }
}
