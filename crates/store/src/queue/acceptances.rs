//! Acceptances of slower patches.

use rusqlite::params;

use super::{Acceptance, NewAcceptance, Queue};
use perfquilt_model::error::Result;

impl Queue {
    /// Returns the latest acceptance of each patch of a pull request.
    pub fn acceptances(&self, number: u64) -> Result<Vec<Acceptance>> {
        let from = "FROM acceptances WHERE repository = ?1 AND number = ?2 ORDER BY patch";
        self.database
            .records(from, params![self.repository, number])
    }

    /// Stores the acceptance of a patch of the commit that the last finished job of a pull request measured. Returns whether
    /// there is such a job.
    pub(super) fn accept(&self, number: u64, new: &NewAcceptance, now: i64) -> Result<bool> {
        let accepted = self.database.execute(
            "INSERT OR REPLACE INTO acceptances
             SELECT ?1, ?2, ?3, head, ?4, ?5, ?6, ?7 FROM jobs
             WHERE repository = ?1 AND number = ?2 AND state = 'done' ORDER BY ended DESC, id DESC LIMIT 1",
            params![self.repository, number, new.patch, new.configuration, new.reason, new.by, now],
        )?;
        Ok(accepted > 0)
    }
}
