//! `perfquilt rebase` where files come, go, are binary, compressed or executable; against `git rebase`
//! on series over several files; and killed while it writes.

use std::path::PathBuf;
use std::time::Instant;

use crate::common::releases::{commit_all, git, json, lines, patch, space, statuses};
use crate::common::share::Share;
use crate::common::trees::cases;
use crate::common::{TestEnvironment, run_in};
use proptest::prelude::*;
use rustix::process::Signal;

/// Opens the conflict in patch `index` and returns its worktree, ready for commits.
fn resolve(space: &TestEnvironment, index: usize) -> PathBuf {
    let open = json(
        space,
        &["rebase", "2.0", "--resolve", &index.to_string(), "--json"],
    );
    let dir = open["directory"]
        .as_str()
        .unwrap_or_else(|| panic!("{open}"));
    let dir = PathBuf::from(dir.replace("[WS]", &space.workspace().to_string_lossy()));
    for (key, value) in [("user.name", "T"), ("user.email", "t@example.org")] {
        run_in(&dir, "git", &["config", key, value]);
    }
    dir
}

fn git_in(dir: &std::path::Path, args: &[&str]) {
    let output = run_in(dir, "git", args);
    assert!(output.success(), "{args:?}: {}", output.stderr_text());
}

/// A patched file that the new release does not have any more.
fn deleted_upstream() -> TestEnvironment {
    let space = space(
        &[("gone.c", lines(20, &[])), ("stays.c", lines(9, &[]))],
        &[("stays.c", lines(9, &[]))],
    );
    let one = lines(20, &[(10, "patched 10\n")]);
    patch(&space, "a.patch", "gone.c", &lines(20, &[]), &one);
    let two = lines(20, &[(10, "patched 10\n"), (18, "patched 18\n")]);
    patch(&space, "b.patch", "gone.c", &one, &two);
    let other = lines(9, &[(5, "patched 5\n")]);
    patch(&space, "c.patch", "stays.c", &lines(9, &[]), &other);
    commit_all(&space);
    space
}

