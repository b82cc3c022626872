//! `analyse`, `report` and `completions` on the command line.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use perfquilt::observation::{ExperimentHeader, Meter, Observation, Planned};
use perfquilt::point::Point;
use perfquilt::store::{SliceBlob, Store, jsonl};

const CONFIG: &str = r#"
[upstream]
name = "demo"
current = "1.0"
[[upstream.release]]
version = "1.0"
directory = "src"

[recipe.quick]
system = "command"
install = { "bin/server" = "server" }
binary = "bin/server"

[server]
adapter = "command"
[server.command]
start = ["true"]
ready = ["true"]

[preset.quick]
recipe = "quick"
workloads = ["load"]
meters = ["time"]
blocks = 4
block_seconds = 1

[margin]
time = 0.02
"#;

const WORKLOAD: &str = r#"
description = "x"
kind = "command"
[command]
run = ["true"]
transactions = 1
"#;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Place {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A folder with the configuration of a workspace.
    fn workspace() -> Self {
        let place = Place::new();
        let config = place.path("bench-config/perfquilt.toml");
        std::fs::create_dir_all(place.path("bench-config/workloads")).unwrap();
        std::fs::write(config, CONFIG).unwrap();
        std::fs::write(place.path("bench-config/workloads/load.toml"), WORKLOAD).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn perfquilt(&self, args: &[&str]) -> Command {
        let mut command = Command::cargo_bin("perfquilt").unwrap();
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_CACHE_HOME", self.path("cache"))
            .current_dir(self.folder.path())
            .args(args);
        command
    }

    /// Standard output of a command that ends with 0.
    fn output(&self, args: &[&str]) -> String {
        let output = self.perfquilt(args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {errors}");
        assert_eq!(errors, "", "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code and standard error of a command that fails.
    fn failure(&self, args: &[&str]) -> (i32, String) {
        let output = self.perfquilt(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    fn write(&self, name: &str, gains: &[f64], noise: f64) -> String {
        let mut file = std::fs::File::create(self.path(name)).unwrap();
        jsonl::write(
            &mut file,
            &header(gains.len()),
            &Default::default(),
            &observations(gains, noise),
        )
        .unwrap();
        name.to_owned()
    }
}

fn header(patches: usize) -> ExperimentHeader {
    ExperimentHeader {
        schema: 1,
        experiment: "quick-1".into(),
        series: (1..=patches).map(|k| format!("{k:04}-x.patch")).collect(),
        titles: Vec::new(),
        release: "demo-1.0".into(),
        recipe: "quick".into(),
        machine: BTreeMap::new(),
        harness: "perfquilt test".into(),
        identical: BTreeMap::new(),
        failed: BTreeMap::new(),
        started: "2026-01-02T03:04:05Z".into(),
    }
}

/// Four blocks in which patch k gains `gains[k - 1]`, ± `noise`.
fn observations(gains: &[f64], noise: f64) -> Vec<Observation> {
    let mut observations = Vec::new();
    for block in 0..4u32 {
        for point in 0..=gains.len() {
            let sign = if (block as usize + point).is_multiple_of(2) {
                1.0
            } else {
                -1.0
            };
            let gain: f64 = gains[..point].iter().sum();
            observations.push(Observation {
                schema: 1,
                experiment: "quick-1".into(),
                block,
                order: u32::try_from(point).unwrap(),
                point: Point::Step(point),
                layout: 0,
                workload: "load".into(),
                meter: Meter::Time,
                unit: "ns/txn".into(),
                value: 1e5 * (sign * noise - gain).exp(),
                n: 100,
            });
        }
    }
    observations
}

#[test]
fn a_file_is_analysed_anywhere() {
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03, 0.0], 0.001);
    let text = place.output(&["analyse", &file]);
    assert!(text.contains("The series is 3.05 % faster"), "{text}");
    assert!(text.contains("0001-x.patch"), "{text}");
    let page = place.output(&["analyse", &file, "--format", "markdown"]);
    assert!(page.starts_with("## The series is 3.05 % faster"), "{page}");
    let value: serde_json::Value =
        serde_json::from_str(&place.output(&["--json", "analyse", &file])).unwrap();
    assert_eq!(value["patches"][0]["effects"][0]["verdict"], "faster");
    assert_eq!(value["margins"]["time"], 0.005);
}

#[test]
fn raw_observations_written_out_give_the_same_report() {
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03, -0.01], 0.001);
    let raw = place.output(&["analyse", &file, "--format", "jsonl"]);
    assert_eq!(raw, std::fs::read_to_string(place.path("f.jsonl")).unwrap());
}

#[test]
fn compressed_files_and_standard_input_are_read() {
    use std::io::Write;
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03], 0.001);
    let expected = place.output(&["analyse", &file]);
    let bytes = std::fs::read(place.path("f.jsonl")).unwrap();
    let packed = std::fs::File::create(place.path("f.jsonl.gz")).unwrap();
    let mut packer = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    packer.write_all(&bytes).unwrap();
    packer.finish().unwrap();
    assert_eq!(place.output(&["analyse", "f.jsonl.gz"]), expected);
    let piped = place
        .perfquilt(&["analyse", "-"])
        .write_stdin(bytes.clone())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), expected);

    // Half a compressed file.
    let packed = std::fs::read(place.path("f.jsonl.gz")).unwrap();
    std::fs::write(place.path("half.gz"), &packed[..packed.len() / 2]).unwrap();
    let (_, errors) = place.failure(&["analyse", "half.gz"]);
    assert!(errors.contains("half.gz"), "{errors}");
}

