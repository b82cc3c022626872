//! A simulated machine with known answers: the runner's tests.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::executor::{Event, Executor, Report};
use super::plan::{Block, Reading, Scope, plan};
use super::runner::Runner;
use crate::attribution::{self, Attribution, Kind as EffectKind, Verdict};
use crate::config::{Workload, WorkloadKind};
use crate::error::{Error, Kind, Result};
use crate::meter::Counted;
use crate::observation::{ExperimentHeader, Meter};
use crate::point::Point;
use crate::progress::Silent;
use crate::stats::Slices;
use crate::store::{ExperimentId, Store};
use crate::workload::Measured;

const POINTS: [Point; 4] = [
    Point::Step(0),
    Point::Step(1),
    Point::Step(2),
    Point::Control,
];

/// Point 1 costs 4 % less than the base, point 2 the same as point 1.
fn cost(point: Point) -> f64 {
    match point {
        Point::Step(1 | 2) => 0.96,
        _ => 1.0,
    }
}

/// Every restart shifts a server a little, every round all of them, every slice one of them.
#[derive(Default)]
struct Simulation {
    /// Blocks asked for, as (kind, number, workloads).
    asked: Vec<(Reading, u32, Vec<String>)>,
    /// Transactions asked for in counted blocks.
    transactions: Vec<BTreeMap<String, u64>>,
    /// Stops after that many workloads, as a signal would.
    patience: Option<usize>,
    /// A point whose server fails from that timed block on.
    crash: Option<(Point, u32)>,
}

impl Executor for Simulation {
    fn run(
        &mut self,
        block: &Block,
        transactions: &BTreeMap<String, u64>,
        report: &mut Report<'_>,
    ) -> Result<()> {
        self.asked
            .push((block.reading, block.number, block.workloads.clone()));
        let mut points = block.points.clone();
        if let Some((point, number)) = self.crash
            && block.number >= number
            && points.contains(&point)
        {
            let error = Error::bench("crashed").details(["mysqld got signal 11"]);
            if point == Point::BASE {
                return Err(error);
            }
            points.retain(|other| *other != point);
            report(Event::Failed { point, error })?;
        }
        let mut random = StdRng::seed_from_u64(block.seed ^ u64::from(block.number));
        let shift: Vec<f64> = points
            .iter()
            .map(|_| 1.0 + 0.004 * random.random_range(-1.0..1.0))
            .collect();
        if block.reading == Reading::Counted {
            self.transactions.push(transactions.clone());
        }
        for workload in &block.workloads {
            if let Some(left) = &mut self.patience {
                if *left == 0 {
                    return Err(Error::interrupted());
                }
                *left -= 1;
            }
            report(match block.reading {
                Reading::Timed => Event::Timed {
                    workload: workload.clone(),
                    measured: measured(&points, &shift, &mut random),
                },
                Reading::Counted => Event::Counted {
                    workload: workload.clone(),
                    readings: points
                        .iter()
                        .map(|&point| {
                            let reading = Counted {
                                meter: Meter::Instructions,
                                value: 1e6 * cost(point) * random.random_range(0.9999..1.0001),
                                n: transactions[workload],
                            };
                            (point, vec![reading])
                        })
                        .collect(),
                },
            })?;
        }
        Ok(())
    }
}

fn measured(points: &[Point], shift: &[f64], random: &mut StdRng) -> Measured {
    let mut time: Vec<Slices> = points
        .iter()
        .map(|&point| Slices {
            point,
            nanoseconds: Vec::new(),
            transactions_per_slice: 2,
        })
        .collect();
    for _ in 0..100 {
        let round: f64 = random.random_range(0.8..1.5);
        for (slices, shift) in time.iter_mut().zip(shift) {
            let slice = random.random_range(0.98..1.02);
            let cost = 1e6 * cost(slices.point) * shift * round * slice;
            slices.nanoseconds.push(cost as f32);
        }
    }
    Measured {
        cpu: time.clone(),
        time,
        rounds: 100,
        spoiled_rounds: 0,
    }
}

