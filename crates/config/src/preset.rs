//! `[preset.NAME]`: settings of experiments.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::document::Document;
use super::{Config, Workload, fraction, seconds};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::warning::Warning;

/// How the timed blocks vary the layout of code and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layouts {
    /// No variation: servers run as they were linked
    Off,
    /// Random padding between functions and data, which keep their order
    Padded,
}

/// How many blocks are measured side by side, each on processors of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lanes {
    /// As many as there are physical cores and memory for.
    #[default]
    Auto,
    /// This many.
    Count(NonZeroU32),
}

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lanes::Auto => f.write_str("auto"),
            Lanes::Count(count) => count.fmt(f),
        }
    }
}

impl FromStr for Lanes {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Lanes::Auto),
            number => number
                .parse()
                .map(Lanes::Count)
                .map_err(|_| "`auto` or a number from 1 is needed"),
        }
    }
}

impl<'de> Deserialize<'de> for Lanes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Value {
            Number(i64),
            Text(String),
        }
        let text = match Value::deserialize(deserializer)? {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}

/// `[preset.NAME]`: the settings of an experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// One-line description.
    #[serde(default)]
    pub description: String,
    /// The recipe of the points.
    pub recipe: String,
    /// The workloads.
    pub workloads: Vec<String>,
    /// The [meters](#meters).
    pub meters: Vec<Meter>,
    /// Blocks of the timed meters per workload; with `resolution`, the maximum.
    pub blocks: u32,
    /// Measuring ends when every patch's 95 % interval is at most ± this fraction of speed (`0.004` or `"0.4 %"`; at
    /// most 0.2). `--resolution` overrides it, with 0 for all blocks.
    #[serde(default, deserialize_with = "fraction::deserialize")]
    pub resolution: Option<f64>,
    /// The minimum number of blocks with `resolution`, by default [`DEFAULT_MIN_BLOCKS`] or, if fewer, `blocks`.
    /// Intervals that end below ten blocks are wider.
    pub min_blocks: Option<u32>,
    /// Seconds of measuring in a block of a workload with up to six servers, in proportion for more. At most 86400.
    pub block_seconds: f64,
    /// Blocks of the counting meters. Fewer than six equal counts have no interval.
    #[serde(default = "default_count_blocks")]
    pub count_blocks: u32,
    /// How the timed blocks vary the servers' code layouts; by default `padded` if the servers can be relinked.
    pub layouts: Option<Layouts>,
    /// Blocks measured side by side: a number, or `"auto"` for as many as cores and memory allow.
    #[serde(default)]
    pub lanes: Lanes,
    /// The cluster that builds and measures: `"slurm"` or `"command"`; by default this machine.
    pub on: Option<String>,
    /// The time of a run, builds included, in place of `blocks`: `"1h 30m"`. `--budget` and `--blocks` override it.
    #[serde(default, deserialize_with = "seconds::deserialize")]
    pub budget: Option<Duration>,
    /// Whether a run first runs the server's own [tests](testing.md) at every point of the series (not at `alone:K` and
    /// `without:K`).
    #[serde(default)]
    pub test: bool,
    /// `[preset.NAME.sql_bench]`: settings for all sql-bench workloads, such as `engine` and `small`.
    #[serde(default)]
    pub sql_bench: toml::Table,
}

fn default_count_blocks() -> u32 {
    6
}

/// The largest resolution, as a share of the margin, at which at least eight of ten patches without effect are
/// reported as such. `perfquilt calibrate` determined it for intervals of exactly that width, four patches and two
/// one-sided tests with Holm's correction.
pub const MAX_RESOLUTION_PER_MARGIN: f64 = 0.55;

/// The default minimum number of blocks before an experiment may stop early. From here on, intervals keep their
/// coverage under early stopping (checked by `perfquilt calibrate`), and effects of any size may be called.
pub const DEFAULT_MIN_BLOCKS: u32 = 12;

impl Preset {
    /// Returns the workload called `name` with this preset's overrides.
    pub fn workload(&self, config: &Config, name: &str) -> Result<Workload> {
        let mut workload = config.workload(name)?.clone();
        if workload.kind == "sql-bench" {
            workload.settings = workload.settings.with(&self.sql_bench);
        }
        Ok(workload)
    }

    /// Returns the meters that are read from slices, in the order of all meters.
    pub fn timed_meters(&self) -> Vec<Meter> {
        self.meters_where(Meter::is_timed)
    }

