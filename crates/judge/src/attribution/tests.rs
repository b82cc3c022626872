use std::collections::BTreeMap;

use super::*;
use perfquilt_model::observation::{PlannedBlocks, ReusedFrom, WithinBlockError};
use perfquilt_model::point::Point;

mod carried;
mod counts;
mod laws;
mod machines;
mod operations;
mod stalls;
mod unexecuted;
mod unpaired;
mod verdicts;
mod warned;
mod with_control;

/// Returns the header of an experiment with `patches` patches.
pub(crate) fn header(patches: usize) -> ExperimentHeader {
    ExperimentHeader {
        schema: 1,
        experiment: "quick-1".into(),
        series: (1..=patches).map(|k| format!("{k:04}-x.patch")).collect(),
        titles: Vec::new(),
        release: "mariadb-10.11.18".into(),
        recipe: "quick".into(),
        base: None,
        machine: BTreeMap::new(),
        harness: "perfquilt test".into(),
        identical: BTreeMap::new(),
        line_numbers: Default::default(),
        unread: Default::default(),
        failed: BTreeMap::new(),
        failed_workloads: Vec::new(),
        start_timeouts: BTreeMap::new(),
        command: None,
        commit: None,
        bundle: None,
        started: String::new(),
        reused: Vec::new(),
    }
}

/// One observation.
pub(crate) fn observation(
    workload: &str,
    meter: Meter,
    block: u32,
    point: Point,
    value: f64,
) -> Observation {
    Observation {
        experiment: "quick-1".into(),
        n: 100,
        ..Observation::new(block, point, workload, meter, value)
    }
}

fn margin(meter: Meter) -> f64 {
    Meter::default_margin(meter)
}

/// Compares the words of the warning with this code, which must be there, with their snapshot.
fn assert_warned(of: &Attribution, code: u16) {
    let mut warnings = of.warnings.iter();
    let warning = warnings.find(|warning| warning.code().number == code);
    let warning = warning.unwrap_or_else(|| panic!("{code}: {:?}", of.warnings));
    insta::assert_snapshot!(format!("warning_{code}"), warning);
}

/// The codes of the warnings.
fn codes(of: &Attribution) -> Vec<u16> {
    let warnings = of.warnings.iter();
    warnings.map(|warning| warning.code().number).collect()
}

/// A block's costs by point: base, step 1, step 2, ….
fn blocks(workload: &str, meter: Meter, rows: &[&[f64]]) -> Vec<Observation> {
    (0..)
        .zip(rows)
        .flat_map(|(block, row)| {
            row.iter().enumerate().map(move |(point, &value)| {
                observation(workload, meter, block, Point::Step(point), value)
            })
        })
        .collect()
}

fn in_order(attribution: &Attribution, patch: usize) -> &Effect {
    let effects = &attribution.patches[patch - 1].effects;
    effects
        .iter()
        .find(|e| e.kind == EffectKind::InOrder)
        .unwrap()
}

#[test]
fn effects_are_speed_and_positive_is_faster() {
    let rows: [&[f64]; 3] = [&[110.0, 100.0], &[220.0, 200.0], &[55.0, 50.0]];
    let result = attribute(&header(1), &blocks("w", Meter::Time, &rows), &margin).unwrap();
    let effect = in_order(&result, 1);
    assert!((effect.estimate - 0.1).abs() < 1e-12);
    assert_eq!((effect.verdict, effect.blocks), (Verdict::Faster, 3));
    assert_eq!(
        (effect.point, effect.against),
        (Point::Step(1), Point::BASE)
    );
    assert_eq!(effect.workload, "w");
    assert_eq!(result.total[0].kind, EffectKind::Total);
    assert!((result.total[0].estimate - 0.1).abs() < 1e-12);
}

