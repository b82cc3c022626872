//! `--on command` on the toy server: tasks of blocks as jobs of a queue that is a script.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use crate::common::{Finished, TestEnvironment};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// The toy series, built, with a queue.
fn environment() -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.add_queue();
    let built = environment.run(&["build", "--recipe", "make"]);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    environment
}

const BENCH: [&str; 5] = ["run", "--blocks", "8", "--resolution", "0"];
const ON: [&str; 2] = ["--on", "command"];

fn on_queue(environment: &TestEnvironment) -> Finished {
    environment.run(&[&BENCH[..], &ON].concat())
}

/// Measurements by block, meter and point, with order and layout; and the machine.
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
    // Rows that another class of machines measured would be shown beside these.
    let fresh = &["--fresh"][..];
    let alone = environment.run(&[&BENCH[..], fresh].concat());
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    let (expected, none) = observations(&environment);
    assert!(none.is_empty(), "{none:?}");
    let finished = environment.run(&[&BENCH[..], &ON, fresh].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let (found, machines) = observations(&environment);
    // Orders and layouts too.
    assert_eq!(found, expected);
    // A block is one machine's, and so are the blocks of its task.
    assert!(machines.values().all(|of| of.len() == 1), "{machines:?}");
    for block in 0..8 {
        let task = (false, block / 4 * 4);
        assert_eq!(machines[&(false, block)], machines[&task], "{machines:?}");
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
    let tasks = |name: &str| -> BTreeSet<String> {
        read(name)
            .lines()
            .filter(is_row)
            .map(str::to_owned)
            .collect()
    };
    let (cancelled, submitted) = (tasks("cancelled"), tasks("submitted"));
    assert!(!submitted.is_empty());
    assert_eq!(cancelled, submitted);
    fs::remove_file(environment.workspace().join("closed")).unwrap();

    // Untrusted authors' files are no results, and what hides behind a link is not read.
    let folder = exchange(&environment);
    fs::write(folder.join("block-0.json"), "{\"schema\":1}").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("block-1.json")).unwrap();
    // Blocks that failed on two machines, for which an earlier coordinator has stopped.
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
            "error": {"kind": "run", "message": "the disk was full"},
        });
        fs::write(
            folder.join(format!("block-{number}.json")),
            fault.to_string(),
        )
        .unwrap();
    }
    let first = folder.file_name().unwrap().to_str().unwrap();
    environment.write("refuse", format!("perfquilt-{first}-2.12\n"));
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

/// A text that must not leave the coordinator's environment.
const TOKEN: &str = "planted-5b1d77e0-token";

/// A coordinator that measures 16 blocks, on the queue.
struct Coordinator {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    said: Vec<String>,
}

