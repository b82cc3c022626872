//! The bot's reactions to GitHub's webhook deliveries.

use super::access::Access;
use super::command::{self, Command, Parsed};
use perfquilt_config::{ApprovalPolicy, Config, UntrustedPolicy};
use perfquilt_forge::Repository;
use perfquilt_forge::webhook::{self, CommentDelivery, Delivery, PullRequestDelivery, Rejection};
use perfquilt_store::queue::{NewJob, NewReply, Push, QueueChange};

/// Returns the changes to the queue after a delivery of `event` with this body, for the bot of `repository`; none if it does
/// not concern the bot. Acceptances are bound to `configuration`, the digest of `config` and what belongs to it.
pub fn interpret(
    event: &str,
    body: &[u8],
    repository: &Repository,
    config: &Config,
    configuration: &str,
) -> Result<Vec<QueueChange>, Rejection> {
    Ok(match webhook::parse(event, body, repository)? {
        Delivery::PullRequest(delivery) => pull_request_changes(&delivery, repository, config),
        Delivery::Comment(delivery) => {
            comment_changes(&delivery, repository, config, configuration)
        }
    })
}

/// Returns the changes for a pull request that was opened, pushed to or closed.
fn pull_request_changes(
    delivery: &PullRequestDelivery,
    repository: &Repository,
    config: &Config,
) -> Vec<QueueChange> {
    let request = &delivery.pull_request;
    let by_trusted = Access::of(&config.commands, delivery.sender()) == Access::Allowed;
    let job = job_on_push(request, repository, config).filter(|_| by_trusted);
    match delivery.action.as_deref() {
        // It may have been opened again since.
        Some("closed") => vec![QueueChange::Doubt {
            repository: repository.to_string(),
            number: request.number,
        }],
        Some("synchronize") => {
            let push = Push {
                head: request.head().to_ascii_lowercase(),
                before: delivery.before().map(str::to_ascii_lowercase),
                trusted: by_trusted,
            };
            let cancel = QueueChange::Cancel {
                repository: repository.to_string(),
                number: request.number,
                newer: Some(push),
                why: "the pull request has a newer commit".to_owned(),
            };
            std::iter::once(cancel).chain(job).collect()
        }
        Some("opened" | "reopened" | "ready_for_review") => job.into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the job for the commit that an authorised user pushed, if the configuration and the author's permissions ask for
/// one.
fn job_on_push(
    request: &webhook::ChangedPullRequest,
    repository: &Repository,
    config: &Config,
) -> Option<QueueChange> {
    let author = request.author();
    let trusted = Access::of(&config.commands, author) == Access::Allowed;
    let wanted = config.bot.on_push && trusted && !request.draft;
    author.login.filter(|_| wanted).map(|login| {
        QueueChange::Add(NewJob {
            repository: repository.to_string(),
            number: request.number,
            head: request.head().to_ascii_lowercase(),
            command: Command::Run { preset: None }.to_string(),
            asked_by: login.to_owned(),
            trusted,
        })
    })
}

/// Returns the changes for a comment: the job it requests and the reply.
fn comment_changes(
    delivery: &CommentDelivery,
    repository: &Repository,
    config: &Config,
    configuration: &str,
) -> Vec<QueueChange> {
    let CommentDelivery { issue, comment, .. } = delivery;
    // An edited comment was answered when it was created.
    if delivery.action.as_deref() != Some("created") || !issue.is_pull_request() {
        return Vec::new();
    }
    let author = comment.author();
    let Some(login) = author.login else {
        return Vec::new();
    };
    let text = comment.body.as_deref().unwrap_or_default();
    let parsed = command::parse(text, &config.commands.name);
    let reply = |reaction: &str, answer: &str| {
        QueueChange::Reply(NewReply {
            repository: repository.to_string(),
            number: issue.number,
            comment: comment.id,
            reaction: reaction.to_owned(),
            answer: answer.to_owned(),
        })
    };
    let allowed = Access::of(&config.commands, author);
    let command = match (parsed, allowed) {
        (Parsed::Nothing, _) | (_, Access::Ignored) => return Vec::new(),
        (_, Access::Denied) => return vec![reply("-1", "")],
        (Parsed::Invalid(wrong), Access::Allowed) => {
            let answer = format!("Not understood: {wrong}.");
            return vec![reply("confused", &answer)];
        }
        (Parsed::Command(command), Access::Allowed) => command,
    };
    match &command {
        Command::Help => return vec![reply("+1", &command::help(&config.commands.name))],
        Command::Status => return vec![reply("eyes", "")],
        Command::Cancel => {
            return vec![QueueChange::CancelAll {
                repository: repository.to_string(),
                number: issue.number,
                why: format!("cancelled by {login}"),
                comment: comment.id,
            }];
        }
        Command::Bisect { workload } if !config.workloads.contains_key(workload) => {
            let answer = unknown_name("workload", config.workloads.keys());
            return vec![reply("confused", &answer)];
        }
        Command::Run {
            preset: Some(preset),
        } if !config.preset.contains_key(preset) => {
            let answer = unknown_name("preset", config.preset.keys());
            return vec![reply("confused", &answer)];
        }
        _ => {}
    }
    if !issue.is_open() {
        let answer = "Nothing done: the pull request is closed.";
        return vec![reply("confused", answer)];
    }
    if let Command::Approve { commit } = command {
        let author = issue.author().login;
        if config.bot.approval == ApprovalPolicy::Everybody
            && author.is_none_or(|author| author.eq_ignore_ascii_case(login))
        {
            let answer = "Nothing done: somebody else than the author approves the changes.";
            return vec![reply("-1", answer)];
        }
        return vec![QueueChange::Approve {
            repository: repository.to_string(),
            number: issue.number,
            commit,
            by: login.to_owned(),
            comment: comment.id,
        }];
    }
    if let Command::Accept { patch, reason } = command {
        return vec![QueueChange::Accept {
            repository: repository.to_string(),
            number: issue.number,
            patch,
            reason,
            configuration: configuration.to_owned(),
            by: login.to_owned(),
            comment: comment.id,
        }];
    }
    let trusted = Access::of(&config.commands, issue.author()) == Access::Allowed;
    let job = NewJob {
        repository: repository.to_string(),
        number: issue.number,
        // The head commit when the job starts; for untrusted authors, the one when the bot reads the command.
        head: String::new(),
        command: command.to_string(),
        asked_by: login.to_owned(),
        trusted,
    };
    if !trusted && config.bot.run_untrusted == UntrustedPolicy::Never {
        let answer = "Nothing done: the author of this pull request is not among those whose code is run here.";
        return vec![reply("-1", answer)];
    }
    vec![QueueChange::Add(job), reply("rocket", "")]
}

/// Returns the answer to a command with an unknown name.
fn unknown_name<'a>(what: &str, known: impl Iterator<Item = &'a String>) -> String {
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let known = known.join(", ");
    format!("Not understood: there is no such {what}; there are {known}.")
}
