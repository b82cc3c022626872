//! Earlier experiments whose observations are reused for points of this one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::point::Point;

/// An earlier experiment whose observations are reused: it measured the same binaries on the same
/// workloads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReusedFrom {
    /// The earlier experiment's name.
    pub experiment: String,
    /// Its start time, RFC 3339 in UTC; empty if unknown.
    #[serde(default)]
    pub started: String,
    /// Maps points of this experiment to points of the earlier one with the same binaries. Observations are
    /// stored under the points of this experiment.
    #[serde(default)]
    pub points: BTreeMap<Point, Point>,
    /// Why its figures are outdated, as a fragment; `None` if they are valid. Outdated figures are shown until
    /// new ones exist, and no verdict is based on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
}
