//! Upstream's commits between two releases as states, with the series on top of each.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::request::{BisectRequest, RevisionRange};
use super::revisions::Revisions;
use perfquilt_build::BuildItem;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::{NextCommand, Revision};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;
use perfquilt_series::series::Series;
use perfquilt_series::upstream::{self, Release};
use perfquilt_system::git::{Git, nul_separated};

/// Upstream's commits from one release to the next, first parents only.
pub struct CommitRevisions<'a> {
    ws: &'a Workspace,
    from: Release,
    /// The version of the last state, if it is a release.
    to: Option<String>,
    /// The patches on top of each commit; empty for upstream alone.
    series: Series,
    range: RevisionRange,
    /// The commits of the states.
    commits: Vec<Commit>,
    /// Trees with the series on top, made on demand.
    trees: RefCell<BTreeMap<usize, Result<String>>>,
}

/// A commit of upstream's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) id: String,
    pub(super) tree: String,
    /// The first line of its message.
    pub(super) title: String,
}

impl Commit {
    /// Returns its short name.
    pub(super) fn label(&self) -> String {
        self.id[..12].to_owned()
    }

    /// Returns it as a release that the series of `from` can be moved to.
    pub(super) fn as_release(&self, from: &Release) -> Release {
        Release {
            name: format!("commit {}", self.label()),
            version: from.version.clone(),
            commit: self.id.clone(),
            tree: self.tree.clone(),
            sha256: String::new(),
        }
    }
}

impl<'a> CommitRevisions<'a> {
    /// Lists the commits between the releases called `old` and `new`, which come from one git repository; with
    /// `bare`, without the series.
    pub fn new(ws: &'a Workspace, [old, new]: [&str; 2], bare: bool) -> Result<Self> {
        let from = upstream::ensure(ws, Some(old))?;
        let to = upstream::ensure(ws, Some(new))?;
        let series = if bare {
            Series::default()
        } else {
            Series::load_for(ws, Some(old))?
        };
        let no_history = || {
            Error::commit(format!(
                "there is no history between {} and {}",
                from.name, to.name
            ))
            .hint(
                "both releases must be tags of one git remote, the second one a descendant of the first; \
                 `perfquilt bisect releases` compares any two",
            )
        };
        let (first, last) = upstream::history(ws, old, new)?.ok_or_else(no_history)?;
        let git = Git::bare(&ws.object_store());
        // With diverged branches or a shallow history, one commit would stand for many.
        let descends = git.run(&["merge-base", "--is-ancestor", &first, &last])?;
        if !descends.success() {
            return Err(no_history());
        }
        let listed = commits(&git, &first, &last)?;
        if listed.is_empty() {
            return Err(no_history());
        }
        let mut commits = vec![Commit {
            id: from.commit.clone(),
            tree: from.tree.clone(),
            title: String::new(),
        }];
        commits.extend(listed);
        let mut found = Self::of(ws, &from, series, commits);
        found.range.states[0].label.clone_from(&from.version);
        found.range.states[0].name = series_name(&from.name, &found.series);
        found.to = Some(to.version);
        Ok(found)
    }

    /// Returns the `commits` as states, with the `series` of `from` on top of each.
    pub(super) fn of(
        ws: &'a Workspace,
        from: &Release,
        series: Series,
        commits: Vec<Commit>,
    ) -> Self {
        // The trees of upstream alone come from the log; applying the series takes a moment per commit.
        let is_bare = series.patches().is_empty();
        let state = |commit: &Commit| Revision {
            label: commit.label(),
            name: commit.id.clone(),
            title: commit.title.clone(),
            tree: if is_bare {
                commit.tree.clone()
            } else {
                String::new()
            },
        };
        let mut states: Vec<Revision> = commits.iter().map(state).collect();
        if let Some(first) = states.first_mut() {
            first.name = series_name(&first.name, &series);
        }
        CommitRevisions {
            ws,
            from: from.clone(),
            to: None,
            series,
            range: RevisionRange {
                release: from.name.clone(),
                noun: "commit",
                states,
            },
            commits,
            trees: RefCell::default(),
        }
    }

    /// Applies the series to the tree of a state; returns the resulting tree.
    fn tree(&self, state: usize) -> Result<String> {
        let commit = &self.commits[state];
        if self.series.patches().is_empty() {
            return Ok(commit.tree.clone());
        }
        let mut to = commit.as_release(&self.from);
        if commit.id == self.from.commit {
            to.name.clone_from(&self.from.name);
        }
        perfquilt_rebase::tree_on(self.ws, &self.from, &to, &self.series)
    }
}

