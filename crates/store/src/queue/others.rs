//! What is in the queue of repositories that are not served any more.

use super::entry::SELECT;
use super::{Job, Queue};
use perfquilt_model::error::Result;

impl Queue {
    /// Forgets the jobs and answers of all repositories but this one. Returns the jobs that waited or ran. To be
    /// called once, before [`Queue::recover`].
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be stored.
    pub fn keep_only(&self, repository: &str) -> Result<Vec<Job>> {
        let transaction = self.transaction()?;
        let open = self.select(
            &format!(
                "{SELECT} WHERE repository <> ?1 AND state IN ('waiting', 'held', 'running') ORDER BY id"
            ),
            [repository],
        )?;
        // What has ended, too: pull requests are asked for by number.
        for table in ["jobs", "replies"] {
            transaction
                .execute(
                    &format!("DELETE FROM {table} WHERE repository <> ?1"),
                    [repository],
                )
                .map_err(self.failed("write"))?;
        }
        transaction.commit().map_err(self.failed("write"))?;
        Ok(open)
    }
}