impl Coordinator {
    fn start(environment: &TestEnvironment) -> Self {
        let args = [
            "run",
            "--blocks",
            "16",
            "--resolution",
            "0",
            "--on",
            "command",
        ];
        let mut child = environment
            .command(&args)
            .env("GITHUB_TOKEN", TOKEN)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Coordinator {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Waits until it says `mark`.
    fn reach(&mut self, mark: &str) {
        loop {
            let line = self.lines.next().transpose().unwrap();
            let line = line.unwrap_or_else(|| panic!("no {mark:?}: {:#?}", self.said));
            let found = line.contains(mark);
            self.said.push(line);
            if found {
                return;
            }
        }
    }

    fn kill(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, and checks that every block is stored once and that nothing of it is left.
    fn succeed(mut self, environment: &TestEnvironment) -> String {
        self.said.extend(self.lines.map_while(Result::ok));
        let said = self.said.join("\n");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        let (plan, machines) = observations(environment);
        let blocks: BTreeSet<u64> = plan.keys().filter(|key| !key.0).map(|key| key.1).collect();
        assert_eq!(blocks, (0..16).collect(), "{said}");
        assert!(machines.values().all(|of| of.len() == 1), "{machines:?}");
        environment.wait_until_no_process_is_left();
        said
    }
}

fn flag(environment: &TestEnvironment, name: &str) -> PathBuf {
    environment.write(name, "");
    environment.workspace().join(name)
}

/// Returns the running tasks: the name and the process group of each.
fn running(environment: &TestEnvironment) -> Vec<(String, Pid)> {
    let jobs = environment.workspace().join("jobs");
    let mut found = Vec::new();
    for entry in fs::read_dir(&jobs).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let state = fs::read_to_string(entry.path()).unwrap_or_default();
        let pid = fs::read_to_string(jobs.join(format!("{name}.pid"))).unwrap_or_default();
        let is_row = !name.contains("-facts-") && !name.contains("-execution-");
        if is_row
            && state.starts_with("running")
            && let Ok(pid) = pid.trim().parse()
        {
            found.push((name, Pid::from_raw(pid).unwrap()));
        }
    }
    found
}

/// The toy series, built, with a queue and with blocks that last.
fn slow_environment() -> TestEnvironment {
    let environment = environment();
    let config = "bench-config/perfquilt.toml";
    environment.replace(config, "block_seconds = 0.3", "block_seconds = 1.2");
    environment
}

/// Waits until a task runs, and returns it.
fn until_one_runs(environment: &TestEnvironment) -> (String, Pid) {
    loop {
        if let Some(task) = running(environment).pop() {
            return task;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn machines_and_a_head_that_die_cost_no_block() {
    let environment = slow_environment();
    let mut coordinator = Coordinator::start(&environment);
    coordinator.reach("measure …");
    // A machine loses its power.
    let (name, group) = until_one_runs(&environment);
    kill_process_group(group, Signal::KILL).unwrap();
    environment.write(&format!("jobs/{name}"), "ended\n");
    coordinator.reach("its job ended without results");
    until_one_runs(&environment);
    coordinator.kill();
    let submitted = || fs::read_to_string(environment.workspace().join("submitted")).unwrap();
    let before = submitted();
    let running = running(&environment);
    Coordinator::start(&environment).succeed(&environment);
    // The second coordinator has found what was running.
    let after = submitted();
    let again = after.strip_prefix(&before).unwrap();
    for (name, _) in running {
        let task = name.rsplit_once('.').unwrap().1;
        let is_it = |line: &str| {
            !line.contains("-facts-") && line.rsplit_once('.').is_some_and(|of| of.1 == task)
        };
        assert!(!again.lines().any(is_it), "{name}: {again}");
    }
    // Nothing tells a job the coordinator's secrets.
    let environments = environment.workspace().join("environments");
    assert!(!fs::read_to_string(environments).unwrap().contains(TOKEN));
}

#[test]
fn a_queue_that_forgets_its_jobs_or_denies_them_has_no_block_stored_twice() {
    let environment = slow_environment();
    let late = flag(&environment, "late");
    let mut coordinator = Coordinator::start(&environment);
    coordinator.reach("does not answer");
    until_one_runs(&environment);
    fs::remove_file(late).unwrap();
    let forget = flag(&environment, "forget");
    coordinator.reach("its job ended without results");
    fs::remove_file(forget).unwrap();
    coordinator.succeed(&environment);
}

#[test]
fn a_queue_that_is_silent_or_full_for_a_while_costs_no_block() {
    let environment = slow_environment();
    let mut coordinator = Coordinator::start(&environment);
    coordinator.reach("forecast:");
    let full = flag(&environment, "full");
    coordinator.reach("does not answer");
    let turned_away = environment.workspace().join("turned-away");
    let times = || {
        let text = fs::read_to_string(&turned_away).unwrap_or_default();
        text.lines().filter(|name| name.ends_with(".0")).count()
    };
    while times() < 2 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let deaf = flag(&environment, "deaf");
    fs::remove_file(full).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    fs::remove_file(deaf).unwrap();
    let said = coordinator.succeed(&environment);
    assert!(!said.contains("lost"), "{said}");
}

#[test]
fn a_scheduler_that_does_not_answer_is_told_before_anything_is_measured() {
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
    let unknown = environment.run(&["run", "--on", "sge"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("slurm, command"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn a_server_that_changed_in_the_cache_is_not_measured() {
    let environment = environment();
    let closed = flag(&environment, "closed");
    let mut coordinator = Coordinator::start(&environment);
    coordinator.reach("2 queued");
    // What a failing disk does after the coordinator has looked.
    let mut changed = 0;
    for build in fs::read_dir(environment.cache().join("builds")).unwrap() {
        let server = build.unwrap().path().join("bin/toyd");
        if let Ok(mut bytes) = fs::read(&server) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&server, bytes).unwrap();
            changed += 1;
        }
    }
    assert!(changed > 1);
    fs::remove_file(closed).unwrap();
    for job in fs::read_dir(environment.workspace().join("jobs")).unwrap() {
        let job = job.unwrap().path();
        if fs::read_to_string(&job).is_ok_and(|state| state.starts_with("queued")) {
            fs::write(job, "ended\n").unwrap();
        }
    }
    let Coordinator {
        mut child,
        lines,
        mut said,
    } = coordinator;
    said.extend(lines.map_while(Result::ok));
    let said = said.join("\n");
    assert_eq!(child.wait().unwrap().code(), Some(5), "{said}");
    let log = fs::read_to_string(environment.workspace().join("log")).unwrap();
    for words in ["is damaged", "check disk and memory of this machine"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    let report = environment.run(&["report", "--format", "jsonl"]);
    assert!(!report.stdout.contains("\"block\""), "{}", report.stdout);
    environment.wait_until_no_process_is_left();
}
