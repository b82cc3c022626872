//! GitLab as a forge: merge requests are pull requests, and notes are comments.

mod model;
mod target;
mod webhook;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::client::{Client, Session};
use crate::credentials::Credentials;
use crate::forge::{CommitStatus, CreatedComment, Forge, ForgeComment, Label};
use crate::kind::ForgeKind;
use crate::post_options::{Conclusion, PullRequest};
use crate::protocol::Protocol;
use crate::refusal::{Refusal, RefusedResponse};
use crate::status::{self, WrittenStatus};
use crate::target::{Target, no_such_pull_request};
use crate::transport::{delete, encode_segment, get, post, put, unless_gone};
use crate::webhook::{Author, Delivery, DeliveryHead, Proof, Rejection};
use crate::{Repository, Secret};
use model::{Member, MergeRequest, Note, Status, User};
use perfquilt_model::error::{Error, Result};

/// The registration.
pub(crate) const KIND: ForgeKind = ForgeKind {
    name: "gitlab",
    title: "GitLab",
    job_variables: &["GITLAB_CI"],
    api_variables: &["GITLAB_API_URL", "CI_API_V4_URL"],
    public_api: Some("https://gitlab.com/api/v4"),
    token_variable: "GITLAB_TOKEN",
    credentials: |variable| {
        let missing = "set GITLAB_TOKEN to a token with the scope `api`, since a job's own CI_JOB_TOKEN cannot write \
                       comments; `--dry-run` needs none";
        Credentials::token(variable, "GitLab", &["GITLAB_TOKEN"], missing)
    },
    target: target::target,
    protocol: &PROTOCOL,
    authenticate: Session::of_token,
    has_groups: true,
    connect: |client| Box::new(GitLab(client)),
};

const PROTOCOL: Protocol = Protocol {
    name: "GitLab",
    token: ("private-token", ""),
    headers: &[("accept", "application/json")],
    limit: ("ratelimit-remaining", "ratelimit-reset"),
    page: ("per_page", 100),
    has_links: true,
    repository: |repository| format!("/projects/{}", encode_segment(&repository.to_string())),
    refusal,
    needed,
    permissions: "the scope `api` and the role Developer",
    no_api: "give the address of the API, which ends in /api/v4; or a proxy answered in its place",
    workflow_login: "project_1_bot",
};

fn refusal(response: &RefusedResponse<'_>) -> Refusal {
    match response.status {
        429 => Refusal::Limited,
        403 if response.has_retry_after => Refusal::Limited,
        403 if response.body.contains("archived") => Refusal::Archived,
        _ => Refusal::Other,
    }
}

/// Returns the scopes in the body of a response to a token that has too few.
fn needed(_headers: &HeaderMap, body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let scope = body["scope"].as_str()?;
    (body["error"] == "insufficient_scope").then(|| scope.replace(' ', " or "))
}

/// A connection to GitLab for one project.
struct GitLab(Client);

impl GitLab {
    fn notes(&self, number: u64) -> String {
        self.0.path(&format!("merge_requests/{number}/notes"))
    }

    fn note(&self, number: u64, id: u64) -> String {
        format!("{}/{id}", self.notes(number))
    }

    /// Returns the address of the project's pages.
    fn pages(&self) -> String {
        self.0.pages_of("/api/v4")
    }

    fn to_comment(&self, number: u64, note: Note) -> ForgeComment {
        ForgeComment {
            id: note.id,
            author: note.author.map(|author| author.username),
            body: note.body.unwrap_or_default(),
            url: format!(
                "{}/-/merge_requests/{number}#note_{}",
                self.pages(),
                note.id
            ),
        }
    }

    fn merge_request(&self, number: u64) -> Result<MergeRequest> {
        let path = self.0.path(&format!("merge_requests/{number}"));
        let found = self.0.call(&get("read the merge request", path));
        let missing = || no_such_pull_request(number, self.repository());
        unless_gone(found)?.ok_or_else(missing)
    }

    fn change_labels(&self, number: u64, purpose: &str, body: Value) -> Result<()> {
        let path = self.0.path(&format!("merge_requests/{number}"));
        Ok(self.0.execute(&put(purpose, path, body))?)
    }
}

impl Forge for GitLab {
    fn repository(&self) -> &Repository {
        self.0.repository()
    }

    fn git_url(&self) -> String {
        self.pages() + ".git"
    }

    fn max_comment_bytes(&self) -> usize {
        1_000_000
    }

    fn login(&self) -> Result<String> {
        self.0.login()
    }

    fn find(&self, target: &Target) -> Result<PullRequest> {
        let number = target.number()?;
        let found = self.merge_request(number)?;
        let head = found.sha.ok_or_else(|| {
            Error::forge_refused(format!("merge request {number} has no commit yet"))
        })?;
        Ok(PullRequest {
            number,
            head,
            base: found
                .diff_refs
                .and_then(|refs| refs.start_sha)
                .unwrap_or_default(),
            branch: found.target_branch,
            reference: format!("refs/merge-requests/{number}/head"),
            open: found.state == "opened",
        })
    }

    fn comments(&self, number: u64) -> Result<Vec<ForgeComment>> {
        let path = format!("{}?sort=asc&order_by=created_at", self.notes(number));
        let notes: Vec<Note> = self.0.all("read the comments", &path)?;
        let notes = notes.into_iter();
        Ok(notes.map(|note| self.to_comment(number, note)).collect())
    }

