//! Documents of `--json` conform to docs/attribution.schema.json and docs/documents.schema.json.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use perfquilt_model::observation::Meter;
use serde_json::Value;

fn document(file: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_perfquilt"))
        .args(["--json", "analyse"])
        .arg(file)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn validator() -> jsonschema::Validator {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/attribution.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

fn faults(document: &Value) -> Vec<String> {
    let validator = validator();
    let told =
        |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    validator.iter_errors(document).take(5).map(told).collect()
}

/// Reads docs/documents.schema.json, whose references to the other schema then lead into the same value.
fn documents() -> Value {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
    let text = read("documents.schema.json")
        .replace("attribution.schema.json#/$defs/", "#/$defs/")
        .replace("attribution.schema.json#", "#/$defs/attribution");
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    let mut attribution: Value = serde_json::from_str(&read("attribution.schema.json")).unwrap();
    let whole = attribution.as_object_mut().unwrap();
    whole.remove("$schema");
    let shared = whole.remove("$defs").unwrap();
    let definitions = schema["$defs"].as_object_mut().unwrap();
    definitions.extend(shared.as_object().unwrap().clone());
    definitions.insert("attribution".to_owned(), attribution);
    schema
}

/// The definitions of documents that a command prints or writes: their descriptions begin with it.
pub fn documents_of_commands() -> BTreeSet<String> {
    let schema = documents();
    let of_commands = schema["$defs"].as_object().unwrap().iter();
    of_commands
        .filter(|(_, definition)| {
            let described = definition["description"].as_str();
            described.is_some_and(|text| text.starts_with('`'))
        })
        .map(|(name, _)| name.clone())
        .collect()
}

/// Returns in what `document` differs from the definition `name`.
pub fn faults_of(name: &str, document: &Value) -> Vec<String> {
    let mut schema = documents();
    schema["$ref"] = format!("#/$defs/{name}").into();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let told =
        |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    validator.iter_errors(document).take(5).map(told).collect()
}

#[test]
fn real_results_are_as_the_schema_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy().into_owned();
        if name.ends_with(".jsonl.gz") || name.ends_with(".tsv") {
            let document = document(&path);
            assert_eq!(faults(&document), Vec::<String>::new(), "{name}");
            checked += 1;
        }
    }
    assert!(checked >= 4, "{checked}");
}

/// A header in which everything is that may be, and observations of an unfinished experiment.
#[test]
fn what_may_be_absent_fits_too() {
    let header = serde_json::json!({
        "schema": 1, "experiment": "x", "series": ["a.patch", "b.patch", "c.patch"],
        "titles": ["A", "B", "C"], "release": "r-1", "recipe": "q", "machine": {"cores": "2"}, "harness": "h",
        "identical": {"2": "1"}, "failed": {"3": "did not start"},
        "planned": [{"workload": "w", "meter": "time", "blocks": 40, "min_blocks": 8, "resolution": 0.004}],
        "builds": [{"point": "0", "key": "k", "configure": 1.0, "compile": 2.0, "link": 0.5, "overhead": 0.1,
                    "units": 9, "cached": true}],
        "within": [{"workload": "w", "meter": "time", "sd": 0.001}],
        "functions": [{"patch": 1, "workload": "w", "function": "f", "before": 2.0, "after": 1.0,
                       "half_width": 0.1, "share": -0.01}],
        "left_out": [{"workload": "w", "meter": "time", "count": 3, "reason": "too few"}],
        "tests": [{"point": "0", "passed": 9, "skipped": 1,
                   "known": [{"name": "k", "failed": 4, "runs": 4, "base_failed": 4, "base_runs": 4}]},
                  {"point": "1", "passed": 7, "skipped": 1, "lost": ["l"], "fixed": ["k"],
                   "new": [{"name": "n", "failed": 4, "runs": 4, "base_failed": 0, "base_runs": 4}]}],
        "conditions": [{"workload": "w", "blocks": 5, "steal": {"mean": 0.0, "worst": 0.0},
                        "idle": {"mean": 0.0, "worst": 0.0}, "preempted": 1.0, "major_faults": 0,
                        "minor_faults": 4.5, "mhz": null}]
    });
    let mut lines = vec![header.to_string()];
    for block in 0..10 {
        for (order, point) in ["0", "1", "alone:1", "without:1", "control"]
            .iter()
            .enumerate()
        {
            for workload in ["w", "w/part"] {
                lines.push(
                    serde_json::json!({
                        "schema": 1, "experiment": "x", "block": block, "order": order, "point": point,
                        "layout": 0, "workload": workload, "meter": "time", "unit": "ns/txn",
                        "value": 1000.0 + f64::from(block * 7 % 3), "n": 9, "lane": block % 2
                    })
                    .to_string(),
                );
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.jsonl");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let mut document = document(&file);
    assert_eq!(faults(&document), Vec::<String>::new());
    for field in ["stopping", "operations", "functions"] {
        assert!(document.get(field).is_some(), "{field}");
    }

    for part in ["dependence", "lanes"] {
        assert!(document["noise"].get(part).is_some(), "{part}");
    }

    // The schema can say no.
    document["patches"][0]["effects"][0]["verdict"] = "quick".into();
    document["noise"]["mood"] = "calm".into();
    document.as_object_mut().unwrap().remove("warnings");
    assert_eq!(faults(&document).len(), 3);
}

#[test]
fn every_meter_is_documented() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
    let schema: Value = serde_json::from_str(&read("attribution.schema.json")).unwrap();
    let names: Vec<&str> = Meter::ALL.iter().map(|meter| meter.name()).collect();
    assert_eq!(schema["$defs"]["meter"]["enum"], serde_json::json!(names));
    for page in ["reference.md", "json.md", "measuring.md"] {
        let text = read(page);
        for name in &names {
            assert!(text.contains(&format!("`{name}`")), "{name} in {page}");
        }
    }
}
