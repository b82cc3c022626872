//! What is in the queue, and what a delivery changes of it.

use rusqlite::Row;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waits for its turn.
    Waiting,
    /// Waits until somebody approves its commit; its result names the files, a line each.
    Held,
    /// Is being done.
    Running,
    /// Is done.
    Done,
    /// Could not be done.
    Failed,
    /// Is not wanted any more.
    Cancelled,
}

impl JobState {
    /// All of them.
    pub const ALL: [JobState; 6] = [
        JobState::Waiting,
        JobState::Held,
        JobState::Running,
        JobState::Done,
        JobState::Failed,
        JobState::Cancelled,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Held => "held",
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }
}

/// A job that is not in the queue yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The repository of the pull request, as `owner/name`.
    pub repository: String,
    /// The pull request.
    pub number: u64,
    /// The commit; empty where the one is meant that is the last when its turn comes. A job that was held names
    /// the commit it was held for.
    pub head: String,
    /// What to do, in the words of a command.
    pub command: String,
    /// Who asked.
    pub asked_by: String,
    /// Whether the author of the code is trusted.
    pub trusted: bool,
}

/// A job in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: i64,
    /// What it is.
    pub job: NewJob,
    /// Where it is.
    pub state: JobState,
    /// How often it was begun, but for when it was stopped in order or put off.
    pub attempts: u32,
    /// When it came, in seconds since 1970.
    pub received: i64,
    /// When it was begun last, likewise.
    pub started: Option<i64>,
    /// When it ended, likewise.
    pub ended: Option<i64>,
    /// What it came to, in a line; of a held job the files, of one that waits why it was put off.
    pub result: String,
}

/// An answer to a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReply {
    /// The repository of the pull request.
    pub repository: String,
    /// The pull request.
    pub number: u64,
    /// The comment's id; of no meaning without a reaction.
    pub comment: u64,
    /// The reaction's name; empty for none.
    pub reaction: String,
    /// What is told in our own comment, in Markdown of this program; may be empty.
    pub answer: String,
}

/// An answer that waits to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its number.
    pub id: i64,
    /// What it is.
    pub reply: NewReply,
    /// How often it was tried.
    pub attempts: u32,
}

/// What a delivery changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A job is added. Jobs of other commits of the same pull request are cancelled, if it names its commit.
    Add(NewJob),
    /// What waits or runs for this pull request is cancelled.
    Cancel {
        /// The repository.
        repository: String,
        /// The pull request.
        number: u64,
        /// Only what is not about this commit, which was pushed. What waits without a commit is about the last
        /// one and stays; not for an author who is not trusted: whoever asked had another commit before them.
        newer: Option<String>,
        /// Why, in a line.
        why: String,
    },
    /// A comment is to be answered.
    Reply(NewReply),
    /// Somebody who may approves a commit that jobs of this pull request are held for; is answered.
    Approve {
        /// The repository.
        repository: String,
        /// The pull request.
        number: u64,
        /// The whole commit id.
        commit: String,
        /// Who approves.
        by: String,
        /// The id of the comment that says so.
        comment: u64,
    },
}

/// Columns of a job, in the order in which [`read`] takes them.
pub(super) const SELECT: &str =
    "SELECT id, repository, number, head, command, asked_by, trusted, state, attempts, received,
    started, ended, result FROM jobs";

/// A row of [`SELECT`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Job> {
    let state: String = row.get(7)?;
    let number: i64 = row.get(2)?;
    Ok(Job {
        id: row.get(0)?,
        job: NewJob {
            repository: row.get(1)?,
            number: number.unsigned_abs(),
            head: row.get(3)?,
            command: row.get(4)?,
            asked_by: row.get(5)?,
            trusted: row.get(6)?,
        },
        state: JobState::ALL
            .into_iter()
            .find(|known| known.name() == state)
            .unwrap_or(JobState::Failed),
        attempts: row.get(8)?,
        received: row.get(9)?,
        started: row.get(10)?,
        ended: row.get(11)?,
        result: row.get(12)?,
    })
}
