//! Locating and applying hunks exactly like GNU patch 2.7 (`locate_hunk` and `apply_hunk`), so that a stack has the
//! same content as after `quilt push`.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::ops::Range;

use super::lines::LineIndex;
use crate::series::text::lines;
use crate::series::{Hunk, LineChange};

/// The position where a hunk applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HunkPosition {
    /// The first line, counted from 1.
    pub line: usize,
    /// Distance from the written line, in lines; positive for a later line.
    pub offset: i64,
    /// Number of ignored context lines.
    pub fuzz: usize,
}

/// Applies the hunks of one file in order.
pub struct Placer<'a> {
    input: LineIndex<'a>,
    /// The offset in the input where the frozen lines end, in bytes.
    at: usize,
    output: Vec<u8>,
    /// Number of input lines that were copied or removed; later hunks start after them.
    frozen: usize,
    /// The offset of the last hunk, in lines.
    offset: i64,
    /// Whether a run of blanks matches any other run (`-l`).
    ignore_blanks: bool,
    /// Number of lines compared so far.
    compared: Cell<usize>,
}

/// Number of comparisons, for each line of a text, after which the rest of the places is searched in linear time.
const COMPARED_PER_LINE: usize = 16;

impl<'a> Placer<'a> {
    /// Starts with the file's content.
    pub fn new(content: &'a [u8]) -> Self {
        Placer {
            input: LineIndex::new(content),
            at: 0,
            output: Vec::with_capacity(content.len() + 1024),
            frozen: 0,
            offset: 0,
            ignore_blanks: false,
            compared: Cell::new(0),
        }
    }

    /// Sets whether a run of blanks matches any other run, as with `patch -l`.
    #[must_use]
    pub fn ignore_blanks(mut self, ignore: bool) -> Self {
        self.ignore_blanks = ignore;
        self
    }

    /// Applies a hunk with at most `max_fuzz` ignored lines of context; `None` if it does not fit.
    pub fn apply(&mut self, hunk: &Hunk, max_fuzz: usize) -> Option<HunkPosition> {
        let (prefix, suffix) = hunk.context();
        for fuzz in 0..=max_fuzz.min(prefix.max(suffix)) {
            if let Some((line, offset)) = self.locate(hunk, fuzz) {
                self.offset = offset;
                let position = HunkPosition { line, offset, fuzz };
                return self.put(hunk, line).then_some(position);
            }
        }
        None
    }

