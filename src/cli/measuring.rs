//! Options of the commands that measure.

use std::time::{Duration, Instant};

use clap::Args;

use super::Context;
use super::choices;
use super::series_as_written::SeriesChoice;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Preset, parse_duration, parse_fraction, width_fault};
use perfquilt_measure::experiment::Budget;
pub(super) use perfquilt_measure::run::request::DEFAULT_PRESET;
use perfquilt_measure::run::{Effects, RunRequest};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_system::process::quoted;

/// Returns the recipe called `given`, else that of the default preset.
pub(super) fn chosen_recipe<'n>(ws: &'n Workspace, given: Option<&'n str>) -> Result<&'n str> {
    let recipe = match given {
        Some(recipe) => recipe,
        None => &ws.config.preset(DEFAULT_PRESET)?.recipe,
    };
    ws.config.recipe(recipe)?;
    Ok(recipe)
}

/// Options of `run` that say what to measure, and how long.
#[derive(Debug, Clone, Args)]
pub struct MeasuringOptions {
    /// Preset for building and measuring: a [preset.NAME] of the configuration
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PRESET)]
    preset: String,
    /// Workload to measure instead of the preset's; may be repeated
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<String>,
    /// Number of blocks instead of the preset's; the maximum with --resolution
    #[arg(long, value_name = "N", value_parser = choices::number::<u32>, overrides_with = "blocks")]
    blocks: Option<u32>,
    /// Measure on the machines of a cluster, with the settings of [cluster]: slurm or command (default: the
    /// preset's, else on this machine)
    #[arg(long, value_name = "SCHEDULER", value_parser = choices::scheduler)]
    on: Option<String>,
    /// Stop once every patch's interval is within ±FRACTION of speed: 0.003 or 0.3%, at most 20%; 0 measures all
    /// blocks
    #[arg(long, value_name = "FRACTION", value_parser = parse_fraction, overrides_with = "resolution")]
    resolution: Option<f64>,
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    pub release: Option<String>,
    /// Point to measure; may be repeated (default: all; the bare release is always measured)
    #[arg(long = "point", value_name = "POINT")]
    points: Vec<Point>,
    /// Effects to measure of each patch: in the order of the series, alone on the bare release,
    /// without it against the whole series
    #[arg(
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        default_value = "order",
        value_parser = choices::effects()
    )]
    effects: Vec<Effects>,
    /// Time limit, builds included: 30m, 2h; measuring ends earlier when the resolution is reached
    /// (default: as long as the preset's blocks take)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "blocks")]
    pub budget: Option<Duration>,
    #[command(flatten)]
    pub fresh: FreshOption,
    /// Time each patch on all workloads, including those that do not execute the code it changes
    #[arg(long)]
    unexecuted: bool,
    #[command(flatten)]
    pub series: SeriesChoice,
}

impl MeasuringOptions {
    /// Returns the preset with the overrides of the flags.
    pub fn preset(&self, ws: &Workspace) -> Result<Preset> {
        let mut preset = ws.config.preset(&self.preset)?.clone();
        if !self.workloads.is_empty() {
            preset.workloads.clear();
            for name in &self.workloads {
                let name = ws.config.workload(name)?.name.clone();
                if !preset.workloads.contains(&name) {
                    preset.workloads.push(name);
                }
            }
        }
        let mut preset = with_blocks(preset, self.blocks)?;
        match self.resolution {
            Some(0.0) => (preset.resolution, preset.min_blocks) = (None, None),
            Some(resolution) => match width_fault("--resolution", resolution) {
                Some(fault) => return Err(Error::arguments(fault)),
                None => preset.resolution = Some(resolution),
            },
            None => {}
        }
        preset.on = self.on.clone().or(preset.on);
        Ok(preset)
    }

    /// Returns the words of the command `perfquilt run …` that measures with these options, for a shell. `--budget` is left
    /// out: it does not change what is measured. `--fresh` tells which experiment the command continues.
    pub fn command(&self) -> Vec<String> {
        let mut words: Vec<String> = ["perfquilt", "run", "--preset", &self.preset]
            .map(quoted)
            .to_vec();
        let mut add = |flag: &str, value: &str| words.push(format!("{flag} {}", quoted(value)));
        for workload in &self.workloads {
            add("--workload", workload);
        }
        if let Some(blocks) = self.blocks {
            add("--blocks", &blocks.to_string());
        }
        if let Some(on) = &self.on {
            add("--on", on);
        }
        if let Some(resolution) = self.resolution {
            add("--resolution", &resolution.to_string());
        }
        if let Some(release) = &self.release {
            add("--release", release);
        }
        for point in &self.points {
            add("--point", &point.to_string());
        }
        if self.effects != [Effects::Order] {
            let effects: Vec<&str> = self
                .effects
                .iter()
                .copied()
                .map(choices::effects_word)
                .collect();
            add("--effects", &effects.join(","));
        }
        if self.unexecuted {
            words.push("--unexecuted".to_owned());
        }
        if self.fresh.fresh {
            words.push("--fresh".to_owned());
        }
        words
    }

    /// Returns the requested points and effects; `command` makes the request.
    pub fn request(&self, preset: &Preset, command: Option<String>) -> RunRequest {
        RunRequest {
            command,
            commit: None,
            points: self.points.clone(),
            effects: self.effects.clone(),
            time_unexecuted: self.unexecuted,
            budget: self.budget(preset),
        }
    }

    /// Returns the time that the command may take from here on, which `preset` limits.
    fn budget(&self, preset: &Preset) -> Option<Budget> {
        // A number of blocks replaces the preset's budget.
        let of_preset = preset.budget.filter(|_| self.blocks.is_none());
        self.budget.or(of_preset).map(|duration| Budget {
            begun: Instant::now(),
            duration,
        })
    }
}

/// The option to ask afresh.
#[derive(Debug, Clone, Args)]
pub struct FreshOption {
    /// Build, test and measure again: no stored server, failure or result counts
    #[arg(long)]
    fresh: bool,
}

impl FreshOption {
    /// Opens the workspace, whose stored answers count unless the option is given.
    pub fn workspace(&self, context: &Context) -> Result<Workspace> {
        Ok(context.workspace()?.asking(self.fresh))
    }
}

/// Returns the preset with another number of blocks, if one is given.
pub fn with_blocks(mut preset: Preset, blocks: Option<u32>) -> Result<Preset> {
    if let Some(blocks) = blocks {
        if blocks < 2 {
            return Err(Error::arguments("an interval needs at least 2 blocks"));
        }
        preset.blocks = blocks;
        preset.min_blocks = preset.min_blocks.map(|least| least.min(blocks));
    }
    Ok(preset)
}

/// Returns the preset with another recipe, if one is given.
pub fn with_recipe(ws: &Workspace, mut preset: Preset, recipe: Option<&str>) -> Result<Preset> {
    if let Some(recipe) = recipe {
        ws.config.recipe(recipe)?;
        recipe.clone_into(&mut preset.recipe);
    }
    Ok(preset)
}
