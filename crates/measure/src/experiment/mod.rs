//! Experiments: a pure function plans randomised blocks over all points, an executor (this machine) measures
//! them, and the store keeps each block, so that an interrupted experiment resumes where it stopped.

pub(crate) mod adaptive;
mod attempt;
mod basis;
mod cluster;
pub mod collected;
mod design;
mod driver;
mod executor;
mod failed;
mod fleet;
mod forecast;
mod identity;
mod key;
mod lanes;
mod lengths;
mod links;
mod lock;
mod machine;
mod note;
mod open;
pub mod plan;
mod planned;
pub(crate) mod private;
pub mod readings;
pub mod recorder;
mod remaining;
mod reuse;
mod servers;
#[cfg(test)]
mod simulation_tests;
mod site;
pub(crate) mod spec;
#[cfg(test)]
mod stage_tests;
mod stopping;
mod strategy;
mod unexecuted;
mod values;
mod windows;

use std::collections::BTreeMap;
use std::time::Duration;

use perfquilt_build::Built;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Layouts, Preset};
use perfquilt_judge::attribution::Stopping;
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, PlannedBlocks};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_store::Store;

pub use attempt::ReusePolicy;
use attempt::{Attempt, reusable};
pub use cluster::{answer_execution, answer_facts, measure_blocks};
pub(crate) use cluster::{ask as ask_cluster, scheduler as cluster_scheduler};
use design::Design;
pub use failed::Failed;
pub use forecast::{Forecast, NoiseSource};
pub use open::MeasuredExperiment;
use open::OpenExperiment;
use plan::{Block, BlockKind};
pub use planned::Budget;
use planned::{Length, PlannedMeasurement, stored_wave};
pub use servers::{Server, Servers};
use servers::{distinct, identical, programs, vary_layouts, wanted_layouts, with_control};
use site::Site;
use spec::Spec;
pub use stopping::still_needed;
use unexecuted::ExecutionCheck;

/// A request to measure.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentRequest<'a> {
    /// The built points.
    pub servers: &'a Servers,
    /// How earlier measurements of them are treated.
    pub reuse: ReusePolicy,
    /// Whether to time workloads that do not execute the code that a patch changes, too.
    pub time_unexecuted: bool,
    /// The time that the command may take; `None` without a limit.
    pub budget: Option<Budget>,
}

/// Measures the built points with the settings of `preset`, and resumes an earlier run of the same experiment.
/// Reuses observations of other experiments that still hold, if the request says so. `header`
/// names series, release, recipe and the points that could not be built; this function fills in machine,
/// harness and identical points. A second server of the base joins as [`Point::Control`].
///
/// Points and workloads that fail alone are in the outcome; the caller decides how to treat them.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for wrong settings or missing tools, or while another process
/// measures the same experiment;
/// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when the base itself or every workload fails;
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted); finished blocks stay in the store.
pub fn run(
    ws: &Workspace,
    preset: &Preset,
    request: &ExperimentRequest<'_>,
    header: ExperimentHeader,
    store: &Store,
) -> Result<MeasuredExperiment> {
    let &ExperimentRequest {
        reuse,
        time_unexecuted,
        budget,
        ..
    } = request;
    let (mut servers, identical) = match reuse {
        ReusePolicy::Separate => (with_control(request.servers), BTreeMap::new()),
        _ => distinct(request.servers)?,
    };
    let header = ExperimentHeader {
        identical,
        ..header
    };
    let layouts = vary_layouts(preset, &mut servers)?;
    if let Some(warning) = preset.unreachable_margin(&|meter| ws.config.margin(meter)) {
        progress::warn(warning);
    }
    let site = Site::ask(ws, preset)?;
    let mut spec = Spec::resolve(ws, preset, site, layouts, header)?;
    spec.keep_readable()?;
    let observed = spec.observed(programs(request.servers))?;
    let unexecuted = if time_unexecuted || spec.readings.timed.is_empty() {
        Vec::new()
    } else {
        let check = ExecutionCheck {
            spec: &spec,
            observed: &observed,
            servers: &servers,
        };
        check.unexecuted(store)?
    };
    let attempt = Attempt::choose(&spec, &observed, reuse, time_unexecuted, store)?;
    if let Some(left) = &attempt.left {
        servers.retain(|point, _| left.contains(point));
    }
    let measured: Vec<Point> = servers.keys().copied().collect();
    let seed = attempt.seed;
    let open = OpenExperiment::begin(&spec, attempt, &measured, &observed, &unexecuted, store)?;
    if measured.is_empty() {
        store.plan(open.id, &without_blocks(&spec.requested()))?;
        return Ok(open.into_outcome(Failed::default()));
    }
    let with_end_to_end = reuse != ReusePolicy::Separate;
    let design = Design::new(&spec, &observed, measured, with_end_to_end);
    let experiment = PlannedMeasurement {
        design: &design,
        seed,
        length: Length::choose(&design, &open, budget)?,
        // An experiment keeps the waves that it began with.
        wave: match spec.site.wave(ws) {
            Some(usual) => Some(stored_wave(store, open.id)?.unwrap_or(usual)),
            None => None,
        },
        budget,
        margin: &|meter| ws.config.margin(meter),
    };
    experiment.carry_out(open, servers, &unexecuted)
}

