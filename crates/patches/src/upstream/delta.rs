//! Git's delta format: a new version of an object, expressed as copies from an older one and inserted bytes.
//!
//! A patch changes a few lines of a file, so a delta of a few hundred bytes replaces the whole file and saves nearly
//! all of its compression time.

/// A delta under construction.
#[derive(Debug)]
pub struct Delta {
    bytes: Vec<u8>,
    old: usize,
}

/// Maximum number of bytes of one insert instruction.
const INSERT_LIMIT: usize = 0x7f;
/// Maximum number of bytes of one copy instruction.
const COPY_LIMIT: usize = 0xff_ffff;

impl Delta {
    /// Creates a delta from a version of `old` bytes to one of `new` bytes.
    pub fn new(old: usize, new: usize) -> Self {
        let mut bytes = Vec::with_capacity(128);
        put_size(&mut bytes, old);
        put_size(&mut bytes, new);
        Delta { bytes, old }
    }

    /// Copies `length` bytes of the old version from `start` on.
    pub fn copy(&mut self, start: usize, length: usize) {
        debug_assert!(start + length <= self.old);
        let (mut start, mut length) = (start, length);
        while length > 0 {
            let piece = length.min(COPY_LIMIT);
            let at = self.bytes.len();
            self.bytes.push(0x80);
            let mut put = |number: usize, count: usize, first_flag: u8| {
                for index in 0..count {
                    let byte = (number >> (8 * index)) as u8;
                    if byte != 0 {
                        self.bytes[at] |= first_flag << index;
                        self.bytes.push(byte);
                    }
                }
            };
            put(start, 4, 1);
            put(piece, 3, 0x10);
            start += piece;
            length -= piece;
        }
    }

    /// Inserts bytes that the old version does not have.
    pub fn insert(&mut self, data: &[u8]) {
        for piece in data.chunks(INSERT_LIMIT) {
            // The chunk size is at most 0x7f.
            self.bytes.push(piece.len() as u8);
            self.bytes.extend_from_slice(piece);
        }
    }

    /// Returns the finished delta.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

fn put_size(bytes: &mut Vec<u8>, mut size: usize) {
    while size >= 0x80 {
        bytes.push(size as u8 | 0x80);
        size >>= 7;
    }
    bytes.push(size as u8);
}

/// Returns the delta from `old` to `new`, which differ only in the 20 bytes at each of the sorted `offsets`: tree
/// objects in which object ids changed.
pub fn of_object_ids(old: &[u8], new: &[u8], offsets: &[usize]) -> Vec<u8> {
    let mut delta = Delta::new(old.len(), new.len());
    let mut done = 0;
    for &offset in offsets {
        delta.copy(done, offset - done);
        delta.insert(&new[offset..offset + 20]);
        done = offset + 20;
    }
    delta.copy(done, old.len() - done);
    delta.finish()
}

/// Number of lines to search on either side for the next common lines.
const WINDOW: usize = 64;

/// Returns the delta between two versions of a text that differ in a few lines.
pub fn of_lines(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut delta = Delta::new(old.len(), new.len());
    let (mut old_at, mut new_at) = (0, 0);
    loop {
        let same = common_start(&old[old_at..], &new[new_at..]);
        if old_at + same == old.len() || new_at + same == new.len() {
            delta.copy(old_at, same);
            delta.insert(&new[new_at + same..]);
            return delta.finish();
        }
        let run = &old[old_at..old_at + same];
        let whole = memchr::memrchr(b'\n', run).map_or(0, |at| at + 1);
        delta.copy(old_at, whole);
        old_at += whole;
        new_at += whole;
        match resynchronize(&old[old_at..], &new[new_at..]) {
            Some((skipped, added)) => {
                delta.insert(&new[new_at..new_at + added]);
                old_at += skipped;
                new_at += added;
            }
            None => {
                let (old_rest, new_rest) = (&old[old_at..], &new[new_at..]);
                let tail = common_end(old_rest, new_rest);
                delta.insert(&new_rest[..new_rest.len() - tail]);
                delta.copy(old.len() - tail, tail);
                return delta.finish();
            }
        }
    }
}

/// Returns the delta between two versions with one copy at the start, one insertion, and one copy at the end.
pub fn of_middle(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut delta = Delta::new(old.len(), new.len());
    let start = common_start(old, new);
    let end = common_end(&old[start..], &new[start..]);
    delta.copy(0, start);
    delta.insert(&new[start..new.len() - end]);
    delta.copy(old.len() - end, end);
    delta.finish()
}

/// Returns the number of bytes to skip in both texts until two consecutive lines are equal. It minimises the number of
/// skipped lines.
fn resynchronize(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let lines = |text: &[u8]| {
        let mut ends = vec![0];
        let found = memchr::memchr_iter(b'\n', text).map(|at| at + 1);
        ends.extend(found.take(WINDOW + 2));
        ends
    };
    let (old_ends, new_ends) = (lines(old), lines(new));
    let pair = |text: &'_ [u8], ends: &[usize], index: usize| -> Option<(usize, usize)> {
        let start = *ends.get(index)?;
        let end = *ends.get(index + 2).or(ends.get(index + 1))?;
        (end <= text.len()).then_some((start, end))
    };
    for sum in 1..=2 * WINDOW {
        for skipped in sum.saturating_sub(WINDOW)..=sum.min(WINDOW) {
            let (Some((a, a_end)), Some((b, b_end))) = (
                pair(old, &old_ends, skipped),
                pair(new, &new_ends, sum - skipped),
            ) else {
                continue;
            };
            if old[a..a_end] == new[b..b_end] {
                return Some((a, b));
            }
        }
    }
    None
}

