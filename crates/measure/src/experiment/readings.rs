//! What the blocks of an experiment read.

use super::plan::Reading;
use perfquilt_config::Workload;
use perfquilt_model::observation::Meter;

/// The meters and workloads of an experiment.
#[derive(Clone)]
pub struct Readings {
    /// Meters read from slices.
    pub timed: Vec<Meter>,
    /// Meters read by counting.
    pub counted: Vec<Meter>,
    /// The workloads.
    pub workloads: Vec<Workload>,
}

impl Readings {
    /// Returns the meters of one reading.
    pub fn meters(&self, reading: Reading) -> &[Meter] {
        match reading {
            Reading::Timed => &self.timed,
            Reading::Counted => &self.counted,
        }
    }

    /// Returns the workload called `name`.
    pub fn workload(&self, name: &str) -> Option<&Workload> {
        let mut workloads = self.workloads.iter();
        workloads.find(|workload| workload.name == name)
    }
}
