//! Forecasts, budgets and lanes on the toy server.

use crate::common::TestEnvironment;
use serde_json::Value;

fn document(environment: &TestEnvironment, arguments: &[&str]) -> Value {
    let finished = environment.run(arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn a_dry_run_forecasts_and_measures_nothing() {
    let environment = TestEnvironment::with_fixture("toy");
    let shown = environment.run(&["run", "--dry-run"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for words in [
        "to build",
        "servers",
        "memory",
        "blocks",
        "time",
        "a guess: no run has timed",
        "a guess: no run tells",
    ] {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.stdout);
    }
    assert!(
        shown.stdout.lines().all(|line| line.chars().count() <= 80),
        "{}",
        shown.stdout
    );
    assert!(
        !environment
            .workspace()
            .join(".perfquilt/results.db")
            .exists()
    );
    let forecast = document(
        &environment,
        &["run", "--dry-run", "--json", "--budget", "1h"],
    );
    let forecast = &forecast["forecast"];
    assert_eq!(forecast["lanes"], 1);
    let seconds = forecast["seconds"].as_f64().unwrap();
    assert!(seconds > 1800.0 && seconds <= 3600.0, "{forecast:#}");
    let before = forecast["blocks"].as_u64().unwrap();
    let half = document(
        &environment,
        &["run", "--dry-run", "--json", "--budget", "30m"],
    );
    assert!(half["forecast"]["blocks"].as_u64().unwrap() < before);
    // With an experiment of the same harness, its noise is the basis.
    let ran = environment.run(&["run"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("forecast: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("(a guess: "), "{}", ran.stderr);
    let shown = environment.run(&["run", "--dry-run"]).stdout;
    assert!(shown.contains("nothing to measure"), "{shown}");
    let shown = environment.run(&["run", "--dry-run", "--fresh"]).stdout;
    assert!(
        !shown.contains("guess") && !shown.contains("nothing"),
        "{shown}"
    );
    let known = document(&environment, &["run", "--dry-run", "--json", "--fresh"]);
    assert_eq!(
        known["forecast"]["unbuilt"],
        serde_json::json!(["0", "1", "2"])
    );
    assert_eq!(known["forecast"]["guessed_seconds"], false);
    assert_eq!(known["forecast"]["is_measured"], false);
    // Only the build tells that a comment has no server of its own.
    assert_eq!(known["forecast"]["servers"], 4);
    assert!(
        known["forecast"]["noise_source"]["experiment"].is_string(),
        "{known:#}"
    );
    assert!(known["forecast"]["memory"].is_number(), "{known:#}");
}

#[test]
fn the_status_tells_what_to_do_next() {
    let environment = TestEnvironment::with_fixture("toy");
    let next = |args: &[&str]| {
        let shown = environment.run(args);
        assert_eq!(shown.code, Some(0), "{}", shown.stderr);
        let line = shown.stdout.lines().last().unwrap();
        line.strip_prefix("next: ").unwrap().to_owned()
    };
    assert_eq!(
        next(&["status"]),
        "`perfquilt upstream fetch` imports the release"
    );
    assert_eq!(environment.run(&["upstream", "fetch"]).code, Some(0));
    assert_eq!(
        next(&["status"]),
        "`perfquilt run` builds 3 points and measures all points"
    );
    assert_eq!(environment.run(&["run"]).code, Some(0));
    // Without a command too.
    assert_eq!(
        next(&[]),
        "`perfquilt report` shows the effects; every point is measured"
    );
    // The latest experiment is of a shorter series, although all points of this one are measured.
    let series = std::fs::read_to_string(environment.workspace().join("series")).unwrap();
    environment.write("series", "0001-fewer-rounds.patch\n");
    assert_eq!(
        environment.run(&["run", "--fresh", "--blocks", "2"]).code,
        Some(0)
    );
    environment.write("series", &series);
    assert_eq!(
        next(&["status"]),
        "`perfquilt run` compares the points of this series, which are all measured"
    );
    for patch in ["0001-fewer-rounds", "0002-comment-only"] {
        environment.replace(&format!("patches/{patch}.patch"), "25000u", "20000u");
    }
    assert_eq!(
        next(&["status"]),
        "`perfquilt run` builds 2 points and measures points 1, 2"
    );
    let document = document(&environment, &["status", "--json"]);
    assert_eq!(
        document["next"],
        serde_json::json!({"step": "run", "points": ["1", "2"], "unbuilt": 2})
    );
    // A branch with work that the series does not have.
    assert_eq!(environment.run(&["edit"]).code, Some(0));
    let branch = environment.workspace().join(".perfquilt/edit/toy-1.0");
    let file = branch.join("work.h");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "/* end */\n").unwrap();
    let committed = environment
        .hermetic("git", &branch)
        .args(["-c", "user.name=a", "-c", "user.email=a@example.invalid"])
        .args(["commit", "--quiet", "-a", "-m", "work: an end"])
        .status()
        .unwrap();
    assert!(committed.success());
    assert_eq!(
        next(&["status"]),
        "`perfquilt refresh --release 1.0` writes the branch back to the series"
    );
    let posted = environment.run(&["post", "--dry-run"]);
    assert_eq!(posted.code, Some(2));
    assert!(
        posted
            .stderr
            .contains("has a commit that is not in the series"),
        "{}",
        posted.stderr
    );
    let posted = environment.run(&["post", "--dry-run", "--series-as-written"]);
    assert_eq!(posted.code, Some(0), "{}", posted.stderr);
    // Where there is no workspace, a script that forgot the command must not go on.
    let elsewhere = environment.workspace();
    let elsewhere = elsewhere.parent().unwrap().join("home");
    let shown = environment
        .hermetic(env!("CARGO_BIN_EXE_perfquilt"), &elsewhere)
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(2));
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("perfquilt init DIR"), "{text}");
}

#[test]
fn a_budget_ends_the_experiment_and_is_not_used_twice() {
    let environment = TestEnvironment::with_fixture("toy");
    let built = environment.run(&["build"]);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let arguments = ["run", "--json", "--budget", "8s"];
    let first = document(&environment, &arguments);
    let progress = &first["progress"][0];
    assert_eq!(progress["ended"], true, "{progress}");
    assert_eq!(progress["done"], progress["planned"], "{progress}");
    assert!(progress["done"].as_u64().unwrap() >= 2, "{progress}");
    let interval = &first["patches"][0]["effects"][0]["interval"];
    assert_eq!(interval, "fixed", "{first:#}");
    let again = environment.run(&arguments);
    assert!(!crate::common::measures(&again.stderr), "{}", again.stderr);
    // Two blocks take longer than this.
    let config = "bench-config/perfquilt.toml";
    environment.replace(config, "block_seconds = 0.3", "block_seconds = 3.0");
    let short = environment.run(&["run", "--dry-run", "--budget", "1s"]);
    assert_eq!(short.code, Some(0), "{}", short.stderr);
    assert!(short.stderr.contains("[PQ0789]"), "{}", short.stderr);
    let refused = environment.run(&["run", "--budget", "soon"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("durations"), "{}", refused.stderr);
}

#[test]
fn a_series_without_patches_is_not_measured() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("series", "");
    let shown = environment.run(&["run", "--dry-run"]);
    let none = "blocks   none: the series has no patches";
    assert!(shown.stdout.contains(none), "{}", shown.stdout);
    let forecast = document(&environment, &["run", "--dry-run", "--json"]);
    assert_eq!(forecast["forecast"]["seconds"], 0.0);
    let ran = document(&environment, &["run", "--json"]);
    assert_eq!(ran["patches"], serde_json::json!([]));
}

#[test]
fn lanes_are_checked_and_recorded() {
    let environment = TestEnvironment::with_fixture("toy");
    let config = "bench-config/perfquilt.toml";
    let of_fixture = std::fs::read_to_string(environment.workspace().join(config)).unwrap();
    let set = |lanes: &str| {
        let text = of_fixture.replace("lanes = 1\n", &format!("lanes = {lanes}\n"));
        environment.write(config, &text);
    };
    for (value, words) in [("0", "number from 1"), ("\"many\"", "`auto`")] {
        set(value);
        let refused = environment.run(&["run"]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    set("4000");
    let built = environment.run(&["build"]);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let forecast = environment.run(&["run", "--dry-run"]);
    assert_eq!(forecast.code, Some(2), "{}", forecast.stdout);
    let refused = environment.run(&["run"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("more cores"), "{}", refused.stderr);
    if perfquilt_bench::workload::lanes(1).len() < 2 {
        return;
    }
    set("2");
    let ran = document(&environment, &["run", "--json", "--blocks", "4"]);
    assert!(
        ran["machine"]["lanes"].as_str().unwrap().starts_with("2 "),
        "{ran:#}"
    );
    let lines = environment.run(&["report", "--format", "jsonl"]).stdout;
    let lane =
        |line: &str| -> Value { serde_json::from_str::<Value>(line).unwrap()["lane"].clone() };
    let lanes: Vec<Value> = lines.lines().skip(1).map(lane).collect();
    assert!(
        lanes.contains(&0.into()) && lanes.contains(&1.into()),
        "{lanes:?}"
    );
    environment.wait_until_no_process_is_left();
}
