//! `perfquilt profile` on the toy server: real callgrind, real debug information.

use crate::common::TestEnvironment;
use serde_json::Value;

const CONFIG: &str = "bench-config/perfquilt.toml";

fn with_debug_information() -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        CONFIG,
        "[\"make\", \"-j{jobs}\"]",
        "[\"make\", \"-j{jobs}\", \"CFLAGS=-O2 -g\"]",
    );
    environment
}

#[test]
fn the_function_that_a_patch_made_cheaper_is_named() {
    let environment = with_debug_information();
    let profile = environment.run(&[
        "profile",
        "0",
        "1",
        "--runs",
        "2",
        "--transactions",
        "100",
        "--annotate",
        "work",
        "--callers",
        "main",
        "--flame-graph",
        "flames.svg",
    ]);
    assert_eq!(profile.code, Some(0), "{}", profile.stderr);
    let out = &profile.stdout;
    // The loop was inlined; its cost is its own all the same, and it is the whole difference.
    let row = out.lines().find(|line| line.starts_with("work (inlined)"));
    let row = row.unwrap_or_else(|| panic!("{out}"));
    assert!(row.contains('−'), "{row}");
    assert!(out.contains("−7") && out.contains("work.h"), "{out}");
    assert!(out.contains("state = state * 1664525u"), "{out}");
    let svg = std::fs::read_to_string(environment.workspace().join("flames.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.contains("main"), "{svg}");
    assert!(svg.contains("<title>work ("), "{svg}");

    let json = environment.run(&[
        "profile",
        "0",
        "1",
        "--runs",
        "2",
        "--transactions",
        "100",
        "--annotate",
        "work",
        "--callers",
        "read",
        "--top",
        "1",
        "--json",
    ]);
    assert_eq!(json.code, Some(0), "{}", json.stderr);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["functions"].as_array().unwrap().len(), 1);
    assert_eq!(json["callers"][0]["caller"], "main");
    let lines = json["lines"]["before"].as_array().unwrap();
    let loops = |line: &Value| {
        line["text"]
            .as_str()
            .is_some_and(|t| t.contains("1664525u"))
    };
    assert!(lines.iter().any(loops), "{lines:#?}");
    let work = &json["functions"][0];
    assert_eq!(
        (work["name"].as_str(), work["inlined"].as_bool()),
        (Some("work"), Some(true))
    );
    let part = |key: &str| work["own"][key].as_f64().unwrap();
    assert!(
        (part("after") / part("before") - 0.25).abs() < 0.01,
        "{work}"
    );
    environment.wait_until_no_process_is_left();
}

#[test]
fn a_profile_waits_for_its_turn() {
    let environment = with_debug_information();
    let profile = || environment.run(&["profile", "0", "1", "--runs", "1", "--transactions", "10"]);
    let first = profile();
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let note = "another perfquilt measures on this machine";
    let entries = std::fs::read_dir(environment.cache()).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let lock = paths.find(|path| path.to_string_lossy().contains("/measuring-"));
    let held = std::fs::File::open(lock.expect("the profile took no lock")).unwrap();
    held.lock().unwrap();
    let second = std::thread::scope(|scope| {
        let waiting = scope.spawn(profile);
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert!(!waiting.is_finished());
        held.unlock().unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    assert!(second.stderr.contains(note), "{}", second.stderr);
}

#[test]
fn what_cannot_be_compared_is_told() {
    let environment = TestEnvironment::with_fixture("toy");
    let refused = |arguments: &[&str], words: &str| {
        let finished = environment.run(arguments);
        assert_eq!(finished.code, Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    };
    refused(&["profile", "0", "nine"], "neither a point");
    refused(&["profile", "0", "9"], "9");
    refused(&["profile", "0", "2.0:1"], "there is no release `2.0`");
    refused(
        &["profile", "0", "1", "--workload", "request"],
        "did you mean `requests`?",
    );
    refused(
        &["profile", "0", "upstream"],
        "laid out as the recipe's `install`",
    );
    let callers = [
        "profile",
        "0",
        "1",
        "--runs",
        "1",
        "--transactions",
        "10",
        "--callers",
        "mian",
    ];
    refused(&callers, "did you mean `main`?");
    // What was measured is shown all the same.
    let shown = environment.run(&callers);
    assert!(shown.stdout.contains("main"), "{}", shown.stdout);
    refused(
        &["profile", "0", "1", "--flame-graph", "nowhere/flames.svg"],
        "cannot write nowhere/flames.svg",
    );
    refused(&["profile", "0", "1", "--top", "0"], "--top");
    environment.wait_until_no_process_is_left();
}

#[test]
fn time_is_sampled_by_function_where_perf_may() {
    let environment = with_debug_information();
    let args = [
        "profile", "0", "1", "--source", "perf", "--runs", "2", "--json",
    ];
    let profile = environment.run(&args);
    if perfquilt_bench::meter::samples::SamplingEvent::detect().is_err() {
        assert_eq!(profile.code, Some(2), "{}", profile.stderr);
        assert!(profile.stderr.contains("perf"), "{}", profile.stderr);
        return;
    }
    assert_eq!(profile.code, Some(0), "{}", profile.stderr);
    let difference: Value = serde_json::from_str(&profile.stdout).unwrap();
    assert_eq!(difference["source"], "perf");
    let unit = difference["unit"].as_str().unwrap();
    assert!(["nanoseconds", "cycles"].contains(&unit), "{unit}");
    // The patch leaves a quarter of the rounds; the loop was inlined.
    let functions = difference["functions"].as_array().unwrap();
    let work = functions.iter().find(|f| f["name"] == "work").unwrap();
    assert_eq!(work["inlined"], true, "{work}");
    let share =
        work["own"]["before"].as_f64().unwrap() / difference["total"]["before"].as_f64().unwrap();
    assert!(share > 0.5, "{work} of {}", difference["total"]);
    let part = |key: &str| work["own"][key].as_f64().unwrap();
    assert!(part("after") < 0.6 * part("before"), "{work}");

    let callers = environment.run(&["profile", "0", "1", "--source", "perf", "--callers", "main"]);
    assert_eq!(callers.code, Some(2), "{}", callers.stderr);
    assert!(
        callers.stderr.contains("--source callgrind"),
        "{}",
        callers.stderr
    );
    environment.wait_until_no_process_is_left();
}
