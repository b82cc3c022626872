//! Tests of the runner on a simulated machine with known effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::driver::Driver;
use super::executor::{BlockJob, Event, Executor, Lane, Report};
use super::failed::Failed;
use super::plan::{Block, BlockKind, Reading, Scope, plan};
use super::readings::Readings;
use super::remaining::BlockTimes;
use super::strategy::PlannedExperiment;
use perfquilt_bench::meter::{CountResult, MeterReading};
use perfquilt_bench::workload::BlockSlices;
use perfquilt_config::Workload;
use perfquilt_judge::attribution::{self, Attribution, EffectKind, StoppingRule, Verdict};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::Slices;
use perfquilt_model::observation::{ExperimentHeader, Meter, PlannedBlocks, Supplement};
use perfquilt_model::point::Point;
use perfquilt_store::{ExperimentId, Store};

const POINTS: [Point; 4] = [
    Point::Step(0),
    Point::Step(1),
    Point::Step(2),
    Point::Control,
];

/// Returns the cost of a point: point 1 costs 4 % less than the base, point 2 the same as point 1.
fn cost(point: Point) -> f64 {
    match point {
        Point::Step(1 | 2) => 0.96,
        _ => 1.0,
    }
}

/// A machine on which every restart shifts a server a little, every round all of them, every slice one of them.
#[derive(Default)]
struct Simulation {
    /// Requested blocks, as (kind, number, workloads).
    measured: Vec<(Reading, u32, Vec<String>)>,
    /// The requested points of each block.
    points: Vec<Vec<Point>>,
    /// A workload on which restarts shift servers ten times as much.
    restless: Option<&'static str>,
    /// Requested transactions of the counted blocks.
    transactions: Vec<BTreeMap<String, u64>>,
    /// Workloads after which the run stops, as on a signal.
    patience: Option<usize>,
    /// A point whose server fails from that timed block on.
    crash: Option<(Point, u32)>,
    /// A workload whose client fails in one reading from that block on.
    fails: Option<(&'static str, Reading, u32)>,
    /// The number of lanes; 0 stands for one.
    lanes: u32,
}

/// A simulated machine with lanes, which share its state.
struct Simulated<'s> {
    simulation: Mutex<&'s mut Simulation>,
    lanes: u32,
}

impl Executor for Simulated<'_> {
    fn lanes(&self) -> u32 {
        self.lanes
    }

    fn open(&self, _number: u32) -> Result<Box<dyn Lane + '_>> {
        Ok(Box::new(SimulatedLane(&self.simulation)))
    }
}

struct SimulatedLane<'s, 'm>(&'s Mutex<&'m mut Simulation>);

impl Lane for SimulatedLane<'_, '_> {
    fn run(&mut self, job: &BlockJob, report: &mut Report<'_>) -> Result<()> {
        let mut events = Vec::new();
        let end = self
            .0
            .lock()
            .unwrap()
            .run(&job.block, &job.transactions, &mut |event| {
                events.push(event);
                Ok(())
            });
        // Others measure meanwhile.
        std::thread::sleep(Duration::from_millis(job.block.seed % 3));
        events.into_iter().try_for_each(report)?;
        end
    }
}

