//! Gathers what a forecast depends on: the noise that was measured before, lanes, and memory.

use std::collections::BTreeMap;

use super::fingerprint::machine_facts;
use super::forecast::{Forecast, ForecastBasis, KnownNoise, NoiseSource, WindowSizes};
use super::identity;
use super::lanes::automatic;
use super::lengths::BlockSeconds;
use super::pilot::{Pilot, WorkloadNoise};
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Lanes, Preset, Workload};
use perfquilt_judge::attribution;
use perfquilt_machine::server::{self, ServerSpace, size_of_tree};
use perfquilt_machine::workload::{Clients, allowed_cpus, lanes};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter};
use perfquilt_store::Store;

/// The experiment to forecast.
pub(super) struct Work<'a> {
    pub(super) ws: &'a Workspace,
    pub(super) preset: &'a Preset,
    pub(super) workloads: &'a [&'a Workload],
    /// With release, machine and harness.
    pub(super) header: &'a ExperimentHeader,
    pub(super) windows: &'a WindowSizes,
    pub(super) points: usize,
    pub(super) closure: bool,
    pub(super) seconds: &'a BlockSeconds,
    pub(super) pilot: Option<&'a Pilot>,
    /// Seconds to use; `None` without a limit.
    pub(super) budget: Option<f64>,
}

/// Returns the forecast of the experiment.
///
/// # Errors
/// Invalid settings of workloads, or a damaged store.
pub(super) fn forecast(work: Work<'_>, store: Option<&Store>) -> Result<Forecast> {
    let Work { ws, preset, .. } = work;
    let clients = Clients::new(ws, &work.header.release, work.workloads)?;
    let (noise, source) = match (work.pilot, store) {
        (Some(pilot), _) => (Some(KnownNoise::from(pilot)), NoiseSource::Pilot),
        (None, Some(store)) => match earlier_noise(store, work.header, work.seconds)? {
            Some((noise, name)) => (Some(noise), NoiseSource::Experiment(name)),
            None => (None, NoiseSource::Assumed),
        },
        (None, None) => (None, NoiseSource::Assumed),
    };
    let threads = work.workloads.iter().map(|of| clients.threads(of)).max();
    let possible = lanes(threads.unwrap_or(1)).len();
    let servers = work.windows.most_servers();
    let adapter = server::adapter(ws)?;
    let key = clients.template_key(&work.header.release, adapter.as_ref(), work.workloads)?;
    let template = ws.cache().join("data").join(key);
    let space = match size_of_tree(&template) {
        Ok(bytes) if template.is_dir() => Some(ServerSpace { servers, bytes }),
        _ => None,
    };
    let lanes = match (preset.lanes, space) {
        (Lanes::Count(count), _) => (count.get() as usize).min(possible),
        (Lanes::Auto, Some(space)) => automatic(possible, &space),
        (Lanes::Auto, None) => possible,
    };
    let is_read = |timed: bool| preset.meters.iter().any(|meter| meter.is_timed() == timed);
    let seconds = work.workloads.iter();
    let seconds = seconds.map(|of| (of.name.clone(), work.seconds.of(&of.name)));
    let basis = ForecastBasis {
        preset,
        timed: is_read(true),
        counted: is_read(false),
        windows: work.windows,
        points: work.points,
        closure: work.closure,
        noise: noise.as_ref(),
        source,
        block_seconds: seconds.collect(),
        lanes,
        processors: allowed_cpus().len(),
        budget: work.budget,
        memory: (
            space.map(|space| space.times(lanes).memory()),
            ServerSpace::available_memory(),
        ),
    };
    Ok(basis.forecast())
}

/// Returns the noise that the latest experiment on the same release and machine found, and its name.
fn earlier_noise(
    store: &Store,
    header: &ExperimentHeader,
    seconds: &BlockSeconds,
) -> Result<Option<(KnownNoise, String)>> {
    for earlier in store.earlier(&header.release)? {
        if earlier.header.harness != header.harness {
            continue;
        }
        let name = earlier.header.experiment;
        let id = store.find(&name)?;
        let (header, observations) = store.load(id)?;
        let margin = &Meter::default_margin;
        let found =
            attribution::attribute_with(&header, &observations, &store.supplement(id)?, margin)?;
        let spread = found.noise.spread.into_iter();
        let workloads: BTreeMap<String, WorkloadNoise> = spread
            .filter(|of| of.meter == Meter::Time)
            .filter_map(|of| {
                let noise = WorkloadNoise {
                    seconds: seconds.of(&of.workload),
                    within: 0.0,
                    between: of.block_sd?.powi(2),
                };
                Some((of.workload, noise))
            })
            .collect();
        if !workloads.is_empty() {
            // How long its blocks took besides their slices is not stored.
            let overhead = None;
            return Ok(Some((
                KnownNoise {
                    overhead,
                    workloads,
                },
                name,
            )));
        }
    }
    Ok(None)
}

/// Returns the key of a pilot: its result holds for every series with the same release, recipe,
/// workloads, harness and machine.
///
/// # Errors
/// A workload's script cannot be read.
pub(super) fn pilot_key(
    ws: &Workspace,
    preset: &Preset,
    header: &ExperimentHeader,
    workloads: &[&Workload],
) -> Result<String> {
    let seconds = BlockSeconds::fixed(preset.block_seconds);
    let identity = identity::of(ws, header, &seconds, workloads, &[])?;
    let facts: Vec<_> = machine_facts(&header.machine).collect();
    Ok(format!(
        "{} {} {facts:?} {:?} {:?} lanes",
        identity.protocol, header.harness, identity.workloads, preset.lanes
    ))
}
