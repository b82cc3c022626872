//! Collects observations and makes the attribution document from them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::correlation::{Correlations, widening};
use super::document::{
    Attribution, ComparedWith, ControlEffect, Dependence, Effect, EffectKind, ExcludedMachine,
    LaneFigures, LaneNoise, MachineFigures, MachineNoise, Noise, NoiseSpread, Operation,
    PatchEffects, Progress, Stopping,
};
use super::effects::{Effects, PointMeans};
use super::pairs::{PairedSources, Pairs};
use super::points::Points;
use super::tables::{NamesByMeter, ObservationSource, ValueRow};
use super::unexecuted::Unexecuted;
use super::unhealthy::unhealthy;
use super::variances::{Priors, SharedSpreads};
use super::warnings::{contradicted, grounds, warnings};
use crate::stats::{BlockTable, LEVEL, StoppingRule, Units};
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    ExperimentHeader, Meter, Observation, PlannedBlocks, RowName, Supplement,
};
use perfquilt_model::point::Point;
use perfquilt_model::warning::Warning;

/// Collects observations one by one, so that they need not fit into memory at once.
pub struct Collector<'a> {
    header: Cow<'a, ExperimentHeader>,
    supplement: Cow<'a, Supplement>,
    /// The index of the plan of each meter and workload.
    plans: BTreeMap<Meter, BTreeMap<String, usize>>,
    unexecuted: Unexecuted,
    /// This experiment, then those it reuses values of, in the header's order.
    sources: Vec<ObservationSource>,
}

impl Collector<'static> {
    /// Begins as [`Collector::new`], with a header and supplement of its own.
    pub fn owned(header: ExperimentHeader, supplement: Supplement) -> Result<Self> {
        Self::from_parts(Cow::Owned(header), Cow::Owned(supplement))
    }
}

impl<'a> Collector<'a> {
    /// Creates a collector for an experiment with its header and supplement.
    pub fn new(header: &'a ExperimentHeader, supplement: &'a Supplement) -> Result<Self> {
        Self::from_parts(Cow::Borrowed(header), Cow::Borrowed(supplement))
    }

    fn from_parts(
        header: Cow<'a, ExperimentHeader>,
        supplement: Cow<'a, Supplement>,
    ) -> Result<Self> {
        header.check().map_err(Error::observation_file)?;
        supplement.check().map_err(Error::observation_file)?;
        let mut sources: Vec<ObservationSource> = Vec::new();
        sources.resize_with(1 + header.reused.len(), ObservationSource::default);
        // Planned workloads have a table, even if it is empty: a series of identical binaries is known to
        // have no effect without a single observation.
        for plan in &supplement.planned {
            let by_workload = sources[0].blocks.entry(plan.meter).or_default();
            by_workload.entry(plan.workload.clone()).or_default();
        }
        Ok(Collector {
            plans: plans(&supplement.planned),
            unexecuted: Unexecuted::of(&header, &supplement.unexecuted),
            header,
            supplement,
            sources,
        })
    }

    /// Adds an observation.
    ///
    /// # Errors
    /// [`Error::observed_twice`] if the block already has the point, else [`Error::observation_file`].
    pub fn add(&mut self, observation: &Observation) -> Result<()> {
        self.header
            .check_observation(observation)
            .map_err(Error::observation_file)?;
        let place = self.header.source_of(&observation.experiment).unwrap_or(0);
        if self.sources[place].add(observation) {
            return Ok(());
        }
        Err(Error::observed_twice(format!(
            "block {} of workload {} ({}) has point {} twice",
            observation.block, observation.workload, observation.meter, observation.point
        )))
    }

    /// This experiment, then those it reuses values of.
    pub(super) fn sources(&self) -> &[ObservationSource] {
        &self.sources
    }

    pub(super) fn unexecuted(&self) -> &Unexecuted {
        &self.unexecuted
    }

    pub(super) fn patches_in_series(&self) -> usize {
        self.header.series.len()
    }

    /// Makes the attribution of all added observations. `margin` gives the equivalence margin of a meter as a
    /// fraction of speed.
    pub fn finish(&self, margin: &dyn Fn(Meter) -> f64) -> Attribution {
        let (workloads, operations) = self.workloads();
        let (numbers, excluded) = unhealthy(&self.sources[0], &workloads);
        if numbers.is_empty() {
            return self.attribution(margin, None);
        }
        let all = self.judge(&workloads, &operations, margin, None);
        let exclusion = Exclusion {
            machines: excluded,
            total: all.total,
            end: (all.stopping, all.progress),
        };
        self.without_machines(&numbers)
            .attribution(margin, Some(exclusion))
    }

