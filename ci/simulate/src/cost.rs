//! Costs of experiments: the planner's blocks, as many as the judge needs, at measured prices.

use std::collections::BTreeSet;

use serde::Serialize;

use super::scenario::{PATCHES, RESTART, header, observation, points};
use super::simulation::{counted, parallel};
use perfquilt_calibrate::random::Noise;
use perfquilt_config::{DEFAULT_MIN_BLOCKS, Layouts};
use perfquilt_judge::attribution::{Collector, Effect, EffectKind};
use perfquilt_measure::experiment;
use perfquilt_measure::experiment::plan::{Block, Reading, Scope, plan};
use perfquilt_model::counted::percent;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, Observation, PlannedBlocks, Supplement};
use perfquilt_model::point::Point;

/// The maximum number of blocks: so many that it never ends an experiment.
const BLOCKS: u32 = 200;
/// The half-width of every patch's interval and the total's at which an experiment ends.
const RESOLUTION: f64 = 0.005;
/// The workload.
const WORK: &str = "work";

/// Durations of blocks on a machine, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prices {
    /// To link a server in a new layout.
    pub link: f64,
    /// To start a server.
    pub start: f64,
    /// To connect the client and to warm up.
    pub connect: f64,
    /// The slices of a block of up to six servers.
    pub slices: f64,
}

/// MariaDB on two shared virtual cores: links as in the builds of docs/results, the slices of the preset `quick`.
const MARIADB: Prices = Prices {
    link: 0.5,
    start: 0.25,
    connect: 1.0,
    slices: 2.0,
};

/// A simulated machine and series.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    /// Standard deviation of what a layout does to a point.
    layout: f64,
    /// How much more the second patch's server varies than the others.
    unlike: f64,
}

const CASES: [Case; 4] = [
    Case {
        name: "layouts without effect",
        layout: 0.0,
        unlike: 1.0,
    },
    Case {
        name: "layouts of half a restart's variance",
        layout: RESTART * std::f64::consts::FRAC_1_SQRT_2,
        unlike: 1.0,
    },
    Case {
        name: "one server varies 1.5 times as much",
        layout: 0.0,
        unlike: 1.5,
    },
    Case {
        name: "one server varies three times as much",
        layout: 0.0,
        unlike: 3.0,
    },
];

/// Mean cost of a case's experiments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseCost {
    /// The case's name.
    pub name: &'static str,
    /// Seconds until every patch and the total are known to the resolution.
    pub seconds: f64,
    /// Their standard error.
    pub error: f64,
    /// Blocks over all points.
    pub blocks: f64,
    /// The share of the patches' 95 % intervals that contain the true effect, 0.
    pub coverage: f64,
    /// The same of the second patch, whose server may vary more.
    pub coverage_unlike: f64,
    /// The same of the total.
    pub coverage_total: f64,
    /// The share of experiments in which a patch is called faster or slower.
    pub false_claims: f64,
}

/// Costs of experiments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Costs {
    /// Version of this document: 1.
    pub schema: u32,
    /// The version of the program.
    pub version: &'static str,
    /// Experiments of each case.
    pub experiments: usize,
    /// The half-width.
    pub resolution: f64,
    /// The prices.
    pub prices: Prices,
    /// By case.
    pub cases: Vec<CaseCost>,
}

impl Costs {
    /// Returns a table for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} experiments of {PATCHES} patches without effect and their total to ±{} %\n\n\
             {:<40} {:>8} {:>7} {:>9} {:>8} {:>7} {:>6}\n",
            self.experiments,
            100.0 * self.resolution,
            "servers",
            "seconds",
            "blocks",
            "intervals",
            "patch 2",
            "total",
            "false",
        );
        for of in &self.cases {
            text.push_str(&format!(
                "{:<40} {:>8.0} {:>7.1} {:>9} {:>8} {:>7} {:>6}\n",
                of.name,
                of.seconds,
                of.blocks,
                percent(of.coverage),
                percent(of.coverage_unlike),
                percent(of.coverage_total),
                percent(of.false_claims),
            ));
        }
        text
    }
}

/// One experiment.
struct One {
    seconds: f64,
    blocks: f64,
    /// Whether the patches' intervals contain 0.
    held: Vec<bool>,
    total_held: bool,
    claimed: bool,
}

/// Simulates `experiments` of each case from the first block to the end. The same seed gives the same figures.
pub fn costs(experiments: usize, seed: u64) -> Result<Costs> {
    let cases = CASES.iter().map(|case| {
        let name = format!("simulate {}", case.name);
        let all: Vec<One> = counted(&name, experiments, |done| {
            parallel(experiments, |index| {
                let number = seed.wrapping_add(index as u64);
                let found = one(*case, number, &mut Noise::of(seed, case.name, index))?;
                done();
                Ok(found)
            })
        })?;
        Ok(summary(case.name, &all))
    });
    Ok(Costs {
        schema: 1,
        version: env!("CARGO_PKG_VERSION"),
        experiments,
        resolution: RESOLUTION,
        prices: MARIADB,
        cases: cases.collect::<Result<_>>()?,
    })
}

