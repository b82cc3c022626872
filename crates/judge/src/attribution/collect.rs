//! Tables of observations, by the experiment they are from, and the document made of them.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{
    Attribution, ControlEffect, Dependence, Effect, Kind, Noise, NoiseSpread, Operation,
    PatchEffects, PointDependence, Progress,
};
use super::effects::{Effects, Spreads};
use super::points::Points;
use super::stopping::Stopping;
use super::warnings::warnings;
use crate::stats::{BlockTable, LEVEL, Looks, Units, speed};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    ExperimentHeader, Meter, ObservationRef, Planned, Statistic, Supplement,
};
use perfquilt_model::point::Point;

/// Tables by meter and workload.
pub(super) type Tables = BTreeMap<Meter, BTreeMap<String, BlockTable>>;

/// Each of the tables.
pub(super) fn each(tables: &Tables) -> impl Iterator<Item = (Meter, &String, &BlockTable)> {
    tables.iter().flat_map(|(&meter, by_workload)| {
        by_workload
            .iter()
            .map(move |(workload, table)| (meter, workload, table))
    })
}

/// Names of workloads, or of operations as `workload/operation`, by meter.
pub(super) type Names = BTreeMap<Meter, BTreeSet<String>>;

/// The observations of one experiment.
#[derive(Default)]
pub(super) struct Source {
    /// Of the blocks over all points.
    pub(super) blocks: Tables,
    /// The independent units among them, by meter: timed and counted blocks are numbered apart.
    pub(super) units: BTreeMap<Meter, Units>,
    /// Of the blocks with the release and the whole series only.
    pub(super) direct: Tables,
    /// The independent units among these.
    pub(super) direct_units: BTreeMap<Meter, Units>,
    /// The mean and the tail of the blocks over all points.
    pub(super) tails: BTreeMap<Statistic, Tables>,
}

impl Source {
    /// The tables of the blocks over all points.
    pub(super) fn each(&self) -> impl Iterator<Item = (Meter, &String, &BlockTable)> {
        each(&self.blocks)
    }

    /// Adds what an observation of a block over all points says of the mean and the tail.
    fn add_tail(&mut self, observation: &ObservationRef<'_>) {
        if observation.direct {
            return;
        }
        let ObservationRef {
            block, point, n, ..
        } = *observation;
        let values = [
            (Statistic::Mean, observation.mean.map(f64::ln)),
            (Statistic::Slow, observation.slow),
            (Statistic::P99, observation.p99.map(f64::ln)),
        ];
        for (statistic, value) in values {
            if let Some(value) = value {
                let tables = self.tails.entry(statistic).or_default();
                let table = table_of(tables, observation);
                // That the block has its point once was found with the value.
                table.insert_plain(block, point, value, n);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.each().all(|(_, _, table)| table.blocks() == 0)
    }
}

/// The table of an observation's meter and workload. The name is copied for the first one only.
fn table_of<'t>(tables: &'t mut Tables, observation: &ObservationRef<'_>) -> &'t mut BlockTable {
    let by_workload = tables.entry(observation.meter).or_default();
    if !by_workload.contains_key(&*observation.workload) {
        let name = observation.workload.clone().into_owned();
        by_workload.insert(name, BlockTable::default());
    }
    by_workload
        .get_mut(&*observation.workload)
        .unwrap_or_else(|| unreachable!("it was just made"))
}

/// Gathers observations one by one; for more of them than should be in memory at once.
pub struct Collector<'a> {
    header: &'a ExperimentHeader,
    supplement: &'a Supplement,
    /// This experiment, then those it carries from, in the header's order.
    sources: Vec<Source>,
}

/// Why an observation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// As a fragment that names the field.
    pub message: String,
    /// Its block has its point already.
    pub twice: bool,
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::usage(fault.message)
    }
}

impl<'a> Collector<'a> {
    /// Begins with an experiment's header and what else is known about it.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the header is inconsistent, or a clock has no steps.
    pub fn new(header: &'a ExperimentHeader, supplement: &'a Supplement) -> Result<Self> {
        header.check().map_err(Error::usage)?;
        supplement.check().map_err(Error::usage)?;
        let mut sources: Vec<Source> = Vec::new();
        sources.resize_with(1 + header.carried.len(), Source::default);
        // What is planned has a (yet empty) table: a series of identical binaries is known to have
        // no effect without a single observation.
        for plan in &supplement.planned {
            let by_workload = sources[0].blocks.entry(plan.meter).or_default();
            by_workload.entry(plan.workload.clone()).or_default();
        }
        Ok(Collector {
            header,
            supplement,
            sources,
        })
    }