#[test]
fn verdicts_follow_the_interval_and_the_margin() {
    // Log ratios of ±s around m over 4 blocks: half-width 3.18 · s · √(4/3) / 2.
    let verdict = |mean: f64, spread: f64| {
        let rows: Vec<[f64; 2]> = [1.0, -1.0, 1.0, -1.0]
            .map(|sign: f64| [(mean + sign * spread).exp(), 1.0].map(|value| value / 0.3))
            .to_vec();
        let rows: Vec<&[f64]> = rows.iter().map(|row| row.as_slice()).collect();
        let result = attribute(&header(1), &blocks("w", Meter::Time, &rows), &margin).unwrap();
        in_order(&result, 1).verdict
    };
    assert_eq!(verdict(0.01, 0.001), Verdict::Faster);
    assert_eq!(verdict(-0.01, 0.001), Verdict::Slower);
    assert_eq!(verdict(0.001, 0.001), Verdict::NoEffect);
    assert_eq!(verdict(0.001, 0.01), Verdict::Unclear);
    // Excluding 0 comes before lying within the margin.
    assert_eq!(verdict(0.006, 0.000_1), Verdict::Faster);
    // A state 1 % away that all four starts of a server missed would make half a per cent.
    assert_eq!(verdict(0.002, 0.000_1), Verdict::NoEffect);
}

#[test]
fn what_no_digit_shows_is_no_claim() {
    let verdict = |gain: f64| {
        let row = [1.0 + gain, 1.0].map(|value| value / 0.3);
        let rows = vec![&row[..]; 24];
        let result = attribute(&header(1), &blocks("w", Meter::Time, &rows), &margin).unwrap();
        in_order(&result, 1).verdict
    };
    assert_eq!(verdict(1e-6), Verdict::NoEffect);
    assert_eq!(verdict(1e-3), Verdict::Faster);
}

#[test]
fn a_single_block_is_unclear_without_interval() {
    let result = attribute(
        &header(1),
        &blocks("w", Meter::Time, &[&[110.0, 100.0]]),
        &margin,
    )
    .unwrap();
    let effect = in_order(&result, 1);
    assert_eq!(effect.verdict, Verdict::Unclear);
    assert_eq!(
        (effect.low, effect.high, effect.minimum_detectable),
        (None, None, None)
    );
    let json = serde_json::to_value(effect).unwrap();
    assert!(json["low"].is_null() && json["estimate"].is_f64());
}

#[test]
fn identical_binaries_are_exactly_equal_and_carry_over() {
    let mut header = header(3);
    header.identical = BTreeMap::from([(Point::Step(2), Point::Step(1))]);
    let mut observations = Vec::new();
    for (block, noise) in (0..).zip([1.0, 1.001, 0.999]) {
        for (point, value) in [(0, 110.0), (1, 100.0 * noise), (3, 80.0)] {
            observations.push(observation(
                "w",
                Meter::Time,
                block,
                Point::Step(point),
                value,
            ));
        }
    }
    let result = attribute(&header, &observations, &margin).unwrap();
    let same = in_order(&result, 2);
    assert!(same.identical);
    assert_eq!(same.estimate.to_bits(), 0.0f64.to_bits());
    assert_eq!(
        (same.low, same.high, same.blocks),
        (Some(0.0), Some(0.0), 0)
    );
    assert_eq!(same.verdict, Verdict::NoEffect);
    assert_eq!(result.patches[1].identical_to, Some(Point::Step(1)));
    assert_eq!(result.patches[1].reason, None);
    // Patch 3 is compared with point 2, whose figures are those of point 1.
    let third = in_order(&result, 3);
    assert_eq!(third.against, Point::Step(2));
    assert!((third.estimate - 0.25).abs() < 1e-3);
}

#[test]
fn a_series_of_identical_binaries_needs_no_observation() {
    let mut header = header(1);
    header.identical = BTreeMap::from([(Point::Step(1), Point::BASE)]);
    let supplement = Supplement {
        planned: vec![PlannedBlocks::fixed("w", Meter::Time, 0)],
        ..Supplement::default()
    };
    let result = attribute_with(&header, &[], &supplement, &margin).unwrap();
    assert!(result.total[0].identical);
    assert!(!result.is_inconclusive());
}

