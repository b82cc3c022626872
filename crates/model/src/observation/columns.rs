//! An observation, whose columns are declared here once: what reads files takes them from the list.

use serde::{Deserialize, Serialize};

use super::Meter;
use crate::point::Point;

/// The schema version of headers and observations that perfquilt reads and writes.
pub const SCHEMA: u32 = 1;

/// Gives the columns of an observation to the macro called `$then`: documentation and attributes, name and type of each.
#[macro_export]
macro_rules! observation_columns {
    ($then:ident) => {
        $then! {
            /// Version of this form: 1.
            schema: u32,
            /// The experiment this belongs to.
            experiment: String,
            /// The block (one randomised round over all points with fresh restarts), from 0.
            block: u32,
            /// Position of the point within its block's random order, from 0.
            order: u32,
            /// The point measured.
            point: Point,
            /// The layout seed of the variant measured; 0 is the linker's own order.
            layout: u64,
            /// The workload's name.
            workload: String,
            /// The meter read.
            meter: Meter,
            /// The unit of `value`.
            unit: String,
            /// Cost of one transaction.
            value: f64,
            /// Transactions that `value` stands for.
            n: u64,
            /// Whether the block has only the release and the whole series, for the end-to-end check. Such blocks are
            /// numbered separately and used for nothing else.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            direct: bool,
            /// Mean cost of one transaction over all slices.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            mean: Option<f64>,
            /// The share of slices that took more than twice the typical time of their round, from 0 to 1.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            slow: Option<f64>,
            /// The 99th percentile over slices of the cost of one transaction.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            p99: Option<f64>,
            /// The share of slices that took more than twenty times the typical time of their round, from 0 to 1.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            stalled: Option<f64>,
            /// The lane that measured it, from 0, where several measured blocks side by side.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            lane: Option<u32>,
            /// When the block's measurement of this workload began, in seconds since 1970 on the clock of its machine; known where
            /// several lanes measured.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            began: Option<f64>,
            /// When it ended, likewise.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            ended: Option<f64>,
            /// The machine that measured it, where several did.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            machine: Option<String>,
        }
    };
}

macro_rules! observation {
    ($($(#[$about:meta])* $name:ident: $type:ty,)*) => {
        /// One value of one point in one block: a line of an observation file.
        ///
        /// `value` is the cost of one transaction in `unit`, already reduced over the block's slices for
        /// the `time` meter (see `docs/statistics.md`); `n` is how many transactions it stands for.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct Observation {
            $($(#[$about])* pub $name: $type,)*
        }
    };
}

observation_columns!(observation);

impl Observation {
    /// Returns the observation without mean and tail.
    #[must_use]
    pub fn without_tail(self) -> Self {
        Observation {
            mean: None,
            slow: None,
            p99: None,
            stalled: None,
            ..self
        }
    }

    /// Returns the observation of one transaction that took `value`, in the meter's unit: first in its block, in the linker's
    /// own layout, without mean and tail, of an experiment without a name.
    pub fn new(block: u32, point: Point, workload: &str, meter: Meter, value: f64) -> Self {
        Observation {
            schema: SCHEMA,
            block,
            point,
            workload: workload.to_owned(),
            meter,
            unit: meter.unit().to_owned(),
            value,
            n: 1,
            ..Observation::default()
        }
    }
}
