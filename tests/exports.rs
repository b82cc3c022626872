//! Reports in other tools' forms, results of other tools, and reports into narrow or closed places.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use perfquilt_report::EXPORTERS;
use serde_json::Value;

const OBSERVATIONS: &str = "docs/results/2026-11-21-mariadb-10.11.18.jsonl.gz";
/// Results of a client that timed single operations.
const OPERATIONS: &str = "docs/results/sql-bench-5.2.2.tsv";

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perfquilt"));
    command
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("XDG_CACHE_HOME", std::env::temp_dir().join("no-cache"));
    command
}

fn output(args: &[&str]) -> String {
    let output = command(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The values that the program takes for the last of `args`, from its refusal of another one.
fn possible_values(args: &[&str]) -> Vec<String> {
    let refused = command(args).arg("no-such-value").output().unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    let values = errors.split_once("[possible values: ").unwrap().1;
    let values = values.split_once(']').unwrap().0;
    values.split(", ").map(str::to_owned).collect()
}

/// Every format of a report, with a file that has something to show in it.
fn formats() -> impl Iterator<Item = (&'static str, &'static str)> {
    EXPORTERS.iter().map(|format| match format.name {
        "sql-bench" => ("sql-bench", OPERATIONS),
        name => (name, OBSERVATIONS),
    })
}

#[test]
fn every_format_is_on_the_command_line_and_in_the_documents() {
    let names: Vec<&str> = EXPORTERS.iter().map(|format| format.name).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| format | content | for |").unwrap();
    let table = table.split("\n\n").next().unwrap();
    let (mut first_column, mut helps) = (String::new(), Vec::new());
    for row in table.lines() {
        first_column.push_str(row.split(" | ").next().unwrap());
    }
    for format in EXPORTERS {
        let name = format.name;
        assert!(first_column.contains(&format!("`{name}`")), "{name}");
        helps.push(format!("- {name}:"));
    }
    for command in ["analyse", "report", "run"] {
        assert_eq!(possible_values(&[command, "--format"]), names, "{command}");
        let help = output(&[command, "--help"]);
        // Long lines are wrapped, after the format's name at the earliest.
        let mut lines = help.lines().map(str::trim_start);
        for (format, start) in EXPORTERS.iter().zip(&helps) {
            let line = lines.find(|line| line.starts_with(start)).unwrap();
            let word = format.help.split(' ').next().unwrap();
            assert!(line.contains(word), "{command}: {line}");
        }
    }
}

#[test]
fn every_format_is_written_to_a_file_as_to_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    for (format, input) in formats() {
        let printed = output(&["analyse", input, "--format", format]);
        assert!(!printed.is_empty(), "{format}");
        let file = folder.path().join(format);
        let name = file.to_str().unwrap();
        let quiet = output(&["-q", "analyse", input, "--format", format, "--output", name]);
        assert_eq!(quiet, "", "{format}");
        assert_eq!(printed, std::fs::read_to_string(&file).unwrap(), "{format}");
    }
    let missing = folder.path().join("no/such/report.html");
    let refused = command(&["analyse", OBSERVATIONS, "--format", "html", "--output"])
        .arg(&missing)
        .output()
        .unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(
        errors.contains("cannot write") && errors.contains("report.html"),
        "{errors}"
    );
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    // Nor is a report written over what it is made from.
    let input = folder.path().join("in.jsonl.gz");
    std::fs::copy(OBSERVATIONS, &input).unwrap();
    let before = std::fs::read(&input).unwrap();
    let name = input.to_str().unwrap();
    let refused = command(&["analyse", name, "--output", name])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(std::fs::read(&input).unwrap(), before);
}

/// Reads the first line and goes away, as `head -1` does.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    for (format, input) in formats() {
        let mut child = command(&["analyse", input, "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0u8; 16];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut first).unwrap();
        drop(stdout);
        let finished = child.wait_with_output().unwrap();
        assert!(finished.status.success(), "{format}: {finished:?}");
        assert_eq!(String::from_utf8(finished.stderr).unwrap(), "", "{format}");
    }
}

#[test]
fn forty_columns_and_no_utf_8_show_every_figure() {
    let wide = output(&["analyse", OBSERVATIONS]);
    let narrow = command(&["analyse", OBSERVATIONS])
        .env("COLUMNS", "40")
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    assert!(narrow.status.success());
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    for figure in [
        "+6.50 % ± 0.42",
        "−9.435 % ± 0.023",
        "+11.58 % ± 0.36",
        "includes 0",
    ] {
        assert!(
            wide.contains(figure) && narrow.contains(figure),
            "{figure}: {narrow}"
        );
    }
    for line in narrow.lines() {
        let long = line.chars().count() > 40;
        assert!(!long || !line.trim().contains("  "), "{line}");
    }
}

#[test]
fn results_of_other_tools_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| -> String {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let base = write(
        "base.log",
        crate::common::sysbench::log([1.0, 1.001, 0.999]),
    );
    let patched = write(
        "patched.log",
        crate::common::sysbench::log([0.9, 0.901, 0.899]),
    );
    let text = output(&["analyse", &base, &patched]);
    assert!(text.contains("patched is 11.1"), "{text}");
    assert!(
        text.contains("1 server compared with base: 1 faster"),
        "{text}"
    );
    assert!(text.contains("patched"), "{text}");

    let lines = |ns: [u32; 4]| -> String {
        ns.map(|ns| format!("BenchmarkX-8\t1000\t{ns} ns/op\t16 B/op\n"))
            .concat()
    };
    let old = write("old.txt", lines([1000, 1001, 999, 1000]));
    let new = write("new.txt", lines([1100, 1101, 1099, 1100]));
    let value: Value = serde_json::from_str(&output(&["--json", "analyse", &old, &new])).unwrap();
    assert_eq!(value["total"][0]["verdict"], "slower");
    assert_eq!(value["total"][0]["unpaired"], true);
    assert!(value["warnings"].as_array().is_some_and(|w| !w.is_empty()));

    // What this program writes for benchstat, it reads.
    let again = write(
        "again.txt",
        output(&["analyse", OBSERVATIONS, "--format", "gobench"]),
    );
    let again: Value = serde_json::from_str(&output(&["--json", "analyse", &again])).unwrap();
    assert_eq!(
        again["patches"][0]["name"],
        "0001-string-append-size-json-and-grow-in-proportion.patch"
    );
    assert_eq!(again["workloads"].as_array().unwrap().len(), 6);

    let refused = command(&["analyse", &old]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let refused = command(&["analyse", OBSERVATIONS, &old]).output().unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(
        errors.contains("the files have different formats"),
        "{errors}"
    );
}

#[test]
fn a_flame_graph_is_part_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let graph = folder.path().join("graph.svg");
    std::fs::write(
        &graph,
        "<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>",
    )
    .unwrap();
    let graph = graph.to_str().unwrap();
    let page = output(&[
        "analyse",
        OBSERVATIONS,
        "--format",
        "html",
        "--flame-graph",
        graph,
    ]);
    assert!(page.contains("download=\"flame-graph.svg\""));
    for (args, said) in [
        (["--format", "html", "--flame-graph", "README.md"], "no SVG"),
        (
            ["--format", "html", "--flame-graph", "no.svg"],
            "--flame-graph FILE",
        ),
        (
            ["--format", "markdown", "--flame-graph", graph],
            "hint: --format html",
        ),
    ] {
        let refused = command(&["analyse", OBSERVATIONS])
            .args(args)
            .output()
            .unwrap();
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{errors}");
    }
}

/// Every command and subcommand, as arguments.
fn commands() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(path) = open.pop() {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = output(&args);
        // The program's own commands are in groups before its options.
        let listed = if path.is_empty() {
            help.split("\nOptions:\n").next().unwrap()
        } else {
            let (_, listed) = help.split_once("Commands:\n").unwrap_or_default();
            listed.split("\n\n").next().unwrap()
        };
        for line in listed.lines().filter(|line| line.starts_with("  ")) {
            let name = line.trim().split(' ').next().unwrap();
            if line.starts_with("   ") || name == "help" {
                continue;
            }
            open.push([path.clone(), vec![name.to_owned()]].concat());
        }
        found.push(path);
    }
    found
}

