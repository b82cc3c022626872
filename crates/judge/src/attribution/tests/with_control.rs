//! Effects against the mean of the release and its control.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::test_kit::normal;
use perfquilt_model::observation::Statistic;

/// Costs by block of the release, its control and the points of the series from 1 on.
fn with_control(meter: Meter, rows: &[&[f64]]) -> Vec<Observation> {
    (0..)
        .zip(rows)
        .flat_map(|(block, row)| {
            row.iter().enumerate().map(move |(place, &value)| {
                let point = match place {
                    0 => Point::BASE,
                    1 => Point::Control,
                    _ => Point::Step(place - 1),
                };
                observation("w", meter, block, point, value)
            })
        })
        .collect()
}

const ROWS: [&[f64]; 4] = [
    &[100.0, 104.0, 90.0, 80.0],
    &[101.0, 103.0, 90.5, 80.5],
    &[99.0, 105.0, 90.0, 81.0],
    &[100.0, 104.0, 89.5, 80.0],
];

fn of(result: &Attribution, patch: usize, kind: EffectKind) -> &Effect {
    let effects = &result.patches[patch - 1].effects;
    effects.iter().find(|effect| effect.kind == kind).unwrap()
}

/// Returns the mean over `rows` of a function of their logarithms, as speed.
fn mean_of(rows: &[&[f64]], log_ratio: impl Fn(&[f64]) -> f64) -> f64 {
    let sum: f64 = rows.iter().map(|row| log_ratio(row)).sum();
    (sum / rows.len() as f64).exp_m1()
}

fn against_both(row: &[f64], place: usize) -> f64 {
    0.5 * (row[0].ln() + row[1].ln()) - row[place].ln()
}

#[test]
fn effects_against_the_release_are_against_both() {
    for meter in [Meter::Time, Meter::Cpu, Meter::Instructions] {
        let result = attribute(&header(2), &with_control(meter, &ROWS), &margin).unwrap();
        for (effect, place) in [
            (&result.total[0], 3),
            (of(&result, 1, EffectKind::InOrder), 2),
            (of(&result, 1, EffectKind::Cumulative), 2),
            (of(&result, 2, EffectKind::Cumulative), 3),
        ] {
            let expected = mean_of(&ROWS, |row| against_both(row, place));
            assert!((effect.estimate - expected).abs() < 1e-12, "{effect:?}");
            assert!(effect.with_control && effect.against == Point::BASE);
        }
        let second = of(&result, 2, EffectKind::InOrder);
        let expected = mean_of(&ROWS, |row| (row[2] / row[3]).ln());
        assert!((second.estimate - expected).abs() < 1e-12);
        assert!(!second.with_control);
        let json = serde_json::to_value(&result.total[0]).unwrap();
        assert_eq!(json["with_control"], true);
        assert!(
            serde_json::to_value(second)
                .unwrap()
                .get("with_control")
                .is_none()
        );
    }
}

#[test]
fn the_control_itself_stays_against_the_release() {
    let all = with_control(Meter::Time, &ROWS);
    let result = attribute(&header(2), &all, &margin).unwrap();
    let control = &result.noise.control[0].effect;
    let expected = mean_of(&ROWS, |row| (row[0] / row[1]).ln());
    assert!((control.estimate - expected).abs() < 1e-12);
    assert!(!control.with_control);
    let ratios: Vec<f64> = ROWS.iter().map(|row| (row[0] / row[1]).ln()).collect();
    let interval = crate::stats::Interval::of(&ratios).unwrap();
    for (found, limit) in [
        (control.low, interval.low()),
        (control.high, interval.high()),
    ] {
        assert!((found.unwrap().ln_1p() - limit).abs() < 1e-12);
    }
    // Nothing but these two points is behind it.
    let pair: Vec<Observation> = all
        .into_iter()
        .filter(|one| matches!(one.point, Point::Step(0) | Point::Control))
        .collect();
    let alone = attribute(&header(2), &pair, &margin).unwrap();
    assert_eq!(alone.noise.control, result.noise.control);
}

