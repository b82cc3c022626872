//! Gathers what a forecast depends on: the noise that was measured before, lanes, and memory.

use std::collections::BTreeMap;

use super::design::Design;
use super::forecast::{
    ClusterSize, DATABASE, Forecast, ForecastBasis, Guess, NoiseSource, Pace, SMALL_SERVER,
};
use super::lanes::{automatic, wanted, within_cores};
use super::remaining::BlockTimes;
use super::spec::Spec;
use perfquilt_bench::server::{self, ServerSpace};
use perfquilt_bench::workload::{Clients, allowed_cpus, lanes};
use perfquilt_config::{Lanes, Layouts, Workload};
use perfquilt_judge::attribution::{Collector, MeasuredScatter, Scatter};
use perfquilt_model::comparable::{CLUSTER, Comparable, Part};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter};
use perfquilt_store::{ExperimentSummary, Store};
use perfquilt_system::caches;

/// Returns the forecast of the experiment of `header`, for `budget` seconds in all, and how long its blocks take.
pub(super) fn forecast(
    design: &Design<'_>,
    header: &ExperimentHeader,
    budget: Option<f64>,
    store: Option<&Store>,
) -> Result<(Forecast, BlockTimes)> {
    let spec = design.spec;
    let Spec { ws, preset, .. } = spec;
    let workloads = &spec.readings.workloads;
    let clients = Clients::new(ws, &header.release, workloads)?;
    let guess = match ws.config.server.adapter.as_str() {
        "command" => &SMALL_SERVER,
        _ => &DATABASE,
    };
    let earlier = store.map(|store| Earlier::find(store, spec, header, guess));
    let earlier = earlier.transpose()?.unwrap_or_default();
    let threads = workloads
        .iter()
        .map(|workload| clients.threads(workload))
        .max();
    let possible = lanes(threads.unwrap_or(1)).len();
    let cluster = preset.on.as_ref().map(|_| ClusterSize {
        machines: ws.config.cluster.machines.get(),
        between: earlier.between,
    });
    let servers = design.most_servers();
    let adapter = server::adapter(ws)?;
    let key = clients.template_key(spec.ws, &header.release, adapter.as_ref())?;
    let template = ws.cache().join("data").join(key);
    let bytes = template.is_dir().then(|| caches::size(&template));
    let space = bytes.map(|bytes| ServerSpace { servers, bytes });
    let lanes = match (wanted(ws.config.server.disk, preset.lanes), space) {
        // A worker takes as many lanes as its machine has; machines have lanes in proportion to their cores.
        _ if cluster.is_some() => {
            let here = allowed_cpus().len().max(1);
            (possible * cores_of(header).unwrap_or(here) / here).max(1)
        }
        (Lanes::Count(count), _) => within_cores(count, possible)?,
        (Lanes::Auto, Some(space)) => automatic(possible, &space),
        (Lanes::Auto, None) => possible,
    };
    let noise = earlier.noise.into_iter();
    let noise: BTreeMap<String, Scatter> = noise
        .map(|(name, all)| (name, Scatter::Measured(all)))
        .collect();
    let basis = ForecastBasis {
        preset,
        timed: !preset.timed_meters().is_empty(),
        counted: !preset.counted_meters().is_empty(),
        windows: design.windows.iter().map(Vec::len).collect(),
        points: design.points.len(),
        end_to_end: !design.end_to_end.is_empty(),
        noise: &noise,
        source: earlier
            .name
            .map_or(NoiseSource::Assumed, NoiseSource::Experiment),
        one_layout: earlier.one_layout || preset.layouts == Some(Layouts::Off),
        pace: earlier.pace,
        guess,
        workloads: workloads
            .iter()
            .map(|workload| workload.name.as_str())
            .collect(),
        lanes,
        cluster,
        processors: allowed_cpus().len(),
        budget,
        memory: (
            space.map(|space| space.times(lanes).memory()),
            cluster.is_none().then(ServerSpace::available_memory),
        ),
    };
    Ok((basis.forecast()?, basis.block_times()))
}

