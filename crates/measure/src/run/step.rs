//! Commits of any git repository as states: good, `HEAD` and bad.

use std::path::Path;

use super::bisect::{BisectRun, question, results};
use super::request::BisectRequest;
use super::revisions::Revisions;
use perfquilt_build::BuildItem;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::{Conclusion, Decision, DecisionKind, NextCommand, Revision};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;
use perfquilt_patches::upstream::Objects;
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
/// The errors of [`bisect`](super::bisect::bisect); [`Kind::Inconclusive`] when good and bad do not differ.
pub fn side(
    ws: &Workspace,
    states: &dyn Revisions,
    request: &BisectRequest,
    progress: &dyn Progress,
) -> Result<ChangeSide> {
    let question = question(request, states)?;
    let store = Store::open(&results(ws))?;
    let mut run = BisectRun::open(ws, states, request, &question, &store, progress)?;
    run.run(&|bisector| answer(bisector.path()).is_some())?;
    answer(run.bisector.path()).ok_or_else(|| {
        let states = states.states();
        if run.bisector.outcome().conclusion == Conclusion::Opposite {
            return Error::new(
                Kind::Inconclusive,
                format!(
                    "{} and {} differ in the other direction on {}",
                    states[0].label, states[2].label, request.workload
                ),
            )
            .hint(
                "swap `--good` and `--bad`, or name the direction of the change with `--direction`",
            );
        }
        Error::new(
            Kind::Inconclusive,
            format!(
                "{} and {} do not differ by {:.2} % or more on {}",
                states[0].label,
                states[2].label,
                100.0 * request.size,
                request.workload
            ),
        )
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
    release: String,
    states: Vec<Revision>,
    /// Files that git does not know, of which nobody has been told yet.
    untracked: Vec<String>,
}

impl CommitsHere {
    /// Reads the commits `good`, `HEAD` and `bad` of the repository at `folder`, the second with the changes of tracked
    /// files that are not committed: a fix that every tried commit needs. Copies their files into the object store of `ws`,
    /// unless it has them.
    pub fn new(
        ws: &Workspace,
        folder: &Path,
        (good, bad): (&str, &str),
        progress: &dyn Progress,
    ) -> Result<Self> {
        let git = Git::new(folder);
        let source = ws.config.release(None)?;
        let store = Objects::open_or_create(&ws.object_store())?;
        let mut states = [good, "HEAD", bad]
            .map(|revision| state(ws, &git, &store, revision))
            .into_iter()
            .collect::<Result<Vec<Revision>>>()?;
        if states[0].name == states[2].name {
            return Err(Error::usage("good and bad are the same commit"));
        }
        let status = git.status()?;
        let mut here = CommitsHere {
            release: ws.config.release_name(&source.version),
            states: Vec::new(),
            untracked: status.untracked,
        };
        if !status.changed.is_empty() {
            add_changes(
                ws,
                &git,
                &store,
                (&mut states[1], &status.changed),
                progress,
            )?;
            here.untracked_files()
                .into_iter()
                .for_each(|words| progress.note(&words));
            here.untracked.clear();
        }
        Ok(CommitsHere { states, ..here })
    }

    /// Says which untracked files are no part of what is measured; `None` if there are none, or a note has named them.
    pub fn untracked_files(&self) -> Option<String> {
        let shown = self.untracked.iter().take(MOST_NAMED);
        let shown: Vec<&str> = shown.map(String::as_str).collect();
        let more = match self.untracked.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!shown.is_empty()).then(|| {
            format!(
                "untracked files are not part of it: {}{more}; `git add FILE` adds one",
                shown.join(", ")
            )
        })
    }
}

/// How many untracked files a note names.
const MOST_NAMED: usize = 5;

/// Adds the uncommitted changes of the tracked files `changed` to the state that is checked out, and notes them.
fn add_changes(
    ws: &Workspace,
    git: &Git,
    store: &Objects,
    (here, changed): (&mut Revision, &[String]),
    progress: &dyn Progress,
) -> Result<()> {
    // Writes a commit of the files and changes nothing else; refuses unresolved conflicts.
    let kept = git
        .command(&[&AUTHOR[..], &["stash", "create"]].concat())
        .run_ok(Kind::Usage)?;
    let of_files = state(ws, git, store, kept.stdout_text().trim())?;
    progress.note(&format!(
        "measuring {} with the uncommitted changes in {}",
        here.label,
        changed.join(", ")
    ));
    *here = Revision {
        label: format!("{} with changes", here.label),
        name: format!("{}+{}", here.name, of_files.tree),
        title: here.title.clone(),
        tree: of_files.tree,
    };
    Ok(())
}

/// Settings for commits that nobody keeps.
const AUTHOR: [&str; 4] = [
    "-c",
    "user.name=perfquilt",
    "-c",
    "user.email=perfquilt@localhost",
];

fn state(ws: &Workspace, git: &Git, store: &Objects, revision: &str) -> Result<Revision> {
    if revision.starts_with('-') {
        return Err(Error::usage(format!("`{revision}` is not a commit")));
    }
    let of = |what: &str| {
        let output = git.run(&[
            "rev-parse",
            "--verify",
            "--quiet",
            &format!("{revision}^{{{what}}}"),
        ])?;
        if output.success() {
            Ok(output.stdout_text().trim().to_owned())
        } else {
            Err(Error::usage(format!("`{revision}` is not a commit here"))
                .hint("run it in the repository that is bisected, and name the workspace with -C"))
        }
    };
    let (commit, tree) = (of("commit")?, of("tree")?);
    if !has(store, &tree)? {
        // A commit without parents transfers the files without the history.
        let mut args = AUTHOR.to_vec();
        args.extend([
            "commit-tree",
            "--no-gpg-sign",
            &tree,
            "-m",
            "files to be measured",
        ]);
        let alone = git.ok(&args)?;
        let to = ws.object_store();
        let to = std::path::absolute(&to).map_err(|e| Error::io("find", &to, &e))?;
        let refspec = format!("{alone}:refs/measured/{tree}");
        // A local folder does not support what the user's push settings may request of a server.
        let settings = [
            "-c",
            "push.gpgSign=false",
            "-c",
            "push.pushOption=",
            "-c",
            "push.recurseSubmodules=no",
        ];
        let push = ["push", "--quiet", "--no-verify", "--force"];
        git.command(&[&settings[..], &push].concat())
            .arg(&to)
            .arg(&refspec)
            .run_ok(Kind::Usage)?;
        store.refresh()?;
    }
    let title = git.ok(&["log", "--no-show-signature", "-1", "--format=%s", &commit])?;
    Ok(Revision {
        label: commit.chars().take(12).collect(),
        name: commit,
        title,
        tree,
    })
}

/// Returns whether the store is known to have a tree with all its files.
fn has(store: &Objects, tree: &str) -> Result<bool> {
    Ok(store.reference(&format!("refs/measured/{tree}"))?.is_some() || store.has_named(tree)?)
}

impl Revisions for CommitsHere {
    fn release(&self) -> &str {
        &self.release
    }

    fn states(&self) -> &[Revision] {
        &self.states
    }

    fn item(&self, state: usize) -> Result<BuildItem> {
        let of = &self.states[state];
        Ok(BuildItem {
            label: format!("commit {}", of.label),
            point: Point::Step(state),
            patch: None,
            touches: Vec::new(),
            tree: of.tree.clone(),
            // The same for all commits: compilers take nothing for unchanged that a commit hides.
            base: self.states[0].tree.clone(),
            release: self.release.clone(),
        })
    }

    fn noun(&self) -> &'static str {
        "commit"
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
