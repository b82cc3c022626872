//! Measured experiments with planted faults, each of which breaks an assumption of the intervals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::disturbance::{Disturbance, following};
use crate::random::Noise;
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, Observation, ObservationFile};
use perfquilt_model::point::Point;

/// How often each fault is planted into an experiment.
pub(crate) const DRAWS: usize = 15;

/// A fault, as `scenarios.json` describes it. The true effect of every copy stays 0.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Scenario {
    name: String,
    every: Disturbance,
    /// What happens to the server of the first copy besides.
    one: Disturbance,
    /// The step of values, as a fraction of the workload's first one; 0 for none.
    step: f64,
}

/// What the rules made of experiments with a planted fault.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Planted {
    /// The fault.
    pub scenario: String,
    /// Experiments with the fault, several from each measured one.
    pub experiments: u32,
    /// Those that call a copy faster or slower.
    pub false_claims: u32,
    /// Intervals of copies.
    pub intervals: u32,
    /// Intervals that contain 0.
    pub held: u32,
}

/// Plants each fault into copies of experiment `number`, and adds what `judge` makes of them to `found`.
pub(crate) fn plant(
    found: &mut Vec<Planted>,
    (number, file): (u32, &ObservationFile),
    meter: Meter,
    judge: &dyn Fn(&ObservationFile) -> Result<Attribution>,
) -> Result<()> {
    let scenarios: Vec<Scenario> = serde_json::from_str(include_str!("scenarios.json"))
        .map_err(|error| Error::internal(format!("scenarios.json: {error}")))?;
    found.resize_with(scenarios.len(), Planted::default);
    for (scenario, found) in scenarios.into_iter().zip(found) {
        for draw in 0..DRAWS {
            let mut noise = Noise::of(u64::from(number), &scenario.name, draw);
            let planted = ObservationFile {
                header: file.header.clone(),
                supplement: file.supplement.clone(),
                observations: scenario.planted(&file.observations, meter, &mut noise),
            };
            let judged = crate::judged(&judge(&planted)?);
            found.experiments += 1;
            found.false_claims += u32::from(judged.faster + judged.slower > 0);
            found.intervals += judged.intervals;
            found.held += judged.held;
        }
        found.scenario = scenario.name;
    }
    Ok(())
}

impl Scenario {
    /// Returns the observations with the values of `meter` in a random order of blocks, to each of which the fault does what it
    /// would have done in that place. A server's deviations from its block's mean stay those that were measured.
    fn planted(
        &self,
        observations: &[Observation],
        meter: Meter,
        noise: &mut Noise,
    ) -> Vec<Observation> {
        let (measured, mut all): (Vec<_>, Vec<_>) = observations
            .iter()
            .cloned()
            .partition(|o| o.meter == meter && !o.direct);
        let mut workloads: BTreeMap<&str, BTreeMap<u32, BTreeMap<Point, &Observation>>> =
            BTreeMap::new();
        for o in &measured {
            let blocks = workloads.entry(&o.workload).or_default();
            blocks.entry(o.block).or_default().insert(o.point, o);
        }
        for places in workloads.into_values() {
            let mut sources: Vec<_> = places.values().collect();
            let first = sources.first().and_then(|block| block.values().next());
            let step = self.step * first.map_or(0.0, |o| o.value);
            noise.shuffle(&mut sources);
            let begins = self.one.begins(sources.len() as u32, noise);
            let (mut walk, mut errors) = (0.0, BTreeMap::new());
            for (number, (place, source)) in (0..).zip(places.values().zip(sources)) {
                let logs = source.values().map(|o| o.value.ln());
                let mean = logs.sum::<f64>() / source.len() as f64;
                let shift = self.every.shift(&mut walk, noise);
                for (point, &o) in source {
                    let mut serial = self.every.serial;
                    let mut log = mean + shift + self.every.cost(number, 0, noise);
                    if *point == Point::Step(1) {
                        serial = serial.max(self.one.serial);
                        log += self.one.cost(number, begins, noise);
                    }
                    let fresh = o.value.ln() - mean;
                    let error = errors
                        .get(point)
                        .map_or(fresh, |before| following(*before, serial, fresh));
                    errors.insert(*point, error);
                    let Some(place) = place.get(point) else {
                        continue;
                    };
                    all.push(moved(o, place, (log + error).exp(), step));
                }
            }
        }
        all
    }
}

