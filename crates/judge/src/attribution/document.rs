//! The attribution document (docs/json.md), the input of every report.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use strum::Display;

use crate::stats::{
    FORESEEABLE, GroupFigures, Interval, POWER, POWER_BEFORE_SHAPES, PointDependence, SpeedChange,
    StoppingRule, Symptom, blocks_joined, speed,
};

use perfquilt_model::comparable::Comparable;
use perfquilt_model::decision::DecisionKind;
use perfquilt_model::observation::{
    Conditions, ExcludedReadings, FailedWorkload, FunctionChange, Meter, PointBuild, ReusedFrom,
    Statistic,
};
use perfquilt_model::point::Point;
use perfquilt_model::server_tests::PointTests;
use perfquilt_model::warning::{self, Warning};

/// The value of [`Effect::workload`] for a suite.
pub const SUITE: &str = "*";

/// The effects of all patches of an experiment's series.
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
    /// The name of point 0 if the user named the servers; `None` for the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The reference of each of `patches`.
    pub compared_with: ComparedWith,
    /// The command that measured the experiment, quoted for a POSIX shell; `None` when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The commit of the workspace, if all of its files were in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The commands that get and measure the experiment's bundle on another machine, one a line, likewise; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// When the experiment began, RFC 3339 in UTC; empty when unknown.
    pub started: String,
    /// The machine.
    pub machine: BTreeMap<String, String>,
    /// The measuring harness.
    pub harness: String,
    /// The confidence level of intervals after the end of the experiment; each effect has its own level.
    pub level: f64,
    /// The state of the stopping rule, if the experiment has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
    /// The equivalence margin of each meter that was read, as a fraction of speed.
    pub margins: BTreeMap<Meter, f64>,
    /// The workloads, sorted.
    pub workloads: Vec<String>,
    /// The progress of the experiment, by workload and meter.
    pub progress: Vec<Progress>,
    /// The effect of the whole series, by meter and workload.
    pub total: Vec<Effect>,
    /// The patches in the series' order.
    pub patches: Vec<PatchEffects>,
    /// The effects of the series on parts of workloads that the client times separately, such as the
    /// operations of a sql-bench program; empty if no client does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
    /// The functions whose instructions each patch changed; empty if instructions were not counted by
    /// function.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionChange>,
    /// The cost of a transaction at each point, by meter and workload.
    pub costs: Vec<TransactionCost>,
    /// The total compared with an independent measurement of it, by meter and workload; empty if there were
    /// no blocks for it.
    #[serde(rename = "closure")]
    pub end_to_end: Vec<EndToEnd>,
    /// The noise of the measurement.
    pub noise: Noise,
    /// Observations that no figure uses.
    pub left_out: Vec<ExcludedReadings>,
    /// The earlier experiments that any figures come from.
    pub sources: Vec<ReusedFrom>,
    /// Points that could not be built or measured, with the reason.
    pub failed: BTreeMap<Point, String>,
    /// Workloads whose client failed, so that no further blocks of them were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_workloads: Vec<FailedWorkload>,
    /// How long the points took to build; empty when unknown.
    pub builds: Vec<PointBuild>,
    /// The server's own tests at the points, compared with those on the bare release; empty if they did not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<PointTests>,
    /// Warnings about the validity of the figures, one or two sentences each.
    #[serde(flatten, serialize_with = "warning::fields")]
    pub warnings: Vec<Warning>,
    /// The programs of the points and the settings of the workloads, as far as they are known.
    #[serde(skip)]
    pub bound: Comparable,
}

/// The reference of an experiment's points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparedWith {
    /// Each point of a series with the point before it.
    PointBefore,
    /// Each server with the one that [`Attribution::base`] names: they are no series.
    Base,
}

