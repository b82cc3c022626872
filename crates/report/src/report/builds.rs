//! The section on builds: how long they took, their profiles and the size of their code.

use crate::document::chart::{ChartRow, Mark};
use crate::document::{
    Cell, Chart, Column, Document, Drawing, Ink, Node, Style, Table, Text, drawings, key, literal,
    name, paragraph, section, table,
};
use crate::nouns::Nouns;
use crate::{code_size, number, profile_guided};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::observation::PointBuild;
use perfquilt_model::point::Point;

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

/// A server that was built, or could not be.
#[derive(Debug, Clone)]
pub struct BuiltServer<'a> {
    /// The point.
    pub point: Point,
    /// The build and the server's identity; `None` if it failed.
    pub build: Option<(PointBuild, &'a str)>,
}

/// Digits of a server's identity that are shown.
const SHORT_ID: usize = 12;

/// Returns the document on the builds of points, with the seconds that each took when it was made.
pub fn built_servers(servers: &[BuiltServer<'_>]) -> Document {
    let steps = STEPS.map(|(step, _)| Column::figures(step)).into_iter();
    let columns = [Column::names("point"), Column::figures("units")].into_iter();
    let columns = columns.chain(steps).chain([Column::words("server")]);
    let mut table = Table::new("Builds of each point", columns);
    for server in servers {
        let point = Cell::from(server.point.to_string());
        let Some((build, identity)) = &server.build else {
            let failed = Cell::from("failed").styled(Style::Bad);
            let empty = std::iter::repeat_n(Cell::default(), 1 + STEPS.len());
            table.row([point].into_iter().chain(empty).chain([failed]));
            continue;
        };
        let kept = if build.cached { " (kept)" } else { "" };
        let identity = name(identity.get(..SHORT_ID).unwrap_or(identity));
        let times = seconds(build).map(number::seconds).map(Cell::from);
        let first = [point, build.units.to_string().into()].into_iter();
        table.row(
            first
                .chain(times)
                .chain([format!("{identity}{kept}").into()]),
        );
    }
    Document(vec![Node::Table(table)])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let build = PointBuild {
            point: Point::BASE,
            key: "k".into(),
            configure: 39.2,
            compile: 1377.4,
            link: 4.1,
            overhead: 0.2,
            units: 860,
            cached: true,
            code_bytes: None,
            profile: None,
        };
        let servers = [
            BuiltServer {
                point: Point::BASE,
                build: Some((build, "0123456789abcdef")),
            },
            BuiltServer {
                point: Point::Alone(1),
                build: None,
            },
        ];
        let document = built_servers(&servers);
        insta::assert_snapshot!(crate::tests::forms(&[
            ("60 columns", document.terminal(60, false)),
            ("80 columns", document.terminal(80, false)),
            ("Markdown", document.markdown()),
        ]));
    }
}
