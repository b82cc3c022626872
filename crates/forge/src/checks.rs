//! The check run of a commit: the same verdict as the comment, for merge rules.

use serde_json::{Value, json};

use super::client::Client;
use super::model::{CheckRun, CheckRuns};
use super::refusal::Refusal;
use super::start_time::is_before;
use super::transport::{RequestError, encode_segment, patch, post};
use perfquilt_model::comment::{Comment, MeasurementStatus};
use perfquilt_model::cut::at_most;
use perfquilt_model::error::{Error, Result};

/// The check run's name for the default id.
const NAME: &str = "perfquilt";
/// The id of a comment unless the user chooses one.
const DEFAULT_ID: &str = "default";
/// The maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 255;
/// The maximum size of a summary, in bytes.
const MAX_SUMMARY_BYTES: usize = 65_535;
/// The maximum number of rounds of looking for a check run and writing it.
const MAX_ROUNDS: u32 = 4;

/// The conclusion of a check run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conclusion {
    /// Green.
    Success,
    /// Grey: neither good nor bad.
    Neutral,
    /// Red.
    Failure,
}

impl Conclusion {
    /// Returns the conclusion for a status. A regression or an inconclusive result is red only on request: a
    /// measurement informs, and the maintainers decide about merging.
    pub fn of(
        status: MeasurementStatus,
        fail_on_regression: bool,
        fail_on_inconclusive: bool,
    ) -> Self {
        match status {
            MeasurementStatus::Faster
            | MeasurementStatus::NoEffect
            | MeasurementStatus::Accepted => Conclusion::Success,
            MeasurementStatus::Failed => Conclusion::Failure,
            MeasurementStatus::Regression if fail_on_regression => Conclusion::Failure,
            MeasurementStatus::Unclear | MeasurementStatus::Unfinished if fail_on_inconclusive => {
                Conclusion::Failure
            }
            _ => Conclusion::Neutral,
        }
    }

    /// Returns GitHub's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Conclusion::Success => "success",
            Conclusion::Neutral => "neutral",
            Conclusion::Failure => "failure",
        }
    }
}

/// Returns the name of the check run for comments with `id`. GitHub shows, and merge rules require, the latest run of a
/// name, so one workspace's success would hide another one's failure under the same name.
fn name(id: &str) -> String {
    if id == DEFAULT_ID {
        NAME.to_owned()
    } else {
        format!("{NAME} ({id})")
    }
}

/// A check run to write.
pub(super) struct CheckRunDraft<'a> {
    /// The measured commit.
    pub head: &'a str,
    /// The comment's id.
    pub id: &'a str,
    /// The comment.
    pub comment: &'a Comment,
    /// The conclusion.
    pub conclusion: Conclusion,
    /// The URL with details.
    pub details: Option<&'a str>,
    /// When the measurement began.
    pub began: Option<&'a str>,
}

/// Creates or updates the check run of a commit; returns the URL of its page, if it has one. A check run about a
/// measurement that began later stays as it is, and nothing is returned.
pub(super) fn update(github: &Client, draft: &CheckRunDraft<'_>) -> Result<Option<String>> {
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
    Err(uncertain.unwrap_or_else(|| Error::forge("cannot write the check run")))
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

fn content(draft: &CheckRunDraft<'_>) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_depends_on_the_options() {
        use Conclusion::{Failure, Neutral, Success};
        let quiet = MeasurementStatus::ALL.map(|status| Conclusion::of(status, false, false));
        assert_eq!(
            quiet,
            [
                Failure, Neutral, Neutral, Success, Success, Success, Neutral
            ]
        );
        let strict = MeasurementStatus::ALL.map(|status| Conclusion::of(status, true, true));
        assert_eq!(
            strict,
            [
                Failure, Failure, Failure, Success, Success, Success, Failure
            ]
        );
    }
}
