//! Files that are no patch as they are: other encodings, compressed without a suffix, terminal colours, web pages.

use super::compression;
use super::text::base64;
use perfquilt_model::error::Error;
use perfquilt_model::magic;

/// The kind of a file that is no patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignContent {
    /// Text in an encoding of two or four bytes a character.
    Wide(&'static str),
    /// Compressed data or an archive, and the suffix that its name lacks; empty if perfquilt does not read it.
    Compressed(&'static str, &'static str),
    /// A web page.
    WebPage,
    /// The pointer that git stores for a file of Git LFS.
    LargeFilePointer,
    /// A diff with the control sequences of terminal colours.
    Coloured,
    /// The base64 form of a patch, as some services send it.
    Base64,
    /// Text whose lines end in CR alone.
    CarriageReturns,
}

/// The suffixes with which perfquilt reads compressed files, by their programs.
const SUFFIXES: [(&str, &str); 4] = [
    ("gzip", ".gz"),
    ("bzip2", ".bz2"),
    ("xz", ".xz"),
    ("lzip", ".lz"),
];

impl ForeignContent {
    /// Recognises content that cannot be a patch, whatever else is in it.
    pub fn of(bytes: &[u8]) -> Option<ForeignContent> {
        if let Some(program) = magic::compression(bytes) {
            let suffix = SUFFIXES.iter().find(|(name, _)| *name == program);
            let suffix = suffix.map_or("", |(_, suffix)| suffix);
            return Some(ForeignContent::Compressed(program, suffix));
        }
        if magic::is_zip(bytes) {
            return Some(ForeignContent::Compressed("a zip archive", ""));
        }
        if bytes.starts_with(b"%PDF-") {
            return Some(ForeignContent::Compressed("a PDF document", ""));
        }
        if magic::is_lfs_pointer(bytes) {
            return Some(ForeignContent::LargeFilePointer);
        }
        if bytes.get(257..262) == Some(b"ustar") {
            return Some(ForeignContent::Compressed("a tar archive", ""));
        }
        wide(bytes).map(ForeignContent::Wide).or_else(|| {
            let start = bytes[..bytes.len().min(1024)].trim_ascii_start();
            let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
            let begins = |tag: &[u8]| {
                start
                    .get(..tag.len())
                    .is_some_and(|text| text.eq_ignore_ascii_case(tag))
            };
            let tags: [&[u8]; 3] = [b"<!doctype html", b"<html", b"<?xml"];
            tags.into_iter()
                .any(begins)
                .then_some(ForeignContent::WebPage)
        })
    }

    /// Recognises content in which no diff was found.
    pub fn without_diff(bytes: &[u8]) -> Option<ForeignContent> {
        let lines = || bytes.split(|&byte| byte == b'\n');
        let coloured = |line: &[u8]| {
            let plain = without_colours(line);
            plain.len() < line.len()
                && [&b"diff "[..], b"--- ", b"+++ ", b"@@ "]
                    .iter()
                    .any(|it| plain.starts_with(it))
        };
        if lines().any(coloured) {
            return Some(ForeignContent::Coloured);
        }
        if !bytes.contains(&b'\n') && bytes.contains(&b'\r') {
            return Some(ForeignContent::CarriageReturns);
        }
        let packed: Vec<u8> = bytes
            .iter()
            .copied()
            .filter(|b| !b.is_ascii_whitespace())
            .collect();
        let decoded = std::str::from_utf8(&packed).ok().and_then(base64)?;
        let is_diff = |line: &[u8]| line.starts_with(b"diff ") || line.starts_with(b"--- ");
        let has_diff = decoded.split(|&byte| byte == b'\n').any(is_diff);
        has_diff.then_some(ForeignContent::Base64)
    }

    /// Returns the error of a file called `name`.
    pub fn error(self, name: &str) -> Error {
        let (what, hint) = match self {
            ForeignContent::Wide(encoding) => (
                format!("a text in {encoding}; patches are read byte by byte"),
                format!("`iconv -f {encoding} -t UTF-8 FILE` makes it a patch; in PowerShell, write the patch with `git diff --output=FILE`"),
            ),
            ForeignContent::Compressed(format, "") => (
                format!("not a patch, but {format}"),
                "unpack it first".to_owned(),
            ),
            ForeignContent::Compressed(format, suffix) => (
                format!("compressed with {format}, and its name does not say so"),
                if compression(name).is_empty() {
                    format!("name it `{name}{suffix}`, or decompress it")
                } else {
                    "it is compressed twice, or has the wrong suffix".to_owned()
                },
            ),
            ForeignContent::WebPage => (
                "a web page, not a patch".to_owned(),
                "download the patch itself: on GitHub and GitLab, the address with `.patch` at its end".to_owned(),
            ),
            ForeignContent::LargeFilePointer => (
                "not a patch, but a pointer of Git LFS".to_owned(),
                "commit the patch itself: `git lfs untrack FILE`, then `git add --renormalize FILE`; perfquilt fetches nothing from a Git LFS server".to_owned(),
            ),
            ForeignContent::Coloured => (
                "the diff has the colours of a terminal (escape sequences)".to_owned(),
                "write it again with `--no-color`".to_owned(),
            ),
            ForeignContent::Base64 => (
                "the patch is in base64".to_owned(),
                "`base64 -d FILE` decodes it".to_owned(),
            ),
            ForeignContent::CarriageReturns => (
                "the lines end in CR alone".to_owned(),
                "`tr '\\r' '\\n'` makes them lines".to_owned(),
            ),
        };
        Error::patch_options(what).hint(hint)
    }
}

