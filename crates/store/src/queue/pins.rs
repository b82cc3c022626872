//! Commits of jobs: each starts only with the commit that was the head of its pull request when it was requested, because
//! its requester has seen no later one.

use rusqlite::{OptionalExtension, params};

use super::entry::{SELECT, read};
use super::{Job, Queue, replies, signed};
use perfquilt_model::error::Result;

impl Queue {
    /// Returns the oldest waiting job that needs a commit and was not postponed beyond `now`.
    pub fn next_without_commit(&self, now: i64) -> Result<Option<Job>> {
        let text = format!(
            "{SELECT} WHERE state = 'waiting' AND head = '' AND not_before <= ?1 ORDER BY id LIMIT 1"
        );
        self.connection
            .query_row(&text, [now], read)
            .optional()
            .map_err(self.failed("read"))
    }

    /// Pins a waiting job to the commit `head`, or removes it if another job does the same.
    pub fn pin(&self, job: &Job, head: &str) -> Result<()> {
        let transaction = self.transaction()?;
        let about = &job.job;
        let removed = transaction
            .execute(
                "DELETE FROM jobs WHERE id = ?1 AND state = 'waiting' AND EXISTS (SELECT 1 FROM jobs
                     WHERE id <> ?1 AND state IN ('waiting', 'held', 'running') AND repository = ?2 AND number = ?3
                     AND head = ?4 AND command = ?5)",
                params![
                    job.id,
                    about.repository,
                    signed(about.number),
                    head,
                    about.command
                ],
            )
            .map_err(self.failed("write"))?;
        if removed == 0 {
            transaction
                .execute(
                    "UPDATE jobs SET head = ?2, not_before = 0 WHERE id = ?1 AND state = 'waiting' AND head = ''",
                    params![job.id, head],
                )
                .map_err(self.failed("write"))?;
        }
        transaction.commit().map_err(self.failed("write"))
    }

    /// Postpones the next attempt to pin a job until `not_before`.
    pub fn pin_later(&self, id: i64, not_before: i64) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET not_before = ?2 WHERE id = ?1 AND state = 'waiting' AND head = ''",
                [id, not_before],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }

    /// Cancels a waiting job that could not be pinned, and queues an update of the comment.
    pub fn cancel_without_commit(&self, job: &Job, why: &str, now: i64) -> Result<()> {
        let transaction = self.transaction()?;
        let cancelled = transaction
            .execute(
                "UPDATE jobs SET state = 'cancelled', ended = ?2, result = ?3
                 WHERE id = ?1 AND state = 'waiting' AND head = ''",
                params![job.id, now, why],
            )
            .map_err(self.failed("write"))?;
        if cancelled > 0 {
            replies::queue_comment_update(&transaction, &job.job.repository, job.job.number)
                .map_err(self.failed("write"))?;
        }
        transaction.commit().map_err(self.failed("write"))
    }
}
