//! The edit loop with the real git and the real quilt.

mod conflict;
mod kill;
mod unwritten;
mod words;
mod worktree;

use std::path::PathBuf;

use crate::common::{TestEnvironment, run_in};
use proptest::prelude::*;

const HEADER: &str =
    "From: A B <a@b.c>\nDate: Mon, 3 Jun 2024 10:00:00 +0200\nBug: 17\nSubject: [PATCH] ";

fn numbered(count: usize) -> String {
    (1..=count).map(|n| format!("{n}\n")).collect()
}

/// A patch that changes line `line` of `file` (lines are their numbers).
fn patch(file: &str, line: usize, title: &str) -> String {
    let (l, n) = (line, line + 1);
    format!(
        "{HEADER}{title}\n\nBecause.\n\ndiff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n@@ -{l},2 +{l},2 @@\n-{l}\n+{title}\n {n}\n"
    )
}

/// A workspace with three patches, of which no two are written alike.
fn space() -> TestEnvironment {
    let space = TestEnvironment::new();
    space.write("up/a.c", numbered(60));
    space.write("up/b.c", numbered(60));
    space.write("up/.gitattributes", "* text=auto\n");
    space.write("up/dos.txt", "one\r\ntwo\r\n");
    space.write(
        "series",
        "# the series\n\none.patch # first\n\n# two of them\n",
    );
    space.write("patches/one.patch", patch("a.c", 3, "one"));
    space.patch(
        "two.patch",
        patch("a.c", 30, "two").replace("Mon, 3 Jun", "Tue, 4 Jun"),
    );
    space.patch(
        "three.patch",
        patch("b.c", 10, "three").replace("Mon, 3 Jun", "Wed, 5 Jun"),
    );
    // As some have it, so that no foreign repository is taken for one's own.
    space.configure_git(
        "[user]\nname = t\nemail = t@example.org\n[safe]\nbareRepository = explicit\n",
    );
    space.ok(&["upstream", "fetch"]);
    space
}

fn tree(space: &TestEnvironment) -> PathBuf {
    space.path(".perfquilt/edit/srv-1.0")
}

fn put(space: &TestEnvironment, file: &str, from: &str, to: &str) {
    let path = tree(space).join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from} is not in {file}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// Runs git in the edit branch's tree.
fn git(space: &TestEnvironment, args: &[&str]) -> String {
    perfquilt_testkit::git(&tree(space), args).trim().to_owned()
}

fn commit(space: &TestEnvironment, message: &str) {
    git(space, &["commit", "-qam", message]);
}

/// Has `git rebase -i` carry out these lines, with `{1}` for the branch's first commit and so on.
fn rebase(space: &TestEnvironment, todo: &str) {
    let commits = git(space, &["rev-list", "--reverse", "srv-1.0..HEAD"]);
    let mut todo = todo.to_owned();
    for (index, commit) in commits.lines().enumerate() {
        todo = todo.replace(&format!("{{{}}}", index + 1), commit);
    }
    space.write("todo", todo + "\n");
    let editor = format!("sequence.editor=cp {}", space.path("todo").display());
    git(
        space,
        &[
            "-c",
            &editor,
            "-c",
            "core.editor=true",
            "rebase",
            "-q",
            "-i",
            "srv-1.0",
        ],
    );
}

/// The trees of the branch's commits, and those of the stack.
fn check_trees(space: &TestEnvironment) {
    let branch = git(space, &["log", "--reverse", "--format=%T", "srv-1.0.."]);
    let stack: serde_json::Value = serde_json::from_str(&space.ok(&["stack", "--json"])).unwrap();
    let steps = stack["steps"].as_array().unwrap();
    let trees: Vec<&str> = steps.iter().map(|s| s["tree"].as_str().unwrap()).collect();
    assert_eq!(branch.lines().collect::<Vec<_>>(), trees);
}

