use super::*;
use perfquilt_judge::attribution::{Attribution, SUITE, Verdict, attribute_with};
use perfquilt_report::{EXPORTERS, ReportData};

fn of(form: Form, files: &[(&str, &str)]) -> Result<ObservationFile> {
    let inputs = files.iter().map(|(name, text)| {
        let bytes: Box<dyn BufRead> = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        (PathBuf::from(name), bytes)
    });
    read(form, inputs.collect())
}

const SYSBENCH: &str = "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n
Running the test with following options:
Number of threads: 4
SQL statistics:
    transactions:                        3120   (311.80 per sec.)
General statistics:
    total time:                          10.0064s
    total number of events:              3120
";

const HYPERFINE: &str = r#"{
  "results": [
    {"command": "old", "mean": 0.1, "times": [0.1, 0.102, 9.0], "exit_codes": [0, 0, 1]},
    {"command": "new --fast", "mean": 0.09, "times": [0.09, 0.092]}
  ]
}"#;

const GO: &str = "goos: linux\npkg: example.org/x\nBenchmarkDecode/text=digits-8   100   154125 ns/op   64.88 MB/s   40418 B/op\n\
    BenchmarkDecode/text=digits-8   100   155005 ns/op\nPASS\nok  \texample.org/x\t3.2s\n";

