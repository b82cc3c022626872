//! Where an experiment is measured.

use std::num::NonZeroU32;

use super::cluster;
use super::identity::Facts;
use perfquilt_cluster::scheduler::Scheduler;
use perfquilt_config::Preset;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::comparable::CLUSTER;
use perfquilt_model::error::Result;

/// This machine, or the machines of a cluster, with what is known about them.
pub(super) struct Site {
    /// The scheduler of the cluster; `None` for this machine.
    pub(super) scheduler: Option<Box<dyn Scheduler>>,
    /// The facts of a machine. Values of a single machine and of a class of machines are not the same population, so those
    /// of a cluster have its name as well.
    pub(super) facts: Facts,
}

impl Site {
    /// Returns the facts of this machine, or of one in the cluster that the preset names.
    pub(super) fn ask(ws: &Workspace, preset: &Preset) -> Result<Self> {
        let Some(on) = &preset.on else {
            return Self::assume(ws, preset);
        };
        let scheduler = cluster::scheduler(ws, on)?;
        let counts = !preset.counted_meters().is_empty();
        let facts = cluster::facts(ws, (on, scheduler.as_ref()), counts)?;
        Ok(Site::new(Some(scheduler), facts, ws, preset))
    }

    /// Returns the site without asking a cluster, for a forecast: its machines are taken to be like this one.
    pub(super) fn assume(ws: &Workspace, preset: &Preset) -> Result<Self> {
        if let Some(on) = &preset.on {
            cluster::configured(ws, on)?;
        }
        let facts = Facts::here(!preset.counted_meters().is_empty())?;
        Ok(Site::new(None, facts, ws, preset))
    }

    fn new(
        scheduler: Option<Box<dyn Scheduler>>,
        mut facts: Facts,
        ws: &Workspace,
        preset: &Preset,
    ) -> Self {
        let cluster = preset.on.as_ref().map(|on| cluster::describe(ws, on));
        let cluster = cluster.map(|words| (CLUSTER.to_owned(), words));
        facts.machine.extend(cluster);
        Site { scheduler, facts }
    }

    /// Returns the number of blocks of a wave of a new experiment; `None` on this machine.
    pub(super) fn wave(&self, ws: &Workspace) -> Option<NonZeroU32> {
        self.scheduler.as_ref().map(|_| cluster::wave(ws))
    }
}
