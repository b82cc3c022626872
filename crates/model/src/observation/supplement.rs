//! Optional facts about an experiment besides its header and observations.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::{Conditions, Meter};
use crate::point::Point;
use crate::server_tests::PointTests;

/// Optional facts that a report shows; each may be missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Supplement {
    /// Planned numbers of blocks; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub planned: Vec<PlannedBlocks>,
    /// Build times of the points; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<PointBuild>,
    /// Standard errors of values within their blocks; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<WithinBlockError>,
    /// Readings excluded before the observations were computed from the rest; empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ExcludedReadings>,
    /// Conditions on the host during timed blocks, by workload; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Conditions>,
    /// The resolution with which meters read a run, in the meter's unit times transactions (10⁹ for times in
    /// whole seconds); empty where it is too fine to matter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clock: BTreeMap<Meter, f64>,
    /// The correlation of consecutive blocks in earlier experiments on this class of machines, which intervals of few blocks
    /// assume; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier_correlation: Option<f64>,
    /// Functions whose instructions the patches changed; empty if instructions were not counted by function.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionChange>,
    /// Patches whose code workloads do not execute, so that they were not timed; empty if there are none or this
    /// is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unexecuted: Vec<UnexecutedPatch>,
    /// The server's own tests at the points, compared with those on the bare release; empty if they did not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<PointTests>,
    /// The identities of the points' programs; empty if unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<Point, String>,
    /// The digests of the workloads' settings and inputs, by name; empty if unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub workload_digests: BTreeMap<String, String>,
    /// Sentences about how the observations were read, which the report repeats among its warnings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Effects that the observations cannot tell, as the notes say; empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<Withheld>,
}

/// Effects without interval and verdict, because what was measured cannot tell them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Withheld {
    /// The workload; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// The meter; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<Meter>,
    /// The points one of which is compared; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Point>,
    /// Why, as the end of a sentence.
    pub reason: String,
}

/// A patch whose code a workload does not execute: what it does at `point` it does at `against`, instruction by
/// instruction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnexecutedPatch {
    /// The point with the patch.
    pub point: Point,
    /// An earlier point, without the patch.
    pub against: Point,
    /// The workload.
    pub workload: String,
    /// Number of functions (sections of code) at `against` that the patch changes or removes.
    pub functions: u64,
}

/// Instructions of each function itself, without its callees, in one counted block at one point.
#[derive(Debug, Clone, PartialEq)]
pub struct PointFunctions {
    /// The workload.
    pub workload: String,
    /// The block.
    pub block: u32,
    /// The point.
    pub point: Point,
    /// Instructions per transaction, by function.
    pub functions: BTreeMap<String, f64>,
}

/// A function whose own instructions a patch changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionChange {
    /// The patch's place in the series, from 1.
    pub patch: usize,
    /// The workload.
    pub workload: String,
    /// The function's name.
    pub function: String,
    /// Its own instructions per transaction before the patch.
    pub before: f64,
    /// Its own instructions per transaction with the patch.
    pub after: f64,
    /// Half the width of the 95 % interval of `after − before`.
    pub half_width: f64,
    /// `after − before` as a share of all instructions before the patch.
    pub share: f64,
}

/// Readings excluded from all figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcludedReadings {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The number of readings.
    pub count: u64,
    /// The readings and the reason of their exclusion, as the end of a sentence.
    pub reason: String,
}

/// The planned number of blocks of one workload and meter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannedBlocks {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The number of blocks of each effect; the maximum if `min_blocks` is given.
    pub blocks: u32,
    /// The minimum number of blocks of an experiment that ends when its intervals are narrow enough;
    /// `None` for a fixed number of blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_blocks: Option<u32>,
    /// The target half-width of every patch's interval on this meter, as a fraction of speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
    /// Whether the experiment was extended after its end, or shortened before it, when its estimates could be seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub extended: bool,
    /// Whether the experiment has ended as planned here, by the stopping rule of the version that measured it (`harness` of
    /// the header). Another version's rule does not open it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// The number of windows of neighbouring points, each with so many blocks; `None` where every block has all
    /// points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<NonZeroU32>,
    /// The number of blocks of a wave: the experiment may end after complete waves only. `None` where blocks are measured
    /// by one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<NonZeroU32>,
}

impl PlannedBlocks {
    /// Creates a plan with a fixed number of blocks.
    pub fn fixed(workload: &str, meter: Meter, blocks: u32) -> Self {
        PlannedBlocks {
            workload: workload.to_owned(),
            meter,
            blocks,
            ..PlannedBlocks::default()
        }
    }

    /// Returns whether `other` plans the same blocks, whatever became of them.
    pub fn is_same_plan(&self, other: &PlannedBlocks) -> bool {
        let bare = |plan: &PlannedBlocks| PlannedBlocks {
            extended: false,
            ended: false,
            ..plan.clone()
        };
        bare(self) == bare(other)
    }

    /// Returns the number of blocks of all windows together.
    pub fn all_blocks(&self) -> u32 {
        let windows = self.windows.map_or(1, NonZeroU32::get);
        self.blocks.saturating_mul(windows)
    }
}

/// Build time of a point's server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PointBuild {
    /// The point.
    pub point: Point,
    /// The built server's key in the cache.
    pub key: String,
    /// Seconds spent configuring.
    pub configure: f64,
    /// Seconds spent compiling.
    pub compile: f64,
    /// Seconds spent linking.
    pub link: f64,
    /// Seconds of perfquilt's own overhead (moving the tree, copying the result).
    pub overhead: f64,
    /// Number of compiled translation units.
    pub units: u64,
    /// Whether this experiment found the server in the cache. The seconds are then those of the original
    /// build, as far as they are known.
    pub cached: bool,
    /// Bytes of machine code in the measured executable, in the linker's own layout; `None` when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_bytes: Option<u64>,
    /// The profile used for profile-guided optimisation, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileUse>,
}

/// Which profile a server was compiled with, and how well the profile matched its code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileUse {
    /// Digest of the profile's files.
    pub digest: String,
    /// The build that was instrumented and trained.
    pub of: String,
    /// Functions whose profile was unused because their code had changed, as reported by the compiler while
    /// it compiled the units of this point.
    pub changed: u64,
    /// Files without a profile, as reported by the compiler likewise.
    pub without: u64,
}

/// The standard error within a block of one workload and meter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WithinBlockError {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// Standard error of one point's value within one block, as a fraction of the value; root mean
    /// square over points and blocks.
    pub sd: f64,
}
