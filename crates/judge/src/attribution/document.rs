//! The attribution document (docs/json.md): what a report is made of.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::stopping::Stopping;
use perfquilt_model::observation::{
    Conditions, FunctionChange, LeftOut, Meter, Origin, PointBuild, Statistic,
};
use perfquilt_model::point::Point;

/// The name a suite's effect has in [`Effect::workload`].
pub const SUITE: &str = "*";

/// What every patch of an experiment's series is worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attribution {
    /// Version of this document: 1.
    pub schema: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The release.
    pub release: String,
    /// The recipe the points were built with; empty when unknown.
    pub recipe: String,
    /// What point 0 is where somebody named the servers; else empty: the release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// When the experiment began, RFC 3339 in UTC; empty when unknown.
    pub started: String,
    /// The machine.
    pub machine: BTreeMap<String, String>,
    /// The measuring harness.
    pub harness: String,
    /// The confidence level of intervals when the experiment has ended; each effect says its own.
    pub level: f64,
    /// Where the rule stands that ends the experiment, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
    /// The equivalence margin of each meter that was read, as a fraction of speed.
    pub margins: BTreeMap<Meter, f64>,
    /// The workloads, sorted.
    pub workloads: Vec<String>,
    /// How far the experiment is, by workload and meter.
    pub progress: Vec<Progress>,
    /// The effect of the whole series, by meter and workload.
    pub total: Vec<Effect>,
    /// The patches in the series' order.
    pub patches: Vec<PatchEffects>,
    /// What the series does to parts of workloads that the client times apart, such as the operations of a
    /// sql-bench program; empty where no client does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
    /// The functions whose instructions each patch changed; empty where functions were not told apart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionChange>,
    /// What a transaction costs at each point, by meter and workload.
    pub costs: Vec<Cost>,
    /// The total beside an independent measurement of it, by meter and workload; empty where there were
    /// no blocks for it.
    pub closure: Vec<Closure>,
    /// How noisy the measurement was.
    pub noise: Noise,
    /// Observations that are used for no figure.
    pub left_out: Vec<LeftOut>,
    /// The earlier experiments some figures are from.
    pub sources: Vec<Origin>,
    /// Points that could not be built or measured, with the reason.
    pub failed: BTreeMap<Point, String>,
    /// How long the points took to build; empty when unknown.
    pub builds: Vec<PointBuild>,
    /// What the reader must know to judge the figures, one sentence each.
    pub warnings: Vec<String>,
}

/// How far the experiment is with one workload and meter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// Blocks measured.
    pub done: u32,
    /// Blocks planned, or the most there may be where the experiment ends by itself; `null` when
    /// unknown.
    pub planned: Option<u32>,
    /// Whether no block of them will follow, as far as is known.
    pub ended: bool,
}

/// How the number of blocks behind an interval came about, which decides what it promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// Fixed beforehand.
    Fixed,
    /// Decided by the widths of intervals: the experiment stopped by itself.
    Sequential,
    /// Not settled: the experiment goes on, or went on after its end. Holds at every look.
    Anytime,
}

/// What one patch does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchEffects {
    /// Its place in the series, from 1.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its title; empty when unknown.
    pub title: String,
    /// Why it has no effect over all workloads, where it has none; there may be some on single ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The server with this patch is the same binary as this earlier point's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identical_to: Option<Point>,
    /// Its effects, by kind, meter and workload.
    pub effects: Vec<Effect>,
}

/// Which points an effect compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// With the patch against the point before it.
    InOrder,
    /// The release with all patches up to this one against the release.
    Cumulative,
    /// The release with the patch alone against the release.
    Alone,
    /// The whole series against all of it but the patch.
    Without,
    /// What the effect in order has more than the one without: above 0 where the patches behind do
    /// part of the same, below 0 where they build on it. Its points are those of both effects.
    Interaction,
    /// The whole series against the release.
    Total,
    /// The release measured twice.
    Control,
}