fn summary(name: &'static str, all: &[One]) -> CaseCost {
    let n = all.len().max(1) as f64;
    let mean = |of: &dyn Fn(&One) -> f64| all.iter().map(of).sum::<f64>() / n;
    let share = |of: &dyn Fn(&One) -> bool| mean(&|one| f64::from(u8::from(of(one))));
    let seconds = mean(&|one| one.seconds);
    let variance = mean(&|one| (one.seconds - seconds).powi(2));
    CaseCost {
        name,
        seconds,
        error: (variance / n).sqrt(),
        blocks: mean(&|one| one.blocks),
        coverage: mean(&|one| {
            let held = one.held.iter().filter(|held| **held).count();
            held as f64 / one.held.len().max(1) as f64
        }),
        coverage_unlike: share(&|one| one.held.get(1).copied().unwrap_or(false)),
        coverage_total: share(&|one| one.total_held),
        false_claims: share(&|one| one.claimed),
    }
}

fn one(case: Case, seed: u64, noise: &mut Noise) -> Result<One> {
    let header = header(PATCHES);
    let workloads = [WORK.to_owned()];
    let points = points(PATCHES);
    let direct = [Point::BASE, Point::Step(PATCHES)];
    let blocks = plan(&Scope {
        seed,
        points: &points,
        workloads: &workloads,
        windows: &[],
        blocks: BLOCKS,
        count_blocks: 0,
        lanes: 1,
        layouts: Layouts::Padded,
        direct: &direct,
    });
    let supplement = Supplement {
        planned: vec![PlannedBlocks {
            min_blocks: Some(DEFAULT_MIN_BLOCKS),
            resolution: Some(RESOLUTION),
            ..PlannedBlocks::fixed(WORK, Meter::Time, BLOCKS)
        }],
        ..Supplement::default()
    };
    let mut collector = Collector::new(&header, &supplement)?;
    let mut machine = Machine::of(case, seed);
    let mut state = None;
    let mut full = 0;
    for block in blocks {
        let block = match &state {
            Some(state) => experiment::still_needed(block, state, &|_, point| point),
            None => block,
        };
        if block.workloads.is_empty() {
            continue;
        }
        for observation in machine.measure(&block, noise) {
            collector.add(&observation)?;
        }
        if !block.is_end_to_end() {
            full += 1;
            state = collector.stopping();
        }
    }
    let end = collector.finish(&Meter::default_margin);
    if !end.is_complete() {
        return Err(Error::internal("a simulated experiment did not end"));
    }
    let effects: Vec<&Effect> = end
        .patches
        .iter()
        .filter_map(|patch| {
            patch
                .effects
                .iter()
                .find(|of| of.kind == EffectKind::InOrder)
        })
        .collect();
    Ok(One {
        seconds: machine.seconds,
        blocks: f64::from(full),
        held: effects.iter().map(|of| !of.leaves_out_zero()).collect(),
        total_held: end.total.iter().all(|of| !of.leaves_out_zero()),
        claimed: effects.iter().any(|of| of.verdict.is_shown()),
    })
}

/// A machine that measures blocks, and the seconds that it has worked.
struct Machine {
    case: Case,
    seed: u64,
    linked: BTreeSet<(Point, u64)>,
    seconds: f64,
}

impl Machine {
    fn of(case: Case, seed: u64) -> Self {
        Machine {
            case,
            seed,
            linked: BTreeSet::new(),
            seconds: 0.0,
        }
    }

    fn measure(&mut self, block: &Block, noise: &mut Noise) -> Vec<Observation> {
        debug_assert_eq!(block.kind.reading(), Reading::Timed);
        let servers = block.servers();
        self.seconds += MARIADB.connect + experiment::slice_seconds(block, MARIADB.slices);
        self.seconds += MARIADB.start * servers.len() as f64;
        let drift = 0.03 * noise.normal();
        let value = |(order, (point, copy)): (u32, (Point, u32))| {
            let layout = block.layout(point, copy);
            if self.linked.insert((point, layout)) {
                self.seconds += MARIADB.link;
            }
            let number = block.stored_as(copy);
            let log = drift + self.case.draw(self.seed, (point, layout), noise);
            Observation {
                order,
                layout,
                direct: block.is_end_to_end(),
                ..observation(number, point, WORK, Meter::Time, 1e5 * log.exp())
            }
        };
        (0..).zip(servers).map(value).collect()
    }
}

impl Case {
    /// Draws the deviation of a server started in a layout, which always does the same to a point.
    fn draw(&self, seed: u64, (point, layout): (Point, u64), noise: &mut Noise) -> f64 {
        let unlike = if point == Point::Step(2) {
            self.unlike
        } else {
            1.0
        };
        let of_layout = if self.layout > 0.0 {
            let name = format!("layout {point} {layout}");
            self.layout * Noise::of(seed, &name, 0).normal()
        } else {
            0.0
        };
        of_layout + RESTART * unlike * noise.normal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_costs_the_same_and_noise_costs_more() {
        let found = costs(4, 1).unwrap();
        assert_eq!(found, costs(4, 1).unwrap());
        let seconds: Vec<f64> = found.cases.iter().map(|of| of.seconds).collect();
        assert!(seconds[3] > 2.0 * seconds[0], "{found:?}");
        assert!(found.cases.iter().all(|of| of.blocks >= 10.0), "{found:?}");
        assert!(found.text().contains("layouts without effect"));
    }
}
