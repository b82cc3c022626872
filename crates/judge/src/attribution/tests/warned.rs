//! Warnings.

use super::*;
use perfquilt_model::observation::{Conditions, HostSample};

#[test]
fn an_absurd_value_is_used_and_told() {
    let rows: Vec<[f64; 3]> = (0..8)
        .map(|block| [100.0 + f64::from(block % 3), 99.0, 98.0])
        .collect();
    let rows: Vec<&[f64]> = rows.iter().map(|row| row.as_slice()).collect();
    let mut all = blocks("w", Meter::Time, &rows);
    let calm = attribute(&header(2), &all, &margin).unwrap();
    assert_eq!(codes(&calm), [0; 0]);
    all[10].value = 1e300;
    let result = attribute(&header(2), &all, &margin).unwrap();
    assert_warned(&result, 770);
    assert_eq!(in_order(&result, 1).verdict, Verdict::Unclear);
}

#[test]
fn what_disturbed_the_machine_is_told_with_what_to_do() {
    let rows: [&[f64]; 3] = [&[110.0, 100.0], &[220.2, 200.0], &[54.9, 50.0]];
    let all = blocks("w", Meter::Time, &rows);
    let reported = |moment: HostSample| {
        let supplement = Supplement {
            conditions: Conditions::over("w", &[moment]).into_iter().collect(),
            ..Supplement::default()
        };
        let result = attribute_with(&header(1), &all, &supplement, &margin).unwrap();
        assert_eq!(result.noise.conditions, supplement.conditions);
        result
    };
    let calm = HostSample {
        seconds: 2.0,
        mhz: Some((2600.0, 2600.0)),
        ..HostSample::default()
    };
    assert_eq!(codes(&reported(calm)), [0; 0]);
    let disturbed = [
        (
            HostSample {
                steal: 0.05,
                ..calm
            },
            774,
        ),
        (HostSample { idle: 0.5, ..calm }, 776),
        (
            HostSample {
                // The advice for idle processors would not help.
                idle: 0.5,
                throttled: 0.4,
                ..calm
            },
            775,
        ),
        (
            HostSample {
                preempted: 900,
                ..calm
            },
            777,
        ),
        (
            HostSample {
                major_faults: 3,
                ..calm
            },
            778,
        ),
        (
            HostSample {
                mhz: Some((2000.0, 2600.0)),
                ..calm
            },
            779,
        ),
    ];
    for (moment, code) in disturbed {
        let result = reported(moment);
        assert_eq!(codes(&result), [code]);
        assert_warned(&result, code);
    }
}

/// Four blocks of three points, each on the lane and at the time given.
fn on_lanes(places: [(u32, f64, f64); 4]) -> Attribution {
    let mut all = Vec::new();
    for (block, (lane, began, ended)) in (0..).zip(places) {
        for (place, point) in [Point::BASE, Point::Step(1), Point::Control]
            .into_iter()
            .enumerate()
        {
            let scatter = (f64::from(block) * 2.4 + place as f64 * 3.7).sin() * 0.002;
            all.push(Observation {
                lane: Some(lane),
                began: Some(began),
                ended: Some(ended),
                ..observation("w", Meter::Time, block, point, 100.0 * (1.0 + scatter))
            });
        }
    }
    attribute_with(&header(1), &all, &Supplement::default(), &margin).unwrap()
}

#[test]
fn only_blocks_that_ran_beside_each_other_are_a_round() {
    let is_single = |of: &Attribution| {
        let warned = codes(of).contains(&769);
        if warned {
            assert_warned(of, 769);
        }
        let low = in_order(of, 1).low;
        assert_eq!(warned, low.is_none(), "{:?}", of.warnings);
        warned
    };
    let beside = [(0, 0.0, 9.0), (1, 0.5, 9.5), (2, 1.0, 10.0), (3, 1.0, 9.0)];
    assert!(is_single(&on_lanes(beside)));
    // Four lanes, of which two measured after the others, as after an interruption.
    let later = [
        (0, 0.0, 9.0),
        (1, 0.5, 9.5),
        (2, 60.0, 69.0),
        (3, 61.0, 70.0),
    ];
    assert!(!is_single(&on_lanes(later)));
}

#[test]
fn a_point_that_lacks_more_values_than_chance_explains_is_named() {
    let mut observations = Vec::new();
    for block in 0..40 {
        for point in (0..=4).map(Point::Step).chain([Point::Control]) {
            let value = 100.0 + f64::from((block * 7) % 5);
            observations.push(observation("w", Meter::Time, block, point, value));
        }
    }
    let warned = |lacks: &dyn Fn(&Observation) -> bool| {
        let left = observations.iter().filter(|o| !lacks(o)).cloned();
        let left: Vec<Observation> = left.collect();
        let found = attribute(&header(4), &left, &margin).unwrap();
        let is_named = codes(&found).contains(&752);
        if is_named {
            assert_warned(&found, 752);
        }
        (codes(&found).contains(&768), is_named)
    };
    let second = |o: &Observation| o.point == Point::Step(2);
    assert_eq!(warned(&|o| second(o) && o.block % 7 == 0), (true, true));
    // One value is anybody's, and so are as many of every point.
    assert_eq!(warned(&|o| second(o) && o.block == 3), (true, false));
    let any = |o: &Observation| o.point == Point::Step(o.block as usize % 7);
    assert_eq!(warned(&any), (true, false));
    assert_eq!(warned(&|_| false), (false, false));
}

#[test]
fn only_what_outweighs_a_drift_has_a_verdict_and_calm_workloads_keep_theirs() {
    let mut observations = Vec::new();
    for block in 0..24 {
        for index in 0..=4_usize {
            let phase = std::f64::consts::TAU * (f64::from(block) / 24.0 + index as f64 / 5.0);
            let large = if index >= 1 { 0.7 } else { 1.0 };
            let small = if index >= 2 { 0.99 } else { 1.0 };
            let drifting = 100.0 * large * small * (1.0 + 0.01 * phase.sin());
            let noise = f64::from((block * 7 + index as u32 * 5) % 11) - 5.0;
            let calm = 100.0 * small.powi(5) * (1.0 + 0.0005 * noise);
            for (workload, value) in [("calm", calm), ("drifting", drifting)] {
                let point = Point::Step(index);
                observations.push(observation(workload, Meter::Time, block, point, value));
            }
        }
    }
    let result = attribute(&header(4), &observations, &margin).unwrap();
    let of = |patch: usize, workload: &str| {
        let effects = result.patches[patch - 1].effects.iter();
        let mut own = effects.filter(|of| of.kind == EffectKind::InOrder);
        own.find(|of| of.workload == workload).unwrap()
    };
    let large = of(1, "drifting");
    assert_eq!(large.verdict, Verdict::Faster, "{large:?}");
    assert!(large.high.unwrap() - large.low.unwrap() > 0.1, "{large:?}");
    let small = of(2, "drifting");
    assert_eq!((small.verdict, small.low), (Verdict::Unclear, None));
    assert_eq!(small.withheld.as_deref(), Some("measurements drift"));
    assert_eq!(of(2, "calm").verdict, Verdict::Faster);
    let suite = of(2, SUITE);
    assert_eq!((suite.verdict, suite.low), (Verdict::Faster, None));
    assert_eq!(suite.cells.as_ref().unwrap().faster, ["calm"]);
}
