//! The pull request's label for the result of the measurement.

use super::forge::Forge;
use perfquilt_model::comment::MeasurementStatus;
use perfquilt_model::error::Result;

/// Sets the label `PREFIX: STATUS`, as `perf: faster`, and removes the other labels with `prefix`; returns the label.
pub(super) fn update(
    forge: &dyn Forge,
    number: u64,
    prefix: &str,
    status: MeasurementStatus,
) -> Result<String> {
    let name = |status: MeasurementStatus| format!("{prefix}: {status}");
    let wanted = name(status);
    let labels = forge.labels(number)?;
    // Some forges keep the spelling of who created it.
    let has = |name: &str| {
        labels
            .iter()
            .any(|label| label.name.eq_ignore_ascii_case(name))
    };
    if !has(&wanted) {
        forge.add_label(number, &wanted)?;
    }
    let ours: Vec<String> = MeasurementStatus::ALL.iter().copied().map(name).collect();
    for other in &labels {
        let is = |name: &String| name.eq_ignore_ascii_case(&other.name);
        if !is(&wanted) && ours.iter().any(is) {
            forge.remove_label(number, other)?;
        }
    }
    Ok(wanted)
}
