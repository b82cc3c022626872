//! Where observations of another experiment come from that speak for points of this one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::point::Point;

/// An earlier experiment that measured points of this one already: the same binaries on the same
/// workloads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its name.
    pub experiment: String,
    /// When it began, RFC 3339 in UTC; empty when unknown.
    #[serde(default)]
    pub started: String,
    /// Points of this experiment, and which points of that one are the same binaries. Observations are
    /// told by the former.
    #[serde(default)]
    pub points: BTreeMap<Point, Point>,
    /// Why its figures do not hold any more, as a fragment: they are shown until there are others, and
    /// are no base for a verdict. `None` where they do hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
}