/// Returns the number of processors of the machine of `header`.
fn cores_of(header: &ExperimentHeader) -> Option<usize> {
    header.machine.get("cores")?.parse().ok()
}

/// Returns whether two experiments were measured with the same harness, and both on the same cluster or on a machine alone.
pub(super) fn measured_alike(one: &ExperimentHeader, other: &ExperimentHeader) -> bool {
    same(one, other, |part| {
        *part == Part::Harness || is_cluster(part)
    })
}

/// Returns whether two experiments have the same parts that `matter`.
fn same(one: &ExperimentHeader, other: &ExperimentHeader, matter: impl Fn(&Part) -> bool) -> bool {
    Comparable::of(one).only(&matter) == Comparable::of(other).only(&matter)
}

fn is_cluster(part: &Part) -> bool {
    *part == Part::Machine(CLUSTER.to_owned())
}

/// The most experiments whose noise is joined.
const MOST_JOINED: usize = 5;

/// Facts about the next experiment from earlier ones of the workspace.
#[derive(Debug, Default)]
struct Earlier {
    /// The latest of those that the noise is from; `None` if no workload was timed.
    name: Option<String>,
    /// How values scatter, by workload.
    noise: BTreeMap<String, Vec<MeasuredScatter>>,
    /// The largest standard deviation of a point's cost between machines, as a fraction.
    between: f64,
    /// Whether all its blocks ran the same code layout.
    one_layout: bool,
    /// How long blocks took.
    pace: Pace,
}

impl Earlier {
    /// Looks for the pace and for the noise of each workload in the latest experiments on the same machine or cluster: in
    /// those of the release with the same harness, and in others where these did not time a workload.
    fn find(
        store: &Store,
        spec: &Spec<'_>,
        header: &ExperimentHeader,
        guess: &Guess,
    ) -> Result<Self> {
        let mut found = Earlier::default();
        let mut listed = store.list()?;
        listed.retain(|earlier| {
            !earlier.header.is_of_servers() && same(&earlier.header, header, is_cluster)
        });
        let is_nearest = |earlier: &ExperimentHeader| {
            earlier.release == header.release && measured_alike(earlier, header)
        };
        listed.sort_by_key(|earlier| !is_nearest(&earlier.header));
        let preset = &spec.preset;
        let timed = preset.meters.contains(&Meter::Time);
        let counted = !preset.counted_meters().is_empty();
        for summary in listed {
            if !found.pace.is_known(timed, counted) {
                let took = store.durations(summary.id)?;
                let pace = Pace::of(&took, guess, allowed_cpus().len());
                found.pace = found.pace.or(pace);
            }
            let most = if is_nearest(&summary.header) {
                MOST_JOINED
            } else {
                1
            };
            let is_open = |workload: &&Workload| {
                let known = found.noise.get(&workload.name);
                known.is_none_or(|known| known.len() < most)
            };
            let open: Vec<&Workload> = spec.readings.workloads.iter().filter(is_open).collect();
            if timed && !open.is_empty() {
                found.add_noise(store, &summary, &open)?;
            }
        }
        Ok(found)
    }

    /// Adds the noise of `workloads` that one experiment found.
    fn add_noise(
        &mut self,
        store: &Store,
        summary: &ExperimentSummary,
        workloads: &[&Workload],
    ) -> Result<()> {
        let (header, observations) = store.load(summary.id)?;
        let supplement = store.supplement(summary.id)?;
        let mut collector = Collector::new(&header, &supplement)?;
        for observation in &observations {
            collector.add(observation)?;
        }
        let mut is_used = false;
        for workload in workloads {
            let scatter = collector.scatter(&workload.name);
            if !scatter.is_empty() {
                let known = self.noise.entry(workload.name.clone()).or_default();
                known.push(scatter);
                is_used = true;
            }
        }
        if is_used && self.name.is_none() {
            self.name = Some(summary.header.experiment.clone());
            let found = collector.finish(&Meter::default_margin).noise;
            self.one_layout = found.layouts < 2;
            let machines = found.machines.iter();
            self.between = machines
                .map(|machine| machine.between_sd)
                .fold(0.0, f64::max);
        }
        Ok(())
    }
}
