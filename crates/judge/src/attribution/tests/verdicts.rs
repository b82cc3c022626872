//! Verdicts over families of rows.

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
    // Two patches may be unclear each and significant together.
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

#[test]
fn a_patch_that_lacks_a_workload_is_open_and_slower_where_it_is() {
    let rows: [&[f64]; 4] = [
        &[100.0, 98.0, 120.0, 97.0],
        &[100.0, 98.1, 120.2, 97.1],
        &[100.0, 97.9, 119.9, 97.0],
        &[100.0, 98.0, 120.1, 97.1],
    ];
    let mut all = blocks("a", Meter::Time, &rows);
    let others = blocks("b", Meter::Time, &rows).into_iter();
    all.extend(others.filter(|o| o.point != Point::Step(2)));
    let result = attribute(&header(3), &all, &margin).unwrap();
    let reasons: Vec<Option<&str>> = result.patches.iter().map(|p| p.reason.as_deref()).collect();
    assert_eq!(
        reasons,
        [None, Some("no figures on 1 of 2 workloads"), None]
    );
    let slower = result.slower_patches();
    assert_eq!(slower.iter().map(|p| p.index).collect::<Vec<_>>(), [2]);
    assert_eq!(result.total[0].verdict, Verdict::Faster);
    assert!(result.is_regression() && result.is_inconclusive());
    let words = "b (time) has no value of point 2, which other workloads have";
    let mut warnings = result.warnings.iter();
    assert!(warnings.any(|w| w.contains(words)), "{:?}", result.warnings);
}

#[test]
fn workloads_that_share_no_block_leave_the_series_open() {
    let rows: [&[f64]; 4] = [
        &[100.0, 120.0],
        &[100.0, 120.2],
        &[100.0, 119.9],
        &[100.0, 120.1],
    ];
    let both = |second: &[&[f64]]| {
        let mut all = blocks("a", Meter::Time, &rows);
        let mut other = blocks("b", Meter::Time, second);
        other.iter_mut().for_each(|o| o.block += 10);
        all.extend(other);
        attribute(&header(1), &all, &margin).unwrap()
    };
    let result = both(&rows);
    let reason = result.patches[0].reason.as_deref();
    assert_eq!(reason, Some("no block has it on all workloads"));
    assert!(result.total.iter().all(|effect| effect.workload != SUITE));
    assert!(result.is_regression() && result.is_inconclusive());
    let calm: [&[f64]; 2] = [&[100.0, 99.0], &[100.0, 101.0]];
    assert!(both(&calm).is_regression());
}