impl Simulation {
    fn run(
        &mut self,
        block: &Block,
        transactions: &BTreeMap<String, u64>,
        report: &mut Report<'_>,
    ) -> Result<()> {
        self.measured
            .push((block.kind.reading(), block.number, block.workloads.clone()));
        self.points.push(block.points.clone());
        let mut points = block.points.clone();
        if let Some((point, number)) = self.crash
            && block.number >= number
            && points.contains(&point)
        {
            let error = Error::client_failed("crashed").details(["mysqld got signal 11"]);
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
        if block.kind == BlockKind::Counted {
            self.transactions.push(transactions.clone());
        }
        for workload in &block.workloads {
            if let Some(left) = &mut self.patience {
                if *left == 0 {
                    return Err(Error::interrupted());
                }
                *left -= 1;
            }
            if self.fails.is_some_and(|(name, reading, number)| {
                (name, reading) == (workload.as_str(), block.kind.reading())
                    && block.number >= number
            }) {
                let (workload, error) = (
                    workload.clone(),
                    Error::client_failed("the client exited with 1"),
                );
                report(Event::WorkloadFailed { workload, error })?;
                continue;
            }
            let shift: Vec<f64> = if self.restless == Some(workload.as_str()) {
                shift.iter().map(|shift| shift.powi(10)).collect()
            } else {
                shift.clone()
            };
            report(match block.kind.reading() {
                Reading::Timed => Event::Timed {
                    workload: workload.clone(),
                    measured: measured(&points, &shift, &mut random),
                    sample: None,
                },
                Reading::Counted => Event::Counted {
                    workload: workload.clone(),
                    readings: points
                        .iter()
                        .map(|&point| {
                            let reading = MeterReading {
                                meter: Meter::Instructions,
                                value: 1e6 * cost(point) * random.random_range(0.9999..1.0001),
                                n: transactions[workload],
                            };
                            let counts = CountResult {
                                readings: vec![reading],
                                functions: Vec::new(),
                            };
                            (point, counts)
                        })
                        .collect(),
                },
            })?;
        }
        Ok(())
    }
}

fn measured(points: &[Point], shift: &[f64], random: &mut StdRng) -> BlockSlices {
    let mut time: Vec<Slices> = points
        .iter()
        .map(|&point| Slices {
            point,
            values: Vec::new(),
            transactions_per_slice: 2,
        })
        .collect();
    for _ in 0..100 {
        let round: f64 = random.random_range(0.8..1.5);
        for (slices, shift) in time.iter_mut().zip(shift) {
            let slice = random.random_range(0.98..1.02);
            let cost = 1e6 * cost(slices.point) * shift * round * slice;
            slices.values.push(cost as f32);
        }
    }
    BlockSlices {
        cpu: time.clone(),
        operations: BTreeMap::from([("commit".into(), time.clone())]),
        time,
        rounds: 100,
        discarded_rounds: 3,
        ..BlockSlices::default()
    }
}

fn workload(name: &str) -> Workload {
    let text = "description = \"\"\nkind = \"sysbench\"\n[sysbench]\nscript = \"x\"\n";
    Workload::parse(name, text).unwrap()
}

/// An experiment in a store of its own.
struct Fixture {
    _folder: tempfile::TempDir,
    store: Store,
    header: ExperimentHeader,
    workloads: Vec<Workload>,
    /// The stopping rule: the target half-width and the fewest blocks.
    resolution: Option<(f64, u32)>,
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
            resolution: None,
        }
    }

    fn planned(&self, blocks: u32) -> Vec<PlannedBlocks> {
        let (resolution, least) = self.resolution.unzip();
        self.workloads
            .iter()
            .flat_map(|workload| {
                let of = |meter, resolution| PlannedBlocks {
                    min_blocks: least,
                    resolution,
                    ..PlannedBlocks::fixed(&workload.name, meter, blocks)
                };
                [of(Meter::Time, resolution), of(Meter::Cpu, None)]
            })
            .collect()
    }

    fn supplement(&self) -> Supplement {
        self.store.supplement(self.id()).unwrap()
    }

    fn id(&self) -> ExperimentId {
        self.store.begin(&self.header, "key").unwrap()
    }

    /// Runs the experiment once, as one invocation of the tool does.
    fn run(
        &self,
        simulation: &mut Simulation,
        blocks: u32,
        count_blocks: u32,
    ) -> (Failed, Result<()>) {
        self.run_meters(simulation, blocks, count_blocks, &[Meter::Time, Meter::Cpu])
    }

    /// Runs the experiment once with these timed meters.
    fn run_meters(
        &self,
        simulation: &mut Simulation,
        blocks: u32,
        count_blocks: u32,
        timed: &[Meter],
    ) -> (Failed, Result<()>) {
        let simulated = Simulated {
            lanes: simulation.lanes.max(1),
            simulation: Mutex::new(simulation),
        };
        self.drive(&simulated, (blocks, count_blocks), timed)
    }

    /// Runs the experiment once on `executor`, with so many timed and counted blocks.
    fn drive(
        &self,
        executor: &dyn Executor,
        (blocks, count_blocks): (u32, u32),
        timed: &[Meter],
    ) -> (Failed, Result<()>) {
        let names: Vec<String> = self.workloads.iter().map(|w| w.name.clone()).collect();
        let blocks = plan(&Scope {
            seed: 5,
            points: &POINTS,
            windows: &[],
            lanes: 1,
            workloads: &names,
            blocks,
            count_blocks,
            layouts: perfquilt_config::Layouts::Padded,
            direct: &[],
        });
        let margin = Meter::default_margin;
        let of_timed = blocks.iter().filter(|b| b.kind == BlockKind::Timed);
        let planned = self.planned(u32::try_from(of_timed.count()).unwrap());
        let planned = super::stopping::plan(&self.store, self.id(), planned).unwrap();
        let readings = Readings {
            timed: timed.to_vec(),
            counted: vec![Meter::Instructions],
            workloads: self.workloads.clone(),
        };
        let mut driver = Driver::new(&self.store, self.id(), &readings, planned, &margin).unwrap();
        let strategy = || PlannedExperiment::new(&blocks, 1.0, BlockTimes::default(), None);
        let outcome = driver.drive(&mut strategy(), executor);
        if outcome.1.is_ok() {
            assert!(driver.is_complete(&mut strategy(), &outcome.0).unwrap());
        }
        outcome
    }

    fn attribution(&self) -> Attribution {
        let (header, observations) = self.store.load(self.id()).unwrap();
        let margin = &Meter::default_margin;
        attribution::attribute_with(&header, &observations, &self.supplement(), margin).unwrap()
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
    assert_eq!(failed.count(), 0);
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
        simulation.measured.iter().map(|(_, _, w)| w.len()).sum()
    };
    // Seven workloads of fourteen were stored; the store refuses duplicate values.
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
    let numbers: Vec<u32> = more.measured.iter().map(|(_, number, _)| *number).collect();
    assert_eq!(numbers, [4, 5]);
}

