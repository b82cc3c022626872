//! Keeps a single comment on a pull request, identified by a hidden mark and its author.
//!
//! GitHub cannot create a comment conditionally, so two concurrent processes, or one whose response was lost,
//! can create two. After writing, each process therefore checks for duplicates and applies the same rule: the
//! oldest comment stays and gets the text, the others are deleted. In whatever order this happens, one comment
//! remains.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::Client;
use super::model::Comment;
use super::start_time::is_before;
use super::transport::{RequestError, delete, get, patch, post, unless_gone};
use perfquilt_model::error::{Error, Result};

/// The maximum number of rounds of looking for the comment and writing it.
const MAX_ROUNDS: u32 = 6;

/// The hidden mark of a comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Distinguishes several comments of perfquilt on one pull request.
    pub id: String,
    /// The commit it is about.
    pub head: String,
    /// When the measurement began, if known.
    #[serde(default)]
    pub began: Option<String>,
}

/// How a comment was updated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommentUpdate {
    /// The comment's URL.
    pub url: String,
    /// `created`, `updated`, `unchanged`, or `newer` when a comment about a later commit, or about a measurement that began
    /// later, exists, which stays.
    pub action: &'static str,
    /// The number of duplicates that were deleted.
    pub removed: usize,
}

const MARK_START: &str = "<!-- perfquilt ";
const MARK_END: &str = " -->";

impl Mark {
    /// Returns the first line of the comment.
    pub(super) fn line(&self) -> String {
        let id = serde_json::to_string(&self.id).unwrap_or_default();
        let head = serde_json::to_string(&self.head).unwrap_or_default();
        let began = self.began.as_ref().map_or_else(String::new, |began| {
            let began = serde_json::to_string(began).unwrap_or_default();
            format!(",\"began\":{began}")
        });
        format!("{MARK_START}{{\"id\":{id},\"head\":{head}{began}}}{MARK_END}\n")
    }

    /// Returns whether the comment with this mark is outdated by one with the mark `shown`: that is about the pull request's
    /// last commit and this is not, or it is about a measurement that began later. A comment about the last commit is
    /// never outdated by one about another.
    fn is_older_than(&self, shown: &Mark, current_head: &str) -> bool {
        match (self.head == current_head, shown.head == current_head) {
            (true, false) => false,
            (false, true) => true,
            _ => is_before(self.began.as_deref(), shown.began.as_deref()),
        }
    }

    /// Parses the mark that a comment begins with, if any.
    fn of(body: &str) -> Option<Mark> {
        let line = body.lines().next()?.strip_prefix(MARK_START)?;
        serde_json::from_str(line.trim_end().strip_suffix(MARK_END)?).ok()
    }
}

/// Makes the pull request `number` have exactly one comment with `mark`'s id, with this text (without the
/// mark). `current_head` is the pull request's head commit; an older result replaces no newer one
/// ([`Mark::is_older_than`]).
pub(super) fn update(
    github: &Client,
    number: u64,
    mark: &Mark,
    current_head: &str,
    text: &str,
) -> Result<CommentUpdate> {
    let body = format!("{}{text}", mark.line());
    let login = github.login()?;
    let mut action = "updated";
    let mut uncertain = None;
    // The comments this call has created.
    let mut written: Vec<u64> = Vec::new();
    for round in 1..=MAX_ROUNDS {
        let all = ours(github, number, &login, &mark.id, &written)?;
        let mut ours = all.into_iter();
        let Some(first) = ours.next() else {
            let path = github.path(&format!("issues/{number}/comments"));
            let request = post("write the comment", path, json!({ "body": body }));
            match github.call::<Comment>(&request) {
                // The next round shows whether it is the only one.
                Ok(comment) => {
                    action = "created";
                    written.push(comment.id);
                }
                Err(RequestError::Uncertain(error, info)) => {
                    action = "created";
                    let goes_on = github.pause(&error, &info, round)?;
                    uncertain = Some(error);
                    if !goes_on {
                        break;
                    }
                }
                Err(failure) => return Err(failure.into()),
            }
            continue;
        };
        let about = |comment: &Comment| comment.body.as_deref().and_then(Mark::of);
        if about(&first).is_some_and(|shown| mark.is_older_than(&shown, current_head)) {
            return Ok(CommentUpdate {
                url: first.html_url,
                action: "newer",
                removed: 0,
            });
        }
        if !same(first.body.as_deref().unwrap_or_default(), &body) {
            let path = github.path(&format!("issues/comments/{}", first.id));
            let request = patch("update the comment", path, json!({ "body": body }));
            if unless_gone(github.execute(&request))?.is_none() {
                continue;
            }
        } else if action != "created" {
            action = "unchanged";
        }
        let mut removed = 0;
        for other in ours {
            let path = github.path(&format!("issues/comments/{}", other.id));
            let gone = github.execute(&delete("remove a second comment", path));
            removed += usize::from(unless_gone(gone)?.is_some());
        }
        return Ok(CommentUpdate {
            url: first.html_url,
            action,
            removed,
        });
    }
    Err(uncertain.unwrap_or_else(|| {
        Error::forge_refused("cannot write the comment: it disappears right after it is written")
            .hint("check whether another program deletes comments of this account")
    }))
}

