//! Effects of groups of patches.

use std::num::NonZeroU32;

use super::*;

/// Twelve blocks of a first look over points 0, 8 and 15, then blocks of windows, with costs that are `cost` times the
/// release's.
fn observations(cost: &dyn Fn(usize) -> f64) -> Vec<Observation> {
    let windows: [&[usize]; 3] = [
        &[0, 8, 15],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0, 8, 9, 10, 11, 12, 13, 14, 15],
    ];
    let mut made = Vec::new();
    for block in 0..44u32 {
        let window = match block {
            0..12 => windows[0],
            block => windows[1 + (block as usize / 2) % 2],
        };
        for (place, &step) in window.iter().enumerate() {
            // A deterministic scatter that differs between the blocks' points and changes its sign from block to block.
            let scatter = ((block as f64 * 2.4 + place as f64 * 3.7).sin()) * 0.002;
            let value = 100.0 * cost(step) * (1.0 + scatter);
            made.push(observation(
                "w",
                Meter::Time,
                block,
                Point::Step(step),
                value,
            ));
        }
    }
    made
}

fn attributed(observations: &[Observation], resolution: Option<f64>) -> Attribution {
    let plan = PlannedBlocks {
        windows: NonZeroU32::new(2),
        first_look: NonZeroU32::new(12),
        resolution,
        min_blocks: resolution.map(|_| 10),
        ..PlannedBlocks::fixed("w", Meter::Time, 16)
    };
    let supplement = Supplement {
        planned: vec![plan],
        ..Supplement::default()
    };
    attribute_with(&header(15), observations, &supplement, &margin).unwrap()
}

#[test]
fn opposite_effects_in_a_group_are_in_their_own_rows() {
    // Patch 3 is 3 % faster and patch 4 takes it back; patch 12 stays.
    let cost = |step: usize| match step {
        3 => 0.97,
        12.. => 0.98,
        _ => 1.0,
    };
    let result = attributed(&observations(&cost), None);
    let groups: Vec<(usize, usize)> = result.groups.iter().map(|g| (g.first, g.last)).collect();
    assert_eq!(groups, [(1, 8), (9, 15)]);
    let [quiet, faster] = [0, 1].map(|group| &result.groups[group].effects[0]);
    assert_eq!(quiet.verdict, Verdict::NoEffect);
    assert_eq!(faster.verdict, Verdict::Faster);
    assert!((faster.estimate - 0.0204).abs() < 0.003, "{faster:?}");
    for (effect, against) in [(quiet, 0), (faster, 8)] {
        assert_eq!((effect.kind, effect.blocks), (EffectKind::Group, 12));
        assert_eq!(effect.against, Point::Step(against));
    }
    assert_eq!(in_order(&result, 3).verdict, Verdict::Faster);
    assert_eq!(in_order(&result, 4).verdict, Verdict::Slower);
    assert_eq!(in_order(&result, 12).verdict, Verdict::Faster);
    // The first look is part of the total.
    assert_eq!(result.total[0].blocks, 12 + 16);
}

#[test]
fn the_first_look_has_a_fixed_number_of_blocks() {
    let all = observations(&|_| 1.0);
    let early: Vec<Observation> = all.iter().filter(|of| of.block < 20).cloned().collect();
    let result = attributed(&early, Some(0.000_01));
    assert_eq!(in_order(&result, 1).interval, Interval::Anytime);
    assert_eq!(result.groups[0].effects[0].interval, Interval::Fixed);
    // Later blocks change nothing about it.
    assert_eq!(result.groups, attributed(&all, Some(0.000_01)).groups);
    let half: Vec<Observation> = all.iter().filter(|of| of.block < 9).cloned().collect();
    let result = attributed(&half, Some(0.000_01));
    assert_eq!(result.groups[0].effects[0].interval, Interval::Anytime);
}