    /// Finds the position of a hunk: the line, counted from 1, and the offset from the written line.
    pub fn locate(&self, hunk: &Hunk, fuzz: usize) -> Option<(usize, i64)> {
        let pattern: Vec<&[u8]> = hunk.before().collect();
        let (prefix, suffix) = hunk.context();
        let [prefix, suffix, fuzz] = [signed(prefix), signed(suffix), signed(fuzz)];
        let context = prefix.max(suffix);
        let (mut prefix_fuzz, suffix_fuzz) = (fuzz + prefix - context, fuzz + suffix - context);
        let first_guess = signed(hunk.old_start) + self.offset;
        let [lines, count, frozen] = [
            signed(self.input.len()),
            signed(pattern.len()),
            signed(self.frozen),
        ];
        if count == 0 {
            // A hunk without old lines fits everywhere, but not before the first line.
            let line = usize::try_from(first_guess).ok().filter(|&line| line > 0)?;
            return Some((line, self.offset));
        }
        let max_where = lines - (count - suffix_fuzz) + 1;
        let min_where = frozen + 1;
        let max_later = max_where - first_guess;
        let mut max_earlier = first_guess - min_where;
        let max_offset = max_later.max(max_earlier);
        if first_guess <= max_earlier {
            max_earlier = first_guess - 1;
        }
        let found = |offset: i64| {
            // GNU patch rejects positions before the first line.
            let line = usize::try_from(first_guess + offset).ok();
            let line = line.filter(|&line| line > 0)?;
            Some((line, self.offset + offset))
        };
        let all = OnceCell::new();
        let compared = self.compared.get();
        let fits = |offset: i64, prefix_fuzz: i64, suffix_fuzz: i64| {
            let line = first_guess + offset;
            let limit = COMPARED_PER_LINE * (self.input.len() + pattern.len());
            if self.compared.get() - compared < limit {
                return self.fits(&pattern, line, prefix_fuzz, suffix_fuzz);
            }
            let part = prefix_fuzz..count - suffix_fuzz;
            let places = all.get_or_init(|| self.places(&pattern, &part));
            places.binary_search(&(line + prefix_fuzz)).is_ok()
        };
        if prefix_fuzz < 0 && hunk.old_start <= 1 {
            // Less context before than after: the hunk belongs to the file's beginning.
            if suffix_fuzz < 0 && (count != lines || prefix < frozen) {
                return None;
            }
            let offset = 1 - first_guess;
            let free = frozen <= prefix && offset <= max_later;
            return (free && fits(offset, 0, suffix_fuzz)).then(|| found(offset))?;
        }
        prefix_fuzz = prefix_fuzz.max(0);
        if suffix_fuzz < 0 {
            // Less context after than before: the hunk belongs to the file's end.
            let offset = first_guess - (lines - count + 1);
            return (offset <= max_earlier && fits(-offset, prefix_fuzz, 0))
                .then(|| found(-offset))?;
        }
        let min_offset = if max_later < 0 {
            first_guess - max_where
        } else if max_earlier < 0 {
            first_guess - min_where
        } else {
            0
        };
        // All positions entirely before the first line are equivalent.
        let from = (min_offset + 1).max(1 - first_guess - count);
        for offset in std::iter::once(min_offset).chain(from..=max_offset) {
            if offset <= max_later && fits(offset, prefix_fuzz, suffix_fuzz) {
                return found(offset);
            }
            if offset <= max_earlier && fits(-offset, prefix_fuzz, suffix_fuzz) {
                return found(-offset);
            }
            // The hunk is not at its written line, so the search may visit many lines.
            self.input.split();
        }
        None
    }

    /// Returns whether the pattern, without the ignored lines at its ends, matches at `line`.
    fn fits(&self, pattern: &[&[u8]], line: i64, prefix_fuzz: i64, suffix_fuzz: i64) -> bool {
        let count = signed(pattern.len());
        let mut there = self.input.walk(line - 1 + prefix_fuzz);
        (prefix_fuzz..count - suffix_fuzz).all(|index| {
            self.compared.set(self.compared.get() + 1);
            let wanted = usize::try_from(index).ok().and_then(|at| pattern.get(at));
            // A missing line equals an empty one without a line end.
            let wanted = wanted.copied().unwrap_or_default();
            there.passes(wanted) || (self.ignore_blanks && equal_up_to_blanks(there.step(), wanted))
        })
    }

    /// Returns the lines, counted from 1 and sorted, where a part of the pattern matches.
    fn places(&self, pattern: &[&[u8]], part: &Range<i64>) -> Vec<i64> {
        let canonical = |line: &[u8]| {
            if self.ignore_blanks {
                without_runs_of_blanks(line)
            } else {
                line.to_vec()
            }
        };
        let mut numbers = HashMap::new();
        let mut number = |line: &[u8]| {
            let next = numbers.len();
            *numbers.entry(canonical(line)).or_insert(next)
        };
        let text = lines(self.input.content());
        let text: Vec<usize> = text.into_iter().map(&mut number).collect();
        let part = part.start as usize..part.end as usize;
        let pattern: Vec<usize> = pattern[part].iter().map(|line| number(line)).collect();
        let found = occurrences(&text, &pattern).into_iter();
        found.map(signed).collect()
    }

    fn put(&mut self, hunk: &Hunk, line: usize) -> bool {
        let start = line - 1;
        let mut old = 0;
        for change in &hunk.lines {
            match change.change {
                LineChange::Context => old += 1,
                LineChange::Remove => {
                    if !self.copy_till(start + old) {
                        return false;
                    }
                    self.pass(self.frozen + 1);
                    self.frozen += 1;
                    old += 1;
                }
                LineChange::Add => {
                    if !self.copy_till(start + old) {
                        return false;
                    }
                    self.write(&change.text);
                }
            }
        }
        true
    }

