//! Experiments: a pure function plans randomised blocks over all points, an executor (this machine) measures
//! them, and the store keeps each block, so that an interrupted experiment resumes where it stopped.

pub mod adaptive;
mod basis;
mod candidate;
mod cluster;
pub mod collected;
mod driver;
mod executor;
mod fingerprint;
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
pub mod plan;
mod private;
mod progress;
pub mod recorder;
mod reuse;
#[cfg(test)]
mod simulation;
mod stopping;
mod strategy;
mod unexecuted;
mod values;
mod windows;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Layouts, Preset, Workload};
use perfquilt_judge::attribution::{Stopping, Unexecuted};
use perfquilt_machine::build::{Built, Relink};
use perfquilt_machine::meter::Counter;
use perfquilt_machine::server::may_start_with;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Meter, PlannedBlocks};
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;
use perfquilt_store::{EarlierExperiment, ExperimentId, ExperimentIdentity, Store};

use basis::Work;
use candidate::Candidate;
use cluster::{Cluster, Row};
pub use cluster::{answer_execution, answer_facts, measure_blocks};
pub(crate) use cluster::{engine as cluster_engine, jobs as cluster_jobs};
use collected::Collected;
use driver::Driver;
use executor::Executor;
use fingerprint::CLUSTER;
use forecast::WindowSizes;
pub use forecast::{Forecast, NoiseSource};
use identity::Facts;
use key::ExperimentKey;
pub(crate) use key::{ComparisonKey, FreshQuestion};
pub(crate) use lock::ExperimentLock;
use machine::{Setup, ThisMachine};
use plan::{Scope, plan};
use progress::BlockTimes;
use recorder::Readings;
use reuse::ReuseQuery;
use strategy::PlannedExperiment;
use unexecuted::ExecutionCheck;

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentRequest<'a> {
    /// The built points.
    pub points: &'a [(Point, Built)],
    /// Data templates for points of other releases.
    pub data: &'a Data,
    /// Whether to measure every point, including those that an earlier experiment measured.
    pub fresh: bool,
    /// Whether to time workloads that do not execute the code that a patch changes, too.
    pub time_unexecuted: bool,
    /// The time that the command may take; `None` without a limit.
    pub budget: Option<Budget>,
}

/// The time that a command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// When the command began.
    pub begun: Instant,
    /// Its duration.
    pub duration: Duration,
}

impl Budget {
    fn deadline(self) -> Instant {
        self.begun + self.duration
    }

    fn seconds_left(self) -> f64 {
        let left = self.deadline().saturating_duration_since(Instant::now());
        left.as_secs_f64()
    }
}

/// The result of an experiment.
#[derive(Debug)]
pub struct Outcome {
    /// The stored experiment with the observations.
    pub id: ExperimentId,
    /// Points whose measurement failed, with the whole error. The stored header keeps the reason in one line;
    /// where everything was measured before, only that line is left.
    pub failed: BTreeMap<Point, Error>,
}

/// Measures the built points with the settings of `preset`, and resumes an earlier run of the same experiment.
/// Reuses observations of other experiments that still hold, unless the request is for fresh ones. `header`
/// names series, release, recipe and the points that could not be built; this function fills in machine,
/// harness and identical points. A second server of the base joins as [`Point::Control`].
///
/// Points that fail alone are in the outcome; the caller decides how to treat them.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for wrong settings or missing tools, or while another process
/// measures the same experiment;
/// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when the base itself or a workload fails;
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted); finished blocks stay in the store.
pub fn run(
    ws: &Workspace,
    preset: &Preset,
    request: &ExperimentRequest<'_>,
    header: ExperimentHeader,
    store: &Store,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let points = request.points;
    let (mut candidates, identical) = distinct(points, &header)?;
    for (point, candidate) in &mut candidates {
        candidate.data = request.data.get(point).cloned();
    }
    let header = ExperimentHeader {
        identical,
        ..header
    };
    let servers = Servers {
        points,
        candidates,
        reuse: if request.fresh {
            ReusePolicy::Repeat
        } else {
            ReusePolicy::Reuse
        },
        time_unexecuted: request.time_unexecuted,
        budget: request.budget,
    };
    run_on(ws, preset, servers, header, store, progress)
}

/// How an experiment treats earlier measurements of the same servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReusePolicy {
    /// Reuses them where they still hold.
    Reuse,
    /// Ignores them; continues an experiment of the same key, finished or not.
    Separate,
    /// Measures again; continues an experiment of the same key unless it is finished.
    Repeat,
}

