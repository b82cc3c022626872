//! The main job on the real MariaDB server (`ci/e2e`): two points, time and instructions. Uses the machine's caches, so
//! that only a new machine builds the server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use perfquilt_build::Relink;
use perfquilt_config::Layouts;
use serde_json::Value;

/// The recipe `quick` with less optimisation, which compiles in half the time, and what these tests measure.
const CONFIG: &str = r#"
[recipe.ci]
inherits = "quick"
cmake_args = [
    "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -ffunction-sections -DNDEBUG",
    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -ffunction-sections -DNDEBUG",
]

[preset.ci]
recipe = "ci"
workloads = ["string_append"]
meters = ["time", "instructions"]
blocks = 4
block_seconds = 1.5

# Costs and estimates, of which no interval is asked.
[preset.ci-requests]
recipe = "ci"
workloads = ["oltp_point_select", "requests_point_select", "requests_point_select_prepared"]
meters = ["time", "instructions"]
blocks = 2
block_seconds = 0.5
count_blocks = 2

# Counts of transactions that read at random settle with their number.
[preset.ci-relinked]
recipe = "ci"
workloads = ["oltp_point_select"]
meters = ["time", "instructions"]
blocks = 2
block_seconds = 0.5
count_blocks = 6
"#;

/// This repository as a workspace, with its state in a temporary folder.
fn workspace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["bench-config", "patches"] {
        crate::common::copy(&root.join(name), &folder.path().join(name));
    }
    fs::copy(root.join("series"), folder.path().join("series")).unwrap();
    let config = folder.path().join("bench-config/perfquilt.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text + CONFIG).unwrap();
    folder
}

fn perfquilt(workspace: &Path, args: &[&str]) -> String {
    println!("$ perfquilt {}", args.join(" "));
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_perfquilt"))
        .args(args)
        .current_dir(workspace)
        .stderr(std::process::Stdio::inherit())
        .output()
        .unwrap();
    println!("({:.1} s)", started.elapsed().as_secs_f64());
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn effect<'a>(effects: &'a Value, workload: &str, meter: &str) -> &'a Value {
    effects
        .as_array()
        .unwrap()
        .iter()
        .find(|effect| effect["workload"] == workload && effect["meter"] == meter)
        .unwrap_or_else(|| panic!("no {meter} effect on {workload}: {effects:#}"))
}

/// `ci/e2e` runs it first and beside others: on a new machine it compiles for minutes.
#[test]
fn a_patch_compiles_its_own_units_only() {
    let folder = workspace();
    let rows = perfquilt(
        folder.path(),
        &["build", "0", "1", "--recipe", "ci", "--json"],
    );
    let rows: Value = serde_json::from_str(&rows).unwrap();
    let built = &rows["points"][1]["built"];
    println!("{built:#}");
    // Those of an earlier run began with any tree.
    assert!(built["cached"] == true || built["compiled_units"].as_u64().unwrap() < 10);
}

#[test]
fn two_points_are_built_measured_and_attributed() {
    let folder = workspace();
    let workspace = folder.path();
    perfquilt(workspace, &["lint"]);
    let run = [
        "run", "--preset", "ci", "--point", "0", "--point", "1", "--json",
    ];
    let document: Value = serde_json::from_str(&perfquilt(workspace, &run)).unwrap();
    let patch = &document["patches"][0]["effects"];

    // The patch builds JSON arrays with a good third fewer instructions: no noise can hide that. It can hide what four blocks
    // of time tell, but not turn it round.
    let counted = effect(patch, "string_append", "instructions");
    assert_eq!(counted["verdict"], "faster", "{counted:#}");
    assert!(counted["low"].as_f64().unwrap() > 0.5, "{counted:#}");
    let timed = effect(patch, "string_append", "time");
    let verdict = timed["verdict"].as_str().unwrap();
    assert!(!["slower", "no_effect"].contains(&verdict), "{timed:#}");
    assert!(timed["high"].as_f64().unwrap() > 0.1, "{timed:#}");
    // Once more: everything is there.
    let started = Instant::now();
    let again: Value = serde_json::from_str(&perfquilt(workspace, &run)).unwrap();
    assert_eq!(again["patches"], document["patches"]);
    println!("nothing to do: {:.2} s", started.elapsed().as_secs_f64());
    println!("{}", perfquilt(workspace, &["report"]));
}

/// The server's functions by address.
fn functions(program: &Path) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-n", "--defined-only"])
        .arg(program)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_once(" T ").map(|(_, name)| name.to_owned()))
        .collect()
}

