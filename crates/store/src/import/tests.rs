use super::*;
use perfquilt_judge::attribution::{
    Attribution, ComparedWith, EffectKind, SUITE, Verdict, attribute_with,
};
use perfquilt_report::{EXPORTERS, ReportData};

fn of(form: &Importer, files: &[(&str, &str)]) -> Result<ObservationFile> {
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
    assert_eq!(
        detect(SYSBENCH.as_bytes()).unwrap().name,
        sysbench::IMPORTER.name
    );
    assert_eq!(
        detect(HYPERFINE.as_bytes()).unwrap().name,
        hyperfine::IMPORTER.name
    );
    assert_eq!(detect(GO.as_bytes()).unwrap().name, go::IMPORTER.name);
    for other in [
        "",
        "{\"schema\":1,\"experiment\":\"results\"}",
        "level\tname",
        "Benchmarks 1 2 3",
    ] {
        assert!(detect(other.as_bytes()).is_none(), "{other}");
    }
}

#[test]
fn logs_of_sysbench() {
    let faster = SYSBENCH.replace("3120\n", "3200\n");
    let twice = [SYSBENCH, SYSBENCH].concat();
    let file = of(
        &sysbench::IMPORTER,
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
    let file = of(&hyperfine::IMPORTER, &[("x.json", HYPERFINE)]).unwrap();
    assert_eq!(file.header.series, ["new --fast"]);
    let values: Vec<f64> = file.observations.iter().map(|o| o.value).collect();
    assert_eq!(values, [0.1e9, 0.102e9, 0.09e9, 0.092e9]);
}

#[test]
fn go_benchmarks_of_two_files() {
    let file = of(&go::IMPORTER, &[("old.txt", GO), ("new.txt", GO)]).unwrap();
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
    let file = of(&go::IMPORTER, &[("old.txt", &old), ("new.txt", &new)]).unwrap();
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
    let format = formats.find(|format| format.name == "gobench").unwrap();
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
fn what_was_reused_is_not_compared_with_the_rest() {
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
                        experiment: experiment.into(),
                        n: 10,
                        ..Observation::new(
                            block,
                            Point::Step(point),
                            workload,
                            Meter::Time,
                            cost * share * wobble * gain,
                        )
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
    let file = of(&go::IMPORTER, &[("y.txt", &text)]).unwrap();
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
    let refused = of(&go::IMPORTER, &files).unwrap_err().to_string();
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
    let file = of(&go::IMPORTER, &[("a.txt", text), ("b.txt", text)]).unwrap();
    assert_eq!(file.observations[0].workload, "DB.operation=read");
}

#[test]
fn runs_that_failed_are_told() {
    let document = HYPERFINE.replace("0.092]}", "0.092], \"exit_codes\": [1, null]}");
    let file = of(&hyperfine::IMPORTER, &[("x.json", &document)]).unwrap();
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
    let file = of(&sysbench::IMPORTER, &[("a.log", log), ("b.log", log)]).unwrap();
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
            &sysbench::IMPORTER,
            SYSBENCH.replace("10.0064s", "0s"),
            "a.txt:8",
        ),
        (
            &sysbench::IMPORTER,
            SYSBENCH.replace("total time", "time"),
            "a.txt:9",
        ),
        (
            &sysbench::IMPORTER,
            SYSBENCH.replace("events:              3120", "events: 0"),
            "a.txt:9",
        ),
        (
            &sysbench::IMPORTER,
            "sysbench 1.0.20\n".into(),
            "a.txt: no results",
        ),
        (
            &hyperfine::IMPORTER,
            HYPERFINE.replace("0.102", "\"x\""),
            "a.txt:3",
        ),
        (
            &hyperfine::IMPORTER,
            "{\"results\": []}".into(),
            "a.txt: no results",
        ),
        (&go::IMPORTER, GO.replace("155005", "-1"), "a.txt:4"),
        (
            &go::IMPORTER,
            GO.replace("155005 ns/op", "155005 ns/op 3"),
            "a.txt:4",
        ),
        (
            &go::IMPORTER,
            "BenchmarkServer/workload=w/point=seven 1 2 ns/op".into(),
            "a.txt:1",
        ),
    ] {
        let error = bad(form, &text);
        assert!(error.contains(said), "{said}: {error}");
    }
    let alone = of(&go::IMPORTER, &[("a.txt", GO)]).unwrap_err();
    assert!(
        alone
            .hint_text()
            .unwrap()
            .contains("the files of all servers")
    );
}

/// A file of Go benchmarks with six results a line of `rows`.
fn go(rows: &[(&str, f64)]) -> String {
    let lines = rows.iter().flat_map(|(name, ns)| {
        (0..6).map(move |i| match name.strip_prefix("Benchmark") {
            Some(_) => format!(
                "{name} \t 1000\t {} ns/op\n",
                ns * (1.0 + 0.001 * f64::from(i))
            ),
            None => format!("{name}\n"),
        })
    });
    lines.collect()
}

