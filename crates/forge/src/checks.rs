//! The check run of a commit: the same verdict as the comment, where merge rules can see it.

use serde_json::{Value, json};

use super::client::{Call, Fault, Method, Shared, part};
use super::model::{CheckRun, CheckRuns};
use perfquilt_model::comment::{Comment, Standing};
use perfquilt_model::cut::at_most;
use perfquilt_model::error::{Error, Result};

/// The check run's name.
const NAME: &str = "perfquilt";
/// Characters of a title and bytes of a summary that GitHub takes.
const LONGEST_TITLE: usize = 255;
const LONGEST_SUMMARY: usize = 65_535;
/// How often looking and writing is begun again.
const ROUNDS: u32 = 4;

/// What a check run says to merge rules.
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
    /// What a standing concludes. A regression or an open question is red only where that was asked for:
    /// a measurement informs, and who merges decides.
    pub fn of(standing: Standing, fail_on_regression: bool, fail_on_inconclusive: bool) -> Self {
        match standing {
            Standing::Faster | Standing::NoEffect => Conclusion::Success,
            Standing::Failed => Conclusion::Failure,
            Standing::Regression if fail_on_regression => Conclusion::Failure,
            Standing::Unclear | Standing::Unfinished if fail_on_inconclusive => Conclusion::Failure,
            _ => Conclusion::Neutral,
        }
    }

    /// The word GitHub has for it.
    pub fn name(self) -> &'static str {
        match self {
            Conclusion::Success => "success",
            Conclusion::Neutral => "neutral",
            Conclusion::Failure => "failure",
        }
    }
}

/// Sees to it that the commit `head` has a check run with this comment; returns its page.
pub(super) async fn keep(
    shared: &Shared,
    head: &str,
    id: &str,
    comment: &Comment,
    conclusion: Conclusion,
    details: Option<&str>,
) -> Result<String> {
    let body = content(comment, conclusion, id, details);
    let mut unclear = None;
    for round in 1..=ROUNDS {
        let list = Call {
            what: "read the check runs",
            method: Method::Get,
            path: shared.path(&format!(
                "commits/{}/check-runs?check_name={NAME}&filter=latest&per_page=100",
                part(head)
            )),
            body: None,
        };
        let runs: CheckRuns = shared.call(&list).await.map_err(refused)?;
        let ours = |run: &&CheckRun| run.external_id.as_deref() == Some(id);
        let existing = runs.check_runs.iter().filter(ours).max_by_key(|run| run.id);
        let call = match existing {
            Some(run) => Call {
                what: "update the check run",
                method: Method::Patch,
                path: shared.path(&format!("check-runs/{}", run.id)),
                body: Some(body.clone()),
            },
            None => {
                let mut body = body.clone();
                body["head_sha"] = json!(head);
                Call {
                    what: "write the check run",
                    method: Method::Post,
                    path: shared.path("check-runs"),
                    body: Some(body),
                }
            }
        };
        match shared.call::<CheckRun>(&call).await {
            Ok(run) => return Ok(run.html_url.unwrap_or_default()),
            Err(Fault::Unclear(error, answer)) => {
                unclear = Some(error);
                if !shared.pause(&answer, round).await {
                    break;
                }
            }
            Err(fault) => return Err(refused(fault)),
        }
    }
    Err(unclear.unwrap_or_else(|| Error::forge("cannot write the check run")))
}

/// Whoever may not write check runs may not read them either, where the repository is private.
fn refused(fault: Fault) -> Error {
    match fault {
        Fault::Refused(403, error) => error.hint(
            "GitHub takes check runs from Apps and from workflows (`checks: write`) only; \
             `--no-check` leaves it out",
        ),
        other => other.into(),
    }
}

fn content(comment: &Comment, conclusion: Conclusion, id: &str, details: Option<&str>) -> Value {
    let title: String = comment.title.chars().take(LONGEST_TITLE).collect();
    let summary = at_most(&comment.body, LONGEST_SUMMARY);
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
    fn red_is_what_was_asked_for() {
        use Conclusion::{Failure, Neutral, Success};
        let quiet = Standing::ALL.map(|standing| Conclusion::of(standing, false, false));
        assert_eq!(
            quiet,
            [Failure, Neutral, Neutral, Success, Success, Neutral]
        );
        let strict = Standing::ALL.map(|standing| Conclusion::of(standing, true, true));
        assert_eq!(
            strict,
            [Failure, Failure, Failure, Success, Success, Failure]
        );
    }
}
