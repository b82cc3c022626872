//! Benchmark seconds until four patches are known to ±0.5 %, against three ways to measure servers by
//! hand: back-to-back runs of 30 s, runs of 3 s in the order ABBA, and the minimum of three runs.
//!
//! `cargo bench --bench peers [-- --rounds 20 --blocks 24 --workload oltp_read_only --preset quick]`: three quarters of an hour
//! on the real server. What each way needs follows from how much its differences vary between two
//! servers that are the same; a unit is a fresh start of both in every case, so that all intervals
//! keep their 95 %. perfquilt measures the real series in the same minutes. Starts and warm-up are
//! counted for nobody.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::path::{Path, PathBuf};
use std::slice::from_ref;

use clap::Parser;
use perfquilt_bench::server::{self, Launch, Running, Scratch, ServerAdapter, ServerSpace};
use perfquilt_bench::workload::Clients;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Layouts, Workload};
use perfquilt_judge::stats;
use perfquilt_measure::run;
use perfquilt_model::error::Kind;
use perfquilt_model::point::Point;
use perfquilt_system::process::Command;
use serde::Deserialize;
use serde_json::Value;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Points of the series, the bare release among them.
const POINTS: usize = 5;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "oltp_read_only")]
    workload: String,
    /// Preset of perfquilt, with `layouts = "off"`: the other ways measure servers as they were linked
    #[arg(long, default_value = "quick")]
    preset: String,
    /// Units of each of the other ways
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Blocks of perfquilt
    #[arg(long, default_value_t = 24)]
    blocks: u32,
    /// The half-width wanted, as a fraction
    #[arg(long, default_value_t = 0.005)]
    resolution: f64,
    /// The workspace
    #[arg(short = 'C', default_value = ".")]
    workspace: PathBuf,
    /// Argument that cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// The settings of a sysbench workload that a plain run of sysbench uses.
#[derive(Deserialize)]
struct SysbenchSettings {
    script: String,
    #[serde(default)]
    options: toml::Table,
}

/// Two servers that are the same, and how to ask them.
struct Bench<'a> {
    adapter: Box<dyn ServerAdapter>,
    server: PathBuf,
    template: PathBuf,
    scratch: Scratch,
    workload: &'a Workload,
    database: String,
}

impl<'a> Bench<'a> {
    fn new(ws: &'a Workspace, name: &str) -> Self {
        let workload = ws.config.workload(name).unwrap();
        let recipe = &ws.config.preset("quick").unwrap().recipe;
        let prepared = run::prepare(ws, None).unwrap();
        let built = run::build_points(ws, &prepared, (recipe, None), &[Point::BASE]).unwrap();
        let server = built[0].built.as_ref().unwrap().dir.clone();
        let adapter = server::adapter(ws).unwrap();
        let clients = Clients::new(ws, &prepared.release.name, from_ref(workload)).unwrap();
        let data = clients.data_sets().unwrap().into_keys().next().unwrap();
        let release = format!("peers-{}", prepared.release.name);
        let data_of = (release.as_str(), server.as_path());
        let template = clients.template(ws, adapter.as_ref(), data_of).unwrap();
        let bytes = perfquilt_system::caches::size(&template);
        Bench {
            adapter,
            server,
            template,
            scratch: Scratch::open(ws, ServerSpace { servers: 2, bytes }).unwrap(),
            workload,
            database: format!("perfquilt_{data}"),
        }
    }

    /// A server just started and warm.
    fn start(&self) -> Running {
        let dir = self.scratch.fresh().unwrap();
        let mut launch = Launch::new("peer", &self.server, &dir);
        launch.template = Some(&self.template);
        let running = self.adapter.start(&launch).unwrap();
        self.seconds_per_transaction(&running, 2);
        running
    }

    /// Logarithm of the seconds a transaction takes, in a plain run of sysbench.
    fn seconds_per_transaction(&self, running: &Running, seconds: u32) -> f64 {
        let settings: SysbenchSettings = self.workload.settings.parse().unwrap().unwrap();
        let options = settings.options.iter().map(|(name, value)| {
            let value = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Boolean(true) => "on".to_owned(),
                toml::Value::Boolean(false) => "off".to_owned(),
                other => other.to_string(),
            };
            format!("--{}={value}", name.replace('_', "-"))
        });
        let output = Command::new("sysbench")
            .arg(&settings.script)
            .arg(format!(
                "--mysql-socket={}",
                running.endpoint.socket.display()
            ))
            .arg(format!("--mysql-db={}", self.database))
            .args(["--mysql-user=root", "--threads=1"])
            .arg(format!("--time={seconds}"))
            .args(options)
            .arg("run")
            .run()
            .unwrap();
        let text = output.stdout_text();
        let rate: f64 = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("transactions:"))
            .and_then(|rest| rest.split_once('('))
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .unwrap_or_else(|| panic!("sysbench: {text}"))
            .parse()
            .unwrap();
        -rate.ln()
    }

    fn long(&self) -> f64 {
        let one = || self.seconds_per_transaction(&self.start(), 30);
        one() - one()
    }

    fn abba(&self) -> f64 {
        let (a, b) = (self.start(), self.start());
        let short = |server| self.seconds_per_transaction(server, 3);
        let (first, second, third, fourth) = (short(&a), short(&b), short(&b), short(&a));
        f64::midpoint(first, fourth) - f64::midpoint(second, third)
    }

    fn minimum(&self) -> f64 {
        let one = || {
            let server = self.start();
            (0..3)
                .map(|_| self.seconds_per_transaction(&server, 3))
                .fold(f64::INFINITY, f64::min)
        };
        one() - one()
    }
}

