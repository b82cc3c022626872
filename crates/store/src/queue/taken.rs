//! The commit of a running job that was requested without one.

use rusqlite::params;

use super::Queue;
use perfquilt_model::error::Result;

impl Queue {
    /// Stores the commit `head` of a running job, so that a late notification of the push of this commit does
    /// not cancel it.
    pub fn record_head(&self, id: i64, head: &str) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET taken = ?2 WHERE id = ?1 AND state = 'running'",
                params![id, head],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }
}
