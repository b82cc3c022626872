//! Applying one patch to a working tree: all of it or nothing.

use std::sync::Arc;

use git2::{ObjectType, Oid};

use super::conflict;
use super::disk::{Disk, File, Files, Outcomes};
use super::place::{Placed, Placer};
use super::tree::{At, WorkingTree};
use crate::series::diff::Binary;
use crate::series::path::shown;
use crate::series::{FileDiff, Patch, Presence};
use crate::upstream::objects::{MODE_FILE, MODE_LINK, hash};
use perfquilt_model::error::{Error, Result};

/// How a patch went in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// The largest distance, in lines, between where a hunk was written and where it went.
    pub offset: i64,
    /// The most context lines that had to be ignored; 0 unless that was allowed.
    pub fuzz: usize,
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            How { offset: 0, fuzz: 0 } => f.write_str("exact"),
            How { offset, fuzz: 0 } => write!(f, "offset {offset}"),
            How { fuzz, .. } => write!(f, "fuzz {fuzz}"),
        }
    }
}

impl How {
    fn add(&mut self, placed: Placed) {
        if placed.offset.abs() > self.offset.abs() {
            self.offset = placed.offset;
        }
        self.fuzz = self.fuzz.max(placed.fuzz);
    }
}

/// Applies `patch` to `tree`, which is unchanged when that fails.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) with the hunk's place in the patch, the file, what was
/// expected there, and what would have helped.
pub fn apply_patch(tree: &mut WorkingTree<'_>, patch: &Patch, fuzz: usize) -> Result<How> {
    let (how, outcomes) = outcomes(tree, patch, fuzz)?;
    let (removed, written): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .partition(|(_, outcome)| outcome.is_none());
    // A path can only turn from a file into a folder when the removal comes first.
    for (path, _) in &removed {
        if matches!(tree.at(path)?, At::File { .. }) {
            tree.remove(path)?;
        }
    }
    for (path, file) in written {
        if let Some(file) = file {
            tree.set(&path, file.mode, file.content)?;
        }
    }
    Ok(how)
}

/// What `patch` makes of `files`, and how it went in. Nothing is written. Up to `fuzz` lines of
/// context are ignored, unless the patch's own options say how many.
///
/// # Errors
/// As [`apply_patch`].
pub fn outcomes(files: &mut dyn Files, patch: &Patch, fuzz: usize) -> Result<(How, Outcomes)> {
    let mut how = How::default();
    let mut disk = Disk::new(files);
    let fuzz = patch.flags.fuzz.unwrap_or(fuzz);
    let mut git = false;
    for diff in &patch.files {
        if git && !diff.git {
            disk.flush().map_err(|error| placed(error, patch, diff))?;
        }
        git = diff.git;
        one_file(&mut disk, patch, diff, fuzz, &mut how)
            .map_err(|error| placed(error, patch, diff))?;
    }
    let last = patch.files.last();
    let outcomes = disk.finish().map_err(|error| match last {
        Some(diff) => placed(error, patch, diff),
        None => error,
    })?;
    Ok((how, outcomes))
}

fn placed(error: Error, patch: &Patch, diff: &FileDiff) -> Error {
    match error.place() {
        Some(_) => error,
        None => error.at(&patch.shown, diff.line),
    }
}

