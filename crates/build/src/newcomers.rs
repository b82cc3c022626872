//! Finds new files that a compiler would take in the place of others: nothing that was compiled before depends on them, so
//! neither ninja nor ccache's direct mode notices them. Nor does ccache notice that a file has come back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Changes;
use super::build_files::is_read;
use super::files::walk;

/// The files that a move adds to a source tree or removes, by name.
pub(super) struct Newcomers<'a>(BTreeMap<&'a [u8], &'a str>);

impl<'a> Newcomers<'a> {
    /// Returns those of `changes` that `src` does not have yet.
    pub(super) fn among(src: &Path, changes: &'a Changes) -> Newcomers<'a> {
        let is_new = |path: &&String| std::fs::symlink_metadata(src.join(path)).is_err();
        let new = changes.keys().filter(|path| is_read(path)).filter(is_new);
        Newcomers(new.map(|path| (name(path), path.as_str())).collect())
    }

    /// Returns those of `changes` that a move removes.
    pub(super) fn removed(changes: &'a Changes) -> Newcomers<'a> {
        let removed = changes
            .iter()
            .filter(|(path, kept)| !**kept && is_read(path));
        Newcomers(
            removed
                .map(|(path, _)| (name(path), path.as_str()))
                .collect(),
        )
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns one that a file of the tree without them names: as a file elsewhere, or as one to use if it exists.
    pub(super) fn named(&self, src: &Path) -> Option<&'a str> {
        self.first(src, |_, text| self.mentioned(text))
    }

    /// Returns one in whose place a compiler of the tree with them would use another file, or none.
    pub(super) fn hiding(&self, src: &Path) -> Option<&'a str> {
        let mut seen = BTreeSet::new();
        self.first(src, |path, text| {
            let known = self.0.get_key_value(name(path));
            let again = known.filter(|(name, _)| !seen.insert(**name));
            let is_condition = || memchr::memmem::find(text, b"__has_include").is_some();
            let in_condition = || is_condition().then(|| self.mentioned(text))?;
            again.map(|(_, path)| *path).or_else(in_condition)
        })
    }

    fn mentioned(&self, text: &[u8]) -> Option<&'a str> {
        let is_end = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"._-+".contains(byte));
        text.split(is_end)
            .find_map(|word| self.0.get(word).copied())
    }

    fn first(
        &self,
        src: &Path,
        mut find: impl FnMut(&str, &[u8]) -> Option<&'a str>,
    ) -> Option<&'a str> {
        if self.0.is_empty() {
            return None;
        }
        walk(src)
            .into_iter()
            .filter(|(_, kind)| kind.is_file())
            .map(|(path, _)| path.to_string_lossy().into_owned())
            .filter(|path| is_read(path))
            .find_map(|path| find(&path, &std::fs::read(src.join(&path)).unwrap_or_default()))
    }
}

fn name(path: &str) -> &[u8] {
    path.rsplit('/').next().unwrap_or(path).as_bytes()
}
