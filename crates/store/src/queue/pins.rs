//! Commits of jobs: each starts only with the commit that was the head of its pull request when it was requested, because
//! its requester has seen no later one.

use rusqlite::params;

use super::{Job, Queue};
use perfquilt_model::error::Result;

impl Queue {
    /// Returns the oldest waiting job that needs a commit and was not postponed beyond `now`.
    pub fn next_without_commit(&self, now: i64) -> Result<Option<Job>> {
        self.select_one(
            "WHERE state = 'waiting' AND head = '' AND not_before <= ?1 ORDER BY id LIMIT 1",
            [now],
        )
    }

    /// Pins a waiting job to the commit `head`, or removes it if another job does the same.
    pub fn pin(&self, job: &Job, head: &str) -> Result<()> {
        self.database.transaction(|| {
            let removed = self.database.execute(
                "DELETE FROM jobs WHERE id = ?1 AND state = 'waiting' AND EXISTS (SELECT 1 FROM jobs
                     WHERE id <> ?1 AND state IN ('waiting', 'held', 'running') AND repository = ?2 AND number = ?3
                     AND head = ?4 AND command = ?5)",
                params![
                    job.id,
                    self.repository,
                    job.number,
                    head,
                    job.job.command
                ],
            )?;
            if removed > 0 {
                return Ok(());
            }
            self.update(
                "UPDATE jobs SET head = ?2, not_before = 0 WHERE id = ?1 AND state = 'waiting' AND head = ''",
                params![job.id, head],
            )
        })
    }

    /// Postpones the next attempt to pin a job until `not_before`.
    pub fn pin_later(&self, id: i64, not_before: i64) -> Result<()> {
        self.update(
            "UPDATE jobs SET not_before = ?2 WHERE id = ?1 AND state = 'waiting' AND head = ''",
            [id, not_before],
        )
    }

    /// Cancels a waiting job that could not be pinned, and queues an update of the comment.
    pub fn cancel_without_commit(&self, job: &Job, why: &str, now: i64) -> Result<()> {
        self.database.transaction(|| {
            let cancelled = self.database.execute(
                "UPDATE jobs SET state = 'cancelled', ended = ?2, result = ?3
                 WHERE id = ?1 AND state = 'waiting' AND head = ''",
                params![job.id, now, why],
            )?;
            if cancelled > 0 {
                self.queue_comment_update(job.number)?;
            }
            Ok(())
        })
    }
}
