//! The effects of each patch over releases and time, from many experiments.

use serde::Serialize;

use super::number;
use super::page::{BOLD, DIM, TextPage};
use super::text::{clean, fit, width};
use super::view::effect_on;
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, SUITE};
use perfquilt_model::observation::Meter;

/// Smallest width that is fitted, in columns.
const NARROWEST: usize = 40;

/// The history of a series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    /// Version of this document: 1.
    pub schema: u32,
    /// The meter of all effects.
    pub meter: Meter,
    /// The patches in the order of the latest series that has them, and the whole series at the end.
    pub patches: Vec<PatchHistory>,
}

/// The history of a patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchHistory {
    /// The patch's name; `None` for the whole series.
    pub name: Option<String>,
    /// Its effects, the earliest first.
    pub moments: Vec<HistoryPoint>,
}

/// The effect of a patch in one experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryPoint {
    /// The experiment.
    pub experiment: String,
    /// Start time, RFC 3339 in UTC; empty when unknown.
    pub started: String,
    /// The release.
    pub release: String,
    /// The recipe of the points.
    pub recipe: String,
    /// The workload, or several of them in one figure.
    pub workloads: Vec<String>,
    /// Whether all blocks were measured.
    pub complete: bool,
    /// The effect: that in order for a patch, the total for the series.
    pub effect: Effect,
}

/// Returns the history of `attributions`, the earliest first, on `meter`, of one workload or of the suite or single
/// workload that each one's verdicts are about. Figures that an experiment reuses from an earlier one are left out.
pub fn history(attributions: &[Attribution], meter: Meter, workload: Option<&str>) -> History {
    let mut names: Vec<&str> = Vec::new();
    for attribution in attributions.iter().rev() {
        for patch in &attribution.patches {
            if !names.contains(&patch.name.as_str()) {
                names.push(&patch.name);
            }
        }
    }
    let mut patches: Vec<PatchHistory> = names
        .into_iter()
        .map(|name| PatchHistory {
            name: Some(name.to_owned()),
            moments: attributions
                .iter()
                .filter_map(|attribution| {
                    let mut patches = attribution.patches.iter();
                    let patch = patches.find(|patch| patch.name == name)?;
                    history_point(
                        attribution,
                        &patch.effects,
                        EffectKind::InOrder,
                        meter,
                        workload,
                    )
                })
                .collect(),
        })
        .collect();
    patches.push(PatchHistory {
        name: None,
        moments: attributions
            .iter()
            .filter_map(|a| history_point(a, &a.total, EffectKind::Total, meter, workload))
            .collect(),
    });
    patches.retain(|patch| !patch.moments.is_empty());
    History {
        schema: 1,
        meter,
        patches,
    }
}

fn history_point(
    attribution: &Attribution,
    effects: &[Effect],
    kind: EffectKind,
    meter: Meter,
    workload: Option<&str>,
) -> Option<HistoryPoint> {
    let effect = match workload {
        None => attribution.main_effect(effects, kind, meter)?,
        Some(workload) => effect_on(effects, kind, meter, workload)?,
    };
    if effect.from().is_some() {
        return None;
    }
    let workloads = match effect.workload.as_str() {
        SUITE => attribution.workloads.clone(),
        one => vec![one.to_owned()],
    };
    Some(HistoryPoint {
        experiment: attribution.experiment.clone(),
        started: attribution.started.clone(),
        release: attribution.release.clone(),
        recipe: attribution.recipe.clone(),
        workloads,
        complete: attribution.is_complete(),
        effect: effect.clone(),
    })
}

impl HistoryPoint {
    /// Returns the start time for display: date and minutes.
    pub(super) fn day(&self) -> String {
        let minutes = self.started.get(..16).unwrap_or(&self.started);
        clean(&minutes.replace('T', " "))
    }

    /// Returns the workload, or the number of workloads, of the figure.
    pub(super) fn scope(&self) -> String {
        match &self.workloads[..] {
            [one] => clean(one),
            several => format!("{} workloads", several.len()),
        }
    }

    /// Returns the verdict, marked if the experiment is unfinished.
    pub(super) fn verdict(&self) -> String {
        let open = if self.complete { "" } else { " (unfinished)" };
        format!("{}{open}", self.effect.verdict)
    }
}

