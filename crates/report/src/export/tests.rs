use super::bmf::bencher;
use super::csv::csv;
use super::github_action_benchmark::github_action_benchmark;
use super::gobench::go_benchmark;
use super::openmetrics::openmetrics;
use super::*;
use crate::tests::Experiment;
use perfquilt_judge::attribution::attribute_with;
use perfquilt_judge::attribution::{Operation, Provenance};
use perfquilt_model::observation::{Meter, Observation, ObservationFile, ReusedFrom};

fn hostile() -> Experiment {
    let mut experiment = Experiment::new(&[(0.02, 0.01), (-0.01, 0.0)]);
    experiment.header.series = vec!["=cmd|' /C calc'!A0,\"x\"\n".into(), "b\\\" c.patch".into()];
    experiment.workloads = vec!["a b/c", "oltp"];
    experiment
}

fn attribution(experiment: &Experiment) -> Attribution {
    attribute_with(
        &experiment.header,
        &experiment.observations(),
        &experiment.supplement,
        &Meter::default_margin,
    )
    .unwrap()
}

#[test]
fn comma_separated_values_read_back_to_the_same_effects() {
    let attribution = attribution(&hostile());
    let text = csv(&attribution).unwrap().text;
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().unwrap().clone();
    let column = |name: &str| heads.iter().position(|head| head == name).unwrap();
    let lines: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let effects: Vec<_> = attribution
        .patches
        .iter()
        .flat_map(|patch| &patch.effects)
        .chain(&attribution.total)
        .chain(attribution.noise.control.iter().map(|c| &c.effect))
        .collect();
    assert_eq!(lines.len(), effects.len());
    for (line, effect) in lines.iter().zip(effects) {
        let number = |name: &str| line[column(name)].parse::<f64>().ok();
        assert_eq!(number("estimate"), Some(effect.estimate));
        assert_eq!(number("low"), effect.low);
        assert_eq!(number("p_adjusted"), effect.p_adjusted);
        assert_eq!(line[column("workload")], effect.workload);
        assert_eq!(line[column("point")], effect.point.to_string());
        // No spreadsheet takes a name for a formula.
        assert!(!line.iter().any(|field| field.starts_with('=')), "{line:?}");
    }
}

#[test]
fn effects_on_operations_are_there_with_their_patch() {
    let mut attribution = attribution(&hostile());
    let mut effect = attribution.patches[1].effects[0].clone();
    effect.point = Point::Step(2);
    effect.workload = "oltp/join".into();
    attribution.operations = vec![Operation {
        workload: "oltp".into(),
        operation: "join".into(),
        meter: effect.meter,
        effects: vec![effect],
    }];
    let text = csv(&attribution).unwrap().text;
    let lines: Vec<&str> = text.lines().filter(|l| l.contains(",oltp/join,")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(
        lines[0].contains(",2,") && lines[0].contains("c.patch"),
        "{text}"
    );
    let text = openmetrics(&attribution).text;
    let mut lines = text.lines();
    let line = lines.find(|line| line.contains(r#"workload="oltp/join""#));
    assert!(line.unwrap().contains("c.patch\""), "{line:?}");
}

#[test]
fn go_benchmarks_have_a_line_an_observation() {
    let experiment = hostile();
    let mut observations = experiment.observations();
    let text = go_benchmark(&experiment.header, &observations).text;
    // The bare release comes first, even if it was measured later; the rest is in order.
    observations.sort_by_key(|observation| observation.point);
    let lines: Vec<&str> = text
        .lines()
        .filter(|l| l.starts_with("Benchmark"))
        .collect();
    assert_eq!(lines.len(), observations.len());
    for (line, observation) in lines.iter().zip(&observations) {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, n, value, unit] = words[..] else {
            panic!("{line}");
        };
        assert!(
            name.ends_with(&format!("/point={}", observation.point)),
            "{line}"
        );
        assert_eq!(n.parse(), Ok(observation.n));
        assert_eq!(value.parse(), Ok(observation.value));
        assert_eq!(unit == "ns/op", observation.meter == Meter::Time);
    }
    assert!(text.contains("workload=a_b_c/"), "{text}");
}

#[test]
fn what_is_carried_stands_under_its_own_experiment_and_what_is_stale_nowhere() {
    let mut experiment = Experiment::new(&[(0.02, 0.01)]);
    let origin = |experiment: &str, stale: Option<&str>| ReusedFrom {
        experiment: experiment.into(),
        stale: stale.map(str::to_owned),
        ..ReusedFrom::default()
    };
    experiment.header.reused = vec![
        origin("quick-0", None),
        origin("old", Some("another kernel")),
    ];
    let own = experiment.observations();
    let of = |name: &str| {
        let renamed = own.iter().map(|o| Observation {
            experiment: name.into(),
            ..o.clone()
        });
        renamed.collect::<Vec<_>>()
    };
    let all = [of("old"), own.clone(), of("quick-0")].concat();
    let text = go_benchmark(&experiment.header, &all).text;
    let named: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("experiment: "))
        .collect();
    assert_eq!(named, ["experiment: quick-1", "experiment: quick-0"]);
    let groups: Vec<usize> = text
        .split("experiment: ")
        .map(|group| group.matches("BenchmarkServer/").count())
        .collect();
    assert_eq!(groups, [0, own.len(), own.len()]);
}

#[test]
fn names_in_a_line_reorder_and_hide_nothing() {
    assert_eq!(
        one_line("a\u{202e}b\u{2028}c\nd\te"),
        "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e"
    );
}

#[test]
fn a_table_without_effects_has_a_head() {
    let empty = Experiment::new(&[]);
    let header = &empty.header;
    let nothing =
        perfquilt_judge::attribution::attribute(header, &[], &Meter::default_margin).unwrap();
    let text = csv(&nothing).unwrap().text;
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("experiment,release,kind,"), "{text}");
}