    /// Returns this collector without the timed blocks that the machines with these numbers measured.
    fn without_machines(&self, numbers: &BTreeSet<u32>) -> Collector<'_> {
        let mut sources = self.sources.clone();
        sources[0] = self.sources[0].without_machines(numbers);
        Collector {
            header: Cow::Borrowed(&self.header),
            supplement: Cow::Borrowed(&self.supplement),
            plans: self.plans.clone(),
            unexecuted: self.unexecuted.clone(),
            sources,
        }
    }

    fn attribution(
        &self,
        margin: &dyn Fn(Meter) -> f64,
        exclusion: Option<Exclusion>,
    ) -> Attribution {
        let header = &*self.header;
        let (workloads, operations) = self.workloads();
        let (excluded_machines, total_with_excluded, end) = match exclusion {
            Some(of) => (of.machines, of.total, Some(of.end)),
            None => (Vec::new(), Vec::new(), None),
        };
        let JudgedEffects {
            effects,
            patches,
            operations,
            total,
            stopping,
            progress,
        } = self.judge(&workloads, &operations, margin, end);
        let control = effects.of_kind(EffectKind::Control, Point::Control, &[Point::BASE]);
        let all = patches.iter().flat_map(|patch| &patch.effects);
        let mut left_out = self.supplement.left_out.clone();
        let parts = operations.iter().flat_map(|of| &of.effects);
        left_out.extend(effects.excluded_readings(all.chain(&total).chain(&control).chain(parts)));
        let source = self.noise_source();
        let noise = Noise {
            control: control
                .into_iter()
                .map(|effect| ControlEffect {
                    contains_zero: effect.low.map(|_| !effect.leaves_out_zero()),
                    effect,
                })
                .collect(),
            spread: self.spread(source, &workloads),
            dependence: effects.dependence.clone(),
            lanes: lanes(source, &workloads),
            machines: machines(source, &workloads),
            excluded_machines,
            total_with_excluded,
            layouts: source.units.values().map(Units::layouts).max().unwrap_or(0),
            conditions: self.supplement.conditions.clone(),
        };
        let mut attribution = Attribution {
            schema: 1,
            experiment: header.experiment.clone(),
            release: header.release.clone(),
            recipe: header.recipe.clone(),
            base: header.base.clone(),
            compared_with: match header.base {
                Some(_) => ComparedWith::Base,
                None => ComparedWith::PointBefore,
            },
            command: header.command.clone(),
            commit: header.commit.clone(),
            bundle: header.bundle.clone(),
            started: header.started.clone(),
            machine: header.machine.clone(),
            harness: header.harness.clone(),
            level: LEVEL,
            margins: workloads.keys().map(|&m| (m, margin(m))).collect(),
            workloads: names(&workloads),
            progress,
            stopping,
            end_to_end: effects.end_to_end(&total),
            functions: self.supplement.functions.clone(),
            costs: effects.costs(),
            total,
            patches,
            operations,
            noise,
            left_out,
            sources: Vec::new(),
            failed: header.failed.clone(),
            failed_workloads: header.failed_workloads.clone(),
            builds: self.supplement.builds.clone(),
            tests: self.supplement.tests.clone(),
            warnings: Vec::new(),
            bound: bound(&self.supplement),
        };
        attribution.sources = used(header, &attribution);
        let windowed = &effects.windowed;
        let found = warnings(&attribution, source, windowed, &self.unexecuted);
        let grounds = effects.grounds.into_iter().map(|(warning, _)| warning);
        let notes = self.supplement.notes.iter().map(Warning::reading_note);
        attribution.warnings = notes.chain(grounds).chain(found).collect();
        attribution
    }

    /// Returns only the patches with their verdicts and the state of the stopping rule, as
    /// [`Collector::finish`] does.
    pub fn patches(&self, margin: &dyn Fn(Meter) -> f64) -> (Vec<PatchEffects>, Option<Stopping>) {
        let (workloads, operations) = self.workloads();
        let judged = self.judge(&workloads, &operations, margin, None);
        (judged.patches, judged.stopping)
    }

    /// Judges all effects. `end` tells whether the experiment has ended, if other observations than those of this
    /// collector decide that.
    fn judge<'b>(
        &'b self,
        workloads: &'b NamesByMeter,
        operations: &'b NamesByMeter,
        margin: &dyn Fn(Meter) -> f64,
        end: Option<(Option<Stopping>, Vec<Progress>)>,
    ) -> JudgedEffects<'b> {
        let mut effects = self.effects(workloads, operations, margin);
        let (stopping, progress) = end.unwrap_or_else(|| {
            let stopping = self.stopping_of(&mut effects);
            let progress = self.progress(workloads, &effects.untimed, stopping.as_ref());
            (stopping, progress)
        });
        effects.stopping_rules = self.stopping_rules(&progress);
        let (mut patches, mut total) = effects.of_patches();
        effects.add_cumulative(&mut patches, &total);
        let mut operations = effects.of_operations();
        super::multiplicity::adjust(&mut patches, &mut operations, &mut total, &effects.margins);
        let contradicted = contradicted(&patches);
        let all = patches.iter_mut().flat_map(|patch| &mut patch.effects);
        effects.withhold(all, &contradicted);
        effects.grounds.extend(contradicted);
        JudgedEffects {
            effects,
            patches,
            operations,
            total,
            stopping,
            progress,
        }
    }

    /// Returns only the state of the stopping rule ([`Attribution::stopping`]); `None` without one.
    pub fn stopping(&self) -> Option<Stopping> {
        let (workloads, operations) = self.workloads();
        self.stopping_of(&mut self.effects(&workloads, &operations, &|_| 0.0))
    }

    /// Evaluates the stopping rule, which looks at the widths of typical effects on its meter alone.
    fn stopping_of(&self, effects: &mut Effects<'_>) -> Option<Stopping> {
        let planned = &self.supplement.planned;
        let rule = planned.iter().find(|plan| plan.resolution.is_some())?;
        effects.widths_of = Some(rule.meter);
        let (patches, total) = effects.of_patches();
        effects.widths_of = None;
        let stopping = Stopping::of(effects, rule, &patches, &total)?;
        let source = &effects.completed[0];
        if source.machines.units(false).is_none() {
            return Some(stopping);
        }
        let machines = machines(source, effects.workloads);
        Some(stopping.on_machines(&machines, &patches, &total))
    }

    fn effects<'b>(
        &'b self,
        workloads: &'b NamesByMeter,
        operations: &'b NamesByMeter,
        margin: &dyn Fn(Meter) -> f64,
    ) -> Effects<'b> {
        let sources = &self.sources;
        let meters_of = |has: fn(&PlannedBlocks) -> bool| -> BTreeSet<Meter> {
            let plans = self.supplement.planned.iter();
            plans
                .filter(|plan| has(plan))
                .map(|plan| plan.meter)
                .collect()
        };
        let unexecuted = &self.unexecuted;
        let untimed = unexecuted.untimed_workloads(&self.header, sources);
        let completed = unexecuted.complete(&self.header, sources);
        let points = Points::of(&self.header, sources, unexecuted);
        let facts = PairedSources {
            header: &self.header,
            sources: &completed,
            points: &points,
            unexecuted,
        };
        let source = self.noise_source();
        let dependence = dependence(source, workloads);
        let windowed = meters_of(|plan| plan.windows.is_some());
        let stops = meters_of(|plan| plan.min_blocks.is_some());
        let grounds = grounds(
            &self.header,
            source,
            &dependence,
            &self.supplement.left_out,
            |meter| windowed.contains(&meter) || stops.contains(&meter),
        );
        Effects {
            header: &self.header,
            sources,
            withheld: &self.supplement.withheld,
            grounds,
            dependence,
            spreads: SharedSpreads::of(sources, &untimed),
            priors: Priors::of(sources, workloads),
            correlations: Correlations::of(sources, workloads, self.supplement.earlier_correlation),
            pairs: Pairs::of(&facts, workloads, operations),
            levels: PointMeans::default(),
            completed,
            unexecuted: Cow::Borrowed(unexecuted),
            untimed,
            points,
            workloads,
            operations,
            clock: &self.supplement.clock,
            margins: Meter::ALL.into_iter().map(|m| (m, margin(m))).collect(),
            stopping_rules: BTreeMap::new(),
            widths_of: None,
            stops,
            windowed,
        }
    }

    fn plan(&self, workload: &str, meter: Meter) -> Option<&PlannedBlocks> {
        let place = *self.plans.get(&meter)?.get(workload)?;
        self.supplement.planned.get(place)
    }

    /// Returns the stopping rule of each meter whose number of blocks was not fixed beforehand.
    fn stopping_rules(&self, progress: &[Progress]) -> BTreeMap<Meter, StoppingRule> {
        let mut rules = BTreeMap::new();
        for of in progress {
            let Some(plan) = self.plan(&of.workload, of.meter) else {
                continue;
            };
            let how = match plan.min_blocks {
                _ if plan.extended || !of.ended => StoppingRule::Anytime,
                Some(_) => StoppingRule::FixedWidth,
                None => continue,
            };
            let entry = rules.entry(of.meter).or_insert(how);
            *entry = how.max(*entry);
        }
        rules
    }

    /// Returns the experiment whose noise figures are reported: this one, or the original one if every value
    /// is reused.
    fn noise_source(&self) -> &ObservationSource {
        let holds = |place: usize| place == 0 || self.header.reused[place - 1].stale.is_none();
        self.sources
            .iter()
            .enumerate()
            .find(|(place, source)| holds(*place) && !source.is_empty())
            .map_or(&self.sources[0], |(_, source)| source)
    }

    /// Returns the workloads of each meter, those of this experiment or, if every value is reused, of the
    /// first earlier one; and the operations of these workloads in any experiment.
    fn workloads(&self) -> (NamesByMeter, NamesByMeter) {
        let mut workloads = NamesByMeter::new();
        for source in &self.sources {
            if !workloads.is_empty() {
                break;
            }
            for (&meter, by_workload) in source.blocks.iter().chain(&source.direct) {
                let names = workloads.entry(meter).or_default();
                names.extend(by_workload.keys().cloned());
            }
        }
        let is_operation = |names: &BTreeSet<String>, name: &str| {
            let row = RowName::from(name);
            row.operation.is_some() && names.contains(row.workload)
        };
        for (row, _) in self.sources.iter().flat_map(ObservationSource::each) {
            if let Some(names) = workloads.get_mut(&row.meter)
                && is_operation(names, row.workload)
            {
                names.insert(row.workload.to_owned());
            }
        }
        let mut operations = NamesByMeter::new();
        for (&meter, names) in &mut workloads {
            let parts = names.iter().filter(|name| is_operation(names, name));
            let parts: BTreeSet<String> = parts.cloned().collect();
            if !parts.is_empty() {
                names.retain(|name| !parts.contains(name));
                operations.insert(meter, parts);
            }
        }
        (workloads, operations)
    }

    fn progress(
        &self,
        workloads: &NamesByMeter,
        untimed: &BTreeSet<String>,
        stopping: Option<&Stopping>,
    ) -> Vec<Progress> {
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
                    let untimed = meter.is_timed() && untimed.contains(workload);
                    Progress {
                        workload: workload.clone(),
                        meter,
                        done,
                        planned: plan.map(|plan| if untimed { 0 } else { plan.all_blocks() }),
                        ended: untimed
                            || stopped
                            || self.header.has_failed(workload, meter)
                            || plan.is_none_or(|plan| done >= plan.all_blocks()),
                    }
                })
                .collect()
        };
        workloads.iter().flat_map(of_meter).collect()
    }

    fn spread(&self, source: &ObservationSource, workloads: &NamesByMeter) -> Vec<NoiseSpread> {
        let mut within = BTreeMap::new();
        for of in &self.supplement.within {
            let row = (of.meter, of.workload.as_str());
            within.entry(row).or_insert(of.sd);
        }
        source
            .each()
            .filter(|(row, _)| row.is_whole(workloads))
            .map(|(row, table)| {
                let units = source.units_of(row.meter);
                let window = table.largest_window();
                let components = window.components(units);
                let block_sd = match components {
                    Some(components) => Some(components.total),
                    None => window.spread(),
                };
                let within_sd = within.get(&(row.meter, row.workload)).copied();
                NoiseSpread {
                    workload: row.workload.to_owned(),
                    meter: row.meter,
                    blocks: table.blocks(),
                    block_sd,
                    layout_sd: components.map(|components| components.layout),
                    within_sd,
                    restart_sd: match components {
                        Some(components) => Some(components.start),
                        None if units.layouts() > 1 => None,
                        None => block_sd,
                    }
                    .zip(within_sd)
                    .map(|(start, within)| (start * start - within * within).max(0.0).sqrt()),
                }
            })
            .collect()
    }
}

