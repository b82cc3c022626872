//! Effects from earlier experiments.

use super::*;

/// `header` with an earlier experiment that has some of its points.
fn carrying(patches: usize, stale: Option<&str>) -> ExperimentHeader {
    let mut header = header(patches);
    header.reused = vec![ReusedFrom {
        experiment: "old".into(),
        started: "2026-01-02T03:04:05Z".into(),
        points: BTreeMap::from([(Point::BASE, Point::BASE), (Point::Step(1), Point::Step(1))]),
        stale: stale.map(str::to_owned),
    }];
    header
}

fn old(rows: &[&[f64]]) -> Vec<Observation> {
    let mut all = blocks("w", Meter::Time, rows);
    all.iter_mut().for_each(|o| o.experiment = "old".into());
    all
}

/// The release and point 2, point 1 being measured before.
fn second_only() -> Vec<Observation> {
    [
        (0, 100.0, 95.2),
        (1, 200.0, 190.0),
        (2, 50.0, 47.4),
        (3, 80.0, 76.0),
    ]
    .into_iter()
    .flat_map(|(block, base, full)| {
        [(0, base), (2, full)]
            .map(|(step, value)| observation("w", Meter::Time, block, Point::Step(step), value))
    })
    .collect()
}

#[test]
fn effects_of_points_measured_before_are_carried() {
    let rows: [&[f64]; 3] = [&[110.0, 100.0], &[220.2, 200.0], &[54.9, 50.0]];
    let mut all = second_only();
    all.extend(old(&rows));
    let result = attribute(&carrying(2, None), &all, &margin).unwrap();
    let first = in_order(&result, 1);
    assert_eq!(first.provenance, Some(Provenance::Reused("old".into())));
    assert_eq!((first.verdict, first.blocks), (Verdict::Faster, 3));
    // Blocks of different experiments are never compared: point 2 can only be compared with the release.
    let second = in_order(&result, 2);
    assert_eq!(second.against, Point::BASE);
    assert_eq!(second.provenance, Some(Provenance::Measured));
    assert_eq!(result.total[0].provenance, Some(Provenance::Measured));
    assert_eq!(result.sources[0].experiment, "old");
    assert_eq!(result.progress[0].done, 4);

    // Observations of this experiment come first.
    all.extend((0..4).map(|block| observation("w", Meter::Time, block, Point::Step(1), 90.0)));
    let result = attribute(&carrying(2, None), &all, &margin).unwrap();
    assert_eq!(in_order(&result, 1).provenance, Some(Provenance::Measured));
    assert_eq!(result.sources, []);
}

#[test]
fn stale_figures_are_shown_without_verdict() {
    let rows: [&[f64]; 3] = [&[110.0, 100.0], &[220.2, 200.0], &[54.9, 50.0]];
    let mut all = second_only();
    all.extend(old(&rows));
    let result = attribute(&carrying(2, Some("another machine")), &all, &margin).unwrap();
    let first = in_order(&result, 1);
    assert_eq!(first.provenance, Some(Provenance::Stale("old".into())));
    assert!((first.estimate - 0.1).abs() < 0.001);
    assert_eq!((first.verdict, first.p_value), (Verdict::Unclear, None));
    // It is not in the family of rows either.
    let second = in_order(&result, 2);
    assert_eq!(second.p_adjusted, second.p_value);
    assert!(result.is_inconclusive());
}

#[test]
fn a_stale_figure_does_not_take_an_effect_back() {
    let rows: [&[f64]; 3] = [&[110.0, 100.0], &[220.2, 200.0], &[54.9, 50.0]];
    let before = attribute(&header(1), &blocks("w", Meter::Time, &rows), &margin).unwrap();
    let slower: [&[f64]; 3] = [&[100.0, 100.1], &[200.0, 200.1], &[50.0, 50.0]];
    let no_longer_helps = |stale| {
        let now = attribute(&carrying(1, stale), &old(&slower), &margin).unwrap();
        let names = ["0001-x.patch"];
        let changes = changes(&before, Some(&now), names.into_iter());
        changes[0].no_longer_helps
    };
    assert!(no_longer_helps(None));
    assert!(!no_longer_helps(Some("another machine")));
}

#[test]
fn a_series_whose_binaries_are_all_known_needs_no_observation_of_its_own() {
    let rows: [&[f64]; 3] = [&[110.0, 100.0], &[220.2, 200.0], &[54.9, 50.0]];
    let result = attribute(&carrying(1, None), &old(&rows), &margin).unwrap();
    assert!(in_order(&result, 1).is_shown());
    assert_eq!(
        result.total[0].provenance,
        Some(Provenance::Reused("old".into()))
    );
    assert_eq!(result.noise.spread[0].blocks, 3);
    assert_eq!(result.workloads, ["w"]);
}

#[test]
fn what_no_figure_uses_is_counted_with_the_reason() {
    let mut header = header(3);
    header.failed.insert(Point::Step(2), "crashed".into());
    let mut all = blocks(
        "w",
        Meter::Time,
        &[&[10.0, 9.0, 8.0, 7.0], &[10.0, 9.1, 8.0, 7.0]],
    );
    // Alone in its block.
    all.push(observation("w", Meter::Time, 7, Point::Step(3), 7.0));
    let result = attribute(&header, &all, &margin).unwrap();
    let reported: Vec<(u64, &str)> = result
        .left_out
        .iter()
        .map(|left| (left.count, left.reason.as_str()))
        .collect();
    assert_eq!(
        reported,
        [
            (2, "point 2 failed"),
            (1, "the block lacks every point they are compared with"),
        ]
    );
}

#[test]
fn what_is_carried_from_has_an_end() {
    let mut header = carrying(1, None);
    let origin = header.reused.remove(0);
    header.reused = (0..2000)
        .map(|number| ReusedFrom {
            experiment: format!("old-{number}"),
            ..origin.clone()
        })
        .collect();
    let error = attribute(&header, &[], &margin).unwrap_err();
    assert!(error.to_string().contains("2000 experiments"), "{error}");
}
