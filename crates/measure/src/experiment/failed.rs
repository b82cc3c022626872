//! The points and workloads that an experiment leaves out after a failure.

use std::collections::BTreeMap;

use super::plan::Reading;
use super::readings::Readings;
use perfquilt_model::error::Error;
use perfquilt_model::observation::FailedWorkload;
use perfquilt_model::point::Point;

/// Points and workloads that later blocks leave out.
#[derive(Debug, Clone, Default)]
pub struct Failed {
    /// Points whose server failed.
    pub points: BTreeMap<Point, Error>,
    /// Workloads whose client failed, by what was read meanwhile.
    pub workloads: BTreeMap<(String, Reading), Error>,
}

impl Failed {
    /// Returns these points, without workloads.
    pub fn points(points: BTreeMap<Point, Error>) -> Self {
        Failed {
            points,
            ..Failed::default()
        }
    }

    /// Returns how many points and workloads failed.
    pub fn count(&self) -> usize {
        self.points.len() + self.workloads.len()
    }

    /// Returns whether a workload failed in blocks of this `reading`.
    pub fn has_workload(&self, workload: &str, reading: Reading) -> bool {
        let mut workloads = self.workloads.keys();
        workloads.any(|(name, failed)| name == workload && *failed == reading)
    }

    /// Returns the failures of workloads for the header of an experiment with these `readings`.
    pub fn recorded_workloads(&self, readings: &Readings) -> Vec<FailedWorkload> {
        let workloads = self.workloads.iter();
        let record = |((workload, reading), error): (&(String, Reading), &Error)| FailedWorkload {
            workload: workload.clone(),
            meters: readings.meters(*reading).to_vec(),
            reason: error.to_string(),
        };
        workloads.map(record).collect()
    }
}