/// An experiment to forecast.
#[derive(Debug, Clone, Copy)]
pub struct Foreseen<'a> {
    /// The points, and the identities of those that are built. The others are taken to have binaries of their own.
    pub points: &'a [(Point, Option<String>)],
    /// Whether to time workloads that do not execute the code that a patch changes, too.
    pub time_unexecuted: bool,
    /// The time to use.
    pub budget: Option<Duration>,
}

/// Returns the forecast of an experiment on points of the release and recipe of `header`, and whether earlier experiments
/// answer all of it. The forecast is that of measuring everything else anew.
pub fn foresee(
    ws: &Workspace,
    preset: &Preset,
    &Foreseen {
        points,
        time_unexecuted,
        budget,
    }: &Foreseen<'_>,
    header: ExperimentHeader,
) -> Result<(Forecast, bool)> {
    let site = Site::assume(ws, preset)?;
    let mut spec = Spec::resolve(ws, preset, site, wanted_layouts(preset), header)?;
    let names: Vec<(Point, String)> = points.iter().map(named_program).collect();
    let observed = spec.observed(names.iter().map(|(point, name)| (*point, name.as_str())))?;
    spec.header.identical = identical(observed.programs());
    let results = ws.results();
    let store = results.exists().then(|| Store::open_existing(&results));
    let store = store.transpose()?;
    let observed = match &store {
        Some(store) if assume_earlier_conditions(&mut spec, store)? => {
            spec.observed(observed.programs())?
        }
        _ => observed,
    };
    let is_own = |point: &Point| !spec.header.identical.contains_key(point);
    let mut measured: Vec<Point> = observed
        .programs()
        .map(|(point, _)| point)
        .filter(is_own)
        .collect();
    measured.push(Point::Control);
    measured.sort_unstable();
    let mut is_measured = false;
    if let Some(store) = store.as_ref().filter(|_| !ws.answers().is_fresh()) {
        let requested = spec.requested();
        let query = spec.query(&observed, &requested);
        let earlier = reusable(store, &spec.header.release, time_unexecuted)?;
        let left = query.left(&query.origins(&earlier));
        is_measured = left.is_empty();
        if !is_measured {
            measured.retain(|point| left.contains(point));
        }
    }
    let budget = budget.map(|budget| budget.as_secs_f64());
    let design = Design::new(&spec, &observed, measured, true);
    let (forecast, _) = basis::forecast(&design, &spec.header, budget, store.as_ref())?;
    Ok((forecast, is_measured))
}

