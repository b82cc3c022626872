//! Keeps a single comment on a pull request, identified by a hidden mark and its author.
//!
//! No forge creates a comment conditionally, so two concurrent processes, or one whose response was lost,
//! can create two. After writing, each process therefore checks for duplicates and applies the same rule: the
//! oldest comment stays and gets the text, the others are deleted. In whatever order this happens, one comment
//! remains.

use serde::{Deserialize, Serialize};

use super::forge::{CreatedComment, Forge, ForgeComment};
use super::post_options::CommentUpdate;
use super::start_time::is_before;
use perfquilt_model::error::{Error, Result};

/// The maximum number of rounds of looking for the comment and writing it.
const MAX_ROUNDS: u32 = 6;

/// The hidden mark of a comment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Distinguishes several comments of perfquilt on one pull request.
    pub id: String,
    /// The commit it is about.
    pub head: String,
    /// When the measurement began, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    /// The overall result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

const MARK_START: &str = "<!-- perfquilt ";
const MARK_END: &str = " -->";

impl Mark {
    /// Returns the first line of the comment.
    pub(super) fn line(&self) -> String {
        let fields = serde_json::to_string(self).unwrap_or_default();
        format!("{MARK_START}{fields}{MARK_END}\n")
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
/// ([`Mark::is_older_than`]). Calls `before` with the comment's mark and address before it changes one.
pub(super) fn update(
    forge: &dyn Forge,
    number: u64,
    mark: &Mark,
    current_head: &str,
    text: &str,
    before: &dyn Fn(&Mark, &str) -> Result<()>,
) -> Result<CommentUpdate> {
    let body = forge.without_commands(format!("{}{text}", mark.line()));
    let login = forge.login()?;
    let mut action = "updated";
    let mut uncertain = None;
    // The comments this call has created.
    let mut written: Vec<u64> = Vec::new();
    for round in 1..=MAX_ROUNDS {
        let all = ours(forge, number, &login, &mark.id, &written)?;
        let mut ours = all.into_iter();
        let Some((first, shown)) = ours.next() else {
            action = "created";
            // The next round shows whether it is the only one.
            match forge.create_comment(number, &body, round)? {
                CreatedComment::Done(comment) if is_by(&comment, &login) => {
                    written.push(comment.id)
                }
                CreatedComment::Done(comment) => {
                    let author = comment.author.unwrap_or_default();
                    return Err(Error::forge_refused(format!(
                        "the comment {} is written by `{author}`, not `{login}`, so that perfquilt would not find it again",
                        comment.url
                    ))
                    .hint("delete the comment, and set PERFQUILT_LOGIN to its author"));
                }
                CreatedComment::Unknown(error) => uncertain = Some(error),
            }
            continue;
        };
        if mark.is_older_than(&shown, current_head) {
            return Ok(CommentUpdate {
                url: first.url,
                action: "newer",
                removed: 0,
            });
        }
        if !same(&first.body, &body) {
            before(&shown, &first.url)?;
            if !forge.update_comment(number, first.id, &body)? {
                continue;
            }
        } else if action != "created" {
            action = "unchanged";
        }
        let mut removed = 0;
        for (other, _) in ours {
            removed += usize::from(forge.delete_comment(number, other.id)?);
        }
        return Ok(CommentUpdate {
            url: first.url,
            action,
            removed,
        });
    }
    Err(uncertain.unwrap_or_else(|| {
        Error::forge_refused("cannot write the comment: it disappears right after it is written")
            .hint("check whether another program deletes comments of this account")
    }))
}

/// Returns perfquilt's own comments with this id and their marks, the oldest first; anybody can copy the mark, so the
/// author counts. The list may lag behind and miss the comments `written` just now, which are read separately.
fn ours(
    forge: &dyn Forge,
    number: u64,
    login: &str,
    id: &str,
    written: &[u64],
) -> Result<Vec<(ForgeComment, Mark)>> {
    let mut comments = forge.comments(number)?;
    for &one in written {
        if !comments.iter().any(|comment| comment.id == one) {
            comments.extend(forge.comment(number, one)?);
        }
    }
    let mut ours: Vec<(ForgeComment, Mark)> = comments
        .into_iter()
        .filter(|comment| is_by(comment, login))
        .filter_map(|comment| {
            let mark = Mark::of(&comment.body).filter(|mark| mark.id == id)?;
            Some((comment, mark))
        })
        .collect();
    ours.sort_by_key(|(comment, _)| comment.id);
    ours.dedup_by_key(|(comment, _)| comment.id);
    Ok(ours)
}

/// Returns whether a comment is by the account with this login.
fn is_by(comment: &ForgeComment, login: &str) -> bool {
    let author = comment.author.as_deref();
    author.is_some_and(|author| author.eq_ignore_ascii_case(login))
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
            status: None,
        };
        let body = format!("{}## Title\n", mark.line());
        assert_eq!(Mark::of(&body), Some(mark.clone()));
        assert_eq!(Mark::of(&body.replace('\n', "\r\n")), Some(mark.clone()));
        let timed = Mark {
            began: Some("2026-01-02T03:04:05Z".into()),
            status: Some("no effect".into()),
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
            status: None,
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