#[test]
fn forms_are_known_by_their_beginning() {
    assert_eq!(detect(SYSBENCH.as_bytes()), Some(Form::Sysbench));
    assert_eq!(detect(HYPERFINE.as_bytes()), Some(Form::Hyperfine));
    assert_eq!(detect(GO.as_bytes()), Some(Form::GoBenchmark));
    for other in [
        "",
        "{\"schema\":1,\"experiment\":\"results\"}",
        "level\tname",
        "Benchmarks 1 2 3",
    ] {
        assert_eq!(detect(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn logs_of_sysbench() {
    let faster = SYSBENCH.replace("3120\n", "3200\n");
    let twice = [SYSBENCH, SYSBENCH].concat();
    let file = of(
        Form::Sysbench,
        &[("d/base.log", &twice), ("patched.log", &faster)],
    )
    .unwrap();
    assert_eq!(file.header.series, ["patched"]);
    let values: Vec<(u32, Point, u64)> = file
        .observations
        .iter()
        .map(|o| (o.block, o.point, o.n))
        .collect();
    let (base, patched) = (Point::BASE, Point::Step(1));
    assert_eq!(
        values,
        [(0, base, 3120), (1, base, 3120), (2, patched, 3200)]
    );
    assert!((file.observations[0].value - 1e9 * 10.0064 / 3120.0).abs() < 1e-6);
}

#[test]
fn documents_of_hyperfine() {
    let file = of(Form::Hyperfine, &[("x.json", HYPERFINE)]).unwrap();
    assert_eq!(file.header.series, ["new --fast"]);
    let values: Vec<f64> = file.observations.iter().map(|o| o.value).collect();
    assert_eq!(values, [0.1e9, 0.102e9, 0.09e9, 0.092e9]);
}

#[test]
fn go_benchmarks_of_two_files() {
    let file = of(Form::GoBenchmark, &[("old.txt", GO), ("new.txt", GO)]).unwrap();
    assert_eq!(file.header.series, ["new"]);
    assert_eq!(file.observations.len(), 4);
    assert_eq!(file.observations[0].workload, "Decode.text=digits");
    assert_eq!(file.observations[3].point, Point::Step(1));
}

#[test]
fn benchmarks_of_a_server_share_its_blocks_so_that_all_together_have_a_figure() {
    let lines = |ns: u32| -> String {
        let line = |name: &str, ns| format!("Benchmark{name}-8\t100\t{ns} ns/op\n");
        (0..5)
            .map(|i| line("Decode", ns + i) + &line("Encode", 3 * ns + i))
            .collect()
    };
    let (old, new) = (lines(1000), lines(1200));
    let file = of(Form::GoBenchmark, &[("old.txt", &old), ("new.txt", &new)]).unwrap();
    let blocks = |point: Point, workload: &str| -> Vec<u32> {
        let all = file.observations.iter();
        let these = all.filter(|o| o.point == point && o.workload == workload);
        these.map(|o| o.block).collect()
    };
    for workload in ["Decode", "Encode"] {
        assert_eq!(blocks(Point::BASE, workload), [0, 1, 2, 3, 4]);
        assert_eq!(blocks(Point::Step(1), workload), [5, 6, 7, 8, 9]);
    }
    let result = attribution(&file);
    let total = &result.total[0];
    assert_eq!((total.workload.as_str(), total.unpaired), (SUITE, true));
    assert_eq!(total.verdict, Verdict::Slower);
    assert!(result.is_regression() && !result.is_inconclusive());
}

/// The file in Go's benchmark format, as `perfquilt report --format gobench` writes it.
fn go_benchmark(file: &ObservationFile) -> String {
    let mut formats = EXPORTERS.iter();
    let format = formats.find(|format| format.name() == "gobench").unwrap();
    let attribution = attribution(file);
    let data = ReportData {
        file: Some(file),
        ..ReportData::new(&attribution)
    };
    format.export(&data).unwrap().text
}

fn attribution(file: &ObservationFile) -> Attribution {
    let (header, supplement) = (&file.header, &file.supplement);
    attribute_with(header, &file.observations, supplement, &|_| 0.005).unwrap()
}

#[test]
fn what_was_carried_over_is_not_compared_with_the_rest() {
    let mut header = ExperimentHeader::new("r", "");
    header.experiment = "x".into();
    header.series = ["a", "b", "c"].map(str::to_owned).to_vec();
    header.failed.insert(Point::Step(3), "crashed".into());
    header.reused = ["y", "old"].map(origin).to_vec();
    let mut observations = Vec::new();
    for (experiment, cost, points) in [("x", 1e5, [0, 2, 3]), ("y", 2e5, [0, 1, 3])] {
        for block in 0..6 {
            for point in points {
                for (workload, share) in [("q", 1.0), ("q/part one", 0.1)] {
                    let wobble = 1.0 + 0.001 * f64::from((block + 2) % 3);
                    let gain = 1.0 - 0.02 * point as f64;
                    observations.push(Observation {
                        schema: SCHEMA,
                        experiment: experiment.into(),
                        block,
                        order: 0,
                        point: Point::Step(point),
                        layout: 0,
                        workload: workload.into(),
                        meter: Meter::Time,
                        unit: Meter::Time.unit().into(),
                        value: cost * share * wobble * gain,
                        n: 10,
                        direct: false,
                        mean: None,
                        slow: None,
                        p99: None,
                        lane: None,
                        machine: None,
                    });
                }
            }
        }
    }
    let exported = ObservationFile {
        header,
        supplement: Supplement::default(),
        observations,
    };
    let text = go_benchmark(&exported);
    let file = of(Form::GoBenchmark, &[("y.txt", &text)]).unwrap();
    assert_eq!(file.header.experiment, "x");
    assert_eq!(file.header.reused, [origin("y")]);
    assert_eq!(file.header.series, ["a", "b", "c"]);
    assert!(file.observations.iter().all(|o| o.point != Point::Step(3)));
    assert_eq!(file.observations.len(), 2 * 6 * 2 * 2);
    let result = attribution(&file);
    assert_eq!(result.workloads, ["q"]);
    assert_eq!(result.operations[0].operation, "part one");
    for (patch, gain) in [(0, 1.0 / 0.98), (1, 1.0 / 0.96)] {
        let effect = &result.patches[patch].effects[0];
        assert!((effect.estimate - (gain - 1.0)).abs() < 1e-9, "{effect:?}");
        assert_eq!(effect.against, Point::BASE);
    }
    assert_eq!(result.patches[0].effects[0].from(), Some("y"));
    assert_eq!(
        result.patches[2].reason.as_deref(),
        Some("not measured so far")
    );
    let other = text.replace("experiment: x", "experiment: z");
    let files = [("a.txt", &*text), ("b.txt", &*other)];
    let refused = of(Form::GoBenchmark, &files).unwrap_err().to_string();
    assert!(
        refused.contains("b.txt: the values are from experiment `z`"),
        "{refused}"
    );
}

fn origin(experiment: &str) -> ReusedFrom {
    ReusedFrom {
        experiment: experiment.to_owned(),
        ..ReusedFrom::default()
    }
}

#[test]
fn a_part_of_a_benchmark_is_no_operation() {
    let text = "BenchmarkDB/operation=read-8 10 5 ns/op\nBenchmarkDB-8 10 7 ns/op\n";
    let file = of(Form::GoBenchmark, &[("a.txt", text), ("b.txt", text)]).unwrap();
    assert_eq!(file.observations[0].workload, "DB.operation=read");
}

#[test]
fn runs_that_failed_are_told() {
    let document = HYPERFINE.replace("0.092]}", "0.092], \"exit_codes\": [1, null]}");
    let file = of(Form::Hyperfine, &[("x.json", &document)]).unwrap();
    let left_out: Vec<(u64, &str)> = file
        .supplement
        .left_out
        .iter()
        .map(|left| (left.count, left.reason.as_str()))
        .collect();
    assert_eq!(
        left_out,
        [
            (1, "runs of old that ended with another exit code than 0"),
            (
                2,
                "runs of new --fast that ended with another exit code than 0"
            ),
        ]
    );
    assert_eq!(
        file.header.failed[&Point::Step(1)],
        "no run ended with exit code 0"
    );
    assert!(attribution(&file).is_inconclusive());
}

#[test]
fn logs_of_sysbench_1_1() {
    let log = "sysbench 1.1.0-df89d34 (using bundled LuaJIT 2.1.0-beta3)\n\nThroughput:\n    \
        events/s (eps):                      9.9831\n    \
        time elapsed:                        10.0169s\n    \
        total number of events:              100\n";
    let file = of(Form::Sysbench, &[("a.log", log), ("b.log", log)]).unwrap();
    assert_eq!(file.observations[1].n, 100);
    assert!((file.observations[1].value - 1e9 * 0.100_169).abs() < 1e-3);
}

#[test]
fn what_is_not_of_the_form_is_refused_with_its_place() {
    let bad = |form, text: &str| {
        let files = [("a.txt", text), ("b.txt", text)];
        of(form, &files).unwrap_err().to_string()
    };
    for (form, text, said) in [
        (
            Form::Sysbench,
            SYSBENCH.replace("10.0064s", "0s"),
            "a.txt:8",
        ),
        (
            Form::Sysbench,
            SYSBENCH.replace("total time", "time"),
            "a.txt:9",
        ),
        (
            Form::Sysbench,
            SYSBENCH.replace("events:              3120", "events: 0"),
            "a.txt:9",
        ),
        (
            Form::Sysbench,
            "sysbench 1.0.20\n".into(),
            "a.txt: no results",
        ),
        (
            Form::Hyperfine,
            HYPERFINE.replace("0.102", "\"x\""),
            "a.txt:3",
        ),
        (
            Form::Hyperfine,
            "{\"results\": []}".into(),
            "a.txt: no results",
        ),
        (Form::GoBenchmark, GO.replace("155005", "-1"), "a.txt:4"),
        (
            Form::GoBenchmark,
            GO.replace("155005 ns/op", "155005 ns/op 3"),
            "a.txt:4",
        ),
        (
            Form::GoBenchmark,
            "BenchmarkServer/workload=w/point=seven 1 2 ns/op".into(),
            "a.txt:1",
        ),
    ] {
        let error = bad(form, &text);
        assert!(error.contains(said), "{said}: {error}");
    }
    let alone = of(Form::GoBenchmark, &[("a.txt", GO)]).unwrap_err();
    assert!(
        alone
            .hint_text()
            .unwrap()
            .contains("the files of all servers")
    );
}
