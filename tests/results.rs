//! `analyse` and `report` on the command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::TestEnvironment;
use assert_cmd::Command;
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::observation::{
    ExperimentHeader, Meter, Observation, ObservationFile, PlannedBlocks, Supplement,
};
use perfquilt_model::point::Point;
use perfquilt_store::{SliceBlob, Store};

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
    environment: TestEnvironment,
}

impl Place {
    fn new() -> Self {
        Place {
            environment: TestEnvironment::empty(),
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
        self.environment.path(name)
    }

    fn perfquilt(&self, args: &[&str]) -> Command {
        Command::from_std(self.environment.command(args))
    }

    /// Standard output of a command that ends with 0 and complains of nothing.
    fn output(&self, args: &[&str]) -> String {
        let output = self.perfquilt(args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {errors}");
        let complaints = errors.lines().filter(|line| !line.starts_with("next: "));
        assert_eq!(complaints.count(), 0, "{args:?}: {errors}");
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
        let written = ObservationFile {
            header: header(gains.len()),
            supplement: Supplement::default(),
            observations: observations(gains, noise),
        };
        written.write(&mut file).unwrap();
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
        base: None,
        machine: BTreeMap::new(),
        harness: "perfquilt test".into(),
        identical: BTreeMap::new(),
        line_numbers: Default::default(),
        unread: Default::default(),
        failed: BTreeMap::new(),
        start_timeouts: BTreeMap::new(),
        failed_workloads: Vec::new(),
        command: None,
        commit: None,
        bundle: None,
        started: "2026-01-02T03:04:05Z".into(),
        reused: Vec::new(),
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
                direct: false,
                mean: None,
                slow: None,
                p99: None,
                stalled: None,
                lane: None,
                began: None,
                ended: None,
                machine: None,
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
    assert_eq!(value["margins"]["time"], 0.01);
}

#[test]
fn raw_observations_written_out_give_the_same_report() {
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03, -0.01], 0.001);
    let raw = place.output(&["analyse", &file, "--format", "jsonl"]);
    let given = std::fs::read_to_string(place.path("f.jsonl")).unwrap();
    // The digest of the lines, which the file does not have.
    let digest = raw.strip_prefix(&given).unwrap();
    assert!(digest.starts_with("{\"sha256\":\"") && digest.lines().count() == 1);
    std::fs::write(place.path("written.jsonl"), &raw).unwrap();
    let again = place.output(&["analyse", "written.jsonl", "--format", "jsonl"]);
    assert_eq!(again, raw);
    // A line that is changed, or lost.
    let changed = raw.replacen("\"block\":3", "\"block\":4", 1);
    assert_ne!(changed, raw);
    let (first, second) = (raw.find('\n').unwrap(), raw.rfind("{\"schema\"").unwrap());
    let lost = format!("{}{}", &raw[..=first], &raw[second..]);
    for (text, line) in [(changed, raw.lines().count()), (lost, 3)] {
        std::fs::write(place.path("written.jsonl"), text).unwrap();
        let (code, errors) = place.failure(&["analyse", "written.jsonl"]);
        assert_eq!(code, 2, "{errors}");
        let words = format!("error: written.jsonl:{line}: the lines before this one");
        assert!(
            errors.starts_with(&words) && errors.contains("hint: "),
            "{errors}"
        );
    }
    // Line ends that an editor changed are no damage, nor are lines that somebody appends.
    let more = raw.replace('\n', "\r\n") + "\n";
    std::fs::write(place.path("written.jsonl"), more).unwrap();
    assert_eq!(
        place.output(&["analyse", "written.jsonl", "--format", "jsonl"]),
        raw
    );
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

    let twice = place.perfquilt(&["analyse", "-", "-"]).output().unwrap();
    assert_eq!(twice.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&twice.stderr).contains("only once"));