    /// Adds an observation.
    ///
    /// # Errors
    /// [`Fault`] when it does not fit the header or its block has its point already.
    pub fn add(&mut self, observation: &ObservationRef<'_>) -> Result<(), Fault> {
        let fault = |message, twice| Fault { message, twice };
        self.header
            .check_observation(observation)
            .map_err(|message| fault(message, false))?;
        let place = self.header.source_of(&observation.experiment).unwrap_or(0);
        let source = &mut self.sources[place];
        let (tables, units) = if observation.direct {
            (&mut source.direct, &mut source.direct_units)
        } else {
            (&mut source.blocks, &mut source.units)
        };
        units.entry(observation.meter).or_default().note(
            observation.block,
            observation.point,
            observation.layout,
        );
        let table = table_of(tables, observation);
        if table.insert(
            observation.block,
            observation.point,
            observation.value,
            observation.n,
        ) {
            source.add_tail(observation);
            return Ok(());
        }
        let message = format!(
            "block {} of workload {} ({}) has point {} twice",
            observation.block, observation.workload, observation.meter, observation.point
        );
        Err(fault(message, true))
    }

    /// The attribution of what was added. `margin` gives the equivalence margin of a meter as a
    /// fraction of speed.
    pub fn finish(&self, margin: &dyn Fn(Meter) -> f64) -> Attribution {
        let header = self.header;
        let (workloads, operations) = self.workloads();
        let Judged {
            effects,
            patches,
            operations,
            total,
            stopping,
            progress,
        } = self.judge(&workloads, &operations, margin);
        let control = effects.of_kind(Kind::Control, Point::Control, &[Point::BASE]);
        let all = patches.iter().flat_map(|patch| &patch.effects);
        let mut left_out = self.supplement.left_out.clone();
        let parts = operations.iter().flat_map(|of| &of.effects);
        left_out.extend(effects.left_out(all.chain(&total).chain(&control).chain(parts)));
        let speaking = self.speaking();
        let noise = Noise {
            control: control
                .into_iter()
                .map(|effect| ControlEffect {
                    contains_zero: effect.low.map(|_| !effect.leaves_out_zero()),
                    effect,
                })
                .collect(),
            spread: self.spread(speaking, &workloads),
            dependence: dependence(speaking, &workloads),
            layouts: speaking
                .units
                .values()
                .map(Units::layouts)
                .max()
                .unwrap_or(0),
            conditions: self.supplement.conditions.clone(),
        };
        let mut attribution = Attribution {
            schema: 1,
            experiment: header.experiment.clone(),
            release: header.release.clone(),
            recipe: header.recipe.clone(),
            base: header.base.clone(),
            started: header.started.clone(),
            machine: header.machine.clone(),
            harness: header.harness.clone(),
            level: LEVEL,
            margins: workloads.keys().map(|&m| (m, margin(m))).collect(),
            workloads: names(&workloads),
            progress,
            stopping,
            closure: effects.closure(&total),
            functions: self.supplement.functions.clone(),
            costs: effects.costs(),
            total,
            patches,
            operations,
            noise,
            left_out,
            sources: Vec::new(),
            failed: header.failed.clone(),
            builds: self.supplement.builds.clone(),
            warnings: Vec::new(),
        };
        attribution.sources = used(header, &attribution);
        attribution.warnings = warnings(&attribution, speaking);
        attribution
    }

    /// The patches with their verdicts, and where the stopping rule stands: what [`Collector::finish`]
    /// says of them, without the rest.
    pub fn patches(&self, margin: &dyn Fn(Meter) -> f64) -> (Vec<PatchEffects>, Option<Stopping>) {
        let (workloads, operations) = self.workloads();
        let judged = self.judge(&workloads, &operations, margin);
        (judged.patches, judged.stopping)
    }

