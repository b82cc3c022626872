//! Patches whose code a workload does not execute.

use super::*;
use perfquilt_model::observation::{Statistic, UnexecutedPatch};

fn record(point: usize, against: usize, workload: &str) -> UnexecutedPatch {
    UnexecutedPatch {
        point: Point::Step(point),
        against: Point::Step(against),
        workload: workload.into(),
        functions: 1,
    }
}

fn supplement(unexecuted: &[UnexecutedPatch], resolution: Option<f64>) -> Supplement {
    let plan = |workload: &str| PlannedBlocks {
        resolution,
        min_blocks: resolution.map(|_| 4),
        ..PlannedBlocks::fixed(workload, Meter::Time, 8)
    };
    Supplement {
        planned: vec![plan("v"), plan("w")],
        unexecuted: unexecuted.to_vec(),
        ..Supplement::default()
    }
}

/// Eight blocks of a workload; each point is 1 % faster than the one before it.
fn timed(workload: &str, points: &[Point]) -> Vec<Observation> {
    let mut all = Vec::new();
    for block in 0..8u32 {
        for (place, &point) in (0u32..).zip(points) {
            let noise = f64::from((block * 7 + place * 5) % 11) * 1e-4;
            let gain = match point {
                Point::Step(k) => 0.01 * k as f64,
                _ => 0.0,
            };
            let cost = 1e5 * (noise - gain).exp();
            all.push(observation(workload, Meter::Time, block, point, cost));
        }
    }
    all
}

const STEPS: [Point; 4] = [Point::BASE, Point::Step(1), Point::Step(2), Point::Control];

fn effect<'a>(
    result: &'a Attribution,
    patch: usize,
    kind: EffectKind,
    workload: &str,
) -> &'a Effect {
    let mut effects = result.patches[patch - 1].effects.iter();
    effects
        .find(|effect| effect.kind == kind && effect.workload == workload)
        .unwrap()
}

#[test]
fn a_patch_is_exactly_without_effect_where_it_is_not_executed() {
    let mut observations = timed("w", &STEPS);
    observations.extend(timed("v", &[STEPS[0], STEPS[2], STEPS[3]]));
    let supplement = supplement(&[record(1, 0, "v")], None);
    let result = attribute_with(&header(2), &observations, &supplement, &margin).unwrap();
    let first = effect(&result, 1, EffectKind::InOrder, "v");
    assert!(!first.executed && !first.identical);
    assert_eq!(
        (first.estimate, first.low, first.high),
        (0.0, Some(0.0), Some(0.0))
    );
    assert_eq!(
        (first.verdict, first.p_value, first.p_adjusted),
        (Verdict::NoEffect, None, None)
    );
    assert!(!effect(&result, 1, EffectKind::Cumulative, "v").executed);
    // The other rows alone are judged together: single workloads with a fifth of the error.
    let family = |workloads: &[&str]| -> f64 {
        let of =
            |workload: &&str| [1, 2].map(|k| effect(&result, k, EffectKind::InOrder, workload));
        let effects = workloads.iter().flat_map(of);
        effects.filter_map(|effect| effect.error_share).sum()
    };
    assert!((family(&["w", "v"]) - 0.2).abs() < 1e-9);
    assert!((family(&[SUITE]) - 0.8).abs() < 1e-9);
    // Over both workloads it is worth half of what it is on the other one.
    let ln = |effect: &Effect| effect.estimate.ln_1p();
    let suite = effect(&result, 1, EffectKind::InOrder, SUITE);
    let single = effect(&result, 1, EffectKind::InOrder, "w");
    assert!(suite.executed && single.executed);
    assert!((ln(suite) - ln(single) / 2.0).abs() < 1e-12);
    let half = |effect: &Effect| effect.basis.unwrap().half_width;
    assert!((half(suite) - half(single) / 2.0).abs() < 1e-12);
    // The second patch is compared with the release and its control, which are the first point's program.
    let second = effect(&result, 2, EffectKind::InOrder, "v");
    assert_eq!(
        (second.point, second.against),
        (Point::Step(2), Point::Step(1))
    );
    let total = result
        .total
        .iter()
        .find(|effect| effect.workload == "v")
        .unwrap();
    assert!((second.estimate - total.estimate).abs() < 1e-12);
    assert!((half(second) - half(total)).abs() < 1e-12);
    assert!(result.left_out.is_empty(), "{:?}", result.left_out);
    assert!(!codes(&result).contains(&767), "{:?}", result.warnings);
    // A cost is shown only where it was measured.
    let cost = |workload: &str| {
        let mut costs = result.costs.iter();
        costs.any(|of| of.workload == workload && of.point == Point::Step(1))
    };
    assert!(cost("w") && !cost("v"));
    assert!(!result.is_inconclusive());
}

