//! Results of the server's own tests.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::point::Point;

/// The result of a test in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestOutcome {
    /// It did not run, because something it needs is missing or the suite disables it.
    Skipped,
    /// It passed.
    Passed,
    /// It failed.
    Failed,
}

/// How often a test had which result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCounts {
    /// Runs in which it passed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub passed: u32,
    /// Runs in which it failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// Runs in which it was skipped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl TestCounts {
    /// Returns the number of runs in which the test passed or failed.
    pub fn runs(&self) -> u32 {
        self.passed + self.failed
    }

    fn add(&mut self, outcome: TestOutcome) {
        let count = match outcome {
            TestOutcome::Passed => &mut self.passed,
            TestOutcome::Failed => &mut self.failed,
            TestOutcome::Skipped => &mut self.skipped,
        };
        *count = count.saturating_add(1);
    }
}

/// The results of one point's tests, over all runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestRecord {
    /// Digest of the section `test` of the recipe and the files that it names. Only records of the same suite are
    /// compared.
    pub suite: String,
    /// The counts of each test by name.
    pub tests: BTreeMap<String, TestCounts>,
    /// Wall-clock seconds of all runs.
    pub seconds: f64,
}

impl TestRecord {
    /// Adds the results of one run, which took `seconds`.
    pub fn add(&mut self, run: &BTreeMap<String, TestOutcome>, seconds: f64) {
        for (name, outcome) in run {
            self.tests.entry(name.clone()).or_default().add(*outcome);
        }
        self.seconds += seconds;
    }

    /// Returns the names of the tests that failed in some run.
    pub fn failed(&self) -> impl Iterator<Item = &str> {
        let failed = self.tests.iter().filter(|(_, counts)| counts.failed > 0);
        failed.map(|(name, _)| name.as_str())
    }
}

/// A test that fails, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestFailure {
    /// The test's name.
    pub name: String,
    /// Runs with the patch in which it failed.
    pub failed: u32,
    /// Runs with the patch in which it passed or failed.
    pub runs: u32,
    /// Runs on the bare release in which it failed.
    pub base_failed: u32,
    /// Runs on the bare release in which it passed or failed; 0 for a test that the release does not run.
    pub base_runs: u32,
}

/// A tested point.
#[derive(Debug, Serialize)]
pub struct TestedPoint {
    /// The point.
    pub point: Point,
    /// The release, or the patch that makes the point, for display.
    pub label: String,
    /// The patch that makes the point; `None` for the bare release.
    #[serde(skip)]
    pub patch: Option<String>,
    /// The time that all runs of the tests took, in seconds.
    pub seconds: f64,
    /// Whether the results were in the cache.
    pub cached: bool,
    /// The results compared with those of the bare release, or why there are none: `tests` and `error` in JSON.
    #[serde(flatten, serialize_with = "tests_and_error")]
    pub tests: Result<PointTests>,
}

fn tests_and_error<S: Serializer>(
    tests: &Result<PointTests>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_map(None)?;
    fields.serialize_entry("tests", &tests.as_ref().ok())?;
    fields.serialize_entry("error", &tests.as_ref().err().map(Error::to_string))?;
    fields.end()
}

/// The server's own tests at a point, compared with those on the bare release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointTests {
    /// The point.
    pub point: Point,
    /// Number of tests that passed in every run.
    pub passed: u64,
    /// Number of tests that were skipped.
    pub skipped: u64,
    /// Tests that fail in every run here and pass in every run before: on the bare release, and at the point before.
    /// For a test that the release does not run, the point before counts alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new: Vec<TestFailure>,
    /// Tests that fail because of an earlier patch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<TestFailure>,
    /// Tests that fail in every run on the bare release, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<TestFailure>,
    /// Tests that fail in some runs on the bare release and pass in others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flaky: Vec<TestFailure>,
    /// Tests that fail in some runs here and in none on the bare release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclear: Vec<TestFailure>,
    /// Tests that the bare release runs, and that are skipped or absent here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// Tests that fail in every run on the bare release and pass in every run here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<String>,
}

impl PointTests {
    /// Creates a comparison of `point` without any test.
    pub fn new(point: Point) -> Self {
        PointTests {
            point,
            ..PointTests::default()
        }
    }
}
