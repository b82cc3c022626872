//! `refresh` killed at any moment: the series is the old one or the new one, and nothing is lost. And `edit`
//! while git checks out or rebases.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use perfquilt_system::process::find_program;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{TestEnvironment, run_in};

const PATCHES: usize = 12;

/// A series of canonical patches of one file, and of patches that add one each.
fn series(added: usize) -> TestEnvironment {
    let space = TestEnvironment::new();
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
    for number in 1..=added {
        space.patch(
            &format!("new-{number}.patch"),
            format!(
                "Subject: file {number}\n\n--- /dev/null\n+++ b/new-{number}.c\n@@ -0,0 +1 @@\n+new\n"
            ),
        );
    }
    space.configure_git("[user]\nname = t\nemail = t@example.org\n");
    space.ok(&["upstream", "fetch"]);
    space.ok(&["lint", "--fix"]);
    space
}

/// An edit branch on which all patches change.
fn space() -> TestEnvironment {
    let space = series(0);
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

/// An edit branch of which git put off all patches but the first, which is another now.
fn amended() -> TestEnvironment {
    let space = series(PATCHES);
    space.ok(&["edit", "1"]);
    let tree = space.path(".perfquilt/edit/srv-1.0");
    std::fs::write(tree.join("work.c"), "mine\n").unwrap();
    for words in [
        &["add", "work.c"][..],
        &["commit", "-q", "--amend", "--no-edit"][..],
    ] {
        let done = run_in(&tree, "git", words);
        assert!(done.success(), "{}", done.stderr_text());
    }
    space
}

fn copy(from: &Path, to: &Path) {
    let from = format!("{}/.", from.display());
    let copied = run_in(to, "cp", &["-a", &from, "."]);
    assert!(copied.success(), "{}", copied.stderr_text());
}

/// Makes the workspace what `spare` is.
fn put_back(space: &TestEnvironment, spare: &Path) {
    for entry in std::fs::read_dir(space.workspace()).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }
    copy(spare, &space.workspace());
}

/// Runs the program with a git of which each rebase is killed after a while, and the program with it if not `alone`.
fn run_with_killed_git(space: &TestEnvironment, args: &[&str], seconds: &str, alone: bool) {
    let git = find_program("git").unwrap();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in\n*\" rebase \"*)\n  \
         timeout --foreground -s KILL {seconds} {git} \"$@\"; code=$?\n  \
         [ $code -le 1 ] || {alone} || kill -KILL \"$(cut -d' ' -f4 /proc/$PPID/stat)\"\n  \
         exit $code ;;\nesac\nexec {git} \"$@\"\n",
        git = git.display()
    );
    // By another process: this one may be starting programs that inherit an open file.
    space.write("git.sh", script);
    let words = ["-D", "-m", "755", "git.sh", "bin/git"];
    assert!(run_in(&space.workspace(), "install", &words).success());
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", space.path("bin").display());
    let _ended = space.command(args).env("PATH", path).output();
}

/// When a rebase of these patches may be cut off, in seconds.
const MOMENTS: [&str; 6] = ["0.004", "0.01", "0.02", "0.04", "0.06", "0.1"];

/// The series and its patches.
fn snapshot(space: &TestEnvironment) -> BTreeMap<String, String> {
    let mut files = BTreeMap::from([("series".to_owned(), space.read("series"))]);
    for entry in std::fs::read_dir(space.path("patches")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = space.read(&format!("patches/{name}"));
        files.insert(name, text);
    }
    files
}

/// Result of a `refresh` that nobody cuts off.
struct Refreshed {
    /// The workspace before it.
    spare: TempDir,
    old: BTreeMap<String, String>,
    new: BTreeMap<String, String>,
    /// How long it takes.
    whole: Duration,
}

impl Refreshed {
    fn of(space: &TestEnvironment) -> Self {
        let spare = tempfile::tempdir().unwrap();
        copy(&space.workspace(), spare.path());
        let old = snapshot(space);
        let started = Instant::now();
        space.ok(&["refresh"]);
        Refreshed {
            whole: started.elapsed(),
            spare,
            old,
            new: snapshot(space),
        }
    }
}

#[test]
fn a_kill_leaves_the_old_series_or_the_new_one() {
    let space = space();
    let Refreshed {
        spare,
        old,
        new,
        whole,
    } = Refreshed::of(&space);
    let same = new
        .iter()
        .filter(|(name, text)| old.get(*name) == Some(text));
    assert_eq!(same.count(), 1, "all but the series are written anew");
    for part in 0..10_u32 {
        put_back(&space, spare.path());
        space.run_and_signal(&["refresh"], whole * part / 9, Signal::KILL);
        // Any command makes up for what was begun.
        space.ok(&["status"]);
        let found = snapshot(&space);
        assert!(found == old || found == new, "{found:?}");
        space.ok(&["edit"]);
        space.ok(&["refresh"]);
        assert_eq!(snapshot(&space), new);
        let out = space.ok(&["refresh"]);
        assert!(
            out.contains("series and patches agree with the branch"),
            "{out}"
        );
    }
}