/// An experiment to forecast.
#[derive(Debug, Clone, Copy)]
pub struct Foreseen<'a> {
    /// The points, and the identities of those that are built. The others are taken to have binaries of their own.
    pub points: &'a [(Point, Option<String>)],
    /// Whether to measure every point, including those that an earlier experiment measured.
    pub fresh: bool,
    /// Whether to time workloads that do not execute the code that a patch changes, too.
    pub time_unexecuted: bool,
    /// The time to use.
    pub budget: Option<Duration>,
}

/// Returns the forecast of an experiment on points of the release and recipe of `header`, and whether earlier experiments
/// answer all of it. The forecast is that of measuring everything else anew.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for wrong settings or missing tools.
pub fn foresee(
    ws: &Workspace,
    preset: &Preset,
    &Foreseen {
        points,
        fresh,
        time_unexecuted,
        budget,
    }: &Foreseen<'_>,
    mut header: ExperimentHeader,
) -> Result<(Forecast, bool)> {
    let resolved = resolved(ws, preset)?;
    let workloads: Vec<&Workload> = resolved.iter().collect();
    let counted = meters(preset, |meter| !meter.is_timed());
    let counter = (!counted.is_empty()).then(Counter::detect).transpose()?;
    let layouts = preset.layouts.unwrap_or(Layouts::Padded);
    header.machine = identity::machine_facts(counter.as_ref());
    if let Some(on) = &preset.on {
        cluster::configured(ws, on)?;
        let machines = cluster::describe(ws, on);
        header.machine.insert(CLUSTER.to_owned(), machines);
    }
    let counts = counter.as_ref().map(Counter::describe).unwrap_or_default();
    let harness = |layouts| identity::harness(ws, &counts, layouts);
    header.harness = harness(layouts)?;
    let named = |(point, built): &(Point, Option<String>)| {
        (*point, built.clone().unwrap_or_else(|| point.to_string()))
    };
    let identity = ExperimentIdentity {
        points: points.iter().map(named).collect(),
        ..identity::of(ws, &header, preset.block_seconds, &workloads, &[])?
    };
    let mut first: BTreeMap<&str, Point> = BTreeMap::new();
    for (&point, name) in &identity.points {
        match first.get(name.as_str()) {
            Some(&same) => {
                header.identical.insert(point, same);
            }
            None => {
                first.insert(name, point);
            }
        }
    }
    let mut measured: Vec<Point> = first.into_values().collect();
    measured.push(Point::Control);
    measured.sort_unstable();
    let results = ws.results();
    let store = results.exists().then(|| Store::open_existing(&results));
    let store = store.transpose()?;
    if let Some(store) = &store {
        // Whether layouts can be varied is not known before servers are built.
        for layouts in [layouts, Layouts::Off] {
            let like = ExperimentHeader {
                harness: harness(layouts)?,
                ..header.clone()
            };
            let earlier = store.earlier(&like.release)?.into_iter();
            let mut headers = earlier.map(|of| of.header);
            if let Some(found) = headers.find(|of| basis::measured_alike(of, &like)) {
                header = ExperimentHeader {
                    machine: found.machine,
                    ..like
                };
                break;
            }
        }
    }
    let mut is_measured = false;
    if let Some(store) = store.as_ref().filter(|_| !fresh) {
        let is_read = |timed| move |meter: Meter| meter.is_timed() == timed;
        let requested = planned(
            preset,
            &meters(preset, is_read(true)),
            &meters(preset, is_read(false)),
        );
        let query = ReuseQuery {
            header: &header,
            identity: &identity,
            planned: &requested,
        };
        let earlier = reusable(store, &header.release, time_unexecuted)?;
        let left = query.left(&query.origins(&earlier));
        is_measured = left.is_empty();
        if !is_measured {
            measured.retain(|point| left.contains(point));
        }
    }
    let windows = windows_of(&measured, &header, &identity);
    let sizes = WindowSizes::of(&windows, &first_look_of(&windows, &header));
    let work = Work {
        ws,
        preset,
        workloads: &workloads,
        header: &header,
        windows: &sizes,
        points: measured.len(),
        closure: measured.len() > 3,
        budget: budget.map(|budget| budget.as_secs_f64()),
    };
    Ok((basis::forecast(work, store.as_ref())?.0, is_measured))
}

/// Has a job of the engine called `on` report what its machine is: processor, cores, memory, kernel.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the engine refuses the job or does not answer;
/// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when no machine answers.
pub fn ask_machine(
    ws: &Workspace,
    on: &str,
    progress: &dyn Progress,
) -> Result<BTreeMap<String, String>> {
    let engine = cluster::engine(ws, on)?;
    let facts = cluster::facts(ws, engine.as_ref(), false, progress)?;
    Ok(facts.machine)
}

