//! The observations of a running experiment, in memory.
//!
//! Reads the store once and adds each block as it is stored. All decisions and progress output during measuring
//! come from here.

use std::collections::BTreeMap;

use super::failed::Failed;
use super::note;
use super::readings::Readings;
use perfquilt_bench::workload;
use perfquilt_config::Workload;
use perfquilt_judge::attribution::{Collector, Stopping, Unexecuted};
use perfquilt_judge::stats;
use perfquilt_model::error::Result;
use perfquilt_model::observation::{
    ExperimentHeader, Meter, Observation, PlannedBlocks, Supplement, UnexecutedPatch,
};
use perfquilt_model::point::Point;
use perfquilt_store::{ExperimentId, Store};

use super::values::round_number;

/// The target work of a counted block, in nanoseconds of undisturbed work, for every workload: it takes
/// callgrind some seconds.
const COUNTED_NANOSECONDS: f64 = 4e7;
/// Transactions counted where their time is unknown.
const COUNTED_BY_DEFAULT: u64 = 200;

/// The subject of the line after a block.
#[derive(Debug, Clone, Copy)]
pub enum NoteOn<'a> {
    /// The patches between these points.
    Patches(&'a [Point]),
    /// The end-to-end check.
    EndToEnd,
}

/// The observations so far, and the state derived from them.
pub struct Collected<'a> {
    header: ExperimentHeader,
    planned: Vec<PlannedBlocks>,
    readings: &'a Readings,
    /// The patches that workloads do not execute.
    unexecuted: Vec<UnexecutedPatch>,
    /// Observations of blocks over all points, by the block's number: the input of the stopping rule.
    by_block: BTreeMap<u32, Vec<Observation>>,
    rule: Option<Rule>,
    /// By workload and meter.
    notes: BTreeMap<(String, Meter), Collector<'static>>,
    /// The release's nanoseconds a transaction, by workload.
    base_times: BTreeMap<String, Vec<f64>>,
}

/// The stopping rule before block `before`.
struct Rule {
    collector: Collector<'static>,
    before: u32,
    /// The number of points and workloads that had failed.
    failed: usize,
    /// The rule's result, until an observation is added.
    state: Option<Option<Stopping>>,
}

impl<'a> Collected<'a> {
    /// Reads the stored observations of experiment `id`; `planned` has its stopping rule.
    pub fn load(
        store: &Store,
        id: ExperimentId,
        planned: Vec<PlannedBlocks>,
        readings: &'a Readings,
    ) -> Result<Self> {
        let (header, observations) = store.load(id)?;
        let mut collected = Collected {
            header,
            planned,
            readings,
            unexecuted: store.unexecuted(id)?,
            by_block: BTreeMap::new(),
            rule: None,
            notes: BTreeMap::new(),
            base_times: BTreeMap::new(),
        };
        let noted = [readings.timed.first(), readings.counted.first()];
        for workload in &readings.workloads {
            for &meter in noted.into_iter().flatten() {
                let name = &workload.name;
                let of_row = |plan: &&PlannedBlocks| plan.workload == *name && plan.meter == meter;
                let planned = collected.planned.iter().filter(of_row).cloned();
                let collector = collected.collector(planned.collect(), &Failed::default())?;
                collected.notes.insert((name.clone(), meter), collector);
            }
        }
        for observation in observations {
            collected.add(observation)?;
        }
        Ok(collected)
    }

    /// Returns the one of `points` that is measured for `point` on a workload: the one with the same binary, and the
    /// earliest that is the same program for the workload.
    pub fn measured_for(&self, points: &[Point], workload: &str, point: Point) -> Point {
        let server = self.header.identical.get(&point).copied().unwrap_or(point);
        let left_out = self.unexecuted().untimed_points(workload, points);
        left_out.get(&server).copied().unwrap_or(server)
    }

    /// Returns the points that are the same program for a workload.
    pub fn unexecuted(&self) -> Unexecuted {
        Unexecuted::of(&self.header, &self.unexecuted)
    }

