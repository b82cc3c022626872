//! Compares the results of the server's own tests at a point with those on the bare release.
//!
//! Tests fail by chance. A failure counts against a patch only if the test fails in every run with it and in none on
//! the bare release; failing tests are therefore repeated in both places. With the default of three repetitions, a
//! test that fails by chance in half of all runs, on the release as with the patch, looks like this with a probability
//! of (1/2)⁸, and one that fails in a tenth of the runs with a probability below 10⁻⁴.

use std::collections::{BTreeMap, BTreeSet};

use perfquilt_model::point::Point;
use perfquilt_model::server_tests::{PointTests, TestCounts, TestFailure, TestRecord};

/// The results of a test in all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestState {
    /// It was skipped, or is unknown.
    NotRun,
    /// It passed in every run.
    Passes,
    /// It failed in every run.
    Fails,
    /// It failed in some runs and passed in others.
    Varies,
}

fn state(counts: TestCounts) -> TestState {
    match (counts.passed, counts.failed) {
        (0, 0) => TestState::NotRun,
        (_, 0) => TestState::Passes,
        (0, _) => TestState::Fails,
        _ => TestState::Varies,
    }
}

/// Compares the record of each point with that of the bare release and with that of the point before it. Points whose
/// record is of another suite than the release's are left out; without a record of the release, all are.
pub fn compare(records: &BTreeMap<Point, TestRecord>) -> Vec<PointTests> {
    let Some(base) = records.get(&Point::BASE) else {
        return Vec::new();
    };
    let mut compared: Vec<PointTests> = Vec::new();
    for (point, record) in records {
        if record.suite != base.suite || *point == Point::Control {
            continue;
        }
        let tests = compare_point(*point, record, base, &failing_before(*point, &compared));
        compared.push(tests);
    }
    compared
}

/// Returns the tests that fail because of a patch before the one that makes `point`.
fn failing_before(point: Point, compared: &[PointTests]) -> BTreeSet<String> {
    let Point::Step(index) = point else {
        return BTreeSet::new();
    };
    let before = compared
        .iter()
        .filter_map(|tests| match tests.point {
            Point::Step(k) if k < index => Some((k, tests)),
            _ => None,
        })
        .max_by_key(|(k, _)| *k);
    let failures = before
        .into_iter()
        .flat_map(|(_, tests)| tests.new.iter().chain(&tests.earlier));
    failures.map(|failure| failure.name.clone()).collect()
}

fn compare_point(
    point: Point,
    record: &TestRecord,
    base: &TestRecord,
    before: &BTreeSet<String>,
) -> PointTests {
    let mut result = PointTests::new(point);
    for (name, counts) in &record.tests {
        let of_base = base.tests.get(name).copied().unwrap_or_default();
        let failure = || TestFailure {
            name: name.clone(),
            failed: counts.failed,
            runs: counts.runs(),
            base_failed: of_base.failed,
            base_runs: of_base.runs(),
        };
        match (state(*counts), state(of_base)) {
            (TestState::NotRun, _) => result.skipped += 1,
            (TestState::Passes, of_base) => {
                result.passed += 1;
                if of_base == TestState::Fails {
                    result.fixed.push(name.clone());
                }
            }
            (TestState::Fails, TestState::Fails) => result.known.push(failure()),
            (_, TestState::Varies) => result.flaky.push(failure()),
            // It fails always on the release, and passes here at times.
            (TestState::Varies, TestState::Fails) => result.flaky.push(failure()),
            (TestState::Varies, _) if point == Point::BASE => result.flaky.push(failure()),
            (TestState::Varies, _) => result.unclear.push(failure()),
            (TestState::Fails, _) if before.contains(name) => result.earlier.push(failure()),
            (TestState::Fails, _) => result.new.push(failure()),
        }
    }
    let ran = |counts: TestCounts| state(counts) != TestState::NotRun;
    // Some suites put random values into names, such as seeds: a test whose name differs in its numbers alone from one
    // that the release does not know is not lost.
    let names = record.tests.keys();
    let unknown = names.filter(|name| !base.tests.contains_key(*name));
    let unknown: BTreeSet<String> = unknown.map(|name| without_numbers(name)).collect();
    let lost = base.tests.iter().filter(|(name, counts)| {
        ran(**counts)
            && !record.tests.get(*name).copied().is_some_and(ran)
            && !unknown.contains(&without_numbers(name))
    });
    result.lost = lost.map(|(name, _)| name.clone()).collect();
    result
}

