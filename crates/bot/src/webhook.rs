//! The bot's reactions to webhook deliveries.

use sha2::{Digest, Sha256};

use super::access::{self, Access};
use super::command::{self, Command, Parsed};
use perfquilt_config::{ApprovalPolicy, Config, UntrustedPolicy};
use perfquilt_forge::Forge;
use perfquilt_forge::webhook::{
    Author, Change, CommentDelivery, Delivery, PullRequestDelivery, Rejection,
};
use perfquilt_store::queue::{NewAcceptance, NewJob, Push, QueueChange, ReceivedDelivery};

/// Interprets the delivery `id` of `event` with this body, for the bot of the repository of `forge`. It has no changes
/// if it does not concern the bot. Acceptances are bound to `configuration`, the digest of `config` and what belongs to it.
pub fn interpret(
    id: String,
    event: &str,
    body: &[u8],
    forge: &dyn Forge,
    config: &Config,
    configuration: &str,
) -> Result<ReceivedDelivery, Rejection> {
    let (number, changes) = match &mut forge.parse_delivery(event, body)? {
        Delivery::PullRequest(it) => (it.number, pull_request_changes(it, forge, config)?),
        Delivery::Comment(it) => (
            it.number,
            comment_changes(it, forge, config, configuration)?,
        ),
    };
    Ok(ReceivedDelivery {
        id,
        body_digest: hex::encode(Sha256::digest(body)),
        number,
        changes,
    })
}

/// Returns what `author` may do, after asking the forge for what the delivery does not tell of the author.
fn access(forge: &dyn Forge, config: &Config, author: &mut Author) -> Result<Access, Rejection> {
    if author.association.is_none() && !access::is_named(&config.commands, author) {
        *author = forge.look_up(author).map_err(|error| {
            tracing::warn!("a delivery is lost: {error}");
            Rejection::Unknown("cannot read what its author may do".to_owned())
        })?;
    }
    Ok(Access::of(&config.commands, author))
}

/// Returns the changes for a pull request that was opened, pushed to or closed.
fn pull_request_changes(
    delivery: &mut PullRequestDelivery,
    forge: &dyn Forge,
    config: &Config,
) -> Result<Vec<QueueChange>, Rejection> {
    Ok(match delivery.change.clone() {
        // It may have been opened again since.
        Change::Closed => vec![QueueChange::Doubt],
        Change::Pushed { before } => {
            let by_trusted = access(forge, config, &mut delivery.sender)? == Access::Allowed;
            let push = Push {
                head: delivery.head.to_ascii_lowercase(),
                before: before.map(|before| before.to_ascii_lowercase()),
                trusted: by_trusted,
            };
            let cancel = QueueChange::Cancel {
                newer: Some(push),
                why: "the pull request has a newer commit".to_owned(),
            };
            let job = job_on_push(delivery, forge, config)?.filter(|_| by_trusted);
            std::iter::once(cancel).chain(job).collect()
        }
        Change::Opened => {
            let job = job_on_push(delivery, forge, config)?;
            let by_trusted = |sender| Ok(access(forge, config, sender)? == Access::Allowed);
            match job {
                Some(job) if by_trusted(&mut delivery.sender)? => vec![job],
                _ => Vec::new(),
            }
        }
        Change::Other => Vec::new(),
    })
}

/// Returns the job for the commit that an authorised user pushed, if the configuration and the author's permissions ask for
/// one.
fn job_on_push(
    delivery: &mut PullRequestDelivery,
    forge: &dyn Forge,
    config: &Config,
) -> Result<Option<QueueChange>, Rejection> {
    if !config.bot.on_push || delivery.draft {
        return Ok(None);
    }
    let trusted = access(forge, config, &mut delivery.author)? == Access::Allowed;
    let login = delivery.author.login.clone().filter(|_| trusted);
    Ok(login.map(|login| {
        QueueChange::Add(NewJob {
            head: delivery.head.to_ascii_lowercase(),
            command: Command::Run { preset: None }.to_string(),
            asked_by: login,
            trusted,
        })
    }))
}

