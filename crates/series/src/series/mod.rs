//! The series: its patches, their order and their content. Parsing does no I/O; only [`Series::load`] and [`survey`]
//! read files.

pub mod compression;
mod date;
pub mod diff;
mod file;
mod files;
mod foreign;
mod header;
pub mod layout;
mod load;
pub mod message;
mod options;
pub mod path;
pub mod quoting;
mod remarks;
pub mod text;
pub mod write;

pub use compression::{compress, compression};
pub use date::Timestamp;
pub use diff::{CutOff, DiffForm, FileDiff, Hunk, LineChange, PatchRest, Presence, TextLine};
pub use file::{SeriesEntry, SeriesFile};
pub use files::SeriesPaths;
pub use foreign::ForeignContent;
pub use header::is_patch_tag;
pub use header::{Header, Person};
pub use load::{SeriesLocation, SeriesSurvey, paths, survey};
pub use load::{looks_like_patch, quilt_folder};
pub use options::Flags;
pub use remarks::{commits_of, rewritten};

use std::sync::Arc;

use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;

/// Maximum size of a patch's header, in bytes.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// A patch of the series.
#[derive(Debug, Clone)]
pub struct Patch {
    /// Its path below the folder of patches, as `series` names it.
    pub name: String,
    /// Its path in messages, for example `patches/0001-a.patch`.
    pub shown: String,
    /// One line: the header's subject, or the name.
    pub title: String,
    /// Its line in `series`.
    pub line: usize,
    /// Its header.
    pub header: Header,
    /// The changed files; already reversed if `series` says `-R`.
    pub files: Vec<FileDiff>,
    /// Its options in `series` other than `-pN` and `-R`.
    pub flags: Flags,
    /// What its file has besides.
    pub rest: PatchRest,
    /// SHA-256 of its bytes and its options, which determine its effect.
    pub digest: String,
}

/// An ordered list of patches.
#[derive(Debug, Clone, Default)]
pub struct Series {
    file: SeriesFile,
    /// Shared, because a stack keeps its series.
    patches: Arc<[Patch]>,
}

impl Series {
    /// Builds a series from a parsed `series` file and its patches: one per entry, in the same order.
    pub fn assemble(file: SeriesFile, patches: Vec<Patch>) -> Series {
        Series {
            file,
            patches: patches.into(),
        }
    }

    /// Returns the patches in order.
    pub fn patches(&self) -> &[Patch] {
        &self.patches
    }

    /// Returns the `series` file itself.
    pub fn file(&self) -> &SeriesFile {
        &self.file
    }

    /// Returns patch `k`, counted from 1.
    pub fn patch(&self, k: usize) -> Option<&Patch> {
        k.checked_sub(1).and_then(|index| self.patches.get(index))
    }

    /// Finds a patch by its name, its number, or a unique part of its name; returns its index.
    pub fn find(&self, text: &str) -> Result<usize> {
        let names = || self.patches.iter().map(|patch| patch.name.as_str());
        if let Some(index) = names().position(|name| name == text) {
            return Ok(index);
        }
        let number = text.parse::<usize>().ok();
        if let Some(number) = number.filter(|number| self.patch(*number).is_some()) {
            return Ok(number - 1);
        }
        let part = text.strip_prefix("patches/").unwrap_or(text);
        let found: Vec<(usize, &str)> = names()
            .enumerate()
            .filter(|(_, name)| name.contains(part))
            .collect();
        let error = || Error::patch_unknown(format!("no patch \"{text}\" in the series"));
        match found.as_slice() {
            [(only, _)] => Ok(*only),
            [] if number.is_some() => {
                Err(Point::beyond(&format!("patch {text}"), self.patches.len()))
            }
            [] if self.patches.is_empty() => Err(error().hint("the series is empty")),
            [] => Err(error().near(text, names(), "`perfquilt status` lists the patches")),
            several => Err(
                Error::patch_unknown(format!("\"{text}\" matches several patches"))
                    .details(several.iter().take(10).map(|(_, name)| (*name).to_owned()))
                    .hint("give more of the name, or its number"),
            ),
        }
    }

