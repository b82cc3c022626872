//! Replies to comments.

use std::collections::BTreeSet;

use rusqlite::params;

use super::{Queue, Reply};
use perfquilt_model::error::Result;

impl Queue {
    /// Returns the oldest reply that may be sent at `now`: one about the pull requests `numbers` if `among` them, else about
    /// another one.
    pub fn next_reply(
        &self,
        now: i64,
        numbers: &BTreeSet<u64>,
        among: bool,
    ) -> Result<Option<Reply>> {
        let numbers = format!("{:?}", Vec::from_iter(numbers));
        let query = "FROM replies WHERE not_before <= ?1 AND (number IN (SELECT value FROM json_each(?2))) = ?3
             ORDER BY id LIMIT 1";
        let replies = self.database.records(query, params![now, numbers, among]);
        Ok(replies?.pop())
    }

    /// Removes a reply that was sent or given up.
    pub fn remove_reply(&self, id: i64) -> Result<()> {
        self.update("DELETE FROM replies WHERE id = ?1", [id])
    }

    /// Postpones a failed reply until `not_before`.
    pub fn postpone_reply(&self, id: i64, not_before: i64) -> Result<()> {
        self.update(
            "UPDATE replies SET attempts = attempts + 1, not_before = ?2 WHERE id = ?1",
            [id, not_before],
        )
    }

    /// Queues a reply to a comment on a pull request.
    pub(super) fn reply(
        &self,
        number: u64,
        comment: u64,
        reaction: &str,
        answer: &str,
    ) -> Result<()> {
        self.update(
            "INSERT INTO replies (repository, number, comment, reaction, answer) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![self.repository, number, comment, reaction, answer],
        )
    }

    /// Queues a reply to a command: `reaction` if it was carried out, else the reason `why_not`.
    pub(super) fn confirm(
        &self,
        number: u64,
        comment: u64,
        done: bool,
        reaction: &str,
        why_not: &str,
    ) -> Result<()> {
        if done {
            return self.reply(number, comment, reaction, "");
        }
        let answer = format!("Nothing done: {why_not}.");
        self.reply(number, comment, "confused", &answer)
    }

    /// Queues an update of the bot's comment on a pull request, without a reply to a comment.
    pub(super) fn queue_comment_update(&self, number: u64) -> Result<()> {
        self.reply(number, 0, "", "")
    }
}