/// The effects of the servers against the base by workload, in per cent, as whole numbers.
fn effects(file: &ObservationFile) -> Vec<(String, Point, i64)> {
    let document = attribution(file);
    let all = document.patches.iter().flat_map(|patch| &patch.effects);
    let in_order =
        all.filter(|effect| effect.kind == EffectKind::InOrder && effect.workload != SUITE);
    in_order
        .map(|effect| {
            (
                effect.workload.clone(),
                effect.against,
                (100.0 * effect.estimate).round() as i64,
            )
        })
        .collect()
}

fn effect(workload: &str, percent: i64) -> (String, Point, i64) {
    (workload.to_owned(), Point::BASE, percent)
}

#[test]
fn benchmarks_of_different_packages_are_different_workloads() {
    let file = |cache: f64, session: f64| {
        go(&[
            ("pkg: x/cache", 0.0),
            ("BenchmarkE-4", cache),
            ("pkg: x/session", 0.0),
            ("BenchmarkE-4", session),
        ])
    };
    let (old, new) = (file(100.0, 9e3), file(125.0, 9e3));
    let read = of(&go::IMPORTER, &[("old.txt", &old), ("new.txt", &new)]).unwrap();
    assert_eq!(
        effects(&read),
        [effect("x/cache.E", -20), effect("x/session.E", 0)]
    );
    // A file with one of them has that one alone.
    let one = go(&[("pkg: x/cache", 0.0), ("BenchmarkE-4", 100.0)]);
    let read = of(&go::IMPORTER, &[("old.txt", &old), ("one.txt", &one)]).unwrap();
    assert_eq!(effects(&read), [effect("x/cache.E", 0)]);
    // Names alone are matched where no file has two packages.
    let bare = go(&[("BenchmarkE-4", 50.0)]);
    let read = of(&go::IMPORTER, &[("one.txt", &one), ("bare.txt", &bare)]).unwrap();
    assert_eq!(effects(&read), [effect("E", 100)]);
}

#[test]
fn the_number_of_processors_is_dropped_only_where_all_lines_have_the_same() {
    let read = |old: &str, new: &str| {
        let files = [("old.txt", old), ("new.txt", new)];
        of(&go::IMPORTER, &files)
    };
    let old = go(&[("BenchmarkPut", 100.0), ("BenchmarkPut-4", 900.0)]);
    let new = go(&[("BenchmarkPut", 100.0), ("BenchmarkPut-4", 450.0)]);
    let found = effects(&read(&old, &new).unwrap());
    assert_eq!(found, [effect("Put", 0), effect("Put-4", 100)]);
    let old = go(&[("BenchmarkS/size-10", 50.0), ("BenchmarkS/size-1000", 9e3)]);
    let found = effects(&read(&old, &old).unwrap());
    assert_eq!(found, [effect("S.size-10", 0), effect("S.size-1000", 0)]);
    let (eight, sixteen) = (go(&[("BenchmarkA-8", 1.0)]), go(&[("BenchmarkA-16", 1.0)]));
    let refused = read(&eight, &sixteen).unwrap_err().to_string();
    assert!(
        refused.contains("new.txt: new has none of the workloads of old: `A-16` here, `A-8` there"),
        "{refused}"
    );
    let other = format!("cpu: B\n{eight}");
    let refused = read(&format!("cpu: A\n{eight}"), &other)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("`A, cpu B` here, `A, cpu A` there"),
        "{refused}"
    );
}

#[test]
fn names_that_would_be_equal_keep_apart() {
    let text = go(&[
        ("BenchmarkA/b-2", 1.0),
        ("BenchmarkA.b-2", 2.0),
        ("BenchmarkA/point=2-2", 3.0),
    ]);
    let file = of(&go::IMPORTER, &[("a.txt", &text), ("b.txt", &text)]).unwrap();
    let names: Vec<String> = effects(&file).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["A.b", "A.b (2)", "A.point=2"]);
    assert_eq!(
        attribution(&file).warnings[0].message(),
        "Benchmarks whose names would be equal have a number: A.b (2) is A/b."
    );
    let document = r#"{"results":[{"command":"s","times":[1,1.1],"parameters":{"x":"1"}},
        {"command":"s","times":[2,2.1],"parameters":{"x":"2"}},{"command":"s","times":[3,3.1],"parameters":{"x":"2"}}]}"#;
    let file = of(&hyperfine::IMPORTER, &[("h.json", document)]).unwrap();
    assert_eq!(file.header.base.as_deref(), Some("s (x=1)"));
    assert_eq!(file.header.series, ["s (x=2)", "s (x=2) (2)"]);
}

