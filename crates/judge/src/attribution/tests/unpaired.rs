//! Points that share no block.

use super::*;

/// Two runs of the release, three of the patched server, all in blocks of their own.
fn runs() -> Vec<Observation> {
    let mut observations = vec![
        observation("w", Meter::Time, 0, Point::BASE, 100.0),
        observation("w", Meter::Time, 4, Point::BASE, 99.0),
    ];
    for (block, value) in [(1, 97.0), (2, 98.0), (3, 96.0)] {
        observations.push(observation("w", Meter::Time, block, Point::Step(1), value));
    }
    observations
}

#[test]
fn they_are_compared_as_two_samples_with_a_warning() {
    let result = attribute(&header(1), &runs(), &margin).unwrap();
    let effect = in_order(&result, 1);
    assert!(effect.unpaired);
    assert_eq!((effect.blocks, effect.units), (5, 5));
    let moments = |values: &[f64]| {
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        (mean, squares / (n - 1.0) / n)
    };
    let (before, after) = (moments(&[100.0, 99.0]), moments(&[97.0, 98.0, 96.0]));
    assert!((effect.estimate - (before.0 - after.0).exp_m1()).abs() < 1e-12);
    let error = (before.1 + after.1).sqrt();
    assert!((effect.standard_error.unwrap() - error).abs() < 1e-12);
    assert_eq!(codes(&result), [766]);
    // Nothing was left out, and no block lacks what it should have.
    assert!(result.left_out.is_empty(), "{:?}", result.left_out);
}

#[test]
fn a_single_run_of_one_side_gives_no_verdict() {
    let mut observations = runs();
    observations.retain(|observation| observation.block != 4);
    // However large the difference is.
    observations[0].value = 300.0;
    let result = attribute(&header(1), &observations, &margin).unwrap();
    let effect = in_order(&result, 1);
    assert!(effect.unpaired && effect.estimate > 1.0);
    assert_eq!((effect.low, effect.p_value), (None, None));
    assert_eq!(effect.verdict, Verdict::Unclear);
}

#[test]
fn a_shared_block_is_preferred() {
    let mut observations = runs();
    observations.push(observation("w", Meter::Time, 1, Point::BASE, 99.0));
    let result = attribute(&header(1), &observations, &margin).unwrap();
    let effect = in_order(&result, 1);
    assert!(!effect.unpaired);
    assert_eq!(effect.blocks, 1);
    // Also one with an earlier point before all runs of the next.
    let mut observations = runs();
    for block in [1, 2, 3] {
        let value = 95.0 - f64::from(block);
        observations.push(observation("w", Meter::Time, block, Point::Step(2), value));
    }
    observations.retain(|observation| observation.point != Point::BASE);
    observations.push(observation("w", Meter::Time, 9, Point::BASE, 100.0));
    let result = attribute(&header(2), &observations, &margin).unwrap();
    assert!(!in_order(&result, 2).unpaired);
    assert!(in_order(&result, 1).unpaired);
}

#[test]
fn their_interval_is_called_what_it_is() {
    // More blocks are planned than are there.
    let supplement = Supplement {
        planned: vec![PlannedBlocks::fixed("w", Meter::Time, 9)],
        ..Supplement::default()
    };
    let result = attribute_with(&header(1), &runs(), &supplement, &margin).unwrap();
    let effect = in_order(&result, 1);
    assert!(effect.unpaired && !result.is_complete());
    assert_eq!(
        (effect.interval, effect.level),
        (StoppingRule::FixedSample, 0.95)
    );
}

#[test]
fn whole_steps_of_the_clock_are_part_of_the_interval() {
    let supplement = Supplement {
        // 100 transactions of 100 ns are 10 µs: a clock of 1 µs.
        clock: BTreeMap::from([(Meter::Time, 1000.0)]),
        ..Supplement::default()
    };
    let of = |supplement: &Supplement| {
        let result = attribute_with(&header(1), &runs(), supplement, &margin).unwrap();
        let effect = in_order(&result, 1).clone();
        (effect, result.costs)
    };
    let (exact, exact_costs) = of(&Supplement::default());
    let (rounded, costs) = of(&supplement);
    // Half a step on either side.
    let half = 0.05 + 0.05 / 0.97;
    let low = |effect: &Effect| effect.low.unwrap().ln_1p();
    assert!((low(&exact) - low(&rounded) - half).abs() < 1e-3);
    assert_eq!(exact.estimate, rounded.estimate);
    let low = |costs: &[TransactionCost]| costs[0].low.unwrap().ln();
    assert!((low(&exact_costs) - low(&costs) - 0.05).abs() < 1e-3);
    assert!(!costs[0].too_short);
    let coarse = Supplement {
        clock: BTreeMap::from([(Meter::Time, 3000.0)]),
        ..Supplement::default()
    };
    assert!(of(&coarse).1[0].too_short);
}

#[test]
fn one_pair_among_others_is_told_too() {
    let mut all = Vec::new();
    for (block, value) in (0..).zip([100.0, 100.2, 99.9]) {
        for (block, point, value) in [
            (block, 0, value),
            (block, 2, value * 0.98),
            (block + 10, 1, value * 0.97),
        ] {
            all.push(observation(
                "w",
                Meter::Time,
                block,
                Point::Step(point),
                value,
            ));
        }
    }
    let result = attribute(&header(2), &all, &margin).unwrap();
    assert!(in_order(&result, 1).unpaired && !result.total[0].unpaired);
    assert!(result.is_unpaired());
    assert_warned(&result, 766);
    assert_warned(&result, 768);
}

#[test]
fn a_clock_has_steps_and_no_step_is_too_long() {
    let of = |step| {
        let supplement = Supplement {
            clock: BTreeMap::from([(Meter::Time, step)]),
            ..Supplement::default()
        };
        attribute_with(&header(1), &runs(), &supplement, &margin)
    };
    for step in [-1e9, 0.0, f64::NAN, f64::INFINITY] {
        let error = of(step).unwrap_err();
        assert!(error.message().contains("`clock` of time"), "{error}");
    }
    let coarse = of(1e300).unwrap();
    let effect = in_order(&coarse, 1);
    assert_eq!(effect.verdict, Verdict::Unclear);
    assert!(effect.p_value.is_some_and(|p| (p - 1.0).abs() < 1e-9));
}
