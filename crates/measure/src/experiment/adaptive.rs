//! Blocks chosen one at a time, over any subset of states.
//!
//! States are points `0`, `1`, … of a separate experiment, whose series consists of the changes between them.
//! Every block draws new layouts and restarts every server.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use super::attempt::Attempt;
use super::driver::Driver;
use super::identity;
use super::open::OpenExperiment;
use super::plan::{BlockKind, Scope};
use super::servers::{Server, Servers, programs, vary_layouts, wanted_layouts};
use super::site::Site;
use super::spec::Spec;
use super::strategy::RequestedBlocks;
use perfquilt_bench::meter::Counter;
use perfquilt_build::Built;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Layouts, Preset};
use perfquilt_judge::bisect::{MeasuredBlock, Question};
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Meter};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_store::{EarlierExperiment, Store};

impl<'a> Spec<'a> {
    /// Resolves the settings of `preset` for states, of whose workloads and meters those of the question alone are measured,
    /// and asks the site that measures. `header` names the changes between the states.
    pub fn of_question(
        ws: &'a Workspace,
        preset: &Preset,
        question: &Question,
        header: ExperimentHeader,
    ) -> Result<Self> {
        let meter = question.meter.meter;
        let preset = Preset {
            workloads: vec![question.workload.clone()],
            meters: vec![meter],
            ..preset.clone()
        };
        let site = progress::silently(|| Site::ask(ws, &preset))?;
        if !meter.is_timed() && !site.facts.meters.contains(&meter) {
            let fault = format!("{meter} cannot be read with {}", site.facts.counter);
            return Err(Error::measuring(fault));
        }
        Spec::resolve(ws, &preset, site, wanted_layouts(&preset), header)
    }

    /// Returns the identities of the harnesses that measure the meters in the same way: reading other meters
    /// beside it makes no difference.
    fn harnesses(&self) -> Result<BTreeSet<String>> {
        let mut counters = vec![self.site.facts.counter.clone()];
        if counters[0].is_empty() && self.site.scheduler.is_none() {
            counters.extend(Counter::detect().ok().map(|counter| counter.describe()));
        }
        let layouts = if self.readings.counted.is_empty() {
            vec![self.layouts]
        } else {
            vec![Layouts::Off, Layouts::Padded]
        };
        let mut harnesses = BTreeSet::new();
        for counter in counters {
            for &layouts in &layouts {
                harnesses.insert(identity::harness(self.ws, &counter, layouts)?);
            }
        }
        Ok(harnesses)
    }
}

/// Measures states in an open experiment with one workload and meter.
pub struct AdaptiveRunner<'a> {
    spec: Spec<'a>,
    question: Question,
    open: OpenExperiment<'a>,
    servers: Servers,
}

impl<'a> AdaptiveRunner<'a> {
    /// Opens the experiment of `key`, with the settings that `spec` has of `question`, for more blocks; a new one is called `name`.
    pub fn open(
        mut spec: Spec<'a>,
        question: &Question,
        name: String,
        key: &str,
        store: &'a Store,
    ) -> Result<Self> {
        spec.header.experiment = name;
        let (attempt, observed) = (Attempt::of_key(key), spec.observed([])?);
        let open = OpenExperiment::begin(&spec, attempt, &[], &observed, &[], store)?;
        Ok(AdaptiveRunner {
            spec,
            question: question.clone(),
            open,
            servers: Servers::new(),
        })
    }

    /// Adds a state's server. Whether the first one can be linked again holds for all.
    pub fn add(&mut self, state: usize, built: &Built) -> Result<()> {
        let settings = &mut self.spec;
        let point = Point::Step(state);
        let server = Server::new(point, built, &settings.header);
        if self.servers.is_empty() {
            let mut first = Servers::from([(point, server.clone())]);
            let layouts = vary_layouts(&settings.preset, &mut first)?;
            settings.set_layouts(layouts)?;
            settings.preset.layouts = Some(layouts);
            self.open.record_harness(&settings.header.harness)?;
        }
        self.servers.insert(point, server);
        let recipe = settings.ws.config.recipe(&settings.preset.recipe)?;
        let record = built.record(point, recipe.binary.as_deref());
        let OpenExperiment { store, id, .. } = self.open;
        store.record_builds(id, &[record])?;
        store.record_observed(id, &settings.observed(programs(&self.servers))?)
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
        let mut blocks = stored(self.open.store, &self.open.key, &self.question)?;
        blocks.retain(|block| block.number >= number);
        Ok(blocks)
    }

    /// Measures blocks `numbers` of `states`, whose servers were added; the progress output says that it measures `what`.
    /// Returns the blocks, and the states that failed, which later blocks leave out.
    pub fn measure(
        &self,
        states: &[usize],
        numbers: Range<u32>,
        what: &str,
    ) -> Result<(Vec<MeasuredBlock>, BTreeMap<usize, Error>)> {
        let count = numbers.end.saturating_sub(numbers.start);
        let step = progress::begin("measure", Some(u64::from(count)));
        step.update(0, Some(u64::from(count)), what);
        let started = Instant::now();
        let first = numbers.start;
        let failed = self.drive(states, numbers)?;
        step.finish("");
        let seconds = started.elapsed().as_secs_f64() / f64::from(count.max(1));
        let mut blocks = self.blocks(first)?;
        blocks.iter_mut().for_each(|block| block.seconds = seconds);
        Ok((blocks, failed))
    }

