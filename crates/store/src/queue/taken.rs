//! Which commit a running job is about, where it was not asked for a certain one.

use rusqlite::params;

use super::Queue;
use perfquilt_model::error::Result;

impl Queue {
    /// Remembers that a running job is about the commit `head`, so that a push of the same one, told late, does
    /// not cancel it.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be stored.
    pub fn takes(&self, id: i64, head: &str) -> Result<()> {
        self.connection
            .execute(
                "UPDATE jobs SET taken = ?2 WHERE id = ?1 AND state = 'running'",
                params![id, head],
            )
            .map(|_| ())
            .map_err(self.failed("write"))
    }
}
