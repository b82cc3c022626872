//! `perfquilt build`: builds points without measuring them.

use clap::Args;
use serde::Serialize;

use super::Context;
use super::choices;
use super::measuring::{FreshOption, chosen_recipe};
use super::series_as_written::SeriesChoice;
use perfquilt_build::Built;
use perfquilt_measure::run::{BuiltPoint, RunRequest, build_points, prepare};
use perfquilt_model::error::Result;
use perfquilt_model::point::Point;
use perfquilt_report::{BuiltServer, built_servers};

/// Arguments of `perfquilt build`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt build                 every point of the series
  perfquilt build --recipe plain 0 4
  perfquilt build without:2       the whole series but patch 2

Built servers are kept: an unchanged point is never built again.")]
pub struct Arguments {
    /// Points to build (default: all in order)
    #[arg(value_name = "POINT")]
    points: Vec<Point>,
    /// Point to build, as in `perfquilt run`; may be repeated
    #[arg(long = "point", value_name = "POINT")]
    further: Vec<Point>,
    /// Recipe to build with: a [recipe.NAME] of the configuration (default: that of the preset quick)
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Build on the machines of a cluster, with the settings of [cluster]: slurm or command (default: on this machine)
    #[arg(long, value_name = "SCHEDULER", value_parser = choices::scheduler)]
    on: Option<String>,
    #[command(flatten)]
    fresh: FreshOption,
    #[command(flatten)]
    series: SeriesChoice,
}

/// A point in the JSON document.
#[derive(Debug, Serialize)]
struct BuildRow<'a> {
    point: Point,
    label: &'a str,
    built: Option<&'a Built>,
    error: Option<String>,
}

/// Runs `perfquilt build`.
///
/// # Errors
/// Those of [`prepare`] and [`build_points`]; after the table, the error of the last point that failed.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = arguments.fresh.workspace(context)?;
    let release = arguments.release.as_deref();
    arguments.series.check(&ws, &[release])?;
    let recipe = chosen_recipe(&ws, arguments.recipe.as_deref())?;
    let prepared = prepare(&ws, release)?;
    // The control is the bare release's server measured again.
    let server = |point: &Point| match point {
        Point::Control => Point::BASE,
        point => *point,
    };
    let named = arguments.points.iter().chain(&arguments.further);
    let chosen: Vec<Point> = named.map(server).collect();
    let request = RunRequest {
        points: chosen.clone(),
        ..RunRequest::default()
    };
    let mut points = request.points(&prepared)?;
    points.retain(|point| chosen.is_empty() || chosen.contains(point));
    let built = build_points(&ws, &prepared, (recipe, arguments.on.as_deref()), &points)?;
    let output = &context.output;
    let rows: Vec<BuildRow<'_>> = built.iter().map(row).collect();
    let json = serde_json::json!({ "schema": 1, "points": rows });
    let servers: Vec<BuiltServer<'_>> = built.iter().map(built_server).collect();
    let document = built_servers(&servers);
    output.result(&json, || output.terminal(&document))?;
    let errors = built.into_iter().filter_map(|point| point.built.err());
    context.output.errors(errors.collect())
}

fn row(point: &BuiltPoint) -> BuildRow<'_> {
    BuildRow {
        point: point.point,
        label: &point.label,
        built: point.built.as_ref().ok(),
        error: point.built.as_ref().err().map(ToString::to_string),
    }
}

fn built_server(point: &BuiltPoint) -> BuiltServer<'_> {
    BuiltServer {
        point: point.point,
        build: point
            .built
            .as_ref()
            .ok()
            .map(|built| (built.record(point.point, None), &*built.identity)),
    }
}