/// Returns the windows of the `measured` points in which every effect has its points together.
fn windows_of(
    measured: &[Point],
    header: &ExperimentHeader,
    identity: &ExperimentIdentity,
) -> Vec<Vec<Point>> {
    let query = ReuseQuery {
        header,
        identity,
        planned: &[],
    };
    windows::windows(measured, &query.together())
}

/// Returns the windows of the first look; none for servers that are no series, which have no groups of patches.
fn first_look_of(windows: &[Vec<Point>], header: &ExperimentHeader) -> Vec<Vec<Point>> {
    if header.is_of_servers() {
        Vec::new()
    } else {
        windows::first_look(windows)
    }
}

fn resolved(ws: &Workspace, preset: &Preset) -> Result<Vec<Workload>> {
    let names = preset.workloads.iter();
    names
        .map(|name| preset.workload(&ws.config, name))
        .collect()
}

/// Measures `base` against copies of itself, one in the place of each patch of `header`'s series.
pub fn against_itself(
    ws: &Workspace,
    preset: &Preset,
    base: &Built,
    header: ExperimentHeader,
    store: &Store,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let points: Vec<(Point, Built)> = (0..=header.series.len())
        .map(|k| (Point::Step(k), base.clone()))
        .collect();
    let mut candidates: Candidates = points
        .iter()
        .map(|(point, built)| (*point, candidate(*point, built, &header)))
        .collect();
    candidates.insert(Point::Control, candidate(Point::Control, base, &header));
    let servers = Servers {
        points: &points,
        candidates,
        reuse: ReusePolicy::Separate,
        time_unexecuted: true,
        budget: None,
    };
    run_on(ws, preset, servers, header, store, progress)
}

