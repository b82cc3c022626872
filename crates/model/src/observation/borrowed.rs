//! An observation whose texts lie elsewhere: a million of them are read without a million strings.

use std::borrow::Cow;

use serde::Deserialize;

use super::{Meter, Observation};
use crate::point::Point;

/// An [`Observation`] that borrows its texts; the fields are the same.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ObservationRef<'a> {
    /// As [`Observation::schema`].
    pub schema: u32,
    /// As [`Observation::experiment`].
    #[serde(borrow)]
    pub experiment: Cow<'a, str>,
    /// As [`Observation::block`].
    pub block: u32,
    /// As [`Observation::order`].
    pub order: u32,
    /// As [`Observation::point`].
    pub point: Point,
    /// As [`Observation::layout`].
    pub layout: u64,
    /// As [`Observation::workload`].
    #[serde(borrow)]
    pub workload: Cow<'a, str>,
    /// As [`Observation::meter`].
    pub meter: Meter,
    /// As [`Observation::unit`].
    #[serde(borrow)]
    pub unit: Cow<'a, str>,
    /// As [`Observation::value`].
    pub value: f64,
    /// As [`Observation::n`].
    pub n: u64,
    /// As [`Observation::direct`].
    #[serde(default)]
    pub direct: bool,
    /// As [`Observation::mean`].
    #[serde(default)]
    pub mean: Option<f64>,
    /// As [`Observation::slow`].
    #[serde(default)]
    pub slow: Option<f64>,
    /// As [`Observation::p99`].
    #[serde(default)]
    pub p99: Option<f64>,
}

impl Observation {
    /// This observation by reference.
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
        }
    }
}
