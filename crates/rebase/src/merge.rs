//! Comparing and merging the lines of single files in memory.

use std::ops::Range;

use super::histogram::compare;
use super::line_runs::{LineRun, line_runs};
use perfquilt_series::series::text::lines;

use perfquilt_model::error::Result;

/// A merged text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedText {
    /// The text.
    pub content: Vec<u8>,
    /// Whether a merge by Myers' algorithm gives another text.
    pub is_disputed: bool,
    /// Whether the texts repeat so much that git's merge may be another one.
    pub is_cut_short: bool,
}

/// Merges the changes from `base` to `theirs` into `ours` as `git rebase` does, with the histogram algorithm; `None` if
/// they conflict.
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Option<MergedText>> {
    let sides = [base, ours, theirs].map(lines);
    let [base_lines, our_lines, their_lines] = &sides;
    let our_side = compare(base_lines, our_lines)?;
    let their_side = compare(base_lines, their_lines)?;
    let Some(content) = merge_runs(&sides, &our_side.runs, &their_side.runs) else {
        return Ok(None);
    };
    let other = merge_runs(&sides, &line_runs(base, ours)?, &line_runs(base, theirs)?);
    Ok(Some(MergedText {
        is_disputed: other.is_some_and(|other| other != content),
        is_cut_short: our_side.is_cut_short || their_side.is_cut_short,
        content,
    }))
}

/// Merges the lines of ancestor, ours and theirs, given the differences of both sides from the ancestor.
fn merge_runs(
    [base, ours, theirs]: &[Vec<&[u8]>; 3],
    our_runs: &[LineRun],
    their_runs: &[LineRun],
) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let mut at = 0;
    for cluster in clusters(our_runs, their_runs) {
        let mine = &ours[cluster.side(our_runs, ours.len())];
        let other = &theirs[cluster.side(their_runs, theirs.len())];
        let chosen = if cluster.theirs.is_empty() || mine == other {
            mine
        } else if cluster.ours.is_empty() {
            other
        } else {
            return None;
        };
        content.extend_from_slice(&base[at..cluster.from].concat());
        content.extend_from_slice(&chosen.concat());
        at = cluster.end;
    }
    content.extend_from_slice(&base[at..].concat());
    Some(content)
}

/// A run of changes of either side that overlap or touch each other.
pub struct Cluster {
    /// The ancestor's lines, from 0.
    pub from: usize,
    /// The line after them.
    pub end: usize,
    /// Our changes.
    pub ours: Vec<LineRun>,
    /// Their changes.
    pub theirs: Vec<LineRun>,
}

impl Cluster {
    /// Returns the lines of the side with `runs`, of `count` lines.
    pub fn side(&self, runs: &[LineRun], count: usize) -> Range<usize> {
        side(runs, self.from, self.end, count)
    }
}

/// Returns the clusters of both sides' changes in order.
pub fn clusters(our_runs: &[LineRun], their_runs: &[LineRun]) -> Vec<Cluster> {
    let mut all: Vec<(LineRun, bool)> = Vec::new();
    all.extend(our_runs.iter().map(|run| (*run, true)));
    all.extend(their_runs.iter().map(|run| (*run, false)));
    all.sort_by_key(|(run, _)| (run.old_start, run.old_end()));
    let mut found: Vec<Cluster> = Vec::new();
    for (run, ours) in all {
        let end = run.old_end();
        let cluster = match found.last_mut() {
            Some(last) if run.old_start <= last.end => last,
            _ => {
                found.push(Cluster {
                    from: run.old_start,
                    end,
                    ours: Vec::new(),
                    theirs: Vec::new(),
                });
                let last = found.len() - 1;
                &mut found[last]
            }
        };
        cluster.end = cluster.end.max(end);
        if ours {
            cluster.ours.push(run);
        } else {
            cluster.theirs.push(run);
        }
    }
    found
}

