//! GitHub as a forge.

use super::client::GitHub;
use super::event::Target;
use super::forge::{Forge, Publication};
use super::model::PullRequestData;
use super::posting::{Posted, PullRequest};
use super::sticky::{self, Mark};
use super::transport::{Method, Request, RequestError, encode_segment};
use super::{Client, Repository, checks, labels};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use serde_json::json;

/// The maximum size of a comment. GitHub counts characters; this program counts bytes, which are never fewer.
pub const MAX_COMMENT_BYTES: usize = 65_536;

impl Forge for Client {
    fn repository(&self) -> &Repository {
        self.github.repository()
    }

    fn max_comment_bytes(&self) -> usize {
        MAX_COMMENT_BYTES
    }

    fn find(&self, target: &Target) -> Result<PullRequest> {
        self.run(find(&self.github, target))
    }

    fn publish(&self, publication: &Publication<'_>, progress: &dyn Progress) -> Result<Posted> {
        publish(self, publication, progress)
    }

    fn react(&self, comment: u64, reaction: &str) -> Result<()> {
        self.run(async {
            let request = Request {
                purpose: "react to the comment",
                // GitHub stores the same reaction only once.
                method: Method::PostIdempotent,
                path: self
                    .github
                    .path(&format!("issues/comments/{comment}/reactions")),
                body: Some(json!({ "content": reaction })),
            };
            match self.github.execute(&request).await {
                Ok(()) | Err(RequestError::Refused(404 | 410, _)) => Ok(()),
                Err(failure) => Err(failure.into()),
            }
        })
    }
}

/// Writes the comment, the check run and the label.
fn publish(
    client: &Client,
    publication: &Publication<'_>,
    progress: &dyn Progress,
) -> Result<Posted> {
    let &Publication {
        pull_request,
        head,
        comment,
        posting,
        run,
    } = publication;
    let (github, number) = (&client.github, pull_request.number);
    let conclusion = posting.conclusion(comment.status);
    let mark = Mark {
        id: posting.id.clone(),
        head: head.to_owned(),
    };
    client.run(async {
        // A failure of one does not prevent the others; the first failure is returned.
        let kept = sticky::update(github, number, &mark, &pull_request.head, &comment.body).await;
        let outdated = kept.as_ref().is_ok_and(|kept| kept.action == "newer");
        let check_run = if posting.check {
            checks::update(github, head, &posting.id, comment, conclusion, run).await
        } else {
            Ok(None)
        };
        // A label belongs to the pull request, so results of an older commit must not change it.
        let current = !outdated && pull_request.head == head;
        let label = match posting.label.as_ref().filter(|_| current) {
            Some(prefix) => labels::update(github, number, prefix, comment.status)
                .await
                .map(Some),
            None => Ok(None),
        };
        match (kept, check_run, label) {
            (Ok(kept), Ok(check_run), Ok(label)) => Ok(Posted {
                number,
                head: head.to_owned(),
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

/// Finds the pull request that `target` describes on GitHub.
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
