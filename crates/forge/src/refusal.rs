//! Why a forge refused a request.

use serde::Deserialize;
use serde_json::Value;

use super::Repository;

/// The cause of a refusal, decided by status, headers and documentation address. The wording of messages is free, and
/// decides only where the forge documents nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Refusal {
    /// A primary or secondary limit on requests is reached; the same request succeeds later.
    Limited,
    /// The conversation is locked.
    Locked,
    /// The repository is archived.
    Archived,
    /// The organisation demands single sign-on of the token.
    SingleSignOn,
    /// The forge suspended the account, or the owner suspended the App's installation.
    Suspended,
    /// The organisation's or enterprise's IP allow list lacks this machine's address.
    AddressNotAllowed,
    /// The organisation forbids tokens of this kind or lifetime.
    TokenForbidden,
    /// The forge, or its owner, blocked the repository or this account's interactions.
    Blocked,
    /// Anything else: a missing permission, a missing object, an invalid request.
    #[default]
    Other,
}

/// The parts of a refused response that tell its cause.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RefusedResponse<'a> {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: &'a str,
    /// Whether it has `Retry-After`.
    pub has_retry_after: bool,
    /// The number of requests left.
    pub remaining: Option<u64>,
    /// Whether a header demands single sign-on.
    pub demands_sso: bool,
}

impl Refusal {
    /// Returns the next step of a user whose request about `repository` was refused for this cause.
    pub(super) fn hint(self, repository: &Repository) -> Option<String> {
        Some(match self {
            Refusal::Limited | Refusal::Other => return None,
            Refusal::Locked => "the conversation is locked; anyone with write access to the repository can \
                                unlock it"
                .to_owned(),
            Refusal::Archived => format!(
                "{repository} is archived, and nobody can write to it; its owner can unarchive it"
            ),
            Refusal::SingleSignOn => "authorise the token for the organisation's single sign-on, in the \
                                      owner's settings of tokens"
                .to_owned(),
            Refusal::Suspended => "the account of the token, or the App's installation, is suspended; the forge's \
                                   support or the installation's owner can lift that, or use another account's \
                                   token"
                .to_owned(),
            Refusal::AddressNotAllowed => format!(
                "an owner of {} must add this machine's address to the IP allow list, or the command must run on a \
                 machine that has a listed one",
                repository.owner
            ),
            Refusal::TokenForbidden => format!(
                "use an App or a token of a kind and lifetime that {} allows",
                repository.owner
            ),
            Refusal::Blocked => format!(
                "the repository or this account is blocked; the owner of {repository} or the forge's support knows why"
            ),
        })
    }
}

/// The error message of a forge.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    /// A text, or an object with the faults of each field.
    message: Value,
    pub documentation_url: String,
    /// The single faults of an invalid request: texts, or objects with `message` or `field` and `code`.
    errors: Vec<Value>,
    error: Option<String>,
    error_description: Option<String>,
}

impl Problem {
    /// Returns the message with the single faults.
    pub(super) fn text(&self) -> String {
        let fault = |error: &Value| {
            let field = |name: &str| error[name].as_str();
            match (
                error.as_str().or_else(|| field("message")),
                field("field"),
                field("code"),
            ) {
                (Some(text), _, _) => Some(text.to_owned()),
                (None, Some(field), Some(code)) => Some(format!("{field}: {code}")),
                _ => None,
            }
        };
        let message = match &self.message {
            Value::Null => self.error_description.clone().or(self.error.clone()),
            Value::String(text) => Some(text.clone()),
            fields => Some(fields.to_string()),
        };
        let message = message.filter(|message| !message.is_empty());
        let parts: Vec<String> = message
            .into_iter()
            .chain(self.errors.iter().filter_map(fault))
            .collect();
        parts.join(": ")
    }
}
