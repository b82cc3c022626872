//! Raw observations: what the machine half hands to the judgement half.

mod borrowed;
mod check;
mod conditions;
mod metric;
mod origin;
mod recorded;
mod slices;
mod supplement;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::point::Point;

pub use borrowed::ObservationRef;
pub use check::{MOST_PATCHES, SCHEMA};
pub use conditions::{Conditions, Moment, Share};
pub use metric::{Metric, Statistic};
pub use origin::Origin;
pub use recorded::{Level, RecordedRow};
pub use slices::Slices;
pub use supplement::{
    FunctionChange, LeftOut, Planned, PointBuild, PointFunctions, Profiled, Supplement, Within,
};

/// What a client's own processor time is called among the operations of a workload.
pub const CLIENT_OPERATION: &str = "client";

/// What is read while a server works. All meters are costs: less is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meter {
    /// Wall-clock nanoseconds per transaction.
    Time,
    /// Processor nanoseconds per transaction.
    Cpu,
    /// Instructions per transaction.
    Instructions,
    /// Processor cycles per transaction.
    Cycles,
    /// First-level instruction-cache misses per transaction.
    L1iMisses,
    /// Mispredicted branches per transaction.
    BranchMisses,
    /// The share of the processor's issue slots that its front end left empty, from 0 to 1.
    FrontendBound,
}

impl Meter {
    /// The equivalence margin of this meter where none is configured, as a fraction of speed.
    pub fn default_margin(self) -> f64 {
        match self {
            Meter::Time | Meter::Cpu | Meter::Cycles => 0.01,
            Meter::Instructions => 0.001,
            Meter::L1iMisses | Meter::BranchMisses | Meter::FrontendBound => 0.01,
        }
    }

    /// Every meter, in the order reports show them.
    pub const ALL: [Meter; 7] = [
        Meter::Time,
        Meter::Cpu,
        Meter::Instructions,
        Meter::Cycles,
        Meter::L1iMisses,
        Meter::BranchMisses,
        Meter::FrontendBound,
    ];

    /// The name in configuration, command line and files.
    pub fn name(self) -> &'static str {
        match self {
            Meter::Time => "time",
            Meter::Cpu => "cpu",
            Meter::Instructions => "instructions",
            Meter::Cycles => "cycles",
            Meter::L1iMisses => "l1i_misses",
            Meter::BranchMisses => "branch_misses",
            Meter::FrontendBound => "frontend_bound",
        }
    }

    /// Whether the meter is read from slices; the others are counted.
    pub fn is_timed(self) -> bool {
        matches!(self, Meter::Time | Meter::Cpu)
    }

    /// The unit of [`Observation::value`].
    pub fn unit(self) -> &'static str {
        match self {
            Meter::Time | Meter::Cpu => "ns/txn",
            Meter::Instructions => "instructions/txn",
            Meter::Cycles => "cycles/txn",
            Meter::L1iMisses | Meter::BranchMisses => "misses/txn",
            Meter::FrontendBound => "ratio",
        }
    }

    /// The unit in Go's benchmark format, an operation being a transaction.
    pub fn go_unit(self) -> &'static str {
        match self {
            Meter::Time => "ns/op",
            Meter::Cpu => "cpu-ns/op",
            Meter::Instructions => "instructions/op",
            Meter::Cycles => "cycles/op",
            Meter::L1iMisses => "L1i-misses/op",
            Meter::BranchMisses => "branch-misses/op",
            Meter::FrontendBound => "frontend-bound",
        }
    }
}

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Meter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Meter::ALL
            .into_iter()
            .find(|meter| meter.name() == text)
            .ok_or_else(|| {
                let names: Vec<_> = Meter::ALL.iter().map(|meter| meter.name()).collect();
                // All in the message: clap shows no hint.
                Error::usage(format!(
                    "`{text}` is not a meter; meters are {}",
                    names.join(", ")
                ))
            })
    }
}

/// One value read of one point in one block: a line of an observation file.
///
/// `value` is the cost of one transaction in `unit`, already reduced over the block's slices for
/// the `time` meter (see `docs/method.md`); `n` is how many transactions it stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Version of this form: 1.
    pub schema: u32,
    /// The experiment this belongs to.
    pub experiment: String,
    /// The block (one randomised round over all points with fresh restarts), from 0.
    pub block: u32,
    /// Position of the point within its block's random order, from 0.
    pub order: u32,
    /// The point measured.
    pub point: Point,
    /// The layout seed of the variant measured; 0 is the linker's own order.
    pub layout: u64,
    /// The workload's name.
    pub workload: String,
    /// The meter read.
    pub meter: Meter,
    /// The unit of `value`.
    pub unit: String,
    /// Cost of one transaction.
    pub value: f64,
    /// Transactions that `value` stands for.
    pub n: u64,
    /// Of a block that has only the release and the whole series, for the closure check; such blocks
    /// are counted apart from the others and used for nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// Mean cost of one transaction over all slices, each counted at most five times what is typical of its
    /// round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The share of slices that took more than twice what is typical of their round, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<f64>,
    /// The 99th percentile over slices of the cost of one transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
}

/// The first line of an observation file: what the observations are of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentHeader {
    /// Version of this form: 1.
    pub schema: u32,
    /// The experiment's name, unique in its store.
    pub experiment: String,
    /// The series' patches in order.
    pub series: Vec<String>,
    /// One title a patch (first line of its header), in the same order; empty when unknown.
    #[serde(default)]
    pub titles: Vec<String>,
    /// The release, for example `mariadb-10.11.18`.
    pub release: String,
    /// The recipe the points were built with.
    #[serde(default)]
    pub recipe: String,
    /// What point 0 is where somebody named the servers, whose points are then no series of patches on a
    /// release; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// The machine: processor, cores, memory, kernel, virtualisation.
    pub machine: BTreeMap<String, String>,
    /// Identity of the measuring harness (tool version and digest of its scripts and settings).
    pub harness: String,
    /// Points whose server is the same binary as another's: point to the point it equals. Their
    /// effect against each other is exactly 0 and they were not measured apart.
    #[serde(default)]
    pub identical: BTreeMap<Point, Point>,
    /// Points that could not be built or measured, with the reason in one line.
    #[serde(default)]
    pub failed: BTreeMap<Point, String>,
    /// When the experiment began, RFC 3339 in UTC; empty when unknown.
    #[serde(default)]
    pub started: String,
    /// Earlier experiments whose observations speak for points of this one, the one to be preferred
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Origin>,
}

impl ExperimentHeader {
    /// The point whose observations speak for `point`: the one with the same binary that was measured. The
    /// control is the release's binary by intent and stays itself.
    pub fn server_of(&self, point: Point) -> Point {
        let mut server = point;
        for _ in 0..=self.identical.len() {
            match self.identical.get(&server) {
                Some(&same) if server != Point::Control && same != server => server = same,
                _ => break,
            }
        }
        server
    }

    /// The header of an experiment that begins now, its series still empty.
    pub fn new(release: &str, recipe: &str) -> Self {
        ExperimentHeader {
            schema: SCHEMA,
            experiment: format!("{release}-{recipe}"),
            series: Vec::new(),
            titles: Vec::new(),
            release: release.to_owned(),
            recipe: recipe.to_owned(),
            base: String::new(),
            machine: BTreeMap::new(),
            harness: String::new(),
            identical: BTreeMap::new(),
            failed: BTreeMap::new(),
            started: jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string(),
            carried: Vec::new(),
        }
    }
}