#[test]
fn identity_in_a_circle_ends() {
    let mut header = header(2);
    header.identical = BTreeMap::from([
        (Point::Step(1), Point::Step(2)),
        (Point::Step(2), Point::Step(1)),
    ]);
    let result = attribute(&header, &[], &margin).unwrap();
    assert_eq!(result.patches.len(), 2);
    assert!(result.patches.iter().all(|patch| patch.effects.is_empty()));
}

#[test]
fn after_a_failed_patch_the_last_point_with_figures_counts() {
    let mut header = header(3);
    header.failed = BTreeMap::from([(Point::Step(2), "does not compile".into())]);
    let mut observations = Vec::new();
    for block in 0..3 {
        for (point, value) in [(0, 100.0), (1, 90.0), (3, 81.0)] {
            observations.push(observation(
                "w",
                Meter::Time,
                block,
                Point::Step(point),
                value,
            ));
        }
    }
    let result = attribute(&header, &observations, &margin).unwrap();
    assert!(result.patches[1].effects.is_empty());
    assert_eq!(
        result.patches[1].reason.as_deref(),
        Some("does not compile")
    );
    assert_eq!(in_order(&result, 3).against, Point::Step(1));
    assert!((in_order(&result, 3).estimate - 1.0 / 9.0).abs() < 1e-9);
    assert!(result.is_inconclusive());

    header.failed.insert(Point::Step(3), "crashed".into());
    let result = attribute(&header, &observations, &margin).unwrap();
    assert_eq!(result.total[0].point, Point::Step(1));

    header.failed.insert(Point::BASE, "crashed".into());
    let result = attribute(&header, &observations, &margin).unwrap();
    assert!(result.total.is_empty());
    assert_eq!(
        result.patches[0].reason.as_deref(),
        Some("no earlier point to compare with")
    );
}

#[test]
fn a_patch_with_the_binary_of_a_failed_point_failed_with_it() {
    let mut header = header(2);
    header.failed.insert(Point::Step(1), "crashed".into());
    header.identical.insert(Point::Step(2), Point::Step(1));
    let observations = [observation("a", Meter::Time, 0, Point::BASE, 500.0)];
    let result = attribute(&header, &observations, &margin).unwrap();
    assert_eq!(
        result.patches[1].reason.as_deref(),
        Some("point 1, the same binary, failed: crashed")
    );
}

#[test]
fn the_suite_is_the_geometric_mean_over_workloads_by_block() {
    let mut observations = blocks("a", Meter::Time, &[&[121.0, 100.0], &[121.0, 100.0]]);
    observations.extend(blocks(
        "b",
        Meter::Time,
        &[&[100.0, 100.0], &[100.0, 100.0]],
    ));
    // A block with a single workload has no value for the suite.
    observations.extend([
        observation("a", Meter::Time, 7, Point::BASE, 500.0),
        observation("a", Meter::Time, 7, Point::Step(1), 100.0),
    ]);
    let result = attribute(&header(1), &observations, &margin).unwrap();
    let suite = in_order(&result, 1);
    assert_eq!((suite.workload.as_str(), suite.blocks), (SUITE, 2));
    assert!((suite.estimate - 0.1).abs() < 1e-9);
    assert_eq!(result.main_workload(Meter::Time), Some(SUITE));
    let names: Vec<&str> = result.patches[0]
        .effects
        .iter()
        .filter(|effect| effect.kind == EffectKind::InOrder)
        .map(|effect| effect.workload.as_str())
        .collect();
    assert_eq!(names, [SUITE, "a", "b"]);
}

