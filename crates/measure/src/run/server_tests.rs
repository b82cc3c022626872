//! Runs the server's own tests on the bare release and at every point.

use std::collections::{BTreeMap, BTreeSet};

use super::{Prepared, StoredTrees, build_item, build_items, builder};
use perfquilt_build::test_suite::SuiteRunner;
use perfquilt_build::{BuildItem, Builder, SourceTree};
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::server_tests::compare;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_model::server_tests::{PointTests, TestRecord, TestedPoint};
use perfquilt_store::Store;

/// The most tests of a point that are repeated. More failures at once are no accident.
const MOST_REPEATED: usize = 40;

/// Tests the bare release and `points` with the tests of the recipe called `recipe`, and stores the results for the
/// reports. Points without results do not stop the others.
pub fn test_points(
    ws: &Workspace,
    prepared: &Prepared,
    recipe: &str,
    points: &[Point],
) -> Result<Vec<TestedPoint>> {
    let builder = builder(ws, recipe, prepared)?;
    let (items, _) = build_items(prepared, points)?;
    let base = build_item(prepared, Point::BASE)?;
    let source = StoredTrees::new(ws);
    let tested = test_items(&builder, base, items, &source)?;
    let records = tested
        .iter()
        .filter_map(|(item, tested)| Some((builder.key(&item.tree), tested.as_ref().ok()?)));
    let records: Vec<(String, &TestRecord)> =
        records.map(|(key, tested)| (key, &tested.record)).collect();
    let store = Store::open(&ws.results())?;
    store.record_tests(records.iter().map(|(key, record)| (key.as_str(), *record)))?;
    Ok(judged(tested))
}

/// The results of a point.
#[derive(Debug)]
pub(super) struct Tested {
    record: TestRecord,
    cached: bool,
}

/// The points with their results, the bare release first.
pub(super) type TestedItems = Vec<(BuildItem, Result<Tested>)>;

/// Tests `base` and the `items`. Tests that fail somewhere are repeated there; those that fail only with a patch are
/// repeated on the bare release as well, so that a flaky test is not called broken.
pub(super) fn test_items(
    builder: &Builder,
    base: BuildItem,
    items: Vec<BuildItem>,
    source: &dyn SourceTree,
) -> Result<TestedItems> {
    let runner = SuiteRunner::new(builder)?;
    let runs = runner.repetitions() + 1;
    let mut release = test_item(builder, &runner, &base, None, source)?;
    let expected = Some(release.record.tests.len() as u64);
    let repeat = |item: &BuildItem, names: &[String], record: &mut TestRecord| {
        runner.repeat(item, (names, runs), record, source)
    };
    let failing = first(release.record.failed().map(str::to_owned).collect());
    repeat(&base, &failing, &mut release.record)?;
    let mut tested: TestedItems = Vec::new();
    let mut suspects: BTreeSet<String> = BTreeSet::new();
    for item in items {
        if item.point == base.point {
            continue;
        }
        let result = test_item(builder, &runner, &item, expected, source);
        let result = result.and_then(|mut found| {
            let of_patch = first(suspicious(&found.record, &release.record));
            repeat(&item, &of_patch, &mut found.record)?;
            suspects.extend(of_patch);
            Ok(found)
        });
        match &result {
            Err(error) if matches!(error.kind(), Kind::Interrupted | Kind::Usage) => {
                return Err(error.clone());
            }
            Err(error) => progress::warn(error.warning(format!("point {} failed", item.point))),
            Ok(_) => {}
        }
        tested.push((item, result));
    }
    let on_release: Vec<String> = suspects
        .into_iter()
        .filter(|name| release.record.tests.contains_key(name))
        .collect();
    repeat(&base, &on_release, &mut release.record)?;
    tested.insert(0, (base, Ok(release)));
    Ok(tested)
}

/// Returns the tests that fail in `record` and never did on the bare release.
fn suspicious(record: &TestRecord, release: &TestRecord) -> Vec<String> {
    let fails_on_release = |name: &str| {
        release
            .tests
            .get(name)
            .is_some_and(|counts| counts.failed > 0)
    };
    let failed = record.failed().filter(|name| !fails_on_release(name));
    failed.map(str::to_owned).collect()
}

fn first(mut names: Vec<String>) -> Vec<String> {
    names.truncate(MOST_REPEATED);
    names
}

fn test_item(
    builder: &Builder,
    runner: &SuiteRunner<'_>,
    item: &BuildItem,
    expected: Option<u64>,
    source: &dyn SourceTree,
) -> Result<Tested> {
    if let Some(record) = runner.cached(&item.tree) {
        return Ok(Tested {
            record,
            cached: true,
        });
    }
    // The server itself first: if it does not build, the error names the patch and not its tests.
    builder.build(item, source)?;
    Ok(Tested {
        record: runner.run(item, expected, source)?,
        cached: false,
    })
}

/// Compares the results of the points with those of the bare release.
pub(super) fn judged(tested: TestedItems) -> Vec<TestedPoint> {
    let records: BTreeMap<Point, TestRecord> = tested
        .iter()
        .filter_map(|(item, tested)| Some((item.point, tested.as_ref().ok()?.record.clone())))
        .collect();
    let mut compared: BTreeMap<Point, PointTests> = compare(&records)
        .into_iter()
        .map(|tests| (tests.point, tests))
        .collect();
    tested
        .into_iter()
        .map(|(item, tested)| {
            let lacking = || Error::internal("the results of a point's tests are lost");
            TestedPoint {
                point: item.point,
                label: item.label,
                patch: item.patch,
                seconds: tested.as_ref().map_or(0.0, |tested| tested.record.seconds),
                cached: tested.as_ref().is_ok_and(|tested| tested.cached),
                tests: tested.and_then(|_| compared.remove(&item.point).ok_or_else(lacking)),
            }
        })
        .collect()
}

/// Returns an error that names the patches with which tests newly fail; `None` if there are none.
pub fn new_failures(tested: &[TestedPoint]) -> Option<Error> {
    let mut broken = tested.iter().filter_map(|point| {
        let tests = point.tests.as_ref().ok()?;
        Some((point, tests, tests.new.first()?))
    });
    let (point, tests, failure) = broken.next()?;
    let patch = point.patch.as_deref().unwrap_or(&point.label);
    let name = &failure.name;
    let more = match tests.new.len() {
        1 => String::new(),
        2 => " and another test".to_owned(),
        several => format!(" and {} other tests", several - 1),
    };
    let verb = if tests.new.len() == 1 {
        "fails"
    } else {
        "fail"
    };
    let others = broken.count();
    let error = Error::test_regression(format!(
        "{name}{more} {verb} with {patch} and not without it"
    ));
    Some(match others {
        0 => error,
        1 => error.details(["one more patch makes tests fail".to_owned()]),
        several => error.details([format!("{several} more patches make tests fail")]),
    })
}