    fn copy_till(&mut self, line: usize) -> bool {
        if self.frozen > line {
            return false;
        }
        let run = self.pass(line);
        if !run.is_empty() {
            // Only the last line of the input can lack its end, so one write suffices for the run.
            self.write(run);
        }
        // A hunk without old lines may apply far beyond the end of the file.
        self.frozen = line;
        true
    }

    /// Skips the input from `frozen` to `line` and returns its bytes.
    fn pass(&mut self, line: usize) -> &'a [u8] {
        let start = self.at;
        if line > self.frozen {
            self.at = self.input.start_from(self.frozen, start, line);
        }
        &self.input.content()[start..self.at]
    }

    fn write(&mut self, text: &[u8]) {
        if self.output.last().is_some_and(|&last| last != b'\n') {
            self.output.push(b'\n');
        }
        self.output.extend_from_slice(text);
    }

    /// Returns the content after all hunks.
    pub fn finish(mut self) -> Vec<u8> {
        self.copy_till(self.input.len());
        self.output
    }

    /// Returns line `line` of the input, counted from 1.
    pub fn line(&self, line: usize) -> Option<&'a [u8]> {
        line.checked_sub(1).and_then(|index| self.input.get(index))
    }

    /// Returns the line where the search for a hunk written at `line` starts.
    pub fn expected(&self, line: usize) -> usize {
        usize::try_from(signed(line) + self.offset)
            .unwrap_or(1)
            .max(1)
    }
}

/// A text in which the places of hunks are found in linear time, whatever repeats in both.
pub struct HunkPlaces<'a> {
    numbers: HashMap<&'a [u8], usize>,
    /// The lines as numbers, equal for equal lines.
    lines: Vec<usize>,
}

impl<'a> HunkPlaces<'a> {
    /// Numbers the lines of a text.
    pub fn new(content: &'a [u8]) -> Self {
        let mut numbers = HashMap::new();
        let mut number = |line: &'a [u8]| {
            let next = numbers.len();
            *numbers.entry(line).or_insert(next)
        };
        let lines = lines(content);
        let lines = lines.into_iter().map(&mut number).collect();
        HunkPlaces { numbers, lines }
    }

    /// Returns every line, counted from 1, where the text has a hunk's old lines but for `fuzz` ignored ones; none for a
    /// hunk without any.
    pub fn of(&self, hunk: &Hunk, fuzz: usize) -> Vec<usize> {
        let number = |line: &[u8]| self.numbers.get(line).copied();
        let pattern: Vec<Option<usize>> = hunk.before().map(number).collect();
        let (prefix, suffix) = hunk.context();
        let ignored = |lines: usize| (fuzz + lines).saturating_sub(prefix.max(suffix));
        let (first, end) = (
            ignored(prefix),
            pattern.len().saturating_sub(ignored(suffix)),
        );
        let pattern = pattern.get(first..end).unwrap_or_default();
        let pattern: Option<Vec<usize>> = pattern.iter().copied().collect();
        let found = match pattern {
            Some(pattern) if !pattern.is_empty() => occurrences(&self.lines, &pattern),
            _ => Vec::new(),
        };
        found
            .iter()
            .filter_map(|line| line.checked_sub(first))
            .collect()
    }
}

/// Returns where `pattern` begins in `text`, counted from 1, by the algorithm of Knuth, Morris and Pratt.
fn occurrences(text: &[usize], pattern: &[usize]) -> Vec<usize> {
    // For each prefix of the pattern, the length of its longest proper prefix that is also its end.
    let mut borders = vec![0; pattern.len()];
    let next = |borders: &[usize], mut length: usize, number: usize| {
        while length > 0 && (length == pattern.len() || pattern[length] != number) {
            length = borders[length - 1];
        }
        length + usize::from(pattern[length] == number)
    };
    for at in 1..pattern.len() {
        borders[at] = next(&borders, borders[at - 1], pattern[at]);
    }
    let mut length = 0;
    let mut found = Vec::new();
    for (at, &number) in text.iter().enumerate() {
        length = next(&borders, length, number);
        if length == pattern.len() {
            found.push(at + 2 - length);
        }
    }
    found
}

