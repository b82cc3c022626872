//! The stack means what `quilt push -a` (GNU patch without fuzz) and `git apply` make of a series.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::applied::{Meaning, ours};
use crate::common::share::Share;
use crate::common::trees::{apply_edits, edit, lines};
use crate::common::{TestEnvironment, listing, run_in};
use proptest::prelude::*;

type Files = BTreeMap<String, Vec<u8>>;

fn write_tree(dir: &Path, files: &Files) {
    for (path, content) in files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// GNU patch as quilt runs it.
fn patches(space: &TestEnvironment) -> Meaning {
    let tree = space.path("theirs");
    run_in(&space.workspace(), "cp", &["-a", "up", "theirs"]);
    let series = space.read("series");
    for (index, name) in series.lines().enumerate() {
        let file = space.path("patches").join(name);
        if std::fs::metadata(&file).unwrap().len() == 0 {
            continue;
        }
        let input = file.to_string_lossy().into_owned();
        let words = [
            "-p1",
            "-F0",
            "-f",
            "-s",
            "--no-backup-if-mismatch",
            "-i",
            &input,
        ];
        if !run_in(&tree, "patch", &words).success() {
            return Err(index);
        }
    }
    Ok(listing(&tree))
}

/// Returns the tree with `_` for every blank in a name.
fn without_blanks(meaning: Meaning) -> Meaning {
    let renamed =
        |(path, kind, content): (String, String, Vec<u8>)| (path.replace(' ', "_"), kind, content);
    meaning.map(|files| files.into_iter().map(renamed).collect())
}

/// Cases of [`patch_case`] that GNU patch applies.
static PATCHED: Share = Share::new();
/// Cases of [`git_apply_case`] that git applies.
static GIT_APPLIED: Share = Share::new();

#[test]
fn same_as_patch() {
    patch_case();
    PATCHED.is_at_least_one_in(8);
}

#[test]
fn same_as_git_apply() {
    git_apply_case();
    GIT_APPLIED.is_at_least_one_in(3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Patches made for one tree, applied to another: both find the same places, or none.
    fn patch_case(
        base in prop::collection::vec(lines(4), 1..3),
        changes in prop::collection::vec(prop::collection::vec(edit(4), 1..5), 1..4),
        drift in prop::collection::vec(edit(4), 0..4),
        context in 0_usize..4,
    ) {
        let space = TestEnvironment::new();
        let mut states: Vec<Vec<String>> = base.clone();
        let name = |index: usize| format!("d/f{index}");
        let tree = |states: &[Vec<String>]| -> Files {
            states.iter().enumerate()
                .filter(|(_, lines)| !lines.is_empty())
                .map(|(index, lines)| (name(index), lines.concat().into_bytes()))
                .collect()
        };
        write_tree(&space.path("a"), &tree(&states));
        for (number, edits) in changes.iter().enumerate() {
            let index = number % states.len();
            apply_edits(&mut states[index], edits);
            let (old, new) = (format!("s{number}/a"), format!("s{number}/b"));
            std::fs::create_dir_all(space.path(&old)).unwrap();
            std::fs::create_dir_all(space.path(&new)).unwrap();
            let before = if number == 0 { space.path("a") } else { space.path(&format!("s{}/b", number - 1)) };
            run_in(&space.workspace(), "cp", &["-a", &format!("{}/.", before.display()), &old]);
            write_tree(&space.path(&new), &tree(&states));
            let patch = run_in(&space.path(&format!("s{number}")), "diff", &["-Nur", &format!("-U{context}"), "a", "b"]);
            space.patch(&format!("{number}.patch"), patch.stdout);
        }
        let mut drifted = base;
        apply_edits(&mut drifted[0], &drift);
        let mut up = tree(&drifted);
        up.insert("always".to_owned(), b"there\n".to_vec());
        write_tree(&space.path("up"), &up);
        let theirs = patches(&space);
        PATCHED.count(theirs.is_ok());
        prop_assert_eq!(ours(&space), theirs);
    }

    /// Git's own patches with renames, modes, new and deleted files: the tree git itself makes, or where git
    /// refuses, what GNU patch makes of them.
    fn git_apply_case(
        base in prop::collection::vec(lines(200), 2..5),
        edits in prop::collection::vec(edit(200), 0..5),
        rename in any::<bool>(),
        executable in any::<bool>(),
        delete in any::<bool>(),
        create in lines(9),
        drift in 0_usize..3,
    ) {
        let space = TestEnvironment::new();
        let tree: Files = base.iter().enumerate()
            .map(|(index, lines)| (format!("d{}/f {index}.c", index % 2), lines.concat().into_bytes()))
            .collect();
        write_tree(&space.path("work"), &tree);
        let work = space.path("work");
        let git = |args: &[&str]| run_in(&work, "git", args);
        git(&["init", "-q"]);
        git(&["add", "-A"]);
        git(&["commit", "-qm", "base", "--allow-empty"]);
        let mut changed = base[0].clone();
        apply_edits(&mut changed, &edits);
        std::fs::write(work.join("d0/f 0.c"), changed.concat()).unwrap();
        if rename {
            std::fs::create_dir_all(work.join("moved")).unwrap();
            std::fs::rename(work.join("d0/f 0.c"), work.join("moved/g.c")).unwrap();
        }
        if executable {
            run_in(&work, "chmod", &["+x", "d1/f 1.c"]);
        }
        if delete && base.len() > 2 {
            std::fs::remove_file(work.join("d0/f 2.c")).unwrap();
        }
        std::fs::write(work.join("new"), create.concat()).unwrap();
        git(&["add", "-A"]);
        let patch = git(&["diff", "--cached", "-M", "--full-index", "--binary"]).stdout;
        space.patch("git.patch", &patch);
        let mut up = tree;
        if let Some(first) = up.get_mut("d0/f 0.c") && !first.is_empty() {
            first.splice(0..0, "drift\n".repeat(drift).into_bytes());
        }
        write_tree(&space.path("up"), &up);
        run_in(&space.workspace(), "cp", &["-a", "up", "theirs"]);
        let applied = run_in(&space.path("theirs"), "git", &["apply", "--unsafe-paths", "../patches/git.patch"]);
        GIT_APPLIED.count(applied.success());
        let found = ours(&space);
        if applied.success() {
            prop_assert_eq!(found, Ok(listing(&space.path("theirs"))));
            return Ok(());
        }
        // Git applies its own patch to the tree that it was made for.
        prop_assert!(drift > 0, "{}", applied.stderr_text());
        // Git looks for hunks in fewer places than GNU patch, which cannot read blanks in names.
        let plain = TestEnvironment::new();
        plain.patch("git.patch", String::from_utf8_lossy(&patch).replace("/f ", "/f_"));
        let up: Files = up.into_iter().map(|(path, content)| (path.replace(' ', "_"), content)).collect();
        write_tree(&plain.path("up"), &up);
        let theirs = patches(&plain);
        prop_assert_eq!(&without_blanks(found), &theirs, "{}", applied.stderr_text());
        prop_assert_eq!(ours(&plain), theirs);
    }
}

const SOUND: &[&str] = &[
    "Subject: x\n\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -7,2 +7,3 @@\n g\n h\n+i\n",
    "diff --git a/f b/g\nsimilarity index 50%\nrename from f\nrename to g\nindex 1234567..89abcde 100644\n--- a/f\n+++ b/g\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n",
    "diff --git a/n b/n\nnew file mode 100755\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n",
    "diff --git a/x b/x\nindex 0000000000000000000000000000000000000000..1234567890123456789012345678901234567890\nGIT binary patch\nliteral 5\nMcmYdfDN0RD%`MGKEdT&OKLA7J\n\nliteral 0\nHcmV?d00001\n\n",
    "Index: f\n===\n--- f\t1970-01-01 00:00:00 +0000\n+++ f\t(working copy)\n@@ -0,0 +1 @@\n+x\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done to a patch, reading it ends, with a patch or an error that names a place.
    #[test]
    fn mutilated_patches_are_survived(
        which in 0..SOUND.len(),
        wounds in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..8),
        strip in 0_usize..4,
    ) {
        let mut bytes = SOUND[which].as_bytes().to_vec();
        for (at, byte, how) in wounds {
            let at = at.index(bytes.len().max(1));
            match how {
                0 if at < bytes.len() => bytes[at] = byte,
                1 => bytes.insert(at.min(bytes.len()), byte),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                // Digits make wild line numbers.
                _ => bytes.insert(at.min(bytes.len()), b'0' + byte % 10),
            }
        }
        if let Err(error) = perfquilt_series::series::diff::parse(&bytes, strip, "p.patch") {
            prop_assert!(error.location().is_some_and(|place| place.line.is_some()), "{}", error);
        }
        let (_, faults) = perfquilt_series::series::SeriesFile::parse(&bytes, "series");
        prop_assert!(faults.iter().all(|fault| fault.location().is_some()));
    }
}

/// Cases of [`wild_line_case`] that GNU patch applies.
static WILD_PATCHED: Share = Share::new();

#[test]
fn wild_line_numbers() {
    wild_line_case();
    WILD_PATCHED.is_at_least_one_in(3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Wild line numbers: the same place as patch, or none. (patch takes seconds for the wildest.)
    fn wild_line_case(start in prop_oneof![9 => 0_usize..30, 1 => Just(1_000_000_000)], insert in any::<bool>(), drop_context in 0_usize..2) {
        let space = TestEnvironment::new();
        let text: String = (0..20).map(|n| format!("{}\n", n % 6)).collect();
        space.write("up/f", &text);
        let body = if insert {
            format!("@@ -{start},0 +{},1 @@\n+new\n", start + 1)
        } else {
            let start = start.max(1);
            let tail = if drop_context == 0 { " 4\n" } else { "" };
            let count = 3 - drop_context;
            format!("@@ -{start},{count} +{start},{count} @@\n 2\n-3\n+drei\n{tail}")
        };
        space.patch("p.patch", format!("--- a/f\n+++ b/f\n{body}"));
        let theirs = patches(&space);
        WILD_PATCHED.count(theirs.is_ok());
        prop_assert_eq!(ours(&space), theirs);
    }
}

/// One series with everything in it, through quilt itself.
#[test]
fn same_as_quilt() {
    let space = TestEnvironment::new();
    space.write("up/src/a.c", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n");
    space.write("up/src/b.c", "b\n");
    space.write("up/crlf.txt", "a\r\nb\r\nc\r\n");
    space.write("up/no-end", "x\ny");
    space.write("up/run.sh", "#!/bin/sh\n");
    space.write("up/old", "old\nold\n");
    space.patch(
        "plain.patch",
        "text before\n\n--- a/src/a.c\t2024-01-01 00:00:00 +0000\n+++ b/src/a.c\t2024-01-01 00:00:00 +0000\n\
         @@ -2,3 +2,4 @@\n two\n-three\n+drei\n+dreieinhalb\n four\n",
    );
    space.patch(
        "index.patch",
        "Index: root/src/b.c\n===================================================================\n\
         --- root.orig/src/b.c\n+++ root/src/b.c\n@@ -1 +1,2 @@\n b\n+b2\n",
    );
    space.patch(
        "create.patch",
        "--- /dev/null\n+++ b/new/file\n@@ -0,0 +1,2 @@\n+1\n+2\n\\ No newline at end of file\n",
    );
    space.patch(
        "delete.patch",
        "--- a/old\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-old\n-old\n",
    );
    space.patch(
        "mode.patch",
        "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n",
    );
    space.patch(
        "rename.patch",
        "diff --git a/src/b.c b/src/c.c\nsimilarity index 50%\nrename from src/b.c\nrename to src/c.c\n\
         --- a/src/b.c\n+++ b/src/c.c\n@@ -1,2 +1,2 @@\n b\n-b2\n+c2\n",
    );
    space.patch(
        "no-end.patch",
        "--- a/no-end\n+++ b/no-end\n@@ -1,2 +1,2 @@\n x\n-y\n\\ No newline at end of file\n+z\n",
    );
    space.patch(
        "offset.patch",
        "--- a/src/a.c\n+++ b/src/a.c\n@@ -4,3 +4,3 @@\n five\n-six\n+sechs\n seven\n",
    );
    space.patch("empty.patch", "");
    space.patch(
        "deep/er.patch",
        "--- a/src/a.c\n+++ b/src/a.c\n@@ -1,2 +1,2 @@\n-one\n+eins\n two\n",
    );
    space.patch(
        "crlf.patch",
        "--- a/crlf.txt\n+++ b/crlf.txt\n@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\r\n c\r\n",
    );
    space.patch(
        "twice.patch",
        "--- a/src/a.c\n+++ b/src/a.c\n@@ -1,3 +1,3 @@\n eins\n-two\n+zwei\n drei\n\
         --- a/src/a.c\n+++ b/src/a.c\n@@ -1,2 +1,2 @@\n-eins\n+1\n zwei\n",
    );
    space.patch(
        "empty-file.patch",
        "diff --git a/void b/void\nnew file mode 100644\nindex 0000000..e69de29\n",
    );
    space.write(
        "series",
        format!(
            "# head\n\n{}level.patch -p0\nback.patch -R\n",
            space.read("series")
        ),
    );
    space.write(
        "patches/level.patch",
        "--- crlf.txt\n+++ crlf.txt\n@@ -2,2 +2,2 @@\n B\r\n-c\r\n+C\r\n",
    );
    space.write(
        "patches/back.patch",
        "--- a/src/c.c\n+++ b/src/c.c\n@@ -1,2 +1,2 @@\n b\n-c3\n+c2\n",
    );

    let theirs = space.path("theirs");
    run_in(&space.workspace(), "cp", &["-a", "up", "theirs"]);
    run_in(
        &space.workspace(),
        "cp",
        &["-a", "series", "patches", "theirs/"],
    );
    let quilt = run_in(&theirs, "quilt", &["push", "-a", "--fuzz=0"]);
    assert!(
        quilt.success(),
        "{}{}",
        quilt.stdout_text(),
        quilt.stderr_text()
    );
    assert_eq!(ours(&space).unwrap(), listing(&theirs));
}
