//! Sentences about the server's own tests.

use super::document::{Cell, Document, literal, name, table};
use super::number::grouped;
use perfquilt_model::counted::listed;
use perfquilt_model::point::Point;
use perfquilt_model::server_tests::{PointTests, TestFailure, TestedPoint};

/// Number of tests that a sentence names.
const MOST_NAMED: usize = 5;

/// Returns the document on the tests of points: the bare release, then each point with the tests that fail.
pub fn document(points: &[TestedPoint]) -> Document {
    let tests = |point: &TestedPoint| {
        let cached = if point.cached { ", from the cache" } else { "" };
        let took = format!("({}{cached})", duration(point.seconds));
        match &point.tests {
            Ok(tests) if point.point == Point::BASE => {
                let failures = tests.known.iter().chain(&tests.flaky).map(runs_here);
                (format!("{} {took}", of_release(tests)), failures.collect())
            }
            Ok(tests) => {
                let failures: Vec<String> = tests.new.iter().map(runs).collect();
                (format!("{} {took}", of_patch(tests)), failures)
            }
            Err(error) => (format!("failed: {error}"), Vec::new()),
        }
    };
    let table = table("Tests of each point", points)
        .figures("#", |point| point.point.to_string())
        .names("server", |point| {
            name(point.patch.as_ref().unwrap_or(&point.label))
        })
        .prose("tests", |point| {
            let (words, failures) = tests(point);
            Cell::from(literal(&words)).below(failures.iter().map(|line| literal(line)))
        });
    Document(vec![table.node()])
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
    let names = |failures: &[TestFailure]| {
        let names: Vec<&str> = failures.iter().map(|failure| &*failure.name).collect();
        listed(&names, MOST_NAMED)
    };
    match tests.new.as_slice() {
        [] => text += ", no new failures",
        new => {
            text += &format!(
                ", {}: {}",
                several(new.len(), "new failure", "new failures"),
                names(new)
            )
        }
    }
    for (failures, what) in [
        (&tests.earlier, "because of an earlier patch"),
        (&tests.known, "on the release too"),
    ] {
        if !failures.is_empty() {
            text += &format!("; {} {what}", several(failures.len(), "fails", "fail"));
        }
    }
    if !tests.flaky.is_empty() {
        text += &format!("; {}", several(tests.flaky.len(), "is flaky", "are flaky"));
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
            text += &format!("; no longer run: {}", listed(several, MOST_NAMED));
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
    for (count, one, more) in [
        (tests.known.len(), "fails", "fail"),
        (tests.flaky.len(), "is flaky", "are flaky"),
        (tests.skipped as usize, "is skipped", "are skipped"),
    ] {
        if count > 0 {
            parts.push(several(count, one, more));
        }
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
        count => several(count as usize, "test passes", "tests pass"),
    }
}

fn several(count: usize, one: &str, more: &str) -> String {
    let noun = if count == 1 { one } else { more };
    format!("{} {noun}", grouped(count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Error;

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
        let server = |tests, patch: Option<&str>, minutes: f64| TestedPoint {
            point: Point::BASE,
            label: "mariadb-10.11.18".into(),
            patch: patch.map(str::to_owned),
            seconds: 60.0 * minutes,
            cached: false,
            tests,
        };
        let broken = Err(Error::build_job("patch `0003` does not compile"));
        let long = Some("0001-string-append-size-json-and-grow-in-proportion.patch");
        let servers = [
            server(Ok(release), None, 13.0),
            TestedPoint {
                point: Point::Step(1),
                ..server(Ok(first), long, 17.0)
            },
            TestedPoint {
                point: Point::Step(2),
                cached: true,
                ..server(Ok(second), Some("0002-*.patch"), 0.2)
            },
            TestedPoint {
                point: Point::Step(3),
                ..server(broken, Some("0003-a.patch"), 0.1)
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