/// Maps meter and workload to the index of their first plan.
fn plans(planned: &[PlannedBlocks]) -> BTreeMap<Meter, BTreeMap<String, usize>> {
    let mut places: BTreeMap<Meter, BTreeMap<String, usize>> = BTreeMap::new();
    for (place, plan) in planned.iter().enumerate() {
        let of_meter = places.entry(plan.meter).or_default();
        of_meter.entry(plan.workload.clone()).or_insert(place);
    }
    places
}

/// Iterates over the tables of whole workloads on timed meters.
fn timed_tables<'s>(
    source: &'s ObservationSource,
    workloads: &NamesByMeter,
) -> impl Iterator<Item = (ValueRow<'s>, &'s BlockTable)> {
    let tables = source.each();
    tables.filter(|(row, _)| row.meter.is_timed() && row.is_whole(workloads))
}

/// Tests whether blocks depend on each other, for whole workloads.
fn dependence(source: &ObservationSource, workloads: &NamesByMeter) -> Vec<Dependence> {
    timed_tables(source, workloads)
        .filter_map(|(row, table)| {
            let found = table
                .largest_window()
                .dependence(source.units_of(row.meter))?;
            Some(Dependence {
                workload: row.workload.to_owned(),
                meter: row.meter,
                units: found.units,
                lag1: found.lag1,
                lag1_p_value: found.lag1_p_value,
                widening: widening(source, row, table),
                points: found.points,
            })
        })
        .collect()
}