#[test]
fn alone_and_without_are_told_when_they_were_measured() {
    let mut observations = Vec::new();
    for block in 0..3 {
        for (point, value) in [
            (Point::BASE, 100.0),
            (Point::Step(1), 90.0),
            (Point::Step(2), 80.0),
            (Point::Alone(2), 95.0),
            (Point::Without(1), 88.0),
        ] {
            // With digits that hide nothing.
            let value = value / 0.3;
            observations.push(observation("w", Meter::Time, block, point, value));
        }
    }
    let result = attribute(&header(2), &observations, &margin).unwrap();
    let of = |patch: usize, kind: EffectKind| {
        let effects = &result.patches[patch - 1].effects;
        effects.iter().find(|effect| effect.kind == kind)
    };
    assert!((of(2, EffectKind::Alone).unwrap().estimate - (100.0 / 95.0 - 1.0)).abs() < 1e-9);
    assert!((of(1, EffectKind::Without).unwrap().estimate - (88.0 / 80.0 - 1.0)).abs() < 1e-9);
    assert!(of(1, EffectKind::Alone).is_none() && of(2, EffectKind::Without).is_none());
    // In order 100/90 against 88/80 without it.
    let more = (100.0 / 90.0) / (88.0 / 80.0) - 1.0;
    let interaction = of(1, EffectKind::Interaction).unwrap();
    assert!((interaction.estimate - more).abs() < 1e-9);
    assert_eq!(interaction.verdict, Verdict::Faster);
}

#[test]
fn the_last_patch_is_worth_the_same_in_order_and_without() {
    let mut header = header(2);
    header.identical.insert(Point::Without(2), Point::Step(1));
    let observations = blocks(
        "w",
        Meter::Time,
        &[&[100.0, 90.0, 80.0], &[101.0, 92.0, 79.0]],
    );
    let result = attribute(&header, &observations, &margin).unwrap();
    let of = |kind: EffectKind| {
        let effects = &result.patches[1].effects;
        effects.iter().find(|effect| effect.kind == kind).unwrap()
    };
    assert_eq!(
        of(EffectKind::Without).estimate,
        of(EffectKind::InOrder).estimate
    );
    assert!(of(EffectKind::Interaction).identical);
}

#[test]
fn one_striking_patch_among_many_is_not_believed() {
    // Its p-value is 2 %: with 20 patches, one such is expected.
    let chance = [0.002, 0.006, 0.006, 0.010, 0.003];
    let mut observations = Vec::new();
    for (block, chance) in (0..).zip(chance) {
        for point in 0..=20 {
            // The others differ from the release by noise only.
            let own = 0.0001 * f64::from((block * 7 + point * 13) % 5);
            let gain = if point == 0 { 0.0 } else { chance };
            let value = 100.0 * (own - gain).exp();
            let point = Point::Step(usize::try_from(point).unwrap());
            observations.push(observation("w", Meter::Time, block, point, value));
        }
    }
    let result = attribute(&header(20), &observations, &margin).unwrap();
    let first = in_order(&result, 1);
    assert!(first.leaves_out_zero(), "{first:?}");
    assert_ne!(first.verdict, Verdict::Faster, "{first:?}");
    let (raw, adjusted) = (first.p_value.unwrap(), first.p_adjusted.unwrap());
    // It is the smallest of twenty.
    assert!((adjusted - 20.0 * raw).abs() < 1e-9, "{raw} {adjusted}");
    // Without other patches the same figures are significant.
    let observations: Vec<Observation> = observations
        .into_iter()
        .filter(|o| matches!(o.point, Point::Step(0 | 1)))
        .collect();
    let result = attribute(&header(1), &observations, &margin).unwrap();
    assert_eq!(in_order(&result, 1).verdict, Verdict::Faster);
}

#[test]
fn a_control_that_misses_zero_is_said() {
    let mut observations = Vec::new();
    for (block, noise) in (0..).zip([1.0, 1.001, 0.999, 1.0]) {
        observations.push(observation(
            "w",
            Meter::Time,
            block,
            Point::BASE,
            100.0 * noise,
        ));
        observations.push(observation("w", Meter::Time, block, Point::Step(1), 100.0));
        observations.push(observation("w", Meter::Time, block, Point::Control, 99.0));
    }
    let result = attribute(&header(1), &observations, &margin).unwrap();
    assert_eq!(result.noise.control[0].contains_zero, Some(false));
    assert_warned(&result, 758);
}