/// The state of the stopping rule, which ends an experiment when its intervals are narrow enough.
///
/// The rule depends on the widths of intervals and never on estimates, so it does not bias the estimates
/// (`stats::widening`). All of its state follows from stored observations: a resumed experiment decides like
/// one that was not interrupted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stopping {
    /// The meter whose intervals the rule uses.
    pub meter: Meter,
    /// The target half-width of every patch's interval and of the total's, as a fraction of speed.
    pub resolution: f64,
    /// The least blocks behind an interval that counts as narrow enough.
    pub min_blocks: u32,
    /// The maximum number of blocks.
    pub max_blocks: u32,
    /// The number of windows of points that these blocks are divided among.
    #[serde(skip_serializing_if = "is_one")]
    pub windows: u32,
    /// Blocks begun so far.
    pub blocks: u32,
    /// The widest half-width so far; `null` with a single block.
    pub widest: Option<f64>,
    /// The effects whose intervals are still too wide.
    pub open: Vec<OpenEffect>,
    /// The expected number of further blocks without the maximum; `null` before the standard deviation can be
    /// estimated, and where machines are the units and differ too much for any number of blocks.
    pub expected: Option<u32>,
    /// Whether the experiment has ended: no effect is open, or the blocks are used up, or an earlier version's rule ended it.
    pub ended: bool,
    /// Whether the rule of the version that measured (`harness`) ended it, and this version's would have measured more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub earlier_rule: bool,
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

/// An effect whose interval is still too wide.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OpenEffect {
    /// The workload, or [`SUITE`].
    pub workload: String,
    /// Which points are compared.
    pub kind: EffectKind,
    /// The point whose speed is reported.
    pub point: Point,
    /// The point it is compared with.
    pub against: Point,
    /// The workloads whose effect is known to be 0 because they do not execute what distinguishes the points, if
    /// this is an effect over all workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unexecuted: Vec<String>,
}

impl OpenEffect {
    /// Returns whether it needs values of `workload`.
    pub fn needs(&self, workload: &str) -> bool {
        let is_part = || self.workload == SUITE && self.unexecuted.iter().all(|of| of != workload);
        self.workload == workload || is_part()
    }
}

impl Stopping {
    /// Returns whether a further block needs `workload`.
    pub fn needs_workload(&self, workload: &str) -> bool {
        if self.earlier_rule {
            return false;
        }
        // Before the first figures every effect is open. The suite needs blocks that have every workload.
        let is_begun = self.widest.is_some() && self.missing_blocks() == 0;
        !is_begun && !self.ended || self.open.iter().any(|open| open.needs(workload))
    }

    /// Returns how many blocks are missing until every window has had its least number of blocks; 0 without windows.
    ///
    /// Until then patches may have no effect of their own: the last windows come last.
    pub(super) fn missing_blocks(&self) -> u32 {
        if self.windows < 2 {
            return 0;
        }
        let least = self.min_blocks.saturating_mul(self.windows);
        least.min(self.max_blocks).saturating_sub(self.blocks)
    }
}

/// The progress of the experiment for one workload and meter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// Blocks measured.
    pub done: u32,
    /// Blocks planned, or the maximum if a stopping rule may end the experiment; `null` when unknown.
    pub planned: Option<u32>,
    /// Whether no further block is expected.
    pub ended: bool,
}

/// The effects of one patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchEffects {
    /// Its position in the series, from 1.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its title; empty when unknown.
    pub title: String,
    /// The reason why it has no effect over all workloads, if it has none; there may be effects on single
    /// workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The earlier point whose binary is the same as that of the server with this patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identical_to: Option<Point>,
    /// Whether its binary differs from the one before it, but no function that this one had: in debug information, line
    /// numbers, or code that nothing uses. Absent if not, or if unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub code_unchanged: bool,
    /// Whether its binary differs from the one before it in the numbers of source lines alone (`__LINE__`). Absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub line_numbers: bool,
    /// The files that it changes and no program of the build opened. Empty if `not_in_server` has another reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Whether the server is that of the point before although the patch changes more than comments. Absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_in_server: bool,
    /// Its effects, by kind, meter and workload.
    pub effects: Vec<Effect>,
    /// The decision on it, if one is recorded for this release and recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<AppliedDecision>,
}

/// A maintainer's decision as it applies to a patch of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedDecision {
    /// What was decided.
    pub decision: DecisionKind,
    /// Why.
    pub reason: String,
    /// The workloads on which a slower patch is accepted; `None` for all.
    pub workloads: Option<BTreeSet<String>>,
    /// Why it no longer holds: the part that is another now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lapsed: Option<String>,
}

/// The points that an effect compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// The point with the patch against the point before it; a server that is no part of a series against the base.
    #[default]
    InOrder,
    /// The release with all patches up to this one against the release.
    Cumulative,
    /// The release with the patch alone against the release.
    Alone,
    /// The whole series against all of it but the patch.
    Without,
    /// The effect in order minus the effect without: above 0 if later patches do part of the same, below 0 if
    /// they build on it. It compares the points of both effects.
    Interaction,
    /// The whole series against the release.
    Total,
    /// The release measured twice.
    Control,
}

