//! An experiment's settings, resolved from a preset.

use std::num::NonZeroU32;

use super::cluster::{BlockTask, Cluster};
use super::executor::Executor;
use super::identity;
use super::machine::{Setup, ThisMachine};
use super::readings::Readings;
use super::reuse::ReuseQuery;
use super::servers::Servers;
use super::site::Site;
use perfquilt_bench::workload::workload_identity;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Layouts, Preset};
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Meter, PlannedBlocks, UnexecutedPatch};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_system::digest;

/// The settings of an experiment: workloads, meters, layouts, and in its header everything that makes values comparable.
pub(crate) struct Spec<'a> {
    pub(super) ws: &'a Workspace,
    pub(super) preset: Preset,
    pub(super) readings: Readings,
    pub(super) layouts: Layouts,
    /// Where it is measured.
    pub(super) site: Site,
    /// With machine and harness.
    pub(super) header: ExperimentHeader,
}

impl<'a> Spec<'a> {
    /// Resolves the workloads and meters of `preset` for measuring at `site` in these `layouts`, and completes the `header`
    /// of a series on a release.
    pub(super) fn resolve(
        ws: &'a Workspace,
        preset: &Preset,
        site: Site,
        layouts: Layouts,
        mut header: ExperimentHeader,
    ) -> Result<Self> {
        let names = preset.workloads.iter();
        let workloads = names.map(|name| preset.workload(&ws.config, name));
        check_storage(ws, &preset.meters)?;
        header.machine = site.facts.machine.clone();
        header.harness = identity::harness(ws, &site.facts.counter, layouts)?;
        Ok(Spec {
            ws,
            preset: preset.clone(),
            readings: Readings {
                timed: preset.timed_meters(),
                counted: preset.counted_meters(),
                workloads: workloads.collect::<Result<_>>()?,
            },
            layouts,
            site,
            header,
        })
    }

    /// Leaves out the counted meters that the site cannot read, with a warning.
    pub(super) fn keep_readable(&mut self) -> Result<()> {
        let facts = &self.site.facts;
        self.readings.counted.retain(|meter| {
            let known = facts.meters.contains(meter);
            if !known {
                let words = format!("{meter} cannot be read with {}", facts.counter);
                progress::warn(Warning::unread_meter(words));
            }
            known
        });
        if self.readings.timed.is_empty() && self.readings.counted.is_empty() {
            return Err(
                Error::meter_unavailable("none of the preset's meters can be read here")
                    .hint("`meters` of the preset names others; `time` can be read everywhere"),
            );
        }
        Ok(())
    }

    /// Changes how the servers' code layouts vary.
    pub(super) fn set_layouts(&mut self, layouts: Layouts) -> Result<()> {
        self.header.harness = self.harness(layouts)?;
        self.layouts = layouts;
        Ok(())
    }

    /// Returns the identity of the harness in other layouts.
    pub(super) fn harness(&self, layouts: Layouts) -> Result<String> {
        identity::harness(self.ws, &self.site.facts.counter, layouts)
    }

    /// Returns what the values of `programs` are observed of; without programs, their conditions.
    pub(crate) fn observed<'p>(
        &self,
        programs: impl IntoIterator<Item = (Point, &'p str)>,
    ) -> Result<Comparable> {
        let mut observed = Comparable::of(&self.header);
        for workload in &self.readings.workloads {
            let digest = workload_identity(self.ws, workload)?;
            let seconds = self.preset.block_seconds.to_string();
            observed = observed
                .with(Part::Workload(workload.name.clone()), digest)
                .with(Part::Seconds(workload.name.clone()), seconds);
        }
        let programs = programs.into_iter();
        Ok(programs.fold(observed, |observed, (point, program)| {
            observed.with(Part::Program(point), program)
        }))
    }

    /// Returns the key of the experiment on the series whose values are `observed`. The number of blocks does not change it:
    /// more blocks extend the experiment.
    pub(super) fn key(&self, observed: &Comparable) -> String {
        digest::of(std::iter::once(&observed.to_string()).chain(&self.header.series))
    }

