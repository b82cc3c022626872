//! GitHub's webhook deliveries: verifies and parses them.

use ring::hmac;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::model::{Branch, RepositoryName, User};
use super::{Repository, Secret, is_commit};

/// Returns whether `signature` (the header `X-Hub-Signature-256`) is the signature of `body` with `secret`.
/// Compares in constant time.
pub fn is_signature_valid(secret: &Secret, body: &[u8], signature: &str) -> bool {
    !secret.is_empty() && is_signature_of(secret.expose().as_bytes(), body, signature)
}

fn is_signature_of(key: &[u8], body: &[u8], signature: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = signature.strip_prefix("sha256=");
    let tag = tag.and_then(|digits| hex::decode(digits).ok());
    tag.is_some_and(|tag| hmac::verify(&key, body, &tag).is_ok())
}

/// A delivery about a pull request or an issue.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// A pull request changed.
    PullRequest(PullRequestDelivery),
    /// A comment on an issue or pull request changed.
    Comment(CommentDelivery),
}

/// Why [`parse`] returns no delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// The delivery is about neither a pull request nor a comment.
    OtherEvent,
    /// The delivery is about another repository.
    OtherRepository,
    /// The delivery does not have GitHub's format; contains the reason.
    Malformed(String),
}

/// A delivery of the event `pull_request`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PullRequestDelivery {
    /// The change: `opened`, `synchronize`, `closed`, ….
    pub action: Option<String>,
    /// The pull request.
    pub pull_request: ChangedPullRequest,
    sender: Option<User>,
    before: Option<String>,
}

/// A delivery of the event `issue_comment`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CommentDelivery {
    /// The change: `created`, `edited` or `deleted`.
    pub action: Option<String>,
    /// The issue or pull request.
    pub issue: CommentedIssue,
    /// The comment.
    pub comment: ChangedComment,
}

/// The pull request of a delivery.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ChangedPullRequest {
    /// Its number.
    pub number: u64,
    /// Whether it is a draft.
    #[serde(default)]
    pub draft: bool,
    head: Branch,
    user: Option<User>,
    author_association: String,
}

/// The issue or pull request that a comment belongs to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CommentedIssue {
    /// Its number.
    pub number: u64,
    state: String,
    pull_request: Option<IgnoredAny>,
    user: Option<User>,
    author_association: String,
}

/// The comment of a delivery.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ChangedComment {
    /// Its id.
    pub id: u64,
    /// Its text.
    pub body: Option<String>,
    user: Option<User>,
    author_association: String,
}

/// The author of a pull request, an issue or a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Author<'a> {
    /// The login; `None` when the account was deleted.
    pub login: Option<&'a str>,
    /// Whether the account is a bot.
    pub is_bot: bool,
    /// GitHub's `author_association`: the author's relation to the repository.
    pub association: &'a str,
}

impl<'a> Author<'a> {
    fn new(user: Option<&'a User>, association: &'a str) -> Self {
        Author {
            login: user.map(|user| user.login.as_str()),
            is_bot: user.is_some_and(|user| user.kind.as_deref() == Some("Bot")),
            association,
        }
    }
}

impl PullRequestDelivery {
    /// Returns the head commit that a push replaced; `None` if the delivery has none.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref().filter(|before| is_commit(before))
    }

    /// Returns who made the change. GitHub tells the association of the pull request's author, and nobody else's.
    pub fn sender(&self) -> Author<'_> {
        let request = &self.pull_request;
        let sender = self.sender.as_ref();
        let login = sender.map(|user| user.login.as_str());
        let is_author = request
            .author()
            .login
            .zip(login)
            .is_some_and(|(author, sender)| author.eq_ignore_ascii_case(sender));
        let association = if is_author {
            request.author_association.as_str()
        } else {
            ""
        };
        Author::new(sender, association)
    }
}

impl ChangedPullRequest {
    /// Returns its head commit.
    pub fn head(&self) -> &str {
        &self.head.sha
    }

    /// Returns its author.
    pub fn author(&self) -> Author<'_> {
        Author::new(self.user.as_ref(), &self.author_association)
    }
}

