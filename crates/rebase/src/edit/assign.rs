//! Assigns the commits of the edit branch to patches.
//!
//! A commit has its patch's name on a `Perfquilt-Patch:` line, which survives amending, rewording and rebasing. If the line
//! is missing, duplicated or combined with another one, these criteria decide, in this order: an unchanged commit
//! id; the `Perfquilt-Patch:` line; the title; an unchanged tree; author and date, which git keeps when it rewrites a commit. The remaining
//! commits are new patches.

use std::collections::{BTreeMap, BTreeSet};

use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::message::Message;
use perfquilt_series::stack::history::Commit;

/// A patch of the series at the start of the branch.
#[derive(Debug, Clone)]
pub(super) struct OriginalPatch {
    pub(super) name: String,
    pub(super) commit: String,
    /// The tree with the patch.
    pub(super) tree: String,
    pub(super) message: Message,
}

/// A commit of the edit branch.
#[derive(Debug, Clone)]
pub(super) struct BranchCommit {
    pub(super) id: String,
    pub(super) tree: String,
    pub(super) message: Message,
    /// The names on the commit's `Perfquilt-Patch:` lines.
    pub(super) names: Vec<String>,
}

impl From<&Commit> for BranchCommit {
    fn from(commit: &Commit) -> Self {
        let (message, names) = Message::parse(&commit.message, commit.author.clone(), commit.date);
        BranchCommit {
            id: commit.id.clone(),
            tree: commit.tree.clone(),
            message,
            names,
        }
    }
}

/// The patch that a commit is assigned to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Assignment {
    /// Index of the original patch; `None` for a new patch.
    pub(super) from: Option<usize>,
    /// The name given on the `Perfquilt-Patch:` line, if it is not an original's name.
    pub(super) named: Option<String>,
    /// Indices of original patches that were squashed into it.
    pub(super) absorbed: Vec<usize>,
}

/// Assigns every commit to a patch.
pub(super) fn assign(
    originals: &[OriginalPatch],
    commits: &[BranchCommit],
) -> Result<Vec<Assignment>> {
    for commit in commits {
        let is_pending = ["fixup! ", "squash! ", "amend! "]
            .iter()
            .any(|start| commit.message.title.starts_with(start));
        // A patch of the series may have such a title.
        let is_known = |original: &OriginalPatch| {
            original.message.title == commit.message.title
                && (commit.names.contains(&original.name) || original.commit == commit.id)
        };
        if is_pending && !originals.iter().any(is_known) {
            return Err(Error::edit_conflict(format!(
                "commit {} ({}) is not squashed into its target yet",
                short(&commit.id),
                commit.message.title
            ))
            .hint("`git rebase -i --autosquash` in the worktree does that"));
        }
    }
    let by_name: BTreeMap<&str, usize> = originals
        .iter()
        .enumerate()
        .map(|(index, original)| (original.name.as_str(), index))
        .collect();
    let mut assigner = Assigner {
        found: vec![Assignment::default(); commits.len()],
        taken: BTreeSet::new(),
    };
    assigner.claim(originals, commits, |original, commit| {
        original.commit == commit.id
    });
    // If several commits have the same name (a split commit), the one with the old title keeps it.
    for titled in [true, false] {
        for (at, commit) in commits.iter().enumerate() {
            let wanted = commit.names.iter().find_map(|name| {
                let index = *by_name.get(name.as_str())?;
                let same = originals[index].message.title == commit.message.title;
                ((!titled || same) && !assigner.taken.contains(&index)).then_some(index)
            });
            if let Some(index) = wanted
                && assigner.found[at].from.is_none()
            {
                assigner.take(at, index);
            }
        }
    }
    assigner.claim(originals, commits, |original, commit| {
        !commit.message.title.is_empty() && original.message.title == commit.message.title
    });
    assigner.claim(originals, commits, |original, commit| {
        original.tree == commit.tree
    });
    assigner.claim(originals, commits, |original, commit| {
        // Patches without a date share a placeholder date.
        original.message.date.seconds != 0
            && original.message.date == commit.message.date
            && original.message.author == commit.message.author
    });
    let Assigner { mut found, taken } = assigner;
    let mut absorbed = taken;
    for (assigned, commit) in found.iter_mut().zip(commits) {
        for name in &commit.names {
            match by_name.get(name.as_str()) {
                Some(&index) => {
                    if absorbed.insert(index) {
                        assigned.absorbed.push(index);
                    }
                }
                None => assigned.named = assigned.named.take().or_else(|| Some(name.clone())),
            }
        }
    }
    Ok(found)
}

