//! Splits patch files that hold several commits, such as a mailbox, into one file a commit.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::imported_release;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_rebase::edit::publish::{self, FileChange};
use perfquilt_series::series::write::{first_free, split_extension, with_lines_after};
use perfquilt_series::series::{
    Patch, Series, SeriesEntry, SeriesFile, SeriesLocation, commits_of, compression,
};
use perfquilt_series::stack::{self, Stack};

/// A file that was split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitFile {
    /// Displayed path of the file, which keeps its first commit.
    pub file: String,
    /// Displayed paths of the new files, in the order of the series.
    pub new: Vec<String>,
}

/// The result of [`split`].
#[derive(Debug, Clone, Default)]
pub struct SplitResult {
    /// The split files.
    pub files: Vec<SplitFile>,
    /// Folder that keeps the old files.
    pub kept: Option<PathBuf>,
}

/// A patch of the series and its commits, one file each.
struct Parts<'a> {
    entry: &'a SeriesEntry,
    /// Name and bytes of each; the patch's own bytes if there is one commit.
    files: Vec<(String, Vec<u8>)>,
}

/// Splits patch files at the messages of further commits. Nothing is written unless the series then applies, and makes
/// the same trees if it applied before.
pub fn split(ws: &Workspace) -> Result<SplitResult> {
    let lock = publish::lock(ws)?;
    let location = SeriesLocation::of(ws, None)?;
    let series = Series::load(ws)?;
    let parts = parts(&location, &series)?;
    if parts.iter().all(|patch| patch.files.len() == 1) {
        return Ok(SplitResult::default());
    }
    let release = imported_release(ws, "the parts of the patches")?;
    let before = stack::if_applies(stack::apply(ws, &release, &series))?;
    let new_lines: Vec<(&SeriesEntry, Vec<String>)> = parts
        .iter()
        .map(|patch| {
            let names = patch.files[1..].iter().map(|(name, _)| name.clone());
            (patch.entry, names.collect())
        })
        .collect();
    let text = with_lines_after(series.file(), &new_lines);
    let file = SeriesFile::read(text.as_bytes(), &location.shown)?;
    let bytes = parts.iter().flat_map(|patch| &patch.files);
    let patches =
        file.entries().iter().zip(bytes).map(|(entry, (_, bytes))| {
            Patch::parse(entry, &location.shown_patch(&entry.name), bytes)
        });
    let patches = patches.collect::<Result<Vec<Patch>>>()?;
    let after = stack::apply(ws, &release, &Series::assemble(file, patches))?;
    compare(&parts, before.as_ref(), &after)?;
    let mut result = SplitResult::default();
    let mut changes = vec![FileChange {
        path: location.file.clone(),
        content: Some(text.into_bytes()),
    }];
    for patch in parts.iter().filter(|patch| patch.files.len() > 1) {
        for (name, bytes) in &patch.files {
            changes.push(FileChange {
                path: location.folder.join(name),
                content: Some(perfquilt_series::series::compress(name, bytes)?),
            });
        }
        let shown = |(name, _): &(String, Vec<u8>)| location.shown_patch(name);
        result.files.push(SplitFile {
            file: location.shown_patch(&patch.entry.name),
            new: patch.files[1..].iter().map(shown).collect(),
        });
    }
    result.kept = publish::publish(ws, &lock, &changes, &[])?;
    Ok(result)
}

/// Divides every patch of the series into its commits.
fn parts<'a>(location: &SeriesLocation, series: &'a Series) -> Result<Vec<Parts<'a>>> {
    let entries = series.file().entries();
    let mut taken: BTreeSet<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    let mut found = Vec::new();
    for (entry, patch) in entries.iter().zip(series.patches()) {
        let bytes = location.bytes(entry)?;
        let commits = if patch.has_text_between() {
            commits_of(&bytes)
        } else {
            vec![bytes.as_slice()]
        };
        if commits.len() > 1 && entry.reverse {
            let what =
                "it has several commits and is applied in reverse, so lint does not split it";
            return Err(Error::lint(what)
                .at(&patch.shown, None)
                .hint("split it by hand, and list the last commit first"));
        }
        let mut files = Vec::new();
        for (number, commit) in commits.into_iter().enumerate() {
            let name = if number == 0 {
                entry.name.clone()
            } else {
                free_name(location, &entry.name, &mut taken)
            };
            files.push((name, commit.to_vec()));
        }
        found.push(Parts { entry, files });
    }
    Ok(found)
}

/// Returns `NAME-2.patch` for `NAME.patch`, or the next number that neither the series nor a file has.
fn free_name(location: &SeriesLocation, name: &str, taken: &mut BTreeSet<String>) -> String {
    let compressed = compression(name);
    let plain = name.strip_suffix(compressed).unwrap_or(name);
    let (stem, ending) = split_extension(plain);
    first_free(stem, &format!("{ending}{compressed}"), |name| {
        let exists = location.folder.join(name).symlink_metadata().is_ok();
        !exists && taken.insert(name.to_owned())
    })
}

/// Checks that the last commit of every patch makes the tree that the patch made, if the series applied.
fn compare(parts: &[Parts<'_>], before: Option<&Stack>, after: &Stack) -> Result<()> {
    let Some(before) = before else {
        return Ok(());
    };
    let mut last = 0;
    for (patch, old) in parts.iter().zip(&before.steps) {
        last += patch.files.len();
        if after.steps.get(last - 1).map(|new| &new.tree) != Some(&old.tree) {
            return Err(Error::lint(format!(
                "{} produces another tree when its commits are applied one after the other; nothing was written",
                old.name
            ))
            .hint("its commits change the same lines; `perfquilt edit` shows what the whole patch does"));
        }
    }
    Ok(())
}