#[test]
fn every_server_is_compared_with_the_named_base() {
    let document = r#"{"commit":"c","results":[{"command":"A","times":[1,1.01,1.02]},
        {"command":"B","times":[2,2.02,2.04]},{"command":"C","times":[1,1.01,1.02]}]}"#;
    assert_eq!(
        detect(document.as_bytes()).unwrap().name,
        hyperfine::IMPORTER.name
    );
    let file = of(&hyperfine::IMPORTER, &[("h.json", document)]).unwrap();
    assert_eq!(
        effects(&file),
        [effect("command", -50), effect("command", 0)]
    );
    let document = attribution(&file);
    assert_eq!(document.compared_with, ComparedWith::Base);
    assert_eq!(document.base(), "A");
    assert!(document.total.is_empty());
    assert_eq!(document.patches_with(Verdict::Slower).len(), 1);
    // What is exported is read as the same.
    let again = of(&go::IMPORTER, &[("g.txt", &go_benchmark(&file))]).unwrap();
    assert_eq!(
        (&again.header.base, &again.header.series),
        (&file.header.base, &file.header.series)
    );
    assert_eq!(effects(&again), effects(&file));
}

#[test]
fn failed_go_benchmarks_are_counted() {
    let good = go(&[("BenchmarkA-8", 10.0)]);
    for (end, count) in [
        (
            "--- FAIL: BenchmarkB-8\n    b_test.go:5: no\nFAIL\nFAIL\tx\t1s\n",
            1,
        ),
        ("BenchmarkB-8   \t--- FAIL: BenchmarkB-8\nFAIL\tx\t1s\n", 1),
        (
            "BenchmarkB-8   \tpanic: no\n\ngoroutine 1:\nexit status 2\nFAIL\tx\t1s\n",
            1,
        ),
        ("BenchmarkB-8   \t", 1),
        (
            "BenchmarkB-8   \t--- SKIP: BenchmarkB-8\nPASS\nok  \tx\t1s\n",
            0,
        ),
        ("FAIL\tx [build failed]\n", 1),
    ] {
        let file = of(
            &go::IMPORTER,
            &[("a.txt", &good), ("b.txt", &format!("{good}{end}"))],
        )
        .unwrap();
        let left_out: u64 = file.supplement.left_out.iter().map(|of| of.count).sum();
        assert_eq!(left_out, count, "{end}");
        let told = attribution(&file).warnings[0]
            .message()
            .contains("Failed runs of b that ended with FAIL, or did not end: 1");
        assert_eq!(told, count > 0, "{end}");
    }
    let split = format!("{good}BenchmarkB-8   \tsome output\n     100\t  12 ns/op\n");
    let refused = of(&go::IMPORTER, &[("a.txt", &good), ("b.txt", &split)]).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("b.txt:8: a result without its name"),
        "{refused}"
    );
}

#[test]
fn the_events_of_go_test_are_its_output() {
    let event = |package: &str, output: &str| {
        let event = serde_json::json!({"Action": "output", "Package": package, "Output": output});
        format!("{event}\n")
    };
    let mut text = event("x", "BenchmarkA-8 \t");
    // Packages run at the same time, and lines come in pieces.
    text += &event("y", "BenchmarkA-8 \t 100\t 7 ns/op\n");
    text += &event("x", " 100\t 5 ns/op\n");
    text += "{\"Action\":\"pass\",\"Package\":\"x\"}\n";
    assert_eq!(detect(text.as_bytes()).unwrap().name, go::IMPORTER.name);
    let file = of(&go::IMPORTER, &[("a.json", &text), ("b.json", &text)]).unwrap();
    let values: Vec<(&str, f64)> = file
        .observations
        .iter()
        .map(|o| (&*o.workload, o.value))
        .collect();
    assert_eq!(values[..2], [("x.A", 5.0), ("y.A", 7.0)]);
    let cut = &text[..text.len() - 5];
    let refused = of(&go::IMPORTER, &[("a.json", cut), ("b.json", cut)]).unwrap_err();
    assert!(refused.to_string().contains("a.json:4"), "{refused}");
}

/// A log of sysbench 1.0 with one report.
fn log(threads: u32, body: &str, seconds: &str, events: &str) -> String {
    format!(
        "sysbench 1.0.20 (x)\nNumber of threads: {threads}\n{body}Threads started!\n\n    total time:      \
         {seconds}s\n    total number of events:      {events}\n"
    )
}

