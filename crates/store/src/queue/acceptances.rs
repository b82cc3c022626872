//! Acceptances of slower patches.

use rusqlite::params;

use super::{Acceptance, Queue};
use perfquilt_model::error::Result;

impl Queue {
    /// Returns the latest acceptance of each patch of a pull request.
    pub fn acceptances(&self, repository: &str, number: u64) -> Result<Vec<Acceptance>> {
        let from = "FROM acceptances WHERE repository = ?1 AND number = ?2 ORDER BY patch";
        self.database.records(from, params![repository, number])
    }

    /// Stores the acceptance of a patch of the commit that the last finished job of a pull request measured, and queues a
    /// reply to the accepting comment.
    pub(super) fn accept(
        &self,
        (repository, number): (&str, u64),
        patch: usize,
        (reason, configuration): (&str, &str),
        (by, comment): (&str, u64),
        now: i64,
    ) -> Result<()> {
        let accepted = self.database.execute(
            "INSERT OR REPLACE INTO acceptances
             SELECT ?1, ?2, ?3, head, ?4, ?5, ?6, ?7 FROM jobs
             WHERE repository = ?1 AND number = ?2 AND state = 'done' ORDER BY ended DESC, id DESC LIMIT 1",
            params![repository, number, patch, configuration, reason, by, now],
        )?;
        let (reaction, answer) = if accepted > 0 {
            ("+1", "")
        } else {
            (
                "confused",
                "Nothing done: this pull request has no result to accept.",
            )
        };
        self.reply((repository, number), comment, reaction, answer)
    }
}