    fn comment(&self, number: u64, id: u64) -> Result<Option<ForgeComment>> {
        let request = get("read the comment", self.note(number, id));
        let found = unless_gone(self.0.call(&request))?;
        Ok(found.map(|note| self.to_comment(number, note)))
    }

    /// A line that begins with a slash may be a quick action, such as a merge.
    fn without_commands(&self, body: String) -> String {
        const ZERO_WIDTH: &str = "\u{200b}";
        let lines = body.split_inclusive('\n').flat_map(|line| {
            let is_action = line.trim_start().starts_with('/');
            [if is_action { ZERO_WIDTH } else { "" }, line]
        });
        lines.collect()
    }

    fn create_comment(&self, number: u64, body: &str, attempt: u32) -> Result<CreatedComment> {
        let path = self.notes(number);
        let request = post("write the comment", path, json!({ "body": body }));
        self.0
            .create(&request, attempt, |note| self.to_comment(number, note))
    }

    fn update_comment(&self, number: u64, id: u64, body: &str) -> Result<bool> {
        let path = self.note(number, id);
        let request = put("update the comment", path, json!({ "body": body }));
        Ok(unless_gone(self.0.execute(&request))?.is_some())
    }

    fn delete_comment(&self, number: u64, id: u64) -> Result<bool> {
        let request = delete("remove a second comment", self.note(number, id));
        Ok(unless_gone(self.0.execute(&request))?.is_some())
    }

    fn react(&self, number: u64, comment: u64, reaction: &str) -> Result<()> {
        let name = match reaction {
            "+1" => "thumbsup",
            "-1" => "thumbsdown",
            name => name,
        };
        let path = format!("{}/award_emoji", self.note(number, comment));
        let request = post("react to the comment", path, json!({ "name": name }));
        // The same award again is a 404, too.
        unless_gone(self.0.execute(&request.repeatable())).map(drop)
    }

    fn set_status(&self, status: &CommitStatus<'_>) -> Result<Option<String>> {
        let name = status::name(status.id);
        let (head, shown) = (encode_segment(status.head), encode_segment(&name));
        let path = format!("repository/commits/{head}/statuses?name={shown}&all=true");
        let found: Vec<Status> = self.0.all("read the statuses", &self.0.path(&path))?;
        let found = found.into_iter().filter(|found| found.name == name);
        let found = found.map(|found| WrittenStatus {
            id: found.id,
            state: found.status,
            description: found.description.unwrap_or_default(),
        });
        // A pipeline knows nothing between good and bad.
        let state = match status.conclusion {
            Conclusion::Success | Conclusion::Neutral => "success",
            Conclusion::Failure => "failed",
        };
        // A status belongs to a pipeline. Without one, GitLab would look for a branch with the commit, and finds none of a
        // fork.
        let request = self.merge_request(status.number)?;
        let pipeline = request.head_pipeline;
        let pipeline = pipeline.filter(|pipeline| pipeline.sha == status.head);
        let written = status::update(status, state, found.collect(), |description| {
            let mut body = json!({
                "state": state, "name": name, "description": description, "target_url": status.details,
            });
            match &pipeline {
                Some(pipeline) => body["pipeline_id"] = json!(pipeline.id),
                None => body["ref"] = json!(request.source_branch),
            }
            let path = self.0.path(&format!("statuses/{head}"));
            self.0
                .execute(&post("write the status", path, body).repeatable())
        })?;
        Ok(written.then(|| format!("{}/-/commit/{}", self.pages(), status.head)))
    }

    fn labels(&self, number: u64) -> Result<Vec<Label>> {
        let names = self.merge_request(number)?.labels.into_iter();
        Ok(names.map(|name| Label { id: 0, name }).collect())
    }

    fn add_label(&self, number: u64, name: &str) -> Result<()> {
        self.change_labels(number, "add the label", json!({ "add_labels": name }))
    }

    fn remove_label(&self, number: u64, label: &Label) -> Result<()> {
        let body = json!({ "remove_labels": label.name });
        self.change_labels(number, "remove a label", body)
    }

    fn look_up(&self, author: &Author) -> Result<Author> {
        let nobody = Author {
            association: Some(String::new()),
            ..author.clone()
        };
        let Some(id) = author.id else {
            return Ok(nobody);
        };
        let request = get("read the author", format!("/users/{id}"));
        let Some(user) = unless_gone(self.0.call::<User>(&request))? else {
            return Ok(nobody);
        };
        let path = self.0.path(&format!("members/all/{id}"));
        let member = self.0.call::<Member>(&get("read the author's role", path));
        let association = match unless_gone(member)?.map_or(0, |member| member.access_level) {
            50.. => "OWNER",
            // Developers and maintainers may push.
            30.. => "MEMBER",
            1.. => "COLLABORATOR",
            0 => "NONE",
        };
        Ok(Author {
            id: Some(id),
            login: Some(user.username),
            is_bot: user.bot,
            association: Some(association.to_owned()),
        })
    }

    fn delivery_head(&self, header: &dyn Fn(&str) -> Option<String>) -> Option<DeliveryHead> {
        Some(DeliveryHead {
            event: header("x-gitlab-event")?,
            id: header("idempotency-key").or_else(|| header("x-gitlab-event-uuid"))?,
            proof: Proof::Token(Secret::new(&header("x-gitlab-token")?)),
        })
    }

    fn parse_delivery(&self, event: &str, body: &[u8]) -> Result<Delivery, Rejection> {
        webhook::parse(event, body, self.repository())
    }
}
