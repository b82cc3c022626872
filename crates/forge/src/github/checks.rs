//! The check run of a commit: the same verdict as the comment, for merge rules.

use serde_json::{Value, json};

use super::model::{CheckRun, CheckRuns};
use crate::client::Client;
use crate::forge::CommitStatus;
use crate::refusal::Refusal;
use crate::start_time::is_before;
use crate::status::name;
use crate::transport::{RequestError, encode_segment, patch, post};
use perfquilt_model::cut::at_most;
use perfquilt_model::error::{Error, Result};

/// The maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 255;
/// The maximum size of a summary, in bytes.
const MAX_SUMMARY_BYTES: usize = 65_535;
/// The maximum number of rounds of looking for a check run and writing it.
const MAX_ROUNDS: u32 = 4;

/// Creates or updates the check run of a commit; returns the URL of its page, if it has one. A check run about a
/// measurement that began later stays as it is, and nothing is returned.
pub(super) fn update(github: &Client, draft: &CommitStatus<'_>) -> Result<Option<String>> {
    let body = content(draft);
    let mut uncertain = None;
    for round in 1..=MAX_ROUNDS {
        let existing = existing(github, draft.head, draft.id)?;
        let request = match existing {
            Some(run) if is_before(draft.began, run.started_at.as_deref()) => {
                return Ok(None);
            }
            Some(run) => {
                let path = github.path(&format!("check-runs/{}", run.id));
                patch("update the check run", path, body.clone())
            }
            None => {
                let mut body = body.clone();
                body["head_sha"] = json!(draft.head);
                post("write the check run", github.path("check-runs"), body)
            }
        };
        match github.call::<CheckRun>(&request) {
            Ok(run) => return Ok(run.html_url),
            Err(RequestError::Uncertain(error, info)) => {
                let goes_on = github.pause(&error, &info, round)?;
                uncertain = Some(error);
                if !goes_on {
                    break;
                }
            }
            Err(failure) => return Err(refused(failure)),
        }
    }
    Err(uncertain.unwrap_or_else(|| Error::forge_refused("cannot write the check run")))
}

/// Returns the latest check run of a commit for comments with `id` that this account wrote: another App's runs may have
/// the same name and id, and only their App may change them.
fn existing(github: &Client, head: &str, id: &str) -> Result<Option<CheckRun>> {
    // Of several runs with one name, the filter `latest` shows only one.
    let path = github.path(&format!(
        "commits/{}/check-runs?check_name={}&filter=all",
        encode_segment(head),
        encode_segment(&name(id))
    ));
    let runs: Vec<CheckRun> = github
        .all_of("read the check runs", &path, |page: CheckRuns| {
            page.check_runs
        })
        .map_err(refused)?;
    let login = github.login()?;
    let ours = |run: &CheckRun| {
        let app = run.app.as_ref().map(|app| format!("{}[bot]", app.slug));
        // A user's own login says nothing about an App.
        let other_app = login.ends_with("[bot]") && app.is_some_and(|app| app != login);
        run.external_id.as_deref() == Some(id) && !other_app
    };
    Ok(runs.into_iter().filter(ours).max_by_key(|run| run.id))
}

/// In a private repository, a token without the permission cannot read check runs either.
fn refused(failure: RequestError) -> Error {
    match failure {
        RequestError::Refused(403, Refusal::Other, error) => error.hint(
            "GitHub accepts check runs only from Apps and workflows (`checks: write`); \
             `--no-check` skips the check run",
        ),
        other => other.into(),
    }
}

fn content(draft: &CommitStatus<'_>) -> Value {
    let comment = draft.comment;
    let title: String = comment.title.chars().take(MAX_TITLE_CHARS).collect();
    let summary = at_most(&comment.body, MAX_SUMMARY_BYTES);
    let mut body = json!({
        "name": name(draft.id),
        "external_id": draft.id,
        "status": "completed",
        "conclusion": draft.conclusion.name(),
        "output": { "title": title, "summary": summary },
    });
    if let Some(details) = draft.details {
        body["details_url"] = json!(details);
    }
    if let Some(began) = draft.began {
        body["started_at"] = json!(began);
    }
    body
}
