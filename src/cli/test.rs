//! `perfquilt test`: runs the server's own tests on the bare release and after each patch.

use clap::Args;

use super::Context;
use super::measuring::{FreshOption, chosen_recipe};
use super::series_as_written::SeriesChoice;
use perfquilt_measure::run::{RunRequest, new_failures, prepare, test_points};
use perfquilt_model::error::Result;
use perfquilt_model::point::Point;

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
    fresh: FreshOption,
    #[command(flatten)]
    series: SeriesChoice,
}

/// Runs `perfquilt test`.
///
/// # Errors
/// Those of [`prepare`] and [`test_points`]; after the table, the error of the last point that failed, or
/// [`Kind::Regression`](perfquilt_model::error::Kind::Regression) when a test newly fails with a patch.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = arguments.fresh.workspace(context)?;
    let release = arguments.release.as_deref();
    arguments.series.check(&ws, &[release])?;
    let recipe = chosen_recipe(&ws, arguments.recipe.as_deref())?;
    let prepared = prepare(&ws, release)?;
    let request = RunRequest {
        points: arguments.points.clone(),
        ..RunRequest::default()
    };
    let points = request.points(&prepared)?;
    let tested = test_points(&ws, &prepared, recipe, &points)?;
    let output = &context.output;
    let json = serde_json::json!({ "schema": 1, "points": tested });
    let document = perfquilt_report::server_tests::document(&tested);
    output.result(&json, || output.terminal(&document))?;
    let broken = new_failures(&tested);
    let errors = tested.into_iter().filter_map(|point| point.tests.err());
    context.output.errors(errors.chain(broken).collect())
}
