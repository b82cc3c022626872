//! Forgejo and Gitea as forges. Comments, reactions, events and hooks are as GitHub has them; labels are known by their
//! ids, and there are statuses instead of check runs.

mod model;

use http::HeaderMap;
use serde_json::json;

use crate::client::{Client, Session};
use crate::credentials::Credentials;
use crate::forge::{CommitStatus, CreatedComment, Forge, ForgeComment, Label};
use crate::github;
use crate::kind::ForgeKind;
use crate::post_options::{Conclusion, PullRequest};
use crate::protocol::Protocol;
use crate::refusal::{Problem, Refusal, RefusedResponse};
use crate::status::{self, WrittenStatus};
use crate::target::Target;
use crate::transport::{RequestError, encode_segment, get, post, unless_gone};
use crate::webhook::{Author, Delivery, DeliveryHead, Proof, Rejection, parse_body};
use crate::{MAX_COMMENT_BYTES, Repository};
use model::{Permission, Status};
use perfquilt_model::error::Result;

/// The registration.
pub(crate) const KIND: ForgeKind = ForgeKind {
    name: "forgejo",
    title: "Forgejo",
    job_variables: &["FORGEJO_ACTIONS", "GITEA_ACTIONS"],
    api_variables: &["FORGEJO_API_URL", "GITHUB_API_URL"],
    public_api: None,
    token_variable: "FORGEJO_TOKEN",
    credentials: |variable| {
        let names = ["FORGEJO_TOKEN", "GITEA_TOKEN", "GITHUB_TOKEN"];
        let missing = "set FORGEJO_TOKEN; `--dry-run` needs none";
        Credentials::token(variable, "Forgejo", &names, missing)
    },
    target: github::target,
    protocol: &PROTOCOL,
    authenticate: Session::of_token,
    has_groups: false,
    connect: |client| Box::new(Forgejo(client)),
};

const PROTOCOL: Protocol = Protocol {
    name: "Forgejo",
    token: ("authorization", "token "),
    headers: &[("accept", "application/json")],
    limit: ("x-ratelimit-remaining", "x-ratelimit-reset"),
    page: ("limit", 50),
    has_links: true,
    repository: |repository| format!("/repos/{repository}"),
    refusal,
    needed,
    permissions: "`write:issue`, `write:repository` and `read:user`",
    no_api: "give the address of the API, which ends in /api/v1; or a proxy answered in its place",
    workflow_login: "forgejo-actions",
};

fn refusal(response: &RefusedResponse<'_>) -> Refusal {
    match response.status {
        429 => Refusal::Limited,
        423 => Refusal::Archived,
        403 if response.body.contains("locked issue") => Refusal::Locked,
        403 if response.has_retry_after => Refusal::Limited,
        _ => Refusal::Other,
    }
}

/// Returns the scopes in the message to a token that has too few: `… required scope(s): [write:issue]`.
fn needed(_headers: &HeaderMap, body: &str) -> Option<String> {
    let said = serde_json::from_str::<Problem>(body).ok()?.text();
    let (_, scopes) = said.split_once("required scope(s)")?;
    let (_, scopes) = scopes.split_once('[')?;
    let (scopes, _) = scopes.split_once(']')?;
    Some(scopes.replace(' ', " or "))
}

/// A connection to Forgejo or Gitea for one repository.
struct Forgejo(Client);

impl Forgejo {
    /// Returns the address of the repository's pages.
    fn pages(&self) -> String {
        self.0.pages_of("/api/v1")
    }

    /// Returns the id of the repository's label with this name, which it creates if there is none.
    fn label_id(&self, name: &str) -> Result<u64> {
        let path = self.0.path("labels");
        let labels: Vec<Label> = self.0.all("read the repository's labels", &path)?;
        let found = labels
            .into_iter()
            .find(|label| label.name.eq_ignore_ascii_case(name));
        if let Some(found) = found {
            return Ok(found.id);
        }
        let body = json!({ "name": name, "color": "#ededed" });
        let made: Label = self.0.call(&post("create the label", path, body))?;
        Ok(made.id)
    }
}

impl Forge for Forgejo {
    fn repository(&self) -> &Repository {
        self.0.repository()
    }

    fn git_url(&self) -> String {
        self.pages() + ".git"
    }

    fn max_comment_bytes(&self) -> usize {
        MAX_COMMENT_BYTES
    }

    fn login(&self) -> Result<String> {
        self.0.login()
    }

    fn find(&self, target: &Target) -> Result<PullRequest> {
        github::pull_request(&self.0, target.number()?)
    }

