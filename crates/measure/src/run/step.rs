//! Commits of any git repository as states: good, the one that git tests, and bad.

use std::collections::BTreeSet;
use std::path::Path;

use super::bisect::{BisectRun, results};
use super::checked_out::{TestedCommit, checked_out, commit, refuse_cut_range, work_tree};
use super::request::{BisectRequest, RevisionRange};
use super::revisions::Revisions;
use perfquilt_build::BuildItem;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::{Conclusion, Decision, DecisionKind, NextCommand, Revision};
use perfquilt_model::counted::listed;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_series::upstream::Objects;
use perfquilt_store::Store;
use perfquilt_system::git::Git;

/// The side of the change that the middle one of three states is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeSide {
    /// The side of the good state.
    Good,
    /// The side of the bad state, or between two changes.
    Bad,
    /// Undecided, with the reason as a fragment: the state cannot be built or measured, or the measurements do
    /// not decide.
    Unknown(String),
}

/// Returns the side of the change that the middle one of three states is on.
///
/// # Errors
/// The errors of [`bisect`](super::bisect::bisect); [`Kind::Inconclusive`](perfquilt_model::error::Kind::Inconclusive) when good and bad do not differ.
pub fn side(ws: &Workspace, states: &dyn Revisions, request: &BisectRequest) -> Result<ChangeSide> {
    let question = request.question_of(states.range())?;
    let store = Store::open(&results(ws))?;
    let mut run = BisectRun::open(ws, states, request, &question, &store)?;
    run.run(&|bisector| answer(bisector.path()).is_some())?;
    answer(run.bisector.path()).ok_or_else(|| {
        let states = &question.states;
        if run.bisector.outcome().conclusion == Conclusion::Opposite {
            return Error::ends_do_not_differ(format!(
                "{} and {} differ in the other direction on {}",
                states[0].label, states[2].label, request.question.workload
            ))
            .hint(
                "swap `--good` and `--bad`, or name the direction of the change with `--direction`",
            );
        }
        Error::ends_do_not_differ(format!(
            "{} and {} do not differ by {:.2} % or more on {}",
            states[0].label,
            states[2].label,
            100.0 * request.question.size,
            request.question.workload
        ))
    })
}

/// Returns the side of the middle one of three states by the path of their bisection.
fn answer(path: &[Decision]) -> Option<ChangeSide> {
    let unknown = |why: &str| Some(ChangeSide::Unknown(why.to_owned()));
    path.iter().find_map(|decision| match &decision.how {
        DecisionKind::Narrowed { parts, chosen, .. } if parts.len() == 2 => Some(match chosen {
            0 => ChangeSide::Bad,
            _ => ChangeSide::Good,
        }),
        DecisionKind::Skipped { state: 1, reason } => unknown(reason),
        DecisionKind::Undecided(_) => unknown("undecided within the allowed number of blocks"),
        DecisionKind::Named { from: 0, to: 2 } => {
            unknown("good and bad differ, but neither part of the difference reaches the size")
        }
        _ => None,
    })
}

/// Three commits of a repository that is being bisected with git.
#[derive(Debug)]
pub struct CommitsHere {
    git: Git,
    range: RevisionRange,
    tested: TestedCommit,
    /// Files that git does not know, of which nobody has been told yet.
    untracked: Vec<String>,
    /// Submodules that are not here, whose folders are empty.
    absent: BTreeSet<String>,
}

impl CommitsHere {
    /// Reads the commit `good`, the one that git tests and `bad` of the repository at `folder`, the second with the changes of
    /// tracked files that are not committed if it is checked out: a fix that every tried commit needs. Copies the files that
    /// git checks out for them into the object store of `ws`.
    pub fn new(ws: &Workspace, folder: &Path, good: &str, bad: &str) -> Result<Self> {
        let git = Git::of_caller(folder);
        let source = ws.config.release(None)?;
        let store = Objects::open_or_create(&ws.object_store())?;
        let tested = TestedCommit::now(&git)?;
        let mut here = CommitsHere {
            range: RevisionRange {
                release: ws.config.release_name(&source.version),
                noun: "commit",
                states: Vec::new(),
            },
            tested,
            untracked: Vec::new(),
            absent: BTreeSet::new(),
            git,
        };
        let commits = [
            commit(&here.git, good)?,
            here.tested.commit.clone(),
            commit(&here.git, bad)?,
        ];
        if commits[0] == commits[2] {
            return Err(Error::bisection_question(
                "good and bad are the same commit",
            ));
        }
        refuse_cut_range(&here.git, good, bad)?;
        for commit in &commits {
            let state = here.state(&store, commit)?;
            here.range.states.push(state);
        }
        let is_checked_out = here.tested.name == "HEAD";
        if !is_checked_out {
            progress::note(&format!(
                "measuring {}, git's {}: git checks nothing out, so nothing of the work tree is part of it",
                here.range.states[1].label, here.tested.name
            ));
        } else if here.git.ok(&["rev-parse", "--is-inside-work-tree"])? == "true" {
            here.add_work_tree(folder, &store)?;
        }
        if !here.absent.is_empty() {
            progress::warn(Warning::absent_files(format!(
                "the folders of submodules that are not here are empty in what is measured: {}; `{UPDATE}` fetches them",
                here.absent_submodules()
            )));
        }
        Ok(here)
    }

