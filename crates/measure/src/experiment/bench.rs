//! Where blocks are measured, ready to begin.

use std::num::NonZeroU32;

use super::cluster::{BlockTask, Cluster};
use super::executor::Executor;
use super::machine::{Setup, ThisMachine};
use super::site::Site;
use super::spec::Spec;
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, UnexecutedPatch};
use perfquilt_model::progress::Progress;

/// This machine or a cluster, with the servers to measure.
pub(super) enum Bench<'a> {
    Machine(Box<ThisMachine<'a>>),
    Cluster(Box<Cluster<'a>>),
}

impl<'a> Bench<'a> {
    /// Prepares `site` for the experiment stored under `key` with this `header`.
    pub(super) fn open(
        spec: &'a Spec<'_>,
        site: &'a Site,
        setup: Setup<'a>,
        (key, header, unexecuted): (&str, &ExperimentHeader, &[UnexecutedPatch]),
        wave: Option<NonZeroU32>,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        let (Some(scheduler), Some(wave)) = (&site.scheduler, wave) else {
            let machine = ThisMachine::new(spec.ws, setup, progress)?;
            return Ok(Bench::Machine(Box::new(machine)));
        };
        let names = (key, spec.preset.name.as_str());
        let task = BlockTask::empty(spec.ws, names, header, &setup, (spec.layouts, unexecuted))?;
        let cluster = Cluster::new(spec.ws, scheduler.as_ref(), task, wave.get(), progress)?;
        Ok(Bench::Cluster(Box::new(cluster)))
    }

    /// Returns what measures the blocks.
    pub(super) fn executor(&self) -> &dyn Executor {
        match self {
            Bench::Machine(machine) => machine.as_ref(),
            Bench::Cluster(cluster) => cluster.as_ref(),
        }
    }

    /// Returns whether this machine alone measures.
    pub(super) fn is_this_machine(&self) -> bool {
        matches!(self, Bench::Machine(_))
    }

    /// Returns the lanes for the record of an experiment, if there are several.
    pub(super) fn describe_lanes(&self) -> Option<String> {
        match self {
            Bench::Machine(machine) => machine.describe_lanes(),
            Bench::Cluster(_) => None,
        }
    }

    /// Returns the distance in the plan between blocks that share layouts; 1 on a cluster, which measures them in one task.
    pub(super) fn lanes_of_plan(&self) -> u32 {
        match self {
            Bench::Machine(machine) => machine.lanes(),
            Bench::Cluster(_) => 1,
        }
    }

    /// Ends measuring; the experiment is `over` if nothing is left to measure.
    pub(super) fn close(&self, over: bool) {
        if let Bench::Cluster(cluster) = self {
            cluster.close(over);
        }
    }
}