#[test]
fn the_source_of_a_figure_is_shown_and_is_no_formula() {
    let mut attribution = Experiment::new(&[(0.02, 0.01)]).attribution();
    let name = "=HYPERLINK(\"x\")";
    attribution.total.clear();
    attribution.noise.control.clear();
    attribution.patches[0].effects.truncate(2);
    attribution.patches[0].effects[0].provenance = Some(Provenance::Stale(name.into()));
    attribution.patches[0].effects[1].provenance = Some(Provenance::Reused(name.into()));
    let text = csv(&attribution).unwrap().text;
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let ends: Vec<(String, String)> = reader
        .records()
        .map(|line| {
            let line = line.unwrap();
            (line[21].to_owned(), line[22].to_owned())
        })
        .collect();
    let from = format!("'{name}");
    let expected = [
        (from.clone(), "true".to_owned()),
        (from, "false".to_owned()),
    ];
    assert_eq!(ends, expected);
}

#[test]
fn services_get_the_costs() {
    let attribution = attribution(&hostile());
    let metrics: serde_json::Value =
        serde_json::from_str(&bencher(&attribution).unwrap().text).unwrap();
    let entries = github_action_benchmark(&attribution).unwrap().text;
    let entries: Vec<serde_json::Value> = serde_json::from_str(&entries).unwrap();
    assert_eq!(entries.len(), attribution.costs.len());
    for (cost, entry) in attribution.costs.iter().zip(&entries) {
        let name = name_of(&attribution, cost);
        let measure = match cost.meter {
            Meter::Time => "latency",
            _ => "instructions",
        };
        assert_eq!(metrics[&name][measure]["value"], cost.estimate, "{name}");
        assert_eq!(metrics[&name][measure]["lower_value"].as_f64(), cost.low);
        assert_eq!(entry["value"], cost.estimate);
        assert_eq!(entry["unit"], cost.meter.unit());
    }
}

fn name_of(
    attribution: &Attribution,
    cost: &perfquilt_judge::attribution::TransactionCost,
) -> String {
    let point = one_line(&point_label(attribution, cost.point));
    format!("{}/{point}", cost.workload)
}

