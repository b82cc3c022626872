//! The terminal of a person while the main job runs: `script` gives the tool a real one.

use std::process::Stdio;

use crate::common::TestEnvironment;

/// Runs the tool in a terminal of `columns`; everything that was written to it, and the exit code.
fn at_a_terminal(environment: &TestEnvironment, columns: usize, line: &str) -> (String, i32) {
    at_a_terminal_of(environment, (columns, 40), "", line)
}

/// Runs the tool like [`at_a_terminal`], in one of `columns` and `rows`, and with further variables.
fn at_a_terminal_of(
    environment: &TestEnvironment,
    (columns, rows): (usize, usize),
    variables: &str,
    line: &str,
) -> (String, i32) {
    let tool = env!("CARGO_BIN_EXE_perfquilt");
    let output = environment
        .hermetic("script", &environment.workspace())
        .args(["--quiet", "--return", "--flush", "--command"])
        .arg(format!(
            "stty cols {columns} rows {rows}; {variables} '{tool}' {line}"
        ))
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
    // The last block shows the effect with the interval that the report has.
    let figure = regex::Regex::new(r"[+−][0-9.]+ % (± [0-9.]+|\[[^\]]+\])").unwrap();
    let row = lines.iter().rfind(|line| line.contains("0001-fewer"));
    let row = row.unwrap_or_else(|| panic!("{lines:#?}"));
    let reported = figure.find(row).unwrap_or_else(|| panic!("{row}")).as_str();
    let last = format!("1 {reported}");
    assert!(seen(&["block 8 of 8 · requests", &last]), "{lines:#?}");
    // Bars are gone at the end; the report stays, in colour, with the next command.
    let report = text.rsplit("toy-1.0, recipe").next().unwrap();
    assert!(!report.contains("measure ["), "{report}");
    assert!(report.contains("\x1b["), "{report:?}");
    assert!(report.contains("next: `perfquilt report "), "{report}");
    let is_bar = |line: &&String| {
        ["[=", "[>", "[ "].iter().any(|bar| line.contains(bar)) || line.starts_with("building")
    };
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
fn a_log_receives_three_lines_and_then_one_a_minute_about_the_effects_so_far() {
    let environment = TestEnvironment::with_fixture("toy");
    let mut run = environment.command(&["run", "--blocks", "5"]);
    let output = run
        .env_remove("PERFQUILT_INTERIM_SECONDS")
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let interim = log.lines().filter(|line| line.contains(" of 5 · "));
    assert_eq!(interim.count(), 3, "{log}");
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

#[test]
fn a_long_report_goes_through_the_pager() {
    let environment = TestEnvironment::with_fixture("toy");
    assert_eq!(environment.run(&["run", "--blocks", "3"]).code, Some(0));
    let shown = |rows: usize, variables: &str, line: &str| {
        let (text, code) = at_a_terminal_of(&environment, (80, rows), variables, line);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("the whole series"), "{text}");
        text.lines()
            .filter(|line| line.starts_with("paged:"))
            .count()
    };
    let pager = "PAGER='sed s/^/paged:/'";
    assert!(shown(5, pager, "history") >= 5);
    // A pager that reads keys is in the foreground of the terminal, and perfquilt afterwards.
    let foreground = "PAGER='ps -o stat= -p $$ | grep -q + && sed s/^/paged:/ || cat'";
    assert!(
        shown(
            5,
            foreground,
            "history; perfquilt_after=$(ps -o stat= -p $$); echo $perfquilt_after | grep -q +"
        ) >= 5
    );
    assert_eq!(shown(40, pager, "history"), 0);
    assert_eq!(shown(5, pager, "history --no-pager"), 0);
    assert_eq!(shown(5, pager, "history | cat"), 0);
    for none in [
        "PAGER=",
        "PAGER=cat",
        "PAGER=no-such-program",
        "PERFQUILT_PAGER=cat PAGER=false",
    ] {
        assert_eq!(shown(5, none, "history"), 0, "{none}");
    }
}

/// On a terminal of 24 lines, the last screen has the answer and the next command.
#[test]
fn the_answer_is_on_the_last_screen() {
    let environment = TestEnvironment::with_fixture("toy");
    let last_screen = |text: &str| -> Vec<String> {
        let escapes = regex::Regex::new("\x1b\\[[0-9;?]*[A-Za-z]").unwrap();
        let plain = escapes.replace_all(text, "").into_owned();
        let lines: Vec<String> = plain
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines[lines.len().saturating_sub(24)..].to_vec()
    };
    let answered = |lines: &[String]| {
        let at = |start: &str| lines.iter().rposition(|line| line.starts_with(start));
        let (verdict, tally, next) = (at("The series "), at("2 patches: "), at("next: "));
        assert!(
            verdict.is_some() && verdict < tally && tally < next,
            "{lines:#?}"
        );
    };
    let run = "run --blocks 3 --effects alone,without";
    let (text, code) = at_a_terminal_of(&environment, (80, 24), "", run);
    assert_eq!(code, 0, "{text}");
    answered(&last_screen(&text));
    let report = text.rsplit("toy-1.0, recipe").next().unwrap();
    let escapes = regex::Regex::new("\x1b\\[[0-9;?]*[A-Za-z]").unwrap();
    for line in escapes.replace_all(report, "").lines() {
        let fits = line.trim_end().chars().count() <= 80;
        assert!(fits || line.starts_with("next: "), "{line}");
    }
    // The pager of a report begins at its end, that of a history at its top.
    let pager = "PAGER='cat; echo options $LESS #'";
    let (text, code) = at_a_terminal_of(&environment, (80, 9), pager, "report --details");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("options -FRX +G"), "{text}");
    answered(&last_screen(&text));
    let (text, _) = at_a_terminal_of(&environment, (80, 5), pager, "history");
    assert!(text.contains("options -FRX\r"), "{text}");
}