/// Compares the lanes that measured whole workloads.
fn lanes(source: &ObservationSource, workloads: &NamesByMeter) -> Vec<LaneNoise> {
    timed_tables(source, workloads)
        .filter_map(|(row, table)| {
            let found = table.largest_window().compare_groups(&source.lanes)?;
            let lanes = found.groups.into_iter();
            Some(LaneNoise {
                workload: row.workload.to_owned(),
                meter: row.meter,
                lanes: lanes
                    .map(|(lane, figures)| LaneFigures { lane, figures })
                    .collect(),
                p_value: found.p_value,
            })
        })
        .collect()
}

/// Compares the machines that measured whole workloads.
fn machines(source: &ObservationSource, workloads: &NamesByMeter) -> Vec<MachineNoise> {
    let names = source.machines.names();
    timed_tables(source, workloads)
        .filter_map(|(row, table)| {
            let by_block = source.machines.by_block();
            let found = table.largest_window().compare_groups(by_block)?;
            let mut machines: Vec<MachineFigures> = found
                .groups
                .into_iter()
                .map(|(group, figures)| MachineFigures {
                    machine: names.get(&group).copied().unwrap_or_default().to_owned(),
                    figures,
                })
                .collect();
            machines.sort_by(|a, b| a.machine.cmp(&b.machine));
            Some(MachineNoise {
                workload: row.workload.to_owned(),
                meter: row.meter,
                machines,
                between_sd: found.between_sd,
                p_value: found.p_value,
                units: source.machines.units(false).is_some(),
            })
        })
        .collect()
}

