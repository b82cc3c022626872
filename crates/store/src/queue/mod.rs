//! The bot's queue of jobs and replies, with the deliveries received. A delivery and its changes are one
//! transaction, so a crash neither loses a delivery nor applies it twice.

mod acceptances;
mod approvals;
mod doubts;
mod entry;
mod pins;
mod replies;
#[cfg(test)]
mod tests;

use std::path::Path;

use rusqlite::{Params, params};
use strum::VariantArray;

use super::database::Database;
use super::schema;
use perfquilt_model::error::Result;

use entry::TRUSTED;
pub use entry::{
    Acceptance, Job, JobState, NewAcceptance, NewJob, Push, QueueChange, ReceivedDelivery, Reply,
};

/// The database of the bot ("pquQ").
const QUEUE: schema::DatabaseKind = schema::DatabaseKind {
    application: 0x7071_7551,
    tables: include_str!("queue.sql"),
    version: 9,
    name: "queue",
    maker: "perfquilt bot serve",
    export: "that perfquilt can finish its jobs, and pull requests are found again without the file",
};

/// The number of starts after which a job that was running when the bot ended counts as failed.
const MOST_ATTEMPTS: u32 = 3;
/// The largest number of postponements of a job.
const MOST_OUTAGES: u32 = 8;
/// Seconds of the first postponement; each further one takes twice as long.
const FIRST_PAUSE: i64 = 60;
/// Bytes that the queue reserves on its disk: a delivery takes a few pages until the log is written back.
const RESERVE: u64 = 4 << 20;

/// The bot's queue, of the pull requests of one repository.
#[derive(Debug)]
pub struct Queue {
    database: Database,
    repository: String,
}

impl Queue {
    /// Opens the queue at `path` for the pull requests of `repository` (`owner/name`), creating it if it is missing.
    pub fn open(path: &Path, repository: String) -> Result<Self> {
        Ok(Queue {
            database: Database::open(&QUEUE, path, true)?,
            repository,
        })
    }