#[test]
fn patches_alone_and_interactions_are_against_both() {
    let mut all = with_control(Meter::Time, &ROWS);
    for (block, value) in (0..).zip([95.0, 94.0, 95.5, 95.0]) {
        all.push(observation("w", Meter::Time, block, Point::Alone(2), value));
        all.push(observation(
            "w",
            Meter::Time,
            block,
            Point::Without(1),
            value - 8.0,
        ));
    }
    let result = attribute(&header(2), &all, &margin).unwrap();
    assert!(of(&result, 2, EffectKind::Alone).with_control);
    let without = of(&result, 1, EffectKind::Without);
    assert!(!without.with_control);
    // In order minus without, whatever the release is taken to be.
    let interaction = of(&result, 1, EffectKind::Interaction);
    let difference =
        of(&result, 1, EffectKind::InOrder).estimate.ln_1p() - without.estimate.ln_1p();
    assert!((interaction.estimate.ln_1p() - difference).abs() < 1e-12);
    assert!(interaction.with_control);
}

#[test]
fn no_block_is_lost_for_the_control() {
    let lacking = |point: Point| {
        let mut all = with_control(Meter::Time, &ROWS);
        all.retain(|one| one.block != 2 || one.point != Point::Control && one.point != point);
        attribute(&header(2), &all, &margin).unwrap()
    };
    // Block 2 has the release and both points, but not the control.
    let result = lacking(Point::Control);
    for effect in [&result.total[0], of(&result, 1, EffectKind::InOrder)] {
        assert_eq!((effect.with_control, effect.blocks), (false, 4));
    }
    let expected = mean_of(&ROWS, |row| (row[0] / row[3]).ln());
    assert!((result.total[0].estimate - expected).abs() < 1e-12);
    assert_eq!(result.left_out, []);
    // Without point 1 the block is none of patch 1 anyway.
    let result = lacking(Point::Step(1));
    let first = of(&result, 1, EffectKind::InOrder);
    assert_eq!((first.with_control, first.blocks), (true, 3));
    let total = &result.total[0];
    assert_eq!((total.with_control, total.blocks), (false, 4));
}

#[test]
fn a_failed_control_is_not_used() {
    let mut header = header(2);
    header.failed.insert(Point::Control, "crashed".into());
    let result = attribute(&header, &with_control(Meter::Time, &ROWS), &margin).unwrap();
    assert!(!result.total[0].with_control);
    let expected = mean_of(&ROWS, |row| (row[0] / row[3]).ln());
    assert!((result.total[0].estimate - expected).abs() < 1e-12);
}

#[test]
fn a_later_patch_may_be_the_first_against_the_release() {
    let expected = mean_of(&ROWS, |row| against_both(row, 3));
    let mut failed = header(2);
    failed
        .failed
        .insert(Point::Step(1), "does not compile".into());
    let mut identical = header(2);
    identical.identical.insert(Point::Step(1), Point::BASE);
    for header in [failed, identical] {
        let all = with_control(Meter::Time, &ROWS);
        let all = all.into_iter().filter(|one| one.point != Point::Step(1));
        let result = attribute(&header, &all.collect::<Vec<_>>(), &margin).unwrap();
        let second = of(&result, 2, EffectKind::InOrder);
        assert!((second.estimate - expected).abs() < 1e-12);
        assert!(second.with_control);
        for effect in &result.patches[0].effects {
            assert_eq!(
                (effect.estimate, effect.identical, effect.with_control),
                (0.0, true, false)
            );
        }
    }
}

#[test]
fn a_patch_that_is_taken_back_leaves_a_total_of_zero() {
    let mut header = header(2);
    header.identical.insert(Point::Step(2), Point::BASE);
    let all = with_control(Meter::Time, &ROWS);
    let all: Vec<Observation> = all
        .into_iter()
        .filter(|one| one.point != Point::Step(2))
        .collect();
    let result = attribute(&header, &all, &margin).unwrap();
    assert!(result.total[0].identical && result.total[0].estimate == 0.0);
    let log = |patch| of(&result, patch, EffectKind::InOrder).estimate.ln_1p();
    assert!((log(1) + log(2)).abs() < 1e-12);
}

#[test]
fn mean_and_tail_are_against_both() {
    let mut all = with_control(Meter::Time, &ROWS);
    for one in &mut all {
        let share = match one.point {
            Point::Step(0) => 0.02,
            Point::Control => 0.04,
            _ => 0.01,
        };
        one.slow = Some(share + 1e-4 * f64::from(one.block));
        one.mean = Some(1.1 * one.value);
        one.p99 = Some(2.0 * one.value);
    }
    let result = attribute(&header(2), &all, &margin).unwrap();
    let total = &result.total[0];
    let tail = total.tail.as_ref().unwrap();
    for statistic in [Statistic::Mean, Statistic::P99] {
        let figure = tail.get(statistic).unwrap();
        assert!((figure.estimate - total.estimate).abs() < 1e-12 && figure.with_control);
    }
    let slow = tail.get(Statistic::Slow).unwrap();
    assert!((slow.estimate - 0.02).abs() < 1e-12);
    assert!((slow.before - slow.after - slow.estimate).abs() < 1e-12);
    // Without the control's tails, the typical time alone is against both.
    for one in all.iter_mut().filter(|one| one.point == Point::Control) {
        (one.slow, one.mean, one.p99) = (None, None, None);
    }
    let result = attribute(&header(2), &all, &margin).unwrap();
    let total = &result.total[0];
    assert!(total.with_control);
    let tail = total.tail.as_ref().unwrap();
    assert!(
        tail.figures
            .values()
            .all(|figure| !figure.with_control && figure.blocks == 4)
    );
}

