//! Blocks chosen one at a time, over any subset of states.
//!
//! States are points `0`, `1`, … of a separate experiment, whose series consists of the changes between them.
//! Every block draws new layouts and restarts every server.

use std::collections::{BTreeMap, BTreeSet};

use super::bench;
use super::collected::Collected;
use super::driver::Driver;
use super::identity;
use super::plan::{Reading, Scope};
use super::servers::{Server, Servers, programs, vary_layouts};
use super::site::Site;
use super::spec::Spec;
use super::strategy::RequestedBlocks;
use perfquilt_bench::meter::Counter;
use perfquilt_build::Built;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Layouts, Preset};
use perfquilt_judge::bisect::MeasuredBlock;
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Meter, Metric};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_store::{EarlierExperiment, ExperimentId, Store};

/// Measures states with one workload and meter.
pub struct AdaptiveRunner<'a> {
    /// With one workload and one meter.
    spec: Spec<'a>,
    metric: Metric,
    site: Site,
    key: String,
    store: &'a Store,
    id: ExperimentId,
    servers: Servers,
    /// The observations of this experiment, from the first call of [`AdaptiveRunner::measure`] on.
    collected: Option<Collected>,
}

impl<'a> AdaptiveRunner<'a> {
    /// Opens a runner for the states between `header`'s changes; continues the experiment of `key`. `preset`
    /// gives the measuring settings; of its workloads and meters the runner uses only the given ones.
    pub fn open(
        ws: &'a Workspace,
        preset: &Preset,
        (workload, metric): (&str, Metric),
        header: ExperimentHeader,
        key: &str,
        store: &'a Store,
    ) -> Result<Self> {
        let (spec, site) = spec_of_one(ws, preset, (workload, metric), header)?;
        let id = store.begin(&spec.header, key)?;
        Ok(AdaptiveRunner {
            spec,
            metric,
            site,
            key: key.to_owned(),
            store,
            id,
            servers: Servers::new(),
            collected: None,
        })
    }

    /// Adds a state's server. Whether the first one can be linked again holds for all.
    pub fn add(&mut self, state: usize, built: &Built) -> Result<()> {
        let point = Point::Step(state);
        let server = Server::new(point, built, &self.spec.header);
        if self.servers.is_empty() {
            let mut first = Servers::from([(point, server.clone())]);
            let layouts = vary_layouts(&self.spec.preset, &mut first)?;
            self.spec.set_layouts(layouts)?;
            self.spec.preset.layouts = Some(layouts);
            self.id = self.store.begin(&self.spec.header, &self.key)?;
            self.collected = None;
        }
        self.servers.insert(point, server);
        let recipe = self.spec.ws.config.recipe(&self.spec.preset.recipe)?;
        let record = built.record(point, recipe.binary.as_deref());
        self.store.record_builds(self.id, &[record])?;
        let observed = self.spec.observed(programs(&self.servers))?;
        self.store.record_observed(self.id, &observed)
    }

    /// Returns a state's server, once it was added.
    pub fn server(&self, state: usize) -> Option<&Server> {
        self.servers.get(&Point::Step(state))
    }

    /// Declares that the server of `state`, which was added, needs the data of `release`, prepared by the server of state
    /// `by`.
    pub fn data_of(&mut self, state: usize, release: &str, by: usize) {
        let data = self
            .server(by)
            .map(|by| (release.to_owned(), by.dir.clone()));
        if let Some(server) = self.servers.get_mut(&Point::Step(state)) {
            server.data = data;
        }
    }

    /// Returns the blocks measured so far, from `number` on.
    pub fn blocks(&self, number: u32) -> Result<Vec<MeasuredBlock>> {
        let mut blocks = stored(self.store, &self.key, (self.workload(), self.metric))?;
        blocks.retain(|block| block.number >= number);
        Ok(blocks)
    }

