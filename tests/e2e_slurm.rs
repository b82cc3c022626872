//! A Slurm cluster of three nodes on this machine (`ci/slurm-trial`), whose parts fail while it measures (`ci/e2e`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Finished, TestEnvironment};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

const BLOCKS: u32 = 24;
/// A text that must not leave the coordinator's environment.
const TOKEN: &str = "planted-0f7c2a91-token";

/// A running cluster, and a workspace that uses it.
struct Trial {
    environment: TestEnvironment,
    folder: PathBuf,
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.script(&["stop"]);
    }
}

impl Trial {
    fn start() -> Self {
        let environment = TestEnvironment::with_fixture("toy");
        environment.replace(
            "bench-config/perfquilt.toml",
            "block_seconds = 0.3",
            "block_seconds = 0.6",
        );
        let config = environment.workspace().join("bench-config/perfquilt.toml");
        let text = fs::read_to_string(&config).unwrap();
        let scratch = environment
            .cache()
            .parent()
            .unwrap()
            .join("scratch/{machine}");
        let cluster = format!(
            "\n[cluster]\nclass = \"trial\"\nmachines = 3\nminutes = 5\nscratch = {:?}\n",
            scratch.display().to_string()
        );
        fs::write(&config, text + &cluster).unwrap();
        let folder = environment.workspace().parent().unwrap().join("slurm");
        let trial = Trial {
            environment,
            folder,
        };
        trial.script(&["start"]);
        trial
    }

    /// Runs `ci/slurm-trial WORDS[0] FOLDER WORDS[1..]`.
    fn script(&self, words: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/slurm-trial");
        let status = Command::new(script)
            .arg(words[0])
            .arg(&self.folder)
            .args(&words[1..])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{words:?}: {status}");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.environment.command(args);
        command.env("SLURM_CONF", self.folder.join("slurm.conf"));
        command.env("GITHUB_TOKEN", TOKEN);
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        self.command(args).output().unwrap().into()
    }

