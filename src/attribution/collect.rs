//! Tables of observations and the effects computed from them.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{
    self, Attribution, ControlEffect, Effect, Kind, Noise, NoiseSpread, PatchEffects, Progress,
    SUITE, Verdict,
};
use super::stopping::Stopping;
use crate::error::{Error, Result};
use crate::observation::{ExperimentHeader, Meter, Observation, Planned, Supplement};
use crate::point::Point;
use crate::stats::{BlockTable, Interval, LEVEL, Looks, speed};

/// Gathers observations one by one; for more of them than should be in memory at once.
pub struct Collector<'a> {
    header: &'a ExperimentHeader,
    supplement: &'a Supplement,
    tables: BTreeMap<Meter, BTreeMap<String, BlockTable>>,
    layouts: BTreeSet<u64>,
}

impl<'a> Collector<'a> {
    /// Begins with an experiment's header and what else is known about it.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when the header is inconsistent.
    pub fn new(header: &'a ExperimentHeader, supplement: &'a Supplement) -> Result<Self> {
        header.check().map_err(Error::usage)?;
        let mut tables: BTreeMap<Meter, BTreeMap<String, BlockTable>> = BTreeMap::new();
        // What is planned has a (yet empty) table: a series of identical binaries is known to have
        // no effect without a single observation.
        for plan in &supplement.planned {
            tables
                .entry(plan.meter)
                .or_default()
                .entry(plan.workload.clone())
                .or_default();
        }
        Ok(Collector {
            header,
            supplement,
            tables,
            layouts: BTreeSet::new(),
        })
    }

    /// Adds an observation.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when it does not fit the header or its block has its
    /// point already.
    pub fn add(&mut self, observation: &Observation) -> Result<()> {
        self.header
            .check_observation(observation)
            .map_err(Error::usage)?;
        self.layouts.insert(observation.layout);
        let by_workload = self.tables.entry(observation.meter).or_default();
        let table = match by_workload.get_mut(&observation.workload) {
            Some(table) => table,
            None => by_workload.entry(observation.workload.clone()).or_default(),
        };
        if table.insert(observation.block, observation.point, observation.value) {
            return Ok(());
        }
        Err(Error::usage(format!(
            "block {} of workload {} ({}) has point {} twice",
            observation.block, observation.workload, observation.meter, observation.point
        )))
    }

    /// The attribution of what was added. `margin` gives the equivalence margin of a meter as a
    /// fraction of speed.
    pub fn finish(&self, margin: &dyn Fn(Meter) -> f64) -> Attribution {
        let header = self.header;
        let mut effects = self.effects(margin);
        let (mut patches, mut total) = effects.of_patches();
        let planned = &self.supplement.planned;
        let stopping = Stopping::of(planned, &patches, &total, &self.tables);
        let progress = self.progress(stopping.as_ref());
        effects.looks = self.looks(&progress);
        if !effects.looks.is_empty() {
            (patches, total) = effects.of_patches();
        }
        super::multiplicity::adjust(&mut patches);
        let noise = Noise {
            control: effects
                .of_kind(Kind::Control, Point::Control, &|_| vec![Point::BASE])
                .into_iter()
                .map(|effect| ControlEffect {
                    contains_zero: effect.low.map(|_| !effect.leaves_out_zero()),
                    effect,
                })
                .collect(),
            spread: self.spread(),
            layouts: self.layouts.len(),
        };
        let mut attribution = Attribution {
            schema: 1,
            experiment: header.experiment.clone(),
            release: header.release.clone(),
            recipe: header.recipe.clone(),
            started: header.started.clone(),
            machine: header.machine.clone(),
            harness: header.harness.clone(),
            level: LEVEL,
            margins: self.tables.keys().map(|&m| (m, margin(m))).collect(),
            workloads: self.workloads().into_iter().collect(),
            progress,
            stopping,
            total,
            patches,
            noise,
            failed: header.failed.clone(),
            builds: self.supplement.builds.clone(),
            warnings: Vec::new(),
        };
        attribution.warnings = self.warnings(&attribution);
        attribution
    }