/// Returns the lines of one side, from 0 and of `count`, that correspond to the ancestor's lines `from..end`; about so
/// if a run crosses a border.
pub fn side(runs: &[LineRun], from: usize, end: usize, count: usize) -> Range<usize> {
    // The last of the `before` runs before a border determines its line on this side.
    let place = |border: usize, before: usize| {
        let last = before.checked_sub(1).map(|at| runs[at]);
        let there = last.map_or(border, |run| {
            (border + run.new_lines().end).saturating_sub(run.old_end())
        });
        there.min(count)
    };
    let start = place(from, runs.partition_point(|run| run.old_start < from));
    let stop = place(end, runs.partition_point(|run| run.old_end() <= end));
    start..stop.max(start)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use perfquilt_system::process::Command;

    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Option<String> {
        let [base, ours, theirs] = [base, ours, theirs].map(str::as_bytes);
        let merged = merge(base, ours, theirs).unwrap()?;
        Some(String::from_utf8(merged.content).unwrap())
    }

    #[test]
    fn both_sides_changes_come_together() {
        let text = |lines: &str| lines.replace(' ', "\n") + "\n";
        let merged =
            |base: &str, ours: &str, theirs: &str| merged(&text(base), &text(ours), &text(theirs));
        assert_eq!(
            merged("a b c d e", "A b c d e", "a b c d E"),
            Some(text("A b c d E"))
        );
        assert_eq!(merged("a", "b", "c"), None);
        assert_eq!(merged("a b c", "a B c", "a B c"), Some(text("a B c")));
        // Neighbouring changes conflict, as in git.
        assert_eq!(merged("a b c d", "a B c d", "a b C d"), None);
        assert_eq!(merge(b"", b"", b"x\n").unwrap().unwrap().content, b"x\n");
        assert_eq!(
            merge(b"a", b"a\nb", b"a").unwrap().unwrap().content,
            b"a\nb"
        );
    }

    /// Merges with the user's git, by its default strategy.
    fn merged_by_git(folder: &Path, cases: &[[String; 3]]) -> Vec<Option<String>> {
        let git = || Command::new("git").arg("--git-dir").arg(folder);
        let done = git().args(["init", "-q", "--bare"]).run().unwrap();
        assert!(done.success(), "{}", done.stderr_text());
        let mut commits = String::new();
        for (number, texts) in cases.iter().enumerate() {
            for (side, text) in ["base", "ours", "theirs"].into_iter().zip(texts) {
                let parent = match side {
                    "base" => String::new(),
                    _ => format!("from refs/heads/{number}-base\n"),
                };
                commits += &format!(
                    "commit refs/heads/{number}-{side}\ncommitter T <t@example.org> 1 +0000\ndata 0\n{parent}\
                     M 100644 inline f\ndata {}\n{text}\n",
                    text.len()
                );
            }
        }
        let done = git().args(["fast-import", "--quiet"]);
        let done = done.stdin(commits.as_bytes()).run().unwrap();
        assert!(done.success(), "{}", done.stderr_text());
        let merge = |number: usize| {
            let [ours, theirs] = ["ours", "theirs"].map(|side| format!("{number}-{side}"));
            let merge = ["merge-tree", "--write-tree", &ours, &theirs];
            let done = git().args(merge).run().unwrap();
            let tree = done.success().then(|| done.stdout_text())?;
            let file = format!("{}:f", tree.trim());
            let done = git().args(["cat-file", "blob", &file]).run().unwrap();
            Some(done.stdout_text())
        };
        (0..cases.len()).map(merge).collect()
    }

    /// Functions with equal lines, some of them changed, removed, repeated or exchanged.
    fn repetitive() -> impl Strategy<Value = [String; 3]> {
        let line =
            || (0..6_usize).prop_map(|n| ["{", "}", "lock(r);", "work(r);", "", "end();"][n]);
        let base = proptest::collection::vec(line(), 0..40);
        let edits = || proptest::collection::vec((0..40_usize, 0..4_usize, line()), 0..5);
        (base, edits(), edits(), 0..4_usize).prop_map(|(base, ours, theirs, ends)| {
            let edited = |edits: Vec<(usize, usize, &'static str)>| {
                let mut lines = base.clone();
                for (at, kind, line) in edits {
                    let at = at.min(lines.len());
                    match kind {
                        0 => lines.insert(at, line),
                        1 if at < lines.len() => drop(lines.remove(at)),
                        2 if at < lines.len() => lines[at] = "changed();",
                        3 => {
                            let copy = lines[at.saturating_sub(5)..at].to_vec();
                            lines.splice(at..at, copy);
                        }
                        _ => {}
                    }
                }
                lines
            };
            let text = |lines: Vec<&str>, unfinished: bool| {
                let text = lines.join("\n");
                if unfinished || text.is_empty() {
                    text
                } else {
                    text + "\n"
                }
            };
            [
                text(base.clone(), ends == 1),
                text(edited(ours), ends == 1),
                text(edited(theirs), ends & 1 == 1),
            ]
        })
    }

    #[test]
    fn repetitive_texts_are_merged_as_git_does() {
        let count = std::env::var("PROPTEST_CASES").map_or(100, |count| count.parse().unwrap());
        let mut runner = TestRunner::default();
        let mut next = || repetitive().new_tree(&mut runner).unwrap().current();
        let cases: Vec<[String; 3]> = (0..count).map(|_| next()).collect();
        let folder = tempfile::tempdir().unwrap();
        let expected = merged_by_git(folder.path(), &cases);
        assert!(count < 50 || expected.iter().any(Option::is_none));
        for (case, expected) in cases.iter().zip(expected) {
            let [base, ours, theirs] = case;
            assert_eq!(merged(base, ours, theirs), expected, "{case:#?}");
        }
    }

    #[test]
    fn runs_have_places() {
        let run = |old_start, old, new_start, new| LineRun {
            old_start,
            old,
            new_start,
            new,
        };
        assert_eq!(
            line_runs(b"a\nb\nc\n", b"a\nc\n").unwrap(),
            [run(1, 1, 1, 0)]
        );
        assert_eq!(
            line_runs(b"a\nc\n", b"a\nb\nc\n").unwrap(),
            [run(1, 0, 1, 1)]
        );
        assert_eq!(line_runs(b"", b"x\n").unwrap(), [run(0, 0, 0, 1)]);
        assert_eq!(line_runs(b"a\nb\n", b"a\nB\n").unwrap(), [run(1, 1, 1, 1)]);
        assert_eq!(line_runs(b"same\n", b"same\n").unwrap(), []);
    }
}
