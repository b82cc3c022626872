//! The canonical form of patches against `git diff --full-index --binary -M`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::common::run_in;
use perfquilt_series::stack::format;
use perfquilt_series::upstream::Objects;
use proptest::prelude::*;
use tempfile::TempDir;

/// A repository in which trees are made with git itself.
struct Trees {
    dir: TempDir,
}

impl Trees {
    fn new() -> Trees {
        let trees = Trees {
            dir: tempfile::tempdir().unwrap(),
        };
        trees.git(&["init", "-q", "."]);
        trees
    }

    fn git(&self, args: &[&str]) -> Vec<u8> {
        let output = run_in(self.dir.path(), "git", args);
        assert!(output.success(), "{args:?}: {}", output.stderr_text());
        output.stdout
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.dir.path().join(path)).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        symlink(target, self.dir.path().join(path)).unwrap();
    }

    fn mode(&self, path: &str, mode: u32) {
        let path = self.dir.path().join(path);
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn tree(&self) -> String {
        self.git(&["add", "-A", "."]);
        let name = self.git(&["write-tree"]);
        String::from_utf8(name).unwrap().trim().to_owned()
    }

    fn clear(&self) {
        for entry in std::fs::read_dir(self.dir.path()).unwrap().flatten() {
            if entry.file_name() == ".git" {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                std::fs::remove_dir_all(entry.path()).unwrap();
            } else {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// Both forms, as text.
    fn both(&self, old: &str, new: &str) -> (String, String) {
        let store = Objects::open(&self.dir.path().join(".git")).unwrap();
        let ours = format::diff(&store, old, new).unwrap();
        let git_dir = self.dir.path().join(".git");
        // Away from the work tree, where attributes would be read.
        let output = run_in(
            Path::new("/"),
            "git",
            &[
                "--git-dir",
                git_dir.to_str().unwrap(),
                "-c",
                "core.compression=6",
                "-c",
                "core.bare=true",
                "diff",
                "--full-index",
                "--binary",
                "-M",
                old,
                new,
            ],
        );
        assert!(output.success(), "{}", output.stderr_text());
        let text = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|&byte| char::from(byte))
                .collect::<String>()
        };
        (text(&ours), text(&output.stdout))
    }

    fn check(&self, old: &str, new: &str) -> String {
        let (ours, gits) = self.both(old, new);
        assert_eq!(ours, gits);
        let (ours_back, gits_back) = self.both(new, old);
        assert_eq!(ours_back, gits_back);
        ours
    }
}

fn numbered(from: usize, to: usize) -> String {
    (from..to)
        .map(|n| format!("line {n} of this file\n"))
        .collect()
}

#[test]
fn every_kind_of_change() {
    let trees = Trees::new();
    let noise: Vec<u8> = (0..3000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    trees.write("text", numbered(0, 40));
    trees.write("noeol", "a\nb");
    trees.write("deep/er/gone", "bye\n");
    trees.write("empty-gone", "");
    trees.write("bin", &noise);
    trees.write("bin-gone", [0_u8, 1, 2]);
    trees.write("run", "#!/bin/sh\n");
    trees.write("run-and-change", "#!/bin/sh\n");
    trees.write("moved/away.c", numbered(0, 50));
    trees.write("moved/exact.c", numbered(100, 150));
    trees.write("a", "file, then folder\n");
    trees.write("a.b", "between\n");
    trees.write("file-to-link", "x\n");
    trees.link("link", "text");
    trees.link("link-moved", "somewhere/else");
    trees.write("name with blank", "1\n");
    trees.write("tab\there", "1\n");
    trees.write("quote\"d\\", "1\n");
    trees.write("ünïcode", "1\n");
    let old = trees.tree();
    trees.write("text", numbered(0, 40).replace("line 20 ", "LINE 20 "));
    trees.write("noeol", "a\nb\n");
    trees.write("new/noeol", "no end");
    trees.remove("deep/er/gone");
    trees.remove("empty-gone");
    trees.write("empty-new", "");
    let mut changed = noise.clone();
    changed[1500] ^= 0x55;
    trees.write("bin", &changed);
    trees.remove("bin-gone");
    trees.write("bin-new", &noise[7..900]);
    trees.mode("run", 0o755);
    trees.mode("run-and-change", 0o755);
    trees.write("run-and-change", "#!/bin/bash\n");
    trees.remove("moved/away.c");
    trees.write(
        "landed/home.c",
        numbered(0, 50).replace("line 7 ", "LINE 7 "),
    );
    trees.remove("moved/exact.c");
    trees.write("landed/exact.c", numbered(100, 150));
    trees.mode("landed/exact.c", 0o755);
    trees.remove("a");
    trees.write("a/x", "folder now\n");
    trees.write("a.b", "between, changed\n");
    trees.remove("file-to-link");
    trees.link("file-to-link", "text");
    trees.remove("link");
    trees.link("link", "noeol");
    trees.remove("link-moved");
    trees.link("link-landed", "somewhere/else");
    for name in ["name with blank", "tab\there", "quote\"d\\", "ünïcode"] {
        trees.write(name, "2\n");
    }
    let new = trees.tree();
    let text = trees.check(&old, &new);
    for expected in [
        "similarity index 100%",
        "rename from moved/away.c\nrename to landed/home.c",
        "GIT binary patch\ndelta ",
        "new file mode 120000",
        "old mode 100644\nnew mode 100755\ndiff --git",
        "\\ No newline at end of file",
        "--- a/name with blank\t\n",
        "diff --git \"a/tab\\there\" \"b/tab\\there\"",
        "\"a/\\303\\274n\\303\\257code\"",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(trees.check(&old, &old).is_empty());
    let empty = trees.git(&["mktree", "--missing"]);
    let empty = String::from_utf8(empty).unwrap();
    trees.check(empty.trim(), &new);
}

#[test]
fn names_of_functions_are_cut_as_git_cuts_them() {
    let trees = Trees::new();
    let bodies = [
        // A blank at the 80th byte, a character across it, bytes that are no text.
        format!("int {} rest of it\n", "x".repeat(75)),
        format!("int {}ü()\n", "x".repeat(75)),
        "caf\u{e9} int f()\n".to_owned(),
        "$dollar   \n".to_owned(),
        "class a\r\n".to_owned(),
    ];
    let body = |mark: &str| -> Vec<u8> {
        let mut text = Vec::new();
        for (number, head) in bodies.iter().enumerate() {
            if number == 2 {
                text.extend(head.chars().map(|c| c as u32 as u8));
            } else {
                text.extend_from_slice(head.as_bytes());
            }
            text.extend_from_slice(
                format!("{{\n 1\n 2\n 3\n 4\n 5 {mark}\n 6\n 7\n 8\n 9\n}}\n").as_bytes(),
            );
        }
        text
    };
    trees.write("f.c", body("before"));
    let old = trees.tree();
    trees.write("f.c", body("after"));
    let new = trees.tree();
    let text = trees.check(&old, &new);
    assert_eq!(text.matches("@@ ").count(), 10, "{text}");
}

#[test]
fn renames_among_many_candidates() {
    let trees = Trees::new();
    for n in 0..8 {
        let unique: String = (0..30).map(|k| format!("{n} has {k}\n")).collect();
        trees.write(
            &format!("src/{n}/Makefile"),
            format!("{}{unique}", numbered(0, 25)),
        );
        trees.write(
            &format!("src/{n}/same"),
            "the same in all of them, and long enough\n",
        );
    }
    let old = trees.tree();
    trees.clear();
    for n in 0..8 {
        let unique: String = (0..30 - n).map(|k| format!("{n} has {k}\n")).collect();
        let name = if n % 2 == 0 {
            "Makefile"
        } else {
            "Makefile.am"
        };
        trees.write(
            &format!("lib/{}/{name}", 7 - n),
            format!("{}{unique}more {n}\n", numbered(n, 25)),
        );
        trees.write(
            &format!("lib/{n}/{}", ["same", "other"][n % 2]),
            "the same in all of them, and long enough\n",
        );
    }
    let new = trees.tree();
    let text = trees.check(&old, &new);
    assert!(text.matches("rename from").count() >= 14, "{text}");
}

/// Lines from a small stock, so that files are alike and diffs have a choice.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => prop::sample::select(vec!["\n", "}\n", "{\n", "  x = 1;\n", "\ty();\n", "int f()\n", "  return;\n"]),
        2 => prop::sample::select(vec!["class a\n", "// c\n", "  if (x)\n", "    z();\n", "end\r\n"]),
    ];
    (prop::collection::vec(line, 0..60), 0..12_u8).prop_map(|(lines, special)| {
        let mut text = lines.concat().into_bytes();
        if special == 0 {
            text.extend_from_slice(b"\0\n");
        }
        text
    })
}

fn tree() -> impl Strategy<Value = Vec<(String, Vec<u8>, u8)>> {
    let path = prop::sample::select(vec![
        "a", "b.c", "d/a", "d/b.c", "d/e/a", "d/e/f", "g", "h i", "j/\u{e4}", "d.c/a", "d-e",
    ]);
    prop::collection::vec((path.prop_map(str::to_owned), content(), 0..8_u8), 0..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_trees(old in tree(), new in tree(), keep in any::<u16>()) {
        let trees = Trees::new();
        let put = |files: &[(String, Vec<u8>, u8)]| {
            trees.clear();
            let mut seen = std::collections::BTreeSet::new();
            for (path, content, kind) in files {
                if !seen.insert(path.clone()) {
                    continue;
                }
                if *kind == 0 {
                    trees.write(&format!("{path}.parent"), "");
                    trees.link(&format!("{path}.link"), "target");
                } else {
                    trees.write(path, content);
                    trees.mode(path, if *kind == 1 { 0o755 } else { 0o644 });
                }
            }
            trees.tree()
        };
        // Some files keep their content under another name.
        let mut new = new;
        for (index, file) in new.iter_mut().enumerate() {
            if keep & (1 << index) != 0 && let Some(from) = old.get(index) {
                file.1 = from.1.clone();
                if keep & (1 << (index + 7)) != 0 {
                    file.1.extend_from_slice(b"one line more\n");
                }
            }
        }
        let (old, new) = (put(&old), put(&new));
        let (ours, gits) = trees.both(&old, &new);
        prop_assert_eq!(ours, gits);
    }

    /// How alike two files are does not depend on whether the last line ends only since git 2.44, so
    /// that is tried without renames.
    #[test]
    fn random_ends(old in content(), new in content(), ends in any::<(bool, bool)>()) {
        let trees = Trees::new();
        let put = |content: &[u8], ends: bool| {
            let ended = content.strip_suffix(b"\n").filter(|_| !ends).unwrap_or(content);
            trees.write("f", ended);
            trees.tree()
        };
        let (old, new) = (put(&old, ends.0), put(&new, ends.1));
        let (ours, gits) = trees.both(&old, &new);
        prop_assert_eq!(ours, gits);
    }
}
