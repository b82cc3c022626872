//! Pull requests about whose commit deliveries disagree. Deliveries may arrive in another order than that of the pushes, and
//! some are lost, so one that names neither the commit of a job nor that of an approval may be older or newer, and one about a
//! closure may be older than the job: only GitHub knows.

use std::collections::BTreeMap;

use rusqlite::params;

use super::{Push, Queue};
use perfquilt_model::error::Result;

impl Queue {
    /// Returns the pull requests about whose commit or closure deliveries disagree, each with the number of its
    /// last doubt.
    pub fn doubts(&self) -> Result<BTreeMap<u64, i64>> {
        let sql = "SELECT number, raised FROM doubts WHERE repository = ?1";
        let doubts = self.database.rows(sql, [&self.repository])?;
        Ok(doubts.into_iter().collect())
    }

    /// Settles the doubt `last` about a pull request, unless a delivery has raised another one since: the answer to the first may
    /// be older than that delivery.
    pub fn settle(&self, number: u64, last: i64) -> Result<()> {
        self.update(
            "DELETE FROM doubts WHERE repository = ?1 AND number = ?2 AND raised = ?3",
            params![self.repository, number, last],
        )
    }

    /// Raises a doubt if there are jobs or approvals of a pull request, after a push only if of other commits than its two.
    pub(super) fn raise_doubt(&self, number: u64, push: Option<&Push>) -> Result<()> {
        let (head, before) = Push::commits(push);
        self.update(
            "INSERT INTO doubts (repository, number) SELECT ?1, ?2
             WHERE EXISTS (SELECT 1 FROM jobs WHERE repository = ?1 AND number = ?2
                     AND state IN ('waiting', 'held', 'running')
                     AND (?3 IS NULL OR head NOT IN ('', ?3, ?4)))
                 OR EXISTS (SELECT 1 FROM approvals WHERE repository = ?1 AND number = ?2
                     AND (?3 IS NULL OR head NOT IN (?3, ?4)))
             ON CONFLICT DO UPDATE SET raised = raised + 1",
            params![self.repository, number, head, before],
        )
    }
}
