//! The text of one file's diff.

use crate::upstream::store_error;
use std::path::Path;

use git2::{DiffOptions, Patch};

use super::{ContentReader, is_binary};
use crate::stack::tree_pairs::{FilePair, FileSide};
use perfquilt_model::error::Result;

/// The maximum length of the function name that git puts after a hunk's `@@`, in bytes.
const FUNCTION_LENGTH: usize = 80;

/// Appends the diff of `pair`.
pub(super) fn write(
    pair: &FilePair,
    contents: &mut ContentReader<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    if let (Some(old), Some(new)) = (pair.old, pair.new)
        && kind(old) != kind(new)
    {
        // Git writes the change between a file and a link as a deletion and a creation.
        let gone = FilePair {
            new: None,
            ..pair.clone()
        };
        let come = FilePair {
            old: None,
            ..pair.clone()
        };
        write(&gone, contents, out)?;
        return write(&come, contents, out);
    }
    header(pair, out);
    if pair.old.map(|side| side.oid) == pair.new.map(|side| side.oid) {
        return Ok(());
    }
    let mut read = |side: Option<FileSide>| match side {
        Some(side) => contents.read(side),
        None => Ok(Vec::new()),
    };
    let (old, new) = (read(pair.old)?, read(pair.new)?);
    if is_binary(&old) || is_binary(&new) {
        binary(&old, &new, out)
    } else {
        hunks(pair, &old, &new, out)
    }
}

fn kind(side: FileSide) -> u32 {
    side.mode & 0o170_000
}

fn header(pair: &FilePair, out: &mut Vec<u8>) {
    let mut line = |text: String| out.extend_from_slice(text.as_bytes());
    let (old, new) = (quoted(b"a/", &pair.old_path), quoted(b"b/", &pair.new_path));
    line(format!("diff --git {old} {new}\n"));
    match (pair.old, pair.new) {
        (None, Some(new)) => line(format!("new file mode {:06o}\n", new.mode)),
        (Some(old), None) => line(format!("deleted file mode {:06o}\n", old.mode)),
        (Some(old), Some(new)) if old.mode != new.mode => line(format!(
            "old mode {:06o}\nnew mode {:06o}\n",
            old.mode, new.mode
        )),
        _ => {}
    }
    if let Some(similarity) = pair.similarity {
        line(format!(
            "similarity index {similarity}%\nrename from {}\nrename to {}\n",
            quoted(b"", &pair.old_path),
            quoted(b"", &pair.new_path),
        ));
    }
    let name =
        |side: Option<FileSide>| side.map_or_else(|| "0".repeat(40), |side| side.oid.to_string());
    if name(pair.old) != name(pair.new) {
        line(format!("index {}..{}", name(pair.old), name(pair.new)));
        if let (Some(old), Some(new)) = (pair.old, pair.new)
            && old.mode == new.mode
        {
            line(format!(" {:06o}", old.mode));
        }
        line("\n".to_owned());
    }
}

fn hunks(pair: &FilePair, old: &[u8], new: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut options = DiffOptions::new();
    options
        .force_text(true)
        .indent_heuristic(true)
        .context_lines(3)
        .interhunk_lines(0);
    let label = |side: Option<FileSide>, prefix: &[u8], path: &[u8]| match side {
        // Git appends a tab to a name with a blank, so that no parser mistakes a part of it for a date.
        Some(_) if path.contains(&b' ') => format!("{}\t", quoted(prefix, path)),
        Some(_) => quoted(prefix, path),
        None => "/dev/null".to_owned(),
    };
    let mut lines = Vec::new();
    print(old, new, &mut options, |origin, content| match origin {
        'H' => lines.extend_from_slice(&hunk_header(content)),
        ' ' | '+' | '-' => {
            lines.push(origin as u8);
            lines.extend_from_slice(content);
        }
        '=' | '>' | '<' => lines.extend_from_slice(content),
        _ => {}
    })?;
    if !lines.is_empty() {
        let names = format!(
            "--- {}\n+++ {}\n",
            label(pair.old, b"a/", &pair.old_path),
            label(pair.new, b"b/", &pair.new_path)
        );
        out.extend_from_slice(names.as_bytes());
        out.extend_from_slice(&lines);
    }
    Ok(())
}

/// Corrects a hunk header of libgit2: git trims a function name after truncating it, libgit2 before.
fn hunk_header(line: &[u8]) -> Vec<u8> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let function = text
        .windows(4)
        .position(|window| window == b" @@ ")
        .map_or(text.len(), |at| at + 4);
    let mut text = text.to_vec();
    if text.len() - function == FUNCTION_LENGTH {
        while text
            .last()
            .is_some_and(|b| matches!(b, b' ' | b'\t' | b'\r'))
        {
            text.pop();
        }
    }
    text.push(b'\n');
    text
}

fn binary(old: &[u8], new: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut options = DiffOptions::new();
    options.force_binary(true).show_binary(true);
    print(old, new, &mut options, |origin, content| {
        if origin == 'B' {
            out.extend_from_slice(content);
        }
    })
}

/// Passes the parts of libgit2's diff of two texts to `part`, each with its kind.
fn print(
    old: &[u8],
    new: &[u8],
    options: &mut DiffOptions,
    mut part: impl FnMut(char, &[u8]),
) -> Result<()> {
    let name = Some(Path::new("x"));
    let patch = Patch::from_buffers(old, name, new, name, Some(options));
    let mut each =
        |_: git2::DiffDelta<'_>, _: Option<git2::DiffHunk<'_>>, line: git2::DiffLine<'_>| {
            part(line.origin(), line.content());
            true
        };
    patch
        .and_then(|mut patch| patch.print(&mut each))
        .map_err(store_error)
}

/// Returns the path with its prefix, quoted like git.
fn quoted(prefix: &[u8], path: &[u8]) -> String {
    let plain = |b: &u8| (0x20..0x7f).contains(b) && !matches!(b, b'"' | b'\\');
    let name = [prefix, path].concat();
    if path.iter().all(plain) {
        return String::from_utf8_lossy(&name).into_owned();
    }
    let mut text = String::from("\"");
    for byte in &name {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            b'\r' => text.push_str("\\r"),
            byte if plain(byte) => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}
