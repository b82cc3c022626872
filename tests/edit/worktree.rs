//! The worktree and its branch: removed, copied, moved, on no branch.

use super::{check_trees, commit, git, put, space, tree};
use crate::common::run_in;

#[test]
fn a_removed_worktree_loses_no_commit() {
    let space = space();
    space.ok(&["edit"]);
    put(&space, "b.c", "50\n", "fifty\n");
    commit(&space, "words");
    std::fs::remove_dir_all(tree(&space)).unwrap();
    let out = space.ok(&["edit"]);
    assert!(out.contains("4 commits"), "{out}");
    assert!(space.ok(&["refresh"]).contains("new       words.patch"));
    check_trees(&space);
}

/// The worktree goes along, with what was not committed.
#[test]
fn a_workspace_can_be_copied_and_moved_while_its_series_is_edited() {
    let space = space();
    space.ok(&["edit"]);
    let other = tempfile::tempdir().unwrap();
    let copy = other.path().join("copy");
    let from = &space.workspace().to_string_lossy().into_owned();
    let copied = run_in(other.path(), "cp", &["-a", from, "copy"]);
    assert!(copied.success(), "{}", copied.stderr_text());
    let moved = other.path().join("moved");
    let inside = |root: &std::path::Path, args: &[&str]| {
        let root = root.to_string_lossy().into_owned();
        space.shown(&[&["-C", &root], args].concat())
    };
    let file = ".perfquilt/edit/srv-1.0/b.c";
    for (root, text) in [(&copy, "in the copy\n"), (&moved, "after the move\n")] {
        if !root.exists() {
            std::fs::rename(&copy, root).unwrap();
        }
        std::fs::write(root.join(file), text).unwrap();
        let (code, _, err) = inside(root, &["refresh"]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("uncommitted changes in 1 file"), "{err}");
        let (code, out, err) = inside(root, &["edit"]);
        assert_eq!(code, 0, "{err}");
        let path = root.display().to_string();
        assert!(out.contains(&path) && !out.contains("[WS]"), "{out}");
        let worktree = root.join(".perfquilt/edit/srv-1.0");
        let committed = run_in(&worktree, "git", &["commit", "-qam", text.trim()]);
        assert!(committed.success(), "{}", committed.stderr_text());
        let (code, out, err) = inside(root, &["refresh"]);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("new "), "{out}");
    }
    let series = std::fs::read_to_string(moved.join("series")).unwrap();
    assert!(
        series.ends_with("in-the-copy.patch\nafter-the-move.patch\n"),
        "{series}"
    );
    // The one it was copied from is as it was.
    let out = space.ok(&["refresh"]);
    assert!(
        out.contains("series and patches agree with the branch"),
        "{out}"
    );
    assert_eq!(git(&space, &["status", "--porcelain"]), "");
    assert!(!space.read("series").contains("copy"));
}

#[test]
fn a_branch_that_was_removed_comes_back() {
    let space = space();
    space.ok(&["edit"]);
    put(&space, "b.c", "50\n", "fifty\n");
    commit(&space, "words");
    let words = git(&space, &["rev-parse", "HEAD"]);
    let remove = || git(&space, &["update-ref", "-d", "refs/heads/edit/srv-1.0"]);
    for args in [
        &["edit"][..],
        &["refresh", "--dry-run"],
        &["edit", "--close"],
    ] {
        remove();
        let (_, _, err) = space.shown(args);
        assert!(err.contains("[PQ0952]"), "{args:?}: {err}");
        assert_eq!(git(&space, &["rev-parse", "HEAD"]), words);
    }
    // Without the worktree, how the series left it is all that is known.
    remove();
    std::fs::remove_dir_all(tree(&space)).unwrap();
    assert!(space.ok(&["edit"]).contains("3 commits"));
    assert_eq!(git(&space, &["status", "--porcelain"]), "");
}

#[test]
fn a_worktree_that_the_store_does_not_know_is_told() {
    let space = space();
    space.ok(&["edit"]);
    put(&space, "b.c", "50\n", "fifty\n");
    std::fs::remove_dir_all(space.path(".perfquilt/objects.git")).unwrap();
    for command in ["edit", "refresh"] {
        let error = space.fails(2, &[command]);
        assert!(error.contains("does not know"), "{error}");
        assert!(error.contains("move the folder away"), "{error}");
    }
    std::fs::rename(tree(&space), space.path("mine")).unwrap();
    space.ok(&["edit"]);
    assert!(space.read("mine/b.c").contains("fifty"));
    assert!(
        !std::fs::read_to_string(tree(&space).join("b.c"))
            .unwrap()
            .contains("fifty")
    );
}

#[test]
fn commits_on_no_branch_are_kept_when_it_begins_anew() {
    let space = space();
    space.ok(&["edit"]);
    git(&space, &["checkout", "-q", "--detach"]);
    put(&space, "b.c", "55\n", "x\n");
    commit(&space, "on no branch");
    let own = git(&space, &["rev-parse", "HEAD"]);
    let out = space.ok(&["edit", "--reset"]);
    assert!(out.contains("are kept as refs/kept/srv-1.0/1"), "{out}");
    assert_eq!(git(&space, &["rev-parse", "refs/kept/srv-1.0/1"]), own);
}