#[test]
fn tests_and_threads_of_sysbench_are_different_workloads() {
    let cpu = |threads, limit: u32| {
        let limit = format!("Prime numbers limit: {limit}\n");
        log(threads, &limit, "10.0", "1000")
    };
    let sql = |reads: u32| {
        let body = format!("queries performed:\n  read:  {reads}\n  write:  0\n");
        log(4, &body, "10.0", "1,000")
    };
    let named = format!(
        "+ sysbench ./oltp_write_only.lua --threads=2 run\n{}",
        sql(14_000)
    );
    let all = [
        cpu(1, 10_000),
        cpu(4, 10_000),
        cpu(4, 20_000),
        sql(14_004),
        sql(1000),
        named,
    ]
    .concat();
    let file = of(&sysbench::IMPORTER, &[("a.log", &all), ("b.log", &all)]).unwrap();
    let names: Vec<&str> = file.observations[..6]
        .iter()
        .map(|o| &*o.workload)
        .collect();
    assert_eq!(
        names,
        [
            "cpu, primes to 10000, 1 thread",
            "cpu, primes to 10000, 4 threads",
            "cpu, primes to 20000, 4 threads",
            "sysbench, 14 reads and 0 writes, 4 threads",
            "sysbench, 1 read and 0 writes, 4 threads",
            "oltp_write_only, 4 threads",
        ]
    );
    let (one, four) = (cpu(1, 10_000), cpu(4, 10_000));
    let refused = of(&sysbench::IMPORTER, &[("a.log", &one), ("b.log", &four)]).unwrap_err();
    assert!(
        refused.to_string().contains("none of the workloads"),
        "{refused}"
    );
    // Nothing tells the tests `mutex` and `threads` apart.
    for (other, refused) in [
        (cpu(1, 9), true),
        (log(1, "", "10", "9999"), true),
        (log(1, "", "10", "110"), false),
    ] {
        let log = [log(1, "", "10", "100"), other].concat();
        let read = of(&sysbench::IMPORTER, &[("a.log", &log), ("b.log", &log)]);
        assert_eq!(read.is_err(), refused);
        match read {
            Err(error) => assert!(
                error
                    .to_string()
                    .contains("does not print the test of this run"),
                "{error}"
            ),
            Ok(file) => {
                let warnings = attribution(&file).warnings;
                assert!(
                    warnings[0]
                        .message()
                        .contains("which test these runs are of")
                )
            }
        }
    }
    let limited = log(
        1,
        "Target transaction rate: 100/sec\nPrime numbers limit: 9\n",
        "10",
        "1000",
    );
    let file = of(
        &sysbench::IMPORTER,
        &[("a.log", &limited), ("b.log", &limited)],
    )
    .unwrap();
    let warnings = attribution(&file).warnings;
    assert!(warnings[0].message().contains("have a target rate"));
}

#[test]
fn runs_at_a_rate_are_compared_by_latency_or_not_at_all() {
    let runs = |latency: [&str; 6], lines: fn(&str) -> String| -> String {
        let runs = latency.iter().zip(0..).map(|(latency, run)| {
            let rate = "Target transaction rate: 100/sec\nPrime numbers limit: 9\n";
            log(1, rate, &format!("10.000{run}"), "1000") + &lines(latency)
        });
        runs.collect()
    };
    let before = ["4.01", "4.03", "4.02", "4.05", "4.04", "4.02"];
    let after = ["2.01", "2.03", "2.02", "2.05", "2.04", "2.02"];
    let judged = |lines: fn(&str) -> String| {
        let (a, b) = (runs(before, lines), runs(after, lines));
        let files = [("a.log", &*a), ("b.log", &*b)];
        attribution(&of(&sysbench::IMPORTER, &files).unwrap())
    };
    let with = |lines| judged(lines).patches[0].effects[0].clone();
    let effect = with(|latency| format!("Latency (ms):\n  avg:  {latency}\n  sum:  9.00\n"));
    assert!((effect.estimate - 0.99).abs() < 0.01 && effect.verdict == Verdict::Faster);
    let older = with(|latency| format!("    per-request statistics:\n  avg:  {latency}ms\n"));
    assert_eq!(
        (older.estimate, older.verdict),
        (effect.estimate, Verdict::Faster)
    );
    let without = with(|_| String::new());
    assert_eq!((without.verdict, without.low), (Verdict::Unclear, None));
    assert_eq!(without.withheld.as_deref(), Some("unknown at a fixed rate"));
}

#[test]
fn what_a_note_says_of_a_file_takes_its_verdict_back() {
    let runs = |seconds: [&str; 3]| -> String {
        let of = |seconds| log(4, "Prime numbers limit: 9\n", seconds, "1000");
        seconds.map(of).concat()
    };
    let first = runs(["10.0", "10.1", "10.2"]);
    let withheld = |other: &str| {
        let files = [("a.log", &*first), ("b.log", other)];
        let found = attribution(&of(&sysbench::IMPORTER, &files).unwrap());
        let effect = &found.patches[0].effects[0];
        assert!(effect.withheld.is_none() || effect.verdict == Verdict::Unclear);
        effect.withheld.clone()
    };
    let faster = runs(["5.0", "5.1", "5.2"]);
    assert_eq!(withheld(&faster), None);
    let copied = withheld(&first).unwrap();
    assert!(copied.starts_with("the values of one file"), "{copied}");
    let newer = withheld(&faster.replace("sysbench 1.0.20", "sysbench 1.1.0")).unwrap();
    assert!(newer.starts_with("another version of the tool"), "{newer}");
}

