//! Raw observations, which the measuring crates produce and the judging crates analyse.

mod check;
mod columns;
mod conditions;
mod file;
mod machine_name;
mod meter;
mod metric;
mod origin;
mod recorded;
mod row_name;
mod shown;
mod slices;
mod supplement;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use crate::point::Point;

pub use check::MOST_PATCHES;
pub use columns::{Observation, SCHEMA};
pub use conditions::{Conditions, HostSample, Share};
pub use file::{CHECKSUM, FirstLine, ObservationFile};
pub use machine_name::MachineName;
pub use meter::Meter;
pub use metric::{Metric, Statistic};
pub use origin::ReusedFrom;
pub use recorded::{RecordedRow, RecordedTable, RowLevel};
pub use row_name::RowName;
pub use slices::Slices;
pub use supplement::{
    ExcludedReadings, FunctionChange, PlannedBlocks, PointBuild, PointFunctions, ProfileUse,
    Supplement, UnexecutedPatch, Withheld, WithinBlockError,
};

/// Name of the client's own processor time among the operations of a workload.
pub const CLIENT_OPERATION: &str = "client";

/// The first line of an observation file: the experiment that the observations belong to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentHeader {
    /// Version of this form: 1.
    pub schema: u32,
    /// The experiment's name, unique in its store.
    pub experiment: String,
    /// The series' patches in order.
    pub series: Vec<String>,
    /// One title per patch (first line of its header), in the same order; empty if unknown.
    #[serde(default)]
    pub titles: Vec<String>,
    /// The release, for example `mariadb-10.11.18`.
    pub release: String,
    /// The recipe the points were built with.
    #[serde(default)]
    pub recipe: String,
    /// The name of point 0 if the servers were given by the user and the points are not a series of patches on
    /// a release; otherwise `None`.
    #[serde(default, deserialize_with = "non_empty")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The machine: processor, cores, memory, kernel, virtualisation.
    pub machine: BTreeMap<String, String>,
    /// Identity of the measuring harness (perfquilt's version and a digest of its scripts and settings).
    pub harness: String,
    /// Maps points to another point with the same binary. The effect between the two is exactly 0, and they
    /// were not measured separately.
    #[serde(default)]
    pub identical: BTreeMap<Point, Point>,
    /// Points whose binary differs from that of the point before in the numbers of source lines alone (`__LINE__`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub line_numbers: BTreeSet<Point>,
    /// Points whose patch changes more than comments and is not, or not wholly, in the server, with the files that it changes
    /// and no program of the build opened. None are listed if the server is that of the point before although the build
    /// opens all of them, or nobody observed it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<Point, Vec<String>>,
    /// Points that could not be built or measured, with the reason in one line.
    #[serde(default)]
    pub failed: BTreeMap<Point, String>,
    /// Workloads whose client failed, so that no further blocks of them were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_workloads: Vec<FailedWorkload>,
    /// Those of `failed` whose server did not become ready in time, with this time in seconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub start_timeouts: BTreeMap<Point, f64>,
    /// The command that measures this experiment, quoted for a POSIX shell: `perfquilt run --preset series`. `None` if
    /// unknown.
    #[serde(default, deserialize_with = "non_empty")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The commit of the workspace, if all of its files were in it; otherwise `None`.
    #[serde(default, deserialize_with = "non_empty")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The commands that get and measure the bundle of this experiment on another machine, one a line, likewise. `None` if there is no bundle.
    #[serde(default, deserialize_with = "non_empty")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// Start time of the experiment, RFC 3339 in UTC; empty if unknown.
    #[serde(default)]
    pub started: String,
    /// Earlier experiments whose observations are reused for points of this one, in order of preference.
    #[serde(rename = "carried", default, skip_serializing_if = "Vec::is_empty")]
    pub reused: Vec<ReusedFrom>,
}

/// A workload whose client failed although the release's server ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedWorkload {
    /// The workload.
    pub workload: String,
    /// The meters that were being read.
    pub meters: Vec<Meter>,
    /// The reason in one line.
    pub reason: String,
}

/// Reads a name; an empty one is `None`.
fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(Some(name).filter(|name| !name.is_empty()))
}

impl ExperimentHeader {
    /// Returns whether the points are servers that are no series: each is compared with the base.
    pub fn is_of_servers(&self) -> bool {
        self.base.is_some()
    }

    /// Returns whether a workload failed while `meter` was read.
    pub fn has_failed(&self, workload: &str, meter: Meter) -> bool {
        let mut failed = self.failed_workloads.iter();
        failed.any(|of| of.workload == workload && of.meters.contains(&meter))
    }

    /// Returns the measured point whose observations apply to `point`: the one with the same binary. The
    /// control point, which is the release's binary on purpose, maps to itself.
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

    /// Creates the header of an experiment with an empty series, which has not begun.
    pub fn new(release: &str, recipe: &str) -> Self {
        ExperimentHeader {
            schema: SCHEMA,
            experiment: format!("{release}-{recipe}"),
            release: release.to_owned(),
            recipe: recipe.to_owned(),
            ..ExperimentHeader::default()
        }
    }
}
