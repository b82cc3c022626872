//! GitHub as a forge.

use super::checks::CheckRunDraft;
use super::client::{Client, PAGE};
use super::event::Target;
use super::forge::{Forge, Publication};
use super::model::PullRequestData;
use super::post_options::{PostResult, PullRequest};
use super::sticky::{self, Mark};
use super::transport::{encode_segment, get, post, unless_gone};
use super::{Repository, checks, labels};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::process;
use serde_json::json;

/// The maximum size of a comment. GitHub counts characters; this program counts bytes, which are never fewer.
pub const MAX_COMMENT_BYTES: usize = 65_536;

impl Forge for Client {
    fn repository(&self) -> &Repository {
        Client::repository(self)
    }

    fn max_comment_bytes(&self) -> usize {
        MAX_COMMENT_BYTES
    }

    fn find(&self, target: &Target) -> Result<PullRequest> {
        if let Some(number) = target.number {
            let path = self.path(&format!("pulls/{number}"));
            let found = self.call::<PullRequestData>(&get("read the pull request", path));
            return unless_gone(found)?.map(Into::into).ok_or_else(|| {
                Error::pull_request(format!(
                    "there is no pull request {number} in {}, or the token may not see it",
                    self.repository()
                ))
            });
        }
        let Some(head) = &target.head else {
            return Err(Error::arguments("no pull request is given")
                .hint("give `--pr NUMBER`; in a workflow for pull requests, perfquilt reads it from the event"));
        };
        if let (Some(owner), Some(branch)) = (&target.owner, &target.branch)
            && let Some(found) = find_by_branch(self, &format!("{owner}:{branch}"), head)?
        {
            return Ok(found.into());
        }
        // The branch of a deleted fork is nobody's, but the pull request stays.
        let mut found = find_by_commit(self, head)?;
        found.retain(|request| request.may_be_from(target.owner.as_deref()));
        let of_branch =
            |request: &PullRequestData| target.branch.as_ref() == Some(&request.head.name);
        if found.iter().any(of_branch) {
            found.retain(of_branch);
        }
        if found.iter().any(|request| request.state == "open") {
            found.retain(|request| request.state == "open");
        }
        match found.as_slice() {
            [one] => Ok(one.clone().into()),
            [] => {
                let (from, hint) = match (&target.owner, &target.branch) {
                    (Some(owner), branch) => (
                        format!(
                            "from {owner}{} ",
                            branch
                                .as_ref()
                                .map(|name| format!(":{name}"))
                                .unwrap_or_default()
                        ),
                        "the fork may have been deleted, or the branch renamed, and the pull request has moved on",
                    ),
                    (None, _) => (
                        String::new(),
                        "the event names no fork, so it was deleted, and the pull request has moved on",
                    ),
                };
                Err(Error::pull_request(format!(
                    "there is no pull request {from}with the commit {head} in {}",
                    self.repository()
                ))
                .hint(format!("{hint}; `--pr NUMBER` names it")))
            }
            several => {
                let numbers: Vec<String> = several.iter().map(|of| of.number.to_string()).collect();
                Err(Error::pull_request(format!(
                    "the pull requests {} in {} have the commit {head}, and the event does not tell which was measured",
                    numbers.join(", "),
                    self.repository()
                ))
                .hint("`--pr NUMBER` names it"))
            }
        }
    }

    fn publish(
        &self,
        publication: &Publication<'_>,
        progress: &dyn Progress,
    ) -> Result<PostResult> {
        let &Publication {
            pull_request,
            head,
            comment,
            posting,
            run,
            began,
        } = publication;
        let number = pull_request.number;
        let conclusion = posting.conclusion(comment.status);
        let mark = Mark {
            id: posting.id.clone(),
            head: head.to_owned(),
            began: began.map(str::to_owned),
        };
        let draft = CheckRunDraft {
            head,
            id: &posting.id,
            comment,
            conclusion,
            details: run,
            began,
        };
        // A failure of one does not prevent the others; the first failure is returned.
        let kept = sticky::update(self, number, &mark, &pull_request.head, &comment.body);
        let outdated = kept.as_ref().is_ok_and(|kept| kept.action == "newer");
        let check_run = if posting.check {
            checks::update(self, &draft)
        } else {
            Ok(None)
        };
        // A label belongs to the pull request, so results of an older commit must not change it.
        let current = !outdated && pull_request.head == head;
        let label = match posting.label.as_ref().filter(|_| current) {
            Some(prefix) => labels::update(self, number, prefix, comment.status).map(Some),
            None => Ok(None),
        };
        match (kept, check_run, label) {
            (Ok(kept), Ok(check_run), Ok(label)) => Ok(PostResult {
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
                process::check_interrupted()?;
                let errors = [kept.err(), check_run.err(), label.err()];
                let mut errors = errors.into_iter().flatten();
                let first = errors.next();
                errors.for_each(|error| progress.warn(&error.to_string()));
                Err(first.unwrap_or_else(|| Error::internal("nothing was posted")))
            }
        }
    }

    fn react(&self, comment: u64, reaction: &str) -> Result<()> {
        let path = self.path(&format!("issues/comments/{comment}/reactions"));
        let request = post("react to the comment", path, json!({ "content": reaction }));
        // GitHub stores the same reaction only once.
        unless_gone(self.execute(&request.repeatable())).map(drop)
    }
}

impl PullRequestData {
    /// Returns whether its source may be a repository of `owner`, `None` for a deleted one.
    fn may_be_from(&self, owner: Option<&str>) -> bool {
        let known = self.head.label.split_once(':').zip(owner);
        known.is_none_or(|((own, _), owner)| own.eq_ignore_ascii_case(owner))
    }
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

/// Finds the pull request from the branch `from` (`owner:branch`), preferably one with the commit `head`.
fn find_by_branch(github: &Client, from: &str, head: &str) -> Result<Option<PullRequestData>> {
    let path = github.path(&format!("pulls?state=all&head={}", encode_segment(from)));
    let mut found: Vec<PullRequestData> = github.all("look for the pull request", &path)?;
    // The branch may have newer commits, been used before, or have several pull requests.
    found.sort_by_key(|request| rank(request, head));
    Ok(found.into_iter().next())
}

/// Finds the pull requests with the commit `head` among those that were updated last. (GitHub's list of the pull requests
/// of a commit does not have those of forks.)
fn find_by_commit(github: &Client, head: &str) -> Result<Vec<PullRequestData>> {
    /// The most pages, of a hundred pull requests each.
    const MAX_PAGES: usize = 20;
    let path = github.path("pulls?state=all&sort=updated&direction=desc");
    let mut found: Vec<PullRequestData> = Vec::new();
    for number in 1..=MAX_PAGES {
        let page: Vec<PullRequestData> = github.page("look for the pull request", &path, number)?;
        let last = page.len() < PAGE;
        found.extend(page.into_iter().filter(|request| request.head.sha == *head));
        if last {
            break;
        }
    }
    Ok(found)
}

/// Returns a key by which the best of several pull requests for the commit `head` comes first.
fn rank(request: &PullRequestData, head: &str) -> (bool, bool, std::cmp::Reverse<u64>) {
    (
        request.head.sha != *head,
        request.state != "open",
        std::cmp::Reverse(request.number),
    )
}