    /// Where the rule stands that ends the experiment, if it has one: [`Attribution::stopping`] without
    /// the rest.
    pub fn stopping(&self) -> Option<Stopping> {
        let planned = &self.supplement.planned;
        planned.iter().find(|plan| plan.resolution.is_some())?;
        let (patches, total) = self.effects(&|_| 0.0).of_patches();
        Stopping::of(planned, &patches, &total, &self.tables)
    }

    fn effects<'b>(&'b self, margin: &'b dyn Fn(Meter) -> f64) -> Effects<'b> {
        Effects {
            header: self.header,
            tables: &self.tables,
            margin,
            looks: BTreeMap::new(),
        }
    }

    fn each(&self) -> impl Iterator<Item = (Meter, &String, &BlockTable)> {
        self.tables.iter().flat_map(|(&meter, by_workload)| {
            by_workload
                .iter()
                .map(move |(workload, table)| (meter, workload, table))
        })
    }

    fn workloads(&self) -> BTreeSet<String> {
        self.each()
            .map(|(_, workload, _)| workload.clone())
            .collect()
    }

    fn plan(&self, workload: &str, meter: Meter) -> Option<&'a Planned> {
        let mut plans = self.supplement.planned.iter();
        plans.find(|plan| plan.meter == meter && plan.workload == workload)
    }

    fn progress(&self, stopping: Option<&Stopping>) -> Vec<Progress> {
        self.each()
            .map(|(meter, workload, table)| {
                let done = u32::try_from(table.blocks()).unwrap_or(u32::MAX);
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

    fn spread(&self) -> Vec<NoiseSpread> {
        self.each()
            .map(|(meter, workload, table)| {
                let block_sd = table.spread().map(|spread| spread.sd);
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
                    within_sd,
                    restart_sd: block_sd
                        .zip(within_sd)
                        .map(|(block, within)| (block * block - within * within).max(0.0).sqrt()),
                }
            })
            .collect()
    }

    fn warnings(&self, attribution: &Attribution) -> Vec<String> {
        let mut warnings = Vec::new();
        let control = &attribution.noise.control;
        let off: Vec<String> = control
            .iter()
            .filter(|control| control.contains_zero == Some(false))
            .map(|control| match control.effect.workload.as_str() {
                SUITE => format!("{} over all workloads", control.effect.meter),
                workload => format!("{} of {workload}", control.effect.meter),
            })
            .collect();
        if !off.is_empty() {
            warnings.push(format!(
                "The control, the same binary measured twice, differs from itself in {} of {} \
                 intervals ({}). One interval in twenty misses by chance even when all is well; \
                 read effects of that size with care.",
                off.len(),
                control.len(),
                off.join(", ")
            ));
        }
        for (meter, workload, table) in self.each() {
            let incomplete = table.incomplete_blocks();
            if incomplete > 0 {
                let why = match &attribution.stopping {
                    Some(rule) if rule.meter == meter => {
                        " (left out when its effects were known well enough, or failed)"
                    }
                    _ => "",
                };
                warnings.push(format!(
                    "{incomplete} of {} blocks of {workload} ({meter}) lack a point{why}; every effect \
                     uses the blocks that have both its points, so effects need not add up exactly.",
                    table.blocks()
                ));
            }
            let still = table.spread().is_some_and(|s| s.sd < 1e-12 && s.blocks > 2);
            if still && meter != Meter::Instructions {
                warnings.push(format!(
                    "All blocks of {workload} ({meter}) agree to the last digit: check that these \
                     are measured values."
                ));
            }
        }
        warnings
    }
}

struct Effects<'a> {
    header: &'a ExperimentHeader,
    tables: &'a BTreeMap<Meter, BTreeMap<String, BlockTable>>,
    margin: &'a dyn Fn(Meter) -> f64,
    /// How the number of blocks came about, where it was not fixed beforehand.
    looks: BTreeMap<Meter, Looks>,
}

