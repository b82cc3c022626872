//! Profile-guided recipes on the toy server: what is trained, what is kept, what does not fit.

use std::path::{Path, PathBuf};

use crate::common::{Finished, TestEnvironment};
use serde_json::Value;

const CONFIG: &str = "bench-config/perfquilt.toml";

/// The toy's workspace with a recipe `pgo`; make takes flags from the environment because of `-e`.
fn environment(of: &str) -> TestEnvironment {
    environment_with(of, "cc")
}

fn environment_with(of: &str, compiler: &str) -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    let recipe = format!(
        "[recipe.pgo]\ninherits = \"make\"\nenv = {{ MAKEFLAGS = \"-e\", CC = \"{compiler}\", CFLAGS = \"-O2\" }}\n\n\
         [recipe.pgo.profile]\nworkloads = [\"requests\"]\ntransactions = 300\nof = \"{of}\"\n\n[server]\n"
    );
    environment.replace(CONFIG, "[server]\n", &recipe);
    environment
}

fn build(environment: &TestEnvironment) -> (Finished, Vec<Value>) {
    let finished = environment.run(&["build", "--recipe", "pgo", "--json"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let rows = rows_of(&finished.stdout);
    (finished, rows)
}

/// The points in what `build --json` printed.
fn rows_of(text: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(text).unwrap();
    document["points"].as_array().unwrap().clone()
}

fn profile(row: &Value) -> &Value {
    &row["built"]["profile"]
}

#[test]
fn the_release_is_trained_once_for_all_points() {
    let environment = environment("base");
    let (first, rows) = build(&environment);
    assert_eq!(
        first
            .stderr
            .matches("trained toy-1.0, instrumented")
            .count(),
        1
    );
    assert_eq!(
        first.stderr.matches("trained").count(),
        1,
        "{}",
        first.stderr
    );
    assert_eq!(profile(&rows[0])["of"], "toy-1.0");
    assert_eq!(profile(&rows[0])["digest"], profile(&rows[1])["digest"]);
    let (again, same) = build(&environment);
    assert!(!again.stderr.contains("train"), "{}", again.stderr);
    assert_eq!(same[1]["built"]["cached"], true);
    // It is another server than without a profile.
    let plain = environment.run(&["build", "--recipe", "make", "--json"]);
    let plain = rows_of(&plain.stdout);
    assert_ne!(plain[0]["built"]["identity"], rows[0]["built"]["identity"]);
    assert!(profile(&plain[0]).is_null());
    // Both can be measured side by side.
    let server = |point: usize, row: &Value| {
        let dir = PathBuf::from(row["built"]["dir"].as_str().unwrap());
        format!("{point}={}", dir.display())
    };
    let (one, other) = (server(0, &plain[0]), server(1, &rows[0]));
    let bench = environment.run(&["run", "--server", &one, "--server", &other]);
    assert_eq!(bench.code, Some(0), "{}", bench.stderr);
}

#[test]
fn a_point_may_have_a_profile_of_its_own() {
    let environment = environment("point");
    let (first, rows) = build(&environment);
    // The third point has the same code, but nobody knows that before it is built.
    assert_eq!(
        first.stderr.matches("trained toy-1.0").count(),
        3,
        "{}",
        first.stderr
    );
    assert_eq!(profile(&rows[0])["of"], "toy-1.0");
    assert_eq!(
        profile(&rows[1])["of"],
        "toy-1.0 up to 0001-fewer-rounds.patch"
    );
    assert_ne!(profile(&rows[0])["digest"], profile(&rows[1])["digest"]);
}

#[test]
fn functions_that_a_patch_changes_do_not_fit_the_shared_profile() {
    // Clang's counts are made into a profile by llvm-profdata.
    for compiler in ["cc", "clang"] {
        let (release, patched) = changed(&environment_with("base", compiler));
        // Clang tells functions apart by name: to it the client's `main` is the server's, changed. For the patch
        // the client is not compiled again.
        assert_eq!(release, u64::from(compiler == "clang"));
        assert!(patched >= 1, "{compiler}");
    }
}

/// How many functions of the release, and of a point that changes one, the profile does not fit.
fn changed(environment: &TestEnvironment) -> (u64, u64) {
    environment.write("series", "0001-another-way.patch\n");
    environment.write(
        "patches/0001-another-way.patch",
        "Subject: another way\n\n--- a/work.h\n+++ b/work.h\n@@ -3,6 +3,8 @@\n \n static unsigned work(unsigned state)\n {\n\
         +  if (state == 7)\n+    return 9;\n   for (unsigned i = 0; i < ROUNDS; i++)\n     state = state * 1664525u + 1013904223u;\n   return state;\n",
    );
    let (_, rows) = build(environment);
    let changed = |row: &Value| profile(row)["changed"].as_u64().unwrap();
    (changed(&rows[0]), changed(&rows[1]))
}

#[test]
fn servers_of_a_lost_profile_do_not_count() {
    let environment = environment("base");
    let (_, rows) = build(&environment);
    let profiles = environment.cache().join("profiles");
    std::fs::remove_dir_all(&profiles).unwrap();
    let (again, new) = build(&environment);
    assert!(again.stderr.contains("trained"), "{}", again.stderr);
    // One thread does the same every time: it may be the same profile again.
    let same = profile(&new[0])["digest"] == profile(&rows[0])["digest"];
    assert_eq!(new[0]["built"]["cached"], same);
    let one = std::fs::read_dir(&profiles)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let described = std::fs::read_to_string(one.join("profile.json")).unwrap();
    let digest = profile(&new[0])["digest"].as_str().unwrap();
    let other = described.replace(digest, &digest.chars().rev().collect::<String>());
    std::fs::write(one.join("profile.json"), other).unwrap();
    let (_, other) = build(&environment);
    assert_eq!(other[0]["built"]["cached"], false);
    assert_ne!(profile(&other[0])["digest"], digest);
    // Half of one is none.
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let folder = entries(&one).into_iter().find(|path| path.is_dir());
    let file = entries(&folder.unwrap())
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "gcda"));
    std::fs::write(file.unwrap(), "").unwrap();
    let (mended, _) = build(&environment);
    assert!(mended.stderr.contains("trained"), "{}", mended.stderr);
}

#[test]
fn what_cannot_work_is_told() {
    let environment = environment("base");
    // Without `-e`, make does not take the flags.
    environment.replace(CONFIG, "MAKEFLAGS = \"-e\", ", "");
    let build = environment.run(&["build", "--recipe", "pgo"]);
    assert_eq!(build.code, Some(4), "{}", build.stderr);
    assert!(build.stderr.contains("[PQ0503]"), "{}", build.stderr);
    assert!(build.stderr.contains("CFLAGS"), "{}", build.stderr);
    // Once, not for every point.
    assert_eq!(build.stderr.matches("training ").count(), 1);
    environment.replace(CONFIG, "transactions = 300", "transactions = 0");
    let none = environment.run(&["build", "--recipe", "pgo"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert!(
        none.stderr
            .contains("needs a workload and some transactions"),
        "{}",
        none.stderr
    );
    environment.replace(
        CONFIG,
        "workloads = [\"requests\"]\ntransactions = 0",
        "workloads = [\"request\"]\ntransactions = 9",
    );
    let unknown = environment.run(&["build", "--recipe", "pgo"]);
    assert!(
        unknown.stderr.contains("did you mean `requests`"),
        "{}",
        unknown.stderr
    );
    environment.wait_until_no_process_is_left();
}