    /// Measures blocks `numbers` of `states`, whose servers were added. Returns the states that failed, which
    /// later blocks leave out.
    pub fn measure(
        &mut self,
        states: &[usize],
        numbers: std::ops::Range<u32>,
    ) -> Result<BTreeMap<usize, Error>> {
        let points: Vec<Point> = states.iter().map(|&state| Point::Step(state)).collect();
        let mut servers = Servers::new();
        for point in &points {
            let missing = || Error::internal(format!("state {point} has no server"));
            let server = self.servers.get(point).ok_or_else(missing)?;
            servers.insert(*point, server.clone());
        }
        // The base prepares the data; without it, the first server that is built.
        let base = self.servers.get(&Point::BASE);
        if let Some(base) = base.or_else(|| servers.get(points.first()?)).cloned() {
            servers.insert(Point::BASE, base);
        }
        vary_layouts(&self.spec.preset, &mut servers)?;
        let header = self.spec.header.clone();
        let setup = self.spec.setup(servers, states.len(), header, &[])?;
        let readings = self.spec.readings();
        let margin = Meter::default_margin;
        let collected = match self.collected.take() {
            Some(collected) => collected,
            None => Collected::load(self.store, self.id, Vec::new(), &readings)?,
        };
        let mut driver = Driver::new(self.store, self.id, readings, collected, &margin)?;
        let scope = Scope {
            seed: identity::seed(&self.key),
            points: &points,
            windows: &[],
            lanes: 1,
            workloads: &self.spec.preset.workloads,
            blocks: 0,
            count_blocks: 0,
            layouts: self.spec.layouts,
            direct: &[],
        };
        let mut strategy = RequestedBlocks::new(numbers, scope, self.reading());
        let wave = self.site.wave(self.spec.ws);
        let bench = bench::open(&self.spec, &self.site, setup, &self.key, wave)?;
        let (failed, end) = driver.drive(&mut strategy, bench.as_ref());
        bench.close(end.is_ok());
        self.collected = Some(driver.into_collected());
        end?;
        if let Some(error) = failed.workloads.into_values().next() {
            return Err(error);
        }
        let failed = failed
            .points
            .into_iter()
            .filter_map(|(point, error)| match point {
                Point::Step(state) => Some((state, error)),
                _ => None,
            })
            .collect();
        // Later sessions may use these blocks even if this session never ends.
        self.store.finish(self.id)?;
        Ok(failed)
    }

    /// Returns the workload's name.
    fn workload(&self) -> &str {
        let mut workloads = self.spec.preset.workloads.iter();
        workloads.next().map_or("", String::as_str)
    }

    fn reading(&self) -> Reading {
        if self.metric.meter.is_timed() {
            Reading::Timed
        } else {
            Reading::Counted
        }
    }

    /// Returns the blocks of `store` with at least two servers of the states, latest experiment first: those measured on
    /// this machine in the same way as this runner measures. `keys` are those of the states' builds, as far as their sources are
    /// known.
    pub fn known(
        &self,
        store: &Store,
        keys: &BTreeMap<usize, String>,
    ) -> Result<Vec<MeasuredBlock>> {
        let own = self.store.header(self.id)?.experiment;
        let workload = self.workload();
        let observed = self.spec.observed(std::iter::empty())?;
        // The length of a block does not change the counts.
        let is_timed = self.metric.meter.is_timed();
        let matters = |part: &Part| match part {
            Part::Seconds(_) => is_timed && part.is_of(workload),
            part => part.is_condition() || part.is_of(workload),
        };
        let harnesses = self.harnesses()?.into_iter();
        let like = harnesses.map(|harness| observed.clone().with(Part::Harness, harness));
        let like: Vec<Comparable> = like.map(|conditions| conditions.only(matters)).collect();
        let mut known = Vec::new();
        for earlier in store.earlier(&self.spec.header.release)? {
            let name = &earlier.header.experiment;
            let is_own = std::ptr::eq(store, self.store) && *name == own;
            if is_own || !like.contains(&earlier.observed.only(matters)) {
                continue;
            }
            let shared = self.shared(store, &earlier, keys)?;
            if shared.len() < 2 {
                continue;
            }
            let states = |point: Point| shared.get(&point).copied();
            let blocks = blocks_of(store, name, workload, self.metric, &states)?;
            known.extend(blocks.into_iter().map(|block| MeasuredBlock {
                source: Some(name.clone()),
                ..block
            }));
        }
        Ok(known)
    }

    /// Maps points of an earlier experiment to the states whose servers they are, by build or by identity.
    fn shared(
        &self,
        store: &Store,
        earlier: &EarlierExperiment,
        keys: &BTreeMap<usize, String>,
    ) -> Result<BTreeMap<Point, usize>> {
        let builds = store.builds(store.find(&earlier.header.experiment)?)?;
        let mut shared = BTreeMap::new();
        for &point in earlier.measured.keys() {
            if point == Point::Control || earlier.header.failed.contains_key(&point) {
                continue;
            }
            let build = builds.iter().rfind(|build| build.point == point);
            let program = earlier.observed.get(&Part::Program(point));
            let is_same = |(state, key): &(&usize, &String)| {
                let identity = self.server(**state).map(|server| &*server.identity);
                build.is_some_and(|build| build.key == **key)
                    || program.is_some() && program == identity
            };
            if let Some((&state, _)) = keys.iter().find(is_same) {
                shared.insert(point, state);
            }
        }
        Ok(shared)
    }

