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

/// An experiment of two workloads with these gains of the patch.
fn on_two_workloads(gains: [f64; 2]) -> Attribution {
    let mut all = Vec::new();
    for (workload, gain) in ["a", "b"].into_iter().zip(gains) {
        for block in 0..12u32 {
            for (point, gain) in [(0, 0.0), (1, gain)] {
                let noise = 0.001 * f64::from((block * 7 + point * 5) % 11);
                let (point, value) = (Point::Step(point as usize), 1e6 * (noise - gain).exp());
                all.push(observation(workload, Meter::Time, block, point, value));
            }
        }
    }
    attribute(&header(1), &all, &margin).unwrap()
}

#[test]
fn a_patch_that_helps_here_and_harms_there_is_mixed() {
    let of = |gains| {
        let result = on_two_workloads(gains);
        let suite = in_order(&result, 1).clone();
        assert_eq!(suite.workload, SUITE);
        assert_eq!(suite.verdict, result.total[0].verdict);
        let own = suite.own_verdict();
        (own, suite.verdict, result.is_regression(), suite.cells)
    };
    use Verdict::{Faster, Mixed, NoEffect, Slower, Unclear};
    let (own, verdict, regression, cells) = of([0.02, -0.02]);
    assert_eq!((own, verdict, regression), (Unclear, Mixed, true));
    let cells = cells.unwrap();
    assert_eq!(
        (&cells.faster[..], &cells.slower[..]),
        (&["a".to_owned()][..], &["b".to_owned()][..])
    );
    // The gain is larger, and no loss is less of a loss for it.
    let (own, verdict, regression, _) = of([0.06, -0.02]);
    assert_eq!((own, verdict, regression), (Faster, Mixed, true));
    let (own, verdict, regression, _) = of([0.02, -0.06]);
    assert_eq!((own, verdict, regression), (Slower, Mixed, true));
    let (own, verdict, regression, _) = of([0.0, -0.015]);
    assert_eq!((own, verdict, regression), (Slower, Slower, true));
    let (own, verdict, regression, _) = of([0.03, 0.03]);
    assert_eq!((own, verdict, regression), (Faster, Faster, false));
    let (own, verdict, regression, cells) = of([0.0, 0.0]);
    assert_eq!(
        (own, verdict, regression, cells),
        (NoEffect, NoEffect, false, None)
    );
}

#[test]
fn no_effect_over_all_workloads_needs_it_on_each() {
    let gains = |one: f64| {
        let mut all = Vec::new();
        for workload in 0..8u32 {
            for block in 0..11u32 {
                for point in 0..2u32 {
                    let noise = 0.002 * f64::from((block * 7 + point * 5 + workload) % 11);
                    // The other workloads make up for it.
                    let gain = if workload == 3 { one } else { -one / 7.0 };
                    let gain = f64::from(point) * gain;
                    let value = 1e6 * (noise / 3.0 - gain).exp();
                    let name = format!("w{workload}");
                    let point = Point::Step(point as usize);
                    all.push(observation(&name, Meter::Time, block, point, value));
                }
            }
        }
        let result = attribute(&header(1), &all, &margin).unwrap();
        let suite = in_order(&result, 1);
        assert_eq!(suite.workload, SUITE);
        assert!(suite.estimate.abs() < 0.001);
        suite.own_verdict()
    };
    assert_eq!(gains(0.0), Verdict::NoEffect);
    // Over all workloads there is none, and one loses more than the margin.
    assert_eq!(gains(-0.012), Verdict::Unclear);
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
    assert_warned(&result, 767);
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
