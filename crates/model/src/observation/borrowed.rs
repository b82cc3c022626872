//! An observation with borrowed texts, so that a million of them can be read without allocating strings.

use std::borrow::Cow;

use serde::Deserialize;

use super::{Meter, Observation};
use crate::point::Point;

/// An [`Observation`] that borrows its texts. The fields are the same; see there for details.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ObservationRef<'a> {
    /// Version of this form.
    pub schema: u32,
    /// The experiment's name.
    #[serde(borrow)]
    pub experiment: Cow<'a, str>,
    /// The block, from 0.
    pub block: u32,
    /// Position within the block's random order, from 0.
    pub order: u32,
    /// The measured point.
    pub point: Point,
    /// The layout seed.
    pub layout: u64,
    /// The workload's name.
    #[serde(borrow)]
    pub workload: Cow<'a, str>,
    /// The meter.
    pub meter: Meter,
    /// The unit of `value`.
    #[serde(borrow)]
    pub unit: Cow<'a, str>,
    /// Cost of one transaction.
    pub value: f64,
    /// Transactions that `value` stands for.
    pub n: u64,
    /// Whether the block belongs to the end-to-end check.
    #[serde(default)]
    pub direct: bool,
    /// Mean cost over all slices.
    #[serde(default)]
    pub mean: Option<f64>,
    /// Share of slow slices.
    #[serde(default)]
    pub slow: Option<f64>,
    /// The 99th percentile over slices.
    #[serde(default)]
    pub p99: Option<f64>,
    /// Share of stalled slices.
    #[serde(default)]
    pub stalled: Option<f64>,
    /// The lane.
    #[serde(default)]
    pub lane: Option<u32>,
    /// When the measurement began.
    #[serde(default)]
    pub began: Option<f64>,
    /// When it ended.
    #[serde(default)]
    pub ended: Option<f64>,
    /// The machine.
    #[serde(default, borrow)]
    pub machine: Option<Cow<'a, str>>,
}

impl Observation {
    /// Returns this observation with borrowed texts.
    pub fn borrowed(&self) -> ObservationRef<'_> {
        ObservationRef {
            schema: self.schema,
            experiment: Cow::Borrowed(&self.experiment),
            block: self.block,
            order: self.order,
            point: self.point,
            layout: self.layout,
            workload: Cow::Borrowed(&self.workload),
            meter: self.meter,
            unit: Cow::Borrowed(&self.unit),
            value: self.value,
            n: self.n,
            direct: self.direct,
            mean: self.mean,
            slow: self.slow,
            p99: self.p99,
            stalled: self.stalled,
            lane: self.lane,
            began: self.began,
            ended: self.ended,
            machine: self.machine.as_deref().map(Cow::Borrowed),
        }
    }
}

impl From<ObservationRef<'_>> for Observation {
    fn from(borrowed: ObservationRef<'_>) -> Self {
        Observation {
            schema: borrowed.schema,
            experiment: borrowed.experiment.into_owned(),
            block: borrowed.block,
            order: borrowed.order,
            point: borrowed.point,
            layout: borrowed.layout,
            workload: borrowed.workload.into_owned(),
            meter: borrowed.meter,
            unit: borrowed.unit.into_owned(),
            value: borrowed.value,
            n: borrowed.n,
            direct: borrowed.direct,
            mean: borrowed.mean,
            slow: borrowed.slow,
            p99: borrowed.p99,
            stalled: borrowed.stalled,
            lane: borrowed.lane,
            began: borrowed.began,
            ended: borrowed.ended,
            machine: borrowed.machine.map(Cow::into_owned),
        }
    }
}
