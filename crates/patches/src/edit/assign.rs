//! Which patch a commit of the branch is.
//!
//! A commit carries its patch's name on a `Patch:` line, which survives amending, rewording and
//! rebasing. Where the line was lost, doubled or joined with another one, the rules are: the commit
//! that still is the original wins; then the line; then the title; then author and date, which git
//! keeps when it rewrites a commit. What is left is new.

use std::collections::{BTreeMap, BTreeSet};

use crate::series::message::Message;
use perfquilt_model::error::{Error, Result};

/// A patch of the series as the branch began.
#[derive(Debug, Clone)]
pub(super) struct Original {
    pub(super) name: String,
    pub(super) commit: String,
    pub(super) message: Message,
}

/// A commit of the branch.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) message: Message,
    /// The names on its `Patch:` lines.
    pub(super) names: Vec<String>,
}

/// What a commit is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Assigned {
    /// The original, by its index.
    pub(super) from: Option<usize>,
    /// The name its author gave it, where that is not the original's.
    pub(super) named: Option<String>,
    /// Originals that were joined with it.
    pub(super) absorbed: Vec<usize>,
}

/// Assigns every commit.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) for `fixup!` and `squash!` commits that wait for their
/// target.
pub(super) fn assign(originals: &[Original], commits: &[Candidate]) -> Result<Vec<Assigned>> {
    for commit in commits {
        let waits = ["fixup! ", "squash! ", "amend! "]
            .iter()
            .any(|start| commit.message.title.starts_with(start));
        if waits {
            return Err(Error::series(format!(
                "commit {} ({}) is not joined with its target yet",
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
    let mut assignment = Assignment {
        found: vec![Assigned::default(); commits.len()],
        taken: BTreeSet::new(),
    };
    assignment.claim(originals, commits, |original, commit| {
        original.commit == commit.id
    });
    // Of several commits with one name (a commit that was split), the one with the old title keeps it.
    for titled in [true, false] {
        for (at, commit) in commits.iter().enumerate() {
            let wanted = commit.names.iter().find_map(|name| {
                let index = *by_name.get(name.as_str())?;
                let same = originals[index].message.title == commit.message.title;
                ((!titled || same) && !assignment.taken.contains(&index)).then_some(index)
            });
            if let Some(index) = wanted
                && assignment.found[at].from.is_none()
            {
                assignment.take(at, index);
            }
        }
    }
    assignment.claim(originals, commits, |original, commit| {
        !commit.message.title.is_empty() && original.message.title == commit.message.title
    });
    assignment.claim(originals, commits, |original, commit| {
        // Patches without a date all have the same one.
        original.message.date.seconds != 0
            && original.message.date == commit.message.date
            && original.message.author == commit.message.author
    });
    let Assignment { mut found, taken } = assignment;
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

struct Assignment {
    found: Vec<Assigned>,
    taken: BTreeSet<usize>,
}

impl Assignment {
    fn take(&mut self, commit: usize, original: usize) {
        self.found[commit].from = Some(original);
        self.taken.insert(original);
    }

    /// Joins what is left on both sides wherever exactly one of each fits.
    fn claim(
        &mut self,
        originals: &[Original],
        commits: &[Candidate],
        fits: impl Fn(&Original, &Candidate) -> bool,
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

pub(super) fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Timestamp;

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

    fn originals() -> Vec<Original> {
        (1..=3)
            .map(|n| Original {
                name: format!("{n}.patch"),
                commit: format!("c{n}"),
                message: message(&format!("title {n}"), n * 100),
            })
            .collect()
    }

    fn commit(id: &str, title: &str, seconds: i64, names: &[&str]) -> Candidate {
        Candidate {
            id: id.to_owned(),
            message: message(title, seconds),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn assigned(commits: &[Candidate]) -> Vec<(Option<usize>, Option<String>, Vec<usize>)> {
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
    fn lost_lines_are_made_up_for_by_title_or_author_and_date() {
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
    fn waiting_fixups_are_refused() {
        let error = assign(&originals(), &[commit("x", "fixup! title 1", 1, &[])]).unwrap_err();
        assert!(error.hint_text().unwrap().contains("autosquash"));
    }
}
