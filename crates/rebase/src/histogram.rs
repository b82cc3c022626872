//! Differences of lines by the histogram algorithm, as git's merges find them.
//!
//! Myers' algorithm finds the shortest difference, which in repetitive code pairs lines of different functions. The
//! histogram algorithm (from JGit; git uses it for merges since 2.33) pairs the longest common run around the rarest
//! lines first, then what is before and after it. The results are git's line by line, because a merge has to be the one
//! that `git rebase` makes; libraries differ from git where lines repeat, which is where it matters.

use std::collections::HashMap;

use super::line_runs::{LineRun, line_runs};
use perfquilt_model::error::Result;

/// Number of occurrences from which a line separates nothing. A region with only such lines is left to Myers.
const MAX_OCCURRENCES: usize = 64;
/// Marks the end of a list of lines.
const NONE: usize = usize::MAX;
/// Number of lines that a comparison may look at, for each line of both texts and for short ones. Git has no limit and
/// takes quadratic time where lines repeat; beyond the limit, Myers' algorithm compares the remaining lines.
const WORK_PER_LINE: usize = 1000;
const LEAST_WORK: usize = 50_000_000;

/// How two texts differ.
#[derive(Debug)]
pub struct Comparison {
    /// The runs of lines in which they differ.
    pub runs: Vec<LineRun>,
    /// Whether the texts took more work than allowed, so that the runs may be others than git's.
    pub is_cut_short: bool,
}

/// Returns the runs of lines in which two texts differ.
pub fn histogram_runs(old: &[&[u8]], new: &[&[u8]]) -> Result<Vec<LineRun>> {
    Ok(compare(old, new)?.runs)
}

/// Compares two texts.
pub fn compare(old: &[&[u8]], new: &[&[u8]]) -> Result<Comparison> {
    let lines = old.len() + new.len();
    compare_within(old, new, LEAST_WORK + WORK_PER_LINE * lines)
}

fn compare_within(old: &[&[u8]], new: &[&[u8]], work: usize) -> Result<Comparison> {
    let mut known: HashMap<&[u8], usize> = HashMap::with_capacity(old.len());
    let mut numbers: Vec<usize> = Vec::with_capacity(old.len() + new.len());
    for &line in old.iter().chain(new) {
        let next = known.len();
        numbers.push(*known.entry(line).or_insert(next));
    }
    let (old_numbers, new_numbers) = numbers.split_at(old.len());
    let mut search = Search {
        texts: [old, new],
        old: old_numbers,
        new: new_numbers,
        removed: Marks::new(old.len()),
        added: Marks::new(new.len()),
        lists: vec![Occurrences::default(); known.len()],
        next: vec![NONE; old.len()],
        work,
    };
    search.compare()?;
    let Search {
        mut removed,
        mut added,
        work,
        ..
    } = search;
    compact(&mut removed, &added, old_numbers);
    compact(&mut added, &removed, new_numbers);
    Ok(Comparison {
        runs: runs(&removed, &added),
        is_cut_short: work == 0,
    })
}

/// Parts of both texts: the first line and the one after the last.
#[derive(Clone, Copy)]
struct Region {
    old: (usize, usize),
    new: (usize, usize),
}

/// The old lines of a region with one number.
#[derive(Clone, Copy, Default)]
struct Occurrences {
    first: usize,
    count: usize,
}

struct Search<'a> {
    texts: [&'a [&'a [u8]]; 2],
    /// The lines as numbers, equal for equal lines.
    old: &'a [usize],
    new: &'a [usize],
    removed: Marks,
    added: Marks,
    /// By number, for the current region.
    lists: Vec<Occurrences>,
    /// For each old line, the next equal one of the current region.
    next: Vec<usize>,
    /// The remaining number of lines to compare.
    work: usize,
}

/// The result of [`Search::longest`].
enum Common {
    /// Equal lines.
    Run(Region),
    /// The texts have no line in common.
    Nothing,
    /// All common lines occur too often, or no work is left.
    Repetitive,
}

