//! The history of a series as a page.

use maud::html;

use super::super::history::{History, HistoryPoint, PatchHistory};
use super::super::number::units;
use super::super::text::clean;
use super::chart::{self, Ink, Series};
use super::effects::{axis, figure};
use super::frame::{self, Name, drawing, key, scroll};
use perfquilt_model::error::Result;
use perfquilt_model::observation::Meter;

impl History {
    /// Renders the history as a page.
    pub fn html(&self) -> Result<String> {
        let places = self.places();
        let (experiments, releases) = (self.experiments(), self.releases());
        let mut drawings = Vec::new();
        for patch in &self.patches {
            let about = format!("{}, {} over time", patch.title(), self.meter);
            let table = table(&about, patch, &experiments, (self.meter, places));
            let here = |release: &str| patch.moments.iter().any(|m| m.release == release);
            let caption = html! {
                @for (release, ink) in releases.iter().filter(|(release, _)| here(release)) {
                    (key(*ink, true, &clean(release)))
                }
                " Experiments from the earliest on; lines are intervals."
            };
            let of = |(release, ink): &(&str, Ink)| points(patch, &experiments, release, *ink);
            let shown: Vec<Series> = releases.iter().map(of).collect();
            let svg = chart::series(&about, "experiment", &axis(&[self.meter]), &shown)?;
            drawings.push(html! {
                div {
                    h2 { @match &patch.name {
                        Some(name) => (Name(name)),
                        None => "The whole series",
                    } }
                    @match svg {
                        Some(svg) => (drawing(&svg, &caption, &table)),
                        None => (table),
                    }
                    @for best in &patch.best { p { (best.text(places)) } }
                }
            });
        }
        let body = html! {
            header {
                h1 { "Effects of the patches over releases and time" }
                p.soft {
                    (units(&[self.meter])) ", one figure per experiment, against the state before the patch. \
                     Experiments differ in release, workloads and machine: the tables say which."
                }
            }
            main {
                @if drawings.is_empty() { p { "No stored experiment has figures of " (self.meter) "." } }
                div.charts { @for drawing in &drawings { (drawing) } }
            }
        };
        Ok(frame::page("perfquilt: history", None, &body))
    }
}

impl History {
    /// Returns the experiments in chronological order, which gives their numbers in all drawings.
    fn experiments(&self) -> Vec<&str> {
        let moments = self.patches.iter().flat_map(|patch| &patch.moments);
        let mut found: Vec<(&str, &str)> = moments
            .map(|m| (m.started.as_str(), m.experiment.as_str()))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
            .into_iter()
            .map(|(_, experiment)| experiment)
            .collect()
    }

    /// Returns the releases, each with its colour; from the fourth on, they share one.
    fn releases(&self) -> Vec<(&str, Ink)> {
        let inks = [Ink::First, Ink::Second, Ink::Third, Ink::Fourth];
        let moments = self.patches.iter().flat_map(|patch| &patch.moments);
        let mut found: Vec<&str> = moments.map(|m| m.release.as_str()).collect();
        found.sort_unstable();
        found.dedup();
        let ink = |place: usize| inks.get(place).copied().unwrap_or(Ink::Fourth);
        let found = found.into_iter().enumerate();
        found
            .map(|(place, release)| (release, ink(place)))
            .collect()
    }
}

/// Returns the number of an experiment.
fn place(experiments: &[&str], experiment: &str) -> usize {
    let place = experiments.iter().position(|name| *name == experiment);
    place.map_or(0, |place| place + 1)
}

fn points(patch: &PatchHistory, experiments: &[&str], release: &str, ink: Ink) -> Series {
    let percent = |fraction: f64| 100.0 * fraction;
    // What was not executed was not measured; the table says so.
    let shown = |m: &&HistoryPoint| m.release == release && m.effect.executed;
    let moments = patch.moments.iter().filter(shown);
    Series {
        ink,
        joined: false,
        points: moments
            .map(|moment| {
                let shown = moment.effect.shown();
                let ends = shown
                    .ends()
                    .map(|(low, high)| (percent(low), percent(high)));
                let at = place(experiments, &moment.experiment) as f64;
                (at, percent(shown.estimate), ends)
            })
            .collect(),
    }
}

fn table(
    about: &str,
    patch: &PatchHistory,
    experiments: &[&str],
    (meter, places): (Meter, usize),
) -> maud::Markup {
    let table = html! {
        table {
            thead { tr {
                th.n scope="col" { "#" }
                th scope="col" { "began" }
                th scope="col" { "release" }
                th scope="col" { "workloads" }
                th.n scope="col" { "effect" }
                th scope="col" { "verdict" }
                th scope="col" { "experiment" }
            } }
            tbody { @for moment in &patch.moments {
                tr {
                    td.n { (place(experiments, &moment.experiment)) }
                    td { (moment.day()) }
                    td { (clean(&moment.release)) @if !moment.recipe.is_empty() { ", " (clean(&moment.recipe)) } }
                    td { (moment.scope()) }
                    td.n { (figure(&moment.effect, places)) }
                    td { (moment.verdict()) @if let Some(change) = moment.change(meter, places) { "; " (change) } }
                    td { (Name(&moment.experiment)) }
                }
            } }
        }
    };
    scroll(about, &table)
}
