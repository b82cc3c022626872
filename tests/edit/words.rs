//! The words of patches: headers, titles, trailers and text between diffs come through edit, refresh and lint --fix.

use super::*;
use crate::common::releases;

/// A patch of line `line` of `a.c` below a header.
fn below(header: &str, line: usize) -> String {
    let (before, after) = (line - 1, line + 1);
    format!(
        "{header}--- a/a.c\n+++ b/a.c\n@@ -{before},3 +{before},3 @@\n {before}\n-{line}\n+x{line}\n {after}\n"
    )
}

/// A workspace with one patch of line 5 below this header.
fn with_header(header: &str) -> TestEnvironment {
    let space = space();
    space.write("series", "x.patch\n");
    space.write("patches/x.patch", below(header, 5));
    space.ok(&["edit"]);
    space
}

fn header(space: &TestEnvironment) -> String {
    let text = space.read("patches/x.patch");
    let end = text
        .find("diff --git")
        .or_else(|| text.find("--- a/"))
        .unwrap();
    text[..end].to_owned()
}

#[test]
fn a_title_that_looks_like_a_field_is_the_title() {
    for title in [
        "innodb: reuse the buffer",
        "From now on, reuse it",
        "[dispatch] reuse",
        "[hotpatch][core] reuse",
    ] {
        let space = with_header(&format!("{title}\n\nWords.\n\n"));
        assert_eq!(
            git(&space, &["log", "-1", "--format=%s|%b"])
                .lines()
                .next()
                .unwrap(),
            format!("{title}|Words.")
        );
        let message = git(&space, &["log", "-1", "--format=%B"]);
        git(
            &space,
            &[
                "commit",
                "-q",
                "--amend",
                "-m",
                &message.replace("Words.", "More words."),
            ],
        );
        space.ok(&["refresh"]);
        assert_eq!(header(&space), format!("{title}\n\nMore words.\n\n"));
        git(
            &space,
            &[
                "commit",
                "-q",
                "--amend",
                "-m",
                &message.replace(title, "[monkeypatch] new: title"),
            ],
        );
        space.ok(&["refresh"]);
        assert_eq!(header(&space), "[monkeypatch] new: title\n\nWords.\n\n");
    }
}

#[test]
fn an_amend_that_changes_nothing_keeps_every_header() {
    for (words, title) in [
        (
            "# HG changeset patch\n# User A Person <p@example.org>\n# Date 1717401600 -7200\na: five\n\nLong.\n\n",
            "a: five",
        ),
        (
            "# name : x.patch\n#\n# Any change should be reviewed.\n\n",
            "x.patch",
        ),
        (
            "Subject: a: five\nFrom: A B <a@b.c>\n\nWords.\n# 12 is the number.\n\n",
            "a: five",
        ),
        (
            "commit 0123456789abcdef\nAuthor: A B <a@b.c>\nDate:   Mon Jun 3 10:00:00 2024 +0200\n\n    a: five\n    \n    Long.\n\n",
            "a: five",
        ),
    ] {
        let space = with_header(words);
        assert_eq!(git(&space, &["log", "-1", "--format=%s"]), title);
        git(
            &space,
            &["-c", "core.editor=true", "commit", "-q", "--amend", "-a"],
        );
        space.ok(&["refresh"]);
        assert_eq!(space.read("patches/x.patch"), below(words, 5));
        // Nor does a new diff change it.
        put(&space, "a.c", "x5\n", "y5\n");
        git(&space, &["commit", "-qa", "--amend", "--no-edit"]);
        space.ok(&["refresh"]);
        assert_eq!(header(&space), words);
    }
}

#[test]
fn a_line_of_perfquilt_in_a_header_names_no_patch() {
    let words =
        "Subject: five\n\nWords.\n\nPerfquilt-Patch: other.patch\nSigned-off-by: A <a@b.c>\n\n";
    let space = with_header(words);
    assert_eq!(
        git(&space, &["log", "-1", "--format=%b"]),
        "Words.\n\nSigned-off-by: A <a@b.c>\nPerfquilt-Patch: x.patch"
    );
    git(
        &space,
        &["-c", "core.editor=true", "commit", "-q", "--amend"],
    );
    space.ok(&["refresh"]);
    assert_eq!(space.read("series"), "x.patch\n");
    assert_eq!(space.read("patches/x.patch"), below(words, 5));
}

