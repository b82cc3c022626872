//! The server's own tests, on the toy server: what fails because of a patch, what fails anyway, and what cannot run.

use std::fs;

use crate::common::TestEnvironment;
use rustix::process::Signal;
use serde_json::Value;

/// A suite that counts its runs in the cache, beside the trees, which are emptied for each point: `flaky` fails in every
/// other run, `broken` always, `multiplier` with the third patch.
const SUITE: &str = r#"
runs=$(($(cat ../../../runs 2>/dev/null || echo 0) + 1))
echo $runs >../../../runs
echo "run $runs: $*" >>../../../chosen
chosen=$*
result() {
    case " ${chosen:-$1} " in
    *" $1 "*) printf '%-30s [ %s ]\n' "$1" "$2" ;;
    *) return 1 ;;
    esac
}
try() {
    name=$1
    shift
    if "$@"; then result $name pass; else result $name fail && failed=1; fi
}
try main.starts test -x toyd
try main.rounds grep -q 'ROUNDS [0-9]*u' work.h
try main.multiplier grep -q 1664525u work.h
try main.flaky test $((runs % 2)) = 0
try main.broken false
result main.big 'skipped'
exit ${failed:-0}
"#;

const WRONG: &str = "\
From: The perfquilt contributors <perfquilt@example.invalid>
Subject: work: another multiplier

diff --git a/work.h b/work.h
--- a/work.h
+++ b/work.h
@@ -4,6 +4,6 @@
 static unsigned work(unsigned state)
 {
   for (unsigned i = 0; i < ROUNDS; i++)
-    state = state * 1664525u + 1013904223u;
+    state = state * 1664526u + 1013904223u;
   return state;
 }
";

/// A patch on top that does not mend what the wrong one breaks.
const LATER: &str = "\
From: The perfquilt contributors <perfquilt@example.invalid>
Subject: work: count from one

diff --git a/work.h b/work.h
--- a/work.h
+++ b/work.h
@@ -3,7 +3,7 @@
 
 static unsigned work(unsigned state)
 {
-  for (unsigned i = 0; i < ROUNDS; i++)
+  for (unsigned i = 1; i <= ROUNDS; i++)
     state = state * 1664526u + 1013904223u;
   return state;
 }
";

fn environment(test: &str) -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("bench-config/suite.sh", SUITE);
    environment.replace(
        "bench-config/perfquilt.toml",
        "[server]\nadapter",
        &format!("[recipe.make.test]\n{test}\n\n[server]\nadapter"),
    );
    environment
}

const COMMANDS: &str = "command = [\"sh\", \"{config}/suite.sh\"]\n\
                        select = [\"sh\", \"{config}/suite.sh\", \"{tests}\"]\n\
                        format = \"mtr\"";

fn with_wrong_patches() -> TestEnvironment {
    let environment = environment(COMMANDS);
    environment.write("patches/0003-wrong.patch", WRONG);
    environment.write("patches/0004-later.patch", LATER);
    environment.replace(
        "series",
        "0002-comment-only.patch\n",
        "0002-comment-only.patch\n0003-wrong.patch\n0004-later.patch\n",
    );
    environment
}

