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

use std::collections::BTreeMap;

use crate::build::Built;
use crate::config::{Preset, Workload};
use crate::error::{Error, Result};
use crate::meter::Counter;
use crate::observation::{ExperimentHeader, Meter, Planned, SCHEMA};
use crate::point::Point;
use crate::progress::Progress;
use crate::store::{ExperimentId, Store};
use crate::workspace::Workspace;

use machine::{Candidate, Setup, ThisMachine};
use plan::{Scope, plan};
use runner::Runner;

/// A built server to measure as a point.
#[derive(Debug, Clone)]
pub struct Measurable {
    /// The point.
    pub point: Point,
    /// For people: the release, or the patch that makes the point.
    pub label: String,
    /// The server.
    pub built: Built,
}

/// What an experiment is of.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// The release, for example `mariadb-10.11.18`.
    pub release: String,
    /// The recipe the points were built with.
    pub recipe: String,
    /// The series' patches in order.
    pub series: Vec<String>,
    /// Their titles.
    pub titles: Vec<String>,
    /// Points that could not be built, with the reason in one line.
    pub failed: BTreeMap<Point, String>,
}

/// The meters that are read from slices; the others are counted.
pub fn is_timed(meter: Meter) -> bool {
    matches!(meter, Meter::Time | Meter::Cpu)
}

/// Measures the built `points` as `preset` says, going on where an earlier run of the same experiment
/// stopped, and returns where the observations are. A second server of the base joins as
/// [`Point::Control`].
///
/// Points that fail alone are in the stored header; whoever calls decides what that means.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) for wrong settings or missing tools;
/// [`Kind::Bench`](crate::error::Kind::Bench) when the base itself or a workload fails;
/// [`Kind::Interrupted`](crate::error::Kind::Interrupted), everything finished being kept.
pub fn run(
    ws: &Workspace,
    preset: &Preset,
    points: &[Measurable],
    subject: &Subject,
    store: &Store,
    progress: &dyn Progress,
) -> Result<ExperimentId> {
    let workloads: Vec<&Workload> = preset
        .workloads
        .iter()
        .map(|name| ws.config.workload(name))
        .collect::<Result<_>>()?;
    let (candidates, identical) = distinct(points)?;
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
    let mut header = ExperimentHeader {
        schema: SCHEMA,
        experiment: identity::name(subject),
        series: subject.series.clone(),
        titles: subject.titles.clone(),
        release: subject.release.clone(),
        recipe: subject.recipe.clone(),
        machine: identity::machine_facts(counter.as_ref()),
        harness: identity::harness(ws, counter.as_ref())?,
        identical,
        failed: subject.failed.clone(),
        started: identity::now(),
    };
    let key = identity::key(ws, &header, preset, &workloads, points)?;
    let id = store.begin(&header, &key)?;
    store.plan(id, &planned(preset, &timed, &counted))?;

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
    let mut runner = Runner::new(store, id, &timed, &counted, &workloads, &margin)?;
    // With the base and its control alone, every point is the same binary or nothing was built.
    if measured.len() < 3 || runner.is_complete(&blocks) {
        return Ok(id);
    }
    let setup = Setup {
        candidates,
        workloads,
        block_seconds: preset.block_seconds,
        release: subject.release.clone(),
        binary: ws.config.recipe(&subject.recipe)?.binary.clone(),
        count_meters: counted.clone(),
    };
    let mut machine = ThisMachine::new(ws, setup, progress)?;
    let (failed, end) = runner.drive(&blocks, preset.block_seconds, &mut machine, progress);
    if !failed.is_empty() {
        for (point, error) in failed {
            header.failed.insert(point, error.to_string());
        }
        store.begin(&header, &key)?;
    }
    end.map(|()| id)
}

fn meters(preset: &Preset, wanted: impl Fn(Meter) -> bool) -> Vec<Meter> {
    Meter::ALL
        .into_iter()
        .filter(|meter| preset.meters.contains(meter) && wanted(*meter))
        .collect()
}

fn planned(preset: &Preset, timed: &[Meter], counted: &[Meter]) -> Vec<Planned> {
    let of = |meters: &[Meter], blocks: u32| -> Vec<Planned> {
        preset
            .workloads
            .iter()
            .flat_map(|workload| {
                meters.iter().map(move |&meter| Planned {
                    workload: workload.clone(),
                    meter,
                    blocks,
                })
            })
            .collect()
    };
    let mut all = of(timed, preset.blocks);
    all.extend(of(counted, preset.count_blocks));
    all
}

/// The servers to measure, one for each different binary and the control.
type Candidates = BTreeMap<Point, Candidate>;

/// What to measure, and which other points are the same server as which of those.
fn distinct(points: &[Measurable]) -> Result<(Candidates, BTreeMap<Point, Point>)> {
    let mut sorted: Vec<&Measurable> = points
        .iter()
        .filter(|measurable| measurable.point != Point::Control)
        .collect();
    sorted.sort_by_key(|measurable| measurable.point);
    let Some(base) = sorted.first().filter(|first| first.point == Point::BASE) else {
        return Err(Error::bench(
            "the release itself was not built, so there is nothing to compare with",
        ));
    };
    let mut first: BTreeMap<&str, Point> = BTreeMap::new();
    let mut candidates = BTreeMap::new();
    let mut identical = BTreeMap::new();
    for measurable in &sorted {
        match first.get(measurable.built.identity.as_str()) {
            Some(&same) => {
                identical.insert(measurable.point, same);
            }
            None => {
                first.insert(&measurable.built.identity, measurable.point);
                candidates.insert(measurable.point, candidate(measurable.point, measurable));
            }
        }
    }
    candidates.insert(Point::Control, candidate(Point::Control, base));
    Ok((candidates, identical))
}

fn candidate(point: Point, measurable: &Measurable) -> Candidate {
    Candidate {
        label: format!("{point} ({})", measurable.label),
        dir: measurable.built.dir.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(point: usize, identity: &str) -> Measurable {
        Measurable {
            point: Point::Step(point),
            label: String::new(),
            built: Built {
                key: format!("key-{point}"),
                dir: format!("/{point}").into(),
                identity: identity.into(),
                seconds: crate::build::BuildSeconds::default(),
                compiled_units: 0,
                cached: true,
            },
        }
    }

    #[test]
    fn the_same_binary_is_measured_once_and_the_base_twice() {
        let points = [built(0, "a"), built(1, "b"), built(2, "b"), built(3, "a")];
        let (candidates, identical) = distinct(&points).unwrap();
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
        assert!(distinct(&[built(1, "b")]).is_err());
    }
}