#[test]
fn what_is_timed_apart_is_stored_with_the_time_and_once() {
    let fixture = Fixture::new();
    let count = |workload: &str, meter| {
        let (_, observations) = fixture.store.load(fixture.id()).unwrap();
        let of = observations.iter();
        of.filter(|o| o.workload == workload && o.meter == meter)
            .count()
    };
    let run = |timed: &[Meter]| {
        let (_, end) = fixture.run_meters(&mut Simulation::default(), 2, 0, timed);
        end.unwrap();
    };
    run(&[Meter::Cpu]);
    assert_eq!(
        (count("x", Meter::Cpu), count("x/commit", Meter::Time)),
        (8, 0)
    );
    // The missing meter needs the blocks again.
    run(&[Meter::Time]);
    run(&[Meter::Time, Meter::Cpu]);
    run(&[Meter::Time, Meter::Cpu]);
    assert_eq!(
        (count("x", Meter::Cpu), count("x/commit", Meter::Time)),
        (8, 8)
    );
}

#[test]
fn a_meter_that_is_added_leaves_what_was_timed_apart() {
    let fixture = Fixture::new();
    for timed in [&[Meter::Time][..], &[Meter::Time, Meter::Cpu]] {
        let (_, end) = fixture.run_meters(&mut Simulation::default(), 2, 0, timed);
        end.unwrap();
    }
    let (_, observations) = fixture.store.load(fixture.id()).unwrap();
    let of_commit = observations.iter().filter(|o| o.workload == "x/commit");
    assert_eq!(of_commit.count(), 8);
}

