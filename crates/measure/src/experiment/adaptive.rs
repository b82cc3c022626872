//! Blocks chosen one at a time, over any subset of states.
//!
//! States are points `0`, `1`, … of a separate experiment, whose series consists of the changes between them.
//! Every block draws new layouts and restarts every server.

use std::collections::{BTreeMap, BTreeSet};

use super::bench;
use super::cluster;
use super::collected::Collected;
use super::driver::Driver;
use super::identity;
use super::plan::{Reading, Scope, single};
use super::servers::{ExperimentServer, Servers, server, vary_layouts};
use super::site::Site;
use super::spec::Spec;
use super::strategy::RequestedBlocks;
use perfquilt_bench::meter::Counter;
use perfquilt_build::Built;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Layouts, Preset};
use perfquilt_judge::attribution::Unexecuted;
use perfquilt_judge::bisect::MeasuredBlock;
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Meter, Metric};
use perfquilt_model::point::Point;
use perfquilt_model::progress::{Progress, Silent};
use perfquilt_store::{EarlierExperiment, ExperimentId, Store};

/// The identifiers of a state's server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerIds {
    /// The key of its build in the cache, once its sources are known.
    pub key: Option<String>,
    /// The server's identity, once it is built.
    pub identity: Option<String>,
}

/// Measures states with one workload and meter.
pub struct AdaptiveRunner<'a> {
    /// With one workload and one meter.
    spec: Spec<'a>,
    metric: Metric,
    site: Site,
    /// Whether the layouts are final: the first server decides whether servers can be linked again.
    layouts_chosen: bool,
    key: String,
    store: &'a Store,
    id: ExperimentId,
    servers: BTreeMap<usize, Built>,
    /// Releases whose servers need data of their own, by state: the release, and the state whose server
    /// prepares it.
    data: BTreeMap<usize, (String, usize)>,
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
            layouts_chosen: spec.layouts == Layouts::Off,
            spec,
            metric,
            site,
            key: key.to_owned(),
            store,
            id,
            servers: BTreeMap::new(),
            data: BTreeMap::new(),
            collected: None,
        })
    }

    /// Checks with one server whether servers can be linked again; the answer holds for all.
    fn settle(&mut self, built: &Built, progress: &dyn Progress) -> Result<()> {
        if self.layouts_chosen {
            return Ok(());
        }
        let one = server(Point::BASE, built, &self.spec.header);
        let mut one = Servers::from([(Point::BASE, one)]);
        let layouts = vary_layouts(&self.spec.preset, &mut one, progress)?;
        self.spec.set_layouts(layouts)?;
        self.layouts_chosen = true;
        self.id = self.store.begin(&self.spec.header, &self.key)?;
        self.collected = None;
        Ok(())
    }

    /// Adds a state's server.
    pub fn add(&mut self, state: usize, built: &Built, progress: &dyn Progress) -> Result<()> {
        self.settle(built, progress)?;
        let point = Point::Step(state);
        self.servers.insert(state, built.clone());
        let recipe = self.spec.ws.config.recipe(&self.spec.preset.recipe)?;
        let record = built.record(point, recipe.binary.as_deref());
        self.store.record_builds(self.id, &[record])?;
        let servers = self.servers.iter();
        let programs = servers.map(|(&state, built)| (Point::Step(state), &*built.identity));
        let observed = self.spec.observed(programs)?;
        self.store.record_observed(self.id, &observed)
    }

    /// Declares that `state` needs the data of `release`, prepared by the server of state `by`.
    pub fn data_of(&mut self, state: usize, release: &str, by: usize) {
        self.data.insert(state, (release.to_owned(), by));
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
        progress: &dyn Progress,
    ) -> Result<BTreeMap<usize, Error>> {
        let with_data = states
            .iter()
            .filter_map(|state| Some(self.data.get(state)?.1));
        let needed: BTreeSet<usize> = states.iter().copied().chain(with_data).collect();
        let mut servers = Servers::new();
        // The base prepares the data; without it, the first server that is built.
        let base = [0].into_iter().chain(states.iter().copied());
        if let Some(built) = base.filter_map(|state| self.servers.get(&state)).next() {
            let base = server(Point::BASE, built, &self.spec.header);
            servers.insert(Point::BASE, base);
        }
        for state in needed {
            let built = self
                .servers
                .get(&state)
                .ok_or_else(|| Error::internal(format!("state {state} has no server")))?;
            let point = Point::Step(state);
            let data = self.data.get(&state).and_then(|(release, by)| {
                let by = self.servers.get(by)?;
                Some((release.clone(), by.dir.clone()))
            });
            let server = server(point, built, &self.spec.header);
            servers.insert(point, ExperimentServer { data, ..server });
        }
        // The check of the first server holds for all.
        let preset = Preset {
            layouts: Some(self.spec.layouts),
            ..self.spec.preset.clone()
        };
        vary_layouts(&preset, &mut servers, progress)?;
        let setup = self
            .spec
            .setup(servers, states.len(), Unexecuted::default())?;
        let readings = self.spec.readings();
        let margin = Meter::default_margin;
        let collected = match self.collected.take() {
            Some(collected) => collected,
            None => Collected::load(self.store, self.id, Vec::new(), &readings)?,
        };
        let mut driver = Driver::new(self.store, self.id, readings, collected, &margin)?;
        let (seed, reading) = (identity::seed(&self.key), self.reading());
        let draw = |number: u32, points: &[Point]| {
            let scope = Scope {
                seed,
                points,
                windows: &[],
                lanes: 1,
                workloads: &self.spec.preset.workloads,
                blocks: 0,
                count_blocks: 0,
                layouts: self.spec.layouts,
                direct: &[],
            };
            single(&scope, reading, number)
        };
        let points = states.iter().map(|&state| Point::Step(state)).collect();
        let mut strategy = RequestedBlocks::new(numbers, points, draw);
        let wave = self
            .site
            .scheduler
            .as_ref()
            .map(|_| cluster::wave(self.spec.ws));
        let record = (self.key.as_str(), &self.spec.header, &[][..]);
        let bench = bench::open(&self.spec, &self.site, setup, record, wave, progress)?;
        let (failed, end) = driver.drive(&mut strategy, bench.as_ref(), progress);
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
    /// this machine in the same way as this runner measures.
    pub fn known(
        &self,
        store: &Store,
        names: &BTreeMap<usize, ServerIds>,
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
            let shared = shared(store, &earlier, names)?;
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
    let site = Site::ask(ws, &preset, !meter.is_timed(), &Silent)?;
    if !meter.is_timed() && !site.facts.meters.contains(&meter) {
        let fault = format!("{meter} cannot be read with {}", site.facts.counter);
        return Err(Error::usage(fault));
    }
    let layouts = if meter.is_timed() {
        preset.layouts.unwrap_or(Layouts::Padded)
    } else {
        Layouts::Off
    };
    let spec = Spec::resolve(ws, &preset, &site, layouts, header)?;
    Ok((spec, site))
}

/// Maps points of an earlier experiment to the states whose servers they are, by build or by identity.
fn shared(
    store: &Store,
    earlier: &EarlierExperiment,
    names: &BTreeMap<usize, ServerIds>,
) -> Result<BTreeMap<Point, usize>> {
    let id = store.find(&earlier.header.experiment)?;
    let keys: BTreeMap<Point, String> = store
        .builds(id)?
        .into_iter()
        .map(|build| (build.point, build.key))
        .collect();
    let mut shared = BTreeMap::new();
    for &point in earlier.measured.keys() {
        if point == Point::Control || earlier.header.failed.contains_key(&point) {
            continue;
        }
        let (key, program) = (
            keys.get(&point),
            earlier.observed.get(&Part::Program(point)),
        );
        let state = names.iter().find(|(_, names)| {
            (key.is_some() && key == names.key.as_ref())
                || (program.is_some() && program == names.identity.as_deref())
        });
        if let Some((&state, _)) = state {
            shared.insert(point, state);
        }
    }
    Ok(shared)
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