/// The verdict on an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display, Default)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Verdict {
    /// The effect is above 0, significant after adjustment over the family of rows.
    Faster,
    /// The effect is below 0, likewise.
    Slower,
    /// The statistics of one row disagree: faster typically and slower in the mean or in the tail, or vice
    /// versa; or faster on one workload and slower on another.
    Mixed,
    /// None of these, and the effect lies within the margin, significant after adjustment likewise; on timed meters
    /// that of the typical time and of the mean, and the share of slow slices, too.
    #[strum(to_string = "no effect")]
    NoEffect,
    /// None of these, and the effect on the typical time lies within the margin; that on the mean or the tail may not.
    #[strum(to_string = "no typical effect")]
    NoTypicalEffect,
    /// None of these.
    #[default]
    Unclear,
}

impl Verdict {
    /// Returns whether the effect is significant.
    pub fn is_shown(self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Slower | Verdict::Mixed)
    }
}

/// The difference between two points on one workload and meter, as a fraction of speed on every
/// meter (0.01 is 1 % faster: 1 % more transactions for the same cost).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct Effect {
    /// Which points are compared.
    pub kind: EffectKind,
    /// The workload, or [`SUITE`] for the geometric mean over all of them.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The point whose speed is reported.
    pub point: Point,
    /// The point it is compared with.
    pub against: Point,
    /// The estimate.
    pub estimate: f64,
    /// The lower confidence limit; `null` if there is no finite interval: with a single block or with few
    /// blocks of an experiment that has not ended.
    pub low: Option<f64>,
    /// The upper confidence limit; `null` likewise.
    pub high: Option<f64>,
    /// The confidence level.
    pub level: f64,
    /// The rule that determined the number of blocks, and so the guarantee of the interval.
    pub interval: StoppingRule,
    /// Standard error of the estimate on the log scale, which approximates that of the speed; `null` with a
    /// single block.
    pub standard_error: Option<f64>,
    /// The verdict on the effect, and on timed meters on its mean and its tail, too; over all workloads also on the
    /// single ones ([`Effect::cells`]).
    pub verdict: Verdict,
    /// The minimum detectable effect: an effect of this size is called faster or slower in at least two of three such experiments
    /// within the family of rows; `null` if there is no interval.
    pub minimum_detectable: Option<f64>,
    /// Whether the effect (on timed meters that on the typical time) lies within ± the margin, significant after
    /// adjustment over the family of rows.
    pub equivalent: bool,
    /// P-value of the null hypothesis of no effect, valid at every look if the interval is; `null` with a
    /// single block, and if nothing was measured.
    pub p_value: Option<f64>,
    /// P-value adjusted over the family of patches, or of a patch's workloads, or over the figures of a total with a
    /// tail; `null` for effects that are tested alone.
    pub p_adjusted: Option<f64>,
    /// The share of the family's error that the typical time may use: the weight of `p_value` in the
    /// adjustment, where the weights of all p-values of the family (those of means and tails included) add up to
    /// 1; absent for effects that are tested alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_share: Option<f64>,
    /// Blocks behind the estimate.
    pub blocks: usize,
    /// Number of independent units among these blocks, over which the interval is taken: blocks that ran the
    /// same code layouts count as one.
    pub units: usize,
    /// Whether both points have the same binary: the effect is exactly 0 and was not measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub identical: bool,
    /// Whether the workload executes code that distinguishes the points: if not, they execute the same instructions,
    /// the effect is exactly 0 and was not measured; absent if it does, or if that is unknown.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub executed: bool,
    /// Whether no block has both points: differences between their blocks are part of the estimate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpaired: bool,
    /// Whether the release's cost in it is the geometric mean of the release's and its control's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub with_control: bool,
    /// The mean and the tail of the same slices, if the meter is read from slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Box<TailFigures>>,
    /// The single workloads that are faster or slower, if this is an effect over all workloads and there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cells: Option<Cells>,
    /// Why there is no verdict, as the end of a sentence, if what was measured cannot tell the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// The origin of the figure; absent if both points have the same binary.
    #[serde(flatten)]
    pub provenance: Option<Provenance>,
    /// The interval on the log scale.
    #[serde(skip)]
    pub basis: Option<Interval>,
    /// The interval of its blocks alone, without what is known of other rows, of their order and of rounding.
    #[serde(skip)]
    pub of_blocks: Option<Interval>,
    /// Its half-width if the experiment ended now, where `basis` holds at every look, and that of `basis` elsewhere;
    /// `None` where it is not finite.
    #[serde(skip)]
    pub ended_half_width: Option<f64>,
    /// Why it has no verdict if the typical time would be called faster or slower: a run of blocks makes the difference alone.
    #[serde(skip)]
    pub run: Option<String>,
}

