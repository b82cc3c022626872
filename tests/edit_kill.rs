//! `refresh` killed at any moment: the series is the old one or the new one, and nothing is lost. And `edit`
//! while git checks out.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::time::Instant;

use support::{Space, run_in};

const PATCHES: usize = 12;

/// A series of canonical patches, and an edit branch on which all of them change.
fn space() -> Space {
    let space = Space::new();
    let text: String = (1..=100).map(|n| format!("{n}\n")).collect();
    space.write("up/a.c", text);
    for number in 1..=PATCHES {
        let line = number * 8;
        space.patch(
            &format!("{number}.patch"),
            format!(
                "Subject: patch {number}\n\n--- a/a.c\n+++ b/a.c\n@@ -{line},2 +{line},2 @@\n-{line}\n+patched\n {}\n",
                line + 1
            ),
        );
    }
    space.write(".gitconfig", "[user]\nname = t\nemail = t@example.org\n");
    space.ok(&["upstream", "fetch"]);
    space.ok(&["lint", "--fix"]);
    space.ok(&["edit"]);
    let tree = space.path(".perfquilt/edit/srv-1.0");
    let commits = run_in(&tree, "git", &["rev-list", "--reverse", "srv-1.0..HEAD"]).stdout_text();
    let (first, rest) = commits.split_once('\n').unwrap();
    let mut todo =
        format!("pick {first}\nexec sed -i 1itop a.c && git commit -qa --amend --no-edit\n");
    for commit in rest.lines() {
        todo.push_str(&format!("pick {commit}\n"));
    }
    space.write("todo", todo);
    let editor = format!("sequence.editor=cp {}", space.path("todo").display());
    let rebased = run_in(
        &tree,
        "git",
        &["-c", &editor, "rebase", "-q", "-i", "srv-1.0"],
    );
    assert!(rebased.success(), "{}", rebased.stderr_text());
    space
}

/// The series and its patches.
fn snapshot(space: &Space) -> BTreeMap<String, String> {
    let mut files = BTreeMap::from([("series".to_owned(), space.read("series"))]);
    for entry in std::fs::read_dir(space.path("patches")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = space.read(&format!("patches/{name}"));
        files.insert(name, text);
    }
    files
}

#[test]
fn a_kill_leaves_the_old_series_or_the_new_one() {
    let space = space();
    let spare = tempfile::tempdir().unwrap();
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let from = format!("{}/.", from.display());
        let copied = run_in(to, "cp", &["-a", &from, "."]);
        assert!(copied.success(), "{}", copied.stderr_text());
    };
    copy(space.root(), spare.path());
    let old = snapshot(&space);
    let started = Instant::now();
    space.ok(&["refresh"]);
    let whole = started.elapsed();
    let new = snapshot(&space);
    let same = new
        .iter()
        .filter(|(name, text)| old.get(*name) == Some(text));
    assert_eq!(same.count(), 1, "all but the series are written anew");
    for part in 0..10_u32 {
        for entry in std::fs::read_dir(space.root()).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                std::fs::remove_dir_all(path).unwrap();
            } else {
                std::fs::remove_file(path).unwrap();
            }
        }
        copy(spare.path(), space.root());
        space.run_and_kill(&["refresh"], whole * part / 9);
        // Any command makes up for what was begun.
        space.ok(&["status"]);
        let found = snapshot(&space);
        assert!(found == old || found == new, "{found:?}");
        space.ok(&["edit"]);
        space.ok(&["refresh"]);
        assert_eq!(snapshot(&space), new);
        let out = space.ok(&["refresh"]);
        assert!(
            out.contains("series and patches are as the branch is"),
            "{out}"
        );
    }
}

#[test]
fn an_edit_branch_that_was_written_back_is_taken_up_though_nobody_noted_it() {
    let space = space();
    let session = ".perfquilt/edit/srv-1.0.json";
    let before = space.read(session);
    space.ok(&["refresh"]);
    let written = snapshot(&space);
    // Killed when everything was written but this.
    space.write(session, before);
    space.ok(&["edit"]);
    assert_eq!(snapshot(&space), written);
    space.ok(&["edit", "--close"]);
}

#[test]
fn a_worktree_that_git_was_killed_over_is_made_again_or_removed() {
    let space = Space::new();
    space.write("up/a.c", "1\n2\n");
    let patch = "Subject: one\n\n--- a/a.c\n+++ b/a.c\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n";
    space.patch("one.patch", patch);
    let tree = space.path(".perfquilt/edit/srv-1.0");
    let session = space.path(".perfquilt/edit/srv-1.0.json");
    let locked = space.path(".perfquilt/objects.git/worktrees/srv-1.0/locked");
    let half_made = || {
        std::fs::remove_file(tree.join("a.c")).unwrap();
        std::fs::write(&locked, "initializing").unwrap();
    };
    // Before the branch counted as made, after that, and with nothing of the folder left.
    for part in ["session", "checkout", "folder"] {
        space.ok(&["edit"]);
        half_made();
        match part {
            "session" => std::fs::remove_file(&session).unwrap(),
            "folder" => std::fs::remove_dir_all(&tree).unwrap(),
            _ => {}
        }
        space.ok(&["edit"]);
        assert_eq!(space.read(".perfquilt/edit/srv-1.0/a.c"), "one\n2\n");
        let status = run_in(&tree, "git", &["status", "--porcelain"]);
        assert_eq!(status.stdout_text(), "", "{part}");
        half_made();
        space.ok(&["edit", "--close"]);
        assert!(!tree.exists() && !locked.exists(), "{part}");
    }
}
