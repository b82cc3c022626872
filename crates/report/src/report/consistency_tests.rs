//! What a report says of random experiments: no sentence and no row says what another one denies. The tests read the
//! Markdown as a reader does, and the JSON document beside it.

use std::collections::BTreeMap;

use crate::tests::Experiment;
use crate::{EXPORTERS, ReportData};
use perfquilt_judge::attribution::{Attribution, attribute_with};
use perfquilt_model::observation::{Meter, Observation};
use perfquilt_model::point::Point;

/// Draws choices from a seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / (f64::from(u32::MAX) + 1.0)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let place = (self.next() * all.len() as f64) as usize;
        all[place]
    }

    fn is(&mut self, share: f64) -> bool {
        self.next() < share
    }
}

const EFFECTS: [f64; 12] = [
    0.0, 0.0, 0.0, 0.000_02, 0.001, 0.004, 0.008, 0.012, 0.03, -0.004, -0.011, -0.03,
];

/// Draws an experiment: its size, noise and effects, values that are missing, rounded, shifted or far off, and what the
/// header says of its points.
fn drawn(seed: u64) -> Attribution {
    let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let patches = draw.of(&[1, 1, 2, 3]);
    let gains: Vec<(f64, f64)> = (0..patches)
        .map(|_| (draw.of(&EFFECTS), draw.of(&EFFECTS) / 2.0))
        .collect();
    let mut experiment = Experiment::new(&gains);
    experiment.workloads = ["a", "b", "c", "d"][..draw.of(&[1, 2, 3, 4])].to_vec();
    experiment.blocks = draw.of(&[2, 3, 5, 6, 8, 12, 16]);
    experiment.noise = draw.of(&[0.000_05, 0.002, 0.006, 0.01]);
    experiment.control = draw.of(&[0.0, 0.0, 0.0, 0.004]);
    experiment.seed = seed + 1;
    experiment.stalled = draw.is(0.3).then(|| draw.of(&[1, patches, patches + 1]));
    let last = Point::Step(patches);
    if patches > 1 && draw.is(0.1) {
        let reason = "it does not compile".to_owned();
        experiment.header.failed.insert(last, reason);
    } else if patches > 1 && draw.is(0.1) {
        experiment
            .header
            .identical
            .insert(last, Point::Step(patches - 1));
    }
    if draw.is(0.1) {
        experiment.header.base = Some("left".to_owned());
    }
    let mut observations = experiment.observations();
    let own: Vec<f64> = (0..16)
        .map(|_| if draw.is(0.3) { draw.of(&EFFECTS) } else { 0.0 })
        .collect();
    let step = draw.of(&[0.0, 0.0, 0.0, 100.0, 900.0]);
    let (missing, far) = (draw.of(&[0.0, 0.0, 0.05]), draw.of(&[0.0, 0.0, 0.02]));
    let late = draw.of(&[0.0, 0.0, 0.0, 0.01]);
    let apart = draw.is(0.05);
    let (only_counts, no_counts) = (draw.is(0.1), draw.is(0.3));
    observations.retain(|of| !draw.is(missing) && of.block < 20);
    for of in &mut observations {
        let place = of.workload.as_bytes()[0] as usize - usize::from(b'a');
        let patch = if let Point::Step(k) = of.point { k } else { 0 };
        let gain: f64 = (1..=patch).map(|k| own[(k * 4 + place) % 16]).sum();
        let is_late = of.point == Point::Step(1) && of.block >= experiment.blocks / 2;
        let shift = if is_late { late } else { 0.0 } + if draw.is(far) { 0.2 } else { 0.0 };
        of.value *= (shift - gain).exp();
        of.mean = of.mean.map(|mean| mean * (shift - gain).exp());
        if step > 0.0 && of.meter == Meter::Time {
            of.value = (of.value / step).round() * step;
        }
        if apart && of.point == Point::Step(1) {
            of.block += 100;
        }
    }
    let is_kept = |of: &Observation| match of.meter {
        Meter::Time => !only_counts,
        _ => only_counts || !no_counts,
    };
    observations.retain(is_kept);
    let (header, supplement) = (&experiment.header, &experiment.supplement);
    attribute_with(header, &observations, supplement, &Meter::default_margin).unwrap()
}

