//! Posts the comment, status and label of a pull request.

use super::forge::{CommitStatus, Forge};
use super::post_options::{CommentUpdate, PostOptions, PostResult, PullRequest};
use super::start_time::past_time;
use super::sticky::{self, Mark};
use super::{labels, notice};
use perfquilt_model::comment::{Comment, PullRequestRef};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_system::process;

/// A comment to write for a pull request.
pub struct Draft<'a> {
    /// The subject, as far as it is known without asking the forge.
    pub subject: &'a PullRequestRef,
    /// Writes the comment about the completed subject, in at most the given number of bytes.
    pub write: &'a dyn Fn(&PullRequestRef, usize) -> Result<Comment>,
}

/// Posts the comment of `draft`, and what `posting` requests besides, to the pull request. Updates existing
/// posts and never creates duplicates, even if an answer was lost or several programs post.
///
/// # Errors
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when a part cannot be written; the others are written all
/// the same. [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
pub fn post(
    forge: &dyn Forge,
    posting: &PostOptions,
    found: &PullRequest,
    draft: &Draft<'_>,
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
    let comment = &(draft.write)(&subject, limit)?;
    let status = CommitStatus {
        number: found.number,
        head: &head,
        id: &posting.id,
        comment,
        conclusion: posting.conclusion(comment.status),
        details: subject.run.as_deref(),
        began: began.as_deref(),
    };
    // A failure of one does not prevent the others; the first failure is returned.
    let kept = keep_comment(forge, posting, found, &status);
    let outdated = kept.as_ref().is_ok_and(|kept| kept.action == "newer");
    let check_run = if posting.check {
        forge.set_status(&status)
    } else {
        Ok(None)
    };
    // A label belongs to the pull request, so results of an older commit must not change it.
    let current = !outdated && found.head == head;
    let label = match posting.label.as_ref().filter(|_| current) {
        Some(prefix) => labels::update(forge, found.number, prefix, comment.status).map(Some),
        None => Ok(None),
    };
    match (kept, check_run, label) {
        (Ok(kept), Ok(check_run), Ok(label)) => Ok(PostResult {
            number: found.number,
            head: head.clone(),
            title: comment.title.clone(),
            status: comment.status.to_string(),
            conclusion: status.conclusion.name(),
            comment: kept,
            check_run,
            label,
        }),
        (kept, check_run, label) => {
            if let Ok(kept) = &kept {
                progress::note(&format!("comment {}: {}", kept.action, kept.url));
            }
            process::check_interrupted()?;
            let errors = [kept.err(), check_run.err(), label.err()];
            let mut errors = errors.into_iter().flatten();
            let first = errors.next();
            errors.for_each(|error| progress::warn(error.into()));
            Err(first.unwrap_or_else(|| Error::internal("nothing was posted")))
        }
    }
}

/// Makes the pull request or issue `number` have exactly one comment with this text about `what`, whatever fails on the way.
/// `what` distinguishes such comments, and has a blank, which no [`PostOptions::id`] has.
///
/// # Errors
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when it cannot be written.
pub fn post_once(forge: &dyn Forge, number: u64, what: &str, text: &str) -> Result<CommentUpdate> {
    let mark = Mark {
        id: what.to_owned(),
        ..Mark::default()
    };
    sticky::update(forge, number, &mark, "", text, &|_, _| Ok(()))
}

/// Writes the comment, and before it gets worse the notice about that: a program that dies in between writes neither
/// twice.
fn keep_comment(
    forge: &dyn Forge,
    posting: &PostOptions,
    found: &PullRequest,
    status: &CommitStatus<'_>,
) -> Result<CommentUpdate> {
    let mark = Mark {
        id: posting.id.clone(),
        head: status.head.to_owned(),
        began: status.began.map(str::to_owned),
        status: Some(status.comment.status.to_string()),
    };
    let text = &status.comment.body;
    sticky::update(
        forge,
        found.number,
        &mark,
        &found.head,
        text,
        &|shown, url| notice::write(forge, found, &mark, shown, url),
    )
}
