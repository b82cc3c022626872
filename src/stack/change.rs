//! Applying one patch to a working tree: all of it or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::{ObjectType, Oid};

use super::conflict;
use super::place::{Placed, Placer};
use super::tree::{At, WorkingTree};
use crate::error::{Error, Result};
use crate::series::path::{self, shown};
use crate::series::{FileDiff, Patch, Presence};
use crate::upstream::objects::{MODE_FILE, MODE_LINK};

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

/// A file as a patch leaves it.
struct Outcome {
    mode: u32,
    content: Arc<Vec<u8>>,
}

/// Applies `patch` to `tree`, which is unchanged when that fails.
///
/// # Errors
/// [`Kind::Series`](crate::error::Kind::Series) with the hunk's place in the patch, the file, what was
/// expected there, and what would have helped.
pub fn apply_patch(tree: &mut WorkingTree<'_>, patch: &Patch, fuzz: usize) -> Result<How> {
    let mut how = How::default();
    // Files as this patch leaves them so far; `None` is a removed one.
    let mut outcomes: BTreeMap<Vec<u8>, Option<Outcome>> = BTreeMap::new();
    let mut written_by_rename: BTreeSet<Vec<u8>> = BTreeSet::new();
    for diff in &patch.files {
        let fault = |error: Error| match error.place() {
            Some(_) => error,
            None => error.at(&patch.shown, diff.line),
        };
        let (source, target) = names(tree, &outcomes, diff).map_err(fault)?;
        let moved = source != target;
        // Git's renames mean the files as they were before the patch.
        let before = if moved && written_by_rename.contains(&source) {
            look(tree, &source).map_err(fault)?
        } else {
            look_through(tree, &outcomes, &source).map_err(fault)?
        };
        let after = apply_file(diff, &before, &target, fuzz, &mut how, patch).map_err(fault)?;
        if moved && diff.rename && !written_by_rename.contains(&source) {
            outcomes.insert(source, None);
        }
        if moved {
            written_by_rename.insert(target.clone());
        }
        outcomes.insert(target, after);
    }
    commit_outcomes(tree, outcomes, patch)?;
    Ok(how)
}

fn commit_outcomes(
    tree: &mut WorkingTree<'_>,
    outcomes: BTreeMap<Vec<u8>, Option<Outcome>>,
    patch: &Patch,
) -> Result<()> {
    let (removed, written): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .partition(|(_, outcome)| outcome.is_none());
    // A path can only turn from a file into a folder when the removal comes first, so what is in
    // the way is looked for with the removals taken into account and before anything is changed.
    let gone: BTreeSet<&[u8]> = removed.iter().map(|(path, _)| path.as_slice()).collect();
    for (path, _) in &written {
        let components = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        for (end, _) in components {
            let above = &path[..end];
            let kept = matches!(tree.at(above)?, At::File { .. }) && !gone.contains(above);
            if kept || written.iter().any(|(other, _)| other == above) {
                return Err(Error::series(format!(
                    "{} cannot be created: {} is a file",
                    shown(path),
                    shown(above)
                ))
                .at(&patch.shown, None));
            }
        }
    }
    for (path, _) in &removed {
        if matches!(tree.at(path)?, At::File { .. }) {
            tree.remove(path)?;
        }
    }
    for (path, outcome) in written {
        if let Some(outcome) = outcome {
            tree.set(&path, outcome.mode, outcome.content)?;
        }
    }
    Ok(())
}