/// Returns the encoding of a text whose characters take two or four bytes: by its byte order mark, or by the zeros in
/// every other byte.
fn wide(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] => return Some("UTF-32"),
        [0, 0, 0xfe, 0xff, ..] => return Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Some("UTF-16"),
        _ => {}
    }
    let start = &bytes[..bytes.len().min(256)];
    let zeros = |odd: usize| {
        start
            .iter()
            .skip(odd)
            .step_by(2)
            .filter(|&&byte| byte == 0)
            .count()
    };
    let enough = start.len() / 4;
    if start.len() < 16 {
        None
    } else if zeros(1) > enough && zeros(0) == 0 {
        Some("UTF-16LE")
    } else if zeros(0) > enough && zeros(1) == 0 {
        Some("UTF-16BE")
    } else {
        None
    }
}

/// Returns a line without the escape sequences of colours.
fn without_colours(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let sequence = rest.strip_prefix(b"\x1b[");
        let end = sequence.and_then(|it| it.iter().position(u8::is_ascii_alphabetic));
        if let (Some(sequence), Some(end)) = (sequence, end) {
            rest = &sequence[end + 1..];
            continue;
        }
        plain.push(byte);
        rest = after;
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::{Patch, SeriesFile};
    use super::*;

    const DIFF: &str = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";

    fn refused(bytes: &[u8]) -> String {
        let (file, _) = SeriesFile::parse(b"x.patch\n", "series");
        let error = Patch::parse(&file.entries()[0], "x.patch", bytes).unwrap_err();
        assert!(error.hint_text().is_some());
        error.to_string()
    }

    #[test]
    fn what_is_no_patch_is_named() {
        let wide = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
            let text: Vec<u8> = DIFF.encode_utf16().flat_map(bytes).collect();
            [mark, &text].concat()
        };
        let coloured: String = DIFF
            .lines()
            .map(|line| format!("\x1b[1m{line}\x1b[m\n"))
            .collect();
        let combined =
            "diff --cc x\nindex 1,2..3\n--- a/x\n+++ b/x\n@@@ -1,1 -1,1 +1,1 @@@\n--a\n++b\n";
        let base64 = "ZGlmZiAtLWdpdCBhL3ggYi94Ci0tLSBhL3gK\nKysrIGIveAo=\n";
        for (bytes, word) in [
            (wide(b"\xff\xfe", u16::to_le_bytes), "UTF-16;"),
            (wide(b"", u16::to_le_bytes), "UTF-16LE"),
            (wide(b"\xfe\xff", u16::to_be_bytes), "UTF-16;"),
            (wide(b"", u16::to_be_bytes), "UTF-16BE"),
            (b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "gzip"),
            (b"BZh91AY&SY\0".to_vec(), "bzip2"),
            (b"\xfd7zXZ\0\0".to_vec(), "xz"),
            (b"\x28\xb5\x2f\xfd\0".to_vec(), "zstd"),
            (b"PK\x03\x04\0".to_vec(), "zip"),
            (
                format!("\n<!DOCTYPE html>\n{DIFF}").into_bytes(),
                "web page",
            ),
            (
                b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".to_vec(),
                "pointer of Git LFS",
            ),
            (coloured.into_bytes(), "colours"),
            (combined.as_bytes().to_vec(), "combined"),
            (format!("{DIFF}{combined}").into_bytes(), "combined"),
            (base64.as_bytes().to_vec(), "base64"),
            (DIFF.replace('\n', "\r").into_bytes(), "CR alone"),
            (b"words\n".to_vec(), "no diff"),
        ] {
            let error = refused(&bytes);
            assert!(error.contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn patches_are_no_foreign_content() {
        for text in [
            DIFF.to_owned(),
            format!("\u{feff}{DIFF}"),
            format!("<p>\n{DIFF}"),
        ] {
            assert_eq!(ForeignContent::of(text.as_bytes()), None);
        }
    }
}
