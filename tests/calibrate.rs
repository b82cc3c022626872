//! `perfquilt calibrate`: simulated, and on the toy server.

use crate::common::TestEnvironment;
use serde_json::Value;

#[test]
fn a_simulation_is_repeatable_and_writes_its_part_of_a_page() {
    let environment = TestEnvironment::with_fixture("toy");
    let run = |seed: &str| {
        let args = [
            "calibrate",
            "--experiments",
            "12",
            "--seed",
            seed,
            "--json",
            "--output",
            "page.md",
        ];
        let finished = environment.run(&args);
        let mut found: Value = serde_json::from_str(&finished.stdout).unwrap();
        found["seconds"] = 0.into();
        found["date"] = "".into();
        (finished.code, found, finished.stderr)
    };
    // The same seed gives the same figures, so that no chance is left: every promise is kept as far as so many
    // experiments tell.
    let (code, first, words) = run("1");
    assert_eq!(code, Some(0), "{words}");
    let checks = first["checks"].as_array().unwrap();
    assert!(checks.len() > 40, "{}", checks.len());
    assert_eq!(first["families"].as_array().unwrap().len(), 10);
    assert_eq!(run("1").1, first);
    let (code, other, words) = run("2");
    assert_ne!(other, first);
    assert_eq!(other["families"].as_array().unwrap().len(), 10);
    // The error names what chance cannot explain.
    assert!(
        (code == Some(0)) != words.contains("not every promise"),
        "{words}"
    );
    let read = |file: &str| std::fs::read_to_string(environment.workspace().join(file)).unwrap();
    let page = read("page.md");
    assert_eq!(page.matches("## Simulated experiments").count(), 1);
    assert!(page.contains("(page-errors.svg)"), "{page}");
    assert!(read("page-errors.svg").starts_with("<svg"));
}

#[test]
fn simulated_bisections_write_their_part_of_a_page() {
    let environment = TestEnvironment::with_fixture("toy");
    let args = [
        "calibrate",
        "--bisect",
        "--experiments",
        "1",
        "--json",
        "--output",
        "page.md",
    ];
    let finished = environment.run(&args);
    // One session a case may be wrong by chance, which the error reports.
    let fault = finished.stderr.contains("not every promise is kept");
    assert_eq!(
        finished.code,
        Some(if fault { 7 } else { 0 }),
        "{}",
        finished.stderr
    );
    let found: Value = serde_json::from_str(&finished.stdout).unwrap();
    let cases = found["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 99);
    // perfquilt's default size to find, where there is no culprit.
    assert_eq!(
        (&cases[0]["culprits"], &cases[0]["size"]),
        (&0.into(), &0.005.into())
    );
    assert!(
        cases.iter().all(|case| case["exact"].is_number()),
        "{found}"
    );
    let page = std::fs::read_to_string(environment.workspace().join("page.md")).unwrap();
    assert_eq!(page.matches("## Bisections").count(), 1);
    assert!(page.contains("(page-bisections.tsv)"), "{page}");
    let table = environment.workspace().join("page-bisections.tsv");
    let table = std::fs::read_to_string(table).unwrap();
    let of = |changes: &str| {
        let rows = table.lines().map(|line| line.split('\t').nth(1));
        rows.filter(|cell| *cell == Some(changes)).count()
    };
    assert_eq!([of("8"), of("64"), of("1024")], [33; 3], "{table}");
}

#[test]
fn the_toy_server_against_itself() {
    let environment = TestEnvironment::with_fixture("toy");
    let real = |repeats: &str| {
        let args = [
            "calibrate",
            "--real",
            "--repeats",
            repeats,
            "--copies",
            "2",
            "--blocks",
            "4",
            "--json",
            "--output",
            "page.md",
        ];
        let finished = environment.run(&args);
        let found: Value = serde_json::from_str(&finished.stdout).unwrap();
        // Which code it is depends on what was found, and on nothing else.
        let claiming = |names: &[&str]| {
            let repeats = found["repeats"].as_array().unwrap().iter();
            repeats
                .filter(|repeat| names.iter().any(|of| repeat[of].as_u64() > Some(0)))
                .count()
        };
        let claiming = claiming(&["faster", "slower"]).max(claiming(&["counted_claims"]));
        // One of one is chance, two of two are not.
        let expected = if claiming < 2 { 0 } else { 7 };
        assert_eq!(finished.code, Some(expected), "{}", finished.stderr);
        (found, finished.stderr)
    };
    let (first, _) = real("1");
    let repeat = &first["repeats"][0];
    assert_eq!(repeat["blocks"], 4, "{first}");
    assert_eq!(repeat["intervals"], 2);
    let p = first["exchangeable"].as_f64().unwrap();
    assert!(
        p > 0.0 && p <= 1.0 && first["places"].as_array().unwrap().len() == 4,
        "{first}"
    );
    let verdicts =
        ["faster", "slower", "no_effect", "unclear"].map(|v| repeat[v].as_u64().unwrap());
    assert_eq!(verdicts.iter().sum::<u64>(), 2);
    // A second one goes on from there.
    let (both, words) = real("2");
    assert_eq!(&both["repeats"][0], repeat);
    assert_eq!(both["repeats"].as_array().unwrap().len(), 2);
    assert_eq!(words.matches("measured in").count(), 1, "{words}");
    let page = std::fs::read_to_string(environment.workspace().join("page.md")).unwrap();
    assert!(
        page.contains("2 of 2 experiments of preset `quick`"),
        "{page}"
    );
    // The results of the workspace are left alone.
    assert_eq!(environment.run(&["report"]).code, Some(2));
    environment.wait_until_no_process_is_left();
}

#[test]
fn nonsense_is_refused() {
    let environment = TestEnvironment::with_fixture("toy");
    for args in [
        &["calibrate", "--experiments", "0"][..],
        &["calibrate", "--real", "--repeats", "0"],
        &["calibrate", "--real", "--seed", "3"],
        &["calibrate", "--repeats", "3"],
        &["calibrate", "--real", "--blocks", "1"],
    ] {
        let refused = environment.run(args);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
    }
}