#[test]
fn commands_of_two_documents_meet_by_name() {
    let document = |commands: &[(&str, f64)]| {
        let each = commands.iter().map(|(command, seconds)| {
            let times = [0.0, 0.001, 0.003, 0.002, 0.004, 0.001, 0.002];
            let times = times.map(|more| format!("{}", seconds * (1.0 + more)));
            format!(r#"{{"command":"{command}","times":[{}]}}"#, times.join(","))
        });
        let each: Vec<String> = each.collect();
        format!(r#"{{"results":[{}]}}"#, each.join(","))
    };
    let judged = |first: &[(&str, f64)], second: &[(&str, f64)]| {
        let (first, second) = (document(first), document(second));
        let files = [("a.json", &*first), ("b.json", &*second)];
        attribution(&of(&hyperfine::IMPORTER, &files).unwrap())
    };
    let found = judged(
        &[("/bin/x --few", 0.1), ("/bin/x --many", 1.0)],
        &[
            ("/bin/x --many", 0.9),
            ("/bin/x --few", 0.099),
            ("/bin/y", 3.0),
        ],
    );
    let on = |workload: &str| {
        let effects = &found.patches[0].effects;
        let effect = effects.iter().find(|effect| effect.workload == workload);
        effect.map(|effect| (100.0 * effect.estimate).round())
    };
    assert_eq!(
        (on("bin/x --few"), on("bin/x --many")),
        (Some(1.0), Some(11.0))
    );
    let mut warnings = found.warnings.iter();
    let warning = warnings
        .find(|warning| warning.code().number == 767)
        .unwrap();
    let message = warning.message();
    assert!(
        message.contains("bin/y") && message.contains("has no value of point 0"),
        "{message}"
    );
    // Other commands are servers, as those of one document.
    let found = judged(&[("old", 1.0), ("new", 1.1)], &[("newer", 0.9)]);
    assert_eq!(found.patches.len(), 2);
}

#[test]
fn the_time_of_a_checkpoint_is_the_difference() {
    let report = |seconds: &str, rate: &str| {
        format!(
            "CPU speed:\n    events per second:  {rate}\n    total time:  {seconds}s\n    total number of events:   1000\n"
        )
    };
    let head = "sysbench 1.0.20 (x)\nNumber of threads: 1\nPrime numbers limit: 9\n";
    let values = |body: &str| -> Result<Vec<f64>> {
        let text = format!("{head}{body}");
        let file = of(&sysbench::IMPORTER, &[("a.log", &text), ("b.log", &text)])?;
        let of_base = file.observations.iter().filter(|o| o.point == Point::BASE);
        Ok(of_base.map(|o| (o.value / 1e4).round() / 100.0).collect())
    };
    let from_start = [
        "[ 10s ] Checkpoint report:\n",
        &report("10.0", "100"),
        "[ 20s ] Checkpoint report:\n",
        &report("20.0", "100"),
        &report("30.0", "100"),
    ]
    .concat();
    assert_eq!(values(&from_start).unwrap(), [10.0; 3]);
    // Version 0.5 counts both from the checkpoint.
    let own = [
        "[ 10s ] Checkpoint report:\n",
        &report("10.0", "100"),
        &report("15.0", "66.67"),
    ]
    .concat();
    assert_eq!(values(&own).unwrap(), [10.0, 15.0]);
    let rateless = own.replace("events per second", "speed");
    assert!(
        values(&rateless)
            .unwrap_err()
            .to_string()
            .contains("a.log:12")
    );
    let wrong = own.replace("66.67", "50");
    assert!(
        values(&wrong)
            .unwrap_err()
            .to_string()
            .contains("do not fit the rate")
    );
    // A run that ends with a checkpoint has been stopped.
    let stopped = ["[ 10s ] Checkpoint report:\n", &report("10.0", "100")].concat();
    let error = values(&stopped).unwrap_err().to_string();
    assert!(
        error.contains("no results: every run ended with FATAL"),
        "{error}"
    );
}

#[test]
fn runs_of_sysbench_that_did_not_end_are_counted() {
    let good = log(4, "Prime numbers limit: 9\n", "10.0", "1000");
    let fatal = log(4, "Prime numbers limit: 9\n", "10.0", "1000")
        .replace("    total", "FATAL: no\n    other");
    let prepared = "sysbench 1.0.20 (x)\nCreating table 'sbtest1'...\n";
    for (text, count) in [
        (format!("{prepared}{good}{fatal}{fatal}{good}"), 2),
        (format!("{good}{}", &good[..70]), 1),
        (format!("{good}{}", good.trim_end()), 1),
        (format!("{good}{good}Latency (ms):\n   avg:   "), 1),
        (format!("{good}{}", &good[..good.find("10.0s").unwrap()]), 1),
        (format!("{good}{good}"), 0),
    ] {
        let file = of(&sysbench::IMPORTER, &[("a.log", &good), ("b.log", &text)]).unwrap();
        let left_out: u64 = file.supplement.left_out.iter().map(|of| of.count).sum();
        assert_eq!(left_out, count, "{text}");
        if count > 0 {
            let warning = &attribution(&file).warnings[0];
            assert!(
                warning
                    .message()
                    .starts_with("Failed runs of b without results (they ended with FATAL"),
                "{warning}"
            );
        }
    }
    let decimal_comma = good.replace("10.0s", "10,0s");
    let refused = of(
        &sysbench::IMPORTER,
        &[("a.log", &good), ("b.log", &decimal_comma)],
    )
    .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("b.log:6: `total time:      10,0s`"),
        "{refused}"
    );
}

#[test]
fn a_document_of_hyperfine_says_what_it_lacks() {
    let read = |results: &str| {
        let text = format!("{{\"results\":[{results}]}}");
        of(&hyperfine::IMPORTER, &[("h.json", &text)])
    };
    let a = r#"{"command":"A","times":[1,2]}"#;
    let means = r#"{"command":"A","mean":1},{"command":"B","mean":2}"#;
    let error = read(means).unwrap_err().to_string();
    assert!(
        error.contains("no results: no run has a time in `times`"),
        "{error}"
    );
    let error = read(&format!(
        r#"{a},{{"command":"B","times":[1,2],"exit_codes":[0]}}"#
    ));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("\"B\" has 2 times and 1 exit codes"),
        "{error}"
    );
    let file = read(&format!(
        r#"{a},{{"command":"B","times":[1,0,-1,null,2],"exit_codes":[0,0,0,0,null]}}"#
    ))
    .unwrap();
    let counts: Vec<u64> = file.supplement.left_out.iter().map(|of| of.count).collect();
    assert_eq!(counts, [1, 3]);
}

