//! GitLab's webhook deliveries.

use serde::Deserialize;

use crate::webhook::{
    Author, Change, CommentDelivery, Delivery, PullRequestDelivery, Rejection, head, parse_body,
};
use crate::{Repository, is_commit};

/// A body, as far as it tells its project.
#[derive(Deserialize)]
pub(super) struct Subject {
    project: Option<Project>,
}

#[derive(Deserialize)]
struct Project {
    path_with_namespace: String,
}

/// The user who did what a hook tells.
#[derive(Deserialize)]
struct HookUser {
    id: u64,
    username: String,
}

/// The body of a `Merge Request Hook`.
#[derive(Deserialize)]
pub(super) struct MergeRequestBody {
    user: HookUser,
    pub object_attributes: MergeRequestAttributes,
    #[serde(default)]
    changes: Changes,
}

#[derive(Deserialize)]
pub(super) struct MergeRequestAttributes {
    pub iid: u64,
    action: Option<String>,
    /// The head commit that a push replaced; only a push has one.
    oldrev: Option<String>,
    pub last_commit: Commit,
    author_id: Option<u64>,
    #[serde(default)]
    draft: bool,
}

#[derive(Deserialize)]
pub(super) struct Commit {
    pub id: String,
}

#[derive(Default, Deserialize)]
struct Changes {
    draft: Option<DraftChange>,
}

#[derive(Deserialize)]
struct DraftChange {
    current: Option<bool>,
}

/// The body of a `Note Hook`.
#[derive(Deserialize)]
struct NoteBody {
    user: HookUser,
    object_attributes: NoteAttributes,
    merge_request: Option<NotedMergeRequest>,
}

#[derive(Deserialize)]
struct NoteAttributes {
    id: u64,
    note: String,
    /// Missing before GitLab 16.11, where a hook is about a new note.
    action: Option<String>,
    #[serde(default)]
    system: bool,
}

#[derive(Deserialize)]
struct NotedMergeRequest {
    iid: u64,
    state: String,
    author_id: Option<u64>,
}

fn user(user: HookUser) -> Author {
    Author {
        id: Some(user.id),
        login: Some(user.username),
        ..Author::default()
    }
}

/// Returns the author with this id, which is often who caused the hook.
fn author(id: Option<u64>, sender: &Author) -> Author {
    if id.is_some() && id == sender.id {
        return sender.clone();
    }
    Author {
        id,
        ..Author::default()
    }
}

/// Parses the delivery of `event` (the header `X-Gitlab-Event`) with this body, for `repository`.
pub(super) fn parse(
    event: &str,
    body: &[u8],
    repository: &Repository,
) -> Result<Delivery, Rejection> {
    let project = |subject: Subject| subject.project.map(|found| found.path_with_namespace);
    match event {
        "Merge Request Hook" => {
            let body: MergeRequestBody = parse_body(body, repository, project)?;
            let sender = user(body.user);
            let request = body.object_attributes;
            let is_ready = body
                .changes
                .draft
                .is_some_and(|draft| draft.current == Some(false));
            let change = match (request.action.as_deref(), request.oldrev) {
                (Some("open" | "reopen"), _) => Change::Opened,
                (Some("close" | "merge"), _) => Change::Closed,
                (Some("update"), Some(before)) => Change::Pushed {
                    before: Some(before).filter(|before| is_commit(before)),
                },
                (Some("update"), None) if is_ready => Change::Opened,
                _ => Change::Other,
            };
            Ok(Delivery::PullRequest(PullRequestDelivery {
                change,
                number: request.iid,
                draft: request.draft,
                head: head(&request.last_commit.id)?,
                author: author(request.author_id, &sender),
                sender,
            }))
        }
        "Note Hook" => {
            let body: NoteBody = parse_body(body, repository, project)?;
            let NoteAttributes {
                id,
                note,
                action,
                system,
            } = body.object_attributes;
            let by = user(body.user);
            let of = |request: &NotedMergeRequest| author(request.author_id, &by);
            let request = body.merge_request.as_ref();
            Ok(Delivery::Comment(CommentDelivery {
                is_new: !system && action.is_none_or(|action| action == "create"),
                on_pull_request: request.is_some(),
                number: request.map_or(0, |request| request.iid),
                is_open: request.is_some_and(|request| request.state == "opened"),
                pull_request_author: request.map(of).unwrap_or_default(),
                comment: id,
                text: note,
                author: by,
            }))
        }
        _ => Err(Rejection::OtherEvent),
    }
}
