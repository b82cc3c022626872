//! 3-way merge of one patch into another tree, file by file.
//!
//! The common ancestor is the file on the old release before the patch, their side is the file after the patch,
//! and our side is the file on the new release with the earlier patches. Only the changed files are read. Where git's
//! merge fails, `loose_merge` tries.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::loose_merge::{ConflictRegion, Rule, is_crlf, merge_loosely, with_ends};
use super::squeezed::squeezed;
use crate::merge::merge;
use perfquilt_model::error::Result;
use perfquilt_model::rebase::CandidatePlace;
use perfquilt_series::series::FileDiff;
use perfquilt_series::series::path::shown;
use perfquilt_series::stack::format::is_binary;
use perfquilt_series::stack::tree::{FileState, FileStates};
use perfquilt_series::stack::trial::{TreeFile, TrialTree};

/// The merge of one file.
#[derive(Debug, Clone)]
pub struct FileMerge {
    /// The file's path on the old release after the patch (before it, if the patch removes the file).
    pub old_path: Vec<u8>,
    /// The file's path in the new tree.
    pub path: Vec<u8>,
    /// Whether upstream renamed the file.
    pub moved: bool,
    /// The result.
    pub result: FileMergeResult,
    /// The rules beyond git's merge that the result took.
    pub rules: BTreeSet<Rule>,
    /// The texts, if both sides changed the file.
    pub texts: Option<MergeTexts>,
    /// Whether only the hunks' contexts place them, and seem to be others' than those that they were made for.
    pub is_doubtful: bool,
    /// The hunks whose contexts do not say where they belong.
    pub ambiguous: Vec<AmbiguousHunk>,
}

impl FileMerge {
    fn untexted(old_path: &[u8], path: &[u8], result: FileMergeResult) -> Self {
        FileMerge {
            old_path: old_path.to_vec(),
            path: path.to_vec(),
            moved: path != old_path,
            result,
            rules: BTreeSet::new(),
            texts: None,
            is_doubtful: false,
            ambiguous: Vec::new(),
        }
    }

    /// Returns whether the result is that of git's merge, whose algorithms may disagree.
    pub fn is_gits(&self) -> bool {
        let gits = |rule: &Rule| matches!(rule, Rule::Disputed | Rule::LineEnds);
        !self.is_failed() && self.rules.iter().all(gits)
    }

    /// Returns whether the result is git's, or that of rules that need no review.
    pub fn is_certain(&self) -> bool {
        self.is_gits() || !self.is_failed() && self.rules.iter().all(|rule| rule.review().is_none())
    }

    /// Returns the content of a file that merges and differs from the new tree's.
    pub fn content(&self) -> Option<&[u8]> {
        match &self.result {
            FileMergeResult::Clean(files) => Some(&files.get(&self.path)?.as_ref()?.content),
            _ => None,
        }
    }

    /// Returns whether the merge failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.result, FileMergeResult::Failed(_))
    }
}

/// A hunk whose context does not say where it belongs.
#[derive(Debug, Clone)]
pub struct AmbiguousHunk {
    /// The file on the new release.
    pub file: Vec<u8>,
    /// The hunk's number in the file's diff, from 1.
    pub number: usize,
    /// Number of hunks in the diff.
    pub hunks: usize,
    /// Number of places in the old file that have its lines.
    pub old_count: usize,
    /// Number of places in the new file that have its lines.
    pub count: usize,
    /// The first of these places.
    pub places: Vec<CandidatePlace>,
    /// The function that it was made for.
    pub function: Option<String>,
}

/// The texts of a merge in which both sides changed a file.
#[derive(Debug, Clone)]
pub struct MergeTexts {
    /// The file before the patch, on the old release.
    pub base: Arc<Vec<u8>>,
    /// The file in the new tree.
    pub ours: Arc<Vec<u8>>,
    /// The file after the patch, on the old release.
    pub theirs: Arc<Vec<u8>>,
    /// The regions in conflict, by git's merge.
    pub regions: Vec<ConflictRegion>,
}