impl Effects<'_> {
    /// The patches in order, and the total.
    fn of_patches(&self) -> (Vec<PatchEffects>, Vec<Effect>) {
        let patches = (1..=self.header.series.len()).map(|index| self.patch(index));
        (patches.collect(), self.total())
    }

    fn patch(&self, index: usize) -> PatchEffects {
        let header = self.header;
        let point = Point::Step(index);
        let full = Point::Step(header.series.len());
        let earlier = |_: Point| (0..index).rev().map(Point::Step).collect();
        let mut effects = self.of_kind(Kind::InOrder, point, &earlier);
        effects.extend(self.of_kind(Kind::Alone, Point::Alone(index), &|_| vec![Point::BASE]));
        if self.is_known(Point::Without(index)) {
            effects.extend(self.of_kind(Kind::Without, full, &|_| vec![Point::Without(index)]));
            effects.extend(self.interaction(index, full));
        }
        let identical_to = (0..index)
            .map(Point::Step)
            .find(|&other| self.server_of(other) == self.server_of(point))
            .filter(|_| !header.failed.contains_key(&point));
        let in_order = effects.iter().any(|effect| effect.kind == Kind::InOrder);
        let reason = match header.failed.get(&point) {
            Some(reason) => Some(reason.clone()),
            None if in_order || identical_to == Some(Point::Step(index - 1)) => None,
            None if self.is_measured(point) => Some("no earlier point to compare with".to_owned()),
            None => Some("not measured so far".to_owned()),
        };
        PatchEffects {
            index,
            name: header.series[index - 1].clone(),
            title: header.titles.get(index - 1).cloned().unwrap_or_default(),
            reason,
            identical_to,
            effects,
        }
    }

    /// The release against the last point that was measured.
    fn total(&self) -> Vec<Effect> {
        let candidates = (1..=self.header.series.len()).rev().map(Point::Step);
        let mut effects: Vec<Effect> = Vec::new();
        for point in candidates {
            for effect in self.of_kind(Kind::Total, point, &|_| vec![Point::BASE]) {
                let same = |e: &&Effect| e.meter == effect.meter && e.workload == effect.workload;
                if !effects.iter().any(|e| same(&e)) {
                    effects.push(effect);
                }
            }
        }
        effects.sort_by(|a, b| (a.meter, &a.workload).cmp(&(b.meter, &b.workload)));
        effects
    }

    /// In order minus without, block by block, so that what both share is not counted twice.
    fn interaction(&self, index: usize, full: Point) -> Vec<Effect> {
        let (before, point) = (Point::Step(index - 1), Point::Step(index));
        let without = Point::Without(index);
        let weights = [(before, 1.0), (point, -1.0), (without, -1.0), (full, 1.0)];
        self.by_workload(|workload, meter, tables| {
            self.contrast(
                Kind::Interaction,
                workload,
                meter,
                tables,
                (point, without),
                &weights,
            )
        })
    }

    /// The effects of `point` by meter, the suite first, then the workloads; each against the first
    /// of `against(point)` that can be compared.
    fn of_kind(
        &self,
        kind: Kind,
        point: Point,
        against: &dyn Fn(Point) -> Vec<Point>,
    ) -> Vec<Effect> {
        self.by_workload(|workload, meter, tables| {
            against(point).into_iter().find_map(|against| {
                let weights = [(against, 1.0), (point, -1.0)];
                self.contrast(kind, workload, meter, tables, (point, against), &weights)
            })
        })
    }

    /// What `make` makes of each meter's suite and of its workloads.
    fn by_workload(
        &self,
        make: impl Fn(&str, Meter, &[&BlockTable]) -> Option<Effect>,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (&meter, by_workload) in self.tables {
            let suite = (by_workload.len() > 1).then(|| {
                let tables: Vec<&BlockTable> = by_workload.values().collect();
                (SUITE, tables)
            });
            let single = by_workload
                .iter()
                .map(|(workload, table)| (workload.as_str(), vec![table]));
            for (workload, tables) in suite.into_iter().chain(single) {
                effects.extend(make(workload, meter, &tables));
            }
        }
        effects
    }

    /// The effect that is the contrast of log costs with `weights`, told as one of `points.0` against
    /// `points.1`.
    fn contrast(
        &self,
        kind: Kind,
        workload: &str,
        meter: Meter,
        tables: &[&BlockTable],
        points: (Point, Point),
        weights: &[(Point, f64)],
    ) -> Option<Effect> {
        let failed = &self.header.failed;
        if weights.iter().any(|(point, _)| failed.contains_key(point)) {
            return None;
        }
        let looks = self.looks.get(&meter).copied().unwrap_or(Looks::Fixed);
        let effect = Effect {
            kind,
            workload: workload.to_owned(),
            meter,
            point: points.0,
            against: points.1,
            estimate: 0.0,
            low: Some(0.0),
            high: Some(0.0),
            level: looks.level(),
            interval: promise(looks),
            standard_error: Some(0.0),
            verdict: Verdict::NoEffect,
            minimum_detectable: Some(0.0),
            equivalent: true,
            p_value: None,
            p_adjusted: None,
            blocks: 0,
            identical: true,
        };
        // Points that are the same binary share their observations; where these cancel, the effect is
        // known without any.
        let mut of_servers: BTreeMap<Point, f64> = BTreeMap::new();
        for &(point, weight) in weights {
            *of_servers.entry(self.server_of(point)).or_default() += weight;
        }
        of_servers.retain(|_, weight| *weight != 0.0);
        if of_servers.is_empty() {
            return Some(effect);
        }
        let weights: Vec<(Point, f64)> = of_servers.into_iter().collect();
        let interval = Interval::after(&mean_contrast(tables, &weights), looks)?;
        let known = interval.half_width.is_finite();
        Some(Effect {
            estimate: speed(interval.estimate),
            low: known.then(|| speed(interval.low())),
            high: known.then(|| speed(interval.high())),
            verdict: verdict(&interval, (self.margin)(meter)),
            minimum_detectable: known.then(|| speed(interval.minimum_detectable())),
            equivalent: interval.equivalent((self.margin)(meter)),
            standard_error: Some(interval.standard_error).filter(|error| error.is_finite()),
            p_value: (interval.blocks > 1).then(|| interval.p_value()),
            blocks: interval.blocks,
            identical: false,
            ..effect
        })
    }

    /// The point whose observations speak for `point`: the one with the same binary that was
    /// measured. The control is the release's binary by intent and stays itself.
    fn server_of(&self, point: Point) -> Point {
        let mut server = point;
        for _ in 0..=self.header.identical.len() {
            match self.header.identical.get(&server) {
                Some(&same) if server != Point::Control && same != server => server = same,
                _ => break,
            }
        }
        server
    }

    fn is_measured(&self, point: Point) -> bool {
        let server = self.server_of(point);
        self.tables
            .values()
            .flat_map(BTreeMap::values)
            .any(|table| table.points().contains(&server))
    }

    fn is_known(&self, point: Point) -> bool {
        self.header.identical.contains_key(&point) || self.is_measured(point)
    }
}