/// Returns what `shell` is offered for the last of `words`.
fn completed(environment: &TestEnvironment, shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = environment.command(&[]);
    command
        .env("PERFQUILT_COMPLETE", shell)
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .args(["--", "perfquilt"])
        .args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // zsh and fish get a description with each.
    let name = |line: &str| line.split([':', '\t']).next().unwrap().to_owned();
    text.lines().map(name).collect()
}

#[test]
fn names_of_the_workspace_complete_in_every_shell() {
    let environment = TestEnvironment::with_fixture("toy");
    let measured = environment.run(&["run"]);
    assert_eq!(measured.code, Some(0), "{}", measured.stderr);
    let experiment = "toy-1.0-make";
    environment.replace(
        "series",
        "0002-comment-only.patch",
        "0002-comment-only.patch\n$(evil).patch",
    );
    std::fs::copy(
        environment
            .workspace()
            .join("patches/0002-comment-only.patch"),
        environment.workspace().join("patches/$(evil).patch"),
    )
    .unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let offered = |words: &[&str]| completed(&environment, shell, words);
        assert_eq!(offered(&["run", "--preset", ""]), ["quick"], "{shell}");
        assert_eq!(offered(&["run", "--workload", "re"]), ["requests"]);
        assert_eq!(offered(&["build", "--recipe", ""]), ["make"]);
        assert_eq!(offered(&["status", "--release", ""]), ["1.0"]);
        let patches = offered(&["edit", "0"]);
        assert_eq!(
            patches,
            ["0001-fewer-rounds.patch", "0002-comment-only.patch"]
        );
        assert!(
            !offered(&["edit", ""])
                .iter()
                .any(|name| name.contains("evil"))
        );
        assert_eq!(offered(&["report", "toy"]), [experiment]);
        assert_eq!(offered(&["history", experiment, "toy"]), [experiment]);
        assert_eq!(offered(&["repo"]), ["report"]);
        let elsewhere = offered(&["-C", "/nowhere", "run", "--preset", ""]);
        assert!(!elsewhere.contains(&"quick".to_owned()), "{elsewhere:?}");
    }
}
