//! Approvals of commits, and jobs that are held for them.

use rusqlite::{Transaction, params};

use super::{NewReply, Push, Queue, replies, signed};
use perfquilt_model::error::Result;

impl Queue {
    /// Holds a running job until the commit `head` is approved, because of its changes to `files`.
    pub fn hold(&self, id: i64, head: &str, files: &str) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET state = 'held', head = ?2, result = ?3, attempts = 0, started = NULL
                 WHERE id = ?1 AND state = 'running'",
                params![id, head, files],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// Returns whether the commit `head` of a pull request is approved.
    pub fn is_approved(&self, repository: &str, number: u64, head: &str) -> Result<bool> {
        self.connection
            .query_row(
                "SELECT count(*) FROM approvals WHERE repository = ?1 AND number = ?2 AND head = ?3",
                params![repository, signed(number), head],
                |row| row.get::<_, i64>(0),
            )
            .map(|count| count > 0)
            .map_err(self.failed("read"))
    }
}

/// Approves a commit of a pull request and queues a reply to the approving comment.
pub(super) fn give(
    transaction: &Transaction<'_>,
    about: (&str, u64, &str),
    (by, comment): (&str, u64),
    now: i64,
) -> rusqlite::Result<()> {
    let (reaction, answer) = match approve(transaction, about, by, now)? {
        0 => (
            "confused",
            "Nothing done: nothing waits for an approval of this commit.",
        ),
        _ => ("rocket", ""),
    };
    let reply = NewReply {
        repository: about.0.to_owned(),
        number: about.1,
        comment,
        reaction: reaction.to_owned(),
        answer: answer.to_owned(),
    };
    replies::add(transaction, &reply)
}

/// Stores the approval of a commit that jobs are held for, and releases these jobs; returns their number.
fn approve(
    transaction: &Transaction<'_>,
    (repository, number, commit): (&str, u64, &str),
    by: &str,
    now: i64,
) -> rusqlite::Result<usize> {
    let held = transaction.execute(
        "UPDATE jobs SET state = 'waiting', result = ''
         WHERE state = 'held' AND repository = ?1 AND number = ?2 AND head = ?3",
        params![repository, signed(number), commit],
    )?;
    if held > 0 {
        transaction.execute(
            "INSERT OR IGNORE INTO approvals VALUES (?1, ?2, ?3, ?4, ?5)",
            params![repository, signed(number), commit, by, now],
        )?;
    }
    Ok(held)
}

/// Ends the approvals of a pull request that was closed, or of other commits than the `newer` one. An approved commit that is
/// pushed again later needs another approval.
pub(super) fn end(
    transaction: &Transaction<'_>,
    (repository, number): (&str, i64),
    newer: Option<&Push>,
) -> rusqlite::Result<()> {
    let head = newer.map(|push| push.head.as_str());
    let before = newer.and_then(|push| push.before.as_deref());
    transaction
        .execute(
            "DELETE FROM approvals WHERE repository = ?1 AND number = ?2
             AND (?3 IS NULL OR (head <> ?3 AND (?4 IS NULL OR head = ?4)))",
            params![repository, number, head, before],
        )
        .map(drop)
}
