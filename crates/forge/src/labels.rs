//! The pull request's label for the result of the measurement.

use serde_json::json;

use super::client::Client;
use super::model::Label;
use super::transport::{Method, Request, RequestError, encode_segment};
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
        let request = Request {
            purpose: "add the label",
            method: Method::PostIdempotent,
            path: path.clone(),
            body: Some(json!({ "labels": [wanted] })),
        };
        github.execute(&request)?;
    }
    let ours = MeasurementStatus::ALL.map(|status| name(prefix, status));
    for other in labels.iter().map(|label| label.name.as_str()) {
        // GitHub keeps the spelling of who created it.
        let is = |name: &String| name.eq_ignore_ascii_case(other);
        if is(&wanted) || !ours.iter().any(is) {
            continue;
        }
        let request = Request {
            purpose: "remove a label",
            method: Method::Delete,
            path: format!("{path}/{}", encode_segment(other)),
            body: None,
        };
        match github.execute(&request) {
            Ok(()) | Err(RequestError::Refused(404, ..)) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(wanted)
}