/// The lines that the suite wrote about its runs.
fn chosen(environment: &TestEnvironment) -> Vec<String> {
    let text = fs::read_to_string(environment.cache().join("chosen")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_patch_that_breaks_a_test_is_named() {
    let environment = with_wrong_patches();
    let first = environment.run(&["test"]);
    assert_eq!(first.code, Some(6), "{}{}", first.stdout, first.stderr);
    let seconds = regex::Regex::new(r"\(\d+(\.\d)? s").unwrap();
    let shown = seconds.replace_all(&first.stdout, "(TIME");
    insta::assert_snapshot!(shown);
    assert!(
        first.stderr.contains(
            "error: main.multiplier fails with 0003-wrong.patch and not without it [PQ0507]\n"
        ),
        "{}",
        first.stderr
    );

    // Whole runs, then only the tests in question.
    let runs = chosen(&environment);
    assert!(runs[0].ends_with(": "), "{runs:?}");
    assert!(runs[1].ends_with(": main.broken main.flaky"), "{runs:?}");
    let of_multiplier = runs.iter().filter(|run| run.ends_with(": main.multiplier"));
    // Three times with the patch, with the one after it, and on the release.
    assert_eq!(of_multiplier.count(), 9, "{runs:?}");

    // Nothing is built or run again.
    let again = environment.run(&["test"]);
    assert_eq!(again.code, Some(6));
    for work in ["building", "testing", "repeating"] {
        assert!(!again.stderr.contains(work), "{}", again.stderr);
    }
    let words = again
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(words.matches("from the cache").count(), 5);
    assert_eq!(chosen(&environment), runs);

    // Two points only; the others are as they were.
    let one = environment.run(&["test", "1", "--json"]);
    assert_eq!(one.code, Some(0), "{}", one.stderr);
    let document: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(document["points"].as_array().unwrap().len(), 2);
    assert_eq!(document["points"][1]["tests"]["passed"], 3);
    assert_eq!(
        document["points"][0]["tests"]["known"][0]["name"],
        "main.broken"
    );
    environment.wait_until_no_process_is_left();
}

#[test]
fn reports_say_how_the_tests_go() {
    let environment = with_wrong_patches();
    let measured = environment.run(&["run", "--test", "--point", "1", "--point", "3"]);
    assert_eq!(
        measured.code,
        Some(6),
        "{}{}",
        measured.stdout,
        measured.stderr
    );
    for sentence in [
        "3 tests pass, no new failures; 1 fails on the release too",
        " tests pass, 1 new failure: main.multiplier; 1 fails on the release too",
    ] {
        let joined = measured
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(joined.contains(sentence), "{joined}");
    }
    let markdown = environment.run(&["report", "--format", "markdown"]).stdout;
    assert!(
        markdown.contains("On the release 3 tests pass, 1 fails"),
        "{markdown}"
    );

    // An exported file has the results, too.
    let lines = environment.run(&["report", "--format", "jsonl"]).stdout;
    environment.write("observations.jsonl", &lines);
    let analysed = environment.run(&["analyse", "observations.jsonl", "--json"]);
    let document: Value = serde_json::from_str(&analysed.stdout).unwrap();
    let tests = document["tests"].as_array().unwrap();
    let of_three = tests.iter().find(|tests| tests["point"] == "3").unwrap();
    assert_eq!(of_three["new"][0]["name"], "main.multiplier");
    assert_eq!(of_three["new"][0]["base_runs"], 4);
}

/// Tests that ran after the measurement are in its report.
#[test]
fn a_report_has_the_tests_of_later() {
    let environment = environment(COMMANDS);
    assert_eq!(environment.run(&["run", "--quiet"]).code, Some(0));
    assert!(!environment.run(&["report"]).stdout.contains("tests pass"));
    assert_eq!(environment.run(&["test", "--quiet"]).code, Some(0));
    assert!(environment.run(&["report"]).stdout.contains("3 tests pass"));
}

#[test]
fn a_preset_may_ask_for_the_tests() {
    let environment = environment(COMMANDS);
    environment.replace(
        "bench-config/perfquilt.toml",
        "recipe = \"make\"\nworkloads",
        "recipe = \"make\"\ntest = true\nworkloads",
    );
    let measured = environment.run(&["run"]);
    assert_eq!(measured.code, Some(0), "{}", measured.stderr);
    assert!(
        measured.stdout.contains("no new failures"),
        "{}",
        measured.stdout
    );
}

#[test]
fn the_exit_status_can_be_the_only_result() {
    let environment = environment(
        "command = [\"grep\", \"-q\", \"100000u\", \"work.h\"]\nformat = \"exit_status\"\nrepeat = 1",
    );
    let tested = environment.run(&["test"]);
    assert_eq!(tested.code, Some(6), "{}", tested.stderr);
    assert!(
        tested
            .stderr
            .contains("exit-status fails with 0001-fewer-rounds.patch"),
        "{}",
        tested.stderr
    );
    let words: Vec<&str> = tested.stdout.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("1 fails because of an earlier patch"),
        "{}",
        tested.stdout
    );
}

#[test]
fn tests_that_cannot_run_are_an_error_with_their_output() {
    let failing = |test: &str, code: i32, parts: &[&str]| {
        let environment = environment(test);
        let tested = environment.run(&["test"]);
        assert_eq!(
            tested.code,
            Some(code),
            "{test}: {}{}",
            tested.stdout,
            tested.stderr
        );
        for part in parts {
            assert!(tested.stderr.contains(part), "{test}: {}", tested.stderr);
        }
        environment.wait_until_no_process_is_left();
    };
    failing(
        "command = [\"sh\", \"-c\", \"echo oops; exit 3\"]\nformat = \"mtr\"",
        5,
        &[
            "the tests exited with 3",
            "oops",
            "no line of the output is the result of a test",
            "the whole log: ",
        ],
    );
    failing(
        "command = [\"sh\", \"-c\", \"echo 'ok 1 - a'; exit 3\"]\nformat = \"tap\"",
        5,
        &["the tests, of which none failed, exited with 3"],
    );
    failing(
        "prepare = [[\"make\", \"nothing\"]]\ncommand = [\"true\"]\nformat = \"exit_status\"",
        5,
        &[
            "a command of `prepare` exited with 2",
            "No rule to make target",
        ],
    );
    failing(
        "command = [\"sleep\", \"60\"]\nformat = \"exit_status\"\ntimeout = \"1s\"",
        5,
        &["`sleep 60` did not end within 1 s"],
    );
    failing(
        "command = [\"no-such-runner\"]\nformat = \"tap\"",
        2,
        &["no-such-runner"],
    );
    failing(
        "command = []\nformat = \"tap\"",
        2,
        &["perfquilt.toml:", "`command` is empty"],
    );
    failing(
        "command = [\"true\"]\nformat = \"junit\"",
        2,
        &["perfquilt.toml:", "exit_status"],
    );
    failing(
        "command = [\"true\"]\nselect = [\"true\"]\nformat = \"tap\"",
        2,
        &["perfquilt.toml:", "`select` needs {tests}"],
    );
    failing(
        "command = [\"true\", \"{bulid}\"]\nformat = \"tap\"",
        2,
        &["perfquilt.toml:", "unknown placeholder {bulid}"],
    );
    failing(
        "targets = [\"x\"]\ncommand = [\"true\"]\nformat = \"tap\"",
        2,
        &["perfquilt.toml:", "`targets` are ninja's"],
    );
    let without = TestEnvironment::with_fixture("toy");
    let tested = without.run(&["test"]);
    assert_eq!(tested.code, Some(2));
    assert!(
        tested.stderr.contains("recipe `make` has no tests"),
        "{}",
        tested.stderr
    );
    assert!(
        tested.stderr.contains("[recipe.make.test]"),
        "{}",
        tested.stderr
    );
}

/// A point that does not build, or whose tests do not run, does not stop the others.
#[test]
fn the_other_points_are_tested() {
    let environment = with_wrong_patches();
    environment.replace("patches/0003-wrong.patch", "1664526u", "oops");
    environment.replace(
        "patches/0004-later.patch",
        "    state = state * 1664526u",
        "    state = state * oops",
    );
    let tested = environment.run(&["test"]);
    assert_eq!(tested.code, Some(4), "{}", tested.stderr);
    assert!(
        tested.stdout.contains("3 tests pass, no new failures"),
        "{}",
        tested.stdout
    );
    assert!(tested.stdout.contains("failed: "), "{}", tested.stdout);

    let environment = with_wrong_patches();
    environment.write(
        "bench-config/suite.sh",
        "grep -q 1664525u work.h || exit 9\necho 'main.a [ pass ]'\n",
    );
    let tested = environment.run(&["test"]);
    assert_eq!(tested.code, Some(5), "{}", tested.stderr);
    assert!(
        tested.stdout.contains("1 test passes, no new failures"),
        "{}",
        tested.stdout
    );
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let environment =
        environment("command = [\"sh\", \"-c\", \"echo 'ok 1 - a'; sleep 60\"]\nformat = \"tap\"");
    let code = environment.stopped_at(&["test"], "testing", Signal::INT);
    assert_eq!(code, Some(130));
    assert!(!environment.cache().join("tests").exists());
}
