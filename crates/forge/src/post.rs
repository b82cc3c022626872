//! Posts the comment, check run and label of a pull request.

use serde::Serialize;

use super::client::GitHub;
use super::event::Target;
use super::model::PullRequestData;
use super::sticky::{self, CommentUpdate, Mark};
use super::transport::{Method, Request, RequestError, encode_segment};
use super::{Client, Conclusion, MAX_COMMENT_BYTES, checks, labels};
use perfquilt_model::comment::{Comment, MeasurementStatus, PullRequestRef};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;

/// What to post besides the comment.
#[derive(Debug, Clone)]
pub struct Posting {
    /// Distinguishes several comments of perfquilt on one pull request.
    pub id: String,
    /// Whether to write a check run.
    pub check: bool,
    /// The prefix of the label `PREFIX: STATUS`; `None` for no label.
    pub label: Option<String>,
    /// Whether a regression makes the check run red.
    pub fail_on_regression: bool,
    /// Whether an inconclusive result makes the check run red.
    pub fail_on_inconclusive: bool,
}

impl Posting {
    /// Returns the check run's conclusion for a status.
    pub fn conclusion(&self, status: MeasurementStatus) -> Conclusion {
        Conclusion::of(status, self.fail_on_regression, self.fail_on_inconclusive)
    }

    /// Returns the maximum size of a comment in bytes, without its mark.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an invalid id.
    pub fn limit(&self) -> Result<usize> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        // Two hyphens would end the HTML comment that contains the mark.
        if self.id.is_empty()
            || self.id.len() > 100
            || !self.id.bytes().all(plain)
            || self.id.contains("--")
        {
            return Err(
                Error::usage(format!("`{}` is not a valid comment id", self.id))
                    .hint("letters, digits and single hyphens, for example `redis-quick`"),
            );
        }
        Ok(MAX_COMMENT_BYTES - 512)
    }
}

/// A comment to write for a pull request.
pub struct Draft<'a> {
    /// The subject, as far as it is known without asking GitHub.
    pub subject: &'a PullRequestRef,
    /// Writes the comment about the completed subject, in at most the given number of bytes.
    pub write: &'a dyn Fn(&PullRequestRef, usize) -> Comment,
}

/// The result of posting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Posted {
    /// The pull request's number.
    pub number: u64,
    /// The commit it is about.
    pub head: String,
    /// The comment's title.
    pub title: String,
    /// `faster`, `regression`, ….
    #[serde(rename = "standing")]
    pub status: String,
    /// The check run's conclusion.
    pub conclusion: &'static str,
    /// The comment.
    pub comment: CommentUpdate,
    /// The URL of the check run, if there is one.
    pub check_run: Option<String>,
    /// The label, if there is one.
    pub label: Option<String>,
}

/// A pull request's number, commits and state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Its number.
    pub number: u64,
    /// Its head commit.
    pub head: String,
    /// The last commit of its target branch.
    pub base: String,
    /// The name of its target branch.
    pub branch: String,
    /// Whether it is open.
    pub open: bool,
}

impl From<PullRequestData> for PullRequest {
    fn from(found: PullRequestData) -> Self {
        PullRequest {
            number: found.number,
            head: found.head.sha,
            base: found.base.sha,
            branch: found.base.name,
            open: found.state == "open",
        }
    }
}

/// Finds the pull request that `target` describes.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when `target` describes no pull request,
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when GitHub does not know it or does not answer.
pub fn find_pull_request(client: &Client, target: &Target) -> Result<PullRequest> {
    client.run(find(&client.github, target))
}

async fn find(github: &GitHub, target: &Target) -> Result<PullRequest> {
    if let Some(number) = target.number {
        let request = Request {
            purpose: "read the pull request",
            method: Method::Get,
            path: github.path(&format!("pulls/{number}")),
            body: None,
        };
        return match github.call::<PullRequestData>(&request).await {
            Ok(found) => Ok(found.into()),
            Err(RequestError::Refused(404 | 410, _)) => Err(Error::forge(format!(
                "there is no pull request {number} in {}, or the token may not see it",
                github.repository()
            ))),
            Err(failure) => Err(failure.into()),
        };
    }
    let (Some(from), Some(head)) = (&target.from, &target.head) else {
        return Err(Error::usage("no pull request is given")
            .hint("give `--pr NUMBER`; in a workflow for pull requests, perfquilt reads it from the event"));
    };
    let path = github.path(&format!("pulls?state=all&head={}", encode_segment(from)));
    let mut found: Vec<PullRequestData> = github.all("look for the pull request", &path).await?;
    // The branch may have newer commits, been used before, or have several pull requests.
    found.sort_by_key(|request| {
        (
            request.head.sha != *head,
            request.state != "open",
            std::cmp::Reverse(request.number),
        )
    });
    found
        .into_iter()
        .next()
        .map(PullRequest::from)
        .ok_or_else(|| {
            Error::forge(format!(
                "there is no pull request from {from} in {}",
                github.repository()
            ))
            .hint("was it removed, or its branch renamed?")
        })
}

/// Posts the comment of `draft`, and what `posting` requests besides, to the pull request. Updates existing
/// posts and never creates duplicates.
///
/// # Errors
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when the comment, check run or label cannot be written;
/// the others are written all the same. [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
pub fn post(
    client: &Client,
    posting: &Posting,
    found: &PullRequest,
    draft: &Draft<'_>,
    progress: &dyn Progress,
) -> Result<Posted> {
    let limit = posting.limit()?;
    let head = match draft.subject.head.as_str() {
        "" => found.head.clone(),
        head => head.to_owned(),
    };
    let subject = PullRequestRef {
        number: Some(found.number),
        base: found.base.clone(),
        moved_on: (found.head != head).then(|| found.head.clone()),
        head: head.clone(),
        ..draft.subject.clone()
    };
    let comment = (draft.write)(&subject, limit);
    let conclusion = posting.conclusion(comment.status);
    let mark = Mark {
        id: posting.id.clone(),
        head: head.clone(),
    };
    let github = &client.github;
    client.run(async {
        let number = found.number;
        // A failure of one does not prevent the others; the first failure is returned.
        let kept = sticky::update(github, number, &mark, &found.head, &comment.body).await;
        let outdated = kept.as_ref().is_ok_and(|kept| kept.action == "newer");
        let details = subject.run.as_deref();
        let check_run = if posting.check {
            checks::update(github, &head, &posting.id, &comment, conclusion, details).await
        } else {
            Ok(None)
        };
        // A label belongs to the pull request, so results of an older commit must not change it.
        let current = !outdated && found.head == head;
        let label = match posting.label.as_ref().filter(|_| current) {
            Some(prefix) => labels::update(github, number, prefix, comment.status)
                .await
                .map(Some),
            None => Ok(None),
        };
        match (kept, check_run, label) {
            (Ok(kept), Ok(check_run), Ok(label)) => Ok(Posted {
                number,
                head,
                title: comment.title.clone(),
                status: comment.status.to_string(),
                conclusion: conclusion.name(),
                comment: kept,
                check_run,
                label,
            }),
            (kept, check_run, label) => {
                if let Ok(kept) = &kept {
                    progress.note(&format!("comment {}: {}", kept.action, kept.url));
                }
                let errors = [kept.err(), check_run.err(), label.err()];
                let mut errors = errors.into_iter().flatten();
                let first = errors.next();
                errors.for_each(|error| progress.warn(&error.to_string()));
                Err(first.unwrap_or_else(|| Error::internal("nothing was posted")))
            }
        }
    })
}
