//! `perfquilt calibrate` on the toy server.

use crate::common::TestEnvironment;
use serde_json::Value;

#[test]
fn the_toy_server_against_itself() {
    let environment = TestEnvironment::with_fixture("toy");
    let real = |repeats: &str| {
        let args = [
            "calibrate",
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
    // Each fault is planted 15 times into each of them.
    let planted = both["planted"].as_array().unwrap();
    assert!(
        planted.len() > 5 && planted.iter().all(|fault| fault["experiments"] == 30),
        "{both}"
    );
    assert_eq!(planted[0]["scenario"], "nothing");
    assert_eq!(planted[0]["intervals"], 60);
    // The results of the workspace are left alone.
    assert_eq!(environment.run(&["report"]).code, Some(2));
    environment.wait_until_no_process_is_left();
}

#[test]
fn nonsense_is_refused() {
    let environment = TestEnvironment::with_fixture("toy");
    for args in [
        &["calibrate", "--repeats", "0"][..],
        &["calibrate", "--copies", "0"],
        &["calibrate", "--blocks", "1"],
    ] {
        let refused = environment.run(args);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
    }
    // A file of the user's stays as it is.
    let series = environment.read("series");
    let refused = environment.run(&["calibrate", "--output", "series"]);
    assert!(
        refused.code == Some(2) && environment.read("series") == series,
        "{}",
        refused.stderr
    );
    let refused = environment.run(&["calibrate", "--experiments", "10"]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("`ci/calibrate`"),
        "{}",
        refused.stderr
    );
}
