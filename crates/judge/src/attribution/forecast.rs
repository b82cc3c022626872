//! Forecasts of interval widths: simulated experiments, whose values scatter as those of an earlier one did, are judged by the
//! rules that will judge the real one.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::collect::Collector;
use super::document::{Attribution, EffectKind, SUITE};
use crate::stats::{mean_row, normal_quantile};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{
    ExperimentHeader, Meter, Observation, PlannedBlocks, Supplement,
};
use perfquilt_model::point::Point;

/// The number of simulated experiments. The median of their widths varies by less than 3 % with the random numbers.
const SIMULATED: u32 = 101;
/// The share of experiments in which a width lies below either end of its range: together, the ends miss one in ten.
const OUTSIDE: f64 = 0.05;
/// The most patches that are simulated: more make the typical width hardly better known.
const MOST_PATCHES: usize = 8;
/// The most blocks that are simulated. Widths beyond are extrapolated: the mean's standard error falls with the root.
const MOST_BLOCKS: u32 = 192;
/// The blocks of a cluster's task, which one machine measures.
const TASK_BLOCKS: u32 = 4;

/// How the values of a workload scatter around their block and point, on the log scale.
#[derive(Debug, Clone)]
pub enum Scatter {
    /// As in experiments.
    Measured(Vec<MeasuredScatter>),
    /// As independent normal values with this standard deviation.
    Assumed(f64),
}

/// How the values of a workload scattered in one experiment.
#[derive(Debug, Clone, Default)]
pub struct MeasuredScatter {
    /// Those of single blocks.
    blocks: Residuals,
    /// Those of the means over blocks that share layouts, where some did.
    units: Residuals,
}

/// Deviations from the means of rows and columns of a table, scaled to the covariance that they estimate: what servers with
/// the same patch have in common makes the patch's effect vary more than that of others.
#[derive(Debug, Clone, Default)]
struct Residuals {
    /// By block, the deviations of the points of the series in order, then that of the control.
    rows: Vec<Vec<f64>>,
    /// The degrees of freedom of the rows' covariance, for each of its dimensions.
    freedom: f64,
}

impl MeasuredScatter {
    /// Returns whether nothing is known, or nothing scatters, as where all servers have one binary.
    pub fn is_empty(&self) -> bool {
        self.blocks.sd() == 0.0
    }
}

impl Scatter {
    /// Returns the standard deviation of a value in a block.
    pub fn sd(&self) -> f64 {
        match self {
            Scatter::Measured(all) => {
                let squares: f64 = all.iter().map(|of| of.blocks.sd().powi(2)).sum();
                (squares / all.len().max(1) as f64).sqrt()
            }
            Scatter::Assumed(sd) => *sd,
        }
    }
}

impl Residuals {
    fn of(rows: &[Vec<f64>]) -> Self {
        let (n, p) = (rows.len() as f64, rows.first().map_or(0, Vec::len) as f64);
        if n < 2.0 || p < 2.0 {
            return Residuals::default();
        }
        let of_points = mean_row(rows.iter());
        let all = of_points.iter().sum::<f64>() / p;
        let scale = (n / (n - 1.0)).sqrt();
        let residuals = |row: &Vec<f64>| {
            let of_row = row.iter().sum::<f64>() / p;
            let pairs = row.iter().zip(&of_points);
            pairs
                .map(|(value, of_point)| scale * (value - of_row - of_point + all))
                .collect()
        };
        Residuals {
            rows: rows.iter().map(residuals).collect(),
            freedom: n - 1.0,
        }
    }

    fn join(&mut self, other: Residuals) {
        self.rows.extend(other.rows);
        self.freedom += other.freedom;
    }