/// Returns an observation at the place of another, with a value that is a multiple of `step`, if that is not 0.
fn moved(o: &Observation, place: &Observation, value: f64, step: f64) -> Observation {
    let rounded = |value: f64| match step {
        0.0 => value,
        step => (value / step).round().max(1.0) * step,
    };
    let factor = value / o.value;
    Observation {
        value: rounded(value),
        mean: o.mean.map(|mean| rounded(mean * factor)),
        p99: o.p99.map(|p99| rounded(p99 * factor)),
        n: o.n,
        slow: o.slow,
        stalled: o.stalled,
        layout: o.layout,
        ..place.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of 3 servers that vary independently by 1 %, in 4000 blocks.
    fn measured() -> Vec<Observation> {
        let mut noise = Noise::of(1, "measured", 0);
        let mut all = Vec::new();
        for block in 0..4000 {
            for step in 0..3 {
                let value = 100.0 * (0.01 * noise.normal()).exp();
                let o = Observation::new(block, Point::Step(step), "w", Meter::Time, value);
                all.push(Observation {
                    order: step as u32,
                    mean: Some(2.0 * value),
                    ..o
                });
            }
        }
        all
    }

    /// The planted deviations of a server from the mean of the two others, in the order of blocks.
    fn deviations(scenario: &Scenario, step: usize) -> Vec<f64> {
        let planted = scenario.planted(&measured(), Meter::Time, &mut Noise::of(2, "fault", 0));
        let mut blocks = vec![0.0; 4000];
        for o in &planted {
            assert_eq!(Point::Step(o.order as usize), o.point);
            assert!((o.mean.unwrap() / o.value - 2.0).abs() < 1e-9);
            let share = if o.point == Point::Step(step) {
                1.0
            } else {
                -0.5
            };
            blocks[o.block as usize] += share * o.value.ln();
        }
        assert_eq!(planted.len(), 12_000);
        blocks
    }

    fn moments(values: &[f64]) -> (f64, f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let of = |lag: usize| {
            let pairs = values.iter().zip(&values[lag..]);
            pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / n
        };
        (mean, of(0).sqrt(), of(1) / of(0))
    }

    #[test]
    fn a_fault_changes_what_it_names_and_keeps_the_noise() {
        let scenario = |json: &str| serde_json::from_str::<Scenario>(json).unwrap();
        let (mean, sd, lag) = moments(&deviations(&scenario("{}"), 1));
        assert!(mean.abs() < 1e-3 && (sd / 0.0122 - 1.0).abs() < 0.05 && lag.abs() < 0.05);
        let serial = scenario(r#"{"one": {"serial": 0.9}}"#);
        let (mean, sd, lag) = moments(&deviations(&serial, 1));
        assert!(
            mean.abs() < 4e-3 && (sd / 0.0122 - 1.0).abs() < 0.25,
            "{mean} {sd}"
        );
        assert!((0.6..0.9).contains(&lag), "{lag}");
        let (.., untouched) = moments(&deviations(&serial, 2));
        assert!(untouched < lag / 2.0, "{untouched}");
        let rare = scenario(r#"{"one": {"share": 0.05, "size": 0.2}}"#);
        let values = deviations(&rare, 1);
        let hit = values.iter().filter(|value| **value > 0.1).count();
        assert!(
            (140..260).contains(&hit) && moments(&values).0.abs() < 3e-3,
            "{hit}"
        );
        let while_off = scenario(r#"{"one": {"during": 6, "size": 1.0}}"#);
        let values = deviations(&while_off, 1);
        let first = values.iter().position(|value| *value > 0.5).unwrap();
        let off: Vec<usize> = (0..4000).filter(|block| values[*block] > 0.5).collect();
        assert_eq!(off, (first..first + 6).collect::<Vec<_>>());
    }

    #[test]
    fn steps_leave_few_values_and_other_meters_stay() {
        let mut all = measured();
        all.truncate(30);
        let count = Observation::new(0, Point::BASE, "w", Meter::Instructions, 7.0);
        all.push(count.clone());
        let scenario = Scenario {
            step: 0.5,
            ..Scenario::default()
        };
        let planted = scenario.planted(&all, Meter::Time, &mut Noise::of(2, "fault", 0));
        assert!(planted.contains(&count));
        let step = 0.5 * all[0].value;
        let timed = planted.iter().filter(|o| o.meter == Meter::Time);
        assert!(
            timed
                .map(|o| o.value / step)
                .all(|steps| (steps - 2.0).abs() < 1e-9)
        );
    }
}