#[test]
fn rounds_that_were_left_out_are_told() {
    let fixture = Fixture::new();
    fixture.run(&mut Simulation::default(), 4, 0).1.unwrap();
    let left_out = fixture.supplement().left_out;
    let discarded: Vec<(&str, u64)> = left_out
        .iter()
        .map(|left| (left.workload.as_str(), left.count))
        .collect();
    assert_eq!(discarded, [("x", 12), ("y", 12)]);
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
    assert_eq!(failed.points.len(), 1);
    assert_eq!(
        failed.points[&Point::Step(1)].detail_lines(),
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
fn a_workload_that_fails_is_left_out_of_its_reading_and_tried_again_by_the_next_run() {
    for (reading, blocks) in [(Reading::Timed, [2, 6, 2]), (Reading::Counted, [6, 6, 0])] {
        let fixture = Fixture::new();
        let mut simulation = Simulation {
            fails: Some(("x", reading, if reading == Reading::Timed { 2 } else { 0 })),
            ..Simulation::default()
        };
        let (failed, end) = fixture.run(&mut simulation, 6, 2);
        end.unwrap();
        assert!(failed.points.is_empty() && failed.count() == 1);
        assert!(failed.has_workload("x", reading));
        let [x, y, counted_x] = [
            ("x", Meter::Time),
            ("y", Meter::Time),
            ("x", Meter::Instructions),
        ]
        .map(|(workload, meter)| fixture.blocks_done(workload, meter).len());
        assert_eq!([x, y, counted_x], blocks);
        assert_eq!(fixture.blocks_done("y", Meter::Instructions).len(), 2);
        // The next run measures what is missing, and nothing twice.
        let mut mended = Simulation::default();
        let (failed, end) = fixture.run(&mut mended, 6, 2);
        end.unwrap();
        assert_eq!(failed.count(), 0);
        assert!(
            mended
                .measured
                .iter()
                .all(|(of, _, workloads)| *of == reading && workloads == &["x"])
        );
        assert_eq!(fixture.blocks_done("x", Meter::Time).len(), 6);
        assert_eq!(fixture.blocks_done("x", Meter::Instructions).len(), 2);
    }
}

#[test]
fn a_workload_that_fails_does_not_keep_the_others_from_being_exact_enough() {
    let fixture = adaptive();
    let mut simulation = Simulation {
        fails: Some(("x", Reading::Timed, 0)),
        ..Simulation::default()
    };
    fixture.run(&mut simulation, 200, 0).1.unwrap();
    let alone = fixture.blocks_done("y", Meter::Time).len();
    assert!((8..100).contains(&alone), "{alone} blocks");
    let twice = adaptive();
    let mut late = Simulation {
        fails: Some(("x", Reading::Timed, 3)),
        ..Simulation::default()
    };
    twice.run(&mut late, 200, 0).1.unwrap();
    assert!(twice.blocks_done("y", Meter::Time).len() < 100);
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
    // Transactions take about 0.5 ms: 80 of them are 40 ms, rounded down to 50.
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
    assert_eq!(base.len(), 8);
    assert!(!base.contains(&0));
    assert_eq!(control, base, "a block's layout is common to its points");
    let attribution = fixture.attribution();
    assert_eq!(attribution.noise.layouts, 8);
    let total = &attribution.total;
    let time = total
        .iter()
        .find(|e| e.meter == Meter::Time && e.workload == "x");
    assert_eq!(time.map(|e| e.blocks), Some(8));
    // Eight units, or fewer where they seem to depend on each other.
    assert!(time.is_some_and(|e| (2..=8).contains(&e.units)), "{time:?}");
}

/// Returns an experiment that ends when every interval is at most ±0.5 %, after some ten to twenty blocks.
fn adaptive() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.resolution = Some((0.005, 8));
    fixture
}

fn timed_blocks(simulation: &Simulation) -> Vec<u32> {
    let timed = simulation.measured.iter().filter(|a| a.0 == Reading::Timed);
    timed.map(|(_, number, _)| *number).collect()
}

#[test]
fn an_experiment_ends_when_its_intervals_are_narrow_enough() {
    let fixture = adaptive();
    let mut simulation = Simulation::default();
    fixture.run(&mut simulation, 200, 2).1.unwrap();
    let blocks = timed_blocks(&simulation);
    assert!((8..60).contains(&blocks.len()), "{}", blocks.len());
    // The stopping rule does not shorten counted blocks.
    assert_eq!(fixture.blocks_done("x", Meter::Instructions).len(), 2);
    let attribution = fixture.attribution();
    assert!(attribution.is_complete());
    let stopping = attribution.stopping.as_ref().unwrap();
    assert!(stopping.ended && stopping.open.is_empty());
    assert!(stopping.widest.unwrap() <= 0.005);
    let effects = attribution.patches.iter().flat_map(|patch| &patch.effects);
    for effect in effects.filter(|effect| effect.meter != Meter::Instructions) {
        assert_eq!(effect.interval, StoppingRule::FixedWidth, "{effect:?}");
    }
    // A finished experiment stays finished, also with a larger budget.
    for budget in [200, 300] {
        let mut again = Simulation::default();
        fixture.run(&mut again, budget, 2).1.unwrap();
        assert!(again.measured.is_empty());
    }
}

#[test]
fn an_interrupted_experiment_ends_with_the_same_blocks() {
    let whole = adaptive();
    let mut through = Simulation::default();
    whole.run(&mut through, 200, 1).1.unwrap();
    let parts = adaptive();
    let mut measured = Vec::new();
    for _ in 0..1000 {
        let mut simulation = Simulation {
            // Two blocks, of two workloads each.
            patience: Some(4),
            ..Simulation::default()
        };
        let end = parts.run(&mut simulation, 200, 1).1;
        measured.extend(simulation.measured);
        if end.is_ok() {
            break;
        }
        let so_far = parts.attribution();
        let of_time = so_far.total.iter().find(|e| e.meter == Meter::Time);
        let ended = so_far.stopping.is_some_and(|stopping| stopping.ended);
        assert!(ended || of_time.is_none_or(|e| e.interval == StoppingRule::Anytime));
    }
    let asked_of = |number: u32, of: &Fixture| of.blocks_done("y", Meter::Time).contains(&number);
    for number in 0..200 {
        assert_eq!(
            asked_of(number, &parts),
            asked_of(number, &whole),
            "{number}"
        );
    }
    assert_eq!(parts.attribution().patches, whole.attribution().patches);
}

#[test]
fn lanes_share_the_blocks_of_one_experiment() {
    let (one, three) = (adaptive(), adaptive());
    one.run(&mut Simulation::default(), 200, 2).1.unwrap();
    let mut simulation = Simulation {
        lanes: 3,
        ..Simulation::default()
    };
    three.run(&mut simulation, 200, 2).1.unwrap();
    let attribution = three.attribution();
    assert!(attribution.is_complete());
    assert!(attribution.stopping.unwrap().ended);
    // A block is the same on every lane. From the eighth on, several lanes decide later which workloads it needs.
    type Key = (String, Meter, u32, Point);
    let values = |fixture: &Fixture| -> BTreeMap<Key, (f64, Option<u32>)> {
        let (_, observations) = fixture.store.load(fixture.id()).unwrap();
        let timed = observations.into_iter().filter(|o| o.meter.is_timed());
        timed
            .map(|o| ((o.workload, o.meter, o.block, o.point), (o.value, o.lane)))
            .collect()
    };
    let (of_one, of_three) = (values(&one), values(&three));
    for (key, (value, lane)) in &of_one {
        let there = of_three.get(key).map(|v| v.0);
        assert!(there == Some(*value) || key.2 >= 8, "{key:?}");
        assert_eq!(*lane, None);
    }
    let lanes: BTreeSet<Option<u32>> = of_three.values().map(|(_, lane)| *lane).collect();
    assert_eq!(lanes, BTreeSet::from([Some(0), Some(1), Some(2)]));
    assert!(of_three.len() >= of_one.len());
}

#[test]
fn an_interruption_on_lanes_loses_no_finished_block() {
    let fixture = adaptive();
    let mut measured: BTreeSet<(Reading, u32, String)> = BTreeSet::new();
    let mut runs = 0;
    loop {
        let mut simulation = Simulation {
            patience: Some(5),
            lanes: 2,
            ..Simulation::default()
        };
        let end = fixture.run(&mut simulation, 200, 1).1;
        runs += 1;
        if end.is_ok() {
            break;
        }
        assert_eq!(end.unwrap_err().kind(), Kind::Interrupted);
        for workload in ["x", "y"] {
            for block in fixture.blocks_done(workload, Meter::Time) {
                measured.insert((Reading::Timed, block, workload.to_owned()));
            }
        }
        assert!(runs < 200);
    }
    assert!(runs > 4, "{runs}");
    for (_, block, workload) in measured {
        assert!(fixture.blocks_done(&workload, Meter::Time).contains(&block));
    }
    assert!(fixture.attribution().is_complete());
}

#[test]
fn a_point_that_fails_on_two_lanes_fails_once() {
    let fixture = Fixture::new();
    let mut simulation = Simulation {
        crash: Some((Point::Step(1), 2)),
        lanes: 2,
        ..Simulation::default()
    };
    let (failed, end) = fixture.run(&mut simulation, 8, 0);
    end.unwrap();
    assert_eq!(failed.points.keys().collect::<Vec<_>>(), [&Point::Step(1)]);
    assert_eq!(fixture.blocks_done("x", Meter::Time).len(), 8);
}

#[test]
fn a_panic_on_a_lane_ends_the_experiment() {
    struct Panics;
    impl Executor for Panics {
        fn lanes(&self) -> u32 {
            2
        }

        fn open(&self, number: u32) -> Result<Box<dyn Lane + '_>> {
            assert_ne!(number, 1, "a bug");
            Err(Error::client_failed("no client"))
        }
    }
    let fixture = Fixture::new();
    let (failed, end) = fixture.drive(&Panics, (8, 0), &[Meter::Time]);
    assert_eq!(failed.count(), 0);
    let message = end.unwrap_err().to_string();
    assert!(
        message.contains("no client") || message.contains("lane 1 panicked"),
        "{message}"
    );
}

