//! Experiments that nobody made.

use std::collections::BTreeMap;

use perfquilt_model::observation::ExperimentHeader;

/// The header of one with so many patches.
pub fn header(experiment: &str, patches: usize) -> ExperimentHeader {
    ExperimentHeader {
        experiment: experiment.into(),
        series: (1..=patches)
            .map(|k| format!("{k:04}-made-up.patch"))
            .collect(),
        titles: (1..=patches)
            .map(|k| format!("Change number {k}"))
            .collect(),
        machine: BTreeMap::from([("cores".into(), "2".into())]),
        ..ExperimentHeader::new("made-up-1.0", "quick")
    }
}
