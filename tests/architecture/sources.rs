//! Source text without unit tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

static UNIT_TESTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"#\[cfg\(test\)\]\n(pub(\([a-z]+\))? )?mod \w+ \{").unwrap());

/// Returns every Rust file under `folder`, with its text up to the unit tests.
pub fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut pending = vec![folder.to_owned()];
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
            let product = UNIT_TESTS.split(&text).next().unwrap().to_owned();
            found.push((path, product));
        }
    }
    assert!(!found.is_empty(), "{} has no source", folder.display());
    found
}

/// Fails when a file under `folder` outside `allowed` uses one of `words`, or when none within does: the
/// words are misspelt then.
pub fn only_in(folder: &str, allowed: &[&str], words: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut used = allowed.is_empty();
    for (path, text) in sources(&root) {
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