    /// Returns whether a stopping rule ends the experiment.
    pub fn has_stopping_rule(&self) -> bool {
        self.planned.iter().any(|plan| plan.resolution.is_some())
    }

    fn collector(
        &self,
        planned: Vec<PlannedBlocks>,
        failed: &Failed,
    ) -> Result<Collector<'static>> {
        let mut header = self.header.clone();
        for (point, error) in &failed.points {
            header.failed.insert(*point, error.message().to_owned());
        }
        header.failed_workloads = failed.recorded_workloads(self.readings);
        let supplement = Supplement {
            planned,
            unexecuted: self.unexecuted.clone(),
            ..Supplement::default()
        };
        Collector::owned(header, supplement)
    }

    /// Adds an observation.
    pub fn add(&mut self, observation: Observation) -> Result<()> {
        let key = (observation.workload.clone(), observation.meter);
        if let Some(collector) = self.notes.get_mut(&key) {
            collector.add(&observation)?;
        }
        let own = observation.experiment == self.header.experiment;
        if own && observation.meter == Meter::Time && observation.point == Point::BASE {
            let times = self.base_times.entry(key.0).or_default();
            times.push(observation.value);
        }
        if observation.direct {
            return Ok(());
        }
        if let Some(rule) = &mut self.rule
            && observation.block < rule.before
        {
            rule.collector.add(&observation)?;
            rule.state = None;
        }
        let block = self.by_block.entry(observation.block).or_default();
        block.push(observation);
        Ok(())
    }

    /// Returns the state of the stopping rule before the timed block `number`, from the blocks before it alone,
    /// so that a resumed experiment decides like an uninterrupted one. `None` without such a rule. Leaves out
    /// `failed` points and workloads.
    pub fn stopping_before(&mut self, number: u32, failed: &Failed) -> Result<Option<Stopping>> {
        if !self.has_stopping_rule() {
            return Ok(None);
        }
        let known = self.rule.take();
        let known = known.filter(|rule| rule.before <= number && rule.failed == failed.count());
        let mut rule = match known {
            Some(rule) => rule,
            None => Rule {
                collector: self.collector(self.planned.clone(), failed)?,
                before: 0,
                failed: failed.count(),
                state: None,
            },
        };
        for observation in self.by_block.range(rule.before..number).flat_map(|b| b.1) {
            rule.collector.add(observation)?;
            rule.state = None;
        }
        rule.before = number;
        let state = rule.state.take();
        let state = state.unwrap_or_else(|| rule.collector.stopping());
        rule.state = Some(state.clone());
        self.rule = Some(rule);
        Ok(state)
    }

    /// Formats the effects of one workload and meter so far.
    pub fn note(
        &self,
        workload: &str,
        meter: Meter,
        on: NoteOn<'_>,
        margin: &dyn Fn(Meter) -> f64,
    ) -> String {
        let Some(collector) = self.notes.get(&(workload.to_owned(), meter)) else {
            return String::new();
        };
        let attribution = collector.finish(margin);
        let row = (workload, meter);
        match on {
            NoteOn::Patches(points) => note::patches(&attribution, row, points),
            NoteOn::EndToEnd => note::end_to_end(&attribution, workload, meter),
        }
    }

    /// Returns how many transactions a counted block of `workload` counts: about the same work for all
    /// workloads, by the time of the release's transactions.
    pub fn transactions(&self, workload: &Workload) -> u64 {
        // A workload that was measured has valid settings.
        let client = workload::client(workload).ok();
        if let Some(configured) = client.and_then(|client| client.counted_transactions()) {
            return configured;
        }
        let times = self.base_times.get(&workload.name);
        let mut times = times.cloned().unwrap_or_default();
        match stats::median(&mut times) {
            Some(time) => round_number(COUNTED_NANOSECONDS / time),
            None => COUNTED_BY_DEFAULT,
        }
    }
}
