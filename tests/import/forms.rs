//! Every form in which git, quilt and mail programs write patches.

use super::*;

/// Twenty numbered lines, some of them replaced.
fn short(marks: &[(usize, &str)]) -> String {
    lines(20, marks)
}

fn series(space: &TestEnvironment) -> Vec<String> {
    space.read("series").lines().map(str::to_owned).collect()
}

/// The first patch of the series.
fn first(space: &TestEnvironment) -> String {
    let name = series(space)[0].split(' ').next().unwrap().to_owned();
    space.read(&format!("patches/{name}"))
}

/// Title, author and message of the last commit of the edit branch.
fn edited(space: &TestEnvironment, format: &str) -> String {
    space.ok(&["edit"]);
    let tree = space.path(".perfquilt/edit/srv-1.0");
    run_in(&tree, "git", &["log", "-1", &format!("--format={format}")]).stdout_text()
}

/// A mail with a patch of line 5 of `a`.
fn mail(headers: &str, body: &str) -> String {
    format!(
        "From 12 Mon Sep 17 00:00:00 2001\n{headers}\n{body}---\n a | 2 +-\n\ndiff --git a/a b/a\n--- a/a\n+++ b/a\n\
         @@ -4,3 +4,3 @@\n line 4\n-line 5\n+five\n line 6\n-- \n2.39.5\n\n"
    )
}

/// A workspace whose release has the file `a`.
fn space_of_a() -> (tempfile::TempDir, TestEnvironment) {
    let release = tempfile::tempdir().unwrap();
    std::fs::write(release.path().join("a"), short(&[])).unwrap();
    let space = keeper(&[("1.0", release.path())]);
    (release, space)
}

#[test]
fn a_mail_may_change_a_file_with_a_blank_in_its_name() {
    let (_release, space) = space_of_a();
    let name = "my logo.png";
    let new = format!(
        "diff --git a/{name} b/{name}\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"
    );
    space.write(
        "box.mbx",
        format!("From 12 Mon Sep 17 00:00:00 2001\nFrom: A <a@b.c>\nSubject: logo\n\n---\n{new}-- \n2.39.5\n\n"),
    );
    space.ok(&["import", "box.mbx"]);
    assert!(exported(&space).iter().any(|(file, ..)| file == name));
}

#[test]
fn files_with_cr_lf_come_by_mail() {
    let dos = |marks: &[(usize, &str)]| short(marks).replace('\n', "\r\n");
    let fork = Fork::new(&[("dos", dos(&[])), ("unix", short(&[]))]);
    fork.commit("dos", "dos", &dos(&[(5, "five\n")]));
    fork.commit("unix", "unix", &short(&[(5, "five\n")]));
    let mails = fork.git(&["format-patch", "--stdout", "base.."]);
    let release = fork.checkout("base");
    fork.git(&["reset", "-q", "--hard", "main"]);
    let space = keeper(&[("1.0", release.path())]);
    space.write("series.mbx", &mails);
    space.ok(&["import", "series.mbx"]);
    assert_eq!(exported(&space), listing(fork.path()));
    // A mail that was saved with such line ends changes files with plain ones.
    let (_release, space) = space_of_a();
    let saved = mail("From: A <a@b.c>\nSubject: five\n", "").replace('\n', "\r\n");
    space.write("saved.mbx", saved);
    space.ok(&["import", "saved.mbx"]);
    assert_eq!(exported(&space)[0].2, short(&[(5, "five\n")]).as_bytes());
}

