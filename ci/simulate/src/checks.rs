//! Simulated checks of single figures: counts, layouts, unpaired runs, tails, families of rows, and the
//! verdicts on effects of given sizes.

use serde::Serialize;

use super::Figure;
use super::assumptions;
use super::machines::Fleet;
use super::random::Noise;
use super::scenario::{EXPERIMENT, header, no_slices, points};
use super::simulation::parallel;
use perfquilt_config::DEFAULT_MIN_BLOCKS;
use perfquilt_judge::attribution::{
    self, Attribution, Collector, Effect, EffectKind, SUITE, Verdict,
};
use perfquilt_judge::stats;
use perfquilt_measure::experiment;
use perfquilt_model::error::Result;
use perfquilt_model::observation::{
    Meter, Observation, PlannedBlocks, PointBuild, PointFunctions, Supplement,
};
use perfquilt_model::point::Point;
use perfquilt_report::history::history;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The name of the simulation.
    pub name: String,
    /// The meaning of the share, in words.
    pub what: &'static str,
    /// The number of experiments.
    pub experiments: usize,
    /// The share found, from 0 to 1.
    pub share: f64,
    /// The lower limit of the share.
    pub least: f64,
    /// The upper limit of the share.
    pub most: f64,
}

impl Check {
    pub(super) fn figure(&self) -> Figure<'_> {
        Figure {
            of: &self.name,
            what: self.what,
            share: self.share,
            experiments: self.experiments,
            least: self.least,
            most: self.most,
        }
    }
}

const FALSE: &str = "experiments with a false claim";
const COVER: &str = "95 % intervals that contain the true effect";
const FOUND: &str = "experiments that find the effect";

/// The upper limit of false claims, 5 % nominal.
const MOST: f64 = 0.055;

/// The contribution of one simulated experiment to a share: hits, and the number they are out of.
type Hits = (u32, u32);

/// A simulation to run.
struct Simulation {
    name: String,
    what: &'static str,
    limits: (f64, f64),
    /// Divides the number of experiments: those of sixty patches take longer.
    one_in: usize,
    one: Box<One>,
}

/// Simulates one experiment.
type One = dyn Fn(&mut Noise) -> Result<Hits> + Sync;

fn simulation(
    name: impl Into<String>,
    what: &'static str,
    limits: (f64, f64),
    one_in: usize,
    one: impl Fn(&mut Noise) -> Result<Hits> + Sync + 'static,
) -> Simulation {
    Simulation {
        name: name.into(),
        what,
        limits,
        one_in,
        one: Box::new(one),
    }
}

/// Five hundred machines, some of which are unhealthy, slow or die.
const LARGE: Fleet = Fleet {
    machines: 500,
    rows: 2,
    between: 0.002,
    noisy: 10,
    shifted: 10,
    slow: 20,
    dying: 10,
    tails: None,
};
/// Ten healthy machines.
const TEN: Fleet = Fleet {
    machines: 10,
    rows: 4,
    between: 0.003,
    noisy: 0,
    shifted: 0,
    slow: 0,
    dying: 0,
    tails: None,
};

/// Simulations of machines that share an experiment.
fn fleets() -> Vec<Simulation> {
    let mut all = Vec::new();
    let large = "500 machines, ten noisy and ten shifted";
    let few = [
        ("ten machines on which a patch is worth ±0.3 %", TEN),
        (
            "six machines on which a patch is worth ±0.3 %",
            Fleet { machines: 6, ..TEN },
        ),
        (
            "three machines, effects on these",
            Fleet { machines: 3, ..TEN },
        ),
        (
            "three machines of which one measures half as many blocks, effects on these",
            Fleet {
                machines: 3,
                slow: 1,
                ..TEN
            },
        ),
    ];
    for (name, fleet) in few {
        let one = move |noise: &mut Noise| Ok(fleet.measure(noise)?.covered());
        // On these machines alone, what differs between them only widens the intervals.
        let most = if fleet.machines < 6 { 0.985 } else { 0.97 };
        all.push(simulation(name, COVER, (0.94, most), 2, one));
    }
    let healthy = [
        ("ten healthy machines", None),
        (
            "ten healthy machines, blocks of Student's distribution with 3 degrees",
            Some(3),
        ),
        (
            "ten healthy machines, blocks of Student's distribution with 2 degrees",
            Some(2),
        ),
    ];
    for (name, tails) in healthy {
        let fleet = Fleet { tails, ..TEN };
        let one = move |noise: &mut Noise| Ok(fleet.measure(noise)?.wrongly_left_out());
        all.push(simulation(name, LEAVES_OUT, (0.0, 0.01), 2, one));
    }
    let covered = |noise: &mut Noise| Ok(LARGE.measure(noise)?.covered());
    all.push(simulation(
        large,
        COVER,
        (0.94, 0.97),
        FLEET_ONE_IN,
        covered,
    ));
    let noisy = |noise: &mut Noise| {
        let found = LARGE.measure(noise)?;
        Ok(found.left_out(&found.noisy))
    };
    all.push(simulation(
        large,
        "noisy ones that are left out",
        (0.9, 1.0),
        FLEET_ONE_IN,
        noisy,
    ));
    let shifted = |noise: &mut Noise| {
        let found = LARGE.measure(noise)?;
        Ok(found.left_out(&found.shifted))
    };
    // The release and its control are far enough from each other on about half of them.
    let what = "shifted ones that are left out";
    all.push(simulation(large, what, (0.4, 0.75), FLEET_ONE_IN, shifted));
    let wrongly = |noise: &mut Noise| Ok(LARGE.measure(noise)?.wrongly_left_out());
    all.push(simulation(
        large,
        LEAVES_OUT,
        (0.0, 0.01),
        FLEET_ONE_IN,
        wrongly,
    ));
    all
}

/// Divides the number of experiments of hundreds of machines.
const FLEET_ONE_IN: usize = 40;

const LEAVES_OUT: &str = "experiments that leave out a healthy machine";