/// Why a point that changed while it was measured has no verdict.
pub(super) const DRIFT: &str = "measurements drift";

/// The probability with which all starts of a server may miss one of its states.
const MISSED: f64 = 0.05;
/// How far apart the times of two states of a server were seen, as a fraction: code layouts, memory, the place in a block.
const STATES: f64 = 1e-2;
/// The least number of blocks that may show effects of any size.
pub(super) const FEWEST_FOR_SMALL: usize = 12;

/// The single workloads on which an effect over all workloads is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cells {
    /// The verdict on the figures over all workloads alone.
    pub own: Verdict,
    /// The workloads that are faster, or mixed and faster in the mean.
    pub faster: Vec<String>,
    /// The workloads with a regression ([`Effect::is_regression`]).
    pub slower: Vec<String>,
}

/// Statistics that the typical time, which excludes the slowest and the fastest fifth of the slices, does not
/// show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailFigures {
    /// The verdict on the typical time alone.
    pub typical: Verdict,
    /// The figures: the mean of all slices, a fraction of speed, which is the effect on the throughput; the shares of slices that
    /// took more than twice (`slow`) or twenty times (`stalled`) as long as is typical in their round, that at `against` minus
    /// that at `point`, so positive values are better; and the 99th percentile of the slices, a fraction of speed.
    #[serde(flatten)]
    pub figures: BTreeMap<Statistic, TailFigure>,
}

/// A figure of the mean or the tail: above 0 is better.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailFigure {
    /// The estimate.
    pub estimate: f64,
    /// The lower confidence limit; `null` if there is no finite interval.
    pub low: Option<f64>,
    /// The upper confidence limit; `null` likewise.
    pub high: Option<f64>,
    /// The value at [`Effect::against`], averaged over blocks: nanoseconds per transaction, or a share.
    pub before: f64,
    /// The value at [`Effect::point`].
    pub after: f64,
    /// The verdict, significant after adjustment over the family of rows.
    pub verdict: Verdict,
    /// P-value of the null hypothesis of no effect (see [`Effect::p_value`]).
    pub p_value: Option<f64>,
    /// Adjusted p-value (see [`Effect::p_adjusted`]).
    pub p_adjusted: Option<f64>,
    /// The share of the family's error that this figure may use (see [`Effect::error_share`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_share: Option<f64>,
    /// Blocks behind the estimate.
    pub blocks: usize,
    /// Whether the release's value is the mean of the release's and its control's (see
    /// [`Effect::with_control`]); for shares of slices, the arithmetic mean.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub with_control: bool,
    /// The stalls that decide a mean, if they are too few for an interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heavy_tail: Option<HeavyTail>,
    /// The interval on the log scale, or of the difference of shares.
    #[serde(skip)]
    pub basis: Option<Interval>,
}

/// Slices above twenty times the typical time that carry much of a mean and are too few to bound it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeavyTail {
    /// Blocks that have any at one of the points.
    pub blocks: usize,
    /// Blocks behind the mean.
    pub of: usize,
    /// The share of the mean cost that they carry, at the point where it is larger.
    pub carried: f64,
    /// How long one of them lasts on average, in units of the typical time: at the point compared with. Absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_before: Option<f64>,
    /// The same at the point whose effect it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_after: Option<f64>,
}

impl TailFigures {
    /// Returns the figure of a statistic.
    pub fn get(&self, statistic: Statistic) -> Option<&TailFigure> {
        self.figures.get(&statistic)
    }
}

/// The effects of the series on a part of a workload.
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