#[test]
fn commits_and_mails_in_any_encoding_are_read_as_git_reads_them() {
    let fork = Fork::new(&[("a", short(&[]))]);
    for (line, encoding, title) in [
        (5, "ISO-8859-1", "f\u{fc}r f\u{fc}nf"),
        (9, "windows-1251", "девять"),
        (12, "SHIFT-JIS", "日本"),
    ] {
        let path = fork.path().join("a");
        let text = std::fs::read_to_string(&path).unwrap();
        fork.write("a", &text.replace(&format!("line {line}\n"), "x\n"));
        fork.write("message", title);
        let converted = run_in(
            fork.path(),
            "sh",
            &[
                "-c",
                &format!(
                    "iconv -f UTF-8 -t {encoding} message > m2; iconv -f UTF-8 -t {encoding} message | sed 's/^/user.name=/' > name; git -c i18n.commitEncoding={encoding} -c \"$(cat name)\" commit -q -F m2 a; rm -f message m2 name"
                ),
            ],
        );
        assert!(converted.success(), "{}", converted.stderr_text());
    }
    let titles = fork.git(&["log", "--reverse", "--format=%s", "base.."]);
    let release = fork.checkout("base");
    fork.git(&["reset", "-q", "--hard", "main"]);
    let space = keeper(&[("1.0", release.path())]);
    let report = json(
        &space,
        &[
            "import",
            &fork.path().to_string_lossy(),
            "base..main",
            "--json",
        ],
    );
    let patches = report["imported"][0]["patches"].as_array().unwrap();
    let read: Vec<&str> = patches
        .iter()
        .map(|it| it["title"].as_str().unwrap())
        .collect();
    assert_eq!(read, titles.lines().collect::<Vec<_>>());
    assert_eq!(
        report["imported"][0]["notes"].as_array().unwrap().len(),
        0,
        "{report}"
    );
    // A mail in Latin-1, and words of headers in other character sets.
    let (_release, space) = space_of_a();
    let latin = |text: &str| -> Vec<u8> { text.chars().map(|c| c as u8).collect() };
    let headers = "From: =?ISO-8859-1?Q?J=FCrgen?= <j@b.c>\nSubject: [PATCH] =?koi8-r?B?0NHU2A==?=\n\
                   Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: 8bit\n";
    space.write("latin.mbx", latin(&mail(headers, "Gr\u{f6}\u{df}er.\n")));
    space.ok(&["import", "latin.mbx"]);
    assert!(edited(&space, "%an|%s|%b").starts_with("Jürgen|пять|Größer.\n\nPerf"));
    // A character set that does not fit is an error, never another text.
    let (_release, space) = space_of_a();
    space.write(
        "bad.mbx",
        latin(&mail(&headers.replace("iso-8859-1", "utf-7x"), "x\u{fc}\n")),
    );
    let err = space.fails(2, &["import", "bad.mbx"]);
    insta::assert_snapshot!(err, @r"
    error: git cannot decode mail 1 [PQ0901]
      error: cannot convert from utf-7x to UTF-8
    hint: its character set is unknown or does not fit its bytes; correct `Content-Type:` in the mail
    ");
    // A date that is none goes, with a note.
    let (_release, space) = space_of_a();
    let headers = "From: A B <a@b.c>\nDate: yesterday at noon\nSubject: x\n";
    space.write("date.mbx", mail(headers, "Words.\n"));
    let out = space.ok(&["import", "date.mbx"]);
    assert!(
        out.contains("the patch has none: yesterday at noon"),
        "{out}"
    );
}

#[test]
fn a_commit_with_bytes_outside_its_encoding_is_read_and_named() {
    let fork = Fork::new(&[("a", short(&[]))]);
    fork.commit("fXr", "a", &short(&[(5, "x\n")]));
    // `git commit` itself would convert the byte.
    let script = "git cat-file commit HEAD | LC_ALL=C sed 's/fXr/f\\xfcr/' | git hash-object -t commit -w --stdin";
    let made = run_in(fork.path(), "sh", &["-c", script]);
    assert!(made.success(), "{}", made.stderr_text());
    fork.git(&["update-ref", "refs/heads/main", made.stdout_text().trim()]);
    let release = fork.checkout("base");
    let space = keeper(&[("1.0", release.path())]);
    let out = space.ok(&["import", &fork.path().to_string_lossy(), "base..main"]);
    assert!(out.contains("is not valid in the encoding"), "{out}");
    assert!(
        first(&space).contains("Subject: f\u{fc}r\n"),
        "{}",
        first(&space)
    );
}

#[test]
fn numbered_mails_are_sorted_whatever_their_style() {
    let fork = Fork::new(&[("a", short(&[]))]);
    for step in ["1", "12", "123"] {
        fork.commit(
            &format!("a: step {step}"),
            "a",
            &short(&[(5, &format!("{step}\n"))]),
        );
    }
    let mails: Vec<String> = ["main", "main~2", "main~1"]
        .map(|tip| fork.git(&["format-patch", "--stdout", "-1", tip]))
        .into();
    let release = fork.checkout("base");
    for style in [
        "[PATCH %/3]",
        "[v2,%/3]",
        "[%/3]",
        "Re: [PATCH % of 3]",
        "[PATCHv2 0%/03]",
        "(%/3)",
    ] {
        let tagged = mails.iter().zip(["3", "1", "2"]);
        let tagged =
            tagged.map(|(mail, number)| mail.replace("[PATCH]", &style.replace('%', number)));
        let space = keeper(&[("1.0", release.path())]);
        space.write("box", tagged.collect::<String>());
        space.ok(&["import", "box"]);
        let names = [
            "0001-a-step-1.patch",
            "0002-a-step-12.patch",
            "0003-a-step-123.patch",
        ];
        assert_eq!(series(&space), names, "{style}");
        assert!(first(&space).contains("\nSubject: a: step 1\n"), "{style}");
    }
    // Missing and repeated numbers have names.
    let numbered = |numbers: [&str; 2]| -> String {
        let mails = [&mails[1], &mails[2]].into_iter().zip(numbers);
        mails
            .map(|(mail, number)| mail.replace("[PATCH]", &format!("[PATCH {number}/3]")))
            .collect()
    };
    for (numbers, note) in [
        (["1", "2"], "the box lacks patch 3 of 3"),
        (
            ["2", "2"],
            "number 2 of 3 is there 2 times: mail 1 (a: step 1), mail 2 (a: step 12)",
        ),
    ] {
        let space = keeper(&[("1.0", release.path())]);
        space.write("box", numbered(numbers));
        let out = space.ok(&["import", "box"]);
        assert!(out.contains(note), "{out}");
    }
}

#[test]
fn a_diff_in_the_words_of_a_mail_is_no_change() {
    let indented = "    diff --git a/evil b/evil\n    new file mode 100644\n    --- /dev/null\n    +++ b/evil\n    @@ -0,0 +1 @@\n    +evil\n";
    let headers = "From: A <a@b.c>\nSubject: [PATCH] five\n";
    let quoting = mail(headers, &format!("Try:\n\n{indented}\nDone.\n"));
    // As `git format-patch --interdiff` writes it.
    let interdiff = mail(headers, "Why.\n").replace(
        " a | 2 +-\n",
        &format!(" a | 2 +-\n\nInterdiff:\n{indented}"),
    );
    for mail in [&quoting, &interdiff] {
        let (_release, space) = space_of_a();
        space.write("m.mbx", mail);
        space.ok(&["import", "m.mbx"]);
        let files: Vec<String> = exported(&space)
            .into_iter()
            .map(|(name, ..)| name)
            .collect();
        assert_eq!(files, ["a"]);
        assert!(first(&space).contains("+evil"), "{}", first(&space));
        // Nor for quilt.
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("a"), short(&[])).unwrap();
        let copied = run_in(
            &space.workspace(),
            "cp",
            &["-r", "patches", &tree.path().to_string_lossy()],
        );
        assert!(copied.success());
        std::fs::copy(space.path("series"), tree.path().join("patches/series")).unwrap();
        assert!(run_in(tree.path(), "quilt", &["push", "-a", "--fuzz=0"]).success());
        assert!(!tree.path().join("evil").exists());
    }
    // The message is the same in the editor.
    let (_release, space) = space_of_a();
    space.write("m.mbx", &quoting);
    space.ok(&["import", "m.mbx"]);
    let body = edited(&space, "%b");
    assert!(
        body.starts_with(&format!("Try:\n\n{indented}\nDone.\n")),
        "{body}"
    );
    // In a folder, patch and quilt apply it; a note and lint say so.
    let (_release, space) = space_of_a();
    space.write("folder/1.patch", &quoting);
    let out = space.ok(&["import", "folder"]);
    let words = "this indented diff changes evil";
    assert!(out.contains(words), "{out}");
    assert!(space.ok(&["lint"]).contains(words));
}

/// A patch that changes one line of `a`.
fn change(line: usize) -> String {
    format!(
        "Subject: line {line}\n\n--- a/a\n+++ b/a\n@@ -{0},3 +{0},3 @@\n line {0}\n-line {line}\n+x\n line {1}\n",
        line - 1,
        line + 1
    )
}

