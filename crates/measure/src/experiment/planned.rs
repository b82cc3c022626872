//! Measures the blocks of a planned experiment.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use super::basis;
use super::design::Design;
use super::driver::Driver;
use super::executor::Executor;
use super::failed::Failed;
use super::forecast::Forecast;
use super::open::{MeasuredExperiment, OpenExperiment};
use super::plan::{Block, BlockKind, Reading};
use super::readings::Readings;
use super::remaining::BlockTimes;
use super::servers::Servers;
use super::stopping;
use super::strategy::PlannedExperiment;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{FailedWorkload, Meter, PlannedBlocks, UnexecutedPatch};
use perfquilt_model::progress;
use perfquilt_store::{ExperimentId, Store};

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

/// The planned length of an experiment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length {
    /// Timed blocks in each window.
    timed_blocks: u32,
    /// Whether nothing tells how many blocks fit into the time.
    is_guess: bool,
}

impl Length {
    /// Chooses as many blocks as the preset says, or as fit into the time. A finished experiment is not continued because
    /// there is time.
    pub(super) fn choose(
        design: &Design<'_>,
        open: &OpenExperiment<'_>,
        budget: Option<Budget>,
    ) -> Result<Self> {
        let as_planned = design.spec.preset.blocks;
        let store = open.store;
        let known = |timed_blocks| Length {
            timed_blocks,
            is_guess: false,
        };
        let Some(budget) = budget else {
            return Ok(known(as_planned));
        };
        if store.is_finished(&open.key)? {
            let stored = stored_blocks(store, open.id)?;
            return Ok(known(stored.unwrap_or(as_planned)));
        }
        let seconds = Some(budget.seconds_left());
        let (foreseen, _) = basis::forecast(design, &open.header, seconds, Some(store))?;
        Ok(Length {
            timed_blocks: foreseen.most_blocks,
            is_guess: foreseen.guessed_seconds,
        })
    }
}

/// An experiment whose blocks are planned.
pub(super) struct PlannedMeasurement<'a> {
    pub(super) design: &'a Design<'a>,
    pub(super) seed: u64,
    pub(super) length: Length,
    pub(super) wave: Option<NonZeroU32>,
    pub(super) budget: Option<Budget>,
    /// The equivalence margins, as fractions of speed.
    pub(super) margin: &'a dyn Fn(Meter) -> f64,
}

