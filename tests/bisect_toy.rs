//! `perfquilt bisect` on the toy server: planted culprits, bad input, kills.

use std::fmt::Write;

use crate::common::{Finished, TestEnvironment};
use rustix::process::Signal;
use serde_json::Value;

/// Effect of change `k` on the toy's server.
#[derive(Clone, Copy)]
enum Change {
    /// So many rounds of work a request from here on.
    Rounds(u32),
    /// Another binary, the same work.
    Nothing,
    /// It does not compile from here on.
    Broken,
    /// It dies at the 150th request from here on.
    Dies,
    /// The broken state is mended.
    Mended,
    /// The same binary.
    Comment,
}

use Change::{Broken, Comment, Dies, Mended, Nothing, Rounds};

/// The toy's `work.h` after some changes.
fn work(changes: &[Change]) -> String {
    let (mut rounds, mut broken, mut dies, mut pad, mut comments) = (20_000, false, false, 0, 0);
    for change in changes {
        match change {
            Rounds(number) => rounds = *number,
            Nothing => pad += 1,
            Broken => broken = true,
            Dies => dies = true,
            Mended => (broken, dies) = (false, false),
            Comment => comments += 1,
        }
    }
    let mut text = format!("/* What one request costs, {comments}. */\n#define ROUNDS {rounds}u\n");
    if broken {
        text.push_str("#error it does not compile\n");
    }
    // Data that nothing reads: another binary that works as fast.
    writeln!(
        text,
        "__attribute__((used)) static const unsigned pad = {pad}u;"
    )
    .unwrap();
    writeln!(text, "static unsigned served;").unwrap();
    text.push_str("static unsigned work(unsigned state)\n{\n  served++;\n");
    if dies {
        text.push_str("  if (served > 150)\n    __builtin_trap();\n");
    }
    text.push_str(
        "  for (unsigned i = 0; i < ROUNDS; i++)\n    state = state * 1664525u + 1013904223u;\n  \
         return state;\n}\n",
    );
    text
}

/// A patch that replaces all lines of `work.h`.
fn patch(number: usize, old: &str, new: &str) -> String {
    let mut text = format!(
        "From: A Tester <tester@example.org>\nDate: Mon, 2 Nov 2026 12:00:00 +0000\n\
         Subject: change {number}\n\n--- a/work.h\n+++ b/work.h\n@@ -1,{} +1,{} @@\n",
        old.lines().count(),
        new.lines().count()
    );
    old.lines()
        .for_each(|line| writeln!(text, "-{line}").unwrap());
    new.lines()
        .for_each(|line| writeln!(text, "+{line}").unwrap());
    text
}

/// A workspace whose series makes these changes.
fn environment(changes: &[Change]) -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("upstream/work.h", work(&[]));
    let config = "bench-config/perfquilt.toml";
    environment.replace(config, "block_seconds = 0.3", "block_seconds = 0.1");
    write_series(&environment, changes);
    environment
}

