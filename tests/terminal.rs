//! What a person at a terminal sees while the main job runs: `script` gives the tool a real one.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use std::process::Stdio;

use common::TestEnvironment;

/// Runs the tool in a terminal of `columns`; everything that was written to it, and the exit code.
fn at_a_terminal(environment: &TestEnvironment, columns: usize, line: &str) -> (String, i32) {
    let tool = env!("CARGO_BIN_EXE_perfquilt");
    let output = environment
        .hermetic("script", &environment.workspace())
        .args(["--quiet", "--return", "--flush", "--command"])
        .arg(format!("stty cols {columns} rows 40; '{tool}' {line}"))
        .arg("/dev/null")
        .env("TERM", "xterm-256color")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text, output.status.code().unwrap())
}

/// The lines that were drawn one over the other, without their colours.
fn drawn(text: &str) -> Vec<String> {
    let escapes = regex::Regex::new("\x1b\\[[0-9;?]*[A-Za-z]").unwrap();
    let plain = escapes.replace_all(text, "\r");
    plain.split(['\r', '\n']).map(str::to_owned).collect()
}

#[test]
fn a_terminal_shows_what_is_done_how_far_it_is_and_what_is_known() {
    let environment = TestEnvironment::with_fixture("toy");
    let (text, code) = at_a_terminal(&environment, 80, "run --blocks 8");
    assert_eq!(code, 0, "{text}");
    let lines = drawn(&text);
    let seen = |parts: &[&str]| {
        lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    // A bar with its end in sight, the block and the workload, and the effects as far as they are known.
    assert!(
        seen(&["measure [==", "] ", " % block 4 of 8, ", " s left"]),
        "{lines:#?}"
    );
    assert!(seen(&["block 8 of 8 · requests", "1 +"]), "{lines:#?}");
    // Bars are gone at the end; the report stays, in colour, with the next command.
    let report = text.rsplit("toy-1.0, recipe").next().unwrap();
    assert!(!report.contains("measure ["), "{report}");
    assert!(report.contains("\x1b["), "{report:?}");
    assert!(report.contains("next: `perfquilt report "), "{report}");
    let is_bar = |line: &&String| line.contains(" [") || line.starts_with("building");
    for line in lines.iter().filter(is_bar) {
        assert!(line.chars().count() <= 80, "{line:?}");
    }

    // Nothing but the report, and no bar, for those who ask for quiet.
    let (quiet, code) = at_a_terminal(&environment, 80, "run --quiet");
    assert_eq!(code, 0, "{quiet}");
    assert!(
        !quiet.contains("measure [") && !quiet.contains("block 1 of"),
        "{quiet}"
    );
}

#[test]
fn a_narrow_terminal_is_not_overflowed() {
    let environment = TestEnvironment::with_fixture("toy");
    let (text, code) = at_a_terminal(&environment, 40, "run --blocks 3");
    assert_eq!(code, 0, "{text}");
    let lines = drawn(&text);
    let report = lines
        .iter()
        .skip_while(|line| !line.starts_with("toy-1.0, recipe"));
    let bars = lines.iter().filter(|line| line.starts_with("measure "));
    assert!(
        bars.clone().count() > 2 && report.clone().count() > 10,
        "{lines:#?}"
    );
    for line in bars.chain(report) {
        // Names and commands are not cut.
        let long_name = line.contains(".patch") || line.starts_with("next: ");
        assert!(line.chars().count() <= 40 || long_name, "{line:?}");
    }
}

/// A pager that was quit, or a connection that broke: the exit code stays what it is.
#[test]
fn nobody_has_to_read_standard_error() {
    let environment = TestEnvironment::with_fixture("toy");
    std::fs::remove_file(environment.workspace().join("series")).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = environment.command(&["status"]);
    let status = command.stdout(Stdio::null()).stderr(writer).status();
    assert_eq!(status.unwrap().code(), Some(3));
}
