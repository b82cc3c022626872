//! Git's binary patches: base-85 lines holding a deflated file or a delta.

use std::io::Read;

use perfquilt_model::error::{Error, Result};

/// Largest binary file that a patch may create, in bytes.
const FILE_LIMIT: usize = 64 << 20;

/// Limit for all binary files of a patch, before and after the change together, in bytes.
pub(super) const PATCH_LIMIT: usize = 2 * FILE_LIMIT;

/// The change of a binary file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    forward: BinaryHunk,
    backward: Option<BinaryHunk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BinaryHunk {
    Literal(Vec<u8>),
    Delta(Vec<u8>),
}

impl Binary {
    /// Parses the lines after `GIT binary patch`. Returns the change with the number of lines read. `room` is the
    /// number of bytes that its files may have.
    ///
    /// # Errors
    /// The offset of the faulty line from the first one, and the fault.
    pub(super) fn parse(lines: &[&[u8]], room: usize) -> Result<(Binary, usize), (usize, Error)> {
        let (forward, mut used) = parse_hunk(lines, 0, room)?
            .ok_or_else(|| (0, Error::binary_patch("`literal` or `delta` is missing")))?;
        let mut backward = None;
        if let Some((piece, end)) = parse_hunk(lines, used, room - forward.size())? {
            backward = Some(piece);
            used = end;
        }
        Ok((Binary { forward, backward }, used))
    }

    /// Returns the total size of its files before and after the change, in bytes.
    pub fn size(&self) -> usize {
        self.forward.size() + self.backward.as_ref().map_or(0, BinaryHunk::size)
    }

    pub(super) fn reversed(self) -> Binary {
        match self.backward {
            Some(backward) => Binary {
                forward: backward,
                backward: Some(self.forward),
            },
            // `apply` reports the empty delta.
            None => Binary {
                forward: BinaryHunk::Delta(Vec::new()),
                backward: None,
            },
        }
    }

    /// Applies the change to the content `before` and returns the new content.
    pub fn apply(&self, before: &[u8]) -> Result<Vec<u8>> {
        match &self.forward {
            BinaryHunk::Literal(content) => Ok(content.clone()),
            BinaryHunk::Delta(delta) if delta.is_empty() => {
                Err(Error::binary_patch("the binary patch has no reverse part")
                    .hint("make it with `git diff --binary`"))
            }
            BinaryHunk::Delta(delta) => apply_delta(delta, before).ok_or_else(|| {
                Error::binary_patch("the binary delta does not fit the file")
                    .hint("the file is not the one the patch was made for")
            }),
        }
    }
}

impl BinaryHunk {
    /// Returns its own size or that of its result, whichever is larger, in bytes.
    fn size(&self) -> usize {
        match self {
            BinaryHunk::Literal(content) => content.len(),
            BinaryHunk::Delta(delta) => {
                let mut input = delta.iter().copied();
                let target = file_size(&mut input).and_then(|_| file_size(&mut input));
                // `apply_delta` refuses larger results.
                let target = target.filter(|&target| target <= FILE_LIMIT);
                delta.len().max(target.unwrap_or(0))
            }
        }
    }
}

fn parse_hunk(
    lines: &[&[u8]],
    start: usize,
    room: usize,
) -> Result<Option<(BinaryHunk, usize)>, (usize, Error)> {
    let Some(head) = lines.get(start) else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(head);
    let mut words = head.split_whitespace();
    let (kind, size) = (words.next(), words.next());
    let literal = match kind {
        Some("literal") => true,
        Some("delta") => false,
        _ => return Ok(None),
    };
    let fail = |offset: usize, what: &str| (offset, Error::binary_patch(what.to_owned()));
    let size = size
        .and_then(|size| size.parse::<usize>().ok())
        .filter(|&size| size <= FILE_LIMIT)
        .ok_or_else(|| fail(start, "the binary patch's size is wrong or above 64 MiB"))?;
    let too_many = || {
        let what = format!(
            "the patch's binary files have more than {} MiB",
            PATCH_LIMIT >> 20
        );
        (start, Error::binary_patch(what))
    };
    if size > room {
        return Err(too_many());
    }
    let mut packed = Vec::new();
    let mut at = start + 1;
    loop {
        let line = lines
            .get(at)
            .ok_or_else(|| fail(at, "the binary patch ends in the middle"))?
            .trim_ascii_end();
        at += 1;
        if line.is_empty() {
            break;
        }
        decode_line(line, &mut packed)
            .ok_or_else(|| fail(at - 1, "a damaged line of a binary patch"))?;
    }
    let mut content = Vec::new();
    let limit = size as u64 + 1;
    flate2::read::ZlibDecoder::new(packed.as_slice())
        .take(limit)
        .read_to_end(&mut content)
        .ok()
        .filter(|_| content.len() == size)
        .ok_or_else(|| fail(start, "the binary patch is damaged"))?;
    let piece = if literal {
        BinaryHunk::Literal(content)
    } else {
        BinaryHunk::Delta(content)
    };
    if piece.size() > room {
        return Err(too_many());
    }
    Ok(Some((piece, at)))
}

