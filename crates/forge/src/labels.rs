//! The pull request's label for the result of the measurement.

use serde_json::json;

use super::client::Client;
use super::model::Label;
use super::transport::{delete, encode_segment, post, unless_gone};
use perfquilt_model::comment::MeasurementStatus;
use perfquilt_model::error::Result;

/// Returns the label for a status: `perf: faster`.
pub(super) fn name(prefix: &str, status: MeasurementStatus) -> String {
    format!("{prefix}: {status}")
}

/// Sets the label for `status` and removes the other labels with `prefix`; returns the label.
pub(super) fn update(
    github: &Client,
    number: u64,
    prefix: &str,
    status: MeasurementStatus,
) -> Result<String> {
    let wanted = name(prefix, status);
    let path = github.path(&format!("issues/{number}/labels"));
    let labels: Vec<Label> = github.all("read the labels", &path)?;
    let has = |name: &str| {
        labels
            .iter()
            .any(|label| label.name.eq_ignore_ascii_case(name))
    };
    if !has(&wanted) {
        let request = post("add the label", path.clone(), json!({ "labels": [wanted] }));
        github.execute(&request.repeatable())?;
    }
    let ours = MeasurementStatus::ALL.map(|status| name(prefix, status));
    for other in labels.iter().map(|label| label.name.as_str()) {
        // GitHub keeps the spelling of who created it.
        let is = |name: &String| name.eq_ignore_ascii_case(other);
        if is(&wanted) || !ours.iter().any(is) {
            continue;
        }
        let label = format!("{path}/{}", encode_segment(other));
        unless_gone(github.execute(&delete("remove a label", label)))?;
    }
    Ok(wanted)
}
