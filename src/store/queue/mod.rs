//! The bot's queue: which deliveries came, and what is to be done for which pull request. A delivery and what
//! follows from it are one transaction, so that a kill at any moment loses nothing and does nothing twice.

mod entry;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::schema;
use crate::error::{Error, Result};

pub use entry::{Change, Job, JobState, NewJob, NewReply, Reply};
use entry::{SELECT, read};

/// The database of the bot ("pquQ").
const QUEUE: schema::Kind = schema::Kind {
    application: 0x7071_7551,
    migrations: &[
        "
    CREATE TABLE deliveries (
        id       TEXT PRIMARY KEY,
        received INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX deliveries_by_time ON deliveries (received);
    CREATE TABLE jobs (
        id         INTEGER PRIMARY KEY AUTOINCREMENT,
        repository TEXT NOT NULL,
        number     INTEGER NOT NULL,
        head       TEXT NOT NULL,
        command    TEXT NOT NULL,
        asked_by   TEXT NOT NULL,
        trusted    INTEGER NOT NULL,
        state      TEXT NOT NULL,
        attempts   INTEGER NOT NULL DEFAULT 0,
        received   INTEGER NOT NULL,
        started    INTEGER,
        ended      INTEGER,
        result     TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE INDEX jobs_by_state ON jobs (state, id);
    CREATE TABLE replies (
        id         INTEGER PRIMARY KEY AUTOINCREMENT,
        repository TEXT NOT NULL,
        number     INTEGER NOT NULL,
        comment    INTEGER NOT NULL,
        reaction   TEXT NOT NULL,
        answer     TEXT NOT NULL,
        attempts   INTEGER NOT NULL DEFAULT 0,
        not_before INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX jobs_by_pull_request ON jobs (repository, number);
",
        "
    CREATE TABLE approvals (
        repository TEXT NOT NULL,
        number     INTEGER NOT NULL,
        head       TEXT NOT NULL,
        approver   TEXT NOT NULL,
        given      INTEGER NOT NULL,
        PRIMARY KEY (repository, number, head)
    ) STRICT, WITHOUT ROWID;
",
    ],
    name: "queue",
    maker: "perfquilt bot serve",
};

/// How often a job is begun before it counts as one that ends the program.
const MOST_ATTEMPTS: u32 = 3;
/// Seconds for which deliveries are remembered; GitHub repeats them for three days.
const REMEMBERED: i64 = 7 * 86_400;

/// The bot's queue.
#[derive(Debug)]
pub struct Queue {
    connection: Connection,
    path: PathBuf,
}

impl Queue {
    /// Opens the queue at `path`, making it where it is missing.
    ///
    /// # Errors
    /// As [`super::Store::open`].
    pub fn open(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        }
        Ok(Queue {
            connection: schema::open(&QUEUE, path, true)?,
            path: path.to_path_buf(),
        })
    }

    /// Takes deliveries, all or none: remembers their ids and makes their changes, or does nothing for one that
    /// came before. Says of each whether it was new.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when they cannot be stored; then nothing is changed.
    pub fn take_all(&self, deliveries: &[(String, Vec<Change>)], now: i64) -> Result<Vec<bool>> {
        let transaction = self.transaction()?;
        let mut new = Vec::new();
        for (delivery, changes) in deliveries {
            new.push(self.take_one(&transaction, delivery, changes, now)?);
        }
        transaction
            .execute(
                "DELETE FROM deliveries WHERE received < ?1",
                [now - REMEMBERED],
            )
            .map_err(self.failed("write"))?;
        transaction.commit().map_err(self.failed("write"))?;
        Ok(new)
    }

    fn take_one(
        &self,
        transaction: &Transaction<'_>,
        delivery: &str,
        changes: &[Change],
        now: i64,
    ) -> Result<bool> {
        let new = transaction
            .execute(
                "INSERT OR IGNORE INTO deliveries VALUES (?1, ?2)",
                params![delivery, now],
            )
            .map_err(self.failed("write"))?;
        if new == 0 {
            return Ok(false);
        }
        for change in changes {
            self.make(transaction, change, now)?;
        }
        Ok(true)
    }

    fn make(&self, transaction: &Transaction<'_>, change: &Change, now: i64) -> Result<()> {
        let cancel = "UPDATE jobs SET state = 'cancelled', ended = ?1, result = ?2
                      WHERE state IN ('waiting', 'held', 'running') AND repository = ?3 AND number = ?4";
        let result = match change {
            Change::Cancel { repository, number, why } => {
                transaction.execute(cancel, params![now, why, repository, signed(*number)])
            }
            Change::Reply(reply) => to_be_answered(transaction, reply),
            Change::Approve { repository, number, commit, by, comment } => {
                approve(transaction, (repository, *number, commit), by, now).and_then(|held| {
                    let (reaction, answer) = match held {
                        0 => ("confused", "Nothing done: nothing waits for an approval of this commit."),
                        _ => ("rocket", ""),
                    };
                    let reply = NewReply {
                        repository: repository.clone(),
                        number: *number,
                        comment: *comment,
                        reaction: reaction.to_owned(),
                        answer: answer.to_owned(),
                    };
                    to_be_answered(transaction, &reply)
                })
            }
            Change::Add(job) => transaction
                .execute(
                    &format!("{cancel} AND head <> ?5 AND ?5 <> ''"),
                    params![now, "a newer commit", job.repository, signed(job.number), job.head],
                )
                .and_then(|_| {
                    // The same wish twice is one job.
                    transaction.execute(
                        "INSERT INTO jobs (repository, number, head, command, asked_by, trusted, state, received)
                         SELECT ?1, ?2, ?3, ?4, ?5, ?6, 'waiting', ?7
                         WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE state IN ('waiting', 'held', 'running')
                             AND repository = ?1 AND number = ?2 AND head = ?3 AND command = ?4)",
                        params![
                            job.repository,
                            signed(job.number),
                            job.head,
                            job.command,
                            job.asked_by,
                            job.trusted,
                            now
                        ],
                    )
                }),
        };
        result.map(|_| ()).map_err(self.failed("write"))
    }

    /// Puts back what was running when the program ended, however it did; what ended it too often counts as
    /// failed. To be called once, before [`Queue::next`].
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be stored.
    pub fn recover(&self, now: i64) -> Result<usize> {
        let transaction = self.transaction()?;
        transaction
            .execute(
                "UPDATE jobs SET state = 'failed', ended = ?1, result = 'the bot ended while it ran, several times'
                 WHERE state = 'running' AND attempts >= ?2",
                params![now, MOST_ATTEMPTS],
            )
            .map_err(self.failed("write"))?;
        let back = transaction
            .execute(
                "UPDATE jobs SET state = 'waiting' WHERE state = 'running'",
                [],
            )
            .map_err(self.failed("write"))?;
        transaction.commit().map_err(self.failed("write"))?;
        Ok(back)
    }

    /// Begins the job that waits longest, one that was begun before first.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the queue cannot be read or written.
    pub fn next(&self, now: i64) -> Result<Option<Job>> {
        let transaction = self.transaction()?;
        let id: Option<i64> = transaction
            .query_row(
                "SELECT id FROM jobs WHERE state = 'waiting' ORDER BY attempts = 0, id LIMIT 1",
                [],
                |row| row.get(0),
            )
            .optional()
            .map_err(self.failed("read"))?;
        let Some(id) = id else {
            return Ok(None);
        };
        transaction
            .execute(
                "UPDATE jobs SET state = 'running', started = ?2, attempts = attempts + 1 WHERE id = ?1",
                params![id, now],
            )
            .map_err(self.failed("write"))?;
        let job = transaction
            .query_row(&format!("{SELECT} WHERE id = ?1"), [id], read)
            .map_err(self.failed("read"))?;
        transaction.commit().map_err(self.failed("write"))?;
        Ok(Some(job))
    }

    /// Ends a job; one that was cancelled meanwhile stays so.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be stored.
    pub fn end(&self, id: i64, state: JobState, result: &str, now: i64) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET state = ?2, result = ?3, ended = ?4 WHERE id = ?1 AND state = 'running'",
                params![id, state.name(), result, now],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// Has a running job wait until somebody approves the commit `head`, for what it does to `files`.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be stored.
    pub fn hold(&self, id: i64, head: &str, files: &str) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET state = 'held', head = ?2, result = ?3, attempts = 0
                 WHERE id = ?1 AND state = 'running'",
                params![id, head, files],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// Whether somebody approved the commit `head` of a pull request.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the queue cannot be read.
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

    /// Where a job is now.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the queue cannot be read.
    pub fn state(&self, id: i64) -> Result<Option<JobState>> {
        self.connection
            .query_row(&format!("{SELECT} WHERE id = ?1"), [id], read)
            .optional()
            .map(|job| job.map(|job| job.state))
            .map_err(self.failed("read"))
    }

    /// What runs and waits, in the order it is done, and the last `ended` jobs that ended, the latest first.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the queue cannot be read.
    pub fn list(&self, ended: usize) -> Result<(Vec<Job>, Vec<Job>)> {
        let open = format!(
            "{SELECT} WHERE state IN ('running', 'waiting', 'held')
             ORDER BY state <> 'running', state = 'held', attempts = 0, id"
        );
        let past = format!(
            "{SELECT} WHERE state NOT IN ('running', 'waiting', 'held') ORDER BY ended DESC, id DESC LIMIT {ended}"
        );
        Ok((self.select(&open)?, self.select(&past)?))
    }

    /// How many jobs are in each state.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the queue cannot be read.
    pub fn counts(&self) -> Result<Vec<(JobState, u64)>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT count(*) FROM jobs WHERE state = ?1")
            .map_err(self.failed("read"))?;
        JobState::ALL
            .into_iter()
            .map(|state| {
                let count: i64 = statement
                    .query_row([state.name()], |row| row.get(0))
                    .map_err(self.failed("read"))?;
                Ok((state, count.unsigned_abs()))
            })
            .collect()
    }

    /// The answer that waits longest and may be tried at `now`.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the queue cannot be read.
    pub fn next_reply(&self, now: i64) -> Result<Option<Reply>> {
        self.connection
            .query_row(
                "SELECT id, repository, number, comment, reaction, answer, attempts FROM replies
                 WHERE not_before <= ?1 ORDER BY id LIMIT 1",
                [now],
                |row| {
                    let (number, comment): (i64, i64) = (row.get(2)?, row.get(3)?);
                    Ok(Reply {
                        id: row.get(0)?,
                        reply: NewReply {
                            repository: row.get(1)?,
                            number: number.unsigned_abs(),
                            comment: comment.unsigned_abs(),
                            reaction: row.get(4)?,
                            answer: row.get(5)?,
                        },
                        attempts: row.get(6)?,
                    })
                },
            )
            .optional()
            .map_err(self.failed("read"))
    }

    /// An answer was given, or will never be.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be stored.
    pub fn answered(&self, id: i64) -> Result<()> {
        self.connection
            .execute("DELETE FROM replies WHERE id = ?1", [id])
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// An answer could not be given and is to be tried again, not before this time.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be stored.
    pub fn later(&self, id: i64, not_before: i64) -> Result<()> {
        self.connection
            .execute(
                "UPDATE replies SET attempts = attempts + 1, not_before = ?2 WHERE id = ?1",
                [id, not_before],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    fn select(&self, text: &str) -> Result<Vec<Job>> {
        let mut statement = self
            .connection
            .prepare_cached(text)
            .map_err(self.failed("read"))?;
        let rows = statement.query_map([], read).map_err(self.failed("read"))?;
        rows.collect::<rusqlite::Result<_>>()
            .map_err(self.failed("read"))
    }

    fn transaction(&self) -> Result<Transaction<'_>> {
        Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)
            .map_err(self.failed("write"))
    }

    fn failed(&self, what: &'static str) -> impl Fn(rusqlite::Error) -> Error + '_ {
        move |error| schema::explain(&QUEUE, &self.path, what, &error)
    }
}

fn to_be_answered(transaction: &Transaction<'_>, reply: &NewReply) -> rusqlite::Result<usize> {
    transaction.execute(
        "INSERT INTO replies (repository, number, comment, reaction, answer) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            reply.repository,
            signed(reply.number),
            signed(reply.comment),
            reply.reaction,
            reply.answer
        ],
    )
}

/// Remembers the approval of a commit that jobs are held for, and has them wait for their turn; returns how
/// many.
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

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
