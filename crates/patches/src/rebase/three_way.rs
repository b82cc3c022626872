//! Bringing one patch into another tree by merging the files it changes, one by one.
//!
//! The common ancestor of a file is what the patch found on the old release, their side is what the
//! patch left there, and ours is the new release with the earlier patches. Only these files are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::series::Patch;
use crate::stack::merge::{Merged, Region, merge};
use crate::stack::trial::{File, Trial};
use perfquilt_model::error::Result;

/// What a merge makes of one file.
#[derive(Debug, Clone)]
pub struct FileMerge {
    /// The file on the old release, as the patch leaves it (as it found it, if it removes it).
    pub old_path: Vec<u8>,
    /// The file in the new tree.
    pub path: Vec<u8>,
    /// Whether upstream calls it by another name.
    pub moved: bool,
    /// What came of it.
    pub part: Part,
}

/// What came of a file.
#[derive(Debug, Clone)]
pub enum Part {
    /// The new tree has the whole change already.
    There,
    /// These files are written (or removed: `None`).
    Clean(BTreeMap<Vec<u8>, Option<(u32, Vec<u8>)>>),
    /// Somebody must decide.
    Trouble(Trouble),
}

/// Why a file cannot be merged.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// Both sides changed the same lines.
    Lines {
        /// The file before the patch, on the old release.
        base: Arc<Vec<u8>>,
        /// The file in the new tree.
        ours: Arc<Vec<u8>>,
        /// The file after the patch, on the old release.
        theirs: Arc<Vec<u8>>,
        /// The places.
        regions: Vec<Region>,
    },
    /// The new release does not have the file.
    Gone {
        /// The file before the patch, on the old release.
        base: Arc<Vec<u8>>,
    },
    /// Anything else, in words.
    Other(String),
}

/// Where upstream moved a file to, if it did.
pub type Moved<'t> = dyn FnMut(&[u8]) -> Result<Option<Vec<u8>>> + 't;

/// The trees a merge works on.
pub struct Trees<'t, 'a> {
    /// The old release before the patch.
    pub before: &'t mut Trial<'a>,
    /// The old release after the patch.
    pub after: &'t mut Trial<'a>,
    /// The new tree.
    pub ours: &'t mut Trial<'a>,
    /// Where upstream moved a file that the new tree does not have.
    pub moved: &'t mut Moved<'t>,
}

