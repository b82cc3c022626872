//! Upstream's commits between two releases, if the releases come from a git repository with history.

use std::path::PathBuf;

use super::evidence::claimed_commits;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_series::series::Patch;
use perfquilt_series::series::path::shown;
use perfquilt_series::upstream::{self, Release};
use perfquilt_system::git::own_git;
use perfquilt_system::process::{Command, check_interrupted};

/// Upstream's commits between two releases; empty if there is no history.
#[derive(Debug, Default)]
pub struct History {
    store: PathBuf,
    /// The commits of the releases.
    ends: Option<(String, String)>,
}

impl History {
    /// Returns the history between two releases, and fetches it if their repository provides it.
    pub fn between(ws: &Workspace, from: &Release, to: &Release) -> Result<History> {
        Ok(History {
            store: ws.object_store(),
            ends: upstream::history(ws, &from.version, &to.version)?,
        })
    }

    /// Returns the commit in the patch's `Applied-Upstream:` that the new release contains, abbreviated.
    pub fn contains(&self, patch: &Patch) -> Result<Option<String>> {
        let Some((_, new)) = &self.ends else {
            return Ok(None);
        };
        for commit in claimed_commits(patch) {
            let found = self
                .git()
                .args(["rev-parse", "--quiet", "--verify"])
                .arg(format!("{commit}^{{commit}}"))
                .run()?;
            let full = found.stdout_text().trim().to_owned();
            if !found.success() || full.is_empty() {
                continue;
            }
            let base = self.git().args(["merge-base", &full, new]).run()?;
            if base.stdout_text().trim() == full {
                return Ok(Some(full[..12].to_owned()));
            }
        }
        Ok(None)
    }

    /// Describes the commit between the releases that changes `paths` in the same way as `diff`, by patch id.
    pub fn same_patch(&self, diff: &[u8], paths: &[Vec<u8>]) -> Result<Option<String>> {
        let Some((old, new)) = &self.ends else {
            return Ok(None);
        };
        let own = self.patch_ids(diff)?;
        let Some((own, _)) = own.first() else {
            return Ok(None);
        };
        let names: Vec<String> = paths.iter().map(|path| shown(path)).collect();
        let listed = self
            .git()
            .args([
                "--literal-pathspecs",
                "log",
                "--no-merges",
                "--full-index",
                "--binary",
                "-p",
            ])
            .args([
                "--no-color",
                "--no-ext-diff",
                "--no-textconv",
                "--pretty=commit %H",
            ])
            .arg(format!("{old}..{new}"))
            .arg("--")
            .args(&names)
            .run()?;
        check_interrupted()?;
        if !listed.success() {
            return Ok(None);
        }
        let ids = self.patch_ids(&listed.stdout)?;
        let Some((_, commit)) = ids.iter().find(|(id, _)| id == own) else {
            return Ok(None);
        };
        let all = self
            .git()
            .args(["diff-tree", "--no-commit-id", "--name-only", "-r", commit])
            .run()?;
        let others = all
            .stdout_text()
            .lines()
            .filter(|line| !names.iter().any(|name| name == line))
            .count();
        let short = commit.get(..12).unwrap_or(commit);
        Ok(Some(match others {
            0 => format!("= {short} (patch-id)"),
            1 => format!("= {short} (patch-id; it changes 1 more file)"),
            more => format!("= {short} (patch-id; it changes {more} more files)"),
        }))
    }

    fn git(&self) -> Command {
        own_git(&self.store)
    }

    /// Returns git's stable patch ids of the diffs in a text, each with its commit.
    fn patch_ids(&self, text: &[u8]) -> Result<Vec<(String, String)>> {
        let output = self
            .git()
            .args(["patch-id", "--stable"])
            .stdin(text)
            .run()?;
        Ok(output
            .stdout_text()
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(id, commit)| (id.to_owned(), commit.to_owned()))
            .collect())
    }
}
