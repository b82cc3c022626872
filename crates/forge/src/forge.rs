//! The interface to a service that hosts pull requests.

use super::event::Target;
use super::post_options::{PostOptions, PostResult, PullRequest};
use super::{API, Client, Credentials, Repository, RetryPolicy};
use perfquilt_model::comment::Comment;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;

/// A service that hosts the pull requests of one repository.
pub trait Forge: Send + Sync {
    /// Returns the repository.
    fn repository(&self) -> &Repository;

    /// Returns the maximum size of a comment in bytes.
    fn max_comment_bytes(&self) -> usize;

    /// Finds the pull request that `target` describes.
    fn find(&self, target: &Target) -> Result<PullRequest>;

    /// Writes a comment and what goes with it. Updates what was written for the same comment id and never creates
    /// duplicates, even if an answer was lost or several programs post.
    ///
    /// # Errors
    /// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when a part cannot be written; the others are written all
    /// the same. [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
    fn publish(&self, publication: &Publication<'_>, progress: &dyn Progress)
    -> Result<PostResult>;

    /// Adds a reaction (`+1`, `eyes`, `rocket`, `confused`, `-1`) to a comment. Ignores a comment that was deleted.
    fn react(&self, comment: u64, reaction: &str) -> Result<()>;
}

/// A comment to write, and what goes with it.
#[derive(Debug, Clone)]
pub struct Publication<'a> {
    /// The pull request.
    pub pull_request: &'a PullRequest,
    /// The measured commit, which may be older than the pull request's.
    pub head: &'a str,
    /// The comment.
    pub comment: &'a Comment,
    /// Further parts to write besides the comment.
    pub posting: &'a PostOptions,
    /// The URL of the run, for details.
    pub run: Option<&'a str>,
    /// When the measurement began (RFC 3339), if known: a result never replaces that of a measurement that began later.
    pub began: Option<&'a str>,
}

/// Returns the address of GitHub's API: the one `given`, that of `GITHUB_API_URL`, or GitHub's own.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it may have a password or a token, which logs would show.
pub fn api_address(
    given: Option<&str>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String> {
    let set = || variable("GITHUB_API_URL").filter(|url| !url.is_empty());
    let given = given.map(str::to_owned).or_else(set);
    let address = given.unwrap_or_else(|| API.to_owned());
    if address.contains(['@', '?', '#']) {
        let fault = "the address of GitHub's API has a user name, a password or a query";
        return Err(Error::arguments(fault)
            .hint("logs would show it: give the address alone, and the token in GITHUB_TOKEN"));
    }
    Ok(address)
}

/// Connects to the forge of `repository` at the API `api`. Sends nothing yet.
pub fn connect(
    repository: Repository,
    api: &str,
    credentials: Credentials,
    policy: RetryPolicy,
) -> Result<Box<dyn Forge>> {
    Ok(Box::new(Client::new(repository, api, credentials, policy)?))
}
