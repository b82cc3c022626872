//! GitHub's webhook deliveries.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::model::{Branch, RepositoryName, User};
use crate::webhook::{
    Author, Change, CommentDelivery, Delivery, PullRequestDelivery, Rejection, head, parse_body,
};
use crate::{Repository, is_commit};

/// A body, as far as it tells its repository.
#[derive(Deserialize)]
pub(crate) struct Subject {
    repository: Option<RepositoryName>,
}

impl Subject {
    pub(crate) fn name(self) -> Option<String> {
        self.repository.map(|found| found.full_name)
    }
}

/// A body of the event `pull_request`.
#[derive(Deserialize)]
pub(crate) struct PullRequestBody {
    action: Option<String>,
    pull_request: ChangedPullRequest,
    sender: Option<User>,
    before: Option<String>,
}

/// A body of the event `issue_comment`.
#[derive(Deserialize)]
pub(crate) struct CommentBody {
    action: Option<String>,
    issue: CommentedIssue,
    comment: ChangedComment,
}

#[derive(Deserialize)]
struct ChangedPullRequest {
    number: u64,
    #[serde(default)]
    draft: bool,
    head: Branch,
    user: Option<User>,
    author_association: Option<String>,
}

/// The issue or pull request that a comment belongs to.
#[derive(Deserialize)]
struct CommentedIssue {
    number: u64,
    state: String,
    pull_request: Option<IgnoredAny>,
    user: Option<User>,
    author_association: Option<String>,
}

#[derive(Deserialize)]
struct ChangedComment {
    id: u64,
    body: Option<String>,
    user: Option<User>,
    author_association: Option<String>,
}

fn author(user: Option<User>, association: Option<String>) -> Author {
    let is_bot = user
        .as_ref()
        .is_some_and(|user| user.kind.as_deref() == Some("Bot"));
    Author {
        id: None,
        login: user.map(|user| user.login),
        is_bot,
        association,
    }
}

/// Parses the delivery of `event` (the header `X-GitHub-Event`) with this body, for `repository`.
pub(super) fn parse(
    event: &str,
    body: &[u8],
    repository: &Repository,
) -> Result<Delivery, Rejection> {
    match event {
        "pull_request" => {
            let body: PullRequestBody = parse_body(body, repository, Subject::name)?;
            told(&body.pull_request.author_association)?;
            let mut delivery = pull_request_changed(body)?;
            // GitHub tells the association of the pull request's author, and nobody else's.
            delivery.sender.association = if delivery.sender.is(&delivery.author) {
                delivery.author.association.clone()
            } else {
                Some(String::new())
            };
            Ok(Delivery::PullRequest(delivery))
        }
        "issue_comment" => {
            let body: CommentBody = parse_body(body, repository, Subject::name)?;
            told(&body.issue.author_association)?;
            told(&body.comment.author_association)?;
            Ok(Delivery::Comment(commented(body)))
        }
        _ => Err(Rejection::OtherEvent),
    }
}

/// Checks that a body has an association, without which nobody's permissions are known.
fn told(association: &Option<String>) -> Result<(), Rejection> {
    let missing = || Rejection::Malformed("missing field `author_association`".to_owned());
    association.as_ref().map(drop).ok_or_else(missing)
}

/// Returns what the body of a changed pull request tells. Its sender has no association.
pub(crate) fn pull_request_changed(
    body: PullRequestBody,
) -> Result<PullRequestDelivery, Rejection> {
    let request = body.pull_request;
    Ok(PullRequestDelivery {
        change: match body.action.as_deref() {
            Some("opened" | "reopened" | "ready_for_review") => Change::Opened,
            Some("synchronize" | "synchronized") => Change::Pushed {
                before: body.before.filter(|before| is_commit(before)),
            },
            Some("closed") => Change::Closed,
            _ => Change::Other,
        },
        number: request.number,
        draft: request.draft,
        head: head(&request.head.sha)?,
        author: author(request.user, request.author_association),
        sender: author(body.sender, None),
    })
}