#[test]
fn what_an_earlier_version_ended_is_measured_on_only_by_another_plan() {
    let fixture = adaptive();
    let mut first = Simulation {
        patience: Some(7),
        ..Simulation::default()
    };
    fixture.run(&mut first, 200, 0).1.unwrap_err();
    // As a version does whose rule was content with wider intervals.
    fixture.store.finish(fixture.id()).unwrap();
    let mut second = Simulation::default();
    fixture.run(&mut second, 200, 0).1.unwrap();
    assert!(second.measured.is_empty(), "{:?}", second.measured);
    let planned = fixture.supplement().planned;
    assert!(planned.iter().all(|plan| plan.ended && !plan.extended));
    let attribution = fixture.attribution();
    assert!(attribution.is_complete() && attribution.stopping.unwrap().earlier_rule);
    let mut third = Simulation::default();
    fixture.run(&mut third, 201, 0).1.unwrap();
    assert!(!third.measured.is_empty());
    let planned = fixture.supplement().planned;
    let time = |plan: &&PlannedBlocks| plan.meter == Meter::Time;
    assert!(
        planned
            .iter()
            .filter(time)
            .all(|plan| !plan.ended && plan.extended)
    );
}

#[test]
fn blocks_go_where_the_uncertainty_is() {
    let mut fixture = adaptive();
    fixture.workloads = ["x", "y", "z", "u", "v", "w"].map(workload).into();
    let mut simulation = Simulation {
        restless: Some("y"),
        ..Simulation::default()
    };
    fixture.run(&mut simulation, 60, 0).1.unwrap();
    let of = |workload| fixture.blocks_done(workload, Meter::Time).len();
    assert_eq!(of("y"), 60);
    // A restart shifts a server evenly within ±0.4 %, on `y` ten times as far. A comparison of two points has a
    // standard deviation of √2 · 0.4 %/√3 per block on a quiet workload and (10 + 5)/6 of that in the mean of
    // all six. The suite needs every workload until that mean is within ±0.5 %; afterwards only `y` needs
    // blocks.
    let deviation = 15.0 / 6.0 * 0.004 * (2.0f64 / 3.0).sqrt();
    let units =
        perfquilt_judge::stats::blocks_needed(deviation / 60f64.sqrt(), 60, 0.005, 60).unwrap();
    // Two blocks are a unit. The factor 2 allows for a variance estimated from few blocks.
    let most = 2 * units * 4 / 3;
    assert!(
        most < of("y"),
        "{most} blocks is no less than an even share"
    );
    // One of five may look by chance as if it drifted.
    let mut quiet = ["x", "z", "u", "v", "w"].map(of);
    quiet.sort_unstable();
    let usual = |blocks| (8..=most).contains(blocks);
    assert!(quiet[..4].iter().all(usual), "{quiet:?} of {most}");
    let attribution = fixture.attribution();
    assert!(attribution.is_complete());
    let open = attribution.stopping.unwrap().open;
    let mut of_workloads: Vec<&str> = open.iter().map(|open| &*open.workload).collect();
    of_workloads.dedup();
    of_workloads.retain(|workload| *workload == "y" || of(workload) < 60);
    assert_eq!(of_workloads, ["y"], "{open:?}");
}