#[test]
fn nothing_changed_changes_nothing() {
    let space = space();
    let before = crate::common::listing(&space.path("patches"));
    let series = space.read("series");
    let out = space.ok(&["edit"]);
    assert!(out.contains("3 commits on branch edit/srv-1.0"), "{out}");
    assert_eq!(git(&space, &["status", "--porcelain"]), "");
    assert!(space.ok(&["refresh"]).contains("agree with the branch"));
    assert_eq!(space.read("series"), series);
    assert_eq!(crate::common::listing(&space.path("patches")), before);
    assert!(
        space
            .ok(&["edit"])
            .contains("the series has all of its work")
    );
    space.ok(&["edit", "--close"]);
    assert!(!tree(&space).exists());
    insta::assert_snapshot!(space
            .fails(2, &["refresh"]), @r"
    error: there is no edit branch [PQ0905]
    hint: `perfquilt edit` makes one
    ");
}

#[test]
fn the_fuzz_of_the_configuration_holds() {
    let space = space();
    let config = space.read("bench-config/perfquilt.toml");
    space.write(
        "bench-config/perfquilt.toml",
        format!("{config}[series]\nfuzz = 1\n"),
    );
    let one = patch("a.c", 3, "one").replace("@@ -3,2 +3,2 @@\n", "@@ -2,3 +2,3 @@\n TWO\n");
    space.write("patches/one.patch", one);
    space.ok(&["edit"]);
    put(&space, "b.c", "three\n", "three, better\n");
    git(&space, &["commit", "-qa", "--amend", "--no-edit"]);
    space.ok(&["refresh"]);
    check_trees(&space);
    assert!(space.ok(&["refresh"]).contains("agree with the branch"));
    assert!(
        space
            .fails(3, &["edit", "--fuzz", "0", "--reset"])
            .contains("one.patch")
    );
}

#[test]
fn one_patch_is_amended_and_the_others_keep_their_bytes() {
    let space = space();
    let (one, three) = (
        space.read("patches/one.patch"),
        space.read("patches/three.patch"),
    );
    let two = space.read("patches/two.patch");
    assert!(
        space
            .ok(&["edit", "two"])
            .contains("it is stopped at two.patch")
    );
    put(&space, "a.c", "two\n", "two, better\n");
    let error = space.fails(2, &["refresh"]);
    insta::assert_snapshot!(error, @r"
    error: uncommitted changes in 1 file of [WS]/.perfquilt/edit/srv-1.0 [PQ0119]
      a.c
    hint: `git commit --amend -a` makes them part of the patch it stopped at
    ");
    git(&space, &["commit", "-qa", "--amend", "--no-edit"]);
    let out = space.ok(&["refresh"]);
    insta::assert_snapshot!(out.lines().take(3).collect::<Vec<_>>().join("\n"), @r"
    1  kept      one.patch
    2  changed   two.patch
    3  kept      three.patch
    ");
    assert_eq!(space.read("patches/one.patch"), one);
    assert_eq!(space.read("patches/three.patch"), three);
    let new = space.read("patches/two.patch");
    let header = two.split("diff --git").next().unwrap();
    assert!(new.starts_with(header), "{new}");
    assert!(new.contains("+two, better\n"));
    assert!(new.contains("index "));
    assert_eq!(
        space.read("series"),
        "# the series\n\none.patch # first\n\n# two of them\ntwo.patch\nthree.patch\n"
    );
    check_trees(&space);
    let kept = space.path(".perfquilt/edit/kept");
    let folder = std::fs::read_dir(kept).unwrap().next().unwrap().unwrap();
    assert_eq!(
        std::fs::read_to_string(folder.path().join("two.patch")).unwrap(),
        two
    );
}

#[test]
fn reordered_dropped_new_and_reworded() {
    let space = space();
    space.ok(&["edit"]);
    put(&space, "b.c", "50\n", "fifty\n");
    commit(&space, "Say it in words\n\nIt reads better.");
    put(&space, "b.c", "40\n", "forty\n");
    commit(&space, "named\n\nPerfquilt-Patch: sub/mine.patch");
    rebase(
        &space,
        "pick {3}\npick {4}\npick {1}\nexec git commit -q --amend -m 'better words' -m 'Perfquilt-Patch: one.patch'\npick {5}",
    );
    let before = space.read("patches/one.patch");
    let dry = space.ok(&["refresh", "--dry-run"]);
    assert_eq!(space.read("patches/one.patch"), before);
    let out = space.ok(&["refresh"]);
    assert!(dry.ends_with("nothing was written (--dry-run)\n"));
    insta::assert_snapshot!(out.lines().take(5).collect::<Vec<_>>().join("\n"), @r"
    1  kept      three.patch
    2  new       say-it-in-words.patch
    3  reworded  one.patch
    4  new       sub/mine.patch
    -  removed   two.patch
    ");
    assert!(!space.path("patches/two.patch").exists());
    assert_eq!(
        space.read("patches/one.patch"),
        before
            .replace("[PATCH] one", "[PATCH] better words")
            .replace("\nBecause.\n", "")
    );
    let new = space.read("patches/say-it-in-words.patch");
    assert!(new.starts_with("From: t <t@example.org>\nDate: "), "{new}");
    assert!(
        new.contains("Subject: Say it in words\n\nIt reads better.\n\ndiff --git"),
        "{new}"
    );
    let series = space.read("series");
    for line in ["# the series\n\n", "one.patch # first\n", "# two of them\n"] {
        assert!(series.contains(line), "{series}");
    }
    check_trees(&space);
    assert!(space.ok(&["refresh"]).contains("agree with the branch"));
}

#[test]
fn a_diff_in_a_message_is_quoted() {
    let space = space();
    space.ok(&["edit"]);
    put(&space, "b.c", "50\n", "fifty\n");
    let diff = "    --- a/b.c\n    +++ b/b.c\n    @@ -1 +1 @@\n    -1\n    +2";
    commit(&space, &format!("mine\n\nIt was:\n\n{diff}\n\nbefore"));
    space.ok(&["refresh"]);
    let new = space.read("patches/mine.patch");
    assert!(new.contains("\n>     --- a/b.c\n"), "{new}");
    check_trees(&space);
}

#[test]
fn a_release_that_left_the_configuration_is_told() {
    let space = space();
    let one = "{ version = \"1.0\", directory = \"up\" }";
    let two = "{ version = \"2.0\", directory = \"up\" }";
    space.configure(&format!("release = [{one}, {two}]\n"));
    space.ok(&["edit", "--release", "2.0"]);
    space.configure(&format!("release = [{one}]\n"));
    let error = space.fails(2, &["refresh"]);
    insta::assert_snapshot!(error, @r"
    error: the release of branch edit/srv-2.0 is no longer configured; its work is in [WS]/.perfquilt/edit/srv-2.0 [PQ0906]
    hint: put the [[upstream.release]] of version 2.0 back
    ");
    space.ok(&["edit", "--close"]);
}

#[test]
fn squashed_and_split() {
    let space = space();
    space.ok(&["edit"]);
    rebase(&space, "pick {1}\nsquash {2}\npick {3}");
    let out = space.ok(&["refresh"]);
    assert!(
        out.contains("changed   one.patch (joined with two.patch)"),
        "{out}"
    );
    assert!(!space.path("patches/two.patch").exists());
    check_trees(&space);
    let text = space.read("patches/one.patch");
    assert!(text.contains("two") && text.starts_with(HEADER), "{text}");
    assert_eq!(
        git(&space, &["log", "--format=%s", "srv-1.0.."]),
        "three\none"
    );
    // Two commits with the same `Perfquilt-Patch:` line: the one with the old title keeps the file.
    let message = git(&space, &["log", "-1", "--format=%B"]);
    git(&space, &["reset", "-q", "--hard", "HEAD~1"]);
    put(&space, "b.c", "10\n", "three\n");
    commit(&space, &message);
    put(&space, "b.c", "20\n", "twenty\n");
    commit(&space, &message.replacen("three", "the other half", 1));
    let out = space.ok(&["refresh"]);
    assert!(out.contains("new       the-other-half.patch"), "{out}");
    check_trees(&space);
}

#[test]
fn what_would_lose_something_is_refused() {
    let space = space();
    space.ok(&["edit"]);
    // A patch that became empty.
    rebase(
        &space,
        "pick {1}\nexec git checkout -q srv-1.0 -- a.c && git commit -q --amend --allow-empty --no-edit\npick {3}",
    );
    let error = space.fails(3, &["refresh"]);
    assert!(error.contains("a patch is empty now: one.patch"), "{error}");
    assert!(error.contains("--drop-empty"), "{error}");
    assert!(space.path("patches/one.patch").exists());
    // Work in the branch and in the series at the same time.
    let series = space.read("series");
    space.write("series", series.replace("three.patch\n", ""));
    let error = space.fails(3, &["edit"]);
    insta::assert_snapshot!(error, @r"
    error: both changed since the last `perfquilt edit`: the series, and the branch in [WS]/.perfquilt/edit/srv-1.0 [PQ0907]
    hint: restore series and patches and run `perfquilt refresh`, or discard the branch with `perfquilt edit --reset`, which keeps its commits under a reference
    ");
    insta::assert_snapshot!(space
            .fails(3, &["refresh"]), @r"
    error: series or patches changed since `perfquilt edit` [PQ0907]
    hint: restore them (`git diff` shows the difference if the workspace is a repository), or discard the branch with `perfquilt edit --reset`, which keeps its commits under a reference
    ");
    insta::assert_snapshot!(space
            .fails(2, &["edit", "--close"]), @r"
    error: the branch edit/srv-1.0 has work that is not in the series yet [PQ0906]
    hint: `perfquilt refresh` writes it to the series; `perfquilt edit --reset` discards it
    ");
    let out = space.ok(&["edit", "--reset"]);
    assert!(out.contains("are kept as refs/kept/srv-1.0/1"), "{out}");
    space.write("series", series);
    assert!(space.ok(&["edit"]).contains("was updated to the series"));
    // Merges, waiting fixups, other branches, submodules.
    git(
        &space,
        &["commit", "-q", "--allow-empty", "-m", "fixup! one"],
    );
    assert!(
        space
            .fails(3, &["refresh"])
            .contains("is not squashed into its target")
    );
    git(&space, &["reset", "-q", "--hard", "HEAD~1"]);
    git(&space, &["checkout", "-q", "-b", "other", "HEAD~1"]);
    insta::assert_snapshot!(space
            .fails(2, &["refresh"]), @r"
    error: other is checked out in [WS]/.perfquilt/edit/srv-1.0 instead of edit/srv-1.0 [PQ0906]
    hint: `git checkout edit/srv-1.0` goes back to it; `git checkout -B edit/srv-1.0` makes what is checked out the branch
    ");
    put(&space, "b.c", "55\n", "x\n");
    commit(&space, "side");
    git(&space, &["checkout", "-q", "edit/srv-1.0"]);
    git(&space, &["merge", "-q", "--no-ff", "-m", "merge", "other"]);
    assert!(space.fails(3, &["refresh"]).contains("is a merge"));
    git(&space, &["reset", "-q", "--hard", "HEAD~1"]);
    git(&space, &["checkout", "-q", "--orphan", "lonely"]);
    git(&space, &["commit", "-q", "-m", "alone"]);
    git(&space, &["checkout", "-q", "-B", "edit/srv-1.0"]);
    assert!(
        space
            .fails(3, &["refresh"])
            .contains("is not based on the release")
    );
    insta::assert_snapshot!(space
            .fails(2, &["edit", "nothing-like-it"]), @r#"
    error: no patch "nothing-like-it" in the series [PQ0309]
    hint: `perfquilt status` lists the patches
    "#);
}

/// The series was written and the branch moved, but the command was killed before it recorded that.
#[test]
fn a_refresh_that_was_not_recorded_is_no_conflict() {
    let space = space();
    space.ok(&["edit"]);
    let session = ".perfquilt/edit/srv-1.0.json";
    let before = space.read(session);
    put(&space, "b.c", "40\n", "forty\n");
    commit(&space, "forty");
    space.ok(&["refresh"]);
    assert_ne!(space.read(session), before);
    space.write(session, before);
    put(&space, "b.c", "50\n", "fifty\n");
    commit(&space, "fifty");
    let out = space.ok(&["refresh"]);
    assert!(out.contains("new       fifty.patch"), "{out}");
    check_trees(&space);
}

#[test]
fn hostile_names_of_new_patches_are_refused() {
    let space = space();
    space.ok(&["edit"]);
    for (name, why) in [
        ("../x.patch", "leads out"),
        ("one.patch.orig", ""),
        ("series", "cannot be"),
        ("README", "already"),
    ] {
        space.write("patches/README", "");
        put(&space, "b.c", "50\n", "fifty\n");
        commit(&space, &format!("x\n\nPerfquilt-Patch: {name}"));
        if why.is_empty() {
            space.ok(&["refresh", "-n"]);
        } else {
            let error = space.fails(3, &["refresh"]);
            assert!(error.contains(why), "{name}: {error}");
        }
        git(&space, &["reset", "-q", "--hard", "HEAD~1"]);
    }
    assert!(!space.path("x.patch").exists());
}

#[test]
fn an_interrupted_refresh_is_finished_by_the_next_command() {
    let space = space();
    space.ok(&["edit"]);
    let old = space.read("patches/one.patch");
    let new = old.replace("Because.", "Therefore.");
    let digest = |text: &str| {
        use sha2::{Digest, Sha256};
        hex::encode(Sha256::digest(text.as_bytes()))
    };
    let journal = serde_json::json!({
        "schema": 1,
        "kept": ".perfquilt/edit/kept/x",
        "changes": [
            {"path": "patches/one.patch", "before": digest(&old), "after": digest(&new)},
            {"path": "patches/gone.patch", "before": null, "after": null},
        ],
        "moves": [],
    });
    space.write(".perfquilt/edit/pending/journal.json", journal.to_string());
    space.write(".perfquilt/edit/pending/0", &new);
    let (code, _, err) = space.shown(&["status"]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!(err, @r"warning: finished writing the series, which an interrupted command had left incomplete [PQ0950]");
    assert_eq!(space.read("patches/one.patch"), new);
    assert_eq!(space.read(".perfquilt/edit/kept/x/one.patch"), old);
    // One flipped bit anywhere is found, and nothing is written.
    let journal = journal.to_string();
    let written = [
        ("0", new.clone()),
        ("journal.sha256", digest(&journal)),
        ("journal.json", journal.clone()),
    ];
    for (file, text) in &written {
        for at in 0..9 {
            space.write("patches/one.patch", &old);
            for (name, text) in &written {
                space.write(&format!(".perfquilt/edit/pending/{name}"), text);
            }
            let mut flipped = text.clone().into_bytes();
            let place = at * text.len() / 9;
            flipped[place] ^= 1 << (at % 8);
            std::fs::write(
                space.path(&format!(".perfquilt/edit/pending/{file}")),
                flipped,
            )
            .unwrap();
            let (code, _, err) = space.shown(&["status"]);
            assert_ne!(code, 0, "{file} {place}");
            assert!(err.contains("damaged"), "{file} {place}: {err}");
            assert_eq!(space.read("patches/one.patch"), old, "{file} {place}");
        }
    }
    // A file that somebody changed in between is not overwritten.
    std::fs::remove_file(space.path(".perfquilt/edit/pending/journal.sha256")).unwrap();
    space.write(".perfquilt/edit/pending/0", &new);
    space.write(".perfquilt/edit/pending/journal.json", &journal);
    space.write("patches/one.patch", "mine");
    assert!(space.fails(2, &["status"]).contains("[PQ0908]"));
    assert_eq!(space.read("patches/one.patch"), "mine");
}

#[test]
fn an_unfinished_change_writes_only_files_of_the_series() {
    let space = space();
    space.ok(&["edit"]);
    let outside = space.path("../outside");
    std::os::unix::fs::symlink("..", space.path("patches/up")).unwrap();
    std::os::unix::fs::symlink(&outside, space.path("patches/link.patch")).unwrap();
    let digest = {
        use sha2::{Digest, Sha256};
        hex::encode(Sha256::digest(b"hostile"))
    };
    for (path, kept) in [
        (outside.to_str().unwrap(), ".perfquilt/edit/kept/x"),
        ("../outside", ".perfquilt/edit/kept/x"),
        ("patches/../../outside", ".perfquilt/edit/kept/x"),
        ("patches/up/../outside", ".perfquilt/edit/kept/x"),
        ("patches/up/../../outside", ".perfquilt/edit/kept/x"),
        (".git/config", ".perfquilt/edit/kept/x"),
        ("README", ".perfquilt/edit/kept/x"),
        ("bench-config/workloads/x.toml", ".perfquilt/edit/kept/x"),
        ("patches-of-others/x.patch", ".perfquilt/edit/kept/x"),
        (".perfquilt/objects.git/config", ".perfquilt/edit/kept/x"),
        ("patches/new.patch", "/tmp/x"),
        ("patches/new.patch", ".perfquilt/edit/kept/../../../.."),
        ("patches/new.patch", ".perfquilt/edit/kept"),
        ("patches/link.patch", ".perfquilt/edit/kept/x"),
    ] {
        let journal = serde_json::json!({
            "schema": 1,
            "kept": kept,
            "changes": [{"path": path, "before": null, "after": digest}],
            "moves": [],
        });
        space.write(".perfquilt/edit/pending/journal.json", journal.to_string());
        space.write(".perfquilt/edit/pending/0", "hostile");
        let error = space.fails(2, &["status"]);
        assert!(error.contains("did not write"), "{path} {kept}: {error}");
        assert!(!outside.exists() && !space.path("patches/new.patch").exists());
        std::fs::remove_dir_all(space.path(".perfquilt/edit/pending")).unwrap();
    }
    // Nor does git run what somebody left in the object store.
    let alternates = ".perfquilt/objects.git/objects/info/alternates";
    space.write(alternates, outside.to_str().unwrap());
    let error = space.fails(2, &["status"]);
    insta::assert_snapshot!(error, @r"
    error: [WS]/.perfquilt/objects.git/objects/info/alternates: it makes the object store use objects of another repository [PQ0407]
    hint: move the object store away, unless you know who wrote that file
    ");
}

#[test]
fn quilt_itself_works_on_the_workspaces_patches() {
    let space = space();
    let out = space.ok(&["edit", "--quilt", "q t"]);
    assert!(out.contains("q t' && quilt push -a\n"), "{out}");
    space.ok(&["edit", "--quilt", "q"]);
    let dir = space.path("q");
    let quilt = |args: &[&str]| {
        let output = run_in(&dir, "quilt", args);
        assert!(
            output.success(),
            "{args:?}: {}{}",
            output.stdout_text(),
            output.stderr_text()
        );
    };
    quilt(&["push", "-a"]);
    std::fs::write(
        dir.join("b.c"),
        std::fs::read_to_string(dir.join("b.c"))
            .unwrap()
            .replace("50\n", "fifty\n"),
    )
    .unwrap();
    quilt(&["refresh"]);
    quilt(&["new", "four.patch"]);
    quilt(&["add", "a.c"]);
    std::fs::write(
        dir.join("a.c"),
        std::fs::read_to_string(dir.join("a.c"))
            .unwrap()
            .replace("55\n", "x\n"),
    )
    .unwrap();
    quilt(&["refresh"]);
    quilt(&["pop", "-a"]);
    assert!(space.read("patches/three.patch").contains("+fifty"));
    assert!(space.read("series").contains("four.patch"));
    let out = space.ok(&["stack"]);
    assert!(out.contains("four.patch"), "{out}");
    assert!(space.ok(&["edit"]).contains("4 commits"));
}

#[test]
fn lint_mends_without_changing_any_tree() {
    let space = space();
    space.patch(
        "again.patch",
        space
            .read("patches/three.patch")
            .replace("b/b.c", "b/b.c\t"),
    );
    let series = space.read("series").replace("again.patch\n", "");
    let plain = patch("a.c", 45, "four")
        .replace("--- a/", "--- ")
        .replace("+++ b/", "+++ ");
    // An offset of two lines, no `diff --git` line, and paths without a first component.
    let plain = plain
        .lines()
        .filter(|line| !line.starts_with("diff --git"))
        .map(|line| {
            format!(
                "{}\n",
                line.replace("@@ -45,2 +45,2 @@", "@@ -43,2 +43,2 @@")
            )
        })
        .collect::<String>();
    space.write("patches/four.patch", plain);
    space.write(
        "series",
        format!("{series}  # indented\r\nfour.patch -p0 # why\nzero.patch -p1\n"),
    );
    space.write("patches/zero.patch", patch("b.c", 40, "zero"));
    std::fs::remove_file(space.path("patches/again.patch")).unwrap();
    let trees = space.ok(&["stack", "--json"]);
    let out = space.ok(&["lint"]);
    for expected in [
        "patches/one.patch: not in canonical form",
        "patches/four.patch: applies to srv-1.0 with an offset of 2 lines",
        "quilt takes this comment for a patch",
        "`-p1` is the default",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    insta::assert_snapshot!(space.fails(3, &["lint", "--strict"]), @r"error: 0 errors and 8 warnings [PQ0320]");
    let out = space.ok(&["lint", "--fix"]);
    assert!(
        out.contains("fixed: patches/four.patch") && out.contains("fixed: series"),
        "{out}"
    );
    assert!(
        !out.contains("canonical") && !out.contains("offset"),
        "{out}"
    );
    assert!(
        space
            .read("series")
            .ends_with("# indented\nfour.patch # why\nzero.patch\n")
    );
    let four = space.read("patches/four.patch");
    assert!(
        four.starts_with(HEADER) && four.contains("diff --git a/a.c b/a.c\nindex "),
        "{four}"
    );
    let trees_of = |text: &str| -> Vec<String> {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        let steps = value["steps"].as_array().unwrap();
        steps.iter().map(|step| step["tree"].to_string()).collect()
    };
    assert_eq!(trees_of(&space.ok(&["stack", "--json"])), trees_of(&trees));
    let again = space.ok(&["lint", "--fix", "--json"]);
    assert!(again.contains("\"fixed\": []"), "{again}");
    // What is an error is not touched.
    space.write("patches/zero.patch", "no diff\n");
    let before = crate::common::listing(&space.path("patches"));
    space.fails(3, &["lint", "--fix"]);
    assert_eq!(crate::common::listing(&space.path("patches")), before);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done on the branch, the stack of what is written back has the branch's trees.
    #[test]
    fn random_edits_come_back(steps in prop::collection::vec((0..5_u8, 1..50_usize), 1..5)) {
        let space = space();
        space.ok(&["edit"]);
        for (number, (kind, line)) in steps.into_iter().enumerate() {
            let path = tree(&space).join("b.c");
            let text = std::fs::read_to_string(&path).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = line % lines.len();
            lines[at] = format!("changed {number}");
            match kind {
                0 => lines.insert(at, "inserted".to_owned()),
                1 => { lines.remove((at + 1) % lines.len()); }
                _ => {}
            }
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
            std::fs::write(tree(&space).join(format!("new-{number}")), vec![0, number as u8]).unwrap();
            git(&space, &["add", "-A"]);
            if kind % 2 == 0 {
                commit(&space, &format!("step {number}"));
            } else {
                git(&space, &["commit", "-q", "--amend", "--no-edit"]);
            }
            if kind == 4 {
                space.ok(&["refresh"]);
            }
        }
        space.ok(&["refresh"]);
        check_trees(&space);
    }
}
