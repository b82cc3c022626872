//! A small comparison, from the command line to the page.

#![allow(clippy::unwrap_used)]

use assert_cmd::Command;

fn peers(arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::new(env!("CARGO_BIN_EXE_perfquilt-peers"))
        .args(arguments)
        .assert()
}

#[test]
fn a_small_comparison_writes_its_parts_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    let plot = folder.path().join("page-power.svg");
    std::fs::write(
        &page,
        "An introduction\n\n<!-- rules: made by ci/peers -->\nold figures\n<!-- end of rules -->\n",
    )
    .unwrap();
    peers(&["--experiments", "5", "--output", page.to_str().unwrap()]).success();
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("An introduction") && !text.contains("old figures"));
    assert_eq!(text.matches("## Decision rules").count(), 1);
    for rule in [
        "perfquilt",
        "benchstat",
        "ClickHouse",
        "Pinpoint",
        "rustc-perf",
    ] {
        assert_eq!(text.matches(&format!("\n| {rule} |")).count(), 4, "{rule}");
    }
    assert!(text.contains("(page-power.svg)"), "{text}");
    assert!(std::fs::read_to_string(&plot).unwrap().starts_with("<svg"));
    assert_eq!(text.matches("## Methods of bisecting").count(), 1);
    let table = std::fs::read_to_string(folder.path().join("page-bisecting.tsv")).unwrap();
    assert!(text.contains("(page-bisecting.tsv)"), "{text}");
    for method in [
        "perfquilt",
        "git bisect run, one run",
        "git bisect run, mean of 5",
        "Pinpoint's rule",
        "git bisect run, mean of enough",
    ] {
        let shown = text.matches(&format!(" | {method} | ")).count();
        let all = table.matches(&format!("\t{method}\t")).count();
        assert_eq!((shown, all), (6, 99), "{method}");
    }
}

#[test]
fn a_page_that_cannot_be_read_and_no_experiments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let refused = peers(&["--output", folder]).failure();
    let words = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(words.contains("cannot read"), "{words}");
    peers(&["--experiments", "0", "--output", "page.md"]).failure();
}
