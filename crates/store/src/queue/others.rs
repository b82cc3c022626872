//! Removal of repositories that the bot no longer serves.

use super::entry::SELECT;
use super::{Job, Queue};
use perfquilt_model::error::Result;

impl Queue {
    /// Removes the jobs and replies of all other repositories. Returns the removed jobs that waited or ran.
    /// Must be called once, before [`Queue::recover`].
    pub fn remove_other_repositories(&self, repository: &str) -> Result<Vec<Job>> {
        let transaction = self.transaction()?;
        let open = self.select(
            &format!(
                "{SELECT} WHERE repository <> ?1 AND state IN ('waiting', 'held', 'running') ORDER BY id"
            ),
            [repository],
        )?;
        // Ended jobs are removed, too, because queries identify pull requests by number.
        for table in ["jobs", "replies", "doubts"] {
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