    /// Checks that git still tests this commit.
    pub fn check_unmoved(&self) -> Result<()> {
        let now = TestedCommit::now(&self.git)?;
        if now == self.tested {
            return Ok(());
        }
        let shown = |tested: &TestedCommit| format!("{} {}", tested.name, &tested.commit[..12]);
        Err(Error::git(format!(
            "git was at {} when the step began and is at {} now",
            shown(&self.tested),
            shown(&now)
        ))
        .hint("leave the repository alone while a step runs, and repeat it"))
    }

    /// Returns the error for commits that cannot be tested if that may be because submodules are not here.
    pub fn lacks_submodules(&self, reason: &str) -> Option<Error> {
        let error = Error::git(format!("this commit cannot be tested: {reason}"));
        let absent = format!("submodules that are not here: {}", self.absent_submodules());
        let hint = format!("if the server needs them: `{UPDATE}`");
        (!self.absent.is_empty()).then(|| error.details([absent]).hint(hint))
    }

    fn absent_submodules(&self) -> String {
        let names: Vec<&str> = self.absent.iter().map(String::as_str).collect();
        names.join(", ")
    }

    /// Says which untracked files are no part of what is measured; `None` if there are none, or a note has named them.
    pub fn untracked_files(&self) -> Option<String> {
        let files = listed(&self.untracked, MOST_NAMED);
        (!files.is_empty()).then(|| {
            format!("untracked files are not part of it: {files}; `git add FILE` adds one")
        })
    }

    /// Adds the uncommitted changes of tracked files to the state that is checked out, and notes what is part of it and what is
    /// not.
    fn add_work_tree(&mut self, folder: &Path, store: &Objects) -> Result<()> {
        let found = work_tree(&self.git, folder, &self.tested.commit)?;
        let here = &mut self.range.states[1];
        if !found.submodules.is_empty() {
            progress::note(&format!(
                "submodules are measured at the commits that {} names, not as they are here: {}",
                here.label,
                found.submodules.join(", ")
            ));
        }
        self.untracked = found.untracked;
        if found.changed.is_empty() {
            return Ok(());
        }
        progress::note(&format!(
            "measuring {} with the uncommitted changes in {}",
            here.label,
            found.changed.join(", ")
        ));
        let links = Some(found.links);
        let tree = checked_out(&self.git, store, &found.tree, links, &mut self.absent)?;
        here.label.push_str(" with changes");
        here.name = format!("{}+{tree}", here.name);
        here.tree = tree;
        if let Some(words) = self.untracked_files() {
            progress::note(&words);
        }
        self.untracked.clear();
        Ok(())
    }

    /// Reads a commit and stores its files.
    fn state(&mut self, store: &Objects, commit: &str) -> Result<Revision> {
        let title = ["log", "--no-show-signature", "-1", "--format=%s", commit];
        Ok(Revision {
            label: commit.chars().take(12).collect(),
            name: commit.to_owned(),
            title: self.git.ok(&title)?,
            tree: checked_out(&self.git, store, commit, None, &mut self.absent)?,
        })
    }
}

/// How many untracked files a note names.
const MOST_NAMED: usize = 5;

/// The command that fetches submodules.
const UPDATE: &str = "git submodule update --init --recursive";

impl Revisions for CommitsHere {
    fn range(&self) -> &RevisionRange {
        &self.range
    }

    fn item(&self, state: usize) -> Result<BuildItem> {
        let RevisionRange {
            release, states, ..
        } = &self.range;
        let commit = &states[state];
        Ok(BuildItem {
            label: format!("commit {}", commit.label),
            point: Point::Step(state),
            patch: None,
            touches: Vec::new(),
            tree: commit.tree.clone(),
            // The same for all commits: compilers take nothing for unchanged that a commit hides.
            base: states[0].tree.clone(),
            release: release.clone(),
        })
    }

    fn next(&self, _from: usize, _to: usize, _request: &BisectRequest) -> Vec<NextCommand> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_cannot_be_told_says_why() {
        let side_of = |how| {
            let after = 4;
            answer(&[Decision { after, how }])
        };
        let reason = "does not compile".to_owned();
        let skipped = |state| DecisionKind::Skipped {
            state,
            reason: reason.clone(),
        };
        assert_eq!(
            side_of(skipped(1)),
            Some(ChangeSide::Unknown(reason.clone()))
        );
        assert_eq!(side_of(skipped(2)), None);
        // Two changes that reach the size only together.
        let named = side_of(DecisionKind::Named { from: 0, to: 2 });
        assert!(matches!(named, Some(ChangeSide::Unknown(why)) if why.contains("neither part")));
        assert_eq!(side_of(DecisionKind::Named { from: 0, to: 1 }), None);
    }
}
