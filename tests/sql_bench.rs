//! Operations that a client times apart: tables of old, observation files, and a run on the toy server.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::common::TestEnvironment;
use assert_cmd::Command;
use serde_json::Value;

fn published() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/sql-bench-5.2.2.tsv")
}

fn analyse(file: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("perfquilt")
        .unwrap()
        .current_dir(file.parent().unwrap())
        .env("COLUMNS", "80")
        .env("NO_COLOR", "1")
        .arg("analyse")
        .arg(file.file_name().unwrap())
        .args(arguments)
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn a_published_table_comes_out_as_it_went_in_and_shows_what_it_proves() {
    let (code, out, err) = analyse(&published(), &["--format", "sql-bench"]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!("published", out);
    // Every figure of the file, in its row.
    let table = std::fs::read_to_string(published()).unwrap();
    let mut rows = out.lines().skip_while(|line| !line.starts_with("ATIS "));
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let row = rows.find(|row| !row.starts_with('─')).unwrap();
        let figures: Vec<&str> = row.split_whitespace().rev().take(4).collect();
        let expected: Vec<&str> = fields[3..].iter().rev().copied().collect();
        assert_eq!(figures, expected, "{row}");
        assert!(row.starts_with(fields[1]), "{row}");
    }
}

#[test]
fn the_table_survives_a_detour_through_observations() {
    let (_, direct, _) = analyse(&published(), &["--json"]);
    let (_, observations, _) = analyse(&published(), &["--format", "jsonl"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("observations.jsonl");
    std::fs::write(&file, observations).unwrap();
    let (code, again, err) = analyse(&file, &["--json"]);
    assert_eq!(code, 0, "{err}");
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(parse(&direct), parse(&again));
}

/// A table of an operation that takes 100 s on the base: two of `old`, two of `new`.
fn table_of_servers(folder: &Path) -> PathBuf {
    let file = folder.join("servers.tsv");
    let text = "level\tname\tcommands\tbase_seconds\told\tnew\told\tnew\n\
        test\tselect\t\t100.00\t0.800\t0.900\t0.800\t0.900\n\
        operation\tcount\t100\t100.00\t0.800\t0.900\t0.800\t0.900\n\
        total\tTOTALS\t\t100.00\t0.800\t0.900\t0.800\t0.900\n";
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn every_server_of_a_table_is_judged_against_its_first_column() {
    let folder = tempfile::tempdir().unwrap();
    let file = table_of_servers(folder.path());
    let (code, json, err) = analyse(&file, &["--json"]);
    assert_eq!(code, 0, "{err}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["compared_with"], "base");
    assert_eq!(json["base"], "the base");
    let servers = json["patches"].as_array().unwrap();
    // `new` against `old` would be slower: 0.8 / 0.9.
    for (server, (name, relative)) in servers.iter().zip([("old", 0.8), ("new", 0.9)]) {
        assert_eq!(server["name"], name);
        let effects = server["effects"].as_array().unwrap();
        assert!(!effects.is_empty(), "{server}");
        for effect in effects {
            let estimate = effect["estimate"].as_f64().unwrap();
            assert!((estimate - (1.0 / relative - 1.0)).abs() < 1e-3, "{effect}");
        }
    }
    assert_eq!(servers.len(), 2);
    for format in ["terminal", "markdown", "html", "sql-bench"] {
        let (code, out, err) = analyse(&file, &["--format", format]);
        assert_eq!(code, 0, "{format}: {err}");
        assert!(out.contains("the base"), "{format}: {out}");
        let (_, body) = out.split_once("</style>").unwrap_or(("", &out));
        for word in ["series", "patch"] {
            assert!(!body.contains(word), "{format} speaks of {word}: {out}");
        }
        if format == "sql-bench" {
            insta::assert_snapshot!("servers", out);
        }
    }
}

/// Observations of one program with two operations over six blocks: `join`, a tenth faster with the
/// patch, and `noise`, which varies by half.
fn observations() -> String {
    let mut text = String::from(
        r#"{"schema":1,"experiment":"e","series":["0001-a.patch"],"release":"server-1.0","machine":{},"harness":"h"}"#,
    );
    text.push('\n');
    let mut line = |block: u32, point: u32, name: &str, value: f64, n: u32| {
        let _ = writeln!(
            text,
            r#"{{"schema":1,"experiment":"e","block":{block},"order":{point},"point":"{point}","layout":0,"workload":"{name}","meter":"time","unit":"ns/txn","value":{value},"n":{n}}}"#
        );
    };
    for block in 0..6 {
        let drift = 1.0 + 0.05 * f64::from(block);
        for point in 0..2 {
            let faster = if point == 1 { 0.9 } else { 1.0 };
            let wobble = 1.0 + 0.001 * f64::from((block * 7 + point * 5) % 4);
            let noise = 1.0 + 0.5 * f64::from((block * 5 + point * 3) % 4);
            line(block, point, "program", 2e9 * drift * wobble, 1);
            line(
                block,
                point,
                "program/join",
                4e6 * drift * faster * wobble,
                100,
            );
            line(block, point, "program/noise", 1e6 * drift * noise, 30);
        }
    }
    text
}

#[test]
fn operations_are_judged_apart_from_workloads() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("observations.jsonl");
    std::fs::write(&file, observations()).unwrap();
    let (code, out, err) = analyse(&file, &["--format", "sql-bench"]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!("operations", out);
    let (_, json, _) = analyse(&file, &["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    // They are no workloads: the suite is the program alone.
    assert_eq!(json["workloads"], serde_json::json!(["program"]));
    let kinds: Vec<&str> = json["patches"][0]["effects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|effect| effect["workload"].as_str().unwrap())
        .collect();
    assert!(
        kinds.iter().all(|workload| *workload == "program"),
        "{kinds:?}"
    );
    let join = &json["operations"][0];
    assert_eq!(join["operation"], "join");
    let effect = &join["effects"][0];
    assert!(
        (effect["estimate"].as_f64().unwrap() - 1.0 / 9.0).abs() < 0.002,
        "{effect}"
    );
    assert_eq!(effect["verdict"], "faster");
    let cost = json["costs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|cost| cost["workload"] == "program/join" && cost["point"] == "0")
        .unwrap();
    assert_eq!(cost["transactions"], 100.0);
    assert_eq!(json["left_out"], serde_json::json!([]));
}

#[test]
fn an_experiment_without_operations_has_no_such_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("observations.jsonl");
    let text: String = observations()
        .lines()
        .filter(|line| !line.contains("program/"))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&file, text).unwrap();
    let (code, _, err) = analyse(&file, &["--format", "sql-bench"]);
    assert_eq!(code, 2);
    assert!(err.contains("no client of this experiment"), "{err}");
}

#[test]
fn a_client_that_times_operations_is_read_and_measured() {
    let environment = TestEnvironment::with_fixture("toy");
    let workload = "bench-config/workloads/requests.toml";
    environment.replace(
        workload,
        "transactions = 100",
        "operations = 'Time for (?P<name>\\S+) \\((?P<commands>\\d+)\\): (?P<seconds>\\S+) secs'\ntransactions = 1",
    );
    // Whatever the toy's client does, then two lines as sql-bench has them.
    let text = std::fs::read_to_string(environment.workspace().join(workload)).unwrap();
    let run = text.lines().find(|line| line.starts_with("run =")).unwrap();
    let told =
        r#"printf 'Time for get (10): 0.%s secs\nTime for put (5): 0.25 secs\n' "$(date +%N)""#;
    let words: Vec<String> = toml_words(run);
    let both = format!(
        "run = [\"sh\", \"-c\", '''\"$@\" && {told}''', \"client\", {}]",
        words
            .iter()
            .map(|word| format!("{word:?}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    environment.replace(workload, run, &both);
    let report = environment.run(&["run", "--blocks", "3", "--format", "sql-bench"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    for row in ["get (10)", "put (5)", "TOTALS"] {
        assert!(report.stdout.contains(row), "{}", report.stdout);
    }
    // The error about a client without any such line has its output.
    environment.replace(workload, "Time for get", "Took for get");
    environment.replace(workload, "Time for put", "Took for put");
    let report = environment.run(&["run", "--blocks", "3"]);
    assert_eq!(report.code, Some(5), "{}", report.stderr);
    assert!(
        report
            .stderr
            .contains("no operation in the client's output"),
        "{}",
        report.stderr
    );
    environment.wait_until_no_process_is_left();
}

/// The words of a TOML line `key = ["…", …]`.
fn toml_words(line: &str) -> Vec<String> {
    let table: toml::Table = line.parse().unwrap();
    let words = table.values().next().unwrap().as_array().unwrap();
    words
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}
