//! Patches whose code a workload does not execute, on the toy server.

use std::collections::BTreeSet;

use crate::common::TestEnvironment;
use serde_json::Value;

const WORK: &str = "/* What requests cost. */
#define ROUNDS 100000u
#define RARE_ROUNDS 100000u

static __attribute__((noinline)) unsigned work(unsigned state)
{
  for (unsigned i = 0; i < ROUNDS; i++)
    state = state * 1664525u + 1013904223u;
  return state;
}

static __attribute__((noinline)) unsigned rare(unsigned state)
{
  for (unsigned i = 0; i < RARE_ROUNDS; i++)
    state = state * 1103515245u + 12345u;
  return state;
}
";

/// A server with two kinds of requests, a workload for each, and patches that make the second kind and then the
/// first cheaper. Only the first kind is needed to start it.
fn environment() -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("upstream/work.h", WORK);
    environment.replace(
        "upstream/toyd.c",
        "state = work(state ^ (unsigned char) byte);",
        "state = byte == 'y' ? rare(state) : work(state ^ (unsigned char) byte);",
    );
    let client = "upstream/toyc.c";
    environment.replace(client, "argc == 3 ?", "argc >= 3 ?");
    environment.replace(
        client,
        "char byte = 'x';",
        "char byte = argc == 4 ? 'y' : 'x', got;",
    );
    environment.replace(client, "read(server, &byte, 1)", "read(server, &got, 1)");
    let workload = "bench-config/workloads/requests.toml";
    let text = std::fs::read_to_string(environment.workspace().join(workload)).unwrap();
    let rare = text.replace("\"100\"]", "\"100\", \"y\"]");
    environment.write("bench-config/workloads/rare.toml", &rare);
    let config = "bench-config/perfquilt.toml";
    environment.replace(config, "[\"requests\"]", "[\"requests\", \"rare\"]");
    environment.replace(
        config,
        "build = [[\"make\", \"-j{jobs}\"]]",
        "build = [[\"make\", \"-j{jobs}\"], [\"cc\", \"-O2\", \"-ffunction-sections\", \"-c\", \"toyd.c\"]]",
    );
    environment.replace(
        config,
        "[server]\n",
        "[recipe.make.relink]\nkeep = { \"toyd.o\" = \"{build}/toyd.o\" }\n\
         command = [\"cc\", \"-o\", \"{output}\", \"toyd.o\"]\n\n[server]\n",
    );
    let patch = |line: usize, name: &str| {
        let head = format!("--- a/work.h\n+++ b/work.h\n@@ -{line} +{line} @@\n");
        format!("{head}-#define {name} 100000u\n+#define {name} 25000u\n")
    };
    environment.write("patches/0001-rare.patch", patch(3, "RARE_ROUNDS"));
    environment.write("patches/0002-all.patch", patch(2, "ROUNDS"));
    environment.write("series", "0001-rare.patch\n0002-all.patch\n");
    environment
}

fn json(environment: &TestEnvironment, args: &[&str]) -> (Value, String) {
    let finished = environment.run(&[args, &["--json"]].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    (
        serde_json::from_str(&finished.stdout).unwrap(),
        finished.stderr,
    )
}

fn effect<'d>(document: &'d Value, patch: usize, workload: &str) -> &'d Value {
    let effects = document["patches"][patch]["effects"].as_array().unwrap();
    let mut in_order = effects.iter().filter(|effect| effect["kind"] == "in_order");
    in_order
        .find(|effect| effect["workload"] == workload)
        .unwrap()
}

/// The points that an experiment timed on a workload.
fn timed(environment: &TestEnvironment, document: &Value, workload: &str) -> Vec<String> {
    let name = document["experiment"].as_str().unwrap();
    let lines = environment
        .run(&["report", name, "--format", "jsonl"])
        .stdout;
    let observations = lines.lines().skip(1);
    let observations = observations.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_workload = observations.filter(|of| {
        of["workload"] == workload && of["direct"] != true && of["experiment"] == name
    });
    let points: BTreeSet<String> = of_workload
        .map(|of| of["point"].as_str().unwrap().to_owned())
        .collect();
    points.into_iter().collect()
}

