//! GitHub as a forge.

mod auth;
mod checks;
mod event;
mod jwt;
mod model;
mod refusal;
mod session;
mod webhook;

use http::HeaderMap;
use serde_json::json;

use crate::client::{Client, Session};
use crate::exchange::header;
use crate::forge::{CommitStatus, CreatedComment, Forge, ForgeComment, Label};
use crate::kind::ForgeKind;
use crate::post_options::PullRequest;
use crate::protocol::Protocol;
use crate::target::{Target, no_such_pull_request};
use crate::transport::{Transport, delete, encode_segment, get, patch, post, unless_gone};
use crate::webhook::{Delivery, DeliveryHead, Proof, Rejection};
use crate::{Credentials, MAX_COMMENT_BYTES, Repository};
pub(crate) use event::target;
use model::{Comment, PullRequestData};
use perfquilt_model::error::{Error, Result};
pub(crate) use webhook::{Subject, commented, pull_request_changed};

/// The registration.
pub(crate) const KIND: ForgeKind = ForgeKind {
    name: "github",
    title: "GitHub",
    job_variables: &["GITHUB_ACTIONS"],
    api_variables: &["GITHUB_API_URL"],
    public_api: Some("https://api.github.com"),
    token_variable: "GITHUB_TOKEN",
    credentials: auth::credentials,
    target,
    protocol: &PROTOCOL,
    authenticate,
    has_groups: false,
    connect: |client| Box::new(GitHub(client)),
};

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "GitHub",
    token: ("authorization", "Bearer "),
    headers: &[
        ("accept", "application/vnd.github+json"),
        ("x-github-api-version", "2022-11-28"),
    ],
    limit: ("x-ratelimit-remaining", "x-ratelimit-reset"),
    page: ("per_page", 100),
    has_links: false,
    repository: |repository| format!("/repos/{repository}"),
    refusal: refusal::refusal,
    needed,
    permissions: "`pull-requests: write` and `checks: write`",
    no_api: "give the address of the API, that of GitHub Enterprise ends in /api/v3; or a proxy answered in its place",
    workflow_login: "github-actions[bot]",
};

fn authenticate(transport: &Transport, credentials: &Credentials) -> Result<Session> {
    match credentials {
        Credentials::App { id, key } => session::from_app(transport, id, key),
        Credentials::Token { .. } => Session::of_token(transport, credentials),
    }
}

/// A connection to GitHub for one repository. GitHub counts a comment's characters; this program counts bytes, which are
/// never fewer.
struct GitHub(Client);

impl Forge for GitHub {
    fn repository(&self) -> &Repository {
        self.0.repository()
    }

    fn git_url(&self) -> String {
        format!("https://github.com/{}.git", self.repository())
    }

    fn max_comment_bytes(&self) -> usize {
        MAX_COMMENT_BYTES
    }

    fn login(&self) -> Result<String> {
        self.0.login()
    }

    fn find(&self, target: &Target) -> Result<PullRequest> {
        let Some(head) = target.head.as_ref().filter(|_| target.number.is_none()) else {
            return pull_request(&self.0, target.number()?);
        };
        if let (Some(owner), Some(branch)) = (&target.owner, &target.branch)
            && let Some(found) = find_by_branch(&self.0, &format!("{owner}:{branch}"), head)?
        {
            return Ok(found.into());
        }
        // The branch of a deleted fork is nobody's, but the pull request stays.
        let mut found = find_by_commit(&self.0, head)?;
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

    fn comments(&self, number: u64) -> Result<Vec<ForgeComment>> {
        comments(&self.0, number)
    }

    fn comment(&self, _number: u64, id: u64) -> Result<Option<ForgeComment>> {
        comment(&self.0, id)
    }

    fn create_comment(&self, number: u64, body: &str, attempt: u32) -> Result<CreatedComment> {
        create_comment(&self.0, number, body, attempt)
    }

    fn update_comment(&self, _number: u64, id: u64, body: &str) -> Result<bool> {
        update_comment(&self.0, id, body)
    }

    fn delete_comment(&self, _number: u64, id: u64) -> Result<bool> {
        delete_comment(&self.0, id)
    }

    fn react(&self, _number: u64, comment: u64, reaction: &str) -> Result<()> {
        react(&self.0, comment, reaction)
    }

    fn may_set_status(&self) -> bool {
        // Only Apps and workflows may write check runs.
        matches!(self.0.credentials, Credentials::App { .. })
    }

    fn status_name(&self) -> &'static str {
        "check run"
    }

    fn set_status(&self, status: &CommitStatus<'_>) -> Result<Option<String>> {
        checks::update(&self.0, status)
    }

    fn labels(&self, number: u64) -> Result<Vec<Label>> {
        labels(&self.0, number)
    }

    fn add_label(&self, number: u64, name: &str) -> Result<()> {
        let path = self.0.path(&format!("issues/{number}/labels"));
        let request = post("add the label", path, json!({ "labels": [name] }));
        Ok(self.0.execute(&request.repeatable())?)
    }

