//! Forecasts of interval widths: simulated experiments, whose values scatter as those of an earlier one did, are judged by the
//! rules that will judge the real one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::collect::Collector;
use super::document::{Attribution, EffectKind, SUITE};
use crate::stats::normal_quantile;
use perfquilt_model::error::Result;
use perfquilt_model::observation::{
    ExperimentHeader, Meter, Observation, PlannedBlocks, SCHEMA, Supplement,
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
/// The blocks of a cluster's row, which one machine measures.
const ROW: u32 = 4;

/// How the values of a workload scatter around their block and point, on the log scale.
#[derive(Debug, Clone, Default)]
pub struct Scatter {
    /// Of single blocks.
    blocks: Residuals,
    /// Of the means over blocks that share layouts, where some did.
    units: Residuals,
}

/// Deviations from the means of rows and columns of a table, scaled to the variance that they estimate.
#[derive(Debug, Clone, Default)]
struct Residuals {
    rows: Vec<Vec<f64>>,
    degrees_of_freedom: f64,
}

impl Scatter {
    /// Returns what is assumed of values with this standard deviation: the normal distribution.
    pub fn assumed(sd: f64) -> Self {
        let count = 99;
        let quantile = |i: usize| sd * normal_quantile((i as f64 + 0.5) / count as f64);
        Scatter {
            blocks: Residuals {
                rows: vec![(0..count).map(quantile).collect()],
                degrees_of_freedom: f64::INFINITY,
            },
            units: Residuals::default(),
        }
    }

    /// Adds what another experiment found.
    pub fn join(&mut self, other: Scatter) {
        self.blocks.join(other.blocks);
        self.units.join(other.units);
    }

    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.blocks.rows.is_empty()
    }

    /// Returns the standard deviation of a value in a block.
    pub fn sd(&self) -> f64 {
        let squares = self.blocks.rows.iter().flatten().map(|value| value * value);
        let count = self.blocks.rows.iter().map(Vec::len).sum::<usize>();
        (squares.sum::<f64>() / count.max(1) as f64).sqrt()
    }
}

impl Residuals {
    fn of(rows: &[Vec<f64>]) -> Self {
        let (n, p) = (rows.len() as f64, rows.first().map_or(0, Vec::len) as f64);
        if n < 2.0 || p < 2.0 {
            return Residuals::default();
        }
        let of_points: Vec<f64> = (0..p as usize)
            .map(|point| rows.iter().map(|row| row[point]).sum::<f64>() / n)
            .collect();
        let all = of_points.iter().sum::<f64>() / p;
        let degrees_of_freedom = (n - 1.0) * (p - 1.0);
        let scale = (n * p / degrees_of_freedom).sqrt();
        let residuals = |row: &Vec<f64>| {
            let of_row = row.iter().sum::<f64>() / p;
            let pairs = row.iter().zip(&of_points);
            pairs
                .map(|(value, of_point)| scale * (value - of_row - of_point + all))
                .collect()
        };
        Residuals {
            rows: rows.iter().map(residuals).collect(),
            degrees_of_freedom,
        }
    }

    fn join(&mut self, other: Residuals) {
        self.rows.extend(other.rows);
        self.degrees_of_freedom += other.degrees_of_freedom;
    }

    /// Returns by how much the true standard deviation exceeds the estimate if a probability of `p` is above: the estimate's
    /// own error, as in a Bayesian analysis of a normal variance without prior knowledge (`ν/χ²`).
    fn scale(&self, p: f64) -> f64 {
        if !self.degrees_of_freedom.is_finite() {
            return 1.0;
        }
        let quantile = ChiSquared::new(self.degrees_of_freedom).map(|of| of.inverse_cdf(p));
        quantile.map_or(1.0, |of| (self.degrees_of_freedom / of).sqrt())
    }

    /// Draws the deviations of so many points in a block: those of one earlier block, so that a block that was disturbed
    /// stays one, with random signs.
    fn draw(&self, points: usize, random: &mut StdRng) -> Vec<f64> {
        let row = self.rows.choose(random).map_or(&[][..], Vec::as_slice);
        let value = |random: &mut StdRng| {
            let value = row.choose(random).copied().unwrap_or(0.0);
            if random.random() { value } else { -value }
        };
        (0..points).map(|_| value(random)).collect()
    }
}

