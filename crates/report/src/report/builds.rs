//! The section on builds: how long they took, their profiles and the size of their code.

use super::Content;
use crate::document::chart::{ChartRow, stacked};
use crate::document::{
    Cell, Chart, Document, Drawing, Ink, Node, Style, drawings, keys, literal, name, paragraph,
    section, table,
};
use crate::nouns::Nouns;
use crate::{code_size, number, profile_guided};
use perfquilt_model::observation::PointBuild;
use perfquilt_model::point::Point;

/// A step of a build: its colour, and the seconds that it took.
type Step = (Ink, fn(&PointBuild) -> f64);

const STEPS: [(&str, Step); 4] = [
    ("configure", (Ink::First, |build| build.configure)),
    ("compile", (Ink::Second, |build| build.compile)),
    ("link", (Ink::Third, |build| build.link)),
    ("tool's own", (Ink::Fourth, |build| build.overhead)),
];

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
    let figure = |server: &BuiltServer<'_>, of: &dyn Fn(&PointBuild) -> String| {
        let build = server.build.as_ref();
        build.map_or(String::new(), |(build, _)| of(build))
    };
    let table = table("Builds of each point", servers)
        .names("point", |server| server.point.to_string())
        .figures("units", |server| {
            figure(server, &|build| build.units.to_string())
        })
        .each(STEPS, |server, (_, took)| {
            figure(server, &|build| number::seconds(took(build)))
        })
        .words("server", |server| match &server.build {
            Some((build, identity)) => {
                let kept = if build.cached { " (kept)" } else { "" };
                let identity = name(identity.get(..SHORT_ID).unwrap_or(identity));
                Cell::from(format!("{identity}{kept}"))
            }
            None => Cell::from("failed").styled(Style::Bad),
        });
    Document(vec![table.node()])
}

/// Returns the section on builds; nothing if none are known.
pub(crate) fn builds(of: &Content<'_>) -> Vec<Node> {
    let attribution = of.view.attribution;
    let builds = &attribution.builds;
    let point = |of: &PointBuild| Nouns::of(attribution).point(of.point);
    let bars = builds.iter().map(|build| ChartRow {
        label: point(build),
        marks: stacked(STEPS.map(|(_, (ink, took))| (took(build), ink))),
    });
    let about = "Seconds of building, by point";
    let table = table(about, builds)
        .names("point", |build| {
            let cached = if build.cached {
                " (from the cache)"
            } else {
                ""
            };
            format!("{}{cached}", point(build))
        })
        .each(STEPS, |build, (_, took)| number::seconds(took(build)))
        .figures("units", |build| build.units.to_string());
    let drawing = Drawing::new(
        Chart::of_rows(about, "seconds", bars.collect()),
        table.node(),
    )
    .caption(keys(
        STEPS.map(|(words, (ink, _))| (ink, false, words)),
        ". Of a server from the cache: what its build took when it was made.",
    ));
    let took = builds
        .iter()
        .flat_map(|of| STEPS.map(|(_, (_, took))| took(of)));
    let words = [
        Some(format!("{} in all.", number::seconds(took.sum()))),
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
