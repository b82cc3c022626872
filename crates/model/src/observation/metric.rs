//! Metrics: a meter's typical value, or another statistic of its slices.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray};

use super::{Meter, Observation};
use crate::error::Error;

/// A statistic of slices besides their typical value.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Display,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Statistic {
    /// [`Observation::mean`].
    Mean,
    /// [`Observation::slow`].
    Slow,
    /// [`Observation::p99`].
    P99,
    /// [`Observation::stalled`].
    Stalled,
}

impl Statistic {
    /// All statistics, in the order in which reports show them.
    pub const ALL: &[Statistic] = Statistic::VARIANTS;

    /// Whether it is a share of slices, compared by differences instead of ratios.
    pub fn is_share(self) -> bool {
        matches!(self, Statistic::Slow | Statistic::Stalled)
    }
}

/// A meter, or a statistic of a timed meter's slices: `time`, `time.mean`, `time.slow`, `time.p99`,
/// `time.stalled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Metric {
    /// The meter.
    pub meter: Meter,
    /// The statistic; `None` for the meter's own value, which for a timed meter is the typical one.
    pub statistic: Option<Statistic>,
}

impl Metric {
    /// Returns the cost of one transaction by this metric, a number above 0 whose ratios are compared; `None` if
    /// the observation lacks it. A share of slices is returned as its exponential, so that the logarithm
    /// of a ratio is the difference of shares.
    pub fn cost(self, observation: &Observation) -> Option<f64> {
        match self.statistic {
            None => Some(observation.value),
            Some(Statistic::Mean) => observation.mean,
            Some(Statistic::P99) => observation.p99,
            Some(Statistic::Slow) => observation.slow.map(f64::exp),
            Some(Statistic::Stalled) => observation.stalled.map(f64::exp),
        }
    }
}

impl From<Meter> for Metric {
    fn from(meter: Meter) -> Self {
        Metric {
            meter,
            statistic: None,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.statistic {
            None => self.meter.fmt(f),
            Some(statistic) => write!(f, "{}.{statistic}", self.meter),
        }
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((meter, name)) = text.split_once('.') else {
            return Ok(Metric::from(text.parse::<Meter>()?));
        };
        let meter: Meter = meter.parse()?;
        let statistic = name.parse().ok().filter(|_| meter.is_timed());
        let statistic = statistic.ok_or_else(|| {
            Error::arguments(format!(
                "`{text}` is not known: time and cpu have .mean, .slow, .p99 and .stalled"
            ))
        })?;
        Ok(Metric {
            meter,
            statistic: Some(statistic),
        })
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.to_string()
    }
}

impl TryFrom<String> for Metric {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_meters_and_statistics_of_slices() {
        for text in [
            "time",
            "time.mean",
            "cpu.slow",
            "time.p99",
            "time.stalled",
            "instructions",
        ] {
            assert_eq!(text.parse::<Metric>().unwrap().to_string(), text);
        }
        for text in ["instructions.mean", "time.p98", "time.", ".mean", "seconds"] {
            assert!(text.parse::<Metric>().is_err(), "{text}");
        }
        let json = serde_json::to_string(&"time.p99".parse::<Metric>().unwrap()).unwrap();
        assert_eq!(json, "\"time.p99\"");
    }
}
