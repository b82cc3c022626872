//! Conflicts in git's own form: a worktree to solve them in, and what was decided kept for the next time.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::series::Patch;
use crate::stack::trial::Trial;
use crate::upstream::Objects;

/// What a person made of a patch.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The commit that was made.
    pub commit: String,
    /// The files it writes or removes.
    pub files: BTreeMap<Vec<u8>, Option<(u32, Vec<u8>)>>,
}

/// What was decided about this patch before, if the files are still what they were then.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when the object store is damaged.
pub fn remembered(
    _objects: &Objects,
    _patch: &Patch,
    _tree: &mut Trial<'_>,
) -> Result<Option<Resolution>> {
    Ok(None)
}