    /// Returns the identities of the harnesses that measure this meter in the same way: reading other meters
    /// beside it makes no difference.
    fn harnesses(&self) -> Result<BTreeSet<String>> {
        let mut counters = vec![self.spec.counter.clone()];
        if self.spec.counter.is_empty() && self.site.scheduler.is_none() {
            counters.extend(Counter::detect().ok().map(|counter| counter.describe()));
        }
        let layouts = if self.metric.meter.is_timed() {
            vec![self.spec.layouts]
        } else {
            vec![Layouts::Off, Layouts::Padded]
        };
        let mut harnesses = BTreeSet::new();
        for counter in counters {
            for &layouts in &layouts {
                harnesses.insert(identity::harness(self.spec.ws, &counter, layouts)?);
            }
        }
        Ok(harnesses)
    }
}

/// Returns the blocks that a runner measured under `key`; none if no experiment has that key.
pub fn stored(
    store: &Store,
    key: &str,
    (workload, metric): (&str, Metric),
) -> Result<Vec<MeasuredBlock>> {
    let states = |point: Point| match point {
        Point::Step(state) => Some(state),
        _ => None,
    };
    match store.header_of_key(key)? {
        Some(begun) => blocks_of(store, &begun.experiment, workload, metric, &states),
        None => Ok(Vec::new()),
    }
}

/// Returns what blocks are observed of besides programs, if layouts can be varied as `preset` says.
pub fn observed(
    ws: &Workspace,
    preset: &Preset,
    measured: (&str, Metric),
    header: &ExperimentHeader,
) -> Result<Comparable> {
    let (spec, _) = spec_of_one(ws, preset, measured, header.clone())?;
    spec.observed(std::iter::empty())
}

/// Resolves the settings of `preset` for one workload and one meter, and asks the site that measures.
fn spec_of_one<'a>(
    ws: &'a Workspace,
    preset: &Preset,
    (workload, metric): (&str, Metric),
    header: ExperimentHeader,
) -> Result<(Spec<'a>, Site)> {
    let meter = metric.meter;
    let preset = Preset {
        workloads: vec![workload.to_owned()],
        meters: vec![meter],
        ..preset.clone()
    };
    let site = progress::silently(|| Site::ask(ws, &preset, !meter.is_timed()))?;
    if !meter.is_timed() && !site.facts.meters.contains(&meter) {
        let fault = format!("{meter} cannot be read with {}", site.facts.counter);
        return Err(Error::measuring(fault));
    }
    let layouts = if meter.is_timed() {
        preset.layouts.unwrap_or(Layouts::Padded)
    } else {
        Layouts::Off
    };
    let spec = Spec::resolve(ws, &preset, &site, layouts, header)?;
    Ok((spec, site))
}

/// The number of the first end-to-end block: the numbers of blocks passed to the bisection must not
/// change when their experiment gets more of the others.
const DIRECT: u32 = 1 << 31;

/// Returns the blocks of an experiment with at least two of the states in `state_of`. End-to-end blocks
/// come after the others.
fn blocks_of(
    store: &Store,
    experiment: &str,
    workload: &str,
    metric: Metric,
    state_of: &dyn Fn(Point) -> Option<usize>,
) -> Result<Vec<MeasuredBlock>> {
    let id = store.find(experiment)?;
    let (_, observations) = store.load(id)?;
    let mut blocks: BTreeMap<(bool, u32), MeasuredBlock> = BTreeMap::new();
    for observation in observations {
        let wanted = observation.experiment == experiment
            && observation.workload == workload
            && observation.meter == metric.meter;
        let state = state_of(observation.point).filter(|_| wanted);
        let Some((state, cost)) = state.zip(metric.cost(&observation)) else {
            continue;
        };
        let place = (observation.direct, observation.block);
        let block = blocks.entry(place).or_default();
        block.values.insert(state, cost);
        if observation.layout != 0 {
            block.layouts.insert(state, observation.layout);
        }
    }
    Ok(blocks
        .into_iter()
        .filter(|(_, block)| block.values.len() > 1)
        .map(|((direct, number), block)| MeasuredBlock {
            number: if direct { DIRECT + number } else { number },
            ..block
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::observation::Observation;

    #[test]
    fn a_direct_block_keeps_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("results.db")).unwrap();
        let mut header = ExperimentHeader::new("toy-1", "quick");
        header.series = vec!["a.patch".into()];
        let id = store.begin(&header, "key").unwrap();
        let add = |block: u32, direct: bool| {
            let of = |step: usize| Observation {
                direct,
                ..Observation::new(block, Point::Step(step), "w", Meter::Time, 100.0)
            };
            store.append(id, &[of(0), of(1)], &[]).unwrap();
        };
        let numbers = || -> Vec<u32> {
            let state = |point| match point {
                Point::Step(step) => Some(step),
                _ => None,
            };
            let blocks = blocks_of(&store, "toy-1-quick", "w", Meter::Time.into(), &state).unwrap();
            blocks.iter().map(|block| block.number).collect()
        };
        add(0, false);
        add(0, true);
        assert_eq!(numbers(), [0, DIRECT]);
        add(1, false);
        assert_eq!(numbers(), [0, 1, DIRECT]);
    }
}
