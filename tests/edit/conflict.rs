//! Rebases that stop with conflicts, patches named by number, and empty commits.

use serde_json::Value;

use super::{check_trees, git, put, space};
use crate::common::TestEnvironment;

const STOPPED: &str = "a rebase is stopped at two.patch, with conflicts in a.c";

/// A workspace in which `refresh` stopped at the second patch, because the first one now changes the same line.
fn stopped() -> TestEnvironment {
    let space = space();
    space.ok(&["edit", "one"]);
    put(&space, "a.c", "30\n", "thirty\n");
    git(&space, &["commit", "-qa", "--amend", "--no-edit"]);
    let error = space.fails(3, &["refresh"]);
    assert!(error.contains(STOPPED), "{error}");
    assert!(!error.contains('\u{fffd}'), "{error}");
    space
}

#[test]
fn a_conflict_is_named_with_its_files_and_the_next_steps() {
    let space = stopped();
    let out = space.ok(&["edit"]);
    assert!(out.contains(STOPPED), "{out}");
    assert!(
        out.contains("git add a.c\n  git rebase --continue\n  perfquilt refresh\n"),
        "{out}"
    );
    assert!(!out.contains("rebase -i"), "{out}");
    let document: Value = serde_json::from_str(&space.ok(&["edit", "--json"])).unwrap();
    assert_eq!(document["state"], "conflict");
    assert_eq!(document["conflict"]["patch"], "two.patch");
    assert_eq!(document["conflict"]["files"], serde_json::json!(["a.c"]));
    for args in [
        &["refresh"][..],
        &["refresh", "--dry-run"],
        &["edit", "three"],
        &["edit", "--close"],
        &["edit", "--reset"],
    ] {
        let error = space.fails(2, args);
        assert!(error.contains(STOPPED), "{args:?}: {error}");
        assert!(error.contains("git rebase --continue"), "{args:?}: {error}");
        assert!(!error.contains("--amend"), "{args:?}: {error}");
    }
}

#[test]
fn a_resolved_conflict_is_committed_by_the_rebase() {
    let space = stopped();
    git(&space, &["checkout", "-q", "--theirs", "a.c"]);
    git(&space, &["add", "a.c"]);
    // Amending would join the patch with the one before.
    let error = space.fails(2, &["refresh"]);
    insta::assert_snapshot!(error, @r"
    error: [WS]/.perfquilt/edit/srv-1.0: a rebase is stopped at two.patch, with resolved conflicts that are not committed [PQ0906]
    hint: in the worktree, `git rebase --continue`, then `perfquilt refresh`; `git rebase --abort` discards the rebase and its changes
    ");
    assert!(!error.contains("--amend"), "{error}");
    let out = space.ok(&["edit"]);
    assert!(
        out.contains("\n  git rebase --continue\n") && !out.contains("git add"),
        "{out}"
    );
    git(&space, &["-c", "core.editor=true", "rebase", "--continue"]);
    let out = space.ok(&["refresh"]);
    assert!(out.contains("changed   two.patch"), "{out}");
    check_trees(&space);
    assert!(space.ok(&["edit"]).contains("has all of its work"));
}

#[test]
fn a_number_beyond_the_series_is_no_name() {
    let space = space();
    for number in ["0", "9"] {
        let error = space.fails(2, &["edit", number]);
        assert!(
            error.contains(&format!(
                "there is no patch {number}: the series has 3 patches"
            )),
            "{error}"
        );
        assert!(!error.contains("did you mean"), "{error}");
    }
}

#[test]
fn an_empty_commit_of_no_patch_is_dropped_by_its_name() {
    let space = space();
    space.ok(&["edit"]);
    git(
        &space,
        &["commit", "-q", "--allow-empty", "-m", "nothing in it"],
    );
    let id = git(&space, &["rev-parse", "--short=10", "HEAD"]);
    let error = space.fails(3, &["refresh"]);
    assert!(
        error.contains(&format!("a commit is empty: {id} (nothing in it)")),
        "{error}"
    );
    assert!(
        error.contains("`perfquilt refresh --drop-empty` drops it from the branch"),
        "{error}"
    );
    assert!(!error.contains("backup"), "{error}");
    let out = space.ok(&["refresh", "--drop-empty"]);
    assert!(
        out.contains(&format!("dropped   empty commit {id} (nothing in it)")),
        "{out}"
    );
    assert_eq!(
        git(&space, &["log", "--format=%s", "srv-1.0.."]),
        "three\ntwo\none"
    );
    assert!(space.ok(&["refresh"]).contains("agree with the branch"));
}
