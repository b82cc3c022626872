//! Commits of any git repository as states: the good one, the one checked out, the bad one.

use std::path::Path;

use super::states::States;
use crate::bisect::{Next, State};
use crate::build::BuildItem;
use crate::error::{Error, Result};
use crate::git::Git;
use crate::point::Point;
use crate::upstream::Objects;
use crate::workspace::Workspace;

/// Three commits of the repository that somebody bisects with git.
#[derive(Debug)]
pub struct CommitsHere {
    release: String,
    states: Vec<State>,
}

impl CommitsHere {
    /// The commits `good`, `HEAD` and `bad` of the repository at `folder`. Their files are copied into the
    /// object store of `ws`, unless they are there.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when `folder` is no repository or has no such commits.
    pub fn new(ws: &Workspace, folder: &Path, (good, bad): (&str, &str)) -> Result<Self> {
        let git = Git::new(folder);
        let source = ws.config.release(None)?;
        let store = Objects::open_or_create(&ws.object_store())?;
        let states = [good, "HEAD", bad]
            .map(|revision| state(ws, &git, &store, revision))
            .into_iter()
            .collect::<Result<Vec<State>>>()?;
        if states[0].name == states[2].name {
            return Err(Error::usage("good and bad are the same commit"));
        }
        Ok(CommitsHere {
            release: format!("{}-{}", ws.config.upstream.name, source.version),
            states,
        })
    }
}

fn state(ws: &Workspace, git: &Git, store: &Objects, revision: &str) -> Result<State> {
    if revision.starts_with('-') {
        return Err(Error::usage(format!("`{revision}` is no commit")));
    }
    let of = |what: &str| {
        let output = git.run(&[
            "rev-parse",
            "--verify",
            "--quiet",
            &format!("{revision}^{{{what}}}"),
        ])?;
        match output.success() {
            true => Ok(output.stdout_text().trim().to_owned()),
            false => Err(Error::usage(format!("`{revision}` is no commit here"))
                .hint("run it in the repository that is bisected, and name the workspace with -C")),
        }
    };
    let (commit, tree) = (of("commit")?, of("tree")?);
    if !has(store, &tree)? {
        // The files alone, without the history: a commit without parents.
        let name = [
            "-c",
            "user.name=perfquilt",
            "-c",
            "user.email=perfquilt@localhost",
        ];
        let mut args = name.to_vec();
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
        git.ok(&[
            "push",
            "--quiet",
            "--no-verify",
            "--force",
            &to.to_string_lossy(),
            &refspec,
        ])?;
        store.database()?.refresh()?;
    }
    let title = git.ok(&["log", "-1", "--format=%s", &commit])?;
    Ok(State {
        label: commit.chars().take(12).collect(),
        name: commit,
        title,
        tree,
    })
}

/// Whether the store has a tree with everything in it, as far as that is known.
fn has(store: &Objects, tree: &str) -> Result<bool> {
    Ok(store.reference(&format!("refs/measured/{tree}"))?.is_some() || store.has_named(tree)?)
}

impl States for CommitsHere {
    fn release(&self) -> &str {
        &self.release
    }

    fn states(&self) -> &[State] {
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
            release: self.release.clone(),
        })
    }

    fn noun(&self) -> &'static str {
        "commit"
    }

    fn next(&self, _from: usize, _to: usize, _workload: &str) -> Vec<Next> {
        Vec::new()
    }
}
