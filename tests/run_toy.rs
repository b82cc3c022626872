//! The main job on the toy server: fast, with a real compiler, real processes and known answers.

use std::path::Path;

use crate::common::{Finished, TestEnvironment};
use rustix::process::Signal;
use serde_json::Value;

fn document(environment: &TestEnvironment, args: &[&str]) -> Value {
    let finished = environment.run(args);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap()
}

fn in_order(document: &Value, patch: usize) -> &Value {
    document["patches"][patch]["effects"]
        .as_array()
        .unwrap()
        .iter()
        .find(|effect| effect["kind"] == "in_order" && effect["meter"] == "time")
        .unwrap_or_else(|| panic!("patch {patch} has no effect: {document:#}"))
}

#[test]
fn the_main_job() {
    let environment = TestEnvironment::with_fixture("toy");
    let first = document(&environment, &["run", "--json"]);
    let faster = in_order(&first, 0);
    assert_eq!(faster["verdict"], "faster", "{first:#}");
    let estimate = faster["estimate"].as_f64().unwrap();
    assert!((0.5..5.0).contains(&estimate), "{estimate}");

    // The second patch changes a comment: the same binary, exactly nothing, not measured.
    let comment = in_order(&first, 1);
    assert_eq!(comment["estimate"].as_f64(), Some(0.0));
    assert_eq!(comment["verdict"], "no_effect");

    // Nothing changed: nothing is built or measured again, and the numbers are the same.
    let finished = environment.run(&["run", "--json"]);
    for work in ["importing", "building", "block"] {
        assert!(!finished.stderr.contains(work), "{}", finished.stderr);
    }
    let again: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(again["patches"], first["patches"]);
    environment.wait_until_no_process_is_left();

    // Any report can be made again from what was stored, and from an exported file.
    let markdown = environment.run(&["report", "--format", "markdown"]);
    assert!(
        markdown.stdout.contains("a quarter of the rounds"),
        "{}",
        markdown.stdout
    );
    let lines = environment.run(&["report", "--format", "jsonl"]);
    environment.write("observations.jsonl", &lines.stdout);
    let analysed = document(&environment, &["analyse", "observations.jsonl", "--json"]);
    assert_eq!(in_order(&analysed, 0)["estimate"], faster["estimate"]);
}