fn write_series(environment: &TestEnvironment, changes: &[Change]) {
    for file in std::fs::read_dir(environment.workspace().join("patches")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let mut names = String::new();
    for number in 1..=changes.len() {
        let name = format!("{number:04}-change.patch");
        let (old, new) = (work(&changes[..number - 1]), work(&changes[..number]));
        environment.write(&format!("patches/{name}"), patch(number, &old, &new));
        writeln!(names, "{name}").unwrap();
    }
    environment.write("series", &names);
}

/// `Nothing` but for some changes.
fn changes(count: usize, others: &[(usize, Change)]) -> Vec<Change> {
    let mut all = vec![Nothing; count];
    for (place, change) in others {
        all[place - 1] = *change;
    }
    all
}

/// Looks for changes of 20 %, which a busy test machine can tell in few blocks.
fn bisect(environment: &TestEnvironment, args: &[&str]) -> Finished {
    let mut all = vec!["bisect", "--size", "20%", "--error", "5%", "--json"];
    all.push("--no-profile");
    all.extend(args);
    environment.run(&all)
}

fn outcome(finished: &Finished) -> Value {
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap()
}

/// The culprits as ranges of states.
fn culprits(outcome: &Value) -> Vec<(u64, u64)> {
    outcome["culprits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|culprit| {
            assert_eq!(culprit["confirmed"], true, "{outcome:#}");
            (
                culprit["from"].as_u64().unwrap(),
                culprit["to"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_planted_culprit_is_found_with_few_builds_and_confirmed() {
    let environment = environment(&changes(16, &[(9, Rounds(60_000))]));
    let finished = bisect(&environment, &[]);
    let found = outcome(&finished);
    let explained = environment.run(&["bisect", "--size", "20%", "--error", "5%", "--json"]);
    let explained = outcome(&explained);
    assert_eq!(found["conclusion"], "found");
    assert_eq!(culprits(&found), [(8, 9)]);
    let culprit = &found["culprits"][0];
    assert_eq!(culprit["names"][0], "0009-change.patch");
    assert_eq!(culprit["titles"][0], "change 9");
    assert_eq!(culprit["files"][0]["path"], "work.h");
    let slowest = culprit["effect"]["high"].as_f64();
    assert!(slowest.is_some_and(|high| high < 0.0), "{culprit}");
    // log2(16) + 2.
    assert!(
        found["cost"]["builds"].as_u64().unwrap() <= 6,
        "{}",
        found["cost"]
    );
    // perfquilt reports each decision at once.
    assert!(
        finished.stderr.contains("patch 9 named"),
        "{}",
        finished.stderr
    );

    // Which functions it is, is looked up afterwards where it was not at once, and once.
    assert_eq!(found["culprits"][0]["functions"], Value::Null);
    assert_eq!(explained["path"], found["path"]);
    let functions = &explained["culprits"][0]["functions"];
    assert_eq!(functions[0]["function"], "main", "{functions}");
    let share = functions[0]["share"].as_f64().unwrap();
    assert!((1.5..2.1).contains(&share), "{functions}");

    // The same question again is answered from the session.
    let again = bisect(&environment, &[]);
    assert_eq!(outcome(&again)["path"], found["path"]);
    assert!(!again.stderr.contains("building"), "{}", again.stderr);

    // The log shows it, and replays to the same decisions anywhere.
    let shown = environment.run(&["bisect", "log"]);
    assert!(
        shown.stdout.contains("Patch 9 made requests (time) slower"),
        "{}",
        shown.stdout
    );
    let raw = environment.run(&["bisect", "log", "--raw"]);
    environment.write("log.json", &raw.stdout);
    let replayed = environment.run(&["bisect", "replay", "log.json", "--json"]);
    let replayed = outcome(&replayed);
    for part in ["path", "culprits", "next"] {
        assert_eq!(replayed[part], explained[part]);
    }
    assert!(shown.stdout.contains("main +"), "{}", shown.stdout);
    // The later patches stand on this one, so the series cannot be measured without it.
    assert!(
        shown.stdout.contains("next: perfquilt profile 8 9"),
        "{}",
        shown.stdout
    );
    let markdown = environment
        .run(&["bisect", "log", "--format", "markdown"])
        .stdout;
    assert!(
        markdown.starts_with("## Patch 9 made") && markdown.contains("<details>"),
        "{markdown}"
    );
    let listed = environment.run(&["bisect", "log", "--list"]).stdout;
    assert!(
        listed.contains("toy-1.0  requests  time  found"),
        "{listed}"
    );

    // What is suggested next can be done.
    let next = found["next"][0]["command"].as_str().unwrap().to_owned();
    let words: Vec<&str> = next.split(' ').skip(1).collect();
    let ran = environment.run(&words);
    assert_eq!(ran.code, Some(0), "{next}: {}", ran.stderr);
    environment.wait_until_no_process_is_left();
}

#[test]
fn a_culprit_at_either_end_and_two_of_them_are_found() {
    let two = environment(&changes(7, &[(1, Rounds(60_000)), (7, Rounds(180_000))]));
    let found = outcome(&bisect(&two, &[]));
    assert_eq!(culprits(&found), [(0, 1), (6, 7)], "{found:#}");
    // A part of the range, told by points.
    let part = outcome(&bisect(&two, &["--good", "3"]));
    assert_eq!(culprits(&part), [(3, 4)]);
    assert_eq!(part["culprits"][0]["names"][0], "0007-change.patch");
    // The last patch can be left out.
    let next = part["next"][0]["command"].as_str().unwrap();
    assert!(
        next.starts_with("perfquilt run --point 7 --effects without --workload requests"),
        "{next}"
    );
}

#[test]
fn no_difference_and_the_other_direction_are_told() {
    let none = environment(&changes(5, &[(3, Comment)]));
    let found = outcome(&bisect(&none, &[]));
    assert_eq!(found["conclusion"], "nothing");
    assert_eq!(found["cost"]["builds"], 2);
    // The same binary at both ends: nothing is measured.
    let same = environment(&[Comment, Comment]);
    let found = outcome(&bisect(&same, &[]));
    assert_eq!(
        (&found["conclusion"], &found["cost"]["blocks"]),
        (&"nothing".into(), &0.into())
    );
    // Asked again it is the same bisection; servers that are made otherwise are another one's.
    let list = || same.run(&["bisect", "log", "--list"]).stdout;
    outcome(&bisect(&same, &[]));
    assert_eq!(list().lines().count(), 1);
    same.replace(
        "bench-config/perfquilt.toml",
        "\"-j{jobs}\"",
        "\"-j{jobs}\", \"-s\"",
    );
    outcome(&bisect(&same, &[]));
    assert_eq!(list().lines().count(), 2);

    let faster = environment(&changes(4, &[(1, Rounds(180_000)), (2, Rounds(500))]));
    let found = outcome(&bisect(&faster, &["--good", "1"]));
    assert_eq!(found["conclusion"], "opposite");
    let found = outcome(&bisect(&faster, &["--good", "1", "--direction", "faster"]));
    assert_eq!(culprits(&found), [(0, 1)]);
    assert_eq!(found["culprits"][0]["names"][0], "0002-change.patch");
}

#[test]
fn states_that_do_not_build_give_a_range() {
    let some = environment(&changes(
        8,
        &[(3, Broken), (4, Rounds(60_000)), (6, Mended)],
    ));
    let found = outcome(&bisect(&some, &[]));
    assert_eq!(culprits(&found), [(2, 6)]);
    let range = found["culprits"][0]["range"].as_str().unwrap();
    assert!(range.contains("none of the 3 states between"), "{range}");
    let shown = environment_log(&some);
    assert!(
        shown.contains("One or more of patches 3 to 6 made"),
        "{shown}"
    );
    assert!(shown.contains("does not compile"), "{shown}");
    // All between good and bad.
    let all = environment(&[Broken, Rounds(60_000), Nothing, Mended]);
    assert_eq!(culprits(&outcome(&bisect(&all, &[]))), [(0, 4)]);
    // An end: nothing can be compared.
    let end = environment(&[Nothing, Broken]);
    let finished = bisect(&end, &[]);
    assert_eq!(finished.code, Some(4), "{}", finished.stderr);
    assert!(
        finished
            .stderr
            .contains("the bad end, 2, cannot be measured"),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.contains("`--bad`"), "{}", finished.stderr);
}

fn environment_log(environment: &TestEnvironment) -> String {
    let shown = environment.run(&["bisect", "log"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    shown.stdout
}

#[test]
fn servers_that_crash_at_some_states_are_left_out() {
    let some = environment(&changes(8, &[(3, Dies), (5, Mended), (7, Rounds(60_000))]));
    assert_eq!(culprits(&outcome(&bisect(&some, &[]))), [(6, 7)]);
    // The change lies where they crash.
    let inside = environment(&changes(6, &[(2, Dies), (3, Rounds(60_000)), (5, Mended)]));
    assert_eq!(culprits(&outcome(&bisect(&inside, &[]))), [(1, 5)]);
    inside.wait_until_no_process_is_left();
    // The bad end itself.
    let end = environment(&changes(3, &[(3, Dies)]));
    let finished = bisect(&end, &[]);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("the bad end, 3,"),
        "{}",
        finished.stderr
    );
    // The good one.
    let end = environment(&changes(3, &[(1, Dies), (3, Mended)]));
    let finished = bisect(&end, &["--good", "1", "--bad", "3"]);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    for words in ["the good end, 1,", "`--good`"] {
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
}

#[test]
fn an_end_that_could_not_be_built_is_tried_again() {
    let environment = environment(&changes(2, &[(2, Rounds(60_000))]));
    let config = "bench-config/perfquilt.toml";
    // Nothing builds as long as a file is missing, which is no part of the question.
    let mark = environment.workspace().join("mended");
    let guarded = format!(r#""sh", "-c", "test -e {} && make""#, mark.display());
    environment.replace(config, r#""make", "-j{jobs}""#, &guarded);
    let finished = bisect(&environment, &[]);
    assert_eq!(finished.code, Some(4), "{}", finished.stderr);
    std::fs::write(&mark, "").unwrap();
    assert_eq!(culprits(&outcome(&bisect(&environment, &[]))), [(1, 2)]);
}

#[test]
fn what_a_run_measured_is_used() {
    let environment = environment(&changes(4, &[(3, Rounds(60_000))]));
    let ran = environment.run(&["run", "--json", "--blocks", "18"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let found = outcome(&bisect(&environment, &[]));
    assert_eq!(culprits(&found), [(2, 3)]);
    assert_eq!(found["cost"]["builds"], 0);
    assert!(found["cost"]["stored"].as_u64().unwrap() >= 12);
    // Up to the name nothing was measured.
    let path = found["path"].as_array().unwrap();
    let named = path
        .iter()
        .find(|step| step["decision"] == "named")
        .unwrap();
    assert_eq!(named["after"], 0);
    assert!(found["cost"]["blocks"].as_u64().unwrap() > 0);
    // Unless it is not to be.
    let fresh = outcome(&bisect(&environment, &["--fresh"]));
    assert_eq!(culprits(&fresh), [(2, 3)]);
    assert_eq!(fresh["cost"]["stored"], 0);
}

/// Begins a bisection and kills it where it says `mark`.
fn killed_at(environment: &TestEnvironment, mark: &str) {
    let args = ["bisect", "--size", "20%", "--error", "5%", "--json"];
    assert_eq!(environment.stopped_at(&args, mark, Signal::KILL), None);
}

#[test]
fn a_killed_bisection_goes_on_and_one_of_an_edited_series_begins_anew() {
    let mut all = changes(8, &[(5, Rounds(60_000))]);
    let environment = environment(&all);
    killed_at(&environment, "continue in");
    let before = environment.run(&["bisect", "log", "--json"]);
    let before: Value = serde_json::from_str(&before.stdout).unwrap();
    assert_eq!(before["conclusion"], "unfinished");
    let blocks = before["cost"]["blocks"].as_u64().unwrap();
    assert!(blocks > 0);
    let finished = bisect(&environment, &[]);
    assert!(
        finished.stderr.contains("continuing bisection"),
        "{}",
        finished.stderr
    );
    let found = outcome(&finished);
    assert_eq!(culprits(&found), [(4, 5)]);
    // What was decided stands.
    let (old, new) = (
        before["path"].as_array().unwrap(),
        found["path"].as_array().unwrap(),
    );
    assert_eq!(new[..old.len()], old[..]);

    // Edited in the middle of another one: it is said, and what is unchanged need not be measured again.
    all[7] = Rounds(180_000);
    write_series(&environment, &all);
    killed_at(&environment, "searched");
    all[7] = Nothing;
    all[1] = Comment;
    write_series(&environment, &all);
    let finished = bisect(&environment, &[]);
    assert!(finished.stderr.contains("[PQ1050]"), "{}", finished.stderr);
    assert_eq!(culprits(&outcome(&finished)), [(4, 5)]);
}

#[test]
fn nonsense_is_refused_before_anything_is_built() {
    let environment = environment(&changes(3, &[]));
    for (args, words) in [
        (&["--good", "2", "--bad", "2"][..], "the same state"),
        (&["--good", "3", "--bad", "1"], "comes after"),
        (&["--bad", "4"], "the series has 3 patches"),
        (&["--good", "alone:1"], "in order"),
        (&["--workload", "request"], "requests"),
        (&["--size", "0"], "size"),
        (&["--error", "50%"], "error rate"),
        (&["--blocks", "1"], "at least 2"),
        (&["--meter", "seconds"], "not a meter"),
        (&["--format", "markdown"], "different formats"),
    ] {
        let mut all = vec!["bisect", "--json"];
        all.extend(args);
        let refused = environment.run(&all);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
        assert!(
            refused.stderr.contains(words),
            "{args:?}: {}",
            refused.stderr
        );
    }
    environment.write("file", "");
    let refused = bisect(&environment, &["--outcome", "file"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    for args in [
        &["bisect", "log"][..],
        &["bisect", "log", "../x"],
        &["bisect", "replay", "series"],
        &["bisect", "replay", "missing"],
    ] {
        let refused = environment.run(args);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
    }
    assert!(!environment.workspace().join(".perfquilt/bisect").exists());
}

#[test]
fn a_header_that_no_rule_names_does_not_mislead_it() {
    let environment = environment(&changes(6, &[(3, Rounds(60_000))]));
    environment.replace("upstream/Makefile", "toyd: toyd.c work.h", "toyd: toyd.c");
    assert_eq!(culprits(&outcome(&bisect(&environment, &[]))), [(2, 3)]);
}
