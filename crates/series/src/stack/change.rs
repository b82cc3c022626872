//! Applying one patch to a working tree atomically.

use std::sync::Arc;

use git2::{ObjectType, Oid};

use super::conflict;
use super::pending::{PendingFiles, through_link};
use super::place::{HunkPlaces, HunkPosition, Placer};
use super::tree::{FileState, FileStates, WorkingTree};
use crate::series::diff::Binary;
use crate::series::path::{escapes_tree, folders, shown};
use crate::series::{FileDiff, Patch, Presence};
use crate::upstream::objects::{MODE_FILE, MODE_LINK, hash, kind_of};
use perfquilt_model::error::{Error, Kind, Result};

/// How exactly a patch applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PatchFit {
    /// The offset of a hunk from its written line, in lines; the one with the largest absolute value.
    pub offset: i64,
    /// The largest number of context lines ignored for a hunk.
    pub fuzz: usize,
}

impl std::fmt::Display for PatchFit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PatchFit { offset: 0, fuzz: 0 } => f.write_str("exact"),
            PatchFit { offset, fuzz: 0 } => write!(f, "offset {offset}"),
            PatchFit { fuzz, .. } => write!(f, "fuzz {fuzz}"),
        }
    }
}

impl PatchFit {
    fn add(&mut self, position: HunkPosition) {
        if position.offset.abs() > self.offset.abs() {
            self.offset = position.offset;
        }
        self.fuzz = self.fuzz.max(position.fuzz);
    }
}

/// Applies `patch` to `tree`; on an error the tree is unchanged. Ignores up to `fuzz` lines of context, unless the
/// patch's own options set the fuzz.
pub fn apply_patch(tree: &mut WorkingTree<'_>, patch: &Patch, fuzz: usize) -> Result<PatchFit> {
    let (fit, effect) = patch_effect(tree, patch, fuzz)?;
    // Not all files of a folder may have left it.
    tree.change(effect).map_err(|error| match error.kind() {
        Kind::Series => error.at(&patch.shown, None),
        _ => error,
    })?;
    Ok(fit)
}

/// Computes the effect of `patch` on `tree` without writing anything.
fn patch_effect(
    tree: &mut WorkingTree<'_>,
    patch: &Patch,
    fuzz: usize,
) -> Result<(PatchFit, FileStates)> {
    let mut fit = PatchFit::default();
    let mut pending = PendingFiles::new(tree);
    let fuzz = patch.flags.fuzz.unwrap_or(fuzz);
    let leaves = |diff: &&FileDiff| diff.git && (diff.rename || diff.after == Presence::Absent);
    let leaving = patch.files.iter().filter(leaves);
    pending.announce(leaving.filter_map(|diff| diff.old.clone()));
    let mut git = false;
    for diff in &patch.files {
        if git && !diff.git {
            pending
                .flush()
                .map_err(|error| position(error, patch, diff))?;
        }
        git = diff.git;
        one_file(&mut pending, patch, diff, fuzz, &mut fit)
            .map_err(|error| position(error, patch, diff))?;
    }
    let last = patch.files.last();
    let effect = pending.finish().map_err(|error| match last {
        Some(diff) => position(error, patch, diff),
        None => error,
    })?;
    Ok((fit, effect))
}

fn position(error: Error, patch: &Patch, diff: &FileDiff) -> Error {
    match error.location() {
        Some(_) => error,
        None => error.at(&patch.shown, diff.line),
    }
}