#[test]
fn a_comment_that_moves_lines_of_code_says_so() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        "upstream/toyd.c",
        "\"toyd is ready\\n\"",
        "\"line %d is ready\\n\", __LINE__",
    );
    let patch = |line: &str| {
        format!(
            "work: say more\n\n--- a/toyd.c\n+++ b/toyd.c\n@@ -1,3 +1,4 @@\n+{line}\n /* A server that does some arithmetic for every byte it is sent and answers with one byte. */\n #include <signal.h>\n #include <stdio.h>\n"
        )
    };
    let note = |line: &str| {
        environment.write("patches/0002-comment-only.patch", patch(line));
        let finished = environment.run(&["run", "--blocks", "2"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("differs only in line numbers (`__LINE__`)")
    };
    assert!(note("/* One more line. */"));
    let document = document(&environment, &["report", "--json"]);
    assert_eq!(document["patches"][1]["line_numbers"], true);
    assert_eq!(document["patches"][0].get("line_numbers"), None);
    // A line of code moves the same lines.
    assert!(!note("const int more = 1;"));
}

#[test]
fn a_patch_that_no_server_has_is_not_called_harmless() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("upstream/win/poll.c", "int poll_all(void) { return 0; }\n");
    environment.replace(
        "upstream/work.h",
        "static unsigned work",
        "#ifdef WIDE\n#define STEP 2\n#endif\nstatic unsigned work",
    );
    let patch = |path: &str, old: &str, new: &str| {
        format!("work: more\n\n--- a/{path}\n+++ b/{path}\n@@ -{old}\n+{new}\n")
    };
    environment.write(
        "series",
        "0001-win.patch\n0002-wide.patch\n0003-both.patch\n",
    );
    environment.write(
        "patches/0001-win.patch",
        patch(
            "win/poll.c",
            "1 +1 @@\n-int poll_all(void) { return 0; }",
            "int poll_all(void) { return 1; }",
        ),
    );
    environment.write(
        "patches/0002-wide.patch",
        patch("work.h", "5 +5 @@\n-#define STEP 2", "#define STEP 4"),
    );
    environment.write(
        "patches/0003-both.patch",
        patch(
            "win/poll.c",
            "1 +1 @@\n-int poll_all(void) { return 1; }",
            "int poll_all(void) { return 2; }",
        ) + &patch(
            "work.h",
            "2 +2 @@\n-#define ROUNDS 100000u",
            "#define ROUNDS 30000u",
        )["work: more\n\n".len()..],
    );
    let finished = environment.run(&["run", "--blocks", "3"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let text = finished
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(text.contains("not in the server"), "{text}");
    assert!(
        text.contains("the build does not read win/poll.c"),
        "{text}"
    );
    assert!(text.contains("the recipe leaves this code out"), "{text}");
    assert!(!text.contains("no effect"), "{text}");
    let document = document(&environment, &["report", "--json"]);
    let patches = &document["patches"];
    assert_eq!(patches[0]["not_in_server"], true, "{patches:#}");
    assert_eq!(patches[0]["unread"], serde_json::json!(["win/poll.c"]));
    assert_eq!(patches[1]["not_in_server"], true);
    assert_eq!(patches[1].get("unread"), None);
    assert_eq!(patches[2].get("not_in_server"), None);
    assert_eq!(patches[2]["unread"], serde_json::json!(["win/poll.c"]));
    assert_eq!(in_order(&document, 2)["verdict"], "faster");
}

/// Names of the points whose observations an experiment stored itself.
fn points_measured(environment: &TestEnvironment, experiment: &str) -> Vec<String> {
    let finished = environment.run(&["report", experiment, "--format", "jsonl"]);
    let mut points: Vec<String> = finished
        .stdout
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["experiment"] == experiment)
        .map(|line| line["point"].as_str().unwrap().to_owned())
        .collect();
    points.sort();
    points.dedup();
    points
}

#[test]
fn what_an_earlier_experiment_knows_is_reused() {
    let environment = TestEnvironment::with_fixture("toy");
    let to = |from: u32, rounds: u32| {
        format!(
            "--- a/work.h\n+++ b/work.h\n@@ -1,5 +1,5 @@\n /* What one request costs. */\n\
             -#define ROUNDS {from}u\n+#define ROUNDS {rounds}u\n \n\
             \x20static unsigned work(unsigned state)\n {{\n"
        )
    };
    environment.write("patches/0002-comment-only.patch", to(25_000, 20_000));
    environment.write("patches/0003-last.patch", to(20_000, 15_000));
    let series = "0001-fewer-rounds.patch\n0002-comment-only.patch\n";
    environment.write("series", format!("{series}0003-last.patch\n"));
    let first = document(&environment, &["run", "--json", "--blocks", "6"]);
    let name = first["experiment"].as_str().unwrap();
    assert_eq!(in_order(&first, 0)["provenance"], "measured");
    let all = ["0", "1", "2", "3", "control"];
    assert_eq!(points_measured(&environment, name), all);
    // The whole series was compared with the release alone, too.
    // Three blocks of two copies each.
    assert_eq!(first["closure"][0]["direct"]["blocks"], 6);

    // Another last patch: the effects of those before it are known.
    environment.replace("patches/0003-last.patch", "15000u", "12000u");
    let finished = environment.run(&["run", "--json", "--blocks", "6"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let second: Value = serde_json::from_str(&finished.stdout).unwrap();
    let again = second["experiment"].as_str().unwrap();
    assert_ne!(again, name);
    for patch in 0..2 {
        let carried = in_order(&second, patch);
        assert_eq!(carried["provenance"], "carried");
        assert_eq!(carried["from"], name);
        assert_eq!(carried["estimate"], in_order(&first, patch)["estimate"]);
    }
    assert_eq!(in_order(&second, 2)["provenance"], "measured");
    assert_eq!(second["total"][0]["provenance"], "measured");
    assert_eq!(
        points_measured(&environment, again),
        ["0", "2", "3", "control"]
    );
    // It goes on with what it was begun with, and a file of it is complete.
    let finished = environment.run(&["run", "--json", "--blocks", "6"]);
    assert!(
        !crate::common::measures(&finished.stderr),
        "{}",
        finished.stderr
    );
    let lines = environment.run(&["report", "--format", "jsonl"]).stdout;
    environment.write("observations.jsonl", &lines);
    let analysed = document(&environment, &["analyse", "observations.jsonl", "--json"]);
    assert_eq!(analysed["patches"], second["patches"]);
    assert_eq!(analysed["closure"], second["closure"]);

    // Without the last patch all is known: no server is started.
    environment.write("series", series);
    let finished = environment.run(&["run", "--blocks", "6"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let mut done = finished
        .stderr
        .lines()
        .filter(|line| !line.starts_with("next: "));
    assert!(
        !done.any(|line| line.contains("block")),
        "{}",
        finished.stderr
    );
    let text = finished.stdout;
    assert!(text.contains("nothing new was measured"), "{text}");
    assert!(text.contains(&format!("Reused from {name}")), "{text}");

    // But not with more blocks than were measured.
    let more = document(&environment, &["run", "--json", "--blocks", "7"]);
    assert_eq!(in_order(&more, 0)["provenance"], "measured");
    assert_eq!(in_order(&more, 0)["blocks"], 7);

    // Nor where measuring is asked for.
    let fresh = document(&environment, &["run", "--json", "--blocks", "6", "--fresh"]);
    assert_eq!(in_order(&fresh, 0)["provenance"], "measured");
    let again = document(&environment, &["run", "--json", "--blocks", "6", "--fresh"]);
    assert_eq!(in_order(&again, 0)["provenance"], "measured");
    assert_ne!(again["experiment"], fresh["experiment"]);
}

#[test]
fn patches_are_measured_apart_from_each_other() {
    let environment = TestEnvironment::with_fixture("toy");
    let document = document(
        &environment,
        &["run", "--json", "--effects", "alone,without"],
    );
    let of = |patch: usize, kind: &str| {
        let effects = document["patches"][patch]["effects"].as_array().unwrap();
        effects
            .iter()
            .find(|effect| effect["kind"] == kind)
            .cloned()
    };
    // Alone it is the same server as in order.
    let alone = of(0, "alone").unwrap();
    assert_eq!(alone["estimate"], in_order(&document, 0)["estimate"]);
    // The second patch stands on the first one's lines, which is an answer and no fault.
    assert!(of(0, "without").is_none() && of(1, "alone").is_none());
    let why = |point: &str| document["failed"][point].as_str().unwrap().to_owned();
    assert!(
        why("without:1").contains("needed by patch 2"),
        "{}",
        why("without:1")
    );
    assert!(
        why("alone:2").contains("it needs patch 1"),
        "{}",
        why("alone:2")
    );
    // It is the last one, so that leaving it out is the step before it.
    assert_eq!(of(1, "without").unwrap()["identical"], true);
    assert_eq!(of(1, "interaction").unwrap()["identical"], true);
}

#[test]
fn a_patch_that_does_not_compile_fails_alone() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        "patches/0002-comment-only.patch",
        "+/* What one request costs: rounds of a linear congruential generator. */",
        "+#error rounds of a linear congruential generator",
    );
    let finished = environment.run(&["run", "--json"]);
    assert_eq!(finished.code, Some(4), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("0002-comment-only.patch"),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.contains("work.h:1"), "{}", finished.stderr);
    // The points that were built are measured and reported all the same.
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(in_order(&document, 0)["verdict"], "faster");
}

/// Starts and answers the first requests.
const DIES_UNDER_LOAD: &str = "\
Subject: work: die at the 150th request

--- a/work.h
+++ b/work.h
@@ -1,9 +1,13 @@
 /* What one request costs. */
 #define ROUNDS 25000u
 
+static int served;
+
 static unsigned work(unsigned state)
 {
+  if (++served > 150)
+    __builtin_trap();
   for (unsigned i = 0; i < ROUNDS; i++)
     state = state * 1664525u + 1013904223u;
   return state;
 }
";

#[test]
fn a_server_that_dies_under_load_fails_alone() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("patches/0002-comment-only.patch", DIES_UNDER_LOAD);
    let finished = environment.run(&["run", "--json"]);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(in_order(&document, 0)["verdict"], "faster");
    environment.wait_until_no_process_is_left();

    // Again there is nothing to measure, and the failure is the same.
    let again = environment.run(&["run", "--json"]);
    assert_eq!(again.code, Some(5), "{}", again.stderr);
    assert!(!crate::common::measures(&again.stderr), "{}", again.stderr);
    assert!(again.stderr.contains("`--fresh`"), "{}", again.stderr);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["failed"], document["failed"]);
    assert!(again["failed"]["2"].is_string(), "{again:#}");
}

/// Adds the workloads `bad`, whose client is this script, and `late`.
fn add_workloads(environment: &TestEnvironment, script: &str) {
    let config = "bench-config/perfquilt.toml";
    environment.replace(config, r#"["requests"]"#, r#"["requests", "bad", "late"]"#);
    let workloads = "bench-config/workloads";
    let requests = environment.read(&format!("{workloads}/requests.toml"));
    environment.write(&format!("{workloads}/late.toml"), &requests);
    environment.write("client.sh", format!("#!/bin/sh\n{script}"));
    environment.executable("client.sh");
    let client = environment.path("client.sh");
    let bad = requests.replace(
        "\"{server}/bin/toyc\"",
        &format!("{client:?}, \"{{server}}\""),
    );
    environment.write(&format!("{workloads}/bad.toml"), bad);
}

#[test]
fn a_workload_that_fails_fails_alone_and_is_named_with_its_reason() {
    let environment = TestEnvironment::with_fixture("toy");
    add_workloads(
        &environment,
        "test -e good || { echo 'no such table' >&2; exit 1; }\nexec \"$1/bin/toyc\" \"$2\" \"$3\"\n",
    );
    let run = ["run", "--blocks", "3", "--json"];
    let finished = environment.run(&run);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    for words in [
        "workload bad: the client exited with 1",
        "no such table",
        "the next run tries it again",
    ] {
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
    let run_document: Value = serde_json::from_str(&finished.stdout).unwrap();
    let stored = document(&environment, &["report", "--json"]);
    for document in [&run_document, &stored] {
        let failed = &document["failed_workloads"][0];
        assert_eq!(
            (&failed["workload"], &failed["meters"][0]),
            (&"bad".into(), &"time".into())
        );
        assert!(
            failed["reason"].as_str().unwrap().contains("exited with 1"),
            "{failed}"
        );
        let done: Vec<_> = document["progress"].as_array().unwrap().iter().collect();
        let done: Vec<_> = done
            .iter()
            .map(|of| {
                (
                    of["workload"].as_str().unwrap(),
                    of["done"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(done, [("bad", 0), ("late", 3), ("requests", 3)]);
    }
    for format in ["terminal", "markdown", "html"] {
        let report = environment.ok(&["report", "--format", format]);
        assert!(
            report.contains("Workload bad: the client exited with 1"),
            "{report}"
        );
        assert!(report.contains("workload bad failed"), "{report}");
    }
    // What is mended is measured by the next run, and nothing else.
    environment.write("good", "");
    let document = document(&environment, &run);
    assert!(document.get("failed_workloads").is_none(), "{document:#}");
    assert!(
        document["progress"]
            .as_array()
            .unwrap()
            .iter()
            .all(|of| of["done"] == 3),
        "{document:#}"
    );
    assert_eq!(in_order(&document, 0)["blocks"], 3);
}

#[test]
fn a_workload_that_fails_with_one_patch_fails_that_patch() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        "patches/0002-comment-only.patch",
        "+/* What one",
        "+int second; /* What one",
    );
    add_workloads(
        &environment,
        "if nm \"$1/bin/toyd\" | grep -q second; then exit 1; fi\nexec \"$1/bin/toyc\" \"$2\" \"$3\"\n",
    );
    let finished = environment.run(&["run", "--blocks", "2", "--json"]);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(
        document["failed"]["2"]
            .as_str()
            .unwrap()
            .contains("workload bad"),
        "{document:#}"
    );
    assert!(document.get("failed_workloads").is_none());
    // The other patch has its figures.
    assert_eq!(in_order(&document, 0)["blocks"], 2);
}

/// Overwrites the environment of the server, as some servers do to show a title in the list of processes.
const OVERWRITES_ENVIRONMENT: &str = "\
Overwrite the environment

--- a/work.h
+++ b/work.h
@@ -1,3 +1,13 @@
+#include <string.h>
+
+extern char **environ;
+
+__attribute__((constructor)) static void overwrite_environment(void)
+{
+  for (char **variable = environ; variable && *variable; variable++)
+    memset(*variable, 0, strlen(*variable));
+}
+
 /* What one request costs. */
 #define ROUNDS 25000u
 
";

#[test]
fn a_server_that_overwrites_its_environment_is_counted() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("patches/0002-comment-only.patch", OVERWRITES_ENVIRONMENT);
    let meters = r#"meters = ["instructions"]"#;
    environment.replace(
        "bench-config/perfquilt.toml",
        r#"meters = ["time"]"#,
        meters,
    );
    let mut command = environment.command(&["run", "--json"]);
    let finished = command
        .env("USER", "alice")
        .env("LOGNAME", "alice")
        .output();
    let finished: Finished = finished.unwrap().into();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(
        document["failed"].as_object().unwrap().is_empty(),
        "{document:#}"
    );
    environment.wait_until_no_process_is_left();
}

#[test]
fn a_server_that_goes_to_the_background_is_reported_with_what_went_on() {
    let environment = TestEnvironment::with_fixture("toy");
    let plain = r#"start = ["{server}/bin/toyd", "{socket}"]"#;
    let configuration = "bench-config/perfquilt.toml";
    let meters = r#"meters = ["time", "rss", "context_switches"]"#;
    environment.replace(configuration, r#"meters = ["time"]"#, meters);
    for how in ["", "setsid "] {
        // The wrapper ends while the first block is measured.
        let start = format!(
            r#"start = ["sh", "-c", "{how}{{server}}/bin/toyd {{socket}} > /dev/null 2>&1 & sleep 0.3"]"#
        );
        environment.replace(configuration, plain, &start);
        let finished = environment.run(&["run", "--blocks", "2"]);
        environment.replace(configuration, &start, plain);
        assert_ne!(finished.code, Some(0), "{}", finished.stdout);
        for words in [
            "`toyd` (process ",
            "went on without it and was ended",
            "foreground",
        ] {
            assert!(finished.stderr.contains(words), "{}", finished.stderr);
        }
        environment.wait_until_no_process_is_left();
    }
}

/// Starts the toy's servers by `script`, which gets the server's folder, its socket, a folder to count starts in, and `more`;
/// `$n` is the number of the start from 1. Servers start at the same time, so each takes its number by making a folder.
fn count_starts(environment: &TestEnvironment, script: &str, more: &[&str]) {
    let number = "n=1\nuntil mkdir \"$3/$n\" 2> /dev/null; do n=$((n + 1)); done\n";
    environment.write("bench-config/start.sh", format!("{number}{script}"));
    let folder = environment.workspace().join("counted");
    std::fs::create_dir(&folder).unwrap();
    let script_and_server = ["sh", "{config}/start.sh", "{server}", "{socket}"];
    let start = [&script_and_server[..], &[folder.to_str().unwrap()], more].concat();
    let plain = r#"start = ["{server}/bin/toyd", "{socket}"]"#;
    environment.replace(
        "bench-config/perfquilt.toml",
        plain,
        &format!("start = {start:?}"),
    );
}

#[test]
fn a_port_taken_once_costs_an_attempt_and_not_the_run() {
    let environment = TestEnvironment::with_fixture("toy");
    let script = "if [ $n = 4 ]; then echo 'bind: Address already in use' >&2; exit 1; fi\n\
                  exec \"$1/bin/toyd\" \"$2\"\n";
    count_starts(&environment, script, &["{port}"]);
    let finished = environment.run(&["run", "--json", "--blocks", "3"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(in_order(&document, 0)["blocks"], 3, "{document:#}");
}

#[test]
fn a_start_that_fails_once_is_tried_once_more_and_the_run_goes_on() {
    let environment = TestEnvironment::with_fixture("toy");
    // The template's start, the traced one, three good ones, three bad ones: all points of the second block, the release too.
    // None fails before all have come, or its second start would be one of the three.
    let script = "case $n in 6|7|8)\n\
                  until [ -d \"$3/8\" ]; do sleep 0.01; done\n\
                  echo 'out of handles' >&2; exit 7;;\n\
                  esac\n\
                  exec \"$1/bin/toyd\" \"$2\"\n";
    count_starts(&environment, script, &[]);
    let finished = environment.run(&["run", "--json", "--blocks", "3"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let told = finished.stderr.matches("restarting it once").count();
    assert_eq!(told, 3, "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(in_order(&document, 0)["blocks"], 3, "{document:#}");
}

#[test]
fn what_was_measured_before_the_release_failed_is_shown_with_the_next_command() {
    for servers in [&[][..], &["--server", "0=0", "--server", "1=1"]] {
        let environment = TestEnvironment::with_fixture("toy");
        let built = environment.run(&["build", "--recipe", "make"]);
        assert_eq!(built.code, Some(0), "{}", built.stderr);
        // The template's start, the traced one, and those of the first block.
        let script = "if [ $n -ge 6 ]; then echo 'out of handles' >&2; exit 7; fi\n\
                      exec \"$1/bin/toyd\" \"$2\"\n";
        count_starts(&environment, script, &[]);
        let finished = environment.run(&[&["run", "--blocks", "3"], servers].concat());
        assert_eq!(finished.code, Some(5), "{}", finished.stderr);
        assert!(
            finished.stdout.contains("After 1 of 3 blocks"),
            "{}",
            finished.stdout
        );
        for words in [
            "server of 0",
            "exited with 7 at start",
            "the run ends here; finished blocks are kept, and the same command continues",
        ] {
            assert!(finished.stderr.contains(words), "{}", finished.stderr);
        }
    }
}

#[test]
fn a_helper_beside_a_server_is_a_warning_unless_it_works() {
    let environment = TestEnvironment::with_fixture("toy");
    let plain = r#"start = ["{server}/bin/toyd", "{socket}"]"#;
    for (helper, code, words) in [
        ("sleep 77", 0, "keeps `sleep` running outside"),
        (
            "sh -c \"while :; do :; done\"",
            5,
            "left its first process: `sh` (process ",
        ),
    ] {
        let start = format!(
            "start = [\"sh\", \"-c\", '(setsid {helper} > /dev/null 2>&1 &); exec {{server}}/bin/toyd {{socket}}']"
        );
        environment.replace("bench-config/perfquilt.toml", plain, &start);
        let finished = environment.run(&["run", "--fresh", "--blocks", "2"]);
        environment.replace("bench-config/perfquilt.toml", &start, plain);
        assert_eq!(finished.code, Some(code), "{}", finished.stderr);
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
        environment.wait_until_no_process_is_left();
    }
}

/// Runs the toy with a client whose second run, after the traced one, has its server stand still for a moment, by `stop` and `go` with the process
/// in `$server`; returns what the run said.
fn with_standstill(stop: &str, go: &str) -> String {
    let environment = TestEnvironment::with_fixture("toy");
    let script = format!(
        "if ! mkdir \"$3/traced\" 2> /dev/null && mkdir \"$3/once\" 2> /dev/null; then\n\
         server=$(pgrep -f \"^$1/bin/toyd $2\")\n\
         {stop}; sleep 0.7; {go}\n\
         fi\n\
         exec \"$1/bin/toyc\" \"$2\" 100\n"
    );
    environment.write("bench-config/client.sh", &script);
    let folder = environment.workspace().join("stopped");
    std::fs::create_dir(&folder).unwrap();
    let run = format!(
        r#"run = ["sh", "{{config}}/client.sh", "{{server}}", "{{socket}}", "{}"]"#,
        folder.display()
    );
    environment.replace(
        "bench-config/workloads/requests.toml",
        r#"run = ["{server}/bin/toyc", "{socket}", "100"]"#,
        &run,
    );
    let finished = environment.run(&["run", "--blocks", "2"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(folder.join("once").is_dir(), "{}", finished.stderr);
    let report = environment.run(&["report", "--format", "markdown", "--details"]);
    assert!(
        report.stdout.contains("measured again"),
        "{}",
        report.stdout
    );
    let document = document(&environment, &["report", "--format", "json"]);
    let conditions = &document["noise"]["conditions"][0];
    assert!(
        conditions["standstills"].as_u64().unwrap() >= 1,
        "{conditions:#}"
    );
    for cost in document["costs"].as_array().unwrap() {
        // Of 0.7 s, a transaction of a hundred would have 7 ms.
        assert!(cost["estimate"].as_f64().unwrap() < 3e6, "{cost:#}");
    }
    finished.stderr
}

#[test]
fn a_round_in_which_a_server_was_stopped_is_measured_again() {
    let told = with_standstill("kill -STOP $server", "kill -CONT $server");
    assert!(
        told.contains("stopped; measuring the round again"),
        "{told}"
    );
}

#[test]
fn a_round_in_which_a_server_was_frozen_is_measured_again() {
    for (parent, file, frozen, thawed) in [
        ("/sys/fs/cgroup", "cgroup.freeze", "1", "0"),
        ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
        (
            "/sys/fs/cgroup/freezer",
            "freezer.state",
            "FROZEN",
            "THAWED",
        ),
    ] {
        let group = format!("{parent}/perfquilt-run-{}", std::process::id());
        if std::fs::create_dir(&group).is_err() || !Path::new(&group).join(file).exists() {
            println!("skipped: {parent} lets this user make no group with {file}");
            let _ = std::fs::remove_dir(&group);
            continue;
        }
        let stop = format!(
            "echo $server > {group}/cgroup.procs; sleep 0.6; echo {frozen} > {group}/{file}"
        );
        let told = with_standstill(&stop, &format!("echo {thawed} > {group}/{file}"));
        // The kernel needs a moment after the last process.
        let removed = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::remove_dir(&group).is_ok()
        });
        assert!(removed, "{group}");
        let words = format!("was frozen by its control group {group}; measuring the round again");
        assert!(told.contains(&words), "{told}");
    }
}

#[test]
fn a_server_that_stays_stopped_ends_the_run_with_its_name() {
    let environment = TestEnvironment::with_fixture("toy");
    let script = "kill -STOP $(pgrep -f \"^$1/bin/toyd $2\")\nexec \"$1/bin/toyc\" \"$2\" 100\n";
    environment.write("bench-config/client.sh", script);
    environment.replace(
        "bench-config/workloads/requests.toml",
        r#"run = ["{server}/bin/toyc", "{socket}", "100"]"#,
        "run = [\"sh\", \"{config}/client.sh\", \"{server}\", \"{socket}\"]\nlimit_seconds = 1",
    );
    let finished = environment.run(&["run", "--blocks", "2"]);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    for words in [
        "`toyd` (process ",
        "was stopped and did not continue",
        "kill -CONT",
    ] {
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
    environment.wait_until_no_process_is_left();
}

#[test]
fn a_server_that_somebody_stopped_while_it_starts_is_named_before_the_time_is_over() {
    let environment = TestEnvironment::with_fixture("toy");
    let stops = STARTS_SLOWLY.replace("sleep(3)", "raise(SIGSTOP)");
    environment.write("patches/0002-comment-only.patch", stops);
    let config = "bench-config/perfquilt.toml";
    environment.replace(config, "start_seconds = 20.0", "start_seconds = 6.0");
    let finished = environment.run(&["run", "--blocks", "2"]);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    let (before, after) = finished.stderr.split_once("kill -CONT").unwrap();
    assert!(
        before.contains("the server does not start because `toyd`"),
        "{before}"
    );
    assert!(after.contains("start_seconds"), "{after}");
    environment.wait_until_no_process_is_left();
}

/// The server, not its client, takes three seconds to start.
const STARTS_SLOWLY: &str = "\
Subject: work: start slowly

--- a/work.h
+++ b/work.h
@@ -1,6 +1,11 @@
 /* What one request costs. */
 #define ROUNDS 25000u
 
+__attribute__((constructor)) static void slowly(void)
+{
+  sleep(3);
+}
+
 static unsigned work(unsigned state)
 {
   for (unsigned i = 0; i < ROUNDS; i++)
";

#[test]
fn a_server_that_has_more_time_to_start_is_tried_again() {
    let environment = TestEnvironment::with_fixture("toy");
    let config = "bench-config/perfquilt.toml";
    environment.write("patches/0002-comment-only.patch", STARTS_SLOWLY);
    environment.replace(config, "start_seconds = 20.0", "start_seconds = 2.0");
    let run = ["run", "--blocks", "2", "--json"];
    let finished = environment.run(&run);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("start_seconds"),
        "{}",
        finished.stderr
    );
    let again = environment.run(&run);
    assert_eq!(again.code, Some(5), "{}", again.stderr);
    assert!(!crate::common::measures(&again.stderr), "{}", again.stderr);

    environment.replace(config, "start_seconds = 2.0", "start_seconds = 30.0");
    let measured = document(&environment, &run);
    assert_eq!(in_order(&measured, 1)["blocks"], 2, "{measured:#}");
    let finished = environment.run(&run);
    assert!(
        !crate::common::measures(&finished.stderr),
        "{}",
        finished.stderr
    );
    environment.wait_until_no_process_is_left();
}

#[test]
fn a_server_that_does_not_start_is_told_with_its_log() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        "bench-config/perfquilt.toml",
        "\"{socket}\"]\nready",
        "\"{socket}\", \"too\", \"many\"]\nready",
    );
    let finished = environment.run(&["run"]);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("usage: toyd SOCKET"),
        "{}",
        finished.stderr
    );
}

#[test]
fn interrupted_and_killed_runs_are_resumed() {
    let environment = TestEnvironment::with_fixture("toy");
    let long = ["run", "--blocks", "12"];
    assert_eq!(
        environment.stopped_at(&long, "block 2", Signal::INT),
        Some(130)
    );
    // A kill cannot be handled: the kernel ends the children.
    assert_eq!(environment.stopped_at(&long, "block 4", Signal::KILL), None);
    let document = document(&environment, &["run", "--blocks", "12", "--json"]);
    assert_eq!(in_order(&document, 0)["blocks"].as_u64(), Some(12));
}

#[test]
fn measuring_ends_when_the_intervals_are_narrow_enough() {
    let environment = TestEnvironment::with_fixture("toy");
    let config = "bench-config/perfquilt.toml";
    environment.replace(
        config,
        "blocks = 5",
        "blocks = 60\nmin_blocks = 4\nresolution = 0.2",
    );
    let ended = document(&environment, &["run", "--json"]);
    let progress = &ended["progress"][0];
    assert_eq!(progress["ended"], true, "{progress}");
    assert_eq!(progress["planned"], 60);
    let done = progress["done"].as_u64().unwrap();
    assert!((4..60).contains(&done), "{progress}");
    assert_eq!(in_order(&ended, 0)["interval"], "sequential");
    assert_eq!(ended["stopping"]["open"], serde_json::json!([]));
    // Nothing is left to do, also with a larger budget.
    let again = environment.run(&["run", "--blocks", "80"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(!crate::common::measures(&again.stderr), "{}", again.stderr);
    assert!(
        again.stdout.contains("±20 % or narrower"),
        "{}",
        again.stdout
    );
    // More blocks after all: somebody who has seen the end decided that.
    let more = done + 1;
    let extended = document(
        &environment,
        &[
            "run",
            "--json",
            "--resolution",
            "0",
            "--blocks",
            &more.to_string(),
        ],
    );
    assert_eq!(extended["progress"][0]["done"], more);
    assert_eq!(in_order(&extended, 0)["interval"], "anytime");
}

#[test]
fn a_wrong_end_is_told_before_anything_is_built() {
    let environment = TestEnvironment::with_fixture("toy");
    let config = "bench-config/perfquilt.toml";
    let refused = environment.run(&["run", "--resolution", "5"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    for (settings, words) in [
        ("resolution = 0.5", "for ±0.5 % write 0.005"),
        ("min_blocks = 3", "without `resolution`"),
        ("resolution = 0.01\nmin_blocks = 1", "at least 2"),
        ("resolution = 0.01\nmin_blocks = 6", "at most `blocks`"),
    ] {
        environment.replace(config, "blocks = 5", &format!("blocks = 5\n{settings}"));
        let refused = environment.run(&["run"]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
        environment.replace(config, &format!("\n{settings}"), "");
    }
}

/// Hours of work are not for nothing: what cannot be shown is refused before them.
#[test]
fn a_report_that_cannot_be_made_is_refused_before_the_work() {
    let environment = TestEnvironment::with_fixture("toy");
    for wrong in [
        &["--json", "--format", "html"][..],
        &["--flame-graph", "x.svg"],
        &["--format=html", "--output=x.html", "--flame-graph=x.svg"],
        // Nothing but the caches and the state can be written in a sandbox.
        &["--sandbox", "--output", "x.html"],
    ] {
        let finished = environment.run(&[&["run"], wrong].concat());
        assert_eq!(finished.code, Some(2), "{wrong:?}: {}", finished.stderr);
        assert!(!environment.cache().join("builds").exists(), "{wrong:?}");
    }
}

/// Paths are bytes, documents are text.
#[test]
fn a_path_that_is_no_text_ends_no_command() {
    use std::os::unix::ffi::OsStrExt;
    let environment = TestEnvironment::with_fixture("toy");
    let mut export = environment.command(&["export", "0", "--json"]);
    let finished = export.arg(std::ffi::OsStr::from_bytes(b"out\xff"));
    let finished: crate::common::Finished = finished.output().unwrap().into();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(document["directory"], "out\u{fffd}");
}

#[test]
fn a_release_that_nothing_vouches_for_is_not_at_hand() {
    let environment = TestEnvironment::with_fixture("toy");
    let doctor = || {
        let finished = environment.run(&["doctor", "--json"]);
        let document: Value = serde_json::from_str(&finished.stdout).unwrap();
        document["release"]["imported"].as_bool()
    };
    assert_eq!(environment.run(&["upstream", "fetch"]).code, Some(0));
    assert_eq!(doctor(), Some(true));
    let lock = environment.workspace().join("bench-config/upstream.lock");
    std::fs::remove_file(lock).unwrap();
    assert_eq!(doctor(), Some(false));
}

#[test]
fn few_open_files_are_enough_or_the_error_says_how_to_allow_more() {
    let environment = TestEnvironment::with_fixture("toy");
    let limited = |limits: &str| -> Finished {
        let script = format!("ulimit {limits}; exec \"$@\"");
        let mut command = environment.hermetic("sh", &environment.workspace());
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_perfquilt")]);
        command.args(["run", "--blocks", "2", "--fresh"]);
        command.output().unwrap().into()
    };
    // The limit of this program is raised, that of the servers stays.
    let start = r#"start = ["{server}/bin/toyd", "{socket}"]"#;
    let asks =
        r#"start = ["sh", "-c", "test $(ulimit -Sn) = 40 && exec {server}/bin/toyd {socket}"]"#;
    environment.replace("bench-config/perfquilt.toml", start, asks);
    let finished = limited("-Sn 40");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let refused = limited("-n 12");
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.contains("ulimit -n 65536"),
        "{}",
        refused.stderr
    );
}
