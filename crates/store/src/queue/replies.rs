//! Replies to comments.

use rusqlite::params;

use super::{NewReply, Queue, Reply, signed};
use perfquilt_model::error::Result;

impl Queue {
    /// Returns the oldest reply that may be sent at `now`.
    pub fn next_reply(&self, now: i64) -> Result<Option<Reply>> {
        self.database.first(
            "SELECT id, repository, number, comment, reaction, answer, attempts FROM replies
             WHERE not_before <= ?1 ORDER BY id LIMIT 1",
            [now],
            |row| {
                let (number, comment): (i64, i64) = (row.get(2)?, row.get(3)?);
                Ok(Reply {
                    id: row.get(0)?,
                    reply: NewReply {
                        repository: row.get(1)?,
                        number: number.unsigned_abs(),
                        comment: comment.unsigned_abs(),
                        reaction: row.get(4)?,
                        answer: row.get(5)?,
                    },
                    attempts: row.get(6)?,
                })
            },
        )
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

    /// Queues `reply`.
    pub(super) fn add_reply(&self, reply: &NewReply) -> Result<()> {
        self.update(
            "INSERT INTO replies (repository, number, comment, reaction, answer) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                reply.repository,
                signed(reply.number),
                signed(reply.comment),
                reply.reaction,
                reply.answer
            ],
        )
    }

    /// Queues an update of the bot's comment on a pull request, without a reply to a comment.
    pub(super) fn queue_comment_update(&self, repository: &str, number: u64) -> Result<()> {
        self.add_reply(&NewReply {
            repository: repository.to_owned(),
            number,
            comment: 0,
            reaction: String::new(),
            answer: String::new(),
        })
    }
}
