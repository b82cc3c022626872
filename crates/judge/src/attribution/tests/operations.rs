//! Parts of workloads that clients time separately.

use super::*;

fn program() -> Vec<Observation> {
    let mut observations = blocks(
        "p",
        Meter::Time,
        &[
            &[100.0, 100.0, 100.0],
            &[101.0, 101.1, 101.0],
            &[99.0, 99.1, 99.0],
        ],
    );
    for (name, patched) in [("p/a", 0.5), ("p/b", 1.0)] {
        for block in 0..3 {
            let wobble = 1.0 + 0.001 * f64::from(block % 2);
            for (point, value) in [(0, 10.0), (1, 10.0 * patched * wobble), (2, 10.0 * wobble)] {
                let point = Point::Step(point);
                let mut one = observation(name, Meter::Time, block, point, value);
                one.n = 700;
                observations.push(one);
            }
        }
    }
    observations
}

#[test]
fn they_are_told_apart_and_count_for_nothing_else() {
    let result = attribute(&header(2), &program(), &margin).unwrap();
    assert_eq!(result.workloads, ["p"]);
    assert_eq!(result.main_workload(Meter::Time), Some("p"));
    let names: Vec<&str> = result
        .operations
        .iter()
        .map(|of| of.operation.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    let spread: Vec<&str> = result
        .noise
        .spread
        .iter()
        .map(|s| s.workload.as_str())
        .collect();
    assert_eq!(spread, ["p"]);
    assert!(
        result
            .progress
            .iter()
            .all(|progress| progress.workload == "p")
    );
    assert!(result.left_out.is_empty());
}

#[test]
fn they_are_carried_with_their_workload() {
    let mut all = program();
    all.iter_mut().for_each(|o| o.experiment = "old".into());
    let mut header = header(2);
    header.reused = vec![ReusedFrom {
        experiment: "old".into(),
        points: [0, 1, 2].map(|k| (Point::Step(k), Point::Step(k))).into(),
        ..ReusedFrom::default()
    }];
    let supplement = Supplement {
        planned: vec![PlannedBlocks::fixed("p", Meter::Time, 0)],
        ..Supplement::default()
    };
    let result = attribute_with(&header, &all, &supplement, &margin).unwrap();
    let names = result.operations.iter().map(|of| of.operation.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(result.workloads, ["p"]);
    let effect = &result.operations[0].effects[0];
    assert_eq!(effect.provenance, Some(Provenance::Reused("old".into())));
}

#[test]
fn in_order_and_all_patches_up_to_one_are_different_questions() {
    let result = attribute(&header(2), &program(), &margin).unwrap();
    let of = |kind, point| {
        let mut effects = result.operations[0].effects.iter();
        let found = effects.find(|e| e.kind == kind && e.point == Point::Step(point));
        found.unwrap().clone()
    };
    assert!((of(EffectKind::InOrder, 1).estimate - 1.0).abs() < 0.01);
    assert!((of(EffectKind::InOrder, 2).estimate + 0.5).abs() < 0.01);
    assert!(of(EffectKind::Cumulative, 2).estimate.abs() < 0.01);
    assert_eq!(of(EffectKind::Cumulative, 2).against, Point::BASE);
    assert_eq!(of(EffectKind::InOrder, 1).verdict, Verdict::Faster);
    assert!(of(EffectKind::InOrder, 1).p_adjusted.is_some());
}

#[test]
fn costs_are_those_of_one_transaction_and_say_how_many_there_are() {
    let result = attribute(&header(2), &program(), &margin).unwrap();
    let of = |name: &str, point| {
        let mut costs = result.costs.iter();
        let found = costs.find(|c| c.workload == name && c.point == Point::Step(point));
        found.unwrap().clone()
    };
    assert!((of("p", 0).estimate - (100.0f64 * 101.0 * 99.0).cbrt()).abs() < 1e-9);
    assert!(of("p", 0).low.unwrap() < 100.0 && of("p", 0).high.unwrap() > 100.0);
    assert_eq!(
        (of("p", 0).transactions, of("p/a", 0).transactions),
        (1.0, 7.0)
    );
    assert!((of("p/b", 0).estimate - 10.0).abs() < 1e-9);
}

#[test]
fn a_name_with_a_slash_is_a_workload_where_it_is_part_of_none() {
    let observations = blocks("size/10", Meter::Time, &[&[10.0, 9.0], &[10.0, 9.0]]);
    let result = attribute(&header(1), &observations, &margin).unwrap();
    assert_eq!(result.workloads, ["size/10"]);
    assert!(result.operations.is_empty());
}