impl PlannedMeasurement<'_> {
    /// Measures the blocks that are missing, and stores how the experiment ended.
    pub(super) fn carry_out(
        &self,
        mut open: OpenExperiment<'_>,
        servers: Servers,
        unexecuted: &[UnexecutedPatch],
    ) -> Result<MeasuredExperiment> {
        let (store, id) = (open.store, open.id);
        let was_finished = store.is_finished(&open.key)?;
        let looked_at = stopping::looked_at(store, id)?;
        let requested = self.design.planned(self.length.timed_blocks, self.wave);
        let mut planned = stopping::plan(store, id, requested)?;
        // On how many lanes blocks are measured does not decide whether any are left, nor how long they take.
        let blocks = self.blocks(1, self.length.timed_blocks);
        let all = &mut self.strategy(&blocks, BlockTimes::default());
        let mut driver = self.driver(&open, &planned)?;
        let failed_before = Failed::points(open.failed_before.clone());
        // A failed workload is retried: only its blocks are missing.
        let is_complete = driver.is_complete(all, &failed_before)?;
        // Without a third server only the base and its control are left: every other point is the same binary or was not
        // built.
        if servers.len() < 3 || is_complete {
            store.finish(id)?;
            return Ok(open.into_outcome(failed_before));
        }
        let retried = open.header.failed_workloads.clone();
        if open.has_failures() {
            open.forget_failures()?;
            driver = self.driver(&open, &planned)?;
        }
        let most = self.design.most_servers();
        let header = open.header.clone();
        let setup = self.design.spec.setup(servers, most, header, unexecuted)?;
        let key = &open.key;
        let bench = self.design.spec.executor(setup, key, self.wave)?;
        let facts = bench.facts();
        if !facts.is_empty() {
            open.record_facts(facts)?;
        }
        let (failed, end) = self.drive(driver, &open, bench.as_ref(), &mut planned)?;
        let readings = &self.design.spec.readings;
        let end = end
            .and_then(|()| check_some_left(&failed, readings))
            .and_then(|()| check_measured(store, id));
        bench.close(end.is_ok());
        open.record_failures(&failed, readings)?;
        end?;
        let again = |before: &FailedWorkload| {
            !open
                .header
                .failed_workloads
                .iter()
                .any(|now| now.workload == before.workload)
        };
        if was_finished && retried.iter().any(again) {
            stopping::extend(store, id, &mut planned)?;
        }
        if self.budget.is_some() {
            stopping::shorten(store, id, planned, &looked_at)?;
        }
        store.finish(id)?;
        Ok(open.into_outcome(failed))
    }

    /// Drives the blocks; first some that show how long the others will take, if nothing else tells how many fit into the
    /// time. Returns the points and workloads that failed, and how it ended.
    fn drive<'d>(
        &'d self,
        mut driver: Driver<'d>,
        open: &OpenExperiment<'d>,
        bench: &dyn Executor,
        planned: &mut [PlannedBlocks],
    ) -> Result<(Failed, Result<()>)> {
        // A task of a cluster has the blocks that share layouts.
        let is_cluster = bench.wave().is_some();
        let lanes = if is_cluster { 1 } else { bench.lanes() };
        let mut timed_blocks = self.length.timed_blocks;
        let mut spent = 0.0;
        if self.length.is_guess && self.design.has_one_window() && !is_cluster {
            let pilot = pilot_blocks(self.blocks(lanes, timed_blocks), lanes);
            let all = &mut self.strategy(&pilot, BlockTimes::default());
            if !driver.is_complete(all, &Failed::default())? {
                progress::note("no earlier run shows how long blocks take; the first blocks will");
                let began = Instant::now();
                let first = &mut self.strategy(&pilot, BlockTimes::default()).into_pilot();
                let (failed, end) = driver.drive(first, bench);
                if end.is_err() {
                    return Ok((failed, end));
                }
                spent = began.elapsed().as_secs_f64();
                timed_blocks = self.forecast(open, spent)?.0.most_blocks;
                stopping::set_blocks(open.store, open.id, planned, timed_blocks)?;
                driver = self.driver(open, planned)?.without(failed);
            }
        }
        let expected = self.announce(open, spent)?;
        let blocks = self.blocks(lanes, timed_blocks);
        let rest = &mut self.strategy(&blocks, expected);
        Ok(driver.drive(rest, bench))
    }

    fn blocks(&self, lanes: u32, timed_blocks: u32) -> Vec<Block> {
        self.design.blocks(self.seed, lanes, timed_blocks)
    }

    fn strategy<'b>(&self, blocks: &'b [Block], expected: BlockTimes) -> PlannedExperiment<'b> {
        let seconds = self.design.spec.preset.block_seconds;
        PlannedExperiment::new(blocks, seconds, expected, self.budget.map(Budget::deadline))
    }

    fn driver<'d>(
        &'d self,
        open: &OpenExperiment<'d>,
        planned: &[PlannedBlocks],
    ) -> Result<Driver<'d>> {
        let readings = &self.design.spec.readings;
        Driver::new(open.store, open.id, readings, planned.to_vec(), self.margin)
    }

    /// Returns the forecast of the whole experiment, `spent` seconds of which are over.
    fn forecast(&self, open: &OpenExperiment<'_>, spent: f64) -> Result<(Forecast, BlockTimes)> {
        let left = self.seconds_left(spent);
        basis::forecast(self.design, &open.header, left, Some(open.store))
    }

    fn seconds_left(&self, spent: f64) -> Option<f64> {
        self.budget.map(|budget| budget.seconds_left() + spent)
    }

    fn announce(&self, open: &OpenExperiment<'_>, spent: f64) -> Result<BlockTimes> {
        let (forecast, expected) = self.forecast(open, spent)?;
        progress::note(&format!("forecast: {forecast}"));
        let left = self.seconds_left(spent);
        if let Some(warning) = left.and_then(|left| forecast.over_budget(left)) {
            progress::warn(warning);
        }
        Ok(expected)
    }
}

/// Checks that some workload is left.
///
/// # Errors
/// The first failure if every workload failed in every reading.
pub(super) fn check_some_left(failed: &Failed, readings: &Readings) -> Result<()> {
    let mut rows = readings.workloads.iter().flat_map(|workload| {
        let is_read = |reading: &Reading| !readings.meters(*reading).is_empty();
        let all = [Reading::Timed, Reading::Counted].into_iter();
        all.filter(is_read)
            .map(|reading| (workload.name.as_str(), reading))
    });
    let all_failed = rows.all(|(workload, reading)| failed.has_workload(workload, reading));
    match failed.workloads.values().next() {
        Some(error) if all_failed => Err(error.clone()),
        _ => Ok(()),
    }
}

/// Checks that some block was measured: the jobs of a cluster may all have been lost.
fn check_measured(store: &Store, id: ExperimentId) -> Result<()> {
    if store.has_observations(id)? {
        return Ok(());
    }
    Err(Error::no_block("no block has results")
        .hint("the warnings above say why; the same command tries again"))
}

/// Returns those of `blocks` that show how long the others take: the first timed and counted one of each lane.
fn pilot_blocks(mut blocks: Vec<Block>, lanes: u32) -> Vec<Block> {
    blocks.retain(|block| block.number < lanes && block.kind != BlockKind::EndToEnd);
    blocks
}

/// Returns the number of blocks of a wave of a stored experiment; `None` if it has no plan or no waves.
pub(super) fn stored_wave(store: &Store, id: ExperimentId) -> Result<Option<NonZeroU32>> {
    let planned = store.planned(id)?.into_iter();
    Ok(planned.filter_map(|plan| plan.wave).max())
}

/// Returns the planned timed blocks of a stored experiment.
fn stored_blocks(store: &Store, id: ExperimentId) -> Result<Option<u32>> {
    let planned = store.planned(id)?.into_iter();
    let timed = planned.filter(|plan| plan.meter.is_timed());
    Ok(timed.map(|plan| plan.blocks).max())
}