/// Returns what the body of a comment tells.
pub(crate) fn commented(body: CommentBody) -> CommentDelivery {
    let CommentBody {
        action,
        issue,
        comment,
    } = body;
    CommentDelivery {
        is_new: action.as_deref() == Some("created"),
        on_pull_request: issue.pull_request.is_some(),
        number: issue.number,
        is_open: issue.state == "open",
        pull_request_author: author(issue.user, issue.author_association),
        comment: comment.id,
        text: comment.body.unwrap_or_default(),
        author: author(comment.user, comment.author_association),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const HEAD: &str = "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432";

    fn of(event: &str, body: &Value) -> Result<Delivery, Rejection> {
        parse(
            event,
            body.to_string().as_bytes(),
            &"acme/series".parse().unwrap(),
        )
    }

    fn pull_request() -> Value {
        json!({
            "action": "opened",
            "repository": { "full_name": "Acme/series" },
            "pull_request": {
                "number": 7, "head": { "sha": HEAD }, "author_association": "OWNER",
                "user": { "login": "dependabot[bot]", "type": "Bot" },
            },
        })
    }

    #[test]
    fn pull_requests() {
        let Ok(Delivery::PullRequest(delivery)) = of("pull_request", &pull_request()) else {
            panic!("not accepted");
        };
        assert_eq!(delivery.change, Change::Opened);
        assert_eq!(delivery.head, HEAD);
        assert!(!delivery.draft);
        let author = Author {
            id: None,
            login: Some("dependabot[bot]".into()),
            is_bot: true,
            association: Some("OWNER".into()),
        };
        assert_eq!(delivery.author, author);
    }

    #[test]
    fn only_the_author_has_an_association() {
        let sender = |login: Value| {
            let mut body = pull_request();
            body["pull_request"]["user"] = json!({ "login": "Alice", "type": "User" });
            body["sender"] = login;
            let Ok(Delivery::PullRequest(delivery)) = of("pull_request", &body) else {
                panic!("not accepted");
            };
            (delivery.sender.login, delivery.sender.association.unwrap())
        };
        let user = |login: &str| sender(json!({ "login": login, "type": "User" }));
        assert_eq!(user("alice"), (Some("alice".into()), "OWNER".into()));
        assert_eq!(user("mallory"), (Some("mallory".into()), String::new()));
        assert_eq!(sender(json!(null)), (None, String::new()));
    }

    #[test]
    fn the_author_of_a_comment_may_be_gone() {
        let body = json!({
            "action": "a new one",
            "repository": { "full_name": "acme/series" },
            "issue": { "number": 7, "state": "open", "pull_request": null, "user": null, "author_association": "NONE" },
            "comment": { "id": 9, "body": null, "user": null, "author_association": "A_NEW_ONE" },
        });
        let Ok(Delivery::Comment(delivery)) = of("issue_comment", &body) else {
            panic!("not accepted");
        };
        assert!(delivery.is_open && !delivery.on_pull_request && !delivery.is_new);
        let author = Author {
            association: Some("A_NEW_ONE".into()),
            ..Author::default()
        };
        assert_eq!(delivery.author, author);
    }

    #[test]
    fn others_are_rejected() {
        let other = |change: &dyn Fn(&mut Value)| {
            let mut body = pull_request();
            change(&mut body);
            of("pull_request", &body)
        };
        assert_eq!(of("ping", &json!({})), Err(Rejection::OtherEvent));
        let elsewhere = json!({ "repository": { "full_name": "acme/other" } });
        for event in ["pull_request", "issue_comment"] {
            assert_eq!(of(event, &elsewhere), Err(Rejection::OtherRepository));
            assert_eq!(of(event, &json!({})), Err(Rejection::OtherRepository));
        }
        let malformed = [
            other(&|body| body["pull_request"] = json!(null)),
            other(&|body| body["pull_request"]["head"]["sha"] = "--upload-pack".into()),
            other(&|body| body["pull_request"]["number"] = json!(-1)),
            of("issue_comment", &pull_request()),
            of("pull_request", &json!([])),
            parse("issue_comment", b"{", &"acme/series".parse().unwrap()),
        ];
        for found in malformed {
            assert!(matches!(found, Err(Rejection::Malformed(_))), "{found:?}");
        }
    }
}
