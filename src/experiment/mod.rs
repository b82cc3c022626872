//! Experiments: randomised blocks over all points, planned purely, carried out by an
//! [`executor::Executor`], stored block by block, resumed where they stopped.

pub mod executor;
mod fleet;
pub mod identity;
pub mod machine;
mod note;
pub mod plan;
mod progress;
mod runner;
#[cfg(test)]
mod simulation;

use std::collections::BTreeMap;

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
    /// Its header as stored.
    pub header: ExperimentHeader,
    /// Points that could not be measured to the end, with the reason.
    pub failed: BTreeMap<Point, Error>,
}

/// The meters that are read from slices; the others are counted.
pub fn is_timed(meter: Meter) -> bool {
    matches!(meter, Meter::Time | Meter::Cpu)
}

/// Measures the built `points` as `preset` says, going on where an earlier run of the same experiment
/// stopped. `header` names the series, release and recipe; machine, harness and identical points are
/// filled in. A second server of the base joins as [`Point::Control`].
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
    let workloads: Vec<&Workload> = preset
        .workloads
        .iter()
        .map(|name| ws.config.workload(name))
        .collect::<Result<_>>()?;
    let (candidates, identical) = distinct(points, &header)?;
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
    header.harness = identity::harness(ws, counter.as_ref())?;
    header.machine.extend(identity::machine_facts());
    let key = identity::key(ws, &header, preset, &workloads, points)?;
    let id = store.begin(&header, &key)?;
    store.plan(id, &planned(preset, &timed, &counted))?;
    let mut header = store.header(id)?;

    let names: Vec<String> = preset.workloads.clone();
    let measured: Vec<Point> = candidates.keys().copied().collect();
    let blocks = plan(&Scope {
        seed: identity::seed(&key),
        points: &measured,
        workloads: &names,
        blocks: if timed.is_empty() { 0 } else { preset.blocks },
        count_blocks: if counted.is_empty() {
            0
        } else {
            preset.count_blocks
        },
    });
    let margin = |meter| ws.config.margin(meter);
    let mut runner = Runner::new(store, id, &timed, &counted, &workloads, &margin)?;
    if measured.len() < 3 {
        // The base and its control only: every point is the same binary, or nothing was built.
        return Ok(Outcome {
            id,
            header,
            failed: BTreeMap::new(),
        });
    }
    if runner.is_complete(&blocks) {
        return Ok(Outcome {
            id,
            header,
            failed: BTreeMap::new(),
        });
    }
    let setup = Setup {
        candidates,
        workloads,
        block_seconds: preset.block_seconds,
        release: header.release.clone(),
        count_meters: counted.clone(),
    };
    let mut machine = ThisMachine::new(ws, setup, progress)?;
    header.machine.extend(machine.describe());
    let id = store.begin(&header, &key)?;
    let failed = runner.drive(&blocks, preset.block_seconds, &mut machine, progress)?;
    if !failed.is_empty() {
        for (point, error) in &failed {
            header.failed.insert(*point, error.to_string());
        }
        store.begin(&header, &key)?;
    }
    Ok(Outcome { id, header, failed })
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

/// The servers to measure, one for each different binary and the control; and which other points
/// are the same as which of them.
fn distinct(
    points: &[(Point, Built)],
    header: &ExperimentHeader,
) -> Result<(BTreeMap<Point, Candidate>, BTreeMap<Point, Point>)> {
    let mut sorted: Vec<&(Point, Built)> = points
        .iter()
        .filter(|(point, _)| *point != Point::Control)
        .collect();
    sorted.sort_by_key(|(point, _)| *point);
    let base = match sorted.first() {
        Some((Point::BASE, built)) => built,
        _ => {
            return Err(Error::bench(
                "the release itself was not built, so there is nothing to compare with",
            ));
        }
    };
    let mut first: BTreeMap<&str, Point> = BTreeMap::new();
    let mut candidates = BTreeMap::new();
    let mut identical = BTreeMap::new();
    for (point, built) in sorted {
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
