//! Finding the place of a hunk and putting it there, exactly as GNU patch does (`locate_hunk` and
//! `apply_hunk` of its version 2.7): the series means what `quilt push` makes of it.

use super::lines::Lines;
use crate::series::{Change, Hunk};

/// A hunk that found its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Placed {
    /// The line where it was found, counted from 1.
    pub line: usize,
    /// How many lines later than written it was found.
    pub offset: i64,
    /// How many lines of context had to be ignored.
    pub fuzz: usize,
}

/// A file while its hunks are applied, one after the other.
pub struct Placer<'a> {
    input: Lines<'a>,
    /// Where in the input the frozen lines end, in bytes.
    at: usize,
    output: Vec<u8>,
    /// Lines of the input that are in the output or were removed; a later hunk starts behind them.
    frozen: usize,
    /// Where the last hunk was found, relative to where it was written.
    offset: i64,
    /// Whether any run of blanks matches any other (`-l`).
    blanks_alike: bool,
}

impl<'a> Placer<'a> {
    /// Starts with the file's content.
    pub fn new(content: &'a [u8]) -> Self {
        Placer {
            input: Lines::new(content),
            at: 0,
            output: Vec::with_capacity(content.len() + 1024),
            frozen: 0,
            offset: 0,
            blanks_alike: false,
        }
    }

    /// Lets any run of blanks match any other, as `patch -l` does.
    #[must_use]
    pub fn blanks_alike(mut self, alike: bool) -> Self {
        self.blanks_alike = alike;
        self
    }

    /// Applies a hunk with at most `max_fuzz` ignored lines of context; `None` when it has no place.
    pub fn apply(&mut self, hunk: &Hunk, max_fuzz: usize) -> Option<Placed> {
        let (prefix, suffix) = hunk.context();
        for fuzz in 0..=max_fuzz.min(prefix.max(suffix)) {
            if let Some((line, offset)) = self.locate(hunk, fuzz) {
                self.offset = offset;
                let placed = Placed { line, offset, fuzz };
                return self.put(hunk, line).then_some(placed);
            }
        }
        None
    }

    /// Where a hunk would go: line counted from 1, and the offset from where it was written.
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
            // To patch, a place before the first line is none.
            let line = usize::try_from(first_guess + offset).ok();
            let line = line.filter(|&line| line > 0)?;
            Some((line, self.offset + offset))
        };
        let fits = |offset: i64, prefix_fuzz: i64, suffix_fuzz: i64| {
            self.fits(&pattern, first_guess + offset, prefix_fuzz, suffix_fuzz)
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
        // Nothing differs between the places that lie wholly before the first line.
        let from = (min_offset + 1).max(1 - first_guess - count);
        for offset in std::iter::once(min_offset).chain(from..=max_offset) {
            if offset <= max_later && fits(offset, prefix_fuzz, suffix_fuzz) {
                return found(offset);
            }
            if offset <= max_earlier && fits(-offset, prefix_fuzz, suffix_fuzz) {
                return found(-offset);
            }
            // It is not where it was written, and many lines may have to be looked at.
            self.input.split();
        }
        None
    }

    /// Whether the pattern, without the ignored lines at its ends, stands at `line`.
    fn fits(&self, pattern: &[&[u8]], line: i64, prefix_fuzz: i64, suffix_fuzz: i64) -> bool {
        let count = signed(pattern.len());
        let mut there = self.input.walk(line - 1 + prefix_fuzz);
        (prefix_fuzz..count - suffix_fuzz).all(|index| {
            let wanted = usize::try_from(index).ok().and_then(|at| pattern.get(at));
            // A missing line is as good as one without anything, even a line end.
            let wanted = wanted.copied().unwrap_or_default();
            there.passes(wanted) || (self.blanks_alike && alike(there.step(), wanted))
        })
    }

    fn put(&mut self, hunk: &Hunk, line: usize) -> bool {
        let start = line - 1;
        let mut old = 0;
        for change in &hunk.lines {
            match change.change {
                Change::Context => old += 1,
                Change::Remove => {
                    if !self.copy_till(start + old) {
                        return false;
                    }
                    self.pass(self.frozen + 1);
                    self.frozen += 1;
                    old += 1;
                }
                Change::Add => {
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
            // Only the last line of the input can lack its end, so the run is written as one.
            self.write(run);
        }
        // A hunk without old lines may stand anywhere, even far behind the file's end.
        self.frozen = line;
        true
    }

    /// The bytes of the input from `frozen` to `line`, which are passed over.
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

    /// The file after all hunks.
    pub fn finish(mut self) -> Vec<u8> {
        self.copy_till(self.input.len());
        self.output
    }

    /// The line of the input at `line`, counted from 1.
    pub fn line(&self, line: usize) -> Option<&'a [u8]> {
        line.checked_sub(1).and_then(|index| self.input.get(index))
    }

    /// Where the next hunk written at `line` is looked for first.
    pub fn expected(&self, line: usize) -> usize {
        usize::try_from(signed(line) + self.offset)
            .unwrap_or(1)
            .max(1)
    }
}