fn run_on(
    ws: &Workspace,
    preset: &Preset,
    Servers {
        points,
        mut candidates,
        reuse,
        time_unexecuted,
        budget,
    }: Servers<'_>,
    header: ExperimentHeader,
    store: &Store,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let resolved = resolved(ws, preset)?;
    let workloads: Vec<&Workload> = resolved.iter().collect();
    let layouts = vary_layouts(preset, &mut candidates, progress)?;
    let engine = preset.on.as_deref().map(|on| cluster::engine(ws, on));
    let engine = engine.transpose()?;
    if let Some(words) = preset.unreachable_margin(&|meter| ws.config.margin(meter)) {
        progress.warn(&words);
    }
    let timed: Vec<Meter> = meters(preset, Meter::is_timed);
    check_storage(ws, &timed)?;
    let mut counted: Vec<Meter> = meters(preset, |meter| !meter.is_timed());
    let counts = !counted.is_empty();
    let facts = match &engine {
        Some(engine) => cluster::facts(ws, engine.as_ref(), counts, progress)?,
        None => Facts::here(counts)?,
    };
    counted.retain(|meter| {
        let known = facts.meters.contains(meter);
        if !known {
            progress.warn(&format!("{meter} cannot be read with {}", facts.counter));
        }
        known
    });
    if timed.is_empty() && counted.is_empty() {
        return Err(Error::usage("none of the preset's meters can be read here")
            .hint("`meters` of the preset names others; `time` can be read everywhere"));
    }
    let mut header = header;
    header.machine = facts.machine;
    header.harness = identity::harness(ws, &facts.counter, layouts)?;
    let identity_of = |header: &ExperimentHeader| {
        identity::key(ws, header, preset.block_seconds, &workloads, points)
    };
    // The plan is that of one machine of the class.
    let mut planned_as = identity_of(&header)?;
    let identity = if let Some(on) = &preset.on {
        // Values of a single machine and of a class of machines are not the same population.
        let machines = cluster::describe(ws, on);
        header.machine.insert(CLUSTER.to_owned(), machines);
        identity_of(&header)?
    } else {
        planned_as.clone()
    };
    let mut key = ExperimentKey {
        identity,
        fresh: reuse != ReusePolicy::Reuse,
        attempt: 1,
    };
    let mut requested = planned(preset, &timed, &counted);
    let identity = identity::of(ws, &header, preset.block_seconds, &workloads, points)?;
    if time_unexecuted && reuse != ReusePolicy::Separate {
        key.identity = unexecuted::timed_anyway(key.identity);
        planned_as = unexecuted::timed_anyway(planned_as);
    }
    let unexecuted = if time_unexecuted || timed.is_empty() {
        Vec::new()
    } else {
        let check = ExecutionCheck {
            ws,
            preset,
            workloads: &workloads,
            header: &header,
            identity: &identity,
            points,
            candidates: &candidates,
            layouts,
            engine: engine.as_deref(),
        };
        check.unexecuted(store, progress)?
    };
    if reuse == ReusePolicy::Reuse {
        let query = ReuseQuery {
            header: &header,
            identity: &identity,
            planned: &requested,
        };
        let earlier = reusable(store, &header.release, time_unexecuted)?;
        // An experiment keeps the reused observations it began with, as long as they answer the request.
        key = key.first(|key| {
            let key = key.to_string();
            let Some(begun) = store.begun(&key)? else {
                return Ok(true);
            };
            let over = store.is_finished(&key)? && failed_for_time(ws, &begun);
            Ok(!over && query.is_answered_by(&begun.reused, &earlier))
        })?;
        let carried = match store.begun(&key.to_string())? {
            Some(begun) => begun.reused,
            None => query.origins(&earlier),
        };
        let left = query.left(&carried);
        candidates.retain(|point, _| left.contains(point));
        header.reused = carried;
    }
    if reuse == ReusePolicy::Repeat {
        key = key.first(|key| Ok(!store.is_finished(&key.to_string())?))?;
    }
    let seed = identity::seed(
        &ExperimentKey {
            identity: planned_as,
            ..key.clone()
        }
        .to_string(),
    );
    let key = key.to_string();
    let _lock = ExperimentLock::of(&ws.state(), &key)?;
    let measured: Vec<Point> = candidates.keys().copied().collect();
    let begun = store.begun(&key)?;
    let (mut failed_before, mut start_timeouts) = begun
        .map(|begun| (begun.failed, begun.start_timeouts))
        .unwrap_or_default();
    failed_before.retain(|point, _| measured.contains(point));
    start_timeouts.retain(|point, _| failed_before.contains_key(point));
    header.failed.extend(failed_before.clone());
    header.start_timeouts = start_timeouts;
    let failed_before: BTreeMap<Point, Error> = failed_before
        .into_iter()
        .map(|(point, reason)| {
            let hint = "failed in an earlier run; retry with `--fresh`";
            (point, Error::bench(reason).hint(hint))
        })
        .collect();
    let id = store.begin(&header, &key)?;
    store.identify(id, &identity)?;
    store.record_unexecuted(id, &unexecuted)?;
    if candidates.is_empty() {
        store.plan(id, &without_blocks(&requested))?;
        return Ok(Outcome {
            id,
            failed: BTreeMap::new(),
        });
    }
    let windows = windows_of(&measured, &header, &identity);
    let first_look = first_look_of(&windows, &header);
    let sizes = WindowSizes::of(&windows, &first_look);
    let closure_points = match reuse {
        // A release against itself has no series, hence no total to check.
        ReusePolicy::Separate => Vec::new(),
        _ => direct(points, &header, &measured),
    };
    // Of the whole experiment, `spent` seconds of which are over.
    let forecast = |header: &ExperimentHeader, spent: f64| {
        let work = Work {
            ws,
            preset,
            workloads: &workloads,
            header,
            windows: &sizes,
            points: measured.len(),
            closure: !closure_points.is_empty(),
            budget: budget.map(|budget| budget.seconds_left() + spent),
        };
        basis::forecast(work, Some(store))
    };
    let announce = |header: &ExperimentHeader, spent: f64| -> Result<BlockTimes> {
        let (forecast, expected) = forecast(header, spent)?;
        progress.note(&format!("forecast: {forecast}"));
        let left = budget.map(|budget| budget.seconds_left() + spent);
        if let Some(warning) = left.and_then(|left| forecast.over_budget(left)) {
            progress.warn(&warning);
        }
        Ok(expected)
    };
    // A finished experiment is not continued because there is time.
    let mut is_guess = false;
    let timed_blocks = match budget {
        Some(_) if store.is_finished(&key)? => stored_blocks(store, id)?.unwrap_or(preset.blocks),
        Some(_) => {
            let (foreseen, _) = forecast(&header, 0.0)?;
            is_guess = foreseen.guessed_seconds;
            foreseen.most_blocks
        }
        None => preset.blocks,
    };
    // An experiment keeps the waves that it began with.
    let wave = match &engine {
        Some(_) => stored_wave(store, id)?.or_else(|| Some(cluster::wave(ws))),
        None => None,
    };
    let window_count = u32::try_from(windows.len()).ok().and_then(NonZeroU32::new);
    for plan in requested.iter_mut().filter(|plan| plan.meter.is_timed()) {
        plan.blocks = timed_blocks;
        plan.min_blocks = plan.min_blocks.map(|least| least.min(timed_blocks));
        plan.windows = window_count.filter(|count| count.get() > 1);
        plan.first_look = NonZeroU32::new(windows::first_look_blocks(&first_look));
        plan.wave = wave;
    }
    let looked_at = stopping::looked_at(store, id)?;
    let mut planned = stopping::plan(store, id, requested)?;

    let blocks_of = |meters: &[Meter], blocks| if meters.is_empty() { 0 } else { blocks };
    let all_counted = blocks_of(&counted, preset.count_blocks);
    let is_timed = !timed.is_empty();
    let planned_blocks = |lanes: u32, timed_blocks: u32| {
        plan(&Scope {
            seed,
            points: &measured,
            windows: &windows,
            first_look: &first_look,
            lanes,
            workloads: &preset.workloads,
            blocks: if is_timed { timed_blocks } else { 0 },
            count_blocks: all_counted,
            layouts,
            direct: &closure_points,
        })
    };
    let margin = |meter| ws.config.margin(meter);
    let readings = Readings {
        timed,
        counted: counted.clone(),
        workloads: workloads.clone(),
    };
    let driver = |planned: &[PlannedBlocks]| {
        let collected = Collected::load(store, id, planned.to_vec(), &readings)?;
        Driver::new(store, id, readings.clone(), collected, &margin)
    };
    let deadline = budget.map(Budget::deadline);
    let strategy =
        |blocks, expected| PlannedExperiment::new(blocks, preset.block_seconds, expected, deadline);
    // On how many lanes blocks are measured does not decide whether any are left, nor how long they take.
    let blocks = planned_blocks(1, timed_blocks);
    let all = &mut strategy(&blocks, BlockTimes::default());
    let mut driving = driver(&planned)?;
    // Only the base and its control are left: every other point is the same binary or was not built.
    if measured.len() < 3 || driving.is_complete(all, &failed_before)? {
        store.finish(id)?;
        return Ok(Outcome {
            id,
            failed: failed_before,
        });
    }
    if !failed_before.is_empty() {
        // The rest of the experiment tries these points again.
        let failed = &mut header.failed;
        failed.retain(|point, _| !failed_before.contains_key(point));
        header.start_timeouts.clear();
        store.begin(&header, &key)?;
        driving = driver(&planned)?;
    }
    let setup = Setup {
        candidates,
        workloads: workloads.clone(),
        block_seconds: preset.block_seconds,
        release: header.release.clone(),
        binary: ws.config.recipe(&preset.recipe)?.binary.clone(),
        count_meters: counted,
        reads_storage: preset.meters.iter().any(|meter| meter.is_storage()),
        servers: windows.iter().map(Vec::len).max().unwrap_or(0),
        lanes: preset.lanes,
        unexecuted: Unexecuted::of(&header, &unexecuted),
    };
    let (failed, end) = match (&engine, wave) {
        (Some(engine), Some(wave)) => {
            let names = (key.as_str(), preset.name.as_str());
            let row = Row::empty(ws, names, &header, &setup, (layouts, &unexecuted))?;
            let cluster = Cluster::new(ws, engine.as_ref(), row, wave.get(), progress)?;
            let expected = announce(&header, 0.0)?;
            // The plan is that of a single lane: a row has the blocks that share layouts.
            let measured = driving.drive(&mut strategy(&blocks, expected), &cluster, progress);
            cluster.close(measured.1.is_ok());
            measured
        }
        _ => {
            let machine = ThisMachine::new(ws, setup, progress)?;
            if let Some(lanes) = machine.describe_lanes() {
                header.machine.insert("lanes".to_owned(), lanes);
                store.begin(&header, &key)?;
            }
            let lanes = machine.lanes();
            let pilot = pilot_blocks(planned_blocks(lanes, timed_blocks), lanes);
            let is_pilot_needed = is_guess && windows.len() < 2 && {
                let all = &mut strategy(&pilot, BlockTimes::default());
                !driving.is_complete(all, &BTreeMap::new())?
            };
            if is_pilot_needed {
                // How many blocks fit into the time is not known before some were measured.
                progress.note("no run tells how long blocks take: the first ones will");
                let began = Instant::now();
                let first = &mut strategy(&pilot, BlockTimes::default()).into_pilot();
                let (failed, end) = driving.drive(first, &machine, progress);
                if end.is_ok() {
                    let spent = began.elapsed().as_secs_f64();
                    let timed_blocks = forecast(&header, spent)?.0.most_blocks;
                    stopping::set_blocks(store, id, &mut planned, timed_blocks)?;
                    let expected = announce(&header, spent)?;
                    let blocks = planned_blocks(lanes, timed_blocks);
                    let rest = &mut strategy(&blocks, expected);
                    driver(&planned)?
                        .without(failed)
                        .drive(rest, &machine, progress)
                } else {
                    (failed, end)
                }
            } else {
                let expected = announce(&header, 0.0)?;
                let blocks = planned_blocks(lanes, timed_blocks);
                driving.drive(&mut strategy(&blocks, expected), &machine, progress)
            }
        }
    };
    if !failed.is_empty() {
        for (point, error) in &failed {
            header.failed.insert(*point, error.to_string());
            if let Some(timeout) = error.exceeded_start_timeout() {
                header.start_timeouts.insert(*point, timeout.as_secs_f64());
            }
        }
        store.begin(&header, &key)?;
    }
    end?;
    if budget.is_some() {
        stopping::shorten(store, id, planned, &looked_at)?;
    }
    store.finish(id)?;
    Ok(Outcome { id, failed })
}

