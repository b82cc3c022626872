use super::*;

fn of(form: Form, files: &[(&str, &str)]) -> Result<File> {
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
            "BenchmarkX/point=seven 1 2 ns/op".into(),
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