    fn points(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    /// Returns the standard deviation of a value: deviations from the mean over points are smaller.
    fn sd(&self) -> f64 {
        let squares: f64 = self.rows.iter().flatten().map(|value| value * value).sum();
        let count = self.rows.len() as f64 * (self.points() as f64 - 1.0);
        if count > 0.0 {
            (squares / count).sqrt()
        } else {
            0.0
        }
    }

    /// Returns the number of independent dimensions of the rows, `(tr S)²/tr S²` of their covariance `S`: all where points
    /// are independent and alike, one where they fall into two groups. The sample's `tr S²` is too large by `(tr S)²/ν`
    /// (Z. Bai and H. Saranadasa, *Effect of high dimension*, Statistica Sinica 6, 1996).
    fn dimensions(&self) -> f64 {
        let most = self.points().max(2) as f64 - 1.0;
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let trace: f64 = self.rows.iter().map(|row| dot(row, row)).sum();
        let pairs = self
            .rows
            .iter()
            .flat_map(|a| self.rows.iter().map(move |b| (a, b)));
        let squares: f64 = pairs.map(|(a, b)| dot(a, b).powi(2)).sum();
        let left = squares - trace * trace / self.freedom;
        if left > 0.0 {
            (trace * trace / left).clamp(1.0, most)
        } else {
            most
        }
    }

    /// Returns by how much the true standard deviation exceeds the estimate if a probability of `p` is above: the estimate's
    /// own error, as in a Bayesian analysis of a normal variance without prior knowledge (`ν/χ²`).
    fn scale(&self, p: f64) -> f64 {
        let freedom = self.freedom * self.dimensions();
        let quantile = ChiSquared::new(freedom).map(|of| of.inverse_cdf(p));
        quantile.map_or(1.0, |of| (freedom / of).sqrt())
    }

    /// Draws the deviations of the points in a block: normal ones with the covariance of the rows.
    fn draw(&self, random: &mut StdRng) -> Vec<f64> {
        let mut drawn = vec![0.0; self.points()];
        let scale = (self.rows.len().max(1) as f64).sqrt().recip();
        for row in &self.rows {
            let weight = scale * normal(random);
            let pairs = drawn.iter_mut().zip(row);
            pairs.for_each(|(sum, value)| *sum += weight * value);
        }
        drawn
    }
}

fn normal(random: &mut StdRng) -> f64 {
    normal_quantile(random.random_range(1e-12..1.0))
}

impl Collector<'_> {
    /// Returns how the times of `workload` scatter over the blocks of this experiment, on each machine; empty with fewer than two
    /// blocks.
    pub fn scatter(&self, workload: &str) -> MeasuredScatter {
        let source = &self.sources()[0];
        let by_workload = source.blocks.get(&Meter::Time);
        let Some(table) = by_workload.and_then(|tables| tables.get(workload)) else {
            return MeasuredScatter::default();
        };
        let window = table.largest_window();
        // Of a long series, some points say how they scatter.
        let is_used = |(place, point): &(usize, &Point)| match point {
            Point::Step(_) => *place <= MOST_PATCHES,
            point => **point == Point::Control,
        };
        let places = window.points().iter().enumerate().filter(is_used);
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        let chosen = |row: &[f64]| places.iter().map(|&place| row[place]).collect::<Vec<f64>>();
        let complete = window.complete();
        let machines = source.machines.by_block();
        let mut by_machine: BTreeMap<Option<u32>, Vec<Vec<f64>>> = BTreeMap::new();
        for (block, row) in complete.rows() {
            let machine = machines.get(&block).copied();
            by_machine.entry(machine).or_default().push(chosen(row));
        }
        let mut scatter = MeasuredScatter::default();
        for rows in by_machine.values() {
            scatter.blocks.join(Residuals::of(rows));
        }
        let units = source.units.get(&Meter::Time);
        if let Some(units) = units.filter(|_| by_machine.len() == 1) {
            let means = units.mean_rows(&complete);
            if means.len() < complete.len() {
                let means: Vec<Vec<f64>> = means.iter().map(|row| chosen(row)).collect();
                scatter.units = Residuals::of(&means);
            }
        }
        scatter
    }
}

/// An experiment whose widths are forecast.
#[derive(Debug, Clone)]
pub struct Design<'a> {
    /// How each workload's values scatter.
    pub workloads: Vec<&'a Scatter>,
    /// The number of patches that are measured, where no experiment tells.
    pub patches: usize,
    /// The number of blocks, the largest one with a `resolution`.
    pub blocks: u32,
    /// The half-width at which measuring ends, after as many blocks at least; `None` for a fixed number of blocks.
    pub resolution: Option<(f64, u32)>,
    /// Whether two blocks share code layouts.
    pub repeats: bool,
    /// The number of lanes, of each machine.
    pub lanes: u32,
    /// The number of machines of a cluster, and the standard deviation of a point's cost between them.
    pub machines: Option<(u32, f64)>,
}

/// Result of the simulated experiments.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedWidth {
    /// The half-width of a typical patch's interval on the workload where it is widest, on the log scale: the median.
    pub half_width: f64,
    /// The range of this half-width in nine experiments of ten.
    pub range: (f64, f64),
    /// The number of blocks of each workload: the median.
    pub blocks: Vec<u32>,
}