/// Returns those of `blocks` that show how long the others take: the first timed and counted one of each lane.
fn pilot_blocks(mut blocks: Vec<plan::Block>, lanes: u32) -> Vec<plan::Block> {
    blocks.retain(|block| block.number < lanes && !block.direct);
    blocks
}

/// Returns the number of blocks of a wave of a stored experiment; `None` if it has no plan or no waves.
fn stored_wave(store: &Store, id: ExperimentId) -> Result<Option<NonZeroU32>> {
    let planned = store.planned(id)?.into_iter();
    Ok(planned.filter_map(|plan| plan.wave).max())
}

/// Returns the planned timed blocks of a stored experiment.
fn stored_blocks(store: &Store, id: ExperimentId) -> Result<Option<u32>> {
    let planned = store.planned(id)?.into_iter();
    let timed = planned.filter(|plan| plan.meter.is_timed());
    Ok(timed.map(|plan| plan.blocks).max())
}

/// Returns whether servers of `begun` missed the start timeout, and the timeout has changed since. It is the
/// only setting of a server's start that is not part of the experiment's key.
fn failed_for_time(ws: &Workspace, begun: &ExperimentHeader) -> bool {
    let start_seconds = ws.config.server.start_seconds;
    begun.start_timeouts.values().any(|&timeout| {
        // Observation files may hold any number.
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        may_start_with(start_seconds, timeout)
    })
}