/// Returns the report in a format, with all its sections.
fn exported(attribution: &Attribution, format: &str) -> String {
    let mut data = ReportData::new(attribution);
    data.details = true;
    let exporter = EXPORTERS.iter().find(|of| of.name == format).unwrap();
    exporter
        .export(&data)
        .unwrap()
        .text
        .replace('\u{a0}', " ")
        .replace('\\', "")
}

/// A row of a table as a reader sees it.
#[derive(Debug)]
struct Row<'t> {
    label: &'t str,
    figures: Vec<ReadFigure<'t>>,
    verdict: &'t str,
    notes: &'t str,
}

#[derive(Debug)]
struct ReadFigure<'t> {
    text: &'t str,
    is_bold: bool,
    estimate: Option<f64>,
    ends: Option<(f64, f64)>,
}

/// Reads a signed number of a report.
fn number(text: &str) -> Option<f64> {
    text.trim().replace('−', "-").parse().ok()
}

impl<'t> ReadFigure<'t> {
    fn read(text: &'t str) -> Self {
        let plain = text.replace('*', "");
        let (estimate, rest) = plain.split_once('%').unwrap_or((&plain, ""));
        let estimate = number(estimate);
        let half = rest.trim().strip_prefix('±').and_then(number);
        let both = rest.trim().strip_prefix('[').and_then(|ends| {
            let (low, high) = ends.strip_suffix(']')?.split_once(',')?;
            Some((number(low)?, number(high)?))
        });
        let around = |(estimate, half): (f64, f64)| (estimate - half, estimate + half);
        ReadFigure {
            text,
            is_bold: text.contains("**"),
            estimate,
            ends: estimate.zip(half).map(around).or(both),
        }
    }

    /// Returns whether the printed interval excludes 0; `None` where a last digit decides.
    fn excludes_zero(&self) -> Option<bool> {
        let (low, high) = self.ends?;
        if low == 0.0 || high == 0.0 || low.abs().min(high.abs()) < 1e-9 {
            return None;
        }
        Some(low > 0.0 || high < 0.0)
    }
}

/// Returns the rows of the first table of `text`, whose first `lead` cells name them.
fn rows(text: &str, lead: usize) -> Vec<Row<'_>> {
    let lines = text.lines().skip_while(|line| !line.starts_with('|'));
    let table = lines.take_while(|line| line.starts_with('|')).skip(2);
    table
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let (verdict, notes) = cells[cells.len() - 1]
                .split_once(" (")
                .unwrap_or((cells[cells.len() - 1], ""));
            Row {
                label: cells[lead - 1],
                figures: cells[lead..cells.len() - 1]
                    .iter()
                    .map(|cell| ReadFigure::read(cell))
                    .collect(),
                verdict,
                notes,
            }
        })
        .collect()
}

fn part<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let rest = text.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or(rest, |(part, _)| part)
}

const CALLED: [&str; 3] = ["faster", "slower", "mixed"];