fn simulations() -> Result<Vec<Simulation>> {
    let mut all = fleets();
    all.extend(assumptions::all()?.into_iter().map(|of| {
        let (name, limits) = (of.name.clone(), of.limits);
        simulation(name, of.what(), limits, of.one_in(), move |noise| {
            of.run(noise)
        })
    }));
    for patches in [1, 4, 20, 60] {
        let one_in = if patches > 10 { 10 } else { 2 };
        all.push(simulation(
            format!("minimum detectable effect, {}", series(patches)),
            FOUND,
            (0.78, 0.82),
            one_in,
            move |noise| detected(patches, noise),
        ));
    }
    for (name, changed) in [
        ("without counts", None),
        ("which counts show", Some(&GAINING[..])),
    ] {
        all.push(simulation(
            format!("60 patches, six of them worth +0.56 %, {name}"),
            "these six that are called faster",
            if changed.is_some() {
                (0.37, 0.47)
            } else {
                (0.17, 0.26)
            },
            10,
            move |noise| Ok(called(&long_series(GAIN, changed, noise)?, &GAINING)),
        ));
        all.push(simulation(
            format!("60 patches, six of them worth +0.56 %, {name}"),
            "experiments with a false claim on the others",
            (0.0, MOST),
            10,
            move |noise| Ok(false_claims(&long_series(GAIN, changed, noise)?)),
        ));
    }
    all.push(simulation(
        "60 patches, six of them worth +0.56 %, one in time only",
        "this one called faster",
        (0.13, 0.23),
        10,
        |noise| {
            let found = long_series(GAIN, Some(&GAINING[1..]), noise)?;
            Ok(called(&found, &GAINING[..1]))
        },
    ));
    all.push(simulation(
        "60 patches without effect, six of which change counts",
        FALSE,
        (0.0, MOST),
        10,
        |noise| Ok(claims(&long_series(0.0, Some(&GAINING), noise)?)),
    ));
    for (name, layouts, most) in [
        (
            "two blocks have the same layouts",
            Layouts::Repeated { all: 1.0, one: 1.0 },
            0.98,
        ),
        (
            "two blocks have the same layouts, without effect",
            Layouts::Repeated { all: 0.0, one: 0.0 },
            0.98,
        ),
        (
            "two blocks have the same layouts, which matter to one server",
            Layouts::Repeated { all: 0.0, one: 1.0 },
            0.98,
        ),
        (
            "eight layouts a point over 24 blocks",
            Layouts::Crossed(8),
            0.99,
        ),
        (
            "four layouts a point over 24 blocks",
            Layouts::Crossed(4),
            0.995,
        ),
    ] {
        all.push(simulation(name, COVER, (0.94, most), 2, move |noise| {
            covered(&laid_out(layouts, noise)?)
        }));
    }
    all.push(simulation(
        "20 patches on 6 workloads",
        "tables with a row called faster or slower",
        (0.0, MOST),
        10,
        by_workload,
    ));
    all.extend(mixed());
    all.extend(rare_stalls());
    all.extend(stalls_of_the_machine());
    all.push(simulation(
        "4 patches on 6 workloads, time, cpu and cycles",
        "experiments in which a patch is called on cpu or cycles",
        (0.0, MOST),
        10,
        |noise| {
            let found = suite_of(&[Meter::Time, Meter::Cpu, Meter::Cycles], &[], 1, noise)?;
            let mut effects = found.patches.iter().flat_map(|patch| &patch.effects);
            let called = effects.any(|effect| {
                (effect.kind, effect.workload.as_str()) == (EffectKind::InOrder, SUITE)
                    && effect.meter != Meter::Time
                    && effect.verdict.is_shown()
            });
            Ok((u32::from(called), 1))
        },
    ));
    all.push(simulation(
        "20 patches, cumulative effects",
        "experiments in which one is called faster or slower",
        (0.0, MOST),
        10,
        |noise| {
            let found = null(20, 12, noise)?;
            let mut effects = found.patches.iter().flat_map(|patch| &patch.effects);
            let called =
                effects.any(|of| of.kind == EffectKind::Cumulative && of.verdict.is_shown());
            Ok((u32::from(called), 1))
        },
    ));
    all.push(simulation(
        "ten operations, 4 patches",
        "experiments in which an operation is called faster or slower",
        (0.0, MOST),
        5,
        |noise| {
            let found = with_operations(noise)?;
            let mut effects = found.operations.iter().flat_map(|of| &of.effects);
            Ok((u32::from(effects.any(|of| of.verdict.is_shown())), 1))
        },
    ));
    all.push(simulation(
        "30 functions of which a patch changed one, 6 counted blocks",
        "functions named that are not changed, on average",
        (0.0, MOST),
        1,
        |noise| Ok(false_functions(noise)),
    ));
    all.push(simulation(
        "interrupted when it looks good, ended by a budget",
        FALSE,
        (0.0, MOST),
        2,
        interrupted,
    ));
    // The first result may be wrong in 5 % of experiments, all that follow in 1 %.
    all.push(simulation(
        "12 blocks of one patch, which more join three times while it is not called",
        FALSE,
        (0.0, 0.06 + 0.005),
        2,
        joined,
    ));
    for patches in [4, 20, 60] {
        all.push(simulation(
            format!("{patches} patches compared, every second one changed by the margin"),
            "comparisons that call a changed one the same",
            (0.0, MOST),
            if patches > 10 { 20 } else { 5 },
            move |noise| wrongly_the_same(patches, noise),
        ));
    }
    all.push(simulation(
        "20 patches at the margin",
        "tables with a row called `no effect`",
        (0.0, MOST),
        10,
        at_the_margin,
    ));
    for patches in [1, 4, 12] {
        for gain in [0.004, 0.006, 0.008] {
            all.push(simulation(
                format!("{}, still worth +{:.1} %", series(patches), 100.0 * gain),
                "comparisons that report a loss",
                (0.0, MOST),
                2,
                move |noise| no_longer_helps(patches, gain, noise),
            ));
        }
    }
    all.push(simulation(
        "a patch worth +1.5 % that is worth nothing now",
        "comparisons that report the loss",
        (0.8, 1.0),
        2,
        gone,
    ));
    for (preset, workloads, resolution, blocks) in
        [("quick", 1, 0.004, 60), ("series", 6, 0.0015, 100)]
    {
        all.push(simulation(
            format!("patches without effect, preset `{preset}`"),
            "patches called `no effect`",
            (0.8, 1.0),
            if workloads > 1 { 10 } else { 2 },
            move |noise| without_effect(workloads, resolution, blocks, noise),
        ));
    }
    for least in [2, 3, 4, 5] {
        all.push(simulation(
            format!("ended by width, from {least} blocks on"),
            COVER,
            (0.935, 0.99),
            1,
            move |noise| ended_early(least, noise),
        ));
    }
    all.push(simulation(
        "slices without effect",
        FALSE,
        (0.0, MOST),
        5,
        |noise| Ok(claims(&sliced(4, &|_, _| 1.0, noise)?)),
    ));
    let tails: [(&str, Slice, &[Verdict], f64); 4] = [
        (
            "one slice in a hundred stalls for ten times as long, at one point",
            |round, heavy| {
                if round % 100 == 37 && !heavy {
                    10.0
                } else {
                    1.0
                }
            },
            &[Verdict::Slower, Verdict::Mixed],
            // Three such slices in a block, twelve blocks: their intervals pay for what may be dependence.
            0.6,
        ),
        (
            "one slice in twenty stalls for three times as long, at one point",
            |round, _| if round % 20 == 7 { 3.0 } else { 1.0 },
            &[Verdict::Slower, Verdict::Mixed],
            0.9,
        ),
        (
            "the heavy eighth of the transactions 30 % faster, at one point",
            |_, heavy| if heavy { 0.7 } else { 1.0 },
            &[Verdict::Faster],
            0.9,
        ),
        (
            "light transactions 10 % faster, one slice in twenty stalls for eight times as long",
            |round, heavy| match (round % 20 == 3, heavy) {
                (true, _) => 8.0,
                (false, true) => 1.0,
                (false, false) => 0.9,
            },
            &[Verdict::Slower, Verdict::Mixed],
            0.9,
        ),
    ];
    for (name, slice, wanted, least) in tails {
        all.push(simulation(name, FOUND, (least, 1.0), 20, move |noise| {
            let found = sliced(1, &slice, noise)?;
            let effect = main(&found).next();
            Ok((
                u32::from(effect.is_some_and(|e| wanted.contains(&e.verdict))),
                1,
            ))
        }));
    }
    for (lanes, blocks) in [(2, 24), (4, 24), (4, 60)] {
        all.push(simulation(
            format!("{blocks} blocks on {lanes} lanes of changing speed, disturbed by what runs beside them"),
            FALSE,
            (0.0, MOST),
            5,
            move |noise| Ok(claims(&beside_each_other(lanes, blocks, noise)?)),
        ));
    }
    all.push(simulation(
        "30 unchanged releases, 4 patches",
        "histories with a row called faster, slower or changed",
        (0.0, MOST),
        50,
        unchanged_history,
    ));
    all.push(simulation(
        "the best of eight variants without effect",
        "intervals of the best one that exclude its effect",
        (0.0, MOST),
        5,
        best_variant,
    ));
    Ok(all)
}

