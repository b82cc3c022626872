//! Stalls of a patch beside those of the machine.

use super::*;
use perfquilt_model::observation::Statistic;

/// A real experiment (`ci/bench/planted-tails --server mariadb --stall 60 --every 30000`, 24 blocks on a loaded machine): the
/// mean in units of the typical time, and the number of stalled slices of some 2300, of the release, a patch, the next patch,
/// which plants stalls, and the control.
const MEASURED: [[(f64, f64); 4]; 24] = [
    [(1.005, 0.0), (1.042, 0.0), (1.18, 1.0), (1.007, 0.0)],
    [(1.018, 0.0), (1.075, 1.0), (1.183, 1.0), (1.082, 1.0)],
    [(1.006, 0.0), (1.044, 0.0), (1.069, 1.0), (1.004, 0.0)],
    [(1.005, 0.0), (1.032, 0.0), (1.166, 1.0), (1.013, 0.0)],
    [(1.013, 0.0), (1.042, 0.0), (1.179, 1.0), (1.006, 0.0)],
    [(1.104, 1.0), (1.041, 0.0), (1.201, 2.0), (1.007, 0.0)],
    [(1.006, 0.0), (1.041, 0.0), (1.287, 2.0), (1.005, 0.0)],
    [(1.007, 0.0), (1.045, 0.0), (1.141, 1.0), (1.011, 0.0)],
    [(1.145, 1.0), (1.042, 0.0), (1.04, 0.0), (1.004, 0.0)],
    [(1.14, 1.0), (1.046, 0.0), (1.179, 1.0), (1.004, 0.0)],
    [(1.007, 0.0), (1.045, 0.0), (1.172, 1.0), (1.007, 0.0)],
    [(1.01, 0.0), (1.066, 1.0), (1.113, 1.0), (1.008, 0.0)],
    [(1.004, 0.0), (1.04, 0.0), (1.282, 2.0), (1.006, 0.0)],
    [(1.011, 0.0), (1.132, 2.0), (1.168, 1.0), (1.006, 0.0)],
    [(1.004, 0.0), (1.144, 1.0), (1.038, 0.0), (1.009, 0.0)],
    [(1.008, 0.0), (1.051, 0.0), (1.044, 0.0), (1.13, 1.0)],
    [(1.005, 0.0), (1.103, 1.0), (1.163, 1.0), (1.041, 1.0)],
    [(1.009, 0.0), (1.035, 0.0), (1.161, 1.0), (1.006, 0.0)],
    [(1.134, 1.0), (1.042, 0.0), (1.037, 0.0), (1.004, 0.0)],
    [(1.148, 1.0), (1.034, 0.0), (1.031, 0.0), (1.009, 0.0)],
    [(1.005, 0.0), (1.038, 0.0), (1.179, 1.0), (1.007, 0.0)],
    [(1.006, 0.0), (1.067, 1.0), (1.177, 1.0), (1.006, 0.0)],
    [(1.007, 0.0), (1.041, 0.0), (1.169, 1.0), (1.008, 0.0)],
    [(1.004, 0.0), (1.138, 1.0), (1.167, 1.0), (1.005, 0.0)],
];

/// Returns the experiment with the values of `order` in place of those of release, patches and control.
fn experiment(order: [usize; 4]) -> Attribution {
    let points = [Point::BASE, Point::Step(1), Point::Step(2), Point::Control];
    let mut observations = Vec::new();
    for (block, row) in (0u32..).zip(MEASURED) {
        for (place, point) in points.into_iter().enumerate() {
            let (mean, stalls) = row[order[place]];
            let scatter = (block * 7 + order[place] as u32 * 5) % 11;
            let typical = 1e4 * (1.0 + 4e-4 * f64::from(scatter));
            observations.push(Observation {
                mean: Some(typical * mean),
                slow: Some(stalls / 2300.0),
                stalled: Some(stalls / 2300.0),
                ..observation("w", Meter::Time, block, point, typical)
            });
        }
    }
    attribute(&header(2), &observations, &margin).unwrap()
}

fn stalls(found: &Attribution, patch: usize) -> &TailFigure {
    let tail = in_order(found, patch).tail.as_ref().unwrap();
    tail.get(Statistic::Stalled).unwrap()
}

#[test]
fn planted_stalls_are_slower_though_the_machine_stalls_every_server() {
    let found = experiment([0, 1, 2, 3]);
    let effect = in_order(&found, 2);
    assert_eq!(effect.verdict, Verdict::Slower, "{effect:?}");
    let figure = stalls(&found, 2);
    assert!(figure.p_value.unwrap() < 0.002, "{figure:?}");
    assert!(figure.high.unwrap() < 0.0, "{figure:?}");
    // The first patch stalls as the release and its control do.
    assert!(stalls(&found, 1).p_value.unwrap() > 0.05);
    assert!(!stalls(&found, 1).verdict.is_shown());
}

#[test]
fn a_patch_without_those_stalls_is_faster_by_the_same_evidence() {
    let (with, without) = (experiment([0, 1, 2, 3]), experiment([0, 2, 1, 3]));
    assert_eq!(stalls(&without, 2).verdict, Verdict::Faster);
    assert_eq!(stalls(&with, 2).p_value, stalls(&without, 2).p_value);
}
