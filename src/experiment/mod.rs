//! Experiments: randomised blocks over all points, planned purely, carried out by an
//! [`executor::Executor`], stored block by block, resumed where they stopped.

pub mod executor;
mod fleet;
pub mod identity;
pub mod machine;
mod note;
pub mod plan;
mod private;
mod progress;
mod runner;
#[cfg(test)]
mod simulation;
mod stopping;

use std::collections::BTreeMap;

use crate::attribution::Stopping;
use crate::build::Built;
use crate::config::{Preset, Workload};
use crate::error::{Error, Result};
use crate::meter::Counter;
use crate::observation::{ExperimentHeader, Meter, Planned};
use crate::point::Point;
use crate::progress::Progress;
use crate::store::{ExperimentId, Store};
use crate::workspace::Workspace;

use machine::{Candidate, Setup, ThisMachine};
use plan::{Scope, plan};
use runner::Runner;

/// What an experiment came to.
#[derive(Debug)]
pub struct Outcome {
    /// Where its observations are.
    pub id: ExperimentId,
    /// Points that could not be measured to the end this time, with the whole error; the stored
    /// header has them with the reason in one line.
    pub failed: BTreeMap<Point, Error>,
}

/// The meters that are read from slices; the others are counted.
pub fn is_timed(meter: Meter) -> bool {
    matches!(meter, Meter::Time | Meter::Cpu)
}

/// Measures the built `points` as `preset` says, going on where an earlier run of the same experiment
/// stopped. `header` names series, release and recipe, and the points that could not be built;
/// machine, harness and identical points are filled in. A second server of the base joins as
/// [`Point::Control`].
///
/// Points that fail alone are in the outcome; whoever calls decides what that means.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) for wrong settings or missing tools;
/// [`Kind::Bench`](crate::error::Kind::Bench) when the base itself or a workload fails;
/// [`Kind::Interrupted`](crate::error::Kind::Interrupted), everything finished being kept.
pub fn run(
    ws: &Workspace,
    preset: &Preset,
    points: &[(Point, Built)],
    header: ExperimentHeader,
    store: &Store,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let distinct = distinct(points, &header)?;
    run_on(ws, preset, points, distinct, header, store, progress)
}

/// Measures `base` against copies of itself, one in the place of each patch of `header`'s series.
///
/// # Errors
/// As [`run`].
pub(crate) fn against_itself(
    ws: &Workspace,
    preset: &Preset,
    base: &Built,
    header: ExperimentHeader,
    store: &Store,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let points: Vec<(Point, Built)> = (0..=header.series.len())
        .map(|k| (Point::Step(k), base.clone()))
        .collect();
    let mut candidates: Candidates = points
        .iter()
        .map(|(point, built)| (*point, candidate(*point, built, &header)))
        .collect();
    candidates.insert(Point::Control, candidate(Point::Control, base, &header));
    let distinct = (candidates, BTreeMap::new());
    run_on(ws, preset, &points, distinct, header, store, progress)
}

fn run_on(
    ws: &Workspace,
    preset: &Preset,
    points: &[(Point, Built)],
    (candidates, identical): (Candidates, BTreeMap<Point, Point>),
    header: ExperimentHeader,
    store: &Store,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let workloads: Vec<&Workload> = preset
        .workloads
        .iter()
        .map(|name| ws.config.workload(name))
        .collect::<Result<_>>()?;
    let timed: Vec<Meter> = meters(preset, is_timed);
    let mut counted: Vec<Meter> = meters(preset, |meter| !is_timed(meter));
    let counter = (!counted.is_empty()).then(Counter::detect).transpose()?;
    if let Some(counter) = &counter {
        counted.retain(|meter| {
            let known = counter.meters().contains(meter);
            if !known {
                progress.warn(&format!(
                    "{meter} cannot be read with {}",
                    counter.describe()
                ));
            }
            known
        });
    }
    let mut header = header;
    header.identical = identical;
    header.machine = identity::machine_facts(counter.as_ref());
    header.harness = identity::harness(ws, counter.as_ref())?;
    let key = identity::key(ws, &header, preset, &workloads, points)?;
    let id = store.begin(&header, &key)?;
    let planned = stopping::plan(store, id, planned(preset, &timed, &counted))?;

    let measured: Vec<Point> = candidates.keys().copied().collect();
    let blocks_of = |meters: &[Meter], blocks| if meters.is_empty() { 0 } else { blocks };
    let blocks = plan(&Scope {
        seed: identity::seed(&key),
        points: &measured,
        workloads: &preset.workloads,
        blocks: blocks_of(&timed, preset.blocks),
        count_blocks: blocks_of(&counted, preset.count_blocks),
    });
    let margin = |meter| ws.config.margin(meter);
    let mut runner = Runner::new(store, id, &timed, &counted, &workloads, planned, &margin)?;
    // With the base and its control alone, every point is the same binary or nothing was built.
    if measured.len() < 3 || runner.is_complete(&blocks)? {
        return Ok(Outcome {
            id,
            failed: BTreeMap::new(),
        });
    }
    let setup = Setup {
        candidates,
        workloads,
        block_seconds: preset.block_seconds,
        release: header.release.clone(),
        binary: ws.config.recipe(&preset.recipe)?.binary.clone(),
        count_meters: counted.clone(),
    };
    let mut machine = ThisMachine::new(ws, setup, progress)?;
    let (failed, end) = runner.drive(&blocks, preset.block_seconds, &mut machine, progress);
    if !failed.is_empty() {
        for (point, error) in &failed {
            header.failed.insert(*point, error.to_string());
        }
        store.begin(&header, &key)?;
    }
    end.map(|()| Outcome { id, failed })
}