/// Returns the points of the closure check: the release and the last step that was built; none when no other
/// patch is measured with them, since every block compares them directly then, and none for servers that are no series,
/// which have no total.
fn direct(points: &[(Point, Built)], header: &ExperimentHeader, measured: &[Point]) -> Vec<Point> {
    if header.is_of_servers() {
        return Vec::new();
    }
    let is_step = |point: &Point| matches!(point, Point::Step(_));
    let last = points.iter().map(|(point, _)| *point).filter(is_step).max();
    let Some(full) = last.map(|last| header.server_of(last)) else {
        return Vec::new();
    };
    let steps: Vec<&Point> = measured.iter().filter(|point| is_step(point)).collect();
    if steps.len() > 2 && steps.contains(&&full) && full != Point::BASE {
        vec![Point::BASE, full]
    } else {
        Vec::new()
    }
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
    let block = plan::Block {
        number: stopping.blocks,
        direct: false,
        reading: plan::Reading::Timed,
        points: points.to_vec(),
        workloads: workloads.to_vec(),
        seed: 0,
        layouts: BTreeMap::new(),
        again: false,
        round: stopping.blocks / stopping.windows.max(1),
        first_look: false,
        copies: 1,
    };
    let block = stopping::needed(block, stopping, &|_, point| point);
    (block.points, block.workloads)
}

/// Returns the part of a planned `block` that is measured in the state `stopping`; no workload if none of it is.
pub fn still_needed(block: plan::Block, stopping: &Stopping) -> plan::Block {
    stopping::still_needed(block, stopping, &|_, point| point)
}

/// Returns the seconds that a block's slices measure each workload.
pub fn slice_seconds(block: &plan::Block, block_seconds: f64) -> f64 {
    lengths::share(block.servers().len()) * block_seconds
}

/// Refuses meters that only the server's own counters have, if the adapter does not know them.
fn check_storage(ws: &Workspace, meters: &[Meter]) -> Result<()> {
    let Some(meter) = meters.iter().find(|meter| meter.is_storage()) else {
        return Ok(());
    };
    if perfquilt_machine::server::adapter(ws)?
        .storage_reader()
        .is_some()
    {
        return Ok(());
    }
    let name = &ws.config.server.adapter;
    Err(Error::usage(format!(
        "the adapter `{name}` does not know the server's counters for {meter}"
    ))
    .hint("`io_calls` and `io_bytes` can be read of every server"))
}