/// Applies the diff of one file.
fn one_file(
    disk: &mut Disk<'_>,
    patch: &Patch,
    diff: &FileDiff,
    fuzz: usize,
    how: &mut How,
) -> Result<()> {
    if let (Some(old), Some(new)) = (diff.old_mode, diff.new_mode)
        && (old == MODE_LINK) != (new == MODE_LINK)
    {
        return Err(Error::series(format!(
            "{} is to turn from {} into {}",
            diff.shown_name(),
            kind(old == MODE_LINK),
            kind(new == MODE_LINK)
        ))
        .hint("write it as a deletion and a creation, as git does"));
    }
    let (source, there) = source(disk, diff)?;
    let moved = diff.rename || diff.copy;
    let target = match &diff.new {
        Some(new) if moved => new.clone(),
        _ => source.clone(),
    };
    let mut before = if there { disk.file(&source)? } else { None };
    // The same file a second time: what comes before is another patch, and is finished first.
    if diff.git
        && disk.file(&target)?.is_some()
        && (there || target != source)
        && disk.mark_queued(&target)
    {
        disk.flush()?;
        before = disk.file(&source)?;
        disk.mark_queued(&target);
    }
    if let Some(before) = &before {
        let is_link = before.mode == MODE_LINK;
        let wants_link = [diff.old_mode, diff.new_mode].contains(&Some(MODE_LINK));
        if is_link != wants_link {
            return Err(Error::series(format!(
                "{} is {}, but the patch changes {}",
                shown(&source),
                kind(is_link),
                kind(wants_link)
            )));
        }
    }
    let after = content_after(diff, before.as_ref(), &target, fuzz, how, patch)?;
    let sets_mode = diff.new_mode.is_some() && diff.old_mode != diff.new_mode;
    let link = [diff.old_mode, diff.new_mode].contains(&Some(MODE_LINK));
    if after.is_empty() && (diff.after == Presence::Absent || patch.flags.remove_empty || link) {
        if before.is_none() && !moved {
            return Err(Error::series(format!(
                "{} is to be deleted, but it is not there",
                shown(&target)
            )));
        }
        disk.doom(&target);
        return Ok(());
    }
    if diff.after == Presence::Absent {
        return Err(Error::series(format!(
            "{} is to be deleted, but {}",
            shown(&target),
            if diff.hunks.is_empty() {
                "it is not empty"
            } else {
                "it holds more than the patch removes"
            }
        )));
    }
    if diff.hunks.is_empty() && diff.binary.is_none() && !sets_mode && !moved {
        return Ok(());
    }
    let mode = match (diff.new_mode, &before) {
        (Some(mode), _) if sets_mode => mode,
        (_, Some(before)) => before.mode,
        (mode, None) => mode.filter(|_| link).unwrap_or(MODE_FILE),
    };
    let file = File {
        mode,
        content: after,
    };
    if diff.git && diff.before != Presence::Absent {
        disk.write_later(&target, file);
    } else {
        disk.write(&target, file)?;
    }
    if diff.rename {
        disk.doom(&source);
    }
    Ok(())
}

fn kind(link: bool) -> &'static str {
    if link { "a symbolic link" } else { "a file" }
}

/// The file a diff reads, and whether it is there.
fn source(disk: &mut Disk<'_>, diff: &FileDiff) -> Result<(Vec<u8>, bool)> {
    let moved = diff.rename || diff.copy;
    if moved && (diff.old.is_none() || diff.new.is_none()) {
        return Err(Error::series("a rename or copy without both names"));
    }
    let mut candidates: Vec<&Vec<u8>> = [&diff.old, &diff.new].into_iter().flatten().collect();
    if diff.reversed {
        candidates.reverse();
    }
    if candidates.is_empty() {
        // The name on the `Index:` line counts only when there is no other.
        candidates.extend(&diff.index);
    }
    if let Some(found) = existing(disk, &candidates)? {
        return Ok((found, true));
    }
    if diff.before != Presence::There {
        let mut fewest = Vec::new();
        for name in &candidates {
            fewest.push((missing_folders(disk, name)?, *name));
        }
        let least = fewest.iter().map(|(count, _)| *count).min();
        let names: Vec<&Vec<u8>> = fewest
            .iter()
            .filter(|(count, _)| Some(*count) == least)
            .map(|(_, name)| *name)
            .collect();
        let name = best(&names).ok_or_else(|| Error::series("no file is named"))?;
        return Ok((name.clone(), false));
    }
    // Patch fails here; git goes on when an earlier diff of this patch makes the file.
    if candidates.iter().any(|name| disk.waits(name)) {
        disk.flush()?;
        if let Some(found) = existing(disk, &candidates)? {
            return Ok((found, true));
        }
    }
    for name in &candidates {
        if let Some(what) = disk.blocked(name)? {
            return Err(Error::series(format!("{}: {what}", shown(name)))
                .hint("a patch may not reach through it"));
        }
    }
    let mut names: Vec<String> = candidates.iter().map(|name| shown(name)).collect();
    names.dedup();
    Err(
        Error::series(format!("there is no file {} to patch", names.join(" or ")))
            .hint("is the file's path right after -pN, and does this release have it?"),
    )
}