#[test]
fn what_went_wrong_in_runs_that_went_on_is_noted() {
    let oltp = |errors: &str| {
        let body = format!(
            "SQL statistics:\n    queries performed:\n        read:  14000\n    transactions:  1000 (100.00 per sec.)\n    \
             ignored errors:  {errors} (1.00 per sec.)\n    reconnects:  0 (0.00 per sec.)\n"
        );
        let log = log(4, &body, "10.0", "1000");
        format!("+ sysbench oltp_read_only run\n{log}").repeat(2)
    };
    let notes = |errors: &str| {
        let files = [("a.log", &*oltp("0")), ("b.log", &*oltp(errors))];
        of(&sysbench::IMPORTER, &files).unwrap().supplement.notes
    };
    // Some deadlocks are part of the test.
    assert_eq!(notes("5"), [""; 0]);
    let noted = notes("1,500").concat();
    assert!(
        noted.contains("have ignored errors, up to 150 % of the number of events in b.log"),
        "{noted}"
    );
}

#[test]
fn results_that_are_not_of_two_servers_or_of_several_builds_are_noted() {
    let body = "Prime numbers limit: 9\n";
    let one: String = ["10.0", "10.1", "10.2"]
        .map(|seconds| log(4, body, seconds, "1000"))
        .concat();
    let notes = |files: &[(&str, &str)], form| of(form, files).unwrap().supplement.notes.concat();
    let twice = notes(&[("a.log", &one), ("b.log", &one)], &sysbench::IMPORTER);
    assert_eq!(
        twice,
        "b has exactly the values of a: is it the same file, or a copy?"
    );
    let other = one
        .replace("sysbench 1.0.20", "sysbench 1.1.0")
        .replace("10.1", "10.3");
    let versions = notes(&[("a.log", &one), ("b.log", &other)], &sysbench::IMPORTER);
    assert!(
        versions.ends_with(": sysbench 1.0.20, sysbench 1.1.0."),
        "{versions}"
    );
    let row = "BenchmarkE 100 5 ns/op\n";
    let builds = format!("commit: abc\n{row}commit: def\n{row}");
    let builds = notes(&[("a.txt", row), ("b.txt", &builds)], &go::IMPORTER);
    assert!(
        builds.contains("several values of `commit` (abc, def)"),
        "{builds}"
    );
    let glued = format!("{row}BenchmarkE BenchmarkF 100 5 ns/op\n");
    let error = of(&go::IMPORTER, &[("a.txt", row), ("b.txt", &glued)]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("b.txt:2: not a result, although"),
        "{error}"
    );
}