    fn judge<'b>(
        &'b self,
        workloads: &'b Names,
        operations: &'b Names,
        margin: &dyn Fn(Meter) -> f64,
    ) -> Judged<'b> {
        let mut effects = self.effects(workloads, operations, margin);
        let (mut patches, mut total) = effects.of_patches();
        let stopping = self.stopping_of(&patches, &total);
        let progress = self.progress(workloads, stopping.as_ref());
        effects.looks = self.looks(&progress);
        if !effects.looks.is_empty() {
            (patches, total) = effects.of_patches();
        }
        effects.add_cumulative(&mut patches, &total);
        let mut operations = effects.of_operations();
        super::multiplicity::adjust(&mut patches, &mut operations, &mut total, &effects.margins);
        Judged {
            effects,
            patches,
            operations,
            total,
            stopping,
            progress,
        }
    }

    /// Where the rule stands that ends the experiment, if it has one: [`Attribution::stopping`] without
    /// the rest.
    pub fn stopping(&self) -> Option<Stopping> {
        let planned = &self.supplement.planned;
        planned.iter().find(|plan| plan.resolution.is_some())?;
        let (workloads, operations) = self.workloads();
        let effects = self.effects(&workloads, &operations, &|_| 0.0);
        let (patches, total) = effects.of_patches();
        self.stopping_of(&patches, &total)
    }

    fn stopping_of(&self, patches: &[PatchEffects], total: &[Effect]) -> Option<Stopping> {
        let planned = &self.supplement.planned;
        Stopping::of(planned, patches, total, &self.sources[0].blocks)
    }

    fn effects<'b>(
        &'b self,
        workloads: &'b Names,
        operations: &'b Names,
        margin: &dyn Fn(Meter) -> f64,
    ) -> Effects<'b> {
        let stops = self.supplement.planned.iter();
        Effects {
            header: self.header,
            sources: &self.sources,
            points: Points::of(self.header, &self.sources),
            workloads,
            operations,
            clock: &self.supplement.clock,
            margins: Meter::ALL.into_iter().map(|m| (m, margin(m))).collect(),
            looks: BTreeMap::new(),
            stops: stops
                .filter(|plan| plan.min_blocks.is_some())
                .map(|plan| plan.meter)
                .collect(),
            spreads: Spreads::of(&self.sources),
        }
    }

    fn plan(&self, workload: &str, meter: Meter) -> Option<&'a Planned> {
        let mut plans = self.supplement.planned.iter();
        plans.find(|plan| plan.meter == meter && plan.workload == workload)
    }

    /// How each meter's number of blocks came about, where it was not fixed beforehand.
    fn looks(&self, progress: &[Progress]) -> BTreeMap<Meter, Looks> {
        let mut looks = BTreeMap::new();
        for of in progress {
            let Some(plan) = self.plan(&of.workload, of.meter) else {
                continue;
            };
            let how = match plan.min_blocks {
                _ if plan.extended || !of.ended => Looks::Any,
                Some(_) => Looks::Widths,
                None => continue,
            };
            let entry = looks.entry(of.meter).or_insert(how);
            *entry = how.max(*entry);
        }
        looks
    }

    /// The experiment whose noise is told: this one, or when all is carried, what it is carried from.
    fn speaking(&self) -> &Source {
        let holds = |place: usize| place == 0 || self.header.carried[place - 1].stale.is_none();
        self.sources
            .iter()
            .enumerate()
            .find(|(place, source)| holds(*place) && !source.is_empty())
            .map_or(&self.sources[0], |(_, source)| source)
    }

    /// The workloads of each meter: those of this experiment, or when all is carried, of the others. And their
    /// operations, whoever measured them.
    fn workloads(&self) -> (Names, Names) {
        let mut workloads = Names::new();
        for source in &self.sources {
            if !workloads.is_empty() {
                break;
            }
            for (&meter, by_workload) in source.blocks.iter().chain(&source.direct) {
                let names = workloads.entry(meter).or_default();
                names.extend(by_workload.keys().cloned());
            }
        }
        for (meter, name, _) in self.sources.iter().flat_map(Source::each) {
            if let Some(names) = workloads.get_mut(&meter)
                && name
                    .split_once('/')
                    .is_some_and(|(whole, _)| names.contains(whole))
            {
                names.insert(name.clone());
            }
        }
        let mut operations = Names::new();
        for (&meter, names) in &mut workloads {
            let of_whole = |name: &&String| {
                let parts = name.split_once('/');
                parts.is_some_and(|(whole, _)| names.contains(whole))
            };
            let parts: BTreeSet<String> = names.iter().filter(of_whole).cloned().collect();
            if !parts.is_empty() {
                names.retain(|name| !parts.contains(name));
                operations.insert(meter, parts);
            }
        }
        (workloads, operations)
    }

    fn progress(&self, workloads: &Names, stopping: Option<&Stopping>) -> Vec<Progress> {
        let of_meter = |(&meter, names): (&Meter, &BTreeSet<String>)| -> Vec<Progress> {
            let own = self.sources[0].blocks.get(&meter);
            names
                .iter()
                .map(|workload| {
                    let table = own.and_then(|tables| tables.get(workload));
                    let done = table.map_or(0, |t| u32::try_from(t.blocks()).unwrap_or(u32::MAX));
                    let plan = self.plan(workload, meter);
                    let stopped = plan.is_some_and(|plan| plan.min_blocks.is_some())
                        && stopping.is_some_and(|stopping| stopping.ended);
                    Progress {
                        workload: workload.clone(),
                        meter,
                        done,
                        planned: plan.map(|plan| plan.blocks),
                        ended: stopped || plan.is_none_or(|plan| done >= plan.blocks),
                    }
                })
                .collect()
        };
        workloads.iter().flat_map(of_meter).collect()
    }

    fn spread(&self, source: &Source, workloads: &Names) -> Vec<NoiseSpread> {
        let whole = |meter: &Meter, workload: &String| {
            workloads
                .get(meter)
                .is_some_and(|names| names.contains(workload))
        };
        source
            .each()
            .filter(|(meter, workload, _)| whole(meter, workload))
            .map(|(meter, workload, table)| {
                let units = source.units.get(&meter);
                let components = units.and_then(|units| table.components(units));
                let block_sd = match components {
                    Some(components) => Some(components.total),
                    None => table.spread().map(|spread| spread.sd),
                };
                let within_sd = self
                    .supplement
                    .within
                    .iter()
                    .find(|within| within.meter == meter && within.workload == *workload)
                    .map(|within| within.sd);
                NoiseSpread {
                    workload: workload.clone(),
                    meter,
                    blocks: table.blocks(),
                    block_sd,
                    layout_sd: components.map(|components| components.layout),
                    within_sd,
                    restart_sd: match components {
                        Some(components) => Some(components.start),
                        None if units.is_some_and(|units| units.layouts() > 1) => None,
                        None => block_sd,
                    }
                    .zip(within_sd)
                    .map(|(start, within)| (start * start - within * within).max(0.0).sqrt()),
                }
            })
            .collect()
    }
}

