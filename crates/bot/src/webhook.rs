//! Verification and interpretation of GitHub's webhook deliveries.

use ring::hmac;
use serde::Deserialize;

use super::access::{Access, Author};
use super::command::{self, Command, Parsed};
use perfquilt_config::{Config, UntrustedPolicy};
use perfquilt_forge::{Repository, Secret, is_commit};
use perfquilt_store::queue::{NewJob, NewReply, QueueChange};

/// Returns whether `signature` (the header `X-Hub-Signature-256`) is the signature of `body` with `secret`.
/// Compares in constant time.
pub fn is_genuine(secret: &Secret, body: &[u8], signature: &str) -> bool {
    let Some(tag) = signature.strip_prefix("sha256=").and_then(decode_hex) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    !secret.is_empty() && hmac::verify(&key, body, &tag).is_ok()
}

fn decode_hex(hex: &str) -> Option<Vec<u8>> {
    if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect()
}

/// The meaning of a genuine delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interpretation {
    /// The delivery does not concern the bot.
    Nothing,
    /// Changes to make to the queue.
    Changes(Vec<QueueChange>),
    /// The delivery is about another repository.
    Foreign,
    /// The delivery does not have GitHub's format.
    Malformed(String),
}

#[derive(Deserialize)]
struct Delivery {
    action: Option<String>,
    repository: Option<FullName>,
    pull_request: Option<PullRequest>,
    issue: Option<Issue>,
    comment: Option<Comment>,
}

#[derive(Deserialize)]
struct FullName {
    full_name: String,
}

#[derive(Deserialize)]
struct PullRequest {
    number: u64,
    head: Head,
    user: Option<User>,
    author_association: String,
    #[serde(default)]
    draft: bool,
}

#[derive(Deserialize)]
struct Head {
    sha: String,
}

/// An account; missing in a delivery when the account was deleted.
#[derive(Deserialize)]
struct User {
    login: String,
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Deserialize)]
struct Issue {
    number: u64,
    state: String,
    pull_request: Option<serde_json::Value>,
    user: Option<User>,
    author_association: String,
}

#[derive(Deserialize)]
struct Comment {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    user: Option<User>,
    author_association: String,
}

/// Interprets a delivery of `event` with this body, for the bot of `repository`.
pub fn interpret(
    event: &str,
    body: &[u8],
    repository: &Repository,
    config: &Config,
) -> Interpretation {
    if !["pull_request", "issue_comment"].contains(&event) {
        return Interpretation::Nothing;
    }
    let delivery: Delivery = match serde_json::from_slice(body) {
        Ok(delivery) => delivery,
        Err(error) => return Interpretation::Malformed(error.to_string()),
    };
    let about = delivery
        .repository
        .as_ref()
        .map(|found| found.full_name.as_str());
    if !about.is_some_and(|name| name.eq_ignore_ascii_case(&repository.to_string())) {
        return Interpretation::Foreign;
    }
    let action = delivery.action.clone().unwrap_or_default();
    let action = action.as_str();
    let changes = match (event, delivery) {
        (
            "pull_request",
            Delivery {
                pull_request: Some(request),
                ..
            },
        ) => {
            if !is_commit(&request.head.sha) {
                return Interpretation::Malformed("its head is no commit".to_owned());
            }
            pull_request_changes(action, &request, repository, config)
        }
        (
            "issue_comment",
            Delivery {
                issue: Some(issue),
                comment: Some(comment),
                ..
            },
        ) => comment_changes(action, &issue, &comment, repository, config),
        _ => return Interpretation::Malformed(format!("a {event} without one")),
    };
    if changes.is_empty() {
        Interpretation::Nothing
    } else {
        Interpretation::Changes(changes)
    }
}

/// Returns the access of this account, or of a deleted one.
fn access(user: Option<&User>, association: &str, config: &Config) -> Access {
    let author = Author {
        login: user.map_or("", |user| user.login.as_str()),
        bot: user.is_some_and(|user| user.kind == "Bot"),
        association,
    };
    Access::of(&config.commands, author)
}