    fn remove_label(&self, number: u64, label: &Label) -> Result<()> {
        remove_label(&self.0, number, &label.name)
    }

    fn delivery_head(&self, header: &dyn Fn(&str) -> Option<String>) -> Option<DeliveryHead> {
        Some(DeliveryHead {
            event: header("x-github-event")?,
            id: header("x-github-delivery")?,
            proof: Proof::Signature(header("x-hub-signature-256")?),
        })
    }

    fn parse_delivery(&self, event: &str, body: &[u8]) -> Result<Delivery, Rejection> {
        webhook::parse(event, body, self.repository())
    }
}

// What follows is also the interface of forges that imitate this one.

/// Returns the pull request with this number.
pub(crate) fn pull_request(client: &Client, number: u64) -> Result<PullRequest> {
    let path = client.path(&format!("pulls/{number}"));
    let found = client.call::<PullRequestData>(&get("read the pull request", path));
    let missing = || no_such_pull_request(number, client.repository());
    unless_gone(found)?.map(Into::into).ok_or_else(missing)
}

pub(crate) fn comments(client: &Client, number: u64) -> Result<Vec<ForgeComment>> {
    let path = client.path(&format!("issues/{number}/comments"));
    let comments: Vec<Comment> = client.all("read the comments", &path)?;
    Ok(comments.into_iter().map(Into::into).collect())
}

pub(crate) fn comment(client: &Client, id: u64) -> Result<Option<ForgeComment>> {
    let request = get("read the comment", comment_path(client, id));
    let found = unless_gone(client.call::<Comment>(&request))?;
    Ok(found.map(Into::into))
}

fn comment_path(client: &Client, id: u64) -> String {
    client.path(&format!("issues/comments/{id}"))
}

pub(crate) fn create_comment(
    client: &Client,
    number: u64,
    body: &str,
    attempt: u32,
) -> Result<CreatedComment> {
    let path = client.path(&format!("issues/{number}/comments"));
    let request = post("write the comment", path, json!({ "body": body }));
    client.create(&request, attempt, |comment: Comment| comment.into())
}

pub(crate) fn update_comment(client: &Client, id: u64, body: &str) -> Result<bool> {
    let path = comment_path(client, id);
    let request = patch("update the comment", path, json!({ "body": body }));
    Ok(unless_gone(client.execute(&request))?.is_some())
}

pub(crate) fn delete_comment(client: &Client, id: u64) -> Result<bool> {
    let request = delete("remove a second comment", comment_path(client, id));
    Ok(unless_gone(client.execute(&request))?.is_some())
}

pub(crate) fn react(client: &Client, comment: u64, reaction: &str) -> Result<()> {
    let path = format!("{}/reactions", comment_path(client, comment));
    let request = post("react to the comment", path, json!({ "content": reaction }));
    // The same reaction is stored only once.
    unless_gone(client.execute(&request.repeatable())).map(drop)
}

pub(crate) fn labels(client: &Client, number: u64) -> Result<Vec<Label>> {
    let path = client.path(&format!("issues/{number}/labels"));
    Ok(client.all("read the labels", &path)?)
}

/// Removes the label that `label`, its name or id, stands for in paths.
pub(crate) fn remove_label(client: &Client, number: u64, label: &str) -> Result<()> {
    let path = client.path(&format!("issues/{number}/labels/{}", encode_segment(label)));
    unless_gone(client.execute(&delete("remove a label", path))).map(drop)
}

impl From<Comment> for ForgeComment {
    fn from(found: Comment) -> Self {
        ForgeComment {
            id: found.id,
            author: found.user.map(|user| user.login),
            body: found.body.unwrap_or_default(),
            url: found.html_url,
        }
    }
}

/// Returns the permissions of a fine-grained token or an App, or the scopes of a classic token, that the request needs
/// (<https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api>).
fn needed(headers: &HeaderMap, _body: &str) -> Option<String> {
    let header = |name: &str| header(headers, name);
    let words = |name: &str| {
        let words = header(name).into_iter().flat_map(|text| text.split(','));
        words
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
    };
    if let Some(permissions) = header("x-accepted-github-permissions") {
        return Some(permissions.replace('=', ": "));
    }
    let (given, accepted) = (words("x-oauth-scopes"), words("x-accepted-oauth-scopes"));
    let lacks = !accepted.is_empty() && !accepted.iter().any(|scope| given.contains(scope));
    lacks.then(|| accepted.join(" or "))
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
            reference: format!("refs/pull/{}/head", found.number),
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
    let mut found = Vec::new();
    github.pages(
        "look for the pull request",
        &path,
        MAX_PAGES,
        |page: Vec<PullRequestData>| {
            let count = page.len();
            found.extend(page.into_iter().filter(|request| request.head.sha == *head));
            count
        },
    )?;
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