    /// Measures and stores blocks `numbers` of `states`. Returns the states that failed.
    fn drive(&self, states: &[usize], numbers: Range<u32>) -> Result<BTreeMap<usize, Error>> {
        let (spec, open) = (&self.spec, &self.open);
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
        vary_layouts(&spec.preset, &mut servers)?;
        let setup = spec.setup(servers, states.len(), spec.header.clone(), &[])?;
        let margin = Meter::default_margin;
        let mut driver = Driver::new(open.store, open.id, &spec.readings, Vec::new(), &margin)?;
        let scope = Scope {
            seed: identity::seed(&open.key),
            points: &points,
            windows: &[],
            lanes: 1,
            workloads: &spec.preset.workloads,
            blocks: 0,
            count_blocks: 0,
            layouts: spec.layouts,
            direct: &[],
        };
        let kind = if self.question.meter.meter.is_timed() {
            BlockKind::Timed
        } else {
            BlockKind::Counted
        };
        let mut strategy = RequestedBlocks::new(numbers, scope, kind);
        let bench = spec.executor(setup, &open.key, spec.site.wave(spec.ws))?;
        let (failed, end) = driver.drive(&mut strategy, bench.as_ref());
        bench.close(end.is_ok());
        end?;
        if let Some(error) = failed.workloads.into_values().next() {
            return Err(error);
        }
        // Later sessions may use these blocks even if this session never ends.
        open.store.finish(open.id)?;
        let failed = failed.points.into_iter();
        Ok(failed
            .filter_map(|(point, error)| Some((state_of(point)?, error)))
            .collect())
    }

    /// Returns the blocks of `store` with at least two servers of the states, latest experiment first: those measured on
    /// this machine in the same way as this runner measures. `keys` are those of the states' builds, as far as their sources are
    /// known.
    pub fn known(
        &self,
        store: &Store,
        keys: &BTreeMap<usize, String>,
    ) -> Result<Vec<MeasuredBlock>> {
        let (spec, question) = (&self.spec, &self.question);
        let own = self.open.store.header(self.open.id)?.experiment;
        let observed = spec.observed([])?;
        // The length of a block does not change the counts.
        let is_timed = question.meter.meter.is_timed();
        let matters = |part: &Part| match part {
            Part::Seconds(_) => is_timed && part.is_of(&question.workload),
            part => part.is_condition() || part.is_of(&question.workload),
        };
        let harnesses = spec.harnesses()?.into_iter();
        let like = harnesses.map(|harness| observed.clone().with(Part::Harness, harness));
        let like: Vec<Comparable> = like.map(|conditions| conditions.only(matters)).collect();
        let mut known = Vec::new();
        for earlier in store.earlier(&spec.header.release)? {
            let name = &earlier.header.experiment;
            let is_own = std::ptr::eq(store, self.open.store) && *name == own;
            if is_own || !like.contains(&earlier.observed.only(matters)) {
                continue;
            }
            let shared = self.shared(store, &earlier, keys)?;
            if shared.len() < 2 {
                continue;
            }
            let states = |point: Point| shared.get(&point).copied();
            let blocks = blocks_of(store, name, question, &states)?;
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
}

fn state_of(point: Point) -> Option<usize> {
    match point {
        Point::Step(state) => Some(state),
        _ => None,
    }
}

/// The number of the first end-to-end block: the numbers of blocks passed to the bisection must not
/// change when their experiment gets more of the others.
const DIRECT: u32 = 1 << 31;

/// Returns the blocks about `question` that were measured under `key`; none if no experiment has that key.
pub fn stored(store: &Store, key: &str, question: &Question) -> Result<Vec<MeasuredBlock>> {
    match store.header_of_key(key)? {
        Some(begun) => blocks_of(store, &begun.experiment, question, &state_of),
        None => Ok(Vec::new()),
    }
}

/// Returns the blocks of an experiment with at least two of the states in `state_of`. End-to-end blocks
/// come after the others.
fn blocks_of(
    store: &Store,
    experiment: &str,
    question: &Question,
    state_of: &dyn Fn(Point) -> Option<usize>,
) -> Result<Vec<MeasuredBlock>> {
    let (id, metric) = (store.find(experiment)?, question.meter);
    let (_, observations) = store.load(id)?;
    let mut blocks: BTreeMap<(bool, u32), MeasuredBlock> = BTreeMap::new();
    for observation in observations {
        let wanted = observation.experiment == experiment
            && observation.workload == question.workload
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
        let question = Question {
            workload: "w".to_owned(),
            ..crate::run::testing::question(2)
        };
        let numbers = || -> Vec<u32> {
            let blocks = stored(&store, "key", &question).unwrap();
            blocks.iter().map(|block| block.number).collect()
        };
        add(0, false);
        add(0, true);
        assert_eq!(numbers(), [0, DIRECT]);
        add(1, false);
        assert_eq!(numbers(), [0, 1, DIRECT]);
    }
}