    /// Returns the meters that are counted, in the order of all meters.
    pub fn counted_meters(&self) -> Vec<Meter> {
        self.meters_where(|meter| !meter.is_timed())
    }

    fn meters_where(&self, is_wanted: impl Fn(Meter) -> bool) -> Vec<Meter> {
        let all = Meter::ALL.into_iter();
        all.filter(|meter| self.meters.contains(meter) && is_wanted(*meter))
            .collect()
    }

    /// Returns a warning if the resolution is too coarse for the margin of the first timed meter, so that patches
    /// without effect are seldom reported as such; `margin` returns a meter's margin as a fraction of speed.
    pub fn unreachable_margin(&self, margin: &dyn Fn(Meter) -> f64) -> Option<Warning> {
        let resolution = self.resolution?;
        let meter = *self.timed_meters().first()?;
        let margin = margin(meter);
        let enough = MAX_RESOLUTION_PER_MARGIN * margin;
        let percent = |fraction: f64| {
            let text = format!("{:.3}", 100.0 * fraction);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        (resolution > enough * (1.0 + 1e-9)).then(|| {
            Warning::unreachable_margin(format!(
                "with a resolution of {} % and a margin of ±{} % for {meter}, patches without effect are seldom \
                 called so: choose `resolution = {}` or less, or a wider margin in [margin]",
                percent(resolution),
                percent(margin),
                enough,
            ))
        })
    }

    /// Returns the minimum number of blocks of an experiment with early stopping; `None` for a fixed number of
    /// blocks.
    pub fn min_blocks(&self) -> Option<u32> {
        self.resolution?;
        Some(
            self.min_blocks
                .unwrap_or(DEFAULT_MIN_BLOCKS)
                .min(self.blocks),
        )
    }

    /// Checks the preset called `name`.
    pub(super) fn check(&self, name: &str, config: &Config, document: &Document) -> Result<()> {
        let own = ["preset", name];
        let at = |error: Error| document.locate(&own, error);
        let recipe = config.recipe(&self.recipe).map_err(at)?;
        if recipe.system.is_none() {
            let fault = format!("recipe `{}` has no `system`", self.recipe);
            return Err(document.error(&own, fault));
        }
        if self.test && recipe.test.is_none() {
            let fault = format!("`test`: recipe `{}` has no section `test`", self.recipe);
            return Err(document.error(&["preset", name, "test"], fault));
        }
        for (index, workload) in self.workloads.iter().enumerate() {
            config.workload(workload).map_err(at)?;
            if self.workloads[..index].contains(workload) {
                let fault = format!("preset `{name}` has workload `{workload}` twice");
                let place = index.to_string();
                return Err(document.error(&["preset", name, "workloads", &place], fault));
            }
        }
        let shown = format!("preset `{name}`: `block_seconds`");
        let path = ["preset", name, "block_seconds"];
        seconds::check(document, &path, self.block_seconds, &shown)?;
        match self.fault() {
            Some((key, fault)) => {
                let fault = format!("preset `{name}`: {fault}");
                Err(document.error(&["preset", name, key], fault))
            }
            None => Ok(()),
        }
    }

    /// Returns the key of an invalid setting and a description of the fault.
    fn fault(&self) -> Option<(&'static str, String)> {
        let missing = |what: &str| format!("`{what}` is empty");
        if self.workloads.is_empty() {
            return Some(("workloads", missing("workloads")));
        }
        if self.meters.is_empty() {
            return Some(("meters", missing("meters")));
        }
        if self.blocks < 2 {
            return Some((
                "blocks",
                "`blocks` is at least 2, or there is no interval".to_owned(),
            ));
        }
        if self.count_blocks == 0 {
            let fault = "`count_blocks` must be at least 1".to_owned();
            return Some(("count_blocks", fault));
        }
        let resolution = self.resolution;
        if let Some(fault) =
            resolution.and_then(|width| fraction::width_fault("`resolution`", width))
        {
            return Some(("resolution", fault));
        }
        match self.min_blocks {
            Some(_) if self.resolution.is_none() => {
                let fault = "`min_blocks` has no effect without `resolution`";
                Some(("min_blocks", fault.to_owned()))
            }
            Some(least) if least < 2 || least > self.blocks => {
                let most = self.blocks;
                let fault = format!("`min_blocks` is at least 2 and at most `blocks` ({most})");
                Some(("min_blocks", fault))
            }
            _ => None,
        }
    }
}