fn workload(name: &str) -> Workload {
    Workload {
        name: name.into(),
        description: String::new(),
        kind: WorkloadKind::Command,
        exercises: Vec::new(),
        sysbench: None,
        command: None,
    }
}

/// An experiment in a store of its own.
struct Fixture {
    _folder: tempfile::TempDir,
    store: Store,
    header: ExperimentHeader,
    workloads: Vec<Workload>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut header = ExperimentHeader::new("toy-1", "quick");
        header.series = vec!["a.patch".into(), "b.patch".into()];
        Fixture {
            store: Store::open(&folder.path().join("results.db")).unwrap(),
            _folder: folder,
            header,
            workloads: vec![workload("x"), workload("y")],
        }
    }

    fn id(&self) -> ExperimentId {
        self.store.begin(&self.header, "key").unwrap()
    }

    /// One invocation of the tool.
    fn run(
        &self,
        simulation: &mut Simulation,
        blocks: u32,
        count_blocks: u32,
    ) -> (BTreeMap<Point, Error>, Result<()>) {
        let names: Vec<String> = self.workloads.iter().map(|w| w.name.clone()).collect();
        let blocks = plan(&Scope {
            seed: 5,
            points: &POINTS,
            workloads: &names,
            blocks,
            count_blocks,
            layouts: true,
            direct: &[],
        });
        let workloads: Vec<&Workload> = self.workloads.iter().collect();
        let margin = crate::config::default_margin;
        let mut runner = Runner::new(
            &self.store,
            self.id(),
            &[Meter::Time, Meter::Cpu],
            &[Meter::Instructions],
            &workloads,
            &margin,
        )
        .unwrap();
        let outcome = runner.drive(&blocks, 1.0, simulation, &Silent);
        if outcome.1.is_ok() && outcome.0.is_empty() {
            assert!(runner.is_complete(&blocks));
        }
        outcome
    }

    fn attribution(&self) -> Attribution {
        let (header, observations) = self.store.load(self.id()).unwrap();
        attribution::attribute(&header, &observations, &crate::config::default_margin).unwrap()
    }

    fn blocks_done(&self, workload: &str, meter: Meter) -> Vec<u32> {
        self.store
            .blocks_done(self.id(), workload, meter, false)
            .unwrap()
    }
}

#[test]
fn the_known_effect_is_found() {
    let fixture = Fixture::new();
    let (failed, end) = fixture.run(&mut Simulation::default(), 12, 3);
    end.unwrap();
    assert!(failed.is_empty());
    let attribution = fixture.attribution();
    for meter in [Meter::Time, Meter::Cpu, Meter::Instructions] {
        let effect = |patch: usize| {
            attribution.patches[patch]
                .effects
                .iter()
                .find(|e| e.kind == EffectKind::InOrder && e.meter == meter && e.workload == "x")
                .unwrap()
        };
        assert!((effect(0).estimate - 1.0 / 24.0).abs() < 0.005, "{meter}");
        assert_eq!(effect(0).verdict, Verdict::Faster, "{meter}");
        assert!(effect(1).estimate.abs() < 0.005, "{meter}");
    }
}

#[test]
fn a_stopped_run_is_taken_up_where_it_stopped() {
    let fixture = Fixture::new();
    let mut first = Simulation {
        patience: Some(7),
        ..Simulation::default()
    };
    let (_, end) = fixture.run(&mut first, 6, 1);
    assert_eq!(end.unwrap_err().kind(), Kind::Interrupted);
    let mut second = Simulation::default();
    fixture.run(&mut second, 6, 1).1.unwrap();
    let done = |simulation: &Simulation| -> usize {
        simulation.asked.iter().map(|(_, _, w)| w.len()).sum()
    };
    // Seven workloads of fourteen were stored; the store refuses a value that is there twice.
    assert_eq!(done(&second), 7);
    for name in ["x", "y"] {
        assert_eq!(fixture.blocks_done(name, Meter::Time).len(), 6);
        assert_eq!(fixture.blocks_done(name, Meter::Instructions).len(), 1);
    }
    let mut third = Simulation::default();
    fixture.run(&mut third, 6, 1).1.unwrap();
    assert_eq!(done(&third), 0);
}