/// Line by line by the grammar of OpenMetrics 1.0: metadata before samples, escaped labels, one end.
#[test]
fn metrics_are_well_formed() {
    let attribution = attribution(&hostile());
    let text = openmetrics(&attribution).text;
    assert!(text.ends_with("\n# EOF\n"));
    let sample = regex::Regex::new(
        r#"^([a-z_]+)\{[a-z_]+="(?:[^"\\]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\]|\\["\\n])*")*\} (\S+)$"#,
    )
    .unwrap();
    let mut family = String::new();
    let mut values = 0;
    for line in text.lines().take_while(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().to_owned();
        } else if !line.starts_with("# ") {
            let found = sample.captures(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(found[1], family);
            assert!(found[2].parse::<f64>().unwrap().is_finite());
            values += 1;
        }
    }
    assert!(values > 3 * attribution.total.len());
}

#[test]
fn every_format_exports_from_the_input_it_requires() {
    let mut experiment = Experiment::new(&[(0.02, 0.01)]);
    experiment.workloads = vec!["program"];
    let file = ObservationFile {
        header: experiment.header.clone(),
        supplement: experiment.supplement.clone(),
        observations: experiment.observations(),
    };
    let mut attribution = experiment.attribution();
    // The format sql-bench needs a client that timed operations.
    attribution.operations = vec![Operation {
        workload: "program".into(),
        operation: "join".into(),
        meter: Meter::Time,
        effects: Vec::new(),
    }];
    let bare = ReportData::new(&attribution);
    let whole = ReportData {
        file: Some(&file),
        ..bare
    };
    let mut names = std::collections::BTreeSet::new();
    for format in EXPORTERS {
        let name = format.name;
        assert!(names.insert(name), "two formats are called {name}");
        let plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(name.chars().all(plain), "{name}");
        let help = format.help;
        assert!(!help.is_empty() && !help.ends_with('.') && !help.contains('\n'));
        let required = format.required_input >= RequiredInput::Observations;
        let data = if required { &whole } else { &bare };
        let exported = format.export(data).unwrap();
        assert!(exported.text.ends_with('\n'), "{name}: {}", exported.text);
        assert_eq!(exported.companion, None, "{name}");
        if required {
            let fault = format.export(&bare).unwrap_err();
            assert!(
                fault.message().contains("did not ask for"),
                "{name}: {fault}"
            );
        }
    }
    for format in [TERMINAL, JSON] {
        assert!(names.contains(format.name), "{}", format.name);
        assert!(format.is_for_terminals, "{}", format.name);
    }
}

/// Observations that take more than [`html::MOST_EMBEDDED`] bytes even when compressed.
fn large() -> ObservationFile {
    let experiment = Experiment::new(&[(0.02, 0.01)]);
    let mut observations = experiment.observations();
    let one = observations[0].clone();
    // Digits of a generator of Marsaglia's, which no compression shortens.
    let mut state = 88_172_645_463_325_252_u64;
    observations.extend((1000..150_000).map(|block| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Observation {
            block,
            value: 1e5 + state as f64 / 1e15,
            ..one.clone()
        }
    }));
    ObservationFile {
        header: experiment.header,
        supplement: experiment.supplement,
        observations,
    }
}

#[test]
fn too_many_observations_go_to_a_file_beside_the_page() {
    let file = large();
    let attribution = Experiment::new(&[(0.02, 0.01)]).attribution();
    let data = ReportData {
        file: Some(&file),
        companion: Some("report.observations.jsonl.gz"),
        ..ReportData::new(&attribution)
    };
    let exported = html::HTML.export(&data).unwrap();
    assert_eq!(exported.companion, Some(file.compressed().unwrap()));
    let link = "href=\"report.observations.jsonl.gz\"";
    assert!(exported.text.contains(link), "{}", exported.text.len());
    // A pipe has no file beside it.
    let piped = ReportData {
        companion: None,
        ..data
    };
    let exported = html::HTML.export(&piped).unwrap();
    assert_eq!(exported.companion, None);
    assert!(
        exported
            .text
            .contains("observations are too much for a page")
    );
}

/// Returns what a format makes of an experiment with its observations.
fn exported(experiment: &Experiment, format: &str) -> ExportedReport {
    let attribution = experiment.attribution();
    let file = ObservationFile {
        header: experiment.header.clone(),
        supplement: experiment.supplement.clone(),
        observations: experiment.observations(),
    };
    let data = ReportData {
        file: Some(&file),
        ..ReportData::new(&attribution)
    };
    let mut formats = EXPORTERS.iter();
    let exporter = formats.find(|of| of.name == format).unwrap();
    exporter.export(&data).unwrap()
}

