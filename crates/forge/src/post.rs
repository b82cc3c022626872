//! Posts the comment, check run and label of a pull request.

use super::forge::{Forge, Publication};
use super::post_options::{PostOptions, PostResult, PullRequest};
use super::start_time::past_time;
use perfquilt_model::comment::{Comment, PullRequestRef};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;

/// A comment to write for a pull request.
pub struct Draft<'a> {
    /// The subject, as far as it is known without asking GitHub.
    pub subject: &'a PullRequestRef,
    /// Writes the comment about the completed subject, in at most the given number of bytes.
    pub write: &'a dyn Fn(&PullRequestRef, usize) -> Result<Comment>,
}

/// Posts the comment of `draft`, and what `posting` requests besides, to the pull request. Updates existing
/// posts and never creates duplicates.
pub fn post(
    forge: &dyn Forge,
    posting: &PostOptions,
    found: &PullRequest,
    draft: &Draft<'_>,
    progress: &dyn Progress,
) -> Result<PostResult> {
    let limit = posting.limit(forge.max_comment_bytes())?;
    let head = match draft.subject.head.as_str() {
        "" => found.head.clone(),
        head if head.len() != found.head.len() => {
            return Err(Error::arguments(format!(
                "`{head}` is no commit of {}: their ids have {} digits",
                forge.repository(),
                found.head.len()
            )));
        }
        head => head.to_owned(),
    };
    let subject = PullRequestRef {
        number: Some(found.number),
        base: found.base.clone(),
        moved_on: (found.head != head).then(|| found.head.clone()),
        head: head.clone(),
        ..draft.subject.clone()
    };
    let now = jiff::Timestamp::now();
    let began = subject.began.as_deref();
    let began = began.and_then(|began| past_time(began, now));
    let publication = Publication {
        pull_request: found,
        head: &head,
        comment: &(draft.write)(&subject, limit)?,
        posting,
        run: subject.run.as_deref(),
        began: began.as_deref(),
    };
    forge.publish(&publication, progress)
}
