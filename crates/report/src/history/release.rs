//! Changes of the release's own speed from one experiment to the next.

use std::collections::BTreeMap;

use serde::Serialize;

use super::conditions;
use crate::document::{Node, Text, heading, list, literal, name, paragraph};
use crate::number;
use crate::text::short_commit;
use perfquilt_judge::attribution::{Attribution, Provenance};
use perfquilt_judge::stats::{Level, level_changes, speed};
use perfquilt_model::counted::counted;
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;

/// The release's own speed over finished experiments on one machine, by one method and on the same workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReleaseHistory {
    /// The workload.
    pub workload: String,
    /// The number of experiments.
    pub experiments: usize,
    /// The changes, the earliest first.
    pub changes: Vec<ReleaseChange>,
}

/// A change of the release's own speed. It lies between two experiments, and may be the machine's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReleaseChange {
    /// The change as a fraction of speed, from the preceding change on against the time from this one to the next.
    pub estimate: f64,
    /// The last experiment before it.
    pub before: Place,
    /// The first one after it.
    pub after: Place,
}

/// An experiment of a history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Place {
    /// The experiment.
    pub experiment: String,
    /// The release.
    pub release: String,
    /// The commit of the workspace, if all of its files were in it.
    pub commit: Option<String>,
}

impl Place {
    fn of(attribution: &Attribution) -> Self {
        Place {
            experiment: attribution.experiment.clone(),
            release: attribution.release.clone(),
            commit: attribution.commit.clone(),
        }
    }

    fn text(&self) -> String {
        let commit = self.commit.as_deref();
        let commit = commit.map_or_else(String::new, |commit| {
            format!(", commit {}", literal(short_commit(commit)))
        });
        format!(
            "{} ({}{commit})",
            name(&self.experiment),
            name(&self.release)
        )
    }
}

/// Returns the history of the release on each workload, or on `workload`.
pub(super) fn of_release(
    attributions: &[Attribution],
    meter: Meter,
    workload: Option<&str>,
) -> Vec<ReleaseHistory> {
    let mut rows: BTreeMap<_, (Vec<usize>, Vec<Level>)> = BTreeMap::new();
    for (experiment, of) in attributions.iter().enumerate() {
        if !of.is_complete() {
            continue;
        }
        for cost in &of.costs {
            let is_wanted = workload.is_none_or(|wanted| wanted == cost.workload);
            let is_own = (cost.point, cost.meter, &cost.provenance)
                == (Point::BASE, meter, &Provenance::Measured);
            if !is_wanted || !is_own || !of.workloads.contains(&cost.workload) {
                continue;
            }
            let settings = of.bound.only(|part| part.is_of(&cost.workload));
            let row = (cost.workload.clone(), conditions(of), settings);
            let (places, levels) = rows.entry(row).or_default();
            places.push(experiment);
            levels.push(Level {
                experiment,
                value: cost.estimate.ln(),
            });
        }
    }
    let levels: Vec<Vec<Level>> = rows.values().map(|(_, of)| of.clone()).collect();
    let found = level_changes(&levels);
    let rows = rows.into_iter().zip(found);
    rows.map(|(((workload, ..), (places, _)), changes)| {
        let change = |change: perfquilt_judge::stats::ChangePoint| ReleaseChange {
            estimate: speed(change.before - change.after),
            before: Place::of(&attributions[places[change.index - 1]]),
            after: Place::of(&attributions[places[change.index]]),
        };
        ReleaseHistory {
            workload,
            experiments: places.len(),
            changes: changes.into_iter().map(change).collect(),
        }
    })
    .collect()
}

/// Returns the section about the release itself.
pub(super) fn section(rows: &[ReleaseHistory], meter: Meter) -> Vec<Node> {
    let most = rows.iter().map(|row| row.experiments).max();
    // Two levels tell nothing about how much they differ without a change.
    let Some(most) = most.filter(|most| *most > 2) else {
        return Vec::new();
    };
    let mut lines: Vec<Text> = Vec::new();
    for row in rows {
        for change in &row.changes {
            let percent = number::signed(meter.shown(change.estimate), 2);
            let (before, after) = (change.before.text(), change.after.text());
            let text = format!(
                "{}: {percent} % between {before} and {after}",
                name(&row.workload)
            );
            lines.push(text.into());
        }
    }
    let mut nodes = vec![heading("The release itself")];
    if lines.is_empty() {
        let count = counted(most, "experiment", "experiments");
        nodes.push(paragraph(format!(
            "Its own speed has no change over {count}."
        )));
    } else {
        nodes.push(paragraph(
            "Its own speed changed, by the server or by the machine: measure both releases in one experiment to tell.",
        ));
        nodes.extend(list(lines));
    }
    nodes
}