#[test]
fn different_workloads_have_different_names_in_every_format() {
    let mut experiment = Experiment::new(&[(0.02, 0.01)]);
    let names = [
        "a b", "a_b", "a/b", "a.b", "A b", "a#2", "a_b#2", "read-10", "point=2", "x\u{1}y",
        "x\u{2}y", "=1", "'=1", "é", "a|b", "a b/1 c",
    ];
    experiment.workloads = names.to_vec();
    let export = |format: &str| exported(&experiment, format);
    let unique = |names: &mut dyn Iterator<Item = String>| names.collect::<BTreeSet<_>>().len();

    let go = export("gobench");
    let lines = go.text.lines().filter(|line| line.starts_with("Benchmark"));
    let mut found = lines.map(|line| line.split("/point=").next().unwrap().to_owned());
    assert_eq!(unique(&mut found), names.len());
    let noted = "`a_b#4` stands for a/b: its name has a number, as another one looks the same";
    assert!(go.notes.iter().any(|note| note == noted), "{:?}", go.notes);

    let bmf: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&export("bmf").text).unwrap();
    assert_eq!(bmf.len(), names.len() * 3);
    let entries: Vec<serde_json::Value> =
        serde_json::from_str(&export("github-action-benchmark").text).unwrap();
    let mut found = entries.iter().map(|entry| entry["name"].to_string());
    assert_eq!(unique(&mut found), entries.len());

    let metrics = export("openmetrics").text;
    let series = || metrics.lines().filter(|line| !line.starts_with('#'));
    let mut found = series().map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
    assert_eq!(unique(&mut found), series().count());

    let rows = export("csv").text;
    let mut reader = ::csv::Reader::from_reader(rows.as_bytes());
    let mut found = reader
        .records()
        .map(|row| row.unwrap()[5].to_owned())
        .filter(|name| name != "*");
    assert_eq!(unique(&mut found), names.len());

    let rates = export("rates").text;
    let rows = rates.lines().filter(|line| line.contains("| 0: "));
    let mut found = rows.map(|row| row.split(" | 0: ").next().unwrap().to_owned());
    // `a b/1 c` is an operation of `a b`, which has no row.
    assert_eq!(unique(&mut found), names.len() - 1);
}

#[test]
fn no_format_calls_servers_a_series() {
    for servers in [1, 3] {
        let gains = [(0.02, 0.0), (0.0, 0.0), (-0.02, 0.0)];
        let mut experiment = Experiment::new(&gains[..servers]);
        experiment.header.base = Some("A".to_owned());
        experiment.header.release = "r".to_owned();
        experiment.header.series = ["B", "C", "D"][..servers]
            .iter()
            .map(ToString::to_string)
            .collect();
        experiment.header.titles.clear();
        experiment.workloads = vec!["w"];
        let attribution = experiment.attribution();
        for patch in &attribution.patches {
            let against = patch.effects.iter().map(|effect| effect.against);
            assert!(against.clone().all(|point| point == Point::BASE));
            assert!(against.count() > 0);
        }
        for format in [
            "terminal",
            "markdown",
            "html",
            "rates",
            "openmetrics",
            "gobench",
            "bmf",
            "github-action-benchmark",
        ] {
            let text = exported(&experiment, format).text.to_lowercase();
            // Drawings and embedded data are no words for people.
            let words = text.split("data:application").next().unwrap();
            for word in ["series", "patch", "bare release"] {
                let found = words.find(word);
                let around = found.map(|place| {
                    words[place.saturating_sub(60)..]
                        .chars()
                        .take(150)
                        .collect::<String>()
                });
                assert_eq!(around, None, "{format}, {servers} servers");
            }
        }
        let text = exported(&experiment, "json").text;
        assert!(
            text.contains(r#""compared_with": "base""#)
                || text.contains(r#""compared_with":"base""#),
            "{text}"
        );
    }
}