/// Names the program of a point: one that is not built is none of an earlier experiment.
fn named_program((point, program): &(Point, Option<String>)) -> (Point, String) {
    (*point, program.clone().unwrap_or_else(|| point.to_string()))
}

/// Takes layouts and machine from the latest experiment that was measured in the way of `spec`, or in the linker's layouts:
/// whether layouts can be varied is not known before servers are built. Returns whether it found one.
fn assume_earlier_conditions(spec: &mut Spec<'_>, store: &Store) -> Result<bool> {
    for layouts in [spec.layouts, Layouts::Off] {
        let like = ExperimentHeader {
            harness: spec.harness(layouts)?,
            ..spec.header.clone()
        };
        let earlier = store.earlier(&like.release)?.into_iter();
        let mut headers = earlier.map(|earlier| earlier.header);
        if let Some(found) = headers.find(|header| basis::measured_alike(header, &like)) {
            spec.header.machine = found.machine;
            spec.set_layouts(layouts)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Has a job of the scheduler called `on` report what its machine is: processor, cores, memory, kernel.
pub fn ask_machine(ws: &Workspace, on: &str) -> Result<BTreeMap<String, String>> {
    let scheduler = cluster::scheduler(ws, on)?;
    let facts = cluster::facts(ws, (on, scheduler.as_ref()), false)?;
    Ok(facts.machine)
}

/// Measures the built `base` against copies of itself, one in the place of each patch of `header`'s series.
pub fn against_itself(
    ws: &Workspace,
    preset: &Preset,
    base: &Built,
    header: ExperimentHeader,
    store: &Store,
) -> Result<MeasuredExperiment> {
    let points = (0..=header.series.len()).map(Point::Step);
    let copies = points.map(|point| (point, Server::new(point, base, &header)));
    let request = ExperimentRequest {
        servers: &copies.collect(),
        reuse: ReusePolicy::Separate,
        time_unexecuted: true,
        budget: None,
    };
    run(ws, preset, &request, header, store)
}

/// Returns plans without blocks for an experiment that reuses every effect: the workloads and meters are the
/// same, the blocks are another experiment's. `min_blocks` stays, since the way in which the number of blocks
/// was chosen decides the coverage of the intervals.
fn without_blocks(planned: &[PlannedBlocks]) -> Vec<PlannedBlocks> {
    let none = |plan: &PlannedBlocks| PlannedBlocks {
        min_blocks: plan.min_blocks,
        ..PlannedBlocks::fixed(&plan.workload, plan.meter, 0)
    };
    planned.iter().map(none).collect()
}

/// Returns the subset of `points` and `workloads` that the next block measures in the state `stopping`; no
/// workload at the end.
pub fn needed(
    points: &[Point],
    workloads: &[String],
    stopping: &Stopping,
) -> (Vec<Point>, Vec<String>) {
    let round = stopping.blocks / stopping.windows.max(1);
    let (points, workloads) = (points.to_vec(), workloads.to_vec());
    let block = Block {
        round,
        ..Block::new(stopping.blocks, BlockKind::Timed, points, workloads)
    };
    let block = stopping::needed(block, stopping, &|_, point| point);
    (block.points, block.workloads)
}

/// Returns the seconds that a block's slices measure each workload.
pub fn slice_seconds(block: &Block, block_seconds: f64) -> f64 {
    lengths::share(block.servers().len()) * block_seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::observation::Meter;

    #[test]
    fn what_is_all_reused_keeps_the_kind_of_its_intervals() {
        let planned = [PlannedBlocks {
            min_blocks: Some(10),
            resolution: Some(0.01),
            ..PlannedBlocks::fixed("w", Meter::Time, 200)
        }];
        let none = without_blocks(&planned);
        assert_eq!((none[0].min_blocks, none[0].blocks), (Some(10), 0));
        assert_eq!(none[0].resolution, None);
    }
}
