//! The one comment of a pull request: found again by a mark nobody sees, and by who wrote it.
//!
//! GitHub has no way to write a comment unless there is one, so two programs at the same time, or one whose
//! answer was lost, can write two. Whoever writes therefore looks again afterwards, and everybody follows one
//! rule: the oldest stays and gets the text, the others go. Whatever the order, one is left.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{Call, Fault, Method, Shared, get};
use super::model::Comment;
use perfquilt_model::error::{Error, Result};

/// How often the whole of looking and writing is begun again.
const ROUNDS: u32 = 6;

/// What a comment's mark says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Which of several comments of this program on one pull request.
    pub id: String,
    /// The commit it is about.
    pub head: String,
}

/// What became of the comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its page.
    pub url: String,
    /// `created`, `updated`, `unchanged`, or `newer` where there is one of a later commit, which stays.
    pub action: &'static str,
    /// How many others of the same kind were removed.
    pub removed: usize,
}

const BEFORE: &str = "<!-- perfquilt ";
const BEHIND: &str = " -->";

impl Mark {
    /// The line a comment begins with.
    pub(super) fn line(&self) -> String {
        let id = serde_json::to_string(&self.id).unwrap_or_default();
        let head = serde_json::to_string(&self.head).unwrap_or_default();
        format!("{BEFORE}{{\"id\":{id},\"head\":{head}}}{BEHIND}\n")
    }

    /// The mark of a comment, if it begins with one.
    fn of(body: &str) -> Option<Mark> {
        let line = body.lines().next()?.strip_prefix(BEFORE)?;
        serde_json::from_str(line.trim_end().strip_suffix(BEHIND)?).ok()
    }
}

/// Sees to it that the pull request `number` has exactly one comment with `mark`'s id, and that it has
/// this text (without the mark). `newest` is the pull request's last commit: a comment about that is not
/// replaced by one about an older.
pub(super) async fn keep(
    shared: &Shared,
    number: u64,
    mark: &Mark,
    newest: &str,
    text: &str,
) -> Result<Kept> {
    let body = format!("{}{text}", mark.line());
    let login = shared.login().await?;
    let mut action = "updated";
    let mut unclear = None;
    // What this program wrote just now.
    let mut written: Vec<u64> = Vec::new();
    for round in 1..=ROUNDS {
        let all = ours(shared, number, &login, &mark.id, &written).await?;
        let mut ours = all.into_iter();
        let Some(first) = ours.next() else {
            let post = Call {
                what: "write the comment",
                method: Method::Post,
                path: shared.path(&format!("issues/{number}/comments")),
                body: Some(json!({ "body": body })),
            };
            match shared.call::<Comment>(&post).await {
                // Whether it is the only one shows the next round.
                Ok(comment) => {
                    action = "created";
                    written.push(comment.id);
                }
                Err(Fault::Unclear(error, answer)) => {
                    tracing::debug!("{error}: looking whether it is there");
                    action = "created";
                    unclear = Some(error);
                    if !shared.pause(&answer, round).await {
                        break;
                    }
                }
                Err(fault) => return Err(refused(fault)),
            }
            continue;
        };
        let about = |comment: &Comment| comment.body.as_deref().and_then(Mark::of);
        if mark.head != newest && about(&first).is_some_and(|mark| mark.head == newest) {
            return Ok(Kept {
                url: first.html_url,
                action: "newer",
                removed: 0,
            });
        }
        if !same(first.body.as_deref().unwrap_or_default(), &body) {
            let patch = Call {
                what: "update the comment",
                method: Method::Patch,
                path: shared.path(&format!("issues/comments/{}", first.id)),
                body: Some(json!({ "body": body })),
            };
            match shared.tell(&patch).await {
                Ok(()) => {}
                // Somebody removed it in this moment.
                Err(Fault::Refused(404 | 410, _)) => continue,
                Err(fault) => return Err(refused(fault)),
            }
        } else if action != "created" {
            action = "unchanged";
        }
        let mut removed = 0;
        for other in ours {
            let delete = Call {
                what: "remove a second comment",
                method: Method::Delete,
                path: shared.path(&format!("issues/comments/{}", other.id)),
                body: None,
            };
            match shared.tell(&delete).await {
                Ok(()) => removed += 1,
                Err(Fault::Refused(404 | 410, _)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        return Ok(Kept {
            url: first.html_url,
            action,
            removed,
        });
    }
    Err(unclear.unwrap_or_else(|| {
        Error::forge("cannot write the comment: it is removed as soon as it is there")
            .hint("does another program remove comments of this account?")
    }))
}

/// The comments of this kind that we wrote ourselves, the oldest first. Anybody can copy the mark. The list may
/// not have what was `written` just now; that is asked for by itself.
async fn ours(
    shared: &Shared,
    number: u64,
    login: &str,
    id: &str,
    written: &[u64],
) -> Result<Vec<Comment>> {
    let path = shared.path(&format!("issues/{number}/comments"));
    let mut comments: Vec<Comment> = shared.all("read the comments", &path).await?;
    for &one in written {
        if comments.iter().any(|comment| comment.id == one) {
            continue;
        }
        let call = get(
            "read the comment",
            shared.path(&format!("issues/comments/{one}")),
        );
        match shared.call(&call).await {
            Ok(comment) => comments.push(comment),
            // Somebody removed it.
            Err(Fault::Refused(404 | 410, _)) => {}
            Err(fault) => return Err(fault.into()),
        }
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

/// Whether two texts are the same but for the line ends an editor in a browser leaves.
fn same(a: &str, b: &str) -> bool {
    a.trim_end().lines().eq(b.trim_end().lines())
}

fn refused(fault: Fault) -> Error {
    match fault {
        Fault::Refused(403, error) if error.message().contains("locked") => {
            error.hint("the conversation is locked; who may write to the repository can unlock it")
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_again() {
        let mark = Mark {
            id: "default".into(),
            head: "0123abc".into(),
        };
        let body = format!("{}## Title\n", mark.line());
        assert_eq!(Mark::of(&body), Some(mark.clone()));
        assert_eq!(Mark::of(&body.replace('\n', "\r\n")), Some(mark));
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
}
