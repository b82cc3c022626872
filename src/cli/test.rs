//! `perfquilt test`: runs the server's own tests on the bare release and after each patch.

use std::fmt::Write;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::measuring::chosen_recipe;
use super::output::cut;
use super::series_as_written::SeriesChoice;
use perfquilt_measure::run::{RunRequest, TestedPoint, new_failures, prepare, test_points};
use perfquilt_model::error::Result;
use perfquilt_model::point::Point;
use perfquilt_model::server_tests::PointTests;
use perfquilt_report::server_tests::{of_patch, of_release, runs, runs_here};
use perfquilt_report::{clean, long, width, wrap};

/// Arguments of `perfquilt test`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt test                  the release, and after each patch
  perfquilt test 2                the release, and after patch 2
  perfquilt test --recipe debug

[recipe.NAME.test] says how the tests run (docs/testing.md). Results are kept: the tests of an unchanged point do not run \
again, and reports show them beside each effect.")]
pub struct Arguments {
    /// Points to test besides the bare release (default: all in order)
    #[arg(value_name = "POINT")]
    points: Vec<Point>,
    /// Recipe to build with: a [recipe.NAME] of the configuration (default: that of the preset quick)
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    #[command(flatten)]
    series: SeriesChoice,
}

/// A point in the JSON document.
#[derive(Debug, Serialize)]
struct Row<'a> {
    point: Point,
    label: &'a str,
    seconds: f64,
    cached: bool,
    tests: Option<&'a PointTests>,
    error: Option<String>,
}

/// Runs `perfquilt test`.
///
/// # Errors
/// Those of [`prepare`] and [`test_points`]; after the table, the error of the last point that failed, or
/// [`Kind::Regression`](perfquilt_model::error::Kind::Regression) when a test newly fails with a patch.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    let release = arguments.release.as_deref();
    arguments.series.check(context, &ws, &[release])?;
    let progress = context.output.progress();
    let recipe = chosen_recipe(&ws, arguments.recipe.as_deref())?;
    let prepared = prepare(&ws, release, progress)?;
    let request = RunRequest {
        points: arguments.points.clone(),
        ..RunRequest::default()
    };
    let points = request.points(&prepared)?;
    let tested = test_points(&ws, &prepared, recipe, &points, progress)?;
    if context.output.json() {
        let rows: Vec<Row<'_>> = tested.iter().map(row).collect();
        let document = serde_json::json!({ "schema": 1, "points": rows });
        context.output.print_json(&document)?;
    } else {
        context
            .output
            .print(&table(&tested, context.output.width()))?;
    }
    let broken = new_failures(&tested);
    let errors = tested.into_iter().filter_map(|point| point.tests.err());
    context.output.errors(errors.chain(broken).collect())
}

fn row(point: &TestedPoint) -> Row<'_> {
    Row {
        point: point.point,
        label: &point.label,
        seconds: point.seconds,
        cached: point.cached,
        tests: point.tests.as_ref().ok(),
        error: point.tests.as_ref().err().map(ToString::to_string),
    }
}

/// Formats the points in at most `columns` columns: the bare release, then each point with the tests that fail.
fn table(points: &[TestedPoint], columns: usize) -> String {
    let mut text = String::new();
    let names = points.iter().map(|point| width(&point.point.to_string()));
    let indent = names.max().unwrap_or(0) + 2;
    for point in points {
        let cached = if point.cached { ", from the cache" } else { "" };
        let label = point.patch.as_deref().unwrap_or(&point.label);
        let head = format!("{:<indent$}{}", point.point.to_string(), clean(label));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", cut(&head, columns));
        let mut add = |line: &str, indent: usize| {
            for part in wrap(&long(line), columns.saturating_sub(indent).max(20)) {
                let _ = writeln!(text, "{:indent$}{part}", "");
            }
        };
        match &point.tests {
            Ok(tests) if point.point == Point::BASE => {
                add(
                    &format!(
                        "{} ({}{cached})",
                        of_release(tests),
                        duration(point.seconds)
                    ),
                    indent,
                );
                for failure in tests.known.iter().chain(&tests.flaky) {
                    add(&runs_here(failure), indent + 2);
                }
            }
            Ok(tests) => {
                add(
                    &format!("{} ({}{cached})", of_patch(tests), duration(point.seconds)),
                    indent,
                );
                for failure in &tests.new {
                    add(&runs(failure), indent + 2);
                }
            }
            Err(error) => add(&format!("failed: {error}"), indent),
        }
    }
    text
}

fn duration(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}