/// A simulated experiment on one workload.
#[derive(Debug, Clone, Copy)]
struct SimulatedExperiment {
    half_width: f64,
    blocks: u32,
}

impl Design<'_> {
    /// Returns the widths and numbers of blocks to be expected. The same question has the same answer.
    pub fn expected(&self) -> Result<ExpectedWidth> {
        let experiments = (0..SIMULATED).into_par_iter().map(|number| {
            let each = self.workloads.iter().zip(0..);
            each.map(|(scatter, place)| self.experiment(scatter, number, place))
                .collect::<Result<Vec<_>>>()
        });
        let experiments: Vec<Vec<SimulatedExperiment>> = experiments.collect::<Result<_>>()?;
        let widest =
            |of: &Vec<SimulatedExperiment>| of.iter().map(|of| of.half_width).fold(0.0, f64::max);
        let widths = sorted(experiments.iter().map(widest));
        let blocks = (0..self.workloads.len()).map(|place| {
            let blocks = experiments.iter().map(|of| f64::from(of[place].blocks));
            quantile(&sorted(blocks), 0.5) as u32
        });
        Ok(ExpectedWidth {
            half_width: quantile(&widths, 0.5),
            range: (quantile(&widths, OUTSIDE), quantile(&widths, 1.0 - OUTSIDE)),
            blocks: blocks.collect(),
        })
    }

    /// Returns the most blocks that are simulated.
    fn most(&self) -> u32 {
        let rows = self
            .machines
            .map_or(0, |(machines, _)| machines.saturating_mul(TASK_BLOCKS));
        self.blocks.min(MOST_BLOCKS.max(rows))
    }

    /// Simulates experiment `number` on the workload at `place`.
    fn experiment(
        &self,
        scatter: &Scatter,
        number: u32,
        place: u64,
    ) -> Result<SimulatedExperiment> {
        let most = self.most();
        let mut header = ExperimentHeader::new(SIMULATION, SIMULATION);
        let mut machine = SimulatedMachine::new(self, scatter, number, place);
        let patches = machine.points.len() - 2;
        header.experiment = SIMULATION.to_owned();
        header.series = (1..=patches).map(|patch| patch.to_string()).collect();
        let supplement = Supplement {
            planned: vec![PlannedBlocks {
                resolution: self.resolution.map(|(resolution, _)| resolution),
                min_blocks: self.resolution.map(|(_, least)| least.min(most)),
                ..PlannedBlocks::fixed(SIMULATION, Meter::Time, most)
            }],
            ..Supplement::default()
        };
        let mut collector = Collector::new(&header, &supplement)?;
        let mut look = self.resolution.map_or(most, |(_, least)| least.min(most));
        let mut more = 0;
        let mut done = 0;
        while done < most {
            for observation in machine.block(done) {
                collector.add(&observation)?;
            }
            done += 1;
            if done < look {
                continue;
            }
            let Some(state) = collector.stopping() else {
                continue;
            };
            if state.ended {
                more = if state.open.is_empty() {
                    0
                } else {
                    state.expected.unwrap_or(u32::MAX)
                };
                break;
            }
            // Looking after every block would take longer, and ends hardly sooner.
            let step = state.expected.unwrap_or(1) / 4;
            look = (done + step.clamp(1, 1 + done / 2)).min(most);
        }
        let half_width = typical_half_width(&collector.finish(&Meter::default_margin));
        // Those that were not simulated.
        let blocks = match self.resolution {
            Some(_) => done.saturating_add(more).min(self.blocks),
            None => self.blocks,
        };
        Ok(SimulatedExperiment {
            half_width: half_width * (f64::from(done) / f64::from(blocks.max(1))).sqrt().min(1.0),
            blocks,
        })
    }
}

/// The name of a simulated experiment, its release and its workload.
const SIMULATION: &str = "simulated";

/// Draws the blocks of a simulated experiment.
struct SimulatedMachine<'a> {
    design: &'a Design<'a>,
    points: Vec<Point>,
    random: StdRng,
    source: ScatterSource<'a>,
    /// The deviations of a unit's first block, by unit, where the second one has the same.
    units: BTreeMap<u32, Vec<f64>>,
    /// The deviations of points on each machine.
    machines: Vec<Vec<f64>>,
}

