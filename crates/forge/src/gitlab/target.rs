//! The merge request that a job of GitLab's is about.

use super::webhook::MergeRequestBody;
use crate::credentials::{Variable, first_set};
use crate::{Target, is_commit};
use perfquilt_model::error::{Error, Result};

/// Reads the variables of a job through `variable`, and the hook in the file that `TRIGGER_PAYLOAD` names if one started
/// the pipeline, unless the user names the merge request. Outside a job the target is empty.
pub(super) fn target(variable: Variable<'_>, is_named: bool) -> Result<Target> {
    let set = |names: &[&str]| first_set(variable, names);
    let repository = set(&["CI_MERGE_REQUEST_PROJECT_PATH", "CI_PROJECT_PATH"]);
    let mut target = Target {
        repository: repository.map(|path| path.parse()).transpose()?,
        run: set(&["CI_PIPELINE_URL"]),
        ..Target::default()
    };
    if let Some(number) = set(&["CI_MERGE_REQUEST_IID"]) {
        let invalid = || Error::event(format!("CI_MERGE_REQUEST_IID is `{number}`, no number"));
        target.number = Some(number.parse().map_err(|_| invalid())?);
        // A pipeline for the result of the merge has a commit of its own.
        target.head = set(&["CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", "CI_COMMIT_SHA"]);
    } else if let Some(path) = set(&["TRIGGER_PAYLOAD"]).filter(|_| !is_named) {
        let unreadable = |why: String| {
            Error::event(format!("cannot read the hook in {path}: {why}")).hint(
                "let a webhook for merge request events start the pipeline, or give `--pr` and `--head`",
            )
        };
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
        let body: MergeRequestBody =
            serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        target.number = Some(body.object_attributes.iid);
        target.head = Some(body.object_attributes.last_commit.id);
    } else {
        return Ok(target);
    }
    target.began = set(&["CI_PIPELINE_CREATED_AT"]);
    match &target.head {
        Some(head) if !is_commit(head) => Err(Error::event("the job's variables name no commit")),
        _ => Ok(target),
    }
}
