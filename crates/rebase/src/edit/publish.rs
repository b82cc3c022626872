//! Changes several files of the workspace in one atomic step.
//!
//! New contents and a journal are written to a staging folder first; renaming that folder commits the change. A kill
//! before the rename changes nothing; after a later kill, the next command completes the change ([`recover`]).
//! Overwritten and removed files are kept as backups.

use std::fs::File;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::folder;
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::SeriesLocation;
use perfquilt_series::series::write::first_free;
use perfquilt_series::stack::history;
use perfquilt_series::state;
use perfquilt_series::upstream::Objects;
use perfquilt_system::files::{if_there, write_file};
use perfquilt_system::locks::{self, Lock};

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file's path.
    pub path: PathBuf,
    /// The new content; `None` removes the file.
    pub content: Option<Vec<u8>>,
}

/// A reference of the object store that moves together with the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceMove {
    /// The full name of the reference.
    pub reference: String,
    /// The commit that it points to now.
    pub from: String,
    /// The commit that it is to point to.
    pub to: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Journal {
    schema: u32,
    /// Folder of the old files. In the journal's file, this and the other paths are relative to the workspace.
    kept: PathBuf,
    changes: Vec<JournalEntry>,
    moves: Vec<ReferenceMove>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalEntry {
    path: PathBuf,
    /// SHA-256 of the old file; `None` if there was none.
    before: Option<String>,
    /// SHA-256 of the new file; `None` if the file is removed.
    after: Option<String>,
}

impl Journal {
    fn each_path(&mut self, change: impl Fn(&Path) -> PathBuf) {
        let changes = self.changes.iter_mut().map(|entry| &mut entry.path);
        for path in changes.chain([&mut self.kept]) {
            *path = change(path);
        }
    }
}

/// Waits for other commands that write the series. They stay locked out while the returned lock lives.
pub fn lock(ws: &Workspace) -> Result<Lock> {
    locks::wait(&folder(ws).join("lock"), || {})
}

/// Completes the change that a killed command left half done, and returns whether there was one. Checks for a single
/// file if there is nothing to do.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when a file was changed since,
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it still cannot be written.
pub fn recover(ws: &Workspace) -> Result<bool> {
    if !pending(ws).exists() {
        return Ok(false);
    }
    let lock = lock(ws)?;
    recover_locked(ws, &lock)
}

pub(super) fn recover_locked(ws: &Workspace, _lock: &Lock) -> Result<bool> {
    let pending = pending(ws);
    if !pending.exists() {
        return Ok(false);
    }
    let path = pending.join("journal.json");
    let shown = pending.display();
    let hint = || format!("remove {shown} if series and patches are as they should be");
    let sum = pending.join(SUM);
    if sum.exists() && std::fs::read(&sum).ok() != digest_of(&path)?.map(String::into_bytes) {
        return Err(damaged(&path, &hint()));
    }
    let Some(mut journal) = state::read::<Journal>(&path, hint)? else {
        return Err(Error::journal(format!("{} is missing", path.display())).hint(hint()));
    };
    check_paths(ws, &journal).map_err(|error| {
        error.hint(format!(
            "perfquilt did not write {}: look at it, then remove {}",
            path.display(),
            pending.display()
        ))
    })?;
    journal.each_path(|path| ws.root().join(path));
    for (index, entry) in journal.changes.iter().enumerate() {
        let now = digest_of(&entry.path)?;
        let staged = pending.join(index.to_string());
        if now != entry.after && entry.after.is_some() && digest_of(&staged)? != entry.after {
            return Err(damaged(&staged, &hint()));
        }
        if now != entry.before && now != entry.after {
            return Err(Error::journal(format!(
                "an interrupted command was about to write {}, which was changed since",
                entry.path.display()
            ))
            .hint(format!(
                "{} has the files that were to be written, numbered as in journal.json; remove that folder once series and patches are right",
                pending.display()
            )));
        }
    }
    carry_out(ws, &pending, &journal)?;
    Ok(true)
}

/// Returns the error for a file that is not what the interrupted command wrote.
fn damaged(path: &Path, hint: &str) -> Error {
    Error::journal_damaged(format!(
        "{} is damaged, so the interrupted change is not completed",
        path.display()
    ))
    .hint(format!("check the disk; {hint}"))
}

/// Refuses a journal that would write anything but what changes of a series write, or keep old ones anywhere
/// but in the folder for them.
fn check_paths(ws: &Workspace, journal: &Journal) -> Result<()> {
    let refused = |path: &Path, why: &str| {
        Error::journal(format!(
            "an unfinished change names {}, which is {why}",
            path.display()
        ))
    };
    let plain = |path: &Path| {
        let mut parts = path.components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    };
    let kept = ws.written(&folder(ws).join("kept"));
    let below = journal.kept.strip_prefix(&kept);
    if !below.is_ok_and(|below| plain(below) && below.components().count() == 1) {
        return Err(refused(&journal.kept, "no folder for old files"));
    }
    let own = written_paths(ws);
    for entry in &journal.changes {
        let path = &entry.path;
        let parts = path.strip_prefix("/").unwrap_or(path);
        let private = parts.components().any(|part| {
            let name = part.as_os_str();
            name == ".git" || name == ".perfquilt"
        });
        if private || !plain(parts) {
            return Err(refused(path, "no file of a workspace"));
        }
        let full = ws.root().join(path);
        let real = without_links(&full);
        let inside = own.iter().any(|own| real.starts_with(own));
        if !inside || full.is_symlink() || real.components().any(|part| part.as_os_str() == ".git")
        {
            return Err(refused(path, "no file of a series of this workspace"));
        }
    }
    Ok(())
}

/// Returns what changes may write: the series and folders of patches of all releases, and the configuration, to which an
/// import adds them.
fn written_paths(ws: &Workspace) -> Vec<PathBuf> {
    let named = ws.config.upstream.release.iter();
    let named = named.map(|release| Some(release.version.as_str()));
    let located = std::iter::once(None)
        .chain(named)
        .filter_map(|release| SeriesLocation::of(ws, release).ok())
        .flat_map(|series| [series.file, series.folder]);
    let configured = [&ws.config.series.file, &ws.config.series.patches];
    let configured = configured.map(|path| ws.root().join(path));
    let paths = located
        .chain(configured)
        .chain([ws.root().join(CONFIG_FILE)]);
    paths.map(|path| without_links(&path)).collect()
}

/// Returns `path` without links on the way; the parts that do not exist stay as they are.
pub(crate) fn without_links(path: &Path) -> PathBuf {
    for folder in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (folder.canonicalize(), path.strip_prefix(folder)) {
            // Joining nothing would add a slash, which makes a file a folder.
            let is_whole = rest.as_os_str().is_empty();
            return if is_whole { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

/// Writes and removes files and moves references, all or nothing. Returns the folder that keeps the old files, if
/// there were any.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a file cannot be written. The old files are
/// then restored, or the next command completes the change.
pub fn publish(
    ws: &Workspace,
    _lock: &Lock,
    changes: &[FileChange],
    moves: &[ReferenceMove],
) -> Result<Option<PathBuf>> {
    let base = folder(ws);
    sweep(&base);
    let staging = tempfile::Builder::new()
        .prefix(STAGING)
        .tempdir_in(&base)
        .map_err(|e| Error::io("write in", &base, &e))?;
    let mut entries = Vec::new();
    let mut kept_any = false;
    for change in changes {
        // Symbolic links are followed, so that `patches/series -> ../series` stays a link.
        let path = match &change.content {
            Some(_) => std::fs::canonicalize(&change.path).unwrap_or_else(|_| change.path.clone()),
            None => change.path.clone(),
        };
        let before = digest_of(&path)?;
        let after = change.content.as_deref().map(digest);
        if before == after {
            continue;
        }
        kept_any |= before.is_some();
        if let Some(content) = &change.content {
            write_synced(&staging.path().join(entries.len().to_string()), content)?;
        }
        entries.push(JournalEntry {
            path,
            before,
            after,
        });
    }
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let kept = base.join("kept");
    let kept = kept.join(first_free(&now.to_string(), "", |name| {
        !kept.join(name).exists()
    }));
    let mut journal = Journal {
        schema: 1,
        kept: kept.clone(),
        changes: entries,
        moves: moves.to_vec(),
    };
    journal.each_path(|path| ws.written(path));
    let text = state::text(&journal)?;
    journal.each_path(|path| ws.root().join(path));
    write_synced(&staging.path().join("journal.json"), &text)?;
    write_synced(&staging.path().join(SUM), digest(&text).as_bytes())?;
    let pending = pending(ws);
    let staged = staging.keep();
    std::fs::rename(&staged, &pending).map_err(|e| Error::io("write", &pending, &e))?;
    // A write may fail permanently (a read-only folder), so the change is undone instead of being retried.
    if let Err(error) = carry_out(ws, &pending, &journal) {
        undo(&journal)?;
        discard(&pending)?;
        return Err(error);
    }
    Ok(kept_any.then_some(kept))
}

const STAGING: &str = "staging-";
/// The file with the digest of the journal.
const SUM: &str = "journal.sha256";

fn pending(ws: &Workspace) -> PathBuf {
    folder(ws).join("pending")
}

/// Removes staging folders of killed commands.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(STAGING) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn carry_out(ws: &Workspace, pending: &Path, journal: &Journal) -> Result<()> {
    for (index, entry) in journal.changes.iter().enumerate() {
        let now = digest_of(&entry.path)?;
        if now == entry.after {
            continue;
        }
        if now.is_some() {
            keep(journal, entry)?;
        }
        if entry.after.is_some() {
            let staged = pending.join(index.to_string());
            let content = std::fs::read(&staged).map_err(|e| Error::io("read", &staged, &e))?;
            write_file(&entry.path, &content)?;
        }
    }
    // Files are removed last, so that `series` never names a missing file.
    for entry in journal.changes.iter().filter(|entry| entry.after.is_none()) {
        if_there("remove", &entry.path, std::fs::remove_file(&entry.path))?;
    }
    if !journal.moves.is_empty() {
        let store = Objects::open(&ws.object_store())?;
        for step in &journal.moves {
            if history::reference(&store, &step.reference)?.as_ref() == Some(&step.from) {
                history::set_reference(&store, &step.reference, &step.to)?;
            }
        }
    }
    discard(pending)
}

/// Removes `pending` in one step, because a partly removed folder would look like an unfinished change. The next
/// writer sweeps the remains of a killed removal.
fn discard(pending: &Path) -> Result<()> {
    let done = pending.with_file_name(format!("{STAGING}done"));
    if_there("remove", pending, std::fs::remove_dir_all(&done))?;
    std::fs::rename(pending, &done).map_err(|e| Error::io("remove", pending, &e))?;
    let _ = std::fs::remove_dir_all(&done);
    Ok(())
}

/// Returns the path under which an old file is kept: its own name, in a numbered folder if the name is taken.
fn kept_path(journal: &Journal, entry: &JournalEntry) -> PathBuf {
    let name = entry.path.file_name().unwrap_or_default();
    let index = journal
        .changes
        .iter()
        .filter(|other| other.path.file_name() == Some(name))
        .position(|other| other.path == entry.path)
        .unwrap_or_default();
    match index {
        0 => journal.kept.join(name),
        more => journal.kept.join(more.to_string()).join(name),
    }
}

fn keep(journal: &Journal, entry: &JournalEntry) -> Result<()> {
    let copy = kept_path(journal, entry);
    let parent = copy.parent().unwrap_or(&journal.kept);
    std::fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, &e))?;
    std::fs::copy(&entry.path, &copy).map_err(|e| Error::io("write", &copy, &e))?;
    Ok(())
}

fn undo(journal: &Journal) -> Result<()> {
    for entry in &journal.changes {
        if digest_of(&entry.path)? == entry.before {
            continue;
        }
        match &entry.before {
            Some(_) => {
                let copy = kept_path(journal, entry);
                let content = std::fs::read(&copy).map_err(|e| Error::io("read", &copy, &e))?;
                write_file(&entry.path, &content)?;
            }
            None => std::fs::remove_file(&entry.path)
                .map_err(|e| Error::io("remove", &entry.path, &e))?,
        }
    }
    Ok(())
}

fn digest(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

fn digest_of(path: &Path) -> Result<Option<String>> {
    let content = if_there("read", path, std::fs::read(path))?;
    Ok(content.map(|content| digest(&content)))
}

fn write_synced(path: &Path, content: &[u8]) -> Result<()> {
    let io = |e| Error::io("write", path, &e);
    let mut file = File::create(path).map_err(io)?;
    file.write_all(content).map_err(io)?;
    file.sync_all().map_err(io)
}