/// What an effect's interval says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is above 0, for all rows that are judged together.
    Faster,
    /// The whole interval is below 0, likewise.
    Slower,
    /// Both, of what is judged of one row: faster typically and slower in the mean or in the tail, or the
    /// other way round.
    Mixed,
    /// None of these, and the effect is shown to lie within the margin, likewise for all rows.
    NoEffect,
    /// None of these.
    Unclear,
}

impl Verdict {
    /// Whether it is shown that there is an effect.
    pub fn is_shown(self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Slower | Verdict::Mixed)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Mixed => "mixed",
            Verdict::NoEffect => "no effect",
            Verdict::Unclear => "unclear",
        })
    }
}

/// The difference between two points on one workload and meter, as a fraction of speed on every
/// meter (0.01 is 1 % faster: 1 % more transactions for the same cost).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    /// Which points are compared.
    pub kind: Kind,
    /// The workload, or [`SUITE`] for the geometric mean over all of them.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The point whose speed is told.
    pub point: Point,
    /// The point it is compared with.
    pub against: Point,
    /// The estimate.
    pub estimate: f64,
    /// The interval's lower end; `null` where nothing can be said, with a single block or with few
    /// blocks of an experiment that goes on.
    pub low: Option<f64>,
    /// The interval's upper end; `null` likewise.
    pub high: Option<f64>,
    /// The confidence level.
    pub level: f64,
    /// What the interval promises.
    pub interval: Interval,
    /// Standard error of the estimate on the log scale, of which speeds differ little; `null` with a
    /// single block.
    pub standard_error: Option<f64>,
    /// What the interval says, and on timed meters the mean and the tail beside it.
    pub verdict: Verdict,
    /// The minimum detectable effect: one of this size is called faster or slower with 80 % probability,
    /// among all rows that are judged together; `null` where there is no interval.
    pub minimum_detectable: Option<f64>,
    /// Whether the effect is shown to lie within ± the margin, among all rows that are judged together.
    pub equivalent: bool,
    /// The probability of such an estimate if there were no effect, at any look where the interval holds
    /// at all of them; `null` with a single block, and where nothing was measured.
    pub p_value: Option<f64>,
    /// The same adjusted for the number of patches, or of a patch's workloads, that are judged
    /// together; `null` for what is judged by itself.
    pub p_adjusted: Option<f64>,
    /// Blocks behind the estimate.
    pub blocks: usize,
    /// Independent units among these blocks, over which the interval is taken: blocks that ran the
    /// same code layouts count as one.
    pub units: usize,
    /// Both points are the same binary: the effect is exactly 0 and was not measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub identical: bool,
    /// No block has both points: what differed between their blocks is part of the estimate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpaired: bool,
    /// The mean and the tail of the same slices, where the meter is read from slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Box<Tail>>,
    /// Where the figure is from; absent for the same binary.
    #[serde(flatten)]
    pub provenance: Option<Provenance>,
    /// The interval on the log scale.
    #[serde(skip)]
    pub basis: Option<crate::stats::Interval>,
}

/// What the typical time, which puts the slowest and the fastest fifth of the slices aside, does not show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tail {
    /// What the typical time says by itself.
    pub typical: Verdict,
    /// The mean of all slices, a fraction of speed. A slice counts at most five times what is typical of its round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Figure>,
    /// The share of slices that took more than twice as long as is typical in their round: the share at
    /// `against` less that at `point`, so that more than 0 is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<Figure>,
    /// The 99th percentile of the slices, a fraction of speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<Figure>,
}