#[test]
fn a_workload_is_not_timed_for_a_patch_that_it_does_not_execute() {
    let environment = environment();
    let (first, log) = json(&environment, &["run", "--blocks", "4"]);
    assert!(log.contains("in 1 of 4 cases"), "{log}");
    let unexecuted = effect(&first, 0, "requests");
    assert_eq!(unexecuted["executed"], false, "{first:#}");
    assert_eq!(unexecuted["estimate"], 0.0);
    assert_eq!(unexecuted["verdict"], "no_effect");
    assert!(unexecuted["p_value"].is_null() && unexecuted["p_adjusted"].is_null());
    for (patch, workload) in [(0, "rare"), (0, "*"), (1, "requests"), (1, "rare")] {
        let measured = effect(&first, patch, workload);
        assert!(measured.get("executed").is_none(), "{measured:#}");
    }
    assert_eq!(effect(&first, 0, "rare")["verdict"], "faster", "{first:#}");
    // The geometric mean with an effect of 0.
    let estimate = |of: &Value| of["estimate"].as_f64().unwrap().ln_1p();
    let (suite, single) = (effect(&first, 0, "*"), effect(&first, 0, "rare"));
    assert!(
        (estimate(suite) - estimate(single) / 2.0).abs() < 1e-9,
        "{first:#}"
    );
    // The next patch is compared with the release, which is the same program for the requests.
    assert_eq!(effect(&first, 1, "requests")["verdict"], "faster");
    assert_eq!(effect(&first, 1, "requests")["against"], "1");
    assert_eq!(
        timed(&environment, &first, "requests"),
        ["0", "2", "control"]
    );
    assert_eq!(
        timed(&environment, &first, "rare"),
        ["0", "1", "2", "control"]
    );
    assert_eq!(first["failed"], serde_json::json!({}));

    let text = environment.run(&["report"]).stdout;
    assert!(
        text.contains("Not executed, so exactly without effect"),
        "{text}"
    );
    for format in ["markdown", "html"] {
        let page = environment.run(&["report", "--format", format]).stdout;
        assert!(page.to_lowercase().contains("not executed"), "{page}");
    }
    // A file of the experiment says the same.
    let lines = environment.run(&["report", "--format", "jsonl"]).stdout;
    environment.write("observations.jsonl", &lines);
    let (analysed, _) = json(&environment, &["analyse", "observations.jsonl"]);
    assert_eq!(analysed["patches"], first["patches"]);

    // The answers are kept, and reused effects stay what they were.
    environment.write("series", "0001-rare.patch\n");
    let (alone, log) = json(&environment, &["run", "--blocks", "4"]);
    assert!(!log.contains("not execute the patch"), "{log}");
    assert_eq!(effect(&alone, 0, "requests")["executed"], false);
    assert_eq!(
        effect(&alone, 0, "rare")["estimate"],
        effect(&first, 0, "rare")["estimate"]
    );

    // Unless it is asked for.
    let (asked, _) = json(&environment, &["run", "--blocks", "4", "--unexecuted"]);
    let measured = effect(&asked, 0, "requests");
    assert!(measured.get("executed").is_none(), "{measured:#}");
    assert_eq!(measured["blocks"], 4);
    assert_eq!(
        timed(&environment, &asked, "requests"),
        ["0", "1", "control"]
    );
    environment.wait_until_no_process_is_left();
}

#[test]
fn an_experiment_ends_without_the_workloads_that_execute_nothing() {
    let environment = environment();
    environment.write("series", "0001-rare.patch\n");
    let arguments = ["run", "--workload", "requests", "--blocks", "30"];
    let (document, log) = json(&environment, &arguments);
    assert!(!crate::common::measures(&log), "{log}");
    assert_eq!(
        effect(&document, 0, "requests")["executed"],
        false,
        "{document:#}"
    );
    assert_eq!(document["total"][0]["executed"], false);
    assert_eq!(document["progress"][0]["ended"], true);
    let resolution = ["--resolution", "20%", "--workload", "rare"];
    let (document, _) = json(&environment, &[&arguments[..], &resolution].concat());
    assert_eq!(
        document["stopping"]["open"],
        serde_json::json!([]),
        "{document:#}"
    );
    assert_eq!(document["stopping"]["ended"], true);
    assert_eq!(timed(&environment, &document, "requests"), [""; 0]);
    assert_eq!(
        timed(&environment, &document, "rare"),
        ["0", "1", "control"]
    );
}