/// Returns a line with one blank for every run of them, and without those at its end.
fn without_runs_of_blanks(line: &[u8]) -> Vec<u8> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let words = text.split(|b| matches!(b, b' ' | b'\t'));
    let mut words: Vec<&[u8]> = words.collect();
    let is_first_blank = words.len() > 1 && words[0].is_empty();
    words.retain(|word| !word.is_empty());
    let start: &[u8] = if is_first_blank && !words.is_empty() {
        b" "
    } else {
        b""
    };
    [start, &words.join(&b' ')].concat()
}

/// Returns whether two lines are equal if a run of blanks equals any other run and trailing blanks are ignored.
fn equal_up_to_blanks(a: &[u8], b: &[u8]) -> bool {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let skip = |text: &[u8]| text.iter().take_while(|b| blank(b)).count();
    let mut a = a.strip_suffix(b"\n").unwrap_or(a);
    let mut b = b.strip_suffix(b"\n").unwrap_or(b);
    loop {
        if b.first().is_none_or(blank) {
            b = &b[skip(b)..];
            if !a.is_empty() {
                let run = skip(a);
                if run == 0 {
                    return false;
                }
                a = &a[run..];
            }
            if a.is_empty() || b.is_empty() {
                return a.is_empty() && b.is_empty();
            }
        } else if a.first() != b.first() {
            return false;
        } else {
            (a, b) = (&a[1..], &b[1..]);
        }
    }
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::series::diff::parse;

    fn apply(content: &str, patch: &str, fuzz: usize) -> Option<(String, Vec<HunkPosition>)> {
        let parsed = parse(patch.as_bytes(), 0, "p").unwrap();
        let mut placer = Placer::new(content.as_bytes());
        let positions = parsed.files[0]
            .hunks
            .iter()
            .map(|hunk| placer.apply(hunk, fuzz))
            .collect::<Option<Vec<_>>>()?;
        Some((String::from_utf8(placer.finish()).unwrap(), positions))
    }

    const MIDDLE: &str = "--- f\n+++ f\n@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n";

    #[test]
    fn a_hunk_is_located_alike_however_much_repeats() {
        // Each place fails at the last lines only, but for the right one.
        let mut text = "x\n".repeat(3000);
        text.replace_range(2 * 2200..2 * 2200 + 1, "y");
        let patch = |last: &str| {
            let (context, removed) = (" x\n".repeat(3), "-x\n".repeat(994));
            format!("--- f\n+++ f\n@@ -10,1001 +10,6 @@\n{context}{removed}-{last}\n{context}")
        };
        for ignore_blanks in [false, true] {
            for (last, place) in [("y", Some((1204, 1194))), ("q", None)] {
                let parsed = parse(patch(last).as_bytes(), 0, "p").unwrap();
                let mut placer = Placer::new(text.as_bytes()).ignore_blanks(ignore_blanks);
                let position = placer.apply(&parsed.files[0].hunks[0], 0);
                let found = position.map(|position| (position.line, position.offset));
                assert_eq!(found, place);
                assert!(placer.compared.get() < 17 * 4001, "{last}");
            }
        }
    }

    proptest! {
        #[test]
        fn lines_equal_up_to_blanks_have_one_form(a in "[ab \t]{0,6}", b in "[ab \t]{0,6}") {
            let form = |line: &str| without_runs_of_blanks(line.as_bytes());
            let equal = equal_up_to_blanks(a.as_bytes(), b.as_bytes());
            prop_assert_eq!(form(&a) == form(&b), equal);
        }
    }

    #[test]
    fn every_place_of_a_hunk_is_found_even_where_they_overlap() {
        let of = |content: &str, old: &str| {
            let lines: String = old.lines().map(|line| format!(" {line}\n")).collect();
            let count = old.lines().count();
            let patch = format!(
                "--- f\n+++ f\n@@ -1,{count} +1,{} @@\n{lines}+x\n",
                count + 1
            );
            let parsed = parse(patch.as_bytes(), 0, "p").unwrap();
            HunkPlaces::new(content.as_bytes()).of(&parsed.files[0].hunks[0], 0)
        };
        assert_eq!(of("a\na\na\nb\na\na\n", "a\na\n"), [1, 2, 5]);
        assert_eq!(of("a\nb\na\nb\na\nc\n", "a\nb\na\nc\n"), [3]);
        assert!(of("a\nb\n", "a\nb\nc\n").is_empty());
        // A line without end is another one.
        assert_eq!(of("a\nb\na", "a\n"), [1]);
    }

    #[test]
    fn exact_and_offset() {
        let (after, positions) = apply("a\nb\nc\nd\n", MIDDLE, 0).unwrap();
        assert_eq!((after.as_str(), positions[0].offset), ("a\nb\nC\nd\n", 0));
        let (after, positions) = apply("x\ny\na\nb\nc\nd\n", MIDDLE, 0).unwrap();
        assert_eq!(
            (after.as_str(), positions[0].offset),
            ("x\ny\na\nb\nC\nd\n", 2)
        );
        let (_, positions) = apply("b\nc\nd\n", MIDDLE, 0).unwrap();
        assert_eq!(positions[0].offset, -1);
    }

    #[test]
    fn later_is_tried_before_earlier() {
        let (after, _) = apply(
            "b\nc\nd\n.\n.\n.\nb\nc\nd\n",
            "--- f\n+++ f\n@@ -4,3 +4,3 @@\n b\n-c\n+C\n d\n",
            0,
        )
        .unwrap();
        assert_eq!(after, "b\nc\nd\n.\n.\n.\nb\nC\nd\n");
    }

    #[test]
    fn fuzz_only_when_allowed() {
        let changed = "a\nB\nc\nd\n";
        assert!(apply(changed, MIDDLE, 0).is_none());
        let (after, positions) = apply(changed, MIDDLE, 2).unwrap();
        assert_eq!((after.as_str(), positions[0].fuzz), ("a\nB\nC\nd\n", 1));
    }

    #[test]
    fn missing_line_end_must_match() {
        let patch = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n";
        assert_eq!(apply("a\nb", patch, 0).unwrap().0, "a\nc\n");
        assert!(apply("a\nb\n", patch, 0).is_none());
    }

    #[test]
    fn end_of_file_hunks_stay_at_the_end() {
        let patch = "--- f\n+++ f\n@@ -1,3 +1,4 @@\n a\n b\n c\n+d\n";
        assert_eq!(
            apply("x\na\nb\nc\n", patch, 0).unwrap().0,
            "x\na\nb\nc\nd\n"
        );
        assert!(apply("a\nb\nc\nx\n", patch, 0).is_none());
    }

    #[test]
    fn positions_far_from_the_file_are_skipped() {
        let far = "--- f\n+++ f\n@@ -1099511627774,0 +1 @@\n+x\n@@ -1 +1 @@\n-a\n+b\n";
        assert_eq!(apply("a\n", far, 0), None);
        // The first hunk applies far before its written line, so the search for the second starts far before the file.
        let earlier = "--- f\n+++ f\n@@ -1099511627774 +1 @@\n-a\n+A\n@@ -1 +1 @@\n-b\n+B\n";
        assert_eq!(apply("a\nx\nb\n", earlier, 0).unwrap().0, "A\nx\nB\n");
    }

    #[test]
    fn there_is_no_place_before_the_first_line() {
        // The first hunk applies four lines earlier, so the search for the second starts at line 0, where blanks match.
        let patch = "--- f\n+++ f\n@@ -5 +5 @@\n-a\n+A\n@@ -4,2 +4,3 @@\n \n+x\n a\n";
        let parsed = parse(patch.as_bytes(), 0, "p").unwrap();
        let mut placer = Placer::new(b"a\nb\n").ignore_blanks(true);
        let hunks = &parsed.files[0].hunks;
        assert_eq!(
            placer.apply(&hunks[0], 0).map(|position| position.line),
            Some(1)
        );
        assert_eq!(placer.apply(&hunks[1], 0), None);
    }
}
