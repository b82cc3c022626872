//! The effects of a series' patches as contrasts of points, each from the first experiment that has it.

use std::collections::{BTreeMap, BTreeSet};

use super::collect::{Names, Source, Tables};
use super::document::{
    self, Effect, Figure, Kind, Operation, PatchEffects, Provenance, SUITE, Tail, Verdict,
};
use super::points::Points;
use crate::stats::{BlockTable, Interval, Looks, OverUnits, SharedVariance, Units, speed};
use perfquilt_model::observation::{ExperimentHeader, Meter, Statistic};
use perfquilt_model::point::Point;

/// Blocks times patches from which on several processors are worth it.
const WORTH_THREADS: usize = 100_000;

const NOT_MEASURED: &str = "not measured so far";

pub(super) struct Effects<'a> {
    pub(super) header: &'a ExperimentHeader,
    /// This experiment, then those it carries from.
    pub(super) sources: &'a [Source],
    /// Which points have values in them.
    pub(super) points: Points,
    /// The workloads of every meter; a source must have all of them to speak for the suite.
    pub(super) workloads: &'a Names,
    /// The parts of workloads that their clients time apart, `workload/operation`.
    pub(super) operations: &'a Names,
    /// The steps that meters read a run in, in the meter's unit times transactions.
    pub(super) clock: &'a BTreeMap<Meter, f64>,
    /// The equivalence margins, as fractions of speed.
    pub(super) margins: BTreeMap<Meter, f64>,
    /// How the number of blocks came about, where it was not fixed beforehand.
    pub(super) looks: BTreeMap<Meter, Looks>,
    /// The meters whose number of blocks their intervals' widths decide.
    pub(super) stops: BTreeSet<Meter>,
    /// How values of a table vary, for all that come in counts.
    pub(super) spreads: Spreads,
}

/// How the values of tables of counts vary, by the source's place, what is read, meter and workload.
#[derive(Default)]
pub(super) struct Spreads(BTreeMap<(usize, Option<Statistic>, Meter), BTreeMap<String, Spread>>);

/// How a value of a table varies over blocks once block and point are taken out.
#[derive(Clone, Copy)]
struct Spread {
    variance: f64,
    degrees_of_freedom: f64,
    range: f64,
}

impl Spreads {
    /// Of the counting meters, and of the shares of slow slices.
    pub(super) fn of(sources: &[Source]) -> Self {
        let mut spreads = Spreads::default();
        for (place, source) in sources.iter().enumerate() {
            let counted = source.blocks.iter().filter(|(meter, _)| !meter.is_timed());
            let slow = source.tails.get(&Statistic::Slow).into_iter().flatten();
            let tables = counted
                .map(|(meter, tables)| (None, meter, tables))
                .chain(slow.map(|(meter, tables)| (Some(Statistic::Slow), meter, tables)));
            for (statistic, &meter, tables) in tables {
                let of = |table: &BlockTable| {
                    let complete = table.complete();
                    let (variance, range) = complete.variance_and_range()?;
                    let freedom = (complete.len() - 1) * (table.points().len() - 1);
                    Some(Spread {
                        variance,
                        degrees_of_freedom: freedom as f64,
                        range,
                    })
                };
                let known = tables
                    .iter()
                    .filter_map(|(name, table)| Some((name.clone(), of(table)?)));
                spreads.0.insert((place, statistic, meter), known.collect());
            }
        }
        spreads
    }

    /// What is known of a contrast over `workloads`; `None` where it is not of counts, or too little is known.
    fn shared<'n>(
        &self,
        key: (usize, Option<Statistic>, Meter),
        workloads: impl Iterator<Item = &'n str>,
        weights: &[(Point, f64)],
    ) -> Option<SharedVariance> {
        let of_meter = self.0.get(&key)?;
        let each: Vec<Spread> = workloads
            .map(|name| of_meter.get(name).copied())
            .collect::<Option<_>>()?;
        let n = each.len() as f64;
        let squares: f64 = weights.iter().map(|(_, weight)| weight * weight).sum();
        let sides: f64 = weights.iter().map(|(_, weight)| weight.abs()).sum::<f64>() / 2.0;
        let variance: f64 = each.iter().map(|of| of.variance).sum();
        let parts: f64 = each
            .iter()
            .map(|of| of.variance.powi(2) / of.degrees_of_freedom)
            .sum();
        Some(SharedVariance {
            variance: variance * squares / (n * n),
            // Satterthwaite's; that of one workload is its own.
            degrees_of_freedom: if parts > 0.0 {
                variance.powi(2) / parts
            } else {
                each.iter().map(|of| of.degrees_of_freedom).sum()
            },
            range: each.iter().map(|of| of.range).sum::<f64>() * sides / n,
        })
    }
}

