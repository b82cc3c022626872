//! The bot's queue of jobs and replies, with the deliveries received. A delivery and its changes are one
//! transaction, so a crash neither loses a delivery nor applies it twice.

mod approvals;
mod doubts;
mod entry;
mod others;
mod pins;
mod replies;
mod taken;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Params, Transaction, TransactionBehavior, params};

use super::schema;
use perfquilt_model::error::{Error, Result};

pub use entry::{Job, JobState, NewJob, NewReply, Push, QueueChange, ReceivedDelivery, Reply};
use entry::{SELECT, read};

/// The database of the bot ("pquQ").
const QUEUE: schema::DatabaseKind = schema::DatabaseKind {
    application: 0x7071_7551,
    tables: include_str!("queue.sql"),
    version: 7,
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
/// Seconds for which deliveries are remembered; GitHub repeats deliveries for three days.
const REMEMBERED: i64 = 7 * 86_400;

/// The bot's queue.
#[derive(Debug)]
pub struct Queue {
    connection: Connection,
    path: PathBuf,
}

impl Queue {
    /// Opens the queue at `path`, creating it if it is missing.
    pub fn open(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        }
        Ok(Queue {
            connection: schema::open(&QUEUE, path, true)?,
            path: path.to_path_buf(),
        })
    }

    /// Applies deliveries in one transaction: stores their ids and digests and applies their changes, except for
    /// deliveries received before. Returns for each whether it was new.
    pub fn apply_deliveries(&self, deliveries: &[ReceivedDelivery], now: i64) -> Result<Vec<bool>> {
        let transaction = self.transaction()?;
        let mut new = Vec::new();
        for delivery in deliveries {
            new.push(self.apply_delivery(&transaction, delivery, now)?);
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

    fn apply_delivery(
        &self,
        transaction: &Transaction<'_>,
        delivery: &ReceivedDelivery,
        now: i64,
    ) -> Result<bool> {
        let new = transaction
            .execute(
                "INSERT OR IGNORE INTO deliveries (id, received, body)
                 SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM deliveries WHERE body = ?3)",
                params![delivery.id, now, delivery.body_digest],
            )
            .map_err(self.failed("write"))?;
        if new == 0 {
            return Ok(false);
        }
        for change in &delivery.changes {
            self.apply(transaction, change, now)?;
        }
        Ok(true)
    }

    fn apply(&self, transaction: &Transaction<'_>, change: &QueueChange, now: i64) -> Result<()> {
        let result = match change {
            QueueChange::Cancel {
                repository,
                number,
                newer,
                why,
            } => follow(transaction, (repository, *number), newer.as_ref(), why, now),
            QueueChange::Doubt { repository, number } => {
                doubts::raise(transaction, (repository, signed(*number)), None)
            }
            QueueChange::CancelAll {
                repository,
                number,
                why,
                comment,
            } => cancel_all(transaction, (repository, *number), (why, *comment), now),
            QueueChange::Reply(reply) => replies::add(transaction, reply),
            QueueChange::Approve {
                repository,
                number,
                commit,
                by,
                comment,
            } => {
                let about = (repository.as_str(), *number, commit.as_str());
                approvals::give(transaction, about, (by, *comment), now)
            }
            QueueChange::Add(job) => add(transaction, job, now),
        };
        result.map_err(self.failed("write"))
    }

    /// Makes a change that no delivery asked for.
    pub fn change(&self, change: &QueueChange, now: i64) -> Result<()> {
        let transaction = self.transaction()?;
        self.apply(&transaction, change, now)?;
        transaction.commit().map_err(self.failed("write"))
    }

    /// Requeues the jobs that were running when the program ended unexpectedly; a job that was running at too
    /// many such ends fails. Returns the number of requeued jobs, and the failed jobs. Must be called once,
    /// before [`Queue::next`].
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

    /// Requeues a running job that was stopped regularly, without counting the attempt.
    pub fn requeue(&self, id: i64) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET state = 'waiting', attempts = attempts - 1
                 WHERE id = ?1 AND state = 'running'",
                [id],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// Postpones a running job because of `why`, each time for longer, and queues an update of the comment.
    /// Returns whether it did: not after too many postponements, nor if the job is cancelled.
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
            replies::queue_comment_update(&transaction, &job.job.repository, job.job.number)
                .map_err(self.failed("write"))?;
        }
        transaction.commit().map_err(self.failed("write"))?;
        Ok(postponed > 0)
    }

    /// Starts the oldest waiting job that may start at `now`; jobs that were started before come first, and jobs whose
    /// commit is not known yet ([`NewJob::needs_commit`]) do not start.
    pub fn next(&self, now: i64) -> Result<Option<Job>> {
        let transaction = self.transaction()?;
        let id: Option<i64> = transaction
            .query_row(
                "SELECT id FROM jobs WHERE state = 'waiting' AND not_before <= ?1 AND head <> ''
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

    /// Ends a job, unless it was cancelled in the meantime.
    pub fn end(&self, id: i64, state: JobState, result: &str, now: i64) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET state = ?2, result = ?3, ended = ?4 WHERE id = ?1 AND state = 'running'",
                params![id, state.name(), result, now],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// Returns the state of a job.
    pub fn state(&self, id: i64) -> Result<Option<JobState>> {
        self.connection
            .query_row(&format!("{SELECT} WHERE id = ?1"), [id], read)
            .optional()
            .map(|job| job.map(|job| job.state))
            .map_err(self.failed("read"))
    }

    /// Returns the running and waiting jobs, in order of execution as of `now`, and the last `ended` ended
    /// jobs, the latest first.
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

    /// Returns the job of pull request `number` of `repository` that ended last.
    pub fn last_ended(&self, repository: &str, number: u64) -> Result<Option<Job>> {
        let text = format!(
            "{SELECT} WHERE repository = ?1 AND number = ?2 AND state NOT IN ('running', 'waiting', 'held')
             ORDER BY ended DESC, id DESC LIMIT 1"
        );
        let found = self.select(&text, params![repository, signed(number)])?;
        Ok(found.into_iter().next())
    }

    /// Returns the number of jobs in each state.
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

/// Adds a job and cancels the jobs of other commits.
fn add(transaction: &Transaction<'_>, job: &NewJob, now: i64) -> rusqlite::Result<()> {
    if !job.head.is_empty() {
        let about = (job.repository.as_str(), job.number);
        let push = Push {
            head: job.head.clone(),
            before: None,
            trusted: true,
        };
        follow(transaction, about, Some(&push), "a newer commit", now)?;
    }
    // A repeated request does not add a second job.
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

/// Cancels the waiting and running jobs of a pull request; with `newer`, only jobs of other commits
/// ([`QueueChange::Cancel`]). Returns how many there were. The worker of a running job reports the cancellation; for the
/// other jobs the comment is updated.
fn cancel(
    transaction: &Transaction<'_>,
    (repository, number): (&str, u64),
    newer: Option<&Push>,
    why: &str,
    now: i64,
) -> rusqlite::Result<usize> {
    let head = newer.map(|push| push.head.as_str());
    let by_trusted = newer.map(|push| push.trusted);
    let before = newer.and_then(|push| push.before.as_deref());
    // A starting job that does not know its commit yet will find the latest one. A late delivery names neither the
    // commit of a job that was asked for after a later push, nor that of an approval.
    let meant = "repository = ?1 AND number = ?2 AND (?3 IS NULL OR CASE
             WHEN head NOT IN ('', ?3) THEN ?5 IS NULL OR head = ?5
             WHEN head <> '' THEN trusted AND NOT ?4
             WHEN NOT ?4 THEN 1
             WHEN state = 'running' THEN taken NOT IN ('', ?3) AND (?5 IS NULL OR taken = ?5)
             ELSE NOT trusted END)";
    let number = signed(number);
    let waited: i64 = transaction.query_row(
        &format!("SELECT count(*) FROM jobs WHERE state IN ('waiting', 'held') AND {meant}"),
        params![repository, number, head, by_trusted, before],
        |row| row.get(0),
    )?;
    let cancelled = transaction.execute(
        &format!(
            "UPDATE jobs SET state = 'cancelled', ended = ?6, result = ?7
             WHERE state IN ('waiting', 'held', 'running') AND {meant}"
        ),
        params![repository, number, head, by_trusted, before, now, why],
    )?;
    if waited > 0 {
        replies::queue_comment_update(transaction, repository, number.unsigned_abs())?;
    }
    Ok(cancelled)
}

/// Makes the changes of [`QueueChange::Cancel`].
fn follow(
    transaction: &Transaction<'_>,
    about: (&str, u64),
    newer: Option<&Push>,
    why: &str,
    now: i64,
) -> rusqlite::Result<()> {
    cancel(transaction, about, newer, why, now)?;
    let about = (about.0, signed(about.1));
    approvals::end(transaction, about, newer)?;
    let push = newer.and_then(|push| Some((push.before.as_deref()?, push.head.as_str())));
    push.map_or(Ok(()), |push| doubts::raise(transaction, about, Some(push)))
}

/// Cancels all jobs of a pull request on the command of `comment`, and queues a reply to it.
fn cancel_all(
    transaction: &Transaction<'_>,
    (repository, number): (&str, u64),
    (why, comment): (&str, u64),
    now: i64,
) -> rusqlite::Result<()> {
    let (reaction, answer) = match cancel(transaction, (repository, number), None, why, now)? {
        0 => (
            "confused",
            "Nothing done: no job of this pull request is running or waiting.",
        ),
        _ => ("+1", ""),
    };
    let reply = NewReply {
        repository: repository.to_owned(),
        number,
        comment,
        reaction: reaction.to_owned(),
        answer: answer.to_owned(),
    };
    replies::add(transaction, &reply)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