/// The machines that are left out, and what follows from the blocks of all machines.
struct Exclusion {
    machines: Vec<ExcludedMachine>,
    /// The total over the blocks of all machines.
    total: Vec<Effect>,
    /// The state of the stopping rule and the progress: which machines are left out must not decide whether the
    /// experiment has ended.
    end: (Option<Stopping>, Vec<Progress>),
}

/// Effects with their adjusted verdicts.
struct JudgedEffects<'a> {
    effects: Effects<'a>,
    patches: Vec<PatchEffects>,
    operations: Vec<Operation>,
    total: Vec<Effect>,
    stopping: Option<Stopping>,
    progress: Vec<Progress>,
}

fn names(workloads: &NamesByMeter) -> Vec<String> {
    let all: BTreeSet<&String> = workloads.values().flatten().collect();
    all.into_iter().cloned().collect()
}

/// Returns the earlier experiments that any figure of `attribution` comes from.
fn used(
    header: &ExperimentHeader,
    attribution: &Attribution,
) -> Vec<perfquilt_model::observation::ReusedFrom> {
    let names: BTreeSet<&str> = attribution
        .patches
        .iter()
        .flat_map(|patch| &patch.effects)
        .chain(&attribution.total)
        .chain(attribution.noise.control.iter().map(|c| &c.effect))
        .filter_map(|effect| effect.from())
        .collect();
    let origins = header.reused.iter();
    origins
        .filter(|origin| names.contains(origin.experiment.as_str()))
        .cloned()
        .collect()
}

/// Returns the programs and the workloads as parts of what was observed.
fn bound(supplement: &Supplement) -> Comparable {
    let programs = supplement.programs.iter();
    let programs = programs.map(|(point, program)| (Part::Program(*point), program));
    let workloads = supplement.workload_digests.iter();
    let workloads = workloads.map(|(name, digest)| (Part::Workload(name.clone()), digest));
    let all = programs.chain(workloads);
    all.fold(Comparable::default(), |all, (part, value)| {
        all.with(part, value)
    })
}
