//! Where an experiment is measured.

use std::collections::BTreeMap;
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
    /// The facts of a machine, without the cluster.
    pub(super) facts: Facts,
    /// The words for the cluster in the record of an experiment.
    pub(super) cluster: Option<String>,
}

impl Site {
    /// Returns the facts of this machine, or of one in the cluster that the preset names. `counts` tells whether a meter is
    /// counted.
    pub(super) fn ask(ws: &Workspace, preset: &Preset, counts: bool) -> Result<Self> {
        let (scheduler, facts) = match preset.on.as_deref() {
            Some(on) => {
                let scheduler = cluster::scheduler(ws, on)?;
                let facts = cluster::facts(ws, (on, scheduler.as_ref()), counts)?;
                (Some(scheduler), facts)
            }
            None => (None, Facts::here(counts)?),
        };
        Ok(Site {
            scheduler,
            facts,
            cluster: described(ws, preset),
        })
    }

    /// Returns the site without asking a cluster, for a forecast: its machines are taken to be like this one.
    pub(super) fn assume(ws: &Workspace, preset: &Preset, counts: bool) -> Result<Self> {
        if let Some(on) = &preset.on {
            cluster::configured(ws, on)?;
        }
        Ok(Site {
            scheduler: None,
            facts: Facts::here(counts)?,
            cluster: described(ws, preset),
        })
    }

    /// Returns the number of blocks of a wave of a new experiment; `None` on this machine.
    pub(super) fn wave(&self, ws: &Workspace) -> Option<NonZeroU32> {
        self.scheduler.as_ref().map(|_| cluster::wave(ws))
    }

    /// Returns the facts of the machines for the header of an experiment. Values of a single machine and of a class of
    /// machines are not the same population.
    pub(super) fn machine(&self) -> BTreeMap<String, String> {
        let mut machine = self.facts.machine.clone();
        machine.extend(
            self.cluster
                .clone()
                .map(|words| (CLUSTER.to_owned(), words)),
        );
        machine
    }
}

fn described(ws: &Workspace, preset: &Preset) -> Option<String> {
    preset.on.as_ref().map(|on| cluster::describe(ws, on))
}