fn existing(disk: &mut Disk<'_>, candidates: &[&Vec<u8>]) -> Result<Option<Vec<u8>>> {
    let mut existing = Vec::new();
    for name in candidates {
        if disk.exists(name)? {
            existing.push(*name);
        }
    }
    Ok(best(&existing).cloned())
}

/// Of several names, the one POSIX prefers: fewest components, shortest last one, shortest, first.
fn best<'a>(names: &[&'a Vec<u8>]) -> Option<&'a Vec<u8>> {
    names
        .iter()
        .min_by_key(|name| {
            let components = name.iter().filter(|&&b| b == b'/').count();
            let last = name.rsplit(|&b| b == b'/').next().map_or(0, <[u8]>::len);
            (components, last, name.len())
        })
        .copied()
}

fn missing_folders(disk: &mut Disk<'_>, name: &[u8]) -> Result<usize> {
    let mut missing = 0;
    for folder in super::disk::folders(name) {
        if !disk.is_folder(folder)? {
            missing += 1;
        }
    }
    Ok(missing)
}

/// The content that a diff makes of a file.
fn content_after(
    diff: &FileDiff,
    before: Option<&File>,
    target: &[u8],
    fuzz: usize,
    how: &mut How,
    patch: &Patch,
) -> Result<Arc<Vec<u8>>> {
    let old = before.map_or_else(Arc::default, |before| Arc::clone(&before.content));
    let says_absent = if old.is_empty() {
        diff.after != Presence::There
    } else {
        diff.before == Presence::Absent
    };
    let both_empty = old.is_empty()
        && before.is_some()
        && diff.before == Presence::EmptyOrAbsent
        && diff.after == Presence::Absent;
    if patch.flags.forward && says_absent && !both_empty {
        return Err(Error::series(format!(
            "{} is as if the patch were applied already, and `-N` asks to refuse that",
            shown(target)
        ))
        .hint("drop the patch, or take `-N` out of the series"));
    }
    if let Some(binary) = &diff.binary {
        return binary_after(diff, binary, &old, target).map(Arc::new);
    }
    if diff.hunks.is_empty() {
        return Ok(old);
    }
    let mut placer = Placer::new(&old).blanks_alike(patch.flags.ignore_whitespace);
    for (index, hunk) in diff.hunks.iter().enumerate() {
        let placed = placer.apply(hunk, fuzz).ok_or_else(|| {
            conflict::no_place(diff, index, target, &old, &placer).at(&patch.shown, hunk.line)
        })?;
        if placed.line == 1 && diff.before == Presence::Absent && !old.is_empty() {
            return Err(conflict::exists_already(diff, target, &old));
        }
        how.add(placed);
    }
    Ok(Arc::new(placer.finish()))
}

/// A binary patch fits one content only and makes one only: its `index` line says which, and must, as for
/// git.
fn binary_after(diff: &FileDiff, binary: &Binary, old: &[u8], target: &[u8]) -> Result<Vec<u8>> {
    let Some((expected, made)) = &diff.objects else {
        return Err(Error::series(format!(
            "the binary patch of {} has no full `index` line",
            shown(target)
        ))
        .hint("make it with `git diff --binary`"));
    };
    check_binary(expected, old, || {
        let target = shown(target);
        format!("{target} is another file than the binary patch was made for")
    })?;
    let after = binary.apply(old)?;
    check_binary(made, &after, || {
        let target = shown(target);
        format!("the binary patch makes another file of {target} than its `index` line says")
    })?;
    Ok(after)
}

/// An error that says `what` unless `expected` is the name of `content`; zeros name no file.
fn check_binary(expected: &str, content: &[u8], what: impl Fn() -> String) -> Result<()> {
    if content.is_empty() && expected.bytes().all(|b| b == b'0') {
        return Ok(());
    }
    let found = hash(ObjectType::Blob, content);
    if Oid::from_str(expected).is_ok_and(|expected| expected == found) {
        return Ok(());
    }
    Err(Error::series(what())
        .details([format!("expected {expected}"), format!("found    {found}")]))
}
