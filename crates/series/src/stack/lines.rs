//! Access to the lines of a text without splitting all of it: a patch touches a few lines of a file that may have ten
//! thousand. Counting line ends block by block takes a fraction of the time of locating each of them.

use std::cell::OnceCell;

/// Size of a block, in bytes.
const BLOCK: usize = 1 << 12;

/// Up to this distance, walking line by line is faster than a lookup.
const STEPS: usize = 32;

/// A text with access to its lines, counted from 0.
pub struct LineIndex<'a> {
    content: &'a [u8],
    count: usize,
    /// Number of line ends before each block.
    ends_before: Vec<usize>,
    /// Offset of each line, computed on demand.
    starts: OnceCell<Vec<usize>>,
}

/// A cursor over the lines of a text. Lines before and after the text are empty and have no line end.
pub struct Walk<'a> {
    rest: &'a [u8],
    /// Number of lines left before the first one.
    before: usize,
}

impl<'a> LineIndex<'a> {
    /// Counts the lines of a text.
    pub fn new(content: &'a [u8]) -> Self {
        let mut ends_before = Vec::with_capacity(content.len() / BLOCK + 1);
        let mut ends = 0;
        for block in content.chunks(BLOCK) {
            ends_before.push(ends);
            ends += memchr::memchr_iter(b'\n', block).count();
        }
        let unfinished = content.last().is_some_and(|&last| last != b'\n');
        LineIndex {
            content,
            count: ends + usize::from(unfinished),
            ends_before,
            starts: OnceCell::new(),
        }
    }

    /// Returns the text.
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    /// Returns the number of lines, including an unterminated last one.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Computes the offsets of all lines, which speeds up many lookups.
    pub fn split(&self) {
        self.starts.get_or_init(|| {
            let mut starts = Vec::with_capacity(self.count + 1);
            starts.push(0);
            starts.extend(memchr::memchr_iter(b'\n', self.content).map(|end| end + 1));
            starts
        });
    }

    /// Returns the offset of line `index`; the length of the text if there is no such line.
    pub fn start(&self, index: usize) -> usize {
        if index >= self.count {
            return self.content.len();
        }
        if index == 0 {
            return 0;
        }
        if let Some(starts) = self.starts.get() {
            return starts[index];
        }
        // The line begins after line end `index`, which is in the last block with fewer line ends before it.
        let block = self.ends_before.partition_point(|&ends| ends < index) - 1;
        let nth = index - self.ends_before[block] - 1;
        let block = block * BLOCK;
        memchr::memchr_iter(b'\n', &self.content[block..])
            .nth(nth)
            .map_or(self.content.len(), |end| block + end + 1)
    }

    /// Returns the offset of line `index` like [`LineIndex::start`], given the offset `at` of the earlier line `known`.
    pub fn start_from(&self, known: usize, at: usize, index: usize) -> usize {
        if index - known > STEPS {
            return self.start(index);
        }
        let mut at = at;
        for _ in known..index {
            at = match memchr::memchr(b'\n', &self.content[at..]) {
                Some(end) => at + end + 1,
                None => return self.content.len(),
            };
        }
        at
    }

    /// Returns line `index` with its end.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.count).then(|| first(&self.content[self.start(index)..]))
    }

    /// Returns a cursor at line `index`, which may be negative.
    pub fn walk(&self, index: i64) -> Walk<'a> {
        let before = usize::try_from(index.saturating_neg()).unwrap_or(0);
        let start = usize::try_from(index).map_or(0, |index| self.start(index));
        Walk {
            rest: &self.content[start..],
            before,
        }
    }
}

impl<'a> Walk<'a> {
    /// Returns the next line with its end.
    pub fn step(&mut self) -> &'a [u8] {
        if self.before > 0 {
            self.before -= 1;
            return &[];
        }
        let line = first(self.rest);
        self.rest = &self.rest[line.len()..];
        line
    }

    /// Skips the next line if it equals `line`; returns whether it does.
    pub fn passes(&mut self, line: &[u8]) -> bool {
        if self.before > 0 {
            self.before -= usize::from(line.is_empty());
            return line.is_empty();
        }
        let whole = line.last() == Some(&b'\n') || line.len() == self.rest.len();
        match self.rest.strip_prefix(line) {
            Some(rest) if whole => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }
}

/// Returns the first line of a text with its end.
fn first(text: &[u8]) -> &[u8] {
    memchr::memchr(b'\n', text).map_or(text, |end| &text[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_are_those_of_a_plain_split(
            text in proptest::collection::vec("[ab]{0,90}\n", 0..400),
            tail in "[ab]{0,3}",
        ) {
            let text = (text.concat() + &tail).into_bytes();
            let plain: Vec<&[u8]> = text.split_inclusive(|&b| b == b'\n').collect();
            let lines = LineIndex::new(&text);
            let mut at = 0;
            for _ in 0..2 {
                prop_assert_eq!(lines.len(), plain.len());
                for index in 0..plain.len() + 3 {
                    prop_assert_eq!(lines.get(index), plain.get(index).copied());
                    prop_assert_eq!(lines.start(index), at);
                    for known in index.saturating_sub(STEPS + 2)..index {
                        prop_assert_eq!(lines.start_from(known, lines.start(known), index), at);
                    }
                    at += plain.get(index).map_or(0, |line| line.len());
                }
                let mut walk = lines.walk(-2);
                let mut equal = lines.walk(-2);
                let edges = [&[][..]; 2];
                for line in edges.iter().chain(&plain).chain(&edges) {
                    prop_assert!(!equal.passes(b"c\n"));
                    prop_assert!(equal.passes(line));
                    prop_assert_eq!(walk.step(), *line);
                }
                at = 0;
                lines.split();
            }
        }
    }

    #[test]
    fn a_line_without_its_end_is_another_line() {
        let lines = LineIndex::new(b"a\nb");
        assert!(!lines.walk(0).passes(b"a"));
        assert!(lines.walk(1).passes(b"b"));
        assert!(!lines.walk(1).passes(b"b\n"));
        assert!(!lines.walk(1).passes(b""));
    }
}
