//! Experiments that several machines measured.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::stats::Symptom;

/// Sixteen blocks of the release, its control and a patch without effect on each of so many machines. Restarts vary by
/// 0.8 %, and what the patch is worth by `tau` from machine to machine.
fn observations(random: &mut StdRng, machines: u32, tau: f64, named: bool) -> Vec<Observation> {
    let mut normal = || -> f64 { (0..12).map(|_| random.random_range(-0.5..0.5)).sum() };
    let mut made = Vec::new();
    for machine in 0..machines {
        let own = tau * normal();
        for block in machine * 16..machine * 16 + 16 {
            for (point, worth) in [
                (Point::BASE, 0.0),
                (Point::Control, 0.0),
                (Point::Step(1), own),
            ] {
                let value = 1000.0 * (worth + 0.008 * normal()).exp();
                made.push(Observation {
                    machine: named.then(|| format!("n{machine}")),
                    ..observation("w", Meter::Time, block, point, value)
                });
            }
        }
    }
    made
}

fn covered(machines: u32, tau: f64, named: bool) -> f64 {
    let mut random = StdRng::seed_from_u64(u64::from(machines));
    let experiments = 150;
    let mut held = 0;
    for _ in 0..experiments {
        let observations = observations(&mut random, machines, tau, named);
        let result = attribute(&header(1), &observations, &margin).unwrap();
        let effect = in_order(&result, 1);
        held += u32::from(!effect.leaves_out_zero());
    }
    f64::from(held) / f64::from(experiments)
}

#[test]
fn from_six_machines_on_intervals_hold_for_other_machines_too() {
    for machines in [6, 10] {
        let share = covered(machines, 0.003, true);
        assert!(
            (0.91..0.99).contains(&share),
            "{machines} machines: {share}"
        );
    }
    // Blocks as units would promise too much, even if what changes with the machine widens some intervals.
    let pooled = covered(10, 0.003, false);
    assert!(pooled < 0.94, "{pooled}");
}

#[test]
fn an_unhealthy_machine_is_left_out_and_reported() {
    let mut random = StdRng::seed_from_u64(11);
    let mut all = observations(&mut random, 8, 0.0, true);
    // One machine is noisy, and finds the patch worth a tenth.
    for (number, of) in all
        .iter_mut()
        .filter(|of| of.machine.as_deref() == Some("n3"))
        .enumerate()
    {
        let noise = if number % 2 == 0 { 1.1 } else { 0.9 };
        of.value *= noise * if of.point == Point::Step(1) { 0.9 } else { 1.0 };
    }
    let found = attribute(&header(1), &all, &margin).unwrap();
    let [excluded] = &found.noise.excluded_machines[..] else {
        panic!("{:?}", found.noise.excluded_machines);
    };
    assert_eq!((excluded.machine.as_str(), excluded.blocks), ("n3", 16));
    assert!(
        matches!(excluded.reason, Symptom::Spread(factor) if factor > 3.0),
        "{excluded:?}"
    );
    let effect = in_order(&found, 1);
    assert!(
        effect.units == 7 && effect.estimate.abs() < 0.005,
        "{effect:?}"
    );
    assert!(!found.noise.total_with_excluded.is_empty());
    assert_warned(&found, 761);
    // Blocks that were measured count as done.
    assert!(
        found.progress.iter().all(|of| of.done == 128),
        "{:?}",
        found.progress
    );
}

#[test]
fn costs_are_known_as_well_as_machines_are_alike() {
    let mut random = StdRng::seed_from_u64(15);
    let mut all = observations(&mut random, 8, 0.0, true);
    for of in &mut all {
        // Each machine is 2 % slower than the one before it.
        of.value *= 1.0 + 0.02 * f64::from(of.block / 16);
    }
    let width = |all: &[Observation]| {
        let result = attribute(&header(1), all, &margin).unwrap();
        result.costs[0].high.unwrap() / result.costs[0].low.unwrap() - 1.0
    };
    let machines = width(&all);
    all.iter_mut().for_each(|of| of.machine = None);
    assert!(machines > 3.0 * width(&all), "{machines}");
}