#[test]
fn a_file_that_upstream_deleted_is_for_a_person() {
    let space = deleted_upstream();
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["conflict", "conflict", "exact"]);
    let (code, out, _) = space.shown(&["rebase", "2.0"]);
    assert_eq!(code, 3);
    assert!(out.contains("gone.c"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    let err = space.fails(3, &["rebase", "2.0", "--write"]);
    assert!(err.contains("[PQ0911]"), "{err}");

    // Nothing is left of the patch: an empty commit says so.
    let dir = resolve(&space, 1);
    git_in(&dir, &["rm", "-q", "gone.c"]);
    git_in(
        &dir,
        &["commit", "-q", "--allow-empty", "-m", "nothing is left"],
    );
    let report = json(&space, &["rebase", "2.0", "--continue", "--json"]);
    assert_eq!(statuses(&report)[0], "upstream", "{report}");
    let evidence = report["patches"][0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("manual resolution"), "{evidence}");
    // The next patch of the file is decided on its own.
    assert_eq!(statuses(&report)[1], "conflict", "{report}");
}

#[test]
fn a_file_that_upstream_deleted_can_be_kept() {
    let space = deleted_upstream();
    let dir = resolve(&space, 1);
    std::fs::write(dir.join("gone.c"), "kept by us\n").unwrap();
    git_in(&dir, &["add", "gone.c"]);
    git_in(
        &dir,
        &["-c", "core.editor=true", "cherry-pick", "--continue"],
    );
    let report = json(&space, &["rebase", "2.0", "--continue", "--json"]);
    assert_eq!(statuses(&report)[0], "resolved", "{report}");
    let written = json(&space, &["rebase", "2.0", "--write", "--hold", "--json"]);
    assert_eq!(written["written"]["branch"], "rebase/srv-2.0", "{written}");
    let new = git(&space, &["show", "rebase/srv-2.0:patches/a.patch"]);
    assert!(
        new.contains("new file mode") && new.contains("+kept by us"),
        "{new}"
    );
    git(&space, &["switch", "-q", "rebase/srv-2.0"]);
    space.ok(&["export", "1", "out"]);
    assert_eq!(space.read("out/gone.c"), "kept by us\n");
}

#[test]
fn a_conflict_moves_with_its_workspace() {
    let space = deleted_upstream();
    let dir = resolve(&space, 1);
    let inside = dir.strip_prefix(space.workspace()).unwrap();
    let other = tempfile::tempdir().unwrap();
    let from = &space.workspace().to_string_lossy().into_owned();
    let copied = run_in(other.path(), "cp", &["-a", from, "copy"]);
    assert!(copied.success(), "{}", copied.stderr_text());
    let copy = other.path().join("copy").to_string_lossy().into_owned();
    let continued = ["-C", &copy, "rebase", "2.0", "--continue"];
    let (code, _, err) = space.shown(&continued);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains(&format!("unmerged files in {copy}")), "{err}");
    let dir = other.path().join("copy").join(inside);
    git_in(&dir, &["add", "gone.c"]);
    git_in(
        &dir,
        &["-c", "core.editor=true", "cherry-pick", "--continue"],
    );
    let (_, out, err) = space.shown(&continued);
    assert!(out.contains("resolved"), "{out}{err}");
    // Where it was copied from it is open still.
    let error = space.fails(3, &["rebase", "2.0", "--continue"]);
    insta::assert_snapshot!(error, @r"
    error: there are unmerged files in [WS]/.perfquilt/rebase/2.0-1 [PQ0914]
      gone.c
    hint: once they are right: `git -C [WS]/.perfquilt/rebase/2.0-1 add -A && git -C [WS]/.perfquilt/rebase/2.0-1 cherry-pick --continue`
    ");
}

#[test]
fn a_conflict_is_opened_again_after_a_kill() {
    let space = deleted_upstream();
    let dir = resolve(&space, 1);
    let state = space.path(".perfquilt/rebase/open.json");
    let locked = space.path(".perfquilt/objects.git/worktrees/2.0-1/locked");
    // Git was killed over the checkout, before the conflict counted as open or when it was closed.
    for closed in [false, true] {
        std::fs::write(&locked, "initializing").unwrap();
        std::fs::write(dir.join("half"), "").unwrap();
        if closed {
            space.ok(&["rebase", "2.0", "--abort"]);
        } else {
            std::fs::remove_file(&state).unwrap();
        }
        assert_eq!(resolve(&space, 1), dir);
        assert!(state.exists() && !locked.exists() && !dir.join("half").exists());
    }
}

#[test]
fn a_conflict_belongs_to_its_release() {
    let space = deleted_upstream();
    let release = |version: &str, folder: &str| {
        format!("[[upstream.release]]\nversion = \"{version}\"\ndirectory = \"{folder}\"\n")
    };
    let releases = [("1.0", "up"), ("2.0", "two"), ("3.0", "two")];
    let releases = releases.map(|(version, folder)| release(version, folder));
    space.configure(&releases.concat());
    let dir = resolve(&space, 1);
    for option in ["--abort", "--continue"] {
        let err = space.fails(2, &["rebase", "3.0", option]);
        assert!(err.contains("is for 2.0, not for 3.0"), "{err}");
        let err = space.fails(2, &["rebase", "nosuch", option]);
        assert!(err.contains("[PQ0400]"), "{err}");
    }
    assert!(dir.join(".git").is_file());
    // One that was emptied is made anew.
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(resolve(&space, 1), dir);
    assert!(dir.join(".git").is_file());
    std::fs::write(space.path(".perfquilt/rebase/open.json"), "{").unwrap();
    space.ok(&["rebase", "2.0", "--abort"]);
    assert!(!dir.exists());
}

#[test]
fn files_in_conflict_have_their_own_names() {
    let (old, stays) = (lines(20, &[]), lines(9, &[]));
    let space = space(&[("ä.c", old.clone())], &[("stays.c", stays)]);
    let patched = lines(20, &[(10, "patched 10\n")]);
    patch(&space, "a.patch", "ä.c", &old, &patched);
    let open = json(&space, &["rebase", "2.0", "--resolve", "1", "--json"]);
    assert_eq!(open["files"], serde_json::json!(["ä.c"]), "{open}");
}

#[test]
fn modes_move_with_their_files() {
    let space = space(
        &[("run.sh", lines(30, &[])), ("plain.sh", lines(5, &[]))],
        &[
            ("run.sh", lines(30, &[(27, "upstream 27\n")])),
            ("plain.sh", lines(5, &[])),
        ],
    );
    space.executable("two/plain.sh");
    space.patch(
        "content.patch",
        "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n--- a/run.sh\n+++ b/run.sh\n\
         @@ -23,5 +23,5 @@\n line 23\n line 24\n-line 25\n+patched 25\n line 26\n line 27\n",
    );
    space.patch(
        "mode.patch",
        "diff --git a/plain.sh b/plain.sh\nold mode 100644\nnew mode 100755\n",
    );
    commit_all(&space);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["merged", "upstream"], "{report}");
    json(&space, &["rebase", "2.0", "--write", "--json"]);
    let new = git(&space, &["show", "rebase/srv-2.0:patches/content.patch"]);
    assert!(new.contains("old mode 100644\nnew mode 100755"), "{new}");
    assert!(new.contains(" upstream 27\n"), "{new}");
    git(&space, &["switch", "-q", "rebase/srv-2.0"]);
    space.ok(&["export", "1", "out"]);
    use std::os::unix::fs::PermissionsExt;
    let mode = |name: &str| {
        std::fs::metadata(space.path(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_ne!(mode("out/run.sh") & 0o100, 0);
}

/// A patch of a binary file, in git's form.
fn binary(space: &TestEnvironment, name: &str, file: &str, old: &[u8], new: &[u8]) {
    let dir = space.path("binary");
    std::fs::create_dir_all(&dir).unwrap();
    let git = |args: &[&str]| run_in(&dir, "git", args);
    git(&["init", "-q"]);
    std::fs::write(dir.join(file), old).unwrap();
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "old"]);
    std::fs::write(dir.join(file), new).unwrap();
    let diff = git(&["diff", "--binary", "--full-index"]).stdout;
    space.patch(name, [b"Subject: binary\n\n", diff.as_slice()].concat());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn binary_files_are_never_merged() {
    let image = |what: &[u8]| [b"\0\x01image ", what, b"\0\xff"].concat();
    let space = space(&[("f", "x\n".to_owned())], &[("f", "x\n".to_owned())]);
    for (file, two) in [
        ("same", &b"old"[..]),
        ("taken", b"new"),
        ("other", b"upstream"),
    ] {
        space.write(&format!("up/{file}"), image(b"old"));
        space.write(&format!("two/{file}"), image(two));
        binary(
            &space,
            &format!("{file}.patch"),
            file,
            &image(b"old"),
            &image(b"new"),
        );
    }
    commit_all(&space);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(
        statuses(&report),
        ["exact", "upstream", "conflict"],
        "{report}"
    );
    let (_, out, _) = space.shown(&["rebase", "2.0"]);
    assert!(!out.contains('\u{1}') && out.contains("other"), "{out}");

    let dir = resolve(&space, 3);
    std::fs::write(dir.join("other"), image(b"both")).unwrap();
    git_in(&dir, &["add", "other"]);
    git_in(
        &dir,
        &["-c", "core.editor=true", "cherry-pick", "--continue"],
    );
    let report = json(&space, &["rebase", "2.0", "--continue", "--json"]);
    assert_eq!(statuses(&report)[2], "resolved", "{report}");
    json(&space, &["rebase", "2.0", "--write", "--json"]);
    git(&space, &["switch", "-q", "rebase/srv-2.0"]);
    space.ok(&["export", "2", "out"]);
    assert_eq!(
        std::fs::read(space.path("out/other")).unwrap(),
        image(b"both")
    );
    assert_eq!(
        std::fs::read(space.path("out/same")).unwrap(),
        image(b"new")
    );
}

#[test]
fn compressed_patches_stay_so_only_unchanged() {
    let old = lines(40, &[]);
    let one = lines(40, &[(10, "patched 10\n")]);
    let two = lines(40, &[(10, "patched 10\n"), (30, "patched 30\n")]);
    let space = space(
        &[("f", old.clone()), ("g", old.clone())],
        &[
            ("f", lines(40, &[(13, "upstream 13\n")])),
            ("g", old.clone()),
        ],
    );
    patch(&space, "merged.patch", "f", &old, &one);
    patch(&space, "exact.patch", "g", &old, &two);
    for name in ["merged", "exact"] {
        let path = format!("patches/{name}.patch");
        assert!(run_in(&space.workspace(), "gzip", &["-n", &path]).success());
    }
    space.write("series", "merged.patch.gz\nexact.patch.gz\n");
    commit_all(&space);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["merged", "exact"], "{report}");
    json(&space, &["rebase", "2.0", "--write", "--json"]);
    let series = git(&space, &["show", "rebase/srv-2.0:series"]);
    assert_eq!(series, "merged.patch\nexact.patch.gz\n");
    let new = git(&space, &["show", "rebase/srv-2.0:patches/merged.patch"]);
    assert!(new.contains(" upstream 13\n"), "{new}");
    let changed = git(&space, &["diff", "--name-status", "main", "rebase/srv-2.0"]);
    assert!(!changed.contains("exact.patch.gz"), "{changed}");
    git(&space, &["switch", "-q", "rebase/srv-2.0"]);
    let out = space.ok(&["stack"]);
    assert_eq!(out.matches(" exact ").count(), 2, "{out}");
}

#[test]
fn a_patch_written_plain_takes_no_other_ones_place() {
    let old = lines(40, &[]);
    let one = lines(40, &[(10, "patched 10\n")]);
    let upstream = lines(40, &[(13, "upstream 13\n")]);
    let space = space(
        &[("f", old.clone()), ("g", old.clone())],
        &[("f", upstream), ("g", old.clone())],
    );
    patch(&space, "3.patch", "f", &old, &one);
    assert!(run_in(&space.workspace(), "gzip", &["-n", "patches/3.patch"]).success());
    patch(&space, "3.patch", "g", &old, &one);
    space.write("patches/3-2.patch", "not in the series\n");
    space.write("series", "3.patch\n3.patch.gz\n");
    commit_all(&space);
    space.ok(&["rebase", "2.0", "--write"]);
    let series = git(&space, &["show", "rebase/srv-2.0:series"]);
    assert_eq!(series, "3.patch\n3-3.patch\n");
    let arguments = ["diff", "--name-status", "--no-renames", "main"];
    let branch = ["rebase/srv-2.0", "--", "patches"];
    let changed = git(&space, &[&arguments[..], &branch].concat());
    assert_eq!(changed, "A\tpatches/3-3.patch\nD\tpatches/3.patch.gz\n");
}

/// One patch, which moves down by a line.
fn moved_down() -> TestEnvironment {
    let old = lines(40, &[]);
    let new = format!("new at the top\n{old}");
    let space = space(&[("f", old.clone())], &[("f", new)]);
    let patched = lines(40, &[(10, "patched 10\n")]);
    patch(&space, "a.patch", "f", &old, &patched);
    space
}

#[test]
fn what_is_behind_a_link_is_written_where_it_is() {
    let space = moved_down();
    std::fs::create_dir(space.path("real")).unwrap();
    for (name, inner) in [("patches", "real/p"), ("series", "real/list")] {
        std::fs::rename(space.path(name), space.path(inner)).unwrap();
        space.link(name, inner);
    }
    // Its options go, so that the series changes, too.
    space.write("real/list", "a.patch -p1 -N\n");
    commit_all(&space);
    space.ok(&["rebase", "2.0", "--write"]);
    let changed = git(&space, &["diff", "--name-status", "main", "rebase/srv-2.0"]);
    let expected = "M\tbench-config/perfquilt.toml\nM\treal/list\nM\treal/p/a.patch\n";
    assert_eq!(changed, expected);
}

#[test]
fn what_git_status_leaves_out_is_not_committed() {
    let space = moved_down();
    let patch = space.read("patches/a.patch");
    std::fs::remove_file(space.path("patches/a.patch")).unwrap();
    commit_all(&space);
    git(&space, &["config", "status.showUntrackedFiles", "no"]);
    space.write("patches/a.patch", patch);
    let err = space.fails(2, &["rebase", "2.0", "--write"]);
    assert!(err.contains("[PQ0910]"), "{err}");
}

#[test]
fn folders_and_branches_that_cannot_be_are_refused() {
    let space = moved_down();
    commit_all(&space);
    for (into, why) in [
        (".git/hooks", "`.git` is not allowed"),
        ("series", "series is a file"),
        (".perfquilt/z", "keeps its state"),
        ("two/patches", "in a release's tree"),
        ("bench-config", "perfquilt has its configuration in"),
        ("bench-config/2.0", "perfquilt has its configuration in"),
        (".pc/patches", "quilt keeps its state in"),
    ] {
        let err = space.fails(2, &["rebase", "2.0", "--write", "--into", into]);
        assert!(err.contains(why), "{err}");
    }
    for branch in ["--branch=-x", "--branch=HEAD", "--branch=@{-1}"] {
        let err = space.fails(2, &["rebase", "2.0", "--write", branch]);
        assert!(err.contains("[PQ0910]"), "{err}");
    }
    for (there, branch) in [("rebase", "rebase/x"), ("other/x", "other")] {
        git(&space, &["branch", there]);
        let named = format!("--branch={branch}");
        let err = space.fails(2, &["rebase", "2.0", "--write", &named]);
        let expected = format!("branch {there} exists, so git cannot create {branch}");
        assert!(err.contains(&expected), "{err}");
    }
}

#[test]
fn a_series_is_not_written_over_that_of_another_release() {
    let space = moved_down();
    let release = |version: &str, rest: &str| {
        format!("[[upstream.release]]\nversion = \"{version}\"\ndirectory = {rest}\n")
    };
    let two = release("2.0", "\"two\"");
    let three = release("3.0", "\"two\"\npatches = \"kept/3\"");
    space.configure(&[release("1.0", "\"up\""), two.clone(), three.clone()].concat());
    space.write("kept/3/series", "");
    // The series of a release that the configuration names no more.
    space.write("old/series", "");
    let patch = space.read("patches/a.patch");
    space.patch("sub/b.patch", patch.replace("patched 10", "patched 11"));
    space.write("series", "a.patch\n");
    commit_all(&space);
    for (into, why) in [
        (
            "patches",
            "error: patches has the series of srv-1.0 [PQ0912]\n",
        ),
        (
            "./patches/",
            "error: patches has the series of srv-1.0 [PQ0912]\n",
        ),
        (
            "kept/3",
            "error: kept/3 has the series of srv-3.0 [PQ0912]\n",
        ),
        ("kept", "kept has the series of srv-3.0 in it, in kept/3"),
        (
            "kept/3/2",
            "kept/3/2 would mix with the series of srv-3.0, in kept/3",
        ),
        ("old", "error: old has a series already [PQ0912]\n"),
    ] {
        let err = space.fails(2, &["rebase", "2.0", "--write", "--into", into]);
        assert!(err.contains(why), "{into}: {err}");
        let hint = "hint: `--into patches/2.0` names a free folder\n";
        assert!(err.contains(hint), "{into}: {err}");
        let arguments = [
            "rebase", "2.0", "--write", "--output", "out", "--into", into,
        ];
        space.fails(2, &arguments);
        assert!(!space.path("out").exists());
    }
    assert_eq!(git(&space, &["branch", "--list"]).trim(), "* main");
    space.ok(&["rebase", "2.0", "--write", "--into", "patches/2.0"]);
    git(&space, &["branch", "-D", "rebase/srv-2.0"]);
    // A folder in which the series has patches of its own.
    space.write("series", "a.patch\nsub/b.patch\n");
    space.write(
        "patches/sub/b.patch",
        patch
            .replace("line 10", "line 20")
            .replace("patched 10", "patched 20")
            .replace("@@ -7,7 +7,7 @@", "@@ -17,7 +17,7 @@")
            .replace(
                " line 7\n line 8\n line 9\n",
                " line 17\n line 18\n line 19\n",
            )
            .replace(
                " line 11\n line 12\n line 13\n",
                " line 21\n line 22\n line 23\n",
            ),
    );
    commit_all(&space);
    let arguments = ["rebase", "2.0", "--write", "--into", "patches/sub"];
    let err = space.fails(2, &arguments);
    insta::assert_snapshot!(err, @r"
    error: patches/sub would mix with the series of srv-1.0, in patches [PQ0912]
    hint: `--into patches/2.0` names a free folder
    ");
    // The configuration may be wrong, too.
    let wrong = release("2.0", "\"two\"\npatches = \"patches\"");
    space.configure(&[release("1.0", "\"up\""), wrong, three.clone()].concat());
    let err = space.fails(2, &["rebase", "2.0", "--write"]);
    insta::assert_snapshot!(err, @r"
    error: patches has the series of srv-1.0 [PQ0912]
    hint: correct `patches` of release 2.0 in bench-config/perfquilt.toml: patches/2.0 is free
    ");
    // A series in its release's own folder may move there.
    let own = release("1.0", "\"up\"\npatches = \"own\"");
    space.configure(&[own, two, three].concat());
    space.write("own/a.patch", patch);
    space.write("own/series", "a.patch\n");
    commit_all(&space);
    let arguments = [
        "rebase", "2.0", "--write", "--into", "own", "--branch", "own",
    ];
    space.ok(&arguments);
    let moved = git(&space, &["show", "own:own/a.patch"]);
    assert!(moved.contains(" line 7\n"), "{moved}");
}

#[test]
fn only_perfquilts_own_branch_is_to_be_removed() {
    let space = moved_down();
    commit_all(&space);
    git(&space, &["branch", "mine"]);
    let write = ["rebase", "2.0", "--write"];
    let err = space.fails(2, &[&write[..], &["--branch", "mine"]].concat());
    let expected = "branch mine already exists [PQ0910]\nhint: --branch NAME takes another name\n";
    assert!(err.contains(expected), "{err}");
    space.ok(&write);
    let err = space.fails(2, &write);
    let expected = "hint: `git branch -D rebase/srv-2.0` removes it; --branch NAME takes";
    assert!(err.contains(expected), "{err}");
}

#[test]
fn the_report_names_the_open_conflict() {
    let space = deleted_upstream();
    let dir = resolve(&space, 1);
    let (code, out, err) = space.shown(&["rebase", "2.0"]);
    assert_eq!(code, 3, "{err}");
    let folder = "[WS]/.perfquilt/rebase/2.0-1";
    let next = format!("next: cd {folder}\n      perfquilt rebase 2.0 --continue\n");
    assert!(out.ends_with(&next), "{out}");
    let hint = format!(
        "hint: a conflict is open: `cd {folder}`, resolve and commit it, then `perfquilt rebase 2.0 --continue`"
    );
    assert!(err.contains(&hint), "{err}");
    let err = space.fails(3, &["rebase", "2.0", "--write"]);
    assert!(err.contains(&hint) && err.contains("; --hold"), "{err}");
    // Without its worktree, it can only be opened again.
    std::fs::remove_dir_all(&dir).unwrap();
    let (_, out, _) = space.shown(&["rebase", "2.0"]);
    let next = "next: perfquilt rebase 2.0 --resolve 1\n";
    assert!(out.ends_with(next), "{out}");
    assert_eq!(resolve(&space, 1), dir);
    space.ok(&["rebase", "2.0", "--abort"]);
    let (_, out, err) = space.shown(&["rebase", "2.0"]);
    assert!(out.ends_with(next), "{out}");
    assert!(err.contains("--resolve 1` opens the first"), "{err}");
}

/// Whenever it is killed, the branch is there with all of it or not at all, nothing else is touched,
/// and the same command does it then.
#[test]
fn a_kill_while_writing_leaves_all_or_nothing() {
    let old = lines(60, &[]);
    let space = space(
        &[("f", old.clone())],
        &[("f", format!("new at the top\n{old}"))],
    );
    let mut state = old;
    for number in 1..=8_usize {
        let changes: Vec<(usize, String)> = (1..=number)
            .map(|n| (n * 7, format!("patched {n}\n")))
            .collect();
        let changes: Vec<(usize, &str)> = changes.iter().map(|(at, s)| (*at, s.as_str())).collect();
        let next = lines(60, &changes);
        patch(&space, &format!("{number}.patch"), "f", &state, &next);
        state = next;
    }
    commit_all(&space);
    let write = ["-q", "rebase", "2.0", "--write"];
    let started = Instant::now();
    space.ok(&write);
    let whole = started.elapsed();
    let tree = git(&space, &["rev-parse", "rebase/srv-2.0^{tree}"]);
    let start = git(&space, &["rev-parse", "HEAD"]);
    for part in 0..12_u32 {
        if part % 3 == 0 {
            // From the beginning: nothing is imported or remembered.
            std::fs::remove_dir_all(space.path(".perfquilt")).unwrap();
        }
        git(&space, &["branch", "-q", "-D", "rebase/srv-2.0"]);
        space.run_and_signal(&write, whole * part / 11, Signal::KILL);
        let there = run_in(
            &space.workspace(),
            "git",
            &["rev-parse", "--quiet", "--verify", "rebase/srv-2.0^{tree}"],
        );
        if there.success() {
            assert_eq!(there.stdout_text(), tree);
        }
        assert_eq!(git(&space, &["status", "--porcelain"]), "");
        assert_eq!(git(&space, &["rev-parse", "HEAD"]), start);
        if !there.success() {
            // Git may have ended its work after that look.
            let again = space.run(&write);
            let is_there = again
                .stderr
                .contains("branch rebase/srv-2.0 already exists");
            assert!(again.code == Some(0) || is_there, "{again:?}");
        }
        assert_eq!(git(&space, &["rev-parse", "rebase/srv-2.0^{tree}"]), tree);
    }
    // A git that was killed itself leaves its lock.
    git(&space, &["branch", "-q", "-D", "rebase/srv-2.0"]);
    let lock = ".git/refs/heads/rebase/srv-2.0.lock";
    space.write(lock, "");
    let said = space.fails(2, &write);
    assert!(said.contains(&format!("rm [WS]/{lock}")), "{said}");
    std::fs::remove_file(space.path(lock)).unwrap();
    space.ok(&write);
}

const FILES: [&str; 3] = ["f.c", "lib/g.c", "lib/h.c"];

/// The change of each file: lines replaced, inserted and deleted, or the file is deleted.
#[derive(Debug, Clone)]
struct Change {
    file: usize,
    edits: Vec<(usize, u8)>,
    delete: bool,
}

fn change() -> impl Strategy<Value = Change> {
    let edits = prop::collection::vec((1_usize..50, 0_u8..3), 1..4);
    (0..FILES.len(), edits, prop::bool::weighted(0.06)).prop_map(|(file, edits, delete)| Change {
        file,
        edits,
        delete,
    })
}

/// The files as lists of lines, each unlike every other, so that there is one right merge.
type Tree = Vec<Option<Vec<String>>>;

fn start() -> Tree {
    let file = |name: &&str| Some((1..50).map(|n| format!("{name} line {n}\n")).collect());
    FILES.iter().map(file).collect()
}

fn apply(tree: &mut Tree, change: &Change, who: &str) {
    let Some(lines) = &mut tree[change.file] else {
        return;
    };
    if change.delete {
        tree[change.file] = None;
        return;
    }
    for (number, (at, how)) in change.edits.iter().enumerate() {
        let at = at % lines.len();
        let line = format!("{who} {number} at {at}\n");
        match how {
            0 if lines.len() > 20 => drop(lines.remove(at)),
            1 => lines[at] = line,
            _ => lines.insert(at, line),
        }
    }
}

fn write(space: &TestEnvironment, folder: &str, tree: &Tree) {
    for (name, lines) in FILES.iter().zip(tree) {
        let path = format!("{folder}/{name}");
        match lines {
            Some(lines) => space.write(&path, lines.concat()),
            None => {
                let _ = std::fs::remove_file(space.path(&path));
            }
        }
    }
    space.write(&format!("{folder}/always"), "there\n");
}

/// Cases that git rebases to the end.
static CLEAN: Share = Share::new();

#[test]
fn series_rebase_as_git_does() {
    series_case();
    CLEAN.is_at_least_one_in(6);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(12), failure_persistence: None, ..ProptestConfig::default() })]

    /// A series of patches over several files: the same tree as `git rebase`; where that stops, a conflict, a merge that a
    /// person reviews, or a patch of which the release has a part.
    fn series_case(
        upstream in prop::collection::vec(change(), 0..4),
        mine in prop::collection::vec(prop::collection::vec(change(), 1..3), 1..5),
    ) {
        let space = space(&[], &[]);
        let mut two = start();
        for (number, change) in upstream.iter().enumerate() {
            apply(&mut two, change, &format!("upstream {number}"));
        }
        write(&space, "up", &start());
        write(&space, "two", &two);

        write(&space, "repo", &start());
        let repo = space.path("repo");
        let git = |args: &[&str]| run_in(&repo, "git", args);
        git(&["init", "-q", "-b", "base"]);
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "base"]);
        git(&["switch", "-q", "-c", "mine"]);
        let mut state = start();
        for (number, changes) in mine.iter().enumerate() {
            for (part, change) in changes.iter().enumerate() {
                apply(&mut state, change, &format!("mine {number}.{part}"));
            }
            write(&space, "repo", &state);
            git(&["add", "-A"]);
            let diff = git(&["diff", "--cached", "--no-renames"]).stdout;
            // A patch that deletes what is not there any more changes nothing.
            if !diff.is_empty() {
                git(&["commit", "-q", "-m", &number.to_string()]);
                space.patch(&format!("{number}.patch"), diff);
            }
        }
        prop_assume!(!space.read("series").is_empty());
        git(&["switch", "-q", "-c", "upstream", "base"]);
        write(&space, "repo", &two);
        git(&["add", "-A"]);
        git(&["commit", "-q", "--allow-empty", "-m", "upstream"]);
        let rebased = git(&["-c", "merge.renames=false", "rebase", "-q", "--onto", "upstream", "base", "mine"]);
        let stopped = (!rebased.success()).then(|| {
            git(&["log", "-1", "--format=%s", "REBASE_HEAD"]).stdout_text().trim().to_owned()
        });

        let report = json(&space, &["rebase", "2.0", "--json"]);
        let patches = report["patches"].as_array().unwrap();
        let waits = patches.iter().find(|patch| {
            ["conflict", "changed"].contains(&patch["status"].as_str().unwrap())
        });
        let waits = waits.map(|patch| patch["name"].clone());
        // What can be taken back from the release is there, which git does not look for.
        let back = patches.iter().any(|patch| patch["rung"] == "reverse");
        prop_assume!(!back);
        let stops_at = |patch: &serde_json::Value| {
            let name = format!("{}.patch", stopped.as_deref().unwrap_or_default());
            patch["name"] == name.as_str()
        };
        if let Some(at) = patches.iter().position(stops_at) {
            let status = patches[at]["status"].as_str().unwrap();
            let noticed = ["conflict", "changed", "partly", "upstream"].contains(&status)
                || patches[at].get("review").is_some();
            prop_assert!(noticed, "{}\n{}", rebased.stderr_text(), report);
            let before = patches[..at].iter().all(|patch| Some(&patch["name"]) != waits.as_ref());
            prop_assert!(before, "{}\n{}", rebased.stderr_text(), report);
        } else {
            prop_assert_eq!(&stopped, &None, "{}", rebased.stderr_text());
            prop_assert_eq!(&waits, &None, "{}", report);
            let reviewed = patches.iter().any(|patch| patch.get("review").is_some());
            prop_assert!(!reviewed, "{}", report);
        }
        CLEAN.count(stopped.is_none());
        if stopped.is_none() {
            let theirs = git(&["rev-parse", "mine^{tree}"]).stdout_text();
            let last = patches.iter().rev().find_map(|patch| patch["commit"].as_str());
            let ours = match last {
                Some(commit) => {
                    let tree = format!("{commit}^{{tree}}");
                    run_in(&space.path(".perfquilt/objects.git"), "git", &["rev-parse", &tree]).stdout_text()
                }
                None => git(&["rev-parse", "upstream^{tree}"]).stdout_text(),
            };
            prop_assert_eq!(ours, theirs, "{}", report);
        }
    }
}
