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
/// Length of an object id in a tree object, in bytes.
const ID_LENGTH: usize = 20;

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

/// Returns the delta between two versions of a tree object: place by place if only object ids changed, and so its length did
/// not; else with one insertion.
pub fn of_trees(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut delta = Delta::new(old.len(), new.len());
    let mut done = common_start(old, new);
    delta.copy(0, done);
    if old.len() == new.len() {
        while done < new.len() {
            let end = (done + ID_LENGTH).min(new.len());
            delta.insert(&new[done..end]);
            let same = common_start(&old[end..], &new[end..]);
            delta.copy(end, same);
            done = end + same;
        }
    } else {
        let end = common_end(&old[done..], &new[done..]);
        delta.insert(&new[done..new.len() - end]);
        delta.copy(old.len() - end, end);
    }
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