    /// Reserves room on the disk for changes, as free pages of the file and as a write-ahead log of that size, as long as this
    /// connection is open: a disk that somebody else fills delays no delivery.
    pub fn reserve(&self) -> Result<()> {
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS reserve (bytes BLOB); INSERT INTO reserve VALUES (zeroblob({RESERVE})); DROP TABLE reserve;"
        );
        let failed = self.database.failed("reserve room in");
        self.database
            .transaction(|| self.database.connection.execute_batch(&sql).map_err(failed))?;
        let checkpoint =
            self.database
                .connection
                .query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        checkpoint.map_err(self.database.failed("write"))
    }

    /// Applies deliveries in one transaction: stores their ids and digests and applies their changes, except for
    /// deliveries received before. Returns for each whether it was new.
    pub fn apply_deliveries(&self, deliveries: &[ReceivedDelivery], now: i64) -> Result<Vec<bool>> {
        self.database.transaction(|| {
            // Their digests stay for good: a delivery has no date to tell an old one by.
            deliveries
                .iter()
                .map(|delivery| self.apply_delivery(delivery, now))
                .collect()
        })
    }

    fn apply_delivery(&self, delivery: &ReceivedDelivery, now: i64) -> Result<bool> {
        let new = self.database.execute(
            "INSERT OR IGNORE INTO deliveries (id, received, body)
             SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM deliveries WHERE body = ?3)",
            params![delivery.id, now, delivery.body_digest],
        )?;
        if new == 0 {
            return Ok(false);
        }
        for change in &delivery.changes {
            self.apply(delivery.number, change, now)?;
        }
        Ok(true)
    }

    fn apply(&self, number: u64, change: &QueueChange, now: i64) -> Result<()> {
        match change {
            QueueChange::Add(job) => self.add(number, job, now),
            QueueChange::Cancel { newer, why } => self.follow(number, newer.as_ref(), why, now),
            QueueChange::Doubt => self.raise_doubt(number, None),
            QueueChange::CancelAll { why, comment } => {
                let done = self.cancel(number, None, why, now)? > 0;
                let why_not = "no job of this pull request is running or waiting";
                self.confirm(number, *comment, done, "+1", why_not)
            }
            QueueChange::Reply {
                comment,
                reaction,
                answer,
            } => self.reply(number, *comment, reaction, answer),
            QueueChange::Approve {
                commit,
                by,
                comment,
            } => {
                let done = self.approve(number, commit, by, now)?;
                let why_not = "nothing waits for an approval of this commit";
                self.confirm(number, *comment, done, "rocket", why_not)
            }
            QueueChange::Accept(acceptance) => {
                let done = self.accept(number, acceptance, now)?;
                let why_not = "this pull request has no result to accept";
                self.confirm(number, acceptance.comment, done, "+1", why_not)
            }
        }
    }

    /// Makes a change that no delivery asked for.
    pub fn change(&self, number: u64, change: &QueueChange, now: i64) -> Result<()> {
        self.database
            .transaction(|| self.apply(number, change, now))
    }

    /// Removes the jobs and replies of all other repositories. Returns the removed jobs that waited or ran.
    /// Must be called once, before [`Queue::recover`].
    pub fn remove_other_repositories(&self) -> Result<Vec<Job>> {
        self.database.transaction(|| {
            let open = self.select(
                "WHERE repository <> ?1 AND state IN ('waiting', 'held', 'running') ORDER BY id",
                [&self.repository],
            )?;
            // Ended jobs are removed, too, because queries identify pull requests by number.
            for table in ["jobs", "replies", "doubts", "acceptances"] {
                let others = format!("DELETE FROM {table} WHERE repository <> ?1");
                self.database.execute(&others, [&self.repository])?;
            }
            Ok(open)
        })
    }

    /// Requeues the jobs that were running when the program ended unexpectedly; a job that was running at too
    /// many such ends fails. Returns the number of requeued jobs, and the failed jobs. Must be called once,
    /// before [`Queue::next`].
    pub fn recover(&self, now: i64) -> Result<(usize, Vec<Job>)> {
        self.database.transaction(|| {
            let given_up = self.select(
                "WHERE state = 'running' AND attempts >= ?1 ORDER BY id",
                [MOST_ATTEMPTS],
            )?;
            self.database.execute(
                "UPDATE jobs SET state = 'failed', ended = ?1, result = 'the bot ended while it ran, several times'
                 WHERE state = 'running' AND attempts >= ?2",
                params![now, MOST_ATTEMPTS],
            )?;
            let back = self.database.execute(
                "UPDATE jobs SET state = 'waiting' WHERE state = 'running'",
                [],
            )?;
            Ok((back, given_up))
        })
    }

    /// Requeues a running job that was stopped regularly, without counting the attempt.
    pub fn requeue(&self, id: i64) -> Result<()> {
        self.update(
            "UPDATE jobs SET state = 'waiting', attempts = attempts - 1
             WHERE id = ?1 AND state = 'running'",
            [id],
        )
    }

    /// Postpones a running job because of `why`, each time for longer, and queues an update of the comment.
    /// Returns whether it did: not after too many postponements, nor if the job is cancelled.
    pub fn postpone(&self, job: &Job, why: &str, now: i64) -> Result<bool> {
        self.database.transaction(|| {
            let postponed = self.database.execute(
                "UPDATE jobs SET state = 'waiting', attempts = attempts - 1, result = ?2,
                     not_before = ?3 + (?4 << outages), outages = outages + 1
                 WHERE id = ?1 AND state = 'running' AND outages < ?5",
                params![job.id, why, now, FIRST_PAUSE, MOST_OUTAGES],
            )?;
            if postponed > 0 {
                self.queue_comment_update(job.number)?;
            }
            Ok(postponed > 0)
        })
    }

    /// Starts the oldest waiting job that may start at `now`; jobs that were started before come first, and jobs whose
    /// commit is not known yet do not start.
    pub fn next(&self, now: i64) -> Result<Option<Job>> {
        self.database.transaction(|| {
            let next: Option<i64> = self.database.first(
                "SELECT id FROM jobs WHERE state = 'waiting' AND not_before <= ?1 AND head <> ''
                 ORDER BY started IS NULL, id LIMIT 1",
                [now],
            )?;
            let Some(id) = next else { return Ok(None) };
            self.database.execute(
                "UPDATE jobs SET state = 'running', started = ?2, attempts = attempts + 1, not_before = 0, result = ''
                 WHERE id = ?1",
                params![id, now],
            )?;
            self.select_one("WHERE id = ?1", [id])
        })
    }

    /// Ends a job, unless it was cancelled in the meantime.
    pub fn end(&self, id: i64, state: JobState, result: &str, now: i64) -> Result<()> {
        self.update(
            "UPDATE jobs SET state = ?2, result = ?3, ended = ?4 WHERE id = ?1 AND state = 'running'",
            params![id, state.name(), result, now],
        )
    }

    /// Returns the state of a job.
    pub fn state(&self, id: i64) -> Result<Option<JobState>> {
        let job = self.select_one("WHERE id = ?1", [id])?;
        Ok(job.map(|job| job.state))
    }

    /// Returns the running and waiting jobs, in order of execution as of `now`, and the last `ended` ended
    /// jobs, the latest first.
    pub fn list(&self, ended: usize, now: i64) -> Result<(Vec<Job>, Vec<Job>)> {
        let open = self.select(
            "WHERE state IN ('running', 'waiting', 'held')
             ORDER BY state <> 'running', state = 'held', max(not_before, ?1), started IS NULL, id",
            [now],
        )?;
        let past = self.select(
            "WHERE state NOT IN ('running', 'waiting', 'held') ORDER BY ended DESC, id DESC LIMIT ?1",
            [ended as u64],
        )?;
        Ok((open, past))
    }

    /// Returns the job of a pull request that ended last.
    pub fn last_ended(&self, number: u64) -> Result<Option<Job>> {
        self.select_one(
            "WHERE repository = ?1 AND number = ?2 AND state NOT IN ('running', 'waiting', 'held')
             ORDER BY ended DESC, id DESC LIMIT 1",
            params![self.repository, number],
        )
    }

    /// Returns the number of jobs in each state.
    pub fn counts(&self) -> Result<Vec<(JobState, u64)>> {
        let sql = "SELECT count(*) FROM jobs WHERE state = ?1";
        let count = |&state: &JobState| Ok((state, self.database.count(sql, [state.name()])?));
        JobState::VARIANTS.iter().map(count).collect()
    }

    /// Returns the jobs that fulfil `condition`.
    fn select(&self, condition: &str, values: impl Params) -> Result<Vec<Job>> {
        let query = format!("FROM jobs {condition}");
        self.database.records(&query, values)
    }

    /// Returns the first job that fulfils `condition`.
    fn select_one(&self, condition: &str, values: impl Params) -> Result<Option<Job>> {
        Ok(self.select(condition, values)?.pop())
    }

    /// Executes a statement that changes rows which may be gone by now.
    fn update(&self, sql: &str, values: impl Params) -> Result<()> {
        self.database.execute(sql, values).map(drop)
    }

    /// Adds a job, unless another one does the same.
    fn add(&self, number: u64, job: &NewJob, now: i64) -> Result<()> {
        self.update(
            "INSERT INTO jobs (repository, number, head, command, asked_by, trusted, state, received)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, 'waiting', ?7
             WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE state IN ('waiting', 'held', 'running')
                 AND repository = ?1 AND number = ?2 AND head = ?3 AND command = ?4)",
            params![
                self.repository,
                number,
                job.head,
                job.command,
                job.asked_by,
                if job.trusted { TRUSTED } else { 0 },
                now
            ],
        )
    }

    /// Cancels the waiting and running jobs of a pull request; with `newer`, only jobs of other commits
    /// ([`QueueChange::Cancel`]). Returns how many there were. The worker of a running job reports the cancellation; for the
    /// other jobs the comment is updated.
    fn cancel(&self, number: u64, newer: Option<&Push>, why: &str, now: i64) -> Result<usize> {
        let (head, before) = Push::commits(newer);
        let by_trusted = newer.map(|push| push.trusted);
        let repository = &self.repository;
        // A trusted author's job that does not know its commit yet will find the latest one. A late delivery names neither the
        // commit of a job that somebody requested after a later push, nor that of an approval.
        let meant = "repository = ?1 AND number = ?2 AND (?3 IS NULL OR CASE
                 WHEN head NOT IN ('', ?3) THEN ?5 IS NULL OR head = ?5
                 WHEN head <> '' THEN trusted AND NOT ?4
                 ELSE NOT (trusted AND ?4) END)";
        let waited = self.database.count(
            &format!("SELECT count(*) FROM jobs WHERE state IN ('waiting', 'held') AND {meant}"),
            params![repository, number, head, by_trusted, before],
        )?;
        let cancelled = self.database.execute(
            &format!(
                "UPDATE jobs SET state = 'cancelled', ended = ?6, result = ?7
                 WHERE state IN ('waiting', 'held', 'running') AND {meant}"
            ),
            params![repository, number, head, by_trusted, before, now, why],
        )?;
        if waited > 0 {
            self.queue_comment_update(number)?;
        }
        Ok(cancelled)
    }

    /// Makes the changes of [`QueueChange::Cancel`].
    fn follow(&self, number: u64, newer: Option<&Push>, why: &str, now: i64) -> Result<()> {
        self.cancel(number, newer, why, now)?;
        self.end_approvals(number, newer)?;
        match newer.filter(|push| push.before.is_some()) {
            Some(push) => self.raise_doubt(number, Some(push)),
            None => Ok(()),
        }
    }
}