/// Returns whether the new tree already has every file's change.
pub fn is_upstream(merges: &[FileMerge]) -> bool {
    let upstream = |merge: &FileMerge| matches!(merge.result, FileMergeResult::Upstream);
    merges.iter().all(upstream)
}

/// Returns the files that merges write or remove.
pub fn changed_files(merges: &[FileMerge]) -> FileStates {
    let mut files = FileStates::new();
    for merge in merges {
        if let FileMergeResult::Clean(changes) = &merge.result {
            files.extend(changes.clone());
        }
    }
    files
}

/// The result of merging one file.
#[derive(Debug, Clone)]
pub enum FileMergeResult {
    /// The new tree already has the whole change.
    Upstream,
    /// A clean merge: the files to write or to remove.
    Clean(FileStates),
    /// The merge failed and needs a manual decision.
    Failed(MergeFailure),
}

/// Why a file cannot be merged.
#[derive(Debug, Clone)]
pub enum MergeFailure {
    /// Both sides changed the same lines of [`FileMerge::texts`].
    Lines,
    /// The new release does not have the file.
    Gone {
        /// The file before the patch, on the old release.
        base: Arc<Vec<u8>>,
    },
    /// Any other reason, described in words.
    Other(String),
}

/// Looks up the path to which upstream moved a file, if it did.
pub type RenameLookup<'t> = dyn FnMut(&[u8]) -> Result<Option<Vec<u8>>> + 't;

/// The trees a merge works on.
pub struct MergeTrees<'t, 'a> {
    /// The old release before the patch.
    pub before: &'t mut TrialTree<'a>,
    /// The old release after the patch.
    pub after: &'t mut TrialTree<'a>,
    /// The new tree.
    pub ours: &'t mut TrialTree<'a>,
    /// Looks up renames of files that the new tree does not have.
    pub moved: &'t mut RenameLookup<'t>,
}

/// Merges every file of `paths`, which differ between the old trees; `diffs` tell which of them were renamed.
pub fn merge_files(
    trees: &mut MergeTrees<'_, '_>,
    diffs: &[FileDiff],
    paths: &[Vec<u8>],
) -> Result<Vec<FileMerge>> {
    let mut left: BTreeSet<&Vec<u8>> = paths.iter().collect();
    let mut merges = Vec::new();
    for diff in diffs.iter().filter(|diff| diff.rename) {
        if let (Some(old), Some(new)) = (&diff.old, &diff.new)
            && left.contains(old)
            && left.contains(new)
            && trees.after.file(old)?.is_none()
        {
            left.remove(old);
            left.remove(new);
            merges.push(renamed(trees, old, new)?);
        }
    }
    for path in left {
        merges.push(one_file(trees, path)?);
    }
    merges.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(merges)
}

fn one_file(trees: &mut MergeTrees<'_, '_>, path: &[u8]) -> Result<FileMerge> {
    let (base, theirs) = (trees.before.file(path)?, trees.after.file(path)?);
    let mut place = path.to_vec();
    let mut ours = trees.ours.file(path)?;
    if ours.is_none()
        && base.is_some()
        && let Some(new) = (trees.moved)(path)?
    {
        ours = trees.ours.file(&new)?;
        place = new;
    }
    let result = match (base, theirs, ours) {
        (_, None, None) => FileMergeResult::Upstream,
        (None, Some(theirs), None) => match no_place(trees, &place)? {
            Some(why) => FileMergeResult::Failed(MergeFailure::Other(why)),
            None => clean(&place, Some(theirs.into())),
        },
        (Some(base), Some(_), None) => {
            FileMergeResult::Failed(match trees.ours.obstacle(&place)? {
                Some(obstacle) => MergeFailure::Other(obstacle),
                None => MergeFailure::Gone { base: base.content },
            })
        }
        (base, None, Some(ours)) => {
            let same = base
                .as_ref()
                .is_some_and(|base| base.blob == ours.blob && base.mode == ours.mode);
            if same && place != path {
                let merge = FileMerge::untexted(path, &place, clean(&place, None));
                return Ok(FileMerge {
                    rules: BTreeSet::from([Rule::DeletedMoved]),
                    ..merge
                });
            }
            if same {
                clean(&place, None)
            } else {
                FileMergeResult::Failed(MergeFailure::Other(
                    "the patch deletes this file, and upstream changed it".to_owned(),
                ))
            }
        }
        (base, Some(theirs), Some(ours)) => {
            let merged = merged(base.as_ref(), &ours, &theirs)?;
            return Ok(merged.done(path, &place, |file| changed(&place, file, &ours)));
        }
    };
    Ok(FileMerge::untexted(path, &place, result))
}

