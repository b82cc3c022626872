//! The interface to a service that hosts pull requests.

use serde::Deserialize;

use super::Repository;
use super::post_options::{Conclusion, PullRequest};
use super::target::Target;
use super::webhook::{Author, Delivery, DeliveryHead, Rejection};
use perfquilt_model::comment::Comment;
use perfquilt_model::error::{Error, Result};

/// A service that hosts the pull requests of one repository: single requests, of which [`post`](super::post()) makes one
/// comment exactly once, whatever fails on the way.
pub trait Forge: Send + Sync {
    /// Returns the repository.
    fn repository(&self) -> &Repository;

    /// Returns the address from which git fetches the repository.
    fn git_url(&self) -> String;

    /// Returns the maximum size of a comment in bytes.
    fn max_comment_bytes(&self) -> usize;

    /// Returns the width of comments of plain text, which nobody can change once they are sent; `None` for Markdown, which
    /// follows what happens.
    fn columns(&self) -> Option<usize> {
        None
    }

    /// Returns the login under which comments are written.
    fn login(&self) -> Result<String>;

    /// Finds the pull request that `target` describes.
    fn find(&self, target: &Target) -> Result<PullRequest>;

    /// Returns the comments of a pull request. The list may lag behind.
    fn comments(&self, number: u64) -> Result<Vec<ForgeComment>>;

    /// Returns one comment of a pull request; `None` if somebody has deleted it.
    fn comment(&self, number: u64, id: u64) -> Result<Option<ForgeComment>>;

    /// Returns the text of a comment without what the forge would carry out as commands of its author.
    fn without_commands(&self, body: String) -> String {
        body
    }

    /// Writes a comment, for the `attempt`th time. Where it is unknown whether that was done, waits before the next
    /// attempt.
    fn create_comment(&self, number: u64, body: &str, attempt: u32) -> Result<CreatedComment>;

    /// Changes a comment; returns false if somebody has deleted it.
    fn update_comment(&self, number: u64, id: u64, body: &str) -> Result<bool>;

    /// Deletes a comment; returns false if somebody has done so.
    fn delete_comment(&self, number: u64, id: u64) -> Result<bool>;

    /// Adds a reaction (`+1`, `eyes`, `rocket`, `confused`, `-1`) to a comment. Ignores a comment that was deleted.
    fn react(&self, number: u64, comment: u64, reaction: &str) -> Result<()>;

    /// Returns whether these credentials may write statuses outside of a workflow.
    fn may_set_status(&self) -> bool {
        true
    }

    /// Returns what the forge calls the status.
    fn status_name(&self) -> &'static str {
        "status"
    }

    /// Writes the status of a commit; returns the address of its page, if it has one. A status of a measurement that
    /// began later stays as it is, and nothing is returned. By default, there are no statuses.
    fn set_status(&self, _status: &CommitStatus<'_>) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the labels of a pull request. By default, there are no labels.
    fn labels(&self, _number: u64) -> Result<Vec<Label>> {
        Ok(Vec::new())
    }

    /// Adds a label to a pull request.
    fn add_label(&self, _number: u64, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Removes a label from a pull request, if it is still there.
    fn remove_label(&self, _number: u64, _label: &Label) -> Result<()> {
        Ok(())
    }

    /// Returns an author of a delivery with login and association, of which the delivery may lack one.
    fn look_up(&self, author: &Author) -> Result<Author> {
        Ok(author.clone())
    }

    /// Reads the headers of a webhook's delivery; `None` if they are not this forge's.
    fn delivery_head(&self, _header: &dyn Fn(&str) -> Option<String>) -> Option<DeliveryHead> {
        None
    }

    /// Parses a delivery of `event` with this body.
    fn parse_delivery(&self, _event: &str, _body: &[u8]) -> Result<Delivery, Rejection> {
        Err(Rejection::OtherEvent)
    }
}

/// A comment on a pull request, as the forge has it.
#[derive(Debug, Clone)]
pub struct ForgeComment {
    /// Its id; later comments have greater ones.
    pub id: u64,
    /// The login of its author, unless the account was deleted.
    pub author: Option<String>,
    /// Its text.
    pub body: String,
    /// The address of its page.
    pub url: String,
}

/// The outcome of writing a comment.
#[derive(Debug)]
pub enum CreatedComment {
    /// The comment is there.
    Done(ForgeComment),
    /// It is unknown whether it is there, because of this error.
    Unknown(Error),
}

/// A label of a pull request.
#[derive(Debug, Clone, Deserialize)]
pub struct Label {
    /// Its id, for forges that need it.
    #[serde(default)]
    pub id: u64,
    /// Its name.
    pub name: String,
}

/// The status of a commit: the same verdict as the comment, for merge rules.
#[derive(Debug, Clone)]
pub struct CommitStatus<'a> {
    /// The pull request's number.
    pub number: u64,
    /// The measured commit.
    pub head: &'a str,
    /// The comment's id.
    pub id: &'a str,
    /// The comment.
    pub comment: &'a Comment,
    /// The conclusion.
    pub conclusion: Conclusion,
    /// The URL with details.
    pub details: Option<&'a str>,
    /// When the measurement began.
    pub began: Option<&'a str>,
}