/// Units until an interval from values of this standard deviation is ± `half`.
fn units(sd: f64, half: f64) -> u32 {
    (2..100_000)
        .find(|&n| quantile(n) * sd / f64::from(n).sqrt() <= half)
        .unwrap()
}

/// Student's quantile for a mean of `n` values at 95 %.
fn quantile(n: u32) -> f64 {
    StudentsT::new(0.0, 1.0, f64::from(n - 1))
        .unwrap()
        .inverse_cdf(0.975)
}

/// Blocks until the worst known of the patches is known to ± `half`, and how many it was measured with.
fn ours(workspace: &Path, options: &Arguments) -> (u32, u32) {
    let output = Command::new(env!("CARGO_BIN_EXE_perfquilt"))
        .directory(workspace)
        .args(["run", "--preset", &options.preset, "--fresh", "--json"])
        .args(["--resolution", "0"])
        .args(["--workload", &options.workload])
        .args(["--blocks", &options.blocks.to_string()])
        .run_ok(Kind::Bench)
        .unwrap();
    let document: Value = serde_json::from_str(&output.stdout_text()).unwrap();
    let patches = document["patches"].as_array().unwrap();
    assert_eq!(patches.len() + 1, POINTS);
    let needed = patches
        .iter()
        .flat_map(|patch| patch["effects"].as_array().unwrap())
        .filter(|effect| effect["meter"] == "time" && effect["low"].is_number())
        .map(|effect| {
            let number = |name: &str| effect[name].as_f64().unwrap();
            let half = (number("high") - number("low")) / 2.0;
            let blocks = number("blocks").round() as u32;
            let sd = half * f64::from(blocks).sqrt() / quantile(blocks);
            units(sd, options.resolution)
        })
        .max()
        .unwrap();
    (needed, options.blocks)
}

fn main() {
    let options = Arguments::parse();
    let ws = Workspace::open(&options.workspace).unwrap();
    let preset = ws.config.preset(&options.preset).unwrap();
    assert_eq!(
        preset.layouts,
        Some(Layouts::Off),
        "give `layouts = \"off\"` to the preset, or name another with --preset"
    );
    let block_seconds = preset.block_seconds;
    let bench = Bench::new(&ws, &options.workload);
    let (mut long, mut abba, mut minimum) = (Vec::new(), Vec::new(), Vec::new());
    let mut measured = None;
    for round in 0..options.rounds {
        if round == options.rounds / 2 {
            measured = Some(ours(&options.workspace, &options));
        }
        long.push(bench.long());
        abba.push(bench.abba());
        minimum.push(bench.minimum());
        println!("round {} of {}", round + 1, options.rounds);
    }
    let (blocks, of) = measured.unwrap();
    // An experiment of perfquilt does not end by itself before this.
    let blocks = blocks.max(perfquilt_config::DEFAULT_MIN_BLOCKS);
    let own = f64::from(blocks) * block_seconds;

    println!(
        "{}, {POINTS} points, every patch to ±{} %: benchmark seconds",
        options.workload,
        100.0 * options.resolution
    );
    println!(
        "  {own:8.0}    1.0 x  perfquilt: {blocks} blocks of {block_seconds} s ({of} measured)"
    );
    let pairs = POINTS - 1;
    for (name, values, seconds) in [
        ("back to back, 30 s", &long, 30 * POINTS),
        ("ABBA, 3 s", &abba, 12 * pairs),
        ("minimum of three, 3 s", &minimum, 9 * POINTS),
    ] {
        let found = stats::Interval::of(values).unwrap();
        let sd = found.standard_error * (values.len() as f64).sqrt();
        let needed = units(sd, options.resolution);
        let cost = f64::from(needed) * seconds as f64;
        println!(
            "  {cost:8.0} {:6.1} x  {name}: {needed} units of {seconds} s; two equal servers differ by \
             {:+.2} ± {:.2} % ({} units)",
            cost / own,
            100.0 * found.estimate,
            50.0 * (found.high() - found.low()),
            values.len()
        );
    }
}
