//! What is known about an experiment besides its header and observations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Conditions, Meter};
use crate::point::Point;

/// Facts that make a report richer; every one may be missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Supplement {
    /// How many blocks were planned; empty when unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub planned: Vec<Planned>,
    /// How long the points took to build; empty when unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<PointBuild>,
    /// How exactly a value is known within its block; empty when unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<Within>,
    /// What was put aside before the observations were made of the rest; empty when nothing was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// What else happened while times were measured, by workload; empty when unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Conditions>,
    /// The steps in which meters read a run, in the meter's unit times transactions (10⁹ for times in whole
    /// seconds); empty where they are too fine to matter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clock: BTreeMap<Meter, f64>,
    /// The functions whose instructions the patches changed; empty where functions were not told apart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionChange>,
}

/// What each function executed itself in one counted block at one point.
#[derive(Debug, Clone, PartialEq)]
pub struct PointFunctions {
    /// The workload.
    pub workload: String,
    /// The block.
    pub block: u32,
    /// The point.
    pub point: Point,
    /// Instructions a transaction, by function.
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
    /// Its own instructions a transaction before the patch.
    pub before: f64,
    /// With the patch.
    pub after: f64,
    /// Half the width of the 95 % interval of `after − before`.
    pub half_width: f64,
    /// `after − before` as a share of all instructions before the patch.
    pub share: f64,
}

/// Readings that are used for no figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// How many.
    pub count: u64,
    /// What they are and why they are not used, as the end of a sentence.
    pub reason: String,
}

/// The blocks an experiment is to have of one workload and meter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// The number of blocks; the most there may be where `min_blocks` is given.
    pub blocks: u32,
    /// The experiment may end before `blocks`, when its intervals are narrow enough, but not before
    /// this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_blocks: Option<u32>,
    /// The half-width wanted of every patch's interval on this meter, as a fraction of speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
    /// The experiment went on after its end had been seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub extended: bool,
}

impl Planned {
    /// A number of blocks that is fixed beforehand.
    pub fn fixed(workload: &str, meter: Meter, blocks: u32) -> Self {
        Planned {
            workload: workload.to_owned(),
            meter,
            blocks,
            min_blocks: None,
            resolution: None,
            extended: false,
        }
    }
}

/// How long a point's server took to build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointBuild {
    /// The point.
    pub point: Point,
    /// The built server's key in the cache.
    pub key: String,
    /// Seconds of configuring.
    pub configure: f64,
    /// Seconds of compiling.
    pub compile: f64,
    /// Seconds of linking.
    pub link: f64,
    /// Seconds this tool itself took for the build (moving the tree, copying the result).
    pub overhead: f64,
    /// Units compiled.
    pub units: u64,
    /// Whether this experiment found the server in the cache; the seconds are then those of the
    /// build that made it, as far as they are known.
    pub cached: bool,
    /// The profile it was compiled with, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profiled>,
}

/// How a built server came by its profile, and how well that fitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profiled {
    /// Digest of the profile's files.
    pub digest: String,
    /// What was instrumented and trained.
    pub of: String,
    /// Functions whose code is not that of the profile, so that theirs was not used: those the compiler
    /// told of while the units of this point were compiled.
    pub changed: u64,
    /// Files that the profile knows nothing of, likewise.
    pub without: u64,
}

/// How exactly the values of one workload and meter are known within a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Within {
    /// The workload.
    pub workload: String,
    /// The meter.
    pub meter: Meter,
    /// Standard error of one point's value within one block, as a fraction of the value; root mean
    /// square over points and blocks.
    pub sd: f64,
}