/// Returns perfquilt's own comments with this id, the oldest first; anybody can copy the mark, so the author
/// counts. The list may lag behind and miss the comments `written` just now, which are read separately.
fn ours(
    github: &Client,
    number: u64,
    login: &str,
    id: &str,
    written: &[u64],
) -> Result<Vec<Comment>> {
    let path = github.path(&format!("issues/{number}/comments"));
    let mut comments: Vec<Comment> = github.all("read the comments", &path)?;
    for &one in written {
        if comments.iter().any(|comment| comment.id == one) {
            continue;
        }
        let request = get(
            "read the comment",
            github.path(&format!("issues/comments/{one}")),
        );
        comments.extend(unless_gone(github.call(&request))?);
    }
    let mut ours: Vec<Comment> = comments
        .into_iter()
        .filter(|comment| {
            let author = comment.user.as_ref().map(|user| user.login.as_str());
            author.is_some_and(|author| author.eq_ignore_ascii_case(login))
        })
        .filter(|comment| {
            let mark = comment.body.as_deref().and_then(Mark::of);
            mark.is_some_and(|mark| mark.id == id)
        })
        .collect();
    ours.sort_by_key(|comment| comment.id);
    ours.dedup_by_key(|comment| comment.id);
    Ok(ours)
}

/// Returns whether two texts are equal except for line ends, which browsers change.
fn same(a: &str, b: &str) -> bool {
    a.trim_end().lines().eq(b.trim_end().lines())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_round_trips() {
        let mark = Mark {
            id: "default".into(),
            head: "0123abc".into(),
            began: None,
        };
        let body = format!("{}## Title\n", mark.line());
        assert_eq!(Mark::of(&body), Some(mark.clone()));
        assert_eq!(Mark::of(&body.replace('\n', "\r\n")), Some(mark.clone()));
        let timed = Mark {
            began: Some("2026-01-02T03:04:05Z".into()),
            ..mark.clone()
        };
        assert_eq!(Mark::of(&timed.line()), Some(timed));
        for other in [
            "",
            "## Title",
            "> <!-- perfquilt {} -->",
            "<!-- perfquilt {} -->",
        ] {
            assert_eq!(Mark::of(other), None, "{other}");
        }
        assert!(same("a\r\nb\r\n", "a\nb"));
        assert!(!same("a\nb", "a\nc"));
    }

    #[test]
    fn the_last_commit_comes_before_the_later_start() {
        let mark = |head: &str, began: Option<&str>| Mark {
            id: "default".into(),
            head: head.into(),
            began: began.map(str::to_owned),
        };
        let (early, late) = (Some("2026-01-02T03:04:05Z"), Some("2026-01-03T00:00:00Z"));
        let older = |one: &Mark, shown: &Mark| one.is_older_than(shown, "c");
        assert!(older(&mark("c", early), &mark("c", late)));
        assert!(!older(&mark("c", late), &mark("c", early)));
        assert!(!older(&mark("c", early), &mark("c", early)));
        // Of two commits that are not the last one, the later measurement stays.
        assert!(older(&mark("a", early), &mark("b", late)));
        assert!(!older(&mark("b", late), &mark("a", early)));
        // A branch may go back to a commit that was measured before.
        assert!(!older(&mark("c", early), &mark("b", late)));
        assert!(older(&mark("b", late), &mark("c", early)));
        assert!(!older(&mark("a", None), &mark("b", late)));
    }
}
