//! Reading a chain of commits that somebody made with plain git.

use git2::Oid;

use super::oid;
use crate::series::{Person, Timestamp};
use crate::upstream::Objects;
use crate::upstream::object_store;
use perfquilt_model::error::{Error, Result};

/// A commit with one parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its name.
    pub id: String,
    /// Its tree.
    pub tree: String,
    /// Its message, invalid bytes replaced.
    pub message: String,
    /// Its author; `None` for the placeholder of patches that name none.
    pub author: Option<Person>,
    /// When it was written.
    pub date: Timestamp,
}

/// The commits after `base` up to `tip`, oldest first.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when `tip` does not stand on `base` or there is a merge
/// in between, [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store is damaged.
pub fn commits(store: &Objects, base: &str, tip: &str) -> Result<Vec<Commit>> {
    let base = oid(base)?;
    let mut at = oid(tip)?;
    let mut found = Vec::new();
    while at != base {
        let commit = store.repository().find_commit(at).map_err(object_store)?;
        let parents: Vec<Oid> = commit.parent_ids().collect();
        let short = at.to_string()[..12].to_owned();
        let title = String::from_utf8_lossy(commit.message_bytes())
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        if parents.len() > 1 {
            return Err(Error::series(format!(
                "commit {short} ({title}) is a merge; a series is one line of commits"
            ))
            .hint("make it one with `git rebase`, without --rebase-merges"));
        }
        found.push(Commit {
            id: at.to_string(),
            tree: commit.tree_id().to_string(),
            message: String::from_utf8_lossy(commit.message_bytes()).into_owned(),
            author: person(&commit.author()),
            date: timestamp(&commit.author()),
        });
        at = *parents.first().ok_or_else(|| {
            Error::series(format!(
                "the branch does not stand on the release: it begins with commit {short} ({title})"
            ))
        })?;
    }
    found.reverse();
    Ok(found)
}

/// The commit a reference of the store names.
///
/// # Errors
/// As [`Objects::reference`].
pub fn reference(store: &Objects, name: &str) -> Result<Option<String>> {
    Ok(store.reference(name)?.map(|oid| oid.to_string()))
}

/// Makes a reference of the store name a commit.
///
/// # Errors
/// As [`Objects::set_reference`].
pub fn set_reference(store: &Objects, name: &str, commit: &str) -> Result<()> {
    store.set_reference(name, oid(commit)?)
}

fn person(signature: &git2::Signature<'_>) -> Option<Person> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (name, email) = (text(signature.name_bytes()), text(signature.email_bytes()));
    // What a commit says whose patch names nobody.
    (!(name == "unknown" && email.is_empty())).then_some(Person { name, email })
}

fn timestamp(signature: &git2::Signature<'_>) -> Timestamp {
    let when = signature.when();
    Timestamp {
        seconds: when.seconds(),
        offset_minutes: when.offset_minutes(),
    }
}
