//! `perfquilt run` on the toy server: servers of all kinds, code layouts, bad input.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::common::{Finished, TestEnvironment};
use serde_json::Value;

const WORKLOAD: &str = "bench-config/workloads/requests.toml";

fn environment() -> TestEnvironment {
    TestEnvironment::with_fixture("toy")
}

fn build(environment: &TestEnvironment) -> Vec<PathBuf> {
    let built = environment.run(&["build", "--recipe", "make", "--json"]);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let document: Value = serde_json::from_str(&built.stdout).unwrap();
    document["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| PathBuf::from(row["built"]["dir"].as_str().unwrap()))
        .collect()
}

fn refused(finished: &Finished, code: i32, words: &str) {
    assert_eq!(finished.code, Some(code), "{}", finished.stderr);
    assert!(finished.stderr.contains(words), "{}", finished.stderr);
}

#[test]
fn the_old_names_of_commands_do_the_same_and_name_the_new_ones() {
    let environment = environment();
    let renamed = |finished: &Finished, new: &str| {
        let told = finished
            .stderr
            .lines()
            .filter(|line| line.contains("is now"));
        let told: Vec<&str> = told.collect();
        assert_eq!(told.len(), 1, "{}", finished.stderr);
        assert!(told[0].contains(new), "{told:?}");
    };
    let bench = environment.run(&["bench", "--blocks", "4", "--json"]);
    renamed(&bench, "`perfquilt run`");
    assert_eq!(bench.code, Some(0), "{}", bench.stderr);
    assert!(bench.stderr.contains("block 4 of 4"), "{}", bench.stderr);
    assert!(crate::common::measures(&bench.stderr), "{}", bench.stderr);
    let bench: Value = serde_json::from_str(&bench.stdout).unwrap();
    // The same points, harness and workload: the same experiment.
    let run = environment.run(&["run", "--blocks", "4", "--json"]);
    assert!(!crate::common::measures(&run.stderr), "{}", run.stderr);
    let run: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(run["patches"], bench["patches"]);
    assert_eq!(run["noise"], bench["noise"]);
    assert_eq!(run["command"], bench["command"]);
    let named = environment.run(&["bench", "--server", "1=nowhere"]);
    renamed(&named, "`perfquilt run --server`");
    let experiment = run["experiment"].as_str().unwrap();
    let compared = environment.run(&["compare", experiment, experiment]);
    renamed(&compared, "`perfquilt history OLD NEW`");
    let history = environment.run(&["history", experiment, experiment]);
    assert_eq!(history.code, Some(0), "{}", history.stderr);
    assert_eq!(history.stdout, compared.stdout);
    assert_eq!(history.stderr, "");
    environment.wait_until_no_process_is_left();
}

/// Has the workload run the script `client` with the word `data`, in a folder beside the workspace, which is returned.
fn with_client_outside(environment: &TestEnvironment, script: &str) -> PathBuf {
    let folder = environment.path("../tools");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    std::fs::write(folder.join("client"), script).unwrap();
    std::fs::write(folder.join("data"), "100").unwrap();
    let shown = folder.display();
    let text = format!(
        "description = \"\"\nkind = \"command\"\n[command]\nrun = [\"sh\", \"{shown}/client\", \"{{server}}/bin/toyc\", \
         \"{{socket}}\", \"--data={shown}/data\"]\ntransactions = 100\nwarm_up = false\n"
    );
    environment.write(WORKLOAD, text);
    folder
}

#[test]
fn what_was_measured_by_another_client_or_with_other_data_is_measured_again() {
    let environment = environment();
    let script = "\"$1\" \"$2\" 100\n";
    let folder = with_client_outside(&environment, script);
    let measures = || {
        let run = environment.run(&["run", "--blocks", "2"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        crate::common::measures(&run.stderr)
    };
    assert!(measures() && !measures());
    std::fs::write(folder.join("client"), format!("{script}true\n")).unwrap();
    assert!(measures() && !measures());
    std::fs::write(folder.join("data"), "200").unwrap();
    assert!(measures() && !measures());
    // The client as it was before has its results.
    std::fs::write(folder.join("client"), script).unwrap();
    std::fs::write(folder.join("data"), "100").unwrap();
    assert!(!measures());
}

/// Writes an executable script into a folder beside the workspace, whose path is returned.
fn script_outside(environment: &TestEnvironment, name: &str, text: &str) -> PathBuf {
    environment.write(&format!("../tools/{name}"), format!("#!/bin/sh\n{text}"));
    environment.executable(&format!("../tools/{name}"));
    environment
        .path("../tools")
        .canonicalize()
        .unwrap()
        .join(name)
}

#[test]
fn what_a_wrapper_of_the_server_reads_is_part_of_the_measurement() {
    let environment = environment();
    let text = ". \"${0%/*}/settings\"\nexec \"$@\"\n";
    let wrapper = script_outside(&environment, "wrapper", text);
    environment.write("../tools/settings", "x=1\n");
    let start = format!("start = [{:?}, ", wrapper.display().to_string());
    environment.replace("bench-config/perfquilt.toml", "start = [", &start);
    let measures = || {
        let run = environment.run(&["run", "--blocks", "2"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        crate::common::measures(&run.stderr)
    };
    assert!(measures() && !measures());
    environment.write("../tools/settings", "x=2\n");
    assert!(measures() && !measures());
}

#[test]
fn a_script_outside_the_workspace_that_builds_is_part_of_the_build() {
    let environment = environment();
    let flags = |flags: &str| {
        let text = format!("exec make CFLAGS='{flags}' \"$@\"\n");
        script_outside(&environment, "build", &text)
    };
    let script = flags("-O2").display().to_string();
    environment.replace(
        "bench-config/perfquilt.toml",
        "[\"make\"",
        &format!("[{script:?}"),
    );
    let before = build(&environment);
    assert_eq!(build(&environment), before);
    flags("-O1");
    let after = build(&environment);
    assert!(
        before.iter().all(|folder| !after.contains(folder)),
        "{after:?}"
    );
}

#[test]
fn what_nobody_could_trace_is_said_in_the_report() {
    let environment = environment();
    // It traces nothing, as where the kernel forbids it.
    let text = "until [ \"$1\" = -- ]; do shift; done\nshift\nexec \"$@\"\n";
    let folder = script_outside(&environment, "strace", text);
    let path = format!(
        "{}:{}",
        folder.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut command = environment.command(&["run", "--blocks", "2"]);
    let run = Finished::from(command.env("PATH", path).output().unwrap());
    let told = "what is read by the server and the client of requests is known only as far as";
    refused(&run, 0, told);
    assert_eq!(run.stderr.matches("known only as far as").count(), 1);
    let page = environment.ok(&["report", "--details", "--format", "markdown"]);
    let known =
        "of the server and of the client of requests, only those that commands and `inputs` name";
    let known = page.replace('\\', "").replace("\\`", "`").contains(known);
    assert!(known, "{page}");
}

#[test]
fn a_block_during_which_a_file_of_the_client_changes_does_not_count() {
    let environment = environment();
    // Not when it is traced: what it writes then is its output.
    let script = "mkdir \"${3#--data=}.traced\" 2> /dev/null || echo 200 > \"${3#--data=}\"\nexec \"$1\" \"$2\" 100\n";
    let folder = with_client_outside(&environment, script);
    let run = environment.run(&["run", "--blocks", "2"]);
    let words = format!("{} changed while", folder.join("data").display());
    refused(&run, 2, &words);
    // From now on it stays as it is.
    let again = environment.run(&["run", "--blocks", "2"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}

#[test]
fn the_log_of_a_server_that_lives_says_why_it_refuses_a_client() {
    let environment = environment();
    environment.replace(
        "bench-config/perfquilt.toml",
        r#"start = ["#,
        r#"start = ["sh", "-c", "echo 'accept: Too many open files' >&2; exec \"$@\"", "sh", "#,
    );
    let client = "run = [\"sh\", \"-c\", \"echo the connection was closed >&2; exit 3\"]";
    let run = r#"run = ["{server}/bin/toyc", "{socket}", "100"]"#;
    environment.replace(WORKLOAD, run, client);
    let run = environment.run(&["run", "--blocks", "2"]);
    refused(&run, 5, "the connection was closed");
    refused(&run, 5, "the server's log: accept: Too many open files");
}

#[test]
fn servers_built_elsewhere_are_measured() {
    let environment = environment();
    let built = build(&environment);
    let elsewhere = environment.workspace().join("elsewhere");
    crate::common::copy(&built[1], &elsewhere);
    let base = format!("0={}", built[0].display());
    let args = ["run", "--server", &base, "--server", "1=elsewhere"];
    let report = environment.run(&args);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    assert!(report.stdout.contains("elsewhere"), "{}", report.stdout);
    // Somebody's servers are no series, nor a moment in its history.
    assert!(
        report.stdout.contains("\n1 server compared with"),
        "{}",
        report.stdout
    );
    let list = environment.run(&["report", "--list"]);
    assert!(list.stdout.contains("1 server  "), "{}", list.stdout);
    let history = environment.run(&["history"]);
    assert!(!history.stdout.contains("quick"), "{}", history.stdout);
    // The data that such a server made are its own, and not those of the release.
    let data = std::fs::read_dir(environment.cache().join("data")).unwrap();
    for entry in data {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("elsewhere-"), "{name}");
    }

    std::fs::remove_file(elsewhere.join("bin/toyd")).unwrap();
    refused(&environment.run(&args), 2, "elsewhere/bin/toyd");
    let alone = environment.run(&["run", "--server", "1=elsewhere"]);
    assert_ne!(alone.code, Some(0));
    let control = environment.run(&["run", "--server", "control=elsewhere"]);
    refused(&control, 2, "added automatically");
}

#[test]
fn points_that_cannot_be_had_are_left_out() {
    let environment = environment();
    // Without patch 1, patch 2 does not apply.
    let apart = ["run", "--blocks", "2", "--effects", "alone,without"];
    let finished = environment.run(&[&apart[..], &["--json"]].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(document["failed"]["without:1"].is_string(), "{document:#}");
}

#[test]
fn servers_are_named_by_point_and_recipe_and_told_by_rate() {
    let environment = environment();
    environment.replace(
        "bench-config/perfquilt.toml",
        "[server]\n",
        "[recipe.slow]\ninherits = \"make\"\nenv = { MAKEFLAGS = \"-e\", CFLAGS = \"-O0\" }\n\n[server]\n",
    );
    let args = [
        "run", "--server", "0=0@slow", "--server", "1=1.0:0", "--server", "2=1",
    ];
    let rates = environment.run(&[&args[..], &["--format", "rates"]].concat());
    assert_eq!(rates.code, Some(0), "{}", rates.stderr);
    let rows: Vec<&str> = rates
        .stdout
        .lines()
        .filter(|line| line.starts_with("| requests"))
        .collect();
    assert_eq!(rows.len(), 3, "{}", rates.stdout);
    assert!(rows[0].contains("toy-1.0 (slow)"), "{rows:#?}");
    assert!(
        rows[1].contains("toy-1.0") && rows[2].contains("0001-fewer-rounds.patch"),
        "{rows:#?}"
    );
    let rate = |row: &str| -> f64 {
        let cell = row.split('|').nth(3).unwrap().trim().replace(',', "");
        cell.parse().unwrap()
    };
    // A quarter of the rounds; the rest of a request costs what it did, most of it on a busy machine.
    assert!(rate(rows[2]) > 1.2 * rate(rows[1]), "{rows:#?}");
    assert!(
        rows[2].contains("faster") && !rows[0].contains('%'),
        "{rows:#?}"
    );
    let wrong = environment.run(&["run", "--server", "0=0", "--server", "1=0@fast"]);
    refused(&wrong, 2, "there is no recipe `fast`");
    let wrong = environment.run(&["run", "--server", "0=0", "--server", "1=nowhere"]);
    refused(&wrong, 2, "neither a point");
}

#[test]
fn processor_time_is_read_beside_time() {
    let environment = environment();
    build(&environment);
    let config = "bench-config/perfquilt.toml";
    environment.replace(
        config,
        "meters = [\"time\"]",
        "meters = [\"time\", \"cpu\"]",
    );
    let report = environment.run(&["run", "--blocks", "2", "--format", "jsonl"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let of = |meter: &str| {
        let mark = format!("\"meter\":\"{meter}\"");
        let observations = report.stdout.lines().skip(1);
        observations.filter(|line| line.contains(&mark)).count()
    };
    // Two blocks of the base, the first patch and the control.
    assert_eq!((of("time"), of("cpu")), (6, 6), "{}", report.stdout);
}

#[test]
fn wrong_settings_are_told_before_anything_is_measured() {
    let environment = environment();
    build(&environment);
    refused(&environment.run(&["run", "--blocks", "1"]), 2, "2 blocks");
    let unknown = environment.run(&["run", "--workload", "request"]);
    refused(&unknown, 2, "did you mean `requests`?");
    environment.replace(
        WORKLOAD,
        "transactions = 100",
        "transactions = 100\nrate = '('",
    );
    refused(&environment.run(&["run"]), 2, "`rate`");
    environment.replace(WORKLOAD, "rate = '('", "rate = '[0-9]+ a second'");
    refused(&environment.run(&["run"]), 2, "needs a group");
}

#[test]
fn a_client_that_fails_everywhere_is_the_workloads_fault() {
    let environment = environment();
    build(&environment);
    environment.replace(WORKLOAD, "\"100\"]", "\"many\"]");
    let finished = environment.run(&["run"]);
    refused(&finished, 5, "workload requests: the client exited with");
    // Not a point's: none is skipped.
    let points = finished.stderr.matches("warning: point").count();
    assert_eq!(points, 0, "{}", finished.stderr);
    let workloads = finished.stderr.matches("warning: workload requests");
    assert_eq!(workloads.count(), 1, "{}", finished.stderr);
    environment.replace(WORKLOAD, "\"{server}/bin/toyc\"", "\"no-such-client\"");
    refused(&environment.run(&["run"]), 2, "no-such-client");
    environment.wait_until_no_process_is_left();
}

#[test]
fn a_rate_that_is_not_in_the_output_is_told_with_the_output() {
    let environment = environment();
    build(&environment);
    environment.replace(
        WORKLOAD,
        "transactions = 100",
        "transactions = 100\nrate = 'rate: ([0-9.]+)'",
    );
    let finished = environment.run(&["run"]);
    refused(&finished, 5, "no transactions per second");
}

/// Makes the toy's executable one that is linked again for every start.
fn relinked(environment: &TestEnvironment, command: &str) {
    let path = environment.workspace().join("bench-config/perfquilt.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let config = config
        .replace(
            "build = [[\"make\", \"-j{jobs}\"]]",
            "build = [[\"make\", \"-j{jobs}\"], [\"cc\", \"-O2\", \"-c\", \"toyd.c\"]]",
        )
        .replace(
            "[server]\n",
            &format!(
                "[recipe.make.relink]\nkeep = {{ \"toyd.o\" = \"{{build}}/toyd.o\" }}\n\
                 command = {command}\n\n[server]\n"
            ),
        );
    std::fs::write(&path, config).unwrap();
}

/// Sets the key `layouts` of the preset.
fn set_layouts(environment: &TestEnvironment, layouts: &str) {
    let config = "bench-config/perfquilt.toml";
    let key = format!("[preset.quick]\nlayouts = \"{layouts}\"\n");
    environment.replace(config, "[preset.quick]\n", &key);
}

#[test]
fn every_block_runs_the_servers_in_other_layouts() {
    let environment = environment();
    relinked(&environment, r#"["cc", "-o", "{output}", "toyd.o"]"#);
    build(&environment);
    let bench = environment.run(&["run", "--blocks", "16", "--json"]);
    assert_eq!(bench.code, Some(0), "{}", bench.stderr);
    let bench: Value = serde_json::from_str(&bench.stdout).unwrap();
    // Two blocks have the same layouts, and units whose values go up and down together count for fewer.
    assert_eq!(bench["noise"]["layouts"], 8, "{:#}", bench["noise"]);
    let effect = &bench["patches"][0]["effects"][0];
    let units = effect["units"].as_u64().unwrap();
    assert!((2..=8).contains(&units), "{effect:#}");
    assert_eq!(effect["blocks"], 16, "{effect:#}");
    assert!(effect["low"].is_number(), "{effect:#}");
    let spread = &bench["noise"]["spread"][0];
    for part in ["block_sd", "layout_sd"] {
        assert!(spread[part].is_number(), "{part}: {spread:#}");
    }
    // On a slow machine a block has too few rounds to tell what is within it; then neither is told.
    let tells = |part: &str| spread[part].is_number();
    assert_eq!(tells("within_sd"), tells("restart_sd"), "{spread:#}");
    let observations = environment.run(&["report", "--format", "jsonl"]).stdout;
    let mut layouts: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in observations.lines().skip(1) {
        let observation: Value = serde_json::from_str(line).unwrap();
        let Some(layout) = observation["layout"].as_u64() else {
            continue;
        };
        let point = observation["point"].as_str().unwrap().to_owned();
        layouts.entry(layout).or_default().insert(point);
    }
    assert_eq!(layouts.len(), 8);
    let shared = |points: &BTreeSet<String>| points.len() == 3;
    assert!(
        layouts.values().all(shared),
        "base, patch, control: {layouts:?}"
    );
    assert!(!layouts.contains_key(&0));

    set_layouts(&environment, "off");
    let fixed = environment.run(&["run", "--blocks", "2", "--json"]);
    assert_eq!(fixed.code, Some(0), "{}", fixed.stderr);
    let fixed: Value = serde_json::from_str(&fixed.stdout).unwrap();
    assert_eq!(fixed["noise"]["layouts"], 1);
    assert_ne!(fixed["harness"], bench["harness"]);
    assert_ne!(fixed["experiment"], bench["experiment"]);
    environment.wait_until_no_process_is_left();
}

#[test]
fn a_relink_that_fails_ends_it_instead_of_measuring_something_else() {
    let environment = environment();
    relinked(
        &environment,
        r#"["sh", "-c", "echo no room for {output} >&2; exit 1"]"#,
    );
    build(&environment);
    let bench = environment.run(&["run", "--blocks", "2"]);
    refused(&bench, 5, "no room for");
    assert!(
        bench.stderr.contains("`layouts = \"off\"`"),
        "{}",
        bench.stderr
    );
    set_layouts(&environment, "off");
    let fixed = environment.run(&["run", "--blocks", "2"]);
    assert_eq!(fixed.code, Some(0), "{}", fixed.stderr);
}

#[test]
fn servers_that_cannot_be_linked_again_are_measured_as_they_are_and_it_is_said() {
    let environment = environment();
    build(&environment);
    let bench = environment.run(&["run", "--blocks", "2"]);
    assert_eq!(bench.code, Some(0), "{}", bench.stderr);
    assert!(bench.stderr.contains("[PQ0650]"), "{}", bench.stderr);
    set_layouts(&environment, "padded");
    let required = environment.run(&["run", "--blocks", "2", "--fresh"]);
    refused(&required, 2, "section `relink`");
}

#[test]
fn the_control_is_the_release_built_as_the_preset_says() {
    let environment = environment();
    let built = environment.run(&["build", "control", "--json"]);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let document: Value = serde_json::from_str(&built.stdout).unwrap();
    let points = document["points"].as_array().unwrap();
    assert_eq!(points.len(), 1, "{document:#}");
    assert_eq!(points[0]["point"], "0", "{document:#}");
}

#[test]
fn options_that_mean_nothing_together_are_refused() {
    let environment = environment();
    for wrong in [
        &["run", "--server=0=0", "--server=1=1", "--effects=alone"][..],
        &["run", "--server=0=0", "--server=1=1", "--sandbox"],
        &["run", "--server=0=0", "--server=1=1", "--dry-run"],
        &["run", "--server=0=0"],
        &["build", "--on", "slrum"],
        &["history", "a", "b", "--meter", "cpu"],
        &["history", "a"],
        &["report", "--list", "--output", "x"],
        &["profile", "0", "1", "--json", "--format", "markdown"],
    ] {
        let finished = environment.run(wrong);
        assert_eq!(finished.code, Some(2), "{wrong:?}: {}", finished.stderr);
    }
    // Before the other server is built.
    let finished = environment.run(&["run", "--server=0=0", "--server=1=9"]);
    assert!(
        finished.code != Some(0) && !finished.stderr.contains("build"),
        "{}",
        finished.stderr
    );
}
