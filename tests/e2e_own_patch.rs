//! The page for one's own patch, followed on the real Redis (`ci/e2e`): fetched, built and measured. Uses the machine's caches.

use std::path::Path;
use std::process::Command;

use crate::common::documents::{commands, root};

#[test]
fn the_page_leads_to_the_answer_that_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let page = std::fs::read_to_string(root().join("docs/own-patch.md")).unwrap();
    let lines: Vec<String> = commands(&page).into_iter().map(|(_, line)| line).collect();
    let program = Path::new(env!("CARGO_BIN_EXE_perfquilt"));
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("/bin/bash")
        .args(["-e", "-u", "-c", &lines.join("\n")])
        .current_dir(folder.path())
        .env(
            "PATH",
            format!("{}:{path}", program.parent().unwrap().display()),
        )
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.invalid")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.invalid")
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{out}");
    assert!(output.status.success(), "{out}\n{errors}");
    assert!(out.contains("1 patch: 1 slower"), "{out}\n{errors}");
    let report = std::fs::read_to_string(folder.path().join("my-series/report.html")).unwrap();
    assert!(report.contains("</html>"));
}
