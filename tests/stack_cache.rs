//! Remembered stacks: whatever is or is not remembered, the result is the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::common::{TestEnvironment, run_in};

const PATCHES: usize = 60;

/// A workspace with a made-up release and series, imported.
fn space() -> TestEnvironment {
    let space = TestEnvironment::new();
    let files: BTreeMap<String, Vec<u8>> = (0..30)
        .map(|number| {
            let lines = 40 + number * 7;
            let content: String = (0..lines)
                .map(|line| format!("int line_{line}_of_{number};\n"))
                .collect();
            (format!("d{}/f{number}.c", number % 4), content.into_bytes())
        })
        .collect();
    for (path, content) in &files {
        space.write(&format!("up/{path}"), content);
    }
    crate::common::generate::series(&space.workspace(), &files, PATCHES);
    space.ok(&["upstream", "fetch"]);
    space
}

fn store(space: &TestEnvironment) -> PathBuf {
    space.path(".perfquilt/objects.git")
}

fn remembered(space: &TestEnvironment) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(store(space).join("stacks"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

fn forget(space: &TestEnvironment) {
    std::fs::remove_dir_all(store(space).join("stacks")).unwrap();
}

fn stack(space: &TestEnvironment) -> String {
    space.ok(&["--json", "stack"])
}

/// A remembered stack gives the same document as applying everything anew.
fn same_when_forgotten(space: &TestEnvironment) -> String {
    let found = stack(space);
    assert_eq!(stack(space), found, "warm");
    forget(space);
    assert_eq!(stack(space), found, "cold");
    found
}

fn fsck(space: &TestEnvironment) {
    let output = run_in(&store(space), "git", &["fsck", "--strict", "--full"]);
    assert!(output.success(), "{}", output.stderr_text());
}

#[test]
fn edits_of_the_series() {
    let space = space();
    let first = same_when_forgotten(&space);
    let commits = |document: &str| -> Vec<String> {
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
        let steps = document["steps"].as_array().unwrap();
        let commit = |step: &serde_json::Value| step["commit"].as_str().unwrap().to_owned();
        steps.iter().map(commit).collect()
    };
    // A changed patch.
    let patch = space.read("patches/00040-change.patch");
    space.write(
        "patches/00040-change.patch",
        patch.replace("Subject: change", "Subject: another change"),
    );
    let changed = same_when_forgotten(&space);
    let (old, new) = (commits(&first), commits(&changed));
    assert_eq!(old[..39], new[..39]);
    assert!(old.iter().skip(39).zip(&new[39..]).all(|(a, b)| a != b));
    // Back again: found, and nothing is written.
    space.write("patches/00040-change.patch", patch);
    assert_eq!(stack(&space), first);
    // Removed, added and moved at the end, where they do not disturb each other.
    let series = space.read("series");
    let shorter = series.replace("00060-change.patch\n", "");
    space.write("series", &shorter);
    assert_eq!(commits(&same_when_forgotten(&space)), old[..59]);
    space.write("series", &series);
    assert_eq!(same_when_forgotten(&space), first);
    fsck(&space);
}

#[test]
fn moved_patches_are_applied_in_their_new_order() {
    let space = TestEnvironment::new();
    space.write("up/a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    space.patch(
        "one.patch",
        "--- a/a\n+++ b/a\n@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n 4\n",
    );
    space.patch(
        "two.patch",
        "--- a/a\n+++ b/a\n@@ -6,4 +6,4 @@\n 6\n 7\n 8\n-9\n+nine\n",
    );
    let tree = |space: &TestEnvironment, index: usize| {
        let document: serde_json::Value = serde_json::from_str(&stack(space)).unwrap();
        document["steps"][index]["tree"].clone()
    };
    let (first, last) = (tree(&space, 0), tree(&space, 1));
    space.write("series", "two.patch\none.patch\n");
    assert_ne!(tree(&space, 0), first);
    assert_eq!(tree(&space, 1), last);
    same_when_forgotten(&space);
}

#[test]
fn what_applies_is_kept_when_a_later_patch_fails() {
    let space = space();
    let whole = stack(&space);
    forget(&space);
    let good = space.read("patches/00050-change.patch");
    let bad = "--- a/d0/f0.c\n+++ b/d0/f0.c\n@@ -1,2 +1,2 @@\n nowhere\n-to be found\n+at all\n";
    space.write("patches/00050-change.patch", bad);
    let message = space.fails(3, &["stack"]);
    assert!(
        message.contains("patches/00050-change.patch:3"),
        "{message}"
    );
    assert_eq!(remembered(&space).len(), 1);
    assert_eq!(space.fails(3, &["stack"]), message, "the second time");
    space.write("patches/00050-change.patch", good);
    assert_eq!(stack(&space), whole);
    fsck(&space);
}

#[test]
fn damaged_and_foreign_files_are_ignored() {
    let space = space();
    let expected = stack(&space);
    let file = remembered(&space).pop().unwrap();
    let sound = std::fs::read(&file).unwrap();
    let mut flipped = sound.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let damages: [Vec<u8>; 5] = [
        Vec::new(),
        b"something else".to_vec(),
        sound[..sound.len() - 1].to_vec(),
        sound[..100].to_vec(),
        flipped,
    ];
    for damage in damages {
        std::fs::write(&file, &damage).unwrap();
        assert_eq!(stack(&space), expected, "{} bytes", damage.len());
        assert_eq!(std::fs::read(&file).unwrap(), sound, "it is made anew");
    }
    // Another release's stack under this one's name, and names that are none.
    let other = self::space();
    other.write("up/d0/more.c", "int more;\n");
    std::fs::remove_file(other.path("bench-config/upstream.lock")).unwrap();
    std::fs::remove_dir_all(other.path(".perfquilt")).unwrap();
    other.ok(&["upstream", "fetch"]);
    stack(&other);
    std::fs::copy(remembered(&other).pop().unwrap(), &file).unwrap();
    std::fs::write(file.with_file_name("README"), "hello").unwrap();
    std::fs::create_dir(file.with_file_name("0123456789abcdef")).unwrap();
    assert_eq!(stack(&space), expected);
    // Without its reference, git may have collected the commits.
    let references = run_in(
        &store(&space),
        "git",
        &["for-each-ref", "--format=%(refname)"],
    );
    for reference in references.stdout_text().lines() {
        if reference.starts_with("refs/stacks/") {
            run_in(&store(&space), "git", &["update-ref", "-d", reference]);
        }
    }
    run_in(&store(&space), "git", &["gc", "-q", "--prune=now"]);
    assert_eq!(stack(&space), expected);
    // And a collection leaves what is remembered.
    run_in(&store(&space), "git", &["gc", "-q", "--prune=now"]);
    assert_eq!(same_when_forgotten(&space), expected);
    fsck(&space);
}

#[test]
fn several_at_once() {
    let space = space();
    let outputs: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| stack(&space))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
    fsck(&space);
}

#[test]
fn killed_at_any_moment() {
    let space = space();
    let expected = stack(&space);
    // Whenever it is killed, before, during or after, nothing is broken.
    for microseconds in (0..30_000).step_by(2_500) {
        forget(&space);
        let limit = std::time::Duration::from_micros(microseconds);
        space.run_and_signal(&["-q", "stack"], limit, Signal::KILL);
        assert_eq!(stack(&space), expected, "killed after {microseconds} µs");
    }
    fsck(&space);
}

#[test]
fn only_so_many_are_remembered() {
    let space = TestEnvironment::new();
    space.write("up/a", "1\n");
    space.ok(&["upstream", "fetch"]);
    for number in 0..3 {
        space.write(
            "patches/p.patch",
            format!("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+{number}x\n"),
        );
        space.write("series", "p.patch\n");
        stack(&space);
    }
    assert_eq!(remembered(&space).len(), 3);
    let references = || {
        run_in(&store(&space), "git", &["for-each-ref", "refs/stacks"])
            .stdout_text()
            .lines()
            .count()
    };
    assert_eq!(references(), 3);
    // References of files that are gone go when the next stack is remembered.
    forget(&space);
    space.write(
        "patches/p.patch",
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+new\n",
    );
    stack(&space);
    assert_eq!((remembered(&space).len(), references()), (1, 1));
}