/// Returns the changes for a comment: the job it requests and the reply.
fn comment_changes(
    delivery: &mut CommentDelivery,
    forge: &dyn Forge,
    config: &Config,
    configuration: &str,
) -> Result<Vec<QueueChange>, Rejection> {
    // An edited comment was answered when it was created.
    if !delivery.is_new || !delivery.on_pull_request {
        return Ok(Vec::new());
    }
    let parsed = command::parse(&delivery.text, &config.commands.name);
    if matches!(parsed, Parsed::Nothing) {
        return Ok(Vec::new());
    }
    let allowed = access(forge, config, &mut delivery.author)?;
    let Some(login) = delivery.author.login.clone() else {
        return Ok(Vec::new());
    };
    let comment = delivery.comment;
    let reply = |reaction: &'static str, answer: &str| {
        vec![QueueChange::Reply {
            comment,
            reaction,
            answer: answer.to_owned(),
        }]
    };
    let command = match (parsed, allowed) {
        (Parsed::Nothing, _) | (_, Access::Ignored) => return Ok(Vec::new()),
        (_, Access::Denied) => return Ok(reply("-1", "")),
        (Parsed::Invalid(wrong), Access::Allowed) => {
            let answer = format!("Not understood: {wrong}.");
            return Ok(reply("confused", &answer));
        }
        (Parsed::Command(command), Access::Allowed) => command,
    };
    match &command {
        Command::Help => {
            return Ok(reply("+1", &command::help(&config.commands.name)));
        }
        Command::Status => return Ok(reply("eyes", "")),
        Command::Cancel => {
            return Ok(vec![QueueChange::CancelAll {
                why: format!("cancelled by {login}"),
                comment,
            }]);
        }
        Command::Bisect { workload } if !config.workloads.contains_key(workload) => {
            let answer = unknown_name("workload", config.workloads.keys());
            return Ok(reply("confused", &answer));
        }
        Command::Run {
            preset: Some(preset),
        } if !config.preset.contains_key(preset) => {
            let answer = unknown_name("preset", config.preset.keys());
            return Ok(reply("confused", &answer));
        }
        _ => {}
    }
    if !delivery.is_open {
        let answer = "Nothing done: the pull request is closed.";
        return Ok(reply("confused", answer));
    }
    if let Command::Approve { commit } = command {
        let author = &delivery.pull_request_author;
        let is_known = author.id.is_some() || author.login.is_some();
        if config.bot.approval == ApprovalPolicy::Everybody
            && (!is_known || author.is(&delivery.author))
        {
            let answer = "Nothing done: somebody else than the author approves the changes.";
            return Ok(reply("-1", answer));
        }
        return Ok(vec![QueueChange::Approve {
            commit,
            by: login,
            comment,
        }]);
    }
    if let Command::Accept { patch, reason } = command {
        return Ok(vec![QueueChange::Accept(NewAcceptance {
            patch,
            reason,
            configuration: configuration.to_owned(),
            by: login,
            comment,
        })]);
    }
    let author = &mut delivery.pull_request_author;
    let trusted = access(forge, config, author)? == Access::Allowed;
    let job = NewJob {
        // The head commit when the job starts; for untrusted authors, the one when the bot reads the command.
        head: String::new(),
        command: command.to_string(),
        asked_by: login,
        trusted,
    };
    if !trusted && config.bot.run_untrusted == UntrustedPolicy::Never {
        let answer = "Nothing done: the author of this pull request is not among those whose code is run here.";
        return Ok(reply("-1", answer));
    }
    Ok([vec![QueueChange::Add(job)], reply("rocket", "")].concat())
}

/// Returns the answer to a command with an unknown name.
fn unknown_name<'a>(what: &str, known: impl Iterator<Item = &'a String>) -> String {
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let known = known.join(", ");
    format!("Not understood: there is no such {what}; there are {known}.")
}
