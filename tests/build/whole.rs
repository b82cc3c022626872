//! `perfquilt build` from outside: interruptions, kills, two at once, two workspaces.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::TestEnvironment;

/// How long anything here may take before the test fails.
const LIMIT: Duration = Duration::from_secs(60);

/// The toy server built by CMake, one step of which waits for the file `go`.
fn gated() -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        "bench-config/perfquilt.toml",
        "system = \"command\"\nbuild = [[\"make\", \"-j{jobs}\"]]",
        "system = \"cmake\"\ncmake_args = [\"-DGATE={config}\"]",
    );
    environment.write(
        "upstream/CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.16)\nproject(toy C)\n\
         add_executable(toyd toyd.c)\n\
         add_custom_command(OUTPUT gate.h COMMAND sh ${GATE}/gate.sh ${GATE} DEPENDS toyd)\n\
         add_executable(toyc toyc.c ${CMAKE_CURRENT_BINARY_DIR}/gate.h)\n",
    );
    environment.write(
        "bench-config/gate.sh",
        "touch $1/waiting\nuntil [ -e $1/go ]; do sleep 0.02; done\ntouch gate.h\n",
    );
    environment
}

fn start(environment: &TestEnvironment) -> Child {
    environment
        .command(&["build", "--recipe", "make", "0"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn at_the_gate(environment: &TestEnvironment) {
    let waiting = environment.workspace().join("bench-config/waiting");
    wait_for("the gate is reached", || waiting.exists());
    std::fs::remove_file(waiting).unwrap();
}

/// Folders of finished servers; partial ones show too.
fn results(environment: &TestEnvironment) -> Vec<PathBuf> {
    let folder = environment.cache().join("builds");
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn what_was_stopped_goes_on_where_it_was() {
    let environment = gated();
    let signals = [
        (Signal::KILL, None),
        (Signal::INT, Some(130)),
        (Signal::TERM, Some(130)),
    ];
    for (how, code) in signals {
        let mut child = start(&environment);
        at_the_gate(&environment);
        kill_process(Pid::from_child(&child), how).unwrap();
        assert_eq!(child.wait().unwrap().code(), code, "{how:?}");
        environment.wait_until_no_process_is_left();
        assert_eq!(results(&environment), Vec::<PathBuf>::new(), "{how:?}");
    }
    environment.write("bench-config/go", "");
    let finished = environment.run(&["build", "--recipe", "make", "0", "--json"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(results(&environment).len(), 1);
    let rows: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let built = &rows["points"][0]["built"];
    assert_eq!(
        built["seconds"]["configure"], 0.0,
        "configured before the kill"
    );
    assert_eq!(
        built["compiled_units"], 1,
        "the other unit was compiled before the kill"
    );
}

#[test]
fn two_at_once_build_one_after_the_other() {
    let environment = gated();
    let mut first = start(&environment);
    at_the_gate(&environment);
    let mut second = start(&environment);
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines();
    let told = lines.find(|line| {
        line.as_ref()
            .is_ok_and(|line| line.contains("waiting: another"))
    });
    assert!(told.is_some(), "the second says why it waits");
    environment.write("bench-config/go", "");
    assert!(first.wait().unwrap().success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(second.wait().unwrap().success(), "{rest:?}");
    assert_eq!(results(&environment).len(), 1);
}

#[test]
fn another_workspace_with_the_same_cache_builds_its_own_series() {
    let environment = TestEnvironment::with_fixture("toy");
    let first = environment.run(&["build", "--recipe", "make"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    // A fresh clone has another object store, which knows nothing of the first one's trees.
    std::fs::remove_dir_all(environment.workspace().join(".perfquilt")).unwrap();
    environment.replace(
        "patches/0002-comment-only.patch",
        "+/* What",
        "+static const char note[] = \"changed\"; /* What",
    );
    let second = environment.run(&["build", "--recipe", "make", "--json"]);
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    let rows: serde_json::Value = serde_json::from_str(&second.stdout).unwrap();
    let cached = |point: usize| rows["points"][point]["built"]["cached"].as_bool();
    assert_eq!(
        [cached(0), cached(1), cached(2)],
        [Some(true), Some(true), Some(false)]
    );
}

#[test]
fn a_point_that_fails_is_told_with_its_patch_and_the_others_are_built() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        "patches/0002-comment-only.patch",
        "+/* What",
        "+#error /* What",
    );
    let finished = environment.run(&["build", "--recipe", "make", "0", "1", "2", "alone:1"]);
    assert_eq!(finished.code, Some(4), "{}", finished.stderr);
    for part in [
        "work.h:1",
        "0002-comment-only.patch",
        "the patch touches work.h",
    ] {
        assert!(finished.stderr.contains(part), "{}", finished.stderr);
    }
    let table: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(table.len(), 5, "{}", finished.stdout);
    let failed = |line: &str| line.contains("failed");
    assert!(
        table[3].starts_with("2 ") && failed(table[3]),
        "{}",
        table[3]
    );
    assert!(
        table[4].starts_with("alone:1 ") && !failed(table[4]),
        "{}",
        table[4]
    );
}