/// A figure of the mean or the tail: above 0 is better.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The estimate.
    pub estimate: f64,
    /// The interval's lower end; `null` where nothing can be said.
    pub low: Option<f64>,
    /// The interval's upper end; `null` likewise.
    pub high: Option<f64>,
    /// The figure at [`Effect::against`], the mean over blocks: nanoseconds a transaction, or a share.
    pub before: f64,
    /// The same at [`Effect::point`].
    pub after: f64,
    /// What the interval says, for all rows that are judged together.
    pub verdict: Verdict,
    /// As [`Effect::p_value`].
    pub p_value: Option<f64>,
    /// As [`Effect::p_adjusted`].
    pub p_adjusted: Option<f64>,
    /// Blocks behind the estimate.
    pub blocks: usize,
}

impl Tail {
    /// The figure of a statistic.
    pub fn get(&self, statistic: Statistic) -> Option<&Figure> {
        match statistic {
            Statistic::Mean => self.mean.as_ref(),
            Statistic::Slow => self.slow.as_ref(),
            Statistic::P99 => self.p99.as_ref(),
        }
    }

    /// The figures there are.
    pub fn figures(&self) -> impl Iterator<Item = (Statistic, &Figure)> {
        let all = Statistic::ALL.into_iter();
        all.filter_map(|statistic| Some((statistic, self.get(statistic)?)))
    }

    /// The figures there are, in the order of [`Statistic::ALL`].
    pub(super) fn figures_mut(&mut self) -> impl Iterator<Item = &mut Figure> {
        [&mut self.mean, &mut self.slow, &mut self.p99]
            .into_iter()
            .flatten()
    }
}

/// What the series does to a part of a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Operation {
    /// The workload.
    pub workload: String,
    /// The part's name.
    pub operation: String,
    /// The meter.
    pub meter: Meter,
    /// The patches' effects, in order and cumulative. In their `workload` field, the part is named
    /// `workload/operation`.
    pub effects: Vec<Effect>,
}

/// What a transaction of a workload, or of a part of one, costs at a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// The workload, or `workload/operation`.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The point.
    pub point: Point,
    /// The geometric mean over blocks, in the meter's unit.
    pub estimate: f64,
    /// The lower end of its interval at the level of effects; `null` where nothing can be said. What
    /// differs between blocks is in it, so points are compared by effects and not by these.
    pub low: Option<f64>,
    /// The upper end, likewise.
    pub high: Option<f64>,
    /// Blocks behind it.
    pub blocks: usize,
    /// Transactions of it in one of the whole workload: 1 but for parts.
    pub transactions: f64,
    /// One reading is so few steps of the meter that nothing follows from it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub too_short: bool,
    /// Where the figure is from.
    #[serde(flatten)]
    pub provenance: Provenance,
}

/// Where a figure is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "provenance", content = "from", rename_all = "snake_case")]
pub enum Provenance {
    /// From observations of this experiment.
    Measured,
    /// From those of the earlier experiment of this name, which still hold: the same binaries,
    /// workloads, machine and harness.
    Carried(String),
    /// From those of the earlier experiment of this name, on another machine or with another harness:
    /// shown until there are others, and no base for a verdict.
    Stale(String),
}

impl Effect {
    /// Whether it is shown that there is an effect.
    pub fn is_shown(&self) -> bool {
        self.verdict.is_shown()
    }

    /// Whether the point is slower: by all that is judged, or by the typical time or the tail without the mean
    /// being faster.
    pub fn is_regression(&self) -> bool {
        let mean = self.tail.as_ref().and_then(|tail| tail.mean.as_ref());
        match self.verdict {
            Verdict::Slower => true,
            Verdict::Mixed => mean.is_none_or(|mean| mean.verdict != Verdict::Faster),
            Verdict::Faster | Verdict::NoEffect | Verdict::Unclear => false,
        }
    }

    /// What the typical time says by itself.
    pub fn typical(&self) -> Verdict {
        match &self.tail {
            Some(tail) => tail.typical,
            None => self.verdict,
        }
    }

    /// Whether the figure is from an experiment that does not hold any more.
    pub fn is_stale(&self) -> bool {
        matches!(self.provenance, Some(Provenance::Stale(_)))
    }

