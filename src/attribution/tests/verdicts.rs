//! Verdicts on several rows together.

use super::*;

#[test]
fn what_one_workload_says_is_adjusted_over_patches_whatever_others_say() {
    let rows: [&[f64]; 4] = [
        &[100.0, 99.0, 98.5],
        &[100.0, 98.9, 98.2],
        &[100.0, 99.2, 98.6],
        &[100.0, 99.1, 98.3],
    ];
    let mut all = blocks("a", Meter::Time, &rows);
    let adjusted = |all: &[Observation]| {
        let result = attribute(&header(2), all, &margin).unwrap();
        [1, 2].map(|patch| {
            let effect = in_order(&result, patch);
            assert_eq!((effect.meter, effect.workload.as_str()), (Meter::Time, "a"));
            effect.p_adjusted
        })
    };
    let alone = adjusted(&all);
    for workload in ["a", "b"] {
        all.extend(blocks(workload, Meter::Cpu, &rows));
    }
    assert_eq!(adjusted(&all), alone);
}

#[test]
fn a_series_that_is_slower_is_a_regression() {
    // Two patches that each may be nothing are something together.
    let rows: [&[f64]; 4] = [
        &[100.0, 100.9, 101.0],
        &[100.0, 100.1, 101.0],
        &[100.0, 100.9, 101.1],
        &[100.0, 100.1, 101.1],
    ];
    let result = attribute(&header(2), &blocks("w", Meter::Time, &rows), &margin).unwrap();
    assert!(result.patches_with(Verdict::Slower).is_empty());
    assert_eq!(result.total[0].verdict, Verdict::Slower);
    assert!(result.is_regression());
}
