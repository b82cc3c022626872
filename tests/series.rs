//! The series on the command line: status, lint, stack, export, points, and everything that can be
//! wrong with patches.

use crate::common::{TestEnvironment, run_in};

fn numbered() -> String {
    (1..=30).map(|n| format!("line {n}\n")).collect()
}

fn space() -> TestEnvironment {
    let space = TestEnvironment::new();
    space.write("up/src/a.c", numbered());
    space.write("up/f", "hi\n");
    space.link("up/link", "src");
    space
}

/// A patch of `src/a.c` that changes line `at`.
fn change(at: usize, old: &str, new: &str) -> String {
    let context = |n: usize| format!(" line {n}\n");
    format!(
        "From: A B <a@example.org>\nSubject: change line {at}\n\n--- a/src/a.c\n+++ b/src/a.c\n@@ -{},3 +{},3 @@\n{}-{old}\n+{new}\n{}",
        at - 1,
        at - 1,
        context(at - 1),
        context(at + 1),
    )
}

#[test]
fn status_and_stack() {
    let space = space();
    space.patch("0001-five.patch", change(5, "line 5", "LINE 5"));
    space.patch(
        "sub/0002-a-very-long-name-for-a-patch-indeed.patch",
        change(9, "line 9", "LINE 9").replace("@@ -8,3 +8,3 @@", "@@ -6,3 +6,3 @@"),
    );
    insta::assert_snapshot!(space.ok(&["status"]), @r"
    srv-1.0, 2 patches
    1  0001-five.patch                     -          change line 5
    2  sub/0002-a-very-long-name-for-a-p…  -          change line 9
    next: `perfquilt upstream fetch` imports the release
    ");
    insta::assert_snapshot!(space.ok(&["stack", "-q"]), @r"
    0  50fc633c8bd3             srv-1.0
    1  ec98b6a466e5  exact      0001-five.patch
    2  6914138ccd88  offset 2   sub/0002-a-very-long-name-for-a-patch-indeed.patch
    ");
    insta::assert_snapshot!(space.ok(&["status"]), @r"
    srv-1.0, 2 patches
    1  0001-five.patch                     exact      change line 5
    2  sub/0002-a-very-long-name-for-a-p…  offset 2   change line 9
    ");
    let json: serde_json::Value = serde_json::from_str(&space.ok(&["status", "--json"])).unwrap();
    assert_eq!(json["patches"][1]["offset"], 2);
    assert_eq!(json["patches"][0]["index"], 1);
    let json: serde_json::Value = serde_json::from_str(&space.ok(&["stack", "--json"])).unwrap();
    assert_eq!(json["steps"][0]["title"], "change line 5");
}

#[test]
fn status_shows_where_the_series_stops() {
    let space = space();
    space.patch("a.patch", change(5, "line 5", "LINE 5"));
    space.patch(
        "b.patch",
        change(9, "line 9", "LINE 9").replace("@@ -8,3 +8,3 @@", "@@ -6,3 +6,3 @@"),
    );
    space.patch("c.patch", change(20, "row 20", "LINE 20"));
    space.patch("d.patch", change(15, "line 15", "LINE 15"));
    space.ok(&["upstream", "fetch", "-q"]);
    let (code, out, err) = space.shown(&["status"]);
    assert_eq!(code, 3, "{out}{err}");
    insta::assert_snapshot!(out, @r"
    srv-1.0, 4 patches
    1  a.patch  exact      change line 5
    2  b.patch  offset 2   change line 9
    3  c.patch  fails      change line 20
    4  d.patch  -          change line 15
    ");
    insta::assert_snapshot!(err, @r"
    error: patches/c.patch:6: hunk 1 of 1 does not apply to src/a.c [PQ0315]
      line 20 should read  `row 20`
               but reads  `line 20`
    hint: change the patch by hand for this release and refresh it
    ");
    let (code, out, _) = space.shown(&["status", "--json"]);
    assert_eq!(code, 3);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let applies: Vec<_> = (0..4).map(|at| &json["patches"][at]["applies"]).collect();
    assert_eq!(
        serde_json::json!(applies),
        serde_json::json!([true, true, false, null])
    );
    assert_eq!(json["patches"][1]["offset"], 2);
    assert!(json["patches"][2]["tree"].is_null() && json["next"].is_null());
}

#[test]
fn status_has_the_width_of_the_terminal() {
    let space = space();
    let name = "sub/0002-a-very-long-name-for-a-patch-indeed.patch";
    space.patch(name, change(5, "line 5", "LINE 5"));
    let lines = |columns: &str| {
        let output = space.command(&["status"]).env("COLUMNS", columns).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.lines().nth(1).unwrap().to_owned()
    };
    let wide = lines("120");
    assert!(
        wide.contains(name) && wide.ends_with("change line 5"),
        "{wide}"
    );
    let narrow = lines("32");
    assert!(
        narrow.chars().count() <= 32 && narrow.contains("  -  "),
        "{narrow}"
    );
}

#[test]
fn status_of_another_release() {
    let space = space();
    space.configure(
        "release = [{ version = \"1.0\", directory = \"up\" }, { version = \"2.0\", directory = \"next\", patches = \"patches/2\" }]\n",
    );
    space.write("next/src/a.c", format!("first\n{}", numbered()));
    space.patch("0001-five.patch", change(5, "line 5", "LINE 5"));
    space.write("patches/2/0001-nine.patch", change(9, "line 9", "LINE 9"));
    space.write("patches/2/series", "0001-nine.patch\n");
    insta::assert_snapshot!(space.ok(&["status", "--release", "2.0"]), @r"
    srv-2.0, 1 patch
    1  0001-nine.patch  -          change line 9
    next: `perfquilt upstream fetch 2.0` imports the release
    ");
    space.ok(&["upstream", "fetch", "2.0", "-q"]);
    insta::assert_snapshot!(space.ok(&["status", "--release", "srv-2.0"]), @r"
    srv-2.0, 1 patch
    1  0001-nine.patch  offset 1   change line 9
    ");
    let error = space.fails(2, &["status", "--release", "3.0"]);
    insta::assert_snapshot!(error, @r"
    error: bench-config/perfquilt.toml: there is no release `3.0` [PQ0400]
    hint: available: 1.0, 2.0
    ");
}

#[test]
fn points_can_be_exported() {
    let space = space();
    space.patch("a.patch", change(5, "line 5", "LINE 5"));
    space.patch("b.patch", change(20, "line 20", "LINE 20"));
    for (point, five, twenty) in [
        ("0", false, false),
        ("1", true, false),
        ("2", true, true),
        ("alone:2", false, true),
        ("without:1", false, true),
        ("control", false, false),
    ] {
        let dir = format!("out-{}", point.replace(':', "-"));
        space.ok(&["export", point, &dir, "-q"]);
        let text = space.read(&format!("{dir}/src/a.c"));
        assert_eq!(text.contains("LINE 5"), five, "{point}");
        assert_eq!(text.contains("LINE 20"), twenty, "{point}");
    }
    let error = space.fails(2, &["export", "0", "out-0"]);
    assert_eq!(
        error,
        "error: out-0 is not empty [PQ0116]\nhint: name a new folder, or empty this one first\n"
    );
    insta::assert_snapshot!(space
            .fails(2, &["export", "3", "new"]), @r"
    error: there is no patch 3: the series has 2 patches [PQ0207]
    hint: `perfquilt status` lists them
    ");
    assert!(
        space
            .fails(2, &["export", "three", "new"])
            .contains("[PQ0207]")
    );
    assert!(!space.path("new").exists());
    insta::assert_snapshot!(space
            .fails(2, &["export", "0", "series"]), @r"error: series is a file [PQ0118]");
}

#[test]
fn inseparable_patches_say_why() {
    let space = space();
    space.patch("a.patch", change(5, "line 5", "LINE 5"));
    space.patch("between.patch", change(20, "line 20", "LINE 20"));
    space.patch("b.patch", change(5, "LINE 5", "LINE FIVE"));
    let error = space.fails(3, &["export", "alone:3", "out"]);
    insta::assert_snapshot!(error, @r"
    error: patches/b.patch:6: patch 3 (b.patch) is not separable: it needs patch 1 (a.patch) [PQ0319]
      patches/b.patch:6: hunk 1 of 1 does not apply to src/a.c
    ");
    let error = space.fails(3, &["export", "without:1", "out"]);
    insta::assert_snapshot!(error, @r"
    error: patches/b.patch:6: patch 1 (a.patch) is not separable: needed by patch 3 (b.patch) [PQ0319]
      patches/b.patch:6: hunk 1 of 1 does not apply to src/a.c
    ");
    space.ok(&["export", "without:2", "out", "-q"]);
}

#[test]
fn conflicts_say_what_was_expected() {
    let space = space();
    space.patch("ok.patch", change(5, "line 5", "LINE 5"));
    space.patch("bad.patch", change(9, "line nine", "LINE 9"));
    insta::assert_snapshot!(space.fails(3, &["stack"]), @r"
    error: patches/bad.patch:6: hunk 1 of 1 does not apply to src/a.c [PQ0315]
      line 9 should read  `line nine`
               but reads  `line 9`
    hint: change the patch by hand for this release and refresh it
    ");
    space.write("patches/bad.patch", change(5, "line 5", "LINE 5"));
    insta::assert_snapshot!(space.fails(3, &["stack"]), @r"
    error: patches/bad.patch:6: hunk 1 of 1 does not apply to src/a.c [PQ0315]
      line 5 should read  `line 5`
               but reads  `LINE 5`
    hint: patch 1 (ok.patch) has made this change already: if the two are one, remove one of them
    ");
    space.write(
        "patches/bad.patch",
        change(9, "line 9", "LINE 9").replace(" line 8", " LINE 8"),
    );
    insta::assert_snapshot!(space.fails(3, &["stack"]), @r"
    error: patches/bad.patch:6: hunk 1 of 1 does not apply to src/a.c [PQ0315]
      line 8 should read  `LINE 8`
               but reads  `line 8`
    hint: with fuzz 1 it would apply at line 8; check that place and refresh the patch
    ");
    assert!(
        space
            .ok(&["stack", "--fuzz", "1", "-q"])
            .contains("fuzz 1     bad.patch")
    );
}

#[test]
fn a_patch_in_the_wrong_place_is_said_to_be() {
    let space = space();
    let context = change(9, "line 9", "LINE 9").replace(" line 8", " LINE 8");
    space.patch("needs-8.patch", context);
    space.patch("other.patch", change(20, "line 20", "LINE 20"));
    space.patch("8.patch", change(8, "line 8", "LINE 8"));
    let hint = |space: &TestEnvironment| {
        let error = space.fails(3, &["stack"]);
        error.lines().last().unwrap().to_owned()
    };
    assert_eq!(
        hint(&space),
        "hint: it applies after patch 3 (8.patch): are they in the wrong order in the series?"
    );
    // The later one was made without the earlier one, which would apply after it.
    let wide = change(8, "line 8", "LINE 8")
        .replace("-7,3 +7,3", "-7,5 +7,5")
        .replace(" line 9\n", " line 9\n line 10\n line 11\n");
    space.write("patches/wide.patch", wide);
    space.write("patches/11.patch", change(11, "line 11", "LINE 11"));
    space.write("series", "11.patch\nwide.patch\n");
    assert_eq!(
        hint(&space),
        "hint: it applies before patch 1 (11.patch): are they in the wrong order in the series?"
    );
    // No order helps.
    space.write("series", "needs-8.patch\nother.patch\n");
    assert!(!hint(&space).contains("wrong order"));
}

#[test]
fn mistakes_get_the_next_step() {
    let space = space();
    space.patch("ok.patch", change(5, "line 5", "LINE 5"));
    let cases: [(&[&str], &str); 14] = [
        (&["bisect", "--meter", "tiem"], "hint: did you mean `time`?"),
        (
            &["bisect", "--meter", "seconds"],
            "hint: meters are time, cpu,",
        ),
        (&["run", "demo"], "hint: `--preset demo`?"),
        (&["run", "2"], "hint: `--point 2`?"),
        (
            &["run", "--layouts", "off"],
            "hint: `layouts` of [preset.NAME] in bench-config/perfquilt.toml",
        ),
        (&["run", "--lanes=1"], "hint: `lanes` of [preset.NAME]"),
        (
            &["bot", "serve", "--user", "x"],
            "hint: `user` of [sandbox]",
        ),
        (
            &["run", "--budget", "5m", "--blocks", "4"],
            "cannot be used with '--blocks <N>'",
        ),
        (&["run", "--budget", "30"], "needs a unit, as in `30m`"),
        (
            &["post", "--repo", "foo"],
            "hint: a repository is OWNER/NAME",
        ),
        (&["report", "-o", "x.pdf"], "hint: .html, .htm, .md"),
        (
            &["edit", "nope"],
            "hint: `perfquilt status` lists the patches",
        ),
        (&["edit", "ko.patch"], "hint: did you mean `ok.patch`?"),
        (
            &["report", "--experiment", "a"],
            "hint: without an option: `perfquilt report EXPERIMENT`",
        ),
    ];
    for (args, said) in cases {
        let error = space.fails(2, args);
        assert!(error.contains(said), "{args:?}: {error}");
    }
    let config = space.read("bench-config/perfquilt.toml");
    for (text, from, said) in [
        (
            "current = \"9.9\"",
            "current = \"1.0\"",
            ":3: there is no release `9.9` [PQ0201]\nhint: available: 1.0",
        ),
        (
            "name = \"srv\" 5",
            "name = \"srv\"",
            "\n  name = \"srv\" 5\n               ^",
        ),
        (
            "[margin]\ntiem = 0.1\n[recipe]",
            "[recipe]",
            "`tiem` [PQ0203]\nhint: did you mean `time`?",
        ),
    ] {
        assert!(config.contains(from), "{config}");
        space.write(
            "bench-config/perfquilt.toml",
            config.replacen(from, text, 1),
        );
        let error = space.fails(2, &["status"]);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn bad_series() {
    let space = space();
    space.write("patches/0001-real.patch", change(5, "line 5", "LINE 5"));
    space.write("series", "0001-reel.patch\n");
    assert_eq!(
        space.fails(3, &["stack"]),
        "error: series:1: patch \"0001-reel.patch\" not found in patches/ [PQ0307]\nhint: did you mean \"0001-real.patch\"?\n"
    );
    space.write("series", "# only\n\n0001-real.patch --fuzzy\n");
    insta::assert_snapshot!(space
            .fails(3, &["status"]), @r"
    error: series:3: unknown option `--fuzzy` [PQ0306]
    hint: supported are patch's options that change the tree: -pN, -R, -F N, -l, -E, -N, -c, -n, -u, --binary
    ");
    std::fs::remove_file(space.path("series")).unwrap();
    insta::assert_snapshot!(space
            .fails(3, &["status"]), @r"
    error: series: there is no series file [PQ0300]
    hint: list the patches there, one name a line; an empty file is an empty series
    ");
    // Where git quiltimport and gbp look.
    space.write("patches/series", "0001-real.patch\n");
    assert!(space.ok(&["stack", "-q"]).contains("0001-real.patch"));
}

#[test]
fn nothing_waits_for_a_pipe() {
    let space = space();
    assert!(run_in(&space.workspace(), "mkfifo", &["patches/f.patch"]).success());
    space.write("series", "f.patch\n");
    let error = space.fails(3, &["stack"]);
    insta::assert_snapshot!(error, @r"error: patches/f.patch: cannot be read: no regular file [PQ0307]");
    std::fs::remove_file(space.path("series")).unwrap();
    space.link("series", "/dev/zero");
    let error = space.fails(3, &["stack"]);
    insta::assert_snapshot!(error, @r"error: series: cannot be read: no regular file [PQ0307]");
}

/// Git's diff of a binary file that is to hold `a`, NUL, `b` and a line end, without what comes before.
const BINARY: &str = "GIT binary patch\nliteral 4\nLcmYdfNa6wj0#*Rd\n\nliteral 0\nHcmV?d00001\n\n";

#[test]
fn unsafe_and_unusable_patches() {
    let space = space();
    space.patch("bad.patch", "");
    let try_patch = |content: &str| {
        space.write("patches/bad.patch", content);
        space.fails(3, &["stack"])
    };
    let on = |name: &str| format!("--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-x\n+y\n");
    for (content, message) in [
        (on("../../etc/passwd"), "bad.patch:1: path ../../etc/passwd: it leads out of the tree"),
        (on("/etc/passwd"), "bad.patch:1: there is no file etc/passwd to patch"),
        (on(".git/config"), "`.git` is not allowed"),
        (on("src/.GIT/config"), "`.git` is not allowed"),
        (on("link/a.c"), "link/a.c: link is a symbolic link"),
        (on("src"), "src is a folder"),
        (on("f/x"), "f/x: f is a file"),
        (on("nowhere"), "there is no file nowhere to patch"),
        (on("link"), "link is a symbolic link, but the patch changes a file"),
        (
            "--- /dev/null\n+++ b/link/evil\n@@ -0,0 +1 @@\n+x\n".into(),
            "link is a symbolic link",
        ),
        (
            "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n".into(),
            "the patch creates f, which already exists",
        ),
        (
            "--- a/src/a.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-line 1\n".into(),
            "contains more than the patch removes",
        ),
        (
            "diff --git a/l2 b/l2\nnew file mode 120000\n--- /dev/null\n+++ b/l2\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n\
             diff --git a/l2/x b/l2/x\nnew file mode 100644\n--- /dev/null\n+++ b/l2/x\n@@ -0,0 +1 @@\n+x\n".into(),
            "l2 is a symbolic link",
        ),
        (
            "diff --git a/f b/f\nold mode 100644\nnew mode 104755\n".into(),
            "bad.patch:3: unsupported file mode 104755",
        ),
        (
            "diff --git a/s b/s\nnew file mode 160000\nindex 0000000..1234567\n".into(),
            "a change of a submodule",
        ),
        (
            "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to ../g\n".replace("b/g", "b/../g"),
            "leads out of the tree",
        ),
        (
            "*** a/f\n--- b/f\n***************\n*** 1 ****\n! hi\n--- 1,2 ----\n! ho\n".into(),
            "bad.patch:4: the halves of this hunk do not fit each other",
        ),
        (
            "Index: a/f\n1c1\n< hi\n> ho\n".into(),
            "bad.patch:4: `---` is missing here",
        ),
        (
            "Index: a/f\n1c\nho\n.\n".into(),
            "bad.patch:2: an ed script, which is a program and not a diff",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho".into(),
            "bad.patch:5: the patch ends in the middle of this line",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@\n-hi\n+ho\n".into(),
            "bad.patch:3: the patch ends inside this hunk",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-hi\n+ho\n".into(),
            "the rest was probably cut off",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-hi\n+ho\nfolded by a mailer\n".into(),
            "bad.patch:6: this line does not fit the hunk it is in",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -one +1 @@\n-hi\n+ho\n".into(),
            "bad.patch:3: malformed hunk header",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -99999999999999999999 +1 @@\n-hi\n+ho\n".into(),
            "malformed hunk header",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n hi\n".into(),
            "a hunk that changes nothing",
        ),
        (
            "diff --git a/f b/f\nindex 1234567..89abcde 100644\nGIT binary patch\nliteral 5\nMcmZ\n\n".into(),
            "damaged",
        ),
        (
            format!("diff --git a/f b/f\nindex 1234567..1a23e4b 100644\n{BINARY}"),
            "the binary patch of f has no full `index` line",
        ),
        (
            format!("diff --git a/new b/new\nnew file mode 100644\nindex {:040}..{:040}\n{BINARY}", 0, 1),
            "the binary patch makes another file of new than its `index` line says",
        ),
        (
            "--- f\n+++ f\n@@ -1 +1 @@\n-hi\n+ho\n".into(),
            "no file name is left after -p1",
        ),
        ("nothing at all\n".into(), "no diff in this file"),
    ] {
        let error = try_patch(&content);
        assert!(error.contains(message), "{content}\n{error}");
        assert!(error.contains("patches/bad.patch"), "{error}");
    }
}

#[test]
fn patches_that_must_work() {
    let space = space();
    space.patch("p.patch", "");
    let try_patch = |content: &str, out: &str| {
        space.write("patches/p.patch", content);
        let dir = space.path("out");
        let _ = std::fs::remove_dir_all(&dir);
        space.ok(&["export", "1", "out", "-q"]);
        std::fs::read_to_string(dir.join(out)).unwrap()
    };
    // Trailing text of a mail, itself without a line end; CR LF throughout.
    assert_eq!(
        try_patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n-- \n2.39.5", "f"),
        "ho\n"
    );
    assert_eq!(
        try_patch("--- a/f\r\n+++ b/f\r\n@@ -1 +1 @@\r\n-hi\r\n+ho\r\n", "f"),
        "ho\n"
    );
    // A context diff, a normal diff, an indented one, and one with comments in it.
    assert_eq!(
        try_patch(
            "*** a/f\n--- b/f\n***************\n*** 1 ****\n! hi\n--- 1 ----\n! ho\n",
            "f"
        ),
        "ho\n"
    );
    assert_eq!(try_patch("Index: a/f\n1c1\n< hi\n---\n> ho\n", "f"), "ho\n");
    assert_eq!(
        try_patch("  --- a/f\n  +++ b/f\n  @@ -1 +1 @@\n  -hi\n  +ho\n", "f"),
        "ho\n"
    );
    assert_eq!(
        try_patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n# why\n-hi\n+ho\n", "f"),
        "ho\n"
    );
    // A binary file without its content changes nothing, as with patch.
    assert_eq!(
        try_patch(
            "diff --git a/f b/f\nindex 1234567..89abcde 100644\nBinary files a/f and b/f differ\n",
            "f"
        ),
        "hi\n"
    );
    // Two names: the one that exists, and never one outside the tree.
    assert_eq!(
        try_patch("--- a/../../f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n", "f"),
        "ho\n"
    );
    assert_eq!(
        try_patch("--- a/f.orig\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n", "f"),
        "ho\n"
    );
    // A swap of two files, as git writes it.
    let swap = "diff --git a/f b/src/a.c\nsimilarity index 100%\nrename from f\nrename to src/a.c\n\
                diff --git a/src/a.c b/f\nsimilarity index 100%\nrename from src/a.c\nrename to f\n";
    assert_eq!(try_patch(swap, "f"), numbered());
    assert_eq!(try_patch(swap, "src/a.c"), "hi\n");
    // A folder takes a file's place.
    let replace =
        "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-hi\n--- /dev/null\n+++ b/f/x\n@@ -0,0 +1 @@\n+x\n";
    assert_eq!(try_patch(replace, "f/x"), "x\n");
}

#[test]
fn lint_reports_everything_at_once() {
    let space = space();
    space.write("patches/unused.patch", change(7, "line 7", "LINE 7"));
    space.write("patches/README", "not a patch");
    space.patch("good.patch", change(5, "line 5", "LINE 5"));
    space.patch(
        "bare.patch",
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n+more\n",
    );
    let series = space.read("series");
    space.write(
        "series",
        format!("{series}good.patch\n  # note\nnone.patch\n../up/f\n"),
    );
    space.ok(&["upstream", "fetch", "-q"]);
    let (code, out, err) = space.shown(&["lint"]);
    assert_eq!(code, 3);
    insta::assert_snapshot!(out, @r#"
    error: series:3: patch "good.patch" is listed twice [PQ0308]
      hint: it is on line 1 already; remove one of them
    error: series:6: path ../up/f: it leads out of the tree (`..`) [PQ0301]
      hint: a patch is named by its path below the folder of patches
    error: series:5: patch "none.patch" not found in patches/ [PQ0307]
      hint: add the file, or remove the line from the series
    warning: series:4: quilt takes this comment for a patch called `#` [PQ0356]
      hint: start it in the first column
    warning: patches/unused.patch: the series does not name this file [PQ0350]
      hint: add it to the series, or remove it
    warning: patches/bare.patch:6: this line is ignored, although it looks like a part of the hunk before [PQ0324]
      hint: check the counts in the hunk's `@@` line
    warning: patches/bare.patch:1: the patch has no header [PQ0360]
      hint: start it with `Subject:` or `Description:` and `From:`, and describe its purpose
    "#);
    assert_eq!(err, "error: 3 errors and 4 warnings [PQ0320]\n");
}

#[test]
fn lint_tries_whether_patches_apply() {
    let space = space();
    space.ok(&["upstream", "fetch", "-q"]);
    space.patch(
        "off.patch",
        change(9, "line 9", "LINE 9").replace("@@ -8,3 +8,3 @@", "@@ -6,3 +6,3 @@"),
    );
    let (code, out, _) = space.shown(&["lint"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(out, @r"
    warning: patches/off.patch: applies to srv-1.0 with an offset of 2 lines [PQ0352]
      hint: `perfquilt lint --fix` rewrites it
    ");
    assert_eq!(space.shown(&["lint", "--strict"]).0, 3);
    space.patch("bad.patch", change(9, "nonsense", "LINE 9"));
    let (code, out, _) = space.shown(&["lint", "--json"]);
    assert_eq!(code, 3);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["errors"], 1);
    assert_eq!(json["findings"][0]["file"], "patches/bad.patch");
    assert_eq!(json["findings"][0]["line"], 6);
}

#[test]
fn compressed_patches() {
    let space = space();
    let patch = |name: &str, at: usize| {
        let (old, new) = (format!("line {at}"), format!("LINE {at}"));
        space.write(&format!("patches/{name}"), change(at, &old, &new));
    };
    let tools = [
        ("a.patch", 3, "gzip", "gz"),
        ("b.patch", 6, "bzip2", "bz2"),
        ("c.patch", 9, "xz", "xz"),
        ("d.patch", 12, "lzma", "lzma"),
    ];
    let mut series = String::new();
    for (name, at, tool, ending) in tools {
        patch(name, at);
        crate::common::run_in(&space.path("patches"), tool, &[name]);
        series.push_str(&format!("{name}.{ending}\n"));
    }
    // `lzip` is on few machines: this is what it makes of "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n".
    let lzip: &[u8] = &LZIP;
    space.write("patches/e.patch.lz", lzip);
    space.write("series", format!("{series}e.patch.lz\n"));
    assert!(space.ok(&["stack", "-q"]).contains("exact      e.patch.lz"));
    space.write("patches/e.patch.lz", &lzip[..lzip.len() - 30]);
    let error = space.fails(3, &["stack"]);
    insta::assert_snapshot!(error, @r"error: patches/e.patch.lz: cannot be decompressed: premature eof [PQ0310]");
    for ending in ["gz", "bz2", "xz", "lzma", "lz"] {
        space.write("series", format!("x.patch.{ending}\n"));
        space.write(
            &format!("patches/x.patch.{ending}"),
            "not compressed at all",
        );
        let error = space.fails(3, &["stack"]);
        let place = format!("patches/x.patch.{ending}: cannot be decompressed");
        assert!(error.contains(&place), "{error}");
    }
    space.write("series", "a.patch.zst\n");
    space.write("patches/a.patch.zst", "x");
    insta::assert_snapshot!(space
            .fails(3, &["stack"]), @r"
    error: patches/a.patch.zst: patches compressed as .zst are not supported, by quilt either [PQ0312]
    hint: compress it as .xz or .gz, or not at all
    ");
}

const LZIP: [u8; 69] = [
    0x4c, 0x5a, 0x49, 0x50, 0x01, 0x0c, 0x00, 0x16, 0xe8, 0x04, 0x0c, 0x22, 0xf3, 0x3f, 0xfd, 0xaa,
    0xa7, 0x1d, 0xec, 0x85, 0x87, 0xe2, 0x5e, 0xff, 0xca, 0x6a, 0x1c, 0x16, 0xc4, 0x29, 0xc8, 0x14,
    0x26, 0xba, 0xd4, 0xdb, 0x6f, 0xeb, 0xff, 0x63, 0x6e, 0xaf, 0xd2, 0x0a, 0xff, 0xfc, 0x5c, 0x28,
    0x00, 0xb1, 0x13, 0x82, 0x1f, 0x24, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x45, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00,
];

/// Where quilt looks, and who is asked first.
#[test]
fn series_elsewhere() {
    let space = space();
    space.write("patches/a.patch", change(3, "line 3", "LINE 3"));
    space.write("series", "a.patch\n");
    space.write("debian/patches/b.patch", change(3, "line 3", "LINE 3"));
    space.write("debian/patches/00list", "b.patch\n");
    let with = |variables: &[(&str, &str)]| {
        let output = space
            .command(&["stack", "-q"])
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        text(output.stdout) + &text(output.stderr)
    };
    assert!(with(&[]).contains("a.patch"));
    let environment = [
        ("QUILT_PATCHES", "debian/patches"),
        ("QUILT_SERIES", "00list"),
    ];
    assert!(with(&environment).contains("b.patch"));
    let error = with(&[("QUILT_SERIES", "nowhere")]);
    insta::assert_snapshot!(error, @r"
    error: nowhere: there is no series file [PQ0300]
    hint: QUILT_SERIES names nowhere, which takes precedence over the configuration
    ");
    space.write(".pc/.quilt_patches", "patches\n");
    space.write(".pc/.quilt_series", "series\n");
    assert!(with(&environment).contains("a.patch"));
    space.write(".pc/series", "# nothing\n");
    assert!(!with(&[]).contains("a.patch"));
}

#[test]
fn options_of_patch() {
    let space = space();
    let with = |options: &str, patch: &str| {
        space.write("patches/p.patch", patch);
        space.write("series", format!("p.patch {options}\n"));
        let (code, out, err) = space.shown(&["stack", "-q"]);
        if code != 0 {
            return err;
        }
        let dir = space.path("out");
        let _ = std::fs::remove_dir_all(&dir);
        space.ok(&["export", "1", "out", "-q"]);
        let file = std::fs::read_to_string(dir.join("f"));
        out + &file.unwrap_or_else(|_| "gone".to_owned())
    };
    let plain = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n";
    assert!(with("", plain).ends_with("ho\n"));
    assert!(with("-p0", &plain.replace("a/", "").replace("b/", "")).ends_with("ho\n"));
    assert!(with("-p2", &plain.replace("a/", "x/a/").replace("b/", "y/b/")).ends_with("ho\n"));
    let back = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-ho\n+hi\n";
    assert!(with("-R", back).ends_with("ho\n"));
    assert!(with("-l", &plain.replace("-hi", "-hi  ")).ends_with("ho\n"));
    let delete = "--- a/f\n+++ b/f\n@@ -1 +0,0 @@\n-hi\n";
    assert!(with("", delete).ends_with("p.patch\n"));
    assert!(with("-E", delete).ends_with("gone"));
    let error = with("-pab", plain);
    insta::assert_snapshot!(error, @r"
    error: series:1: `-pab` needs a number [PQ0306]
    hint: -p0 keeps the paths as they are, -p1 (the default) strips `a/`; quilt's -pab is for writing patches, not for applying them
    ");
    let error = with("--merge", plain);
    assert!(
        error.starts_with(
            "error: series:1: patch's option `--merge` is not supported [PQ0306]\nhint: "
        ),
        "{error}"
    );
    // Fuzz for one patch, and for all of them.
    let fuzzy =
        "--- a/src/a.c\n+++ b/src/a.c\n@@ -4,3 +4,3 @@\n line FOUR\n-line 5\n+LINE 5\n line 6\n";
    let error = with("", fuzzy);
    insta::assert_snapshot!(error, @r"
    error: patches/p.patch:3: hunk 1 of 1 does not apply to src/a.c [PQ0315]
      line 4 should read  `line FOUR`
               but reads  `line 4`
    hint: with fuzz 1 it would apply at line 4; check that place and refresh the patch
    ");
    assert!(with("-F1", fuzzy).contains("fuzz 1     p.patch"));
    assert!(with("-F0", fuzzy).contains("[PQ0315]"));
    let config = space.read("bench-config/perfquilt.toml");
    space.write(
        "bench-config/perfquilt.toml",
        format!("{config}[series]\nfuzz = 2\n"),
    );
    assert!(with("", fuzzy).contains("fuzz 1     p.patch"));
    assert!(with("-F0", fuzzy).contains("[PQ0315]"));
    assert_eq!(space.shown(&["stack", "-q", "--fuzz", "0"]).0, 3);
}

#[test]
fn a_folder_of_patches_that_is_not_there_is_named() {
    let space = TestEnvironment::new();
    space.write("series", "a.patch\n");
    std::fs::remove_dir(space.path("patches")).unwrap();
    let err = space.fails(3, &["status"]);
    insta::assert_snapshot!(err, @r#"
    error: series:1: patch "a.patch" not found in patches/ [PQ0307]
    hint: there is no folder patches/
    "#);
    space.link("patches", "elsewhere");
    let err = space.fails(3, &["status"]);
    insta::assert_snapshot!(err, @r#"
    error: series:1: patch "a.patch" not found in patches/ [PQ0307]
    hint: patches is a link to elsewhere, which is not there
    "#);
}