/// Which of `points` and `workloads` the next block is measured with, in the state `stopping`; no
/// workload at the end.
pub(crate) fn needed(
    points: &[Point],
    workloads: &[String],
    stopping: &Stopping,
) -> (Vec<Point>, Vec<String>) {
    let block = plan::Block {
        number: 0,
        reading: plan::Reading::Timed,
        points: points.to_vec(),
        workloads: workloads.to_vec(),
        seed: 0,
    };
    let block = stopping::needed(block, stopping, &BTreeMap::new());
    (block.points, block.workloads)
}

fn meters(preset: &Preset, wanted: impl Fn(Meter) -> bool) -> Vec<Meter> {
    Meter::ALL
        .into_iter()
        .filter(|meter| preset.meters.contains(meter) && wanted(*meter))
        .collect()
}

fn planned(preset: &Preset, timed: &[Meter], counted: &[Meter]) -> Vec<Planned> {
    let mut all = Vec::new();
    for workload in &preset.workloads {
        for (place, &meter) in timed.iter().enumerate() {
            all.push(Planned {
                min_blocks: preset.min_blocks(),
                resolution: preset.resolution.filter(|_| place == 0),
                ..Planned::fixed(workload, meter, preset.blocks)
            });
        }
        for &meter in counted {
            all.push(Planned::fixed(workload, meter, preset.count_blocks));
        }
    }
    all
}

/// The servers to measure, one for each different binary and the control.
type Candidates = BTreeMap<Point, Candidate>;

/// What to measure, and which other points are the same server as which of those.
fn distinct(
    points: &[(Point, Built)],
    header: &ExperimentHeader,
) -> Result<(Candidates, BTreeMap<Point, Point>)> {
    let mut sorted: Vec<&(Point, Built)> = points
        .iter()
        .filter(|(point, _)| *point != Point::Control)
        .collect();
    sorted.sort_by_key(|(point, _)| *point);
    let Some((Point::BASE, base)) = sorted.first() else {
        return Err(Error::bench(
            "the release itself was not built, so there is nothing to compare with",
        ));
    };
    let mut first: BTreeMap<&str, Point> = BTreeMap::new();
    let mut candidates = BTreeMap::new();
    let mut identical = BTreeMap::new();
    for (point, built) in &sorted {
        match first.get(built.identity.as_str()) {
            Some(&same) => {
                identical.insert(*point, same);
            }
            None => {
                first.insert(&built.identity, *point);
                candidates.insert(*point, candidate(*point, built, header));
            }
        }
    }
    candidates.insert(Point::Control, candidate(Point::Control, base, header));
    Ok((candidates, identical))
}

fn candidate(point: Point, built: &Built, header: &ExperimentHeader) -> Candidate {
    let patch = match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => {
            k.checked_sub(1).and_then(|index| header.series.get(index))
        }
        Point::Control => None,
    };
    Candidate {
        label: match patch {
            Some(patch) => format!("{point} ({patch})"),
            None => format!("{point} (the release)"),
        },
        dir: built.dir.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(point: usize, identity: &str) -> (Point, Built) {
        let built = Built {
            key: format!("key-{point}"),
            dir: format!("/{point}").into(),
            identity: identity.into(),
            seconds: crate::build::BuildSeconds::default(),
            compiled_units: 0,
            cached: true,
        };
        (Point::Step(point), built)
    }

    #[test]
    fn the_same_binary_is_measured_once_and_the_base_twice() {
        let points = [built(0, "a"), built(1, "b"), built(2, "b"), built(3, "a")];
        let (candidates, identical) =
            distinct(&points, &ExperimentHeader::new("toy-1", "quick")).unwrap();
        let measured: Vec<Point> = candidates.keys().copied().collect();
        assert_eq!(measured, [Point::Step(0), Point::Step(1), Point::Control]);
        assert_eq!(
            candidates[&Point::Control].dir,
            candidates[&Point::BASE].dir
        );
        assert_eq!(
            identical,
            BTreeMap::from([
                (Point::Step(2), Point::Step(1)),
                (Point::Step(3), Point::Step(0))
            ])
        );
    }

    #[test]
    fn without_a_base_there_is_nothing_to_compare_with() {
        assert!(distinct(&[built(1, "b")], &ExperimentHeader::new("toy-1", "quick")).is_err());
    }
}
