//! The next step for a workspace's owner.

use std::collections::{BTreeMap, BTreeSet};

use super::{Prepared, build_item, builder, prepare};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Kind, Result};
use perfquilt_model::point::Point;
use perfquilt_rebase::edit;
use perfquilt_store::{EarlierExperiment, ExperimentId, Store};
use serde::Serialize;

/// The next step of the work on a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum NextStep {
    /// The release is not imported: `perfquilt upstream fetch`.
    Fetch,
    /// The edit branch of this release has work that is not in the series: in the end, `perfquilt refresh`.
    Refresh {
        /// The release's version.
        version: String,
    },
    /// This machine lacks a tool: `perfquilt doctor`.
    Doctor,
    /// Points were never measured with the recipe, or not as this series: `perfquilt run`.
    Run {
        /// The points that were never measured, in order.
        points: Vec<Point>,
        /// How many of them are not built.
        unbuilt: usize,
    },
    /// The latest experiment on the release measured this series: `perfquilt report`.
    Report {
        /// Its name.
        experiment: String,
    },
}

/// Returns the next step for the `prepared` series, measured with the preset called `preset`; `None` where the
/// workspace has no such preset, so that it only keeps a series. Builds nothing.
pub fn next_step(ws: &Workspace, prepared: &Prepared, preset: &str) -> Result<Option<NextStep>> {
    if let Some(branch) = edit::unwritten(ws, None)?.into_iter().next() {
        return Ok(Some(NextStep::Refresh {
            version: branch.version,
        }));
    }
    let Ok(preset) = ws.config.preset(preset) else {
        return Ok(None);
    };
    let Ok(builder) = builder(ws, &preset.recipe, prepared) else {
        return Ok(Some(NextStep::Doctor));
    };
    let earlier = earlier(ws, prepared, &preset.recipe)?;
    let programs = earlier
        .iter()
        .flat_map(|experiment| experiment.observed.programs());
    let measured: BTreeSet<&str> = programs.map(|(_, program)| program).collect();
    let (mut points, mut unbuilt) = (Vec::new(), 0);
    let mut series = BTreeMap::new();
    for step in 0..=prepared.series.patches().len() {
        let point = Point::Step(step);
        let built = builder.cached(&build_item(prepared, point)?.tree);
        unbuilt += usize::from(built.is_none());
        match built {
            Some(built) if measured.contains(&*built.identity) => {
                series.insert(point, built.identity);
            }
            _ => points.push(point),
        }
    }
    let reported = earlier.first().filter(|latest| {
        let steps = latest.observed.programs();
        let mut steps = steps.filter(|(point, _)| matches!(point, Point::Step(_)));
        latest.header.series.len() == prepared.series.patches().len()
            && steps.all(|(point, program)| series.get(&point).is_some_and(|now| now == program))
    });
    Ok(Some(match reported {
        Some(latest) if points.is_empty() => NextStep::Report {
            experiment: latest.header.experiment.clone(),
        },
        _ => NextStep::Run { points, unbuilt },
    }))
}

/// Returns whether the experiment `id` measured the series of its release as it is now: the servers of its points are those
/// that are built from it. False where they are not built any more.
pub fn measured_as_it_is(ws: &Workspace, store: &Store, id: ExperimentId) -> Result<bool> {
    let header = store.header(id)?;
    let prepared = match prepare(ws, Some(&header.release)) {
        Err(error) if error.kind() == Kind::Interrupted => return Err(error),
        Err(_) => return Ok(false),
        Ok(prepared) => prepared,
    };
    if header.series.len() != prepared.series.patches().len() {
        return Ok(false);
    }
    let builder = builder(ws, &header.recipe, &prepared)?;
    for (point, program) in store.observed(id, &header)?.programs() {
        if matches!(point, Point::Step(_)) {
            let built = builder.cached(&build_item(&prepared, point)?.tree);
            if built.is_none_or(|built| built.identity != program) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Returns the finished experiments on the release and recipe, the latest first.
fn earlier(ws: &Workspace, prepared: &Prepared, recipe: &str) -> Result<Vec<EarlierExperiment>> {
    let results = ws.results();
    if !results.exists() {
        return Ok(Vec::new());
    }
    let mut earlier = Store::open_existing(&results)?.earlier(&prepared.release.name)?;
    earlier.retain(|experiment| experiment.header.recipe == recipe);
    Ok(earlier)
}
