//! `perfquilt lint` on patches that are cut off, and without the release.

use crate::common::TestEnvironment;

const PATCH: &str =
    "From: A B <a@example.org>\nSubject: greet\n\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hi\n+ho\n";

fn space() -> TestEnvironment {
    let space = TestEnvironment::new();
    space.write("up/f", "hi\n");
    space
}

#[test]
fn without_the_release_lint_says_what_it_did_not_check() {
    let space = space();
    // Without patches, nothing can fail to apply.
    assert_eq!(space.ok(&["lint", "--strict"]), "no problems found\n");
    space.patch("greet.patch", PATCH);
    insta::assert_snapshot!(space.ok(&["lint"]), @r"
    no problems found in the files; whether they apply was not checked: srv-1.0 is not fetched
      hint: `perfquilt upstream fetch` fetches it
    ");
    insta::assert_snapshot!(space.fails(3, &["lint", "--strict"]), @r"
    error: whether the patches apply was not checked: srv-1.0 is not fetched [PQ0320]
    hint: `perfquilt upstream fetch` fetches it
    ");
    let json = |space: &TestEnvironment| -> serde_json::Value {
        serde_json::from_str(&space.ok(&["lint", "--json"])).unwrap()
    };
    assert_eq!(json(&space)["applied"], false);
    space.patch("plain.patch", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-ho\n+hey\n");
    let out = space.ok(&["lint"]);
    insta::assert_snapshot!(out, @r"
    warning: patches/plain.patch:1: the patch has no header [PQ0360]
      hint: start it with `Subject:` or `Description:` and `From:`, and describe its purpose
    whether the patches apply was not checked: srv-1.0 is not fetched
      hint: `perfquilt upstream fetch` fetches it
    ");
    space.ok(&["upstream", "fetch", "-q"]);
    assert_eq!(json(&space)["applied"], true);
    let out = space.ok(&["lint"]);
    assert!(!out.contains("not checked"), "{out}");
    // After another error, lint applies nothing.
    space.patch("none.patch", "no diff\n");
    let (code, out, _) = space.shown(&["lint", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["applied"]), (3, &false.into()));
    let codes = json["findings"].as_array().unwrap();
    let codes: Vec<_> = codes.iter().map(|found| &found["code"]).collect();
    assert_eq!(codes, ["PQ0311", "PQ0360"]);
}

#[test]
fn a_patch_that_is_cut_off_is_an_error() {
    let space = space();
    space.ok(&["upstream", "fetch", "-q"]);
    space.patch("greet.patch", PATCH);
    let middle = "the patch ends in the middle of this line";
    let after = "the patch ends after this line, in the middle of a diff";
    for (ending, line, what) in [
        ("@@ -9,3 +9", 9, middle),
        ("@", 9, middle),
        ("---", 9, middle),
        ("--- a/g", 9, middle),
        ("--- a/g\n", 9, after),
        ("--- a/g\n+++ b", 10, middle),
        ("--- a/g\n+++ b/g\n", 10, after),
        ("--- a/g\n+++ b/g\n@@ -1", 11, middle),
        (
            "diff --git a/g b/g\nindex 1234567..89abcde 100644\n",
            10,
            after,
        ),
    ] {
        space.write("patches/greet.patch", format!("{PATCH}{ending}"));
        let (code, out, err) = space.shown(&["lint"]);
        assert_eq!(code, 3, "{ending:?}: {out}{err}");
        let expected = format!(
            "error: patches/greet.patch:{line}: {what} [PQ0310]\n  hint: was the rest cut off?"
        );
        assert!(out.starts_with(&expected), "{ending:?}: {out}");
        assert!(!out.contains("[PQ0323]"), "{ending:?}: {out}");
    }
    for ending in [
        "",
        "-- \n2.39.5\n",
        "-- \n2.39.5",
        "--",
        "\nText after it.\n",
    ] {
        space.write("patches/greet.patch", format!("{PATCH}{ending}"));
        space.ok(&["lint"]);
    }
}