#[test]
fn a_workload_without_executed_patches_needs_no_values() {
    let observations = timed("w", &STEPS);
    let supplement = supplement(&[record(1, 0, "v"), record(2, 1, "v")], None);
    let result = attribute_with(&header(2), &observations, &supplement, &margin).unwrap();
    for patch in [1, 2] {
        assert!(!effect(&result, patch, EffectKind::InOrder, "v").executed);
        assert!(effect(&result, patch, EffectKind::InOrder, SUITE).executed);
    }
    let total = |workload: &str| {
        result
            .total
            .iter()
            .find(|of| of.workload == workload)
            .unwrap()
    };
    assert!(!total("v").executed);
    let ln = |effect: &Effect| effect.estimate.ln_1p();
    assert!((ln(total(SUITE)) - ln(total("w")) / 2.0).abs() < 1e-12);
    assert!(result.is_complete());
    assert!(
        result
            .noise
            .control
            .iter()
            .all(|of| of.effect.workload != "v")
    );
    assert!(result.costs.iter().all(|of| of.workload != "v"));
}

#[test]
fn slow_slices_that_happen_to_agree_are_known_no_better_over_all_workloads() {
    let mut observations = timed("w", &STEPS);
    for of in &mut observations {
        // The second patch's share differs from the first one's by the same in every block.
        let (share, common) = match of.point {
            Point::Step(1) => (0.03, true),
            Point::Step(2) => (0.02, true),
            _ => (0.03, false),
        };
        let own = f64::from(of.block * if common { 3 } else { 5 } % 7) * 1e-3;
        of.slow = Some(share + own);
    }
    let supplement = supplement(&[record(1, 0, "v"), record(2, 1, "v")], None);
    let result = attribute_with(&header(2), &observations, &supplement, &margin).unwrap();
    let half = |workload: &str| {
        let effect = effect(&result, 2, EffectKind::InOrder, workload);
        let slow = effect.tail.as_ref().unwrap().get(Statistic::Slow).unwrap();
        (slow.high.unwrap() - slow.low.unwrap()) / 2.0
    };
    assert!(half("w") > 1e-3, "{}", half("w"));
    // The workload that executes neither patch has equal values.
    assert!((half(SUITE) - half("w") / 2.0).abs() < 1e-9);
}

#[test]
fn what_is_not_executed_keeps_no_experiment_going() {
    let stopping = |unexecuted: &[UnexecutedPatch], observations: &[Observation]| {
        let supplement = supplement(unexecuted, Some(1e-5));
        let result = attribute_with(&header(2), observations, &supplement, &margin).unwrap();
        result.stopping.unwrap()
    };
    let mut observations = timed("w", &STEPS);
    observations.truncate(20);
    let mut all = observations.clone();
    all.extend(timed("v", &STEPS).into_iter().take(20));
    let open = stopping(&[], &all);
    assert!(open.needs_workload("v") && open.needs_workload("w"));
    assert!(open.open.iter().all(|of| of.unexecuted.is_empty()));
    let none = stopping(&[record(1, 0, "v"), record(2, 1, "v")], &observations);
    assert!(!none.needs_workload("v") && none.needs_workload("w"));
    assert!(none.open.iter().all(|of| of.workload != "v"));
    let begun = stopping(&[record(1, 0, "v"), record(2, 1, "v")], &[]);
    assert!(!begun.ended && begun.needs_workload("w"));
    // Without anything to time, nothing is waited for.
    let records = ["v", "w"].map(|name| [record(1, 0, name), record(2, 1, name)]);
    let ended = stopping(&records.concat(), &[]);
    assert!(ended.ended && ended.open.is_empty());
}