/// The source of a simulated experiment's deviations.
#[derive(Clone, Copy)]
enum ScatterSource<'a> {
    Measured {
        residuals: &'a Residuals,
        /// The factor of their scale.
        scale: f64,
        /// Whether they are those of units.
        of_units: bool,
    },
    /// The standard deviation.
    Assumed(f64),
}

impl<'a> ScatterSource<'a> {
    /// Returns the source of experiment `number` on the workload at `place`, and the number of its patches.
    fn of(design: &Design<'_>, scatter: &'a Scatter, number: u32, place: u64) -> (Self, usize) {
        let all = match scatter {
            Scatter::Assumed(sd) => return (ScatterSource::Assumed(*sd), design.patches),
            Scatter::Measured(all) => all,
        };
        // Every experiment has its turn, and so has every scale, in an order of its own on each workload.
        let of = &all[number as usize % all.len()];
        let turn = (u64::from(number) * (2 * place + 1) + 17 * place) % u64::from(SIMULATED);
        // Where it was never measured what two blocks share because of their layouts, they share nothing.
        let of_units = design.repeats && !of.units.rows.is_empty();
        let residuals = if of_units { &of.units } else { &of.blocks };
        let source = ScatterSource::Measured {
            residuals,
            scale: residuals.scale((turn as f64 + 0.5) / f64::from(SIMULATED)),
            of_units,
        };
        (source, residuals.points().saturating_sub(2))
    }
}

impl<'a> SimulatedMachine<'a> {
    fn new(design: &'a Design<'a>, scatter: &'a Scatter, number: u32, place: u64) -> Self {
        let (source, patches) = ScatterSource::of(design, scatter, number, place);
        let patches = patches.clamp(1, MOST_PATCHES);
        let points = (0..=patches).map(Point::Step).chain([Point::Control]);
        let points: Vec<Point> = points.collect();
        let mut random = StdRng::seed_from_u64((u64::from(number) << 16) | place);
        let machines = design.machines.map_or_else(Vec::new, |(count, between)| {
            let mut deviation = |_: &Point| between * normal(&mut random);
            let most = count.min(design.most().div_ceil(TASK_BLOCKS));
            (0..most)
                .map(|_| points.iter().map(&mut deviation).collect())
                .collect()
        });
        SimulatedMachine {
            design,
            source,
            points,
            random,
            units: BTreeMap::new(),
            machines,
        }
    }

    /// Returns the observations of block `number`.
    fn block(&mut self, number: u32) -> Vec<Observation> {
        let lanes = self.design.lanes.max(1);
        // Two blocks of a lane, one after the other, share layouts.
        let unit = number / (2 * lanes) * lanes + number % lanes;
        let deviations = self.deviations(unit);
        let machine = (!self.machines.is_empty()).then(|| {
            let task = number / TASK_BLOCKS;
            task as usize % self.machines.len()
        });
        let beside = self.design.machines.is_none() && lanes > 1;
        let began = f64::from(number / lanes);
        let each = self.points.iter().zip(deviations).zip(0u32..);
        each.map(|((&point, deviation), order)| {
            let of_machine = machine.map_or(0.0, |machine| self.machines[machine][order as usize]);
            Observation {
                experiment: SIMULATION.to_owned(),
                order,
                layout: if self.design.repeats {
                    u64::from(unit) + 1
                } else {
                    0
                },
                lane: beside.then_some(number % lanes),
                began: beside.then_some(began),
                ended: beside.then_some(began + 1.0),
                machine: machine.map(|machine| machine.to_string()),
                ..Observation::new(
                    number,
                    point,
                    SIMULATION,
                    Meter::Time,
                    (of_machine + deviation).exp(),
                )
            }
        })
        .collect()
    }

    /// Draws the deviations of the points in a block of `unit`.
    fn deviations(&mut self, unit: u32) -> Vec<f64> {
        let random = &mut self.random;
        let (residuals, scale, of_units) = match self.source {
            ScatterSource::Measured {
                residuals,
                scale,
                of_units,
            } => (residuals, scale, of_units),
            ScatterSource::Assumed(sd) => {
                return self.points.iter().map(|_| sd * normal(random)).collect();
            }
        };
        if let Some(first) = self.units.remove(&unit) {
            return first;
        }
        let mut drawn = residuals.draw(random);
        drawn.iter_mut().for_each(|value| *value *= scale);
        if of_units {
            // Intervals are over means of units: that both blocks are their unit's mean changes nothing.
            self.units.insert(unit, drawn.clone());
        }
        drawn
    }
}

