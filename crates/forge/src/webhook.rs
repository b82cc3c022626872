//! Webhook deliveries: what they tell, whichever forge sends them, and whether they are genuine.

use ring::hmac;
use serde::de::DeserializeOwned;

use super::{Repository, Secret};

/// The headers of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryHead {
    /// The event.
    pub event: String,
    /// The delivery's id, which a repeated one shares.
    pub id: String,
    /// What proves that the delivery is genuine.
    pub proof: Proof,
}

/// What proves that a delivery comes from somebody who knows the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// `sha256=` and the HMAC-SHA256 of the body in hexadecimal digits.
    Signature(String),
    /// The secret itself.
    Token(Secret),
}

impl Proof {
    /// Returns whether it proves that a delivery with this body is genuine. Compares in constant time.
    pub fn is_valid(&self, secret: &Secret, body: &[u8]) -> bool {
        !secret.is_empty() && self.is_of(secret.expose().as_bytes(), body)
    }

    fn is_of(&self, key: &[u8], body: &[u8]) -> bool {
        let key_of = |key: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, key);
        let tag = match self {
            Proof::Signature(signature) => {
                let digits = signature.strip_prefix("sha256=");
                digits.and_then(|digits| hex::decode(digits).ok())
            }
            // Equal keys make equal signatures.
            Proof::Token(token) => {
                let tag = hmac::sign(&key_of(token.expose().as_bytes()), body);
                Some(tag.as_ref().to_vec())
            }
        };
        tag.is_some_and(|tag| hmac::verify(&key_of(key), body, &tag).is_ok())
    }
}

/// A delivery about a pull request or an issue.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// A pull request changed.
    PullRequest(PullRequestDelivery),
    /// A comment on an issue or pull request changed.
    Comment(CommentDelivery),
}

/// Why there is no delivery to act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// The delivery is about neither a pull request nor a comment.
    OtherEvent,
    /// The delivery is about another repository.
    OtherRepository,
    /// The delivery does not have the forge's format; contains the reason.
    Malformed(String),
    /// It is unknown what its author may do; contains the reason.
    Unknown(String),
}

/// A change of a pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct PullRequestDelivery {
    /// The change.
    pub change: Change,
    /// The pull request's number.
    pub number: u64,
    /// Whether it is a draft.
    pub draft: bool,
    /// Its head commit.
    pub head: String,
    /// Its author.
    pub author: Author,
    /// Who made the change.
    pub sender: Author,
}

/// How a pull request changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was opened, also again, or is no draft any more.
    Opened,
    /// It has another head commit.
    Pushed {
        /// The head commit that was replaced, if the delivery tells.
        before: Option<String>,
    },
    /// It was closed or merged.
    Closed,
    /// Anything else.
    Other,
}

/// A comment on an issue or pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct CommentDelivery {
    /// Whether the comment was written just now, not changed or deleted.
    pub is_new: bool,
    /// Whether it is on a pull request.
    pub on_pull_request: bool,
    /// The pull request's number.
    pub number: u64,
    /// Whether the pull request is open.
    pub is_open: bool,
    /// The pull request's author.
    pub pull_request_author: Author,
    /// The comment's id.
    pub comment: u64,
    /// Its text.
    pub text: String,
    /// Its author.
    pub author: Author,
}

/// The author of a pull request, a comment or a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// The id, where the forge needs it.
    pub id: Option<u64>,
    /// The login; `None` when the account was deleted, or only its id is known.
    pub login: Option<String>,
    /// Whether the account is a bot.
    pub is_bot: bool,
    /// The author's relation to the repository, as `associations` of `[commands]` has it; `None` when only
    /// [`Forge::look_up`](super::Forge::look_up) tells.
    pub association: Option<String>,
}

impl Author {
    /// Returns whether both are the same account.
    pub fn is(&self, other: &Author) -> bool {
        match (&self.login, &other.login, self.id, other.id) {
            (Some(one), Some(other), ..) => one.eq_ignore_ascii_case(other),
            (_, _, one, other) => one.is_some() && one == other,
        }
    }
}

/// Parses a body of which `repository` is about `own`, so that those of other repositories are rejected as such.
pub(super) fn parse_body<S: DeserializeOwned, T: DeserializeOwned>(
    body: &[u8],
    own: &Repository,
    repository: impl Fn(S) -> Option<String>,
) -> Result<T, Rejection> {
    let malformed = |error: serde_json::Error| Rejection::Malformed(error.to_string());
    let subject: S = serde_json::from_slice(body).map_err(malformed)?;
    let about = repository(subject);
    if !about.is_some_and(|name| name.eq_ignore_ascii_case(&own.to_string())) {
        return Err(Rejection::OtherRepository);
    }
    serde_json::from_slice(body).map_err(malformed)
}

/// Returns a head commit, or why the delivery is malformed.
pub(super) fn head(commit: &str) -> Result<String, Rejection> {
    if super::is_commit(commit) {
        Ok(commit.to_owned())
    } else {
        Err(Rejection::Malformed("its head is not a commit".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(signature: &str) -> Proof {
        Proof::Signature(signature.to_owned())
    }

    #[test]
    fn signatures() {
        // A published example.
        let secret = Secret::new("It's a Secret to Everybody");
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(signed(signature).is_valid(&secret, b"Hello, World!"));
        assert!(!signed(signature).is_valid(&secret, b"Hello, World?"));
        assert!(!signed(signature).is_valid(&Secret::new("another"), b"Hello, World!"));
        let wrong = [&signature[7..], &signature[..69], "sha256=", "sha1=00", ""];
        for wrong in wrong.map(str::to_owned).into_iter().chain([
            format!("{signature}00"),
            signature.replace("757", "+57"),
            signature.replace("757", "ü7"),
        ]) {
            assert!(
                !signed(&wrong).is_valid(&secret, b"Hello, World!"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn without_a_secret_nothing_is_genuine() {
        // The signature of "" with an empty key.
        let signature = "sha256=b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad";
        assert!(signed(signature).is_of(b"", b""));
        assert!(!signed(signature).is_valid(&Secret::new(" "), b""));
    }

    #[test]
    fn tokens() {
        let secret = Secret::new("0123456789abcdef");
        let token = |text: &str| Proof::Token(Secret::new(text));
        assert!(token("0123456789abcdef").is_valid(&secret, b"{}"));
        for wrong in [
            "",
            "0123456789abcde",
            "0123456789abcdef0",
            "0123456789abcdeg",
        ] {
            assert!(!token(wrong).is_valid(&secret, b"{}"), "{wrong}");
        }
        assert!(!token("").is_valid(&Secret::new(""), b"{}"));
    }
}
