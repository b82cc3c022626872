//! What each patch was worth over releases and time: many experiments beside each other.

use serde::Serialize;

use super::number;
use super::page::{BOLD, DIM, Page};
use super::text::{clean, fit, width};
use super::view::effect_on;
use perfquilt_judge::attribution::{Attribution, Effect, Kind, SUITE};
use perfquilt_model::observation::Meter;

/// Narrower screens wrap.
const NARROWEST: usize = 40;

/// The course of a series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    /// Version of this document: 1.
    pub schema: u32,
    /// The meter that is told.
    pub meter: Meter,
    /// The patches in the order of the latest series that has them, and the whole series at the end.
    pub patches: Vec<Course>,
}

/// A patch over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Course {
    /// The patch's name; `None` for the whole series.
    pub name: Option<String>,
    /// What was measured, the earliest first.
    pub moments: Vec<Moment>,
}

/// What one experiment says of a patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moment {
    /// The experiment.
    pub experiment: String,
    /// When it began, RFC 3339 in UTC; empty when unknown.
    pub started: String,
    /// The release.
    pub release: String,
    /// How the points were built.
    pub recipe: String,
    /// The workload, or several of them in one figure.
    pub workloads: Vec<String>,
    /// Whether all blocks were measured.
    pub complete: bool,
    /// The effect, in order for a patch.
    pub effect: Effect,
}

/// The history that `attributions`, the earliest first, tell on `meter`, of one workload or of what each one's
/// verdicts are about. Figures that an experiment has from an earlier one are told there and not again.
pub fn history(attributions: &[Attribution], meter: Meter, workload: Option<&str>) -> History {
    let mut names: Vec<&str> = Vec::new();
    for attribution in attributions.iter().rev() {
        for patch in &attribution.patches {
            if !names.contains(&patch.name.as_str()) {
                names.push(&patch.name);
            }
        }
    }
    let mut patches: Vec<Course> = names
        .into_iter()
        .map(|name| Course {
            name: Some(name.to_owned()),
            moments: attributions
                .iter()
                .filter_map(|attribution| {
                    let mut patches = attribution.patches.iter();
                    let patch = patches.find(|patch| patch.name == name)?;
                    moment(attribution, &patch.effects, Kind::InOrder, meter, workload)
                })
                .collect(),
        })
        .collect();
    patches.push(Course {
        name: None,
        moments: attributions
            .iter()
            .filter_map(|a| moment(a, &a.total, Kind::Total, meter, workload))
            .collect(),
    });
    patches.retain(|course| !course.moments.is_empty());
    History {
        schema: 1,
        meter,
        patches,
    }
}

fn moment(
    attribution: &Attribution,
    effects: &[Effect],
    kind: Kind,
    meter: Meter,
    workload: Option<&str>,
) -> Option<Moment> {
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
    Some(Moment {
        experiment: attribution.experiment.clone(),
        started: attribution.started.clone(),
        release: attribution.release.clone(),
        recipe: attribution.recipe.clone(),
        workloads,
        complete: attribution.is_complete(),
        effect: effect.clone(),
    })
}

impl Moment {
    /// When, as people say it.
    pub(super) fn day(&self) -> String {
        let minutes = self.started.get(..16).unwrap_or(&self.started);
        clean(&minutes.replace('T', " "))
    }

    /// What the figure is over.
    pub(super) fn scope(&self) -> String {
        match &self.workloads[..] {
            [one] => clean(one),
            several => format!("{} workloads", several.len()),
        }
    }

    /// The verdict, and whether more is to come.
    pub(super) fn verdict(&self) -> String {
        let open = if self.complete { "" } else { " (unfinished)" };
        format!("{}{open}", self.effect.verdict)
    }
}

impl Course {
    pub(super) fn title(&self) -> String {
        self.name
            .as_deref()
            .map_or("the whole series".to_owned(), clean)
    }
}

impl History {
    /// The decimals of all its figures.
    pub(super) fn places(&self) -> usize {
        let moments = self.patches.iter().flat_map(|course| &course.moments);
        number::decimals(self.meter, moments.map(|moment| &moment.effect))
    }

    /// The history on a terminal of `columns` columns; `color` allows ANSI colours.
    pub fn terminal(&self, columns: usize, color: bool) -> String {
        let mut page = Page::new(columns.max(NARROWEST), color);
        let places = self.places();
        if self.patches.is_empty() {
            page.paragraph(
                &format!("No stored experiment has figures of {}.", self.meter),
                "",
            );
        }
        for (place, course) in self.patches.iter().enumerate() {
            if place > 0 {
                page.blank();
            }
            page.line(&fit(&course.title(), page.width), BOLD);
            let cells: Vec<[String; 5]> = course
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
                    // Figures are aligned by their ends.
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
        let releases = |course: &Course| -> Vec<String> {
            course.moments.iter().map(|m| m.release.clone()).collect()
        };
        assert_eq!(releases(&history.patches[0]), ["srv-1", "srv-2"]);
        assert_eq!(releases(&history.patches[1]), ["srv-2"]);
        let stored = all[1].main_effect(&all[1].patches[0].effects, Kind::InOrder, Meter::Time);
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