#[test]
fn options_of_sysbench_that_differ_keep_runs_apart() {
    let names = |first: &str, second: &str| {
        let both = [first, second].concat();
        let file = of(&sysbench::IMPORTER, &[("a.log", &both), ("b.log", &both)]).unwrap();
        let observations = file.observations.into_iter();
        let names: Vec<String> = observations.map(|of| of.workload).take(2).collect();
        names
    };
    let files = |flags: &str| {
        let body = format!(
            "Extra file open flags: {flags}\nNumber of IO requests: 0\nBlock size 16KiB\nDoing seqwr test\n"
        );
        log(1, &body, "10.0", "1000")
    };
    assert_eq!(
        names(&files("(none)"), &files("directio")),
        [
            "fileio, blocks of 16KiB, seqwr, 1 thread, Extra file open flags: (none)",
            "fileio, blocks of 16KiB, seqwr, 1 thread, Extra file open flags: directio",
        ]
    );
    let mixed = files("(none)").replace("seqwr", "random r/w");
    assert_eq!(
        names(&mixed, &files("(none)"))[0],
        "fileio, blocks of 16KiB, random r-w, 1 thread"
    );
    let name = "fileio, blocks of 16KiB, seqwr, 1 thread";
    assert_eq!(names(&files("(none)"), &files("(none)")), [name, name]);
    let old = |mode: &str| {
        let body = format!("Doing OLTP test.\nRunning mixed OLTP test\n{mode}\n");
        log(4, &body, "10.0", "1000")
    };
    assert_eq!(
        names(&old("Doing read-only test"), &old("began at 09:05:01")),
        ["oltp, 4 threads, Doing read-only test", "oltp, 4 threads"]
    );
    let of_command = |options: &str| {
        let log = log(4, "", "10.0", "1000");
        format!("+ sysbench {options} --mysql-socket=/a/b --time=10 run\n{log}")
    };
    assert_eq!(
        names(
            &of_command("oltp_read_only --tables=1 --time=5"),
            &of_command("oltp_read_only --tables=10"),
        ),
        [
            "oltp_read_only, 4 threads, --tables=1",
            "oltp_read_only, 4 threads, --tables=10",
        ]
    );
    assert_eq!(
        names(
            &of_command("/a/one/test.lua"),
            &of_command("/a/two/test.lua")
        ),
        ["test, 4 threads, of a-one", "test, 4 threads, of a-two",]
    );
}

#[test]
fn commands_of_sysbench_are_read_as_a_shell_reads_them() {
    let named = |command: &str| {
        let log = log(4, "", "10.0", "1000");
        format!("+ sysbench {command} run\n{log}")
    };
    let logs = [
        named("'--mysql-password=s3cret$pw' --mysql-db=a oltp_read_only --tables=4"),
        named("--mysql_password=other --report_interval=1 oltp_read_only --table_size=9"),
        named("\"--mysql-password=half oltp_write_only"),
        "sysbench 0.4.12\nNumber of threads: 1\nDoing CPU performance benchmark\nThreads started!\nDone.\n\n\
         Maximum prime number checked in CPU test: 5000\n    total time:  10.0s\n    total number of events:  1000\n"
            .to_owned(),
    ]
    .concat();
    let files = [("a.log", &*logs), ("b.log", &*logs)];
    let file = of(&sysbench::IMPORTER, &files).unwrap();
    let observations = file.observations.into_iter();
    let names: Vec<String> = observations.map(|of| of.workload).take(4).collect();
    assert_eq!(
        names,
        [
            "oltp_read_only, 4 threads, --tables=4",
            "oltp_read_only, 4 threads, --table-size=9",
            "oltp_write_only, 4 threads",
            "cpu, primes to 5000, 1 thread",
        ]
    );
}

#[test]
fn runs_of_sysbench_with_two_groups_of_costs_are_refused() {
    let sql = |seconds: &str| {
        let body = "queries performed:\n  read:  1000\n  write:  0\n";
        log(4, body, seconds, "1000")
    };
    let error = |seconds: &[&str]| {
        let log: String = seconds.iter().copied().map(sql).collect();
        let file = of(&sysbench::IMPORTER, &[("a.log", &log), ("b.log", &log)]);
        file.err().map(|error| error.to_string())
    };
    let refused = error(&["1.0", "5.0", "1.1", "5.2"]).unwrap();
    assert!(
        refused.starts_with("a.log:10: sysbench does not print the test of this run")
            && refused.ends_with("an event takes 5.0 times as long"),
        "{refused}"
    );
    // A slow first run, a drift, and what noise does.
    for one in [
        &["3.0", "1.0", "1.1", "1.05"][..],
        &["1.0", "1.2", "1.4", "1.6"],
        &["1.0", "1.1", "1.25", "1.3"],
    ] {
        assert_eq!(error(one), None, "{one:?}");
    }
}

#[test]
fn results_of_go_behind_other_output_are_refused() {
    let row = "BenchmarkE-4 1000 90.0 ns/op\n";
    for damaged in [
        "helloBenchmarkE-4 1000 90.0 ns/op\n",
        "....BenchmarkE-4 1000 90.0 ns/op\n",
        "\x1b[32mBenchmarkE-4\x1b[0m 1000 90.0 ns/op\n",
        "09:05:01 BenchmarkE-4 1000 90.0 ns/op 3 B/op\n",
        " 50 %\rBenchmarkE-4 1000 90.0 ns/op\n",
        "BenchmarkE-4 begins\n    1000 90.0 ns/op\n",
    ] {
        let file = format!("{row}{damaged}");
        let error = of(&go::IMPORTER, &[("a.txt", row), ("b.txt", &file)]).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(": a result without its name"),
            "{damaged:?}: {error}"
        );
    }
    let words = format!("{row}Benchmark 3 of 10 is done\nit took 90 ns/op\n");
    let file = of(&go::IMPORTER, &[("a.txt", row), ("b.txt", &words)]).unwrap();
    assert_eq!(file.supplement.left_out, []);
}