/// In every block in which all tables have the points: the mean over tables of the contrast of log
/// costs. For two points that is the log of the geometric mean of the ratios.
fn mean_contrast(tables: &[&BlockTable], weights: &[(Point, f64)]) -> Vec<f64> {
    let contrasts: Vec<BTreeMap<u32, f64>> =
        tables.iter().map(|table| table.contrast(weights)).collect();
    let Some((first, others)) = contrasts.split_first() else {
        return Vec::new();
    };
    first
        .iter()
        .filter_map(|(block, contrast)| {
            let sum: Option<f64> = others.iter().map(|other| other.get(block)).sum();
            sum.map(|sum| (contrast + sum) / contrasts.len() as f64)
        })
        .collect()
}

fn promise(looks: Looks) -> document::Interval {
    match looks {
        Looks::Fixed => document::Interval::Fixed,
        Looks::Widths => document::Interval::Sequential,
        Looks::Any => document::Interval::Anytime,
    }
}

fn verdict(interval: &Interval, margin: f64) -> Verdict {
    if interval.low() > 0.0 {
        Verdict::Faster
    } else if interval.high() < 0.0 {
        Verdict::Slower
    } else if interval.equivalent(margin) {
        Verdict::NoEffect
    } else {
        Verdict::Unclear
    }
}
