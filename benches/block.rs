//! Cost of a block to perfquilt itself, beside measuring: the stopping rule and the progress lines, after 10, 100 and
//! 1,000 blocks; and what it costs to read and judge the whole experiment instead, as a report does.
//!
//! `cargo bench --bench block [-- --patches 4 --workloads 4]`: seconds.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::time::Instant;

use clap::Parser;
use perfquilt_config::Workload;
use perfquilt_judge::attribution::attribute_with;
use perfquilt_measure::experiment::Failed;
use perfquilt_measure::experiment::collected::{Collected, NoteOn};
use perfquilt_measure::experiment::readings::Readings;
use perfquilt_model::observation::{
    ExperimentHeader, Meter, Observation, PlannedBlocks, Supplement,
};
use perfquilt_model::point::Point;
use perfquilt_store::Store;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Repetitions, of which the median counts.
const REPEATS: u32 = 5;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 4)]
    patches: usize,
    #[arg(long, default_value_t = 4)]
    workloads: usize,
    /// Argument that cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let Arguments {
        patches, workloads, ..
    } = Arguments::parse();
    println!("{patches} patches, {workloads} workloads; medians of {REPEATS}");
    println!("blocks  kept in memory, ms a block  read and judged again, ms a block  ratio");
    for blocks in [10, 100, 1000] {
        let case = Case::new(patches, workloads, blocks);
        let (kept, again) = (median(|round| case.kept(round)), median(|_| case.again()));
        println!(
            "{blocks:6}  {:25.2}  {:33.2}  {:5.0}",
            kept,
            again,
            again / kept
        );
    }
}

fn median(measure: impl Fn(u32) -> f64) -> f64 {
    let mut all: Vec<f64> = (0..REPEATS).map(measure).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// A stored experiment of so many blocks.
struct Case {
    _folder: tempfile::TempDir,
    store: Store,
    header: ExperimentHeader,
    workloads: Vec<Workload>,
    planned: Vec<PlannedBlocks>,
    points: Vec<Point>,
    blocks: u32,
}

impl Case {
    fn new(patches: usize, workloads: usize, blocks: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut header = ExperimentHeader::new("srv-1.0", "quick");
        header.experiment = "bench".into();
        header.series = (1..=patches).map(|k| format!("{k}.patch")).collect();
        let settings = "description = \"\"\nkind = \"sysbench\"\n[sysbench]\nscript = \"x\"\n";
        let workloads: Vec<Workload> = (0..workloads)
            .map(|place| Workload::parse(&format!("w{place}"), settings).unwrap())
            .collect();
        let planned = workloads.iter().map(|workload| PlannedBlocks {
            min_blocks: Some(10),
            resolution: Some(1e-9),
            ..PlannedBlocks::fixed(&workload.name, Meter::Time, blocks + REPEATS)
        });
        let case = Case {
            store: Store::open(&folder.path().join("results.db")).unwrap(),
            _folder: folder,
            header,
            planned: planned.collect(),
            workloads,
            points: (0..=patches)
                .map(Point::Step)
                .chain([Point::Control])
                .collect(),
            blocks,
        };
        let id = case.store.begin(&case.header, "key").unwrap();
        for block in 0..blocks {
            let observations = case.block(block);
            case.store.append(id, &observations, &[]).unwrap();
        }
        case
    }

    fn block(&self, block: u32) -> Vec<Observation> {
        let mut random = StdRng::seed_from_u64(u64::from(block));
        let mut observations = Vec::new();
        for workload in &self.workloads {
            for (order, &point) in self.points.iter().enumerate() {
                let noise: f64 = random.random_range(-0.01..0.01);
                let value = 1e6 * (1.0 + noise);
                observations.push(Observation {
                    experiment: self.header.experiment.clone(),
                    order: u32::try_from(order).unwrap(),
                    layout: 1 + random.random_range(0..1 << 30),
                    n: 1000,
                    mean: Some(1.01e6 * (1.0 + noise)),
                    slow: Some(0.01 + noise / 10.0),
                    p99: Some(1.5e6 * (1.0 + noise)),
                    ..Observation::new(block, point, &workload.name, Meter::Time, value)
                });
            }
        }
        observations
    }

    /// Milliseconds of the next block with all others in memory.
    fn kept(&self, round: u32) -> f64 {
        let id = self.store.begin(&self.header, "key").unwrap();
        let readings = Readings {
            timed: vec![Meter::Time],
            counted: Vec::new(),
            workloads: self.workloads.clone(),
        };
        let mut collected =
            Collected::load(&self.store, id, self.planned.clone(), &readings).unwrap();
        let failed = Failed::default();
        // Where a running experiment stands.
        collected.stopping_before(self.blocks, &failed).unwrap();
        let next = self.block(self.blocks + round);
        let started = Instant::now();
        for observation in next {
            collected.add(observation).unwrap();
        }
        for workload in &self.workloads {
            let note = collected.note(
                &workload.name,
                Meter::Time,
                NoteOn::Patches(&self.points),
                &Meter::default_margin,
            );
            assert!(note.contains("A/A"), "{note}");
        }
        let state = collected.stopping_before(self.blocks + round + 1, &failed);
        assert!(!state.unwrap().unwrap().open.is_empty());
        started.elapsed().as_secs_f64() * 1000.0
    }

    /// Milliseconds of reading and judging everything after each workload, and once more for the stopping rule.
    fn again(&self) -> f64 {
        let id = self.store.begin(&self.header, "key").unwrap();
        let supplement = Supplement {
            planned: self.planned.clone(),
            ..Supplement::default()
        };
        let started = Instant::now();
        for _ in 0..=self.workloads.len() {
            let (header, observations) = self.store.load(id).unwrap();
            let margin = &Meter::default_margin;
            let attribution = attribute_with(&header, &observations, &supplement, margin).unwrap();
            assert!(attribution.stopping.is_some());
        }
        started.elapsed().as_secs_f64() * 1000.0
    }
}
