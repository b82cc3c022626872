//! Counts of instructions and of slow slices, and shares of the error by the former.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use perfquilt_model::observation::Statistic;

/// Twelve blocks of twelve patches, six of them counted; patch 4 changes the instructions, and `gain` is what
/// patch 4 and patch 9 gain in time.
fn observations(gain: f64, counted: bool) -> Vec<Observation> {
    let mut all = Vec::new();
    for block in 0..12u32 {
        for place in 0..=12usize {
            let own = f64::from((block * 7 + u32::try_from(place).unwrap() * 5) % 11);
            let gains = f64::from(u8::from(place >= 4) + u8::from(place >= 9));
            let time = (0.0008 * own - gain * gains).exp();
            let point = Point::Step(place);
            all.push(observation("w", Meter::Time, block, point, 1e5 * time));
            if counted && block < 6 {
                let fewer = if place >= 4 { 0.003 } else { 0.0 };
                let count = 1e6 * (1e-6 * own - fewer).exp();
                all.push(observation("w", Meter::Instructions, block, point, count));
            }
        }
    }
    all
}

fn of(result: &Attribution, meter: Meter) -> Vec<&Effect> {
    let effects = result.patches.iter().flat_map(|patch| &patch.effects);
    effects
        .filter(|effect| (effect.kind, effect.meter) == (EffectKind::InOrder, meter))
        .collect()
}

#[test]
fn a_patch_that_changes_instructions_has_a_larger_share() {
    let result = attribute(&header(12), &observations(0.004, true), &margin).unwrap();
    let times = of(&result, Meter::Time);
    // s = ½ · (1 − 4/12) · 11/12
    let given_up = 0.5 * (8.0 / 12.0) * (11.0 / 12.0);
    for (number, effect) in (1..).zip(&times) {
        let weight = if number == 4 {
            1.0 + 11.0 * given_up
        } else {
            1.0 - given_up
        };
        assert!(
            (effect.error_share.unwrap() - weight / 12.0).abs() < 1e-12,
            "{number}"
        );
    }
    assert!(
        of(&result, Meter::Instructions)
            .iter()
            .all(|e| e.error_share == Some(1.0 / 12.0))
    );
    assert_eq!(result.total[0].error_share, Some(1.0));

    // The adjusted p-values follow from the document: Holm by the smallest p-value per share.
    let mut order: Vec<&Effect> = times.clone();
    let scaled = |effect: &Effect| effect.p_value.unwrap() / effect.error_share.unwrap();
    order.sort_by(|a, b| scaled(a).total_cmp(&scaled(b)));
    let (mut left, mut largest) = (1.0, 0.0f64);
    for effect in order {
        largest = largest.max(left * scaled(effect)).min(1.0);
        assert!(
            (effect.p_adjusted.unwrap() - largest).abs() < 1e-9,
            "{effect:?}"
        );
        left -= effect.error_share.unwrap();
    }

    // What can be detected follows the share.
    let plain = attribute(&header(12), &observations(0.004, false), &margin).unwrap();
    for (number, (with, without)) in (1..).zip(times.iter().zip(of(&plain, Meter::Time))) {
        assert_eq!(without.error_share, Some(1.0 / 12.0));
        let (with, without) = (with.minimum_detectable, without.minimum_detectable);
        assert_eq!(
            with < without,
            number == 4,
            "{number}: {with:?} {without:?}"
        );
    }
}

#[test]
fn shares_do_not_depend_on_times() {
    let shares = |gain: f64| {
        let result = attribute(&header(12), &observations(gain, true), &margin).unwrap();
        let shares = of(&result, Meter::Time);
        shares
            .iter()
            .map(|effect| effect.error_share)
            .collect::<Vec<_>>()
    };
    assert_eq!(shares(0.0), shares(0.05));
}

#[test]
fn a_row_divides_its_share_among_its_figures() {
    let mut all = observations(0.004, true);
    for one in all.iter_mut().filter(|one| one.meter == Meter::Time) {
        one.mean = Some(1.01 * one.value);
        one.p99 = Some(1.5 * one.value);
    }
    let result = attribute(&header(12), &all, &margin).unwrap();
    let mut sum = 0.0;
    for effect in of(&result, Meter::Time) {
        let own = effect.error_share.unwrap();
        sum += own;
        for figure in effect.tail.as_ref().unwrap().figures.values() {
            assert!((figure.error_share.unwrap() - own / 8.0).abs() < 1e-12);
            sum += figure.error_share.unwrap();
        }
    }
    assert!((sum - 1.0).abs() < 1e-9);
}

/// Returns the mean half-width of the patches' intervals for shares of slow slices in 96 blocks of eight patches, whose
/// values are independent of each other. Blocks with the same `layout` are a unit, those with the same `machine` too if
/// there are enough of them.
fn width_of_slow(layout: &dyn Fn(u32) -> u64, machine: &dyn Fn(u32) -> Option<u32>) -> f64 {
    let mut random = StdRng::seed_from_u64(21);
    let mut all = Vec::new();
    for block in 0..96u32 {
        for place in 0..=8usize {
            let slow = 0.03 + random.random_range(-0.01..0.01);
            all.push(Observation {
                layout: layout(block),
                machine: machine(block).map(|of| format!("n{of}")),
                slow: Some(slow),
                ..observation("w", Meter::Time, block, Point::Step(place), 1e5 + slow)
            });
        }
    }
    let result = attribute(&header(8), &all, &margin).unwrap();
    let half = |effect: &&Effect| {
        let slow = effect.tail.as_ref().unwrap().get(Statistic::Slow).unwrap();
        (slow.high.unwrap() - slow.low.unwrap()) / 2.0
    };
    let effects = of(&result, Meter::Time);
    effects.iter().map(half).sum::<f64>() / effects.len() as f64
}

#[test]
fn the_share_of_slow_slices_is_known_as_well_as_its_units_vary() {
    let blocks = width_of_slow(&|_| 0, &|_| None);
    // A difference of two values of ±1 % has a standard deviation of 0.82 %.
    assert!((1e-3..2.2e-3).contains(&blocks), "{blocks}");
    let layouts = width_of_slow(&|block| u64::from(1 + block / 2), &|_| None);
    assert!(
        (0.85..1.2).contains(&(layouts / blocks)),
        "{layouts} {blocks}"
    );
    // Eight means of twelve blocks each.
    let machines = width_of_slow(&|_| 0, &|block| Some(block / 12));
    assert!(
        (0.8..1.6).contains(&(machines / blocks)),
        "{machines} {blocks}"
    );
}