impl Effects<'_> {
    /// The patches in order, and the total.
    pub(super) fn of_patches(&self) -> (Vec<PatchEffects>, Vec<Effect>) {
        let indices: Vec<usize> = (1..=self.header.series.len()).collect();
        // Threads cost more than the patches of an ordinary experiment.
        let blocks = self.sources.iter().flat_map(Source::each);
        let blocks: usize = blocks.map(|(_, _, table)| table.blocks()).sum();
        let workers = if blocks * indices.len() >= WORTH_THREADS {
            std::thread::available_parallelism().map_or(1, usize::from)
        } else {
            1
        };
        let each = indices.len().div_ceil(workers).max(1);
        std::thread::scope(|scope| {
            let part = |part: &[usize]| -> Vec<PatchEffects> {
                part.iter().map(|&index| self.patch(index)).collect()
            };
            let mut parts = indices.chunks(each);
            let own = parts.next();
            let others: Vec<_> = parts
                .map(|others| scope.spawn(move || part(others)))
                .collect();
            let mut patches = own.map_or_else(Vec::new, part);
            let total = self.total();
            for other in others {
                // A panic goes on where it would have without threads.
                let other = other.join();
                patches.extend(other.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            (patches, total)
        })
    }

    pub(super) fn patch(&self, index: usize) -> PatchEffects {
        let header = self.header;
        let point = Point::Step(index);
        let full = Point::Step(header.series.len());
        let earlier: Vec<Point> = self.points.before(point).collect();
        let mut effects = self.of_kind(Kind::InOrder, point, &earlier);
        effects.extend(self.of_kind(Kind::Alone, Point::Alone(index), &[Point::BASE]));
        if self.is_known(Point::Without(index)) {
            effects.extend(self.of_kind(Kind::Without, full, &[Point::Without(index)]));
            effects.extend(self.interaction(index, full));
        }
        let identical_to = earlier
            .iter()
            .rev()
            .find(|&&other| self.server_of(other) == self.server_of(point))
            .filter(|_| !header.failed.contains_key(&point));
        PatchEffects {
            index,
            name: header.series[index - 1].clone(),
            title: header.titles.get(index - 1).cloned().unwrap_or_default(),
            reason: self.reason(index, identical_to.copied(), &effects),
            identical_to: identical_to.copied(),
            effects,
        }
    }

    /// Why a patch has no effect that its verdict could be about: in order, on the first meter, over all
    /// workloads.
    fn reason(
        &self,
        index: usize,
        identical_to: Option<Point>,
        effects: &[Effect],
    ) -> Option<String> {
        let point = Point::Step(index);
        if let Some(reason) = self.header.failed.get(&point) {
            return Some(reason.clone());
        }
        let Some((&meter, names)) = self.workloads.first_key_value() else {
            let same = identical_to == Some(Point::Step(index - 1));
            return (!same).then(|| NOT_MEASURED.to_owned());
        };
        let in_order = || effects.iter().filter(|effect| effect.kind == Kind::InOrder);
        let has = |name: &str| in_order().any(|e| e.meter == meter && e.workload == name);
        let all = names.len();
        let missing = names.iter().filter(|name| !has(name)).count();
        Some(match missing {
            0 if all == 1 || has(SUITE) => return None,
            0 => "no block has it on all workloads".to_owned(),
            _ if missing < all => format!("no figures on {missing} of {all} workloads"),
            _ if in_order().next().is_some() => format!("no figures of {meter}"),
            _ if self.is_measured(point) => "no earlier point to compare with".to_owned(),
            _ => NOT_MEASURED.to_owned(),
        })
    }

    /// Puts beside the effects of `patches` in order what each and all before it are worth together: what
    /// is told of them, and decides nothing. The first's and the last's are known from `total` and in order.
    pub(super) fn add_cumulative(&self, patches: &mut [PatchEffects], total: &[Effect]) {
        for patch in patches {
            let point = Point::Step(patch.index);
            let known = |workload: &str, meter: Meter| {
                let in_order = patch.effects.iter();
                let mut in_order = in_order.filter(|effect| effect.kind == Kind::InOrder);
                let same = |effect: &&Effect| {
                    (effect.point, effect.against) == (point, Point::BASE)
                        && (effect.workload.as_str(), effect.meter) == (workload, meter)
                };
                in_order.find(same).or_else(|| total.iter().find(same))
            };
            let effects = self.by_workload(|workload, meter| match known(workload, meter) {
                Some(effect) => Some(Effect {
                    kind: Kind::Cumulative,
                    ..effect.clone()
                }),
                None => {
                    let pair = std::iter::once((point, Point::BASE));
                    self.first_of(Kind::Cumulative, workload, meter, pair)
                }
            });
            let behind = patch
                .effects
                .partition_point(|effect| effect.kind == Kind::InOrder);
            patch.effects.splice(behind..behind, effects);
        }
    }

    /// The release against the last point that has figures.
    pub(super) fn total(&self) -> Vec<Effect> {
        let patched = self.points.patched();
        self.by_workload(|workload, meter| {
            let pairs = patched.iter().map(|&point| (point, Point::BASE));
            self.first_of(Kind::Total, workload, meter, pairs)
        })
    }

    /// What the series does to the operations of its workloads: each patch in order, and the first patches
    /// together.
    pub(super) fn of_operations(&self) -> Vec<Operation> {
        let mut made = Vec::new();
        for (&meter, names) in self.operations {
            for name in names {
                let mut effects = Vec::new();
                for index in 1..=self.header.series.len() {
                    let point = Point::Step(index);
                    let earlier = self.points.before(point).map(|other| (point, other));
                    effects.extend(self.first_of(Kind::InOrder, name, meter, earlier));
                    let all = std::iter::once((point, Point::BASE));
                    effects.extend(self.first_of(Kind::Cumulative, name, meter, all));
                }
                let (workload, operation) = name.split_once('/').unwrap_or((name, ""));
                made.push(Operation {
                    workload: workload.to_owned(),
                    operation: operation.to_owned(),
                    meter,
                    effects,
                });
            }
        }
        made
    }

    /// In order minus without, block by block, so that what both share is not counted twice.
    fn interaction(&self, index: usize, full: Point) -> Vec<Effect> {
        let (before, point) = (Point::Step(index - 1), Point::Step(index));
        let without = Point::Without(index);
        let weights = [(before, 1.0), (point, -1.0), (without, -1.0), (full, 1.0)];
        let points = (point, without);
        self.by_workload(|workload, meter| {
            let of = Contrast {
                kind: Kind::Interaction,
                points,
                weights: &weights,
                compared: Compared::WithinBlocks,
            };
            self.freshest(|stale| self.contrast(&of, workload, meter, stale))
        })
    }

    /// The effects of `point` by meter, the suite first, then the workloads; each against the first
    /// of `against` that it can be compared with.
    pub(super) fn of_kind(&self, kind: Kind, point: Point, against: &[Point]) -> Vec<Effect> {
        self.by_workload(|workload, meter| {
            let pairs = against.iter().map(|&against| (point, against));
            self.first_of(kind, workload, meter, pairs)
        })
    }

    /// The first of `pairs`, point and what it is compared with, that can be compared: within blocks, or
    /// where no pair shares any, across them.
    fn first_of(
        &self,
        kind: Kind,
        workload: &str,
        meter: Meter,
        pairs: impl Iterator<Item = (Point, Point)> + Clone,
    ) -> Option<Effect> {
        self.freshest(|stale| {
            [Compared::WithinBlocks, Compared::AcrossBlocks]
                .into_iter()
                .find_map(|compared| {
                    pairs.clone().find_map(|(point, against)| {
                        let weights = [(against, 1.0), (point, -1.0)];
                        let of = Contrast {
                            kind,
                            points: (point, against),
                            weights: &weights,
                            compared,
                        };
                        self.contrast(&of, workload, meter, stale)
                    })
                })
        })
    }

    /// What holds, or else what does not hold any more.
    fn freshest<R>(&self, find: impl Fn(bool) -> Option<R>) -> Option<R> {
        find(false).or_else(|| find(true))
    }

    /// What `make` makes of each meter's suite and of its workloads.
    pub(super) fn by_workload<R>(&self, make: impl Fn(&str, Meter) -> Option<R>) -> Vec<R> {
        let mut made = Vec::new();
        for (&meter, workloads) in self.workloads {
            let suite = (workloads.len() > 1).then_some(SUITE);
            let single = workloads.iter().map(String::as_str);
            for workload in suite.into_iter().chain(single) {
                made.extend(make(workload, meter));
            }
        }
        made
    }

    /// The effect that is the contrast `of` log costs, from the first source that has it, among those that
    /// hold or among the `stale` ones.
    fn contrast(
        &self,
        of: &Contrast<'_>,
        workload: &str,
        meter: Meter,
        stale: bool,
    ) -> Option<Effect> {
        let failed = &self.header.failed;
        if of
            .weights
            .iter()
            .any(|(point, _)| failed.contains_key(point))
        {
            return None;
        }
        let looks = self.looks.get(&meter).copied().unwrap_or(Looks::Fixed);
        let effect = Effect {
            kind: of.kind,
            workload: workload.to_owned(),
            meter,
            point: of.points.0,
            against: of.points.1,
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
            units: 0,
            identical: true,
            unpaired: false,
            tail: None,
            provenance: None,
            basis: None,
        };
        let weights = self.of_servers(of.weights);
        if weights.is_empty() {
            return Some(effect);
        }
        self.speaking(stale).find_map(|(place, source)| {
            let tables = self.tables(&source.blocks, workload, meter)?;
            let looks = match place {
                0 => looks,
                // What is carried had come to its end.
                _ if self.stops.contains(&meter) => Looks::Widths,
                _ => Looks::Fixed,
            };
            let sample = Sample {
                tables: &tables,
                units: source.units.get(&meter),
                looks,
                counts: !meter.is_timed(),
                shared: self.shared((place, None, meter), workload, &weights),
            };
            let (interval, blocks, units) = sample.compare(&weights, of.compared)?;
            let interval = interval.rounded(self.rounding(&tables, &weights, meter));
            let known = interval.half_width.is_finite();
            let margin = self.margins.get(&meter).copied().unwrap_or(0.0);
            let mut found = Effect {
                estimate: speed(interval.estimate),
                low: known.then(|| speed(interval.low())),
                high: known.then(|| speed(interval.high())),
                verdict: verdict(&interval, Some(margin)),
                minimum_detectable: known.then(|| speed(interval.minimum_detectable(1.0))),
                equivalent: interval.equivalent(margin),
                level: interval.looks.level(),
                interval: promise(interval.looks),
                standard_error: Some(interval.standard_error).filter(|error| error.is_finite()),
                p_value: interval
                    .standard_error
                    .is_finite()
                    .then(|| interval.p_value()),
                blocks,
                units,
                identical: false,
                unpaired: of.compared == Compared::AcrossBlocks,
                tail: self.tail(of, &weights, (workload, meter), place, looks),
                provenance: Some(self.provenance(place)),
                basis: Some(interval),
                ..effect.clone()
            };
            if let Some(tail) = &mut found.tail {
                tail.typical = found.verdict;
            }
            if stale {
                found.verdict = Verdict::Unclear;
                found.equivalent = false;
                found.p_value = None;
                found.tail = None;
            }
            Some(found)
        })
    }

    /// The mean and the tail of the contrast's slices in the source at `place`; `None` where none of it is
    /// known there.
    fn tail(
        &self,
        of: &Contrast<'_>,
        weights: &[(Point, f64)],
        (workload, meter): (&str, Meter),
        place: usize,
        looks: Looks,
    ) -> Option<Box<Tail>> {
        let source = &self.sources[place];
        if of.kind == Kind::Interaction || source.tails.is_empty() {
            return None;
        }
        let margin = self.margins.get(&meter).copied();
        let figure = |statistic: Statistic| -> Option<Figure> {
            let tables = self.tables(source.tails.get(&statistic)?, workload, meter)?;
            let counts = statistic == Statistic::Slow;
            let sample = Sample {
                tables: &tables,
                units: source.units.get(&meter),
                looks,
                counts,
                shared: self.shared((place, Some(statistic), meter), workload, weights),
            };
            let (interval, blocks, _) = sample.compare(weights, of.compared)?;
            let known = interval.half_width.is_finite();
            let shown = |value: f64| if counts { value } else { speed(value) };
            let level = |point: Point| {
                let values = mean_contrast(&tables, &[(self.server_of(point), 1.0)]);
                let mean = values.iter().map(|(_, v)| v).sum::<f64>() / values.len().max(1) as f64;
                if counts { mean } else { mean.exp() }
            };
            Some(Figure {
                estimate: shown(interval.estimate),
                low: known.then(|| shown(interval.low())),
                high: known.then(|| shown(interval.high())),
                before: level(of.points.1),
                after: level(of.points.0),
                verdict: verdict(&interval, margin.filter(|_| statistic == Statistic::Mean)),
                p_value: interval
                    .standard_error
                    .is_finite()
                    .then(|| interval.p_value()),
                p_adjusted: None,
                blocks,
            })
        };
        let tail = Tail {
            typical: Verdict::Unclear,
            mean: figure(Statistic::Mean),
            slow: figure(Statistic::Slow),
            p99: figure(Statistic::P99),
        };
        tail.figures().next()?;
        Some(Box::new(tail))
    }

    /// [`Spreads::shared`] over a workload, or over all of a suite's.
    fn shared(
        &self,
        key: (usize, Option<Statistic>, Meter),
        workload: &str,
        weights: &[(Point, f64)],
    ) -> Option<SharedVariance> {
        match workload {
            SUITE => {
                let names = self.workloads.get(&key.2)?;
                self.spreads
                    .shared(key, names.iter().map(String::as_str), weights)
            }
            workload => self.spreads.shared(key, std::iter::once(workload), weights),
        }
    }

    /// Points that are the same binary share their observations; what is left of `weights` when these
    /// are joined.
    pub(super) fn of_servers(&self, weights: &[(Point, f64)]) -> Vec<(Point, f64)> {
        let mut joined: BTreeMap<Point, f64> = BTreeMap::new();
        for &(point, weight) in weights {
            *joined.entry(self.server_of(point)).or_default() += weight;
        }
        joined.retain(|_, weight| *weight != 0.0);
        joined.into_iter().collect()
    }

    /// The sources that hold, or those that do not, with their places.
    pub(super) fn speaking(&self, stale: bool) -> impl Iterator<Item = (usize, &Source)> {
        self.sources
            .iter()
            .enumerate()
            .filter(move |(place, _)| stale == self.is_stale(*place))
    }

    /// How far a contrast may be off because the meter reads whole steps: half a step on every side.
    fn rounding(&self, tables: &[&BlockTable], weights: &[(Point, f64)], meter: Meter) -> f64 {
        let Some(step) = self.clock.get(&meter) else {
            return 0.0;
        };
        let of = |table: &&BlockTable| -> f64 {
            let sides = weights.iter();
            sides
                .map(|&(point, weight)| 0.5 * weight.abs() * steps(table, point, *step).recip())
                .sum()
        };
        tables.iter().map(of).sum::<f64>() / tables.len().max(1) as f64
    }

    fn is_stale(&self, place: usize) -> bool {
        place > 0 && self.header.carried[place - 1].stale.is_some()
    }

    pub(super) fn provenance(&self, place: usize) -> Provenance {
        if place == 0 {
            return Provenance::Measured;
        }
        let name = self.header.carried[place - 1].experiment.clone();
        if self.is_stale(place) {
            Provenance::Stale(name)
        } else {
            Provenance::Carried(name)
        }
    }

    /// The tables of a workload, or of all of a suite's; `None` when one is missing.
    pub(super) fn tables<'t>(
        &self,
        tables: &'t Tables,
        workload: &str,
        meter: Meter,
    ) -> Option<Vec<&'t BlockTable>> {
        let of_meter = tables.get(&meter)?;
        match workload {
            SUITE => {
                let names = self.workloads.get(&meter)?;
                names.iter().map(|name| of_meter.get(name)).collect()
            }
            workload => Some(vec![of_meter.get(workload)?]),
        }
    }

    /// The point whose observations speak for `point`: the one with the same binary that was
    /// measured. The control is the release's binary by intent and stays itself.
    pub(super) fn server_of(&self, point: Point) -> Point {
        self.points.server_of(point)
    }

    fn is_measured(&self, point: Point) -> bool {
        self.points.is_measured(point)
    }

    fn is_known(&self, point: Point) -> bool {
        self.header.identical.contains_key(&point) || self.is_measured(point)
    }
}

