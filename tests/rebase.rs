//! `perfquilt rebase` on small releases: every way a patch can go, decisions, and what is written.

mod places;

use crate::common::releases::{commit_all, git, json, lines, patch, space, statuses};
use crate::common::share::Share;
use crate::common::{TestEnvironment, run_in};
use proptest::prelude::*;

/// One patch of each kind. The new release has more at its top, another line 20, the third patch's
/// change, another line 60 and a renamed file.
fn every_kind() -> TestEnvironment {
    let old = lines(80, &[]);
    let top = "new at the top\n";
    let new = format!(
        "{top}{}",
        lines(
            80,
            &[
                (22, "upstream 22\n"),
                (40, "patched 40\n"),
                (60, "upstream 60\n")
            ]
        )
    );
    let other = lines(12, &[]);
    let space = space(
        &[
            ("f", old.clone()),
            ("plain", other.clone()),
            ("dir/old_name.c", lines(30, &[])),
        ],
        &[
            ("f", new),
            ("plain", other.clone()),
            ("lib/old_name.c", lines(30, &[(3, "upstream 3\n")])),
        ],
    );
    let one = lines(12, &[(6, "patched 6\n")]);
    patch(&space, "01-exact.patch", "plain", &other, &one);
    let mut state = old;
    let mut next = |name: &str, changes: &[(usize, &str)]| {
        let after = lines(80, changes);
        patch(&space, name, "f", &state, &after);
        state = after;
    };
    let (a, b, c) = (
        (10, "patched 10\n"),
        (20, "patched 20\n"),
        (40, "patched 40\n"),
    );
    next("02-offset.patch", &[a]);
    next("03-merged.patch", &[a, b]);
    next("04-upstream.patch", &[a, b, c]);
    next("05-conflict.patch", &[a, b, c, (60, "patched 60\n")]);
    next("06-dependant.patch", &[a, b, c, (60, "patched 60 again\n")]);
    next(
        "07-independent.patch",
        &[a, b, c, (60, "patched 60 again\n"), (75, "patched 75\n")],
    );
    patch(
        &space,
        "08-moved.patch",
        "dir/old_name.c",
        &lines(30, &[]),
        &lines(30, &[(20, "patched 20\n")]),
    );
    space
}

#[test]
fn every_way_a_patch_can_go() {
    let space = every_kind();
    commit_all(&space);
    let (code, out, err) = space.shown(&["rebase", "2.0"]);
    assert_eq!(code, 3, "{err}");
    insta::assert_snapshot!("every_kind", out);
    let (_, out, _) = space.shown(&["rebase", "2.0", "--conflicts"]);
    insta::assert_snapshot!("every_kind_conflicts", out);
    let (_, markdown, _) = space.shown(&["rebase", "2.0", "--format", "markdown"]);
    insta::assert_snapshot!("every_kind_markdown", markdown);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(
        statuses(&report),
        [
            "exact", "offset", "merged", "upstream", "conflict", "untested", "offset", "merged"
        ]
    );
    assert_eq!(report["patches"][3]["rung"], "merge");
    assert_eq!(report["patches"][6]["without"], serde_json::json!([5, 6]));
    assert_eq!(report["ready"], false);
    // Nothing was touched.
    assert_eq!(git(&space, &["status", "--porcelain"]), "");
    assert_eq!(git(&space, &["branch", "--list"]).trim(), "* main");
}