#[test]
fn counts_of_unlike_machines_are_one_value_each() {
    // Three counted blocks on each machine, on which the patch saves up to 1 % of the instructions.
    let counted = |machines: u32| {
        let mut made = Vec::new();
        for block in 0..machines * 3 {
            let machine = block / 3;
            let saved = 0.002 * f64::from(machine % 6);
            for (place, point) in (0..).zip([Point::BASE, Point::Control, Point::Step(1)]) {
                let own = if point == Point::Step(1) { saved } else { 0.0 };
                let noise = 1e-6 * f64::from((block * 7 + place * 5) % 11);
                made.push(Observation {
                    machine: Some(format!("n{machine}")),
                    ..observation(
                        "w",
                        Meter::Instructions,
                        block,
                        point,
                        1e6 * (noise - own).exp(),
                    )
                });
            }
        }
        let result = attribute(&header(1), &made, &margin).unwrap();
        in_order(&result, 1).clone()
    };
    let [few, six] = [5, 6].map(counted);
    assert_eq!((few.units, six.units), (15, 6));
    assert_eq!(six.blocks, 18);
    // The standard deviation of six machines, 0.37 %, by the square root of six.
    assert!(
        (six.standard_error.unwrap() - 0.001_53).abs() < 2e-5,
        "{six:?}"
    );
}

#[test]
fn what_servers_use_excludes_no_machine() {
    let mut random = StdRng::seed_from_u64(14);
    let mut all = observations(&mut random, 8, 0.0, true);
    // Servers write as often in every block, and one machine has a write in the background now and then.
    let writes = all.clone().into_iter().map(|of| {
        let is_one = of.machine.as_deref() == Some("n3") && of.point == Point::Step(1);
        let value = if is_one {
            40.0 + f64::from(1 + of.block % 2) / 100.0
        } else {
            40.0
        };
        let meter = Meter::ServerWrites;
        let unit = meter.unit().into();
        Observation {
            meter,
            unit,
            value,
            ..of
        }
    });
    let writes: Vec<Observation> = writes.collect();
    all.extend(writes);
    let found = attribute(&header(1), &all, &margin).unwrap();
    assert_eq!(found.noise.excluded_machines, []);
    assert_eq!(in_order(&found, 1).units, 8);
}

#[test]
fn a_control_that_hardly_differs_excludes_no_machine() {
    let excluded = |difference: f64| {
        let mut made = Vec::new();
        for block in 0..32u32 {
            let machine = block / 8;
            for point in [Point::BASE, Point::Control, Point::Step(1)] {
                let is_one = machine == 3 && point == Point::Control;
                let own = if is_one { difference } else { 0.0 };
                made.push(Observation {
                    machine: Some(format!("n{machine}")),
                    ..observation("w", Meter::Time, block, point, 1000.0 * (1.0 + own))
                });
            }
        }
        let found = attribute(&header(1), &made, &margin).unwrap();
        found.noise.excluded_machines.len()
    };
    assert_eq!((excluded(1e-4), excluded(1e-3)), (0, 1));
}

/// Blocks that go on until intervals are as narrow as `resolution`.
fn until(resolution: f64) -> Supplement {
    Supplement {
        planned: vec![PlannedBlocks {
            min_blocks: Some(8),
            resolution: Some(resolution),
            ..PlannedBlocks::fixed("w", Meter::Time, 10_000)
        }],
        ..Supplement::default()
    }
}