/// How many steps of the meter one value of `point` is, its transactions all together; infinite without
/// values.
pub(super) fn steps(table: &BlockTable, point: Point, step: f64) -> f64 {
    let costs = table.contrast(&[(point, 1.0)]);
    let mean = costs.iter().map(|(_, cost)| cost).sum::<f64>() / costs.len() as f64;
    match table.transactions_a_value() {
        Some(transactions) if !costs.is_empty() => mean.exp() * transactions / step,
        _ => f64::INFINITY,
    }
}

/// Which blocks of two points are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Those that have both: what differs between blocks cancels.
    WithinBlocks,
    /// All of one with all of the other, because no block has both.
    AcrossBlocks,
}

/// A difference of points: `weights` of the logarithms of their costs, told as one of `points.0` against
/// `points.1`.
struct Contrast<'a> {
    kind: Kind,
    points: (Point, Point),
    weights: &'a [(Point, f64)],
    compared: Compared,
}

/// Values that points are compared by.
struct Sample<'a> {
    tables: &'a [&'a BlockTable],
    units: Option<&'a Units>,
    looks: Looks,
    /// Whether values come in counts.
    counts: bool,
    /// What the other points say of how counts vary.
    shared: Option<SharedVariance>,
}

impl Sample<'_> {
    /// The contrast with the numbers of blocks and of independent units behind it; `None` without any.
    fn compare(
        &self,
        weights: &[(Point, f64)],
        compared: Compared,
    ) -> Option<(Interval, usize, usize)> {
        match compared {
            Compared::WithinBlocks => {
                let by_block = mean_contrast(self.tables, weights);
                let found = self.interval(weights, &by_block)?;
                Some((found.interval, by_block.len(), found.units))
            }
            Compared::AcrossBlocks => self.across(weights),
        }
    }

    fn interval(&self, weights: &[(Point, f64)], by_block: &[(u32, f64)]) -> Option<OverUnits> {
        if self.counts {
            let values = means(self.units, by_block);
            return Some(OverUnits {
                interval: Interval::of_counts(&values, self.looks, self.shared)?,
                units: values.len(),
            });
        }
        over_units(self.units, weights, by_block, self.looks)
    }

    /// The contrast of two points that share no block; `None` when they do share one, or one has none.
    fn across(&self, weights: &[(Point, f64)]) -> Option<(Interval, usize, usize)> {
        let &[(one, weight), (other, _)] = weights else {
            return None;
        };
        if !mean_contrast(self.tables, weights).is_empty() {
            return None;
        }
        let of = |point| -> Option<(OverUnits, usize)> {
            let weights = [(point, weight)];
            let by_block = mean_contrast(self.tables, &weights);
            let found = over_units(self.units, &weights, &by_block, Looks::Fixed)?;
            Some((found, by_block.len()))
        };
        let ((first, blocks), (second, others)) = (of(one)?, of(other)?);
        let interval = first.interval.less(&second.interval);
        Some((interval, blocks + others, first.units + second.units))
    }
}

