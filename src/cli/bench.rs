//! `perfquilt bench`: measures servers that are built already.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use sha2::{Digest, Sha256};

use super::Context;
use super::report::{self, Form};
use crate::build::{BuildSeconds, Builder, Built};
use crate::config::Preset;
use crate::error::{Error, Result};
use crate::experiment::{self, Measurable, Subject};
use crate::point::Point;
use crate::progress::Progress;
use crate::run::{Options, chosen_points, prepare};
use crate::store::Store;
use crate::workspace::Workspace;

/// Arguments of `perfquilt bench`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bench --workload oltp_point_select     every point that is built
  perfquilt bench --point 2 --blocks 40
  perfquilt bench --server 0=old/ --server 1=new/  servers built elsewhere")]
pub struct Arguments {
    /// What to measure: a [preset.NAME] of the configuration
    #[arg(long, value_name = "NAME", default_value = "quick")]
    preset: String,
    /// The release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Only these points (the bare release is always one of them)
    #[arg(long = "point", value_name = "POINT")]
    points: Vec<Point>,
    /// A server built elsewhere to measure as this point: a folder laid out as the recipe's
    /// `install` says
    #[arg(long = "server", value_name = "POINT=DIR", value_parser = parse_server,
          conflicts_with_all = ["points", "release"])]
    servers: Vec<(Point, PathBuf)>,
    /// Other workloads than the preset's
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<String>,
    /// Another number of blocks than the preset's
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    #[command(flatten)]
    form: Form,
}

fn parse_server(text: &str) -> Result<(Point, PathBuf), String> {
    let (point, dir) = text.split_once('=').ok_or("POINT=DIR is needed")?;
    let point: Point = point.parse().map_err(|error: Error| error.to_string())?;
    if point == Point::Control {
        return Err("the control is added by itself: it is the base's server again".into());
    }
    Ok((point, PathBuf::from(dir)))
}

/// Runs `perfquilt bench`.
///
/// # Errors
/// As [`experiment::run`]; [`Kind::Build`](crate::error::Kind::Build) when no point but the release
/// is built; after the report, [`Kind::Bench`](crate::error::Kind::Bench) when a point could not be
/// measured.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    let progress = context.output.progress();
    let options = Options {
        preset: arguments.preset.clone(),
        workloads: arguments.workloads.clone(),
        blocks: arguments.blocks,
        ..Options::default()
    };
    let preset = options.preset(&ws)?;
    let (points, subject) = if arguments.servers.is_empty() {
        built_here(&ws, &preset, arguments, progress)?
    } else {
        built_elsewhere(&ws, &preset, &arguments.servers)?
    };
    let store = Store::open(&ws.results())?;
    let id = experiment::run(&ws, &preset, &points, &subject, &store, progress)?;
    let judged = report::stored(context, &arguments.form, &ws, &store, id);
    let failed = store.header(id)?.failed;
    match failed
        .iter()
        .find(|(point, _)| !subject.failed.contains_key(*point))
    {
        Some((point, reason)) => Err(Error::bench(format!("point {point}: {reason}"))),
        None => judged,
    }
}

/// The points that are in the cache of built servers.
fn built_here(
    ws: &Workspace,
    preset: &Preset,
    arguments: &Arguments,
    progress: &dyn Progress,
) -> Result<(Vec<Measurable>, Subject)> {
    let prepared = prepare(ws, arguments.release.as_deref(), progress)?;
    let builder = Builder::new(ws, &preset.recipe, &prepared.release.name)?;
    let patches = prepared.series.patches();
    let mut points = Vec::new();
    let mut missing = BTreeMap::new();
    for point in chosen_points(&prepared, &arguments.points)? {
        let label = match point {
            Point::Step(k) | Point::Alone(k) | Point::Without(k) if k > 0 => {
                patches[k - 1].name.clone()
            }
            _ => prepared.release.name.clone(),
        };
        match builder.cached(&prepared.stack.tree(point)?) {
            Some(built) => points.push(Measurable {
                point,
                label,
                built,
            }),
            None => {
                missing.insert(point, "not built".to_owned());
            }
        }
    }
    for point in missing.keys() {
        progress.warn(&format!("point {point} is not built and left out"));
    }
    if points.len() < 2 || missing.contains_key(&Point::BASE) {
        return Err(
            Error::build("there is nothing to compare: too few points are built")
                .hint("`perfquilt build` builds them, `perfquilt run` builds and measures"),
        );
    }
    let subject = Subject {
        release: prepared.release.name.clone(),
        recipe: preset.recipe.clone(),
        series: patches.iter().map(|patch| patch.name.clone()).collect(),
        titles: patches.iter().map(|patch| patch.title.clone()).collect(),
        failed: missing,
    };
    Ok((points, subject))
}

fn built_elsewhere(
    ws: &Workspace,
    preset: &Preset,
    servers: &[(Point, PathBuf)],
) -> Result<(Vec<Measurable>, Subject)> {
    let binary = ws.config.recipe(&preset.recipe)?.binary.clone();
    let mut points: Vec<Measurable> = Vec::new();
    let mut patches = 0;
    for (point, dir) in servers {
        if points.iter().any(|other| other.point == *point) {
            return Err(Error::usage(format!("point {point} is given twice")));
        }
        if let Point::Step(k) | Point::Alone(k) | Point::Without(k) = *point {
            patches = patches.max(k);
        }
        let absolute = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
        points.push(Measurable {
            point: *point,
            label: dir.display().to_string(),
            built: elsewhere(&absolute, binary.as_deref().unwrap_or_default())?,
        });
    }
    let name = |k: usize| {
        points
            .iter()
            .find(|measurable| measurable.point == Point::Step(k))
            .map_or_else(|| format!("patch-{k}"), |found| found.label.clone())
    };
    let subject = Subject {
        release: format!("{}-{}", ws.config.upstream.name, ws.config.upstream.current),
        recipe: preset.recipe.clone(),
        series: (1..=patches).map(name).collect(),
        titles: Vec::new(),
        failed: BTreeMap::new(),
    };
    Ok((points, subject))
}

/// A server built elsewhere: its executable is its identity.
fn elsewhere(dir: &Path, binary: &str) -> Result<Built> {
    let path = dir.join(binary);
    let bytes = std::fs::read(&path).map_err(|e| {
        Error::usage(format!("cannot read the server {}: {e}", path.display()))
            .hint("the folder is laid out as the recipe's `install` in bench-config/perfquilt.toml")
    })?;
    let identity = crate::workload::hex(&Sha256::digest(&bytes));
    Ok(Built {
        key: identity[..40].to_owned(),
        dir: dir.to_owned(),
        identity,
        seconds: BuildSeconds::default(),
        compiled_units: 0,
        cached: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_point() {
        assert_eq!(
            parse_server("alone:2=a/b"),
            Ok((Point::Alone(2), PathBuf::from("a/b")))
        );
        for wrong in ["2", "x=a", "control=a"] {
            assert!(parse_server(wrong).is_err(), "{wrong}");
        }
    }
}