impl PatchHistory {
    pub(super) fn title(&self) -> String {
        self.name
            .as_deref()
            .map_or("the whole series".to_owned(), clean)
    }
}

impl History {
    /// Returns the decimals of all its figures.
    pub(super) fn places(&self) -> usize {
        let moments = self.patches.iter().flat_map(|patch| &patch.moments);
        number::decimals(self.meter, moments.map(|moment| &moment.effect))
    }

    /// Returns the history as text of at most `columns` columns; `color` allows ANSI colours.
    pub fn terminal(&self, columns: usize, color: bool) -> String {
        let mut page = TextPage::new(columns.max(NARROWEST), color);
        let places = self.places();
        if self.patches.is_empty() {
            page.paragraph(
                &format!("No stored experiment has figures of {}.", self.meter),
                "",
            );
        }
        for (place, patch) in self.patches.iter().enumerate() {
            if place > 0 {
                page.blank();
            }
            page.line(&fit(&patch.title(), page.width), BOLD);
            let cells: Vec<[String; 5]> = patch
                .moments
                .iter()
                .map(|moment| {
                    [
                        moment.day(),
                        clean(&moment.release),
                        moment.scope(),
                        number::effect(&moment.effect, places),
                        moment.verdict(),
                    ]
                })
                .collect();
            let widest = |column: usize| {
                let cells = cells.iter().map(|row| width(&row[column]));
                cells.max().unwrap_or(0)
            };
            let all: usize = (0..5).map(|column| widest(column) + 2).sum();
            for row in &cells {
                let [day, release, scope, figure, verdict] = row;
                if all > page.width {
                    page.indented(&format!("{day} {release}"), 2, DIM);
                    page.indented(&format!("{scope}: {figure} {verdict}"), 4, "");
                    continue;
                }
                let mut line = String::new();
                for (column, cell) in row.iter().enumerate() {
                    let gap = " ".repeat(widest(column).saturating_sub(width(cell)));
                    // Figures are right-aligned.
                    line += &match column {
                        3 => format!("  {gap}{cell}"),
                        _ => format!("  {cell}{gap}"),
                    };
                }
                page.line(&line, "");
            }
        }
        page.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Experiment;

    fn series(release: &str, started: &str, gains: &[(f64, f64)]) -> Attribution {
        let mut experiment = Experiment::new(gains);
        experiment.header.release = release.into();
        experiment.header.started = started.into();
        experiment.attribution()
    }

    #[test]
    fn a_patch_is_followed_over_releases() {
        let all = [
            series("srv-1", "2026-01-02T03:04:05Z", &[(0.02, 0.01)]),
            series(
                "srv-2",
                "2026-02-02T03:04:05Z",
                &[(0.03, 0.01), (-0.01, 0.0)],
            ),
        ];
        let history = history(&all, Meter::Time, None);
        let names: Vec<_> = history.patches.iter().map(|c| c.name.as_deref()).collect();
        let both = "0001-string-append.patch";
        assert_eq!(
            names,
            [Some(both), Some("0002-virtual-field-guards.patch"), None]
        );
        let releases = |patch: &PatchHistory| -> Vec<String> {
            patch.moments.iter().map(|m| m.release.clone()).collect()
        };
        assert_eq!(releases(&history.patches[0]), ["srv-1", "srv-2"]);
        assert_eq!(releases(&history.patches[1]), ["srv-2"]);
        let stored =
            all[1].main_effect(&all[1].patches[0].effects, EffectKind::InOrder, Meter::Time);
        assert_eq!(Some(&history.patches[0].moments[1].effect), stored);
        for columns in [20, 40, 80, 200] {
            let text = history.terminal(columns, false);
            assert_eq!(text.matches("2 workloads").count(), 5, "{text}");
            let widest = text.lines().map(width).max().unwrap();
            assert!(widest <= columns.max(NARROWEST), "{text}");
        }
        let page = history.html().unwrap();
        assert_eq!(page.matches("<svg role=\"img\"").count(), 3);
        assert_eq!(page.matches("<data value=").count(), 5, "{page}");
        let one = super::history(&all, Meter::Time, Some("oltp_read_only"));
        assert!(one.terminal(80, false).contains("oltp_read_only"));
        assert_eq!(super::history(&all, Meter::Cpu, None).patches, []);
    }
}