    /// Returns the SHA-256 over the patches' digests in order, in hexadecimal.
    pub fn digest(&self) -> String {
        digest(self.patches.iter().map(|patch| patch.digest.as_str()))
    }
}

/// Returns the SHA-256 over a list of digests, in hexadecimal.
pub fn digest<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update(b"\n");
    }
    hex::encode(hasher.finalize())
}

impl Patch {
    /// Parses a patch's bytes; `shown` is its name in errors.
    pub fn parse(entry: &SeriesEntry, shown: &str, bytes: &[u8]) -> Result<Patch> {
        let options = diff::ParseOptions {
            strip: entry.strip,
            binary: entry.flags.binary,
            form: entry.flags.form,
            indented_is_text: false,
        };
        if let Some(kind) = ForeignContent::of(bytes) {
            return Err(kind.error(&entry.name).at(shown, None));
        }
        let parsed = diff::parse_with(bytes, &options, shown)?;
        if parsed.files.is_empty() && !bytes.is_empty() {
            let error = match ForeignContent::without_diff(bytes) {
                Some(kind) => kind.error(&entry.name),
                None => Error::patch_empty("no diff in this file")
                    .hint("an empty patch must be an empty file"),
            };
            return Err(error.at(shown, None));
        }
        if parsed.header.len() > MAX_HEADER_BYTES {
            let what = format!("its header is larger than {} MiB", MAX_HEADER_BYTES >> 20);
            return Err(Error::patch_syntax(what)
                .at(shown, None)
                .hint("the header is everything before the first diff"));
        }
        let header = Header::parse(&parsed.header);
        let mut files = parsed.files;
        for diff in &mut files {
            check_names(diff).map_err(|error| {
                Error::patch_syntax(error.message().to_owned())
                    .at(shown, diff.line)
                    .hint("a patch may only change files of the release")
            })?;
        }
        if entry.reverse {
            files = files.into_iter().map(FileDiff::reversed).collect();
        }
        let mut options = format!(
            "-p{}{}",
            entry.strip,
            if entry.reverse { " -R" } else { "" }
        );
        if entry.flags != Flags::default() {
            options.push_str(&format!(" {:?}", entry.flags));
        }
        let own = {
            use sha2::{Digest, Sha256};
            hex::encode(Sha256::digest(bytes))
        };
        let title = header.title().unwrap_or(&entry.name).to_owned();
        Ok(Patch {
            name: entry.name.clone(),
            shown: shown.to_owned(),
            title,
            line: entry.line,
            header,
            files,
            flags: entry.flags,
            rest: parsed.rest,
            digest: digest([entry.name.as_str(), &options, &own].into_iter()),
        })
    }
}

/// Sets names aside that lead out of the tree if another name remains, as GNU patch does, and rejects every other name that
/// is not a valid file path.
fn check_names(diff: &mut FileDiff) -> Result<()> {
    if diff.old.is_some() || diff.new.is_some() {
        // GNU patch uses the name on the `Index:` line only when there is no other.
        diff.index = None;
    }
    let inside = diff.names().any(|name| !path::escapes_tree(name));
    let moved = diff.rename || diff.copy;
    for name in [&mut diff.old, &mut diff.new, &mut diff.index] {
        let Some(text) = name else { continue };
        if path::escapes_tree(text) && inside && !moved {
            diff.outside = name.take();
        } else {
            path::check(text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_a_limit() {
        let (file, _) = SeriesFile::parse(b"x.patch\n", "series");
        let parse = |length: usize| {
            let text = "x".repeat(length - 1) + "\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
            Patch::parse(&file.entries()[0], "patches/x.patch", text.as_bytes())
        };
        assert!(parse(MAX_HEADER_BYTES).is_ok());
        let error = parse(MAX_HEADER_BYTES + 1).unwrap_err();
        let words = "patches/x.patch: its header is larger than 1 MiB";
        assert_eq!(error.to_string(), words);
    }
}