/// Returns what contradicts what in a report.
fn contradictions(attribution: &Attribution) -> Vec<String> {
    let text = exported(attribution, "markdown");
    let mut found = Vec::new();
    let mut wrong = |what: String| found.push(what);
    let headline = text
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("## ");
    let main = rows(part(&text, "### ", "\n### "), 2);
    let total = main.iter().find(|row| row.label == "total");
    if let Some(total) = total {
        let (own, cells) = headline.split_once(", but ").unwrap_or((headline, ""));
        let said = [
            ("in part and", "mixed"),
            ("has no effect", "no effect"),
            ("no typical effect", "no typical effect"),
            ("nclear", "unclear"),
            (" faster", "faster"),
            (" slower", "slower"),
            (" fewer", "faster"),
            (" more ", "slower"),
        ];
        let said = said
            .iter()
            .find(|(words, _)| own.contains(words))
            .map(|(_, verdict)| *verdict);
        if let Some(said) = said
            && said != total.verdict
            && (!CALLED.contains(&total.verdict) || cells.is_empty())
        {
            wrong(format!("headline {headline:?}, total {total:?}"));
        }
        if let Some(estimate) = total.figures[0].estimate
            && let Some(said) = own
                .split(" %")
                .next()
                .and_then(|of| of.rsplit(' ').next())
                .and_then(number)
            && own.contains(" interval ")
            && !own.contains("typically")
            && CALLED[..2].contains(&total.verdict)
            && (said.abs() - estimate.abs()).abs() > 1e-9
        {
            wrong(format!(
                "headline {headline:?} has another figure than {total:?}"
            ));
        }
    }
    let nouns = [
        " patch: ",
        " patches: ",
        " server compared",
        " servers compared",
    ];
    let is_tally = |line: &&str| {
        line.starts_with(|of: char| of.is_ascii_digit())
            && nouns.iter().any(|noun| line.contains(noun))
    };
    let tally = text.lines().find(is_tally).unwrap_or_default();
    let patches: Vec<&Row<'_>> = main
        .iter()
        .filter(|row| !row.label.starts_with("control") && row.label != "total")
        .collect();
    for verdict in [
        "faster",
        "slower",
        "mixed",
        "no effect",
        "no typical effect",
        "unclear",
        "failed",
    ] {
        let count = patches.iter().filter(|row| row.verdict == verdict).count();
        let told = tally.split([':', ',']).map(str::trim).find_map(|of| {
            let (number, word) = of.split_once(' ')?;
            let word = word.split(" (").next()?.trim_end_matches('.');
            (word == verdict).then(|| number.parse().ok()).flatten()
        });
        if told.unwrap_or(0) != count {
            wrong(format!("tally {tally:?}: {count} rows are {verdict:?}"));
        }
    }
    let single = part(&text, "### On single workloads", "\n### ");
    let listed = rows(part(single, "By workload", "<details>"), 3);
    let mut every: Vec<(Row<'_>, bool)> = main.into_iter().map(|row| (row, false)).collect();
    let all = part(&text, "Workload by workload", "</details>");
    for table in all.split("\n#### ").skip(1) {
        every.extend(rows(table, 2).into_iter().map(|row| (row, true)));
    }
    let shows = |row: &Row<'_>| {
        row.figures.iter().any(|figure| figure.is_bold) || CALLED.contains(&row.verdict)
    };
    let is_patch = |row: &Row<'_>| row.label.starts_with('`');
    let cells: Vec<&Row<'_>> = every
        .iter()
        .filter(|(row, is_cell)| *is_cell && is_patch(row))
        .map(|(row, _)| row)
        .collect();
    let told = |words: &str| single.contains(words);
    if told("No single workload shows an effect") || told("by itself shows an effect") {
        let totals = told("No single workload shows");
        for (row, is_cell) in &every {
            let is_told = is_patch(row) || totals && row.label == "total";
            let names_one = ["faster on", "slower on"]
                .iter()
                .any(|words| row.notes.contains(words));
            if is_told && (*is_cell && shows(row) || !is_cell && names_one) {
                wrong(format!("{single:?} beside {row:?}"));
            }
        }
    } else if told("By workload") {
        let shown = cells.iter().filter(|row| shows(row)).count();
        if shown != listed.len() || listed.iter().any(|row| !shows(row)) {
            wrong(format!(
                "{shown} single workloads show an effect, listed are {listed:?}"
            ));
        }
    }
    let margins: BTreeMap<&str, f64> = text
        .lines()
        .filter_map(|line| {
            let (meter, margin) = line.strip_prefix("- margin of `")?.split_once("`: ±")?;
            Some((meter, number(margin.trim_end_matches('%'))?))
        })
        .collect();
    let first = if margins.contains_key("time") {
        "time"
    } else {
        "instructions"
    };
    for (row, is_cell) in &every {
        judge_row(row, *is_cell, margins[first], first == "time", &mut wrong);
    }
    let document: serde_json::Value = serde_json::from_str(&exported(attribution, "json")).unwrap();
    for patch in document["patches"].as_array().unwrap() {
        let index = patch["index"].as_u64().unwrap() as usize;
        let row = patches_row(&every, index);
        let effects = patch["effects"].as_array().unwrap().iter();
        let suite = attribution.main_workload(attribution.main_meter().unwrap());
        let mut main = effects.filter(|of| {
            of["kind"] == "in_order" && of["meter"] == first && of["workload"].as_str() == suite
        });
        if let Some(own) = main.next().and_then(|of| of["verdict"].as_str())
            && let Some(row) = row
            && patch["reason"].is_null()
            && own.replace('_', " ") != row.verdict
        {
            wrong(format!("JSON says {own}, {row:?}"));
        }
    }
    found
}

fn patches_row<'r, 't>(every: &'r [(Row<'t>, bool)], index: usize) -> Option<&'r Row<'t>> {
    let main = every
        .iter()
        .filter(|(row, is_cell)| !is_cell && row.label.starts_with('`'));
    main.map(|(row, _)| row).nth(index - 1)
}

