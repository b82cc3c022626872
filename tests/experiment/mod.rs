//! Observations whose effects are known.

use std::collections::BTreeMap;

use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
use perfquilt_model::point::Point;

/// An experiment whose patches gain so much.
pub fn of(gains: &[f64]) -> (ExperimentHeader, Vec<Observation>) {
    let header = ExperimentHeader {
        experiment: "quick-1".into(),
        series: (1..=gains.len())
            .map(|k| format!("{k:04}-x.patch"))
            .collect(),
        machine: BTreeMap::from([("cores".into(), "2".into())]),
        harness: "perfquilt 0.1.0".into(),
        // The comment tells it: the same experiment has the same text whenever it is asked for.
        started: "2026-01-02T03:04:05Z".into(),
        ..ExperimentHeader::new("mariadb-10.11.18", "quick")
    };
    let mut points: Vec<Point> = (0..=gains.len()).map(Point::Step).collect();
    points.push(Point::Control);
    let mut observations = Vec::new();
    for block in 0..12u32 {
        for (order, &point) in (0u32..).zip(&points) {
            let gain: f64 = match point {
                Point::Step(k) => gains[..k].iter().sum(),
                _ => 0.0,
            };
            // Some noise that every run of the tests has alike.
            let noise = f64::from((block * 7 + order * 5) % 11) / 11.0 - 0.5;
            observations.push(Observation {
                schema: 1,
                experiment: "quick-1".into(),
                block,
                order,
                point,
                layout: 0,
                workload: "oltp_read_only".into(),
                meter: Meter::Time,
                unit: Meter::Time.unit().into(),
                value: 90_000.0 * (0.002 * noise - gain).exp(),
                n: 400,
                direct: false,
                mean: None,
                slow: None,
                p99: None,
                stalled: None,
                lane: None,
                began: None,
                ended: None,
                machine: None,
            });
        }
    }
    (header, observations)
}
