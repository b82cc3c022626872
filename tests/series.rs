//! The series on the command line: status, lint, stack, export, points, and everything that can be
//! wrong with patches.

#![allow(clippy::unwrap_used)]

mod support;

use support::Space;

fn numbered() -> String {
    (1..=30).map(|n| format!("line {n}\n")).collect()
}

fn space() -> Space {
    let space = Space::new();
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
    the release is not imported yet; `perfquilt upstream fetch` does that
    1  0001-five.patch                     -          change line 5
    2  sub/0002-a-very-long-name-for-a-p…  -          change line 9
    ");
    insta::assert_snapshot!(space.ok(&["stack", "-q"]), @r"
    0  50fc633c8bd3             srv-1.0
    1  cead79ba6b6d  exact      0001-five.patch
    2  7f84472d180e  offset 2   sub/0002-a-very-long-name-for-a-patch-indeed.patch
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
        "error: out-0 is not empty\nhint: name a new folder, or empty this one first\n"
    );
    assert!(
        space
            .fails(2, &["export", "3", "new"])
            .contains("there is no patch 3")
    );
    assert!(
        space
            .fails(2, &["export", "three", "new"])
            .contains("is not a point")
    );
    assert!(!space.path("new").exists());
    assert!(
        space
            .fails(2, &["export", "0", "series"])
            .contains("is a file")
    );
}

#[test]
fn inseparable_patches_say_why() {
    let space = space();
    space.patch("a.patch", change(5, "line 5", "LINE 5"));
    space.patch("between.patch", change(20, "line 20", "LINE 20"));
    space.patch("b.patch", change(5, "LINE 5", "LINE FIVE"));
    let error = space.fails(3, &["export", "alone:3", "out"]);
    assert!(
        error.contains("patch 3 (b.patch) is not separable: it needs patch 1 (a.patch)"),
        "{error}"
    );
    let error = space.fails(3, &["export", "without:1", "out"]);
    assert!(
        error.contains("patch 1 (a.patch) is not separable: needed by patch 3 (b.patch)"),
        "{error}"
    );
    space.ok(&["export", "without:2", "out", "-q"]);
}