/// Merges a file that the patch renames.
fn renamed(trees: &mut MergeTrees<'_, '_>, old: &[u8], new: &[u8]) -> Result<FileMerge> {
    let done = |path: &[u8], result| Ok(FileMerge::untexted(new, path, result));
    let failed =
        |path: &[u8], why: String| done(path, FileMergeResult::Failed(MergeFailure::Other(why)));
    let (Some(base), Some(theirs)) = (trees.before.file(old)?, trees.after.file(new)?) else {
        return done(new, FileMergeResult::Upstream);
    };
    let there = trees.ours.file(new)?;
    let Some(ours) = trees.ours.file(old)? else {
        // Upstream renamed it too.
        let Some(ours) = there else {
            return match (trees.moved)(old)? {
                Some(other) => failed(
                    &other,
                    format!(
                        "the patch renames {}, and upstream renamed it differently",
                        shown(old)
                    ),
                ),
                None => {
                    let base = base.content;
                    done(new, FileMergeResult::Failed(MergeFailure::Gone { base }))
                }
            };
        };
        return Ok(
            merged(Some(&base), &ours, &theirs)?.done(new, new, |file| changed(new, file, &ours))
        );
    };
    if base.is_link() != ours.is_link() {
        let why = format!(
            "the patch renames a {}, which is a {} now",
            base.kind(),
            ours.kind()
        );
        return failed(new, why);
    }
    if there.is_some() {
        let why = "the patch renames a file to this name, which upstream uses for another";
        return failed(new, why.to_owned());
    }
    // The file itself makes room for a folder of its name.
    let makes_room = new
        .strip_prefix(old)
        .is_some_and(|below| below.starts_with(b"/"));
    if let Some(why) = no_place(trees, new)?.filter(|_| !makes_room) {
        return failed(new, why);
    }
    Ok(merged(Some(&base), &ours, &theirs)?.done(new, new, |file| {
        FileMergeResult::Clean(FileStates::from([
            (old.to_vec(), None),
            (new.to_vec(), Some(file)),
        ]))
    }))
}

/// Returns the reason why a new file cannot be at `path`, if there is one.
fn no_place(trees: &mut MergeTrees<'_, '_>, path: &[u8]) -> Result<Option<String>> {
    if let Some(folder) = lost_folder(trees.before, trees.ours, path)? {
        return Ok(Some(format!(
            "the patch adds a file to {}/, and upstream moved or removed that folder",
            shown(folder)
        )));
    }
    trees.ours.obstacle(path)
}

/// Returns the folder of a path if the tree `before` has it and `ours` does not.
pub fn lost_folder<'p>(
    before: &mut TrialTree<'_>,
    ours: &mut TrialTree<'_>,
    path: &'p [u8],
) -> Result<Option<&'p [u8]>> {
    let Some(end) = path.iter().rposition(|&byte| byte == b'/') else {
        return Ok(None);
    };
    let folder = &path[..end];
    Ok((before.is_folder(folder)? && !ours.is_folder(folder)?).then_some(folder))
}

fn clean(path: &[u8], file: Option<FileState>) -> FileMergeResult {
    FileMergeResult::Clean(FileStates::from([(path.to_vec(), file)]))
}

/// Returns the result for a merged file in the place of ours.
fn changed(path: &[u8], file: FileState, ours: &TreeFile) -> FileMergeResult {
    if file.mode == ours.mode && file.content == ours.content {
        FileMergeResult::Upstream
    } else {
        clean(path, Some(file))
    }
}

/// Three versions of a file merged.
struct MergedFile {
    /// Mode and content, or the reason of a failure.
    file: std::result::Result<FileState, MergeFailure>,
    rules: BTreeSet<Rule>,
    texts: Option<MergeTexts>,
}