/// The cost of a transaction of a workload, or of a part of one, at a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransactionCost {
    /// The workload, or `workload/operation`.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The point.
    pub point: Point,
    /// The geometric mean over blocks, in the meter's unit.
    pub estimate: f64,
    /// The lower confidence limit at the level of effects; `null` if there is no finite interval. It includes
    /// the differences between blocks, so points are compared by effects and not by these intervals.
    pub low: Option<f64>,
    /// The upper confidence limit, likewise.
    pub high: Option<f64>,
    /// Blocks behind it.
    pub blocks: usize,
    /// Number of its transactions per transaction of the whole workload: 1 except for parts.
    pub transactions: f64,
    /// Whether one reading has too few meter steps to be usable.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub too_short: bool,
    /// The origin of the figure.
    #[serde(flatten)]
    pub provenance: Provenance,
}

/// The origin of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "provenance", content = "from", rename_all = "snake_case")]
pub enum Provenance {
    /// Observations of this experiment.
    Measured,
    /// Observations of the earlier experiment of this name that are still valid: the same binaries,
    /// workloads, machine and harness.
    #[serde(rename = "carried")]
    Reused(String),
    /// Observations of the earlier experiment of this name on another machine or with another harness: shown
    /// until new ones replace them, and without a verdict.
    Stale(String),
}

/// An effect as people see it: the change of a quantity with the sign that all reports show ([`Meter::shown`]).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShownChange {
    /// The quantity that changes: `speed`, or the count or amount that the meter reads ([`Meter::shown_quantity`]).
    pub of: &'static str,
    /// The change as a fraction: 0.01 is 1 % more.
    pub estimate: f64,
    /// The lower confidence limit, if the effect has one.
    pub low: Option<f64>,
    /// The upper confidence limit, likewise.
    pub high: Option<f64>,
}

impl ShownChange {
    /// Converts fractions of speed on `meter`.
    pub fn of(meter: Meter, estimate: f64, ends: Option<(f64, f64)>) -> Self {
        let ends = ends.map(|ends| meter.shown_interval(ends));
        ShownChange {
            of: meter.shown_quantity(),
            estimate: meter.shown(estimate),
            low: ends.map(|(low, _)| low),
            high: ends.map(|(_, high)| high),
        }
    }

    /// Returns the ends of the interval.
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }
}

impl Serialize for Effect {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            #[serde(flatten, serialize_with = "fields")]
            effect: &'a Effect,
            change: ShownChange,
        }
        fn fields<S: serde::Serializer>(effect: &&Effect, to: S) -> Result<S::Ok, S::Error> {
            Effect::serialize(effect, to)
        }
        let document = Document {
            effect: self,
            change: self.shown(),
        };
        document.serialize(serializer)
    }
}

impl Effect {
    /// Takes interval and verdict back: what was measured cannot tell the effect, for `reason`.
    pub(super) fn withhold(&mut self, reason: &str) {
        self.verdict = Verdict::Unclear;
        self.equivalent = false;
        (self.low, self.high, self.minimum_detectable) = (None, None, None);
        (self.standard_error, self.p_value, self.p_adjusted) = (None, None, None);
        (self.tail, self.cells, self.basis, self.ended_half_width) = (None, None, None, None);
        self.error_share = None;
        self.withheld = Some(reason.to_owned());
    }

    /// Widens the interval to what two blocks leave open, since blocks of measurements that drift may be worth no more. Takes it
    /// back if 0 is in it.
    pub(super) fn widen_for_drift(&mut self) {
        let of_blocks = self.of_blocks.filter(|_| self.verdict.is_shown());
        let wide = of_blocks.map(Interval::as_of_two_blocks);
        let Some(wide) = wide.filter(|wide| !wide.contains_zero()) else {
            return self.withhold(DRIFT);
        };
        (self.low, self.high) = (Some(speed(wide.low())), Some(speed(wide.high())));
        (self.standard_error, self.p_value) = (Some(wide.standard_error), Some(wide.p_value()));
        (self.tail, self.minimum_detectable, self.ended_half_width) = (None, None, None);
        self.basis = Some(wide);
    }

    /// Returns the effect with the sign and the quantity that all reports show.
    pub fn shown(&self) -> ShownChange {
        ShownChange::of(self.meter, self.estimate, self.low.zip(self.high))
    }

    /// Returns whether the effect was measured: it is not known to be 0 without a measurement.
    pub fn is_measured(&self) -> bool {
        !self.identical && self.executed
    }

    /// Returns whether a figure of this row is significant, whatever single workloads show.
    pub fn is_shown(&self) -> bool {
        self.own_verdict().is_shown()
    }