/// The file a diff reads and the one it writes.
fn names(
    tree: &mut WorkingTree<'_>,
    outcomes: &BTreeMap<Vec<u8>, Option<Outcome>>,
    diff: &FileDiff,
) -> Result<(Vec<u8>, Vec<u8>)> {
    if diff.rename || diff.copy {
        return match (&diff.old, &diff.new) {
            (Some(old), Some(new)) => Ok((old.clone(), new.clone())),
            _ => Err(Error::series("a rename or copy without both names")),
        };
    }
    // The name on the `Index:` line counts only when there is no other.
    let named = [&diff.old, &diff.new];
    let mut candidates: Vec<&Vec<u8>> = named.into_iter().flatten().collect();
    if candidates.is_empty() {
        candidates.extend(&diff.index);
    }
    let mut existing = Vec::new();
    for name in &candidates {
        if look_through(tree, outcomes, name)?.is_some() {
            existing.push(*name);
        }
    }
    let chosen = match best(&existing) {
        Some(name) => name,
        None if diff.before != Presence::There => {
            let mut fewest = Vec::new();
            for name in &candidates {
                fewest.push((missing_folders(tree, name)?, *name));
            }
            let least = fewest.iter().map(|(count, _)| *count).min();
            let names: Vec<&Vec<u8>> = fewest
                .iter()
                .filter(|(count, _)| Some(*count) == least)
                .map(|(_, name)| *name)
                .collect();
            best(&names).ok_or_else(|| Error::series("no file is named"))?
        }
        None => {
            let mut shown_names: Vec<String> = candidates.iter().map(|name| shown(name)).collect();
            shown_names.dedup();
            return Err(Error::series(format!(
                "there is no file {} to patch",
                shown_names.join(" or ")
            ))
            .hint("is the file's path right after -pN, and does this release have it?"));
        }
    };
    Ok((chosen.clone(), chosen.clone()))
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

fn missing_folders(tree: &mut WorkingTree<'_>, name: &[u8]) -> Result<usize> {
    let mut missing = 0;
    for (end, _) in name.iter().enumerate().filter(|(_, b)| **b == b'/') {
        if tree.at(&name[..end])? != At::Folder {
            missing += 1;
        }
    }
    Ok(missing)
}

/// The file at a path of the tree, with its mode.
fn look(tree: &mut WorkingTree<'_>, path: &[u8]) -> Result<Option<Outcome>> {
    path::check(path).map_err(|error| Error::series(error.message().to_owned()))?;
    match tree.at(path)? {
        At::Nothing => Ok(None),
        At::File { mode } => Ok(Some(Outcome {
            mode,
            content: tree.content(path)?,
        })),
        At::Folder => Err(Error::series(format!("{} is a folder", shown(path)))),
        At::Blocked(what) => Err(Error::series(format!("{}: {what}", shown(path)))
            .hint("a patch may not reach through it")),
    }
}

/// As [`look`], with what this patch did already.
fn look_through(
    tree: &mut WorkingTree<'_>,
    outcomes: &BTreeMap<Vec<u8>, Option<Outcome>>,
    path: &[u8],
) -> Result<Option<Outcome>> {
    match outcomes.get(path) {
        Some(outcome) => Ok(outcome.as_ref().map(|outcome| Outcome {
            mode: outcome.mode,
            content: Arc::clone(&outcome.content),
        })),
        None => {
            // A file this patch removed may make room for a folder.
            let above = path.iter().enumerate().filter(|(_, b)| **b == b'/');
            for (end, _) in above {
                match outcomes.get(&path[..end]) {
                    Some(None) => return Ok(None),
                    Some(Some(outcome)) if outcome.mode == MODE_LINK => {
                        return Err(Error::series(format!(
                            "{}: {} is a symbolic link",
                            shown(path),
                            shown(&path[..end])
                        ))
                        .hint("a patch may not reach through it"));
                    }
                    _ => {}
                }
            }
            look(tree, path)
        }
    }
}

fn apply_file(
    diff: &FileDiff,
    before: &Option<Outcome>,
    target: &[u8],
    fuzz: usize,
    how: &mut How,
    patch: &Patch,
) -> Result<Option<Outcome>> {
    let moved = diff.rename || diff.copy;
    if before.is_none() && (moved || diff.before == Presence::There) {
        let source = diff.old.as_deref().unwrap_or(target);
        return Err(Error::series(format!("there is no file {}", shown(source)))
            .hint("does this release have it, or did an earlier patch move it?"));
    }
    if let Some(before) = before {
        let is_link = before.mode == MODE_LINK;
        let wants_link = [diff.old_mode, diff.new_mode].contains(&Some(MODE_LINK));
        if is_link != wants_link {
            let (is, wants) = if is_link {
                ("a symbolic link", "a file")
            } else {
                ("a file", "a symbolic link")
            };
            return Err(Error::series(format!(
                "{} is {is}, but the patch changes {wants}",
                shown(target)
            )));
        }
    }
    let empty = Arc::new(Vec::new());
    let old = before.as_ref().map_or(&empty, |before| &before.content);
    if diff.before == Presence::Absent && !moved && !old.is_empty() && !diff.hunks.is_empty() {
        return Err(conflict::exists_already(diff, target, old));
    }
    let content = if let Some(binary) = &diff.binary {
        check_binary_base(diff, old, target)?;
        Arc::new(binary.apply(old)?)
    } else if diff.hunks.is_empty() {
        Arc::clone(old)
    } else {
        let mut placer = Placer::new(old);
        for (index, hunk) in diff.hunks.iter().enumerate() {
            match placer.apply(hunk, fuzz) {
                Some(placed) => how.add(placed),
                None => {
                    return Err(conflict::no_place(diff, index, target, old, &placer)
                        .at(&patch.shown, hunk.line));
                }
            }
        }
        Arc::new(placer.finish())
    };
    if diff.after == Presence::Absent {
        if content.is_empty() {
            return Ok(None);
        }
        if diff.hunks.is_empty() && diff.binary.is_none() {
            return Err(Error::series(format!(
                "{} is to be deleted, but it is not empty",
                shown(target)
            )));
        }
        return Err(Error::series(format!(
            "{} is to be deleted, but it holds more than the patch removes",
            shown(target)
        )));
    }
    let mode = match (diff.old_mode, diff.new_mode) {
        (old, Some(new)) if old != Some(new) => new,
        _ => before
            .as_ref()
            .map_or(diff.new_mode.unwrap_or(MODE_FILE), |b| b.mode),
    };
    if content.is_empty() && mode == MODE_LINK {
        return Ok(None);
    }
    Ok(Some(Outcome { mode, content }))
}

/// A binary patch fits one content only, and its `index` line says which.
fn check_binary_base(diff: &FileDiff, old: &[u8], target: &[u8]) -> Result<()> {
    let Some((expected, _)) = &diff.objects else {
        return Ok(());
    };
    let found = if old.is_empty() && expected.bytes().all(|b| b == b'0') {
        return Ok(());
    } else {
        crate::upstream::objects::hash(ObjectType::Blob, old)
    };
    if Oid::from_str(expected).is_ok_and(|expected| expected == found) {
        return Ok(());
    }
    Err(Error::series(format!(
        "{} is another file than the binary patch was made for",
        shown(target)
    ))
    .details([format!("expected {expected}"), format!("found    {found}")]))
}