/// Whether blocks of whole workloads depend on each other.
fn dependence(source: &Source, workloads: &Names) -> Vec<Dependence> {
    let whole = |meter: &Meter, workload: &String| {
        let names = workloads.get(meter);
        names.is_some_and(|names| names.contains(workload))
    };
    let none = Units::default();
    source
        .each()
        .filter(|(meter, workload, _)| meter.is_timed() && whole(meter, workload))
        .filter_map(|(meter, workload, table)| {
            let units = source.units.get(&meter).unwrap_or(&none);
            let found = table.dependence(units)?;
            let points = found.points.iter().map(|of| PointDependence {
                point: of.point,
                lag1: of.lag1,
                halves: speed(-of.halves),
                halves_p_value: of.halves_p_value,
            });
            Some(Dependence {
                workload: workload.clone(),
                meter,
                units: found.units,
                lag1: found.lag1,
                lag1_p_value: found.lag1_p_value,
                points: points.collect(),
            })
        })
        .collect()
}

/// Effects, with verdicts for all rows together.
struct Judged<'a> {
    effects: Effects<'a>,
    patches: Vec<PatchEffects>,
    operations: Vec<Operation>,
    total: Vec<Effect>,
    stopping: Option<Stopping>,
    progress: Vec<Progress>,
}

fn names(workloads: &Names) -> Vec<String> {
    let all: BTreeSet<&String> = workloads.values().flatten().collect();
    all.into_iter().cloned().collect()
}

/// The earlier experiments that some figure of `attribution` is from.
fn used(
    header: &ExperimentHeader,
    attribution: &Attribution,
) -> Vec<perfquilt_model::observation::Origin> {
    let names: BTreeSet<&str> = attribution
        .patches
        .iter()
        .flat_map(|patch| &patch.effects)
        .chain(&attribution.total)
        .chain(attribution.noise.control.iter().map(|c| &c.effect))
        .filter_map(|effect| effect.from())
        .collect();
    let origins = header.carried.iter();
    origins
        .filter(|origin| names.contains(origin.experiment.as_str()))
        .cloned()
        .collect()
}