/// Runs all checks; `experiments` is the number for the fastest ones.
pub(super) fn checks(
    experiments: usize,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for of in simulations()? {
        let count = experiments.div_ceil(of.one_in);
        let hits: Vec<Hits> = parallel(count, |index| {
            let mut noise = Noise::of(seed, &of.name, index);
            (of.one)(&mut noise)
        })?;
        let sum = |part: fn(&Hits) -> u32| hits.iter().map(|hit| f64::from(part(hit))).sum::<f64>();
        checks.push(Check {
            name: of.name,
            what: of.what,
            experiments: count,
            share: sum(|hit| hit.0) / sum(|hit| hit.1).max(1.0),
            least: of.limits.0,
            most: of.limits.1,
        });
        done();
    }
    Ok(checks)
}

/// Returns the number of checks.
pub(super) fn count() -> Result<usize> {
    Ok(simulations()?.len())
}

// --- experiments ---------------------------------------------------------------------------------

/// The standard deviation of a value of time.
const SD: f64 = 0.008;

fn observation(workload: &str, meter: Meter, block: u32, point: Point, log: f64) -> Observation {
    Observation {
        experiment: EXPERIMENT.to_owned(),
        ..Observation::new(block, point, workload, meter, 1e5 * log.exp())
    }
}

fn judged(patches: usize, observations: &[Observation]) -> Result<Attribution> {
    attribution::attribute(&header(patches), observations, &Meter::default_margin)
}

/// Returns an experiment with `blocks` timed blocks of `patches`; `log` gives the log of the cost for point,
/// block and noise.
fn timed(
    patches: usize,
    blocks: u32,
    noise: &mut Noise,
    log: &dyn Fn(Point, &mut Noise) -> f64,
) -> Result<Attribution> {
    let points = points(patches);
    let mut all = Vec::with_capacity(points.len() * blocks as usize);
    for block in 0..blocks {
        let drift = 0.03 * noise.normal();
        for &point in &points {
            let log = drift + log(point, noise);
            all.push(observation("work", Meter::Time, block, point, log));
        }
    }
    judged(patches, &all)
}

/// Simulates a workload with ten operations, on none of which a patch has an effect.
fn with_operations(noise: &mut Noise) -> Result<Attribution> {
    let mut all = Vec::new();
    for block in 0..12 {
        let drift = 0.03 * noise.normal();
        for &point in &points(4) {
            let shared = noise.normal();
            let mut value = || drift + SD * (shared + noise.normal()) / f64::sqrt(2.0);
            all.push(observation("work", Meter::Time, block, point, value()));
            for operation in 0..10 {
                let name = format!("work/part {operation}");
                all.push(observation(&name, Meter::Time, block, point, value()));
            }
        }
    }
    judged(4, &all)
}

fn null(patches: usize, blocks: u32, noise: &mut Noise) -> Result<Attribution> {
    timed(patches, blocks, noise, &|_, noise| SD * noise.normal())
}

/// Returns the effects that the patches' verdicts are about.
fn main(found: &Attribution) -> impl Iterator<Item = &Effect> {
    let meter = found.main_meter().unwrap_or(Meter::Time);
    found
        .patches
        .iter()
        .filter_map(move |patch| found.main_effect(&patch.effects, EffectKind::InOrder, meter))
}

fn claims(found: &Attribution) -> Hits {
    (
        u32::from(main(found).any(|effect| effect.verdict.is_shown())),
        1,
    )
}

/// Simulates a first patch whose effect is the minimum detectable one of an experiment without effects; a hit
/// is a verdict that shows it.
fn detected(patches: usize, noise: &mut Noise) -> Result<Hits> {
    const BLOCKS: u32 = 16;
    let before = null(patches, BLOCKS, noise)?;
    let Some(size) = main(&before).next().and_then(|e| e.minimum_detectable) else {
        return Ok((0, 1));
    };
    let gain = size.ln_1p();
    let found = timed(patches, BLOCKS, noise, &|point, noise| {
        let patched = matches!(point, Point::Step(1..));
        SD * noise.normal() - if patched { gain } else { 0.0 }
    })?;
    let first = main(&found).next();
    Ok((
        u32::from(first.is_some_and(|e| e.verdict == Verdict::Faster)),
        1,
    ))
}

/// Deviations of counts from their point's median: oltp_read_only of MariaDB 10.11.18, six points and three starts each
/// (docs/results/2026-11-21-mariadb-10.11.18.jsonl.gz), as those of `assumptions.json`.
const READ_ONLY: [f64; 18] = [
    -0.0006404, -0.0005485, -0.0001459, -0.0001348, -9.41e-5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 2.23e-5, 2.33e-5, 8.24e-5, 0.0001292, 0.0001615,
];

/// Describes the size of a series.
fn series(patches: usize) -> String {
    perfquilt_model::counted::counted(patches, "patch", "patches")
}

/// The number of counted blocks that presets have.
const COUNTED: u32 = 6;

/// The patches with an effect in a simulated series of sixty.
const GAINING: [usize; 6] = [5, 15, 25, 35, 45, 55];
/// Their effect: one in five is found without counts, in so many blocks.
const GAIN: f64 = 0.0056;
const LONG_BLOCKS: u32 = 32;

