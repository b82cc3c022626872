//! Reads the mails of an inbox that came since the last look: a Maildir, or a public-inbox of version 1 or 2. Writes nothing there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use git2::{Commit, Delta, Oid, Repository, Sort};

use perfquilt_model::error::{Error, Result};
use perfquilt_series::upstream::store_error;
use perfquilt_system::files::read_untrusted;

/// What was read of an inbox: the last commit of each repository, or the names of a Maildir's mails.
pub type InboxPosition = BTreeMap<String, String>;

/// Takes the place and the content of a mail.
pub type TakeMail<'a> = dyn FnMut(&str, Option<Vec<u8>>) -> Result<()> + 'a;

/// Calls `take` with the place and the content of each mail of the inbox at `path` after `position`, which it advances; with no
/// content for a mail of more than `most` bytes. On the first look at a repository, begins with the mails that came there after
/// `since`, in seconds since 1970. May return a mail again, if the inbox was rewritten.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when there is no inbox.
pub fn read_inbox(
    path: &Path,
    position: &mut InboxPosition,
    since: i64,
    most: u64,
    take: &mut TakeMail<'_>,
) -> Result<()> {
    if path.join("new").is_dir() && path.join("cur").is_dir() {
        return read_maildir(path, position, most, take);
    }
    let epochs = epochs(path)?;
    for repository in &epochs {
        read_repository(repository, position, since, most, take)?;
    }
    if epochs.is_empty() {
        let fault = format!("{} is neither a Maildir nor a public-inbox", path.display());
        return Err(Error::bot_settings(fault).hint(
            "`inbox` in [bot.mail] names a folder with `new` and `cur`, or one that `public-inbox-init` made",
        ));
    }
    Ok(())
}

/// Returns the repositories of a public-inbox, the oldest first: one for version 1, one for each epoch for version 2.
fn epochs(path: &Path) -> Result<Vec<PathBuf>> {
    if path.join("objects").is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let Ok(entries) = std::fs::read_dir(path.join("git")) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        let place = entry.map_err(|e| Error::io("read", path, &e))?.path();
        let name = place.file_stem().and_then(|name| name.to_str());
        if let Some(epoch) = name.and_then(|name| name.parse::<u32>().ok()) {
            found.push((epoch, place));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, place)| place).collect())
}

fn read_maildir(
    path: &Path,
    position: &mut InboxPosition,
    most: u64,
    take: &mut TakeMail<'_>,
) -> Result<()> {
    let mut there = BTreeMap::new();
    for folder in ["new", "cur"].map(|name| path.join(name)) {
        for entry in std::fs::read_dir(&folder).map_err(|e| Error::io("read", &folder, &e))? {
            let entry = entry.map_err(|e| Error::io("read", &folder, &e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // A program that shows the mail moves it and adds flags behind a colon.
            let unique = name.split(':').next().unwrap_or_default().to_owned();
            if !unique.starts_with('.') {
                there.insert(unique, entry.path());
            }
        }
    }
    position.retain(|name, _| there.contains_key(name));
    for (name, place) in there {
        if position.contains_key(&name) {
            continue;
        }
        let shown = place.display().to_string();
        let found = std::fs::symlink_metadata(&place);
        if !found.as_ref().is_ok_and(|found| found.is_file()) {
            continue;
        } else if found.is_ok_and(|found| found.len() > most) {
            take(&shown, None)?;
        } else if let Some(bytes) = read_untrusted(&place, most)? {
            take(&shown, Some(bytes))?;
        } else {
            // Another program has moved it; the next look finds it.
            continue;
        }
        position.insert(name, String::new());
    }
    Ok(())
}

fn read_repository(
    path: &Path,
    position: &mut InboxPosition,
    since: i64,
    most: u64,
    take: &mut TakeMail<'_>,
) -> Result<()> {
    let key = path.display().to_string();
    let repository = Repository::open_bare(path).map_err(store_error)?;
    // An empty epoch has no commit yet.
    let Ok(tip) = repository.head().and_then(|head| head.peel_to_commit()) else {
        return Ok(());
    };
    let last = position.get(&key).and_then(|id| Oid::from_str(id).ok());
    let mut walk = repository.revwalk().map_err(store_error)?;
    walk.set_sorting(Sort::TOPOLOGICAL).map_err(store_error)?;
    walk.push(tip.id()).map_err(store_error)?;
    // `public-inbox-edit` and `-purge` rewrite commits; then the last one is unknown.
    let known = last.is_some_and(|last| walk.hide(last).is_ok());
    let mut commits = Vec::new();
    for id in walk {
        let id = id.map_err(store_error)?;
        let commit = repository.find_commit(id).map_err(store_error)?;
        if !known && commit.time().seconds() < since {
            break;
        }
        commits.push(id);
    }
    for id in commits.into_iter().rev() {
        let commit = repository.find_commit(id).map_err(store_error)?;
        for blob in added(&repository, &commit).map_err(store_error)? {
            let mail = repository.find_blob(blob).map_err(store_error)?;
            let is_small = mail.size() as u64 <= most;
            let bytes = is_small.then(|| mail.content().to_owned());
            take(&format!("{key} {id}"), bytes)?;
        }
        position.insert(key.clone(), id.to_string());
    }
    // Also if nothing was new enough.
    position.insert(key, tip.id().to_string());
    Ok(())
}

/// Returns the mails that a commit adds. In version 2, the file `d` is a mail that the commit deletes.
fn added(
    repository: &Repository,
    commit: &Commit<'_>,
) -> std::result::Result<Vec<Oid>, git2::Error> {
    let tree = commit.tree()?;
    let before = match commit.parent(0) {
        Ok(parent) => Some(parent.tree()?),
        Err(_) => None,
    };
    let diff = repository.diff_tree_to_tree(before.as_ref(), Some(&tree), None)?;
    let files = diff.deltas().filter(|delta| {
        let name = delta.new_file().path_bytes();
        [Delta::Added, Delta::Modified].contains(&delta.status()) && name != Some(b"d")
    });
    Ok(files.map(|delta| delta.new_file().id()).collect())
}