    /// Returns the verdict on the figures of this row: for an effect over all workloads, without that on single ones.
    pub fn own_verdict(&self) -> Verdict {
        self.cells.as_ref().map_or(self.verdict, |cells| cells.own)
    }

    /// Returns whether the point is slower: by the joint verdict, on a single workload, or by the typical time or
    /// the tail while the mean is not faster.
    pub fn is_regression(&self) -> bool {
        let mean = self
            .tail
            .as_ref()
            .and_then(|tail| tail.get(Statistic::Mean));
        let cells = self.cells.as_ref();
        match self.verdict {
            Verdict::Slower => true,
            Verdict::Mixed if cells.is_some_and(|cells| !cells.slower.is_empty()) => true,
            Verdict::Mixed => mean.is_none_or(|mean| mean.verdict != Verdict::Faster),
            Verdict::Faster | Verdict::NoEffect | Verdict::NoTypicalEffect | Verdict::Unclear => {
                false
            }
        }
    }

    /// Returns the least effect that is called faster or slower, as a fraction of speed: the last digit that reports show, and
    /// with fewer than twelve blocks what a state of one server would make that all of its starts missed.
    ///
    /// A state of probability `q` is missing from `n` starts with probability `(1 − q)ⁿ`, which is 5 % at `q = 1 − 0.05^(1/n)`
    /// (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934), and moves the mean by `q` times its distance.
    pub fn least_claim(&self) -> f64 {
        let digit = if self.meter == Meter::Instructions {
            5e-6
        } else {
            5e-5
        };
        if !self.meter.is_timed() || self.unpaired || self.is_of_many_blocks() {
            return digit;
        }
        (1.0 - MISSED.powf((self.blocks.max(1) as f64).recip())) * STATES
    }

    /// Returns the minimum detectable effect of a row with `share` of the family-wise error, as a fraction of speed; `None`
    /// without a finite one.
    pub(super) fn detectable(&self, share: f64) -> Option<f64> {
        let power = if self.meter.is_timed() && !self.unpaired {
            POWER_BEFORE_SHAPES
        } else {
            POWER
        };
        let least = self.basis?.minimum_detectable(share, power);
        least
            .is_finite()
            .then(|| speed(least).max(self.least_claim()))
    }

    /// Returns whether rare starts of one server would show in so many blocks.
    pub fn is_of_many_blocks(&self) -> bool {
        self.blocks >= FEWEST_FOR_SMALL
    }

    /// Returns how many blocks in all make the interval narrower by √2 if they join those behind it and it holds at every
    /// look; `None` without an interval.
    pub fn joined_blocks(&self) -> Option<usize> {
        let half_width = (self.high?.ln_1p() - self.low?.ln_1p()) / 2.0;
        let error = self.standard_error.filter(|error| *error > 0.0)?;
        let units = blocks_joined(half_width / error, self.units, FORESEEABLE);
        let blocks_a_unit = self.blocks as f64 / self.units.max(1) as f64;
        let blocks = (units as f64 * blocks_a_unit).ceil() as usize;
        Some(blocks)
    }

    /// The verdict on the typical time alone.
    pub fn typical(&self) -> Verdict {
        match &self.tail {
            Some(tail) => tail.typical,
            None => self.own_verdict(),
        }
    }

    /// Returns whether the figure is from a stale experiment.
    pub fn is_stale(&self) -> bool {
        matches!(self.provenance, Some(Provenance::Stale(_)))
    }

    /// Returns the earlier experiment that the figure is from, if any.
    pub fn from(&self) -> Option<&str> {
        match &self.provenance {
            Some(Provenance::Reused(name) | Provenance::Stale(name)) => Some(name),
            _ => None,
        }
    }

    /// Returns whether the interval excludes 0, without adjustment for multiple tests.
    pub fn leaves_out_zero(&self) -> bool {
        self.low.is_some_and(|low| low > 0.0) || self.high.is_some_and(|high| high < 0.0)
    }
}

/// The end-to-end check: compares the total from the blocks of all other effects with the total from separate
/// blocks that had only the release and the whole series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EndToEnd {
    /// The workload, or [`SUITE`].
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The total from the common blocks.
    pub total: SpeedChange,
    /// The total measured directly.
    pub direct: SpeedChange,
    /// The total minus the direct one, as a fraction of speed.
    pub difference: f64,
    /// The lower confidence limit of the difference; `null` if either side has a single block.
    pub low: Option<f64>,
    /// The upper confidence limit, likewise.
    pub high: Option<f64>,
    /// Whether the interval of the difference contains 0; `null` without an interval, and if it is wider than
    /// both the total and the meter's margin, so that it would contain 0 whatever the direct total is.
    pub consistent: Option<bool>,
}

