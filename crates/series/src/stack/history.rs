//! Reading a chain of commits made with plain git.

use git2::Oid;

use super::oid;
use crate::series::text::{DecodedText, decode};
use crate::series::{Person, Timestamp};
use crate::upstream::Objects;
use crate::upstream::store_error;
use perfquilt_model::error::{Error, Result};

/// A commit with one parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its id.
    pub id: String,
    /// Its tree.
    pub tree: String,
    /// Its message, decoded from the encoding that it declares.
    pub message: String,
    /// Its author; `None` for the placeholder of patches without one.
    pub author: Option<Person>,
    /// The author date.
    pub date: Timestamp,
}

/// Returns the commits after `base` up to `tip`, oldest first.
pub fn commits(store: &Objects, base: &str, tip: &str) -> Result<Vec<Commit>> {
    let base = oid(base)?;
    let mut at = oid(tip)?;
    let mut found = Vec::new();
    while at != base {
        let commit = store.repository().find_commit(at).map_err(store_error)?;
        let parents: Vec<Oid> = commit.parent_ids().collect();
        let short = at.to_string()[..12].to_owned();
        let message = message(&commit).text;
        let title = message.lines().next().unwrap_or_default();
        if parents.len() > 1 {
            return Err(Error::history(format!(
                "commit {short} ({title}) is a merge; a series is a linear history"
            ))
            .hint("make it linear with `git rebase`, without --rebase-merges"));
        }
        let title = title.to_owned();
        found.push(Commit {
            id: at.to_string(),
            tree: commit.tree_id().to_string(),
            message,
            author: author(&commit),
            date: timestamp(&commit.author()),
        });
        at = *parents.first().ok_or_else(|| {
            Error::history(format!(
                "the branch is not based on the release: it begins with commit {short} ({title})"
            ))
        })?;
    }
    found.reverse();
    Ok(found)
}

/// Returns the commit of a reference, if the reference exists.
pub fn reference(store: &Objects, name: &str) -> Result<Option<String>> {
    Ok(store.reference(name)?.map(|oid| oid.to_string()))
}

/// Sets a reference to a commit.
pub fn set_reference(store: &Objects, name: &str, commit: &str) -> Result<()> {
    store.set_reference(name, oid(commit)?)
}

/// Returns a commit's message, decoded from the encoding that the commit declares.
pub fn message(commit: &git2::Commit<'_>) -> DecodedText {
    decode(commit.message_bytes(), encoding(commit))
}

/// Returns a commit's author; `None` for the placeholder of patches without one.
pub fn author(commit: &git2::Commit<'_>) -> Option<Person> {
    let signature = commit.author();
    let text = |bytes: &[u8]| decode(bytes, encoding(commit)).text;
    let (name, email) = (text(signature.name_bytes()), text(signature.email_bytes()));
    (!(name == "unknown" && email.is_empty())).then_some(Person { name, email })
}

fn encoding<'c>(commit: &'c git2::Commit<'_>) -> Option<&'c str> {
    commit.message_encoding().ok().flatten()
}

/// Returns the time of a commit's signature.
pub fn timestamp(signature: &git2::Signature<'_>) -> Timestamp {
    let when = signature.when();
    Timestamp {
        seconds: when.seconds(),
        offset_minutes: when.offset_minutes(),
    }
}