/// Simulates an experiment of sixty patches of which those in [`GAINING`] gain `gain` in time, with counted
/// blocks in which the patches in `changed` save 0.4 % of the instructions; `None` for no counted blocks.
fn long_series(gain: f64, changed: Option<&[usize]>, noise: &mut Noise) -> Result<Attribution> {
    let points = points(60);
    let up_to = |patches: &[usize], point: Point| match point {
        Point::Step(k) => patches.iter().filter(|patch| **patch <= k).count() as f64,
        _ => 0.0,
    };
    let mut all = Vec::new();
    for block in 0..LONG_BLOCKS {
        let drift = 0.03 * noise.normal();
        for &point in &points {
            let log = drift + SD * noise.normal() - gain * up_to(&GAINING, point);
            all.push(observation("work", Meter::Time, block, point, log));
        }
    }
    for block in 0..COUNTED {
        let Some(changed) = changed else { break };
        let transactions = 0.002 * noise.normal();
        for &point in &points {
            let log = noise.one_of(&READ_ONLY) - 0.004 * up_to(changed, point);
            let log = transactions + log;
            all.push(observation("work", Meter::Instructions, block, point, log));
        }
    }
    judged(60, &all)
}

/// Counts the patches of `those` that are called faster.
fn called(found: &Attribution, those: &[usize]) -> Hits {
    let faster = |effect: &&Effect| effect.verdict == Verdict::Faster;
    let called = main(found)
        .filter(|effect| is_of(effect, those))
        .filter(faster);
    #[allow(clippy::cast_possible_truncation)]
    (called.count() as u32, those.len() as u32)
}

/// Counts an experiment that claims anything of the patches that are not in [`GAINING`].
fn false_claims(found: &Attribution) -> Hits {
    let mut others = main(found).filter(|effect| !is_of(effect, &GAINING));
    (u32::from(others.any(|effect| effect.verdict.is_shown())), 1)
}

fn is_of(effect: &Effect, patches: &[usize]) -> bool {
    patches
        .iter()
        .any(|patch| effect.point == Point::Step(*patch))
}

/// The assignment of layouts to blocks.
#[derive(Clone, Copy)]
enum Layouts {
    /// Twice each; their standard deviations at all points and at the second patch, in units of [`SD`].
    Repeated {
        all: f64,
        one: f64,
    },
    Crossed(u64),
}

fn laid_out(layouts: Layouts, noise: &mut Noise) -> Result<Attribution> {
    let points = points(4);
    let mut all = Vec::new();
    let mut last: Vec<(u64, f64)> = Vec::new();
    let pool: Vec<Vec<f64>> = points
        .iter()
        .map(|_| (0..8).map(|_| SD * noise.normal()).collect())
        .collect();
    for block in 0..24u32 {
        let repeats = matches!(layouts, Layouts::Repeated { .. }) && block % 2 == 1;
        if !repeats {
            last = (0..points.len())
                .map(|place| match layouts {
                    Layouts::Repeated { all, one } => {
                        let size = if points[place] == Point::Step(2) {
                            one
                        } else {
                            all
                        };
                        (u64::from(block) + 1, size * SD * noise.normal())
                    }
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    Layouts::Crossed(count) => {
                        let drawn = ((noise.uniform() * count as f64) as u64).min(count - 1);
                        (drawn + 1, pool[place][drawn as usize])
                    }
                })
                .collect();
        }
        for (&point, &(layout, luck)) in points.iter().zip(&last) {
            all.push(Observation {
                layout,
                ..observation(
                    "work",
                    Meter::Time,
                    block,
                    point,
                    luck + 0.5 * SD * noise.normal(),
                )
            });
        }
    }
    judged(4, &all)
}

fn covered(found: &Attribution) -> Result<Hits> {
    let mut hits = (0, 0);
    for effect in main(found) {
        hits.0 += u32::from(!effect.leaves_out_zero());
        hits.1 += 1;
    }
    Ok(hits)
}

fn by_workload(noise: &mut Noise) -> Result<Hits> {
    let mut all = Vec::new();
    for block in 0..12 {
        for workload in ["a", "b", "c", "d", "e", "f"] {
            for &point in &points(20) {
                let log = SD * noise.normal();
                all.push(observation(workload, Meter::Time, block, point, log));
            }
        }
    }
    let found = judged(20, &all)?;
    let effects = found.patches.iter().flat_map(|patch| &patch.effects);
    let mut cells = effects.filter(|e| e.kind == EffectKind::InOrder && e.workload != SUITE);
    Ok((u32::from(cells.any(Effect::is_shown)), 1))
}

/// The workloads of a simulated suite.
const SUITE_OF_SIX: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Simulations of patches whose effect differs from workload to workload.
fn mixed() -> Vec<Simulation> {
    let mut all = Vec::new();
    for (name, gains) in [
        (
            "one patch of four +2 % on a workload, −2 % on another",
            [0.02, -0.02],
        ),
        (
            "one patch of four +4 % on a workload, −2 % on another",
            [0.04, -0.02],
        ),
    ] {
        let found = move |noise: &mut Noise| suite(&gains, 1, noise);
        let regression = move |noise: &mut Noise| {
            let found = found(noise)?;
            let first = main(&found).next();
            let mixed = first.is_some_and(|effect| effect.verdict == Verdict::Mixed);
            Ok((u32::from(mixed && found.is_regression()), 1))
        };
        let what = "experiments in which the patch is mixed, and a regression";
        all.push(simulation(name, what, (0.9, 1.0), 10, regression));
    }
    let null = |noise: &mut Noise| {
        let found = suite(&[], 1, noise)?;
        Ok((
            u32::from(main(&found).any(|effect| effect.verdict.is_shown())),
            1,
        ))
    };
    all.push(simulation(
        "4 patches on 6 workloads",
        "experiments in which a patch is called, over all workloads or on one",
        (0.0, MOST),
        5,
        null,
    ));
    all.push(simulation(
        "4 patches on 6 workloads, a true cell in mean, slow slices and 99th percentile",
        "cells called changed that are not, on average",
        (0.0, 0.015),
        5,
        |noise| {
            let found = suite(&[-0.03], 3, noise)?;
            Ok(false_cells(&found))
        },
    ));
    let totals = |meter: Meter| {
        move |noise: &mut Noise| {
            let found = suite_of(&[Meter::Time, Meter::Cpu], &[], 1, noise)?;
            let mut totals = found.total.iter().filter(|total| total.meter == meter);
            Ok((u32::from(totals.any(|total| total.verdict.is_shown())), 1))
        }
    };
    for meter in [Meter::Time, Meter::Cpu] {
        all.push(simulation(
            format!("totals of {meter}, 4 patches on 6 workloads"),
            "experiments in which a total is called",
            (0.0, MOST),
            5,
            totals(meter),
        ));
    }
    all
}