/// The noise of the measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noise {
    /// The control's apparent effect: the same binary measured twice.
    pub control: Vec<ControlEffect>,
    /// The spread of values, by workload and meter.
    pub spread: Vec<NoiseSpread>,
    /// Tests of dependence between blocks, by workload and meter; empty with few blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependence: Vec<Dependence>,
    /// Comparisons of the lanes that measured blocks side by side, by workload and meter; empty with a single lane or
    /// few blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneNoise>,
    /// Comparisons of the machines that measured blocks, by workload and meter; empty with a single machine or few
    /// blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineNoise>,
    /// Machines whose timed values are left out of all other figures: their control or the spread of their values is
    /// unlike the other machines'. Effects of patches there do not matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded_machines: Vec<ExcludedMachine>,
    /// The effects of the whole series with the values of the excluded machines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub total_with_excluded: Vec<Effect>,
    /// The largest number of code layouts behind the figures of a point; 1 if layouts were not varied.
    pub layouts: usize,
    /// Conditions on the machine while times were measured, by workload; empty when unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Conditions>,
}

/// The lanes of one workload and meter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LaneNoise {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The lanes.
    pub lanes: Vec<LaneFigures>,
    /// P-value under the hypothesis that all lanes find the same differences between points, adjusted for the number
    /// of points and lanes.
    pub p_value: f64,
}

/// The values that one lane measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LaneFigures {
    /// The lane, from 0.
    pub lane: u32,
    /// Its values.
    #[serde(flatten)]
    pub figures: GroupFigures,
}

/// The machines of one workload and meter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineNoise {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The machines, by name.
    pub machines: Vec<MachineFigures>,
    /// Standard deviation of a point's true cost between machines, as a fraction of the value.
    pub between_sd: f64,
    /// P-value under the hypothesis that all machines find the same differences between points, adjusted for the number
    /// of points and machines.
    pub p_value: f64,
    /// Whether a machine is the unit of intervals, which then hold for all machines of the class; else they hold for
    /// these machines alone.
    pub units: bool,
}

/// A machine whose values are left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExcludedMachine {
    /// The machine's name.
    pub machine: String,
    /// The workload that showed it.
    pub workload: String,
    /// The meter that showed it.
    pub meter: Meter,
    /// Number of its blocks.
    pub blocks: usize,
    /// The fault.
    pub reason: Symptom,
    /// P-value under the hypothesis that it is as the others, adjusted for the number of machines and tests.
    pub p_value: f64,
}

/// The values that one machine measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineFigures {
    /// The machine's name.
    pub machine: String,
    /// Its values.
    #[serde(flatten)]
    pub figures: GroupFigures,
}

/// Dependence between blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dependence {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// Number of independent units.
    pub units: usize,
    /// Correlation of a point's deviation (from its block's mean) with that in the preceding unit, averaged
    /// over points.
    pub lag1: f64,
    /// P-value of the correlation under independence.
    pub lag1_p_value: f64,
    /// How many times as wide intervals are because blocks that ran at one time, or one after the other, resemble each
    /// other; 1 where they do not.
    pub widening: f64,
    /// By point.
    pub points: Vec<PointDependence>,
}

/// The control's apparent effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ControlEffect {
    /// The effect.
    #[serde(flatten)]
    pub effect: Effect,
    /// Whether its interval contains 0, as it should 19 times in 20; `null` without an interval.
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
    /// Standard deviation of a point's value around block and point, which includes layout, restart and
    /// within-block noise; `null` with fewer than two complete blocks.
    pub block_sd: Option<f64>,
    /// Standard deviation between code layouts of one binary; `null` if layouts were not varied, or none was
    /// measured twice.
    pub layout_sd: Option<f64>,
    /// Standard error of a point's value within one block; `null` when unknown.
    pub within_sd: Option<f64>,
    /// The remainder of `block_sd` without `layout_sd` and `within_sd`: the effect of a restart in the same
    /// layout; `null` if these do not determine it.
    pub restart_sd: Option<f64>,
}