#[test]
fn other_encodings_and_packed_files_are_named() {
    for head in [b"\xff\xfeB\0", b"\xfe\xff\0B"] {
        let error = unknown(Path::new("x"), head);
        assert!(error.message().contains("UTF-16"));
        assert!(error.hint_text().unwrap().contains("iconv"));
    }
    let packed = unknown(Path::new("x"), b"\x28\xb5\x2f\xfd1");
    assert_eq!(
        packed.message(),
        "this is packed with zstd; perfquilt unpacks only gzip"
    );
    let pointer = unknown(
        Path::new("x"),
        b"version https://git-lfs.github.com/spec/v1\noid",
    );
    assert!(pointer.hint_text().unwrap().contains("git lfs pull"));
}

#[test]
fn output_behind_something_else_is_named_with_what_to_remove() {
    let refused = |text: &str| {
        let error = unknown(Path::new("x.log"), text.as_bytes());
        (error.to_string(), error.hint_text().unwrap().to_owned())
    };
    let head = SYSBENCH.lines().next().unwrap();
    for (before, output, says, remedy) in [
        ("\u{1b}[0m", head, "behind `\\u{1b}[0m`", "x1b"),
        ("\"", head, "behind `\\\"`", "remove the quotes"),
        ("{\"stdout\": \"", head, "begins here", "jq -r .stdout"),
    ] {
        let (error, hint) = refused(&format!("a first line\n{before}{output}\n"));
        assert!(error.starts_with("x.log:2: "), "{error}");
        assert!(error.contains(says), "{error}");
        assert!(hint.contains(remedy), "{hint}");
    }
    let event = r#"{"Action": "output", "Package": "x/y", "Output": "goos: linux\n"}"#;
    let (error, hint) = refused(&format!("go: downloading x v1\n{event}\n"));
    assert_eq!(
        error,
        "x.log:2: events of `go test -json` begin here, below 1 other line"
    );
    assert!(hint.contains("tail -n +2"), "{hint}");
    assert_eq!(refused("some\nwords\n").0, "x.log: unknown format");
}

#[test]
fn output_in_a_log_is_read_behind_its_prefix() {
    let rows =
        "goos: linux\nBenchmarkE-8 \t1000\t100.0 ns/op\n\nBenchmarkE-8 \t1000\t101.0 ns/op\nok x\n";
    let prefixes: [fn(usize) -> String; 5] = [
        |_| "bench_1  | ".into(),
        |line| format!("Nov 27 10:00:{line:02} host sysbench[{}]: ", 97 + line),
        |line| format!("2026-01-02T03:04:05.123456{line}Z "),
        |line| format!("[{line}/12] "),
        |_| "    ".into(),
    ];
    for (importer, output) in [(&go::IMPORTER, rows), (&sysbench::IMPORTER, SYSBENCH)] {
        let plain = of(importer, &[("a.log", output), ("b.log", output)]).unwrap();
        for prefix in prefixes {
            let lines = output.lines().enumerate();
            let lines = lines.map(|(at, line)| format!("{}{line}\n", prefix(at)));
            let log = format!("a first line\n{}", lines.collect::<String>());
            assert_eq!(detect(log.as_bytes()).unwrap().name, importer.name, "{log}");
            let read = of(importer, &[("a.log", &log), ("b.log", &log)]).unwrap();
            assert_eq!(read.observations, plain.observations, "{log}");
            assert_eq!(read.header, plain.header, "{log}");
        }
    }
    let two = "a | BenchmarkE-8 1000 100.0 ns/op\nb | BenchmarkE-8 1000 150.0 ns/op\n";
    let error = of(&go::IMPORTER, &[("a.log", two), ("b.log", two)]).unwrap_err();
    assert!(
        error.to_string().starts_with("a.log:2: ") && error.to_string().contains("one source"),
        "{error}"
    );
}

#[test]
fn a_command_of_sysbench_may_take_several_lines() {
    let log = |test: &str| {
        let command = format!("$ sysbench {test} \\\n  --tables=1 \\\n  run\n{SYSBENCH}");
        let file = of(
            &sysbench::IMPORTER,
            &[("a.log", &command), ("b.log", &command)],
        );
        file.unwrap().observations[0].workload.clone()
    };
    assert_eq!(log("oltp_point_select"), "oltp_point_select, 4 threads");
    assert_eq!(log("oltp_read_only"), "oltp_read_only, 4 threads");
}

#[test]
fn a_number_that_a_script_prints_makes_workloads_and_is_told() {
    let log = |number: u32| {
        let own = format!("options:\nlua heap {number} kB\n");
        SYSBENCH.replacen("options:\n", &own, 1)
    };
    let logs = [log(100), log(101)].concat();
    let file = of(&sysbench::IMPORTER, &[("a.log", &logs), ("b.log", &logs)]).unwrap();
    assert_eq!(
        file.supplement.notes.last().unwrap(),
        "Runs that print another number before their start are workloads of their own: `lua heap 100 kB` (a.log:1), \
         `lua heap 101 kB` (a.log:11). If it says nothing about the test, remove these lines."
    );
}
