//! The series: its patches, their order and their content. Parsing does no I/O; only [`Series::load`] and [`survey`]
//! read files.

mod date;
pub(crate) mod decompress;
pub mod diff;
mod file;
mod files;
mod foreign;
mod header;
pub(crate) mod layout;
mod load;
pub mod message;
mod options;
pub mod path;
pub(crate) mod quoting;
mod remarks;
pub(crate) mod text;
pub mod write;

pub use date::Timestamp;
pub(crate) use decompress::compression;
pub use diff::{CutOff, DiffForm, FileDiff, Hunk, LineChange, Presence, TextLine};
pub use file::{SeriesEntry, SeriesFile};
pub use files::SeriesPaths;
pub(crate) use foreign::ForeignContent;
pub(crate) use header::is_patch_tag;
pub use header::{Header, Person};
pub use load::{SeriesLocation, SeriesSurvey, patch_bytes, paths, survey};
pub(crate) use load::{looks_like_patch, quilt_folder};
pub use options::Flags;
pub(crate) use remarks::{commits_of, rewritten};

use std::sync::Arc;

use perfquilt_model::error::{Error, Result};

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
    /// Lines that look like parts of hunks but are ignored.
    pub stray: Vec<usize>,
    /// Lines that report a differing binary file without its content; they change nothing.
    pub without_content: Vec<usize>,
    /// Lines that name the files of a text diff that has no hunk; they change nothing.
    pub without_hunks: Vec<usize>,
    /// Where its file is cut off, if the last line shows that.
    pub cut_off: Option<CutOff>,
    /// The first line after the last hunk, if it and all lines after it look like part of that hunk.
    pub surplus: Option<usize>,
    /// Its lines of text between and after the diffs.
    pub text: Vec<TextLine>,
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

    /// Returns the SHA-256 over the patches' digests in order, in hexadecimal.
    pub fn digest(&self) -> String {
        digest(self.patches.iter().map(|patch| patch.digest.as_str()))
    }
}

/// Returns the SHA-256 over a list of digests, in hexadecimal.
pub(crate) fn digest<'a>(parts: impl Iterator<Item = &'a str>) -> String {
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
    ///
    /// # Errors
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series), naming file and line.
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
                None => Error::series("no diff in this file")
                    .hint("an empty patch must be an empty file"),
            };
            return Err(error.at(shown, None));
        }
        if parsed.header.len() > MAX_HEADER_BYTES {
            let what = format!("its header is larger than {} MiB", MAX_HEADER_BYTES >> 20);
            return Err(Error::series(what)
                .at(shown, None)
                .hint("the header is everything before the first diff"));
        }
        let header = Header::parse(&parsed.header);
        let mut files = parsed.files;
        for diff in &mut files {
            check_names(diff).map_err(|error| {
                Error::series(error.message().to_owned())
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
            stray: parsed.stray,
            without_content: parsed.without_content,
            without_hunks: parsed.without_hunks,
            cut_off: parsed.cut_off,
            surplus: parsed.surplus,
            text: parsed.text,
            digest: digest([entry.name.as_str(), &options, &own].into_iter()),
        })
    }

    /// Checks that the patch does all that its file says. A file that fails applies without an error, because its
    /// faulty lines are ignored.
    ///
    /// # Errors
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series), with the line: the file is cut off, names files without a
    /// hunk, or ends with lines that the counts of the last hunk leave out.
    pub fn check_complete(&self) -> Result<()> {
        let names = self.without_hunks.first().map(|&line| self.no_hunk(line));
        let surplus = || self.surplus.map(|line| self.ignored(line));
        match self.cut_off_error().or(names).or_else(surplus) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns the error of a file that is cut off, if the last line shows that.
    pub(crate) fn cut_off_error(&self) -> Option<Error> {
        let cut = self.cut_off?;
        let what = if cut.whole_line {
            "the patch ends after this line, in the middle of a diff"
        } else {
            "the patch ends in the middle of this line"
        };
        let error = Error::series(what).at(&self.shown, cut.line);
        Some(error.hint(
            "was the rest cut off? get the whole patch; if nothing is missing, remove this line",
        ))
    }

    /// Returns the warning of an indented diff, which patch applies although git takes it for text.
    pub(crate) fn indented_diff(&self) -> Option<Error> {
        let diff = self.files.iter().find(|diff| diff.indent > 0)?;
        let what = format!(
            "this indented diff changes {}: quilt and perfquilt apply it, and git reads it as part of the message",
            diff.shown_name()
        );
        Some(Error::series(what).at(&self.shown, diff.line).hint(
            "if it is a quotation, begin its lines with `> `; if not, remove the indentation",
        ))
    }

    /// Returns the warning of a binary file whose change the patch only mentions.
    pub(crate) fn lacks_content(&self) -> Option<Error> {
        let what = "this binary file is not changed: its content is not in the patch";
        let line = *self.without_content.first()?;
        Some(
            Error::series(what)
                .at(&self.shown, line)
                .hint("make the patch with `git diff --binary`"),
        )
    }

    /// Returns whether there is text between the diffs.
    pub(crate) fn has_text_between(&self) -> bool {
        self.text.iter().any(|text| text.before < self.files.len())
    }

    /// Returns the warnings of text between the diffs; `bytes` is the patch file.
    pub(crate) fn text_between(&self, bytes: &[u8]) -> Vec<Error> {
        let lines = diff::lines(bytes);
        let places = remarks::places(&self.text, self.files.len(), &lines);
        let warnings = places.into_iter().map(|(line, kind)| {
            let (what, hint) = match kind {
                remarks::RemarkKind::Mail => (
                    "the message of another commit begins here, between the diffs; only the first one is the patch's header",
                    "a rewritten patch keeps it; `perfquilt lint --split` makes one patch a commit",
                ),
                remarks::RemarkKind::EndOfHeader => (
                    "the header seems to continue here: the diff before this line is part of the message, but is applied",
                    "if it is a quotation, begin its lines with `> `",
                ),
                remarks::RemarkKind::Text => (
                    "text between the diffs, which no program reads",
                    "a rewritten patch keeps it; the place for words is the header, before the first diff",
                ),
            };
            Error::series(what).at(&self.shown, line).hint(hint)
        });
        warnings.collect()
    }

    /// Returns the error of file names without a hunk.
    pub(crate) fn no_hunk(&self, line: usize) -> Error {
        Error::series("no hunk follows these file names")
            .at(&self.shown, line)
            .hint("get the whole patch; if nothing is missing, remove the two lines of names")
    }

    /// Returns the error of a line that is ignored, although it looks like part of a hunk.
    pub(crate) fn ignored(&self, line: usize) -> Error {
        let what = "this line is ignored, although it looks like a part of the hunk before";
        Error::series(what)
            .at(&self.shown, line)
            .hint("check the counts in the hunk's `@@` line")
    }
}

/// Drops names that lead out of the tree if another name remains, as GNU patch does, and rejects every other name that
/// is not a valid file path.
fn check_names(diff: &mut FileDiff) -> Result<()> {
    if diff.old.is_some() || diff.new.is_some() {
        // GNU patch uses the name on the `Index:` line only when there is no other.
        diff.index = None;
    }
    let names = [&diff.old, &diff.new, &diff.index];
    let inside = names
        .into_iter()
        .flatten()
        .any(|name| !path::escapes_tree(name));
    let moved = diff.rename || diff.copy;
    for name in [&mut diff.old, &mut diff.new, &mut diff.index] {
        let Some(text) = name else { continue };
        if path::escapes_tree(text) && inside && !moved {
            *name = None;
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