/// The assignments so far.
struct Assigner {
    found: Vec<Assignment>,
    taken: BTreeSet<usize>,
}

impl Assigner {
    fn take(&mut self, commit: usize, original: usize) {
        self.found[commit].from = Some(original);
        self.taken.insert(original);
    }

    /// Assigns unassigned commits to unassigned originals if the match is unique on both sides.
    fn claim(
        &mut self,
        originals: &[OriginalPatch],
        commits: &[BranchCommit],
        fits: impl Fn(&OriginalPatch, &BranchCommit) -> bool,
    ) {
        let free: Vec<usize> = (0..originals.len())
            .filter(|index| !self.taken.contains(index))
            .collect();
        let open: Vec<usize> = (0..commits.len())
            .filter(|&at| self.found[at].from.is_none())
            .collect();
        let mut pairs = Vec::new();
        for &at in &open {
            let fitting: Vec<usize> = free
                .iter()
                .copied()
                .filter(|&index| fits(&originals[index], &commits[at]))
                .collect();
            if let [only] = fitting.as_slice() {
                pairs.push((at, *only));
            }
        }
        for &(at, index) in &pairs {
            let rivals = pairs.iter().filter(|(_, other)| *other == index).count();
            if rivals == 1 {
                self.take(at, index);
            }
        }
    }
}

/// Abbreviates a commit id.
pub(super) fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_series::series::Timestamp;

    fn message(title: &str, seconds: i64) -> Message {
        Message {
            title: title.to_owned(),
            date: Timestamp {
                seconds,
                offset_minutes: 0,
            },
            ..Message::default()
        }
    }

    fn originals() -> Vec<OriginalPatch> {
        (1..=3)
            .map(|n| OriginalPatch {
                name: format!("{n}.patch"),
                commit: format!("c{n}"),
                tree: format!("t{n}"),
                message: message(&format!("title {n}"), n * 100),
            })
            .collect()
    }

    fn commit(id: &str, title: &str, seconds: i64, names: &[&str]) -> BranchCommit {
        BranchCommit {
            id: id.to_owned(),
            tree: format!("tree of {id}"),
            message: message(title, seconds),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn assigned(commits: &[BranchCommit]) -> Vec<(Option<usize>, Option<String>, Vec<usize>)> {
        assign(&originals(), commits)
            .unwrap()
            .into_iter()
            .map(|found| (found.from, found.named, found.absorbed))
            .collect()
    }

    #[test]
    fn untouched_amended_and_new() {
        let found = assigned(&[
            commit("c1", "title 1", 100, &["1.patch"]),
            commit("x", "other words", 300, &["3.patch"]),
            commit("y", "new", 900, &[]),
            commit("z", "newer", 901, &["mine.patch"]),
        ]);
        assert_eq!(found[0], (Some(0), None, vec![]));
        assert_eq!(found[1], (Some(2), None, vec![]));
        assert_eq!(found[2], (None, None, vec![]));
        assert_eq!(found[3], (None, Some("mine.patch".to_owned()), vec![]));
    }

    #[test]
    fn without_the_line_title_or_author_and_date_decide() {
        let found = assigned(&[
            commit("x", "title 2", 900, &[]),
            commit("y", "other words", 100, &[]),
            commit("z", "title 3", 300, &["renamed.patch"]),
        ]);
        assert_eq!(found[0].0, Some(1));
        assert_eq!(found[1].0, Some(0));
        assert_eq!(
            found[2],
            (Some(2), Some("renamed.patch".to_owned()), vec![])
        );
    }

    #[test]
    fn a_new_message_without_the_line_is_known_by_its_tree() {
        let mut reworded = commit("x", "other words", 900, &[]);
        reworded.tree = "t2".to_owned();
        assert_eq!(assigned(&[reworded])[0].0, Some(1));
    }

    #[test]
    fn split_and_squashed() {
        let found = assigned(&[
            commit("x", "first half", 100, &["1.patch"]),
            commit("y", "title 1", 100, &["1.patch"]),
            commit("z", "title 2", 200, &["2.patch", "3.patch"]),
        ]);
        assert_eq!(found[0], (None, None, vec![]));
        assert_eq!(found[1].0, Some(0));
        assert_eq!(found[2], (Some(1), None, vec![2]));
    }

    #[test]
    fn pending_fixups_are_refused() {
        let error = assign(&originals(), &[commit("x", "fixup! title 1", 1, &[])]).unwrap_err();
        assert!(error.hint_text().unwrap().contains("autosquash"));
    }
}