fn meters(preset: &Preset, wanted: impl Fn(Meter) -> bool) -> Vec<Meter> {
    Meter::ALL
        .into_iter()
        .filter(|meter| preset.meters.contains(meter) && wanted(*meter))
        .collect()
}

/// Returns the finished experiments on `release` whose effects may be reused. Unless such workloads are to be timed, what a
/// workload does not execute counts as measured.
fn reusable(store: &Store, release: &str, time_unexecuted: bool) -> Result<Vec<EarlierExperiment>> {
    let mut earlier = store.earlier(release)?;
    if !time_unexecuted {
        earlier.iter_mut().for_each(unexecuted::count_as_measured);
    }
    Ok(earlier)
}

fn planned(preset: &Preset, timed: &[Meter], counted: &[Meter]) -> Vec<PlannedBlocks> {
    let mut all = Vec::new();
    for workload in &preset.workloads {
        for (place, &meter) in timed.iter().enumerate() {
            all.push(PlannedBlocks {
                min_blocks: preset.min_blocks(),
                resolution: preset.resolution.filter(|_| place == 0),
                ..PlannedBlocks::fixed(workload, meter, preset.blocks)
            });
        }
        for &meter in counted {
            all.push(PlannedBlocks::fixed(workload, meter, preset.count_blocks));
        }
    }
    all
}

/// Points whose data is not that of the experiment's release, with the key of the data and the folder of the
/// server that prepares it.
pub type Data = BTreeMap<Point, (String, PathBuf)>;

/// The servers to measure: one for each distinct binary, and the control.
type Candidates = BTreeMap<Point, Candidate>;

/// The built points, and the servers that are measured for them.
struct Servers<'a> {
    points: &'a [(Point, Built)],
    candidates: Candidates,
    /// How earlier measurements of them are treated.
    reuse: ReusePolicy,
    time_unexecuted: bool,
    budget: Option<Budget>,
}

/// Returns the servers to measure, and maps every other point to the measured point with the same binary.
fn distinct(
    points: &[(Point, Built)],
    header: &ExperimentHeader,
) -> Result<(Candidates, BTreeMap<Point, Point>)> {
    let mut sorted: Vec<&(Point, Built)> = points
        .iter()
        .filter(|(point, _)| *point != Point::Control)
        .collect();
    sorted.sort_by_key(|(point, _)| *point);
    let Some((Point::BASE, base)) = sorted.first() else {
        return Err(Error::bench(
            "the release itself was not built, so there is nothing to compare with",
        ));
    };
    let mut first: BTreeMap<&str, Point> = BTreeMap::new();
    let mut candidates = BTreeMap::new();
    let mut identical = BTreeMap::new();
    for (point, built) in &sorted {
        match first.get(built.identity.as_str()) {
            Some(&same) => {
                identical.insert(*point, same);
            }
            None => {
                first.insert(&built.identity, *point);
                candidates.insert(*point, candidate(*point, built, header));
            }
        }
    }
    candidates.insert(Point::Control, candidate(Point::Control, base, header));
    Ok((candidates, identical))
}

fn candidate(point: Point, built: &Built, header: &ExperimentHeader) -> Candidate {
    let patch = match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => {
            k.checked_sub(1).and_then(|index| header.series.get(index))
        }
        Point::Control => None,
    };
    Candidate {
        label: match patch {
            Some(patch) => format!("{point} ({patch})"),
            None => format!("{point} (the release)"),
        },
        dir: built.dir.clone(),
        relink: None,
        data: None,
    }
}