#[test]
fn a_restart_is_what_the_slices_leave_of_the_spread() {
    let rows: [&[f64]; 4] = [
        &[100.0, 101.0],
        &[100.0, 99.0],
        &[100.0, 101.0],
        &[100.0, 99.0],
    ];
    let supplement = Supplement {
        within: vec![WithinBlockError {
            workload: "w".into(),
            meter: Meter::Time,
            sd: 0.005,
        }],
        ..Supplement::default()
    };
    let observations = blocks("w", Meter::Time, &rows);
    let result = attribute_with(&header(1), &observations, &supplement, &margin).unwrap();
    let spread = &result.noise.spread[0];
    let (block, restart) = (spread.block_sd.unwrap(), spread.restart_sd.unwrap());
    assert!((block * block - restart * restart - 0.005 * 0.005).abs() < 1e-12);
}

#[test]
fn misfits_are_refused() {
    let mut observations = blocks("w", Meter::Time, &[&[100.0, 99.0]]);
    observations.push(observation("w", Meter::Time, 0, Point::BASE, 98.0));
    let error = attribute(&header(1), &observations, &margin).unwrap_err();
    assert!(error.message().contains("twice"), "{error}");
    for (point, value) in [(2, 1.0), (0, f64::NAN), (0, -1.0), (0, 0.0)] {
        let one = observation("w", Meter::Time, 0, Point::Step(point), value);
        assert!(
            attribute(&header(1), &[one], &margin).is_err(),
            "{point} {value}"
        );
    }
}

#[test]
fn meters_agree_only_when_one_explains_the_other() {
    let effect = |meter: Meter, estimate: f64, half: f64, verdict: Verdict| Effect {
        kind: EffectKind::InOrder,
        workload: "w".into(),
        meter,
        point: Point::Step(1),
        against: Point::BASE,
        estimate,
        low: Some(estimate - half),
        high: Some(estimate + half),
        level: 0.95,
        interval: StoppingRule::FixedSample,
        standard_error: Some(half / 2.0),
        verdict,
        minimum_detectable: Some(half),
        equivalent: false,
        p_value: None,
        p_adjusted: None,
        error_share: None,
        blocks: 9,
        units: 9,
        identical: false,
        executed: true,
        unpaired: false,
        with_control: false,
        tail: None,
        cells: None,
        withheld: None,
        provenance: None,
        basis: None,
        of_blocks: None,
        ended_half_width: None,
        run: None,
    };
    use Verdict::{Faster, NoEffect, Slower, Unclear};
    for (time, instructions, expected) in [
        ((0.01, Faster), (0.008, Faster), Some(Agreement::Both)),
        ((0.009, Faster), (0.0005, Faster), Some(Agreement::TimeOnly)),
        (
            (0.009, Faster),
            (-0.0005, Slower),
            Some(Agreement::TimeOnly),
        ),
        ((0.01, Faster), (-0.008, Slower), Some(Agreement::Opposite)),
        ((0.01, Faster), (0.0, NoEffect), Some(Agreement::TimeOnly)),
        ((0.01, Faster), (0.0, Unclear), None),
        (
            (0.0, Unclear),
            (0.008, Faster),
            Some(Agreement::InstructionsOnly),
        ),
        ((0.0, NoEffect), (0.0, NoEffect), None),
    ] {
        let time = effect(Meter::Time, time.0, 0.001, time.1);
        let instructions = effect(Meter::Instructions, instructions.0, 0.0001, instructions.1);
        assert_eq!(Agreement::of(&time, &instructions), expected, "{time:?}");
    }
}

/// Ten blocks of two patches on two workloads; `spread` is how far log costs of point 1 lie from their
/// mean, on workload `b`.
fn spread_out(spread: f64) -> Vec<Observation> {
    let mut all = Vec::new();
    for block in 0..10u32 {
        let sign = if block % 2 == 0 { 1.0 } else { -1.0 };
        for (workload, spread) in [("a", 0.001), ("b", spread)] {
            for (point, cost) in [(0, 1.0), (1, 1.0 + sign * spread), (2, 1.0)] {
                let point = Point::Step(point);
                all.push(observation(workload, Meter::Time, block, point, 1e5 * cost));
            }
        }
    }
    all
}

