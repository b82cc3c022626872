//! Deliveries of GitHub's webhooks: whether they are genuine, and what follows from them.

use ring::hmac;
use serde::Deserialize;

use super::access::{Access, Speaker};
use super::command::{self, Command, Parsed};
use perfquilt_config::{Config, Untrusted};
use perfquilt_forge::{Repository, Secret, is_commit};
use perfquilt_store::queue::{Change, NewJob, NewReply};

/// Whether `signature` (the header `X-Hub-Signature-256`) was made of `body` with `secret`; the comparison
/// takes the same time wherever they differ.
pub fn is_genuine(secret: &Secret, body: &[u8], signature: &str) -> bool {
    let Some(tag) = signature.strip_prefix("sha256=").and_then(bytes) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    !secret.is_empty() && hmac::verify(&key, body, &tag).is_ok()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect()
}

/// What a genuine delivery comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Nothing that concerns the bot.
    Nothing,
    /// These changes of the queue.
    Changes(Vec<Change>),
    /// It is about another repository.
    Foreign,
    /// It is not what GitHub sends.
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

/// Missing where the account was deleted.
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

/// What follows from a delivery of `event` with this body, for the bot of `repository`.
pub fn understand(event: &str, body: &[u8], repository: &Repository, config: &Config) -> Heard {
    if !["pull_request", "issue_comment"].contains(&event) {
        return Heard::Nothing;
    }
    let delivery: Delivery = match serde_json::from_slice(body) {
        Ok(delivery) => delivery,
        Err(error) => return Heard::Malformed(error.to_string()),
    };
    let about = delivery
        .repository
        .as_ref()
        .map(|found| found.full_name.as_str());
    if !about.is_some_and(|name| name.eq_ignore_ascii_case(&repository.to_string())) {
        return Heard::Foreign;
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
                return Heard::Malformed("its head is no commit".to_owned());
            }
            pushed(action, &request, repository, config)
        }
        (
            "issue_comment",
            Delivery {
                issue: Some(issue),
                comment: Some(comment),
                ..
            },
        ) => said(action, &issue, &comment, repository, config),
        _ => return Heard::Malformed(format!("a {event} without one")),
    };
    if changes.is_empty() {
        Heard::Nothing
    } else {
        Heard::Changes(changes)
    }
}

/// What somebody with this account, or with none any more, may do.
fn access(user: Option<&User>, association: &str, config: &Config) -> Access {
    let speaker = Speaker {
        login: user.map_or("", |user| user.login.as_str()),
        bot: user.is_some_and(|user| user.kind == "Bot"),
        association,
    };
    Access::of(&config.commands, speaker)
}

/// What a pull request that was opened, pushed to or closed asks for.
fn pushed(
    action: &str,
    request: &PullRequest,
    repository: &Repository,
    config: &Config,
) -> Vec<Change> {
    let cancel = |newer: Option<&str>, why: &str| Change::Cancel {
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
                changes.push(Change::Add(NewJob {
                    repository: repository.to_string(),
                    number: request.number,
                    // Deliveries of two pushes may come in the wrong order: the last commit when its turn
                    // comes is right after both.
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

/// What a comment asks for, and how it is answered.
fn said(
    action: &str,
    issue: &Issue,
    comment: &Comment,
    repository: &Repository,
    config: &Config,
) -> Vec<Change> {
    // An edited comment was answered when it was written.
    if action != "created" || issue.pull_request.is_none() {
        return Vec::new();
    }
    let Some(author) = &comment.user else {
        return Vec::new();
    };
    let text = comment.body.as_deref().unwrap_or_default();
    let parsed = command::parse(text, &config.commands.name);
    let reply = |reaction: &str, answer: String| {
        Change::Reply(NewReply {
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
        (Parsed::Wrong(wrong), Access::Allowed) => {
            return vec![reply("confused", format!("Not understood: {wrong}."))];
        }
        (Parsed::Command(command), Access::Allowed) => command,
    };
    match &command {
        Command::Help => return vec![reply("+1", command::help(&config.commands.name))],
        Command::Status => return vec![reply("eyes", String::new())],
        Command::Cancel => {
            let cancel = Change::Cancel {
                repository: repository.to_string(),
                number: issue.number,
                newer: None,
                why: format!("cancelled by {}", author.login),
            };
            return vec![cancel, reply("+1", String::new())];
        }
        Command::Bisect { workload } if !config.workloads.contains_key(workload) => {
            let answer = names("workload", config.workloads.keys());
            return vec![reply("confused", answer)];
        }
        Command::Run {
            preset: Some(preset),
        } if !config.preset.contains_key(preset) => {
            let answer = names("preset", config.preset.keys());
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
        return vec![Change::Approve {
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
        // The last one when its turn comes.
        head: String::new(),
        command: command.to_string(),
        asked_by: author.login.clone(),
        trusted,
    };
    if !trusted && config.bot.run_untrusted == Untrusted::Never {
        let answer = "Nothing done: the author of this pull request is not among those whose code is run here.";
        return vec![reply("-1", answer.to_owned())];
    }
    vec![Change::Add(job), reply("rocket", String::new())]
}

/// What is said where a comment names something that is not there.
fn names<'a>(what: &str, known: impl Iterator<Item = &'a String>) -> String {
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let known = known.join(", ");
    format!("Not understood: there is no such {what}; there are {known}.")
}