#[test]
fn a_conflict_is_solved_with_git_and_remembered() {
    let space = every_kind();
    commit_all(&space);
    let err = space.fails(3, &["rebase", "2.0", "--write"]);
    insta::assert_snapshot!(err, @r"
    error: some patches need a decision first [PQ0911]
      5 05-conflict.patch: conflict
      6 06-dependant.patch: untested
    hint: `perfquilt rebase 2.0 --resolve 5` opens the first; --hold writes the series without them, as comments
    ");
    let err = space.fails(2, &["rebase", "2.0", "--resolve", "6"]);
    insta::assert_snapshot!(err, @r"
    error: 06-dependant.patch needs no decision: untested [PQ0913]
    hint: it follows a conflict in patch 5; open that one
    ");
    let err = space.fails(2, &["rebase", "2.0", "--continue"]);
    insta::assert_snapshot!(err, @r"
    error: no conflict is open [PQ0913]
    hint: `perfquilt rebase RELEASE --resolve PATCH` opens one
    ");

    let open = json(&space, &["rebase", "2.0", "--resolve", "5", "--json"]);
    let dir = open["directory"].as_str().unwrap();
    let dir = std::path::PathBuf::from(dir.replace("[WS]", &space.workspace().to_string_lossy()));
    assert_eq!(open["files"], serde_json::json!(["f"]));
    let marked = std::fs::read_to_string(dir.join("f")).unwrap();
    for text in ["<<<<<<<", "|||||||", "upstream 60\n", "patched 60\n"] {
        assert!(marked.contains(text), "{text}: {marked}");
    }
    let err = space.fails(3, &["rebase", "2.0", "--continue"]);
    assert!(err.contains("unmerged"), "{err}");
    // A marker that is left is refused.
    for (name, value) in [("user.name", "T"), ("user.email", "t@example.org")] {
        run_in(&dir, "git", &["config", name, value]);
    }
    run_in(&dir, "git", &["add", "-A"]);
    let editor = ["-c", "core.editor=true", "cherry-pick", "--continue"];
    assert!(run_in(&dir, "git", &editor).success());
    let err = space.fails(3, &["rebase", "2.0", "--continue"]);
    insta::assert_snapshot!(err, @r"
    error: [WS]/.perfquilt/rebase/2.0-5/f:61: a conflict marker remains [PQ0914]
    hint: resolve it and commit again
    ");
    // So is the one above what both sides changed.
    let others = ["<<<<<<<", "=======", ">>>>>>>"];
    let left: String = marked
        .split_inclusive('\n')
        .filter(|line| !others.iter().any(|marker| line.starts_with(marker)))
        .collect();
    std::fs::write(dir.join("f"), left).unwrap();
    assert!(run_in(&dir, "git", &["commit", "-qam", "almost"]).success());
    let err = space.fails(3, &["rebase", "2.0", "--continue"]);
    assert!(err.contains("[PQ0914]"), "{err}");
    // Solved: every line of the conflict gives way to one.
    let start = marked.find("<<<<<<<").unwrap();
    let end = marked[start..].find(">>>>>>>").unwrap() + start;
    let end = marked[end..].find('\n').unwrap() + end + 1;
    let solved = format!("{}patched 60\n{}", &marked[..start], &marked[end..]);
    std::fs::write(dir.join("f"), solved).unwrap();
    assert!(run_in(&dir, "git", &["commit", "-qam", "solved"]).success());
    // The folder goes with the conflict: what is in no commit is not lost with it.
    std::fs::write(dir.join("notes"), "not added\n").unwrap();
    let err = space.fails(3, &["rebase", "2.0", "--continue"]);
    assert!(
        err.contains("notes in") && dir.join("notes").exists(),
        "{err}"
    );
    std::fs::remove_file(dir.join("notes")).unwrap();
    let report = json(&space, &["rebase", "2.0", "--continue", "--json"]);
    assert_eq!(statuses(&report)[4..6], ["resolved", "offset"]);
    assert_eq!(report["ready"], true);
    assert!(!dir.exists());
    // It is remembered.
    space.ok(&["rebase", "2.0"]);

    let before = git(&space, &["rev-parse", "HEAD"]);
    space.write("plain.txt", "not committed\n");
    let written = json(&space, &["rebase", "2.0", "--write", "--json"]);
    assert_eq!(written["written"]["branch"], "rebase/srv-2.0");
    assert_eq!(git(&space, &["rev-parse", "HEAD"]), before);
    assert_eq!(git(&space, &["status", "--porcelain"]), "?? plain.txt\n");
    let series = git(&space, &["show", "rebase/srv-2.0:series"]);
    assert!(
        series.contains("# 04-upstream.patch  # in srv-2.0 already"),
        "{series}"
    );
    // What was exact is byte for byte the same, and the old patches are in the commit before.
    let changed = git(&space, &["diff", "--name-only", "main", "rebase/srv-2.0"]);
    assert!(!changed.contains("01-exact") && !changed.contains("04-upstream"));
    assert!(changed.contains("02-offset") && changed.contains("bench-config/perfquilt.toml"));
    let header = git(&space, &["show", "rebase/srv-2.0:patches/08-moved.patch"]);
    assert!(header.starts_with(
        "Subject: 08-moved.patch\nFrom: T <t@example.org>\n\ndiff --git a/lib/old_name.c"
    ));
    // The branch is a workspace for the new release, on which everything is exact.
    git(&space, &["switch", "-q", "rebase/srv-2.0"]);
    let out = space.ok(&["status"]);
    assert!(out.starts_with("srv-2.0, 7 patches"), "{out}");
    assert_eq!(out.matches(" exact ").count(), 7, "{out}");
    let err = space.fails(2, &["rebase", "2.0"]);
    assert!(err.contains("already"), "{err}");
}

#[test]
fn patches_are_held_back_or_written_elsewhere() {
    let space = every_kind();
    let err = space.fails(2, &["rebase", "2.0", "--write", "--hold"]);
    insta::assert_snapshot!(err, @r"
    error: the workspace is not in a git repository [PQ0119]
    hint: `git init`, a .gitignore with `.perfquilt/` and a commit make it one; --output DIR writes to a folder instead
    ");
    // What is written stays in the folder.
    let elsewhere = space.path("elsewhere");
    for into in ["../elsewhere", elsewhere.to_str().unwrap(), "."] {
        let arguments = ["rebase", "2.0", "--write", "--hold", "--output", "out"];
        let err = space.fails(2, &[&arguments[..], &["--into", into]].concat());
        assert!(err.contains("not a folder below the workspace"), "{err}");
    }
    assert!(!elsewhere.exists() && !space.path("out").exists());
    space.ok(&["rebase", "2.0", "--write", "--hold", "--output", "out"]);
    let series = space.read("out/series");
    for text in [
        "01-exact.patch\n",
        "# 05-conflict.patch  # held back from srv-2.0: conflict\n",
        "# 06-dependant.patch  # held back from srv-2.0: untested\n",
        "07-independent.patch\n",
    ] {
        assert!(series.contains(text), "{series}");
    }
    let err = space.fails(
        2,
        &["rebase", "2.0", "--write", "--hold", "--output", "out"],
    );
    insta::assert_snapshot!(err, @r"
    error: out is not empty [PQ0116]
    hint: name a new folder
    ");
    // A series of the release's own, beside the old one.
    std::fs::remove_dir_all(space.path("out")).unwrap();
    commit_all(&space);
    let arguments = [
        "rebase",
        "2.0",
        "--write",
        "--hold",
        "--into",
        "./patches/2",
    ];
    space.ok(&arguments);
    let err = space.fails(2, &arguments);
    insta::assert_snapshot!(err, @r"
    error: branch rebase/srv-2.0 already exists [PQ0910]
    hint: `git branch -D rebase/srv-2.0` removes it; --branch NAME takes another name
    ");
    git(&space, &["switch", "-q", "rebase/srv-2.0"]);
    assert!(space.ok(&["status"]).starts_with("srv-1.0, 8 patches"));
    let out = space.ok(&["stack", "--release", "2.0"]);
    assert_eq!(out.matches(" exact ").count(), 5, "{out}");
}

#[test]
fn what_is_not_committed_is_not_put_at_risk() {
    let space = every_kind();
    commit_all(&space);
    space.write(
        "patches/01-exact.patch",
        space.read("patches/01-exact.patch") + "\n",
    );
    let err = space.fails(2, &["rebase", "2.0", "--write", "--hold"]);
    assert!(err.contains("[PQ0910]"), "{err}");
    assert_eq!(git(&space, &["branch", "--list"]).trim(), "* main");
}

#[test]
fn upstreamed_patches_that_stand_on_each_other_are_found_by_taking_them_back() {
    let old = lines(20, &[]);
    let first = lines(20, &[(10, "first\n")]);
    let second = lines(20, &[(10, "second\n")]);
    let new = lines(20, &[(10, "second\n"), (3, "upstream\n")]);
    let space = space(&[("f", old.clone())], &[("f", new)]);
    patch(&space, "a.patch", "f", &old, &first);
    patch(&space, "b.patch", "f", &first, &second);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["upstream", "upstream"]);
    assert_eq!(report["patches"][0]["rung"], "reverse");
    assert_eq!(report["drops"].as_array().unwrap().len(), 2);
}

#[test]
fn a_patch_that_looks_as_if_it_was_there_stays_in_the_patches_after_it() {
    let part = |added: &str| format!("{{\n  one\n  two\n{added}  three\n  four\n}}\n");
    let file = |first: &str, second: &str| {
        let (top, between) = (lines(10, &[]), lines(20, &[(1, "between\n")]));
        format!("{top}{}{between}{}", part(first), part(second))
    };
    let (none, first, both) = (
        file("", ""),
        file("  more\n", ""),
        file("  more\n", "  more\n"),
    );
    let other = lines(12, &[]);
    let new = format!("new at the top\n{other}");
    let space = space(
        &[("f", none.clone()), ("g", other.clone())],
        &[("f", none.clone()), ("g", new)],
    );
    patch(&space, "a.patch", "f", &none, &first);
    patch(&space, "b.patch", "f", &first, &both);
    let changed = lines(12, &[(6, "patched 6\n")]);
    patch(&space, "c.patch", "g", &other, &changed);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["exact", "exact", "offset"], "{report}");
    space.ok(&["rebase", "2.0", "--write", "--output", "out"]);
    let last = space.read("out/patches/c.patch");
    assert!(
        last.contains("b/g") && !last.contains("b/f") && !last.contains("more"),
        "{last}"
    );
}

#[test]
fn the_header_and_the_commits_of_upstream_are_hints_that_the_lines_must_confirm() {
    let space = TestEnvironment::with_releases(
        "[[upstream.release]]\nversion = \"1.0.1\"\ngit = { remote = \"repo\", tag = \"v1\" }\n\
         [[upstream.release]]\nversion = \"1.0.2\"\ngit = { remote = \"repo\", tag = \"v2\" }\n\
         [[upstream.release]]\nversion = \"1.0.3\"\ngit = { remote = \"repo\", tag = \"v3\" }\n",
    );
    let config = space.read("bench-config/perfquilt.toml");
    space.write(
        "bench-config/perfquilt.toml",
        config.replace("\"1.0\"", "\"1.0.1\""),
    );
    let old = lines(30, &[]);
    let taken = lines(30, &[(10, "patched\n")]);
    let reworked = lines(30, &[(10, "reworked\n"), (20, "claimed otherwise\n")]);
    let repo = space.path("repo");
    std::fs::create_dir(&repo).unwrap();
    let commit = |content: &str, tag: &str| {
        space.write("repo/f", content);
        for args in [
            &["add", "f"][..],
            &["commit", "-q", "-m", "x"],
            &["tag", tag],
        ] {
            assert!(run_in(&repo, "git", args).success(), "{args:?}");
        }
    };
    run_in(&repo, "git", &["init", "-q"]);
    commit(&old, "v1");
    commit(&taken, "between");
    commit(&reworked, "v2");
    patch(&space, "same.patch", "f", &old, &taken);
    let claimed = lines(30, &[(10, "patched\n"), (20, "patched 20\n")]);
    patch(&space, "claimed.patch", "f", &taken, &claimed);
    let text = space.read("patches/claimed.patch");
    space.write(
        "patches/claimed.patch",
        text.replace("From:", "Applied-Upstream: 1.0.2\nFrom:"),
    );
    let report = json(&space, &["rebase", "1.0.2", "--json"]);
    // The release's lines do not confirm either.
    assert_eq!(statuses(&report), ["changed", "changed"], "{report}");
    let evidence = |index: usize| report["patches"][index]["evidence"].as_str().unwrap();
    assert!(evidence(0).contains("(patch-id), but"), "{report}");
    assert!(evidence(1).contains("1.0.2, but"), "{report}");
    // With its lines at their place, either sign decides.
    let kept = lines(
        30,
        &[(9, "new 9\n"), (10, "patched\n"), (20, "patched 20\n")],
    );
    commit(&kept, "v3");
    let report = json(&space, &["rebase", "1.0.3", "--json"]);
    assert_eq!(statuses(&report), ["upstream", "upstream"], "{report}");
    assert_eq!(report["patches"][0]["rung"], "patch_id", "{report}");
    assert_eq!(report["patches"][1]["rung"], "header", "{report}");
}

#[test]
fn a_patch_beside_a_conflict_is_merged_as_a_change_of_the_whole_series() {
    let old = lines(40, &[]);
    let first = lines(40, &[(10, "patched 10\n")]);
    let both = lines(40, &[(10, "patched 10\n"), (12, "patched 12\n")]);
    let new = lines(40, &[(10, "upstream 10\n")]);
    let space = space(&[("f", old.clone())], &[("f", new)]);
    patch(&space, "a.patch", "f", &old, &first);
    patch(&space, "b.patch", "f", &first, &both);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["conflict", "merged"], "{report}");
    assert_eq!(report["patches"][1]["without"], serde_json::json!([1]));
    space.ok(&["rebase", "2.0", "--write", "--hold", "--output", "out"]);
    let written = space.read("out/patches/b.patch");
    assert!(
        written.contains(" upstream 10\n") && written.contains("+patched 12\n"),
        "{written}"
    );
}

#[test]
fn white_space_of_upstream_is_no_conflict() {
    let line = |indent: &str, call: &str| format!("{indent}{call}\n");
    let file = |indent: &str, call: &str| {
        let body: String = (1..20)
            .map(|n| line(indent, &format!("step_{n}();")))
            .collect();
        format!("{body}{}{body}", line(indent, call))
    };
    let old = file("    ", "length = compute(first);");
    let mine = file("    ", "length = compute(first, second);");
    let space = space(
        &[("f", old.clone())],
        &[("f", file("\t", "length = compute(first);"))],
    );
    patch(&space, "a.patch", "f", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["merged"], "{report}");
    assert!(report["patches"][0].get("review").is_none(), "{report}");
    space.ok(&["rebase", "2.0", "--write", "--output", "out"]);
    let written = space.read("out/patches/a.patch");
    assert!(
        written.contains("\n+\tlength = compute(first, second);\n"),
        "{written}"
    );
    // The same with the change made upstream.
    let space = crate::common::releases::space(
        &[("f", old.clone())],
        &[("f", file("\t", "length = compute(first,\n\t\tsecond);"))],
    );
    patch(&space, "a.patch", "f", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["upstream"], "{report}");
}

#[test]
fn what_both_add_to_a_file_at_different_places_is_for_review() {
    let file = |at: usize, added: &str| -> String {
        let part = |number: usize| {
            let more = if number == at { added } else { "" };
            format!("{more}int part{number}(void)\n{{\n  return {number};\n}}\n\n")
        };
        (1..20).map(part).collect()
    };
    let body = |name: &str, text: &str| format!("static long {name}(long x)\n{{\n  {text}\n}}\n\n");
    let mine = body("widened", "return x * 2;");
    let macro_of = |value: usize| format!("#define WIDTH {value}\n\n");
    for (mine, theirs, said) in [
        (
            &mine,
            body("widened", "return x << 1;"),
            "`widened` as well, at s.c:71",
        ),
        (&mine, mine.clone(), "`widened` as well, at s.c:71"),
        (&mine, body("narrowed", "return x >> 1;"), ""),
        (&macro_of(8), macro_of(16), "`WIDTH` as well, at s.c:71"),
    ] {
        let old = file(0, "");
        let space = space(&[("s.c", old.clone())], &[("s.c", file(15, &theirs))]);
        patch(&space, "a.patch", "s.c", &old, &file(4, mine));
        let report = json(&space, &["rebase", "2.0", "--json"]);
        let why = report["patches"][0]["review"].as_str().unwrap_or_default();
        assert_eq!(why.is_empty(), said.is_empty(), "{report}");
        assert!(why.contains(said), "{report}");
    }
}

#[test]
fn a_guess_is_marked_for_review_and_can_be_opened() {
    let old = lines(40, &[]);
    let mine = lines(40, &[(10, "patched 10\n")]);
    let new = lines(40, &[(11, "upstream 11\n")]);
    let space = space(&[("f", old.clone())], &[("f", new)]);
    patch(&space, "a.patch", "f", &old, &mine);
    commit_all(&space);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["merged"], "{report}");
    let why = report["patches"][0]["review"].as_str().unwrap();
    assert!(why.contains("next to"), "{why}");
    let out = space.ok(&["rebase", "2.0"]);
    assert!(out.contains("Applies, review needed: 1"), "{out}");
    let open = json(&space, &["rebase", "2.0", "--resolve", "1", "--json"]);
    assert_eq!(open["files"], serde_json::json!(["f"]));
    space.ok(&["rebase", "2.0", "--abort"]);
    // It does not stop the branch, whose commit names it.
    space.ok(&["rebase", "2.0", "--write"]);
    let log = ["log", "-1", "--format=%B", "rebase/srv-2.0"];
    let message = git(&space, &log);
    assert!(message.contains("To be reviewed:\na.patch: "), "{message}");
}

#[test]
fn every_moved_patch_is_built() {
    let old = lines(40, &[]);
    let space = space(&[("f", old.clone())], &[("f", format!("new\n{old}"))]);
    let config = space.read("bench-config/perfquilt.toml").replace(
        "[recipe]\n[preset]\n",
        "[recipe.plain]\nsystem = \"command\"\n\
         build = [[\"sh\", \"-c\", \"! grep broken f && cp f toy\"]]\nbinary = \"bin/toy\"\n\
         [recipe.plain.install]\n\"bin/toy\" = \"{build}/toy\"\n",
    );
    space.write("bench-config/perfquilt.toml", config);
    let one = lines(40, &[(10, "patched 10\n")]);
    let two = lines(40, &[(10, "patched 10\n"), (20, "broken\n")]);
    let three = lines(40, &[(10, "patched 10\n"), (20, "mended\n")]);
    patch(&space, "a.patch", "f", &old, &one);
    patch(&space, "b.patch", "f", &one, &two);
    patch(&space, "c.patch", "f", &two, &three);
    let build = ["rebase", "2.0", "--build", "--recipe", "plain"];
    let (code, out, err) = space.shown(&build);
    assert_eq!(code, 4, "{out}{err}");
    assert!(out.contains("Applies, but does not build: 1"), "{out}");
    assert!(err.contains("1 patch does not build"), "{err}");
    let report = json(&space, &[&build[..], &["--json"]].concat());
    let build = |index: usize| &report["patches"][index]["build"];
    assert_eq!(
        (build(0), build(2)),
        (&"ok".into(), &"ok".into()),
        "{report}"
    );
    assert!(build(1)["failed"].is_string(), "{report}");
}

#[test]
fn every_moved_patch_is_tested() {
    let old = lines(40, &[]);
    let space = space(&[("f", old.clone())], &[("f", format!("new\n{old}"))]);
    let config = space.read("bench-config/perfquilt.toml").replace(
        "[recipe]\n[preset]\n",
        "[recipe.plain]\nsystem = \"command\"\nbuild = [[\"cp\", \"f\", \"toy\"]]\nbinary = \"bin/toy\"\n\
         [recipe.plain.install]\n\"bin/toy\" = \"{build}/toy\"\n\
         [recipe.plain.test]\nformat = \"tap\"\ncommand = [\"sh\", \"-c\", \"\"\"\n\
         echo 'ok 1 - there'; if grep -q wrong toy; then echo 'not ok 2 - right'; exit 1; \
         else echo 'ok 2 - right'; fi\"\"\"]\n",
    );
    space.write("bench-config/perfquilt.toml", config);
    let one = lines(40, &[(10, "patched 10\n")]);
    let two = lines(40, &[(10, "patched 10\n"), (20, "wrong\n")]);
    let three = lines(
        40,
        &[(10, "patched 10\n"), (20, "wrong\n"), (30, "patched 30\n")],
    );
    patch(&space, "a.patch", "f", &old, &one);
    patch(&space, "b.patch", "f", &one, &two);
    patch(&space, "c.patch", "f", &two, &three);
    let test = ["rebase", "2.0", "--build", "--test", "--recipe", "plain"];
    let (code, out, err) = space.shown(&test);
    assert_eq!(code, 6, "{out}{err}");
    for part in [
        "On the release 2 tests pass.",
        "Applies, but tests newly fail: 1",
        "right fails in 4 of 4 runs, on the release in 0 of 4",
        "2 tests pass, no new failures",
        "1 test passes, no new failures; 1 fails because of an earlier patch",
    ] {
        let joined = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains(part), "{part}: {out}");
    }
    assert!(err.contains("1 patch makes tests fail on"), "{err}");
    let report = json(&space, &[&test[..], &["--json"]].concat());
    let ran = &report["patches"][1]["tests"]["ran"];
    assert_eq!(ran["new"][0]["name"], "right", "{report}");
}

#[test]
fn changes_that_upstream_made_elsewhere_are_found() {
    let function = |name: &str, call: &str| {
        format!(
            "int {name}(void)\n{{\n  prepare_{name}();\n{call}  return finish_{name}();\n}}\n\n"
        )
    };
    let old = format!(
        "{}{}{}",
        function("alpha", ""),
        function("beta", ""),
        function("gamma", "")
    );
    let mine = old.replace(
        "  prepare_beta();\n",
        "  prepare_beta();\n  if (!check_permission_of(beta_context))\n    return -EPERM;\n",
    );
    // Upstream moved the function, and wrote it again around the same check.
    let new = format!(
        "{}int beta(struct context *beta_context)\n{{\n  if (!check_permission_of(beta_context))\n  {{\n    return -EPERM;\n  }}\n  audit();\n  return end();\n}}\n\n{}",
        function("gamma", ""),
        function("alpha", "")
    );
    let space = space(&[("f", old.clone())], &[("f", new)]);
    patch(&space, "a.patch", "f", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["upstream"], "{report}");
    assert_eq!(report["patches"][0]["rung"], "lines", "{report}");
}

#[test]
fn a_change_made_otherwise_is_for_a_person() {
    let old = lines(20, &[]);
    let mine = lines(
        20,
        &[(10, "int total= compute_all_of_it(thd, table, flags);\n")],
    );
    let theirs = lines(
        20,
        &[(10, "int total= compute_all_of_it(thd, table, flag);\n")],
    );
    let space = space(&[("f", old.clone())], &[("f", theirs)]);
    patch(&space, "a.patch", "f", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["changed"]);
    assert_eq!(report["patches"][0]["decisions"][0]["line"], 10);
}

#[test]
fn wrong_use_says_what_would_be_right() {
    let space = every_kind();
    let err = space.fails(2, &["rebase", "3.0"]);
    insta::assert_snapshot!(err, @r"
    error: bench-config/perfquilt.toml: there is no release `3.0` [PQ0400]
    hint: available: 1.0, 2.0
    ");
    let err = space.fails(2, &["rebase", "1.0"]);
    assert!(err.contains("already") && err.contains("2.0"), "{err}");
    let err = space.fails(2, &["rebase", "2.0", "--resolve", "nothing"]);
    insta::assert_snapshot!(err, @r#"
    error: no patch "nothing" in the series [PQ0309]
    hint: `perfquilt status` lists the patches
    "#);
    space.write("series", "");
    let err = space.fails(2, &["rebase", "2.0"]);
    insta::assert_snapshot!(err, @r"
    error: the series has no patches [PQ0303]
    hint: `perfquilt rebase` moves a series from one release to another
    ");
    // A series that does not fit its own release.
    let space = crate::common::releases::space(&[("f", lines(5, &[]))], &[("f", lines(5, &[]))]);
    space.patch("x.patch", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-nowhere\n+x\n");
    let err = space.fails(3, &["rebase", "2.0"]);
    insta::assert_snapshot!(err, @r"
    error: patches/x.patch:3: hunk 1 of 1 does not apply to f [PQ0315]
      line 1 should read  `nowhere`
               but reads  `line 1`
    hint: the series does not apply to srv-1.0, which it is for; fix that first
    ");
}

/// Edits of numbered lines: every line is unlike every other, so that there is one right merge.
fn edits() -> impl Strategy<Value = Vec<(usize, u8)>> {
    proptest::collection::vec((1_usize..60, 0_u8..3), 0..6)
}

fn edited(edits: &[(usize, u8)], who: &str) -> String {
    let mut out = String::new();
    for number in 1..60 {
        match edits.iter().find(|(line, _)| *line == number) {
            Some((_, 0)) => {}
            Some((_, 1)) => out.push_str(&format!("{who} {number}\n")),
            Some(_) => out.push_str(&format!("line {number}\n{who} after {number}\n")),
            None => out.push_str(&format!("line {number}\n")),
        }
    }
    out
}

/// Cases that git merges without a conflict.
static CLEAN: Share = Share::new();

#[test]
fn rebases_as_git_does() {
    rebase_case();
    CLEAN.is_at_least_one_in(3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Where `git rebase` is clean, so are we, with the same tree; where it stops, so do we, or a person reviews the merge,
    /// or the release has a part of the patch.
    fn rebase_case(upstream in edits(), mine in edits()) {
        let old = edited(&[], "");
        let (new, patched) = (edited(&upstream, "upstream"), edited(&mine, "mine"));
        prop_assume!(patched != old && new != old);
        let space = space(&[("f", old.clone())], &[("f", new.clone())]);
        patch(&space, "a.patch", "f", &old, &patched);
        let repo = space.path("repo");
        std::fs::create_dir(&repo).unwrap();
        let git = |args: &[&str]| run_in(&repo, "git", args);
        git(&["init", "-q", "-b", "main"]);
        for (content, branch) in [(&old, "base"), (&patched, "mine")] {
            space.write("repo/f", content);
            git(&["add", "f"]);
            git(&["commit", "-q", "-m", branch]);
            git(&["branch", branch]);
        }
        git(&["switch", "-q", "-c", "upstream", "base"]);
        space.write("repo/f", &new);
        git(&["commit", "-qam", "upstream"]);
        git(&["rebase", "-q", "--onto", "upstream", "base", "mine"]);
        let clean = git(&["diff", "--name-only", "--diff-filter=U"]).stdout.is_empty();
        let report = json(&space, &["rebase", "2.0", "--json"]);
        let status = statuses(&report)[0].clone();
        let ours_clean = !["conflict", "changed"].contains(&status.as_str());
        let reviewed = report["patches"][0].get("review").is_some();
        let has_part = ["partly", "upstream"].contains(&status.as_str());
        prop_assert!(ours_clean || !clean, "{}: {}", status, report);
        prop_assert!(clean || !ours_clean || reviewed || has_part, "{}: {}", status, report);
        prop_assert!(!clean || !reviewed, "{}: {}", status, report);
        CLEAN.count(clean && status != "upstream");
        if clean && status != "upstream" {
            space.ok(&["rebase", "2.0", "--write", "--output", "out"]);
            let written = space.read("out/patches/a.patch");
            space.write("repo2/f", &new);
            space.write("p", written);
            let applied = run_in(&space.path("repo2"), "git", &["apply", "../p"]);
            prop_assert!(applied.success(), "{}", applied.stderr_text());
            prop_assert_eq!(space.read("repo2/f"), space.read("repo/f"));
        }
    }
}

/// Stores an experiment on `release` in which patch k has the cost `costs[k - 1]` relative to the
/// point before it.
fn measure(space: &TestEnvironment, release: &str, patches: &[&str], costs: &[f64]) {
    use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
    use perfquilt_model::point::Point;
    let store = perfquilt_store::Store::open(&space.path(".perfquilt/results.db")).unwrap();
    let mut header = ExperimentHeader::new(release, "quick");
    header.series = patches.iter().map(|name| (*name).to_owned()).collect();
    let id = store.begin(&header, release).unwrap();
    for block in 0..10_u32 {
        let mut value = 1000.0 + f64::from(block);
        let points = (0..=costs.len()).map(|k| {
            if k > 0 {
                value *= costs[k - 1];
            }
            // A spread of a few thousandths, different for every point.
            let noise = 1.0 + f64::from((block * 7 + k as u32 * 3) % 5) * 0.000_5;
            Observation {
                schema: 1,
                experiment: String::new(),
                block,
                order: k as u32,
                point: Point::Step(k),
                layout: 0,
                workload: "ping".to_owned(),
                meter: Meter::Time,
                unit: Meter::Time.unit().to_owned(),
                value: value * noise,
                n: 100,
                direct: false,
                mean: None,
                slow: None,
                p99: None,
                stalled: None,
                lane: None,
                began: None,
                ended: None,
                machine: None,
            }
        });
        store.append(id, &points.collect::<Vec<_>>(), &[]).unwrap();
    }
}

#[test]
fn what_no_longer_helps_may_be_dropped() {
    let old = lines(40, &[]);
    let one = lines(40, &[(10, "patched 10\n")]);
    let two = lines(40, &[(10, "patched 10\n"), (30, "patched 30\n")]);
    let space = space(&[("f", old.clone())], &[("f", old.clone())]);
    patch(&space, "a.patch", "f", &old, &one);
    patch(&space, "b.patch", "f", &one, &two);
    let names = ["a.patch", "b.patch"];
    measure(&space, "srv-1.0", &names, &[0.95, 0.95]);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert!(report["patches"][0]["effect"]["new"].is_null(), "{report}");
    assert_eq!(report["drops"], serde_json::json!([]));
    measure(&space, "srv-2.0", &names, &[0.95, 1.0]);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    let effect = |index: usize| &report["patches"][index]["effect"];
    assert_eq!(effect(0)["no_longer_helps"], false, "{report}");
    assert_eq!(effect(1)["no_longer_helps"], true, "{report}");
    assert_eq!(effect(1)["old"]["verdict"], "faster");
    assert_eq!(report["drops"][0]["index"], 2);
    assert_eq!(report["drops"].as_array().unwrap().len(), 1);
    let out = space.ok(&["rebase", "2.0"]);
    assert!(out.contains("no longer helps"), "{out}");
}