#[test]
fn a_patch_of_the_series_may_have_the_title_of_a_fixup() {
    let space = with_header("Subject: fixup! four\n\n");
    put(&space, "a.c", "x5\n", "y5\n");
    git(&space, &["commit", "-qa", "--amend", "--no-edit"]);
    assert!(space.ok(&["refresh"]).contains("changed   x.patch"));
    put(&space, "a.c", "y5\n", "z5\n");
    git(&space, &["commit", "-qa", "--fixup=HEAD"]);
    let err = space.fails(3, &["refresh"]);
    assert!(err.contains("is not squashed into its target"), "{err}");
}

#[test]
fn a_title_that_begins_with_a_hash_survives_the_editor() {
    for (words, body) in [
        (
            "Subject: #12: five\nFrom: A B <a@b.c>\n\nWords\nof it.\n\nMore.\n\n",
            "Words",
        ),
        (
            "Description: #12: five\n Words.\nAuthor: A B <a@b.c>\n\n",
            "Words.",
        ),
    ] {
        let space = with_header(words);
        assert_eq!(git(&space, &["log", "-1", "--format=%s"]), "#12: five");
        git(
            &space,
            &["-c", "core.editor=true", "commit", "-q", "--amend"],
        );
        assert!(git(&space, &["log", "-1", "--format=%s"]).starts_with(body));
        space.ok(&["refresh"]);
        assert_eq!(space.read("patches/x.patch"), below(words, 5));
    }
}

#[test]
fn a_header_that_is_written_anew_keeps_its_other_lines() {
    let raw = "commit 0123456789abcdef\ntree 89abcdef\nparent 4567\nauthor A B <a@b.c> 1717401600 +0200\ncommitter C D <c@d.e> 1717401600 +0200\n\n    five\n\n";
    for (words, kept) in [
        ("# One.\n# Two.\n\n", &["# One.", "# Two."][..]),
        (
            raw,
            &["tree 89abcdef", "committer C D <c@d.e> 1717401600 +0200"],
        ),
        (
            "#! /bin/sh /usr/share/dpatch/dpatch-run\n## x.dpatch by A B <a@b.c>\n##\n## DP: five\n\n@DPATCH@\n",
            &["#! /bin/sh /usr/share/dpatch/dpatch-run", "##", "@DPATCH@"],
        ),
        (
            "Subject: five\nFrom: A B <a@b.c>\nBug: 12\n\nWords.\n---\n notes\n\n",
            &["Bug: 12", " notes"],
        ),
    ] {
        let space = with_header(words);
        let other = ["--author=N <n@p.q>", "--date=2025-01-02T03:04:05+0100"];
        let message = "New title\n\nNew words.\n\nPerfquilt-Patch: x.patch";
        let amend = ["commit", "-q", "--amend", "-m", message];
        git(&space, &[&amend[..], &other].concat());
        space.ok(&["refresh"]);
        let written = header(&space);
        for line in kept {
            assert!(written.lines().any(|it| it == *line), "{line}: {written}");
        }
        // What is written is read back.
        let shown = git(&space, &["log", "-1", "--format=%an|%ai|%B"]);
        space.ok(&["edit", "--close"]);
        space.ok(&["edit"]);
        assert_eq!(
            git(&space, &["log", "-1", "--format=%an|%ai|%B"]),
            shown,
            "{written}"
        );
    }
}

#[test]
fn a_line_patch_of_the_author_is_text() {
    for value in [
        "D12345",
        "https://reviews.example.org/r/1234",
        "other.patch",
    ] {
        let words =
            format!("Subject: five\n\nWords.\n\nPatch: {value}\nSigned-off-by: A <a@b.c>\n\n");
        let space = with_header(&words);
        let body = git(&space, &["log", "-1", "--format=%b"]);
        let trailers =
            format!("Patch: {value}\nSigned-off-by: A <a@b.c>\nPerfquilt-Patch: x.patch");
        assert_eq!(body, format!("Words.\n\n{trailers}"));
        space.ok(&["refresh"]);
        assert_eq!(
            (space.read("series"), space.read("patches/x.patch")),
            ("x.patch\n".into(), below(&words, 5))
        );
        put(&space, "a.c", "\n30\n", "\nthirty\n");
        commit(&space, "thirty");
        let out = space.ok(&["refresh"]);
        assert!(
            out.contains("kept      x.patch") && out.contains("new       thirty.patch"),
            "{out}"
        );
        assert_eq!(space.read("patches/x.patch"), below(&words, 5));
    }
}