#[test]
fn more_blocks_go_on_with_the_same_experiment() {
    let fixture = Fixture::new();
    fixture.run(&mut Simulation::default(), 4, 0).1.unwrap();
    let mut more = Simulation::default();
    fixture.run(&mut more, 6, 0).1.unwrap();
    let numbers: Vec<u32> = more.asked.iter().map(|(_, number, _)| *number).collect();
    assert_eq!(numbers, [4, 5]);
}

#[test]
fn a_point_that_crashes_is_left_out_and_the_others_go_on() {
    let fixture = Fixture::new();
    let mut simulation = Simulation {
        crash: Some((Point::Step(1), 2)),
        ..Simulation::default()
    };
    let (failed, end) = fixture.run(&mut simulation, 5, 0);
    end.unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(
        failed[&Point::Step(1)].detail_lines(),
        ["mysqld got signal 11"]
    );
    let (_, observations) = fixture.store.load(fixture.id()).unwrap();
    let blocks_of = |point| {
        observations
            .iter()
            .filter(|o| o.point == point && o.workload == "x" && o.meter == Meter::Time)
            .count()
    };
    assert_eq!(
        (blocks_of(Point::Step(1)), blocks_of(Point::Step(2))),
        (2, 5)
    );
}

#[test]
fn a_base_that_crashes_ends_it_with_the_finished_blocks_kept() {
    let fixture = Fixture::new();
    let mut simulation = Simulation {
        crash: Some((Point::BASE, 2)),
        ..Simulation::default()
    };
    let (_, end) = fixture.run(&mut simulation, 5, 0);
    assert_eq!(end.unwrap_err().kind(), Kind::Bench);
    assert_eq!(fixture.blocks_done("y", Meter::Time).len(), 2);
}

#[test]
fn counted_transactions_follow_the_time_one_takes() {
    let fixture = Fixture::new();
    let mut simulation = Simulation::default();
    fixture.run(&mut simulation, 3, 1).1.unwrap();
    // About 0.5 ms a transaction: 80 of them are 40 ms, rounded down to 50.
    assert_eq!(simulation.transactions[0]["x"], 50);
}

#[test]
fn values_are_stored_with_the_layout_they_were_measured_in() {
    let fixture = Fixture::new();
    fixture.run(&mut Simulation::default(), 8, 1).1.unwrap();
    let (_, observations) = fixture.store.load(fixture.id()).unwrap();
    let of = |meter: Meter, point: Point| -> Vec<u64> {
        let mut layouts: Vec<u64> = observations
            .iter()
            .filter(|o| o.meter == meter && o.point == point)
            .map(|o| o.layout)
            .collect();
        layouts.sort_unstable();
        layouts.dedup();
        layouts
    };
    assert_eq!(of(Meter::Instructions, Point::BASE), [0]);
    let (base, control) = (
        of(Meter::Time, Point::BASE),
        of(Meter::Time, Point::Control),
    );
    assert_eq!((base.len(), control.len()), (6, 6));
    assert!(
        base.iter()
            .all(|seed| *seed != 0 && !control.contains(seed))
    );
    let attribution = fixture.attribution();
    assert_eq!(attribution.noise.layouts, 6);
    let total = &attribution.total;
    let time = total
        .iter()
        .find(|e| e.meter == Meter::Time && e.workload == "x");
    assert_eq!(time.map(|e| (e.blocks, e.units)), Some((8, 6)));
}