#[test]
fn a_machine_that_is_left_out_does_not_decide_whether_measuring_has_ended() {
    let mut random = StdRng::seed_from_u64(13);
    let stopping = |observations: &[Observation], resolution: f64| {
        let supplement = until(resolution);
        let header = header(1);
        let mut collector = Collector::new(&header, &supplement).unwrap();
        for observation in observations {
            collector.add(observation).unwrap();
        }
        (collector.stopping().unwrap(), collector.finish(&margin))
    };
    let without = |observations: &[Observation]| -> Vec<Observation> {
        let others = observations.iter();
        let others = others.filter(|of| of.machine.as_deref() != Some("n3"));
        others.cloned().collect()
    };
    // One machine's control differs, or its values are noisy.
    for (control, noise) in [(0.9, 0.0), (1.0, 0.1)] {
        let mut all = observations(&mut random, 8, 0.0, true);
        let of_one = all.iter_mut();
        let of_one = of_one.filter(|of| of.machine.as_deref() == Some("n3"));
        for (number, of) in of_one.enumerate() {
            let sign = if number % 2 == 0 { 1.0 } else { -1.0 };
            let own = if of.point == Point::Control {
                control
            } else {
                1.0
            };
            of.value *= own * (1.0 + sign * noise);
        }
        let widest = |observations: &[Observation]| {
            let widest = stopping(observations, 1e-6).0.widest;
            widest.unwrap()
        };
        let between = (widest(&all) * widest(&without(&all))).sqrt();
        for resolution in [between, 1e-6, 0.5] {
            let (measuring, result) = stopping(&all, resolution);
            assert_eq!(result.noise.excluded_machines.len(), 1);
            assert_eq!(result.stopping, Some(measuring.clone()));
            assert_eq!(result.is_complete(), measuring.ended);
            let expected = if measuring.ended {
                StoppingRule::FixedWidth
            } else {
                StoppingRule::Anytime
            };
            assert_eq!(in_order(&result, 1).interval, expected);
            assert_eq!(in_order(&result, 1).units, 7);
        }
    }
}

#[test]
fn a_machine_on_which_a_patch_is_worth_more_stays() {
    let mut random = StdRng::seed_from_u64(12);
    let mut all = observations(&mut random, 8, 0.0, true);
    for of in all
        .iter_mut()
        .filter(|of| of.machine.as_deref() == Some("n3") && of.point == Point::Step(1))
    {
        of.value *= 0.8;
    }
    let found = attribute(&header(1), &all, &margin).unwrap();
    assert!(
        found.noise.excluded_machines.is_empty(),
        "{:?}",
        found.noise.excluded_machines
    );
    assert_eq!(in_order(&found, 1).units, 8);
}

#[test]
fn a_report_says_which_machines_its_intervals_hold_for() {
    let mut random = StdRng::seed_from_u64(7);
    let of = |random: &mut StdRng, machines, tau| {
        let observations = observations(random, machines, tau, true);
        attribute(&header(1), &observations, &margin).unwrap()
    };
    let few = of(&mut random, 3, 0.0);
    let [noise] = &few.noise.machines[..] else {
        panic!("{:?}", few.noise.machines);
    };
    assert_eq!((noise.machines.len(), noise.units), (3, false));
    assert!(noise.p_value > 0.01, "{noise:?}");
    assert_eq!(in_order(&few, 1).units, 48);
    let warns = |of: &Attribution| codes(of).contains(&762);
    assert!(!warns(&few), "{:?}", few.warnings);
    let unlike = of(&mut random, 8, 0.03);
    let noise = &unlike.noise.machines[0];
    assert!(
        noise.units && noise.p_value < 0.001 && noise.between_sd > 0.006,
        "{noise:?}"
    );
    assert_eq!(in_order(&unlike, 1).units, 8);
    assert_warned(&unlike, 762);
    assert!(of(&mut random, 1, 0.0).noise.machines.is_empty());
}

#[test]
fn blocks_are_forecast_on_the_same_machines() {
    let mut random = StdRng::seed_from_u64(22);
    let mut stopping = |tau, resolution| {
        let supplement = until(resolution);
        let observations = observations(&mut random, 8, tau, true);
        let result = attribute_with(&header(1), &observations, &supplement, &margin).unwrap();
        result.stopping.unwrap()
    };
    // A mean of 16 blocks varies by 0.8 % × √(1.5 / 16) = 0.24 %; eight of them are known to ±0.23 %.
    let alike = stopping(0.0, 0.0018);
    assert!(!alike.open.is_empty());
    let expected = alike.expected.unwrap();
    assert!((20..1000).contains(&expected), "{alike:?}");
    // Eight machines that differ by 1 % never reach it.
    let unlike = stopping(0.01, 0.0018);
    assert!(!unlike.open.is_empty());
    assert_eq!(unlike.expected, None, "{unlike:?}");
}
