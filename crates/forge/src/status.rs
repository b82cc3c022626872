//! Commit statuses: one line of text, of which the last one of a name counts.

use super::forge::CommitStatus;
use super::start_time::is_before;
use super::transport::RequestError;
use perfquilt_model::error::Result;

/// The maximum length of a description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 255;
/// The id of a comment unless the user chooses one.
const DEFAULT_ID: &str = "default";
/// What precedes the start of the measurement in a description.
const BEGAN: &str = ", measured from ";

/// Returns the name of the status for comments with `id`. Merge rules require the latest status of a name, so one
/// workspace's success would hide another one's failure under the same name.
pub(super) fn name(id: &str) -> String {
    if id == DEFAULT_ID {
        "perfquilt".to_owned()
    } else {
        format!("perfquilt ({id})")
    }
}

/// A status that was written before.
pub(super) struct WrittenStatus {
    pub id: u64,
    pub state: String,
    pub description: String,
}

/// Writes `status` with `write` unless one of `existing`, those under its name, is about a measurement that began later,
/// or the last one is the same; returns false in the first case. The description has the start, because a forge tells
/// only when the status was written.
pub(super) fn update(
    status: &CommitStatus<'_>,
    state: &str,
    existing: Vec<WrittenStatus>,
    write: impl FnOnce(&str) -> Result<(), RequestError>,
) -> Result<bool> {
    let start = |found: &WrittenStatus| {
        let (_, began) = found.description.rsplit_once(BEGAN)?;
        Some(began.to_owned())
    };
    let mut starts = existing.iter().filter_map(start);
    if starts.any(|shown| is_before(status.began, Some(&shown))) {
        return Ok(false);
    }
    let began = status.began.map(|began| format!("{BEGAN}{began}"));
    let began = began.unwrap_or_default();
    let room = MAX_DESCRIPTION_CHARS.saturating_sub(began.len());
    let title: String = status.comment.title.chars().take(room).collect();
    let description = title + &began;
    let last = existing.into_iter().max_by_key(|found| found.id);
    if !last.is_some_and(|last| last.state == state && last.description == description) {
        write(&description).map_err(|failure| match failure {
            RequestError::Refused(403, _, error) => {
                let needed = error
                    .hint_text()
                    .unwrap_or("the token may not write it")
                    .to_owned();
                error.hint(format!("{needed}; `--no-check` skips the status"))
            }
            other => other.into(),
        })?;
    }
    Ok(true)
}
