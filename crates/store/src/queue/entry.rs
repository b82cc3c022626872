//! Jobs and replies in the queue, and the changes of a delivery.

use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::columns::{column, record};

/// The value of a trusted author in the database: no flipped bit makes it of another value.
pub(super) const TRUSTED: i64 = 8390898194479146017;

/// The state of a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, EnumString, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum JobState {
    /// It waits for its turn.
    Waiting,
    /// It waits for an approval of its commit; its result lists the files, one per line.
    Held,
    /// It is running.
    Running,
    /// It succeeded.
    Done,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Returns its name in the database.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A job that is not in the queue yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewJob {
    /// The commit; empty until [`Queue::pin`](super::Queue::pin) names it. Nobody has seen later ones, so the job does not start before.
    pub head: String,
    /// The command.
    pub command: String,
    /// The login of the requester.
    pub asked_by: String,
    /// Whether the author of the code is trusted.
    #[serde(skip)]
    pub trusted: bool,
}

/// A job in the queue. As JSON, what everybody may know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Its number.
    pub id: i64,
    /// The repository, as `owner/name`.
    #[serde(skip)]
    pub repository: String,
    /// The pull request.
    pub number: u64,
    /// The content.
    #[serde(flatten)]
    pub job: NewJob,
    /// Where it is.
    pub state: JobState,
    /// Number of starts, not counting those that ended in a regular stop or a postponement.
    #[serde(skip)]
    pub attempts: u32,
    /// Time of the request, in seconds since 1970.
    pub received: i64,
    /// Time of the last start, likewise.
    pub started: Option<i64>,
    /// Time of the end, likewise.
    pub ended: Option<i64>,
    /// The result, in one line; for a held job the files, for a waiting one the reason of its postponement.
    pub result: String,
}

/// A reply to a comment in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its number.
    pub id: i64,
    /// The pull request.
    pub number: u64,
    /// The comment's id; ignored without a reaction.
    pub comment: u64,
    /// The reaction's name; empty for none.
    pub reaction: String,
    /// Markdown from this program for the bot's own comment; may be empty.
    pub answer: String,
    /// Number of attempts.
    pub attempts: u32,
}

/// A delivery that was received, with the changes that it causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedDelivery {
    /// Its id, which is not signed.
    pub id: String,
    /// The SHA-256 of its signed body, in hexadecimal. Deliveries of different events have different bodies, because
    /// these contain ids and times; equal ones are the same delivery under another id.
    pub body_digest: String,
    /// The pull request that it is about.
    pub number: u64,
    /// Its changes.
    pub changes: Vec<QueueChange>,
}

/// A commit that was pushed to a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The commit.
    pub head: String,
    /// The commit that it replaced, as a delivery tells, which may arrive after that of a later push. `None` if `head` counts as
    /// the latest commit: it is known to be, or the delivery does not tell.
    pub before: Option<String>,
    /// Whether whoever pushed it is trusted.
    pub trusted: bool,
}

impl Push {
    /// Returns the commit that was pushed, if any, and the one that it replaced, if known.
    pub(super) fn commits(push: Option<&Self>) -> (Option<&str>, Option<&str>) {
        let head = push.map(|push| push.head.as_str());
        (head, push.and_then(|push| push.before.as_deref()))
    }
}

/// A change of what the queue has about a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueChange {
    /// Adds a job. If it names its commit, jobs of other commits of the same pull request are cancelled.
    Add(NewJob),
    /// Cancels the waiting and running jobs of a pull request, and ends its approvals. A delivery of a push decides about the
    /// commits that it names; about jobs and approvals of others, it raises a doubt ([`Queue::doubts`](super::Queue::doubts)).
    Cancel {
        /// If set, the commit that was pushed: only jobs and approvals of other commits end. Jobs whose commit is not known
        /// yet will use the latest one and stay, unless the author or whoever pushed is not trusted, because the
        /// requester had seen another commit. If whoever pushed to a trusted author's branch is not trusted, no job stays.
        newer: Option<Push>,
        /// The reason, in one line.
        why: String,
    },
    /// Raises a doubt ([`Queue::doubts`](super::Queue::doubts)) about all jobs and approvals of a pull request: a delivery says
    /// that it was closed, but another that says that it was opened again may have arrived before.
    Doubt,
    /// Cancels the waiting and running jobs of a pull request on command, and replies.
    CancelAll {
        /// The reason, in one line.
        why: String,
        /// The id of the comment with the command.
        comment: u64,
    },
    /// Replies to a comment.
    Reply {
        /// The comment's id.
        comment: u64,
        /// The reaction's name.
        reaction: &'static str,
        /// Markdown from this program for the bot's own comment; may be empty.
        answer: String,
    },
    /// Approves a commit that jobs of this pull request are held for, and replies.
    Approve {
        /// The full commit id.
        commit: String,
        /// The login of the approver.
        by: String,
        /// The id of the approving comment.
        comment: u64,
    },
    /// Accepts that a patch of the commit that the last finished job of this pull request measured is slower, and replies.
    Accept(NewAcceptance),
}

/// An acceptance of a patch that is not in the queue yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAcceptance {
    /// The patch's number, from 1.
    pub patch: usize,
    /// Why.
    pub reason: String,
    /// The digest of the configuration.
    pub configuration: String,
    /// The login of whoever accepts.
    pub by: String,
    /// The id of the accepting comment.
    pub comment: u64,
}

/// The latest acceptance of a patch of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance {
    /// The commit that was measured.
    pub head: String,
    /// The digest of the configuration.
    pub configuration: String,
    /// The patch's number, from 1.
    pub patch: usize,
    /// Why.
    pub reason: String,
}

record!(NewJob: head, command, asked_by, trusted as "trusted = 8390898194479146017");
record!(
    Job: id, repository, number, job as "head, command, asked_by, trusted = 8390898194479146017", state, attempts, received, started, ended,
    result
);
record!(Acceptance: head, configuration, patch, reason);
record!(Reply: id, number, comment, reaction, answer, attempts);

column!(
    JobState as String: |state| state.name().to_owned(), |name| name.parse().unwrap_or(JobState::Failed);
);