impl Search<'_> {
    fn compare(&mut self) -> Result<()> {
        let mut waiting = vec![Region {
            old: (0, self.old.len()),
            new: (0, self.new.len()),
        }];
        while let Some(region) = waiting.pop() {
            let Region { old, new } = region;
            if old.0 == old.1 || new.0 == new.1 {
                self.differ(region);
                continue;
            }
            match self.longest(region) {
                Common::Nothing => self.differ(region),
                Common::Repetitive => self.compare_repetitive(region)?,
                Common::Run(run) => {
                    waiting.push(Region {
                        old: (old.0, run.old.0),
                        new: (new.0, run.new.0),
                    });
                    waiting.push(Region {
                        old: (run.old.1, old.1),
                        new: (run.new.1, new.1),
                    });
                }
            }
        }
        Ok(())
    }

    fn differ(&mut self, region: Region) {
        self.removed.set(region.old);
        self.added.set(region.new);
    }

    fn compare_repetitive(&mut self, region: Region) -> Result<()> {
        let Region { old, new } = region;
        let old_text = self.texts[0][old.0..old.1].concat();
        let new_text = self.texts[1][new.0..new.1].concat();
        for run in line_runs(&old_text, &new_text)? {
            let start = old.0 + run.old_start;
            self.removed.set((start, start + run.old));
            let start = new.0 + run.new_start;
            self.added.set((start, start + run.new));
        }
        Ok(())
    }

    /// Lists the old lines of a region by number.
    fn list(&mut self, (from, end): (usize, usize)) {
        for line in from..end {
            self.lists[self.old[line]] = Occurrences::default();
        }
        for line in (from..end).rev() {
            let list = &mut self.lists[self.old[line]];
            self.next[line] = if list.count == 0 { NONE } else { list.first };
            list.first = line;
            list.count += 1;
        }
    }

    /// Finds the longest common run around the line that occurs least in the old region.
    fn longest(&mut self, region: Region) -> Common {
        let Region { old, new } = region;
        self.spend(old.1 - old.0 + new.1 - new.0);
        self.list(region.old);
        let mut best = Best {
            run: None,
            length: 1,
            least: MAX_OCCURRENCES + 1,
        };
        let mut any = false;
        let mut at = region.new.0;
        while at < region.new.1 && self.work > 0 {
            let list = self.lists[self.new[at]];
            let is_there = list.count > 0
                && (region.old.0..region.old.1).contains(&list.first)
                && self.equal(list.first, at);
            any |= is_there;
            at = if is_there && list.count <= best.least {
                self.runs_at(region, at, list, &mut best)
            } else {
                at + 1
            };
        }
        match best.run {
            _ if self.work == 0 => Common::Repetitive,
            _ if !any => Common::Nothing,
            Some(run) if best.least <= MAX_OCCURRENCES => Common::Run(run),
            _ => Common::Repetitive,
        }
    }

    /// Tries the runs of a new line with each equal old one. Returns the line after the longest.
    fn runs_at(&mut self, region: Region, at: usize, list: Occurrences, best: &mut Best) -> usize {
        let Region { old, new } = region;
        let mut next = at + 1;
        let mut place = list.first;
        while place != NONE {
            let mut rarest = list.count;
            let (mut from, mut new_from) = (place, at);
            while old.0 < from && new.0 < new_from && self.equal(from - 1, new_from - 1) {
                (from, new_from) = (from - 1, new_from - 1);
                rarest = rarest.min(self.count(from));
            }
            let (mut end, mut new_end) = (place + 1, at + 1);
            while end < old.1 && new_end < new.1 && self.equal(end, new_end) {
                rarest = rarest.min(self.count(end));
                (end, new_end) = (end + 1, new_end + 1);
            }
            next = next.max(new_end);
            self.spend(end - from);
            if best.length < end - from || rarest < best.least {
                *best = Best {
                    run: Some(Region {
                        old: (from, end),
                        new: (new_from, new_end),
                    }),
                    length: end - from,
                    least: rarest,
                };
            }
            place = self.next[place];
            // The run has these occurrences too.
            while place != NONE && place < end {
                place = self.next[place];
            }
        }
        next
    }

    /// Returns how often an old line occurs in the region.
    fn count(&self, line: usize) -> usize {
        self.lists[self.old[line]].count
    }

    fn spend(&mut self, lines: usize) {
        self.work = self.work.saturating_sub(lines);
    }

    fn equal(&self, old: usize, new: usize) -> bool {
        self.old[old] == self.new[new]
    }
}