/// Returns how to vary the servers' code layouts: as the preset says if every server can be linked again.
/// Prepares the linking then.
fn vary_layouts(
    preset: &Preset,
    candidates: &mut Candidates,
    progress: &dyn Progress,
) -> Result<Layouts> {
    let layouts = preset.layouts.unwrap_or(Layouts::Padded);
    if layouts == Layouts::Off || meters(preset, Meter::is_timed).is_empty() {
        return Ok(Layouts::Off);
    }
    let mut relinks = BTreeMap::new();
    for (&point, candidate) in candidates.iter() {
        match Relink::of(&candidate.dir, layouts) {
            Ok(relink) => relinks.insert(point, relink),
            Err(reason) => {
                let reason = format!("{}: {reason}", candidate.label);
                if preset.layouts.is_some() {
                    return Err(
                        Error::usage(format!("code layouts cannot be varied: {reason}"))
                            .hint("`--layouts off` measures the servers as they were linked"),
                    );
                }
                progress.warn(&format!(
                    "code layouts are not varied, so times include the luck of one: {reason}"
                ));
                return Ok(Layouts::Off);
            }
        };
    }
    for (point, relink) in relinks {
        if let Some(candidate) = candidates.get_mut(&point) {
            candidate.relink = Some(relink);
        }
    }
    Ok(layouts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::progress::Silent;

    fn built(point: usize, identity: &str) -> (Point, Built) {
        let built = Built {
            key: format!("key-{point}"),
            dir: format!("/{point}").into(),
            identity: identity.into(),
            seconds: perfquilt_machine::build::BuildSeconds::default(),
            compiled_units: 0,
            cached: true,
            profile: None,
        };
        (Point::Step(point), built)
    }

    #[test]
    fn servers_that_are_no_series_have_neither_a_closure_check_nor_groups() {
        let points = [built(0, "a"), built(1, "b"), built(2, "c")];
        let steps: Vec<Point> = points.iter().map(|(point, _)| *point).collect();
        let windows: Vec<Vec<Point>> = (0..3)
            .map(|k| vec![Point::BASE, Point::Step(2 * k + 1), Point::Step(2 * k + 2)])
            .collect();
        let mut header = ExperimentHeader::new("toy-1", "quick");
        assert_eq!(
            direct(&points, &header, &steps),
            [Point::BASE, Point::Step(2)]
        );
        assert!(!first_look_of(&windows, &header).is_empty());
        header.base = Some("a".to_owned());
        assert!(direct(&points, &header, &steps).is_empty());
        assert!(first_look_of(&windows, &header).is_empty());
    }

    #[test]
    fn the_same_binary_is_measured_once_and_the_base_twice() {
        let points = [built(0, "a"), built(1, "b"), built(2, "b"), built(3, "a")];
        let (candidates, identical) =
            distinct(&points, &ExperimentHeader::new("toy-1", "quick")).unwrap();
        let measured: Vec<Point> = candidates.keys().copied().collect();
        assert_eq!(measured, [Point::Step(0), Point::Step(1), Point::Control]);
        assert_eq!(
            candidates[&Point::Control].dir,
            candidates[&Point::BASE].dir
        );
        assert_eq!(
            identical,
            BTreeMap::from([
                (Point::Step(2), Point::Step(1)),
                (Point::Step(3), Point::Step(0))
            ])
        );
    }

    #[test]
    fn layouts_are_varied_where_every_server_can_be_linked_again() {
        let folder = tempfile::tempdir().unwrap();
        let server = |name: &str, link: &str| {
            let dir = folder.path().join(name);
            std::fs::create_dir_all(dir.join("relink")).unwrap();
            std::fs::write(dir.join("relink/link.json"), link).unwrap();
            Candidate {
                label: name.into(),
                dir,
                relink: None,
                data: None,
            }
        };
        let preset = |layouts: Option<Layouts>| Preset {
            name: String::new(),
            on: None,
            description: String::new(),
            recipe: "r".into(),
            workloads: Vec::new(),
            meters: vec![Meter::Time],
            blocks: 2,
            block_seconds: 1.0,
            count_blocks: 0,
            layouts,
            test: false,
            sql_bench: Default::default(),
            min_blocks: None,
            resolution: None,
            lanes: Default::default(),
            budget: None,
        };
        let vary = |layouts, candidates: &mut Candidates| {
            vary_layouts(&preset(layouts), candidates, &Silent)
        };
        let good = r#"{"words":["cc"],"shuffle":[],"env":{}}"#;
        let mut candidates = BTreeMap::from([(Point::BASE, server("a", good))]);
        assert_eq!(
            vary(Some(Layouts::Off), &mut candidates).unwrap(),
            Layouts::Off
        );
        assert!(candidates[&Point::BASE].relink.is_none());
        assert_eq!(vary(None, &mut candidates).unwrap(), Layouts::Padded);
        assert!(candidates[&Point::BASE].relink.is_some());
        let error = vary(Some(Layouts::Shuffled), &mut candidates).unwrap_err();
        assert!(error.message().contains("install mold"), "{error}");
        let bad = r#"{"words":[],"shuffle":[],"env":{},"reason":"no linker"}"#;
        candidates.insert(Point::Step(1), server("b", bad));
        assert_eq!(vary(None, &mut candidates).unwrap(), Layouts::Off);
        let error = vary(Some(Layouts::Padded), &mut candidates).unwrap_err();
        assert!(error.message().contains("b: no linker"), "{error}");
    }

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

    #[test]
    fn without_a_base_there_is_nothing_to_compare_with() {
        assert!(distinct(&[built(1, "b")], &ExperimentHeader::new("toy-1", "quick")).is_err());
    }
}