#[test]
fn conflicts_say_what_was_expected() {
    let space = space();
    space.patch("ok.patch", change(5, "line 5", "LINE 5"));
    space.patch("bad.patch", change(9, "line nine", "LINE 9"));
    insta::assert_snapshot!(space.fails(3, &["stack"]), @r"
    error: patches/bad.patch:6: hunk 1 of 1 does not apply to src/a.c
      line 9 should read  `line nine`
               but reads  `line 9`
    hint: change the patch by hand for this release and refresh it
    ");
    space.write("patches/bad.patch", change(5, "line 5", "LINE 5"));
    insta::assert_snapshot!(space.fails(3, &["stack"]), @r"
    error: patches/bad.patch:6: hunk 1 of 1 does not apply to src/a.c
      line 5 should read  `line 5`
               but reads  `LINE 5`
    hint: the whole change is in this file already; if upstream took it, drop the patch from the series
    ");
    space.write(
        "patches/bad.patch",
        change(9, "line 9", "LINE 9").replace(" line 8", " LINE 8"),
    );
    insta::assert_snapshot!(space.fails(3, &["stack"]), @r"
    error: patches/bad.patch:6: hunk 1 of 1 does not apply to src/a.c
      line 8 should read  `LINE 8`
               but reads  `line 8`
    hint: with fuzz 1 it would go to line 8; check that place and refresh the patch
    ");
    assert!(
        space
            .ok(&["stack", "--fuzz", "1", "-q"])
            .contains("fuzz 1     bad.patch")
    );
}

#[test]
fn bad_series() {
    let space = space();
    space.write("patches/0001-real.patch", change(5, "line 5", "LINE 5"));
    space.write("series", "0001-reel.patch\n");
    assert_eq!(
        space.fails(3, &["stack"]),
        "error: series:1: patch \"0001-reel.patch\" not found in patches/\nhint: did you mean \"0001-real.patch\"?\n"
    );
    space.write("series", "# only\n\n0001-real.patch --fuzzy\n");
    assert!(
        space
            .fails(3, &["status"])
            .contains("series:3: unknown option `--fuzzy`")
    );
    std::fs::remove_file(space.path("series")).unwrap();
    assert!(
        space
            .fails(3, &["status"])
            .contains("there is no series file")
    );
    // Where git quiltimport and gbp look.
    space.write("patches/series", "0001-real.patch\n");
    assert!(space.ok(&["stack", "-q"]).contains("0001-real.patch"));
}

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
            "f is to be created, but it exists",
        ),
        (
            "--- a/src/a.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-line 1\n".into(),
            "holds more than the patch removes",
        ),
        (
            "diff --git a/l2 b/l2\nnew file mode 120000\n--- /dev/null\n+++ b/l2\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n\
             diff --git a/l2/x b/l2/x\nnew file mode 100644\n--- /dev/null\n+++ b/l2/x\n@@ -0,0 +1 @@\n+x\n".into(),
            "l2 is a symbolic link",
        ),
        (
            "diff --git a/f b/f\nold mode 100644\nnew mode 104755\n".into(),
            "bad.patch:3: odd file mode 104755",
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
            "*** a/f\n--- b/f\n***************\n*** 1 ****\n! hi\n--- 1 ----\n! ho\n".into(),
            "bad.patch:3: a context diff",
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
            "diff --git a/f b/f\nindex 1234567..89abcde 100644\nBinary files a/f and b/f differ\n".into(),
            "a binary file without its content",
        ),
        (
            "diff --git a/f b/f\nindex 1234567..89abcde 100644\nGIT binary patch\nliteral 5\nMcmZ\n\n".into(),
            "damaged",
        ),
        (
            "--- f\n+++ f\n@@ -1 +1 @@\n-hi\n+ho\n".into(),
            "no file is named after -p1",
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
    // The patch's own last line end is missing; trailing text of a mail; CR LF throughout.
    assert_eq!(
        try_patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho", "f"),
        "ho\n"
    );
    assert_eq!(
        try_patch(
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n-- \n2.39.5\n",
            "f"
        ),
        "ho\n"
    );
    assert_eq!(
        try_patch("--- a/f\r\n+++ b/f\r\n@@ -1 +1 @@\r\n-hi\r\n+ho\r\n", "f"),
        "ho\n"
    );
    // Two names: the one that exists.
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
    let (code, out, err) = space.run(&["lint"]);
    assert_eq!(code, 3);
    insta::assert_snapshot!(out, @r#"
    error: series:3: patch "good.patch" is listed twice
      hint: it is on line 1 already; remove one of them
    error: series:6: path ../up/f: it leads out of the tree (`..`)
      hint: a patch is named by its path below the folder of patches
    error: series:5: patch "none.patch" not found in patches/
      hint: add the file, or take the line out of the series
    warning: series:4: quilt takes this comment for a patch called `#`
      hint: begin it in the first column
    warning: patches/unused.patch: the series does not name this file
      hint: add it to the series, or remove it
    warning: patches/bare.patch:6: this line is ignored, although it looks like a part of the hunk before
      hint: are the counts in the hunk's `@@` line right?
    warning: patches/bare.patch:1: the patch has no header
      hint: begin it with `Subject:` or `Description:` and `From:`, and say what it is good for
    "#);
    assert_eq!(err, "error: 3 errors and 4 warnings\n");
}

#[test]
fn lint_tries_whether_patches_apply() {
    let space = space();
    space.ok(&["upstream", "fetch", "-q"]);
    space.patch(
        "off.patch",
        change(9, "line 9", "LINE 9").replace("@@ -8,3 +8,3 @@", "@@ -6,3 +6,3 @@"),
    );
    let (code, out, _) = space.run(&["lint"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("applies to srv-1.0 with an offset of 2 lines"),
        "{out}"
    );
    assert_eq!(space.run(&["lint", "--strict"]).0, 3);
    space.patch("bad.patch", change(9, "nonsense", "LINE 9"));
    let (code, out, _) = space.run(&["lint", "--json"]);
    assert_eq!(code, 3);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["errors"], 1);
    assert_eq!(json["findings"][0]["file"], "patches/bad.patch");
    assert_eq!(json["findings"][0]["line"], 6);
}

#[test]
fn compressed_patches() {
    let space = space();
    space.write("patches/a.patch", change(5, "line 5", "LINE 5"));
    space.write("patches/b.patch", change(9, "line 9", "LINE 9"));
    support::run_in(&space.path("patches"), "gzip", &["a.patch"]);
    support::run_in(&space.path("patches"), "xz", &["b.patch"]);
    space.write("series", "a.patch.gz\nb.patch.xz\n");
    assert!(space.ok(&["stack", "-q"]).contains("exact      b.patch.xz"));
    space.write("patches/a.patch.gz", "not gzip");
    assert!(
        space
            .fails(3, &["stack"])
            .contains("patches/a.patch.gz: cannot be decompressed")
    );
    space.write("series", "a.patch.bz2\n");
    space.write("patches/a.patch.bz2", "BZh");
    assert!(
        space
            .fails(3, &["stack"])
            .contains(".bz2 are not supported")
    );
}

#[test]
fn a_release_may_have_a_series_of_its_own() {
    let space = Space::bare(
        "release = [{ version = \"1.0\", directory = \"up\" }, \
         { version = \"2.0\", directory = \"two\", patches = \"patches/2\" }]\n",
    );
    space.write("up/f", "a\n");
    space.write("two/f", "A\n");
    space.patch("x.patch", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n");
    space.write(
        "patches/2/x.patch",
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-A\n+B\n",
    );
    space.write("patches/2/series", "x.patch\n");
    space.ok(&["export", "1", "one", "--release", "1.0"]);
    space.ok(&["export", "1", "other", "--release", "srv-2.0"]);
    assert_eq!(space.read("one/f"), "b\n");
    assert_eq!(space.read("other/f"), "B\n");
    // The other release's patches are not unused ones of this series.
    let out = space.ok(&["lint"]);
    assert!(!out.contains("does not name"), "{out}");
    let err = space.fails(2, &["stack", "--release", "3.0"]);
    assert!(err.contains("there is no release `3.0`"), "{err}");
}