fn without_numbers(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record from `NAME RESULTS` lines, where each letter of the results is a run: p, f or s.
    fn record(lines: &[&str]) -> TestRecord {
        let mut record = TestRecord::default();
        for line in lines {
            let (name, runs) = line.split_once(' ').unwrap();
            let count = |letter| runs.matches(letter).count().try_into().unwrap();
            let counts = TestCounts {
                passed: count('p'),
                failed: count('f'),
                skipped: count('s'),
            };
            record.tests.insert(name.to_owned(), counts);
        }
        record
    }

    fn names(failures: &[TestFailure]) -> Vec<&str> {
        failures
            .iter()
            .map(|failure| failure.name.as_str())
            .collect()
    }

    #[test]
    fn a_failure_counts_against_the_patch_that_causes_it() {
        let records = BTreeMap::from([
            (
                Point::BASE,
                record(&["a pppp", "b ffff", "c pffp", "d s", "e p", "f ffff"]),
            ),
            (
                Point::Step(1),
                record(&["a ffff", "b ffff", "c ffff", "d s", "e s", "f pppp", "n p"]),
            ),
            (
                Point::Step(2),
                record(&["a ffff", "b ffff", "c p", "d s", "e p", "f f", "n ffff"]),
            ),
            (
                Point::Alone(2),
                record(&["a pfpp", "b f", "c p", "d s", "e p", "f f"]),
            ),
        ]);
        let compared = compare(&records);
        let [base, first, second, alone] = &compared[..] else {
            panic!("{compared:?}");
        };
        assert_eq!(base.passed, 2);
        assert_eq!(names(&base.known), ["b", "f"]);
        assert_eq!(names(&base.flaky), ["c"]);
        assert!(base.new.is_empty() && base.lost.is_empty());

        assert_eq!(names(&first.new), ["a"]);
        assert_eq!((first.new[0].failed, first.new[0].base_runs), (4, 4));
        assert_eq!(names(&first.known), ["b"]);
        assert_eq!(names(&first.flaky), ["c"]);
        assert_eq!(
            (first.lost.as_slice(), first.fixed.as_slice()),
            (&["e".to_owned()][..], &["f".to_owned()][..])
        );
        assert_eq!((first.passed, first.skipped), (2, 2));

        // The first patch breaks `a`, the second the test that the first added.
        assert_eq!(names(&second.earlier), ["a"]);
        assert_eq!(names(&second.new), ["n"]);
        assert_eq!(second.new[0].base_runs, 0);

        assert_eq!(names(&alone.unclear), ["a"]);
        assert!(alone.new.is_empty());
    }

    #[test]
    fn tests_with_random_numbers_in_their_names_are_not_lost() {
        let records = BTreeMap::from([
            (
                Point::BASE,
                record(&["seed=12 p", "seed=7 p", "part=1 p", "part=2 p"]),
            ),
            (
                Point::Step(1),
                record(&["seed=7 p", "seed=345 p", "part=1 p"]),
            ),
        ]);
        let compared = compare(&records);
        assert_eq!(compared[1].lost, ["part=2"]);
    }

    #[test]
    fn only_records_of_one_suite_are_compared() {
        let other = TestRecord {
            suite: "other".to_owned(),
            ..record(&["a f"])
        };
        let mut records = BTreeMap::from([(Point::Step(1), other)]);
        assert!(compare(&records).is_empty());
        records.insert(Point::BASE, record(&["a p"]));
        let compared = compare(&records);
        assert_eq!(compared.len(), 1);
        assert_eq!(compared[0].point, Point::BASE);
    }
}
