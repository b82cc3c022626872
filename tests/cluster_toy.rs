//! `--on command` on the toy server: rows of blocks as jobs of a queue that is a script.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use common::{Finished, TestEnvironment};
use rustix::process::Signal;
use serde_json::Value;

/// A queue that starts every job at once, on machines in turn; `refuse` has the names of jobs that end without having
/// run, and while there is a file `closed` jobs that measure wait.
const QUEUE: &str = r#"#!/bin/sh
set -eu
cd "$(dirname "$0")"
mkdir -p jobs
case $1 in
    submit)
        name=$2 program=$3 row=$4
        echo "$name" >>submitted
        if grep -qxs "$name" refuse; then
            echo ended >"jobs/$name"
            exit 0
        fi
        case $name in
            *-facts-* | *-execution-*) ;;
            *)
                if [ -e closed ]; then
                    echo queued >"jobs/$name"
                    exit 0
                fi
                ;;
        esac
        machine=m$(($(wc -l <submitted) % 3))
        echo "running $machine" >"jobs/$name"
        setsid sh -c 'echo $$ >"jobs/$1.pid"; "$2" worker --machine "$3" "$4"; echo ended >"jobs/$1"' \
            job "$name" "$program" "$machine" "$row" >>log 2>&1 &
        # What is left of this process's group ends with it.
        until [ -e "jobs/$name.pid" ]; do sleep 0.05; done
        ;;
    list)
        for job in jobs/*; do
            case $job in
                *.pid | 'jobs/*') ;;
                *) echo "${job#jobs/} $(cat "$job")" ;;
            esac
        done
        ;;
    cancel)
        echo "$2" >>cancelled
        [ ! -e "jobs/$2.pid" ] || kill -TERM -- "-$(cat "jobs/$2.pid")" 2>/dev/null || true
        echo ended >"jobs/$2"
        ;;
esac
"#;

/// The toy series, built, with a queue.
fn environment() -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("queue", QUEUE);
    let queue = environment.workspace().join("queue");
    fs::set_permissions(&queue, fs::Permissions::from_mode(0o755)).unwrap();
    let config = environment.workspace().join("bench-config/perfquilt.toml");
    let mut text = fs::read_to_string(&config).unwrap();
    let words = |rest: &str| format!("[{:?}, {rest}]", queue.display().to_string());
    text += &format!(
        "\n[cluster]\nmachines = 2\n[cluster.command]\nsubmit = {}\nlist = {}\ncancel = {}\n",
        words(r#""submit", "{name}", "{program}", "{file}""#),
        words(r#""list""#),
        words(r#""cancel", "{name}""#),
    );
    fs::write(&config, text).unwrap();
    let built = environment.run(&["build", "--recipe", "make"]);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    environment
}

const BENCH: [&str; 6] = ["bench", "--blocks", "8", "--resolution", "0", "--fresh"];
const ON: [&str; 2] = ["--on", "command"];

fn on_queue(environment: &TestEnvironment) -> Finished {
    environment.run(&[&BENCH[..], &ON].concat())
}

/// What was measured, by where: block, meter and point, with order and layout; and the machine.
type Plan = BTreeMap<(bool, u64, String, String), (u64, u64)>;

fn observations(environment: &TestEnvironment) -> (Plan, BTreeMap<(bool, u64), BTreeSet<String>>) {
    let report = environment.run(&["report", "--format", "jsonl"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let mut plan = Plan::new();
    let mut machines: BTreeMap<(bool, u64), BTreeSet<String>> = BTreeMap::new();
    for line in report.stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(block) = line["block"].as_u64() else {
            continue;
        };
        let direct = line["direct"] == true;
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let key = (direct, block, text("meter"), text("point"));
        let number = |name: &str| line[name].as_u64().unwrap();
        let again = plan.insert(key, (number("order"), number("layout")));
        assert_eq!(again, None, "stored twice: {line}");
        if line["meter"] == "time"
            && let Some(machine) = line["machine"].as_str()
        {
            machines
                .entry((direct, block))
                .or_default()
                .insert(machine.to_owned());
        }
    }
    (plan, machines)
}

#[test]
fn a_cluster_measures_the_plan_of_one_machine() {
    let environment = environment();
    let alone = environment.run(&[&BENCH[..], &["--lanes", "1"]].concat());
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    let (expected, none) = observations(&environment);
    assert!(none.is_empty(), "{none:?}");
    let finished = on_queue(&environment);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let (found, machines) = observations(&environment);
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    // A block is one machine's, and so are the blocks of its row.
    assert!(machines.values().all(|of| of.len() == 1), "{machines:?}");
    for block in 0..8 {
        let row = (false, block / 4 * 4);
        assert_eq!(machines[&(false, block)], machines[&row], "{machines:?}");
    }
    assert!(machines.values().flatten().collect::<BTreeSet<_>>().len() > 1);
    // Nothing is left of the exchange.
    let exchange = environment.workspace().join(".perfquilt/cluster");
    assert_eq!(fs::read_dir(exchange).unwrap().count(), 0);
    environment.wait_until_no_process_is_left();
}

/// The folder of exchange of the only experiment.
fn exchange(environment: &TestEnvironment) -> PathBuf {
    let folder = environment.workspace().join(".perfquilt/cluster");
    let mut found = fs::read_dir(folder).unwrap();
    found.next().unwrap().unwrap().path()
}

#[test]
fn jobs_that_end_without_results_are_submitted_again() {
    let environment = environment();
    environment.write("closed", "");
    let stopped = environment.stopped_at(&[&BENCH[..], &ON].concat(), "2 queued", Signal::INT);
    assert_eq!(stopped, Some(130));
    let read = |name: &str| {
        let path = environment.workspace().join(name);
        fs::read_to_string(path).unwrap_or_default()
    };
    let is_row = |name: &&str| !name.contains("-facts-") && !name.contains("-execution-");
    let rows = |name: &str| -> BTreeSet<String> {
        read(name)
            .lines()
            .filter(is_row)
            .map(str::to_owned)
            .collect()
    };
    let (cancelled, submitted) = (rows("cancelled"), rows("submitted"));
    assert!(!submitted.is_empty());
    assert_eq!(cancelled, submitted);
    fs::remove_file(environment.workspace().join("closed")).unwrap();

    // Strangers' files are no results, and what hides behind a link is not read.
    let folder = exchange(&environment);
    fs::write(folder.join("block-0.json"), "{\"schema\":1}").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("block-1.json")).unwrap();
    // Blocks that failed on two machines, for which an earlier head has stopped.
    let task: Value =
        serde_json::from_slice(&fs::read(folder.join("task-12.json")).unwrap()).unwrap();
    for (number, machine) in [(4, "m1"), (5, "m2")] {
        let of = task["blocks"].as_array().unwrap();
        let block = of
            .iter()
            .find(|of| of["block"]["number"] == number)
            .unwrap();
        let fault = serde_json::json!({
            "schema": task["schema"],
            "experiment": task["experiment"],
            "block": block["block"],
            "machine": machine,
            "lane": 0,
            "events": [],
            "error": {"kind": "bench", "message": "the disk was full"},
        });
        fs::write(
            folder.join(format!("block-{number}.json")),
            fault.to_string(),
        )
        .unwrap();
    }
    let first = folder.file_name().unwrap().to_str().unwrap();
    environment.write("refuse", &format!("perfquilt-{first}-2.12\n"));
    let finished = on_queue(&environment);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for words in ["block-0.json", "block-1.json", "it is a link"] {
        assert!(
            finished.stderr.contains(words),
            "{words}: {}",
            finished.stderr
        );
    }
    assert!(
        !finished.stderr.contains("the disk was full"),
        "{}",
        finished.stderr
    );
    let (found, _) = observations(&environment);
    let blocks: BTreeSet<u64> = found.keys().filter(|key| !key.0).map(|key| key.1).collect();
    assert_eq!(blocks, (0..8).collect());
    environment.wait_until_no_process_is_left();
}

#[test]
fn an_engine_that_does_not_answer_is_told_before_anything_is_measured() {
    let environment = environment();
    environment.write(
        "queue",
        "#!/bin/sh\necho no route to the queue >&2\nexit 1\n",
    );
    let finished = on_queue(&environment);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("no route to the queue"),
        "{}",
        finished.stderr
    );
    let unknown = environment.run(&["bench", "--on", "sge"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("slurm, command"),
        "{}",
        unknown.stderr
    );
}
