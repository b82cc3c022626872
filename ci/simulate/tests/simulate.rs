//! The program that simulates, from outside.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

struct Finished {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run_in(folder: &Path, args: &[&str]) -> Finished {
    let output = Command::new(env!("CARGO_BIN_EXE_perfquilt-simulate"))
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn a_simulation_is_repeatable_and_writes_its_part_of_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let run = |seed: &str| {
        let args = [
            "experiments",
            "--experiments",
            "4",
            "--seed",
            seed,
            "--json",
            "--output",
            "page.md",
        ];
        let finished = run_in(folder.path(), &args);
        let mut found: Value = serde_json::from_str(&finished.stdout).unwrap();
        found["seconds"] = 0.into();
        found["date"] = "".into();
        (finished.code, found, finished.stderr)
    };
    // The same seed gives the same figures, so that no chance is left: every promise is kept as far as so many
    // experiments tell.
    let (code, first, words) = run("1");
    assert_eq!(code, Some(0), "{words}");
    let checks = first["checks"].as_array().unwrap();
    assert!(checks.len() > 40, "{}", checks.len());
    assert_eq!(first["families"].as_array().unwrap().len(), 10);
    assert_eq!(run("1").1, first);
    let (code, other, words) = run("2");
    assert_ne!(other, first);
    assert_eq!(other["families"].as_array().unwrap().len(), 10);
    // The error names what chance cannot explain.
    assert!(
        (code == Some(0)) != words.contains("not every promise"),
        "{words}"
    );
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    let page = read("page.md");
    assert_eq!(page.matches("## Simulated experiments").count(), 1);
    assert!(page.contains("(page-scenarios.tsv)"), "{page}");
    assert_eq!(read("page-scenarios.tsv").lines().count(), 11);
}

#[test]
fn simulated_bisections_write_their_part_of_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "bisections",
        "--experiments",
        "1",
        "--json",
        "--output",
        "page.md",
    ];
    let finished = run_in(folder.path(), &args);
    // One session a case may be wrong by chance, which the error reports.
    let fault = finished.stderr.contains("not every promise is kept");
    assert_eq!(
        finished.code,
        Some(if fault { 7 } else { 0 }),
        "{}",
        finished.stderr
    );
    let found: Value = serde_json::from_str(&finished.stdout).unwrap();
    let cases = found["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 99);
    // perfquilt's default size to find, where there is no culprit.
    assert_eq!(
        (&cases[0]["culprits"], &cases[0]["size"]),
        (&0.into(), &0.005.into())
    );
    assert!(
        cases.iter().all(|case| case["exact"].is_number()),
        "{found}"
    );
    let page = std::fs::read_to_string(folder.path().join("page.md")).unwrap();
    assert_eq!(page.matches("## Bisections").count(), 1);
    assert!(page.contains("(page-bisections.tsv)"), "{page}");
    let table = folder.path().join("page-bisections.tsv");
    let table = std::fs::read_to_string(table).unwrap();
    let of = |changes: &str| {
        let rows = table.lines().map(|line| line.split('\t').nth(1));
        rows.filter(|cell| *cell == Some(changes)).count()
    };
    assert_eq!([of("8"), of("64"), of("1024")], [33; 3], "{table}");
}

#[test]
fn no_experiment_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = run_in(folder.path(), &["--experiments", "0"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}
