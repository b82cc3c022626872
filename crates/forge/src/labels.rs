//! The label of a pull request: one of those that say what the measurement came to.

use serde_json::json;

use super::client::{Call, Fault, Method, Shared, part};
use super::model::Label;
use perfquilt_model::comment::Standing;
use perfquilt_model::error::Result;

/// The label for a standing: `perf: faster`.
pub(super) fn name(prefix: &str, standing: Standing) -> String {
    format!("{prefix}: {standing}")
}

/// Sees to it that of the labels with `prefix` the pull request has the one for `standing`; returns it.
pub(super) async fn keep(
    shared: &Shared,
    number: u64,
    prefix: &str,
    standing: Standing,
) -> Result<String> {
    let wanted = name(prefix, standing);
    let path = shared.path(&format!("issues/{number}/labels"));
    let labels: Vec<Label> = shared.all("read the labels", &path).await?;
    let has = |name: &str| {
        labels
            .iter()
            .any(|label| label.name.eq_ignore_ascii_case(name))
    };
    if !has(&wanted) {
        let call = Call {
            what: "add the label",
            method: Method::PostAgain,
            path: path.clone(),
            body: Some(json!({ "labels": [wanted] })),
        };
        shared.tell(&call).await?;
    }
    for other in Standing::ALL.map(|standing| name(prefix, standing)) {
        if other == wanted || !has(&other) {
            continue;
        }
        let call = Call {
            what: "remove a label",
            method: Method::Delete,
            path: format!("{path}/{}", part(&other)),
            body: None,
        };
        match shared.tell(&call).await {
            Ok(()) | Err(Fault::Refused(404, _)) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(wanted)
}
