//! The page of a large experiment: how long it takes, and how large it is.
//!
//! `cargo bench --bench page [-- --patches 50 --workloads 20 --observations 1000000]`: a minute. The limits are
//! 2 seconds and 3 MB; a ratio above 1 misses one.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs
)]

mod made_up;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use clap::Parser;
use perfquilt_model::observation::{Meter, Observation};
use perfquilt_model::point::Point;
use perfquilt_store::{SliceBlob, Store};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 50)]
    patches: usize,
    #[arg(long, default_value_t = 20)]
    workloads: usize,
    /// Observations of the second experiment, slices of the first
    #[arg(long, default_value_t = 1_000_000)]
    observations: usize,
    /// Argument that cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let wanted = Arguments::parse();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("bench-config");
    std::fs::create_dir(&config).unwrap();
    std::fs::write(
        config.join("perfquilt.toml"),
        "[upstream]\nname = \"srv\"\ncurrent = \"1.0\"\nrelease = [{ version = \"1.0\", directory = \"up\" }]\n\
         [recipe]\n[preset]\n[server]\nadapter = \"mariadb\"\n",
    )
    .unwrap();
    let store = Store::open(&folder.path().join(".perfquilt/results.db")).unwrap();
    let cells = (wanted.patches + 1) * wanted.workloads;
    // A few blocks with many slices each, and many blocks without.
    let blocks = 24;
    let slices = (wanted.observations / (cells * blocks)).max(1);
    fill(&store, &wanted, "slices", blocks, slices);
    fill(
        &store,
        &wanted,
        "blocks",
        (wanted.observations / cells).max(1),
        0,
    );
    drop(store);
    for name in ["slices", "blocks"] {
        measure(folder.path(), name);
    }
}

fn measure(folder: &Path, name: &str) {
    let page = folder.join("report.html");
    let time = |args: &[&str]| {
        let mut seconds: Vec<f64> = (0..5)
            .map(|_| {
                let started = Instant::now();
                let status = Command::new(env!("CARGO_BIN_EXE_perfquilt"))
                    .args(["--quiet", "report", name])
                    .args(args)
                    .current_dir(folder)
                    .stdout(std::process::Stdio::null())
                    .status()
                    .unwrap();
                assert!(status.success());
                started.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        seconds[2]
    };
    let plain = time(&["--format", "json"]);
    let seconds = time(&["--format", "html"]);
    let beside = time(&["--format", "html", "--output", page.to_str().unwrap()]);
    let size = |path: &Path| std::fs::metadata(path).map(|meta| meta.len() as f64 / 1e6);
    // As few as a page can take are in it.
    let observations = match size(&folder.join("report.observations.jsonl.gz")) {
        Ok(megabytes) => format!("with the observations in a file beside it ({megabytes:.1} MB)"),
        Err(_) => "with the observations in it, written to a file".to_owned(),
    };
    let megabytes = size(&page).unwrap();
    println!(
        "{name}: page {seconds:.2} s (limit 2 s, ratio {:.2}), {megabytes:.2} MB (limit 3 MB, ratio {:.2}); \
         {observations} {beside:.2} s; the JSON document alone {plain:.2} s",
        seconds / 2.0,
        megabytes / 3.0
    );
}

/// An experiment of so many blocks, with so many slices a point and block.
fn fill(store: &Store, wanted: &Arguments, name: &str, blocks: usize, slices: usize) {
    let header = made_up::header(name, wanted.patches);
    let id = store.begin(&header, name).unwrap();
    let mut random = StdRng::seed_from_u64(1);
    for block in 0..u32::try_from(blocks).unwrap() {
        let mut observations = Vec::new();
        let mut blobs = Vec::new();
        for workload in 0..wanted.workloads {
            for (order, point) in (0..).zip(0..=wanted.patches) {
                let gain = 0.002 * point as f64;
                let value = 90_000.0 * (random.random_range(-0.01..0.01) - gain).exp();
                let workload = format!("workload_{workload:02}");
                let point = Point::Step(point);
                observations.push(Observation {
                    experiment: name.into(),
                    order,
                    n: 400,
                    ..Observation::new(block, point, &workload, Meter::Time, value)
                });
                let noise = |_| (value * random.random_range(0.9..1.3)) as f32;
                blobs.push(SliceBlob {
                    block,
                    workload,
                    point,
                    direct: false,
                    transactions_per_slice: 1,
                    values: (0..slices).map(noise).collect(),
                });
            }
        }
        blobs.retain(|blob| !blob.values.is_empty());
        store.append(id, &observations, &blobs).unwrap();
    }
}
