//! Sentences about the server's own tests.

use serde::Serialize;

use super::document::{Cell, Column, Document, Node, Table, literal, name};
use super::number::grouped;
use perfquilt_model::counted::counted;
use perfquilt_model::point::Point;
use perfquilt_model::server_tests::{PointTests, TestFailure};

/// Number of tests that a sentence names.
const MOST_NAMED: usize = 5;

/// The tests of a point's server.
#[derive(Debug, Clone, Serialize)]
pub struct TestedServer<'a> {
    /// The point.
    pub point: Point,
    /// What its server is.
    pub label: &'a str,
    /// The last patch of the point.
    #[serde(skip)]
    pub patch: Option<&'a str>,
    /// Seconds that building and testing took.
    pub seconds: f64,
    /// Whether the results are kept ones.
    pub cached: bool,
    /// The results; `None` if the tests did not run.
    pub tests: Option<&'a PointTests>,
    /// Why they did not run.
    pub error: Option<String>,
}

/// Returns the document on the tests of points: the bare release, then each point with the tests that fail.
pub fn document(points: &[TestedServer<'_>]) -> Document {
    let columns = [
        Column::figures("#"),
        Column::names("server"),
        Column::prose("tests"),
    ];
    let mut table = Table::new("Tests of each point", columns);
    for point in points {
        let cached = if point.cached { ", from the cache" } else { "" };
        let took = format!("({}{cached})", duration(point.seconds));
        let (words, below) = match (point.tests, &point.error) {
            (Some(tests), _) if point.point == Point::BASE => {
                let failures = tests.known.iter().chain(&tests.flaky).map(runs_here);
                (format!("{} {took}", of_release(tests)), failures.collect())
            }
            (Some(tests), _) => {
                let failures: Vec<String> = tests.new.iter().map(runs).collect();
                (format!("{} {took}", of_patch(tests)), failures)
            }
            (None, error) => {
                let error = error.as_deref().unwrap_or_default();
                (format!("failed: {error}"), Vec::new())
            }
        };
        let cell = Cell::from(literal(&words));
        table.row([
            point.point.to_string().into(),
            name(point.patch.unwrap_or(point.label)).into(),
            below
                .iter()
                .fold(cell, |cell, line| cell.below(literal(line))),
        ]);
    }
    Document(vec![Node::Table(table)])
}

fn duration(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

/// Says how the tests of a patch go: `1,053 tests pass, no new failures`. Names in it are raw.
pub(crate) fn of_patch(tests: &PointTests) -> String {
    let mut text = pass(tests.passed);
    match tests.new.as_slice() {
        [] => text += ", no new failures",
        [failure] => text += &format!(", 1 new failure: {}", failure.name),
        several => {
            text += &format!(
                ", {} new failures: {}",
                grouped(several.len() as f64),
                names(several)
            );
        }
    }
    for (failures, what) in [
        (&tests.earlier, "because of an earlier patch"),
        (&tests.known, "on the release too"),
    ] {
        match failures.len() as u64 {
            0 => {}
            1 => text += &format!("; 1 fails {what}"),
            several => text += &format!("; {} fail {what}", grouped(several as f64)),
        }
    }
    if !tests.flaky.is_empty() {
        text += &format!("; {}", flaky(tests.flaky.len()));
    }
    for failure in tests.unclear.iter().take(MOST_NAMED) {
        text += &format!("; unclear: {}", runs(failure));
    }
    if tests.unclear.len() > MOST_NAMED {
        text += &format!(" and {} more", tests.unclear.len() - MOST_NAMED);
    }
    match tests.lost.as_slice() {
        [] => {}
        [name] => text += &format!("; {name} no longer runs"),
        several => {
            let named = several.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>();
            let more = match several.len() - named.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            text += &format!("; no longer run: {}{more}", named.join(", "));
        }
    }
    match tests.fixed.as_slice() {
        [] => {}
        [name] => text += &format!("; {name} passes and did not before"),
        several => text += &format!("; {} pass that did not before", several.len()),
    }
    text
}

/// Says how the tests of the bare release go: `On the release 1,053 tests pass, 2 fail, 1 is flaky and 236 are skipped`.
pub(crate) fn of_release(tests: &PointTests) -> String {
    let mut parts = vec![pass(tests.passed)];
    match tests.known.len() as u64 {
        0 => {}
        1 => parts.push("1 fails".to_owned()),
        several => parts.push(format!("{} fail", grouped(several as f64))),
    }
    if !tests.flaky.is_empty() {
        parts.push(flaky(tests.flaky.len()));
    }
    match tests.skipped {
        0 => {}
        1 => parts.push("1 is skipped".to_owned()),
        several => parts.push(format!("{} are skipped", grouped(several as f64))),
    }
    let last = parts.pop().unwrap_or_default();
    let joined = if parts.is_empty() {
        last
    } else {
        format!("{} and {last}", parts.join(", "))
    };
    format!("On the release {joined}")
}

/// Says in how many runs a test failed: `main.x fails in 1 of 4 runs`.
fn runs_here(failure: &TestFailure) -> String {
    format!(
        "{} fails in {} of {} runs",
        failure.name, failure.failed, failure.runs
    )
}

/// Says in how many runs a test failed with a patch and without: `main.x fails in 4 of 4 runs, on the release in 0 of 4`.
pub(crate) fn runs(failure: &TestFailure) -> String {
    let here = runs_here(failure);
    match failure.base_runs {
        0 => format!("{here}; the release does not run it"),
        base => format!(
            "{here}, on the release in {} of {base}",
            failure.base_failed
        ),
    }
}

fn pass(count: u64) -> String {
    match count {
        0 => "no test passes".to_owned(),
        1 => "1 test passes".to_owned(),
        several => format!("{} tests pass", grouped(several as f64)),
    }
}

fn flaky(count: usize) -> String {
    counted(count, "is flaky", "are flaky")
}

fn names(failures: &[TestFailure]) -> String {
    let named: Vec<&str> = failures
        .iter()
        .take(MOST_NAMED)
        .map(|failure| failure.name.as_str())
        .collect();
    match failures.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(name: &str) -> TestFailure {
        TestFailure {
            name: name.to_owned(),
            failed: 4,
            runs: 4,
            base_failed: 0,
            base_runs: 4,
        }
    }

    fn tests(passed: u64, new: &[&str]) -> PointTests {
        PointTests {
            passed,
            skipped: 236,
            new: new.iter().map(|name| failure(name)).collect(),
            ..PointTests::new(Point::Step(1))
        }
    }

    #[test]
    fn a_patch_in_one_sentence() {
        assert_eq!(
            of_patch(&tests(1053, &[])),
            "1,053 tests pass, no new failures"
        );
        let mut some = tests(1, &["a", "b", "c", "d", "e", "f"]);
        some.known = vec![failure("k")];
        some.flaky = vec![failure("x"), failure("y")];
        some.unclear = vec![TestFailure {
            failed: 1,
            ..failure("u")
        }];
        some.lost = vec!["gone".to_owned()];
        some.fixed = vec!["better".to_owned()];
        assert_eq!(
            of_patch(&some),
            "1 test passes, 6 new failures: a, b, c, d, e and 1 more; 1 fails on the release too; 2 are flaky; \
             unclear: u fails in 1 of 4 runs, on the release in 0 of 4; gone no longer runs; \
             better passes and did not before"
        );
    }

    #[test]
    fn every_form() {
        let known = ["maria.encrypt-no-key", "maria.encrypt-wrong-key"].map(failure);
        let release = PointTests {
            skipped: 283,
            known: known.to_vec(),
            ..PointTests::new(Point::BASE)
        };
        let release = PointTests {
            passed: 937,
            ..release
        };
        let first = PointTests {
            point: Point::Step(1),
            ..release.clone()
        };
        let second = PointTests {
            new: vec![failure("main.func")],
            point: Point::Step(2),
            ..release.clone()
        };
        let server = |tests, patch, minutes: f64| TestedServer {
            point: Point::BASE,
            label: "mariadb-10.11.18",
            patch,
            seconds: 60.0 * minutes,
            cached: false,
            tests,
            error: None,
        };
        let long = Some("0001-string-append-size-json-and-grow-in-proportion.patch");
        let servers = [
            server(Some(&release), None, 13.0),
            TestedServer {
                point: Point::Step(1),
                ..server(Some(&first), long, 17.0)
            },
            TestedServer {
                point: Point::Step(2),
                cached: true,
                ..server(Some(&second), Some("0002-*.patch"), 0.2)
            },
            TestedServer {
                point: Point::Step(3),
                error: Some("patch `0003` does not compile".into()),
                ..server(None, Some("0003-a.patch"), 0.1)
            },
        ];
        insta::assert_snapshot!(crate::tests::forms(&[
            ("60 columns", document(&servers).terminal(60, false)),
            ("80 columns", document(&servers).terminal(80, false)),
            ("Markdown", document(&servers).markdown()),
        ]));
    }

    #[test]
    fn the_release_in_one_sentence() {
        let mut release = tests(1053, &[]);
        assert_eq!(
            of_release(&release),
            "On the release 1,053 tests pass and 236 are skipped"
        );
        release.known = vec![failure("a"), failure("b")];
        release.flaky = vec![failure("c")];
        release.skipped = 0;
        assert_eq!(
            of_release(&release),
            "On the release 1,053 tests pass, 2 fail and 1 is flaky"
        );
    }
}