    // Half a compressed file.
    let packed = std::fs::read(place.path("f.jsonl.gz")).unwrap();
    std::fs::write(place.path("half.gz"), &packed[..packed.len() / 2]).unwrap();
    let (code, errors) = place.failure(&["analyse", "half.gz"]);
    assert_eq!(code, 2, "{errors}");
    insta::assert_snapshot!(errors, @r"
    error: half.gz: the file is incomplete: its compressed data end early [PQ0703]
    hint: copy or download the file again
    ");
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
    insta::assert_snapshot!(errors, @r"error: bad.jsonl:2: `n` is 0: a value stands for at least one transaction [PQ0703]");

    let (code, errors) = place.failure(&["analyse", "missing.jsonl"]);
    assert_eq!(code, 2);
    assert!(
        errors.contains("missing.jsonl") && errors.contains("hint: "),
        "{errors}"
    );

    let (code, errors) = place.failure(&["analyse", "."]);
    assert_eq!(code, 2);
    assert!(errors.contains("error: "), "{errors}");
}

#[test]
fn files_of_different_formats_are_named() {
    let place = Place::new();
    let observations = place.write("f.jsonl", &[0.03], 0.001);
    let write = |name: &str, text: &str| {
        std::fs::write(place.path(name), text).unwrap();
        name.to_owned()
    };
    let go = write("go.txt", "BenchmarkX-8\t1000\t10 ns/op\n");
    let hyperfine = write("hyperfine.json", r#"{"results": []}"#);
    for (first, second, words) in [
        (
            &go,
            &hyperfine,
            "go.txt is output of Go benchmarks, hyperfine.json is a document of hyperfine",
        ),
        (
            &observations,
            &go,
            "f.jsonl is an observation file, go.txt is output of Go benchmarks",
        ),
    ] {
        let (code, errors) = place.failure(&["analyse", first, second]);
        assert_eq!(code, 2, "{errors}");
        assert!(
            errors.contains(&format!("the files have different formats: {words}")),
            "{errors}"
        );
    }
}

#[test]
fn a_file_of_another_kind_is_refused_without_names_of_types() {
    let place = Place::new();
    std::fs::write(place.path("null.json"), "null\n").unwrap();
    let (code, errors) = place.failure(&["analyse", "null.json"]);
    assert_eq!(code, 2, "{errors}");
    insta::assert_snapshot!(errors, @r"
    error: null.json:1: not an observation file: expected a JSON object, found null [PQ0703]
    hint: perfquilt reads observation files (`perfquilt report --format jsonl`), sysbench (`sysbench … run > FILE`), hyperfine (`hyperfine --export-json FILE COMMAND…`), Go benchmarks (`go test -bench . -count 10 > FILE`) and tables of sql-bench results; docs/formats.md says how
    ");
    let (code, errors) = place.failure(&["bisect", "replay", "null.json"]);
    assert_eq!(code, 2, "{errors}");
    insta::assert_snapshot!(errors, @r"
    error: null.json: not the log of a bisection: expected a JSON object, found null [PQ0703]
    hint: `perfquilt bisect log --raw` prints such a log
    ");
}

#[test]
fn a_folder_of_pages_cannot_be_a_file() {
    let place = Place::new();
    std::fs::write(place.path("page"), "").unwrap();
    let (code, errors) = place.failure(&["man", "--output", "page"]);
    assert_eq!(code, 2, "{errors}");
    insta::assert_snapshot!(errors, @r"
    error: page is not a folder [PQ0200]
    hint: `--output DIR` names the folder for the pages, one per command
    ");
}

/// Standard error of `analyse` on a file with `bytes`, which is refused.
fn refused(place: &Place, bytes: &[u8]) -> String {
    std::fs::write(place.path("bad.jsonl"), bytes).unwrap();
    let (code, errors) = place.failure(&["analyse", "bad.jsonl"]);
    assert_eq!(code, 2, "{errors}");
    errors
}

#[test]
fn bad_files_are_refused_with_line_and_field() {
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03, 0.0], 0.001);
    let text = std::fs::read_to_string(place.path(&file)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut told = String::new();
    let mut tell = |what: &str, bytes: &[u8]| {
        told.push_str(&format!("{what}\n{}\n", refused(&place, bytes)));
    };
    let change = |from: &str, to: &str| text.replacen(from, to, 1).into_bytes();
    tell("empty", b"");
    tell("blank lines", b"\n\r\n  \n");
    tell("first line missing", lines[1..].join("\n").as_bytes());
    tell("cut off", &text.as_bytes()[..text.len() - 20]);
    tell("wrong schema", &change("{\"schema\":1", "{\"schema\":9"));
    let second = format!(
        "{}\n{}",
        lines[0],
        lines[1].replace("\"schema\":1", "\"schema\":2")
    );
    tell("wrong schema of an observation", second.as_bytes());
    let value = lines[1]
        .split("\"value\":")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    for wrong in ["0", "-5.5", "NaN", "Infinity", "null", "1e400", "\"12\""] {
        let from = format!("\"value\":{value}");
        tell(wrong, &change(&from, &format!("\"value\":{wrong}")));
    }
    tell("unknown unit", &change("ns/txn", "ms/txn"));
    tell(
        "unknown meter",
        &change("\"meter\":\"time\"", "\"meter\":\"joules\""),
    );
    tell(
        "no such point",
        &change("\"point\":\"2\"", "\"point\":\"7\""),
    );
    tell("no point", &change("\"point\":\"2\"", "\"point\":\"two\""));
    tell(
        "other experiment",
        &change(
            "{\"schema\":1,\"experiment\":\"quick-1\",\"block\"",
            "{\"schema\":1,\"experiment\":\"quick-2\",\"block\"",
        ),
    );
    tell("missing field", &change("\"layout\":0,", ""));
    tell("not an object", &change(lines[3], "[1,2]"));
    tell(
        "two in a line",
        &change(lines[3], &format!("{}{}", lines[3], lines[4])),
    );
    let twice = [&lines[..], &lines[2..3]].concat().join("\n");
    tell("twice", twice.as_bytes());
    tell(
        "not UTF-8",
        &[text.as_bytes(), b"{\"schema\":1,\"experiment\":\"\xff\"}\n"].concat(),
    );
    tell(
        "UTF-16",
        &text
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<u8>>(),
    );
    tell(
        "a gigantic line",
        &[text.as_bytes(), &vec![b'7'; 17 << 20]].concat(),
    );
    tell("zeros", &[0; 5000]);
    insta::assert_snapshot!(told);
    assert!(!told.contains("panicked"));

    // The same from a pipe, which cannot be read twice.
    let piped = place
        .perfquilt(&["analyse", "-"])
        .write_stdin(twice)
        .output()
        .unwrap();
    let errors = String::from_utf8(piped.stderr).unwrap();
    insta::assert_snapshot!(errors, @r"error: -:14: block 0, point 1, workload load, meter time was before already [PQ0722]");
}

#[test]
fn a_comparison_says_which_patch_was_edited_under_its_name() {
    let place = Place::workspace();
    let store = store_at(&place.environment.workspace());
    for (name, key, servers) in [
        ("quick-1", "a", ["base", "one"]),
        ("quick-2", "b", ["base", "two"]),
        ("quick-3", "c", ["base of another compiler", "three"]),
    ] {
        let mut header = header(1);
        header.experiment = name.into();
        let id = store.begin(&header, key).unwrap();
        store
            .append(id, &observations(&[0.03], 0.001), &[])
            .unwrap();
        let mut observed = Comparable::of(&header);
        for (index, server) in servers.into_iter().enumerate() {
            observed = observed.with(Part::Program(Point::Step(index)), server);
        }
        store.record_observed(id, &observed).unwrap();
    }
    drop(store);
    let edited = "Patch 1 (0001-x.patch) was edited between the experiments";
    let compared = place.output(&["history", "quick-1", "quick-2", "--format", "markdown"]);
    assert!(compared.contains(edited), "{compared}");
    let compared = place.output(&["history", "quick-1", "quick-3", "--format", "markdown"]);
    assert!(!compared.contains("was edited"), "{compared}");
}

#[test]
fn equal_readings_of_runs_of_their_own_prove_nothing() {
    let place = Place::new();
    let effect = |before: &str, after: &str, count: usize| -> serde_json::Value {
        for (name, cost) in [("a.txt", before), ("b.txt", after)] {
            let lines = format!("BenchmarkE-4 1000 {cost} ns/op\n").repeat(count);
            std::fs::write(place.path(name), format!("goos: linux\n{lines}PASS\n")).unwrap();
        }
        let json = place.output(&["analyse", "--json", "a.txt", "b.txt"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["patches"][0]["effects"][0].clone()
    };
    // Two readings that happen to agree.
    let two = effect("100", "90", 2);
    assert!(two["low"].is_null(), "{two}");
    assert_eq!(two["verdict"], "unclear", "{two}");
    // 10.4 and 10.6 print so.
    let rounded = effect("10", "11", 10);
    assert_eq!(rounded["verdict"], "unclear", "{rounded}");
    let ends = [&rounded["low"], &rounded["high"]].map(|end| end.as_f64().unwrap());
    assert!(ends[0] < -0.15 && ends[1] > 0.0, "{rounded}");
    // A difference of many steps of the last digit is one.
    let apart = effect("10.0", "15.1", 10);
    assert_eq!(apart["verdict"], "slower", "{apart}");
}

#[test]
fn odd_files_give_the_same_table() {
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03], 0.001);
    let expected = place.output(&["analyse", &file]);
    let text = std::fs::read_to_string(place.path(&file)).unwrap();
    let mut reversed: Vec<&str> = text.lines().collect();
    reversed[1..].reverse();
    for (what, odd) in [
        ("CRLF", text.replace('\n', "\r\n")),
        ("byte order mark", format!("\u{feff}{text}")),
        ("no last line end", text.trim_end().to_owned()),
        ("blank lines", text.replace('\n', "\n\n")),
        ("other order", reversed.join("\n")),
        (
            "further fields",
            text.replace("\"n\":", "\"host\":\"a\",\"n\":"),
        ),
    ] {
        std::fs::write(place.path("odd.jsonl"), odd).unwrap();
        assert_eq!(place.output(&["analyse", "odd.jsonl"]), expected, "{what}");
    }
}

/// A file whose values are `value(block, point, plain value)`; `None` leaves the observation out.
fn changed(place: &Place, value: impl Fn(u32, Point, f64) -> Option<f64>) {
    let mut all = observations(&[0.03, 0.0], 0.001);
    all.retain_mut(|o| {
        let new = value(o.block, o.point, o.value);
        o.value = new.unwrap_or(o.value);
        new.is_some()
    });
    let mut file = std::fs::File::create(place.path("changed.jsonl")).unwrap();
    let written = ObservationFile {
        header: header(2),
        supplement: Supplement::default(),
        observations: all,
    };
    written.write(&mut file).unwrap();
}

#[test]
fn poor_data_give_wide_intervals_and_are_told() {
    let place = Place::new();
    let mut told = String::new();
    let mut tell = |what: &str, value: &dyn Fn(u32, Point, f64) -> Option<f64>| {
        changed(&place, value);
        let text = place.output(&["analyse", "changed.jsonl"]);
        told.push_str(&format!("{what}\n\n{text}\n"));
        let page = place.output(&["analyse", "changed.jsonl", "--format", "markdown"]);
        let figures = |text: &str| text.matches('±').count();
        assert!(figures(&page) >= figures(&text) - 1, "{page}");
    };
    tell("a point is missing from a block", &|block, point, value| {
        ((block, point) != (1, Point::Step(1))).then_some(value)
    });
    tell("a single block", &|block, _, value| {
        (block == 2).then_some(value)
    });
    tell("all equal", &|_, _, _| Some(1000.0));
    tell("a clock that jumped", &|block, point, value| {
        Some(if (block, point) == (3, Point::BASE) {
            1e17
        } else {
            value
        })
    });
    tell("the release is missing", &|_, point, value| {
        (point != Point::BASE).then_some(value)
    });
    tell("a block with one point", &|block, point, value| {
        (block != 0 || point == Point::Step(2)).then_some(value)
    });
    tell("no observation", &|_, _, _| None);
    insta::assert_snapshot!(told);
}

#[test]
fn exit_codes_tell_the_result_when_asked() {
    let place = Place::new();
    let slower = place.write("slower.jsonl", &[-0.03], 0.001);
    place.output(&["analyse", &slower]);
    let (code, errors) = place.failure(&["analyse", &slower, "--fail-on", "regression"]);
    assert_eq!(code, 6);
    insta::assert_snapshot!(errors, @r"error: slower: 0001-x.patch [PQ0710]");
    place.output(&["analyse", &slower, "--fail-on", "inconclusive"]);

    // A gain on one workload does not make up for a loss on another.
    let mut observations_of_both = observations(&[0.04], 0.001);
    let other = observations(&[-0.02], 0.001).into_iter();
    observations_of_both.extend(other.map(|one| Observation {
        workload: "other".into(),
        ..one
    }));
    let mut file = std::fs::File::create(place.path("mixed.jsonl")).unwrap();
    let written = ObservationFile {
        header: header(1),
        supplement: Supplement::default(),
        observations: observations_of_both,
    };
    written.write(&mut file).unwrap();
    let told = place.output(&["analyse", "mixed.jsonl"]);
    assert!(told.contains("but slower on 1 of 2\nworkloads"), "{told}");
    assert!(told.contains("slower on other"), "{told}");
    let mixed = ["analyse", "mixed.jsonl", "--fail-on", "regression"];
    assert_eq!(place.failure(&mixed).0, 6);

    let unclear = place.write("unclear.jsonl", &[0.0], 0.05);
    place.output(&["analyse", &unclear, "--fail-on", "regression"]);
    let both = ["analyse", &unclear, "--fail-on", "regression,inconclusive"];
    assert_eq!(place.failure(&both).0, 7);
}

#[test]
fn the_history_of_one_patch_is_the_row_among_all() {
    let place = Place::workspace();
    let store = store_at(&place.environment.workspace());
    let id = store.begin(&header(2), "a").unwrap();
    let measured = observations(&[0.03, -0.02], 0.001);
    store.append(id, &measured, &[]).unwrap();
    drop(store);
    let rows = |arguments: &[&str]| {
        let document = place.output(&[&["-q", "--json", "history"], arguments].concat());
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let faults = crate::schema::faults_of("history", &document);
        assert!(faults.is_empty(), "{faults:?}");
        document["patches"].as_array().unwrap().clone()
    };
    let all = rows(&[]);
    assert_eq!(all.len(), 3);
    for name in ["0002", "0002-x.patch"] {
        let one = rows(&[name, "--meter", "time"]);
        assert_eq!(one, all[1..2], "{name}");
    }
    let table = place.output(&["-q", "history", "0002"]);
    assert!(
        table.contains("0002-x.patch") && !table.contains("0001-x.patch"),
        "{table}"
    );
    for (text, cause) in [
        ("000", "matches several patches"),
        ("0003-y", "there is no patch"),
        // One experiment is not enough to compare.
        ("quick-1", "perfquilt history OLD NEW"),
    ] {
        let (code, errors) = place.failure(&["history", text]);
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains(cause), "{errors}");
    }
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
    assert!(errors.contains("[PQ0701]"), "{errors}");

    let store = store_at(&place.environment.workspace());
    let first = store.begin(&header(1), "a").unwrap();
    store
        .append(first, &observations(&[0.03], 0.001), &[])
        .unwrap();
    let mut other = header(1);
    other.experiment = "quick-2".into();
    let second = store.begin(&other, "b").unwrap();
    let plan = [PlannedBlocks::fixed("load", Meter::Time, 9)];
    store.plan(second, &plan).unwrap();
    let slices: Vec<SliceBlob> = (0..2)
        .map(|point| SliceBlob {
            block: 0,
            workload: "load".into(),
            point: Point::Step(point),
            direct: false,
            transactions_per_slice: 1,
            values: (0..64u8).map(|i| 1000.0 + f32::from(i % 9)).collect(),
        })
        .collect();
    store
        .append(second, &observations(&[-0.03], 0.001), &slices)
        .unwrap();
    drop(store);

    // A report before the end claims no more than holds at every look.
    let early = place.output(&["report"]);
    assert!(
        early.contains("After 4 of 9 blocks: unclear what the series does"),
        "{early}"
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
    insta::assert_snapshot!(errors, @r"
    error: there is no experiment `quick-3` [PQ0201]
    hint: did you mean `quick-1`?
    ");

    // A release has a version and a name, as for `run --release`.
    assert_eq!(
        place.output(&["-q", "history", "--release", "1.0"]),
        place.output(&["-q", "history", "--release", "demo-1.0"])
    );
    let (code, errors) = place.failure(&["history", "--release", "2.0"]);
    assert_eq!(code, 2);
    insta::assert_snapshot!(errors, @r"
    error: there is no release `2.0` [PQ0201]
    hint: available: demo-1.0
    ");

    // The raw observations give the same report elsewhere.
    let raw = place.output(&["report", "--format", "jsonl"]);
    std::fs::write(place.path("raw.jsonl"), raw).unwrap();
    assert_eq!(
        place.output(&["analyse", "raw.jsonl"]),
        place.output(&["report"])
    );
}

#[test]
fn wrong_numbers_are_refused_in_words() {
    let place = Place::workspace();
    for (args, cause) in [
        (
            &["post", "--pr", "x"][..],
            "a whole number from 1 is needed",
        ),
        (
            &["post", "--pr", "0"][..],
            "a whole number from 1 is needed",
        ),
        (
            &["calibrate", "--repeats", "x"][..],
            "a whole number is needed",
        ),
        (
            &["run", "--point", "foo"][..],
            "points are 0, 3, alone:3, without:3 and control",
        ),
    ] {
        let (code, errors) = place.failure(args);
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains(cause), "{errors}");
    }
}

#[test]
fn a_bisection_needs_patches() {
    let place = Place::workspace();
    std::fs::create_dir(place.path("src")).unwrap();
    std::fs::write(place.path("src/server"), "").unwrap();
    std::fs::create_dir(place.path("patches")).unwrap();
    std::fs::write(place.path("series"), "").unwrap();
    let (code, errors) = place.failure(&["bisect", "--workload", "load"]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("[PQ0303]"), "{errors}");
    assert!(errors.contains("`perfquilt import SOURCE`"), "{errors}");
}

#[test]
fn the_suffix_of_the_file_chooses_the_format() {
    let place = Place::new();
    let file = place.write("f.jsonl", &[0.03], 0.001);
    for (output, start) in [("a.html", "<!"), ("a.md", "## "), ("a.json", "{")] {
        place.output(&["-q", "analyse", &file, "--output", output]);
        let text = std::fs::read_to_string(place.path(output)).unwrap();
        assert!(text.starts_with(start), "{output}: {text}");
    }
}

#[test]
fn a_report_needs_a_workspace() {
    let (code, errors) = Place::new().failure(&["report"]);
    assert_eq!(code, 2);
    assert!(errors.contains("[PQ0202]"), "{errors}");
}

#[test]
fn damaged_results_are_told() {
    let place = Place::workspace();
    std::fs::create_dir_all(place.path(".perfquilt")).unwrap();
    std::fs::write(place.path(".perfquilt/results.db"), "x".repeat(9999)).unwrap();
    let (code, errors) = place.failure(&["report"]);
    assert_eq!(code, 2);
    assert!(errors.contains("[PQ0705]"), "{errors}");
}