#[test]
fn lists_of_dpatch_guards_and_cover_letters_are_what_they_are() {
    let (_release, space) = space_of_a();
    space.write("dpatch/00list", "# fixes\n02_b\n#03_c\n01_a.dpatch\n");
    for (name, line) in [("01_a", 2), ("02_b", 5), ("03_c", 8)] {
        space.write(&format!("dpatch/{name}.dpatch"), change(line));
    }
    let out = space.ok(&["import", "dpatch"]);
    assert_eq!(
        series(&space),
        ["# fixes", "02_b.dpatch", "#03_c", "01_a.dpatch"]
    );
    assert!(out.contains("left out: 03_c.dpatch"), "{out}");
    let (_release, space) = space_of_a();
    space.write("dpatch/00list", "#ifdef X\n01_a\n#endif\n");
    space.write("dpatch/01_a.dpatch", change(2));
    let refused = space.fails(2, &["import", "dpatch"]);
    insta::assert_snapshot!(refused, @r"
    error: dpatch/00list:1: the C preprocessor decides which patches this list has [PQ0900]
    hint: write a `series`: `cpp -P dpatch/00list > series`, with `.dpatch` behind each name
    ");

    let (_release, space) = space_of_a();
    space.write("mq/series", "1.patch\n2.patch #+old\n# other\n");
    space.write("mq/1.patch", change(2));
    space.write("mq/2.patch", change(5));
    let out = space.ok(&["import", "mq"]);
    assert!(out.contains("the guard `#+old` of 2.patch"), "{out}");

    let (_release, space) = space_of_a();
    let cover =
        "From 1 Mon Sep 17 00:00:00 2001\nFrom: A <a@b.c>\nSubject: [PATCH 0/1] all\n\nWords.\n";
    space.write("mails/0000-cover-letter.patch", cover);
    space.write("mails/0001-a b.patch", change(2));
    space.write("mails/0001-a-b.patch", change(5));
    let out = space.ok(&["import", "mails"]);
    assert!(
        out.contains("left out: 0000-cover-letter.patch (a cover letter)"),
        "{out}"
    );
    assert_eq!(series(&space), ["0001-a-b-2.patch", "0001-a-b.patch"]);
}

#[test]
fn folders_of_versions_are_chosen_or_named() {
    let (_release, space) = space_of_a();
    space.write("src/1.0/1.patch", change(2));
    space.write("src/1.1/1.patch", change(5));
    space.write("src/loose.patch", change(8));
    let out = space.ok(&["import", "src"]);
    for note in ["left out: 1.1/ (beside", "left out: loose.patch (beside"] {
        assert!(out.contains(note), "{note}: {out}");
    }
    let (_release, space) = space_of_a();
    space.write("src/v2.0/1.patch", change(2));
    space.write("src/v2.1/1.patch", change(5));
    let refused = space.fails(2, &["import", "src"]);
    insta::assert_snapshot!(refused, @r"
    error: src has folders of several versions: v2.0, v2.1 [PQ0900]
    hint: import one of them; folders named as the configured releases are imported for these
    ");
}

#[test]
fn one_change_comes_once_from_a_box() {
    let of = |subject: &str, id: &str| {
        mail(
            &format!("From: A <a@b.c>\nSubject: {subject}\nMessage-ID: <{id}@x>\n"),
            "",
        )
    };
    let (_release, space) = space_of_a();
    let once = of("[PATCH] five", "1");
    space.write("twice", format!("{once}{once}"));
    let out = space.ok(&["import", "twice"]);
    assert!(
        out.contains("mail 2 (five), which is mail 1 again"),
        "{out}"
    );
    assert_eq!(series(&space), ["0001-five.patch"]);
    let (_release, space) = space_of_a();
    let versions = format!("{once}{}", of("[PATCH v2] five", "2"));
    space.write("versions", versions);
    let refused = space.fails(2, &["import", "versions"]);
    insta::assert_snapshot!(refused, @r"
    error: versions: mails 1 and 2 are versions 1 and 2 of one patch, `five` [PQ0901]
    hint: import a mailbox with one version of the series
    ");
    // The notes about a box that does not apply may tell why.
    let other = of("[PATCH 2/2] five", "3");
    let again = of("[PATCH 2/2] also five", "4");
    space.write("numbers", format!("{other}{again}"));
    let failed = space.fails(3, &["import", "numbers"]);
    insta::assert_snapshot!(failed, @r"
    error: 0002-also-five.patch:11: hunk 1 of 1 does not apply to a [PQ0315]
      line 5 should read  `line 5`
               but reads  `five`
      note: number 2 of 2 is there 2 times: mail 1 (five), mail 2 (also five); the mails stay in the order of the box
    hint: patch 1 (0001-five.patch) has made this change already: if the two are one, remove one of them
    ");
}

#[test]
fn a_mail_whose_form_is_not_the_declared_one_has_its_patch() {
    let plain = mail("From: A <a@b.c>\nSubject: five\n", "Why.\n");
    let (head, text) = plain.split_once("\n\n").unwrap();
    let coded = through("base64", text);
    let coded = String::from_utf8(coded).unwrap();
    let signed = "Content-Type: multipart/signed;\n boundary=\"outer\"";
    let part = "Content-Type: text/x-diff\nContent-Transfer-Encoding: base64";
    let parts = |boundary: &str| format!("--{boundary}\n{part}\n\n{coded}\n--{boundary}--\n");
    let signature = "--outer\nContent-Type: application/pgp-signature\n\nx\n--outer--\n";
    for (form, body, said) in [
        (signed, text.to_owned(), "multipart/signed"),
        (signed, parts("inner"), "multipart/signed"),
        (signed, format!("{text}{signature}"), "multipart/signed"),
        (
            "Content-Type: text/plain\nContent-Transfer-Encoding: base64",
            text.to_owned(),
            "Encoding: base64",
        ),
        (signed, parts("outer"), ""),
    ] {
        let (_release, space) = space_of_a();
        space.write(
            "one.mbx",
            format!("{head}\nMIME-Version: 1.0\n{form}\n\n{body}"),
        );
        let out = space.ok(&["import", "one.mbx"]);
        assert_eq!(
            exported(&space)[0].2,
            short(&[(5, "five\n")]).as_bytes(),
            "{body}"
        );
        let odd = out.lines().find(|line| line.starts_with("note: mail 1"));
        let is_right = odd.map_or(said.is_empty(), |odd| {
            !said.is_empty() && odd.contains(said)
        });
        assert!(is_right, "{out}{body}");
    }
}

#[test]
fn blanks_that_a_mail_program_wrote_are_named() {
    let plain = mail(
        "From: A <a@b.c>\nSubject: five\nContent-Type: text/plain; charset=utf-8\n",
        "",
    );
    for (from, to, code, said) in [
        (
            "\n line 4",
            "\n\u{a0}line 4",
            3,
            "begins with a no-break blank (U+00A0)",
        ),
        (
            "\n line 4",
            "\n\u{3000}line 4",
            3,
            "begins with the blank U+3000",
        ),
        (
            "-line 5",
            "-line\u{a0}5",
            3,
            "only the blanks differ at line 5: the patch has a no-break blank (U+00A0)",
        ),
        ("-line 5", "-line\t5", 3, "only the blanks differ at line 5"),
        (
            "+five",
            "+\u{a0} five",
            0,
            "is indented with a no-break blank (U+00A0)",
        ),
        ("+five", "+five\u{a0}!", 0, ""),
    ] {
        let (_release, space) = space_of_a();
        space.write("one.mbx", plain.replace(from, to));
        let (got, out, errors) = space.shown(&["import", "one.mbx"]);
        let all = format!("{out}{errors}");
        assert_eq!(got, code, "{all}");
        assert!(all.contains(said), "{all}");
        assert_eq!(all.contains("blank"), !said.is_empty(), "{all}");
    }
}

#[test]
fn the_file_that_makes_a_change_first_is_named() {
    let removal = "--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n".to_owned();
    let two = format!(
        "{}{}",
        change(2),
        change(8)
            .split_once("@@")
            .map(|it| format!("@@{}", it.1))
            .unwrap()
    );
    for (first, second) in [
        (change(5), change(5)),
        (change(2), two),
        (removal.clone(), removal),
    ] {
        let (release, space) = space_of_a();
        std::fs::write(release.path().join("b"), "b\n").unwrap();
        space.write("src/10-first.patch", &first);
        space.write("src/15-between.patch", change(11));
        space.write(
            "src/20-again.patch",
            format!("Subject: once more\n\n{second}"),
        );
        let refused = space.fails(3, &["import", "src"]);
        let said = "patch 1 (10-first.patch) has made this change already";
        assert!(refused.contains(said), "{refused}");
        // The same for a series.
        for name in ["10-first", "15-between", "20-again"] {
            space.write(
                &format!("patches/{name}.patch"),
                space.read(&format!("src/{name}.patch")),
            );
        }
        space.write(
            "series",
            "10-first.patch\n15-between.patch\n20-again.patch\n",
        );
        assert!(space.fails(3, &["stack"]).contains(said));
    }
    // A change that applies a second time.
    let (_release, space) = space_of_a();
    let added = "--- a/a\n+++ b/a\n@@ -5,0 +6 @@\n+more\n";
    space.write("src/1.patch", added);
    space.write("src/2.patch", format!("Words.\n\n{added}"));
    let out = space.ok(&["import", "src"]);
    assert!(out.contains("2.patch: the same diff as 1.patch"), "{out}");
}

#[test]
fn the_other_order_of_a_folder_is_named_where_it_counts() {
    // Each of the two goes before or after the other.
    let added = |text: &str| format!("--- a/a\n+++ b/a\n@@ -5,0 +6 @@\n+{text}\n");
    for (names, second, said) in [
        (
            ["9-x.patch", "10-y.patch"],
            added("y"),
            "apply as well in the order of bytes",
        ),
        (["9-x.patch", "10-y.patch"], change(2), ""),
        (["09-x.patch", "10-y.patch"], added("y"), ""),
    ] {
        let (_release, space) = space_of_a();
        space.write(&format!("src/{}", names[0]), added("x"));
        space.write(&format!("src/{}", names[1]), second);
        let out = space.ok(&["import", "src"]);
        assert_eq!(series(&space), names);
        assert_eq!(out.contains("order of bytes"), !said.is_empty(), "{out}");
        assert!(out.contains(said), "{out}");
    }
    // Only the other one applies.
    let (_release, space) = space_of_a();
    space.write("src/9-last.patch", change(5).replace("-line 5", "-first"));
    space.write("src/10-first.patch", change(5).replace("+x", "+first"));
    let refused = space.fails(3, &["import", "src"]);
    insta::assert_snapshot!(refused, @r"
    error: 9-last.patch:5: hunk 1 of 1 does not apply to a [PQ0315]
      line 5 should read  `first`
               but reads  `line 5`
    hint: all patches apply in the order of bytes (`LC_ALL=C ls`), with 10-first.patch earlier: list them so in a file `series` there
    ");
}

#[test]
fn every_file_of_a_folder_is_taken_or_named() {
    let (_release, space) = space_of_a();
    space.write("src/0001-one.patch", change(2));
    space.write("src/fixes/0002-two.patch", change(5));
    space.write("src/perf/deep/0003-three.diff", change(8));
    space.write("src/0004-four", change(11));
    space.write("src/0005-five.PATCH", change(14));
    space.write("src/0006 six .patch", change(17));
    space.write("src/README", "words\n");
    space.write("src/0007-seven.txt", change(19));
    space.write("src/8.patch.zst", b"\x28\xb5\x2f\xfd");
    space.link("src/0009-nine.patch", "../nine.patch");
    space.link("src/lost.patch", "nowhere");
    space.write("nine.patch", change(19));
    let out = space.ok(&["import", "src"]);
    assert_eq!(
        series(&space),
        [
            "0001-one.patch",
            "0004-four",
            "0005-five.PATCH",
            "0006-six-.patch",
            "0009-nine.patch",
            "fixes/0002-two.patch",
            "perf/deep/0003-three.diff"
        ]
    );
    for note in [
        "left out: README (no patch)",
        "left out: 0007-seven.txt (it has a diff",
        "left out: 8.patch.zst",
        "left out: lost.patch (no regular file)",
        "is imported as 0006-six-.patch",
    ] {
        assert!(out.contains(note), "{note}: {out}");
    }
    assert!(space.ok(&["stack"]).contains("0003-three.diff"));
    // A folder with a series of its own is another source.
    space.write("src/fixes/series", "0002-two.patch\n");
    let (_release, other) = space_of_a();
    let err = other.fails(2, &["import", &space.path("src").to_string_lossy()]);
    assert!(
        err.contains("the folder fixes has a series of its own"),
        "{err}"
    );
    // Patches beside the listed ones.
    space.write("listed/series", "1.patch\n");
    space.write("listed/1.patch", change(2));
    space.write("listed/2.patch", change(5));
    let out = other.ok(&["import", &space.path("listed").to_string_lossy()]);
    assert!(
        out.contains("left out: 2.patch (the series does not list it)"),
        "{out}"
    );
}

#[test]
fn what_is_no_patch_is_named_by_import_and_every_other_command() {
    let (_release, space) = space_of_a();
    let text =
        "Subject: five\n\n--- a/a\n+++ b/a\n@@ -4,3 +4,3 @@\n line 4\n-line 5\n+five\n line 6\n";
    let wide: Vec<u8> = "\u{feff}"
        .encode_utf16()
        .chain(text.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    for (bytes, words) in [
        (wide, "a text in UTF-16"),
        (b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "compressed with gzip"),
        (b"<!DOCTYPE html>\n<pre>--- a/a\n".to_vec(), "a web page"),
        (
            text.replace("+five", "\x1b[32m+five\x1b[m")
                .replace("--- a", "\x1b[1m--- a")
                .replace("+++ b", "\x1b[1m+++ b")
                .replace("@@ -4", "\x1b[36m@@ -4")
                .into_bytes(),
            "colours",
        ),
    ] {
        space.write("folder/1.patch", &bytes);
        let err = space.fails(3, &["import", "folder"]);
        assert!(err.contains(words), "{err}");
        space.write("one.patch", &bytes);
        let (code, _, err) = space.shown(&["import", "one.patch"]);
        assert!(code != 0 && err.contains(words), "{err}");
        space.write("series", "one.patch\n");
        space.write("patches/one.patch", &bytes);
        for command in [&["status"][..], &["export", "1", "out"]] {
            let err = space.fails(3, command);
            assert!(err.contains(words) && err.contains("one.patch"), "{err}");
        }
        let (code, out, _) = space.shown(&["lint"]);
        assert!(code == 3 && out.contains(words), "{out}");
        space.write("series", "");
        std::fs::remove_file(space.path("patches/one.patch")).unwrap();
    }
    // A byte order mark before the header does no harm.
    space.write("one.patch", format!("\u{feff}{text}"));
    space.ok(&["import", "one.patch"]);
    assert!(space.ok(&["status"]).contains(" five"));
}

#[test]
fn a_single_patch_keeps_its_bytes_whatever_its_header() {
    let (release, _) = space_of_a();
    let diff = "--- a/a\n+++ b/a\n@@ -4,3 +4,3 @@\n line 4\n-line 5\n+five\n line 6\n";
    for (header, title) in [
        ("Description: five\n Long.\nOrigin: vendor\n\n", "five"),
        (
            "From: A <a@b.c>\nSubject: five of suse\nPatch-mainline: never\nReferences: bsc#1\n\n",
            "five of suse",
        ),
        (
            "# HG changeset patch\n# User A <a@b.c>\nfive of hg\n\n",
            "five of hg",
        ),
        (
            "commit 0123456789\nAuthor: A <a@b.c>\nDate:   Mon Jun 3 10:00:00 2024 +0200\n\n    five of log\n\n",
            "five of log",
        ),
        ("", "my.patch"),
    ] {
        let space = keeper(&[("1.0", release.path())]);
        let text = format!("{header}{diff}");
        space.write("my.patch", &text);
        space.ok(&["import", "my.patch"]);
        assert_eq!(space.read("patches/my.patch"), text);
        assert_eq!(edited(&space, "%s").trim(), title);
    }
    // A mail with fields that git does not read.
    let space = keeper(&[("1.0", release.path())]);
    space.write("m", mail("From: A <a@b.c>\nSubject: five\nOrigin: vendor, x\nBug-Debian: https://b/1\nX-Mailer: y\n", "Why.\n"));
    space.ok(&["import", "m"]);
    let patch = first(&space);
    assert!(
        patch.contains("Subject: five\nOrigin: vendor, x\nBug-Debian: https://b/1\n"),
        "{patch}"
    );
    assert!(!patch.contains("X-Mailer"), "{patch}");
}

#[test]
fn patches_without_prefix_need_p0_and_the_error_says_so() {
    let fork = Fork::new(&[("a", short(&[])), ("sub/b", short(&[]))]);
    fork.commit("One", "sub/b", &short(&[(5, "x\n")]));
    fork.commit("Two", "a", &short(&[(5, "x\n")]));
    let mails = fork.git(&["format-patch", "--stdout", "--no-prefix", "base.."]);
    fork.git(&["format-patch", "-q", "--no-prefix", "-opatches", "base.."]);
    let release = fork.checkout("base");
    let space = keeper(&[("1.0", release.path())]);
    space.write("m.mbx", &mails);
    let folder = fork.path().join("patches").to_string_lossy().into_owned();
    for source in ["m.mbx", &folder] {
        let err = space.fails(3, &["import", source]);
        assert!(
            err.contains("apply with -p0") && err.contains("-p 0"),
            "{err}"
        );
        space.ok(&["import", source, "-p", "0"]);
        assert_eq!(series(&space)[0].split(' ').nth(1), Some("-p0"));
        let report = space.ok(&["stack"]);
        assert!(report.contains("exact"), "{report}");
        clear(&space);
    }
    let err = space.fails(
        2,
        &[
            "import",
            &fork.path().to_string_lossy(),
            "base..main",
            "-p",
            "0",
        ],
    );
    assert!(err.contains("-p does not apply to"), "{err}");
}

/// Empties the series.
fn clear(space: &TestEnvironment) {
    space.write("series", "");
    std::fs::remove_dir_all(space.path("patches")).unwrap();
    std::fs::create_dir(space.path("patches")).unwrap();
}

#[test]
fn clones_that_lack_objects_are_named_for_what_they_are() {
    let fork = Fork::new(&[("a", short(&[]))]);
    for line in [3, 6, 9] {
        fork.commit(&format!("line {line}"), "a", &short(&[(line, "x\n")]));
    }
    fork.git(&["config", "uploadpack.allowFilter", "true"]);
    let release = fork.checkout("base");
    fork.git(&["reset", "-q", "--hard", "main"]);
    let space = keeper(&[("1.0", release.path())]);
    let url = format!("file://{}", fork.path().display());
    let clone = |options: &[&str], name: &str| {
        let args = [&["clone", "-q"], options, &[url.as_str(), name]].concat();
        assert!(run_in(&space.workspace(), "git", &args).success());
    };
    // The release and the last commit are there, but not all between them.
    clone(&["--depth", "2"], "shallow");
    let fetch = ["fetch", "-q", "--depth", "1", &url, "tag", "base"];
    assert!(run_in(&space.path("shallow"), "git", &fetch).success());
    let err = space.fails(2, &["import", "shallow", "base..HEAD"]);
    insta::assert_snapshot!(err, @r"
    error: shallow is a shallow clone: it lacks the history before its first commits [PQ0900]
    hint: `git fetch --unshallow` there fetches the rest
    ");
    clone(&["--filter=blob:none", "--no-checkout"], "partial");
    let err = space.fails(2, &["import", "partial", "HEAD~2..HEAD"]);
    assert!(err.contains("partial is a partial clone"), "{err}");
    let inside = space.path("partial/inside");
    std::fs::create_dir(&inside).unwrap();
    let err = space.fails(2, &["import", "partial/inside", "HEAD~2..HEAD"]);
    assert!(err.contains("partial/inside is a partial clone"), "{err}");
    space.write("plain/a", "x");
    let err = space.fails(2, &["import", "plain", "a..b"]);
    insta::assert_snapshot!(err, @r"
    error: plain is not a git repository [PQ0119]
    hint: a folder of patches or a mailbox needs no range
    ");
    // As root, a folder can be another user's.
    if rustix::process::geteuid().is_root() {
        clone(&[], "foreign");
        assert!(run_in(&space.workspace(), "chown", &["-R", "nobody", "foreign"]).success());
        let err = space.fails(2, &["import", "foreign", "HEAD~2..HEAD"]);
        insta::assert_snapshot!(err, @r"
        error: git refuses foreign, because its folder belongs to another user [PQ0119]
          git config --global --add safe.directory [WS]/foreign
        hint: the command above allows it, also with `/.git` after the path; or use a clone of your own
        ");
    }
    // All commits of the range are enough.
    let release = fork.checkout("main~2");
    let space = keeper(&[("1.0", release.path())]);
    let whole = ["clone", "-q", "--depth", "3", &url, "whole"];
    assert!(run_in(&space.workspace(), "git", &whole).success());
    space.ok(&["import", "whole", "HEAD~2..HEAD"]);
    assert_eq!(series(&space).len(), 2);
}

#[test]
fn submodules_are_named_with_their_commit() {
    let fork = Fork::new(&[("a", short(&[]))]);
    fork.commit("five", "a", &short(&[(5, "x\n")]));
    let id = fork.git(&["rev-parse", "HEAD"]);
    let entry = format!("160000,{},lib", id.trim());
    fork.git(&["update-index", "--add", "--cacheinfo", &entry]);
    fork.git(&["commit", "-q", "-m", "lib: newer"]);
    let bump = fork.git(&["rev-parse", "--short=12", "HEAD"]);
    let mails = fork.git(&["format-patch", "--stdout", "base.."]);
    let release = tempfile::tempdir().unwrap();
    std::fs::write(release.path().join("a"), short(&[])).unwrap();
    let space = keeper(&[("1.0", release.path())]);
    let err = space.fails(3, &["import", &fork.path().to_string_lossy(), "base..main"]);
    let words = format!(
        "commit {} (lib: newer) changes the submodule lib",
        bump.trim()
    );
    assert!(err.contains(&words), "{err}");
    space.write("m.mbx", mails);
    let err = space.fails(3, &["import", "m.mbx"]);
    insta::assert_snapshot!(err, @r"
    error: mail 2 (lib: newer):7: a change of a submodule [PQ0312]
    hint: a patch changes files; put the submodule's files into the release
    ");
}

#[test]
fn a_folder_that_becomes_a_link_and_names_that_end_in_a_blank() {
    let fork = Fork::new(&[
        ("a", short(&[])),
        ("end ", short(&[])),
        ("lib/z/z.c", short(&[])),
    ]);
    fork.git(&["rm", "-rq", "lib/z"]);
    std::fs::create_dir_all(fork.path().join("lib")).unwrap();
    std::os::unix::fs::symlink("../a", fork.path().join("lib/z")).unwrap();
    fork.git(&["add", "-A"]);
    fork.git(&["commit", "-q", "-m", "a link"]);
    fork.git(&["mv", "lib/z", "lib/moved"]);
    fork.git(&["commit", "-q", "-m", "a moved link"]);
    fork.git(&["rm", "-q", "lib/moved"]);
    std::fs::create_dir_all(fork.path().join("lib/moved")).unwrap();
    fork.commit("a folder again", "lib/moved/z.c", "z\n");
    fork.git(&["mv", "a", "b"]);
    std::fs::create_dir(fork.path().join("a")).unwrap();
    fork.git(&["mv", "b", "a/inner"]);
    fork.git(&["commit", "-q", "-m", "a file in a folder of its name"]);
    fork.commit("blank", "end ", &short(&[(5, "x\n")]));
    fork.git(&["mv", "end ", "moved "]);
    fork.git(&["commit", "-q", "-m", "moved"]);
    let mails = fork.git(&["format-patch", "--stdout", "base.."]);
    let release = fork.checkout("base");
    fork.git(&["reset", "-q", "--hard", "main"]);
    let path = fork.path().to_string_lossy().into_owned();
    let space = keeper(&[("1.0", release.path())]);
    space.ok(&["import", &path, "base..main"]);
    assert_eq!(exported(&space), listing(fork.path()));
    let space = keeper(&[("1.0", release.path())]);
    space.write("m.mbx", mails);
    space.ok(&["import", "m.mbx"]);
    assert_eq!(exported(&space), listing(fork.path()));
}

#[test]
fn a_mail_without_author_is_refused() {
    for (headers, body) in [
        ("From: Jane Doe\nSubject: five\n", ""),
        (
            "From: A <a@b.c>\nSubject: five\n",
            "From: the start it was so\n\n",
        ),
    ] {
        let (_release, space) = space_of_a();
        space.write("m.mbx", mail(headers, body));
        let err = space.fails(2, &["import", "m.mbx"]);
        assert!(err.contains("mail 1 (five) has no author"), "{err}");
    }
    // A line of the text that begins another mail cuts the first one off.
    let (_release, space) = space_of_a();
    let headers = "From: A <a@b.c>\nSubject: five\n";
    space.write(
        "m.mbx",
        mail(
            headers,
            "Why.\n\nFrom jane Tue Jan  6 10:11:12 2026\nmore\n",
        ),
    );
    let err = space.fails(2, &["import", "m.mbx"]);
    insta::assert_snapshot!(err, @r"
    error: m.mbx: mail 2 (more) has no author [PQ0901]
    hint: write `From: NAME <ADDRESS>` into its header; a line `From SENDER DATE` in a text begins another mail unless a `>` is before it
    ");
    // A byte order mark is not the end of a header, and a title may be missing.
    let headers = "From: A <a@b.c>\nDate: @1700000000 +0100\n";
    let whole = mail(
        headers,
        "Why it is so.\n\nMore.\n\nPerfquilt-Patch: x.patch\n",
    );
    let (_, whole) = whole.split_once('\n').unwrap();
    space.write("m.mbx", format!("\u{feff}Subject: \n{whole}"));
    space.ok(&["import", "m.mbx"]);
    assert_eq!(
        edited(&space, "%an|%at|%s|%b"),
        "A|1700000000|Why it is so.|More.\n\nPerfquilt-Patch: 0001-why-it-is-so.patch\n\n"
    );
}

#[test]
fn what_a_patch_lacks_or_may_mean_otherwise_is_noted() {
    let (_release, space) = space_of_a();
    std::fs::create_dir(space.path("release")).unwrap();
    let diff = "--- a/a\n+++ b/a\n@@ -4,3 +4,3 @@\n line 4\n-line 5\n+five\n line 6\n";
    let words = "Binary files a/b.bin and b/b.bin differ\nOnly in b: new.c\n";
    space.write("src/1.patch", format!("Subject: x\n\n{diff}{words}"));
    space.write("src/.svn/2.patch", diff);
    let out = space.ok(&["import", "src"]);
    for note in [
        "1.patch:10: this binary file is not changed",
        "1.patch:11: this line tells of a change",
        "left out: .svn/ (a program's own folder)",
    ] {
        assert!(out.contains(note), "{note}: {out}");
    }
    // A new file shows by no context that its path has no prefix.
    let release = tempfile::tempdir().unwrap();
    std::fs::create_dir(release.path().join("src")).unwrap();
    std::fs::write(release.path().join("src/a"), "x\n").unwrap();
    let space = keeper(&[("1.0", release.path())]);
    let new = "Subject: x\n\n--- /dev/null\n+++ src/new.c\n@@ -0,0 +1 @@\n+x\n";
    space.write("new.patch", new);
    let out = space.ok(&["import", "new.patch", "--dry-run"]);
    assert!(
        out.contains("this makes new.c") && out.contains("src/new.c is right"),
        "{out}"
    );
    space.ok(&["import", "new.patch", "-p", "0"]);
    assert!(
        exported(&space)
            .iter()
            .any(|(name, ..)| name == "src/new.c")
    );
    // Another N is suggested beside a given one, too.
    let space = keeper(&[("1.0", release.path())]);
    space.write(
        "p.patch",
        "Subject: x\n\n--- a/src/a\n+++ b/src/a\n@@ -1 +1 @@\n-x\n+y\n",
    );
    let err = space.fails(3, &["import", "p.patch", "-p", "2"]);
    insta::assert_snapshot!(err, @r"
    error: p.patch:3: there is no file a to patch [PQ0315]
    hint: all patches apply with -p1: `perfquilt import SOURCE -p 1`
    ");
}

#[test]
fn quilts_environment_for_another_package_hides_nothing() {
    let run = |space: &TestEnvironment, args: &[&str]| {
        let mut command = space.command(args);
        let output = command
            .env("QUILT_PATCHES", "debian/patches")
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
    };
    let with_patch = || {
        let (release, space) = space_of_a();
        space.write(
            "src/1.patch",
            "Subject: x\n\n--- a/a\n+++ b/a\n@@ -4,3 +4,3 @@\n line 4\n-line 5\n+five\n line 6\n",
        );
        (release, space)
    };
    let (_release, space) = with_patch();
    run(&space, &["import", "src"]);
    assert!(space.path("patches/1.patch").is_file());
    for args in [
        &["status"][..],
        &["lint"],
        &["stack"],
        &["edit"],
        &["refresh"],
        &["export", "1", "out"],
    ] {
        run(&space, args);
    }
    // Nor do notes of quilt about a folder that is gone.
    space.write(".pc/.version", "2\n");
    space.write(".pc/.quilt_patches", "debian/patches\n");
    space.write(".pc/.quilt_series", "series\n");
    assert!(space.ok(&["status"]).contains("1 patch"));
    // A folder that is there is meant, and import writes where the other commands read.
    let (_release, space) = with_patch();
    std::fs::create_dir_all(space.path("debian/patches")).unwrap();
    std::fs::remove_file(space.path("series")).unwrap();
    run(&space, &["import", "src"]);
    run(&space, &["status"]);
    assert!(space.path("debian/patches/1.patch").is_file());
}

/// A mail as mail programs send it: a body with a patch below headers.
fn encoded_mail(headers: &str, body: &[u8]) -> Vec<u8> {
    [
        b"From 12 Mon Sep 17 00:00:00 2001\n",
        headers.as_bytes(),
        b"\n",
        body,
    ]
    .concat()
}

/// Encodes text for a body by a program of the system.
fn through(command: &str, text: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("text"), text).unwrap();
    let output = run_in(
        dir.path(),
        "sh",
        &["-c", &format!("cat text | {command} > coded")],
    );
    assert!(output.success(), "{}", output.stderr_text());
    std::fs::read(dir.path().join("coded")).unwrap()
}

#[test]
fn mails_are_read_as_git_am_reads_them() {
    let plain = mail("", "");
    let patch = plain.split_once("\n\n").unwrap().1;
    let headers = |more: &str| {
        format!(
            "From: A B <a@b.c>\nDate: Tue, 6 Jan 2026 10:11:12 +0200\nSubject: [PATCH v2 1/2] a: five\n{more}"
        )
    };
    let coded = |charset: &str, coding: &str| {
        headers(&format!(
            "MIME-Version: 1.0\nContent-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: {coding}\n"
        ))
    };
    let words = |body: &str| format!("{body}{patch}");
    let mut mails: Vec<Vec<u8>> = Vec::new();
    for (charset, name, text) in [
        ("iso-8859-1", "ISO-8859-1", "Größer geht es nicht.\n"),
        ("windows-1252", "CP1252", "Costs 5 €.\n"),
        ("koi8-r", "KOI8-R", "Потому что.\n"),
        ("shift_jis", "SHIFT_JIS", "日本語の説明\n"),
        ("iso-2022-jp", "ISO-2022-JP", "日本語の説明\n"),
        ("utf-8", "UTF-8", "Größer.\n"),
    ] {
        let body = through(&format!("iconv -f UTF-8 -t {name}"), &words(text));
        mails.push(encoded_mail(&coded(charset, "8bit"), &body));
        let body = through(&format!("iconv -f UTF-8 -t {name} | base64"), &words(text));
        mails.push(encoded_mail(
            &coded(charset, "base64"),
            &[body, b"\n".to_vec()].concat(),
        ));
    }
    // Latin-1 without a declared character set, which git guesses when it commits.
    let utf8 = encoded_mail(
        &headers("").replace("A B", "Jürgen").replace("five", "fünf"),
        words("Größer.\n").as_bytes(),
    );
    let utf8 = String::from_utf8(utf8).unwrap();
    mails.push(utf8.chars().map(|c| c as u8).collect());
    for head in [
        headers("Message-Id: <1@x>\nX-Long: a\n\tb\nCc: a@b.c,\n d@e.f\n"),
        headers("").replace("A B <a@b.c>", "\"B, A\" <a@b.c>"),
        headers("").replace("A B <a@b.c>", "a@b.c (A B)"),
        headers("").replace("A B", "=?UTF-8?q?J=C3?=\n =?UTF-8?q?=BCrgen?="),
        headers("").replace("a: five", "a: a long title that a mail program\n folds"),
        headers("").replace(
            "[PATCH v2 1/2] a",
            "Re: [list] [PATCH]: =?koi8-r?B?0NHU2A==?= a",
        ),
        headers("").replace("[PATCH v2 1/2] a", "[RFC] [PATCH] a"),
        headers("").replace(
            "Tue, 6 Jan 2026 10:11:12 +0200",
            "9 Jan 2026 10:11:12 -0330",
        ),
        headers("").replace("Subject:", "subject:"),
    ] {
        mails.push(encoded_mail(&head, words("Why.\n").as_bytes()));
    }
    for body in [
        "From: C D <c@d.e>\nSubject: another: title\nDate: Wed, 7 Jan 2026 01:02:03 +0000\n\nWhy.\n",
        ">From the start\nit was so.\n",
        "From the start\nit was so.\n",
        "Hello,\n\n-- >8 --\nSubject: inner\n\nWhy.\n",
        "Before.\n--- not a separator\nAfter.\n",
        "Before.   \n\n\n\nAfter.\n\n\n",
        "\n\n   indented first\nAfter.\n",
        "Title: words\n\nSigned-off-by: A <a@b.c>\nCo-authored-by: X <x@y.z>\nPatch: D12\n",
        "Try:\n\n    --- a/a\n    +++ b/a\n    @@ -1 +1 @@\n    -line 1\n    +evil\n\nDone.\n",
        "",
    ] {
        mails.push(encoded_mail(&headers(""), words(body).as_bytes()));
        mails.push(encoded_mail(
            &headers(""),
            words(body).replace('\n', "\r\n").as_bytes(),
        ));
    }
    let fork = Fork::new(&[("a", short(&[]))]);
    let release = fork.checkout("base");
    for mail in mails {
        let shown = String::from_utf8_lossy(&mail).into_owned();
        fork.git(&["reset", "-q", "--hard", "base"]);
        let file = fork.path().join(".git/one.mbx");
        std::fs::write(&file, &mail).unwrap();
        let read = run_in(fork.path(), "git", &["am", "-q", &file.to_string_lossy()]);
        assert!(read.success(), "{}{shown}", read.stderr_text());
        let space = keeper(&[("1.0", release.path())]);
        space.write("one.mbx", &mail);
        space.ok(&["import", "one.mbx"]);
        let format = "%an <%ae>|%ai|%s|%b";
        let right = fork.git(&["log", "-1", &format!("--format={format}")]);
        let got = edited(&space, format).replace("Perfquilt-Patch: 0001-", "\n\u{0}");
        let got = got.split('\u{0}').next().unwrap().trim_end();
        assert_eq!(got, right.trim_end(), "{shown}");
        assert_eq!(
            exported(&space)[0].2,
            std::fs::read(fork.path().join("a")).unwrap(),
            "{shown}"
        );
    }
}

#[test]
fn mails_of_mercurial_have_the_author_of_the_changeset() {
    let (_release, space) = space_of_a();
    let words = "# HG changeset patch\n# User A Person <p@example.org>\n# Date 1717401600 -7200\n# Node ID 0123456789ab\nfive\n\nWhy.\n\n";
    let text = mail("From: List <l@b.c>\nSubject: [PATCH 1 of 1] five\n", words);
    space.write("m", text.replace("---\n a | 2 +-\n", ""));
    space.ok(&["import", "m"]);
    let header = "From: A Person <p@example.org>\nDate: Mon, 3 Jun 2024 10:00:00 +0200\nSubject: five\nOrigin: other, commit:0123456789ab\n\nWhy.\n\n";
    assert!(first(&space).starts_with(header), "{}", first(&space));
}
