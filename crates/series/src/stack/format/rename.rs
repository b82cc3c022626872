//! Rename detection: the installed git's, with its default limits, on trees of the removed and the new files alone.

use std::env::temp_dir;

use git2::ObjectType;

use super::ContentReader;
use crate::stack::tree_pairs::{FilePair, FileSide};
use crate::upstream::folder_builder::FolderBuilder;
use crate::upstream::objects::MODE_COMMIT;
use crate::upstream::{Objects, store_error};
use perfquilt_model::error::{Error, Kind, Result};

/// Joins pairs of removed and new files into renames.
pub(super) fn detect(
    mut pairs: Vec<FilePair>,
    contents: &mut ContentReader<'_>,
) -> Result<Vec<FilePair>> {
    let any_gone = pairs.iter().any(|pair| pair.new.is_none());
    let any_new = pairs.iter().any(|pair| pair.old.is_none());
    if !(any_gone && any_new) {
        return Ok(pairs);
    }
    let folder = tempfile::tempdir().map_err(|e| Error::io("create", &temp_dir(), &e))?;
    let store = Objects::open_or_create(folder.path())?;
    let gone = pairs.iter().filter(|pair| pair.new.is_none());
    let gone = tree(&store, contents, gone.map(|pair| (pair, pair.old)))?;
    let new = pairs.iter().filter(|pair| pair.old.is_none());
    let new = tree(&store, contents, new.map(|pair| (pair, pair.new)))?;
    let listing = store
        .git()
        .command(&["diff-tree", "-r", "-M", "-z", &gone, &new])
        .run_ok(Kind::Internal)?
        .stdout;
    let mut fields = listing.split(|&byte| byte == 0);
    while let (Some(record), Some(from)) = (fields.next(), fields.next()) {
        // `R` and the similarity end the record of a rename, and its new name follows the old one.
        let status = record.rsplit(|&byte| byte == b' ').next();
        let Some(similarity) = status.and_then(|status| status.strip_prefix(b"R")) else {
            continue;
        };
        let to = fields.next().unwrap_or_default();
        let similarity = std::str::from_utf8(similarity).ok();
        let similarity = similarity.and_then(|percent| percent.parse().ok());
        let is_source = |pair: &FilePair| pair.new.is_none() && pair.old_path == from;
        let Some(source) = pairs.iter().position(is_source) else {
            continue;
        };
        let source = pairs.remove(source);
        let is_target = |pair: &&mut FilePair| pair.old.is_none() && pair.new_path == to;
        if let Some(target) = pairs.iter_mut().find(is_target) {
            target.old_path = source.old_path;
            target.old = source.old;
            target.similarity = similarity;
        }
    }
    Ok(pairs)
}

/// Writes the files to `store` and returns the id of a tree of them.
fn tree<'p>(
    store: &Objects,
    contents: &mut ContentReader<'_>,
    files: impl Iterator<Item = (&'p FilePair, Option<FileSide>)>,
) -> Result<String> {
    let database = store.database()?;
    let mut root = FolderBuilder::default();
    for (pair, side) in files {
        let Some(side) = side else { continue };
        if side.mode != MODE_COMMIT {
            let content = contents.read(side)?;
            let written = database.write(ObjectType::Blob, &content);
            written.map_err(store_error)?;
        }
        root.insert(&pair.new_path, side.mode, side.oid)?;
    }
    let mut write = |data: &[u8]| database.write(ObjectType::Tree, data).map_err(store_error);
    Ok(root.store(&mut write)?.to_string())
}