/// Simulates four patches on six workloads; the first patch gains `gains` on the first workloads. Observations
/// have `figures` figures: from 2 on also the mean, the share of slow slices and the 99th percentile.
fn suite(gains: &[f64], figures: usize, noise: &mut Noise) -> Result<Attribution> {
    suite_of(&[Meter::Time], gains, figures, noise)
}

fn suite_of(
    meters: &[Meter],
    gains: &[f64],
    figures: usize,
    noise: &mut Noise,
) -> Result<Attribution> {
    let mut all = Vec::new();
    for block in 0..24 {
        for (place, workload) in SUITE_OF_SIX.iter().enumerate() {
            for &point in &points(4) {
                let patched = matches!(point, Point::Step(1..));
                let gain = gains.get(place).copied().filter(|_| patched).unwrap_or(0.0);
                for &meter in meters {
                    let value = |noise: &mut Noise| SD * noise.normal();
                    let own = value(noise);
                    let mut one = observation(workload, meter, block, point, own);
                    if figures > 1 {
                        // The gain is in the mean and the tail alone.
                        let cost = |log: f64| 1e5 * log.exp();
                        one.mean = Some(cost(own + 0.5 * value(noise) - gain));
                        one.p99 = Some(cost(1.0 + 2.0 * value(noise) - 3.0 * gain));
                        one.slow = Some((0.02 + 0.1 * value(noise) - gain / 4.0).clamp(0.0, 1.0));
                    } else {
                        one = observation(workload, meter, block, point, own - gain);
                    }
                    all.push(one);
                }
            }
        }
    }
    judged(4, &all)
}

/// Counts the share of false cells among those called, of an experiment in which the first patch changes the first
/// workload; in parts of the least common multiple of small numbers.
fn false_cells(found: &Attribution) -> Hits {
    const PARTS: u32 = 840;
    let cells = found.patches.iter().flat_map(|patch| &patch.effects);
    let called =
        cells.filter(|e| e.kind == EffectKind::InOrder && e.workload != SUITE && e.is_shown());
    let (mut wrong, mut all) = (0, 0);
    for effect in called {
        let changed = effect.point == Point::Step(1) && effect.workload == SUITE_OF_SIX[0];
        wrong += u32::from(!changed);
        all += 1;
    }
    (PARTS * wrong / all.max(1), PARTS)
}

fn at_the_margin(noise: &mut Noise) -> Result<Hits> {
    let margin = Meter::default_margin(Meter::Time).ln_1p();
    let found = timed(20, 60, noise, &|point, noise| {
        // Patches alternate between faster and slower: each one in order has the margin's effect.
        let gain = match point {
            Point::Step(k) if k % 2 == 1 => margin,
            _ => 0.0,
        };
        0.5 * SD * noise.normal() - gain
    })?;
    let none = main(&found).any(|effect| effect.verdict == Verdict::NoEffect);
    Ok((u32::from(none), 1))
}

/// Simulates an experiment in which every patch has the same gain.
fn gaining(patches: usize, gain: f64, noise: &mut Noise) -> Result<Attribution> {
    timed(patches, 18, noise, &|point, noise| {
        let gains = match point {
            Point::Step(k) => k as f64 * gain,
            _ => 0.0,
        };
        SD * noise.normal() - gains
    })
}

fn no_longer_helps(patches: usize, gain: f64, noise: &mut Noise) -> Result<Hits> {
    let (old, new) = (
        gaining(patches, gain, noise)?,
        gaining(patches, gain, noise)?,
    );
    lost(&old, &new)
}

fn gone(noise: &mut Noise) -> Result<Hits> {
    let (old, new) = (gaining(1, 0.015, noise)?, gaining(1, 0.0, noise)?);
    lost(&old, &new)
}

/// Compares two experiments of `patches`, of which every second one has changed by exactly the margin.
fn wrongly_the_same(patches: usize, noise: &mut Noise) -> Result<Hits> {
    let margin = Meter::default_margin(Meter::Time).ln_1p();
    // So wide that a change of the margin is seldom shown to be one.
    let experiment = |name: &str, gain: f64, noise: &mut Noise| {
        let mut found = timed(patches, 16, noise, &|point, noise| {
            let gains = match point {
                Point::Step(k) => gain * k.div_ceil(2) as f64,
                _ => 0.0,
            };
            0.6 * SD * noise.normal() - gains
        })?;
        found.started = name.to_owned();
        Ok::<_, perfquilt_model::error::Error>(found)
    };
    let (old, new) = (
        experiment("old", 0.0, noise)?,
        experiment("new", margin, noise)?,
    );
    let compared = attribution::compare(&old, &new);
    let tables = compared.main_tables();
    let mut rows = tables.flat_map(|table| &table.patches);
    let same = rows.any(|row| {
        let changed = row.index_after.is_some_and(|index| index % 2 == 1);
        changed
            && row
                .difference
                .is_some_and(|it| it.verdict == attribution::DifferenceVerdict::Same)
    });
    Ok((u32::from(same), 1))
}

fn lost(old: &Attribution, new: &Attribution) -> Result<Hits> {
    let names = old.patches.iter().map(|patch| patch.name.as_str());
    let changes = attribution::changes(old, Some(new), names);
    Ok((
        u32::from(changes.iter().any(|change| change.no_longer_helps)),
        1,
    ))
}

/// Simulates four patches without effect on `workloads` workloads, ended by the width of their intervals.
fn ended(
    workloads: usize,
    resolution: f64,
    blocks: u32,
    least: u32,
    sd: f64,
    noise: &mut Noise,
) -> Result<Attribution> {
    let header = header(4);
    let names: Vec<String> = (0..workloads)
        .map(|number| format!("work {number}"))
        .collect();
    let supplement = Supplement {
        planned: names
            .iter()
            .map(|name| PlannedBlocks {
                min_blocks: Some(least),
                resolution: Some(resolution),
                ..PlannedBlocks::fixed(name, Meter::Time, blocks)
            })
            .collect(),
        ..Supplement::default()
    };
    let mut collector = Collector::new(&header, &supplement)?;
    let all = points(4);
    let mut state = None;
    for number in 0..blocks {
        let (points, workloads) = match &state {
            Some(state) => experiment::needed(&all, &names, state),
            None => (all.clone(), names.clone()),
        };
        if workloads.is_empty() {
            break;
        }
        for workload in &workloads {
            for &point in &points {
                let log = sd * noise.normal();
                let one = observation(workload, Meter::Time, number, point, log);
                collector.add(&one)?;
            }
        }
        state = collector.stopping();
    }
    Ok(collector.finish(&Meter::default_margin))
}

