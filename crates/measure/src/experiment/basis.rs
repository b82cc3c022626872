//! Gathers what a forecast depends on: the noise that was measured before, lanes, and memory.

use std::collections::BTreeMap;

use super::fingerprint::CLUSTER;
use super::forecast::{ClusterSize, Forecast, ForecastBasis, NoiseSource, WindowSizes};
use super::lanes::{automatic, wanted, within_cores};
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
    /// Seconds to use; `None` without a limit.
    pub(super) budget: Option<f64>,
}

/// Returns the forecast of the experiment.
///
/// # Errors
/// Invalid settings of workloads, more lanes than this machine has cores for, or a damaged store.
pub(super) fn forecast(work: Work<'_>, store: Option<&Store>) -> Result<Forecast> {
    let Work { ws, preset, .. } = work;
    let clients = Clients::new(ws, &work.header.release, work.workloads)?;
    let earlier = store.map(|store| earlier_noise(store, work.header));
    let earlier = earlier.transpose()?.flatten().unwrap_or_default();
    let threads = work.workloads.iter().map(|of| clients.threads(of)).max();
    let possible = lanes(threads.unwrap_or(1)).len();
    let cluster = preset.on.as_ref().map(|_| ClusterSize {
        machines: ws.config.cluster.machines.get(),
        between: earlier.between,
    });
    let servers = work.windows.most_servers();
    let adapter = server::adapter(ws)?;
    let key = clients.template_key(&work.header.release, adapter.as_ref(), work.workloads)?;
    let template = ws.cache().join("data").join(key);
    let space = match size_of_tree(&template) {
        Ok(bytes) if template.is_dir() => Some(ServerSpace { servers, bytes }),
        _ => None,
    };
    let lanes = match (wanted(ws.config.server.disk, preset.lanes), space) {
        // A worker takes as many lanes as its machine has; machines have lanes in proportion to their cores.
        _ if cluster.is_some() => {
            let here = allowed_cpus().len().max(1);
            (possible * cores_of(work.header).unwrap_or(here) / here).max(1)
        }
        (Lanes::Count(count), _) => within_cores(count, possible)?,
        (Lanes::Auto, Some(space)) => automatic(possible, &space),
        (Lanes::Auto, None) => possible,
    };
    let is_read = |timed: bool| preset.meters.iter().any(|meter| meter.is_timed() == timed);
    let basis = ForecastBasis {
        preset,
        timed: is_read(true),
        counted: is_read(false),
        windows: work.windows,
        points: work.points,
        closure: work.closure,
        noise: &earlier.noise,
        source: earlier
            .name
            .map_or(NoiseSource::Assumed, NoiseSource::Experiment),
        workloads: work.workloads.iter().map(|of| of.name.as_str()).collect(),
        lanes,
        cluster,
        processors: allowed_cpus().len(),
        budget: work.budget,
        memory: (
            space.map(|space| space.times(lanes).memory()),
            cluster.is_none().then(ServerSpace::available_memory),
        ),
    };
    Ok(basis.forecast())
}

/// Returns the number of processors of the machine of `header`.
fn cores_of(header: &ExperimentHeader) -> Option<usize> {
    header.machine.get("cores")?.parse().ok()
}

/// Returns whether two experiments were measured with the same harness, and both on the same cluster or on a machine alone.
pub(super) fn measured_alike(one: &ExperimentHeader, other: &ExperimentHeader) -> bool {
    one.harness == other.harness && one.machine.get(CLUSTER) == other.machine.get(CLUSTER)
}

/// What an earlier experiment found of the noise.
#[derive(Debug, Default)]
struct EarlierNoise {
    /// Its name; `None` if there is none.
    name: Option<String>,
    /// The variance of a value in a block, by workload.
    noise: BTreeMap<String, f64>,
    /// The largest standard deviation of a point's cost between machines, as a fraction.
    between: f64,
}

/// Returns the noise that the latest experiment on the same release and machine, or cluster, found.
fn earlier_noise(store: &Store, header: &ExperimentHeader) -> Result<Option<EarlierNoise>> {
    for earlier in store.earlier(&header.release)? {
        if !measured_alike(&earlier.header, header) {
            continue;
        }
        let name = earlier.header.experiment;
        let id = store.find(&name)?;
        let (header, observations) = store.load(id)?;
        let margin = &Meter::default_margin;
        let found =
            attribution::attribute_with(&header, &observations, &store.supplement(id)?, margin)?;
        let spread = found.noise.spread.into_iter();
        let noise: BTreeMap<String, f64> = spread
            .filter(|of| of.meter == Meter::Time)
            .filter_map(|of| Some((of.workload, of.block_sd?.powi(2))))
            .collect();
        if !noise.is_empty() {
            let machines = found.noise.machines.iter();
            return Ok(Some(EarlierNoise {
                name: Some(name),
                noise,
                between: machines.map(|of| of.between_sd).fold(0.0, f64::max),
            }));
        }
    }
    Ok(None)
}
