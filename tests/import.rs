//! `perfquilt import`: forks with merges, mails, folders and other series; what is refused.

mod forms;

use std::path::Path;

use crate::common::releases::{json, lines};
use crate::common::{TestEnvironment, listing, run_in};

/// A workspace with nothing but `[upstream]`, whose releases are these folders.
fn keeper(releases: &[(&str, &Path)]) -> TestEnvironment {
    let space = TestEnvironment::with_releases("");
    let listed: String = releases
        .iter()
        .map(|(version, folder)| {
            format!(
                "[[upstream.release]]\nversion = \"{version}\"\ndirectory = \"{}\"\n",
                folder.display()
            )
        })
        .collect();
    space.write(
        "bench-config/perfquilt.toml",
        format!(
            "[upstream]\nname = \"srv\"\ncurrent = \"{}\"\n\n{listed}",
            releases[0].0
        ),
    );
    space
}

/// A git repository in a temporary folder.
struct Fork {
    dir: tempfile::TempDir,
}

impl Fork {
    /// Begins with files that are tagged `base`.
    fn new(files: &[(&str, String)]) -> Fork {
        let fork = Fork {
            dir: tempfile::tempdir().unwrap(),
        };
        fork.git(&["init", "-q", "-b", "main"]);
        for (name, content) in files {
            fork.write(name, content);
        }
        fork.git(&["add", "-A"]);
        fork.git(&["commit", "-q", "-m", "release"]);
        fork.git(&["tag", "base"]);
        fork
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn git(&self, args: &[&str]) -> String {
        perfquilt_testkit::git(self.path(), args)
    }

    fn commit(&self, message: &str, name: &str, content: &str) {
        self.write(name, content);
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", message]);
    }

    /// Commits a file together with the index, whose modes may differ from those of the files.
    fn commit_index(&self, message: &str, name: &str, content: &str) {
        self.write(name, content);
        self.git(&["add", name]);
        self.git(&["commit", "-q", "-m", message]);
    }

    /// Merges a branch, whose conflict in `name` is resolved as `content`.
    fn merge(&self, branch: &str, resolved: &[(&str, &str)]) {
        let merged = run_in(
            self.path(),
            "git",
            &["merge", "-q", "--no-ff", "--no-commit", branch],
        );
        assert!(
            !merged.success() || resolved.is_empty(),
            "{branch} has no conflict"
        );
        for (name, content) in resolved {
            self.write(name, content);
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", &format!("Merge branch {branch}")]);
    }

    /// The files of a revision, in a folder.
    fn checkout(&self, revision: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        self.git(&[
            "--work-tree",
            &folder.path().to_string_lossy(),
            "checkout",
            "-f",
            revision,
            "--",
            ".",
        ]);
        folder
    }
}

/// The files that the last patch of the series makes.
fn exported(space: &TestEnvironment) -> Vec<(String, String, Vec<u8>)> {
    let last = space
        .read("series")
        .lines()
        .filter(|l| !l.starts_with('#'))
        .count();
    let folder = space.path("exported");
    space.ok(&["export", &last.to_string(), &folder.to_string_lossy()]);
    let listed = listing(&folder);
    std::fs::remove_dir_all(folder).unwrap();
    listed
}

/// Numbered lines with the marks of some commits.
fn text(marks: &[(usize, &str)]) -> String {
    lines(60, marks)
}

#[test]
fn a_fork_of_forty_commits_with_three_resolved_merges() {
    let fork = Fork::new(&[("a", text(&[])), ("b", text(&[])), ("c", text(&[]))]);
    let mut number = 0;
    let mut next = |name: &str, body: &str, content: &str| {
        number += 1;
        let message = format!("Change {number} of {name}\n\n{body}");
        fork.commit(&message, name, content);
    };
    let mut a: Vec<(usize, String)> = Vec::new();
    let shown = |marks: &[(usize, String)]| {
        let marks: Vec<(usize, &str)> = marks.iter().map(|(n, t)| (*n, t.as_str())).collect();
        text(&marks)
    };
    for line in 1..=14 {
        a.push((line, format!("main {line}\n")));
        next(
            "a",
            "Upstream: submitted\nApplied-Upstream: 10.11.19",
            &shown(&a),
        );
    }
    // First merge: both sides change line 20 of `a`; the topic changes `b` as well.
    fork.git(&["switch", "-q", "-c", "topic1"]);
    let mut topic = a.clone();
    topic.push((20, "topic 20\n".to_owned()));
    next("a", "", &shown(&topic));
    for line in 1..=6 {
        let marks: Vec<(usize, String)> = (1..=line).map(|n| (n, format!("topic {n}\n"))).collect();
        next("b", "", &shown(&marks));
    }
    fork.git(&["switch", "-q", "main"]);
    a.push((20, "main 20\n".to_owned()));
    next("a", "", &shown(&a));
    let resolved = shown(&a).replace("main 20\n", "main and topic 20\n");
    fork.merge("topic1", &[("a", &resolved)]);
    // Second merge: a resolution that also changes a file which neither side touched.
    fork.git(&["switch", "-q", "-c", "topic2"]);
    for line in 30..=36 {
        let content = resolved.replace(&format!("line {line}\n"), &format!("topic2 {line}\n"));
        next("a", "", &content);
    }
    fork.git(&["switch", "-q", "main"]);
    let main = resolved.replace("line 36\n", "main 36\n");
    next("a", "", &main);
    let second = main.replace("main 36\n", "both 36\n");
    let other = text(&[(50, "needed by the merge\n")]);
    fork.merge("topic2", &[("a", &second), ("c", &other)]);
    // Third merge: the topic was begun before the second.
    fork.git(&["switch", "-q", "-c", "topic3", "main~1"]);
    next("c", "", &text(&[(50, "topic3 50\n")]));
    next("d", "", "a new file\n");
    fork.git(&["switch", "-q", "main"]);
    for line in 40..=46 {
        next(
            "b",
            "",
            &fork_file(&fork, "b").replace(&format!("line {line}\n"), "x\n"),
        );
    }
    fork.merge(
        "topic3",
        &[("c", &text(&[(50, "needed by the merge and topic3\n")]))],
    );
    next("d", "", "a changed file\n");
    assert_eq!(
        fork.git(&["rev-list", "--count", "--no-merges", "base..main"])
            .trim(),
        "40"
    );

    let release = fork.checkout("base");
    fork.git(&["reset", "-q", "--hard", "main"]);
    let space = keeper(&[("1.0", release.path())]);
    let source = fork.path().to_string_lossy().into_owned();
    let report = json(&space, &["import", &source, "base..main", "--json"]);
    let imported = &report["imported"][0];
    assert!(
        imported["checked"]
            .as_str()
            .unwrap()
            .contains("that of its tip"),
        "{report}"
    );
    assert_eq!(exported(&space), listing(fork.path()));
    // The resolutions are in the patches that they belong to.
    let patches = imported["patches"].as_array().unwrap();
    let resolutions: Vec<(String, String)> = patches
        .iter()
        .flat_map(|patch| {
            let of = patch["resolutions"].as_array().cloned().unwrap_or_default();
            let name = patch["title"].as_str().unwrap().to_owned();
            of.into_iter()
                .map(move |it| (name.clone(), it.as_str().unwrap().to_owned()))
        })
        .collect();
    let found = |title: &str, start: &str, branch: &str| {
        resolutions
            .iter()
            .any(|(patch, text)| patch == title && text.starts_with(start) && text.contains(branch))
    };
    assert!(
        found("Change 15 of a", "a: as merge", "topic1"),
        "{resolutions:?}"
    );
    assert!(
        resolutions
            .iter()
            .any(|(_, text)| text.starts_with("c: as merge")),
        "{resolutions:?}"
    );
    // What came from where is kept.
    let first = space.read(&format!("patches/{}", patches[0]["name"].as_str().unwrap()));
    for part in [
        "From: t <t@example.org>\n",
        "Date: ",
        "Subject: Change 1 of a\n",
        "Origin: other, commit:",
        "Upstream: submitted\n",
        "Applied-Upstream: 10.11.19\n",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let lint = space.ok(&["lint"]);
    assert!(lint.contains("no problems"), "{lint}");
    // A series is not written over.
    let err = space.fails(2, &["import", &source, "base..main"]);
    insta::assert_snapshot!(err, @r"
    error: srv-1.0 already has a series of 39 patches, in series [PQ0304]
    hint: import into a new workspace, or for another release with --release
    ");
}

fn fork_file(fork: &Fork, name: &str) -> String {
    std::fs::read_to_string(fork.path().join(name)).unwrap()
}

#[test]
fn a_fork_that_merges_upstreams_releases() {
    let fork = Fork::new(&[("a", text(&[])), ("b", text(&[]))]);
    fork.git(&["switch", "-q", "-c", "fork"]);
    fork.commit("One", "a", &text(&[(10, "fork 10\n")]));
    fork.commit("Two", "b", &text(&[(10, "fork 10\n")]));
    fork.git(&["switch", "-q", "main"]);
    fork.commit(
        "next",
        "a",
        &text(&[(10, "upstream 10\n"), (30, "upstream 30\n")]),
    );
    fork.git(&["tag", "next"]);
    fork.git(&["switch", "-q", "fork"]);
    fork.merge(
        "next",
        &[("a", &text(&[(10, "both 10\n"), (30, "upstream 30\n")]))],
    );
    fork.commit("Three", "b", &text(&[(10, "fork 10\n"), (20, "fork 20\n")]));
    let release = fork.checkout("next");
    fork.git(&["reset", "-q", "--hard", "fork"]);
    let space = keeper(&[("2.0", release.path())]);
    let source = fork.path().to_string_lossy().into_owned();
    let out = space.ok(&["import", &source, "next..fork"]);
    assert!(out.contains("a: as merge"), "{out}");
    assert_eq!(exported(&space), listing(fork.path()));
    assert_eq!(
        space.read("series"),
        "0001-one.patch\n0002-two.patch\n0003-three.patch\n"
    );
    let one = space.read("patches/0001-one.patch");
    assert!(
        one.contains("+both 10") && one.contains("Fix-up: a: as merge"),
        "{one}"
    );
    let err = keeper(&[("2.0", release.path())]).fails(3, &["import", &source, "fork..next"]);
    assert!(err.contains("is not an ancestor"), "{err}");
    let err = keeper(&[("2.0", release.path())]).fails(2, &["import", &source, "nothing..fork"]);
    assert!(err.contains("has no commit `nothing`"), "{err}");
}

#[test]
fn a_box_of_twenty_mails() {
    let fork = Fork::new(&[("a", text(&[])), ("ü b", text(&[]))]);
    let mut marks: Vec<(usize, String)> = Vec::new();
    for number in 1..=20 {
        marks.push((number * 2, format!("änderung {number}\n")));
        let shown: Vec<(usize, &str)> = marks.iter().map(|(n, t)| (*n, t.as_str())).collect();
        fork.commit(
            &format!("Änderung {number}: «schneller»\n\nEin Grund."),
            "a",
            &text(&shown),
        );
    }
    let mut mails = fork.git(&[
        "format-patch",
        "--stdout",
        "--cover-letter",
        "--thread",
        "base..main",
    ]);
    mails = mails.replace("*** SUBJECT HERE ***", "A series");
    // Mails that are encoded as mail programs do it, in another order than their numbers.
    let separator = "\nFrom ";
    let mut parts: Vec<String> = mails
        .split(separator)
        .map(|part| {
            format!(
                "From {}\n",
                part.trim_start_matches("From ").trim_end_matches('\n')
            )
        })
        .collect();
    assert_eq!(parts.len(), 21);
    parts.swap(3, 9);
    parts[5] = encoded(&parts[5]);
    let release = fork.checkout("base");
    fork.git(&["reset", "-q", "--hard", "main"]);
    let space = keeper(&[("1.0", release.path())]);
    space.write("series.mbx", parts.join("\n"));
    let report = json(&space, &["import", "series.mbx", "--json"]);
    let imported = &report["imported"][0];
    assert_eq!(
        imported["patches"].as_array().unwrap().len(),
        20,
        "{report}"
    );
    assert!(
        imported["notes"][0]
            .as_str()
            .unwrap()
            .contains("has no patch"),
        "{report}"
    );
    assert_eq!(exported(&space), listing(fork.path()));
    let first = space.read(&format!(
        "patches/{}",
        imported["patches"][0]["name"].as_str().unwrap()
    ));
    assert!(
        first.contains("Subject: Änderung 1: «schneller»\n"),
        "{first}"
    );
    assert!(
        first.contains("Ein Grund.") && first.contains("Message-ID: <"),
        "{first}"
    );
}

/// A mail in base64.
fn encoded(mail: &str) -> String {
    let (head, body) = mail.split_once("\n\n").unwrap();
    let head: String = head
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("Content-") && !line.starts_with("MIME-"))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("body"), body).unwrap();
    let text = run_in(dir.path(), "base64", &["body"]).stdout_text();
    format!(
        "{}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: base64\n\n{text}",
        head.trim_end()
    )
}

#[test]
fn folders_of_patches_for_each_release_and_another_series() {
    let fork = Fork::new(&[("a", text(&[]))]);
    fork.commit("One", "a", &text(&[(10, "one\n")]));
    fork.commit("Two", "a", &text(&[(10, "one\n"), (11, "two\n")]));
    let tree = tempfile::tempdir().unwrap();
    for version in ["1.0", "2.0"] {
        let folder = tree.path().join("patches").join(version);
        std::fs::create_dir_all(&folder).unwrap();
        let out = format!("-o{}", folder.display());
        fork.git(&["format-patch", "-q", "-N", &out, "base..main"]);
        // Numbers without leading zeros sort by value.
        std::fs::rename(folder.join("0001-One.patch"), folder.join("9-One.patch")).unwrap();
        std::fs::rename(folder.join("0002-Two.patch"), folder.join("10-Two.patch")).unwrap();
    }
    let release = fork.checkout("base");
    fork.git(&["reset", "-q", "--hard", "main"]);
    let space = keeper(&[("1.0", release.path()), ("2.0", release.path())]);
    let source = tree.path().join("patches").to_string_lossy().into_owned();
    let out = space.ok(&["import", "--dry-run", &source]);
    assert!(out.contains("nothing was written"), "{out}");
    assert!(!space.path("patches/1.0").exists());
    space.ok(&["import", &source]);
    for version in ["1.0", "2.0"] {
        assert_eq!(
            space.read(&format!("patches/{version}/series")),
            "9-One.patch\n10-Two.patch\n"
        );
        let out = space.ok(&["stack", "--release", version]);
        assert!(out.contains("10-Two.patch"), "{out}");
    }
    space.ok(&["export", "2", "exported"]);
    assert_eq!(listing(&space.path("exported")), listing(fork.path()));

    // One folder, and a quilt tree with all its patches applied.
    let quilt = tempfile::tempdir().unwrap();
    std::fs::create_dir(quilt.path().join("patches")).unwrap();
    std::fs::write(quilt.path().join("a"), text(&[])).unwrap();
    for name in ["9-One.patch", "10-Two.patch"] {
        std::fs::copy(
            tree.path().join("patches/1.0").join(name),
            quilt.path().join("patches").join(name),
        )
        .unwrap();
    }
    std::fs::write(
        quilt.path().join("patches/series"),
        "9-One.patch\n10-Two.patch\n",
    )
    .unwrap();
    assert!(run_in(quilt.path(), "quilt", &["push", "-a"]).success());
    let source = quilt.path().to_string_lossy().into_owned();
    let space = keeper(&[("1.0", release.path())]);
    let out = space.ok(&["import", &source]);
    assert!(out.contains("byte for byte"), "{out}");
    assert_eq!(exported(&space), listing(fork.path()));
    // A tree with changes of its own is not what the patches make.
    std::fs::write(quilt.path().join("a"), text(&[(10, "one\n")])).unwrap();
    let err = keeper(&[("1.0", release.path())]).fails(3, &["import", &source]);
    insta::assert_snapshot!(err, @r"
    error: the patches produce another a than the source's tree has; nothing was written [PQ0904]
    hint: the tree has changes of its own, or is of another release; `quilt refresh` there adds changes to the top patch
    ");
    // A workspace of perfquilt: the series beside the folder of its patches.
    let kept = tempfile::tempdir().unwrap();
    std::fs::rename(quilt.path().join("patches"), kept.path().join("patches")).unwrap();
    std::fs::rename(
        kept.path().join("patches/series"),
        kept.path().join("series"),
    )
    .unwrap();
    let path = kept.path().to_string_lossy().into_owned();
    let space = keeper(&[("1.0", release.path())]);
    space.ok(&["import", &path]);
    assert_eq!(exported(&space), listing(fork.path()));
    std::fs::remove_file(kept.path().join("patches/10-Two.patch")).unwrap();
    let err = keeper(&[("1.0", release.path())]).fails(2, &["import", &path]);
    assert!(
        err.contains("there is no file") && err.contains("hint: "),
        "{err}"
    );
    // Only `[upstream]` is needed until something is built.
    let err = space.fails(2, &["build"]);
    assert!(err.contains("section"), "{err}");
}

#[test]
fn a_source_that_is_cut_off_is_refused() {
    let fork = Fork::new(&[("a", text(&[])), ("b", text(&[]))]);
    fork.commit("One", "a", &text(&[(10, "one\n")]));
    fork.write("b", &text(&[(10, "two\n"), (40, "two\n")]));
    fork.commit("Two", "a", &text(&[(10, "one\n"), (40, "two\n")]));
    let mails = fork.git(&["format-patch", "--stdout", "base..main"]);
    let last = fork.git(&["format-patch", "--stdout", "main~1..main"]);
    let release = fork.checkout("base");
    fork.git(&["reset", "-q", "--hard", "main"]);
    let space = keeper(&[("1.0", release.path())]);
    for (mark, whole_line) in [
        ("diff --git a/b b/b", false),
        ("diff --git a/b b/b\n", true),
        ("--- a/b", false),
        ("--- a/b\n", true),
        ("+++ b/b", false),
        ("+++ b/b\n", true),
        ("\n@", false),
        ("\n@@ -37,7 +3", false),
    ] {
        let what = if whole_line {
            "the patch ends after this line, in the middle of a diff"
        } else {
            "the patch ends in the middle of this line"
        };
        let end = |text: &str| text.rfind(mark).unwrap() + mark.len();
        space.write("cut.mbx", &mails[..end(&mails)]);
        let err = space.fails(3, &["import", "cut.mbx"]);
        assert!(err.contains("error: 0002-two.patch:"), "{mark:?}: {err}");
        assert!(err.contains(what), "{mark:?}: {err}");
        assert!(
            err.contains("  in the mails of cut.mbx\n"),
            "{mark:?}: {err}"
        );
        assert!(
            err.contains("hint: was the rest cut off?"),
            "{mark:?}: {err}"
        );
        // The same patch in a folder.
        space.write("cut/1.patch", &last[..end(&last)]);
        let err = space.fails(3, &["import", "cut"]);
        assert!(err.contains(what), "{mark:?}: {err}");
    }
    // Lines that the counts of the last hunk leave out, and names without a hunk in the middle.
    let signature = last.rfind("-- \n").unwrap();
    space.write("cut/1.patch", format!("{}+three\n", &last[..signature]));
    let err = space.fails(3, &["import", "cut"]);
    assert!(err.contains("[PQ0324]"), "{err}");
    let second = last.find("diff --git a/b b/b").unwrap();
    let names = last[..second].find("@@ -").unwrap();
    space.write("cut/1.patch", [&last[..names], &last[second..]].concat());
    let err = space.fails(3, &["import", "cut"]);
    insta::assert_snapshot!(err, @r"
    error: 1.patch:14: no hunk follows these file names [PQ0323]
      in the patches in cut, in the order of their names
    hint: get the whole patch; if nothing is missing, remove the two lines of names
    ");
    assert_eq!(space.read("series"), "");
    // Only the signature is cut, and text follows the last hunk.
    space.write("cut.mbx", &mails[..mails.rfind("-- \n").unwrap() + 5]);
    space.ok(&["import", "--dry-run", "cut.mbx"]);
    let one = &mails[..mails.find("\nFrom ").unwrap()];
    let one = &one[..one.rfind("-- \n").unwrap()];
    space.write("cut/1.patch", format!("{one}\nThe reason:\n- it is faster"));
    space.ok(&["import", "--dry-run", "cut"]);
    space.write("cut.mbx", &mails);
    space.ok(&["import", "cut.mbx"]);
}

#[test]
fn patches_without_hunks_are_imported() {
    let fork = Fork::new(&[
        ("a", text(&[])),
        ("b", text(&[])),
        ("image", "\0one\n".to_owned()),
    ]);
    fork.git(&["update-index", "--chmod=+x", "b"]);
    fork.git(&["commit", "-q", "-m", "Mode"]);
    fork.git(&["mv", "a", "c"]);
    fork.git(&["commit", "-q", "-m", "Rename"]);
    fork.commit_index("Binary", "image", "\0two\n");
    fork.commit_index("Empty file", "empty", "");
    fork.git(&["commit", "-q", "--allow-empty", "-m", "Nothing"]);
    let options = ["format-patch", "--stdout", "--binary", "--always"];
    let mails = fork.git(&[&options[..], &["base..HEAD"]].concat());
    let release = fork.checkout("base");
    let space = keeper(&[("1.0", release.path())]);
    space.write("whole.mbx", &mails);
    let report = json(&space, &["import", "--dry-run", "whole.mbx", "--json"]);
    let patches = report["imported"][0]["patches"].as_array();
    assert_eq!(patches.map(Vec::len), Some(4), "{report}");
    let notes = report["imported"][0]["notes"].to_string();
    assert!(notes.contains("has no patch: "), "{notes}");
}

#[test]
fn hostile_sources_are_refused() {
    let fork = Fork::new(&[("a", text(&[]))]);
    let release = fork.checkout("base");
    let space = keeper(&[("1.0", release.path())]);
    let source = tempfile::tempdir().unwrap();
    let path = source.path().to_string_lossy().into_owned();
    let err = space.fails(2, &["import", &path]);
    assert!(err.contains("neither a `series` nor patches"), "{err}");
    std::fs::write(source.path().join("series"), "../../etc/passwd\n").unwrap();
    let err = space.fails(3, &["import", &path]);
    assert!(
        err.contains("leads out of") || err.contains("outside"),
        "{err}"
    );
    let outside = "--- a/../../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n";
    std::fs::write(source.path().join("x.patch"), outside).unwrap();
    std::fs::write(source.path().join("series"), "x.patch\n").unwrap();
    let (code, _, err) = space.shown(&["import", &path]);
    assert_eq!(code, 3, "{err}");
    std::fs::write(source.path().join("mails"), b"From nobody\n\0\xff\xfe\n").unwrap();
    let mails = source.path().join("mails").to_string_lossy().into_owned();
    let err = space.fails(2, &["import", &mails]);
    assert!(err.contains("no patch") || err.contains("mail"), "{err}");
    // Patches one behind the other, with nothing that separates mails.
    let one = "From: A <a@example.invalid>\nSubject: [PATCH] one\n\n---\n a | 1 +\n\ndiff --git a/a b/a\n\
               --- a/a\n+++ b/a\n@@ -1 +1,2 @@\n line 1\n+one\n";
    let both = format!("{one}{}", one.replace("one", "two"));
    std::fs::write(source.path().join("mails"), &both).unwrap();
    let err = space.fails(2, &["import", &mails]);
    assert!(
        err.contains("another mail follows the patch of `one`"),
        "{err}"
    );
    let err = space.fails(2, &["import", "--", "--upload-pack=touch x", "a..b"]);
    insta::assert_snapshot!(err, @r"error: --upload-pack=touch x has no commit `a` [PQ0900]");
    let err = space.fails(2, &["import", &fork.path().to_string_lossy(), "base"]);
    insta::assert_snapshot!(err, @r"
    error: `base` is not a range [PQ0200]
    hint: name the release's commit and the fork's: v1.0..my-branch
    ");
    assert_eq!(space.read("series"), "");
}

/// Functions of thirteen lines with equal bodies.
fn functions(names: &[&str]) -> String {
    let (before, after) = ("  // a\n  // b\n  // c\n", "  // d\n  // e\n  // f\n");
    let body = format!("{before}  lock(r);\n  work(r);\n  unlock(r);\n{after}");
    let function = |name: &&str| format!("int {name}(row *r)\n{{\n{body}}}\n\n");
    names.iter().map(function).collect()
}

#[test]
fn a_range_based_elsewhere_does_not_go_into_a_twin_by_its_lines() {
    let old = functions(&["alpha", "beta", "gamma"]);
    let fork = Fork::new(&[("srv.c", old.clone())]);
    let (first, second) = old.split_at(old.find("int beta").unwrap());
    let beta = second.replacen("work", "fast", 1);
    fork.commit("faster", "srv.c", &format!("{first}{beta}"));
    let fork_path = fork.path().to_string_lossy().into_owned();
    // On the release, `alpha` is at the lines of `beta`.
    let release = tempfile::tempdir().unwrap();
    let new = functions(&["new_one", "alpha", "beta", "gamma"]);
    std::fs::write(release.path().join("srv.c"), &new).unwrap();
    let space = keeper(&[("1.0", release.path())]);
    let error = space.fails(3, &["import", &fork_path, "base..main"]);
    insta::assert_snapshot!(error, @r"
    error: 0001-faster.patch: its context alone would put it at another place than a merge [PQ0904]
    hint: the range begins at another tree than srv-1.0; add the release that it is based on, import for that, and move the series with `perfquilt rebase`
    ");
    assert!(!space.path("patches").join("0001-faster.patch").exists());
}

#[test]
fn a_mail_whose_stale_line_has_twins_is_named() {
    let release = tempfile::tempdir().unwrap();
    let text = functions(&["alpha", "beta", "gamma"]);
    std::fs::write(release.path().join("srv.c"), &text).unwrap();
    let space = keeper(&[("1.0", release.path())]);
    let hunk = "   lock(r);\n-  work(r);\n+  fast(r);\n   unlock(r);\n";
    space.write("src/a.patch", format!("Subject: a\nFrom: T <t@example.org>\n\n--- a/srv.c\n+++ b/srv.c\n@@ -16,3 +16,3 @@\n{hunk}"));
    let (code, out, err) = space.shown(&["import", "src"]);
    assert_eq!(code, 0, "{out}{err}");
    let places = "the file has its lines 3 times: at 6, 19, 32";
    assert!(format!("{out}{err}").contains(places), "{out}{err}");
}