/// Applies the diff of one file.
fn one_file(
    pending: &mut PendingFiles<'_, '_>,
    patch: &Patch,
    diff: &FileDiff,
    fuzz: usize,
    fit: &mut PatchFit,
) -> Result<()> {
    if let (Some(old), Some(new)) = (diff.old_mode, diff.new_mode)
        && (old == MODE_LINK) != (new == MODE_LINK)
    {
        return Err(Error::file_state(format!(
            "the patch turns {} from {} into {}",
            diff.shown_name(),
            kind_of(old),
            kind_of(new)
        ))
        .hint("write it as a deletion and a creation, as git does"));
    }
    let (source, there) = source(pending, diff)?;
    let moved = diff.rename || diff.copy;
    let target = match &diff.new {
        Some(new) if moved => new.clone(),
        _ => source.clone(),
    };
    let mut before = if there { pending.file(&source)? } else { None };
    // A second diff of the same file starts another patch; the queued changes are written first.
    if diff.git
        && pending.file(&target)?.is_some()
        && (there || target != source)
        && pending.mark_queued(&target)
    {
        pending.flush()?;
        before = pending.file(&source)?;
        pending.mark_queued(&target);
    }
    let wants_link = [diff.old_mode, diff.new_mode].contains(&Some(MODE_LINK));
    let is_other = |file: &FileState| (file.mode == MODE_LINK) != wants_link;
    // Git writes no mode for a file that is moved as it is, which is that before the patch. GNU patch refuses to move links.
    let moves_only = moved && diff.hunks.is_empty() && diff.binary.is_none();
    if moves_only && before.as_ref().is_some_and(is_other) {
        let none = || Error::hunk(format!("there is no {} before the patch", shown(&source)));
        before = Some(pending.unpatched(&source)?.ok_or_else(none)?);
    }
    if let Some(before) = &before
        && is_other(before)
        && (wants_link || !moves_only)
    {
        return Err(Error::file_state(format!(
            "{} is {}, but the patch changes {}",
            shown(&source),
            kind_of(before.mode),
            kind_of(if wants_link { MODE_LINK } else { MODE_FILE })
        )));
    }
    let after = content_after(diff, before.as_ref(), &target, fuzz, fit, patch)?;
    let sets_mode = diff.new_mode.is_some() && diff.old_mode != diff.new_mode;
    let link = [diff.old_mode, diff.new_mode].contains(&Some(MODE_LINK));
    if after.is_empty() && (diff.after == Presence::Absent || patch.flags.remove_empty || link) {
        if before.is_none() && !moved {
            return Err(Error::file_state(format!(
                "the patch deletes {}, which does not exist",
                shown(&target)
            )));
        }
        pending.delete_later(&target);
        return Ok(());
    }
    if diff.after == Presence::Absent {
        return Err(Error::file_state(format!(
            "the patch deletes {}, but {}",
            shown(&target),
            if diff.hunks.is_empty() {
                "it is not empty"
            } else {
                "it contains more than the patch removes"
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
    let file = FileState {
        mode,
        content: after,
    };
    if diff.git && diff.before != Presence::Absent {
        pending.write_later(&target, file);
    } else {
        pending.write(&target, file)?;
    }
    if diff.rename {
        pending.delete_later(&source);
    }
    Ok(())
}

/// Returns the file that a diff reads, and whether it exists.
fn source(pending: &mut PendingFiles<'_, '_>, diff: &FileDiff) -> Result<(Vec<u8>, bool)> {
    let moved = diff.rename || diff.copy;
    if moved && (diff.old.is_none() || diff.new.is_none()) {
        return Err(Error::patch_syntax("a rename or copy without both names"));
    }
    let names = [&diff.old, &diff.new].map(|name| name.as_ref().or(diff.outside.as_ref()));
    let mut named: Vec<&Vec<u8>> = names.into_iter().flatten().collect();
    if diff.reversed {
        named.reverse();
    }
    if named.is_empty() {
        // GNU patch uses the name on the `Index:` line only when there is no other.
        named.extend(&diff.index);
    }
    let inside = |name: &&Vec<u8>| !escapes_tree(name);
    let candidates: Vec<&Vec<u8>> = named.iter().copied().filter(inside).collect();
    if let Some(found) = existing(pending, &candidates)? {
        return Ok((found, true));
    }
    if diff.before != Presence::Present {
        let mut fewest = Vec::new();
        for name in named {
            // What is outside counts as there.
            let missing = if inside(&name) {
                missing_folders(pending, name)?
            } else {
                0
            };
            fewest.push((missing, name));
        }
        let least = fewest.iter().map(|(count, _)| *count).min();
        let least = fewest.iter().filter(|(count, _)| Some(*count) == least);
        let least: Vec<&Vec<u8>> = least.map(|(_, name)| *name).collect();
        let none = || Error::patch_syntax("no file is named that GNU patch takes");
        let name = best(&least).filter(inside).ok_or_else(none)?;
        return Ok((name.clone(), false));
    }
    // GNU patch fails here; git continues if an earlier diff of this patch creates the file.
    if candidates.iter().any(|name| pending.is_queued(name)) {
        pending.flush()?;
        if let Some(found) = existing(pending, &candidates)? {
            return Ok((found, true));
        }
    }
    for name in &candidates {
        if let Some(what) = pending.blocked(name)? {
            return Err(through_link(name, what));
        }
    }
    let mut names: Vec<String> = candidates.iter().map(|name| shown(name)).collect();
    names.dedup();
    let names = names.join(" or ");
    // GNU patch finds nothing to delete, and succeeds.
    let what = if diff.after == Presence::Absent && diff.hunks.is_empty() {
        format!("the patch deletes {names}, which does not exist")
    } else if let Some(name) = candidates.first()
        && pending.exists(name)?
    {
        format!("GNU patch takes neither of {names}, which both exist")
    } else {
        format!("there is no file {names} to patch")
    };
    let hint = "is the file's path correct after -pN, and does this release have it?";
    Err(Error::hunk(what).hint(hint))
}

/// Returns the name that GNU patch prefers of those of `candidates` that exist.
fn existing(
    pending: &mut PendingFiles<'_, '_>,
    candidates: &[&Vec<u8>],
) -> Result<Option<Vec<u8>>> {
    let mut existing = Vec::new();
    for name in candidates {
        if pending.exists(name)? {
            existing.push(*name);
        }
    }
    Ok(best(&existing).cloned())
}

/// Returns the first name with the fewest components and the least length, as GNU patch finds it: a longer name than one before
/// it with more components hides that, and is not taken either.
fn best<'a>(names: &[&'a Vec<u8>]) -> Option<&'a Vec<u8>> {
    let components = |name: &[u8]| name.iter().filter(|&&byte| byte == b'/').count();
    let (mut fewest, mut shortest) = (usize::MAX, usize::MAX);
    for name in names.iter() {
        if components(name) <= fewest {
            fewest = components(name);
            shortest = shortest.min(name.len());
        }
    }
    let is_best = |name: &&&Vec<u8>| (components(name), name.len()) == (fewest, shortest);
    names.iter().find(is_best).copied()
}

fn missing_folders(pending: &mut PendingFiles<'_, '_>, name: &[u8]) -> Result<usize> {
    let mut missing = 0;
    for folder in folders(name) {
        if !pending.is_folder(folder)? {
            missing += 1;
        }
    }
    Ok(missing)
}

/// Returns a file's content after a diff.
fn content_after(
    diff: &FileDiff,
    before: Option<&FileState>,
    target: &[u8],
    fuzz: usize,
    fit: &mut PatchFit,
    patch: &Patch,
) -> Result<Arc<Vec<u8>>> {
    let old = before.map_or_else(Arc::default, |before| Arc::clone(&before.content));
    let says_absent = if old.is_empty() {
        diff.after != Presence::Present
    } else {
        diff.before == Presence::Absent
    };
    let both_empty = old.is_empty()
        && before.is_some()
        && diff.before == Presence::EmptyOrAbsent
        && diff.after == Presence::Absent;
    if patch.flags.forward && says_absent && !both_empty {
        return Err(Error::already_applied(format!(
            "{} looks as if the patch were already applied, which `-N` refuses",
            shown(target)
        ))
        .hint("remove the patch, or its `-N`, from the series"));
    }
    if let Some(binary) = &diff.binary {
        return binary_after(diff, binary, &old, target).map(Arc::new);
    }
    if diff.hunks.is_empty() {
        return Ok(old);
    }
    let mut placer = Placer::new(&old).ignore_blanks(patch.flags.ignore_whitespace);
    for (index, hunk) in diff.hunks.iter().enumerate() {
        let expected = placer.expected(hunk.old_start);
        let position = placer.apply(hunk, fuzz).ok_or_else(|| {
            conflict::hunk_error(diff, index, target, &old, &placer).at(&patch.shown, hunk.line)
        })?;
        if position.line == 1 && diff.before == Presence::Absent && !old.is_empty() {
            return Err(conflict::creation_error(diff, target, &old));
        }
        if position.fuzz > 0 && position.line != expected {
            let places = HunkPlaces::new(&old).of(hunk, position.fuzz);
            if places.len() > 1 {
                let error = conflict::fuzz_error(diff, index, target, position.fuzz, &places);
                return Err(error.at(&patch.shown, hunk.line));
            }
        }
        fit.add(position);
    }
    Ok(Arc::new(placer.finish()))
}

/// Applies a binary patch. As in git, it requires a full `index` line, and checks the content before and after the
/// change against it.
fn binary_after(diff: &FileDiff, binary: &Binary, old: &[u8], target: &[u8]) -> Result<Vec<u8>> {
    let Some((expected, made)) = &diff.objects else {
        return Err(Error::binary_patch(format!(
            "the binary patch of {} has no full `index` line",
            shown(target)
        ))
        .hint("make it with `git diff --binary`"));
    };
    check_binary(expected, old, || {
        let target = shown(target);
        format!("{target} is not the file that the binary patch was made for")
    })?;
    let after = binary.apply(old)?;
    check_binary(made, &after, || {
        let target = shown(target);
        format!("the binary patch makes another file of {target} than its `index` line says")
    })?;
    Ok(after)
}

/// Fails with the message `what` unless `expected` is the object id of `content`. All zeros stand for a missing file.
fn check_binary(expected: &str, content: &[u8], what: impl Fn() -> String) -> Result<()> {
    if content.is_empty() && expected.bytes().all(|b| b == b'0') {
        return Ok(());
    }
    let found = hash(ObjectType::Blob, content);
    if Oid::from_str(expected).is_ok_and(|expected| expected == found) {
        return Ok(());
    }
    Err(Error::hunk(what()).details([format!("expected {expected}"), format!("found    {found}")]))
}
