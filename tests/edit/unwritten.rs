//! Work on the edit branch that the series does not have, before something is measured.

use super::{commit, git, put, space, tree};
use crate::common::{TestEnvironment, run_in};

/// Commands that measure, build or test the series.
const COMMANDS: &[&[&str]] = &[
    &["run"],
    &["run", "--dry-run"],
    &["build"],
    &["run", "--server", "0=0", "--server", "1=2"],
    &["test"],
    &["bisect", "--workload", "w"],
    &["bisect", "releases", "1.0", "1.0"],
    &["profile", "0", "3"],
];

/// Every command says `state` first and stops, unless it is told to use the series as it is; `status` says it, too.
fn check(space: &TestEnvironment, state: &str, next: &str) {
    for command in COMMANDS {
        let error = space.fails(2, command);
        assert!(
            error.starts_with("error: the edit branch edit/srv-1.0"),
            "{command:?}: {error}"
        );
        assert!(error.contains(state), "{command:?}: {error}");
        assert!(error.contains(next), "{command:?}: {error}");
        let (_, _, told) = space.shown(&[command, &["--series-as-written"][..]].concat());
        assert!(
            !told.contains("error: the edit branch"),
            "{command:?}: {told}"
        );
        assert!(told.contains(state), "{command:?}: {told}");
        assert!(
            told.contains("using the series as written"),
            "{command:?}: {told}"
        );
    }
    let status = space.ok(&["status"]);
    assert!(status.contains(state) && status.contains(next), "{status}");
    let status: serde_json::Value = serde_json::from_str(&space.ok(&["status", "--json"])).unwrap();
    let said = status["unwritten"][0]["state"].as_str().unwrap();
    assert!(said.contains(state), "{status:#}");
    assert_eq!(status["next"]["step"], "refresh");
}

/// No command says anything.
fn check_written(space: &TestEnvironment) {
    for command in COMMANDS {
        let (_, _, told) = space.shown(command);
        assert!(!told.contains("the edit branch"), "{command:?}: {told}");
    }
    assert!(!space.ok(&["status"]).contains("edit branch"));
}

#[test]
fn an_old_series_is_not_measured_in_silence() {
    let space = space();
    check_written(&space);
    space.ok(&["edit"]);
    check_written(&space);

    put(&space, "b.c", "20\n", "twenty\n");
    check(
        &space,
        "has uncommitted changes: b.c",
        "git commit --amend -a",
    );
    commit(&space, "another");
    check(
        &space,
        "has a commit that is not in the series",
        "`perfquilt refresh --release 1.0`",
    );
    space.ok(&["refresh"]);
    check_written(&space);

    // A build in the worktree leaves files that belong to no patch.
    std::fs::write(tree(&space).join("a.o"), "").unwrap();
    check_written(&space);

    git(&space, &["reset", "-q", "--hard", "HEAD~1"]);
    check(
        &space,
        "lacks commits that are in the series",
        "`perfquilt refresh --release 1.0`",
    );
    space.ok(&["edit", "--reset"]);
    check_written(&space);

    // Stopped at a patch, though nothing is changed there yet.
    space.ok(&["edit", "two.patch"]);
    check(
        &space,
        "a rebase is stopped in ",
        "`git rebase --continue` there",
    );
    // `commit --amend` at the stop moves no branch.
    put(&space, "a.c", "40\n", "forty\n");
    git(&space, &["commit", "-qa", "--amend", "--no-edit"]);
    check(
        &space,
        "a rebase is stopped in ",
        "`git rebase --continue` there",
    );
    git(&space, &["-c", "core.editor=true", "rebase", "--continue"]);
    check(
        &space,
        "has 3 commits that are not in the series",
        "`perfquilt refresh --release 1.0`",
    );
    space.ok(&["refresh"]);
    check_written(&space);

    git(&space, &["checkout", "-q", "--detach", "HEAD~1"]);
    check(
        &space,
        "is not checked out in ",
        "`git checkout edit/srv-1.0` there",
    );
}

#[test]
fn a_stopped_conflict_is_named_before_measuring() {
    let space = space();
    space.ok(&["edit", "one.patch"]);
    put(&space, "a.c", "30\n", "thirty\n");
    git(&space, &["commit", "-qa", "--amend", "--no-edit"]);
    let stopped = run_in(&tree(&space), "git", &["rebase", "--continue"]);
    assert!(!stopped.success());
    check(&space, "with conflicts in a.c", "resolve the conflicts in ");
    // The folder may be gone, as after a move to another machine.
    std::fs::remove_dir_all(tree(&space)).unwrap();
    check_written(&space);
}

#[test]
fn only_the_branch_of_the_measured_series_counts() {
    let space = space();
    space.write("up2/a.c", space.read("up/a.c"));
    space.write("up2/b.c", space.read("up/b.c"));
    space.write("own/series", "");
    space.configure(
        "release = [{ version = \"1.0\", directory = \"up\" }, { version = \"2.0\", directory = \"up2\" }, \
         { version = \"3.0\", directory = \"up2\", patches = \"own\" }]\n",
    );
    space.ok(&["edit"]);
    put(&space, "b.c", "20\n", "twenty\n");
    // 2.0 has the same series, 3.0 one of its own.
    for (release, stops) in [("1.0", true), ("2.0", true), ("3.0", false)] {
        let (_, _, told) = space.shown(&["build", "--release", release]);
        assert_eq!(told.contains("the edit branch"), stops, "{release}: {told}");
    }
    // The bare release has no patch.
    let (_, _, told) = space.shown(&["profile", "0", "1.0:0"]);
    assert!(!told.contains("the edit branch"), "{told}");
}