/// Finds what contradicts itself in a row: its verdict, its figure and its notes.
fn judge_row(
    row: &Row<'_>,
    is_cell: bool,
    margin: f64,
    is_speed: bool,
    wrong: &mut dyn FnMut(String),
) {
    let Some(figure) = row.figures.first() else {
        return;
    };
    let mut wrong = |what: &str| wrong(format!("{what}: {row:?}"));
    let excludes = figure.excludes_zero();
    let elsewhere = ["in the mean", "in the tail", "faster on", "slower on"]
        .iter()
        .any(|words| row.notes.contains(words));
    let sign = if is_speed { 1.0 } else { -1.0 };
    let gain = figure.estimate.map(|estimate| sign * estimate);
    match row.verdict {
        "faster" if !elsewhere && gain.is_none_or(|gain| gain <= 0.0) => {
            wrong("faster without a gain")
        }
        "slower" if !elsewhere && gain.is_none_or(|gain| gain >= 0.0) => {
            wrong("slower without a loss")
        }
        "mixed" if !elsewhere => wrong("mixed without a reason"),
        "faster" | "slower" if !elsewhere && excludes == Some(false) => {
            wrong("called, but its interval has 0")
        }
        "no effect" | "no typical effect" => {
            // The last digit of the figure.
            let inside = |(low, high): (f64, f64)| low > -margin - 0.011 && high < margin + 0.011;
            if figure.text != "0 %" && !figure.ends.is_some_and(inside) {
                wrong("no effect, but its interval leaves the margin");
            }
        }
        "unclear" if figure.is_bold && !is_cell && !elsewhere => wrong("unclear, but significant"),
        "includes 0" if excludes != Some(false) && figure.text != "0 %" && excludes.is_some() => {
            wrong("control")
        }
        "misses 0"
            if row
                .figures
                .iter()
                .all(|of| of.excludes_zero() == Some(false)) =>
        {
            wrong("control")
        }
        _ => {}
    }
    let by_itself = row.notes.contains("excludes 0 by itself") || row.notes.contains("excludes 0,");
    if by_itself && excludes == Some(false) {
        wrong("excludes 0 in words only");
    }
    let is_judged = ["unclear", "no effect"].contains(&row.verdict);
    if is_judged && excludes == Some(true) && !by_itself && !row.notes.contains("not measured") {
        wrong("excludes 0 without a word");
    }
    if row.notes.contains("minimum detectable effect 0 %") || row.notes.contains("effect 0.00 %") {
        wrong("detects everything");
    }
}

/// The number of experiments: those of an optimised build (`cargo test --release`) take a minute.
const EXPERIMENTS: u64 = if cfg!(debug_assertions) { 400 } else { 10_000 };

#[test]
fn no_sentence_of_a_report_contradicts_a_row() {
    for seed in 0..EXPERIMENTS {
        let attribution = drawn(seed);
        let found = contradictions(&attribution);
        assert!(
            found.is_empty(),
            "experiment {seed}: {found:#?}\n{}",
            exported(&attribution, "markdown")
        );
    }
}
