//! The bot's queue: which deliveries came, and what is to be done for which pull request. A delivery and what
//! follows from it are one transaction, so that a kill at any moment loses nothing and does nothing twice.

mod approvals;
mod entry;
mod others;
mod replies;
mod taken;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Params, Transaction, TransactionBehavior, params};

use super::schema;
use perfquilt_model::error::{Error, Result};

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
        "
    -- What could not be done because GitHub could not be reached is tried again, and how often that was so.
    ALTER TABLE jobs ADD COLUMN not_before INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN outages INTEGER NOT NULL DEFAULT 0;
",
        "
    -- The commit that a running job was found to be about; empty until that is known.
    ALTER TABLE jobs ADD COLUMN taken TEXT NOT NULL DEFAULT '';
",
    ],
    name: "queue",
    maker: "perfquilt bot serve",
};

/// How often a job is begun before it counts as one that ends the program.
const MOST_ATTEMPTS: u32 = 3;
/// How often a job is put off.
const MOST_OUTAGES: u32 = 8;
/// Seconds for which it is put off the first time; each further time twice as long.
const FIRST_PAUSE: i64 = 60;
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
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when they cannot be stored; then nothing is changed.
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
        let result = match change {
            Change::Cancel {
                repository,
                number,
                newer,
                why,
            } => cancel(
                transaction,
                (repository, *number),
                newer.as_deref(),
                why,
                now,
            ),
            Change::Reply(reply) => replies::add(transaction, reply),
            Change::Approve {
                repository,
                number,
                commit,
                by,
                comment,
            } => {
                let about = (repository.as_str(), *number, commit.as_str());
                approvals::give(transaction, about, (by, *comment), now)
            }
            Change::Add(job) => add(transaction, job, now),
        };
        result.map_err(self.failed("write"))
    }

    /// Puts back what was running when the program ended without a word; what ended it too often counts as
    /// failed. Returns how many go on, and the jobs that are given up. To be called once, before
    /// [`Queue::next`].
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be stored.
    pub fn recover(&self, now: i64) -> Result<(usize, Vec<Job>)> {
        let transaction = self.transaction()?;
        let given_up = self.select(
            &format!(
                "{SELECT} WHERE state = 'running' AND attempts >= {MOST_ATTEMPTS} ORDER BY id"
            ),
            [],
        )?;
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
        Ok((back, given_up))
    }

    /// Puts back a running job that was stopped in order; that it was begun does not count.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be stored.
    pub fn put_back(&self, id: i64) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET state = 'waiting', attempts = attempts - 1
                 WHERE id = ?1 AND state = 'running'",
                [id],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// Has a running job wait for better times because of `why`, each time longer, and the comment say so.
    /// Returns whether it does: not when that happened too often, or it is cancelled.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be stored.
    pub fn postpone(&self, job: &Job, why: &str, now: i64) -> Result<bool> {
        let transaction = self.transaction()?;
        let postponed = transaction
            .execute(
                "UPDATE jobs SET state = 'waiting', attempts = attempts - 1, result = ?2,
                     not_before = ?3 + (?4 << outages), outages = outages + 1
                 WHERE id = ?1 AND state = 'running' AND outages < ?5",
                params![job.id, why, now, FIRST_PAUSE, MOST_OUTAGES],
            )
            .map_err(self.failed("write"))?;
        if postponed > 0 {
            replies::bring_up_to_date(&transaction, &job.job.repository, job.job.number)
                .map_err(self.failed("write"))?;
        }
        transaction.commit().map_err(self.failed("write"))?;
        Ok(postponed > 0)
    }

    /// Begins the job that waits longest of those that may begin at `now`, one that was begun before first.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the queue cannot be read or written.
    pub fn next(&self, now: i64) -> Result<Option<Job>> {
        let transaction = self.transaction()?;
        let id: Option<i64> = transaction
            .query_row(
                "SELECT id FROM jobs WHERE state = 'waiting' AND not_before <= ?1
                 ORDER BY started IS NULL, id LIMIT 1",
                [now],
                |row| row.get(0),
            )
            .optional()
            .map_err(self.failed("read"))?;
        let Some(id) = id else {
            return Ok(None);
        };
        transaction
            .execute(
                "UPDATE jobs SET state = 'running', started = ?2, attempts = attempts + 1, not_before = 0, result = '',
                     taken = ''
                 WHERE id = ?1",
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
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be stored.
    pub fn end(&self, id: i64, state: JobState, result: &str, now: i64) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET state = ?2, result = ?3, ended = ?4 WHERE id = ?1 AND state = 'running'",
                params![id, state.name(), result, now],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// Where a job is now.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the queue cannot be read.
    pub fn state(&self, id: i64) -> Result<Option<JobState>> {
        self.connection
            .query_row(&format!("{SELECT} WHERE id = ?1"), [id], read)
            .optional()
            .map(|job| job.map(|job| job.state))
            .map_err(self.failed("read"))
    }

    /// What runs and waits, in the order it is done as things are at `now`, and the last `ended` jobs that ended,
    /// the latest first.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the queue cannot be read.
    pub fn list(&self, ended: usize, now: i64) -> Result<(Vec<Job>, Vec<Job>)> {
        let open = format!(
            "{SELECT} WHERE state IN ('running', 'waiting', 'held')
             ORDER BY state <> 'running', state = 'held', max(not_before, ?1), started IS NULL, id"
        );
        let past = format!(
            "{SELECT} WHERE state NOT IN ('running', 'waiting', 'held') ORDER BY ended DESC, id DESC LIMIT {ended}"
        );
        Ok((self.select(&open, [now])?, self.select(&past, [])?))
    }

    /// How many jobs are in each state.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the queue cannot be read.
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

    fn select(&self, text: &str, values: impl Params) -> Result<Vec<Job>> {
        let mut statement = self
            .connection
            .prepare_cached(text)
            .map_err(self.failed("read"))?;
        let rows = statement
            .query_map(values, read)
            .map_err(self.failed("read"))?;
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

/// Adds a job and cancels those of other commits.
fn add(transaction: &Transaction<'_>, job: &NewJob, now: i64) -> rusqlite::Result<()> {
    if !job.head.is_empty() {
        let about = (job.repository.as_str(), job.number);
        cancel(
            transaction,
            about,
            Some(job.head.as_str()),
            "a newer commit",
            now,
        )?;
    }
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
    )?;
    Ok(())
}

/// Cancels what waits or runs for a pull request; with `newer`, only jobs of other commits than that one, as
/// [`Change::Cancel`] says.
/// Whoever does a running job tells that it is cancelled; for the others the comment is brought up to date.
fn cancel(
    transaction: &Transaction<'_>,
    (repository, number): (&str, u64),
    newer: Option<&str>,
    why: &str,
    now: i64,
) -> rusqlite::Result<()> {
    // What begins just now, and does not know its commit yet, will find the last one.
    let meant = "repository = ?1 AND number = ?2 AND (?3 IS NULL OR CASE
             WHEN head <> '' THEN head <> ?3
             WHEN state = 'running' THEN taken NOT IN ('', ?3)
             ELSE NOT trusted END)";
    let waited: i64 = transaction.query_row(
        &format!("SELECT count(*) FROM jobs WHERE state IN ('waiting', 'held') AND {meant}"),
        params![repository, signed(number), newer],
        |row| row.get(0),
    )?;
    transaction.execute(
        &format!(
            "UPDATE jobs SET state = 'cancelled', ended = ?4, result = ?5
             WHERE state IN ('waiting', 'held', 'running') AND {meant}"
        ),
        params![repository, signed(number), newer, now, why],
    )?;
    match waited {
        0 => Ok(()),
        _ => replies::bring_up_to_date(transaction, repository, number),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