/// The base-85 digits.
const DIGITS: &[u8] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Decodes a line: the first letter is the number of bytes, then five digits encode four bytes.
fn decode_line(line: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (&first, digits) = line.split_first()?;
    let length = match first {
        b'A'..=b'Z' => usize::from(first - b'A') + 1,
        b'a'..=b'z' => usize::from(first - b'a') + 27,
        _ => return None,
    };
    if digits.len() % 5 != 0 || digits.len() / 5 * 4 < length || digits.len() / 5 * 4 > length + 3 {
        return None;
    }
    let start = out.len();
    for group in digits.chunks(5) {
        let mut value = 0_u64;
        for digit in group {
            let digit = DIGITS.iter().position(|known| known == digit)?;
            value = value * 85 + digit as u64;
        }
        out.extend_from_slice(&u32::try_from(value).ok()?.to_be_bytes());
    }
    out.truncate(start + length);
    Some(())
}

/// Reads a file size from a delta's header.
fn file_size(input: &mut impl Iterator<Item = u8>) -> Option<usize> {
    let (mut value, mut shift) = (0_usize, 0_u32);
    loop {
        let byte = input.next()?;
        value |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
}

/// Applies a delta in git's format: the sizes of both files, then copies from the old file and literal bytes.
fn apply_delta(delta: &[u8], before: &[u8]) -> Option<Vec<u8>> {
    let mut input = delta.iter().copied();
    if file_size(&mut input)? != before.len() {
        return None;
    }
    let target = file_size(&mut input).filter(|&target| target <= FILE_LIMIT)?;
    let mut out = Vec::with_capacity(target);
    while let Some(op) = input.next() {
        if op & 0x80 != 0 {
            let mut number = |bits: std::ops::Range<u32>| -> Option<usize> {
                let mut value = 0;
                for (index, bit) in bits.enumerate() {
                    if op & (1 << bit) != 0 {
                        value |= usize::from(input.next()?) << (8 * index);
                    }
                }
                Some(value)
            };
            let offset = number(0..4)?;
            let length = match number(4..7)? {
                0 => 0x10000,
                length => length,
            };
            out.extend_from_slice(before.get(offset..offset.checked_add(length)?)?);
        } else if op > 0 {
            for _ in 0..op {
                out.push(input.next()?);
            }
        } else {
            return None;
        }
        if out.len() > target {
            return None;
        }
    }
    (out.len() == target).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::diff::parse;
    use std::io::Write;

    /// A piece of a binary patch, of at most 26 bytes when deflated.
    fn piece(kind: &str, content: &[u8]) -> String {
        let level = flate2::Compression::default();
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), level);
        packed.write_all(content).unwrap();
        let packed = packed.finish().unwrap();
        let mut line = vec![b'A' + u8::try_from(packed.len() - 1).unwrap()];
        for group in packed.chunks(4) {
            let mut four = [0; 4];
            four[..group.len()].copy_from_slice(group);
            let value = u32::from_be_bytes(four) as usize;
            let digits: [usize; 5] = [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1];
            line.extend(digits.iter().map(|unit| DIGITS[value / unit % 85]));
        }
        let line = String::from_utf8(line).unwrap();
        format!("{kind} {}\n{line}\n\n", content.len())
    }

    /// The diff of a binary file of 64 MiB, by the few bytes of a delta.
    fn large() -> String {
        let delta = piece("delta", &[0, 0x80, 0x80, 0x80, 0x20]);
        format!("diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\n{delta}\n")
    }

    #[test]
    fn pieces_are_read() {
        let small = piece("literal", b"hello");
        let text = format!("diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\n{small}\n");
        let parsed = parse(text.as_bytes(), 1, "p").unwrap();
        let binary = parsed.files[0].binary.as_ref().unwrap();
        assert_eq!(binary.apply(b"").unwrap(), b"hello");
        assert_eq!(binary.size(), 5);
    }

    #[test]
    fn all_binary_files_of_a_patch_share_a_limit() {
        assert!(parse(large().repeat(2).as_bytes(), 1, "p").is_ok());
        let error = parse(large().repeat(3).as_bytes(), 1, "p").unwrap_err();
        let what = "the patch's binary files have more than 128 MiB";
        assert!(error.to_string().ends_with(what), "{error}");
    }
}
