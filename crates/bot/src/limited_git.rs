//! Runs git on commits of untrusted authors: with limits of time and output, and until the job is cancelled. A tree of a few kilobytes can list more files than any machine can hold.

use std::time::Duration;

use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::git::Git;
use perfquilt_system::process::{Command, Output};

/// The timeout of a git command.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Git in the repository with the commits of pull requests.
pub(super) struct LimitedGit<'a> {
    git: Git,
    cancelled: &'a dyn Fn() -> bool,
}

impl<'a> LimitedGit<'a> {
    /// Returns git in the repository of `git`, whose commands end when `cancelled` returns true.
    pub(super) fn new(git: Git, cancelled: &'a dyn Fn() -> bool) -> Self {
        LimitedGit { git, cancelled }
    }

    /// Returns whether the job is cancelled.
    pub(super) fn cancelled(&self) -> &'a dyn Fn() -> bool {
        self.cancelled
    }

    /// Runs a command that may print up to `most` bytes, whatever its exit code.
    ///
    /// # Errors
    /// [`Kind::Series`] when it takes too long or prints more; [`Kind::Interrupted`] when it is cancelled.
    pub(super) fn run(&self, args: &[&str], most: usize) -> Result<Output> {
        self.finish(&self.command(args, most))
    }

    /// Runs a command like [`LimitedGit::run`] and returns what it prints.
    pub(super) fn output(&self, args: &[&str], most: usize) -> Result<Vec<u8>> {
        let command = self.command(args, most);
        let output = self.finish(&command)?;
        Ok(command.require_success(output, Kind::Internal)?.stdout)
    }

    fn command(&self, args: &[&str], most: usize) -> Command {
        self.git.command(args).output_limit(most)
    }

    fn finish(&self, command: &Command) -> Result<Output> {
        let output = command.run_cancellable(TIMEOUT, self.cancelled);
        output.map_err(|error| match error.kind() {
            Kind::Bench => {
                let what = "the commits of the pull request are too large to be read";
                Error::pull_request_too_large(what).details([error.message().to_owned()])
            }
            _ => error,
        })
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Writes a tree of ten levels with ten references each, which lists ten billion files, and returns its id.
    pub(in super::super) fn tree_bomb(git: &Git) -> String {
        let mut below = git
            .run_with_input(&["hash-object", "-w", "--stdin"], b"x")
            .unwrap();
        for level in 0..10 {
            let kind = if level == 0 {
                "100644 blob"
            } else {
                "040000 tree"
            };
            let entries = (0..10).map(|at| format!("{kind} {below}\t{at}\n"));
            let entries: String = entries.collect();
            below = git.run_with_input(&["mktree"], entries.as_bytes()).unwrap();
        }
        below
    }
}
