//! The check run of a commit: the same verdict as the comment, for merge rules.

use serde_json::{Value, json};

use super::client::GitHub;
use super::model::{CheckRun, CheckRuns};
use super::transport::{Method, Request, RequestError, encode_segment};
use perfquilt_model::comment::{Comment, MeasurementStatus};
use perfquilt_model::cut::at_most;
use perfquilt_model::error::{Error, Result};

/// The check run's name.
const NAME: &str = "perfquilt";
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
            MeasurementStatus::Faster | MeasurementStatus::NoEffect => Conclusion::Success,
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

/// Creates or updates the check run of the commit `head` for this comment; returns the URL of its page, if it has one.
pub(super) async fn update(
    github: &GitHub,
    head: &str,
    id: &str,
    comment: &Comment,
    conclusion: Conclusion,
    details: Option<&str>,
) -> Result<Option<String>> {
    let body = content(comment, conclusion, id, details);
    let mut uncertain = None;
    for round in 1..=MAX_ROUNDS {
        let list = Request {
            purpose: "read the check runs",
            method: Method::Get,
            path: github.path(&format!(
                "commits/{}/check-runs?check_name={NAME}&filter=latest&per_page=100",
                encode_segment(head)
            )),
            body: None,
        };
        let runs: CheckRuns = github.call(&list).await.map_err(refused)?;
        let ours = |run: &&CheckRun| run.external_id.as_deref() == Some(id);
        let existing = runs.check_runs.iter().filter(ours).max_by_key(|run| run.id);
        let request = match existing {
            Some(run) => Request {
                purpose: "update the check run",
                method: Method::Patch,
                path: github.path(&format!("check-runs/{}", run.id)),
                body: Some(body.clone()),
            },
            None => {
                let mut body = body.clone();
                body["head_sha"] = json!(head);
                Request {
                    purpose: "write the check run",
                    method: Method::Post,
                    path: github.path("check-runs"),
                    body: Some(body),
                }
            }
        };
        match github.call::<CheckRun>(&request).await {
            Ok(run) => return Ok(run.html_url),
            Err(RequestError::Uncertain(error, info)) => {
                uncertain = Some(error);
                if !github.pause(&info, round).await {
                    break;
                }
            }
            Err(failure) => return Err(refused(failure)),
        }
    }
    Err(uncertain.unwrap_or_else(|| Error::forge("cannot write the check run")))
}

/// In a private repository, a token without the permission cannot read check runs either.
fn refused(failure: RequestError) -> Error {
    match failure {
        RequestError::Refused(403, error) => error.hint(
            "GitHub accepts check runs only from Apps and workflows (`checks: write`); \
             `--no-check` skips the check run",
        ),
        other => other.into(),
    }
}

fn content(comment: &Comment, conclusion: Conclusion, id: &str, details: Option<&str>) -> Value {
    let title: String = comment.title.chars().take(MAX_TITLE_CHARS).collect();
    let summary = at_most(&comment.body, MAX_SUMMARY_BYTES);
    let mut body = json!({
        "name": NAME,
        "external_id": id,
        "status": "completed",
        "conclusion": conclusion.name(),
        "output": { "title": title, "summary": summary },
    });
    if let Some(details) = details {
        body["details_url"] = json!(details);
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
            [Failure, Neutral, Neutral, Success, Success, Neutral]
        );
        let strict = MeasurementStatus::ALL.map(|status| Conclusion::of(status, true, true));
        assert_eq!(
            strict,
            [Failure, Failure, Failure, Success, Success, Failure]
        );
    }
}