/// Whether two lines are the same when runs of blanks count as one, and those at the end not at all.
fn alike(a: &[u8], b: &[u8]) -> bool {
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
    use super::*;
    use crate::series::diff::parse;

    fn apply(content: &str, patch: &str, fuzz: usize) -> Option<(String, Vec<Placed>)> {
        let parsed = parse(patch.as_bytes(), 0, "p").unwrap();
        let mut placer = Placer::new(content.as_bytes());
        let placed = parsed.files[0]
            .hunks
            .iter()
            .map(|hunk| placer.apply(hunk, fuzz))
            .collect::<Option<Vec<_>>>()?;
        Some((String::from_utf8(placer.finish()).unwrap(), placed))
    }

    const MIDDLE: &str = "--- f\n+++ f\n@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n";

    #[test]
    fn exact_and_offset() {
        let (after, placed) = apply("a\nb\nc\nd\n", MIDDLE, 0).unwrap();
        assert_eq!((after.as_str(), placed[0].offset), ("a\nb\nC\nd\n", 0));
        let (after, placed) = apply("x\ny\na\nb\nc\nd\n", MIDDLE, 0).unwrap();
        assert_eq!(
            (after.as_str(), placed[0].offset),
            ("x\ny\na\nb\nC\nd\n", 2)
        );
        let (_, placed) = apply("b\nc\nd\n", MIDDLE, 0).unwrap();
        assert_eq!(placed[0].offset, -1);
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
        let (after, placed) = apply(changed, MIDDLE, 2).unwrap();
        assert_eq!((after.as_str(), placed[0].fuzz), ("a\nB\nC\nd\n", 1));
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
    fn places_far_from_the_file_are_not_looked_at_one_by_one() {
        let far = "--- f\n+++ f\n@@ -1099511627774,0 +1 @@\n+x\n@@ -1 +1 @@\n-a\n+b\n";
        assert_eq!(apply("a\n", far, 0), None);
        // Found far before where it was written, so that the next is looked for far before the file.
        let earlier = "--- f\n+++ f\n@@ -1099511627774 +1 @@\n-a\n+A\n@@ -1 +1 @@\n-b\n+B\n";
        assert_eq!(apply("a\nx\nb\n", earlier, 0).unwrap().0, "A\nx\nB\n");
    }

    #[test]
    fn there_is_no_place_before_the_first_line() {
        // Found four lines earlier, so that the second hunk is looked for at line 0; blanks match there.
        let patch = "--- f\n+++ f\n@@ -5 +5 @@\n-a\n+A\n@@ -4,2 +4,3 @@\n \n+x\n a\n";
        let parsed = parse(patch.as_bytes(), 0, "p").unwrap();
        let mut placer = Placer::new(b"a\nb\n").blanks_alike(true);
        let hunks = &parsed.files[0].hunks;
        assert_eq!(
            placer.apply(&hunks[0], 0).map(|placed| placed.line),
            Some(1)
        );
        assert_eq!(placer.apply(&hunks[1], 0), None);
    }
}
