//! Approvals of commits, and jobs that are held for them.

use rusqlite::params;

use super::{Push, Queue};
use perfquilt_model::error::Result;

impl Queue {
    /// Holds a running job until its commit is approved, because of its changes to `files`.
    pub fn hold(&self, id: i64, files: &str) -> Result<()> {
        self.update(
            "UPDATE jobs SET state = 'held', result = ?2, attempts = 0, started = NULL
             WHERE id = ?1 AND state = 'running'",
            params![id, files],
        )
    }

    /// Returns whether the commit `head` of a pull request is approved.
    pub fn is_approved(&self, number: u64, head: &str) -> Result<bool> {
        let count = self.database.count(
            "SELECT count(*) FROM approvals WHERE repository = ?1 AND number = ?2 AND head = ?3",
            params![self.repository, number, head],
        )?;
        Ok(count > 0)
    }

    /// Stores the approval of a commit of which no job is held yet.
    pub fn approve_ahead(&self, number: u64, commit: &str, by: &str, now: i64) -> Result<()> {
        self.update(
            "INSERT OR IGNORE INTO approvals VALUES (?1, ?2, ?3, ?4, ?5)",
            params![self.repository, number, commit, by, now],
        )
    }

    /// Stores the approval of a commit that jobs of a pull request are held for, and releases these jobs. Returns whether
    /// there are any.
    pub(super) fn approve(&self, number: u64, commit: &str, by: &str, now: i64) -> Result<bool> {
        let held = self.database.execute(
            "UPDATE jobs SET state = 'waiting', result = ''
             WHERE state = 'held' AND repository = ?1 AND number = ?2 AND head = ?3",
            params![self.repository, number, commit],
        )?;
        if held > 0 {
            self.approve_ahead(number, commit, by, now)?;
        }
        Ok(held > 0)
    }

    /// Ends the approvals of a pull request that was closed, or of other commits than the `newer` one. An approved commit that is
    /// pushed again later needs another approval.
    pub(super) fn end_approvals(&self, number: u64, newer: Option<&Push>) -> Result<()> {
        let (head, before) = Push::commits(newer);
        self.update(
            "DELETE FROM approvals WHERE repository = ?1 AND number = ?2
             AND (?3 IS NULL OR (head <> ?3 AND (?4 IS NULL OR head = ?4)))",
            params![self.repository, number, head, before],
        )
    }
}
