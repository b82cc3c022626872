//! Every kind of page in Chromium: axe-core finds no violation, nothing scrolls sideways, and
//! a printed page is light.

use std::path::PathBuf;

use crate::common::TestEnvironment;
use crate::common::chromium::{Chromium, assert_accessible};
use serde_json::json;

/// Writes a page in the workspace.
fn written(environment: &TestEnvironment, args: &[&str], name: &str) -> PathBuf {
    let mut all = args.to_vec();
    all.extend(["--format", "html", "--output", name]);
    let finished = environment.run(&all);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    environment.workspace().join(name)
}

/// Returns observations of one patch in blocks that two lanes or machines measured in turn.
fn observations_of_two_places(noun: &str) -> String {
    let header = json!({
        "schema": 1, "experiment": noun, "series": ["a.patch"], "release": "toy-1.0",
        "machine": { "cpu": "toy" }, "harness": "toy",
    });
    let mut lines = vec![header.to_string()];
    for block in 0..16_u32 {
        for (order, point) in ["0", "1", "control"].into_iter().enumerate() {
            let wobble = f64::from((block * 7 + order as u32 * 5) % 11) / 10.0;
            let mut line = json!({
                "schema": 1, "experiment": noun, "block": block, "order": order, "point": point, "layout": block,
                "workload": "w", "meter": "time", "unit": "ns/txn", "value": 1000.0 + wobble, "n": 1,
            });
            line[noun] = match noun {
                "lane" => json!(block % 2),
                _ => json!(format!("node{}", block % 2)),
            };
            lines.push(line.to_string());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn every_kind_of_page_is_accessible() {
    let environment = TestEnvironment::with_fixture("toy");
    let run = ["run", "--blocks", "3", "--fresh"];
    for further in [&["--effects", "alone,without"][..], &[]] {
        let finished = environment.run(&[&run[..], further].concat());
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }
    let listed = environment.run(&["report", "--list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let names: Vec<&str> = listed["experiments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["experiment"].as_str().unwrap())
        .collect();
    let [old, new] = names[..] else {
        panic!("{names:?}")
    };
    let pages = [
        written(&environment, &["report"], "report.html"),
        written(&environment, &["history"], "history.html"),
        written(&environment, &["history", old, new], "comparison.html"),
    ];
    // The bot's status page, as its own test has it.
    let status = include_str!(
        "../crates/bot/src/snapshots/perfquilt_bot__page__tests__untrusted_words_stay_words.snap"
    );
    let status = status.splitn(3, "---\n").nth(2).unwrap();
    environment.write("status.html", status);
    let status = environment.workspace().join("status.html");
    let places = [
        ("lane", "What each lane measured"),
        ("machine", "What each machine measured"),
    ];
    let places = places.map(|(noun, title)| {
        let (file, page) = (format!("{noun}.jsonl"), format!("{noun}.html"));
        environment.write(&file, observations_of_two_places(noun));
        let page = written(&environment, &["analyse", &file], &page);
        let html = std::fs::read_to_string(&page).unwrap();
        assert!(
            html.contains(title),
            "{noun}: the page does not compare them"
        );
        page
    });
    let mut browser = Chromium::start();
    for page in pages.iter().chain([&status]).chain(&places) {
        assert_accessible(&mut browser, page);
    }

    // On paper everything is dark on white, unfolded, and without navigation.
    browser.open(&pages[0], 800, "dark");
    browser.call("Emulation.setEmulatedMedia", &json!({ "media": "print" }));
    let colour = "getComputedStyle(document.body).color";
    assert_eq!(browser.evaluate(colour), json!("rgb(31, 35, 40)"));
    let height = "document.querySelector('details .scroll').getBoundingClientRect().height > 20";
    assert_eq!(browser.evaluate(height), json!(true));
    let nav = "getComputedStyle(document.querySelector('nav')).display";
    assert_eq!(browser.evaluate(nav), json!("none"));
}

#[test]
fn what_is_wrong_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.html");
    let wrong = "<!doctype html><title>w</title><meta name=viewport content=\"width=device-width\">\
                 <div style=\"width:900px\"><img src=x><p style=\"color:#ccc;background:#fff\">faint";
    std::fs::write(&file, wrong).unwrap();
    let mut browser = Chromium::start();
    browser.open(&file, 360, "light");
    let found = browser.violations().join("\n");
    for rule in ["image-alt", "html-has-lang", "color-contrast"] {
        assert!(found.contains(rule), "{found}");
    }
    assert!(browser.overhang() > 500);
}
