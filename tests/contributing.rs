//! The examples of CONTRIBUTING.md: each Rust block is a file below `tests/contributing/`, which is compiled and run
//! here.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use perfquilt_judge::attribution::attribute_with;
use perfquilt_model::observation::Meter;
use perfquilt_report::{EXPORTERS, Exporter, ReportData};
use serde_json::Value;

/// `crates/report/src/export/` with the example of a format.
#[path = "contributing"]
mod export {
    pub use perfquilt_report::{ExportedReport, Exporter, ReportData};

    mod badge;

    pub const BADGE: &dyn Exporter = &badge::Badge;
}

/// The Rust blocks of a page: the path in the comment `<!-- PATH -->` on the line before the block, and its text.
fn examples(page: &str) -> Vec<(Option<&str>, String)> {
    let mut found = Vec::new();
    let mut before = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line == "```rust" {
            let block = lines.by_ref().take_while(|line| *line != "```");
            let text = block.map(|line| format!("{line}\n")).collect();
            let comment = before.strip_prefix("<!-- ");
            let path = comment.and_then(|comment| comment.strip_suffix(" -->"));
            found.push((path, text));
        }
        before = line;
    }
    found
}

#[test]
fn the_examples_are_the_files_they_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let examples = examples(&page);
    assert!(!examples.is_empty());
    let mut shown = Vec::new();
    for (path, text) in examples {
        let path = path.unwrap_or_else(|| panic!("no comment names the file of\n{text}"));
        let file = std::fs::read_to_string(root.join(path)).unwrap();
        assert!(
            text == file,
            "{path} is not the block in CONTRIBUTING.md:\n{text}"
        );
        shown.push(root.join(path));
    }
    for entry in std::fs::read_dir(root.join("tests/contributing")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.display();
        assert!(
            shown.contains(&path),
            "CONTRIBUTING.md does not show {file}"
        );
    }
}

#[test]
fn a_block_has_the_comment_before_it() {
    let page =
        "<!-- a.rs -->\n```rust\nfn a() {}\n\nfn b() {}\n```\n```sh\nls\n```\n\n```rust\n```\n";
    let found = examples(page);
    let first = "fn a() {}\n\nfn b() {}\n".to_owned();
    assert_eq!(found, [(Some("a.rs"), first), (None, String::new())]);
}

#[test]
fn the_example_of_a_format_exports_published_results() {
    let mut formats: Vec<&dyn Exporter> = EXPORTERS.to_vec();
    formats.push(export::BADGE);
    let with_name = |name| {
        formats
            .iter()
            .filter(|format| format.name() == name)
            .count()
    };
    assert_eq!(with_name("badge"), 1);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/results/2026-11-21-mariadb-10.11.18.jsonl.gz");
    let file = perfquilt_results::analyse::open(&path).unwrap();
    let file = perfquilt_store::jsonl::read(file, &path).unwrap();
    let attribution = attribute_with(
        &file.header,
        &file.observations,
        &file.supplement,
        &Meter::default_margin,
    )
    .unwrap();
    // The data of a caller that read the file line by line: the format requires the document alone.
    let data = ReportData::new(&attribution);
    let exported = formats.last().unwrap().export(&data).unwrap();
    let badge: Value = serde_json::from_str(&exported.text).unwrap();
    assert_eq!(badge["schemaVersion"], 1);
    assert_eq!(badge["message"], "+11.6 %, faster");
    assert_eq!(badge["color"], "brightgreen");
    let mut empty = attribution;
    empty.total.clear();
    let fault = export::BADGE.export(&ReportData::new(&empty)).unwrap_err();
    assert_eq!(fault.message(), "the whole series was not measured");
}