    /// The earlier experiment the figure is from, if it is from one.
    pub fn from(&self) -> Option<&str> {
        match &self.provenance {
            Some(Provenance::Carried(name) | Provenance::Stale(name)) => Some(name),
            _ => None,
        }
    }

    /// Whether the interval leaves out 0, however many others were looked at.
    pub fn leaves_out_zero(&self) -> bool {
        self.low.is_some_and(|low| low > 0.0) || self.high.is_some_and(|high| high < 0.0)
    }
}

/// The closure check: the total of the blocks that all other effects are from, and the same from blocks
/// of their own that had only the release and the whole series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Closure {
    /// The workload, or [`SUITE`].
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The total inside the common blocks.
    pub total: Part,
    /// The total measured directly.
    pub direct: Part,
    /// The total less the direct one, as a fraction of speed.
    pub difference: f64,
    /// The lower end of the difference's interval; `null` when either side has a single block.
    pub low: Option<f64>,
    /// The upper end, likewise.
    pub high: Option<f64>,
    /// Whether the interval of the difference holds 0; `null` without one, and where it is wider than both the total
    /// and the meter's margin, so that it would hold 0 whatever the direct total is.
    pub consistent: Option<bool>,
}

/// One side of a closure check.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Part {
    /// The estimate, as a fraction of speed.
    pub estimate: f64,
    /// The interval's lower end; `null` with a single block.
    pub low: Option<f64>,
    /// The interval's upper end; `null` with a single block.
    pub high: Option<f64>,
    /// Blocks behind it.
    pub blocks: usize,
}

/// How noisy the measurement was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noise {
    /// The control's apparent effect: the same binary measured twice.
    pub control: Vec<ControlEffect>,
    /// The spread of values, by workload and meter.
    pub spread: Vec<NoiseSpread>,
    /// Whether blocks depend on each other, by workload and meter; empty with few blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependence: Vec<Dependence>,
    /// Code layouts behind the figures of a point, the most that one has; 1 where they were not
    /// varied.
    pub layouts: usize,
    /// What else happened on the machine while times were measured, by workload; empty when unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Conditions>,
}

/// What the order of the blocks says. Intervals take blocks as independent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dependence {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// Independent units, in order.
    pub units: usize,
    /// The correlation of a point's deviation (from its block's mean) with that in the unit before, the mean over
    /// points.
    pub lag1: f64,
    /// The probability of such a correlation or a larger one if units are independent.
    pub lag1_p_value: f64,
    /// By point.
    pub points: Vec<PointDependence>,
}

/// What the order of the blocks says about a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PointDependence {
    /// The point.
    pub point: Point,
    /// The correlation of its deviation with that in the unit before.
    pub lag1: f64,
    /// How much faster it was in the second half of the units than in the first, against the mean of all points;
    /// a fraction of speed.
    pub halves: f64,
    /// The probability of such a difference or a larger one if units are independent.
    pub halves_p_value: f64,
}

/// The control's apparent effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ControlEffect {
    /// The effect.
    #[serde(flatten)]
    pub effect: Effect,
    /// Whether 0 lies within its interval, as it should 19 times in 20; `null` without interval.
    pub contains_zero: Option<bool>,
}

/// Standard deviations, as fractions of the value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoiseSpread {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// Blocks measured.
    pub blocks: usize,
    /// Of a point's value around block and point: layout, restart and within-block noise together;
    /// `null` with fewer than two complete blocks.
    pub block_sd: Option<f64>,
    /// Between code layouts of one binary; `null` where layouts were not varied, or none was
    /// measured twice.
    pub layout_sd: Option<f64>,
    /// Standard error of a point's value within one block; `null` when unknown.
    pub within_sd: Option<f64>,
    /// What is left of `block_sd` without `layout_sd` and `within_sd`: what a restart changes in the
    /// same layout; `null` when it cannot be told from these.
    pub restart_sd: Option<f64>,
}
