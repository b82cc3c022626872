//! What the tests of several crates share. No part of the product: only `[dev-dependencies]` name it.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a test waits for what a loaded machine does in less than a second at other times.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns whether `condition` holds within 20 seconds.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The environment of a git that reads no settings of user and machine, and commits as the author `t`.
pub const GIT_ENVIRONMENT: [(&str, &str); 6] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "t"),
    ("GIT_AUTHOR_EMAIL", "t@example.org"),
    ("GIT_COMMITTER_NAME", "t"),
    ("GIT_COMMITTER_EMAIL", "t@example.org"),
];

/// Runs git in `folder` as the author `t`, without the settings of user and machine, and returns its output.
///
/// # Panics
/// When git fails.
pub fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(folder)
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs(GIT_ENVIRONMENT)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {text}{errors}");
    text.into_owned()
}

/// Commits all files below `folder` with `message`, also if nothing changed.
pub fn commit_all(folder: &Path, message: &str) {
    git(folder, &["add", "--all"]);
    git(
        folder,
        &["commit", "--quiet", "--allow-empty", "-m", message],
    );
}

/// Waits for a value.
///
/// # Panics
/// When there is none within 20 seconds.
pub fn wait_for<T>(mut value: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    let is_there = eventually(|| {
        found = value();
        found.is_some()
    });
    assert!(is_there, "never");
    found.unwrap()
}