#[test]
fn a_branch_of_an_earlier_version_is_read_once_more() {
    let space = space();
    space.write(
        "patches/one.patch",
        patch("a.c", 3, "one").replace("Because.\n", "Because.\n\nPatch: D12\n"),
    );
    space.ok(&["edit"]);
    git(
        &space,
        &[
            "-c",
            "core.hooksPath=/dev/null",
            "filter-branch",
            "-f",
            "--msg-filter",
            "sed s/^Perfquilt-Patch:/Patch:/",
            "srv-1.0..HEAD",
        ],
    );
    let tip = git(&space, &["rev-parse", "HEAD"]);
    let session = ".perfquilt/edit/srv-1.0.json";
    let mut json: serde_json::Value = serde_json::from_str(&space.read(session)).unwrap();
    json["schema"] = 1.into();
    json["start"] = tip.into();
    space.write(session, json.to_string());
    put(&space, "a.c", "\n50\n", "\nfifty\n");
    commit(&space, "fifty");
    rebase(
        &space,
        "pick {1}\nexec git commit -q --amend -m reworded -m 'Patch: one.patch'\npick {2}\npick {3}\npick {4}",
    );
    let (_, _, note) = space.shown(&["edit"]);
    insta::assert_snapshot!(note, @r"warning: an earlier version of perfquilt made the branch edit/srv-1.0; `perfquilt refresh` reads its `Patch:` lines once more and writes `Perfquilt-Patch:` [PQ0953]");
    let (code, out, err) = space.shown(&["refresh"]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!(err, @r"warning: lines `Patch: NAME` of the branch edit/srv-1.0 are read as names of patches, as in earlier versions; the line is called `Perfquilt-Patch:` now [PQ0953]");
    for line in [
        "1  reworded  one.patch",
        "2  kept      two.patch",
        "3  kept      three.patch",
        "4  new       fifty.patch",
    ] {
        assert!(out.contains(line), "{out}");
    }
    assert!(git(&space, &["log", "--format=%b"]).contains("Perfquilt-Patch: one.patch"));
    let (_, _, err) = space.shown(&["refresh"]);
    assert!(!err.contains("earlier"), "{err}");
}

#[test]
fn text_between_diffs_is_named_and_kept() {
    let diff = |name: &str, line: usize| {
        format!(
            "diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -{line},2 +{line},2 @@\n-{line}\n+x{line}\n {}\n",
            line + 1
        )
    };
    let mail = "From 12 Mon Sep 17 00:00:00 2001\nFrom: C D <c@d.e>\nSubject: [PATCH 2/2] b: nine\n\nReason number two.\n\nSigned-off-by: C D <c@d.e>\n---\n b.c | 2 +-\n\n";
    let text = format!(
        "From: A B <a@b.c>\nSubject: a: five\n\nReason one.\n---\n a.c | 2 +-\n\n{}-- \n2.39.5\n\n{mail}{}-- \n2.39.5\n\n",
        diff("a.c", 5),
        diff("b.c", 9)
    );
    let space = space();
    space.write("series", "both.patch\n");
    space.write("patches/both.patch", &text);
    let out = space.ok(&["lint"]);
    let warned = out.lines().find(|line| line.contains("[PQ0367]"));
    assert!(
        warned.is_some_and(|line| line.contains("patches/both.patch:18: ")),
        "{out}"
    );
    space.ok(&["lint", "--fix"]);
    let fixed = space.read("patches/both.patch");
    assert!(fixed.contains(mail), "{fixed}");
    assert!(!space.ok(&["lint", "--fix"]).contains("fixed:"));
    for change in ["y5\n", "z5\n"] {
        space.ok(&["edit"]);
        let path = tree(&space).join("a.c");
        let old = std::fs::read_to_string(&path).unwrap();
        std::fs::write(
            &path,
            old.replace(old.lines().nth(4).unwrap(), change.trim()),
        )
        .unwrap();
        git(&space, &["commit", "-qa", "--amend", "--no-edit"]);
        space.ok(&["refresh"]);
        let changed = space.read("patches/both.patch");
        assert!(
            changed.contains(mail) && changed.contains(change),
            "{changed}"
        );
    }
}

#[test]
fn a_file_of_several_commits_is_split_when_asked() {
    let diff = |name: &str, line: usize, old: &str, new: &str| {
        format!(
            "diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -{line},2 +{line},2 @@\n-{old}\n+{new}\n {}\n",
            line + 1
        )
    };
    let first = format!(
        "From: A B <a@b.c>\nSubject: a: five\n\nReason one.\n---\n{}-- \n2.39.5\n\n",
        diff("a.c", 5, "5", "x5")
    );
    let second = |diff: &str| {
        format!(
            "From 12 Mon Sep 17 00:00:00 2001\nFrom: C D <c@d.e>\nSubject: [PATCH 2/2] more\n\nReason two.\n---\n{diff}"
        )
    };
    // The second commit changes another file, or the line that the first one wrote.
    for diff in [diff("b.c", 9, "9", "x9"), diff("a.c", 5, "x5", "y5")] {
        let space = space();
        let second = second(&diff);
        space.write("series", "# both\nboth.patch -p1 # why\n");
        space.write("patches/both.patch", format!("{first}{second}"));
        space.write("patches/both-2.patch", "something else\n");
        let out = space.ok(&["lint", "--split"]);
        assert!(
            out.contains(
                "split: patches/both.patch keeps its first commit; new: patches/both-3.patch"
            ),
            "{out}"
        );
        assert!(!out.contains("PQ0367"), "{out}");
        assert_eq!(
            space.read("series"),
            "# both\nboth.patch -p1 # why\nboth-3.patch -p1\n"
        );
        assert_eq!(space.read("patches/both.patch"), first);
        assert_eq!(space.read("patches/both-3.patch"), second);
        assert!(!space.ok(&["lint", "--split"]).contains("split:"));
    }
}

#[test]
fn a_squash_keeps_fields_and_text_of_both_patches() {
    let space = space();
    let two = space
        .read("patches/two.patch")
        .replace("Bug: 17\n", "Bug: 18\nForwarded: no\n")
        .replace("A B <a@b.c>", "C D <c@d.e>");
    space.write("patches/two.patch", two);
    space.ok(&["edit"]);
    rebase(&space, "pick {1}\nsquash {2}\npick {3}");
    space.ok(&["refresh"]);
    let one = space.read("patches/one.patch");
    for line in [
        "From: A B <a@b.c>\n",
        "Author: C D <c@d.e>\n",
        "Bug: 17\n",
        "Bug: 18\n",
        "Forwarded: no\n",
    ] {
        assert!(one.contains(line), "{line}: {one}");
    }
    assert!(!space.path("patches/two.patch").exists());
}

#[test]
fn text_between_diffs_survives_a_rebase() {
    let old = releases::lines(30, &[]);
    let new = format!("a new line\n{old}");
    let space = releases::space(
        &[("a.c", old.clone()), ("b.c", old.clone())],
        &[("a.c", new.clone()), ("b.c", new)],
    );
    let diff = |name: &str| {
        format!("--- a/{name}\n+++ b/{name}\n@@ -9,3 +9,3 @@\n line 9\n-line 10\n+ten\n line 11\n")
    };
    let remark = "\nWhy b.c needs it, too.\n\n";
    space.patch(
        "both.patch",
        format!("Subject: ten\n\n{}{remark}{}", diff("a.c"), diff("b.c")),
    );
    releases::commit_all(&space);
    space.ok(&["rebase", "2.0", "--write"]);
    let written = releases::git(&space, &["show", "rebase/srv-2.0:patches/both.patch"]);
    assert!(written.contains("@@ -8,7 +8,7 @@"), "{written}");
    assert!(
        written.contains(&format!("{remark}diff --git a/b.c b/b.c\n")),
        "{written}"
    );
}