#[test]
fn what_goes_on_after_its_end_says_so() {
    let fixture = Fixture::new();
    fixture.run(&mut Simulation::default(), 8, 0).1.unwrap();
    let interval = |fixture: &Fixture| {
        let total = fixture.attribution().total;
        total
            .iter()
            .find(|e| e.meter == Meter::Time)
            .unwrap()
            .interval
    };
    assert_eq!(interval(&fixture), StoppingRule::FixedSample);
    fixture.run(&mut Simulation::default(), 10, 0).1.unwrap();
    assert_eq!(interval(&fixture), StoppingRule::Anytime);
    // An extended experiment stays marked as such.
    fixture.run(&mut Simulation::default(), 10, 0).1.unwrap();
    assert_eq!(interval(&fixture), StoppingRule::Anytime);
}

/// Measures eight of sixty blocks of `fixture`.
fn interrupted(fixture: &Fixture) {
    let mut simulation = Simulation {
        patience: Some(16),
        ..Simulation::default()
    };
    let end = fixture.run(&mut simulation, 60, 0).1;
    assert_eq!(end.unwrap_err().kind(), Kind::Interrupted);
    assert_eq!(fixture.blocks_done("x", Meter::Time).len(), 8);
}

#[test]
fn what_is_shortened_after_a_look_says_so() {
    let intervals = |fixture: &Fixture| -> BTreeSet<StoppingRule> {
        let attribution = fixture.attribution();
        assert!(attribution.is_complete());
        let patches = attribution.patches.iter().flat_map(|patch| &patch.effects);
        let all = patches.chain(&attribution.total);
        all.map(|effect| effect.interval).collect()
    };
    let anytime = BTreeSet::from([StoppingRule::Anytime]);
    // Blocks that are measured after the look make no difference.
    for blocks in [8, 12] {
        let fixture = Fixture::new();
        interrupted(&fixture);
        fixture
            .run(&mut Simulation::default(), blocks, 0)
            .1
            .unwrap();
        assert_eq!(intervals(&fixture), anytime, "{blocks}");
    }
    // A wider resolution ends it too, on every timed meter.
    let mut fixture = Fixture::new();
    fixture.resolution = Some((0.000_1, 8));
    interrupted(&fixture);
    fixture.resolution = Some((0.1, 8));
    fixture.run(&mut Simulation::default(), 60, 0).1.unwrap();
    assert_eq!(intervals(&fixture), anytime);
    // The same plan and a longer one promise what they did.
    for blocks in [60, 61] {
        let fixture = Fixture::new();
        interrupted(&fixture);
        fixture
            .run(&mut Simulation::default(), blocks, 0)
            .1
            .unwrap();
        assert_eq!(
            intervals(&fixture),
            BTreeSet::from([StoppingRule::FixedSample])
        );
    }
    // So does a shorter one before the first block.
    let fixture = Fixture::new();
    let plan = |blocks: u32| {
        let planned = fixture.planned(blocks);
        super::stopping::plan(&fixture.store, fixture.id(), planned).unwrap()
    };
    plan(60);
    assert!(plan(50).iter().all(|plan| !plan.extended));
}