fn common_start(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 256;
    let mut same = a
        .chunks_exact(STEP)
        .zip(b.chunks_exact(STEP))
        .take_while(|(a, b)| a == b)
        .count()
        * STEP;
    same += a[same..]
        .iter()
        .zip(&b[same..])
        .take_while(|(a, b)| a == b)
        .count();
    same
}

fn common_end(a: &[u8], b: &[u8]) -> usize {
    a.iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(a, b)| a == b)
        .count()
}

/// Applies a delta and returns the new version; `None` if the delta is malformed or for another old version.
pub fn apply(old: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut rest = delta;
    if take_size(&mut rest)? != old.len() {
        return None;
    }
    let size = take_size(&mut rest)?;
    let mut new = Vec::with_capacity(size.min(old.len() + delta.len()));
    while let Some((&instruction, after)) = rest.split_first() {
        rest = after;
        if instruction & 0x80 == 0 {
            let count = usize::from(instruction);
            // Instruction zero is reserved.
            if count == 0 {
                return None;
            }
            new.extend_from_slice(rest.get(..count)?);
            rest = &rest[count..];
            continue;
        }
        let mut number = |count: usize, first_flag: u8| -> Option<usize> {
            let mut number = 0;
            for index in 0..count {
                if instruction & (first_flag << index) != 0 {
                    let (&byte, after) = rest.split_first()?;
                    number |= usize::from(byte) << (8 * index);
                    rest = after;
                }
            }
            Some(number)
        };
        let start = number(4, 1)?;
        let length = match number(3, 0x10)? {
            0 => 0x1_0000,
            length => length,
        };
        new.extend_from_slice(old.get(start..start.checked_add(length)?)?);
        if new.len() > size {
            return None;
        }
    }
    (new.len() == size).then_some(new)
}

fn take_size(rest: &mut &[u8]) -> Option<usize> {
    let mut size = 0_usize;
    for shift in (0..usize::BITS - 7).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        size |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(size);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(lines: &[&str]) -> Vec<u8> {
        lines.concat().into_bytes()
    }

    #[test]
    fn a_changed_line_costs_about_its_length() {
        let line = |number: usize| format!("line {number} of a long file\n");
        let old: String = (0..5000).map(line).collect();
        let new = old
            .replace("line 17 of", "line seventeen of")
            .replace("line 4000 of a long file\n", "");
        let delta = of_lines(old.as_bytes(), new.as_bytes());
        assert!(delta.len() < 80, "{}", delta.len());
        assert_eq!(
            apply(old.as_bytes(), &delta).as_deref(),
            Some(new.as_bytes())
        );
    }

    #[test]
    fn ends_of_texts() {
        for (old, new) in [
            ("", ""),
            ("", "a\n"),
            ("a\n", ""),
            ("a", "a\n"),
            ("a\nb", "a\nb\nc"),
            ("x\na\nb\n", "a\nb\n"),
            ("a\nb\nc\n", "a\nc\n"),
        ] {
            let delta = of_lines(old.as_bytes(), new.as_bytes());
            let made = apply(old.as_bytes(), &delta).unwrap();
            assert_eq!(made, new.as_bytes(), "{old:?} to {new:?}");
        }
    }

    #[test]
    fn long_copies_are_cut() {
        let old = vec![b'a'; COPY_LIMIT + 70_000];
        let mut new = old.clone();
        new.extend_from_slice(b"\nend");
        let delta = of_lines(&old, &new);
        assert!(delta.len() < 40);
        assert!(apply(&old, &delta).unwrap() == new);
    }

    #[test]
    fn malformed_deltas_are_refused() {
        let old = text(&["a\n", "b\n"]);
        let delta = of_lines(&old, &text(&["a\n", "c\n"]));
        for end in 0..delta.len() {
            assert_eq!(apply(&old, &delta[..end]), None, "cut to {end}");
        }
        assert_eq!(apply(b"other", &delta), None);
        assert_eq!(apply(&old, &[4, 0, 0]), None, "the reserved instruction");
        assert_eq!(apply(&old, &[4, 9, 0x91, 3, 9]), None, "beyond the end");
        assert_eq!(apply(&old, &[0xff; 12]), None, "endless size");
    }

    proptest! {
        #[test]
        fn what_is_made_can_be_applied(
            old in proptest::collection::vec("[ab]{0,2}\n", 0..40),
            new in proptest::collection::vec("[ab]{0,2}\n", 0..40),
        ) {
            let (old, new) = (old.concat(), new.concat());
            let delta = of_lines(old.as_bytes(), new.as_bytes());
            prop_assert_eq!(apply(old.as_bytes(), &delta), Some(new.into_bytes()));
        }

        #[test]
        fn any_bytes_are_safe(old: Vec<u8>, delta: Vec<u8>) {
            let _ = apply(&old, &delta);
        }
    }
}