#[test]
fn a_server_linked_again_runs_and_is_the_same_work() {
    let folder = workspace();
    let rows = perfquilt(folder.path(), &["build", "0", "--recipe", "ci", "--json"]);
    let rows: Value = serde_json::from_str(&rows).unwrap();
    let built = Path::new(rows["points"][0]["built"]["dir"].as_str().unwrap()).to_owned();
    let moved = folder.path().join("moved");
    crate::common::copy(&built, &moved);
    let program = moved.join("bin/mariadbd");
    fs::remove_file(&program).unwrap();
    let before = functions(&built.join("bin/mariadbd"));
    let link = |layouts, seed: u64, program: &Path| {
        let relink = Relink::of(&built, layouts).unwrap();
        let started = Instant::now();
        relink.link(seed, program).unwrap();
        let seconds = started.elapsed().as_secs_f64();
        println!("linked again, {layouts:?}, in {seconds:.2} s");
        functions(program)
    };
    let after = link(Layouts::Padded, 7, &program);
    assert_eq!(after, before, "the order is kept");
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(size(&program) > size(&built.join("bin/mariadbd")));
    assert!(before.len() > 1000, "{}", before.len());

    let servers = [
        format!("0={}", built.display()),
        format!("1={}", moved.display()),
    ];
    let mut bench = vec!["run", "--preset", "ci-relinked", "--json"];
    bench.extend(["--server", &servers[0], "--server", &servers[1]]);
    let document: Value = serde_json::from_str(&perfquilt(folder.path(), &bench)).unwrap();
    let patch = &document["patches"][0]["effects"];
    let instructions = effect(patch, "oltp_point_select", "instructions");
    let found = instructions["estimate"].as_f64().unwrap();
    assert!(found.abs() < 0.0005, "{instructions:#}");
}

fn cost(document: &Value, workload: &str, point: &str, meter: &str) -> f64 {
    let costs = document["costs"].as_array().unwrap();
    let found = costs.iter().find(|cost| {
        cost["workload"] == workload && cost["point"] == point && cost["meter"] == meter
    });
    let found = found.unwrap_or_else(|| panic!("no {meter} of {workload} on {point}"));
    found["estimate"].as_f64().unwrap()
}

#[test]
fn requests_are_sent_as_text_and_prepared_and_a_patch_changes_nothing_elsewhere() {
    let folder = workspace();
    let run = [
        "run",
        "--preset",
        "ci-requests",
        "--point",
        "0",
        "--point",
        "1",
        "--unexecuted",
        "--json",
    ];
    let document: Value = serde_json::from_str(&perfquilt(folder.path(), &run)).unwrap();
    let forms = ["requests_point_select", "requests_point_select_prepared"];
    for point in ["0", "1"] {
        let instructions = forms.map(|form| cost(&document, form, point, "instructions"));
        let nanoseconds = forms.map(|form| cost(&document, form, point, "time"));
        println!("{point}: instructions {instructions:?}, nanoseconds {nanoseconds:?}");
        // A prepared statement is not parsed again.
        assert!(
            instructions[1] < 0.99 * instructions[0],
            "{instructions:?} on {point}"
        );
        for time in nanoseconds {
            assert!((2e3..1e6).contains(&time), "{time} on {point}");
        }
    }
    // The patch does nothing to speak of on a workload that builds no long strings.
    let patch = &document["patches"][0]["effects"];
    let other = effect(patch, "oltp_point_select", "instructions");
    assert!(
        other["estimate"].as_f64().unwrap().abs() < 0.01,
        "{other:#}"
    );
}

#[test]
fn handler_reads_in_every_form_and_by_both_drivers() {
    let folder = workspace();
    let own = [
        "handler_text_innodb",
        "handler_prepare_myisam",
        "handler_binary_aria",
        "handler_binary_innodb_64",
    ];
    let mut run = vec!["run", "--preset", "handler", "--recipe", "ci"];
    run.extend(["--point", "0", "--point", "1", "--blocks", "2", "--json"]);
    for workload in own.iter().chain(&["handler_slap_innodb"]) {
        run.extend(["--workload", workload]);
    }
    let document: Value = serde_json::from_str(&perfquilt(folder.path(), &run)).unwrap();
    let cost = |workload: &str, point: &str| cost(&document, workload, point, "time");
    for point in ["0", "1"] {
        for workload in own {
            // Nanoseconds a read, and the client's part of them.
            let (read, client) = (
                cost(workload, point),
                cost(&format!("{workload}/client"), point),
            );
            println!("{workload} on {point}: {read:.0} ns, of these the client's {client:.0}");
            assert!((2e3..1e6).contains(&read), "{workload} on {point}: {read}");
            assert!(client > 0.0, "{workload} on {point}: {client}");
        }
        assert!((2e3..1e6).contains(&cost("handler_slap_innodb", point)));
    }
}

/// Partitions and unique keys on disk depend on hash values: the patched collations must give the
/// same ones. Compares the real code of both trees.
#[test]
fn hash_values_stay_bit_identical() {
    let folder = workspace();
    let trees: Vec<String> = ["0", "3"]
        .iter()
        .map(|point| {
            let tree = folder.path().join(format!("tree-{point}"));
            let tree = tree.to_str().unwrap().to_owned();
            perfquilt(folder.path(), &["export", point, &tree]);
            tree
        })
        .collect();
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hash_identity/check");
    let status = Command::new(&check).args(&trees).status().unwrap();
    assert!(status.success(), "{status}");
    let status = Command::new(&check)
        .args(["--self-test", &trees[0]])
        .status()
        .unwrap();
    assert!(status.success(), "a changed hash went unnoticed: {status}");
}