    /// Starts measuring, and returns the coordinator once its tasks are about to be submitted.
    fn measure(&self) -> Coordinator {
        let blocks = BLOCKS.to_string();
        let args = [
            "run",
            "--on",
            "slurm",
            "--blocks",
            &blocks,
            "--resolution",
            "0",
        ];
        let mut child = self
            .command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut before = Vec::new();
        loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("it ended: {before:#?}"))
                .unwrap();
            let is_measuring = line.starts_with("measure");
            before.push(line);
            if is_measuring {
                break;
            }
        }
        let rest = std::thread::spawn(move || {
            before.extend(lines.map_while(Result::ok));
            before.join("\n")
        });
        Coordinator {
            child,
            begun: Instant::now(),
            rest,
        }
    }

    fn pid(&self, daemon: &str) -> Pid {
        let text = fs::read_to_string(self.folder.join(format!("{daemon}.pid"))).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    fn signal(&self, daemon: &str, signal: Signal) {
        kill_process(self.pid(daemon), signal).unwrap();
    }

    /// Builds the points, as jobs.
    fn build(&self) {
        let built = self.run(&["build", "--recipe", "make", "--on", "slurm"]);
        assert_eq!(built.code, Some(0), "{}", built.stderr);
    }

    /// Checks that every block is stored once, each measured by one machine; returns the machines.
    fn check_blocks(&self) -> BTreeSet<String> {
        let (plan, machines) = self.observations();
        let blocks: BTreeSet<u64> = plan.keys().filter(|key| !key.0).map(|key| key.1).collect();
        assert_eq!(blocks, (0..u64::from(BLOCKS)).collect());
        assert!(machines.values().all(|of| of.len() == 1), "{machines:?}");
        machines.into_values().flatten().collect()
    }

    fn observations(&self) -> (Plan, BTreeMap<(bool, u64), BTreeSet<String>>) {
        let report = self.run(&["report", "--format", "jsonl"]);
        assert_eq!(report.code, Some(0), "{}", report.stderr);
        let mut plan = Plan::new();
        let mut machines: BTreeMap<(bool, u64), BTreeSet<String>> = BTreeMap::new();
        let mut lines = report
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let experiment = lines.next().unwrap()["experiment"].clone();
        for line in lines {
            // Blocks of earlier experiments are shown beside its own.
            let Some(block) = line["block"]
                .as_u64()
                .filter(|_| line["experiment"] == experiment)
            else {
                continue;
            };
            let direct = line["direct"] == true;
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            let number = |name: &str| line[name].as_u64().unwrap();
            let key = (direct, block, text("meter"), text("point"));
            let again = plan.insert(key, (number("order"), number("layout")));
            assert_eq!(again, None, "stored twice: {line}");
            if let Some(machine) = line["machine"].as_str() {
                machines
                    .entry((direct, block))
                    .or_default()
                    .insert(machine.to_owned());
            }
        }
        (plan, machines)
    }

    /// Waits until no job is left; the controller kills what does not end after KillWait, five seconds.
    fn wait_until_no_job_is_left(&self) {
        let begun = Instant::now();
        loop {
            let jobs = Command::new("squeue")
                .args(["-h", "-t", "running,pending,completing"])
                .env("SLURM_CONF", self.folder.join("slurm.conf"))
                .output()
                .unwrap();
            let left = String::from_utf8_lossy(&jobs.stdout).trim().to_owned();
            if jobs.status.success() && left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{left}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Order and layout of measurements, by block, meter and point.
type Plan = BTreeMap<(bool, u64, String, String), (u64, u64)>;

/// A coordinator that measures.
struct Coordinator {
    child: Child,
    begun: Instant,
    rest: std::thread::JoinHandle<String>,
}

impl Coordinator {
    fn wait_until(&self, seconds: u64) {
        let left = Duration::from_secs(seconds).saturating_sub(self.begun.elapsed());
        std::thread::sleep(left);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the exit code and what it wrote.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        println!(
            "ended after {:.0} s with {code:?}",
            self.begun.elapsed().as_secs_f64()
        );
        (code, self.rest.join().unwrap())
    }

    fn succeed(self) -> String {
        let (code, text) = self.end();
        assert_eq!(code, Some(0), "{text}");
        text
    }
}

/// Returns the files below `folder` that contain `text`.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let found = Command::new("grep")
        .args(["-rlaF", text])
        .arg(folder)
        .output()
        .unwrap();
    String::from_utf8(found.stdout)
        .unwrap()
        .lines()
        .map(PathBuf::from)
        .collect()
}

#[test]
fn a_cluster_builds_and_measures_as_one_machine_does() {
    let trial = Trial::start();
    let doctor = trial.run(&["doctor", "--on", "slurm"]);
    for words in ["slurm answers", "links, renames and locks work", "cores × "] {
        let line = words.replace("cores × ", " × ");
        assert!(
            doctor.stdout.contains(&line),
            "{line}: {}{}",
            doctor.stdout,
            doctor.stderr
        );
    }
    trial.build();
    let built = fs::read_dir(trial.environment.cache().join("builds"))
        .unwrap()
        .count();
    assert!(built >= 3, "{built}");
    trial.measure().succeed();
    let machines = trial.check_blocks();
    assert!(machines.len() > 1, "{machines:?}");
    let (plan, _) = trial.observations();
    // Each node of the trial has one processor.
    let all = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
    let blocks = BLOCKS.to_string();
    let alone = trial.run(&["run", "--blocks", &blocks, "--resolution", "0"]);
    sched_setaffinity(None, &all).unwrap();
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    let (expected, none) = trial.observations();
    assert!(none.is_empty(), "{none:?}");
    // Orders and layouts too.
    assert_eq!(plan, expected);
}

#[test]
fn a_node_that_dies_costs_no_block() {
    let trial = Trial::start();
    trial.build();
    let coordinator = trial.measure();
    coordinator.wait_until(6);
    trial.script(&["kill", "n2"]);
    coordinator.succeed();
    trial.check_blocks();
}

#[test]
fn a_node_whose_daemon_dies_while_its_job_goes_on_costs_no_block() {
    let trial = Trial::start();
    trial.build();
    let coordinator = trial.measure();
    coordinator.wait_until(6);
    trial.signal("slurmd.n3", Signal::KILL);
    coordinator.succeed();
    trial.check_blocks();
}

#[test]
fn a_controller_that_dies_costs_no_block() {
    for seconds in [2, 6, 10] {
        let trial = Trial::start();
        trial.build();
        let coordinator = trial.measure();
        coordinator.wait_until(seconds);
        trial.signal("slurmctld", Signal::KILL);
        std::thread::sleep(Duration::from_secs(1));
        trial.script(&["controller"]);
        coordinator.succeed();
        trial.check_blocks();
    }
}

#[test]
fn a_controller_that_hangs_while_jobs_are_submitted_gets_them_once() {
    let trial = Trial::start();
    trial.build();
    let coordinator = trial.measure();
    trial.signal("slurmctld", Signal::STOP);
    coordinator.wait_until(13);
    trial.signal("slurmctld", Signal::CONT);
    let text = coordinator.succeed();
    assert!(
        text.contains("does not answer") || text.contains("sbatch"),
        "{text}"
    );
    trial.check_blocks();
}

#[test]
fn a_new_head_adopts_the_jobs_of_a_killed_one() {
    let trial = Trial::start();
    trial.build();
    let coordinator = trial.measure();
    coordinator.wait_until(6);
    coordinator.signal(Signal::KILL);
    assert_eq!(coordinator.end().0, None);
    trial.measure().succeed();
    trial.check_blocks();
}

#[test]
fn an_interrupted_head_leaves_nothing_behind_and_no_secret_anywhere() {
    let trial = Trial::start();
    trial.build();
    let coordinator = trial.measure();
    coordinator.wait_until(6);
    coordinator.signal(Signal::INT);
    let (code, text) = coordinator.end();
    assert_eq!(code, Some(130), "{text}");
    trial.wait_until_no_job_is_left();
    for folder in [&trial.folder, &trial.environment.workspace()] {
        assert_eq!(files_with(folder, TOKEN), Vec::<PathBuf>::new());
    }
    // What was published counts.
    trial.measure().succeed();
    trial.check_blocks();
}
