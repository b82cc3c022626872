//! The section on builds: how long they took, their profiles and the size of their code.

use crate::document::chart::{ChartRow, Mark};
use crate::document::{
    Cell, Chart, Column, Drawing, Ink, Node, Text, drawings, key, literal, paragraph, section,
    table,
};
use crate::nouns::Nouns;
use crate::{code_size, number, profile_guided};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::observation::PointBuild;

/// The steps of a build, each with its colour.
const STEPS: [(&str, Ink); 4] = [
    ("configure", Ink::First),
    ("compile", Ink::Second),
    ("link", Ink::Third),
    ("tool's own", Ink::Fourth),
];

fn seconds(of: &PointBuild) -> [f64; 4] {
    [of.configure, of.compile, of.link, of.overhead]
}

/// Returns the section on builds; nothing if none are known.
pub(crate) fn builds(attribution: &Attribution) -> Option<Node> {
    let builds = &attribution.builds;
    let point = |of: &PointBuild| Nouns::of(attribution).point(of.point);
    let bars = builds.iter().map(|build| {
        let mut from = 0.0;
        let mut marks = Vec::new();
        for (seconds, (_, ink)) in seconds(build).into_iter().zip(STEPS) {
            if seconds > 0.0 {
                marks.push(Mark::Bar((from, from + seconds), 12, ink));
                from += seconds;
            }
        }
        ChartRow {
            label: point(build),
            marks,
        }
    });
    let rows = builds.iter().map(|build| {
        let cached = if build.cached {
            " (from the cache)"
        } else {
            ""
        };
        let name = format!("{}{cached}", point(build));
        let times = seconds(build).map(number::seconds).into_iter();
        let cells = [name]
            .into_iter()
            .chain(times)
            .chain([build.units.to_string()]);
        cells.map(Cell::from)
    });
    let about = "Seconds of building, by point";
    let steps = STEPS.map(|(step, _)| Column::figures(step)).into_iter();
    let columns = [Column::names("point")].into_iter().chain(steps);
    let table = table(about, columns.chain([Column::figures("units")]), rows);
    let keys = STEPS.map(|(words, ink)| key(ink, false, words)).into_iter();
    let words = ". Of a server from the cache: what its build took when it was made.";
    let drawing = Drawing::new(Chart::of_rows(about, "seconds", bars.collect()), table)
        .caption(Text::joined(keys.chain([words.into()]), ""));
    let all: f64 = builds.iter().flat_map(seconds).sum();
    let words = [
        Some(format!("{} in all.", number::seconds(all))),
        code_size::describe(attribution),
        profile_guided::describe(attribution, &literal),
    ];
    let nodes = words
        .into_iter()
        .flatten()
        .map(paragraph)
        .chain(drawings([drawing]));
    section("builds", "Builds", nodes.filter(|_| !builds.is_empty()))
}