fn without_effect(
    workloads: usize,
    resolution: f64,
    blocks: u32,
    noise: &mut Noise,
) -> Result<Hits> {
    // Values on the machines of docs/results vary by 0.9 to 1.5 %.
    let found = ended(
        workloads,
        resolution,
        blocks,
        DEFAULT_MIN_BLOCKS,
        0.011,
        noise,
    )?;
    let mut hits = (0, 0);
    for effect in main(&found) {
        hits.0 += u32::from(effect.verdict == Verdict::NoEffect);
        hits.1 += 1;
    }
    Ok(hits)
}

fn ended_early(least: u32, noise: &mut Noise) -> Result<Hits> {
    covered(&ended(1, 0.0075, 40, least, SD, noise)?)
}

/// Simulations of stalls in 24 blocks that the machine makes, and of those of a patch beside them.
fn stalls_of_the_machine() -> Vec<Simulation> {
    let mut all = Vec::new();
    let stalls = |found: &Attribution| {
        let effect = main(found).next()?;
        effect.tail.as_ref()?.stalled.as_ref()?.p_value
    };
    /// Draws the number of a block's stalls.
    type Draw = fn(&mut Noise) -> f64;
    let nulls: [(&str, Draw); 2] = [
        (
            "stalls of the machine that hit any server, 24 blocks",
            |noise| poisson(0.3, noise),
        ),
        ("bursts of stalls that hit any server, 24 blocks", |noise| {
            if noise.chance(0.2) {
                1.0 + (12.0 * noise.uniform()).floor()
            } else {
                0.0
            }
        }),
    ];
    for (name, count) in nulls {
        let what = "p-values of a patch's stalls of at most 5 %";
        all.push(simulation(name, what, (0.0, MOST), 2, move |noise| {
            let found = stalled(&mut |_, noise| (count(noise), 0.0), noise)?;
            let is_false = stalls(&found).is_some_and(|p| p <= 0.05);
            Ok((u32::from(is_false), 1))
        }));
    }
    all.push(simulation(
        "a patch stalls nine blocks of ten for 60 ms, the machine any server in three",
        FOUND,
        (0.9, 1.0),
        5,
        |noise| {
            let found = stalled(
                &mut |own, noise| {
                    let of_patch = own && noise.chance(0.9);
                    (poisson(0.3, noise), f64::from(u8::from(of_patch)))
                },
                noise,
            )?;
            let last = main(&found).last();
            Ok((u32::from(last.is_some_and(Effect::is_regression)), 1))
        },
    ));
    all
}

/// Simulates a series of three patches in 24 blocks of 2300 slices; `draw` gives the number of a block's stalls by the machine,
/// each of 50 to 300 typical slices, and by the last patch, each of 300.
fn stalled(
    draw: &mut dyn FnMut(bool, &mut Noise) -> (f64, f64),
    noise: &mut Noise,
) -> Result<Attribution> {
    const PATCHES: usize = 3;
    const SLICES: f64 = 2300.0;
    let mut observations = Vec::new();
    for block in 0..24 {
        let drift = 0.03 * noise.normal();
        for &point in &points(PATCHES) {
            let (machine, own) = draw(point == Point::Step(PATCHES), noise);
            let typical = drift + 0.5 * SD * noise.normal();
            let carried = machine * (50.0 + 250.0 * noise.uniform()) + 300.0 * own;
            let mean = 1.02 + 0.002 * noise.normal() + carried / SLICES;
            observations.push(Observation {
                mean: Some(1e5 * typical.exp() * mean),
                slow: Some((0.001 * (1.0 + noise.uniform())) + (machine + own) / SLICES),
                stalled: Some((machine + own) / SLICES),
                ..observation("work", Meter::Time, block, point, typical)
            });
        }
    }
    judged(PATCHES, &observations)
}

/// Draws from Poisson's distribution (Knuth).
fn poisson(mean: f64, noise: &mut Noise) -> f64 {
    let (mut count, mut product) = (0.0, noise.uniform());
    while product > (-mean).exp() {
        count += 1.0;
        product *= noise.uniform();
    }
    count
}

/// Returns the duration of a point's slice relative to the other points' slices, for the round's number in its
/// block and whether its transactions are heavy.
type Slice = fn(usize, bool) -> f64;

/// Simulations of a patch that costs throughput and leaves the typical time as it is.
fn rare_stalls() -> Vec<Simulation> {
    const CALLED: &str = "experiments that call it `no effect`";
    let mut all = Vec::new();
    for (name, share, factor) in [
        (
            "0.037 % of slices take 300 times as long: −10 % of throughput",
            3.7e-4,
            300.0,
        ),
        (
            "0.011 % of slices take 1000 times as long: −10 % of throughput",
            1.1e-4,
            1000.0,
        ),
        (
            "0.3 % of slices take 50 times as long: −13 % of throughput",
            3e-3,
            50.0,
        ),
    ] {
        let stalls = move |noise: &mut Noise| {
            let slice = |noise: &mut Noise| if noise.chance(share) { factor } else { 1.0 };
            sliced_in(24, 2000, 1, &mut |_, _, noise| slice(noise), noise)
        };
        all.push(simulation(name, CALLED, (0.0, MOST), 50, move |noise| {
            let found = stalls(noise)?;
            let none = main(&found).any(|effect| effect.verdict == Verdict::NoEffect);
            Ok((u32::from(none), 1))
        }));
        // A handful of the rarest stalls are too few to be told from the machine's own interruptions.
        if share > 2e-4 {
            let least = if share > 1e-3 { 0.9 } else { 0.5 };
            let what = "experiments that call it slower";
            all.push(simulation(name, what, (least, 1.0), 50, move |noise| {
                Ok((u32::from(stalls(noise)?.is_regression()), 1))
            }));
        }
    }
    for (name, sizes) in [
        (
            "stalls of one length, 24 in an experiment: −10 % of throughput",
            0.0,
        ),
        (
            "stalls of lengths with a log-normal distribution, 24 in an experiment",
            0.5,
        ),
    ] {
        let one = move |noise: &mut Noise| stalled_mean(24.0, sizes, noise);
        all.push(simulation(
            name,
            "intervals of the mean, or none, that hold",
            (0.94, 1.0),
            2,
            one,
        ));
    }
    for cost in [0.015, 0.02] {
        let name = format!("typical time as before, mean {:.1} % worse", 100.0 * cost);
        all.push(simulation(name, CALLED, (0.0, MOST), 2, move |noise| {
            let mut observations = Vec::new();
            for block in 0..24 {
                for &point in &points(1) {
                    let own = 0.5 * SD * noise.normal();
                    let worse = if point == Point::Step(1) { cost } else { 0.0 };
                    // Interruptions by the machine are part of the mean.
                    let mean = own + worse + 3.0 * SD * noise.normal();
                    observations.push(Observation {
                        mean: Some(1e5 * mean.exp()),
                        slow: Some((0.01 + 0.1 * SD * noise.normal()).max(0.0)),
                        ..observation("work", Meter::Time, block, point, own)
                    });
                }
            }
            let found = judged(1, &observations)?;
            let none = main(&found).any(|effect| effect.verdict == Verdict::NoEffect);
            Ok((u32::from(none), 1))
        }));
    }
    all
}