#[test]
fn counts_are_what_was_counted() {
    let mut observations = timed("w", &STEPS);
    let counts = timed("w", &STEPS).into_iter().map(|of| Observation {
        meter: Meter::Instructions,
        unit: Meter::Instructions.unit().into(),
        ..of
    });
    observations.extend(counts);
    let supplement = Supplement {
        unexecuted: vec![record(1, 0, "w")],
        ..Supplement::default()
    };
    let result = attribute_with(&header(2), &observations, &supplement, &margin).unwrap();
    let of = |meter: Meter| {
        let mut effects = result.patches[0].effects.iter();
        effects
            .find(|of| of.kind == EffectKind::InOrder && of.meter == meter)
            .unwrap()
    };
    assert!(!of(Meter::Time).executed && of(Meter::Instructions).executed);
    assert!(of(Meter::Instructions).estimate > 0.005);
}

#[test]
fn records_that_mean_nothing_are_refused() {
    for (point, against) in [(1, 1), (1, 2)] {
        let supplement = supplement(&[record(point, against, "w")], None);
        let error = attribute_with(&header(2), &[], &supplement, &margin).unwrap_err();
        assert!(error.message().contains("not an earlier point"), "{error}");
    }
}

/// Six counts of a workload, in which the first patch costs a fraction of the instructions.
fn counted(workload: &str, cost: f64) -> Vec<Observation> {
    let mut all = Vec::new();
    for block in 0..6u32 {
        for (place, &point) in (0u32..).zip(&STEPS) {
            let noise = f64::from((block * 7 + place * 5) % 11) * 1e-6;
            let patched = matches!(point, Point::Step(k) if k >= 1);
            let cost = 1e6 * (1.0 + noise + if patched { cost } else { 0.0 });
            all.push(observation(
                workload,
                Meter::Instructions,
                block,
                point,
                cost,
            ));
        }
    }
    all
}

#[test]
fn counts_are_not_executed_either_unless_they_contradict() {
    let result = |cost: f64| {
        let mut observations = timed("w", &STEPS);
        observations.extend(timed("v", &[STEPS[0], STEPS[2], STEPS[3]]));
        observations.extend(counted("w", cost));
        observations.extend(counted("v", cost));
        let supplement = supplement(&[record(1, 0, "v")], None);
        attribute_with(&header(2), &observations, &supplement, &margin).unwrap()
    };
    let of = |result: &Attribution, workload: &str| {
        let mut effects = result.patches[0].effects.iter();
        let found = effects.find(|effect| {
            (effect.kind, effect.meter) == (EffectKind::InOrder, Meter::Instructions)
                && effect.workload == workload
        });
        let found = found.unwrap();
        (found.executed, found.estimate)
    };
    let same = result(0.0);
    assert_eq!(of(&same, "v"), (false, 0.0));
    assert!(of(&same, "w").0);
    let contradicts = |result: &Attribution| {
        let codes = codes(result).into_iter();
        codes.filter(|code| *code == 756).count()
    };
    assert_eq!(contradicts(&same), 0);
    // Counts beyond the margin are never hidden.
    let other = result(0.01);
    let (executed, estimate) = of(&other, "v");
    assert!(executed && estimate < -0.009, "{estimate}");
    assert_eq!(contradicts(&other), 1, "{:?}", other.warnings);
    assert_warned(&other, 756);
}

#[test]
fn a_patch_whose_binary_differs_without_its_code_is_known() {
    let unchanged = |functions: u64| {
        let mut observations = timed("w", &[STEPS[0], STEPS[2], STEPS[3]]);
        observations.extend(timed("v", &[STEPS[0], STEPS[2], STEPS[3]]));
        let records = ["v", "w"].map(|workload| UnexecutedPatch {
            functions,
            ..record(1, 0, workload)
        });
        let supplement = supplement(&records, None);
        let result = attribute_with(&header(2), &observations, &supplement, &margin).unwrap();
        result
            .patches
            .iter()
            .map(|patch| patch.code_unchanged)
            .collect::<Vec<_>>()
    };
    assert_eq!(unchanged(0), [true, false]);
    assert_eq!(unchanged(3), [false, false]);
}
