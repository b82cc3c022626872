//! `perfquilt bench`: measures servers that are built already.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use sha2::{Digest, Sha256};

use super::Context;
use super::report::{Form, show};
use crate::build::{BuildSeconds, Built};
use crate::config::Preset;
use crate::error::{Error, Result};
use crate::experiment;
use crate::observation::{ExperimentHeader, SCHEMA};
use crate::point::Point;
use crate::store::Store;
use crate::workspace::Workspace;

/// What is measured; shared by the commands that measure.
#[derive(Debug, Clone, Args)]
pub struct Measuring {
    /// The preset of bench-config/perfquilt.toml
    #[arg(long, value_name = "NAME", default_value = "quick")]
    pub preset: String,
    /// Measure these workloads instead of the preset's
    #[arg(long, value_name = "NAME")]
    pub workload: Vec<String>,
    /// Measure this many blocks instead of the preset's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub blocks: Option<u32>,
}

impl Measuring {
    /// The preset with what the flags change.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) for an unknown preset or workload.
    pub fn preset(&self, ws: &Workspace) -> Result<Preset> {
        let mut preset = ws.config.preset(&self.preset)?.clone();
        if !self.workload.is_empty() {
            preset.workloads.clear();
            for name in &self.workload {
                let name = ws.config.workload(name)?.name.clone();
                if !preset.workloads.contains(&name) {
                    preset.workloads.push(name);
                }
            }
        }
        preset.blocks = self.blocks.unwrap_or(preset.blocks);
        Ok(preset)
    }
}

/// Arguments of `perfquilt bench`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    measuring: Measuring,
    /// A built server to measure as this point: a folder laid out as the recipe's `install` says
    #[arg(long = "server", value_name = "POINT=DIR", value_parser = parse_server, required = true)]
    servers: Vec<(Point, PathBuf)>,
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
/// As [`experiment::run`]; [`Kind::Bench`](crate::error::Kind::Bench) when a point could not be
/// measured, after the report of the others.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    let preset = arguments.measuring.preset(&ws)?;
    let recipe = ws.config.recipe(&preset.recipe)?;
    let binary = recipe.binary.clone().unwrap_or_default();
    let mut points = BTreeMap::new();
    for (point, dir) in &arguments.servers {
        let dir = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
        if points.insert(*point, elsewhere(&dir, &binary)?).is_some() {
            return Err(Error::usage(format!("point {point} is given twice")));
        }
    }
    let points: Vec<(Point, Built)> = points.into_iter().collect();
    let header = header(&ws, &preset, &points);
    let store = Store::open(&ws.results())?;
    let progress = context.output.progress();
    let outcome = experiment::run(&ws, &preset, &points, header, &store, progress)?;
    let (header, observations) = store.load(outcome.id)?;
    let supplement = store.supplement(outcome.id)?;
    let margin = |meter| ws.config.margin(meter);
    show(
        context,
        &arguments.form,
        &header,
        &observations,
        &supplement,
        &margin,
    )?;
    match outcome.failed.into_values().next() {
        Some(error) => Err(error),
        None => Ok(()),
    }
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

fn header(ws: &Workspace, preset: &Preset, points: &[(Point, Built)]) -> ExperimentHeader {
    let patches = points
        .iter()
        .map(|(point, _)| match point {
            Point::Step(k) | Point::Alone(k) | Point::Without(k) => *k,
            Point::Control => 0,
        })
        .max()
        .unwrap_or(0);
    let release = format!("{}-{}", ws.config.upstream.name, ws.config.upstream.current);
    ExperimentHeader {
        schema: SCHEMA,
        experiment: format!("{release}-{}", preset.recipe),
        series: (1..=patches).map(|k| format!("patch-{k}")).collect(),
        titles: Vec::new(),
        release,
        recipe: preset.recipe.clone(),
        machine: BTreeMap::new(),
        harness: String::new(),
        identical: BTreeMap::new(),
        failed: BTreeMap::new(),
        started: jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .map(|now| now.to_string())
            .unwrap_or_default(),
    }
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