    fn comments(&self, number: u64) -> Result<Vec<ForgeComment>> {
        github::comments(&self.0, number)
    }

    fn comment(&self, _number: u64, id: u64) -> Result<Option<ForgeComment>> {
        github::comment(&self.0, id)
    }

    fn create_comment(&self, number: u64, body: &str, attempt: u32) -> Result<CreatedComment> {
        github::create_comment(&self.0, number, body, attempt)
    }

    fn update_comment(&self, _number: u64, id: u64, body: &str) -> Result<bool> {
        github::update_comment(&self.0, id, body)
    }

    fn delete_comment(&self, _number: u64, id: u64) -> Result<bool> {
        github::delete_comment(&self.0, id)
    }

    fn react(&self, _number: u64, comment: u64, reaction: &str) -> Result<()> {
        github::react(&self.0, comment, reaction)
    }

    fn set_status(&self, status: &CommitStatus<'_>) -> Result<Option<String>> {
        let name = status::name(status.id);
        let head = encode_segment(status.head);
        let path = self.0.path(&format!("commits/{head}/statuses"));
        let found: Vec<Status> = self.0.all("read the statuses", &path)?;
        let found = found.into_iter().filter(|found| found.context == name);
        let found = found.map(|found| WrittenStatus {
            id: found.id,
            state: found.status,
            description: found.description.unwrap_or_default(),
        });
        // Merge rules take a warning for a failure.
        let state = match status.conclusion {
            Conclusion::Success | Conclusion::Neutral => "success",
            Conclusion::Failure => "failure",
        };
        let written = status::update(status, state, found.collect(), |description| {
            let body = json!({
                "state": state, "context": name, "description": description,
                "target_url": status.details.unwrap_or_default(),
            });
            let path = self.0.path(&format!("statuses/{head}"));
            self.0
                .execute(&post("write the status", path, body).repeatable())
        })?;
        Ok(written.then(|| format!("{}/commit/{}", self.pages(), status.head)))
    }

    fn labels(&self, number: u64) -> Result<Vec<Label>> {
        github::labels(&self.0, number)
    }

    fn add_label(&self, number: u64, name: &str) -> Result<()> {
        let body = json!({ "labels": [self.label_id(name)?] });
        let path = self.0.path(&format!("issues/{number}/labels"));
        Ok(self
            .0
            .execute(&post("add the label", path, body).repeatable())?)
    }

    fn remove_label(&self, number: u64, label: &Label) -> Result<()> {
        github::remove_label(&self.0, number, &label.id.to_string())
    }

    fn look_up(&self, author: &Author) -> Result<Author> {
        let permission = match &author.login {
            None => None,
            Some(login) => {
                let path = format!("collaborators/{}/permission", encode_segment(login));
                let request = get("read the author's permission", self.0.path(&path));
                let found = match self.0.call::<Permission>(&request) {
                    Err(RequestError::Refused(403, _, error)) => {
                        return Err(error.hint(
                            "only an administrator of the repository may read it: make the token's account one, \
                             or name the people in `users` of [commands]",
                        ));
                    }
                    found => unless_gone(found)?,
                };
                found.map(|found| found.permission)
            }
        };
        let association = match permission.as_deref() {
            Some("owner" | "admin") => "OWNER",
            Some("write") => "MEMBER",
            // Everybody may read a public repository.
            _ => "NONE",
        };
        Ok(Author {
            association: Some(association.to_owned()),
            ..author.clone()
        })
    }

    fn delivery_head(&self, header: &dyn Fn(&str) -> Option<String>) -> Option<DeliveryHead> {
        let named = |name: &str| {
            let names = [format!("x-forgejo-{name}"), format!("x-gitea-{name}")];
            names.iter().find_map(|name| header(name))
        };
        Some(DeliveryHead {
            event: named("event")?,
            id: named("delivery")?,
            proof: Proof::Signature(format!("sha256={}", named("signature")?)),
        })
    }

    fn parse_delivery(&self, event: &str, body: &[u8]) -> Result<Delivery, Rejection> {
        let repository = self.repository();
        match event {
            "pull_request" => {
                let body = parse_body(body, repository, github::Subject::name)?;
                github::pull_request_changed(body).map(Delivery::PullRequest)
            }
            "issue_comment" => {
                let body = parse_body(body, repository, github::Subject::name)?;
                Ok(Delivery::Comment(github::commented(body)))
            }
            _ => Err(Rejection::OtherEvent),
        }
    }
}
