//! Pull requests about whose commit deliveries disagree. Deliveries may arrive in another order than that of the pushes, and
//! some are lost, so one that names neither the commit of a job nor that of an approval may be older or newer: only GitHub
//! knows.

use rusqlite::{Transaction, params};

use super::Queue;
use perfquilt_model::error::Result;

impl Queue {
    /// Returns the pull requests of `repository` about whose commit deliveries disagree. A
    /// [`Cancel`](super::QueueChange::Cancel) that knows the latest commit settles it.
    pub fn doubts(&self, repository: &str) -> Result<Vec<u64>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT number FROM doubts WHERE repository = ?1 ORDER BY number")
            .map_err(self.failed("read"))?;
        let rows = statement
            .query_map([repository], |row| row.get::<_, i64>(0))
            .map_err(self.failed("read"))?;
        rows.map(|number| number.map(i64::unsigned_abs))
            .collect::<rusqlite::Result<_>>()
            .map_err(self.failed("read"))
    }
}

/// Raises a doubt if a delivery of the push of `head` after `before` left jobs or approvals of other commits; without
/// `before`, everything is known, and the doubt is settled.
pub(super) fn settle_or_raise(
    transaction: &Transaction<'_>,
    (repository, number): (&str, i64),
    head: Option<&str>,
    before: Option<&str>,
) -> rusqlite::Result<()> {
    let Some(before) = before else {
        let settled = "DELETE FROM doubts WHERE repository = ?1 AND number = ?2";
        return transaction
            .execute(settled, params![repository, number])
            .map(drop);
    };
    transaction
        .execute(
            "INSERT OR IGNORE INTO doubts (repository, number) SELECT ?1, ?2
             WHERE EXISTS (SELECT 1 FROM jobs WHERE repository = ?1 AND number = ?2
                     AND state IN ('waiting', 'held', 'running')
                     AND (head NOT IN ('', ?3, ?4) OR (head = '' AND taken NOT IN ('', ?3, ?4))))
                 OR EXISTS (SELECT 1 FROM approvals WHERE repository = ?1 AND number = ?2
                     AND head NOT IN (?3, ?4))",
            params![repository, number, head, before],
        )
        .map(drop)
}
