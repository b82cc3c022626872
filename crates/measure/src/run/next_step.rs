//! What a workspace's owner would do next.

use std::collections::BTreeSet;

use super::{Prepared, build_item, builder};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_model::point::Point;
use perfquilt_patches::edit;
use perfquilt_store::Store;
use serde::Serialize;

/// The next step of the work on a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum NextStep {
    /// The release is not imported: `perfquilt upstream fetch`.
    Fetch,
    /// The edit branch of this release has commits that are not in the series: `perfquilt refresh`.
    Refresh {
        /// The release's version.
        version: String,
    },
    /// This machine lacks a tool: `perfquilt doctor`.
    Doctor,
    /// Points were never measured with the recipe: `perfquilt run`.
    Run {
        /// These points, in order.
        points: Vec<Point>,
        /// How many of them are not built.
        unbuilt: usize,
    },
    /// All points were measured: `perfquilt report`.
    Report,
}

/// Returns the next step for the `prepared` series, measured with the preset called `preset`; `None` where the
/// workspace has no such preset, so that it only keeps a series. Builds nothing.
///
/// # Errors
/// A damaged store or edit branch.
pub fn next_step(ws: &Workspace, prepared: &Prepared, preset: &str) -> Result<Option<NextStep>> {
    if let Some(version) = edit::unwritten(ws)?.into_iter().next() {
        return Ok(Some(NextStep::Refresh { version }));
    }
    let Ok(preset) = ws.config.preset(preset) else {
        return Ok(None);
    };
    let Ok(builder) = builder(ws, &preset.recipe, prepared) else {
        return Ok(Some(NextStep::Doctor));
    };
    let measured = measured(ws, prepared, &preset.recipe)?;
    let (mut points, mut unbuilt) = (Vec::new(), 0);
    for step in 0..=prepared.series.patches().len() {
        let point = Point::Step(step);
        let built = builder.cached(&build_item(prepared, point)?.tree);
        unbuilt += usize::from(built.is_none());
        if built.is_none_or(|built| !measured.contains(&built.identity)) {
            points.push(point);
        }
    }
    Ok(Some(if points.is_empty() {
        NextStep::Report
    } else {
        NextStep::Run { points, unbuilt }
    }))
}

/// Returns the identities of the servers that finished experiments on the release and recipe have measured.
fn measured(ws: &Workspace, prepared: &Prepared, recipe: &str) -> Result<BTreeSet<String>> {
    let results = ws.results();
    if !results.exists() {
        return Ok(BTreeSet::new());
    }
    let earlier = Store::open_existing(&results)?.earlier(&prepared.release.name)?;
    let earlier = earlier.into_iter().filter(|of| of.header.recipe == recipe);
    Ok(earlier
        .flat_map(|of| of.identity.points.into_values())
        .collect())
}