impl CommentedIssue {
    /// Returns whether it is a pull request.
    pub fn is_pull_request(&self) -> bool {
        self.pull_request.is_some()
    }

    /// Returns whether it is open.
    pub fn is_open(&self) -> bool {
        self.state == "open"
    }

    /// Returns its author.
    pub fn author(&self) -> Author<'_> {
        Author::new(self.user.as_ref(), &self.author_association)
    }
}

impl ChangedComment {
    /// Returns its author.
    pub fn author(&self) -> Author<'_> {
        Author::new(self.user.as_ref(), &self.author_association)
    }
}

/// Parses the delivery of `event` (the header `X-GitHub-Event`) with this body, for `repository`.
pub fn parse(event: &str, body: &[u8], repository: &Repository) -> Result<Delivery, Rejection> {
    match event {
        "pull_request" => {
            let delivery: PullRequestDelivery = parse_body(body, repository)?;
            if !is_commit(delivery.pull_request.head()) {
                return Err(Rejection::Malformed("its head is not a commit".to_owned()));
            }
            Ok(Delivery::PullRequest(delivery))
        }
        "issue_comment" => parse_body(body, repository).map(Delivery::Comment),
        _ => Err(Rejection::OtherEvent),
    }
}

/// Parses a body after its repository, so that those of other repositories are rejected as such.
fn parse_body<T: DeserializeOwned>(body: &[u8], repository: &Repository) -> Result<T, Rejection> {
    #[derive(Deserialize)]
    struct Subject {
        repository: Option<RepositoryName>,
    }
    let malformed = |error: serde_json::Error| Rejection::Malformed(error.to_string());
    let subject: Subject = serde_json::from_slice(body).map_err(malformed)?;
    let about = subject.repository.map(|found| found.full_name);
    if !about.is_some_and(|name| name.eq_ignore_ascii_case(&repository.to_string())) {
        return Err(Rejection::OtherRepository);
    }
    serde_json::from_slice(body).map_err(malformed)
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
    fn signatures() {
        // The example in GitHub's documentation of webhooks.
        let secret = Secret::new("It's a Secret to Everybody");
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(is_signature_valid(&secret, b"Hello, World!", signature));
        assert!(!is_signature_valid(&secret, b"Hello, World?", signature));
        assert!(!is_signature_valid(
            &Secret::new("another"),
            b"Hello, World!",
            signature
        ));
        let wrong = [&signature[7..], &signature[..69], "sha256=", "sha1=00", ""];
        for wrong in wrong.map(str::to_owned).into_iter().chain([
            format!("{signature}00"),
            signature.replace("757", "+57"),
            signature.replace("757", "ü7"),
        ]) {
            assert!(
                !is_signature_valid(&secret, b"Hello, World!", &wrong),
                "{wrong}"
            );
        }
    }

    #[test]
    fn without_a_secret_nothing_is_genuine() {
        // The signature of "" with an empty key.
        let signature = "sha256=b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad";
        assert!(is_signature_of(b"", b"", signature));
        assert!(!is_signature_valid(&Secret::new(" "), b"", signature));
    }

    #[test]
    fn pull_requests() {
        let Ok(Delivery::PullRequest(delivery)) = of("pull_request", &pull_request()) else {
            panic!("not accepted");
        };
        assert_eq!(delivery.action.as_deref(), Some("opened"));
        assert_eq!(delivery.pull_request.head(), HEAD);
        assert!(!delivery.pull_request.draft);
        let author = Author {
            login: Some("dependabot[bot]"),
            is_bot: true,
            association: "OWNER",
        };
        assert_eq!(delivery.pull_request.author(), author);
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
            let sender = delivery.sender();
            (
                sender.login.map(str::to_owned),
                sender.association.to_owned(),
            )
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
        assert!(delivery.issue.is_open() && !delivery.issue.is_pull_request());
        let author = Author {
            login: None,
            is_bot: false,
            association: "A_NEW_ONE",
        };
        assert_eq!(delivery.comment.author(), author);
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
