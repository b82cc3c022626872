//! The invariants of ARCHITECTURE.md that can be read off the source text.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file under `folder`, with its text up to the unit tests.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let unit_tests =
        regex::Regex::new(r"#\[cfg\(test\)\]\n(pub(\([a-z]+\))? )?mod \w+ \{").unwrap();
    let mut pending = vec![root];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            // Unit tests are a module at the end, or a file of their own.
            let product = unit_tests.split(&text).next().unwrap().to_owned();
            found.push((path, product));
        }
    }
    assert!(!found.is_empty(), "{folder} has no source");
    found
}

/// Fails when a file under `folder` outside `allowed` uses one of `words`, or when none within does: the
/// words are misspelt then.
fn only_in(folder: &str, allowed: &[&str], words: &[&str]) {
    let mut used = allowed.is_empty();
    for (path, text) in sources(folder) {
        let may_use = allowed
            .iter()
            .any(|part| path.to_string_lossy().contains(part));
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            if let Some(word) = words.iter().find(|word| code.contains(*word)) {
                if may_use {
                    used = true;
                    break;
                }
                panic!(
                    "{}:{}: `{word}` has no place here",
                    path.display(),
                    number + 1
                );
            }
        }
    }
    assert!(used, "none of {words:?} is used in {allowed:?}");
}

#[test]
fn judgement_and_series_do_no_io() {
    for folder in ["src/stats", "src/attribution", "src/bisect", "src/report"] {
        only_in(
            folder,
            &[],
            &[
                "std::fs",
                "std::env",
                "perfquilt_system::process",
                "std::net",
            ],
        );
    }
    only_in(
        "src/series",
        &["/load.rs"],
        &["std::fs", "std::env", "perfquilt_system::process"],
    );
}

#[test]
fn only_the_object_store_side_knows_git2() {
    only_in("src", &["/stack/", "/upstream/"], &["git2::"]);
}

#[test]
fn only_the_store_knows_sqlite() {
    only_in("src", &["/store/"], &["rusqlite::"]);
}

#[test]
fn only_the_forge_knows_octocrab() {
    only_in("src", &["/forge/"], &["octocrab::", "use http::"]);
    only_in(
        "src",
        &["/forge/", "/bot/"],
        &["tokio::", "axum::", "use ring::"],
    );
}

#[test]
fn only_one_module_starts_processes() {
    only_in(
        "src",
        &["/process/"],
        &["std::process::Command", "libc::fork"],
    );
}

#[test]
fn the_library_never_prints() {
    only_in(
        "src",
        &["/cli/output.rs", "/cli/terminal.rs"],
        &[
            "println!",
            "eprintln!",
            "print!(",
            "eprint!(",
            "stdout().lock",
            "dbg!",
        ],
    );
}

#[test]
fn judgement_does_not_know_the_machine() {
    only_in(
        "src/stats",
        &[],
        &[
            "perfquilt_store",
            "perfquilt_machine::server",
            "perfquilt_machine::build",
            "perfquilt_measure::experiment",
            "perfquilt_report",
        ],
    );
    only_in(
        "src/bisect",
        &[],
        &[
            "perfquilt_store",
            "perfquilt_machine::server",
            "perfquilt_machine::build",
            "perfquilt_measure::experiment",
            "perfquilt_measure::run",
            "perfquilt_report",
            "perfquilt_config::workspace",
        ],
    );
    only_in(
        "src/attribution",
        &[],
        &[
            "perfquilt_store",
            "perfquilt_machine::server",
            "perfquilt_machine::build",
            "perfquilt_report",
        ],
    );
}
