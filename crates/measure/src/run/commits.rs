//! Upstream's commits between two releases as states, with the series on top of each.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::request::BisectRequest;
use super::revisions::Revisions;
use perfquilt_build::BuildItem;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::{NextCommand, Revision};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;
use perfquilt_series::series::Series;
use perfquilt_series::upstream::{self, Release};
use perfquilt_system::git::{Git, nul_separated};

/// Upstream's commits from one release to the next, first parents only.
pub struct CommitRevisions<'a> {
    ws: &'a Workspace,
    from: Release,
    to: Release,
    /// The patches on top of each commit; empty for upstream alone.
    series: Series,
    states: Vec<Revision>,
    commits: Vec<Commit>,
    /// Trees with the series on top, made on demand.
    trees: RefCell<BTreeMap<usize, Result<String>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Commit {
    id: String,
    tree: String,
    title: String,
}

impl<'a> CommitRevisions<'a> {
    /// Lists the commits between the releases called `old` and `new`, which come from one git repository; with
    /// `bare`, without the series.
    pub fn new(
        ws: &'a Workspace,
        (old, new): (&str, &str),
        bare: bool,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let from = upstream::ensure(ws, Some(old), progress)?;
        let to = upstream::ensure(ws, Some(new), progress)?;
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
        let (first, last) = upstream::history(ws, old, new, progress)?.ok_or_else(no_history)?;
        let git = Git::bare(&ws.object_store());
        // With diverged branches or a shallow history, one commit would stand for many.
        let descends = git.run(&["merge-base", "--is-ancestor", &first, &last])?;
        if !descends.success() {
            return Err(no_history());
        }
        let commits = commits(&git, &first, &last)?;
        if commits.is_empty() {
            return Err(no_history());
        }
        // The trees of upstream alone come from the log; applying the series takes a moment per commit.
        let tree = |tree: &str| {
            if series.patches().is_empty() {
                tree.to_owned()
            } else {
                String::new()
            }
        };
        let mut states = vec![Revision {
            label: from.version.clone(),
            name: series_name(&from, &series),
            title: String::new(),
            tree: tree(&from.tree),
        }];
        states.extend(commits.iter().map(|commit| Revision {
            label: commit.id[..12].to_owned(),
            name: commit.id.clone(),
            title: commit.title.clone(),
            tree: tree(&commit.tree),
        }));
        Ok(CommitRevisions {
            ws,
            from,
            to,
            series,
            states,
            commits,
            trees: RefCell::default(),
        })
    }

    fn tree(&self, state: usize) -> Result<String> {
        let Some(index) = state.checked_sub(1) else {
            return self.on(&self.from.commit, &self.from.tree, &self.from.name);
        };
        let commit = &self.commits[index];
        self.on(
            &commit.id,
            &commit.tree,
            &format!("commit {}", &commit.id[..12]),
        )
    }

    /// Applies the series to a commit's tree; returns the resulting tree.
    fn on(&self, commit: &str, tree: &str, name: &str) -> Result<String> {
        if self.series.patches().is_empty() {
            return Ok(tree.to_owned());
        }
        let to = Release {
            name: name.to_owned(),
            version: self.from.version.clone(),
            commit: commit.to_owned(),
            tree: tree.to_owned(),
            sha256: String::new(),
        };
        perfquilt_rebase::tree_on(self.ws, &self.from, &to, &self.series)
    }
}

impl Revisions for CommitRevisions<'_> {
    fn release(&self) -> &str {
        &self.from.name
    }

    fn states(&self) -> &[Revision] {
        &self.states
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
        let label = &self.states[state].label;
        let with = if self.series.patches().is_empty() {
            ""
        } else {
            " with the series"
        };
        Ok(BuildItem {
            label: match state {
                0 => format!("{}{with}", self.from.name),
                _ => format!("commit {label}{with}"),
            },
            point: Point::Step(state),
            patch: None,
            touches: Vec::new(),
            tree,
            base: self.from.tree.clone(),
            release: self.from.name.clone(),
        })
    }

    fn noun(&self) -> &'static str {
        "commit"
    }

    fn another_end(&self, which: &str) -> String {
        format!(
            "`perfquilt bisect commits` takes two releases: name another one as the {which} one"
        )
    }

    fn next(&self, from: usize, to: usize, request: &BisectRequest) -> Vec<NextCommand> {
        let mut next: Vec<NextCommand> = (from + 1..=to)
            .take(3)
            .filter_map(|state| self.commits.get(state - 1))
            .map(|commit| NextCommand {
                what: "the commit, from the workspace's own folder".to_owned(),
                command: format!("git -C .perfquilt/objects.git show {}", &commit.id[..12]),
            })
            .collect();
        if !self.series.patches().is_empty() {
            let meter = if request.meter == Meter::Time.into() {
                String::new()
            } else {
                format!(" --meter {}", request.meter)
            };
            next.push(NextCommand {
                what: "whether the bare release got slower or the patches are worth less"
                    .to_owned(),
                command: format!(
                    "perfquilt bisect releases {} {} --workload {}{meter}{}",
                    self.from.version,
                    self.to.version,
                    request.workload,
                    request.with_preset()
                ),
            });
        }
        next
    }
}

/// Returns the name of the first state, made of the release and its series, so that an edited series makes
/// another question.
fn series_name(release: &Release, series: &Series) -> String {
    use sha2::{Digest, Sha256};
    if series.patches().is_empty() {
        return release.name.clone();
    }
    let mut digest = Sha256::new();
    for patch in series.patches() {
        digest.update(format!("{}\n{:?}\n", patch.name, patch.files));
    }
    let digest = hex::encode(digest.finalize());
    format!("{} with series {}", release.name, &digest[..12])
}

/// Returns the commits after `first` up to `last`, oldest first.
fn commits(git: &Git, first: &str, last: &str) -> Result<Vec<Commit>> {
    let log = |options: &[&str], range: &str| {
        let common = ["log", "--no-show-signature", "-z", "--format=%H %T %s"];
        git.run(&[&common[..], options, &[range]].concat())
    };
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