fn stopping_of(observations: &[Observation], blocks: u32) -> (Attribution, Stopping) {
    stopping_by(observations, blocks, false)
}

/// Judges observations whose experiment an earlier version may have `ended`.
fn stopping_by(observations: &[Observation], blocks: u32, ended: bool) -> (Attribution, Stopping) {
    let supplement = Supplement {
        planned: ["a", "b"]
            .map(|workload| PlannedBlocks {
                min_blocks: Some(8),
                resolution: Some(0.005),
                ended,
                ..PlannedBlocks::fixed(workload, Meter::Time, blocks)
            })
            .to_vec(),
        ..Supplement::default()
    };
    let result = attribute_with(&header(2), observations, &supplement, &margin).unwrap();
    let stopping = result.stopping.clone().unwrap();
    (result, stopping)
}

#[test]
fn what_is_known_well_enough_is_left_out() {
    // ±0.09 % on `a`, ±0.8 % on `b`, ±0.43 % on both together.
    let (result, stopping) = stopping_of(&spread_out(0.01), 40);
    let open: Vec<(&str, Point)> = stopping
        .open
        .iter()
        .map(|open| (open.workload.as_str(), open.point))
        .collect();
    assert_eq!(open, [("b", Point::Step(1)), ("b", Point::Step(2))]);
    assert!(stopping.needs_workload("b") && !stopping.needs_workload("a"));
    assert!(!stopping.ended && !result.is_complete() && result.is_inconclusive());
    assert!(
        (8..16).contains(&stopping.expected.unwrap()),
        "{stopping:?}"
    );
    assert_eq!(in_order(&result, 1).interval, StoppingRule::Anytime);
    assert!((in_order(&result, 1).level - 0.99).abs() < 1e-12);
}

#[test]
fn an_experiment_ends_by_its_widths_or_its_budget() {
    let (result, stopping) = stopping_of(&spread_out(0.004), 40);
    assert!(stopping.open.is_empty() && stopping.ended && result.is_complete());
    assert_eq!(in_order(&result, 1).interval, StoppingRule::FixedWidth);
    // Ten blocks were all there may be.
    let (result, stopping) = stopping_of(&spread_out(0.01), 10);
    assert!(!stopping.open.is_empty() && stopping.ended && result.is_complete());
    assert_eq!(in_order(&result, 1).interval, StoppingRule::FixedWidth);
    // Before the first block there are no figures, and the experiment has not ended.
    let (result, stopping) = stopping_of(&[], 10);
    assert!(!stopping.ended && !result.is_complete());
    assert_eq!((stopping.widest, stopping.expected), (None, None));
    assert!(stopping.needs_workload("a") && stopping.open.is_empty());
}

#[test]
fn what_an_earlier_rule_ended_stays_ended_and_says_so() {
    let (result, stopping) = stopping_by(&spread_out(0.01), 40, true);
    assert!(stopping.ended && stopping.earlier_rule && result.is_complete());
    assert!(!stopping.needs_workload("b") && !stopping.open.is_empty());
    assert_eq!(in_order(&result, 1).interval, StoppingRule::FixedWidth);
    assert_warned(&result, 765);
    // Today's rule would have ended this one, too.
    let (result, stopping) = stopping_by(&spread_out(0.004), 40, true);
    assert!(stopping.ended && !stopping.earlier_rule && result.warnings.is_empty());
}

#[test]
fn widths_decide_and_estimates_do_not() {
    let shifted: Vec<Observation> = spread_out(0.01)
        .into_iter()
        .map(|mut observation| {
            if observation.point == Point::Step(1) {
                observation.value *= 1.3;
            }
            observation
        })
        .collect();
    let (_, calm) = stopping_of(&spread_out(0.01), 40);
    let (_, shifted) = stopping_of(&shifted, 40);
    assert_eq!(calm.open, shifted.open);
    assert_eq!(calm.expected, shifted.expected);
}