impl Revisions for CommitRevisions<'_> {
    fn range(&self) -> &RevisionRange {
        &self.range
    }

    fn item(&self, state: usize) -> Result<BuildItem> {
        let known = self.trees.borrow().get(&state).cloned();
        let tree = match known {
            Some(tree) => tree,
            None => {
                let tree = self.tree(state);
                // Other errors may pass on the next attempt.
                let is_known = tree
                    .as_ref()
                    .map_or_else(|error| error.kind() == Kind::Series, |_| true);
                if is_known {
                    self.trees.borrow_mut().insert(state, tree.clone());
                }
                tree
            }
        }?;
        let label = &self.range.states[state].label;
        let with = if self.series.patches().is_empty() {
            ""
        } else {
            " with the series"
        };
        Ok(BuildItem {
            label: if self.commits[state].id == self.from.commit {
                format!("{}{with}", self.from.name)
            } else {
                format!("commit {label}{with}")
            },
            point: Point::Step(state),
            patch: None,
            touches: Vec::new(),
            tree,
            base: self.from.tree.clone(),
            release: self.from.name.clone(),
        })
    }

    fn another_end(&self, which: &str) -> String {
        format!(
            "`perfquilt bisect commits` takes two releases: name another one as the {which} one"
        )
    }

    fn next(&self, from: usize, to: usize, request: &BisectRequest) -> Vec<NextCommand> {
        let mut next: Vec<NextCommand> = (from + 1..=to)
            .take(3)
            .filter_map(|state| self.commits.get(state))
            .map(|commit| NextCommand {
                what: "the commit, from the workspace's own folder".to_owned(),
                command: format!("git -C .perfquilt/objects.git show {}", commit.label()),
            })
            .collect();
        if let Some(version) = &self.to
            && !self.series.patches().is_empty()
        {
            let meter = if request.question.meter == Meter::Time.into() {
                String::new()
            } else {
                format!(" --meter {}", request.question.meter)
            };
            next.push(NextCommand {
                what: "whether the bare release got slower or the patches are worth less"
                    .to_owned(),
                command: format!(
                    "perfquilt bisect releases {} {} --workload {}{meter}{}",
                    self.from.version,
                    version,
                    request.question.workload,
                    request.with_preset()
                ),
            });
        }
        next
    }
}

/// Returns the name of the first state, made of its own and the series, so that an edited series makes another question.
fn series_name(first: &str, series: &Series) -> String {
    use sha2::{Digest, Sha256};
    if series.patches().is_empty() {
        return first.to_owned();
    }
    let mut digest = Sha256::new();
    for patch in series.patches() {
        digest.update(format!("{}\n{:?}\n", patch.name, patch.files));
    }
    let digest = hex::encode(digest.finalize());
    format!("{first} with series {}", &digest[..12])
}

/// Returns the commits after `first` up to `last`, oldest first.
pub(super) fn commits(git: &Git, first: &str, last: &str) -> Result<Vec<Commit>> {
    let log = |options: &[&str], range: &str| git.run(&[&LOG[..], options, &[range]].concat());
    let all = ["--first-parent", "--reverse"];
    let between = log(&all, &format!("{first}..{last}"))?;
    let mut commits = entries(&between.stdout_text())?;
    let Some(oldest) = commits.first() else {
        return Ok(commits);
    };
    // The release may be on a side branch that was merged later. Then its difference from the start of the
    // first-parent line is a step of its own, for which the oldest commit is not to blame.
    let log = log(&["-1"], &format!("{}^", oldest.id))?;
    // A shallow history has no parent here.
    if !log.success() {
        return Ok(commits);
    }
    let mut begins = entries(&log.stdout_text())?;
    if begins.first().is_some_and(|begin| begin.id != first) {
        begins.append(&mut commits);
        return Ok(begins);
    }
    Ok(commits)
}

/// Begins git's command that lists commits for [`entries`].
const LOG: [&str; 4] = ["log", "--no-show-signature", "-z", "--format=%H %T %s"];

/// Returns the commit called `name`.
pub(super) fn commit_of(git: &Git, name: &str) -> Result<Commit> {
    let text = git.ok(&[&LOG[..], &["-1", name]].concat())?;
    let found = entries(&text)?.pop();
    found.ok_or_else(|| Error::internal("git log lists no commit"))
}

/// Parses the entries of the log; an invalid entry is an error, so that no commit is lost.
fn entries(text: &str) -> Result<Vec<Commit>> {
    nul_separated(text)
        .map(|entry| {
            commit(entry).ok_or_else(|| {
                let error = Error::internal("unexpected output of git log");
                error.details(entry.lines().take(4))
            })
        })
        .collect()
}

/// Parses one entry of the log.
fn commit(entry: &str) -> Option<Commit> {
    let mut words = entry.splitn(3, ' ');
    let (id, tree) = (words.next()?, words.next()?);
    let is_name = |word: &str| word.len() >= 40 && word.bytes().all(|b| b.is_ascii_hexdigit());
    (is_name(id) && is_name(tree)).then(|| Commit {
        id: id.to_owned(),
        tree: tree.to_owned(),
        title: words.next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_read() {
        let (id, tree) = ("a".repeat(40), "b".repeat(40));
        let found = commit(&format!("{id} {tree} a title with words")).unwrap();
        assert_eq!(
            (found.id, found.tree, found.title.as_str()),
            (id, tree, "a title with words")
        );
        assert!(commit("").is_none() && commit("x y z").is_none());
    }

    #[test]
    fn no_commit_is_left_out_of_the_log() {
        let line = |name: &str| format!("{} {} title", name.repeat(40), "f".repeat(40));
        let (first, second) = (line("a"), line("b"));
        let all = entries(&format!("{first}\0{second}\0")).unwrap();
        assert_eq!(all.len(), 2);
        assert!(entries("").unwrap().is_empty());
        let error = entries(&format!("{first}\0gpg: no signature\n{second}\0")).unwrap_err();
        assert_eq!(error.detail_lines()[0], "gpg: no signature");
    }
}