/// The best common run so far.
struct Best {
    run: Option<Region>,
    length: usize,
    /// How often its rarest line occurs.
    least: usize,
}

/// Which lines of a text the other one lacks.
struct Marks(Vec<bool>);

impl Marks {
    fn new(lines: usize) -> Self {
        Marks(vec![false; lines])
    }

    fn set(&mut self, (from, end): (usize, usize)) {
        self.0[from..end].fill(true);
    }

    fn at(&self, line: usize) -> bool {
        self.0.get(line) == Some(&true)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// A group of neighbouring marked lines, empty between two unmarked ones. The groups of both texts correspond.
#[derive(Clone, Copy)]
struct Group {
    start: usize,
    end: usize,
}

impl Group {
    fn first(marks: &Marks) -> Self {
        let mut group = Group { start: 0, end: 0 };
        group.extend(marks);
        group
    }

    fn is_empty(self) -> bool {
        self.start == self.end
    }

    fn extend(&mut self, marks: &Marks) {
        while marks.at(self.end) {
            self.end += 1;
        }
    }

    fn begin(&mut self, marks: &Marks) {
        while self.start > 0 && marks.at(self.start - 1) {
            self.start -= 1;
        }
    }

    /// Goes to the next group; returns whether there is one.
    fn next(&mut self, marks: &Marks) -> bool {
        if self.end == marks.len() {
            return false;
        }
        self.start = self.end + 1;
        self.end = self.start;
        self.extend(marks);
        true
    }

    fn previous(&mut self, marks: &Marks) {
        self.end = self.start.saturating_sub(1);
        self.start = self.end;
        self.begin(marks);
    }

    /// Moves the group one line up if the line before it equals its last one; it may join the group before.
    fn slide_up(&mut self, marks: &mut Marks, lines: &[usize]) -> bool {
        if self.start == 0 || lines[self.start - 1] != lines[self.end - 1] {
            return false;
        }
        (self.start, self.end) = (self.start - 1, self.end - 1);
        marks.0[self.start] = true;
        marks.0[self.end] = false;
        self.begin(marks);
        true
    }

    /// Moves the group one line down if the line after it equals its first one; it may join the group after.
    fn slide_down(&mut self, marks: &mut Marks, lines: &[usize]) -> bool {
        if self.end == lines.len() || lines[self.start] != lines[self.end] {
            return false;
        }
        marks.0[self.start] = false;
        marks.0[self.end] = true;
        (self.start, self.end) = (self.start + 1, self.end + 1);
        self.extend(marks);
        true
    }
}

/// Moves the marked groups of a text as git does: joined with others where possible, then beside a group of the other
/// text, or else as far down as possible.
fn compact(marks: &mut Marks, other_marks: &Marks, lines: &[usize]) {
    let (mut group, mut other) = (Group::first(marks), Group::first(other_marks));
    loop {
        if !group.is_empty() {
            place(&mut group, &mut other, marks, other_marks, lines);
        }
        if !group.next(marks) {
            return;
        }
        other.next(other_marks);
    }
}

fn place(
    group: &mut Group,
    other: &mut Group,
    marks: &mut Marks,
    other_marks: &Marks,
    lines: &[usize],
) {
    let (mut earliest, mut beside);
    loop {
        let size = group.end - group.start;
        while group.slide_up(marks, lines) {
            other.previous(other_marks);
        }
        earliest = group.end;
        beside = !other.is_empty();
        while group.slide_down(marks, lines) {
            other.next(other_marks);
            beside |= !other.is_empty();
        }
        if size == group.end - group.start {
            break;
        }
    }
    if group.end == earliest || !beside {
        return;
    }
    while other.is_empty() && group.slide_up(marks, lines) {
        other.previous(other_marks);
    }
}

fn runs(removed: &Marks, added: &Marks) -> Vec<LineRun> {
    let mut found = Vec::new();
    let (mut old, mut new) = (0, 0);
    while old < removed.len() || new < added.len() {
        let (old_start, new_start) = (old, new);
        while removed.at(old) {
            old += 1;
        }
        while added.at(new) {
            new += 1;
        }
        if (old, new) != (old_start, new_start) {
            found.push(LineRun {
                old_start,
                old: old - old_start,
                new_start,
                new: new - new_start,
            });
        }
        (old, new) = (old + 1, new + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_series::series::text::lines;

    fn runs_of(old: &str, new: &str) -> Vec<(usize, usize, usize, usize)> {
        let text = |words: &str| words.replace(' ', "\n") + "\n";
        let (old, new) = (text(old), text(new));
        let found = histogram_runs(&lines(old.as_bytes()), &lines(new.as_bytes())).unwrap();
        let run = |run: &LineRun| (run.old_start, run.old, run.new_start, run.new);
        found.iter().map(run).collect()
    }

    #[test]
    fn rare_lines_are_paired_first() {
        // As `git diff --histogram` has it.
        assert_eq!(
            runs_of("a { x } b { y }", "b { y } a { x }"),
            [(0, 4, 0, 0), (8, 0, 4, 4)]
        );
        assert_eq!(runs_of("a b c", "a b c"), []);
        assert_eq!(runs_of("a b c", "a X c"), [(1, 1, 1, 1)]);
        assert_eq!(runs_of("a", "b"), [(0, 1, 0, 1)]);
    }

    #[test]
    fn groups_slide_down_and_join() {
        assert_eq!(runs_of("a { } b", "a { } { } b"), [(3, 0, 3, 2)]);
    }

    #[test]
    fn a_line_that_is_everywhere_separates_nothing() {
        let old = ["x"; 200].join(" ");
        let new = format!("{} y {}", ["x"; 100].join(" "), ["x"; 100].join(" "));
        assert_eq!(runs_of(&old, &new), [(100, 0, 100, 1)]);
    }

    #[test]
    fn a_comparison_that_takes_too_much_work_says_so_and_is_still_one() {
        // Every line occurs some sixty times.
        let line = |n: usize, shift: usize| format!("{}\n", (n * n + shift * (n / 7)) % 97);
        let text = |shift: usize| (0..6000).map(|n| line(n, shift)).collect::<String>();
        let (old, new) = (text(0), text(1));
        let (old, new) = (lines(old.as_bytes()), lines(new.as_bytes()));
        let all = compare_within(&old, &new, usize::MAX).unwrap();
        assert!(!all.is_cut_short);
        for work in [1, 10_000] {
            let found = compare_within(&old, &new, work).unwrap();
            assert!(found.is_cut_short, "{work}");
            let (mut made, mut at) = (Vec::<&[u8]>::new(), 0);
            for run in &found.runs {
                made.extend(&old[at..run.old_start]);
                made.extend(&new[run.new_lines()]);
                at = run.old_end();
            }
            made.extend(&old[at..]);
            assert!(made == new, "{work}");
        }
    }

    #[test]
    fn a_long_text_with_many_changes_is_compared_as_git_does() {
        let text = |step: usize| -> String {
            let line = |n: usize| {
                if n.is_multiple_of(step) {
                    "changed\n".to_owned()
                } else {
                    format!("{n}\n")
                }
            };
            (1..20_000).map(line).collect()
        };
        let (old, new) = (text(usize::MAX), text(100));
        let found = compare(&lines(old.as_bytes()), &lines(new.as_bytes())).unwrap();
        assert!(!found.is_cut_short);
        assert_eq!(found.runs.len(), 199);
    }
}