/// Simulates a patch with so many `stalls` in 24 blocks, which cost a tenth of the throughput and whose lengths have the
/// standard deviation `sizes` of their logarithms; a hit is an interval of the mean that has the true effect, or none.
fn stalled_mean(stalls: f64, sizes: f64, noise: &mut Noise) -> Result<Hits> {
    const BLOCKS: u32 = 24;
    const SLICES: f64 = 2000.0;
    const LOSS: f64 = 0.1;
    let a_block = stalls / f64::from(BLOCKS);
    let mut observations = Vec::new();
    for block in 0..BLOCKS {
        for &point in &points(1) {
            let own = 0.5 * SD * noise.normal();
            let (mut count, mut carried) = (0.0, 0.0);
            // Knuth's draw of a Poisson variable.
            let mut product = noise.uniform();
            while point == Point::Step(1) && product > (-a_block).exp() {
                let length = (sizes * noise.normal() - 0.5 * sizes * sizes).exp();
                carried += LOSS / a_block * length;
                count += 1.0;
                product *= noise.uniform();
            }
            let mean = 1.02 * own.exp() * (1.0 + 0.002 * noise.normal()) + carried;
            observations.push(Observation {
                mean: Some(1e5 * mean),
                slow: Some((0.01 + 0.1 * SD * noise.normal()).max(0.0) + count / SLICES),
                stalled: Some(count / SLICES),
                ..observation("work", Meter::Time, block, point, own)
            });
        }
    }
    let found = judged(1, &observations)?;
    let truth = 1.02 / (1.02 + LOSS) - 1.0;
    let tail = main(&found).next().and_then(|effect| effect.tail.as_ref());
    let holds = tail.and_then(|tail| tail.mean.as_ref()).is_none_or(|mean| {
        let (low, high) = (mean.low.unwrap_or(-1.0), mean.high.unwrap_or(f64::INFINITY));
        (low..=high).contains(&truth)
    });
    Ok((u32::from(holds), 1))
}

/// Simulates an experiment of `patches` from slices; `slice` gives the relative duration of the last patch's
/// slices.
fn sliced(
    patches: usize,
    slice: &dyn Fn(usize, bool) -> f64,
    noise: &mut Noise,
) -> Result<Attribution> {
    sliced_in(
        12,
        300,
        patches,
        &mut |round, heavy, _| slice(round, heavy),
        noise,
    )
}

/// Simulates `blocks` blocks of `rounds` rounds as [`sliced`] does; `slice` may draw the duration.
fn sliced_in(
    blocks: u32,
    rounds: usize,
    patches: usize,
    slice: &mut dyn FnMut(usize, bool, &mut Noise) -> f64,
    noise: &mut Noise,
) -> Result<Attribution> {
    let points = points(patches);
    let mut all = Vec::new();
    for block in 0..blocks {
        let restarts: Vec<f64> = points.iter().map(|_| SD * noise.normal()).collect();
        let mut slices = no_slices(&points, rounds);
        for round in 0..rounds {
            let machine = 0.05 * noise.normal();
            let heavy = noise.chance(0.12);
            let work = if heavy { 8f64.ln() } else { 0.0 };
            for (slices, restart) in slices.iter_mut().zip(&restarts) {
                let mut log = 12.0 + machine + work + restart + 0.02 * noise.normal();
                // Interruptions by the machine hit one slice in two hundred.
                if noise.chance(0.005) {
                    log += 1.0 + 2.0 * noise.uniform();
                }
                if slices.point == Point::Step(patches) {
                    log += slice(round, heavy, noise).ln();
                }
                slices.values.push(log.exp() as f32);
            }
        }
        for value in stats::reduce_block(&slices) {
            all.push(Observation {
                value: value.value,
                mean: value.tail.map(|tail| tail.mean),
                slow: value.tail.map(|tail| tail.slow),
                p99: value.tail.and_then(|tail| tail.p99),
                stalled: value.tail.map(|tail| tail.stalled),
                ..observation("work", Meter::Time, block, value.point, 0.0)
            });
        }
    }
    judged(patches, &all)
}

/// Simulates the instructions of functions in counted blocks, of which the patch changed one; counts the share of others among
/// those that are named, in parts of the least common multiple of small numbers.
fn false_functions(noise: &mut Noise) -> Hits {
    const PARTS: u32 = 840;
    let name = |function: u32| format!("function {function}");
    let mut counted = Vec::new();
    for block in 0..COUNTED {
        for point in [0usize, 1] {
            let mut cost = |function: u32| {
                let changed = function == 0 && point == 1;
                1e4 * (1.0 + 0.01 * noise.normal()) + if changed { 1e3 } else { 0.0 }
            };
            counted.push(PointFunctions {
                workload: "work".to_owned(),
                block,
                point: Point::Step(point),
                functions: (0..30).map(|of| (name(of), cost(of))).collect(),
            });
        }
    }
    let found = attribution::function_changes(&header(1), &counted);
    #[allow(clippy::cast_possible_truncation)]
    let all = found.len() as u32;
    #[allow(clippy::cast_possible_truncation)]
    let wrong = found.iter().filter(|of| of.function != name(0)).count() as u32;
    (PARTS * wrong / all.max(1), PARTS)
}

/// Simulates a user who ends a planned experiment of four patches without effect with a budget as soon as Student's
/// interval of a patch excludes 0.
fn interrupted(noise: &mut Noise) -> Result<Hits> {
    const BLOCKS: u32 = 40;
    let mut all = Vec::new();
    for block in 0..BLOCKS {
        for &point in &points(4) {
            let log = SD * noise.normal();
            all.push(observation("work", Meter::Time, block, point, log));
        }
        let looks_good = || -> Result<bool> {
            let seen = judged(4, &all)?;
            Ok(main(&seen).any(Effect::leaves_out_zero))
        };
        if block + 1 < BLOCKS && block > 1 && looks_good()? {
            let plan = PlannedBlocks {
                extended: true,
                ..PlannedBlocks::fixed("work", Meter::Time, block + 1)
            };
            let supplement = Supplement {
                planned: vec![plan],
                ..Supplement::default()
            };
            let margin = &Meter::default_margin;
            let found = attribution::attribute_with(&header(4), &all, &supplement, margin)?;
            return Ok(claims(&found));
        }
    }
    Ok(claims(&judged(4, &all)?))
}