#[test]
fn a_budget_after_a_look_is_a_decision_to_stop() {
    // Measures eight blocks, looks, and gives a budget that allows `planned` blocks and ends after these eight.
    let extended = |first: u32, then: u32, looked: bool| {
        let fixture = Fixture::new();
        let plan = |blocks: u32| {
            let planned = fixture.planned(blocks);
            super::stopping::plan(&fixture.store, fixture.id(), planned).unwrap()
        };
        if !looked {
            plan(then);
        }
        let mut simulation = Simulation {
            patience: Some(16),
            ..Simulation::default()
        };
        let _ = fixture.run(&mut simulation, first, 0);
        let looked_at = if looked {
            super::stopping::looked_at(&fixture.store, fixture.id()).unwrap()
        } else {
            Vec::new()
        };
        let planned = plan(then);
        super::stopping::shorten(&fixture.store, fixture.id(), planned, &looked_at).unwrap();
        let plans = fixture.store.planned(fixture.id()).unwrap();
        let mut timed = plans.iter().filter(|plan| plan.meter.is_timed());
        timed.any(|plan| plan.extended)
    };
    // Whether the forecast or the clock ends it makes no difference.
    assert!(extended(60, 8, true));
    assert!(extended(60, 80, true));
    // A budget from the first block on, or one that ends no sooner than planned, is none.
    assert!(!extended(60, 60, false));
    assert!(!extended(8, 8, true));
}
