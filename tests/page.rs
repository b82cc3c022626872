//! The pages in a real browser: their figures are the stored ones, and they fit a phone.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use regex::Regex;
use serde_json::Value;

/// Real observations: four patches, six workloads, two meters.
const OBSERVATIONS: &str = "docs/results/2026-11-21-mariadb-10.11.18.jsonl.gz";

/// A page as Chromium reads it, with its complaints.
fn dom(folder: &Path, page: &Path, width: u32) -> (String, String) {
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--dump-dom",
            "--enable-logging=stderr",
            "--virtual-time-budget=2000",
        ])
        .arg(format!("--window-size={width},900"))
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(format!("file://{}", page.display()))
        .env("HOME", folder)
        .output()
        .expect("Chromium is needed: ci/install-deps --tests");
    assert!(output.status.success(), "{output:?}");
    (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn perfquilt(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_perfquilt"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The report of [`OBSERVATIONS`] as a page in `folder`.
fn page(folder: &Path) -> PathBuf {
    let file = folder.join("report.html");
    let name = file.to_str().unwrap();
    perfquilt(&[
        "analyse",
        OBSERVATIONS,
        "--format",
        "html",
        "--output",
        name,
    ]);
    file
}

/// Estimate, ends of the interval and text of every figure of a part of a page.
fn figures(html: &str) -> Vec<(f64, Option<f64>, Option<f64>, String)> {
    let figure = Regex::new(
        r#"<data value="([^"]+)"(?: data-low="([^"]+)")?(?: data-high="([^"]+)")?>([^<]*)</data>"#,
    )
    .unwrap();
    figure
        .captures_iter(html)
        .map(|found| {
            let number = |at| found.get(at).map(|m| m.as_str().parse::<f64>().unwrap());
            (
                number(1).unwrap(),
                number(2),
                number(3),
                found[4].to_owned(),
            )
        })
        .collect()
}

/// The effects of the document in the order in which a table of `workload` shows them.
fn expected<'a>(document: &'a Value, workload: &str) -> Vec<&'a Value> {
    let patches = document["patches"].as_array().unwrap().iter();
    let mut rows: Vec<(&Value, &str)> = patches.map(|p| (&p["effects"], "in_order")).collect();
    rows.push((&document["total"], "total"));
    rows.push((&document["noise"]["control"], "control"));
    let mut found = Vec::new();
    for (effects, kind) in rows {
        for meter in ["time", "instructions"] {
            found.extend(
                effects.as_array().unwrap().iter().find(|e| {
                    e["kind"] == kind && e["meter"] == meter && e["workload"] == workload
                }),
            );
        }
    }
    found
}

#[test]
fn figures_in_the_browser_are_the_stored_ones() {
    let folder = tempfile::tempdir().unwrap();
    let file = page(folder.path());
    let (dom, complaints) = dom(folder.path(), &file, 1200);
    assert!(!complaints.contains("Refused"), "{complaints}");
    let document: Value =
        serde_json::from_str(&perfquilt(&["--json", "analyse", OBSERVATIONS])).unwrap();

    let main = dom.split("<h2 id=\"adds-up\">").next().unwrap();
    let mut tables = vec![("*", main)];
    let workloads = dom.split("<h2 id=\"workloads\">").nth(1).unwrap();
    let workloads = workloads.split("</section>").next().unwrap();
    let names = document["workloads"].as_array().unwrap();
    let parts: Vec<&str> = workloads.split("<h3>").skip(1).collect();
    assert_eq!(parts.len(), names.len());
    tables.extend(names.iter().map(|name| name.as_str().unwrap()).zip(parts));

    let mut compared = 0;
    for (workload, part) in tables {
        let (shown, stored) = (figures(part), expected(&document, workload));
        assert_eq!(shown.len(), stored.len(), "{workload}");
        for ((estimate, low, high, text), effect) in shown.iter().zip(stored) {
            let change = &effect["change"];
            assert_eq!(Some(*estimate), change["estimate"].as_f64(), "{workload}");
            assert_eq!(*low, change["low"].as_f64(), "{workload}");
            assert_eq!(*high, change["high"].as_f64(), "{workload}");
            // What people read is that number rounded.
            let text = text.replace("&nbsp;", " ");
            let (number, _) = text.split_once(" %").unwrap();
            let places = number.split_once('.').map_or(0, |(_, digits)| digits.len());
            let rounded = format!("{:.places$}", (100.0 * estimate).abs());
            assert!(text.contains(&rounded), "{text} for {estimate}");
            compared += 1;
        }
    }
    assert_eq!(compared, (names.len() + 1) * 6 * 2);
}

#[test]
fn the_data_in_the_page_are_the_observations() {
    let folder = tempfile::tempdir().unwrap();
    let (dom, _) = dom(folder.path(), &page(folder.path()), 1200);
    let links = Regex::new(r#"href="data:application/gzip;base64,([^"]+)" download="([^"]+)""#);
    let unpack = |text: &str| {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap();
        let mut unpacked = String::new();
        let mut reader = flate2::read::GzDecoder::new(&bytes[..]);
        reader.read_to_string(&mut unpacked).unwrap();
        unpacked
    };
    let files: Vec<(String, String)> = links
        .unwrap()
        .captures_iter(&dom)
        .map(|found| (found[2].to_owned(), unpack(&found[1])))
        .collect();
    let [(observations, lines), (document, effects)] = &files[..] else {
        panic!("{} files", files.len());
    };
    assert!(observations.ends_with(".jsonl.gz") && document.ends_with(".json.gz"));
    // A compressed file has its own checksum, a plain one a line at its end.
    let plain = perfquilt(&["analyse", OBSERVATIONS, "--format", "jsonl"]);
    let (plain, checksum) = plain.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(lines.trim_end(), plain);
    assert!(checksum.starts_with("{\"sha256\":"), "{checksum}");
    let effects: Value = serde_json::from_str(effects).unwrap();
    let stored: Value =
        serde_json::from_str(&perfquilt(&["--json", "analyse", OBSERVATIONS])).unwrap();
    assert_eq!(effects, stored);
}

/// How many pixels `file` is too wide for a screen of `width`.
fn overhang(folder: &Path, file: &Path, width: u32) -> i64 {
    // The page forbids scripts, and Chromium's windows have a least width: a copy without the policy, every
    // table unfolded, in a frame.
    let policy = Regex::new("<meta http-equiv=\"Content-Security-Policy\"[^>]*>").unwrap();
    let html = std::fs::read_to_string(file).unwrap();
    let html = policy
        .replace(&html, "")
        .replace("<details", "<details open");
    let html = html.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<title></title><iframe width={width} height=900 frameborder=0 srcdoc=\"{html}\"></iframe>\
         <script>onload=()=>{{const e=document.querySelector('iframe').contentDocument.documentElement;\
         document.title='overhang '+(e.scrollWidth-e.clientWidth)+' of '+e.clientWidth}}</script>"
    );
    let copy = folder.join(format!("{width}.html"));
    std::fs::write(&copy, frame).unwrap();
    let (dom, _) = dom(folder, &copy, 1300);
    let said = Regex::new(r"<title>overhang (-?\d+) of (\d+)</title>").unwrap();
    let said = said.captures(&dom).unwrap();
    assert!(said[2].parse::<u32>().unwrap() <= width, "{}", &said[0]);
    said[1].parse().unwrap()
}

#[test]
fn pages_fit_a_phone() {
    let folder = tempfile::tempdir().unwrap();
    let file = page(folder.path());
    for width in [360, 1200] {
        assert_eq!(overhang(folder.path(), &file, width), 0, "{width}");
    }
}