impl Collector<'_> {
    /// Returns how the times of `workload` scatter over the blocks of this experiment, on each machine; empty with fewer than two
    /// blocks.
    pub fn scatter(&self, workload: &str) -> Scatter {
        let source = &self.sources()[0];
        let by_workload = source.blocks.get(&Meter::Time);
        let Some(table) = by_workload.and_then(|tables| tables.get(workload)) else {
            return Scatter::default();
        };
        let complete = table.largest_window().complete();
        let machines = source.machines.by_block();
        let mut by_machine: BTreeMap<Option<u32>, Vec<Vec<f64>>> = BTreeMap::new();
        for (block, row) in complete.rows() {
            let machine = machines.get(&block).copied();
            by_machine.entry(machine).or_default().push(row.to_vec());
        }
        let mut scatter = Scatter::default();
        for rows in by_machine.values() {
            scatter.blocks.join(Residuals::of(rows));
        }
        let units = source.units.get(&Meter::Time);
        if let Some(units) = units.filter(|_| by_machine.len() == 1) {
            let means = units.mean_rows(&complete);
            if means.len() < complete.len() {
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
    /// The number of patches that are measured.
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

/// What the simulated experiments came to.
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
    ///
    /// # Errors
    /// None that a design with a block and a workload can cause.
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
            .map_or(0, |(machines, _)| machines.saturating_mul(ROW));
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
        let patches = self.patches.clamp(1, MOST_PATCHES);
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
        let mut machine = SimulatedMachine::new(self, scatter, (number, place), patches);
        let mut look = self.resolution.map_or(most, |(_, least)| least.min(most));
        let mut more = 0;
        let mut done = 0;
        while done < most {
            for observation in machine.block(done) {
                collector.add(&observation.borrowed())?;
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
    /// The residuals that are drawn, and the factor of their scale in this experiment.
    residuals: (&'a Residuals, f64),
    /// Whether the residuals are those of units.
    of_units: bool,
    /// The deviations of a unit's first block, by unit, where the second one has the same.
    units: BTreeMap<u32, Vec<f64>>,
    /// The deviations of points on each machine.
    machines: Vec<Vec<f64>>,
}

impl<'a> SimulatedMachine<'a> {
    fn new(
        design: &'a Design<'a>,
        scatter: &'a Scatter,
        (number, place): (u32, u64),
        patches: usize,
    ) -> Self {
        let points = (0..=patches).map(Point::Step).chain([Point::Control]);
        let points: Vec<Point> = points.collect();
        let mut random = StdRng::seed_from_u64(u64::from(number) << 16 | place);
        let machines = design.machines.map_or_else(Vec::new, |(count, between)| {
            let mut normal = |_: &Point| between * normal_quantile(random.random_range(1e-9..1.0));
            let most = count.min(design.most().div_ceil(ROW));
            (0..most)
                .map(|_| points.iter().map(&mut normal).collect())
                .collect()
        });
        // Every scale has its turn, in an order of its own on each workload.
        let turn = (u64::from(number) * (2 * place + 1) + 17 * place) % u64::from(SIMULATED);
        let share = (turn as f64 + 0.5) / f64::from(SIMULATED);
        // Where it was never measured what two blocks share because of their layouts, they share nothing.
        let of_units = design.repeats && !scatter.units.rows.is_empty();
        let residuals = if of_units {
            &scatter.units
        } else {
            &scatter.blocks
        };
        SimulatedMachine {
            design,
            residuals: (residuals, residuals.scale(share)),
            of_units,
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
            let row = number / ROW;
            row as usize % self.machines.len()
        });
        let beside = self.design.machines.is_none() && lanes > 1;
        let began = f64::from(number / lanes);
        let each = self.points.iter().zip(deviations).zip(0u32..);
        each.map(|((&point, deviation), order)| {
            let of_machine = machine.map_or(0.0, |machine| self.machines[machine][order as usize]);
            Observation {
                schema: SCHEMA,
                experiment: SIMULATION.to_owned(),
                block: number,
                order,
                point,
                layout: if self.design.repeats {
                    u64::from(unit) + 1
                } else {
                    0
                },
                workload: SIMULATION.to_owned(),
                meter: Meter::Time,
                unit: Meter::Time.unit().to_owned(),
                value: (of_machine + deviation).exp(),
                n: 1,
                direct: false,
                mean: None,
                slow: None,
                p99: None,
                stalled: None,
                lane: beside.then_some(number % lanes),
                began: beside.then_some(began),
                ended: beside.then_some(began + 1.0),
                machine: machine.map(|machine| machine.to_string()),
            }
        })
        .collect()
    }

    /// Draws the deviations of the points in a block of `unit`.
    fn deviations(&mut self, unit: u32) -> Vec<f64> {
        if let Some(first) = self.units.remove(&unit) {
            return first;
        }
        let (residuals, scale) = self.residuals;
        let mut drawn = residuals.draw(self.points.len(), &mut self.random);
        drawn.iter_mut().for_each(|value| *value *= scale);
        if self.of_units {
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
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
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
    use crate::test_kit::normal;

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
        let scatter = Scatter::assumed(SD);
        let design = design(&scatter, patches, blocks);
        let mut machine = SimulatedMachine::new(&design, &scatter, (0, 0), patches);
        for block in 0..blocks {
            for mut observation in machine.block(block) {
                observation.value = (SD * normal(random)).exp();
                collector.add(&observation.borrowed()).unwrap();
            }
        }
        let width = typical_half_width(&collector.finish(&Meter::default_margin));
        (collector.scatter(SIMULATION), width)
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
        let scatter = Scatter::assumed(SD);
        for (patches, blocks, share) in [
            (1, 5, 0.68),
            (1, 8, 0.66),
            (1, 20, 0.93),
            (3, 5, 0.94),
            (3, 8, 0.88),
            (3, 20, 1.0),
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
        let scatter = Scatter::assumed(SD);
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
        let scatter = Scatter::assumed(SD);
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
            Scatter {
                units: Residuals::of(&pairs.collect::<Vec<Vec<f64>>>()),
                blocks: Residuals::of(&rows),
            }
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
        assert!(ratio(&large) > 1.25 && ratio(&none) < 1.15);
    }

    #[test]
    fn machines_that_differ_are_the_units() {
        let scatter = Scatter::assumed(0.001);
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
}