/// The interval of a contrast's mean over the independent units among its blocks.
pub(super) fn over_units(
    units: Option<&Units>,
    weights: &[(Point, f64)],
    by_block: &[(u32, f64)],
    looks: Looks,
) -> Option<OverUnits> {
    let none = Units::default();
    let points: Vec<Point> = weights.iter().map(|(point, _)| *point).collect();
    units.unwrap_or(&none).interval(&points, by_block, looks)
}

/// One value an independent unit, of values by block.
pub(super) fn means(units: Option<&Units>, by_block: &[(u32, f64)]) -> Vec<f64> {
    match units {
        Some(units) => units.means(by_block),
        None => by_block.iter().map(|(_, value)| *value).collect(),
    }
}

/// In every block in which all tables have the points: the mean over tables of the contrast of log
/// costs, by block in order. For two points that is the log of the geometric mean of the ratios.
pub(super) fn mean_contrast(tables: &[&BlockTable], weights: &[(Point, f64)]) -> Vec<(u32, f64)> {
    let mut tables_left = tables.iter();
    let Some(first) = tables_left.next() else {
        return Vec::new();
    };
    let mut sums = first.contrast(weights);
    for table in tables_left {
        let mut other = table.contrast(weights).into_iter().peekable();
        sums.retain_mut(|(block, sum)| {
            while other.next_if(|(there, _)| there < block).is_some() {}
            match other.next_if(|(there, _)| there == block) {
                Some((_, value)) => {
                    *sum += value;
                    true
                }
                None => false,
            }
        });
    }
    for (_, sum) in &mut sums {
        *sum /= tables.len() as f64;
    }
    sums
}

fn promise(looks: Looks) -> document::Interval {
    match looks {
        Looks::Fixed => document::Interval::Fixed,
        Looks::Widths => document::Interval::Sequential,
        Looks::Any => document::Interval::Anytime,
    }
}

/// What an interval says by itself; `no effect` needs a margin.
fn verdict(interval: &Interval, margin: Option<f64>) -> Verdict {
    if interval.low() > 0.0 {
        Verdict::Faster
    } else if interval.high() < 0.0 {
        Verdict::Slower
    } else if margin.is_some_and(|margin| interval.equivalent(margin)) {
        Verdict::NoEffect
    } else {
        Verdict::Unclear
    }
}