#[test]
fn operations_and_the_end_to_end_check_are_against_both() {
    let mut all = with_control(Meter::Time, &ROWS);
    let parts: Vec<Observation> = all
        .iter()
        .map(|one| Observation {
            workload: "w/part".into(),
            ..one.clone()
        })
        .collect();
    all.extend(parts);
    for block in 0..3 {
        all.extend(direct(block, 102.0 + f64::from(block), 80.3, 2));
    }
    let result = attribute(&header(2), &all, &margin).unwrap();
    let part = |kind, point| {
        let mut effects = result.operations[0].effects.iter();
        effects
            .find(|e| e.kind == kind && e.point == Point::Step(point))
            .unwrap()
    };
    assert!(part(EffectKind::InOrder, 1).with_control);
    assert!(part(EffectKind::Cumulative, 2).with_control);
    assert!(!part(EffectKind::InOrder, 2).with_control);
    let check = result.main_end_to_end(Meter::Time).unwrap();
    assert_eq!(check.total.estimate, result.total[0].estimate);
    assert_eq!(
        (check.total.low, check.total.high),
        (result.total[0].low, result.total[0].high)
    );
}

#[test]
fn an_operation_that_a_point_lacks_is_named() {
    let mut all = with_control(Meter::Time, &ROWS);
    let whole = all.clone();
    let mut add = |part: &str, lacks: &dyn Fn(&Observation) -> bool| {
        let parts = whole.iter().filter(|one| !lacks(one));
        all.extend(parts.map(|one| Observation {
            workload: format!("w/{part}"),
            ..one.clone()
        }));
        let result = attribute(&header(2), &all, &margin).unwrap();
        let mut warnings = result.warnings.iter();
        let of_parts = warnings.find(|warning| warning.code().number == 755);
        of_parts.map(|warning| warning.message().to_owned())
    };
    assert_eq!(add("a", &|_| false), None);
    // Never on one point, and once on another.
    let never = |one: &Observation| one.point == Point::Step(2);
    let once = |one: &Observation| one.point == Point::Step(1) && one.block == 1;
    let named = add("b", &|one| never(one) || once(one)).unwrap();
    assert!(
        named.contains(" b on points 1, 2 in some blocks"),
        "{named}"
    );
    let named = add("c", &never).unwrap();
    assert!(named.contains("c on point 2 in some"), "{named}");
}

#[test]
fn a_suite_needs_the_control_on_every_workload() {
    let mut all = with_control(Meter::Time, &ROWS);
    let other = with_control(Meter::Time, &ROWS).into_iter();
    let other = other.filter(|one| one.block != 1 || one.point != Point::Control);
    all.extend(other.map(|one| Observation {
        workload: "v".into(),
        ..one
    }));
    let result = attribute(&header(2), &all, &margin).unwrap();
    let total = |name: &str| result.total.iter().find(|e| e.workload == name).unwrap();
    let found = [SUITE, "v", "w"].map(|name| (total(name).with_control, total(name).blocks));
    assert_eq!(found, [(false, 4), (false, 4), (true, 4)]);
}

#[test]
fn runs_that_share_no_block_are_against_the_release_alone() {
    let mut all = with_control(Meter::Time, &ROWS);
    for one in all
        .iter_mut()
        .filter(|one| matches!(one.point, Point::Step(1..)))
    {
        one.block += 10;
    }
    let result = attribute(&header(2), &all, &margin).unwrap();
    let total = &result.total[0];
    assert!(total.unpaired && !total.with_control);
    let expected = mean_of(&ROWS, |row| (row[0] / row[3]).ln());
    assert!((total.estimate - expected).abs() < 1e-12);
}

