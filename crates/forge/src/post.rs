//! Posting: comment, check run and label in a row.

use serde::Serialize;

use super::client::{Call, Fault, Method, Shared, part};
use super::event::Target;
use super::model::PullRequest;
use super::sticky::{self, Kept, Mark};
use super::{Client, Conclusion, LONGEST_COMMENT, checks, labels};
use perfquilt_model::comment::{Comment, Standing, Subject};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;

/// What is to be posted beside the comment, and how.
#[derive(Debug, Clone)]
pub struct Posting {
    /// Tells several comments of this program on one pull request apart.
    pub id: String,
    /// Write a check run.
    pub check: bool,
    /// Set the label `PREFIX: STANDING`.
    pub label: Option<String>,
    /// A regression makes the check run red.
    pub fail_on_regression: bool,
    /// An open question does.
    pub fail_on_inconclusive: bool,
}

impl Posting {
    /// What a standing concludes.
    pub fn conclusion(&self, standing: Standing) -> Conclusion {
        Conclusion::of(standing, self.fail_on_regression, self.fail_on_inconclusive)
    }

    /// Bytes a comment may have, beside the mark it is found again by.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an id that is none.
    pub fn limit(&self) -> Result<usize> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        // Two hyphens would end the mark.
        if self.id.is_empty()
            || self.id.len() > 100
            || !self.id.bytes().all(plain)
            || self.id.contains("--")
        {
            return Err(Error::usage(format!("`{}` is no id of a comment", self.id))
                .hint("letters, digits and single hyphens, for example `redis-quick`"));
        }
        Ok(LONGEST_COMMENT - 512)
    }
}

/// A comment to be written for a pull request.
pub struct Draft<'a> {
    /// What it is about, as far as that is known before the forge is asked.
    pub subject: &'a Subject,
    /// Writes it about the whole subject, in at most so many bytes.
    pub write: &'a dyn Fn(&Subject, usize) -> Comment,
}

/// What was posted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Posted {
    /// The pull request's number.
    pub number: u64,
    /// The commit it is about.
    pub head: String,
    /// The title.
    pub title: String,
    /// `faster`, `regression`, ….
    pub standing: String,
    /// What the check run concludes.
    pub conclusion: &'static str,
    /// The comment.
    pub comment: Kept,
    /// The page of the check run, if there is one.
    pub check_run: Option<String>,
    /// The label, if there is one.
    pub label: Option<String>,
}

/// A pull request's number and commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub number: u64,
    /// Its last commit.
    pub newest: String,
    /// The last commit of the branch it is to.
    pub base: String,
    /// The name of that branch.
    pub branch: String,
    /// Whether it is open.
    pub open: bool,
}

impl From<PullRequest> for Found {
    fn from(found: PullRequest) -> Self {
        Found {
            number: found.number,
            newest: found.head.sha,
            base: found.base.sha,
            branch: found.base.name,
            open: found.state == "open",
        }
    }
}

/// Asks GitHub for the pull request that `target` means.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when `target` names none,
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when there is no such pull request or no answer.
pub fn find_pull_request(client: &Client, target: &Target) -> Result<Found> {
    client.run(find(&client.shared, target))
}

async fn find(shared: &Shared, target: &Target) -> Result<Found> {
    if let Some(number) = target.number {
        let call = Call {
            what: "read the pull request",
            method: Method::Get,
            path: shared.path(&format!("pulls/{number}")),
            body: None,
        };
        return match shared.call::<PullRequest>(&call).await {
            Ok(found) => Ok(found.into()),
            Err(Fault::Refused(404 | 410, _)) => Err(Error::forge(format!(
                "there is no pull request {number} in {}, or the token may not see it",
                shared.repository
            ))),
            Err(fault) => Err(fault.into()),
        };
    }
    let (Some(from), Some(head)) = (&target.from, &target.head) else {
        return Err(Error::usage("which pull request?")
            .hint("`--pr NUMBER`; in a workflow the event tells, if it is of a pull request"));
    };
    let path = shared.path(&format!("pulls?state=all&head={}", part(from)));
    let mut found: Vec<PullRequest> = shared.all("look for the pull request", &path).await?;
    // The branch may have moved on, been used before, or have several pull requests.
    found.sort_by_key(|request| {
        (
            request.head.sha != *head,
            request.state != "open",
            std::cmp::Reverse(request.number),
        )
    });
    found.into_iter().next().map(Found::from).ok_or_else(|| {
        Error::forge(format!(
            "there is no pull request from {from} in {}",
            shared.repository
        ))
        .hint("was it removed, or its branch renamed?")
    })
}

/// Posts the comment of `draft`, and what `posting` asks for beside it, to the pull request.
/// Whatever is there already is brought up to date; nothing is ever there twice.
///
/// # Errors
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when the comment cannot be written, or what was asked for
/// beside it, after everything that can be written is;
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
pub fn post(
    client: &Client,
    posting: &Posting,
    found: &Found,
    draft: &Draft<'_>,
    progress: &dyn Progress,
) -> Result<Posted> {
    let limit = posting.limit()?;
    let head = match draft.subject.head.as_str() {
        "" => found.newest.clone(),
        head => head.to_owned(),
    };
    let subject = Subject {
        number: Some(found.number),
        base: found.base.clone(),
        moved_on: (found.newest != head).then(|| found.newest.clone()),
        head: head.clone(),
        ..draft.subject.clone()
    };
    let comment = (draft.write)(&subject, limit);
    let conclusion = posting.conclusion(comment.standing);
    let mark = Mark {
        id: posting.id.clone(),
        head: head.clone(),
    };
    let shared = &client.shared;
    client.run(async {
        let number = found.number;
        // All that can be written is written; the first thing that cannot is the error.
        let kept = sticky::keep(shared, number, &mark, &found.newest, &comment.body).await;
        let outdated = kept.as_ref().is_ok_and(|kept| kept.action == "newer");
        let details = subject.run.as_deref();
        let check_run = if posting.check {
            checks::keep(shared, &head, &posting.id, &comment, conclusion, details)
                .await
                .map(Some)
        } else {
            Ok(None)
        };
        // A label is of the pull request, not of a commit.
        let current = !outdated && found.newest == head;
        let label = match posting.label.as_ref().filter(|_| current) {
            Some(prefix) => labels::keep(shared, number, prefix, comment.standing)
                .await
                .map(Some),
            None => Ok(None),
        };
        match (kept, check_run, label) {
            (Ok(kept), Ok(check_run), Ok(label)) => Ok(Posted {
                number,
                head,
                title: comment.title.clone(),
                standing: comment.standing.to_string(),
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
