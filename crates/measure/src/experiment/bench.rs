//! Where blocks are measured, ready to begin.

use std::num::NonZeroU32;

use super::cluster::Cluster;
use super::executor::Executor;
use super::machine::Setup;
use super::site::Site;
use super::spec::Spec;
use perfquilt_model::error::Result;

/// Prepares `site`, this machine or a cluster, for the experiment stored under `key`, whose blocks `setup` measures.
pub(super) fn open<'a>(
    spec: &'a Spec<'_>,
    site: &'a Site,
    setup: Setup,
    key: &str,
    wave: Option<NonZeroU32>,
) -> Result<Box<dyn Executor + 'a>> {
    let (Some(scheduler), Some(wave)) = (&site.scheduler, wave) else {
        return Ok(Box::new(spec.this_machine(setup)?));
    };
    let task = spec.task(key, setup)?;
    let cluster = Cluster::new(spec.ws, scheduler.as_ref(), task, wave.get())?;
    Ok(Box::new(cluster))
}