proptest! {
    #[test]
    fn effects_in_order_add_up_to_the_total_against_both(
        rows in (2usize..5, 3usize..7).prop_flat_map(|(blocks, points)| {
            proptest::collection::vec(proptest::collection::vec(0.5f64..2.0, points), blocks)
        })
    ) {
        let borrowed: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let patches = rows[0].len() - 2;
        let all = with_control(Meter::Time, &borrowed);
        let result = attribute(&header(patches), &all, &margin).unwrap();
        let sum: f64 = (1..=patches).map(|k| in_order(&result, k).estimate.ln_1p()).sum();
        prop_assert!((sum - result.total[0].estimate.ln_1p()).abs() < 1e-12);
        prop_assert!(result.total[0].with_control);
    }
}

/// The results of simulated experiments.
struct Simulated {
    /// The share of the total's intervals that contain its true value.
    coverage: f64,
    /// The variance of the total's estimate against both, by that against the release alone.
    variance: f64,
}

/// Simulates experiments of one patch whose values vary by `release` at the release and its control, and by 0.004
/// at the patched point, in layouts of which each point has `pool`; 0 for fresh ones in every block.
fn simulated(blocks: u32, release: f64, pool: u64, experiments: u32) -> Simulated {
    const EFFECT: f64 = 0.003;
    let mut random = StdRng::seed_from_u64(17);
    let points = [
        (Point::BASE, release),
        (Point::Control, release),
        (Point::Step(1), 0.004),
    ];
    let (mut held, mut both, mut alone) = (0, 0.0, 0.0);
    for _ in 0..experiments {
        let mut drift = 0.0;
        let luck: Vec<Vec<f64>> = points
            .iter()
            .map(|(_, sd)| (0..pool).map(|_| sd * normal(&mut random)).collect())
            .collect();
        let mut all = Vec::new();
        for block in 0..blocks {
            drift += 0.03 * normal(&mut random);
            for (&(point, sd), luck) in points.iter().zip(&luck) {
                let (layout, own) = if pool > 0 {
                    let drawn = random.random_range(0..pool);
                    (
                        drawn + 1,
                        luck[usize::try_from(drawn).unwrap()] + 0.5 * sd * normal(&mut random),
                    )
                } else {
                    (u64::from(block) + 1, sd * normal(&mut random))
                };
                let gain = if point == Point::Step(1) { EFFECT } else { 0.0 };
                let value = (11.0 + drift + own - gain).exp();
                all.push(Observation {
                    layout,
                    ..observation("w", Meter::Time, block, point, value)
                });
            }
        }
        let total = attribute(&header(1), &all, &margin)
            .unwrap()
            .total
            .remove(0);
        assert!(total.with_control);
        let truth = EFFECT.exp_m1();
        // One experiment in a hundred seems to drift and has no interval.
        let ends = total.low.zip(total.high);
        held += u32::from(ends.is_none_or(|(low, high)| low <= truth && truth <= high));
        both += (total.estimate.ln_1p() - EFFECT).powi(2);
        all.retain(|one| one.point != Point::Control);
        let total = attribute(&header(1), &all, &margin)
            .unwrap()
            .total
            .remove(0);
        assert!(!total.with_control);
        alone += (total.estimate.ln_1p() - EFFECT).powi(2);
    }
    Simulated {
        coverage: f64::from(held) / f64::from(experiments),
        variance: both / alone,
    }
}

/// With equal variances, `1/4 + 1/4 + 1` instead of `1 + 1`: 0.75, with a standard error of 0.014.
#[test]
fn both_together_take_a_quarter_of_the_variance_away() {
    let found = simulated(12, 0.004, 0, 3000);
    assert!((0.94..0.98).contains(&found.coverage), "{}", found.coverage);
    assert!((0.72..0.78).contains(&found.variance), "{}", found.variance);
}

/// With three times the standard deviation at the release, `9/4 + 9/4 + 1` instead of `9 + 1`: 0.55, with a standard
/// error of 0.013.
#[test]
fn a_restless_release_gains_more() {
    let found = simulated(12, 0.012, 0, 3000);
    assert!((0.94..0.98).contains(&found.coverage), "{}", found.coverage);
    assert!((0.51..0.59).contains(&found.variance), "{}", found.variance);
}

#[test]
fn crossed_layouts_of_three_points_are_covered() {
    for (pool, most) in [(8, 0.99), (4, 0.995)] {
        let found = simulated(24, 0.004, pool, 1500);
        assert!(
            (0.94..most).contains(&found.coverage),
            "{pool} {}",
            found.coverage
        );
        assert!(
            (0.68..0.82).contains(&found.variance),
            "{pool} {}",
            found.variance
        );
    }
}