impl MergedFile {
    fn untexted(file: std::result::Result<FileState, MergeFailure>) -> Self {
        MergedFile {
            file,
            rules: BTreeSet::new(),
            texts: None,
        }
    }

    /// Returns the merge with the result that `done` makes of a merged file.
    fn done(
        self,
        old_path: &[u8],
        path: &[u8],
        done: impl FnOnce(FileState) -> FileMergeResult,
    ) -> FileMerge {
        let result = self.file.map_or_else(FileMergeResult::Failed, done);
        FileMerge {
            rules: self.rules,
            texts: self.texts,
            ..FileMerge::untexted(old_path, path, result)
        }
    }
}

/// Merges three versions of a file.
fn merged(base: Option<&TreeFile>, ours: &TreeFile, theirs: &TreeFile) -> Result<MergedFile> {
    let other = |what: String| Ok(MergedFile::untexted(Err(MergeFailure::Other(what))));
    let mode = match base {
        _ if theirs.mode == ours.mode => ours.mode,
        Some(base) if base.mode == theirs.mode => ours.mode,
        Some(base) if base.mode == ours.mode => theirs.mode,
        _ => {
            return other(format!(
                "the patch makes this a {}, and upstream has a {} there",
                theirs.kind(),
                ours.kind()
            ));
        }
    };
    let file = |content: Arc<Vec<u8>>| FileState { mode, content };
    let plain = |content: &Arc<Vec<u8>>| Ok(MergedFile::untexted(Ok(file(Arc::clone(content)))));
    match base {
        _ if theirs.blob == ours.blob => return plain(&ours.content),
        Some(base) if base.blob == theirs.blob => return plain(&ours.content),
        Some(base) if base.blob == ours.blob => return plain(&theirs.content),
        _ => {}
    }
    let mut texts = MergeTexts {
        base: base.map_or_else(Arc::default, |base| Arc::clone(&base.content)),
        ours: Arc::clone(&ours.content),
        theirs: Arc::clone(&theirs.content),
        regions: Vec::new(),
    };
    let versions = base.into_iter().chain([ours, theirs]);
    if versions
        .into_iter()
        .any(|file| file.is_link() || is_binary(&file.content))
    {
        return other("both sides changed a file that is not text".to_owned());
    }
    let Some(base) = base else {
        let is_same = squeezed(&[&ours.content]) == squeezed(&[&theirs.content]);
        return Ok(MergedFile {
            file: if is_same {
                Ok(file(Arc::clone(&ours.content)))
            } else {
                Err(MergeFailure::Lines)
            },
            rules: is_same.then_some(Rule::Already).into_iter().collect(),
            texts: Some(texts),
        });
    };
    let mut rules = BTreeSet::new();
    let cr = is_crlf(&ours.content);
    if cr != is_crlf(&base.content) {
        rules.insert(Rule::LineEnds);
        for text in [&mut texts.base, &mut texts.theirs] {
            *text = Arc::new(with_ends(text, cr));
        }
    }
    if let Some(merged) = merge(&texts.base, &texts.ours, &texts.theirs)? {
        rules.extend(merged.is_disputed.then_some(Rule::Disputed));
        rules.extend(merged.is_cut_short.then_some(Rule::Repetitive));
        return Ok(MergedFile {
            file: Ok(file(Arc::new(merged.content))),
            rules,
            texts: Some(texts),
        });
    }
    let merged = merge_loosely(&texts.base, &texts.ours, &texts.theirs)?;
    texts.regions = merged.regions;
    let is_guess = |rules: &BTreeSet<Rule>| rules.iter().any(|rule| rule.review().is_some());
    let file = match merged.result {
        // That a guess leaves nothing proves nothing.
        Some((content, more)) if is_guess(&more) && content == *ours.content => {
            Err(MergeFailure::Lines)
        }
        Some((content, more)) => {
            rules.extend(more);
            Ok(file(Arc::new(content)))
        }
        None => Err(MergeFailure::Lines),
    };
    Ok(MergedFile {
        file,
        rules,
        texts: Some(texts),
    })
}