#[test]
fn no_patch_is_lost_where_git_is_putting_them_back() {
    let space = amended();
    let Refreshed {
        spare,
        old,
        new,
        whole,
    } = Refreshed::of(&space);
    assert_eq!(new.len(), 2 * PATCHES + 1);
    let check = |what: &str| {
        space.ok(&["status"]);
        let found = snapshot(&space);
        assert!(found == old || found == new, "{what}: {found:?}");
        space.ok(&["refresh"]);
        assert_eq!(snapshot(&space), new, "{what}");
        let out = space.ok(&["refresh"]);
        assert!(
            out.contains("series and patches agree with the branch"),
            "{out}"
        );
    };
    for signal in [Signal::INT, Signal::KILL] {
        for part in 0..6_u32 {
            put_back(&space, spare.path());
            space.run_and_signal(&["refresh"], whole * part / 6, signal);
            check(&format!("{signal:?} at {part}/6"));
        }
    }
    for alone in [true, false] {
        for seconds in MOMENTS {
            put_back(&space, spare.path());
            run_with_killed_git(&space, &["refresh"], seconds, alone);
            check(&format!("git killed after {seconds} s, alone: {alone}"));
        }
    }
}

#[test]
fn a_git_that_was_cut_off_while_it_went_to_a_patch_is_no_hindrance() {
    let space = series(PATCHES);
    space.ok(&["edit"]);
    let spare = tempfile::tempdir().unwrap();
    copy(&space.workspace(), spare.path());
    let old = snapshot(&space);
    let started = Instant::now();
    space.ok(&["edit", "1"]);
    let whole = started.elapsed();
    let tree = space.path(".perfquilt/edit/srv-1.0");
    let check = |what: &str| {
        let out = space.ok(&["edit", "1"]);
        assert!(out.contains("it is stopped at 1.patch"), "{what}: {out}");
        let git = |words: &[&str]| run_in(&tree, "git", words).stdout_text();
        assert_eq!(git(&["log", "-1", "--format=%s"]), "patch 1\n", "{what}");
        assert_eq!(git(&["status", "--porcelain"]), "", "{what}");
        space.ok(&["refresh"]);
        assert_eq!(snapshot(&space), old, "{what}");
        space.ok(&["edit", "--close"]);
    };
    for signal in [Signal::INT, Signal::KILL] {
        for part in 0..6_u32 {
            put_back(&space, spare.path());
            space.run_and_signal(&["edit", "1"], whole * part / 6, signal);
            check(&format!("{signal:?} at {part}/6"));
        }
    }
    for alone in [true, false] {
        for seconds in MOMENTS {
            put_back(&space, spare.path());
            run_with_killed_git(&space, &["edit", "1"], seconds, alone);
            check(&format!("git killed after {seconds} s, alone: {alone}"));
        }
    }
}

#[test]
fn a_patch_that_the_users_own_git_lost_is_told() {
    let space = amended();
    let old = space.read("series");
    // As a `git rebase --continue` leaves it that was killed at the next patch.
    let notes = ".perfquilt/objects.git/worktrees/srv-1.0/rebase-merge";
    let todo = space.read(&format!("{notes}/git-rebase-todo"));
    let (next, rest) = todo.split_once('\n').unwrap();
    let done = space.read(&format!("{notes}/done"));
    space.write(&format!("{notes}/done"), format!("{done}{next}\n"));
    space.write(&format!("{notes}/git-rebase-todo"), rest);
    let error = space.fails(3, &["refresh"]);
    assert!(error.contains("git did not re-apply 2.patch"), "{error}");
    assert_eq!(space.read("series"), old);
    assert!(space.ok(&["refresh"]).contains("removed   2.patch"));
}

#[test]
fn what_somebody_did_after_the_kill_is_kept() {
    let space = amended();
    let tree = space.path(".perfquilt/edit/srv-1.0");
    run_with_killed_git(&space, &["refresh"], "0.001", false);
    let note = space.path(".perfquilt/edit/srv-1.0.git-at-work");
    assert!(note.exists());
    std::fs::write(tree.join("work.c"), "more of mine\n").unwrap();
    let (code, _, err) = space.shown(&["refresh"]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!(err, @r"
    warning: git was killed in the middle of a rebase; the worktree was restored; its unfinished state is kept as refs/kept/srv-1.0/1 [PQ0957]
    continuing the rebase …
    ");
    let kept = run_in(&tree, "git", &["show", "refs/kept/srv-1.0/1:work.c"]);
    assert_eq!(kept.stdout_text(), "more of mine\n");
    assert!(!note.exists());
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
    let space = TestEnvironment::new();
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