#[test]
fn what_a_group_is_worth_is_no_effect_of_its_last_patch() {
    // Patch 3 costs 5 %.
    let all = observations(&|step| if step < 3 { 1.0 } else { 1.05 });
    let early: Vec<Observation> = all.iter().filter(|of| of.block < 12).cloned().collect();
    let result = attributed(&early, None);
    assert_eq!(result.groups[0].effects[0].verdict, Verdict::Slower);
    for patch in &result.patches {
        let is_in_order = |effect: &&Effect| effect.kind == EffectKind::InOrder;
        assert_eq!(patch.effects.iter().find(is_in_order), None);
        assert_eq!(patch.reason.as_deref(), Some("not measured so far"));
    }
    assert!(result.slower_patches().is_empty());
    // Its cumulative effect is that of all patches before it, too.
    let eighth = result.patches[7].effects.first().unwrap();
    assert_eq!((eighth.kind, eighth.blocks), (EffectKind::Cumulative, 12));
    assert_eq!(in_order(&attributed(&all, None), 8).against, Point::Step(7));
}

#[test]
fn a_first_look_neither_ends_an_experiment_nor_spares_a_workload() {
    let all = observations(&|_| 1.0);
    let before = |block: u32| -> Vec<Observation> {
        all.iter().filter(|of| of.block < block).cloned().collect()
    };
    // After the first look, the last patches of groups have narrow intervals, and the others have none.
    for blocks in [10, 12, 12 + 19] {
        let result = attributed(&before(blocks), Some(0.05));
        let stopping = result.stopping.clone().unwrap();
        assert!(stopping.open.is_empty() || blocks > 12, "{stopping:?}");
        assert!(!stopping.ended && !result.is_complete(), "{stopping:?}");
        assert!(stopping.needs_workload("w"), "{stopping:?}");
        assert!(stopping.expected >= Some(12 + 20 - blocks), "{stopping:?}");
        assert_eq!(result.total[0].interval, Interval::Anytime);
    }
    let result = attributed(&before(12 + 20), Some(0.05));
    let stopping = result.stopping.clone().unwrap();
    assert!(stopping.ended && result.is_complete(), "{stopping:?}");
    assert!(!stopping.needs_workload("w"), "{stopping:?}");
}

#[test]
fn a_prefix_of_the_series_is_no_effect_of_a_patch() {
    // Patch 3 costs 5 %, and point 8, at which the windows meet, crashes after its fourth block.
    let cost = |step: usize| if step < 3 { 1.0 } else { 1.05 };
    let mut all = observations(&cost);
    all.retain(|of| of.block >= 12 && (of.point != Point::Step(8) || of.block < 16));
    let plan = PlannedBlocks {
        windows: NonZeroU32::new(2),
        ..PlannedBlocks::fixed("w", Meter::Time, 16)
    };
    let supplement = Supplement {
        planned: vec![plan],
        ..Supplement::default()
    };
    let mut header = header(15);
    header.failed.insert(Point::Step(8), "crashed".into());
    let of = |all: &[Observation]| attribute_with(&header, all, &supplement, &margin).unwrap();
    let result = of(&all);
    let reasons = [8, 9, 10].map(|patch: usize| result.patches[patch - 1].reason.clone());
    let apart = "no block has it and point 7, the last before it with figures";
    assert_eq!(reasons, [Some("crashed".into()), Some(apart.into()), None]);
    let is_in_order = |effect: &&Effect| effect.kind == EffectKind::InOrder;
    assert_eq!(result.patches[8].effects.iter().find(is_in_order), None);
    let slower = result.slower_patches();
    assert_eq!(
        slower.iter().map(|patch| patch.index).collect::<Vec<_>>(),
        [3]
    );
    assert!(result.is_inconclusive());
    // The whole series shares blocks with the release.
    assert_eq!(result.total[0].verdict, Verdict::Slower);

    // Windows that are planned around the failed point have both.
    for block in 60..64 {
        for step in [0, 7, 9] {
            let value = 100.0 * cost(step) * (1.0 + 1e-4 * f64::from(block % 3));
            all.push(observation(
                "w",
                Meter::Time,
                block,
                Point::Step(step),
                value,
            ));
        }
    }
    let result = of(&all);
    assert_eq!(in_order(&result, 9).against, Point::Step(7));
    assert_eq!(in_order(&result, 9).blocks, 4);
}

#[test]
fn experiments_without_a_first_look_have_no_groups() {
    let all = observations(&|_| 1.0);
    assert!(
        attribute(&header(15), &all, &margin)
            .unwrap()
            .groups
            .is_empty()
    );
}