/// Observations of an end-to-end block: the release and the whole series.
fn direct(block: u32, base: f64, full: f64, last: usize) -> [Observation; 2] {
    [(Point::BASE, base), (Point::Step(last), full)].map(|(point, value)| Observation {
        direct: true,
        ..observation("w", Meter::Time, block, point, value)
    })
}

#[test]
fn the_total_is_checked_against_blocks_of_its_own() {
    let rows: [&[f64]; 3] = [
        &[110.0, 105.0, 100.0],
        &[220.2, 209.0, 200.0],
        &[54.9, 52.0, 50.0],
    ];
    let mut all = blocks("w", Meter::Time, &rows);
    let without = attribute(&header(2), &all, &margin).unwrap();
    assert_eq!(without.end_to_end, []);
    // The same numbers as other blocks: they are counted apart.
    all.extend(direct(0, 110.1, 100.0, 2));
    all.extend(direct(1, 109.8, 100.0, 2));
    all.extend(direct(2, 110.0, 100.0, 2));
    let with = attribute(&header(2), &all, &margin).unwrap();
    assert_eq!(with.patches, without.patches);
    assert_eq!(with.total, without.total);
    assert_eq!(with.progress, without.progress);
    let check = with.main_end_to_end(Meter::Time).unwrap();
    assert_eq!(check.total.estimate, with.total[0].estimate);
    assert!((check.direct.estimate - 0.1).abs() < 0.001);
    assert_eq!((check.direct.blocks, check.consistent), (3, Some(true)));
    assert_eq!(codes(&with), [0; 0]);

    // The interval would contain 0 for a direct total of 0, too.
    let mut wide = blocks("w", Meter::Time, &rows);
    wide.extend(direct(0, 120.0, 100.0, 2));
    wide.extend(direct(1, 100.0, 100.0, 2));
    let wide = attribute(&header(2), &wide, &margin).unwrap();
    let check = wide.main_end_to_end(Meter::Time).unwrap();
    assert_eq!((check.low.is_some(), check.consistent), (true, None));
    assert_eq!(codes(&wide), [0; 0]);

    // Half of the effect is not there when the two are alone.
    let mut apart = blocks("w", Meter::Time, &rows);
    for block in 0..4 {
        apart.extend(direct(block, 105.0 + 0.01 * f64::from(block), 100.0, 2));
    }
    let apart = attribute(&header(2), &apart, &margin).unwrap();
    let check = apart.main_end_to_end(Meter::Time).unwrap();
    assert_eq!(check.consistent, Some(false));
    assert!((check.difference - (1.1 / 1.05 - 1.0)).abs() < 0.002);
    assert_warned(&apart, 760);
}

#[test]
fn the_end_to_end_check_of_an_unfinished_experiment_holds_at_every_look() {
    let noise = |number: u32| 1e-3 * f64::from(number * 5 % 11);
    let mut all = Vec::new();
    for block in 0..12u32 {
        for (place, cost) in [(0, 110.0), (1, 105.0), (2, 100.0)] {
            let value = cost * noise(block * 3 + place).exp();
            let point = Point::Step(place as usize);
            all.push(observation("w", Meter::Time, block, point, value));
        }
    }
    for block in 0..8 {
        let (base, full) = (noise(2 * block), noise(2 * block + 1));
        all.extend(direct(block, 109.6 * base.exp(), 100.0 * full.exp(), 2));
    }
    let width = |blocks: u32| {
        let supplement = Supplement {
            planned: vec![PlannedBlocks::fixed("w", Meter::Time, blocks)],
            ..Supplement::default()
        };
        let result = attribute_with(&header(2), &all, &supplement, &margin).unwrap();
        let check = result.main_end_to_end(Meter::Time).unwrap();
        check.high.unwrap() - check.low.unwrap()
    };
    assert!(width(40) > 1.5 * width(12), "{} {}", width(40), width(12));
}