/// Merges every file that `patch` changes; `paths` are those that differ between the old trees.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the object store is damaged.
pub fn merge_files(
    trees: &mut Trees<'_, '_>,
    patch: &Patch,
    paths: &[Vec<u8>],
) -> Result<Vec<FileMerge>> {
    let mut left: BTreeSet<&Vec<u8>> = paths.iter().collect();
    let mut merges = Vec::new();
    for diff in patch.files.iter().filter(|diff| diff.rename) {
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

fn one_file(trees: &mut Trees<'_, '_>, path: &[u8]) -> Result<FileMerge> {
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
    let moved = place != path;
    let part = match (base, theirs, ours) {
        (_, None, None) => Part::There,
        (None, Some(theirs), None) => match trees.ours.obstacle(&place)? {
            Some(obstacle) => Part::Trouble(Trouble::Other(obstacle)),
            None => clean(&place, Some((theirs.mode, theirs.content.to_vec()))),
        },
        (Some(base), Some(_), None) => Part::Trouble(match trees.ours.obstacle(&place)? {
            Some(obstacle) => Trouble::Other(obstacle),
            None => Trouble::Gone { base: base.content },
        }),
        (base, None, Some(ours)) => {
            let same = base
                .as_ref()
                .is_some_and(|base| base.blob == ours.blob && base.mode == ours.mode);
            if same {
                clean(&place, None)
            } else {
                Part::Trouble(Trouble::Other(
                    "the patch deletes this file, and upstream changed it".to_owned(),
                ))
            }
        }
        (base, Some(theirs), Some(ours)) => match merged(base.as_ref(), &ours, &theirs)? {
            Ok(file) if same(&file, &ours) => Part::There,
            Ok(file) => clean(&place, Some(file)),
            Err(trouble) => Part::Trouble(trouble),
        },
    };
    Ok(FileMerge {
        old_path: path.to_vec(),
        path: place,
        moved,
        part,
    })
}

/// The patch renames a file.
fn renamed(trees: &mut Trees<'_, '_>, old: &[u8], new: &[u8]) -> Result<FileMerge> {
    let done = |path: &[u8], moved, part| FileMerge {
        old_path: new.to_vec(),
        path: path.to_vec(),
        moved,
        part,
    };
    let (Some(base), Some(theirs)) = (trees.before.file(old)?, trees.after.file(new)?) else {
        return Ok(done(new, false, Part::There));
    };
    let there = trees.ours.file(new)?;
    let Some(ours) = trees.ours.file(old)? else {
        // Upstream renamed it too.
        let Some(ours) = there else {
            return Ok(match (trees.moved)(old)? {
                Some(other) => done(
                    &other,
                    true,
                    Part::Trouble(Trouble::Other(format!(
                        "the patch renames {}, and upstream renamed it otherwise",
                        crate::series::path::shown(old)
                    ))),
                ),
                None => done(
                    new,
                    false,
                    Part::Trouble(Trouble::Gone { base: base.content }),
                ),
            });
        };
        let part = match merged(Some(&base), &ours, &theirs)? {
            Ok(file) if same(&file, &ours) => Part::There,
            Ok(file) => clean(new, Some(file)),
            Err(trouble) => Part::Trouble(trouble),
        };
        return Ok(done(new, false, part));
    };
    if there.is_some() {
        return Ok(done(
            new,
            false,
            Part::Trouble(Trouble::Other(
                "the patch renames a file to this name, which upstream uses for another".to_owned(),
            )),
        ));
    }
    if let Some(obstacle) = trees.ours.obstacle(new)? {
        return Ok(done(new, false, Part::Trouble(Trouble::Other(obstacle))));
    }
    let part = match merged(Some(&base), &ours, &theirs)? {
        Ok(file) => Part::Clean(BTreeMap::from([
            (old.to_vec(), None),
            (new.to_vec(), Some(file)),
        ])),
        Err(trouble) => Part::Trouble(trouble),
    };
    Ok(done(new, false, part))
}

fn clean(path: &[u8], file: Option<(u32, Vec<u8>)>) -> Part {
    Part::Clean(BTreeMap::from([(path.to_vec(), file)]))
}

fn same(file: &(u32, Vec<u8>), other: &File) -> bool {
    file.0 == other.mode && file.1 == *other.content
}

/// Mode and content of a file of which there are three versions.
fn merged(
    base: Option<&File>,
    ours: &File,
    theirs: &File,
) -> Result<std::result::Result<(u32, Vec<u8>), Trouble>> {
    let other = |what: String| Ok(Err(Trouble::Other(what)));
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
    let content = match base {
        _ if theirs.blob == ours.blob => &ours.content,
        Some(base) if base.blob == theirs.blob => &ours.content,
        Some(base) if base.blob == ours.blob => &theirs.content,
        _ => {
            let empty = Arc::new(Vec::new());
            let base_content = base.map_or(&empty, |base| &base.content);
            if base.is_none() {
                return Ok(Err(Trouble::Lines {
                    base: empty,
                    ours: Arc::clone(&ours.content),
                    theirs: Arc::clone(&theirs.content),
                    regions: Vec::new(),
                }));
            }
            if [base, Some(ours), Some(theirs)]
                .into_iter()
                .flatten()
                .any(|file| file.is_link() || file.is_binary())
            {
                return other("a file that is no text was changed by both sides".to_owned());
            }
            return Ok(match merge(base_content, &ours.content, &theirs.content)? {
                Merged::Clean(content) => Ok((mode, content)),
                Merged::Conflict(regions) => Err(Trouble::Lines {
                    base: Arc::clone(base_content),
                    ours: Arc::clone(&ours.content),
                    theirs: Arc::clone(&theirs.content),
                    regions,
                }),
            });
        }
    };
    Ok(Ok((mode, content.to_vec())))
}