/// Returns the root mean square of the half-widths of all patches and the total, on the log scale; infinite where one has no
/// interval.
fn typical_half_width(document: &Attribution) -> f64 {
    let of_patches = document.patches.iter().flat_map(|patch| &patch.effects);
    let squares: Vec<f64> = of_patches
        .chain(&document.total)
        .filter(|of| of.meter == Meter::Time && of.kind != EffectKind::Interaction)
        .filter(|of| of.workload != SUITE)
        .map(|of| {
            let ends = of.low.zip(of.high);
            ends.map_or(f64::INFINITY, |(low, high)| {
                ((high.ln_1p() - low.ln_1p()) / 2.0).powi(2)
            })
        })
        .collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the quantile of sorted values at the share `p`.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (p * last as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard deviation of the tests' values.
    const SD: f64 = 0.01;

    fn design(scatter: &Scatter, patches: usize, blocks: u32) -> Design<'_> {
        Design {
            workloads: vec![scatter],
            patches,
            blocks,
            resolution: None,
            repeats: false,
            lanes: 1,
            machines: None,
        }
    }

    /// Returns an experiment whose values have the standard deviation of the tests: how they scatter, and the typical width.
    fn measured(random: &mut StdRng, patches: usize, blocks: u32) -> (Scatter, f64) {
        let mut header = ExperimentHeader::new(SIMULATION, SIMULATION);
        header.experiment = SIMULATION.to_owned();
        header.series = (1..=patches).map(|patch| patch.to_string()).collect();
        let supplement = Supplement::default();
        let mut collector = Collector::new(&header, &supplement).unwrap();
        let scatter = Scatter::Assumed(SD);
        let design = design(&scatter, patches, blocks);
        let mut machine = SimulatedMachine::new(&design, &scatter, 0, 0);
        for block in 0..blocks {
            for mut observation in machine.block(block) {
                observation.value = (SD * normal(random)).exp();
                collector.add(&observation).unwrap();
            }
        }
        let width = typical_half_width(&collector.finish(&Meter::default_margin));
        let scatter = Scatter::Measured(vec![collector.scatter(SIMULATION)]);
        (scatter, width)
    }

    #[test]
    fn nine_of_ten_widths_are_in_their_range_however_few_blocks_there_are() {
        for (patches, blocks) in [(1, 5), (3, 8)] {
            let mut random = StdRng::seed_from_u64(7);
            let mut in_range = 0;
            for _ in 0..50 {
                let (scatter, _) = measured(&mut random, patches, blocks);
                let forecast = design(&scatter, patches, blocks).expected().unwrap();
                let (_, width) = measured(&mut random, patches, blocks);
                in_range += u32::from((forecast.range.0..=forecast.range.1).contains(&width));
            }
            assert!(
                in_range >= 40,
                "{patches} patches, {blocks} blocks: {in_range}"
            );
        }
    }

    #[test]
    fn even_who_knows_the_noise_cannot_tell_the_width_of_few_blocks() {
        // The shares of widths within a factor of 1.5 of their median in docs/statistics.md.
        let scatter = Scatter::Assumed(SD);
        for (patches, blocks, share) in [
            (1, 5, 0.68),
            (1, 8, 0.59),
            (1, 20, 0.89),
            (3, 5, 0.91),
            (3, 8, 0.75),
            (3, 20, 0.83),
        ] {
            let mut random = StdRng::seed_from_u64(3);
            let widths = sorted((0..300).map(|_| measured(&mut random, patches, blocks).1));
            let median = quantile(&widths, 0.5);
            let near = |width: &&f64| (*width / median).ln().abs() <= 1.5f64.ln();
            let found = widths.iter().filter(near).count() as f64 / 300.0;
            assert!((found - share).abs() < 0.07, "{patches} {blocks}: {found}");
            let forecast = design(&scatter, patches, blocks).expected().unwrap();
            let ratio = forecast.half_width / median;
            assert!(ratio.ln().abs() < 0.15, "{patches} {blocks}: {ratio}");
        }
    }

    #[test]
    fn measuring_is_expected_to_end_where_the_stopping_rule_ends_it() {
        let scatter = Scatter::Assumed(SD);
        let to = |resolution| {
            let design = Design {
                resolution: Some((resolution, 10)),
                ..design(&scatter, 4, 60)
            };
            design.expected().unwrap()
        };
        let (wide, narrow, never) = (to(0.02), to(0.006), to(0.0005));
        assert_eq!(wide.blocks, [10]);
        assert!(
            (15..40).contains(&narrow.blocks[0]) && narrow.half_width <= 0.0062,
            "{narrow:?}"
        );
        assert_eq!(never.blocks, [60]);
        assert!(never.half_width > 0.002, "{never:?}");
    }

    #[test]
    fn many_blocks_are_extrapolated() {
        let scatter = Scatter::Assumed(SD);
        let at = |blocks| design(&scatter, 2, blocks).expected().unwrap();
        let (few, many) = (at(MOST_BLOCKS), at(100 * MOST_BLOCKS));
        assert!((few.half_width / many.half_width / 10.0 - 1.0).abs() < 1e-9);
        assert_eq!(many.blocks, [100 * MOST_BLOCKS]);
        assert_eq!(at(8), at(8));
    }

    #[test]
    fn blocks_that_share_layouts_are_worth_less_where_layouts_matter() {
        let mut random = StdRng::seed_from_u64(5);
        let mut collect = |between: f64| {
            let mut rows = Vec::new();
            for _ in 0..20 {
                let layout: Vec<f64> = (0..4).map(|_| between * normal(&mut random)).collect();
                for _ in 0..2 {
                    let row = layout.iter().map(|of| of + SD * normal(&mut random));
                    rows.push(row.collect::<Vec<f64>>());
                }
            }
            let pairs = rows.chunks(2).map(|pair| {
                let means = pair[0].iter().zip(&pair[1]);
                means.map(|(a, b)| (a + b) / 2.0).collect()
            });
            Scatter::Measured(vec![MeasuredScatter {
                units: Residuals::of(&pairs.collect::<Vec<Vec<f64>>>()),
                blocks: Residuals::of(&rows),
            }])
        };
        let width = |scatter: &Scatter, repeats| {
            let design = Design {
                repeats,
                ..design(scatter, 2, 40)
            };
            design.expected().unwrap().half_width
        };
        let (none, large) = (collect(0.0), collect(3.0 * SD));
        let ratio = |scatter| width(scatter, true) / width(scatter, false);
        let (of_large, of_none) = (ratio(&large), ratio(&none));
        assert!(of_large > 1.15 * of_none, "{of_large} {of_none}");
    }

    #[test]
    fn machines_that_differ_are_the_units() {
        let scatter = Scatter::Assumed(0.001);
        let on = |between| {
            let design = Design {
                machines: Some((8, between)),
                ..design(&scatter, 2, 64)
            };
            design.expected().unwrap().half_width
        };
        // The difference of two points, over eight machines.
        let expected = 2.365 * (2.0f64 / 8.0).sqrt() * 0.01;
        assert!((on(0.01) / expected).ln().abs() < 0.25, "{}", on(0.01));
        assert!(on(0.0) < on(0.01) / 10.0);
    }

    #[test]
    fn servers_that_vary_together_keep_what_they_share() {
        let mut random = StdRng::seed_from_u64(2);
        // Servers with the patch share a deviation that the release and its control do not have.
        let row = |random: &mut StdRng| {
            let shared = 4.0 * SD * normal(random);
            let own = [0.0, shared, shared, shared, 0.0];
            own.map(|of| of + SD * normal(random)).to_vec()
        };
        let rows: Vec<Vec<f64>> = (0..200).map(|_| row(&mut random)).collect();
        let residuals = Residuals::of(&rows);
        assert!(residuals.dimensions() < 1.5, "{}", residuals.dimensions());
        let drawn: Vec<Vec<f64>> = (0..2000).map(|_| residuals.draw(&mut random)).collect();
        let sd = |a: usize, b: usize| {
            let squares = drawn.iter().map(|row| (row[a] - row[b]).powi(2));
            (squares.sum::<f64>() / 2000.0).sqrt() / SD
        };
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.15;
        assert!(near(sd(2, 1), 2f64.sqrt()), "{}", sd(2, 1));
        assert!(near(sd(3, 0), 18f64.sqrt()), "{}", sd(3, 0));
        let mut alike = || (0..5).map(|_| normal(&mut random)).collect();
        let independent: Vec<Vec<f64>> = (0..12).map(|_| alike()).collect();
        let found = Residuals::of(&independent);
        assert!(found.dimensions() > 2.0, "{}", found.dimensions());
    }
}