/// Simulates an experiment of a patch without effect over twelve blocks, which more blocks join three times while no result is
/// called.
fn joined(noise: &mut Noise) -> Result<Hits> {
    const BLOCKS: u32 = 12;
    let mut all = Vec::new();
    for (look, blocks) in [BLOCKS, 2 * BLOCKS, 4 * BLOCKS, 8 * BLOCKS]
        .into_iter()
        .enumerate()
    {
        let done = u32::try_from(all.len() / points(1).len()).unwrap_or(u32::MAX);
        for block in done..blocks {
            for &point in &points(1) {
                let log = SD * noise.normal();
                all.push(observation("work", Meter::Time, block, point, log));
            }
        }
        let plan = PlannedBlocks {
            extended: look > 0,
            ..PlannedBlocks::fixed("work", Meter::Time, blocks)
        };
        let supplement = Supplement {
            planned: vec![plan],
            ..Supplement::default()
        };
        let margin = &Meter::default_margin;
        let found = claims(&attribution::attribute_with(
            &header(1),
            &all,
            &supplement,
            margin,
        )?);
        if found.0 > 0 {
            return Ok(found);
        }
    }
    Ok((0, 1))
}

/// Simulates eight variants of a patch, none of which has an effect.
fn best_variant(noise: &mut Noise) -> Result<Hits> {
    let one = |number: u32, noise: &mut Noise| -> Result<Attribution> {
        let mut found = timed(1, 12, noise, &|_, noise| SD * noise.normal())?;
        found.experiment = format!("{EXPERIMENT}-{number}");
        let server = |point: Point, key: String| PointBuild {
            point,
            key,
            configure: 0.0,
            compile: 0.0,
            link: 0.0,
            overhead: 0.0,
            units: 0,
            cached: false,
            code_bytes: None,
            profile: None,
        };
        found.builds = vec![
            server(Point::BASE, "release".to_owned()),
            server(Point::Step(1), format!("variant {number}")),
        ];
        Ok(found)
    };
    let variants: Vec<Attribution> = (0..8)
        .map(|number| one(number, noise))
        .collect::<Result<_>>()?;
    let history = history(&variants, Meter::Time, None);
    let best = history.patches.iter().flat_map(|patch| &patch.best);
    let chosen: Vec<bool> = best.map(|of| of.low > 0.0 || of.high < 0.0).collect();
    let wrong = chosen.iter().filter(|wrong| **wrong).count();
    Ok((
        u32::try_from(wrong).unwrap_or(0),
        u32::try_from(chosen.len()).unwrap_or(0),
    ))
}

/// Simulates the history of thirty experiments, none of which has an effect.
fn unchanged_history(noise: &mut Noise) -> Result<Hits> {
    let one = |release: u32, noise: &mut Noise| -> Result<Attribution> {
        let mut found = timed(4, 12, noise, &|_, noise| SD * noise.normal())?;
        found.experiment = format!("{EXPERIMENT}-{release}");
        Ok(found)
    };
    let releases: Vec<Attribution> = (0..30)
        .map(|release| one(release, noise))
        .collect::<Result<_>>()?;
    let history = history(&releases, Meter::Time, None);
    let mut moments = history.patches.iter().flat_map(|patch| &patch.moments);
    let is_false = moments.any(|of| of.verdict.is_shown() || of.change.is_some());
    Ok((u32::from(is_false), 1))
}

/// Simulates blocks of which each takes the lane that is free first, for 0.5 to 1.5 units of time. A server is disturbed anew every
/// twentieth of a unit, on all lanes alike, which is half of the variance of a block of one unit.
fn beside_each_other(lanes: u32, blocks: u32, noise: &mut Noise) -> Result<Attribution> {
    const STEPS: f64 = 20.0;
    let points = points(4);
    let mut free = vec![0.0; lanes as usize];
    let mut disturbances: Vec<Vec<f64>> = Vec::new();
    let mut all = Vec::new();
    for block in 0..blocks {
        let lane = (0..free.len())
            .min_by(|a, b| f64::total_cmp(&free[*a], &free[*b]))
            .unwrap_or(0);
        let began = free[lane];
        let ended = began + 0.5 + noise.uniform();
        free[lane] = ended;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let (first, last) = ((began * STEPS) as usize, (ended * STEPS) as usize);
        while disturbances.len() <= last {
            disturbances.push(points.iter().map(|_| noise.normal()).collect());
        }
        let during = &disturbances[first..=last];
        for (place, &point) in points.iter().enumerate() {
            let shared = during.iter().map(|of| of[place]).sum::<f64>() / during.len() as f64;
            let error = (0.5f64).sqrt() * (STEPS.sqrt() * shared + noise.normal());
            all.push(Observation {
                lane: u32::try_from(lane).ok(),
                began: Some(began),
                ended: Some(ended),
                ..observation("work", Meter::Time, block, point, SD * error)
            });
        }
    }
    judged(4, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_simulation_misses_no_limit() {
        let found = checks(100, 1, &|| ()).unwrap();
        assert_eq!(found.len(), count().unwrap());
        let figures = found.iter().map(Check::figure).filter(Figure::is_missed);
        let faults: Vec<String> = figures.map(|figure| figure.describe()).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn every_family_of_the_documents_is_simulated_at_its_level() {
        let page = include_str!("../../../docs/statistics.md");
        let table = page.split("<!-- families").nth(1).unwrap();
        let rows = table
            .lines()
            .skip(3)
            .take_while(|line| line.starts_with('|'));
        let simulated = simulations().unwrap();
        let mut count = 0;
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, family, _, level, name, _] = cells[..] else {
                panic!("{row}")
            };
            let percent: f64 = level.split(' ').next().unwrap().parse().unwrap();
            // Beside the nominal level, the chance of ten thousand experiments.
            let most = percent / 100.0 + 0.005;
            let of_row = simulated.iter().filter(|of| of.name == name);
            let limits: Vec<f64> = of_row.map(|of| of.limits.1).collect();
            assert!(
                !limits.is_empty() && limits.iter().all(|limit| *limit <= most + 1e-9),
                "{family}: {limits:?}"
            );
            count += 1;
        }
        assert!(count >= 8, "{count}");
    }

    #[test]
    fn a_share_outside_its_limits_is_a_fault_unless_chance_explains_it() {
        let check = |share, experiments| Check {
            name: "x".into(),
            what: FALSE,
            experiments,
            share,
            least: 0.0,
            most: MOST,
        };
        assert!(check(0.06, 10_000).figure().is_missed());
        assert!(!check(0.06, 400).figure().is_missed() && check(0.06, 400).figure().is_outside());
        assert!(
            check(0.12, 400).figure().is_missed()
                && check(0.12, 400).figure().describe().contains("12.0 %")
        );
    }
}