    /// Returns the blocks that the preset asks for.
    pub(super) fn requested(&self) -> Vec<PlannedBlocks> {
        let preset = &self.preset;
        let mut all = Vec::new();
        for workload in &preset.workloads {
            for (place, &meter) in self.readings.timed.iter().enumerate() {
                all.push(PlannedBlocks {
                    min_blocks: preset.min_blocks(),
                    resolution: preset.resolution.filter(|_| place == 0),
                    ..PlannedBlocks::fixed(workload, meter, preset.blocks)
                });
            }
            for &meter in &self.readings.counted {
                all.push(PlannedBlocks::fixed(workload, meter, preset.count_blocks));
            }
        }
        all
    }

    /// Returns the question which earlier observations of the programs in `observed` hold. `planned` are the blocks to have.
    pub(super) fn query<'q>(
        &'q self,
        observed: &'q Comparable,
        planned: &'q [PlannedBlocks],
    ) -> ReuseQuery<'q> {
        ReuseQuery {
            header: &self.header,
            observed,
            planned,
        }
    }

    /// Returns the settings for measuring `servers`, at most `most_servers` at once on a lane, for the experiment of `header`
    /// whose workloads do not execute the patches `unexecuted`.
    pub(super) fn setup(
        &self,
        servers: Servers,
        most_servers: usize,
        header: ExperimentHeader,
        unexecuted: &[UnexecutedPatch],
    ) -> Result<Setup> {
        let recipe = self.ws.config.recipe(&self.preset.recipe)?;
        Ok(Setup {
            header,
            unexecuted: unexecuted.to_vec(),
            layouts: self.layouts,
            servers,
            block_seconds: self.preset.block_seconds,
            binary: recipe.binary.clone(),
            count_meters: self.readings.counted.clone(),
            reads_storage: self.readings.timed.iter().any(|meter| meter.is_storage()),
            most_servers,
        })
    }

    /// Returns a task without blocks of the experiment with this key, which machines of a cluster measure as `setup` says.
    pub(super) fn task(&self, experiment: &str, setup: Setup) -> Result<BlockTask> {
        let names = (experiment, self.preset.name.as_str());
        BlockTask::empty(self.ws, names, &self.readings.workloads, setup)
    }

    /// Prepares this machine for measuring what `setup` says.
    pub(super) fn this_machine<'m>(&'m self, setup: Setup) -> Result<ThisMachine<'m>> {
        let lanes = self.preset.lanes;
        ThisMachine::new(self.ws, &self.readings.workloads, lanes, setup)
    }

    /// Prepares the site for the experiment stored under `key`, whose blocks `setup` measures.
    pub(super) fn executor<'e>(
        &'e self,
        setup: Setup,
        key: &str,
        wave: Option<NonZeroU32>,
    ) -> Result<Box<dyn Executor + 'e>> {
        let (Some(scheduler), Some(wave)) = (&self.site.scheduler, wave) else {
            return Ok(Box::new(self.this_machine(setup)?));
        };
        let task = self.task(key, setup)?;
        let cluster = Cluster::new(self.ws, scheduler.as_ref(), task, wave.get())?;
        Ok(Box::new(cluster))
    }
}

/// Refuses meters that only the server's own counters have, if the adapter does not know them.
fn check_storage(ws: &Workspace, meters: &[Meter]) -> Result<()> {
    let Some(meter) = meters.iter().find(|meter| meter.is_storage()) else {
        return Ok(());
    };
    if perfquilt_bench::server::adapter(ws)?
        .storage_reader()
        .is_some()
    {
        return Ok(());
    }
    let name = &ws.config.server.adapter;
    Err(Error::meter_unavailable(format!(
        "the adapter `{name}` does not know the server's counters for {meter}"
    ))
    .hint("`io_calls` and `io_bytes` can be read of every server"))
}
