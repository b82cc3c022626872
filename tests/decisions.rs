//! `perfquilt accept` and `perfquilt ledger`: decisions that hold for what was measured, and lapse with it.

use crate::common::{Finished, TestEnvironment};
use serde_json::Value;

const SLOWER: &str = "0001-fewer-rounds.patch";

/// The toy server with a first patch that makes it much slower.
fn slower() -> TestEnvironment {
    let space = TestEnvironment::with_fixture("toy");
    let patch = space.read("patches/0001-fewer-rounds.patch");
    let patch = patch.replace("25000u", "400000u");
    let patch = patch.replace("Subject:", "Bug: https://example.org/bug/7\nSubject:");
    space.write(&format!("patches/{SLOWER}"), patch);
    space.replace("patches/0002-comment-only.patch", "25000u", "400000u");
    space
}

fn document(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", finished.stdout, finished.stderr))
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_accepted_loss_fails_nothing_until_program_or_workload_change() {
    let space = slower();
    let run = ["run", "--json", "--fail-on", "regression"];
    insta::assert_snapshot!(space
            .fails(2, &["accept", "1", "a fix"]), @r"
    error: there are no results yet [PQ0701]
    hint: `perfquilt run` builds, measures and reports
    ");
    let finished = space.run(&run);
    assert_eq!(finished.code, Some(6), "{}", finished.stderr);

    // What is not slower needs no decision, and a decision needs a reason.
    let refused = space.fails(2, &["accept", "2", "a comment"]);
    insta::assert_snapshot!(refused, @r"
    error: 0002-comment-only.patch is not slower in toy-1.0-make [PQ0200]
    hint: `perfquilt report toy-1.0-make` shows its effects
    ");
    assert!(space.fails(2, &["accept", "1"]).contains("<REASON>"));
    let said = space.ok(&["accept", "1", "fixes", "a crash"]);
    assert!(said.contains("accepted as slower on requests"), "{said}");
    let file = space.read("bench-config/decisions.toml");
    assert!(file.contains("reason = \"fixes a crash\""), "{file}");

    let report = ["report", "--fail-on", "regression"];
    let accepted = space.run(&report);
    assert_eq!(accepted.code, Some(0), "{}", accepted.stderr);
    let shown = words(&accepted.stdout);
    assert!(
        shown.contains("slower") && shown.contains("accepted: fixes a crash"),
        "{shown}"
    );
    let lines = space.run(&["report", "--format", "jsonl"]).stdout;
    space.write("o.jsonl", lines);
    let analysed = space.run(&["analyse", "o.jsonl", "--json", "--fail-on", "regression"]);
    assert_eq!(analysed.code, Some(0), "{}", analysed.stderr);
    assert_eq!(
        document(&analysed)["patches"][0]["decision"]["reason"],
        "fixes a crash"
    );
    let comment = document(&space.run(&["post", "--dry-run", "--json", "--fail-on", "regression"]));
    assert_eq!(comment["standing"], "accepted", "{comment:#}");
    assert_eq!(comment["conclusion"], "success");
    let title = comment["title"].as_str().unwrap();
    assert!(title.contains("patch 1 is slower, as accepted"), "{title}");

    let ledger = document(&space.run(&["ledger", "--json"]));
    let faults = crate::schema::faults_of("ledger", &ledger);
    assert!(faults.is_empty(), "{faults:?}");
    let row = &ledger["patches"][0];
    assert_eq!(
        row["owner"],
        "The perfquilt contributors <perfquilt@example.invalid>"
    );
    assert_eq!(row["upstream"][0], "Bug: https://example.org/bug/7");
    assert_eq!(row["cells"][0]["effect"]["verdict"], "slower", "{row:#}");
    assert_eq!(row["decisions"][0]["checked"], true);
    assert_eq!(row["next"], "none", "{row:#}");
    let shown = words(&space.ok(&["ledger"]));
    assert!(shown.contains("accepted on toy-1.0"), "{shown}");
    space.ok(&["ledger", "--output", "ledger.html"]);
    assert!(space.read("ledger.html").contains("fixes a crash"));

    // Another workload is none that somebody accepted it on.
    space.replace(
        "bench-config/workloads/requests.toml",
        "\"100\"]",
        "\"101\"]",
    );
    let finished = space.run(&run);
    assert_eq!(finished.code, Some(6), "{}", finished.stderr);
    let lapsed = &document(&finished)["patches"][0]["decision"]["lapsed"];
    assert!(
        lapsed.as_str().unwrap().starts_with("workload `requests`"),
        "{lapsed}"
    );
    space.replace(
        "bench-config/workloads/requests.toml",
        "\"101\"]",
        "\"100\"]",
    );

    // Another program neither.
    for patch in [SLOWER, "0002-comment-only.patch"] {
        space.replace(&format!("patches/{patch}"), "400000u", "500000u");
    }
    let finished = space.run(&run);
    assert_eq!(finished.code, Some(6), "{}", finished.stderr);
    let shown = words(&space.run(&["report"]).stdout);
    assert!(
        shown.contains("the decision on it lapsed, program of point 1"),
        "{shown}"
    );
    let ledger = document(&space.run(&["ledger", "--json"]));
    let next = &ledger["patches"][0]["next"];
    assert_eq!(*next, "decide again on toy-1.0: the decision lapsed");
    space.ok(&["accept", "1", "--drop", "upstream has a better one"]);
    let ledger = document(&space.run(&["ledger", "--json"]));
    let next = ledger["patches"][0]["next"].as_str().unwrap();
    assert!(
        next.starts_with("drop at the next rebase of toy-1.0"),
        "{next}"
    );
    assert_eq!(
        ledger["patches"][0]["decisions"].as_array().unwrap().len(),
        1
    );
    space.wait_until_no_process_is_left();
}

#[test]
fn a_loss_beyond_the_accepted_one_still_fails() {
    let space = slower();
    let second = "work: even more\n\n--- a/work.h\n+++ b/work.h\n@@ -2 +2 @@\n-#define ROUNDS 400000u\n+#define ROUNDS 1600000u\n";
    space.write("patches/0002-comment-only.patch", second);
    let run = ["run", "--fail-on", "regression"];
    assert_eq!(space.run(&run).code, Some(6));
    space.ok(&["accept", "1", "a fix"]);
    let error = space.fails(6, &["report", "--fail-on", "regression"]);
    assert!(error.contains("slower: 0002-comment-only.patch"), "{error}");
    space.ok(&["accept", "2", "a fix, too"]);
    space.ok(&["report", "--fail-on", "regression"]);
}