#[test]
fn every_command_has_examples_a_manual_page_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    output(&["-q", "man", "--output", pages.to_str().unwrap()]);
    let commands = commands();
    assert!(commands.len() > 30, "{}", commands.len());
    for path in commands {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = output(&args);
        if !path.is_empty() && !help.contains("Commands:\n") {
            assert!(
                help.contains("Examples:\n  perfquilt "),
                "{path:?} has no examples:\n{help}"
            );
        }
        let page = std::iter::once("perfquilt").chain(path.iter().map(String::as_str));
        let page = pages.join(format!("{}.1", page.collect::<Vec<_>>().join("-")));
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{}", page.display());
    }
    assert!(output(&["man"]).contains(".TH perfquilt"));
    for no_document in [&["man", "--json"][..], &["completions", "bash", "--json"]] {
        let refused = command(no_document).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{no_document:?}");
        assert!(refused.stdout.is_empty(), "{no_document:?}");
    }
    let shells = possible_values(&["completions"]);
    assert!(shells.len() >= 5, "{shells:?}");
    for shell in shells {
        let script = output(&["completions", &shell]);
        assert!(script.contains("PERFQUILT_COMPLETE"), "{shell}");
    }
    let script = folder.path().join("perfquilt.bash");
    std::fs::write(&script, output(&["completions", "bash"])).unwrap();
    let checked = Command::new("bash")
        .arg("-n")
        .arg(&script)
        .status()
        .unwrap();
    assert!(checked.success());
}