#[test]
fn margins_come_from_the_workspace_or_the_command_line() {
    let place = Place::workspace();
    let file = place.write("f.jsonl", &[0.0], 0.004);
    let margin = |args: &[&str]| -> (f64, String) {
        let args: Vec<&str> = [&["--json", "analyse", file.as_str()], args].concat();
        let value: serde_json::Value = serde_json::from_str(&place.output(&args)).unwrap();
        (
            value["margins"]["time"].as_f64().unwrap(),
            value["total"][0]["verdict"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(margin(&[]), (0.02, "no_effect".to_owned()));
    let narrow = margin(&["--margin", "time=0.1%"]);
    assert_eq!(narrow, (0.001, "unclear".to_owned()));
}

#[test]
fn faults_of_files_name_file_and_line() {
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03], 0.001);
    let text = std::fs::read_to_string(place.path(&file)).unwrap();
    std::fs::write(
        place.path("bad.jsonl"),
        text.replacen("\"n\":100", "\"n\":0", 1),
    )
    .unwrap();
    let (code, errors) = place.failure(&["analyse", "bad.jsonl"]);
    assert_eq!(code, 2);
    assert!(
        errors.starts_with("error: bad.jsonl:2: `n` is 0"),
        "{errors}"
    );

    let (code, errors) = place.failure(&["analyse", "missing.jsonl"]);
    assert_eq!(code, 2);
    assert!(
        errors.contains("missing.jsonl") && errors.contains("hint: "),
        "{errors}"
    );

    let (code, errors) = place.failure(&["analyse", "."]);
    assert_ne!(code, 0);
    assert!(errors.contains("error: "), "{errors}");
}

#[test]
fn exit_codes_tell_the_result_when_asked() {
    let place = Place::new();
    let slower = place.write("slower.jsonl", &[-0.03], 0.001);
    place.output(&["analyse", &slower]);
    let (code, errors) = place.failure(&["analyse", &slower, "--fail-on", "regression"]);
    assert_eq!(code, 6);
    assert!(errors.contains("slower: 0001-x.patch"), "{errors}");
    place.output(&["analyse", &slower, "--fail-on", "inconclusive"]);

    let unclear = place.write("unclear.jsonl", &[0.0], 0.05);
    place.output(&["analyse", &unclear, "--fail-on", "regression"]);
    let both = ["analyse", &unclear, "--fail-on", "regression,inconclusive"];
    assert_eq!(place.failure(&both).0, 7);
}

#[test]
fn contradicting_forms_are_refused() {
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03], 0.001);
    let (code, _) = place.failure(&["analyse", &file, "--json", "--format", "markdown"]);
    assert_eq!(code, 2);
}

fn store_at(root: &Path) -> Store {
    Store::open(&root.join(".perfquilt/results.db")).unwrap()
}

#[test]
fn stored_experiments_are_reported() {
    let place = Place::workspace();
    let (code, errors) = place.failure(&["report"]);
    assert_eq!(code, 2);
    assert!(errors.contains("there are no results yet"), "{errors}");

    let store = store_at(place.folder.path());
    let first = store.begin(&header(1), "a").unwrap();
    store
        .append(first, &observations(&[0.03], 0.001), &[])
        .unwrap();
    let mut other = header(1);
    other.experiment = "quick-2".into();
    let second = store.begin(&other, "b").unwrap();
    let plan = [Planned::fixed("load", Meter::Time, 9)];
    store.plan(second, &plan).unwrap();
    let slices: Vec<SliceBlob> = (0..2)
        .map(|point| SliceBlob {
            block: 0,
            workload: "load".into(),
            point: Point::Step(point),
            txns_per_slice: 1,
            nanoseconds: (0..64u8).map(|i| 1000.0 + f32::from(i % 9)).collect(),
        })
        .collect();
    store
        .append(second, &observations(&[-0.03], 0.001), &slices)
        .unwrap();
    drop(store);

    assert!(
        place
            .output(&["report"])
            .contains("After 4 of 9 blocks: the series is 2.96 % slower")
    );
    assert!(
        place
            .output(&["report", "quick-1"])
            .contains("3.05 % faster")
    );
    let list = place.output(&["report", "--list"]);
    let lines: Vec<&str> = list.lines().collect();
    assert!(
        lines[0].starts_with("quick-2 ") && lines[1].starts_with("quick-1 "),
        "{list}"
    );
    let (code, errors) = place.failure(&["report", "quick-3"]);
    assert_eq!(code, 2);
    assert!(errors.contains("did you mean"), "{errors}");

    // The raw observations give the same report elsewhere.
    let raw = place.output(&["report", "--format", "jsonl"]);
    std::fs::write(place.path("raw.jsonl"), raw).unwrap();
    assert_eq!(
        place.output(&["analyse", "raw.jsonl"]),
        place.output(&["report"])
    );
}

#[test]
fn a_report_needs_a_workspace() {
    let (code, errors) = Place::new().failure(&["report"]);
    assert_eq!(code, 2);
    assert!(errors.contains("no workspace here"), "{errors}");
}

#[test]
fn damaged_results_are_told() {
    let place = Place::workspace();
    std::fs::create_dir_all(place.path(".perfquilt")).unwrap();
    std::fs::write(place.path(".perfquilt/results.db"), "x".repeat(9999)).unwrap();
    let (code, errors) = place.failure(&["report"]);
    assert_eq!(code, 2);
    assert!(errors.contains("not a results database"), "{errors}");
}

#[test]
fn completions_complete_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            place.output(&["completions", shell]).contains("analyse"),
            "{shell}"
        );
    }
}