/// Returns the changes for a pull request that was opened, pushed to or closed.
fn pull_request_changes(
    action: &str,
    request: &PullRequest,
    repository: &Repository,
    config: &Config,
) -> Vec<QueueChange> {
    let cancel = |newer: Option<&str>, why: &str| QueueChange::Cancel {
        repository: repository.to_string(),
        number: request.number,
        newer: newer.map(str::to_ascii_lowercase),
        why: why.to_owned(),
    };
    match action {
        "closed" => vec![cancel(None, "the pull request was closed")],
        "opened" | "synchronize" | "reopened" | "ready_for_review" => {
            let mut changes = match action {
                "synchronize" => vec![cancel(
                    Some(request.head.sha.as_str()),
                    "the pull request has a newer commit",
                )],
                _ => Vec::new(),
            };
            let author = request.user.as_ref();
            let trusted = access(author, &request.author_association, config) == Access::Allowed;
            if let Some(author) = author
                && config.bot.on_push
                && trusted
                && !request.draft
            {
                changes.push(QueueChange::Add(NewJob {
                    repository: repository.to_string(),
                    number: request.number,
                    // Deliveries of two pushes may arrive out of order. Taking the head commit when the job
                    // starts is right in both cases.
                    head: String::new(),
                    command: Command::Run { preset: None }.to_string(),
                    asked_by: author.login.clone(),
                    trusted,
                }));
            }
            changes
        }
        _ => Vec::new(),
    }
}

/// Returns the changes for a comment: the job it requests and the reply.
fn comment_changes(
    action: &str,
    issue: &Issue,
    comment: &Comment,
    repository: &Repository,
    config: &Config,
) -> Vec<QueueChange> {
    // An edited comment was answered when it was created.
    if action != "created" || issue.pull_request.is_none() {
        return Vec::new();
    }
    let Some(author) = &comment.user else {
        return Vec::new();
    };
    let text = comment.body.as_deref().unwrap_or_default();
    let parsed = command::parse(text, &config.commands.name);
    let reply = |reaction: &str, answer: String| {
        QueueChange::Reply(NewReply {
            repository: repository.to_string(),
            number: issue.number,
            comment: comment.id,
            reaction: reaction.to_owned(),
            answer,
        })
    };
    let allowed = access(Some(author), &comment.author_association, config);
    let command = match (parsed, allowed) {
        (Parsed::Nothing, _) | (_, Access::Ignored) => return Vec::new(),
        (_, Access::Denied) => return vec![reply("-1", String::new())],
        (Parsed::Invalid(wrong), Access::Allowed) => {
            return vec![reply("confused", format!("Not understood: {wrong}."))];
        }
        (Parsed::Command(command), Access::Allowed) => command,
    };
    match &command {
        Command::Help => return vec![reply("+1", command::help(&config.commands.name))],
        Command::Status => return vec![reply("eyes", String::new())],
        Command::Cancel => {
            let cancel = QueueChange::Cancel {
                repository: repository.to_string(),
                number: issue.number,
                newer: None,
                why: format!("cancelled by {}", author.login),
            };
            return vec![cancel, reply("+1", String::new())];
        }
        Command::Bisect { workload } if !config.workloads.contains_key(workload) => {
            let answer = unknown_name("workload", config.workloads.keys());
            return vec![reply("confused", answer)];
        }
        Command::Run {
            preset: Some(preset),
        } if !config.preset.contains_key(preset) => {
            let answer = unknown_name("preset", config.preset.keys());
            return vec![reply("confused", answer)];
        }
        _ => {}
    }
    if issue.state != "open" {
        return vec![reply(
            "confused",
            "Nothing done: the pull request is closed.".to_owned(),
        )];
    }
    if let Command::Approve { commit } = command {
        return vec![QueueChange::Approve {
            repository: repository.to_string(),
            number: issue.number,
            commit,
            by: author.login.clone(),
            comment: comment.id,
        }];
    }
    let trusted = access(issue.user.as_ref(), &issue.author_association, config) == Access::Allowed;
    let job = NewJob {
        repository: repository.to_string(),
        number: issue.number,
        // The head commit when the job starts.
        head: String::new(),
        command: command.to_string(),
        asked_by: author.login.clone(),
        trusted,
    };
    if !trusted && config.bot.run_untrusted == UntrustedPolicy::Never {
        let answer = "Nothing done: the author of this pull request is not among those whose code is run here.";
        return vec![reply("-1", answer.to_owned())];
    }
    vec![QueueChange::Add(job), reply("rocket", String::new())]
}

/// Returns the answer to a command with an unknown name.
fn unknown_name<'a>(what: &str, known: impl Iterator<Item = &'a String>) -> String {
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let known = known.join(", ");
    format!("Not understood: there is no such {what}; there are {known}.")
}
